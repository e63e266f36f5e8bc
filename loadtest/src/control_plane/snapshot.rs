//! The content of the control plane: resources of each type, encoded once, in the forms of both variants.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::OnceLock;

use bytes::Bytes;

use super::payload;
use crate::function::{RULED, SELECTED, Who};
use crate::proto::{put_bytes, put_message};
use crate::stamp;
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
    /// A resource with the text of a stamp.
    fn new(kind: Kind, index: usize, version: u64, bytes: usize, stamp: &str) -> Resource {
        let name = resource_name(index);
        let body = payload::body(kind, &name, bytes, stamp);
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
    /// The content for each audience.
    contents: Vec<Content>,
    /// The approximate size of each resource.
    bytes: usize,
    /// The first resource as the selected clients have it, once the rule is in force.
    selected: Option<Resource>,
}

/// The resources for one audience.
struct Content {
    resources: Vec<Resource>,
    /// All resources concatenated, in the forms of both variants; built on first use.
    all: [OnceLock<Bytes>; 2],
}

impl Set {
    fn new(kind: Kind, count: usize, bytes: usize, audiences: usize) -> Set {
        let resource =
            |index, audience| Resource::new(kind, index, 1, bytes, &stamp::text(0, index, audience));
        let content = |audience| Content {
            resources: (0..count).map(|index| resource(index, audience)).collect(),
            all: Default::default(),
        };
        Set { contents: (0..audiences).map(content).collect(), bytes, selected: None }
    }

    fn count(&self) -> usize {
        self.contents.first().map_or(0, |content| content.resources.len())
    }

    /// The resource that the selected clients have in the place of an audience's.
    fn selected(&self, who: Who) -> Option<&Resource> {
        self.selected.as_ref().filter(|_| who.is_selected)
    }

    fn get(&self, who: Who, index: usize) -> Option<&Resource> {
        let selected = if index == RULED { self.selected(who) } else { None };
        selected.or_else(|| self.contents.get(who.audience)?.resources.get(index))
    }

    fn resources(&self, who: Who) -> impl Iterator<Item = &Resource> {
        (0..self.count()).filter_map(move |index| self.get(who, index))
    }

    fn change(&mut self, kind: Kind, index: usize, version: u64, time: u64) {
        let bytes = self.bytes;
        let resource =
            |audience| Resource::new(kind, index, version, bytes, &stamp::text(time, index, audience));
        for (audience, content) in self.contents.iter_mut().enumerate() {
            content.resources[index] = resource(audience);
            content.all = Default::default();
        }
        if let Some(selected) = self.selected.as_mut().filter(|_| index == RULED) {
            *selected = resource(SELECTED);
        }
    }
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
    /// `count` resources of each type, with about this size, for each audience. Version 1.
    pub fn new(count: usize, kinds: &[(Kind, usize)], audiences: usize) -> Snapshot {
        let sets = kinds.iter().map(|(kind, bytes)| (*kind, Set::new(*kind, count, *bytes, audiences)));
        Snapshot { version: 1, sets: sets.collect(), changes: VecDeque::new() }
    }

    /// Makes the next version, in which the changed resources carry the stamp.
    pub fn change(&mut self, change: Change, stamp: u64) {
        self.version += 1;
        let Some(set) = self.sets.get_mut(&change.kind) else { return };
        for index in (change.residue..set.count()).step_by(change.stride.max(1)) {
            set.change(change.kind, index, self.version, stamp);
        }
        self.remember(change);
    }

    /// Puts the rule in force for a type, in the next version: from then on the first resource of the selected
    /// clients is their own, and carries the stamp.
    pub fn put_rule_in_force(&mut self, kind: Kind, stamp: u64) {
        self.version += 1;
        let Some(set) = self.sets.get_mut(&kind) else { return };
        let stamp = stamp::text(stamp, RULED, SELECTED);
        set.selected = Some(Resource::new(kind, RULED, self.version, set.bytes, &stamp));
        self.remember(Change { kind, residue: RULED, stride: usize::MAX });
    }

    fn remember(&mut self, change: Change) {
        self.changes.push_back((self.version, change));
        if self.changes.len() > REMEMBERED {
            self.changes.pop_front();
        }
    }

    /// The resource with this name at this version.
    pub fn get(&self, kind: Kind, who: Who, name: &str) -> Option<&Resource> {
        self.sets.get(&kind)?.get(who, resource_index(name)?)
    }

    /// All resources of a type at this version, for a response.
    pub fn all(&self, kind: Kind, who: Who, variant: Variant) -> Bytes {
        let Some(set) = self.sets.get(&kind) else { return Bytes::new() };
        let join = || set.resources(who).flat_map(|resource| resource.bytes(variant)).copied().collect();
        match (set.selected(who), set.contents.get(who.audience)) {
            (None, Some(content)) => {
                content.all[usize::from(variant == Variant::Delta)].get_or_init(join).clone()
            }
            _ => join(),
        }
    }

    /// The indices of the resources of a type that changed for a client after a version.
    pub fn changed_since(&self, kind: Kind, who: Who, version: u64) -> BTreeSet<usize> {
        let Some(set) = self.sets.get(&kind) else { return BTreeSet::new() };
        let is_newer = |resource: &Resource| resource.version > version;
        let forgotten = self.changes.front().is_none_or(|(first, _)| *first > version + 1);
        if forgotten && version < self.version {
            let resources = set.resources(who).enumerate();
            return resources.filter(|(_, resource)| is_newer(resource)).map(|(index, _)| index).collect();
        }
        let newer = self.changes.iter().rev().take_while(|(at, _)| *at > version);
        newer
            .filter(|(_, change)| change.kind == kind)
            .flat_map(|(_, change)| (change.residue..set.count()).step_by(change.stride.max(1)))
            // The rule changes nothing for those that it does not select.
            .filter(|index| set.get(who, *index).is_some_and(is_newer))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NONE: [usize; 0] = [];
    const ALL: Who = Who { audience: 0, is_selected: false };

    #[test]
    fn what_changed_is_known_with_and_without_a_memory() {
        let mut snapshot = Snapshot::new(10, &[(Kind::Cluster, 0), (Kind::Endpoints, 0)], 1);
        let change = |kind, residue, stride| Change { kind, residue, stride };
        snapshot.change(change(Kind::Cluster, 0, 10), 5);
        snapshot.change(change(Kind::Endpoints, 1, 4), 6);
        let changed = |snapshot: &Snapshot, kind, version| {
            snapshot.changed_since(kind, ALL, version).into_iter().collect::<Vec<_>>()
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
        assert_eq!(snapshot.get(Kind::Cluster, ALL, "load-000003").unwrap().version, snapshot.version);
    }

    #[test]
    fn the_first_change_that_is_forgotten_is_found_all_the_same() {
        let mut snapshot = Snapshot::new(10, &[(Kind::Cluster, 0)], 1);
        let change = |residue| Change { kind: Kind::Cluster, residue, stride: 10 };
        snapshot.change(change(7), 1);
        (0..REMEMBERED as u64).for_each(|stamp| snapshot.change(change(3), stamp));
        assert_eq!(snapshot.changed_since(Kind::Cluster, ALL, 1), BTreeSet::from([3, 7]));
        assert_eq!(snapshot.changed_since(Kind::Cluster, ALL, 2), BTreeSet::from([3]));
    }

    #[test]
    fn a_rule_changes_the_first_resource_of_the_clients_that_it_selects() {
        let mut snapshot = Snapshot::new(3, &[(Kind::Cluster, 0)], 2);
        let [selected, other] = [true, false].map(|is_selected| Who { audience: 1, is_selected });
        let bytes = |snapshot: &Snapshot, who| snapshot.all(Kind::Cluster, who, Variant::Delta);
        let before = bytes(&snapshot, selected);
        assert!(before == bytes(&snapshot, other) && before != bytes(&snapshot, ALL));
        snapshot.put_rule_in_force(Kind::Cluster, 7);
        assert_eq!(snapshot.changed_since(Kind::Cluster, selected, 1), BTreeSet::from([0]));
        assert_eq!(snapshot.changed_since(Kind::Cluster, other, 1), BTreeSet::new());
        assert!(bytes(&snapshot, selected) != before && bytes(&snapshot, other) == before);
        let first = snapshot.get(Kind::Cluster, selected, "load-000000").unwrap().clone();
        snapshot.change(Change { kind: Kind::Cluster, residue: 0, stride: 3 }, 8);
        assert_eq!(snapshot.changed_since(Kind::Cluster, other, 2), BTreeSet::from([0]));
        assert_ne!(snapshot.get(Kind::Cluster, selected, "load-000000"), Some(&first));
        let [mine, theirs] = [selected, other].map(|who| snapshot.get(Kind::Cluster, who, "load-000000"));
        assert_ne!(mine, theirs);
    }
}
