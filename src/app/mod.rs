//! Builds the relay in a visible order, and stops it in reverse.
//!
//! 1. `base`: the parts from before the runtime until after its end: log, drain, traces. `host`: limits of
//!    the process. `signals`: the signals.
//! 2. `settings`, `servers`, `tls`, `admin`, `authorization`, `facts`, `sockets`: the parts of the
//!    configuration, each in the form of a room. `check`: a look at the files.
//!    `forgetting`: the memory of the ledger, before a start.
//! 3. `parts`: all that a configuration asks for: data on disk, sockets. Nothing is served yet.
//! 4. `handover`: an upgrade, from the old process to the new one.
//! 5. `study`: rules of node classes, learned without a relay.
//! 6. `running`: all tasks, until a signal. `reload`: another configuration for them. `departure`: the time
//!    from the signal to the drain. `ending`: the deadlines of the end: readiness off, no new connections,
//!    streams drained, and the admin server last.

mod base;
mod host;
mod signals;
mod settings;
mod servers;
mod tls;
mod admin;
mod watched_file;
mod authorization;
mod facts;
mod sockets;
mod check;
mod forgetting;
mod handover;
mod parts;
mod study;
mod departure;
mod running;
mod reload;
mod ending;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tracing::{info, warn};

use self::base::Base;
use self::handover::AdoptedConnections;
use self::handover::successor::Predecessor;
use self::parts::Parts;
use self::reload::Reloader;
use self::running::{OwnProcess, Running};
use crate::config::{Config, Loaded, LogFormat};

pub use check::{Faults, check_files, check_host, explain_classes, needs_of_host};
pub use forgetting::forget_ledger;
pub use handover::{Start, StartRefusal};
pub use reload::{ConfigFile, with_collector};
pub use study::learn;

/// How long the process waits at the end for uninterruptible work.
const HANG_MAX: Duration = Duration::from_secs(1);

/// Runs the relay until SIGTERM or SIGINT, then drains.
pub fn serve(loaded: Loaded, file: ConfigFile, start: Start) -> Result<()> {
    let (base, mut guard) = Base::begin(&loaded.config)?;
    if loaded.config.log.format == LogFormat::Json {
        loaded.warnings.iter().for_each(|warning| warn!("{}:{warning}", file.path().display()));
    }
    let base = Arc::new(base);
    host::raise_open_files();
    host::forbid_core_files();
    host::seed();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().on_thread_start(host::seed).build();
    let runtime = runtime.context("runtime")?;
    base.start_traces(&loaded.config)?;
    let result = runtime.block_on(run(loaded, file, &base, start));
    // Neither a hanging disk nor a blocked log output keeps the process alive after the drain (RLY-77).
    let left = || if result.is_ok() { base.ending.left().min(HANG_MAX) } else { HANG_MAX };
    runtime.shutdown_timeout(left() / 2);
    base.metrics.traces.end(left());
    guard.wait_at_most(left());
    result
}

async fn run(loaded: Loaded, file: ConfigFile, base: &Arc<Base>, start: Start) -> Result<()> {
    let (reloader, requests) = Reloader::new(&file);
    signals::on_hangups(reloader.clone());
    let Start { invocation, predecessor, lent, supervisor } = start;
    let mut pool = AdoptedConnections::default();
    lent.into_iter().for_each(|lent| pool.add(lent.name, None, lent.socket, true));
    let greet = |channel| Predecessor::greet(channel, loaded.config.handover.timeout, &mut pool);
    // The other process belongs to the host, like sockets and files.
    let mut predecessor = predecessor.map(greet).transpose().map_err(std::io::Error::other)?;
    if predecessor.is_some() {
        // Until the predecessor says so, it serves.
        base.ways.pause();
    }
    let parts = Parts::build(&loaded.config, base, &mut pool, predecessor.as_mut()).await?;
    drop(pool);
    let (relay, config) = (parts.relay.clone(), loaded.config.clone());
    let following = predecessor.as_ref().map(Predecessor::following).transpose()?;
    let process = OwnProcess { invocation, following: following.clone(), supervisor: supervisor.clone() };
    let running = Running::start(parts, loaded, base, reloader, requests, file, process)?;
    if let (Some(mut predecessor), Some(following)) = (predecessor, following) {
        predecessor.take_over(&base.ways, &relay).await?;
        predecessor.follow(following, relay, base.metrics.clone());
    }
    announce(&config);
    if let Err(error) = supervisor.tell("READY=1") {
        warn!(%error, "cannot tell the supervisor");
    }
    running.until_end(base).await;
    info!("stopped");
    Ok(())
}

/// Logs addresses, servers and the next step.
fn announce(config: &Config) {
    // The profiles `dev` and `release` of Cargo.toml.
    if cfg!(debug_assertions) {
        info!(
            "this build is for a first try: it is made soon, and slow. `cargo build --profile dist` makes the one to run"
        );
    }
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
