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
//!
//! # Rest
//!
//! Each update of each client has a message and an ACK, and a look for answers after either would find
//! nothing. [`Session::is_sated`] and [`RequestOutcome::rests`] spare the look (ADR 73).
//!
//! The session coordinates. `routing.rs` has the sources of the subscriptions, and their moves.

mod cluster_side;
mod endpoints;
pub mod entitlement;
pub(super) mod lanes;
mod list_position;
mod nonce_prefix;
mod refused;
pub mod report;
pub mod request;
mod returning;
pub mod router;
pub mod routing;
mod stand_ins;
pub mod standing;
mod transitions;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Time;
use crate::authorization::{Denials, Grant};
use crate::collection::HashSeed;
use crate::downstream::answer::Answer;
use crate::downstream::answer::AnswerKey;
use crate::downstream::answer::rest::ToldNames;
use crate::downstream::order::ORDER_WAIT_MAX;
use crate::downstream::order::turn::{Snapshots, Turn};
use crate::downstream::session::cluster_side::RoutingHold;
use crate::downstream::session::entitlement::{
    DenialLedger, Entitlement, Excess, Limits, Regrant, judge_again,
};
use crate::downstream::session::lanes::{LaneMoves, has_release};
use crate::downstream::session::list_position::{ListPosition, ListPositions, parts};
use crate::downstream::session::nonce_prefix::NoncePrefix;
use crate::downstream::session::refused::{Kept, find_kept, has_refused};
use crate::downstream::session::report::TypeReport;
use crate::downstream::session::request::{HEALTH, Portion, RequestOutcome, type_of};
use crate::downstream::session::returning::{end_returns, owes_returning};
use crate::downstream::session::router::{List, Router};
use crate::downstream::session::stand_ins::{Latest, Serving};
use crate::downstream::session::standing::{ClientTypeState, SentPart};
use crate::downstream::session::transitions::Transitions;
use crate::downstream::sources::{ListId, SourceId};
use crate::downstream::subscription::carried::{Passed, Unsettled};
use crate::downstream::subscription::ledger::Ledger;
use crate::downstream::subscription::name_wait::NameWait;
use crate::downstream::subscription::nonces::{Judged, Verdict};
use crate::downstream::subscription::{InterestChange, Subscription};
use crate::lanes::Restated;
use crate::view::View;
use sluice_xds::{Kind, Request, ResourceName, SetMark, Status, StreamKind, TypeUrl, Variant, Version};

/// One downstream stream. Wide because each update reads `news` and `is_returning`: the box of `transitions`
/// is no place for them, and no other field changes together with them. All that each update reads stands
/// together in memory, after the first two fields.
#[derive(Debug)]
#[repr(C)]
pub struct Session {
    seed: HashSeed,
    entitlement: Entitlement,
    /// The session's position in server lists of several servers.
    positions: ListPositions,
    /// Sorted by type, hence by rank.
    subscriptions: Vec<Subscription>,
    /// All sources that the parts are asked of, serving or not.
    sources: SmallVec<[SourceId; 1]>,
    /// The number of responses that the stream has carried; the latest nonce.
    carried: u64,
    nonce_prefix: NoncePrefix,
    kind: StreamKind,
    /// Some part has content from elsewhere, and its source may not know the whole set.
    is_returning: bool,
    /// How often the sources may have published something.
    news: u32,
    /// The wait of the routing types, and the time of the next poll.
    hold: RoutingHold,
    /// The releases that serve the session, while a push goes by steps or after it; `None` without a plan.
    lanes: Option<Box<LaneMoves>>,
    transitions: Transitions,
}

impl Session {
    /// `nonce_prefix` is drawn for this stream, so that no nonce of another stream is valid here (STR-5). No
    /// session is without a grant (AUT-1): [`Grant::nothing`] before the first request.
    pub fn new(
        kind: impl Into<StreamKind>,
        limits: Limits,
        seed: HashSeed,
        nonce_prefix: u32,
        grant: Arc<Grant>,
    ) -> Session {
        Session {
            kind: kind.into(),
            seed,
            nonce_prefix: NoncePrefix::new(nonce_prefix),
            carried: 0,
            entitlement: Entitlement::new(limits, grant),
            subscriptions: Vec::new(),
            sources: SmallVec::new(),
            positions: ListPositions::default(),
            hold: RoutingHold::default(),
            lanes: None,
            transitions: Transitions::default(),
            news: 0,
            is_returning: false,
        }
    }

    /// Takes other limits and rules of fallback over. Limits count from the next change of collections on,
    /// rules from the next look on. `list` as [`Router::fallback`](router::Router::fallback); a list that is
    /// gone keeps its rules.
    pub fn configure(&mut self, limits: Limits, list: &dyn Fn(ListId) -> Option<List>) {
        self.entitlement.limits = limits;
        self.positions.configure(list);
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

    /// The nonce in its form on the wire: unique within the stream, never valid on another stream (STR-5,
    /// RLY-33).
    pub fn nonce_text(&self, nonce: u64) -> String {
        self.nonce_prefix.spell(nonce)
    }

    /// Whether a part is asked of this source.
    pub fn uses(&self, source: SourceId) -> bool {
        self.sources.contains(&source)
    }

    /// Memory of the names that this stream asks for, gave up, or presented, in bytes.
    pub fn names_bytes(&self) -> usize {
        self.subscriptions.iter().map(Subscription::names_bytes).sum()
    }

    /// The number of names that the stream asks for.
    pub fn names_len(&self) -> usize {
        self.subscriptions.iter().map(Subscription::names_len).sum()
    }

    /// The waits of this session for names, each with its type.
    pub fn name_waits(&mut self) -> impl Iterator<Item = (&TypeUrl, &mut NameWait)> {
        self.subscriptions.iter_mut().filter_map(Subscription::name_wait_mut)
    }

    // Requests.

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
        let nonce_number = self.nonce_prefix.parse(nonce);
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
        let changed = is_first || forces || sends_again || change != InterestChange::default();
        self.judge(index, request, &change)?;
        // Nearly all requests are ACKs.
        let watches = if changed { self.apply(index, change, router)? } else { Vec::new() };
        if is_first {
            self.begin(index, request, router, now);
        }
        if let Some(transition) = self.transitions.get_mut() {
            transition.endpoints.note_request(&type_url, nonce_number, &verdict, now);
            self.transitions.trim();
        }
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
    ) -> InterestChange {
        if portion == Portion::Verdict {
            return InterestChange::default();
        }
        let Some(subscription) = self.subscriptions.get_mut(index) else { return InterestChange::default() };
        let (type_url, grant) = (subscription.type_url.clone(), &self.entitlement.grant);
        let group_of = |name: &ResourceName| router.group_of(&type_url, Some(name));
        match request {
            Request::Sotw(request) => subscription.take_sotw(request, self.seed, &group_of, grant),
            Request::Delta(request) => {
                if self.kind.marks {
                    subscription.note_marked_requests(portion.requests(), request);
                }
                if !request.asks() && !subscription.is_new() {
                    return InterestChange::default();
                }
                subscription.take_delta(request, self.seed, &group_of, grant)
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
        let mut subscriptions = self.subscriptions.iter();
        let subscription = subscriptions.find(|subscription| subscription.type_url.as_str() == url);
        subscription.is_none_or(|subscription| match request {
            Request::Sotw(request) => !subscription.has_list(&request.resource_names, self.seed),
            Request::Delta(request) => request.asks(),
        })
    }

    /// Whether a request with an error and no nonce leaves the client's collections as they are. The first
    /// request of a type on a stream subscribes, whatever it reports (STR-6): Envoy opens a stream so if a
    /// NACK was waiting as the former stream ended. Later requests count by their names (ACK-7, DEL-2).
    fn changes_nothing(&self, url: &str, request: &Request) -> bool {
        request.names_len() == 0 && self.has_type(url)
    }

    fn subscription_index(&mut self, url: &str) -> Result<usize, Status> {
        if let Some(index) = self.subscriptions.iter().position(|s| s.type_url.as_str() == url) {
            return Ok(index);
        }
        self.entitlement.judge_types(self.subscriptions.len())?;
        let type_url = TypeUrl::new(url);
        self.with_denials(|entitlement, _, ledger| entitlement.judge_type(&type_url, ledger))?;
        let index = self.subscriptions.partition_point(|s| s.type_url < type_url);
        self.subscriptions.reserve_exact(1);
        self.subscriptions.insert(index, Subscription::new(type_url));
        Ok(index)
    }

    // Rights.

    /// The limit for which the session refused a request.
    pub fn excess(&self) -> Option<Excess> {
        self.entitlement.excess
    }

    pub fn grant(&self) -> &Arc<Grant> {
        &self.entitlement.grant
    }

    /// Puts another grant in force. Without [`Regrant::Kept`] the stream must end.
    pub fn regrant(&mut self, grant: Arc<Grant>) -> Regrant {
        let mut result = Regrant::Kept;
        for subscription in &self.subscriptions {
            match judge_again(subscription, &grant) {
                Regrant::Kept => {}
                Regrant::Lost(denial) => return Regrant::Lost(denial),
                Regrant::Gained => result = Regrant::Gained,
            }
        }
        self.entitlement.grant = grant;
        result
    }

    /// Takes the grant away, so that the client may ask for nothing more.
    pub fn revoke(&mut self) {
        self.entitlement.grant = Grant::nothing();
    }

    /// A relay is served everything where the plan does not hold pushes back from relays: its own plans
    /// judge (TIR-1).
    pub fn serve_relay(&mut self) {
        self.entitlement.is_relay = true;
    }

    /// The denials of the latest request, also of one that ends the stream.
    pub fn take_denials(&mut self) -> Option<Denials> {
        self.transitions.take_denials().map(|denials| *denials)
    }

    fn judge(&mut self, index: usize, request: &Request, change: &InterestChange) -> Result<(), Status> {
        if self.entitlement.grant.allows_all() {
            return Ok(());
        }
        self.with_denials(|entitlement, subscriptions, ledger| match subscriptions.get(index) {
            Some(subscription) => entitlement.judge(subscription, request, change, ledger),
            None => Ok(()),
        })
    }

    fn with_denials<T>(
        &mut self,
        judge: impl FnOnce(&Entitlement, &[Subscription], &mut DenialLedger) -> T,
    ) -> T {
        let mut ledger = DenialLedger(self.transitions.take_denials());
        let judged = judge(&self.entitlement, &self.subscriptions, &mut ledger);
        if ledger.0.is_some() {
            self.transitions.make_mut().denials = ledger.0;
        }
        judged
    }

    // Answers.

    /// The next answer to send, with the index of its subscription; `None` if nothing is due. The lowest
    /// rank goes first, from the newest snapshot that order allows. `latest` returns the newest snapshot of
    /// a source.
    pub fn poll_answer(&mut self, latest: Latest<'_>, now: Time) -> Option<(usize, Answer)> {
        // One snapshot per source for all types, so that no type runs ahead of another.
        let newest = self.serve_from(latest, now);
        self.follow_lanes(&newest, now);
        self.begin_round(&newest, latest, now);
        if let Some(round) = self.transitions.take_round() {
            let serving = self.serving();
            let served = serving.needs_stand_ins().then(|| serving.served_in(&round, latest));
            let answer = self.poll_from(served.as_ref().unwrap_or(&round), true, now);
            if answer.is_some() {
                self.transitions.make_mut().round = Some(round);
                return answer;
            }
            self.transitions.trim();
            self.hold.end();
        }
        self.poll_from(&newest, false, now)
    }

    /// The state that decides which snapshots serve the session.
    fn serving(&self) -> Serving<'_> {
        Serving {
            subscriptions: &self.subscriptions,
            sources: &self.sources,
            positions: &self.positions,
            kept: self.transitions.kept.as_deref(),
            variant: self.kind.variant,
            is_moving: self.transitions.moves_at.is_some(),
            is_returning: self.is_returning,
        }
    }

    /// The newest snapshots, one per source for all types, so that no type runs ahead of another.
    fn serve_from(&mut self, latest: Latest<'_>, now: Time) -> Snapshots {
        if self.positions.has_waited(now) {
            let awaited = self.serving().lists_with_read_aliases(latest, now);
            self.positions.forget_former(&awaited, now);
        }
        let newest = self.serving().newest(latest);
        let kept = self.transitions.kept.as_deref();
        let is_relay = self.entitlement.is_relay;
        if has_refused(&newest, is_relay) {
            let kept = find_kept(&self.subscriptions, &newest, kept, is_relay);
            self.transitions.set_kept(kept);
        } else if kept.is_some() {
            self.transitions.set_kept(Kept::new());
        }
        if self.is_returning {
            // A round begins anew: its snapshots are from before, and may lack what has come since.
            if end_returns(&mut self.subscriptions, &newest) {
                self.transitions.end_round();
            }
            self.note_returning();
        }
        self.serving().serve(newest)
    }

    /// Notes the releases of these snapshots. A session that is served another release than before moves.
    /// Nearly all polls find nothing to note.
    #[inline]
    fn follow_lanes(&mut self, newest: &Snapshots, now: Time) {
        if self.lanes.is_some() || has_release(newest) {
            let lanes = self.lanes.get_or_insert_default();
            if lanes.follow(newest, &mut self.subscriptions, &self.sources, now) {
                self.transitions.end_round();
            }
        }
    }

    /// The client rejected a push that went back, on this stream or on an earlier one: the client may have
    /// any part of it, whatever the client presents. All that differs at the source is sent again, once for
    /// each type (WAV-10).
    pub fn restate(&mut self, source: SourceId, restated: Arc<Restated>) {
        self.lanes.get_or_insert_default().restate(source, restated);
    }

    /// Begins a round after the routing types have waited for [`ORDER_WAIT_MAX`] (ORD-10). Until they have
    /// had their turn, answers are built from the present snapshots, and later changes wait. The round begins
    /// anew if a source notes more collections of the client on the cluster side, because no routing type
    /// goes before their clusters (RLY-50).
    fn begin_round(&mut self, newest: &Snapshots, latest: Latest<'_>, now: Time) {
        if let Some(transition) = self.transitions.get_mut() {
            let round = &mut transition.round;
            round.take_if(|round| cluster_side::has_more_noted(&self.subscriptions, newest, round));
        }
        if self.transitions.round.is_some() || !self.hold.is_over(now) {
            return;
        }
        let turn = self.turn(newest, true, now);
        let mut routes = self.subscriptions.iter().filter(|s| s.type_url.kind().refers_to_clusters());
        match routes.any(|subscription| subscription.is_due(&turn)) {
            true => {
                let round = Box::new(self.serving().newest(latest));
                self.transitions.make_mut().round = Some(round);
            }
            false => self.hold.end(),
        }
    }

    #[inline]
    fn turn<'a>(&self, snapshots: &'a Snapshots, overdue: bool, now: Time) -> Turn<'a> {
        let moved = self.positions.moved();
        let moved_lanes = self.lanes.as_ref().map(|lanes| lanes.moved()).unwrap_or_default();
        Turn { snapshots, carried: self.carried, now, moved, moved_lanes, overdue }
    }

    #[inline]
    fn poll_from(&mut self, snapshots: &Snapshots, overdue: bool, now: Time) -> Option<(usize, Answer)> {
        let turn = self.turn(snapshots, overdue, now);
        self.poll_turn(&turn)
    }

    fn poll_turn(&mut self, turn: &Turn<'_>) -> Option<(usize, Answer)> {
        let cluster_side = self.subscriptions.partition_point(|s| s.type_url.kind().is_cluster_side());
        let variant = self.kind.variant;
        let look_at = cluster_side::withhold(&mut self.subscriptions, cluster_side, variant, turn);
        self.hold.look_again(look_at);
        let mut held = false;
        for index in 0..self.subscriptions.len() {
            if index == cluster_side {
                held = self.hold_routes(cluster_side, turn);
            }
            if held && self.subscriptions[index].type_url.kind().refers_to_clusters() {
                continue;
            }
            if let Some(answer) = self.subscriptions[index].poll(variant, turn) {
                // A routing type that comes later waits from then on.
                if index < cluster_side && cluster_side < self.subscriptions.len() {
                    self.hold.begin(turn.now);
                }
                return Some((index, answer));
            }
            self.hold.look_at(self.subscriptions[index].look_at());
        }
        None
    }

    /// Whether the routing types must wait. The time counts from the first response that held the routing
    /// types back, over all later responses: neither endpoints that change all the time nor a client with
    /// slow ACKs holds a route back for ever (ORD-10).
    fn hold_routes(&mut self, cluster_side: usize, turn: &Turn<'_>) -> bool {
        let (clusters, _) = self.subscriptions.split_at(cluster_side);
        let is_held = !turn.overdue && clusters.iter().any(|subscription| subscription.holds_back(turn));
        let look_at = if is_held || turn.overdue { None } else { self.hold_new(cluster_side, turn) };
        if !is_held && look_at.is_none() {
            if !turn.overdue {
                self.hold.end();
            }
            return false;
        }
        let until = self.hold.begin(turn.now);
        self.hold.look_at(look_at);
        self.hold.look_at(Some(until));
        true
    }

    /// The time of the next look while the routing types wait for the first answers of the cluster side
    /// (ORD-12), for a complete set that waits (ADR 52), or for the endpoints of new clusters (ORD-13);
    /// `None` if they wait for none of these.
    fn hold_new(&mut self, cluster_side: usize, turn: &Turn<'_>) -> Option<Time> {
        let (clusters, routes) = self.subscriptions.split_at(cluster_side);
        let is_owed = clusters.iter().any(|subscription| subscription.nonces.latest().is_none());
        if !is_owed && !self.is_returning && !self.transitions.endpoints.are_awaited() {
            return None;
        }
        let is_due = |subscription: &Subscription| {
            subscription.type_url.kind().refers_to_clusters() && subscription.is_due(turn)
        };
        if self.kind.marks || !routes.iter().any(is_due) {
            return None;
        }
        let owed = clusters.iter().filter_map(|subscription| self.owes(subscription, turn)).min();
        let transition = self.transitions.get_mut();
        let until = transition.and_then(|transition| transition.endpoints.until(&self.subscriptions, turn));
        owed.into_iter().chain(until).min()
    }

    /// The time of the next look while the routing types wait for an answer of a cluster type that is owed.
    fn owes(&self, clusters: &Subscription, turn: &Turn<'_>) -> Option<Time> {
        let variant = self.kind.variant;
        let returns = self.is_returning && owes_returning(clusters, variant, turn);
        clusters.owes_first(variant, turn).or_else(|| returns.then(|| turn.now + ORDER_WAIT_MAX))
    }

    /// The time of the next poll if no event comes first: the end of a wait of removals (RLY-51), of the
    /// routing types (ORD-10) or of a complete set (RLY-5).
    pub fn held_until(&self) -> Option<Time> {
        self.hold.until()
    }

    /// The complete set of the session's first type, for clients without a stream (RST-12); `None` while a
    /// name is UNKNOWN, and before any request.
    pub fn complete_set(&self, latest: Latest<'_>) -> Option<Answer> {
        let snapshots = self.serving().served(latest);
        let served = |id| {
            let snapshot = snapshots.iter().find(|(source, _)| *source == id);
            snapshot.and_then(|(_, snapshot)| snapshot.clone())
        };
        self.subscriptions.first()?.complete_set(&served)
    }

    /// Looks anew for parts with content from elsewhere.
    fn note_returning(&mut self) {
        self.is_returning = parts(&self.subscriptions).any(|(_, part)| part.is_returning);
    }

    /// For a client that polls: no part counts as returning, because the next poll brings the rest of a set.
    pub fn doubt_nothing(&mut self) {
        self.is_returning = false;
        let parts = self.subscriptions.iter_mut().flat_map(|subscription| &mut subscription.parts);
        parts.for_each(|part| part.is_returning = false);
    }

    // Messages.

    /// Records a handover: the answer was composed into `chunks` messages, and the message at `answer.chunk`
    /// goes out now. `version` is the version of this message, `endpoints` are the names that must follow
    /// (ORD-5), and `targets` and `told_names` come from the composition. Returns the nonce, or `None` if the
    /// answer had no message.
    #[allow(
        clippy::too_many_arguments,
        reason = "results of the composition, and the driver keeps nothing else of it"
    )]
    pub fn commit(
        &mut self,
        index: usize,
        answer: &Answer,
        chunks: usize,
        version: Version,
        endpoints: &Arc<[ResourceName]>,
        targets: &[Arc<View>],
        told_names: &Arc<[ToldNames]>,
        now: Time,
    ) -> Option<u64> {
        let subscription = self.subscriptions.get_mut(index)?;
        let (is_last, is_first) = (answer.chunk + 1 >= chunks, subscription.nonces.latest().is_none());
        let is_update = subscription.nonces.version_sent().is_some()
            && answer.parts.iter().any(|part| !part.held.is_empty());
        let changed_at = answer.parts.iter().map(|part| part.view.changed_at()).max().filter(|_| is_update);
        let mut passed = None;
        let changes = subscription.carry(answer, is_last, chunks > 0, &mut passed);
        if chunks > 0 {
            // With the first message, because a newer answer may replace the rest.
            subscription.remember(self.carried + 1);
        }
        if is_last {
            match targets.is_empty() {
                true => subscription.arrive(answer, chunks > 0),
                false => subscription.arrive(&answer.brought_to(targets), chunks > 0),
            }
        } else {
            subscription.begin_rest(answer, told_names, targets);
        }
        if chunks > 0 {
            self.carried += 1;
            let forgotten = subscription.nonces.send(self.carried, version, now, changed_at, changes);
            if let Some(forgotten) = forgotten {
                Passed::add_overtaken(&mut passed, forgotten.whole());
            }
        }
        if let Some(passed) = passed {
            self.transitions.pass(passed);
        }
        if chunks == 0 {
            return None;
        }
        let nonce = self.carried;
        if chunks > 1 {
            let told_names = answer.rest.as_ref().map_or(told_names, |rest| &rest.told_names);
            subscription.note_message(nonce, told_names, answer.chunk);
        } else {
            subscription.note_only_message(nonce, answer);
        }
        if is_last {
            // Rounds, releases and later messages may be older than the sources' content.
            let is_newest = self.transitions.round.is_none() && self.lanes.is_none() && answer.rest.is_none();
            subscription.delivery.sent_after = is_newest.then_some(self.news);
            subscription.delivery.acknowledged.hand_over(answer.begun, nonce);
        }
        // With the first message, because newer clusters may replace the rest; with the last message for
        // endpoints that the client asked for meanwhile.
        if (is_last || answer.chunk == 0) && answer.type_url.kind() == Kind::Cluster && !endpoints.is_empty()
        {
            self.send_endpoints_after(endpoints, nonce, is_first, now);
        }
        Some(nonce)
    }

    /// Makes the endpoints of clusters due that were just sent. Before the first request for endpoints, notes
    /// them for later. `is_first`: the client was sent no clusters before on the stream.
    fn send_endpoints_after(
        &mut self,
        endpoints: &Arc<[ResourceName]>,
        nonce: u64,
        is_first: bool,
        now: Time,
    ) {
        let is_asked_for = endpoints::force(&mut self.subscriptions, endpoints);
        // Order binds only within a stream (ORD-9), and a stream of a single type carries no endpoints.
        if !is_asked_for && self.kind.service.is_none() {
            self.transitions.make_mut().endpoints.add_due(endpoints);
        }
        self.await_endpoints(endpoints, nonce, is_first, now);
    }

    /// Notes that the client was sent clusters with these endpoints.
    fn await_endpoints(&mut self, endpoints: &Arc<[ResourceName]>, nonce: u64, is_first: bool, now: Time) {
        // Another relay keeps the order towards its own clients.
        if self.kind.marks || self.kind.service.is_some() {
            return;
        }
        let is_without = is_first || self.transitions.endpoints.is_without();
        if let Some(next) = endpoints::first_awaited(&self.subscriptions, endpoints, is_without) {
            let order = &mut self.transitions.make_mut().endpoints;
            order.wait_for(&self.subscriptions, endpoints, next, nonce, now);
        }
    }

    /// Forces the endpoints of clusters that were sent before the first request for endpoints, which was just
    /// taken. They are awaited, too: a client that comes again asks for the endpoints that it knows of, and
    /// for those of new clusters once it has read these.
    fn settle_endpoints_due(&mut self, index: usize, now: Time) {
        let Some(transition) = self.transitions.get_mut() else { return };
        let Some(subscription) = self.subscriptions.get_mut(index) else { return };
        let Some(lists) = transition.endpoints.settle_due(subscription) else { return };
        let mut subscriptions = self.subscriptions.iter();
        let clusters = subscriptions.find(|subscription| subscription.type_url.kind() == Kind::Cluster);
        let Some(clusters) = clusters else { return };
        let (nonce, is_answered) =
            (clusters.nonces.latest().unwrap_or_default(), !clusters.nonces.is_waiting());
        for list in &lists {
            self.await_endpoints(list, nonce, false, now);
        }
        if is_answered && let Some(transition) = self.transitions.get_mut() {
            transition.endpoints.note_answered(now);
        }
        self.transitions.trim();
    }

    /// Records and returns the mark for the message of this answer that was just committed; `None` if no
    /// mark is due.
    pub fn mark(&mut self, index: usize, answer: &Answer, chunks: usize) -> Option<SetMark> {
        if !self.kind().marks || answer.chunk + 1 < chunks {
            return None;
        }
        let marks = self.subscriptions.get_mut(index)?.set_marks_mut()?;
        marks.take(&answer.parts)
    }

    /// Gives up the rest of this subscription's answer. The next answer is built from the snapshots of that
    /// time.
    pub fn begin_anew(&mut self, index: usize) {
        if let Some(subscription) = self.subscriptions.get_mut(index) {
            subscription.interrupt();
        }
    }

    /// As [`Self::begin_anew`], for each unfinished answer whose key satisfies the condition.
    pub fn give_up(&mut self, is_given_up: impl Fn(&AnswerKey) -> bool) {
        for subscription in &mut self.subscriptions {
            if subscription.pending_key().is_some_and(|key| is_given_up(&key)) {
                subscription.interrupt();
            }
        }
    }

    // Rest.

    /// Notes that the sources may have published something since the last look. The caller notes it before
    /// the next look.
    pub fn note_news(&mut self) {
        self.news = self.news.wrapping_add(1);
    }

    /// Whether nothing is due behind the whole answer of this subscription that was just committed: it
    /// brought all that the sources have. Answers go by rank, so the subscriptions before it have none, and
    /// it must be the last.
    pub fn is_sated(&self, index: usize) -> bool {
        index + 1 == self.subscriptions.len() && self.is_at_rest(index)
    }

    /// Whether an ACK of this subscription makes nothing due: its latest answer brought all that the sources
    /// have, and nothing waits for an ACK. Holds only if the last look found no answer.
    fn is_at_rest(&self, index: usize) -> bool {
        let sent_after =
            self.subscriptions.get(index).and_then(|subscription| subscription.delivery.sent_after);
        sent_after == Some(self.news)
            && self.hold.until().is_none()
            && self.lanes.is_none()
            && self.transitions.allow_rest()
            && !self.is_returning
            && self.positions.is_empty()
            && self.subscriptions.iter().all(Subscription::is_at_rest)
    }

    // Reports (RLY-71, ADM-7, ADM-10, TRU-1). They read the state that the session has anyway, so that no ACK
    // counts anything (TRU-2).

    /// A report on each subscription, in the order of the subscriptions. `latest` as in
    /// [`Session::poll_answer`].
    pub fn reports(&self, latest: Latest<'_>, now: Time) -> Vec<TypeReport> {
        let snapshots = self.serving().served(latest);
        let turn = self.turn(&snapshots, false, now);
        let holds = |subscription: &&Subscription| {
            subscription.type_url.kind().is_cluster_side()
                && (subscription.holds_back(&turn)
                    || !self.kind.marks && self.owes(subscription, &turn).is_some())
        };
        let before = self.subscriptions.iter().find(holds).map(|subscription| &subscription.type_url);
        let endpoints = &self.transitions.endpoints;
        let before = before.or_else(|| endpoints.before_routes(&self.subscriptions, now));
        let (subscriptions, since) = (self.subscriptions.iter(), self.hold.since());
        subscriptions.map(|subscription| TypeReport::new(subscription, before, since, &turn)).collect()
    }

    /// Whether some list serves the type from another server than the preferred one.
    pub fn is_on_fallback(&self, subscription: &Subscription) -> bool {
        let serves = |position: &&ListPosition| {
            let mut parts = subscription.parts.iter();
            parts.any(|part| position.covers(&subscription.type_url, part.asked.list))
        };
        self.positions.iter().filter(serves).any(|position| position.fallback.serving() > 0)
    }

    /// The names of one type; `None` if the client does not ask for the type. `latest` as in
    /// [`Session::poll_answer`].
    pub fn ledger(&self, type_url: &TypeUrl, latest: Latest<'_>, now: Time) -> Option<Ledger> {
        let mut subscriptions = self.subscriptions.iter();
        let subscription = subscriptions.find(|subscription| subscription.type_url == *type_url)?;
        let snapshots = self.serving().served(latest);
        Some(subscription.ledger(&self.turn(&snapshots, false, now)))
    }

    /// The changes that went by without a verdict since the last call.
    pub fn take_passed(&mut self) -> Option<Passed> {
        self.transitions.take_passed().map(|passed| *passed)
    }

    /// The changes that the client has not answered or not been sent. `latest` as for
    /// [`Session::poll_answer`].
    pub fn unsettled_changes(&self, latest: Latest<'_>) -> Vec<Unsettled> {
        let snapshots = self.serving().newest(latest);
        let turn = self.turn(&snapshots, false, Time::ZERO);
        self.subscriptions.iter().flat_map(|subscription| subscription.unsettled(&turn)).collect()
    }

    /// The state of each type at each of its sources, by the newest content. `latest` as in
    /// [`Session::poll_answer`].
    pub fn type_states(&self, latest: Latest<'_>, now: Time) -> Vec<ClientTypeState> {
        let snapshots = self.serving().served(latest);
        standing::type_states(&self.subscriptions, &self.turn(&snapshots, false, now))
    }

    /// Whether the client accepted this version of a resource, and has it (TRU-6).
    pub fn has_accepted(&self, type_url: &TypeUrl, name: &ResourceName, version: Version) -> bool {
        standing::has_accepted(&self.subscriptions, type_url, name, version)
    }

    /// The ledger of the session, for readers: each part with the content that the client was sent, and the
    /// answers.
    pub fn sent_parts(&self) -> impl Iterator<Item = SentPart<'_>> {
        SentPart::all(&self.subscriptions, self.kind.variant)
    }
}
