//! The session in force, which the caller's end and the session's task share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::call::EtcdCaller;

/// The last part of a lease, in which the lease counts as lost already: before the server can drop the lease.
const MARGIN: u32 = 10;

/// A lease, as far as the own clock knows.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: i64,
    until: Mutex<Instant>,
}

impl Lease {
    /// `asked_at`: when the answered question was sent. The server counts from the arrival of the question.
    pub(super) fn new(id: i64, asked_at: Instant, granted: Duration) -> Lease {
        Lease { id, until: Mutex::new(until(asked_at, granted)) }
    }

    pub(super) fn renew(&self, asked_at: Instant, granted: Duration) {
        *self.until.lock() = until(asked_at, granted);
    }

    pub(super) fn until(&self) -> Instant {
        *self.until.lock()
    }
}

fn until(asked_at: Instant, granted: Duration) -> Instant {
    asked_at + granted - granted / MARGIN
}

/// A session after its load.
#[derive(Debug)]
pub(super) struct LiveSession {
    pub(super) caller: Arc<EtcdCaller>,
    pub(super) cluster: u64,
    pub(super) lease: Lease,
    /// The revision of the newest own write, which the watch must report.
    written: AtomicU64,
    pub(super) wrote: Notify,
    fault: Mutex<Option<String>>,
    failed: Notify,
}

impl LiveSession {
    pub(super) fn new(caller: Arc<EtcdCaller>, cluster: u64, lease: Lease) -> LiveSession {
        LiveSession {
            caller,
            cluster,
            lease,
            written: AtomicU64::new(0),
            wrote: Notify::new(),
            fault: Mutex::default(),
            failed: Notify::new(),
        }
    }

    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(super) fn has_written(&self, revision: u64) {
        self.written.fetch_max(revision, Ordering::AcqRel);
        self.wrote.notify_one();
    }

    /// A write has shown the end of the session.
    pub(super) fn fail(&self, reason: String) {
        self.fault.lock().get_or_insert(reason);
        self.failed.notify_one();
    }

    /// The reason, once a write has shown the end of the session.
    pub(super) async fn fault(&self) -> String {
        loop {
            if let Some(reason) = self.fault.lock().clone() {
                return reason;
            }
            self.failed.notified().await;
        }
    }
}

/// The session in force, if there is one.
#[derive(Debug)]
pub(super) struct CurrentSession(Mutex<Result<Arc<LiveSession>, String>>);

impl CurrentSession {
    pub(super) fn new() -> CurrentSession {
        CurrentSession(Mutex::new(Err("the ledger has not been loaded yet".to_owned())))
    }

    /// # Errors
    /// The reason why there is none.
    pub(super) fn get(&self) -> Result<Arc<LiveSession>, String> {
        let session = self.0.lock().clone()?;
        match session.lease.until() > Instant::now() {
            true => Ok(session),
            false => Err("the lease has run out".to_owned()),
        }
    }

    pub(super) fn lease_left(&self) -> Option<Duration> {
        let until = self.get().ok()?.lease.until();
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    pub(super) fn begin(&self, session: &Arc<LiveSession>) {
        *self.0.lock() = Ok(session.clone());
    }

    pub(super) fn end(&self, reason: &str) {
        *self.0.lock() = Err(reason.to_owned());
    }
}
