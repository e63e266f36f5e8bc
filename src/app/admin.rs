//! The admin server: socket, files, and settings.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Result, anyhow};
use futures_util::FutureExt;
use tokio::net::UnixStream;

use super::tls::{self, LiveTls};
use crate::admin::access::{Access, Auth, ListenerReach};
use crate::admin::entrance::{AdminPeer, Entrance, Guest, Proving};
use crate::admin::{self, About, AdminSettings, Process, Shutdown};
use crate::config::{Address, Config};
use crate::driver::Relay;
use crate::server::{self, Doorway, DoorwaySecurity, Duplex, ServerLimits, Visitor};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::contents::Contents;
use crate::trust::fault::Fault;
use crate::trust::rotation::{Prepared, Watched, WatchedPlace};
use crate::trust::server::settings::REFRESH_INTERVAL;
use crate::trust::server::{ServerFiles, ServerTls};
use crate::trust::tokens::{TokenFile, Tokens, place_files};
use sluice_setting::InForce;

/// TLS handshakes a second. Operators, probes and scrapers need some ten; a stranger takes a fifth of a core
/// with these.
const HANDSHAKES_PER_SECOND: u32 = 500;

const TLS: &str = "admin.tls";
const AUTH: &str = "admin.auth";

/// The bound admin server.
pub(super) struct AdminServer {
    doorway: Doorway,
    live: LiveAdmin,
}

/// The parts of the admin server that another configuration changes.
#[derive(Clone)]
pub(super) struct LiveAdmin {
    settings: InForce<AdminSettings>,
    limits: InForce<ServerLimits>,
    security: DoorwaySecurity,
    /// `None`: plaintext.
    tls: Option<LiveTls>,
}

/// The admin server of the next configuration. Files of unchanged keys stay under their watch.
pub(super) struct NextAdmin {
    settings: AdminSettings,
    tls: FileChange<ServerFiles>,
    tokens: FileChange<Tokens>,
}

enum FileChange<T> {
    Same,
    /// `None`: no files any more.
    Other(Option<Prepared<T>>),
}

impl NextAdmin {
    /// `has_files`: false for a text whose files stay closed.
    ///
    /// # Errors
    /// A file that cannot be used, with the key.
    pub(super) fn prepare(
        live: &LiveAdmin,
        before: &Config,
        config: &Config,
        has_files: bool,
    ) -> Result<NextAdmin> {
        let chain = |config: &Config| config.limits.server.client_chain;
        let is_same = before.admin.tls == config.admin.tls && chain(before) == chain(config);
        let tls =
            if is_same || !has_files { FileChange::Same } else { FileChange::Other(prepare_tls(config)?) };
        let is_same = token_files(before) == token_files(config);
        let tokens =
            if is_same || !has_files { FileChange::Same } else { FileChange::Other(prepare_tokens(config)?) };
        let watched = live.settings.get().tokens.clone();
        Ok(NextAdmin { settings: settings(config, watched)?, tls, tokens })
    }
}

impl LiveAdmin {
    pub(super) fn commit(&mut self, next: NextAdmin, config: &Config, metrics: &TlsMetrics) {
        let NextAdmin { mut settings, tls, tokens } = next;
        self.limits.publish(limits(config));
        match (tls, &config.admin.tls) {
            (FileChange::Same, _) => {}
            (FileChange::Other(Some(files)), Some(tls)) => match &self.tls {
                Some(live) => live.replace(files, tls, metrics),
                None => {
                    let live = LiveTls::new(files, tls, metrics);
                    self.security.put_tls(live.watched.clone(), live.ends_at_expiry.clone());
                    self.tls = Some(live);
                }
            },
            (FileChange::Other(_), _) => {
                self.security.put_plaintext();
                self.tls = None;
            }
        }
        if let FileChange::Other(files) = tokens {
            settings.tokens = files.map(|files| files.watch(metrics.clone()));
        }
        self.settings.publish(settings);
    }
}

/// The unusable files of `admin`: a line each, beginning with the key.
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
        let files = prepare_tls(config)?.zip(config.admin.tls.as_ref());
        let tls = files.map(|(files, tls)| LiveTls::new(files, tls, metrics));
        let listener = match &tls {
            Some(tls) => tls.protect(bound),
            None => bound,
        };
        let tokens = prepare_tokens(config)?.map(|files| files.watch(metrics.clone()));
        let limits = InForce::new(limits(config));
        let doorway = Doorway::new(listener, limits.clone(), metrics.clone());
        let settings = InForce::new(settings(config, tokens)?);
        let security = doorway.security();
        Ok(AdminServer { doorway, live: LiveAdmin { settings, limits, security, tls } })
    }

    pub(super) fn live(&self) -> LiveAdmin {
        self.live.clone()
    }

    pub(super) async fn serve(self, relay: Relay, process: Process, metrics: Arc<Metrics>, stop: Shutdown) {
        let AdminServer { doorway, live } = self;
        admin::serve(doorway, live.settings, Arc::new(relay), process, metrics, stop).await;
    }
}

fn limits(config: &Config) -> ServerLimits {
    let limits = &config.limits.server;
    let tls_handshakes_per_second = limits.tls_handshakes_per_second.min(HANDSHAKES_PER_SECOND);
    ServerLimits { tls_handshakes_per_second, ..limits.clone() }
}

fn prepare_tls(config: &Config) -> Result<Option<Prepared<ServerFiles>>> {
    let prepare = |tls| tls_place(config, tls).prepare();
    let prepared = config.admin.tls.as_ref().map(prepare).transpose();
    prepared.map_err(|fault| anyhow!(tls::describe(TLS, &fault)))
}

fn prepare_tokens(config: &Config) -> Result<Option<Prepared<Tokens>>> {
    let place = config.admin.auth.as_ref().and_then(token_place);
    let prepared = place.map(WatchedPlace::prepare).transpose();
    prepared.map_err(|fault| anyhow!(describe_token(&fault)))
}

fn token_files(config: &Config) -> Vec<TokenFile> {
    let tokens = config.admin.auth.iter().flat_map(|auth| &auth.tokens);
    tokens.map(|grant| grant.file.clone()).collect()
}

impl Entrance for Doorway {
    type Io = Box<dyn Duplex>;

    async fn accept(&mut self) -> Proving<Box<dyn Duplex>> {
        let proof = Doorway::accept(self).await;
        let guest = |Visitor { io, address, uid, identity, selected_http2, end }| Guest {
            io,
            peer: AdminPeer { address, uid, identity },
            selected_http2,
            end,
        };
        proof.map(move |visitor| visitor.map(guest)).boxed()
    }
}

fn settings(config: &Config, tokens: Option<Watched<Tokens>>) -> io::Result<AdminSettings> {
    let admin = &config.admin;
    let reach = match &admin.address {
        Address::Unix { .. } => ListenerReach::Unix { owner: own_user()? },
        address if address.is_local() => ListenerReach::Loopback,
        Address::Tcp(_) => ListenerReach::Network { has_tls: admin.tls.is_some() },
    };
    Ok(AdminSettings {
        hosts: admin.hosts.clone(),
        ready_requires_upstream: admin.ready_requires_upstream,
        content: admin.content,
        access: Access { reach, auth: admin.auth.clone() },
        tokens,
        about: About { node: config.node.id.clone() },
    })
}

/// The user of this process, as the kernel tells the other end of a unix socket.
fn own_user() -> io::Result<u32> {
    let (one, _other) = UnixStream::pair()?;
    Ok(one.peer_cred()?.uid())
}

fn tls_place(config: &Config, tls: &ServerTls) -> WatchedPlace<ServerFiles> {
    let (settings, limits) = (tls.clone(), config.limits.server.client_chain);
    WatchedPlace {
        name: TLS.to_owned(),
        files: tls.files(),
        refresh: tls.refresh_interval,
        build: Arc::new(move |contents: &Contents, in_force: Option<&ServerFiles>, now| {
            ServerFiles::read(&settings, limits, contents, in_force, now)
        }),
    }
}

/// `None` without tokens.
fn token_place(auth: &Auth) -> Option<WatchedPlace<Tokens>> {
    let files: Vec<TokenFile> = auth.tokens.iter().map(|grant| grant.file.clone()).collect();
    if files.is_empty() {
        return None;
    }
    Some(WatchedPlace {
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
