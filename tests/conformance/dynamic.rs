//! DYN-1 to DYN-8: dynamic parameters, in both variants on both sides.

use std::collections::BTreeMap;

use crate::bench::Bench;
use crate::support::control_plane::Recorded;
use crate::support::proto::{Constraints, ResourceLocator, SingleConstraint};
use crate::support::words::{Answer, Ask, Item};
use crate::support::{CDS, Client, EDS, Variant};

/// Constraints for `env=prod`.
fn env(value: &str) -> Constraints {
    let constraint = SingleConstraint { key: "env".to_owned(), value: Some(value.to_owned()) };
    Constraints { constraint: Some(constraint), ..Constraints::default() }
}

fn not(constraints: Constraints) -> Constraints {
    Constraints { not: Some(Box::new(constraints)), ..Constraints::default() }
}

/// `name`, for a client in this environment.
fn locator(name: &str, value: &str) -> ResourceLocator {
    let dynamic_parameters = BTreeMap::from([("env".to_owned(), value.to_owned())]);
    ResourceLocator { name: name.to_owned(), dynamic_parameters }
}

fn variant(type_url: &str, constraints: Constraints, text: &str) -> Item {
    Item { constraints: Some(constraints), ..Item::new(type_url, "x", text, text) }
}

fn ask(type_url: &str, locators: &[ResourceLocator]) -> Ask {
    Ask { locators: locators.to_vec(), ..Ask::of(type_url) }
}

/// Constraints and texts of the sent resources, by text.
fn contents(answer: &Answer) -> Vec<(Option<Constraints>, String)> {
    assert!(answer.items.iter().all(|item| item.name == "x"), "{answer:?}");
    let mut contents: Vec<_> =
        answer.items.iter().map(|item| (item.constraints.clone(), item.text())).collect();
    contents.sort_by(|one, other| one.1.cmp(&other.1));
    contents
}

/// The client asks for `x` with these parameters, for the first time on its stream; waits for the upstream
/// request.
async fn subscribe(bench: &Bench, client: &mut Client, type_url: &str, value: &str) -> Recorded {
    client.send(ask(type_url, &[locator("x", value)]));
    let wanted = locator("x", value);
    bench.origin.expect_that(type_url, |ask| ask.locators.contains(&wanted)).await
}

/// Receives and ACKs the next response; the ACK of SotW repeats the locators.
async fn take(client: &mut Client, type_url: &str, value: &str) -> Answer {
    let answer = client.next(type_url).await;
    let mut ack = client.ack_of(&answer);
    if client.variant == Variant::Sotw {
        ack.locators = vec![locator("x", value)];
    }
    client.send(ack);
    answer
}

async fn scripted(upstream: Variant) -> Option<Bench> {
    Bench::scripted(|setup| setup.upstream(upstream).resource_timeout(60)).await
}

#[tokio::test]
async fn dyn_1_dyn_2_dyn_7_every_client_is_given_its_variant() {
    for upstream in Variant::BOTH {
        for downstream in Variant::BOTH {
            let Some(bench) = scripted(upstream).await else { return };
            let (mut prod, mut test) =
                (bench.client(downstream, "one").await, bench.client(downstream, "two").await);
            subscribe(&bench, &mut prod, EDS, "prod").await;
            let asked = subscribe(&bench, &mut test, EDS, "test").await;
            let items = vec![variant(EDS, env("prod"), "p"), variant(EDS, env("test"), "t")];
            bench.origin.answer(&asked, "1", items, &[]);
            assert_eq!(contents(&take(&mut prod, EDS, "prod").await), [(Some(env("prod")), "p".to_owned())]);
            assert_eq!(contents(&take(&mut test, EDS, "test").await), [(Some(env("test")), "t".to_owned())]);
            // A change of one variant reaches only the clients of the variant.
            bench.origin.answer(&asked, "2", vec![variant(EDS, env("prod"), "p2")], &[]);
            assert_eq!(contents(&take(&mut prod, EDS, "prod").await), [(Some(env("prod")), "p2".to_owned())]);
            test.quiet().await;
        }
    }
}

/// The relay matches by itself: the control plane does not answer the second client's request.
#[tokio::test]
async fn dyn_2_dyn_3_a_variant_that_is_here_already_is_matched_here() {
    for upstream in Variant::BOTH {
        let Some(bench) = scripted(upstream).await else { return };
        let (mut one, mut two) = (bench.delta("one").await, bench.sotw("two").await);
        let asked = subscribe(&bench, &mut one, EDS, "stage").await;
        bench.origin.answer(&asked, "1", vec![variant(EDS, not(env("prod")), "n")], &[]);
        assert_eq!(contents(&one.take(EDS).await), [(Some(not(env("prod"))), "n".to_owned())]);
        two.send(ask(EDS, &[locator("x", "test")]));
        assert_eq!(contents(&two.take(EDS).await), [(Some(not(env("prod"))), "n".to_owned())]);
        // A request without parameters is for a name; such a client sees no constraints (DYN-8, WIR-3).
        let (mut three, mut four) = (bench.delta("three").await, bench.sotw("four").await);
        three.want(EDS, &["x"]);
        four.send(ask(EDS, &[ResourceLocator { name: "x".to_owned(), ..ResourceLocator::default() }]));
        assert_eq!(contents(&three.take(EDS).await), [(None, "n".to_owned())]);
        assert_eq!(contents(&four.take(EDS).await), [(None, "n".to_owned())]);
        // A client without a matching variant waits.
        one.send(ask(EDS, &[locator("x", "prod")]));
        one.quiet().await;
    }
}

#[tokio::test]
async fn dyn_4_of_several_one_is_taken_and_the_log_tells() {
    let Some(bench) = scripted(Variant::Delta).await else { return };
    let mut client = bench.delta("one").await;
    let asked = subscribe(&bench, &mut client, EDS, "prod").await;
    for version in ["1", "2"] {
        let items = vec![variant(EDS, env("prod"), version), variant(EDS, not(env("test")), version)];
        bench.origin.answer(&asked, version, items, &[]);
        assert_eq!(contents(&client.take(EDS).await), [(Some(env("prod")), version.to_owned())]);
    }
    let warnings = bench.warned_of("several variants").await;
    let of_variants = warnings.iter().filter(|line| line.contains("several variants")).count();
    assert_eq!(of_variants, 1, "{warnings:?}");
}

#[tokio::test]
async fn dyn_5_dyn_6_a_variant_takes_the_place_of_another_in_one_response() {
    let Some(bench) = scripted(Variant::Delta).await else { return };
    let mut client = bench.delta("one").await;
    let asked = subscribe(&bench, &mut client, EDS, "prod").await;
    bench.origin.answer(&asked, "1", vec![variant(EDS, not(env("test")), "old")], &[]);
    client.take(EDS).await;
    let exchange = Answer {
        type_url: EDS.to_owned(),
        items: vec![variant(EDS, env("prod"), "new")],
        removed_variants: vec![("x".to_owned(), not(env("test")))],
        ..Answer::default()
    };
    bench.origin.answer_raw(asked.stream, exchange);
    let answer = client.take(EDS).await;
    assert_eq!(contents(&answer), [(Some(env("prod")), "new".to_owned())]);
    assert_eq!(answer.removed_variants, [("x".to_owned(), not(env("test")))]);
    assert_eq!(answer.removed, [""; 0]);
    // Then the variant is removed.
    let removed_variants = vec![("x".to_owned(), env("prod"))];
    let removal = Answer { type_url: EDS.to_owned(), removed_variants, ..Answer::default() };
    bench.origin.answer_raw(asked.stream, removal);
    let answer = client.take(EDS).await;
    assert_eq!(answer.removed_variants, [("x".to_owned(), env("prod"))]);
    assert_eq!((answer.items.len(), answer.removed.len()), (0, 0));
}

/// For a SotW client of a full-state type each response is the whole set.
#[tokio::test]
async fn dyn_5_a_full_state_response_has_the_new_variant_only() {
    for upstream in Variant::BOTH {
        let Some(bench) = scripted(upstream).await else { return };
        let mut client = bench.sotw("one").await;
        let asked = subscribe(&bench, &mut client, CDS, "prod").await;
        bench.origin.answer(&asked, "1", vec![variant(CDS, not(env("test")), "old")], &[]);
        assert_eq!(
            contents(&take(&mut client, CDS, "prod").await),
            [(Some(not(env("test"))), "old".to_owned())]
        );
        let exchange = Answer {
            type_url: CDS.to_owned(),
            version: "2".to_owned(),
            items: vec![variant(CDS, env("prod"), "new")],
            removed_variants: vec![("x".to_owned(), not(env("test")))],
            ..Answer::default()
        };
        bench.origin.answer_raw(asked.stream, exchange);
        assert_eq!(contents(&take(&mut client, CDS, "prod").await), [(Some(env("prod")), "new".to_owned())]);
        let last = Answer {
            type_url: CDS.to_owned(),
            version: "3".to_owned(),
            removed_variants: vec![("x".to_owned(), env("prod"))],
            ..Answer::default()
        };
        bench.origin.answer_raw(asked.stream, last);
        assert_eq!(contents(&take(&mut client, CDS, "prod").await), []);
    }
}

/// A proxy may ask with several sets of parameters at once. A resource that matches two sets is sent once.
#[tokio::test]
async fn dyn_7_one_client_may_ask_with_several_parameters() {
    let Some(bench) = scripted(Variant::Delta).await else { return };
    for downstream in [Variant::Delta, Variant::Sotw] {
        let mut client = bench.client(downstream, "one").await;
        let locators = ["a", "b", "prod"].map(|value| locator("x", value));
        client.send(ask(EDS, &locators));
        if downstream == Variant::Delta {
            let asked = bench.origin.expect_that(EDS, |ask| ask.locators.len() == 3).await;
            let items = vec![variant(EDS, not(env("prod")), "n"), variant(EDS, env("prod"), "p")];
            bench.origin.answer(&asked, "1", items, &[]);
        }
        let answer = client.take(EDS).await;
        let both = [(Some(not(env("prod"))), "n".to_owned()), (Some(env("prod")), "p".to_owned())];
        assert_eq!(contents(&answer), both);
    }
}

#[tokio::test]
async fn del_12_a_name_without_a_variant_for_the_client_is_told_to_be_absent() {
    let Some(bench) = scripted(Variant::Delta).await else { return };
    let mut client = bench.delta("one").await;
    let asked = subscribe(&bench, &mut client, EDS, "prod").await;
    bench.origin.answer(&asked, "1", vec![], &["x"]);
    let answer = client.take(EDS).await;
    assert_eq!((answer.removed.as_slice(), answer.removed_variants.len()), (&["x".to_owned()][..], 0));
    // The relay drops the subscription after the unsubscription (RLY-60).
    bench.origin.answer(&asked, "2", vec![Item::new(EDS, "x", "2", "all")], &[]);
    assert_eq!(contents(&client.take(EDS).await), [(None, "all".to_owned())]);
    client.send(Ask { locators_unsubscribe: vec![locator("x", "prod")], ..Ask::of(EDS) });
    bench.origin.answer(&asked, "3", vec![Item::new(EDS, "x", "3", "other")], &[]);
    client.quiet().await;
}
