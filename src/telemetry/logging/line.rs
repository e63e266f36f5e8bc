//! The format of log lines. No value can end the line, control a terminal, or fill the log.
//!
//! All escaping happens here. Call sites pass texts of peers (status messages, names, node ids) unchanged.

use std::fmt::{self, Debug, Write};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::{MakeExt, RecordFields};
use tracing_subscriber::fmt::format::{FormatFields, Writer, debug_fn};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

use super::LogFormat;
use sluice_setting::InForce;

/// The maximum length of a value in a line. Longer than a client's rejection (`limits.error_detail_bytes`, 4
/// KiB), and short enough for a few hundred of the longest lines in the queue.
pub(super) const VALUE_BYTES_MAX: usize = 8 * 1024;

/// Marks the place where a value was cut.
const CUT: &str = "…";

/// The fields of a text line.
pub(super) struct TextFields;

impl<'a> FormatFields<'a> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'a>, fields: R) -> fmt::Result {
        debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
            let name = name_of(field);
            if name == MESSAGE {
                return write(writer, value, Escape::Text);
            }
            write!(writer, "{name}=")?;
            let mut text = String::new();
            // Fails if the value was cut.
            let _ = write(&mut text, value, Escape::Text);
            put_value(writer, &text)
        })
        .delimited(" ")
        .format_fields(writer, fields)
    }
}

/// Quotes a value that could be mistaken for several fields, and escapes quotes and backslashes inside. Other
/// values stay unquoted, for human readers.
fn put_value(writer: &mut impl Write, text: &str) -> fmt::Result {
    let has_field = text.contains(' ') && text.contains('=');
    if !has_field || is_literal(text) {
        return writer.write_str(text);
    }
    writer.write_char('"')?;
    for letter in text.chars() {
        if matches!(letter, '"' | '\\') {
            writer.write_char('\\')?;
        }
        writer.write_char(letter)?;
    }
    writer.write_char('"')
}

/// Whether a text is exactly one string literal.
fn is_literal(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('"') else { return false };
    let mut is_escaped = false;
    let end = rest.find(|letter| {
        let is_end = letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    });
    end.is_some_and(|end| end + 1 == rest.len())
}

/// A line in the format in force.
pub(super) struct Line<T> {
    pub format: InForce<LogFormat>,
    pub text: T,
}

impl<S, N, T> FormatEvent<S, N> for Line<T>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    T: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        match ***self.format.get() {
            LogFormat::Text => self.text.format_event(context, writer, event),
            LogFormat::Json => json_line(writer, event),
        }
    }
}

/// A line with one JSON object.
fn json_line(mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let mut line = JsonFields(Map::new());
    line.put("timestamp", time);
    line.put("level", event.metadata().level().as_str());
    event.record(&mut line);
    line.put("target", event.metadata().target());
    let line = Value::Object(line.0).to_string();
    // JSON does not escape characters that only terminals interpret.
    Escaping { inner: &mut writer, escape: Escape::Json, left: usize::MAX }.write_str(&line)?;
    writeln!(writer)
}

/// The field at the beginning of a line.
const MESSAGE: &str = "message";

fn name_of(field: &Field) -> &'static str {
    field.name().trim_start_matches("r#")
}

struct JsonFields(Map<String, Value>);

impl JsonFields {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for JsonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Fails if the value was cut.
        let _ = write(&mut text, value, Escape::Nothing);
        self.put(name_of(field), text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(name_of(field), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(name_of(field), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(name_of(field), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(name_of(field), value);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    Nothing,
    /// As in a string literal of Rust.
    Text,
    /// As in a JSON string.
    Json,
}

/// Writes a value, cut if too long.
fn write(inner: &mut impl Write, value: &dyn Debug, escape: Escape) -> fmt::Result {
    let mut escaping = Escaping { inner, escape, left: VALUE_BYTES_MAX };
    match write!(escaping, "{value:?}") {
        Err(_) if escaping.left == 0 => inner.write_str(CUT),
        result => result,
    }
}

struct Escaping<'a, W> {
    inner: &'a mut W,
    escape: Escape,
    /// Remaining bytes.
    left: usize,
}

impl<W: Write> Escaping<'_, W> {
    /// # Errors
    /// The value has reached the maximum length.
    fn put(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(self.left);
        self.inner.write_str(&text[..end])?;
        if end < text.len() {
            self.left = 0;
            return Err(fmt::Error);
        }
        self.left -= end;
        Ok(())
    }

    fn put_escaped(&mut self, letter: char) -> fmt::Result {
        let mut escaped = String::with_capacity(12);
        match self.escape {
            Escape::Json => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    write!(escaped, "\\u{unit:04x}")?;
                }
            }
            Escape::Text | Escape::Nothing => escaped.extend(letter.escape_debug()),
        }
        self.put(&escaped)
    }
}

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut plain = 0;
        for (at, letter) in text.char_indices() {
            if self.escape != Escape::Nothing && !is_plain(letter) {
                self.put(&text[plain..at])?;
                self.put_escaped(letter)?;
                plain = at + letter.len_utf8();
            }
        }
        self.put(&text[plain..])
    }
}

/// Whether a character is visible and has no other effect.
fn is_plain(letter: char) -> bool {
    match letter {
        // Quotes and backslashes in values stay as they are.
        ' '..='~' => true,
        _ => letter.escape_debug().eq([letter]),
    }
}
