//! Signs of life for the supervisor.

use std::sync::Arc;

use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use crate::handover::supervisor::Supervisor;

/// Gives the supervisor signs of life of the runtime. Never ends.
pub(in crate::app) async fn tell(supervisor: Arc<Supervisor>) {
    let Some(period) = supervisor.watchdog() else { return std::future::pending().await };
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = supervisor.tell("WATCHDOG=1") {
            debug!(%error, "cannot tell the supervisor");
        }
    }
}
