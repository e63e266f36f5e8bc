//! DEL: the delta variant.

use crate::bench::Bench;
use crate::support::{Ask, CDS, Client, EDS, FOUR, Item, LDS, RDS, Variant};

/// A client that holds `a` and `b` at text 1.
async fn holding(bench: &Bench, type_url: &str, names: &[&str]) -> Client {
    bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
    let mut client = bench.delta("one").await;
    client.want(type_url, names);
    client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
    client
}

#[tokio::test]
async fn del_1_del_3_an_ack_may_carry_a_change() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.delta("one").await;
        client.send(Ask::of(type_url).subscribe(&["a"]));
        let answer = client.next(type_url).await;
        let ack = client.ack_of(&answer).subscribe(&["b"]).unsubscribe(&["a"]);
        client.send(ack);
        assert_eq!(client.take(type_url).await.names(), ["b"]);
        bench.origin.set(type_url, "a", "2");
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_2_changes_count_whatever_the_nonce() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
        let mut client = bench.delta("one").await;
        client.send(Ask::of(type_url).subscribe(&["a"]));
        let first = client.take(type_url).await;
        bench.origin.set(type_url, "a", "2");
        let second = client.take(type_url).await;
        client.send(Ask::of(type_url).subscribe(&["b"]).nonce(&first.nonce));
        assert_eq!(client.take(type_url).await.names(), ["b"]);
        client.send(Ask::of(type_url).subscribe(&["c"]).nonce("never heard of"));
        assert_eq!(client.take(type_url).await.names(), ["c"]);
        client.send(Ask::of(type_url).subscribe(&["d"]).nonce(&second.nonce).error("no"));
        assert_eq!(client.take(type_url).await.names(), ["d"]);
        client.send(Ask::of(type_url).unsubscribe(&["d"]).nonce(&first.nonce));
        client.quiet().await;
        bench.origin.set(type_url, "d", "2");
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_4_subscribe_goes_before_unsubscribe() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.delta("one").await;
        client.send(Ask::of(type_url).subscribe(&["*"]).unsubscribe(&["*"]));
        client.quiet().await;
        client.send(Ask::of(type_url));
        bench.origin.set(type_url, "b", "1");
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_5_initial_versions_count_in_the_first_request_only() {
    let bench = Bench::any().await;
    let mut client = holding(&bench, EDS, &["a", "b"]).await;
    let version = client.versions(EDS)["a"].clone();
    client.send(Ask::of(EDS).initial(&[("a", &version), ("gone", "1")]).subscribe(&["a"]));
    // A plain re-subscription: the resource is sent again, and a name without a subscription gets no removal.
    let answer = client.take(EDS).await;
    assert_eq!((answer.names(), answer.removed.len()), (vec!["a"], 0));
}

#[tokio::test]
async fn del_6_a_first_request_without_names_is_the_wildcard() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        for ask in [Ask::of(type_url), Ask::of(type_url).subscribe(&["*"])] {
            let mut client = bench.delta("one").await;
            client.send(ask.clone());
            client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        }
        // The same with versions presented: one stale, one of a removed resource.
        let mut client = bench.delta("one").await;
        client.send(Ask::of(type_url).initial(&[("a", "stale"), ("gone", "1")]));
        let mut removed = Vec::new();
        while client.holds(type_url).len() < 2 || removed.is_empty() {
            removed.extend(client.take(type_url).await.removed);
        }
        assert_eq!(removed, ["gone"]);
    }
}

#[tokio::test]
async fn del_7_del_8_names_do_not_end_the_wildcard_and_nothing_is_left_after_all_went() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.delta("one").await;
        client.send(Ask::of(type_url));
        client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        client.send(Ask::of(type_url).subscribe(&["a"]));
        assert_eq!(client.take(type_url).await.names(), ["a"]);
        bench.origin.set(type_url, "b", "2");
        assert_eq!(client.take(type_url).await.names(), ["b"]);
        client.send(Ask::of(type_url).unsubscribe(&["*"]));
        client.quiet().await;
        // DEL-9: `a` is still subscribed by name.
        bench.origin.set_many(type_url, &[("a", "2"), ("b", "3")]);
        assert_eq!(client.take(type_url).await.names(), ["a"]);
        client.send(Ask::of(type_url).unsubscribe(&["a"]));
        client.send(Ask::of(type_url));
        client.quiet().await;
        bench.origin.set_many(type_url, &[("a", "4"), ("b", "4")]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_8_an_empty_request_changes_nothing() {
    let bench = Bench::any().await;
    let mut client = holding(&bench, EDS, &["a", "b"]).await;
    client.send(Ask::of(EDS));
    client.quiet().await;
    bench.origin.set(EDS, "c", "1");
    client.quiet().await;
    bench.origin.set(EDS, "a", "2");
    assert_eq!(client.take(EDS).await.names(), ["a"]);
}

#[tokio::test]
async fn del_10_a_first_request_that_unsubscribes_is_no_wildcard() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.delta("one").await;
        client.send(Ask::of(type_url).unsubscribe(&["x"]));
        client.quiet().await;
        client.send(Ask::of(type_url));
        client.quiet().await;
        client.send(Ask::of(type_url).subscribe(&["a"]));
        assert_eq!(client.take(type_url).await.names(), ["a"]);
    }
}

#[tokio::test]
async fn del_11_a_name_asked_for_again_is_sent_again() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        let mut client = holding(&bench, type_url, &["a", "b"]).await;
        client.send(Ask::of(type_url).subscribe(&["a"]));
        assert_eq!(client.take(type_url).await.names(), ["a"]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_12_del_23_del_24_absence_is_said_once_and_ends() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        let mut client = bench.delta("one").await;
        client.want(type_url, &["x"]);
        let answer = client.take(type_url).await;
        assert_eq!((answer.names(), answer.removed.as_slice()), (vec![], &["x".to_owned()][..]));
        client.quiet().await;
        bench.origin.set(type_url, "other", "1");
        client.quiet().await;
        // Asked again, answered again.
        client.send(Ask::of(type_url).subscribe(&["x"]));
        assert_eq!(client.take(type_url).await.removed, ["x"]);
        bench.origin.set(type_url, "x", "1");
        assert_eq!(client.take(type_url).await.names(), ["x"]);
        client.quiet().await;
    }
}

/// DEL-12: an old server expresses absence by a resource without a body. DEL-13: go-control-plane stays
/// silent.
#[tokio::test]
async fn del_12_del_13_rly_29_upstreams_that_do_not_say_absent_properly() {
    let Some(bench) = Bench::scripted(|setup| setup).await else { return };
    let mut client = bench.delta("one").await;
    client.want(CDS, &["old-style"]);
    let asked = bench.origin.expect(CDS).await;
    let bare = Item { name: "old-style".to_owned(), version: String::new(), ..Item::default() };
    bench.origin.answer(&asked, "", vec![bare], &[]);
    assert_eq!(client.take(CDS).await.removed, ["old-style"]);
    // The resource timer of one second runs, since the server has answered for the type.
    client.want(EDS, &["answered", "unanswered"]);
    let asked = bench.origin.expect(EDS).await;
    bench.origin.answer(&asked, "", vec![Item::new(EDS, "answered", "1", "1")], &[]);
    assert_eq!(client.take(EDS).await.names(), ["answered"]);
    assert_eq!(client.take(EDS).await.removed, ["unanswered"]);
}

#[tokio::test]
async fn del_14_an_ack_of_one_response_leaves_the_other_outstanding() {
    let bench = Bench::any().await;
    bench.origin.set_many(EDS, &[("a", "1"), ("b", "1")]);
    let mut client = bench.delta("one").await;
    client.send(Ask::of(EDS).subscribe(&["a"]));
    let first = client.next(EDS).await;
    client.send(Ask::of(EDS).subscribe(&["b"]));
    let second = client.next(EDS).await;
    assert_ne!(first.nonce, second.nonce);
    client.ack(&second);
    client.ack(&first);
    bench.origin.set_many(EDS, &[("a", "2"), ("b", "2")]);
    client.settle(EDS, &[("a", "2"), ("b", "2")]).await;
    client.quiet().await;
}

#[tokio::test]
async fn del_18_an_unsubscription_gets_no_answer() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        let mut client = holding(&bench, type_url, &["a", "b"]).await;
        client.want(type_url, &["b"]);
        client.quiet().await;
        bench.origin.set(type_url, "a", "2");
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_19_v_6_a_name_left_beside_the_wildcard_is_answered() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS, LDS] {
        bench.origin.set(type_url, "in", "1");
        bench.origin.set_unlisted(type_url, "out", "1");
        let mut client = bench.delta("one").await;
        client.send(Ask::of(type_url).subscribe(&["*", "in", "out"]));
        client.settle(type_url, &[("in", "1"), ("out", "1")]).await;
        client.send(Ask::of(type_url).unsubscribe(&["in"]));
        assert_eq!(client.take(type_url).await.names(), ["in"]);
        client.send(Ask::of(type_url).unsubscribe(&["out"]));
        let answer = client.take(type_url).await;
        assert_eq!((answer.names(), answer.removed.as_slice()), (vec![], &["out".to_owned()][..]));
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_20_phantom_unsubscriptions_are_nothing() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        let mut client = holding(&bench, type_url, &["a", "b"]).await;
        client.send(Ask::of(type_url).unsubscribe(&["never", "*"]));
        client.quiet().await;
        bench.origin.set(type_url, "a", "2");
        assert_eq!(client.take(type_url).await.names(), ["a"]);
    }
}

#[tokio::test]
async fn del_21_leaving_the_wildcard_gets_no_answer() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        let mut client = holding(&bench, type_url, &["*"]).await;
        client.send(Ask::of(type_url).unsubscribe(&["*"]));
        client.quiet().await;
        bench.origin.remove(type_url, "a");
        bench.origin.set(type_url, "b", "2");
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_22_only_what_nothing_covers_is_removed() {
    let bench = Bench::any().await;
    for type_url in [CDS, EDS] {
        let mut client = holding(&bench, type_url, &["*", "a"]).await;
        // `a` leaves the wildcard's set with the same bytes: no response.
        bench.origin.set_unlisted(type_url, "a", "1");
        client.quiet_after_optional(type_url).await;
        bench.origin.remove(type_url, "a");
        assert_eq!(client.take(type_url).await.removed, ["a"]);
        bench.origin.remove(type_url, "b");
        assert_eq!(client.take(type_url).await.removed, ["b"]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_25_the_first_wildcard_is_answered_though_empty() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        let mut client = bench.delta("one").await;
        client.send(Ask::of(type_url));
        let answer = client.take(type_url).await;
        assert!(answer.items.is_empty() && answer.removed.is_empty(), "{answer:?}");
        client.quiet().await;
    }
}

/// DEL-25: an empty response is never a filler.
#[tokio::test]
async fn del_25_rly_3_emptiness_that_is_not_known_is_not_said() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(60)).await else { return };
        let mut client = bench.client(variant, "one").await;
        client.want(CDS, &[]);
        client.want(EDS, &["x"]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_27_ack_5_a_nacked_content_is_not_sent_again() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        let mut client = holding(&bench, type_url, &["a", "b"]).await;
        bench.origin.set(type_url, "a", "bad");
        let bad = client.next(type_url).await;
        client.nack(&bad, "no");
        client.quiet().await;
        bench.origin.set(type_url, "b", "2");
        assert_eq!(client.take(type_url).await.names(), ["b"]);
        bench.origin.set(type_url, "a", "2");
        assert_eq!(client.take(type_url).await.names(), ["a"]);
        client.quiet().await;
    }
}

#[tokio::test]
async fn del_28_nothing_survives_a_stream() {
    let bench = Bench::any().await;
    let client = holding(&bench, EDS, &["a", "b"]).await;
    drop(client);
    let mut again = bench.delta("one").await;
    again.want(EDS, &["a"]);
    again.settle(EDS, &[("a", "1")]).await;
    bench.origin.set(EDS, "b", "2");
    again.quiet().await;
}

#[tokio::test]
async fn del_29_del_30_del_31_v_15_presented_versions() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        for wild in [false, true] {
            let names: &[&str] = if wild { &["*"] } else { &["a", "b", "gone"] };
            bench.origin.set_many(type_url, &[("a", "1"), ("b", "1"), ("gone", "1")]);
            let mut client = bench.delta("one").await;
            client.want(type_url, names);
            client.settle(type_url, &[("a", "1"), ("b", "1"), ("gone", "1")]).await;
            let versions = client.versions(type_url);
            drop(client);
            // Equal versions: silence.
            let mut again = bench.delta("one").await;
            again.send(Ask { initial: versions.clone(), ..Ask::of(type_url).subscribe(names) });
            again.quiet().await;
            drop(again);
            // One changed, one removed, one without a subscription.
            bench.origin.set(type_url, "b", "2");
            bench.origin.remove(type_url, "gone");
            let mut presented = versions.clone();
            if !wild {
                presented.insert("stranger".to_owned(), "1".to_owned());
            }
            let mut again = bench.delta("one").await;
            again.send(Ask { initial: presented, ..Ask::of(type_url).subscribe(names) });
            let (mut sent, mut removed) = (Vec::new(), Vec::new());
            while sent.is_empty() || removed.is_empty() {
                let answer = again.take(type_url).await;
                sent.extend(answer.names().into_iter().map(str::to_owned));
                removed.extend(answer.removed);
            }
            assert_eq!((sent, removed), (vec!["b".to_owned()], vec!["gone".to_owned()]), "{type_url} {wild}");
            again.quiet().await;
        }
    }
}

/// RLY-6: a cold cache causes no removal; equal resources are not sent.
#[tokio::test]
async fn del_33_rly_6_no_removal_from_a_cold_cache() {
    let Some(warm) = Bench::relay(Variant::Delta).await else { return };
    warm.origin.set(RDS, "a", "1");
    let mut client = warm.delta("one").await;
    client.want(RDS, &["a"]);
    client.take(RDS).await;
    let versions = client.versions(RDS);

    let Some(cold) = Bench::scripted(|setup| setup.resource_timeout(60)).await else { return };
    let mut again = cold.delta("one").await;
    again.send(Ask { initial: versions, ..Ask::of(RDS).subscribe(&["a", "b"]) });
    let asked = cold.origin.expect(RDS).await;
    again.quiet().await;
    cold.origin.answer(&asked, "9", vec![Item::new(RDS, "a", "9", "1")], &[]);
    again.quiet().await;
    cold.origin.answer(&asked, "10", vec![], &["b"]);
    assert_eq!(again.take(RDS).await.removed, ["b"]);
}

#[tokio::test]
async fn ack_1_del_27_other_clients_and_types_go_on_after_a_nack() {
    let bench = Bench::any().await;
    bench.origin.set(CDS, "a", "1");
    bench.origin.set(LDS, "l", "1");
    let mut bad = bench.delta("bad").await;
    let mut good = bench.delta("good").await;
    for client in [&mut bad, &mut good] {
        client.want(CDS, &["*"]);
    }
    let answer = bad.next(CDS).await;
    bad.nack(&answer, "no");
    good.take(CDS).await;
    bad.want(LDS, &["l"]);
    bad.take(LDS).await;
    bench.origin.set(CDS, "a", "2");
    assert_eq!(good.take(CDS).await.get("a").text(), "2");
    assert_eq!(bad.take(CDS).await.get("a").text(), "2");
}
