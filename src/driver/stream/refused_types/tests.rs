//! Node classes without room: refused, displaced, and held.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use crate::driver::api::downstream::{OpenStreams, Peer, RelayStream};
use crate::driver::api::status::StatusView;
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::limits::RelayLimits;
use crate::driver::ground::servers::Place;
use crate::driver::relay::Relay;
use crate::driver::stream::state::Stream;
use crate::driver::stream::state::tests::{peer, relay, relay_with};
use crate::telemetry::Limit;
use sluice_engine::authority::Authority;
use sluice_identity::Identity;
use sluice_identity::spiffe::SpiffeId;
use sluice_xds::{DeltaRequest, Node, Request, StreamKind, TypeUrl, Variant};

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// Opens a stream that asks for a type with this node.
async fn asks(relay: &Relay, peer: &Peer, type_url: &str, id: &str, cluster: &str) -> Stream {
    let stream = relay.open(StreamKind::from(Variant::Delta), peer.clone()).unwrap();
    let node = Node { id: id.into(), cluster: cluster.into(), ..Node::default() };
    ask(&stream, type_url, Some(node)).await;
    stream
}

async fn ask(stream: &Stream, type_url: &str, node: Option<Node>) {
    let request = DeltaRequest {
        node: node.map(Box::new),
        type_url: type_url.into(),
        subscribe: vec!["a".into()],
        ..DeltaRequest::default()
    };
    stream.request(Request::Delta(request)).await.unwrap();
}

/// Polls a stream until the stream ends, as its connection would.
fn serve(stream: &Stream) -> tokio::task::JoinHandle<()> {
    let stream = stream.clone();
    tokio::spawn(async move {
        while let Some(Ok(_)) = std::future::poll_fn(|context| stream.poll_message(context)).await {}
    })
}

/// The server of the relay.
fn place(relay: &Relay) -> Place {
    relay.shared.settings().lists.route(&TypeUrl::new(CLUSTER), Authority::None).at(0).place()
}

/// The nodes whose clusters are refused.
fn refused(relay: &Relay) -> Vec<String> {
    let cluster = TypeUrl::new(CLUSTER);
    let is_refused = |session: &crate::driver::api::status::SessionStatus| {
        session.types.iter().any(|status| status.refused && status.type_url == cluster)
    };
    relay.sessions().filter(is_refused).map(|session| session.node_cluster.to_string()).collect()
}

/// RLY-21: by default, there are as many classes for Secrets as clients, each with an identity and an id of
/// its own. They count apart: all other types of the fleet have one class.
#[tokio::test(start_paused = true)]
async fn a_fleet_of_5000_has_secrets_of_its_own() {
    let relay = relay_with(|settings| DriverSettings { limits: RelayLimits::default(), ..settings });
    let mut streams = Vec::new();
    for number in 0..5_000 {
        let id = SpiffeId::parse(&format!("spiffe://prod.example/envoy-{number}")).unwrap();
        let envoy = Peer { identity: Arc::new(Identity::Spiffe(id)), ..peer([10, 0, 0, 1]) };
        streams.push(asks(&relay, &envoy, SECRET, &format!("envoy-{number}"), "fleet").await);
        ask(&streams[number], CLUSTER, None).await;
    }
    assert_eq!(relay.refusals(), []);
    let used = |for_secrets| relay.tables.sources.used_classes(place(&relay), for_secrets);
    assert_eq!((used(true), used(false)), (5_000, 1));
    assert_eq!(relay.tables.sources.all().len(), 5_001);
}

/// I19, RLY-14: connections of one address invent classes. By default each has its share of them; with a
/// limit as large as their number, they would take all classes of the server.
#[tokio::test(start_paused = true)]
async fn twelve_connections_with_90_classes_each_keep_no_newcomer_out() {
    let default = RelayLimits::default();
    for (limit, of_connection) in
        [(Limit::NodeClassesPerConnection, default.node_classes_per_connection), (Limit::NodeClasses, 90)]
    {
        let limits = RelayLimits { node_classes_per_connection: of_connection, ..default.clone() };
        let relay = relay_with(|settings| DriverSettings { limits, ..settings });
        let (mut hogs, mut tasks) = (Vec::new(), Vec::new());
        for connection in 0..12 {
            let hog = peer([10, 0, 0, 1]);
            for number in 0..90 {
                let invented = format!("invented-{connection}-{number}");
                hogs.push(asks(&relay, &hog, CLUSTER, "hog", &invented).await);
                ask(&hogs[hogs.len() - 1], SECRET, None).await;
                tasks.push(serve(&hogs[hogs.len() - 1]));
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let in_use = (12 * of_connection).min(default.node_classes);
        assert_eq!(relay.tables.sources.used_classes(place(&relay), false), in_use, "{limit:?}");
        assert_eq!(refused(&relay).len(), 12 * 90 - in_use, "{limit:?}");
        assert!(tasks.iter().all(|task| !task.is_finished()), "{limit:?}: the type, and not the stream");

        let mut honest = Vec::new();
        for number in 0..8 {
            let newcomer = peer([10, 0, 0, 2]);
            honest.push(asks(&relay, &newcomer, CLUSTER, "honest", &format!("honest-{number}")).await);
            tasks.push(serve(&honest[number]));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(refused(&relay).iter().all(|cluster| cluster.starts_with("invented")), "{limit:?}");
        let events = relay.shared.metrics.events.after(0, usize::MAX, |event| event.first.limit.is_some());
        let [warning] = events.events.as_slice() else { unreachable!("one warning: {events:?}") };
        assert_eq!((warning.first.limit, warning.count), (Some(limit.name()), 1));
        assert!(warning.first.detail.as_ref().unwrap().starts_with("cluster has "), "{warning:?}");
    }
}

/// A later request of the stream with other dynamic parameters, which split node classes.
async fn reroute(stream: &Stream, number: usize) {
    let node = Node { dynamic_parameters: vec![number.to_string().into()], ..Node::default() };
    let request =
        DeltaRequest { node: Some(Box::new(node)), type_url: CLUSTER.into(), ..DeltaRequest::default() };
    stream.request(Request::Delta(request)).await.unwrap();
}

/// FD4, STR-3: each change of dynamic parameters counts as a change of all names, although the request names
/// none.
#[tokio::test(start_paused = true)]
async fn fd_4_a_stream_that_changes_its_dynamic_parameters_has_the_rate_of_changes() {
    let limits = RelayLimits { changes_per_second: 100, changes_burst: 100, ..RelayLimits::default() };
    let relay = relay_with(|settings| DriverSettings { limits, ..settings });
    let stream = asks(&relay, &peer([10, 0, 0, 1]), CLUSTER, "one", "one").await;
    let (mut moves, mut before) = (0, None);
    for number in 0..1_100 {
        // Two classes in turns: no source is new.
        reroute(&stream, number % 2).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let node = stream.state().look(|node, _, _| node.cloned());
        moves += usize::from(node != before);
        before = node;
    }
    // The burst, and 100 a second. Later moves wait, and the newest node counts.
    assert!((100..=212).contains(&moves), "{moves}");
}

/// The same for streams that each bring a class of their own: their connection has a rate of new sources.
#[tokio::test(start_paused = true)]
async fn fd_4_a_connection_opens_sources_at_the_rate_of_changes() {
    let limits = RelayLimits { changes_per_second: 100, changes_burst: 100, ..RelayLimits::default() };
    let relay = relay_with(|settings| DriverSettings { limits, ..settings });
    let (stranger, begun) = (peer([10, 0, 0, 1]), tokio::time::Instant::now());
    for number in 0..600 {
        drop(asks(&relay, &stranger, CLUSTER, "one", &format!("invented-{number}")).await);
    }
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    let begun = tokio::time::Instant::now();
    for number in 0..100 {
        drop(asks(&relay, &peer([10, 0, 0, 2]), CLUSTER, "one", &format!("fleet-{number}")).await);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO, "others do not wait");
}

/// RLY-14, WAV-8: a stranger without end finds room among its own classes only, and none at the cost of a
/// hold.
#[tokio::test(start_paused = true)]
async fn wav_8_a_class_with_a_hold_is_never_displaced() {
    let relay = relay();
    let source_of = |name: &'static str| {
        relay.tables.sources.all().into_iter().find(move |source| &*source.key().class.node.cluster == name)
    };
    for name in ["held", "asleep"] {
        drop(asks(&relay, &peer([10, 0, 0, 1]), CLUSTER, name, name).await);
    }
    source_of("held").unwrap().set_kept(true);
    let (stranger, mut tasks) = (peer([10, 0, 0, 2]), Vec::new());
    let stream = asks(&relay, &stranger, CLUSTER, "stranger", "stranger").await;
    tasks.push(serve(&stream));
    for number in 0..50 {
        reroute(&stream, number).await;
    }
    assert!(source_of("held").is_some() && source_of("asleep").is_some(), "its own classes go first");
    assert_eq!(relay.tables.sources.all().len(), 10);

    // Other streams take all that may be taken, and the next one is refused.
    let mut streams = Vec::new();
    for number in 0..9 {
        let id = format!("more-{number}");
        streams.push(asks(&relay, &stranger, CLUSTER, &id, &id).await);
        ask(&streams[number], SECRET, None).await;
        tasks.push(serve(&streams[number]));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(source_of("held").is_some() && source_of("asleep").is_none());
    assert_eq!(refused(&relay), ["more-8"]);
    source_of("held").unwrap().set_kept(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(source_of("held").is_none() && refused(&relay).is_empty(), "its place is free again");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// RLY-14: a refused type is served once there is room, and a displaced type is refused.
#[tokio::test(start_paused = true)]
async fn a_refused_type_waits_for_room() {
    let relay = relay();
    let (hog, mut tasks) = (peer([10, 0, 0, 1]), Vec::new());
    let mut hogs = Vec::new();
    for number in 0..10 {
        let id = format!("hog-{number}");
        let stream = asks(&relay, &hog, CLUSTER, &id, &id).await;
        // Secrets are served regardless of the clusters.
        ask(&stream, SECRET, None).await;
        tasks.push(serve(&stream));
        hogs.push(stream);
    }
    assert!(refused(&relay).is_empty());
    let late = asks(&relay, &peer([10, 0, 0, 2]), CLUSTER, "late", "late").await;
    tasks.push(serve(&late));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(refused(&relay), ["hog-9"]);
    assert_eq!(
        relay.tables.sources.all().len(),
        10 + 10 + 1,
        "classes, Secrets, and the source of refused types"
    );
    assert!(tasks.iter().all(|task| !task.is_finished()));

    drop(hogs.remove(0));
    tasks.remove(0).abort();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(refused(&relay), Vec::<String>::new());
    let hit = relay.refusals();
    assert_eq!(hit.iter().map(|refusal| refusal.node_id.as_str()).collect::<Vec<_>>(), ["hog-9"]);
    drop((hogs, late));
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(relay.tables.sources.all().len(), 0, "nothing is left behind");
}
