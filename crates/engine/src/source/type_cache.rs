//! The caches of one type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Time;
use crate::annotations::{Annotations, ErrorKind, Lease};
use crate::cache::{
    Departed, GlobCache, Known, NamedCache, SessionId, UNWATCHED_BYTES, UnaskedNames, WildcardCache,
};
use crate::collection::{Collection, CollectionKind};
use crate::snapshot::{GlobsSnapshot, NamesSnapshot, TypeSnapshot, WildcardSnapshot};
use crate::source::attachment::Files;
use crate::upstream::{Cause, Changes};
use sluice_xds::{Code, Resource, ResourceName, Status, TypeUrl};

/// The bytes of a resource, with its part of all tables.
pub(super) fn weight(resource: &Arc<Resource>) -> usize {
    resource.size() + UNWATCHED_BYTES
}

#[derive(Debug, Default)]
pub(super) struct TypeCache {
    pub(super) named: NamedCache,
    pub(super) wildcard: Option<WildcardCache>,
    pub(super) private: PrivateNames,
    pub(super) globs: GlobCache,
    /// Unasked names (DEL-17). `None` for nearly all types.
    pub(super) unasked: Option<Arc<UnaskedNames>>,
}

impl TypeCache {
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.wildcard.is_none() && self.globs.is_empty()
    }

    /// Applies the changes of one response or timer.
    pub(super) fn apply(&mut self, changes: &Changes, now: Time) {
        match changes.kind {
            CollectionKind::Wildcard => {
                if let Some(wildcard) = &mut self.wildcard {
                    wildcard.apply(changes, now.into());
                }
            }
            CollectionKind::Globs => self.globs.apply(changes, now.into()),
            CollectionKind::Names => {
                for resource in &changes.present {
                    self.named.put(resource, now.into());
                }
                for (alias, resource) in &changes.by_alias {
                    self.named.put_as(alias, resource, now.into());
                }
                for (name, cause) in &changes.absent {
                    self.named.put_absent(name, *cause);
                }
            }
        }
    }

    /// Takes the state of the files over.
    pub(super) fn take_files(&mut self, type_url: &TypeUrl, files: &Files, now: Time) {
        let none = BTreeMap::new();
        let members = files.members(type_url).flatten().unwrap_or(&none);
        if let Some(wildcard) = &mut self.wildcard {
            wildcard.replace(members, now.into());
        }
        self.globs.replace(members, now.into());
        let names = self.named.entries().clone();
        for name in names.keys() {
            match files.named(type_url, name) {
                Some(resource) => self.named.put_as(name, &resource, now.into()),
                None => self.named.put_absent(name, Cause::Omitted),
            }
        }
    }

    /// Takes private resources out of a response. Returns the names, or `None` for the wildcard, and the
    /// waiting sessions. A session is told once for all names of a response.
    pub(super) fn give_up_private(
        &mut self,
        changes: &mut Changes,
    ) -> (Vec<Option<ResourceName>>, Vec<SessionId>) {
        let (private, rest): (Vec<Arc<Resource>>, _) =
            std::mem::take(&mut changes.present).into_iter().partition(|resource| resource.do_not_cache);
        changes.present = rest;
        match changes.kind {
            CollectionKind::Wildcard => {
                self.private.wildcard |= !private.is_empty();
                // Without the private members the membership is never complete.
                changes.complete &= !self.private.wildcard;
                let Some(wildcard) = self.wildcard.as_ref().filter(|_| !private.is_empty()) else {
                    return Default::default();
                };
                if changes.replaces {
                    // A member that was held before it became private is no longer renewed here, but has not
                    // left the wildcard.
                    let held = private.iter().filter_map(|resource| wildcard.member(&resource.name));
                    changes.present.extend(held.cloned());
                }
                (vec![None], wildcard.sessions().collect())
            }
            CollectionKind::Globs => {
                let globs: BTreeSet<_> = private.iter().filter_map(|resource| resource.name.glob()).collect();
                self.private.names.extend(globs.iter().cloned());
                let sessions = self.globs.sessions_of(&globs);
                (globs.into_iter().map(Some).collect(), sessions)
            }
            CollectionKind::Names => {
                for resource in &changes.present {
                    self.private.names.remove(&resource.name);
                }
                changes.by_alias.retain(|(_, resource)| !resource.do_not_cache);
                let names = private.iter().flat_map(|body| std::iter::once(&body.name).chain(&body.aliases));
                let subscribed: Vec<_> =
                    names.filter(|name| self.named.entries().contains_key(*name)).cloned().collect();
                self.private.names.extend(subscribed.iter().cloned());
                let sessions = self.named.sessions_of(&subscribed);
                (subscribed.into_iter().map(Some).collect(), sessions)
            }
        }
    }

    /// The resource of a name or a member.
    pub(super) fn resource(&self, kind: CollectionKind, name: &ResourceName) -> Option<&Arc<Resource>> {
        match kind {
            CollectionKind::Wildcard => self.wildcard.as_ref()?.member(name),
            CollectionKind::Globs => self.globs.member(name),
            CollectionKind::Names => self.named.entries().get(name)?.resource(),
        }
    }

    /// The number of resources of a kind.
    pub(super) fn count(&self, kind: CollectionKind) -> usize {
        match kind {
            CollectionKind::Wildcard => self.wildcard.as_ref().map_or(0, |wildcard| wildcard.members().len()),
            CollectionKind::Globs => self.globs.members().len(),
            CollectionKind::Names => self.named.counts().present,
        }
    }

    /// The weight of all resources.
    pub(super) fn content_bytes(&self) -> usize {
        let wildcard = self.wildcard.as_ref().map_or(0, |wildcard| wildcard.view().bytes());
        let count: usize = CollectionKind::ALL.into_iter().map(|kind| self.count(kind)).sum();
        self.named.counts().bytes + self.globs.bytes() + wildcard + count * UNWATCHED_BYTES
    }

    /// The annotations of a kind; `None` without a wildcard.
    pub(super) fn annotations(&self, kind: CollectionKind) -> Option<&Annotations> {
        match kind {
            CollectionKind::Wildcard => Some(self.wildcard.as_ref()?.view().annotations()),
            CollectionKind::Globs => Some(self.globs.annotations()),
            CollectionKind::Names => Some(self.named.annotations()),
        }
    }

    pub(super) fn set_lease(&mut self, kind: CollectionKind, name: &ResourceName, lease: Option<Lease>) {
        match (kind, &mut self.wildcard) {
            (CollectionKind::Wildcard, Some(wildcard)) => wildcard.set_lease(name, lease),
            (CollectionKind::Wildcard, None) => {}
            (CollectionKind::Globs, _) => self.globs.set_lease(name, lease),
            (CollectionKind::Names, _) => self.named.set_lease(name, lease),
        }
    }

    /// Removes an expired resource. Returns false if the resource was freed meanwhile.
    pub(super) fn expire(&mut self, kind: CollectionKind, name: &ResourceName) -> bool {
        match (kind, &mut self.wildcard) {
            (CollectionKind::Wildcard, Some(members)) => members.take(name),
            (CollectionKind::Wildcard, None) => false,
            (CollectionKind::Globs, _) => self.globs.take(name),
            (CollectionKind::Names, _) => {
                let was_present = self.resource(kind, name).is_some();
                if was_present {
                    self.named.put_absent(name, Cause::Expired);
                }
                was_present
            }
        }
    }

    /// Records an error of a name.
    pub(super) fn fail(
        &mut self,
        kind: CollectionKind,
        name: &ResourceName,
        status: &Arc<Status>,
        error_kind: ErrorKind,
    ) {
        let is_absence = status.code == Code::NotFound;
        match (kind, &mut self.wildcard) {
            (CollectionKind::Names, _) => self.named.fail(name, status, error_kind),
            (CollectionKind::Globs, _) if name.is_glob() || !is_absence => {
                self.globs.fail(name, status, error_kind)
            }
            (CollectionKind::Wildcard, Some(members)) if !is_absence => members.set_error(name, Some(status)),
            // The member's removal reports its absence.
            (CollectionKind::Wildcard | CollectionKind::Globs, _) => {}
        }
    }

    /// Ends the errors of unavailable names. Returns the names that are unknown again; `None` without a
    /// wildcard.
    pub(super) fn end_transient_errors(&mut self, kind: CollectionKind) -> Option<Vec<ResourceName>> {
        match (kind, &mut self.wildcard) {
            (CollectionKind::Names, _) => Some(self.named.end_transient_errors()),
            (CollectionKind::Globs, _) => Some(self.globs.end_transient_errors()),
            (CollectionKind::Wildcard, Some(members)) => {
                members.end_transient_errors();
                Some(Vec::new())
            }
            (CollectionKind::Wildcard, None) => None,
        }
    }

    /// Whether the state of a name or a glob is unknown, and no error says why.
    pub(super) fn is_unknown(&self, name: &ResourceName) -> bool {
        match CollectionKind::of(name) {
            CollectionKind::Globs => {
                self.globs.is_unknown(name) && self.globs.annotations().error(name).is_none()
            }
            _ => {
                let is_unknown = matches!(self.named.entries().get(name), Some(Known::Unknown));
                is_unknown && self.named.annotations().error(name).is_none()
            }
        }
    }

    /// The weight of a name or a glob without sessions, and whether the name has content; `None` if a session
    /// watches.
    pub(super) fn unwatched(&self, name: &ResourceName) -> Option<(usize, bool)> {
        let (is_watched, weight, has_content) = match name.is_glob() {
            true => (self.globs.is_watched(name), self.globs.weight(name), self.globs.has_members(name)),
            false => {
                let has_content = self.resource(CollectionKind::Names, name).is_some();
                (self.named.is_watched(name), self.named.weight(name), has_content)
            }
        };
        (!is_watched).then_some((weight, has_content))
    }

    /// Routes may refer to departed resources of the cluster side (RLY-51). Nothing refers to departed
    /// resources of other types.
    pub(super) fn keep_departed(&mut self, keep: bool) {
        self.named.content.departed.kept = keep;
        if let Some(wildcard) = &mut self.wildcard {
            wildcard.members.content.departed.kept = keep;
        }
        self.globs.members.content.departed.kept = keep;
    }

    /// The content for a snapshot.
    pub(super) fn snapshot(&self) -> TypeSnapshot {
        let wildcard = self.wildcard.as_ref().map(|wildcard| WildcardSnapshot {
            members: wildcard.members().clone(),
            view: Some(wildcard.view().clone()),
            departed: wildcard.members.content.departed.bodies().clone(),
        });
        TypeSnapshot {
            names: NamesSnapshot {
                entries: self.named.entries().clone(),
                aliases: self.named.aliases().clone(),
                sets: self.named.sets().clone(),
                departed: self.named.content.departed.bodies().clone(),
                annotations: self.named.annotations().clone(),
                unasked: self.unasked.clone(),
            },
            globs: GlobsSnapshot {
                members: self.globs.members().clone(),
                complete: self.globs.complete().clone(),
                sets: self.globs.sets().clone(),
                departed: self.globs.members.content.departed.bodies().clone(),
                annotations: self.globs.annotations().clone(),
            },
            wildcard: wildcard.unwrap_or_default(),
            evicted: self.departed().map(Departed::evicted).sum(),
            lasts: None,
        }
    }

    pub(super) fn departed(&self) -> impl Iterator<Item = &Departed> {
        let wildcard = self.wildcard.as_ref().map(|wildcard| &wildcard.members.content.departed);
        [&self.named.content.departed, &self.globs.members.content.departed].into_iter().chain(wildcard)
    }

    /// Frees the last bytes of resources that left long enough ago. Returns whether there were any.
    pub(super) fn expire_departed(&mut self, now: Time) -> bool {
        let members =
            self.wildcard.as_mut().is_some_and(|wildcard| wildcard.members.content.departed.expire(now));
        self.globs.members.content.departed.expire(now) || members
    }
}

/// The private names of one type that are subscribed to, and whether the wildcard has private members.
///
/// Resources that the server forbids to cache or share (CCH-1).
///
/// A source that serves everyone never stores such a resource. The source reports the waiting sessions; each
/// has to ask for itself, through a source of its own. The source remembers the names: the server has
/// answered, and sends no second answer for sessions that join late.
#[derive(Debug, Default)]
pub(super) struct PrivateNames {
    names: BTreeSet<ResourceName>,
    pub(super) wildcard: bool,
}

impl PrivateNames {
    /// The private names in a collection; `None` for the wildcard.
    pub(super) fn names_in(&self, collection: &Collection) -> Vec<Option<ResourceName>> {
        match collection {
            Collection::Wildcard => self.wildcard.then_some(None).into_iter().collect(),
            // Iterates over the smaller of the two.
            Collection::Globs(names) | Collection::Names(names) if self.names.len() < names.len() => {
                self.names.iter().filter(|name| names.contains(name)).cloned().map(Some).collect()
            }
            Collection::Globs(names) | Collection::Names(names) => {
                names.iter().filter(|name| self.names.contains(*name)).cloned().map(Some).collect()
            }
        }
    }

    pub(super) fn forget(&mut self, names: &[ResourceName]) {
        for name in names {
            self.names.remove(name);
        }
    }
}
