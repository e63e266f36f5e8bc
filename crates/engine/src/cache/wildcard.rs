//! The membership of a wildcard: the server's selection for this node class, as one cached object (RLY-13).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::departed::Departed;
use super::kind::{Entry, KindCache, PrivateNames};
use super::members::{Members, takes_error};
use super::news::{News, SessionId, Stamp};
use super::state::{CachedBodies, weight};
use crate::annotations::{Annotations, ErrorKind, Lease};
use crate::commons::{Commons, Shared};
use crate::time::ReceivedAt;
use crate::upstream::Changes;
use crate::view::View;
use sluice_xds::{Code, Received, Resource, ResourceName, Status};

#[derive(Debug)]
pub struct WildcardCache {
    members: Members,
    view: Arc<View>,
    sessions: BTreeSet<SessionId>,
    touched: bool,
    /// The membership has become known.
    resolved: bool,
    /// The view has changed since the last sharing.
    is_unshared: bool,
    shared: Shared,
}

impl WildcardCache {
    pub fn new(stamp: &mut Stamp) -> WildcardCache {
        let mut view = View::unknown(1);
        let mut members = Members::default();
        let lost = members.content.departed.settle(stamp);
        let (id, now) = stamp.next();
        view.stamp(id, now, lost);
        WildcardCache {
            members,
            view: Arc::new(view),
            sessions: BTreeSet::new(),
            touched: false,
            resolved: false,
            is_unshared: false,
            shared: Shared::default(),
        }
    }

    pub fn watch(&mut self, session: SessionId) {
        self.sessions.insert(session);
    }

    pub fn unwatch(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().copied()
    }

    pub fn is_watched(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// Takes the whole membership from a file server (FIL-8).
    pub fn replace(&mut self, members: &BTreeMap<ResourceName, Arc<Resource>>, received_at: ReceivedAt) {
        for resource in members.values() {
            self.put(resource, received_at);
        }
        for name in &self.members.missing_in(members) {
            self.take(name);
        }
        self.complete();
    }

    /// The membership is known: other resources that a client holds are gone.
    fn complete(&mut self) {
        if !self.view.is_complete() {
            Arc::make_mut(&mut self.view).complete();
            self.members.content.departed.lose_some();
            self.touched = true;
            self.resolved = true;
        }
    }

    fn put(&mut self, resource: &Arc<Resource>, received_at: ReceivedAt) {
        self.set_error(&resource.name, None);
        let Some(change) = self.members.put(resource, received_at) else { return };
        change.apply(Arc::make_mut(&mut self.view));
        self.touched = true;
    }

    /// Removes a name from the membership. Returns whether the name was a member.
    fn take(&mut self, name: &ResourceName) -> bool {
        self.set_error(name, None);
        self.set_lease(name, None);
        let Some(old) = self.members.take(name) else { return false };
        Arc::make_mut(&mut self.view).take(&old);
        self.touched = true;
        true
    }

    /// Takes equal versions of another source's view over, and fills the nodes of the own maps. Returns
    /// whether a map has other nodes.
    pub fn share(&mut self, commons: &dyn Commons) -> bool {
        if !std::mem::take(&mut self.is_unshared) {
            return false;
        }
        let Some(content) = self.view.content_key() else {
            self.shared.leave();
            return false;
        };
        let is_shared = View::share(&mut self.view, content, &mut self.shared, commons);
        self.members.refill() | is_shared
    }

    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    pub fn members(&self) -> &CachedBodies {
        self.members.bodies()
    }
}

impl KindCache for WildcardCache {
    fn apply(&mut self, changes: &Changes, received_at: ReceivedAt) {
        for resource in &changes.present {
            self.put(resource, received_at);
        }
        if changes.replaces {
            let kept: BTreeSet<&ResourceName> =
                changes.present.iter().map(|resource| &resource.name).collect();
            let members = self.members.bodies().keys();
            let gone: Vec<_> = members.filter(|name| !kept.contains(name)).cloned().collect();
            for name in &gone {
                self.take(name);
            }
            // A full set without an error for a name ends the name's error.
            let errors = self.view.annotations().errors();
            let over: Vec<_> =
                errors.map(|(name, _)| name.clone()).filter(|name| !kept.contains(name)).collect();
            for name in &over {
                self.set_error(name, None);
            }
        }
        for (name, _) in &changes.absent {
            self.take(name);
        }
        if changes.complete {
            self.complete();
        }
    }

    /// Stamps a changed view.
    fn settle(&mut self, stamp: &mut Stamp, news: &mut News) {
        if !std::mem::take(&mut self.touched) {
            return;
        }
        self.is_unshared = true;
        let (lost, number) = self.members.content.settle(stamp);
        let (id, now) = stamp.next();
        let view = Arc::make_mut(&mut self.view);
        view.stamp(id, now, lost);
        if let Some(number) = number {
            view.note_change(number);
        }
        self.members.content.report(number, self.sessions.len(), stamp, news);
        let list = if std::mem::take(&mut self.resolved) { &mut news.first } else { &mut news.update };
        list.extend(self.sessions.iter().copied());
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
        self.view.bytes()
    }

    fn annotations(&self) -> &Annotations {
        self.view.annotations()
    }

    fn set_lease(&mut self, name: &ResourceName, lease: Option<Lease>) {
        if self.view.annotations().lease(name) != lease.as_ref()
            && (lease.is_none() || self.members.contains(name))
        {
            self.touched |= Arc::make_mut(&mut self.view).set_lease(name, lease);
        }
    }

    fn expire(&mut self, name: &ResourceName) -> bool {
        self.take(name)
    }

    /// A member stays a member (ERR-4).
    fn set_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>) {
        if takes_error(self.view.annotations(), name, error, || self.members.contains(name)) {
            self.touched |= Arc::make_mut(&mut self.view).set_error(name, error);
        }
    }

    fn fail(&mut self, name: &ResourceName, error: &Arc<Status>, _: ErrorKind) {
        if error.code != Code::NotFound {
            self.set_error(name, Some(error));
        }
    }

    /// No member is ever unknown.
    fn is_unknown(&self, _: &ResourceName) -> bool {
        false
    }

    fn unwatched(&self, _: Option<&ResourceName>) -> Option<(usize, bool)> {
        let bytes = self.view.bytes();
        (!self.is_watched()).then_some((bytes, bytes > 0))
    }

    fn is_worth_keeping(&self, _: Option<&ResourceName>) -> bool {
        self.view.is_complete()
    }

    fn restorable(&self) -> Vec<Entry> {
        vec![None]
    }

    fn weight_before(&self, received: &Received) -> Option<usize> {
        Some(self.members.get(&received.name).map_or(0, weight))
    }

    fn omittable(&self) -> Vec<(&ResourceName, &Arc<Resource>)> {
        self.members.bodies().iter().map(|(name, cached)| (name, &cached.resource)).collect()
    }

    fn give_up_private(
        &self,
        resources: &[Arc<Resource>],
        changes: &mut Changes,
        private: &mut PrivateNames,
    ) -> (Vec<Entry>, Vec<SessionId>) {
        private.wildcard |= !resources.is_empty();
        // Without the private members the membership is never complete.
        changes.complete &= !private.wildcard;
        if resources.is_empty() {
            return Default::default();
        }
        if changes.replaces {
            // A member that was held before it became private is no longer renewed here, but has not left
            // the wildcard.
            let held = resources.iter().filter_map(|resource| self.members.get(&resource.name));
            changes.present.extend(held.cloned());
        }
        (vec![None], self.sessions().collect())
    }
}
