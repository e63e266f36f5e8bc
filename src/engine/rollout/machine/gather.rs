//! The changes of the next push.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::engine::Time;
use crate::engine::rollout::plan::Plan;
use crate::engine::rollout::push::UnitId;

/// The wait before another look at units that were not current.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Gathering {
    pub first: Time,
    last: Time,
    not_before: Time,
    pub units: BTreeSet<UnitId>,
}

impl Gathering {
    pub(super) fn new(now: Time) -> Gathering {
        Gathering { first: now, last: now, not_before: now, units: BTreeSet::new() }
    }

    pub(super) fn add(&mut self, unit: UnitId, now: Time) {
        self.last = now;
        self.units.insert(unit);
    }

    pub(super) fn without(mut self, unit: UnitId) -> Option<Gathering> {
        self.units.remove(&unit);
        (!self.units.is_empty()).then_some(self)
    }

    /// The time of the cut, if nothing changes until then.
    pub(super) fn due(&self, plan: &Plan) -> Time {
        (self.last + plan.gather.quiet).max(self.not_before).min(self.latest(plan))
    }

    /// The time of the cut, whatever changes.
    pub(super) fn latest(&self, plan: &Plan) -> Time {
        self.first + plan.gather.max
    }

    /// Goes on gathering, with the changes that came during the cut.
    pub(super) fn retry(mut self, later: Option<Gathering>, plan: &Plan, now: Time) -> Gathering {
        if let Some(later) = later {
            self.last = later.last;
            self.units.extend(later.units);
        }
        self.not_before = now + plan.gather.quiet.max(RETRY);
        self
    }
}
