//! The hook has a word before the first step, and at the end of each bake (WAV-20).

use super::random::{Dice, TALLIES};
use super::*;
use crate::rollout::Seat;
use crate::rollout::command::{Command, Promotion};
use crate::rollout::hook::{Hook, HookSettings, HookVerdict};
use crate::rollout::plan::BUCKETS;
use sluice_xds::Version;

fn hooked(plan: Plan) -> Plan {
    let hook = Hook { url: "http://gate/".into(), settings: HookSettings::default() };
    Plan { hook: Some(hook), ..plan }
}

fn says(verdict: HookVerdict) -> HookAnswer {
    HookAnswer { verdict, reason: "tests run".into() }
}

impl World {
    /// A push of unit 1 that waits for the hook since 1 s.
    fn at_the_gate(plan: Plan) -> World {
        let mut world = World::of(hooked(plan));
        world.push_of(&[1]);
        world
    }

    fn hear(&mut self, ms: u64, push: u64, step: u8, verdict: HookVerdict) {
        self.run(ms, |rollout, now| rollout.hook_said(push, step, says(verdict), now));
    }

    /// A tally in each second, in which ten clients have accepted.
    fn accepted_until(&mut self, second: u64) {
        let from = self.now / 1_000 + 1;
        (from..=second).for_each(|second| self.tally(second * 1_000, admitted(accepted(10))));
    }
}

#[test]
fn wav_20_nobody_has_a_push_before_the_hook_lets_it_go() {
    let mut world = World::at_the_gate(enforcing());
    assert_eq!(world.asked, [(1, 0)]);
    world.accepted_until(200);
    let admission = *world.admissions.last().unwrap();
    assert_eq!((admission.step, world.push().steps.len()), (0, 0));
    let seat = Seat { bucket: 0, labelled_step: Some(1) };
    assert!(!admission.admits(seat, None), "nobody");
    let holders = Admission { holders_of: Some(0), ..admission };
    assert!(!holders.admits(seat, Some(0)), "nor those that keep the push before");
    world.hear(200_000, 1, 0, HookVerdict::Go);
    assert_eq!(world.step(), (1, 100));
    assert_eq!(world.push().hook.as_ref().unwrap().answer, Some(says(HookVerdict::Go)));
}

#[test]
fn wav_20_the_hook_is_asked_at_the_end_of_each_bake() {
    let mut world = World::at_the_gate(enforcing());
    for (step, until) in [(0, 1), (1, 33), (2, 95), (3, 157), (4, 190)] {
        world.accepted_until(until);
        assert_eq!(world.asked.pop(), Some((1, step)));
        assert_eq!(world.push().steps.len(), usize::from(step), "stays until the hook has answered");
        world.hear(world.now, 1, step, HookVerdict::Go);
    }
    world.accepted_until(192);
    assert!(world.asked.is_empty(), "once for each");
    assert_eq!(world.past(), [(1, Outcome::Finished)]);
}

#[test]
fn wav_20_a_hook_that_waits_is_asked_again_and_pauses_the_push_in_the_end() {
    let mut world = World::at_the_gate(enforcing());
    world.hear(1_500, 1, 0, HookVerdict::Wait);
    world.accepted_until(11);
    assert_eq!(world.asked, [(1, 0)], "10 s after the answer at the earliest");
    world.accepted_until(12);
    assert_eq!(world.asked, [(1, 0), (1, 0)]);
    // No answer is no reason to ask again: the driver answers each question.
    world.accepted_until(100);
    assert_eq!((world.asked.len(), world.state()), (2, RolloutState::Waving));
    world.hear(100_000, 1, 0, HookVerdict::Failed);
    world.accepted_until(901);
    assert_eq!(world.state(), RolloutState::Paused);
    assert_eq!(world.verdict().reason, Reason::Hook(says(HookVerdict::Failed)));
    world.hear(901_000, 1, 0, HookVerdict::Wait);
    world.accepted_until(911);
    assert_eq!(world.verdict().reason, Reason::Hook(says(HookVerdict::Wait)), "the newest words");
    let paused = world.events.iter().filter(|what| matches!(what, What::Paused(_))).count();
    assert_eq!(paused, 1);
    world.hear(911_000, 1, 0, HookVerdict::Go);
    assert_eq!((world.state(), world.step()), (RolloutState::Waving, (1, 100)));
}

#[test]
fn wav_20_a_hook_halts_a_push_and_blames_all_of_its_units() {
    let mut world = World::of(hooked(enforcing()));
    world.push_of(&[1, 2]);
    world.hear(1_100, 1, 0, HookVerdict::Go);
    world.accepted_until(33);
    // A client that rejected the push before, too, is no evidence against the push, and blames its unit.
    let rejected = admitted(Counts { rejected_again: 1, ..accepted(9) });
    world.tally(33_200, Tally { blamed: vec![unit(1)], ..rejected });
    world.hear(33_500, 1, 1, HookVerdict::Halt);
    assert_eq!((world.state(), &*world.push().blamed), (RolloutState::Halted, &[unit(1), unit(2)][..]));
    assert_eq!(world.verdict().reason, Reason::Hook(says(HookVerdict::Halt)));
    assert!(world.moves.contains(&Output::Back { push: 1 }));
    // A hook knows no units, so an operator who bars one of them lets the other go on.
    world.command(34_000, Command::Bar { push: 1, units: vec![unit(1)] }).unwrap();
    world.timer(35_000);
    assert_eq!(world.cuts.pop(), Some((2, vec![unit(2)])));
}

#[test]
fn wav_20_the_hook_is_asked_again_when_the_evidence_for_its_word_is_gone() {
    let mut world = World::at_the_gate(enforcing());
    world.hear(1_100, 1, 0, HookVerdict::Go);
    world.accepted_until(33);
    world.hear(33_100, 1, 1, HookVerdict::Go);
    world.tally(34_000, admitted(Counts { pending: 5, ..accepted(5) }));
    assert_eq!(world.push().hook.as_ref().unwrap().answer, None, "nothing tells of the former word");
    world.accepted_until(60);
    assert_eq!((world.step().0, world.asked), (1, vec![(1, 0), (1, 1), (1, 1)]));
}

#[test]
fn wav_20_an_operator_goes_past_the_hook_and_its_late_answer_is_nothing() {
    let mut world = World::at_the_gate(enforcing());
    world.command(2_000, Command::Promote { push: 1, to: Promotion::Step(1) }).unwrap();
    assert_eq!(world.step(), (1, 100));
    world.hear(2_100, 1, 0, HookVerdict::Halt);
    world.hear(2_200, 7, 1, HookVerdict::Halt);
    world.hear(2_300, 1, 1, HookVerdict::Halt);
    assert_eq!(world.state(), RolloutState::Waving, "nobody has asked");
    world.command(3_000, Command::Pause { push: 1 }).unwrap();
    world.accepted_until(300);
    assert_eq!(world.asked, [(1, 0)], "a push that stands asks nothing");
}

#[test]
fn wav_20_an_operator_goes_past_a_hook_that_is_away_in_the_final_bake() {
    let mut world = World::at_the_gate(enforcing());
    world.command(2_000, Command::Promote { push: 1, to: Promotion::All }).unwrap();
    world.accepted_until(32);
    assert_eq!(world.asked, [(1, 0), (1, 4)]);
    world.hear(32_500, 1, 4, HookVerdict::Failed);
    world.accepted_until(1_000);
    assert_eq!((world.state(), world.step().0), (RolloutState::Paused, 4));
    world.command(1_000_500, Command::Promote { push: 1, to: Promotion::All }).unwrap();
    assert_eq!((world.state(), world.past()), (RolloutState::Open, vec![(1, Outcome::Unjudged)]));
}

#[test]
fn wav_20_a_word_for_a_push_whose_server_is_lost_counts_when_the_server_is_back() {
    let mut world = World::at_the_gate(enforcing());
    world.run(2_000, |rollout, now| rollout.lost(unit(1), now));
    world.hear(3_000, 1, 0, HookVerdict::Go);
    assert_eq!((world.state(), world.push().steps.len()), (RolloutState::Paused, 0));
    world.run(9_000, |rollout, now| rollout.heard(unit(1), now));
    world.accepted_until(10);
    assert_eq!((world.state(), world.step().0), (RolloutState::Waving, 1));
}

#[test]
fn wav_20_nobody_asks_about_a_push_while_its_server_is_lost() {
    let mut world = World::at_the_gate(enforcing());
    world.hear(2_000, 1, 0, HookVerdict::Wait);
    world.run(3_000, |rollout, now| rollout.lost(unit(1), now));
    world.accepted_until(20);
    assert_eq!((world.state(), &*world.asked), (RolloutState::Paused, &[(1, 0)][..]));
    world.run(20_000, |rollout, now| rollout.heard(unit(1), now));
    world.accepted_until(21);
    assert_eq!(world.asked, [(1, 0), (1, 0)]);
}

#[test]
fn qua_2_a_content_that_is_condemned_while_its_push_waits_for_the_hook_halts_it() {
    let mut world = World::at_the_gate(enforcing());
    let type_url = TypeUrl::of_message(LISTENER);
    let condemned = (type_url, ResourceName::from("main"), Version(7));
    let rejected = Tally { condemned: vec![condemned.clone()], blamed: vec![unit(1)], ..Tally::default() };
    world.tally(2_000, rejected);
    assert_eq!(
        (world.state(), &world.verdict().reason),
        (RolloutState::Halted, &Reason::Condemned(condemned))
    );
    world.hear(3_000, 1, 0, HookVerdict::Go);
    assert_eq!((world.state(), world.push().steps.len()), (RolloutState::Halted, 0));
}

#[test]
fn wav_20_an_observing_plan_says_what_the_hook_would_have_stopped() {
    let mut world = World::pushed(hooked(plan()));
    assert_eq!(world.asked, [(1, 0)]);
    world.hear(1_500, 1, 0, HookVerdict::Halt);
    assert_eq!(world.verdict().reason, Reason::Hook(says(HookVerdict::Halt)));
    // An observing plan does not stand still.
    world.changed(5_000, 1);
    world.timer(6_000);
    world.ready(6_000, vec![unit_push(1)]);
    assert_eq!((world.past(), world.asked.last()), (vec![(1, Outcome::Halted)], Some(&(2, 0))));
}

#[test]
fn wav_20_another_time_limit_takes_no_push_back_and_another_hook_does() {
    let mut world = World::at_the_gate(enforcing());
    let patient = |url: &str| {
        let settings = HookSettings { timeout: Duration::from_secs(60) };
        Arc::new(Plan { hook: Some(Hook { url: url.into(), settings }), ..enforcing() })
    };
    world.run(2_000, |rollout, now| rollout.configure(patient("http://gate/"), now));
    assert_eq!(world.push_number(), Some(1));
    world.run(2_000, |rollout, now| rollout.configure(patient("http://other/"), now));
    assert_eq!((world.push_number(), world.past()), (None, vec![(1, Outcome::Abandoned)]));
}

#[test]
fn wav_20_random_schedules_never_pass_a_hook_that_has_not_said_so() {
    let mut dice = Dice(20);
    let mut world = World::of(hooked(Plan { steps: plan().steps[..1].to_vec(), ..enforcing() }));
    // Pushes and steps that the hook let go on.
    let (mut open, mut finished) = (std::collections::BTreeSet::new(), 0);
    for _ in 0..TALLIES {
        let (before, ms) = (world.rollout.report(), world.now + 1 + dice.roll(4_000));
        let number = before.push.as_ref().map_or(0, |push| push.number);
        match dice.roll(20) {
            0 => world.live(ms, 1, dice.roll(8) > 0, true),
            1 => world.run(ms, |rollout, now| rollout.lost(unit(1), now)),
            2 | 3 => world.run(ms, |rollout, now| rollout.heard(unit(1), now)),
            4..=6 => world.run(ms, Rollout::handle_timeout),
            7..=11 => {
                let asked = world.asked.pop().unwrap_or((number, dice.roll(5) as u8));
                let verdict = HookVerdict::ALL[dice.roll(30).saturating_sub(26) as usize];
                let was_asked = world.push_number() == Some(asked.0)
                    && world.push().hook.as_ref().is_some_and(|hook| hook.step == asked.1);
                if verdict == HookVerdict::Go && was_asked {
                    open.insert(asked);
                }
                world.hear(ms, asked.0, asked.1, verdict);
            }
            _ => world.tally(ms, Tally { blamed: vec![unit(1)], ..dice.tally() }),
        }
        if let Some((number, units)) = world.cuts.pop() {
            // Never a content that all clients had.
            let candidate = ReleaseDigest(number.into());
            let push = |unit: &UnitId| UnitPush { candidate, ..unit_push(unit.0) };
            world.ready(ms, units.iter().map(push).collect());
        }
        let after = world.rollout.report();
        let latest = after.push.iter().chain(after.past.first()).find(|push| push.number == number);
        let (Some(was), Some(is)) = (&before.push, latest) else { continue };
        let reached = was.steps.len() as u8;
        let is_through =
            is.end.is_some_and(|end| matches!(end.outcome, Outcome::Finished | Outcome::Unjudged));
        if is.steps.len() > was.steps.len() || is_through {
            assert!(open.contains(&(number, reached)), "push {number} left step {reached} without a word");
        }
        finished += usize::from(is_through);
        assert!(is.steps.iter().all(|step| step.threshold <= BUCKETS));
        world.events.clear();
        world.admissions.clear();
        world.moves.clear();
    }
    assert!(finished > 10, "{finished} finished");
}
