//! Learns the rules of `node_classes` from the answers of a server to nodes (LRN).
//!
//! 1. `field`: a field of a node, and the value. `leaves`: the leaves of the metadata. [`node`]: the fields
//!    of a client.
//! 2. `partition`: rows by values. [`fleet`]: nodes as rows, fields as columns. [`evidence`]: the answers.
//! 3. `search`: the deciding fields.
//! 4. [`rule`], [`proposal`]: the rules. [`yaml`]: the same for the configuration.
//! 5. [`study`]: whom to ask next, before a relay is in the path.

pub mod field;
mod leaves;
mod partition;
pub mod fleet;
pub mod node;
pub mod evidence;
mod search;
pub mod rule;
pub mod proposal;
pub mod yaml;
pub mod study;

pub use evidence::{Conflict, StudyEvidence, TypeAnswer};
pub use field::Field;
pub use fleet::Fleet;
pub use node::node_fields;
pub use partition::Partition;
pub use proposal::{Proposal, is_lossless, propose};
pub use study::{Step, Study, StudyEnd, StudyPace};
pub use yaml::yaml;
