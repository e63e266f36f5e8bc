//! `/sources`, `/classes`, `/refused`: the attachments to control planes, and the node classes that they
//! serve.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::lists::Listed;
use crate::proofs::ClassProof;
use crate::{Text, is_zero};

/// An upstream attachment. Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source<'a> {
    pub id: u64,
    pub server: Text<'a>,
    pub list: Text<'a>,
    /// The single stream of the source.
    pub stream: Option<u64>,
    pub class: Text<'a>,
    pub class_fields: Cow<'a, [(String, String)]>,
    pub upstream_id: Text<'a>,
    pub state: Text<'a>,
    pub state_seconds: f64,
    pub failures: u32,
    pub backoff_seconds: Option<f64>,
    pub last_error: Option<String>,
    pub answered: bool,
    pub stale_seconds: Option<f64>,
    pub restored: bool,
    pub variant: Option<Text<'a>>,
    /// The server is another sluice, which marks what is whole.
    pub marks: bool,
    /// The relay asks in the place of a client, to compare the answers, and serves nobody from the source.
    #[serde(skip_serializing_if = "is_zero")]
    pub shadow: bool,
    pub types: Vec<SourceType<'a>>,
}

impl Listed for Source<'_> {
    const KEY: &'static str = "sources";
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceType<'a> {
    pub r#type: Text<'a>,
    pub names: usize,
    pub wildcard: bool,
    pub present: usize,
    pub absent: usize,
    pub unknown: usize,
    /// The part of `present` that the server has deleted (FU18).
    #[serde(skip_serializing_if = "is_zero")]
    pub held_back: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedType>,
    /// Names absent from every answer of the server (ADR 54).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_names: Option<SomeNames<'a>>,
    /// Resources that `limits.source_bytes` keeps out (ADR 68).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_room: Option<SomeNames<'a>>,
    /// Where each type has a stream or a poll of its own, and the stream of this type is lost (ADR 18).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostType>,
    /// Absent for Secrets.
    #[serde(flatten)]
    pub content: Option<SourceContent>,
}

/// A type that the server does not serve (RLY-25), or ends streams for (ADR 15).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedType {
    pub how: String,
    pub seconds: f64,
    /// The time until the next request; null while a request is under way.
    pub next_try_seconds: Option<f64>,
    pub error: String,
}

/// The first of some names, and their number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SomeNames<'a> {
    pub seconds: f64,
    pub count: usize,
    pub first: Vec<Text<'a>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LostType {
    pub seconds: f64,
    pub error: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceContent {
    pub bytes: usize,
    pub version: Option<String>,
}

/// A node class in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeClass {
    pub class: String,
    /// The deciding rules of `node_classes`.
    pub rules: BTreeSet<String>,
    /// The splitting parts of the node, without secrets.
    pub fields: Vec<(String, String)>,
    pub upstream_id: String,
    /// The number of streams with a type of the class.
    pub clients: usize,
    pub types: BTreeSet<String>,
    pub sources: Vec<u64>,
    pub servers: BTreeSet<String>,
    /// Other answers for other members, the latest of each source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<ClassEvidence>,
    /// Null: the class is not proved, because there is no `proof` for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<ClassProof>,
}

impl Listed for NodeClass {
    const KEY: &'static str = "classes";
}

/// Other content for another member of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassEvidence {
    pub at: String,
    /// The names with other content, of which `names` has the first.
    pub count: usize,
    /// The fields of the node in which the two members differ, by path.
    pub differ: Vec<String>,
    pub members: Vec<String>,
    pub names: Vec<String>,
    pub r#type: String,
}

/// A client for whose node class there was no room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedClient<'a> {
    /// The key of the exceeded limit.
    pub limit: Text<'a>,
    pub node: Text<'a>,
    pub cluster: Text<'a>,
    pub r#type: Text<'a>,
    pub stream: u64,
    pub peer: Option<SocketAddr>,
    pub count: u64,
    pub seconds: f64,
}

impl Listed for RefusedClient<'_> {
    const KEY: &'static str = "refused";
}
