//! Polls of REST (RST-10, RST-12). Each poll is a stream of one request and at most one response.
//!
//! REST has no nonces, ACKs and NACKs (RST-7, RST-8): the next poll presents the last accepted version. A
//! response answers the whole request and nothing else, so that a missing name is absent, whatever the type.
//! RLY-27 and RLY-28 grant less to streams, where a response may be older than the request and may be one of
//! several.

use crate::engine::Time;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::api::Transport;
use crate::engine::upstream::api::Wanted;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::type_request::TypeRequest;
use crate::xds::TypeUrl;

impl Upstream {
    pub(super) fn polls(&self) -> bool {
        matches!(self.settings.transport, Transport::Rest { .. })
    }

    /// Polls for new names at once, but no oftener than every `gather`. A poll that only asks for changes,
    /// which the server may hold (RST-9), is given up for the new poll; a poll that asks for names may
    /// finish.
    pub(super) fn subscribe_poll(&mut self, type_url: &TypeUrl, wanted: Wanted, now: Time) {
        let new = || TypeRequest::new(type_url.clone());
        let subscription = self.subscriptions.entry(type_url.clone()).or_insert_with(new);
        let is_held = !subscription.accepted.is_empty();
        if !subscription.wants(&wanted) {
            subscription.accepted.clear();
            subscription.add(wanted);
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

    /// REST has no unsubscription: the next poll lists the names that are wanted then.
    pub(super) fn forget_left(&mut self) {
        self.subscriptions.retain(|_, subscription| !subscription.wants_nothing());
        self.subscriptions.values_mut().for_each(|subscription| subscription.said.leave.clear());
    }

    /// See [`super::Input::Unchanged`]. A poll without a version cannot have this answer, and stays
    /// unanswered.
    pub(super) fn unchanged(&mut self, now: Time) {
        let claimed = |subscription: &&mut TypeRequest| !subscription.accepted.is_empty();
        let Some(subscription) = self.subscriptions.values_mut().find(claimed) else { return };
        let type_url = subscription.type_url.clone();
        // The server went back to the accepted version, or keeps it, and the relay no longer holds the resources of
        // this version. Only a poll without a version brings them again.
        if std::mem::take(&mut subscription.is_astray) {
            subscription.accepted.clear();
            self.answered(now);
            return self.event(Event::Unchanged { type_url });
        }
        self.answered(now);
        self.event(Event::Unchanged { type_url: type_url.clone() });
        self.set_current(&type_url);
    }

    /// An answered poll is over. The next poll follows after the delay, which is at most doubled at random
    /// (RST-10), or soon if new names are wanted meanwhile.
    pub(super) fn polled(&mut self, jitter: f64, now: Time) {
        let (Phase::Open(stream), Transport::Rest { refresh_delay }) = (&self.phase, self.settings.transport)
        else {
            return;
        };
        let has_news = self.subscriptions.values().any(TypeRequest::has_news);
        self.retry_at = (stream.opened + self.settings.gather).max(now);
        let jitter = if (0.0..=1.0).contains(&jitter) { jitter } else { 0.5 };
        let delay = if has_news { now } else { now + refresh_delay.mul_f64(1.0 + jitter) };
        self.stream_ended();
        self.enter(Phase::Waiting { until: delay.max(self.retry_at) }, now);
    }
}
