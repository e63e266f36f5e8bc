//! A scripted ADS server on a separate thread: the upstream of the server under test, or the server itself
//! when the tool measures its own floor. Serves SotW and delta, one response of a stream at a time; the
//! newest state wins.

mod load;
mod payload;
mod snapshot;
mod stream;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use self::load::{LoadStream, Loads};
pub use self::snapshot::Change;
use self::snapshot::Snapshot;
use self::stream::Stream;
use crate::function::Function;
use crate::load::Received;
use crate::measure::{ThreadTime, monotonic_ns};
use crate::xds::{Kind, LOAD_STATS, Service};

/// The accept backlog: all clients of a run may connect at once.
const BACKLOG: i32 = 4096;

/// Windows for the requests. h2 closes connections whose small DATA frames exceed half of the connection's
/// window.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// The maximum length of a request.
const MAX_REQUEST: usize = 4 << 20;

/// The time for an answer to a command.
const PATIENCE: Duration = Duration::from_secs(10);

/// The maximum number of streams on a connection: several clients may share a connection.
const MAX_STREAMS: u32 = 10_000;

/// The address and content of a control plane.
#[derive(Clone, Debug)]
pub struct Plan {
    pub listen: SocketAddr,
    /// The address for commands of other processes, one per line (see [`Remote`]).
    pub commands: Option<SocketAddr>,
    /// The number of resources of each type.
    pub resources: usize,
    /// The types, and the approximate size of a resource of each, in bytes.
    pub kinds: Vec<(Kind, usize)>,
    pub function: Function,
    /// The interval at which load reports are wanted.
    pub load_interval: Duration,
}

/// The state that all streams read.
#[derive(Clone)]
struct Shared {
    state: watch::Sender<Snapshot>,
    function: Arc<Function>,
    loads: Loads,
    /// Whether clients may connect.
    up: watch::Sender<bool>,
    /// CPU time of the thread, in nanoseconds.
    busy_ns: Arc<AtomicU64>,
}

/// A control plane that runs until it is dropped.
pub struct ControlPlane {
    shared: Shared,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl ControlPlane {
    /// Returns once the sockets listen.
    pub fn start(plan: &Plan) -> Result<ControlPlane> {
        let listener = listen(plan.listen)?;
        let commands = plan.commands.map(listen).transpose()?;
        let function = Arc::new(plan.function.clone());
        let state = watch::Sender::new(Snapshot::new(plan.resources, &plan.kinds, function.audiences()));
        let loads = Loads::new(plan.load_interval);
        let shared = Shared { state, function, loads, up: watch::Sender::new(true), busy_ns: Arc::default() };
        let (stop, stopped) = oneshot::channel();
        let (inside, address) = (shared.clone(), plan.listen);
        let thread = thread::Builder::new().name("control-plane".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(async {
                tokio::select! {
                    result = serve(listener, address, &inside) => result,
                    result = take_commands(commands, &inside) => result,
                    _ = stopped => Ok(()),
                }
            })
        })?;
        Ok(ControlPlane { shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Changes resources, which carry the stamp from then on. The stamp is the scheduled time of the change,
    /// so that encoding and other delays count as a part of the latency.
    pub fn change(&self, change: Change, stamp: u64) {
        self.shared.state.send_modify(|snapshot| snapshot.change(change, stamp));
    }

    /// Puts the rule of the function in force for a type; the resource that it changes carries the stamp.
    pub fn put_rule_in_force(&self, kind: Kind, stamp: u64) {
        self.shared.state.send_modify(|snapshot| snapshot.put_rule_in_force(kind, stamp));
    }

    /// Ends all connections and refuses new ones, or accepts them again.
    pub fn set_up(&self, up: bool) {
        self.shared.up.send_replace(up);
    }

    /// The sums of the load reports.
    pub fn received(&self) -> Received {
        self.shared.loads.received()
    }

    /// CPU time of the thread as of its last change, in nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.shared.busy_ns.load(Ordering::Relaxed)
    }

    /// Waits for the end of the thread, which only an error causes.
    pub fn wait(mut self) -> Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => Ok(result?),
            _ => anyhow::bail!("the control plane's thread panicked"),
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A control plane in another process of this machine. Commands are lines: `change` changes the first cluster
/// now, `change STAMP TYPE RESIDUE STRIDE` changes others; `down` and `up` begin and end an outage.
pub struct Remote(std::net::TcpStream);

impl Remote {
    pub fn connect(address: SocketAddr) -> Result<Remote> {
        let socket = std::net::TcpStream::connect(address)
            .with_context(|| format!("no control plane takes commands at {address}"))?;
        socket.set_nodelay(true)?;
        Ok(Remote(socket))
    }

    /// Does not wait for the change; the clients observe the change.
    pub fn change(&mut self, change: Change, stamp: u64) -> Result<()> {
        let Change { kind, residue, stride } = change;
        self.order(&format!("change {stamp} {} {residue} {stride}\n", kind.short()))
    }

    pub fn put_rule_in_force(&mut self, kind: Kind, stamp: u64) -> Result<()> {
        self.order(&format!("rule {stamp} {}\n", kind.short()))
    }

    pub fn set_up(&mut self, up: bool) -> Result<()> {
        self.order(if up { "up\n" } else { "down\n" })
    }

    /// The sums of the load reports.
    pub fn received(&mut self) -> Result<Received> {
        self.order("load\n")?;
        self.0.set_read_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        // Nothing else is answered, so no other bytes are lost with the reader.
        io::BufRead::read_line(&mut io::BufReader::new(&self.0), &mut line)?;
        serde_json::from_str(&line).context("the control plane does not tell the sums of the load reports")
    }

    fn order(&mut self, line: &str) -> Result<()> {
        io::Write::write_all(&mut self.0, line.as_bytes())
            .context("the control plane takes no commands any more")
    }
}

/// Executes a command; returns the answer, which most commands do not have.
fn obey(line: &str, shared: &Shared) -> String {
    if line == "load" {
        return serde_json::to_string(&shared.loads.received()).unwrap_or_default() + "\n";
    }
    if order(line, shared) { String::new() } else { "unknown command\n".to_owned() }
}

/// False if the order is unknown.
fn order(line: &str, shared: &Shared) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["change"] => {
            let first = Change { kind: Kind::Cluster, residue: 0, stride: usize::MAX };
            shared.state.send_modify(|snapshot| snapshot.change(first, monotonic_ns()));
            true
        }
        ["change", stamp, kind, residue, stride] => {
            let (Ok(stamp), Some(kind), Ok(residue), Ok(stride)) =
                (stamp.parse(), Kind::from_short(kind), residue.parse(), stride.parse())
            else {
                return false;
            };
            shared.state.send_modify(|snapshot| snapshot.change(Change { kind, residue, stride }, stamp));
            true
        }
        ["rule", stamp, kind] => {
            let (Ok(stamp), Some(kind)) = (stamp.parse(), Kind::from_short(kind)) else { return false };
            shared.state.send_modify(|snapshot| snapshot.put_rule_in_force(kind, stamp));
            true
        }
        ["down" | "up"] => {
            shared.up.send_replace(words == ["up"]);
            true
        }
        _ => false,
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let open = || -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().with_context(|| format!("the control plane cannot listen on {address}"))
}

async fn take_commands(listener: Option<TcpListener>, shared: &Shared) -> io::Result<()> {
    let Some(listener) = listener else { return std::future::pending().await };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (socket, _) = listener.accept().await?;
        let shared = shared.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(socket).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let answer = obey(&line, &shared);
                if lines.get_mut().write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Serves while up. A failed accept, such as for lack of file descriptors, ends the control plane: its
/// figures would be meaningless.
async fn serve(listener: TcpListener, address: SocketAddr, shared: &Shared) -> io::Result<()> {
    let mut up = shared.up.subscribe();
    let mut listener = Some(listener);
    loop {
        let open = match listener.take() {
            Some(listener) => listener,
            None => listen(address).map_err(io::Error::other)?,
        };
        // The connections are tasks of this set, and end with the set.
        let mut connections = JoinSet::new();
        tokio::select! {
            result = accept(open, shared, &mut connections) => return result,
            down = up.wait_for(|up| !up) => drop(down),
        }
        drop(connections);
        if up.wait_for(|up| *up).await.is_err() {
            return Ok(());
        }
    }
}

async fn accept(listener: TcpListener, shared: &Shared, connections: &mut JoinSet<()>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted?;
                socket.set_nodelay(true)?;
                connections.spawn(serve_connection(socket, shared.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Errors of a connection are reported by the client, which measures.
async fn serve_connection(socket: TcpStream, shared: Shared) {
    let handshake = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .handshake(socket);
    let Ok(mut connection) = handshake.await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(serve_stream(request, respond, shared.clone()));
    }
}

async fn serve_stream(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, shared: Shared) {
    let path = request.uri().path();
    let exchange = match Service::variant_of(path) {
        Some(variant) => Some(Exchange::Resources(Stream::new(variant, Arc::clone(&shared.function)))),
        None => (path == LOAD_STATS).then(|| Exchange::Load(shared.loads.stream())),
    };
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let Some(exchange) = exchange else {
        response.headers_mut().insert("grpc-status", HeaderValue::from_static("12"));
        let _ = respond.send_response(response, true);
        return;
    };
    let Ok(mut body) = respond.send_response(response, false) else { return };
    let status = run_stream(request.into_body(), &mut body, &shared, exchange).await;
    if let Some(status) = status {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static(status));
        let _ = body.send_trailers(trailers);
    }
}

/// A stream of resources, or of load reports.
enum Exchange {
    Resources(Stream),
    Load(LoadStream),
}

impl Exchange {
    fn request(&mut self, message: &[u8]) -> Result<()> {
        match self {
            Exchange::Resources(stream) => Ok(stream.request(message)?),
            Exchange::Load(stream) => stream.request(message),
        }
    }

    /// The next response to send, in parts.
    fn response(&mut self, snapshot: &Snapshot) -> Vec<Bytes> {
        match self {
            Exchange::Resources(stream) => stream.response(snapshot).unwrap_or_default(),
            Exchange::Load(stream) => stream.response().into_iter().collect(),
        }
    }
}

/// Reads requests, also while a response is being written, and writes responses. Returns the status for the
/// end, or nothing after the client has gone.
async fn run_stream(
    mut requests: RecvStream,
    body: &mut SendStream<Bytes>,
    shared: &Shared,
    mut exchange: Exchange,
) -> Option<&'static str> {
    let mut state = shared.state.subscribe();
    let mut unread = BytesMut::new();
    let mut unsent = VecDeque::new();
    loop {
        if unsent.is_empty() {
            unsent.extend(exchange.response(&state.borrow_and_update()));
        }
        if !unsent.is_empty() {
            send(body, &mut unsent).ok()?;
            shared.busy_ns.store(ThreadTime::cpu_only_ns(), Ordering::Relaxed);
        }
        tokio::select! {
            chunk = requests.data() => match chunk {
                None => return Some("0"),
                Some(Err(_)) => return None,
                Some(Ok(bytes)) => {
                    requests.flow_control().release_capacity(bytes.len()).ok()?;
                    unread.extend_from_slice(&bytes);
                    if take_requests(&mut exchange, &mut unread).is_err() {
                        return Some("3");
                    }
                }
            },
            capacity = poll_fn(|context| body.poll_capacity(context)), if !unsent.is_empty() => {
                capacity?.ok()?;
            },
            changed = state.changed(), if unsent.is_empty() => changed.ok()?,
        }
    }
}

/// The bytes of a frame, as most servers send them. Each resource in a frame of its own would cost its reader memory.
const FRAME_BYTES: usize = 16 << 10;

/// Passes the connection as many bytes as the window allows, and requests capacity for the rest.
fn send(body: &mut SendStream<Bytes>, unsent: &mut VecDeque<Bytes>) -> Result<(), h2::Error> {
    while let Some(mut front) = unsent.pop_front() {
        if front.len() < FRAME_BYTES && !unsent.is_empty() {
            let mut frame = BytesMut::from(front);
            while let Some(next) = unsent.pop_front() {
                frame.extend_from_slice(&next);
                if frame.len() >= FRAME_BYTES {
                    break;
                }
            }
            front = frame.freeze();
        }
        let wanted = front.len();
        body.reserve_capacity(wanted);
        let length = body.capacity().min(wanted);
        if length > 0 {
            body.send_data(front.split_to(length), false)?;
        }
        if !front.is_empty() {
            unsent.push_front(front);
            return Ok(());
        }
    }
    body.reserve_capacity(0);
    Ok(())
}

/// Takes whole gRPC messages from the front of `unread`.
fn take_requests(exchange: &mut Exchange, unread: &mut BytesMut) -> Result<()> {
    while let Some((prefix, _)) = unread.split_first_chunk::<5>() {
        let [compressed, length @ ..] = *prefix;
        let length = u32::from_be_bytes(length) as usize;
        anyhow::ensure!(compressed == 0 && length <= MAX_REQUEST, "a request that is not taken");
        if unread.len() < 5 + length {
            break;
        }
        unread.advance(5);
        exchange.request(&unread.split_to(length))?;
    }
    // The buffer of a long first request is not kept for the following ACKs.
    if unread.is_empty() && unread.capacity() > 1024 {
        *unread = BytesMut::new();
    }
    Ok(())
}
