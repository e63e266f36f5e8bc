//! The life of a stream: opened, ended, opened again.

use crate::engine::Time;
use crate::engine::reachability::Reachability;
use crate::engine::upstream::api::{Event, Output};
use crate::engine::upstream::gathering::Gathering;
use crate::engine::upstream::machine::careful::Careful;
use crate::engine::upstream::proof::Flaps;
use crate::engine::upstream::succession::Next;
use crate::engine::upstream::type_request::TypeRequest;
use crate::xds::{Code, Status};
use std::time::Duration;

use crate::engine::upstream::machine::{Phase, Stream, Upstream};

impl Upstream {
    pub(super) fn enter(&mut self, phase: Phase, now: Time) {
        self.phase = phase;
        self.since = now;
    }

    pub(super) fn open(&mut self, now: Time) {
        let variant = self.next_variant(now);
        let before = std::mem::replace(&mut self.variant, variant);
        if !self.take_turn(before) && variant != before {
            self.subscriptions.values_mut().for_each(TypeRequest::forget_versions);
        }
        self.enter(Phase::Opening, now);
        self.outputs.push_back(Output::Open { variant, server: self.server() });
    }

    /// Nothing is wanted: the machine keeps nothing, and a later subscription starts afresh (FBK-21).
    pub(super) fn close(&mut self, now: Time) {
        self.subscriptions.clear();
        self.idle_until = None;
        if matches!(self.phase, Phase::Opening | Phase::Open(_)) {
            self.withdraw_unsent();
            self.outputs.push_back(Output::Close);
        }
        self.reach = Reachability::Pending;
        self.has_spoken = false;
        self.silent_ends = 0;
        self.unserved = None;
        self.flaps = Flaps::default();
        self.forget_turns();
        self.enter(Phase::Closed, now);
    }

    /// Ends the stream and opens another at once, because this stream cannot express the subscriptions.
    pub(super) fn renew(&mut self, now: Time) {
        self.stream_ended();
        self.outputs.push_back(Output::Close);
        self.open(now);
    }

    /// Asks for everything that is not held, on a new stream. A poll does so by itself.
    pub(in crate::engine) fn ask_anew(&mut self, now: Time) {
        if matches!(self.phase, Phase::Open(_)) && !self.polls() {
            self.renew(now);
            self.check_invariants();
        }
    }

    pub(super) fn stream_ended(&mut self) {
        self.withdraw_unsent();
        self.subscriptions.retain(|_, subscription| !subscription.wants_nothing());
        self.subscriptions.values_mut().for_each(TypeRequest::stream_ended);
        if !self.polls() {
            self.lose_currency();
        }
    }

    /// A request belongs to the stream for which it was made. A stale ACK must not reach the next stream
    /// (STR-5).
    pub(super) fn withdraw_unsent(&mut self) {
        self.outputs.retain(|output| {
            !matches!(output, Output::Send { .. } | Output::Flush | Output::Probe | Output::RoundTrip)
        });
    }

    pub(super) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// DEL-35: the first request of each type restates everything, types in dependency order.
    pub(super) fn opened(&mut self, now: Time) {
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
                careful: Careful::default(),
                asked: None,
                is_mute: false,
                next: Next::default(),
                is_receiving: false,
                has_round: false,
                is_flushing: false,
                has_marks: false,
            }),
            now,
        );
        if !self.polls() {
            self.event(Event::Connected { variant: self.variant, server: self.server() });
        }
        self.write_changes(now);
    }

    pub(super) fn unreachable(&mut self, status: Status, now: Time) {
        self.lose_currency();
        self.unserved = None;
        self.reach.lose(status.clone(), now);
        self.last_error = Some(status.clone());
        self.event(Event::Unreachable { status });
    }

    pub(super) fn dismissed(&mut self) {
        if let Phase::Open(stream) = &mut self.phase {
            stream.is_dismissed = true;
        }
    }

    /// CLI-1: the end of a stream before its first response makes the server unreachable, unless the server
    /// refuses delta only (RLY-25).
    pub(super) fn unanswered(&mut self, status: Status, jitter: f64, now: Time) {
        if self.guess_sotw(&status, now) {
            self.disconnected(status.clone(), false, Duration::ZERO, now);
            self.event(Event::SwitchedToSotw { status });
            self.open(now);
            return;
        }
        self.end_guess();
        let retry_in = self.retry_in(jitter);
        self.disconnected(status.clone(), false, retry_in, now);
        if self.is_of_one_type() && status.code == Code::Unimplemented {
            self.not_served(status, now);
        } else {
            self.unreachable(status, now);
        }
    }

    pub(super) fn disconnected(&mut self, status: Status, answered: bool, retry_in: Duration, now: Time) {
        self.stream_ended();
        self.lose_currency();
        self.is_polled = false;
        self.retry_at = now + retry_in;
        self.last_error = Some(status.clone());
        self.event(Event::Disconnected { status, answered, retry_in });
        self.enter(Phase::Waiting { until: self.retry_at }, now);
    }
}
