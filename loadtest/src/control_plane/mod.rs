//! A scripted ADS server in a thread of its own: the control plane above the server under test, or the server itself
//! when the tool measures its own floor. It serves SotW and delta, one stream's response at a time, newest state wins.

mod snapshot;
mod stream;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use bytes::{Buf, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use self::snapshot::Snapshot;
use self::stream::Stream;
use crate::measure::monotonic_ns;
use crate::xds::Variant;

/// Connections that may wait to be accepted: all clients of a run may come at once.
const BACKLOG: i32 = 4096;

/// Windows for the requests. h2 closes connections whose small DATA frames outrun half of the connection's.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// The longest request taken.
const MAX_REQUEST: usize = 4 << 20;

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    pub listen: SocketAddr,
    /// Where other processes may ask for changes, one line each (see [`Remote`]).
    pub commands: Option<SocketAddr>,
    pub clusters: usize,
    pub cluster_bytes: usize,
}

/// A control plane that runs until it is dropped.
pub struct ControlPlane {
    state: watch::Sender<Snapshot>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl ControlPlane {
    /// Returns once the sockets listen.
    pub fn start(plan: &Plan) -> Result<ControlPlane> {
        let listener = listen(plan.listen)?;
        let commands = plan.commands.map(listen).transpose()?;
        let (state, _) = watch::channel(Snapshot::new(plan.clusters, plan.cluster_bytes));
        let (stop, stopped) = oneshot::channel();
        let shared = state.clone();
        let thread = thread::Builder::new().name("control-plane".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(async {
                tokio::select! {
                    result = accept(listener, &shared) => result,
                    result = take_commands(commands, &shared) => result,
                    _ = stopped => Ok(()),
                }
            })
        })?;
        Ok(ControlPlane { state, stop: Some(stop), thread: Some(thread) })
    }

    /// Changes one cluster.
    pub fn change(&self) {
        change(&self.state);
    }

    /// Waits for the end of the thread, which comes only by an error.
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

/// The stamp is taken before the encoding, which is part of a change's way to the clients.
fn change(state: &watch::Sender<Snapshot>) {
    let stamp = monotonic_ns();
    state.send_modify(|snapshot| snapshot.change(stamp));
}

/// A control plane in another process of this machine: `change` and a newline make a change.
pub struct Remote(std::net::TcpStream);

impl Remote {
    pub fn connect(address: SocketAddr) -> Result<Remote> {
        let socket = std::net::TcpStream::connect(address)
            .with_context(|| format!("no control plane takes commands at {address}"))?;
        socket.set_nodelay(true)?;
        Ok(Remote(socket))
    }

    /// Does not wait for the change; it shows in the clients.
    pub fn change(&mut self) -> Result<()> {
        io::Write::write_all(&mut self.0, b"change\n").context("the control plane takes no commands any more")
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

async fn take_commands(listener: Option<TcpListener>, state: &watch::Sender<Snapshot>) -> io::Result<()> {
    let Some(listener) = listener else { return std::future::pending().await };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (socket, _) = listener.accept().await?;
        let state = state.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(socket).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line == "change" {
                    change(&state);
                } else if lines.get_mut().write_all(b"unknown command\n").await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Accepts for ever. A failed accept, such as for want of file descriptors, ends the control plane: its figures would
/// mean nothing.
async fn accept(listener: TcpListener, state: &watch::Sender<Snapshot>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        tokio::spawn(serve_connection(socket, state.subscribe()));
    }
}

/// A connection's errors are the client's to report: it is the one that measures.
async fn serve_connection(socket: TcpStream, state: watch::Receiver<Snapshot>) {
    let handshake = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(100)
        .handshake(socket);
    let Ok(mut connection) = handshake.await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(serve_stream(request, respond, state.clone()));
    }
}

async fn serve_stream(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    state: watch::Receiver<Snapshot>,
) {
    let path = request.uri().path();
    let variant = [Variant::Sotw, Variant::Delta].into_iter().find(|variant| variant.path() == path);
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let Some(variant) = variant else {
        response.headers_mut().insert("grpc-status", HeaderValue::from_static("12"));
        let _ = respond.send_response(response, true);
        return;
    };
    let Ok(mut body) = respond.send_response(response, false) else { return };
    let status = run_stream(request.into_body(), &mut body, state, variant).await;
    if let Some(status) = status {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static(status));
        let _ = body.send_trailers(trailers);
    }
}

/// Reads requests, also while a response is being written, and writes responses. Gives the status to end with, or
/// nothing if the client is gone.
async fn run_stream(
    mut requests: RecvStream,
    body: &mut SendStream<Bytes>,
    mut state: watch::Receiver<Snapshot>,
    variant: Variant,
) -> Option<&'static str> {
    let mut stream = Stream::new(variant);
    let mut unread = BytesMut::new();
    let mut unsent = VecDeque::new();
    loop {
        if unsent.is_empty() {
            unsent.extend(stream.response(&state.borrow_and_update()).into_iter().flatten());
        }
        if !unsent.is_empty() {
            send(body, &mut unsent).ok()?;
        }
        tokio::select! {
            chunk = requests.data() => match chunk {
                None => return Some("0"),
                Some(Err(_)) => return None,
                Some(Ok(bytes)) => {
                    requests.flow_control().release_capacity(bytes.len()).ok()?;
                    unread.extend_from_slice(&bytes);
                    if take_requests(&mut stream, &mut unread).is_err() {
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

/// Hands to the connection what it can take now and asks for room for the rest.
fn send(body: &mut SendStream<Bytes>, unsent: &mut VecDeque<Bytes>) -> Result<(), h2::Error> {
    while let Some(front) = unsent.front_mut() {
        if front.is_empty() {
            unsent.pop_front();
            continue;
        }
        let wanted = front.len();
        body.reserve_capacity(wanted);
        let length = body.capacity().min(wanted);
        if length == 0 {
            return Ok(());
        }
        body.send_data(front.split_to(length), false)?;
    }
    body.reserve_capacity(0);
    Ok(())
}

/// Takes whole gRPC messages from the front of `unread`.
fn take_requests(stream: &mut Stream, unread: &mut BytesMut) -> Result<()> {
    while let Some((prefix, _)) = unread.split_first_chunk::<5>() {
        let [compressed, length @ ..] = *prefix;
        let length = u32::from_be_bytes(length) as usize;
        anyhow::ensure!(compressed == 0 && length <= MAX_REQUEST, "a request that is not taken");
        if unread.len() < 5 + length {
            break;
        }
        unread.advance(5);
        stream.request(&unread.split_to(length))?;
    }
    // The room of a long first request is not kept for the ACKs that follow.
    if unread.is_empty() && unread.capacity() > 1024 {
        *unread = BytesMut::new();
    }
    Ok(())
}
