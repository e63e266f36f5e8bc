//! The order of clusters, their endpoints and the routes.
//!
//! Endpoints are due because the client was sent their clusters before its first request for endpoints
//! (ORD-5, RLY-52). A reconnecting client may be sent a changed cluster first, and ask for the endpoints
//! later, with the versions that it holds. These versions equal ours, but the client waits for a response:
//! without a response the changed cluster stays warming.
//!
//! The endpoints of new clusters go before the routes (ORD-13, ADR 55). Envoy asks for the endpoints of a
//! cluster after the arrival of the cluster, and does not use the cluster before the arrival of the
//! endpoints. A route that arrives in between finds no cluster. Payloads are opaque, so all routing types
//! wait: until the client has been sent the endpoints of all new clusters, or the source knows that there are
//! none, or the client has answered for the clusters and not asked for the endpoints.

use std::sync::Arc;
use std::time::Duration;

use crate::Time;
use crate::downstream::order::turn::Turn;
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::nonces::Verdict;
use crate::view::View;
use sluice_xds::{Kind, ResourceName, TypeUrl};

/// The maximum wait. A server with known endpoints sends the endpoints within a few round trips, and until
/// then the client uses the former route.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The wait for a request after the client's answer for the clusters. Envoy asks before the answer; other
/// clients may do so right after.
const ASK_MAX: Duration = Duration::from_millis(100);

/// The endpoints that follow clusters of a client.
#[derive(Debug)]
pub(super) struct EndpointOrder {
    /// The endpoints of clusters that were sent before the first request for endpoints; `None` from that
    /// request on.
    due: Option<Box<EndpointsDue>>,
    /// The endpoints that go before the routes.
    awaited: Option<Box<EndpointsAwaited>>,
    /// The client has answered clusters with endpoints, and asks for no endpoints on the stream.
    is_without: bool,
}

impl EndpointOrder {
    pub(super) const fn new() -> EndpointOrder {
        EndpointOrder { due: None, awaited: None, is_without: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_none() && self.awaited.is_none() && !self.is_without
    }

    /// Whether the routing types may have to wait for endpoints.
    pub(super) fn are_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether the client has answered clusters with endpoints, and asks for no endpoints.
    pub(super) fn is_without(&self) -> bool {
        self.is_without
    }

    /// Notes endpoints for the first request for endpoints.
    pub(super) fn add_due(&mut self, endpoints: &Arc<[ResourceName]>) {
        self.due.get_or_insert_default().add(endpoints);
    }

    /// Forces the endpoints of clusters that were sent before the first request for endpoints, which is this.
    /// Returns the lists of endpoints; `None` if none are due.
    pub(super) fn settle_due(&mut self, subscription: &mut Subscription) -> Option<Vec<Arc<[ResourceName]>>> {
        let due = self.due.take()?;
        due.settle(subscription);
        Some(due.lists)
    }

    /// Notes that the client was sent clusters, and lacks their endpoints from the one at `next` on. `nonce`:
    /// that of the message.
    pub(super) fn wait_for(
        &mut self,
        subscriptions: &[Subscription],
        endpoints: &Arc<[ResourceName]>,
        next: usize,
        nonce: u64,
        now: Time,
    ) {
        let is_over = |awaited: &mut Box<EndpointsAwaited>| {
            let mut left = awaited.lists.iter().flat_map(|list| &list.names[list.next..]);
            awaited.since + WAIT_MAX <= now || left.all(|name| is_held(subscriptions, name))
        };
        self.awaited.take_if(is_over);
        let awaited = self.awaited.get_or_insert_with(|| {
            Box::new(EndpointsAwaited { since: now, nonce, answered_at: None, lists: Vec::new() })
        });
        (awaited.nonce, awaited.answered_at) = (nonce, None);
        if awaited.lists.last().is_none_or(|last| !Arc::ptr_eq(&last.names, endpoints)) {
            awaited.lists.push(AwaitedList { names: endpoints.clone(), next });
        }
    }

    /// Notes a request: the client's answer for clusters, or the first request for endpoints.
    pub(super) fn note_request(
        &mut self,
        type_url: &TypeUrl,
        nonce: Option<u64>,
        verdict: &Verdict,
        now: Time,
    ) {
        match type_url.kind() {
            Kind::ClusterLoadAssignment => self.is_without = false,
            Kind::Cluster if matches!(verdict, Verdict::Ack { .. } | Verdict::Nack { .. }) => {
                // The client has answered clusters with endpoints, and has not asked for any.
                if self.due.is_some() {
                    (self.is_without, self.awaited) = (true, None);
                }
                if let Some(awaited) = self.awaited.as_mut().filter(|awaited| nonce >= Some(awaited.nonce)) {
                    awaited.answer(now);
                }
            }
            _ => {}
        }
    }

    /// Notes that the client has answered the clusters before its first request for endpoints.
    pub(super) fn note_answered(&mut self, now: Time) {
        if let Some(awaited) = &mut self.awaited {
            awaited.answer(now);
        }
    }

    /// The end of the wait for endpoints; `None` if the routing types need not wait for any.
    pub(super) fn until(&mut self, subscriptions: &[Subscription], turn: &Turn<'_>) -> Option<Time> {
        let until = self.awaited.as_mut()?.follow(subscriptions, turn);
        self.awaited.take_if(|_| until.is_none());
        until
    }

    /// The type of the endpoints that the routing types wait for; for reports.
    pub(super) fn before_routes<'a>(
        &self,
        subscriptions: &'a [Subscription],
        now: Time,
    ) -> Option<&'a TypeUrl> {
        self.awaited.as_ref().filter(|awaited| awaited.since + WAIT_MAX > now)?;
        endpoint_types(subscriptions).map(|subscription| &subscription.type_url).next()
    }
}

/// Forces the endpoints of clusters that were just sent. Returns whether the client asks for endpoints.
pub(super) fn force(subscriptions: &mut [Subscription], endpoints: &[ResourceName]) -> bool {
    let mut is_asked_for = false;
    for subscription in subscriptions {
        if subscription.type_url.kind() == Kind::ClusterLoadAssignment {
            is_asked_for = true;
            endpoints.iter().for_each(|name| subscription.force(name));
        }
    }
    is_asked_for
}

/// The index of the first of these endpoints that the routes wait for. `is_without`: the client asked for no
/// endpoints so far, and need not do so: with the first clusters, Envoy asks for routes after the endpoints.
pub(super) fn first_awaited(
    subscriptions: &[Subscription],
    endpoints: &[ResourceName],
    is_without: bool,
) -> Option<usize> {
    if is_without && endpoint_types(subscriptions).next().is_none() {
        return None;
    }
    endpoints.iter().position(|name| !is_held(subscriptions, name))
}

fn is_held(subscriptions: &[Subscription], name: &ResourceName) -> bool {
    let mut types = endpoint_types(subscriptions);
    types.any(|subscription| subscription.parts.iter().any(|part| part.held.has(name)))
}

fn endpoint_types(subscriptions: &[Subscription]) -> impl Iterator<Item = &Subscription> {
    subscriptions.iter().filter(|subscription| subscription.type_url.kind() == Kind::ClusterLoadAssignment)
}

/// The endpoints that the client is sent before its routes.
#[derive(Debug)]
struct EndpointsAwaited {
    since: Time,
    /// The nonce of the latest message with new clusters.
    nonce: u64,
    /// The time of the client's answer to the message.
    answered_at: Option<Time>,
    lists: Vec<AwaitedList>,
}

/// The endpoints of one encoded answer of clusters. All clients with the same answer share the names.
#[derive(Debug)]
struct AwaitedList {
    names: Arc<[ResourceName]>,
    /// The number of names that need no more wait.
    next: usize,
}

impl EndpointsAwaited {
    /// Notes that the client has answered the clusters.
    fn answer(&mut self, now: Time) {
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
            let asked = types.find_map(|subscription| lacks(subscription, name, turn));
            asked.unwrap_or(is_open)
        };
        for AwaitedList { names, next } in &mut self.lists {
            *next += names[*next..].iter().take_while(|name| !needs_wait(name)).count();
        }
        self.lists.retain(|list| list.next < list.names.len());
        let name = self.lists.first().and_then(|list| list.names.get(list.next))?;
        let is_asked =
            endpoint_types(subscriptions).any(|subscription| lacks(subscription, name, turn).is_some());
        Some(if is_asked { end } else { end.min(ask_end) })
    }
}

/// Whether the client asks for a name, and was not sent its content. `None` if it does not ask for the name.
/// Not lacking is a name without content.
fn lacks(subscription: &Subscription, name: &ResourceName, turn: &Turn<'_>) -> Option<bool> {
    let mut parts = subscription.parts.iter().filter(|part| part.collection.covers(name)).peekable();
    parts.peek()?;
    Some(parts.all(|part| {
        let is_gone = |view: &Arc<View>| {
            !view.has(name) && (view.knows_gone(name) || part.is_wildcard() && view.is_complete())
        };
        !part.held.has(name) && !part.view_in(turn, &subscription.type_url).is_some_and(is_gone)
    }))
}

/// The maximum number of lists. A client asks for endpoints after one or a few answers of clusters. After
/// more answers the lists cost too much memory, and all presented endpoints are sent again.
const LISTS_MAX: usize = 16;

/// State until the first request for endpoints on the stream. The lists belong to the encoded answers, and
/// all clients with the same answer share them.
#[derive(Debug, Default)]
struct EndpointsDue {
    lists: Vec<Arc<[ResourceName]>>,
    /// The limit was exceeded: all presented endpoints are due.
    all: bool,
}

impl EndpointsDue {
    /// Adds the endpoints of clusters that were sent.
    fn add(&mut self, endpoints: &Arc<[ResourceName]>) {
        if self.all || self.lists.last().is_some_and(|last| Arc::ptr_eq(last, endpoints)) {
            return;
        }
        if self.lists.len() >= LISTS_MAX {
            (self.lists, self.all) = (Vec::new(), true);
            return;
        }
        // Mostly the only one.
        self.lists.reserve_exact(1);
        self.lists.push(endpoints.clone());
    }

    /// Forces the due endpoints. The first request for endpoints, with the presented versions, must be
    /// applied before.
    fn settle(&self, subscription: &mut Subscription) {
        if self.all {
            return subscription.force_all();
        }
        for name in self.lists.iter().flat_map(|list| list.iter()) {
            subscription.force(name);
        }
    }
}
