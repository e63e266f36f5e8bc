//! The scenarios of the public suites: H (ii/xds-test-harness), V (server libraries), D (what xds-relay got wrong).
//! C is in `stream.rs`; what another file already tells is in the table of `README.md`.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::bench::{Bench, pause};
use crate::support::{Ask, CDS, Client, EDS, FOUR, LDS, RDS, SDS, Variant, is_full_state};

const ABC: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];

#[tokio::test]
async fn h_1_delta_names_one_by_one() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set_many(type_url, &ABC);
        let mut client = bench.delta("one").await;
        client.want(type_url, &["a"]);
        let first = client.take(type_url).await;
        client.want(type_url, &["a", "b"]);
        let second = client.take(type_url).await;
        assert_eq!((first.names(), second.names()), (vec!["a"], vec!["b"]));
        assert_ne!(first.nonce, second.nonce);
        client.quiet().await;
    }
}

#[tokio::test]
async fn h_2_delta_one_of_three_changes() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set_many(type_url, &ABC);
        let mut client = bench.delta("one").await;
        client.want(type_url, &["a", "b", "c"]);
        client.settle(type_url, &ABC).await;
        let before = client.versions(type_url);
        bench.origin.set(type_url, "a", "2");
        let answer = client.take(type_url).await;
        assert_eq!(answer.names(), ["a"]);
        assert!(!before.values().any(|version| *version == answer.items[0].version));
        client.quiet().await;
    }
}

#[tokio::test]
async fn h_3_delta_a_name_that_comes_later() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.delta("one").await;
        client.want(type_url, &["a", "b"]);
        let (mut names, mut removed) = (Vec::new(), Vec::new());
        while names.is_empty() || removed.is_empty() {
            let answer = client.take(type_url).await;
            names.extend(answer.names().into_iter().map(str::to_owned));
            removed.extend(answer.removed);
        }
        assert_eq!((names, removed), (vec!["a".to_owned()], vec!["b".to_owned()]));
        bench.origin.set(type_url, "b", "1");
        assert_eq!(client.take(type_url).await.names(), ["b"]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn h_4_delta_removed_and_created_again() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set_many(type_url, &ABC[..2]);
        let mut client = bench.delta("one").await;
        client.want(type_url, &["a", "b"]);
        client.settle(type_url, &ABC[..2]).await;
        bench.origin.remove(type_url, "b");
        assert_eq!(client.take(type_url).await.removed, ["b"]);
        bench.origin.set(type_url, "b", "2");
        assert_eq!(client.take(type_url).await.texts(), [("b".to_owned(), "2".to_owned())]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn h_5_delta_unsubscribed_is_silent() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set_many(type_url, &ABC[..2]);
        let mut client = bench.delta("one").await;
        client.want(type_url, &["a", "b"]);
        client.settle(type_url, &ABC[..2]).await;
        client.want(type_url, &["a"]);
        client.quiet().await;
        bench.origin.set(type_url, "b", "2");
        client.want(type_url, &[]);
        client.quiet().await;
        bench.origin.set(type_url, "a", "2");
        client.quiet().await;
    }
}

/// H6 and H15: two types on one stream.
#[tokio::test]
async fn h_6_h_15_each_update_for_its_own_type() {
    for variant in Variant::BOTH {
        let bench = Bench::any().await;
        for (number, (first, second)) in
            [(CDS, LDS), (RDS, EDS), (CDS, EDS), (LDS, RDS)].into_iter().enumerate()
        {
            let name = format!("b-{number}");
            let mut client = bench.client(variant, "one").await;
            for type_url in [first, second] {
                bench.origin.set(type_url, &name, "1");
                client.want(type_url, &[&name]);
                client.take(type_url).await;
            }
            for type_url in [first, second] {
                bench.origin.set(type_url, &name, "2");
                assert_eq!(client.take(type_url).await.get(&name).text(), "2");
                client.quiet().await;
            }
        }
    }
}

#[tokio::test]
async fn h_7_h_8_h_9_sotw_wildcards_come_in_single_responses() {
    let bench = Bench::any().await;
    for type_url in [CDS, LDS] {
        bench.origin.set_many(type_url, &ABC);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &[]);
        assert_eq!(client.take(type_url).await.names(), ["a", "b", "c"]);
        client.quiet().await;
        bench.origin.set(type_url, "a", "2");
        let answer = client.take(type_url).await;
        assert_eq!((answer.names(), answer.get("a").text()), (vec!["a", "b", "c"], "2".to_owned()));
        bench.origin.set(type_url, "d", "2");
        assert_eq!(client.take(type_url).await.names(), ["a", "b", "c", "d"]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn h_10_two_of_four() {
    for variant in Variant::BOTH {
        let bench = Bench::any().await;
        for type_url in FOUR {
            bench.origin.set_many(type_url, &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
            let mut client = bench.client(variant, "one").await;
            client.want(type_url, &["b", "d"]);
            client.settle(type_url, &[("b", "1"), ("d", "1")]).await;
            client.quiet().await;
        }
    }
}

#[tokio::test]
async fn h_11_h_12_sotw_one_of_two_changes() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set_many(type_url, &[("b", "1"), ("d", "1")]);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["b", "d"]);
        client.settle(type_url, &[("b", "1"), ("d", "1")]).await;
        bench.origin.set(type_url, "b", "2");
        let answer = client.take(type_url).await;
        let wanted: &[&str] = if is_full_state(type_url) { &["b", "d"] } else { &["b"] };
        assert_eq!((answer.names(), answer.get("b").text()), (wanted.to_vec(), "2".to_owned()));
        client.quiet().await;
    }
}

#[tokio::test]
async fn h_13_h_14_sotw_a_name_that_comes_later() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a", "z"]);
        assert_eq!(client.take(type_url).await.names(), ["a"]);
        client.quiet().await;
        bench.origin.set(type_url, "z", "2");
        let wanted: &[&str] = if is_full_state(type_url) { &["a", "z"] } else { &["z"] };
        assert_eq!(client.take(type_url).await.names(), wanted);
        client.quiet().await;
    }
}

#[tokio::test]
async fn h_16_h_17_sotw_narrowed_to_one() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set_many(type_url, &ABC);
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a", "b", "c"]);
        client.settle(type_url, &ABC).await;
        client.want(type_url, &["b"]);
        client.quiet().await;
        bench.origin.set(type_url, "b", "2");
        assert_eq!(client.take(type_url).await.texts(), [("b".to_owned(), "2".to_owned())]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn h_19_later_requests_without_node() {
    // Every request but the first of every client in this suite; here with an explicitly empty one.
    for variant in Variant::BOTH {
        let bench = Bench::any().await;
        bench.origin.set(CDS, "a", "1");
        bench.origin.set(EDS, "a", "1");
        let mut client = bench.client(variant, "one").await;
        client.want(CDS, &["a"]);
        client.take(CDS).await;
        let ask = Ask { node: Some(Default::default()), ..Ask::of(EDS) };
        client.send(if variant == Variant::Sotw { ask.names(&["a"]) } else { ask.subscribe(&["a"]) });
        client.take(EDS).await;
    }
}

#[tokio::test]
async fn h_23_one_of_a_hundred() {
    let bench = Bench::any().await;
    let names: Vec<String> = (0..100).map(|number| format!("c-{number:02}")).collect();
    let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    bench.origin.set_many(CDS, &resources);
    let mut delta = bench.delta("one").await;
    let mut sotw = bench.sotw("one").await;
    for client in [&mut delta, &mut sotw] {
        client.want(CDS, &[]);
        client.settle(CDS, &resources).await;
    }
    bench.origin.set(CDS, "c-42", "2");
    assert_eq!(delta.take(CDS).await.names(), ["c-42"]);
    assert_eq!(sotw.take(CDS).await.items.len(), 100);
}

#[tokio::test]
async fn v_1_a_nonce_never_given_is_ignored_and_a_fresh_one_is_not() {
    let bench = Bench::any().await;
    for type_url in [CDS, SDS] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.sotw("one").await;
        client.want(type_url, &["a"]);
        let first = client.next(type_url).await;
        client.send(Ask::of(type_url).names(&["a"]).nonce("xyz").version("bogus"));
        client.quiet().await;
        client.ack(&first);
        bench.origin.set(type_url, "a", "2");
        client.take(type_url).await;
    }
}

#[tokio::test]
async fn v_2_what_waits_for_an_ack_is_dropped_with_its_subscription() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(SDS, "a", "1");
    let mut client = bench.sotw("one").await;
    client.want(SDS, &["a"]);
    client.take(SDS).await;
    bench.origin.set(SDS, "a", "2");
    let second = client.next(SDS).await;
    bench.origin.set(SDS, "a", "3");
    client.quiet().await;
    client.send(Ask::of(SDS).nonce(&second.nonce).version(&second.version));
    client.quiet().await;
}

#[tokio::test]
async fn v_3_no_type_url_is_an_error() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::relay(Variant::Delta).await else { return };
        bench.origin.set(CDS, "a", "1");
        let mut client = bench.client(variant, "one").await;
        client.want(CDS, &["a"]);
        client.take(CDS).await;
        client.send(Ask::of(""));
        assert_eq!(client.ended().await.code(), Code::InvalidArgument);
    }
}

/// V4: and after the linger the upstream subscription ends too (RLY-57, RLY-61).
#[tokio::test]
async fn v_4_the_end_of_a_stream_ends_its_watches() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::with(|setup| setup.line("linger: 200ms")).await else { return };
        bench.origin.set(EDS, "a", "1");
        bench.origin.set(EDS, "b", "1");
        let mut stays = bench.client(variant, "stays").await;
        stays.want(EDS, &["b"]);
        stays.take(EDS).await;
        let mut leaves = bench.client(variant, "leaves").await;
        leaves.want(EDS, &["a"]);
        leaves.take(EDS).await;
        drop(leaves);
        bench.origin.expect_that(EDS, |ask| ask.unsubscribe == ["a"]).await;
    }
}

#[tokio::test]
async fn v_5_the_subscription_machine_of_sotw() {
    let bench = Bench::any().await;
    bench.origin.set_many(CDS, &[("x", "1"), ("y", "1")]);
    let mut client = bench.sotw("one").await;
    client.want(CDS, &[]);
    assert_eq!(client.take(CDS).await.names(), ["x", "y"]);
    client.want(CDS, &["x"]);
    client.quiet_after_optional(CDS).await;
    client.want(CDS, &[]);
    client.quiet().await;
    client.want(CDS, &["*", "x"]);
    client.settle(CDS, &[("x", "1"), ("y", "1")]).await;
    client.want(CDS, &["x"]);
    client.quiet_after_optional(CDS).await;
    bench.origin.set(CDS, "y", "2");
    client.quiet().await;
}

/// D1: a dead upstream costs no CPU, and the cache serves. The figure itself is in `tests/e2e`.
#[tokio::test]
async fn d_1_v_14_a_dead_upstream_leaves_the_cache_serving() {
    for variant in Variant::BOTH {
        let Some(mut bench) = Bench::relay(Variant::Delta).await else { return };
        bench.origin.set(CDS, "a", "1");
        let mut old = bench.client(variant, "old").await;
        old.want(CDS, &["*"]);
        old.take(CDS).await;
        bench.origin.down().await;
        let mut newcomer = bench.client(variant, "new").await;
        newcomer.want(CDS, &["*"]);
        assert_eq!(newcomer.take(CDS).await.names(), ["a"]);
        old.silence(Duration::from_millis(100)).await;
    }
}

/// D2: a response over gRPC's default limit of 4 MiB arrives, on the first stream.
#[tokio::test]
async fn d_2_a_large_response_arrives() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::relay(upstream).await else { return };
        let text = "x".repeat(1 << 19);
        let names: Vec<String> = (0..12).map(|number| format!("c-{number}")).collect();
        let resources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), text.as_str())).collect();
        bench.origin.set_many(CDS, &resources);
        let mut client = bench.sotw("one").await;
        client.want(CDS, &[]);
        let answer = client.take(CDS).await;
        assert_eq!(answer.items.len(), 12);
        assert!(answer.size > 6 << 20);
        assert_eq!(bench.origin.opened(), 1);
    }
}

/// D3: nothing that a cache does closes a stream.
#[tokio::test]
async fn d_3_eviction_closes_no_stream() {
    let Some(bench) = Bench::with(|setup| setup.line("linger: 100ms")).await else { return };
    bench.origin.set(EDS, "kept", "1");
    let mut idle: Vec<Client> = Vec::new();
    for number in 0..20 {
        let mut client = bench.delta(&format!("idle-{number}")).await;
        client.want(EDS, &["kept"]);
        client.take(EDS).await;
        idle.push(client);
    }
    for number in 0..5 {
        let name = format!("short-{number}");
        bench.origin.set(EDS, &name, "1");
        let mut client = bench.delta("short").await;
        client.want(EDS, &[&name]);
        client.take(EDS).await;
        drop(client);
        pause(60).await;
    }
    bench.origin.expect_that(EDS, |ask| ask.unsubscribe.contains(&"short-4".to_owned())).await;
    bench.origin.set(EDS, "kept", "2");
    for client in &mut idle {
        assert_eq!(client.take(EDS).await.get("kept").text(), "2");
    }
}

/// D4: the first client's node does not stand for the others; each class is asked for with its own.
#[tokio::test]
async fn d_4_the_first_client_is_nobodys_identity() {
    use crate::support::client::{connect, node};
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set(CDS, "a", "1");
    for cluster in ["second", "first"] {
        let node = crate::support::proto::Node { cluster: cluster.to_owned(), ..node("client") };
        let mut client = Client::on(connect(bench.target()).await, Variant::Delta, Some(node));
        client.want(CDS, &[]);
        client.take(CDS).await;
        let asked = bench.origin.expect_that(CDS, |ask| ask.node.is_some()).await;
        let sent = asked.ask.node.unwrap();
        assert_eq!(sent.cluster, cluster);
        assert_ne!(sent.id, "client", "RLY-15");
    }
}

/// D6 (xds-relay#147): two sets of endpoint names never share an answer.
#[tokio::test]
async fn d_6_clients_with_different_names_get_their_own() {
    for variant in Variant::BOTH {
        let bench = Bench::any().await;
        bench.origin.set_many(EDS, &ABC);
        let mut one = bench.client(variant, "one").await;
        let mut two = bench.client(variant, "two").await;
        one.want(EDS, &["a", "b"]);
        two.want(EDS, &["b", "c"]);
        one.settle(EDS, &[("a", "1"), ("b", "1")]).await;
        two.settle(EDS, &[("b", "1"), ("c", "1")]).await;
        one.want(EDS, &["a", "b", "c"]);
        one.settle(EDS, &ABC).await;
    }
}

/// D8 is told in `tests/e2e` (drain). D9: a duration is read whole, seconds included.
#[tokio::test]
async fn d_9_a_duration_in_seconds_counts() {
    let Some(bench) = Bench::scripted(|setup| setup.line("linger: 1s")).await else { return };
    let mut client = bench.delta("one").await;
    let start = Instant::now();
    client.want(EDS, &["never"]);
    assert_eq!(client.take(EDS).await.removed, ["never"]);
    // resource_timeout is 1 s in the kit's configuration.
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
}
