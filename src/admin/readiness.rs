//! Whether the relay may get traffic, and the age of its configuration (I14).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::SystemTime;

use serde::Serialize;

use super::item::seconds_since;
use super::rollouts::{Pinned, behind_seconds, frozen_until};
use crate::driver::api::rollouts::RolloutStatus;
use crate::driver::api::status::{SourceState, SourceStatus};
use crate::telemetry::rollouts::why;

/// The state of the process; it only moves forward, except that an operator's drain ends, and that a successor of the process may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Starting = 0,
    /// Listeners are bound, and the checkpoint and files are loaded.
    Ready = 1,
    Draining = 2,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Draining => "draining",
        }
    }
}

/// The state behind `/ready`.
pub struct Readiness {
    state: AtomicU8,
    certificate_expired: Box<dyn Fn() -> bool + Send + Sync>,
    is_emptying: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Default for Readiness {
    fn default() -> Readiness {
        let (certificate_expired, is_emptying) = (Box::new(|| false), Box::new(|| false));
        Readiness { state: AtomicU8::new(State::Starting as u8), certificate_expired, is_emptying }
    }
}

impl Readiness {
    /// A relay whose own certificate has expired is not ready: clients refuse it (CRT-7).
    #[must_use]
    pub fn with_certificates(self, have_expired: impl Fn() -> bool + Send + Sync + 'static) -> Readiness {
        Readiness { certificate_expired: Box::new(have_expired), ..self }
    }

    /// A relay that an operator empties is not ready (HND-9).
    #[must_use]
    pub fn with_drain(self, is_emptying: impl Fn() -> bool + Send + Sync + 'static) -> Readiness {
        Readiness { is_emptying: Box::new(is_emptying), ..self }
    }

    /// Moves on to a later state; an earlier state changes nothing.
    pub fn advance(&self, state: State) {
        self.state.fetch_max(state as u8, Relaxed);
    }

    /// The process serves again after [`State::Draining`]: its successor has died.
    pub fn return_to_service(&self) {
        self.state.store(State::Ready as u8, Relaxed);
    }

    pub fn state(&self) -> State {
        match self.state.load(Relaxed) {
            0 => State::Starting,
            1 if (self.is_emptying)() => State::Draining,
            1 => State::Ready,
            _ => State::Draining,
        }
    }

    /// Whether a certificate of the relay itself has expired.
    pub(super) fn has_expired_certificate(&self) -> bool {
        (self.certificate_expired)()
    }

    /// Whether to answer 200, and the body. A relay without a reachable upstream still serves its cache, and
    /// normally stays ready. With `requires_upstream`, a relay with sources is ready only while at least one
    /// source is connected.
    pub(super) fn report(
        &self,
        requires_upstream: bool,
        sources: &[Arc<SourceStatus>],
        plans: &[Arc<RolloutStatus>],
        now: SystemTime,
    ) -> (bool, Report) {
        let mut upstreams: BTreeMap<&str, Upstream> = BTreeMap::new();
        for source in sources {
            upstreams.entry(&source.server).or_default().add(source, now);
        }
        let any_connected = sources.iter().any(|source| source.state.is_attached());
        let upstream_suffices = !requires_upstream || sources.is_empty() || any_connected;
        let state = self.state();
        let upstreams =
            upstreams.into_iter().map(|(server, upstream)| (server.to_owned(), upstream)).collect();
        let certificate_expired = (self.certificate_expired)();
        let ready = state == State::Ready && upstream_suffices && !certificate_expired;
        // A plan that holds something back serves its clients.
        let is_frozen = plans.iter().any(|plan| plan.report.frozen_until.is_some());
        let rollouts = plans.iter().filter_map(|plan| Standing::of(plan, is_frozen)).collect();
        (ready, Report { ready, state: state.name(), certificate_expired, upstreams, rollouts })
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    ready: bool,
    state: &'static str,
    /// A certificate of the relay has expired.
    certificate_expired: bool,
    upstreams: BTreeMap<String, Upstream>,
    /// Plans that hold something back, or let something pass without a judgement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rollouts: Vec<Standing>,
}

/// A plan that enforces, or that others' freeze does not hold, for the attention of an operator (GRD-2, WAV-19).
#[derive(Debug, Serialize)]
struct Standing {
    plan: String,
    state: &'static str,
    push: Option<u64>,
    behind_seconds: f64,
    why: Option<String>,
    pinned: Option<Pinned>,
    frozen_until: Option<String>,
    barred: usize,
    full: bool,
    unproved: usize,
    /// Condemned contents that all clients of a unit are served.
    condemned_served: usize,
    /// Units without the content of the pinned release.
    diverged: usize,
}

impl Standing {
    /// `None` if there is nothing to say. `is_frozen`: some plan is frozen.
    fn of(status: &RolloutStatus, is_frozen: bool) -> Option<Standing> {
        let (plan, report) = (&status.plan, &status.report);
        let is_at_rest = report.is_at_rest()
            && !report.is_full
            && status.unproved == 0
            && status.condemned_served.is_empty();
        let push = report.push.as_deref();
        let is_told = if plan.enforces() { !is_at_rest } else { is_frozen };
        let is_free = || "observes: the freeze of other plans holds none of its pushes back".to_owned();
        is_told.then(|| Standing {
            plan: plan.name.to_string(),
            state: report.state.name(),
            push: push.map(|push| push.number),
            behind_seconds: behind_seconds(status),
            why: if plan.enforces() { push.and_then(why) } else { Some(is_free()) },
            pinned: Pinned::of(status),
            frozen_until: frozen_until(status),
            barred: report.barred.len(),
            full: report.is_full,
            unproved: status.unproved,
            condemned_served: status.condemned_served.len(),
            diverged: status.diverged.len(),
        })
    }
}

/// A summary of all sources of one server: the counts of their states, the longest staleness with its reason,
/// and the number of served resources.
#[derive(Debug, Default, Serialize)]
struct Upstream {
    /// The keys of the server lists that contain the server.
    lists: BTreeSet<String>,
    connecting: usize,
    connected: usize,
    backoff: usize,
    /// Sources with an open stream whose server has never answered.
    unanswered: usize,
    /// Sources whose server ends each stream.
    ends_streams: usize,
    stale: usize,
    /// The stale sources that serve resources from before a restart.
    restored: usize,
    stale_seconds: Option<f64>,
    last_error: Option<String>,
    /// Resources in the caches of all sources.
    present: usize,
    /// The present resources that the server has deleted and that are served on for a while.
    held_back: usize,
}

impl Upstream {
    fn add(&mut self, source: &SourceStatus, now: SystemTime) {
        self.lists.insert(source.list.to_string());
        match source.state {
            SourceState::Connecting => self.connecting += 1,
            SourceState::Connected => self.connected += 1,
            SourceState::Backoff { .. } => self.backoff += 1,
            SourceState::Unanswered => self.unanswered += 1,
            SourceState::EndsStreams { .. } => self.ends_streams += 1,
        }
        self.restored += usize::from(source.restored);
        self.present += source.types.iter().map(|types| types.present).sum::<usize>();
        self.held_back += source.types.iter().map(|types| types.held_back).sum::<usize>();
        if let Some(since) = source.stale_since {
            self.stale += 1;
            let seconds = seconds_since(since, now);
            if self.stale_seconds.is_none_or(|worst| worst < seconds) {
                self.stale_seconds = Some(seconds);
                self.last_error = source.error_text();
            }
        }
    }
}
