//! Random inputs: a promise of the plan is checked after each.

use super::*;
use crate::rollout::command::{Command, PinFor, Promotion};
use crate::rollout::plan::BUCKETS;

/// A step of a linear generator: equal seeds give equal schedules.
pub(super) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn counts(&mut self) -> Counts {
        let mut few = |dice_sides, sides| if self.roll(dice_sides) == 0 { self.roll(sides) } else { 0 };
        Counts {
            rejected: few(80, 3),
            rejected_again: few(12, 5),
            silent: few(12, 20),
            pending: few(12, 20),
            overtaken: few(12, 5),
            lost: few(80, 4),
            departed: few(12, 3),
            unjudged: few(12, 4),
            unaffected: few(12, 50),
            accepted: 0,
        } + accepted(self.roll(60))
    }

    pub fn tally(&mut self) -> Tally {
        let smallest = (0..self.roll(3)).map(|_| self.roll(u64::from(BUCKETS)) as u16).collect();
        Tally { others: self.counts(), voices: self.roll(3), smallest, ..admitted(self.counts()) }
    }
}

pub(super) const TALLIES: usize = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };

/// The moves of a push between two tallies.
fn check(before: &RolloutReport, world: &World, tally: Option<&Tally>) {
    let after = world.rollout.report();
    assert_eq!(after.push.is_none(), matches!(after.state, RolloutState::Open | RolloutState::Gathering));
    let (Some(was), Some(is)) = (&before.push, &after.push) else { return };
    if was.number != is.number {
        assert!(was.verdict.is_some() || after.past[0].end.unwrap().outcome == Outcome::Finished);
        return;
    }
    let (steps, were) = (is.steps.len(), was.steps.len());
    assert!(steps == were || steps == were + 1, "one step at a time");
    assert!(is.steps.is_sorted_by_key(|step| step.threshold), "thresholds never fall");
    if was.state == RolloutState::Halted {
        assert_eq!((is.state, steps), (RolloutState::Halted, were), "a halt stands");
    }
    if steps > were {
        let counts = tally.expect("only a tally promotes").admitted;
        assert!(counts.accepted * 100 >= counts.evidence() * 95, "without evidence: {counts:?}");
        let lost = counts.evidence() == 0 && counts.lost > 0;
        assert!(!lost || counts.departed * 100 >= (counts.departed + counts.lost) * 95, "lost: {counts:?}");
        assert!(world.rollout.lost.is_disjoint(&is.units.iter().copied().collect()), "a server is lost");
    }
    assert_eq!(world.rollout.wants_tally(), !world.released.contains(&is.number));
}

fn next_step(report: &RolloutReport) -> Promotion {
    let push = report.push.as_ref().filter(|push| push.state != RolloutState::Halted);
    push.map_or(Promotion::Anew, |push| Promotion::Step(push.next_step()))
}

#[test]
fn wav_12_random_schedules_keep_the_promises_of_a_plan() {
    let mut dice = Dice(18);
    let mut world = World::new();
    let (mut finished, mut halted) = (0, 0);
    for _ in 0..TALLIES {
        let (before, ms) = (world.rollout.report(), world.now + 1 + dice.roll(4_000));
        let mut tally = None;
        match dice.roll(40) {
            0 => world.changed(ms, dice.roll(200)),
            1 => world.run(ms, |rollout, now| rollout.lost(unit(dice.roll(200)), now)),
            2 => world.run(ms, |rollout, now| {
                let units: Vec<_> = rollout.lost.iter().copied().collect();
                units.into_iter().for_each(|unit| rollout.heard(unit, now));
            }),
            3 => world.run(ms, |rollout, now| rollout.gone(unit(dice.roll(200)), now)),
            4 => world.run(ms, |rollout, now| rollout.returned(unit(dice.roll(200)), now)),
            5..=9 => world.run(ms, Rollout::handle_timeout),
            _ => {
                let rolled = dice.tally();
                world.tally(ms, rolled.clone());
                tally = Some(rolled);
            }
        }
        if let Some((_, units)) = world.cuts.pop() {
            check(&before, &world, tally.as_ref());
            let stale = dice.roll(4) == 0;
            let push = |unit: &UnitId| UnitPush { is_current: !stale, ..unit_push(unit.0) };
            world.ready(ms, units.iter().map(push).collect());
            continue;
        }
        check(&before, &world, tally.as_ref());
        for what in world.events.drain(..) {
            finished += usize::from(what == What::Over(Outcome::Finished));
            halted += usize::from(matches!(what, What::Halted(_)));
        }
        world.admissions.clear();
    }
    assert!(finished > 10 && halted > 10, "{finished} finished, {halted} halted");
}

/// A unit that serves contents as a source would. A content is a number.
#[derive(Clone, Default)]
struct Lane {
    live: u128,
    stable: u128,
    /// The push of the candidate, and its content.
    candidate: Option<(u64, u128)>,
}

impl Lane {
    fn differs(&self) -> Differs {
        let from_stable = self.live != self.stable;
        let from_candidate = self.candidate.map_or(from_stable, |(_, content)| self.live != content);
        Differs { from_stable, from_candidate }
    }
}

const LANES: u64 = 4;

/// The units of an enforcing plan, and what the outputs so far have done to them.
#[derive(Default)]
struct Lanes {
    all: Vec<Lane>,
    admission: Option<Admission>,
    is_back: bool,
    settled: u64,
}

impl Lanes {
    fn new() -> Lanes {
        Lanes { all: vec![Lane::default(); LANES as usize], ..Lanes::default() }
    }

    fn carry_out(&mut self, output: Output, report: &RolloutReport) {
        match output {
            Output::Admit(admission) => self.admit(admission, report),
            Output::Back { .. } => self.is_back = true,
            Output::Settle { push } => {
                let admission = self.admission.expect("nobody was admitted");
                assert_eq!((admission.push, admission.threshold), (push, BUCKETS), "stable is what all have");
                for lane in self
                    .all
                    .iter_mut()
                    .filter(|lane| lane.candidate.is_some_and(|candidate| candidate.0 == push))
                {
                    lane.stable = lane.candidate.take().unwrap().1;
                }
                self.settled += 1;
            }
            Output::Serve { .. } => {
                for lane in &mut self.all {
                    (lane.stable, lane.candidate) = (0, Some((0, lane.live)));
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn admit(&mut self, admission: Admission, report: &RolloutReport) {
        let seat = crate::rollout::Seat { bucket: 0, labelled_step: None };
        let was = self.admission.replace(admission).filter(|was| was.push == admission.push);
        if admission.admits(seat, None) {
            let units = &report.push.as_ref().or(report.past.first()).unwrap().units;
            let is_there = |unit: &UnitId| {
                self.all[unit.0 as usize].candidate.is_some_and(|(push, _)| push == admission.push)
            };
            assert!(units.iter().all(is_there), "a candidate is published before it is admitted");
        } else if was.is_some_and(|was| was.admits(seat, None)) {
            assert!(self.is_back, "back before the admission that takes away");
        }
        self.is_back = false;
    }
}

#[test]
fn wav_12_random_schedules_keep_the_promises_of_a_plan_that_enforces() {
    let mut dice = Dice(42);
    let mut world = World::of(Plan { steps: plan().steps[..1].to_vec(), ..enforcing() });
    let mut lanes = Lanes::new();
    let mut outcomes = std::collections::BTreeSet::new();
    for _ in 0..TALLIES {
        let (before, ms) = (world.rollout.report(), world.now + 1 + dice.roll(3_000));
        let number = before.push.as_ref().map_or(0, |push| push.number);
        let (mut may_promote, mut may_repeat) = (false, false);
        let at = dice.roll(LANES);
        match dice.roll(60) {
            0..=1 => lanes.all[at as usize].live = u128::from(dice.roll(5)),
            2 => world.run(ms, |rollout, now| rollout.lost(unit(at), now)),
            3..=5 => (0..LANES).for_each(|lane| world.run(ms, |rollout, now| rollout.heard(unit(lane), now))),
            6..=12 => world.run(ms, Rollout::handle_timeout),
            13 => {
                let command = match dice.roll(9) {
                    0 => Command::Pause { push: number },
                    1 => Command::Resume { push: number },
                    2 => Command::Promote { push: number, to: next_step(&before) },
                    3 => Command::Abort { push: number },
                    4 => Command::Bar { push: number, units: vec![unit(at)] },
                    5 => Command::Pin { release: 0, until: PinFor::NextPush },
                    6 => Command::Freeze { length: Duration::from_secs(dice.roll(9)) },
                    7 => Command::Unpin,
                    _ => Command::Rollback { push: number },
                };
                may_promote = matches!(command, Command::Promote { .. });
                let _ = world.command(ms, command);
            }
            _ => {
                may_promote = true;
                let blamed = before.push.iter().flat_map(|push| push.units.first().copied()).collect();
                world.tally(ms, Tally { blamed, ..dice.tally() });
            }
        }
        let after = world.rollout.report();
        if let (Some(was), Some(is)) = (&before.push, &after.push)
            && was.number == is.number
        {
            assert!(was.state != RolloutState::Halted || is.state == RolloutState::Halted, "a halt stands");
            assert!(is.steps.len() == was.steps.len() || may_promote, "only evidence and operators promote");
        }
        settle(&mut world, &mut lanes, ms);
        if let Some((number, units)) = world.cuts.pop() {
            let is_open = world.rollout.report().push.is_none_or(|push| push.state == RolloutState::Halted);
            assert!(is_open, "a push that goes on is not disturbed");
            may_repeat |= world.rollout.next.promoted.is_some();
            let (halted, before) = (world.rollout.report(), lanes.all.clone());
            let pushed = units.iter().map(|unit| cut(&mut lanes, number, *unit)).collect();
            if !world.ready(ms, pushed) {
                lanes.all.iter_mut().zip(&before).for_each(|(lane, was)| lane.candidate = was.candidate);
            }
            begun(&world, &before, &halted, may_repeat);
            settle(&mut world, &mut lanes, ms);
        }
        outcomes.extend(world.past().first().map(|(_, outcome)| outcome.name()));
        world.events.clear();
        world.admissions.clear();
    }
    let usual = ["finished", "halted", "restored", "withdrawn"];
    assert!(usual.iter().all(|outcome| outcomes.contains(outcome)), "{outcomes:?}");
    assert!(lanes.settled > 10);
}

/// Carries the outputs out, and tells the machine of the lanes, as a driver does.
fn settle(world: &mut World, lanes: &mut Lanes, ms: u64) {
    loop {
        let moves = std::mem::take(&mut world.moves);
        let is_over = moves.is_empty();
        for output in moves {
            let report = world.rollout.report();
            lanes.carry_out(output, &report);
        }
        for number in 0..LANES {
            let Differs { from_stable, from_candidate } = lanes.all[number as usize].differs();
            world.live(ms, number, from_stable, from_candidate);
        }
        if is_over && world.moves.is_empty() {
            return;
        }
    }
}

fn cut(lanes: &mut Lanes, number: u64, unit: UnitId) -> UnitPush {
    let lane = &mut lanes.all[unit.0 as usize];
    let former = lane.candidate.replace((number, lane.live));
    let push = UnitPush {
        is_former: former.is_some_and(|(_, content)| content == lane.live),
        stable: ReleaseDigest(lane.stable),
        candidate: ReleaseDigest(lane.live),
        ..unit_push(unit.0)
    };
    match lane.stable == lane.live {
        true => UnitPush { types: vec![], ..push },
        false => push,
    }
}

/// A push has begun after `halted`: no blamed content of a halted push comes again by itself.
fn begun(world: &World, before: &[Lane], halted: &RolloutReport, may_repeat: bool) {
    let report = world.rollout.report();
    let (Some(was), Some(is)) = (&halted.push, &report.push) else { return };
    if was.number == is.number || may_repeat {
        return;
    }
    let again = is.units.iter().filter(|unit| was.blamed.contains(unit) && !halted.barred.contains(unit));
    for unit in again {
        let lane = &before[unit.0 as usize];
        assert!(
            lane.candidate.is_none_or(|(_, content)| content != lane.live),
            "a blamed content begins again"
        );
    }
}
