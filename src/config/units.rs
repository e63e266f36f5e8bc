//! Parsers of single values: durations, byte sizes, counts, words.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::reader::Parsed;
use super::tree::Tree;

pub(super) const TEXT: &str = "text (in quotes if it looks like a number)";

const DURATION_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
const SIZE_UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

pub(super) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(super) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(super) const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3_600)
}

/// A whole number of `ms`, `s`, `m` or `h`.
pub(super) fn duration(range: RangeInclusive<Duration>) -> impl Fn(&Tree) -> Parsed<Duration> {
    move |tree| {
        let found = match tree {
            Tree::Text(text) => with_unit(text, &DURATION_UNITS).map(Duration::from_millis),
            _ => None,
        };
        found.filter(|found| range.contains(found)).ok_or_else(|| {
            let (least, most) = (show_duration(*range.start()), show_duration(*range.end()));
            format!("a duration from {least} to {most}, written like 500ms, 10s, 5m or 1h")
        })
    }
}

/// A byte size: an integer, or a whole number of `KiB`, `MiB` or `GiB`.
pub(super) fn bytes<T: Bounded>(range: RangeInclusive<T>) -> impl Fn(&Tree) -> Parsed<T> {
    move |tree| {
        let found = match tree {
            Tree::Text(text) => with_unit(text, &SIZE_UNITS),
            _ => integer(tree),
        };
        found.and_then(|found| T::try_from(found).ok()).filter(|found| range.contains(found)).ok_or_else(
            || {
                let (least, most) = (show_bytes((*range.start()).into()), show_bytes((*range.end()).into()));
                format!("bytes from {least} to {most}, as an integer or written like 64KiB, 256MiB or 2GiB")
            },
        )
    }
}

pub(super) fn count<T: Bounded>(range: RangeInclusive<T>) -> impl Fn(&Tree) -> Parsed<T> {
    move |tree| {
        integer(tree)
            .and_then(|found| T::try_from(found).ok())
            .filter(|found| range.contains(found))
            .ok_or_else(|| format!("an integer from {} to {}", range.start(), range.end()))
    }
}

/// The unsigned integer types of configuration values.
pub(super) trait Bounded: Copy + Display + PartialOrd + TryFrom<u64> + Into<u64> {}

impl<T: Copy + Display + PartialOrd + TryFrom<u64> + Into<u64>> Bounded for T {}

/// `off`, or a value that the other parser accepts.
pub(super) fn or_off<T>(parser: impl Fn(&Tree) -> Parsed<T>) -> impl Fn(&Tree) -> Parsed<Option<T>> {
    move |tree| match tree {
        Tree::Text(text) if text == "off" => Ok(None),
        _ => parser(tree).map(Some).map_err(|expected| format!("{expected}; or off")),
    }
}

pub(super) fn boolean(tree: &Tree) -> Parsed<bool> {
    match tree {
        Tree::Bool(value) => Ok(*value),
        _ => Err("true or false".into()),
    }
}

pub(super) fn text(tree: &Tree) -> Parsed<String> {
    match tree {
        Tree::Text(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err(TEXT.into()),
    }
}

/// A word from a fixed set.
pub(super) fn word<T: Copy>(words: &'static [(&'static str, T)]) -> impl Fn(&Tree) -> Parsed<T> {
    move |tree| {
        let found = match tree {
            Tree::Text(text) => words.iter().find(|(word, _)| word == text),
            _ => None,
        };
        found.map(|(_, value)| *value).ok_or_else(|| one_of(words.iter().map(|(word, _)| *word)))
    }
}

/// Formats a list as `a, b or c`.
pub(super) fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

fn integer(tree: &Tree) -> Option<u64> {
    match tree {
        Tree::Integer(value) => u64::try_from(*value).ok(),
        _ => None,
    }
}

/// A number with a unit, multiplied out; `None` on overflow, too.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Formats a duration in the largest unit that divides it.
pub(super) fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".into();
    }
    show(millis, &DURATION_UNITS)
}

fn show_bytes(bytes: u64) -> String {
    show(bytes, &SIZE_UNITS)
}

fn show(value: u64, units: &[(&str, u64)]) -> String {
    let unit = units.iter().rev().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    unit.map_or_else(|| value.to_string(), |(name, factor)| format!("{}{name}", value / factor))
}
