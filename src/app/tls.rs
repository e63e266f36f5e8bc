//! The certificate files of the configuration, as places of the room `trust`.

use std::sync::Arc;

use anyhow::{Result, anyhow};

use crate::config::{Config, ListenerSettings};
use crate::server;
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::client;
use crate::trust::contents::Contents;
use crate::trust::fault::Fault;
use crate::trust::rotation::{Prepared, Watched, WatchedPlace};
use crate::trust::server::{ChainLimits, OnClientExpiry, ServerFiles, ServerTls};
use sluice_setting::InForce;

/// The files of one listener. `index` is the place of the listener in the configuration.
fn place_of(listener: &ListenerSettings, tls: &ServerTls, limits: ChainLimits) -> WatchedPlace<ServerFiles> {
    let settings = tls.clone();
    WatchedPlace {
        name: format!("listeners[{}].tls", listener.name),
        files: tls.files(),
        refresh: tls.refresh_interval,
        build: Arc::new(move |contents: &Contents, in_force: Option<&ServerFiles>, now| {
            ServerFiles::read(&settings, limits, contents, in_force, now)
        }),
    }
}

/// A fault with its key. `place` is the path of `tls` in the configuration.
pub(super) fn describe(place: &str, fault: &Fault) -> String {
    format!("{place}.{}: {fault}", fault.key)
}

fn key_of(index: usize) -> String {
    format!("listeners[{index}].tls")
}

/// The unusable certificate files of all listeners: a line each, beginning with the key.
pub(super) fn faults(config: &Config) -> Vec<String> {
    let limits = config.limits.server.client_chain;
    let fault = |(index, listener): (usize, &ListenerSettings)| {
        let tls = listener.tls.as_ref()?;
        let fault = place_of(listener, tls, limits).read().err()?;
        Some(describe(&key_of(index), &fault))
    };
    config.listeners.iter().enumerate().filter_map(fault).collect()
}

/// TLS of one listener, with its files in force.
#[derive(Clone)]
pub(super) struct LiveTls {
    pub watched: Watched<ServerFiles>,
    pub ends_at_expiry: InForce<bool>,
}

impl LiveTls {
    /// Puts files that were read in force, and watches them from then on.
    pub(super) fn new(prepared: Prepared<ServerFiles>, tls: &ServerTls, metrics: &TlsMetrics) -> LiveTls {
        let ends_at_expiry = InForce::new(ends_at_expiry(tls));
        LiveTls { watched: prepared.watch(metrics.clone()), ends_at_expiry }
    }

    /// Puts other files in force, for new and open connections.
    pub(super) fn replace(&self, prepared: Prepared<ServerFiles>, tls: &ServerTls, metrics: &TlsMetrics) {
        prepared.replace(&self.watched, metrics.clone());
        self.ends_at_expiry.publish(ends_at_expiry(tls));
    }

    pub(super) fn protect(&self, bound: server::Listener) -> server::Listener {
        bound.with_tls(self.watched.clone(), self.ends_at_expiry.clone())
    }
}

fn ends_at_expiry(tls: &ServerTls) -> bool {
    tls.on_client_expiry == OnClientExpiry::End
}

/// Reads the files of one listener; `None` without TLS. `index` is the place of the listener in the
/// configuration.
///
/// # Errors
/// A file that cannot be used, with its key.
pub(super) fn prepare(
    config: &Config,
    index: usize,
    listener: &ListenerSettings,
) -> Result<Option<Prepared<ServerFiles>>> {
    let Some(tls) = &listener.tls else { return Ok(None) };
    let place = place_of(listener, tls, config.limits.server.client_chain);
    let prepared = place.prepare().map_err(|fault| anyhow!(describe(&key_of(index), &fault)))?;
    Ok(Some(prepared))
}

/// The files of all listeners and servers, in force.
#[derive(Default)]
pub(super) struct Certificates {
    pub listeners: Vec<Watched<ServerFiles>>,
    pub servers: Vec<Watched<client::Generation>>,
}

impl Certificates {
    /// Whether a certificate of the relay has expired (CRT-7).
    pub(super) fn have_expired(&self) -> bool {
        self.listeners.iter().any(Watched::has_expired) || self.servers.iter().any(Watched::has_expired)
    }
}
