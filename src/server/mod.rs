//! Downstream I/O: listeners, limits, and gRPC streams over HTTP/2.
//!
//! Owns sockets, HTTP/2 connections and gRPC framing. The server hands decoded requests to [`OpenStreams`] and takes
//! finished messages from the relay; state machines, caches and upstreams are unknown here. In reading order:
//!
//! - [`limits`]: every limit with its cost.
//! - [`listener`], `gate`, `accept`: bound sockets, admission, and the accept loop.
//! - `socket`, `handshake`: the socket below TLS, and TLS with its bounds. `warnings`: warnings about peers, spaced out.
//! - `doorway`: connections for a server of another kind.
//! - `emptying`: the end of all connections, with the process or by an operator.
//! - `transport`, `cut`, `meter`: the bytes of a connection. `connection`: its life from the first byte to the last,
//!   with deadlines, age and GOAWAY. `http2`: all calls of a connection, in the single task of the connection. `wakes`:
//!   the parts of the task that were woken.
//! - `service`: from a path to an answer. `unary`: REST and `Fetch*`. `load_reports`: streams whose content is dropped.
//!   `call`, `reader`: the two directions of a stream. `body`: bodies of requests and responses. `streams`: the open
//!   streams of a connection, so that the connection can end them. `status`: gRPC statuses as headers.
//!
//! The server has no queue of responses: a message is built when HTTP/2 can take the message (FLW-2), and requests are
//! read even if responses are blocked (FLW-3).

mod accept;
mod body;
mod call;
mod connection;
mod doorway;
mod emptying;
mod gate;
mod handshake;
mod http2;
mod load_reports;
pub mod limits;
pub mod listener;
mod reader;
mod service;
mod socket;
mod unary;
mod status;
mod streams;
mod cut;
mod meter;
mod transport;
mod wakes;
mod warnings;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthReporter;

pub use doorway::{Doorway, Duplex, Visitor};
pub use limits::ServerLimits;
pub use listener::{Listener, ListenerOptions, LoadReports};

use crate::driver::api::downstream::{ConnectionCut, OpenStreams, Peer};
use crate::driver::api::emptying::Emptying;
use crate::identity::Identity;
use crate::setting::InForce;
use crate::telemetry::metrics::DownstreamMetrics;
use emptying::Emptier;
use gate::{ConnectionPermit, Gate};
use handshake::Handshakes;
use listener::Accepted;
use socket::Plain;

type HealthService = HealthServer<tonic_health::server::HealthService>;

/// The names with a health status: the whole server, and ADS.
const HEALTH_NAMES: [&str; 2] = ["", "envoy.service.discovery.v3.AggregatedDiscoveryService"];

/// The time by which the last cut of a drain may be late: a second of a busy host.
const CUT_MARGIN: Duration = Duration::from_secs(1);

/// A health request is a service name; 1 KiB is plenty.
const HEALTH_REQUEST_BYTES_MAX: usize = 1024;

/// The xDS server in front of [`OpenStreams`].
pub struct Server<R: OpenStreams> {
    shared: Arc<Shared<R>>,
    emptier: Arc<Emptier>,
    health: HealthReporter,
}

/// State shared by all connections.
struct Shared<R> {
    relay: Arc<R>,
    limits: InForce<ServerLimits>,
    metrics: Arc<DownstreamMetrics>,
    handshakes: Handshakes,
    health_service: HealthService,
    /// True after the warning about dropped load reports.
    load_reports_told: AtomicBool,
}

impl<R: OpenStreams> Server<R> {
    pub fn new(relay: Arc<R>, limits: ServerLimits, metrics: Arc<DownstreamMetrics>) -> Self {
        let health = HealthReporter::new();
        let service = tonic_health::server::HealthService::from_health_reporter(health.clone());
        let health_service = HealthServer::new(service).max_decoding_message_size(HEALTH_REQUEST_BYTES_MAX);
        let load_reports_told = AtomicBool::new(false);
        let limits = InForce::new(limits);
        let handshakes = Handshakes::new(limits.clone(), metrics.tls.clone());
        let emptier = Emptier::new(limits.clone(), metrics.clone());
        let shared = Shared { relay, limits, metrics, handshakes, health_service, load_reports_told };
        Server { shared: Arc::new(shared), emptier, health }
    }

    /// The limits in force. Listeners, connections and streams read them where they need them, and whoever holds this
    /// handle may publish others.
    pub fn limits(&self) -> InForce<ServerLimits> {
        self.shared.limits.clone()
    }

    /// An operator's way to empty the relay.
    pub fn emptying(&self) -> Arc<dyn Emptying> {
        self.emptier.clone()
    }

    /// Serves until `shutdown`, then drains. Resolves when every connection is closed, `drain_window` later at the
    /// latest. Dropping the future drains too, but does not wait.
    ///
    /// Never fails: an error of a peer ends its stream or connection, and an error of the kernel is retried.
    pub async fn serve(self, listeners: Vec<Listener>, shutdown: impl Future<Output = ()>) {
        let stop = CancellationToken::new();
        let _stop_on_drop = stop.clone().drop_guard();
        let _drain_on_drop = DrainOnDrop(self.emptier.clone());
        let (acceptors, connections) = (TaskTracker::new(), TaskTracker::new());

        self.report(ServingStatus::Serving).await;
        let gate = {
            let relay = self.shared.relay.clone();
            let is_out_of_memory = move || relay.is_out_of_memory();
            Gate::new(self.shared.limits.clone(), self.shared.metrics.clone(), is_out_of_memory)
        };
        for listener in listeners {
            self.accept_on(listener, &gate, &acceptors, &stop, &connections);
        }
        tokio::select! {
            () = shutdown => {}
            () = self.report_emptying() => {}
        }

        // Report to health watchers, and accept no more connections. Sockets close and socket files are removed here.
        self.report(ServingStatus::NotServing).await;
        stop.cancel();
        acceptors.close();
        acceptors.wait().await;

        // Every connection sends GOAWAY, ends its streams over the window, and is cut at the end of the window
        // (RLY-77).
        self.emptier.end();
        connections.close();
        // A connection that hangs must not keep the process from its exit.
        if timeout(self.shared.limits.get().drain_window + CUT_MARGIN, connections.wait()).await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "connections were still open after the drain window"
            );
        }
    }

    fn accept_on(
        &self,
        listener: Listener,
        gate: &Arc<Gate>,
        acceptors: &TaskTracker,
        stop: &CancellationToken,
        connections: &TaskTracker,
    ) {
        let (name, options, shared) = (listener.name().clone(), listener.options(), self.shared.clone());
        let (connections, emptier) = (connections.clone(), self.emptier.clone());
        let security = listener.security();
        let anonymous = Arc::new(Identity::Anonymous);
        let serve = move |accepted: Accepted, permit: ConnectionPermit| {
            let Some(departure) = emptier.departure() else {
                // Closed at once, so that the client turns to another relay (HND-9).
                shared.metrics.closed_draining.inc();
                return;
            };
            let address = accepted.address();
            let identity = accepted.user().map_or_else(|| anonymous.clone(), Arc::new);
            let socket = match accepted {
                Accepted::Tcp(stream, _) => Plain::Tcp(stream),
                Accepted::Unix(stream) => Plain::Unix(stream),
            };
            let peer = Peer {
                listener: name.clone(),
                address,
                identity,
                connection: ConnectionCut::with_budget(shared.limits.get().connection_bytes),
                when_unavailable: options.get().when_unavailable,
            };
            shared.relay.connected(&peer.connection);
            connections.spawn(connection::run(
                socket,
                security.clone(),
                peer,
                options.clone(),
                shared.clone(),
                departure,
                permit,
            ));
        };
        accept::spawn(acceptors, listener, gate.clone(), self.shared.metrics.clone(), stop.clone(), serve);
    }

    /// Tells health watchers of drains. Never ends.
    async fn report_emptying(&self) {
        let mut emptying = self.emptier.watch();
        while emptying.changed().await.is_ok() {
            let is_emptying = *emptying.borrow_and_update();
            let status = if is_emptying { ServingStatus::NotServing } else { ServingStatus::Serving };
            self.report(status).await;
        }
    }

    async fn report(&self, status: ServingStatus) {
        for name in HEALTH_NAMES {
            self.health.set_service_status(name, status).await;
        }
    }
}

/// Drains the connections when the server ends, for any reason.
struct DrainOnDrop(Arc<Emptier>);

impl Drop for DrainOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
