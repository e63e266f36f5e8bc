//! The rate of a stream's changes of subscription, and the requests over the rate (FD4, ADR 66).
//!
//! Only lists of names are delayed. The verdicts of the same requests are taken at once, so that the client
//! is served meanwhile. A newer list of a type takes the place of a delayed list: the client is slowed down,
//! and does not fall behind.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::driver::api::downstream::{Charge, ConnectionCut};
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::rate::{Limiter, RateDecision, SharedNames};
use crate::driver::stream::context::StreamContext;
use crate::telemetry::Limit;
use sluice_engine::Time;
use sluice_engine::downstream::{Portion, Session};
use sluice_wire::NAME_IN_REQUEST_BYTES;
use sluice_xds::{DeltaRequest, Node, Request, ResourceName, SotwRequest, Status, TypeUrl};

/// The longest delay between two changes of a client over its rate. A longer silence could be taken for a
/// hung relay.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The most names of delta requests in one portion: the default limit for one request.
const MERGED_NAMES_MAX: usize = 100_000;

/// The memory of a delayed request beside the names, roughly.
const REQUEST_BYTES: usize = 512;

/// The rate of changes of a stream.
pub(crate) struct ChangeRate {
    limiter: Limiter,
    /// The requests that wait for the limiter. Boxed: few streams have any.
    delayed: Option<Box<DelayedRequests>>,
}

/// A request over the rate of changes, after a look.
pub(crate) struct Split {
    /// The part of the request to take now.
    pub due: Option<(Request, Portion)>,
    /// The rest of the request is the first that waits: no task takes the delayed requests yet.
    pub is_first: bool,
}

impl Split {
    fn due(request: Request, portion: Portion) -> Split {
        Split { due: Some((request, portion)), is_first: false }
    }
}

impl ChangeRate {
    pub fn new(shared: &DriverContext) -> ChangeRate {
        ChangeRate { limiter: shared.changes_limiter(), delayed: None }
    }

    pub fn configure(&mut self, per_second: u32, burst: u32) {
        self.limiter.configure(per_second, burst);
    }

    /// Whether changes of subscription have to wait. `shared`: the names of the connection.
    pub fn is_over(&self, shared: &SharedNames, now: Time) -> bool {
        self.delayed.is_some() || !self.wait(shared, now).is_zero()
    }

    fn wait(&self, shared: &SharedNames, now: Time) -> Duration {
        self.limiter.wait(now).max(self.limiter.wait_shared(shared, now))
    }

    /// Charges a taken request with `names` names.
    pub fn charge(&mut self, names: usize, shared: &SharedNames, now: Time) {
        self.limiter.charge(names, now);
        self.limiter.charge_shared(names, shared, now);
    }

    /// When the next request may be read after a rejection or a report.
    pub fn admit_report(&mut self, now: Time) -> RateDecision {
        self.limiter.admit_report(now)
    }

    /// The types with delayed requests, each since the oldest request.
    pub fn delayed_types(&self) -> impl Iterator<Item = (&TypeUrl, Time)> {
        self.delayed.iter().flat_map(|delayed| delayed.types())
    }

    /// Lets the lists of a request over the rate wait, unless nothing changes.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the names are too many for the connection's budget.
    pub fn split(
        &mut self,
        context: &StreamContext,
        session: &Session,
        node: Option<&Node>,
        mut request: Request,
        now: Time,
    ) -> Result<Split, Status> {
        let Ok(url) = session.type_of(&request) else { return Ok(Split::due(request, Portion::Whole)) };
        let type_url = TypeUrl::new(url);
        let is_moved = is_moved_by(node, &request);
        if !is_moved && !session.is_change(url, &request) {
            let portion = self.pass_by(&type_url, &request);
            return Ok(Split::due(request, portion));
        }
        context.note_delay(Limit::ChangesPerSecond, node);
        context.shared.metrics.of_type(&type_url).request();
        if !is_moved {
            *node_of(&mut request) = None;
        }
        let verdict = session.has_type(type_url.as_str()).then(|| verdict_of(&mut request)).flatten();
        let is_first = self.delayed.is_none();
        let new = || Box::new(DelayedRequests::new(&context.peer.connection, now));
        let put = self.delayed.get_or_insert_with(new).put(type_url, request, now);
        put.inspect_err(|_| context.shared.metrics.limit_hit(Limit::ConnectionBytes))?;
        Ok(Split { due: verdict.map(|verdict| (verdict, Portion::Verdict)), is_first })
    }

    /// The portion of a request without a change to take beside the delayed requests of the type.
    fn pass_by(&mut self, type_url: &TypeUrl, request: &Request) -> Portion {
        match (self.delayed.as_mut().filter(|delayed| delayed.has(type_url)), request) {
            (None, _) => Portion::Whole,
            (Some(delayed), Request::Sotw(_)) => {
                delayed.withdraw(type_url);
                Portion::Whole
            }
            (Some(delayed), Request::Delta(_)) => {
                delayed.count(type_url);
                Portion::Verdict
            }
        }
    }

    /// When the next delayed request may be taken; `None` if none waits any more.
    pub fn next_turn(&mut self, shared: &SharedNames, now: Time) -> Option<Time> {
        let delayed = self.delayed.as_ref().filter(|delayed| !delayed.lists.is_empty());
        let Some(from) = delayed.map(|delayed| delayed.from) else {
            self.delayed = None;
            return None;
        };
        Some((now + self.wait(shared, now)).min(from + LONGEST_PAUSE))
    }

    /// Drops the delayed requests, because the stream ends.
    pub fn give_up(&mut self) {
        self.delayed = None;
    }

    /// Takes the next delayed request if the turn has come.
    pub fn next(&mut self, shared: &SharedNames, now: Time) -> Option<DueRequest> {
        if self.next_turn(shared, now).is_none_or(|turn| turn > now) {
            return None;
        }
        self.delayed.as_mut()?.next(now)
    }
}

/// Whether the node of a request moves the names of a stream with another node (RLY-16).
fn is_moved_by(node: Option<&Node>, request: &Request) -> bool {
    let Some((node, newer)) = node.zip(request.node()) else { return false };
    node.dynamic_parameters != newer.dynamic_parameters
}

/// A delayed request whose turn has come.
#[derive(Debug, PartialEq)]
pub(crate) struct DueRequest {
    pub request: Request,
    /// The number of merged requests.
    pub requests: u64,
}

/// The delayed lists in the order of arrival; a newer list has the place of the list before it.
#[derive(Debug)]
struct DelayedRequests {
    lists: VecDeque<DelayedList>,
    /// The newest node with other dynamic parameters than the stream's.
    node: Option<Box<Node>>,
    /// When the last change was taken.
    from: Time,
    bytes: usize,
    charge: Charge,
}

#[derive(Debug)]
struct DelayedList {
    type_url: TypeUrl,
    since: Time,
    /// The number of requests complete with the list.
    requests: u64,
    bytes: usize,
    names: DelayedNames,
}

#[derive(Debug)]
enum DelayedNames {
    Sotw(SotwRequest),
    /// The names to subscribe to, and the names to give up (false). The rest of the first request stands
    /// beside the names.
    Delta(DeltaRequest, BTreeMap<ResourceName, bool>),
}

fn weight(name: &ResourceName) -> usize {
    name.as_str().len() + NAME_IN_REQUEST_BYTES
}

impl DelayedNames {
    /// The names of a request, and the weight of the names.
    fn of(request: Request) -> (DelayedNames, usize) {
        match request {
            Request::Sotw(request) => {
                let bytes = request.resource_names.iter().map(weight).sum();
                (DelayedNames::Sotw(request), bytes)
            }
            Request::Delta(mut request) => {
                let (mut names, mut bytes) = (BTreeMap::new(), 0);
                add(&mut names, &mut request, &mut bytes);
                bytes +=
                    request.initial_resource_versions.iter().map(|(name, _)| weight(name)).sum::<usize>();
                (DelayedNames::Delta(request, names), bytes)
            }
        }
    }

    fn into_request(self) -> Request {
        match self {
            DelayedNames::Sotw(request) => Request::Sotw(request),
            DelayedNames::Delta(mut request, names) => {
                let (subscribe, unsubscribe): (Vec<_>, Vec<_>) =
                    names.into_iter().partition(|(_, subscribes)| *subscribes);
                request.subscribe = subscribe.into_iter().map(|(name, _)| name).collect();
                request.unsubscribe = unsubscribe.into_iter().map(|(name, _)| name).collect();
                Request::Delta(request)
            }
        }
    }
}

/// Adds the names of a later request: the later word about a name replaces the earlier word. Within a
/// request, giving up comes last (DEL-4).
fn add(names: &mut BTreeMap<ResourceName, bool>, request: &mut DeltaRequest, bytes: &mut usize) {
    let subscribe = std::mem::take(&mut request.subscribe).into_iter().map(|name| (name, true));
    let unsubscribe = std::mem::take(&mut request.unsubscribe).into_iter().map(|name| (name, false));
    for (name, subscribes) in subscribe.chain(unsubscribe) {
        let size = weight(&name);
        if names.insert(name, subscribes).is_none() {
            *bytes += size;
        }
    }
}

impl DelayedList {
    /// Takes a later request of the type in; gives the request back if the request has to wait alone.
    fn join(&mut self, request: Request) -> Option<Request> {
        match (&mut self.names, request) {
            (DelayedNames::Sotw(newest), Request::Sotw(request)) => {
                self.bytes = request.resource_names.iter().map(weight).sum();
                *newest = request;
                None
            }
            // An empty first request may mean the wildcard (DEL-6), which more names keep (DEL-7).
            (DelayedNames::Delta(_, names), Request::Delta(mut request))
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

impl DelayedRequests {
    pub fn new(connection: &ConnectionCut, now: Time) -> DelayedRequests {
        let charge = Charge::new(connection);
        DelayedRequests { lists: VecDeque::new(), node: None, from: now, bytes: 0, charge }
    }

    pub fn has(&self, type_url: &TypeUrl) -> bool {
        self.lists.iter().any(|list| list.type_url == *type_url)
    }

    pub fn types(&self) -> impl Iterator<Item = (&TypeUrl, Time)> {
        self.lists.iter().map(|list| (&list.type_url, list.since))
    }

    /// Takes a request without the verdict.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the names are too many for the connection's budget.
    pub fn put(&mut self, type_url: TypeUrl, mut request: Request, now: Time) -> Result<(), Status> {
        let node = node_of(&mut request).take();
        self.node = node.or(self.node.take());
        let mut rest = Some(request);
        if let Some(list) = self.lists.iter_mut().rfind(|list| list.type_url == type_url) {
            self.bytes -= list.bytes;
            rest = rest.and_then(|request| list.join(request));
            self.bytes += list.bytes;
            list.requests += u64::from(rest.is_none());
        }
        if let Some(request) = rest {
            let (names, bytes) = DelayedNames::of(request);
            let bytes = bytes + REQUEST_BYTES;
            self.bytes += bytes;
            self.lists.push_back(DelayedList { type_url, since: now, requests: 1, bytes, names });
        }
        self.charge.set(self.bytes)
    }

    /// Counts a request without names behind the delayed requests.
    fn count(&mut self, type_url: &TypeUrl) {
        if let Some(list) = self.lists.iter_mut().rfind(|list| list.type_url == *type_url) {
            list.requests += 1;
        }
    }

    /// Drops the delayed lists of a type, because the client is back at the taken list.
    fn withdraw(&mut self, type_url: &TypeUrl) {
        self.lists.retain(|list| list.type_url != *type_url);
        self.recharge();
    }

    fn next(&mut self, now: Time) -> Option<DueRequest> {
        let DelayedList { names, requests, .. } = self.lists.pop_front()?;
        self.from = now;
        self.recharge();
        let mut request = names.into_request();
        *node_of(&mut request) = self.node.take();
        Some(DueRequest { request, requests })
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

fn node_of(request: &mut Request) -> &mut Option<Box<Node>> {
    match request {
        Request::Sotw(request) => &mut request.node,
        Request::Delta(request) => &mut request.node,
    }
}
