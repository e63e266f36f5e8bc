//! The state of a plan that outlives the process (WAV-8).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rollout::hex;
use crate::rollout::ledger::KeptOrders;
use crate::rollout::push::{ReleaseDigest, UnitId};
use sluice_engine::collection::CollectionKind;

/// A plan with `mode: enforce`, as plain data in the memory of the process and on disk. Has no times, as
/// another process has another clock. `UnitId`s are those of the process that wrote the record. Wide because
/// the fields are those of the file, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    /// Microseconds since 1970.
    pub written_at: u64,
    pub last_push: u64,
    pub push: Option<PushRecord>,
    /// The latest first, with the trusted contents. A release that was served again stands twice.
    pub releases: Vec<ReleaseRecord>,
    pub units: BTreeMap<UnitId, StoredUnit>,
    pub barred: Vec<UnitId>,
    /// Units whose stable content clients have accepted as a push. Files of earlier builds lack the list.
    #[serde(default)]
    pub proved: Vec<UnitId>,
    /// The units that hold something back, each with the age of the oldest change. Files of earlier builds
    /// lack the ages.
    #[serde(default)]
    pub away_ms: BTreeMap<UnitId, Millis>,
    /// The time left of a freeze.
    pub frozen_ms: Option<Millis>,
    pub pin: Option<PinRecord>,
    /// The release that is the stable content. Files of earlier builds lack the number.
    #[serde(default)]
    pub served: Option<u64>,
    /// The orders of all replicas, as this one follows them. `None`: no ledger, or a file of an earlier
    /// build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<KeptOrders>,
    pub condemned: Vec<StoredContent>,
    /// Files of earlier builds lack the rejections.
    #[serde(default)]
    pub rejected: StoredRejected,
}

/// A halted push. A push on its way is not recorded, and begins anew, as nobody knows the admitted clients
/// after a restart. A push in an operator's pause is recorded as halted by all units: a restart must not undo
/// the operator's word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushRecord {
    pub number: u64,
    /// 0 before the first step.
    pub step: u8,
    pub threshold: u16,
    pub units: Vec<UnitRecord>,
    pub blamed: Vec<UnitId>,
}

/// A unit of a push. Written as a list of its three values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(UnitId, ReleaseDigest, ReleaseDigest)", into = "(UnitId, ReleaseDigest, ReleaseDigest)")]
pub struct UnitRecord {
    pub unit: UnitId,
    pub stable: ReleaseDigest,
    pub candidate: ReleaseDigest,
}

impl From<(UnitId, ReleaseDigest, ReleaseDigest)> for UnitRecord {
    fn from(values: (UnitId, ReleaseDigest, ReleaseDigest)) -> UnitRecord {
        let (unit, stable, candidate) = values;
        UnitRecord { unit, stable, candidate }
    }
}

impl From<UnitRecord> for (UnitId, ReleaseDigest, ReleaseDigest) {
    fn from(record: UnitRecord) -> (UnitId, ReleaseDigest, ReleaseDigest) {
        (record.unit, record.stable, record.candidate)
    }
}

/// A content that all clients had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRecord {
    pub push: u64,
    pub units: Vec<(UnitId, ReleaseDigest)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRecord {
    pub release: u64,
    pub until: PinEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinEnd {
    NextPush,
    Unpin,
    /// The time left.
    #[serde(rename = "left_ms", with = "millis")]
    Left(Duration),
}

/// The rejected pushes that clients may have a part of (WAV-10).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredRejected {
    /// The latest push.
    pub push: u64,
    pub nodes: Vec<String>,
    pub restated: Vec<StoredRestated>,
}

/// The names that a unit restates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredRestated {
    pub unit: UnitId,
    /// The latest push of the unit.
    pub push: u64,
    pub names: Vec<StoredNames>,
}

/// Names of a type, of one kind of collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredNames {
    pub type_url: String,
    #[serde(with = "StoredKind")]
    pub kind: CollectionKind,
    pub names: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CollectionKind", rename_all = "snake_case")]
enum StoredKind {
    Wildcard,
    Globs,
    Names,
}

/// A source, as in the names of the sources' files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredUnit {
    pub list: String,
    pub server: String,
    /// A hash of the node class, in hexadecimal digits.
    pub class: String,
}

/// A content that clients rejected by its name, or that an operator condemned (QUA-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredContent {
    pub type_url: String,
    pub name: String,
    /// The bits of the version.
    #[serde(with = "hex")]
    pub version: u128,
    /// The time for which the content is remembered (QUA-5). Files of earlier builds lack it.
    #[serde(default)]
    pub left_ms: Option<u64>,
}

/// A duration, written in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(#[serde(with = "millis")] pub Duration);

/// Durations in milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

impl Record {
    /// Whether the plan holds content back from a unit, or has the unit pinned.
    pub fn holds(&self, unit: &StoredUnit) -> bool {
        let number = self.units.iter().find(|(_, stored)| *stored == unit);
        number.is_some_and(|(number, _)| {
            let mut pushed = self.push.iter().flat_map(|push| &push.units);
            self.pin.is_some()
                || pushed.any(|part| part.unit == *number)
                || self.away_ms.contains_key(number)
                || self.barred.contains(number)
        })
    }

    /// The record with other numbers of units. Leaves out the units without a number.
    pub fn renumber(self, number: impl Fn(UnitId) -> Option<UnitId>) -> Record {
        let units = |units: Vec<UnitId>| units.into_iter().filter_map(&number).collect();
        let part = |part: UnitRecord| Some(UnitRecord { unit: number(part.unit)?, ..part });
        let release = |release: ReleaseRecord| {
            let units = release.units.into_iter();
            let units = units.filter_map(|(unit, content)| Some((number(unit)?, content)));
            ReleaseRecord { push: release.push, units: units.collect() }
        };
        let away = self.away_ms.into_iter();
        Record {
            push: self.push.map(|push| PushRecord {
                units: push.units.into_iter().filter_map(part).collect(),
                blamed: units(push.blamed),
                ..push
            }),
            releases: self.releases.into_iter().map(release).collect(),
            barred: units(self.barred),
            proved: units(self.proved),
            away_ms: away.filter_map(|(unit, age)| Some((number(unit)?, age))).collect(),
            ..self
        }
    }
}
