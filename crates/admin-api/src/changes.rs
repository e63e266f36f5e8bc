//! `/changes` and below: the published changes, and their way to the clients.

use serde::{Deserialize, Serialize};

use crate::Text;
use crate::clients::ClientRef;
use crate::lists::Listed;

/// The answer of `/changes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeList<'a> {
    pub changes: Vec<Change<'a>>,
    pub count: usize,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A published change. Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change<'a> {
    pub id: String,
    #[serde(default)]
    pub source: u64,
    #[serde(default)]
    pub server: Text<'a>,
    #[serde(default)]
    pub list: Text<'a>,
    #[serde(default)]
    pub class: Text<'a>,
    #[serde(default)]
    pub r#type: Text<'a>,
    /// Absent for Secrets: a version is a hash of the content.
    #[serde(flatten)]
    pub versions: Option<ChangeVersions<'a>>,
    #[serde(default)]
    pub received_at: String,
    #[serde(default)]
    pub age_seconds: f64,
    #[serde(flatten)]
    pub names: ChangedNames<'a>,
    #[serde(default)]
    pub bytes: usize,
    #[serde(flatten)]
    pub counts: ChangeCounts,
    pub p50_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
    pub last_seconds: Option<f64>,
    #[serde(default)]
    pub rejections: Vec<ChangeRejection<'a>>,
}

impl Listed for Change<'_> {
    const KEY: &'static str = "changes";
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeVersions<'a> {
    pub version: String,
    pub upstream_version: Option<Text<'a>>,
}

/// The names that changed, bounded, and their numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangedNames<'a> {
    pub added: Vec<Text<'a>>,
    pub changed: Vec<Text<'a>>,
    pub removed: Vec<Text<'a>>,
    pub added_count: usize,
    pub changed_count: usize,
    pub removed_count: usize,
}

/// The clients of a change, by their answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeCounts {
    pub wanted: u32,
    pub acked: u32,
    pub rejected: u32,
    pub waiting: u32,
    /// Clients that got a later change instead.
    pub superseded: u32,
}

/// The clients that rejected a change with texts that are alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeRejection<'a> {
    pub text: Text<'a>,
    pub count: u32,
    pub clients: Vec<ClientRef<'a>>,
}
