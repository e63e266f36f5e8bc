//! Requests of a client (STR-14).

use crate::Time;
use crate::downstream::session::Session;
use crate::downstream::session::limits::Excess;
use crate::downstream::session::router::{Router, Watch};
use crate::downstream::subscription::nonces::{Judged, Verdict};
use crate::downstream::subscription::{Change, Subscription};
use sluice_xds::service::is_v2_type;
use sluice_xds::xdstp::NameError;
use sluice_xds::{Code, Kind, Request, ResourceName, Status, StreamKind, TypeUrl};

/// The result of a request.
#[derive(Debug)]
pub struct RequestOutcome {
    pub type_url: TypeUrl,
    pub verdict: Verdict,
    /// The changes that the verdict settles.
    pub judged: Judged,
    pub watches: Vec<Watch>,
    /// The request changed the subscription, or a resend is due.
    pub changed: bool,
    /// The names that came or went. In delta, all names of the request.
    pub moved_names: usize,
    /// The request only reports something, and changes no collection.
    pub is_report: bool,
    /// The request has an error that rejects no response of the stream.
    pub reports_error: bool,
    /// The request is an ACK that makes nothing due, if the last look found no answer and the sources have published nothing since.
    pub rests: bool,
    /// A name of the request that cannot be served, with the reason (NAM-5). There may be more such names.
    pub refused: Option<(ResourceName, NameError)>,
}

impl RequestOutcome {
    fn report(type_url: TypeUrl, reports_error: bool) -> RequestOutcome {
        RequestOutcome {
            type_url,
            verdict: Verdict::None,
            judged: Judged::default(),
            watches: Vec::new(),
            changed: false,
            moved_names: 0,
            is_report: true,
            reports_error,
            rests: false,
            refused: None,
        }
    }

    /// Whether the rate limit counts the request: changes, rejections and reports count, ACKs do not.
    pub fn counts_as_change(&self) -> bool {
        self.changed || self.rejects_or_reports()
    }

    /// Whether the client could go on like this without a change of its subscription.
    pub fn rejects_or_reports(&self) -> bool {
        self.is_report || self.reports_error || matches!(self.verdict, Verdict::Nack { .. })
    }

    /// Whether the request needs no further work.
    pub fn is_settled(&self) -> bool {
        self.watches.is_empty() && !self.counts_as_change()
    }
}

/// The part of a request to take. Lists of names may have to wait for the rate of changes, verdicts never (ADR 66).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    Whole,
    /// The verdict on a response. The lists wait.
    Verdict,
    /// Lists that waited, of this many requests.
    Waited(u64),
}

impl Portion {
    /// The number of requests that are complete with this part.
    fn requests(self) -> u64 {
        match self {
            Portion::Whole => 1,
            Portion::Verdict => 0,
            Portion::Waited(requests) => requests,
        }
    }
}

/// The type of the health reports of Istio's agent. There are no resources of this type.
const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";

impl Session {
    /// Handles a request (STR-14). An error is the status that must end the stream.
    pub fn request(
        &mut self,
        request: &Request,
        router: &mut dyn Router,
        now: Time,
    ) -> Result<RequestOutcome, Status> {
        self.request_portion(request, Portion::Whole, router, now)
    }

    /// As [`Session::request`], for a request that may be taken in parts.
    pub fn request_portion(
        &mut self,
        request: &Request,
        portion: Portion,
        router: &mut dyn Router,
        now: Time,
    ) -> Result<RequestOutcome, Status> {
        let (nonce, error) = match request {
            Request::Sotw(request) => (&request.response_nonce, &request.error_detail),
            Request::Delta(request) => (&request.response_nonce, &request.error_detail),
        };
        let url = self.type_of(request)?;
        let reports_error = error.is_some() && nonce.is_empty();
        if url == HEALTH || (reports_error && self.changes_nothing(url, request)) {
            return Ok(RequestOutcome::report(TypeUrl::new(url), reports_error));
        }
        let index = self.subscription_index(url)?;
        let nonce_number = self.parse_nonce(nonce);
        let is_at_rest = self.is_at_rest(index);
        let subscription = &mut self.subscriptions[index];
        let type_url = subscription.type_url.clone();
        let is_first = subscription.is_new();
        // The first request of a type is initial, with any nonce (STR-6).
        let (verdict, judged) = match (is_first, nonce.is_empty()) {
            (true, _) | (false, true) => (Verdict::None, Judged::default()),
            (false, false) => {
                let error = error.clone().map(|error| error.of_nack(&type_url));
                subscription.judge(nonce_number, error, now)
            }
        };
        let sends_again = subscription.take_verdict(nonce_number, &verdict, &judged, self.kind.variant);
        if is_first {
            subscription.nonces.since = now;
            subscription.interest.legacy_wildcard = router.legacy_wildcard(&type_url)?;
            subscription.interest.features = router.client_features(&type_url);
        }
        let change = self.take_lists(index, request, portion, router);
        let (forces, moved_names) = match request {
            Request::Sotw(_) => (false, change.moved),
            Request::Delta(delta) => (delta.asks(), request.names_len()),
        };
        let changed = is_first || forces || sends_again || change != Change::default();
        self.judge(index, request, &change)?;
        // Nearly all requests are ACKs.
        let watches = if changed { self.apply(index, change, router)? } else { Vec::new() };
        if is_first {
            self.begin(index, request, router, now);
        }
        self.note_endpoints_asked(&type_url, nonce_number, &verdict, now);
        let news = self.subscriptions[index].refusals().and_then(|refusals| refusals.malformed_news().next());
        let refused = news.filter(|_| changed).map(|(name, error)| (name.clone(), error.clone()));
        let (is_report, is_ack) = (false, matches!(verdict, Verdict::Ack { .. }));
        Ok(RequestOutcome {
            type_url,
            verdict,
            judged,
            watches,
            changed,
            moved_names,
            is_report,
            reports_error,
            rests: is_at_rest && is_ack && !changed,
            refused,
        })
    }

    /// Takes the client's content from elsewhere, by its first request of a type, after its lists.
    fn begin(&mut self, index: usize, request: &Request, router: &mut dyn Router, now: Time) {
        let Some(subscription) = self.subscriptions.get_mut(index) else { return };
        match request {
            Request::Sotw(request) => subscription.begin(request, now),
            Request::Delta(request) => {
                let share = |view| router.presented(view);
                subscription.present(&request.initial_resource_versions, self.seed, &share);
            }
        }
        let is_of_endpoints = subscription.type_url.kind() == Kind::ClusterLoadAssignment;
        self.note_returning();
        if is_of_endpoints {
            self.settle_endpoints_due(index, now);
        }
    }

    fn take_lists(
        &mut self,
        index: usize,
        request: &Request,
        portion: Portion,
        router: &mut dyn Router,
    ) -> Change {
        if portion == Portion::Verdict {
            return Change::default();
        }
        let Some(subscription) = self.subscriptions.get_mut(index) else { return Change::default() };
        let type_url = subscription.type_url.clone();
        let group_of = |name: &ResourceName| router.group_of(&type_url, Some(name));
        match request {
            Request::Sotw(request) => subscription.take_sotw(request, self.seed, &group_of, &self.grant),
            Request::Delta(request) => {
                if self.kind.marks {
                    subscription.note_marked_requests(portion.requests(), request);
                }
                if !request.asks() && !subscription.is_new() {
                    return Change::default();
                }
                subscription.take_delta(request, self.seed, &group_of, &self.grant)
            }
        }
    }

    /// The type of a request.
    ///
    /// # Errors
    /// The status that must end the stream.
    pub fn type_of<'a>(&self, request: &'a Request) -> Result<&'a str, Status> {
        type_of(self.kind, request.type_url())
    }

    /// Whether a request of the type was taken.
    pub fn has_type(&self, url: &str) -> bool {
        self.subscriptions.iter().any(|subscription| subscription.type_url.as_str() == url)
    }

    /// Whether the lists of a request of this type change the client's collections. Reports change none.
    pub fn is_change(&self, url: &str, request: &Request) -> bool {
        if url == HEALTH {
            return false;
        }
        let subscription = self.subscriptions.iter().find(|of| of.type_url.as_str() == url);
        subscription.is_none_or(|subscription| match request {
            Request::Sotw(request) => !subscription.has_list(&request.resource_names, self.seed),
            Request::Delta(request) => request.asks(),
        })
    }

    /// Whether a request with an error and no nonce leaves the client's collections as they are. The first request of a type on
    /// a stream subscribes, whatever it reports (STR-6): Envoy opens a stream so if a NACK was waiting as the former
    /// stream ended. Later requests count by their names (ACK-7, DEL-2).
    fn changes_nothing(&self, url: &str, request: &Request) -> bool {
        request.names_len() == 0 && self.has_type(url)
    }

    fn subscription_index(&mut self, url: &str) -> Result<usize, Status> {
        if let Some(index) = self.subscriptions.iter().position(|s| s.type_url.as_str() == url) {
            return Ok(index);
        }
        if self.subscriptions.len() >= self.limits.types_per_stream {
            self.excess = Some(Excess::Types);
            let text = format!("more than {} types on one stream", self.limits.types_per_stream);
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        let type_url = TypeUrl::new(url);
        self.judge_type(&type_url)?;
        let index = self.subscriptions.partition_point(|s| s.type_url < type_url);
        self.subscriptions.reserve_exact(1);
        self.subscriptions.insert(index, Subscription::new(type_url));
        Ok(index)
    }

    /// Forces the endpoints of clusters that were sent before the first request for endpoints. The others are awaited: a client that
    /// comes again asks for the endpoints that it knows of, and for those of new clusters once it has read these.
    fn settle_endpoints_due(&mut self, index: usize, now: Time) {
        let Some(endpoints_due) = self.endpoints_due.take() else { return };
        if let Some(subscription) = self.subscriptions.get_mut(index) {
            endpoints_due.settle(subscription);
        }
        let mut clusters = self.subscriptions.iter().filter(|of| of.type_url.kind() == Kind::Cluster);
        let Some(clusters) = clusters.next() else { return };
        let (nonce, is_answered) =
            (clusters.nonces.latest().unwrap_or_default(), !clusters.nonces.is_waiting());
        for list in endpoints_due.lists() {
            self.await_endpoints(list, nonce, false, now);
        }
        if let Some(awaited) = self.endpoints_awaited.as_mut().filter(|_| is_answered) {
            awaited.answer(now);
        }
    }
}

/// The type of a request on a stream of this kind.
fn type_of(kind: StreamKind, url: &str) -> Result<&str, Status> {
    let refused = |text: String| Err(Status::new(Code::InvalidArgument, text));
    match kind.service {
        // On ADS only the request can name the type (RPC-5).
        None if url.is_empty() => {
            refused("type_url is empty: on an aggregated stream every request names its type".to_owned())
        }
        // The method determines the type (RPC-6).
        Some(service) if url.is_empty() => Ok(service.type_url(kind.api)),
        Some(service) if !service.carries(url) => {
            refused(format!("type_url is {url}: this method serves {}", service.type_url(kind.api)))
        }
        _ if is_v2_type(url) && !kind.v2 => Err(Status::new(
            Code::Unimplemented,
            format!("{url} is a type of the v2 API, which `v2: true` on the listener turns on"),
        )),
        _ => Ok(url),
    }
}
