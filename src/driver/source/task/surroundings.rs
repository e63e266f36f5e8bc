//! The place of a source in the relay.

use std::sync::Arc;

use crate::driver::ground::context::DriverContext;
use crate::driver::source::handle::{SourceHandle, SourceListing};
use sluice_engine::Time;
use sluice_fleet::rollout::UnitId;

/// The context of all parts of a source's task: the source as streams see it, the table of sources, and the
/// relay.
pub(in crate::driver::source) struct Surroundings {
    pub(in crate::driver::source) handle: Arc<SourceHandle>,
    pub(in crate::driver::source) shared: Arc<DriverContext>,
    pub(in crate::driver::source) listing: Arc<dyn SourceListing>,
}

impl Surroundings {
    pub(super) fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// The source as a unit of a plan.
    pub(super) fn unit(&self) -> UnitId {
        UnitId(self.handle.id().0)
    }
}
