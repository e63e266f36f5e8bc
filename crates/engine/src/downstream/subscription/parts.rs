//! The parts of a subscription, and the names that move between parts.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::Time;
use crate::authority::NameGroup;
use crate::collection::{Collection, CollectionKind, HashSeed, NameSet};
use crate::downstream::answer::Answer;
use crate::downstream::order::turn::Turn;
use crate::downstream::sources::{Asked, SourceId};
use crate::downstream::subscription::part::{Key, Part};
use crate::view::{PERHAPS, View};
use sluice_xds::{ResourceName, TypeUrl, Version};

/// In the order of precedence ([`crate::precedence`]), each kind by group: old-style names before
/// authorities. No part is empty.
#[derive(Debug, Default)]
pub struct PartList(Vec<Part>);

impl Deref for PartList {
    type Target = [Part];

    fn deref(&self) -> &[Part] {
        &self.0
    }
}

impl DerefMut for PartList {
    fn deref_mut(&mut self) -> &mut [Part] {
        &mut self.0
    }
}

impl<'a> IntoIterator for &'a PartList {
    type Item = &'a Part;
    type IntoIter = std::slice::Iter<'a, Part>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a mut PartList {
    type Item = &'a mut Part;
    type IntoIter = std::slice::IterMut<'a, Part>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

/// A change of one part.
pub(super) struct PartChange {
    /// The sources that the part was asked of.
    pub(super) sources: Vec<SourceId>,
    /// `None`: the part is new.
    pub(super) collection: Option<Collection>,
    /// The part asks for more than before, or asks another source.
    pub(super) is_wider: bool,
}

impl PartList {
    pub fn is_wildcard(&self) -> bool {
        self.iter().any(Part::is_wildcard)
    }

    /// The number of requested names.
    pub(super) fn names_len(&self) -> usize {
        self.iter().filter_map(Part::names).map(|names| names.len()).sum()
    }

    /// The key of the part with this name.
    pub(super) fn holding(&self, name: &ResourceName) -> Option<Key> {
        let has = |part: &&Part| part.names().is_some_and(|names| names.contains(name));
        self.iter().find(has).map(Part::key)
    }

    /// The key of the part with this name, or of the part that a request for the name would change.
    pub(super) fn place_of(&self, name: &ResourceName, group_of: &dyn Fn(&ResourceName) -> NameGroup) -> Key {
        self.holding(name).unwrap_or_else(|| (CollectionKind::of(name), group_of(name)))
    }

    pub(super) fn names_of(&self, key: Key) -> Arc<NameSet> {
        let part = self.iter().find(|part| part.key() == key);
        part.and_then(Part::names).cloned().unwrap_or_default()
    }

    /// The names of a list by part. Parts that lose all their names are in the result, with empty sets.
    pub(super) fn by_key<'a>(
        &self,
        names: impl Iterator<Item = &'a ResourceName>,
        seed: HashSeed,
        group_of: &dyn Fn(&ResourceName) -> NameGroup,
    ) -> BTreeMap<Key, NameSet> {
        let before = self.iter().filter(|part| !part.is_wildcard());
        let mut lists: BTreeMap<_, _> = before.map(|part| (part.key(), Vec::new())).collect();
        for name in names.filter(|name| !name.is_wildcard()) {
            // A name that is private to this stream stays private.
            let private = self.holding(name).filter(|(_, group)| group.private);
            let place = private.unwrap_or_else(|| (CollectionKind::of(name), group_of(name)));
            lists.entry(place).or_default().push(name.clone());
        }
        lists.into_iter().map(|(place, names)| (place, NameSet::of(names, seed))).collect()
    }

    /// Sets the collection of a part; `None` removes the part. The client's content stays.
    pub(super) fn set(
        &mut self,
        group: NameGroup,
        collection: Option<(Asked, Collection)>,
        kind: CollectionKind,
    ) -> PartChange {
        let wildcard = kind == CollectionKind::Wildcard;
        // There is only one wildcard, in any group.
        let is_it = |part: &Part| part.collection.kind() == kind && (wildcard || part.group == group);
        let at = self.iter().position(is_it);
        let mut change = PartChange {
            sources: at.map_or_else(Vec::new, |at| self[at].sources().collect()),
            collection: at.map(|at| self[at].collection.clone()),
            is_wider: false,
        };
        if let Some(at) = at {
            self.fall_back_to_wildcard(at, collection.as_ref().map(|(_, collection)| collection));
        }
        match (at, collection) {
            (Some(at), Some((asked, collection))) => {
                let part = &mut self[at];
                change.is_wider =
                    part.source() != asked.source || collection.asks_for_more_than(&part.collection);
                part.asked = asked;
                part.group = group;
                let before = std::mem::replace(&mut part.collection, collection);
                if kind == CollectionKind::Globs && before.asks_for_more_than(&part.collection) {
                    let left = part.held.clone();
                    self.keep_of_broad(&left);
                }
            }
            (Some(at), None) => {
                let left = self.0.remove(at);
                if left.is_broad() {
                    self.keep_of_broad(&left.held);
                    self.keep_unanswered(left.before.as_deref());
                }
            }
            (None, Some((asked, collection))) => {
                self.0.reserve_exact(1);
                self.0.push(Part::new(asked, group, collection));
                self.0.sort_by_key(Part::key);
                change.is_wider = true;
            }
            (None, None) => {}
        }
        change
    }

    /// Names leave a part. If the wildcard or a glob has other content of a name, the client must be sent
    /// that content now.
    fn fall_back_to_wildcard(&mut self, at: usize, collection: Option<&Collection>) {
        let part = &self[at];
        let Some(before) = part.collection.named() else { return };
        let (before, held, none) = (before.clone(), part.held.clone(), NameSet::default());
        let after = collection.and_then(Collection::named).map_or(&none, |names| &**names);
        for broad in self.iter_mut().filter(|part| part.is_broad()) {
            for name in before.minus(after) {
                let (by_name, by_broad) = (held.version_of(name), broad.held.version_of(name));
                if by_name.is_some() && by_broad.is_some() && by_name != by_broad {
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
        for part in self {
            part.take_over(left, |_| true);
            // The last bytes of a name may be older than what the wildcard or the glob brought.
            let is_due = |name: &&&ResourceName| part.held.version_of(name) == Some(Version::default());
            let unsure: Vec<_> = due.iter().filter(is_due).map(|name| (*name, PERHAPS)).collect();
            if !unsure.is_empty() {
                part.hold_also(unsure.into_iter());
            }
        }
    }

    /// The wildcard or a glob goes while responses are unanswered. Of the names that other parts request, the
    /// client has accepted what it had before these responses (TRU-1).
    fn keep_unanswered(&mut self, before: Option<&View>) {
        let Some(before) = before else { return };
        for part in self {
            let Some(names) = part.collection.named().cloned() else { continue };
            part.keep_accepted(names.iter().filter_map(|name| Some((name, before.known_version_of(name)?))));
        }
    }

    /// The versions of names that the client has accepted.
    pub(super) fn accepted_of<'a>(
        &self,
        names: impl Iterator<Item = &'a ResourceName>,
    ) -> Vec<(ResourceName, Version)> {
        let named = || self.iter().filter(|part| !part.is_broad());
        let accepted = |name| named().find_map(|part| part.accepted(name));
        names.filter_map(|name| Some((name.clone(), accepted(name)?))).collect()
    }

    /// The client gave names up. Of those that the wildcard or a glob covers, it has accepted what it had,
    /// and has yet to answer for the rest (TRU-1).
    pub(super) fn keep_left(&mut self, left: &[(ResourceName, Version)], is_waiting: bool) {
        for part in self.iter_mut().filter(|part| part.is_broad() && (is_waiting || part.is_first)) {
            let collection = part.collection.clone();
            let covered = left.iter().filter(|(name, _)| collection.covers(name));
            part.keep_accepted(covered.map(|(name, version)| (name, *version)));
        }
    }

    /// Keeps names in doubt: a name that leaves one part with this answer is not removed while the other
    /// part does not know the name yet (DEL-22, RLY-2). The client's content moves to the other part.
    #[inline]
    pub(super) fn keep_in_doubt(&mut self, answer: &Answer) {
        if self.len() > 1 {
            self.keep_in_doubt_beside(answer);
        }
    }

    fn keep_in_doubt_beside(&mut self, answer: &Answer) {
        let first_names = self.iter().take_while(|part| part.is_broad()).count();
        let (broad, names) = self.split_at_mut(first_names);
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

    /// Makes a name due again, whatever the client holds.
    pub(super) fn forget(&mut self, name: &ResourceName) {
        self.iter_mut().for_each(|part| part.forget(name));
    }

    /// Makes all members of the wildcard due again.
    pub(super) fn forget_members(&mut self) {
        for part in self.iter_mut().filter(|part| part.is_wildcard()) {
            let mut held = part.held.clone();
            View::forget_all(&mut held);
            part.hold(held);
        }
    }

    /// Makes a name due, changed or not. Returns whether the client has the name.
    pub(super) fn force(&mut self, name: &ResourceName) -> bool {
        let mut is_held = false;
        for part in self.iter_mut().filter(|part| part.held.has(name)) {
            View::force(&mut part.held, name);
            part.at = None;
            is_held = true;
        }
        is_held
    }

    /// The version of the client's accepted content; `None` if the client has nothing.
    pub(super) fn version_held(&self) -> Option<Version> {
        let has_any = |part: &Part| !part.answered_content().is_empty();
        let version = |part: &Part| part.answered_content().known_digest();
        match self.iter().any(|part| part.rejected.is_some()) {
            false => self.iter().any(has_any).then(|| sum(self.iter().map(version))),
            true => self.version_beside_rejected(),
        }
    }

    /// As [`Self::version_held`], with the former content of names whose content the client rejected.
    fn version_beside_rejected(&self) -> Option<Version> {
        let views = self.iter().map(|part| {
            let base = part.answered_content();
            let Some(rejected) = &part.rejected else { return base.clone() };
            let mut view = View::clone(base);
            for name in rejected.before.differing(&rejected.sent) {
                match part.accepted(name) {
                    Some(version) => view.hold(std::iter::once((name, version)), std::iter::empty()),
                    None => view.let_go(name),
                }
            }
            Arc::new(view)
        });
        let views: Vec<_> = views.collect();
        let has_any = views.iter().any(|view| !view.is_empty());
        has_any.then(|| sum(views.iter().map(|view| view.known_digest())))
    }

    /// The version of the content that the client was sent last, of all messages together.
    pub(super) fn version_of_sent(&self) -> Option<Version> {
        self.iter().map(|part| part.held.known_digest()).reduce(Version::plus)
    }

    /// The version of the content that the sources have for the client; `None` if they know nothing yet.
    pub(super) fn version_due(&self, type_url: &TypeUrl, turn: &Turn<'_>) -> Option<Version> {
        let mut views = self.iter().filter_map(|part| part.view_in(turn, type_url)).peekable();
        views.peek()?;
        Some(sum(views.map(|view| view.digest())))
    }

    /// Whether the sources know everything about the collections. Without a collection there is nothing to
    /// know.
    pub(super) fn are_known(&self, type_url: &TypeUrl, turn: &Turn<'_>) -> bool {
        let mut views = self.iter().map(|part| part.view_in(turn, type_url));
        !self.is_empty() && views.all(|view| view.is_some_and(|view| view.is_complete()))
    }

    /// The time of the last change of the content that the client should have.
    pub(super) fn changed_at(&self, type_url: &TypeUrl, turn: &Turn<'_>) -> Option<Time> {
        let views = self.iter().filter_map(|part| part.view_in(turn, type_url));
        views.map(|view| view.changed_at()).max()
    }

    /// Whether a source has unsent content, apart from withheld removals.
    pub(super) fn have_unsent(&self, type_url: &TypeUrl, turn: &Turn<'_>) -> bool {
        let is_behind = |part: &Part, view: &View| {
            part.is_behind(part.due(view)) && !(part.held.is_empty() && view.is_empty())
        };
        let views = self.iter().map(|part| (part, part.view_in(turn, type_url)));
        views.into_iter().any(|(part, view)| view.is_some_and(|view| is_behind(part, view)))
    }
}

fn sum(versions: impl Iterator<Item = Version>) -> Version {
    versions.fold(Version::default(), Version::plus)
}
