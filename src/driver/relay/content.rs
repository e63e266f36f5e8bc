//! The cached copies of one resource, for the admin room.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::driver::api::content::{
    CachedCopy, ContentView, HeldSource, Release, ReleasedVersion, UpstreamVersions,
};
use crate::driver::api::status::{ResourceFilter, ResourcePlace};
use crate::driver::ground::class_identity::of_class;
use crate::driver::relay::handle::Relay;
use crate::driver::relay::walk::SnapshotWalk;
use crate::driver::source::handle::{Command, SourceHandle, Subscriber};
use sluice_engine::collection::CollectionKind;
use sluice_xds::{Node, ResourceName, TypeUrl};

/// A source answers at once unless it is processing a large response.
const VERSIONS_MAX: Duration = Duration::from_secs(1);

impl ContentView for Relay {
    fn copies(&self, type_name: &str, name: &str) -> Vec<CachedCopy> {
        let filter = ResourceFilter { type_name: Some(type_name.to_owned()), ..ResourceFilter::default() };
        let name = ResourceName::new(name);
        let mut copies = Vec::new();
        for handle in self.tables.sources.all() {
            let (source, list) = (handle.id().0, handle.status().list.clone());
            let walk = SnapshotWalk::new(&handle, &filter, None, self.shared.clock);
            for (status, cached) in walk.copies_of(&name) {
                let resource = cached.map(|cached| cached.resource);
                copies.push(CachedCopy { source, list: list.clone(), status, resource });
            }
        }
        copies
    }

    fn released(&self, type_url: &TypeUrl, name: &ResourceName) -> Vec<ReleasedVersion> {
        let mut versions = Vec::new();
        for source in self.tables.sources.all() {
            let published = source.published();
            let Some(lanes) = published.lanes_that_hold() else { continue };
            let candidate = lanes.candidate.as_ref().map(|(_, candidate)| (candidate, Release::Candidate));
            for (snapshot, release) in candidate.into_iter().chain([(&lanes.stable, Release::Stable)]) {
                let types = snapshot.of(type_url).into_iter();
                let cached = types.flat_map(|types| CollectionKind::ALL.map(|kind| types.cached(kind, name)));
                versions.extend(cached.flatten().map(|cached| {
                    let received_at = self.shared.clock.wall_of(cached.received_at);
                    ReleasedVersion { version: cached.resource.version, release, received_at }
                }));
            }
        }
        versions
    }

    fn held_sources(&self) -> Vec<HeldSource> {
        let relay = self.shared.epoch().node.clone();
        let held = |handle: &Arc<SourceHandle>| HeldSource {
            number: handle.id().0,
            status: handle.status(),
            node: of_class(&relay, &handle.key().class),
        };
        // Lists without a server have no attachment to show.
        let sources = self.tables.sources.all();
        sources.iter().filter(|handle| !handle.server(0).is_made_up()).map(held).collect()
    }

    fn held(&self, source: u64) -> Box<dyn Iterator<Item = CachedCopy> + Send + '_> {
        let Some(handle) = source_of(self, source) else { return Box::new(std::iter::empty()) };
        let list = handle.status().list.clone();
        let walk = SnapshotWalk::new(&handle, &ResourceFilter::default(), None, self.shared.clock);
        Box::new(walk.copies(source, list))
    }

    fn candidate<'a>(
        &'a self,
        push: u64,
        units: &[u64],
        after: Option<ResourcePlace>,
    ) -> Box<dyn Iterator<Item = CachedCopy> + Send + 'a> {
        let from = after.as_ref().map_or(0, |place| place.source);
        let units: BTreeSet<u64> = units.iter().copied().filter(|unit| *unit >= from).collect();
        let all = units.into_iter().filter_map(|unit| source_of(self, unit));
        let copies = all.flat_map(move |handle| {
            let published = handle.published();
            // An observing plan holds nothing back.
            let snapshot = published.candidate_of(push).unwrap_or(&published.live).clone();
            let (source, list) = (handle.id().0, handle.status().list.clone());
            let after = after.as_ref().filter(|place| place.source == source);
            let walk =
                SnapshotWalk::over(&handle, snapshot, &ResourceFilter::default(), after, self.shared.clock);
            walk.copies(source, list)
        });
        Box::new(copies.filter(|copy| copy.resource.is_some() && !copy.status.type_url.is_secret()))
    }

    fn upstream_versions(&self, source: u64) -> BoxFuture<'_, UpstreamVersions> {
        let Some(handle) = source_of(self, source) else {
            return std::future::ready(UpstreamVersions::new()).boxed();
        };
        async move {
            let (done, versions) = oneshot::channel();
            handle.send(Command::Versions(done)).await;
            match timeout(VERSIONS_MAX, versions).await {
                Ok(Ok(versions)) => versions,
                // The source is busy, or ends.
                _ => UpstreamVersions::new(),
            }
        }
        .boxed()
    }

    fn nodes(&self) -> Box<dyn Iterator<Item = (u64, Arc<Node>)> + Send + '_> {
        let mut last = None;
        let streams = std::iter::from_fn(move || {
            let stream = self.tables.streams.next(last)?;
            last = Some(stream.id().0);
            Some(stream)
        });
        Box::new(streams.filter_map(|stream| Some((stream.id().0, stream.node()?))))
    }
}

fn source_of(relay: &Relay, number: u64) -> Option<Arc<SourceHandle>> {
    relay.tables.sources.all().iter().find(|handle| handle.id().0 == number).cloned()
}
