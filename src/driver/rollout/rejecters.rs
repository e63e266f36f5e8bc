//! The memory of rejections: nodes with rejections of push after push, and condemned contents (QUA-2, QUA-4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::downstream::PushSet;
use crate::engine::rollout::push::Condemned;
use crate::engine::rollout::tally::Rejection;
use crate::xds::{ResourceName, TypeUrl, Version};

/// The nodes remembered from push to push.
const NODES_MAX: usize = 10_000;

/// The contents with a vote, condemned or not.
const CONTENTS_MAX: usize = 10_000;

type Content = (TypeUrl, ResourceName, Version);

/// The memory of a plan.
#[derive(Debug, Default)]
pub struct Rejecters {
    /// The rejecting nodes of the push before.
    before: BTreeSet<Arc<str>>,
    /// The rejecting nodes of the push under way.
    now: BTreeSet<Arc<str>>,
    /// The blaming nodes of each content.
    votes: BTreeMap<Content, BTreeSet<Arc<str>>>,
    condemned: BTreeSet<Content>,
}

impl Rejecters {
    /// Another push begins.
    pub fn next_push(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    pub fn is_known(&self, node: &str) -> bool {
        self.before.contains(node)
    }

    /// Notes a rejection. `votes`: whether the client's words name the suspects, or the suspect is the only change. Returns the
    /// contents newly condemned: `enough` different nodes blame them.
    pub fn note(&mut self, rejection: &Rejection, votes: bool, enough: u32) -> Vec<Condemned> {
        if self.now.len() < NODES_MAX {
            self.now.insert(rejection.node.clone());
        }
        let mut condemned = Vec::new();
        for (name, version) in rejection.suspects.iter().filter(|_| votes) {
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

    /// A condemned content of a push.
    pub fn condemned_in(&self, set: &PushSet) -> Option<Condemned> {
        if self.condemned.is_empty() {
            return None;
        }
        let types = set.units().iter().flat_map(|unit| &unit.types);
        let contents = types.flat_map(|of| of.names().map(move |name| (&of.type_url, name)));
        let mut found = contents.filter_map(|(type_url, pushed)| {
            let content = (type_url.clone(), pushed.name.clone(), pushed.version()?);
            self.condemned.contains(&content).then_some(content)
        });
        found.next().map(|(type_url, name, version)| Condemned { type_url, name, version })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::rollout::{Seat, UnitId};

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
    fn qua_4_a_node_is_known_by_the_push_before() {
        let mut of = Rejecters::default();
        of.note(&rejection("a", "x"), true, 2);
        assert!(!of.is_known("a"));
        of.next_push();
        assert!(of.is_known("a") && !of.is_known("b"));
        of.next_push();
        assert!(!of.is_known("a"), "it accepted the last push");
    }
}
