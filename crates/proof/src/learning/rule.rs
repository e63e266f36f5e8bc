//! A rule of `node_classes` for some fields.

use std::collections::{BTreeMap, BTreeSet};

use super::field::{AddressField, Derived, Field};
use super::fleet::Fleet;
use super::partition::Partition;
use sluice_engine::class::{IdPart, LocalityDepth, MetadataParts, Projection, VersionPart};
use sluice_identity::Identity;
use sluice_xds::TypeUrl;

/// A rule for some types, or for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedRule {
    /// Empty: every type without a rule before.
    pub types: Vec<TypeUrl>,
    pub projection: Projection,
}

impl ProposedRule {
    /// A rule with the given fields. Metadata splits by everything but the hidden fields, so that a new
    /// key makes too many classes, and not too few (LRN-8). `needed`: the fields of the minimum, which no
    /// rule may lack.
    pub(super) fn new(
        types: Vec<TypeUrl>,
        fleet: &Fleet,
        split: &BTreeSet<Field>,
        needed: &BTreeSet<Field>,
    ) -> ProposedRule {
        let has = |field: &Field| split.contains(field);
        let projection = Projection {
            id: id_parts(split),
            cluster: has(&Field::Cluster),
            locality: locality(split, needed),
            metadata: metadata(fleet, split),
            user_agent_name: has(&Field::UserAgentName),
            user_agent_version: match has(&Field::UserAgentVersion) {
                true => VersionPart::Full,
                false => VersionPart::None,
            },
            address_family: split.iter().find_map(|field| match field {
                Field::Derived(Derived::Family(base)) => Some(base.key()),
                _ => None,
            }),
            ..Projection::default()
        };
        ProposedRule { types, projection }
    }

    /// A rule with a class for each client (LRN-4).
    pub(super) fn of_each_client(types: Vec<TypeUrl>) -> ProposedRule {
        ProposedRule {
            types,
            projection: Projection { id: IdPart::Whole, ..Projection::whole_node_but_id() },
        }
    }

    /// The class of each node under the rule.
    pub fn classes(&self, fleet: &Fleet) -> Partition {
        Partition::by(fleet.nodes.iter().map(|node| {
            let attributes = self.projection.attributes(node, &Identity::Anonymous, None);
            (self.projection.apply(node), attributes)
        }))
    }

    /// Whether every client has a class alone.
    pub fn is_personal(&self) -> bool {
        self.projection.id == IdPart::Whole
    }
}

/// Whether a single rule has words for both: a rule cuts the id at a single separator, and looks at the
/// family of a single field.
pub(super) fn go_together(one: &Field, other: &Field) -> bool {
    match (one, other) {
        (
            Field::Derived(Derived::IdPart { separator, .. }),
            Field::Derived(Derived::IdPart { separator: others, .. }),
        ) => separator == others,
        (Field::Derived(Derived::Family(base)), Field::Derived(Derived::Family(other))) => base == other,
        _ => true,
    }
}

fn id_parts(split: &BTreeSet<Field>) -> IdPart {
    let mut cut: BTreeMap<char, Vec<usize>> = BTreeMap::new();
    for field in split {
        if let Field::Derived(Derived::IdPart { separator, place }) = field {
            cut.entry(*separator).or_default().push(*place);
        }
    }
    match cut.into_iter().next() {
        Some((separator, places)) => IdPart::At { separator: separator.to_string().into(), places },
        None => IdPart::None,
    }
}

/// A level includes all broader levels. So a level that only follows from the answers is left out where a
/// broader level would make more classes.
fn locality(split: &BTreeSet<Field>, needed: &BTreeSet<Field>) -> Option<LocalityDepth> {
    let levels = [
        (Field::Region, LocalityDepth::Region),
        (Field::Zone, LocalityDepth::Zone),
        (Field::SubZone, LocalityDepth::SubZone),
    ];
    let is_needed = |(field, _): &(Field, LocalityDepth)| needed.contains(field);
    let free = levels.iter().take_while(|(field, _)| split.contains(field)).last();
    levels.iter().filter(|level| is_needed(level)).chain(free).map(|(_, depth)| *depth).max()
}

fn metadata(fleet: &Fleet, split: &BTreeSet<Field>) -> MetadataParts {
    let path = |field: &Field| match field {
        Field::Metadata(path) => Some(path.clone()),
        _ => None,
    };
    let kept: Vec<Vec<String>> = split.iter().filter_map(path).collect();
    let hidden = fleet.columns.iter().filter(|column| !split.contains(&column.field));
    let mut hidden: Vec<Vec<String>> = hidden.filter_map(|column| path(&column.field)).collect();
    if hidden.iter().any(Vec::is_empty) {
        return MetadataParts::default();
    }
    // A path leaves everything below out, too.
    hidden.retain(|hidden| !kept.iter().any(|kept| kept.starts_with(hidden)));
    hidden.sort();
    MetadataParts::AllBut(hidden)
}

impl AddressField {
    /// The key of the configuration, as YAML on a line.
    pub(super) fn yaml(&self, quote: &dyn Fn(&str) -> String) -> String {
        match self {
            AddressField::Id => "id".to_owned(),
            AddressField::IdPart { separator, place } => {
                format!("{{ id: {{ separator: {}, part: {place} }} }}", quote(&separator.to_string()))
            }
            AddressField::Metadata(path) => {
                let keys: Vec<String> = path.iter().map(|key| quote(key)).collect();
                format!("{{ metadata: [{}] }}", keys.join(", "))
            }
        }
    }
}
