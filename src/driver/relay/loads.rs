//! The load that clients report.

use crate::driver::api::load::ClassLoadStatus;
use crate::driver::relay::handle::Relay;

impl Relay {
    /// The load of all classes, with their rows. Holds the lock of one class at a time.
    pub fn loads(&self) -> Vec<ClassLoadStatus> {
        self.loads.all().iter().map(|load| load.status(&self.shared.clock)).collect()
    }

    /// Sends each server the last report, after the last client (LRS-16). Resolves when all have said that
    /// they have it, or a few seconds later.
    pub async fn finish_loads(&self) {
        self.loads.finish().await;
    }
}
