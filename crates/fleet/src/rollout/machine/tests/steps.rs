//! The way of a push through its steps, and the evidence for and against it.

use super::*;

/// All clients accept, once a second, until a time.
fn accept(world: &mut World, seconds: std::ops::RangeInclusive<u64>) {
    seconds.for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
}

#[test]
fn wav_12_a_push_that_all_accept_goes_through_all_steps() {
    let mut world = World::pushed(plan());
    assert_eq!((world.state(), world.step()), (RolloutState::Waving, (1, 100)));
    accept(&mut world, 2..=30);
    assert_eq!(world.step(), (1, 100));
    accept(&mut world, 31..=31);
    assert_eq!(world.step(), (2, 1_000));
    accept(&mut world, 32..=90);
    assert_eq!(world.step(), (2, 1_000));
    accept(&mut world, 91..=151);
    assert_eq!((world.state(), world.step()), (RolloutState::Settling, (4, 10_000)));
    accept(&mut world, 152..=180);
    assert!(world.rollout.wants_tally());
    accept(&mut world, 181..=181);
    assert_eq!((world.state(), world.past()), (RolloutState::Open, vec![(1, Outcome::Finished)]));
    assert!(!world.rollout.wants_tally());
    let ends: Vec<_> = world.rollout.report().past[0].steps.iter().map(|step| step.ended).collect();
    assert_eq!(ends, [31, 91, 151, 181].map(|second| Some(at(second * 1_000))));
    let is_step = |what: &What| matches!(what, What::StepBegun { .. } | What::Settling);
    assert_eq!(world.events.iter().filter(|what| is_step(what)).count(), 4);
    assert_eq!(world.events.last(), Some(&What::Over(Outcome::Finished)));
}

#[test]
fn wav_12_no_timer_promotes_a_push() {
    let mut world = World::pushed(plan());
    world.tally(2_000, admitted(accepted(10)));
    assert_eq!(world.rollout.poll_timeout(), None);
    world.run(10_000_000, Rollout::handle_timeout);
    assert_eq!(world.step(), (1, 100));
}

#[test]
fn wav_12_one_rejection_halts_at_once() {
    let mut world = World::pushed(plan());
    let counts = Counts { rejected: 1, accepted: 5, pending: 6, ..Counts::default() };
    world.tally(1_400, Tally { others: accepted(4_988), blamed: vec![unit(1)], ..admitted(counts) });
    let verdict = world.verdict();
    assert_eq!((world.state(), verdict.clients, verdict.step), (RolloutState::Halted, 12, 1));
    assert_eq!(verdict.after, Duration::from_millis(400));
    assert_eq!(verdict.reason, Reason::Rejected { rejected: 1, clients: 12 });
    assert_eq!(world.push().blamed, [unit(1)]);
    accept(&mut world, 100..=101);
    assert_eq!((world.state(), world.step().0), (RolloutState::Halted, 1));
}

#[test]
fn wav_12_few_rejections_of_many_clients_do_not_halt() {
    let halts = |rejected, accepted, rejected_more| {
        let halt_on = HaltOn { rejected: rejected_more, ..HaltOn::default() };
        let mut world = World::pushed(Plan { halt_on, ..plan() });
        world.tally(1_500, admitted(Counts { rejected, accepted, ..Counts::default() }));
        world.state() == RolloutState::Halted
    };
    assert!(!halts(1, 99, 0), "1 % is not more than 1 %");
    assert!(halts(2, 98, 0));
    assert!(!halts(2, 98, 2));
    assert!(halts(3, 97, 2));
}

#[test]
fn qua_4_known_rejecters_are_no_evidence() {
    let mut world = World::pushed(plan());
    let counts = Counts { rejected_again: 9, accepted: 1, ..Counts::default() };
    (2..=31).for_each(|second| world.tally(second * 1_000, admitted(counts)));
    assert_eq!((world.state(), world.step()), (RolloutState::Waving, (2, 1_000)));
}

#[test]
fn wav_12_the_evidence_of_others_counts_for_nothing() {
    let mut world = World::pushed(plan());
    let others = Counts { rejected: 500, lost: 500, ..Counts::default() };
    world.tally(1_500, Tally { others, ..admitted(accepted(10)) });
    assert_eq!(world.state(), RolloutState::Waving);
}

#[test]
fn wav_12_lost_streams_halt_if_they_are_more_than_usual() {
    let halts = |lost, accepted, control: (u64, u64)| {
        let mut world = World::pushed(plan());
        let control = Control { clients: control.0, lost: control.1 };
        let counts = Counts { lost, accepted, ..Counts::default() };
        world.tally(1_500, Tally { control, ..admitted(counts) });
        world.state() == RolloutState::Halted
    };
    assert!(!halts(1, 0, (0, 0)), "one is no evidence");
    assert!(halts(2, 0, (0, 0)), "all of them are gone");
    assert!(!halts(2, 20, (100, 0)), "10 % is not more than 10 %");
    assert!(halts(3, 20, (100, 0)));
    assert!(halts(3, 20, (100, 4)), "15 % is more than three times 4 %");
    assert!(!halts(3, 20, (100, 5)), "a network has lost others, too");
    assert!(!halts(2, 0, (12, 8)), "a rolling restart: the lost clients are gone on both sides");
    assert!(halts(2, 0, (19, 1)), "both clients are dead, and others hardly");
}

/// In the last step there is nobody to compare with. A rolling restart must not take a good push back.
#[test]
fn wav_12_a_rolling_restart_without_others_is_no_verdict() {
    let halts = |lost, accepted| {
        let mut world = World::pushed(plan());
        world.tally(1_500, admitted(Counts { lost, accepted, ..Counts::default() }));
        world.state() == RolloutState::Halted
    };
    assert!(!halts(5, 25) && !halts(25, 25));
    assert!(halts(26, 25), "more are lost than stay");
}

/// The content that they rejected may be the same.
#[test]
fn qua_4_a_push_that_only_known_rejecters_judge_does_not_go_on() {
    let mut world = World::pushed(plan());
    let counts = Counts { rejected_again: 3, unaffected: 9, ..Counts::default() };
    (2..=100).for_each(|second| world.tally(second * 1_000, admitted(counts)));
    assert_eq!((world.state(), world.step().0), (RolloutState::Waving, 1));
    world.tally(31_000 + 15 * 60_000, admitted(counts));
    assert_eq!(world.verdict().reason, Reason::NoEvidence { accepted: 0, clients: 0 });
}

#[test]
fn wav_12_lacking_evidence_pauses_after_the_patience_and_resumes_with_evidence() {
    let mut world = World::pushed(plan());
    let counts = Counts { accepted: 94, silent: 6, ..Counts::default() };
    let end = 31_000 + 15 * 60_000;
    world.tally(2_000, admitted(counts));
    world.tally(end - 1, admitted(counts));
    assert_eq!(world.state(), RolloutState::Waving);
    world.tally(end, admitted(counts));
    assert_eq!(world.state(), RolloutState::Paused);
    assert_eq!(world.verdict().reason, Reason::NoEvidence { accepted: 94, clients: 100 });
    world.tally(end + 1_000, admitted(counts));
    let paused = |what: &&What| matches!(what, What::Paused(_));
    assert_eq!(world.events.iter().filter(paused).count(), 1);
    world.tally(end + 2_000, admitted(Counts { accepted: 95, silent: 5, ..Counts::default() }));
    assert_eq!((world.state(), world.step().0), (RolloutState::Waving, 2));
    assert!(world.events.contains(&What::Resumed) && world.push().verdict.is_none());
}

#[test]
fn wav_12_a_rejection_while_paused_halts() {
    let mut world = World::pushed(plan());
    world.run(2_000, |rollout, now| rollout.lost(unit(1), now));
    world.tally(3_000, admitted(Counts { rejected: 1, ..Counts::default() }));
    assert_eq!(world.state(), RolloutState::Halted);
    world.run(4_000, |rollout, now| rollout.heard(unit(1), now));
    assert_eq!(world.state(), RolloutState::Halted);
}

#[test]
fn wav_12_a_rejection_in_the_final_bake_halts() {
    let mut world = World::pushed(plan());
    accept(&mut world, 2..=160);
    assert_eq!(world.state(), RolloutState::Settling);
    world.tally(161_000, admitted(Counts { rejected: 50, accepted: 50, ..Counts::default() }));
    assert_eq!((world.state(), world.verdict().step), (RolloutState::Halted, 4));
}

/// The next client in the order of the buckets does not take the place of clients that died before the first
/// tally.
#[test]
fn wav_14_a_step_whose_clients_have_died_takes_no_others() {
    let mut world = World::enforced(&[1]);
    let control = Control { clients: 1_981, lost: 0 };
    let dead = admitted(Counts { lost: 22, ..Counts::default() });
    world.tally(2_000, Tally { smallest: vec![4_321, 6_000], control, ..dead });
    assert_eq!((world.state(), world.step()), (RolloutState::Halted, (1, 100)));
}

#[test]
fn wav_14_a_step_admits_at_least_some_affected_clients() {
    let mut world = World::pushed(plan());
    let tally = Tally { smallest: vec![4_321, 6_000], ..admitted(Counts::default()) };
    world.tally(2_000, tally);
    assert_eq!(world.step(), (1, 4_322), "the smallest bucket, as at_least is 1");
    accept(&mut world, 3..=31);
    assert_eq!(world.step(), (2, 4_322), "no step takes back what another has admitted");
}

#[test]
fn wav_14_clients_without_a_text_are_never_first() {
    let mut world = World::pushed(plan());
    world.tally(2_000, Tally { smallest: vec![9_999], ..admitted(Counts::default()) });
    assert_eq!(world.step(), (1, 100));
}

#[test]
fn wav_14_clients_without_a_text_keep_no_place_from_others() {
    let steps = vec![Step { at_least: 5, ..plan().steps[0].clone() }];
    let mut world = World::pushed(Plan { steps, ..plan() });
    let smallest = vec![10, 7_000, 9_999, 9_999, 9_999];
    world.tally(2_000, Tally { smallest, ..admitted(Counts::default()) });
    assert_eq!(world.step(), (1, 7_001));
}

#[test]
fn wav_14_fewer_affected_clients_than_wanted_are_all_admitted() {
    let steps = vec![Step { at_least: 3, ..plan().steps[0].clone() }];
    let mut world = World::pushed(Plan { steps, ..plan() });
    world.tally(2_000, Tally { smallest: vec![10, 7_000], ..admitted(accepted(1)) });
    assert_eq!(world.step(), (1, 7_001));
}

#[test]
fn wav_14_labels_that_name_nobody_are_passed_with_a_note() {
    let labels =
        Step { clients: Some(Default::default()), threshold: 0, at_least: 0, ..plan().steps[0].clone() };
    let steps = vec![labels, plan().steps[0].clone()];
    let mut world = World::pushed(Plan { steps: steps.clone(), ..plan() });
    assert_eq!(world.step(), (1, 0));
    world.tally(2_000, Tally { labelled: vec![0, 0], ..admitted(Counts::default()) });
    assert_eq!(world.step(), (2, 100));
    assert_eq!(world.push().notes, [Note::NobodyInStep(1)]);
    let mut world = World::pushed(Plan { steps, ..plan() });
    world.tally(2_000, Tally { labelled: vec![1, 0], ..admitted(accepted(1)) });
    assert_eq!(world.step(), (1, 0), "with somebody, the step bakes");
    // The client dies of the push, and is not back yet.
    world.tally(3_000, Tally { labelled: vec![0, 0], ..admitted(Counts { lost: 1, ..Counts::default() }) });
    world.tally(100_000, Tally { labelled: vec![0, 0], ..admitted(Counts { lost: 1, ..Counts::default() }) });
    assert_eq!(world.step(), (1, 0), "nobody speaks for the push");
}

/// Clients that `at_least` admitted are evidence, so the step bakes.
#[test]
fn wav_14_a_step_of_labels_that_admits_others_bakes() {
    let labels =
        Step { clients: Some(Default::default()), threshold: 0, at_least: 2, ..plan().steps[0].clone() };
    let mut world = World::pushed(Plan { steps: vec![labels, plan().steps[0].clone()], ..plan() });
    let tally = Tally { labelled: vec![0, 0], smallest: vec![10, 7_000], ..admitted(Counts::default()) };
    world.tally(2_000, tally.clone());
    assert_eq!(world.step(), (1, 7_001));
    world.tally(3_000, tally);
    assert_eq!((world.step(), world.push().notes.len()), ((1, 7_001), 0));
}

#[test]
fn wav_12_a_push_that_affects_nobody_passes_with_notes_after_its_bakes() {
    let mut world = World::pushed(plan());
    world.tally(31_000, admitted(Counts { unaffected: 7, ..Counts::default() }));
    assert_eq!(world.step().0, 1, "the threshold was not final before");
    world.tally(32_000, admitted(Counts { unaffected: 7, ..Counts::default() }));
    assert_eq!((world.step().0, world.push().notes.as_slice()), (2, &[Note::NobodyInStep(1)][..]));
}

#[test]
fn wav_12_a_push_without_any_evidence_ends_unjudged() {
    let passed = |counts: Counts| {
        let mut world = World::pushed(plan());
        (2..1_000).for_each(|second| world.tally(second * 1_000, admitted(counts)));
        world.past()
    };
    assert_eq!(passed(Counts { unaffected: 7, ..Counts::default() }), [(1, Outcome::Unjudged)]);
    assert_eq!(
        passed(Counts { overtaken: 7, rejected_again: 1, ..Counts::default() }),
        [(1, Outcome::Unjudged)]
    );
    assert_eq!(passed(Counts { overtaken: 7, ..accepted(1) }), [(1, Outcome::Finished)]);
}

#[test]
fn wav_12_a_step_whose_clients_have_no_voice_passes_with_another_note() {
    let mut world = World::pushed(plan());
    let counts = Counts { overtaken: 30, rejected_again: 1, ..Counts::default() };
    (31..=32).for_each(|second| world.tally(second * 1_000, admitted(counts)));
    let note = Note::NoVoiceInStep { step: 1, overtaken: 30, rejected_again: 1 };
    assert_eq!((world.step().0, world.push().notes.as_slice()), (2, &[note][..]));
}

#[test]
fn wav_18_a_lost_server_stops_the_clocks() {
    let mut world = World::pushed(plan());
    world.tally(2_000, admitted(accepted(10)));
    world.run(11_000, |rollout, now| rollout.lost(unit(2), now));
    assert_eq!(world.state(), RolloutState::Waving, "another unit's server");
    world.run(11_000, |rollout, now| rollout.lost(unit(1), now));
    assert_eq!((world.state(), world.verdict().reason), (RolloutState::Paused, Reason::ServerLost(unit(1))));
    accept(&mut world, 12..=100);
    assert_eq!(world.step().0, 1);
    world.run(101_000, |rollout, now| rollout.heard(unit(1), now));
    assert_eq!(world.state(), RolloutState::Waving);
    accept(&mut world, 102..=120);
    assert_eq!(world.step().0, 1, "90 s do not count");
    accept(&mut world, 121..=121);
    assert_eq!(world.step().0, 2);
}

#[test]
fn a_halted_push_is_counted_for_a_minute() {
    let mut world = World::pushed(plan());
    world.tally(2_000, admitted(Counts { rejected: 1, ..Counts::default() }));
    world.tally(61_999, Tally { others: accepted(70), ..Tally::default() });
    assert!(world.rollout.wants_tally() && world.released.is_empty());
    world.tally(62_000, Tally { others: accepted(80), ..Tally::default() });
    assert!(!world.rollout.wants_tally());
    assert_eq!((world.push().others.accepted, world.released.as_slice()), (80, &[1][..]));
}

#[test]
fn a_plan_of_two_hundred_units_halts_as_one() {
    let mut world = World::new();
    (0..200).for_each(|number| world.changed(number, number));
    world.timer(1_199);
    world.ready(1_199, (0..200).map(unit_push).collect());
    assert_eq!((world.push().units.len(), world.push().resources()), (200, 200));
    let blamed = vec![unit(77)];
    let counts = Counts { rejected: 1, accepted: 30, ..Counts::default() };
    world.tally(1_500, Tally { blamed, ..admitted(counts) });
    assert_eq!((world.state(), world.push().blamed.as_slice()), (RolloutState::Halted, &[unit(77)][..]));
}
