//! The connection of a stream among those of its pool.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The choice of a connection. Connections of a pool have numbers from 1.
#[derive(Clone, Debug, Default)]
pub struct ConnectionChoice {
    /// The preferred connection, while it has room; 0: any.
    pub beside: u64,
    /// Takes the number of the connection that the stream has got.
    pub taken: Arc<AtomicU64>,
}
