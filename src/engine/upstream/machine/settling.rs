//! From when on the first answers of a stream are all there (DEL-26).
//!
//! Servers split what they have over several responses, and the protocol has no mark for the last one. So its end is found out,
//! and nothing is taken for whole while more is on its way: not while bytes of a further message have come ([`Input::Receiving`]),
//! and not before a round trip of the transport that began after the last message ([`Output::RoundTrip`]), before whose answer
//! everything arrives that the server had handed to its transport. After a large message there has to be silence for a while,
//! too: servers make the next part only when the one before has left. A server that sets marks says it itself
//! ([`super::marks`]), and then nothing is found out.
//!
//! ```text
//!   Unanswered ──small──▶ Due ──▶ Proving ──round trip──▶ Proven ──▶ Settled
//!        │                ▲ ▲─update─┤                       │
//!        └──────large──▶ Quiet ◀─────┴──────more of it───────┘
//!   Unanswered ──any, with marks──▶ Awaiting ──mark──▶ Proven ──▶ Settled
//! ```
//!
//! [`Input::Receiving`]: super::Input::Receiving
//! [`Output::RoundTrip`]: super::Output::RoundTrip

use crate::engine::Time;
use crate::engine::planted::{Bug, planted};
use crate::engine::upstream::api::Output;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::settling::Settling;

impl Upstream {
    /// The first bytes of a message have come, and not all of it.
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
        }
        self.settle_answers(now);
    }

    /// Goes on with the first answers of all types, unless more is on its way.
    pub(super) fn settle_answers(&mut self, now: Time) {
        let Phase::Open(stream) = &mut self.phase else { return };
        if stream.is_receiving && !planted(Bug::SettledWhileReceiving) {
            return;
        }
        let mut begins = false;
        for subscription in self.subscriptions.values_mut() {
            subscription.each_settling(|settling| settling.pass(now));
            if !stream.has_round {
                subscription.each_settling(|settling| begins |= settling.begin());
            }
            self.outputs.extend(subscription.settle().map(Output::Changes));
        }
        if begins {
            stream.has_round = true;
            self.outputs.push_back(Output::RoundTrip);
        }
    }
}
