//! Tables: names are never cut, and columns come only at the right end (CMD-3). The width of the terminal
//! plays no part, so that a script sees the same as a person.

use std::io::{self, Write};
use std::time::Duration;

use super::text::safe;

/// The space between two columns.
const GAP: usize = 2;

/// A cell without a value.
const NONE: &str = "-";

/// A column of a list of items. A cell is made of the item and the number of its line, for items with several
/// lines. `None` is shown as a dash.
pub(super) struct Column<T> {
    pub head: &'static str,
    pub kind: Kind,
    pub cell: fn(&T, usize) -> Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// A word that colour may repeat.
    State,
    /// Shown by `-o wide` only.
    Wide,
}

pub(super) const fn column<T>(head: &'static str, cell: fn(&T, usize) -> Option<String>) -> Column<T> {
    Column { head, kind: Kind::Plain, cell }
}

pub(super) const fn state<T>(head: &'static str, cell: fn(&T, usize) -> Option<String>) -> Column<T> {
    Column { head, kind: Kind::State, cell }
}

pub(super) const fn wide<T>(head: &'static str, cell: fn(&T, usize) -> Option<String>) -> Column<T> {
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
    /// A table of texts, all plain.
    pub(super) fn plain(heads: &[&'static str]) -> Table {
        Table { heads: heads.to_vec(), states: vec![false; heads.len()], rows: Vec::new() }
    }

    /// Adds a column at the right end.
    pub(super) fn head(&mut self, head: &'static str, kind: Kind) {
        self.heads.push(head);
        self.states.push(kind == Kind::State);
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

pub(super) fn shown(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

pub(super) fn maybe(value: Option<&impl ToString>) -> Option<String> {
    value.map(ToString::to_string)
}

/// Seconds as a time span.
pub(super) fn span(seconds: f64) -> Option<String> {
    Some(sluice_text::span(Duration::try_from_secs_f64(seconds.max(0.0)).ok()?))
}

pub(super) fn version(version: Option<&String>) -> Option<String> {
    version.map(|version| sluice_text::version(version))
}

/// The last segment of a type's name; nothing for none.
pub(super) fn type_name(message: &str) -> Option<String> {
    Some(super::text::short_type(message).to_owned())
}

pub(super) fn joined(texts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let texts: Vec<_> = texts.into_iter().map(|text| text.as_ref().to_owned()).collect();
    texts.join(", ")
}

/// The names of a bounded list. `count`: the number of all names.
pub(super) fn bounded_names(names: &[impl AsRef<str>], count: usize) -> String {
    match (names.is_empty(), count.saturating_sub(names.len())) {
        (true, 0) => "none".to_owned(),
        (true, more) => more.to_string(),
        (false, 0) => joined(names),
        (false, more) => format!("{} and {more} more", joined(names)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(has_heads: bool, has_colour: bool) -> String {
        let mut table = Table::default();
        table.head("NODE", Kind::Plain);
        table.head("STATE", Kind::State);
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
