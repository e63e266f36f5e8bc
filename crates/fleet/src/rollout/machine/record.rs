//! The state of a plan that outlives the process (WAV-8).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rollout::push::{ReleaseDigest, UnitId};

/// A plan, as plain data: no times, as another process has another clock. `UnitId`s are those of the process
/// that wrote the record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub last_push: u64,
    pub push: Option<PushRecord>,
    /// The latest first, with the trusted contents. A release that was served again stands twice.
    pub releases: Vec<ReleaseRecord>,
    pub barred: Vec<UnitId>,
    /// Units whose stable content clients have accepted as a push.
    pub proved: Vec<UnitId>,
    /// The units that hold something back, each with the age of the oldest change.
    pub away: Vec<(UnitId, Duration)>,
    /// The time left.
    pub frozen: Option<Duration>,
    pub pin: Option<PinRecord>,
    /// The release that is the stable content. `None` in a record of an earlier version.
    pub served: Option<u64>,
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
    /// The record with other numbers of units. Leaves out the units without a number.
    pub fn renumber(self, number: impl Fn(UnitId) -> Option<UnitId>) -> Record {
        let units = |units: Vec<UnitId>| units.into_iter().filter_map(&number).collect();
        let part = |part: UnitRecord| Some(UnitRecord { unit: number(part.unit)?, ..part });
        let release = |release: ReleaseRecord| {
            let units = release.units.into_iter();
            let units = units.filter_map(|(unit, content)| Some((number(unit)?, content)));
            ReleaseRecord { push: release.push, units: units.collect() }
        };
        let away = self.away.into_iter();
        Record {
            push: self.push.map(|push| PushRecord {
                units: push.units.into_iter().filter_map(part).collect(),
                blamed: units(push.blamed),
                ..push
            }),
            releases: self.releases.into_iter().map(release).collect(),
            barred: units(self.barred),
            proved: units(self.proved),
            away: away.filter_map(|(unit, age)| Some((number(unit)?, age))).collect(),
            ..self
        }
    }
}
