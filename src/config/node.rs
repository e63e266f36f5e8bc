//! Nodes as text: the relay's own, and a client's for `sluice check --node`.

use super::error::ConfigError;
use super::form::{Form, Shaped};
use super::reader::{Item, Map, walk};
use super::syntax;
use super::tree::{Format, Tree, TreeEntry, TreeNode};
use super::units::text;
use sluice_xds::{Locality, Node, UserAgentVersion, Value};

/// Reads a client's node from the JSON form of `core.v3.Node`, with field names in either of protobuf's
/// spellings.
///
/// Skips fields that no class can depend on, as on the wire (STR-3).
pub fn parse_client_node(json: &str) -> Result<Node, ConfigError> {
    let tree = syntax::parse_literally(json, Format::Json)?;
    let (node, _) = walk(&tree, |map| {
        map.allow_unknown_keys();
        let build = either(map, "user_agent_build_version", "userAgentBuildVersion");
        let version = build.and_then(|item| item.map(read_build_version).flatten());
        let named = either(map, "user_agent_version", "userAgentVersion");
        let mut client_features: Vec<String> = either(map, "client_features", "clientFeatures")
            .and_then(|item| item.list())
            .unwrap_or_default()
            .iter()
            .filter_map(|item| item.text().map(str::to_string))
            .collect();
        client_features.sort();
        client_features.dedup();
        Some(Node {
            user_agent_name: either(map, "user_agent_name", "userAgentName")
                .and_then(|item| item.parse(Shaped(ANY_TEXT, any_text)))
                .unwrap_or_default(),
            user_agent_version: version
                .or_else(|| named?.parse(Shaped(ANY_TEXT, any_text)).map(UserAgentVersion::Text)),
            client_features,
            ..read_identity(map, true)
        })
    })?;
    Ok(node)
}

/// Reads the relay's own node over its defaults.
pub(super) fn read_relay_node(map: &mut Map<'_>, default: Node) -> Node {
    let stated = read_identity(map, false);
    let id = if stated.id.is_empty() { default.id.clone() } else { stated.id };
    Node { id, cluster: stated.cluster, locality: stated.locality, metadata: stated.metadata, ..default }
}

/// The common part of both kinds of node. In a client's node, texts may be empty, as in protobuf.
fn read_identity(map: &mut Map<'_>, is_client: bool) -> Node {
    let parser =
        || Shaped(if is_client { ANY_TEXT } else { &[Form::Text] }, if is_client { any_text } else { text });
    Node {
        id: map.or("id", String::new(), parser()),
        cluster: map.or("cluster", String::new(), parser()),
        locality: map.item("locality").and_then(|item| item.map(|map| read_locality(map, is_client))),
        metadata: map.item("metadata").and_then(|item| item.fields()).unwrap_or_default(),
        ..Node::default()
    }
}

fn read_locality(map: &mut Map<'_>, is_client: bool) -> Locality {
    let sub_zone = if is_client { either(map, "sub_zone", "subZone") } else { map.item("sub_zone") };
    map.can_be("sub_zone", ANY_TEXT);
    Locality {
        region: map.or("region", String::new(), Shaped(ANY_TEXT, any_text)),
        zone: map.or("zone", String::new(), Shaped(ANY_TEXT, any_text)),
        sub_zone: sub_zone.and_then(|item| item.parse(Shaped(ANY_TEXT, any_text))).unwrap_or_default(),
    }
}

fn read_build_version(map: &mut Map<'_>) -> Option<UserAgentVersion> {
    map.allow_unknown_keys();
    map.item("version")?.map(|map| {
        let part = || super::units::number::<u32>(sluice_setting::count(0..=u64::from(u32::MAX)));
        let major = either(map, "major_number", "majorNumber").and_then(|item| item.parse(part()));
        let minor = either(map, "minor_number", "minorNumber").and_then(|item| item.parse(part()));
        let patch = map.or("patch", 0, part());
        UserAgentVersion::Build { major: major.unwrap_or_default(), minor: minor.unwrap_or_default(), patch }
    })
}

/// A field in protobuf's spelling, or in that of its JSON.
pub(super) fn either<'a>(map: &mut Map<'a>, key: &'static str, other: &'static str) -> Option<Item<'a>> {
    let (first, second) = (map.item(key), map.item(other));
    first.or(second)
}

/// As in protobuf, a text may be empty.
const ANY_TEXT: &[Form] = &[Form::AnyText];

pub(super) fn any_text(tree: &Tree) -> Result<String, String> {
    match tree {
        Tree::Text(text) => Ok(text.clone()),
        _ => Err(super::units::TEXT.into()),
    }
}

/// A value of a `google.protobuf.Struct`, where every number is a double.
pub(super) fn to_value(node: &TreeNode) -> Value {
    match node.free() {
        // The reader has reported an unset variable.
        Tree::Null | Tree::Unset(_) => Value::Null,
        Tree::Bool(value) => Value::Bool(*value),
        #[allow(clippy::cast_precision_loss)]
        Tree::Integer(value) => Value::Number((*value as f64).to_bits()),
        Tree::Float(value) => Value::Number(value.to_bits()),
        Tree::Text(text) => Value::String(text.clone()),
        Tree::List(items) => Value::List(items.iter().map(to_value).collect()),
        Tree::Map(entries) => {
            let field = |entry: &TreeEntry| (entry.key.clone(), to_value(&entry.node));
            Value::Struct(entries.iter().map(field).collect())
        }
    }
}

impl Item<'_> {
    /// The value as the fields of a Struct.
    fn fields(&self) -> Option<std::collections::BTreeMap<String, Value>> {
        if !self.has_all_variables() {
            return None;
        }
        match to_value(self.free_map()) {
            Value::Struct(fields) => Some(fields),
            Value::Null => None,
            _ => {
                self.invalid("a map");
                None
            }
        }
    }
}
