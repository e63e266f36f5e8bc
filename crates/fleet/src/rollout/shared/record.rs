//! The entries of the ledger: the record of a plan, its past, and the tally of a replica (LDG-2). JSON, at
//! most 64 KiB each, without names, content, words of clients and ids of clients.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::condemned::CondemnedSet;
use super::contents::{ContentSet, UnitKey};
use crate::rollout::hex;
use sluice_admin_api::rollouts::Counts;

/// The version of all values. A value with a greater one is from a later build: nobody acts on it.
pub const FORMAT: u32 = 1;

/// The record of a plan, under `plan/NAME`. Wide because it is one value, which is compared and put as a
/// whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanRecord {
    pub version: u32,
    /// The latest push that any replica began, from 1.
    pub push: u64,
    pub state: SharedState,
    /// The admitted step; 0 before the first.
    pub step: u8,
    /// Buckets below are admitted. Only grows within a push.
    pub threshold: u16,
    /// Grows while the push gathers. At each step, only what the replicas that spoke for the step have stays.
    pub changed: ContentSet,
    /// The rules of the plan that began the push, as a hash: a replica with other rules takes no part.
    #[serde(with = "hex")]
    pub rules: u128,
    /// The push begins by an operator's word with this step, whatever guards say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted: Option<u8>,
    /// The halted push that the operator meant. Earlier builds do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted_of: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<SharedHalt>,
    /// The orders of operators, until operators say otherwise.
    #[serde(default)]
    pub orders: Orders,
    /// Fields of later builds are kept.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedState {
    /// Replicas may still add changes, and nobody is admitted.
    Gathering,
    /// The step admits clients.
    Moving,
    Halted,
    /// All clients everywhere have the push, or nobody has it any more.
    #[default]
    Over,
}

impl SharedState {
    pub fn name(self) -> &'static str {
        match self {
            SharedState::Gathering => "gathering",
            SharedState::Moving => "moving",
            SharedState::Halted => "halted",
            SharedState::Over => "over",
        }
    }
}

impl PlanRecord {
    /// The units that the halt blames; empty: all.
    pub(in crate::rollout) fn blamed(&self) -> &[UnitKey] {
        self.halt.as_ref().map_or(&[], |halt| &halt.blamed)
    }
}

/// The first halt of a push.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedHalt {
    pub replica: Box<str>,
    pub why: Box<str>,
    /// Empty: all units of the push.
    pub blamed: Vec<UnitKey>,
    /// Fields of later builds are kept, here and below.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// The orders of operators, at all replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Orders {
    /// The push whose clocks stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<u64>,
    /// Microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen_until: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<SharedPin>,
    /// The units of the latest halted push that wait although others go on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub barred: Vec<UnitKey>,
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedPin {
    pub release: u64,
    pub until: SharedPinEnd,
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedPinEnd {
    NextPush,
    Unpin,
    /// Microseconds since 1970.
    Time(u64),
}

/// The content of a push of the past, under `done/PLAN/PUSH` or `halted/PLAN/PUSH`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastPush {
    pub version: u32,
    pub changed: ContentSet,
    /// The units that the halt blames; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blamed: Vec<UnitKey>,
    /// By another replica than one that halted the push: it knows the changes of all replicas together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_assumed: bool,
}

/// The contents that replicas condemned, under `condemned/PLAN` (QUA-2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CondemnedRecord {
    pub version: u32,
    pub contents: CondemnedSet,
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// The clients of one replica, under `tally/PLAN/REPLICA` and its lease. Wide because it is one value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaTally {
    pub version: u32,
    /// A number of the process: two replicas of one name have two.
    pub process: u64,
    /// The push, step and threshold of the record that the counts are of.
    pub push: u64,
    pub step: u8,
    pub threshold: u16,
    /// The replica has a part of the push.
    pub takes_part: bool,
    /// The part: [`ContentSet::places`] of the record's changes.
    pub part: String,
    pub admitted: Counts,
    pub control: SharedControl,
    pub voices: u64,
    pub smallest: Vec<u16>,
    pub labelled: Vec<u64>,
    /// The replica acts otherwise than the record, by orders for it alone (LDG-7). Earlier builds do not say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_diverged: bool,
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

impl ReplicaTally {
    /// Whether the counts are of the record's push, step and threshold.
    pub(in crate::rollout) fn is_of(&self, record: &PlanRecord) -> bool {
        (self.push, self.step, self.threshold) == (record.push, record.step, record.threshold)
    }
}

/// The control group of lost streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedControl {
    pub clients: u64,
    pub lost: u64,
}

/// Reads a value of the ledger.
///
/// # Errors
/// The value is of a later build, or no such value.
pub fn read<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let head: Head = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if head.version > FORMAT {
        return Err(format!("version {}, and this build reads up to {FORMAT}", head.version));
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

pub fn write<T: Serialize>(value: &T) -> Vec<u8> {
    // Plain data: no map has a key that JSON lacks.
    serde_json::to_vec(value).unwrap_or_default()
}
