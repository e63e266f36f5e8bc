//! The changes of sources that a session settles (ADM-10).

use std::sync::Arc;

use crate::Time;
use crate::downstream::session::Session;
use crate::downstream::sources::SourceId;
use crate::downstream::subscription::carried::{Passed, Unsettled};
use crate::snapshot::Snapshot;

impl Session {
    /// The changes that went by without a verdict since the last call.
    pub fn take_passed(&mut self) -> Option<Passed> {
        self.passed.take().map(|passed| *passed)
    }

    /// The changes that the client has not answered or not been sent. `latest` as for [`Session::poll_answer`].
    pub fn unsettled_changes(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>) -> Vec<Unsettled> {
        let snapshots = self.newest(latest);
        let turn = self.turn(&snapshots, false, Time::ZERO);
        self.subscriptions.iter().flat_map(|subscription| subscription.unsettled(&turn)).collect()
    }
}
