//! All connections to one gRPC server.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use super::connection::{SendRequest, StreamPermit, UpstreamConnection};
use super::dial::Dialer;
use super::peer::GrpcPeer;
use super::settings::backoff;
use super::{ClientSettings, ConnectionChoice, ServerChannel, StreamEvent};
use crate::telemetry::metrics::ClientMetrics;
use sluice_setting::InForce;
use sluice_xds::Status;

#[derive(Debug)]
pub(super) struct PoolInner {
    dialer: Dialer,
    pub(super) peer: Arc<GrpcPeer>,
    state: Mutex<ConnectionsState>,
}

#[derive(Debug)]
struct ConnectionsState {
    /// Each belongs to its task and its streams.
    connections: Vec<Weak<UpstreamConnection>>,
    /// The number of connections so far.
    made: u64,
    /// The connecting task is running.
    connecting: bool,
    /// Streams without a connection.
    waiting: usize,
    /// The next connection is for a stream that seeks another address than this one.
    avoided: Option<SocketAddr>,
    /// Failed attempts since the last response of the server (CLI-4).
    failures_in_a_row: u32,
    /// The end of the backoff after the last failed attempt.
    retry_at: Option<Instant>,
}

impl ConnectionsState {
    /// The address that a choice does not want.
    fn apart_from(&self, choice: &ConnectionChoice) -> Option<SocketAddr> {
        let mut open = self.connections.iter().filter_map(Weak::upgrade);
        let preferred = open.find(|connection| choice.is_apart && connection.number == choice.preferred);
        preferred?.way.remote
    }
}

/// A stream that waits for a connection. The pool connects only while there are such streams.
struct Waiting<'a>(&'a PoolInner);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl PoolInner {
    pub(super) fn new(
        channel: ServerChannel,
        settings: ClientSettings,
        metrics: Arc<ClientMetrics>,
    ) -> PoolInner {
        let address = channel.address.clone();
        let peer = GrpcPeer::new(address, InForce::new(settings), metrics);
        let state = ConnectionsState {
            connections: Vec::new(),
            made: 0,
            connecting: false,
            waiting: 0,
            avoided: None,
            failures_in_a_row: 0,
            retry_at: None,
        };
        PoolInner {
            dialer: Dialer::new(channel, peer.settings.clone(), peer.metrics.clone()),
            peer: Arc::new(peer),
            state: Mutex::new(state),
        }
    }

    pub(super) fn channel(&self) -> &ServerChannel {
        self.dialer.channel()
    }

    /// Waits for a permit on a ready connection ("wait for ready"), and reports each failed attempt to
    /// connect.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        choice: &ConnectionChoice,
        events: &mpsc::Sender<StreamEvent>,
    ) -> (StreamPermit, SendRequest) {
        self.wait(choice, Some(events)).await
    }

    /// Waits until another connection has a permit for a stream that must leave its own. Failed attempts are
    /// not reported, as the stream continues meanwhile.
    pub(super) async fn replacement(self: &Arc<Self>) {
        self.wait(&ConnectionChoice::default(), None).await;
    }

    async fn wait(
        self: &Arc<Self>,
        choice: &ConnectionChoice,
        events: Option<&mpsc::Sender<StreamEvent>>,
    ) -> (StreamPermit, SendRequest) {
        self.state().waiting += 1;
        let _waiting = Waiting(self);
        let mut news = self.peer.news.subscribe();
        let mut reported = None;
        loop {
            let now = news.borrow_and_update().clone();
            if let Some(taken) = self.take(choice) {
                return taken;
            }
            let is_known = self.connect(choice);
            if let Some(events) = events
                && let Some(status) = now.failed.filter(|_| is_known)
                && reported != Some(now.failures)
            {
                reported = Some(now.failures);
                // A send error means that the handle was dropped, which aborts this task.
                let _ = events.send(StreamEvent::ConnectFailed(status)).await;
            }
            // The sender lives in the peer, so this cannot fail.
            let _ = news.changed().await;
        }
    }

    /// The server answered on a stream, so the next failure to connect counts as the first (CLI-4).
    pub(super) fn answered(&self) {
        self.state().failures_in_a_row = 0;
    }

    /// A permit on the preferred connection, or else on any that the choice allows.
    fn take(&self, choice: &ConnectionChoice) -> Option<(StreamPermit, SendRequest)> {
        let max = self.peer.settings().streams_per_connection;
        let mut state = self.state();
        let is_open = |connection: Arc<UpstreamConnection>| !connection.is_closed_to_streams();
        state.connections.retain(|connection| connection.upgrade().is_some_and(is_open));
        let apart_from = state.apart_from(choice);
        let allows = |connection: &Arc<UpstreamConnection>| {
            let is_other = !choice.is_apart || connection.number != choice.preferred;
            is_other && apart_from.is_none_or(|address| connection.way.is_apart_from(address))
        };
        let open = || state.connections.iter().filter_map(Weak::upgrade).filter(allows);
        let preferred = open().find(|connection| connection.number == choice.preferred);
        let preferred = preferred.and_then(|connection| connection.take(max));
        preferred.or_else(|| open().find_map(|connection| connection.take(max)))
    }

    /// Starts the connecting task, unless it runs. Returns whether the last failure is still current: after
    /// the end of the backoff, the attempt that begins now may succeed.
    fn connect(self: &Arc<Self>, choice: &ConnectionChoice) -> bool {
        let mut state = self.state();
        state.avoided = state.apart_from(choice).or(state.avoided);
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
            let avoided = self.state().avoided.take();
            match self.dialer.dial(avoided).await {
                Ok(dialed) => {
                    let mut state = self.state();
                    state.made += 1;
                    let connection = UpstreamConnection::start(dialed, self.peer.clone(), state.made);
                    state.connecting = false;
                    state.retry_at = None;
                    state.connections.push(Arc::downgrade(&connection));
                    drop(state);
                    self.peer.metrics.connects.inc();
                    info!(server = %self.peer.address, "connected");
                    self.peer.news.send_modify(|news| news.failed = None);
                    return;
                }
                Err(status) => self.failed(status),
            }
        }
    }

    fn failed(&self, status: Status) {
        let mut state = self.state();
        let delay = backoff(&self.peer.settings().backoff, state.failures_in_a_row, fastrand::f64());
        state.retry_at = Some(Instant::now() + delay);
        state.failures_in_a_row = state.failures_in_a_row.saturating_add(1);
        drop(state);
        self.peer.metrics.connect_failures.inc();
        // The waiting stream reports the failure to the operator, once.
        debug!(server = %self.peer.address, %status, ?delay, "cannot connect");
        self.peer.news.send_modify(|news| {
            news.failures += 1;
            news.failed = Some(status);
        });
    }

    fn state(&self) -> MutexGuard<'_, ConnectionsState> {
        self.state.lock()
    }
}
