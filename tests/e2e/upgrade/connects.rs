//! Connects in a loop while the process is replaced: none is refused, none is reset.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::site::{Doors, HOST, Site};

/// A hundred in `tests/run --long`.
fn upgrades() -> usize {
    std::env::var("SLUICE_UPGRADES").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
}

/// The preface of HTTP/2, and empty SETTINGS.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Opens HTTP/2, reads the head of the first frame, and leaves.
async fn greet(mut io: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    io.write_all(OPENING).await?;
    io.read_exact(&mut [0; 9]).await?;
    io.shutdown().await
}

fn in_a_loop<F>(
    stop: &Arc<AtomicBool>,
    done: &Arc<AtomicUsize>,
    connect: impl Fn() -> F + Send + 'static,
) -> JoinHandle<Vec<String>>
where
    F: Future<Output = io::Result<()>> + Send,
{
    let (stop, done) = (stop.clone(), done.clone());
    tokio::spawn(async move {
        let mut faults = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            match connect().await {
                Ok(()) => _ = done.fetch_add(1, Ordering::Relaxed),
                Err(fault) => faults.push(fault.to_string()),
            }
        }
        faults
    })
}

/// HND-1, HND-4: on TCP, on a unix socket and with TLS, over several upgrades.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hnd_4_no_connect_is_refused_or_reset_while_processes_change() {
    let doors = Doors::new();
    let mut site = Site::of(|setup| doors.open(setup).line("handover: { drain: 300ms }")).await;
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (tcp, unix, tls) = (site.relay.address.clone(), doors.unix.clone(), doors.tls.clone());
    let connector = TlsConnector::from(doors.trust.clone());
    let loops = [
        in_a_loop(&stop, &done, move || {
            let address = tcp.clone();
            async move { greet(TcpStream::connect(address).await?).await }
        }),
        in_a_loop(&stop, &done, move || {
            let path = unix.clone();
            async move { greet(UnixStream::connect(path).await?).await }
        }),
        in_a_loop(&stop, &done, move || {
            let (address, connector) = (tls.clone(), connector.clone());
            async move {
                let socket = TcpStream::connect(address).await?;
                greet(connector.connect(ServerName::try_from(HOST).unwrap(), socket).await?).await
            }
        }),
    ];
    for _ in 0..upgrades() {
        let before = done.load(Ordering::Relaxed);
        site.upgrade("").await;
        site.settled().await;
        assert!(done.load(Ordering::Relaxed) > before + 10, "the clients are at work");
    }
    stop.store(true, Ordering::Relaxed);
    for faults in loops {
        assert_eq!(faults.await.unwrap(), Vec::<String>::new(), "{}", site.relay.log());
    }
    site.first_is_gone().await;
    assert!(doors.unix.exists(), "the last process has the file");
}
