//! The resources of one snapshot, name by name, for the admin room.

use std::ops::Bound;
use std::sync::Arc;

use crate::driver::api::content::CachedCopy;
use crate::driver::api::status::{ClientStatus, ResourceFilter, ResourcePlace, ResourceStatus};
use crate::driver::ground::clock::Clock;
use crate::driver::source::handle::SourceHandle;
use sluice_engine::Time;
use sluice_engine::annotations::Annotations;
use sluice_engine::cache::{CachedResource, EntryState};
use sluice_engine::collection::CollectionKind;
use sluice_engine::snapshot::{Snapshot, TypeSnapshot};
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

/// The names come first, then the members of the wildcard, then the members of globs. Each variant has the
/// last returned name.
#[derive(Clone)]
enum ResourceCursor {
    Names(Option<ResourceName>),
    Members(Option<ResourceName>),
    GlobMembers(Option<ResourceName>),
}

impl ResourceCursor {
    fn behind(place: &ResourcePlace) -> ResourceCursor {
        let last = Some(place.name.clone());
        match place.collection {
            "names" => ResourceCursor::Names(last),
            "wildcard" => ResourceCursor::Members(last),
            _ => ResourceCursor::GlobMembers(last),
        }
    }
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
        let current = after.map(|place| (place.type_url.clone(), ResourceCursor::behind(place)));
        let status = handle.status();
        let (server, class) = (status.server.clone(), status.class.digest.clone());
        let now = clock.now();
        let source = handle.id().0;
        SnapshotWalk { source, snapshot, types: types.into_iter(), current, server, class, clock, now }
    }

    fn status(
        &self,
        type_url: &TypeUrl,
        name: &ResourceName,
        cached: Option<&CachedResource>,
        state: EntryState,
        annotations: &Annotations,
        collection: &'static str,
    ) -> ResourceStatus {
        let error = annotations.error(name);
        ResourceStatus {
            source: self.source,
            type_url: type_url.clone(),
            name: name.clone(),
            collection,
            version: cached.map(|cached| cached.resource.version),
            bytes: cached.map_or(0, |cached| cached.resource.size()),
            received_at: cached.map(|cached| self.clock.wall_of(cached.received_at)),
            state: client_status(state),
            error: error.map(|error| (**error).clone()),
            expires_in: annotations.lease(name).map(|lease| lease.expires.since(self.now)),
            server: self.server.clone(),
            class: self.class.clone(),
        }
    }

    fn step(&self, type_url: &TypeUrl, place: &ResourceCursor) -> Option<(ResourceStatus, ResourceCursor)> {
        let types: &TypeSnapshot = self.snapshot.of(type_url)?;
        match place {
            ResourceCursor::Names(last) => {
                let Some((name, entry)) = types.names.entries.range(behind(last)).next() else {
                    return self.step(type_url, &ResourceCursor::Members(None));
                };
                let state = EntryState::of(entry, name, &types.names.annotations);
                let status =
                    self.status(type_url, name, entry.cached(), state, &types.names.annotations, "names");
                Some((status, ResourceCursor::Names(Some(name.clone()))))
            }
            ResourceCursor::Members(last) => {
                let Some((name, cached)) = types.wildcard.members.range(behind(last)).next() else {
                    return self.step(type_url, &ResourceCursor::GlobMembers(None));
                };
                let none = Annotations::default();
                let annotations = types.wildcard.view.as_ref().map_or(&none, |view| view.annotations());
                let state = EntryState::of_member(name, annotations);
                let status = self.status(type_url, name, Some(cached), state, annotations, "wildcard");
                Some((status, ResourceCursor::Members(Some(name.clone()))))
            }
            ResourceCursor::GlobMembers(last) => {
                let (name, cached) = types.globs.members.range(behind(last)).next()?;
                let annotations = &types.globs.annotations;
                let state = EntryState::of_member(name, annotations);
                let status = self.status(type_url, name, Some(cached), state, annotations, "globs");
                Some((status, ResourceCursor::GlobMembers(Some(name.clone()))))
            }
        }
    }

    /// All entries with their bytes.
    pub(super) fn copies(self, source: u64, list: Arc<str>) -> impl Iterator<Item = CachedCopy> + Send {
        let snapshot = self.snapshot.clone();
        self.map(move |status| {
            let kind = match status.collection {
                "names" => CollectionKind::Names,
                "globs" => CollectionKind::Globs,
                _ => CollectionKind::Wildcard,
            };
            let types = snapshot.of(&status.type_url);
            let resource = types.and_then(|types| types.body(kind, &status.name)).cloned();
            CachedCopy { source, list: list.clone(), status, resource }
        })
    }

    /// The entries of one name, in each type of the walk.
    pub(super) fn copies_of(self, name: &ResourceName) -> Vec<(ResourceStatus, Option<CachedResource>)> {
        let mut copies = Vec::new();
        for type_url in self.types.as_slice() {
            let Some(types) = self.snapshot.of(type_url) else { continue };
            if let Some(entry) = types.names.entries.get(name) {
                let (cached, annotations) = (entry.cached(), &types.names.annotations);
                let state = EntryState::of(entry, name, annotations);
                let status = self.status(type_url, name, cached, state, annotations, "names");
                copies.push((status, cached.cloned()));
            }
            let none = Annotations::default();
            let annotations = types.wildcard.view.as_ref().map_or(&none, |view| view.annotations());
            let members = [
                ("wildcard", types.wildcard.members.get(name), annotations),
                ("globs", types.globs.members.get(name), &types.globs.annotations),
            ];
            for (collection, cached, annotations) in members {
                let Some(cached) = cached else { continue };
                let state = EntryState::of_member(name, annotations);
                let status = self.status(type_url, name, Some(cached), state, annotations, collection);
                copies.push((status, Some(cached.clone())));
            }
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

fn behind(last: &Option<ResourceName>) -> (Bound<ResourceName>, Bound<ResourceName>) {
    (last.clone().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
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
            self.current = Some((self.types.next()?, ResourceCursor::Names(None)));
        }
    }
}
