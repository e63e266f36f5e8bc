//! The server libraries' tests of themselves: go-control-plane, istio, Kuma, diderot (V1 to V15).

use tonic::Code;

use super::{ABC, DELTA, SOTW, STREAMS, play};
use crate::bench::Bench;
use crate::support::{Ask, CDS, EDS, FOUR, LDS, RDS, SDS, Variant};

#[tokio::test]
async fn v_1_a_nonce_never_given_is_ignored_and_a_fresh_one_is_not() {
    play(SOTW, &[CDS, EDS, LDS, RDS, SDS], async |row| {
        row.set(&ABC[..1]);
        let mut client = row.client().await;
        client.want(row.type_url, &["a"]);
        let first = client.next(row.type_url).await;
        client.send(Ask::of(row.type_url).names(&["a"]).nonce("xyz").version("bogus"));
        client.quiet().await;
        client.ack(&first);
        row.set(&[("a", "2")]);
        client.take(row.type_url).await;
    })
    .await;
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

/// V4: after the linger the upstream subscription ends too (RLY-57, RLY-61).
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
    play(SOTW, &FOUR, async |row| {
        let type_url = row.type_url;
        row.set(&[("x", "1"), ("y", "1")]);
        let mut client = row.client().await;
        client.want(type_url, &[]);
        assert_eq!(client.take(type_url).await.names(), ["x", "y"]);
        client.want(type_url, &["x"]);
        // New in the list, although the wildcard delivered the resource before (SUB-3).
        client.take(type_url).await;
        client.want(type_url, &[]);
        client.quiet().await;
        client.want(type_url, &["*", "x"]);
        client.settle(type_url, &[("x", "1"), ("y", "1")]).await;
        client.want(type_url, &["x"]);
        client.quiet_after_optional(type_url).await;
        row.set(&[("y", "2")]);
        client.quiet().await;
    })
    .await;
}

/// The same for delta, where names do not end the wildcard (DEL-7).
#[tokio::test]
async fn v_5_the_subscription_machine_of_delta() {
    play(DELTA, &FOUR, async |row| {
        let type_url = row.type_url;
        row.set(&[("x", "1"), ("y", "1")]);
        let mut client = row.client().await;
        client.send(Ask::of(type_url));
        client.settle(type_url, &[("x", "1"), ("y", "1")]).await;
        client.send(Ask::of(type_url).subscribe(&["x"]));
        assert_eq!(client.take(type_url).await.names(), ["x"]);
        row.set(&[("y", "2")]);
        assert_eq!(client.take(type_url).await.names(), ["y"]);
        client.send(Ask::of(type_url).unsubscribe(&["*"]));
        client.quiet().await;
        row.set(&[("y", "3")]);
        client.quiet().await;
        row.set(&[("x", "2")]);
        assert_eq!(client.take(type_url).await.names(), ["x"]);
        client.send(Ask::of(type_url).unsubscribe(&["x"]));
        client.quiet().await;
        row.set(&[("x", "3")]);
        client.quiet().await;
    })
    .await;
}

/// V6: the answer is the resource, if the wildcard has it, or its removal.
#[tokio::test]
async fn v_6_a_name_left_beside_the_wildcard_is_answered() {
    play(DELTA, &FOUR, async |row| {
        let mut client = row.holding_all(&ABC).await;
        for name in ["a", "never"] {
            client.send(Ask::of(row.type_url).subscribe(&[name]));
            client.take(row.type_url).await;
            client.send(Ask::of(row.type_url).unsubscribe(&[name]));
            let answer = client.take(row.type_url).await;
            let texts: Vec<&str> =
                answer.names().into_iter().chain(answer.removed.iter().map(String::as_str)).collect();
            assert_eq!(texts, [name]);
        }
    })
    .await;
}

/// V7, V13: a client that subscribes to a resource twice gets one copy.
#[tokio::test]
async fn v_7_v_13_named_and_by_wildcard_is_told_once() {
    play(STREAMS, &FOUR, async |row| {
        row.set(&ABC[..2]);
        let mut client = row.client().await;
        client.want(row.type_url, &["*", "a"]);
        client.settle(row.type_url, &ABC[..2]).await;
        client.quiet_after_optional(row.type_url).await;
        row.set(&[("a", "2")]);
        let answer = client.take(row.type_url).await;
        assert_eq!(answer.get("a").text(), "2");
        client.quiet().await;
    })
    .await;
}

/// V13: quick changes end with the newest resource, and no older resource follows a newer.
#[tokio::test]
async fn v_13_quick_changes_end_with_the_newest() {
    play(STREAMS, &[CDS, EDS], async |row| {
        let mut client = row.holding(&ABC[..1]).await;
        for number in 2..=10 {
            row.set(&[("a", &number.to_string())]);
        }
        let mut last = 1;
        while last < 10 {
            let number: u32 = client.take(row.type_url).await.get("a").text().parse().unwrap();
            assert!(number > last, "{number} after {last}");
            last = number;
        }
        client.quiet().await;
    })
    .await;
}

/// V9 (istio, after a reconnect): endpoints are requested before the clusters.
#[tokio::test]
async fn v_9_endpoints_first_after_a_reconnect() {
    play(STREAMS, &[EDS], async |row| {
        row.bench.origin.set(CDS, "a", "1");
        drop(row.holding(&ABC[..1]).await);
        let mut client = row.client().await;
        for type_url in [EDS, CDS] {
            client.want(type_url, &["a"]);
            client.settle(type_url, &ABC[..1]).await;
        }
    })
    .await;
}

/// V9 (istio): a NACK of one set of routes, then a request for another set.
#[tokio::test]
async fn v_9_another_set_after_a_nack() {
    play(STREAMS, &[RDS, EDS], async |row| {
        row.set(&ABC[..2]);
        let mut client = row.client().await;
        client.want(row.type_url, &["a"]);
        let refused = client.next(row.type_url).await;
        client.nack(&refused, "no");
        client.quiet().await;
        client.want(row.type_url, &["b"]);
        assert_eq!(client.take(row.type_url).await.names(), ["b"]);
        row.set(&[("a", "2")]);
        client.quiet().await;
    })
    .await;
}

/// V9 (istio, push scoping): changes without subscribers cause no response, of the same type or of another.
#[tokio::test]
async fn v_9_pushes_have_a_scope() {
    play(STREAMS, &FOUR, async |row| {
        let mut client = row.holding(&ABC[..1]).await;
        row.set(&[("b", "2")]);
        for type_url in FOUR.into_iter().filter(|other| *other != row.type_url) {
            row.bench.origin.set(type_url, "a", "7");
        }
        client.quiet().await;
    })
    .await;
}

/// V9 (istio): two streams with one node id overlap without harm.
#[tokio::test]
async fn v_9_two_streams_of_one_node_overlap() {
    play(STREAMS, &FOUR, async |row| {
        let mut old = row.holding(&ABC[..1]).await;
        let mut new = row.client().await;
        new.want(row.type_url, &["a"]);
        new.settle(row.type_url, &ABC[..1]).await;
        row.set(&[("a", "2")]);
        for client in [&mut old, &mut new] {
            client.settle(row.type_url, &[("a", "2")]).await;
        }
        drop(old);
        row.set(&[("a", "3")]);
        new.settle(row.type_url, &[("a", "3")]).await;
        new.quiet().await;
    })
    .await;
}

/// V15: the relay sends no resource whose version the client presents, updates those with other versions, and
/// removes those that are gone.
#[tokio::test]
async fn v_15_versions_presented_on_a_new_stream() {
    play(DELTA, &FOUR, async |row| {
        let versions = row.holding(&ABC).await.versions(row.type_url);
        row.set(&[("b", "2")]);
        row.remove("c");
        let mut client = row.client().await;
        let presented: Vec<(&str, &str)> = versions.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        client.send(Ask::of(row.type_url).subscribe(&["a", "b", "c"]).initial(&presented));
        let (mut names, mut removed) = (Vec::new(), Vec::new());
        while names.is_empty() || removed.is_empty() {
            let answer = client.take(row.type_url).await;
            names.extend(answer.names().into_iter().map(str::to_owned));
            removed.extend(answer.removed);
        }
        assert_eq!((names, removed), (vec!["b".to_owned()], vec!["c".to_owned()]));
        client.quiet().await;
    })
    .await;
}
