//! The end of streams, their unread and unsent messages, and their metrics.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use super::*;
use crate::client::RestServer;
use crate::driver::api::downstream::{ConnectionCut, OpenStreams, WhenUnavailable};
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::limits::RelayLimits;
use crate::driver::ground::servers::{Attach, Server, ServerLists};
use crate::driver::ground::tails::{Answered, Fact, Followed};
use crate::driver::relay::Relay;
use crate::telemetry::Metrics;
use sluice_engine::authority::Authority;
use sluice_engine::authorization::Policy;
use sluice_engine::class::NodeClasses;
use sluice_engine::downstream::Limits;
use sluice_engine::{fallback, source, upstream};
use sluice_identity::Identity;
use sluice_load_reports::LoadLimits;
use sluice_xds::DeltaRequest;
use sluice_xds::Variant;
use sluice_xds::{Code, Node, RelayPath, ResourceName, TypeUrl};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A relay with an unreachable server.
pub(crate) fn relay() -> Relay {
    relay_with(|settings| settings)
}

/// As [`relay`], with other settings.
pub(crate) fn relay_with(change: impl FnOnce(DriverSettings) -> DriverSettings) -> Relay {
    let metrics = Arc::new(Metrics::new());
    let servers = list_of(vec![nowhere(&metrics, upstream::UpstreamSettings::default())]);
    Relay::new(change(settings(servers)), metrics)
}

fn nowhere(metrics: &Metrics, settings: upstream::UpstreamSettings) -> Attach {
    let client = metrics.of_server("nowhere").client().clone();
    let server = RestServer::new("127.0.0.1", 1, "", crate::client::ClientSettings::default(), client);
    Attach::Rest { server, settings }
}

fn list_of(attach: Vec<Attach>) -> ServerLists {
    let uri = |attach: &Attach| if matches!(attach, Attach::Files { .. }) { "files" } else { "nowhere" };
    let server = |attach| Arc::new(Server { uri: uri(&attach).into(), attach, load: None });
    ServerLists::new(attach.into_iter().map(server).collect(), fallback::FallbackSettings::default())
}

pub(crate) fn settings(lists: ServerLists) -> DriverSettings {
    DriverSettings {
        generation: 1,
        lists,
        source: source::SourceSettings::default(),
        classes: NodeClasses::default(),
        rollouts: Vec::new(),
        policy: Policy::default(),
        limits: RelayLimits {
            node_classes: 10,
            node_classes_per_connection: 10,
            private_sources: 10,
            changes_burst: 100,
            first_answers_per_second: 100,
            first_answers_burst: 100,
            ..RelayLimits::default()
        },
        node: Node::default(),
        stream: Limits::default(),
        checkpoint: None,
        ledger: None,
        splits: Arc::default(),
        load_listeners: BTreeMap::from([("main".into(), true)]),
        load: LoadLimits::default(),
        admin_has_tls: false,
        encoded_bytes: 1 << 20,
        proof: None,
    }
}

/// A peer with a connection of its own, from this address. All peers prove the same name.
pub(crate) fn peer(address: [u8; 4]) -> Peer {
    Peer {
        listener: "main".into(),
        address: Some((address, 4000).into()),
        identity: Arc::new(Identity::Dns("fleet.example".into())),
        connection: ConnectionCut::default(),
        when_unavailable: WhenUnavailable::Hold,
        relays: None,
    }
}

/// A client's stream may end during a move. Without a handle, the stream would enter the new source and stay
/// there.
#[tokio::test(start_paused = true)]
async fn cch_1_a_stream_that_ended_is_moved_nowhere() {
    for ends_first in [true, false] {
        let relay = relay();
        let kind = StreamKind::from(Variant::Delta);
        let stream = relay.open(kind, peer([127, 0, 0, 1])).unwrap();
        let endpoints = TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment");
        let request = DeltaRequest {
            node: Some(Box::default()),
            type_url: endpoints.as_str().into(),
            subscribe: vec!["e".into()],
            ..DeltaRequest::default()
        };
        stream.request(Request::Delta(request)).await.unwrap();
        let list = relay.shared.settings().lists.route(&endpoints, Authority::None).key();
        relay.shared.content.do_not_cache.add(list, &endpoints, Some(&"e".into()));
        let state = stream.state().clone();
        if ends_first {
            drop(stream);
            Subscriber::divert(state, endpoints);
        } else {
            Subscriber::divert(state, endpoints);
            drop(stream);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let left: Vec<_> = relay.tables.sources.all().iter().map(|source| source.key().owner).collect();
        assert_eq!(left, [], "ends first: {ends_first}");
        assert_eq!(relay.tables.streams.len(), 0);
    }
}

/// Another configuration reaches open streams and running sources. A new authority before the others moves
/// nothing.
#[tokio::test(start_paused = true)]
async fn rel_5_streams_and_sources_follow_the_configuration_in_force() {
    let metrics = Arc::new(Metrics::new());
    let client = metrics.of_server("nowhere").client().clone();
    let server = RestServer::new("127.0.0.1", 1, "", crate::client::ClientSettings::default(), client);
    let lists = |authorities: &[&str], resource_timeout| {
        let settings = upstream::UpstreamSettings { resource_timeout, ..Default::default() };
        let attach = Attach::Rest { server: server.clone(), settings };
        let servers = vec![Arc::new(Server { uri: "nowhere".into(), attach, load: None })];
        let mut lists = ServerLists::new(servers.clone(), fallback::FallbackSettings::default());
        let authority = |name: &&str| (name.to_string(), servers.clone(), Default::default());
        lists.set_authorities(authorities.iter().map(authority).collect());
        lists
    };
    let endpoints = TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment");
    let name = format!("xdstp://b/{}/1", endpoints.message());
    let ask = |names: &[&str]| {
        Request::Delta(DeltaRequest {
            node: Some(Box::default()),
            type_url: endpoints.as_str().into(),
            subscribe: names.iter().map(|name| (*name).into()).collect(),
            ..DeltaRequest::default()
        })
    };
    let relay = Relay::new(settings(lists(&["b"], Duration::from_secs(10))), metrics);
    let stream = relay.open(StreamKind::from(Variant::Delta), peer([127, 0, 0, 1])).unwrap();
    stream.request(ask(&[&name, "x"])).await.unwrap();
    let ids = || relay.tables.sources.all().iter().map(|source| source.id()).collect::<Vec<_>>();
    let before = ids();
    assert_eq!(before.len(), 2, "of the authority, and of old-style names");

    let timeout = Duration::from_secs(3);
    let mut other = settings(lists(&["a", "b"], timeout));
    other.stream.names_per_stream = 3;
    relay.configure(other);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for source in relay.tables.sources.all() {
        assert_eq!(source.serving_server().resource_timeout(&endpoints), timeout);
    }
    stream.request(ask(&[&format!("{name}1")])).await.unwrap();
    assert_eq!(ids(), before, "its names are asked of the same sources");
    stream.request(ask(&[&format!("xdstp://a/{}/1", endpoints.message())])).await.unwrap_err();
    let other = relay.open(StreamKind::from(Variant::Delta), peer([127, 0, 0, 1])).unwrap();
    other.request(ask(&[&format!("xdstp://a/{}/1", endpoints.message())])).await.unwrap();
    assert_eq!(ids().len(), 3, "the new authority has a source of its own");
}

/// Another memory budget holds from the next measurement on.
#[tokio::test(start_paused = true)]
async fn rel_5_the_memory_budget_is_the_one_in_force() {
    let relay = relay();
    let lists = || ServerLists::new(Vec::new(), fallback::FallbackSettings::default());
    let configure = |memory_bytes| {
        let settings = settings(lists());
        let limits = RelayLimits { memory_bytes, ..settings.limits.clone() };
        relay.configure(DriverSettings { limits, ..settings });
    };
    let holding = relay.clone();
    let hold = tokio::spawn(async move { holding.hold_to_memory(None).await });
    let mut seen = Vec::new();
    for memory_bytes in [None, Some(1), Some(1 << 40), Some(1), None] {
        configure(memory_bytes);
        tokio::time::sleep(Duration::from_secs(1)).await;
        seen.push(relay.is_out_of_memory());
    }
    assert_eq!(seen, [false, true, false, true, false]);
    hold.abort();
}

/// A client that reads nothing is sent at most `limits.connection_bytes` and one message, over all of its
/// streams.
#[tokio::test(start_paused = true)]
async fn fd1_unread_bytes_of_a_connection_are_bounded_over_all_its_streams() {
    let relay = relay();
    let peer = Peer {
        listener: "main".into(),
        address: None,
        identity: Arc::default(),
        connection: ConnectionCut::with_budget(1 << 20),
        when_unavailable: WhenUnavailable::Hold,
        relays: None,
    };
    let account = peer.connection.account();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let stream = relay.open(StreamKind::from(Variant::Delta), peer.clone()).unwrap();
        let clusters = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        // An invalid name needs no server for its answer.
        let request = DeltaRequest {
            node: Some(Box::default()),
            type_url: clusters.as_str().into(),
            subscribe: vec!["xdstp://a/b".into()],
            ..DeltaRequest::default()
        };
        stream.request(Request::Delta(request)).await.unwrap();
        streams.push(stream);
    }
    let message = std::future::poll_fn(|context| streams[0].poll_message(context)).await;
    let message = message.unwrap().unwrap();
    assert_eq!(account.unread_bytes(), (message.private.len() + message.shared.len()) as u64);
    // As if the message were large.
    account.leave_unread(1 << 20);
    let second = std::future::poll_fn(|context| streams[1].poll_message(context));
    let mut second = std::pin::pin!(second);
    let pause = Duration::from_secs(60);
    assert!(tokio::time::timeout(pause, second.as_mut()).await.is_err(), "it waits for the client to read");
    account.read(1 << 20);
    assert!(tokio::time::timeout(pause, second).await.is_ok(), "reading makes room");
    drop(message);
}

/// The worker serves other connections meanwhile.
#[tokio::test]
async fn fd6_large_bodies_are_encoded_on_another_thread() {
    for (bytes, is_large) in [(100, false), (1_000_000, true)] {
        let (relay, _directory) = relay_of_clusters(&["a"], bytes).await;
        let stream = wildcard_of(&relay).await;
        let mut next = std::pin::pin!(std::future::poll_fn(|context| stream.poll_message(context)));
        let first = std::future::poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await;
        assert_eq!(first.is_pending(), is_large);
        let message = if first.is_pending() { next.await } else { ready_of(first) };
        assert!(message.unwrap().unwrap().shared.len() > bytes);
    }
}

/// A relay over a file with these clusters, each with this many bytes.
pub(crate) async fn relay_of_clusters(names: &[&str], bytes: usize) -> (Relay, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let clusters: Vec<_> = names.iter().map(|name| (*name, bytes)).collect();
    write_clusters(&directory, &clusters);
    (relay_of(Vec::new(), &directory).await, directory)
}

/// A relay over an unreachable server, and then over a file with these clusters.
pub(crate) async fn relay_before_clusters(names: &[&str]) -> (Relay, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    write_clusters(&directory, &names.iter().map(|name| (*name, 1)).collect::<Vec<_>>());
    let transport = upstream::Transport::Rest { refresh_delay: Duration::from_secs(1) };
    let variant = Variant::Sotw;
    let polled = upstream::UpstreamSettings { transport, variant, ..upstream::UpstreamSettings::default() };
    (relay_of(vec![nowhere(&Metrics::new(), polled)], &directory).await, directory)
}

/// A relay over a directory, the last of these servers.
async fn relay_of(mut servers: Vec<Attach>, directory: &tempfile::TempDir) -> Relay {
    servers.push(Attach::Files { directory: directory.path().into(), mass_deletion_hold: None });
    let relay = Relay::new(settings(list_of(servers)), Arc::new(Metrics::new()));
    relay.load().await.unwrap();
    relay
}

/// Replaces the clusters of the file, each with this many bytes.
pub(crate) fn write_clusters(directory: &tempfile::TempDir, clusters: &[(&str, usize)]) {
    let cluster = |(name, bytes): &(&str, usize)| serde_json::json!({ "@type": CDS, "name": name, "alt_stat_name": "x".repeat(*bytes) });
    let clusters: Vec<_> = clusters.iter().map(cluster).collect();
    let file = serde_json::json!({ "type_url": CDS, "resources": clusters });
    let (new, path) = (directory.path().join(".new"), directory.path().join("clusters.json"));
    std::fs::write(&new, file.to_string()).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// A delta stream whose first answer is due.
pub(crate) async fn wildcard_of(relay: &Relay) -> Stream {
    let peer = Peer {
        listener: "main".into(),
        address: None,
        identity: Arc::default(),
        connection: ConnectionCut::default(),
        when_unavailable: WhenUnavailable::Hold,
        relays: None,
    };
    let stream = relay.open(StreamKind::from(Variant::Delta), peer).unwrap();
    let request = DeltaRequest { node: Some(Box::default()), type_url: CDS.into(), ..Default::default() };
    stream.request(Request::Delta(request)).await.unwrap();
    while !stream.state().has_something_to_say() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream
}

/// Neither a slow reader nor a set too large for the cache costs an encoding for each message.
#[tokio::test]
async fn rly_31_an_answer_of_many_messages_is_encoded_once() {
    let (relay, _directory) = relay_of_clusters(&["a", "b", "c"], 2 << 20).await;
    let stream = wildcard_of(&relay).await;
    for _ in 0..3 {
        let message = std::future::poll_fn(|context| stream.poll_message(context)).await;
        assert!(message.unwrap().unwrap().shared.len() > 2 << 20);
        relay.shared.content.encoder.clear();
    }
    let metrics = relay.shared.metrics.encode().unwrap();
    assert!(metrics.contains("sluice_encoding_misses_total 1\n"), "{metrics}");
    assert_eq!(stream.state().inner.lock().outbox.unsent_keys().count(), 0);
}

/// A client that stops reading in the middle of an answer keeps no outdated messages.
#[tokio::test]
async fn rly_55_outdated_messages_of_a_stalled_client_are_dropped() {
    let (relay, directory) = relay_of_clusters(&["a", "b", "c"], 2 << 20).await;
    let stream = wildcard_of(&relay).await;
    let next = || std::future::poll_fn(|context| stream.poll_message(context));
    let first = next().await.unwrap().unwrap();
    let unsent = || stream.state().inner.lock().outbox.unsent_keys().next().copied();
    let key = unsent().unwrap();
    stream.state().take_back(Duration::ZERO);
    assert_eq!(unsent(), Some(key), "current messages are kept");
    write_clusters(&directory, &[("a", 500_000), ("c", 500_000), ("d", 500_000)]);
    while relay.shared.content.encoder.is_current(&key) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream.state().take_back(Duration::from_secs(3600));
    assert_eq!(unsent(), Some(key), "it may be on its way");
    stream.state().take_back(Duration::ZERO);
    assert_eq!(unsent(), None);
    drop(first);
    // The new answer, not the rest of the old: `b` is gone.
    let length = next().await.unwrap().unwrap().shared.len();
    assert!((1_500_000..2_000_000).contains(&length), "{length}");
}

/// A report of a type that is subscribed subscribes to nothing more.
#[tokio::test(start_paused = true)]
async fn fd_4_reports_leave_nothing_behind_and_have_a_rate() {
    let relay = relay();
    let stream = relay.open(StreamKind::from(Variant::Delta), peer([127, 0, 0, 1])).unwrap();
    let url = "type.googleapis.com/some.Type";
    let first = DeltaRequest { type_url: url.into(), node: Some(Box::default()), ..DeltaRequest::default() };
    stream.request(Request::Delta(first)).await.unwrap();
    let began = tokio::time::Instant::now();
    for _ in 0..300 {
        let error_detail = Some(Status::new(Code::Internal, "it is so"));
        let request = DeltaRequest { type_url: url.into(), error_detail, ..DeltaRequest::default() };
        stream.request(Request::Delta(request)).await.unwrap();
    }
    assert_eq!(stream.state().inner.lock().types.len(), 1, "the one that is subscribed");
    assert!(began.elapsed() >= Duration::from_millis(1900), "{:?}", began.elapsed());
}

fn ready_of<T>(poll: Poll<T>) -> T {
    match poll {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("it was looked at"),
    }
}

/// A tail is told each message with its names, version, nonce and change, and never a content.
#[tokio::test]
async fn adm_15_a_tail_is_told_what_a_stream_asks_is_sent_and_says() {
    let (relay, directory) = relay_of_clusters(&["web", "old"], 7_000).await;
    let stream = wildcard_of(&relay).await;
    let followed = Followed::Stream(stream.state().number());
    let tail = relay.shared.tails.open(followed, Some("Cluster".to_owned())).unwrap();
    let other = relay.shared.tails.open(Followed::Node("other".into()), None).unwrap();
    let next = || std::future::poll_fn(|context| stream.poll_message(context));
    let first = next().await.unwrap().unwrap();
    let taken = tail.take();
    let [line] = taken.lines.as_slice() else { unreachable!("one response: {taken:?}") };
    let Fact::Response(sent) = &line.fact else { unreachable!("{line:?}") };
    assert_eq!((sent.names.count, sent.names.first.len(), sent.removed.count), (2, 2, 0));
    assert_eq!(sent.bytes, first.private.len() + first.shared.len());
    assert_eq!((sent.message, sent.version.is_some()), ((1, 1), true));

    let nonce = sent.nonce.clone().unwrap();
    let answer = |nonce: &str, error| DeltaRequest {
        type_url: CDS.into(),
        response_nonce: nonce.into(),
        error_detail: error,
        ..DeltaRequest::default()
    };
    stream.request(Request::Delta(answer(&nonce, None))).await.unwrap();
    write_clusters(&directory, &[("web", 7_001), ("new", 7_000)]);
    while !stream.state().has_something_to_say() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    next().await.unwrap().unwrap();
    let taken = tail.take();
    let [ack, update] = taken.lines.as_slice() else { unreachable!("an ACK and an update: {taken:?}") };
    assert!(
        matches!(&ack.fact, Fact::Request(asked) if asked.answered == Answered::Ack && asked.nonce == nonce)
    );
    let Fact::Response(sent) = &update.fact else { unreachable!("{update:?}") };
    let first: Vec<&str> = sent.names.first.iter().map(|name| &**name).collect();
    assert_eq!((first, sent.names.count), (vec!["new", "web"], 2));
    assert_eq!((&*sent.removed.first, sent.removed.count), (&["old".into()][..], 1));
    assert_eq!(sent.changes.len(), 1, "the change has a name");

    let error = Some(Status::new(Code::Internal, "no such cluster"));
    stream.request(Request::Delta(answer(sent.nonce.as_ref().unwrap(), error))).await.unwrap();
    stream.half_close();
    drop(stream);
    let taken = tail.take();
    let [nack, end] = taken.lines.as_slice() else { unreachable!("a NACK and the end: {taken:?}") };
    let words = Answered::Nack("INTERNAL: no such cluster".into());
    assert!(matches!(&nack.fact, Fact::Request(asked) if asked.answered == words));
    assert!(taken.is_over && matches!(&end.fact, Fact::Ended(Some(status)) if status.code == Code::Ok));
    assert!(other.take().lines.is_empty(), "another node");
    assert!(!format!("{taken:?}").contains("xxx"));
}

/// ADM-12: the words about a Secret are withheld in a tail, and so are its versions.
#[tokio::test(start_paused = true)]
async fn adm_12_a_tail_shows_nothing_of_a_secret() {
    let relay = relay();
    let node = relay.shared.tails.open(Followed::Node("a".into()), None).unwrap();
    let secret = TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret");
    for is_delta in [false, true] {
        let variant = if is_delta { Variant::Delta } else { Variant::Sotw };
        let stream = relay.open(StreamKind::from(variant), peer([127, 0, 0, 1])).unwrap();
        let named = Some(Box::new(Node { id: "a".into(), ..Node::default() }));
        let error = Some(Status::new(Code::Internal, "CANARY"));
        let name = ResourceName::new("xdstp://a/b");
        let (type_url, names) = (secret.as_str().to_owned(), vec![name]);
        let first = match is_delta {
            true => Request::Delta(DeltaRequest {
                node: named,
                type_url: type_url.clone(),
                subscribe: names.clone(),
                ..Default::default()
            }),
            false => Request::Sotw(SotwRequest {
                node: named,
                type_url: type_url.clone(),
                resource_names: names.clone(),
                version_info: "CANARY".into(),
                ..Default::default()
            }),
        };
        stream.request(first).await.unwrap();
        // An invalid name needs no server for its answer.
        if is_delta {
            std::future::poll_fn(|context| stream.poll_message(context)).await.unwrap().unwrap();
        }
        let nonce = stream.state().inner.lock().session.nonce_text(1);
        for response_nonce in [nonce, String::new()] {
            let (type_url, error_detail) = (type_url.clone(), error.clone());
            let nack = match is_delta {
                true => Request::Delta(DeltaRequest {
                    type_url,
                    response_nonce,
                    error_detail,
                    ..Default::default()
                }),
                false => Request::Sotw(SotwRequest {
                    type_url,
                    response_nonce,
                    error_detail,
                    version_info: "CANARY".into(),
                    ..Default::default()
                }),
            };
            stream.request(nack).await.unwrap();
        }
    }
    let lines = format!("{:?}", node.take().lines);
    assert!(lines.contains("[withheld 6 B]"), "{lines}");
    assert!(lines.matches("Response").count() == 1 && lines.matches("Opened").count() == 2, "{lines}");
    assert!(!lines.contains("CANARY"), "{lines}");
}

/// The relay's own call comes back by way of another relay.
#[tokio::test(start_paused = true)]
async fn tir_2_a_call_of_the_relay_itself_is_refused() {
    let relay = relay();
    let open = |path: String| {
        let relays = Some(Arc::new(RelayPath::parse(path.as_bytes()).unwrap()));
        let opened = relay.open(StreamKind::from(Variant::Delta), Peer { relays, ..peer([127, 0, 0, 1]) });
        opened.map(drop)
    };
    let path = RelayPath::through(None, &relay.shared.process.relay_id);
    let path = path.as_str();
    assert_eq!(open("leaf~1".into()), Ok(()));
    // A replica, or this relay before a restart.
    assert_eq!(open(format!("leaf~1,{}0", path)), Ok(()));
    let refused = open(format!("{path},leaf~1")).unwrap_err();
    assert_eq!(refused.code, Code::FailedPrecondition);
    assert!(refused.message.starts_with("loop through "), "{refused}");
    assert_eq!(open("1,2,3,4,5,6,7,8".into()), Ok(()));
}

/// With the two counters of its allocation, a size class of the allocator.
#[test]
fn an_idle_stream_costs_little() {
    let size = size_of::<StreamState>();
    assert!(size + 16 <= 768, "{size}");
}

#[tokio::test]
async fn a_stream_ends_with_the_last_handle_and_no_handle_comes_after_it() {
    let relay = relay();
    let first = relay.open(StreamKind::from(Variant::Delta), peer([127, 0, 0, 1])).unwrap();
    let state = first.state().clone();
    let (second, held) = (first.clone(), state.hold_open().unwrap());
    drop((first, second));
    let still = state.hold_open();
    assert!(still.is_some());
    drop((still, held));
    assert!(state.hold_open().is_none());
    assert_eq!(relay.tables.streams.len(), 0);
}
