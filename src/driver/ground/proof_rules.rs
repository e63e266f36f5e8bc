//! `proof:`, as the driver obeys it.

use sluice_engine::class::{NodeClass, NodeMatch, UpstreamNode};
use sluice_fleet::rollout::plan::UnitMatch;
use sluice_proof::proof::ProofSettings;
use sluice_xds::{Node, TypeUrl, Value};

/// Metadata with a meaning for connections: a control plane registers such a client when it connects, and
/// takes it off the registry when its last stream ends (PRF-5).
const LIFECYCLE: [&str; 2] = ["AUTO_REGISTER_GROUP", "dataplane.resource"];

/// The questions that the relay may ask beside its classes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProofRules {
    pub settings: ProofSettings,
    /// The server lists and the classes that are proved; the default: all.
    pub units: UnitMatch,
    /// Conditions on nodes that are never shown.
    pub never: Vec<NodeMatch>,
    /// Fields that may differ (PRF-15).
    pub ignored: Vec<IgnoredField>,
}

/// A field of a type that may differ, with the fields below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredField {
    pub type_url: TypeUrl,
    /// Without indices: `filter_chains.filters.typed_config.stat_prefix`.
    pub path: String,
}

impl ProofRules {
    /// Whether a class is proved. A class of one client has nobody to differ, and a class that shows a
    /// projection has no member to ask as.
    pub fn proves(&self, list: &str, class: &NodeClass) -> bool {
        let shows_node = class.upstream_node != UpstreamNode::Projection;
        shows_node && !class.is_of_one() && self.units.matches(list, &class.node)
    }

    /// Whether this node is never shown, because a connection with it is an act there (PRF-5).
    pub fn never_shows(&self, node: &Node) -> bool {
        let has_lifecycle = LIFECYCLE.iter().any(|key| match node.metadata.get(*key) {
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Null) | None => false,
            Some(_) => true,
        });
        has_lifecycle || self.never.iter().any(|nodes| nodes.matches(node))
    }

    /// The paths of a type that may differ.
    pub fn ignored_of(&self, type_url: &TypeUrl) -> Vec<String> {
        let of_type = self.ignored.iter().filter(|ignored| ignored.type_url == *type_url);
        of_type.map(|ignored| ignored.path.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prf_5_a_node_whose_connection_is_an_act_is_never_shown() {
        let node = |key: &str, value: &str| Node {
            metadata: [(key.to_owned(), Value::String(value.to_owned()))].into(),
            ..Node::default()
        };
        let rules = ProofRules::default();
        assert!(rules.never_shows(&node("AUTO_REGISTER_GROUP", "vms")));
        assert!(rules.never_shows(&node("dataplane.resource", "{}")));
        assert!(!rules.never_shows(&node("AUTO_REGISTER_GROUP", "")));
        assert!(!rules.never_shows(&node("NAMESPACE", "a")));
    }
}
