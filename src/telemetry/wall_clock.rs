//! The wall clock.

use std::time::SystemTime;

/// The time of day, for people and for other programs to read. Deadlines never depend on it (I18).
#[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
pub fn wall_now() -> SystemTime {
    SystemTime::now()
}
