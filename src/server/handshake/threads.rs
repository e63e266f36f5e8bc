//! Threads for the CPU of handshakes (SEC-2).
//!
//! A key exchange takes half a millisecond, and thousands may be due at once. On the workers of the runtime,
//! an update would wait behind them. On threads of their own, the kernel gives a core to the worker as soon
//! as it has an update.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::{io, iter};

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

/// Two or three cores compute the 4,000 handshakes of a second that the limit allows by default.
const THREADS_MAX: usize = 4;

/// Started with the first handshake, and ended with this value.
#[derive(Default)]
pub(super) struct Threads {
    started: OnceLock<Started>,
    next: AtomicUsize,
}

struct Started {
    /// Empty if the host allows no more threads.
    runtimes: Vec<Handle>,
    _end: DropGuard,
}

impl Threads {
    /// Runs a handshake on the next thread, until its end or the drop of the result. Must be called within a
    /// tokio runtime, which runs the handshake if the host allows no more threads.
    pub(super) fn spawn<F>(&self, handshake: F) -> AbortOnDropHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let runtimes = &self.started.get_or_init(Started::new).runtimes;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let task = match number.checked_rem(runtimes.len()).and_then(|index| runtimes.get(index)) {
            Some(runtime) => runtime.spawn(handshake),
            None => tokio::spawn(handshake),
        };
        AbortOnDropHandle::new(task)
    }
}

impl Started {
    fn new() -> Started {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        let end = CancellationToken::new();
        let started: io::Result<Vec<Handle>> =
            iter::repeat_with(|| start(end.clone())).take(cores.min(THREADS_MAX)).collect();
        let runtimes = started.unwrap_or_else(|error| {
            tracing::warn!(%error, "no threads for TLS handshakes; they share the threads of updates");
            Vec::new()
        });
        Started { runtimes, _end: end.drop_guard() }
    }
}

/// Starts a thread with a runtime. Sockets stay with the runtime that accepted them.
fn start(end: CancellationToken) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("handshakes".into())
        .spawn(move || runtime.block_on(end.cancelled_owned()))?;
    Ok(handle)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::pending;
    use std::thread::ThreadId;

    use super::*;

    async fn own_thread() -> ThreadId {
        thread::current().id()
    }

    #[tokio::test]
    async fn sec_2_handshakes_compute_beside_the_workers_of_updates() {
        let threads = Threads::default();
        assert_ne!(threads.spawn(own_thread()).await.unwrap(), own_thread().await);
        // A host without further threads.
        let started =
            OnceLock::from(Started { runtimes: Vec::new(), _end: CancellationToken::new().drop_guard() });
        let none = Threads { started, next: AtomicUsize::default() };
        assert_eq!(none.spawn(own_thread()).await.unwrap(), own_thread().await);
    }

    #[tokio::test]
    async fn sec_2_a_handshake_ends_with_its_connection_and_with_its_threads() {
        let threads = Threads::default();
        let begin = || {
            let gone = CancellationToken::new();
            let guard = gone.clone().drop_guard();
            let handshake = threads.spawn(async move {
                let _guard = guard;
                pending::<()>().await;
            });
            (handshake, gone)
        };
        let (handshake, gone) = begin();
        drop(handshake);
        gone.cancelled().await;
        let (handshake, gone) = begin();
        drop(threads);
        assert!(handshake.await.unwrap_err().is_cancelled());
        gone.cancelled().await;
    }
}
