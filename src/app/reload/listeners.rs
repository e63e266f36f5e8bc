//! The way from the listeners in service to those of another configuration: a socket stays where its address
//! stays.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, anyhow};
use tracing::warn;

use crate::admin::reloading::ListenerChanges;
use crate::app::handover::{AdoptedConnections, Ways};
use crate::app::sockets::{LiveListener, bind};
use crate::app::tls::{self, LiveTls};
use crate::config::{Address, Config};
use crate::driver::Relay;
use crate::server::Listener;
use crate::server::listening::Listening;
use crate::telemetry::metrics::TlsMetrics;
use crate::trust::rotation::Prepared;
use crate::trust::server::ServerFiles;

/// The listeners of the next configuration, ready and not yet in service.
pub(super) struct NextListeners {
    /// In the order of the configuration.
    steps: Vec<ListenerStep>,
    /// Listeners in service whose socket has no successor.
    removed: Vec<usize>,
    pub changes: ListenerChanges,
}

enum ListenerStep {
    /// The listener stays, with other options, and maybe other files.
    Keep { from: usize, files: Option<Prepared<ServerFiles>> },
    /// The socket stays. The connections leave, because of another name, or other security.
    Take { from: usize, files: Option<Prepared<ServerFiles>> },
    /// `None` in a plan.
    Open { socket: Option<Listener>, files: Option<Prepared<ServerFiles>> },
}

fn is_same_socket(a: &Address, b: &Address) -> bool {
    match (a, b) {
        (Address::Unix { path: a, .. }, Address::Unix { path: b, .. }) => a == b,
        _ => a == b,
    }
}

/// Binds new addresses and reads certificates. `ways`: the sockets of the process, `None` in a plan.
/// `has_files`: false for a text whose files stay closed.
///
/// # Errors
/// The address or the file that cannot be used.
pub(super) fn prepare(
    live: &[LiveListener],
    before: &Config,
    config: &Config,
    ways: Option<&Ways>,
    has_files: bool,
) -> Result<NextListeners> {
    let files = |index, listener| if has_files { tls::prepare(config, index, listener) } else { Ok(None) };
    let (mut steps, mut changes) = (Vec::new(), ListenerChanges::default());
    let mut followed = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        let from = live.iter().position(|open| is_same_socket(&open.config.address, &listener.address));
        let name = listener.name.to_string();
        let Some(from) = from else {
            check_beside(live, listener)?;
            let open =
                |ways| bind(&listener.name, &listener.address, &mut AdoptedConnections::default(), ways);
            let socket = ways.map(open).transpose()?;
            steps.push(ListenerStep::Open { socket, files: files(index, listener)? });
            let was = live.iter().any(|open| open.config.name == listener.name);
            if was {
                changes.moved.push(name)
            } else {
                changes.added.push(name)
            }
            continue;
        };
        followed.push(from);
        let old = &live[from].config;
        if old.name == listener.name && old.tls.is_some() == listener.tls.is_some() {
            let chain = |config: &Config| config.limits.server.client_chain;
            let is_same = old.tls == listener.tls && chain(before) == chain(config);
            let files = if is_same { None } else { files(index, listener)? };
            steps.push(ListenerStep::Keep { from, files });
        } else {
            steps.push(ListenerStep::Take { from, files: files(index, listener)? });
            changes.moved.push(name);
        }
    }
    let removed: Vec<usize> = (0..live.len()).filter(|index| !followed.contains(index)).collect();
    let is_listed = |name: &str| config.listeners.iter().any(|listener| &*listener.name == name);
    let gone = removed.iter().map(|index| live[*index].config.name.to_string());
    changes.removed = gone.filter(|name| !is_listed(name)).collect();
    Ok(NextListeners { steps, removed, changes })
}

/// An address beside a colliding socket in service can only be bound after the end of the socket, too late
/// for a way back.
fn check_beside(live: &[LiveListener], listener: &crate::config::ListenerSettings) -> Result<()> {
    let Some(other) = live.iter().find(|open| open.config.address.collides(&listener.address)) else {
        return Ok(());
    };
    Err(anyhow!(
        "listener {} cannot listen on {} while listener {} has {}; remove that one by one reload, and add this one by the \
         next",
        listener.name,
        listener.address,
        other.config.name,
        other.config.address
    ))
}

impl NextListeners {
    /// Puts the listeners in service. Connections of listeners that stay notice nothing (REL-5).
    pub(super) async fn commit(
        self,
        live: &[LiveListener],
        listening: &Listening<Relay>,
        config: &Config,
        metrics: &TlsMetrics,
    ) -> Vec<LiveListener> {
        for index in &self.removed {
            if let Some(closed) = listening.close(&live[*index].config.name).await {
                drop(listening.leave(closed));
            }
        }
        // All names are free before a listener gets one.
        let mut taken = Vec::new();
        for step in &self.steps {
            let ListenerStep::Take { from, .. } = step else { continue };
            if let Some(closed) = listening.close(&live[*from].config.name).await {
                taken.push((*from, listening.leave(closed)));
            }
        }
        let mut now = Vec::new();
        for (step, listener) in self.steps.into_iter().zip(&config.listeners) {
            let next = match step {
                ListenerStep::Keep { from, files } => keep(&live[from], listener, files, metrics),
                ListenerStep::Take { from, files } => {
                    let socket = taken.iter().position(|(index, _)| *index == from);
                    let socket = socket.map(|index| taken.swap_remove(index).1);
                    set_mode(&live[from].config.address, &listener.address);
                    open(socket, listener, files, listening, metrics)
                }
                ListenerStep::Open { socket, files } => open(socket, listener, files, listening, metrics),
            };
            now.extend(next);
        }
        now
    }
}

fn keep(
    live: &LiveListener,
    listener: &crate::config::ListenerSettings,
    files: Option<Prepared<ServerFiles>>,
    metrics: &TlsMetrics,
) -> Option<LiveListener> {
    set_mode(&live.config.address, &listener.address);
    if live.config.options != listener.options {
        live.options.publish(listener.options);
    }
    if let (Some(tls), Some(files), Some(settings)) = (&live.tls, files, &listener.tls) {
        tls.replace(files, settings, metrics);
    }
    Some(LiveListener { config: listener.clone(), ..live.clone() })
}

fn open(
    socket: Option<Listener>,
    listener: &crate::config::ListenerSettings,
    files: Option<Prepared<ServerFiles>>,
    listening: &Listening<Relay>,
    metrics: &TlsMetrics,
) -> Option<LiveListener> {
    let Some(socket) = socket else {
        // The accept loop of the old listener has failed. The next reload binds the address.
        warn!(listener = %listener.name, "the socket of the listener is lost; reload again");
        return None;
    };
    let socket = socket.renamed(&listener.name, listener.options);
    let options = socket.options();
    let tls =
        files.zip(listener.tls.as_ref()).map(|(files, settings)| LiveTls::new(files, settings, metrics));
    let socket = match &tls {
        Some(tls) => tls.protect(socket),
        None => socket,
    };
    listening.open(socket);
    Some(LiveListener { config: listener.clone(), options, tls })
}

/// Gives the file of a unix socket its other permissions.
fn set_mode(before: &Address, now: &Address) {
    let (Address::Unix { mode: before, .. }, Address::Unix { path, mode }) = (before, now) else { return };
    if before == mode {
        return;
    }
    if let Err(error) = fs::set_permissions(path, fs::Permissions::from_mode(*mode)) {
        warn!(path = %path.display(), %error, "cannot change the permissions of a socket");
    }
}
