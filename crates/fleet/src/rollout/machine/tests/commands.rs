//! The commands of operators.

use super::*;
use crate::rollout::command::{Command, CommandError, Promotion};

impl World {
    pub(super) fn command(&mut self, ms: u64, command: Command) -> Result<(), CommandError> {
        let mut done = Ok(());
        self.run(ms, |rollout, now| done = rollout.command(command, now));
        done
    }
}

fn halted(units: &[u64]) -> World {
    let mut world = World::enforced(units);
    world.tally(2_000, Tally { blamed: vec![unit(1)], ..admitted(Counts { rejected: 1, ..accepted(9) }) });
    assert_eq!(world.state(), RolloutState::Halted);
    world
}

#[test]
fn his_5_a_command_for_another_push_does_nothing() {
    for command in [
        Command::Pause { push: 7 },
        Command::Resume { push: 7 },
        Command::Promote { push: 7, to: Promotion::All },
        Command::Abort { push: 7 },
        Command::Bar { push: 7, units: vec![unit(1)] },
    ] {
        let mut world = World::enforced(&[1]);
        let before = world.rollout.report();
        assert_eq!(world.command(2_000, command.clone()), Err(CommandError::AnotherPush(Some(1))));
        assert_eq!(world.rollout.report(), before);
        let mut world = World::of(enforcing());
        assert_eq!(world.command(2_000, command), Err(CommandError::AnotherPush(None)));
    }
}

#[test]
fn an_observing_plan_has_nothing_to_command() {
    let mut world = World::pushed(plan());
    assert_eq!(world.command(2_000, Command::Abort { push: 1 }), Err(CommandError::Observes));
    assert_eq!(world.command(2_000, Command::Freeze { length: Duration::ZERO }), Err(CommandError::Observes));
}

#[test]
fn his_5_a_pause_stops_the_clocks_and_comes_twice_without_effect() {
    let mut world = World::enforced(&[1]);
    world.tally(2_000, admitted(accepted(9)));
    for ms in [10_000, 11_000] {
        assert_eq!(world.command(ms, Command::Pause { push: 1 }), Ok(()));
        assert_eq!((world.state(), world.verdict().reason), (RolloutState::Paused, Reason::Operator));
    }
    world.tally(100_000, admitted(accepted(9)));
    assert_eq!(world.step().0, 1);
    for ms in [110_000, 111_000] {
        assert_eq!(world.command(ms, Command::Resume { push: 1 }), Ok(()));
        assert_eq!(world.state(), RolloutState::Waving);
    }
    world.tally(130_000, admitted(accepted(9)));
    assert_eq!(world.step().0, 1, "29 s of the bake are over");
    world.tally(131_000, admitted(accepted(9)));
    assert_eq!(world.step().0, 2);
}

#[test]
fn a_paused_push_halts_on_evidence() {
    let mut world = World::enforced(&[1]);
    world.command(1_500, Command::Pause { push: 1 }).unwrap();
    world.tally(2_000, admitted(Counts { rejected: 1, ..Counts::default() }));
    assert_eq!(world.state(), RolloutState::Halted);
    assert_eq!(world.command(3_000, Command::Resume { push: 1 }), Err(CommandError::Halted));
}

#[test]
fn a_pause_outlasts_a_lost_server_and_the_other_way_round() {
    let mut world = World::enforced(&[1]);
    world.run(2_000, |rollout, now| rollout.lost(unit(1), now));
    world.command(3_000, Command::Pause { push: 1 }).unwrap();
    assert_eq!(world.verdict().reason, Reason::Operator);
    world.command(4_000, Command::Resume { push: 1 }).unwrap();
    assert_eq!(world.verdict().reason, Reason::ServerLost(unit(1)));
    world.command(5_000, Command::Pause { push: 1 }).unwrap();
    world.run(6_000, |rollout, now| rollout.heard(unit(1), now));
    assert_eq!((world.state(), world.verdict().reason), (RolloutState::Paused, Reason::Operator));
}

#[test]
fn a_promotion_goes_on_without_evidence_and_never_back() {
    let mut world = World::enforced(&[1]);
    let promote = |to| Command::Promote { push: 1, to };
    assert_eq!(world.command(2_000, promote(Promotion::Step(9))), Err(CommandError::NoSuchStep { steps: 4 }));
    assert_eq!(world.command(2_000, promote(Promotion::Step(0))), Err(CommandError::NoSuchStep { steps: 4 }));
    let no_step = Err(CommandError::NoStep { reached: 1, steps: 4 });
    assert_eq!(
        world.command(2_000, promote(Promotion::Anew)),
        no_step,
        "HIS-5: said twice, it would go on twice"
    );
    world.command(2_000, promote(Promotion::Step(3))).unwrap();
    world.command(2_000, promote(Promotion::Step(3))).unwrap();
    world.command(2_000, promote(Promotion::Step(2))).unwrap();
    assert_eq!(world.step(), (3, 5_000));
    world.command(3_000, Command::Pause { push: 1 }).unwrap();
    world.command(3_000, promote(Promotion::All)).unwrap();
    assert_eq!((world.state(), world.step()), (RolloutState::Settling, (4, 10_000)));
    world.tally(4_000, admitted(Counts { rejected: 5, ..Counts::default() }));
    assert_eq!(world.state(), RolloutState::Halted, "clients speak against it nevertheless");
}

#[test]
fn a_promotion_ends_a_push_that_is_paused_after_its_last_step() {
    let mut world = World::enforced(&[1]);
    let promote = |to| Command::Promote { push: 1, to };
    let silent = || admitted(Counts { pending: 10, ..Counts::default() });
    world.command(2_000, promote(Promotion::All)).unwrap();
    world.command(2_000, promote(Promotion::All)).unwrap();
    assert_eq!((world.state(), world.step().0), (RolloutState::Settling, 4), "said twice, it still bakes");
    (3..1_000).for_each(|second| world.tally(second * 1_000, silent()));
    assert_eq!(world.state(), RolloutState::Paused, "nobody accepts");
    world.command(1_000_000, promote(Promotion::Step(2))).unwrap();
    assert_eq!((world.push_number(), world.step().0), (Some(1), 4), "never back");
    world.tally(1_001_000, silent());
    assert_eq!(world.state(), RolloutState::Paused, "a step of the past is no word about the last one");
    world.command(1_002_000, promote(Promotion::All)).unwrap();
    assert_eq!((world.state(), world.past()), (RolloutState::Open, vec![(1, Outcome::Unjudged)]));
}

#[test]
fn wav_18_nobody_promotes_a_push_while_its_server_is_lost() {
    let mut world = World::enforced(&[1]);
    world.run(2_000, |rollout, now| rollout.lost(unit(1), now));
    let promote = Command::Promote { push: 1, to: Promotion::All };
    assert_eq!(world.command(3_000, promote), Err(CommandError::ServerLost(unit(1))));
    assert_eq!(world.step().0, 1);
}

#[test]
fn a_promoted_halt_begins_anew_as_another_push_whatever_the_guards_say() {
    let mut world = halted(&[1, 2]);
    world.command(3_000, Command::Promote { push: 1, to: Promotion::Anew }).unwrap();
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(1), unit(2)]), "at once");
    let mut grown = unit_push(1);
    grown.types[0].resources = Growth { before: 1, after: 900 };
    world.ready(3_000, vec![grown, unit_push(2)]);
    assert_eq!((world.state(), world.step(), world.push().number), (RolloutState::Waving, (1, 100), 2));
    let again = Command::Promote { push: 1, to: Promotion::Anew };
    assert_eq!(world.command(4_000, again), Err(CommandError::AnotherPush(Some(2))));
}

#[test]
fn an_abort_sends_all_back_and_stands() {
    let mut world = World::enforced(&[1, 2]);
    world.command(2_000, Command::Abort { push: 1 }).unwrap();
    world.command(2_500, Command::Abort { push: 1 }).unwrap();
    let back = world.moves.iter().filter(|output| **output == Output::Back { push: 1 }).count();
    assert_eq!((back, world.state(), world.verdict().reason), (1, RolloutState::Halted, Reason::Operator));
    assert_eq!(world.push().blamed, [unit(1), unit(2)], "nobody knows better");
    world.live(3_000, 1, true, true);
    world.run(60_000, Rollout::handle_timeout);
    assert_eq!(world.cuts.len(), 1);
}

#[test]
fn an_abort_takes_a_kept_push_back() {
    let mut world = World::of(Plan { on_halt: OnHalt::Stay, ..enforcing() });
    world.push_of(&[1]);
    world.tally(2_000, Tally { blamed: vec![unit(1)], ..admitted(Counts { rejected: 1, ..accepted(9) }) });
    assert!(world.admissions.last().unwrap().holders_only);
    world.command(3_000, Command::Abort { push: 1 }).unwrap();
    assert!(!world.admissions.last().unwrap().holders_only);
    assert_eq!(world.moves[world.moves.len() - 2], Output::Back { push: 1 });
}

/// A cut takes the place of the halted content, so clients would lose it before they are sent back.
#[test]
fn wav_16_an_abort_comes_before_a_cut_of_the_same_moment() {
    let mut world = World::of(Plan { on_halt: OnHalt::Stay, ..enforcing() });
    world.push_of(&[1]);
    world.tally(2_000, Tally { blamed: vec![unit(1)], ..admitted(Counts { rejected: 1, ..accepted(9) }) });
    world.run(3_000, |rollout, now| {
        let promote = Command::Promote { push: 1, to: Promotion::All };
        rollout.command(promote, now).unwrap();
        rollout.command(Command::Abort { push: 1 }, now).unwrap();
        assert_eq!(rollout.poll_output(), Some(Output::Back { push: 1 }));
    });
}

#[test]
fn a_barred_unit_waits_until_it_changes_and_the_others_go_on() {
    let mut world = halted(&[1, 2]);
    assert_eq!(
        world.command(3_000, Command::Bar { push: 1, units: vec![unit(9)] }),
        Err(CommandError::NoSuchUnit)
    );
    world.command(3_000, Command::Bar { push: 1, units: vec![unit(1)] }).unwrap();
    world.command(3_100, Command::Bar { push: 1, units: vec![unit(1)] }).unwrap();
    world.timer(4_000);
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(2)]));
    world.ready(4_000, vec![unit_push(2)]);
    assert_eq!((world.push().units.as_slice(), world.state()), (&[unit(2)][..], RolloutState::Waving));
    world.live(4_000, 1, true, false);
    assert_eq!(world.rollout.report().barred, [unit(1)]);
    assert!(!world.rollout.report().waiting.is_empty() && world.rollout.report().behind_from.is_some());
    world.live(5_000, 1, true, true);
    assert_eq!(world.rollout.report().barred, []);
    (5..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!(world.cuts.last().unwrap(), &(3, vec![unit(1)]));
}

/// A class has a unit for each list of servers. The halt of an operator blames none of them, so all others go
/// on.
#[test]
fn all_units_of_a_class_are_barred_at_once() {
    for [first, second] in [[1, 2], [2, 1]] {
        let mut world = World::enforced(&[1, 2, 3]);
        world.command(2_000, Command::Abort { push: 1 }).unwrap();
        let units = vec![unit(first), unit(second)];
        for ms in [3_000, 3_100] {
            world.command(ms, Command::Bar { push: 1, units: units.clone() }).unwrap();
        }
        world.timer(4_000);
        assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(3)]));
        assert_eq!(world.rollout.report().barred, [unit(1), unit(2)]);
    }
}

/// WAV-17: `bar` lets the others go on without the blamed, and not with the rest of them.
#[test]
fn another_blamed_unit_waits_on() {
    let mut world = World::enforced(&[1, 2, 3]);
    let blamed = vec![unit(1), unit(2)];
    world.tally(2_000, Tally { blamed, ..admitted(Counts { rejected: 1, ..accepted(9) }) });
    world.command(3_000, Command::Bar { push: 1, units: vec![unit(1)] }).unwrap();
    world.run(60_000, Rollout::handle_timeout);
    assert_eq!(world.cuts.len(), 1);
    world.command(61_000, Command::Bar { push: 1, units: vec![unit(2)] }).unwrap();
    world.timer(62_000);
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(3)]));

    let mut world = World::enforced(&[1, 2]);
    world.command(2_000, Command::Abort { push: 1 }).unwrap();
    world.command(3_000, Command::Bar { push: 1, units: vec![unit(1)] }).unwrap();
    world.timer(4_000);
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(2)]), "the operator's halt blamed all of them");
}

#[test]
fn a_unit_of_a_push_that_goes_on_is_not_barred() {
    let mut world = World::enforced(&[1]);
    assert_eq!(
        world.command(3_000, Command::Bar { push: 1, units: vec![unit(1)] }),
        Err(CommandError::NotHalted)
    );
}
