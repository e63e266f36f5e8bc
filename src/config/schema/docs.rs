//! The tables of `docs/configuration.md`.

const PAGE: &str = include_str!("../../../docs/configuration.md");

/// A key and its words.
pub(super) struct DocRow {
    pub key: &'static str,
    pub text: String,
}

/// The rows of all tables of keys.
pub(super) fn rows() -> Vec<DocRow> {
    PAGE.lines().filter_map(row).collect()
}

fn row(line: &'static str) -> Option<DocRow> {
    let (key, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
    let (default, text) = rest.strip_suffix('|')?.split_once('|')?;
    // Tables of settings have a column for the range.
    let (default, text) = (default.trim(), plain(&text.trim().replace(" | ", "; ")));
    let default = match default {
        "" => String::new(),
        "required" => "Required.".to_owned(),
        default => format!("Default: {}.", plain(default)),
    };
    let text = [default, sentence(&text)].into_iter().filter(|text| !text.is_empty());
    Some(DocRow { key, text: text.collect::<Vec<_>>().join(" ") })
}

/// The text with a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return String::new() };
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{}{}{end}", first.to_uppercase(), letters.as_str())
}

/// The text without the addresses of links: `[words](address)` is `words`.
fn plain(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("](") {
        let opening = opening(before);
        let (Some(opening), Some((_, after))) = (opening, after.split_once(')')) else { break };
        plain.push_str(&before[..opening]);
        plain.push_str(&before[opening + 1..]);
        rest = after;
    }
    plain.push_str(rest);
    plain
}

/// The bracket that is open at the end.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().rev().find_map(|(at, c)| match c {
        ']' => {
            depth += 1;
            None
        }
        '[' if depth == 0 => Some(at),
        '[' => {
            depth -= 1;
            None
        }
        _ => None,
    })
}
