//! Orders of a plan to its sources: which releases they serve (WAV-2).

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::engine::snapshot::Snapshot;

/// A move of the lanes of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOrder {
    /// The newest content becomes the candidate of this push (WAV-4).
    Cut(u64),
    /// The candidate of this push is taken back (WAV-10).
    Back(u64),
    /// All clients have the candidate of this push, which is stable from now on.
    Settle(u64),
    /// All clients are served the latest release with this number or a smaller one (HIS-3).
    Serve(u64),
    /// Nothing is held back any more.
    Open,
}

/// The two releases of a push.
#[derive(Clone, Debug)]
pub struct LaneContent {
    pub stable: Arc<Snapshot>,
    pub candidate: Arc<Snapshot>,
}

/// An order on its way.
#[derive(Debug)]
pub struct Ordered {
    pub order: LaneOrder,
    /// Gets the releases once they are published; `None`: the source holds nothing back.
    pub done: oneshot::Sender<Option<LaneContent>>,
}
