//! Evidence about node classes, for the operator.

use std::time::SystemTime;

use sluice_xds::{ResourceName, TypeUrl};

/// Other content in the first answers to another member of a class (RLY-10): a push at the same moment, or
/// the two need different classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvidenceStatus {
    pub at: SystemTime,
    pub type_url: TypeUrl,
    /// The number of names with other content, and the first of them.
    pub names: usize,
    pub first: Vec<ResourceName>,
    /// The ids of the two members.
    pub previous: String,
    pub next: String,
    /// The fields of the node in which the two differ, by path.
    pub fields: Vec<String>,
}
