//! The proof of the grouping: `/classes`, `/classes/divergences`, `/classes/{class}/samples`,
//! `/classes/prove`, `/classes/splits`.

use serde::{Deserialize, Serialize};

use crate::lists::Listed;

/// The proof of a class. Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassProof {
    /// `proved`, `unproved`, `differs`, `split_waits`, `restless` or `impossible`.
    pub state: String,
    /// The proof in words: its numbers, and its limits.
    pub words: String,
    /// Clients, those that are never asked about, and different nodes apart from unique fields.
    pub members: usize,
    pub not_sampled: usize,
    pub fingerprints: usize,
    /// Equal samples; of so many clients, and of so many fingerprints.
    pub samples: usize,
    pub sampled_members: usize,
    pub sampled_fingerprints: usize,
    /// Changes of the content over which a sample stayed equal.
    pub pushes_seen: u64,
    /// Clients that are told otherwise by the server.
    pub differs: usize,
    /// At most this share of the clients differs, with 95 % certainty.
    pub at_most_percent: Option<f64>,
    pub since: Option<String>,
    /// Values of fields that no open stream of the proof holds, as `path=value`; the first, and their number.
    pub uncovered: Vec<String>,
    pub uncovered_count: usize,
    /// Clients whose streams stay open.
    pub witnesses: usize,
    /// Names that cannot be proved, because the server answers the same question in two ways.
    pub restless: Vec<RestlessNames>,
    /// Fields that `proof.ignore` names and that differ, as `type path`.
    pub ignored: Vec<String>,
    /// Why the server cannot be asked.
    pub impossible: Option<String>,
    /// The latest comparison of two replicas of the server, by the node of the class.
    pub replicas: Option<ComparedReplicas>,
    /// Why a split, or a refusal, waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_waits: Option<String>,
    /// The class of which this class was split off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_from: Option<String>,
    /// Changes since then over which both had the same content: after two the proof undoes its split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equal_over: Option<u32>,
    /// Why nobody is asked now.
    pub gives_way: Option<String>,
    /// Why no class is split or refused now.
    pub breaker: Option<OpenBreaker>,
    /// The time after a push in which a rule by a covered value is noticed, and after which every client has
    /// had its turn.
    pub covered_within_seconds: f64,
    pub round_seconds: f64,
}

/// A server that tells too many classes otherwise at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenBreaker {
    pub reason: String,
    pub ends_in_seconds: f64,
}

/// Two replicas of a server, asked with the same node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComparedReplicas {
    pub at: String,
    pub agree: bool,
    /// The replica that answers the class, and the other one: addresses, and what they call themselves.
    pub addresses: Vec<Option<String>>,
    pub control_planes: Vec<Option<String>>,
    /// The type and the first names about which the two disagree. Names of Secrets are not told.
    pub r#type: Option<String>,
    pub names: Vec<String>,
}

/// Names of a type that cannot be proved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestlessNames {
    pub r#type: String,
    pub count: usize,
    /// The first names. Empty for Secrets.
    pub names: Vec<String>,
}

/// A resource of which the server tells some client of a class otherwise than the class. Wide because the
/// fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Divergence {
    pub r#type: String,
    /// Empty for Secrets.
    pub name: String,
    pub class: String,
    pub rule: String,
    pub server: String,
    /// The fields of the resource that differ, without values. Empty: only bytes are known to differ.
    pub paths: Vec<String>,
    /// The fields of the node that explain it: alternatives, each a field or several, as `a and b`.
    pub explained_by: Vec<String>,
    /// The values of the first explanation.
    pub suspect_values: Vec<String>,
    /// Clients of the class that share these values.
    pub clients: usize,
    /// The names of the type that differ, of so many that were compared.
    pub count: usize,
    pub compared: usize,
    /// A client that is told otherwise, and the one that the server sees for the class.
    pub member: String,
    pub representative: String,
    /// The fields in which the nodes of these two differ, without values: at most 100.
    pub differing_fields: Vec<String>,
    /// The versions of the resource that the class and the client have; null: absent.
    pub class_version: Option<String>,
    pub member_version: Option<String>,
    /// Whether the class and the client have the resource.
    pub class_has: bool,
    pub member_has: bool,
    pub since: String,
}

impl Listed for Divergence {
    const KEY: &'static str = "divergences";
}

/// One sample of a class: a client, and whether the server tells it the same as the class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    pub at: String,
    /// The id of the client's node.
    pub node: String,
    /// `equal`, `lag`, `differs`, `restless` or `no_word`.
    pub result: String,
    pub server: String,
}

impl Listed for Sample {
    const KEY: &'static str = "samples";
}

/// A class whose clients with some values have classes of their own, beside the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassSplit {
    /// The class that was split.
    pub class: String,
    /// The fields of the node whose values decide.
    pub by: Vec<String>,
    /// So many tuples of values have classes of their own; null: each tuple has.
    pub tuples: Option<usize>,
    /// `proof` or `operator`.
    pub cause: String,
    /// The client for which the proof made the split, and the type with other content. Empty for an operator.
    pub client: String,
    pub r#type: String,
    pub since: String,
    /// The proof may undo the split from then on; null: it never does.
    pub holds_until: Option<String>,
}

impl Listed for ClassSplit {
    const KEY: &'static str = "splits";
}

/// The class that has the clients after a join; of several joins the classes, with commas between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JoinedClass {
    pub class: String,
}

/// The progress of an order to prove a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProveProgress {
    pub order: u64,
    pub class: String,
    /// Clients to ask about, and those of them with each result.
    pub asked: usize,
    pub equal: usize,
    pub differs: usize,
    pub no_word: usize,
    pub done: bool,
    /// Why the class cannot be asked.
    pub refused: Option<String>,
    /// Why nobody is asked now: the order waits.
    pub gives_way: Option<String>,
    /// The replicas that an order has compared.
    pub replicas: Option<ComparedReplicas>,
}
