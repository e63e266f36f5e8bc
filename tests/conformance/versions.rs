//! RLY-27 to RLY-37: conversion between variants, versions, ACKs for the upstream.

use crate::bench::{Bench, pause};
use crate::support::proto::Any;
use crate::support::{Ask, CDS, EDS, FOUR, Item, LDS, RDS, SDS, Setup, Variant, is_full_state};

fn item(type_url: &str, name: &str, text: &str) -> Item {
    Item::new(type_url, name, text, text)
}

fn slow_sotw(setup: Setup) -> Setup {
    setup.upstream(Variant::Sotw).resource_timeout(60)
}

/// RLY-27 (a): the resource was PRESENT earlier on this upstream stream.
#[tokio::test]
async fn rly_27_what_leaves_a_full_response_is_removed() {
    for type_url in [CDS, LDS] {
        let Some(bench) = Bench::scripted(slow_sotw).await else { return };
        let mut delta = bench.delta("one").await;
        let mut sotw = bench.sotw("two").await;
        delta.want(type_url, &["a", "b"]);
        sotw.want(type_url, &["a", "b"]);
        let asked = bench.origin.expect_that(type_url, |ask| ask.names.len() == 2).await;
        bench.origin.answer(&asked, "1", vec![item(type_url, "a", "1"), item(type_url, "b", "1")], &[]);
        delta.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        sotw.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        bench.origin.answer(&asked, "2", vec![item(type_url, "a", "1")], &[]);
        assert_eq!(delta.take(type_url).await.removed, ["b"]);
        assert_eq!(sotw.take(type_url).await.names(), ["a"]);
    }
}

/// RLY-27 (b): the name was in the first request, so no response can predate the name.
#[tokio::test]
async fn rly_27_what_the_first_response_lacks_is_absent() {
    for type_url in [CDS, LDS] {
        let Some(bench) = Bench::scripted(slow_sotw).await else { return };
        let mut client = bench.delta("one").await;
        client.want(type_url, &["a", "b"]);
        let asked = bench.origin.expect(type_url).await;
        bench.origin.answer(&asked, "1", vec![item(type_url, "a", "1")], &[]);
        let (mut names, mut removed) = (Vec::new(), Vec::new());
        while names.is_empty() || removed.is_empty() {
            let answer = client.take(type_url).await;
            names.extend(answer.names().into_iter().map(str::to_owned));
            removed.extend(answer.removed);
        }
        assert_eq!((names, removed), (vec!["a".to_owned()], vec!["b".to_owned()]));
    }
}

/// A response computed before the request for `b` proves nothing about `b`.
#[tokio::test]
async fn rly_27_a_response_in_flight_proves_nothing_about_a_later_name() {
    for type_url in [CDS, LDS] {
        let Some(bench) = Bench::scripted(slow_sotw).await else { return };
        let mut client = bench.delta("one").await;
        client.want(type_url, &["a"]);
        let asked = bench.origin.expect(type_url).await;
        bench.origin.answer(&asked, "1", vec![item(type_url, "a", "1")], &[]);
        client.take(type_url).await;
        client.want(type_url, &["a", "b"]);
        bench.origin.expect_that(type_url, |ask| ask.names.len() == 2).await;
        bench.origin.answer(&asked, "2", vec![item(type_url, "a", "2")], &[]);
        let answer = client.take(type_url).await;
        assert_eq!((answer.names(), answer.removed.len()), (vec!["a"], 0));
        client.quiet().await;
        bench.origin.answer(&asked, "3", vec![item(type_url, "a", "2"), item(type_url, "b", "1")], &[]);
        assert_eq!(client.take(type_url).await.names(), ["b"]);
    }
}

#[tokio::test]
async fn rly_28_absence_from_other_types_means_nothing() {
    for type_url in [EDS, RDS, SDS] {
        let Some(bench) = Bench::scripted(slow_sotw).await else { return };
        let mut client = bench.delta("one").await;
        client.want(type_url, &["a", "b"]);
        let asked = bench.origin.expect(type_url).await;
        bench.origin.answer(&asked, "1", vec![item(type_url, "a", "1")], &[]);
        client.settle(type_url, &[("a", "1")]).await;
        bench.origin.answer(&asked, "2", vec![item(type_url, "b", "1")], &[]);
        client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        bench.origin.answer(&asked, "3", vec![], &[]);
        client.quiet().await;
        assert_eq!(client.holds(type_url).len(), 2);
    }
}

/// RLY-28: a name never seen is absent after its timer, on a connected stream.
#[tokio::test]
async fn rly_28_rly_29_a_name_never_seen_is_absent_after_its_timer() {
    let Some(bench) = Bench::scripted(|setup| setup.upstream(Variant::Sotw)).await else { return };
    let mut client = bench.delta("one").await;
    client.want(EDS, &["never", "other"]);
    let asked = bench.origin.expect(EDS).await;
    // The server answers for the type, but not for this name.
    bench.origin.answer(&asked, "1", vec![item(EDS, "other", "1")], &[]);
    assert_eq!(client.take(EDS).await.names(), ["other"]);
    assert_eq!(client.take(EDS).await.removed, ["never"]);
    // The absence ends with the arrival of the resource.
    bench.origin.answer(&asked, "1", vec![item(EDS, "never", "1")], &[]);
    assert_eq!(client.take(EDS).await.names(), ["never"]);
}

#[tokio::test]
async fn rly_32_versions_learnt_elsewhere_do_not_match() {
    let bench = Bench::any().await;
    for type_url in FOUR {
        bench.origin.set(type_url, "a", "1");
        let mut client = bench.delta("one").await;
        client.send(Ask::of(type_url).subscribe(&["a"]).initial(&[("a", "1")]));
        assert_eq!(client.take(type_url).await.names(), ["a"]);
    }
}

/// RLY-33: `Client` asserts that every nonce is new on its stream; this test, that the nonce is not the
/// upstream's.
#[tokio::test]
async fn rly_33_nonces_are_the_streams_own() {
    for variant in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup).await else { return };
        let mut client = bench.client(variant, "one").await;
        client.want(EDS, &["a"]);
        let asked = bench.origin.expect(EDS).await;
        let answer = crate::support::Answer {
            type_url: EDS.to_owned(),
            nonce: "nonce-of-the-upstream".to_owned(),
            items: vec![item(EDS, "a", "1")],
            ..Default::default()
        };
        bench.origin.answer_raw(asked.stream, answer);
        assert_ne!(client.take(EDS).await.nonce, "nonce-of-the-upstream");
        let ack = bench.origin.expect_that(EDS, |ask| !ask.nonce.is_empty()).await;
        assert_eq!(ack.ask.nonce, "nonce-of-the-upstream");
    }
}

/// RLY-34: a delta removal, as seen by SotW clients.
#[tokio::test]
async fn rly_34_an_upstream_removal_downstream() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    for type_url in FOUR {
        bench.origin.set_many(type_url, &[("a", "1"), ("b", "1")]);
        let mut client = bench.sotw("one").await;
        let mut wild = bench.sotw("wild").await;
        client.want(type_url, &["a", "b"]);
        client.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        wild.want(type_url, &["*"]);
        wild.settle(type_url, &[("a", "1"), ("b", "1")]).await;
        bench.origin.remove(type_url, "b");
        assert_eq!(wild.take(type_url).await.names(), ["a"]);
        if is_full_state(type_url) {
            assert_eq!(client.take(type_url).await.names(), ["a"]);
        }
        client.quiet().await;
    }
}

#[tokio::test]
async fn rly_35_a_response_carries_what_is_new_or_newly_asked_for() {
    let Some(bench) = Bench::relay(Variant::Delta).await else { return };
    bench.origin.set_many(EDS, &[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut client = bench.sotw("one").await;
    client.want(EDS, &["a", "b"]);
    client.settle(EDS, &[("a", "1"), ("b", "1")]).await;
    client.want(EDS, &["a", "c"]);
    assert_eq!(client.take(EDS).await.names(), ["c"]);
    client.want(EDS, &["a", "b", "c"]);
    assert_eq!(client.take(EDS).await.names(), ["b"]);
    client.quiet().await;
}

/// The upstream replays everything under other version strings (RLY-36, RLY-65, I12).
#[tokio::test]
async fn rly_36_rly_65_equal_bytes_are_no_news() {
    for upstream in Variant::BOTH {
        for variant in Variant::BOTH {
            let Some(bench) = Bench::relay(upstream).await else { return };
            let mut client = bench.holding_four(variant).await;
            bench.origin.change(|world| world.restart());
            client.quiet().await;
        }
    }
}

/// ACK-8: a structurally valid response is ACKed at once, whatever the clients answer.
#[tokio::test]
async fn rly_37_ack_8_a_clients_nack_stays_here() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.upstream(upstream)).await else { return };
        let mut client = bench.sotw("one").await;
        client.want(CDS, &["a"]);
        let asked = bench.origin.expect(CDS).await;
        bench.origin.answer(&asked, "1", vec![item(CDS, "a", "1")], &[]);
        let ack = bench.origin.expect_that(CDS, |ask| !ask.nonce.is_empty()).await.ask;
        assert_eq!((ack.nonce.as_str(), ack.error.is_none()), ("n1", true));
        if upstream == Variant::Sotw {
            assert_eq!((ack.version.as_str(), ack.names.as_slice()), ("1", &["a".to_owned()][..]));
        }
        let answer = client.next(CDS).await;
        client.nack(&answer, "I would rather not");
        client.quiet().await;
        assert!(bench.origin.requests(CDS).iter().all(|recorded| recorded.ask.error.is_none()));
    }
}

/// SST-8: duplicates invalidate the whole response. H24. ACK-9: the NACK has the last accepted version.
#[tokio::test]
async fn rly_37_sst_8_ack_9_h_24_duplicates_void_a_response() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.upstream(upstream)).await else { return };
        let mut client = bench.delta("one").await;
        client.want(CDS, &["a", "b"]);
        let asked = bench.origin.expect(CDS).await;
        bench.origin.answer(&asked, "1", vec![item(CDS, "a", "1"), item(CDS, "b", "1")], &[]);
        client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
        let twice = vec![item(CDS, "a", "2"), item(CDS, "a", "3"), item(CDS, "b", "2")];
        bench.origin.answer(&asked, "2", twice, &[]);
        let nack = bench.origin.expect_that(CDS, |ask| ask.error.is_some()).await.ask;
        assert_eq!(nack.nonce, "n2");
        assert!(nack.error.expect("NACK").message.contains('a'));
        if upstream == Variant::Sotw {
            assert_eq!(nack.version, "1");
        }
        client.quiet().await;
    }
}

/// A CDS response with one undecodable element: the valid rest is used, no client loses a cluster.
#[tokio::test]
async fn rly_37_nobody_loses_a_cluster_to_an_undecodable_element() {
    let Some(bench) = Bench::scripted(slow_sotw).await else { return };
    let mut client = bench.delta("one").await;
    client.want(CDS, &["*"]);
    let asked = bench.origin.expect(CDS).await;
    bench.origin.answer(&asked, "1", vec![item(CDS, "a", "1"), item(CDS, "b", "1")], &[]);
    client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    // Field 1 announces five bytes and has one: not even a name.
    let broken = Item {
        body: Some(Any { type_url: CDS.to_owned(), value: vec![0x0a, 0x05, b'b'] }),
        ..Item::default()
    };
    bench.origin.answer(&asked, "2", vec![item(CDS, "a", "2"), broken], &[]);
    bench.origin.expect_that(CDS, |ask| ask.error.is_some()).await;
    client.settle(CDS, &[("a", "2"), ("b", "1")]).await;
    client.quiet().await;
    assert_eq!(client.holds(CDS).len(), 2);
}

/// An element of another type than the response's type.
#[tokio::test]
async fn rly_37_sst_9_an_element_of_the_wrong_type_is_nacked() {
    for upstream in Variant::BOTH {
        let Some(bench) = Bench::scripted(|setup| setup.upstream(upstream).resource_timeout(60)).await else {
            return;
        };
        let mut client = bench.sotw("one").await;
        client.want(EDS, &["a", "b"]);
        let asked = bench.origin.expect(EDS).await;
        let stray = Item::new(RDS, "b", "1", "1");
        bench.origin.answer(&asked, "1", vec![item(EDS, "a", "1"), stray], &[]);
        bench.origin.expect_that(EDS, |ask| ask.error.is_some()).await;
        assert_eq!(client.take(EDS).await.names(), ["a"]);
        client.quiet().await;
    }
}

/// RLY-5: the first wildcard of a control plane comes in two messages, 20 ms apart. Clients that were there before lose
/// nothing; a client that comes for the first time waits for nothing.
#[tokio::test]
async fn rly_5_a_first_wildcard_in_two_messages_removes_nothing() {
    let Some(bench) = Bench::scripted(|setup| setup.resource_timeout(2)).await else { return };
    let names: Vec<String> = (0..40).map(|number| format!("c{number:02}")).collect();
    let items =
        |names: &[String]| names.iter().map(|name| Item::new(CDS, name, "1", "text")).collect::<Vec<_>>();
    let mut newcomer = bench.delta("one").await;
    let mut delta = bench.delta("one").await;
    let mut sotw = bench.sotw("one").await;
    let initial = names.iter().map(|name| (name.clone(), "before".to_owned())).collect();
    delta.send(Ask { initial, ..Ask::of(CDS).subscribe(&["*"]) });
    sotw.send(Ask::of(CDS).names(&["*"]).version("before"));
    newcomer.want(CDS, &["*"]);
    let asked = bench.origin.expect(CDS).await;
    bench.origin.answer(&asked, "1", items(&names[..20]), &[]);
    assert_eq!(newcomer.take(CDS).await.items.len(), 20, "a new client waits for nothing");
    pause(20).await;
    bench.origin.answer(&asked, "2", items(&names[20..]), &[]);
    let mut held = 0;
    while held < 40 {
        let answer = delta.take(CDS).await;
        assert_eq!(answer.removed, [""; 0], "{held} of 40 were there");
        held += answer.items.len();
    }
    // The whole set, after the quiet.
    assert_eq!(sotw.take(CDS).await.items.len(), 40);
    assert_eq!(newcomer.take(CDS).await.items.len(), 20);
}
