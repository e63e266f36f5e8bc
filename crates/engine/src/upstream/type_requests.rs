//! All types on the stream.

use std::collections::BTreeMap;

use super::api::{Cause, Changes, Event, Output, OutputQueue, UpstreamSettings};
use super::confirmation::Confirmation;
use super::currency::Currency;
use super::names::WantedNames;
use super::one_by_one::SilentEnds;
use super::settling::Settling;
use super::stream::ServerStream;
use super::type_request::TypeRequest;
use super::want::Want;
use crate::Time;
use sluice_xds::{ResourceName, SetMark, TypeUrl, Variant};

/// The types with wanted resources, or with requests on the present stream, in rank order.
///
/// In boxes: most streams have few types, and a node of the tree has places for eleven.
#[derive(Debug, Default)]
pub(super) struct TypeRequests(BTreeMap<TypeUrl, Box<TypeRequest>>);

impl TypeRequests {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, type_url: &TypeUrl) -> bool {
        self.0.contains_key(type_url)
    }

    pub(super) fn get(&self, type_url: &TypeUrl) -> Option<&TypeRequest> {
        self.0.get(type_url).map(|request| &**request)
    }

    pub(super) fn get_mut(&mut self, type_url: &TypeUrl) -> Option<&mut TypeRequest> {
        self.0.get_mut(type_url).map(|request| &mut **request)
    }

    pub(super) fn get_or_insert(&mut self, type_url: &TypeUrl) -> &mut TypeRequest {
        self.0.entry(type_url.clone()).or_insert_with(|| Box::new(TypeRequest::new(type_url.clone())))
    }

    pub(super) fn insert(&mut self, subscription: TypeRequest) {
        self.0.insert(subscription.type_url.clone(), Box::new(subscription));
    }

    pub(super) fn remove(&mut self, type_url: &TypeUrl) -> Option<TypeRequest> {
        self.0.remove(type_url).map(|request| *request)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TypeRequest> {
        self.0.values().map(|request| &**request)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut TypeRequest> {
        self.0.values_mut().map(|request| &mut **request)
    }

    /// The types with wanted resources.
    pub(super) fn wanted_types(&self) -> impl Iterator<Item = &TypeRequest> {
        self.iter().filter(|subscription| !subscription.wants_nothing())
    }

    pub(super) fn want_nothing(&self) -> bool {
        self.wanted_types().next().is_none()
    }

    /// Removes the types without wanted resources.
    pub(super) fn remove_unwanted(&mut self) {
        self.0.retain(|_, subscription| !subscription.wants_nothing());
    }

    pub(super) fn end_stream(&mut self) {
        self.remove_unwanted();
        self.iter_mut().for_each(TypeRequest::end_stream);
    }

    /// No type is current any more.
    pub(super) fn lose_currency(&mut self) {
        self.iter_mut().for_each(|subscription| subscription.currency = Currency::Unasked);
    }

    /// The types with changes that may be written now.
    pub(super) fn writable(&self, stream: &ServerStream, ends: SilentEnds, now: Time) -> Vec<TypeUrl> {
        if stream.transport.is_flushing {
            return Vec::new();
        }
        let is_careful = stream.evidence.answered.is_none() && ends.are_many();
        let with_news = self.iter().filter(|subscription| subscription.has_news());
        let (writable, unasked): (Vec<_>, Vec<_>) =
            with_news.partition(|subscription| subscription.is_asked() || !is_careful);
        let unasked: Vec<_> = unasked.iter().map(|subscription| &subscription.type_url).collect();
        let next = stream.sequence.next_type(&unasked, ends, now);
        writable.iter().map(|subscription| &subscription.type_url).chain(next).cloned().collect()
    }

    /// Returns true if a type with news was not asked for on this stream.
    pub(super) fn has_unasked_news(&self) -> bool {
        self.iter().any(|subscription| subscription.has_news() && !subscription.is_asked())
    }

    /// The earliest timer.
    pub(super) fn next_timeout(&self, is_receiving: bool) -> Option<Time> {
        self.iter().filter_map(|subscription| subscription.next_timeout(is_receiving)).min()
    }

    /// The earliest time of a waiting answer.
    pub(super) fn answers_at(&self) -> Option<Time> {
        self.iter().filter_map(|subscription| subscription.exchange.repetition.due()).min()
    }

    /// Goes on with the first answers of all types, unless a message is arriving (DEL-26).
    pub(super) fn settle(
        &mut self,
        stream: &mut ServerStream,
        settings: &UpstreamSettings,
        now: Time,
        outputs: &mut OutputQueue,
    ) {
        let transport = &mut stream.transport;
        if transport.is_receiving {
            return;
        }
        let mut begins = false;
        for subscription in self.iter_mut() {
            subscription.each_settling(|settling| settling.pass(now));
            subscription.confirmation.iter_mut().for_each(|confirmation| confirmation.pass(now));
            if !transport.has_round {
                subscription.each_settling(|settling| begins |= settling.begin_round());
                begins |= subscription.confirmation.as_mut().is_some_and(Confirmation::begin_round);
            }
            let quiet = settings.timeout_of(&subscription.type_url);
            outputs.extend(subscription.settle(Confirmation::new(quiet, now)).map(Output::Changes));
        }
        if begins {
            transport.begin_round(outputs);
        }
    }

    /// A round trip of the transport is over.
    pub(super) fn end_round(&mut self) {
        for subscription in self.iter_mut() {
            subscription.each_settling(Settling::end_round);
            subscription.confirmation.iter_mut().for_each(Confirmation::end_round);
        }
    }

    /// Lets the resource timers run out. Returns true if a timer ran out without a proof that the stream is
    /// alive.
    pub(super) fn run_timers(
        &mut self,
        stream: &ServerStream,
        settings: &UpstreamSettings,
        now: Time,
        outputs: &mut OutputQueue,
    ) -> bool {
        let transport = &stream.transport;
        let mut is_unproven = false;
        for (type_url, subscription) in &mut self.0 {
            let has_spoken = subscription.has_spoken();
            if let Want::Names(names) = &mut subscription.want
                && !transport.is_receiving
            {
                // A transient error makes no absence, whichever names the server leaves out (TMR-5).
                // Marks make none either.
                let spoken = has_spoken || settings.timeout_is_transient || stream.has_marks;
                let mut expired = names.run_out(now, transport.signs, spoken);
                is_unproven |= names.has_unproven();
                expired.retain(|name| is_meant_by_silence(stream, name));
                outputs.extend(names_expired(settings, type_url, names, expired));
            }
            if !transport.is_receiving {
                is_unproven |= subscription.exchange.silence.run_out(now, transport.signs);
            }
            subscription.each_settling(|settling| settling.pass(now));
        }
        is_unproven
    }

    /// Lets the time for silence run out: lasting silence on a live stream is an answer. Returns true if some
    /// silence is unproven.
    pub(super) fn run_out_silence(
        &mut self,
        stream: &ServerStream,
        settings: &UpstreamSettings,
        now: Time,
    ) -> bool {
        let signs = stream.transport.signs;
        let mut is_unproven = false;
        for subscription in self.iter_mut() {
            let before = subscription.currency;
            let silent = subscription.currency_after_silence();
            subscription.currency.run_out(now, signs, silent);
            is_unproven |= subscription.currency == Currency::Unproven;
            if subscription.currency != before {
                let due = now + settings.timeout_of(&subscription.type_url);
                subscription.note_silence(due, signs);
            }
        }
        is_unproven
    }

    /// The stream gave a sign of life. Counts the timers that expired in silence, and the silence itself.
    pub(super) fn prove_silence(
        &mut self,
        stream: &ServerStream,
        settings: &UpstreamSettings,
        now: Time,
        outputs: &mut OutputQueue,
    ) {
        for (type_url, subscription) in &mut self.0 {
            if let Want::Names(names) = &mut subscription.want {
                let mut expired = names.prove(now);
                expired.retain(|name| is_meant_by_silence(stream, name));
                outputs.extend(names_expired(settings, type_url, names, expired));
            }
        }
        for subscription in self.iter_mut() {
            if subscription.currency == Currency::Unproven {
                subscription.currency = subscription.currency_after_silence();
                let due = now + settings.timeout_of(&subscription.type_url);
                subscription.note_silence(due, stream.transport.signs);
            }
        }
    }

    /// Returns true if the server has been silent after all requests, or has answered them, and requests were
    /// written.
    pub(super) fn are_all_answered(&self) -> bool {
        // The machine does not wait for types without requests, such as globs in SotW.
        let mut asked = self.wanted_types().filter(|subscription| subscription.is_asked()).peekable();
        let is_over = |subscription: &TypeRequest| {
            matches!(subscription.currency, Currency::Current | Currency::Silent)
        };
        asked.peek().is_some() && asked.all(is_over)
    }

    /// The types about which the server is silent since a request for more names, for the time of the
    /// resource timer, on a stream that is alive (ADR 54).
    ///
    /// Some servers answer a SotW request only if they have every name in it. One unknown name then ends the
    /// updates of all other names of the type. [`crate::source::Streams`] finds out whether that is
    /// the reason.
    pub(super) fn silenced(&self, stream: &ServerStream) -> Vec<TypeUrl> {
        if stream.transport.is_receiving || stream.has_marks {
            return Vec::new();
        }
        let is_silenced =
            |subscription: &&TypeRequest| subscription.exchange.silence.is_proven(stream.transport.signs);
        self.iter().filter(is_silenced).map(|subscription| subscription.type_url.clone()).collect()
    }

    /// A mark arrived, with the response before.
    pub(super) fn take_mark(&mut self, type_url: &TypeUrl, mark: &SetMark) {
        if let Some(subscription) = self.get_mut(type_url) {
            subscription.take_mark(mark);
        }
    }

    /// The other server of a failover pair has its turn.
    pub(super) fn exchange_versions(&mut self, before: Variant, now: Variant) {
        self.iter_mut().for_each(|subscription| subscription.exchange_versions(before, now));
    }

    pub(super) fn check_invariants(&self, is_open: bool) {
        for (type_url, subscription) in &self.0 {
            debug_assert_eq!(*type_url, subscription.type_url);
            subscription.check_invariants(is_open);
        }
    }
}

/// With marks the server may be a relay that does not know the name either, so silence proves no absence.
/// Names with parameters are different: no response reports the lack of a matching variant.
fn is_meant_by_silence(stream: &ServerStream, name: &ResourceName) -> bool {
    !stream.has_marks || name.is_located()
}

/// TMR-5: the new state of the names with expired timers.
fn names_expired(
    settings: &UpstreamSettings,
    type_url: &TypeUrl,
    names: &mut WantedNames,
    expired: Vec<ResourceName>,
) -> Option<Output> {
    if expired.is_empty() {
        return None;
    }
    if settings.timeout_is_transient {
        return Some(Output::Event(Event::Timeout { type_url: type_url.clone(), names: expired }));
    }
    for name in &expired {
        names.set_absent(name);
    }
    Some(Output::Changes(Changes::names_absent(type_url, expired, Cause::Timeout)))
}
