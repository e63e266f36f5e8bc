//! `/resources` and below: the cached resources.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lists::Listed;
use crate::{Text, is_zero};

/// A resource, or a name without a resource, of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resource<'a> {
    pub r#type: Text<'a>,
    pub name: Text<'a>,
    /// Absent for Secrets.
    #[serde(flatten)]
    pub content: Option<ResourceContent<'a>>,
}

impl Listed for Resource<'_> {
    const KEY: &'static str = "resources";
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceContent<'a> {
    #[serde(default)]
    pub collection: Text<'a>,
    pub state: Text<'a>,
    pub version: Option<String>,
    #[serde(default)]
    pub bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<f64>,
    #[serde(default)]
    pub server: Text<'a>,
    #[serde(default)]
    pub class: Text<'a>,
    /// Clients that rejected their last response of the type. The resource itself may be correct.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rejecting_clients: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Text<'a>>,
}

/// The answer of `/resources/{type}/{name}`: the copies of all sources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceCopies {
    pub r#type: String,
    pub name: String,
    /// Whether contents are shown: `redacted` or `off`.
    pub content: String,
    pub copies: Vec<ResourceCopy>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceCopy {
    pub source: u64,
    pub list: String,
    pub server: String,
    pub class: String,
    pub collection: String,
    /// Absent for Secrets.
    #[serde(flatten)]
    pub facts: Option<CopyFacts>,
    /// The content without its secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<Value>,
    /// The encoded size of each field, with `format=sizes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyFacts {
    pub state: String,
    pub version: Option<String>,
    #[serde(default)]
    pub bytes: usize,
    pub received_at: Option<String>,
    pub received_seconds: Option<f64>,
    pub error: Option<String>,
}

/// A resource of the push under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CandidateResource<'a> {
    pub class: Text<'a>,
    pub name: Text<'a>,
    /// The content without its secrets; null where contents are not shown.
    pub resource: Option<Value>,
    pub server: Text<'a>,
    pub source: u64,
    pub r#type: Text<'a>,
    pub version: Option<String>,
}

impl Listed for CandidateResource<'_> {
    const KEY: &'static str = "candidate";
}
