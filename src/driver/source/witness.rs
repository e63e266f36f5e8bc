//! Another member of a class before the server, as evidence about the class (RLY-10).
//!
//! Members of a class get the same answers, or the class is wrong. A server that sees one member in the place
//! of another answers everything anew. Other content in these answers is either a push at this moment, or a
//! difference between the two that the rules of `node_classes` do not have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::driver::ground::class_identity::of_member;
use sluice_engine::change::Change;
use sluice_engine::source::StreamIndex;
use sluice_text::shortened;
use sluice_xds::{Node, TypeUrl};

/// A server answers a new stream within this time, mostly. Later answers are pushes: a server that knows the
/// relay's versions sends nothing where nothing differs.
const ANSWERS: Duration = Duration::from_secs(2);

/// The fields in a report, and the letters of each and of an id: clients choose them.
const FIELDS_MAX: usize = 20;
const LETTERS_MAX: usize = 128;

/// Two members of a class, until the server has answered the second.
#[derive(Debug)]
pub struct Witness {
    previous: Arc<Node>,
    next: Arc<Node>,
    /// The streams that began with the next member's node, and the time of the first.
    streams: BTreeSet<StreamIndex>,
    since: Option<Instant>,
    /// The types of the former streams, and whether the server has answered them on the new ones.
    types: BTreeMap<TypeUrl, bool>,
    /// The type of the first answer in hand.
    in_hand: Option<TypeUrl>,
}

/// A server's other answer for another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    /// The ids of the two members.
    pub previous: String,
    pub next: String,
    /// The fields of the node in which the two differ, by path.
    pub fields: Vec<String>,
}

impl Witness {
    pub fn new(previous: Arc<Node>, next: Arc<Node>) -> Witness {
        Witness {
            previous,
            next,
            streams: BTreeSet::new(),
            since: None,
            types: BTreeMap::new(),
            in_hand: None,
        }
    }

    #[cfg(test)]
    pub fn previous(&self) -> &Node {
        &self.previous
    }

    /// A stream with the next member's node has begun, and asks for these types.
    pub fn opened(&mut self, index: StreamIndex, types: impl Iterator<Item = TypeUrl>, now: Instant) {
        self.streams.insert(index);
        self.since.get_or_insert(now);
        for type_url in types {
            // Each type is asked for on one of the streams.
            self.types.entry(type_url).or_default();
        }
    }

    /// A response has come. Returns whether the server has answered the next member.
    pub fn heard(&mut self, index: StreamIndex, type_url: &TypeUrl, now: Instant) -> bool {
        self.in_hand = None;
        if self.is_over(now) || !self.streams.contains(&index) {
            return self.since.is_some();
        }
        match self.types.get_mut(type_url) {
            Some(answered) if !*answered => {
                *answered = true;
                self.in_hand = Some(type_url.clone());
            }
            Some(_) => {}
            // The answer to a later request: the server is done with the first ones.
            None => self.types.clear(),
        }
        true
    }

    /// Whether later changes are pushes.
    pub fn is_over(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now >= since + ANSWERS)
    }

    /// The evidence of a change, if the first answer of its type brought the change. Names that appear among
    /// those asked for by name are none: somebody may have just asked.
    pub fn testimony(&self, change: &Change) -> Option<Testimony> {
        if self.in_hand.as_ref() != Some(&change.type_url) {
            return None;
        }
        let altered = &change.altered;
        let added = if change.type_url.is_full_state() { altered.added.count } else { 0 };
        (altered.changed.count + altered.removed.count + added > 0).then(|| Testimony {
            previous: shortened(&self.previous.id, LETTERS_MAX),
            next: shortened(&self.next.id, LETTERS_MAX),
            fields: of_member(&self.previous)
                .differences(&of_member(&self.next), FIELDS_MAX)
                .iter()
                .map(|path| shortened(path, LETTERS_MAX))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use sluice_engine::Time;
    use sluice_engine::change::{Altered, NameList};
    use sluice_xds::{ResourceName, Version};

    fn change(type_url: &TypeUrl, added: usize, changed: usize) -> Change {
        let list = |count: usize| {
            let mut list = NameList::default();
            (0..count).for_each(|number| list.add(&ResourceName::from(number.to_string())));
            list
        };
        let altered = Altered { added: list(added), changed: list(changed), ..Altered::default() };
        let (at, version) = (Time::default(), Version::default());
        Change { number: 1, type_url: type_url.clone(), at, altered, version, sessions: 1 }
    }

    #[test]
    fn rly_10_only_the_first_answers_to_another_member_are_evidence() {
        let node = |id: &str| Arc::new(Node { id: id.into(), ..Node::default() });
        let (clusters, endpoints) = (
            TypeUrl::of_message("envoy.config.cluster.v3.Cluster"),
            TypeUrl::of_message("envoy.config.endpoint.v3.ClusterLoadAssignment"),
        );
        let (start, stream, other) = (Instant::now(), 0, 1);
        let mut witness = Witness::new(node("a"), node("b"));
        let says = |witness: &mut Witness, index, change: &Change, at| {
            witness.heard(index, &change.type_url, at);
            witness.testimony(change).map(|testimony| (testimony.previous, testimony.next, testimony.fields))
        };
        let expected = Some(("a".to_owned(), "b".to_owned(), vec!["id".to_owned()]));
        assert_eq!(says(&mut witness, stream, &change(&clusters, 0, 1), start), None, "the former stream");
        witness.opened(stream, [&clusters, &endpoints].into_iter().cloned(), start);
        assert_eq!(says(&mut witness, other, &change(&clusters, 0, 1), start), None);
        assert_eq!(says(&mut witness, stream, &change(&clusters, 1, 0), start), expected);
        assert_eq!(says(&mut witness, stream, &change(&endpoints, 1, 0), start), None, "somebody asked");
        assert_eq!(says(&mut witness, stream, &change(&clusters, 0, 1), start), None, "a push");
        witness.opened(other, [&clusters].into_iter().cloned(), start);
        assert_eq!(
            says(&mut witness, other, &change(&clusters, 0, 1), start),
            None,
            "answered on the first stream"
        );
        let mut witness = Witness::new(node("a"), node("b"));
        witness.opened(stream, [&clusters, &endpoints].into_iter().cloned(), start);
        assert_eq!(says(&mut witness, stream, &change(&endpoints, 0, 1), start), expected);
        assert_eq!(says(&mut witness, stream, &change(&clusters, 0, 1), start + ANSWERS), None, "late");
        let mut witness = Witness::new(node("a"), node("b"));
        witness.opened(stream, [&clusters, &endpoints].into_iter().cloned(), start);
        witness.heard(stream, &TypeUrl::of_message("envoy.config.listener.v3.Listener"), start);
        assert_eq!(
            says(&mut witness, stream, &change(&clusters, 0, 1), start),
            None,
            "silence was the answer"
        );
    }
}
