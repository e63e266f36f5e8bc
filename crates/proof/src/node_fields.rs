//! A node as fields with values (LRN-3).

use std::sync::Arc;

/// The use of a field for fingerprints and explanations. In the order of preference: a plain field explains
/// better than a derived field, and a derived field better than a unique field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldRank {
    /// A leaf of the node, or a part of the proved identity.
    Plain,
    /// Made from another field: a part of the id, or the prefix of an address (LRN-3).
    Derived,
    /// The id, and fields known to differ from client to client: names of pods, addresses, uids (LRN-4). The
    /// machine finds more unique fields by their values.
    Unique,
}

/// One field of a node. A missing field is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeField {
    /// The path, as in reports and rules: `metadata.LABELS.team`, `locality.zone`, `id`.
    pub path: Arc<str>,
    /// The value on one line. Only equality counts.
    pub value: Arc<str>,
    pub rank: FieldRank,
}

/// The fields of a node, sorted by path, each path once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFields(pub Vec<NodeField>);
