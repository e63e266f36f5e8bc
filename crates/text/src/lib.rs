//! Values as people read them, on the page and in a terminal alike.
//!
//! [`nearest`]: the likely meaning of a mistyped word. [`secrets`]: what nobody is shown.

pub mod nearest;
pub mod secrets;

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The digits of a version in a table. A whole version has 32; the first 8 tell the versions of a fleet
/// apart.
const VERSION_DIGITS: usize = 8;

/// Whether a character controls or hides text: controls, marks for the direction of text, and characters
/// without width.
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The first letters of a text, with a mark if there are more.
pub fn shortened(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A time span in two units at most: `41ms`, `4.2s`, `9m12s`, `2h11m`, `3d4h`. `humantime` writes all units
/// down to nanoseconds.
pub fn span(span: Duration) -> String {
    let (seconds, whole) = (span.as_secs_f64(), span.as_secs_f64().round() as u64);
    let two = |big: u64, unit: char, small: u64, next: char| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{next}"),
    };
    match whole {
        _ if seconds < 0.9995 => format!("{:.0}ms", seconds * 1000.0),
        _ if seconds < 9.95 => format!("{seconds:.1}s"),
        0..60 => format!("{whole}s"),
        60..3_600 => two(whole / 60, 'm', whole % 60, 's'),
        3_600..86_400 => two(whole / 3_600, 'h', whole % 3_600 / 60, 'm'),
        _ => two(whole / 86_400, 'd', whole % 86_400 / 3_600, 'h'),
    }
}

/// A number with its noun: `1 stream`, `2 streams`.
pub fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A number with its thousands in groups: `12,500`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes: `812B`, `1.2KiB`. `bytesize` writes a blank before the unit, and goes on to PiB.
pub fn size(bytes: impl TryInto<u64>) -> String {
    let bytes = bytes.try_into().unwrap_or(u64::MAX);
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

/// The beginning of a version; of the version of an empty set, a word.
pub fn version(version: &str) -> String {
    if version.bytes().all(|digit| digit == b'0') {
        return "nothing".to_owned();
    }
    version.chars().take(VERSION_DIGITS).collect()
}

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A value within a path or a query.
pub fn encoded(value: &str) -> String {
    utf8_percent_encode(value, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_have_two_units_at_most() {
        let cases = [
            (0.0, "0ms"),
            (0.041, "41ms"),
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
            assert_eq!(span(Duration::from_secs_f64(seconds)), text, "{seconds}");
        }
    }

    #[test]
    fn sizes_stay_below_their_next_unit() {
        let cases =
            [(0, "0B"), (1023, "1023B"), (1234, "1.2KiB"), (1_048_575, "1.0MiB"), (5_u64 << 30, "5.0GiB")];
        for (bytes, text) in cases {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn the_version_of_an_empty_set_is_a_word() {
        assert_eq!(version("00000000000000000000000000000000"), "nothing");
        assert_eq!(version("0000000000000000000000000000000a"), "00000000");
        assert_eq!(version("b41f0c2e90b1c3f477d2e0011c0e77aa"), "b41f0c2e");
    }

    #[test]
    fn a_value_in_a_query_stays_one_value() {
        assert_eq!(encoded("a&b=c/ü"), "a%26b%3Dc%2F%C3%BC");
    }
}
