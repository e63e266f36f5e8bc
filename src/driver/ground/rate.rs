//! The rates of changes of subscription, of polls, and of first answers (RLY-56).

use sluice_engine::Time;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// A stream whose rejections and reports had to wait for this long without a pause is ended, and so are
/// polls.
const PATIENCE: Duration = Duration::from_secs(30);

/// This many names that came or went cost as much as one request. With the default rate and burst, a stream
/// may ask for 200,000 names at once, which is also the default limit of names, and then for 40,000 names a
/// second, which take a few percent of a core.
pub const NAMES_PER_TOKEN: u32 = 400;

/// This many names that a list repeats cost as much as one name that came or went: a list is read and
/// compared as a whole.
pub const LISTED_PER_NAME: usize = 2;

/// A token bucket as a theoretical arrival time (GCRA): one integer of state.
#[derive(Debug)]
pub struct Limiter {
    per_second: u32,
    burst: u32,
    /// When the bucket will be full again.
    full_at: Time,
    /// The same time with names free of charge.
    full_at_without_names: Time,
    /// Since when the number of requests alone has been over the rate.
    waiting_since: Option<Time>,
}

/// The names that the streams of one connection bring and take: when they are all paid for, in microseconds.
/// Else each new stream would have a burst of its own.
#[derive(Debug, Default)]
pub struct SharedNames(AtomicU64);

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateDecision {
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

    /// The time until another change may be taken; zero if the change may be taken now.
    pub fn wait(&self, now: Time) -> Duration {
        if self.full_at <= now {
            return Duration::ZERO;
        }
        let interval = Duration::from_secs(1) / self.per_second;
        (self.full_at + interval).since(now).saturating_sub(interval * self.burst)
    }

    /// Charges a request that was taken, with this many names. A token pays for [`NAMES_PER_TOKEN`] names.
    /// The next change waits for the debt, so a change is charged when its size is known (ADR 66).
    pub fn charge(&mut self, names: usize, now: Time) {
        let interval = Duration::from_secs(1) / self.per_second;
        self.full_at_without_names = self.full_at_without_names.max(now) + interval;
        self.reserve_for(names, now);
        // Nobody waits longer than this, whatever the number of names.
        self.full_at = self.full_at.min(now + interval * self.burst + PATIENCE);
    }

    /// The time until another change may be taken from a connection whose streams share the rate of names.
    pub fn wait_shared(&self, shared: &SharedNames, now: Time) -> Duration {
        let burst = Duration::from_secs(1) / self.per_second * self.burst;
        Time::from_micros(shared.0.load(Ordering::Relaxed)).since(now).saturating_sub(burst)
    }

    /// Charges the names of a request to all streams of the connection, each name by itself: else many
    /// streams with a few names each would cost nothing. On a connection with one stream nobody waits more,
    /// because the stream pays for the request, too.
    pub fn charge_shared(&self, names: usize, shared: &SharedNames, now: Time) {
        let interval = Duration::from_secs(1) / self.per_second;
        let cost = interval.saturating_mul(u32::try_from(names).unwrap_or(u32::MAX)) / NAMES_PER_TOKEN;
        let most = now + interval * self.burst + PATIENCE;
        let charged = |paid_at: u64| Some((Time::from_micros(paid_at).max(now) + cost).min(most).as_micros());
        let _ = shared.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);
    }

    /// When the next request may be read after a rejection or a report, which the caller has charged. The
    /// number of requests alone decides.
    pub fn admit_report(&mut self, now: Time) -> RateDecision {
        let burst = Duration::from_secs(1) / self.per_second * self.burst;
        let excess = self.full_at_without_names.since(now).saturating_sub(burst);
        self.judge(excess, !excess.is_zero(), now)
    }

    /// Charges and admits one of several concurrent requests. The wait of a request does not slow down the
    /// next request, so that names, too, can end the polls.
    pub fn admit_poll(&mut self, names: usize, now: Time) -> RateDecision {
        let excess = self.reserve_for(names, now);
        self.judge(excess, !excess.is_zero(), now)
    }

    fn reserve_for(&mut self, names: usize, now: Time) -> Duration {
        let interval = Duration::from_secs(1) / self.per_second;
        let names = u32::try_from(names).unwrap_or(u32::MAX);
        self.full_at = self.full_at.max(now) + interval.saturating_mul(names / NAMES_PER_TOKEN);
        self.reserve(now)
    }

    fn judge(&mut self, excess: Duration, is_over: bool, now: Time) -> RateDecision {
        if !is_over {
            self.waiting_since = None;
        }
        let since = is_over.then(|| *self.waiting_since.get_or_insert(now));
        match since {
            Some(since) if now.since(since) >= PATIENCE => RateDecision::Refused,
            _ if excess.is_zero() => RateDecision::Now,
            _ => RateDecision::After(excess),
        }
    }
}

/// The rates of first answers, by listener (RLY-56).
#[derive(Debug, Default)]
pub struct FirstAnswers(Mutex<HashMap<Arc<str>, Limiter>>);

impl FirstAnswers {
    /// Takes the next slot of a listener, and returns the time until the slot.
    pub fn reserve(&self, listener: &Arc<str>, per_second: u32, burst: u32, now: Time) -> Duration {
        let mut listeners = self.0.lock();
        let limiter = match listeners.get_mut(listener) {
            Some(limiter) => limiter,
            None => listeners.entry(listener.clone()).or_insert_with(|| Limiter::new(per_second, burst)),
        };
        limiter.configure(per_second, burst);
        limiter.reserve(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Charges a change if it may be taken; else returns the wait.
    fn change(limiter: &mut Limiter, names: usize, now: Time) -> Duration {
        let wait = limiter.wait(now);
        if wait.is_zero() {
            limiter.charge(names, now);
        }
        wait
    }

    #[test]
    fn fd_4_the_streams_of_a_connection_share_the_rate_of_names() {
        let (shared, now) = (SharedNames::default(), Time::from_micros(1_000_000));
        let stream = || Limiter::new(100, 500);
        (0..250).for_each(|_| stream().charge_shared(399, &shared, now));
        stream().charge_shared(250, &shared, now);
        assert_eq!(stream().wait_shared(&shared, now), Duration::ZERO);
        // A new stream goes on where the others were.
        stream().charge_shared(140_000, &shared, now);
        assert_eq!(stream().wait_shared(&shared, now), Duration::from_secs(1));
        assert_eq!(stream().wait_shared(&shared, now + Duration::from_secs(1)), Duration::ZERO);
        stream().charge_shared(usize::MAX, &shared, now);
        assert_eq!(stream().wait_shared(&shared, now), PATIENCE);
    }

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let mut limiter = Limiter::new(100, 500);
        let start = Time::from_micros(1_000_000);
        for _ in 0..500 {
            assert_eq!(change(&mut limiter, 0, start), Duration::ZERO);
        }
        assert_eq!(change(&mut limiter, 0, start), Duration::from_millis(10));
        assert_eq!(change(&mut limiter, 0, start + Duration::from_millis(10)), Duration::ZERO);
        assert_eq!(change(&mut limiter, 0, start + Duration::from_secs(10)), Duration::ZERO);
    }

    #[test]
    fn fd_6_names_count() {
        let mut limiter = Limiter::new(100, 500);
        let start = Time::from_micros(1_000_000);
        // Three requests with half as many names as one stream may have: the third one leaves a debt.
        for _ in 0..3 {
            assert_eq!(change(&mut limiter, 99_000, start), Duration::ZERO);
        }
        let wait = change(&mut limiter, 0, start);
        assert!(wait > Duration::from_secs(2) && wait < Duration::from_secs(3), "{wait:?}");
    }

    #[test]
    fn fd_4_a_client_that_changes_many_names_is_slowed_down_and_not_ended() {
        let mut limiter = Limiter::new(100, 500);
        let mut now = Time::from_micros(1);
        let mut waited = Duration::ZERO;
        for _ in 0..1000 {
            let wait = limiter.wait(now);
            (now, waited) = (now + wait, waited + wait);
            limiter.charge(50_000, now);
        }
        assert!(waited > Duration::from_secs(1200), "{waited:?}");
        assert_eq!(limiter.admit_report(now), RateDecision::Now, "names do not count for reports");
        // Polls run concurrently.
        let refused = (0..1000).any(|_| {
            now = now + Duration::from_millis(100);
            limiter.admit_poll(50_000, now) == RateDecision::Refused
        });
        assert!(refused);
    }

    #[test]
    fn fd_4_a_client_that_never_stops_rejecting_is_ended() {
        let mut limiter = Limiter::new(100, 1);
        let mut now = Time::from_micros(1);
        for _ in 0..100_000 {
            limiter.charge(0, now);
            match limiter.admit_report(now) {
                RateDecision::Now => {}
                RateDecision::After(wait) => now = now + wait,
                RateDecision::Refused => {
                    assert!(now.since(Time::ZERO) >= PATIENCE);
                    return;
                }
            }
        }
        unreachable!("a stream that is always over its rate is refused in the end");
    }
}
