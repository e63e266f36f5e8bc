//! The connection of a stream among those of its pool.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The choice of a connection. Connections of a pool have numbers from 1.
#[derive(Clone, Debug, Default)]
pub struct ConnectionChoice {
    /// The preferred connection, while it has room; 0: any.
    pub preferred: u64,
    /// Any connection but `preferred`: to another address of the server, where there is one (PRF-18).
    pub is_apart: bool,
    /// Takes the connection that the stream has got.
    pub taken: Arc<TakenConnection>,
}

/// The connection of the latest stream.
#[derive(Debug, Default)]
pub struct TakenConnection {
    number: AtomicU64,
    address: Mutex<Option<SocketAddr>>,
}

impl TakenConnection {
    /// The number in the pool; 0: no stream yet.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// The address of the server; `None` before the first stream, and for a unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        *self.address.lock()
    }

    pub(super) fn take(&self, number: u64, address: Option<SocketAddr>) {
        *self.address.lock() = address;
        self.number.store(number, Ordering::Relaxed);
    }
}
