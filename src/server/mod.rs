//! Downstream I/O: listeners, limits, and gRPC streams over HTTP/2.
//!
//! Owns sockets, HTTP/2 connections and gRPC framing. The server hands decoded requests to [`OpenStreams`]
//! and takes finished messages from the relay; state machines, caches and upstreams are unknown here. In
//! reading order:
//!
//! - [`limits`]: every limit with its cost.
//! - [`listener`], `passage`, `gate`, `accept`: bound sockets, their way to a successor of the process,
//!   admission, and the accept loop.
//! - `socket`, `handshake`: the socket below TLS, and TLS with its bounds. `warnings`: warnings about peers,
//!   spaced out.
//! - `doorway`: connections for a server of another kind.
//! - [`listening`]: the listeners in service, opened and closed while the server runs.
//! - `crowd`: connections that begin or end in thousands. `emptying`: the end of connections: of all with the
//!   process or by an operator, of one listener with the listener.
//! - `transport`, `authority`, `cut`, `meter`, `heard`, `lingering`: the bytes of a connection, and its
//!   orderly close. `connection`: its life from the first byte to the last, with deadlines, age and GOAWAY.
//!   `endings`: the moments at which its streams end. `http2`: all calls of a connection, in the single task
//!   of the connection. `wakes`: the parts of the task that were woken.
//! - `service`: from a path to an answer. `unary`: REST and `Fetch*`. `load_reports`: streams of load
//!   reports. `call`, `reader`: the two directions of a stream. `body`: bodies of requests and responses.
//!   `streams`: the open streams of a connection, so that the connection can end them. `unfinished`: what all
//!   connections together may begin and not end. `status`: gRPC statuses as headers.
//!
//! The server has no queue of responses: a message is built when HTTP/2 can take the message (FLW-2), and
//! requests are read even if responses are blocked (FLW-3).

mod accept;
mod authority;
mod body;
mod call;
mod connection;
mod crowd;
mod doorway;
mod emptying;
mod endings;
mod gate;
mod handshake;
mod heard;
mod http;
mod http1;
mod http2;
mod lingering;
mod load_reports;
mod passage;
pub mod limits;
pub mod listener;
pub mod listening;
mod reader;
mod service;
mod socket;
mod unary;
mod status;
mod streams;
mod cut;
mod meter;
mod transport;
mod turn;
mod unfinished;
mod wakes;
mod warnings;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::timeout;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthReporter;

pub use doorway::{Doorway, DoorwaySecurity, Duplex, Visitor};
pub use limits::ServerLimits;
pub use listener::{Listener, ListenerOptions, LoadReports};
pub use passage::Passage;

use crate::driver::api::downstream::OpenStreams;
use crate::driver::api::emptying::Emptying;
use crate::telemetry::metrics::DownstreamMetrics;
use crowd::Exit;
use emptying::Emptier;
use handshake::Handshakes;
use listening::Listening;
use sluice_setting::InForce;
use unfinished::Unfinished;

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
    listening: Listening<R>,
    health: HealthReporter,
}

/// State shared by all connections.
struct Shared<R> {
    relay: Arc<R>,
    limits: InForce<ServerLimits>,
    metrics: Arc<DownstreamMetrics>,
    handshakes: Handshakes,
    exit: Exit,
    unfinished: Arc<Unfinished>,
    health_service: HealthService,
    once: OnceWarnings,
}

/// The warnings that a process gives once.
#[derive(Default)]
struct OnceWarnings {
    /// There is no health discovery (HDS).
    health_discovery: AtomicBool,
}

impl<R: OpenStreams> Server<R> {
    pub fn new(relay: Arc<R>, limits: ServerLimits, metrics: Arc<DownstreamMetrics>) -> Self {
        let health = HealthReporter::new();
        let service = tonic_health::server::HealthService::from_health_reporter(health.clone());
        let health_service = HealthServer::new(service).max_decoding_message_size(HEALTH_REQUEST_BYTES_MAX);
        let limits = InForce::new(limits);
        let handshakes = Handshakes::new(limits.clone(), metrics.tls.clone());
        let emptier = Emptier::new(limits.clone(), metrics.clone());
        let exit = Exit::default();
        let budget_of = relay.clone();
        let unfinished = Unfinished::new(limits.clone(), metrics.clone(), move || budget_of.memory_budget());
        let shared = Shared {
            relay,
            limits,
            metrics,
            handshakes,
            exit,
            unfinished,
            health_service,
            once: OnceWarnings::default(),
        };
        let shared = Arc::new(shared);
        let listening = Listening::new(shared.clone(), emptier.clone());
        Server { shared, emptier, listening, health }
    }

    /// The limits in force. Listeners, connections and streams read them where they need them, and whoever
    /// holds this handle may publish others.
    pub fn limits(&self) -> InForce<ServerLimits> {
        self.shared.limits.clone()
    }

    /// The listeners in service, for changes while the server runs.
    pub fn listening(&self) -> Listening<R> {
        self.listening.clone()
    }

    /// An operator's way to empty the relay.
    pub fn emptying(&self) -> Arc<dyn Emptying> {
        self.emptier.clone()
    }

    /// Serves until `shutdown`, then drains. Resolves when every connection is closed, `drain_window` later
    /// at the latest. Dropping the future drains too, but does not wait.
    ///
    /// Never fails: an error of a peer ends its stream or connection, and an error of the kernel is retried.
    pub async fn serve(self, listeners: Vec<Listener>, shutdown: impl Future<Output = ()>) {
        let _drain_on_drop = DrainOnDrop(self.emptier.clone());
        let _close_on_drop = CloseOnDrop(self.listening.clone());

        self.report(ServingStatus::Serving).await;
        for listener in listeners {
            self.listening.open(listener);
        }
        tokio::select! {
            () = shutdown => {}
            () = self.report_emptying() => {}
        }

        // Report to health watchers, and accept no more connections.
        self.report(ServingStatus::NotServing).await;
        self.listening.end().await;

        // Every connection sends GOAWAY, ends its streams over the window, and is cut at the end of the
        // window (RLY-77).
        self.emptier.end();
        let connections = self.listening.connections();
        connections.close();
        // A connection that hangs must not keep the process from its exit.
        if timeout(self.shared.limits.get().drain_window + CUT_MARGIN, connections.wait()).await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "connections were still open after the drain window"
            );
        }
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

/// Accepts no more when the server ends, for any reason.
struct CloseOnDrop<R: OpenStreams>(Listening<R>);

impl<R: OpenStreams> Drop for CloseOnDrop<R> {
    fn drop(&mut self) {
        self.0.cut_off();
    }
}

/// Drains the connections when the server ends, for any reason.
struct DrainOnDrop(Arc<Emptier>);

impl Drop for DrainOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
