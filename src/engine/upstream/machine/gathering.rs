//! Writes changes of subscriptions in gathered form (FLW-5, RLY-62). The rules stand in
//! [`crate::engine::upstream::gathering`].

use crate::engine::Time;
use crate::engine::upstream::machine::Phase;
use crate::engine::upstream::machine::Upstream;

impl Upstream {
    /// FLW-5: the first change is written at once, later changes are gathered.
    pub(super) fn write_changes_gathered(&mut self, now: Time) {
        let is_gathering = match &self.phase {
            Phase::Open(stream) => stream.gathering.until().is_some(),
            _ => true,
        };
        if !is_gathering
            && self.write_changes(now)
            && let Phase::Open(stream) = &mut self.phase
        {
            stream.gathering.wrote(now, self.settings.gather);
        }
    }

    /// The transport has taken a part of a long request.
    pub(super) fn flushed(&mut self, now: Time) {
        if let Phase::Open(stream) = &mut self.phase {
            stream.is_flushing = false;
        }
        self.write_changes(now);
    }

    pub(super) fn is_flushing(&self) -> bool {
        matches!(&self.phase, Phase::Open(stream) if stream.is_flushing)
    }

    /// Writes all waiting changes that may be written now. Returns true if there was a change.
    pub(super) fn write_changes(&mut self, now: Time) -> bool {
        let mut wrote = false;
        for type_url in &self.writable(now) {
            if !self.is_flushing() {
                wrote |= self.write_change(type_url, now);
            }
        }
        if wrote {
            // A glob that is requested once more may need a round trip after its request.
            self.settle_answers(now);
        }
        wrote
    }
}
