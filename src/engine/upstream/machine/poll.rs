//! What is peculiar to REST (RST-10, RST-12): polls, each a stream of one request and at most one response.
//!
//! There are no nonces, ACKs and NACKs (RST-7, RST-8): the next poll presents the version that was accepted last. A
//! response answers all of its request and nothing else, so that a name that it lacks is absent, whatever the type. That
//! is more than RLY-27 and RLY-28 grant to streams, where a response may be older than the request and may be one of
//! several.

use crate::engine::Time;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::api::Interest;
use crate::engine::upstream::api::Transport;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::subscription::Subscription;
use crate::xds::TypeUrl;

impl Upstream {
    pub(super) fn polls(&self) -> bool {
        matches!(self.settings.transport, Transport::Rest { .. })
    }

    /// New names are polled for at once, but no oftener than every `gather`. A poll that only asks whether anything
    /// changed, which the server may hold (RST-9), is given up for it; one that asks for names is let finish.
    pub(super) fn subscribe_poll(&mut self, type_url: &TypeUrl, interest: Interest, now: Time) {
        let new = || Subscription::new(type_url.clone());
        let subscription = self.subscriptions.entry(type_url.clone()).or_insert_with(new);
        let is_held = !subscription.accepted.is_empty();
        if !subscription.wants(&interest) {
            subscription.accepted.clear();
            subscription.add(interest);
            self.outputs.extend(subscription.answer_from_variants());
            subscription.said.leave.clear();
            match &mut self.phase {
                Phase::Closed if self.retry_at <= now => self.open(now),
                Phase::Closed => self.enter(Phase::Waiting { until: self.retry_at }, now),
                Phase::Waiting { until } => *until = (*until).min(self.retry_at.max(now)),
                Phase::Open(stream) if is_held && stream.answered.is_none() => self.renew(now),
                Phase::Opening | Phase::Open(_) => {}
            }
        }
        self.check_invariants();
    }

    /// Nothing is unsubscribed from: the next poll lists what is wanted then.
    pub(super) fn forget_left(&mut self) {
        self.subscriptions.retain(|_, subscription| !subscription.wants_nothing());
        self.subscriptions.values_mut().for_each(|subscription| subscription.said.leave.clear());
    }

    /// See [`super::Input::Unchanged`]. Whoever presented no version can't be told so: such a poll is not answered.
    pub(super) fn unchanged(&mut self, now: Time) {
        let claimed = |subscription: &&Subscription| !subscription.accepted.is_empty();
        let Some(subscription) = self.subscriptions.values().find(claimed) else { return };
        let type_url = subscription.type_url.clone();
        self.answered(now);
        self.event(Event::Unchanged { type_url: type_url.clone() });
        self.set_current(&type_url);
    }

    /// An answered poll is over: the next one comes after the delay and at most once more of it (RST-10), or soon if
    /// more was asked for meanwhile.
    pub(super) fn polled(&mut self, jitter: f64, now: Time) {
        let (Phase::Open(stream), Transport::Rest { refresh_delay }) = (&self.phase, self.settings.transport)
        else {
            return;
        };
        let has_news = self.subscriptions.values().any(Subscription::has_news);
        self.retry_at = (stream.opened + self.settings.gather).max(now);
        let jitter = if (0.0..=1.0).contains(&jitter) { jitter } else { 0.5 };
        let delay = if has_news { now } else { now + refresh_delay.mul_f64(1.0 + jitter) };
        self.stream_ended();
        self.enter(Phase::Waiting { until: delay.max(self.retry_at) }, now);
    }
}
