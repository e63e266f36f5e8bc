//! A server that announces which answers are whole: another sluice (ADR 14).
//!
//! On a stream with marks nothing is found out by silence, for the server may know as little as its own server told it so far:
//!
//! - the first answers settle by a mark and by nothing else ([`crate::engine::upstream::settling`]);
//! - no name is absent by a resource timer, which finds out no more than that the stream is alive. The server has timers of its
//!   own, and says by `removed_resources` what they find;
//! - a type is current once the server has marked it. That it can be heard is found out as on any stream.
//!
//! A mark counts only after a response that could be read: a response of which nothing was taken has no whole set behind it.

use crate::engine::upstream::settling::Settling;
use crate::engine::upstream::subscription::{Subscription, Want};
use crate::xds::{ResourceName, SetMark};

impl Subscription {
    /// What is known of the type by now, and what is asked for later, waits for a mark.
    pub(in crate::engine::upstream) fn expect_marks(&mut self) {
        self.said.has_marks = true;
        self.each_settling(Settling::expect_mark);
    }

    pub(in crate::engine::upstream) fn take_mark(&mut self, mark: &SetMark) {
        if !self.first.is_told() {
            return;
        }
        if let Want::Globs(globs) = &mut self.want {
            // One that was left and taken up again is meant only if the server had read so (RLY-59).
            let is_meant =
                |glob: &&ResourceName| globs.asked_in(glob).is_some_and(|asked| asked <= mark.requests);
            let meant: Vec<_> = mark.globs.iter().filter(is_meant).cloned().collect();
            meant.into_iter().for_each(|glob| globs.mark(glob));
        }
        // A wildcard stands in the first request of its type, and a type becomes current once: every mark speaks of these.
        if mark.whole {
            self.first.mark();
        }
    }
}
