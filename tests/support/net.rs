//! Ports, plain HTTP, and a TCP proxy that can go deaf.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A port below the ephemeral range, so that no outgoing connection takes it while its owner is down.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 4000).expect("below 4000") * 3;
    loop {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// `GET path`: the status code and the body.
pub async fn http_get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, body.to_owned()))
}

/// Forwards TCP to `target`. [`Proxy::deafen`] makes the connections of that moment hang with their sockets open,
/// as a host does that lost its network; later connections are forwarded.
pub struct Proxy {
    pub address: SocketAddr,
    generation: Arc<watch::Sender<usize>>,
    accepted: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", free_port())).await.expect("bind proxy");
        let address = listener.local_addr().expect("address");
        let generation = Arc::new(watch::channel(0).0);
        let accepted = Arc::new(AtomicUsize::new(0));
        let (count, deaf) = (accepted.clone(), generation.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(forward(client, target, deaf.subscribe()));
            }
        });
        Proxy { address, generation, accepted, task }
    }

    pub fn deafen(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut client: TcpStream, target: SocketAddr, mut deaf: watch::Receiver<usize>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    deaf.mark_unchanged();
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = deaf.changed() => std::future::pending::<()>().await,
    }
}
