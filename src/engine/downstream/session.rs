//! One downstream stream.
//!
//! Requests go in with [`Session::request`]. The driver pulls answers with [`Session::poll_answer`] when
//! the stream can take a message, and reports each handover with [`Session::commit`]. Nothing is queued in
//! between: an answer is always built from the newest snapshot that order allows, and a slow client costs
//! O(names), never O(updates) (FLW-2, RLY-55).
//!
//! # Order
//!
//! Types are sent by rank (ORD-1), all from one snapshot per source. LDS, RDS and the types below them are
//! never built from a newer snapshot than the CDS and EDS of this stream (RLY-50). While the cluster side
//! has news that the client cannot be sent yet, the routing types wait, but not for ever (ORD-10).

use std::fmt::Write;
use std::sync::Arc;

use super::answer::{Answer, AnswerPart};
use super::dialect::told_at;
use super::flight::Verdict;
use super::order::{self, HOLD, Snapshots, Turn};
use super::owed::Owed;
use super::rest::Told;
use super::routing::{Router, Watch};
use super::spelling::Refusals;
use super::subscription::{Change, SourceId, Subscription};
use super::views::Views;
use crate::engine::Time;
use crate::engine::interest::{HashSeed, Interest};
use crate::engine::planted::{Bug, planted};
use crate::engine::snapshot::Snapshot;
use crate::engine::view::View;
use crate::xds::service::is_v2_type;
use crate::xds::xdstp::NameError;
use crate::xds::{Code, Kind, Request, ResourceName, Status, StreamKind, TypeUrl, Variant, Version};

/// Eight hexadecimal digits, a hyphen and a number of up to twenty digits.
const NONCE_BYTES_MAX: usize = 8 + 1 + 20;

/// The limits of one stream's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Names subscribed to, over all types (SUB-20).
    pub names_per_stream: usize,
    pub types_per_stream: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { names_per_stream: 200_000, types_per_stream: 64 }
    }
}

/// The limit that a request exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Names,
    Types,
}

/// The result of a request.
#[derive(Debug)]
pub struct Taken {
    pub type_url: TypeUrl,
    pub verdict: Verdict,
    pub watches: Vec<Watch>,
    /// The request changed the subscription, or a resend is due.
    pub changed: bool,
    /// The request only reports something, and changes no interest.
    pub is_report: bool,
    /// A name of the request that cannot be served, with the reason (NAM-5). There may be more such names.
    pub refused: Option<(ResourceName, NameError)>,
}

impl Taken {
    fn report(type_url: TypeUrl) -> Taken {
        let (verdict, watches) = (Verdict::None, Vec::new());
        Taken { type_url, verdict, watches, changed: false, is_report: true, refused: None }
    }

    /// Whether the rate limit counts the request: changes, rejections and reports count, ACKs do not.
    pub fn counts_as_change(&self) -> bool {
        self.changed || self.is_report || matches!(self.verdict, Verdict::Nack { .. })
    }

    /// Whether the request needs no further work.
    pub fn is_settled(&self) -> bool {
        self.watches.is_empty() && !self.counts_as_change()
    }
}

/// The type of the health reports of Istio's agent. There are no resources of this type.
const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";

/// Whether a request only reports something. An error without a nonce rejects no response, and is a report.
fn is_report(url: &str, nonce: &str, has_error: bool) -> bool {
    url == HEALTH || (has_error && nonce.is_empty())
}

#[derive(Debug)]
pub struct Session {
    kind: StreamKind,
    pub(super) limits: Limits,
    pub(super) seed: HashSeed,
    nonce_prefix: u32,
    pub(super) nonces: u64,
    /// Sorted by type, hence by rank.
    pub(super) subscriptions: Vec<Subscription>,
    /// All sources that the parts are asked of, serving or not.
    pub(super) sources: Vec<SourceId>,
    /// The session's position in server lists of several servers.
    pub(super) views: Views,
    /// The start of the routing types' wait: the cluster side has news to send, or waits for an ACK.
    held_since: Option<Time>,
    held_until: Option<Time>,
    /// The snapshots of a round. The routing types have waited for the maximum time. Until they have had
    /// their turn, answers are built from the sources' own content at the start of the round (see
    /// [`Session::served_in`]).
    pub(super) round: Option<Box<Snapshots>>,
    /// The endpoints of clusters that were sent before the first request for endpoints; `None` from that
    /// request on.
    owed: Option<Box<Owed>>,
    pub(super) excess: Option<Excess>,
    /// Former snapshots, for planted bugs.
    #[cfg(feature = "planted")]
    pub(super) looks: Vec<Snapshots>,
}

impl Session {
    /// `nonce_prefix` is drawn for this stream, so that no nonce of another stream is valid here (STR-5).
    pub fn new(kind: impl Into<StreamKind>, limits: Limits, seed: HashSeed, nonce_prefix: u32) -> Session {
        Session {
            kind: kind.into(),
            limits,
            seed,
            nonce_prefix,
            nonces: 0,
            subscriptions: Vec::new(),
            sources: Vec::new(),
            views: Views::default(),
            held_since: None,
            held_until: None,
            round: None,
            owed: None,
            excess: None,
            #[cfg(feature = "planted")]
            looks: Vec::new(),
        }
    }

    pub fn variant(&self) -> Variant {
        self.kind.variant
    }

    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    pub fn subscriptions(&self) -> &[Subscription] {
        &self.subscriptions
    }

    /// The limit for which the session refused a request.
    pub fn excess(&self) -> Option<Excess> {
        self.excess
    }

    /// Handles a request (STR-14). An error is the status that must end the stream.
    pub fn request(
        &mut self,
        request: &Request,
        router: &mut dyn Router,
        now: Time,
    ) -> Result<Taken, Status> {
        let (url, nonce, error) = match request {
            Request::Sotw(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
            Request::Delta(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
        };
        let url = type_of(self.kind, url)?;
        if is_report(url, nonce, error.is_some()) {
            return Ok(Taken::report(TypeUrl::new(url)));
        }
        let index = self.subscription_index(url)?;
        let nonce_number = self.parse_nonce(nonce);
        let seed = self.seed;
        let subscription = &mut self.subscriptions[index];
        let type_url = subscription.type_url.clone();
        let is_first = subscription.is_new();
        let had_nack = planted(Bug::RejectedAfterAck) && subscription.flight.nack.is_some();
        // The first request of a type is initial, with any nonce (STR-6).
        let verdict = match (is_first, nonce.is_empty()) {
            (true, _) | (false, true) => Verdict::None,
            (false, false) => subscription.flight.judge(nonce_number, error.clone(), now),
        };
        subscription.follow(nonce_number, &verdict, self.kind.variant);
        if planted(Bug::ResentAfterNack) && matches!(verdict, Verdict::Nack { .. }) {
            subscription.force_all();
        }
        if planted(Bug::RejectedAfterAck) && had_nack && matches!(verdict, Verdict::Ack { .. }) {
            subscription.force_all();
        }
        if is_first {
            subscription.legacy_wildcard = router.legacy_wildcard(&type_url)?;
            subscription.dialect = router.dialect(&type_url);
        }
        let change = match request {
            Request::Sotw(request) => {
                subscription.take_sotw(request, seed, &|name| router.realm_of(&type_url, Some(name)))
            }
            Request::Delta(request) => {
                if self.kind.marks {
                    subscription.note_for_marks(request);
                }
                subscription.take_delta(request, seed, &|name| router.realm_of(&type_url, Some(name)))
            }
        };
        let forces = matches!(request, Request::Delta(delta) if !(delta.subscribe.is_empty() && delta.unsubscribe.is_empty()));
        let changed = is_first || forces || change != Change::default();
        let watches = self.apply(index, change, router)?;
        if let Request::Sotw(request) = request
            && is_first
        {
            self.subscriptions[index].begin(request, now);
        }
        if let Request::Delta(request) = request
            && is_first
        {
            let share = |view| router.presented(view);
            self.subscriptions[index].present(&request.initial_resource_versions, seed, &share);
        }
        if is_first && self.subscriptions[index].type_url.kind() == Kind::ClusterLoadAssignment {
            self.settle_owed(index);
        }
        let news = self.subscriptions[index].refusals().and_then(|refusals| refusals.news().next());
        let refused = news.filter(|_| changed).map(|(name, error)| (name.clone(), error.clone()));
        Ok(Taken { type_url, verdict, watches, changed, is_report: false, refused })
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
        let index = self.subscriptions.partition_point(|s| s.type_url < type_url);
        self.subscriptions.reserve_exact(1);
        self.subscriptions.insert(index, Subscription::new(type_url));
        Ok(index)
    }

    // === nonces ===

    /// The nonce in its form on the wire: unique within the stream, never valid on another stream (STR-5,
    /// RLY-33).
    pub fn nonce_text(&self, nonce: u64) -> String {
        let mut text = String::with_capacity(NONCE_BYTES_MAX);
        // Writing to a string cannot fail.
        let _ = write!(text, "{:08x}-{nonce}", self.nonce_prefix);
        text
    }

    fn parse_nonce(&self, text: &str) -> Option<u64> {
        let (prefix, number) = text.split_once('-')?;
        let same_stream = u32::from_str_radix(prefix, 16) == Ok(self.nonce_prefix);
        if same_stream { number.parse().ok() } else { None }
    }

    // === answers ===

    /// The next answer to send, with the index of its subscription; `None` if nothing is due. The lowest
    /// rank goes first, from the newest snapshot that order allows. `latest` returns the newest snapshot of
    /// a source.
    pub fn poll_answer(
        &mut self,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) -> Option<(usize, Answer)> {
        // One snapshot per source for all types, so that no type runs ahead of another.
        let newest = self.serve_from(latest, now);
        #[cfg(feature = "planted")]
        let newest = self.look_askew(newest);
        self.begin_round(&newest, latest, now);
        if let Some(round) = self.round.take() {
            let answer = match self.needs_help() {
                true => self.poll_from(&self.served_in(&round, latest), true, now),
                false => self.poll_from(&round, true, now),
            };
            if answer.is_some() || planted(Bug::RoundNeverEnds) {
                self.round = Some(round);
                return answer;
            }
            self.held_since = None;
        }
        self.poll_from(&newest, false, now)
    }

    /// Begins a round after the routing types have waited for [`HOLD`] (ORD-10). Until they have had their
    /// turn, answers are built from the present snapshots, and later changes wait. The round begins anew if
    /// a source notes more interests of the client on the cluster side, because no routing type goes before
    /// their clusters (RLY-50).
    fn begin_round(
        &mut self,
        newest: &Snapshots,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
        now: Time,
    ) {
        self.round.take_if(|round| order::has_more_noted(&self.subscriptions, newest, round));
        if self.round.is_some() || self.held_since.is_none_or(|since| since + HOLD > now) {
            return;
        }
        let turn = self.turn(newest, true, now);
        let mut routes = self.subscriptions.iter().filter(|s| s.type_url.kind().refers_to_clusters());
        match routes.any(|subscription| subscription.is_due(&turn)) {
            true => self.round = Some(Box::new(self.newest(latest))),
            false => self.held_since = None,
        }
    }

    pub(super) fn turn<'a>(&self, snapshots: &'a Snapshots, overdue: bool, now: Time) -> Turn<'a> {
        Turn { snapshots, carried: self.nonces, now, moved: self.views.moved(), overdue }
    }

    fn poll_from(&mut self, snapshots: &Snapshots, overdue: bool, now: Time) -> Option<(usize, Answer)> {
        let turn = self.turn(snapshots, overdue, now);
        let cluster_side = self.subscriptions.partition_point(|s| s.type_url.kind().is_cluster_side());
        self.held_until = order::withhold(&mut self.subscriptions, cluster_side, self.kind.variant, &turn);
        let mut held = false;
        for index in 0..self.subscriptions.len() {
            if index == cluster_side {
                held = self.hold_routes(cluster_side, &turn);
            }
            if held && self.subscriptions[index].type_url.kind().refers_to_clusters() {
                continue;
            }
            if let Some(answer) = self.subscriptions[index].poll(self.kind.variant, &turn) {
                if index < cluster_side {
                    self.held_since.get_or_insert(now);
                }
                return Some((index, answer));
            }
            let look_at = self.subscriptions[index].look_at();
            self.held_until = self.held_until.into_iter().chain(look_at).min();
        }
        None
    }

    /// Whether the routing types must wait. The time counts from the first response that held the routing
    /// types back, over all later responses: neither endpoints that change all the time nor a client with
    /// slow ACKs holds a route back for ever (ORD-10).
    fn hold_routes(&mut self, cluster_side: usize, turn: &Turn<'_>) -> bool {
        let (clusters, _) = self.subscriptions.split_at(cluster_side);
        if turn.overdue
            || planted(Bug::RoutesDoNotWait)
            || !clusters.iter().any(|subscription| subscription.holds_back(turn))
        {
            self.held_since = self.held_since.filter(|_| turn.overdue);
            return false;
        }
        let until = *self.held_since.get_or_insert(turn.now) + HOLD;
        self.held_until = self.held_until.into_iter().chain([until]).min();
        true
    }

    /// The time of the next poll if no event comes first: the end of a wait of removals (RLY-51), of the
    /// routing types (ORD-10) or of a complete set (RLY-5).
    pub fn held_until(&self) -> Option<Time> {
        self.held_until
    }

    /// The start of the routing types' wait for the cluster side.
    pub(super) fn held_since(&self) -> Option<Time> {
        self.held_since
    }

    /// Records a handover: the answer was composed into `chunks` messages, and the message at
    /// `answer.chunk` goes out now. `version` is the version of this message, `endpoints` are the names
    /// that must follow (ORD-5), and `targets` and `told` come from the composition. Returns the nonce, or
    /// `None` if the answer had no message.
    #[allow(
        clippy::too_many_arguments,
        reason = "what the composition says, of which the driver keeps only this"
    )]
    pub fn commit(
        &mut self,
        index: usize,
        answer: &Answer,
        chunks: usize,
        version: Version,
        endpoints: &Arc<[ResourceName]>,
        targets: &[Arc<View>],
        told: &Arc<[Told]>,
        now: Time,
    ) -> Option<u64> {
        let subscription = self.subscriptions.get_mut(index)?;
        let is_last = answer.chunk + 1 >= chunks;
        let is_update = subscription.flight.version_sent.is_some()
            && answer.parts.iter().any(|part| !part.held.is_empty());
        let changed_at = answer.parts.iter().map(|part| part.view.changed_at()).max().filter(|_| is_update);
        if is_last {
            if chunks > 0 {
                subscription.remember();
            }
            match targets.is_empty() {
                true => subscription.arrive(answer, chunks > 0),
                false => subscription.arrive(&answer.brought_to(targets), chunks > 0),
            }
        } else {
            let located = match (&answer.rest, &subscription.located) {
                (None, Some(_)) => subscription.located_after(&answer.brought_to(targets)),
                _ => None,
            };
            subscription.pending = Some(Box::new(answer.rest(told, targets, located)));
        }
        if chunks == 0 {
            return None;
        }
        self.nonces += u64::from(!planted(Bug::NonceReused) || self.nonces < 2);
        let nonce = self.nonces;
        subscription.flight.depart(nonce, version, now, changed_at);
        if is_last {
            subscription.went(answer.begun, nonce);
        }
        if planted(Bug::AnswersLeak) {
            std::mem::forget(answer.clone());
        }
        let forces = !endpoints.is_empty() && !planted(Bug::EndpointsNotForced);
        // With the first message, because newer clusters may replace the rest; with the last message for
        // endpoints that the client asked for meanwhile.
        if (is_last || answer.chunk == 0) && answer.type_url.kind() == Kind::Cluster && forces {
            self.force_endpoints(endpoints);
        }
        Some(nonce)
    }
}

// === endpoints follow their clusters (ORD-5) ===

impl Session {
    /// Forces the endpoints of clusters that were just sent. Before the first request for endpoints, notes
    /// them for later.
    fn force_endpoints(&mut self, endpoints: &Arc<[ResourceName]>) {
        let eds = self.subscriptions.iter_mut();
        let mut is_asked_for = false;
        for subscription in eds.filter(|s| s.type_url.kind() == Kind::ClusterLoadAssignment) {
            is_asked_for = true;
            for name in endpoints.iter() {
                subscription.force(name);
            }
        }
        // Order binds only within a stream (ORD-9), and a stream of a single type carries no endpoints.
        if !is_asked_for && self.kind.service.is_none() && !planted(Bug::EarlyClustersForgotten) {
            self.owed.get_or_insert_default().add(endpoints);
        }
    }

    /// Forces the endpoints of clusters that were sent before the first request for endpoints.
    fn settle_owed(&mut self, index: usize) {
        if let (Some(owed), Some(subscription)) = (self.owed.take(), self.subscriptions.get_mut(index)) {
            owed.settle(subscription);
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

impl Subscription {
    /// Whether the next response must be a complete set: in SotW, for full-state types and for wildcards of
    /// any type (SST-1 to SST-3).
    pub(super) fn is_full(&self, variant: Variant) -> bool {
        variant == Variant::Sotw && (self.type_url.is_full_state() || self.is_wildcard())
    }

    /// The due answer, if the client may be sent an answer now.
    fn poll(&mut self, variant: Variant, turn: &Turn<'_>) -> Option<Answer> {
        self.look();
        // At most one update is unACKed. Only new interests may be answered beside that update (NON-4).
        if let Some(pending) = &self.pending {
            return Some((**pending).clone());
        }
        let overdue = turn.overdue && self.type_url.kind().is_cluster_side();
        let may_send = !self.flight.is_waiting() || self.fresh || overdue;
        let refused: Vec<_> = self.refusals().into_iter().flat_map(Refusals::untold).cloned().collect();
        if !may_send || (self.parts.is_empty() && refused.is_empty()) {
            return None;
        }
        let full = self.is_full(variant);
        let (mut news, mut membership_known) = (false, true);
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &mut self.parts {
            let snapshot = turn.snapshot(part.source())?;
            let types = snapshot.of(&self.type_url)?;
            part.share_names(types);
            let view = types.view(&part.interest)?;
            membership_known &= view.is_complete() || !part.is_wildcard();
            let answered = AnswerPart::of(part, snapshot, types, view);
            news |= part.is_behind(answered.due);
            parts.push(answered);
        }
        // Never a guess (RLY-3): the state of a name that was given up beside the wildcard is known
        // together with the membership (DEL-19). A greeting is due if nothing else is: the set is empty,
        // and the client presented nothing (DEL-29). In SotW a greeting is always due: the set proves the
        // removal of names that were given up with the request for the wildcard.
        let holds_nothing = parts.iter().all(|part| {
            !matches!(part.interest, Interest::Wildcard) || (part.held.is_empty() && part.view.is_empty())
        });
        let greeting =
            self.greets(membership_known) && (full || holds_nothing) || self.marks_alone(news, &parts);
        let in_doubt = |name: &&ResourceName| parts.iter().any(|part| part.may_have(name));
        let departed = self.departed.iter().filter(|name| membership_known && !in_doubt(name)).cloned();
        let departed: Vec<_> = departed.chain(refused).collect();
        let is_due = news || greeting || !departed.is_empty();
        if !is_due {
            self.hold = None;
        }
        // Complete sets wait for UNKNOWN names that the client may have: absence means deletion (RLY-5).
        if !is_due || (full && self.must_wait(&parts, turn)) {
            return None;
        }
        if let Some(presented) = self.presented.take()
            && self.is_current(presented, full, &parts)
        {
            return None;
        }
        let dialect = self.dialect;
        let views = parts.iter().map(|part| &part.view);
        Some(Answer {
            type_url: self.type_url.clone(),
            variant,
            full,
            greeting,
            dialect,
            told_at: if dialect.ttl { told_at(views, turn.now) } else { Time::ZERO },
            repeats: self.repeats(&parts).filter(|_| variant == Variant::Sotw && !full),
            parts,
            departed,
            refused: self.refusals().map(Refusals::errors).unwrap_or_default(),
            spellings: self.spellings(),
            located: self.located.clone(),
            chunk: 0,
            rest: None,
            begun: turn.carried,
        })
    }

    /// Whether an empty first answer to the wildcard is due. The membership must be known first (RLY-3).
    fn greets(&self, membership_known: bool) -> bool {
        self.greeting && (membership_known || planted(Bug::GreetedBeforeData))
    }

    /// The client's ACKed version, for repetition in a response without content (SST-7). `None` while a
    /// response is unACKed.
    fn repeats(&self, parts: &[AnswerPart]) -> Option<Version> {
        let has_remarks =
            self.dialect.errors_alone && parts.iter().any(|part| !part.view.remarks().is_empty());
        self.flight.version_acked.filter(|_| has_remarks && !self.flight.is_waiting())
    }

    /// A wildcard client that reconnects with the current version has the whole set already (STR-10).
    fn is_current(&mut self, presented: Version, full: bool, parts: &[AnswerPart]) -> bool {
        let ([part], [answer]) = (self.parts.as_mut_slice(), parts) else { return false };
        let current = full && part.is_wildcard() && self.type_url.is_full_state() && (answer.view.digest() == presented || planted(Bug::PresentedVersionTrusted))
                // The client's TTL timers have to start again (TTL-3).
                && !(self.dialect.ttl && answer.view.remarks().shortest_ttl().is_some());
        if current {
            part.have(&answer.view, answer.due);
            self.greeting = false;
            self.fresh = false;
        }
        current
    }

    /// Notes that the whole answer was handed out, or was empty.
    fn arrive(&mut self, answer: &Answer, has_spoken: bool) {
        self.keep_in_doubt(answer);
        self.hold_located(answer, true);
        for (part, answered) in self.parts.iter_mut().zip(&answer.parts) {
            part.bring_to(answer, answered);
            if answer.withholds_errors() || (!has_spoken && answer.variant == Variant::Sotw) {
                part.keep_errors(&answered.held);
            }
        }
        let is_known = |part: &AnswerPart| part.view.is_complete();
        let is_member = |part: &&AnswerPart| matches!(part.interest, Interest::Wildcard);
        self.greeting &= !answer.parts.iter().filter(is_member).all(is_known);
        // A new interest that is still UNKNOWN may be answered once beside an unACKed response (NON-4).
        self.fresh &= !has_spoken && !answer.parts.iter().all(is_known);
        self.presented = None;
        self.presented_bytes = 0;
        self.pending = None;
        if has_spoken {
            self.end_first(answer);
        }
        self.told(&answer.departed);
    }
}
