//! The relay as a client: its requests, their number, and the effect of reconnects downstream.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tonic::Code;

use crate::bench::Bench;
use crate::support::{Ask, Attachment, CDS, EDS, FOUR, Item, LDS, RDS, Setup, Variant};

/// RLY-48, KAL-5: the relay reopens an ended stream, without an effect downstream.
#[tokio::test]
async fn rly_48_upstream_reconnects_are_no_news() {
    for upstream in Variant::BOTH {
        for variant in Variant::BOTH {
            let Some(mut bench) = Bench::relay(upstream).await else { return };
            let mut client = bench.holding_four(variant).await;
            for step in ["status OK", "UNAVAILABLE", "connection lost"] {
                let opened = bench.origin.opened();
                match step {
                    "status OK" => bench.origin.close_streams(Code::Ok),
                    "UNAVAILABLE" => bench.origin.close_streams(Code::Unavailable),
                    _ => {
                        bench.origin.down().await;
                        bench.origin.change(|world| world.restart());
                        bench.origin.up().await;
                    }
                }
                bench.origin.wait_for("a new stream", |origin| origin.opened() > opened).await;
                client.quiet().await;
            }
            bench.origin.set(EDS, "a", "2");
            assert_eq!(client.take(EDS).await.get("a").text(), "2");
        }
    }
}

/// A deletion during the upstream's outage arrives after the reconnect.
#[tokio::test]
async fn rly_64_rly_65_what_changed_meanwhile_is_news() {
    for upstream in Variant::BOTH {
        let Some(mut bench) = Bench::relay(upstream).await else { return };
        bench.origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
        let mut delta = bench.delta("one").await;
        let mut sotw = bench.sotw("two").await;
        for client in [&mut delta, &mut sotw] {
            client.want(CDS, &["*"]);
            client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
        }
        bench.origin.down().await;
        bench.origin.remove(CDS, "b");
        bench.origin.set(CDS, "a", "2");
        bench.origin.up().await;
        for client in [&mut delta, &mut sotw] {
            client.settle(CDS, &[("a", "2")]).await;
            client.quiet().await;
        }
    }
}

/// RLY-64: the first request of each type on the new stream states the union, with the upstream's own
/// versions. DEL-35: in the order of dependency.
#[tokio::test]
async fn rly_64_del_35_the_union_is_restated_in_the_upstreams_own_versions() {
    let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(60)).await else { return };
    let mut client = bench.delta("one").await;
    for type_url in [RDS, LDS, EDS, CDS] {
        client.want(type_url, &["a", "b"]);
        let asked = bench.origin.expect(type_url).await;
        let items = vec![Item::new(type_url, "a", "up-7", "1"), Item::new(type_url, "b", "up-8", "1")];
        bench.origin.answer(&asked, "", items, &[]);
        client.take(type_url).await;
    }
    let before = bench.origin.opened();
    bench.origin.close_streams(Code::Unavailable);
    bench.origin.wait_for("a new stream", |origin| origin.opened() > before).await;
    let versions: BTreeMap<String, String> =
        [("a", "up-7"), ("b", "up-8")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    for type_url in FOUR {
        let again = bench.origin.expect_that(type_url, |ask| !ask.initial.is_empty()).await;
        assert_eq!(again.stream, before + 1);
        assert_eq!(again.ask.initial, versions);
        assert_eq!(sorted(again.ask.subscribe), ["a", "b"]);
    }
    let order: Vec<String> = firsts(&bench, before + 1);
    assert_eq!(order, FOUR);
    client.quiet().await;
}

/// RLY-1, RLY-2: a server that is silent about a whole type says nothing about a single name. The timer of a
/// name runs after the server has answered for the type, as for EDS here, where the name came later.
#[tokio::test]
async fn rly_2_a_server_that_is_slow_with_a_type_removes_nothing() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.upstream(upstream).resource_timeout(1)).await else {
            return;
        };
        let mut client = bench.delta("one").await;
        client.want(CDS, &["a"]);
        let clusters = bench.origin.expect(CDS).await;
        // No complete set for a client that may have the clusters.
        let mut returning = bench.sotw("two").await;
        returning.send(Ask::of(CDS).names(&["a", "b"]).version("7"));
        client.want(EDS, &["e", "f"]);
        let endpoints = bench.origin.expect(EDS).await;
        bench.origin.answer(&endpoints, "v", vec![Item::new(EDS, "e", "", "1")], &[]);
        assert_eq!(client.take(EDS).await.get("e").text(), "1");
        let gone = client.any().await;
        assert_eq!((gone.type_url.as_str(), gone.removed), (EDS, vec!["f".to_owned()]));
        returning.silence(Duration::from_millis(1500)).await;
        let spoke = Instant::now();
        bench.origin.answer(&clusters, "v", vec![Item::new(CDS, "a", "", "1")], &[]);
        let late = client.any().await;
        assert_eq!((late.type_url.as_str(), late.get("a").text()), (CDS, "1".to_owned()));
        assert_eq!(returning.take(CDS).await.names(), ["a"]);
        let waited = spoke.elapsed() > Duration::from_millis(900);
        assert!(waited || upstream == Variant::Sotw, "the timer of `b` began with the answer");
    }
}

/// SST-4: a SotW response of a type that is not full-state has only changes, even for a wildcard. An omission
/// removes nothing.
#[tokio::test]
async fn sst_4_a_partial_response_to_a_sotw_wildcard_deletes_nothing() {
    for type_url in [EDS, RDS, "type.googleapis.com/acme.Thing"] {
        let Some(bench) = Bench::scripted(|setup| setup.upstream(Variant::Sotw)).await else { return };
        let mut client = bench.delta("one").await;
        client.want(type_url, &["*"]);
        let asked = bench.origin.expect(type_url).await;
        let names = ["a", "b", "c", "d", "e", "f"];
        let all = names.map(|name| Item::new(type_url, name, "", "1"));
        bench.origin.answer(&asked, "v1", all.to_vec(), &[]);
        client.settle(type_url, &names.map(|name| (name, "1"))).await;
        bench.origin.answer(&asked, "v2", vec![Item::new(type_url, "c", "", "2")], &[]);
        let answer = client.take(type_url).await;
        assert_eq!((answer.get("c").text(), answer.removed.len()), ("2".to_owned(), 0), "{type_url}");
        let mut newcomer = bench.sotw("two").await;
        newcomer.want(type_url, &["*"]);
        assert_eq!(newcomer.take(type_url).await.items.len(), names.len(), "{type_url}");
    }
}

/// The same over SotW: the last accepted version of the same server (STR-9), and no nonce of the old stream.
#[tokio::test]
async fn rly_64_a_sotw_stream_is_restated_without_nonce() {
    let Some(bench) = Bench::scripted(|setup| setup.upstream(Variant::Sotw).resource_timeout(60)).await
    else {
        return;
    };
    let mut client = bench.delta("one").await;
    client.want(EDS, &["a", "b"]);
    let asked = bench.origin.expect(EDS).await;
    bench.origin.answer(&asked, "v", vec![Item::new(EDS, "a", "", "1"), Item::new(EDS, "b", "", "1")], &[]);
    client.settle(EDS, &[("a", "1"), ("b", "1")]).await;
    let before = bench.origin.opened();
    bench.origin.close_streams(Code::Unavailable);
    bench
        .origin
        .wait_for("the union on a new stream", |origin| !on_stream(origin, EDS, before + 1).is_empty())
        .await;
    let again = on_stream(&bench.origin, EDS, before + 1).remove(0);
    assert_eq!(sorted(again.names), ["a", "b"]);
    assert_eq!(again.nonce, "");
    assert!(again.node.is_some(), "STR-2");
}

fn on_stream(origin: &crate::support::ControlPlane, type_url: &str, stream: u64) -> Vec<Ask> {
    origin.requests(type_url).into_iter().filter(|r| r.stream == stream).map(|r| r.ask).collect()
}

/// The types of a stream in the order of their first requests.
fn firsts(bench: &Bench, stream: u64) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    for recorded in bench.origin.log().into_iter().filter(|r| r.stream == stream) {
        if FOUR.contains(&recorded.ask.type_url.as_str()) && !order.contains(&recorded.ask.type_url) {
            order.push(recorded.ask.type_url);
        }
    }
    order
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}

/// STR-2 towards the upstream: the first message of the stream has the node.
#[tokio::test]
async fn str_2_the_node_goes_upstream_once() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        for type_url in FOUR {
            bench.origin.set(type_url, "a", "1");
        }
        let mut client = bench.delta("one").await;
        for type_url in FOUR {
            client.want(type_url, &["a"]);
            client.take(type_url).await;
        }
        let with_node = bench.origin.log().iter().filter(|recorded| recorded.ask.node.is_some()).count();
        assert_eq!(with_node, 1);
        assert!(bench.origin.log()[0].ask.node.is_some());
    }
}

/// ACK-9, ACK-10: every response is ACKed with its nonce, in order, while names are added.
#[tokio::test]
async fn ack_8_ack_9_ack_10_every_response_is_acked() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.upstream(upstream).resource_timeout(60)).await else {
            return;
        };
        let mut client = bench.delta("one").await;
        client.want(EDS, &["a"]);
        let asked = bench.origin.expect(EDS).await;
        for text in ["1", "2", "3", "4", "5"] {
            bench.origin.answer(&asked, text, vec![Item::new(EDS, "a", text, text)], &[]);
        }
        for number in 1..=5 {
            let nonce = format!("n{number}");
            bench.origin.expect_that(EDS, |ask| ask.nonce == nonce && ask.error.is_none()).await;
        }
        client.settle(EDS, &[("a", "5")]).await;
        if upstream == Variant::Sotw {
            client.want(EDS, &["a", "b"]);
            let grown = bench.origin.expect_that(EDS, |ask| ask.names.len() == 2).await.ask;
            assert_eq!((grown.nonce.as_str(), grown.version.as_str()), ("n5", "5"));
        }
    }
}

/// RLY-25: the relay uses SotW with a control plane without delta, and remembers the choice.
#[tokio::test]
async fn rly_25_delta_refused_is_sotw() {
    let Some(bench) = Bench::with(Setup::guessed).await else { return };
    bench.origin.refuse_delta(Code::Unimplemented);
    bench.origin.set(CDS, "a", "1");
    let mut client = bench.delta("one").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1")]).await;
    let asked = bench.origin.expect(CDS).await;
    assert_eq!(asked.variant, Variant::Sotw);
    let opened = bench.origin.opened();
    assert_eq!(opened, 2);
    bench.origin.close_streams(Code::Unavailable);
    bench.origin.wait_for("a new stream", |origin| origin.opened() > opened).await;
    client.quiet().await;
    assert_eq!(bench.origin.opened(), 3, "RLY-25: delta was tried again within the hour");
}

/// RLY-25: an `api_type` in the configuration is an order, also for streams of single types.
#[tokio::test]
async fn rly_25_a_configured_variant_is_never_changed() {
    for upstream in [Attachment::Ads(Variant::Delta), Attachment::PerType(Variant::Delta)] {
        let Some(bench) = Bench::relay(upstream).await else { return };
        bench.origin.refuse_delta(Code::Unimplemented);
        bench.origin.set(CDS, "a", "1");
        let mut client = bench.delta("one").await;
        client.want(CDS, &["a"]);
        bench.origin.wait_for("three attempts", |origin| origin.opened() >= 3).await;
        assert!(bench.origin.requests(CDS).is_empty(), "{upstream:?}: a stream was not refused");
        let warnings = bench.warned_of("UNIMPLEMENTED").await;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        bench.origin.refuse_delta(None);
        client.settle(CDS, &[("a", "1")]).await;
    }
}

/// FU33: a control plane refuses messages above its limit, so a long delta request is split. The split is no news to clients,
/// also after a reconnect, when some resources are claimed and others are sent again.
#[tokio::test]
async fn fu_33_a_long_delta_request_is_split() {
    let setup = |setup: Setup| setup.server_line("max_request_bytes: 64KiB");
    let Some(bench) = Bench::with(setup).await else { return };
    let names: Vec<String> = (0..1500).map(|number| format!("{number:0>80}")).collect();
    let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    bench.origin.set_many(EDS, &resources);
    let mut client = bench.delta("one").await;
    let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    client.want(EDS, &wanted);
    client.settle(EDS, &resources).await;
    let bytes = |ask: &Ask| {
        let claims = ask.initial.iter().map(|(name, version)| name.len() + version.len());
        ask.subscribe.iter().map(String::len).chain(claims).sum::<usize>()
    };
    let check = |stream: u64| {
        let requests = bench.origin.requests(EDS);
        let asked: Vec<_> = requests.iter().filter(|request| request.stream == stream).collect();
        assert!(asked.iter().all(|request| bytes(&request.ask) < 64 << 10), "a request is too long");
        let listed = asked.iter().map(|request| request.ask.subscribe.len()).sum::<usize>();
        (listed, asked.iter().filter(|request| !request.ask.subscribe.is_empty()).count())
    };
    let (listed, parts) = check(bench.origin.opened());
    assert!(listed == 1500 && parts >= 3, "{listed} names in {parts} requests");
    let opened = bench.origin.opened();
    bench.origin.close_streams(Code::Unavailable);
    bench
        .origin
        .wait_for("all names on a new stream", |origin| {
            origin.opened() > opened && check(origin.opened()).0 == 1500
        })
        .await;
    client.quiet().await;
    assert_eq!(bench.warnings(), [] as [String; 0]);
}

/// FU33: a request of the state of the world has all names and cannot be split: names that find no room stay unanswered, and
/// the others are served.
#[tokio::test]
async fn fu_33_names_without_room_in_sotw_stay_unanswered() {
    let setup = |setup: Setup| setup.upstream(Variant::Sotw).server_line("max_request_bytes: 64KiB");
    let Some(bench) = Bench::with(setup).await else { return };
    let names: Vec<String> = (0..1000).map(|number| format!("{number:0>80}")).collect();
    let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    bench.origin.set_many(EDS, &resources);
    let mut client = bench.delta("one").await;
    let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    client.want(EDS, &wanted);
    let answer = client.take(EDS).await;
    assert!(answer.items.len() > 500 && answer.items.len() < 1000, "{} of 1000", answer.items.len());
    assert_eq!(answer.removed, [""; 0]);
    client.quiet().await;
    let relay = bench.process();
    assert_eq!(relay.metric("sluice_limit_hits_total", &["limit=\"max_request_bytes\""]).await, 1.0);
    assert_eq!(relay.log_lines("ERROR").len(), 1);
    assert_eq!(bench.origin.opened(), 1);
}

/// RLY-62, FLW-5: many names at once make few requests; ACKs do not wait for the batch.
#[tokio::test]
async fn rly_62_flw_5_name_changes_are_batched() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        let names: Vec<String> = (0..300).map(|number| format!("e-{number:03}")).collect();
        let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        bench.origin.set_many(EDS, &resources);
        let mut client = bench.delta("one").await;
        for name in &names {
            client.send(Ask::of(EDS).subscribe(&[name]));
        }
        client.settle(EDS, &resources).await;
        let changes = |r: &&crate::support::control_plane::Recorded| r.ask.nonce.is_empty();
        let plain = bench.origin.requests(EDS).iter().filter(changes).count();
        assert!(plain <= 120, "FLW-5: {plain} plain subscription requests for 300 names");
    }
}

/// FLW-5: a client that starts alone requests one type after the other, without a wait for others. The connection to
/// the control plane has its part in the time.
#[tokio::test]
async fn flw_5_a_chain_of_first_requests_is_not_gathered() {
    let mut quickest = Duration::MAX;
    // The machine may be busy, and every batch takes time: one quick chain proves that nothing waits.
    for _ in 0..20 {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        let chain = [LDS, RDS, CDS, EDS];
        chain.iter().for_each(|type_url| bench.origin.set(type_url, "a", "1"));
        let mut client = bench.delta("one").await;
        let start = Instant::now();
        for type_url in chain {
            client.want(type_url, &["a"]);
            client.take(type_url).await;
        }
        quickest = quickest.min(start.elapsed());
        if quickest < Duration::from_millis(30) {
            return;
        }
    }
    panic!("a chain of four takes {quickest:?}");
}

/// GOAWAY is no failure (KAL-5); the stream continues until its end, or moves, without an effect downstream.
#[tokio::test]
async fn kal_5_goaway_is_no_news() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(EDS, "a", "1");
    let mut client = bench.delta("one").await;
    client.want(EDS, &["a"]);
    client.take(EDS).await;
    bench.origin.go_away();
    bench.origin.close_streams(Code::Ok);
    bench.origin.wait_for("a new stream", |origin| origin.opened() > 1).await;
    client.quiet().await;
    bench.origin.set(EDS, "a", "2");
    client.take(EDS).await;
}
