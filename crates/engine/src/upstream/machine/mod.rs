//! The machine: the subscriptions to one server, and the stream to the server.
//!
//! From top to bottom: the calls of the shell, the life of a stream, responses, requests, timers, and the
//! ends of streams. [`control`] has the questions and the orders of the source.

pub mod control;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::Time;
use crate::upstream::api::{
    Event, Input, Output, OutputQueue, ResourceSelection, Transport, UpstreamSettings, WildcardStyle,
};
use crate::upstream::apply::{DigestedResponse, ResponseTime, take_response};
use crate::upstream::currency::Currency;
use crate::upstream::failover::MIDDLE;
use crate::upstream::health::{Flaps, ServerHealth, unsteady_status};
use crate::upstream::link::{LinkPhase, ServerLink};
use crate::upstream::repetition::OwedAnswer;
use crate::upstream::request::{RequestContext, RequestDraft, RequestReason, claims_all};
use crate::upstream::response::ResponseDigest;
use crate::upstream::stream::ServerStream;
use crate::upstream::type_request::TypeRequest;
use crate::upstream::type_requests::TypeRequests;
use crate::upstream::variant_step::answer_new_names;
use sluice_xds::{Code, ResourceName, Response, SetMark, Status, TypeUrl, Variant};

/// The maximum number of types with requests on this stream, but without wanted resources. The machine keeps
/// their nonces (NON-6). Beyond the maximum the stream is renewed.
const RETIRED_TYPES_MAX: usize = 64;

/// The client of one server.
#[derive(Debug)]
pub struct Upstream {
    settings: UpstreamSettings,
    /// The present stream, or the wait for the next stream.
    link: ServerLink,
    /// The state of the server, over all streams.
    health: ServerHealth,
    /// The wanted resources and the requests of each type.
    requests: TypeRequests,
    outputs: OutputQueue,
}

/// The calls of the shell.
impl Upstream {
    pub fn new(settings: UpstreamSettings) -> Self {
        Upstream {
            link: ServerLink::new(settings.variant),
            settings,
            health: ServerHealth::default(),
            requests: TypeRequests::default(),
            outputs: OutputQueue::default(),
        }
    }

    /// Takes other settings of the same server over: the same transport, variant, form of wildcards and
    /// failover. The next request, timer or attempt obeys.
    pub fn configure(&mut self, settings: UpstreamSettings) {
        self.settings = settings;
    }

    /// Adds wanted resources. Names that are wanted already change nothing. Resources of
    /// another kind replace the previous resources, for example names the wildcard. To exchange names,
    /// subscribe first and unsubscribe afterwards, else the stream may close in between.
    pub fn subscribe(&mut self, type_url: &TypeUrl, selection: ResourceSelection, now: Time) {
        if selection.names().is_some_and(Vec::is_empty) {
            return;
        }
        if self.settings.polls() {
            return self.subscribe_poll(type_url, selection, now);
        }
        let subscription = self.requests.get_or_insert(type_url);
        let mut renew = subscription.needs_fresh_stream(&selection);
        if !renew && subscription.must_leave_first(&selection) {
            renew = !self.write_leaving(type_url, &selection, now);
        }
        if let Some(subscription) = self.requests.get_mut(type_url) {
            self.link.idle_until = None;
            subscription.add(selection);
            self.outputs.extend(answer_new_names(subscription));
        }
        match &self.link.phase {
            LinkPhase::Closed if now < self.link.retry_at => self.link.wait(now),
            LinkPhase::Closed => self.open(now),
            LinkPhase::Waiting { .. } | LinkPhase::Opening => {}
            LinkPhase::Open(_) if renew => self.renew(now),
            LinkPhase::Open(_) => self.write_changes_gathered(now),
        }
        self.check_invariants();
    }

    /// Polls for new names at once, but no oftener than every `gather`. A poll that only asks for changes,
    /// which the server may hold (RST-9), is given up for the new poll; a poll that asks for names may
    /// finish.
    fn subscribe_poll(&mut self, type_url: &TypeUrl, selection: ResourceSelection, now: Time) {
        let subscription = self.requests.get_or_insert(type_url);
        let is_held = !subscription.accepted.is_empty();
        if !subscription.want.has(&selection) {
            subscription.accepted.clear();
            subscription.add(selection);
            self.outputs.extend(answer_new_names(subscription));
            subscription.exchange.pending.leave.clear();
            let retry_at = self.link.retry_at;
            match &mut self.link.phase {
                LinkPhase::Closed if retry_at <= now => self.open(now),
                LinkPhase::Closed => self.link.wait(now),
                LinkPhase::Waiting { until } => *until = (*until).min(retry_at.max(now)),
                LinkPhase::Open(stream) if is_held && stream.evidence.answered.is_none() => self.renew(now),
                LinkPhase::Opening | LinkPhase::Open(_) => {}
            }
        }
        self.check_invariants();
    }

    /// Removes wanted resources, and forgets their state. Late updates are ignored (RLY-61).
    pub fn unsubscribe(&mut self, type_url: &TypeUrl, selection: ResourceSelection, now: Time) {
        let Some(subscription) = self.requests.get_mut(type_url) else { return };
        subscription.drop(selection);
        if subscription.wants_nothing() && !subscription.is_asked() {
            self.requests.remove(type_url);
        }
        let retired = self.requests.len() - self.requests.wanted_types().count();
        if retired == self.requests.len() {
            self.stop_or_idle(type_url, now);
        } else if self.settings.polls() {
            // REST has no unsubscription: the next poll lists the names that are wanted then.
            self.requests.remove_unwanted();
            self.requests.iter_mut().for_each(|subscription| subscription.exchange.pending.leave.clear());
        } else if retired > RETIRED_TYPES_MAX {
            self.renew(now);
        } else if self.link.stream().is_some() {
            self.write_changes_gathered(now);
            // The server may have been silent about all that is left for long enough.
            self.hear_silence(now);
        }
        self.check_invariants();
    }

    pub fn handle(&mut self, input: Input, now: Time) {
        match (input, &self.link.phase) {
            (Input::Ended { .. } | Input::Closed { .. } | Input::GoingAway, _)
                if self.link.idle_until.is_some() =>
            {
                self.close(now);
            }
            (Input::Ended { status, jitter }, _) => self.handle(Input::Closed { status, jitter }, now),
            (Input::Opened, LinkPhase::Opening) => {
                self.start_stream(self.health.is_polled && self.health.reach.is_heard(), now);
            }
            (Input::ConnectFailed { status }, LinkPhase::Opening) => self.fail_connect(status, now),
            (Input::Closed { status, jitter }, LinkPhase::Opening) => {
                self.end_unanswered(status, jitter, now)
            }
            (Input::Closed { status, jitter }, LinkPhase::Open(stream)) => {
                if self.settings.polls() && stream.evidence.answered.is_some() {
                    self.end_poll(jitter, now);
                } else if stream.evidence.ends_well(&status) {
                    self.end_answered(status, jitter, now);
                } else {
                    self.end_unanswered(status, jitter, now);
                }
            }
            (input, LinkPhase::Open(_)) => self.handle_on_stream(input, now),
            // Inputs about a stream that is gone already.
            _ => {}
        }
        self.check_invariants();
    }

    fn handle_on_stream(&mut self, input: Input, now: Time) {
        let Some(stream) = self.link.stream_mut() else { return };
        match input {
            Input::Received(response) => self.take_response(response, now),
            Input::Receiving => stream.transport.is_receiving = true,
            Input::Unchanged => self.take_unchanged(now),
            Input::Alive => {
                stream.transport.sign_of_life();
                self.prove_silence(now);
            }
            Input::Flushed => {
                stream.transport.is_flushing = false;
                self.write_changes(now);
            }
            Input::Marks => self.expect_marks(),
            Input::Marked(type_url, mark) => self.take_mark(&type_url, &mark, now),
            Input::Returned => {
                stream.transport.has_round = false;
                self.requests.end_round();
                self.settle_answers(now);
            }
            Input::GoingAway => stream.evidence.is_dismissed = true,
            Input::NextOpened => self.take_successor(now),
            // The current stream goes on, with the node of a departed member.
            Input::NextFailed => stream.successor.fail(&self.settings.backoff, now),
            _ => {}
        }
    }

    /// The next instruction to the shell. The shell drains the instructions after each call.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop()
    }

    /// The time of the next call of [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.link.phase {
            LinkPhase::Closed | LinkPhase::Opening => None,
            LinkPhase::Waiting { until } => Some(*until),
            // The shell bounds the time of a poll, and its response answers every name.
            LinkPhase::Open(_) if self.settings.polls() => None,
            LinkPhase::Open(stream) => {
                let times = [
                    self.requests.next_timeout(stream.transport.is_receiving),
                    self.requests.answers_at(),
                    stream.gathering.until(),
                    self.next_type_at(stream),
                    self.health.steady_at(stream, &self.settings.backoff),
                    self.health.mute_at(stream, self.settings.polls()),
                    self.link.guess_refuted_at(),
                    self.link.idle_until,
                    stream.successor.due(),
                ];
                times.into_iter().flatten().min()
            }
        }
    }

    pub fn handle_timeout(&mut self, now: Time) {
        match &mut self.link.phase {
            LinkPhase::Closed | LinkPhase::Opening => {}
            LinkPhase::Waiting { until } if now < *until => {}
            LinkPhase::Waiting { .. } => self.open(now),
            LinkPhase::Open(_) if self.settings.polls() => {}
            LinkPhase::Open(stream) => {
                if stream.gathering.end(now) {
                    self.write_changes_gathered(now);
                }
                self.write_owed_answers(now);
                self.ask_next_type(now);
                self.run_timers(now);
                self.become_steady(now);
                self.find_mute(now);
                self.run_idle(now);
                self.retry_successor(now);
                self.refute_guess(now);
            }
        }
        self.check_invariants();
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let is_closed = self.link.is_closed();
        debug_assert_eq!(
            is_closed || self.link.idle_until.is_some(),
            self.requests.want_nothing(),
            "a stream is there, or on its way, while something is wanted"
        );
        debug_assert!(!is_closed || self.requests.len() == 0, "nothing is kept when nothing is wanted");
        self.requests.check_invariants(self.link.stream().is_some());
    }
}

/// The life of a stream: opened, ended, opened again.
impl Upstream {
    fn open(&mut self, now: Time) {
        let variant = self.link.next_variant(&self.settings, now);
        let before = std::mem::replace(&mut self.link.variant, variant);
        if self.link.turns.begin() {
            self.health.flaps = Flaps::default();
            self.requests.exchange_versions(before, variant);
        } else if variant != before {
            self.requests.iter_mut().for_each(TypeRequest::forget_versions);
        }
        self.link.enter(LinkPhase::Opening, now);
        self.outputs.push(Output::Open { variant, server: self.link.turns.server() });
    }

    /// DEL-35: the first request of each type restates everything, types in dependency order. `is_heard`: an
    /// earlier stream proves that the server can be heard.
    fn start_stream(&mut self, is_heard: bool, now: Time) {
        self.link.enter(LinkPhase::Open(ServerStream::new(is_heard, now)), now);
        if !self.settings.polls() {
            self.report_connected();
        }
        self.write_changes(now);
    }

    fn report_connected(&mut self) {
        let (variant, server) = (self.link.variant, self.link.turns.server());
        self.outputs.event(Event::Connected { variant, server });
    }

    /// Ends the stream and opens another at once, because this stream cannot express the subscriptions.
    fn renew(&mut self, now: Time) {
        self.end_stream();
        self.outputs.push(Output::Close);
        self.open(now);
    }

    /// Nothing is wanted: the machine keeps nothing, and a later subscription starts afresh (FBK-21).
    fn close(&mut self, now: Time) {
        self.requests.clear();
        self.link.idle_until = None;
        if self.link.has_stream() {
            self.outputs.withdraw_requests();
            self.outputs.push(Output::Close);
        }
        self.health.forget();
        self.link.turns.forget();
        self.link.enter(LinkPhase::Closed, now);
    }

    /// The last wanted resource was of this type. The stream usually closes, because unwatched resources have
    /// lingered for long enough. Secrets do not linger (RLY-60). A client that asks for a Secret repeatedly
    /// would open and close a stream each time. So a stream for Secrets stays for a while, without
    /// subscriptions.
    fn stop_or_idle(&mut self, type_url: &TypeUrl, now: Time) {
        // An old server would read an empty subscription as the wildcard (SUB-10).
        let can_say_nothing =
            self.link.variant == Variant::Delta || self.settings.wildcard == WildcardStyle::Explicit;
        let is_alone = !self.settings.failover && !self.settings.polls();
        let stays = type_url.is_secret() && can_say_nothing && is_alone;
        if !stays || self.settings.linger.is_zero() || self.link.stream().is_none() {
            return self.close(now);
        }
        self.link.idle_until = Some(now + self.settings.linger);
        self.write_changes_gathered(now);
    }

    fn run_idle(&mut self, now: Time) {
        if self.link.idle_until.is_some_and(|until| until <= now) {
            self.close(now);
        }
    }

    fn end_stream(&mut self) {
        self.outputs.withdraw_requests();
        self.requests.end_stream();
        if !self.settings.polls() {
            self.requests.lose_currency();
        }
    }

    fn open_successor(&mut self) {
        let (variant, server) = (self.link.variant, self.link.turns.server());
        self.outputs.push(Output::OpenNext { variant, server });
    }

    fn retry_successor(&mut self, now: Time) {
        if self.link.stream_mut().is_some_and(|stream| stream.successor.retry(now)) {
            self.open_successor();
        }
    }

    /// The second stream takes over, and inherits the proof that the server can be heard.
    fn take_successor(&mut self, now: Time) {
        let Some(stream) = self.link.stream().filter(|stream| stream.successor.is_opening()) else { return };
        let is_heard = stream.evidence.is_heard;
        self.outputs.withdraw_requests();
        self.requests.end_stream();
        self.outputs.push(Output::TakeNext);
        self.start_stream(is_heard, now);
    }
}

/// Responses.
impl Upstream {
    fn take_response(&mut self, response: Response, now: Time) {
        let polls = self.settings.polls();
        if let Some(stream) = self.link.stream_mut() {
            stream.transport.is_receiving = false;
        }
        // A poll is comparable with an answered poll right before. A server that restarted in between would
        // have failed a poll.
        let goes_on = self.health.is_polled || !polls;
        self.note_answer(now);
        self.link.guess_mut().prove();
        let is_from_another = self.health.note_control_plane(response.control_plane());
        let mut digest = ResponseDigest::from(response);
        digest.is_from_another = is_from_another || !goes_on;
        digest.answers_all = polls;
        digest.fails = self.settings.fails_on_data_errors;
        digest.unasked = self.settings.unasked;
        self.digest(digest, now);
        self.settle_answers(now);
        self.prove_silence(now);
        // Some type answers, so that all others can be asked for at once.
        if std::mem::take(&mut self.health.silent_ends).are_many() {
            self.write_changes(now);
        }
    }

    /// The server answered on the stream.
    fn note_answer(&mut self, now: Time) {
        self.health.has_spoken = true;
        self.health.unserved = None;
        if self.link.turns.note_answer() {
            self.requests.iter_mut().for_each(|subscription| subscription.stash = None);
        }
        if let Some(stream) = self.link.stream_mut() {
            stream.evidence.answered.get_or_insert(now);
            stream.transport.sign_of_life();
        }
        self.link.backoff.answered();
        if self.settings.polls() && !std::mem::replace(&mut self.health.is_polled, true) {
            self.report_connected();
        }
        if !self.health.flaps.is_unsteady {
            self.hear(now);
        }
    }

    /// ACK or NACK at once (ACK-8), unless the server repeats itself, then hand on the good part.
    fn digest(&mut self, digest: ResponseDigest, now: Time) {
        let type_url = digest.type_url.clone();
        let is_current_variant = digest.variant == self.link.variant;
        let subscription = self.requests.get_mut(&type_url).filter(|subscription| subscription.is_asked());
        let Some(subscription) = subscription.filter(|_| is_current_variant) else {
            return self.outputs.event(Event::Ignored { type_url });
        };
        let is_paced = self.settings.paces_answers && !digest.answers_all;
        let time = ResponseTime { now, timer_end: now + self.settings.timeout_of(&type_url) };
        let digested = take_response(subscription, digest, self.settings.nack_text_max, time);
        if digested.speaks
            && !std::mem::replace(&mut subscription.exchange.responses.has_usable, true)
            && let Some(stream) = self.link.stream()
        {
            subscription.restart_timers(time.timer_end, stream.transport.signs);
        }
        let DigestedResponse { verdict, reason, changes, events, .. } = digested;
        if is_paced {
            subscription.note_response(changes.as_ref(), &events, now);
        }
        self.answer_in_time(&type_url, reason, verdict.names(), now);
        let count = changes.as_ref().map_or(0, |changes| changes.refreshed.len());
        let refreshed = (count > 0).then(|| Event::Refreshed { type_url: type_url.clone(), count });
        self.outputs.extend(events.into_iter().chain(refreshed).map(Output::Event));
        self.outputs.extend(changes.map(Output::Changes));
        if digested.states_content
            && let Some(subscription) = self.requests.get_mut(&type_url)
        {
            subscription.judge_currency(verdict.is_good(), digested.is_full);
        }
    }

    /// See [`Input::Unchanged`]. A poll without a version cannot have this answer, and stays
    /// unanswered.
    fn take_unchanged(&mut self, now: Time) {
        let is_claimed = |subscription: &&mut TypeRequest| !subscription.accepted.is_empty();
        let Some(subscription) = self.requests.iter_mut().find(is_claimed) else { return };
        // The server went back to the accepted version, or keeps it, and the relay no longer holds the
        // resources of this version. Only a poll without a version brings them again.
        let is_astray = std::mem::take(&mut subscription.is_astray);
        if is_astray {
            subscription.accepted.clear();
        }
        let type_url = subscription.type_url.clone();
        self.note_answer(now);
        self.outputs.event(Event::Unchanged { type_url: type_url.clone() });
        if !is_astray && let Some(subscription) = self.requests.get_mut(&type_url) {
            subscription.currency = Currency::Current;
        }
    }

    /// The server sets marks on the open stream (ADR 14).
    fn expect_marks(&mut self) {
        if self.link.variant == Variant::Delta
            && let Some(stream) = self.link.stream_mut()
        {
            stream.has_marks = true;
            self.requests.iter_mut().for_each(TypeRequest::expect_marks);
        }
    }

    fn take_mark(&mut self, type_url: &TypeUrl, mark: &SetMark, now: Time) {
        if self.link.stream().is_some_and(|stream| stream.has_marks) {
            self.requests.take_mark(type_url, mark);
            self.settle_answers(now);
        }
    }

    fn settle_answers(&mut self, now: Time) {
        if let LinkPhase::Open(stream) = &mut self.link.phase {
            self.requests.settle(stream, &self.settings, now, &mut self.outputs);
        }
    }

    fn hear(&mut self, now: Time) {
        if let LinkPhase::Open(stream) = &mut self.link.phase {
            self.health.hear(&mut stream.evidence, now, &mut self.outputs);
        }
    }

    /// The stream gave a sign of life. An arriving message ends the silence, and no timer counts.
    fn prove_silence(&mut self, now: Time) {
        let Some(stream) = self.link.stream().filter(|stream| !stream.transport.is_receiving) else { return };
        self.requests.prove_silence(stream, &self.settings, now, &mut self.outputs);
        self.hear_silence(now);
    }

    /// A server that is silent after all requests has nothing to say. An arriving message ends the silence.
    fn hear_silence(&mut self, now: Time) {
        let Some(stream) = self.link.stream_mut().filter(|stream| !stream.transport.is_receiving) else {
            return;
        };
        if !self.requests.are_all_answered() {
            return;
        }
        if self.health.flaps.is_unsteady {
            // The stream has to last now, as after a first response (FU9).
            stream.evidence.silent.get_or_insert(now);
        } else {
            self.hear(now);
        }
    }
}

/// Requests.
impl Upstream {
    /// Answers a response, or lets the answer wait, if the server repeats itself. `names`: the bad elements.
    fn answer_in_time(
        &mut self,
        type_url: &TypeUrl,
        reason: RequestReason,
        names: Vec<ResourceName>,
        now: Time,
    ) {
        let subscription = self.requests.get_mut(type_url);
        let repetition = subscription.map(|subscription| &mut subscription.exchange.repetition);
        let Some(repetition) = repetition.filter(|repetition| repetition.is_pacing()) else {
            self.answer(type_url, reason, names, now);
            return;
        };
        let error = if let RequestReason::Nack(status) = reason { Some(status) } else { None };
        if let Some(count) = repetition.owe(error, names, now) {
            self.outputs.event(Event::Repeated { type_url: type_url.clone(), count });
        }
    }

    /// Writes the answers whose wait is over.
    fn write_owed_answers(&mut self, now: Time) {
        let is_due = |subscription: &&TypeRequest| subscription.exchange.repetition.is_due(now);
        let due = self.requests.iter().filter(is_due).map(|subscription| subscription.type_url.clone());
        for type_url in &due.collect::<Vec<_>>() {
            self.write_owed_answer(type_url, now);
        }
        self.requests.iter_mut().for_each(|subscription| subscription.exchange.repetition.pass(now));
    }

    /// Writes the waiting answer of a type, if there is one. Returns false as [`Self::write`] does.
    fn write_owed_answer(&mut self, type_url: &TypeUrl, now: Time) -> Option<bool> {
        let subscription = self.requests.get_mut(type_url)?;
        let OwedAnswer { error, names, .. } = subscription.exchange.repetition.take(now)?;
        Some(self.answer(type_url, error.map_or(RequestReason::Ack, RequestReason::Nack), names, now))
    }

    fn answer(
        &mut self,
        type_url: &TypeUrl,
        reason: RequestReason,
        names: Vec<ResourceName>,
        now: Time,
    ) -> bool {
        let is_ack = !matches!(reason, RequestReason::Nack(_));
        let event = match &reason {
            RequestReason::Nack(status) => {
                Event::Nacked { type_url: type_url.clone(), text: status.message.clone(), names }
            }
            RequestReason::Ack | RequestReason::Change => Event::Acked { type_url: type_url.clone() },
        };
        if !self.settings.polls() && !self.write(type_url, reason, now) {
            // An old server would read an ACK with an empty list as a request for everything.
            self.outputs.event(Event::Ignored { type_url: type_url.clone() });
            return false;
        }
        if let Some(subscription) = self.requests.get_mut(type_url) {
            // News overtakes an answer that waits.
            subscription.exchange.repetition.take(now);
            let count = if is_ack { &mut subscription.acks } else { &mut subscription.nacks };
            *count += 1;
        }
        self.outputs.event(event);
        true
    }

    /// FLW-5: the first change is written at once, later changes are gathered.
    fn write_changes_gathered(&mut self, now: Time) {
        let is_gathering = self.link.stream().is_none_or(|stream| stream.gathering.until().is_some());
        if !is_gathering
            && self.write_changes(now)
            && let Some(stream) = self.link.stream_mut()
        {
            stream.gathering.note_write(now, self.settings.gather);
        }
    }

    /// Writes all waiting changes that may be written now. Returns true if there was a change.
    fn write_changes(&mut self, now: Time) -> bool {
        let Some(stream) = self.link.stream() else { return false };
        let mut has_written = false;
        for type_url in &self.requests.writable(stream, self.health.silent_ends, now) {
            if !self.is_flushing() {
                has_written |= self.write_change(type_url, now);
            }
        }
        if has_written {
            // A glob that is requested once more may need a round trip after its request.
            self.settle_answers(now);
        }
        has_written
    }

    fn is_flushing(&self) -> bool {
        self.link.stream().is_some_and(|stream| stream.transport.is_flushing)
    }

    /// Writes the changes of a type. A waiting answer takes the changes along: a SotW request with the newest
    /// nonce is the answer to it. Returns false if the variant cannot express the request.
    fn write_change(&mut self, type_url: &TypeUrl, now: Time) -> bool {
        if let Some(subscription) = self.requests.get_mut(type_url) {
            subscription.exchange.repetition.restart();
        }
        let is_paid = self.write_owed_answer(type_url, now);
        is_paid.unwrap_or_else(|| self.write(type_url, RequestReason::Change, now))
    }

    /// Unsubscribes from names that are wanted again: no later part may do so (RLY-59). Returns as
    /// [`Self::write`].
    fn write_leaving(&mut self, type_url: &TypeUrl, selection: &ResourceSelection, now: Time) -> bool {
        let Some(names) = selection.names() else { return true };
        let mut is_written = !self.is_flushing() && self.write_change(type_url, now);
        let is_leaving = |subscription: &TypeRequest| subscription.must_leave_first(selection);
        while self.requests.get(type_url).is_some_and(is_leaving) {
            is_written = self.write_part(type_url, RequestReason::Change, names, now);
            if !is_written {
                break;
            }
        }
        is_written
    }

    /// Writes the next request of a type, with all waiting changes that find room. The others follow once the
    /// transport has taken the request (FU33). Returns false if the variant cannot express the request.
    fn write(&mut self, type_url: &TypeUrl, reason: RequestReason, now: Time) -> bool {
        self.write_part(type_url, reason, &[], now)
    }

    /// `leaving`: names to unsubscribe from, in a request with nothing else.
    fn write_part(
        &mut self,
        type_url: &TypeUrl,
        reason: RequestReason,
        leaving: &[ResourceName],
        now: Time,
    ) -> bool {
        let (settings, variant) = (&self.settings, self.link.variant);
        let (LinkPhase::Open(stream), Some(subscription)) =
            (&mut self.link.phase, self.requests.get_mut(type_url))
        else {
            return false;
        };
        let context = RequestContext {
            settings,
            variant,
            has_node: stream.has_node,
            is_flushing: stream.transport.is_flushing,
            must_answer: settings.needs_answer && self.health.reach.is_lost(),
        };
        let RequestDraft { request, part, left } = context.draft(subscription, reason, leaving);
        let Some(request) = request else {
            self.outputs.extend(subscription.report_unserved_globs().map(Output::Event));
            return false;
        };
        let (due, signs) = (now + settings.timeout_of(type_url), stream.transport.signs);
        let part = subscription.exchange.pending.entering(variant, part, &left);
        if !part.subscribe.is_empty() {
            subscription.exchange.requests.unanswered = Some(now);
            if settings.looks_into_silence && variant == Variant::Sotw && !settings.has_one_type() {
                subscription.note_added(&part.subscribe, due, signs);
            }
        }
        if !subscription.is_asked() {
            subscription.exchange.requests.may_be_silent = claims_all(&request) && part.unclaimed.is_empty();
            if self.health.is_careful(stream) {
                stream.sequence.note(type_url, now);
            }
        }
        subscription.exchange.has_marks = stream.has_marks;
        subscription.note_request(variant, part, due, signs);
        self.outputs.push(Output::Send { request, first: !stream.has_node });
        stream.has_node = true;
        if variant == Variant::Delta && subscription.has_news() {
            stream.transport.flush(&mut self.outputs);
        }
        stream.evidence.asked.get_or_insert(now);
        if subscription.exchange.pending.is_newly_full(&left) {
            let (type_url, names, limit) = (type_url.clone(), left.len(), settings.request_bytes_max);
            self.outputs.event(Event::RequestTooLong { type_url, names, limit });
        }
        true
    }
}

/// Timers.
impl Upstream {
    fn run_timers(&mut self, now: Time) {
        let LinkPhase::Open(stream) = &mut self.link.phase else { return };
        let (settings, outputs) = (&self.settings, &mut self.outputs);
        let mut is_unproven = self.requests.run_timers(stream, settings, now, outputs);
        self.requests.settle(stream, settings, now, outputs);
        // Runs after the names: timers that expired in a silence restart if the silence turns out to be an
        // answer now.
        if !stream.transport.is_receiving {
            is_unproven |= self.requests.run_out_silence(stream, settings, now);
            self.hear_silence(now);
        }
        if is_unproven {
            self.probe();
        }
    }

    /// The time at which the next type is asked for, if the types are asked for one by one.
    fn next_type_at(&self, stream: &ServerStream) -> Option<Time> {
        if stream.transport.is_flushing || !self.health.is_careful(stream) {
            return None;
        }
        stream.sequence.next_at().filter(|_| self.requests.has_unasked_news())
    }

    fn ask_next_type(&mut self, now: Time) {
        let next = self.link.stream().and_then(|stream| self.next_type_at(stream));
        if next.is_some_and(|at| at <= now) {
            self.write_changes(now);
        }
    }

    fn become_steady(&mut self, now: Time) {
        let Some(stream) = self.link.stream() else { return };
        if self.health.steady_at(stream, &self.settings.backoff).is_some_and(|at| at <= now) {
            self.health.flaps.is_unsteady = false;
            self.hear(now);
        }
    }

    fn find_mute(&mut self, now: Time) {
        let polls = self.settings.polls();
        if let Some(stream) = self.link.stream_mut()
            && self.health.mute_at(stream, polls).is_some_and(|at| at <= now)
        {
            stream.evidence.is_mute = true;
            self.outputs.event(Event::Unanswered);
        }
    }

    /// Tries delta again, if the server is silent in SotW.
    fn refute_guess(&mut self, now: Time) {
        if self.link.guess_refuted_at().is_some_and(|at| at <= now) {
            self.link.guess_mut().refute();
            self.outputs.event(Event::BackToDelta);
            self.renew(now);
        }
    }
}

/// The ends of streams.
impl Upstream {
    /// An answered stream ended, or a stream that ends well for another reason.
    fn end_answered(&mut self, status: Status, jitter: f64, now: Time) {
        let (Some(stream), backoff) = (self.link.stream(), &self.settings.backoff) else { return };
        let is_unsteady = self.health.note_end(stream, backoff, now);
        let (lived, is_dismissed) = (now.since(stream.opened), stream.evidence.is_dismissed);
        let retry_in = self.link.backoff.after_answered(backoff, lived, is_dismissed, jitter);
        self.link.guess_mut().end_unproven();
        self.link.turns.give_to_primary();
        self.disconnect(status.clone(), true, retry_in, now);
        if is_unsteady {
            self.lose_server(unsteady_status(&self.settings.backoff, &status), now);
        }
    }

    /// CLI-1: the end of a stream before its first response makes the server unreachable, unless the server
    /// refuses delta only (RLY-25).
    fn end_unanswered(&mut self, status: Status, jitter: f64, now: Time) {
        if self.link.guess_sotw(&self.settings, &status, now) {
            self.disconnect(status.clone(), false, Duration::ZERO, now);
            self.outputs.event(Event::SwitchedToSotw { status });
            self.open(now);
            return;
        }
        self.link.guess_mut().end_unproven();
        let retry_in = self.link.delay_after_failure(&self.settings, jitter);
        self.disconnect(status.clone(), false, retry_in, now);
        if self.settings.has_one_type() && status.code == Code::Unimplemented {
            self.lack_service(&status, now);
        } else {
            self.lose_server(status, now);
        }
    }

    /// An answered poll is over. The next poll follows after the delay, which is at most doubled at random
    /// (RST-10), or soon if new names are wanted meanwhile.
    ///
    /// Each poll is a stream of one request and at most one response (RST-12). REST has no nonces, ACKs and
    /// NACKs (RST-7, RST-8): the next poll presents the last accepted version. A response answers the whole
    /// request and nothing else, so that a missing name is absent, whatever the type. RLY-27 and RLY-28 grant
    /// less to streams, where a response may be older than the request and may be one of several.
    fn end_poll(&mut self, jitter: f64, now: Time) {
        let (Some(stream), Transport::Rest { refresh_delay }) = (self.link.stream(), self.settings.transport)
        else {
            return;
        };
        let has_news = self.requests.iter().any(TypeRequest::has_news);
        self.link.retry_at = (stream.opened + self.settings.gather).max(now);
        let jitter = if (0.0..=1.0).contains(&jitter) { jitter } else { 0.5 };
        let delay = if has_news { now } else { now + refresh_delay.mul_f64(1.0 + jitter) };
        self.end_stream();
        let until = delay.max(self.link.retry_at);
        self.link.enter(LinkPhase::Waiting { until }, now);
    }

    /// A connection attempt failed. After the primary's first failure the attempt goes on; otherwise the
    /// other server has its turn (FBK-20).
    fn fail_connect(&mut self, status: Status, now: Time) {
        if !self.link.alternates(&self.settings) {
            // The shell retries with its own backoff (CLI-7).
            return self.lose_server(status, now);
        }
        let before = self.link.turns.server();
        let retry_in = self.link.delay_after_failure(&self.settings, MIDDLE);
        self.lose_server(status, now);
        if self.link.turns.server() != before {
            self.outputs.push(Output::Close);
            self.link.retry_in(retry_in, now);
        }
    }

    /// The stream is over. The next stream opens after `retry_in`.
    fn disconnect(&mut self, status: Status, answered: bool, retry_in: Duration, now: Time) {
        self.end_stream();
        self.requests.lose_currency();
        self.health.is_polled = false;
        self.health.last_error = Some(status.clone());
        self.outputs.event(Event::Disconnected { status, answered, retry_in });
        self.link.retry_in(retry_in, now);
    }

    fn lose_server(&mut self, status: Status, now: Time) {
        self.requests.lose_currency();
        self.health.lose(status, now, &mut self.outputs);
    }

    /// The server has no service for the only type of the stream.
    fn lack_service(&mut self, status: &Status, now: Time) {
        if self.health.lack_service(status, now) {
            for subscription in self.requests.wanted_types() {
                let (type_url, status) = (subscription.type_url.clone(), status.clone());
                self.outputs.event(Event::NotServed { type_url, status });
            }
        }
    }
}
