//! Last bytes that clients need while they move between lanes: what other lanes have and this one lacks (WAV-9).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::lane::Lane;
use super::lane_type::LaneType;
use super::rule::Stamps;
use crate::Time;
use crate::cache::Bodies;
use crate::collection::CollectionKind;
use crate::snapshot::{LastVersion, LastVersions, TypeSnapshot};
use sluice_xds::{ResourceName, TypeUrl};

/// The time for which bytes of ended lanes are kept. A stream withholds a removal for 15 s at most, and a stream with a
/// blocked connection sees the end late.
const ENDED_KEPT: Duration = Duration::from_secs(30);

/// Bytes by kind of collection.
#[derive(Clone, Debug, Default)]
pub(super) struct Lasts {
    pub bodies: BTreeMap<CollectionKind, Bodies>,
    /// The same of all releases.
    versions: Arc<LastVersions>,
    /// Distinguishes these bytes from others under the same names; 0 if there are none.
    mark: u64,
    /// The source's own mark at that time.
    of: u64,
}

/// Bytes that ended lanes had and some remaining lane lacks.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None` until the lanes are published again.
    pub until: Option<Time>,
    pub types: BTreeMap<TypeUrl, BTreeMap<CollectionKind, Bodies>>,
    /// Everybody might have the lane.
    is_open: bool,
}

impl Ended {
    /// The lane's bytes under a name.
    pub fn last(&self, type_url: &TypeUrl, kind: CollectionKind, name: &ResourceName) -> Option<LastVersion> {
        let resource = self.types.get(type_url)?.get(&kind)?.get(name)?.clone();
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

    /// The resources of a lane that one of the `remaining` contents of a type lacks.
    pub fn of(
        lane: &Lane,
        remaining: impl Fn(&TypeUrl) -> Vec<TypeSnapshot>,
        differing: impl Fn(&TypeUrl, CollectionKind) -> BTreeSet<ResourceName>,
    ) -> Ended {
        let mut types = BTreeMap::new();
        for (type_url, own) in lane.types.iter().filter(|(type_url, _)| type_url.kind().is_cluster_side()) {
            let remaining = remaining(type_url);
            let mut kinds = BTreeMap::new();
            for kind in CollectionKind::ALL {
                let is_lacking =
                    |name: &ResourceName| remaining.iter().any(|of| of.body(kind, name).is_none());
                let names = differing(type_url, kind).into_iter().filter(is_lacking);
                let body =
                    |name: ResourceName| own.content.body(kind, &name).map(|body| (name, body.clone()));
                let bodies: Bodies = names.filter_map(body).collect();
                if !bodies.is_empty() {
                    kinds.insert(kind, bodies);
                }
            }
            if !kinds.is_empty() {
                types.insert(type_url.clone(), kinds);
            }
        }
        Ended { until: None, types, is_open: lane.mark.push.is_none() }
    }
}

impl LaneType {
    /// The names that differ from the source's in some way.
    pub fn differing(&self, kind: CollectionKind, live: Option<&TypeSnapshot>) -> BTreeSet<ResourceName> {
        let names = match kind {
            CollectionKind::Names => {
                return self.names.iter().chain(self.forgotten.names()).cloned().collect();
            }
            CollectionKind::Wildcard if !self.keeps_wildcard => return self.wildcard.clone(),
            CollectionKind::Globs if !self.keeps_globs => return self.globs.clone(),
            CollectionKind::Wildcard => &self.content.wildcard.members,
            CollectionKind::Globs => &self.content.globs.members,
        };
        let lives = live.map(|live| match kind {
            CollectionKind::Globs => live.globs.members.keys(),
            _ => live.wildcard.members.keys(),
        });
        names.keys().chain(lives.into_iter().flatten()).cloned().collect()
    }
}

impl Lasts {
    /// Finds the last bytes under these names again.
    pub fn renew(
        &mut self,
        kind: CollectionKind,
        names: impl Iterator<Item = ResourceName>,
        find: impl Fn(&ResourceName) -> Vec<LastVersion>,
        stamps: &mut Stamps,
    ) {
        let bodies = self.bodies.entry(kind).or_default();
        let mut is_lost = false;
        for name in names {
            let found = find(&name);
            let known = self.versions.0.get(&kind).and_then(|names| names.get(&name));
            if known.map_or(&[][..], Vec::as_slice) == found {
                continue;
            }
            is_lost = true;
            let versions = Arc::make_mut(&mut self.versions).0.entry(kind).or_default();
            match found.first() {
                Some(first) => {
                    bodies.insert(name.clone(), first.resource.clone());
                    versions.insert(name, found);
                }
                None => {
                    bodies.remove(&name);
                    versions.remove(&name);
                }
            }
        }
        if is_lost || self.mark == 0 {
            self.mark = stamps.number();
        }
    }

    /// Adds the bytes to a snapshot with the source's last bytes. `is_gated`: the type is held.
    pub fn add_to(
        &mut self,
        types: &mut TypeSnapshot,
        live: Option<&TypeSnapshot>,
        is_gated: bool,
        stamps: &mut Stamps,
    ) {
        types.lasts = is_gated.then(|| self.versions.clone());
        self.bodies.retain(|_, bodies| !bodies.is_empty());
        for kind in CollectionKind::ALL {
            let lives = live.map(|live| live.departed_bodies(kind));
            *types.departed_bodies_mut(kind) = match (self.bodies.get(&kind), lives) {
                (None, None) => Bodies::default(),
                (None, Some(lives)) => lives.clone(),
                (Some(own), lives) => {
                    let mut bodies = own.clone();
                    for (name, body) in lives.into_iter().flatten() {
                        bodies.entry(name.clone()).or_insert_with(|| body.clone());
                    }
                    bodies
                }
            };
        }
        types.evicted = live.map_or(0, |live| live.evicted);
        if self.bodies.is_empty() {
            self.mark = 0;
            return;
        }
        if std::mem::replace(&mut self.of, types.evicted) != types.evicted {
            self.mark = stamps.number();
        }
        // Between the source's own counts, and the marks of servers that stand in.
        types.evicted = 1 << 62 | self.mark;
    }
}
