//! The findings of a study, for people and for scripts.

use std::fmt::Write;

use serde_json::{Value, json};

use super::check::Coarse;
use super::inquiry::Inquiry;
use super::nodes::NodeList;
use sluice_proof::learning::proposal::{Decisive, Endpoints, FieldFacts, Grouping};
use sluice_proof::learning::{Conflict, Field, Fleet, Proposal, StudyEnd, yaml};
use sluice_text::shortened;
use sluice_xds::TypeUrl;

/// Lists in the text: classes, names, refused nodes.
const LIST_MAX: usize = 20;
/// Names of resources in a sentence.
const NAMES_MAX: usize = 5;
/// Letters of a value: clients state them.
const LETTERS_MAX: usize = 60;

/// Everything that a study found.
pub(super) struct Findings<'a> {
    pub uri: &'a str,
    pub list: &'a NodeList,
    pub fleet: &'a Fleet,
    pub inquiry: &'a Inquiry,
    pub proposal: &'a Proposal,
    /// With `--check`.
    pub coarse: Option<&'a Vec<Coarse>>,
}

/// A number with its noun, and thousands in groups.
fn count(number: usize, one: &str, several: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { several })
}

fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn short(types: &[TypeUrl]) -> String {
    types.iter().map(TypeUrl::short).collect::<Vec<_>>().join(", ")
}

fn paths(fields: impl IntoIterator<Item = impl ToString>) -> String {
    let paths: Vec<String> = fields.into_iter().map(|field| field.to_string()).collect();
    if paths.is_empty() { "none".to_owned() } else { paths.join(", ") }
}

// Writing to a String can't fail.
macro_rules! say {
    ($text:expr, $($line:tt)*) => { let _ = writeln!($text, $($line)*); };
}

impl Findings<'_> {
    /// The sentences and tables for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_account(&mut text);
        self.write_summary(&mut text);
        if let Some(shared) = &self.proposal.shared {
            self.write_grouping(&mut text, shared);
        }
        match &self.proposal.endpoints {
            Some(Endpoints::Finer(finer)) => {
                say!(
                    text,
                    "\n{} depends on more: with it, there are {}. A rule of its own puts the type on upstream streams apart, \
                     and only the order of types joins the two.",
                    short(&finer.types),
                    count(finer.groups, "different answer", "different answers")
                );
                self.write_grouping(&mut text, finer);
            }
            Some(Endpoints::Coarser { types, minimum, classes }) => {
                say!(
                    text,
                    "\n{} depends on less: on {} alone. A rule of its own would have {}, on upstream streams apart; none is \
                     proposed.",
                    short(types),
                    paths(minimum),
                    count(*classes, "class", "classes")
                );
            }
            None => {}
        }
        self.write_hidden(&mut text);
        self.write_personal(&mut text);
        self.write_restless(&mut text);
        self.write_refused(&mut text);
        self.write_classes(&mut text);
        self.write_check(&mut text);
        text
    }

    fn write_account(&self, text: &mut String) {
        for line in self.list.account() {
            say!(text, "{line}");
        }
        let proposal = self.proposal;
        let unasked = proposal.nodes - proposal.asked;
        say!(
            text,
            "{}: {} in {}, {} asked",
            self.uri,
            count(proposal.nodes, "node", "nodes"),
            count(proposal.fingerprints, "fingerprint", "fingerprints"),
            grouped(proposal.asked)
        );
        if unasked > 0 {
            let reason = match self.inquiry.end {
                StudyEnd::Complete => "the server gave them no answer".to_owned(),
                _ => self.inquiry.reason(),
            };
            say!(text, "{} without evidence: {reason}", count(unasked, "node", "nodes"));
        }
    }

    fn write_summary(&self, text: &mut String) {
        let (proposal, streams) = (self.proposal, self.streams());
        match &proposal.shared {
            Some(shared) => {
                say!(
                    text,
                    "\nYour {} have {} ({}).",
                    count(proposal.asked, "node", "nodes"),
                    count(shared.groups, "different answer", "different answers"),
                    short(&shared.types)
                );
            }
            None => {
                say!(
                    text,
                    "\nEach of your {} has answers of its own.",
                    count(proposal.asked, "node", "nodes")
                );
            }
        }
        let saved = proposal.nodes.saturating_sub(streams) * 100 / proposal.nodes.max(1);
        say!(
            text,
            "With the rules below, sluice keeps {} to the server in place of {}: {saved} % fewer.",
            count(streams, "stream", "streams"),
            grouped(proposal.nodes)
        );
    }

    /// The upstream streams of all rules.
    fn streams(&self) -> usize {
        self.proposal.classes.iter().map(|classes| classes.count).sum()
    }

    fn write_grouping(&self, text: &mut String, grouping: &Grouping) {
        let decisive: Vec<&Field> = grouping.minimum.iter().map(|decisive| &decisive.field).collect();
        match grouping.minimum.is_empty() {
            true => {
                say!(text, "No field decides: all nodes are told the same.");
            }
            false => {
                say!(text, "These fields decide: {}.", paths(decisive.iter()));
            }
        }
        for decisive in &grouping.minimum {
            self.write_decisive(text, decisive);
        }
        let constant = |field: &&Field| {
            let facts = self.proposal.fields.iter().find(|facts| facts.field == **field);
            facts.is_some_and(|facts| facts.values > 1)
        };
        let follow: Vec<&Field> =
            grouping.closure.iter().filter(|field| !decisive.contains(field)).filter(constant).collect();
        if !follow.is_empty() {
            say!(
                text,
                "These follow from the answers today, and split too, so that a new value is never a wrong guess: {}.",
                paths(follow)
            );
        }
        let classes = self.classes_of(grouping);
        if classes > grouping.groups {
            say!(
                text,
                "Lossless, but finer than the answers: {} more than different answers.",
                count(classes - grouping.groups, "class", "classes")
            );
        }
    }

    /// The fields of no rule.
    fn write_hidden(&self, text: &mut String) {
        let finer = match &self.proposal.endpoints {
            Some(Endpoints::Finer(finer)) => Some(finer),
            _ => None,
        };
        let groupings = || self.proposal.shared.iter().chain(finer);
        let hidden = |facts: &&FieldFacts| groupings().all(|grouping| !grouping.split.contains(&facts.field));
        let (unique, idle): (Vec<_>, Vec<_>) =
            self.proposal.fields.iter().filter(hidden).partition(|facts| facts.is_unique);
        if groupings().next().is_some() && !idle.is_empty() {
            let idle = idle
                .iter()
                .map(|facts| format!("{} ({})", facts.field, count(facts.values, "value", "values")));
            say!(text, "\nThese make no difference, and do not split: {}.", paths(idle));
        }
        say!(text, "Unique to each client: {}.", paths(unique.iter().map(|facts| &facts.field)));
    }

    fn classes_of(&self, grouping: &Grouping) -> usize {
        let rules = self.proposal.rules.iter().zip(&self.proposal.classes);
        let mut of_types = rules.filter(|(rule, _)| match &self.proposal.endpoints {
            Some(Endpoints::Finer(finer)) if finer == grouping => rule.types == finer.types,
            _ => rule.types.is_empty() || rule.types == grouping.types,
        });
        of_types.next_back().map_or(0, |(_, classes)| classes.count)
    }

    fn write_decisive(&self, text: &mut String, decisive: &Decisive) {
        let numbers = format!(
            "{}, {} without it",
            count(decisive.values, "value", "values"),
            count(
                usize::try_from(decisive.counterexamples).unwrap_or(usize::MAX),
                "counterexample",
                "counterexamples"
            )
        );
        let example = decisive.example.map(|(one, other)| {
            let nodes = format!(
                "{} ({}) and {} ({})",
                self.id(one),
                self.value(&decisive.field, one),
                self.id(other),
                self.value(&decisive.field, other)
            );
            match decisive.is_alone {
                true => format!(": {nodes} are told two things, and differ in nothing else that could split"),
                false => format!(": {nodes} are told two things"),
            }
        });
        say!(text, "  {}: {numbers}{}", decisive.field, example.unwrap_or_default());
    }

    fn id(&self, node: usize) -> String {
        let id = self.fleet.nodes.get(node).map_or("", |node| node.id.as_str());
        safe(id)
    }

    fn value(&self, field: &Field, node: usize) -> String {
        let value = self.fleet.nodes.get(node).and_then(|node| field.value(node));
        value.map_or_else(|| "absent".to_owned(), |value| safe(&value))
    }

    fn write_personal(&self, text: &mut String) {
        for personal in &self.proposal.personal {
            let example = personal.example.map(|(one, other)| {
                format!(
                    " ({} and {} are told two things, and no shared field tells them apart)",
                    self.id(one),
                    self.id(other)
                )
            });
            say!(
                text,
                "\n{} is personal: only what each client has alone explains the answers{}. A rule of its own gives each client a \
                 class: {}, and the content of the type once for each.",
                personal.type_url.short(),
                example.unwrap_or_default(),
                count(self.proposal.nodes, "upstream stream", "upstream streams")
            );
            if let Some(field) = &personal.explained_by {
                let remedy = match field {
                    Field::Derived(_) => {
                        "and `split_by` has no word for that; a table of `facts` can say the same"
                    }
                    _ => "and has a value for every second node; split by it by hand if that is no accident",
                };
                say!(text, "  {field} explains it, {remedy}");
            }
        }
    }

    fn write_restless(&self, text: &mut String) {
        for (type_url, names) in self.inquiry.study.evidence().restless() {
            let shown: Vec<String> = names.iter().take(NAMES_MAX).map(|name| safe(name.as_str())).collect();
            let more = names.len().saturating_sub(NAMES_MAX);
            let more = if more > 0 { format!(" and {} more", grouped(more)) } else { String::new() };
            say!(
                text,
                "\n{} {} cannot be compared: the server said two things to one node, by chance or because its configuration \
                 changed meanwhile: {}{more}",
                type_url.short(),
                count(names.len(), "name", "names"),
                shown.join(", ")
            );
        }
    }

    fn write_refused(&self, text: &mut String) {
        let (named, count_of_all) = self.inquiry.study.refused();
        if count_of_all == 0 {
            return;
        }
        say!(text, "\nThe server gave {} no answer:", count(count_of_all, "node", "nodes"));
        for refusal in named.iter().take(LIST_MAX) {
            say!(text, "  {}: {}", self.id(refusal.node), safe(&refusal.status.to_string()));
        }
        if count_of_all > LIST_MAX {
            say!(text, "  and {} more", grouped(count_of_all - LIST_MAX));
        }
    }

    fn write_classes(&self, text: &mut String) {
        for (rule, classes) in self.proposal.rules.iter().zip(&self.proposal.classes) {
            let what = if rule.types.is_empty() { "all other types".to_owned() } else { short(&rule.types) };
            say!(text, "\nClasses for {what}: {}", grouped(classes.count));
            if rule.is_personal() {
                continue;
            }
            let fields = self.minimum_of(&rule.types);
            for (node, clients) in classes.classes.iter().take(LIST_MAX) {
                let values = fields.iter().map(|field| format!("{field}={}", self.value(field, *node)));
                let values: Vec<String> = values.collect();
                say!(text, "  {:>8}  {}", count(*clients, "client", "clients"), values.join(" "));
            }
            if classes.count > LIST_MAX {
                say!(text, "  and {} more", grouped(classes.count - LIST_MAX));
            }
        }
    }

    fn minimum_of(&self, types: &[TypeUrl]) -> Vec<&Field> {
        let minimum = |grouping: &'_ Grouping| grouping.types == types;
        let finer = match &self.proposal.endpoints {
            Some(Endpoints::Finer(finer)) if minimum(finer) => Some(finer),
            _ => None,
        };
        let shared = self.proposal.shared.iter();
        shared.chain(finer).flat_map(|grouping| &grouping.minimum).map(|decisive| &decisive.field).collect()
    }

    fn write_check(&self, text: &mut String) {
        let Some(coarse) = self.coarse else { return };
        if coarse.is_empty() {
            say!(text, "\n--check: the rules in force lose nothing of this evidence.");
        }
        for Coarse { rule, type_url, conflicts, explained_by } in coarse {
            let explained = match explained_by.is_empty() {
                true => "no field explains all of them".to_owned(),
                false => format!("explained by {}", paths(explained_by)),
            };
            say!(
                text,
                "\n--check: {rule} is too coarse for {}: {} of its classes have clients that the server tells two things; {explained}",
                type_url.short(),
                grouped(conflicts.len())
            );
            for conflict in conflicts.iter().take(NAMES_MAX) {
                self.write_conflict(text, conflict);
            }
        }
    }

    fn write_conflict(&self, text: &mut String, conflict: &Conflict) {
        let (one, other) = conflict.nodes;
        let names = conflict.names.iter().take(NAMES_MAX).map(|name| safe(name.as_str()));
        let more = match conflict.names.len().saturating_sub(NAMES_MAX) {
            0 => String::new(),
            more => format!(" and {} more", grouped(more)),
        };
        let fields: Vec<Field> = self.fleet.differences(conflict.nodes).into_iter().take(LIST_MAX).collect();
        say!(
            text,
            "  {} and {} are told two things about {}{more}; the nodes differ in {}",
            self.id(one),
            self.id(other),
            paths(names),
            paths(fields)
        );
    }

    /// The rules, with the evidence in comments.
    pub fn yaml(&self, head: &str) -> String {
        let proposal = self.proposal;
        let about = format!(
            "{}: {} of {} asked, {} upstream in place of {}.",
            safe(self.uri),
            grouped(proposal.asked),
            count(proposal.nodes, "node", "nodes"),
            count(self.streams(), "stream", "streams"),
            grouped(proposal.nodes)
        );
        let how =
            "Beside each field: its values in the fleet, and the pairs of nodes that prove that it decides.";
        yaml(proposal, &[head.to_owned(), about, how.to_owned()])
    }

    /// The same for scripts. Values of nodes are left out.
    pub fn json(&self) -> Value {
        let proposal = self.proposal;
        let grouping = |grouping: &Grouping| {
            let decisive = |decisive: &Decisive| {
                json!({
                    "field": decisive.field.to_string(),
                    "values": decisive.values,
                    "counterexamples": decisive.counterexamples,
                    "decisive": decisive.is_alone,
                    "example": decisive.example.map(|(one, other)| [self.raw_id(one), self.raw_id(other)]),
                })
            };
            json!({
                "types": grouping.types.iter().map(TypeUrl::message).collect::<Vec<_>>(),
                "answers": grouping.groups,
                "minimum": grouping.minimum.iter().map(decisive).collect::<Vec<_>>(),
                "closure": grouping.closure.iter().map(Field::to_string).collect::<Vec<_>>(),
                "split": grouping.split.iter().map(Field::to_string).collect::<Vec<_>>(),
                "classes": self.classes_of(grouping),
            })
        };
        let endpoints = proposal.endpoints.as_ref().map(|endpoints| match endpoints {
            Endpoints::Finer(finer) => json!({ "finer": grouping(finer) }),
            Endpoints::Coarser { types, minimum, classes } => json!({ "coarser": {
                "types": types.iter().map(TypeUrl::message).collect::<Vec<_>>(),
                "minimum": minimum.iter().map(Field::to_string).collect::<Vec<_>>(),
                "classes": classes,
            } }),
        });
        let left_out = self.list.left_out.iter().map(|(reason, left_out)| {
            (reason.name().to_owned(), json!({ "count": left_out.count, "places": left_out.places }))
        });
        let (refused, refused_count) = self.inquiry.study.refused();
        json!({
            "server": self.uri,
            "end": end_word(self.inquiry.end),
            "entries": self.list.entries,
            "left_out": left_out.collect::<serde_json::Map<_, _>>(),
            "nodes": proposal.nodes,
            "asked": proposal.asked,
            "fingerprints": proposal.fingerprints,
            "streams": self.streams(),
            "shared": proposal.shared.as_ref().map(grouping),
            "endpoints": endpoints,
            "personal": self.personal_json(),
            "restless": self.restless_json(),
            "refused": { "count": refused_count, "nodes": refused.iter().map(|refusal| json!({
                "node": self.raw_id(refusal.node), "status": refusal.status.to_string(),
            })).collect::<Vec<_>>() },
            "fields": proposal.fields.iter().map(|facts| json!({
                "field": facts.field.to_string(), "values": facts.values, "unique": facts.is_unique,
            })).collect::<Vec<_>>(),
            "rules": self.rules_json(),
            "check": self.coarse.map(|coarse| self.check_json(coarse)),
            "yaml": self.yaml(super::HEAD),
        })
    }

    fn raw_id(&self, node: usize) -> String {
        self.fleet.nodes.get(node).map_or_else(String::new, |node| node.id.clone())
    }

    fn personal_json(&self) -> Vec<Value> {
        let personal = self.proposal.personal.iter().map(|personal| {
            json!({
                "type": personal.type_url.message(),
                "explained_by": personal.explained_by.as_ref().map(Field::to_string),
                "example": personal.example.map(|(one, other)| [self.raw_id(one), self.raw_id(other)]),
            })
        });
        personal.collect()
    }

    fn restless_json(&self) -> Vec<Value> {
        let restless = self.inquiry.study.evidence().restless().map(|(type_url, names)| {
            let shown: Vec<&str> = names.iter().take(100).map(|name| name.as_str()).collect();
            json!({ "type": type_url.message(), "count": names.len(), "names": shown })
        });
        restless.collect()
    }

    fn rules_json(&self) -> Vec<Value> {
        let rules = self.proposal.rules.iter().zip(&self.proposal.classes).map(|(rule, classes)| {
            let clients: Vec<usize> =
                classes.classes.iter().take(1_000).map(|(_, clients)| *clients).collect();
            json!({
                "types": rule.types.iter().map(TypeUrl::message).collect::<Vec<_>>(),
                "personal": rule.is_personal(),
                "classes": classes.count,
                "clients": clients,
            })
        });
        rules.collect()
    }

    fn check_json(&self, coarse: &[Coarse]) -> Vec<Value> {
        let coarse = coarse.iter().map(|coarse| {
            let pairs = coarse.conflicts.iter().take(100).map(|conflict| {
                let names: Vec<&str> = conflict.names.iter().take(100).map(|name| name.as_str()).collect();
                json!({
                    "nodes": [self.raw_id(conflict.nodes.0), self.raw_id(conflict.nodes.1)],
                    "names": names,
                    "count": conflict.names.len(),
                })
            });
            json!({
                "rule": coarse.rule,
                "type": coarse.type_url.message(),
                "classes": coarse.conflicts.len(),
                "explained_by": coarse.explained_by.iter().map(Field::to_string).collect::<Vec<_>>(),
                "pairs": pairs.collect::<Vec<_>>(),
            })
        });
        coarse.collect()
    }
}

fn end_word(end: StudyEnd) -> &'static str {
    match end {
        StudyEnd::Complete => "complete",
        StudyEnd::TimeIsUp => "time_is_up",
        StudyEnd::Refused => "refused",
        StudyEnd::Lost => "lost",
        StudyEnd::TooLarge => "too_large",
    }
}

/// A text of a node on one line of a terminal.
fn safe(text: &str) -> String {
    let letters = text.chars().map(|letter| if sluice_text::is_hidden(letter) { ' ' } else { letter });
    shortened(&letters.collect::<String>(), LETTERS_MAX)
}
