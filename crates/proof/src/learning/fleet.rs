//! A fleet: nodes as rows, fields as columns (LRN-3, LRN-4).

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::field::{AddressField, Derived, Field, NETWORKS, SEPARATORS};
use super::leaves::leaves;
use super::partition::Partition;
use sluice_xds::Node;

/// From this number of nodes on, a field with a value for every second node is unique (LRN-4).
const UNIQUE_NODES_MIN: usize = 20;

/// The first parts of an id, for each separator.
const ID_PARTS_MAX: usize = 8;

/// Keys of the metadata with the name of a client, in capitals (LRN-4).
const UNIQUE_KEYS: [&str; 8] =
    ["NAME", "POD_NAME", "POD_IP", "POD_UID", "INSTANCE_IP", "INSTANCE_IPS", "HOSTNAME", "UID"];

/// The values of a field.
#[derive(Clone, Debug)]
pub struct Column {
    pub field: Field,
    /// The number of the value, for each node.
    pub cells: Vec<u32>,
    /// The values by number; `None`: the node lacks the field.
    pub values: Vec<Option<String>>,
    /// The field tells nearly every node from every other (LRN-4).
    pub is_unique: bool,
}

impl Column {
    fn new(field: Field, nodes: &[Arc<Node>]) -> Column {
        let (mut numbers, mut values) = (BTreeMap::new(), Vec::new());
        let mut cells = Vec::with_capacity(nodes.len());
        for node in nodes {
            let value = field.value(node);
            let number = *numbers.entry(value).or_insert_with_key(|value| {
                values.push(value.clone());
                u32::try_from(values.len() - 1).unwrap_or(u32::MAX)
            });
            cells.push(number);
        }
        let absent = values.iter().position(Option::is_none).and_then(|absent| u32::try_from(absent).ok());
        let stated = cells.iter().filter(|cell| Some(**cell) != absent).count();
        let distinct = values.iter().flatten().count();
        let is_unique = is_well_known(&field) || stated >= UNIQUE_NODES_MIN && distinct * 2 >= stated;
        Column { field, cells, values, is_unique }
    }

    /// Whether the field names a single client, whatever the values.
    pub fn is_well_known(&self) -> bool {
        is_well_known(&self.field)
    }

    /// Whether the field has a single value in the whole fleet.
    pub fn is_constant(&self) -> bool {
        self.values.len() < 2
    }

    /// The value of a node.
    pub fn value(&self, node: usize) -> Option<&str> {
        let number = usize::try_from(*self.cells.get(node)?).ok()?;
        self.values.get(number)?.as_deref()
    }
}

pub(super) fn is_well_known(field: &Field) -> bool {
    match field {
        Field::Id => true,
        Field::Metadata(path) => match path.as_slice() {
            [key] => UNIQUE_KEYS.contains(&key.to_uppercase().as_str()),
            _ => false,
        },
        _ => false,
    }
}

/// Nodes and fields.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub nodes: Vec<Arc<Node>>,
    /// Sorted by field. No derived fields.
    pub columns: Vec<Column>,
}

impl Fleet {
    pub fn new(nodes: Vec<Arc<Node>>) -> Fleet {
        let leaves = leaves(nodes.iter().map(|node| &**node)).into_iter().map(Field::Metadata);
        let fields: BTreeSet<Field> = Field::PLAIN.into_iter().chain(leaves).collect();
        let columns = fields.into_iter().map(|field| Column::new(field, &nodes)).collect();
        Fleet { nodes, columns }
    }

    /// The plain fields without the unique fields.
    pub fn plain(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| !column.is_unique)
    }

    /// The differing fields of two nodes, without unique fields (LRN-7).
    pub fn differences(&self, nodes: (usize, usize)) -> BTreeSet<Field> {
        let differs = |column: &&Column| column.value(nodes.0) != column.value(nodes.1);
        self.plain().filter(differs).map(|column| column.field.clone()).collect()
    }

    /// The number of each node's fingerprint: nodes with equal fields, apart from unique fields (LRN-4).
    pub fn fingerprints(&self) -> Partition {
        self.plain().fold(Partition::whole(self.nodes.len()), |part, column| part.refine(&column.cells))
    }

    /// The derived fields with several values, first the fields with a word for rules (LRN-3, LRN-9). A
    /// unique derived field explains nothing.
    pub fn derived(&self) -> Vec<Column> {
        let nodes: Vec<&Node> = self.nodes.iter().map(|node| &**node).collect();
        let paths = self.columns.iter().filter_map(|column| match &column.field {
            Field::Metadata(path) => Some(path),
            _ => None,
        });
        let mut columns: Vec<Column> = derived_fields(&nodes, paths)
            .into_iter()
            .map(|derived| Column::new(Field::Derived(derived), &self.nodes))
            .filter(|column| !column.is_constant() && !column.is_unique)
            .collect();
        // Equals stay in the order of the separators.
        columns.sort_by_key(|column| (!column.field.has_word(), column.values.len()));
        columns
    }
}

/// The parts of fields in some nodes.
pub(super) fn derived_fields<'a>(
    nodes: &[&Node],
    paths: impl Iterator<Item = &'a Vec<String>>,
) -> Vec<Derived> {
    let (mut bases, mut derived) = (vec![AddressField::Id], vec![Derived::IdStem]);
    for separator in SEPARATORS {
        let parts = nodes.iter().map(|node| node.id.matches(separator).count()).max();
        let parts = parts.filter(|parts| *parts > 0).map_or(0, |parts| (parts + 1).min(ID_PARTS_MAX));
        for place in 0..parts {
            derived.push(Derived::IdPart { separator, place });
            bases.push(AddressField::IdPart { separator, place });
        }
    }
    bases.extend(paths.filter(|path| !path.is_empty()).cloned().map(AddressField::Metadata));
    for base in bases.into_iter().filter(|base| have_addresses(nodes, base)) {
        derived.push(Derived::Family(base.clone()));
        derived.extend(NETWORKS.map(|(v4, v6)| Derived::Network { base: base.clone(), v4, v6 }));
    }
    derived
}

/// Whether a field has addresses in some node, and nothing else in any.
fn have_addresses(nodes: &[&Node], base: &AddressField) -> bool {
    let key = base.key();
    let is_address = |text: &&str| text.split('%').next().is_some_and(|text| text.parse::<IpAddr>().is_ok());
    let mut has_any = false;
    nodes.iter().all(|node| {
        let texts = key.texts(node);
        has_any |= !texts.is_empty();
        texts.iter().all(is_address)
    }) && has_any
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_xds::Value;

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    fn map(fields: impl IntoIterator<Item = (String, Value)>) -> Value {
        Value::Struct(fields.into_iter().collect())
    }

    fn fleet(nodes: impl IntoIterator<Item = Node>) -> Fleet {
        Fleet::new(nodes.into_iter().map(Arc::new).collect())
    }

    fn paths(fleet: &Fleet) -> Vec<String> {
        let columns = fleet.columns.iter().map(|column| column.field.to_string());
        columns.filter(|path| path.starts_with("metadata")).collect()
    }

    #[test]
    fn lrn_3_the_leaves_of_the_metadata_are_fields_and_lists_are_one_value() {
        let metadata = [
            ("LABELS".to_owned(), map([("app".to_owned(), text("web")), ("a.b/c".to_owned(), Value::Null)])),
            ("LIST".to_owned(), Value::List(vec![map([("x".to_owned(), Value::Null)])])),
            ("EMPTY".to_owned(), map([])),
        ];
        let one = Node { metadata: metadata.into(), ..Node::default() };
        let expected = ["metadata.EMPTY", "metadata.LABELS.a.b/c", "metadata.LABELS.app", "metadata.LIST"];
        assert_eq!(paths(&fleet([one])), expected);
        let deep = (0..9).fold(Value::Bool(true), |inner, _| map([("k".to_owned(), inner)]));
        let deep = Node { metadata: [("D".to_owned(), deep)].into(), ..Node::default() };
        assert_eq!(paths(&fleet([deep])), ["metadata.D.k.k.k.k.k"]);
    }

    #[test]
    fn lrn_3_of_too_many_leaves_the_deepest_fold() {
        let many = |count: usize| map((0..count).map(|number| (format!("k{number}"), Value::Null)));
        let metadata =
            [("DEEP".to_owned(), map([("in".to_owned(), many(3))])), ("WIDE".to_owned(), many(254))];
        let one = Node { metadata: metadata.into(), ..Node::default() };
        let folded = paths(&fleet([one]));
        assert_eq!((folded.len(), folded[0].as_str()), (255, "metadata.DEEP.in"));
        // A key for each node folds also where no node has many.
        let each = (0..999).map(|number| Node {
            metadata: [("LABELS".to_owned(), map([(format!("k{number}"), text("v"))]))].into(),
            ..Node::default()
        });
        assert_eq!(paths(&fleet(each)), ["metadata.LABELS"]);
        let flat = Node {
            metadata: (0..300).map(|number| (format!("k{number}"), Value::Null)).collect(),
            ..Node::default()
        };
        assert_eq!(paths(&fleet([flat])), ["metadata"]);
    }

    #[test]
    fn lrn_4_a_field_with_a_value_for_every_second_node_is_unique() {
        let node = |number: usize, values: usize| Node {
            id: format!("n{number}"),
            metadata: [
                ("HOST".to_owned(), text(&format!("h{}", number % values))),
                ("name".to_owned(), text("constant")),
            ]
            .into(),
            ..Node::default()
        };
        let unique = |count: usize, values: usize| -> Vec<String> {
            let fleet = fleet((0..count).map(|number| node(number, values)));
            let unique = fleet.columns.iter().filter(|column| column.is_unique);
            unique.map(|column| column.field.to_string()).collect()
        };
        assert_eq!(unique(20, 10), ["id", "metadata.HOST", "metadata.name"]);
        assert_eq!(unique(20, 9), ["id", "metadata.name"]);
        assert_eq!(unique(19, 19), ["id", "metadata.name"]);
    }

    #[test]
    fn lrn_4_replicas_have_one_fingerprint() {
        let nodes = (0..40).map(|number| Node {
            id: format!("web-{number}"),
            cluster: if number % 2 == 0 { "web".into() } else { "api".into() },
            metadata: [("POD_IP".to_owned(), text(&format!("10.0.0.{number}")))].into(),
            ..Node::default()
        });
        assert_eq!(fleet(nodes).fingerprints().count(), 2);
    }

    #[test]
    fn lrn_3_derived_fields_come_in_the_order_of_preference() {
        let nodes = (0..40).map(|number| Node {
            id: format!("{}~10.0.{}.{number}~pod-{number}", ["router", "sidecar"][number % 2], number % 3),
            ..Node::default()
        });
        let fleet = fleet(nodes);
        let names: Vec<String> = fleet.derived().iter().map(|column| column.field.to_string()).collect();
        assert_eq!(names.first().map(String::as_str), Some("part 0 of id at '~'"));
        assert!(names.contains(&"network /24 (/64) of part 1 of id at '~'".to_owned()), "{names:?}");
        assert!(!names.iter().any(|name| name.starts_with("part 1 of id at '~'")), "unique: {names:?}");
    }
}
