//! The client side of the protocol: one ADS stream to one server, SotW or delta.
//!
//! [`Upstream`] owns what is wanted of the server, what has been said of it on the stream, the nonce and version
//! bookkeeping, the resource timers and the backoff between streams. What responses bring leaves it as [`Changes`], and it
//! remembers only names and version strings, O(names wanted); of resources nothing, but for those that come in [`variants`].
//! It never connects, writes or reads: the shell does what each [`Output`] says, in order, and reports each [`Input`].
//!
//! ```text
//!             something wanted                    Opened
//!   Closed ───────────────────▶ Opening ───────────────────────▶ Open
//!     ▲ ▲                        ▲   │                            │
//!     │ │                  timer │   │ Closed                     │ Closed
//!     │ │   nothing wanted       │   ▼                            │
//!     │ └───────────────────── Waiting ◀──────────────────────────┘
//!     └─────────────────────── from Opening and Open: nothing wanted (Close)
//! ```
//!
//! SotW and delta differ in how a request is spelled ([`sotw`], [`delta`]) and in three rules of how a response is
//! read ([`apply`]): what an element without payload means, what an omission proves, and when a wildcard is whole.

mod api;
mod backoff;
mod failover;
mod gathering;
mod subscription;
mod names;
mod pace;
mod variants;
mod settling;
mod marks;
mod wildcard;
mod globs;
mod response;
mod apply;
mod sotw;
mod delta;
mod poll;
mod proof;
mod mute;
mod succession;
mod blame;
mod idle;
mod resume;
mod order;
mod view;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use api::{
    Cause, Changes, Event, Hold, Input, Interest, Output, Scope, Settings, Transport, WildcardStyle,
};
pub use backoff::BackoffSettings;
pub use blame::{Carried, SOON};
pub use order::Lower;
pub use resume::{Former, Resumed};
pub use view::{State, TypeView};

use backoff::Backoff;
use failover::Failover;
use gathering::Gathering;
use names::Names;
use proof::Flaps;
use response::{Digest, Verdict};
use settling::Settling;
use subscription::{Subscription, Want};
use succession::Next;

use super::Time;
use super::reach::Reach;
use crate::engine::planted::{Bug, planted};
use crate::xds::{Code, Kind, Request, ResourceName, Response, Status, TypeUrl, Variant};

/// How long a server that refused delta is asked by SotW (RLY-25).
const SOTW_FOR: Duration = Duration::from_secs(3600);

/// Delta streams refused with UNKNOWN before any response ever, until the server is taken for one without delta.
const REFUSALS_MAX: u32 = 2;

/// Types that were asked for on this stream and of which nothing is wanted any more: their nonces are kept up to
/// this many (NON-6), then the stream is renewed.
const RETIRED_TYPES_MAX: usize = 64;

/// The client of one server.
#[derive(Debug)]
pub struct Upstream {
    settings: Settings,
    phase: Phase,
    since: Time,
    outputs: VecDeque<Output>,
    subscriptions: BTreeMap<TypeUrl, Subscription>,
    backoff: Backoff,
    flaps: Flaps,
    /// No stream is opened before, even if interest went away and came back meanwhile.
    retry_at: Time,
    variant: Variant,
    /// Of the primary and the failover server.
    fallback: [SotwFallback; 2],
    failover: Failover,
    last_error: Option<Status>,
    reach: Reach,
    control_plane: String,
    /// REST: the last poll was answered.
    is_polled: bool,
    /// The server has answered something since something is wanted, or it answered before the relay was restarted.
    has_spoken: bool,
    /// Nothing is wanted of the open stream: it closes then.
    idle_until: Option<Time>,
    /// Since when the server has no service for the type of this stream.
    unserved: Option<(Time, Status)>,
}

#[derive(Debug)]
enum Phase {
    Closed,
    Waiting { until: Time },
    Opening,
    Open(Stream),
}

#[derive(Debug)]
struct Stream {
    opened: Time,
    /// A request was written, and with it the node.
    has_spoken: bool,
    /// When the first response came.
    answered: Option<Time>,
    /// When its silence was found to be an answer.
    silent: Option<Time>,
    /// It proves that the server can be heard.
    is_heard: bool,
    /// The server asked for its connection to be left: the end that follows is its wish, not its failure (KAL-5).
    is_dismissed: bool,
    /// How many signs of life there were: responses, and answers to probes.
    signs: u64,
    is_probing: bool,
    gathering: Gathering,
    /// When the first request was written.
    asked: Option<Time>,
    /// It was told that the server says nothing.
    is_mute: bool,
    /// The stream that is to take its place.
    next: Next,
    /// Bytes of a message have come, and not all of it.
    is_receiving: bool,
    /// A round trip of the transport has begun.
    has_round: bool,
    /// The server marks what is whole.
    has_marks: bool,
}

/// Whether the server knows delta (RLY-25).
#[derive(Debug, Default)]
struct SotwFallback {
    has_answered_delta: bool,
    refusals: u32,
    until: Option<Time>,
}

impl Stream {
    /// Whether its end says nothing against the server: after an answer (CLI-2), at the server's wish, or in good order
    /// after it had nothing to say (KAL-5).
    fn ends_well(&self, status: &Status) -> bool {
        let had_nothing_to_say = self.is_heard && status.code == Code::Ok;
        self.answered.is_some() || self.is_dismissed || had_nothing_to_say
    }
}

impl SotwFallback {
    /// What a delta stream that ended without an answer tells.
    fn refused(&mut self, status: &Status) -> Refusal {
        match status.code {
            Code::Unimplemented => Refusal::NoDelta,
            Code::Unknown if !self.has_answered_delta => {
                self.refusals += 1;
                if self.refusals < REFUSALS_MAX { Refusal::Perhaps } else { Refusal::NoDelta }
            }
            _ => Refusal::Unreachable,
        }
    }
}

enum Refusal {
    /// The server doesn't speak delta.
    NoDelta,
    /// It may be so; the next attempt tells.
    Perhaps,
    Unreachable,
}

/// Why a request is written.
enum Occasion {
    Change,
    Ack,
    Nack(Status),
}

impl Upstream {
    pub fn new(settings: Settings) -> Self {
        let variant = settings.variant;
        let (since, retry_at, outputs, subscriptions, backoff, flaps) = Default::default();
        let (fallback, failover, last_error, reach, control_plane) = Default::default();
        Upstream {
            settings,
            phase: Phase::Closed,
            since,
            outputs,
            subscriptions,
            backoff,
            flaps,
            retry_at,
            variant,
            fallback,
            failover,
            last_error,
            reach,
            control_plane,
            is_polled: false,
            has_spoken: false,
            idle_until: None,
            unserved: None,
        }
    }

    /// Adds to what is wanted. Names that are wanted already change nothing; an interest of the other kind (names
    /// for the wildcard, or the reverse) takes the place of the one before. To exchange names, subscribe first and
    /// unsubscribe after, else the stream may close in between.
    pub fn subscribe(&mut self, type_url: &TypeUrl, interest: Interest, now: Time) {
        if matches!(&interest, Interest::Names(names) | Interest::Globs(names) if names.is_empty()) {
            return;
        }
        if self.polls() {
            return self.subscribe_poll(type_url, interest, now);
        }
        let new = || Subscription::new(type_url.clone());
        let subscription = self.subscriptions.entry(type_url.clone()).or_insert_with(new);
        let mut renew = subscription.needs_fresh_stream(&interest);
        if !renew && subscription.must_leave_first(&interest) {
            renew = !self.write(type_url, Occasion::Change, now);
        }
        if let Some(subscription) = self.subscriptions.get_mut(type_url) {
            self.idle_until = None;
            subscription.add(interest);
            self.outputs.extend(subscription.answer_from_variants());
        }
        match &self.phase {
            Phase::Closed if now < self.retry_at => self.enter(Phase::Waiting { until: self.retry_at }, now),
            Phase::Closed => self.open(now),
            Phase::Waiting { .. } | Phase::Opening => {}
            Phase::Open(_) if renew => self.renew(now),
            Phase::Open(_) => self.write_changes_gathered(now),
        }
        self.check_invariants();
    }

    /// Takes away from what is wanted and forgets what is held of it; late updates of it are ignored (RLY-61).
    pub fn unsubscribe(&mut self, type_url: &TypeUrl, interest: Interest, now: Time) {
        let Some(subscription) = self.subscriptions.get_mut(type_url) else { return };
        subscription.drop(interest);
        if subscription.wants_nothing() && !subscription.said.asked {
            self.subscriptions.remove(type_url);
        }
        let retired = self.subscriptions.values().filter(|subscription| subscription.wants_nothing()).count();
        if retired == self.subscriptions.len() {
            self.left(type_url, now);
        } else if self.polls() {
            self.forget_left();
        } else if retired > RETIRED_TYPES_MAX {
            self.renew(now);
        } else if matches!(self.phase, Phase::Open(_)) {
            self.write_changes_gathered(now);
        }
        self.check_invariants();
    }

    pub fn handle(&mut self, input: Input, now: Time) {
        match (input, &self.phase) {
            (Input::Ended { .. } | Input::Closed { .. } | Input::GoingAway, _)
                if self.idle_until.is_some() =>
            {
                self.close(now);
            }
            (Input::Ended { status, jitter }, _) => self.handle(Input::Closed { status, jitter }, now),
            (Input::Opened, Phase::Opening) => self.opened(now),
            (Input::ConnectFailed { status }, Phase::Opening) => self.unconnected(status, now),
            (Input::Received(response), Phase::Open(_)) => self.received(response, now),
            (Input::Unchanged, Phase::Open(_)) => self.unchanged(now),
            (Input::Alive, Phase::Open(_)) => {
                self.sign_of_life();
                self.expire_proven(now);
            }
            (Input::Marks, Phase::Open(_)) => self.expect_marks(),
            (Input::Marked(type_url, mark), Phase::Open(_)) => self.marked(&type_url, &mark, now),
            (Input::Receiving, Phase::Open(_)) => self.receiving(),
            (Input::Returned, Phase::Open(_)) => self.returned(now),
            (Input::Closed { jitter, .. }, Phase::Open(stream))
                if self.polls() && stream.answered.is_some() =>
            {
                self.polled(jitter, now);
            }
            (Input::Closed { status, jitter }, Phase::Opening) => self.unanswered(status, jitter, now),
            (Input::Closed { status, jitter }, Phase::Open(stream)) if stream.ends_well(&status) => {
                let (lived, is_dismissed) = (now.since(stream.opened), stream.is_dismissed);
                if planted(Bug::AnsweredStreamIsLost) {
                    self.reach.lose(status.clone(), now);
                }
                let retry_in =
                    self.backoff.after_answered(&self.settings.backoff, lived, is_dismissed, jitter);
                let is_found_unsteady = self.is_found_unsteady(now);
                self.ask_primary();
                self.disconnected(status.clone(), true, retry_in, now);
                if is_found_unsteady {
                    self.unreachable(self.unsteady(&status), now);
                }
            }
            (Input::GoingAway, Phase::Open(_)) => self.dismissed(),
            (Input::NextOpened, Phase::Open(_)) => self.take_next(now),
            (Input::NextFailed, Phase::Open(_)) => self.lose_next(now),
            (Input::Closed { status, jitter }, Phase::Open(_)) => self.unanswered(status, jitter, now),
            // Inputs about a stream that is gone already.
            _ => {}
        }
        self.check_invariants();
    }

    /// The time to live of a resource ran out: it is held no longer, so that a new stream asks for it afresh (TTL-8).
    pub fn expire(&mut self, type_url: &TypeUrl, name: &ResourceName) {
        match self.subscriptions.get_mut(type_url).map(|subscription| &mut subscription.want) {
            Some(Want::Names(names)) => {
                names.expire_variant(name);
                names.set_absent(name);
            }
            Some(Want::Wildcard(wildcard)) => drop(wildcard.remove(name)),
            Some(Want::Globs(globs)) => globs.expire(name),
            Some(Want::Nothing) | None => {}
        }
        self.check_invariants();
    }

    /// What the shell has to do next; to be drained after each call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Closed | Phase::Opening => None,
            Phase::Waiting { until } => Some(*until),
            // The shell bounds the time of a poll, and its response answers every name.
            Phase::Open(_) if self.polls() => None,
            Phase::Open(stream) => {
                let next = |of_type: &Subscription| of_type.next_timeout(stream.is_receiving);
                let timers = self.subscriptions.values().filter_map(next);
                timers
                    .chain(stream.gathering.until())
                    .chain(self.steady_at())
                    .chain(self.mute_at())
                    .chain(self.idle_until)
                    .chain(stream.next.due())
                    .min()
            }
        }
    }

    pub fn handle_timeout(&mut self, now: Time) {
        match &mut self.phase {
            Phase::Closed | Phase::Opening => {}
            Phase::Waiting { until } if now < *until => {}
            Phase::Waiting { .. } => self.open(now),
            Phase::Open(_) if matches!(self.settings.transport, Transport::Rest { .. }) => {}
            Phase::Open(stream) => {
                if stream.gathering.ends(now) && !planted(Bug::GatheredChangesForgotten) {
                    self.write_changes_gathered(now);
                }
                self.run_timers(now);
                self.become_steady(now);
                self.find_mute(now);
                self.run_idle(now);
                self.retry_next(now);
            }
        }
        self.check_invariants();
    }

    /// Whether the server is reachable, as this stream sees it.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Nothing is wanted, and there is no stream.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// What is known of the delta of the server whose turn it is.
    fn delta_of_server(&mut self) -> &mut SotwFallback {
        let [primary, failover] = &mut self.fallback;
        if self.failover.server == 0 { primary } else { failover }
    }

    fn enter(&mut self, phase: Phase, now: Time) {
        self.phase = phase;
        self.since = now;
    }

    fn open(&mut self, now: Time) {
        let is_refused = self.delta_of_server().until.is_some_and(|until| now < until);
        let variant = if is_refused { Variant::Sotw } else { self.settings.variant };
        let before = std::mem::replace(&mut self.variant, variant);
        if !self.take_turn(before) && variant != before {
            self.subscriptions.values_mut().for_each(Subscription::forget_versions);
        }
        self.enter(Phase::Opening, now);
        self.outputs.push_back(Output::Open { variant, server: self.server() });
    }

    /// Nothing is wanted: nothing is kept, and a later interest starts afresh (FBK-21).
    fn close(&mut self, now: Time) {
        self.subscriptions.clear();
        self.idle_until = None;
        if matches!(self.phase, Phase::Opening | Phase::Open(_)) {
            self.withdraw_unsent();
            self.outputs.push_back(Output::Close);
        }
        self.reach = Reach::Pending;
        self.has_spoken = false;
        self.unserved = None;
        self.flaps = Flaps::default();
        self.forget_turns();
        self.enter(Phase::Closed, now);
    }

    /// Ends the stream and opens another at once: what is wanted can't be said on this one.
    fn renew(&mut self, now: Time) {
        self.stream_ended();
        self.outputs.push_back(Output::Close);
        self.open(now);
    }

    fn stream_ended(&mut self) {
        self.withdraw_unsent();
        self.subscriptions.retain(|_, subscription| !subscription.wants_nothing());
        self.subscriptions.values_mut().for_each(Subscription::stream_ended);
        if !self.polls() {
            self.lose_currency();
        }
    }

    /// A request belongs to the stream for which it was made; a stale ACK must not reach the next one (STR-5).
    fn withdraw_unsent(&mut self) {
        self.outputs
            .retain(|output| !matches!(output, Output::Send { .. } | Output::Probe | Output::RoundTrip));
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// DEL-35: the first request of each type restates everything, types in dependency order.
    fn opened(&mut self, now: Time) {
        self.enter(
            Phase::Open(Stream {
                opened: now,
                has_spoken: false,
                answered: None,
                silent: None,
                is_heard: self.is_polled && self.reach.is_heard(),
                is_dismissed: false,
                signs: 0,
                is_probing: false,
                gathering: Gathering::default(),
                asked: None,
                is_mute: false,
                next: Next::default(),
                is_receiving: false,
                has_round: false,
                has_marks: false,
            }),
            now,
        );
        if !self.polls() {
            self.event(Event::Connected { variant: self.variant, server: self.server() });
        }
        self.write_changes(now);
    }

    fn unreachable(&mut self, status: Status, now: Time) {
        self.lose_currency();
        self.unserved = None;
        self.reach.lose(status.clone(), now);
        self.last_error = Some(status.clone());
        self.event(Event::Unreachable { status });
    }

    fn dismissed(&mut self) {
        if let Phase::Open(stream) = &mut self.phase {
            stream.is_dismissed = true;
        }
    }

    /// CLI-1: a stream that ends before its first response means that the server is unreachable, unless it refuses
    /// delta only (RLY-25).
    fn unanswered(&mut self, status: Status, jitter: f64, now: Time) {
        let may_switch = self.variant == Variant::Delta && self.settings.fall_back_to_sotw;
        let refusal = if may_switch { self.delta_of_server().refused(&status) } else { Refusal::Unreachable };
        if matches!(refusal, Refusal::NoDelta) {
            let delta = self.delta_of_server();
            (delta.until, delta.refusals) = (Some(now + SOTW_FOR), 0);
            self.disconnected(status.clone(), false, Duration::ZERO, now);
            self.event(Event::SwitchedToSotw { status });
            self.open(now);
            return;
        }
        let retry_in = self.retry_in(jitter);
        self.disconnected(status.clone(), false, retry_in, now);
        match refusal {
            Refusal::Unreachable if self.is_of_one_type() && status.code == Code::Unimplemented => {
                self.not_served(status, now);
            }
            Refusal::Unreachable => self.unreachable(status, now),
            Refusal::NoDelta | Refusal::Perhaps => {}
        }
    }

    fn disconnected(&mut self, status: Status, answered: bool, retry_in: Duration, now: Time) {
        if planted(Bug::RemovesOnDisconnect) {
            self.lose_all_names();
        }
        self.stream_ended();
        self.lose_currency();
        self.is_polled = false;
        self.retry_at = now + retry_in;
        self.last_error = Some(status.clone());
        self.event(Event::Disconnected { status, answered, retry_in });
        self.enter(Phase::Waiting { until: self.retry_at }, now);
    }

    fn received(&mut self, response: Response, now: Time) {
        if let Phase::Open(stream) = &mut self.phase {
            stream.is_receiving = false;
        }
        // A poll that follows an answered one is compared with that; a process that began anew meanwhile was not there for a while.
        let goes_on = self.is_polled || !self.polls();
        self.answered(now);
        let is_delta = self.variant == Variant::Delta;
        self.delta_of_server().has_answered_delta |= is_delta;
        let control_plane = response.control_plane();
        let mut is_of_another = !goes_on;
        if !control_plane.is_empty() && control_plane != self.control_plane {
            is_of_another |= !self.control_plane.is_empty();
            self.control_plane = control_plane.to_owned();
        }
        let mut digest = Digest::from(response);
        digest.is_of_another = is_of_another;
        digest.answers_all = self.polls();
        digest.fails = self.settings.fails_on_data_errors;
        self.digest(digest, now);
        self.settle_answers(now);
        self.expire_proven(now);
    }

    fn answered(&mut self, now: Time) {
        self.has_spoken = true;
        if let Phase::Open(stream) = &mut self.phase {
            stream.answered.get_or_insert(now);
        }
        self.unserved = None;
        self.primary_answered();
        self.sign_of_life();
        self.backoff.answered();
        if self.polls() && !std::mem::replace(&mut self.is_polled, true) {
            self.event(Event::Connected { variant: self.variant, server: self.server() });
        }
        if !self.flaps.is_unsteady {
            self.hear(now);
        }
    }

    /// ACK or NACK at once (ACK-8), then hand on what is good.
    fn digest(&mut self, mut digest: Digest, now: Time) {
        let type_url = digest.type_url.clone();
        let subscription =
            self.subscriptions.get_mut(&type_url).filter(|subscription| subscription.said.asked);
        let (Some(subscription), true) = (subscription, digest.variant == self.variant) else {
            return self.event(Event::Ignored { type_url });
        };
        // Another process may answer on a new stream, and count from the start again. Polls have no nonces.
        let is_first = subscription.said.nonce.is_empty() && !digest.answers_all;
        let is_comparable = !is_first && !digest.is_of_another;
        if subscription.said.nonce.is_empty() || !planted(Bug::UpstreamNonceStale) {
            subscription.said.nonce.clone_from(&digest.nonce);
        }
        subscription.said.unanswered = None;
        if !matches!(subscription.want, Want::Names(_)) {
            digest.refuse_variants();
        }
        if !matches!(subscription.want, Want::Wildcard(_)) {
            digest.refuse_nameless();
        }
        let verdict = Verdict::of(&digest);
        let says_what_there_is = !digest.is_heartbeat();
        let speaks = says_what_there_is && !verdict.void && !verdict.unidentified;
        let lower = subscription.lower(&digest);
        let occasion = if verdict.is_good() || planted(Bug::FaultsAcked) {
            subscription.accept(&digest);
            Occasion::Ack
        } else {
            Occasion::Nack(verdict.status(self.settings.nack_text_max))
        };
        let is_full = digest.is_full_state();
        let applied = if verdict.void && !planted(Bug::VoidApplied) {
            subscription.each_settling(Settling::interrupt);
            None
        } else {
            let times = (now, now + self.settings.timeout_of(&type_url));
            let (changes, mut events) = subscription.apply(digest, &verdict, times);
            let type_url = &type_url;
            events.extend(lower.map(|lower| Event::WentBackwards { type_url: type_url.clone(), lower }));
            events.retain(|event| is_comparable || !matches!(event, Event::WentBackwards { .. }));
            Some((changes, events))
        };
        if speaks {
            self.spoke(&type_url, now);
        }
        self.answer(&type_url, occasion, &verdict, now);
        let (changes, events) = applied.unwrap_or_default();
        let count = changes.as_ref().map_or(0, |changes| changes.refreshed.len());
        let refreshed = (count > 0).then(|| Event::Refreshed { type_url: type_url.clone(), count });
        self.outputs.extend(events.into_iter().chain(refreshed).map(Output::Event));
        self.outputs.extend(changes.map(Output::Changes));
        if says_what_there_is && let Some(subscription) = self.subscriptions.get_mut(&type_url) {
            subscription.judge_currency(verdict.is_good(), is_full);
        }
    }

    fn answer(&mut self, type_url: &TypeUrl, occasion: Occasion, verdict: &Verdict, now: Time) {
        let event = match &occasion {
            Occasion::Nack(status) => Event::Nacked {
                type_url: type_url.clone(),
                text: status.message.clone(),
                names: verdict.names(),
            },
            Occasion::Ack | Occasion::Change => Event::Acked { type_url: type_url.clone() },
        };
        if !self.polls() && !self.write(type_url, occasion, now) {
            // An ACK with an empty list would ask an old server for everything.
            return self.event(Event::Ignored { type_url: type_url.clone() });
        }
        if let Some(subscription) = self.subscriptions.get_mut(type_url) {
            let is_ack = verdict.is_good();
            let count = if is_ack { &mut subscription.acks } else { &mut subscription.nacks };
            *count += 1;
        }
        self.event(event);
    }

    /// Writes the next request of a type; what waits to be said goes with it. `false` if it can't be said.
    fn write(&mut self, type_url: &TypeUrl, occasion: Occasion, now: Time) -> bool {
        let (Phase::Open(stream), Some(subscription)) =
            (&mut self.phase, self.subscriptions.get_mut(type_url))
        else {
            return false;
        };
        // A server of virtual hosts knows the empty list only, which is what Envoy opens with (VHD-3).
        let style = match type_url.kind() {
            Kind::VirtualHost => WildcardStyle::Legacy,
            _ => self.settings.wildcard,
        };
        let is_answer = !matches!(occasion, Occasion::Change);
        let must_answer = self.settings.needs_answer && self.reach.is_lost();
        let error = if let Occasion::Nack(status) = occasion { Some(status) } else { None };
        let request = match self.variant {
            Variant::Sotw => sotw::request(subscription, style, must_answer, error).map(Request::Sotw),
            Variant::Delta => {
                Some(Request::Delta(delta::request(subscription, style, is_answer, must_answer, error)))
            }
        };
        let Some(request) = request else {
            self.outputs.extend(unserved(subscription).map(Output::Event));
            return false;
        };
        let due = now + self.settings.timeout_of(type_url);
        if !subscription.said.enter.is_empty() {
            subscription.said.unanswered = Some(now);
        }
        if !subscription.said.asked {
            subscription.said.may_be_silent = claims_all(&request);
        }
        subscription.said.has_marks = stream.has_marks;
        subscription.written(self.variant, due, stream.signs);
        self.outputs.push_back(Output::Send { request, first: !stream.has_spoken });
        stream.has_spoken = true;
        stream.asked.get_or_insert(now);
        true
    }

    fn sign_of_life(&mut self) {
        if let Phase::Open(stream) = &mut self.phase {
            stream.signs += 1;
            stream.is_probing = false;
        }
    }

    fn run_timers(&mut self, now: Time) {
        let Phase::Open(stream) = &self.phase else { return };
        let mut is_unproven = false;
        for (type_url, subscription) in &mut self.subscriptions {
            let has_spoken = subscription.has_spoken();
            match &mut subscription.want {
                Want::Names(names) if !stream.is_receiving => {
                    // No absence follows from a transient error, whoever is silent of what (TMR-5), nor from marks.
                    let spoken = has_spoken || self.settings.timeout_is_transient || stream.has_marks;
                    let mut out = names.run_out(now, stream.signs, spoken);
                    is_unproven |= names.has_unproven();
                    // A relay in between would take a name for absent of which the server knows no more than itself. Where one of
                    // several variants of a name with parameters is not there, nothing tells it.
                    out.retain(|name| !stream.has_marks || name.is_located());
                    self.outputs.extend(expired(&self.settings, type_url, names, out));
                }
                Want::Names(_) | Want::Globs(_) | Want::Wildcard(_) | Want::Nothing => {}
            }
            subscription.each_settling(|settling| settling.pass(now));
        }
        self.settle_answers(now);
        // After the names: of those that ran out in a silence that is found to be an answer now, the timers start anew.
        is_unproven |= self.end_silence(now);
        if let Phase::Open(stream) = &mut self.phase
            && is_unproven
            && !std::mem::replace(&mut stream.is_probing, true)
        {
            self.outputs.push_back(Output::Probe);
        }
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let is_open = matches!(self.phase, Phase::Open(_));
        let is_closed = matches!(self.phase, Phase::Closed);
        let wants_nothing = self.subscriptions.values().all(Subscription::wants_nothing);
        debug_assert_eq!(
            is_closed || self.idle_until.is_some(),
            wants_nothing,
            "a stream is there, or on its way, while something is wanted"
        );
        debug_assert!(!is_closed || self.subscriptions.is_empty(), "nothing is kept when nothing is wanted");
        for (type_url, subscription) in &self.subscriptions {
            debug_assert_eq!(*type_url, subscription.type_url);
            subscription.check_invariants(is_open);
        }
    }
}

/// A first request claims versions of what is held, and none that must be answered.
fn claims_all(request: &Request) -> bool {
    match request {
        Request::Sotw(request) => !request.version_info.is_empty(),
        Request::Delta(request) => {
            let mut versions = request.initial_resource_versions.iter().map(|(_, version)| version);
            versions.len() > 0 && versions.all(|version| !version.is_empty())
        }
    }
}

/// Globs of a server that speaks SotW are told once for each stream.
fn unserved(subscription: &mut Subscription) -> Option<Event> {
    let Want::Globs(globs) = &mut subscription.want else { return None };
    if std::mem::replace(&mut globs.is_unserved, true) {
        return None;
    }
    let (type_url, names) = (subscription.type_url.clone(), globs.iter().cloned().collect());
    Some(Event::GlobsUnserved { type_url, names })
}

/// TMR-5: what the names whose timers ran out are from now on.
fn expired(
    settings: &Settings,
    type_url: &TypeUrl,
    names: &mut Names,
    out: Vec<ResourceName>,
) -> Option<Output> {
    if out.is_empty() {
        return None;
    }
    if settings.timeout_is_transient {
        return Some(Output::Event(Event::Timeout { type_url: type_url.clone(), names: out }));
    }
    for name in &out {
        names.set_absent(name);
    }
    Some(Output::Changes(Changes::of_names(type_url, out, Cause::Timeout)))
}
