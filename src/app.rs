//! Builds all of it, in one visible order; stops it in the reverse one.
//!
//! Logging, then the limit of open files, then what is on disk, then sockets, then readiness. At the end: readiness off,
//! no new connections, streams drained, the admin last.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::admin::{Admin, Readiness, State};
use crate::client::{self, GrpcAddress, Pool};
use crate::config::{
    self, Address, ApiType, Backoff, Config, Endpoint, GrpcServer, Limits, LogFormat, RestServer, ServerKind,
    ServerList, UpstreamServer, WildcardForm,
};
use crate::driver::handle::WhenUnavailable;
use crate::driver::servers::{Attach, Server as Upstream, ServerLists};
use crate::driver::{Hub, Settings};
use crate::engine::fallback::Policy;
use crate::engine::{downstream, source, upstream};
use crate::server::{self, BoundSocket, Server, ServerLimits};
use crate::telemetry::metrics::ClientMetrics;
use crate::telemetry::{Metrics, logging, resident_bytes};
use crate::wire::deframe::ReaderLimits;
use crate::xds::Variant;

/// Runs the relay until SIGTERM or SIGINT, and drains.
pub fn serve(config: Config) -> Result<()> {
    let metrics = Arc::new(Metrics::new());
    let format = match config.log.format {
        LogFormat::Text => logging::Format::Text,
        LogFormat::Json => logging::Format::Json,
    };
    let _guard = logging::init(format, &config.log.level, &metrics.log).context("log")?;
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("runtime")?;
    runtime.block_on(run(config, metrics))
}

/// Connections cost a file descriptor each: the soft limit is raised to the hard one.
fn raise_open_files() {
    let before = rlimit::Resource::NOFILE.get_soft().unwrap_or_default();
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) if limit > before => info!(before, limit, "the limit of open files was raised"),
        Ok(limit) => debug!(limit, "limit of open files"),
        Err(error) => warn!(limit = before, %error, "the limit of open files cannot be raised"),
    }
}

async fn run(config: Config, metrics: Arc<Metrics>) -> Result<()> {
    let readiness = Arc::new(Readiness::new(config.admin.ready_requires_upstream));
    let hub = Hub::new(hub_settings(&config, &metrics), metrics.clone());
    // Only a directory has something to load: what is wrong with it is the host's, as with sockets.
    if let Err((uri, status)) = hub.load().await {
        return Err(io::Error::other(status.message)).context(uri);
    }

    let listeners = config
        .listeners
        .iter()
        .map(|listener| {
            let options = server::ListenerOptions {
                v2: listener.v2,
                rest_hold: listener.rest_hold,
                when_unavailable: match listener.when_unavailable {
                    config::WhenUnavailable::Hold => WhenUnavailable::Hold,
                    config::WhenUnavailable::Fail => WhenUnavailable::Fail,
                },
            };
            bind(&listener.name, &listener.address).map(|bound| bound.with(options))
        })
        .collect::<Result<_>>()?;
    let admin_socket = bind("admin", &config.admin.address)?.into_socket();
    let limits = server_limits(&config.limits, config.drain);
    let server = Server::new(Arc::new(hub.clone()), limits, metrics.downstream.clone());

    let stop_admin = CancellationToken::new();
    let memory = config.limits.memory_bytes.map(|budget| hold_to_memory(hub.clone(), budget)).transpose()?;
    let admin = tokio::spawn(serve_admin(admin_socket, hub, readiness.clone(), metrics, stop_admin.clone()));
    readiness.advance(State::Ready);
    announce(&config);

    let draining = readiness.clone();
    let shutdown = async move {
        let signal = stop_signal().await;
        draining.advance(State::Draining);
        info!(signal, "draining");
    };
    server.serve(listeners, shutdown).await;
    stop_admin.cancel();
    if let Some(memory) = memory {
        memory.abort();
    }
    let _ = admin.await;
    info!("stopped");
    Ok(())
}

/// Holds the process to `limits.memory_bytes` (FP7).
fn hold_to_memory(hub: Hub, budget: u64) -> Result<JoinHandle<()>> {
    let resident = resident_bytes().context(
        "limits.memory_bytes cannot be held: /proc/self/status does not say how much memory is resident",
    )?;
    info!(resident, budget, "memory is held to a budget");
    Ok(tokio::spawn(async move { hub.hold_to(budget).await }))
}

/// Where it listens, what it serves, what to try next.
fn announce(config: &Config) {
    for listener in &config.listeners {
        info!(listener = %listener.name, address = %listener.address, "xDS: clients connect here");
    }
    info!(address = %config.admin.address, "admin: GET / lists what there is");
    for (list, servers) in config.servers.lists() {
        let uris: Vec<&str> = servers.servers.iter().map(|server| server.server_uri.as_str()).collect();
        info!(%list, upstream = uris.join(", "), "serving what this upstream says");
    }
    info!(
        "next: `sluice bootstrap envoy` or `sluice bootstrap grpc` prints a client's bootstrap for this relay"
    );
}

async fn stop_signal() -> &'static str {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signal) => signal.recv().await,
            Err(error) => {
                warn!(%error, "a signal cannot be listened for");
                std::future::pending().await
            }
        }
    };
    tokio::select! {
        _ = wait(SignalKind::terminate()) => "SIGTERM",
        _ = wait(SignalKind::interrupt()) => "SIGINT",
    }
}

// === sockets ===

fn bind(name: &str, address: &Address) -> Result<server::Listener> {
    let bound = match address {
        Address::Tcp(address) => server::Listener::bind_tcp(name, *address),
        Address::Unix { path, mode } => server::Listener::bind_unix(name, path, Some(*mode)),
    };
    bound.with_context(|| format!("listener {name} cannot listen on {address}"))
}

async fn serve_admin(
    socket: BoundSocket,
    hub: Hub,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    match socket {
        BoundSocket::Tcp(listener) => Admin::serve(listener, Arc::new(hub), readiness, metrics, stop).await,
        BoundSocket::Unix(listener, _file) => {
            Admin::serve(listener, Arc::new(hub), readiness, metrics, stop).await
        }
    }
}

// === from configuration to settings ===

fn hub_settings(config: &Config, metrics: &Metrics) -> Settings {
    let limits = &config.limits;
    Settings {
        lists: server_lists(&config.servers, metrics),
        source: source::Settings {
            linger: config.linger,
            unwatched_bytes_max: size(config.cache.unwatched_bytes),
            coalescing: config.coalescing,
            tells_reach: config
                .listeners
                .iter()
                .any(|listener| listener.when_unavailable == config::WhenUnavailable::Fail),
            private: false,
        },
        classes: config.node_classes.clone(),
        classes_max: size(limits.node_classes),
        private_sources_max: size(limits.private_sources),
        node: config.node.clone(),
        stream: downstream::Limits {
            names_per_stream: size(limits.names_per_stream),
            types_per_stream: size(limits.types_per_stream),
        },
        changes_per_second: u32::try_from(limits.changes_per_second).unwrap_or(u32::MAX),
        changes_burst: u32::try_from(limits.changes_burst).unwrap_or(u32::MAX),
        first_answers_per_second: u32::try_from(limits.first_answers_per_second).unwrap_or(u32::MAX),
        first_answers_burst: u32::try_from(limits.first_answers_burst).unwrap_or(u32::MAX),
        encoded_bytes_max: config.cache.encoded_bytes,
    }
}

fn server_lists(config: &config::Servers, metrics: &Metrics) -> ServerLists {
    let mut channels = Channels { metrics, open: Vec::new() };
    let mut lists = ServerLists::new(channels.servers(&config.default), config.default.fallback.clone());
    for (type_url, list) in &config.types {
        lists.add_type(type_url.clone(), channels.servers(list), list.fallback.clone());
    }
    let authorities = config.authorities.iter();
    let authorities =
        authorities.map(|(name, list)| (name.clone(), channels.servers(list), list.fallback.clone()));
    lists.set_authorities(authorities.collect());
    lists
}

/// The pools made so far, with what their servers' channels are made of.
struct Channels<'a> {
    metrics: &'a Metrics,
    open: Vec<(UpstreamServer, Pool)>,
}

impl Channels<'_> {
    fn servers(&mut self, list: &ServerList) -> Vec<Arc<Upstream>> {
        let mut servers = Vec::new();
        for server in &list.servers {
            let attach = match &server.kind {
                ServerKind::Grpc(grpc) => {
                    Attach::Grpc { pool: self.pool(server, grpc), settings: protocol_of(grpc, list) }
                }
                ServerKind::Rest(rest) => {
                    attach_rest(rest, self.metrics.of_server(&server.server_uri).client().clone())
                }
                ServerKind::Directory(directory) => Attach::Files { directory: directory.clone() },
            };
            servers.push(Arc::new(Upstream { uri: server.server_uri.as_str().into(), attach }));
        }
        servers
    }

    /// Entries with the same server, credentials and features share their connections (FED-6).
    fn pool(&mut self, server: &UpstreamServer, grpc: &GrpcServer) -> Pool {
        let channel = UpstreamServer { kind: ServerKind::Grpc(channel_of(grpc)), ..server.clone() };
        if let Some((_, pool)) = self.open.iter().find(|(open, _)| *open == channel) {
            return pool.clone();
        }
        let pool = pool_of(grpc, self.metrics.of_server(&server.server_uri).client().clone());
        self.open.push((channel, pool.clone()));
        pool
    }
}

/// A server without what concerns its streams only.
fn channel_of(server: &GrpcServer) -> GrpcServer {
    let d = GrpcServer::new(server.endpoint.clone());
    GrpcServer {
        api_type: d.api_type,
        wildcard: d.wildcard,
        resource_timeout: d.resource_timeout,
        ..server.clone()
    }
}

fn pool_of(server: &GrpcServer, metrics: Arc<ClientMetrics>) -> Pool {
    let address = match &server.endpoint {
        Endpoint::Tcp { host, port } => GrpcAddress::Tcp { host: host.clone(), port: *port },
        Endpoint::Unix(path) => GrpcAddress::Unix(path.clone()),
    };
    let defaults = client::Settings::default();
    let keepalive = server.tcp_keepalive.clone().unwrap_or_default();
    let transport = client::Settings {
        connect_timeout: server.connect_timeout,
        settings_timeout: server.settings_timeout,
        open_timeout: server.stream_open_timeout,
        streams_per_connection: server.streams_per_connection as usize,
        ping_interval: server.ping_interval,
        keepalive_idle: keepalive.time,
        keepalive_interval: keepalive.interval,
        keepalive_retries: keepalive.probes,
        user_timeout: keepalive.user_timeout,
        backoff_initial: server.backoff.initial,
        backoff_max: server.backoff.max,
        message_bytes_max: size(server.max_response_bytes),
        ..defaults
    };
    Pool::new(address, transport, metrics)
}

fn protocol_of(server: &GrpcServer, list: &ServerList) -> upstream::Settings {
    upstream::Settings {
        failover: list.fallback.policy == Policy::Envoy && list.servers.len() > 1,
        fails_on_data_errors: server.fail_on_data_errors,
        transport: match server.api_type {
            ApiType::AggregatedDeltaGrpc | ApiType::AggregatedGrpc => upstream::Transport::Aggregated,
            ApiType::DeltaGrpc | ApiType::Grpc => upstream::Transport::PerType,
        },
        variant: match server.api_type {
            ApiType::AggregatedDeltaGrpc | ApiType::DeltaGrpc => Variant::Delta,
            ApiType::AggregatedGrpc | ApiType::Grpc => Variant::Sotw,
        },
        wildcard: match server.wildcard {
            WildcardForm::Explicit => upstream::WildcardStyle::Explicit,
            WildcardForm::Legacy => upstream::WildcardStyle::Legacy,
        },
        resource_timeout: server.resource_timeout,
        resource_timeouts: server.resource_timeouts.clone(),
        timeout_is_transient: server.resource_timer_is_transient_error,
        backoff: backoff(&server.backoff),
        ..upstream::Settings::default()
    }
}

fn attach_rest(server: &RestServer, metrics: Arc<ClientMetrics>) -> Attach {
    let transport = client::Settings {
        connect_timeout: server.connect_timeout,
        request_timeout: server.request_timeout,
        keepalive_idle: server.tcp_keepalive.time,
        keepalive_interval: server.tcp_keepalive.interval,
        keepalive_retries: server.tcp_keepalive.probes,
        user_timeout: server.tcp_keepalive.user_timeout,
        message_bytes_max: size(server.max_response_bytes),
        ..client::Settings::default()
    };
    let protocol = upstream::Settings {
        transport: upstream::Transport::Rest { refresh_delay: server.refresh_delay },
        variant: Variant::Sotw,
        // A poll has no state: the empty list can mean nothing else, and every server knows it.
        wildcard: upstream::WildcardStyle::Legacy,
        backoff: backoff(&server.backoff),
        ..upstream::Settings::default()
    };
    let server = client::RestServer::new(&server.host, server.port, &server.prefix, transport, metrics);
    Attach::Rest { server, settings: protocol }
}

fn backoff(backoff: &Backoff) -> upstream::BackoffSettings {
    upstream::BackoffSettings {
        initial: backoff.initial,
        cap: backoff.max,
        ..upstream::BackoffSettings::default()
    }
}

fn server_limits(limits: &Limits, drain: Duration) -> ServerLimits {
    let defaults = ServerLimits::default();
    ServerLimits {
        connections_max: limits.connections,
        connections_per_ip_max: limits.connections_per_ip,
        preface_timeout: limits.preface_timeout,
        first_request_timeout: limits.first_request_timeout,
        streams_per_connection_max: limits.streams_per_connection,
        local_error_resets_max: limits.local_error_reset_streams as usize,
        pending_accept_resets_max: limits.pending_reset_streams as usize,
        header_list_bytes_max: limits.header_list_bytes,
        keepalive_interval: limits.keepalive_interval,
        keepalive_timeout: limits.keepalive_timeout,
        connection_age: limits.connection_age,
        connection_age_grace: limits.connection_age_grace,
        drain_window: drain,
        requests: ReaderLimits {
            message_bytes: size(limits.request_bytes),
            node_bytes: size(limits.node_bytes),
            node_retained_bytes: size(limits.node_retained_bytes),
            metadata_depth: size(limits.metadata_depth),
            names: size(limits.names_per_request),
            name_bytes: size(limits.name_bytes),
            error_detail_bytes: size(limits.error_detail_bytes),
            ..defaults.requests
        },
        ..defaults
    }
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
