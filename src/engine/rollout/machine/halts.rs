//! Standstills: a freeze, which ends by a clock (HIS-4, GRD-2), and a successor (HND-3).

use std::time::Duration;

use super::Rollout;
use crate::engine::Time;

/// A freeze is told so often.
const TOLD_EVERY: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freeze {
    pub until: Time,
    told: Time,
}

impl Freeze {
    pub(super) fn new(until: Time, now: Time) -> Freeze {
        Freeze { until, told: now }
    }

    pub(super) fn due(&self) -> Time {
        self.until.min(self.told + TOLD_EVERY)
    }

    /// Whether the freeze has to be told again.
    pub(super) fn tell(&mut self, now: Time) -> bool {
        let is_due = now >= self.told + TOLD_EVERY;
        if is_due {
            self.told = now;
        }
        is_due
    }
}

impl Rollout {
    /// Another process decides, or does not after all. Meanwhile no push begins and none goes on, and a bad one is still taken back.
    pub fn set_succeeded(&mut self, is_succeeded: bool, now: Time) {
        if self.is_succeeded != is_succeeded && self.plan.enforces() {
            self.is_succeeded = is_succeeded;
            self.stand_or_go(now);
        }
    }
}
