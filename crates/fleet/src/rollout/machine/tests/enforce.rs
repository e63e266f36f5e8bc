//! Pushes that are held back.

use super::*;
use crate::rollout::Seat;
use crate::rollout::command::{Command, Promotion};
use crate::rollout::tally::Rejection;
use sluice_xds::Version;

pub(super) const REJECTED: Counts = Counts {
    rejected: 1,
    accepted: 9,
    unaffected: 0,
    pending: 0,
    rejected_again: 0,
    silent: 0,
    overtaken: 0,
    lost: 0,
    departed: 0,
    unjudged: 0,
};

/// The stable content of the push, and the numbers of the outputs that move clients: `1!2` admits step 2 of
/// push 1.
fn moves(world: &mut World) -> String {
    let text = |output: Output| match output {
        Output::Back { push } => format!("back {push}"),
        Output::Stay { push } => format!("stay {push}"),
        Output::Settle { push } => format!("settle {push}"),
        Output::Serve { release } => format!("serve {release}"),
        Output::Open => "open".into(),
        Output::Admit(admission) => match admission.state {
            RolloutState::Open => format!("{} nobody", admission.push),
            _ => format!("{} {} {}", admission.push, admission.state.name(), admission.step),
        },
        other => panic!("{other:?} moves nobody"),
    };
    std::mem::take(&mut world.moves).into_iter().map(text).collect::<Vec<_>>().join(", ")
}

#[test]
fn wav_2_a_push_that_all_accept_is_stable_in_the_end_and_stays_admitted() {
    let mut world = World::enforced(&[1, 2]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!(moves(&mut world), "1 waving 1, 1 waving 2, 1 waving 3, 1 settling 4, settle 1");
    assert_eq!((world.state(), world.past()), (RolloutState::Open, vec![(1, Outcome::Finished)]));
    let report = world.rollout.report();
    assert_eq!((report.behind_from, report.releases), (None, vec![1, 0]));
}

/// After a restart the server is asked again; meanwhile the unit is compared with the halted content.
#[test]
fn wav_8_a_promoted_push_is_looked_at_until_its_units_are_current() {
    let mut world = World::enforced(&[1]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    world.live(2_000, 1, true, false);
    let promote = |push| Command::Promote { push, to: Promotion::All };
    world.command(3_000, promote(1)).unwrap();
    world.run(3_000, Rollout::handle_timeout);
    assert_eq!(world.cuts.last().unwrap().0, 2);
    world.ready(3_000, vec![UnitPush { is_current: false, ..unit_push(1) }]);
    world.live(3_500, 1, true, false);
    world.timer(4_000);
    world.ready(4_000, vec![unit_push(1)]);
    assert_eq!((world.state(), world.rollout.report().push.unwrap().number), (RolloutState::Settling, 2));
}

/// Between the last comparison and the cut, the servers may say what was halted once more.
#[test]
fn wav_17_a_halted_content_that_is_back_at_the_cut_does_not_begin_again() {
    let halted = || {
        let mut world = World::enforced(&[1, 2]);
        world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
        world.live(2_000, 1, true, true);
        world.timer(3_000);
        assert_eq!(world.cuts.last().unwrap().0, 2);
        world
    };
    let mut world = halted();
    world.ready(3_000, vec![UnitPush { is_former: true, ..unit_push(1) }, unit_push(2)]);
    assert_eq!((world.state(), world.push_number()), (RolloutState::Halted, Some(1)));
    assert_eq!(world.rollout.poll_timeout(), None, "the next change is waited for");
    world.live(9_000, 1, true, true);
    world.timer(10_000);
    world.ready(10_000, vec![unit_push(1), unit_push(2)]);
    assert_eq!((world.state(), world.push_number()), (RolloutState::Waving, Some(2)));
    // An innocent unit may go on with what it has.
    let mut world = halted();
    world.ready(3_000, vec![unit_push(1), UnitPush { is_former: true, ..unit_push(2) }]);
    assert_eq!(world.state(), RolloutState::Waving);
}

/// The names of a halted push are nobody's any more: no change can end the halt, but an operator can.
#[test]
fn wav_17_a_promotion_ends_a_halt_of_what_nobody_asks_for_any_more() {
    let mut world = World::enforced(&[1]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    world.command(3_000, Command::Promote { push: 1, to: Promotion::All }).unwrap();
    world.ready(3_000, vec![UnitPush { types: Vec::new(), ..unit_push(1) }]);
    assert_eq!((world.state(), world.past()), (RolloutState::Open, vec![(1, Outcome::Halted)]));
    world.live(3_000, 1, false, false);
    assert_eq!((world.state(), world.rollout.poll_timeout()), (RolloutState::Open, None));
}

#[test]
fn wav_17_a_promotion_is_over_when_the_servers_take_the_push_back() {
    let mut world = World::enforced(&[1]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    world.command(3_000, Command::Promote { push: 1, to: Promotion::All }).unwrap();
    world.ready(3_000, vec![UnitPush { is_current: false, ..unit_push(1) }]);
    world.live(3_500, 1, false, true);
    assert_eq!(world.past(), vec![(1, Outcome::Withdrawn)]);
    world.live(5_000, 1, true, true);
    world.timer(6_000);
    world.ready(6_000, vec![unit_push(1)]);
    assert_eq!(world.state(), RolloutState::Waving);
}

/// A wildcard that is not complete yet has no known change, and holds something back nevertheless.
#[test]
fn wav_8_a_unit_without_a_known_change_is_looked_at_again() {
    let blank = |number| UnitPush { types: Vec::new(), ..unit_push(number) };
    let mut world = World::of(enforcing());
    world.live(0, 1, true, true);
    world.timer(1_000);
    world.ready(1_000, vec![blank(1)]);
    assert_eq!((world.state(), world.released.as_slice()), (RolloutState::Gathering, &[1][..]));
    world.live(1_500, 2, true, true);
    world.timer(2_500);
    world.ready(2_500, vec![blank(1), unit_push(2)]);
    assert_eq!(world.state(), RolloutState::Waving);
    assert_eq!(world.rollout.report().waiting, vec![unit(1)]);
    // The longest gathering is over, and the looks are not all at once.
    let mut world = World::of(enforcing());
    world.live(0, 1, true, true);
    world.run(20_000, Rollout::handle_timeout);
    world.ready(20_000, vec![blank(1)]);
    world.run(20_500, Rollout::handle_timeout);
    assert_eq!(world.cuts.len(), 1);
    world.timer(21_000);
    assert_eq!(world.cuts.len(), 2);
    // A unit that holds nothing back is as before.
    let mut world = World::of(enforcing());
    world.live(0, 1, true, true);
    world.timer(1_000);
    world.live(1_000, 1, false, false);
    world.ready(1_000, vec![blank(1)]);
    assert_eq!((world.state(), world.rollout.poll_timeout()), (RolloutState::Open, None));
}

#[test]
fn wav_17_a_halted_push_goes_back_and_stands_until_each_blamed_unit_has_changed() {
    let mut world = World::enforced(&[1, 2, 3]);
    let blamed = vec![unit(1), unit(2)];
    world.tally(1_400, Tally { blamed, ..admitted(REJECTED) });
    assert_eq!(moves(&mut world), "1 waving 1, back 1, 1 halted 1");
    world.live(2_000, 4, true, true);
    world.live(3_000, 3, true, true);
    world.live(4_000, 1, true, true);
    world.run(90_000, Rollout::handle_timeout);
    assert_eq!((world.cuts.len(), world.rollout.poll_timeout()), (1, None), "unit 2 is as it was");
    world.live(91_000, 2, true, true);
    world.timer(92_000);
    let all = [1, 2, 3, 4].map(unit).to_vec();
    assert_eq!(world.cuts.last().unwrap(), &(2, all), "all that is newest, unit 3 with its change, too");
    world.ready(92_000, [1, 2, 3, 4].map(unit_push).to_vec());
    assert_eq!((moves(&mut world).as_str(), world.past()), ("2 waving 1", vec![(1, Outcome::Halted)]));
}

#[test]
fn wav_17_units_without_a_change_of_their_own_begin_again_with_the_mended_ones() {
    let mut world = World::enforced(&[1, 2]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    world.live(2_000, 1, true, true);
    world.timer(3_000);
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(1), unit(2)]));
}

#[test]
fn wav_17_a_blamed_unit_that_is_as_halted_again_has_not_changed() {
    let mut world = World::enforced(&[1]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    world.live(2_000, 1, true, true);
    world.live(2_500, 1, true, false);
    world.run(60_000, Rollout::handle_timeout);
    assert_eq!((world.cuts.len(), world.state()), (1, RolloutState::Halted));
}

/// No push stands that has the content, so it is news for the next push, whatever was cut before.
#[test]
fn wav_17_content_that_no_push_has_is_gathered_although_it_was_cut_before() {
    let mut world = World::enforced(&[1]);
    world.live(2_000, 1, false, true);
    assert_eq!(world.past(), [(1, Outcome::Withdrawn)]);
    assert!(!world.rollout.keeps(unit(1)));
    world.live(3_000, 1, true, false);
    world.timer(4_000);
    assert_eq!(world.cuts.last(), Some(&(2, vec![unit(1)])));
}

#[test]
fn wav_12_a_paused_push_waits_for_evidence_and_not_for_its_successor() {
    let mut world = World::enforced(&[1]);
    world.tally(2_000, admitted(accepted(1)));
    world.run(3_000, |rollout, now| rollout.lost(unit(1), now));
    world.live(4_000, 1, true, true);
    world.run(900_000, Rollout::handle_timeout);
    assert_eq!((world.state(), world.cuts.len()), (RolloutState::Paused, 1));
}

#[test]
fn wav_17_servers_that_take_a_push_back_send_its_clients_back_at_once() {
    let mut world = World::enforced(&[1, 2]);
    world.live(5_000, 1, false, true);
    assert_eq!(world.state(), RolloutState::Waving, "unit 2 still has the push");
    world.live(6_000, 2, false, true);
    assert_eq!(moves(&mut world), "1 waving 1, back 1, 1 nobody");
    assert_eq!((world.state(), world.past()), (RolloutState::Open, vec![(1, Outcome::Withdrawn)]));
    assert_eq!((world.rollout.poll_timeout(), world.rollout.report().behind_from), (None, None));
}

#[test]
fn wav_17_a_halted_push_that_is_taken_back_is_over() {
    let mut world = World::enforced(&[1]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    world.live(6_000, 1, false, true);
    assert_eq!(moves(&mut world), "1 waving 1, back 1, 1 halted 1", "all are back already");
    assert_eq!((world.state(), world.past()), (RolloutState::Open, vec![(1, Outcome::Withdrawn)]));
}

/// To take the bad part back is the usual mend. The other parts of the push go on.
#[test]
fn wav_17_the_others_go_on_once_the_blamed_have_taken_their_parts_back() {
    let halted = || {
        let mut world = World::enforced(&[1, 2, 3]);
        let blamed = vec![unit(1), unit(2)];
        world.tally(1_400, Tally { blamed, ..admitted(REJECTED) });
        world.live(5_000, 1, false, true);
        world.run(60_000, Rollout::handle_timeout);
        assert_eq!((world.state(), world.cuts.len()), (RolloutState::Halted, 1), "unit 2 is to blame, too");
        world
    };
    let mut world = halted();
    world.live(61_000, 2, false, true);
    world.timer(62_000);
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(3)]));
    world.ready(62_000, vec![unit_push(3)]);
    assert_eq!(world.state(), RolloutState::Waving);

    let mut world = halted();
    world.live(61_000, 2, true, true);
    world.timer(62_000);
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(2), unit(3)]), "another mend of unit 2");

    let mut world = halted();
    world.live(60_500, 1, true, false);
    world.live(61_000, 2, false, true);
    world.run(99_000, Rollout::handle_timeout);
    assert_eq!(world.cuts.len(), 1, "unit 1 has the rejected content again");
}

#[test]
fn wav_17_a_content_that_all_had_before_is_for_all_at_once() {
    let mut world = World::enforced(&[1]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    moves(&mut world);
    world.live(200_000, 1, true, true);
    world.timer(201_000);
    world.ready(
        201_000,
        vec![UnitPush { stable: ReleaseDigest(1), candidate: ReleaseDigest(0), ..unit_push(1) }],
    );
    assert_eq!(moves(&mut world), "2 settling 4, settle 2");
    assert_eq!(world.past()[0], (2, Outcome::Restored));
}

#[test]
fn qua_2_a_condemned_content_is_for_nobody_although_all_had_it_before() {
    let mut world = World::enforced(&[1]);
    (2..200).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    moves(&mut world);
    world.live(200_000, 1, true, true);
    world.timer(201_000);
    let name = ResourceName::from("main");
    let condemned = Some((TypeUrl::of_message(LISTENER), name, Version(7)));
    let candidate = ReleaseDigest(0);
    world.ready(201_000, vec![UnitPush { stable: ReleaseDigest(1), candidate, condemned, ..unit_push(1) }]);
    assert_eq!((moves(&mut world).as_str(), world.push().blamed.as_slice()), ("2 halted 0", &[unit(1)][..]));
}

#[test]
fn wav_16_who_has_a_halted_push_may_keep_it_and_is_first_with_the_next() {
    let mut world = World::of(Plan { on_halt: OnHalt::Stay, ..enforcing() });
    world.push_of(&[1]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    let halted = *world.admissions.last().unwrap();
    let (in_step, last) =
        (Seat { bucket: 3, labelled_step: None }, Seat { bucket: 9_000, labelled_step: None });
    assert_eq!(moves(&mut world), "1 waving 1, stay 1, 1 halted 1");
    assert!(
        halted.admits(last, Some(1)) && !halted.admits(in_step, None) && !halted.admits(in_step, Some(0))
    );
    world.live(2_000, 1, true, true);
    world.timer(3_000);
    world.ready(3_000, vec![unit_push(1)]);
    let next = *world.admissions.last().unwrap();
    assert_eq!((next.push, next.holders_of, next.holders_only), (2, Some(1), false));
    assert!(next.admits(last, Some(1)) && next.admits(last, Some(2)) && next.admits(in_step, None));
    assert!(!next.admits(last, None));
}

/// WAV-10: rejecters of a push that stays are known from the halt on. An abort long after the last count of
/// clients takes the push back.
#[test]
fn wav_16_a_push_that_stays_goes_back_by_an_abort_however_late() {
    let mut world = World::of(Plan { on_halt: OnHalt::Stay, ..enforcing() });
    world.push_of(&[1]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    assert_eq!(moves(&mut world), "1 waving 1, stay 1, 1 halted 1");
    world.tally(61_400, admitted(REJECTED));
    assert_eq!((world.released.as_slice(), world.rollout.wants_tally()), (&[1][..], false));
    world.command(120_000, Command::Abort { push: 1 }).unwrap();
    assert_eq!(moves(&mut world), "back 1, 1 halted 1");
}

/// Each cut takes the place of a halted push. The look before it finds the reasons to put it off, and the
/// push stays with its clients.
#[test]
fn wav_16_a_halted_push_that_clients_keep_outlasts_a_cut_that_is_put_off() {
    let stale = || UnitPush { is_current: false, ..unit_push(1) };
    let blank = || UnitPush { types: Vec::new(), ..unit_push(1) };
    let unchanged = || UnitPush { is_former: true, ..unit_push(1) };
    for (unit_push, again) in
        [(stale(), Some(4_000)), (blank(), Some(4_000)), (unchanged(), None), (unit_push(1), None)]
    {
        let mut world = World::of(Plan { on_halt: OnHalt::Stay, ..enforcing() });
        world.push_of(&[1]);
        world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
        world.live(2_000, 1, true, true);
        world.timer(3_000);
        assert!(world.rollout.has_holders() && world.cuts.last().unwrap().0 == 2);
        let mut is_put_off = false;
        let is_changed = unit_push.is_current && !unit_push.is_empty() && !unit_push.is_former;
        world.run(3_000, |rollout, now| is_put_off = rollout.look(vec![unit_push], now));
        assert_eq!((is_put_off, world.rollout.poll_timeout()), (!is_changed, again.map(at)));
        assert_eq!((world.push_number(), world.rollout.has_holders()), (Some(1), true));
    }
    let mut world = World::enforced(&[1]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    assert!(!world.rollout.has_holders(), "all have gone back");
}

#[test]
fn wav_15_nobody_is_given_a_halted_push() {
    let mut world = World::enforced(&[1]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    let seat = Seat { bucket: 0, labelled_step: Some(1) };
    let halted = world.admissions.last().unwrap();
    assert!(!halted.admits(seat, None) && !halted.admits(seat, Some(1)) && halted.is_seated(seat));
}

#[test]
fn wav_17_late_words_against_a_halted_push_blame_their_units_and_change_no_count() {
    let mut world = World::enforced(&[1, 2]);
    world.tally(1_400, Tally { blamed: vec![unit(1)], ..admitted(REJECTED) });
    let late = Rejection {
        stream: 7,
        node: "n".into(),
        unit: unit(2),
        seat: Seat { bucket: 0, labelled_step: None },
        type_url: TypeUrl::of_message(LISTENER),
        words: "no".into(),
        suspects: vec![],
        is_known_rejecter: false,
    };
    let tally = Tally { blamed: vec![unit(2)], rejections: vec![late], ..admitted(Counts::default()) };
    world.tally(2_400, tally);
    assert_eq!((world.push().blamed.as_slice(), world.push().admitted), (&[unit(1), unit(2)][..], REJECTED));
    assert_eq!(world.push().rejections.len(), 1);
}

/// TRU-1: many clients reject at once, and the first rejection halts the push before the others are counted.
#[test]
fn wav_17_late_rejections_of_a_halted_push_are_counted() {
    let mut world = World::enforced(&[1]);
    world.tally(1_400, admitted(Counts { pending: 20, accepted: 2, ..REJECTED }));
    assert_eq!(world.push().state, RolloutState::Halted);
    world.tally(2_400, admitted(Counts { rejected: 20, rejected_again: 2, unaffected: 4, ..REJECTED }));
    let counted = Counts { rejected: 20, rejected_again: 2, accepted: 1, pending: 0, ..REJECTED };
    assert_eq!(world.push().admitted, counted);
}

#[test]
fn wav_11_no_push_begins_while_too_much_is_held() {
    let mut world = World::of(enforcing());
    world.live(0, 1, true, true);
    world.run(500, |rollout, now| rollout.set_full(true, now));
    assert_eq!(world.rollout.poll_timeout(), None);
    world.run(60_000, |rollout, now| rollout.set_full(false, now));
    assert_eq!((world.cuts.len(), world.events.as_slice()), (1, &[What::Full][..]));
    assert_eq!(world.rollout.report().behind_from, Some(at(0).into()));
}

#[test]
fn behind_is_the_oldest_change_that_somebody_lacks() {
    let mut world = World::enforced(&[1]);
    let behind = |world: &World| world.rollout.report().behind_from;
    assert_eq!(behind(&world), Some(at(0).into()));
    (2..=160).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!((world.state(), behind(&world)), (RolloutState::Settling, None), "all clients have it");
    world.live(161_000, 1, true, true);
    assert_eq!(behind(&world), Some(at(161_000).into()));
}

/// The unit is away from stable all the time, and at the settle by a later change than before.
#[test]
fn tru_7_behind_begins_with_the_change_that_waits_behind_the_push() {
    let mut world = World::enforced(&[1, 2]);
    let behind = |world: &World| world.rollout.report().behind_from;
    for second in 2..=160 {
        let ms = second * 1_000;
        match second {
            20 | 50 => world.live(ms, 2, true, true),
            30 | 60 => world.live(ms, 1, true, true),
            40 => world.live(ms, 2, true, false),
            100 => assert_eq!(behind(&world), Some(at(0).into()), "the push itself is not everywhere"),
            _ => {}
        }
        world.tally(ms, admitted(accepted(10)));
    }
    assert_eq!((world.state(), behind(&world)), (RolloutState::Settling, Some(at(30_000).into())));
    (161..=400).for_each(|second| world.tally(second * 1_000, admitted(accepted(10))));
    assert_eq!(world.past()[0], (1, Outcome::Finished));
    assert_eq!(behind(&world), Some(at(30_000).into()));
    world.live(401_000, 1, false, false);
    assert_eq!(behind(&world), Some(at(50_000).into()), "each unit has its own time");
    world.live(401_000, 2, false, false);
    assert_eq!(behind(&world), None);
}

#[test]
fn another_plan_takes_the_push_back_and_gathers_anew() {
    let mut world = World::enforced(&[1]);
    world.run(2_000, |rollout, now| {
        rollout.configure(Arc::new(Plan { salt: "b".into(), ..enforcing() }), now)
    });
    assert_eq!(moves(&mut world), "1 waving 1, back 1, 1 nobody");
    assert_eq!(world.past(), [(1, Outcome::Abandoned)]);
    world.timer(3_000);
    assert_eq!(world.cuts.last().unwrap(), &(2, vec![unit(1)]));
}

#[test]
fn a_plan_that_only_observes_from_now_on_lets_all_go() {
    let mut world = World::enforced(&[1]);
    world.run(2_000, |rollout, now| rollout.configure(Arc::new(plan()), now));
    assert_eq!((moves(&mut world).as_str(), world.state()), ("1 waving 1, open", RolloutState::Open));
    let mut world = World::enforced(&[1]);
    world.run(2_000, Rollout::end);
    assert_eq!(moves(&mut world), "1 waving 1, open");
}

#[test]
fn a_push_whose_units_belong_to_another_plan_is_abandoned() {
    let mut world = World::new();
    [1, 2].iter().for_each(|number| world.changed(0, *number));
    world.timer(1_000);
    world.ready(1_000, vec![unit_push(1), unit_push(2)]);
    world.run(2_000, |rollout, now| rollout.taken(unit(1), now));
    assert_eq!(world.state(), RolloutState::Waving);
    world.run(2_000, |rollout, now| rollout.taken(unit(2), now));
    assert_eq!(world.past(), [(1, Outcome::Abandoned)]);
}

/// A plan is on its way to a cut of one unit when another unit begins to hold something back.
#[test]
fn wav_4_a_unit_that_holds_after_the_cut_waits_for_the_next_push() {
    let mut world = World::of(enforcing());
    world.live(0, 1, true, true);
    world.timer(1_000);
    assert_eq!(world.cuts, [(1, vec![unit(1)])]);
    assert!(world.rollout.keeps(unit(1)) && !world.rollout.keeps(unit(2)));
    // The content of the second unit is that of its latest candidate, so only its difference from stable is
    // news.
    world.live(1_000, 2, true, false);
    world.live(1_000, 1, false, false);
    world.ready(1_000, vec![UnitPush { types: vec![], ..unit_push(1) }]);
    world.timer(2_000);
    assert_eq!(world.cuts[1], (1, vec![unit(2)]));
}
