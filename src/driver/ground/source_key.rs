//! What sources differ by.

use crate::driver::ground::servers::Place;
use crate::engine::cache::SessionId;
use crate::engine::class::NodeClass;

/// For whom a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    Everyone,
    /// One stream: what it asks for may not be shared (RLY-20).
    Stream(SessionId),
}

/// What sources differ by (RLY-10): the names of each list are another space, even where its servers are the same (FED-6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceKey {
    pub place: Place,
    pub class: NodeClass,
    pub owner: Owner,
}
