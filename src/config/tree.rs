//! The syntax tree of a file. Keys are not interpreted yet, and none is lost.

use std::path::Path;

use super::error::{Place, Problem};

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
    List(Vec<TreeNode>),
    Map(Vec<TreeEntry>),
}

/// A value and its place. A value that comes by an alias has the place of its anchor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TreeNode {
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
pub(super) struct TreeEntry {
    pub key: String,
    pub place: Place,
    pub node: TreeNode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Yaml,
    Json,
}

impl Format {
    /// JSON if the name is `*.json`, else YAML.
    pub(super) fn of(file: &Path) -> Format {
        let is_json = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        if is_json { Format::Json } else { Format::Yaml }
    }
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

impl TreeNode {
    pub(super) fn new(tree: Tree, place: Place) -> TreeNode {
        TreeNode { tree, place, offset: None, expansion: None }
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
                Tree::List(items) => items.iter().any(TreeNode::has_variables),
                _ => false,
            }
    }

    /// The value under a path such as `listeners[0].tls`, as far as the path leads.
    pub(super) fn at(&self, path: &str) -> &TreeNode {
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
