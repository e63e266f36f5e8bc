//! Projections: the parts of a node, of an identity and of facts that split classes.

use std::collections::BTreeMap;

use super::facts::Fields;
use super::node_key::NodeKey;
use sluice_identity::Identity;
use sluice_xds::{Locality, Node, UserAgentVersion, Value};

/// Values by name.
pub type Attributes = BTreeMap<Box<str>, Box<str>>;

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
    /// The texts at these places, from 0, between the separators. Some control planes write several things
    /// into the id.
    At {
        separator: Box<str>,
        places: Vec<usize>,
    },
    Whole,
}

/// The part of an identity that splits classes (ISO-1). An identity that is no SPIFFE ID has one part, which
/// is the whole; so does the lack of an identity.
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

    /// The node, reduced to the parts that split classes. Features and dynamic parameters always stay
    /// (RLY-10, RLY-12).
    pub fn apply(&self, node: &Node) -> Node {
        let keep = |is_kept: bool, text: &str| if is_kept { text.to_owned() } else { String::new() };
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

    /// The values that split classes without a field in [`Projection::apply`]. `fields`: the facts of the
    /// client.
    pub fn attributes(&self, node: &Node, identity: &Identity, fields: Option<&Fields>) -> Attributes {
        let id = self.id.parts_of(&node.id).map(|parts| (Box::from("id.parts"), parts.into()));
        let family = self
            .address_family
            .as_ref()
            .map(|key| ("address_family".into(), key.address_family(node).into()));
        let of_facts =
            || fields.map_or_else(|| unknown_facts(identity), |fields| facts_attributes(&self.facts, fields));
        let facts = self.facts.keeps_any().then(of_facts);
        id.into_iter().chain(family).chain(facts.into_iter().flatten()).collect()
    }

    /// The parts of a node and of the client's facts that split classes, with their values. Metadata values
    /// may be confidential, so only their paths are shown.
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

impl IdPart {
    /// The texts at the kept places. The separators stay.
    fn parts_of(&self, id: &str) -> Option<String> {
        let IdPart::At { separator, places } = self else { return None };
        let keep = |(place, text)| if places.contains(&place) { text } else { "" };
        let kept: Vec<&str> = id.split(&**separator).enumerate().map(keep).collect();
        Some(kept.join(separator))
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

/// The name of the attribute of a class whose client has no facts.
const UNKNOWN: &str = "facts";

/// The facts that split classes, as attributes: one for each field.
fn facts_attributes(parts: &MetadataParts, fields: &Fields) -> Attributes {
    let kept = parts.apply(fields).into_iter();
    kept.map(|(name, value)| (format!("facts.{name}").into(), value.to_string().into())).collect()
}

/// The attributes of a client without facts, beside the id: no rule may join two identities with one id.
fn unknown_facts(identity: &Identity) -> Attributes {
    let identity = (*identity != Identity::Anonymous).then(|| IdentityPart::Full.of(identity)).flatten();
    let identity = identity.map(|identity| ("facts of".into(), identity));
    [(UNKNOWN.into(), "unknown".into())].into_iter().chain(identity).collect()
}

/// Whether a class is of a client without facts.
pub(super) fn lack_facts(attributes: &Attributes) -> bool {
    attributes.contains_key(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    /// A text and a number with the same digits are different values.
    #[test]
    fn rly_11_values_split_by_kind_and_by_path() {
        let fields =
            |value: Value| BTreeMap::from([("labels".to_owned(), value), ("zone".to_owned(), text("z"))]);
        let shown = |parts: &MetadataParts, fields: &Fields| {
            let shown = facts_attributes(parts, fields).into_iter();
            shown.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let labels = Value::Struct([("app".to_owned(), text("web")), ("v".to_owned(), text("1"))].into());
        let only =
            |path: &[&str]| MetadataParts::Paths(vec![path.iter().map(|key| (*key).to_owned()).collect()]);
        assert_eq!(shown(&only(&["zone"]), &fields(Value::Null)), r#"facts.zone="z""#);
        assert_eq!(
            shown(&only(&["labels", "app"]), &fields(labels.clone())),
            r#"facts.labels={"app": "web"}"#
        );
        let all = r#"facts.labels={"app": "web", "v": "1"} facts.zone="z""#;
        assert_eq!(shown(&MetadataParts::ALL, &fields(labels)), all);
        assert_ne!(
            shown(&only(&["labels"]), &fields(text("1"))),
            shown(&only(&["labels"]), &fields(Value::Number(1_f64.to_bits())))
        );
        assert_eq!(shown(&only(&["none"]), &fields(Value::Null)), "");
        assert!(lack_facts(&unknown_facts(&Identity::Anonymous)));
        assert!(!lack_facts(&facts_attributes(&MetadataParts::ALL, &fields(Value::Null))));
    }
}
