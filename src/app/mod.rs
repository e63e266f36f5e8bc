//! Builds the relay in one visible order, and stops it in reverse.
//!
//! Start: logging, the limit of open files, data on disk, sockets, readiness. Stop: readiness off, no new
//! connections, streams drained, and the admin server last.

mod admin;
mod authorization;
mod check;
mod ending;
mod servers;
mod tls;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use self::admin::AdminServer;
use crate::admin::{Process, Readiness, State};
use crate::config::{Address, Config, Listener, LogFormat};
use crate::driver::api::downstream::WhenUnavailable;
use crate::driver::{DriverSettings, Relay};
use crate::engine::source;
use crate::server::{self, Server, ServerLimits};
use crate::setting::InForce;
use crate::telemetry::events::{Kind, Occurrence, count_each_second};
use crate::telemetry::logging::LogLevel;
use crate::telemetry::{Metrics, cgroup_memory_limit, logging, resident_bytes};
use ending::Ending;
use tls::Certificates;

pub use check::check_certificates;

/// How long the process waits at its end for work that cannot be interrupted.
const HANG_MAX: Duration = Duration::from_secs(1);

/// Runs the relay until SIGTERM or SIGINT, then drains.
pub fn serve(config: Config) -> Result<()> {
    let metrics = Arc::new(Metrics::new());
    let format = InForce::new(match config.log.format {
        LogFormat::Text => logging::Format::Text,
        LogFormat::Json => logging::Format::Json,
    });
    let (mut guard, filter) = logging::init(format, &config.log.level, &metrics.log).context("log")?;
    let log = LogLevel::new(filter, config.log.level.clone());
    raise_open_files();
    forbid_core_files();
    seed();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().on_thread_start(seed).build();
    let runtime = runtime.context("runtime")?;
    let ending = Ending::new(InForce::new(config.drain));
    let traces = config.traces.as_ref().map(|to| metrics.traces.start(to, &config.node.id)).transpose()?;
    let result = runtime.block_on(run(config, metrics, log, &ending));
    // Neither a hanging disk nor a blocked log output keeps the process alive after the drain (RLY-77).
    let left = || if result.is_ok() { ending.left().min(HANG_MAX) } else { HANG_MAX };
    runtime.shutdown_timeout(left() / 2);
    if let Some(traces) = traces {
        traces.wait_at_most(left());
    }
    guard.wait_at_most(left());
    result
}

/// A core file would have private keys and Secrets in it (ISO-8). The hard limit stays, so that `prlimit` can allow core
/// files while an operator looks for a fault.
fn forbid_core_files() {
    if let Err(error) = rlimit::Resource::CORE.set(0, rlimit::Resource::CORE.get_hard().unwrap_or_default()) {
        warn!(%error, "cannot forbid core files");
    }
}

/// Seeds this thread's generator with the system's entropy, taken from std's hash keys. By default, the seed
/// would be the clock and the thread's number, which others can guess.
fn seed() {
    fastrand::seed(RandomState::new().build_hasher().finish());
}

/// Raises the soft limit of open files to the hard limit: each connection takes a file descriptor.
fn raise_open_files() {
    let before = rlimit::Resource::NOFILE.get_soft().unwrap_or_default();
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) if limit > before => info!(before, limit, "raised the limit of open files"),
        Ok(limit) => debug!(limit, "limit of open files"),
        Err(error) => warn!(limit = before, %error, "cannot raise the limit of open files"),
    }
}

async fn run(config: Config, metrics: Arc<Metrics>, log: Arc<LogLevel>, ending: &Ending) -> Result<()> {
    ignore_hangups();
    let mut certificates = Certificates::default();
    let relay = Relay::new(relay_settings(&config, &metrics, &mut certificates)?, metrics.clone());
    // Only a directory has files to load. Errors there belong to the host, as with sockets.
    if let Err((uri, status)) = relay.load().await {
        return Err(io::Error::other(status.message)).context(uri);
    }

    let policy = authorization::follow(&relay, &config, &metrics.events);
    let _policy = policy.map(|follow| AbortOnDropHandle::new(tokio::spawn(follow)));

    let mut listeners = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        let bound = bind(&listener.name, &listener.address)?.with(listener.options);
        listeners.push(certificates.secure(bound, index, &config, &metrics.downstream.tls)?);
    }
    let admin = bind("admin", &config.admin.address)?;
    let admin = AdminServer::new(admin, &config, &metrics.downstream.tls)?;
    let limits = server_limits(&config.limits.server, ending.connections());
    let server = Server::new(Arc::new(relay.clone()), limits, metrics.downstream.clone());
    let emptying = server.emptying();
    let readiness = Readiness::default().with_certificates(move || certificates.have_expired());
    let drain = emptying.clone();
    let readiness = Arc::new(readiness.with_drain(move || drain.is_emptying()));
    let process = Process { readiness: readiness.clone(), emptying, log };

    let counting = tokio::spawn(count_each_second(metrics.clone()));
    let (_counting, events) = (AbortOnDropHandle::new(counting), metrics.events.clone());
    let (stop_admin, keeping) = (CancellationToken::new(), relay.clone());
    let memory = hold_to_memory(&relay, config.limits.relay.memory_bytes)?;
    let mut admin = tokio::spawn(admin.serve(relay, process, metrics, stop_admin.clone()));
    // Whoever sees the relay ready may stop it in an orderly way.
    let stopped = stop_signal();
    readiness.advance(State::Ready);
    announce(&config);

    let (draining, signaled, draining_event) = (readiness.clone(), ending.clone(), events.clone());
    let (last, is_saved) = oneshot::channel();
    let shutdown = async move {
        let signal = stopped.await;
        signaled.begin();
        draining.advance(State::Draining);
        draining_event.add(Occurrence::info(Kind::Drain, "draining").detail(signal));
        info!(signal, "draining");
        // Save before clients leave and take their subscriptions with them.
        let _ = last.send(tokio::spawn(async move { keeping.save().await }));
    };
    tokio::select! {
        () = server.serve(listeners, shutdown) => {}
        () = ending.closes() => {
            events.add(Occurrence::warn(Kind::Drain, "connections were still open at the end of the drain"));
            warn!("connections were still open at the end of the drain");
        }
    }
    if let Ok(last) = is_saved.await
        && timeout_at(ending.saved_by(), last).await.is_err()
    {
        warn!("the last write of the checkpoint did not finish before the end of the drain");
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

/// Holds the process to `limits.memory_bytes` (FP7), or else to the limit of its control group. Without
/// either, the relay only reclaims the memory of clients that stopped reading.
fn hold_to_memory(relay: &Relay, budget: Option<u64>) -> Result<JoinHandle<()>> {
    let (resident, otherwise) = (resident_bytes(), cgroup_memory_limit());
    if budget.is_some() && resident.is_none() {
        bail!("cannot enforce limits.memory_bytes: /proc/self/status does not report the resident memory");
    }
    let from = if budget.is_some() { "limits.memory_bytes" } else { "the control group" };
    if let (Some(budget), Some(resident)) = (budget.or(otherwise), resident) {
        info!(resident, budget, from, "memory budget in force");
    }
    let relay = relay.clone();
    Ok(tokio::spawn(async move {
        futures_util::future::join(relay.hold_to_memory(otherwise), relay.take_back()).await;
    }))
}

/// Logs addresses, servers and the next step.
fn announce(config: &Config) {
    for listener in &config.listeners {
        let security = if listener.tls.is_some() { "tls" } else { "plaintext" };
        info!(listener = %listener.name, address = %listener.address, security, "listening for xDS clients");
    }
    let security = if config.admin.tls.is_some() { "tls" } else { "plaintext" };
    info!(address = %config.admin.address, security, "listening for admin requests; GET / lists the paths");
    for (list, servers) in config.servers.lists() {
        let uris: Vec<&str> = servers.servers.iter().map(|server| server.server_uri.as_str()).collect();
        info!(%list, upstream = uris.join(", "), "relaying from upstream");
    }
    info!(
        "next: `sluice bootstrap envoy` or `sluice bootstrap grpc` prints a client's bootstrap for this relay"
    );
}

/// There is no reload. Other servers reload on SIGHUP; by default, the signal would end this process.
fn ignore_hangups() {
    match signal(SignalKind::hangup()) {
        Ok(mut hangups) => {
            tokio::spawn(async move {
                while hangups.recv().await.is_some() {
                    warn!("SIGHUP ignored: reload is not supported; restart to read the configuration again");
                }
            });
        }
        Err(error) => warn!(%error, "cannot listen for a signal"),
    }
}

/// Listens from the call on. Resolves at the first signal to stop, with its name.
fn stop_signal() -> impl Future<Output = &'static str> {
    let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let wait = |listening: io::Result<Signal>| async move {
        match listening {
            Ok(mut signal) => signal.recv().await,
            Err(error) => {
                warn!(%error, "cannot listen for a signal");
                std::future::pending().await
            }
        }
    };
    async move {
        tokio::select! {
            _ = wait(terminate) => "SIGTERM",
            _ = wait(interrupt) => "SIGINT",
        }
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

// === from configuration to settings ===

fn relay_settings(
    config: &Config,
    metrics: &Metrics,
    certificates: &mut Certificates,
) -> Result<DriverSettings> {
    let fails = |listener: &Listener| listener.options.when_unavailable == WhenUnavailable::Fail;
    Ok(DriverSettings {
        lists: servers::lists(&config.servers, metrics, certificates)?,
        source: source::SourceSettings {
            tells_reach: config.listeners.iter().any(fails),
            ..config.source.clone()
        },
        classes: config.node_classes.clone(),
        policy: config.authorization.policy().cloned().unwrap_or_default(),
        limits: config.limits.relay.clone(),
        node: config.node.clone(),
        stream: config.limits.stream,
        encoded_bytes: config.encoded_bytes,
        checkpoint: config.checkpoint.clone(),
    })
}

/// `drain`: the part of the drain for connections.
fn server_limits(limits: &ServerLimits, drain: Duration) -> ServerLimits {
    // With few descriptors, most of them still go to clients.
    let descriptors = rlimit::Resource::NOFILE.get_soft().unwrap_or(u64::MAX);
    ServerLimits { fd_reserve: limits.fd_reserve.min(descriptors / 4), drain_window: drain, ..limits.clone() }
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
