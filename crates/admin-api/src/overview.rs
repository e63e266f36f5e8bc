//! `/overview` and `/ready`: the whole relay.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::acts::PredecessorStatus;
use crate::is_zero;
use crate::rollouts::Pinned;

/// The answer of `/overview`. Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overview {
    /// The version of the shape.
    pub api: u32,
    pub version: String,
    pub node: String,
    pub started: String,
    pub uptime_seconds: f64,
    pub ready: bool,
    pub draining: bool,
    pub config: ConfigInForce,
    pub clients: ClientCensus,
    pub types: Vec<TypeOverview>,
    pub upstreams: Vec<UpstreamOverview>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierAge>,
    pub delivery: Option<LatestDelivery>,
    pub attention: Vec<Attention>,
    /// Types, upstreams, tiers and entries of `attention` without room.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// The process before an upgrade.
    pub predecessor: Option<PredecessorStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigInForce {
    pub generation: u64,
    pub hash: String,
    pub loaded: String,
    pub last_reload: Option<ReloadOutcome>,
}

/// The result of the last reload; `/config` has its faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadOutcome {
    pub at: String,
    pub trigger: String,
    pub result: String,
}

/// Streams; each counts for exactly a single state of the first five.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientCensus {
    pub streams: usize,
    pub synced: usize,
    pub unacked: usize,
    pub held: usize,
    pub rejected: usize,
    pub unknown: usize,
    pub silent: usize,
    pub on_fallback: usize,
    pub stale: usize,
    pub refused: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeOverview {
    pub r#type: String,
    pub streams: usize,
    pub synced: usize,
    pub version: Option<String>,
}

/// All sources of a server in a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpstreamOverview {
    pub server: String,
    pub list: String,
    pub state: String,
    pub sources: usize,
    pub stale_seconds: Option<f64>,
    pub last_error: Option<String>,
}

/// A way to a control plane through other relays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierAge {
    /// `root-1 via cp:15010`.
    pub path: String,
    /// How long ago the control plane last confirmed what the relay serves; null: not since the relay began.
    pub age_seconds: Option<f64>,
}

/// The latest change on its way to the clients. Durations are in seconds, from the receipt to the ACK.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatestDelivery {
    pub last_change: String,
    pub r#type: String,
    pub age_seconds: f64,
    /// The time from the receipt in which the counted answers came: until the slowest one, or until now while
    /// clients owe theirs.
    pub window_seconds: f64,
    pub acked: u32,
    pub rejected: u32,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// A reason for somebody's attention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attention {
    pub what: String,
    /// The path with more.
    pub see: String,
    /// The command with more.
    pub say: String,
}

/// The answer of `/ready`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadyReport {
    pub ready: bool,
    pub state: String,
    /// A certificate of the relay has expired.
    pub certificate_expired: bool,
    pub upstreams: BTreeMap<String, UpstreamSummary>,
    /// The ways through other relays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierAge>,
    /// Plans that hold something back, or let something pass without a judgement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<PlanStanding>,
    /// Servers that tell some clients otherwise than their class (PRF-26).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<ProofStanding>,
}

/// A server that tells some clients otherwise than their class, for the attention of an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProofStanding {
    pub server: String,
    pub list: String,
    /// Classes with clients that are told otherwise, and those of them whose split has to wait.
    pub differ: usize,
    pub split_waits: usize,
}

/// A plan that enforces, or that others' freeze does not hold, for the attention of an operator (GRD-2,
/// WAV-19). Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanStanding {
    pub plan: String,
    pub state: String,
    pub push: Option<u64>,
    pub behind_seconds: f64,
    pub why: Option<String>,
    pub pinned: Option<Pinned>,
    pub frozen_until: Option<String>,
    pub barred: usize,
    pub full: bool,
    pub unproved: usize,
    /// Condemned contents that all clients of a unit are served.
    pub condemned_served: usize,
    /// Units without the content of the pinned release.
    pub diverged: usize,
    /// The relay is not ready because of the plan: a push is under way, and no content from before is here
    /// (LDG-3).
    #[serde(skip_serializing_if = "is_zero")]
    pub joining: bool,
    /// Clients of units without content from before a push; missing without such clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newcomers: Option<String>,
}

/// A summary of all sources of one server: the counts of their states, the longest staleness with its reason,
/// and the number of served resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpstreamSummary {
    /// The keys of the server lists with the server.
    pub lists: BTreeSet<String>,
    pub connecting: usize,
    pub connected: usize,
    pub backoff: usize,
    /// Sources with an open stream whose server has never answered.
    pub unanswered: usize,
    /// Sources whose server ends each stream.
    pub ends_streams: usize,
    pub stale: usize,
    /// The stale sources that serve resources from before a restart.
    pub restored: usize,
    pub stale_seconds: Option<f64>,
    pub last_error: Option<String>,
    /// Resources in the caches of all sources.
    pub present: usize,
    /// The present resources that the server has deleted and that are served on for a while.
    pub held_back: usize,
}
