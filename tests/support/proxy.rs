//! A TCP proxy that breaks connections as networks, hosts and middleboxes do, live, on a test's command.
//!
//! The *client* connects to the proxy (the relay); the proxy connects to the *server* (the control plane).

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use socket2::{SockFilter, SockRef, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::net;

/// "Accept no bytes", for the kernel's packet filter.
const DROP_ALL: [SockFilter; 1] = [SockFilter::new(0x06, 0, 0, 0)];

/// The treatment of a connection from now on.
#[derive(Clone, Debug, Default)]
struct Rules {
    /// Nothing is read or forwarded; the kernels still acknowledge data that fits their buffers.
    hangs: bool,
    /// Data of the client, or of the server, is read and dropped.
    drops_to_server: bool,
    drops_to_client: bool,
    /// Bytes per second towards the client.
    rate: Option<u64>,
    /// The delay of each piece.
    delay: Duration,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug)]
enum End {
    /// FIN to both sides.
    Cut,
    /// RST to both sides.
    Reset,
}

/// A connection, alive or ended.
struct Link {
    rules: watch::Sender<Rules>,
    /// Bytes for the client between two pieces of the server's data.
    injected: mpsc::UnboundedSender<Vec<u8>>,
    /// The position of the byte to corrupt, counted from the server's next byte.
    corrupted: Mutex<Option<u64>>,
    packets: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    links: Vec<Arc<Link>>,
    /// The rules of later connections.
    rules: Rules,
    accepted: Vec<Instant>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    state: Mutex<State>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the proxy")
    }
}

/// Forwards TCP to `target` unless a fault is set. Faults apply to living connections; those that last apply
/// to later connections too, as their comments state.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    /// `None` while connections are refused.
    listener: Option<Arc<TcpListener>>,
    task: Option<JoinHandle<()>>,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Proxy {
        Proxy::at(SocketAddr::from(([127, 0, 0, 1], net::free_port())), target).await
    }

    pub async fn at(address: SocketAddr, target: SocketAddr) -> Proxy {
        let shared = Arc::new(Shared { target: Mutex::new(target), state: Mutex::default() });
        let mut proxy = Proxy { address, shared, listener: None, task: None };
        proxy.listen().await;
        proxy
    }

    /// The times of accepted connections.
    pub fn accepted(&self) -> Vec<Instant> {
        self.shared.lock().accepted.clone()
    }

    /// Leads later connections to another server.
    pub fn aim(&self, target: SocketAddr) {
        *self.shared.target.lock().expect("no test panics while it holds the proxy") = target;
    }

    /// Ends every connection with a FIN.
    pub fn cut(&self) {
        self.change(|rules| rules.end = Some(End::Cut));
    }

    /// Ends every connection with a RST.
    pub fn reset(&self) {
        self.change(|rules| rules.end = Some(End::Reset));
    }

    /// Acts like a server whose process is stopped: the kernel acknowledges and accepts, also for later
    /// connections, and nothing else happens.
    pub fn hang(&self) {
        self.change_all(|rules| rules.hangs = true);
    }

    /// Like [`Proxy::hang`], but only for living connections.
    pub fn hang_live(&self) {
        self.change(|rules| rules.hangs = true);
    }

    /// Drops all packets in both directions, also of later connections: no acknowledgements, no answer to a
    /// SYN.
    pub fn partition(&self) {
        self.blackhole();
        self.change(|rules| rules.hangs = true);
        self.packets(false);
    }

    /// Loses the client's packets, acknowledgements included; the server's data still arrives.
    pub fn lose_to_server(&self) {
        self.packets(false);
    }

    /// Loses the server's data, while the client's bytes are acknowledged.
    pub fn drop_to_client(&self) {
        self.change_all(|rules| rules.drops_to_client = true);
    }

    /// Acknowledges and drops the client's data.
    pub fn drop_to_server(&self) {
        self.change_all(|rules| rules.drops_to_server = true);
    }

    /// Limits bytes per second towards the client, for later connections too.
    pub fn throttle(&self, rate: u64) {
        self.change_all(|rules| rules.rate = Some(rate));
    }

    /// Delays each piece, for later connections too.
    pub fn delay(&self, delay: Duration) {
        self.change_all(|rules| rules.delay = delay);
    }

    /// Ends the effect of [`Proxy::hang`], [`Proxy::partition`], a loss, a rate or a delay.
    pub fn heal(&self) {
        if let Some(listener) = &self.listener {
            let _ = SockRef::from(&**listener).detach_filter();
        }
        self.packets(true);
        self.change_all(|rules| *rules = Rules { end: rules.end, ..Rules::default() });
    }

    /// Corrupts one of the server's next bytes, at this position.
    pub fn corrupt(&self, position: u64) {
        for link in &self.shared.lock().links {
            *link.corrupted.lock().expect("the proxy's task never panics") = Some(position);
        }
    }

    /// Sends the client bytes that are not from the server.
    pub fn inject(&self, bytes: &[u8]) {
        for link in &self.shared.lock().links {
            let _ = link.injected.send(bytes.to_vec());
        }
    }

    /// Loses SYNs from now on: an attempt to connect gets no answer.
    pub fn blackhole(&self) {
        let listener = self.listener.as_ref().expect("the port is open");
        SockRef::from(&**listener).attach_filter(&DROP_ALL).expect("attach a filter");
    }

    /// Closes the port: connections are reset, attempts refused, until [`Proxy::listen`].
    pub async fn refuse(&mut self) {
        self.reset();
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        self.listener = None;
    }

    /// Listens on the same port again.
    pub async fn listen(&mut self) {
        let listener = Arc::new(net::listen(self.address).await);
        self.task = Some(tokio::spawn(accept(listener.clone(), self.shared.clone())));
        self.listener = Some(listener);
    }

    fn packets(&self, pass: bool) {
        for link in &self.shared.lock().links {
            link.packets.send_if_modified(|passing| std::mem::replace(passing, pass) != pass);
        }
    }

    fn change(&self, change: impl Fn(&mut Rules)) {
        for link in &self.shared.lock().links {
            link.rules.send_modify(&change);
        }
    }

    fn change_all(&self, change: impl Fn(&mut Rules)) {
        self.change(&change);
        change(&mut self.shared.lock().rules);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

async fn accept(listener: Arc<TcpListener>, shared: Arc<Shared>) {
    // Dropped with this task, so that its end cuts every connection.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (injected, injections) = mpsc::unbounded_channel();
        let mut state = shared.lock();
        let rules = watch::Sender::new(state.rules.clone());
        let packets = watch::Sender::new(true);
        let link = Arc::new(Link { rules, injected, corrupted: Mutex::new(None), packets });
        state.accepted.push(Instant::now());
        state.links.retain(|link| link.rules.receiver_count() > 0);
        state.links.push(link.clone());
        drop(state);
        // Subscribed before the task begins, so that the connection counts as living.
        let rules = link.rules.subscribe();
        let target = *shared.target.lock().expect("no test panics while it holds the proxy");
        connections.spawn(serve(client, target, link, rules, injections));
    }
}

async fn serve(
    mut client: TcpStream,
    target: SocketAddr,
    link: Arc<Link>,
    rules: watch::Receiver<Rules>,
    injections: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let mut ending = rules.clone();
    let mut reached = rules.clone();
    // The proxy connects to a hanging server only after the hang.
    let connect = async {
        let _ = reached.wait_for(|rules| !rules.hangs).await;
        TcpStream::connect(target).await
    };
    let connected = tokio::select! {
        server = connect => server,
        end = ended(&mut ending) => return finish(end, &[&client]),
    };
    let Ok(mut server) = connected else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let end = {
        let socket = SockRef::from(&client).try_clone().expect("one more descriptor");
        let packets = filter(socket, link.packets.subscribe());
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let up = Pump { from: from_client, to: to_server, rules: rules.clone(), link: None };
        let down = Pump { from: from_server, to: to_client, rules, link: Some((&link, injections)) };
        tokio::select! {
            _ = async { tokio::join!(up.run(), down.run()) } => None,
            () = packets => None,
            end = ended(&mut ending) => Some(end),
        }
    };
    if let Some(end) = end {
        finish(end, &[&client, &server]);
    }
}

async fn ended(rules: &mut watch::Receiver<Rules>) -> End {
    let ended = rules.wait_for(|rules| rules.end.is_some()).await;
    ended.ok().and_then(|rules| rules.end).unwrap_or(End::Cut)
}

/// Takes effect when the sockets are dropped.
fn finish(end: End, sockets: &[&TcpStream]) {
    if matches!(end, End::Reset) {
        for socket in sockets {
            let _ = SockRef::from(*socket).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Makes the kernel drop, or take, packets from the client.
async fn filter(socket: Socket, mut pass: watch::Receiver<bool>) {
    loop {
        let Ok(()) = pass.changed().await else { return };
        let result =
            if *pass.borrow_and_update() { socket.detach_filter() } else { socket.attach_filter(&DROP_ALL) };
        result.expect("change the filter of a connection");
    }
}

/// One direction; faults may change the bytes towards the client.
struct Pump<'a> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    rules: watch::Receiver<Rules>,
    link: Option<(&'a Link, mpsc::UnboundedReceiver<Vec<u8>>)>,
}

impl Pump<'_> {
    async fn run(mut self) {
        if self.forward().await.is_ok() {
            let _ = self.to.shutdown().await;
        }
    }

    /// Returns at the end of the input.
    async fn forward(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            self.while_hanging().await;
            let rules = self.rules.borrow_and_update().clone();
            let rate = rules.rate.filter(|_| self.link.is_some());
            // At most the bytes for a tenth of a second.
            let piece = rate.map_or(buffer.len(), |rate| (rate / 10).clamp(1, buffer.len() as u64) as usize);
            let length = tokio::select! {
                length = self.from.read(&mut buffer[..piece]) => length?,
                bytes = injection(&mut self.link) => {
                    self.to.write_all(&bytes).await?;
                    continue;
                }
                changed = self.rules.changed() => {
                    changed.map_err(io::Error::other)?;
                    continue;
                }
            };
            if length == 0 {
                return Ok(());
            }
            sleep(rules.delay).await;
            self.while_hanging().await;
            let rules = self.rules.borrow().clone();
            let is_dropped = match &self.link {
                Some((link, _)) => {
                    corrupt_bytes(link, &mut buffer[..length]);
                    rules.drops_to_client
                }
                None => rules.drops_to_server,
            };
            if !is_dropped {
                self.to.write_all(&buffer[..length]).await?;
            }
            if let Some(rate) = rate {
                sleep(Duration::from_secs_f64(length as f64 / rate as f64)).await;
            }
        }
    }

    async fn while_hanging(&mut self) {
        let _ = self.rules.wait_for(|rules| !rules.hangs).await;
    }
}

async fn injection(link: &mut Option<(&Link, mpsc::UnboundedReceiver<Vec<u8>>)>) -> Vec<u8> {
    match link {
        Some((_, injections)) => match injections.recv().await {
            Some(bytes) => bytes,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

fn corrupt_bytes(link: &Link, bytes: &mut [u8]) {
    let mut corrupted = link.corrupted.lock().expect("the proxy's task never panics");
    match *corrupted {
        Some(position) if position < bytes.len() as u64 => {
            bytes[position as usize] ^= 0xff;
            *corrupted = None;
        }
        Some(position) => *corrupted = Some(position - bytes.len() as u64),
        None => {}
    }
}
