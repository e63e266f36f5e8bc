//! A server that announces which answers are whole: another sluice (ADR 14).
//!
//! On a stream with marks nothing is found out by silence, for the server may know as little as its own server told it so far:
//!
//! - the first answers settle by a mark and by nothing else ([`super::settling`]);
//! - no name is absent by a resource timer, which finds out no more than that the stream is alive. The server has timers of its
//!   own, and says by `removed_resources` what they find;
//! - a type is current once the server has marked it. That it can be heard is found out as on any stream.
//!
//! A mark counts only after a response that could be read: a response of which nothing was taken has no whole set behind it.

use crate::engine::Time;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::subscription::Subscription;
use crate::xds::{SetMark, TypeUrl, Variant};

impl Upstream {
    /// The server sets marks on the open stream.
    pub(super) fn expect_marks(&mut self) {
        let Phase::Open(stream) = &mut self.phase else { return };
        if self.variant != Variant::Delta {
            return;
        }
        stream.has_marks = true;
        self.subscriptions.values_mut().for_each(Subscription::expect_marks);
    }

    /// A mark came, with the response that was taken last.
    pub(super) fn marked(&mut self, type_url: &TypeUrl, mark: &SetMark, now: Time) {
        let Phase::Open(stream) = &self.phase else { return };
        if !stream.has_marks {
            return;
        }
        if let Some(subscription) = self.subscriptions.get_mut(type_url) {
            subscription.take_mark(mark);
        }
        self.settle_answers(now);
    }
}
