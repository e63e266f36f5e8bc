//! CPU for handshakes (SEC-2).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::server::limits::ServerLimits;
use crate::server::socket::Plain;
use sluice_setting::InForce;

/// Handshakes whose turn is fixed. The peers of the others may still leave without a loss of CPU.
pub(super) const FIXED_MAX: usize = 64;

/// Unused turns of this time may be used later.
const BURST: Duration = Duration::from_millis(100);

/// A turn to compute, over when it is dropped.
pub(super) type Turn = OwnedSemaphorePermit;

/// Turns to compute, in order of arrival, at most so many a second.
pub(super) struct Turns {
    fixed: Arc<Semaphore>,
    /// When the next turn is free.
    next: Mutex<Option<Instant>>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { fixed: Arc::new(Semaphore::new(FIXED_MAX)), next: Mutex::default() }
    }
}

impl Turns {
    /// Waits for a turn. `None` if the peer has left: the relay does not compute for the absent. There is no
    /// deadline: the queue is bounded, moves on, and loses those that leave.
    pub(super) async fn take(&self, limits: &InForce<ServerLimits>, peer: &Plain) -> Option<Turn> {
        let permit = self.fixed.clone().acquire_owned().await.ok()?;
        if peer.has_left() {
            return None;
        }
        let per_second = limits.get().tls_handshakes_per_second;
        let at = self.reserve(per_second, Instant::now());
        sleep_until(at).await;
        Some(permit)
    }

    fn reserve(&self, per_second: u32, now: Instant) -> Instant {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let mut next = self.next.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let at = next.map_or(earliest, |next| next.max(earliest));
        *next = Some(at + interval);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sec_2_turns_are_spaced_after_a_burst() {
        let (turns, now) = (Turns::default(), Instant::now() + Duration::from_secs(10));
        let in_second =
            (0..10_000).map(|_| turns.reserve(4_000, now)).filter(|at| *at < now + Duration::from_secs(1));
        assert_eq!(in_second.count(), 4_400);
    }
}
