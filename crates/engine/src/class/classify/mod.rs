//! The way from a client's node to its class.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::facts::{self, Fields};
use super::{
    IdPart, IdentityPart, LocalityDepth, MetadataParts, NameKind, NodeClasses, NodeMatch, Projection,
    SecretsWithheld, UpstreamNode, VersionPart,
};
use sluice_identity::Identity;
use sluice_xds::{Locality, Node, TypeUrl, UserAgentVersion, Value};

/// The attribute with the list of a class. A session has a single set of names at a source, so listed names and others never share
/// a class.
const RESOURCES: &str = "resources";

/// Values by name.
pub type Attributes = BTreeMap<Box<str>, Box<str>>;

/// Clients of one class may share the answers of an upstream (RLY-10).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClass {
    /// The parts of the node that split classes; all others are empty.
    pub node: Node,
    /// The values that split classes without a field in the node, by name.
    pub attributes: Attributes,
    /// An empty first request means the wildcard (SUB-9, SUB-15).
    pub legacy_wildcard: bool,
    /// The node that servers see for the class.
    pub upstream_node: UpstreamNode,
    /// The part of the proved identity that splits classes (ISO-1).
    pub identity: Option<Box<str>>,
    /// The key of the upstream node's metadata for this part (ISO-4).
    pub identity_metadata: Option<Box<str>>,
}

impl NodeClass {
    /// The only class of a server with the same answers for all clients.
    pub fn of_everybody() -> NodeClass {
        NodeClass {
            node: Node::default(),
            attributes: Attributes::new(),
            legacy_wildcard: true,
            upstream_node: UpstreamNode::Projection,
            identity: None,
            identity_metadata: None,
        }
    }

    /// The only class of listed names of a server with the same answers for all clients.
    #[must_use]
    pub fn of_everybody_with(listed: &NodeClass) -> NodeClass {
        let resources = listed.attributes.get_key_value(RESOURCES);
        let attributes = resources.map(|(name, value)| (name.clone(), value.clone())).into_iter().collect();
        NodeClass { attributes, ..NodeClass::of_everybody() }
    }

    /// Whether the class is of a single client, by the id.
    pub fn is_of_one(&self) -> bool {
        !self.node.id.is_empty()
    }

    /// Whether the class is of one client, whose facts are unknown.
    pub fn lacks_facts(&self) -> bool {
        facts::are_unknown(&self.attributes)
    }

    /// Puts the verified identity into a node for the server. Clients cannot set the key.
    #[must_use]
    pub fn told_identity(&self, mut node: Node) -> Node {
        if let (Some(key), Some(identity)) = (&self.identity_metadata, &self.identity) {
            node.metadata.insert(key.to_string(), Value::String(identity.to_string()));
        }
        node
    }
}

/// The reason why a client has no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclassified {
    /// The first request of a stream has no node, and the class depends on the node (STR-4).
    NoNode,
    /// Nothing tells the client apart from others without facts.
    NoFacts,
}

impl fmt::Display for Unclassified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unclassified::NoNode => {
                "the first request of the stream has no node, which decides what this client is served"
            }
            Unclassified::NoFacts => {
                "nothing is known of this client (`facts`), and it has no `node.id` for a class of its own"
            }
        })
    }
}

impl NodeClasses {
    /// The class of a client for names of one kind of one type.
    pub fn classify(
        &self,
        node: Option<&Node>,
        identity: &Identity,
        type_url: &TypeUrl,
        names: impl Into<NameKind>,
    ) -> Result<NodeClass, Unclassified> {
        let anonymous = Node::default();
        let known = node.unwrap_or(&anonymous);
        // The last rules match everything, so there always is a rule.
        let rule = self.rule(known, type_url, names).ok_or(Unclassified::NoNode)?;
        let facts = rule.projection.facts.keeps_any().then(|| self.facts.of(known));
        let projection = rule.projection_of(type_url, identity, facts != Some(None));
        let rules_read_it = self.rules.iter().any(|rule| rule.nodes != NodeMatch::default());
        let of_node = Projection { identity: IdentityPart::None, ..projection.clone() };
        let needs_node = rules_read_it || of_node != Projection::features_only();
        if node.is_none() && needs_node {
            return Err(Unclassified::NoNode);
        }
        if facts == Some(None) && known.id.is_empty() {
            return Err(Unclassified::NoFacts);
        }
        let mut attributes = projection.attributes(known, identity, facts.flatten().map(|fields| &**fields));
        if !rule.resources.is_empty() {
            attributes.insert(RESOURCES.into(), rule.resources.describe().into());
        }
        Ok(NodeClass {
            node: projection.apply(known),
            attributes,
            legacy_wildcard: rule.legacy_wildcard,
            upstream_node: rule.upstream_node.clone(),
            identity: projection.identity.of(identity),
            identity_metadata: rule.identity_metadata.clone(),
        })
    }

    /// The reason why a client gets no Secrets, if the type holds Secrets (RLY-21, FD11).
    pub fn withheld_secrets(
        &self,
        node: Option<&Node>,
        identity: &Identity,
        type_url: &TypeUrl,
        names: impl Into<NameKind>,
    ) -> Option<SecretsWithheld> {
        if !type_url.is_secret() {
            return None;
        }
        let anonymous = Node::default();
        let node = node.unwrap_or(&anonymous);
        // The last rules match everything, so there always is a rule.
        self.rule(node, type_url, names).and_then(|rule| rule.withholds_secrets(node, identity))
    }
}

impl Projection {
    /// The node, reduced to the parts that split classes. Features and dynamic parameters always stay
    /// (RLY-10, RLY-12).
    pub fn apply(&self, node: &Node) -> Node {
        let keep = |wanted: bool, text: &str| if wanted { text.to_owned() } else { String::new() };
        Node {
            id: keep(self.id == IdPart::Whole, &node.id),
            cluster: keep(self.cluster, &node.cluster),
            metadata: self.metadata.apply(&node.metadata),
            locality: self.locality.and_then(|depth| Some(depth.apply(node.locality.as_ref()?))),
            user_agent_name: keep(self.user_agent_name, &node.user_agent_name),
            user_agent_version: node
                .user_agent_version
                .as_ref()
                .and_then(|version| self.user_agent_version.apply(version)),
            client_features: node.client_features.clone(),
            dynamic_parameters: node.dynamic_parameters.clone(),
        }
    }

    /// The values that split classes without a field in [`Projection::apply`]. `fields`: the facts of the client.
    pub fn attributes(&self, node: &Node, identity: &Identity, fields: Option<&Fields>) -> Attributes {
        let id = self.id.parts_of(&node.id).map(|parts| (Box::from("id.parts"), parts.into()));
        let family = self
            .address_family
            .as_ref()
            .map(|key| ("address_family".into(), key.address_family(node).into()));
        let of_facts =
            || fields.map_or_else(|| facts::unknown(identity), |of| facts::attributes(&self.facts, of));
        let facts = self.facts.keeps_any().then(of_facts);
        id.into_iter().chain(family).chain(facts.into_iter().flatten()).collect()
    }
}

impl IdPart {
    /// The texts at the kept places. The separators stay.
    fn parts_of(&self, id: &str) -> Option<String> {
        let IdPart::At { separator, places } = self else { return None };
        let keep = |(place, text)| if places.contains(&place) { text } else { "" };
        let kept: Vec<&str> = id.split(&**separator).enumerate().map(keep).collect();
        Some(kept.join(separator))
    }
}

impl MetadataParts {
    pub(super) fn apply(&self, fields: &Fields) -> Fields {
        let paths = match self {
            MetadataParts::AllBut(left_out) => {
                let mut kept = fields.clone();
                for (last, parents) in left_out.iter().filter_map(|path| path.split_last()) {
                    remove_at(&mut kept, parents, last);
                }
                return kept;
            }
            MetadataParts::Paths(paths) => paths,
        };
        let mut kept = BTreeMap::new();
        for path in paths {
            if let (Some(value), Some((last, parents))) = (Value::at(fields, path), path.split_last()) {
                insert_at(&mut kept, parents, last, value.clone());
            }
        }
        kept
    }
}

/// A map that becomes empty stays: a node without the map differs.
fn remove_at(fields: &mut BTreeMap<String, Value>, parents: &[String], last: &str) {
    match parents.split_first() {
        None => drop(fields.remove(last)),
        Some((first, rest)) => {
            if let Some(Value::Struct(fields)) = fields.get_mut(first) {
                remove_at(fields, rest, last);
            }
        }
    }
}

fn insert_at(fields: &mut BTreeMap<String, Value>, parents: &[String], last: &str, value: Value) {
    let Some((first, rest)) = parents.split_first() else {
        fields.insert(last.to_owned(), value);
        return;
    };
    let child = fields.entry(first.clone()).or_insert_with(|| Value::Struct(BTreeMap::new()));
    // A shorter path before has kept the whole value already.
    if let Value::Struct(fields) = child {
        insert_at(fields, rest, last, value);
    }
}

impl LocalityDepth {
    fn apply(self, locality: &Locality) -> Locality {
        let keep =
            |depth: LocalityDepth, text: &str| if self >= depth { text.to_owned() } else { String::new() };
        Locality {
            region: locality.region.clone(),
            zone: keep(LocalityDepth::Zone, &locality.zone),
            sub_zone: keep(LocalityDepth::SubZone, &locality.sub_zone),
        }
    }
}

impl VersionPart {
    fn apply(self, version: &UserAgentVersion) -> Option<UserAgentVersion> {
        match (self, version) {
            (VersionPart::None, _) => None,
            (VersionPart::Full, version) => Some(version.clone()),
            (VersionPart::Major, UserAgentVersion::Build { major, .. }) => {
                Some(UserAgentVersion::Build { major: *major, minor: 0, patch: 0 })
            }
            (VersionPart::Major, UserAgentVersion::Text(text)) => {
                let text = text.trim_start_matches('v');
                Some(UserAgentVersion::Text(text.split('.').next().unwrap_or(text).to_owned()))
            }
        }
    }
}

/// The field with the most different values among the classes, and the number of values. Operators should
/// check the field when there are nearly as many classes as clients.
pub fn splitting_field<'a>(classes: impl Iterator<Item = &'a NodeClass>) -> Option<(String, usize)> {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for NodeClass { node, attributes, .. } in classes {
        let mut note = |field: &str, value: String| {
            values.entry(field.to_owned()).or_default().insert(value);
        };
        note("id", node.id.clone());
        note("cluster", node.cluster.clone());
        note("locality", format!("{:?}", node.locality));
        note("user_agent_name", node.user_agent_name.clone());
        note("user_agent_version", format!("{:?}", node.user_agent_version));
        note("client_features", node.client_features.join(","));
        for (name, value) in attributes {
            note(name, value.to_string());
        }
        for (key, value) in &node.metadata {
            note(&format!("metadata.{key}"), format!("{value:?}"));
        }
    }
    let field =
        values.into_iter().map(|(field, values)| (field, values.len())).max_by_key(|(_, count)| *count)?;
    (field.1 > 1).then_some(field)
}

#[cfg(test)]
mod tests;
