//! The waiting requests of a stream over the rate of changes (FD4, ADR 66).
//!
//! Only lists of names wait. The verdicts of the same requests are taken at once, so that the client is served
//! meanwhile. A newer list of a type takes the place of a waiting list: the client is slowed down, and does not fall behind.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Weak;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::driver::api::downstream::{Charge, ConnectionCut};
use crate::driver::ground::registry::lock;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::requests::Taken;
use crate::driver::stream::state::{Guard, Inner, Stream, StreamState};
use crate::engine::Time;
use crate::engine::downstream::Portion;
use crate::telemetry::Limit;
use crate::wire::NAME_IN_REQUEST_BYTES;
use crate::xds::{DeltaRequest, Node, Request, ResourceName, SotwRequest, Status, TypeUrl};

/// The longest delay between two changes of a client over its rate. A longer silence could be taken for a hung relay.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The most names of delta requests in one portion: the default limit for one request.
const MERGED_NAMES_MAX: usize = 100_000;

/// The memory of a waiting request beside its names, roughly.
const REQUEST_BYTES: usize = 512;

/// In the order of arrival; a newer list has the place of the list before it.
#[derive(Debug)]
pub(crate) struct Waiting {
    lists: VecDeque<WaitingList>,
    /// The newest node with other dynamic parameters than the stream's.
    node: Option<Box<Node>>,
    /// When the last change was taken.
    from: Time,
    bytes: usize,
    charge: Charge,
}

#[derive(Debug)]
struct WaitingList {
    type_url: TypeUrl,
    since: Time,
    /// The number of requests complete with the list.
    requests: u64,
    bytes: usize,
    names: Names,
}

#[derive(Debug)]
enum Names {
    Sotw(SotwRequest),
    /// The names to subscribe to, and the names to give up (false). The rest of the first request stands beside the names.
    Delta(DeltaRequest, BTreeMap<ResourceName, bool>),
}

fn weight(name: &ResourceName) -> usize {
    name.as_str().len() + NAME_IN_REQUEST_BYTES
}

impl Names {
    fn of(request: Request) -> (Names, usize) {
        match request {
            Request::Sotw(request) => {
                let bytes = request.resource_names.iter().map(weight).sum();
                (Names::Sotw(request), bytes)
            }
            Request::Delta(mut request) => {
                let (mut names, mut bytes) = (BTreeMap::new(), 0);
                add(&mut names, &mut request, &mut bytes);
                bytes +=
                    request.initial_resource_versions.iter().map(|(name, _)| weight(name)).sum::<usize>();
                (Names::Delta(request, names), bytes)
            }
        }
    }

    fn into_request(self) -> Request {
        match self {
            Names::Sotw(request) => Request::Sotw(request),
            Names::Delta(mut request, names) => {
                let (wanted, left): (Vec<_>, Vec<_>) = names.into_iter().partition(|(_, wanted)| *wanted);
                request.subscribe = wanted.into_iter().map(|(name, _)| name).collect();
                request.unsubscribe = left.into_iter().map(|(name, _)| name).collect();
                Request::Delta(request)
            }
        }
    }
}

/// Adds the names of a later request: the later word about a name replaces the earlier word. Within a request, giving up
/// comes last (DEL-4).
fn add(names: &mut BTreeMap<ResourceName, bool>, request: &mut DeltaRequest, bytes: &mut usize) {
    let wanted = std::mem::take(&mut request.subscribe).into_iter().map(|name| (name, true));
    let left = std::mem::take(&mut request.unsubscribe).into_iter().map(|name| (name, false));
    for (name, wanted) in wanted.chain(left) {
        let size = weight(&name);
        if names.insert(name, wanted).is_none() {
            *bytes += size;
        }
    }
}

impl WaitingList {
    /// Takes a later request of the type in; gives the request back if the request has to wait alone.
    fn join(&mut self, request: Request) -> Option<Request> {
        match (&mut self.names, request) {
            (Names::Sotw(newest), Request::Sotw(request)) => {
                self.bytes = request.resource_names.iter().map(weight).sum();
                *newest = request;
                None
            }
            // An empty first request may mean the wildcard (DEL-6), which more names keep (DEL-7).
            (Names::Delta(_, names), Request::Delta(mut request))
                if !names.is_empty()
                    && names.len() + request.subscribe.len() + request.unsubscribe.len()
                        <= MERGED_NAMES_MAX =>
            {
                add(names, &mut request, &mut self.bytes);
                None
            }
            (_, request) => Some(request),
        }
    }
}

impl Waiting {
    pub fn new(connection: &ConnectionCut, now: Time) -> Waiting {
        let charge = Charge::new(connection);
        Waiting { lists: VecDeque::new(), node: None, from: now, bytes: 0, charge }
    }

    pub fn has(&self, type_url: &TypeUrl) -> bool {
        self.lists.iter().any(|list| list.type_url == *type_url)
    }

    /// The types with waiting requests, each since the oldest request.
    pub fn types(&self) -> impl Iterator<Item = (&TypeUrl, Time)> {
        self.lists.iter().map(|list| (&list.type_url, list.since))
    }

    /// Takes a request without its verdict.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the names are too many for the connection's budget.
    pub fn put(&mut self, type_url: TypeUrl, mut request: Request, now: Time) -> Result<(), Status> {
        let node = match &mut request {
            Request::Sotw(request) => request.node.take(),
            Request::Delta(request) => request.node.take(),
        };
        self.node = node.or(self.node.take());
        let mut rest = Some(request);
        if let Some(list) = self.lists.iter_mut().rfind(|list| list.type_url == type_url) {
            self.bytes -= list.bytes;
            rest = rest.and_then(|request| list.join(request));
            self.bytes += list.bytes;
            list.requests += u64::from(rest.is_none());
        }
        if let Some(request) = rest {
            let (names, bytes) = Names::of(request);
            let bytes = bytes + REQUEST_BYTES;
            self.bytes += bytes;
            self.lists.push_back(WaitingList { type_url, since: now, requests: 1, bytes, names });
        }
        self.charge.set(self.bytes)
    }

    /// A request without names came after the waiting requests.
    fn count(&mut self, type_url: &TypeUrl) {
        if let Some(list) = self.lists.iter_mut().rfind(|list| list.type_url == *type_url) {
            list.requests += 1;
        }
    }

    /// The client is back at the taken list.
    fn withdraw(&mut self, type_url: &TypeUrl) {
        self.lists.retain(|list| list.type_url != *type_url);
        self.recharge();
    }

    /// The first request, and the number of requests in its place.
    fn next(&mut self, now: Time) -> Option<(Request, u64)> {
        let WaitingList { names, requests, .. } = self.lists.pop_front()?;
        self.from = now;
        self.recharge();
        let mut request = names.into_request();
        let node = self.node.take();
        match &mut request {
            Request::Sotw(request) => request.node = node,
            Request::Delta(request) => request.node = node,
        }
        Some((request, requests))
    }

    fn recharge(&mut self) {
        self.bytes = self.lists.iter().map(|list| list.bytes).sum();
        // Less is never refused.
        let _ = self.charge.set(self.bytes);
    }
}

/// Takes the verdict out of a request.
fn verdict_of(request: &mut Request) -> Option<Request> {
    match request {
        Request::Sotw(request) => {
            let verdict = SotwRequest {
                type_url: request.type_url.clone(),
                response_nonce: std::mem::take(&mut request.response_nonce),
                error_detail: request.error_detail.take(),
                ..SotwRequest::default()
            };
            let has_verdict = !verdict.response_nonce.is_empty() || verdict.error_detail.is_some();
            has_verdict.then_some(Request::Sotw(verdict))
        }
        Request::Delta(request) => {
            let verdict = DeltaRequest {
                type_url: request.type_url.clone(),
                response_nonce: std::mem::take(&mut request.response_nonce),
                error_detail: request.error_detail.take(),
                ..DeltaRequest::default()
            };
            let has_verdict = !verdict.response_nonce.is_empty() || verdict.error_detail.is_some();
            has_verdict.then_some(Request::Delta(verdict))
        }
    }
}

fn drop_node(request: &mut Request) {
    match request {
        Request::Sotw(request) => request.node = None,
        Request::Delta(request) => request.node = None,
    }
}

impl Inner {
    /// Whether changes of subscription have to wait.
    pub(crate) fn is_over_rate(&self, now: Time) -> bool {
        self.waiting.is_some() || !self.limiter.wait(now).is_zero()
    }

    /// Whether the node of a request moves the names of the stream (RLY-16).
    fn is_moved_by(&self, request: &Request) -> bool {
        let parameters = |node: &Node| node.dynamic_parameters.clone();
        let known = self.node.as_deref().map(parameters);
        request.node().is_some_and(|node| known.is_some_and(|known| known != node.dynamic_parameters))
    }

    /// When the next request may be taken; `None` if none waits any more.
    fn next_turn(&mut self, now: Time) -> Option<Time> {
        let is_over = self.end.is_some();
        let waiting = self.waiting.as_ref().filter(|waiting| !waiting.lists.is_empty() && !is_over);
        let Some(from) = waiting.map(|waiting| waiting.from) else {
            self.waiting = None;
            return None;
        };
        Some((now + self.limiter.wait(now)).min(from + LONGEST_PAUSE))
    }
}

impl StreamState {
    /// Lets the lists of a request over the rate wait, if they change anything. Returns the part to take now.
    pub(crate) fn set_aside(
        &self,
        inner: &mut Inner,
        mut request: Request,
        now: Time,
    ) -> Result<Option<(Request, Portion)>, Status> {
        let Ok(url) = inner.session.type_of(&request) else { return Ok(Some((request, Portion::Whole))) };
        let type_url = TypeUrl::new(url);
        let is_moved = inner.is_moved_by(&request);
        if !is_moved && !inner.session.is_change(url, &request) {
            let waiting = inner.waiting.as_mut().filter(|waiting| waiting.has(&type_url));
            let portion = match (waiting, &request) {
                (None, _) => Portion::Whole,
                (Some(waiting), Request::Sotw(_)) => {
                    waiting.withdraw(&type_url);
                    Portion::Whole
                }
                (Some(waiting), Request::Delta(_)) => {
                    waiting.count(&type_url);
                    Portion::Verdict
                }
            };
            return Ok(Some((request, portion)));
        }
        self.tell_delay(Limit::ChangesPerSecond, inner.node.as_deref());
        self.shared.metrics.of_type(&type_url).request();
        if !is_moved {
            drop_node(&mut request);
        }
        let verdict = inner.session.has_type(type_url.as_str()).then(|| verdict_of(&mut request)).flatten();
        let connection = &self.peer.connection;
        let is_first = inner.waiting.is_none();
        let waiting = inner.waiting.get_or_insert_with(|| Box::new(Waiting::new(connection, now)));
        waiting
            .put(type_url, request, now)
            .inspect_err(|_| self.shared.metrics.limit_hit(Limit::ConnectionBytes))?;
        if is_first {
            tokio::spawn(take_in_turn(self.guard.clone()));
        }
        Ok(verdict.map(|verdict| (verdict, Portion::Verdict)))
    }

    /// The time of the next request's turn; `None` if none waits any more.
    fn next_turn(&self) -> Option<Instant> {
        let turn = lock(&self.inner).next_turn(self.shared.clock.now());
        turn.map(|turn| self.shared.clock.instant(turn))
    }

    fn take_next(&self) -> Result<Option<Taken>, Status> {
        let (inner, now) = (&mut *lock(&self.inner), self.shared.clock.now());
        if inner.next_turn(now).is_none_or(|turn| turn > now) {
            return Ok(None);
        }
        let next = inner.waiting.as_mut().and_then(|waiting| waiting.next(now));
        let Some((request, requests)) = next else { return Ok(None) };
        self.take_portion(inner, &request, Portion::Waited(requests), now).map(Some)
    }

    /// The types with waiting requests, each since the oldest request.
    pub(crate) fn waiting_types(&self) -> Vec<(TypeUrl, Time)> {
        let inner = lock(&self.inner);
        let types = inner.waiting.iter().flat_map(|waiting| waiting.types());
        types.map(|(type_url, since)| (type_url.clone(), since)).collect()
    }
}

/// Takes the waiting requests at the rate of changes. Ends with the last request, or with the stream.
async fn take_in_turn(guard: Weak<Guard>) {
    while let Some(turn) = guard.upgrade().and_then(|guard| guard.0.next_turn()) {
        sleep_until(turn).await;
        // Keeps the stream open until all sources are told.
        let Some(stream) = guard.upgrade().map(Stream) else { return };
        let stream = stream.state();
        let watch_order = stream.lock_watch_order().await;
        let taken = stream.take_next();
        let followed = match taken {
            Ok(Some(taken)) => stream.follow_up(taken, watch_order).await,
            Ok(None) => Ok(()),
            Err(status) => Err(status),
        };
        if let Err(status) = followed {
            return Subscriber::end(&**stream, status);
        }
    }
}
