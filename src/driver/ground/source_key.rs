//! The key of a source.

use crate::driver::ground::servers::Place;
use sluice_engine::cache::SessionId;
use sluice_engine::class::NodeClass;

/// The clients of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    Everyone,
    /// One stream, whose subscriptions may not be shared (RLY-20).
    Stream(SessionId),
    /// Nobody: the relay asks in the place of a client, to compare the answers (PRF-1).
    Shadow(u64),
}

/// The properties that tell sources apart (RLY-10). Each list has its own names, even if lists contain the
/// same servers (FED-6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceKey {
    pub place: Place,
    pub class: NodeClass,
    pub owner: Owner,
}
