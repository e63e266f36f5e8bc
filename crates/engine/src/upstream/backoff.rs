//! The delay before the next stream.

use std::time::Duration;

/// Exponential backoff between unanswered streams (CLI-4).
#[derive(Clone, Debug, PartialEq)]
pub struct BackoffSettings {
    pub initial: Duration,
    pub multiplier: f64,
    /// The random share of a delay: 0.2 is ±20 %.
    pub jitter: f64,
    /// The maximum delay, before jitter.
    pub max: Duration,
    /// The maximum delay after an answered stream (CLI-5).
    pub good_stream_jitter: Duration,
    /// An answered stream with a shorter life is short. From the second short stream in a row, the backoff is
    /// that of unanswered streams. Otherwise a server that answers and dies repeatedly would cause a hot
    /// loop.
    pub short_life: Duration,
    /// After `unsteady_ends` short streams within `unsteady_within` the server counts as unreachable; see
    /// [`super::health`].
    pub unsteady_ends: usize,
    pub unsteady_within: Duration,
}

impl From<sluice_setting::Backoff> for BackoffSettings {
    fn from(sluice_setting::Backoff { initial, max }: sluice_setting::Backoff) -> Self {
        BackoffSettings {
            initial,
            multiplier: 1.6,
            jitter: 0.2,
            max,
            good_stream_jitter: Duration::from_millis(100),
            short_life: Duration::from_secs(10),
            unsteady_ends: 5,
            unsteady_within: Duration::from_secs(60),
        }
    }
}

impl Default for BackoffSettings {
    fn default() -> Self {
        sluice_setting::Backoff::default().into()
    }
}

impl BackoffSettings {
    /// The delay after `failures` failures, without jitter, for attempts that a stream makes by itself.
    pub(super) fn after(&self, failures: u32) -> Duration {
        self.delay(failures, 0.5)
    }

    /// The delay before the attempt after the `nth` failure, counted from 1.
    fn delay(&self, nth: u32, jitter: f64) -> Duration {
        let max = self.max.as_secs_f64();
        let mut base = self.initial.as_secs_f64();
        for _ in 1..nth {
            if base >= max {
                break;
            }
            base *= self.multiplier;
        }
        let spread = 1.0 + self.jitter * (2.0 * unit(jitter) - 1.0);
        Duration::try_from_secs_f64(base.min(max) * spread).unwrap_or(self.max)
    }
}

/// Counters of earlier streams.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamBackoff {
    /// Consecutive streams that ended before their first response.
    unanswered: u32,
    /// Consecutive answered streams that were short.
    short: u32,
}

impl StreamBackoff {
    /// CLI-4: a response resets the backoff.
    pub(super) fn answered(&mut self) {
        self.unanswered = 0;
    }

    pub(super) fn after_unanswered(&mut self, settings: &BackoffSettings, jitter: f64) -> Duration {
        self.unanswered = self.unanswered.saturating_add(1);
        settings.delay(self.unanswered, jitter)
    }

    /// `is_dismissed`: the server asked for the end of the stream. Servers may limit the age of connections
    /// to a few seconds (FU10). Only a limit that leaves the relay no time but for connecting counts against
    /// the server.
    pub(super) fn after_answered(
        &mut self,
        settings: &BackoffSettings,
        lived: Duration,
        is_dismissed: bool,
        jitter: f64,
    ) -> Duration {
        let short_life = if is_dismissed { settings.initial } else { settings.short_life };
        self.short = if lived < short_life { self.short.saturating_add(1) } else { 0 };
        match self.short {
            0 | 1 => settings.good_stream_jitter.mul_f64(unit(jitter)),
            short => settings.delay(short - 1, jitter),
        }
    }
}

/// Entropy comes from outside, and may be out of range.
fn unit(jitter: f64) -> f64 {
    if (0.0..=1.0).contains(&jitter) { jitter } else { 0.5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(duration: Duration) -> u128 {
        duration.as_millis()
    }

    #[test]
    fn cli_4_delays_grow_by_the_multiplier_up_to_the_cap() {
        let (settings, mut backoff) = (BackoffSettings::default(), StreamBackoff::default());
        let delays: Vec<_> = (0..10).map(|_| millis(backoff.after_unanswered(&settings, 0.5))).collect();
        assert_eq!(delays, [1000, 1600, 2560, 4096, 6553, 10485, 16777, 26843, 30000, 30000]);
        backoff.answered();
        assert_eq!(millis(backoff.after_unanswered(&settings, 0.0)), 800);
        assert_eq!(millis(backoff.after_unanswered(&settings, 1.0)), 1920);
        assert_eq!(millis(backoff.after_unanswered(&settings, f64::NAN)), 2560);
    }

    #[test]
    fn fu_9_short_streams_in_a_row_back_off_and_a_long_one_ends_the_row() {
        let (settings, mut backoff) = (BackoffSettings::default(), StreamBackoff::default());
        let (short, long) = (Duration::from_secs(9), Duration::from_secs(10));
        let mut after = |lived| {
            backoff.answered();
            millis(backoff.after_answered(&settings, lived, false, 0.5))
        };
        assert_eq!([after(short), after(short), after(short)], [50, 1000, 1600]);
        assert_eq!([after(long), after(short), after(short)], [50, 50, 1000]);
    }
}
