//! The end of a stream, and a rejection, as signs about the client (TRU-1, WAV-12).

use std::sync::Arc;

use crate::driver::ground::plans::{PlanHandle, StreamClient};
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::context::{StreamContext, node_id};
use crate::driver::stream::own_sources::{OwnSources, newest};
use sluice_engine::Time;
use sluice_engine::downstream::Session;
use sluice_fleet::evidence::{LOST_WITHIN, Leavers as _};
use sluice_xds::{Node, Status};

/// Whether the client went without a word: the relay ended neither the stream nor the connection, and the
/// client did not close its half.
pub(crate) fn is_lost(context: &StreamContext, end: Option<&Status>) -> bool {
    end.is_none() && !context.peer.connection.is_left()
}

/// Passes the end of the stream to all plans.
pub(crate) fn pass_end(
    context: &StreamContext,
    node: Option<&Arc<Node>>,
    session: &Session,
    sources: &OwnSources,
    is_lost: bool,
    now: Time,
) {
    if context.shared.plans.is_empty() {
        return;
    }
    // The loss of a relay tells of the network between, and nothing of the push (TIR-1).
    let is_lost = is_lost && !context.is_relay();
    for plan in context.shared.plans.all().iter().filter(|plan| hears_of(plan, context)) {
        let Some(watched) = plan.watched() else {
            if is_lost {
                plan.leavers().note(node_id(node.map(|node| &**node)), now);
            }
            continue;
        };
        let ids = sources.iter().map(|(id, _)| *id).collect();
        let client = StreamClient { stream: context.id, node: node.cloned() };
        watched.note_end(client, is_lost, session, ids, &newest(sources), now);
    }
}

/// Passes a rejection to all plans (TRU-1).
pub(crate) fn pass_rejection(
    context: &StreamContext,
    node: Option<&Arc<Node>>,
    session: &Session,
    sources: &OwnSources,
    now: Time,
) {
    if context.shared.plans.is_empty() {
        return;
    }
    for plan in context.shared.plans.all().iter().filter(|plan| hears_of(plan, context)) {
        let Some(watched) = plan.watched() else {
            if let Some(node) = node.filter(|_| keeps_push_of(sources, plan)) {
                plan.note_late_rejecter(node.id.as_str().into());
            }
            continue;
        };
        let ids = sources.iter().map(|(id, _)| *id);
        let client = StreamClient { stream: context.id, node: node.cloned() };
        if watched.note_rejection(client, session, ids, &newest(sources), now) {
            plan.note_rejected();
        }
    }
}

/// Whether a plan hears of the client. Relays are no evidence for or against a push, except where a plan
/// holds pushes back from them (TIR-1).
fn hears_of(plan: &PlanHandle, context: &StreamContext) -> bool {
    !context.is_relay() || plan.plan().relays
}

/// Whether the client keeps the halted push of a plan (WAV-16).
fn keeps_push_of(sources: &OwnSources, plan: &Arc<PlanHandle>) -> bool {
    let admission = plan.admission();
    let is_kept = |source: &SourceHandle| {
        source.judge().is_some_and(|judge| Arc::ptr_eq(&judge, plan))
            && source.published().candidate_of(admission.push).is_some()
    };
    admission.holders_only
        && sources.served_push() == Some(admission.push)
        && sources.iter().any(|(_, source)| is_kept(source))
}

/// Counts a lost stream at the sources of all types with a recent response.
pub(crate) fn count_loss(session: &Session, sources: &OwnSources, now: Time) {
    for subscription in session.subscriptions() {
        if subscription.nonces.sent_at().is_none_or(|sent| now.since(sent) > LOST_WITHIN) {
            continue;
        }
        let has_part = |id| subscription.parts.iter().any(|part| part.source() == id);
        for (_, source) in sources.iter().filter(|(id, _)| has_part(*id)) {
            source.losses.add(&subscription.type_url, now);
        }
    }
}
