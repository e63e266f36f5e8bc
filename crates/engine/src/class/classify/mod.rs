//! The class of a client.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::projection::{Attributes, lack_facts};
use super::upstream_node::UpstreamNode;
use sluice_xds::{Node, Value};

/// The attribute with the list of a class. A session has a single set of names at a source, so listed names
/// and others never share a class.
pub(super) const RESOURCES: &str = "resources";

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
    /// The class by the rules alone, of which this class was split off (PRF-27).
    pub split_from: Option<Arc<NodeClass>>,
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
            split_from: None,
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
        lack_facts(&self.attributes)
    }

    /// The class of those members that have this value of an attribute beside the rules (PRF-27). Its server
    /// sees the whole node of a member, as nothing else says which members they are.
    #[must_use]
    pub fn split_off(self, attribute: Box<str>, value: Box<str>) -> NodeClass {
        let mut attributes = self.attributes.clone();
        attributes.insert(attribute, value);
        NodeClass {
            attributes,
            upstream_node: UpstreamNode::Member,
            split_from: Some(Arc::new(self.clone())),
            ..self
        }
    }

    /// Puts the verified identity into a node for the server. Clients cannot set the key.
    #[must_use]
    pub fn with_identity(&self, mut node: Node) -> Node {
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
