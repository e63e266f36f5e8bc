//! Ends of standstills by a clock: a freeze, and a pin (HIS-3, HIS-4, GRD-2).

use std::time::Duration;

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
