//! A dead or dying connection: FU3, FU4, FU5, FU10, FU32.

use std::time::{Duration, Instant};

use crate::site::{SLACK, Site, quick};
use crate::support::control_plane::eventually;
use crate::support::{Client, EDS, Relay, Setup, Variant};

/// The time until an idle connection without a sign of life is closed: a second, and two unanswered probes.
const KEEPALIVE: Duration = Duration::from_secs(3);

/// FU3: packets are dropped in both directions. TCP keepalive detects the fault, and later attempts time out.
#[tokio::test]
async fn fu_3_half_open() {
    let mut site = Site::new().await;
    // Unacknowledged data has a timeout of its own, outside this test.
    site.silence(Duration::from_millis(300)).await;
    site.proxy.partition();
    let start = Instant::now();
    let noticed = site.relay.is_stale(&site.server).await - start;
    // The answered stream is reopened first; the attempt fails after the connect timeout.
    assert!(noticed < KEEPALIVE + Duration::from_millis(600) + SLACK, "noticed after {noticed:?}");
    site.outage_affects_no_client().await;
    site.proxy.heal();
    site.recovers().await;
}

/// FU3, RLY-29: with a request in flight, the unacknowledged bytes reveal the fault. The name stays unknown
/// throughout.
#[tokio::test]
async fn fu_3_half_open_with_a_request_under_way() {
    let mut site = Site::with(|server| quick(server).resource_timeout(1)).await;
    site.origin.set(EDS, "late", "1");
    site.proxy.partition();
    site.delta.want(EDS, &["e", "late"]);
    site.relay.is_stale(&site.server).await;
    site.silence(Duration::from_secs(2)).await;
    site.one_warning().await;
    site.proxy.heal();
    let answer = site.delta.take(EDS).await;
    assert_eq!((answer.names(), answer.removed.len()), (vec!["late"], 0));
    site.quiet().await;
}

/// FU3: a fault shorter than the keepalive has no effect.
#[tokio::test]
async fn fu_3_a_short_partition_is_nothing() {
    let mut site = Site::new().await;
    let connections = site.proxy.accepted().len();
    site.proxy.partition();
    site.silence(Duration::from_secs(1)).await;
    site.proxy.heal();
    site.quiet().await;
    site.change_arrives("2").await;
    assert_eq!(site.proxy.accepted().len(), connections, "the connection was kept");
    assert_eq!(site.relay.log_lines("WARN"), [""; 0]);
}

/// KAL-5: a control plane that returns unchanged finds every version current, and stays silent. Lasting
/// silence is an answer.
#[tokio::test]
async fn kal_5_a_server_that_comes_back_with_nothing_to_say() {
    let mut site = Site::with(|server| quick(server).resource_timeout(2)).await;
    site.proxy.refuse().await;
    site.relay.is_stale(&site.server).await;
    site.proxy.listen().await;
    site.relay.is_fresh(&site.server).await;
    site.recovers().await;
}

/// A relay over files is a control plane in a separate process.
struct Stopped {
    control_plane: Relay,
    relay: Relay,
    client: Client,
}

async fn of_a_process(setup: impl FnOnce(Setup) -> Setup) -> Stopped {
    let directory = tempfile::tempdir().unwrap();
    let clusters = format!(
        "type_url: {EDS}\nresources: [ {{ \"@type\": {EDS}, cluster_name: a }}, {{ \"@type\": {EDS}, cluster_name: b }} ]\n"
    );
    std::fs::write(directory.path().join("endpoints.yaml"), clusters).unwrap();
    let control_plane = Relay::start(Setup::of(format!("file:{}", directory.path().display()))).await;
    let relay = Relay::start(setup(quick(&control_plane.address))).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(EDS, &["a"]);
    client.take(EDS).await;
    relay.is_fresh(&control_plane.address).await;
    Stopped { control_plane, relay, client }
}

/// FU4: the kernel acknowledges and accepts for the stopped process. An unanswered name makes the relay send
/// a probe, which fails after 10 s. The name never counts as absent (RLY-29).
#[tokio::test]
async fn fu_4_stopped_while_a_name_is_awaited() {
    let Stopped { control_plane, relay, mut client } = of_a_process(|setup| setup.resource_timeout(1)).await;
    control_plane.signal("STOP");
    client.want(EDS, &["a", "b"]);
    let start = Instant::now();
    let noticed = relay.is_stale_within(&control_plane.address, Duration::from_secs(30)).await - start;
    let bound = Duration::from_secs(11) + Duration::from_millis(600);
    assert!(noticed < bound + SLACK, "noticed after {noticed:?}");
    relay.warned(1).await;
    client.silence(Duration::from_secs(1)).await;
    control_plane.signal("CONT");
    let answer = client.take(EDS).await;
    assert_eq!((answer.names(), answer.removed.len()), (vec!["b"], 0));
    relay.is_fresh(&control_plane.address).await;
}

/// FU4: on an idle stream the PING detects the fault, after its interval and 10 s.
#[tokio::test]
async fn fu_4_stopped_while_nothing_is_awaited() {
    let Stopped { control_plane, relay, mut client } =
        of_a_process(|setup| setup.resource_timeout(2).server_line("ping_interval: 10s")).await;
    control_plane.signal("STOP");
    let start = Instant::now();
    let noticed = relay.is_stale_within(&control_plane.address, Duration::from_secs(40)).await - start;
    let bound = Duration::from_secs(20) + Duration::from_millis(600);
    assert!(noticed < bound + SLACK, "noticed after {noticed:?}");
    client.silence(Duration::from_secs(1)).await;
    relay.warned(1).await;
    control_plane.signal("CONT");
    relay.is_fresh(&control_plane.address).await;
    client.silence(Duration::from_millis(300)).await;
}

/// FU5: data and acknowledgements of the relay are lost, and data of the server still arrives.
#[tokio::test]
async fn fu_5_loss_towards_the_server() {
    let mut site = Site::new().await;
    site.proxy.lose_to_server();
    site.change_arrives("2").await;
    site.proxy.blackhole();
    let start = Instant::now();
    let noticed = site.relay.is_stale(&site.server).await - start;
    // The server does not acknowledge the ACK.
    assert!(noticed < KEEPALIVE + Duration::from_millis(600) + SLACK, "noticed after {noticed:?}");
    site.silence(Duration::from_secs(1)).await;
    site.one_warning().await;
    site.renews_versions();
    site.proxy.heal();
    site.relay.is_fresh(&site.server).await;
    site.quiet().await;
}

/// FU5: data of the server is lost, while data of the relay is acknowledged: as if the server's process were
/// stopped.
#[tokio::test]
async fn fu_5_loss_towards_the_relay() {
    let mut site = Site::with(|server| quick(server).resource_timeout(1)).await;
    site.origin.set(EDS, "late", "1");
    site.proxy.drop_to_client();
    site.delta.want(EDS, &["e", "late"]);
    let start = Instant::now();
    let noticed = site.relay.is_stale_within(&site.server, Duration::from_secs(30)).await - start;
    assert!(noticed < Duration::from_millis(11_600) + SLACK, "noticed after {noticed:?}");
    site.silence(Duration::from_millis(500)).await;
    site.one_warning().await;
    site.proxy.heal();
    let answer = site.delta.take(EDS).await;
    assert_eq!((answer.names(), answer.removed.len()), (vec!["late"], 0));
    site.quiet().await;
}

/// FU10, KAL-5: a server asks clients to leave its connection. The relay first opens the next connection,
/// then moves the stream there. Clients notice nothing, and there is no outage.
///
/// The two streams are never open at once: a control plane may take the second stream of a node for the same
/// client, and end the first. Changes between the two streams come with the first answer on the new stream.
#[tokio::test]
async fn fu_10_goaway_and_a_limit_of_age() {
    let mut site = Site::new().await;
    for round in 0..3 {
        let (connections, streams) = (site.proxy.accepted().len(), site.origin.opened());
        // The server does not end the stream.
        site.origin.go_away();
        site.origin.wait_for("a new stream", |origin| origin.opened() > streams).await;
        assert_eq!(site.metric("sluice_upstream_goaways_total").await, f64::from(round + 1));
        assert_eq!(site.proxy.accepted().len(), connections + 1);
        site.quiet().await;
    }
    site.change_arrives("2").await;
    assert_eq!(site.relay.log_lines("WARN"), [""; 0]);
    assert_eq!(site.metric("sluice_upstream_connect_failures_total").await, 0.0);
}

/// FU10: the relay stays with a draining server that accepts no new connection, until the server ends the
/// stream.
#[tokio::test]
async fn fu_10_goaway_without_another_connection() {
    let mut site = Site::new().await;
    site.proxy.blackhole();
    let streams = site.origin.opened();
    site.origin.go_away();
    eventually("an attempt to connect", || async {
        site.metric("sluice_upstream_connect_failures_total").await > 0.0
    })
    .await;
    site.change_arrives("2").await;
    assert_eq!(site.origin.opened(), streams);
    assert_eq!(site.relay.log_lines("WARN"), [""; 0]);
    site.proxy.heal();
    site.origin.wait_for("a new stream", |origin| origin.opened() > streams).await;
    site.change_arrives("3").await;
}

/// FU32, KAL-2: grpc-go's complaint that PINGs come too often. The last PINGs were those of round trips, of which there will be
/// fewer; the interval stays, and there is no other effect.
#[tokio::test]
async fn fu_32_too_many_pings() {
    let mut site = Site::new().await;
    // A frame of 8 + 14 bytes of payload, type 7, on stream 0: last stream 2^31 - 1, ENHANCE_YOUR_CALM.
    let mut goaway = vec![0, 0, 22, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0xb];
    goaway.extend_from_slice(b"too_many_pings");
    let streams = site.origin.opened();
    site.proxy.inject(&goaway);
    site.relay.metric_reaches("sluice_upstream_too_many_pings_total", &[&site.label()], 1.0).await;
    // The stream moves by itself (FU10): a cut would hit the new connection in its handshake, which is
    // another fault.
    site.origin.wait_for("a new stream", |origin| origin.opened() > streams).await;
    site.quiet().await;
    let warnings = site.relay.warned(1).await;
    assert!(warnings[0].contains("too_many_pings"), "{warnings:#?}");
    assert!(warnings[0].contains("300s") && warnings[0].contains("round_pings=1"), "{warnings:#?}");
    assert_eq!(site.metric("sluice_upstream_sources_stale").await, 0.0);
}
