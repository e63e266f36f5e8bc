//! Bounds, and the order of members.

use std::collections::BTreeSet;

use super::bench::*;
use crate::proof::*;

const CONTENT: Members<'_> = &[("a", 1)];

/// Members with these teams.
fn bench(teams: &[&str]) -> Bench {
    let mut bench = Bench::new(ProofSettings::default(), &[("team", "red")]);
    bench.publish(wildcard(&clusters(), CONTENT));
    for (id, team) in teams.iter().enumerate() {
        bench.member(id as u64 + 1, &format!("m{id}"), &[("team", team)]);
    }
    bench
}

/// Answers all open samples with equal content.
fn answer(bench: &mut Bench) {
    while let Some(id) = bench.find(ShadowKind::Sample) {
        bench.answer(id, wildcard(&clusters(), CONTENT));
    }
}

#[test]
fn prf_19_no_more_samples_at_once_and_in_a_minute_than_the_settings_say() {
    let mut bench = bench(&["blue"; 100]);
    bench.pass(60_000);
    assert_eq!(bench.shadows.len(), 2, "nobody answers, so two are open");
    let begins = bench.opened.len();
    for _ in 0..600 {
        bench.pass(100);
        answer(&mut bench);
    }
    assert!((11..=12).contains(&(bench.opened.len() - begins)), "{}", bench.opened.len() - begins);
}

#[test]
fn prf_20_nothing_begins_while_clients_wait_and_witnesses_close_the_newest_first() {
    let mut bench = bench(&["blue", "blue", "green", "green"]);
    for _ in 0..400 {
        bench.pass(100);
        answer(&mut bench);
    }
    let witnesses: Vec<ShadowId> = bench.shadows.keys().copied().collect();
    assert_eq!(witnesses.len(), 2);
    let opened = bench.opened.len();
    let short = Surroundings { clients: 5, memory_percent: 90, ..Surroundings::default() };
    bench.proof.surroundings(short, bench.now);
    bench.pass(10);
    assert_eq!(bench.shadows.keys().copied().collect::<Vec<_>>(), [witnesses[0]]);
    bench.pass(1_100);
    assert!(bench.shadows.is_empty());
    bench.pass(600_000);
    assert_eq!(bench.opened.len(), opened);
    bench.proof.surroundings(Surroundings { clients: 5, ..Surroundings::default() }, bench.now);
    bench.pass(5_000);
    assert!(bench.opened.len() > opened);
}

#[test]
fn prf_19_a_witness_with_a_difference_has_the_next_slot() {
    let mut bench = bench(&["blue", "blue", "red", "red", "red", "red"]);
    let pace = ProofPace { streams: 1, ..ProofPace::default() };
    bench.proof.configure(ProofSettings { pace, ..ProofSettings::default() }, bench.now);
    let witness = loop {
        if let Some(witness) = bench.find(ShadowKind::Witness) {
            break witness;
        }
        bench.pass(100);
        answer(&mut bench);
    };
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(witness, wildcard(&clusters(), &[("a", 2)]));
    bench.pass(6_000);
    bench.differs();
    bench.pass(1_500);
    assert_eq!(bench.find(ShadowKind::Second), None, "the only slot is taken");
    let opened = bench.opened.len();
    bench.answer(sample, wildcard(&clusters(), CONTENT));
    bench.pass(1_100);
    assert_eq!(bench.opened.get(opened).map(|open| open.1.kind), Some(ShadowKind::Second));
}

#[test]
fn prf_20_all_shadows_close_when_the_relay_leaves() {
    let mut bench = bench(&["blue", "green"]);
    bench.wait_for(ShadowKind::Sample);
    bench.proof.surroundings(Surroundings { is_leaving: true, ..Surroundings::default() }, bench.now);
    bench.pass(10);
    assert!(bench.shadows.is_empty());
}

#[test]
fn prf_21_fingerprints_come_first_and_then_everyone_has_a_turn() {
    let mut bench = bench(&["blue", "blue", "blue", "blue", "green", "green", "red"]);
    let mut shown: Vec<String> = Vec::new();
    for _ in 0..6_000 {
        bench.pass(100);
        if let Some(id) = bench.find(ShadowKind::Sample) {
            shown.push(bench.shown(id));
            bench.answer(id, wildcard(&clusters(), CONTENT));
        }
    }
    let team = |name: &String| match &**name {
        "m0" | "m1" | "m2" | "m3" => "blue",
        "m4" | "m5" => "green",
        _ => "red",
    };
    let first: BTreeSet<&str> = shown.iter().take(3).map(team).collect();
    assert_eq!(first.len(), 3, "{shown:?}");
    assert_eq!(shown.iter().collect::<BTreeSet<_>>().len(), 7);
    assert_eq!(shown.len(), 7, "nobody twice within an hour");
    bench.pass(3_600_000);
    assert!(bench.opened.len() > 7);
}

#[test]
fn prf_21_a_client_that_comes_again_keeps_its_place_in_the_rotation() {
    let mut bench = bench(&["blue"]);
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), CONTENT));
    bench.proof.member_left(&class(), MemberId(1), bench.now);
    bench.member(77, "m0", &[("team", "blue")]);
    bench.pass(600_000);
    assert_eq!(bench.opened.len(), 1);
}

#[test]
fn prf_21_the_representative_is_no_sample() {
    let mut bench = Bench::new(ProofSettings::default(), &[]);
    bench.publish(wildcard(&clusters(), CONTENT));
    bench.pass(600_000);
    assert!(bench.opened.is_empty());
    let report = bench.report();
    assert_eq!(report.state, ClassState::Proved);
    assert_eq!(report.words, "The class has one client, so there is nobody who could differ.");
}

#[test]
fn prf_24_clients_with_the_id_of_the_representative_are_unproved() {
    let mut bench = Bench::new(ProofSettings::default(), &[("team", "red")]);
    bench.publish(wildcard(&clusters(), CONTENT));
    for (id, team) in [(1, "red"), (2, "blue"), (3, "green")] {
        bench.member(id, "rep", &[("team", team)]);
    }
    bench.pass(600_000);
    assert!(bench.opened.is_empty());
    let report = bench.report();
    assert_eq!((report.state, report.not_sampled), (ClassState::Unproved, 2));
    assert!(report.words.contains("2 members are never sampled"), "{}", report.words);
    let order = ProveOrder { class: class(), all: true, replicas: false, streams: 1 };
    let order = bench.proof.prove(&order, bench.now).unwrap();
    let refused = bench.proof.prove_state(order).unwrap().refused;
    assert!(refused.is_some_and(|words| words.contains("no server is shown an id twice")));
    assert_eq!(bench.proof.report(bench.now).unproved_members, 2);
}

#[test]
fn prf_24_a_sample_without_a_word_proves_nothing() {
    let mut bench = bench(&["blue", "green", "yellow"]);
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), CONTENT));
    // Nobody answers the others.
    bench.pass(1_800_000);
    assert!(bench.results().contains(&SampleResult::NoWord));
    let report = bench.report();
    assert_eq!((report.state, report.samples, report.sampled_fingerprints), (ClassState::Unproved, 1, 1));
    assert_eq!(bench.proof.report(bench.now).unproved_members, 2);
}

#[test]
fn prf_10_a_shadow_of_a_member_that_left_closes() {
    let mut bench = bench(&["blue"]);
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.proof.member_left(&class(), MemberId(1), bench.now);
    bench.pass(0);
    assert_eq!(
        bench.proof.poll_output().map(|output| matches!(output, Output::Close(id) if id == sample)),
        Some(true)
    );
}

#[test]
fn prf_24_the_report_says_how_much_is_proved() {
    let mut bench = bench(&["blue"; 40]);
    for _ in 0..4_000 {
        bench.pass(100);
        answer(&mut bench);
    }
    let report = bench.report();
    assert_eq!((report.samples, report.at_most, report.members), (40, Some(75), 41));
    assert!(
        report.words.starts_with("0 of 40 sampled members differ: fewer than 7.5 % do (95 %). "),
        "{}",
        report.words
    );
    assert!(
        report.words.contains("noticed within 10 s after its push; any other rule within 7 min"),
        "{}",
        report.words
    );
}

#[test]
fn prf_25_another_rule_ends_the_evidence() {
    let mut bench = bench(&["blue"]);
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), CONTENT));
    let node = node("rep", &[("team", "red")]);
    let facts = ClassFacts {
        rule: "node_classes[1]".into(),
        fields: fields(&node),
        node,
        is_never: false,
        split_from: None,
    };
    bench.proof.class(&class(), facts, bench.now);
    assert_eq!((bench.report().samples, bench.report().state), (0, ClassState::Unproved));
}

#[test]
fn prf_19_a_sample_with_a_new_difference_keeps_its_slot() {
    let mut bench = bench(&["blue"; 6]);
    let witness = bench.wait_for(ShadowKind::Sample);
    bench.answer(witness, wildcard(&clusters(), CONTENT));
    bench.pass(12_000);
    let samples: Vec<ShadowId> = bench.shadows.keys().copied().filter(|id| *id != witness).collect();
    assert_eq!(samples.len(), 2, "all slots are in use");
    let other = || wildcard(&clusters(), &[("a", 2)]);
    bench.answer(witness, other());
    bench.pass(5_400);
    // The witness wants a second now, and a sample has only begun to differ.
    bench.answer(samples[0], other());
    bench.differs();
    bench.pass(1_000);
    assert_eq!(bench.results(), [SampleResult::Equal]);
    assert!(samples.iter().all(|sample| bench.shadows.contains_key(sample)));
}

/// Before a server that may bear only one stream of an id.
#[test]
fn prf_16_a_shadow_gives_way_to_a_class_that_shows_its_node() {
    let mut bench = bench(&["blue"]);
    let sample = bench.wait_for(ShadowKind::Sample);
    let part = ClassKey::from("part");
    bench.proof.shows(&part, &node("m0", &[]), bench.now);
    bench.pass(20_000);
    assert_eq!((&*bench.closed, bench.opened.len()), (&[sample][..], 1));
    bench.proof.class_ended(&part, bench.now);
    bench.pass(20_000);
    assert_eq!(bench.opened.len(), 2, "the class shows the node no more");
}
