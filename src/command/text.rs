//! Texts of peers without a way to control the terminal.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use sluice_text::is_hidden;

/// A text of a peer on one line of a terminal (CMD-3). Clients name themselves.
pub(super) fn safe(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match is_hidden(letter) {
            true => safe.extend(letter.escape_unicode()),
            false => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// JSON without characters that control a terminal, and equal to the given JSON. Such characters stand in
/// strings only.
pub(super) fn safe_json(json: &str) -> Cow<'_, str> {
    let is_harmful = |letter: char| letter != '\n' && is_hidden(letter);
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

/// The last segment of a message's name.
pub(super) fn short_type(message: &str) -> &str {
    message.rsplit(['.', '/']).next().unwrap_or(message)
}

/// A time span of an operator: `500ms`, `10s`, `5m`, `1h`, `2d`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    sluice_setting::parse_duration(text)
        .ok_or_else(|| "expected a time like 500ms, 10s, 5m, 1h or 2d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmd_3_nothing_that_a_client_wrote_controls_a_terminal() {
        assert_eq!(safe("web-3 ü"), "web-3 ü");
        assert_eq!(safe("\u{1b}[2Jx\r\n\u{9b}31m\u{202e}"), "\\u{1b}[2Jx\\u{d}\\u{a}\\u{9b}31m\\u{202e}");
        let json = serde_json::to_string("\u{1b}\u{7f}\u{9b}\u{202e}\u{e0041}").unwrap();
        let shown = safe_json(&json);
        assert!(shown.is_ascii() && !shown.contains(char::is_control), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), "\u{1b}\u{7f}\u{9b}\u{202e}\u{e0041}");
    }
}
