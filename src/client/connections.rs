//! All connections to one gRPC server.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::connection::{Connection, SendRequest, StreamPermit};
use super::dial::Dialer;
use super::settings::backoff;
use super::{Channel, ClientSettings, GrpcAddress, StreamEvent};
use crate::telemetry::metrics::ClientMetrics;
use sluice_setting::{Epoch, InForce};
use sluice_xds::Status;

/// PINGs for round trips that may follow each other while the server writes nothing. grpc-go closes a
/// connection at the third PING that comes too early (gRFC A8); the PING of the interval may come between.
const ROUND_PINGS: u32 = 2;

#[derive(Debug)]
pub(super) struct PoolInner {
    dialer: Dialer,
    settings: InForce<ClientSettings>,
    metrics: Arc<ClientMetrics>,
    state: Mutex<ConnectionsState>,
    news: watch::Sender<ConnectionNews>,
}

#[derive(Debug)]
struct ConnectionsState {
    connections: Vec<Arc<Connection>>,
    /// The connecting task is running.
    connecting: bool,
    /// Streams without a connection.
    waiting: usize,
    /// Failed attempts since the last response of the server (CLI-4).
    failures_in_a_row: u32,
    /// The end of the backoff after the last failed attempt.
    retry_at: Option<Instant>,
    /// Multiplies the interval of PINGs; doubles when the server says `too_many_pings` to such a PING (FU32).
    ping_factor: u32,
    /// See [`ROUND_PINGS`]. One less when the server says `too_many_pings` to the PING of a round trip.
    round_pings: u32,
}

/// Changes whenever waiting streams should check again.
#[derive(Clone, Debug, Default)]
struct ConnectionNews {
    /// The number of failed attempts.
    failures: u64,
    /// The failure of the last attempt.
    failed: Option<Status>,
}

/// A stream that waits for a connection. The pool connects only while there are such streams.
struct Waiting<'a>(&'a PoolInner);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl PoolInner {
    pub(super) fn new(channel: Channel, settings: ClientSettings, metrics: Arc<ClientMetrics>) -> PoolInner {
        let settings = InForce::new(settings);
        let state = ConnectionsState {
            connections: Vec::new(),
            connecting: false,
            waiting: 0,
            failures_in_a_row: 0,
            retry_at: None,
            ping_factor: 1,
            round_pings: ROUND_PINGS,
        };
        PoolInner {
            dialer: Dialer::new(channel, settings.clone(), metrics.clone()),
            settings,
            metrics,
            state: Mutex::new(state),
            news: watch::Sender::new(ConnectionNews::default()),
        }
    }

    /// The settings in force, for the next connection, stream, message or timer. A connection keeps its
    /// windows and socket options.
    pub(super) fn settings(&self) -> Guard<Arc<Epoch<ClientSettings>>> {
        self.settings.get()
    }

    pub(super) fn in_force(&self) -> InForce<ClientSettings> {
        self.settings.clone()
    }

    pub(super) fn configure(&self, settings: ClientSettings) {
        self.settings.publish(settings);
        self.news();
    }

    pub(super) fn metrics(&self) -> &Arc<ClientMetrics> {
        &self.metrics
    }

    pub(super) fn channel(&self) -> &Channel {
        self.dialer.channel()
    }

    pub(super) fn address(&self) -> &GrpcAddress {
        &self.channel().address
    }

    pub(super) fn ping_interval(&self) -> Duration {
        self.settings().ping_interval.saturating_mul(self.state().ping_factor)
    }

    /// The PINGs for round trips that the server bears without DATA or HEADERS between.
    pub(super) fn round_pings(&self) -> u32 {
        self.state().round_pings
    }

    /// Waits for a permit on a ready connection ("wait for ready"), and reports each failed attempt to
    /// connect.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        events: &mpsc::Sender<StreamEvent>,
    ) -> (StreamPermit, SendRequest) {
        self.wait(Some(events)).await
    }

    /// Waits until another connection has a permit for a stream that must leave its own. Failed attempts are
    /// not reported, as the stream continues meanwhile.
    pub(super) async fn replacement(self: &Arc<Self>) {
        self.wait(None).await;
    }

    async fn wait(
        self: &Arc<Self>,
        events: Option<&mpsc::Sender<StreamEvent>>,
    ) -> (StreamPermit, SendRequest) {
        self.state().waiting += 1;
        let _waiting = Waiting(self);
        let mut news = self.news.subscribe();
        let mut reported = None;
        loop {
            let now = news.borrow_and_update().clone();
            if let Some(taken) = self.take() {
                return taken;
            }
            let is_known = self.connect();
            if let Some(events) = events
                && let Some(status) = now.failed.filter(|_| is_known)
                && reported != Some(now.failures)
            {
                reported = Some(now.failures);
                // A send error means that the handle was dropped, which aborts this task.
                let _ = events.send(StreamEvent::ConnectFailed(status)).await;
            }
            // The sender lives in `self`, so this cannot fail.
            let _ = news.changed().await;
        }
    }

    /// The server answered on a stream, so the next failure to connect counts as the first (CLI-4).
    pub(super) fn answered(&self) {
        self.state().failures_in_a_row = 0;
    }

    /// The server considers our PINGs too frequent (FU32). Only the kind of the last PING becomes less
    /// frequent: `is_for_round`, or that of the interval.
    pub(super) fn too_many_pings(&self, is_for_round: bool) {
        self.metrics.too_many_pings.inc();
        let mut state = self.state();
        if is_for_round {
            state.round_pings = state.round_pings.saturating_sub(1);
        } else {
            state.ping_factor = state.ping_factor.saturating_mul(2);
        }
        let round_pings = state.round_pings;
        drop(state);
        let interval = self.ping_interval();
        warn!(server = %self.address(), ?interval, round_pings,
            "the server said too_many_pings; PINGs become less frequent");
    }

    /// Makes all waiting streams check again.
    pub(super) fn news(&self) {
        self.news.send_modify(|_| ());
    }

    /// Removes a closed connection. Pool and connection refer to each other, so this breaks the cycle.
    pub(super) fn forget(&self, gone: &Arc<Connection>) {
        self.state().connections.retain(|connection| !Arc::ptr_eq(connection, gone));
        self.news();
    }

    fn take(&self) -> Option<(StreamPermit, SendRequest)> {
        let max = self.settings().streams_per_connection;
        let mut state = self.state();
        state.connections.retain(|connection| !connection.is_closed_to_streams());
        state.connections.iter().find_map(|connection| connection.take(max))
    }

    /// Starts the connecting task, unless it runs. Returns whether the last failure is still current: after
    /// the end of the backoff, the attempt that begins now may succeed.
    fn connect(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        if state.connecting {
            return true;
        }
        state.connecting = true;
        tokio::spawn(self.clone().keep_connecting());
        state.retry_at.is_some_and(|at| at > Instant::now())
    }

    /// Tries until there is one more connection, or no stream waits.
    async fn keep_connecting(self: Arc<Self>) {
        loop {
            let retry_at = self.state().retry_at;
            if let Some(retry_at) = retry_at {
                sleep_until(retry_at).await;
            }
            {
                let mut state = self.state();
                if state.waiting == 0 {
                    state.connecting = false;
                    return;
                }
            }
            match self.dialer.dial().await {
                Ok(dialed) => {
                    let connection = Connection::start(dialed, self.clone());
                    let mut state = self.state();
                    state.connecting = false;
                    state.retry_at = None;
                    state.connections.push(connection);
                    drop(state);
                    self.metrics.connects.inc();
                    info!(server = %self.address(), "connected");
                    self.news.send_modify(|news| news.failed = None);
                    return;
                }
                Err(status) => self.failed(status),
            }
        }
    }

    fn failed(&self, status: Status) {
        let mut state = self.state();
        let delay = backoff(&self.settings().backoff, state.failures_in_a_row, fastrand::f64());
        state.retry_at = Some(Instant::now() + delay);
        state.failures_in_a_row = state.failures_in_a_row.saturating_add(1);
        drop(state);
        self.metrics.connect_failures.inc();
        // The waiting stream reports the failure to the operator, once.
        debug!(server = %self.address(), %status, ?delay, "cannot connect");
        self.news.send_modify(|news| {
            news.failures += 1;
            news.failed = Some(status);
        });
    }

    fn state(&self) -> MutexGuard<'_, ConnectionsState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fu32_rel_5_too_many_pings_doubles_the_interval_each_time() {
        let address = GrpcAddress::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        let pool = PoolInner::new(
            Channel::plaintext(address),
            ClientSettings::default(),
            Arc::new(ClientMetrics::default()),
        );
        assert_eq!(pool.ping_interval(), Duration::from_secs(300));
        for seconds in [600, 1200] {
            pool.too_many_pings(false);
            assert_eq!((pool.ping_interval(), pool.round_pings()), (Duration::from_secs(seconds), 2));
        }
        for round_pings in [1, 0, 0] {
            pool.too_many_pings(true);
            assert_eq!((pool.ping_interval(), pool.round_pings()), (Duration::from_secs(1200), round_pings));
        }
        pool.configure(ClientSettings {
            ping_interval: Duration::from_secs(60),
            ..ClientSettings::default()
        });
        assert_eq!(
            pool.ping_interval(),
            Duration::from_secs(240),
            "the server's wish stays with its connections"
        );
    }
}
