//! PINGs towards a server that counts them as grpc-go does (FU32).

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use h2::server::Builder;
use sluice::client::ClientSettings;
use sluice_xds::Variant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::peer::*;

/// The shortest time between two PINGs that the server permits while it writes nothing.
const MIN_TIME: Duration = Duration::from_secs(15);

/// The strikes of grpc-go (`http2_server.go`): a PING is free after DATA or HEADERS, and the strikes are forgotten with it.
/// Any other PING that comes within [`MIN_TIME`] after the last is a strike; the third strike ends the connection.
#[derive(Debug, Default)]
struct Strikes {
    has_written: bool,
    last: Option<Instant>,
    strikes: u32,
    most: u32,
    pings: u32,
}

impl Strikes {
    fn ping(&mut self) {
        let last = self.last.replace(Instant::now());
        self.pings += 1;
        if std::mem::take(&mut self.has_written) {
            self.strikes = 0;
        } else if last.is_some_and(|last| last.elapsed() < MIN_TIME) {
            self.strikes += 1;
        }
        self.most = self.most.max(self.strikes);
    }
}

/// Calls `visit` with type and flags of each frame in the bytes of one direction.
#[derive(Default)]
struct Frames {
    bytes: Vec<u8>,
    /// The rest of a payload, or of the client's preface.
    skip: usize,
}

impl Frames {
    fn read(&mut self, bytes: &[u8], mut visit: impl FnMut(u8, u8)) {
        self.bytes.extend(bytes);
        loop {
            let skipped = self.skip.min(self.bytes.len());
            self.bytes.drain(..skipped);
            self.skip -= skipped;
            let Some(head) = self.bytes.first_chunk::<9>() else { return };
            if self.skip > 0 {
                return;
            }
            visit(head[3], head[4]);
            self.skip = 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        }
    }
}

/// A server's socket that counts strikes.
struct Strict {
    socket: TcpStream,
    strikes: Arc<Mutex<Strikes>>,
    received: Frames,
    sent: Frames,
}

impl AsyncRead for Strict {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let Strict { socket, strikes, received, .. } = &mut *self;
        let result = Pin::new(socket).poll_read(context, buffer);
        received.read(&buffer.filled()[before..], |kind, flags| {
            if kind == 6 && flags & 1 == 0 {
                strikes.lock().unwrap().ping();
            }
        });
        result
    }
}

impl AsyncWrite for Strict {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let Strict { socket, strikes, sent, .. } = &mut *self;
        let result = Pin::new(socket).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = &result {
            sent.read(&bytes[..*written], |kind, _| {
                strikes.lock().unwrap().has_written |= kind < 2;
            });
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// A server with one connection.
struct StrictPeer {
    port: u16,
    streams: mpsc::Receiver<PeerStream>,
    strikes: Arc<Mutex<Strikes>>,
    _orders: mpsc::Sender<Order>,
}

impl StrictPeer {
    async fn start() -> StrictPeer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let strikes = Arc::new(Mutex::new(Strikes::default()));
        let (streams_tx, streams) = mpsc::channel(1000);
        let (orders_tx, orders) = mpsc::channel(8);
        let counted = strikes.clone();
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let received = Frames { skip: 24, ..Frames::default() };
            let socket = Strict { socket, strikes: counted, received, sent: Frames::default() };
            serve(0, socket, &Builder::new(), streams_tx, orders).await;
        });
        StrictPeer { port, streams, strikes, _orders: orders_tx }
    }

    fn strikes(&self) -> MutexGuard<'_, Strikes> {
        self.strikes.lock().unwrap()
    }
}

/// The answers of 110 node classes arrive in one burst, and their sources read them one after the other. Each answer needs a
/// round trip of the transport, and each was written before the first PING.
#[tokio::test]
async fn fu32_a_burst_of_answers_brings_no_third_strike() {
    const STREAMS: usize = 110;
    let mut peer = StrictPeer::start().await;
    let pool = pool(peer.port, ClientSettings { streams_per_connection: 200, ..settings() });
    let (mut clients, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..STREAMS {
        // A full channel stops the stream until its source reads.
        let (events_tx, events) = mpsc::channel(1);
        events_tx.send(sluice::client::StreamEvent::Receiving).await.unwrap();
        clients.push(Client { handle: pool.open(Variant::Sotw, events_tx), events });
        replies.push(soon(peer.streams.recv()).await.unwrap().headers());
    }
    replies.iter_mut().for_each(|reply| reply.send_data(response("1"), false).unwrap());
    for ten in clients.chunks_mut(10) {
        for client in &mut *ten {
            client.opened().await;
            assert_eq!(client.event_text().await, "Response 1");
            client.handle.round_trip();
        }
        for client in ten {
            assert_eq!(client.event_text().await, "Returned");
        }
    }
    let before = peer.strikes().pings;
    assert!(peer.strikes().most < 2, "{:?}", peer.strikes());
    // News of the server makes the next PING expected.
    replies[STREAMS - 1].send_data(response("2"), false).unwrap();
    let client = &mut clients[STREAMS - 1];
    assert_eq!(client.event_text().await, "Response 2");
    client.handle.round_trip();
    assert_eq!(client.event_text().await, "Returned");
    let strikes = peer.strikes();
    assert_eq!((strikes.pings, strikes.strikes), (before + 1, 0), "{strikes:?}");
    assert_eq!(pool.metrics().too_many_pings.get(), 0);
}

/// The PING of the interval comes a whole interval after the server has read the PING of a round trip.
#[tokio::test]
async fn fu32_the_interval_begins_anew_with_each_answered_ping() {
    let interval = Duration::from_millis(600);
    let mut peer = StrictPeer::start().await;
    let pool = pool(peer.port, ClientSettings { ping_interval: interval, ..settings() });
    let mut client = Client::open(&pool);
    client.opened().await;
    let mut reply = soon(peer.streams.recv()).await.unwrap().headers();
    reply.send_data(response("1"), false).unwrap();
    assert_eq!(client.event_text().await, "Response 1");
    tokio::time::sleep(interval / 2).await;
    client.handle.round_trip();
    assert_eq!(client.event_text().await, "Returned");
    let first = Instant::now();
    soon(async {
        while peer.strikes().pings < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(first.elapsed() >= interval - Duration::from_millis(20), "after {:?}", first.elapsed());
}
