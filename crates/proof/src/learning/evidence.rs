//! Evidence: the answers of a server to nodes (LRN-6, LRN-10).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::partition::Partition;
use sluice_xds::{ResourceName, TypeUrl, Version};

/// The answer of a server to a node for a type.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeAnswer {
    /// All resources of the type were asked for: a name without an entry does not exist.
    pub is_whole: bool,
    /// Sorted by name. `None`: the server has no resource of the name. A name without an entry was not asked
    /// for, unless the answer is whole, and proves nothing (LRN-10).
    pub names: Vec<(ResourceName, Option<Version>)>,
}

impl TypeAnswer {
    /// The names with two unequal words about them.
    fn differing(&self, other: &TypeAnswer) -> BTreeSet<ResourceName> {
        let by_name = |answer: &TypeAnswer| -> BTreeMap<ResourceName, Option<Version>> {
            answer.names.iter().cloned().collect()
        };
        let (one, two) = (by_name(self), by_name(other));
        let differs = |name: &&ResourceName| match (one.get(*name), two.get(*name)) {
            (Some(version), Some(other_version)) => version != other_version,
            (Some(_), None) => other.is_whole,
            (None, Some(_)) => self.is_whole,
            (None, None) => false,
        };
        one.keys().chain(two.keys()).filter(differs).cloned().collect()
    }

    fn without(&self, names: &BTreeSet<ResourceName>) -> TypeAnswer {
        let kept = self.names.iter().filter(|(name, _)| !names.contains(name)).cloned();
        TypeAnswer { is_whole: self.is_whole, names: kept.collect() }
    }
}

/// The answers for a type.
#[derive(Clone, Debug, Default)]
struct TypeEvidence {
    /// The distinct answers.
    answers: BTreeSet<Arc<TypeAnswer>>,
    by_node: BTreeMap<usize, Arc<TypeAnswer>>,
    /// Names with two unequal answers to the same node (PRF-16).
    restless: BTreeSet<ResourceName>,
}

/// The answers of a server to nodes. A node is a number in the order of the fleet.
#[derive(Clone, Debug, Default)]
pub struct StudyEvidence {
    types: BTreeMap<TypeUrl, TypeEvidence>,
    held_names: usize,
}

impl StudyEvidence {
    /// Adds an answer. A second answer to the same node makes differing names restless: the server says two
    /// things to the same question, by chance or after a change of the configuration (PRF-16).
    /// Returns whether no other node has had this answer before.
    pub fn add(&mut self, node: usize, type_url: &TypeUrl, answer: TypeAnswer) -> bool {
        let evidence = self.types.entry(type_url.clone()).or_default();
        if let Some(before) = evidence.by_node.get(&node) {
            evidence.restless.extend(before.differing(&answer));
            return false;
        }
        let answer = Arc::new(answer);
        let equal = evidence.answers.get(&answer).cloned();
        let is_news = equal.is_none();
        let answer = equal.unwrap_or(answer);
        self.held_names += if is_news { answer.names.len() } else { 0 };
        evidence.answers.insert(answer.clone());
        evidence.by_node.insert(node, answer);
        is_news
    }

    pub fn types(&self) -> impl Iterator<Item = &TypeUrl> {
        self.types.keys()
    }

    /// Nodes with an answer for some type.
    pub fn nodes(&self) -> BTreeSet<usize> {
        self.types.values().flat_map(|evidence| evidence.by_node.keys().copied()).collect()
    }

    /// The names without a comparison, by type.
    pub fn restless(&self) -> impl Iterator<Item = (&TypeUrl, &BTreeSet<ResourceName>)> {
        let types = self.types.iter().map(|(type_url, evidence)| (type_url, &evidence.restless));
        types.filter(|(_, names)| !names.is_empty())
    }

    /// The names in the distinct answers, as a measure of memory.
    pub fn held_names(&self) -> usize {
        self.held_names
    }

    /// The answers for some types together, without restless names. Nodes without an answer for any of the
    /// types are left out.
    pub(super) fn joint(&self, types: &[TypeUrl]) -> Answers {
        let all: Vec<&TypeEvidence> = types.iter().filter_map(|type_url| self.types.get(type_url)).collect();
        let Some(first) = all.first() else { return Answers::default() };
        let has_all = |node: &usize| all.iter().all(|evidence| evidence.by_node.contains_key(node));
        let nodes: Vec<usize> = first.by_node.keys().copied().filter(has_all).collect();
        let mut cells = vec![Vec::new(); nodes.len()];
        let mut aspect = 0;
        for evidence in &all {
            let settled = Settled::of(evidence, &nodes, &mut aspect);
            for (cells, number) in cells.iter_mut().zip(settled.numbers.classes()) {
                cells.extend(settled.cells.get(place(*number)).into_iter().flatten().copied());
            }
        }
        let numbers = Partition::by(cells.iter());
        let mut by_number = vec![Vec::new(); numbers.count()];
        for (number, cells) in numbers.classes().iter().zip(cells) {
            if let Some(slot) = by_number.get_mut(place(*number)) {
                *slot = cells;
            }
        }
        Answers { nodes, numbers, cells: by_number, aspects: place(aspect) }
    }

    /// Pairs of nodes with a common class and unequal answers; at most a pair for each class. `class_of`: the
    /// class of a node. `has_rule`: the classes are for a name of a node.
    pub fn conflicts(
        &self,
        type_url: &TypeUrl,
        class_of: &dyn Fn(usize) -> Option<u32>,
        has_rule: &dyn Fn(usize, &ResourceName) -> bool,
    ) -> Vec<Conflict> {
        let Some(evidence) = self.types.get(type_url) else { return Vec::new() };
        let (mut seen, mut heard) = (BTreeSet::new(), BTreeMap::new());
        let mut conflicts: BTreeMap<u32, Conflict> = BTreeMap::new();
        for (node, answer) in &evidence.by_node {
            let Some(class) = class_of(*node) else { continue };
            if conflicts.contains_key(&class) || !seen.insert((class, Arc::as_ptr(answer))) {
                continue;
            }
            let before: &mut Vec<(usize, &Arc<TypeAnswer>)> = heard.entry(class).or_default();
            for (other, others) in before.iter() {
                let is_judged = |name: &ResourceName| {
                    !evidence.restless.contains(name) && has_rule(*other, name) && has_rule(*node, name)
                };
                let names: Vec<ResourceName> =
                    others.differing(answer).into_iter().filter(is_judged).collect();
                if !names.is_empty() {
                    let type_url = type_url.clone();
                    conflicts.insert(class, Conflict { type_url, nodes: (*other, *node), names });
                    break;
                }
            }
            before.push((*node, answer));
        }
        conflicts.into_values().collect()
    }
}

/// Two nodes with a common class and unequal answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub type_url: TypeUrl,
    pub nodes: (usize, usize),
    /// The names with unequal answers.
    pub names: Vec<ResourceName>,
}

fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The answers of a type without restless names: the number of each node's answer, and the cells of each
/// answer.
struct Settled {
    numbers: Partition,
    cells: Vec<Vec<Cell>>,
}

/// An aspect of an answer, and the number of the content: the whole set of a type, or some names that all
/// answers have in the same versions together.
type Cell = (u32, u32);

/// The cells of compatible answers together: contents by aspect.
type United = BTreeMap<u32, u32>;

impl Settled {
    /// `aspect`: the next free number.
    fn of(evidence: &TypeEvidence, nodes: &[usize], aspect: &mut u32) -> Settled {
        let settled: BTreeMap<*const TypeAnswer, TypeAnswer> = evidence
            .answers
            .iter()
            .map(|answer| (Arc::as_ptr(answer), answer.without(&evidence.restless)))
            .collect();
        let answers = nodes.iter().filter_map(|node| settled.get(&Arc::as_ptr(evidence.by_node.get(node)?)));
        let answers: Vec<&TypeAnswer> = answers.collect();
        let numbers = Partition::by(answers.iter());
        let mut distinct: Vec<Option<&TypeAnswer>> = vec![None; numbers.count()];
        for (number, answer) in numbers.classes().iter().zip(&answers) {
            if let Some(slot) = distinct.get_mut(place(*number)) {
                *slot = Some(answer);
            }
        }
        let distinct: Vec<&TypeAnswer> = distinct.into_iter().flatten().collect();
        let cells = match distinct.iter().all(|answer| answer.is_whole) {
            // A whole set is an aspect, and each other set differs.
            true => {
                let whole = *aspect;
                *aspect += 1;
                (0..).take(distinct.len()).map(|number| vec![(whole, number)]).collect()
            }
            false => named_cells(&distinct, aspect),
        };
        Settled { numbers, cells }
    }
}

/// The cells of answers about names. Names with the same pattern over all answers are a single aspect, and a
/// name with the same version everywhere tells nothing.
fn named_cells(answers: &[&TypeAnswer], aspect: &mut u32) -> Vec<Vec<Cell>> {
    let mut by_name: BTreeMap<&ResourceName, Vec<(usize, Option<Version>)>> = BTreeMap::new();
    for (number, answer) in answers.iter().enumerate() {
        for (name, version) in &answer.names {
            by_name.entry(name).or_default().push((number, *version));
        }
    }
    let patterns: BTreeSet<Vec<(usize, u32)>> = by_name
        .into_values()
        .map(|versions| {
            let contents = Partition::by(versions.iter().map(|(_, version)| *version));
            let answers = versions.iter().map(|(answer, _)| *answer);
            answers.zip(contents.classes().iter().copied()).collect()
        })
        .collect();
    let mut cells = vec![Vec::new(); answers.len()];
    for pattern in patterns.iter().filter(|pattern| pattern.iter().any(|(_, content)| *content > 0)) {
        for (answer, content) in pattern {
            if let Some(cells) = cells.get_mut(*answer) {
                cells.push((*aspect, *content));
            }
        }
        *aspect += 1;
    }
    cells
}

/// The joint answers of some types, for the nodes with answers for all types.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    pub nodes: Vec<usize>,
    /// The number of the joint answer, for each of `nodes`.
    pub numbers: Partition,
    /// The cells of each joint answer.
    cells: Vec<Vec<Cell>>,
    aspects: usize,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers { nodes: Vec::new(), numbers: Partition::whole(0), cells: Vec::new(), aspects: 0 }
    }
}

impl Answers {
    /// The same answers for some of the rows.
    pub fn only(&self, rows: &[usize]) -> Answers {
        let pick = |row: &usize| Some((*self.nodes.get(*row)?, *self.numbers.classes().get(*row)?));
        let picked: Vec<(usize, u32)> = rows.iter().filter_map(pick).collect();
        let numbers = Partition::by(picked.iter().map(|(_, number)| *number));
        let mut cells = vec![Vec::new(); numbers.count()];
        for (new, (_, old)) in numbers.classes().iter().zip(&picked) {
            if let (Some(slot), Some(before)) = (cells.get_mut(place(*new)), self.cells.get(place(*old))) {
                slot.clone_from(before);
            }
        }
        let nodes = picked.into_iter().map(|(node, _)| node).collect();
        Answers { nodes, numbers, cells, aspects: self.aspects }
    }

    /// Two rows with a common class and unequal answers; `None`: the classes lose nothing.
    pub fn conflict(&self, classes: &Partition) -> Option<(usize, usize)> {
        let numbers = self.numbers.classes();
        let mut rows: Vec<(u32, u32, usize)> = classes
            .classes()
            .iter()
            .zip(numbers)
            .enumerate()
            .map(|(row, (class, number))| (*class, *number, row))
            .collect();
        rows.sort_unstable();
        rows.dedup_by_key(|(class, number, _)| (*class, *number));
        // For each aspect: the last class with a content, the content, and the row.
        let mut contents: Vec<Option<(u32, u32, usize)>> = vec![None; self.aspects];
        for (class, number, row) in rows {
            for (aspect, content) in self.cells.get(place(number)).into_iter().flatten() {
                let Some(slot) = contents.get_mut(place(*aspect)) else { continue };
                match *slot {
                    Some((same, other, first)) if same == class && other != *content => {
                        return Some((first, row));
                    }
                    Some((same, _, _)) if same == class => {}
                    _ => *slot = Some((class, *content, row)),
                }
            }
        }
        None
    }

    pub fn holds(&self, classes: &Partition) -> bool {
        self.conflict(classes).is_none()
    }

    /// The rows in groups of compatible answers, the fullest answers first: the number of each row's group.
    /// Where all rows were asked for whole sets, a group has equal answers. A name that only a single row was
    /// asked for keeps no rows apart (LRN-10).
    pub fn groups(&self) -> Partition {
        let mut order: Vec<usize> = (0..self.cells.len()).collect();
        order.sort_by_key(|number| (Reverse(self.cells.get(*number).map_or(0, Vec::len)), *number));
        let common = self.common_aspects();
        // The groups of the answers with equal common cells: the united cells, and the number of the group.
        let mut groups: BTreeMap<Vec<Cell>, Vec<(United, usize)>> = BTreeMap::new();
        let (mut by_number, mut count) = (vec![0; self.cells.len()], 0);
        for number in order {
            let Some(cells) = self.cells.get(number) else { continue };
            let key = cells.iter().copied().filter(|(aspect, _)| common.contains(aspect)).collect();
            let alike = groups.entry(key).or_default();
            let goes_with = |united: &United| {
                cells.iter().all(|(aspect, content)| united.get(aspect).is_none_or(|other| other == content))
            };
            let near = alike.iter_mut().take(GROUPS_MAX).find(|(united, _)| goes_with(united));
            let group = match near {
                Some((united, group)) => {
                    united.extend(cells.iter().copied());
                    *group
                }
                None => {
                    alike.push((cells.iter().copied().collect(), count));
                    count += 1;
                    count - 1
                }
            };
            if let Some(slot) = by_number.get_mut(number) {
                *slot = group;
            }
        }
        Partition::by(self.numbers.classes().iter().map(|number| by_number.get(place(*number)).copied()))
    }

    /// The aspects with a content in every answer.
    fn common_aspects(&self) -> BTreeSet<u32> {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for (aspect, _) in self.cells.iter().flatten() {
            *counts.entry(*aspect).or_default() += 1;
        }
        counts.into_iter().filter(|(_, count)| *count == self.cells.len()).map(|(aspect, _)| aspect).collect()
    }
}

/// The groups to try for an answer. Beyond the bound, each further answer is a new group.
const GROUPS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn type_url() -> TypeUrl {
        TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment")
    }

    /// `a1 b2`: names with versions.
    fn answer(is_whole: bool, text: &str) -> TypeAnswer {
        let name = |text: &str| {
            let (name, version) = text.split_at(1);
            (ResourceName::from(name.to_owned()), version.parse().ok().map(Version))
        };
        TypeAnswer { is_whole, names: text.split_whitespace().map(name).collect() }
    }

    fn evidence(is_whole: bool, texts: &[&str]) -> StudyEvidence {
        let mut evidence = StudyEvidence::default();
        for (node, text) in texts.iter().enumerate() {
            evidence.add(node, &type_url(), answer(is_whole, text));
        }
        evidence
    }

    #[test]
    fn lrn_10_names_that_were_not_both_asked_for_prove_nothing() {
        let answers = evidence(false, &["a1 b1", "b1 c1", "c1 a2"]).joint(&[type_url()]);
        let holds = |classes: &[u32]| answers.holds(&Partition::by(classes.iter()));
        assert!(holds(&[0, 0, 1]) && holds(&[0, 1, 1]), "neighbours go together");
        assert!(!holds(&[0, 1, 0]), "compatibility is not transitive");
        assert_eq!(answers.groups().count(), 2);
    }

    #[test]
    fn lrn_6_whole_sets_are_equal_or_not() {
        let answers = evidence(true, &["a1 b1", "a1", "a1 b1", "a1 b2"]).joint(&[type_url()]);
        assert_eq!((answers.groups().count(), answers.numbers.count()), (3, 3));
        assert_eq!(answers.conflict(&Partition::by([0, 1, 0, 0])), Some((0, 3)));
        assert!(answers.holds(&Partition::by([0, 1, 0, 2])));
        let some = answers.only(&[1, 3]);
        assert_eq!((some.nodes.as_slice(), some.groups().count()), (&[1, 3][..], 2));
    }

    #[test]
    fn prf_16_a_name_that_differs_for_one_node_is_restless() {
        let mut evidence = evidence(true, &["a1 b1", "a2 b1", "a3 b2"]);
        assert!(!evidence.add(0, &type_url(), answer(true, "a9 b1")));
        let restless: Vec<_> = evidence.restless().flat_map(|(_, names)| names.clone()).collect();
        assert_eq!(restless, [ResourceName::from("a".to_owned())]);
        assert_eq!(evidence.joint(&[type_url()]).groups().count(), 2);
    }

    #[test]
    fn prf_16_a_member_that_comes_and_goes_is_restless() {
        let mut evidence = evidence(true, &["a1 b1", "a1"]);
        evidence.add(0, &type_url(), answer(true, "a1"));
        assert_eq!(evidence.joint(&[type_url()]).groups().count(), 1);
    }

    #[test]
    fn lrn_21_rules_that_are_coarser_than_the_evidence_have_a_conflict() {
        let evidence = evidence(true, &["a1", "a1", "a2", "a3"]);
        let conflicts =
            |classes: [Option<u32>; 4]| evidence.conflicts(&type_url(), &|node| classes[node], &|_, _| true);
        assert!(conflicts([Some(0), Some(0), Some(1), Some(2)]).is_empty());
        assert!(conflicts([Some(0), Some(0), None, Some(1)]).is_empty());
        let coarse = conflicts([Some(0), Some(0), Some(0), Some(0)]);
        assert_eq!(coarse.iter().map(|conflict| conflict.nodes).collect::<Vec<_>>(), [(0, 2)]);
    }
}
