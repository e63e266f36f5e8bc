//! Rate-limits log lines by cause: a few lines a second per cause. The next line reports the number of
//! suppressed lines.
//!
//! ```ignore
//! if let Some(suppressed) = throttle.allow("connection refused") {
//!     warn!(suppressed, server, "connection refused");
//! }
//! ```

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::time::Duration;

use super::metrics::LogMetrics;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Lines per cause in one [`WINDOW`].
const LINES_PER_WINDOW: u32 = 3;
const WINDOW: Duration = Duration::from_secs(1);

/// The maximum number of causes with an allowance of their own. Further causes share one until a window has
/// passed.
const CAUSES_MAX: usize = 256;

/// A keyed limiter of log lines. Shared by reference; the lock is held only for a look-up.
#[derive(Debug)]
pub struct Throttle {
    causes: Mutex<Causes>,
    log: LogMetrics,
    /// No line is ever allowed.
    is_mute: bool,
}

#[derive(Debug, Default)]
struct Causes {
    by_name: HashMap<Box<str>, LineAllowance>,
    shared: Option<LineAllowance>,
}

/// The use of the current window by one cause.
#[derive(Clone, Copy, Debug)]
struct LineAllowance {
    window_start: Instant,
    lines: u32,
    suppressed: u64,
}

impl Throttle {
    pub fn new(log: LogMetrics) -> Throttle {
        Throttle { causes: Mutex::default(), log, is_mute: false }
    }

    /// A limiter that allows no line.
    pub fn mute(log: LogMetrics) -> Throttle {
        Throttle { is_mute: true, ..Throttle::new(log) }
    }

    /// `Some` if a line about this cause may be written now, with the number of lines suppressed since the
    /// last one. `Some(None)` stands for zero, so that the log line omits the field.
    ///
    /// The number of causes is bounded, so a cause may contain text that peers choose (an address, a server).
    /// Keep it short.
    pub fn allow(&self, cause: &str) -> Option<Option<NonZeroU64>> {
        if self.is_mute {
            return None;
        }
        self.allow_at(cause, Instant::now()).map(NonZeroU64::new)
    }

    fn allow_at(&self, cause: &str, now: Instant) -> Option<u64> {
        let allowed = self.causes.lock().of(cause, now).take(now);
        if allowed.is_none() {
            self.log.suppressed.inc();
        }
        allowed
    }
}

impl Causes {
    fn of(&mut self, cause: &str, now: Instant) -> &mut LineAllowance {
        let fresh = LineAllowance { window_start: now, lines: 0, suppressed: 0 };
        if !self.by_name.contains_key(cause) && self.by_name.len() >= CAUSES_MAX {
            // The metric already includes the lines forgotten here.
            self.by_name.retain(|_, allowance| !allowance.is_over(now));
        }
        if self.by_name.contains_key(cause) || self.by_name.len() < CAUSES_MAX {
            self.by_name.entry(cause.into()).or_insert(fresh)
        } else {
            self.shared.get_or_insert(fresh)
        }
    }
}

impl LineAllowance {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.window_start) >= WINDOW
    }

    fn take(&mut self, now: Instant) -> Option<u64> {
        if self.is_over(now) {
            self.window_start = now;
            self.lines = 0;
        }
        if self.lines == LINES_PER_WINDOW {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::super::Metrics;
    use super::*;

    fn count(metrics: &Metrics) -> u64 {
        metrics.log.suppressed.get()
    }

    #[test]
    fn a_cause_gets_a_few_lines_a_second_and_then_says_how_many_it_kept_back() {
        let metrics = Metrics::new();
        let throttle = Throttle::new(metrics.log.clone());
        let start = Instant::now();
        let allowed: Vec<_> = (0..10).map(|_| throttle.allow_at("refused", start)).collect();
        assert_eq!(allowed[..3], [Some(0); 3]);
        assert_eq!(allowed[3..], [None; 7]);
        assert_eq!(throttle.allow_at("another", start), Some(0), "causes do not share");
        assert_eq!(throttle.allow_at("refused", start + WINDOW), Some(7));
        assert_eq!(throttle.allow_at("refused", start + WINDOW), Some(0));
        assert_eq!(count(&metrics), 7);
    }

    #[test]
    fn invented_causes_neither_grow_memory_nor_flood_the_log() {
        let metrics = Metrics::new();
        let throttle = Throttle::new(metrics.log.clone());
        let start = Instant::now();
        let allowed =
            (0..10_000).filter(|i| throttle.allow_at(&format!("peer {i}"), start).is_some()).count();
        assert_eq!(allowed, CAUSES_MAX + LINES_PER_WINDOW as usize);
        assert_eq!(throttle.causes.lock().by_name.len(), CAUSES_MAX);
        assert_eq!(throttle.allow_at("peer 10000", start + WINDOW), Some(0), "what is over makes room");
        assert_eq!(throttle.causes.lock().by_name.len(), 1);
    }
}
