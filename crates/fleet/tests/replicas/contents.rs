//! The contents of units: names with versions, and their hashes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use sluice_engine::change::NameList;
use sluice_fleet::rollout::ledger::{Newcomer, NewcomerType};
use sluice_fleet::rollout::push::{Growth, TypePush};
use sluice_fleet::rollout::shared::{ChangeHash, UnitChanges, UnitKey};
use sluice_fleet::rollout::{ReleaseDigest, UnitId, UnitPush};
use sluice_xds::{ResourceName, TypeUrl, Version};

pub const UNITS: u64 = 2;

/// The version of each name.
pub type Content = BTreeMap<u64, u64>;

/// The version of a name that was taken away.
pub const REMOVED: u64 = 1 << 40;

/// A version that all clients reject.
pub fn is_bad(version: u64) -> bool {
    version % 4 == 3
}

pub fn keys() -> BTreeMap<UnitId, UnitKey> {
    (0..UNITS).map(|unit| (UnitId(unit), UnitKey(u128::from(unit)))).collect()
}

pub fn digest(content: &Content) -> ReleaseDigest {
    ReleaseDigest(
        content.iter().fold(1, |sum, (name, version)| sum * 1_000_003 + u128::from(name * 7_919 + version)),
    )
}

fn type_url() -> TypeUrl {
    TypeUrl::of_message("envoy.config.cluster.v3.Cluster")
}

#[derive(Debug, Default)]
pub struct Unit {
    pub stable: Content,
    pub candidate: Option<(u64, Content)>,
    pub latest: Option<Content>,
    pub live: Content,
    /// The number of the latest change of the control plane that has come.
    pub heard: u64,
    /// The contents that all clients had, by push.
    pub releases: BTreeMap<u64, Content>,
    /// The unit began without stable content, and has none yet.
    pub newcomer: Option<Newcomer>,
    /// The content that such a unit gave to all of its clients while no push in the ledger had it.
    pub given: BTreeSet<ChangeHash>,
    pub began_cold: bool,
    pub has_waited: bool,
}

/// A content as a plan names it.
pub fn content(name: u64, version: u64) -> (TypeUrl, ResourceName, Version) {
    (type_url(), ResourceName::from(name.to_string().as_str()), Version(u128::from(version)))
}

thread_local! {
    /// Hashes take most of the time of a schedule otherwise.
    static HASHES: RefCell<BTreeMap<(UnitId, u64, u64), ChangeHash>> = RefCell::default();
}

pub fn hash(unit: UnitId, name: u64, version: u64) -> ChangeHash {
    HASHES.with_borrow_mut(|hashes| {
        *hashes.entry((unit, name, version)).or_insert_with(|| {
            let (type_url, name, present) = content(name, version);
            ChangeHash::new(keys()[&unit], &type_url, &name, Some(present).filter(|_| version != REMOVED))
        })
    })
}

pub fn hashes(unit: UnitId, content: &Content) -> impl Iterator<Item = ChangeHash> + '_ {
    content.iter().map(move |(name, version)| hash(unit, *name, *version))
}

pub fn newcomer_type(unit: UnitId, content: &Content) -> NewcomerType {
    NewcomerType { type_url: type_url(), is_whole: true, contents: hashes(unit, content).collect() }
}

pub fn unit_push(id: UnitId, unit: &Unit) -> UnitPush {
    let (mut changed, key) = (NameList::default(), UnitKey(u128::from(id.0)));
    let mut changes = BTreeSet::new();
    for (name, version) in unit.live.iter().filter(|(name, version)| unit.stable[name] != **version) {
        changed.add(&ResourceName::from(name.to_string().as_str()));
        changes.insert(hash(id, *name, *version));
    }
    let part = TypePush {
        type_url: type_url(),
        added: NameList::default(),
        changed,
        removed: NameList::default(),
        resources: Growth { before: 3, after: 3 },
        bytes: Growth { before: 300, after: 300 },
        largest: None,
    };
    UnitPush {
        unit: id,
        types: vec![part],
        condemned: None,
        findings: Vec::new(),
        is_current: true,
        is_former: unit.latest.as_ref() == Some(&unit.live),
        returns_to: None,
        stable: digest(&unit.stable),
        candidate: digest(&unit.live),
        shared: Some(UnitChanges { unit: key, changes }),
    }
}
