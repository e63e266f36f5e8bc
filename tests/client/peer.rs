//! Scripted control planes on loopback.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use sluice::client::{ClientSettings, GrpcAddress, Pool, StreamEvent, StreamHandle};
use sluice::telemetry::metrics::ClientMetrics;
use sluice_setting::Backoff;
use sluice_xds::{Status, Variant};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Nothing on loopback takes this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("nothing happened for too long")
}

/// A stream as the control plane sees it.
pub struct PeerStream {
    /// The number of the connection at the server, from 0.
    pub connection: usize,
    pub request: Request<RecvStream>,
    pub respond: SendResponse<Bytes>,
}

impl PeerStream {
    pub fn headers(&mut self) -> SendStream<Bytes> {
        let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        self.respond.send_response(response, false).unwrap()
    }
}

pub enum Order {
    /// GOAWAY with NO_ERROR; streams go on.
    Leave,
    /// The socket is closed.
    Cut,
    /// The socket stays open without a reader or writer.
    Freeze,
}

/// An HTTP/2 server; each connection has a channel for orders.
pub struct Peer {
    pub port: u16,
    pub streams: mpsc::Receiver<PeerStream>,
    pub connections: mpsc::Receiver<mpsc::Sender<Order>>,
    pub ended: mpsc::Receiver<usize>,
    /// While true, connections are accepted and remain silent.
    pub silent: watch::Sender<bool>,
}

impl Peer {
    pub async fn start(builder: Builder) -> Peer {
        Peer::listen(TcpListener::bind("127.0.0.1:0").await.unwrap(), builder)
    }

    pub fn listen(listener: TcpListener, builder: Builder) -> Peer {
        let port = listener.local_addr().unwrap().port();
        let (streams_tx, streams) = mpsc::channel(1000);
        let (connections_tx, connections) = mpsc::channel(1000);
        let (ended_tx, ended) = mpsc::channel(1000);
        let silent = watch::Sender::new(false);
        let mut silence = silent.subscribe();
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((socket, _)) = listener.accept().await else { return };
                let _ = silence.wait_for(|silent| !silent).await;
                let (orders_tx, orders) = mpsc::channel(8);
                connections_tx.send(orders_tx).await.unwrap();
                let (streams, ended, builder) = (streams_tx.clone(), ended_tx.clone(), builder.clone());
                tokio::spawn(async move {
                    serve(number, socket, &builder, streams, orders).await;
                    let _ = ended.send(number).await;
                });
            }
        });
        Peer { port, streams, connections, ended, silent }
    }

    pub async fn stream(&mut self) -> PeerStream {
        soon(self.streams.recv()).await.unwrap()
    }
}

pub async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
    number: usize,
    socket: T,
    builder: &Builder,
    streams: mpsc::Sender<PeerStream>,
    mut orders: mpsc::Receiver<Order>,
) {
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    let _ = streams.send(PeerStream { connection: number, request, respond }).await;
                }
                _ => return,
            },
            Some(order) = orders.recv() => match order {
                Order::Leave => connection.graceful_shutdown(),
                Order::Cut => return,
                Order::Freeze => std::future::pending().await,
            },
        }
    }
}

/// A server of raw bytes: sends `greeting` on each connection, and `goaway` after a PING.
pub async fn raw_server(greeting: &'static [u8], on_ping: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let on_ping = on_ping.clone();
            tokio::spawn(async move {
                socket.write_all(greeting).await.unwrap();
                let mut preface = [0; 24];
                socket.read_exact(&mut preface).await.unwrap();
                let mut header = [0; 9];
                while socket.read_exact(&mut header).await.is_ok() {
                    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
                    let mut payload = vec![0; length];
                    socket.read_exact(&mut payload).await.unwrap();
                    if header[3] == 6 {
                        socket.write_all(&on_ping).await.unwrap();
                        return;
                    }
                }
            });
        }
    });
    port
}

/// An empty SETTINGS frame.
pub const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

pub fn goaway(reason: u32, last_stream: u32, debug: &[u8]) -> Vec<u8> {
    let mut frame = vec![0, 0, u8::try_from(8 + debug.len()).unwrap(), 7, 0, 0, 0, 0, 0];
    frame.extend(last_stream.to_be_bytes());
    frame.extend(reason.to_be_bytes());
    frame.extend(debug);
    frame
}

pub fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.len() as u32);
    bytes.put_slice(message);
    bytes.freeze()
}

/// A `DiscoveryResponse` with this version, without resources.
pub fn response(version: &str) -> Bytes {
    let mut message = BytesMut::new();
    for (field, text) in
        [(1u8, version), (4, "type.googleapis.com/envoy.config.cluster.v3.Cluster"), (5, "nonce")]
    {
        message.put_u8(field << 3 | 2);
        let mut length = text.len();
        while length >= 128 {
            message.put_u8((length % 128) as u8 | 128);
            length /= 128;
        }
        message.put_u8(length as u8);
        message.put_slice(text.as_bytes());
    }
    framed(&message)
}

pub fn trailers(status: &'static str, message: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    if !message.is_empty() {
        trailers.insert("grpc-message", message.parse().unwrap());
    }
    trailers
}

/// A pool with short backoffs.
pub fn settings() -> ClientSettings {
    ClientSettings {
        backoff: Backoff { initial: Duration::from_millis(10), max: Duration::from_millis(20) },
        ..ClientSettings::default()
    }
}

pub fn pool(port: u16, settings: ClientSettings) -> Pool {
    let address = GrpcAddress::Tcp { host: "127.0.0.1".to_owned(), port };
    Pool::new(address, settings, Arc::new(ClientMetrics::default()))
}

/// A server, a pool of connections to it, and an open stream.
pub async fn connected() -> (Peer, Pool, Client) {
    let peer = Peer::start(Builder::new()).await;
    let pool = pool(peer.port, settings());
    let mut client = Client::open(&pool);
    client.opened().await;
    (peer, pool, client)
}

/// A stream as the relay sees it.
pub struct Client {
    pub handle: StreamHandle,
    pub events: mpsc::Receiver<StreamEvent>,
}

impl Client {
    pub fn open(pool: &Pool) -> Client {
        let (events_tx, events) = mpsc::channel(16);
        Client { handle: pool.open(Variant::Sotw, events_tx), events }
    }

    /// The next event. Skips `Receiving`, whose number depends on the cut into frames.
    pub async fn event(&mut self) -> Option<StreamEvent> {
        loop {
            match soon(self.events.recv()).await {
                Some(StreamEvent::Receiving) => {}
                event => return event,
            }
        }
    }

    /// The next event as text, for comparison with a transcript.
    pub async fn event_text(&mut self) -> String {
        match self.event().await {
            Some(StreamEvent::Response(response, _)) => format!("Response {}", response.version()),
            Some(StreamEvent::Closed(status) | StreamEvent::Ended(status)) => {
                format!("Closed {}", status.code.name())
            }
            Some(StreamEvent::ConnectFailed(status)) => format!("ConnectFailed {}", status.code.name()),
            Some(StreamEvent::Undecodable(status)) => format!("Undecodable {}", status.code.name()),
            Some(event) => format!("{event:?}"),
            None => "nothing".to_owned(),
        }
    }

    pub async fn opened(&mut self) {
        assert_eq!(self.event_text().await, "Opened");
    }

    /// The status of `Closed`; panics if the next event is another.
    pub async fn closed(&mut self) -> Status {
        match self.event().await {
            Some(StreamEvent::Closed(status) | StreamEvent::Ended(status)) => {
                assert!(self.event().await.is_none(), "Closed is the last event");
                status
            }
            other => panic!("not closed but {other:?}"),
        }
    }
}
