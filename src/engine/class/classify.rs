//! The way from a client's node to its class.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{
    LocalityDepth, MetadataParts, NameStyle, NodeClasses, NodeMatch, Projection, UpstreamNode, VersionPart,
};
use crate::xds::{Locality, Node, TypeUrl, UserAgentVersion, Value};

/// Clients of one class may share the answers of an upstream (RLY-10).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClass {
    /// The parts of the node that split classes; all others are empty.
    pub node: Node,
    /// An empty first request means the wildcard (SUB-9, SUB-15).
    pub legacy_wildcard: bool,
    /// The node that servers see for the class.
    pub upstream_node: UpstreamNode,
}

/// The first request of a stream has no node, and the class depends on the node (STR-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeNeeded;

impl fmt::Display for NodeNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the first request of the stream has no node, which decides what this client is served")
    }
}

impl NodeClasses {
    /// The class of a client for names of one style of one type.
    pub fn classify(
        &self,
        node: Option<&Node>,
        type_url: &TypeUrl,
        style: NameStyle,
    ) -> Result<NodeClass, NodeNeeded> {
        let anonymous = Node::default();
        let known = node.unwrap_or(&anonymous);
        // The last rules match everything, so there always is a rule.
        let rule = self.rule(known, type_url, style).ok_or(NodeNeeded)?;
        let projection = rule.projection_of(type_url);
        let rules_read_it = self.rules.iter().any(|rule| rule.nodes != NodeMatch::default());
        let needs_node = rules_read_it || projection != Projection::features_only();
        if node.is_none() && needs_node {
            return Err(NodeNeeded);
        }
        Ok(NodeClass {
            node: projection.apply(known),
            legacy_wildcard: rule.legacy_wildcard,
            upstream_node: rule.upstream_node.clone(),
        })
    }

    /// Whether the node lacks an id where the id must separate its secrets from other clients' secrets
    /// (RLY-21, FD11).
    pub fn lacks_id(&self, node: Option<&Node>, type_url: &TypeUrl, style: NameStyle) -> bool {
        let anonymous = Node::default();
        let node = node.unwrap_or(&anonymous);
        let rule = self.rule(node, type_url, style);
        type_url.is_secret() && node.id.is_empty() && rule.is_none_or(|rule| !rule.share_secrets)
    }
}

impl Projection {
    /// The node, reduced to the parts that split classes. Features and dynamic parameters always stay
    /// (RLY-10, RLY-12).
    pub fn apply(&self, node: &Node) -> Node {
        let keep = |wanted: bool, text: &str| if wanted { text.to_owned() } else { String::new() };
        Node {
            id: keep(self.id, &node.id),
            cluster: keep(self.cluster, &node.cluster),
            metadata: self.metadata.apply(node),
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
}

impl MetadataParts {
    fn apply(&self, node: &Node) -> BTreeMap<String, Value> {
        let paths = match self {
            MetadataParts::All => return node.metadata.clone(),
            MetadataParts::Paths(paths) => paths,
        };
        let mut kept = BTreeMap::new();
        for path in paths {
            if let (Some(value), Some((last, parents))) = (node.metadata_at(path), path.split_last()) {
                insert_at(&mut kept, parents, last, value.clone());
            }
        }
        kept
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
pub fn splitting_field<'a>(classes: impl Iterator<Item = &'a Node>) -> Option<(String, usize)> {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in classes {
        let mut note = |field: &str, value: String| {
            values.entry(field.to_owned()).or_default().insert(value);
        };
        note("id", node.id.clone());
        note("cluster", node.cluster.clone());
        note("locality", format!("{:?}", node.locality));
        note("user_agent_name", node.user_agent_name.clone());
        note("user_agent_version", format!("{:?}", node.user_agent_version));
        note("client_features", node.client_features.join(","));
        for (key, value) in &node.metadata {
            note(&format!("metadata.{key}"), format!("{value:?}"));
        }
    }
    let field =
        values.into_iter().map(|(field, values)| (field, values.len())).max_by_key(|(_, count)| *count)?;
    (field.1 > 1).then_some(field)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{ClassRule, MetadataMatch, TextMatch, ValueMatch};
    use super::*;

    fn node() -> Node {
        let mut metadata = BTreeMap::new();
        metadata.insert("team".to_owned(), Value::String("edge".into()));
        let tier = BTreeMap::from([
            ("name".to_owned(), Value::String("gold".into())),
            ("n".to_owned(), Value::Bool(true)),
        ]);
        metadata.insert("tier".to_owned(), Value::Struct(tier));
        Node {
            id: "client-1".into(),
            cluster: "web".into(),
            metadata,
            locality: Some(Locality { region: "eu".into(), zone: "eu-1".into(), sub_zone: "a".into() }),
            user_agent_name: "envoy".into(),
            user_agent_version: Some(UserAgentVersion::Build { major: 1, minor: 40, patch: 2 }),
            client_features: vec!["f".into()],
            dynamic_parameters: Vec::new(),
        }
    }

    fn clusters() -> TypeUrl {
        TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
    }

    fn secrets() -> TypeUrl {
        TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret")
    }

    #[test]
    fn rly_11_by_default_all_but_the_id_counts_and_only_features_for_xdstp() {
        let classes = NodeClasses::default();
        let mut other = node();
        other.id = "client-2".into();
        let class = |node: &Node, style| classes.classify(Some(node), &clusters(), style).unwrap();
        assert_eq!(class(&node(), NameStyle::Old), class(&other, NameStyle::Old));
        assert_eq!(class(&node(), NameStyle::Old).node.id, "");
        other.metadata.insert("team".into(), Value::String("core".into()));
        assert_ne!(class(&node(), NameStyle::Old), class(&other, NameStyle::Old));
        assert_eq!(class(&node(), NameStyle::Xdstp), class(&other, NameStyle::Xdstp));
        other.client_features.push("g".into());
        assert_ne!(class(&node(), NameStyle::Xdstp), class(&other, NameStyle::Xdstp));
    }

    #[test]
    fn secrets_split_by_id_unless_the_operator_signed() {
        let mut other = node();
        other.id = "client-2".into();
        let class = |classes: &NodeClasses, node: &Node| {
            classes.classify(Some(node), &secrets(), NameStyle::Old).unwrap()
        };
        let classes = NodeClasses::default();
        assert_ne!(class(&classes, &node()), class(&classes, &other));
        let mut rule = ClassRule::for_names(NameStyle::Old, Projection::whole_node_but_id());
        rule.share_secrets = true;
        let signed = NodeClasses::new(vec![rule]);
        assert_eq!(class(&signed, &node()), class(&signed, &other));
    }

    #[test]
    fn rly_21_nodes_without_an_id_share_secrets_only_where_the_operator_signed() {
        let nameless = Node { id: String::new(), ..node() };
        let mut rule = ClassRule::for_names(NameStyle::Old, Projection::whole_node_but_id());
        rule.share_secrets = true;
        let (strict, signed) = (NodeClasses::default(), NodeClasses::new(vec![rule]));
        let named = node();
        let lacks = |classes: &NodeClasses, node, type_url: &TypeUrl| {
            classes.lacks_id(node, type_url, NameStyle::Old)
        };
        assert!(lacks(&strict, Some(&nameless), &secrets()));
        assert!(lacks(&strict, None, &secrets()));
        assert!(!lacks(&strict, Some(&named), &secrets()));
        assert!(!lacks(&strict, Some(&nameless), &clusters()));
        assert!(!lacks(&signed, Some(&nameless), &secrets()));
        assert!(
            signed.lacks_id(Some(&nameless), &secrets(), NameStyle::Xdstp),
            "no rule was signed for these"
        );
    }

    #[test]
    fn a_projection_keeps_what_it_names() {
        let projection = Projection {
            locality: Some(LocalityDepth::Region),
            metadata: MetadataParts::Paths(vec![vec!["tier".into(), "name".into()], vec!["nothing".into()]]),
            user_agent_version: VersionPart::Major,
            ..Projection::default()
        };
        let kept = projection.apply(&node());
        assert_eq!(kept.locality.unwrap(), Locality { region: "eu".into(), ..Locality::default() });
        assert_eq!(
            kept.user_agent_version.unwrap(),
            UserAgentVersion::Build { major: 1, minor: 0, patch: 0 }
        );
        let name = BTreeMap::from([("name".to_owned(), Value::String("gold".into()))]);
        assert_eq!(kept.metadata, BTreeMap::from([("tier".to_owned(), Value::Struct(name))]));
        assert_eq!((kept.cluster.as_str(), kept.client_features.len()), ("", 1));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let mut by_team =
            ClassRule::for_names(NameStyle::Old, Projection { cluster: true, ..Projection::default() });
        by_team.nodes.metadata = vec![MetadataMatch {
            path: vec!["team".into()],
            value: ValueMatch::Text(TextMatch::Prefix("ed".into())),
        }];
        by_team.types = vec![clusters()];
        by_team.legacy_wildcard = false;
        let classes = NodeClasses::new(vec![by_team]);
        let class = classes.classify(Some(&node()), &clusters(), NameStyle::Old).unwrap();
        assert_eq!(
            (class.node.cluster.as_str(), class.node.metadata.len(), class.legacy_wildcard),
            ("web", 0, false)
        );
        let other_type = TypeUrl::of_message("envoy.config.listener.v3.Listener");
        assert_eq!(
            classes.classify(Some(&node()), &other_type, NameStyle::Old).unwrap().node.metadata.len(),
            2
        );
    }

    #[test]
    fn str_4_a_node_is_required_only_where_it_decides() {
        let classes = NodeClasses::default();
        assert_eq!(classes.classify(None, &clusters(), NameStyle::Old), Err(NodeNeeded));
        assert!(classes.classify(None, &clusters(), NameStyle::Xdstp).is_ok());
    }

    #[test]
    fn the_hint_names_what_splits() {
        let nodes: Vec<_> = (0..5)
            .map(|n| {
                let mut node = node();
                node.metadata.insert("pod".into(), Value::String(format!("pod-{n}")));
                node.locality = Some(Locality { zone: format!("z{}", n % 2), ..Locality::default() });
                node
            })
            .collect();
        assert_eq!(splitting_field(nodes.iter()), Some(("metadata.pod".into(), 5)));
        assert_eq!(splitting_field(nodes[..1].iter()), None);
    }
}
