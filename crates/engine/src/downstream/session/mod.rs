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

mod changes;
mod cluster_side;
mod commit;
mod complete_set;
mod endpoints_awaited;
mod endpoints_due;
pub(super) mod lanes;
pub mod grant;
pub mod limits;
pub mod list_position;
pub mod moves;
mod nonce_prefix;
mod poll;
pub mod push_set;
pub mod refused;
pub mod report;
pub mod reclassify;
pub mod request;
mod rest;
mod returning;
pub mod router;
mod routing;
mod stand_ins;
pub mod unasked;
pub mod standing;
pub mod without_evidence;

use std::sync::Arc;

use crate::Time;
use crate::authorization::{Denials, Grant};
use crate::collection::HashSeed;
use crate::downstream::order::turn::Snapshots;
use crate::downstream::session::endpoints_awaited::EndpointsAwaited;
use crate::downstream::session::endpoints_due::EndpointsDue;
use crate::downstream::session::limits::{Excess, Limits};
use crate::downstream::session::list_position::{ListPosition, ListPositions};
use crate::downstream::session::nonce_prefix::NoncePrefix;
use crate::downstream::session::reclassify::Moving;
use crate::downstream::session::router::List;
use crate::downstream::sources::{ListId, SourceId};
use crate::downstream::subscription::Subscription;
use crate::downstream::subscription::carried::Passed;
use crate::downstream::subscription::name_wait::NameWait;
use crate::downstream::subscription::part::Part;
use sluice_xds::{StreamKind, TypeUrl, Variant};

#[derive(Debug)]
pub struct Session {
    kind: StreamKind,
    limits: Limits,
    seed: HashSeed,
    nonce_prefix: NoncePrefix,
    /// The number of responses that the stream has carried; the latest nonce.
    carried: u64,
    /// Sorted by type, hence by rank.
    subscriptions: Vec<Subscription>,
    /// All sources that the parts are asked of, serving or not.
    sources: Vec<SourceId>,
    /// The session's position in server lists of several servers.
    positions: ListPositions,
    /// The session is on its way to the sources of another configuration.
    moving: Option<Moving>,
    /// The releases that serve the session, while a push goes by steps or after it. Nearly always none.
    lanes: Option<Box<lanes::Lanes>>,
    /// The start of the routing types' wait: the cluster side has news to send, or waits for an ACK.
    held_since: Option<Time>,
    held_until: Option<Time>,
    /// Some part has content from elsewhere, and its source may not know the whole set.
    is_returning: bool,
    /// The snapshots of a round. The routing types have waited for the maximum time. Until they have had
    /// their turn, answers are built from the sources' own content at the start of the round (see
    /// [`Session::served_in`]).
    round: Option<Box<Snapshots>>,
    /// The endpoints of clusters that were sent before the first request for endpoints; `None` from that
    /// request on.
    endpoints_due: Option<Box<EndpointsDue>>,
    /// The endpoints that go before the routes.
    endpoints_awaited: Option<Box<EndpointsAwaited>>,
    /// The client has answered clusters with endpoints, and asks for no endpoints on the stream.
    is_without_endpoints: bool,
    excess: Option<Excess>,
    /// The types, names and wildcards that the client may ask for.
    grant: Arc<Grant>,
    /// The denials of the latest request.
    denials: Option<Box<Denials>>,
    /// How often the sources may have published something.
    news: u32,
    /// Changes that went by without a verdict, until the driver takes them. Nearly always none.
    passed: Option<Box<Passed>>,
    /// The client has other versions of refused contents. Nearly always none.
    kept: Option<Box<refused::Kept>>,
    is_served_all: bool,
}

impl Session {
    /// `nonce_prefix` is drawn for this stream, so that no nonce of another stream is valid here (STR-5). No session is
    /// without a grant (AUT-1): [`Grant::nothing`] before the first request.
    pub fn new(
        kind: impl Into<StreamKind>,
        limits: Limits,
        seed: HashSeed,
        nonce_prefix: u32,
        grant: Arc<Grant>,
    ) -> Session {
        Session {
            kind: kind.into(),
            limits,
            seed,
            nonce_prefix: NoncePrefix::new(nonce_prefix),
            carried: 0,
            subscriptions: Vec::new(),
            sources: Vec::new(),
            positions: ListPositions::default(),
            moving: None,
            lanes: None,
            held_since: None,
            held_until: None,
            is_returning: false,
            round: None,
            endpoints_due: None,
            endpoints_awaited: None,
            is_without_endpoints: false,
            excess: None,
            grant,
            denials: None,
            news: 0,
            passed: None,
            kept: None,
            is_served_all: false,
        }
    }

    /// Takes other limits and rules of fallback over. Limits count from the next change of collections on, rules from the next look on.
    /// `list` as [`Router::fallback`](router::Router::fallback); a list that is gone keeps its rules.
    pub fn configure(&mut self, limits: Limits, list: &dyn Fn(ListId) -> Option<List>) {
        self.limits = limits;
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

    /// The limit for which the session refused a request.
    pub fn excess(&self) -> Option<Excess> {
        self.excess
    }

    /// The nonce in its form on the wire: unique within the stream, never valid on another stream (STR-5,
    /// RLY-33).
    pub fn nonce_text(&self, nonce: u64) -> String {
        self.nonce_prefix.spell(nonce)
    }

    fn parse_nonce(&self, text: &str) -> Option<u64> {
        self.nonce_prefix.parse(text)
    }

    fn parts(&self) -> impl Iterator<Item = (&Subscription, &Part)> {
        let subscriptions = self.subscriptions().iter();
        subscriptions.flat_map(|subscription| subscription.parts.iter().map(move |part| (subscription, part)))
    }

    fn parts_of(&self, position: &ListPosition) -> impl Iterator<Item = (&Subscription, &Part)> {
        self.parts().filter(|(subscription, part)| position.covers(&subscription.type_url, part.asked.list))
    }

    /// The parts that a position serves, or will.
    fn parts_bound_for(&self, position: &ListPosition) -> impl Iterator<Item = (&Subscription, &Part)> {
        self.parts()
            .filter(|(subscription, part)| position.covers(&subscription.type_url, part.bound_for().list))
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
}
