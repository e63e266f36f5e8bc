//! YAML as Envoy reads YAML, so that a file means the same to both (ADR 59).
//!
//! A plain scalar is null, a boolean or an integer of 64 bits with the prefixes of C, else a text. A quoted
//! scalar is a text. Then the type of the field decides, as in JSON. So `0660` is 432, and `1.10` stays a
//! text with both digits: a number field reads a number out of it. Merge keys do not exist. An entry with the
//! tag `!ignore` at its key is left out, and is the place for anchors.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Value};

use super::NODES_MAX;

/// The maximum nesting of lists and maps.
const DEPTH_MAX: usize = 128;

/// The maximum length of all texts together, with the texts that aliases repeat.
const TEXT_MAX: usize = 256 << 20;

/// Reads one document.
///
/// # Errors
/// The reason, with line and column.
pub(super) fn read_yaml(text: &str) -> Result<Value, String> {
    let mut reader = YamlReader::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| error.to_string())?;
        reader.take(event).map_err(|reason| placed(&reason, span))?;
    }
    Ok(reader.document.map_or(Value::Null, |node| node.value))
}

fn placed(reason: &str, span: Span) -> String {
    format!("{reason} at line {} column {}", span.start.line(), span.start.col() + 1)
}

/// A finished value.
#[derive(Clone, Debug, Default)]
struct Node {
    value: Value,
    /// The text of a scalar as a key.
    key: Option<String>,
    size: Size,
}

/// The cost of a value, with all values in it.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    values: usize,
    text: usize,
}

#[derive(Debug)]
enum Open {
    List(Vec<Value>),
    Map { fields: Map<String, Value>, key: Option<Key> },
}

/// The key of the entry whose value follows.
#[derive(Debug)]
enum Key {
    Of(String),
    Ignored,
}

#[derive(Debug, Default)]
struct YamlReader {
    /// The lists and maps around the next value, with their anchors and the sizes of their content.
    open: Vec<(Open, usize, Size)>,
    anchors: HashMap<usize, Node>,
    /// The cost of all values so far, with those that were ignored.
    total: Size,
    document: Option<Node>,
}

impl YamlReader {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = match tag.as_deref() {
                    Some(tag) => is_non_specific(tag),
                    None => style != ScalarStyle::Plain,
                };
                let is_null = tag.is_none() && !is_text && is_null(&text);
                let value = match (is_null, is_text) {
                    (true, _) => Value::Null,
                    (_, true) => Value::String(text.to_string()),
                    _ => resolved(&text),
                };
                let key = if is_null { "null".to_owned() } else { text.into_owned() };
                let size = Size { values: 1, text: key.len() };
                let is_ignored = tag.as_deref().is_some_and(is_ignore);
                self.count(size)?;
                self.place(Node { value, key: Some(key), size }, anchor, is_ignored)
            }
            Event::SequenceStart(_, anchor, _) => self.enter(Open::List(Vec::new()), anchor),
            Event::MappingStart(_, anchor, _) => {
                self.enter(Open::Map { fields: Map::new(), key: None }, anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(),
            Event::Alias(anchor) => {
                let size = self.anchors.get(&anchor).map(|node| node.size);
                self.count(size.ok_or("the alias is within the value that it stands for")?)?;
                let node = self.anchors.get(&anchor).cloned().unwrap_or_default();
                self.place(node, 0, false)
            }
            Event::DocumentStart(..) if self.document.is_some() => {
                Err("a second document begins; a file contains one".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn enter(&mut self, open: Open, anchor: usize) -> Result<(), String> {
        if matches!(self.open.last(), Some((Open::Map { key: None, .. }, ..))) {
            return Err("a list or a map cannot be a key".to_owned());
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(format!("lists and maps are nested deeper than {DEPTH_MAX}"));
        }
        self.open.push((open, anchor, Size { values: 1, text: 0 }));
        self.count(Size { values: 1, text: 0 })
    }

    fn leave(&mut self) -> Result<(), String> {
        let Some((open, anchor, size)) = self.open.pop() else { return Ok(()) };
        let value = match open {
            Open::List(values) => Value::Array(values),
            Open::Map { fields, .. } => Value::Object(fields),
        };
        self.place(Node { value, key: None, size }, anchor, false)
    }

    fn place(&mut self, node: Node, anchor: usize, is_ignored: bool) -> Result<(), String> {
        if anchor != 0 {
            // Anchors within each other have a copy each.
            self.count(node.size)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some((open, _, size)) = self.open.last_mut() else {
            self.document = Some(node);
            return Ok(());
        };
        size.values += node.size.values;
        size.text += node.size.text;
        match open {
            Open::List(values) => values.push(node.value),
            Open::Map { fields, key } => match key.take() {
                None if is_ignored => *key = Some(Key::Ignored),
                None => {
                    let name = node.key.ok_or("a list or a map cannot be a key")?;
                    if fields.contains_key(&name) {
                        return Err(format!("the key {name:?} is repeated"));
                    }
                    *key = Some(Key::Of(name));
                }
                Some(Key::Of(name)) => {
                    fields.insert(name, node.value);
                }
                Some(Key::Ignored) => {}
            },
        }
        Ok(())
    }

    fn count(&mut self, size: Size) -> Result<(), String> {
        self.total.values += size.values;
        self.total.text += size.text;
        if self.total.values > NODES_MAX {
            return Err(format!("the document has more than {NODES_MAX} values"));
        }
        if self.total.text > TEXT_MAX {
            return Err(format!("the document has more than {TEXT_MAX} bytes of text"));
        }
        Ok(())
    }
}

/// The tag `!`, which makes a text of a plain scalar.
fn is_non_specific(tag: &Tag) -> bool {
    tag.original() == "!"
}

/// Envoy's tag for entries that are no part of the configuration.
fn is_ignore(tag: &Tag) -> bool {
    tag.parts() == ("!", "ignore")
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// The value of a plain scalar. An integer beyond 32 bits is a text, which JSON allows for integers: as a
/// number it would be a float.
fn resolved(text: &str) -> Value {
    if let Some(value) = boolean(text) {
        return value.into();
    }
    match integer(text) {
        Some(value) if i32::try_from(value).is_ok() => value.into(),
        Some(value) => value.to_string().into(),
        None => text.into(),
    }
}

/// Three spellings of each word: `yes`, `Yes` and `YES`.
fn boolean(text: &str) -> Option<bool> {
    let (first, rest) = text.split_at_checked(1)?;
    let is_lower = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_upper = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_one_case = is_lower(rest) || is_upper(first) && is_upper(rest);
    if !is_one_case {
        return None;
    }
    match &*text.to_ascii_lowercase() {
        "y" | "yes" | "true" | "on" => Some(true),
        "n" | "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

/// An integer as C writes it: `0x` for hexadecimal, `0` for octal.
fn integer(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // The parser would take another sign.
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let value = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if is_negative { -value } else { value }).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Value) {
        assert_eq!(read_yaml(text), Ok(expected), "{text:?}");
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let reason = read_yaml(text).unwrap_err();
        assert!(reason.contains(expected), "{text:?}: {reason:?} should contain {expected:?}");
    }

    /// As the config dump of Envoy has them: `tests/interop/envoy_yaml.py` compares a longer table with the
    /// real one.
    #[test]
    fn fil_4_a_plain_scalar_is_what_envoy_makes_of_it() {
        for (text, expected) in [
            ("0660", json!(432)),
            ("-010", json!(-8)),
            ("-0", json!(0)),
            ("+5", json!(5)),
            ("0x1F", json!(31)),
            ("-0X10", json!(-16)),
            ("2147483647", json!(2_147_483_647)),
            ("2147483648", json!("2147483648")),
            ("0xffffffff", json!("4294967295")),
            ("-9223372036854775808", json!("-9223372036854775808")),
            ("9223372036854775808", json!("9223372036854775808")),
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("Y", json!(true)),
            ("TRUE", json!(true)),
            ("~", Value::Null),
            ("NULL", Value::Null),
            ("", Value::Null),
            ("!!str 0660", json!(432)),
            ("!!int \"5\"", json!(5)),
            ("!local true", json!(true)),
            ("!ignore 5", json!(5)),
        ] {
            check(&format!("k: {text}"), json!({ "k": expected }));
        }
        for text in [
            "08", "0o17", "0b11", "0x", "1_000", "1e3", "1.10", ".5", "1.0", ".inf", "tRUE", "yEs", "nUll",
            "5s", "+-5",
        ] {
            check(&format!("k: {text}"), json!({ "k": text }));
        }
        for text in ["\"5\"", "'5'", "! 5", "|-\n  5", ">-\n  5"] {
            check(&format!("k: {text}"), json!({ "k": "5" }));
        }
        for text in ["!!str ~", "! ~", "!local ~"] {
            check(&format!("k: {text}"), json!({ "k": "~" }));
        }
    }

    #[test]
    fn fil_4_keys_are_texts_and_ignored_entries_hold_anchors() {
        check(
            "{1: a, 010: b, true: c, ~: d, 1.5: e, 'q': f}",
            json!({
                "1": "a", "010": "b", "true": "c", "null": "d", "1.5": "e", "q": "f"
            }),
        );
        check("!ignore templates: {a: &x {b: 010}}\nc: *x\n<<: *x", json!({"c": {"b": 8}, "<<": {"b": 8}}));
        check("a: &x k\n*x : 1", json!({"a": "k", "k": 1}));
        refused("? [a]\n: b", "cannot be a key at line 1");
        refused("a: &x [1]\n*x : 1", "cannot be a key at line 2");
        refused("a: 1\n'a': 2", "the key \"a\" is repeated at line 2 column 1");
        refused("a: &x [*x]", "within the value");
        refused("a: *x", "line 1");
        refused("a: 1\n---\nb: 1", "second document");
    }

    #[test]
    fn one_anchor_may_have_many_aliases_and_copies_are_bounded() {
        let aliases = vec!["*x"; 10_000].join(", ");
        let read = read_yaml(&format!("a: &x {{b: [yes, 1.10]}}\nc: [{aliases}]")).unwrap();
        assert_eq!(read["c"].as_array().map(Vec::len), Some(10_000));
        assert_eq!(read["c"][9_999], json!({"b": [true, "1.10"]}));
        let anchors: String = (0..100).map(|number| format!("&a{number} [")).collect();
        let text = "x".repeat(4 << 20);
        refused(&format!("{anchors}{text}{}", "]".repeat(100)), "bytes of text");
        refused(&format!("{}{}", "[".repeat(200), "]".repeat(200)), "deeper than 128");
    }
}
