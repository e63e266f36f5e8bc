//! One look at the due answers of a stream, with the snapshots for the answers.

use std::sync::Arc;

use crate::Time;
use crate::downstream::sources::{ListId, SourceId};
use crate::snapshot::Snapshot;

/// The snapshots for answers, one per source for all types, so that no type runs ahead of another.
pub type Snapshots = Vec<(SourceId, Option<Arc<Snapshot>>)>;

/// The release of one source that serves a session.
#[derive(Debug)]
pub struct LanePosition {
    pub source: SourceId,
    pub release: u64,
    /// Clients that ask by name may be on their way to other names until this time.
    pub moved_until: Option<Time>,
}

/// One look at the due answers of a stream.
pub struct Turn<'a> {
    pub snapshots: &'a Snapshots,
    /// The number of responses that the stream has carried.
    pub carried: u64,
    pub now: Time,
    /// Server lists with a recent move to another server.
    pub moved: Vec<ListId>,
    /// The releases that serve the session; none without lanes.
    pub lanes: &'a [LanePosition],
    /// The routing types have waited for the maximum time. The cluster side is sent beside unACKed
    /// responses (NON-4), each type once, and then the routing types.
    pub overdue: bool,
}

impl<'a> Turn<'a> {
    pub fn snapshot(&self, source: SourceId) -> Option<&'a Arc<Snapshot>> {
        let (_, snapshot) = self.snapshots.iter().find(|(id, _)| *id == source)?;
        snapshot.as_ref()
    }

    /// Whether the session moved to another release of a source so recently that the client may be on its way
    /// to other names.
    pub fn has_moved(&self, source: SourceId) -> bool {
        self.lanes.iter().any(|position| position.source == source && position.moved_until.is_some())
    }
}
