//! The changes of sources that a session settles (ADM-10).

use std::sync::Arc;

use crate::engine::Time;
use crate::engine::downstream::session::Session;
use crate::engine::downstream::sources::{ChangeId, SourceId};
use crate::engine::downstream::subscription::carried::{Passed, Unsettled};
use crate::engine::snapshot::Snapshot;

impl Session {
    /// The changes that went by without a verdict since the last call.
    pub fn take_passed(&mut self) -> Option<Passed> {
        self.passed.take().map(|passed| *passed)
    }

    pub(super) fn note_passed(&mut self, passed: Passed) {
        if passed.is_empty() {
            return;
        }
        let all = self.passed.get_or_insert_default();
        all.overtaken.extend(passed.overtaken);
        all.unneeded.extend(passed.unneeded);
    }

    /// The changes that the client has not answered or not been sent. `latest` as for [`Session::poll_answer`].
    pub fn unsettled_changes(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>) -> Vec<Unsettled> {
        let snapshots = self.newest(latest);
        let turn = self.turn(&snapshots, false, Time::ZERO);
        self.subscriptions.iter().flat_map(|subscription| subscription.unsettled(&turn)).collect()
    }

    /// The latest change of a type that the client was sent or wants, of its source with the most recent one.
    pub fn change_of(
        &self,
        index: usize,
        latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>,
    ) -> Option<ChangeId> {
        let subscription = self.subscriptions.get(index)?;
        let snapshots = self.newest(latest);
        let turn = self.turn(&snapshots, false, Time::ZERO);
        let views = subscription.parts.iter().filter_map(|part| {
            let view = part.view_in(&turn, &subscription.type_url)?;
            let number = view.changes().latest_after(0)?;
            Some((view.changed_at(), ChangeId { source: part.source(), number }))
        });
        views.max().map(|(_, id)| id)
    }
}
