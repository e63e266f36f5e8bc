//! The connection of a stream among those of its pool.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The choice of a connection. Connections of a pool have numbers from 1.
#[derive(Clone, Debug, Default)]
pub struct ConnectionChoice {
    /// The preferred connection, while it has room; 0: any.
    pub preferred: u64,
    /// Any connection but `preferred`.
    pub is_apart: bool,
    /// Takes the number of the connection that the stream has got.
    pub taken: Arc<AtomicU64>,
}

impl ConnectionChoice {
    /// Whether a connection may be taken.
    pub(super) fn allows(&self, number: u64) -> bool {
        !self.is_apart || number != self.preferred
    }
}
