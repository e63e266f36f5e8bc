//! Rules of `node_classes` learned from the answers of a server: `/classes/learn`, and the output of
//! `sluice classes learn`.

use serde::{Deserialize, Serialize};

use crate::proofs::RestlessNames;

/// The progress of an order to learn the rules of a server (LRN-2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnProgress {
    pub order: u64,
    pub server: String,
    /// Clients to ask as, and those with an answer of the server.
    pub nodes: usize,
    pub asked: usize,
    pub done: bool,
    /// Why there is nothing to report.
    pub refused: Option<String>,
    /// There once the order is done.
    pub report: Option<Box<StudyReport>>,
}

/// The findings of a study. Wide because the fields are the flat keys of the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StudyReport {
    pub server: String,
    /// `complete`, `time_is_up`, `refused`, `lost`, `too_large`, `leaving` or `abandoned`.
    pub end: String,
    /// The end in words, with the last error of the server.
    pub reason: String,
    /// The entries that could have been nodes, and those that were left out.
    pub entries: usize,
    pub left_out: Vec<LeftOut>,
    /// Nodes, those with an answer, and different nodes apart from unique fields.
    pub nodes: usize,
    pub asked: usize,
    pub fingerprints: usize,
    /// The streams to the server with the proposed rules.
    pub streams: usize,
    /// The grouping of all types without a rule apart; absent if each type is personal.
    pub shared: Option<Grouping>,
    pub endpoints: Option<EndpointGrouping>,
    pub personal: Vec<PersonalType>,
    pub restless: Vec<RestlessNames>,
    pub refused: RefusedNodes,
    pub fields: Vec<StudiedField>,
    pub rules: Vec<LearnedRule>,
    /// The comparison of other rules with the evidence, if somebody asked for it.
    pub check: Option<Vec<CoarseRule>>,
    /// The rules as a part of a configuration, with the evidence in comments.
    pub yaml: String,
}

/// Entries that were left out for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// `broken`, `no_id`, `duplicate`, `registers`, `shown`, `unclassified` or `too_many`.
    pub reason: String,
    /// The same in words.
    pub why: String,
    pub count: usize,
    /// The first of them.
    pub places: Vec<String>,
}

/// A grouping of nodes by the answers for some types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grouping {
    pub types: Vec<String>,
    /// Different answers.
    pub answers: usize,
    /// The fewest fields that tell apart what the server tells apart.
    pub minimum: Vec<DecisiveField>,
    /// The fields with one value in each group of equal answers.
    pub closure: Vec<String>,
    /// Both together.
    pub split: Vec<String>,
    /// The classes of the fleet by the proposed rule.
    pub classes: usize,
}

/// A field that decides, with its evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisiveField {
    pub field: String,
    pub values: usize,
    /// The pairs of fingerprints with unequal answers that no other field of the minimum tells apart.
    pub counterexamples: u64,
    /// The nodes of the example differ in no other field that could split.
    pub decisive: bool,
    pub example: Option<NodePair>,
}

/// Two nodes that are told two things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodePair {
    pub nodes: Vec<String>,
    /// The values of the field at the two nodes; absent: the node lacks the field. Secrets are hidden.
    pub values: Vec<Option<String>>,
}

/// How endpoints depend on the node, if otherwise than the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointGrouping {
    /// They depend on more fields, and have a rule of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finer: Option<Grouping>,
    /// They depend on fewer fields, which is told only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coarser: Option<CoarserEndpoints>,
}

/// Endpoints that depend on less than the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoarserEndpoints {
    pub types: Vec<String>,
    pub minimum: Vec<String>,
    pub classes: usize,
}

/// A type whose answers only unique fields explain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersonalType {
    pub r#type: String,
    pub explained_by: Option<String>,
    /// No rule can name the field: it is a part of another one.
    pub derived: bool,
    /// Two nodes that no shared field tells apart.
    pub example: Option<Vec<String>>,
}

/// Nodes without an answer of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedNodes {
    pub count: usize,
    /// The first of them.
    pub nodes: Vec<RefusedNode>,
}

/// A node without an answer of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedNode {
    pub node: String,
    pub status: String,
}

/// A field of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StudiedField {
    pub field: String,
    pub values: usize,
    /// The field differs from client to client.
    pub unique: bool,
}

/// A proposed rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnedRule {
    /// Empty: every type without a rule before.
    pub types: Vec<String>,
    /// Each client has a class alone.
    pub personal: bool,
    pub classes: usize,
    /// The clients of each class, the largest first: at most 1,000.
    pub clients: Vec<usize>,
    /// The values that make the largest classes, as `path=value`. Secrets are hidden.
    pub largest: Vec<Vec<String>>,
}

/// A rule that puts clients into one class that the server tells two things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoarseRule {
    /// As operators count: `node_classes[0]`.
    pub rule: String,
    pub r#type: String,
    /// The classes that are too coarse.
    pub classes: usize,
    /// The fields that explain all pairs.
    pub explained_by: Vec<String>,
    /// For each class two clients: at most 100.
    pub pairs: Vec<CoarsePair>,
}

/// Two clients of a class that are told two things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoarsePair {
    pub nodes: Vec<String>,
    /// The first names, and the number of all.
    pub names: Vec<String>,
    pub count: usize,
    /// The fields in which the two nodes differ, apart from unique fields: at most 20.
    pub differ: Vec<String>,
}
