//! Values of the page as people read them, and the escaping of everything that a page shows.

use std::fmt::{self, Write};
use std::time::{Duration, SystemTime};

use askama::filters::{Escaper, Html};

use sluice_text::{is_hidden, span};
use sluice_xds::Version;

/// The escaping of all templates (`askama.toml`). Clients name themselves, so their texts are neither markup
/// nor invisible: characters that control or hide are written out (PAG-2).
#[derive(Clone, Copy, Debug)]
pub struct Visible;

impl Escaper for Visible {
    fn write_escaped_str<W: Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|letter| letter != '\n' && is_hidden(letter)) {
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

/// The time since `then`, in whole seconds from one second on: a page is looked at for longer than a tenth of
/// a second.
pub(super) fn age(then: SystemTime, now: SystemTime) -> String {
    let age = now.duration_since(then).unwrap_or_default();
    match age.as_secs() {
        0 => span(age),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds => span(Duration::from_secs(seconds)),
    }
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

/// The beginning of a version; of the version of an empty set, a word.
pub(super) fn version(version: Version) -> String {
    sluice_text::version(&version.to_string())
}

/// An argument of a command in a shell. Hidden characters cannot be copied from a page, so such an argument
/// is `None`.
pub(super) fn argument(text: &str) -> Option<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@%+=,".contains(letter);
    if text.is_empty() || text.contains(is_hidden) {
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
