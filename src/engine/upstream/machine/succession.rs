//! Replaces the open stream by a second stream with another node. The rules stand in
//! [`crate::engine::upstream::succession`].

use crate::engine::Time;
use crate::engine::upstream::api::Output;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::succession::Next;
use crate::engine::upstream::type_request::TypeRequest;

impl Upstream {
    /// Streams begin with another node from now on. Without an open stream, or before the first request, the
    /// next first request carries the node. So does the next poll.
    pub fn succeed(&mut self) {
        let polls = self.polls();
        if let Phase::Open(stream) = &mut self.phase
            && !polls
            && stream.has_spoken
            // A failed second stream is tried again in its time, and begins with the newest node.
            && stream.next == Next::Unwanted
        {
            self.open_next(0);
        }
    }

    fn open_next(&mut self, failures: u32) {
        let (variant, server) = (self.variant, self.server());
        if let Phase::Open(stream) = &mut self.phase {
            stream.next = Next::Opening { failures };
            self.outputs.push_back(Output::OpenNext { variant, server });
        }
    }

    /// The current stream goes on, with the node of a departed member. The second stream is tried again, with
    /// the backoff of any stream (CLI-4).
    pub(super) fn lose_next(&mut self, now: Time) {
        let Phase::Open(stream) = &mut self.phase else { return };
        let Next::Opening { failures } = stream.next else { return };
        let failures = failures.saturating_add(1);
        let retry_at = now + self.settings.backoff.after(failures);
        stream.next = Next::Failed { failures, retry_at };
    }

    pub(super) fn retry_next(&mut self, now: Time) {
        if let Phase::Open(stream) = &self.phase
            && let Next::Failed { failures, retry_at } = stream.next
            && retry_at <= now
        {
            self.open_next(failures);
        }
    }

    pub(super) fn take_next(&mut self, now: Time) {
        let Phase::Open(stream) = &mut self.phase else { return };
        if !matches!(stream.next, Next::Opening { .. }) {
            return;
        }
        let is_heard = stream.is_heard;
        self.withdraw_unsent();
        self.subscriptions.retain(|_, subscription| !subscription.wants_nothing());
        self.subscriptions.values_mut().for_each(TypeRequest::stream_ended);
        self.outputs.push_back(Output::TakeNext);
        self.opened(now);
        // The second stream inherits the proof that the server can be heard.
        if let Phase::Open(stream) = &mut self.phase {
            stream.is_heard = is_heard;
        }
    }
}
