//! Judges responses, and writes requests.

use crate::engine::Time;
use std::collections::BTreeSet;

use crate::engine::upstream::api::{Event, Output, UpstreamSettings, Wanted, WildcardStyle};
use crate::engine::upstream::response::{Digest, Verdict};
use crate::engine::upstream::settling::Settling;
use crate::engine::upstream::silence::Silence;
use crate::engine::upstream::type_request::{TypeRequest, Want};
use crate::xds::{Kind, Request, ResourceName, Response, Status, TypeUrl, Variant};

use crate::engine::upstream::machine::{Occasion, Phase, Stream, Upstream};
use crate::engine::upstream::request_size::{Part, Room};
use crate::engine::upstream::{delta, sotw};

impl Upstream {
    pub(super) fn received(&mut self, response: Response, now: Time) {
        if let Phase::Open(stream) = &mut self.phase {
            stream.is_receiving = false;
        }
        // A poll is comparable with an answered poll right before. A server that restarted in between would
        // have failed a poll.
        let goes_on = self.is_polled || !self.polls();
        self.answered(now);
        self.prove_guess();
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
        digest.unasked = self.settings.unasked;
        self.digest(digest, now);
        self.settle_answers(now);
        self.expire_proven(now);
        self.end_care(now);
    }

    pub(super) fn answered(&mut self, now: Time) {
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

    /// ACK or NACK at once (ACK-8), unless the server repeats itself, then hand on the good part.
    pub(super) fn digest(&mut self, mut digest: Digest, now: Time) {
        let type_url = digest.type_url.clone();
        let subscription =
            self.subscriptions.get_mut(&type_url).filter(|subscription| subscription.said.asked);
        let (Some(subscription), true) = (subscription, digest.variant == self.variant) else {
            return self.event(Event::Ignored { type_url });
        };
        // Another process may answer on a new stream, and count from the start again. Polls have no nonces.
        let is_first = subscription.said.nonce.is_empty() && !digest.answers_all;
        let is_comparable = !is_first && !digest.is_of_another;
        subscription.said.nonce.clone_from(&digest.nonce);
        subscription.said.unanswered = None;
        subscription.said.silence = Silence::default();
        if !matches!(subscription.want, Want::Names(_)) {
            digest.refuse_variants();
        }
        if !matches!(subscription.want, Want::Wildcard(_)) {
            digest.refuse_nameless();
        }
        let mut verdict = Verdict::of(&digest);
        if !digest.is_stated && subscription.takes_away(&digest) {
            verdict.mistrust();
        }
        let says_what_there_is = !digest.is_heartbeat();
        let is_paced = self.settings.paces_answers && !digest.answers_all;
        let speaks = says_what_there_is && !verdict.void && !verdict.unidentified;
        let lower = subscription.lower(&digest);
        let occasion = if verdict.is_good() {
            subscription.accept(&digest);
            Occasion::Ack
        } else {
            Occasion::Nack(verdict.status(self.settings.nack_text_max))
        };
        let is_full = digest.is_full_state();
        subscription.said.is_accepted = verdict.is_good();
        subscription.is_astray |= !verdict.is_good() && !verdict.void;
        let applied = if verdict.void {
            subscription.each_settling(Settling::interrupt);
            subscription.confirmation.iter_mut().for_each(|confirmation| confirmation.interrupt(now));
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
        let (changes, events) = applied.unwrap_or_default();
        if let Some(of_type) = self.subscriptions.get_mut(&type_url).filter(|_| is_paced) {
            of_type.note_response(changes.as_ref(), &events, now);
        }
        self.answer_in_time(&type_url, occasion, verdict.names(), now);
        let count = changes.as_ref().map_or(0, |changes| changes.refreshed.len());
        let refreshed = (count > 0).then(|| Event::Refreshed { type_url: type_url.clone(), count });
        self.outputs.extend(events.into_iter().chain(refreshed).map(Output::Event));
        self.outputs.extend(changes.map(Output::Changes));
        if says_what_there_is && let Some(subscription) = self.subscriptions.get_mut(&type_url) {
            subscription.judge_currency(verdict.is_good(), is_full);
        }
    }

    /// Writes the next request of a type, with all waiting changes that find room. The others follow once the transport has taken the
    /// request (FU33). Returns false if the variant cannot express the request.
    pub(super) fn write(&mut self, type_url: &TypeUrl, occasion: Occasion, now: Time) -> bool {
        self.write_part(type_url, occasion, &[], now)
    }

    /// Unsubscribes from names that are wanted again: no later part may do so (RLY-59). Returns as [`Self::write`].
    pub(super) fn write_leaving(&mut self, type_url: &TypeUrl, wanted: &Wanted, now: Time) -> bool {
        let (Wanted::Names(names) | Wanted::Globs(names)) = wanted else { return true };
        let mut is_written = !self.is_flushing() && self.write_change(type_url, now);
        let is_leaving = |of: &TypeRequest| of.must_leave_first(wanted);
        while self.subscriptions.get(type_url).is_some_and(is_leaving) {
            is_written = self.write_part(type_url, Occasion::Change, names, now);
            if !is_written {
                break;
            }
        }
        is_written
    }

    /// `leaving`: names to unsubscribe from, in a request with nothing else.
    fn write_part(
        &mut self,
        type_url: &TypeUrl,
        occasion: Occasion,
        leaving: &[ResourceName],
        now: Time,
    ) -> bool {
        let is_careful = self.is_careful();
        let may_be_silenced =
            self.settings.looks_into_silence && self.variant == Variant::Sotw && !self.is_of_one_type();
        let (Phase::Open(stream), Some(subscription)) =
            (&mut self.phase, self.subscriptions.get_mut(type_url))
        else {
            return false;
        };
        let style = style_of(type_url, &self.settings);
        let is_answer = !matches!(occasion, Occasion::Change);
        let must_answer = self.settings.needs_answer && self.reach.is_lost();
        let error = if let Occasion::Nack(status) = occasion { Some(status) } else { None };
        let limit = self.settings.request_bytes_max;
        let (request, part, left) = match self.variant {
            Variant::Sotw => {
                // Each request lists the same names, whatever else is in it.
                let fixed = self.settings.node_bytes + self.settings.nack_text_max + VARIABLE;
                let (listed, left) = subscription.fitting(Room::new(limit, fixed));
                let request =
                    sotw::request(subscription, listed, style, must_answer, error).map(Request::Sotw);
                (request, Part::default(), left)
            }
            Variant::Delta => {
                let fixed = fixed_bytes(&self.settings, stream, subscription, error.as_ref());
                let part = subscription.part(Room::new(limit, fixed), leaving, stream.is_flushing);
                let request = delta::request(subscription, &part, style, is_answer, must_answer, error);
                (Some(Request::Delta(request)), part, BTreeSet::new())
            }
        };
        let Some(request) = request else {
            self.outputs.extend(unserved(subscription).map(Output::Event));
            return false;
        };
        let due = now + self.settings.timeout_of(type_url);
        let part = subscription.entering(self.variant, part, &left);
        if !part.subscribe.is_empty() {
            subscription.said.unanswered = Some(now);
            if may_be_silenced {
                subscription.asks_more(&part.subscribe, due, stream.signs);
            }
        }
        if !subscription.said.asked {
            subscription.said.may_be_silent = claims_all(&request) && part.unclaimed.is_empty();
            if is_careful {
                stream.careful.asked(type_url, now);
            }
        }
        subscription.said.has_marks = stream.has_marks;
        subscription.written(self.variant, part, due, stream.signs);
        self.outputs.push_back(Output::Send { request, first: !stream.has_spoken });
        stream.has_spoken = true;
        let is_flushing = self.variant == Variant::Delta && subscription.has_news();
        if is_flushing && !std::mem::replace(&mut stream.is_flushing, true) {
            self.outputs.push_back(Output::Flush);
        }
        stream.asked.get_or_insert(now);
        if subscription.is_newly_full(&left) {
            let (type_url, names) = (type_url.clone(), left.len());
            self.event(Event::RequestTooLong { type_url, names, limit });
        }
        true
    }
}

/// A server of virtual hosts knows the empty list only, with which Envoy opens (VHD-3).
fn style_of(type_url: &TypeUrl, settings: &UpstreamSettings) -> WildcardStyle {
    match type_url.kind() {
        Kind::VirtualHost => WildcardStyle::Legacy,
        _ => settings.wildcard,
    }
}

/// Room for the version, the nonce and the type of a request with all names.
const VARIABLE: usize = 1024;

/// The texts of a request beside its names and claims.
fn fixed_bytes(
    settings: &UpstreamSettings,
    stream: &Stream,
    subscription: &TypeRequest,
    error: Option<&Status>,
) -> usize {
    let node = if stream.has_spoken { 0 } else { settings.node_bytes };
    let error = error.map_or(0, |status| status.message.len());
    let said = subscription.said.nonce.len() + subscription.accepted.len();
    node + error + said + subscription.type_url.as_str().len()
}

/// Returns true if a first request claims the held versions, and no impossible version.
fn claims_all(request: &Request) -> bool {
    match request {
        Request::Sotw(request) => !request.version_info.is_empty(),
        Request::Delta(request) => {
            let mut versions = request.initial_resource_versions.iter().map(|(_, version)| version);
            versions.len() > 0 && versions.all(|version| !version.is_empty())
        }
    }
}

/// Reports the globs of a SotW server once for each stream.
fn unserved(subscription: &mut TypeRequest) -> Option<Event> {
    let Want::Globs(globs) = &mut subscription.want else { return None };
    if std::mem::replace(&mut globs.is_unserved, true) {
        return None;
    }
    let (type_url, names) = (subscription.type_url.clone(), globs.iter().cloned().collect());
    Some(Event::GlobsUnserved { type_url, names })
}
