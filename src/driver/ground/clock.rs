//! The only clock. Tests can pause it, because it is tokio's.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::telemetry::wall_now;
use sluice_engine::Time;
use sluice_engine::time::ReceivedAt;

/// Translates between the engine's time and tokio's.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    /// For display only (I18).
    wall_origin: SystemTime,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { origin: Instant::now(), wall_origin: wall_now() }
    }

    pub fn now(&self) -> Time {
        self.time(Instant::now())
    }

    pub fn time(&self, instant: Instant) -> Time {
        let micros = instant.saturating_duration_since(self.origin).as_micros();
        Time::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    pub fn instant(&self, time: Time) -> Instant {
        // A deadline beyond the platform's range becomes a day.
        let offset = Duration::from_micros(time.as_micros());
        self.origin.checked_add(offset).unwrap_or_else(|| self.origin + Duration::from_secs(86_400))
    }

    pub fn wall_of(&self, received_at: ReceivedAt) -> SystemTime {
        wall_from(self.wall_origin, received_at)
    }

    pub fn wall(&self, time: Time) -> SystemTime {
        self.wall_origin + Duration::from_micros(time.as_micros())
    }
}

/// A time on the wall clock. `origin`: the wall clock at the origin of the engine's time.
pub fn wall_from(origin: SystemTime, received_at: ReceivedAt) -> SystemTime {
    let offset = Duration::from_micros(received_at.as_micros().unsigned_abs());
    let wall = match received_at.as_micros() < 0 {
        true => origin.checked_sub(offset),
        false => origin.checked_add(offset),
    };
    wall.unwrap_or(origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_receipt_may_be_before_the_start() {
        let clock = Clock::start();
        let (now, minute) = (Time::from_micros(1_000_000), Duration::from_secs(60));
        assert_eq!(clock.wall_of(now.into()), clock.wall(now));
        assert_eq!(clock.wall_of(ReceivedAt::before(now, minute)) + minute, clock.wall(now));
    }
}
