//! The accept loop. Each listener has a loop on a thread of its own; the loop never spins and never gives up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::gate::{ConnectionPermit, Gate};
use super::listener::Listener;
use super::passage::Accepted;
use crate::telemetry::Warnings;
use crate::telemetry::metrics::DownstreamMetrics;

/// The first pause after `accept` failed for lack of a resource. Each failure in a row doubles the pause, up
/// to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// At most one warning of a kind per interval.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts until `stop`, and hands each admitted connection to `serve`, which runs within the caller's
/// runtime. Returns the listener at the end.
///
/// The loop has a thread of its own. A task would queue behind thousands of new connections, and the kernel
/// would refuse further clients meanwhile, each for a second or more.
pub(super) fn spawn(
    listener: Listener,
    gate: Arc<Gate>,
    metrics: Arc<DownstreamMetrics>,
    stop: CancellationToken,
    serve: impl Fn(Accepted, ConnectionPermit) + Send + 'static,
) -> JoinHandle<Listener> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(accept_loop(listener, gate, metrics, stop, serve)))
}

async fn accept_loop(
    listener: Listener,
    gate: Arc<Gate>,
    metrics: Arc<DownstreamMetrics>,
    stop: CancellationToken,
    serve: impl Fn(Accepted, ConnectionPermit),
) -> Listener {
    let mut failures = 0;
    let mut warnings = Warnings::new(WARN_INTERVAL);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return listener,
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
                    () = stop.cancelled() => return listener,
                    () = sleep(pause) => {}
                }
            }
        }
    }
}

/// The pause after `accept` failed; `failures` counts the failures in a row before. `None` means no pause.
///
/// Linux reports errors of the connection at the head of the queue. Each such error takes a connection off
/// the queue, so an immediate retry can't spin. All other errors (EMFILE, ENFILE, ENOBUFS, ENOMEM and unknown
/// errors) leave the queue as before, and an immediate retry would fail again.
pub(super) fn pause_after(error: &io::Error, failures: u32) -> Option<Duration> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::server::ServerLimits;
    use sluice_setting::InForce;

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

    /// 2,000 tasks that take a millisecond each, in turn: a task in the same queue waits for seconds.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "the test has to block the worker"
    )]
    async fn connections_are_accepted_beside_a_storm() {
        const CLIENTS: usize = 300;
        let stop = CancellationToken::new();
        for _ in 0..2_000 {
            let stop = stop.clone();
            tokio::spawn(async move {
                while !stop.is_cancelled() {
                    std::thread::sleep(Duration::from_millis(1));
                    tokio::task::yield_now().await;
                }
            });
        }
        let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let metrics = Arc::new(DownstreamMetrics::default());
        let gate = Gate::new(InForce::new(ServerLimits::default()), metrics.clone(), || false);
        let (send, accepted) = mpsc::channel();
        let accepting = spawn(listener, gate, metrics, stop.clone(), move |connection, permit| {
            let _ = send.send((connection, permit));
        });
        let clients: Vec<_> = (0..CLIENTS).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let served = clients.iter().filter(|_| accepted.recv_timeout(Duration::from_secs(1)).is_ok()).count();
        stop.cancel();
        assert_eq!(served, CLIENTS);
        accepting.await.unwrap();
    }
}
