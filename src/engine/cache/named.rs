//! Resources subscribed to by name, and the sets of names that sessions watch.
//!
//! A set that several sessions watch exists once, as a slot. Each name knows the slots that contain it, so that the cost
//! of an update is proportional to the sets that want it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;

use super::aliased::Aliased;
use super::{Counts, Departed, Known, News, SessionId, Stamp};
use crate::engine::interest::{NameSet, SetId};
use crate::engine::remarks::{Lease, Remarks};
use crate::engine::snapshot::{Names, WatchedSet};
use crate::engine::upstream::Cause;
use crate::engine::view::View;
use crate::xds::{Code, Resource, ResourceName, Status};

/// A watched set inside one [`NamedCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotId(u32);

impl SlotId {
    pub(super) fn new(number: u32) -> SlotId {
        SlotId(number)
    }
}

#[derive(Debug)]
struct Slot {
    names: Arc<NameSet>,
    view: Arc<View>,
    sessions: BTreeSet<SessionId>,
}

/// What a change of a session's interest means for the source.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Where the session stands now; `None` if it watches no name any more.
    pub slot: Option<SlotId>,
    /// Names that nobody asked for before: to be subscribed to upstream.
    pub new: Vec<ResourceName>,
    /// Names that had lingered and are watched again.
    pub revived: Vec<ResourceName>,
    /// Names that nobody watches any more: they linger (RLY-60).
    pub unwatched: Vec<ResourceName>,
}

#[derive(Debug, Default)]
pub struct NamedCache {
    /// Every name that is subscribed to upstream, with what is known of it.
    known: Names,
    /// What is said of them beside their content.
    remarks: Remarks,
    /// The slots that contain a name; empty while it lingers.
    watchers: BTreeMap<ResourceName, BTreeSet<SlotId>>,
    /// Of names that are or were the alias of a resource (ALI-2).
    aliases: OrdMap<ResourceName, Arc<Aliased>>,
    present: usize,
    absent: usize,
    bytes: usize,
    slots: BTreeMap<SlotId, Slot>,
    by_set: BTreeMap<SetId, SlotId>,
    sets: OrdMap<SetId, WatchedSet>,
    slots_made: u32,
    /// Slots whose view has changed since [`NamedCache::settle`].
    touched: BTreeSet<SlotId>,
    /// Those of them in which a name has become known.
    resolved: BTreeSet<SlotId>,
    /// The last bytes of names that are now absent, and when one last became so.
    pub departed: Departed,
}

impl NamedCache {
    /// Moves a session from the set it watched to another one.
    pub fn watch(
        &mut self,
        session: SessionId,
        from: Option<SlotId>,
        names: &Arc<NameSet>,
        stamp: &mut Stamp,
    ) -> Moved {
        let mut moved = Moved::default();
        if names.is_empty() {
            self.leave(session, from, &mut moved);
            return moved;
        }
        if let Some(slot) = self.by_set.get(&names.id()).copied() {
            moved.slot = Some(slot);
            if from == Some(slot) {
                return moved;
            }
            self.join(session, slot);
            self.leave(session, from, &mut moved);
            return moved;
        }
        // A session that was alone in its set takes the set along: the cost is that of the names that changed.
        let alone = from.filter(|slot| self.slots.get(slot).is_some_and(|slot| slot.sessions.len() == 1));
        let slot = match alone {
            Some(slot) => slot,
            None => self.make_slot(),
        };
        self.reshape(slot, names, &mut moved);
        self.join(session, slot);
        if alone.is_none() {
            self.leave(session, from, &mut moved);
        }
        moved.slot = Some(slot);
        self.settle(stamp, &mut News::default());
        moved
    }

    /// Takes a session out of the set it watched.
    pub fn unwatch(&mut self, session: SessionId, from: SlotId) -> Vec<ResourceName> {
        let mut moved = Moved::default();
        self.leave(session, Some(from), &mut moved);
        moved.unwatched
    }

    fn make_slot(&mut self) -> SlotId {
        let slot = SlotId(self.slots_made);
        self.slots_made = self.slots_made.wrapping_add(1);
        let empty = Slot { names: Arc::default(), view: Arc::default(), sessions: BTreeSet::new() };
        self.slots.insert(slot, empty);
        slot
    }

    fn join(&mut self, session: SessionId, slot: SlotId) {
        if let Some(slot) = self.slots.get_mut(&slot) {
            slot.sessions.insert(session);
        }
    }

    fn leave(&mut self, session: SessionId, from: Option<SlotId>, moved: &mut Moved) {
        let Some(id) = from else { return };
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.sessions.remove(&session);
        if !slot.sessions.is_empty() {
            return;
        }
        if let Some(slot) = self.slots.remove(&id) {
            self.by_set.remove(&slot.names.id());
            self.sets.remove(&slot.names.id());
            self.touched.remove(&id);
            for name in slot.names.iter() {
                self.detach(name, id, moved);
            }
        }
    }

    fn detach(&mut self, name: &ResourceName, slot: SlotId, moved: &mut Moved) {
        if let Some(watchers) = self.watchers.get_mut(name) {
            watchers.remove(&slot);
            if watchers.is_empty() {
                moved.unwatched.push(name.clone());
            }
        }
    }

    /// Gives a slot another set of names, at the cost of the difference.
    fn reshape(&mut self, id: SlotId, names: &Arc<NameSet>, moved: &mut Moved) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let old = std::mem::replace(&mut slot.names, names.clone());
        let mut view = (*slot.view).clone();
        for name in names.minus(&old) {
            let watchers = self.watchers.entry(name.clone()).or_default();
            let unwatched = watchers.is_empty();
            watchers.insert(id);
            view.add_unknown();
            view.remark(name, &self.remarks);
            match self.known.get(name) {
                None => {
                    self.known.insert(name.clone(), Known::Unknown);
                    moved.new.push(name.clone());
                    continue;
                }
                Some(Known::Unknown) => {}
                Some(Known::Present(resource)) => view.put_as(name, None, resource),
                Some(Known::Absent(_)) => view.put_absent(name, None),
            }
            if unwatched {
                moved.revived.push(name.clone());
            }
        }
        for name in old.minus(names) {
            match self.known.get(name) {
                Some(Known::Present(resource)) => view.take_as(name, resource),
                Some(Known::Absent(_)) => view.drop_absent(name),
                Some(Known::Unknown) | None => view.drop_unknown(),
            }
            view.drop_remarks(name);
            self.detach(name, id, moved);
        }
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.view = Arc::new(view);
        }
        if self.by_set.get(&old.id()) == Some(&id) {
            self.by_set.remove(&old.id());
            self.sets.remove(&old.id());
        }
        self.by_set.insert(names.id(), id);
        self.touched.insert(id);
    }

    /// A resource arrived. Names that nobody asked for are ignored (RLY-61); equal content is no news (RLY-36).
    pub fn put(&mut self, resource: &Arc<Resource>) {
        self.put_as(&resource.name, resource);
    }

    /// As [`NamedCache::put`], of a name that may be an alias of the resource. An alias may move from one resource to
    /// another (ALI-2).
    pub fn put_as(&mut self, name: &ResourceName, resource: &Arc<Resource>) {
        let Some(old) = self.known.get(name).cloned() else { return };
        // The resource ends the error that stood before it (ERR-3), changed or not.
        self.set_error(name, None);
        if old.resource().is_some_and(|old| old.version == resource.version) {
            return;
        }
        self.departed.back(name);
        if let Some(aliased) = self.aliases.get_mut(name) {
            Arc::make_mut(aliased).answer(resource);
        } else if *name != resource.name {
            self.aliases.insert(name.clone(), Arc::new(Aliased::new(resource)));
        }
        self.note(name, &old, Known::Present(resource.clone()));
        self.touch(name, &old, |view| view.put_as(name, old.resource().map(Arc::as_ref), resource));
    }

    /// A name is known not to exist.
    pub fn put_absent(&mut self, name: &ResourceName, cause: Cause) {
        let Some(old) = self.known.get(name).cloned() else { return };
        self.set_lease(name, None);
        if self.remarks.error(name).is_some_and(|error| error.code != Code::NotFound) {
            self.set_error(name, None);
        }
        if matches!(old, Known::Absent(_)) {
            return;
        }
        self.departed.lose(name, old.resource());
        self.note(name, &old, Known::Absent(cause));
        self.touch(name, &old, |view| view.put_absent(name, old.resource().map(Arc::as_ref)));
    }

    /// The server cannot supply a name (ERR-1), or can again. What is cached of it stays (ERR-4).
    pub fn set_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>) {
        if self.remarks.error(name) != error && self.known.contains_key(name) {
            self.remarks.set_error(name, error);
            self.touch_remarks(name, error.is_some());
        }
    }

    /// How long a resource lives from now on.
    pub fn set_lease(&mut self, name: &ResourceName, lease: Option<Lease>) {
        let is_present = || self.known.get(name).is_some_and(|known| known.resource().is_some());
        if self.remarks.lease(name) != lease.as_ref() && (lease.is_none() || is_present()) {
            self.remarks.set_lease(name, lease);
            self.touch_remarks(name, false);
        }
    }

    fn touch_remarks(&mut self, name: &ResourceName, is_answer: bool) {
        let is_unknown = matches!(self.known.get(name), Some(Known::Unknown));
        for id in self.watchers.get(name).into_iter().flatten() {
            let Some(slot) = self.slots.get_mut(id) else { continue };
            Arc::make_mut(&mut slot.view).remark(name, &self.remarks);
            self.touched.insert(*id);
            if is_unknown && is_answer {
                self.resolved.insert(*id);
            }
        }
    }

    pub fn remarks(&self) -> &Remarks {
        &self.remarks
    }

    fn note(&mut self, name: &ResourceName, old: &Known, new: Known) {
        self.count(old, false);
        self.count(&new, true);
        self.known.insert(name.clone(), new);
    }

    fn count(&mut self, known: &Known, joins: bool) {
        let add = |total: usize, part: usize| if joins { total + part } else { total - part };
        match known {
            Known::Unknown => {}
            Known::Absent(_) => self.absent = add(self.absent, 1),
            Known::Present(resource) => {
                self.present = add(self.present, 1);
                self.bytes = add(self.bytes, resource.size());
            }
        }
    }

    fn touch(&mut self, name: &ResourceName, old: &Known, change: impl Fn(&mut View)) {
        for id in self.watchers.get(name).into_iter().flatten() {
            let Some(slot) = self.slots.get_mut(id) else { continue };
            change(Arc::make_mut(&mut slot.view));
            self.touched.insert(*id);
            if matches!(old, Known::Unknown) {
                self.resolved.insert(*id);
            }
        }
    }

    /// Frees a name that nobody watches (RLY-61). Whether it was there and could be freed.
    pub fn free(&mut self, name: &ResourceName) -> bool {
        if self.is_watched(name) {
            return false;
        }
        self.watchers.remove(name);
        self.departed.back(name);
        self.aliases.remove(name);
        self.remarks.forget(name);
        let Some(known) = self.known.remove(name) else { return false };
        self.count(&known, false);
        true
    }

    pub fn is_watched(&self, name: &ResourceName) -> bool {
        self.watchers.get(name).is_some_and(|watchers| !watchers.is_empty())
    }

    /// The sessions that want a name, each once.
    pub fn sessions_of(&self, name: &ResourceName) -> Vec<SessionId> {
        let slots = self.watchers.get(name).into_iter().flatten().filter_map(|slot| self.slots.get(slot));
        let sessions: BTreeSet<SessionId> = slots.flat_map(|slot| slot.sessions.iter().copied()).collect();
        sessions.into_iter().collect()
    }

    /// Stamps the views that changed and adds the sessions that watch them to `news`.
    pub fn settle(&mut self, stamp: &mut Stamp, news: &mut News) {
        let resolved = std::mem::take(&mut self.resolved);
        let lost = self.departed.settle(stamp);
        for id in std::mem::take(&mut self.touched) {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let (view_id, now) = stamp.next();
            Arc::make_mut(&mut slot.view).stamp(view_id, now, lost);
            let set = WatchedSet { names: slot.names.clone(), view: slot.view.clone() };
            self.sets.insert(slot.names.id(), set);
            let list = if resolved.contains(&id) { &mut news.first } else { &mut news.update };
            list.extend(slot.sessions.iter().copied());
        }
    }

    /// What a name weighs while nobody watches it, in bytes.
    pub fn weight(&self, name: &ResourceName) -> usize {
        let body = self.known.get(name).and_then(Known::resource).map_or(0, |resource| resource.size());
        body + name.as_str().len() + 64
    }

    /// What is behind aliases, for as long as those are asked for.
    pub fn aliases(&self) -> &OrdMap<ResourceName, Arc<Aliased>> {
        &self.aliases
    }

    /// The names that ask for this plain one with parameters (DYN-7).
    pub fn located<'a>(&'a self, plain: &'a ResourceName) -> impl Iterator<Item = &'a ResourceName> {
        let first = ResourceName::first_located(plain);
        let names = self.known.range(first..).map(|(name, _)| name);
        names.take_while(|name| name.plain() == plain.as_str())
    }

    pub fn known(&self) -> &Names {
        &self.known
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn counts(&self) -> Counts {
        let unknown = self.known.len() - self.present - self.absent;
        Counts { present: self.present, absent: self.absent, unknown, bytes: self.bytes }
    }

    pub fn sets(&self) -> &OrdMap<SetId, WatchedSet> {
        &self.sets
    }

    /// Panics in debug builds where the cache contradicts itself.
    pub fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            for (id, slot) in &self.slots {
                debug_assert_eq!(self.by_set.get(&slot.names.id()), Some(id), "a slot is found by its set");
                debug_assert!(!slot.sessions.is_empty(), "a slot has a session");
                let known = slot.view.len() + slot.view.absent_len() + slot.view.unknown_len();
                debug_assert_eq!(known, slot.names.len(), "every name has one state in the view");
            }
            debug_assert_eq!(self.by_set.len(), self.slots.len());
            let present = self.known.values().filter(|known| known.resource().is_some()).count();
            debug_assert_eq!(present, self.present, "present names are counted");
            debug_assert_eq!(self.known.len(), self.watchers.len(), "every name has its watchers");
        }
    }
}
