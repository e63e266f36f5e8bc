//! The membership of a wildcard: the server's selection for this node class, as one cached object (RLY-13).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Departed, News, SessionId, Stamp};
use crate::engine::planted::{Bug, planted};
use crate::engine::remarks::Lease;
use crate::engine::snapshot::Bodies;
use crate::engine::upstream::Changes;
use crate::engine::view::View;
use crate::xds::{Resource, ResourceName, Status};

/// The maximum number of kept errors of non-members. Only the server would bound their number otherwise.
pub(super) const ERRORS_MAX: usize = 1000;

#[derive(Debug)]
pub struct WildcardCache {
    members: Bodies,
    view: Arc<View>,
    sessions: BTreeSet<SessionId>,
    touched: bool,
    /// The membership has become known.
    resolved: bool,
    /// The last bytes of former members, and the mark of the last departure.
    pub departed: Departed,
}

impl WildcardCache {
    pub fn new(stamp: &mut Stamp) -> WildcardCache {
        let mut view = View::unknown(1);
        let mut departed = Departed::of_members();
        let lost = departed.settle(stamp);
        let (id, now) = stamp.next();
        view.stamp(id, now, lost);
        WildcardCache {
            members: Bodies::new(),
            view: Arc::new(view),
            sessions: BTreeSet::new(),
            touched: false,
            resolved: false,
            departed,
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

    /// Applies one upstream response as one step (I7b).
    pub fn apply(&mut self, changes: &Changes) {
        for resource in &changes.present {
            self.put(resource);
        }
        if changes.replaces {
            let kept: BTreeSet<&ResourceName> =
                changes.present.iter().map(|resource| &resource.name).collect();
            let gone: Vec<_> = self.members.keys().filter(|name| !kept.contains(name)).cloned().collect();
            for name in &gone {
                self.take(name);
            }
            // A full set without an error for a name ends the name's error.
            let errors = self.view.remarks().errors();
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

    /// Takes the whole membership from a file server (FIL-8).
    pub fn replace(&mut self, members: &BTreeMap<ResourceName, Arc<Resource>>) {
        for resource in members.values() {
            self.put(resource);
        }
        let gone: Vec<_> = self.members.keys().filter(|name| !members.contains_key(*name)).cloned().collect();
        for name in &gone {
            self.take(name);
        }
        self.complete();
    }

    /// The membership is known: other resources that a client holds are gone.
    fn complete(&mut self) {
        if !self.view.is_complete() {
            Arc::make_mut(&mut self.view).complete();
            self.departed.lose_some();
            self.touched = true;
            self.resolved = true;
        }
    }

    fn put(&mut self, resource: &Arc<Resource>) {
        self.set_error(&resource.name, None);
        let old = self.members.get(&resource.name).cloned();
        if old.as_ref().is_some_and(|old| old.version == resource.version) {
            return;
        }
        let view = Arc::make_mut(&mut self.view);
        // Members are never counted as unknown: only the membership of a wildcard can be unknown.
        if old.is_none() {
            view.add_unknown();
        }
        view.put(old.as_deref(), resource);
        self.departed.back(&resource.name);
        self.members.insert(resource.name.clone(), resource.clone());
        self.touched = true;
    }

    /// Removes a name from the membership. Returns whether the name was a member.
    pub fn take(&mut self, name: &ResourceName) -> bool {
        self.set_error(name, None);
        self.set_lease(name, None);
        if let Some(old) = self.members.remove(name) {
            Arc::make_mut(&mut self.view).take(&old);
            self.departed.lose(name, Some(&old));
            self.touched = true;
            return true;
        }
        false
    }

    /// The server cannot supply a name (ERR-1), or can again. A member stays a member (ERR-4).
    pub fn set_error(&mut self, name: &ResourceName, error: Option<&Arc<Status>>) {
        let remarks = self.view.remarks();
        let is_one_too_many = || !self.members.contains_key(name) && remarks.errors().count() >= ERRORS_MAX;
        if remarks.error(name) == error || (error.is_some() && is_one_too_many()) {
            return;
        }
        self.touched |= Arc::make_mut(&mut self.view).set_error(name, error);
    }

    /// Ends the transient errors (DAT-7).
    pub fn end_transient_errors(&mut self) {
        let over = self.view.remarks().transient_errors();
        over.iter().for_each(|name| self.set_error(name, None));
    }

    /// Sets or ends the lease of a member.
    pub fn set_lease(&mut self, name: &ResourceName, lease: Option<Lease>) {
        if self.view.remarks().lease(name) != lease.as_ref()
            && (lease.is_none() || self.members.contains_key(name))
        {
            self.touched |= Arc::make_mut(&mut self.view).set_lease(name, lease);
        }
    }

    /// Stamps a changed view, and adds its sessions to `news`.
    pub fn settle(&mut self, stamp: &mut Stamp, news: &mut News) {
        if !std::mem::take(&mut self.touched) {
            return;
        }
        let lost = self.departed.settle(stamp);
        let (id, now) = stamp.next();
        Arc::make_mut(&mut self.view).stamp(id, now, lost);
        let list = if std::mem::take(&mut self.resolved) { &mut news.first } else { &mut news.update };
        if !planted(Bug::WildcardWakeMissing) {
            list.extend(self.sessions.iter().copied());
        }
    }

    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    pub fn members(&self) -> &Bodies {
        &self.members
    }
}
