//! Numbers with a key in the configuration file. The room that obeys a number declares key, default and
//! range, with the reason as the doc comment (ADR 20).
//!
//! `config` reads all numbers with the same parser. Tests compare `docs/configuration.md` with every
//! declaration. A range refuses mistakes, for example a wrong unit; the comment gives any other reason for an
//! end.

mod in_force;

use std::ops::RangeInclusive;
use std::time::Duration;

pub use in_force::{Epoch, InForce};

/// The declaration of a number.
#[derive(Clone, Copy, Debug)]
pub struct Setting<T> {
    /// The last part of the key's path. The owner's field and the label of its metric have the same name.
    pub key: &'static str,
    pub default: T,
    pub range: Range,
}

impl<T> Setting<T> {
    pub const fn new(key: &'static str, default: T, range: Range) -> Setting<T> {
        Setting { key, default, range }
    }
}

/// The accepted numbers, with both ends. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub unit: Unit,
    pub least: u64,
    pub most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Bytes,
    Time,
}

pub const fn count(range: RangeInclusive<u64>) -> Range {
    Range { unit: Unit::Count, least: *range.start(), most: *range.end() }
}

pub const fn bytes(range: RangeInclusive<u64>) -> Range {
    Range { unit: Unit::Bytes, least: *range.start(), most: *range.end() }
}

pub const fn time(range: RangeInclusive<Duration>) -> Range {
    let (least, most) = (range.start().as_millis() as u64, range.end().as_millis() as u64);
    Range { unit: Unit::Time, least, most }
}

/// The range of counts without a maximum of their own. Larger numbers are typing errors.
pub const SOME: Range = count(1..=1_000_000_000);

pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

pub const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3_600)
}

/// The type of a setting's value.
pub trait Value: Copy {
    /// The value written `off` in the file, if the type has such a value.
    const OFF: Option<Self>;

    /// The value of a number within the range.
    fn from_number(number: u64) -> Self;

    /// `None`: off.
    fn number(self) -> Option<u64>;
}

macro_rules! counts {
    ($($type:ty)*) => {$(
        impl Value for $type {
            const OFF: Option<Self> = None;

            fn from_number(number: u64) -> Self {
                number.try_into().unwrap_or(Self::MAX)
            }

            fn number(self) -> Option<u64> {
                Some(self as u64)
            }
        }
    )*};
}

counts! { u32 u64 usize }

impl Value for Duration {
    const OFF: Option<Self> = None;

    fn from_number(number: u64) -> Self {
        ms(number)
    }

    fn number(self) -> Option<u64> {
        Some(self.as_millis() as u64)
    }
}

impl<T: Value> Value for Option<T> {
    const OFF: Option<Self> = Some(None);

    fn from_number(number: u64) -> Self {
        Some(T::from_number(number))
    }

    fn number(self) -> Option<u64> {
        self?.number()
    }
}

/// A source of values: a map of the configuration file, or [`Defaults`].
pub trait Read {
    /// The stated value, or the default.
    fn value<T: Value>(&mut self, setting: &Setting<T>) -> T;
}

/// States nothing: every setting has its default.
#[derive(Debug)]
pub struct Defaults;

impl Read for Defaults {
    fn value<T: Value>(&mut self, setting: &Setting<T>) -> T {
        setting.default
    }
}

/// Declares a struct with a field for each setting of a map in the file: `key: type = default, range;`. The
/// name of the field is the key. `fixed` fields have no key. The macro demands a comment for every field, and
/// adds `read` and `Default`.
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[doc = $reason:literal])+ $key:ident: $type:ty = $default:expr, $range:expr;)+
        }
        $(fixed {
            $($(#[doc = $fixed_reason:literal])+ $fixed:ident: $fixed_type:ty = $value:expr;)+
        })?
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[doc = $reason])+ pub $key: $type,)+
            $($($(#[doc = $fixed_reason])+ pub $fixed: $fixed_type,)+)?
        }

        impl $name {
            /// The settings of a map, in the order of their declarations. Fixed fields have their values.
            pub fn read(map: &mut impl $crate::Read) -> $name {
                $name {
                    $($key: map.value(&$crate::Setting::new(stringify!($key), $default, $range)),)+
                    $($($fixed: $value,)+)?
                }
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::read(&mut $crate::Defaults)
            }
        }
    };
}

/// The units of times, in milliseconds.
pub const TIME_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// A number with a unit, multiplied out; `None` on overflow, too. A value has one spelling: one number, and
/// one of few units. `humantime` and `bytesize` take sums, fractions and many names of units.
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

/// The delays of a [`Backoff`]. Below 10 ms, attempts would load a server that is down already.
const DELAYS: Range = time(ms(10)..=seconds(600));

settings! {
    /// The delay between attempts without a response: `initial`, multiplied by 1.6 each time, at most `max`,
    /// ±20 % (CLI-4).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Backoff {
        /// The delay after the first failure: 1 s, as in gRPC (FU1).
        initial: Duration = seconds(1), DELAYS;
        /// The maximum, before its jitter. Below gRPC's 120 s, as a late relay delays thousands of clients.
        max: Duration = seconds(30), DELAYS;
    }
}
