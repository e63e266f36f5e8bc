//! Load reports: aggregated for the server of each cluster, or for nobody (LRS-14 to LRS-23).

use std::fs;
use std::time::{Duration, Instant};

use tonic::Code;
use tonic::transport::Channel;

use crate::support::client::{connect, node};
use crate::support::control_plane::eventually;
use crate::support::load::{ALL, LRS, LRS_V2, Reporter, Wish, stats, sum};
use crate::support::proto::Node;
use crate::support::relay::QUICK_BACKOFF;
use crate::support::{CDS, Client, ControlPlane, Relay, SILENCE, Setup, Variant};

/// The interval of a wish for nothing (LRS-21).
const NOTHING: i64 = 300;

fn reporting_node(id: &str) -> Node {
    Node { client_features: vec![ALL.to_owned()], ..node(id) }
}

async fn start(lrs: &str, change: impl FnOnce(Setup) -> Setup) -> (ControlPlane, Relay, Channel) {
    let origin = ControlPlane::obedient().await;
    origin.load().wish(Wish::all(1));
    let setup = Setup::of(origin.address).server_line(QUICK_BACKOFF);
    let setup = if lrs.is_empty() { setup } else { setup.server_line(&format!("lrs: {lrs}")) };
    let relay = Relay::start(change(setup)).await;
    let channel = connect(&relay.address).await;
    (origin, relay, channel)
}

async fn reporter(channel: &Channel, id: &str) -> Reporter {
    Reporter::open(channel, LRS, reporting_node(id)).await
}

/// Waits until the server has so many requests of a cluster, in all reports together.
async fn server_has(origin: &ControlPlane, cluster: &str, requests: (u64, u64)) {
    let find = |streams: &[_]| (sum(streams, cluster) == requests).then_some(());
    origin.load().until(&format!("{requests:?} of {cluster}"), find).await;
}

#[tokio::test]
async fn rly_67_the_sums_of_all_clients_reach_the_server_to_the_request() {
    let (origin, relay, channel) = start("aggregate", |setup| setup).await;
    let mut clients = Vec::new();
    for number in 0..3 {
        // v2 reporters share the class.
        let path = if number == 2 { LRS_V2 } else { LRS };
        let mut client = Reporter::open(&channel, path, reporting_node(&format!("client-{number}"))).await;
        let wish = client.wish().await;
        assert_eq!((wish.all, wish.interval.as_ref().map(|time| time.seconds)), (true, Some(1)));
        client.report(vec![stats("a", "z1", [10 + number, number, 5]), stats("b", "z2", [1, 0, 0])]);
        clients.push(client);
    }
    server_has(&origin, "a", (33, 3)).await;
    server_has(&origin, "b", (3, 0)).await;
    let gauge = |streams: &[crate::support::load::ServerStream]| {
        let last = streams[0].reports.last()?;
        Some(last.clusters.iter().find(|stats| stats.name == "a")?.localities[0].in_progress)
    };
    origin
        .load()
        .until("the gauges of three clients", |streams| (gauge(streams) == Some(15)).then_some(()))
        .await;
    // LRS-23: one stream, with the node of the class.
    origin.load().look(|streams| {
        assert_eq!(streams.len(), 1);
        let node = streams[0].node();
        assert!(node.id.starts_with("sluice-test/"), "{}", node.id);
        assert!(node.client_features.iter().any(|feature| feature == ALL));
        assert!(streams[0].reports[0].clusters.is_empty(), "LRS-1");
    });
    // The last report before the half-close counts (LRS-4), and the gauges go with the client.
    let mut leaving = clients.remove(0);
    leaving.report(vec![stats("a", "z1", [100, 0, 7])]);
    leaving.finish();
    assert_eq!(leaving.status().await.code(), Code::Ok);
    server_has(&origin, "a", (133, 3)).await;
    origin
        .load()
        .until("the gauges of two clients", |streams| (gauge(streams) == Some(10)).then_some(()))
        .await;
    assert_eq!(relay.metric("sluice_load_requests_total", &[]).await, 139.0);
    assert_eq!(relay.metric("sluice_load_in_doubt_total", &[]).await, 0.0);
}

/// The feature is no part of a class: gRPC has it on this stream alone, and Envoy on all of its streams.
#[tokio::test]
async fn lrs_23_the_class_of_a_reporter_is_that_of_its_other_streams() {
    let (origin, relay, channel) = start("aggregate", |setup| setup).await;
    for (id, features) in [("grpc", &["x"][..]), ("envoy", &["a", ALL, "b"])] {
        let mut xds = Client::with_features(&relay.address, Variant::Delta, id, features).await;
        xds.want(CDS, &["*"]);
        let shown = origin.expect_that(CDS, |ask| ask.node.is_some()).await.ask.node.map(|node| node.id);
        let mut with_feature = features.to_vec();
        if id == "grpc" {
            with_feature.push(ALL);
        }
        let client_features = with_feature.iter().map(|feature| (*feature).to_owned()).collect();
        let mut client = Reporter::open(&channel, LRS, Node { client_features, ..node(id) }).await;
        client.wish().await;
        let last = origin.load().look(|streams| streams.last().map(|stream| stream.node().id));
        assert_eq!(last, shown, "{id}");
    }
}

/// LRS-21: one line, and no storm of retries.
#[tokio::test]
async fn lrs_21_clients_of_a_server_without_load_reports_stay_and_are_asked_for_nothing() {
    let (origin, relay, channel) = start("aggregate", |setup| setup).await;
    origin.load().refuse(Some(Code::Unimplemented));
    let mut clients = Vec::new();
    for number in 0..3 {
        let mut client = reporter(&channel, &format!("client-{number}")).await;
        let wish = client.wish().await;
        assert!(!wish.all && wish.clusters == ["sluice.no-cluster"], "{wish:?}");
        assert!(wish.interval.as_ref().is_some_and(|time| time.seconds > NOTHING * 9 / 10 - 1));
        client.report(vec![stats("a", "z", [1, 0, 0])]);
        clients.push(client);
    }
    relay.metric_reaches("sluice_load_fates_total", &["unwanted"], 3.0).await;
    assert_eq!(origin.load().refused(), 1);
    let lines = relay.log_lines("WARN");
    assert_eq!(lines.iter().filter(|line| line.contains("takes no load reports")).count(), 1, "{lines:?}");
}

/// LRS-16: nobody can tell whether the server has the last report, so it is counted and not sent again.
#[tokio::test]
async fn lrs_16_a_report_before_the_end_of_a_stream_is_in_doubt_and_never_repeated() {
    let (origin, relay, channel) = start("aggregate", |setup| setup).await;
    // No other report comes before the end of the stream.
    origin.load().wish(Wish::all(5));
    let mut client = reporter(&channel, "client").await;
    client.wish().await;
    client.report(vec![stats("a", "z", [7, 2, 0])]);
    server_has(&origin, "a", (7, 2)).await;
    origin.load().end(Code::Unavailable);
    client.report(vec![stats("a", "z", [20, 0, 0])]);
    server_has(&origin, "a", (27, 2)).await;
    assert_eq!(origin.load().look(|streams| sum(&streams[1..], "a")), (20, 0));
    assert_eq!(relay.metric("sluice_load_in_doubt_total", &[]).await, 9.0);
    let lines = relay.log_lines("WARN");
    assert!(lines.iter().any(|line| line.contains("load reports are in doubt")), "{lines:?}");
}

#[tokio::test]
async fn lrs_14_a_listener_with_a_word_of_its_own_decides() {
    let (origin, _relay, channel) =
        start("aggregate", |setup| Setup { listener: "load_reports: drop".to_owned(), ..setup }).await;
    let mut client = reporter(&channel, "client").await;
    assert_eq!(client.wish().await.clusters, ["sluice.no-cluster"]);
    client.report(vec![stats("a", "z", [1, 0, 0])]);
    let (_origin, _relay, channel) =
        start("aggregate", |setup| Setup { listener: "load_reports: refuse".to_owned(), ..setup }).await;
    let mut refused = reporter(&channel, "client").await;
    assert_eq!(refused.status().await.code(), Code::Unimplemented);
    tokio::time::sleep(SILENCE).await;
    origin.load().look(|streams| assert!(streams.is_empty()));
}

/// A client of a relay without `lrs` is asked again as soon as the key is there, and stays.
#[tokio::test]
async fn lrs_14_reports_are_taken_after_a_reload_while_clients_stay() {
    let (origin, relay, channel) = start("", |setup| setup).await;
    let mut client = reporter(&channel, "client").await;
    assert!(!client.wish().await.all);
    let edit = |from: &str, to: &str| {
        let path = relay.path("sluice.yaml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).unwrap();
    };
    edit("    backoff:", "    lrs: aggregate\n    backoff:");
    assert_eq!(relay.post("/reload").await.0, 200);
    let wish = client.wish().await;
    assert!(wish.all && wish.interval.as_ref().is_some_and(|time| time.seconds <= 1), "{wish:?}");
    client.report(vec![stats("a", "z", [4, 0, 0])]);
    server_has(&origin, "a", (4, 0)).await;
    // Back again: the last report goes out, and nothing is counted from then on.
    client.report(vec![stats("a", "z", [5, 0, 0])]);
    relay.metric_reaches("sluice_load_requests_total", &[], 9.0).await;
    edit("    lrs: aggregate\n", "");
    assert_eq!(relay.post("/reload").await.0, 200);
    client.report(vec![stats("a", "z", [6, 0, 0])]);
    relay.metric_reaches("sluice_load_fates_total", &["unrouted"], 6.0).await;
    server_has(&origin, "a", (9, 0)).await;
}

/// AUT-8: a client hears of no cluster that it may not see, and cannot report one either.
#[tokio::test]
async fn lrs_22_a_client_is_asked_for_the_clusters_of_its_grant() {
    let rules = "authorization: { rules: [ { name: mine, match: { listeners: [main], identity: anonymous }, \
        allow: [ { types: [envoy.config.cluster.v3.Cluster], names: [ { prefix: mine- } ] } ] } ] }";
    let (origin, relay, channel) = start("aggregate", |setup| setup.line(rules)).await;
    origin.load().wish(Wish::of(&["mine-1", "theirs-1"], 1));
    let mut client = reporter(&channel, "client").await;
    assert_eq!(client.wish().await.clusters, ["mine-1"]);
    client.report(vec![stats("mine-1", "z", [3, 0, 0]), stats("theirs-1", "z", [9, 0, 0])]);
    server_has(&origin, "mine-1", (3, 0)).await;
    relay.metric_reaches("sluice_load_fates_total", &["unrouted"], 9.0).await;
    assert_eq!(origin.load().requests("theirs-1"), (0, 0));
}

/// LRS-19: a client without a word for "all" is told the clusters of its class.
#[tokio::test]
async fn lrs_19_a_client_without_the_feature_is_asked_for_the_clusters_of_its_class() {
    let (origin, relay, channel) = start("aggregate", |setup| setup).await;
    origin.set(CDS, "a", "1");
    origin.set(CDS, "b", "1");
    let mut xds = Client::open(&relay.address, Variant::Delta, "client").await;
    xds.want(CDS, &["*"]);
    xds.take(CDS).await;
    let mut client = Reporter::open(&channel, LRS, node("client")).await;
    let wish = client.wish().await;
    assert_eq!((wish.all, wish.clusters), (false, vec!["a".to_owned(), "b".to_owned()]));
}

/// LRS-14: bytes, half-close and status pass in both directions, a stream for each client.
#[tokio::test]
async fn lrs_14_forwarded_streams_pass_as_they_are() {
    let (origin, _relay, channel) = start("forward", |setup| setup).await;
    origin.load().wish(Wish::of(&["a"], 7));
    let (mut one, mut other) = (reporter(&channel, "one").await, reporter(&channel, "other").await);
    for client in [&mut one, &mut other] {
        assert_eq!(client.wish().await, Wish::of(&["a"], 7));
    }
    one.report(vec![stats("a", "z", [1, 0, 3])]);
    other.report(vec![stats("b", "z", [2, 0, 4])]);
    server_has(&origin, "a", (1, 0)).await;
    server_has(&origin, "b", (2, 0)).await;
    let nodes = origin.load().look(|streams| streams.iter().map(|stream| stream.node()).collect::<Vec<_>>());
    assert_eq!(nodes.len(), 2);
    assert!(["one", "other"].iter().all(|id| nodes.contains(&reporting_node(id))), "{nodes:?}");
    // A later answer, which an aggregating relay would keep back.
    origin.load().wish(Wish::of(&["c"], 3));
    assert_eq!(one.wish().await, Wish::of(&["c"], 3));
    one.finish();
    assert_eq!(one.status().await.code(), Code::Ok);
    origin.load().end(Code::ResourceExhausted);
    let status = other.status().await;
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "ended by the test"));
    let (mut gone, all) = (reporter(&channel, "gone").await, origin.load());
    gone.wish().await;
    drop(gone);
    all.until("the relay ends the stream of a client that is gone", |streams| {
        streams.iter().find(|stream| stream.node().id == "gone")?.is_finished.then_some(())
    })
    .await;
    all.refuse(Some(Code::Unimplemented));
    assert_eq!(reporter(&channel, "late").await.status().await.code(), Code::Unimplemented);
}

#[tokio::test]
async fn lrs_14_local_load_leaves_the_relay_never() {
    let (origin, relay, channel) = start("local", |setup| setup).await;
    let mut client = reporter(&channel, "client").await;
    assert!(client.wish().await.all);
    client.report(vec![stats("a", "z", [3, 1, 0])]);
    relay.metric_reaches("sluice_load_fates_total", &["local"], 4.0).await;
    origin.load().look(|streams| assert!(streams.is_empty()));
}

/// LRS-16: the last report leaves after the last client, and before the process ends.
#[tokio::test]
async fn lrs_16_the_drain_sends_the_last_report() {
    let (origin, mut relay, channel) = start("aggregate", |setup| setup.line("drain: 5s")).await;
    origin.load().wish(Wish::all(3600));
    let mut client = reporter(&channel, "client").await;
    client.wish().await;
    client.report(vec![stats("a", "z", [8, 0, 0])]);
    relay.metric_reaches("sluice_load_requests_total", &[], 8.0).await;
    relay.sigterm();
    assert_eq!(client.status().await.code(), Code::Unavailable);
    assert_eq!(relay.exit().await.code(), Some(0));
    server_has(&origin, "a", (8, 0)).await;
    origin.load().look(|streams| assert!(streams[0].is_finished));
}

/// LRS-16: the last report goes out at once, and a server that does not take it delays the end of the process by
/// seconds alone.
#[tokio::test]
async fn lrs_16_a_mute_server_does_not_use_up_the_drain() {
    let (origin, mut relay, channel) = start("aggregate", |setup| setup.line("drain: 120s")).await;
    origin.load().mute();
    let mut client = reporter(&channel, "client").await;
    client.wish().await;
    client.report(vec![stats("a", "z", [8, 0, 0])]);
    relay.metric_reaches("sluice_load_requests_total", &[], 8.0).await;
    let begin = Instant::now();
    relay.sigterm();
    assert_eq!(client.status().await.code(), Code::Unavailable);
    assert_eq!(relay.exit().await.code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let lines = relay.log_lines("WARN");
    let lost = |line: &&String| line.contains("load reports are lost") && line.contains("requests=8");
    assert_eq!(lines.iter().filter(lost).count(), 1, "{lines:?}");
}

/// LRS-4: nobody wakes a client for each new cluster, and a silent one hears of it within three intervals.
#[tokio::test]
async fn lrs_4_a_silent_client_hears_of_new_clusters() {
    let (origin, relay, channel) = start("aggregate", |setup| setup).await;
    origin.set(CDS, "a", "1");
    let mut xds = Client::open(&relay.address, Variant::Delta, "client").await;
    xds.want(CDS, &["*"]);
    xds.take(CDS).await;
    let mut client = Reporter::open(&channel, LRS, node("client")).await;
    assert_eq!(client.wish().await.clusters, ["a"]);
    origin.set(CDS, "b", "1");
    assert_eq!(client.wish().await.clusters, ["a", "b"]);
}

/// Streams of load reports leave with the others, in a drain and in an upgrade.
#[tokio::test]
async fn hnd_9_a_drain_counts_streams_of_load_reports() {
    let (_origin, relay, channel) = start("aggregate", |setup| setup).await;
    let mut client = reporter(&channel, "client").await;
    client.wish().await;
    let (status, text) = relay.post("/drain?dry_run=1").await;
    assert_eq!((status, text.contains("\"streams\":1")), (200, true), "{text}");
}

/// LRS-22: each cluster at the servers of its authority.
#[tokio::test]
async fn lrs_22_reports_go_to_the_server_of_their_cluster() {
    let other = ControlPlane::obedient().await;
    other.load().wish(Wish::all(1));
    let authority = format!(
        "authorities: {{ other: {{ xds_servers: [ {{ server_uri: \"{}\", channel_creds: [ {{ type: insecure }} ], \
        lrs: aggregate }} ] }} }}",
        other.address
    );
    let (origin, _relay, channel) = start("aggregate", |setup| setup.line(&authority)).await;
    let mut client = reporter(&channel, "client").await;
    assert!(client.wish().await.all);
    let named = "xdstp://other/envoy.config.cluster.v3.Cluster/b";
    client.report(vec![stats("a", "z", [1, 0, 0]), stats(named, "z", [2, 0, 0])]);
    server_has(&origin, "a", (1, 0)).await;
    server_has(&other, named, (2, 0)).await;
    assert_eq!((origin.load().requests(named), other.load().requests("a")), ((0, 0), (0, 0)));
}

/// LRS-22: of a list, the server that serves the class takes its reports, and no other.
#[tokio::test]
async fn lrs_22_reports_follow_the_clients_to_the_next_server_of_the_list() {
    let second = ControlPlane::obedient().await;
    second.set(CDS, "a", "1");
    second.load().wish(Wish::all(1));
    let (mut origin, relay, channel) = start("aggregate", |setup| setup.next_server(second.address)).await;
    origin.down().await;
    let mut xds = Client::open(&relay.address, Variant::Delta, "client").await;
    xds.want(CDS, &["*"]);
    xds.take(CDS).await;
    let mut client = reporter(&channel, "client").await;
    assert!(client.wish().await.all);
    client.report(vec![stats("a", "z", [5, 0, 0])]);
    server_has(&second, "a", (5, 0)).await;
}

/// Bounds of one client: its neighbours still have room (LRS-18).
#[tokio::test]
async fn lrs_18_names_without_room_are_counted_and_neighbours_keep_theirs() {
    let limits = "limits: { load_rows: 1000, load_rows_per_stream: 100 }";
    let (origin, relay, channel) = start("aggregate", |setup| setup.line(limits)).await;
    let (mut greedy, mut modest) = (reporter(&channel, "greedy").await, reporter(&channel, "modest").await);
    greedy.wish().await;
    modest.wish().await;
    greedy.report((0..200).map(|number| stats(&format!("g{number}"), "z", [1, 0, 0])).collect());
    relay.metric_reaches("sluice_load_fates_total", &["left_out"], 150.0).await;
    modest.report(vec![stats("m", "z", [1, 0, 0])]);
    server_has(&origin, "m", (1, 0)).await;
    eventually("names are counted", || async {
        relay.metric("sluice_load_names_left_out_total", &[]).await >= 150.0
    })
    .await;
}
