//! Handles the marks of a server (ADR 14). The rules stand in `type_request/marks.rs`.

use crate::engine::Time;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::type_request::TypeRequest;
use crate::xds::{SetMark, TypeUrl, Variant};

impl Upstream {
    /// The server sets marks on the open stream.
    pub(super) fn expect_marks(&mut self) {
        let Phase::Open(stream) = &mut self.phase else { return };
        if self.variant != Variant::Delta {
            return;
        }
        stream.has_marks = true;
        self.subscriptions.values_mut().for_each(TypeRequest::expect_marks);
    }

    /// A mark arrived, with the response before.
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
