//! The names of a rule: all names of a style, or a list (`match.resources`).

use std::hash::{DefaultHasher, Hash, Hasher};

use super::node_match::TextMatch;
use super::projection::Projection;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameStyle {
    /// Opaque names, and every wildcard but an `xdstp:` glob.
    Old,
    Xdstp,
}

impl NameStyle {
    /// RLY-11: `xdstp:` names mean the same for every node (NAM-12), old-style names may depend on the whole
    /// node.
    pub fn default_projection(self) -> Projection {
        match self {
            NameStyle::Xdstp => Projection::features_only(),
            NameStyle::Old => Projection::whole_node_but_id(),
        }
    }

    /// The word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            NameStyle::Old => "old",
            NameStyle::Xdstp => "xdstp",
        }
    }
}

/// Names of one type that the rules treat alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameKind {
    pub style: NameStyle,
    /// The list of a rule. `None`: the names are in no list of a rule for the client.
    pub listed: Option<ResourcesId>,
}

impl From<NameStyle> for NameKind {
    fn from(style: NameStyle) -> NameKind {
        NameKind { style, listed: None }
    }
}

/// The list of a rule. Without patterns the rule is for all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    patterns: Box<[TextMatch]>,
    id: ResourcesId,
}

impl Resources {
    pub fn new(patterns: Vec<TextMatch>) -> Resources {
        let mut hasher = DefaultHasher::new();
        patterns.hash(&mut hasher);
        let [_, id @ ..] = hasher.finish().to_be_bytes();
        Resources { patterns: patterns.into(), id: ResourcesId(id) }
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    pub fn id(&self) -> ResourcesId {
        self.id
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(name))
    }

    /// The patterns, as `*|local.prod.svc.cluster.local`.
    pub fn describe(&self) -> String {
        let patterns: Vec<_> = self.patterns.iter().map(TextMatch::describe).collect();
        patterns.join(",")
    }
}

impl Default for Resources {
    fn default() -> Resources {
        Resources::new(Vec::new())
    }
}

/// A list of names by its patterns, whatever the place of its rule in the configuration (ADR 21). 56 bits, as
/// of an [`AuthorityId`](crate::authority::AuthorityId): only the operator's texts are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourcesId([u8; 7]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{ClassRule, NodeClasses, NodeMatch};
    use sluice_xds::{Node, TypeUrl};

    const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

    fn rule(cluster: Option<&str>, suffix: Option<&str>) -> ClassRule {
        let nodes = NodeMatch {
            cluster: cluster.map(|cluster| TextMatch::Exact(cluster.into())),
            ..NodeMatch::default()
        };
        let resources = suffix.map(|suffix| TextMatch::Suffix(suffix.into()));
        let types = resources.is_some().then(|| TypeUrl::of_message(EDS)).into_iter().collect();
        let rule = ClassRule::for_names(NameStyle::Old, Projection::default());
        ClassRule { nodes, types, resources: Resources::new(resources.into_iter().collect()), ..rule }
    }

    fn node(cluster: &str) -> Node {
        Node { cluster: cluster.into(), ..Node::default() }
    }

    /// The first rule that matches node, type and name decides, as for whole types.
    #[test]
    fn rly_11_a_name_has_the_first_rule_that_lists_it_or_lists_none() {
        let classes = NodeClasses::new(vec![
            rule(Some("web"), Some("|a")),
            rule(None, Some("|b")),
            rule(Some("plain"), None),
            rule(None, Some("|a")),
        ]);
        let ids = [1, 3].map(|at| classes.rules[at].resources.id());
        let listing = |cluster, type_url: &str, name: &str| {
            classes.listing(Some(&node(cluster)), &TypeUrl::of_message(type_url), &name.into())
        };
        assert_eq!(ids[1], classes.rules[0].resources.id(), "equal lists are one");
        assert_eq!(listing("web", EDS, "outbound|80||a"), Some(ids[1]));
        assert_eq!(listing("web", EDS, "outbound|80||b"), Some(ids[0]));
        assert_eq!(listing("plain", EDS, "outbound|80||b"), Some(ids[0]));
        assert_eq!(listing("plain", EDS, "outbound|80||a"), None, "a rule before is for all names");
        assert_eq!(listing("other", EDS, "outbound|80||a"), Some(ids[1]));
        assert_eq!(listing("other", EDS, "outbound|80||c"), None);
        assert_eq!(listing("other", "envoy.config.cluster.v3.Cluster", "outbound|80||a"), None);
        for (cluster, listed, place) in
            [("web", ids[1], 0), ("web", ids[0], 1), ("plain", ids[1], 2), ("other", ids[1], 3)]
        {
            let kind = NameKind { style: NameStyle::Old, listed: Some(listed) };
            let rule = classes.rule(&node(cluster), &TypeUrl::of_message(EDS), kind);
            assert!(rule.is_some_and(|rule| *rule == classes.rules[place]), "{cluster} {place}");
        }
        let kinds = |cluster| classes.kinds(&node(cluster), &TypeUrl::of_message(EDS)).len();
        assert_eq!((kinds("web"), kinds("plain"), kinds("other")), (4, 3, 4));
    }

    /// Two clients differ in the class of a listed name, and share the class of others.
    #[test]
    fn rly_11_listed_names_have_a_class_of_their_own() {
        let mut finer = rule(None, Some("|local"));
        finer.projection.cluster = true;
        let mut other = finer.clone();
        other.resources = Resources::new(vec![TextMatch::Prefix("near|".into())]);
        let shared = rule(None, None);
        let classes = NodeClasses::new(vec![finer.clone(), other, shared]);
        let class = |cluster: &str, name: &str| {
            let (node, type_url) = (node(cluster), TypeUrl::of_message(EDS));
            let listed = classes.listing(Some(&node), &type_url, &name.into());
            let kind = NameKind { style: NameStyle::Old, listed };
            classes.classify(Some(&node), &sluice_identity::Identity::Anonymous, &type_url, kind).ok()
        };
        assert_eq!(class("a", "80|x"), class("b", "80|x"));
        assert_ne!(class("a", "80|local"), class("b", "80|local"));
        assert_eq!(class("a", "80|local"), class("a", "81|local"));
        assert_ne!(
            class("a", "80|local"),
            class("a", "near|x"),
            "two lists are two sources, for a session has one set at each"
        );
        assert_ne!(class("a", "80|local"), class("a", "80|x"));
    }
}
