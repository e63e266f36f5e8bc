//! The syntax tree of a file. Keys are not interpreted yet, and none is lost.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use super::error::Place;
use super::error::{ConfigError, Problem};
use super::expand::{Variables, expand};
use super::json_places::find_places;

/// A YAML or JSON value. Maps keep the order of the file; a repeated key is a syntax error.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// Text with a variable that has no value here.
    Unset(Box<Problem>),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A value and its place. A value that comes by an alias has the place of its anchor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub tree: Tree,
    pub place: Place,
    /// The offset of the value in the text of YAML, if known.
    pub offset: Option<usize>,
    /// `None` if the value has no variable.
    pub expansion: Option<Box<Expansion>>,
}

/// A text whose variables were expanded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expansion {
    /// The text in the file.
    pub spelled: Box<str>,
    /// The expanded text as a number, true or false, if it looks like one.
    pub plain: Option<Tree>,
    pub is_quoted: bool,
}

/// A key with its place, and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub key: String,
    pub place: Place,
    pub node: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

impl Tree {
    /// The value as shown in messages: scalars as written, collections by their kind.
    pub(super) fn describe(&self) -> String {
        match self {
            Tree::Null => "nothing".into(),
            Tree::Bool(value) => value.to_string(),
            Tree::Integer(value) => value.to_string(),
            Tree::Float(value) => value.to_string(),
            Tree::Text(text) => format!("{text:?}"),
            Tree::Unset(problem) => problem.to_string(),
            Tree::List(_) => "a list".into(),
            Tree::Map(_) => "a map".into(),
        }
    }
}

impl Node {
    fn new(tree: Tree, place: Place) -> Node {
        Node { tree, place, offset: None, expansion: None }
    }

    /// Parses a text, and expands the variables in its values.
    pub(super) fn parse(text: &str, format: Format, variables: Variables<'_>) -> Result<Node, ConfigError> {
        let mut node = Node::parse_literally(text, format)?;
        expand(&mut node, text, format, variables);
        Ok(node)
    }

    /// Parses a text in which `${` has no meaning.
    pub(super) fn parse_literally(text: &str, format: Format) -> Result<Node, ConfigError> {
        match format {
            Format::Json => parse_json(text),
            Format::Yaml => parse_yaml(text),
        }
    }

    /// The value as shown in messages. A value from the environment may be a secret, so its variable is
    /// shown.
    pub(super) fn describe(&self) -> String {
        match (&self.expansion, &self.tree) {
            (None, tree) => tree.describe(),
            (Some(expansion), Tree::Text(text)) if text.is_empty() => {
                format!("{:?}, which is empty", expansion.spelled)
            }
            (Some(expansion), _) => format!("{:?}", expansion.spelled),
        }
    }

    /// The value, as a number, true or false if variables make it look like one.
    pub(super) fn expanded(&self) -> &Tree {
        self.expansion.as_ref().and_then(|expansion| expansion.plain.as_ref()).unwrap_or(&self.tree)
    }

    /// The value where any type is fine: without quotes, an expanded text may be a number.
    pub(super) fn free(&self) -> &Tree {
        match &self.expansion {
            Some(expansion) if !expansion.is_quoted => expansion.plain.as_ref().unwrap_or(&self.tree),
            _ => &self.tree,
        }
    }

    /// Whether a part of the value comes from the environment.
    pub(super) fn has_variables(&self) -> bool {
        self.expansion.is_some()
            || match &self.tree {
                Tree::Map(entries) => entries.iter().any(|entry| entry.node.has_variables()),
                Tree::List(items) => items.iter().any(Node::has_variables),
                _ => false,
            }
    }

    /// The value under a path such as `listeners[0].tls`, as far as the path leads.
    pub(super) fn at(&self, path: &str) -> &Node {
        let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
        let mut node = self;
        for part in parts {
            let next = match &node.tree {
                Tree::Map(entries) => entries.iter().find(|entry| entry.key == part).map(|entry| &entry.node),
                Tree::List(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        node
    }
}

fn parse_json(text: &str) -> Result<Node, ConfigError> {
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

fn parse_yaml(text: &str) -> Result<Node, ConfigError> {
    // An empty file is an empty configuration; its errors are the missing keys.
    if text.lines().all(|line| line.trim_start().starts_with('#') || line.trim().is_empty()) {
        return Ok(Node::new(Tree::Null, Place::START));
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
    fn node(value: Self::Value) -> Node;
}

/// Keys and values with their places.
struct Yaml;

impl Syntax for Yaml {
    type Key = Spanned<String>;
    type Value = Spanned<Parsed<Yaml>>;

    fn key(key: Spanned<String>) -> (String, Place) {
        (key.value, place_of(&key.defined))
    }

    fn node(value: Spanned<Parsed<Yaml>>) -> Node {
        let offset = value.defined.span().byte_offset().and_then(|offset| usize::try_from(offset).ok());
        Node { offset, ..Node::new(value.value.tree, place_of(&value.defined)) }
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

    fn node(value: Parsed<Json>) -> Node {
        Node::new(value.tree, Place::START)
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
            entries.push(Entry { key, place, node: S::node(map.next_value()?) });
        }
        Ok(Tree::Map(entries))
    }
}
