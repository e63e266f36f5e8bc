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

/// The first server comes back with a response that the relay rejects: nothing of what it said before its loss is current.
#[tokio::test]
async fn rly_44_a_rejected_response_brings_nobody_back_to_what_the_first_server_said_before() {
    for upstream in Variant::BOTH {
        let (mut first, second) = (ControlPlane::scripted().await, ControlPlane::obedient().await);
        second.set_many(EDS, &[("a", "second"), ("b", "second")]);
        // The silence of a server is no answer for as long as the test lasts, nor is its time for all answers over.
        let config = Setup::of(first.address).resource_timeout(60).server_line(QUICK_BACKOFF);
        let config = config.upstream(upstream).next_server(second.address);
        let config =
            config.line("fallback: { resolve_timeout: 60s }").line("fallback_on_reachability_only: true");
        let relay = Relay::start(config).await;
        let item = |name, text| Item::new(EDS, name, text, text);
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(EDS, &["a", "b"]);
        let asked = first.expect(EDS).await;
        first.answer(&asked, "1", vec![item("a", "first"), item("b", "first")], &[]);
        client.settle(EDS, &[("a", "first"), ("b", "first")]).await;
        first.down().await;
        client.settle(EDS, &[("a", "second"), ("b", "second")]).await;

        first.up().await;
        let again = first.expect_that(EDS, |ask| ask.node.is_some()).await;
        // The same name twice, with other content.
        first.answer(&again, "2", vec![item("a", "odd"), item("a", "other"), item("b", "first")], &[]);
        first.expect_that(EDS, |ask| ask.error.is_some()).await;
        client.silence(Duration::from_secs(2)).await;
        assert_eq!(client.holds(EDS)["b"], "second", "{upstream:?}");
        second.set(EDS, "b", "second again");
        client.settle(EDS, &[("a", "second"), ("b", "second again")]).await;

        // In delta, a stream with a rejected response proves nothing more.
        let sound = match upstream {
            Variant::Sotw => again,
            Variant::Delta => {
                first.close_streams(Code::Ok);
                first.expect_that(EDS, |ask| ask.node.is_some()).await
            }
        };
        first.answer(&sound, "3", vec![item("a", "new"), item("b", "new")], &[]);
        client.settle(EDS, &[("a", "new"), ("b", "new")]).await;
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
