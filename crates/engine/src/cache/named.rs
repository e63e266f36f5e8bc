//! Resources subscribed to by name, and the watched sets of names.

use std::sync::Arc;

use imbl::OrdMap;

use super::aliased::{Aliased, ListedAliases};
use super::content::Content;
use super::departed::Departed;
use super::kind::{Entry, KindCache, PrivateNames};
use super::news::{News, SessionId, Stamp};
use super::slots::{NamesAfter, Slots, WatchEffect, WatchedInSets, WatchedSet};
use super::state::{
    CacheCounts, CachedResource, EntryState, Known, Names, StateCounts, UNWATCHED_BYTES, weight,
};
use super::watchers::{SlotId, Watchers};
use crate::CHECKED_NAMES_MAX;
use crate::annotations::{Annotations, ErrorKind, Lease};
use crate::collection::{NameSet, SetId};
use crate::commons::{Commons, ContentKey, MapKey, MapUse, SHARED_MIN, Shared};
use crate::filling::{Filling, Refilled};
use crate::time::ReceivedAt;
use crate::upstream::{Cause, Changes};
use crate::view::View;
use sluice_xds::{Code, Received, Resource, ResourceName, Status};

#[derive(Debug, Default)]
pub struct NamedCache {
    /// Every name with an upstream subscription, and its state.
    entries: Names,
    /// Errors and leases of the names.
    annotations: Annotations,
    /// The slots that contain a name; empty while the name lingers.
    watchers: OrdMap<ResourceName, Watchers>,
    /// The watchers have changed since the last sharing.
    has_unshared_watchers: bool,
    shared_watchers: Shared,
    refilled: Refilled,
    refilled_watchers: Refilled,
    /// The names that are or were an alias of a resource (ALI-2).
    aliases: OrdMap<ResourceName, Arc<Aliased>>,
    /// The aliases that present resources list, requested or not.
    listed: ListedAliases,
    counts: CacheCounts,
    slots: Slots,
    content: Content,
}

impl WatchedInSets for NamedCache {
    fn content(&mut self) -> (&mut Content, &mut Slots) {
        (&mut self.content, &mut self.slots)
    }

    fn watchers(&mut self, name: &ResourceName) -> Option<&mut Watchers> {
        self.has_unshared_watchers = true;
        self.watchers.get_mut(name)
    }

    /// Updates the view of a slot to its new names, at the cost of the difference.
    fn reshape(
        &mut self,
        id: SlotId,
        old: &NameSet,
        names: NamesAfter<'_>,
        moved: &mut WatchEffect,
    ) -> Option<NameSet> {
        let mut view = (**self.slots.view(id)?).clone();
        self.has_unshared_watchers = true;
        let (mut present, mut added) = (Vec::new(), Vec::new());
        let (before, names) = (names.before(old), names.names);
        // Many new names go in the order that fills the nodes of the map. A few are not worth a second look.
        if names.len() > before.len() + SHARED_MIN {
            let fresh = names.minus(before).filter(|name| !self.watchers.contains_key(*name)).cloned();
            for name in Filling::Full.order(fresh.collect()) {
                self.watchers.insert(name, Watchers::default());
            }
        }
        for name in names.minus(before) {
            // All sets share one text of a name.
            let (text, unwatched) = match self.watchers.get_key_value_mut(name) {
                Some((text, watchers)) => {
                    let unwatched = watchers.is_empty();
                    watchers.insert(id);
                    (text.clone(), unwatched)
                }
                None => {
                    self.watchers.insert(name.clone(), Watchers::only(id));
                    (name.clone(), true)
                }
            };
            view.add_unknown();
            view.annotate(&text, &self.annotations);
            match self.entries.get(name) {
                None => {
                    self.begin(text.clone());
                    moved.new.push(text.clone());
                    present.extend(self.take_listed(&text).map(|resource| (text.clone(), resource)));
                    added.push(text);
                    continue;
                }
                Some(Known::Unknown) => {}
                Some(Known::Present(cached)) => present.push((text.clone(), cached.resource.clone())),
                Some(Known::Absent(_)) => view.put_absent(&text, None),
            }
            if unwatched {
                moved.revived.push(text.clone());
            }
            added.push(text);
        }
        view.put_sorted(present);
        let gone = old.texts_of(before.minus(names));
        for name in &gone {
            match self.entries.get(name) {
                Some(Known::Present(cached)) => view.take_as(name, &cached.resource),
                Some(Known::Absent(_)) => view.drop_absent(name),
                Some(Known::Unknown) | None => view.drop_unknown(),
            }
            view.drop_annotations(name);
            self.detach(name, id, moved);
        }
        self.slots.set_view(id, view);
        // New names are in their first texts.
        (moved.new.len() < names.len() || names.is_loose()).then(|| names.in_texts_of(old, &gone, added))
    }
}

impl KindCache for NamedCache {
    fn apply(&mut self, changes: &Changes, received_at: ReceivedAt) {
        for resource in &changes.present {
            self.put(resource, received_at);
        }
        for (alias, resource) in &changes.by_alias {
            self.put_as(alias, resource, received_at);
        }
        for (name, cause) in &changes.absent {
            self.put_absent(name, *cause);
        }
    }

    fn settle(&mut self, stamp: &mut Stamp, news: &mut News) {
        self.settle_sets(stamp, news);
    }

    fn departed(&self) -> &Departed {
        &self.content.departed
    }

    fn departed_mut(&mut self) -> &mut Departed {
        &mut self.content.departed
    }

    fn resource(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        self.entries.get(name)?.resource()
    }

    fn resources_len(&self) -> usize {
        self.counts.present
    }

    fn bytes(&self) -> usize {
        self.counts.bytes
    }

    fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    fn stores(&self, name: &ResourceName) -> bool {
        self.entries.contains_key(name)
    }

    fn set_lease(&mut self, name: &ResourceName, lease: Option<Lease>) {
        let is_present = || self.resource(name).is_some();
        if self.annotations.lease(name) != lease.as_ref() && (lease.is_none() || is_present()) {
            self.annotations.set_lease(name, lease);
            self.touch_annotations(name, false);
        }
    }

    fn expire(&mut self, name: &ResourceName) -> bool {
        let was_present = self.resource(name).is_some();
        if was_present {
            self.put_absent(name, Cause::Expired);
        }
        was_present
    }

    fn set_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>) {
        if self.annotations.error(name) != error {
            self.change_error(name, error, ErrorKind::default());
        }
    }

    /// The cached copy stays (DAT-2, DAT-3).
    fn fail(&mut self, name: &ResourceName, error: &Arc<Status>, kind: ErrorKind) {
        if self.annotations.error(name) != Some(error) || self.annotations.error_kind(name) != Some(kind) {
            self.change_error(name, Some(error), kind);
        }
    }

    fn is_unknown(&self, name: &ResourceName) -> bool {
        matches!(self.entries.get(name), Some(Known::Unknown))
    }

    fn unwatched(&self, entry: Option<&ResourceName>) -> Option<(usize, bool)> {
        let name = entry.filter(|name| !self.is_watched(name))?;
        let resource = self.resource(name);
        let body = resource.map_or(0, |resource| resource.size());
        Some((body + name.as_str().len() + UNWATCHED_BYTES, resource.is_some()))
    }

    fn is_worth_keeping(&self, entry: Option<&ResourceName>) -> bool {
        entry.is_some_and(|name| self.resource(name).is_some())
    }

    fn restorable(&self) -> Vec<Entry> {
        let present = self.entries.iter().filter(|(_, entry)| entry.resource().is_some());
        let names = present.map(|(name, _)| name).filter(|name| !self.is_watched(name));
        names.cloned().map(Some).collect()
    }

    fn weight_before(&self, received: &Received) -> Option<usize> {
        let name = &received.name;
        let plain = ResourceName::new(name.plain());
        let is_located = || self.located(&plain).next().is_some();
        let aliases = received.resource.iter().flat_map(|resource| resource.aliases.iter());
        let names = [name, &plain].into_iter().chain(aliases);
        let states = names.filter_map(|name| self.entries.get(name));
        let before = states.map(|state| state.resource().map_or(0, weight)).max();
        before.or_else(|| is_located().then_some(0))
    }

    fn omittable(&self) -> Vec<(&ResourceName, &Arc<Resource>)> {
        self.entries.iter().filter_map(|(name, state)| Some((name, state.resource()?))).collect()
    }

    fn give_up_private(
        &self,
        resources: &[Arc<Resource>],
        changes: &mut Changes,
        private: &mut PrivateNames,
    ) -> (Vec<Entry>, Vec<SessionId>) {
        for resource in &changes.present {
            private.names.remove(&resource.name);
        }
        changes.by_alias.retain(|(_, resource)| !resource.do_not_cache);
        let names = resources.iter().flat_map(|body| std::iter::once(&body.name).chain(&body.aliases));
        let subscribed: Vec<_> = names.filter(|name| self.entries.contains_key(*name)).cloned().collect();
        private.names.extend(subscribed.iter().cloned());
        let sessions = self.sessions_of(&subscribed);
        (subscribed.into_iter().map(Some).collect(), sessions)
    }
}

impl NamedCache {
    /// A resource arrived. Names without a subscription are ignored (RLY-61); equal content is no change
    /// (RLY-36).
    pub fn put(&mut self, resource: &Arc<Resource>, received_at: ReceivedAt) {
        self.put_as(&resource.name, resource, received_at);
    }

    /// As [`NamedCache::put`], for a name that may be an alias of the resource. An alias may move to another
    /// resource (ALI-2).
    pub fn put_as(&mut self, name: &ResourceName, resource: &Arc<Resource>, received_at: ReceivedAt) {
        self.stop_following(name);
        let before = self.followed_resource(name).filter(|before| *before != resource.name);
        self.put_content(name, resource, received_at);
        before.iter().for_each(|before| self.release_followers(before));
        for alias in self.listed.followers(&resource.name) {
            self.put_content(&alias, resource, received_at);
        }
    }

    fn put_content(&mut self, name: &ResourceName, resource: &Arc<Resource>, received_at: ReceivedAt) {
        let Some(old) = self.entries.get(name).cloned() else { return };
        // The resource ends the earlier error (ERR-3), changed or not.
        self.set_error(name, None);
        if old.resource().is_some_and(|old| old.version == resource.version) {
            return;
        }
        if let Some(aliased) = self.aliases.get_mut(name) {
            Arc::make_mut(aliased).answer(resource);
        } else if *name != resource.name {
            self.aliases.insert(name.clone(), Arc::new(Aliased::new(resource)));
        }
        self.content.put(name, old.resource().map(Arc::as_ref), resource);
        self.note(name, &old, Known::Present(CachedResource { resource: resource.clone(), received_at }));
        self.touch(name, &old, |view| view.put_as(name, old.resource().map(Arc::as_ref), resource));
    }

    /// Restores a name without sessions, with its resource, after a restart of the relay (RLY-7).
    pub fn restore(&mut self, name: &ResourceName, resource: &Arc<Resource>, received_at: ReceivedAt) {
        if self.adopt(name) {
            self.put_as(name, resource, received_at);
        }
    }

    /// Begins a name without sessions. Returns whether the name is new.
    pub fn adopt(&mut self, name: &ResourceName) -> bool {
        let is_new = !self.entries.contains_key(name);
        if is_new {
            self.begin(name.clone());
            self.watchers.insert(name.clone(), Watchers::default());
            self.has_unshared_watchers = true;
        }
        is_new
    }

    fn begin(&mut self, name: ResourceName) {
        self.counts.count(&Known::Unknown, EntryState::Requested, true);
        self.entries.insert(name, Known::Unknown);
    }

    /// A name does not exist, or its copy is dropped. The error behind the removal stays.
    pub fn put_absent(&mut self, name: &ResourceName, cause: Cause) {
        self.stop_following(name);
        let before = self.followed_resource(name);
        self.note_absent(name, cause);
        before.iter().for_each(|before| self.release_followers(before));
    }

    fn note_absent(&mut self, name: &ResourceName, cause: Cause) {
        let Some(old) = self.entries.get(name).cloned() else { return };
        // The server's message has another copy of the text.
        let text = self.watchers.get_key_value(name).map(|(text, _)| text.clone());
        let name = text.as_ref().unwrap_or(name);
        self.set_lease(name, None);
        let is_reason = |error: &Arc<Status>| error.code == Code::NotFound || cause == Cause::DataError;
        if self.annotations.error(name).is_some_and(|error| !is_reason(error)) {
            self.set_error(name, None);
        }
        if matches!(old, Known::Absent(_)) {
            return;
        }
        if old.resource().is_some() {
            self.content.take(name);
        }
        self.content.departed.lose(name, old.resource());
        self.note(name, &old, Known::Absent(cause));
        self.touch(name, &old, |view| view.put_absent(name, old.resource().map(Arc::as_ref)));
    }

    /// A resource is held already, and lists the new name as an alias (ALI-1). The server's answer for the
    /// alias follows, and may be another.
    fn take_listed(&mut self, name: &ResourceName) -> Option<Arc<Resource>> {
        let cached = self.entries.get(self.listed.find(name)?)?.cached()?.clone();
        let resource = cached.resource.clone();
        self.aliases.insert(name.clone(), Arc::new(Aliased::new(&resource)));
        self.listed.answer(name, &resource);
        self.content.put(name, None, &resource);
        self.note(name, &Known::Unknown, Known::Present(cached));
        Some(resource)
    }

    /// The resource under a name, by its own name, where some alias has a resource by its list alone.
    fn followed_resource(&self, name: &ResourceName) -> Option<ResourceName> {
        let resource = self.listed.has_followers().then(|| self.entries.get(name)?.resource())??;
        Some(resource.name.clone())
    }

    /// A name lost this resource. The aliases that have the resource by its list alone are unknown again,
    /// unless the server answered another name with it: nobody may be sent a resource that the server took
    /// back.
    fn release_followers(&mut self, resource_name: &ResourceName) {
        let followers = self.listed.followers(resource_name);
        let is_answered = |name: &ResourceName| {
            let resource = self.entries.get(name).and_then(Known::resource);
            resource.is_some_and(|resource| resource.name == *resource_name) && !followers.contains(name)
        };
        if followers.is_empty() || is_answered(resource_name) || self.aliases.keys().any(is_answered) {
            return;
        }
        for alias in followers {
            self.listed.end_answer(&alias, resource_name);
            let Some(old) = self.entries.get(&alias).cloned() else { continue };
            let Some(resource) = old.resource() else { continue };
            self.content.take(&alias);
            self.note(&alias, &old, Known::Unknown);
            self.touch(&alias, &old, |view| {
                view.take_as(&alias, resource);
                view.add_unknown();
            });
        }
    }

    /// The server has answered for a name, or nobody requests it any more.
    fn stop_following(&mut self, name: &ResourceName) {
        if let Some(aliased) = self.aliases.get(name) {
            self.listed.end_answer(name, aliased.name());
        }
    }

    fn change_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>, kind: ErrorKind) {
        let Some(entry) = self.entries.get(name) else { return };
        self.counts.states.sub(EntryState::of(entry, name, &self.annotations), 1);
        self.annotations.set_error(name, error);
        self.annotations.set_error_kind(name, kind);
        self.counts.states.add(EntryState::of(entry, name, &self.annotations), 1);
        self.touch_annotations(name, error.is_some());
    }

    fn touch_annotations(&mut self, name: &ResourceName, is_answer: bool) {
        let slots = || self.watchers.get(name).into_iter().flat_map(Watchers::iter);
        self.slots.touch(slots(), |view| view.annotate(name, &self.annotations));
        if is_answer && matches!(self.entries.get(name), Some(Known::Unknown)) {
            self.slots.resolve(slots());
        }
    }

    fn note(&mut self, name: &ResourceName, old: &Known, new: Known) {
        self.count(name, old, false);
        self.count(name, &new, true);
        self.entries.insert(name.clone(), new);
    }

    fn count(&mut self, name: &ResourceName, entry: &Known, joins: bool) {
        self.counts.count(entry, EntryState::of(entry, name, &self.annotations), joins);
        if let Some(resource) = entry.resource() {
            self.listed.note(name, resource, joins);
            self.content.count(resource, joins);
        }
    }

    fn touch(&mut self, name: &ResourceName, old: &Known, change: impl Fn(&mut View)) {
        let slots = || self.watchers.get(name).into_iter().flat_map(Watchers::iter);
        self.slots.touch(slots(), change);
        if matches!(old, Known::Unknown) {
            self.slots.resolve(slots());
        }
    }

    /// Frees a name without sessions (RLY-61). Returns whether the name existed and was freed.
    pub fn free(&mut self, name: &ResourceName) -> bool {
        if self.is_watched(name) {
            return false;
        }
        self.watchers.remove(name);
        self.has_unshared_watchers = true;
        self.content.departed.back(name);
        self.stop_following(name);
        self.aliases.remove(name);
        let Some(entry) = self.entries.remove(name) else { return false };
        self.count(name, &entry, false);
        self.annotations.forget(name);
        true
    }

    /// The identity of a completely known content that is worth sharing.
    pub(crate) fn content_key(&self) -> Option<ContentKey> {
        let len = self.entries.len();
        let is_worth_it = self.counts.unknown == 0 && len >= SHARED_MIN;
        is_worth_it.then(|| ContentKey { digest: self.content.digest(), len })
    }

    /// Takes equal maps of other sources over, and fills the nodes of the own maps. Returns whether a map of
    /// the snapshot has other nodes.
    pub fn share(&mut self, commons: &dyn Commons) -> bool {
        let is_shared = self.slots.share(commons);
        let digest = self.slots.sets_digest().filter(|_| self.content_key().is_some());
        let Some(digest) = digest else {
            self.shared_watchers.leave();
            return is_shared;
        };
        if std::mem::take(&mut self.has_unshared_watchers) {
            let key = MapKey { map_use: MapUse::Watchers, digest, len: self.watchers.len() };
            let fill = |watchers: &_| self.refilled_watchers.refill(watchers);
            if let Some(watchers) = self.shared_watchers.share(&self.watchers, key, commons, fill) {
                self.watchers = watchers;
            }
        }
        let filled = self.refilled.refill(&self.entries);
        let is_filled = filled.is_some();
        if let Some(entries) = filled {
            self.entries = entries;
        }
        is_filled || is_shared
    }

    pub fn is_watched(&self, name: &ResourceName) -> bool {
        self.watchers.get(name).is_some_and(|watchers| !watchers.is_empty())
    }

    /// The sessions that want some of the names, without duplicates.
    fn sessions_of<'a>(&self, names: impl IntoIterator<Item = &'a ResourceName>) -> Vec<SessionId> {
        let watchers = names.into_iter().filter_map(|name| self.watchers.get(name));
        self.slots.sessions_of(watchers.flat_map(Watchers::iter))
    }

    /// The resources behind aliases. An entry exists as long as its alias is subscribed to.
    pub fn aliases(&self) -> &OrdMap<ResourceName, Arc<Aliased>> {
        &self.aliases
    }

    /// The names that request this plain name with parameters (DYN-7).
    pub fn located<'a>(&'a self, plain: &'a ResourceName) -> impl Iterator<Item = &'a ResourceName> {
        let first = ResourceName::first_located(plain);
        let names = self.entries.range(first..).map(|(name, _)| name);
        names.take_while(|name| name.plain() == plain.as_str())
    }

    pub fn entries(&self) -> &Names {
        &self.entries
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    pub fn sets(&self) -> &OrdMap<SetId, WatchedSet> {
        self.slots.published()
    }

    /// Panics in debug builds if the cache is inconsistent.
    pub fn check_invariants(&self) {
        if cfg!(debug_assertions) && self.entries.len() <= CHECKED_NAMES_MAX {
            self.slots.check_invariants(|view| view.len() + view.absent_len() + view.unknown_len());
            let present = self.entries.values().filter(|entry| entry.resource().is_some()).count();
            debug_assert_eq!(present, self.counts.present, "present names are counted");
            let mut states = StateCounts::default();
            let all = self.entries.iter().map(|(name, entry)| EntryState::of(entry, name, &self.annotations));
            all.for_each(|state| states.add(state, 1));
            debug_assert_eq!(states, self.counts.states, "states are counted");
            debug_assert_eq!(self.entries.len(), self.watchers.len(), "every name has its watchers");
        }
    }
}
