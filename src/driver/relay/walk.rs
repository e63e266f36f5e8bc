//! The resources of one snapshot, name by name, for the admin room.

use std::sync::Arc;

use crate::driver::api::content::CachedCopy;
use crate::driver::api::status::{ClientStatus, ResourceFilter, ResourcePlace, ResourceStatus};
use crate::driver::ground::clock::Clock;
use crate::driver::source::handle::SourceHandle;
use sluice_engine::Time;
use sluice_engine::cache::{CachedResource, EntryState};
use sluice_engine::collection::CollectionKind;
use sluice_engine::snapshot::{Snapshot, SnapshotEntry};
use sluice_xds::{ResourceName, TypeUrl};

/// An iterator over one snapshot, name by name.
pub(super) struct SnapshotWalk {
    source: u64,
    snapshot: Arc<Snapshot>,
    types: std::vec::IntoIter<TypeUrl>,
    current: Option<(TypeUrl, ResourceCursor)>,
    server: Arc<str>,
    class: Arc<str>,
    clock: Clock,
    now: Time,
}

/// The kinds in the order of the list.
const KINDS: [CollectionKind; 3] = [CollectionKind::Names, CollectionKind::Wildcard, CollectionKind::Globs];

fn place_of(collection: &str) -> Option<usize> {
    KINDS.iter().position(|kind| kind.label() == collection)
}

/// A place in the entries of a type: behind a name of a kind.
struct ResourceCursor {
    /// The place of the kind in [`KINDS`].
    kind: usize,
    last: Option<ResourceName>,
}

impl SnapshotWalk {
    pub(super) fn new(
        handle: &SourceHandle,
        filter: &ResourceFilter,
        after: Option<&ResourcePlace>,
        clock: Clock,
    ) -> SnapshotWalk {
        SnapshotWalk::over(handle, handle.snapshot(), filter, after, clock)
    }

    /// A walk over any content of the source.
    pub(super) fn over(
        handle: &SourceHandle,
        snapshot: Arc<Snapshot>,
        filter: &ResourceFilter,
        after: Option<&ResourcePlace>,
        clock: Clock,
    ) -> SnapshotWalk {
        let is_left = |url: &TypeUrl| after.is_none_or(|place| *url > place.type_url);
        let types: Vec<_> = snapshot
            .types()
            .map(|(url, _)| url.clone())
            .filter(|url| filter.wants_type(url) && is_left(url))
            .collect();
        let behind = |place: &ResourcePlace| {
            let cursor = ResourceCursor { kind: place_of(place.collection)?, last: Some(place.name.clone()) };
            Some((place.type_url.clone(), cursor))
        };
        let current = after.and_then(behind);
        let status = handle.status();
        let (server, class) = (status.server.clone(), status.class.digest.clone());
        let now = clock.now();
        let source = handle.id().0;
        SnapshotWalk { source, snapshot, types: types.into_iter(), current, server, class, clock, now }
    }

    fn status(&self, type_url: &TypeUrl, entry: &SnapshotEntry<'_>) -> ResourceStatus {
        let cached = entry.cached;
        ResourceStatus {
            source: self.source,
            type_url: type_url.clone(),
            name: entry.name.clone(),
            collection: entry.kind.label(),
            version: cached.map(|cached| cached.resource.version),
            bytes: cached.map_or(0, |cached| cached.resource.size()),
            received_at: cached.map(|cached| self.clock.wall_of(cached.received_at)),
            state: client_status(entry.state),
            error: entry.error.map(|error| (**error).clone()),
            expires_in: entry.lease.map(|lease| lease.expires.since(self.now)),
            server: self.server.clone(),
            class: self.class.clone(),
        }
    }

    fn step(&self, type_url: &TypeUrl, place: &ResourceCursor) -> Option<(ResourceStatus, ResourceCursor)> {
        let types = self.snapshot.of(type_url)?;
        let next = |kind: usize| {
            let last = place.last.as_ref().filter(|_| kind == place.kind);
            Some((kind, types.entry_behind(KINDS[kind], last)?))
        };
        let (kind, entry) = (place.kind..KINDS.len()).find_map(next)?;
        Some((self.status(type_url, &entry), ResourceCursor { kind, last: Some(entry.name.clone()) }))
    }

    /// All entries with their bytes.
    pub(super) fn copies(self, source: u64, list: Arc<str>) -> impl Iterator<Item = CachedCopy> + Send {
        let snapshot = self.snapshot.clone();
        self.map(move |status| {
            let types = snapshot.of(&status.type_url).zip(place_of(status.collection));
            let resource = types.and_then(|(types, kind)| types.body(KINDS[kind], &status.name)).cloned();
            CachedCopy { source, list: list.clone(), status, resource }
        })
    }

    /// The entries of one name, in each type of the walk.
    pub(super) fn copies_of(self, name: &ResourceName) -> Vec<(ResourceStatus, Option<CachedResource>)> {
        let mut copies = Vec::new();
        for type_url in self.types.as_slice() {
            let Some(types) = self.snapshot.of(type_url) else { continue };
            let entries = KINDS.into_iter().filter_map(|kind| types.entry(kind, name));
            copies.extend(entries.map(|entry| (self.status(type_url, &entry), entry.cached.cloned())));
        }
        copies
    }
}

/// The status in the words of CSDS: an error about a newer version matters more than the cached copy (DAT-5).
fn client_status(state: EntryState) -> ClientStatus {
    match state {
        EntryState::Requested => ClientStatus::Requested,
        EntryState::DoesNotExist => ClientStatus::DoesNotExist,
        EntryState::Acked => ClientStatus::Acked,
        EntryState::Nacked | EntryState::NackedButCached => ClientStatus::Nacked,
        EntryState::Timeout => ClientStatus::Timeout,
        EntryState::ReceivedError | EntryState::ReceivedErrorButCached => ClientStatus::ReceivedError,
    }
}

impl Iterator for SnapshotWalk {
    type Item = ResourceStatus;

    fn next(&mut self) -> Option<ResourceStatus> {
        loop {
            if let Some((type_url, place)) = self.current.take()
                && let Some((status, next)) = self.step(&type_url, &place)
            {
                self.current = Some((type_url, next));
                return Some(status);
            }
            self.current = Some((self.types.next()?, ResourceCursor { kind: 0, last: None }));
        }
    }
}
