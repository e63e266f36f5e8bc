//! Finds the type for which a server ended a stream.
//!
//! Some control planes end the whole stream after a request for a type that they lack (go-control-plane's mux
//! without a cache for the type). Requests for the type on each stream would interrupt all other types of the
//! class. So the machine finds the type, and [`crate::engine::source::Streams`] moves the type to a stream of
//! its own.
//!
//! Only a status of the server's own blames a type: not the end of a connection, not a GOAWAY, not the end of
//! a stream that the server asked the relay to leave. The type must have been requested a moment before, and
//! have no answer. In addition, the server must have answered something else on the stream or on an earlier
//! stream, or the status must name the type. Types that owe an answer are blamed before types for which the
//! server may have no news. If no stream has an answer, the types are asked for one after the other
//! (`careful.rs`).

use std::time::Duration;

use crate::engine::Time;
use crate::engine::reachability::Reachability;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::api::Input;
use crate::engine::upstream::api::Transport;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::proof::Currency;
use crate::engine::upstream::said::Said;
use crate::engine::upstream::type_request::TypeRequest;
use crate::xds::{Status, TypeUrl, Variant};

/// The maximum time between the request and the blamed end. A server ends the stream when it reads the
/// request; the rest is for slow networks and handlers.
pub const SOON: Duration = Duration::from_secs(5);

/// A subscription on the way from a stream to another stream, with the state of the held resources.
#[derive(Debug)]
pub struct Carried {
    subscription: TypeRequest,
    variant: Variant,
}

impl Upstream {
    /// Handles the end of the stream by a status of the server's own. Returns the types for which the server
    /// may have ended the stream. With such types the next stream may open at once, because the caller takes
    /// the types away.
    pub fn ended(&mut self, status: Status, jitter: f64, now: Time) -> Vec<TypeUrl> {
        let blamed = self.blamed(&status, now);
        self.count_silent_end(blamed.is_empty() && self.was_asked_soon(now));
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
        let asked: Vec<_> = wanted().filter(|of_type| is_asked_soon(of_type, now)).collect();
        let of_asked = |is_meant: &dyn Fn(&TypeRequest) -> bool| -> Vec<TypeUrl> {
            let meant = asked.iter().filter(|of_type| is_meant(of_type));
            meant.map(|of_type| of_type.type_url.clone()).collect()
        };
        let named = of_asked(&|of_type| names(&status.message, &of_type.type_url));
        // For types that were requested anew with held versions, silence is an answer.
        let owing = of_asked(&|of_type| !of_type.said.may_be_silent);
        let has_answered = stream.answered.is_some();
        let blamed = match (named.is_empty(), owing.is_empty()) {
            (false, _) => named,
            (true, _) if self.is_careful() => {
                of_asked(&|of_type| stream.careful.guilty() == Some(&of_type.type_url))
            }
            (true, false) if has_answered || self.has_spoken => owing,
            (true, _) if has_answered => of_asked(&|_| true),
            (true, _) => Vec::new(),
        };
        // Without other wanted types there is nothing to protect.
        if wanted().all(|of_type| blamed.contains(&of_type.type_url)) { Vec::new() } else { blamed }
    }

    fn was_asked_soon(&self, now: Time) -> bool {
        self.subscriptions.values().any(|of_type| is_asked_soon(of_type, now))
    }

    /// Returns true if the server has answered for the type since the request on the present stream. More
    /// answers may follow.
    pub(in crate::engine) fn has_answered(&self, type_url: &TypeUrl) -> bool {
        let is_answered = |said: &Said| said.asked && said.unanswered.is_none();
        let subscription = self.subscriptions.get(type_url);
        subscription.is_some_and(|of_type| !of_type.wants_nothing() && is_answered(&of_type.said))
    }

    /// Each type has a stream, or polls, of its own.
    pub(super) fn is_of_one_type(&self) -> bool {
        self.settings.transport != Transport::Aggregated
    }

    /// RLY-25, RLY-40: a type without a service says nothing about the server's other types.
    pub(super) fn not_served(&mut self, status: Status, now: Time) {
        if self.unserved.is_some() {
            return;
        }
        self.reach = Reachability::Pending;
        self.unserved = Some((now, status.clone()));
        let type_urls: Vec<_> = self.types().map(|of_type| of_type.type_url.clone()).collect();
        for type_url in type_urls {
            self.event(Event::NotServed { type_url, status: status.clone() });
        }
    }

    /// The time since which the server has no service for the type of this stream, and the server's status.
    pub fn unserved(&self) -> Option<(Time, &Status)> {
        self.unserved.as_ref().map(|(since, status)| (*since, status))
    }

    /// Gives up a type, so that another stream can carry the type. The stream closes after its last type.
    pub(in crate::engine) fn release(&mut self, type_url: &TypeUrl, now: Time) -> Option<Carried> {
        let mut subscription = self.subscriptions.remove(type_url)?;
        if matches!(self.phase, Phase::Open(_)) {
            subscription.stream_ended();
        }
        subscription.currency = Currency::Unasked;
        if self.subscriptions.values().all(TypeRequest::wants_nothing) {
            self.close(now);
        }
        self.check_invariants();
        Some(Carried { subscription, variant: self.variant })
    }

    /// Takes a type over from another stream, as if the other stream had been lost: held resources are
    /// restated (DEL-35). A stream that has to open for the type opens no earlier than `not_before`.
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

    /// Returns true if a subscription of the type is here, wanted or said on the present stream.
    pub(in crate::engine) fn knows(&self, type_url: &TypeUrl) -> bool {
        self.subscriptions.contains_key(type_url)
    }

    /// No stream opens before `until`, from now on.
    pub(in crate::engine) fn hold_off(&mut self, until: Time) {
        self.retry_at = self.retry_at.max(until);
    }

    /// No stream opens before the former machine would open a stream, and the former machine's backoff goes
    /// on.
    pub(in crate::engine) fn wait_like(&mut self, former: &Upstream) {
        self.backoff = former.backoff.clone();
        self.hold_off(former.retry_at);
    }

    /// A machine for a second stream to the same server in the same variant. The ends of the second stream
    /// say nothing about the variants of the server.
    pub(in crate::engine) fn beside(&self) -> Upstream {
        let settings = self.settings.clone();
        let variant = self.variant;
        Upstream::new(super::UpstreamSettings {
            variant,
            fall_back_to_sotw: false,
            failover: false,
            ..settings
        })
    }

    /// Returns true if nothing is wanted, and no output is outstanding.
    pub(in crate::engine) fn is_done(&self) -> bool {
        self.is_idle() && self.outputs.is_empty()
    }
}

/// Returns true if a recent request for the type has no answer.
fn is_asked_soon(of_type: &TypeRequest, now: Time) -> bool {
    !of_type.wants_nothing() && of_type.said.unanswered.is_some_and(|at| now.since(at) <= SOON)
}

/// Returns true if a text names a type, and not only a longer name with the same beginning.
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
