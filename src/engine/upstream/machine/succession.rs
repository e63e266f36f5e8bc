//! Another stream in the place of the open one, because the node with which streams begin has changed.
//!
//! Make before break (RLY-48, FU10): the stream in use stays until the other one is open. That one restates everything, as
//! after a reconnect (DEL-35, STR-10): what is held stays held, and the server has to say only what differs. Nothing that was
//! current is less so by it, so that no session looks for another server.

use crate::engine::Time;
use crate::engine::upstream::api::Output;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::engine::upstream::subscription::Subscription;
use crate::engine::upstream::succession::Next;

impl Upstream {
    /// Streams begin with another node from now on. Where none is open, or nothing was said on it yet, the next first request
    /// has it; so has the next poll.
    pub fn succeed(&mut self) {
        let polls = self.polls();
        if let Phase::Open(stream) = &mut self.phase
            && !polls
            && stream.has_spoken
            // One that failed is tried again in its time, and begins with the newest node.
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

    /// The stream in use goes on, with the node of a member that is gone: the other one is tried again, with the backoff of any
    /// stream (CLI-4).
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
        self.subscriptions.values_mut().for_each(Subscription::stream_ended);
        self.outputs.push_back(Output::TakeNext);
        self.opened(now);
        // What was heard on the stream before is not lost with it.
        if let Phase::Open(stream) = &mut self.phase {
            stream.is_heard = is_heard;
        }
    }
}
