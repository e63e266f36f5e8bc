//! The session in force, which the caller's end and the session's task share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use sluice_setting::seconds;

/// The time for one call, and for the report of a write.
pub(super) const DEADLINE: Duration = seconds(5);

/// The last part of a lease, in which the lease counts as lost already: before the store can drop the lease.
const MARGIN: u32 = 10;

/// A lease, as far as the own clock knows.
#[derive(Debug)]
pub(super) struct LeaseClock(Mutex<Instant>);

impl LeaseClock {
    /// `asked_at`: when the answered question was sent. The store counts from the arrival of the question.
    pub(super) fn new(asked_at: Instant, granted: Duration) -> LeaseClock {
        LeaseClock(Mutex::new(until(asked_at, granted)))
    }

    pub(super) fn renew(&self, asked_at: Instant, granted: Duration) {
        *self.0.lock() = until(asked_at, granted);
    }

    pub(super) fn until(&self) -> Instant {
        *self.0.lock()
    }
}

fn until(asked_at: Instant, granted: Duration) -> Instant {
    asked_at + granted - granted / MARGIN
}

/// A session after its load. `L`: the way to the store, and what the store calls the lease.
#[derive(Debug)]
pub(super) struct LiveSession<L> {
    pub(super) link: L,
    pub(super) lease: LeaseClock,
    /// The revision of the newest own write, which the watch must report.
    written: AtomicU64,
    pub(super) wrote: Notify,
    fault: Mutex<Option<String>>,
    failed: Notify,
}

impl<L> LiveSession<L> {
    pub(super) fn new(link: L, lease: LeaseClock) -> LiveSession<L> {
        LiveSession {
            link,
            lease,
            written: AtomicU64::new(0),
            wrote: Notify::new(),
            fault: Mutex::default(),
            failed: Notify::new(),
        }
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(super) fn has_written(&self, revision: u64) {
        self.written.fetch_max(revision, Ordering::AcqRel);
        self.wrote.notify_one();
    }

    /// An own write that the watch has not reported, and the time at which the watch counts as deaf.
    /// `awaited`: the answer before. `seen`: the revision of the last event.
    pub(super) fn awaited(&self, awaited: Option<(u64, Instant)>, seen: u64) -> Option<(u64, Instant)> {
        awaited.filter(|(revision, _)| *revision > seen).or_else(|| {
            let written = self.written();
            (written > seen).then(|| (written, Instant::now() + DEADLINE))
        })
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
pub(super) struct CurrentSession<L>(Mutex<Result<Arc<LiveSession<L>>, String>>);

impl<L> CurrentSession<L> {
    pub(super) fn new() -> CurrentSession<L> {
        CurrentSession(Mutex::new(Err("the ledger has not been loaded yet".to_owned())))
    }

    /// # Errors
    /// The reason why there is none.
    pub(super) fn get(&self) -> Result<Arc<LiveSession<L>>, String> {
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

    pub(super) fn begin(&self, session: &Arc<LiveSession<L>>) {
        *self.0.lock() = Ok(session.clone());
    }

    pub(super) fn end(&self, reason: &str) {
        *self.0.lock() = Err(reason.to_owned());
    }
}
