//! Values as people read them, and texts of peers without a way to control the terminal.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// The digits of a version in a table. A whole version has 32; the first 8 tell the versions of a fleet apart.
const VERSION_DIGITS: usize = 8;

/// Whether a terminal might act on a character, or hide it: controls, and marks for the direction of text.
pub(super) fn is_harmful(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// A text of a peer on one line of a terminal (CMD-3). Clients name themselves.
pub(super) fn safe(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match is_harmful(letter) {
            true => safe.extend(letter.escape_unicode()),
            false => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// JSON without characters that control a terminal, and equal to the given JSON. Such characters stand in strings only.
pub(super) fn safe_json(json: &str) -> Cow<'_, str> {
    let is_harmful = |letter: char| letter != '\n' && is_harmful(letter);
    if !json.contains(is_harmful) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        if !is_harmful(letter) {
            safe.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // A String takes every write.
            let _ = write!(safe, "\\u{unit:04x}");
        }
    }
    Cow::Owned(safe)
}

/// A time span in two units at most: `41ms`, `4.2s`, `9m12s`, `2h11m`, `3d4h`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let two = |big: u64, unit: char, small: u64, next: char| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{next}"),
    };
    match whole {
        _ if seconds < 0.9995 => format!("{:.0}ms", seconds.max(0.0) * 1000.0),
        _ if seconds < 9.95 => format!("{seconds:.1}s"),
        0..60 => format!("{whole}s"),
        60..3_600 => two(whole / 60, 'm', whole % 60, 's'),
        3_600..86_400 => two(whole / 3_600, 'h', whole % 3_600 / 60, 'm'),
        _ => two(whole / 86_400, 'd', whole % 86_400 / 3_600, 'h'),
    }
}

/// A number of bytes: `812B`, `1.2KiB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 3] = ["KiB", "MiB", "GiB"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while size >= 1023.95
        && let Some(next) = units.next()
    {
        (size, unit) = (size / 1024.0, Some(next));
    }
    format!("{size:.1}{}", unit.unwrap_or(&"GiB"))
}

/// The beginning of a version.
pub(super) fn version(version: &str) -> String {
    version.chars().take(VERSION_DIGITS).collect()
}

/// The last segment of a message's name.
pub(super) fn short_type(message: &str) -> &str {
    message.rsplit(['.', '/']).next().unwrap_or(message)
}

/// A time span as written in the configuration: `500ms`, `10s`, `5m`, `1h`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    crate::setting::parse_duration(text).ok_or_else(|| "expected a time like 500ms, 10s, 5m or 1h".to_owned())
}

/// A value within a path or a query.
pub(super) fn encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                // A String takes every write.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_have_two_units_at_most() {
        let cases = [
            (0.0, "0ms"),
            (0.041, "41ms"),
            (-1.0, "0ms"),
            (0.9999, "1.0s"),
            (4.2, "4.2s"),
            (9.97, "10s"),
            (59.4, "59s"),
            (59.6, "1m"),
            (552.0, "9m12s"),
            (7_860.0, "2h11m"),
            (273_600.0, "3d4h"),
            (86_400.0, "1d"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn sizes_stay_below_their_next_unit() {
        let cases =
            [(0, "0B"), (1023, "1023B"), (1234, "1.2KiB"), (1_048_575, "1.0MiB"), (5 << 30, "5.0GiB")];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn cmd_3_nothing_that_a_client_wrote_controls_a_terminal() {
        assert_eq!(safe("web-3 ü"), "web-3 ü");
        assert_eq!(safe("\u{1b}[2Jx\r\n\u{9b}31m\u{202e}"), "\\u{1b}[2Jx\\u{d}\\u{a}\\u{9b}31m\\u{202e}");
        let json = serde_json::to_string("\u{1b}\u{7f}\u{9b}\u{202e}\u{e0041}").unwrap();
        let shown = safe_json(&json);
        assert!(shown.is_ascii() && !shown.contains(char::is_control), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), "\u{1b}\u{7f}\u{9b}\u{202e}\u{e0041}");
    }

    #[test]
    fn a_value_in_a_query_stays_one_value() {
        assert_eq!(encoded("a&b=c/ü"), "a%26b%3Dc%2F%C3%BC");
    }
}
