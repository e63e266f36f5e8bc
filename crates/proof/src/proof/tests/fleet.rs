//! A fleet under a machine that may split classes: a server whose answers follow from the labels of a node, and
//! the driver's work with classes, members and shadows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::bench::*;
use crate::proof::content::Content;
use crate::proof::*;
use sluice_engine::Time;
use sluice_engine::collection::Collection;
use sluice_xds::{Code, Node, Status, TypeUrl};

/// The server's version of the cluster `a`; times 2^64, of `b`, which is absent with 0.
pub type Plane = Box<dyn Fn(&Node) -> u128>;

/// From this bit on a version says how the content is spelled.
const SPELLED: u32 = 64;

/// The label of a node, without quotes.
pub fn label(node: &Node, key: &str) -> String {
    node.metadata.get(key).map(|value| value.to_string().replace('"', "")).unwrap_or_default()
}

/// A class of the fleet.
#[derive(Clone)]
struct FleetClass {
    node: Arc<Node>,
    split_from: Option<ClassKey>,
}

pub struct Fleet {
    pub proof: Proof,
    pub now: Time,
    plane: Plane,
    classes: BTreeMap<ClassKey, FleetClass>,
    pub members: BTreeMap<u64, (ClassKey, Arc<Node>)>,
    shadows: BTreeMap<ShadowId, OpenShadow>,
    /// Content as published last, by class and by shadow.
    published: BTreeMap<String, u128>,
    /// The names of nodes without an answer for shadows.
    pub silent: BTreeSet<String>,
    /// The names of nodes, and how many of their next shadows the server ends.
    pub failing: BTreeMap<String, u32>,
    /// The names of nodes that ask for nothing of the type of `b`, and of those that are never shown.
    pub without_b: BTreeSet<String>,
    pub never: BTreeSet<String>,
    /// Whether splits are carried out.
    pub obeys: bool,
    /// Whether equal content has other bytes on each stream.
    pub is_random: bool,
    /// Whether the sources of classes without members go on.
    pub lingers: bool,
    /// The type of `b`; clients ask for all of both types.
    pub type_of_b: TypeUrl,
    pub splits: Vec<(Time, Split)>,
    pub joins: Vec<ClassKey>,
    pub refusals: Vec<(bool, ClassKey)>,
    pub happenings: Vec<Happening>,
}

impl Fleet {
    pub fn new(policy: Policy, plane: impl Fn(&Node) -> u128 + 'static) -> Fleet {
        let settings = ProofSettings { policy, ..ProofSettings::default() };
        Fleet {
            proof: Proof::new(settings, 5),
            now: at_ms(1_000_000),
            plane: Box::new(plane),
            classes: BTreeMap::new(),
            members: BTreeMap::new(),
            shadows: BTreeMap::new(),
            published: BTreeMap::new(),
            silent: BTreeSet::new(),
            failing: BTreeMap::new(),
            without_b: BTreeSet::new(),
            never: BTreeSet::new(),
            obeys: true,
            is_random: false,
            lingers: false,
            type_of_b: clusters(),
            splits: Vec::new(),
            joins: Vec::new(),
            refusals: Vec::new(),
            happenings: Vec::new(),
        }
    }

    /// Adds a class and its members; the first is the representative.
    pub fn class(&mut self, key: &str, members: &[(&str, &[(&str, &str)])]) {
        for (name, labels) in members {
            let id = self.members.len() as u64 + 1;
            self.put(id, &key.into(), node(name, labels), None);
        }
    }

    /// Three teams, three zones, four of each combination but the representative.
    pub fn grid(policy: Policy, plane: impl Fn(&Node) -> u128 + 'static) -> Fleet {
        let mut fleet = Fleet::new(policy, plane);
        for number in 0..36usize {
            let (team, zone) = (["red", "blue", "green"][number % 3], ["a", "b", "c"][number / 3 % 3]);
            let name = format!("n{number}");
            fleet.class("all", &[(&name, &[("team", team), ("zone", zone), ("app", "x")])]);
        }
        fleet
    }

    /// Adds a client of a class that was split off.
    pub fn class_of(&mut self, key: &str, parent: &str, name: &str, labels: &[(&str, &str)]) {
        let id = self.members.len() as u64 + 1;
        self.put(id, &key.into(), node(name, labels), Some(parent.into()));
    }

    fn put(&mut self, id: u64, class: &ClassKey, node: Arc<Node>, from: Option<ClassKey>) {
        if !self.classes.contains_key(class) {
            let facts = ClassFacts {
                rule: "node_classes[0]".into(),
                fields: fields(&node),
                node: node.clone(),
                is_never: false,
                split_from: from.clone(),
            };
            self.proof.class(class, facts, self.now);
            self.classes.insert(class.clone(), FleetClass { node: node.clone(), split_from: from });
        }
        let both: Vec<Wanted> =
            [clusters(), self.type_of_b.clone()].map(|url| (url, Collection::Wildcard)).into();
        let is_without = self.type_of_b == clusters() || self.without_b.contains(&node.id);
        let wants = if is_without { all_clusters() } else { both.into() };
        let is_never = self.never.contains(&node.id);
        self.proof.member(class, MemberId(id), Member { wants, is_never, ..member(&node) }, self.now);
        self.members.insert(id, (class.clone(), node));
    }

    fn leave(&mut self, id: u64) -> Option<Arc<Node>> {
        let (class, node) = self.members.remove(&id)?;
        self.proof.member_left(&class, MemberId(id), self.now);
        if !self.lingers && !self.members.values().any(|member| member.0 == class) {
            self.proof.class_ended(&class, self.now);
            self.classes.remove(&class);
            self.published.remove(&format!("class {class}"));
        }
        Some(node)
    }

    /// Another function of the nodes is in force at the server.
    pub fn push(&mut self, plane: impl Fn(&Node) -> u128 + 'static) {
        self.plane = Box::new(plane);
    }

    /// The version that a class has now, by the server.
    pub fn version_of(&self, node: &Node) -> u128 {
        (self.plane)(node)
    }

    /// The members whose class has other content than the server has for them.
    pub fn wrong(&self) -> usize {
        let is_wrong = |member: &&(ClassKey, Arc<Node>)| {
            self.version_of(&self.classes[&member.0].node) != self.version_of(&member.1)
        };
        self.members.values().filter(is_wrong).count()
    }

    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    pub fn members_of(&self, class: &str) -> usize {
        self.members.values().filter(|member| *member.0 == *class).count()
    }

    pub fn class_of_node(&self, name: &str) -> &str {
        self.members.values().find(|member| member.1.id == name).map_or("", |member| &member.0)
    }

    /// Time passes.
    pub fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            let until = self.now + Duration::from_millis(100);
            self.publish();
            while let Some(next) = self.proof.poll_timeout().filter(|next| *next <= until) {
                self.now = self.now.max(next);
                self.proof.handle_timeout(self.now);
                self.drain();
            }
            self.now = until;
        }
    }

    /// Passes time in steps until the test holds. Returns the time.
    pub fn pass_until(&mut self, seconds: u64, test: impl Fn(&Fleet) -> bool) -> Duration {
        let begun = self.now;
        while !test(self) {
            self.pass(100);
            assert!(self.now.since(begun).as_secs() <= seconds, "not within {seconds} s");
        }
        self.now.since(begun)
    }

    /// The content of a stream.
    fn content(&self, version: u128, stream: u64) -> Content {
        let spelling = if self.is_random { u128::from(stream) << SPELLED } else { 0 };
        let (a, b) = ((version & u128::from(u64::MAX)) | spelling, version >> 64);
        let of_b: &[(&str, u128)] = if b == 0 { &[] } else { &[("b", b | spelling)] };
        if self.type_of_b == clusters() {
            return wildcard(&clusters(), &[&[("a", a)], of_b].concat());
        }
        let mut content = wildcard(&clusters(), &[("a", a)]);
        content.types.extend(wildcard(&self.type_of_b, of_b).types);
        content
    }

    fn publish(&mut self) {
        for (key, class) in self.classes.clone() {
            let version = self.version_of(&class.node);
            if self.published.insert(format!("class {key}"), version) != Some(version) {
                let stream = self.now.as_micros();
                self.proof.class_published(&key, self.content(version, stream), Some(1), self.now);
                self.drain();
            }
        }
        for (id, open) in self.shadows.clone() {
            if let Some(left) = self.failing.get_mut(&open.node.id).filter(|left| **left > 0) {
                *left -= 1;
                self.shadows.remove(&id);
                self.proof.shadow_ended(id, Status::new(Code::Unavailable, "ended"), self.now);
                self.drain();
                continue;
            }
            let version = self.version_of(&open.node);
            let is_silent = self.silent.contains(&open.node.id);
            if !is_silent && self.published.insert(format!("shadow {}", id.0), version) != Some(version) {
                self.proof.shadow_published(id, self.content(version, id.0), Some(1), self.now);
                self.proof.handle_timeout(self.now);
                self.drain();
            }
        }
    }

    pub fn drain(&mut self) {
        while let Some(output) = self.proof.poll_output() {
            match output {
                Output::Open(open) => drop(self.shadows.insert(open.id, open)),
                Output::Close(id) => drop(self.shadows.remove(&id)),
                Output::Keep(_) => {}
                Output::Ask(question) => {
                    let meaning = |pair: &ResourcePair| match pair.class.version.0 ^ pair.shadow.version.0 {
                        unlike if unlike & ((1 << SPELLED) - 1) == 0 => {
                            Meaning::Equal { ignored: Vec::new() }
                        }
                        _ => Meaning::Differs { paths: vec!["field".into()], ignored: Vec::new() },
                    };
                    let meanings = question.pairs.iter().map(meaning).collect();
                    self.proof.meant(question.id, meanings, self.now);
                }
                Output::Tell(happening) => self.happenings.push(happening),
                Output::Split(split) => {
                    self.splits.push((self.now, split.clone()));
                    if self.obeys {
                        self.split(&split);
                    }
                }
                Output::Join { class } => {
                    self.joins.push(class.clone());
                    self.join(&class);
                }
                Output::Refuse { class, .. } => self.refusals.push((true, class)),
                Output::Admit { class, .. } => self.refusals.push((false, class)),
            }
        }
    }

    /// The classes of the splits.
    pub fn split_classes(&self) -> Vec<&str> {
        self.splits.iter().map(|split| &*split.1.class).collect()
    }

    fn split(&mut self, split: &Split) {
        for (id, (class, node)) in self.members.clone() {
            let stated = fields(&node);
            let value = |path: &Arc<str>| {
                stated.0.iter().find(|field| field.path == *path).map(|field| field.value.clone())
            };
            let values: Vec<Option<Arc<str>>> = split.fields.iter().map(value).collect();
            if class == split.class && split.values.contains(&values) {
                let words: Vec<&str> = values.iter().map(|value| value.as_deref().unwrap_or("-")).collect();
                let child: ClassKey = format!("{class}/{}", words.join("+")).into();
                self.leave(id);
                self.put(id, &child, node, Some(class));
            }
        }
    }

    fn join(&mut self, class: &ClassKey) {
        let Some(parent) = self.classes[class].split_from.clone() else { return };
        let from = self.classes.get(&parent).and_then(|parent| parent.split_from.clone());
        for (id, (_, node)) in self.members.clone().into_iter().filter(|member| member.1.0 == *class) {
            self.leave(id);
            self.put(id, &parent, node, from.clone());
        }
    }

    pub fn count(&self, test: impl Fn(&Happening) -> bool) -> usize {
        self.happenings.iter().filter(|happening| test(happening)).count()
    }

    pub fn report(&self, class: &str) -> ClassReport {
        let report = self.proof.report(self.now);
        report.classes.into_iter().find(|report| *report.class == *class).unwrap()
    }
}
