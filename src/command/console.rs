//! The terminal or pipe of a command.

use std::io::{self, Write};

use serde_json::Value;

use super::text::safe_json;

/// Moves the cursor home, and clears the screen below.
pub(super) const REDRAW: &str = "\u{1b}[H\u{1b}[J";

/// The two outputs of a command. `out` gets data only (CMD-2).
pub struct Console<'a> {
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
    pub is_terminal: bool,
    /// Whether states may be coloured: a terminal, and no `NO_COLOR` (CMD-3).
    pub has_colour: bool,
}

impl Console<'_> {
    /// A value as indented JSON.
    pub(super) fn json(&mut self, value: &Value) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
        writeln!(self.out, "{}", safe_json(&text))
    }

    /// A value as JSON on one line, at once.
    pub(super) fn json_line(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{}", safe_json(&value.to_string()))?;
        self.out.flush()
    }
}
