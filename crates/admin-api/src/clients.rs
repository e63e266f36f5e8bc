//! `/clients`: the downstream streams.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::lists::Listed;
use crate::sources::RefusedType;
use crate::{Text, is_zero};

/// A downstream stream. `N`: the names of each type, as a number or as a page. Wide because the fields are
/// the flat keys of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "N: Default + Deserialize<'de>"))]
pub struct Client<'a, N = NameCount> {
    pub id: u64,
    #[serde(default)]
    pub node: Text<'a>,
    #[serde(default)]
    pub cluster: Text<'a>,
    #[serde(default)]
    pub listener: Text<'a>,
    /// Null on a unix socket.
    pub peer: Option<SocketAddr>,
    /// The proved identity: a SPIFFE ID, a DNS name, the user of a unix socket, or `anonymous`.
    #[serde(default)]
    pub identity: String,
    /// The relays on the way, the nearest to the client first; absent for other clients (TIR-2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relays: Option<Vec<Text<'a>>>,
    /// `ADS`, or the service of one type.
    #[serde(default)]
    pub service: String,
    #[serde(default)]
    pub variant: Text<'a>,
    #[serde(default)]
    pub opened_at: String,
    #[serde(default)]
    pub open_seconds: f64,
    /// The client's places in plans; absent without a plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seats: Vec<PlanSeat<'a>>,
    #[serde(default)]
    pub types: Vec<ClientType<'a, N>>,
}

impl Listed for Client<'_> {
    const KEY: &'static str = "clients";
}

/// The answer of `/clients/{id}` with `names=1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientWithNames<'a> {
    #[serde(flatten)]
    pub client: Client<'a, NamePage<'a>>,
    /// The value of `after` for the next page of names.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanSeat<'a> {
    pub plan: Text<'a>,
    /// Steps of more than this percentage admit the client (WAV-13).
    pub percent: f64,
    /// `candidate`, `stable`, or null while the plan holds nothing back.
    pub lane: Option<Text<'a>>,
    /// The push of the candidate.
    pub push: Option<u64>,
}

/// A type that a stream asks for. Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "N: Default + Deserialize<'de>"))]
pub struct ClientType<'a, N = NameCount> {
    pub r#type: Text<'a>,
    pub state: Text<'a>,
    /// The reason for a state other than SYNCED.
    pub why: Option<Text<'a>>,
    pub since: String,
    pub state_seconds: f64,
    /// There is no room for the client's node class.
    #[serde(skip_serializing_if = "is_zero")]
    pub refused: bool,
    /// The server does not serve the type, or ends streams for the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_refuses: Option<RefusedType>,
    pub restored: bool,
    pub server: Option<Text<'a>>,
    pub class: Option<Text<'a>>,
    /// The deciding rules of `node_classes`.
    pub rules: Vec<String>,
    /// The type is served by another server than the preferred one.
    pub fallback: bool,
    /// How long the client's content has been unconfirmed, because the server is unreachable.
    pub stale_seconds: Option<f64>,
    /// How long the server has been unreachable; `state` is about the client.
    pub server_lost_seconds: Option<f64>,
    pub wildcard: bool,
    #[serde(flatten)]
    pub names: N,
    pub nonce: Option<Text<'a>>,
    pub unacked_seconds: Option<f64>,
    /// The latest change of the content that the client asks for.
    pub change: Option<String>,
    /// Present while updates of the type wait for a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<NameWait<'a>>,
    /// Present while the client is not sent a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldChange<'a>>,
    /// Absent for Secrets: a version is a hash of the content, and a NACK may quote the content.
    #[serde(flatten)]
    pub content: Option<ClientContent<'a>>,
}

/// The subscribed names of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NameCount {
    pub names: usize,
}

/// A page of the names of a type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamePage<'a> {
    pub names: Vec<ClientName<'a>>,
    /// All subscribed names.
    pub names_count: usize,
}

/// A name whose existence is not known yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NameWait<'a> {
    pub name: Text<'a>,
    pub server: Option<Text<'a>>,
    pub seconds: f64,
}

/// A pending change (ADM-7).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldChange<'a> {
    pub why: Text<'a>,
    pub what: Option<Text<'a>>,
    pub seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientContent<'a> {
    /// The version of the accepted content.
    #[serde(deserialize_with = "crate::nullable")]
    pub has: Option<String>,
    /// The version of the due content.
    pub should: Option<String>,
    pub version_sent: Option<String>,
    pub version_acked: Option<String>,
    pub nack: Option<Nack<'a>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nack<'a> {
    pub version: Option<String>,
    pub detail: Text<'a>,
    /// The resources with a name in the text.
    pub names: Vec<Text<'a>>,
    pub at: String,
    pub seconds: f64,
}

/// One name of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientName<'a> {
    pub name: String,
    /// Absent for Secrets, as the version is.
    #[serde(flatten)]
    pub content: Option<NameContent<'a>>,
    pub state: Text<'a>,
    pub why: Option<Text<'a>>,
    /// The reason of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NameContent<'a> {
    #[serde(deserialize_with = "crate::nullable")]
    pub has: Option<String>,
    pub should: Option<String>,
    /// The text of the client's NACK, if the text names the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nack: Option<Text<'a>>,
}

/// A client in an answer about something else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientRef<'a> {
    pub id: u64,
    pub node: Text<'a>,
}
