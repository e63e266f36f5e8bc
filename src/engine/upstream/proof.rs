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
//! full-state, or when every name that was known before is answered. Until then each name that is answered is current by
//! itself, so that one of which the server never speaks keeps no session from returning that does not want it. A response with
//! a fault makes nothing current: what was rejected is as old as before. Heartbeats say nothing of what there is (TTL-6). In REST a type is current while polls of it
//! are answered.

use std::collections::VecDeque;

use imbl::OrdSet;

use super::backoff::BackoffSettings;
use super::subscription::{Subscription, Want};
use super::{Event, Phase, Upstream, expired};
use crate::engine::Time;
use crate::engine::planted::{Bug, planted};
use crate::xds::{Code, ResourceName, Status, TypeUrl};

/// What the present stream says of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Currency {
    #[default]
    Unasked,
    /// Not answered until now; the stream had given `signs` of life when it was asked.
    Asked {
        due: Time,
        signs: u64,
    },
    /// Silent until the timer ran out, on a stream that gave no sign of life since it was asked.
    Unproven,
    /// Silent for as long on a stream that is alive, by a server that will mark what is whole: it does not know that yet.
    Silent,
    /// The server speaks, so that there is no silence, and the rest of what it has to say is not there yet.
    Answering,
    /// A response was rejected.
    Rejected,
    Current,
}

impl Currency {
    /// When the server's silence becomes its answer.
    pub(super) fn due(self) -> Option<Time> {
        match self {
            Currency::Asked { due, .. } => Some(due),
            _ => None,
        }
    }

    pub(super) fn asked(&mut self, due: Time, signs: u64) {
        if *self != Currency::Current {
            *self = Currency::Asked { due, signs };
        }
    }

    /// A response came, and more is needed.
    fn answering(&mut self, is_good: bool) {
        if *self != Currency::Current {
            *self = if is_good { Currency::Answering } else { Currency::Rejected };
        }
    }

    /// The first answers have settled.
    pub(super) fn settled(&mut self, is_rejected: bool) {
        if *self != Currency::Current {
            *self = if is_rejected { Currency::Rejected } else { Currency::Current };
        }
    }

    /// `silent`: what the silence of the server means.
    fn run_out(&mut self, now: Time, stream_signs: u64, silent: Currency) {
        if let Currency::Asked { due, signs } = *self
            && due <= now
        {
            *self = if stream_signs > signs { silent } else { Currency::Unproven };
        }
    }
}

/// Streams that were answered and ended soon after, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Flaps {
    ends: VecDeque<Time>,
    /// There were too many of them, and no stream has lasted since.
    pub(super) is_unsteady: bool,
}

impl Flaps {
    /// Whether the server is found to be unsteady by this end.
    fn add(&mut self, settings: &BackoffSettings, now: Time) -> bool {
        self.ends.push_back(now);
        while self.ends.front().is_some_and(|end| now.since(*end) > settings.unsteady_within) {
            self.ends.pop_front();
        }
        if self.is_unsteady || self.ends.len() < settings.unsteady_ends {
            return false;
        }
        self.ends.clear();
        self.is_unsteady = true;
        true
    }
}

impl Subscription {
    /// The server has said of the type what it has to say, by words or by silence where that is an answer (DEL-35, STR-10), so
    /// that what it leaves out is meant (RLY-2).
    pub(super) fn has_spoken(&self) -> bool {
        self.said.spoken || self.said.may_be_silent && self.currency == Currency::Current
    }

    /// A response said what there is. `is_good`: it has no fault; `is_full`: it says all that there is.
    pub(super) fn judge_currency(&mut self, is_good: bool, is_full: bool) {
        self.is_rejected |= !is_good;
        let is_answered = match &self.want {
            _ if is_full => true,
            // Once settled it stays current, and is so by its settling.
            _ if self.first.is_running() => return self.currency.answering(is_good),
            Want::Names(names) if !self.first.is_settled() => {
                self.said.is_good |= is_good || planted(Bug::RejectedIsCurrent);
                names.unanswered().is_empty()
            }
            _ => false,
        };
        match (is_good || planted(Bug::RejectedIsCurrent), is_answered) {
            (true, true) => self.currency = Currency::Current,
            (true, false) => {}
            (false, _) => self.currency.answering(false),
        }
    }

    /// What it means that the server was silent on a live stream: that all is current, unless it would say so.
    fn after_silence(&self) -> Currency {
        if self.said.has_marks { Currency::Silent } else { Currency::Current }
    }

    fn heard_silence(&mut self, due: Time, signs: u64) {
        if self.has_spoken() {
            self.restart_timers(due, signs);
        }
    }

    /// The timers of names that ran out before the server had spoken start anew: it gets their whole time to say the rest.
    fn restart_timers(&mut self, due: Time, signs: u64) {
        if let Want::Names(names) = &mut self.want {
            names.restart(due, signs);
        }
    }
}

impl Upstream {
    /// Whether the server has said of this type what it has to say, on the present stream.
    pub fn is_current(&self, type_url: &TypeUrl) -> bool {
        let subscription = self.subscriptions.get(type_url);
        subscription.is_some_and(|of_type| !of_type.wants_nothing() && of_type.currency == Currency::Current)
    }

    /// Where the type is not current as a whole: the names of which the server has not spoken on the present stream, though it
    /// has of others. What is known of those is current (I9, RLY-44).
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
