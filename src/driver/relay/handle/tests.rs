//! Other configurations of a running relay.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::task::Poll;
use std::time::Duration;

use super::*;
use crate::client::{ClientSettings, RestServer};
use crate::driver::api::downstream::{OpenStreams, RelayStream};
use crate::driver::api::reload::ReloadPlan;
use crate::driver::ground::servers::Server;
use crate::driver::stream::state::Stream;
use crate::driver::stream::state::tests::{peer, settings, wildcard_of, write_clusters};
use crate::telemetry::Metrics;
use sluice_engine::class::{
    ClassRule, IdPart, MetadataParts, NameStyle, NodeClasses, NodeKey, NodeMatch, Projection, TextMatch,
};
use sluice_engine::fallback::FallbackSettings;
use sluice_engine::upstream::UpstreamSettings;
use sluice_xds::{Code, DeltaRequest, Node, Request, StreamKind, Value, Variant};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Servers that nobody can reach.
fn servers(uris: &[&str]) -> Vec<Arc<Server>> {
    let server = |uri: &&str| {
        let metrics = Metrics::new().of_server(uri).client().clone();
        let server = RestServer::new("127.0.0.1", 1, "", ClientSettings::default(), metrics);
        let attach = Attach::Rest { server, settings: UpstreamSettings::default() };
        Arc::new(Server { uri: (*uri).into(), attach, load: None })
    };
    uris.iter().map(server).collect()
}

fn lists(uris: &[&str]) -> ServerLists {
    ServerLists::new(servers(uris), FallbackSettings::default())
}

/// Clients of this cluster have a class each.
fn split_by_id(cluster: &str) -> NodeClasses {
    let projection = Projection { id: IdPart::Whole, ..Projection::whole_node_but_id() };
    let mut rule = ClassRule::for_names(NameStyle::Old, projection);
    rule.nodes = NodeMatch { cluster: Some(TextMatch::Exact(cluster.into())), ..NodeMatch::default() };
    NodeClasses::new(vec![rule])
}

fn with_classes(generation: u64, classes: NodeClasses) -> DriverSettings {
    DriverSettings { generation, classes, ..settings(lists(&["a"])) }
}

fn relay() -> Relay {
    Relay::new(settings(lists(&["a"])), Arc::new(Metrics::new()))
}

async fn open(relay: &Relay, id: &str, cluster: &str) -> Stream {
    let stream = relay.open(StreamKind::from(Variant::Delta), peer([127, 0, 0, 1])).unwrap();
    let node = Node { id: id.into(), cluster: cluster.into(), ..Node::default() };
    let request = DeltaRequest {
        node: Some(Box::new(node)),
        type_url: CLUSTER.into(),
        subscribe: vec!["x".into()],
        ..DeltaRequest::default()
    };
    stream.request(Request::Delta(request)).await.unwrap();
    let served = stream.clone();
    tokio::spawn(async move {
        while let Some(Ok(_)) = std::future::poll_fn(|context| served.poll_message(context)).await {}
    });
    stream
}

/// The places of the sources in use, with their classes and numbers.
fn sources(relay: &Relay) -> BTreeSet<(String, String, u64)> {
    let all = relay.tables.sources.all().into_iter();
    all.map(|source| {
        let node = &source.key().class.node;
        (source.server(0).uri.to_string(), format!("{}{}", node.cluster, node.id), source.id().0)
    })
    .collect()
}

fn of(stream: &Stream) -> Vec<u64> {
    stream.state().look(|_, _, sources| sources.iter().map(|(id, _)| id.0).collect())
}

#[tokio::test(start_paused = true)]
async fn rel_6_only_streams_whose_class_changed_move() {
    let relay = relay();
    let (one, other) = (open(&relay, "1", "web").await, open(&relay, "2", "db").await);
    let before = (of(&one), of(&other));
    assert_eq!(sources(&relay).len(), 2);
    let plan = relay.plan(&with_classes(2, split_by_id("web")));
    let expected = ReloadPlan {
        sessions: 2,
        sessions_moved: 1,
        sources: 2,
        sources_opened: 1,
        sources_closed: 1,
        upstream_streams: 2,
        upstream_streams_opened: 1,
        upstream_streams_closed: 1,
        ..ReloadPlan::default()
    };
    assert_eq!(plan, expected);
    assert_eq!(sources(&relay).len(), 2, "a plan changes nothing");

    relay.configure(with_classes(2, split_by_id("web")));
    let newcomer = open(&relay, "3", "web").await;
    assert_eq!(of(&newcomer).len(), 1, "a newcomer has its class at once");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(of(&one).len(), 2, "the former source serves meanwhile");
    assert_eq!(of(&other), before.1);
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(of(&one).len(), 1);
    assert_ne!(of(&one), before.0);
    assert_eq!(of(&other), before.1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let classes: Vec<_> = sources(&relay).into_iter().map(|(_, class, _)| class).collect();
    assert_eq!(classes, ["db", "web1", "web3"], "the former source is gone");
    assert_eq!(relay.plan(&with_classes(3, split_by_id("web"))).sessions_moved, 0);
    drop((one, other, newcomer));
}

#[tokio::test(start_paused = true)]
async fn rel_5_a_configuration_with_the_same_classes_and_servers_moves_nothing() {
    let relay = relay();
    let stream = open(&relay, "1", "web").await;
    let before = sources(&relay);
    let mut next = with_classes(2, NodeClasses::default());
    next.limits.changes_burst = 7;
    assert_eq!(relay.plan(&next).sessions_moved, 0);
    relay.configure(next);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let inner = stream.state().inner.lock();
    assert_eq!(
        (inner.placement.routing.in_use.generation, inner.placement.routing.moving_to.is_some()),
        (2, false)
    );
    assert_eq!(sources(&relay), before);
}

#[tokio::test(start_paused = true)]
async fn rel_6_a_plan_refuses_more_classes_than_the_limit() {
    let relay = relay();
    let mut streams = Vec::new();
    for number in 0..10 {
        streams.push(open(&relay, &number.to_string(), "web").await);
    }
    let plan = relay.plan(&with_classes(2, split_by_id("web")));
    assert_eq!((plan.sessions_moved, plan.sources_opened), (10, 10));
    let refused = plan.refused.unwrap();
    assert_eq!(refused.key, "limits.node_classes");
    assert!(refused.text.contains("10 new node classes at a, beside 1"), "{}", refused.text);
    let mut roomy = with_classes(2, split_by_id("web"));
    roomy.limits.node_classes = 11;
    assert_eq!(relay.plan(&roomy).refused, None);
}

/// Classes by the zone of the client's facts.
fn by_zone() -> NodeClasses {
    let facts = MetadataParts::Paths(vec![vec!["zone".to_owned()]]);
    let projection = Projection { cluster: true, facts, ..Projection::default() };
    NodeClasses::new(vec![ClassRule::for_names(NameStyle::Old, projection)])
}

/// Zones by the ids of clients.
fn zones(nodes: &[(&str, &str)]) -> Arc<FactTable> {
    let mut table = FactTable::default();
    for (id, zone) in nodes {
        let fields = [("zone".to_owned(), Value::String((*zone).to_owned()))].into();
        table.put(id, Arc::new(fields));
    }
    Arc::new(table)
}

/// The classes in use, by their attributes, or the ids of clients without facts.
fn classes(relay: &Relay) -> Vec<String> {
    let all = relay.tables.sources.all().into_iter();
    let class = |source: Arc<SourceHandle>| {
        let class = &source.key().class;
        let values =
            class.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
        format!("{}{}", class.node.id, values.join(","))
    };
    let mut classes: Vec<_> = all.map(class).collect();
    classes.sort();
    classes
}

#[tokio::test(start_paused = true)]
async fn rly_11_other_facts_move_the_clients_that_they_are_about() {
    let settings = with_classes(1, by_zone().with_facts(zones(&[("1", "a"), ("2", "a"), ("3", "b")])));
    let relay = Relay::new(settings, Arc::new(Metrics::new()));
    let mut streams = Vec::new();
    for id in ["1", "2", "3", "4"] {
        streams.push(open(&relay, id, "web").await);
    }
    assert_eq!(
        classes(&relay),
        [r#"4facts=unknown,facts of=dns:fleet.example"#, r#"facts.zone="a""#, r#"facts.zone="b""#]
    );
    let before: Vec<_> = streams.iter().map(of).collect();
    relay.learn(zones(&[("1", "b"), ("2", "a"), ("3", "b"), ("4", "c")]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let moving = || -> Vec<bool> {
        streams
            .iter()
            .map(|stream| stream.state().inner.lock().placement.routing.moving_to.is_some())
            .collect()
    };
    assert_eq!(moving(), [true, false, false, true]);
    // The others change, and the moves go on with the time that they had.
    let is_of_all = |number| {
        streams.iter().all(|stream| {
            let inner = stream.state().inner.lock();
            inner.placement.routing.newest().number() == number
        })
    };
    assert!(is_of_all(1));
    tokio::time::sleep(Duration::from_secs(7)).await;
    relay.learn(zones(&[("1", "b"), ("2", "a"), ("3", "d"), ("4", "c")]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(moving(), [true, false, true, true]);
    assert!(is_of_all(2));
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(moving(), [false, false, true, false], "the time of a move is not given again");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(moving(), [false; 4]);
    let after: Vec<_> = streams.iter().map(of).collect();
    assert_eq!(after[1], before[1], "nothing is known anew of this client");
    assert_eq!(classes(&relay), ["a", "b", "c", "d"].map(|zone| format!("facts.zone={zone:?}")));
    // A way back before the move is over is no move.
    relay.learn(zones(&[("1", "a"), ("2", "a"), ("3", "d"), ("4", "c")]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(moving()[0]);
    relay.learn(zones(&[("1", "b"), ("2", "a"), ("3", "d"), ("4", "c")]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(moving(), [false; 4]);
    assert_eq!(of(&streams[0]), after[0]);
}

/// A client whose class has no room shares its former class with nobody for longer than it takes to find
/// room.
#[tokio::test(start_paused = true)]
async fn rly_14_a_client_without_room_looks_for_room_again() {
    let mut settings = with_classes(1, by_zone().with_facts(zones(&[("1", "a"), ("2", "a"), ("3", "b")])));
    settings.limits.node_classes = 2;
    let relay = Relay::new(settings, Arc::new(Metrics::new()));
    let (one, _two, three) =
        (open(&relay, "1", "web").await, open(&relay, "2", "web").await, open(&relay, "3", "web").await);
    relay.learn(zones(&[("1", "c"), ("2", "a"), ("3", "b")]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let is_behind = || one.state().inner.lock().placement.routing.in_use.number() == 0;
    assert!(
        is_behind() && one.state().inner.lock().placement.routing.moving_to.is_none(),
        "there is no room"
    );
    three.state().end(Status::new(Code::Unavailable, "gone"));
    drop(three);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert!(!is_behind());
    assert_eq!(classes(&relay), ["a", "c"].map(|zone| format!("facts.zone={zone:?}")));
}

/// To stay in the class would be to share it.
#[tokio::test(start_paused = true)]
async fn rly_11_a_client_without_an_id_ends_with_its_facts() {
    let by_cluster = |nodes: &[(&str, &str)]| {
        let mut classes = by_zone().with_facts(zones(nodes));
        classes.facts.key = NodeKey::Metadata(vec!["IP".into()]);
        classes
    };
    let relay = Relay::new(with_classes(1, by_cluster(&[("10.0.0.1", "a")])), Arc::new(Metrics::new()));
    let stream = relay.open(StreamKind::from(Variant::Delta), peer([127, 0, 0, 1])).unwrap();
    let metadata = [("IP".to_owned(), Value::String("10.0.0.1".into()))].into();
    let request = DeltaRequest {
        node: Some(Box::new(Node { metadata, ..Node::default() })),
        type_url: CLUSTER.into(),
        subscribe: vec!["x".into()],
        ..DeltaRequest::default()
    };
    stream.request(Request::Delta(request)).await.unwrap();
    relay.learn(zones(&[]));
    let end = std::future::poll_fn(|context| stream.poll_message(context));
    let status = end.await.unwrap().unwrap_err();
    assert_eq!(status.code, Code::InvalidArgument);
}

/// Nothing would tell such a client apart from others.
#[tokio::test(start_paused = true)]
async fn rly_11_a_client_without_facts_and_without_an_id_is_refused() {
    let relay = Relay::new(with_classes(1, by_zone()), Arc::new(Metrics::new()));
    let stream = relay.open(StreamKind::from(Variant::Delta), peer([127, 0, 0, 1])).unwrap();
    let request = DeltaRequest {
        node: Some(Box::new(Node { cluster: "web".into(), ..Node::default() })),
        type_url: CLUSTER.into(),
        subscribe: vec!["x".into()],
        ..DeltaRequest::default()
    };
    let status = stream.request(Request::Delta(request)).await.unwrap_err();
    assert_eq!(status.code, Code::InvalidArgument);
    assert!(status.message.contains("nothing is known of this client (`facts`)"), "{}", status.message);
}

/// REL-9: a hundred first answers at once, and then a hundred a second.
#[tokio::test(start_paused = true)]
async fn rel_9_moves_are_paced_like_first_answers() {
    let relay = relay();
    let mut streams = Vec::new();
    for number in 0..300 {
        streams.push(open(&relay, &number.to_string(), "web").await);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let moving = || {
        streams
            .iter()
            .filter(|stream| stream.state().inner.lock().placement.routing.moving_to.is_some())
            .count()
    };
    let mut next = settings(lists(&["b"]));
    next.generation = 2;
    relay.configure(next);
    let mut seen = Vec::new();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(900)).await;
        seen.push(moving());
    }
    assert!((150..=200).contains(&seen[0]) && seen[1] > seen[0] && seen[2] == 300, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn rel_6_lists_keep_the_sources_of_unchanged_servers() {
    let relay = relay();
    let stream = open(&relay, "1", "web").await;
    let before = of(&stream);
    let fallback = FallbackSettings::default;
    let next = |generation, uris: &[&str]| DriverSettings {
        generation,
        ..settings(ServerLists::new(servers(uris), fallback()))
    };
    assert_eq!(relay.plan(&next(2, &["a", "b"])).sessions_moved, 0);
    relay.configure(next(2, &["a", "b"]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(of(&stream)[..1], before);
    relay.configure(next(3, &["b"]));
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(sources(&relay).iter().map(|(uri, ..)| uri.as_str()).collect::<Vec<_>>(), ["b"]);
}

/// Settings of a relay that keeps nothing for long.
fn brief(lists: ServerLists) -> DriverSettings {
    let mut settings = settings(lists);
    settings.source.linger = Duration::from_millis(50);
    settings
}

/// A relay with clusters from a directory, and a client of them.
async fn served(directory: &tempfile::TempDir, clusters: &[(&str, usize)]) -> (Relay, Stream) {
    write_clusters(directory, clusters);
    let relay = Relay::new(brief(of_directory(directory)), Arc::new(Metrics::new()));
    relay.load().await.unwrap();
    let stream = wildcard_of(&relay).await;
    next(&stream, 1).await.unwrap();
    (relay, stream)
}

fn of_directory(directory: &tempfile::TempDir) -> ServerLists {
    let attach = Attach::Files { directory: directory.path().into(), mass_deletion_hold: None };
    let uri = directory.path().display().to_string();
    let servers = vec![Arc::new(Server { uri: uri.as_str().into(), attach, load: None })];
    ServerLists::new(servers, FallbackSettings::default())
}

/// The next message, with the nonce of this number, ACKed; `None` if there is none for a while.
async fn next(stream: &Stream, number: u64) -> Option<Vec<u8>> {
    let message = std::future::poll_fn(|context| stream.poll_message(context));
    let message = tokio::time::timeout(Duration::from_millis(700), message).await.ok()?.unwrap().unwrap();
    let response_nonce = stream.state().look(|_, session, _| session.nonce_text(number));
    let ack = DeltaRequest { type_url: CLUSTER.into(), response_nonce, ..DeltaRequest::default() };
    stream.request(Request::Delta(ack)).await.unwrap();
    Some([message.private.to_vec(), message.shared.to_vec()].concat())
}

#[tokio::test]
async fn rel_6_another_server_with_equal_content_is_no_message_and_a_name_less_is_one_removal() {
    let (first, equal, less) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (relay, stream) = served(&first, &[("keeps", 1), ("leaves", 1)]).await;
    write_clusters(&equal, &[("keeps", 1), ("leaves", 1)]);
    write_clusters(&less, &[("keeps", 1)]);
    for (generation, directory, expected) in [(2, &equal, false), (3, &less, true)] {
        let lists = of_directory(directory);
        let settings = DriverSettings { generation, ..brief(lists) };
        let prepared = relay.prepare(&settings).await.unwrap();
        let plan = relay.plan(&settings);
        assert_eq!((plan.sessions_moved, plan.sources_closed), (1, 1));
        let gone: Vec<_> =
            plan.names_gone.iter().flat_map(|gone| &gone.names).map(|name| name.as_str()).collect();
        relay.configure(settings);
        drop(prepared);
        let message = next(&stream, 2).await;
        assert_eq!(message.is_some(), expected);
        if let Some(message) = message {
            let has = |text: &[u8]| message.windows(text.len()).any(|bytes| bytes == text);
            assert!(has(b"leaves") && !has(b"keeps"));
            assert_eq!(next(&stream, 2).await, None, "once");
            assert_eq!(gone, [] as [&str; 0], "before the client asks there, nothing is known");
        }
        assert_eq!(stream.state().inner.lock().placement.routing.in_use.generation, generation);
        // The former directory closes after its last client, and after `linger`.
        let closed = async {
            while relay.tables.sources.all().len() > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), closed).await.expect("the former directory is closed");
    }
}

#[tokio::test]
async fn rel_2_a_directory_that_cannot_be_read_is_found_before_the_commit() {
    let (first, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (relay, stream) = served(&first, &[("keeps", 1)]).await;
    std::fs::write(other.path().join("clusters.json"), "{").unwrap();
    let settings = settings(of_directory(&other));
    let (uri, _) = relay.prepare(&settings).await.err().unwrap();
    assert_eq!(*uri, *other.path().display().to_string());
    write_clusters(&other, &[("keeps", 1)]);
    drop(relay.prepare(&settings).await.unwrap());
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if relay.tables.sources.all().len() == 1 {
            break;
        }
    }
    assert_eq!(relay.tables.sources.all().len(), 1, "what was prepared in vain is gone");
    assert!(std::future::poll_fn(|context| Poll::Ready(stream.poll_message(context).is_pending())).await);
}
