//! The rates of changes of subscription, of polls, and of first answers (RLY-56).

use std::time::Duration;

use crate::engine::Time;

/// A stream that had to wait for this long without a pause is ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// This many names cost as much as one request. With the default rate and burst, a stream may ask for 200,000
/// names at once, which is also the default limit of names, and then for 40,000 names a second, which take a
/// few percent of a core.
pub const NAMES_PER_TOKEN: u32 = 400;

/// A token bucket as a theoretical arrival time (GCRA): one integer of state.
#[derive(Debug)]
pub struct Limiter {
    per_second: u32,
    burst: u32,
    /// When the bucket will be full again.
    full_at: Time,
    /// The same time with names free of charge.
    full_at_without_names: Time,
    /// Since when the number of requests alone has made every request wait.
    waiting_since: Option<Time>,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Now,
    After(Duration),
    /// The stream has been over its rate for too long.
    Refused,
}

impl Limiter {
    pub fn new(per_second: u32, burst: u32) -> Limiter {
        let (per_second, burst) = (per_second.max(1), burst.max(1));
        let (full_at, full_at_without_names) = (Time::ZERO, Time::ZERO);
        Limiter { per_second, burst, full_at, full_at_without_names, waiting_since: None }
    }

    /// Sets another rate and burst. Slots already taken stay taken.
    pub fn configure(&mut self, per_second: u32, burst: u32) {
        (self.per_second, self.burst) = (per_second.max(1), burst.max(1));
    }

    /// Takes the next slot, and returns the time until the slot.
    pub fn reserve(&mut self, now: Time) -> Duration {
        let interval = Duration::from_secs(1) / self.per_second;
        self.full_at = self.full_at.max(now) + interval;
        self.full_at.since(now).saturating_sub(interval * self.burst)
    }

    /// Admits a request with this many names. A token pays for [`NAMES_PER_TOKEN`] names. In SotW, a client
    /// repeats all its names in order to add another. Names therefore only slow the client down; the number of
    /// requests alone can end the stream.
    pub fn admit(&mut self, names: usize, now: Time) -> Admission {
        let interval = Duration::from_secs(1) / self.per_second;
        let burst = interval * self.burst;
        self.full_at_without_names = self.full_at_without_names.max(now) + interval;
        let is_over = !self.full_at_without_names.since(now).saturating_sub(burst).is_zero();
        let excess = self.reserve_for(names, now);
        // Nobody waits longer than this, whatever the number of names.
        self.full_at = self.full_at.min(now + burst + PATIENCE);
        self.judge(excess, is_over, now)
    }

    /// As [`Limiter::admit`], for concurrent requests. The wait of a request does not slow down the next
    /// request, so that names, too, can end the polls.
    pub fn admit_poll(&mut self, names: usize, now: Time) -> Admission {
        let excess = self.reserve_for(names, now);
        self.judge(excess, !excess.is_zero(), now)
    }

    fn reserve_for(&mut self, names: usize, now: Time) -> Duration {
        let interval = Duration::from_secs(1) / self.per_second;
        let names = u32::try_from(names).unwrap_or(u32::MAX);
        self.full_at = self.full_at.max(now) + interval.saturating_mul(names / NAMES_PER_TOKEN);
        self.reserve(now)
    }

    fn judge(&mut self, excess: Duration, is_over: bool, now: Time) -> Admission {
        if !is_over {
            self.waiting_since = None;
        }
        let since = is_over.then(|| *self.waiting_since.get_or_insert(now));
        match since {
            Some(since) if now.since(since) >= PATIENCE => Admission::Refused,
            _ if excess.is_zero() => Admission::Now,
            _ => Admission::After(excess),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let mut limiter = Limiter::new(100, 500);
        let start = Time::from_micros(1_000_000);
        for _ in 0..500 {
            assert_eq!(limiter.admit(0, start), Admission::Now);
        }
        assert_eq!(limiter.admit(0, start), Admission::After(Duration::from_millis(10)));
        assert_eq!(limiter.admit(0, start + Duration::from_secs(10)), Admission::Now);
    }

    #[test]
    fn fd_6_names_count() {
        let mut limiter = Limiter::new(100, 500);
        let start = Time::from_micros(1_000_000);
        // Two requests with as many names as one stream may have.
        assert_eq!(limiter.admit(99_000, start), Admission::Now);
        assert_eq!(limiter.admit(99_000, start), Admission::Now);
        let Admission::After(wait) = limiter.admit(100_000, start) else { panic!("a third one waits") };
        assert!(wait > Duration::from_secs(2), "{wait:?}");
    }

    /// In the state-of-the-world variant, each request repeats all names.
    #[test]
    fn fd_4_a_client_that_repeats_many_names_is_slowed_down_and_not_ended() {
        let mut limiter = Limiter::new(100, 500);
        let mut now = Time::from_micros(1);
        let mut waited = Duration::ZERO;
        for _ in 0..1000 {
            match limiter.admit(50_000, now) {
                Admission::Now => {}
                Admission::After(wait) => (now, waited) = (now + wait, waited + wait),
                Admission::Refused => unreachable!("it asks as often as it may"),
            }
        }
        assert!(waited > Duration::from_secs(1200), "{waited:?}");
        // Polls run concurrently.
        let refused = (0..1000).any(|_| {
            now = now + Duration::from_millis(100);
            limiter.admit_poll(50_000, now) == Admission::Refused
        });
        assert!(refused);
    }

    #[test]
    fn fd_4_a_client_that_never_stops_is_ended() {
        let mut limiter = Limiter::new(100, 1);
        let mut now = Time::from_micros(1);
        for _ in 0..100_000 {
            match limiter.admit(0, now) {
                Admission::Now => {}
                Admission::After(wait) => now = now + wait,
                Admission::Refused => {
                    assert!(now.since(Time::ZERO) >= PATIENCE);
                    return;
                }
            }
        }
        unreachable!("a stream that is always over its rate is refused in the end");
    }
}
