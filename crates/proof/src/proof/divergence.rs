//! The confirmed divergences of a class (PRF-17).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::evidence::shown_id;
use super::explanation::explain;
use super::input::MemberId;
use super::population::{FieldNumber, FieldPaths, Population, Row, value_at, values_at};
use super::report::{Divergence, DivergentName};
use super::trial::{Confirmed, Subject};
use crate::node_fields::FieldRank;
use sluice_engine::Time;
use sluice_xds::{Node, ResourceName, TypeUrl};

/// Names, and fields, in a report (PRF-17).
const LISTED_MAX: usize = 100;
/// Members and equal rows to remember for the explanation.
const ROWS_MAX: usize = 64;
/// Values in a report.
const VALUES_MAX: usize = 16;
/// Samples that are taken only to tell several explanations apart.
const TRIES_MAX: u32 = 8;

/// A differing member.
#[derive(Clone, Debug)]
struct Counterexample {
    member: Option<MemberId>,
    node: Arc<Node>,
    row: Row,
}

/// A divergence of one type, as long as some member differs.
#[derive(Clone, Debug)]
pub struct Record {
    type_url: TypeUrl,
    names: BTreeMap<ResourceName, DivergentName>,
    name_count: usize,
    compared: usize,
    since: Time,
    /// By the key of the node.
    members: BTreeMap<u64, Counterexample>,
    /// Equal members in the type since the divergence began.
    equal: Vec<Row>,
    explained_by: Vec<Vec<FieldNumber>>,
    tries: u32,
    /// The time of the last report as an event (PRF-26).
    pub told_at: Option<Time>,
}

/// The class of a record, for its report.
#[derive(Clone, Copy)]
pub struct RecordClass<'a> {
    pub class: &'a Arc<str>,
    pub rule: &'a Arc<str>,
    pub node: &'a Node,
    pub population: &'a Population,
    pub paths: &'a FieldPaths,
}

impl Record {
    pub fn new(type_url: TypeUrl, since: Time) -> Record {
        Record {
            type_url,
            names: BTreeMap::new(),
            name_count: 0,
            compared: 0,
            since,
            members: BTreeMap::new(),
            equal: Vec::new(),
            explained_by: Vec::new(),
            tries: 0,
            told_at: None,
        }
    }

    /// Adds a counterexample with its names. Secrets are counted only (PRF-7).
    pub fn add(&mut self, subject: &Subject, confirmed: &[Confirmed], compared: usize) {
        if self.members.len() < ROWS_MAX || self.members.contains_key(&subject.node_key) {
            let counterexample = Counterexample {
                member: subject.member,
                node: subject.node.clone(),
                row: subject.row.clone(),
            };
            self.members.insert(subject.node_key, counterexample);
        }
        self.compared = self.compared.max(compared);
        self.name_count = self.name_count.max(confirmed.len());
        if self.type_url.is_secret() {
            return;
        }
        for Confirmed { differing, paths, .. } in confirmed {
            let name = differing.key.name.clone();
            if self.names.len() < LISTED_MAX || self.names.contains_key(&name) {
                let divergent = DivergentName {
                    name: name.clone(),
                    class_version: differing.class.version,
                    member_version: differing.shadow.version,
                    paths: paths.to_vec(),
                };
                self.names.insert(name, divergent);
            }
        }
        self.name_count = self.name_count.max(self.names.len());
    }

    /// A member is equal in the type, while others differ. Returns whether the row is new.
    pub fn add_equal(&mut self, row: &Row) -> bool {
        let is_new = self.equal.len() < ROWS_MAX && !self.equal.contains(row);
        if is_new {
            self.equal.push(row.clone());
        }
        is_new
    }

    /// A member is equal again, or has left. Returns whether no member differs any more.
    pub fn remove(&mut self, node_key: u64) -> bool {
        self.members.remove(&node_key);
        self.members.is_empty()
    }

    pub fn since(&self) -> Time {
        self.since
    }

    pub fn has(&self, node_key: u64) -> bool {
        self.members.contains_key(&node_key)
    }

    /// The differing nodes.
    pub fn node_keys(&self) -> impl Iterator<Item = u64> {
        self.members.keys().copied()
    }

    /// Finds the explanations anew. Unique fields come last.
    pub fn explain(&mut self, population: &Population, paths: &FieldPaths) {
        let unequal: Vec<Row> = self.members.values().map(|member| member.row.clone()).collect();
        let rank = |field| if population.is_unique(field) { FieldRank::Unique } else { paths.rank(field) };
        self.explained_by = explain(&self.equal, &unequal, rank);
    }

    /// How well a sample of the row tells the explanations apart: the minimum number of refuted explanations,
    /// whatever the result. `None`: not at all, or enough was tried.
    pub fn splits(&self, row: &Row) -> Option<usize> {
        let (Some(counterexample), true) = (self.members.values().next(), self.tries < TRIES_MAX) else {
            return None;
        };
        if self.explained_by.len() < 2 {
            return None;
        }
        let agrees =
            |fields: &&Vec<FieldNumber>| values_at(row, fields) == values_at(&counterexample.row, fields);
        let agreeing = self.explained_by.iter().filter(agrees).count();
        let ended = agreeing.min(self.explained_by.len() - agreeing);
        (ended > 0).then_some(ended)
    }

    /// A sample is taken for the explanation.
    pub fn try_once(&mut self) {
        self.tries += 1;
    }

    /// The report; `None` without a differing member.
    pub fn report(&self, class: RecordClass<'_>) -> Option<Divergence> {
        let first = self.members.values().next()?;
        let fields = self.explained_by.first().cloned().unwrap_or_default();
        let suspect: BTreeSet<Vec<u64>> =
            self.members.values().map(|member| values_at(&member.row, &fields)).collect();
        let clients = match fields.is_empty() {
            true => self.members.len(),
            false => class.population.count_with(&fields, &suspect),
        };
        let path = |field: &FieldNumber| class.paths.path(*field);
        let text = |row: &Row, field: FieldNumber| {
            class.population.text(&(field, value_at(row, field))).cloned().unwrap_or_else(|| "-".into())
        };
        let texts: BTreeSet<Vec<Arc<str>>> = self
            .members
            .values()
            .map(|member| fields.iter().map(|field| text(&member.row, *field)).collect())
            .collect();
        let differing = class.node.differences(&first.node, LISTED_MAX);
        Some(Divergence {
            class: class.class.clone(),
            rule: class.rule.clone(),
            type_url: self.type_url.clone(),
            names: self.names.values().cloned().collect(),
            name_count: self.name_count,
            compared: self.compared,
            member: first.member.unwrap_or(MemberId(0)),
            member_id: shown_id(&first.node.id),
            representative_id: shown_id(&class.node.id),
            differing_fields: differing.into_iter().map(Arc::from).collect(),
            explained_by: self.explained_by.iter().map(|set| set.iter().map(path).collect()).collect(),
            suspect_values: texts.into_iter().filter(|_| !fields.is_empty()).take(VALUES_MAX).collect(),
            clients,
            since: self.since,
        })
    }
}
