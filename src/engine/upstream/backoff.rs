//! When to open the next stream.

use std::time::Duration;

use crate::engine::planted::{Bug, planted};

/// Exponential backoff between streams that were not answered (CLI-4).
#[derive(Clone, Debug)]
pub struct BackoffSettings {
    pub initial: Duration,
    pub multiplier: f64,
    /// The share by which a delay is made shorter or longer at random: 0.2 is ±20 %.
    pub jitter: f64,
    /// The bound of a delay, before jitter.
    pub cap: Duration,
    /// After a stream that was answered the next one is opened within this time (CLI-5).
    pub good_stream_jitter: Duration,
    /// A stream that was answered but ended younger than this is short: the second one in a row and all that
    /// follow back off like streams that were not answered, so that a server that answers and dies over and over
    /// makes no hot loop.
    pub short_life: Duration,
    /// After so many short streams within this time the server counts as unreachable; see [`super::proof`].
    pub unsteady_ends: usize,
    pub unsteady_within: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        BackoffSettings {
            initial: Duration::from_secs(1),
            multiplier: 1.6,
            jitter: 0.2,
            cap: Duration::from_secs(30),
            good_stream_jitter: Duration::from_millis(100),
            short_life: Duration::from_secs(10),
            unsteady_ends: 5,
            unsteady_within: Duration::from_secs(60),
        }
    }
}

impl BackoffSettings {
    /// The delay after so many failures, without jitter: of attempts that one stream makes by itself.
    pub(super) fn after(&self, failures: u32) -> Duration {
        self.delay(failures, 0.5)
    }

    /// The delay before the attempt that follows the `nth` failure, counted from 1.
    fn delay(&self, nth: u32, jitter: f64) -> Duration {
        let cap = self.cap.as_secs_f64();
        let mut base = self.initial.as_secs_f64();
        for _ in 1..nth {
            if base >= cap {
                break;
            }
            base *= self.multiplier;
        }
        let spread = 1.0 + self.jitter * (2.0 * unit(jitter) - 1.0);
        Duration::try_from_secs_f64(base.min(cap) * spread).unwrap_or(self.cap)
    }
}

/// What has to be remembered of the streams before.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    /// Streams in a row that ended before their first response.
    unanswered: u32,
    /// Answered streams in a row that were short.
    short: u32,
}

impl Backoff {
    /// CLI-4: a response resets the backoff.
    pub(super) fn answered(&mut self) {
        self.unanswered = 0;
    }

    pub(super) fn after_unanswered(&mut self, settings: &BackoffSettings, jitter: f64) -> Duration {
        self.unanswered = self.unanswered.saturating_add(1);
        if planted(Bug::BackoffForgotten) {
            return Duration::ZERO;
        }
        settings.delay(self.unanswered, jitter)
    }

    /// `is_dismissed`: the server asked for the stream's end. A limit on the age of connections may be of few seconds
    /// (FU10); only one that would let the relay do nothing but connect is held against it.
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

/// Entropy comes from outside, so it is not trusted to be in range.
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
        let (settings, mut backoff) = (BackoffSettings::default(), Backoff::default());
        let delays: Vec<_> = (0..10).map(|_| millis(backoff.after_unanswered(&settings, 0.5))).collect();
        assert_eq!(delays, [1000, 1600, 2560, 4096, 6553, 10485, 16777, 26843, 30000, 30000]);
        backoff.answered();
        assert_eq!(millis(backoff.after_unanswered(&settings, 0.0)), 800);
        assert_eq!(millis(backoff.after_unanswered(&settings, 1.0)), 1920);
        assert_eq!(millis(backoff.after_unanswered(&settings, f64::NAN)), 2560);
    }

    #[test]
    fn fu_9_short_streams_in_a_row_back_off_and_a_long_one_ends_the_row() {
        let (settings, mut backoff) = (BackoffSettings::default(), Backoff::default());
        let (short, long) = (Duration::from_secs(9), Duration::from_secs(10));
        let mut after = |lived| {
            backoff.answered();
            millis(backoff.after_answered(&settings, lived, false, 0.5))
        };
        assert_eq!([after(short), after(short), after(short)], [50, 1000, 1600]);
        assert_eq!([after(long), after(short), after(short)], [50, 50, 1000]);
    }
}
