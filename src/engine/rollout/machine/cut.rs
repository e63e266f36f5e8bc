//! The cut of what was gathered, and the reasons to put it off.

use std::collections::BTreeMap;

use super::gather::Gathering;
use super::push::{GatheredPush, Push, PushStart};
use super::{Output, Rollout};
use crate::engine::Time;
use crate::engine::rollout::push::{UnitId, UnitPush};
use crate::engine::rollout::report::Outcome;

impl Rollout {
    /// Whether clients keep a halted push. Each cut takes its place, so the driver looks at the units before
    /// ([`Rollout::look`]).
    pub fn has_holders(&self) -> bool {
        self.push.as_ref().is_some_and(|push| push.holders().is_some())
    }

    /// A look at the units of [`Output::Cut`] as they are, before anything is cut. Returns whether the cut is
    /// put off: then this was the answer, and clients keep the halted push (WAV-16).
    pub fn look(&mut self, units: Vec<UnitPush>, now: Time) -> bool {
        let Some(cut) = &self.cutting else { return false };
        let is_put_off = self.is_stale(cut, &units, now)
            || self.stands_still()
            || self.has_lost_one_of(&units)
            || units.iter().all(UnitPush::is_empty)
            || !self.returned_to_halted(&units).is_empty();
        if is_put_off {
            self.ready(units, now);
        }
        is_put_off
    }

    /// Takes back a cut that the driver has not been asked for yet: an operator's word of the same moment
    /// comes first. The gathered changes wait for the next cut.
    pub(super) fn recall_cut(&mut self) {
        let is_cut = |output: &Output| matches!(output, Output::Cut { .. });
        if self.outputs.iter().any(is_cut) {
            self.outputs.retain(|output| !is_cut(output));
            if let Some(cut) = self.cutting.take() {
                self.gathering = Some(cut.with(self.gathering.take()));
            }
        }
    }

    /// The answer to [`Output::Cut`].
    pub fn ready(&mut self, units: Vec<UnitPush>, now: Time) {
        let Some(cut) = self.cutting.take() else { return };
        let number = self.last_push + 1;
        let returned = self.returned_to_halted(&units);
        let may_not = self.stands_still() || self.has_lost_one_of(&units);
        if may_not || self.is_stale(&cut, &units, now) || !returned.is_empty() {
            let again = Some(cut.retry(self.gathering.take(), &self.plan, now));
            self.gathering = returned.into_iter().fold(again, |gathering, unit| gathering?.without(unit));
            return self.advance(now);
        }
        let (blank, units): (Vec<UnitPush>, Vec<UnitPush>) = units.into_iter().partition(UnitPush::is_empty);
        if units.is_empty() && self.promoted.take().is_some() {
            self.let_go_of_forgotten(now);
        }
        self.gather_blank(&cut, &blank, now);
        if units.is_empty() {
            self.outputs.push_back(Output::Release { push: number });
            return self.advance(now);
        }
        let holders_of = self.push.as_ref().and_then(Push::holders);
        let verdict = self.push.as_ref().map(|push| push.outcome());
        self.close(verdict.unwrap_or(Outcome::Finished), now);
        self.last_push = number;
        let start = match self.promoted.take() {
            Some(step) => PushStart::Promoted(step),
            None if self.plan.enforces() && self.held.knows(&units) => PushStart::Restored,
            None => PushStart::Judged,
        };
        self.held.begin(&units);
        let gathered = GatheredPush { number, from: cut.first, units, holders_of, start };
        let push = self.push.insert(Push::begin(&self.plan, gathered, &mut self.outputs, now));
        if start == PushStart::Restored && !push.is_halted() {
            self.close(Outcome::Restored, now);
        }
        self.stand_or_go(now);
        if let Some(push) = self.push.as_mut().filter(|push| push.is_at_gate()) {
            // The hook is asked once the clocks run.
            push.leave_gate(&self.plan, &mut self.outputs, now);
        }
    }

    /// Whether a unit is not current, and may become so.
    fn is_stale(&self, cut: &Gathering, units: &[UnitPush], now: Time) -> bool {
        units.iter().any(|unit| !unit.is_current) && now < cut.latest(&self.plan)
    }

    /// The blamed units of a halted push that have its content again: they changed, and changed back before
    /// the cut (WAV-17).
    fn returned_to_halted(&self, units: &[UnitPush]) -> Vec<UnitId> {
        let halted = self.push.as_ref().filter(|push| push.is_halted() && self.plan.enforces());
        let Some(push) = halted.filter(|_| self.promoted.is_none()) else { return Vec::new() };
        let is_blamed = |unit: &&UnitPush| push.report.blamed.contains(&unit.unit);
        let is_waited_for = |unit: &&UnitPush| !self.held.barred.contains(&unit.unit);
        let returned = units.iter().filter(is_blamed).filter(is_waited_for).filter(|unit| unit.is_former);
        returned.map(|unit| unit.unit).collect()
    }

    /// An operator promotes a halted push, and nobody asks any more for what it changed: nothing is left to
    /// be given.
    fn let_go_of_forgotten(&mut self, now: Time) {
        if let Some(push) = &mut self.push {
            push.withdraw(&mut self.outputs);
            self.held.away.retain(|unit, _| !push.report.units.contains(unit));
        }
        self.close(Outcome::Halted, now);
    }

    /// Units that hold something back, and have no known change: a collection is not complete yet, as after a
    /// restart. The next push looks at them again.
    fn gather_blank(&mut self, cut: &Gathering, blank: &[UnitPush], now: Time) {
        let since = |unit| cut.units.get(&unit).copied().unwrap_or(now);
        let away = blank.iter().map(|part| part.unit).filter(|unit| self.held.away.contains_key(unit));
        let units: BTreeMap<UnitId, Time> = away.map(|unit| (unit, since(unit))).collect();
        if self.plan.enforces() && !units.is_empty() {
            // However long the unit stays so, each look is a while after the last.
            let mut cut = cut.clone().begin_anew(now);
            cut.units = units;
            self.gathering = Some(cut.retry(self.gathering.take(), &self.plan, now));
        }
    }
}
