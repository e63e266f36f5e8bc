//! Which type a server ended a stream for.
//!
//! Some control planes end the whole stream when they are asked for a type that they do not have (go-control-plane's mux
//! without a cache for it). Asked for it again on each stream, they would interrupt all other types of the class. So the
//! type is found, and [`crate::engine::source::Streams`] moves it to a stream of its own.
//!
//! Only a status of the server's own blames anything: not the end of a connection, not a GOAWAY, not a stream that the
//! server asked to be left. And only of what was asked a moment before and has no answer: of a server that answered
//! something else on the stream or on one before, or whose status names the type. Types that owe an answer are blamed before those
//! of which the server may have nothing new to say.

use std::time::Duration;

use crate::engine::Time;
use crate::engine::reach::Reach;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::api::Input;
use crate::engine::upstream::api::Transport;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::proof::Currency;
use crate::engine::upstream::said::Said;
use crate::engine::upstream::subscription::Subscription;
use crate::xds::{Status, TypeUrl, Variant};

/// A server that ends the stream for a type does so when it reads the request. The rest is for slow networks and handlers.
pub const SOON: Duration = Duration::from_secs(5);

/// A subscription on its way from one stream to another, with what is held of it.
#[derive(Debug)]
pub struct Carried {
    subscription: Subscription,
    variant: Variant,
}

impl Upstream {
    /// The server ended the stream with a status of its own. Gives the types that it may have ended it for; then the next
    /// stream may open at once, because the caller takes these types away.
    pub fn ended(&mut self, status: Status, jitter: f64, now: Time) -> Vec<TypeUrl> {
        let blamed = self.blamed(&status, now);
        if blamed.is_empty() {
            self.handle(Input::Closed { status, jitter }, now);
        } else {
            self.disconnected(status, true, Duration::ZERO, now);
            self.check_invariants();
        }
        blamed
    }

    fn blamed(&self, status: &Status, now: Time) -> Vec<TypeUrl> {
        let Phase::Open(stream) = &self.phase else { return Vec::new() };
        if stream.is_dismissed {
            return Vec::new();
        }
        let wanted = || self.subscriptions.values().filter(|of_type| !of_type.wants_nothing());
        let is_fresh = |at: Time| now.since(at) <= SOON;
        let asked = wanted().filter(|of_type| of_type.said.unanswered.is_some_and(is_fresh));
        let asked: Vec<_> = asked.collect();
        let of_asked = |is_meant: &dyn Fn(&Subscription) -> bool| -> Vec<TypeUrl> {
            let meant = asked.iter().filter(|of_type| is_meant(of_type));
            meant.map(|of_type| of_type.type_url.clone()).collect()
        };
        let named = of_asked(&|of_type| names(&status.message, &of_type.type_url));
        // Of types that were asked for anew with what is held of them, silence is an answer.
        let owing = of_asked(&|of_type| !of_type.said.may_be_silent);
        let has_answered = stream.answered.is_some();
        let blamed = match (named.is_empty(), owing.is_empty()) {
            (false, _) => named,
            (true, false) if has_answered || self.has_spoken => owing,
            (true, _) if has_answered => of_asked(&|_| true),
            (true, _) => Vec::new(),
        };
        // Where nothing else is wanted there is nobody to protect.
        if wanted().all(|of_type| blamed.contains(&of_type.type_url)) { Vec::new() } else { blamed }
    }

    /// Whether the server has said anything of this type since it was asked on the present stream. It may have more to say.
    pub(in crate::engine) fn has_answered(&self, type_url: &TypeUrl) -> bool {
        let is_answered = |said: &Said| said.asked && said.unanswered.is_none();
        let subscription = self.subscriptions.get(type_url);
        subscription.is_some_and(|of_type| !of_type.wants_nothing() && is_answered(&of_type.said))
    }

    /// Each type has a stream, or polls, of its own.
    pub(super) fn is_of_one_type(&self) -> bool {
        self.settings.transport != Transport::Aggregated
    }

    /// RLY-25, RLY-40: that a type has no service says nothing of the server's other types.
    pub(super) fn not_served(&mut self, status: Status, now: Time) {
        if self.unserved.is_some() {
            return;
        }
        self.reach = Reach::Pending;
        self.unserved = Some((now, status.clone()));
        let type_urls: Vec<_> = self.types().map(|of_type| of_type.type_url.clone()).collect();
        for type_url in type_urls {
            self.event(Event::NotServed { type_url, status: status.clone() });
        }
    }

    /// Since when the server has no service for the type of this stream, and what it says to it.
    pub fn unserved(&self) -> Option<(Time, &Status)> {
        self.unserved.as_ref().map(|(since, status)| (*since, status))
    }

    /// Gives up a type, to be carried by another stream. The stream closes if it was the last one.
    pub(in crate::engine) fn release(&mut self, type_url: &TypeUrl, now: Time) -> Option<Carried> {
        let mut subscription = self.subscriptions.remove(type_url)?;
        if matches!(self.phase, Phase::Open(_)) {
            subscription.stream_ended();
        }
        subscription.currency = Currency::Unasked;
        if self.subscriptions.values().all(Subscription::wants_nothing) {
            self.close(now);
        }
        self.check_invariants();
        Some(Carried { subscription, variant: self.variant })
    }

    /// Takes a type over from another stream, as if its stream had been lost: what is held is restated (DEL-35). A stream
    /// that has to be opened for it is not opened before `not_before`.
    pub(in crate::engine) fn carry(&mut self, carried: Carried, not_before: Time, now: Time) {
        let Carried { mut subscription, variant } = carried;
        if variant != self.variant {
            subscription.forget_versions();
        }
        self.idle_until = None;
        self.subscriptions.insert(subscription.type_url.clone(), subscription);
        match &self.phase {
            Phase::Closed => {
                let until = self.retry_at.max(not_before);
                self.enter(Phase::Waiting { until }, now);
            }
            Phase::Waiting { .. } | Phase::Opening => {}
            Phase::Open(_) => self.write_changes_gathered(now),
        }
        self.check_invariants();
    }

    /// Whether a subscription of this type is here, wanted or said on the present stream.
    pub(in crate::engine) fn knows(&self, type_url: &TypeUrl) -> bool {
        self.subscriptions.contains_key(type_url)
    }

    /// No stream is opened before, from now on.
    pub(in crate::engine) fn hold_off(&mut self, until: Time) {
        self.retry_at = self.retry_at.max(until);
    }

    /// No stream is opened before the other machine would, and the backoff goes on from there.
    pub(in crate::engine) fn wait_like(&mut self, former: &Upstream) {
        self.backoff = former.backoff.clone();
        self.hold_off(former.retry_at);
    }

    /// A machine for a stream beside this one, to the same server in the same variant. That its streams end says nothing of
    /// what the server speaks.
    pub(in crate::engine) fn beside(&self) -> Upstream {
        let settings = self.settings.clone();
        let variant = self.variant;
        Upstream::new(super::Settings { variant, fall_back_to_sotw: false, failover: false, ..settings })
    }

    /// Nothing is wanted of it, and nothing is left to be done for it.
    pub(in crate::engine) fn is_done(&self) -> bool {
        self.is_idle() && self.outputs.is_empty()
    }
}

/// Whether a text names a type, and not one of which the name only begins so.
fn names(text: &str, type_url: &TypeUrl) -> bool {
    let name = type_url.message();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let ends = text.match_indices(name).map(|(at, _)| text[at + name.len()..].chars());
    !name.is_empty()
        && ends.into_iter().any(|mut rest| match rest.next() {
            // A full stop may end the sentence.
            Some('.') => !rest.next().is_some_and(is_part),
            Some(next) => !is_part(next),
            None => true,
        })
}
