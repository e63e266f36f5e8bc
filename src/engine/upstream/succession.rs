//! Another stream in the place of the open one, because the node with which streams begin has changed.
//!
//! Make before break (RLY-48, FU10): the stream in use stays until the other one is open. That one restates everything, as
//! after a reconnect (DEL-35, STR-10): what is held stays held, and the server has to say only what differs. Nothing that was
//! current is less so by it, so that no session looks for another server.

use super::subscription::Subscription;
use super::{Output, Phase, Upstream};
use crate::engine::Time;

impl Upstream {
    /// Streams begin with another node from now on. Where none is open, or nothing was said on it yet, the next first request
    /// has it; so has the next poll.
    pub fn succeed(&mut self) {
        let (polls, variant, server) = (self.polls(), self.variant, self.server());
        if let Phase::Open(stream) = &mut self.phase
            && !polls
            && stream.has_spoken
            && !std::mem::replace(&mut stream.has_next, true)
        {
            self.outputs.push_back(Output::OpenNext { variant, server });
        }
    }

    pub(super) fn lose_next(&mut self) {
        if let Phase::Open(stream) = &mut self.phase {
            stream.has_next = false;
        }
    }

    pub(super) fn take_next(&mut self, now: Time) {
        let Phase::Open(stream) = &mut self.phase else { return };
        if !std::mem::take(&mut stream.has_next) {
            return;
        }
        self.withdraw_unsent();
        self.subscriptions.retain(|_, subscription| !subscription.wants_nothing());
        self.subscriptions.values_mut().for_each(Subscription::stream_ended);
        self.outputs.push_back(Output::TakeNext);
        self.opened(now);
    }
}
