//! Servers that announce whole answers: other sluices (ADR 14).
//!
//! On a stream with marks silence proves nothing, for the server may know only as much as its own server has
//! sent so far:
//!
//! - only a mark settles the first answers ([`crate::engine::upstream::settling`]);
//! - a resource timer makes no name absent, and only proves that the stream is alive. The server has timers
//!   of its own, and reports absences by `removed_resources`;
//! - a type is current once the server has marked the type. The server is heard as on any stream.
//!
//! A mark counts only after a usable response: an unusable response has no whole set behind it.

use crate::engine::upstream::settling::Settling;
use crate::engine::upstream::type_request::{TypeRequest, Want};
use crate::xds::{ResourceName, SetMark};

impl TypeRequest {
    /// Lets the known resources of the type, and later subscriptions, wait for a mark.
    pub(in crate::engine::upstream) fn expect_marks(&mut self) {
        self.said.has_marks = true;
        self.each_settling(Settling::expect_mark);
    }

    pub(in crate::engine::upstream) fn take_mark(&mut self, mark: &SetMark) {
        if !self.first.is_told() {
            return;
        }
        if let Want::Globs(globs) = &mut self.want {
            // A mark means a glob that was left and taken up again only if the server had read the new
            // request (RLY-59).
            let is_meant =
                |glob: &&ResourceName| globs.asked_in(glob).is_some_and(|asked| asked <= mark.requests);
            let meant: Vec<_> = mark.globs.iter().filter(is_meant).cloned().collect();
            meant.into_iter().for_each(|glob| globs.mark(glob));
        }
        // A wildcard stands in the first request of its type, and a type becomes current once: every mark is
        // about both.
        if mark.whole {
            self.first.mark();
        }
    }
}
