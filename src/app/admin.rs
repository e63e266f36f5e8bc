//! The admin server: its socket, its files, and its settings.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Result, anyhow};
use futures_util::FutureExt;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::tls;
use crate::admin::access::{Access, Auth, Reach};
use crate::admin::entrance::{Entrance, Guest, Peer, Proving};
use crate::admin::{About, Admin, AdminSettings, Process};
use crate::config::{Address, Config};
use crate::driver::Relay;
use crate::server::{self, Doorway, Duplex, ServerLimits, Visitor};
use crate::setting::InForce;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::contents::Contents;
use crate::trust::fault::Fault;
use crate::trust::rotation::{Place, Watched};
use crate::trust::server::settings::REFRESH_INTERVAL;
use crate::trust::server::{Generation, OnClientExpiry, ServerTls};
use crate::trust::tokens::{TokenFile, Tokens, place_files};

/// TLS handshakes a second. Operators, probes and scrapers need some ten; a stranger takes a fifth of a core with these.
const HANDSHAKES_PER_SECOND: u32 = 500;

const TLS: &str = "admin.tls";
const AUTH: &str = "admin.auth";

/// The bound admin server.
pub(super) struct AdminServer {
    doorway: Doorway,
    settings: InForce<AdminSettings>,
    tokens: Option<Watched<Tokens>>,
}

/// The files of `admin` that cannot be used: one line each, beginning with the key.
pub(super) fn faults(config: &Config) -> Vec<String> {
    let tls = config.admin.tls.as_ref().and_then(|tls| {
        let fault = tls_place(config, tls).read().err()?;
        Some(tls::describe(TLS, &fault))
    });
    let tokens = config.admin.auth.as_ref().and_then(|auth| {
        let place = token_place(auth)?;
        Some(describe_token(&place.read().err()?))
    });
    tls.into_iter().chain(tokens).collect()
}

impl AdminServer {
    /// Reads the files of `admin`, and watches them from then on.
    ///
    /// # Errors
    /// A file that cannot be used, with its key.
    pub(super) fn new(bound: server::Listener, config: &Config, metrics: &TlsMetrics) -> Result<AdminServer> {
        let admin = &config.admin;
        let listener = match &admin.tls {
            None => bound,
            Some(tls) => {
                let watched = tls_place(config, tls).watch(metrics.clone());
                let watched = watched.map_err(|fault| anyhow!(tls::describe(TLS, &fault)))?;
                bound.with_tls(watched, tls.on_client_expiry == OnClientExpiry::End)
            }
        };
        let watch = |auth: &Auth| {
            let watched = token_place(auth)?.watch(metrics.clone());
            Some(watched.map_err(|fault| anyhow!(describe_token(&fault))))
        };
        let tokens = admin.auth.as_ref().and_then(watch).transpose()?;
        let limits = &config.limits.server;
        let tls_handshakes_per_second = limits.tls_handshakes_per_second.min(HANDSHAKES_PER_SECOND);
        let limits = InForce::new(ServerLimits { tls_handshakes_per_second, ..limits.clone() });
        let doorway = Doorway::new(listener, limits, metrics.clone());
        Ok(AdminServer { doorway, settings: InForce::new(settings(config)?), tokens })
    }

    pub(super) async fn serve(
        self,
        relay: Relay,
        process: Process,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) {
        let AdminServer { doorway, settings, tokens } = self;
        Admin::serve(doorway, settings, tokens, Arc::new(relay), process, metrics, stop).await;
    }
}

impl Entrance for Doorway {
    type Io = Box<dyn Duplex>;

    async fn accept(&mut self) -> Proving<Box<dyn Duplex>> {
        let proof = Doorway::accept(self).await;
        let guest = |Visitor { io, address, uid, identity, end }| Guest {
            io,
            peer: Peer { address, uid, identity },
            end,
        };
        proof.map(move |visitor| visitor.map(guest)).boxed()
    }
}

fn settings(config: &Config) -> io::Result<AdminSettings> {
    let admin = &config.admin;
    let reach = match &admin.address {
        Address::Unix { .. } => Reach::Unix { owner: own_user()? },
        address if address.is_local() => Reach::Loopback,
        Address::Tcp(_) => Reach::Network { has_tls: admin.tls.is_some() },
    };
    Ok(AdminSettings {
        hosts: admin.hosts.clone(),
        ready_requires_upstream: admin.ready_requires_upstream,
        content: admin.content,
        access: Access { reach, auth: admin.auth.clone() },
        about: About { node: config.node.id.clone(), config_hash: config.hash.clone() },
    })
}

/// The user of this process, as the kernel tells the other end of a unix socket.
fn own_user() -> io::Result<u32> {
    let (one, _other) = UnixStream::pair()?;
    Ok(one.peer_cred()?.uid())
}

fn tls_place(config: &Config, tls: &ServerTls) -> Place<Generation> {
    let (settings, limits) = (tls.clone(), config.limits.server.client_chain);
    Place {
        name: TLS.to_owned(),
        files: tls.files(),
        refresh: tls.refresh_interval,
        build: Arc::new(move |contents: &Contents, in_force: Option<&Generation>, now| {
            Generation::read(&settings, limits, contents, in_force, now)
        }),
    }
}

/// `None` without tokens.
fn token_place(auth: &Auth) -> Option<Place<Tokens>> {
    let files: Vec<TokenFile> = auth.tokens.iter().map(|grant| grant.file.clone()).collect();
    if files.is_empty() {
        return None;
    }
    Some(Place {
        name: AUTH.to_owned(),
        files: place_files(&files),
        refresh: REFRESH_INTERVAL.default,
        build: Arc::new(move |contents: &Contents, _: Option<&Tokens>, _: SystemTime| {
            Tokens::read(&files, contents)
        }),
    })
}

fn describe_token(fault: &Fault) -> String {
    format!("{AUTH}.{}: {fault}", fault.key)
}
