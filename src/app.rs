//! Builds all of it, in one visible order; stops it in the reverse one.
//!
//! Logging, then the limit of open files, then what is on disk, then sockets, then readiness. At the end: readiness off,
//! no new connections, streams drained, the admin last.

mod ending;
mod servers;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::admin::{Admin, Readiness, State};
use crate::config::{self, Address, Config, Limits, LogFormat};
use crate::driver::handle::WhenUnavailable;
use crate::driver::{Hub, Settings, keep};
use crate::engine::{downstream, source};
use crate::server::{self, BoundSocket, Server, ServerLimits};
use crate::telemetry::{Metrics, cgroup_memory_limit, logging, resident_bytes};
use crate::wire::deframe::ReaderLimits;
use ending::Ending;

/// How long the end of the process waits for what cannot be interrupted.
const HANG_MAX: Duration = Duration::from_secs(1);

/// Runs the relay until SIGTERM or SIGINT, and drains.
pub fn serve(config: Config) -> Result<()> {
    let metrics = Arc::new(Metrics::new());
    let format = match config.log.format {
        LogFormat::Text => logging::Format::Text,
        LogFormat::Json => logging::Format::Json,
    };
    let mut guard = logging::init(format, &config.log.level, &metrics.log).context("log")?;
    raise_open_files();
    seed();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().on_thread_start(seed).build();
    let runtime = runtime.context("runtime")?;
    let ending = Ending::new(config.drain);
    let result = runtime.block_on(run(config, metrics, &ending));
    // Neither a disk nor a sink of the log that hangs keeps the process for longer than the drain (RLY-77).
    let left = || if result.is_ok() { ending.left().min(HANG_MAX) } else { HANG_MAX };
    runtime.shutdown_timeout(left() / 2);
    guard.wait_at_most(left());
    result
}

/// Seeds what this thread draws with the system's entropy, which std asks for its tables; by itself it would be the clock and the
/// number of the thread, which others can guess.
fn seed() {
    fastrand::seed(RandomState::new().build_hasher().finish());
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

async fn run(config: Config, metrics: Arc<Metrics>, ending: &Ending) -> Result<()> {
    ignore_hangups();
    let readiness = Arc::new(Readiness::new(config.admin.ready_requires_upstream));
    let hub = Hub::new(hub_settings(&config, &metrics), metrics.clone());
    // Only a directory has something to load: what is wrong with it is the host's, as with sockets.
    if let Err((uri, status)) = hub.load().await {
        return Err(io::Error::other(status.message)).context(uri);
    }

    let listeners = bind_all(&config)?;
    let admin_socket = bind("admin", &config.admin.address)?.into_socket();
    let limits = server_limits(&config.limits, ending.connections());
    let server = Server::new(Arc::new(hub.clone()), limits, metrics.downstream.clone());

    let (stop_admin, keeping) = (CancellationToken::new(), hub.clone());
    let memory = hold_to_memory(&hub, config.limits.memory_bytes)?;
    let mut admin = tokio::spawn(serve_admin(
        admin_socket,
        config.admin.hosts.clone(),
        hub,
        readiness.clone(),
        metrics,
        stop_admin.clone(),
    ));
    readiness.advance(State::Ready);
    announce(&config);

    let (draining, signaled) = (readiness.clone(), ending.clone());
    let (last, is_saved) = oneshot::channel();
    let shutdown = async move {
        let signal = stop_signal().await;
        signaled.begin();
        draining.advance(State::Draining);
        info!(signal, "draining");
        // Before clients leave, and what they want with them.
        let _ = last.send(tokio::spawn(async move { keeping.save().await }));
    };
    tokio::select! {
        () = server.serve(listeners, shutdown) => {}
        () = ending.closes() => warn!("connections were still open at the end of the drain"),
    }
    if let Ok(last) = is_saved.await
        && timeout_at(ending.saved_by(), last).await.is_err()
    {
        warn!("the checkpoint could not be written for the last time before the drain was over");
    }
    stop_admin.cancel();
    memory.abort();
    if timeout_at(ending.all_closed_by(), &mut admin).await.is_err() {
        admin.abort();
        // A socket file goes with it.
        let _ = admin.await;
    }
    info!("stopped");
    Ok(())
}

/// Holds the process to `limits.memory_bytes` (FP7), or else to what its control group lets it have. Without either, it is only
/// taken back what clients keep that have stopped to read.
fn hold_to_memory(hub: &Hub, budget: Option<u64>) -> Result<JoinHandle<()>> {
    let (hub, unread) = (hub.clone(), hub.clone());
    let alone = |unread: Hub| tokio::spawn(async move { unread.take_back().await });
    let (budget, resident, from) = match (budget, resident_bytes()) {
        (Some(budget), resident) => {
            let resident = resident.context(
                "limits.memory_bytes cannot be held: /proc/self/status does not say how much memory is resident",
            )?;
            (budget, resident, "limits.memory_bytes")
        }
        (None, Some(resident)) => match cgroup_memory_limit() {
            Some(limit) => (limit, resident, "the control group"),
            None => return Ok(alone(unread)),
        },
        (None, None) => return Ok(alone(unread)),
    };
    info!(resident, budget, from, "memory is held to a budget");
    Ok(tokio::spawn(async move {
        futures_util::future::join(hub.hold_to(budget), unread.take_back()).await;
    }))
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

/// There is no reload. What other servers take for a request of one would end this process.
fn ignore_hangups() {
    match signal(SignalKind::hangup()) {
        Ok(mut hangups) => {
            tokio::spawn(async move {
                while hangups.recv().await.is_some() {
                    warn!("SIGHUP is ignored: there is no reload; a restart reads the configuration again");
                }
            });
        }
        Err(error) => warn!(%error, "a signal cannot be listened for"),
    }
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

fn bind_all(config: &Config) -> Result<Vec<server::Listener>> {
    config
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
                load_reports: match listener.load_reports {
                    config::LoadReports::Drop => server::LoadReports::Drop,
                    config::LoadReports::Refuse => server::LoadReports::Refuse,
                },
            };
            bind(&listener.name, &listener.address).map(|bound| bound.with(options))
        })
        .collect()
}

fn bind(name: &str, address: &Address) -> Result<server::Listener> {
    let bound = match address {
        Address::Tcp(address) => server::Listener::bind_tcp(name, *address),
        Address::Unix { path, mode } => server::Listener::bind_unix(name, path, Some(*mode)),
    };
    bound.with_context(|| format!("listener {name} cannot listen on {address}"))
}

async fn serve_admin(
    socket: BoundSocket,
    hosts: Vec<String>,
    hub: Hub,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    match socket {
        BoundSocket::Tcp(listener) => {
            Admin::serve(listener, hosts, Arc::new(hub), readiness, metrics, stop).await
        }
        BoundSocket::Unix(listener, _file) => {
            Admin::serve(listener, hosts, Arc::new(hub), readiness, metrics, stop).await
        }
    }
}

// === from configuration to settings ===

fn hub_settings(config: &Config, metrics: &Metrics) -> Settings {
    let limits = &config.limits;
    Settings {
        lists: servers::lists(&config.servers, metrics),
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
        classes_per_connection_max: size(limits.node_classes_per_connection),
        secret_classes_max: size(limits.secret_classes),
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
        checkpoint: config.checkpoint.as_ref().map(|checkpoint| keep::Settings {
            directory: checkpoint.directory.clone(),
            interval: checkpoint.interval,
            max_age: checkpoint.max_age,
        }),
    }
}

fn server_limits(limits: &Limits, drain: Duration) -> ServerLimits {
    let defaults = ServerLimits::default();
    // Where there are few, most are for clients all the same.
    let descriptors = rlimit::Resource::NOFILE.get_soft().unwrap_or(u64::MAX);
    ServerLimits {
        fd_reserve: defaults.fd_reserve.min(descriptors / 4),
        connections_max: limits.connections,
        connections_per_ip_max: limits.connections_per_ip,
        preface_timeout: limits.preface_timeout,
        first_request_timeout: limits.first_request_timeout,
        request_timeout: limits.request_timeout,
        connection_bytes: limits.connection_bytes,
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

#[cfg(test)]
mod tests {
    use super::seed;

    #[test]
    fn a_seed_is_not_that_of_before() {
        let drawn = || {
            fastrand::seed(1);
            seed();
            fastrand::u128(..)
        };
        assert_ne!(drawn(), drawn());
    }
}
