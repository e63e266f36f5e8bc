//! Tables: names are never cut, and columns come only at the right end (CMD-3). The width of the terminal plays no
//! part, so that a script sees the same as a person.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;

use super::text::safe;

/// The space between two columns.
const GAP: usize = 2;

/// A cell without a value.
const NONE: &str = "-";

/// A line of a table: an item of a list, and one of its parts, if the table has a line for each part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub item: &'a Value,
    pub part: &'a Value,
}

/// A column. `None` is shown as a dash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub head: &'static str,
    pub kind: Kind,
    pub cell: fn(Line<'_>) -> Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// A word that colour may repeat.
    State,
    /// Shown by `-o wide` only.
    Wide,
}

pub(super) const fn column(head: &'static str, cell: fn(Line<'_>) -> Option<String>) -> Column {
    Column { head, kind: Kind::Plain, cell }
}

pub(super) const fn state(head: &'static str, cell: fn(Line<'_>) -> Option<String>) -> Column {
    Column { head, kind: Kind::State, cell }
}

pub(super) const fn wide(head: &'static str, cell: fn(Line<'_>) -> Option<String>) -> Column {
    Column { head, kind: Kind::Wide, cell }
}

/// A table as texts.
#[derive(Debug, Default)]
pub(super) struct Table {
    heads: Vec<&'static str>,
    states: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[Column]) -> Table {
        Table {
            heads: columns.iter().map(|column| column.head).collect(),
            states: columns.iter().map(|column| column.kind == Kind::State).collect(),
            rows: Vec::new(),
        }
    }

    /// A table of texts, all plain.
    pub(super) fn plain(heads: &[&'static str]) -> Table {
        Table { heads: heads.to_vec(), states: vec![false; heads.len()], rows: Vec::new() }
    }

    pub(super) fn push(&mut self, cells: impl IntoIterator<Item = Option<String>>) {
        let cell = |text: Option<String>| match text.filter(|text| !text.is_empty()) {
            Some(text) => safe(&text).into_owned(),
            None => NONE.to_owned(),
        };
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    pub(super) fn write(&self, out: &mut dyn Write, has_heads: bool, has_colour: bool) -> io::Result<()> {
        let heads: Vec<String> = self.heads.iter().map(|head| (*head).to_owned()).collect();
        let shown = has_heads.then_some(&heads);
        let width = |index: usize| {
            let cells = shown.into_iter().chain(&self.rows).filter_map(|row| row.get(index));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        if let Some(heads) = shown {
            self.write_row(out, heads, &widths, false)?;
        }
        self.rows.iter().try_for_each(|row| self.write_row(out, row, &widths, has_colour))
    }

    fn write_row(
        &self,
        out: &mut dyn Write,
        row: &[String],
        widths: &[usize],
        has_colour: bool,
    ) -> io::Result<()> {
        for (index, cell) in row.iter().enumerate() {
            let is_last = index + 1 == row.len();
            let colour = colour_of(cell).filter(|_| has_colour && self.states.get(index) == Some(&true));
            match colour {
                Some(colour) => write!(out, "\u{1b}[{colour}m{cell}\u{1b}[0m")?,
                None => out.write_all(cell.as_bytes())?,
            }
            if !is_last {
                let width = widths.get(index).copied().unwrap_or(0) + GAP;
                write!(out, "{:1$}", "", width.saturating_sub(cell.chars().count()))?;
            }
        }
        out.write_all(b"\n")
    }
}

/// The colour that repeats a state: green, yellow or red.
fn colour_of(state: &str) -> Option<u8> {
    match state {
        "SYNCED" | "ACKED" | "connected" | "ready" | "open" | "settling" => Some(32),
        "STALE" | "NOT_SENT" | "REQUESTED" | "connecting" | "unanswered" | "draining" | "warn" | "paused" => {
            Some(33)
        }
        "ERROR" | "NACKED" | "RECEIVED_ERROR" | "TIMEOUT" | "backoff" | "ends_streams" | "error"
        | "halted" => Some(31),
        _ => None,
    }
}

// === values of the API ===

/// The text of a member.
pub(super) fn text(of: &Value, key: &str) -> Option<String> {
    match of.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

pub(super) fn number(of: &Value, key: &str) -> Option<u64> {
    of.get(key)?.as_u64()
}

/// A member in seconds, as a time span.
pub(super) fn span(of: &Value, key: &str) -> Option<String> {
    let span = Duration::try_from_secs_f64(of.get(key)?.as_f64()?.max(0.0)).ok()?;
    Some(crate::text::span(span))
}

pub(super) fn version(of: &Value, key: &str) -> Option<String> {
    Some(crate::text::version(of.get(key)?.as_str()?))
}

pub(super) fn type_name(of: &Value) -> Option<String> {
    Some(super::text::short_type(of.get("type")?.as_str()?).to_owned())
}

pub(super) fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The names of a change; the API bounds them.
pub(super) fn changed_names(of: &Value, key: &str) -> String {
    listed_names(of, key, &format!("{key}_count"))
}

/// The names of a bounded list. `count`: the key of the number of all names.
pub(super) fn listed_names(of: &Value, key: &str, count: &str) -> String {
    let names: Vec<_> = list(of, key).iter().filter_map(Value::as_str).collect();
    let all = number(of, count).unwrap_or(names.len() as u64);
    match (names.is_empty(), all.saturating_sub(names.len() as u64)) {
        (true, 0) => "none".to_owned(),
        (true, more) => more.to_string(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(has_heads: bool, has_colour: bool) -> String {
        let columns = [column("NODE", |_| None), state("STATE", |_| None)];
        let mut table = Table::new(&columns);
        table.push([Some("a-long-name".to_owned()), Some("SYNCED".to_owned())]);
        table.push([Some("ERROR".to_owned()), Some("ERROR".to_owned())]);
        table.push([None, Some("\u{1b}[2J".to_owned())]);
        let mut out = Vec::new();
        table.write(&mut out, has_heads, has_colour).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cmd_3_columns_are_as_wide_as_their_names() {
        let plain = "NODE         STATE\na-long-name  SYNCED\nERROR        ERROR\n-            \\u{1b}[2J\n";
        assert_eq!(shown(true, false), plain);
        assert_eq!(shown(false, false), plain.split_once('\n').unwrap().1);
    }

    #[test]
    fn cmd_3_colour_repeats_states_and_only_states() {
        let colourful = shown(false, true);
        assert!(colourful.contains("\u{1b}[32mSYNCED\u{1b}[0m\n"), "{colourful:?}");
        assert!(colourful.contains("ERROR        \u{1b}[31mERROR\u{1b}[0m\n"), "{colourful:?}");
    }
}
