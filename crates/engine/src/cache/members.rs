//! Members of the wildcard, or of globs: resources that the server selects.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CachedBodies, CachedResource, Departed};
use crate::annotations::Annotations;
use crate::change::Altered;
use crate::time::ReceivedAt;
use crate::view::View;
use sluice_xds::{Resource, ResourceName, Status, Version};

/// The maximum number of kept errors of non-members. Only the server would bound their number otherwise.
const ERRORS_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct Members {
    bodies: CachedBodies,
    bytes: usize,
    /// The sum of the versions of all members.
    digest: Version,
    /// The members that changed since the last settling.
    altered: Option<Box<Altered>>,
    /// The last bytes of former members, and the mark of the last departure.
    pub departed: Departed,
}

impl Default for Members {
    fn default() -> Self {
        Members {
            bodies: CachedBodies::new(),
            bytes: 0,
            digest: Version::default(),
            altered: None,
            departed: Departed::of_members(),
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
        self.departed.back(&resource.name);
        self.altered.get_or_insert_default().put(&resource.name, old.as_deref(), resource);
        self.digest = self.digest.plus(resource.version);
        if let Some(old) = &old {
            self.digest = self.digest.minus(old.version);
        }
        self.bytes += resource.size();
        self.bytes -= old.as_ref().map_or(0, |old| old.size());
        let cached = CachedResource { resource: resource.clone(), received_at };
        self.bodies.insert(resource.name.clone(), cached);
        Some(MemberChange { old, new: resource.clone() })
    }

    /// Removes a member that left the membership, and returns the member's last instance.
    pub fn take(&mut self, name: &ResourceName) -> Option<Arc<Resource>> {
        let old = self.free(name)?;
        self.altered.get_or_insert_default().take(name);
        self.departed.lose(name, Some(&old));
        Some(old)
    }

    /// Removes a member of a collection without sessions, so that no client loses the member.
    pub fn free(&mut self, name: &ResourceName) -> Option<Arc<Resource>> {
        let old = self.bodies.remove(name)?.resource;
        self.bytes -= old.size();
        self.digest = self.digest.minus(old.version);
        Some(old)
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

    /// The members that changed since the last call.
    pub fn take_altered(&mut self) -> Option<Box<Altered>> {
        self.altered.take()
    }

    /// The sum of the versions of all members.
    pub fn digest(&self) -> Version {
        self.digest
    }

    /// The size of all members, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A new or changed member.
pub(super) struct MemberChange {
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
