//! The only clock. Tests can pause it, because it is tokio's.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::engine::Time;
use crate::telemetry::wall_now;

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

    pub fn wall(&self, time: Time) -> SystemTime {
        self.wall_origin + Duration::from_micros(time.as_micros())
    }
}
