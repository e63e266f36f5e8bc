//! A configuration as its file says it, for people: without credentials (REL-9), and the difference of two of
//! them.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::effect::{Effect, effect_of};
use super::error::Place;
use super::reader::HOLDER;
use super::tree::{Tree, TreeEntry, TreeNode};
use sluice_text::{secrets, shortened};

/// The only credentials in the text itself; all others are in files of their own.
const CREDENTIALS: &[&str] = &["xds_servers[].initial_metadata[].value"];

/// Maps whose keys an operator chooses.
const FREE: &[&str] = &["node.metadata."];

/// The longest value in a difference, in characters.
const VALUE_CHARS_MAX: usize = 120;

/// A configuration without its credentials.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    pub document: Arc<Value>,
    /// Each value with its path, in the order of the file.
    values: Vec<(String, ShownLeaf)>,
    class_places: ClassPlaces,
}

/// The places of the entries of `node_classes`. Texts that differ only in places mean the same.
#[derive(Clone, Debug, Default)]
struct ClassPlaces(Vec<Place>);

impl PartialEq for ClassPlaces {
    fn eq(&self, _: &ClassPlaces) -> bool {
        true
    }
}

#[derive(Clone, Debug)]
struct ShownLeaf {
    /// The value for people: without credentials, and with `${NAME}` in place of the variable's value.
    text: String,
    digest: blake3::Hash,
}

/// Texts with variables are equal to other texts of the same value.
impl PartialEq for ShownLeaf {
    fn eq(&self, other: &ShownLeaf) -> bool {
        self.digest == other.digest
    }
}

impl ShownLeaf {
    fn text(&self) -> String {
        shortened(&self.text, VALUE_CHARS_MAX)
    }
}

/// A key with different values in two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The path: `limits.connections`.
    pub key: String,
    /// `None`: the key was not there.
    pub from: Option<String>,
    /// `None`: the key is not there any more.
    pub to: Option<String>,
    pub effect: Effect,
}

impl Shown {
    pub(super) fn of(node: &TreeNode) -> Shown {
        let mut shown = Shown::default();
        shown.document = Arc::new(shown.add(String::new(), "", node));
        shown.class_places = class_places(node);
        shown
    }

    /// The place of each entry of `node_classes`.
    pub fn class_places(&self) -> &[Place] {
        &self.class_places.0
    }

    /// Adds a value and everything below. `plain` is the path without indices.
    fn add(&mut self, path: String, plain: &str, node: &TreeNode) -> Value {
        let is_named = FREE.iter().any(|map| plain.starts_with(map))
            && plain.split(['.', '[', ']']).any(secrets::is_name);
        let is_credential = is_named || CREDENTIALS.iter().any(|key| plain.ends_with(key));
        match &node.tree {
            Tree::Map(entries) if !entries.is_empty() => {
                // Holders of anchors are no settings, and may have credentials.
                let is_holder = |key: &str| path.is_empty() && key.starts_with(HOLDER);
                let settings = entries.iter().filter(|entry| !is_holder(&entry.key));
                let below = settings.map(|TreeEntry { key, node, .. }| {
                    let join =
                        |path: &str| if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    (key.clone(), self.add(join(&path), &join(plain), node))
                });
                Value::Object(below.collect::<Map<_, _>>())
            }
            Tree::List(items) if !items.is_empty() => {
                let below = items
                    .iter()
                    .enumerate()
                    .map(|(index, node)| self.add(format!("{path}[{index}]"), &format!("{plain}[]"), node));
                Value::Array(below.collect())
            }
            scalar => {
                let value = json_of(node.expanded());
                let digest = blake3::hash(value.to_string().as_bytes());
                let shown = match (scalar, &node.expansion) {
                    (_, Some(expansion)) => Value::String(expansion.spelled.to_string()),
                    (Tree::Text(text), None) if is_credential => Value::String(secrets::hidden(text.len())),
                    _ if is_credential => Value::String(secrets::hidden(value.to_string().len())),
                    _ => value,
                };
                let shown = match &shown {
                    Value::String(text) => secrets::hide(text).map_or(shown, Value::String),
                    _ => shown,
                };
                let text = shown.as_str().map_or_else(|| shown.to_string(), str::to_owned);
                self.values.push((path, ShownLeaf { text, digest }));
                shown
            }
        }
    }

    /// The keys with different values, in the order of `other`, and then the keys that `other` lacks.
    pub fn difference(&self, other: &Shown) -> Vec<ChangedKey> {
        let find = |values: &[(String, ShownLeaf)], key: &str| {
            values.iter().find(|(path, _)| path == key).map(|(_, leaf)| leaf.clone())
        };
        let changed = |key: &str, from: Option<ShownLeaf>, to: Option<ShownLeaf>| ChangedKey {
            key: key.to_owned(),
            from: from.map(|leaf| leaf.text()),
            to: to.map(|leaf| leaf.text()),
            effect: effect_of(key),
        };
        let mut changes = Vec::new();
        for (key, leaf) in &other.values {
            let before = find(&self.values, key);
            if before.as_ref() != Some(leaf) {
                changes.push(changed(key, before, Some(leaf.clone())));
            }
        }
        for (key, leaf) in &self.values {
            if find(&other.values, key).is_none() {
                changes.push(changed(key, Some(leaf.clone()), None));
            }
        }
        changes
    }
}

fn class_places(node: &TreeNode) -> ClassPlaces {
    let Tree::Map(entries) = &node.tree else { return ClassPlaces::default() };
    let classes = entries.iter().find(|entry| entry.key == "node_classes").map(|entry| &entry.node.tree);
    let Some(Tree::List(items)) = classes else { return ClassPlaces::default() };
    ClassPlaces(items.iter().map(|item| item.place).collect())
}

fn json_of(tree: &Tree) -> Value {
    match tree {
        // A configuration with an unset variable is never in force.
        Tree::Null | Tree::Unset(_) => Value::Null,
        Tree::Bool(value) => json!(value),
        Tree::Integer(value) => {
            i64::try_from(*value).map_or_else(|_| json!(value.to_string()), |value| json!(value))
        }
        Tree::Float(value) => json!(value),
        Tree::Text(text) => json!(text),
        Tree::List(_) => json!([]),
        Tree::Map(_) => json!({}),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::{Format, syntax};

    fn shown(text: &str) -> Shown {
        Shown::of(&syntax::parse(text, Format::Yaml, &|_| None).unwrap())
    }

    #[test]
    fn rel_9_a_credential_shows_its_size_and_whether_it_is_another() {
        let server = |token: &str| {
            shown(&format!(
                "xds_servers: [{{server_uri: a, initial_metadata: [{{key: x, value: {token}}}]}}]\n\
                 authorities: {{b: {{xds_servers: [{{initial_metadata: [{{value: {token}}}]}}]}}}}"
            ))
        };
        let (one, other) = (server("canary"), server("canari"));
        let texts = [one.document.to_string(), format!("{:?}", one.difference(&other)), format!("{one:?}")];
        assert!(texts.iter().all(|text| !text.contains("canar")), "{texts:?}");
        assert_eq!(one.document["xds_servers"][0]["initial_metadata"][0]["value"], "[redacted 6 B]");
        let changed: Vec<_> =
            one.difference(&other).into_iter().map(|change| (change.key, change.effect)).collect();
        let keys = [
            "xds_servers[0].initial_metadata[0].value",
            "authorities.b.xds_servers[0].initial_metadata[0].value",
        ];
        assert_eq!(changed, keys.map(|key| (key.to_owned(), Effect::Lists)));
        assert_eq!(one.difference(&server("canary")), []);
    }

    #[test]
    fn rel_9_secrets_are_hidden_by_name_and_by_shape() {
        let text = "xds_servers: [{server_uri: 'https://u:canary@cp.example'}]\n\
                    node: {id: a, metadata: {apikey: canary, pin: {secret: 4711}, size: large}}\n\
                    rollouts: [{hook: {uri: 'https://h/?client_secret=canary', also: '${X:-}?token=canary'}}]\n\
                    authorization: off";
        let one = shown(text);
        let all = format!("{} {one:?}", one.document);
        assert!(!all.contains("canary") && !all.contains("4711"), "{all}");
        assert_eq!(one.document["xds_servers"][0]["server_uri"], "https://[redacted 8 B]@cp.example");
        assert_eq!(one.document["node"]["metadata"]["size"], "large");
        assert_eq!(one.document["authorization"], "off");
        let changed = one.difference(&shown(&text.replace("apikey: canary", "apikey: canari")));
        assert_eq!(
            changed.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(),
            ["node.metadata.apikey"]
        );
    }

    #[test]
    fn adm_9_the_entries_of_node_classes_have_their_places() {
        let text = "# first\nnode_classes:\n- match: {cluster: web}\n\n-   split_by: {id: true}\n";
        let places = |text| shown(text).class_places().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(places(text), ["3:3", "5:5"]);
        assert_eq!(shown(text), shown(&format!("\n{text}")), "places are no content");
        assert_eq!(places("drain: 1s"), [""; 0]);
    }

    #[test]
    fn a_difference_names_new_changed_and_old_keys() {
        let (before, after) =
            (shown("a: 1\nb: [x, {c: off}]\nd: {}"), shown("b: [x, {c: on, e: 2.5}]\nd: {f: ~}"));
        let changes = before.difference(&after);
        let changes: Vec<_> = changes
            .iter()
            .map(|change| (change.key.as_str(), change.from.as_deref(), change.to.as_deref()))
            .collect();
        assert_eq!(
            changes,
            [
                ("b[1].c", Some("off"), Some("on")),
                ("b[1].e", None, Some("2.5")),
                ("d.f", None, Some("null")),
                ("a", Some("1"), None),
                ("d", Some("{}"), None),
            ]
        );
    }
}
