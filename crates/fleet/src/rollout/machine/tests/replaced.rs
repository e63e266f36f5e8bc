//! Clients that go away while a step is under way, and the others that take their place.

use super::*;
use crate::rollout::hook::{Hook, HookAnswer, HookVerdict};

const LOST: Counts = Counts { lost: 1, ..NONE };
const DEPARTED: Counts = Counts { departed: 1, ..NONE };

const NONE: Counts = Counts {
    unaffected: 0,
    accepted: 0,
    pending: 0,
    rejected: 0,
    rejected_again: 0,
    silent: 0,
    overtaken: 0,
    lost: 0,
    departed: 0,
    unjudged: 0,
};

/// So many admitted clients have a voice, and others have these buckets.
fn there(voices: u64, smallest: &[u16], counts: Counts) -> Tally {
    let control = Control { clients: 20, lost: 0 };
    Tally { voices, smallest: smallest.to_vec(), control, ..admitted(counts) }
}

/// A push of an enforcing plan whose first step has admitted the client with bucket 700 at 2 s.
fn canary(plan: Plan) -> World {
    let mut world = World::of(Plan { mode: Mode::Enforce, ..plan });
    world.push_of(&[1]);
    world.tally(2_000, there(0, &[700, 4_000], NONE));
    world
}

fn each_second(world: &mut World, seconds: std::ops::RangeInclusive<u64>, tally: &Tally) {
    seconds.for_each(|second| world.tally(second * 1_000, tally.clone()));
}

/// The only canary is replaced under another id, and the plan does not wait for ever.
#[test]
fn wav_14_another_client_takes_the_place_of_a_canary_that_is_gone() {
    let mut world = canary(plan());
    assert_eq!(world.step(), (1, 701));
    each_second(&mut world, 3..=9, &there(1, &[4_000], accepted(1)));
    each_second(&mut world, 10..=19, &there(0, &[4_000, 5_000], LOST));
    assert_eq!(world.step(), (1, 701), "it may come back");
    each_second(&mut world, 20..=20, &there(0, &[4_000, 5_000], LOST));
    assert_eq!((world.state(), world.step()), (RolloutState::Waving, (1, 4_001)));
    each_second(&mut world, 21..=49, &there(1, &[5_000], Counts { lost: 1, ..accepted(1) }));
    assert_eq!(
        world.step(),
        (1, 4_001),
        "the bake begins anew: nobody has accepted the push that is here or left in peace"
    );
    each_second(&mut world, 50..=50, &there(1, &[5_000], Counts { lost: 1, ..accepted(1) }));
    assert_eq!(world.step().0, 2);
}

#[test]
fn wav_14_a_client_that_reconnects_needs_nobody_in_its_place() {
    let mut world = canary(plan());
    for second in 3..=300 {
        let is_away = second % 12 < 9;
        let counts = if is_away { Counts { departed: 1, ..NONE } } else { Counts { pending: 1, ..NONE } };
        world.tally(second * 1_000, there(u64::from(!is_away), &[4_000], counts));
        if world.step().0 > 1 {
            break;
        }
        assert_eq!(world.step(), (1, 701));
    }
}

#[test]
fn wav_14_as_many_clients_are_admitted_as_are_missing() {
    let steps = vec![Step { at_least: 3, threshold: 0, ..plan().steps[0].clone() }];
    let mut world = World::of(Plan { mode: Mode::Enforce, steps, ..plan() });
    world.push_of(&[1]);
    world.tally(2_000, there(0, &[10, 20, 30], NONE));
    assert_eq!(world.step(), (1, 31));
    each_second(&mut world, 3..=13, &there(2, &[500, 600, 700], accepted(2)));
    assert_eq!(world.step(), (1, 501), "one of three is gone");
    each_second(&mut world, 14..=24, &there(3, &[600, 700], accepted(3)));
    assert_eq!(world.step(), (1, 501));
}

/// The second loss is evidence: the push kills its clients, and gets no third.
#[test]
fn wav_12_a_push_that_kills_the_canary_and_the_client_in_its_place_halts() {
    let mut world = canary(plan());
    each_second(&mut world, 3..=13, &there(0, &[4_000, 5_000], LOST));
    assert_eq!(world.step(), (1, 4_001));
    world.tally(15_000, there(0, &[5_000], Counts { lost: 2, ..NONE }));
    assert_eq!((world.state(), world.step()), (RolloutState::Halted, (1, 4_001)));
}

/// The client of a small class dies, and the clients of another class do not wait.
#[test]
fn wav_14_the_place_of_a_dead_client_is_taken_by_one_of_another_unit() {
    let mut world = World::enforced(&[1, 2]);
    let others: Vec<u16> = (0..20).map(|client| 5_000 + 100 * client).collect();
    world.tally(2_000, there(0, &[&[150][..], &others].concat(), NONE));
    assert_eq!(world.step(), (1, 151));
    each_second(&mut world, 3..=13, &Tally { blamed: vec![unit(1)], ..there(0, &others, LOST) });
    assert_eq!(world.step(), (1, 5_001));
    each_second(&mut world, 14..=200, &there(1, &others[1..], Counts { lost: 1, ..accepted(1) }));
    assert_eq!((world.state(), world.past()), (RolloutState::Open, vec![(1, Outcome::Finished)]));
}

#[test]
fn wav_12_what_a_client_accepted_before_it_left_is_evidence() {
    let mut world = canary(plan());
    each_second(&mut world, 3..=30, &there(0, &[], DEPARTED));
    assert_eq!(world.step().0, 1, "before the bake");
    each_second(&mut world, 31..=31, &there(0, &[], DEPARTED));
    assert_eq!((world.step().0, world.push().notes.len()), (2, 0));
    each_second(&mut world, 32..=200, &there(0, &[], DEPARTED));
    assert_eq!(world.past(), [(1, Outcome::Finished)], "it was judged, also in the final bake");
}

/// Many clients that came and went are no evidence for those that say nothing.
#[test]
fn wav_12_connected_clients_decide_before_those_that_left() {
    let mut world = canary(plan());
    let silent = Counts { departed: 1_000, pending: 1, ..NONE };
    each_second(&mut world, 3..=100, &there(1, &[], silent));
    assert_eq!(world.step().0, 1);
    each_second(&mut world, 101..=101, &there(0, &[], Counts { departed: 2, lost: 1, ..NONE }));
    assert_eq!(world.step().0, 1, "one of three was lost");
    each_second(&mut world, 102..=102, &there(0, &[], Counts { departed: 20, lost: 1, ..NONE }));
    assert_eq!(world.step().0, 2);
}

/// Nobody else is there. The loss expires, in the final bake as well.
#[test]
fn wav_12_a_step_whose_only_client_died_passes_when_the_loss_has_expired() {
    let labels =
        Step { clients: Some(Default::default()), threshold: 0, at_least: 0, ..plan().steps[0].clone() };
    for plan in [plan(), Plan { steps: vec![labels], ..plan() }] {
        let mut world = World::of(Plan { mode: Mode::Enforce, ..plan });
        world.push_of(&[1]);
        world.tally(2_000, Tally { labelled: vec![1], ..there(1, &[], accepted(1)) });
        each_second(&mut world, 3..=600, &there(0, &[], LOST));
        assert_eq!((world.state(), world.step().0), (RolloutState::Waving, 1));
        each_second(&mut world, 601..=601, &there(0, &[], NONE));
        assert_eq!((world.step().0, world.push().notes.as_slice()), (2, &[Note::NobodyInStep(1)][..]));
    }
    let mut world = World::pushed(plan());
    each_second(&mut world, 2..=160, &admitted(accepted(9)));
    assert_eq!(world.state(), RolloutState::Settling);
    each_second(&mut world, 161..=761, &admitted(LOST));
    assert_eq!(world.state(), RolloutState::Settling);
    each_second(&mut world, 762..=762, &admitted(NONE));
    assert_eq!(world.past(), [(1, Outcome::Finished)]);
}

/// A client that waits in a place is no reason to pass the step, before another has it.
#[test]
fn wav_14_a_step_does_not_pass_while_it_waits_for_another_client() {
    let mut world = canary(plan());
    each_second(&mut world, 3..=24, &there(1, &[4_000], Counts { pending: 1, ..NONE }));
    each_second(&mut world, 25..=34, &there(0, &[4_000], NONE));
    assert_eq!(world.step(), (1, 701), "the bake is over, and nobody is there");
    each_second(&mut world, 35..=35, &there(0, &[4_000], NONE));
    assert_eq!(world.step(), (1, 4_001));
}

/// One broken client stops no plan, if another is affected (QUA-4).
#[test]
fn qua_4_a_step_of_known_rejecters_asks_for_another_client() {
    let steps = vec![Step { at_least: 0, ..plan().steps[0].clone() }];
    let mut world = World::of(Plan { mode: Mode::Enforce, steps, ..plan() });
    world.push_of(&[1]);
    let again = Counts { rejected_again: 1, ..NONE };
    world.tally(2_000, there(0, &[4_000, 5_000], Counts { pending: 1, ..NONE }));
    each_second(&mut world, 3..=12, &there(0, &[4_000, 5_000], again));
    assert_eq!(world.step(), (1, 100));
    each_second(&mut world, 13..=13, &there(0, &[4_000, 5_000], again));
    assert_eq!(world.step(), (1, 4_001));
    each_second(&mut world, 14..=44, &there(1, &[5_000], Counts { rejected_again: 1, ..accepted(1) }));
    assert_eq!(world.step().0, 2);
}

#[test]
fn wav_18_nobody_takes_a_place_while_the_clocks_stand() {
    let mut world = canary(plan());
    world.run(2_500, |rollout, now| rollout.lost(unit(1), now));
    each_second(&mut world, 3..=60, &there(0, &[4_000], LOST));
    assert_eq!((world.state(), world.step()), (RolloutState::Paused, (1, 701)));
    world.run(60_500, |rollout, now| rollout.heard(unit(1), now));
    each_second(&mut world, 61..=70, &there(0, &[4_000], LOST));
    assert_eq!(world.step(), (1, 701));
    each_second(&mut world, 71..=71, &there(0, &[4_000], LOST));
    assert_eq!(world.step(), (1, 4_001));
}

/// A paused push goes on by itself: its clients are replaced, too.
#[test]
fn wav_14_another_client_takes_the_place_in_a_push_that_lacks_evidence() {
    let halt_on = HaltOn { patience: Duration::from_secs(1), ..HaltOn::default() };
    let mut world = canary(Plan { halt_on, ..plan() });
    each_second(&mut world, 3..=40, &there(1, &[4_000], Counts { silent: 1, ..NONE }));
    assert_eq!(world.verdict().reason, Reason::NoEvidence { accepted: 0, clients: 1 });
    each_second(&mut world, 41..=51, &there(0, &[4_000], NONE));
    assert_eq!(world.step(), (1, 4_001));
    each_second(&mut world, 52..=82, &there(1, &[], accepted(1)));
    assert_eq!((world.state(), world.step().0), (RolloutState::Waving, 2));
}

fn go(world: &mut World, ms: u64, step: u8) {
    let answer = HookAnswer { verdict: HookVerdict::Go, reason: "".into() };
    world.run(ms, |rollout, now| rollout.hook_said(1, step, answer, now));
}

/// A plan with a hook, whose canary has accepted the push for 29 seconds.
fn hooked() -> World {
    let hook = Hook { url: "http://hook/".into(), settings: Default::default() };
    let mut world = World::of(Plan { mode: Mode::Enforce, hook: Some(hook), ..plan() });
    world.push_of(&[1]);
    go(&mut world, 1_100, 0);
    world.tally(2_000, there(0, &[700, 4_000], NONE));
    each_second(&mut world, 3..=31, &there(1, &[4_000], accepted(1)));
    world
}

/// The hook spoke of the former clients.
#[test]
fn wav_20_the_hook_is_asked_again_about_other_clients() {
    let mut world = hooked();
    each_second(&mut world, 32..=32, &there(0, &[4_000], DEPARTED));
    assert_eq!(world.asked, [(1, 0), (1, 1)]);
    each_second(&mut world, 33..=42, &there(0, &[4_000], DEPARTED));
    assert_eq!(world.step(), (1, 4_001));
    go(&mut world, 42_500, 1);
    each_second(&mut world, 43..=43, &there(1, &[], Counts { pending: 1, ..NONE }));
    each_second(&mut world, 44..=60, &there(1, &[], accepted(1)));
    assert_eq!((world.step().0, world.asked.as_slice()), (1, &[(1, 0), (1, 1), (1, 1)][..]));
    go(&mut world, 60_500, 1);
    each_second(&mut world, 61..=61, &there(1, &[], accepted(1)));
    assert_eq!(world.step().0, 2);
}

/// An answer that was under way when others took the place is about the former clients, however late it
/// comes.
#[test]
fn wav_20_a_late_answer_about_former_clients_opens_nothing() {
    let mut world = hooked();
    each_second(&mut world, 32..=42, &there(0, &[4_000], DEPARTED));
    assert_eq!((world.step(), world.asked.as_slice()), ((1, 4_001), &[(1, 0), (1, 1)][..]));
    each_second(&mut world, 43..=45, &there(1, &[], accepted(1)));
    go(&mut world, 45_500, 1);
    each_second(&mut world, 46..=60, &there(1, &[], accepted(1)));
    assert_eq!((world.step().0, world.asked.as_slice()), (1, &[(1, 0), (1, 1), (1, 1)][..]));
    go(&mut world, 60_500, 1);
    each_second(&mut world, 61..=61, &there(1, &[], accepted(1)));
    assert_eq!(world.step().0, 2);
}
