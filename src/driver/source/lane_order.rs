//! Orders of a plan to the sources about the served releases (WAV-2).

use std::sync::Arc;

use tokio::sync::oneshot;

use sluice_engine::lanes::{Release, Restated};
use sluice_engine::snapshot::Snapshot;

/// A move of the lanes of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneOrder {
    /// The newest content becomes the candidate of this push (WAV-4).
    Cut(u64),
    /// The content of this cut is part of no push.
    PutOff(u64),
    /// Clients are admitted to the candidate of this push next.
    Give(u64),
    /// The candidate of this push is taken back (WAV-10).
    Back(u64),
    /// The push is halted, and clients keep its candidate (WAV-16).
    Stay(u64),
    /// All clients have the candidate of this push. The candidate becomes stable.
    Settle(u64),
    /// All clients are served the latest release with this number or a smaller one (HIS-3).
    Serve(u64),
    /// Clients that rejected pushes before a restart may have any part of these names (WAV-10).
    Restate(Arc<Restated>),
    /// The plan refuses other contents than before (WAV-22).
    Refuse,
    /// The ledger has another word for sources without stable content (LDG-3).
    Join,
    /// A hold outlives the names that the source forgets (WAV-8).
    Keep,
    /// No push stands: a hold without a difference ends.
    Rest,
    /// The hold ends.
    Open,
}

/// The two releases of a push.
#[derive(Clone, Debug)]
pub struct LaneContent {
    pub stable: Arc<Snapshot>,
    pub candidate: Arc<Snapshot>,
    /// The latest releases, oldest first; only of a cut.
    pub released: Vec<Release>,
}

/// An order on its way.
#[derive(Debug)]
pub struct Ordered {
    pub order: LaneOrder,
    /// Gets the releases after the publication; `None`: the source has no hold.
    pub done: oneshot::Sender<Option<LaneContent>>,
}
