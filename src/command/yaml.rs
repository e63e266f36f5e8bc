//! JSON values as YAML, in block style.

use std::fmt::Write;

use serde_json::Value;

use super::text::safe_json;

/// Words that a reader of YAML 1.1 takes for something else than text.
const RESERVED: [&str; 11] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan"];

pub(super) fn yaml(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (index, (key, value)) in members.iter().enumerate() {
                if index > 0 {
                    pad(indent, out);
                }
                out.push_str(&scalar(key));
                out.push(':');
                below(value, indent + 2, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    pad(indent, out);
                }
                out.push_str("- ");
                block(item, indent + 2, out);
            }
        }
        Value::Object(_) => out.push_str("{}\n"),
        Value::Array(_) => out.push_str("[]\n"),
        Value::String(text) => {
            out.push_str(&scalar(text));
            out.push('\n');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            // A String takes every write.
            let _ = writeln!(out, "{value}");
        }
    }
}

/// The value of a key: on the same line if it is short.
fn below(value: &Value, indent: usize, out: &mut String) {
    let is_block = match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    match is_block {
        true => {
            out.push('\n');
            pad(indent, out);
        }
        false => out.push(' '),
    }
    block(value, indent, out);
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// A text: plain if no reader takes it for something else, otherwise in quotes, as in JSON.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'/' | b'-'))
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    match is_plain {
        true => text.to_owned(),
        false => safe_json(&Value::from(text).to_string()).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_reads_back_as_it_was() {
        let value = serde_json::json!({
            "clients": [
                {"id": 71, "node": "no", "open_seconds": 1.5, "types": [], "peer": null, "x": {}},
                {"id": 72, "node": "a: b # c\n\u{1b}\u{202e}", "types": [{"type": "a.B", "waits": {"name": "*"}}]},
                ["nested", ["deep"], -1],
            ],
            "count": 2, "12": true, "": "1e3", "truncated": false,
        });
        let text = yaml(&value);
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.contains("    node: \"no\"\n"), "{text}");
    }
}
