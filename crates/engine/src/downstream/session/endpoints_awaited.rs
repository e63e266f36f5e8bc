//! The endpoints of new clusters, which go before the routes (ORD-13, ADR 55).
//!
//! Envoy asks for the endpoints of a cluster after the arrival of the cluster, and does not use the cluster before the arrival of the endpoints. A
//! route that arrives in between finds no cluster. Payloads are opaque, so all routing types wait: until the client has
//! been sent the endpoints of all new clusters, or the source knows that there are none, or the client has answered
//! for the clusters and not asked for the endpoints.

use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::downstream::order::turn::Turn;
use crate::downstream::session::Session;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::nonces::Verdict;
use crate::view::View;
use sluice_xds::{Kind, ResourceName, TypeUrl};

/// The maximum wait. A server with known endpoints sends the endpoints within a few round trips, and until then the client uses the
/// former route.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The wait for a request after the client's answer for the clusters. Envoy asks before the answer; other clients may do so
/// right after.
const ASK_MAX: Duration = Duration::from_millis(100);

/// The endpoints that the client is sent before its routes.
#[derive(Debug)]
pub struct EndpointsAwaited {
    since: Time,
    /// The nonce of the latest message with new clusters.
    nonce: u64,
    /// The time of the client's answer to the message.
    answered_at: Option<Time>,
    /// The lists belong to the encoded answers, and all clients with the same answer share them. Each with the number of names that
    /// need no more wait.
    lists: Vec<(Arc<[ResourceName]>, usize)>,
}

impl Session {
    /// Notes that the client was sent clusters with these endpoints. `is_first`: the client was sent none before on the stream.
    pub(super) fn await_endpoints(
        &mut self,
        endpoints: &Arc<[ResourceName]>,
        nonce: u64,
        is_first: bool,
        now: Time,
    ) {
        // Without a request for endpoints so far: with the first clusters, Envoy asks for routes after the endpoints.
        let asks = endpoint_types(&self.subscriptions).next().is_some();
        let is_without = !asks && (is_first || self.is_without_endpoints);
        // Another relay keeps the order towards its own clients.
        if is_without || self.kind.marks || self.kind.service.is_some() {
            return;
        }
        let subscriptions = &self.subscriptions;
        let is_held = |name: &ResourceName| {
            endpoint_types(subscriptions).any(|of| of.parts.iter().any(|part| part.held.has(name)))
        };
        let Some(next) = endpoints.iter().position(|name| !is_held(name)) else { return };
        let is_over = |awaited: &mut Box<EndpointsAwaited>| {
            let mut left = awaited.lists.iter().flat_map(|(list, next)| &list[*next..]);
            awaited.since + WAIT_MAX <= now || left.all(is_held)
        };
        self.endpoints_awaited.take_if(is_over);
        let awaited = self.endpoints_awaited.get_or_insert_with(|| {
            Box::new(EndpointsAwaited { since: now, nonce, answered_at: None, lists: Vec::new() })
        });
        (awaited.nonce, awaited.answered_at) = (nonce, None);
        if awaited.lists.last().is_none_or(|(last, _)| !Arc::ptr_eq(last, endpoints)) {
            awaited.lists.push((endpoints.clone(), next));
        }
    }

    /// Notes a request: the client's answer for clusters, or the first request for endpoints.
    pub(super) fn note_endpoints_asked(
        &mut self,
        type_url: &TypeUrl,
        nonce: Option<u64>,
        verdict: &Verdict,
        now: Time,
    ) {
        match type_url.kind() {
            Kind::ClusterLoadAssignment => self.is_without_endpoints = false,
            Kind::Cluster if matches!(verdict, Verdict::Ack { .. } | Verdict::Nack { .. }) => {
                // The client has answered clusters with endpoints, and has not asked for any.
                if self.endpoints_due.is_some() {
                    (self.is_without_endpoints, self.endpoints_awaited) = (true, None);
                }
                if let Some(awaited) =
                    self.endpoints_awaited.as_mut().filter(|awaited| nonce >= Some(awaited.nonce))
                {
                    awaited.answer(now);
                }
            }
            _ => {}
        }
    }

    /// The end of the wait for endpoints; `None` if the routing types need not wait for any.
    pub(super) fn endpoints_until(&mut self, turn: &Turn<'_>) -> Option<Time> {
        let awaited = self.endpoints_awaited.as_deref_mut()?;
        let until = awaited.follow(&self.subscriptions, turn);
        if until.is_none() {
            self.endpoints_awaited = None;
        }
        until
    }

    /// The type of the endpoints that the routing types wait for; for reports.
    pub(super) fn endpoints_before(&self, now: Time) -> Option<&TypeUrl> {
        self.endpoints_awaited.as_ref().filter(|awaited| awaited.since + WAIT_MAX > now)?;
        endpoint_types(&self.subscriptions).map(|of| &of.type_url).next()
    }
}

fn endpoint_types(subscriptions: &[Subscription]) -> impl Iterator<Item = &Subscription> {
    subscriptions.iter().filter(|of| of.type_url.kind() == Kind::ClusterLoadAssignment)
}

impl EndpointsAwaited {
    /// Notes that the client has answered the clusters.
    pub(super) fn answer(&mut self, now: Time) {
        self.answered_at.get_or_insert(now);
    }

    fn follow(&mut self, subscriptions: &[Subscription], turn: &Turn<'_>) -> Option<Time> {
        let end = self.since + WAIT_MAX;
        if end <= turn.now {
            return None;
        }
        let ask_end = self.answered_at.map_or(end, |answered_at| answered_at + ASK_MAX);
        let needs_wait = |name: &ResourceName| {
            let mut types = endpoint_types(subscriptions).peekable();
            let is_open = ask_end > turn.now;
            let asked = types.find_map(|of| of.lacks(name, turn));
            asked.unwrap_or(is_open)
        };
        for (list, next) in &mut self.lists {
            *next += list[*next..].iter().take_while(|name| !needs_wait(name)).count();
        }
        self.lists.retain(|(list, next)| *next < list.len());
        let name = self.lists.first().and_then(|(list, next)| list.get(*next))?;
        let is_asked = endpoint_types(subscriptions).any(|of| of.lacks(name, turn).is_some());
        Some(if is_asked { end } else { end.min(ask_end) })
    }
}

impl Subscription {
    /// Whether the client asks for a name, and was not sent its content. `None` if it does not ask for the name. Not lacking is
    /// a name without content.
    fn lacks(&self, name: &ResourceName, turn: &Turn<'_>) -> Option<bool> {
        let mut parts = self.parts.iter().filter(|part| part.collection.covers(name)).peekable();
        parts.peek()?;
        Some(parts.all(|part| {
            let is_gone = |view: &Arc<View>| {
                !view.has(name) && (view.knows_gone(name) || part.is_wildcard() && view.is_complete())
            };
            !part.held.has(name) && !part.view_in(turn, &self.type_url).is_some_and(is_gone)
        }))
    }
}
