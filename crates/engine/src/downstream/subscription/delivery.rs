//! The progress of one type's answers towards the client.

use std::sync::Arc;

use crate::downstream::answer::Answer;
use crate::downstream::order::acknowledged::AcknowledgedAnswers;
use crate::view::View;

/// The state of the answers to one client. Every update reads and writes it.
#[derive(Debug, Default)]
pub(in crate::downstream) struct Delivery {
    /// The rest of an answer that takes several messages. The rest goes out before a newer answer begins
    /// (RLY-31).
    pub(in crate::downstream) pending: Option<Box<Answer>>,
    /// For a routing type: the client's ACKs so far.
    pub(in crate::downstream) acknowledged: AcknowledgedAnswers,
    /// The count of the session's news before the look that made the latest answer. `None` if the answer was
    /// made from older content, or the collections changed since.
    pub(in crate::downstream) sent_after: Option<u32>,
    /// A first answer to the wildcard is due, even without resources (SST-7, DEL-25).
    pub(super) greeting: bool,
    /// New collections may be answered beside an unACKed response (NON-4).
    pub(in crate::downstream) fresh: bool,
}

impl Delivery {
    /// The view of a part with all messages of an unfinished answer.
    pub(super) fn pending_view(&self, index: usize) -> Option<&Arc<View>> {
        let answered = self.pending.as_ref()?.parts.get(index)?;
        Some(&answered.view)
    }

    /// Whether nothing but new content can be due.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.greeting && !self.fresh && self.pending.is_none()
    }
}
