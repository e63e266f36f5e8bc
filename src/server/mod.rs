//! Downstream I/O: listeners, limits, and gRPC streams over HTTP/2.
//!
//! Owns sockets, HTTP/2 connections and gRPC framing. It hands decoded requests to a [`Relay`] and takes finished
//! messages out of it; it knows no machine, no cache and no upstream. In reading order:
//!
//! - [`limits`], [`metrics`]: every limit with its price, everything that is counted.
//! - [`listener`], `accept`: bound sockets, and the loop that accepts.
//! - `transport`, `connection`: one connection from its first byte to its last, with its deadlines, its age and its
//!   GOAWAY.
//! - `service`: from a path to what answers it. `reader`, `body`: the two directions of a stream. `streams`: those of
//!   a connection, so that they can be ended. `status`: gRPC statuses as headers.
//!
//! Nothing here queues responses: a message is built when HTTP/2 can take it (FLW-2), and requests are read by a
//! task of their own (FLW-3).

mod accept;
mod body;
mod connection;
pub mod limits;
pub mod listener;
pub mod metrics;
mod reader;
mod service;
mod status;
mod streams;
mod transport;

use std::future::Future;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthReporter;

pub use limits::ServerLimits;
pub use listener::{BoundSocket, Listener};
pub use metrics::ServerMetrics;

use crate::driver::handle::{Peer, Relay};
use accept::{ConnectionPermit, accept_loop, connections_max};
use listener::Accepted;
use transport::Socket;

type HealthService = HealthServer<tonic_health::server::HealthService>;

/// The names whose health is reported: of the whole server, and of ADS.
const HEALTH_NAMES: [&str; 2] = ["", "envoy.service.discovery.v3.AggregatedDiscoveryService"];

/// A health request is a service name; 1 KiB is plenty.
const HEALTH_REQUEST_BYTES_MAX: usize = 1024;

/// The xDS server of a [`Relay`].
pub struct Server<R: Relay> {
    shared: Arc<Shared<R>>,
    health: HealthReporter,
}

/// What all connections use.
struct Shared<R> {
    relay: Arc<R>,
    limits: ServerLimits,
    metrics: Arc<ServerMetrics>,
    health_service: HealthService,
}

impl<R: Relay> Server<R> {
    pub fn new(relay: Arc<R>, limits: ServerLimits) -> Self {
        let health = HealthReporter::new();
        let service = tonic_health::server::HealthService::from_health_reporter(health.clone());
        let health_service = HealthServer::new(service).max_decoding_message_size(HEALTH_REQUEST_BYTES_MAX);
        let metrics = Arc::new(ServerMetrics::default());
        Server { shared: Arc::new(Shared { relay, limits, metrics, health_service }), health }
    }

    pub fn metrics(&self) -> Arc<ServerMetrics> {
        self.shared.metrics.clone()
    }

    /// What `grpc.health.v1.Health` answers. [`Server::serve`] reports SERVING when it begins and NOT_SERVING when it
    /// drains; whoever knows better may report in between.
    pub fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Serves until `shutdown`, then drains; resolves when every connection is gone, at the latest
    /// `drain_window` later. Dropping the future drains too, without anybody waiting.
    ///
    /// Never fails: what a peer does ends its stream or its connection, and what the kernel refuses is tried again.
    pub async fn serve(self, listeners: Vec<Listener>, shutdown: impl Future<Output = ()>) {
        let (stop, draining) = (CancellationToken::new(), CancellationToken::new());
        let _stop_on_drop = stop.clone().drop_guard();
        let _drain_on_drop = draining.clone().drop_guard();
        let (acceptors, connections) = (TaskTracker::new(), TaskTracker::new());

        // Accept and serve.
        self.report(ServingStatus::Serving).await;
        for listener in listeners {
            self.accept_on(listener, &acceptors, &stop, &connections, &draining);
        }
        shutdown.await;

        // Tell those who watch, and let nobody in any more. Sockets close and socket files go here.
        self.report(ServingStatus::NotServing).await;
        stop.cancel();
        acceptors.close();
        acceptors.wait().await;

        // Every connection sends GOAWAY, ends its streams over the window and is cut at its end (RLY-77).
        draining.cancel();
        connections.close();
        connections.wait().await;
    }

    fn accept_on(
        &self,
        listener: Listener,
        acceptors: &TaskTracker,
        stop: &CancellationToken,
        connections: &TaskTracker,
        draining: &CancellationToken,
    ) {
        let (name, shared) = (listener.name().clone(), self.shared.clone());
        let (connections, draining) = (connections.clone(), draining.clone());
        let serve = move |accepted, permit: ConnectionPermit| {
            let (socket, address) = match accepted {
                Accepted::Tcp(stream, address) => (Socket::Tcp(stream), Some(address)),
                Accepted::Unix(stream) => (Socket::Unix(stream), None),
            };
            let peer = Peer { listener: name.clone(), address };
            connections.spawn(connection::run(socket, peer, shared.clone(), draining.clone(), permit));
        };
        let limits = &self.shared.limits;
        let max = connections_max(limits.connections_max, limits.fd_reserve);
        acceptors.spawn(accept_loop(listener, max, self.shared.metrics.clone(), stop.clone(), serve));
    }

    async fn report(&self, status: ServingStatus) {
        for name in HEALTH_NAMES {
            self.health.set_service_status(name, status).await;
        }
    }
}
