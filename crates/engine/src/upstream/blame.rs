//! Finds the type for which a server ended a stream.
//!
//! Some control planes end the whole stream after a request for a type that they lack (go-control-plane's mux
//! without a cache for the type). Requests for the type on each stream would interrupt all other types of the
//! class. So the machine finds the type, and [`crate::source::Streams`] moves the type to a stream of
//! its own.
//!
//! Only a status of the server's own blames a type: not the end of a connection, not a GOAWAY, not the end of
//! a stream that the server asked the relay to leave. The type must have been requested a moment before, and
//! have no answer. In addition, the server must have answered something else on the stream or on an earlier
//! stream, or the status must name the type. Types that owe an answer are blamed before types for which the
//! server may have no news. If no stream has an answer, the types are asked for one after the other
//! ([`super::one_by_one`]).

use std::time::Duration;

use super::health::ServerHealth;
use super::stream::ServerStream;
use super::type_request::TypeRequest;
use super::type_requests::TypeRequests;
use crate::Time;
use sluice_xds::{Status, TypeUrl};

/// The maximum time between the request and the blamed end. A server ends the stream when it reads the
/// request; the rest is for slow networks and handlers.
pub const SOON: Duration = Duration::from_secs(5);

/// The types for which the server may have ended the stream with this status.
pub(super) fn blamed_types(
    requests: &TypeRequests,
    stream: &ServerStream,
    health: &ServerHealth,
    status: &Status,
    now: Time,
) -> Vec<TypeUrl> {
    if stream.evidence.is_dismissed {
        return Vec::new();
    }
    let asked: Vec<_> = requests.iter().filter(|subscription| is_asked_soon(subscription, now)).collect();
    let asked_types = |is_meant: &dyn Fn(&TypeRequest) -> bool| -> Vec<TypeUrl> {
        let types = asked.iter().filter(|subscription| is_meant(subscription));
        types.map(|subscription| subscription.type_url.clone()).collect()
    };
    let named = asked_types(&|subscription| names_type(&status.message, &subscription.type_url));
    // For types that were requested anew with held versions, silence is an answer.
    let owing = asked_types(&|subscription| !subscription.exchange.requests.may_be_silent);
    let has_answered = stream.evidence.answered.is_some();
    let blamed = match (named.is_empty(), owing.is_empty()) {
        (false, _) => named,
        (true, _) if health.is_careful(stream) => {
            asked_types(&|subscription| stream.sequence.culprit() == Some(&subscription.type_url))
        }
        (true, false) if has_answered || health.has_spoken => owing,
        (true, _) if has_answered => asked_types(&|_| true),
        (true, _) => Vec::new(),
    };
    // Without other wanted types there is nothing to protect.
    let is_all = requests.wanted_types().all(|subscription| blamed.contains(&subscription.type_url));
    if is_all { Vec::new() } else { blamed }
}

/// Returns true if a recent request for a type has no answer.
pub(super) fn was_asked_soon(requests: &TypeRequests, now: Time) -> bool {
    requests.iter().any(|subscription| is_asked_soon(subscription, now))
}

fn is_asked_soon(subscription: &TypeRequest, now: Time) -> bool {
    let unanswered = subscription.exchange.requests.unanswered;
    !subscription.wants_nothing() && unanswered.is_some_and(|at| now.since(at) <= SOON)
}

/// Returns true if a text names a type, and not only a longer name with the same beginning.
fn names_type(text: &str, type_url: &TypeUrl) -> bool {
    let name = type_url.message();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let ends = text.match_indices(name).map(|(at, _)| text[at + name.len()..].chars());
    !name.is_empty()
        && ends.into_iter().any(|mut rest| match rest.next() {
            // A full stop may end the sentence.
            Some('.') => !rest.next().is_some_and(is_part),
            Some(next) => !is_part(next),
            None => true,
        })
}
