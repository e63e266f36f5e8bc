//! Node classes: groups of clients that may share the answers of an upstream (RLY-10, RLY-11).
//!
//! The operator states the classes as an ordered list of rules. The first rule that matches a client's node,
//! a type and a kind of names decides which parts of the node split classes.

mod classify;
pub mod facts;
mod names;
mod node_key;
mod node_match;
mod projection;
mod upstream_node;

use std::fmt;
use std::sync::Arc;

use self::classify::RESOURCES;
use self::facts::{FactTable, Facts};
use self::node_match::Failure;
use sluice_identity::Identity;
use sluice_xds::{Node, ResourceName, TypeUrl};

pub use classify::{NodeClass, Unclassified, splitting_field};
pub use names::{NameKind, NameStyle, Resources, ResourcesId};
pub use node_key::NodeKey;
pub use node_match::{MetadataMatch, NodeMatch, TextMatch, ValueMatch};
pub use projection::{
    Attributes, IdPart, IdentityPart, LocalityDepth, MetadataParts, Paths, Projection, VersionPart,
};
pub use upstream_node::{NodeTemplate, TemplateInput, TemplateText, TemplateValue, UpstreamNode};

/// The complete rules of a relay: some rule matches every subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeClasses {
    /// In order; the first match decides.
    pub rules: Vec<ClassRule>,
    pub facts: Facts,
}

/// The place of a rule in `node_classes`, as operators count: from 0, with the built-in rules behind the last
/// entry (ADM-9). An entry may be several rules.
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

/// The choice of a rule for one node, type and kind of names.
#[derive(Clone, Debug)]
pub struct RuleChoice<'a> {
    pub rule: &'a ClassRule,
    /// The earlier entry with the fewest conditions that fail; of several such entries, the last.
    pub nearest: Option<NearMiss>,
    /// The entries after the rule.
    pub not_reached: Vec<RuleId>,
}

/// A condition of a rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    pub id: RuleId,
    /// The first of the conditions that fail.
    pub field: String,
    pub condition: String,
    /// `None` for metadata, whose values may be confidential, and for the names that a rule lists.
    pub value: Option<String>,
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

    pub fn matches(&self, node: &Node, type_url: &TypeUrl, names: impl Into<NameKind>) -> bool {
        self.is_for(names.into())
            && (self.types.is_empty() || self.types.contains(type_url))
            && self.nodes.matches(node)
    }

    /// The projection for this type and a client with this identity. The `id` and the whole identity split
    /// secrets, too, unless clients may share secrets (RLY-21, ISO-1). `has_facts`: the facts of the client
    /// are known, or nothing depends on facts. Otherwise the `id` splits, so that no client has the class of
    /// a neighbour.
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
            // The class of the client's secrets, so that the server sees a single stream of the client (ADR
            // 61).
            projection.identity = IdentityPart::Full;
        }
        projection
    }

    /// Whether the id must separate a client's secrets from those of others. Clients without a proved
    /// identity have only the id to tell them apart (ISO-2).
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

    /// Whether the rule is for names of this kind.
    pub(super) fn is_for(&self, names: NameKind) -> bool {
        self.names.is_none_or(|style| style == names.style)
            && (self.resources.is_empty() || names.listed == Some(self.resources.id()))
    }

    /// The conditions that do not hold.
    fn failures(&self, node: &Node, type_url: &TypeUrl, names: NameKind) -> Vec<Failure> {
        let (mut failures, style) = (Vec::new(), names.style);
        if let Some(names) = self.names.filter(|names| *names != style) {
            failures.push(Failure::new("names", names.word().to_owned(), Some(style.word())));
        }
        if !self.resources.is_empty() && names.listed != Some(self.resources.id()) {
            failures.push(Failure::new("resources", self.resources.describe(), None));
        }
        if !self.types.is_empty() && !self.types.contains(type_url) {
            let types: Vec<_> = self.types.iter().map(TypeUrl::short).collect();
            failures.push(Failure::new("types", types.join(","), Some(type_url.short())));
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
        parts.extend(self.nodes.describe());
        if parts.is_empty() { "all".to_owned() } else { parts.join(" ") }
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

    /// Whether both tables give a client with this node the same facts, as far as the rules keep facts. Both
    /// have equal rules.
    pub fn know_alike(&self, other: &NodeClasses, node: &Node) -> bool {
        if Arc::ptr_eq(&self.facts.table, &other.facts.table) {
            return true;
        }
        match (self.facts.of(node), other.facts.of(node)) {
            (None, None) => true,
            (Some(fields), Some(other_fields)) => {
                let mut parts = self.rules.iter().map(|rule| &rule.projection.facts);
                fields == other_fields || parts.all(|parts| parts.apply(fields) == parts.apply(other_fields))
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

    /// The metadata keys under which servers read verified identities. No client may set them (ISO-4).
    pub fn reserved_keys(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter_map(|rule| rule.identity_metadata.as_deref())
    }

    /// The first matching rule. `None` only for lists that [`NodeClasses::new`] did not complete.
    pub fn rule(&self, node: &Node, type_url: &TypeUrl, names: impl Into<NameKind>) -> Option<&ClassRule> {
        let names = names.into();
        self.rules.iter().find(|rule| rule.matches(node, type_url, names))
    }

    /// The class of a client for names of one kind of one type.
    pub fn classify(
        &self,
        node: Option<&Node>,
        identity: &Identity,
        type_url: &TypeUrl,
        names: impl Into<NameKind>,
    ) -> Result<NodeClass, Unclassified> {
        let anonymous = Node::default();
        let stated = node.unwrap_or(&anonymous);
        // The last rules match everything, so there always is a rule.
        let rule = self.rule(stated, type_url, names).ok_or(Unclassified::NoNode)?;
        let facts = rule.projection.facts.keeps_any().then(|| self.facts.of(stated));
        let projection = rule.projection_of(type_url, identity, facts != Some(None));
        let rules_read_it = self.rules.iter().any(|rule| rule.nodes != NodeMatch::default());
        let of_node = Projection { identity: IdentityPart::None, ..projection.clone() };
        let needs_node = rules_read_it || of_node != Projection::features_only();
        if node.is_none() && needs_node {
            return Err(Unclassified::NoNode);
        }
        if facts == Some(None) && stated.id.is_empty() {
            return Err(Unclassified::NoFacts);
        }
        let mut attributes = projection.attributes(stated, identity, facts.flatten().map(|fields| &**fields));
        if !rule.resources.is_empty() {
            attributes.insert(RESOURCES.into(), rule.resources.describe().into());
        }
        Ok(NodeClass {
            node: projection.apply(stated),
            attributes,
            legacy_wildcard: rule.legacy_wildcard,
            upstream_node: rule.upstream_node.clone(),
            identity: projection.identity.of(identity),
            identity_metadata: rule.identity_metadata.clone(),
            split_from: None,
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

    /// Whether some rule lists names.
    pub fn list_names(&self) -> bool {
        self.rules.iter().any(|rule| !rule.resources.is_empty())
    }

    /// The list with an old-style name, if the first rule for the client and the name has a list.
    pub fn listing(
        &self,
        node: Option<&Node>,
        type_url: &TypeUrl,
        name: &ResourceName,
    ) -> Option<ResourcesId> {
        if !self.list_names() {
            return None;
        }
        let anonymous = Node::default();
        let (node, name) = (node.unwrap_or(&anonymous), name.plain());
        let has = |rule: &&ClassRule| {
            let listed = (!rule.resources.is_empty()).then_some(rule.resources.id());
            (listed.is_none() || rule.resources.has(name))
                && rule.matches(node, type_url, NameKind { style: NameStyle::Old, listed })
        };
        self.rules.iter().find(has).filter(|rule| !rule.resources.is_empty()).map(|rule| rule.resources.id())
    }

    /// The kinds of names of a type for a client: both styles, and the lists of rules.
    pub fn kinds(&self, node: &Node, type_url: &TypeUrl) -> Vec<NameKind> {
        let mut kinds: Vec<NameKind> = [NameStyle::Old, NameStyle::Xdstp].map(NameKind::from).into();
        for listed in
            self.rules.iter().filter(|rule| !rule.resources.is_empty()).map(|rule| rule.resources.id())
        {
            let kind = NameKind { style: NameStyle::Old, listed: Some(listed) };
            let rule = self.rule(node, type_url, kind);
            if rule.is_some_and(|rule| !rule.resources.is_empty()) && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

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
            let Failure { field, condition, value } = failures.into_iter().next()?;
            Some(NearMiss { id, field, condition, value })
        });
        let mut not_reached: Vec<_> =
            behind.iter().map(|later| later.id).filter(|later| *later != rule.id).collect();
        not_reached.dedup();
        Some(RuleChoice { rule, nearest, not_reached })
    }
}

impl Default for NodeClasses {
    fn default() -> Self {
        NodeClasses::new(Vec::new())
    }
}

#[cfg(test)]
mod tests;
