//! Contents that a plan knows of a unit.

use super::*;
use crate::engine::evidence::KnownContents;
use crate::engine::rollout::push::Differs;
use crate::engine::rollout::{Mode, ReleaseDigest, UnitId};

const UNIT: UnitId = UnitId(7);

fn plan() -> Plan {
    Plan { mode: Mode::Enforce, ..Plan::new("edge") }
}

/// A unit that holds version 2 back.
fn holding() -> Bench {
    let mut bench = Bench::new();
    bench.watch(1, &Collection::Wildcard);
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    bench
}

fn digest(bench: &Bench) -> ReleaseDigest {
    let plan = plan();
    ReleaseDigest::of(&bench.published.live, &|type_url| plan.gated.contains(type_url))
}

fn from_candidate(known: &mut KnownContents, bench: &Bench, last: u64) -> bool {
    let compared = known.compare(&plan(), UNIT, &bench.published, (true, last));
    assert!(compared.differs.from_stable && !compared.has_forgotten);
    compared.differs.from_candidate
}

#[test]
fn wav_8_a_content_that_was_halted_before_a_restart_is_no_news() {
    let bench = holding();
    let mut known = KnownContents::default();
    assert!(from_candidate(&mut known, &bench, 1), "a change");
    known.halted_before(UNIT, digest(&bench));
    assert!(!from_candidate(&mut known, &bench, 1));
    assert!(!known.awaits(UNIT) && known.candidate(UNIT).is_some(), "it is the latest candidate from now on");
}

/// Found by the simulator (1125899922080816).
#[test]
fn wav_17_what_was_halted_before_a_restart_is_news_once_another_push_has_begun() {
    let mut bench = holding();
    let mut known = KnownContents::default();
    known.halted_before(UNIT, digest(&bench));
    bench.say(CollectionKind::Wildcard, &[("a", 3)], &[]);
    bench.operate(|lanes| lanes.cut(2));
    known.know(UNIT, bench.published.candidate_of(2).unwrap().clone());
    known.begin(UNIT);
    bench.operate(|lanes| lanes.go_back(2));
    assert!(!from_candidate(&mut known, &bench, 2), "halted");
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    assert!(from_candidate(&mut known, &bench, 2), "other content");
    bench.say(CollectionKind::Wildcard, &[("a", 3)], &[]);
    assert!(!from_candidate(&mut known, &bench, 2), "the halted content is back");
}

#[test]
fn wav_17_a_unit_with_stable_content_has_no_candidate() {
    let mut bench = holding();
    let mut known = KnownContents::default();
    bench.operate(|lanes| lanes.cut(1));
    known.know(UNIT, bench.published.candidate_of(1).unwrap().clone());
    bench.operate(|lanes| lanes.go_back(1));
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);
    let compared = known.compare(&plan(), UNIT, &bench.published, (false, 1));
    assert_eq!(compared.differs, Differs { from_stable: false, from_candidate: true });
    assert!(compared.has_forgotten && known.candidate(UNIT).is_none());
}
