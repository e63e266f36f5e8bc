//! Values as people read them, and the escaping of everything that a page shows.

use std::fmt::{self, Write};
use std::time::{Duration, SystemTime};

use askama::filters::{Escaper, Html};

use crate::xds::Version;

/// The digits of a version in a table: enough to tell the versions of a fleet apart.
const VERSION_DIGITS: usize = 8;

/// The escaping of all templates (`askama.toml`). Clients name themselves, so their texts are neither markup nor
/// invisible: characters that control or hide are written out (PAG-2).
#[derive(Clone, Copy, Debug)]
pub struct Visible;

impl Escaper for Visible {
    fn write_escaped_str<W: Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_hidden) {
            let (plain, tail) = rest.split_at(at);
            Html.write_escaped_str(&mut dest, plain)?;
            let mut letters = tail.chars();
            if let Some(letter) = letters.next() {
                write!(dest, "{}", letter.escape_unicode())?;
            }
            rest = letters.as_str();
        }
        Html.write_escaped_str(dest, rest)
    }
}

/// Controls but line breaks, marks for the direction of text, and characters without width.
fn is_hidden(letter: char) -> bool {
    (letter.is_control() && letter != '\n')
        || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(letter, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// A time span in two units at most: `41ms`, `4.2s`, `9m12s`, `2h11m`, `3d4h`.
pub(super) fn span(span: Duration) -> String {
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

/// The time since `then`, in whole seconds from one second on: a page is looked at for longer than a tenth of a second.
pub(super) fn age(then: SystemTime, now: SystemTime) -> String {
    let age = now.duration_since(then).unwrap_or_default();
    match age.as_secs() {
        0 => span(age),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds => span(Duration::from_secs(seconds)),
    }
}

/// A number of bytes: `812 B`, `1.2 KiB`.
pub(super) fn size(bytes: usize) -> String {
    const UNITS: [&str; 3] = ["KiB", "MiB", "GiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while size >= 1023.95
        && let Some(next) = units.next()
    {
        (size, unit) = (size / 1024.0, Some(next));
    }
    format!("{size:.1} {}", unit.unwrap_or(&"GiB"))
}

/// A count with thin gaps between thousands: `10 000`.
pub(super) fn count(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// `1 client`, `2 clients`.
pub(super) fn counted(number: usize, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// The beginning of a version; of the version of nothing, a word.
pub(super) fn version(version: Version) -> String {
    if version == Version(0) {
        return "nothing".to_owned();
    }
    version.to_string().chars().take(VERSION_DIGITS).collect()
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

/// An argument of a command in a shell. Hidden characters cannot be copied from a page, so such an argument is `None`.
pub(super) fn argument(text: &str) -> Option<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@%+=,".contains(letter);
    if text.is_empty() || text.contains(|letter| is_hidden(letter) || letter == '\n') {
        None
    } else if text.chars().all(is_plain) && !text.starts_with('-') {
        Some(text.to_owned())
    } else if text.starts_with('-') {
        None
    } else {
        Some(format!("'{}'", text.replace('\'', r"'\''")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pag_2_texts_of_peers_are_neither_markup_nor_invisible() {
        let mut shown = String::new();
        Visible
            .write_escaped_str(
                &mut shown,
                "<img src=x onerror=\"a('b')\">&\u{1b}[2J\u{202e}\u{200b}\r\n\u{e0041}ü",
            )
            .unwrap();
        assert_eq!(
            shown,
            "&#60;img src=x onerror=&#34;a(&#39;b&#39;)&#34;&#62;&#38;\\u{1b}[2J\\u{202e}\\u{200b}\\u{d}\n\\u{e0041}ü"
        );
    }

    #[test]
    fn a_count_has_gaps_between_thousands() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1\u{202f}000"), (1_234_567, "1\u{202f}234\u{202f}567")];
        for (number, text) in cases {
            assert_eq!(count(number as usize), text);
        }
        assert_eq!(
            (counted(1, "client"), counted(0, "client")),
            ("1 client".to_owned(), "0 clients".to_owned())
        );
    }

    #[test]
    fn an_argument_stays_one_argument() {
        assert_eq!(argument("envoy-web.3").as_deref(), Some("envoy-web.3"));
        assert_eq!(argument("a b$(c)'d").as_deref(), Some(r"'a b$(c)'\''d'"));
        for text in ["", "-x", "a\nb", "a\u{1b}b"] {
            assert_eq!(argument(text), None, "{text:?}");
        }
    }
}
