//! The memory of rejections: nodes with rejections of push after push, and condemned contents (QUA-2, QUA-4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::downstream::{PushSet, PushUnit};
use crate::engine::rollout::UnitId;
use crate::engine::rollout::push::Condemned;
use crate::engine::rollout::tally::Rejection;
use crate::xds::{ResourceName, TypeUrl, Version};

/// The nodes remembered from push to push.
const NODES_MAX: usize = 10_000;

/// The contents with a vote, condemned or not.
const CONTENTS_MAX: usize = 10_000;

/// A resource with its version.
pub type Content = (TypeUrl, ResourceName, Version);

/// The memory of a plan.
#[derive(Debug, Default)]
pub struct Rejecters {
    /// The nodes that rejected the push before, each with its greatest number of rejecting streams. Many clients may share an
    /// id, or have none: one of them must not speak for the others.
    before: BTreeMap<Arc<str>, u32>,
    /// As `before`, of the push under way.
    now: BTreeMap<Arc<str>, u32>,
    /// The rejecting streams of each node in the tally under way.
    live: BTreeMap<Arc<str>, u32>,
    /// The blaming nodes of each content.
    votes: BTreeMap<Content, BTreeSet<Arc<str>>>,
    condemned: BTreeSet<Content>,
}

impl Rejecters {
    /// Another push begins.
    pub fn next_push(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    /// Another tally begins.
    pub fn next_tally(&mut self) {
        self.live.clear();
    }

    /// Whether a stream of the node rejected the push before.
    pub fn rejected_before(&self, node: &str) -> bool {
        self.before.contains_key(node)
    }

    /// Counts a rejecting stream of the tally. Returns whether its node is a known rejecter: it rejected the push before with as
    /// many streams as now.
    pub fn is_known(&mut self, node: &Arc<str>) -> bool {
        if self.live.len() >= NODES_MAX && !self.live.contains_key(node) {
            return self.before.contains_key(node);
        }
        let streams = self.live.entry(node.clone()).or_default();
        *streams += 1;
        if self.now.len() < NODES_MAX || self.now.contains_key(node) {
            let most = self.now.entry(node.clone()).or_default();
            *most = (*most).max(*streams);
        }
        self.before.get(node).is_some_and(|before| *streams <= *before)
    }

    /// Notes a rejection. `votes`: whether the client's words name the suspects, or the suspect is the only change. A known rejecter
    /// has no vote, as it blames whatever comes. Returns the contents newly condemned: `enough` different nodes blame them.
    pub fn note(&mut self, rejection: &Rejection, votes: bool, enough: u32) -> Vec<Condemned> {
        let mut condemned = Vec::new();
        for (name, version) in rejection.suspects.iter().filter(|_| votes && !rejection.is_known_rejecter) {
            let content = (rejection.type_url.clone(), name.clone(), *version);
            let is_full = self.votes.len() + self.condemned.len() >= CONTENTS_MAX;
            if self.condemned.contains(&content) || is_full && !self.votes.contains_key(&content) {
                continue;
            }
            let nodes = self.votes.entry(content.clone()).or_default();
            nodes.insert(rejection.node.clone());
            if nodes.len() >= enough as usize {
                self.votes.remove(&content);
                self.condemned.insert(content);
                let (type_url, name, version) = (rejection.type_url.clone(), name.clone(), *version);
                condemned.push(Condemned { type_url, name, version });
            }
        }
        condemned
    }

    /// Condemns contents of a push on an operator's word. Returns false if the push brings none of them.
    pub fn condemn(&mut self, set: &PushSet, is_meant: &dyn Fn(&TypeUrl, &ResourceName) -> bool) -> bool {
        let types = set.units().iter().flat_map(|unit| &unit.types);
        let contents = types.flat_map(|of| of.names().map(move |name| (&of.type_url, name)));
        let meant = contents.filter(|(type_url, of)| is_meant(type_url, &of.name));
        let found: Vec<Content> = meant
            .filter_map(|(type_url, of)| Some((type_url.clone(), of.name.clone(), of.version()?)))
            .collect();
        let is_found = !found.is_empty();
        self.condemned.extend(found);
        is_found
    }

    /// All condemned contents.
    pub fn condemned(&self) -> impl Iterator<Item = &Content> {
        self.condemned.iter()
    }

    /// Contents that were condemned before the relay began anew.
    pub fn condemn_again(&mut self, contents: impl Iterator<Item = Content>) {
        self.condemned.extend(contents.take(CONTENTS_MAX));
    }

    /// The condemned contents of a push: of each unit the first.
    pub fn condemned_in(&self, set: &PushSet) -> Vec<(UnitId, Condemned)> {
        if self.condemned.is_empty() {
            return Vec::new();
        }
        let first = |of: &PushUnit| {
            let contents = of.types.iter().flat_map(|of| of.names().map(move |name| (&of.type_url, name)));
            let mut condemned = contents.filter_map(|(type_url, pushed)| {
                let content = (type_url.clone(), pushed.name.clone(), pushed.version()?);
                self.condemned.contains(&content).then_some(content)
            });
            let (type_url, name, version) = condemned.next()?;
            Some((UnitId(of.source.0), Condemned { type_url, name, version }))
        };
        set.units().iter().filter_map(first).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::rollout::Seat;

    fn rejection(node: &str, name: &str) -> Rejection {
        Rejection {
            stream: 1,
            node: node.into(),
            unit: UnitId(1),
            seat: Seat { bucket: 0, labelled_step: None },
            type_url: TypeUrl::of_message("envoy.config.cluster.v3.Cluster"),
            words: "".into(),
            suspects: vec![(ResourceName::new(name), Version(7))],
            is_known_rejecter: false,
        }
    }

    #[test]
    fn qua_2_different_nodes_condemn_a_content_once() {
        let mut of = Rejecters::default();
        assert!(of.note(&rejection("a", "x"), true, 2).is_empty());
        assert!(of.note(&rejection("a", "x"), true, 2).is_empty(), "the same node");
        assert!(of.note(&rejection("b", "x"), false, 2).is_empty(), "its words name nothing");
        assert!(of.note(&rejection("b", "y"), true, 2).is_empty(), "another content");
        assert_eq!(of.note(&rejection("b", "x"), true, 2)[0].name.as_str(), "x");
        assert!(of.note(&rejection("c", "x"), true, 2).is_empty(), "told once");
    }

    #[test]
    fn qua_4_known_rejecters_condemn_nothing() {
        let mut of = Rejecters::default();
        for node in ["a", "b"] {
            let known = Rejection { is_known_rejecter: true, ..rejection(node, "x") };
            assert!(of.note(&known, true, 1).is_empty());
        }
        assert_eq!(of.note(&rejection("c", "x"), true, 1).len(), 1);
    }

    #[test]
    fn qua_4_a_node_is_known_by_the_push_before() {
        let (mut of, a, b) = (Rejecters::default(), Arc::from("a"), Arc::from("b"));
        assert!(!of.is_known(&a));
        of.next_push();
        of.next_tally();
        assert!(of.is_known(&a) && !of.is_known(&b));
        of.next_push();
        of.next_push();
        of.next_tally();
        assert!(!of.is_known(&a), "it accepted the last push");
    }

    /// One rejecter among clients of one id, or without an id, makes the others no known rejecters.
    #[test]
    fn qua_4_as_many_streams_of_a_node_are_known_as_rejected_before() {
        let (mut of, shared) = (Rejecters::default(), Arc::from(""));
        for _ in 0..3 {
            of.next_tally();
            assert!(!of.is_known(&shared), "one stream, in each tally");
        }
        of.next_push();
        for _ in 0..2 {
            of.next_tally();
            assert_eq!([(); 3].map(|()| of.is_known(&shared)), [true, false, false]);
        }
        of.next_push();
        of.next_tally();
        assert_eq!([(); 4].map(|()| of.is_known(&shared)), [true, true, true, false]);
    }
}
