//! A process of clients, each with a plaintext connection and one stream: checks each update, and answers it by an ACK.
//!
//! The clients do not look at the windows of the server, which their few bytes do not use up.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::frames::{
    ACK, DATA, DEFAULT_WINDOW, END_HEADERS, GOAWAY, HEAD_BYTES, HEADERS, Head, PING, PREFACE, RST_STREAM,
    SETTINGS, Wire, first, frame, head, opening, window_update, with_buffer,
};
use super::hub::{PREFIX_BYTES, answer, prefix, update};

/// The window of a connection, as Envoy has it, unless streams have a small one.
const CONNECTION_WINDOW: u32 = 24 << 20;

const STREAM: u32 = 1;

const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const HEADERS_AFTER: [(&str, &str); 3] =
    [("content-type", "application/grpc"), ("te", "trailers"), ("user-agent", "bench-of-idle-clients/1.0")];

/// Known to all clients.
struct Shared {
    /// With prefixes, by round from 1 on.
    updates: Vec<Vec<u8>>,
    /// Everything that a client sends at first.
    opening: Vec<u8>,
    stream_window: u32,
    connection_window: u32,
    received: AtomicU64,
    fault: Mutex<Option<io::Error>>,
}

/// Opens as many connections in all as each line of stdin says. Checks all updates at the end of stdin.
pub async fn run(address: SocketAddr, rounds: u64, stream_window: u32, headers: &str) -> io::Result<()> {
    let connection_window = if stream_window > DEFAULT_WINDOW { CONNECTION_WINDOW } else { DEFAULT_WINDOW };
    let block = match headers {
        "plain" => literals(INDEXED),
        "unindexed" => literals(UNINDEXED),
        "huffman" => huffman().await?,
        _ => return Err(io::Error::other("no such headers")),
    };
    let start = answer(0);
    let opening = [
        PREFACE,
        &opening(stream_window, connection_window),
        &frame(HEADERS, END_HEADERS, STREAM, &block),
        &frame(DATA, 0, STREAM, &start),
    ];
    let updates = (1..=rounds).map(update).map(|body| [&prefix(body.len()), &body[..]].concat()).collect();
    let shared = Arc::new(Shared {
        updates,
        opening: opening.concat(),
        stream_window,
        connection_window,
        received: AtomicU64::new(0),
        fault: Mutex::new(None),
    });
    let (commands, mut targets) = unbounded_channel();
    tokio::task::spawn_blocking(move || read_commands(&commands));
    let mut opened = 0;
    while let Some(target) = targets.recv().await {
        while opened < target {
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            tokio::spawn(client(socket, shared.clone()));
            opened += 1;
        }
    }
    if let Some(fault) = shared.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(fault);
    }
    // No client takes an update twice, so the sum tells that each has all.
    let received = shared.received.load(Ordering::Relaxed);
    if received != opened * rounds {
        return Err(io::Error::other(format!("{received} updates instead of {}", opened * rounds)));
    }
    Ok(())
}

fn read_commands(commands: &UnboundedSender<u64>) {
    for line in io::stdin().lines().map_while(Result::ok) {
        let sent = line.trim().parse().ok().map(|target| commands.send(target));
        if !matches!(sent, Some(Ok(()))) {
            return;
        }
    }
}

/// Literals that enter the table of the server, as the relay's load tool sends them.
const INDEXED: u8 = 0x40;

/// Literals that do not: from a client that knows of a server's table of 0 bytes before its first request.
const UNINDEXED: u8 = 0;

/// The headers in plain text.
fn literals(kind: u8) -> Vec<u8> {
    // POST and http, from the static table.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(":path", PATH), (":authority", "127.0.0.1:18000")].into_iter().chain(HEADERS_AFTER)
    {
        block.push(kind);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The same headers from the encoder of the crate `h2`, which uses Huffman's code, as Envoy does.
async fn huffman() -> io::Result<Vec<u8>> {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let (mut send, connection) = h2::client::handshake(near).await.map_err(io::Error::other)?;
    let driver = tokio::spawn(connection);
    let mut request = http::Request::post(format!("http://127.0.0.1:18000{PATH}"));
    for (name, value) in HEADERS_AFTER {
        request = request.header(name, value);
    }
    let request = request.body(()).map_err(io::Error::other)?;
    let _call = send.send_request(request, false).map_err(io::Error::other)?;
    let mut bytes = vec![0; PREFACE.len()];
    far.read_exact(&mut bytes).await?;
    bytes.clear();
    loop {
        far.read_buf(&mut bytes).await?;
        while let Some((head, payload)) = first(&bytes)? {
            if head.kind == HEADERS {
                driver.abort();
                return Ok(payload.to_vec());
            }
            bytes.drain(..HEAD_BYTES + payload.len());
        }
    }
}

struct Client {
    wire: Wire,
    shared: Arc<Shared>,
    /// The begin of an update.
    message: Vec<u8>,
    rounds: u64,
    /// Bytes received since the last WINDOW_UPDATE of the stream and of the connection.
    of_stream: u32,
    of_connection: u32,
}

async fn client(socket: TcpStream, shared: Arc<Shared>) {
    let wire = Wire::new(socket);
    let mut client = Client { wire, shared, message: Vec::new(), rounds: 0, of_stream: 0, of_connection: 0 };
    let opening = Bytes::copy_from_slice(&client.shared.opening);
    let opened = client.wire.send(&opening, Bytes::new());
    let error = match opened {
        Ok(()) => std::future::poll_fn(|context| client.poll(context)).await,
        Err(error) => error,
    };
    *client.shared.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
}

impl Client {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if let Poll::Ready(Err(error)) = self.poll_receive(context) {
            return Poll::Ready(error);
        }
        match self.wire.poll_flush(context) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            _ => Poll::Pending,
        }
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_buffer(|buffer| {
            while let Poll::Ready(filled) = self.wire.poll_read(context, buffer)? {
                let mut bytes = &buffer[..filled];
                while let Some((head, payload)) = first(bytes)? {
                    self.take(head, payload)?;
                    bytes = &bytes[HEAD_BYTES + payload.len()..];
                }
                self.wire.keep(bytes);
            }
            Poll::Pending
        })
    }

    fn take(&mut self, head: Head, payload: &[u8]) -> io::Result<()> {
        match head.kind {
            DATA => self.take_data(payload),
            SETTINGS if head.flags & ACK == 0 => self.wire.send(&frame(SETTINGS, ACK, 0, &[]), Bytes::new()),
            PING if head.flags & ACK == 0 => self.wire.send(&frame(PING, ACK, 0, payload), Bytes::new()),
            RST_STREAM | GOAWAY => Err(io::Error::other("the server ended a stream")),
            _ => Ok(()),
        }
    }

    fn take_data(&mut self, payload: &[u8]) -> io::Result<()> {
        self.of_stream += payload.len() as u32;
        self.of_connection += payload.len() as u32;
        if self.of_stream > self.shared.stream_window || self.of_connection > self.shared.connection_window {
            return Err(io::Error::other("the server sent more than the window"));
        }
        self.message.extend_from_slice(payload);
        let is_whole = self.message.len() >= PREFIX_BYTES
            && self.shared.updates.get(self.rounds as usize).is_some_and(|update| *update == self.message);
        if is_whole {
            self.message.clear();
            self.rounds += 1;
            self.shared.received.fetch_add(1, Ordering::Relaxed);
            let ack = answer(self.rounds);
            self.wire.send(&head(ack.len(), DATA, 0, STREAM), ack)?;
        } else if !self.is_begin() {
            return Err(io::Error::other("the server sent other bytes than the update"));
        }
        if self.of_stream >= self.shared.stream_window / 2 {
            self.wire.send(&window_update(STREAM, self.of_stream), Bytes::new())?;
            self.of_stream = 0;
        }
        if self.of_connection >= self.shared.connection_window / 2 {
            self.wire.send(&window_update(0, self.of_connection), Bytes::new())?;
            self.of_connection = 0;
        }
        Ok(())
    }

    /// True if more bytes can complete the next update.
    fn is_begin(&self) -> bool {
        let next = self.shared.updates.get(self.rounds as usize);
        next.is_some_and(|update| update.starts_with(&self.message))
    }
}
