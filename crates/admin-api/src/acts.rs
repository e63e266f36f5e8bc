//! The answers to requests with an effect, besides reloads and the commands to plans.

use serde::{Deserialize, Serialize};

use crate::is_zero;

/// The answer of `/drain`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainStatus {
    pub draining: bool,
    /// `serving`, `announced`, `leaving` or `empty`.
    pub state: String,
    pub connections: u64,
    pub streams: u64,
    /// Streams that have ended since the begin of the drain.
    pub left: u64,
    /// Connections that were cut at the end of the drain.
    pub cut: u64,
    /// The time until the last stream has ended.
    pub seconds_left: f64,
    /// The drain was only asked about.
    #[serde(skip_serializing_if = "is_zero")]
    pub dry_run: bool,
    /// The window is shorter than other relays need for the first answers of these clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// The answer of `/upgrade`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Upgraded {
    pub pid: u32,
    pub version: String,
    pub binary: String,
    /// The time from the start of the new process until it could serve.
    pub seconds: f64,
    /// Sources whose state was passed on.
    pub sources: u64,
    pub predecessor: PredecessorStatus,
    /// The upgrade was only tried.
    #[serde(skip_serializing_if = "is_zero")]
    pub dry_run: bool,
}

/// A process whose clients go over to its successor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PredecessorStatus {
    pub pid: u32,
    pub version: String,
    pub streams: u64,
    pub connections: u64,
    pub seconds_left: f64,
}

/// The answer of `/log`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogDirectives {
    /// In force.
    pub level: String,
    /// In the configuration.
    pub configured: String,
    /// The time until `configured` is in force again.
    pub seconds_left: Option<f64>,
}

/// The answer of `/confirm_deletions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfirmedDeletions {
    pub confirmed: Vec<ConfirmedSource>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfirmedSource {
    pub server: String,
    pub list: String,
    pub class: String,
    /// The number of resources that clients lose.
    pub removed: usize,
}

/// The answer of `/clients/{id}/end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedStream {
    pub ended: u64,
}
