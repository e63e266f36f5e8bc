//! From the text of a file to its tree.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::path::Path;
use std::{fmt, io};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use super::error::{ConfigError, Place};
use super::expand::{Variables, expand};
use super::json_places::find_places;
use super::tree::{Format, Tree, TreeEntry, TreeNode};
use crate::trust::contents::{self, ReadFileError};

/// Reads a file that the configuration names, if the file has at most `bytes_max` bytes.
pub(super) fn read_text(file: &Path, bytes_max: u64) -> Result<String, ConfigError> {
    contents::read_text(file, bytes_max).map_err(|error| {
        let error = match error {
            ReadFileError::TooLong(_) => {
                io::Error::other(format!("the file is too long; at most {bytes_max} bytes are read"))
            }
            error => io::Error::other(error),
        };
        ConfigError::Unreadable { path: file.to_path_buf(), error }
    })
}

/// Parses a text, and expands the variables in its values.
pub(super) fn parse(text: &str, format: Format, variables: Variables<'_>) -> Result<TreeNode, ConfigError> {
    let mut node = parse_literally(text, format)?;
    expand(&mut node, text, format, variables);
    Ok(node)
}

/// Parses a text in which `${` has no meaning.
pub(super) fn parse_literally(text: &str, format: Format) -> Result<TreeNode, ConfigError> {
    match format {
        Format::Json => parse_json(text),
        Format::Yaml => parse_yaml(text),
    }
}

fn parse_json(text: &str) -> Result<TreeNode, ConfigError> {
    let parsed: Parsed<Json> = serde_json::from_str(text).map_err(|error| ConfigError::Syntax {
        place: Place::new(error.line() as u64, error.column() as u64),
        message: without_position(&error.to_string()),
    })?;
    let mut node = Json::node(parsed);
    find_places(&mut node, text);
    Ok(node)
}

/// Some configurations have thousands of lines; few have a hundredth of these bounds. Copies by aliases
/// count, so a few lines of nested aliases end here (an alias bomb).
const NODES_MAX: usize = 100_000;
const TEXT_BYTES_MAX: usize = 16 << 20;

fn parse_yaml(text: &str) -> Result<TreeNode, ConfigError> {
    // An empty file is an empty configuration; its errors are the missing keys.
    if text.lines().all(|line| line.trim_start().starts_with('#') || line.trim().is_empty()) {
        return Ok(TreeNode::new(Tree::Null, Place::START));
    }
    // YAML 1.2: `off`, `yes` and `0660` are not booleans or octal numbers, as in YAML 1.1. Anchors without an
    // alias, and many aliases of one anchor, are usual in files with holders.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_nodes: NODES_MAX,
            max_total_scalar_bytes: TEXT_BYTES_MAX,
            enforce_alias_anchor_ratio: false,
        },
    };
    serde_saphyr::from_str_with_options(text, options).map(Yaml::node).map_err(|error| syntax_error(&error))
}

/// An error of the YAML parser, with its place.
pub(super) fn syntax_error(error: &serde_saphyr::Error) -> ConfigError {
    let location = error.location();
    let message = match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => repeated_key(key),
        serde_saphyr::Error::MultipleDocuments { .. } => "more than one YAML document".to_owned(),
        error => match without_position(&error.to_string()) {
            library if library.starts_with("budget breached") => {
                "more values than a file may have, or nested deeper".to_owned()
            }
            message => message,
        },
    };
    ConfigError::Syntax {
        place: location.map_or(Place::START, |at| Place::new(at.line(), at.column())),
        message,
    }
}

pub(super) fn repeated_key(key: &str) -> String {
    format!("the key {key:?} is repeated")
}

/// Each parser adds the position to its messages in another place. Our messages begin with the position, so
/// remove theirs.
pub(super) fn without_position(message: &str) -> String {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let message = match message.strip_prefix("error: ").unwrap_or(message) {
        positioned if positioned.starts_with("line ") => {
            positioned.split_once(": ").map_or(positioned, |(_, rest)| rest)
        }
        plain => plain,
    };
    message.trim_end().to_string()
}

fn place_of(location: &Location) -> Place {
    Place::new(location.line(), location.column())
}

/// The types in which a parser hands over keys and values.
trait Syntax {
    type Key: for<'de> Deserialize<'de>;
    type Value: for<'de> Deserialize<'de>;

    fn key(key: Self::Key) -> (String, Place);
    fn node(value: Self::Value) -> TreeNode;
}

/// Keys and values with their places.
struct Yaml;

impl Syntax for Yaml {
    type Key = Spanned<String>;
    type Value = Spanned<Parsed<Yaml>>;

    fn key(key: Spanned<String>) -> (String, Place) {
        (key.value, place_of(&key.defined))
    }

    fn node(value: Spanned<Parsed<Yaml>>) -> TreeNode {
        let offset = value.defined.span().byte_offset().and_then(|offset| usize::try_from(offset).ok());
        TreeNode { offset, ..TreeNode::new(value.value.tree, place_of(&value.defined)) }
    }
}

/// Keys and values whose places are found later.
struct Json;

impl Syntax for Json {
    type Key = String;
    type Value = Parsed<Json>;

    fn key(key: String) -> (String, Place) {
        (key, Place::START)
    }

    fn node(value: Parsed<Json>) -> TreeNode {
        TreeNode::new(value.tree, Place::START)
    }
}

struct Parsed<S> {
    tree: Tree,
    syntax: PhantomData<S>,
}

impl<'de, S: Syntax> Deserialize<'de> for Parsed<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tree = deserializer.deserialize_any(TreeVisitor::<S>(PhantomData))?;
        Ok(Parsed { tree, syntax: PhantomData })
    }
}

struct TreeVisitor<S>(PhantomData<S>);

impl<'de, S: Syntax> Visitor<'de> for TreeVisitor<S> {
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
        deserializer.deserialize_any(self)
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
            items.push(S::node(item));
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let (mut entries, mut keys) = (Vec::new(), HashSet::new());
        while let Some(key) = map.next_key()? {
            let (key, place) = S::key(key);
            if !keys.insert(key.clone()) {
                return Err(A::Error::custom(repeated_key(&key)));
            }
            entries.push(TreeEntry { key, place, node: S::node(map.next_value()?) });
        }
        Ok(Tree::Map(entries))
    }
}
