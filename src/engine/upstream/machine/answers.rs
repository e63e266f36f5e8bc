//! Writes ACKs and NACKs: at once (ACK-8), or later if the server repeats itself. The rules stand in
//! [`crate::engine::upstream::repetition`].

use crate::engine::Time;
use crate::engine::upstream::api::Event;
use crate::engine::upstream::machine::{Occasion, Phase, Upstream};
use crate::engine::upstream::repetition::Owed;
use crate::xds::{ResourceName, TypeUrl};

impl Upstream {
    /// Answers a response, or lets the answer wait. `names`: the bad elements.
    pub(super) fn answer_in_time(
        &mut self,
        type_url: &TypeUrl,
        occasion: Occasion,
        names: Vec<ResourceName>,
        now: Time,
    ) {
        let of_type =
            self.subscriptions.get_mut(type_url).filter(|of_type| of_type.said.repetition.is_pacing());
        let Some(of_type) = of_type else {
            self.answer(type_url, occasion, names, now);
            return;
        };
        let error = if let Occasion::Nack(status) = occasion { Some(status) } else { None };
        if let Some(count) = of_type.said.repetition.owe(error, names, now) {
            self.event(Event::Repeated { type_url: type_url.clone(), count });
        }
    }

    /// Writes the answers whose wait is over.
    pub(super) fn pay_answers(&mut self, now: Time) {
        let due = self.subscriptions.values().filter(|of_type| of_type.said.repetition.is_due(now));
        let due: Vec<_> = due.map(|of_type| of_type.type_url.clone()).collect();
        for type_url in &due {
            self.pay_answer(type_url, now);
        }
        self.subscriptions.values_mut().for_each(|of_type| of_type.said.repetition.pass(now));
    }

    /// Writes the waiting answer of a type, if there is one. Returns false as [`Self::write`] does.
    fn pay_answer(&mut self, type_url: &TypeUrl, now: Time) -> Option<bool> {
        let of_type = self.subscriptions.get_mut(type_url)?;
        let Owed { error, names, .. } = of_type.said.repetition.take(now)?;
        Some(self.answer(type_url, error.map_or(Occasion::Ack, Occasion::Nack), names, now))
    }

    /// Writes the changes of a type. A waiting answer takes the changes along: a SotW request with the newest nonce is
    /// the answer to it. Returns false if the variant cannot express the request.
    pub(super) fn write_change(&mut self, type_url: &TypeUrl, now: Time) -> bool {
        if let Some(of_type) = self.subscriptions.get_mut(type_url) {
            of_type.said.repetition.restart();
        }
        let is_paid = self.pay_answer(type_url, now);
        is_paid.unwrap_or_else(|| self.write(type_url, Occasion::Change, now))
    }

    fn answer(
        &mut self,
        type_url: &TypeUrl,
        occasion: Occasion,
        names: Vec<ResourceName>,
        now: Time,
    ) -> bool {
        let is_ack = !matches!(occasion, Occasion::Nack(_));
        let event = match &occasion {
            Occasion::Nack(status) => {
                Event::Nacked { type_url: type_url.clone(), text: status.message.clone(), names }
            }
            Occasion::Ack | Occasion::Change => Event::Acked { type_url: type_url.clone() },
        };
        if !self.polls() && !self.write(type_url, occasion, now) {
            // An old server would read an ACK with an empty list as a request for everything.
            self.event(Event::Ignored { type_url: type_url.clone() });
            return false;
        }
        if let Some(subscription) = self.subscriptions.get_mut(type_url) {
            // News overtakes an answer that waits.
            subscription.said.repetition.take(now);
            let count = if is_ack { &mut subscription.acks } else { &mut subscription.nacks };
            *count += 1;
        }
        self.event(event);
        true
    }

    /// The earliest time of a waiting answer.
    pub(super) fn answers_at(&self) -> Option<Time> {
        let Phase::Open(_) = &self.phase else { return None };
        self.subscriptions.values().filter_map(|of_type| of_type.said.repetition.due()).min()
    }
}
