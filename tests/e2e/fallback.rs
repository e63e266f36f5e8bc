//! Several servers in one list, through the real process; tests of the engine cover the rules, `tests/faults`
//! the faults.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::support::control_plane::eventually;
use crate::support::relay::QUICK_BACKOFF;
use crate::support::words::Item;
use crate::support::{Attachment, CDS, Client, ControlPlane, EDS, Relay, Setup, Variant};

fn setup(servers: &[&ControlPlane]) -> Setup {
    let setup = Setup::of(servers[0].address).server_line(QUICK_BACKOFF);
    servers[1..].iter().fold(setup, |setup, server| setup.next_server(server.address))
}

#[tokio::test]
async fn rly_40_rly_43_rly_60_one_client_falls_back_and_returns_and_nobody_else_sees_it() {
    for variant in Variant::BOTH {
        let (mut first, second) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
        for server in [&first, &second] {
            server.set(CDS, "a", "1");
            server.set(EDS, "a", "1");
        }
        second.set(EDS, "b", "only here");
        let relay = Relay::start(setup(&[&first, &second])).await;
        let mut content = Client::open(&relay.address, variant, "one").await;
        content.want(CDS, &["*"]);
        content.settle(CDS, &[("a", "1")]).await;
        content.want(EDS, &["a"]);
        content.settle(EDS, &[("a", "1")]).await;
        first.down().await;

        let mut newcomer = Client::open(&relay.address, variant, "two").await;
        newcomer.want(CDS, &["*"]);
        newcomer.settle(CDS, &[("a", "1")]).await;
        newcomer.want(EDS, &["a", "b"]);
        newcomer.settle(EDS, &[("a", "1"), ("b", "only here")]).await;
        let metrics = relay.get("/metrics").await.1;
        let served =
            format!("sluice_fallback_streams{{list=\"xds_servers\",server=\"{}\"}} 1", second.address);
        assert!(metrics.contains(&served), "{metrics}");
        content.quiet().await;

        first.set(EDS, "b", "here too");
        first.up().await;
        newcomer.settle(EDS, &[("a", "1"), ("b", "here too")]).await;
        let returned = Instant::now();
        second.wait_for("the lower stream closes", |server| server.live_streams() == 0).await;
        assert!(returned.elapsed() < Duration::from_secs(1), "RLY-60: {:?}", returned.elapsed());
        content.quiet().await;
        newcomer.quiet().await;
    }
}

#[tokio::test]
async fn rly_4_a_client_is_told_that_no_server_is_there() {
    let mut server = ControlPlane::obedient().await;
    server.set(CDS, "a", "1");
    server.down().await;
    let mut config = setup(&[&server]);
    config.listener = "when_unavailable: fail".to_owned();
    let relay = Relay::start(config).await;
    let start = Instant::now();
    let mut client = Client::open(&relay.address, Variant::Sotw, "one").await;
    client.want(CDS, &["*"]);
    let status = client.ended().await;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());

    server.up().await;
    eventually("the control plane serves", || async {
        let mut client = Client::open(&relay.address, Variant::Sotw, "one").await;
        client.want(CDS, &["*"]);
        matches!(client.event_within(Duration::from_secs(2)).await, crate::support::client::Event::Answer(_))
    })
    .await;

    // A client with resources keeps its stream, and a client whose names are all cached gets an answer.
    server.down().await;
    let mut client = Client::open(&relay.address, Variant::Sotw, "one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1")]).await;
    client.silence(Duration::from_secs(1)).await;
}

/// At a control plane, uncacheable resources have a source for each client; at a directory, there is no such
/// source.
#[tokio::test]
async fn cch_1_what_is_private_and_what_is_shared_both_fall_back_to_a_directory() {
    let mut first = ControlPlane::scripted().await;
    let files = ControlPlane::with_files().await;
    files.set_many(EDS, &[("plain", "file"), ("e", "file"), ("c", "file")]);
    let setup = Setup::of(first.address).server_line(QUICK_BACKOFF);
    let relay = Relay::start(setup.next_server(files.server_uri(Attachment::Files))).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(EDS, &["plain", "e"]);
    for _ in 0..2 {
        let asked = first.expect_that(EDS, |ask| ask.subscribe.iter().any(|name| name == "e")).await;
        let private = Item { do_not_cache: true, ..Item::new(EDS, "e", "1", "1") };
        let plain = asked.ask.subscribe.iter().any(|name| name == "plain");
        let plain = plain.then(|| Item::new(EDS, "plain", "1", "1"));
        first.answer(&asked, "1", plain.into_iter().chain([private]).collect(), &[]);
    }
    client.settle(EDS, &[("e", "1"), ("plain", "1")]).await;
    first.down().await;
    client.want(EDS, &["plain", "e", "c"]);
    client.settle(EDS, &[("c", "file"), ("e", "file"), ("plain", "file")]).await;
    files.set(EDS, "e", "file again");
    client.settle(EDS, &[("c", "file"), ("e", "file again"), ("plain", "file")]).await;
    files.set(EDS, "plain", "file again");
    client.settle(EDS, &[("c", "file"), ("e", "file again"), ("plain", "file again")]).await;
}
