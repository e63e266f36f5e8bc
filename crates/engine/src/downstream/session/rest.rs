//! Messages and ACKs that leave nothing due. Each update of each client has one of each, and a look for answers would find nothing.

use crate::downstream::session::Session;
use crate::downstream::subscription::Subscription;

impl Session {
    /// Notes that the sources may have published something since the last look. The caller notes it before the next look.
    pub fn note_news(&mut self) {
        self.news = self.news.wrapping_add(1);
    }

    /// Whether nothing is due behind the whole answer of this subscription that was just committed: it brought all that the sources have.
    /// Answers go by rank, so the subscriptions before it have none, and it must be the last.
    pub fn is_sated(&self, index: usize) -> bool {
        index + 1 == self.subscriptions.len() && self.is_at_rest(index)
    }

    /// Whether an ACK of this subscription makes nothing due: its latest answer brought all that the sources have, and nothing waits
    /// for an ACK. Holds only if the last look found no answer.
    pub(super) fn is_at_rest(&self, index: usize) -> bool {
        let is_current =
            self.subscriptions.get(index).is_some_and(|of| of.delivery.sent_after == Some(self.news));
        is_current
            && self.held_until.is_none()
            && self.round.is_none()
            && self.lanes.is_none()
            && self.moving.is_none()
            && self.kept.is_none()
            && self.endpoints_awaited.is_none()
            && !self.is_returning
            && self.positions.0.is_empty()
            && self.subscriptions.iter().all(Subscription::is_at_rest)
    }
}
