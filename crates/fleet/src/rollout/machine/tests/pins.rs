//! Pins, rollbacks and freezes.

use super::*;
use crate::rollout::command::{Command, CommandError, FREEZE_MAX, PinFor, Promotion};

const HOUR: u64 = 3_600_000;

/// A plan whose first push is over after 200 s.
fn finished() -> World {
    let mut world = World::enforced(&[1]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    world.moves.clear();
    world
}

#[test]
fn his_3_a_rollback_serves_the_release_before_until_the_next_push() {
    let mut world = finished();
    for ms in [200_000, 201_000] {
        world.command(ms, Command::Rollback { push: 1 }).unwrap();
    }
    assert_eq!(
        (world.moves.as_slice(), world.state()),
        (&[Output::Serve { release: 0 }][..], RolloutState::Pinned)
    );
    world.live(202_000, 1, true, false);
    world.run(210_000, Rollout::handle_timeout);
    assert_eq!((world.cuts.len(), world.rollout.report().waiting), (1, vec![unit(1)]), "the content waits");
    world.live(300_000, 1, true, true);
    assert_eq!(world.state(), RolloutState::Gathering);
    world.timer(301_000);
    world.ready(301_000, vec![UnitPush { candidate: ReleaseDigest(2), ..unit_push(1) }]);
    assert_eq!((world.state(), world.step()), (RolloutState::Waving, (1, 100)), "by steps");
}

/// The release of the push that was taken back is not the one before the next push.
#[test]
fn his_3_a_second_rollback_returns_to_what_clients_had() {
    let mut world = finished();
    let push = |candidate| vec![UnitPush { candidate: ReleaseDigest(candidate), ..unit_push(1) }];
    world.live(200_000, 1, true, true);
    world.timer(201_000);
    world.ready(201_000, push(22));
    (202..400).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    world.live(400_000, 1, false, false);
    world.moves.clear();
    world.command(401_000, Command::Rollback { push: 2 }).unwrap();
    assert_eq!(world.moves.last(), Some(&Output::Serve { release: 1 }));
    world.live(402_000, 1, true, true);
    world.timer(403_000);
    world.ready(403_000, push(23));
    assert_eq!((world.state(), world.push_number()), (RolloutState::Waving, Some(3)));
    world.command(404_000, Command::Rollback { push: 3 }).unwrap();
    world.command(404_000, Command::Pin { release: 2, until: PinFor::NextPush }).unwrap();
    let served = world.moves.iter().filter(|output| matches!(output, Output::Serve { .. }));
    let served: Vec<_> = served.cloned().collect();
    let release = |release| Output::Serve { release };
    assert_eq!(served, [release(1), release(1), release(2)], "a pin names any release");
}

#[test]
fn his_3_a_rollback_takes_a_push_that_is_under_way_back() {
    let mut world = World::enforced(&[1]);
    world.moves.clear();
    world.command(2_000, Command::Rollback { push: 1 }).unwrap();
    let is_halted = |output: &Output| matches!(output, Output::Admit(admission) if admission.state == RolloutState::Halted);
    assert!(is_halted(&world.moves[1]));
    assert_eq!(
        (&world.moves[0], &world.moves[2]),
        (&Output::Back { push: 1 }, &Output::Serve { release: 0 })
    );
    assert_eq!((world.past(), world.push_number()), (vec![(1, Outcome::Halted)], None));
}

/// Else the release would be served after the cut, and in place of it: the next push would have no candidate.
#[test]
fn his_3_a_pin_comes_before_a_cut_of_the_same_moment() {
    let mut world = World::enforced(&[1]);
    world.live(1_500, 1, true, true);
    world.moves.clear();
    world.run(3_000, |rollout, now| {
        let commands = [Command::Abort { push: 1 }, Command::Rollback { push: 1 }];
        commands.into_iter().for_each(|command| rollout.command(command, now).unwrap());
    });
    assert_eq!((world.cuts.len(), world.state()), (1, RolloutState::Pinned));
    assert_eq!(world.moves.last(), Some(&Output::Serve { release: 0 }));
    world.live(4_000, 1, true, true);
    world.timer(5_000);
    assert_eq!(world.cuts.last(), Some(&(2, vec![unit(1)])));
}

#[test]
fn his_3_what_was_the_newest_content_at_the_pin_does_not_end_the_pin() {
    let mut world = World::enforced(&[1]);
    world.live(1_500, 1, true, true);
    world.run(2_000, |rollout, now| {
        rollout.command(Command::Rollback { push: 1 }, now).unwrap();
        // The clients are back, and the release is not served yet.
        assert_eq!(rollout.poll_output(), Some(Output::Back { push: 1 }));
        rollout.compared(unit(1), Differs { from_stable: true, from_candidate: true }, now);
    });
    assert_eq!(world.state(), RolloutState::Pinned);
    world.live(2_000, 1, true, false);
    world.run(100 * HOUR, Rollout::handle_timeout);
    assert_eq!((world.cuts.len(), world.state()), (1, RolloutState::Pinned));
    world.live(101 * HOUR, 1, true, true);
    assert_eq!(world.state(), RolloutState::Gathering);
}

#[test]
fn his_3_a_pin_ends_when_it_was_told_to_and_the_content_goes_by_steps() {
    let mut world = finished();
    let until = PinFor::Length(Duration::from_secs(3_600));
    world.command(200_000, Command::Pin { release: 0, until }).unwrap();
    world.live(201_000, 1, true, false);
    world.live(202_000, 1, true, true);
    assert_eq!(world.rollout.poll_timeout(), Some(at(200_000 + HOUR)), "another content waits, too");
    world.timer(200_000 + HOUR);
    assert_eq!(world.state(), RolloutState::Gathering);
    assert_eq!(world.events.last(), Some(&What::Unpinned(0)));
    let mut world = finished();
    world.command(200_000, Command::Pin { release: 0, until: PinFor::Unpin }).unwrap();
    world.live(201_000, 1, true, false);
    world.run(100 * HOUR, Rollout::handle_timeout);
    assert_eq!(world.state(), RolloutState::Pinned);
    world.command(100 * HOUR, Command::Unpin).unwrap();
    world.command(100 * HOUR, Command::Unpin).unwrap();
    world.timer(100 * HOUR + 1_000);
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(1)]));
}

#[test]
fn his_3_only_a_known_release_is_pinned() {
    let mut world = finished();
    let until = PinFor::Unpin;
    assert_eq!(world.command(200_000, Command::Pin { release: 7, until }), Err(CommandError::NoSuchRelease));
    assert_eq!(world.command(200_000, Command::Rollback { push: 0 }), Err(CommandError::AnotherPush(None)));
    assert_eq!(world.command(200_000, Command::Rollback { push: 9 }), Err(CommandError::AnotherPush(None)));
    assert_eq!(world.state(), RolloutState::Open);
}

#[test]
fn his_4_a_frozen_plan_begins_no_push_and_pauses_the_one_under_way() {
    let mut world = World::enforced(&[1]);
    world.command(2_000, Command::Freeze { length: Duration::from_secs(2 * 3_600) }).unwrap();
    assert_eq!(world.verdict().reason, Reason::Frozen);
    let promote = Command::Promote { push: 1, to: Promotion::All };
    assert_eq!(world.command(3_000, promote), Err(CommandError::Frozen));
    world.timer(2_000 + HOUR);
    let frozen_events =
        |world: &World| world.events.iter().filter(|what| matches!(what, What::Frozen(_))).count();
    assert_eq!(frozen_events(&world), 2, "at the begin, and each hour");
    world.timer(2_000 + 2 * HOUR);
    assert_eq!((world.state(), frozen_events(&world)), (RolloutState::Waving, 2));
    let mut world = World::of(enforcing());
    world.command(0, Command::Freeze { length: FREEZE_MAX }).unwrap();
    world.live(1_000, 1, true, true);
    assert_eq!((world.state(), world.rollout.poll_timeout()), (RolloutState::Frozen, Some(at(HOUR))));
    world.command(9_000, Command::Unfreeze).unwrap();
    world.command(9_000, Command::Unfreeze).unwrap();
    assert_eq!(world.rollout.poll_timeout(), Some(at(9_000)).filter(|_| world.cuts.is_empty()));
    assert_eq!(world.cuts.len(), 1);
}

#[test]
fn his_4_a_freeze_has_an_end_within_seven_days() {
    let mut world = World::of(enforcing());
    let length = FREEZE_MAX + Duration::from_micros(1);
    assert_eq!(world.command(0, Command::Freeze { length }), Err(CommandError::TooLong));
    assert_eq!(world.state(), RolloutState::Open);
}

#[test]
fn his_4_a_freeze_or_a_pin_during_a_cut_keeps_the_push_from_beginning() {
    let mut world = World::of(enforcing());
    world.live(0, 1, true, true);
    world.timer(1_000);
    world.command(1_100, Command::Freeze { length: Duration::from_secs(60) }).unwrap();
    world.ready(1_200, vec![unit_push(1)]);
    assert_eq!((world.state(), world.admissions.len()), (RolloutState::Frozen, 0));
    world.timer(61_100);
    assert_eq!(world.cuts.len(), 2);
}

#[test]
fn hnd_3_a_plan_with_a_successor_stands_and_takes_a_bad_push_back() {
    let mut world = World::enforced(&[1]);
    world.run(2_000, |rollout, now| rollout.set_succeeded(true, now));
    (3..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!((world.state(), world.step().0), (RolloutState::Paused, 1));
    assert_eq!(world.verdict().reason, Reason::Succeeded);
    // The hand-over has failed, and the bake goes on where it stood.
    world.run(200_000, |rollout, now| rollout.set_succeeded(false, now));
    world.tally(201_000, admitted(accepted(10)));
    assert_eq!((world.state(), world.step().0), (RolloutState::Waving, 1));
    (202..240).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!(world.step().0, 2);
    world.run(240_000, |rollout, now| rollout.set_succeeded(true, now));
    world.tally(241_000, admitted(Counts { rejected: 1, ..accepted(9) }));
    assert_eq!(world.state(), RolloutState::Halted);
    assert!(world.moves.contains(&Output::Back { push: 1 }));
    world.live(250_000, 1, true, true);
    assert_eq!(world.rollout.poll_timeout(), None, "the next push is the successor's");
}
