//! A downstream client of any kind: controlled request by request, or with a model of its resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::kind::Downstream;
use super::poll;
use super::proto::{self, Node};
use super::words::{Answer, Ask, Variant};
use super::{MARKER, is_full_state, judge};

/// The node of a test client. All test clients are in one node class, since only the id differs.
pub fn node(id: &str) -> Node {
    // A judged control plane may know only one node.
    let known = judge::settings().and_then(|settings| settings.node.as_deref());
    Node {
        id: known.unwrap_or(id).to_owned(),
        cluster: "kit".to_owned(),
        user_agent_name: "kit".to_owned(),
        ..Node::default()
    }
}

/// Connects to `127.0.0.1:PORT` or `unix:PATH`.
pub async fn connect(target: &str) -> Channel {
    if let Some(path) = target.strip_prefix("unix:") {
        let path = path.to_owned();
        let connector = tower::service_fn(move |_: http::Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(hyper_util::rt::TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        return endpoint.connect_with_connector(connector).await.expect("connect");
    }
    let endpoint = Endpoint::from_shared(format!("http://{target}")).expect("target");
    endpoint.connect().await.unwrap_or_else(|e| panic!("connect to {target}: {e:?}"))
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all events are answers")]
pub enum Event {
    Answer(Answer),
    End(Status),
}

/// The state of one type on a client's stream.
#[derive(Clone, Debug, Default)]
struct Held {
    names: Vec<String>,
    ever_asked: bool,
    version: String,
    nonce: String,
    /// Name to (version, text), as ACKed.
    resources: BTreeMap<String, (String, String)>,
    nonces: BTreeSet<String>,
}

pub struct Client {
    pub variant: Variant,
    kind: Downstream,
    node: Option<Node>,
    /// Opens further streams; `None` for a client with a single stream.
    opener: Option<Opener>,
    /// The streams by their types; the aggregated stream has an empty key.
    streams: BTreeMap<String, Outlet>,
    events: mpsc::UnboundedReceiver<Event>,
    reading: watch::Sender<bool>,
    held: BTreeMap<String, Held>,
    /// The client takes wrapped elements in SotW, by its node's features or its use of locators.
    wraps: bool,
}

impl Client {
    /// A client with a connection and a stream of its own; the first message has the node.
    pub async fn open(target: &str, kind: impl Into<Downstream>, id: &str) -> Client {
        let mut client = Client::idle(kind.into(), Some(node(id)));
        client.start(connect(target).await, target, None);
        client
    }

    /// Like [`Client::open`], for a client that is a relay by this path (TIR-2).
    pub async fn relay(target: &str, variant: Variant, path: &'static str) -> Client {
        let mut client = Client::idle(variant.into(), Some(node("relay")));
        client.start(connect(target).await, target, Some(("x-sluice-path", path)));
        client
    }

    /// Like [`Client::open`], with client features.
    pub async fn with_features(target: &str, variant: Variant, id: &str, features: &[&str]) -> Client {
        let node = Node { client_features: super::words::strings(features), ..node(id) };
        Client::on(connect(target).await, variant, Some(node))
    }

    /// A client with a stream on a shared connection.
    pub fn on(channel: Channel, variant: Variant, node: Option<Node>) -> Client {
        let mut client = Client::idle(variant.into(), node);
        client.start(channel, "", None);
        client
    }

    /// A client with a stream on a shared connection, of a node class of its own: the node's cluster differs.
    pub fn of_cluster(channel: &Channel, variant: Variant, cluster: &str) -> Client {
        let node = Node { cluster: cluster.to_owned(), ..node("client") };
        Client::on(channel.clone(), variant, Some(node))
    }

    fn idle(kind: Downstream, node: Option<Node>) -> Client {
        judge::require(kind);
        let events = mpsc::unbounded_channel().1;
        let reading = watch::channel(true).0;
        let features = node.iter().flat_map(|node| &node.client_features);
        let wraps = features.clone().any(|feature| feature.contains("resource-in-sotw"));
        let (variant, streams, held) = (kind.variant(), BTreeMap::new(), BTreeMap::new());
        Client { variant, kind, node, opener: None, streams, events, reading, held, wraps }
    }

    fn start(&mut self, channel: Channel, target: &str, header: Option<Header>) {
        let (sender, events) = mpsc::unbounded_channel();
        self.events = events;
        self.opener = Some(Opener { channel, target: target.to_owned(), header, sender });
        if matches!(self.kind, Downstream::Ads(_) | Downstream::V2(_)) {
            self.open_stream("");
            // The end of the single stream ends the events.
            self.opener = None;
        }
    }

    /// Opens the stream of a type, for a client with a stream per type.
    pub fn open_stream(&mut self, stream: &str) {
        let Opener { channel, target, header, sender } = self.opener.clone().expect("not half-closed");
        let (requests, receiver) = mpsc::unbounded_channel();
        self.streams.insert(stream.to_owned(), Outlet { requests, node: self.node.clone() });
        if self.kind == Downstream::Rest && !stream.is_empty() {
            tokio::spawn(poll::run(target, stream.to_owned(), receiver, sender));
            return;
        }
        let path = self.kind.path(stream);
        let call = Call { channel, path, header, gate: self.reading.subscribe() };
        match self.variant {
            Variant::Sotw => {
                tokio::spawn(run::<proto::DiscoveryRequest, proto::DiscoveryResponse>(
                    call, receiver, sender,
                ));
            }
            Variant::Delta => {
                tokio::spawn(run::<proto::DeltaDiscoveryRequest, proto::DeltaDiscoveryResponse>(
                    call, receiver, sender,
                ));
            }
        }
    }

    /// A client whose stream has an `authorization` header.
    pub async fn with_token(target: &str, variant: Variant, token: &'static str) -> Client {
        let mut client = Client::idle(variant.into(), Some(node("with-token")));
        client.start(connect(target).await, target, Some(("authorization", token)));
        client
    }

    /// Sends one request unchanged, except for the node in the first request.
    pub fn send(&mut self, mut ask: Ask) {
        // WIR-10: locators imply wrapped elements.
        self.wraps |= !ask.locators.is_empty();
        let stream = self.kind.stream_of(&ask.type_url);
        if !self.streams.contains_key(&stream) {
            self.open_stream(&stream);
        }
        let outlet = self.streams.get_mut(&stream).expect("opened");
        if ask.node.is_none() {
            ask.node = outlet.node.take();
        }
        let requests = outlet.requests.clone();
        let held = self.held.entry(ask.type_url.clone()).or_default();
        held.ever_asked = true;
        if self.variant == Variant::Sotw {
            held.names.clone_from(&ask.names);
            let names = &held.names;
            // A SotW client drops resources outside its list.
            if !names.is_empty() && !names.iter().any(|name| name == "*") {
                held.resources.retain(|name, _| names.contains(name));
            }
        }
        let _ = requests.send(ask);
    }

    /// Sends one request of any type on the stream of a type.
    pub fn send_on(&mut self, stream: &str, mut ask: Ask) {
        let outlet = self.streams.get_mut(stream).expect("opened");
        ask.node = ask.node.or_else(|| outlet.node.take());
        let _ = outlet.requests.send(ask);
    }

    /// Makes `names` the subscription of the type: the whole list in SotW, the difference in delta.
    pub fn want(&mut self, type_url: &str, names: &[&str]) {
        let ask = self.next_ask(type_url, names);
        self.send(ask);
    }

    fn next_ask(&mut self, type_url: &str, names: &[&str]) -> Ask {
        let held = self.held.entry(type_url.to_owned()).or_default();
        let ask = Ask::of(type_url);
        match self.variant {
            Variant::Sotw => ask.names(names).version(&held.version).nonce(&held.nonce),
            Variant::Delta => {
                let old = std::mem::replace(&mut held.names, super::words::strings(names));
                let gone: Vec<&str> = old.iter().map(String::as_str).filter(|n| !names.contains(n)).collect();
                let new: Vec<&str> = names.iter().copied().filter(|n| !old.iter().any(|o| o == n)).collect();
                held.resources.retain(|name, _| !gone.contains(&name.as_str()));
                ask.subscribe(&new).unsubscribe(&gone)
            }
        }
    }

    /// The next event of the stream.
    pub async fn event(&mut self) -> Event {
        self.event_within(judge::deadline()).await
    }

    /// An event that has arrived, without waiting.
    pub fn try_event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    pub async fn event_within(&mut self, limit: Duration) -> Event {
        match timeout(limit, self.events.recv()).await {
            Ok(event) => event.expect("the stream already ended"),
            Err(_) => panic!("nothing within {limit:?}; holding {:#?}", self.held),
        }
    }

    /// The next response of any type, without an ACK.
    pub async fn any(&mut self) -> Answer {
        match self.event().await {
            Event::Answer(answer) => self.check(answer),
            Event::End(status) => panic!("the stream ended with {status:?} where a response was due"),
        }
    }

    /// The next response, without an ACK; panics if the type is another.
    pub async fn next(&mut self, type_url: &str) -> Answer {
        let answer = self.any().await;
        assert_eq!(answer.type_url, type_url, "out of turn: {answer:?}");
        answer
    }

    /// Receives the next response of this type, and ACKs.
    pub async fn take(&mut self, type_url: &str) -> Answer {
        let answer = self.next(type_url).await;
        self.ack(&answer);
        answer
    }

    fn check(&mut self, answer: Answer) -> Answer {
        answer.assert_well_formed(self.variant);
        assert!(self.wraps || answer.wrapped.is_empty(), "WIR-8: wrapped elements in {answer:?}");
        let stream = self.kind.stream_of(&answer.type_url);
        for (type_url, held) in &self.held {
            let again = held.nonces.contains(&answer.nonce) && self.kind.stream_of(type_url) == stream;
            assert!(!again, "STR-5: nonce {} again, of {type_url}", answer.nonce);
        }
        self.held.entry(answer.type_url.clone()).or_default().nonces.insert(answer.nonce.clone());
        answer
    }

    pub fn ack(&mut self, answer: &Answer) {
        self.apply(answer);
        let ask = self.ack_of(answer);
        self.send(ask);
    }

    /// An ACK that the test may modify before sending.
    pub fn ack_of(&self, answer: &Answer) -> Ask {
        let ask = Ask::of(&answer.type_url).nonce(&answer.nonce);
        match self.variant {
            Variant::Sotw => {
                Ask { names: self.held[&answer.type_url].names.clone(), ..ask }.version(&answer.version)
            }
            Variant::Delta => ask,
        }
    }

    pub fn nack(&mut self, answer: &Answer, message: &str) {
        let ask = self.nack_of(answer, message);
        self.send(ask);
    }

    pub fn nack_of(&mut self, answer: &Answer, message: &str) -> Ask {
        let held = self.held.entry(answer.type_url.clone()).or_default();
        held.nonce.clone_from(&answer.nonce);
        let version = held.version.clone();
        let ask = self.ack_of(answer).error(message);
        if self.variant == Variant::Sotw { ask.version(&version) } else { ask }
    }

    fn apply(&mut self, answer: &Answer) {
        let held = self.held.entry(answer.type_url.clone()).or_default();
        held.version.clone_from(&answer.version);
        held.nonce.clone_from(&answer.nonce);
        let whole = self.kind == Downstream::Rest && answer.type_url != MARKER;
        let wildcard = whole || held.names.is_empty() || held.names.iter().any(|name| name == "*");
        if self.variant == Variant::Sotw && (wildcard || is_full_state(&answer.type_url)) {
            held.resources.clear();
        }
        // A heartbeat has no content (TTL-4).
        for item in answer.items.iter().filter(|item| item.body.is_some()) {
            held.resources.insert(item.name.clone(), (item.version.clone(), item.text()));
        }
        for name in &answer.removed {
            held.resources.remove(name);
        }
    }

    /// The last nonce of a type that this client ACKed or NACKed.
    pub fn nonce(&self, type_url: &str) -> String {
        self.held.get(type_url).map(|held| held.nonce.clone()).unwrap_or_default()
    }

    /// The ACKed resources of a type: name to text.
    pub fn holds(&self, type_url: &str) -> BTreeMap<String, String> {
        let resources = self.held.get(type_url).map(|held| held.resources.clone()).unwrap_or_default();
        resources.into_iter().map(|(name, (_, text))| (name, text)).collect()
    }

    /// The versions that a reconnecting delta client presents, by name.
    pub fn versions(&self, type_url: &str) -> BTreeMap<String, String> {
        let resources = self.held.get(type_url).map(|held| held.resources.clone()).unwrap_or_default();
        resources.into_iter().map(|(name, (version, _))| (name, version)).collect()
    }

    /// Receives and ACKs responses until the client has exactly these resources.
    pub async fn settle(&mut self, type_url: &str, wanted: &[(&str, &str)]) {
        let wanted: BTreeMap<String, String> =
            wanted.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
        while self.holds(type_url) != wanted {
            let event = timeout(judge::deadline(), self.events.recv()).await;
            match event {
                Ok(Some(Event::Answer(answer))) => {
                    let answer = self.check(answer);
                    self.ack(&answer);
                }
                other => panic!("{other:?} while {:?} was not yet {wanted:?}", self.holds(type_url)),
            }
        }
    }

    /// Asserts that no other response comes. Subscribes to a new name, whose answer has to come from the
    /// control plane: every response due earlier on the same streams would arrive before the answer. A server
    /// judged from outside has no such markers; there the client waits for a period of silence.
    pub async fn quiet(&mut self) {
        if let Some(settings) = judge::settings() {
            return self.silence(settings.quiet).await;
        }
        let name = next_marker();
        self.want(MARKER, &[&name]);
        let answer = self.take(MARKER).await;
        assert_eq!(answer.names(), [name.as_str()]);
        self.silence(Duration::from_millis(40)).await;
    }

    /// Like [`Self::quiet`], but permits an earlier response of the type without new content: a server may
    /// repeat resources when a set shrinks or changes its spelling.
    pub async fn quiet_after_optional(&mut self, type_url: &str) {
        let before = self.holds(type_url);
        self.quiet_except(type_url, |answer| {
            answer.removed.is_empty()
                && answer.items.iter().all(|item| before.get(&item.name) == Some(&item.text()))
        })
        .await;
    }

    /// Like [`Self::quiet`], but permits an earlier empty response of the type (SST-14).
    pub async fn quiet_after_empty(&mut self, type_url: &str) {
        self.quiet_except(type_url, |answer| answer.items.is_empty() && is_full_state(&answer.type_url))
            .await;
    }

    async fn quiet_except(&mut self, type_url: &str, harmless: impl Fn(&Answer) -> bool) {
        let mut window = judge::deadline();
        if let Some(settings) = judge::settings() {
            window = settings.quiet;
        } else {
            self.want(MARKER, &[&next_marker()]);
        }
        while let Ok(answer) = timeout(window, self.any()).await {
            self.ack(&answer);
            if answer.type_url == MARKER {
                // The relay gathers for some milliseconds, so the marker may overtake a harmless response.
                window = Duration::from_millis(40);
            } else {
                assert!(answer.type_url == type_url && harmless(&answer), "silence was due, got {answer:?}");
            }
        }
        assert!(window < judge::deadline(), "the marker was not answered");
    }

    /// Asserts that no response comes within this time. Prefer [`Self::quiet`] if a control plane is up.
    pub async fn silence(&mut self, window: Duration) {
        if let Ok(event) = timeout(window, self.events.recv()).await {
            panic!("silence was due, got {event:?}");
        }
    }

    /// The status at the end of the stream; skips responses.
    pub async fn ended(&mut self) -> Status {
        loop {
            if let Event::End(status) = self.event().await {
                return status;
            }
        }
    }

    /// Ends the sending side.
    pub fn half_close(&mut self) {
        self.streams.clear();
        self.opener = None;
    }

    /// Stops reading, like a client with busy watchers (FLW-1).
    pub fn stop_reading(&self) {
        let _ = self.reading.send(false);
    }

    pub fn resume_reading(&self) {
        let _ = self.reading.send(true);
    }
}

/// A header of a call: name and value.
type Header = (&'static str, &'static str);

#[derive(Clone)]
struct Opener {
    channel: Channel,
    target: String,
    header: Option<Header>,
    sender: mpsc::UnboundedSender<Event>,
}

struct Outlet {
    requests: mpsc::UnboundedSender<Ask>,
    /// The node for the first message.
    node: Option<Node>,
}

struct Call {
    channel: Channel,
    path: String,
    header: Option<Header>,
    gate: watch::Receiver<bool>,
}

async fn run<Req, Resp>(
    call: Call,
    requests: mpsc::UnboundedReceiver<Ask>,
    events: mpsc::UnboundedSender<Event>,
) where
    Req: prost::Message + Default + From<Ask> + 'static,
    Resp: prost::Message + Default + Into<Answer> + 'static,
{
    let status = tokio::select! {
        status = read::<Req, Resp>(call, requests, &events) => status,
        () = events.closed() => return,
    };
    let _ = events.send(Event::End(status.err().unwrap_or(Status::new(Code::Ok, ""))));
}

async fn read<Req, Resp>(
    mut call: Call,
    requests: mpsc::UnboundedReceiver<Ask>,
    events: &mpsc::UnboundedSender<Event>,
) -> Result<(), Status>
where
    Req: prost::Message + Default + From<Ask> + 'static,
    Resp: prost::Message + Default + Into<Answer> + 'static,
{
    let mut grpc = tonic::client::Grpc::new(call.channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let mut request = tonic::Request::new(UnboundedReceiverStream::new(requests).map(Req::from));
    if let Some((name, value)) = call.header {
        request.metadata_mut().insert(name, MetadataValue::from_static(value));
    }
    let path = PathAndQuery::try_from(call.path).expect("a path");
    let response = grpc.streaming(request, path, ProstCodec::<Req, Resp>::default()).await?;
    let mut responses = response.into_inner();
    loop {
        let _ = call.gate.wait_for(|reading| *reading).await;
        match responses.message().await? {
            Some(response) => {
                let _ = events.send(Event::Answer(response.into()));
            }
            None => return Ok(()),
        }
    }
}

/// A name without an earlier subscriber, so that the answer has to come from the control plane.
fn next_marker() -> String {
    static MARKERS: AtomicU64 = AtomicU64::new(0);
    format!("marker-{}-{}", std::process::id(), MARKERS.fetch_add(1, Ordering::Relaxed))
}

/// One request, one response: a `Fetch*` method.
pub async fn fetch(target: &str, path: &'static str, ask: Ask) -> Result<Answer, Status> {
    let mut grpc = tonic::client::Grpc::new(connect(target).await);
    grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
    let request = tonic::Request::new(proto::DiscoveryRequest::from(ask));
    let codec = ProstCodec::<proto::DiscoveryRequest, proto::DiscoveryResponse>::default();
    let response = grpc.unary(request, PathAndQuery::from_static(path), codec).await?;
    Ok(response.into_inner().into())
}
