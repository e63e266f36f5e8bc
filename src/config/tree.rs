//! The syntax tree of a file. Keys are not interpreted yet, and none is lost.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::error::ConfigError;

/// A YAML or JSON value. Maps keep the order of the file; a repeated key is a syntax error.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

impl Tree {
    pub(super) fn parse(text: &str, format: Format) -> Result<Tree, ConfigError> {
        match format {
            Format::Json => serde_json::from_str(text).map_err(|error| ConfigError::Syntax {
                line: error.line() as u64,
                column: error.column() as u64,
                message: without_position(&error.to_string()),
            }),
            Format::Yaml => parse_yaml(text),
        }
    }

    /// The value as shown in messages: scalars as written, collections by their kind.
    pub(super) fn describe(&self) -> String {
        match self {
            Tree::Null => "nothing".into(),
            Tree::Bool(value) => value.to_string(),
            Tree::Integer(value) => value.to_string(),
            Tree::Float(value) => value.to_string(),
            Tree::Text(text) => format!("{text:?}"),
            Tree::List(_) => "a list".into(),
            Tree::Map(_) => "a map".into(),
        }
    }
}

fn parse_yaml(text: &str) -> Result<Tree, ConfigError> {
    // An empty file is an empty configuration; its errors are the missing keys.
    if text.lines().all(|line| line.trim_start().starts_with('#') || line.trim().is_empty()) {
        return Ok(Tree::Null);
    }
    // YAML 1.2: `off`, `yes` and `0660` are not booleans or octal numbers, as in YAML 1.1.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let location = error.location();
        let message = match &error {
            serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => repeated_key(key),
            error => without_position(&error.to_string()),
        };
        ConfigError::Syntax {
            line: location.map_or(0, |l| l.line()),
            column: location.map_or(0, |l| l.column()),
            message,
        }
    })
}

fn repeated_key(key: &str) -> String {
    format!("the key {key:?} is repeated")
}

/// Each parser adds the position to its messages in another place. Our messages begin with the position, so
/// remove theirs.
fn without_position(message: &str) -> String {
    let message = message.split(" at line ").next().unwrap_or(message);
    let message = match message.strip_prefix("error: ").unwrap_or(message) {
        positioned if positioned.starts_with("line ") => {
            positioned.split_once(": ").map_or(positioned, |(_, rest)| rest)
        }
        plain => plain,
    };
    message.trim_end().to_string()
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar, a list or a map")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Tree, E> {
        Ok(Tree::Integer(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries: Vec<(String, Tree)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if entries.iter().any(|(known, _)| *known == key) {
                return Err(A::Error::custom(repeated_key(&key)));
            }
            entries.push((key, map.next_value()?));
        }
        Ok(Tree::Map(entries))
    }
}
