//! Assignment of node classes when more are claimed than the limit allows (RLY-14, I19).

use std::collections::BTreeSet;
use std::time::Duration;

use sluice::trust::issue::{Authority, Leaf};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::isolation::{self, DAY, Trust};
use crate::support::client::{Event, connect};
use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, LDS, Relay, SDS, Setup, Variant};

async fn relay(lines: &[&str]) -> (ControlPlane, Relay) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    origin.set(LDS, "l", "1");
    origin.set(SDS, "s", "1");
    let setup = lines.iter().fold(Setup::of(origin.address), |setup, line| setup.line(line));
    (origin, Relay::start(setup).await)
}

fn of_cluster(channel: &Channel, cluster: &str) -> Client {
    Client::of_cluster(channel, Variant::Delta, cluster)
}

/// As [`connect`], from this address of the loopback network.
async fn connect_from(address: [u8; 4], target: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{target}")).expect("target");
    endpoint.local_address(Some(address.into())).connect().await.expect("connect")
}

/// I19: peers that invent classes keep no other peer out, and bear the cost themselves.
#[tokio::test]
async fn a_newcomer_gets_a_class_although_others_have_used_them_up() {
    let (_origin, relay) = relay(&["limits: { node_classes: 20 }"]).await;
    let mut hogs = Vec::new();
    for connection in 0..2 {
        let channel = connect(&relay.address).await;
        for number in 0..15 {
            let mut hog = of_cluster(&channel, &format!("invented-{connection}-{number}"));
            hog.want(CDS, &["*"]);
            hogs.push(hog);
        }
    }
    eventually("no room is left", async || relay.get("/sources").await.1.contains("\"count\":20,")).await;
    let mut newcomer = of_cluster(&connect(&relay.address).await, "honest");
    newcomer.want(CDS, &["*"]);
    newcomer.take(CDS).await;
    // A peer that obeys the limit is never refused.
    let mut second = of_cluster(&connect(&relay.address).await, "honest-too");
    second.want(CDS, &["*"]);
    second.take(CDS).await;
    newcomer.quiet().await;
}

/// I19: with a certificate, any number of connections is one user. All clients have one address here, as behind a load balancer.
#[tokio::test]
async fn i19_a_certificate_keeps_no_other_out_however_many_connections_it_has() {
    let (directory, now) = (tempfile::tempdir().expect("directory"), sluice::telemetry::wall_now());
    let trust = Trust { authority: Authority::new("prod", DAY, now).expect("authority") };
    trust.write(directory.path(), now);
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    let template = format!(
        "xds_servers: [{{ server_uri: \"{}\", channel_creds: [{{ type: insecure }}] }}]\nlisteners:\n  - {{ name: main, address: \
         ADDRESS, tls: {{ certificates: [{{ certificate_file: tls.crt, private_key_file: tls.key }}], ca_certificate_file: \
         ca.crt, trust_domain: prod.example }} }}\nadmin: {{ address: ADMIN }}\nlimits: {{ node_classes: 10 }}\n",
        origin.address
    );
    std::fs::write(directory.path().join("template.yaml"), template).expect("template");
    let relay = isolation::relay(directory.path()).await;
    let issue = |uri: &str| trust.issue(&Leaf { uris: &[uri], is_client: true, ..Leaf::default() }, now);
    let (hog, other) = (issue("spiffe://prod.example/hog"), issue("spiffe://prod.example/other"));
    let mut hogs = Vec::new();
    for number in 0..10 {
        let channel = isolation::connect(&relay.address, hog.clone()).await;
        let mut hog = of_cluster(&channel, &format!("invented-{number}"));
        hog.want(CDS, &["*"]);
        hog.take(CDS).await;
        hogs.push(hog);
    }
    let mut newcomer = of_cluster(&isolation::connect(&relay.address, other).await, "honest");
    newcomer.want(CDS, &["*"]);
    newcomer.take(CDS).await;
    newcomer.quiet().await;
}

#[tokio::test]
async fn a_connection_with_too_many_classes_is_refused_and_its_neighbours_are_not() {
    let (_origin, relay) = relay(&["limits: { node_classes_per_connection: 3 }"]).await;
    let channel = connect(&relay.address).await;
    let mut served = Vec::new();
    for number in 0..3 {
        let mut client = of_cluster(&channel, &format!("c-{number}"));
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        served.push(client);
    }
    let mut fourth = of_cluster(&channel, "c-3");
    fourth.want(CDS, &["*"]);
    let mut elsewhere = of_cluster(&connect(&relay.address).await, "c-3");
    elsewhere.want(CDS, &["*"]);
    elsewhere.take(CDS).await;
    let status = fourth.ended().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("limits.node_classes_per_connection"), "{status:?}");
    // A class without clients frees its place.
    drop(served.pop());
    eventually("room", async || {
        let mut again = of_cluster(&channel, "c-3");
        again.want(CDS, &["*"]);
        matches!(
            again.event_within(Duration::from_secs(5)).await,
            Event::Answer(answer) if answer.type_url == CDS
        )
    })
    .await;
}

/// The type is refused, not the stream; a client that understands `resource_errors` gets the reason, and so
/// does the operator.
#[tokio::test]
async fn a_type_without_room_leaves_the_others_of_its_stream() {
    let classes = "node_classes: [ { match: { types: [envoy.config.cluster.v3.Cluster] }, \
                   split_by: { cluster: true } }, { split_by: {} } ]";
    let (origin, relay) = relay(&[classes, "limits: { node_classes: 2 }"]).await;
    let mut first = of_cluster(&connect(&relay.address).await, "one");
    first.want(LDS, &["*"]);
    first.take(LDS).await;
    first.want(CDS, &["a"]);
    first.take(CDS).await;
    let mut second = of_cluster(&connect(&relay.address).await, "two");
    second.want(LDS, &["*"]);
    second.take(LDS).await;
    second.want(CDS, &["a"]);
    let refused = second.take(CDS).await;
    assert_eq!((refused.items.len(), refused.removed.len()), (0, 0));
    assert_eq!(refused.errors.get("a").map(|error| error.code), Some(Code::ResourceExhausted as i32));
    origin.set(LDS, "l", "2");
    second.take(LDS).await;
    let clients: serde_json::Value =
        serde_json::from_str(&relay.get("/clients?type=Cluster").await.1).unwrap();
    let marked = clients["clients"].as_array().unwrap().iter().filter(|of| of["types"][0]["refused"] == true);
    assert_eq!(marked.map(|of| of["cluster"].clone()).collect::<Vec<_>>(), ["two"]);
    let listed: serde_json::Value = serde_json::from_str(&relay.get("/refused").await.1).unwrap();
    let listed = &listed["refused"][0];
    assert_eq!((&listed["cluster"], &listed["limit"]), (&"two".into(), &"node_classes".into()), "{listed}");
    eventually("the warning", || async { !relay.warnings("no room").is_empty() }).await;
    let warnings = relay.warnings("no room");
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("field=\"cluster\""), "{}", warnings[0]);
}

/// I19: by default 12 connections of one address invent 90 classes each. Each connection has 64 at most, and an honest newcomer of
/// another address is served. The operator is told once, with the field that splits the classes.
#[tokio::test]
async fn twelve_connections_with_90_classes_each_keep_no_newcomer_out() {
    let (_origin, relay) = relay(&[]).await;
    let mut hogs = Vec::new();
    for connection in 0..12 {
        let channel = connect(&relay.address).await;
        for number in 0..90 {
            let variant = if number % 2 == 0 { Variant::Delta } else { Variant::Sotw };
            let mut hog = Client::of_cluster(&channel, variant, &format!("invented-{connection}-{number}"));
            hog.want(CDS, &["*"]);
            hogs.push(hog);
        }
    }
    let (mut served, mut refused) = (0, 0);
    for hog in &mut hogs {
        match hog.event_within(Duration::from_secs(60)).await {
            Event::Answer(answer) if answer.type_url == CDS => served += 1,
            // A stream of refused types alone tells its client so.
            Event::End(status) if status.code() == Code::ResourceExhausted => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((served, refused), (12 * 64, 12 * 26));
    let mut newcomer = of_cluster(&connect_from([127, 0, 0, 2], &relay.address).await, "honest");
    newcomer.want(CDS, &["*"]);
    newcomer.take(CDS).await;
    eventually("the warning", || async { !relay.warnings("no room").is_empty() }).await;
    let warnings = relay.warnings("no room");
    let [warning] = warnings.as_slice() else { panic!("{warnings:#?}") };
    assert!(
        warning.contains("limit=\"node_classes_per_connection\"") && warning.contains("field=\"cluster\"")
    );
}

/// RLY-21 splits Secrets by client: a fleet with Secrets takes no class from others.
#[tokio::test]
async fn secrets_take_no_room_from_other_classes() {
    let (_origin, relay) = relay(&["limits: { node_classes: 2 }"]).await;
    let mut clients = Vec::new();
    for number in 0..5 {
        let mut client = Client::open(&relay.address, Variant::Sotw, &format!("envoy-{number}")).await;
        client.want(SDS, &["s"]);
        client.take(SDS).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
}

/// A relay downstream brings the classes of its clients, by default with 30 streams per connection.
#[tokio::test]
async fn a_relay_below_brings_300_classes() {
    let (_origin, relay) = relay(&[]).await;
    let leaf = Relay::start(Setup::of(&relay.address)).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        let channel = connect(&leaf.address).await;
        clients.extend((0..60).map(|_| channel.clone()));
    }
    let mut clients: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(number, channel)| {
            let mut client = of_cluster(channel, &format!("cluster-{number}"));
            client.want(CDS, &["*"]);
            client
        })
        .collect();
    for client in &mut clients {
        client.take(CDS).await;
    }
}

/// Kuma allows one stream for each node id, and the class of a client alone shows the id of the client.
#[tokio::test]
async fn rly_21_the_secrets_of_a_client_alone_are_on_the_stream_of_its_class() {
    for api_type in Variant::BOTH {
        let origin = ControlPlane::obedient().await;
        origin.set(CDS, "a", "1");
        origin.set(SDS, "s", "1");
        let rule =
            "node_classes: [{ split_by: { id: true, cluster: true, metadata: all }, upstream_node: member }]";
        let relay = Relay::start(Setup::of(origin.address).upstream(api_type).line(rule)).await;
        for (number, id) in [(1, "one"), (2, "two")] {
            let mut client = Client::open(&relay.address, Variant::Delta, id).await;
            client.want(CDS, &["*"]);
            client.settle(CDS, &[("a", "1")]).await;
            client.want(SDS, &["s"]);
            client.settle(SDS, &[("s", "1")]).await;
            assert_eq!(origin.opened(), number, "{api_type:?}: a stream for each node id");
        }
        let streams =
            |type_url| origin.requests(type_url).into_iter().map(|of| of.stream).collect::<BTreeSet<_>>();
        assert_eq!(streams(SDS), streams(CDS), "{api_type:?}");
    }
}

/// A class that others may join never has the Secrets of a member, also while the class has a single member.
#[tokio::test]
async fn rly_21_a_member_that_joins_later_never_sees_the_secrets_of_the_first() {
    let (origin, relay) =
        relay(&["node_classes: [{ split_by: { cluster: true }, upstream_node: member }]"]).await;
    let mut clients = Vec::new();
    for (number, id) in [(1, "one"), (2, "two")] {
        let mut client = Client::open(&relay.address, Variant::Delta, id).await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("a", "1")]).await;
        client.want(SDS, &["s"]);
        client.settle(SDS, &[("s", "1")]).await;
        clients.push(client);
        let asked = origin.requests(SDS).into_iter().map(|of| of.stream).collect::<BTreeSet<_>>();
        let shared = origin.requests(CDS).into_iter().map(|of| of.stream).collect::<BTreeSet<_>>();
        assert_eq!(
            (asked.len(), asked.intersection(&shared).count()),
            (number, 0),
            "one stream for each client"
        );
    }
}

/// RLY-60: to a server with a list of clients, a departed client is gone at once, and not half a minute later. A stated linger holds for all
/// classes.
#[tokio::test]
async fn rly_60_a_class_of_one_client_leaves_with_the_client() {
    let rule = "node_classes: [{ split_by: { id: true }, upstream_node: member }]";
    let ((origin, relay), (stated_origin, stated)) =
        (self::relay(&[rule]).await, self::relay(&[rule, "linger: 30s"]).await);
    for target in [&relay, &stated] {
        let mut client = Client::open(&target.address, Variant::Delta, "web-1").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
    }
    assert_eq!((origin.live_streams(), stated_origin.live_streams()), (1, 1));
    origin.wait_for("the stream of the client ends", |origin| origin.live_streams() == 0).await;
    assert_eq!(stated_origin.live_streams(), 1);
}
