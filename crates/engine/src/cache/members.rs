//! Members of the wildcard, or of globs: resources that the server selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::content::Content;
use super::state::{CachedBodies, CachedResource};
use crate::annotations::Annotations;
use crate::filling::Refilled;
use crate::time::ReceivedAt;
use crate::view::View;
use sluice_xds::{Resource, ResourceName, Status};

/// The maximum number of kept errors of non-members. Only the server would bound their number otherwise.
const ERRORS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Members {
    bodies: CachedBodies,
    bytes: usize,
    refilled: Refilled,
    pub content: Content,
}

impl Default for Members {
    fn default() -> Self {
        Members {
            bodies: CachedBodies::new(),
            bytes: 0,
            refilled: Refilled::default(),
            content: Content::of_members(),
        }
    }
}

impl Members {
    /// Adds or replaces a member, and returns the change for views. Equal content is no change (RLY-36).
    pub fn put(&mut self, resource: &Arc<Resource>, received_at: ReceivedAt) -> Option<MemberChange> {
        let old = self.get(&resource.name).cloned();
        if old.as_ref().is_some_and(|old| old.version == resource.version) {
            return None;
        }
        self.content.put(&resource.name, old.as_deref(), resource);
        self.content.count(resource, true);
        old.iter().for_each(|old| self.content.count(old, false));
        self.bytes += resource.size();
        self.bytes -= old.as_ref().map_or(0, |old| old.size());
        let cached = CachedResource { resource: resource.clone(), received_at };
        self.bodies.insert(resource.name.clone(), cached);
        Some(MemberChange { old, new: resource.clone() })
    }

    /// Removes a member that left the membership, and returns the member's last instance.
    pub fn take(&mut self, name: &ResourceName) -> Option<Arc<Resource>> {
        let old = self.free(name)?;
        self.content.take(name);
        self.content.departed.lose(name, Some(&old));
        Some(old)
    }

    /// Removes a member of a collection without sessions, so that no client loses the member.
    pub fn free(&mut self, name: &ResourceName) -> Option<Arc<Resource>> {
        let old = self.bodies.remove(name)?.resource;
        self.bytes -= old.size();
        self.content.count(&old, false);
        Some(old)
    }

    /// Fills the nodes of a map that has grown much. Returns whether the nodes were filled.
    pub fn refill(&mut self) -> bool {
        let filled = self.refilled.refill(&self.bodies);
        let is_filled = filled.is_some();
        if let Some(bodies) = filled {
            self.bodies = bodies;
        }
        is_filled
    }

    /// The members that are not among these resources.
    pub fn missing_in(&self, resources: &BTreeMap<ResourceName, Arc<Resource>>) -> Vec<ResourceName> {
        self.bodies.keys().filter(|name| !resources.contains_key(*name)).cloned().collect()
    }

    pub fn get(&self, name: &ResourceName) -> Option<&Arc<Resource>> {
        self.bodies.get(name).map(|cached| &cached.resource)
    }

    pub fn contains(&self, name: &ResourceName) -> bool {
        self.bodies.contains_key(name)
    }

    pub fn bodies(&self) -> &CachedBodies {
        &self.bodies
    }

    /// The size of all members, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A new or changed member.
pub(crate) struct MemberChange {
    old: Option<Arc<Resource>>,
    new: Arc<Resource>,
}

impl MemberChange {
    pub fn apply(&self, view: &mut View) {
        put(view, self.old.as_deref(), &self.new);
    }
}

/// Adds or replaces a member in a view. Members are never counted as unknown: only the membership can be
/// unknown.
pub(crate) fn put(view: &mut View, old: Option<&Resource>, new: &Resource) {
    if old.is_none() {
        view.add_unknown();
    }
    view.put(old, new);
}

/// Whether an error, or the end of an error (`None`), changes the annotations. Errors of names that are
/// neither members nor globs are bounded in number.
pub(super) fn takes_error(
    annotations: &Annotations,
    name: &ResourceName,
    error: Option<&Arc<Status>>,
    is_known: impl Fn() -> bool,
) -> bool {
    let has_room = || is_known() || annotations.errors().count() < ERRORS_MAX;
    annotations.error(name) != error && (error.is_none() || has_room())
}
