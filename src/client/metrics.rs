//! What the upstream side counts, per server.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that other rooms read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }
}

/// Counts of one server. All but the two gauges only grow.
#[derive(Debug, Default)]
pub struct ClientMetrics {
    /// Gauge: connections that are open.
    pub connections: Count,
    /// Connections that became ready.
    pub connects: Count,
    /// Attempts to connect that failed at every address.
    pub connect_failures: Count,
    /// Gauge: streams that are open.
    pub streams: Count,
    /// Streams whose request headers were sent.
    pub streams_opened: Count,
    /// Responses that were decoded.
    pub responses: Count,
    /// Messages that could not be decoded or were too long (FU11, FU17).
    pub undecodable: Count,
    /// Bytes read from and written to sockets.
    pub bytes_in: Count,
    pub bytes_out: Count,
    /// PINGs sent, and those that stayed unanswered.
    pub pings: Count,
    pub pings_unanswered: Count,
    /// Connections on which the server sent a GOAWAY, and those of them that said `too_many_pings` (FU32).
    pub goaways: Count,
    pub too_many_pings: Count,
}
