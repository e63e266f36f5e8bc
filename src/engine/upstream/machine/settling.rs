//! Settles the first answers of a stream (DEL-26). The rules stand in [`crate::engine::upstream::settling`].

use crate::engine::Time;
use crate::engine::upstream::api::Output;
use crate::engine::upstream::confirmation::Confirmation;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::settling::Settling;

impl Upstream {
    /// The first bytes of a message have arrived, and the rest is outstanding.
    pub(super) fn receiving(&mut self) {
        if let Phase::Open(stream) = &mut self.phase {
            stream.is_receiving = true;
        }
    }

    /// The round trip is over.
    pub(super) fn returned(&mut self, now: Time) {
        let Phase::Open(stream) = &mut self.phase else { return };
        stream.has_round = false;
        for subscription in self.subscriptions.values_mut() {
            subscription.each_settling(Settling::returned);
            subscription.confirmation.iter_mut().for_each(Confirmation::returned);
        }
        self.settle_answers(now);
    }

    /// Goes on with the first answers of all types, unless a message is arriving.
    pub(super) fn settle_answers(&mut self, now: Time) {
        let Phase::Open(stream) = &mut self.phase else { return };
        if stream.is_receiving {
            return;
        }
        let mut begins = false;
        for subscription in self.subscriptions.values_mut() {
            subscription.each_settling(|settling| settling.pass(now));
            subscription.confirmation.iter_mut().for_each(|confirmation| confirmation.pass(now));
            if !stream.has_round {
                subscription.each_settling(|settling| begins |= settling.begin());
                begins |= subscription.confirmation.as_mut().is_some_and(Confirmation::begin);
            }
            let quiet = self.settings.timeout_of(&subscription.type_url);
            self.outputs.extend(subscription.settle(Confirmation::new(quiet, now)).map(Output::Changes));
        }
        if begins {
            stream.has_round = true;
            self.outputs.push_back(Output::RoundTrip);
        }
    }
}
