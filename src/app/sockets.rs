//! The listeners of the configuration: their sockets, and the parts that may change in service.

use anyhow::{Context, Result};

use super::handover::{AdoptedConnections, Ways};
use super::tls::{self, LiveTls};
use crate::config::{self, Address, Config};
use crate::server::{self, ListenerOptions};
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::rotation::Watched;
use crate::trust::server::ServerFiles;
use sluice_setting::InForce;

/// A listener in service. No connection belongs to a configuration, so parts of a listener change under its
/// connections (REL-5).
#[derive(Clone)]
pub(super) struct LiveListener {
    pub config: config::ListenerSettings,
    pub options: InForce<ListenerOptions>,
    /// `None`: plaintext.
    pub tls: Option<LiveTls>,
}

impl LiveListener {
    /// Gives a socket the options and the certificates of its listener.
    ///
    /// # Errors
    /// A file that cannot be used, with its key.
    pub(super) fn new(
        bound: server::Listener,
        config: &Config,
        index: usize,
        metrics: &TlsMetrics,
    ) -> Result<(LiveListener, server::Listener)> {
        let listener = &config.listeners[index];
        let prepared = tls::prepare(config, index, listener)?;
        let live = |prepared| Some(LiveTls::new(prepared, listener.tls.as_ref()?, metrics));
        let tls = prepared.and_then(live);
        let bound = bound.with(listener.options);
        let options = bound.options();
        let bound = match &tls {
            Some(tls) => tls.protect(bound),
            None => bound,
        };
        Ok((LiveListener { config: listener.clone(), options, tls }, bound))
    }
}

/// The certificate files of all listeners, in force.
pub(super) fn listener_files(live: &[LiveListener]) -> Vec<Watched<ServerFiles>> {
    live.iter().filter_map(|listener| Some(listener.tls.as_ref()?.watched.clone())).collect()
}

/// The socket of a listener: from the pool, or new.
///
/// # Errors
/// The address cannot be bound, with the listener's name.
pub(super) fn bind(
    name: &str,
    address: &Address,
    pool: &mut AdoptedConnections,
    ways: &Ways,
) -> Result<server::Listener> {
    let bound = match (pool.take(name, address), address) {
        (Some(Ok(adopted)), _) => Ok(adopted),
        // The file of a unix socket may have gone.
        (_, Address::Tcp(address)) => server::Listener::bind_tcp(name, *address),
        (_, Address::Unix { path, mode }) => server::Listener::bind_unix(name, path, Some(*mode)),
    };
    let bound = bound.with_context(|| format!("listener {name} cannot listen on {address}"))?;
    ways.add(address.to_string(), &bound);
    Ok(bound)
}
