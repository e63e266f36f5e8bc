//! One look at the due answers of a stream, with the snapshots for the answers.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Time;
use crate::downstream::sources::{ListId, SourceId};
use crate::snapshot::Snapshot;

/// The snapshots for answers, one per source for all types, so that no type runs ahead of another.
pub type Snapshots = SmallVec<[(SourceId, Option<Arc<Snapshot>>); 1]>;

/// Sources of a session. Nearly always none or one, and then without an allocation.
#[derive(Debug, Default)]
pub enum MovedSources {
    #[default]
    None,
    One(SourceId),
    Several(Vec<SourceId>),
}

impl FromIterator<SourceId> for MovedSources {
    #[inline]
    fn from_iter<I: IntoIterator<Item = SourceId>>(sources: I) -> MovedSources {
        let mut sources = sources.into_iter();
        match (sources.next(), sources.next()) {
            (None, _) => MovedSources::None,
            (Some(source), None) => MovedSources::One(source),
            (Some(first), Some(second)) => {
                MovedSources::Several([first, second].into_iter().chain(sources).collect())
            }
        }
    }
}

/// One look at the due answers of a stream.
pub struct Turn<'a> {
    pub snapshots: &'a Snapshots,
    /// The number of responses that the stream has carried.
    pub carried: u64,
    pub now: Time,
    /// Server lists with a recent move to another server.
    pub moved: Vec<ListId>,
    /// The sources that serve the session another release since a recent move.
    pub moved_lanes: MovedSources,
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
        match &self.moved_lanes {
            MovedSources::None => false,
            MovedSources::One(moved) => *moved == source,
            MovedSources::Several(moved) => moved.contains(&source),
        }
    }
}
