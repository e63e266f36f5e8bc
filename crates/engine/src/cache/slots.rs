//! The watched sets of names, each with a view.
//!
//! A set exists once, as a slot, however many sessions watch the set. The cache that owns the slots knows the
//! slots of each name. So the cost of an update is proportional to the number of sets with the updated name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use super::content::Content;
use super::news::{News, SessionId, Stamp};
use super::watchers::{SlotId, Watchers};
use crate::collection::{NameSet, SetId};
use crate::commons::{Commons, MapKey, MapUse, SHARED_SETS_MAX, Shared};
use crate::filling::Filling;
use crate::view::{View, ViewId};
use sluice_xds::ResourceName;

/// A watched set, and its view.
#[derive(Clone, Debug)]
pub struct WatchedSet {
    pub names: Arc<NameSet>,
    pub view: Arc<View>,
}

/// By the view.
impl PartialEq for WatchedSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.view, &other.view)
    }
}

/// The effect of a session's new collections on the source. In the cache of globs, names are names of globs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WatchEffect {
    /// The session's slot now; `None` if the session watches no name any more.
    pub slot: Option<SlotId>,
    /// Names without a subscription: the source has to subscribe upstream.
    pub new: Vec<ResourceName>,
    /// Lingering names with a session again.
    pub revived: Vec<ResourceName>,
    /// Names without sessions now. The caller lets the names linger (RLY-60).
    pub unwatched: Vec<ResourceName>,
}

/// A session's new set of names, and the previous set if the session made the new one from it.
#[derive(Clone, Copy)]
pub struct NamesAfter<'a> {
    pub names: &'a Arc<NameSet>,
    pub previous: Option<&'a NameSet>,
}

impl<'a> NamesAfter<'a> {
    /// The set to compare the new names with: the session's previous set, or the names of the slot (`old`) if
    /// the two sets differ. A comparison of two sets of a session is cheap, because they share their nodes; a
    /// comparison of a session's set with a source's set visits all names.
    pub fn before(&self, old: &'a NameSet) -> &'a NameSet {
        self.previous.filter(|previous| previous.id() == old.id()).unwrap_or(old)
    }
}

/// A cache with sets of names that sessions watch. In the cache of globs, names are names of globs.
pub trait WatchedInSets {
    fn content(&mut self) -> (&mut Content, &mut Slots);

    fn slots(&mut self) -> &mut Slots {
        self.content().1
    }

    /// The slots that contain a name; `None` for a name without an upstream subscription.
    fn watchers(&mut self, name: &ResourceName) -> Option<&mut Watchers>;

    /// Updates the view of a slot to its new names, at the cost of the difference. Returns the names in the
    /// texts that all sets of the cache share, if there are such texts.
    fn reshape(
        &mut self,
        id: SlotId,
        old: &NameSet,
        names: NamesAfter<'_>,
        moved: &mut WatchEffect,
    ) -> Option<NameSet>;

    /// Stamps the changed views, and adds their sessions to `news`.
    fn settle_sets(&mut self, stamp: &mut Stamp, news: &mut News) {
        let (content, slots) = self.content();
        let (lost, number) = content.settle(stamp);
        let sessions = slots.settle(stamp, lost, number, news);
        content.report(number, sessions, stamp, news);
    }

    /// Moves a session from its set to another set.
    fn watch(
        &mut self,
        session: SessionId,
        from: Option<SlotId>,
        names: NamesAfter<'_>,
        stamp: &mut Stamp,
    ) -> WatchEffect {
        let mut moved = WatchEffect::default();
        if names.names.is_empty() {
            self.leave(session, from, &mut moved);
            return moved;
        }
        let entered = self.slots().enter(session, from, names.names);
        if let Some(old) = entered.reshaped
            && let Some(names) = self.reshape(entered.slot, &old, names, &mut moved)
        {
            self.slots().set_names(entered.slot, names);
        }
        if entered.leaves {
            self.leave(session, from, &mut moved);
        }
        moved.slot = Some(entered.slot);
        self.settle_sets(stamp, &mut News::default());
        moved
    }

    /// Removes a session from its set. Returns the names that lost their last session.
    fn unwatch(&mut self, session: SessionId, from: SlotId) -> Vec<ResourceName> {
        let mut moved = WatchEffect::default();
        self.leave(session, Some(from), &mut moved);
        moved.unwatched
    }

    fn leave(&mut self, session: SessionId, from: Option<SlotId>, moved: &mut WatchEffect) {
        let Some(id) = from else { return };
        for name in self.slots().leave(session, id).iter().flat_map(|names| names.iter()) {
            self.detach(name, id, moved);
        }
    }

    fn detach(&mut self, name: &ResourceName, slot: SlotId, moved: &mut WatchEffect) {
        if let Some(watchers) = self.watchers(name) {
            watchers.remove(slot);
            if watchers.is_empty() {
                moved.unwatched.push(name.clone());
            }
        }
    }
}

#[derive(Debug)]
struct Slot {
    names: Arc<NameSet>,
    view: Arc<View>,
    /// The number of present names when the view was last refilled.
    refilled: usize,
    /// The content has changed since [`Slots::settle`].
    is_altered: bool,
    sessions: BTreeSet<SessionId>,
}

impl Slot {
    fn watched(&self) -> WatchedSet {
        WatchedSet { names: self.names.clone(), view: self.view.clone() }
    }

    /// Takes the equal names of another source over. Returns whether there were any.
    fn share_names(&mut self, shared: &mut SharedSet, commons: &dyn Commons) -> bool {
        let id = self.names.id();
        if std::mem::replace(&mut shared.id, id) == id {
            return false;
        }
        let key = MapKey { map_use: MapUse::Set, digest: id.digest(), len: self.names.len() };
        let names = shared.names.share(&*self.names, key, commons, |_| None);
        let is_shared = names.is_some();
        if let Some(names) = names {
            self.names = Arc::new(names);
        }
        is_shared
    }

    /// Refills the nodes of a view after many changes. The cost is in proportion to these changes.
    fn refill(&mut self) {
        if !(self.view.is_loose() && self.view.is_complete()) {
            return;
        }
        let has_doubled = self.view.len() >= 2 * self.refilled;
        // Several sessions share the cost of empty places, and each would compare two views without common
        // nodes.
        if has_doubled || self.sessions.len() == 1 {
            let filling = if self.refilled == 0 { Filling::Full } else { Filling::Roomy };
            self.refilled = self.view.len();
            Arc::make_mut(&mut self.view).refill(filling);
        }
    }
}

#[derive(Debug, Default)]
pub struct Slots {
    slots: BTreeMap<SlotId, Slot>,
    by_set: BTreeMap<SetId, SlotId>,
    published: OrdMap<SetId, WatchedSet>,
    made: u32,
    /// Slots whose view has changed since [`Slots::settle`].
    touched: BTreeSet<SlotId>,
    /// The touched slots with a newly known name.
    resolved: BTreeSet<SlotId>,
    /// Slots that have changed since [`Slots::share`]. Not noted where there are many slots.
    unshared: BTreeSet<SlotId>,
    /// The slots with maps in the commons; a few, or none.
    shared: BTreeMap<SlotId, SharedSet>,
}

/// The maps of a set in the commons.
#[derive(Debug, Default)]
struct SharedSet {
    names: Shared,
    /// The set with these names.
    id: SetId,
    versions: Shared,
}

/// The result of [`Slots::enter`].
pub(super) struct Entered {
    pub slot: SlotId,
    /// The previous names of the slot, if they changed: the caller has to update the view.
    pub reshaped: Option<Arc<NameSet>>,
    /// The caller still has to remove the session from its previous slot.
    pub leaves: bool,
}

impl Slots {
    /// Moves a session from its set to `names`. A session that is alone in its slot changes the slot's names
    /// instead: the cost is proportional to the number of changed names.
    pub(super) fn enter(
        &mut self,
        session: SessionId,
        from: Option<SlotId>,
        names: &Arc<NameSet>,
    ) -> Entered {
        let is_alone = |slot: &SlotId| self.slots.get(slot).is_some_and(|slot| slot.sessions.len() == 1);
        let (id, leaves) = match (self.by_set.get(&names.id()).copied(), from.filter(is_alone)) {
            (Some(id), _) => (id, from != Some(id)),
            (None, Some(alone)) => (alone, false),
            (None, None) => (self.make(), true),
        };
        let mut reshaped = None;
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.sessions.insert(session);
            if slot.names.id() != names.id() {
                reshaped = Some(std::mem::replace(&mut slot.names, names.clone()));
            }
        }
        if let Some(old) = &reshaped {
            if self.by_set.get(&old.id()) == Some(&id) {
                self.by_set.remove(&old.id());
                self.published.remove(&old.id());
            }
            self.by_set.insert(names.id(), id);
            self.touched.insert(id);
        }
        Entered { slot: id, reshaped, leaves }
    }

    fn make(&mut self) -> SlotId {
        let id = SlotId(self.made);
        self.made = self.made.wrapping_add(1);
        let empty = Slot {
            names: Arc::default(),
            view: Arc::default(),
            refilled: 0,
            is_altered: false,
            sessions: BTreeSet::new(),
        };
        self.slots.insert(id, empty);
        id
    }

    /// Removes a session from a slot. After the last session, removes the slot, too, and returns its names.
    pub fn leave(&mut self, session: SessionId, id: SlotId) -> Option<Arc<NameSet>> {
        let slot = self.slots.get_mut(&id)?;
        slot.sessions.remove(&session);
        if !slot.sessions.is_empty() {
            return None;
        }
        let slot = self.slots.remove(&id)?;
        self.by_set.remove(&slot.names.id());
        self.published.remove(&slot.names.id());
        self.touched.remove(&id);
        self.resolved.remove(&id);
        self.unshared.remove(&id);
        self.shared.remove(&id);
        Some(slot.names)
    }

    /// Replaces the names of a slot by an equal set.
    fn set_names(&mut self, id: SlotId, names: NameSet) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.names = Arc::new(names);
        }
    }

    pub fn view(&self, id: SlotId) -> Option<&Arc<View>> {
        self.slots.get(&id).map(|slot| &slot.view)
    }

    pub fn set_view(&mut self, id: SlotId, view: View) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.view = Arc::new(view);
        }
    }

    /// Applies `change` to the views of the slots.
    pub fn touch<'a>(&mut self, ids: impl IntoIterator<Item = &'a SlotId>, change: impl Fn(&mut View)) {
        for id in ids {
            let Some(slot) = self.slots.get_mut(id) else { continue };
            let view = Arc::make_mut(&mut slot.view);
            let before = view.digest();
            change(view);
            slot.is_altered |= view.digest() != before;
            self.touched.insert(*id);
        }
    }

    /// A name in these slots has become known.
    pub fn resolve<'a>(&mut self, ids: impl IntoIterator<Item = &'a SlotId>) {
        self.resolved.extend(ids);
    }

    /// Stamps the changed views, and adds their sessions to `news`. `change`: the number of the change of
    /// content. Returns the number of sessions with changed content.
    pub fn settle(&mut self, stamp: &mut Stamp, lost: ViewId, change: Option<u64>, news: &mut News) -> usize {
        let resolved = std::mem::take(&mut self.resolved);
        let mut sessions = 0;
        let touched = std::mem::take(&mut self.touched);
        if self.are_shared() {
            self.unshared.extend(&touched);
        }
        for id in touched {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let (view_id, now) = stamp.next();
            let is_resolved = resolved.contains(&id);
            slot.refill();
            let view = Arc::make_mut(&mut slot.view);
            view.stamp(view_id, now, lost);
            if std::mem::take(&mut slot.is_altered)
                && let Some(number) = change
            {
                view.note_change(number);
                sessions += slot.sessions.len();
            }
            self.published.insert(slot.names.id(), slot.watched());
            let list = if is_resolved { &mut news.first } else { &mut news.update };
            list.extend(slot.sessions.iter().copied());
        }
        sessions
    }

    fn are_shared(&self) -> bool {
        self.slots.len() <= SHARED_SETS_MAX
    }

    /// Takes equal names and versions of other sources over, for the slots that have changed since the last
    /// call. Returns whether any slot has other nodes.
    pub fn share(&mut self, commons: &dyn Commons) -> bool {
        let (unshared, mut is_shared) = (std::mem::take(&mut self.unshared), false);
        if !self.are_shared() {
            self.shared.clear();
            return is_shared;
        }
        for id in unshared {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let Some(content) = slot.view.content_key() else {
                self.shared.remove(&id);
                continue;
            };
            let shared = self.shared.entry(id).or_default();
            let has_names = slot.share_names(shared, commons);
            let has_versions = View::share(&mut slot.view, content, &mut shared.versions, commons);
            if has_names || has_versions {
                is_shared = true;
                self.published.insert(slot.names.id(), slot.watched());
            }
        }
        is_shared
    }

    /// The identity of all sets together; `None` if there are many, or none.
    pub fn sets_digest(&self) -> Option<u128> {
        let ids = || self.by_set.keys().map(|id| id.digest());
        (self.are_shared() && !self.by_set.is_empty()).then(|| ids().fold(0, u128::wrapping_add))
    }

    /// The sessions of the slots, without duplicates; sorted.
    pub fn sessions_of<'a>(&self, ids: impl IntoIterator<Item = &'a SlotId>) -> Vec<SessionId> {
        // Many names of a set are in the same slot.
        let ids: BTreeSet<&SlotId> = ids.into_iter().collect();
        let slots = ids.into_iter().filter_map(|slot| self.slots.get(slot));
        let sessions: BTreeSet<SessionId> = slots.flat_map(|slot| slot.sessions.iter().copied()).collect();
        sessions.into_iter().collect()
    }

    /// The sets and their views, as last settled.
    pub fn published(&self) -> &OrdMap<SetId, WatchedSet> {
        &self.published
    }

    /// Panics in debug builds if the slots are inconsistent. `states_in`: the number of names in a view with
    /// a state.
    pub fn check_invariants(&self, states_in: impl Fn(&View) -> usize) {
        if cfg!(debug_assertions) {
            for (id, slot) in &self.slots {
                debug_assert_eq!(self.by_set.get(&slot.names.id()), Some(id), "a slot is found by its set");
                debug_assert!(!slot.sessions.is_empty(), "a slot has a session");
                debug_assert_eq!(
                    states_in(&slot.view),
                    slot.names.len(),
                    "every name has one state in the view"
                );
            }
            debug_assert_eq!(self.by_set.len(), self.slots.len(), "every set has a slot");
        }
    }
}
