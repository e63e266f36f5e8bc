//! What a stream proves of its server: that it can be heard, and that what is known of a type is what it has to say.
//!
//! A server is **heard** (CLI-1) from its first response on a stream. One that has nothing to say after a reconnect may send
//! nothing at all: to a client that states what it holds, silence is the answer (DEL-35, STR-10). It is heard, too, once its
//! stream has stayed open for the time of the resource timers after everything was asked, and the transport was found alive
//! after that. So an unreachable server that comes back unchanged does not stay unreachable.
//!
//! A server that answers and dies, over and over, is no error by A57 and A88, so that neither an error nor a fallback would
//! ever follow. Deliberately against CLI-1 and CLI-2, it counts as unreachable after several such streams in short time, and
//! is heard again only when a stream has lived for a while after its first response (FU9). Streams that the server asked to
//! be left, or that lived long enough, never count (RLY-48).
//!
//! A type is **current** once the server has answered on the present stream what is wanted of it, or after the same silence
//! (I9, RLY-44). In delta that is when the first answers have settled ([`super::settling`]); in SotW, when the response is
//! full-state, or when every name that was known before is answered. A response with a fault makes nothing current: what was
//! rejected is as old as before. Heartbeats say nothing of what there is (TTL-6). In REST a type is current while polls of it
//! are answered.

use imbl::OrdSet;

use crate::engine::Time;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::backoff::BackoffSettings;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::machine::timers::expired;
use crate::engine::upstream::proof::Currency;
use crate::engine::upstream::subscription::{Subscription, Want};
use crate::xds::{Code, ResourceName, Status, TypeUrl};

impl Upstream {
    /// Whether the server has said of this type what it has to say, on the present stream.
    pub fn is_current(&self, type_url: &TypeUrl) -> bool {
        let subscription = self.subscriptions.get(type_url);
        subscription.is_some_and(|of_type| !of_type.wants_nothing() && of_type.currency == Currency::Current)
    }

    /// Of a type that is not current as a whole: the names without an answer on the present stream, if the server has answered for
    /// others. The known names among the others are current (I9, RLY-44).
    pub fn unanswered_names(&self, type_url: &TypeUrl) -> Option<&OrdSet<ResourceName>> {
        let subscription = self.subscriptions.get(type_url).filter(|of_type| of_type.said.is_good)?;
        match &subscription.want {
            Want::Names(names) => Some(names.unanswered()),
            Want::Nothing | Want::Wildcard(_) | Want::Globs(_) => None,
        }
    }

    /// The server can be heard on this stream; it is told once for each.
    pub(super) fn hear(&mut self, now: Time) {
        let Phase::Open(stream) = &mut self.phase else { return };
        if std::mem::replace(&mut stream.is_heard, true) {
            return;
        }
        self.last_error = None;
        self.reach.hear(now);
        self.event(Event::Heard);
    }

    /// The present stream, which was answered, ends: whether the server is found to be unsteady by that.
    pub(super) fn is_found_unsteady(&mut self, now: Time) -> bool {
        let Phase::Open(stream) = &self.phase else { return false };
        let backoff = &self.settings.backoff;
        let is_short = now.since(stream.opened) < backoff.short_life;
        is_short && !stream.is_dismissed && self.flaps.add(backoff, now)
    }

    /// Why an unsteady server is unreachable; `last`: how its last stream ended.
    pub(super) fn unsteady(&self, last: &Status) -> Status {
        let BackoffSettings { unsteady_ends, unsteady_within, .. } = &self.settings.backoff;
        let text = format!(
            "{unsteady_ends} streams within {unsteady_within:?} ended soon after they were answered, the last one with {last}"
        );
        Status::new(Code::Unavailable, text)
    }

    /// When an unsteady server has been steady for long enough.
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

    /// What is held of a type is what the server has.
    pub(super) fn set_current(&mut self, type_url: &TypeUrl) {
        if let Some(subscription) = self.subscriptions.get_mut(type_url) {
            subscription.currency = Currency::Current;
        }
    }

    /// The server speaks of a type, by words.
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

    /// What was current is so no longer.
    pub(super) fn lose_currency(&mut self) {
        self.subscriptions.values_mut().for_each(|subscription| subscription.currency = Currency::Unasked);
    }

    /// Silence that has lasted is an answer if the stream is alive. Whether some of it has still to be proven.
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

    /// The stream is alive, so the timers that ran out in silence count; not while a message arrives, which ends the silence.
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

    /// A server that was asked everything and says nothing has nothing to say.
    fn hear_silence(&mut self, now: Time) {
        // What cannot be asked, globs in SotW, is not waited for.
        let is_asked = |of_type: &&Subscription| of_type.said.asked && !of_type.wants_nothing();
        let mut asked =
            self.subscriptions.values().filter(is_asked).map(|of_type| of_type.currency).peekable();
        let is_over = |currency| matches!(currency, Currency::Current | Currency::Silent);
        let is_all = asked.peek().is_some() && asked.all(is_over);
        if !is_all {
            return;
        }
        if self.flaps.is_unsteady {
            // It has to last now, as after a first response (FU9).
            let Phase::Open(stream) = &mut self.phase else { return };
            stream.silent.get_or_insert(now);
        } else {
            self.hear(now);
        }
    }
}
