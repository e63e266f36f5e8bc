//! The certificate files of the configuration, as places of the room `trust`.

use std::sync::Arc;

use anyhow::{Result, anyhow};

use crate::config::{Config, Listener};
use crate::server;
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::client;
use crate::trust::contents::Contents;
use crate::trust::fault::Fault;
use crate::trust::rotation::{Place, Watched};
use crate::trust::server::{ChainLimits, Generation, OnClientExpiry, ServerTls};

/// The files of one listener. `index` is the place of the listener in the configuration.
fn place_of(listener: &Listener, tls: &ServerTls, limits: ChainLimits) -> Place<Generation> {
    let settings = tls.clone();
    Place {
        name: format!("listeners[{}].tls", listener.name),
        files: tls.files(),
        refresh: tls.refresh_interval,
        build: Arc::new(move |contents: &Contents, in_force: Option<&Generation>, now| {
            Generation::read(&settings, limits, contents, in_force, now)
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

/// The certificate files of all listeners that cannot be used: one line each, beginning with the key.
pub(super) fn faults(config: &Config) -> Vec<String> {
    let limits = config.limits.server.client_chain;
    let fault = |(index, listener): (usize, &Listener)| {
        let tls = listener.tls.as_ref()?;
        let fault = place_of(listener, tls, limits).read().err()?;
        Some(describe(&key_of(index), &fault))
    };
    config.listeners.iter().enumerate().filter_map(fault).collect()
}

/// The files of all listeners and servers, in force.
#[derive(Default)]
pub(super) struct Certificates {
    listeners: Vec<Watched<Generation>>,
    servers: Vec<Watched<client::Generation>>,
}

impl Certificates {
    /// Gives the listener its TLS, and watches the files from then on.
    pub(super) fn secure(
        &mut self,
        bound: server::Listener,
        index: usize,
        config: &Config,
        metrics: &TlsMetrics,
    ) -> Result<server::Listener> {
        let Some(listener) = config.listeners.get(index) else { return Ok(bound) };
        let Some(tls) = &listener.tls else { return Ok(bound) };
        let place = place_of(listener, tls, config.limits.server.client_chain);
        let watched = place.watch(metrics.clone());
        let watched = watched.map_err(|fault| anyhow!(describe(&key_of(index), &fault)))?;
        self.listeners.push(watched.clone());
        Ok(bound.with_tls(watched, tls.on_client_expiry == OnClientExpiry::End))
    }

    /// Whether a certificate of the relay has expired (CRT-7).
    pub(super) fn have_expired(&self) -> bool {
        self.listeners.iter().any(Watched::has_expired) || self.servers.iter().any(Watched::has_expired)
    }

    /// Adds the files of a server.
    pub(super) fn watch(&mut self, files: Option<Watched<client::Generation>>) {
        self.servers.extend(files);
    }
}
