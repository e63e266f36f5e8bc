//! Units whose server is lost: their clients stay where they are (WAV-18).

use super::{Rollout, UnitId};
use crate::engine::Time;
use crate::engine::rollout::machine::gather::Gathering;
use crate::engine::rollout::push::UnitPush;
use crate::engine::rollout::report::Reason;

impl Rollout {
    /// The server of a unit cannot be heard.
    pub fn lost(&mut self, unit: UnitId, now: Time) {
        self.lost.insert(unit);
        self.stand_or_go(now);
    }

    /// The server of a unit can be heard again. A push that began meanwhile left the unit out.
    pub fn heard(&mut self, unit: UnitId, now: Time) {
        if self.lost.remove(&unit) && self.plan.enforces() && self.is_left(unit) {
            self.gathering.get_or_insert_with(|| Gathering::new(now)).add(unit, now);
        }
        self.stand_or_go(now);
    }

    /// Whether a unit holds something back that is not of the push under way.
    fn is_left(&self, unit: UnitId) -> bool {
        let is_of_push = self.push.as_ref().is_some_and(|push| push.report.units.contains(&unit));
        !is_of_push && self.pin.is_none() && self.held.units().contains(&unit)
    }

    /// The units of the next push of a plan that enforces. No push begins with a unit whose server is lost:
    /// its first step would move clients.
    pub(super) fn heard_units(&self) -> Vec<UnitId> {
        self.held.units().into_iter().filter(|unit| !self.lost.contains(unit)).collect()
    }

    /// The units that the next push leaves out.
    pub(super) fn left_out(&self) -> Vec<UnitId> {
        let lost = self.lost.iter().filter(|unit| self.plan.enforces() && self.is_left(**unit));
        lost.copied().collect()
    }

    /// Whether the next push waits for a server. Clients that keep a halted push would move if another push
    /// took its place.
    pub(super) fn waits_for_server(&self) -> bool {
        if !self.plan.enforces() || self.lost.is_empty() {
            return false;
        }
        let kept = self.push.as_ref().filter(|push| push.has_holders);
        kept.is_some_and(|push| push.report.units.iter().any(|unit| self.lost.contains(unit)))
            || self.heard_units().is_empty() && !self.held.units().is_empty()
    }

    /// Whether a unit of a cut was lost since.
    pub(super) fn has_lost_one_of(&self, units: &[UnitPush]) -> bool {
        self.plan.enforces() && units.iter().any(|unit| self.lost.contains(&unit.unit))
    }

    /// The clocks of a push stand while the server of a unit is lost, and while an operator wants it.
    pub(super) fn stand_or_go(&mut self, now: Time) {
        if let Some(push) = &mut self.push {
            let lost = push.report.units.iter().find(|unit| self.lost.contains(unit)).copied();
            let reason = match lost {
                _ if self.frozen.is_some() => Some(Reason::Frozen),
                _ if push.is_paused => Some(Reason::Operator),
                _ if self.is_succeeded => Some(Reason::Succeeded),
                lost => lost.map(Reason::ServerLost),
            };
            push.stand_or_go(reason, &mut self.outputs, now);
        }
        self.advance(now);
    }
}
