//! The accept loop: one per listener, never spinning, never giving up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::gate::{ConnectionPermit, Gate};
use super::listener::{Accepted, Listener};
use crate::telemetry::metrics::DownstreamMetrics;

/// The first pause after `accept` failed for want of a resource; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// At most one WARN of a kind in this time.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts until `stop`, giving each connection that finds a place to `serve`.
pub(super) async fn accept_loop(
    listener: Listener,
    gate: Arc<Gate>,
    metrics: Arc<DownstreamMetrics>,
    stop: CancellationToken,
    serve: impl Fn(Accepted, ConnectionPermit),
) {
    let mut failures = 0;
    let mut warnings = Warnings::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(connection) => {
                failures = 0;
                match gate.enter(connection.address()) {
                    Ok(permit) => serve(connection, permit),
                    Err(limit) => {
                        drop(connection);
                        if let Some(suppressed) = warnings.due(Instant::now()) {
                            tracing::warn!(
                                listener = %listener.name(), limit = limit.name(), suppressed,
                                "connection refused: the limit is reached"
                            );
                        }
                    }
                }
            }
            Err(error) => {
                let Some(pause) = pause_after(&error, failures) else { continue };
                failures += 1;
                metrics.accept_failures.inc();
                if let Some(suppressed) = warnings.due(Instant::now()) {
                    tracing::warn!(listener = %listener.name(), %error, suppressed, "accept failed; backing off");
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep(pause) => {}
                }
            }
        }
    }
}

/// How long to wait after `accept` failed, `failures` times in a row before; `None`: not at all.
///
/// Linux reports errors of the connection that was about to be accepted; each takes one off the queue, so going on
/// at once can't spin. Everything else (EMFILE, ENFILE, ENOBUFS, ENOMEM, and what nobody thought of) leaves the queue
/// as it is and would fail again at once.
fn pause_after(error: &io::Error, failures: u32) -> Option<Duration> {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable,
    };
    match error.kind() {
        ConnectionAborted | ConnectionRefused | ConnectionReset | HostUnreachable | Interrupted
        | NetworkDown | NetworkUnreachable => None,
        _ => Some(BACKOFF_MIN.saturating_mul(1 << failures.min(10)).min(BACKOFF_MAX)),
    }
}

/// Spaces warnings out and counts those left out.
#[derive(Default)]
struct Warnings {
    last: Option<Instant>,
    suppressed: u64,
}

impl Warnings {
    /// `Some` if one is due now, with the number of those suppressed since the last.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now < last + WARN_INTERVAL) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fd21_a_lack_of_resources_backs_off_and_a_dead_connection_does_not() {
        const EMFILE: i32 = 24;
        const ENOBUFS: i32 = 105;
        const ECONNABORTED: i32 = 103;
        const EPROTO: i32 = 71;
        let pause = |code, failures| pause_after(&io::Error::from_raw_os_error(code), failures);
        assert_eq!(pause(ECONNABORTED, 0), None);
        for code in [EMFILE, ENOBUFS, EPROTO] {
            assert_eq!(pause(code, 0), Some(BACKOFF_MIN));
            assert_eq!(pause(code, 1), Some(BACKOFF_MIN * 2));
            assert_eq!(pause(code, u32::MAX), Some(BACKOFF_MAX));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn warnings_are_spaced_out_and_counted() {
        let (mut warnings, start) = (Warnings::default(), Instant::now());
        assert_eq!(warnings.due(start), Some(0));
        assert_eq!(warnings.due(start), None);
        assert_eq!(warnings.due(start + WARN_INTERVAL / 2), None);
        assert_eq!(warnings.due(start + WARN_INTERVAL), Some(2));
    }
}
