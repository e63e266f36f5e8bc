//! The members of a class by the fields of nodes: fingerprints, and the values of members
//! (LRN-3, LRN-4, PRF-21, PRF-22).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::comparison::is_same_subscription;
use super::input::{Member, MemberId, Wanted};
use crate::explanation::{value_at, values_at};
use crate::node_fields::{FieldRank, NodeFields};
use sluice_xds::Node;

/// Field paths of a server. Further fields of nodes are ignored.
const PATHS_MAX: usize = 4_096;
/// From so many nodes on, a field with values for half of them is unique (LRN-4).
const UNIQUE_FROM: usize = 20;
/// The letters of a value in reports.
const VALUE_CHARS_MAX: usize = 100;

/// A value in a report.
pub fn shown_value(text: &Arc<str>) -> Arc<str> {
    match text.len() <= VALUE_CHARS_MAX {
        true => text.clone(),
        false => text.chars().take(VALUE_CHARS_MAX).collect::<String>().into(),
    }
}
/// Fields with so many values in the class are covered by witnesses (PRF-22).
const COVERED_VALUES: std::ops::RangeInclusive<usize> = 2..=16;

/// A field by its number.
pub type FieldNumber = u32;

/// A field with a value. Values are hashes: only equality counts.
pub type Pair = (FieldNumber, u64);

/// The fields of a node, sorted.
pub type Row = Arc<[Pair]>;

/// A fingerprint: the hash of a row without unique and derived fields.
pub type Print = u64;

/// A hash with a secret of the process: no client can make two values equal.
pub fn keyed(seed: u64, value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    value.hash(&mut hasher);
    hasher.finish()
}

/// The numbers of the paths, for all classes of a server.
#[derive(Clone, Debug, Default)]
pub struct FieldPaths {
    seed: u64,
    numbers: BTreeMap<Arc<str>, FieldNumber>,
    paths: Vec<(Arc<str>, FieldRank)>,
}

impl FieldPaths {
    pub fn new(seed: u64) -> FieldPaths {
        FieldPaths { seed, ..FieldPaths::default() }
    }

    fn number(&mut self, path: &Arc<str>, rank: FieldRank) -> Option<FieldNumber> {
        if let Some(number) = self.numbers.get(path) {
            return Some(*number);
        }
        let number = FieldNumber::try_from(self.paths.len()).ok().filter(|_| self.paths.len() < PATHS_MAX)?;
        self.numbers.insert(path.clone(), number);
        self.paths.push((path.clone(), rank));
        Some(number)
    }

    /// The fields with the texts of the values, sorted by number.
    fn pairs<'a>(&mut self, fields: &'a NodeFields) -> Vec<(Pair, &'a Arc<str>)> {
        let seed = self.seed;
        let numbered = |field: &'a crate::node_fields::NodeField| {
            let number = self.number(&field.path, field.rank)?;
            Some(((number, keyed(seed, &*field.value)), &field.value))
        };
        let mut pairs: Vec<_> = fields.0.iter().filter_map(numbered).collect();
        pairs.sort_unstable_by_key(|pair| pair.0);
        pairs
    }

    /// All fields of a node.
    pub fn row(&mut self, fields: &NodeFields) -> Row {
        self.pairs(fields).into_iter().map(|pair| pair.0).collect()
    }

    pub fn path(&self, number: FieldNumber) -> Arc<str> {
        self.paths.get(number as usize).map_or_else(|| "?".into(), |field| field.0.clone())
    }

    pub fn rank(&self, number: FieldNumber) -> FieldRank {
        self.paths.get(number as usize).map_or(FieldRank::Unique, |field| field.1)
    }

    /// A node by the id: the same number for the same client after a reconnect.
    pub fn node_key(&self, node: &Node) -> u64 {
        keyed(self.seed, &node.id)
    }
}

/// A member with the fields.
#[derive(Clone, Debug)]
pub struct Resident {
    pub node: Arc<Node>,
    pub wants: Arc<[Wanted]>,
    pub is_never: bool,
    pub may_be_sampled: bool,
    pub node_key: u64,
    pub print: Print,
    /// Unique and derived fields.
    rest: Box<[Pair]>,
}

impl Resident {
    /// Whether a shadow may ask as the member (PRF-5, PRF-6).
    pub fn is_askable(&self) -> bool {
        !self.is_never && self.may_be_sampled && !self.wants.is_empty()
    }
}

/// The members with one fingerprint.
#[derive(Clone, Debug)]
struct Group {
    row: Row,
    members: BTreeSet<MemberId>,
}

/// The members with a value.
#[derive(Clone, Debug)]
struct Held {
    members: usize,
    text: Arc<str>,
}

/// The members of one class.
#[derive(Clone, Debug, Default)]
pub struct Population {
    residents: BTreeMap<MemberId, Resident>,
    /// The number of residents when the nodes of the map were last filled.
    filled: usize,
    groups: BTreeMap<Print, Group>,
    /// The values of all fields of fingerprints.
    values: BTreeMap<Pair, Held>,
    distinct: BTreeMap<FieldNumber, usize>,
    /// Unique fields, found by the values.
    unique: BTreeSet<FieldNumber>,
    /// The number of members at the last search for unique fields.
    searched_at: usize,
}

impl Population {
    /// A member came, or states another node or subscription.
    pub fn put(&mut self, id: MemberId, member: Member, paths: &mut FieldPaths) {
        self.remove(id);
        let pairs = paths.pairs(&member.fields);
        let is_common =
            |pair: &Pair| paths.rank(pair.0) == FieldRank::Plain && !self.unique.contains(&pair.0);
        let (common, rest): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|pair| is_common(&pair.0));
        let row: Row = common.iter().map(|pair| pair.0).collect();
        let rest = rest.iter().map(|pair| pair.0).collect();
        let print = keyed(paths.seed, &row);
        for (pair, text) in common {
            self.hold(pair, text);
        }
        let group = self.groups.entry(print).or_insert_with(|| Group { row, members: BTreeSet::new() });
        let Member { node, mut wants, is_never, may_be_sampled, .. } = member;
        // Replicas of one workload mostly ask for the same.
        if let Some(kin) = group.members.first().and_then(|kin| self.residents.get(kin))
            && is_same_subscription(&kin.wants, &wants)
        {
            wants = kin.wants.clone();
        }
        group.members.insert(id);
        let node_key = paths.node_key(&node);
        self.residents.insert(id, Resident { node, wants, is_never, may_be_sampled, node_key, print, rest });
        self.fill();
        self.search_unique(paths.seed);
    }

    /// Members come in the order of their numbers, and leave half of each node of the map empty.
    fn fill(&mut self) {
        let len = self.residents.len();
        self.filled = self.filled.min(len);
        if len > self.filled + self.filled / 4 {
            self.residents = std::mem::take(&mut self.residents).into_iter().collect();
            self.filled = len;
        }
    }

    fn hold(&mut self, pair: Pair, text: &Arc<str>) {
        if let Some(held) = self.values.get_mut(&pair) {
            held.members += 1;
            return;
        }
        self.values.insert(pair, Held { members: 1, text: text.clone() });
        *self.distinct.entry(pair.0).or_default() += 1;
    }

    fn release(&mut self, pair: Pair) {
        let Some(held) = self.values.get_mut(&pair) else { return };
        held.members -= 1;
        if held.members == 0 {
            self.values.remove(&pair);
            if let Some(count) = self.distinct.get_mut(&pair.0) {
                *count -= 1;
            }
        }
    }

    pub fn remove(&mut self, id: MemberId) -> Option<Resident> {
        let resident = self.residents.remove(&id)?;
        if let Some(group) = self.groups.get_mut(&resident.print) {
            group.members.remove(&id);
            let (row, is_empty) = (group.row.clone(), group.members.is_empty());
            row.iter().for_each(|pair| self.release(*pair));
            if is_empty {
                self.groups.remove(&resident.print);
            }
        }
        Some(resident)
    }

    /// Many fingerprints for few members are a sign of a unique field (LRN-4).
    fn search_unique(&mut self, seed: u64) {
        let members = self.residents.len();
        let is_due = members >= UNIQUE_FROM
            && self.groups.len() * 2 >= members
            && members >= self.searched_at + self.searched_at / 4;
        if !is_due {
            return;
        }
        self.searched_at = members;
        let is_unique =
            |entry: &(&FieldNumber, &usize)| *entry.1 >= UNIQUE_FROM / 2 && *entry.1 * 2 >= members;
        let more: BTreeSet<FieldNumber> =
            self.distinct.iter().filter(is_unique).map(|entry| *entry.0).collect();
        if more.is_empty() {
            return;
        }
        self.values.retain(|pair, _| !more.contains(&pair.0));
        self.distinct.retain(|field, _| !more.contains(field));
        self.unique.extend(more);
        self.regroup(seed);
    }

    /// Forms the groups anew, without the unique fields.
    fn regroup(&mut self, seed: u64) {
        let before = std::mem::take(&mut self.groups);
        for (print, group) in before {
            let is_common = |pair: &&Pair| !self.unique.contains(&pair.0);
            let row: Row = group.row.iter().filter(is_common).copied().collect();
            let gone: Vec<Pair> = group.row.iter().filter(|pair| !is_common(pair)).copied().collect();
            let next = if gone.is_empty() { print } else { keyed(seed, &row) };
            for id in &group.members {
                if let Some(resident) = self.residents.get_mut(id).filter(|_| !gone.is_empty()) {
                    resident.print = next;
                    let mut rest: Vec<Pair> = resident.rest.iter().chain(&gone).copied().collect();
                    rest.sort_unstable();
                    resident.rest = rest.into();
                }
            }
            let joined = self.groups.entry(next).or_insert_with(|| Group { row, members: BTreeSet::new() });
            joined.members.extend(group.members);
        }
    }

    pub fn len(&self) -> usize {
        self.residents.len()
    }

    pub fn get(&self, id: MemberId) -> Option<&Resident> {
        self.residents.get(&id)
    }

    pub fn residents(&self) -> impl Iterator<Item = (MemberId, &Resident)> {
        self.residents.iter().map(|(id, resident)| (*id, resident))
    }

    pub fn prints(&self) -> impl Iterator<Item = (Print, &Row)> {
        self.groups.iter().map(|(print, group)| (*print, &group.row))
    }

    pub fn prints_len(&self) -> usize {
        self.groups.len()
    }

    /// The members with a fingerprint.
    pub fn with_print(&self, print: Print) -> impl Iterator<Item = (MemberId, &Resident)> {
        let members = self.groups.get(&print).into_iter().flat_map(|group| &group.members);
        members.filter_map(|id| Some((*id, self.residents.get(id)?)))
    }

    /// The fields of a member for fingerprints.
    pub fn common_row(&self, resident: &Resident) -> Row {
        self.groups.get(&resident.print).map_or_else(|| Row::from([]), |group| group.row.clone())
    }

    /// All fields of a member, sorted.
    pub fn full_row(&self, resident: &Resident) -> Row {
        let mut pairs: Vec<Pair> = self.common_row(resident).iter().chain(&resident.rest).copied().collect();
        pairs.sort_unstable();
        pairs.into()
    }

    /// Whether a field splits no fingerprints, because nearly each node has a value of its own.
    pub fn is_unique(&self, field: FieldNumber) -> bool {
        self.unique.contains(&field)
    }

    /// Whether a witness should hold the value: the field has few values, and several members hold this value
    /// (PRF-22).
    pub fn is_to_cover(&self, pair: &Pair) -> bool {
        let few = self.distinct.get(&pair.0).is_some_and(|count| COVERED_VALUES.contains(count));
        few && self.values.get(pair).is_some_and(|held| held.members >= 2)
    }

    /// The values for witnesses, with texts.
    pub fn to_cover(&self) -> impl Iterator<Item = (&Pair, &Arc<str>)> {
        self.values.iter().filter(|(pair, _)| self.is_to_cover(pair)).map(|(pair, held)| (pair, &held.text))
    }

    /// The whole text of a value of some member, of a field of fingerprints.
    pub fn text(&self, pair: &Pair) -> Option<&Arc<str>> {
        self.values.get(pair).map(|held| &held.text)
    }

    /// The fingerprints with these values of fields of fingerprints.
    pub fn prints_with(&self, fields: &[FieldNumber], values: &[u64]) -> impl Iterator<Item = (Print, &Row)> {
        self.prints().filter(move |entry| {
            fields.iter().zip(values).all(|(field, value)| value_at(entry.1, *field) == *value)
        })
    }

    /// The number of members whose values of these fields are among `values`.
    pub fn count_with(&self, fields: &[FieldNumber], values: &BTreeSet<Vec<u64>>) -> usize {
        let holds = |resident: &Resident| values.contains(&values_at(&self.full_row(resident), fields));
        self.residents.values().filter(|resident| holds(resident)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::tests::bench::{fields, member, node};

    fn put(population: &mut Population, paths: &mut FieldPaths, id: u64, labels: &[(&str, &str)]) {
        population.put(MemberId(id), member(&node(&format!("n{id}"), labels)), paths);
    }

    #[test]
    fn lrn_4_a_field_with_a_value_for_each_node_splits_no_fingerprint() {
        let (mut population, mut paths) = (Population::default(), FieldPaths::new(1));
        for id in 0..100 {
            put(
                &mut population,
                &mut paths,
                id,
                &[("pod", &format!("p{id}")), ("app", if id % 2 == 0 { "x" } else { "y" })],
            );
        }
        assert_eq!(population.prints_len(), 2);
        let (pod, app) = (paths.numbers["metadata.pod"], paths.numbers["metadata.app"]);
        assert!(population.is_unique(pod) && !population.is_unique(app));
        // The unique field is still part of an explanation.
        let resident = population.get(MemberId(7)).unwrap();
        assert_ne!(value_at(&population.full_row(resident), pod), 0);
        assert_eq!(value_at(&population.common_row(resident), pod), 0);
        (0..100).for_each(|id| drop(population.remove(MemberId(id))));
        assert_eq!((population.len(), population.prints_len(), population.values.len()), (0, 0, 0));
    }

    #[test]
    fn prf_22_values_of_two_members_in_fields_of_few_values_are_to_be_covered() {
        let (mut population, mut paths) = (Population::default(), FieldPaths::new(1));
        for (id, zone) in ["a", "a", "b", "b", "c"].into_iter().enumerate() {
            put(&mut population, &mut paths, id as u64, &[("zone", zone), ("app", "x")]);
        }
        let texts = |population: &Population| {
            population.to_cover().map(|entry| entry.1.to_string()).collect::<BTreeSet<_>>()
        };
        assert_eq!(
            texts(&population),
            ["\"a\"".to_owned(), "\"b\"".to_owned()].into(),
            "not `c`, and not `app`"
        );
        put(&mut population, &mut paths, 4, &[("zone", "b"), ("app", "x")]);
        assert_eq!(texts(&population).len(), 2);
        assert_eq!(
            population.count_with(&[paths.numbers["metadata.zone"]], &[vec![keyed(1, "\"b\"")]].into()),
            3
        );
    }

    #[test]
    fn prf_21_a_client_has_one_key_by_its_id() {
        let paths = FieldPaths::new(1);
        assert_eq!(paths.node_key(&node("a", &[("x", "1")])), paths.node_key(&node("a", &[])));
        assert_ne!(paths.node_key(&node("a", &[])), paths.node_key(&node("b", &[])));
        let fields = fields(&node("a", &[]));
        assert_ne!(FieldPaths::new(1).row(&fields), FieldPaths::new(2).row(&fields), "hashes are keyed");
    }
}
