//! Plans that outlive their process.

use std::collections::BTreeSet;

use super::*;
use crate::rollout::command::{Command, CommandError, PinFor};

/// The plan of another process, with an unequal clock, that began so many seconds after the record was
/// written.
fn restored(world: &World, seconds: u64) -> World {
    let record = world.rollout.record(at(world.now));
    let mut other = World::of(enforcing());
    let passed = Duration::from_secs(seconds);
    other.rollout = Rollout::restore(Arc::new(enforcing()), record, passed, at(0));
    other.run(0, Rollout::handle_timeout);
    other
}

#[test]
fn wav_8_a_halted_push_is_halted_after_a_restart() {
    let mut world = World::enforced(&[1, 2]);
    world.tally(2_000, Tally { blamed: vec![unit(1)], ..admitted(Counts { rejected: 1, ..accepted(9) }) });
    let mut world = restored(&world, 60);
    assert_eq!((world.state(), world.push().number), (RolloutState::Halted, 1));
    world.run(1_000, |rollout, _| rollout.found(unit(2), unit(72)));
    world.live(1_000, 72, false, true);
    assert_eq!(world.state(), RolloutState::Halted, "unit 1 is not here yet");
    world.run(2_000, |rollout, _| rollout.found(unit(1), unit(71)));
    world.live(2_000, 71, true, false);
    assert_eq!(
        (world.push().units.as_slice(), world.push().blamed.as_slice()),
        (&[unit(71), unit(72)][..], &[unit(71)][..])
    );
    world.run(60_000, Rollout::handle_timeout);
    assert_eq!(world.cuts, []);
    world.live(61_000, 71, true, true);
    world.timer(62_000);
    assert_eq!(world.cuts, [(2, vec![unit(71)])]);
}

#[test]
fn tru_7_what_is_held_back_is_as_old_after_a_restart() {
    let behind = |world: &World| world.rollout.report().behind_from;
    let age = |world: &World| behind(world).map(|from| from.age(at(world.now)));
    let secs = |seconds| Some(Duration::from_secs(seconds));
    // A halted push.
    let mut world = World::enforced(&[1]);
    world.tally(2_000, Tally { blamed: vec![unit(1)], ..admitted(Counts { rejected: 1, ..accepted(9) }) });
    world.run(100_000, Rollout::handle_timeout);
    let mut other = restored(&world, 60);
    assert_eq!(age(&other), secs(160), "older than the process");
    other.run(5_000, |rollout, _| rollout.found(unit(1), unit(71)));
    assert_eq!((age(&other), age(&restored(&other, 10))), (secs(165), secs(175)));
    // Changes without a push, of which the new process hears later: a unit is behind once it is known to
    // differ.
    let mut world = World::of(enforcing());
    world.command(0, Command::Freeze { length: Duration::from_secs(7_200) }).unwrap();
    [1, 2].into_iter().for_each(|number| world.live(1_000, number, true, true));
    world.run(101_000, Rollout::handle_timeout);
    let mut other = restored(&world, 50);
    for number in [1, 2] {
        other.run(1_000, |rollout, _| rollout.found(unit(number), unit(70 + number)));
    }
    assert_eq!((age(&other), age(&restored(&restored(&other, 0), 9))), (None, None));
    other.live(2_000, 71, false, false);
    let mut third = restored(&other, 9);
    third.live(3_000, 72, true, true);
    assert_eq!(age(&third), secs(100 + 50 + 2 + 9 + 3), "after two restarts");
    // The server of the other unit took its change back meanwhile.
    other.run(4_000, |rollout, _| rollout.answered(unit(71)));
    other.live(5_000, 71, true, true);
    assert_eq!(age(&other), Some(Duration::ZERO));
    other.live(5_000, 72, true, true);
    assert_eq!(age(&other), secs(155));
    other.run(6_000, |rollout, now| rollout.gone(unit(72), now));
    assert_eq!(age(&other), secs(1));
}

#[test]
fn wav_8_a_push_on_its_way_begins_anew_after_a_restart() {
    let mut world = World::enforced(&[1]);
    (2..=40).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!(world.step(), (2, 1_000));
    let mut world = restored(&world, 60);
    assert_eq!(world.state(), RolloutState::Open);
    world.run(1_000, |rollout, _| rollout.found(unit(1), unit(71)));
    world.live(1_000, 71, true, true);
    world.timer(2_000);
    assert_eq!(world.cuts, [(2, vec![unit(71)])]);
    world.ready(2_000, vec![unit_push(71)]);
    assert_eq!((world.state(), world.step().0), (RolloutState::Waving, 1));
}

#[test]
fn wav_8_a_restart_does_not_undo_an_operators_pause() {
    let mut world = World::enforced(&[1, 2]);
    world.command(2_000, Command::Pause { push: 1 }).unwrap();
    let world = restored(&world, 60);
    assert_eq!((world.state(), &world.verdict().reason), (RolloutState::Halted, &Reason::Restarted));
    assert_eq!(world.push().blamed, [unit(1), unit(2)]);
}

#[test]
fn wav_8_freezes_and_pins_end_when_they_would_have_ended() {
    let mut world = World::of(enforcing());
    world.command(0, Command::Freeze { length: Duration::from_secs(600) }).unwrap();
    let world = restored(&world, 200);
    assert_eq!(world.rollout.report().frozen_until, Some(at(400_000)));
    assert_eq!(restored(&world, 601).state(), RolloutState::Open);
    let mut world = World::enforced(&[1]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    let until = PinFor::Length(Duration::from_secs(600));
    world.command(200_000, Command::Pin { release: 0, until }).unwrap();
    let world = restored(&world, 100);
    let report = world.rollout.report();
    assert_eq!((report.state, report.releases), (RolloutState::Pinned, vec![0]));
    assert_eq!(world.rollout.poll_timeout(), Some(at(500_000)));
}

/// HIS-3: the record has digests. Only the stable content outlives the process.
#[test]
fn his_3_contents_of_before_a_restart_cannot_be_served() {
    let mut world = World::enforced(&[1]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!(world.rollout.report().releases, [1, 0]);
    let mut restored = restored(&world, 60);
    restored.run(1_000, |rollout, _| rollout.found(unit(1), unit(71)));
    assert_eq!(restored.rollout.report().releases, [1]);
    let pin = |release| Command::Pin { release, until: PinFor::Unpin };
    let lost = Err(CommandError::LostRelease);
    assert_eq!(restored.command(2_000, pin(0)), lost);
    assert_eq!(restored.command(2_000, Command::Rollback { push: 1 }), lost);
    assert_eq!(restored.command(2_000, pin(9)), Err(CommandError::NoSuchRelease));
    assert_eq!((restored.state(), restored.moves.len()), (RolloutState::Open, 0), "nothing was done");
    restored.command(3_000, pin(1)).unwrap();
    assert_eq!(restored.state(), RolloutState::Pinned);
    world.command(200_000, pin(0)).unwrap();
    world.command(200_000, Command::Unpin).unwrap();
    let record = world.rollout.record(at(world.now));
    assert_eq!(record.served, Some(0), "the push has not come back yet");
}

/// HIS-3: a unit that is new since the pin has other content.
#[test]
fn his_3_a_plan_tells_the_units_that_serve_the_pinned_release() {
    let mut world = World::enforced(&[1]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    world.command(200_000, Command::Pin { release: 0, until: PinFor::Unpin }).unwrap();
    world.run(200_000, |rollout, _| rollout.serves([unit(1), unit(2)]));
    assert_eq!(world.rollout.report().pinned, BTreeSet::from([unit(1), unit(2)]));
    let mut restored = restored(&world, 60);
    assert!(restored.rollout.keeps_hold(unit(71)));
    restored.run(1_000, |rollout, _| rollout.found(unit(1), unit(71)));
    assert_eq!(restored.rollout.report().pinned, BTreeSet::from([unit(71)]));
    restored.command(2_000, Command::Unpin).unwrap();
    assert!(restored.rollout.report().pinned.is_empty() && !restored.rollout.keeps_hold(unit(71)));
}

/// WAV-8: a class that sleeps must not wake with the halted content.
#[test]
fn wav_8_the_holds_of_a_halted_push_are_kept() {
    let mut world = World::enforced(&[1, 2]);
    assert!(!world.rollout.keeps_hold(unit(1)), "the push moves");
    world.tally(2_000, Tally { blamed: vec![unit(1)], ..admitted(Counts { rejected: 1, ..accepted(9) }) });
    let mut world = restored(&world, 60);
    world.run(1_000, |rollout, _| rollout.found(unit(2), unit(72)));
    assert!(world.rollout.keeps_hold(unit(72)) && !world.rollout.keeps_hold(unit(9)));
}

#[test]
fn wav_17_a_restored_plan_knows_the_releases_of_the_past() {
    let mut world = World::enforced(&[1]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    let mut world = restored(&world, 0);
    world.run(0, |rollout, _| rollout.found(unit(1), unit(71)));
    world.live(1_000, 71, true, true);
    world.timer(2_000);
    let push = UnitPush { stable: ReleaseDigest(1), candidate: ReleaseDigest(0), ..unit_push(71) };
    world.ready(2_000, vec![push]);
    assert_eq!(world.past()[0], (2, Outcome::Restored));
}

#[test]
fn qua_5_a_unit_with_a_condemned_first_answer_is_unproved() {
    let mut world = World::enforced(&[1]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!(world.rollout.report().proved, BTreeSet::from([unit(1)]));
    world.run(200_000, |rollout, _| rollout.gave_condemned(unit(1)));
    assert!(world.rollout.report().proved.is_empty());
}

#[test]
fn wav_7_content_without_a_judgement_is_unproved_until_clients_accept_a_push() {
    let mut world = World::enforced(&[1]);
    assert!(world.rollout.report().proved.is_empty(), "the first content of a unit");
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!(world.rollout.report().proved, BTreeSet::from([unit(1)]));
    let mut other = restored(&world, 60);
    other.run(1_000, |rollout, _| rollout.found(unit(1), unit(71)));
    assert_eq!(
        other.rollout.report().proved,
        BTreeSet::from([unit(71)]),
        "a restart proves nothing and forgets nothing"
    );
    other.run(2_000, |rollout, now| rollout.gone(unit(71), now));
    assert!(other.rollout.report().proved.is_empty());
    world.live(201_000, 1, true, true);
    world.timer(202_000);
    world.ready(
        202_000,
        vec![UnitPush { stable: ReleaseDigest(1), candidate: ReleaseDigest(2), ..unit_push(1) }],
    );
    world.live(202_000, 1, true, false);
    (203..500).for_each(|second| world.tally(second * 1_000, admitted(Counts::default())));
    assert_eq!(world.past()[0], (2, Outcome::Unjudged));
    assert!(world.rollout.report().proved.is_empty(), "no client judged the push");
}

#[test]
fn his_1_another_number_of_releases_takes_no_push_back() {
    let mut world = World::enforced(&[1]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    world.live(201_000, 1, true, true);
    world.timer(202_000);
    world.ready(
        202_000,
        vec![UnitPush { stable: ReleaseDigest(1), candidate: ReleaseDigest(2), ..unit_push(1) }],
    );
    world.live(202_000, 1, true, false);
    assert_eq!((world.state(), world.push().number), (RolloutState::Waving, 2));
    world.run(203_000, |rollout, now| rollout.configure(Arc::new(Plan { releases: 1, ..enforcing() }), now));
    assert_eq!((world.state(), world.push().number), (RolloutState::Waving, 2));
    assert_eq!((world.rollout.report().releases, world.past().len()), (vec![1], 1));
    (204..400).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!((world.rollout.report().releases, world.past()), (vec![2], vec![(2, Outcome::Finished)]));
}

#[test]
fn wav_8_a_halt_outlives_the_task_of_a_source() {
    let mut world = World::enforced(&[1, 2]);
    world.tally(2_000, Tally { blamed: vec![unit(1)], ..admitted(Counts { rejected: 1, ..accepted(9) }) });
    world.run(3_000, |rollout, now| assert!(rollout.began_anew(unit(1), unit(71), now)));
    assert_eq!(world.push().units.as_slice(), &[unit(71), unit(2)]);
    assert_eq!(world.push().blamed.as_slice(), &[unit(71)]);
    world.live(4_000, 71, true, false);
    world.run(60_000, Rollout::handle_timeout);
    assert_eq!((world.state(), world.cuts.len()), (RolloutState::Halted, 1), "the content is the halted one");
    world.live(61_000, 71, true, true);
    world.live(61_000, 2, true, true);
    world.timer(62_000);
    assert_eq!(world.cuts[1..], [(2, vec![unit(2), unit(71)])]);
}

#[test]
fn wav_8_a_push_on_its_way_goes_on_without_a_source_whose_task_failed() {
    let mut world = World::enforced(&[1, 2]);
    world.run(3_000, |rollout, now| assert!(!rollout.began_anew(unit(1), unit(71), now)));
    assert_eq!(world.state(), RolloutState::Waving);
    world.live(4_000, 71, true, true);
    world.run(10_000, Rollout::handle_timeout);
    assert_eq!(world.cuts.len(), 1, "the content waits for the next push");
    assert!(world.rollout.report().waiting.contains(&unit(71)));
}
