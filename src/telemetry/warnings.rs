//! Spaces one warning out: a peer decides how often its cause occurs.

use std::time::Duration;

use tokio::time::Instant;

/// Spaces warnings out, and counts the suppressed warnings.
#[derive(Debug)]
pub struct Warnings {
    interval: Duration,
    last: Option<Instant>,
    suppressed: u64,
}

impl Warnings {
    /// At most one warning in each interval.
    pub const fn new(interval: Duration) -> Warnings {
        Warnings { interval, last: None, suppressed: 0 }
    }

    /// The number of warnings suppressed since the last warning; `None` if no warning is due now.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + self.interval) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_spaced_out_and_counted() {
        const INTERVAL: Duration = Duration::from_secs(10);
        let (mut warnings, start) = (Warnings::new(INTERVAL), Instant::now());
        assert_eq!(warnings.due(start), Some(0));
        assert_eq!(warnings.due(start), None);
        assert_eq!(warnings.due(start + INTERVAL / 2), None);
        assert_eq!(warnings.due(start + INTERVAL), Some(2));
    }
}
