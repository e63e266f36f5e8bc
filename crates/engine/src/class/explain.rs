//! The rule behind a class, for people (ADM-9). `sluice check --node` and the admin API share these words.

use super::facts::Fields;
use super::{
    ClassRule, IdPart, IdentityPart, LocalityDepth, MetadataParts, NameKind, NameStyle, NodeClasses,
    NodeMatch, Projection, RuleId, TextMatch, ValueMatch, VersionPart,
};
use sluice_identity::Identity;
use sluice_xds::{Locality, Node, TypeUrl};

/// The choice of a rule for one node, type and kind of names.
#[derive(Clone, Debug)]
pub struct RuleChoice<'a> {
    pub rule: &'a ClassRule,
    /// The entry before that fails in the fewest conditions; of several, the last.
    pub nearest: Option<NearMiss>,
    /// The entries behind.
    pub not_reached: Vec<RuleId>,
}

/// A condition of a rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    pub id: RuleId,
    /// The first of the conditions that fail.
    pub field: String,
    pub wanted: String,
    /// `None` for metadata, whose values may be confidential, and for the names that a rule lists.
    pub found: Option<String>,
}

type Failure = (String, String, Option<String>);

impl NodeClasses {
    /// The rule that decides, and its neighbours.
    pub fn choose(
        &self,
        node: &Node,
        type_url: &TypeUrl,
        names: impl Into<NameKind>,
    ) -> Option<RuleChoice<'_>> {
        let names = names.into();
        let index = self.rules.iter().position(|rule| rule.matches(node, type_url, names))?;
        let (before, from) = self.rules.split_at(index);
        let (rule, behind) = from.split_first()?;
        let missed = before.iter().filter(|earlier| earlier.id != rule.id).map(|earlier| {
            let failures = earlier.failures(node, type_url, names);
            (failures.len(), earlier.id, failures)
        });
        // The last of equals is the nearest.
        let nearest = missed.min_by_key(|(count, id, _)| (*count, std::cmp::Reverse(*id)));
        let nearest = nearest.and_then(|(_, id, failures)| {
            let (field, wanted, found) = failures.into_iter().next()?;
            Some(NearMiss { id, field, wanted, found })
        });
        let mut not_reached: Vec<_> =
            behind.iter().map(|later| later.id).filter(|later| *later != rule.id).collect();
        not_reached.dedup();
        Some(RuleChoice { rule, nearest, not_reached })
    }
}

impl ClassRule {
    /// The conditions that do not hold.
    fn failures(&self, node: &Node, type_url: &TypeUrl, names: NameKind) -> Vec<Failure> {
        let (mut failures, style) = (Vec::new(), names.style);
        if let Some(names) = self.names.filter(|names| *names != style) {
            failures.push(("names".to_owned(), names.word().to_owned(), Some(style.word().to_owned())));
        }
        if !self.resources.is_empty() && names.listed != Some(self.resources.id()) {
            failures.push(("resources".to_owned(), self.resources.describe(), None));
        }
        if !self.types.is_empty() && !self.types.contains(type_url) {
            let types: Vec<_> = self.types.iter().map(TypeUrl::short).collect();
            failures.push(("types".to_owned(), types.join(","), Some(type_url.short().to_owned())));
        }
        failures.extend(self.nodes.failures(node));
        failures
    }

    /// The conditions, as `names=old id=envoy-*`; `all` without a condition.
    pub fn describe_match(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.names.map(|names| format!("names={}", names.word())));
        if !self.types.is_empty() {
            let types: Vec<_> = self.types.iter().map(TypeUrl::short).collect();
            parts.push(format!("types={}", types.join(",")));
        }
        if !self.resources.is_empty() {
            parts.push(format!("resources={}", self.resources.describe()));
        }
        parts.extend(self.nodes.texts().iter().filter_map(|(field, wanted, _)| {
            wanted.as_ref().map(|wanted| format!("{field}={}", wanted.describe()))
        }));
        parts.extend(
            self.nodes.metadata.iter().map(|of| format!("{}={}", path_text(&of.path), of.value.describe())),
        );
        if parts.is_empty() { "all".to_owned() } else { parts.join(" ") }
    }
}

impl NameStyle {
    /// The word of the configuration.
    pub fn word(self) -> &'static str {
        match self {
            NameStyle::Old => "old",
            NameStyle::Xdstp => "xdstp",
        }
    }
}

/// A field, its condition, and its value in a node.
type Field<'a> = (&'static str, &'a Option<TextMatch>, fn(&Node) -> &str);

impl NodeMatch {
    /// The conditions on texts, in the order of the configuration.
    fn texts(&self) -> [Field<'_>; 6] {
        fn place(node: &Node, part: fn(&Locality) -> &str) -> &str {
            node.locality.as_ref().map_or("", part)
        }
        [
            ("id", &self.id, |node| &node.id),
            ("cluster", &self.cluster, |node| &node.cluster),
            ("user_agent_name", &self.user_agent_name, |node| &node.user_agent_name),
            ("locality.region", &self.region, |node| place(node, |locality| &locality.region)),
            ("locality.zone", &self.zone, |node| place(node, |locality| &locality.zone)),
            ("locality.sub_zone", &self.sub_zone, |node| place(node, |locality| &locality.sub_zone)),
        ]
    }

    fn failures(&self, node: &Node) -> Vec<Failure> {
        let texts = self.texts().into_iter().filter_map(|(field, wanted, value)| {
            let (wanted, found) = (wanted.as_ref()?, value(node));
            (!wanted.matches(found)).then(|| (field.to_owned(), wanted.describe(), Some(found.to_owned())))
        });
        let metadata = self.metadata.iter().filter(|wanted| {
            !node.metadata_at(&wanted.path).is_some_and(|value| wanted.value.matches(value))
        });
        let metadata = metadata.map(|wanted| (path_text(&wanted.path), wanted.value.describe(), None));
        texts.chain(metadata).collect()
    }
}

fn path_text(path: &[String]) -> String {
    format!("metadata.{}", path.join("/"))
}

impl TextMatch {
    pub(super) fn describe(&self) -> String {
        match self {
            TextMatch::Exact(text) => text.clone(),
            TextMatch::Prefix(text) => format!("{text}*"),
            TextMatch::Suffix(text) => format!("*{text}"),
        }
    }
}

impl ValueMatch {
    fn describe(&self) -> String {
        match self {
            ValueMatch::Present => "present".to_owned(),
            // A value of the configuration may stand for a secret of the nodes.
            ValueMatch::Equal(_) => "a certain value".to_owned(),
            ValueMatch::Text(text) => text.describe(),
        }
    }
}

impl Projection {
    /// The parts of a node and of the client's facts that split classes, with their values. Metadata values may be
    /// confidential, so only their paths are shown.
    pub fn describe(&self, node: &Node, identity: &Identity, fields: Option<&Fields>) -> String {
        let mut parts = Vec::new();
        if self.id == IdPart::Whole {
            parts.push(format!("id={:?}", node.id));
        }
        parts.extend(
            self.attributes(node, identity, fields).iter().map(|(name, value)| format!("{name}={value:?}")),
        );
        if self.cluster {
            parts.push(format!("cluster={:?}", node.cluster));
        }
        if let Some(depth) = self.locality {
            let locality = node.locality.clone().unwrap_or_default();
            let depth = match depth {
                LocalityDepth::Region => 1,
                LocalityDepth::Zone => 2,
                LocalityDepth::SubZone => 3,
            };
            let names = [locality.region, locality.zone, locality.sub_zone];
            parts.push(format!("locality={:?}", names.iter().take(depth).collect::<Vec<_>>()));
        }
        parts.extend(self.metadata.describe(node));
        match self.identity {
            IdentityPart::None => {}
            IdentityPart::TrustDomain => parts.push("identity=trust_domain".into()),
            IdentityPart::Segments(count) => parts.push(format!("identity={count} segments")),
            IdentityPart::Full => parts.push("identity=full".into()),
        }
        if self.user_agent_name {
            parts.push(format!("user_agent_name={:?}", node.user_agent_name));
        }
        match self.user_agent_version {
            VersionPart::None => {}
            VersionPart::Major => parts.push("user_agent_version=major".into()),
            VersionPart::Full => parts.push("user_agent_version=full".into()),
        }
        parts.join(" ")
    }
}

impl MetadataParts {
    fn describe(&self, node: &Node) -> Option<String> {
        match self {
            MetadataParts::AllBut(left_out) => {
                let kept = self.apply(&node.metadata);
                let keys: Vec<&str> = kept.keys().map(String::as_str).collect();
                let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(",") };
                let left_out: Vec<String> = left_out.iter().map(|path| path.join("/")).collect();
                let left_out = if left_out.is_empty() {
                    String::new()
                } else {
                    format!(" (all but {})", left_out.join(","))
                };
                Some(format!("metadata={keys}{left_out}"))
            }
            MetadataParts::Paths(paths) if paths.is_empty() => None,
            MetadataParts::Paths(paths) => {
                let is_there =
                    |path: &[String]| if node.metadata_at(path).is_some() { "" } else { " (absent)" };
                let shown: Vec<String> =
                    paths.iter().map(|path| format!("{}{}", path.join("/"), is_there(path))).collect();
                Some(format!("metadata={}", shown.join(",")))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::class::MetadataMatch;
    use sluice_xds::Value;

    fn text(text: &str) -> Option<TextMatch> {
        Some(match (text.strip_suffix('*'), text.strip_prefix('*')) {
            (Some(prefix), _) => TextMatch::Prefix(prefix.to_owned()),
            (_, Some(suffix)) => TextMatch::Suffix(suffix.to_owned()),
            _ => TextMatch::Exact(text.to_owned()),
        })
    }

    fn rule(entry: usize, nodes: NodeMatch, names: Option<NameStyle>) -> ClassRule {
        let rule =
            ClassRule::for_names(NameStyle::Old, Projection { cluster: true, ..Projection::default() });
        ClassRule { id: RuleId { entry, is_default: false }, nodes, names, ..rule }
    }

    fn node(id: &str, cluster: &str, zone: &str) -> Node {
        let locality = Some(Locality { zone: zone.into(), ..Locality::default() });
        Node { id: id.into(), cluster: cluster.into(), locality, ..Node::default() }
    }

    #[test]
    fn adm_9_a_rule_is_told_with_its_number_and_the_nearest_that_failed() {
        let of = |id: &str, cluster: &str, zone: &str| NodeMatch {
            id: text(id),
            cluster: text(cluster),
            zone: text(zone),
            ..NodeMatch::default()
        };
        let classes = NodeClasses::new(vec![
            rule(0, of("envoy-*", "web", "a"), None),
            rule(1, of("envoy-*", "*b", "b"), Some(NameStyle::Old)),
            rule(2, NodeMatch { id: text("grpc-*"), ..NodeMatch::default() }, None),
        ]);
        let cluster = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let table = [
            (("envoy-1", "web", "a"), NameStyle::Old, "node_classes[0]", "-"),
            (("envoy-1", "web", "b"), NameStyle::Old, "node_classes[1]", "node_classes[0] locality.zone a b"),
            (
                ("envoy-1", "api", "b"),
                NameStyle::Old,
                "node_classes[3] (default)",
                "node_classes[2] id grpc-* envoy-1",
            ),
            (("grpc-1", "web", "a"), NameStyle::Old, "node_classes[2]", "node_classes[0] id envoy-* grpc-1"),
            (
                ("other", "", ""),
                NameStyle::Xdstp,
                "node_classes[3] (default)",
                "node_classes[2] id grpc-* other",
            ),
            (
                ("envoy-1", "web", "b"),
                NameStyle::Xdstp,
                "node_classes[3] (default)",
                "node_classes[2] id grpc-* envoy-1",
            ),
        ];
        for ((id, zone_cluster, zone), style, decides, nearest) in table {
            let choice = classes.choose(&node(id, zone_cluster, zone), &cluster, style).unwrap();
            assert_eq!(choice.rule.id.to_string(), decides, "{id} {zone_cluster} {zone}");
            let found = choice.nearest.as_ref().map_or("-".to_owned(), |near| {
                format!(
                    "{} {} {} {}",
                    near.id,
                    near.field,
                    near.wanted,
                    near.found.clone().unwrap_or_default()
                )
            });
            assert_eq!(found, nearest, "{id} {zone_cluster} {zone}");
        }
        let first = classes.choose(&node("envoy-1", "web", "a"), &cluster, NameStyle::Old).unwrap();
        let later: Vec<_> = first.not_reached.iter().map(ToString::to_string).collect();
        assert_eq!(later, ["node_classes[1]", "node_classes[2]", "node_classes[3] (default)"]);
        assert_eq!(first.rule.describe_match(), "id=envoy-* cluster=web locality.zone=a");
        assert_eq!(classes.rules[1].describe_match(), "names=old id=envoy-* cluster=*b locality.zone=b");
    }

    #[test]
    fn adm_9_built_in_rules_count() {
        let (classes, cluster) =
            (NodeClasses::default(), TypeUrl::of_message("envoy.config.cluster.v3.Cluster"));
        for style in [NameStyle::Old, NameStyle::Xdstp] {
            let choice = classes.choose(&Node::default(), &cluster, style).unwrap();
            assert_eq!(
                (choice.rule.id.to_string().as_str(), choice.nearest),
                ("node_classes[0] (default)", None)
            );
            assert_eq!(choice.not_reached, []);
        }
    }

    /// Values of metadata may be confidential.
    #[test]
    fn adm_9_a_failed_condition_on_metadata_shows_no_value() {
        let metadata = vec![MetadataMatch {
            path: vec!["labels".into(), "rev".into()],
            value: ValueMatch::Equal(Value::String("canary".into())),
        }];
        let nodes = NodeMatch { metadata, ..NodeMatch::default() };
        let classes = NodeClasses::new(vec![rule(0, nodes, None)]);
        let cluster = TypeUrl::of_message("envoy.config.cluster.v3.Cluster");
        let near = classes.choose(&Node::default(), &cluster, NameStyle::Old).unwrap().nearest.unwrap();
        assert_eq!((near.field.as_str(), near.found), ("metadata.labels/rev", None));
        assert!(!near.wanted.contains("canary"), "{}", near.wanted);
    }
}
