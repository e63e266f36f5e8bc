//! Whether the relay may get traffic, and the age of its configuration (I14).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use sluice_admin_api::overview::{PlanStanding, ProofStanding, ReadyReport, TierAge, UpstreamSummary};

use super::item::seconds_since;
use super::rollouts::{behind_seconds, frozen_until, pinned};
use super::state::{Readiness, State};
use crate::driver::api::proof::ProofSummary;
use crate::driver::api::rollouts::RolloutStatus;
use crate::driver::api::status::{SourceState, SourceStatus, StatusView, TierStatus};
use crate::telemetry::rollouts::{joins_text, why};

/// Whether to answer 200, and the body. A relay without a reachable upstream still serves its cache, and
/// normally stays ready. With `requires_upstream`, a relay with sources is ready only while at least one
/// source is connected.
pub(super) fn report(
    readiness: &Readiness,
    requires_upstream: bool,
    sources: &[Arc<SourceStatus>],
    plans: &[Arc<RolloutStatus>],
    proofs: &[ProofSummary],
    now: SystemTime,
) -> (bool, ReadyReport) {
    let mut upstreams: BTreeMap<String, UpstreamSummary> = BTreeMap::new();
    for source in sources {
        add(upstreams.entry(source.server.to_string()).or_default(), source, now);
    }
    let any_connected = sources.iter().any(|source| source.state.is_attached());
    let upstream_suffices = !requires_upstream || sources.is_empty() || any_connected;
    let state = readiness.state();
    let certificate_expired = readiness.has_expired_certificate();
    // A replica without content from before a push would let its clients wait.
    let has_joined = !plans.iter().any(|plan| plan.newcomers.keeps_unready);
    let ready = state == State::Ready && upstream_suffices && !certificate_expired && has_joined;
    // A plan that holds something back serves its clients.
    let is_frozen = plans.iter().any(|plan| plan.report.frozen_until.is_some());
    let rollouts = plans.iter().filter_map(|plan| standing(plan, is_frozen)).collect();
    let proofs = proofs.iter().filter(|proof| proof.differ > 0).map(proof_standing).collect();
    let state = state.name().to_owned();
    let tiers = Vec::new();
    (ready, ReadyReport { ready, state, certificate_expired, upstreams, tiers, rollouts, proofs })
}

/// The ways through other relays, with the age of what they lead to (ADR 101). The others are in the
/// summaries of their servers.
pub(super) fn tiers(relay: &dyn StatusView) -> Vec<TierAge> {
    let tiers = relay.tiers().into_iter().filter(|tier| tier.is_through_relays);
    let age = |tier: &TierStatus| tier.age.map(|age| age.as_secs_f64());
    tiers.map(|tier| TierAge { age_seconds: age(&tier), path: tier.path.to_string() }).collect()
}

fn proof_standing(proof: &ProofSummary) -> ProofStanding {
    ProofStanding {
        server: proof.server.to_string(),
        list: proof.list.to_string(),
        differ: proof.differ,
        split_waits: proof.split_waits,
    }
}

/// A plan for the attention of an operator; `None` if there is nothing to say. `is_frozen`: some plan is
/// frozen.
fn standing(status: &RolloutStatus, is_frozen: bool) -> Option<PlanStanding> {
    let (plan, report) = (&status.plan, &status.report);
    let is_at_rest =
        report.is_at_rest() && !report.is_full && status.unproved == 0 && status.condemned_served.is_empty();
    let (joins, keeps_unready) = (status.newcomers.joins(), status.newcomers.keeps_unready);
    let is_at_rest = is_at_rest && joins.is_none() && !keeps_unready;
    let push = report.push.as_deref();
    let is_notable = if plan.enforces() { !is_at_rest } else { is_frozen };
    let is_free = || "observes: the freeze of other plans holds none of its pushes back".to_owned();
    is_notable.then(|| PlanStanding {
        plan: plan.name.to_string(),
        state: report.state.name().to_owned(),
        push: push.map(|push| push.number),
        behind_seconds: behind_seconds(status),
        why: if plan.enforces() { push.and_then(why) } else { Some(is_free()) },
        pinned: pinned(status),
        frozen_until: frozen_until(status),
        barred: report.barred.len(),
        full: report.is_full,
        unproved: status.unproved,
        condemned_served: status.condemned_served.len(),
        diverged: status.diverged.len(),
        joining: keeps_unready,
        newcomers: joins.as_ref().map(joins_text),
    })
}

/// Adds a source to the summary of its server.
fn add(summary: &mut UpstreamSummary, source: &SourceStatus, now: SystemTime) {
    summary.lists.insert(source.list.to_string());
    match source.state {
        SourceState::Connecting => summary.connecting += 1,
        SourceState::Connected => summary.connected += 1,
        SourceState::Backoff { .. } => summary.backoff += 1,
        SourceState::Unanswered => summary.unanswered += 1,
        SourceState::EndsStreams { .. } => summary.ends_streams += 1,
    }
    summary.restored += usize::from(source.restored);
    summary.present += source.types.iter().map(|types| types.present).sum::<usize>();
    summary.held_back += source.types.iter().map(|types| types.held_back).sum::<usize>();
    if let Some(since) = source.stale_since {
        summary.stale += 1;
        let seconds = seconds_since(since, now);
        if summary.stale_seconds.is_none_or(|worst| worst < seconds) {
            summary.stale_seconds = Some(seconds);
            summary.last_error = source.error_text();
        }
    }
}
