//! The open xDS streams of one connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::metrics::ServerMetrics;
use crate::driver::handle::RelayStream;

/// Knows the streams of its connection, so that it can be told when to end them.
pub(super) struct Streams<S> {
    open: Mutex<Open<S>>,
    used: AtomicBool,
    metrics: Arc<ServerMetrics>,
}

struct Open<S> {
    /// Few, so that a search through them is quick; and no memory while there is none.
    streams: Vec<(StreamId, S)>,
    next_id: StreamId,
    refuses_new: bool,
}

pub(super) type StreamId = u64;

impl<S: RelayStream> Streams<S> {
    pub(super) fn new(metrics: Arc<ServerMetrics>) -> Arc<Self> {
        let open = Mutex::new(Open { streams: Vec::new(), next_id: 0, refuses_new: false });
        Arc::new(Streams { open, used: AtomicBool::new(false), metrics })
    }

    /// Adds a stream until the returned value is dropped; `None` if no new ones are wanted.
    pub(super) fn register(self: &Arc<Self>, stream: S) -> Option<RegisteredStream<S>> {
        let mut open = self.lock();
        if open.refuses_new {
            return None;
        }
        let id = open.next_id;
        open.next_id += 1;
        open.streams.push((id, stream.clone()));
        drop(open);
        self.metrics.streams_open.enter();
        Some(RegisteredStream { streams: self.clone(), id, stream })
    }

    pub(super) fn refuse_new(&self) {
        self.lock().refuses_new = true;
    }

    pub(super) fn refuses_new(&self) -> bool {
        self.lock().refuses_new
    }

    /// Marks that the connection was used for a call of any kind.
    pub(super) fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// A stream without any response yet (KAL-4).
    pub(super) fn has_unanswered(&self) -> bool {
        self.all().iter().any(|(_, stream)| !stream.has_answered())
    }

    /// All that are open now, outside the lock.
    pub(super) fn all(&self) -> Vec<(StreamId, S)> {
        self.lock().streams.clone()
    }

    pub(super) fn get(&self, id: StreamId) -> Option<S> {
        let open = self.lock();
        open.streams.iter().find(|(open_id, _)| *open_id == id).map(|(_, stream)| stream.clone())
    }

    fn remove(&self, id: StreamId) {
        let mut open = self.lock();
        let removed = open.streams.iter().position(|(open_id, _)| *open_id == id);
        let removed = removed.map(|index| open.streams.swap_remove(index));
        drop(open);
        self.metrics.streams_open.leave();
        // Ending a stream is the driver's work, not to be done under the lock.
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, Open<S>> {
        // Every critical section leaves the list whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream while its response is being written.
pub(super) struct RegisteredStream<S: RelayStream> {
    streams: Arc<Streams<S>>,
    id: StreamId,
    stream: S,
}

impl<S: RelayStream> RegisteredStream<S> {
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    pub(super) fn metrics(&self) -> &ServerMetrics {
        &self.streams.metrics
    }
}

impl<S: RelayStream> Drop for RegisteredStream<S> {
    fn drop(&mut self) {
        self.streams.remove(self.id);
    }
}
