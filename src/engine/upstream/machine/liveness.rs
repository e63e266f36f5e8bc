//! Decides whether the server can be heard, and which types are current. The rules stand in
//! [`crate::engine::upstream::proof`].

use imbl::OrdSet;

use crate::engine::Time;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::backoff::BackoffSettings;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::machine::timers::expired;
use crate::engine::upstream::proof::Currency;
use crate::engine::upstream::type_request::{TypeRequest, Want};
use crate::xds::{Code, ResourceName, Status, TypeUrl};

impl Upstream {
    /// Returns true if the server has answered for the type on the present stream, so that the type is
    /// current.
    pub fn is_current(&self, type_url: &TypeUrl) -> bool {
        let subscription = self.subscriptions.get(type_url);
        subscription.is_some_and(|of_type| !of_type.wants_nothing() && of_type.currency == Currency::Current)
    }

    /// Returns the names without an answer on the present stream, for a type that is not current as a whole but
    /// has answers for other names. Those other names are current (I9, RLY-44).
    pub fn unanswered_names(&self, type_url: &TypeUrl) -> Option<&OrdSet<ResourceName>> {
        let subscription = self.subscriptions.get(type_url).filter(|of_type| of_type.said.is_good)?;
        match &subscription.want {
            Want::Names(names) => Some(names.unanswered()),
            Want::Nothing | Want::Wildcard(_) | Want::Globs(_) => None,
        }
    }

    /// The server can be heard on this stream. Reported once for each stream.
    pub(super) fn hear(&mut self, now: Time) {
        let Phase::Open(stream) = &mut self.phase else { return };
        if std::mem::replace(&mut stream.is_heard, true) {
            return;
        }
        self.last_error = None;
        // Lasting silence, too, shows that the service is there again.
        self.unserved = None;
        self.reach.hear(now);
        self.event(Event::Heard);
    }

    /// Records the end of the present stream, which was answered. Returns true if the end makes the server
    /// unsteady.
    pub(super) fn is_found_unsteady(&mut self, now: Time) -> bool {
        let Phase::Open(stream) = &self.phase else { return false };
        let backoff = &self.settings.backoff;
        let is_short = now.since(stream.opened) < backoff.short_life;
        is_short && !stream.is_dismissed && self.flaps.add(backoff, now)
    }

    /// The reason why an unsteady server is unreachable. `last`: the status at the end of the last stream.
    pub(super) fn unsteady(&self, last: &Status) -> Status {
        let BackoffSettings { unsteady_ends, unsteady_within, .. } = &self.settings.backoff;
        let text = format!(
            "{unsteady_ends} streams within {unsteady_within:?} ended soon after they were answered, the last one with {last}"
        );
        Status::new(Code::Unavailable, text)
    }

    /// The time at which an unsteady server has been steady for long enough.
    pub(super) fn steady_at(&self) -> Option<Time> {
        let Phase::Open(stream) = &self.phase else { return None };
        let answered = stream.answered.or(stream.silent).filter(|_| self.flaps.is_unsteady)?;
        Some(answered + self.settings.backoff.short_life)
    }

    pub(super) fn become_steady(&mut self, now: Time) {
        if self.steady_at().is_some_and(|at| at <= now) {
            self.flaps.is_unsteady = false;
            self.hear(now);
        }
    }

    /// The held resources of a type are the resources of the server.
    pub(super) fn set_current(&mut self, type_url: &TypeUrl) {
        if let Some(subscription) = self.subscriptions.get_mut(type_url) {
            subscription.currency = Currency::Current;
        }
    }

    /// The server speaks of a type in a response.
    pub(super) fn spoke(&mut self, type_url: &TypeUrl, now: Time) {
        let due = now + self.settings.timeout_of(type_url);
        let (Phase::Open(stream), Some(subscription)) = (&self.phase, self.subscriptions.get_mut(type_url))
        else {
            return;
        };
        if !std::mem::replace(&mut subscription.said.spoken, true) {
            subscription.restart_timers(due, stream.signs);
        }
    }

    /// No type is current any more.
    pub(super) fn lose_currency(&mut self) {
        self.subscriptions.values_mut().for_each(|subscription| subscription.currency = Currency::Unasked);
    }

    /// Lasting silence on a live stream is an answer. Returns true if some silence is still unproven.
    pub(super) fn end_silence(&mut self, now: Time) -> bool {
        let Phase::Open(stream) = &self.phase else { return false };
        if stream.is_receiving {
            return false;
        }
        let mut is_unproven = false;
        for subscription in self.subscriptions.values_mut() {
            let before = subscription.currency;
            let silent = subscription.after_silence();
            subscription.currency.run_out(now, stream.signs, silent);
            is_unproven |= subscription.currency == Currency::Unproven;
            if subscription.currency != before {
                subscription
                    .heard_silence(now + self.settings.timeout_of(&subscription.type_url), stream.signs);
            }
        }
        self.hear_silence(now);
        is_unproven
    }

    /// Counts the timers that expired in silence, because the stream is alive. An arriving message ends the
    /// silence, and no timer counts.
    pub(super) fn expire_proven(&mut self, now: Time) {
        let Phase::Open(stream) = &self.phase else { return };
        if stream.is_receiving {
            return;
        }
        for (type_url, subscription) in &mut self.subscriptions {
            if let Want::Names(names) = &mut subscription.want {
                let mut out = names.prove(now);
                out.retain(|name| !stream.has_marks || name.is_located());
                self.outputs.extend(expired(&self.settings, type_url, names, out));
            }
        }
        self.prove_silence(now);
    }

    /// The stream gave a sign of life.
    fn prove_silence(&mut self, now: Time) {
        let Phase::Open(stream) = &self.phase else { return };
        for subscription in self.subscriptions.values_mut() {
            if subscription.currency == Currency::Unproven {
                subscription.currency = subscription.after_silence();
                subscription
                    .heard_silence(now + self.settings.timeout_of(&subscription.type_url), stream.signs);
            }
        }
        self.hear_silence(now);
    }

    /// A server that is silent after all requests has nothing to say. An arriving message ends the silence.
    pub(super) fn hear_silence(&mut self, now: Time) {
        if matches!(&self.phase, Phase::Open(stream) if stream.is_receiving) {
            return;
        }
        // The machine does not wait for types without requests, such as globs in SotW.
        let is_asked = |of_type: &&TypeRequest| of_type.said.asked && !of_type.wants_nothing();
        let mut asked =
            self.subscriptions.values().filter(is_asked).map(|of_type| of_type.currency).peekable();
        let is_over = |currency| matches!(currency, Currency::Current | Currency::Silent);
        let is_all = asked.peek().is_some() && asked.all(is_over);
        if !is_all {
            return;
        }
        if self.flaps.is_unsteady {
            // The stream has to last now, as after a first response (FU9).
            let Phase::Open(stream) = &mut self.phase else { return };
            stream.silent.get_or_insert(now);
        } else {
            self.hear(now);
        }
    }
}
