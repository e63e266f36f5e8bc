//! Mass deletions: resources that a server removed in one response, and that are still served for a while
//! (FU18).
//!
//! A response is held back if it removes more resources of a collection than [`is_mass`] allows. Only the
//! view of the clients is held back: the stream has accepted the response as sent. So the relay never claims
//! these resources to the server, on this stream or on the next (DEL-35); no later response repeats their
//! deletion; and a resource that the server sends again is a change. Held resources go in one step, when
//! their time is over or when the operator confirms the deletion.
//!
//! Other explicit removals are not held back: an expired time to live (TTL-8), NOT_FOUND in `resource_errors`
//! (ERR-5), a name without an answer (TMR-5). A first answer deletes nothing, so the guard ignores first
//! answers. After a failover, the first answer of the other server is obeyed, because the answer tells
//! nothing about the resources of the previous server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::api::is_mass;
use super::type_cache::TypeCache;
use crate::Time;
use crate::cache::KindCache;
use crate::collection::CollectionKind;
use crate::upstream::{Cause, Changes, Event, Hold};
use sluice_xds::{ResourceName, TypeUrl};

pub(super) type DeletionKey = (TypeUrl, CollectionKind);

/// The held-back resources of a source. Empty where responses are obeyed at once.
#[derive(Debug, Default)]
pub(super) struct DeletionGuard {
    collections: BTreeMap<DeletionKey, GuardedCollection>,
    /// The times to check for expired holds, in the order of time.
    queue: VecDeque<(Time, DeletionKey)>,
}

#[derive(Debug)]
struct GuardedCollection {
    /// The number of the server that answered last.
    server: u16,
    /// The start of the current, unbroken hold.
    since: Time,
    /// The end of each hold; `None` until the operator confirms.
    held: BTreeMap<ResourceName, (Option<Time>, Cause)>,
}

impl GuardedCollection {
    /// Takes the held resources of which the deletion is due.
    fn take(&mut self, is_due: impl Fn(Option<Time>) -> bool) -> Vec<(ResourceName, Cause)> {
        let due = self.held.extract_if(.., |_, (due, _)| is_due(*due));
        due.map(|(name, (_, cause))| (name, cause)).collect()
    }
}

impl DeletionGuard {
    /// Takes the held-back removals out of a response of a server. `cache`: the content before the response.
    pub(super) fn hold_back(
        &mut self,
        cache: &TypeCache,
        changes: &mut Changes,
        server: u16,
        hold: Hold,
        now: Time,
    ) -> Vec<Event> {
        let (type_url, kind) = (changes.type_url.clone(), changes.kind);
        let key = (type_url.clone(), kind);
        let new = || GuardedCollection { server, since: now, held: BTreeMap::new() };
        let collection = self.collections.entry(key.clone()).or_insert_with(new);
        let is_other_server = std::mem::replace(&mut collection.server, server) != server;
        let taken = removed_by_server(cache, changes);
        let resources = cache.of(kind).map_or(0, KindCache::resources_len);
        let standing = resources.saturating_sub(collection.held.len());
        let fresh = taken.iter().filter(|(name, _)| !collection.held.contains_key(name));
        let fresh: Vec<_> = fresh.cloned().collect();
        let brought = changes.present.iter().map(|resource| &resource.name);
        let brought = brought.chain(changes.by_alias.iter().map(|(alias, _)| alias));
        let back = brought.filter(|name| collection.held.remove(*name).is_some()).count();
        let mut events = Vec::new();
        if back > 0 {
            events.push(Event::DeletionWithdrawn { type_url: type_url.clone(), count: back });
        }
        if is_other_server {
            changes.absent.extend(collection.take(|_| true));
        } else if is_mass(fresh.len(), standing) {
            let (count, left) = (fresh.len(), standing.saturating_sub(fresh.len()));
            let due = hold.end(now);
            if collection.held.is_empty() {
                collection.since = now;
            }
            collection.held.extend(fresh.into_iter().map(|(name, cause)| (name, (due, cause))));
            self.queue.extend(due.map(|due| (due, key)));
            events.push(Event::DeletionHeld { type_url, count, left, hold });
        }
        if !collection.held.is_empty() {
            keep_held(cache, changes, &collection.held, taken);
        }
        events
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.queue.front().map(|(due, _)| *due)
    }

    /// The next collection to check.
    pub(super) fn pop(&mut self, now: Time) -> Option<DeletionKey> {
        self.queue.pop_front_if(|(due, _)| *due <= now).map(|(_, key)| key)
    }

    /// Takes the deletions of a collection whose hold is over.
    pub(super) fn take_due(&mut self, key: &DeletionKey, now: Time) -> Vec<(ResourceName, Cause)> {
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= now);
        self.collections.get_mut(key).map_or(Vec::new(), |collection| collection.take(is_due))
    }

    /// Starts the hold of the due deletions anew.
    pub(super) fn put_off(&mut self, key: DeletionKey, hold: Duration, now: Time) {
        let Some(collection) = self.collections.get_mut(&key) else { return };
        let due = collection.held.values_mut().filter(|(due, _)| due.is_some_and(|due| due <= now));
        if due.map(|held| held.0 = Some(now + hold)).count() > 0 {
            self.queue.push_back((now + hold, key));
        }
    }

    /// Takes all deletions of these types.
    pub(super) fn take_all(
        &mut self,
        is_meant: impl Fn(&TypeUrl) -> bool,
    ) -> Vec<(DeletionKey, Vec<(ResourceName, Cause)>)> {
        let collections = self.collections.iter_mut().filter(|((type_url, _), _)| is_meant(type_url));
        collections.map(|(key, collection)| (key.clone(), collection.take(|_| true))).collect()
    }

    fn of_type<'a>(&'a self, type_url: &'a TypeUrl) -> impl Iterator<Item = &'a GuardedCollection> {
        let collections = self.collections.iter().filter(move |((url, _), _)| url == type_url);
        collections.map(|(_, collection)| collection)
    }

    /// The number of held resources of a type.
    pub(super) fn count(&self, type_url: &TypeUrl) -> usize {
        self.of_type(type_url).map(|collection| collection.held.len()).sum()
    }

    /// The start of the oldest hold of a type.
    pub(super) fn since(&self, type_url: &TypeUrl) -> Option<Time> {
        let holding = self.of_type(type_url).filter(|collection| !collection.held.is_empty());
        holding.map(|collection| collection.since).min()
    }

    /// These names are absent now for another reason than a mass deletion.
    pub(super) fn forget(&mut self, type_url: &TypeUrl, kind: CollectionKind, names: &[ResourceName]) {
        if let Some(collection) = self.collections.get_mut(&(type_url.clone(), kind)) {
            for name in names {
                collection.held.remove(name);
            }
        }
    }

    pub(super) fn forget_wildcard(&mut self, type_url: &TypeUrl) {
        self.collections.remove(&(type_url.clone(), CollectionKind::Wildcard));
    }

    pub(super) fn forget_type(&mut self, type_url: &TypeUrl) {
        if !self.collections.is_empty() {
            self.collections.retain(|(url, _), _| url != type_url);
        }
    }
}

/// The held resources that a response removes because the server no longer has them.
fn removed_by_server(cache: &TypeCache, changes: &Changes) -> Vec<(ResourceName, Cause)> {
    let is_by_server = |cause: Cause| matches!(cause, Cause::Removed | Cause::Omitted);
    let absent = changes.absent.iter();
    let absent =
        absent.filter(|(name, cause)| is_by_server(*cause) && cache.resource(changes.kind, name).is_some());
    let mut removed: Vec<_> = absent.cloned().collect();
    if changes.replaces
        && let Some(wildcard) = &cache.wildcard
    {
        let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
        let gone = wildcard.members().keys().filter(|name| !present.contains(name));
        removed.extend(gone.map(|name| (name.clone(), Cause::Omitted)));
    }
    removed
}

/// Takes the held names out of a response. `removed`: the resources that the response removes.
fn keep_held(
    cache: &TypeCache,
    changes: &mut Changes,
    held: &BTreeMap<ResourceName, (Option<Time>, Cause)>,
    removed: Vec<(ResourceName, Cause)>,
) {
    changes.absent.retain(|(name, _)| !held.contains_key(name));
    if std::mem::take(&mut changes.replaces) {
        // Leaving members are reported one by one, and so are errors that are over.
        let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
        let errors = cache.wildcard.iter().flat_map(|wildcard| wildcard.view().annotations().errors());
        let over = errors.map(|(name, _)| name);
        let over = over.filter(|name| !present.contains(name) && !held.contains_key(*name));
        let gone = removed.into_iter().map(|(name, _)| name).filter(|name| !held.contains_key(name));
        let gone: BTreeSet<_> = over.cloned().chain(gone).collect();
        changes.absent.extend(gone.into_iter().map(|name| (name, Cause::Omitted)));
    }
}
