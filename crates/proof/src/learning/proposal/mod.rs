//! The proposal: the deciding fields, and the rules (LRN-5, LRN-8).

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{Answers, StudyEvidence};
use super::field::Field;
use super::fleet::{Column, Fleet};
use super::partition::Partition;
use super::rule::{ProposedRule, go_together};
use super::search::{FieldSplit, Search};
use sluice_xds::{Kind, TypeUrl};

/// The rules for a fleet, and the reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Nodes of the fleet, and nodes with answers.
    pub nodes: usize,
    pub asked: usize,
    pub fingerprints: usize,
    /// The grouping of the types without a rule apart; `None` if each type is personal.
    pub shared: Option<Grouping>,
    /// Endpoints, where more fields decide than about the other types, or fewer (LRN-5).
    pub endpoints: Option<Endpoints>,
    /// Types with an explanation by unique fields only (LRN-4).
    pub personal: Vec<Personal>,
    /// The plain fields of the nodes.
    pub fields: Vec<FieldFacts>,
    /// The rules in order.
    pub rules: Vec<ProposedRule>,
    /// For each rule the classes of the fleet.
    pub classes: Vec<ClassList>,
}

/// A grouping of some types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouping {
    pub types: Vec<TypeUrl>,
    /// Different answers.
    pub groups: usize,
    /// Fields with a single value in each group of answers, the constant fields included (LRN-6).
    pub closure: Vec<Field>,
    /// The fewest sufficient fields.
    pub minimum: Vec<Decisive>,
    /// Closure and minimum (LRN-8).
    pub split: BTreeSet<Field>,
}

/// A field of the minimum, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisive {
    pub field: Field,
    pub values: usize,
    /// The pairs of fingerprints with unequal answers and without a difference in the rest of the minimum.
    pub counterexamples: u64,
    /// Two nodes with unequal answers and a difference in the field alone; else alone in the minimum.
    pub example: Option<(usize, usize)>,
    /// The nodes of the example differ in no other field.
    pub is_alone: bool,
}

/// The grouping of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// More fields decide than about the other types: the rule apart has more classes.
    Finer(Grouping),
    /// Fewer fields decide: a rule apart could have fewer classes, and none is proposed.
    Coarser { types: Vec<TypeUrl>, minimum: Vec<Field>, classes: usize },
}

/// A type without a shared answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Personal {
    pub type_url: TypeUrl,
    /// A field that explains the answers: a derived field without a word for rules, or a field with too many
    /// values.
    pub explained_by: Option<Field>,
    /// Two nodes with unequal answers and without a difference in shared fields.
    pub example: Option<(usize, usize)>,
}

/// A field of the fleet's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFacts {
    pub field: Field,
    pub values: usize,
    pub is_unique: bool,
}

/// The classes of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassList {
    pub count: usize,
    /// For each class a node, and the number of nodes; the largest first.
    pub classes: Vec<(usize, usize)>,
}

/// Proposes rules for a fleet by the answers of a server.
pub fn propose(fleet: &Fleet, evidence: &StudyEvidence) -> Proposal {
    let types: Vec<TypeUrl> = evidence.types().cloned().collect();
    let derived = fleet.derived();
    let mut proposer =
        Proposer { fleet, evidence, derived: &derived, helpers: Vec::new(), personal: Vec::new() };
    let explained: Vec<TypeUrl> =
        types.into_iter().filter(|type_url| proposer.explain_type(type_url)).collect();
    let is_endpoints = |type_url: &&TypeUrl| type_url.kind() == Kind::ClusterLoadAssignment;
    let (apart, mut shared): (Vec<TypeUrl>, Vec<TypeUrl>) =
        explained.iter().cloned().partition(|type_url| is_endpoints(&type_url));
    let apart = if shared.is_empty() {
        shared = apart;
        Vec::new()
    } else {
        apart
    };
    let grouping = proposer.group(&shared, &[]);
    let endpoints = grouping.as_ref().and_then(|shared| proposer.endpoints(apart, shared));
    let personal = std::mem::take(&mut proposer.personal);
    let rules = rules(fleet, &personal, grouping.as_ref(), endpoints.as_ref());
    let classes = rules.iter().map(|rule| class_list(&rule.classes(fleet))).collect();
    let facts = |column: &Column| FieldFacts {
        field: column.field.clone(),
        values: column.values.len(),
        is_unique: column.is_unique,
    };
    Proposal {
        nodes: fleet.nodes.len(),
        asked: evidence.nodes().len(),
        fingerprints: fleet.fingerprints().count(),
        shared: grouping,
        endpoints,
        personal,
        fields: fleet.columns.iter().map(facts).collect(),
        rules,
        classes,
    }
}

/// The work on a proposal.
struct Proposer<'a> {
    fleet: &'a Fleet,
    evidence: &'a StudyEvidence,
    derived: &'a [Column],
    /// The derived fields for types without a plain explanation.
    helpers: Vec<&'a Column>,
    personal: Vec<Personal>,
}

impl<'a> Proposer<'a> {
    fn columns(&self, more: Option<&'a Column>) -> Vec<&'a Column> {
        self.fleet.plain().chain(self.helpers.iter().copied()).chain(more).collect()
    }

    /// Whether plain fields explain a type, or with the help of a derived field (LRN-3). Otherwise the type
    /// is personal (LRN-4).
    fn explain_type(&mut self, type_url: &TypeUrl) -> bool {
        let answers = self.evidence.joint(std::slice::from_ref(type_url));
        let plain = Search::new(&answers, self.columns(None));
        if plain.is_explained() {
            return true;
        }
        let helps = |column: &&'a Column| Search::new(&answers, self.columns(Some(column))).is_explained();
        let fits = |column: &&'a Column| {
            column.field.has_word()
                && self.helpers.iter().all(|helper| go_together(&helper.field, &column.field))
        };
        if let Some(helper) = self.derived.iter().filter(fits).find(helps) {
            self.helpers.push(helper);
            return true;
        }
        let nearly_unique =
            self.fleet.columns.iter().filter(|column| column.is_unique && !column.is_well_known());
        let explained_by =
            self.derived.iter().filter(|column| !fits(column)).chain(nearly_unique).find(helps);
        let all = plain.by(0..self.columns(None).len());
        let example = plain.pair(&all);
        let explained_by = explained_by.map(|column| column.field.clone());
        self.personal.push(Personal { type_url: type_url.clone(), explained_by, example });
        false
    }

    /// The grouping of some types; `base`: fields in the split already.
    fn group(&self, types: &[TypeUrl], base: &[Field]) -> Option<Grouping> {
        let answers = self.evidence.joint(types);
        if answers.nodes.is_empty() {
            return None;
        }
        let columns = self.columns(None);
        let always = places(&columns, |field| field.always_splits() || base.contains(field));
        let search = Search::new(&answers, columns);
        let split = search.split(&always)?;
        Some(self.describe(types, &search, &split, &always))
    }

    fn describe(
        &self,
        types: &[TypeUrl],
        search: &Search<'_>,
        split: &FieldSplit,
        always: &[usize],
    ) -> Grouping {
        let field = |place: &usize| Some(search.column(*place)?.field.clone());
        let fewest: Vec<usize> = [always, &split.minimum].concat();
        let decisive = |place: &usize| {
            let column = search.column(*place)?;
            let alone = search.decisive(*place);
            let others = || search.by(fewest.iter().copied().filter(|other| other != place));
            Some(Decisive {
                field: column.field.clone(),
                values: column.values.len(),
                counterexamples: search.counterexamples(&fewest, *place),
                example: alone.or_else(|| search.pair(&others())),
                is_alone: alone.is_some(),
            })
        };
        Grouping {
            types: types.to_vec(),
            groups: split.groups,
            closure: split.closure.iter().filter_map(field).collect(),
            minimum: split.minimum.iter().filter_map(decisive).collect(),
            split: split.fields().iter().chain(always).filter_map(field).collect(),
        }
    }

    /// Endpoints apart from the types with the given grouping (LRN-5).
    fn endpoints(&self, types: Vec<TypeUrl>, shared: &Grouping) -> Option<Endpoints> {
        let answers = self.evidence.joint(&types);
        if answers.nodes.is_empty() {
            return None;
        }
        let columns = self.columns(None);
        let search = Search::new(&answers, columns.clone());
        let joint = places(&columns, |field| shared.split.contains(field));
        if !search.answers().holds(&search.by(joint)) {
            let base: Vec<Field> = shared.split.iter().cloned().collect();
            // Within a class of the other types all ask for the same endpoints, so none is unproved (LRN-10).
            let all = [shared.types.as_slice(), &types].concat();
            return self.group(&all, &base).map(|finer| Endpoints::Finer(Grouping { types, ..finer }));
        }
        let always = places(&columns, Field::always_splits);
        let minimum = search.minimum(&always);
        let classes = self.count(&columns, always.iter().chain(&minimum));
        let all = self.count(&columns, places(&columns, |field| shared.split.contains(field)).iter());
        let field = |place: &usize| Some(search.column(*place)?.field.clone());
        let minimum = minimum.iter().filter_map(field).collect();
        (classes < all).then_some(Endpoints::Coarser { types, minimum, classes })
    }

    /// The classes of the fleet by some fields.
    fn count<'b>(&self, columns: &[&Column], places: impl Iterator<Item = &'b usize>) -> usize {
        let split = places.filter_map(|place| columns.get(*place));
        split
            .fold(Partition::whole(self.fleet.nodes.len()), |part, column| part.refine(&column.cells))
            .count()
    }
}

fn places(columns: &[&Column], is_chosen: impl Fn(&Field) -> bool) -> Vec<usize> {
    let numbered = columns.iter().enumerate();
    numbered.filter(|(_, column)| is_chosen(&column.field)).map(|(place, _)| place).collect()
}

fn rules(
    fleet: &Fleet,
    personal: &[Personal],
    shared: Option<&Grouping>,
    endpoints: Option<&Endpoints>,
) -> Vec<ProposedRule> {
    let mut rules = Vec::new();
    let types: Vec<TypeUrl> = personal.iter().map(|personal| personal.type_url.clone()).collect();
    let needed = |grouping: &Grouping| -> BTreeSet<Field> {
        grouping.minimum.iter().map(|decisive| decisive.field.clone()).collect()
    };
    if !types.is_empty() && shared.is_some_and(|shared| !is_of_endpoints(shared)) {
        rules.push(ProposedRule::of_each_client(types));
    }
    if let Some(Endpoints::Finer(finer)) = endpoints {
        let needed = shared.map(needed).unwrap_or_default().union(&needed(finer)).cloned().collect();
        rules.push(ProposedRule::new(finer.types.clone(), fleet, &finer.split, &needed));
    }
    match shared {
        Some(shared) if !is_of_endpoints(shared) => {
            rules.push(ProposedRule::new(Vec::new(), fleet, &shared.split, &needed(shared)));
        }
        // Endpoints tell nothing about other types.
        _ => {
            let apart = |shared: &Grouping| {
                ProposedRule::new(shared.types.clone(), fleet, &shared.split, &needed(shared))
            };
            rules.extend(shared.map(apart));
            rules.push(ProposedRule::of_each_client(Vec::new()));
        }
    }
    rules
}

fn is_of_endpoints(grouping: &Grouping) -> bool {
    grouping.types.iter().all(|type_url| type_url.kind() == Kind::ClusterLoadAssignment)
}

fn class_list(classes: &Partition) -> ClassList {
    let mut nodes: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (node, class) in classes.classes().iter().enumerate() {
        nodes.entry(*class).or_insert((node, 0)).1 += 1;
    }
    let mut list: Vec<(usize, usize)> = nodes.into_values().collect();
    list.sort_by_key(|(node, count)| (std::cmp::Reverse(*count), *node));
    ClassList { count: list.len(), classes: list }
}

/// Whether rules lose nothing of the evidence: nodes with a common class have no unequal answers.
pub fn is_lossless(fleet: &Fleet, evidence: &StudyEvidence, rules: &[ProposedRule]) -> bool {
    evidence.types().all(|type_url| {
        let rule = rules.iter().find(|rule| rule.types.is_empty() || rule.types.contains(type_url));
        let answers: Answers = evidence.joint(std::slice::from_ref(type_url));
        rule.is_some_and(|rule| {
            let classes = rule.classes(fleet);
            let of_nodes = |node: &usize| classes.classes().get(*node).copied();
            answers.holds(&Partition::by(answers.nodes.iter().map(of_nodes)))
        })
    })
}

#[cfg(test)]
mod tests;
