//! `match` of a rule: conditions on a request, as alternatives of conditions on single fields.

use super::super::reader::Item;
use super::super::tree::Tree;
use super::super::units::boolean;
use super::{either, one_of};

/// A field of the node that a rule looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodeField {
    Id,
    Cluster,
    Region,
    Zone,
    SubZone,
    Metadata(Vec<String>),
}

/// A value that a field must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpectedValue {
    Text(String),
    Bool(bool),
}

#[derive(Clone, Debug)]
pub(super) enum Predicate {
    Any,
    /// No request has an empty exact text.
    Never,
    Types(Vec<String>),
    /// `None`: a condition that sluice has no word for.
    Field(NodeField, Option<ExpectedValue>),
    All(Vec<Predicate>),
    AnyOf(Vec<Predicate>),
    Not(Box<Predicate>),
}

/// Conditions that hold together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Together {
    pub conditions: Vec<(NodeField, Option<ExpectedValue>)>,
    /// Otherwise, whether the conditions hold depends on the fields in a way that sluice has no words for.
    pub is_exact: bool,
}

/// More alternatives than a person writes; they are treated as one without words.
const ALTERNATIVES_MAX: usize = 16;

/// The deepest nesting of `and`, `or` and `not`; people need two.
const DEPTH_MAX: usize = 16;

impl Predicate {
    /// The alternatives for requests of a type: none if the predicate never holds, an empty one if it always
    /// holds.
    pub(super) fn for_type(&self, type_url: &str) -> Vec<Together> {
        let always = || vec![Together { conditions: Vec::new(), is_exact: true }];
        match self {
            Predicate::Any => always(),
            Predicate::Never => Vec::new(),
            Predicate::Types(types) if types.iter().any(|other| other == type_url) => always(),
            Predicate::Types(_) => Vec::new(),
            Predicate::Field(field, value) => {
                vec![Together { conditions: vec![(field.clone(), value.clone())], is_exact: value.is_some() }]
            }
            Predicate::All(all) => {
                let mut alternatives = always();
                for next in all.iter().map(|predicate| predicate.for_type(type_url)) {
                    let joined = alternatives.iter().flat_map(|a| next.iter().map(|b| a.and(b)));
                    alternatives = bounded(joined.collect());
                }
                alternatives
            }
            Predicate::AnyOf(all) => {
                bounded(all.iter().flat_map(|predicate| predicate.for_type(type_url)).collect())
            }
            Predicate::Not(predicate) => {
                let inner = predicate.for_type(type_url);
                if inner.is_empty() {
                    return always();
                }
                if inner.iter().any(|together| together.conditions.is_empty() && together.is_exact) {
                    return Vec::new();
                }
                vec![without_words(inner)]
            }
        }
    }
}

impl Together {
    fn and(&self, other: &Together) -> Together {
        let conditions = self.conditions.iter().chain(&other.conditions).cloned().collect();
        Together { conditions, is_exact: self.is_exact && other.is_exact }
    }
}

fn bounded(alternatives: Vec<Together>) -> Vec<Together> {
    let is_always = |together: &Together| together.conditions.is_empty() && together.is_exact;
    if let Some(always) = alternatives.iter().find(|together| is_always(together)) {
        return vec![always.clone()];
    }
    if alternatives.len() <= ALTERNATIVES_MAX { alternatives } else { vec![without_words(alternatives)] }
}

fn without_words(alternatives: Vec<Together>) -> Together {
    let mut conditions: Vec<(NodeField, Option<ExpectedValue>)> = Vec::new();
    for (field, _) in alternatives.into_iter().flat_map(|together| together.conditions) {
        if !conditions.iter().any(|(other, _)| *other == field) {
            conditions.push((field, None));
        }
    }
    Together { conditions, is_exact: false }
}

const KINDS: &[(&str, &str)] = &[
    ("and_match", "andMatch"),
    ("or_match", "orMatch"),
    ("not_match", "notMatch"),
    ("any_match", "anyMatch"),
    ("request_type_match", "requestTypeMatch"),
    ("request_node_match", "requestNodeMatch"),
];

pub(super) fn read(item: &Item<'_>, depth: usize) -> Option<Predicate> {
    if depth > DEPTH_MAX {
        item.invalid(format!("at most {DEPTH_MAX} levels of and_match, or_match and not_match"));
        return None;
    }
    let (kind, value) = item.map(|map| one_of(map, KINDS))??;
    match kind {
        "and_match" => read_set(&value, depth).map(Predicate::All),
        "or_match" => read_set(&value, depth).map(Predicate::AnyOf),
        "not_match" => read(&value, depth + 1).map(|inner| Predicate::Not(Box::new(inner))),
        "any_match" => {
            value.parse(boolean()).map(|is_any| if is_any { Predicate::Any } else { Predicate::Never })
        }
        "request_type_match" => {
            let types = value.map(|map| map.required("types", "a list of type URLs")?.list())??;
            Some(Predicate::Types(types.iter().filter_map(|item| item.text().map(str::to_owned)).collect()))
        }
        _ => read_node_match(&value),
    }
}

fn read_set(item: &Item<'_>, depth: usize) -> Option<Vec<Predicate>> {
    let items = item.map(|map| map.required("rules", "a list of predicates")?.list())??;
    items.iter().map(|item| read(item, depth + 1)).collect()
}

const NODE_KINDS: &[(&str, &str)] = &[
    ("id_match", "idMatch"),
    ("cluster_match", "clusterMatch"),
    ("locality_match", "localityMatch"),
    ("node_metadata_match", "nodeMetadataMatch"),
];

fn read_node_match(item: &Item<'_>) -> Option<Predicate> {
    let (kind, value) = item.map(|map| one_of(map, NODE_KINDS))??;
    match kind {
        "id_match" => read_text(&value, NodeField::Id),
        "cluster_match" => read_text(&value, NodeField::Cluster),
        "locality_match" => value.map(|map| {
            let parts = [
                (map.item("region"), NodeField::Region),
                (map.item("zone"), NodeField::Zone),
                (either(map, "sub_zone", "subZone"), NodeField::SubZone),
            ];
            let read = parts.into_iter().filter_map(|(item, field)| Some(read_text(&item?, field)));
            read.collect::<Option<Vec<_>>>().map(Predicate::All)
        })?,
        _ => value.map(|map| {
            let path = read_path(&map.required("path", "a list of keys")?)?;
            let pattern = map.required("match", "string_match or bool_match")?;
            let kinds = [("string_match", "stringMatch"), ("bool_match", "boolMatch")];
            let (kind, value) = pattern.map(|map| one_of(map, &kinds))??;
            if kind == "string_match" {
                return read_text(&value, NodeField::Metadata(path));
            }
            let expected = value.map(|map| either(map, "value_match", "valueMatch"))?;
            let expected = match expected {
                Some(item) => item.parse(boolean())?,
                None => false,
            };
            Some(Predicate::Field(NodeField::Metadata(path), Some(ExpectedValue::Bool(expected))))
        })?,
    }
}

pub(super) fn read_path(item: &Item<'_>) -> Option<Vec<String>> {
    let key =
        |item: &Item<'_>| item.map(|map| map.required("key", "a key")?.text().map(str::to_owned)).flatten();
    let keys: Option<Vec<_>> = item.list()?.iter().map(key).collect();
    if keys.as_ref().is_some_and(Vec::is_empty) {
        item.invalid("at least one key");
    }
    keys
}

fn read_text(item: &Item<'_>, field: NodeField) -> Option<Predicate> {
    let kinds = [("exact_match", "exactMatch"), ("regex_match", "regexMatch")];
    let (kind, value) = item.map(|map| one_of(map, &kinds))??;
    let Tree::Text(text) = value.tree else {
        value.invalid("text");
        return None;
    };
    if kind == "exact_match" {
        let is_empty = text.is_empty();
        return Some(if is_empty { Predicate::Never } else { exact(field, text) });
    }
    if let Some(text) = literal(text) {
        return Some(exact(field, text));
    }
    value.warn("sluice has no regular expressions; the field splits classes instead, so less is shared");
    Some(Predicate::Field(field, None))
}

fn exact(field: NodeField, text: &str) -> Predicate {
    Predicate::Field(field, Some(ExpectedValue::Text(text.to_owned())))
}

/// The text of an expression that matches only this text.
fn literal(regex: &str) -> Option<&str> {
    let text = regex.strip_prefix('^')?.strip_suffix('$')?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_/:@ ".contains(&b);
    (!text.is_empty() && text.bytes().all(is_plain)).then_some(text)
}
