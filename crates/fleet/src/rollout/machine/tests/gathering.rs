//! From changes to pushes.

use super::*;

#[test]
fn wav_12_changes_that_come_close_together_are_one_push() {
    let mut world = World::new();
    world.changed(0, 1);
    assert_eq!(world.state(), RolloutState::Gathering);
    world.changed(600, 2);
    world.changed(1_500, 1);
    world.timer(2_500);
    assert_eq!(world.cuts, [(1, vec![unit(1), unit(2)])]);
    world.ready(2_500, vec![unit_push(1), unit_push(2)]);
    assert_eq!((world.state(), world.push().number), (RolloutState::Waving, 1));
    assert_eq!(world.push().types[0].changed.count, 2, "a name counts for each unit");
    assert_eq!(world.push().types[0].changed.names.len(), 1);
}

#[test]
fn wav_12_a_unit_that_changes_on_and_on_is_cut_in_the_end() {
    let mut world = World::new();
    (0..20).for_each(|step| world.changed(step * 500, 1));
    world.timer(10_000);
    assert_eq!(world.cuts.len(), 1);
}

#[test]
fn wav_12_a_unit_that_is_not_current_is_waited_for_until_the_longest_gathering() {
    let mut world = World::new();
    let stale = |number| UnitPush { is_current: false, ..unit_push(number) };
    world.changed(0, 1);
    world.timer(1_000);
    world.changed(1_000, 2);
    world.ready(1_000, vec![stale(1)]);
    assert_eq!(world.state(), RolloutState::Gathering);
    world.timer(2_000);
    assert_eq!(world.cuts[1], (1, vec![unit(1), unit(2)]), "with the change that came meanwhile");
    for ms in [2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000] {
        world.ready(ms, vec![stale(1), unit_push(2)]);
        world.timer(ms + 1_000);
    }
    world.ready(10_000, vec![stale(1), unit_push(2)]);
    assert_eq!(world.state(), RolloutState::Waving);
}

#[test]
fn content_that_is_as_before_is_no_push() {
    let mut world = World::new();
    world.changed(0, 1);
    world.changed(0, 2);
    world.run(100, |rollout, now| rollout.returned(unit(1), now));
    world.run(100, |rollout, now| rollout.returned(unit(2), now));
    assert_eq!((world.state(), world.rollout.poll_timeout()), (RolloutState::Open, None));
    world.changed(200, 1);
    world.timer(1_200);
    world.ready(1_200, vec![UnitPush { types: vec![], ..unit_push(1) }]);
    assert_eq!((world.state(), world.released.as_slice()), (RolloutState::Open, &[1][..]));
    world.changed(2_000, 1);
    world.timer(3_000);
    assert_eq!(world.cuts.last().unwrap().0, 1, "the number is still free");
}

#[test]
fn wav_17_changes_during_a_push_wait_and_become_one_push() {
    let mut world = World::pushed(plan());
    world.changed(2_000, 2);
    world.changed(9_000, 3);
    assert_eq!(world.rollout.poll_timeout(), None);
    assert_eq!(world.rollout.report().waiting, [unit(2), unit(3)]);
    for ms in (2..1_000).map(|second| second * 1_000).filter(|ms| *ms >= 9_000) {
        world.tally(ms, admitted(accepted(5)));
    }
    assert_eq!(world.past(), [(1, Outcome::Finished)]);
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(2), unit(3)]));
    assert_eq!(world.released, [1]);
}

#[test]
fn wav_19_a_push_with_a_verdict_ends_when_the_next_is_gathered() {
    let mut world = World::pushed(plan());
    world.tally(1_400, admitted(Counts { rejected: 1, accepted: 9, ..Counts::default() }));
    assert_eq!(world.state(), RolloutState::Halted);
    world.changed(5_000, 2);
    assert_eq!(world.state(), RolloutState::Halted, "until the next push is complete");
    world.timer(6_000);
    world.ready(6_000, vec![unit_push(2)]);
    assert_eq!((world.past(), world.push().number), (vec![(1, Outcome::Halted)], 2));
    assert_eq!(world.state(), RolloutState::Waving);
}

#[test]
fn a_unit_that_ends_is_not_waited_for() {
    let mut world = World::new();
    world.changed(0, 1);
    world.run(1, |rollout, now| rollout.gone(unit(1), now));
    assert_eq!(world.state(), RolloutState::Open);
    world.ready(2, vec![unit_push(1)]);
    assert_eq!(world.state(), RolloutState::Open, "an answer that nobody asked for");
}

#[test]
fn a_plan_remembers_ten_pushes() {
    let mut world = World::new();
    for number in 0..14 {
        let ms = number * 10_000;
        world.changed(ms, 1);
        world.timer(ms + 1_000);
        world.ready(ms + 1_000, vec![unit_push(1)]);
        world.tally(ms + 2_000, admitted(Counts { rejected: 1, ..Counts::default() }));
    }
    let numbers: Vec<_> = world.past().into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, (4..=13).rev().collect::<Vec<_>>());
}

#[test]
fn another_plan_of_the_name_abandons_the_push() {
    let mut world = World::pushed(plan());
    world.changed(1_100, 2);
    world.run(1_200, |rollout, now| rollout.configure(Arc::new(plan()), now));
    assert_eq!(world.state(), RolloutState::Waving, "an equal plan is no other plan");
    let other = Plan { salt: "b".into(), ..plan() };
    world.run(1_300, |rollout, now| rollout.configure(Arc::new(other), now));
    assert_eq!((world.state(), world.past()), (RolloutState::Open, vec![(1, Outcome::Abandoned)]));
    assert_eq!(world.released, [1]);
    world.changed(2_000, 1);
    world.timer(3_000);
    world.run(3_000, |rollout, now| rollout.configure(Arc::new(plan()), now));
    world.ready(3_000, vec![unit_push(1)]);
    assert_eq!((world.state(), world.released.as_slice()), (RolloutState::Open, &[1, 2][..]));
}
