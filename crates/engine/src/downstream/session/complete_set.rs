//! The complete set of a session's first type, for clients without a stream (RST-12).

use std::sync::Arc;

use crate::downstream::answer::Answer;
use crate::downstream::session::Session;
use crate::downstream::sources::SourceId;
use crate::snapshot::Snapshot;

impl Session {
    /// The complete set of the session's first type; `None` while a name is UNKNOWN, and before any
    /// request.
    pub fn complete_set(&self, latest: &dyn Fn(SourceId) -> Option<Arc<Snapshot>>) -> Option<Answer> {
        let snapshots = self.served(latest);
        let served =
            |id| snapshots.iter().find(|(own, _)| *own == id).and_then(|(_, snapshot)| snapshot.clone());
        self.subscriptions().first()?.complete_set(&served)
    }
}
