//! The task of a session: one endpoint after the other, and events in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::call::{DEADLINE, EtcdCaller, EtcdEndpoint};
use super::content::{Interruption, LoadedContent, PrefixWatch, load};
use super::keep_alive::{grant, keep_alive};
use super::live::{CurrentSession, LiveSession};
use super::place::EtcdPlace;
use crate::client::backoff;
use crate::ledger::LedgerEvent;
use crate::ledger::holdings::Holdings;
use sluice_setting::{Backoff, ms, seconds};

/// The delay after a loss, and between two rounds over all endpoints. Shorter than for control planes: a step
/// of a plan waits, and replicas are few.
pub(super) const BACKOFF: Backoff = Backoff { initial: ms(250), max: seconds(10) };

/// After a session of this length, the next failure counts as the first.
const STABLE: Duration = seconds(10);

/// Between two loads without a loss: a server without any history must not make the task spin.
const RELOAD_PAUSE: Duration = seconds(1);

pub(super) struct SessionTask {
    pub(super) place: Arc<EtcdPlace>,
    pub(super) current: Arc<CurrentSession>,
    pub(super) events: mpsc::Sender<LedgerEvent>,
}

impl SessionTask {
    /// Runs until the caller takes no more events.
    pub(super) async fn run(self) {
        let (mut failures, mut last_reason) = (0_u32, None);
        let mut reasons: Vec<String> = Vec::new();
        for endpoint in self.place.endpoints.iter().cycle() {
            let mut loaded_at = None;
            let reason = self.session(endpoint, &mut loaded_at).await;
            self.current.end(&reason);
            if let Some(at) = loaded_at {
                failures = if at.elapsed() >= STABLE { 0 } else { failures };
                self.place.metrics.lost();
                last_reason = None;
                // The endpoints that were tried before have no part in this loss.
                reasons.clear();
            }
            reasons.push(reason);
            if loaded_at.is_none() && reasons.len() < self.place.endpoints.len() {
                continue;
            }
            let reason = std::mem::take(&mut reasons).join("; ");
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
            sleep(backoff(&BACKOFF, failures, fastrand::f64())).await;
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

    /// One session at one endpoint. Returns the reason of its end.
    async fn session(&self, endpoint: &Arc<EtcdEndpoint>, loaded_at: &mut Option<Instant>) -> String {
        match self.attempt(endpoint, loaded_at).await {
            Ok(reason) | Err(reason) => reason,
        }
    }

    async fn attempt(
        &self,
        endpoint: &Arc<EtcdEndpoint>,
        loaded_at: &mut Option<Instant>,
    ) -> Result<String, String> {
        let caller = EtcdCaller::open(endpoint.clone(), self.place.user.clone()).await?;
        // Content that is out of bounds costs the server no lease.
        let content = load(&caller, &self.place.prefix).await?;
        let lease = grant(&caller, self.place.lease).await?;
        let session = Arc::new(LiveSession::new(caller, content.cluster, lease));
        Ok(tokio::select! {
            biased;
            reason = keep_alive(&session, self.place.lease) => reason,
            reason = session.fault() => reason,
            reason = self.follow(&session, content, loaded_at) => reason,
        })
    }

    /// Reports the content and its changes.
    async fn follow(
        &self,
        session: &Arc<LiveSession>,
        mut content: LoadedContent,
        loaded_at: &mut Option<Instant>,
    ) -> String {
        let (caller, prefix) = (&*session.caller, &*self.place.prefix);
        loop {
            let ended = match PrefixWatch::open(caller, prefix, &content).await {
                Ok(mut watch) => self.watch(session, content, &mut watch, loaded_at).await,
                Err(interruption) => interruption,
            };
            match ended {
                Interruption::Compacted => sleep(RELOAD_PAUSE).await,
                Interruption::Ended(reason) => return reason,
            }
            content = match load(caller, prefix).await {
                Ok(content) if content.cluster == session.cluster => content,
                Ok(_) => return caller.about("another cluster of etcd answers"),
                Err(reason) => return reason,
            };
        }
    }

    async fn watch(
        &self,
        session: &Arc<LiveSession>,
        content: LoadedContent,
        watch: &mut PrefixWatch<'_>,
        loaded_at: &mut Option<Instant>,
    ) -> Interruption {
        let LoadedContent { cluster, revision, entries, mut holdings } = content;
        let identity = format!("{cluster:016x}");
        if loaded_at.is_none() {
            let (place, endpoint) = (&self.place.name, &session.caller.address());
            info!(ledger = %place, %endpoint, identity, revision, entries = entries.len(), "the ledger is loaded");
        }
        loaded_at.get_or_insert_with(Instant::now);
        // Before the event, as the caller may write at once.
        self.current.begin(session);
        let _connected = self.place.metrics.connected();
        let loaded = LedgerEvent::Loaded { identity, revision, entries };
        match self.tell(loaded).await {
            Ok(()) => self.pump(session, &mut holdings, watch).await,
            Err(reason) => Interruption::Ended(reason),
        }
    }

    async fn pump(
        &self,
        session: &LiveSession,
        holdings: &mut Holdings,
        watch: &mut PrefixWatch<'_>,
    ) -> Interruption {
        // An own write without its event yet, and the time at which the watch counts as dead.
        let mut awaited: Option<(u64, Instant)> = None;
        loop {
            awaited = awaited.filter(|(revision, _)| *revision > holdings.revision()).or_else(|| {
                let written = session.written();
                (written > holdings.revision()).then(|| (written, Instant::now() + DEADLINE))
            });
            let silent_at = awaited.map_or_else(Instant::now, |(_, at)| at);
            let events = tokio::select! {
                events = watch.next() => events,
                () = session.wrote.notified() => continue,
                () = sleep_until(silent_at), if awaited.is_some() => {
                    let reason = format!("the watch has not reported an own write for {DEADLINE:?}");
                    return session.caller.about(&reason).into();
                }
            };
            let events = match events {
                Ok(events) => events,
                Err(interruption) => return interruption,
            };
            for event in events {
                let result = match holdings.take(&event) {
                    Ok(()) => self.tell(event).await,
                    Err(reason) => Err(session.caller.about(&reason)),
                };
                if let Err(reason) = result {
                    return reason.into();
                }
            }
        }
    }

    /// # Errors
    /// The caller takes no events.
    async fn tell(&self, event: LedgerEvent) -> Result<(), String> {
        let lease = self.place.lease;
        match timeout(lease, self.events.send(event)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err("nobody takes the events of the ledger".to_owned()),
            Err(_) => Err(format!("no event of the ledger was taken for {lease:?}")),
        }
    }
}
