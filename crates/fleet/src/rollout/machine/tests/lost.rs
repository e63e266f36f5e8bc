//! Units whose server is lost.

use super::enforce::REJECTED;
use super::*;
use crate::rollout::command::Command;

/// Runs the timer, if something is gathered.
fn go_on(world: &mut World) {
    if let Some(due) = world.rollout.poll_timeout() {
        world.run(u64::try_from(due.since(Time::ZERO).as_millis()).unwrap(), Rollout::handle_timeout);
    }
}

/// A halted push of two units that clients keep. Unit 2 is lost, and the blamed unit 1 has changed.
fn kept() -> World {
    let mut world = World::of(Plan { on_halt: OnHalt::Stay, ..enforcing() });
    world.push_of(&[1, 2]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    assert!(world.rollout.has_holders());
    world.run(2_000, |rollout, now| rollout.lost(unit(2), now));
    world.live(2_000, 1, true, true);
    world
}

#[test]
fn wav_18_a_push_begins_without_a_unit_whose_server_is_lost() {
    let mut world = World::of(enforcing());
    (1..=2).for_each(|number| world.live(0, number, true, true));
    world.run(500, |rollout, now| rollout.lost(unit(2), now));
    world.timer(1_000);
    assert_eq!(world.cuts, [(1, vec![unit(1)])]);
    world.ready(1_000, vec![unit_push(1)]);
    world.live(1_000, 1, true, false);
    assert_eq!((world.state(), world.step().0), (RolloutState::Waving, 1), "the clocks run");
    let report = world.rollout.report();
    assert_eq!((report.left_out, report.waits_for_server), (vec![unit(2)], false));
    world.run(2_000, |rollout, now| rollout.heard(unit(2), now));
    let report = world.rollout.report();
    assert_eq!((report.left_out, report.waiting), (vec![], vec![unit(2)]));
    world.command(3_000, Command::Abort { push: 1 }).unwrap();
    world.live(3_000, 1, false, false);
    go_on(&mut world);
    assert_eq!(world.cuts.last(), Some(&(2, vec![unit(2)])));
}

#[test]
fn wav_18_a_push_waits_for_the_server_of_its_only_unit() {
    let mut world = World::of(enforcing());
    world.live(0, 1, true, true);
    world.run(500, |rollout, now| rollout.lost(unit(1), now));
    assert_eq!(world.rollout.poll_timeout(), None);
    world.run(60_000, Rollout::handle_timeout);
    assert_eq!((world.state(), world.cuts.len()), (RolloutState::Gathering, 0));
    assert!(world.rollout.report().waits_for_server);
    world.run(70_000, |rollout, now| rollout.heard(unit(1), now));
    go_on(&mut world);
    assert_eq!(world.cuts, [(1, vec![unit(1)])]);
}

#[test]
fn wav_18_a_server_that_is_lost_after_the_cut_puts_it_off() {
    let mut world = World::of(enforcing());
    (1..=2).for_each(|number| world.live(0, number, true, true));
    world.timer(1_000);
    assert_eq!(world.cuts, [(1, vec![unit(1), unit(2)])]);
    world.run(1_000, |rollout, now| rollout.lost(unit(2), now));
    world.ready(1_000, vec![unit_push(1), unit_push(2)]);
    assert_eq!((world.push_number(), world.admissions.len()), (None, 0));
    world.timer(2_000);
    assert_eq!(world.cuts.last(), Some(&(1, vec![unit(1)])), "without the unit");
}

#[test]
fn wav_18_a_lost_server_takes_no_halted_push_from_its_clients() {
    let mut world = kept();
    assert_eq!(world.rollout.poll_timeout(), None);
    assert!(world.rollout.report().waits_for_server && world.rollout.has_holders());
    world.run(60_000, |rollout, now| rollout.heard(unit(2), now));
    go_on(&mut world);
    assert_eq!(world.cuts.last(), Some(&(2, vec![unit(1), unit(2)])));
}

/// An operator who cannot wait for the server sends the clients back.
#[test]
fn wav_18_after_an_abort_the_next_push_waits_for_no_server() {
    let mut world = kept();
    world.command(3_000, Command::Abort { push: 1 }).unwrap();
    go_on(&mut world);
    assert_eq!(world.cuts.last(), Some(&(2, vec![unit(1)])));
}
