//! A server process: serves clients of a process of its own, and measures itself.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use h2::server::Builder;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::bare::Bare;
use super::hub::Hub;
use super::with_h2::{self, Http2};

/// The transports to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    H2,
    H2Tuned,
    Bare,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::H2, Kind::H2Tuned, Kind::Bare];

    pub fn name(self) -> &'static str {
        match self {
            Kind::H2 => "h2",
            Kind::H2Tuned => "h2-tuned",
            Kind::Bare => "bare",
        }
    }
}

/// The load of one run.
#[derive(Clone, Debug)]
pub struct Load {
    pub clients: usize,
    pub rounds: u64,
    /// The initial window of the clients' streams.
    pub window: u32,
    /// The HPACK of the clients: `plain`, `unindexed` or `huffman`.
    pub headers: String,
}

/// The figures of one run, for each client, or for each update and client.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub idle_bytes: f64,
    /// After the rounds.
    pub used_bytes: f64,
    pub user_us: f64,
    pub system_us: f64,
}

/// Longer than any step takes.
const STEP: Duration = Duration::from_secs(120);

/// Freed memory is back at the system after this time.
const SETTLE: Duration = Duration::from_secs(1);

/// The backlog of the relay's listeners.
const BACKLOG: u32 = 4096;

/// `sysconf(_SC_CLK_TCK)`, the same on all Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// # Errors
/// An error of a connection, or of the clients: an update that is not complete, byte for byte.
pub async fn measure(kind: Kind, load: &Load) -> io::Result<Figures> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let listener = socket.listen(BACKLOG)?;
    let (address, hub) = (listener.local_addr()?, Arc::new(Hub::default()));
    tokio::spawn(accept(kind, listener, hub.clone()));
    let mut clients = Clients::start(address, load)?;

    clients.open(1, &hub, 1).await?;
    let with_one = resident_bytes()?;
    clients.open(load.clients, &hub, load.clients - 1).await?;
    let idle = resident_bytes()?;
    let (user, system) = cpu_us()?;
    for round in 1..=load.rounds {
        hub.expect(load.clients);
        hub.publish(round);
        timeout(STEP, hub.answered()).await??;
    }
    let (user_after, system_after) = cpu_us()?;
    sleep(SETTLE).await;
    let used = resident_bytes()?;
    clients.check()?;

    let (others, updates) = ((load.clients - 1) as f64, load.clients as f64 * load.rounds as f64);
    Ok(Figures {
        idle_bytes: (idle - with_one) / others,
        used_bytes: (used - with_one) / others,
        user_us: (user_after - user) / updates,
        system_us: (system_after - system) / updates,
    })
}

async fn accept(kind: Kind, listener: TcpListener, hub: Arc<Hub>) {
    let builder = if kind == Kind::H2Tuned { with_h2::tuned() } else { with_h2::builder() };
    let builder = Arc::new(builder);
    loop {
        match listener.accept().await.and_then(|(socket, _)| socket.set_nodelay(true).map(|()| socket)) {
            Ok(socket) if kind == Kind::Bare => drop(tokio::spawn(bare(socket, hub.clone()))),
            Ok(socket) => drop(tokio::spawn(http2(builder.clone(), socket, hub.clone()))),
            Err(error) => hub.failed(error),
        }
    }
}

async fn bare(socket: TcpStream, hub: Arc<Hub>) {
    let error = match Bare::open(socket, hub.clone()) {
        Ok(mut bare) => std::future::poll_fn(|context| bare.poll(context)).await,
        Err(error) => error,
    };
    hub.failed(error);
}

async fn http2(builder: Arc<Builder>, socket: TcpStream, hub: Arc<Hub>) {
    // Boxed: the task lives as long as the connection, and would reserve memory for the handshake.
    let error = match Box::pin(Http2::open(&builder, socket, hub.clone())).await {
        Ok(mut http2) => std::future::poll_fn(|context| http2.poll(context)).await,
        Err(error) => error,
    };
    hub.failed(error);
}

/// The process of the clients.
struct Clients(Child);

impl Clients {
    fn start(address: SocketAddr, load: &Load) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["clients", &address.to_string()]);
        command.args([&load.rounds.to_string(), &load.window.to_string(), &load.headers]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Clients)
    }

    /// Opens connections up to `all`, `new` of which are new, and waits until the memory is settled.
    async fn open(&mut self, all: usize, hub: &Hub, new: usize) -> io::Result<()> {
        if new > 0 {
            hub.expect(new);
            self.0.stdin.as_ref().map_or(Ok(()), |mut stdin| writeln!(stdin, "{all}"))?;
            timeout(STEP, hub.answered()).await??;
        }
        sleep(SETTLE).await;
        Ok(())
    }

    /// Asks the clients whether they have all updates, and ends them.
    fn check(mut self) -> io::Result<()> {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output()?;
        let verdict = String::from_utf8_lossy(&output.stdout);
        let is_whole = output.status.success() && verdict.trim() == "all updates are whole";
        is_whole.then_some(()).ok_or_else(|| io::Error::other(format!("the clients: {verdict}")))
    }
}

fn resident_bytes() -> io::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0).ok_or_else(|| io::Error::other("no VmRSS"))
}

/// The CPU time of this process without its children: user and system, in microseconds.
fn cpu_us() -> io::Result<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok());
    let both = ticks(11).zip(ticks(12)).ok_or_else(|| io::Error::other("no times in stat"))?;
    let us = 1e6 / TICKS_PER_SECOND;
    Ok((both.0 * us, both.1 * us))
}
