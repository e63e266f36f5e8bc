//! Signs of life for the supervisor.

use std::sync::Arc;

use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::upgrader::Upgrader;
use crate::handover::supervisor::Supervisor;

/// Gives the supervisor signs of life of the runtime, but for the time with a successor, whose life counts
/// then. Never ends.
pub(in crate::app) async fn tell(supervisor: Arc<Supervisor>, upgrader: Upgrader) {
    let Some(period) = supervisor.watchdog() else { return std::future::pending().await };
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if upgrader.has_handed() {
            continue;
        }
        if let Err(error) = supervisor.tell("WATCHDOG=1") {
            debug!(%error, "cannot tell the supervisor");
        }
    }
}
