//! `/events`: what happened.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::lists::Listed;
use crate::{Text, is_zero};

/// The answer of `/events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventList<'a> {
    pub events: Vec<Event<'a>>,
    pub count: usize,
    /// Events after `after` that the ring has dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<EventGap>,
    /// The value of `after` for the next page.
    pub next: Option<u64>,
}

/// Numbers without events. No end: the relay has restarted, and its numbers begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventGap {
    pub from: u64,
    pub to: Option<u64>,
}

/// An event. Wide because all kinds share one flat shape: most events have few of the optional keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event<'a> {
    pub number: u64,
    pub at: String,
    pub age_seconds: f64,
    pub kind: Text<'a>,
    pub severity: Text<'a>,
    pub count: u64,
    /// Further occurrences of the kind, with other causes.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Text<'a>>,
}

impl Listed for Event<'_> {
    const KEY: &'static str = "events";
}
