//! The time of the engine.

use std::fmt::{self, Debug, Formatter};
use std::num::NonZero;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Microseconds since an origin that the driver chose. Monotonic; wall time never enters the engine (I18).
///
/// One more than the microseconds is kept, so that an `Option<Time>` takes no more room than a `Time`: each
/// client has many.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(NonZero<u64>);

impl Time {
    pub const ZERO: Time = Time(NonZero::<u64>::MIN);

    /// `u64::MAX` gives the same time as the microsecond before.
    pub fn from_micros(micros: u64) -> Time {
        Time(NonZero::<u64>::MIN.saturating_add(micros))
    }

    pub fn as_micros(self) -> u64 {
        self.0.get() - 1
    }

    /// Zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.get().saturating_sub(earlier.0.get()))
    }
}

impl Default for Time {
    fn default() -> Time {
        Time::ZERO
    }
}

impl Debug for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Time").field(&self.as_micros()).finish()
    }
}

/// The time at which a source received the content of a resource from its server. Unlike [`Time`], the value
/// may be before the origin: a resource from a checkpoint was received before a restart of the relay.
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
        ReceivedAt(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
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
        Time::from_micros(
            self.as_micros().saturating_sub(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_may_be_absent_takes_no_more_room() {
        assert_eq!(size_of::<Option<Time>>(), 8);
    }

    #[test]
    fn time_ends_at_both_ends() {
        let (soon, never) = (Time::from_micros(5), Time::from_micros(u64::MAX));
        assert_eq!(
            (Time::ZERO.as_micros(), soon.as_micros(), format!("{soon:?}").as_str()),
            (0, 5, "Time(5)")
        );
        assert_eq!((soon + Duration::MAX, never + Duration::from_micros(1)), (never, never));
        assert_eq!((soon - Duration::from_micros(6), soon.since(never)), (Time::ZERO, Duration::ZERO));
        assert_eq!(never.since(Time::ZERO), Duration::from_micros(u64::MAX - 1));
    }
}
