//! The changes with a trace: all bad and slow ones, and some of the others, evenly (OBS-5).

use std::time::Duration;

use tokio::time::Instant;

use super::TraceSettings;
use super::change::FinishedChange;

#[derive(Debug)]
pub(super) struct Sampler {
    slow: Duration,
    /// The time between two ordinary traces; `None`: no ordinary change has one.
    distance: Option<Duration>,
    next: Option<Instant>,
}

impl Sampler {
    pub(super) fn new(settings: &TraceSettings) -> Sampler {
        let distance = Duration::from_secs(1).checked_div(settings.per_second);
        Sampler { slow: settings.slow, distance, next: None }
    }

    pub(super) fn wants(&mut self, change: &FinishedChange, now: Instant) -> bool {
        if change.is_bad() || change.last.is_some_and(|last| last > self.slow) {
            return true;
        }
        let Some(distance) = self.distance else { return false };
        if self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.next = Some(now + distance);
        true
    }
}
