//! The questions and the orders of the source, and the moves of types from one machine to another.

use std::collections::BTreeSet;
use std::time::Duration;

use imbl::OrdSet;

use crate::Time;
use crate::commons::{Commons, ContentKey};
use crate::reachability::Reachability;
use crate::upstream::UpstreamSettings;
use crate::upstream::api::{FormerResource, Input, Resumed};
use crate::upstream::blame::{blamed_types, was_asked_soon};
use crate::upstream::currency::Currency;
use crate::upstream::link::LinkPhase;
use crate::upstream::machine::Upstream;
use crate::upstream::names::WantedNames;
use crate::upstream::request::RequestReason;
use crate::upstream::type_request::TypeRequest;
use crate::upstream::want::Want;
use sluice_xds::{Code, ResourceName, Status, TypeUrl, Variant};

/// The state of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Nothing is wanted.
    Closed,
    /// The next attempt is at `until`.
    Waiting {
        until: Time,
    },
    Opening,
    Open,
}

/// A type with wanted resources.
#[derive(Clone, Debug)]
pub struct TypeView<'a> {
    pub type_url: &'a TypeUrl,
    pub wildcard: bool,
    /// The number of subscribed names; for a wildcard, the number of held members.
    pub names: usize,
    /// The nonce of the last response on this stream.
    pub nonce: &'a str,
    /// SotW: the last accepted `version_info`.
    pub version: &'a str,
    pub acks: u64,
    pub nacks: u64,
}

/// A subscription on the way from a stream to another stream, with the state of the held resources.
#[derive(Debug)]
pub struct CarriedType {
    subscription: TypeRequest,
    variant: Variant,
}

/// The link, and the server.
impl Upstream {
    pub fn state(&self) -> LinkState {
        match &self.link.phase {
            LinkPhase::Closed => LinkState::Closed,
            LinkPhase::Waiting { until } => LinkState::Waiting { until: *until },
            LinkPhase::Opening => LinkState::Opening,
            LinkPhase::Open(_) => LinkState::Open,
        }
    }

    /// The time at which the state was entered.
    pub fn since(&self) -> Time {
        self.link.since
    }

    /// Returns true if nothing is wanted, and there is no stream.
    pub fn is_idle(&self) -> bool {
        self.link.is_closed()
    }

    /// Returns true if nothing is wanted, and no output is outstanding.
    pub(crate) fn is_done(&self) -> bool {
        self.is_idle() && self.outputs.is_empty()
    }

    /// Returns true if a stream is wanted, and none is open.
    pub fn is_attempting(&self) -> bool {
        matches!(self.link.phase, LinkPhase::Waiting { .. } | LinkPhase::Opening)
    }

    /// The reachability of the server, according to this stream.
    pub fn reach(&self) -> &Reachability {
        &self.health.reach
    }

    /// Returns true if the server answers, or may still answer: a stream is open, or polls succeed.
    pub fn is_reached(&self) -> bool {
        self.link.stream().is_some() || (self.settings.polls() && self.health.last_error.is_none())
    }

    /// The server sets marks on the open stream (ADR 14).
    pub fn has_marks(&self) -> bool {
        self.link.stream().is_some_and(|stream| stream.has_marks)
    }

    /// The server has answered something on the open stream.
    pub(crate) fn is_answered(&self) -> bool {
        self.link.stream().is_some_and(|stream| stream.evidence.answered.is_some())
    }

    /// Bytes of a message have arrived, and the rest is outstanding.
    pub(crate) fn is_receiving(&self) -> bool {
        self.link.stream().is_some_and(|stream| stream.transport.is_receiving)
    }

    /// The number of signs of life of the open stream.
    pub(crate) fn signs(&self) -> u64 {
        self.link.stream().map_or(0, |stream| stream.transport.signs)
    }

    /// The variant of the stream, or of the next stream as things stand.
    pub fn variant(&self) -> Variant {
        self.link.variant
    }

    /// The server of the present turn, by its number in the list.
    pub fn server(&self) -> u16 {
        self.link.turns.server()
    }

    /// Returns true if the failover server will never be asked again.
    pub fn stays_with_primary(&self) -> bool {
        self.link.turns.has_primary_answered()
    }

    /// The reason for the unreachability, or for the end of the last stream. `None` from the next response
    /// on.
    pub fn last_error(&self) -> Option<&Status> {
        self.health.last_error.as_ref()
    }

    /// The server's own identifier, which may change at any time.
    pub fn control_plane(&self) -> &str {
        &self.health.control_plane
    }

    /// The time since which the server has no service for the type of this stream, and the server's status.
    pub fn unserved(&self) -> Option<(Time, &Status)> {
        self.health.unserved.as_ref().map(|(since, status)| (*since, status))
    }
}

/// The types.
impl Upstream {
    /// The types with wanted resources, in rank order.
    pub fn types(&self) -> impl Iterator<Item = TypeView<'_>> {
        self.requests.wanted_types().map(|subscription| TypeView {
            type_url: &subscription.type_url,
            wildcard: matches!(subscription.want, Want::Wildcard(_)),
            names: subscription.want.len(),
            nonce: &subscription.exchange.responses.nonce,
            version: &subscription.accepted,
            acks: subscription.acks,
            nacks: subscription.nacks,
        })
    }

    /// The wanted names of a type, including globs, sorted. Empty for a wildcard.
    pub fn names(&self, type_url: &TypeUrl) -> impl Iterator<Item = &ResourceName> {
        self.requests.get(type_url).into_iter().flat_map(|subscription| subscription.want.iter())
    }

    /// The bytes of all variants, which the machine keeps.
    pub fn variant_bytes(&self) -> usize {
        let names = self.requests.iter().filter_map(|subscription| subscription.want.names());
        names.map(|names| names.variants.bytes()).sum()
    }

    /// The server's own versions of the held resources of a type, by subscribed name. Only versions that may
    /// be claimed later occur (RLY-64). Sorted.
    pub fn versions(&self, type_url: &TypeUrl) -> Vec<(ResourceName, Box<str>)> {
        // The checkpoint keeps versions of the primary server only.
        let subscription = self.requests.get(type_url).filter(|_| self.link.turns.is_primary());
        subscription.map_or(Vec::new(), |subscription| subscription.want.claimable_versions())
    }

    /// Returns true if the server has answered for the type on the present stream, so that the type is
    /// current.
    pub fn is_current(&self, type_url: &TypeUrl) -> bool {
        self.wanted_type(type_url).is_some_and(|subscription| subscription.currency == Currency::Current)
    }

    /// Returns the names without an answer on the present stream, for a type that is not current as a whole
    /// but has answers for other names. Those other names are current (I9, RLY-44).
    pub fn unanswered_names(&self, type_url: &TypeUrl) -> Option<&OrdSet<ResourceName>> {
        let subscription = self.requests.get(type_url)?;
        let names = subscription.want.names().filter(|_| subscription.exchange.responses.has_good);
        names.map(WantedNames::unanswered)
    }

    /// Returns true if a wildcard counts as whole, and more of it may come.
    pub(crate) fn is_provisional(&self, type_url: &TypeUrl) -> bool {
        let want = self.requests.get(type_url).map(|subscription| &subscription.want);
        matches!(want, Some(Want::Wildcard(wildcard)) if wildcard.is_provisional())
    }

    /// Returns true if the server has answered for the type since the request on the present stream. More
    /// answers may follow.
    pub(crate) fn has_answered(&self, type_url: &TypeUrl) -> bool {
        self.wanted_type(type_url).is_some_and(|subscription| subscription.exchange.requests.is_answered())
    }

    /// Returns true if a subscription of the type is here, wanted or said on the present stream.
    pub(crate) fn knows(&self, type_url: &TypeUrl) -> bool {
        self.requests.contains(type_url)
    }

    fn wanted_type(&self, type_url: &TypeUrl) -> Option<&TypeRequest> {
        self.requests.get(type_url).filter(|subscription| !subscription.wants_nothing())
    }
}

/// Names that may silence a server (ADR 54).
impl Upstream {
    /// The types without a response since a request for more names, for the time of the resource timer, on a
    /// stream that is alive.
    pub(crate) fn silenced(&self) -> Vec<TypeUrl> {
        self.link.stream().map_or(Vec::new(), |stream| self.requests.silenced(stream))
    }

    /// The server may be silent about the type: no name is in doubt.
    pub(crate) fn forgive(&mut self, type_url: &TypeUrl) {
        if let Some(subscription) = self.requests.get_mut(type_url) {
            subscription.exchange.silence.end();
        }
    }

    /// The names that may be the reason of a silence: those without a resource, and those that were added
    /// since the last response. Names with parameters are for servers of another kind.
    pub(crate) fn doubtful(&self, type_url: &TypeUrl) -> BTreeSet<ResourceName> {
        let Some(subscription) = self.requests.get(type_url) else { return BTreeSet::new() };
        let Some(names) = subscription.want.names() else { return BTreeSet::new() };
        let added = &subscription.exchange.silence.added;
        let is_doubtful = |name: &&ResourceName| {
            (names.held(name).is_none() || added.contains(*name)) && !name.is_located()
        };
        names.iter().filter(is_doubtful).cloned().collect()
    }

    /// The names without a resource, but for those with parameters.
    pub(crate) fn unheld(&self, type_url: &TypeUrl) -> Vec<ResourceName> {
        let Some(names) = self.wanted_names(type_url) else { return Vec::new() };
        names.iter().filter(|name| names.held(name).is_none() && !name.is_located()).cloned().collect()
    }

    /// A name with a resource under its own name, beside the doubtful names.
    pub(crate) fn witness(
        &self,
        type_url: &TypeUrl,
        doubtful: &BTreeSet<ResourceName>,
    ) -> Option<ResourceName> {
        let mut held = self.wanted_names(type_url)?.held_names();
        let sound = held.find(|(name, held)| !doubtful.contains(*name) && held.own_name(name) == *name);
        sound.map(|(name, _)| name.clone())
    }

    /// The names with resources, for another stream of the same server.
    pub(crate) fn former_resources(&self, type_url: &TypeUrl) -> Vec<FormerResource> {
        let names = self.wanted_names(type_url).into_iter().flat_map(WantedNames::held_names);
        let resources = names.map(|(name, held)| FormerResource {
            name: name.clone(),
            own_name: held.own_name(name).clone(),
            version: Box::default(),
        });
        resources.collect()
    }

    fn wanted_names(&self, type_url: &TypeUrl) -> Option<&WantedNames> {
        self.requests.get(type_url)?.want.names()
    }
}

/// The orders of the source.
impl Upstream {
    /// The time to live of a resource expired. The resource is no longer held, so that a new stream asks for
    /// it afresh (TTL-8).
    pub fn expire(&mut self, type_url: &TypeUrl, name: &ResourceName) {
        if let Some(subscription) = self.requests.get_mut(type_url) {
            subscription.is_astray = true;
            subscription.want.expire(name);
        }
        self.check_invariants();
    }

    /// Subscribes again and restores the held resources, as if a stream had just been lost. The next stream
    /// restates the resources (DEL-35, RLY-64), no resource timer runs for them (TMR-3), and removals are
    /// detected as after any reconnect (RLY-27).
    pub fn resume(&mut self, type_url: &TypeUrl, resumed: Resumed, now: Time) {
        self.subscribe(type_url, resumed.selection(), now);
        // The server has to report changes only, and there may be none.
        self.health.has_spoken = true;
        if let Some(subscription) = self.requests.get_mut(type_url) {
            // Versions belong to the variant that made them (RLY-64).
            subscription.want.resume(&resumed, self.link.variant == Variant::Delta);
        }
        self.check_invariants();
    }

    /// Asks for everything that is not held, on a new stream. A poll does so by itself.
    pub(crate) fn ask_anew(&mut self, now: Time) {
        if self.link.stream().is_some() && !self.settings.polls() {
            self.renew(now);
            self.check_invariants();
        }
    }

    /// Takes equal answers of another source's server over. `content`: the content of the source.
    pub(crate) fn share(&mut self, type_url: &TypeUrl, content: ContentKey, commons: &dyn Commons) {
        if let Some(subscription) = self.requests.get_mut(type_url) {
            subscription.want.share(content, commons);
        }
    }

    /// The primary answered on another stream of the source: all streams use one server (E6).
    pub fn stay_with_primary(&mut self, now: Time) {
        if self.link.turns.end() && self.link.has_stream() {
            self.renew(now);
        }
        self.check_invariants();
    }

    /// Ends a stream without wanted resources.
    pub(crate) fn close_idle(&mut self, now: Time) {
        if self.link.idle_until.is_some() {
            self.close(now);
        }
    }

    /// Streams begin with another node from now on. Without an open stream, or before the first request, the
    /// next first request carries the node. So does the next poll.
    pub fn succeed(&mut self) {
        if let LinkPhase::Open(stream) = &mut self.link.phase
            && !self.settings.polls()
            && stream.has_node
            && stream.successor.begin()
        {
            self.open_successor();
        }
    }

    /// Checks the transport.
    pub(crate) fn probe(&mut self) {
        if let LinkPhase::Open(stream) = &mut self.link.phase {
            stream.transport.probe(&mut self.outputs);
        }
    }

    /// Tells the server of clients' rejections of an accepted response (`report_rejections`, RLY-38). Returns
    /// false if the relay has accepted nothing on the stream, or if an answer is due first.
    ///
    /// A relay accepts a response before clients have seen the content, so a server would never hear of
    /// NACKs. A request with an error, the newest nonce and the accepted version tells the server. Nothing is
    /// due then: the version is current, the names are the same, and only the error is new.
    pub fn report_rejections(&mut self, type_url: &TypeUrl, words: &str, now: Time) -> bool {
        if self.link.stream().is_none() || self.settings.polls() {
            return false;
        }
        // A request with other names has an answer, and goes before.
        if self.requests.get(type_url).is_some_and(TypeRequest::has_news) {
            self.write_change(type_url, now);
        }
        let Some(subscription) = self.requests.get(type_url) else { return false };
        let exchange = &subscription.exchange;
        if !exchange.responses.is_accepted || subscription.has_news() || exchange.repetition.owes() {
            return false;
        }
        let words = &words[..words.floor_char_boundary(self.settings.nack_text_max)];
        self.write(type_url, RequestReason::Nack(Status::new(Code::InvalidArgument, words)), now)
    }

    /// Handles the end of the stream by a status of the server's own. Returns the types for which the server
    /// may have ended the stream. With such types the next stream may open at once, because the caller takes
    /// the types away.
    pub fn handle_end(&mut self, status: Status, jitter: f64, now: Time) -> Vec<TypeUrl> {
        let Some(stream) = self.link.stream() else {
            self.handle(Input::Closed { status, jitter }, now);
            return Vec::new();
        };
        let blamed = blamed_types(&self.requests, stream, &self.health, &status, now);
        if !stream.evidence.is_dismissed {
            // Without the blamed type, all others are asked for at once.
            let is_soon = blamed.is_empty() && was_asked_soon(&self.requests, now);
            self.health.silent_ends.count(is_soon && stream.evidence.answered.is_none());
        }
        if blamed.is_empty() {
            self.handle(Input::Closed { status, jitter }, now);
        } else {
            self.disconnect(status, true, Duration::ZERO, now);
            self.check_invariants();
        }
        blamed
    }
}

/// The moves of types from one machine to another.
impl Upstream {
    /// Gives up a type, so that another stream can carry the type. The stream closes after its last type.
    pub(crate) fn release(&mut self, type_url: &TypeUrl, now: Time) -> Option<CarriedType> {
        let mut subscription = self.requests.remove(type_url)?;
        if self.link.stream().is_some() {
            subscription.end_stream();
        }
        subscription.currency = Currency::Unasked;
        if self.requests.want_nothing() {
            self.close(now);
        }
        self.check_invariants();
        Some(CarriedType { subscription, variant: self.link.variant })
    }

    /// Takes a type over from another stream, as if the other stream had been lost: held resources are
    /// restated (DEL-35). A stream that has to open for the type opens no earlier than `not_before`.
    pub(crate) fn carry(&mut self, carried: CarriedType, not_before: Time, now: Time) {
        let CarriedType { mut subscription, variant } = carried;
        if variant != self.link.variant {
            subscription.forget_versions();
        }
        self.link.idle_until = None;
        self.requests.insert(subscription);
        match &self.link.phase {
            LinkPhase::Closed => {
                let until = self.link.retry_at.max(not_before);
                self.link.enter(LinkPhase::Waiting { until }, now);
            }
            LinkPhase::Waiting { .. } | LinkPhase::Opening => {}
            LinkPhase::Open(_) => self.write_changes_gathered(now),
        }
        self.check_invariants();
    }

    /// No stream opens before `until`, from now on.
    pub(crate) fn hold_off(&mut self, until: Time) {
        self.link.hold_off(until);
    }

    /// No stream opens before the previous machine would open a stream, and the previous machine's backoff
    /// goes on.
    pub(crate) fn wait_like(&mut self, previous: &Upstream) {
        self.link.backoff = previous.link.backoff.clone();
        self.link.hold_off(previous.link.retry_at);
    }

    /// A machine for a second stream to the same server in the same variant. The ends of the second stream
    /// say nothing about the variants of the server.
    pub(crate) fn beside(&self) -> Upstream {
        Upstream::new(UpstreamSettings {
            variant: self.link.variant,
            fall_back_to_sotw: false,
            failover: false,
            ..self.settings.clone()
        })
    }
}
