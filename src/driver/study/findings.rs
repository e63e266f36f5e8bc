//! Everything that a study found, as plain data: for the API, and for the output of the command.

use super::coarse::Coarse;
use super::inquiry::Inquiry;
use super::nodes::{NodeList, Omission};
use sluice_admin_api::learning::{
    CoarsePair, CoarseRule, CoarserEndpoints, DecisiveField, EndpointGrouping, Grouping as ShownGrouping,
    LearnedRule, LeftOut, NodePair, PersonalType, RefusedNode, RefusedNodes, StudiedField, StudyReport,
};
use sluice_admin_api::proofs::RestlessNames;
use sluice_proof::learning::proposal::{ClassList, Decisive, Endpoints, Grouping, Personal};
use sluice_proof::learning::rule::ProposedRule;
use sluice_proof::learning::{Conflict, Field, Fleet, Proposal, StudyEnd, yaml};
use sluice_text::{grouped, is_hidden, secrets, shortened};
use sluice_xds::TypeUrl;

/// Classes of a rule whose clients are counted, and those whose values are shown.
const CLASSES_MAX: usize = 1_000;
const LARGEST_MAX: usize = 20;

/// Names and pairs in a list.
const LISTED_MAX: usize = 100;

/// The fields in which a pair of nodes differs.
const DIFFER_MAX: usize = 20;

/// Letters of a value: clients state them.
const LETTERS_MAX: usize = 60;

/// The parts of a study that is over.
pub struct Findings<'a> {
    /// `server_uri` of the server.
    pub server: &'a str,
    pub list: &'a NodeList,
    pub fleet: &'a Fleet,
    pub inquiry: &'a Inquiry,
    pub proposal: &'a Proposal,
    /// The comparison of other rules, if somebody asked for it.
    pub coarse: Option<&'a [Coarse]>,
    /// The first line of the rules.
    pub head: &'a str,
}

impl Findings<'_> {
    pub fn report(&self) -> StudyReport {
        let Proposal { nodes, asked, fingerprints, shared, endpoints, personal, fields, rules, classes } =
            self.proposal;
        let rules = rules.iter().zip(classes);
        StudyReport {
            server: self.server.to_owned(),
            end: end_word(self.inquiry.end).to_owned(),
            reason: self.inquiry.reason(),
            entries: self.list.entries,
            left_out: self.left_out(),
            nodes: *nodes,
            asked: *asked,
            fingerprints: *fingerprints,
            streams: self.streams(),
            shared: shared.as_ref().map(|shared| self.grouping(shared)),
            endpoints: endpoints.as_ref().map(|endpoints| self.endpoints(endpoints)),
            personal: personal.iter().map(|personal| self.personal(personal)).collect(),
            restless: self.restless(),
            refused: self.refused(),
            fields: fields
                .iter()
                .map(|facts| StudiedField {
                    field: facts.field.to_string(),
                    values: facts.values,
                    unique: facts.is_unique,
                })
                .collect(),
            rules: rules.map(|(rule, classes)| self.rule(rule, classes)).collect(),
            check: self.coarse.map(|coarse| coarse.iter().map(|coarse| self.coarse(coarse)).collect()),
            yaml: self.yaml(),
        }
    }

    /// Nodes that the relay shows already are no part of the list's own account.
    fn left_out(&self) -> Vec<LeftOut> {
        let mut left_out = self.list.left_out.clone();
        for number in &self.inquiry.shown {
            left_out.entry(Omission::Shown).or_default().add(&self.id(*number));
        }
        let left_out = left_out.into_iter().map(|(reason, left_out)| LeftOut {
            reason: reason.name().to_owned(),
            why: reason.text().to_owned(),
            count: left_out.count,
            places: left_out.places,
        });
        left_out.collect()
    }

    /// The upstream streams of all rules.
    fn streams(&self) -> usize {
        self.proposal.classes.iter().map(|classes| classes.count).sum()
    }

    fn grouping(&self, grouping: &Grouping) -> ShownGrouping {
        ShownGrouping {
            types: messages(&grouping.types),
            answers: grouping.groups,
            minimum: grouping.minimum.iter().map(|decisive| self.decisive(decisive)).collect(),
            closure: paths(&grouping.closure),
            split: paths(&grouping.split),
            classes: self.classes_of(grouping),
        }
    }

    fn decisive(&self, decisive: &Decisive) -> DecisiveField {
        let pair = |(one, other)| NodePair {
            nodes: vec![self.id(one), self.id(other)],
            values: vec![self.value(&decisive.field, one), self.value(&decisive.field, other)],
        };
        DecisiveField {
            field: decisive.field.to_string(),
            values: decisive.values,
            counterexamples: decisive.counterexamples,
            decisive: decisive.is_alone,
            example: decisive.example.map(pair),
        }
    }

    /// The classes of the last rule for the types of a grouping.
    fn classes_of(&self, grouping: &Grouping) -> usize {
        let rules = self.proposal.rules.iter().zip(&self.proposal.classes);
        let mut of_types = rules.filter(|(rule, _)| match &self.proposal.endpoints {
            Some(Endpoints::Finer(finer)) if finer == grouping => rule.types == finer.types,
            _ => rule.types.is_empty() || rule.types == grouping.types,
        });
        of_types.next_back().map_or(0, |(_, classes)| classes.count)
    }

    fn endpoints(&self, endpoints: &Endpoints) -> EndpointGrouping {
        match endpoints {
            Endpoints::Finer(finer) => {
                EndpointGrouping { finer: Some(self.grouping(finer)), ..EndpointGrouping::default() }
            }
            Endpoints::Coarser { types, minimum, classes } => {
                let coarser =
                    CoarserEndpoints { types: messages(types), minimum: paths(minimum), classes: *classes };
                EndpointGrouping { coarser: Some(coarser), ..EndpointGrouping::default() }
            }
        }
    }

    fn personal(&self, personal: &Personal) -> PersonalType {
        PersonalType {
            r#type: personal.type_url.message().to_owned(),
            explained_by: personal.explained_by.as_ref().map(Field::to_string),
            derived: matches!(personal.explained_by, Some(Field::Derived(_))),
            example: personal.example.map(|(one, other)| vec![self.id(one), self.id(other)]),
        }
    }

    fn restless(&self) -> Vec<RestlessNames> {
        let restless = self.inquiry.study.evidence().restless().map(|(type_url, names)| RestlessNames {
            r#type: type_url.message().to_owned(),
            count: names.len(),
            names: names.iter().take(LISTED_MAX).map(|name| name.as_str().to_owned()).collect(),
        });
        restless.collect()
    }

    fn refused(&self) -> RefusedNodes {
        let (refused, count) = self.inquiry.study.refused();
        let nodes = refused
            .iter()
            .map(|refusal| RefusedNode { node: self.id(refusal.node), status: refusal.status.to_string() });
        RefusedNodes { count, nodes: nodes.collect() }
    }

    fn rule(&self, rule: &ProposedRule, classes: &ClassList) -> LearnedRule {
        let fields = self.minimum_of(&rule.types);
        let values =
            |node: usize| fields.iter().map(move |field| self.field_with_value(field, node)).collect();
        let largest = classes.classes.iter().take(LARGEST_MAX).map(|(node, _)| values(*node));
        LearnedRule {
            types: messages(&rule.types),
            personal: rule.is_personal(),
            classes: classes.count,
            clients: classes.classes.iter().take(CLASSES_MAX).map(|(_, clients)| *clients).collect(),
            largest: if rule.is_personal() { Vec::new() } else { largest.collect() },
        }
    }

    /// The fields whose values tell the classes of a rule apart.
    fn minimum_of(&self, types: &[TypeUrl]) -> Vec<&Field> {
        let finer = match &self.proposal.endpoints {
            Some(Endpoints::Finer(finer)) if finer.types == types => Some(finer),
            _ => None,
        };
        let groupings = self.proposal.shared.iter().chain(finer);
        groupings.flat_map(|grouping| &grouping.minimum).map(|decisive| &decisive.field).collect()
    }

    fn coarse(&self, coarse: &Coarse) -> CoarseRule {
        CoarseRule {
            rule: coarse.rule.clone(),
            r#type: coarse.type_url.message().to_owned(),
            classes: coarse.conflicts.len(),
            explained_by: paths(&coarse.explained_by),
            pairs: coarse.conflicts.iter().take(LISTED_MAX).map(|conflict| self.pair(conflict)).collect(),
        }
    }

    fn pair(&self, conflict: &Conflict) -> CoarsePair {
        let (one, other) = conflict.nodes;
        CoarsePair {
            nodes: vec![self.id(one), self.id(other)],
            names: conflict.names.iter().take(LISTED_MAX).map(|name| name.as_str().to_owned()).collect(),
            count: conflict.names.len(),
            differ: paths(self.fleet.differences(conflict.nodes).iter().take(DIFFER_MAX)),
        }
    }

    fn id(&self, node: usize) -> String {
        self.fleet.nodes.get(node).map_or_else(String::new, |node| node.id.clone())
    }

    /// The value of a field at a node, unless it is a secret.
    fn value(&self, field: &Field, node: usize) -> Option<String> {
        let value = self.fleet.nodes.get(node).and_then(|node| field.value(node))?;
        let is_secret = field.to_string().split('.').any(secrets::is_name);
        let value = match is_secret {
            true => secrets::hidden(value.len()),
            false => secrets::hide(&value).unwrap_or(value),
        };
        let letters = value.chars().map(|letter| if is_hidden(letter) { ' ' } else { letter });
        Some(shortened(&letters.collect::<String>(), LETTERS_MAX))
    }

    fn field_with_value(&self, field: &Field, node: usize) -> String {
        format!("{field}={}", self.value(field, node).unwrap_or_else(|| "absent".to_owned()))
    }

    /// The rules, with the evidence in comments.
    fn yaml(&self) -> String {
        let proposal = self.proposal;
        let about = format!(
            "{}: {} of {} asked, {} upstream in place of {}.",
            self.server,
            grouped(proposal.asked),
            quantity(proposal.nodes, "node"),
            quantity(self.streams(), "stream"),
            grouped(proposal.nodes)
        );
        let how =
            "Beside each field: its values in the fleet, and the pairs of nodes that prove that it decides.";
        yaml(proposal, &[self.head.to_owned(), about, how.to_owned()])
    }
}

fn quantity(number: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

fn messages(types: &[TypeUrl]) -> Vec<String> {
    types.iter().map(|type_url| type_url.message().to_owned()).collect()
}

fn paths<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Vec<String> {
    fields.into_iter().map(Field::to_string).collect()
}

fn end_word(end: StudyEnd) -> &'static str {
    match end {
        StudyEnd::Complete => "complete",
        StudyEnd::TimeIsUp => "time_is_up",
        StudyEnd::Refused => "refused",
        StudyEnd::Lost => "lost",
        StudyEnd::TooLarge => "too_large",
        StudyEnd::Leaving => "leaving",
        StudyEnd::Abandoned => "abandoned",
    }
}
