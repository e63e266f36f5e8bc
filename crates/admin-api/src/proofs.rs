//! The proof of the grouping: `/classes`, `/classes/divergences`, `/classes/prove`.

use serde::{Deserialize, Serialize};

use crate::lists::Listed;

/// The proof of a class. Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassProof {
    /// `proved`, `unproved`, `differs`, `restless` or `impossible`.
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
    /// The time after a push in which a rule by a covered value is noticed, and after which every client has
    /// had its turn.
    pub covered_within_seconds: f64,
    pub round_seconds: f64,
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
    /// Whether the class and the client have the resource.
    pub class_has: bool,
    pub member_has: bool,
    pub since: String,
}

impl Listed for Divergence {
    const KEY: &'static str = "divergences";
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
}
