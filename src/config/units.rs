//! Parsers of single values: numbers, texts, words.

use super::form::{Form, Parsed, Parser, Shaped};
use super::tree::Tree;
use sluice_setting::{Range, TIME_UNITS, Unit, Value, with_unit};

pub(super) const TEXT: &str = "text (in quotes if it looks like a number)";

pub(super) const SIZE_UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// A number within the range: a count; a size in bytes, also in units; or a time. `off`, if the type has it.
pub(super) fn number<T: Value>(range: Range) -> impl Parser<T> {
    NumberParser(range)
}

struct NumberParser(Range);

impl<T: Value> Parser<T> for NumberParser {
    fn forms(&self) -> Vec<Form> {
        let number = Form::Number(self.0);
        if T::OFF.is_some() { vec![number, Form::Word("off")] } else { vec![number] }
    }

    fn parse(&self, tree: &Tree) -> Parsed<T> {
        let range = self.0;
        let number = match (range.unit, tree) {
            (Unit::Count | Unit::Bytes, Tree::Integer(value)) => u64::try_from(*value).ok(),
            (Unit::Bytes, Tree::Text(text)) => with_unit(text, &SIZE_UNITS),
            (Unit::Time, Tree::Text(text)) => with_unit(text, &TIME_UNITS).or_else(|| decimal_seconds(text)),
            _ => None,
        };
        match (number.filter(|number| (range.least..=range.most).contains(number)), T::OFF, tree) {
            (Some(number), ..) => Ok(T::from_number(number)),
            (None, Some(off), Tree::Text(text)) if text == "off" => Ok(off),
            (None, Some(_), _) => Err(format!("{}; or off", expected(range))),
            (None, None, _) => Err(expected(range)),
        }
    }
}

fn expected(range: Range) -> String {
    let (least, most) = (show(range.unit, range.least), show(range.unit, range.most));
    match range.unit {
        Unit::Count => format!("an integer from {least} to {most}"),
        Unit::Bytes => {
            format!("bytes from {least} to {most}, as an integer or written like 64KiB, 256MiB or 2GiB")
        }
        Unit::Time => format!("a duration from {least} to {most}, written like 500ms, 10s, 5m or 1h"),
    }
}

pub(super) fn boolean() -> impl Parser<bool> {
    Shaped(&[Form::Boolean], |tree: &Tree| match tree {
        Tree::Bool(value) => Ok(*value),
        _ => Err("true or false".into()),
    })
}

pub(super) fn text(tree: &Tree) -> Parsed<String> {
    match tree {
        Tree::Text(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err(TEXT.into()),
    }
}

/// A word from a fixed set.
pub(super) fn word<T: Copy>(words: &'static [(&'static str, T)]) -> impl Parser<T> {
    WordParser(words)
}

struct WordParser<T: 'static>(&'static [(&'static str, T)]);

impl<T: Copy> Parser<T> for WordParser<T> {
    fn forms(&self) -> Vec<Form> {
        self.0.iter().map(|(word, _)| Form::Word(word)).collect()
    }

    fn parse(&self, tree: &Tree) -> Parsed<T> {
        let entry = match tree {
            Tree::Text(text) => self.0.iter().find(|(word, _)| word == text),
            _ => None,
        };
        entry.map(|(_, value)| *value).ok_or_else(|| one_of(self.0.iter().map(|(word, _)| *word)))
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

/// Milliseconds of a duration as protobuf's JSON writes it: `0.5s`, `0.500000000s` (CRT-14).
fn decimal_seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.strip_suffix('s')?.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let (ms, rest) = (format!("{fraction:0<9}"), 1_000_000);
    let nanos: u64 = ms.parse().ok()?;
    nanos.is_multiple_of(rest).then_some(())?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(nanos / rest)
}

/// Formats a number as in the file, in the largest unit that divides it.
pub(super) fn show(unit: Unit, number: u64) -> String {
    let units: &[(&str, u64)] = match unit {
        Unit::Count => &[],
        Unit::Bytes => &SIZE_UNITS,
        Unit::Time if number == 0 => return "0s".into(),
        Unit::Time => &TIME_UNITS,
    };
    let unit = units.iter().rev().find(|(_, factor)| number >= *factor && number.is_multiple_of(*factor));
    unit.map_or_else(|| number.to_string(), |(name, factor)| format!("{}{name}", number / factor))
}
