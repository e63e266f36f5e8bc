//! The keeper of a session: one session of the store after the other, and events in order.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::live::{CurrentSession, DEADLINE, LiveSession};
use super::{KEY_BYTES_MAX, LedgerEvent, VALUE_BYTES_MAX, WriteError, WriteResult};
use crate::client::backoff;
use crate::telemetry::Throttle;
use crate::telemetry::metrics::OneLedgerMetrics;
use sluice_setting::{Backoff, ms, seconds};

/// The delay after a loss, and between two rounds over all endpoints. Shorter than for control planes: a step
/// of a plan waits, and replicas are few.
pub(super) const BACKOFF: Backoff = Backoff { initial: ms(250), max: seconds(10) };

/// Between two loads without a loss: a server without any history must not make the task spin.
pub(super) const RELOAD_PAUSE: Duration = seconds(1);

/// Events in the channel. A load is one event.
pub(super) const EVENTS_MAX: usize = 256;

/// Writes under way at once; more wait.
pub(super) const WRITES_MAX: usize = 8;

/// The time to give a lease back.
pub(super) const FAREWELL: Duration = seconds(1);

/// After a session of this length, the next failure counts as the first.
const STABLE: Duration = seconds(10);

/// The parts of a ledger that do not depend on the kind of the store.
#[derive(Debug)]
pub(super) struct LedgerPlace {
    /// For people.
    pub(super) name: String,
    pub(super) lease: Duration,
    pub(super) metrics: OneLedgerMetrics,
    pub(super) throttle: Throttle,
}

impl LedgerPlace {
    /// Runs a write within bounds of size, number and time, and counts its result.
    pub(super) async fn bound_write(
        &self,
        turns: &Semaphore,
        key: &str,
        value: Option<&[u8]>,
        write: impl Future<Output = WriteResult>,
    ) -> WriteResult {
        let result = match refusal(key, value) {
            Some(reason) => Err(WriteError::Refused(reason)),
            None => timeout(DEADLINE, async {
                // Never closed.
                let _turn = turns.acquire().await;
                write.await
            })
            .await
            .unwrap_or_else(|_| {
                Err(WriteError::Failed(format!("{}: no answer within {DEADLINE:?}", self.name)))
            }),
        };
        self.metrics.wrote(match &result {
            Ok(_) => "ok",
            Err(WriteError::Conflict { .. }) => "conflict",
            Err(WriteError::Refused(_)) => "refused",
            Err(WriteError::Failed(_)) => "failed",
        });
        result
    }
}

fn refusal(key: &str, value: Option<&[u8]>) -> Option<String> {
    let length = value.map_or(0, <[u8]>::len);
    if length > VALUE_BYTES_MAX {
        return Some(format!("the value of {key:?} has {length} bytes; at most {VALUE_BYTES_MAX} are taken"));
    }
    let is_sound = (1..=KEY_BYTES_MAX).contains(&key.len());
    (!is_sound).then(|| format!("a key has 1 to {KEY_BYTES_MAX} bytes, and not {}", key.len()))
}

/// A store, as the keeper needs one.
pub(super) trait SessionStore: Send {
    type Link: Send + Sync;

    /// One session, or a failed attempt. Returns the reason of the end.
    fn session(&mut self, keeper: &SessionKeeper<Self::Link>) -> impl Future<Output = String> + Send;
}

/// The state of a session's task that does not depend on the kind of the store.
pub(super) struct SessionKeeper<L> {
    place: Arc<LedgerPlace>,
    current: Arc<CurrentSession<L>>,
    events: mpsc::Sender<LedgerEvent>,
    loaded_at: Mutex<Option<Instant>>,
}

impl<L: Send + Sync> SessionKeeper<L> {
    pub(super) fn new(
        place: Arc<LedgerPlace>,
        current: Arc<CurrentSession<L>>,
        events: mpsc::Sender<LedgerEvent>,
    ) -> SessionKeeper<L> {
        SessionKeeper { place, current, events, loaded_at: Mutex::default() }
    }

    /// Runs until the caller takes no more events.
    pub(super) async fn run(self, mut store: impl SessionStore<Link = L>) {
        let delay = Backoff { max: BACKOFF.max.min(self.place.lease / 3), ..BACKOFF };
        let (mut failures, mut last_reason) = (0_u32, None);
        loop {
            let reason = store.session(&self).await;
            self.current.end(&reason);
            let loaded_at = self.loaded_at.lock().take();
            if let Some(at) = loaded_at {
                failures = if at.elapsed() >= STABLE { 0 } else { failures };
                self.place.metrics.lost();
                last_reason = None;
            }
            if last_reason.as_ref() != Some(&reason) {
                self.log_loss(&reason, last_reason.is_none());
                last_reason = Some(reason.clone());
                if self.events.send(LedgerEvent::Lost(reason)).await.is_err() {
                    return;
                }
            }
            // The caller has taken the loss, before there is another lease to ask for.
            if self.events.reserve_many(self.events.max_capacity()).await.is_err() {
                return;
            }
            sleep(backoff(&delay, failures, fastrand::f64())).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Once per loss; further reasons while there is no session are for those who look closely.
    fn log_loss(&self, reason: &str, is_first: bool) {
        let place = &self.place.name;
        if !is_first {
            debug!(ledger = %place, reason, "the ledger is still away");
        } else if let Some(suppressed) = self.place.throttle.allow("ledger") {
            warn!(suppressed, ledger = %place, reason, "the ledger is away");
        }
    }

    /// Whether the present session has been loaded.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded_at.lock().is_some()
    }

    /// Puts a session in force, before the event of its load is told: the caller may write at once.
    pub(super) fn begin(&self, session: &Arc<LiveSession<L>>) {
        self.loaded_at.lock().get_or_insert_with(Instant::now);
        self.current.begin(session);
    }

    /// # Errors
    /// The caller takes no events.
    pub(super) async fn tell(&self, event: LedgerEvent) -> Result<(), String> {
        let lease = self.place.lease;
        match timeout(lease, self.events.send(event)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err("nobody takes the events of the ledger".to_owned()),
            Err(_) => Err(format!("no event of the ledger was taken for {lease:?}")),
        }
    }
}
