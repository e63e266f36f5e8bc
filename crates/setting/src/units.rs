//! Numbers with a unit, as people write them.

use std::time::Duration;

use super::ms;

/// The units of times, in milliseconds.
pub const TIME_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// A number with a unit, multiplied out; `None` on overflow, too.
pub fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A day, in milliseconds. Only operators count in days; keys of the configuration do not.
const DAY: [(&str, u64); 1] = [("d", 86_400_000)];

/// A time of an operator: `500ms`, `10s`, `5m`, `1h`, `7d`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    with_unit(text, &TIME_UNITS).or_else(|| with_unit(text, &DAY)).map(ms)
}
