//! Rates: how often one stream may change its subscriptions (§4.5), how many streams are answered for the first time
//! (RLY-56).

use std::time::Duration;

use crate::engine::Time;

/// A stream that had to wait without a pause for this long is ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// So many names of a request cost as much as the request itself. By the default rate and burst 200,000 names pass at once, as
/// many as one stream may ask for, and 40,000 in each second after that, which is some percent of a core.
pub const NAMES_PER_TOKEN: u32 = 400;

/// A token bucket by its theoretical arrival time (GCRA): one integer of state.
#[derive(Debug)]
pub struct Limiter {
    per_second: u32,
    burst: u32,
    /// When the bucket will be full again.
    full_at: Time,
    /// Since when every request had to wait.
    waiting_since: Option<Time>,
}

/// What the next request may do.
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
        Limiter { per_second, burst, full_at: Time::ZERO, waiting_since: None }
    }

    /// Takes the next place and tells how long it is away.
    pub fn reserve(&mut self, now: Time) -> Duration {
        let interval = Duration::from_secs(1) / self.per_second;
        self.full_at = self.full_at.max(now) + interval;
        self.full_at.since(now).saturating_sub(interval * self.burst)
    }

    /// Of a request that names so many resources. A token pays for [`NAMES_PER_TOKEN`] of them.
    pub fn admit(&mut self, names: usize, now: Time) -> Admission {
        let interval = Duration::from_secs(1) / self.per_second;
        let names = u32::try_from(names).unwrap_or(u32::MAX);
        self.full_at = self.full_at.max(now) + interval.saturating_mul(names / NAMES_PER_TOKEN);
        let excess = self.reserve(now);
        if excess.is_zero() {
            self.waiting_since = None;
            return Admission::Now;
        }
        let since = *self.waiting_since.get_or_insert(now);
        if now.since(since) >= PATIENCE { Admission::Refused } else { Admission::After(excess) }
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
        // Two requests of as many names as one may have.
        assert_eq!(limiter.admit(99_000, start), Admission::Now);
        assert_eq!(limiter.admit(99_000, start), Admission::Now);
        let Admission::After(wait) = limiter.admit(100_000, start) else { panic!("a third one waits") };
        assert!(wait > Duration::from_secs(2), "{wait:?}");
    }

    #[test]
    fn fd_4_who_never_stops_is_ended() {
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
