//! An upstream server on loopback that records requests: by ADS, by a stream per type, or by REST. The server
//! can also write its resources to a directory.
//!
//! An obedient control plane follows the protocol over a set of resources that the test changes. A scripted
//! control plane sends only the test's answers, except for [`MARKER`], which is always answered so that a
//! test can prove that the relay is alive.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::adapter::Adapter;
use super::load::{LRS, LoadServer};
use super::obedient::{Sub, World};
use super::words::{self, Answer, Ask, Attachment, Item, Variant};
use super::{DEADLINE, MARKER, istiod, judge, net, proto, rest};

/// A received request.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub stream: u64,
    pub variant: Variant,
    /// The type that the method implies; `None` for ADS.
    pub of_type: Option<&'static str>,
    pub ask: Ask,
    pub at: Instant,
    taken: bool,
}

struct Stream {
    variant: Variant,
    of_type: Option<&'static str>,
    answers: mpsc::UnboundedSender<Result<Answer, Status>>,
    subs: BTreeMap<String, Sub>,
    nonces: u64,
    /// The node of the first request.
    node: proto::Node,
}

impl Stream {
    fn send(&mut self, mut answer: Answer) {
        self.nonces += 1;
        if answer.nonce.is_empty() {
            answer.nonce = format!("n{}", self.nonces);
        }
        let _ = self.answers.send(Ok(answer));
    }
}

/// Changes the resources for one stream, or ends it.
type ByStream = Box<dyn Fn(&proto::Node, u64, &mut World) -> Result<(), Status> + Send>;

#[derive(Default)]
struct State {
    world: World,
    scripted: bool,
    refuse_delta: Option<Code>,
    /// The type without a service.
    refuse_type: Option<&'static str>,
    /// The type with a broken service.
    fail_type: Option<&'static str>,
    /// The type without a cache: a request for the type ends the stream, as with go-control-plane's mux.
    ends_on: Option<&'static str>,
    /// The answer to polls, instead of resources.
    refuse_polls: Option<(StatusCode, String)>,
    /// The resources for a stream, by its node and number, made of those for all.
    by_stream: Option<ByStream>,
    /// Looks up clients by their nodes, as istiod does.
    is_istiod: bool,
    /// The directory to write resources to after each change.
    directory: Option<TempDir>,
    streams: BTreeMap<u64, Stream>,
    log: Vec<Recorded>,
    opened: u64,
    /// The number of the latest stream.
    numbered: u64,
    opened_at: Vec<Instant>,
    headers: Vec<HashMap<String, String>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
    load: Arc<LoadServer>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the control plane")
    }
}

pub struct ControlPlane {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    drain: watch::Sender<usize>,
    server: Option<JoinHandle<()>>,
    /// The adapter that has the resources instead.
    adapter: Option<&'static Adapter>,
}

impl ControlPlane {
    /// Follows the protocol over the resources given to [`Self::set`].
    pub async fn obedient() -> ControlPlane {
        let address = SocketAddr::from(([127, 0, 0, 1], net::free_port()));
        let shared = Arc::default();
        let mut origin =
            ControlPlane { address, shared, drain: watch::channel(0).0, server: None, adapter: None };
        origin.up().await;
        origin
    }

    /// Stands for a server judged from outside, at first empty: passes changes on to the adapter, and serves
    /// nothing.
    pub fn stands_for(adapter: &'static Adapter) -> ControlPlane {
        adapter.clear();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let drain = watch::channel(0).0;
        ControlPlane { address, shared: Arc::default(), drain, server: None, adapter: Some(adapter) }
    }

    /// An obedient control plane that also writes its resources to a directory.
    pub async fn with_files() -> ControlPlane {
        let origin = ControlPlane::obedient().await;
        origin.shared.lock().directory = Some(tempfile::tempdir().expect("temporary directory"));
        origin
    }

    /// The `server_uri` for a relay.
    pub fn server_uri(&self, attachment: Attachment) -> String {
        match attachment {
            Attachment::Ads(_) | Attachment::PerType(_) => self.address.to_string(),
            Attachment::Rest => format!("http://{}", self.address),
            Attachment::Files => {
                let state = self.shared.lock();
                let directory = state.directory.as_ref().expect("a control plane with files");
                format!("file:{}", directory.path().display())
            }
        }
    }

    /// Obedient to clients whose nodes istiod accepts.
    pub async fn istiod() -> ControlPlane {
        let origin = ControlPlane::obedient().await;
        origin.shared.lock().is_istiod = true;
        origin
    }

    /// Sends only the test's answers, by [`Self::answer`].
    pub async fn scripted() -> ControlPlane {
        let origin = ControlPlane::obedient().await;
        origin.shared.lock().scripted = true;
        origin
    }

    /// Listens again on the same port after [`Self::down`].
    pub async fn up(&mut self) {
        let listener = net::listen(self.address).await;
        self.drain = watch::channel(0).0;
        self.server = Some(tokio::spawn(accept(listener, self.shared.clone(), self.drain.subscribe())));
    }

    /// Cuts all connections, and closes the port.
    pub async fn down(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
        }
        self.shared.lock().streams.clear();
    }

    /// Sends GOAWAY on every connection, without ending the streams.
    pub fn go_away(&self) {
        self.drain.send_modify(|drains| *drains += 1);
    }

    /// The server of load reports at the same address.
    pub fn load(&self) -> &Arc<LoadServer> {
        &self.shared.load
    }

    /// Ends every live stream with a status; `Code::Ok` is a clean end.
    pub fn close_streams(&self, code: Code) {
        let mut state = self.shared.lock();
        for stream in std::mem::take(&mut state.streams).into_values() {
            if code != Code::Ok {
                let _ = stream.answers.send(Err(Status::new(code, "closed by the test")));
            }
        }
    }

    /// Refuses every delta stream with this code before its headers, or (`None`) refuses none.
    pub fn refuse_delta(&self, code: impl Into<Option<Code>>) {
        self.shared.lock().refuse_delta = code.into();
    }

    /// The answers are a function of the node and of the number of the stream from now on.
    pub fn answer_by_stream(
        &self,
        function: impl Fn(&proto::Node, u64, &mut World) -> Result<(), Status> + Send + 'static,
    ) {
        self.shared.lock().by_stream = Some(Box::new(function));
        self.change(|_| {});
    }

    /// Removes the service of this type for streams and polls, or (`None`) offers all services.
    pub fn refuse_type(&self, type_url: Option<&'static str>) {
        self.shared.lock().refuse_type = type_url;
    }

    /// Ends streams of this type with INTERNAL before an answer, and answers polls with 500; `None` ends the
    /// fault.
    pub fn fail_type(&self, type_url: Option<&'static str>) {
        self.shared.lock().fail_type = type_url;
    }

    /// Ends every aggregated stream that asks for this type.
    pub fn ends_on(&self, type_url: Option<&'static str>) {
        self.shared.lock().ends_on = type_url;
    }

    /// Answers every poll with this, until [`Self::answer_polls`].
    pub fn refuse_polls(&self, status: StatusCode, body: &str) {
        self.shared.lock().refuse_polls = Some((status, body.to_owned()));
    }

    pub fn answer_polls(&self) {
        self.shared.lock().refuse_polls = None;
    }

    pub fn set(&self, type_url: &str, name: &str, text: &str) {
        self.set_many(type_url, &[(name, text)]);
    }

    /// Sets several resources in one change.
    pub fn set_many(&self, type_url: &str, resources: &[(&str, &str)]) {
        self.change(|world| {
            for (name, text) in resources {
                world.set(type_url, name, words::body(type_url, name, text), true);
            }
        });
    }

    /// Sets a resource that exists, but that no wildcard selects.
    pub fn set_unlisted(&self, type_url: &str, name: &str, text: &str) {
        self.change(|world| world.set(type_url, name, words::body(type_url, name, text), false));
    }

    pub fn remove(&self, type_url: &str, name: &str) {
        self.change(|world| world.remove(type_url, name));
    }

    /// Changes the control plane's resources, and notifies every stream once.
    pub fn change(&self, change: impl FnOnce(&mut World)) {
        let mut state = self.shared.lock();
        if let Some(adapter) = self.adapter {
            let changes = state.world.compare(change);
            drop(state);
            match changes {
                Some(changes) => return adapter.apply(changes),
                None => judge::skip("an adapter has no words for a resource that no wildcard selects"),
            }
        }
        change(&mut state.world);
        let State { world, streams, directory, by_stream, .. } = &mut *state;
        if let Some(directory) = directory {
            rest::write(directory.path(), world);
        }
        for (id, stream) in streams {
            let Ok(world) = world_of(world, by_stream.as_ref(), &stream.node, *id) else { continue };
            let answers: Vec<Answer> =
                stream.subs.values_mut().filter_map(|sub| sub.changed(&world)).collect();
            answers.into_iter().for_each(|answer| stream.send(answer));
        }
    }

    /// The first request of the type that no earlier call returned.
    pub async fn expect(&self, type_url: &str) -> Recorded {
        self.expect_that(type_url, |_| true).await
    }

    /// Like [`Self::expect`], skipping requests that do not fit.
    pub async fn expect_that(&self, type_url: &str, fits: impl Fn(&Ask) -> bool) -> Recorded {
        let find = || {
            let mut state = self.shared.lock();
            let mut log = state.log.iter_mut();
            let found = log.find(|r| !r.taken && r.ask.type_url == type_url && fits(&r.ask))?;
            found.taken = true;
            Some(found.clone())
        };
        let wait = self.until(find);
        match tokio::time::timeout(DEADLINE, wait).await {
            Ok(found) => found,
            Err(_) => panic!("no such request of {type_url}; the log: {:#?}", self.log()),
        }
    }

    /// Waits until `check` returns a value; calls `check` after every event.
    pub async fn until<T>(&self, mut check: impl FnMut() -> Option<T>) -> T {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(found) = check() {
                return found;
            }
            changed.await;
        }
    }

    /// Sends a scripted response on the stream of `to`, with the next nonce of the stream.
    pub fn answer(&self, to: &Recorded, version: &str, items: Vec<Item>, removed: &[&str]) {
        let removed = words::strings(removed);
        let version = version.to_owned();
        let type_url = to.ask.type_url.clone();
        self.answer_raw(to.stream, Answer { type_url, version, items, removed, ..Answer::default() });
    }

    pub fn answer_raw(&self, stream: u64, answer: Answer) {
        let mut state = self.shared.lock();
        state.streams.get_mut(&stream).expect("the stream is alive").send(answer);
    }

    /// Sends a response with an empty nonce.
    pub fn answer_without_nonce(&self, stream: u64, answer: Answer) {
        let state = self.shared.lock();
        let _ = state.streams.get(&stream).expect("the stream is alive").answers.send(Ok(answer));
    }

    /// All requests of one type so far.
    pub fn requests(&self, type_url: &str) -> Vec<Recorded> {
        self.log().into_iter().filter(|recorded| recorded.ask.type_url == type_url).collect()
    }

    pub fn log(&self) -> Vec<Recorded> {
        self.shared.lock().log.clone()
    }

    /// The number of streams ever opened, including refused streams.
    pub fn opened(&self) -> u64 {
        self.shared.lock().opened
    }

    /// The opening times of the streams.
    pub fn opened_at(&self) -> Vec<Instant> {
        self.shared.lock().opened_at.clone()
    }

    pub fn live_streams(&self) -> usize {
        self.shared.lock().streams.len()
    }

    pub fn is_live(&self, stream: u64) -> bool {
        self.shared.lock().streams.contains_key(&stream)
    }

    /// The HTTP headers of every stream.
    pub fn headers(&self) -> Vec<HashMap<String, String>> {
        self.shared.lock().headers.clone()
    }

    /// Waits for a condition over the live streams and the log.
    pub async fn wait_for(&self, what: &str, check: impl Fn(&ControlPlane) -> bool) {
        let wait = self.until(|| check(self).then_some(()));
        if tokio::time::timeout(DEADLINE, wait).await.is_err() {
            panic!("never: {what}; the log: {:#?}", self.log());
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, drain: watch::Receiver<usize>) {
    // Dropped with this task, so that an abort cuts every connection.
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let _ = socket.set_nodelay(true);
        connections.spawn(serve(socket, shared.clone(), drain.clone()));
    }
}

async fn serve(socket: TcpStream, shared: Arc<Shared>, mut drain: watch::Receiver<usize>) {
    let service = hyper::service::service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(route(request, shared).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    // A GOAWAY does not apply to later connections.
    drain.mark_unchanged();
    tokio::select! {
        _ = connection.as_mut() => return,
        Ok(()) = drain.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn route(request: Request<Incoming>, shared: Arc<Shared>) -> Response<tonic::body::Body> {
    let path = request.uri().path().to_owned();
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers =
        request.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    if let Some(type_url) = rest::type_of(&path) {
        let ask = rest::read(request, type_url).await;
        let mut state = shared.lock();
        state.headers.push(headers);
        let response = match &state.refuse_polls {
            Some((status, body)) => rest::respond(*status, body.clone()),
            None if state.refuse_type == Some(type_url) => {
                rest::respond(StatusCode::NOT_FOUND, String::new())
            }
            None if state.fail_type == Some(type_url) => {
                rest::respond(StatusCode::INTERNAL_SERVER_ERROR, "broken".to_owned())
            }
            None => rest::answer(&state.world, &ask),
        };
        let recorded = Recorded {
            stream: 0,
            variant: Variant::Sotw,
            of_type: Some(type_url),
            ask,
            at: Instant::now(),
            taken: false,
        };
        state.log.push(recorded);
        drop(state);
        shared.changed.notify_waiters();
        return response;
    }
    if path == LRS {
        return shared.load.clone().serve(request.map(tonic::body::Body::new)).await;
    }
    let method = words::method(&path);
    let refusal = {
        let mut state = shared.lock();
        state.headers.push(headers);
        state.opened += 1;
        state.opened_at.push(Instant::now());
        match method {
            Some((_, Some(of_type))) if state.refuse_type == Some(of_type) => Some(Code::Unimplemented),
            Some((_, Some(of_type))) if state.fail_type == Some(of_type) => Some(Code::Internal),
            Some((Variant::Delta, _)) => state.refuse_delta,
            _ => None,
        }
    };
    shared.changed.notify_waiters();
    let request = request.map(tonic::body::Body::new);
    match method {
        _ if refusal.is_some() => Status::new(refusal.unwrap_or(Code::Unimplemented), "not here").into_http(),
        Some(method @ (Variant::Sotw, _)) => {
            stream::<proto::DiscoveryRequest, proto::DiscoveryResponse>(request, shared, method).await
        }
        Some(method @ (Variant::Delta, _)) => {
            stream::<proto::DeltaDiscoveryRequest, proto::DeltaDiscoveryResponse>(request, shared, method)
                .await
        }
        None => Status::unimplemented("no such method").into_http(),
    }
}

/// The variant of a method, and the type that the method implies.
type Method = (Variant, Option<&'static str>);

async fn stream<Req, Resp>(
    request: Request<tonic::body::Body>,
    shared: Arc<Shared>,
    method: Method,
) -> Response<tonic::body::Body>
where
    Req: prost::Message + Default + Into<Ask> + 'static,
    Resp: prost::Message + Default + From<Answer> + 'static,
{
    let handler = tower::service_fn(move |request: tonic::Request<Streaming<Req>>| {
        let answers = open(request.into_inner(), shared.clone(), method);
        let answers = answers.map(|answer| answer.map(Resp::from));
        async move { Ok::<_, Status>(tonic::Response::new(answers)) }
    });
    let mut grpc = tonic::server::Grpc::new(ProstCodec::<Resp, Req>::default())
        .max_decoding_message_size(usize::MAX)
        .max_encoding_message_size(usize::MAX);
    grpc.streaming(handler, request).await
}

/// Registers the stream and reads its requests in a separate task.
fn open<Req: Into<Ask> + Send + 'static>(
    mut requests: Streaming<Req>,
    shared: Arc<Shared>,
    (variant, of_type): Method,
) -> UnboundedReceiverStream<Result<Answer, Status>> {
    let (answers, receiver) = mpsc::unbounded_channel();
    let id = {
        let mut state = shared.lock();
        // Two streams may be opened before either is numbered.
        let id = state.opened.max(state.numbered + 1);
        state.numbered = id;
        state.streams.insert(
            id,
            Stream {
                variant,
                of_type,
                answers,
                subs: BTreeMap::new(),
                nonces: 0,
                node: proto::Node::default(),
            },
        );
        id
    };
    tokio::spawn(async move {
        while let Ok(Some(request)) = requests.message().await {
            record(&mut shared.lock(), id, request.into());
            shared.changed.notify_waiters();
        }
        shared.lock().streams.remove(&id);
        shared.changed.notify_waiters();
    });
    UnboundedReceiverStream::new(receiver)
}

fn record(state: &mut State, id: u64, ask: Ask) {
    let State { world, streams, log, scripted, is_istiod, ends_on, by_stream, .. } = state;
    let Some(stream) = streams.get_mut(&id) else { return };
    if let Some(node) = ask.node.as_ref().filter(|_| *is_istiod)
        && let Err(reason) = istiod::addresses(node)
    {
        let _ = stream.answers.send(Err(Status::invalid_argument(reason)));
        streams.remove(&id);
        return;
    }
    if let Some(node) = &ask.node {
        stream.node = node.clone();
    }
    if stream.of_type.is_some_and(|of_type| of_type != ask.type_url) {
        let refusal =
            Status::invalid_argument(format!("RPC-6: {} on a stream of another type", ask.type_url));
        let _ = stream.answers.send(Err(refusal));
        return;
    }
    log.push(Recorded {
        stream: id,
        variant: stream.variant,
        of_type: stream.of_type,
        ask: ask.clone(),
        at: Instant::now(),
        taken: false,
    });
    if *ends_on == Some(&*ask.type_url) {
        let _ = stream.answers.send(Err(Status::unavailable("resource watch failed")));
        streams.remove(&id);
        return;
    }
    if *scripted && ask.type_url != MARKER {
        return;
    }
    let world = match world_of(world, by_stream.as_ref(), &stream.node, id) {
        Ok(world) => world,
        Err(status) => {
            let _ = stream.answers.send(Err(status));
            streams.remove(&id);
            return;
        }
    };
    let variant = stream.variant;
    let sub = stream.subs.entry(ask.type_url.clone()).or_insert_with(|| Sub::new(variant, &ask.type_url));
    if let Some(answer) = sub.request(&world, &ask) {
        stream.send(answer);
    }
}

/// The resources for one stream.
fn world_of<'a>(
    world: &'a World,
    by_stream: Option<&ByStream>,
    node: &proto::Node,
    stream: u64,
) -> Result<Cow<'a, World>, Status> {
    let Some(by_stream) = by_stream else { return Ok(Cow::Borrowed(world)) };
    let mut own = world.clone();
    by_stream(node, stream, &mut own)?;
    Ok(Cow::Owned(own))
}

/// Polls a condition that no event announces.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let poll = async {
        while !check().await {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, poll).await.is_err() {
        panic!("never: {what}");
    }
}
