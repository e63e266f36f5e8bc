//! The open xDS streams of one connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::driver::api::downstream::{Peer, RelayStream, Signal, Variant};
use crate::telemetry::Limit;
use crate::telemetry::metrics::{DownstreamMetrics, GaugePart};
use sluice_xds::{Code, Status};

/// The streams of a connection, so that the connection can end them.
pub(super) struct Streams<S> {
    open: Mutex<OpenStreamList<S>>,
    used: AtomicBool,
    /// Raised when the connection closes; ends streams that are not registered.
    going: Signal,
    /// The limit of HTTP/2 on open streams.
    max: u32,
    /// The client, for the log.
    peer: Arc<Peer>,
    metrics: Arc<DownstreamMetrics>,
}

struct OpenStreamList<S> {
    /// A short list, so that a search is quick; uses no memory while empty.
    streams: Vec<(StreamId, S)>,
    next_id: StreamId,
    refuses_new: bool,
}

pub(super) type StreamId = u64;

impl<S: RelayStream> Streams<S> {
    pub(super) fn new(metrics: Arc<DownstreamMetrics>, max: u32, peer: Arc<Peer>) -> Arc<Self> {
        let open = Mutex::new(OpenStreamList { streams: Vec::new(), next_id: 0, refuses_new: false });
        Arc::new(Streams { open, used: AtomicBool::new(false), going: Signal::default(), max, peer, metrics })
    }

    /// Adds a stream until the returned value is dropped; `None` if the connection accepts no new streams.
    ///
    /// Polls have no variant, and are not counted as streams, because a poll lasts for a single response.
    pub(super) fn register(
        self: &Arc<Self>,
        stream: S,
        variant: Option<Variant>,
    ) -> Option<RegisteredStream<S>> {
        let mut open = self.open.lock();
        if open.refuses_new {
            return None;
        }
        let id = open.next_id;
        open.next_id += 1;
        // Most connections have one stream.
        open.streams.reserve_exact(1);
        open.streams.push((id, stream.clone()));
        let is_full = open.streams.len() == self.max as usize;
        let first = open.streams.first().filter(|_| is_full).map(|(_, first)| first.clone());
        drop(open);
        // The next stream waits in the client, or HTTP/2 refuses the stream silently.
        if let Some(first) = first {
            let node = first.node_id().unwrap_or_default();
            self.metrics.limit_delays(Limit::StreamsPerConnection, &node, self.peer.address);
        }
        let counted = variant.map(|variant| self.metrics.stream(variant));
        Some(RegisteredStream { streams: self.clone(), id, stream, _counted: counted })
    }

    pub(super) fn refuse_new(&self) {
        self.open.lock().refuses_new = true;
    }

    pub(super) fn refuses_new(&self) -> bool {
        self.open.lock().refuses_new
    }

    /// Announces that the connection closes.
    pub(super) fn go(&self) {
        self.going.raise();
    }

    /// Whether the connection is about to close.
    pub(super) fn is_going(&self) -> bool {
        self.going.is_raised()
    }

    /// Waits until the connection closes. Returns the status for streams that are not registered.
    pub(super) async fn going(&self) -> Status {
        self.going.raised().await;
        let text = if self.refuses_new() {
            "the server is draining"
        } else {
            "the connection reached its maximum age"
        };
        Status::new(Code::Unavailable, text)
    }

    /// Records that the connection was used for a call of any kind.
    pub(super) fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// True if a stream has no response yet (KAL-4).
    pub(super) fn has_unanswered(&self) -> bool {
        self.all().iter().any(|(_, stream)| !stream.has_answered())
    }

    /// A copy of the list, for use outside the lock.
    pub(super) fn all(&self) -> Vec<(StreamId, S)> {
        self.open.lock().streams.clone()
    }

    pub(super) fn get(&self, id: StreamId) -> Option<S> {
        let open = self.open.lock();
        open.streams.iter().find(|(open_id, _)| *open_id == id).map(|(_, stream)| stream.clone())
    }

    fn remove(&self, id: StreamId) {
        let mut open = self.open.lock();
        let removed = open.streams.iter().position(|(open_id, _)| *open_id == id);
        let removed = removed.map(|index| open.streams.swap_remove(index));
        drop(open);
        // The drop of a stream runs code of the driver, which must not run under the lock.
        drop(removed);
    }
}

/// A stream while its response is being written.
pub(super) struct RegisteredStream<S: RelayStream> {
    streams: Arc<Streams<S>>,
    id: StreamId,
    stream: S,
    _counted: Option<GaugePart>,
}

impl<S: RelayStream> RegisteredStream<S> {
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: RelayStream> Drop for RegisteredStream<S> {
    fn drop(&mut self) {
        self.streams.remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Relay;
    use crate::driver::api::downstream::OpenStreams;

    /// With the two counters of its allocation, a size class of the allocator: each connection has one.
    #[test]
    fn the_streams_of_an_idle_connection_cost_little() {
        let size = size_of::<Streams<<Relay as OpenStreams>::Stream>>();
        assert!(size + 16 <= 128, "{size}");
    }
}
