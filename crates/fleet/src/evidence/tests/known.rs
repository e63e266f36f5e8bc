//! Contents that a plan knows of a unit.

use crate::evidence::{KnownContents, PushSet, Rejecters, condemn, sum_up};
use crate::rollout::push::Differs;
use crate::rollout::report::Reason;
use crate::rollout::{Mode, Output, Plan, ReleaseDigest, Rollout, RolloutState, UnitId, UnitPush};
use sluice_engine::lanes::tests::bench::*;

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
    ReleaseDigest::of(&bench.published.live, &plan.gated)
}

fn from_candidate(known: &mut KnownContents, bench: &Bench, last: u64) -> bool {
    let compared = known.compare(&plan(), UNIT, &bench.published, true, last);
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

/// A push that removes all is no return to the time before anything was known, which all clients had.
#[test]
fn wav_8_no_content_is_not_the_same_as_unknown_content() {
    for (collection, kind, absent) in [
        (names(&["a"]), CollectionKind::Names, vec!["a"]),
        (Collection::Wildcard, CollectionKind::Wildcard, vec![]),
    ] {
        let mut bench = Bench::new();
        bench.watch(1, &collection);
        let unknown = digest(&bench);
        bench.say(kind, &[], &absent);
        assert_ne!(digest(&bench), unknown, "{kind:?}");
    }
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
    let compared = known.compare(&plan(), UNIT, &bench.published, false, 1);
    assert_eq!(compared.differs, Differs { from_stable: false, from_candidate: true });
    assert!(compared.has_forgotten && known.candidate(UNIT).is_none());
}

fn changes(known: &KnownContents, bench: &Bench, units: &[UnitId]) -> (Vec<(String, u128)>, bool) {
    let stable = |unit| (unit == UNIT).then(|| bench.published.stable().clone());
    let (set, are_all_known) = known.changes(&plan(), units, &stable);
    let types = set.units().iter().flat_map(|unit| &unit.types);
    let names = types.flat_map(|of| of.names());
    let found = names.filter_map(|of| Some((of.name.as_str().to_owned(), of.version()?.0)));
    (found.collect(), are_all_known)
}

/// QUA-2: the push stays halted longer than its clients are counted, and over a restart.
#[test]
fn qua_2_the_changes_of_a_halted_push_are_known_until_another_push() {
    let mut bench = holding();
    let mut known = KnownContents::default();
    bench.operate(|lanes| lanes.cut(1));
    known.know(UNIT, bench.published.candidate_of(1).unwrap().clone());
    bench.operate(|lanes| lanes.go_back(1));
    let halted = digest(&bench);
    let brought = (vec![("a".to_owned(), 2)], true);
    assert_eq!(changes(&known, &bench, &[UNIT]), brought);
    bench.say(CollectionKind::Wildcard, &[("a", 3)], &[]);
    from_candidate(&mut known, &bench, 1);
    assert_eq!(changes(&known, &bench, &[UNIT]), brought, "whatever waits");
    assert_eq!(changes(&known, &bench, &[UNIT, UnitId(8)]), (brought.0.clone(), false), "a unit is gone");

    // After a restart the content is known when the server says it again.
    let mut known = KnownContents::default();
    known.halted_before(UNIT, halted);
    assert_eq!(changes(&known, &bench, &[UNIT]), (Vec::new(), false));
    bench.say(CollectionKind::Wildcard, &[("a", 2)], &[]);
    from_candidate(&mut known, &bench, 1);
    assert_eq!(changes(&known, &bench, &[UNIT]), brought);
}

/// Begins a push with the newest content of the bench. Returns the machine after that.
fn pushed(bench: &mut Bench, rejecters: &mut Rejecters, number: u64) -> Rollout {
    let mut rollout = Rollout::new(Arc::new(plan()));
    rollout.compared(UNIT, Differs { from_stable: true, from_candidate: true }, bench.now);
    let due = rollout.poll_timeout().unwrap();
    rollout.handle_timeout(due);
    assert_eq!(rollout.poll_output(), Some(Output::Cut { push: 1, units: vec![UNIT] }));
    bench.operate(|lanes| lanes.cut(number));
    let candidate = bench.published.candidate_of(number).unwrap();
    let (of_unit, push) = sum_up(&plan(), UNIT, bench.published.stable(), candidate, None);
    // The bench has no server that could be heard.
    let mut pushed = [UnitPush { is_current: true, ..push }];
    condemn(&mut pushed, rejecters.condemned_in(&PushSet::new(vec![of_unit]), due));
    rollout.ready(pushed.into(), due);
    rollout
}

/// GRD-8: the control plane says a condemned content again, with other changes.
#[test]
fn grd_8_a_push_with_a_content_that_an_operator_condemned_halts_before_its_first_client() {
    let (mut bench, mut rejecters) = (holding(), Rejecters::default());
    assert_eq!(pushed(&mut bench, &mut rejecters, 1).state(), RolloutState::Waving);
    let mut known = KnownContents::default();
    known.know(UNIT, bench.published.candidate_of(1).unwrap().clone());
    let stable = bench.published.stable().clone();
    let (set, _) = known.changes(&plan(), &[UNIT], &|_| Some(stable.clone()));
    assert!(rejecters.condemn(&set, &|_, name| name.as_str() == "a", bench.now));
    bench.operate(|lanes| lanes.go_back(1));
    bench.say(CollectionKind::Wildcard, &[("a", 1)], &[]);

    bench.say(CollectionKind::Wildcard, &[("a", 2), ("b", 1), ("c", 1)], &[]);
    let rollout = pushed(&mut bench, &mut rejecters, 2);
    let push = rollout.under_way().unwrap();
    assert!(push.steps.is_empty() && push.state == RolloutState::Halted, "{push:?}");
    let reason = push.verdict.clone().map(|verdict| verdict.reason);
    let Some(Reason::Condemned(of)) = reason else { panic!("{reason:?}") };
    assert_eq!((of.1.as_str(), of.2), ("a", Version(2)));

    // Once the content is another one, its names go their way.
    bench.operate(|lanes| lanes.go_back(2));
    bench.say(CollectionKind::Wildcard, &[("a", 3), ("b", 1), ("c", 1)], &[]);
    assert_eq!(pushed(&mut bench, &mut rejecters, 3).state(), RolloutState::Waving);
}
