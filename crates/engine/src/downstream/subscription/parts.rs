//! The parts of a subscription, and the names that move between parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::authority::NameGroup;
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::downstream::answer::Answer;
use crate::downstream::sources::{Asked, SourceId};
use crate::downstream::subscription::part::{Key, Part};
use crate::downstream::subscription::{Change, NameSetChange, Subscription};
use crate::view::{PERHAPS, View};
use sluice_xds::{ResourceName, Version};

impl Subscription {
    /// The key of the part with this name.
    pub(super) fn holding(&self, name: &ResourceName) -> Option<Key> {
        let has = |part: &&Part| part.names().is_some_and(|names| names.contains(name));
        self.parts.iter().find(has).map(Part::key)
    }

    pub(super) fn names_of(&self, key: Key) -> Arc<NameSet> {
        let part = self.parts.iter().find(|part| part.key() == key);
        part.and_then(Part::names).cloned().unwrap_or_default()
    }

    /// The names of a list by part. Parts that lose all their names are in the result, with empty sets.
    pub(super) fn by_key<'a>(
        &self,
        names: impl Iterator<Item = &'a ResourceName>,
        seed: HashSeed,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
    ) -> BTreeMap<Key, NameSet> {
        let before = self.parts.iter().filter(|part| !part.is_wildcard());
        let mut lists: BTreeMap<_, _> = before.map(|part| (part.key(), Vec::new())).collect();
        for name in names.filter(|name| !name.is_wildcard()) {
            // A name that is private to this stream stays private.
            let private = self.holding(name).filter(|(_, group)| group.private);
            let place = private.unwrap_or_else(|| (CollectionKind::of(name), group_of(name)));
            lists.entry(place).or_default().push(name.clone());
        }
        lists.into_iter().map(|(place, names)| (place, NameSet::of(names, seed))).collect()
    }

    /// The change of a session's collections for names whose group has changed.
    pub fn divert(&self, seed: HashSeed, group_of: &dyn Fn(&ResourceName) -> NameGroup) -> Change {
        let parts: Vec<_> = self.parts.iter().filter_map(Part::names).collect();
        let sets = self.by_key(parts.iter().flat_map(|names| names.iter()), seed, group_of);
        let moved = sets.into_iter().filter(|(place, set)| set.id() != self.names_of(*place).id());
        let names = moved.map(|(place, set)| (place, NameSetChange(Arc::new(set)))).collect();
        Change { names, ..Change::default() }
    }

    /// The client's content of names and globs, by part.
    pub fn held_by_names(&self) -> Vec<(CollectionKind, Arc<View>)> {
        let named = self.parts.iter().filter(|part| !part.is_wildcard());
        named.map(|part| (part.kind(), part.held.clone())).collect()
    }

    /// Sets the collection of a part; `None` removes the part. The client's content stays. Returns
    /// the former sources of the part.
    pub fn set_part(
        &mut self,
        group: NameGroup,
        collection: Option<(Asked, Collection)>,
        kind: CollectionKind,
    ) -> Vec<SourceId> {
        self.interrupt();
        let wildcard = kind == CollectionKind::Wildcard;
        // There is only one wildcard, in any group.
        let is_it = |part: &Part| part.collection.kind() == kind && (wildcard || part.group == group);
        let at = self.parts.iter().position(is_it);
        let old = at.map_or_else(Vec::new, |at| self.parts[at].sources().collect());
        let before = at.map(|at| self.parts[at].collection.clone());
        if let Some(at) = at {
            self.fall_back_to_wildcard(at, collection.as_ref().map(|(_, collection)| collection));
        }
        match (at, collection) {
            (Some(at), Some((asked, collection))) => {
                let part = &mut self.parts[at];
                self.fresh |=
                    part.source() != asked.source || collection.asks_for_more_than(&part.collection);
                part.asked = asked;
                part.group = group;
                let old = std::mem::replace(&mut part.collection, collection);
                if kind == CollectionKind::Globs && old.asks_for_more_than(&part.collection) {
                    let left = part.held.clone();
                    self.keep_of_broad(&left);
                }
            }
            (Some(at), None) => {
                let left = self.parts.remove(at);
                if left.is_broad() {
                    self.keep_of_broad(&left.held);
                    self.keep_unanswered(left.before.as_deref());
                }
                self.greeting &= !wildcard;
            }
            (None, Some((asked, collection))) => {
                self.parts.reserve_exact(1);
                self.parts.push(Part::new(asked, group, collection));
                self.parts.sort_by_key(Part::key);
                self.greeting |= wildcard;
                self.fresh = true;
            }
            (None, None) => {}
        }
        self.expect_unread((kind, group), before.as_ref());
        old
    }

    /// Names leave a part. If the wildcard or a glob has other content of a name, the client must be sent
    /// that content now.
    fn fall_back_to_wildcard(&mut self, at: usize, collection: Option<&Collection>) {
        let part = &self.parts[at];
        let Collection::Names(old) = &part.collection else { return };
        let (old, held, none) = (old.clone(), part.held.clone(), NameSet::default());
        let new = match collection {
            Some(Collection::Names(names)) => names,
            _ => &none,
        };
        for broad in self.parts.iter_mut().filter(|part| part.is_broad()) {
            for name in old.minus(new) {
                let (own, other) = (held.version_of(name), broad.held.version_of(name));
                if own.is_some() && other.is_some() && own != other {
                    broad.forget(name);
                }
            }
        }
    }

    /// The wildcard or a glob goes. The client keeps content that other parts request too (DEL-9, SUB-13,
    /// NAM-17).
    fn keep_of_broad(&mut self, left: &View) {
        let due: Vec<_> =
            left.names().filter(|name| left.version_of(name) == Some(Version::default())).collect();
        for part in &mut self.parts {
            part.take_over(left, |_| true);
            // The last bytes of a name may be older than what the wildcard or the glob brought.
            let is_due = |name: &&&ResourceName| part.held.version_of(name) == Some(Version::default());
            let unsure: Vec<_> = due.iter().filter(is_due).map(|name| (*name, PERHAPS)).collect();
            if !unsure.is_empty() {
                part.hold_also(unsure.into_iter());
            }
        }
    }

    /// The wildcard or a glob goes while responses are unanswered. Of the names that other parts request, the client has accepted
    /// what it had before these responses (TRU-1).
    fn keep_unanswered(&mut self, before: Option<&View>) {
        let Some(before) = before else { return };
        for part in &mut self.parts {
            let Collection::Names(names) = &part.collection else { continue };
            let names = names.clone();
            part.keep_accepted(names.iter().filter_map(|name| Some((name, before.known_version_of(name)?))));
        }
    }

    /// The versions of names that the client has accepted.
    pub(super) fn accepted_of<'a>(
        &self,
        names: impl Iterator<Item = &'a ResourceName>,
    ) -> Vec<(ResourceName, Version)> {
        let named = || self.parts.iter().filter(|part| !part.is_broad());
        let accepted = |name| named().find_map(|part| part.accepted(name));
        names.filter_map(|name| Some((name.clone(), accepted(name)?))).collect()
    }

    /// The client gave names up. Of those that the wildcard or a glob covers, it has accepted what it had, and has yet to answer for
    /// the rest (TRU-1).
    pub fn keep_left(&mut self, left: &[(ResourceName, Version)]) {
        if left.is_empty() {
            return;
        }
        let is_waiting = self.nonces.is_waiting();
        for part in self.parts.iter_mut().filter(|part| part.is_broad() && (is_waiting || part.is_first)) {
            let collection = part.collection.clone();
            let covered = left.iter().filter(|(name, _)| collection.covers(name));
            part.keep_accepted(covered.map(|(name, version)| (name, *version)));
        }
    }

    /// Keeps names in doubt: a name that leaves one part with this answer is not removed while the other
    /// part does not know the name yet (DEL-22, RLY-2). The client's content moves to the other part.
    pub fn keep_in_doubt(&mut self, answer: &Answer) {
        let first_names = self.parts.iter().take_while(|part| part.is_broad()).count();
        let (broad, names) = self.parts.split_at_mut(first_names);
        let (of_broad, of_names) = answer.parts.split_at(first_names.min(answer.parts.len()));
        for (broad, of_broad) in broad.iter_mut().zip(of_broad) {
            for (part, answered) in names.iter_mut().zip(of_names) {
                let left = part.held.names().filter(|name| !answered.view.has(name) && broad.held.has(name));
                let left = left.filter(|name| of_broad.may_have(name));
                let left: Vec<_> =
                    left.filter_map(|name| Some((name, part.held.version_of(name)?))).collect();
                if !left.is_empty() {
                    Arc::make_mut(&mut broad.held).hold(left.into_iter(), std::iter::empty());
                }
                if !answered.view.is_complete() {
                    let in_doubt =
                        |name: &ResourceName| answered.is_in_doubt(name) && !of_broad.view.has(name);
                    part.take_over(&broad.held, in_doubt);
                }
            }
        }
    }
}
