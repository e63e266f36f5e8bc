//! The content of the control plane: resources of each type, encoded once, in the forms of both variants.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::OnceLock;

use bytes::Bytes;

use super::payload;
use crate::proto::{put_bytes, put_message};
use crate::xds::{Kind, Variant, resource_index, resource_name};

/// The number of remembered changes; for a stream further behind, all resources are checked.
const REMEMBERED: usize = 1024;

/// A resource as encoded in a response: field 2 of DiscoveryResponse and of DeltaDiscoveryResponse.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Version of the snapshot with the last change of the resource.
    version: u64,
    sotw: Bytes,
    delta: Bytes,
}

impl Resource {
    fn new(kind: Kind, index: usize, version: u64, bytes: usize, stamp: u64) -> Resource {
        let name = resource_name(index);
        let body = payload::body(kind, &name, index, bytes, stamp);
        let mut any = Vec::with_capacity(body.len() + 100);
        put_bytes(&mut any, 1, kind.type_url());
        put_bytes(&mut any, 2, body);
        let mut sotw = Vec::with_capacity(any.len() + 8);
        put_bytes(&mut sotw, 2, &any);
        let mut delta = Vec::with_capacity(any.len() + 50);
        put_message(&mut delta, 2, |out| {
            put_bytes(out, 1, version.to_string());
            put_bytes(out, 2, &any);
            put_bytes(out, 3, name);
        });
        Resource { version, sotw: sotw.into(), delta: delta.into() }
    }

    pub fn bytes(&self, variant: Variant) -> &Bytes {
        match variant {
            Variant::Sotw => &self.sotw,
            Variant::Delta => &self.delta,
        }
    }
}

/// All resources of a type.
struct Set {
    resources: Vec<Resource>,
    /// The approximate size of each.
    bytes: usize,
    /// All resources concatenated, in the forms of both variants; built on first use.
    all: [OnceLock<Bytes>; 2],
}

/// The changing resources of a type: those with `index % stride == residue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub kind: Kind,
    pub residue: usize,
    pub stride: usize,
}

/// The state of the control plane at a moment.
pub struct Snapshot {
    pub version: u64,
    sets: BTreeMap<Kind, Set>,
    changes: VecDeque<(u64, Change)>,
}

impl Snapshot {
    /// `count` resources of each type, with about this size. Version 1.
    pub fn new(count: usize, kinds: &[(Kind, usize)]) -> Snapshot {
        let set = |kind: Kind, bytes: usize| Set {
            resources: (0..count).map(|index| Resource::new(kind, index, 1, bytes, 0)).collect(),
            bytes,
            all: Default::default(),
        };
        let sets = kinds.iter().map(|(kind, bytes)| (*kind, set(*kind, *bytes)));
        Snapshot { version: 1, sets: sets.collect(), changes: VecDeque::new() }
    }

    /// Makes the next version, in which the changed resources carry the stamp.
    pub fn change(&mut self, change: Change, stamp: u64) {
        self.version += 1;
        let Some(set) = self.sets.get_mut(&change.kind) else { return };
        let indices = (change.residue..set.resources.len()).step_by(change.stride.max(1));
        for index in indices {
            set.resources[index] = Resource::new(change.kind, index, self.version, set.bytes, stamp);
        }
        set.all = Default::default();
        self.changes.push_back((self.version, change));
        if self.changes.len() > REMEMBERED {
            self.changes.pop_front();
        }
    }

    /// The resource with this name at this version.
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Resource> {
        self.sets.get(&kind)?.resources.get(resource_index(name)?)
    }

    /// All resources of a type at this version, for a response.
    pub fn all(&self, kind: Kind, variant: Variant) -> Bytes {
        let Some(set) = self.sets.get(&kind) else { return Bytes::new() };
        let all = &set.all[usize::from(variant == Variant::Delta)];
        let join = || set.resources.iter().flat_map(|resource| resource.bytes(variant)).copied().collect();
        all.get_or_init(join).clone()
    }

    /// The indices of the resources of a type that changed after a version.
    pub fn changed_since(&self, kind: Kind, version: u64) -> BTreeSet<usize> {
        let Some(set) = self.sets.get(&kind) else { return BTreeSet::new() };
        let forgotten = self.changes.front().is_none_or(|(first, _)| *first > version + 1);
        if forgotten && version < self.version {
            let newer = |(_, resource): &(usize, &Resource)| resource.version > version;
            return set.resources.iter().enumerate().filter(newer).map(|(index, _)| index).collect();
        }
        let newer = self.changes.iter().rev().take_while(|(at, _)| *at > version);
        newer
            .filter(|(_, change)| change.kind == kind)
            .flat_map(|(_, change)| (change.residue..set.resources.len()).step_by(change.stride.max(1)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NONE: [usize; 0] = [];

    #[test]
    fn what_changed_is_known_with_and_without_a_memory() {
        let mut snapshot = Snapshot::new(10, &[(Kind::Cluster, 0), (Kind::Endpoints, 0)]);
        let change = |kind, residue, stride| Change { kind, residue, stride };
        snapshot.change(change(Kind::Cluster, 0, 10), 5);
        snapshot.change(change(Kind::Endpoints, 1, 4), 6);
        let changed = |snapshot: &Snapshot, kind, version| {
            snapshot.changed_since(kind, version).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(changed(&snapshot, Kind::Cluster, 1), [0]);
        assert_eq!(changed(&snapshot, Kind::Cluster, 2), NONE);
        assert_eq!(changed(&snapshot, Kind::Endpoints, 1), [1, 5, 9]);
        assert_eq!(changed(&snapshot, Kind::Route, 1), NONE);
        for stamp in 0..2000 {
            snapshot.change(change(Kind::Cluster, 3, 10), stamp);
        }
        assert_eq!(changed(&snapshot, Kind::Cluster, 1), [0, 3]);
        assert_eq!(changed(&snapshot, Kind::Endpoints, 1), [1, 5, 9]);
        assert_eq!(changed(&snapshot, Kind::Endpoints, 1500), NONE);
        assert_eq!(snapshot.get(Kind::Cluster, "load-000003").unwrap().version, snapshot.version);
    }

    #[test]
    fn the_first_change_that_is_forgotten_is_found_all_the_same() {
        let mut snapshot = Snapshot::new(10, &[(Kind::Cluster, 0)]);
        let change = |residue| Change { kind: Kind::Cluster, residue, stride: 10 };
        snapshot.change(change(7), 1);
        (0..REMEMBERED as u64).for_each(|stamp| snapshot.change(change(3), stamp));
        assert_eq!(snapshot.changed_since(Kind::Cluster, 1), BTreeSet::from([3, 7]));
        assert_eq!(snapshot.changed_since(Kind::Cluster, 2), BTreeSet::from([3]));
    }
}
