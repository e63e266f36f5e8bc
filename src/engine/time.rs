//! The time of the engine.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Microseconds since an origin that the driver chose. Monotonic; wall time never enters the engine (I18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    pub const ZERO: Time = Time(0);

    pub fn from_micros(micros: u64) -> Time {
        Time(micros)
    }

    pub fn as_micros(self) -> u64 {
        self.0
    }

    /// Zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The time at which a source received the content of a resource from its server. Unlike [`Time`], the value may be
/// before the origin: a resource from a checkpoint was received before a restart of the relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReceivedAt(i64);

impl ReceivedAt {
    pub fn before(now: Time, age: Duration) -> ReceivedAt {
        let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        ReceivedAt(ReceivedAt::from(now).0.saturating_sub(age))
    }

    /// Microseconds since the origin of [`Time`].
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// Zero if the time is later than `now`.
    pub fn age(self, now: Time) -> Duration {
        let age = ReceivedAt::from(now).0.saturating_sub(self.0);
        Duration::from_micros(u64::try_from(age).unwrap_or(0))
    }
}

impl From<Time> for ReceivedAt {
    fn from(time: Time) -> ReceivedAt {
        ReceivedAt(i64::try_from(time.0).unwrap_or(i64::MAX))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Saturates: a deadline beyond the end of time is never reached.
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}
