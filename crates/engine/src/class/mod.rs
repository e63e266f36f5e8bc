//! Node classes: groups of clients that may share the answers of an upstream (RLY-10, RLY-11).
//!
//! The operator states the classes as an ordered list of rules. The first rule that matches a client's node,
//! a type and a kind of names decides which parts of the node split classes.

mod classify;
mod disjoint;
mod explain;
pub mod facts;
mod names;
mod node_key;
mod upstream_node;

use std::fmt;
use std::sync::Arc;

use self::facts::{FactTable, Facts};
use sluice_identity::Identity;
use sluice_xds::{Locality, Node, TypeUrl, Value};

pub use classify::{Attributes, NodeClass, Unclassified, splitting_field};
pub use explain::{NearMiss, RuleChoice};
pub use names::{NameKind, NameStyle, Resources, ResourcesId};
pub use node_key::NodeKey;
pub use upstream_node::{Filling, NodeTemplate, Parts, Text, UpstreamNode};

/// The complete rules of a relay: some rule matches every subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeClasses {
    /// In order; the first match decides.
    pub rules: Vec<ClassRule>,
    pub facts: Facts,
}

/// The place of a rule in `node_classes`, as operators count: from 0, with the built-in rules behind the last entry
/// (ADM-9). An entry may be several rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId {
    pub entry: usize,
    pub is_default: bool,
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node_classes[{}]{}", self.entry, if self.is_default { " (default)" } else { "" })
    }
}

/// A rule: conditions on subscriptions, and the parts of the node that split classes.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassRule {
    pub id: RuleId,
    pub nodes: NodeMatch,
    /// Empty: every type.
    pub types: Vec<TypeUrl>,
    /// `None`: names of either style.
    pub names: Option<NameStyle>,
    /// The rule is for the listed names alone, and never for a wildcard.
    pub resources: Resources,
    pub projection: Projection,
    pub share_secrets: ShareSecrets,
    /// The key of the upstream node's metadata that has the verified identity (ISO-4).
    pub identity_metadata: Option<Box<str>>,
    /// Whether an empty first request of a type means the wildcard (SUB-9) or nothing (SUB-15).
    pub legacy_wildcard: bool,
    /// Clients accept `resource_errors` as an answer: a full-state answer may omit resources with errors, and
    /// a SotW answer may have errors alone (ERR-8, SST-7).
    pub resource_errors_alone: bool,
    /// The node that servers see for the classes of this rule.
    pub upstream_node: UpstreamNode,
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
}

/// A condition on nodes: all given fields must match; an empty condition matches every node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMatch {
    pub id: Option<TextMatch>,
    pub cluster: Option<TextMatch>,
    pub user_agent_name: Option<TextMatch>,
    pub region: Option<TextMatch>,
    pub zone: Option<TextMatch>,
    pub sub_zone: Option<TextMatch>,
    pub metadata: Vec<MetadataMatch>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TextMatch {
    Exact(String),
    Prefix(String),
    Suffix(String),
}

/// A condition on the metadata value under a path of keys. A missing value never matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataMatch {
    pub path: Vec<String>,
    pub value: ValueMatch,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueMatch {
    /// Any value, including null.
    Present,
    Equal(Value),
    /// A string that matches.
    Text(TextMatch),
}

/// The parts of a node that split classes. Client features (RLY-12) and dynamic parameters (RLY-10) always
/// split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    pub id: IdPart,
    pub cluster: bool,
    /// `None`: the locality does not split classes.
    pub locality: Option<LocalityDepth>,
    pub metadata: MetadataParts,
    pub user_agent_name: bool,
    pub user_agent_version: VersionPart,
    /// The part of the proved identity; no claim of the node.
    pub identity: IdentityPart,
    /// The addresses whose family splits classes.
    pub address_family: Option<NodeKey>,
    /// The parts of the client's facts. A client without facts has a class of its own.
    pub facts: MetadataParts,
}

/// The part of the id that splits classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IdPart {
    #[default]
    None,
    /// The texts at these places, from 0, between the separators. Some control planes write several things into the id.
    At {
        separator: Box<str>,
        places: Vec<usize>,
    },
    Whole,
}

/// The clients that may share secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareSecrets {
    /// Secrets split by `id` and by the identity, whatever the projection says.
    #[default]
    No,
    /// The clients of one proved identity (ISO-2).
    Identity,
    /// The operator has declared that clients may share secrets (RLY-21).
    Yes,
}

/// The reason why a client gets no Secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretsWithheld {
    /// The id would have to separate the client's Secrets, and the node has none.
    NoId,
    /// All clients of the trust domain prove the same, and each could state the id of another (IDN-5).
    SharedProof(Box<str>),
}

impl fmt::Display for SecretsWithheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretsWithheld::NoId => {
                f.write_str("Secrets are served per node, and this client has no `node.id`")
            }
            SecretsWithheld::SharedProof(name) => write!(
                f,
                "Secrets are served per client, and the clients of trust domain {name} share their proof; an operator may \
                 declare the Secrets shared (`node_classes[].share_secrets`)"
            ),
        }
    }
}

/// The part of an identity that splits classes (ISO-1). An identity that is no SPIFFE ID has one part, which is the
/// whole; so does the lack of an identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdentityPart {
    #[default]
    None,
    TrustDomain,
    /// The trust domain and this many segments of the path.
    Segments(usize),
    Full,
}

impl IdentityPart {
    /// The part of an identity, as a text that no other part has.
    pub fn of(self, identity: &Identity) -> Option<Box<str>> {
        let segments = match self {
            IdentityPart::None => return None,
            IdentityPart::TrustDomain => 0,
            IdentityPart::Segments(count) => count,
            IdentityPart::Full => usize::MAX,
        };
        let Identity::Spiffe(id) = identity else { return Some(identity.key().into()) };
        let mut text = format!("spiffe://{}", id.trust_domain());
        for segment in id.segments().take(segments) {
            text.push('/');
            text.push_str(segment);
        }
        Some(text.into())
    }
}

/// The depth to which a projection includes the locality; each level includes the levels before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LocalityDepth {
    Region,
    Zone,
    SubZone,
}

/// Paths of keys, from the outermost in, sorted, without duplicates.
pub type Paths = Vec<Vec<String>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataParts {
    /// Everything but the values under these paths. A new key in the metadata splits classes.
    AllBut(Paths),
    /// The values under these paths alone; empty: no metadata.
    Paths(Paths),
}

impl MetadataParts {
    pub const ALL: MetadataParts = MetadataParts::AllBut(Vec::new());

    /// Whether some value can split classes.
    pub fn keeps_any(&self) -> bool {
        !matches!(self, MetadataParts::Paths(paths) if paths.is_empty())
    }

    /// Whether all or part of the value under a path splits classes.
    pub fn covers(&self, path: &[String]) -> bool {
        match self {
            MetadataParts::AllBut(left_out) => !left_out.iter().any(|left_out| path.starts_with(left_out)),
            MetadataParts::Paths(kept) => {
                kept.iter().any(|kept| path.starts_with(kept) || kept.starts_with(path))
            }
        }
    }
}

impl Default for MetadataParts {
    fn default() -> Self {
        MetadataParts::Paths(Vec::new())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VersionPart {
    #[default]
    None,
    Major,
    Full,
}

impl Projection {
    /// RLY-11's default for old-style names and wildcards: everything but the id.
    pub fn whole_node_but_id() -> Self {
        Projection {
            id: IdPart::None,
            cluster: true,
            locality: Some(LocalityDepth::SubZone),
            metadata: MetadataParts::ALL,
            user_agent_name: true,
            user_agent_version: VersionPart::Full,
            identity: IdentityPart::None,
            address_family: None,
            facts: MetadataParts::default(),
        }
    }

    /// RLY-11's default for `xdstp:` names.
    pub fn features_only() -> Self {
        Projection::default()
    }
}

impl ClassRule {
    /// A rule for every node, every type and names of one style.
    pub fn for_names(names: NameStyle, projection: Projection) -> Self {
        ClassRule {
            id: RuleId { entry: 0, is_default: true },
            nodes: NodeMatch::default(),
            types: Vec::new(),
            names: Some(names),
            resources: Resources::default(),
            projection,
            share_secrets: ShareSecrets::No,
            identity_metadata: None,
            legacy_wildcard: true,
            resource_errors_alone: false,
            upstream_node: UpstreamNode::Projection,
        }
    }

    /// Whether the rule matches every subscription to names of this style. Later rules are then unreachable.
    pub fn catches_all(&self, style: NameStyle) -> bool {
        self.nodes == NodeMatch::default()
            && self.types.is_empty()
            && self.resources.is_empty()
            && self.names.is_none_or(|names| names == style)
    }
}

impl NodeClasses {
    /// The operator's rules, followed by RLY-11's defaults for all other subscriptions.
    pub fn new(mut rules: Vec<ClassRule>) -> Self {
        let entry = rules.last().map_or(0, |rule| rule.id.entry + 1);
        for style in [NameStyle::Xdstp, NameStyle::Old] {
            if !rules.iter().any(|rule| rule.catches_all(style)) {
                let rule = ClassRule::for_names(style, style.default_projection());
                rules.push(ClassRule { id: RuleId { entry, is_default: true }, ..rule });
            }
        }
        NodeClasses { rules, facts: Facts::default() }
    }

    /// The same rules with these facts.
    #[must_use]
    pub fn with_facts(mut self, table: Arc<FactTable>) -> NodeClasses {
        self.facts.table = table;
        self
    }

    /// Whether a client with this node has the same facts by both tables, as far as the rules, which are equal, keep facts.
    pub fn know_alike(&self, other: &NodeClasses, node: &Node) -> bool {
        if Arc::ptr_eq(&self.facts.table, &other.facts.table) {
            return true;
        }
        match (self.facts.of(node), other.facts.of(node)) {
            (None, None) => true,
            (Some(own), Some(others)) => {
                let mut parts = self.rules.iter().map(|rule| &rule.projection.facts);
                own == others || parts.all(|parts| parts.apply(own) == parts.apply(others))
            }
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Whether both have equal rules, and one key of the facts.
    pub fn has_rules_of(&self, other: &NodeClasses) -> bool {
        self.rules == other.rules && self.facts.key == other.facts.key
    }

    /// Whether some rule reads facts.
    pub fn read_facts(&self) -> bool {
        self.rules.iter().any(|rule| rule.projection.facts.keeps_any())
    }
}

impl NodeClasses {
    /// The metadata keys under which servers read verified identities. No client may set them (ISO-4).
    pub fn reserved_keys(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter_map(|rule| rule.identity_metadata.as_deref())
    }
}

impl Default for NodeClasses {
    fn default() -> Self {
        NodeClasses::new(Vec::new())
    }
}

impl NodeClasses {
    /// The first matching rule. `None` only for lists that [`NodeClasses::new`] did not complete.
    pub fn rule(&self, node: &Node, type_url: &TypeUrl, names: impl Into<NameKind>) -> Option<&ClassRule> {
        let names = names.into();
        self.rules.iter().find(|rule| rule.matches(node, type_url, names))
    }
}

impl ClassRule {
    pub fn matches(&self, node: &Node, type_url: &TypeUrl, names: impl Into<NameKind>) -> bool {
        self.is_for(names.into())
            && (self.types.is_empty() || self.types.contains(type_url))
            && self.nodes.matches(node)
    }

    /// The projection for this type and a client with this identity. The `id` and the whole identity split secrets,
    /// too, unless clients may share secrets (RLY-21, ISO-1). `has_facts`: the facts of the client are known, or nothing
    /// depends on facts. Otherwise the `id` splits, so that no client has the class of a neighbour.
    pub fn projection_of(&self, type_url: &TypeUrl, identity: &Identity, has_facts: bool) -> Projection {
        let mut projection = self.projection.clone();
        if !has_facts {
            projection.id = IdPart::Whole;
        }
        if self.share_secrets == ShareSecrets::Yes {
            return projection;
        }
        if type_url.is_secret() {
            projection.identity = IdentityPart::Full;
            if self.splits_secrets_by_id(identity) {
                projection.id = IdPart::Whole;
            }
        } else if projection.id == IdPart::Whole && self.identity_metadata.is_none() {
            // The class of the client's secrets, so that the server sees a single stream of the client (ADR 61).
            projection.identity = IdentityPart::Full;
        }
        projection
    }

    /// Whether the id must separate a client's secrets from those of others. Clients without a proved identity have
    /// only the id to tell them apart (ISO-2).
    fn splits_secrets_by_id(&self, identity: &Identity) -> bool {
        match self.share_secrets {
            ShareSecrets::No => true,
            ShareSecrets::Identity => *identity == Identity::Anonymous,
            ShareSecrets::Yes => false,
        }
    }

    /// The reason why nothing separates a client's secrets from the secrets of others (RLY-21, FD11).
    fn withholds_secrets(&self, node: &Node, identity: &Identity) -> Option<SecretsWithheld> {
        match identity {
            Identity::TrustDomain(name) if self.share_secrets == ShareSecrets::No => {
                Some(SecretsWithheld::SharedProof(name.clone()))
            }
            _ if node.id.is_empty() && self.splits_secrets_by_id(identity) => Some(SecretsWithheld::NoId),
            _ => None,
        }
    }
}

impl NodeMatch {
    pub fn matches(&self, node: &Node) -> bool {
        let holds = |wanted: &Option<TextMatch>, text: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.matches(text))
        };
        let none = Locality::default();
        let locality = node.locality.as_ref().unwrap_or(&none);
        holds(&self.id, &node.id)
            && holds(&self.cluster, &node.cluster)
            && holds(&self.user_agent_name, &node.user_agent_name)
            && holds(&self.region, &locality.region)
            && holds(&self.zone, &locality.zone)
            && holds(&self.sub_zone, &locality.sub_zone)
            && self
                .metadata
                .iter()
                .all(|wanted| node.metadata_at(&wanted.path).is_some_and(|value| wanted.value.matches(value)))
    }
}

impl TextMatch {
    fn matches(&self, text: &str) -> bool {
        match self {
            TextMatch::Exact(wanted) => text == wanted,
            TextMatch::Prefix(prefix) => text.starts_with(prefix),
            TextMatch::Suffix(suffix) => text.ends_with(suffix),
        }
    }
}

impl ValueMatch {
    fn matches(&self, value: &Value) -> bool {
        match (self, value) {
            (ValueMatch::Present, _) => true,
            (ValueMatch::Equal(wanted), value) => wanted == value,
            (ValueMatch::Text(wanted), Value::String(text)) => wanted.matches(text),
            (ValueMatch::Text(_), _) => false,
        }
    }
}

#[cfg(test)]
mod tests;
