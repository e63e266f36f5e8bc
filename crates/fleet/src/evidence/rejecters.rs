//! The memory of rejections: nodes with rejections of push after push, and condemned contents (QUA-2, QUA-4,
//! QUA-5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::push_set::{PushSet, PushUnit};
use super::remembered::{CondemnedContents, Content, REMEMBERED_FOR, Remembered};
use crate::rollout::UnitId;
use crate::rollout::tally::Rejection;
use sluice_engine::Time;
use sluice_xds::{ResourceName, TypeUrl};

/// The nodes remembered from push to push.
const NODES_MAX: usize = 10_000;

/// The nodes with a rejection of a push that went back or was halted. Each is restated all differences,
/// whatever the node presents (WAV-10).
#[derive(Clone, Debug, Default)]
pub struct RejectingNodes {
    push: u64,
    nodes: BTreeSet<Arc<str>>,
    /// The nodes with a rejection of an earlier push. Their clients may come back late, with any part of the
    /// push.
    before: BTreeSet<Arc<str>>,
}

impl RejectingNodes {
    /// The latest push that went back or was halted.
    pub fn push(&self) -> u64 {
        self.push
    }

    pub fn has(&self, node: &str) -> bool {
        self.nodes.contains(node) || self.before.contains(node)
    }

    pub fn all(&self) -> BTreeSet<Arc<str>> {
        self.nodes.union(&self.before).cloned().collect()
    }

    /// Notes the nodes with a rejection of the latest push. Returns the new nodes. A node chooses its id, so
    /// nodes beyond [`NODES_MAX`] are left out, for the latest push and for the earlier pushes.
    pub fn note(&mut self, push: u64, nodes: BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        if self.push != push {
            let room = NODES_MAX.saturating_sub(self.before.len());
            self.before.extend(std::mem::take(&mut self.nodes).into_iter().take(room));
            self.push = push;
        }
        let room = NODES_MAX.saturating_sub(self.nodes.len());
        let new: BTreeSet<_> = nodes.difference(&self.nodes).take(room).cloned().collect();
        self.nodes.extend(new.iter().cloned());
        new
    }
}

/// The memory of a plan.
#[derive(Debug, Default)]
pub struct Rejecters {
    /// The nodes with earlier rejections of the push, each with its greatest number of rejecting streams.
    /// Many clients may share an id, or have none: no client must speak for the rest.
    before: BTreeMap<Arc<str>, u32>,
    /// As `before`, of the push under way.
    now: BTreeMap<Arc<str>, u32>,
    /// The rejecting streams of each node in the tally under way.
    live: BTreeMap<Arc<str>, u32>,
    /// The blaming nodes of each content that is not condemned yet.
    votes: Remembered<BTreeSet<Arc<str>>>,
    condemned: CondemnedContents,
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

    /// Counts a rejecting stream of the tally. Returns whether its node is a known rejecter: the node
    /// rejected the push before with as many streams as now.
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

    /// Notes a rejection. `votes`: whether the client's words name the suspects, or the suspect is the only
    /// change. A known rejecter has no vote, and blames all contents. Returns the contents newly condemned:
    /// `enough` different nodes blame them.
    pub fn note(&mut self, rejection: &Rejection, votes: bool, enough: u32, now: Time) -> Vec<Content> {
        self.forget(now);
        let (mut condemned, end) = (Vec::new(), now + REMEMBERED_FOR);
        for (name, version) in rejection.suspects.iter().filter(|_| votes && !rejection.is_known_rejecter) {
            let content = (rejection.type_url.clone(), name.clone(), *version);
            if self.condemned.contains(&content) {
                continue;
            }
            let mut nodes = self.votes.take(&content).unwrap_or_default();
            nodes.insert(rejection.node.clone());
            if nodes.len() < enough as usize {
                self.votes.put(content, end, nodes);
                continue;
            }
            self.condemned.put(content.clone(), end, ());
            condemned.push(content);
        }
        condemned
    }

    /// Condemns contents of a push on an operator's word. Returns false if the push brings none of them.
    pub fn condemn(
        &mut self,
        set: &PushSet,
        is_meant: &dyn Fn(&TypeUrl, &ResourceName) -> bool,
        now: Time,
    ) -> bool {
        let types = set.units().iter().flat_map(|unit| &unit.types);
        let contents = types.flat_map(|part| part.names().map(move |name| (&part.type_url, name)));
        let meant = contents.filter(|(type_url, change)| is_meant(type_url, &change.name));
        let contents: Vec<Content> = meant
            .filter_map(|(type_url, change)| Some((type_url.clone(), change.name.clone(), change.version()?)))
            .collect();
        let is_found = !contents.is_empty();
        for content in contents {
            self.votes.take(&content);
            self.condemned.put(content, now + REMEMBERED_FOR, ());
        }
        is_found
    }

    /// All condemned contents.
    pub fn condemned(&self) -> &CondemnedContents {
        &self.condemned
    }

    /// Contents that were condemned before the relay began anew, each with the time left.
    pub fn condemn_again(&mut self, contents: impl Iterator<Item = (Content, Duration)>, now: Time) {
        contents.for_each(|(content, left)| self.condemned.put(content, now + left, ()));
        self.forget(now);
    }

    /// Forgets the contents whose time has come (QUA-5).
    pub fn forget(&mut self, now: Time) {
        self.votes.forget(now);
        self.condemned.forget(now);
    }

    /// The time at which the next content is forgotten.
    pub fn next_end(&self) -> Option<Time> {
        self.votes.next_end().into_iter().chain(self.condemned.next_end()).min()
    }

    /// The condemned contents of a push: of each unit the first.
    pub fn condemned_in(&mut self, set: &PushSet, now: Time) -> Vec<(UnitId, Content)> {
        self.forget(now);
        if self.condemned.is_empty() {
            return Vec::new();
        }
        let first = |part: &PushUnit| {
            let contents =
                part.types.iter().flat_map(|part| part.names().map(move |name| (&part.type_url, name)));
            let mut condemned = contents.filter_map(|(type_url, pushed)| {
                let content = (type_url.clone(), pushed.name.clone(), pushed.version()?);
                self.condemned.contains(&content).then_some(content)
            });
            Some((UnitId(part.source.0), condemned.next()?))
        };
        set.units().iter().filter_map(first).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::evidence::remembered::CONTENTS_MAX;
    use crate::rollout::Seat;
    use sluice_xds::Version;

    const ZERO: Time = Time::ZERO;

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
        let mut rejecters = Rejecters::default();
        assert!(rejecters.note(&rejection("a", "x"), true, 2, ZERO).is_empty());
        assert!(rejecters.note(&rejection("a", "x"), true, 2, ZERO).is_empty(), "the same node");
        assert!(rejecters.note(&rejection("b", "x"), false, 2, ZERO).is_empty(), "its words name nothing");
        assert!(rejecters.note(&rejection("b", "y"), true, 2, ZERO).is_empty(), "another content");
        assert_eq!(rejecters.note(&rejection("b", "x"), true, 2, ZERO)[0].1.as_str(), "x");
        assert!(rejecters.note(&rejection("c", "x"), true, 2, ZERO).is_empty(), "told once");
    }

    /// Votes and condemned contents do not crowd each other out: the oldest of their kind makes room.
    #[test]
    fn qua_5_a_content_is_condemned_whatever_is_remembered() {
        let mut rejecters = Rejecters::default();
        let names: Vec<_> = (0..CONTENTS_MAX as u64).map(|number| number.to_string()).collect();
        let at = |number: usize| Time::from_micros(number as u64);
        for (number, name) in names.iter().enumerate() {
            assert_eq!(rejecters.note(&rejection("a", name), true, 1, at(number)).len(), 1);
            assert!(rejecters.note(&rejection("a", &format!("vote-{name}")), true, 2, at(number)).is_empty());
        }
        assert_eq!((rejecters.condemned.len(), rejecters.votes.len()), (CONTENTS_MAX, CONTENTS_MAX));
        let now = at(CONTENTS_MAX);
        assert!(rejecters.note(&rejection("a", "new"), true, 2, now).is_empty());
        assert_eq!(rejecters.note(&rejection("b", "new"), true, 2, now).len(), 1);
        let content = |name: &str| (rejection("a", name).type_url, ResourceName::new(name), Version(7));
        let is_condemned = ["0", "1", "new"].map(|name| rejecters.condemned.contains(&content(name)));
        assert_eq!(is_condemned, [false, true, true], "the oldest is forgotten");
        assert_eq!(
            rejecters.note(&rejection("b", "vote-1"), true, 2, now).len(),
            1,
            "its first vote is remembered"
        );
    }

    #[test]
    fn qua_5_votes_and_condemned_contents_are_forgotten_after_seven_days() {
        let (mut rejecters, day) = (Rejecters::default(), Duration::from_secs(24 * 3_600));
        let (early, late) = (ZERO + 7 * day - Duration::from_secs(1), ZERO + 7 * day);
        assert!(rejecters.note(&rejection("a", "x"), true, 2, ZERO).is_empty());
        assert_eq!(rejecters.note(&rejection("a", "y"), true, 1, ZERO).len(), 1);
        assert!(rejecters.note(&rejection("b", "y"), true, 1, early).is_empty(), "condemned already");
        assert_eq!(rejecters.next_end(), Some(late));
        assert!(
            rejecters.note(&rejection("b", "x"), true, 2, late).is_empty(),
            "the first vote is forgotten"
        );
        assert!(rejecters.condemned.is_empty());
        assert_eq!(rejecters.note(&rejection("b", "y"), true, 1, late).len(), 1, "condemned anew");
        let left = [("old", Duration::ZERO), ("young", day)];
        let again = left.map(|(name, left)| ((rejection("a", name).type_url, name.into(), Version(7)), left));
        rejecters.condemn_again(again.into_iter(), late);
        let remembered: Vec<_> =
            rejecters.condemned.latest_first().map(|(end, content)| (*end, content.1.as_str())).collect();
        assert_eq!(remembered, [(late + 7 * day, "y"), (late + day, "young")]);
    }

    #[test]
    fn qua_4_known_rejecters_condemn_nothing() {
        let mut rejecters = Rejecters::default();
        for node in ["a", "b"] {
            let rejection = Rejection { is_known_rejecter: true, ..rejection(node, "x") };
            assert!(rejecters.note(&rejection, true, 1, ZERO).is_empty());
        }
        assert_eq!(rejecters.note(&rejection("c", "x"), true, 1, ZERO).len(), 1);
    }

    #[test]
    fn qua_4_a_node_is_known_by_the_push_before() {
        let (mut rejecters, a, b) = (Rejecters::default(), Arc::from("a"), Arc::from("b"));
        assert!(!rejecters.is_known(&a));
        rejecters.next_push();
        rejecters.next_tally();
        assert!(rejecters.is_known(&a) && !rejecters.is_known(&b));
        rejecters.next_push();
        rejecters.next_push();
        rejecters.next_tally();
        assert!(!rejecters.is_known(&a), "it accepted the last push");
    }

    /// One rejecter among clients of one id, or without an id, makes the others no known rejecters.
    #[test]
    fn qua_4_as_many_streams_of_a_node_are_known_as_rejected_before() {
        let (mut rejecters, shared) = (Rejecters::default(), Arc::from(""));
        for _ in 0..3 {
            rejecters.next_tally();
            assert!(!rejecters.is_known(&shared), "one stream, in each tally");
        }
        rejecters.next_push();
        for _ in 0..2 {
            rejecters.next_tally();
            assert_eq!([(); 3].map(|()| rejecters.is_known(&shared)), [true, false, false]);
        }
        rejecters.next_push();
        rejecters.next_tally();
        assert_eq!([(); 4].map(|()| rejecters.is_known(&shared)), [true, true, true, false]);
    }

    /// A client may come back with another id after each rejection.
    #[test]
    fn wav_10_rejecting_nodes_are_bounded() {
        let mut rejecting = RejectingNodes::default();
        for push in 1..5 {
            for part in 0..3 {
                let nodes = (0..NODES_MAX / 2).map(|node| format!("{push}-{part}-{node}").into());
                rejecting.note(push, nodes.collect());
            }
        }
        assert_eq!(rejecting.all().len(), 2 * NODES_MAX);
    }
}
