//! The machine: the subscriptions to one server, and the stream to the server.

mod stream;
mod exchange;
mod answers;
mod timers;
mod guess;
mod idle;
mod mute;
mod silenced;
mod poll;
pub mod blame;
mod careful;
pub mod inspect;
pub mod resume;
mod failover;
mod gathering;
mod settling;
mod liveness;
mod succession;
mod marks;
mod rejections;
#[cfg(test)]
mod tests;

use crate::engine::Time;
use crate::engine::reachability::Reachability;
use crate::engine::upstream::api::{Input, Output, Transport, UpstreamSettings, Wanted};
use crate::engine::upstream::backoff::Backoff;
use crate::engine::upstream::failover::Failover;
use crate::engine::upstream::gathering::Gathering;
use crate::engine::upstream::machine::careful::Careful;
use crate::engine::upstream::machine::guess::Guess;
use crate::engine::upstream::proof::Flaps;
use crate::engine::upstream::succession::Next;
use crate::engine::upstream::type_request::{TypeRequest, Want};
use crate::xds::{Code, ResourceName, Status, TypeUrl, Variant};
use std::collections::{BTreeMap, VecDeque};

/// The maximum number of types with requests on this stream, but without wanted resources. The machine keeps
/// their nonces (NON-6). Beyond the maximum the stream is renewed.
const RETIRED_TYPES_MAX: usize = 64;

/// The client of one server.
#[derive(Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    phase: Phase,
    since: Time,
    outputs: VecDeque<Output>,
    subscriptions: BTreeMap<TypeUrl, TypeRequest>,
    backoff: Backoff,
    flaps: Flaps,
    /// No stream opens before, even if all subscriptions ended and came back meanwhile.
    retry_at: Time,
    variant: Variant,
    /// For the primary and the failover server.
    guesses: [Guess; 2],
    failover: Failover,
    last_error: Option<Status>,
    reach: Reachability,
    control_plane: String,
    /// REST: the last poll was answered.
    is_polled: bool,
    /// The server has answered since the first subscription, or before the restart of the relay.
    has_spoken: bool,
    /// The number of streams in sequence that the server ended itself, before any answer.
    silent_ends: u32,
    /// Nothing is wanted of the open stream, which closes then.
    idle_until: Option<Time>,
    /// The time since which the server has no service for the type of this stream, and the server's status.
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
    /// A request was written, and the node with it.
    has_spoken: bool,
    /// The time of the first response.
    answered: Option<Time>,
    /// The time at which the silence was found to be an answer.
    silent: Option<Time>,
    /// The stream proves that the server can be heard.
    is_heard: bool,
    /// The server asked the relay to leave the connection. The end of the stream is the server's wish, not a
    /// failure (KAL-5).
    is_dismissed: bool,
    /// The number of signs of life: responses, and answers to probes.
    signs: u64,
    is_probing: bool,
    gathering: Gathering,
    careful: Careful,
    /// The time of the first request.
    asked: Option<Time>,
    /// An event reported the silence of the server.
    is_mute: bool,
    /// The stream that is to replace this stream.
    next: Next,
    /// Bytes of a message have arrived, and the rest is outstanding.
    is_receiving: bool,
    /// A round trip of the transport has begun.
    has_round: bool,
    /// The transport has not taken a part of a long request. The rest waits (FU33).
    is_flushing: bool,
    /// The server marks whole sets.
    has_marks: bool,
}

impl Stream {
    /// Returns true if the end says nothing against the server: after an answer (CLI-2), at the server's
    /// wish, or in good order after a meaningful silence (KAL-5).
    fn ends_well(&self, status: &Status) -> bool {
        let had_nothing_to_say = self.is_heard && status.code == Code::Ok;
        self.answered.is_some() || self.is_dismissed || had_nothing_to_say
    }
}

/// The reason for a request.
enum Occasion {
    Change,
    Ack,
    Nack(Status),
}

impl Upstream {
    pub fn new(settings: UpstreamSettings) -> Self {
        let variant = settings.variant;
        let (since, retry_at, outputs, subscriptions, backoff, flaps) = Default::default();
        let (guesses, failover, last_error, reach, control_plane) = Default::default();
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
            guesses,
            failover,
            last_error,
            reach,
            control_plane,
            is_polled: false,
            has_spoken: false,
            silent_ends: 0,
            idle_until: None,
            unserved: None,
        }
    }

    /// Takes other settings of the same server over: the same transport, variant, form of wildcards and failover.
    /// The next request, timer or attempt obeys.
    pub fn configure(&mut self, settings: UpstreamSettings) {
        self.settings = settings;
    }

    /// Adds wanted resources. Names that are wanted already change nothing. Resources of
    /// another kind replace the previous resources, for example names the wildcard. To exchange names,
    /// subscribe first and unsubscribe afterwards, else the stream may close in between.
    pub fn subscribe(&mut self, type_url: &TypeUrl, wanted: Wanted, now: Time) {
        if matches!(&wanted, Wanted::Names(names) | Wanted::Globs(names) if names.is_empty()) {
            return;
        }
        if self.polls() {
            return self.subscribe_poll(type_url, wanted, now);
        }
        let new = || TypeRequest::new(type_url.clone());
        let subscription = self.subscriptions.entry(type_url.clone()).or_insert_with(new);
        let mut renew = subscription.needs_fresh_stream(&wanted);
        if !renew && subscription.must_leave_first(&wanted) {
            renew = !self.write_leaving(type_url, &wanted, now);
        }
        if let Some(subscription) = self.subscriptions.get_mut(type_url) {
            self.idle_until = None;
            subscription.add(wanted);
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

    /// Removes wanted resources, and forgets their state. Late updates are ignored (RLY-61).
    pub fn unsubscribe(&mut self, type_url: &TypeUrl, wanted: Wanted, now: Time) {
        let Some(subscription) = self.subscriptions.get_mut(type_url) else { return };
        subscription.drop(wanted);
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
            // The server may have been silent about all that is left for long enough.
            self.hear_silence(now);
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
            (Input::Flushed, Phase::Open(_)) => self.flushed(now),
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
                let retry_in =
                    self.backoff.after_answered(&self.settings.backoff, lived, is_dismissed, jitter);
                let is_found_unsteady = self.is_found_unsteady(now);
                self.end_guess();
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

    /// The time to live of a resource expired. The resource is no longer held, so that a new stream asks for
    /// it afresh (TTL-8).
    pub fn expire(&mut self, type_url: &TypeUrl, name: &ResourceName) {
        let mut subscription = self.subscriptions.get_mut(type_url);
        if let Some(subscription) = &mut subscription {
            subscription.is_astray = true;
        }
        match subscription.map(|subscription| &mut subscription.want) {
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

    /// The next instruction to the shell. The shell drains the instructions after each call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The time of the next call of [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Closed | Phase::Opening => None,
            Phase::Waiting { until } => Some(*until),
            // The shell bounds the time of a poll, and its response answers every name.
            Phase::Open(_) if self.polls() => None,
            Phase::Open(stream) => {
                let next = |of_type: &TypeRequest| of_type.next_timeout(stream.is_receiving);
                let timers = self.subscriptions.values().filter_map(next);
                timers
                    .chain(stream.gathering.until())
                    .chain(self.next_step())
                    .chain(self.answers_at())
                    .chain(self.steady_at())
                    .chain(self.mute_at())
                    .chain(self.doubted_at())
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
                if stream.gathering.ends(now) {
                    self.write_changes_gathered(now);
                }
                self.pay_answers(now);
                self.take_step(now);
                self.run_timers(now);
                self.become_steady(now);
                self.find_mute(now);
                self.run_idle(now);
                self.retry_next(now);
                self.doubt_guess(now);
            }
        }
        self.check_invariants();
    }

    /// The reachability of the server, according to this stream.
    pub fn reach(&self) -> &Reachability {
        &self.reach
    }

    /// Returns true if nothing is wanted, and there is no stream.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Returns true if a stream is wanted, and none is open.
    pub fn is_attempting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. } | Phase::Opening)
    }
}
