//! `/config`, `/reload`, `/rollback`: the configuration in force, and the way to another one.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::is_zero;

/// The answer of `/config`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigStatus {
    pub generation: u64,
    /// Whether the generation is the one in force.
    pub in_force: bool,
    pub hash: String,
    /// The beginning of the generation.
    pub since: String,
    pub file: Option<String>,
    pub last_reload: Option<LastReload>,
    /// The generations to go back to, the latest last.
    pub generations: Vec<Generation>,
    /// The keys that only a new process takes.
    pub needs_process: Vec<String>,
    /// The generation to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<u64>,
    /// The keys with another value than in `against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<KeyChange>>,
    /// The document without credentials.
    pub config: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Generation {
    pub generation: u64,
    pub hash: String,
    pub since: String,
}

/// The result of the last reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastReload {
    pub at: String,
    pub trigger: String,
    pub result: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// The command that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
}

/// A key with another value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyChange {
    pub key: String,
    pub from: Option<String>,
    pub to: Option<String>,
    pub effect: String,
}

/// The answer of `/reload` and `/rollback`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// `changed`, `unchanged`, `invalid`, `needs_process`, `held`, `failed` or `ending`.
    pub result: String,
    #[serde(default)]
    pub dry_run: bool,
    #[serde(default)]
    pub generation: u64,
    #[serde(default)]
    pub changes: Vec<KeyChange>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changes_left_out: usize,
    #[serde(default)]
    pub listeners: ListenerChanges,
    pub moves: Option<Moves>,
    #[serde(default)]
    pub warnings: Vec<String>,
    #[serde(default)]
    pub faults: Vec<String>,
    /// The command that helps.
    pub say: Option<String>,
}

/// Listeners by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerChanges {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub moved: Vec<String>,
}

/// The effect on clients and control planes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moves {
    pub streams: usize,
    pub streams_moved: usize,
    /// The streams with a new source that does not know everything yet: more names may go.
    pub streams_undecided: usize,
    pub sources: usize,
    pub sources_opened: usize,
    pub sources_closed: usize,
    pub upstream_streams_opened: usize,
    pub upstream_streams_closed: usize,
    pub names_gone: usize,
    /// The first of the names that would go, each behind its type.
    pub names: Vec<String>,
}
