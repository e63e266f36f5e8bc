//! A scripted relay, a running server and an HTTP/2 client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use sluice::driver::api::downstream::{
    Codec, LoadStream, LoadWord, Message, OpenStreams, Peer, Polled, RelayStream, Variant,
};
use sluice::driver::api::emptying::Emptying;
use sluice::server::{Listener, Server, ServerLimits};
use sluice::telemetry::metrics::DownstreamMetrics;
use sluice_setting::InForce;
use sluice_wire::ReaderLimits;
use sluice_xds::{Code, SotwRequest, Status, StreamKind};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
pub const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Shorter than the defaults of the limits under test: a limit that is not applied must show.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Waits for the action of another task.
pub async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(PATIENCE, wait).await.is_ok(), "never: {what}");
}

pub async fn soon<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("in time")
}

/// Remembers its streams without keeping them alive.
#[derive(Default)]
pub struct FakeRelay {
    streams: Mutex<Vec<StreamProbe>>,
    /// Requests of all streams.
    requests: Arc<AtomicU64>,
    pub refusal: Mutex<Option<Status>>,
    pub polls: Arc<Polls>,
    pub load: Arc<LoadLog>,
}

#[derive(Clone)]
pub struct FakeStream(Arc<Mutex<Script>>, Arc<AtomicU64>, Arc<Polls>);

/// The requests of polls, and the answer to each; a poll without an answer waits until its stream fails.
#[derive(Default)]
pub struct Polls {
    pub asked: Mutex<Vec<(SotwRequest, Codec, Duration)>>,
    pub answer: Mutex<Option<Result<Polled, Status>>>,
}

/// The events and messages of a stream.
#[derive(Default)]
pub struct Script {
    pub requests: Vec<sluice_xds::Request>,
    pub half_closed: bool,
    pub failed: Option<Status>,
    /// The status with which the next request ends the stream.
    pub refuse_request: Option<Status>,
    /// Makes the stream panic, like a bug.
    pub panics: bool,
    /// The client reads nothing.
    pub is_unread: bool,
    /// The number of messages taken.
    pub taken: usize,
    /// The newest state, if not yet taken.
    next: Option<Message>,
    waker: Option<Waker>,
}

impl OpenStreams for FakeRelay {
    type Stream = FakeStream;

    fn open(&self, kind: StreamKind, peer: impl Into<Arc<Peer>>) -> Result<FakeStream, Status> {
        if let Some(status) = self.refusal.lock().unwrap().clone() {
            return Err(status);
        }
        let stream = FakeStream(Arc::default(), self.requests.clone(), self.polls.clone());
        let (script, peer) = (Arc::downgrade(&stream.0), peer.into());
        self.streams.lock().unwrap().push(StreamProbe { variant: kind.variant, kind, peer, script });
        Ok(stream)
    }

    fn open_load(&self, _: Arc<Peer>) -> Result<Box<dyn LoadStream>, Status> {
        Ok(Box::new(FakeLoad::new(self.load.clone())))
    }
}

/// A message, framed for gRPC.
pub fn framed(message: &[u8]) -> Bytes {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat().into()
}

/// The reports that all load streams have taken, and the number of open streams.
#[derive(Default)]
pub struct LoadLog {
    pub reports: Mutex<Vec<Bytes>>,
    /// The listener drops reports.
    pub is_dropped: Mutex<bool>,
    /// No stream takes a further report.
    pub is_busy: Mutex<bool>,
    pub ended: AtomicU64,
}

/// Answers the first report with `wish`, framed.
struct FakeLoad {
    log: Arc<LoadLog>,
    answers: usize,
    arrived: usize,
    is_half_closed: bool,
    waker: Option<Waker>,
}

impl FakeLoad {
    fn new(log: Arc<LoadLog>) -> FakeLoad {
        FakeLoad { log, answers: 0, arrived: 0, is_half_closed: false, waker: None }
    }
}

impl LoadStream for FakeLoad {
    fn set_dropped(&mut self, is_dropped: bool) {
        *self.log.is_dropped.lock().unwrap() = is_dropped;
    }

    fn arrived(&mut self, bytes: usize, limits: &ReaderLimits) -> Result<(), Status> {
        self.arrived += bytes;
        let text = "too many reports";
        if self.arrived > limits.request_bytes {
            Err(Status::new(Code::ResourceExhausted, text))
        } else {
            Ok(())
        }
    }

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<()> {
        if *self.log.is_busy.lock().unwrap() { Poll::Pending } else { Poll::Ready(()) }
    }

    fn report(&mut self, message: Bytes, _: &ReaderLimits) -> Result<(), Status> {
        let mut reports = self.log.reports.lock().unwrap();
        if message == "no" {
            return Err(Status::new(Code::InvalidArgument, "no"));
        }
        reports.push(message);
        self.answers += usize::from(reports.len() == 1);
        Ok(())
    }

    fn half_close(&mut self) {
        self.is_half_closed = true;
    }

    fn poll_word(&mut self, context: &mut Context<'_>) -> Poll<LoadWord> {
        self.waker = Some(context.waker().clone());
        if self.answers > 0 {
            self.answers -= 1;
            return Poll::Ready(LoadWord::Answer(framed(b"wish")));
        }
        if self.is_half_closed { Poll::Ready(LoadWord::End(Status::ok())) } else { Poll::Pending }
    }
}

impl Drop for FakeLoad {
    fn drop(&mut self) {
        self.log.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl RelayStream for FakeStream {
    async fn request(&self, request: sluice_xds::Request) -> Result<(), Status> {
        let mut script = self.0.lock().unwrap();
        script.requests.push(request);
        self.1.fetch_add(1, Ordering::SeqCst);
        script.refuse_request.clone().map_or(Ok(()), Err)
    }

    fn half_close(&self) {
        change(&self.0, |script| script.half_closed = true);
    }

    fn fail(&self, status: Status) {
        change(&self.0, |script| script.failed = script.failed.take().or(Some(status)));
    }

    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        let mut script = self.0.lock().unwrap();
        if script.panics {
            drop(script);
            panic!("as the test wants it");
        }
        if let Some(message) = script.next.take() {
            script.taken += 1;
            return Poll::Ready(Some(Ok(message)));
        }
        if let Some(status) = &script.failed {
            return Poll::Ready(Some(Err(status.clone())));
        }
        if script.half_closed {
            return Poll::Ready(None);
        }
        script.waker = Some(context.waker().clone());
        Poll::Pending
    }

    async fn poll_once(&self, request: SotwRequest, form: Codec, hold: Duration) -> Result<Polled, Status> {
        self.2.asked.lock().unwrap().push((request, form, hold));
        let answer = self.2.answer.lock().unwrap().clone();
        match answer {
            Some(answer) => answer,
            None => Err(self.failed().await),
        }
    }

    fn has_answered(&self) -> bool {
        self.0.lock().unwrap().taken > 0
    }

    fn has_failed(&self) -> bool {
        self.0.lock().unwrap().failed.is_some()
    }

    fn unread(&self) -> impl Fn() -> bool + Send + 'static {
        let is_unread = self.0.lock().unwrap().is_unread;
        move || is_unread
    }
}

impl FakeStream {
    /// The status with which the server ends the stream.
    async fn failed(&self) -> Status {
        std::future::poll_fn(|context| {
            let mut script = self.0.lock().unwrap();
            script.waker = Some(context.waker().clone());
            script.failed.clone().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn change(script: &Mutex<Script>, change: impl FnOnce(&mut Script)) {
    let mut script = script.lock().unwrap();
    change(&mut script);
    if let Some(waker) = script.waker.take() {
        waker.wake();
    }
}

/// The test's end of a stream; does not keep it alive.
#[derive(Clone)]
pub struct StreamProbe {
    pub variant: Variant,
    pub kind: StreamKind,
    pub peer: Arc<Peer>,
    script: Weak<Mutex<Script>>,
}

impl StreamProbe {
    pub fn is_gone(&self) -> bool {
        self.script.strong_count() == 0
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Script) -> T) -> T {
        look(&mut self.script.upgrade().expect("the stream is open").lock().unwrap())
    }

    /// Makes the stream fail through a panic.
    pub fn break_down(&self) {
        change(&self.script.upgrade().expect("the stream is open"), |script| script.panics = true);
    }

    /// Ends the stream from the relay's side.
    pub fn end(&self, status: Status) {
        change(&self.script.upgrade().expect("the stream is open"), |script| script.failed = Some(status));
    }

    /// Makes this the newest state: a gRPC message with the given body, whose first bytes are private.
    pub fn publish(&self, private: &[u8], shared: &[u8]) {
        let length = (private.len() + shared.len()) as u32;
        let private = [&[0][..], &length.to_be_bytes(), private].concat().into();
        let message = Message { private, shared: Bytes::copy_from_slice(shared), delivery: None };
        change(&self.script.upgrade().expect("the stream is open"), |script| script.next = Some(message));
    }
}

impl FakeRelay {
    /// The number of requests on all streams.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    pub fn opened(&self) -> usize {
        self.streams.lock().unwrap().len()
    }

    pub async fn stream(&self, index: usize) -> StreamProbe {
        eventually("the stream opens", || self.opened() > index).await;
        self.streams.lock().unwrap()[index].clone()
    }
}

/// A server on a loopback port.
pub struct Running {
    pub relay: Arc<FakeRelay>,
    /// The limits in force.
    pub limits: InForce<ServerLimits>,
    pub metrics: Arc<DownstreamMetrics>,
    /// An operator's way to empty the server.
    pub emptying: Arc<dyn Emptying>,
    pub address: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    pub served: JoinHandle<()>,
}

pub fn start(limits: ServerLimits) -> Running {
    let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    start_on(limits, vec![listener], address)
}

pub fn start_on(limits: ServerLimits, listeners: Vec<Listener>, address: SocketAddr) -> Running {
    let relay = Arc::new(FakeRelay::default());
    let metrics = Arc::new(DownstreamMetrics::default());
    let server = Server::new(relay.clone(), limits, metrics.clone());
    let (limits, emptying) = (server.limits(), server.emptying());
    let (shutdown, stopped) = oneshot::channel();
    let served = tokio::spawn(server.serve(listeners, async {
        let _ = stopped.await;
    }));
    Running { relay, limits, metrics, emptying, address, shutdown: Some(shutdown), served }
}

impl Running {
    pub fn shut_down(&mut self) {
        let _ = self.shutdown.take().expect("only once").send(());
    }

    pub async fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).await.unwrap(), h2::client::Builder::new()).await
    }
}

pub struct Client {
    pub send: SendRequest<Bytes>,
    pub connection: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    pub async fn new<T>(io: T, builder: h2::client::Builder) -> Client
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (send, connection) = builder.handshake(io).await.unwrap();
        Client { send, connection: tokio::spawn(connection) }
    }

    pub async fn open(&mut self, path: &str) -> Call {
        let request = Request::post(format!("http://relay{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        self.call(request.body(()).unwrap()).await
    }

    pub async fn call(&mut self, request: Request<()>) -> Call {
        let mut send = soon(self.send.clone().ready()).await.unwrap();
        let (response, requests) = send.send_request(request, false).unwrap();
        Call { requests, response: Some(response), body: None, received: BytesMut::new() }
    }
}

/// A client that reads nothing of its one call: a message is under way, and another waits behind it.
pub async fn stuck(server: &Running) -> (Client, Call, StreamProbe) {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1024);
    let mut client = Client::new(TcpStream::connect(server.address).await.unwrap(), builder).await;
    let mut call = client.open(SOTW).await;
    call.head().await;
    let stream = server.relay.stream(0).await;
    for taken in 1..=2 {
        stream.publish(b"", &[0; 100_000]);
        eventually("it is being written", || stream.with(|script| script.taken == taken)).await;
    }
    (client, call, stream)
}

/// One call, as the client sees it.
pub struct Call {
    pub requests: SendStream<Bytes>,
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    received: BytesMut,
}

impl Call {
    pub fn send_request(&mut self, type_url: &str) {
        self.requests.send_data(discovery_request(type_url), false).unwrap();
    }

    pub async fn head(&mut self) -> Response<()> {
        let response = soon(self.response.take().unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        self.body = Some(body);
        Response::from_parts(parts, ())
    }

    async fn body(&mut self) -> &mut RecvStream {
        if self.body.is_none() {
            self.head().await;
        }
        self.body.as_mut().unwrap()
    }

    /// The next gRPC message; `None` at the end of the body.
    pub async fn message(&mut self) -> Option<Bytes> {
        loop {
            if let Some((head, rest)) = self.received.split_first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if rest.len() >= length {
                    assert_eq!(head[0], 0, "uncompressed");
                    let mut message = self.received.split_to(5 + length);
                    return Some(message.split_off(5).freeze());
                }
            }
            let body = self.body().await;
            let Some(data) = soon(body.data()).await else {
                assert!(self.received.is_empty(), "the body ends within a message");
                return None;
            };
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            self.received.put(data);
        }
    }

    /// The status with which the stream ends, after all messages: code and text as sent.
    pub async fn status(&mut self) -> (String, String) {
        while self.message().await.is_some() {}
        let trailers = soon(self.body().await.trailers()).await.unwrap().expect("trailers");
        status_of(&trailers)
    }

    /// Whether the stream is still open, as far as the client has heard.
    pub async fn is_open(&mut self) -> bool {
        let body = self.body().await;
        let next = std::future::poll_fn(|context| Poll::Ready(body.poll_data(context).is_pending()));
        next.await
    }
}

pub fn status_of(headers: &HeaderMap) -> (String, String) {
    let text = |name| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    (text("grpc-status"), text("grpc-message"))
}

/// A framed `DiscoveryRequest` with only `type_url` (field 4).
pub fn discovery_request(type_url: &str) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(2 + type_url.len() as u32);
    bytes.put_u8(4 << 3 | 2);
    bytes.put_u8(type_url.len() as u8);
    bytes.put_slice(type_url.as_bytes());
    bytes.freeze()
}
