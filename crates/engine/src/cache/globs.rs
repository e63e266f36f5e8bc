//! The membership of glob collections, and the watched sets of globs (NAM-14 to NAM-16).
//!
//! A glob is like a wildcard: the server states the members, and the members are kept apart from resources
//! that are requested by name (RLY-13). A name belongs to at most one glob, so all members share one map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};

use super::content::Content;
use super::departed::Departed;
use super::kind::{Entry, KindCache, PrivateNames};
use super::members::{Members, put, takes_error};
use super::news::{News, SessionId, Stamp};
use super::slots::{NamesAfter, Slots, WatchEffect, WatchedInSets, WatchedSet};
use super::state::{CachedBodies, UNWATCHED_BYTES, weight};
use super::watchers::{SlotId, Watchers};
use crate::annotations::{Annotations, ErrorKind, Lease};
use crate::collection::{NameSet, SetId};
use crate::time::ReceivedAt;
use crate::upstream::Changes;
use crate::view::View;
use sluice_xds::{Code, Received, Resource, ResourceName, Status};

#[derive(Debug, Default)]
struct Glob {
    members: BTreeSet<ResourceName>,
    /// The membership is complete.
    complete: bool,
    /// The sets that contain the glob; empty while the glob lingers.
    watchers: Watchers,
}

#[derive(Debug, Default)]
pub struct GlobCache {
    globs: BTreeMap<ResourceName, Glob>,
    /// The globs with complete membership, shared with the snapshots.
    complete: OrdSet<ResourceName>,
    members: Members,
    /// Errors and leases of globs and of their members.
    annotations: Annotations,
    slots: Slots,
}

impl WatchedInSets for GlobCache {
    fn content(&mut self) -> (&mut Content, &mut Slots) {
        (&mut self.members.content, &mut self.slots)
    }

    fn watchers(&mut self, glob: &ResourceName) -> Option<&mut Watchers> {
        self.globs.get_mut(glob).map(|glob| &mut glob.watchers)
    }

    /// Updates the view of a slot to its new globs, at the cost of the difference.
    fn reshape(
        &mut self,
        id: SlotId,
        old: &NameSet,
        globs: NamesAfter<'_>,
        moved: &mut WatchEffect,
    ) -> Option<NameSet> {
        let mut view = (**self.slots.view(id)?).clone();
        let (before, globs) = (globs.before(old), globs.names);
        for name in globs.minus(before) {
            match self.globs.get(name) {
                None => moved.new.push(name.clone()),
                Some(glob) if glob.watchers.is_empty() => moved.revived.push(name.clone()),
                Some(_) => {}
            }
            let glob = self.globs.entry(name.clone()).or_default();
            glob.watchers.insert(id);
            view.add_unknown();
            for member in glob.members.iter().filter_map(|member| self.members.get(member)) {
                put(&mut view, None, member);
            }
            for annotated in annotated(&self.annotations, name, &glob.members) {
                view.annotate(annotated, &self.annotations);
            }
            if glob.complete {
                view.resolve_glob(name);
                view.set_glob_empty(name, glob.members.is_empty());
            }
        }
        for name in before.minus(globs) {
            let Some(glob) = self.globs.get(name) else { continue };
            for member in glob.members.iter().filter_map(|member| self.members.get(member)) {
                view.take(member);
            }
            for annotated in annotated(&self.annotations, name, &glob.members) {
                view.drop_annotations(annotated);
            }
            view.drop_glob(name);
            self.detach(name, id, moved);
        }
        self.slots.set_view(id, view);
        globs.is_loose().then(|| globs.refilled())
    }
}

impl KindCache for GlobCache {
    fn apply(&mut self, changes: &Changes, received_at: ReceivedAt) {
        for resource in &changes.present {
            self.put(resource, received_at);
        }
        for (name, _) in &changes.absent {
            self.take(name);
        }
        for glob in &changes.settled {
            self.resolve(glob);
        }
    }

    fn settle(&mut self, stamp: &mut Stamp, news: &mut News) {
        self.settle_sets(stamp, news);
    }

    fn departed(&self) -> &Departed {
        &self.members.content.departed
    }

    fn departed_mut(&mut self) -> &mut Departed {
        &mut self.members.content.departed
    }

    fn resource(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        self.members.get(name)
    }

    fn resources_len(&self) -> usize {
        self.members.bodies().len()
    }

    fn bytes(&self) -> usize {
        self.members.bytes()
    }

    fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    fn set_lease(&mut self, member: &ResourceName, lease: Option<Lease>) {
        if self.annotations.lease(member) == lease.as_ref()
            || (lease.is_some() && !self.members.contains(member))
        {
            return;
        }
        self.annotations.set_lease(member, lease);
        if let Some(glob) = member.glob() {
            self.touch_annotations(&glob, member);
        }
    }

    fn expire(&mut self, name: &ResourceName) -> bool {
        self.take(name)
    }

    /// An error of a member or of a glob (ERR-7).
    fn set_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>) {
        self.change_error(name, error, ErrorKind::default());
    }

    fn fail(&mut self, name: &ResourceName, error: &Arc<Status>, kind: ErrorKind) {
        if name.is_glob() || error.code != Code::NotFound {
            self.change_error(name, Some(error), kind);
        }
    }

    fn is_unknown(&self, glob: &ResourceName) -> bool {
        self.globs.get(glob).is_some_and(|glob| !glob.complete)
    }

    fn unwatched(&self, entry: Option<&ResourceName>) -> Option<(usize, bool)> {
        let name = entry.filter(|name| !self.is_watched(name))?;
        let names = self.globs.get(name).map(|glob| &glob.members);
        let members = names.into_iter().flatten().filter_map(|member| self.members.get(member));
        let bodies: usize = members.map(|member| member.size()).sum();
        let has_members = names.is_some_and(|names| !names.is_empty());
        Some((bodies + name.as_str().len() + UNWATCHED_BYTES, has_members))
    }

    fn is_worth_keeping(&self, entry: Option<&ResourceName>) -> bool {
        entry.is_some_and(|glob| !self.is_unknown(glob))
    }

    fn restorable(&self) -> Vec<Entry> {
        self.complete.iter().cloned().map(Some).collect()
    }

    fn weight_before(&self, received: &Received) -> Option<usize> {
        Some(self.members.get(&received.name).map_or(0, weight))
    }

    fn give_up_private(
        &self,
        resources: &[Arc<Resource>],
        _: &mut Changes,
        private: &mut PrivateNames,
    ) -> (Vec<Entry>, Vec<SessionId>) {
        let globs: BTreeSet<_> = resources.iter().filter_map(|resource| resource.name.glob()).collect();
        private.names.extend(globs.iter().cloned());
        let sessions = self.sessions_of(&globs);
        (globs.into_iter().map(Some).collect(), sessions)
    }
}

impl GlobCache {
    /// Fills the nodes of the map of members. Returns whether they were filled.
    pub fn refill(&mut self) -> bool {
        self.members.refill()
    }

    /// Takes all resources of the type from a file server. A resource's name tells its glob (FIL-8).
    pub fn replace(&mut self, resources: &BTreeMap<ResourceName, Arc<Resource>>, received_at: ReceivedAt) {
        if self.globs.is_empty() {
            return;
        }
        let globs: Vec<_> = self.globs.keys().cloned().collect();
        for resource in resources.values() {
            self.put(resource, received_at);
        }
        for name in &self.members.missing_in(resources) {
            self.take(name);
        }
        for glob in &globs {
            self.resolve(glob);
        }
    }

    /// Ignores a resource that is no member of a requested glob (NAM-15). Equal content is no change.
    fn put(&mut self, resource: &Arc<Resource>, received_at: ReceivedAt) {
        let Some(name) = resource.name.glob() else { return };
        // The resource ends earlier errors (ERR-3), changed or not.
        self.set_error(&resource.name, None);
        self.set_error(&name, None);
        let Some(glob) = self.globs.get_mut(&name) else { return };
        let Some(change) = self.members.put(resource, received_at) else { return };
        glob.members.insert(resource.name.clone());
        self.touch(&name, |view| {
            change.apply(view);
            view.set_glob_empty(&name, false);
        });
    }

    /// Removes a name from its glob. Returns whether the name was a member.
    fn take(&mut self, member: &ResourceName) -> bool {
        self.set_error(member, None);
        self.set_lease(member, None);
        let Some(old) = self.members.take(member) else { return false };
        let Some(name) = member.glob() else { return true };
        let Some(glob) = self.globs.get_mut(&name) else { return true };
        glob.members.remove(member);
        let is_empty = glob.complete && glob.members.is_empty();
        self.touch(&name, |view| {
            view.take(&old);
            view.set_glob_empty(&name, is_empty);
        });
        true
    }

    fn change_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>, kind: ErrorKind) {
        let is_known = || self.globs.contains_key(name) || self.members.contains(name);
        if !takes_error(&self.annotations, name, error, is_known) {
            return;
        }
        let glob = if name.is_glob() { Some(name.clone()) } else { name.glob() };
        let Some(glob) = glob.filter(|glob| self.globs.contains_key(glob)) else { return };
        self.annotations.set_error(name, error);
        self.annotations.set_error_kind(name, kind);
        self.touch_annotations(&glob, name);
        if let Some(glob) = self.globs.get(name).filter(|glob| error.is_some() && !glob.complete) {
            self.slots.resolve(glob.watchers.iter());
        }
    }

    fn touch_annotations(&mut self, glob: &ResourceName, name: &ResourceName) {
        let annotations = self.annotations.clone();
        self.touch(glob, |view| view.annotate(name, &annotations));
    }

    fn resolve(&mut self, name: &ResourceName) {
        let has_members = self.globs.get(name).is_some_and(|glob| !glob.members.is_empty());
        // An empty glob may keep the error NOT_FOUND.
        if self.annotations.error(name).is_some_and(|error| has_members || error.code != Code::NotFound) {
            self.set_error(name, None);
        }
        let Some(glob) = self.globs.get_mut(name) else { return };
        if std::mem::replace(&mut glob.complete, true) {
            return;
        }
        self.complete.insert(name.clone());
        let is_empty = glob.members.is_empty();
        // Resources that a client holds beside the membership are gone.
        self.members.content.departed.lose_some();
        self.slots.resolve(glob.watchers.iter());
        self.touch(name, |view| {
            view.resolve_glob(name);
            view.set_glob_empty(name, is_empty);
        });
    }

    fn touch(&mut self, glob: &ResourceName, change: impl Fn(&mut View)) {
        self.slots.touch(self.globs.get(glob).into_iter().flat_map(|glob| glob.watchers.iter()), change);
    }

    /// Restores a complete glob without sessions, after a restart of the relay (RLY-7).
    pub fn restore<'a>(
        &mut self,
        glob: &ResourceName,
        members: impl Iterator<Item = &'a Arc<Resource>>,
        received_at: ReceivedAt,
    ) {
        self.globs.entry(glob.clone()).or_default();
        members.for_each(|member| self.put(member, received_at));
        self.resolve(glob);
    }

    /// The globs whose membership is not complete.
    pub fn unknown(&self) -> impl Iterator<Item = &ResourceName> {
        self.globs.iter().filter(|(_, glob)| !glob.complete).map(|(name, _)| name)
    }

    pub fn complete(&self) -> &OrdSet<ResourceName> {
        &self.complete
    }

    /// Frees a glob without sessions (RLY-61), and adds its members to `freed`. Returns whether the glob
    /// existed and was freed.
    pub fn free(&mut self, name: &ResourceName, freed: &mut Vec<ResourceName>) -> bool {
        if self.is_watched(name) {
            return false;
        }
        let Some(glob) = self.globs.remove(name) else { return false };
        self.complete.remove(name);
        let annotated: Vec<_> = annotated(&self.annotations, name, &glob.members).cloned().collect();
        for name in &annotated {
            self.annotations.forget(name);
        }
        for member in &glob.members {
            self.members.free(member);
        }
        freed.extend(glob.members);
        true
    }

    /// The sessions that watch some of the globs; sorted.
    fn sessions_of<'a>(&self, globs: impl IntoIterator<Item = &'a ResourceName>) -> Vec<SessionId> {
        let globs = globs.into_iter().filter_map(|glob| self.globs.get(glob));
        self.slots.sessions_of(globs.flat_map(|glob| glob.watchers.iter()))
    }

    fn is_watched(&self, name: &ResourceName) -> bool {
        self.globs.get(name).is_some_and(|glob| !glob.watchers.is_empty())
    }

    /// The number of requested globs.
    pub fn len(&self) -> usize {
        self.globs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.globs.is_empty()
    }

    pub fn members(&self) -> &CachedBodies {
        self.members.bodies()
    }

    pub fn sets(&self) -> &OrdMap<SetId, WatchedSet> {
        self.slots.published()
    }

    /// Panics in debug builds if the cache is inconsistent.
    pub fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            self.slots.check_invariants(|view| view.globs_len() + view.unknown_len());
            let members: usize = self.globs.values().map(|glob| glob.members.len()).sum();
            debug_assert_eq!(members, self.members.bodies().len(), "every member is in one glob");
        }
    }
}

/// The names of a glob that may have annotations: the glob, its members, and other names with errors.
fn annotated<'a>(
    annotations: &'a Annotations,
    glob: &'a ResourceName,
    members: &'a BTreeSet<ResourceName>,
) -> impl Iterator<Item = &'a ResourceName> {
    let is_of_glob =
        move |name: &&ResourceName| !members.contains(*name) && name.glob().as_ref() == Some(glob);
    let others = annotations.errors().map(|(name, _)| name).filter(is_of_glob);
    let none = annotations.is_empty();
    std::iter::once(glob).chain(members).chain(others).filter(move |_| !none)
}
