//! Drain, outage, reconnect, replicas, a half-open upstream.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tonic::Code;

use crate::support::control_plane::eventually;
use crate::support::{Ask, CDS, Client, ControlPlane, EDS, Proxy, Relay, Setup, Variant};

async fn pair() -> (ControlPlane, Relay) {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address).resource_timeout(60).line("drain: 2s")).await;
    (origin, relay)
}

/// RLY-77: without clients the relay exits at once.
#[tokio::test]
async fn sigterm_ends_an_idle_relay_at_once() {
    let (_origin, mut relay) = pair().await;
    let start = Instant::now();
    relay.sigterm();
    assert_eq!(relay.exit().await.code(), Some(0));
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
}

/// RLY-77: streams without a response end with UNAVAILABLE, so that their clients go to another server; the
/// others end within the grace; no new connection is accepted.
#[tokio::test]
async fn sigterm_drains() {
    let (origin, mut relay) = pair().await;
    origin.set(CDS, "a", "1");
    let mut served = Client::open(&relay.address, Variant::Sotw, "served").await;
    served.want(CDS, &["*"]);
    served.take(CDS).await;
    let mut waiting = Client::open(&relay.address, Variant::Sotw, "waiting").await;
    waiting.want(EDS, &["missing"]);
    // The upstream has the request, so the relay has handled the client's; SotW has no answer for a missing
    // name.
    origin.expect(EDS).await;
    let start = Instant::now();
    relay.sigterm();
    assert_eq!(waiting.ended().await.code(), Code::Unavailable);
    served.ended().await;
    assert_eq!(relay.exit().await.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(tokio::net::TcpStream::connect(&relay.address).await.is_err());
}

/// RLY-77: after `drain` the process exits, whatever is open: a connection past its age, a stream whose
/// client reads nothing, half a request to the admin listener.
#[tokio::test]
async fn after_the_drain_the_process_is_gone_whatever_is_open() {
    const DRAIN: Duration = Duration::from_millis(800);
    let origin = ControlPlane::obedient().await;
    let mut setup = Setup::of(origin.address).line("drain: 800ms").line("limits: { connection_age: 1s }");
    // A debug assertion of h2 fails on streams that end while the window is closed; printing the backtrace
    // takes a second.
    setup.environment.push(("RUST_BACKTRACE".to_owned(), "0".to_owned()));
    let mut relay = Relay::start(setup).await;
    origin.set(CDS, "a", "1");
    let mut retired = Client::open(&relay.address, Variant::Sotw, "retired").await;
    retired.want(CDS, &["*"]);
    retired.take(CDS).await;
    let mut stuck = Client::open(&relay.address, Variant::Sotw, "stuck").await;
    stuck.want(CDS, &["*"]);
    stuck.take(CDS).await;
    // A read in progress takes one more message; later messages stay unread.
    stuck.stop_reading();
    origin.set(CDS, "a", "2");
    retired.take(CDS).await;
    stuck.take(CDS).await;
    origin.set(CDS, "a", &"x".repeat(4 << 20));
    retired.take(CDS).await;
    let mut half = tokio::net::TcpStream::connect(&relay.admin).await.unwrap();
    half.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    eventually("both are asked to go", async || {
        let (_, metrics) = relay.get("/metrics").await;
        metrics.contains("sluice_downstream_goaways_total{reason=\"age\"} 2")
    })
    .await;
    let start = Instant::now();
    relay.sigterm();
    assert_eq!(relay.exit().await.code(), Some(0));
    // As exact as a loaded host allows. Without a common deadline, each part takes up to a second more.
    assert!(start.elapsed() < DRAIN + Duration::from_millis(400), "{:?}", start.elapsed());
    drop((retired, stuck, half));
}

/// RLY-46: an upstream that refuses connections costs no CPU time, and new clients are served.
#[tokio::test]
async fn an_outage_costs_nothing_and_is_no_news() {
    let (mut origin, relay) = pair().await;
    origin.set(CDS, "a", "1");
    let mut old = Client::open(&relay.address, Variant::Delta, "old").await;
    old.want(CDS, &["*"]);
    old.take(CDS).await;
    // The answer shows that the relay knows the whole set (DEL-25).
    let mut whole = Client::open(&relay.address, Variant::Sotw, "whole").await;
    whole.want(CDS, &["*"]);
    whole.take(CDS).await;
    origin.down().await;
    let before = relay.cpu_time();
    old.silence(Duration::from_secs(5)).await;
    let used = relay.cpu_time() - before;
    assert!(used < Duration::from_millis(100), "{used:?} of CPU time in 5 s of outage");
    let mut newcomer = Client::open(&relay.address, Variant::Sotw, "new").await;
    newcomer.want(CDS, &["*"]);
    assert_eq!(newcomer.take(CDS).await.names(), ["a"]);
    // I12: the upstream returns with equal bytes under other version strings.
    origin.change(|world| world.restart());
    let opened = origin.opened();
    origin.up().await;
    origin.wait_for("a stream", |origin| origin.opened() > opened).await;
    old.quiet().await;
    newcomer.quiet().await;
}

/// A restarted relay is silent to a client that presents its versions (RLY-30), and removes nothing (I4).
#[tokio::test]
async fn a_restart_is_no_news() {
    let (origin, relay) = pair().await;
    origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    let versions = client.versions(CDS);
    drop(relay);
    let relay = Relay::start(Setup::of(origin.address)).await;
    let mut again = Client::open(&relay.address, Variant::Delta, "one").await;
    again.send(Ask { initial: versions, ..Ask::of(CDS).subscribe(&["*"]) });
    again.quiet().await;
}

#[tokio::test]
async fn replicas_agree_on_versions() {
    let (origin, one) = pair().await;
    let two = Relay::start(Setup::of(origin.address).upstream(Variant::Sotw)).await;
    origin.set_many(CDS, &[("a", "1"), ("b", "2")]);
    origin.set(EDS, "e", "1");
    let mut versions = Vec::new();
    for relay in [&one, &two] {
        let mut sotw = Client::open(&relay.address, Variant::Sotw, "s").await;
        sotw.want(CDS, &[]);
        let mut delta = Client::open(&relay.address, Variant::Delta, "d").await;
        delta.want(EDS, &["e"]);
        versions.push((sotw.take(CDS).await.version, delta.take(EDS).await.items[0].version.clone()));
    }
    assert_eq!(versions[0], versions[1]);
}

/// FU4: the upstream hangs while its kernel still accepts data. When the timer of an awaited name ends
/// without a sign of life, a PING detects the fault, and the name stays unknown (RLY-29).
#[tokio::test]
async fn a_half_open_upstream_is_noticed() {
    let origin = ControlPlane::obedient().await;
    let proxy = Proxy::start(origin.address).await;
    let relay = Relay::start(Setup::of(proxy.address).resource_timeout(2)).await;
    origin.set(EDS, "a", "1");
    origin.set(EDS, "b", "1");
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(EDS, &["a"]);
    client.take(EDS).await;
    proxy.hang_live();
    let start = Instant::now();
    client.want(EDS, &["a", "b"]);
    while client.holds(EDS).len() < 2 {
        match client.event_within(Duration::from_secs(22)).await {
            crate::support::client::Event::Answer(answer) => {
                assert!(answer.removed.is_empty(), "I4: an invented removal: {answer:?}");
                client.ack(&answer);
            }
            end => panic!("{end:?}; the log:\n{}", relay.log()),
        }
    }
    assert!(start.elapsed() <= Duration::from_secs(20), "noticed after {:?}", start.elapsed());
    assert!(proxy.accepted().len() >= 2);
}
