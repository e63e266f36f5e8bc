//! The lanes of a source that stand, and the bytes of those that ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::elder::RefusingElder;
use super::lane::{Lane, SourceUpdate, is_covered};
use super::lane_type::{LaneType, changed_members, changed_names};
use super::last_bytes::LastBytes;
use super::published::PublishedLanes;
use super::release::Restated;
use super::rule::Stamps;
use crate::Time;
use crate::cache::Bodies;
use crate::collection::CollectionKind;
use crate::gated::Gated;
use crate::snapshot::{LastVersion, LastVersions, Snapshot, TypeSnapshot};
use sluice_xds::{ResourceName, TypeUrl};

/// The time for which bytes of ended lanes are kept. A stream withholds a removal for 15 s at most, and a
/// stream with a blocked connection sees the end late.
const ENDED_KEPT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct LaneSet {
    pub gated: Gated,
    /// The content that everybody may have; `None` while nothing is held.
    pub stable: Option<Lane>,
    /// The content of the push under way. Only beside `stable`.
    pub candidate: Option<Lane>,
    pub ended: Vec<EndedLane>,
}

impl LaneSet {
    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        [&self.stable, &self.candidate].into_iter().flatten()
    }

    /// A type in the lanes that have it.
    fn lane_types(&self, type_url: &TypeUrl) -> impl Iterator<Item = &LaneType> {
        self.lanes().filter_map(|lane| lane.types.get(type_url))
    }

    pub fn take_candidate(&mut self, push: u64) -> Option<Lane> {
        self.candidate.take_if(|candidate| candidate.mark.push == Some(push))
    }

    /// Takes a change of the source over, as far as the lanes do not hold it.
    pub fn follow(
        &mut self,
        update: &SourceUpdate<'_>,
        elder: Option<RefusingElder<'_>>,
        stamps: &mut Stamps,
    ) {
        let Some(stable) = &mut self.stable else { return };
        stable.follow(update, &self.gated, None, elder, stamps);
        if let Some(candidate) = &mut self.candidate {
            candidate.follow(update, &self.gated, Some(stable), elder, stamps);
        }
    }

    /// The snapshots of the lanes for clients; `None` while nothing is held.
    pub fn published(&mut self, live: &Snapshot, stamps: &mut Stamps) -> Option<PublishedLanes> {
        let stable = Arc::new(self.stable.as_mut()?.snapshot(live, &self.gated, stamps));
        let candidate = self.candidate.as_mut().and_then(|candidate| {
            Some((candidate.mark.push?, Arc::new(candidate.snapshot(live, &self.gated, stamps))))
        });
        Some(PublishedLanes { candidate, stable, waiting: None })
    }

    /// The source's own content with the bytes of the ended lanes.
    pub fn live_after_lanes(&self, live: &Snapshot, stamps: &mut Stamps) -> BTreeMap<TypeUrl, TypeSnapshot> {
        let mut types: BTreeMap<TypeUrl, TypeSnapshot> =
            live.types().map(|(type_url, content)| (type_url.clone(), content.clone())).collect();
        let ended_types: BTreeSet<_> = self.ended.iter().flat_map(|ended| ended.types.keys()).collect();
        for type_url in ended_types {
            let Some(content) = types.get_mut(type_url) else { continue };
            let mut last_bytes = LastBytes::default();
            for kind in CollectionKind::ALL {
                let bodies = self.ended.iter().filter_map(|ended| ended.bodies(type_url, kind));
                let names: BTreeSet<_> = bodies.flat_map(|bodies| bodies.keys()).cloned().collect();
                let lacking = names.into_iter().filter(|name| content.body(kind, name).is_none());
                let find = |name: &ResourceName| last_versions(&self.ended, type_url, kind, name).collect();
                last_bytes.renew(kind, lacking, find, stamps);
            }
            let live = content.clone();
            last_bytes.add_to(content, Some(&live), self.gated.contains(type_url), stamps);
        }
        // The source's own last bytes are for clients that have them (WAV-9).
        let none = Arc::<LastVersions>::default();
        for (_, content) in types.iter_mut().filter(|(type_url, _)| self.gated.contains(type_url)) {
            content.lasts.get_or_insert_with(|| none.clone());
        }
        types
    }

    /// Forgets the ended lanes whose time is over.
    pub fn expire(&mut self, live: &Snapshot, now: Time, stamps: &mut Stamps) {
        let count = self.ended.len();
        self.ended.retain_mut(|ended| !ended.expire(now));
        if self.ended.len() < count {
            self.renew_all(live, stamps);
        }
    }

    /// Keeps the bytes of an ended lane that a remaining one lacks.
    pub fn end(&mut self, lane: Option<Lane>, live: &Snapshot, stamps: &mut Stamps) {
        if let Some(lane) = lane.filter(|lane| lane.is_given) {
            let remaining = |type_url: &TypeUrl| {
                let lanes = self.lane_types(type_url).map(|lane_type| &lane_type.content);
                let content: Vec<_> =
                    lanes.chain(live.of(type_url).filter(|_| self.stable.is_none())).cloned().collect();
                if content.is_empty() { vec![TypeSnapshot::default()] } else { content }
            };
            let differing = |type_url: &TypeUrl, kind| {
                let lane_types = lane.types.get(type_url).into_iter().chain(self.lane_types(type_url));
                lane_types.flat_map(|lane_type| lane_type.differing(kind, live.of(type_url))).collect()
            };
            let ended = EndedLane::new(&lane, remaining, differing);
            if !ended.types.is_empty() {
                self.ended.push(ended);
            }
        }
        self.renew_all(live, stamps);
    }

    /// The types of the source that some lane lacks so far.
    pub fn new_types(&self, live: &Snapshot) -> Vec<TypeUrl> {
        let is_new = |type_url: &&TypeUrl| {
            self.keeps_last_bytes(type_url) && self.lanes().any(|lane| !lane.types.contains_key(*type_url))
        };
        live.types().map(|(type_url, _)| type_url).filter(is_new).cloned().collect()
    }

    /// Finds the last bytes of the lanes again, after a change of the source. A lane has none yet of `new`
    /// types.
    pub fn renew_changed(&mut self, update: &SourceUpdate<'_>, new: &[TypeUrl], stamps: &mut Stamps) {
        let nothing = TypeSnapshot::default();
        for (type_url, live) in update.live.types() {
            if !self.keeps_last_bytes(type_url) {
                continue;
            }
            if new.contains(type_url) {
                self.renew_type(type_url, update.live, stamps);
                continue;
            }
            let before = update.before.of(type_url).unwrap_or(&nothing);
            for kind in [CollectionKind::Names, CollectionKind::Wildcard, CollectionKind::Globs] {
                let names = match kind {
                    CollectionKind::Names => changed_names(&before.names, &live.names),
                    CollectionKind::Wildcard => {
                        changed_members(&before.wildcard.members, &live.wildcard.members)
                    }
                    CollectionKind::Globs => changed_members(&before.globs.members, &live.globs.members),
                };
                self.renew(type_url, kind, &names, stamps);
            }
        }
    }

    fn keeps_last_bytes(&self, type_url: &TypeUrl) -> bool {
        type_url.kind().is_cluster_side() && is_covered(type_url, &self.gated)
    }

    /// Finds all last bytes of the lanes again.
    pub fn renew_all(&mut self, live: &Snapshot, stamps: &mut Stamps) {
        let types = self.lanes().flat_map(|lane| lane.types.keys());
        let types = types.chain(self.ended.iter().flat_map(|ended| ended.types.keys()));
        let types: BTreeSet<_> = types.filter(|type_url| self.keeps_last_bytes(type_url)).cloned().collect();
        types.iter().for_each(|type_url| self.renew_type(type_url, live, stamps));
    }

    fn renew_type(&mut self, type_url: &TypeUrl, live: &Snapshot, stamps: &mut Stamps) {
        for kind in CollectionKind::ALL {
            let names = self.names_with_last_bytes(type_url, kind, live);
            self.renew(type_url, kind, &names, stamps);
        }
    }

    /// The names that may have last bytes.
    fn names_with_last_bytes(
        &self,
        type_url: &TypeUrl,
        kind: CollectionKind,
        live: &Snapshot,
    ) -> Vec<ResourceName> {
        let mut names = BTreeSet::new();
        for lane_type in self.lane_types(type_url) {
            names.extend(lane_type.differing(kind, live.of(type_url)));
            names.extend(
                lane_type.last_bytes.bodies.get(&kind).into_iter().flat_map(|bodies| bodies.keys()).cloned(),
            );
        }
        let ended = self.ended.iter().filter_map(|ended| ended.bodies(type_url, kind));
        names.extend(ended.flat_map(|bodies| bodies.keys()).cloned());
        names.into_iter().collect()
    }

    fn renew(
        &mut self,
        type_url: &TypeUrl,
        kind: CollectionKind,
        names: &[ResourceName],
        stamps: &mut Stamps,
    ) {
        if names.is_empty() {
            return;
        }
        let content = |lane: &Option<Lane>| Some(lane.as_ref()?.types.get(type_url)?.content.clone());
        let (stable, candidate) = (content(&self.stable), content(&self.candidate));
        // A client may go back from a candidate that still stands: it had equal content from the beginning,
        // and was sent nothing of the push.
        let gated_candidate = candidate.clone().filter(|_| self.gated.contains(type_url));
        let body = |content: &Option<TypeSnapshot>, name: &ResourceName| {
            content.as_ref().and_then(|content| content.body(kind, name)).cloned()
        };
        let ended = &self.ended;
        for (lane, content, other, is_candidate) in [
            (&mut self.stable, &stable, &gated_candidate, false),
            (&mut self.candidate, &candidate, &stable, true),
        ] {
            let lane_type = lane.as_mut().and_then(|lane| lane.types.get_mut(type_url));
            let Some(lane_type) = lane_type else { continue };
            let find = |name: &ResourceName| -> Vec<LastVersion> {
                if body(content, name).is_some() {
                    return Vec::new();
                }
                let ended = last_versions(ended, type_url, kind, name);
                // Everybody may have the bytes of stable.
                let other = body(other, name).map(|resource| LastVersion { resource, is_open: is_candidate });
                match is_candidate {
                    true => other.into_iter().chain(ended).collect(),
                    false => ended.chain(other).collect(),
                }
            };
            lane_type.last_bytes.renew(kind, names.iter().cloned(), find, stamps);
        }
    }

    /// The memory of content that the source itself does not have any more, in bytes.
    pub fn held_bytes(&self, live: &Snapshot) -> usize {
        let ended: usize = self.ended.iter().map(EndedLane::bytes).sum();
        let mut seen = BTreeSet::new();
        let mut bytes = 0;
        for lane in self.lanes() {
            for (type_url, lane_type) in &lane.types {
                let live = live.of(type_url);
                for kind in CollectionKind::ALL {
                    for name in lane_type.differing(kind, live) {
                        let Some(body) = lane_type.content.body(kind, &name) else { continue };
                        let is_live = live
                            .and_then(|live| live.body(kind, &name))
                            .is_some_and(|live| live.version == body.version);
                        if !is_live && seen.insert((type_url, kind, name, body.version)) {
                            bytes += body.size();
                        }
                    }
                }
            }
        }
        bytes + ended
    }

    /// The names that differ between stable and a candidate that clients were given. `None`: nobody was given
    /// it, or nothing is held.
    pub fn restated(&self, push: u64, candidate: &Lane, live: &Snapshot) -> Option<Restated> {
        let stable = self.stable.as_ref().filter(|_| candidate.is_given)?;
        let mut types: BTreeMap<TypeUrl, BTreeMap<_, _>> = BTreeMap::new();
        let gated = candidate.types.iter().filter(|(type_url, _)| self.gated.contains(type_url));
        for (type_url, pushed) in gated {
            let (live, stable) = (live.of(type_url), stable.types.get(type_url));
            for kind in CollectionKind::ALL {
                let names = stable.into_iter().chain([pushed]).flat_map(|held| held.differing(kind, live));
                let version = |lane_type: &LaneType, name: &ResourceName| {
                    lane_type.content.body(kind, name).map(|body| body.version)
                };
                let differ = |name: &ResourceName| {
                    version(pushed, name) != stable.and_then(|stable| version(stable, name))
                };
                let names: imbl::OrdSet<_> = names.filter(differ).collect();
                if !names.is_empty() {
                    types.entry(type_url.clone()).or_default().insert(kind, names);
                }
            }
        }
        Some(Restated { push, types })
    }
}

/// Bytes that an ended lane had and some remaining lane lacks.
#[derive(Debug)]
pub(super) struct EndedLane {
    /// `None` until the lanes are published again.
    pub until: Option<Time>,
    pub types: BTreeMap<TypeUrl, BTreeMap<CollectionKind, Bodies>>,
    /// Everybody might have the lane.
    is_open: bool,
}

impl EndedLane {
    /// The resources of a lane that one of the `remaining` contents of a type lacks, among the `differing`
    /// names.
    pub fn new(
        lane: &Lane,
        remaining: impl Fn(&TypeUrl) -> Vec<TypeSnapshot>,
        differing: impl Fn(&TypeUrl, CollectionKind) -> BTreeSet<ResourceName>,
    ) -> EndedLane {
        let mut types = BTreeMap::new();
        for (type_url, held) in lane.types.iter().filter(|(type_url, _)| type_url.kind().is_cluster_side()) {
            let remaining = remaining(type_url);
            let mut kinds = BTreeMap::new();
            for kind in CollectionKind::ALL {
                let is_lacking =
                    |name: &ResourceName| remaining.iter().any(|content| content.body(kind, name).is_none());
                let names = differing(type_url, kind).into_iter().filter(is_lacking);
                let body =
                    |name: ResourceName| held.content.body(kind, &name).map(|body| (name, body.clone()));
                let bodies: Bodies = names.filter_map(body).collect();
                if !bodies.is_empty() {
                    kinds.insert(kind, bodies);
                }
            }
            if !kinds.is_empty() {
                types.insert(type_url.clone(), kinds);
            }
        }
        EndedLane { until: None, types, is_open: lane.mark.push.is_none() }
    }

    pub fn bodies(&self, type_url: &TypeUrl, kind: CollectionKind) -> Option<&Bodies> {
        self.types.get(type_url)?.get(&kind)
    }

    /// The lane's bytes under a name.
    pub fn last(&self, type_url: &TypeUrl, kind: CollectionKind, name: &ResourceName) -> Option<LastVersion> {
        let resource = self.bodies(type_url, kind)?.get(name)?.clone();
        Some(LastVersion { resource, is_open: self.is_open })
    }

    /// Whether the time is over.
    pub fn expire(&mut self, now: Time) -> bool {
        *self.until.get_or_insert(now + ENDED_KEPT) <= now
    }

    pub fn bytes(&self) -> usize {
        let bodies = self.types.values().flat_map(BTreeMap::values);
        bodies.flat_map(|bodies| bodies.values()).map(|body| body.size()).sum()
    }
}

/// The bytes of the ended lanes under a name, the latest lane first.
fn last_versions(
    ended: &[EndedLane],
    type_url: &TypeUrl,
    kind: CollectionKind,
    name: &ResourceName,
) -> impl Iterator<Item = LastVersion> {
    ended.iter().rev().filter_map(move |ended| ended.last(type_url, kind, name))
}
