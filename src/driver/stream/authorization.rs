//! The decision about a stream, and its denials (AUT-1 to AUT-13).

use std::sync::Arc;

use tracing::debug;

use crate::driver::stream::context::{StreamContext, node_id};
use crate::telemetry::events::tell;
use sluice_engine::authorization::{Decision, Denial, Denials, Grant, Mode};
use sluice_engine::downstream::{Regrant, Session};
use sluice_xds::{Code, Node, Status};

/// Judges a stream by the policy in force.
///
/// # Errors
/// The status with which the stream must end.
pub(crate) fn decide(context: &StreamContext, node: Option<&Node>) -> Result<Arc<Grant>, Status> {
    let policy = context.shared.policy();
    let Decision { grant, denial, rule } = policy.decide(context.peer.claimant(), node);
    let Some(denial) = denial else { return Ok(grant) };
    let name = rule.and_then(|index| policy.rules().get(index)).map(|rule| &*rule.name);
    note_first_denial(context, denial.clone(), name, node);
    match policy.mode() {
        Some(Mode::Report) | None => Ok(grant),
        Some(Mode::Enforce) => Err(denial.status(&context.peer.identity)),
    }
}

/// Puts a grant in force. Returns the status with which the stream must end, if it must.
pub(crate) fn regrant(
    context: &StreamContext,
    session: &mut Session,
    node: Option<&Node>,
    grant: Arc<Grant>,
) -> Option<Status> {
    let rule = grant.clone();
    match session.regrant(grant) {
        Regrant::Kept => None,
        Regrant::Lost(denial) => {
            let status = denial.status(&context.peer.identity);
            note_first_denial(context, denial, rule.rule(), node);
            Some(status)
        }
        Regrant::Gained => {
            let text = "a name that was denied before is allowed now; the client can ask again";
            Some(Status::new(Code::Unavailable, text))
        }
    }
}

fn note_first_denial(context: &StreamContext, denial: Denial, rule: Option<&str>, node: Option<&Node>) {
    note_denials(context, &Denials { first: denial, count: 1 }, rule, node);
}

/// Counts and logs the denials of a request.
pub(crate) fn note_denials(
    context: &StreamContext,
    denials: &Denials,
    rule: Option<&str>,
    node: Option<&Node>,
) {
    let (denial, count) = (&denials.first, denials.count);
    context.shared.metrics.downstream.denied(denial.what(), count);
    let (identity, listener) = (&context.peer.identity, &*context.peer.listener);
    let node = node_id(node);
    let peer = context.peer.address.map(tracing::field::display);
    let reason = denial.status(identity).message;
    let rule = rule.unwrap_or("none");
    if !context.shared.once.denials.is_first(identity) {
        debug!(%identity, listener, peer, node, stream = context.id, rule, count, reason, "a client was denied");
        return;
    }
    let events = &context.shared.metrics.events;
    if context.shared.policy().mode() == Some(Mode::Report) {
        tell!(events, warn(Client, "authorization would deny a client")
            .of_client(context.id, node, context.peer.address).at_listener(&context.peer.listener).detail(&reason);
            { %identity, listener, peer, node, stream = context.id, rule, count, reason }
            + "; `mode: report` serves it all the same. Further denials of this identity are only counted");
    } else {
        tell!(events, warn(Client, "authorization denied a client")
            .of_client(context.id, node, context.peer.address).at_listener(&context.peer.listener).detail(&reason);
            { %identity, listener, peer, node, stream = context.id, rule, count, reason }
            + "; further denials of this identity are only counted");
    }
}
