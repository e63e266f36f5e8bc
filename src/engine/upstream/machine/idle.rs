//! A stream without wanted resources.
//!
//! The stream usually closes, because unwatched resources have lingered for long enough. Secrets do not
//! linger (RLY-60). A client that asks for a Secret repeatedly would open and close a stream each time. So a
//! stream for Secrets stays for a while, without subscriptions.

use crate::engine::Time;
use crate::engine::upstream::api::WildcardStyle;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;
use crate::xds::{TypeUrl, Variant};

impl Upstream {
    /// The last wanted resource was of this type.
    pub(super) fn left(&mut self, type_url: &TypeUrl, now: Time) {
        // An old server would read an empty subscription as the wildcard (SUB-10).
        let can_say_nothing =
            self.variant == Variant::Delta || self.settings.wildcard == WildcardStyle::Explicit;
        let is_exchanged = self.settings.failover;
        let stays = type_url.is_secret() && can_say_nothing && !is_exchanged && !self.polls();
        if !stays || self.settings.linger.is_zero() || !matches!(self.phase, Phase::Open(_)) {
            return self.close(now);
        }
        self.idle_until = Some(now + self.settings.linger);
        self.write_changes_gathered(now);
    }

    /// Ends a stream without wanted resources.
    pub(in crate::engine) fn close_idle(&mut self, now: Time) {
        if self.idle_until.is_some() {
            self.close(now);
        }
    }

    pub(super) fn run_idle(&mut self, now: Time) {
        if self.idle_until.is_some_and(|until| until <= now) {
            self.close(now);
        }
    }
}
