//! The answers about one client or one resource, name by name: `/clients/{id}/diff`, `/clients/{id}/explain`,
//! `/who`, `/versions`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clients::ClientRef;

/// The answer of `/clients/{id}/diff`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientDifference {
    pub client: u64,
    pub to: String,
    /// The direction, in words.
    pub reads: String,
    /// Whether some type differs.
    #[serde(default = "differs")]
    pub differs: bool,
    pub types: Vec<TypeDifference>,
}

/// A relay without this key has something to look at.
fn differs() -> bool {
    true
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeDifference {
    pub r#type: String,
    pub state: String,
    pub why: Option<String>,
    pub seconds: f64,
    pub added: Vec<String>,
    pub changed: Vec<ChangedName>,
    pub removed: Vec<String>,
    /// Names with a removal on hold.
    pub withheld: Vec<String>,
    pub added_count: usize,
    pub changed_count: usize,
    pub removed_count: usize,
    pub withheld_count: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangedName {
    pub name: String,
    /// Absent for Secrets, as a version is a hash of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub should: Option<String>,
    /// Absent if contents were not asked for.
    #[serde(flatten)]
    pub content: Option<ContentDifference>,
}

/// The difference of the contents of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentDifference {
    /// A JSON patch.
    Patch(Value),
    /// A unified diff of YAML.
    Text(String),
    /// The reason in words.
    NoContent(String),
}

/// The answer of `/clients/{id}/explain`: the links from the client to a name, each with a text for people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    pub class: ExplainedClass,
    pub client: ExplainedClient,
    pub list: ExplainedList,
    pub name: Option<ExplainedName>,
    pub source: Option<ExplainedSource>,
    pub state: ExplainedState,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExplainedClient {
    pub cluster: String,
    pub id: u64,
    pub identity: String,
    pub listener: String,
    pub node: String,
    pub service: String,
    pub text: String,
    pub variant: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExplainedClass {
    /// The digest; null before the first source.
    pub class: Option<String>,
    pub rule: Option<String>,
    pub generation: u64,
    pub text: String,
    /// Absent if the server gives all clients the same answers.
    #[serde(flatten)]
    pub decision: Option<ClassDecision>,
}

/// The rule that decided about a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassDecision {
    /// The rule of the file, in a sentence.
    pub rule_text: String,
    #[serde(default)]
    pub r#match: String,
    #[serde(default)]
    pub split_by: String,
    /// File, line and column.
    pub place: Option<String>,
    pub written: Option<Value>,
    pub fields: Option<Vec<(String, String)>>,
    /// The earlier rule with the fewest failed conditions.
    pub nearest: Option<NearestRule>,
    #[serde(default)]
    pub not_reached: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NearestRule {
    pub field: String,
    pub found: Option<String>,
    pub place: Option<String>,
    pub rule: String,
    pub wanted: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExplainedList {
    pub key: String,
    pub preferred: bool,
    pub server: Option<String>,
    pub servers: Vec<String>,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExplainedSource {
    pub id: u64,
    pub last_error: Option<String>,
    pub server: String,
    pub since: String,
    pub stale_seconds: Option<f64>,
    pub state: String,
    pub state_seconds: f64,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExplainedName {
    pub name: String,
    pub subscribed: bool,
    pub collection: Option<String>,
    pub text: String,
    /// Absent for Secrets.
    #[serde(flatten)]
    pub facts: Option<NameFacts>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NameFacts {
    /// Null for a name without a request of the client.
    #[serde(deserialize_with = "crate::nullable")]
    pub state: Option<String>,
    pub entry: Option<String>,
    pub cause: Option<String>,
    pub refused: Option<String>,
    pub error: Option<String>,
    pub received_at: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExplainedState {
    pub text: String,
    /// Absent if the client does not ask for the type or the name.
    #[serde(flatten)]
    pub facts: Option<StateFacts>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateFacts {
    pub state: String,
    pub why: Option<String>,
    #[serde(default)]
    pub since: String,
    #[serde(default)]
    pub state_seconds: f64,
    pub has: Option<String>,
    pub should: Option<String>,
    pub nonce: Option<String>,
}

/// The answer of `/classes/explain`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExplainedNode {
    pub node: String,
    pub types: Vec<ExplainedNodeType>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExplainedNodeType {
    #[serde(flatten)]
    pub class: ExplainedClass,
    pub r#type: String,
    /// The style of names: `old` or `new`.
    pub names: String,
    pub clients: usize,
    pub sources: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The answer of `/who`: the clients of a resource, by possession.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Who {
    pub r#type: String,
    pub name: String,
    /// The requested version, or the due version; null if clients are due several.
    pub version: Option<String>,
    pub has: ClientGroup,
    pub lacks: ClientGroup,
    pub rejected: ClientGroup,
    pub not_subscribed: ClientGroup,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientGroup {
    pub count: usize,
    pub clients: Vec<ClientRef<'static>>,
    /// The value of `after` for the next page of the group.
    pub next: Option<String>,
}

/// The answer of `/versions` with a name: the versions of a resource at its clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldVersions {
    pub r#type: String,
    pub name: String,
    /// Clients with a request for the name.
    pub asked_by: usize,
    /// Clients with a request for the name, and without a resource.
    pub without: usize,
    /// Clients with a resource from another server: the relay does not know the version.
    pub unknown: usize,
    pub versions: Vec<VersionTally>,
    /// Versions without room.
    pub more: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VersionTally {
    pub version: String,
    /// `live`: a source has the version now. `candidate`: a push under way brings the version. `stable`:
    /// clients outside of the push's steps have the version. `condemned`: no push of a plan may bring the
    /// version.
    pub is: Vec<String>,
    /// The servers with this version now.
    pub servers: Vec<String>,
    /// The time at which the relay got the version; null for a version neither newest nor in a release of a
    /// plan.
    pub since: Option<String>,
    /// Clients whose latest accepted version is this.
    pub held_by: usize,
    /// Clients with a message of the version, and no answer yet.
    pub pending: usize,
    /// Clients that should have the version, and have no message of the version yet.
    pub unsent: usize,
    /// Clients that rejected a response with the version.
    pub rejected: usize,
    /// Whether the version may be the reason for a rejection (TRU-6).
    pub suspect: bool,
    pub user_agents: BTreeMap<String, usize>,
    pub rejected_by: Vec<VersionRejection>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VersionRejection {
    pub id: u64,
    pub node: String,
    pub user_agent: String,
    pub at: Option<String>,
    pub message: String,
    /// Whether the message names the resource.
    pub names_it: bool,
}

/// The answer of `/versions` without a name: the clients of a type by the answer to the newest content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeVerdicts {
    pub r#type: String,
    /// The sources of several clients, with most rejections first.
    pub units: Vec<UnitVerdicts>,
    /// Units without room.
    pub more: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitVerdicts {
    pub source: u64,
    pub server: String,
    pub list: String,
    pub class: String,
    /// The streams with requests for the type: the sum of the next five.
    pub clients: u64,
    pub accepted: u64,
    /// Not sent yet, or sent less than 60 s ago.
    pub pending: u64,
    pub rejected: u64,
    /// Sent, and unanswered for 60 s.
    pub silent: u64,
    /// There is nothing for the client.
    pub unaffected: u64,
    /// Streams that ended within 60 s of a response of the type, in the last ten minutes, without a word.
    pub lost: u64,
}
