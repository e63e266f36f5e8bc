//! The values that replicas share: the content of a push, and the entries of the ledger (LDG-2, LDG-3).

pub mod contents;
pub mod condemned;
pub mod record;
pub mod order_change;

pub use condemned::{CondemnedSet, ContentHash};
pub use contents::{ChangeHash, ContentSet, UnitChanges, UnitKey};
pub use order_change::{BARRED_MAX, OrderChange};
pub use record::{PlanRecord, ReplicaTally};
