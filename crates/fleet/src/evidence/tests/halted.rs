//! Contents of halted pushes, compared with those that a source serves.

use sluice_engine::lanes::tests::bench::*;

use crate::evidence::{self, compare};
use crate::rollout::push::Differs;
use crate::rollout::{Mode, Plan};

/// A halted content is compared as clients would get it.
#[test]
fn wav_17_a_halted_content_has_its_names_in_a_wildcard_that_is_asked_for_since() {
    let mut bench = held_by_name();
    bench.operate(|lanes| lanes.cut(1));
    let plan = Plan::new("edge");
    let mut candidate = bench.published.candidate_of(1).unwrap().clone();
    bench.operate(|lanes| lanes.go_back(1));
    let mut differs = |bench: &Bench| {
        evidence::renew(&plan, &mut candidate, &bench.published, 1);
        evidence::compare(&plan, &bench.published, Some(&candidate), true).from_candidate
    };
    bench.say(CollectionKind::Names, &[("changed", 3)], &[]);
    assert!(differs(&bench));
    bench.watch(2, &Collection::Wildcard);
    bench.say_members(&[("changed", 3), ("comes", 2), ("stays", 1)], true);
    assert!(differs(&bench));
    bench.say(CollectionKind::Names, &[("changed", 2)], &[]);
    assert!(differs(&bench), "the wildcard has another content");
    bench.say(CollectionKind::Wildcard, &[("changed", 2)], &[]);
    assert!(!differs(&bench), "as halted");
}

/// The content of a halted push has what clients asked for since: its next change is news.
#[test]
fn wav_17_a_candidate_that_went_back_takes_over_what_was_asked_for_since() {
    let mut bench = Bench::new();
    bench.watch(1, &names(&["a"]));
    bench.say(CollectionKind::Names, &[("a", 1)], &[]);
    bench.say(CollectionKind::Names, &[("a", 2)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    let plan = Plan::new("edge");
    let mut candidate = bench.published.candidate_of(1).unwrap().clone();
    bench.operate(|lanes| lanes.go_back(1));
    let mut differs = |bench: &Bench| {
        evidence::renew(&plan, &mut candidate, &bench.published, 1);
        evidence::compare(&plan, &bench.published, Some(&candidate), true).from_candidate
    };
    bench.watch(2, &names(&["b"]));
    bench.say(CollectionKind::Names, &[("b", 1)], &[]);
    bench.watch(3, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("c", 1)], &[]);
    assert!(!differs(&bench), "first answers");
    bench.say(CollectionKind::Names, &[("b", 2)], &[]);
    assert!(differs(&bench));
    bench.say(CollectionKind::Names, &[("b", 1)], &[]);
    assert!(!differs(&bench));
    bench.say(CollectionKind::Wildcard, &[("c", 2)], &[]);
    assert!(differs(&bench));
}

/// A class sleeps while its push is halted, or on its way: nothing was taken back.
#[test]
fn wav_17_names_that_the_source_forgot_are_not_taken_back() {
    for is_halted in [false, true] {
        let plan = Plan { mode: Mode::Enforce, ..Plan::new("edge") };
        let mut bench = Bench::new();
        bench.watch(1, &Collection::Wildcard);
        bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
        bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
        bench.operate(|lanes| lanes.cut(1));
        bench.operate(|lanes| lanes.give(1));
        let candidate = bench.published.candidate_of(1).unwrap().clone();
        if is_halted {
            bench.operate(|lanes| lanes.go_back(1));
        }
        bench.source.forget(SessionId(1), bench.now);
        bench.now = bench.now + std::time::Duration::from_secs(3_600);
        bench.source.handle_timeout(bench.now);
        bench.settle();
        let compared = |bench: &Bench, is_kept| compare(&plan, &bench.published, Some(&candidate), is_kept);
        let is_away = Differs { from_stable: true, from_candidate: false };
        assert_eq!(compared(&bench, true), is_away, "halted: {is_halted}");
        let is_back = Differs { from_stable: false, from_candidate: false };
        assert_eq!(compared(&bench, false), is_back, "no push stands");
        bench.watch(2, &Collection::Wildcard);
        bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
        assert_eq!(compared(&bench, true), is_away, "the same content again");
        bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
        assert_eq!(compared(&bench, true), Differs { from_stable: false, from_candidate: true });
    }
}

/// The server changed its mind while a client asked by name for what the halted content has as a member. The
/// halted content has one content for all ways to ask.
#[test]
fn wav_17_a_halted_content_has_its_members_for_those_who_ask_by_name_too() {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    bench.operate(|lanes| lanes.cut(1));
    let plan = Plan::new("edge");
    let mut candidate = bench.published.candidate_of(1).unwrap().clone();
    bench.operate(|lanes| lanes.go_back(1));
    let mut differs = |bench: &Bench| {
        evidence::renew(&plan, &mut candidate, &bench.published, 1);
        evidence::compare(&plan, &bench.published, Some(&candidate), true).from_candidate
    };
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    assert!(differs(&bench));
    bench.watch(2, &names(&["a"]));
    bench.say(CollectionKind::Names, &[("a", 1)], &[]);
    assert!(differs(&bench));
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    bench.say(CollectionKind::Names, &[("a", 2)], &[]);
    assert!(!differs(&bench), "as halted");
}
