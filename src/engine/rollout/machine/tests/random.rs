//! Random inputs: a promise of the plan is checked after each.

use super::*;
use crate::engine::rollout::plan::BUCKETS;

/// A step of a linear generator: equal seeds give equal schedules.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn counts(&mut self) -> Counts {
        let mut few = |of, sides| if self.roll(of) == 0 { self.roll(sides) } else { 0 };
        Counts {
            rejected: few(80, 3),
            rejected_again: few(12, 5),
            silent: few(12, 20),
            pending: few(12, 20),
            overtaken: few(12, 5),
            lost: few(80, 4),
            unjudged: few(12, 4),
            unaffected: few(12, 50),
            accepted: 0,
        } + accepted(self.roll(60))
    }

    fn tally(&mut self) -> Tally {
        let smallest = (0..self.roll(3)).map(|_| self.roll(u64::from(BUCKETS)) as u16).collect();
        Tally { others: self.counts(), smallest, ..admitted(self.counts()) }
    }
}

const TALLIES: usize = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };

/// What a push may do between two tallies.
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
        assert!(world.rollout.lost.is_disjoint(&is.units.iter().copied().collect()), "a server is lost");
    }
    assert_eq!(world.rollout.wants_tally(), !world.released.contains(&is.number));
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
            let of = |unit: &UnitId| UnitPush { is_current: !stale, ..unit_push(unit.0) };
            world.ready(ms, units.iter().map(of).collect());
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
