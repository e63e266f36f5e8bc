//! The parts of a configuration, before a client is served. An error leaves nothing behind.

use std::io;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tokio_util::task::AbortOnDropHandle;

use super::admin::AdminServer;
use super::authorization;
use super::base::Base;
use super::facts;
use super::handover::AdoptedConnections;
use super::handover::successor::Predecessor;
use super::servers::{self, Channels};
use super::settings::{default_response_bytes, relay_settings, server_limits};
use super::sockets::{LiveListener, bind};
use crate::config::Config;
use crate::driver::Relay;
use crate::driver::ground::context::{DriverSettings, LedgerParts};
use crate::ledger::{EtcdLedger, KubernetesLedger, Ledger, LedgerSettings, LedgerStore};
use crate::server::{self, Server};
use crate::telemetry::Metrics;
use sluice_fleet::rollout::ledger::{JoinPolicy, Replica};

pub(super) struct Parts {
    pub relay: Relay,
    pub channels: Channels,
    /// Follows the file of the policy, if there is one.
    pub policy: Option<AbortOnDropHandle<()>>,
    /// Follows the source of the facts, if there is one.
    pub facts: Option<facts::FollowedFacts>,
    /// The sockets of the listeners, in the same order.
    pub sockets: Vec<server::Listener>,
    pub listeners: Vec<LiveListener>,
    pub admin: AdminServer,
    pub server: Server<Relay>,
}

impl Parts {
    /// Reads data on disk and certificates, and binds the addresses.
    ///
    /// `pool`: sockets that others have bound. `predecessor`: passes its state on.
    pub(super) async fn build(
        config: &Config,
        base: &Base,
        pool: &mut AdoptedConnections,
        mut predecessor: Option<&mut Predecessor>,
    ) -> Result<Parts> {
        let metrics = &base.metrics;
        let (lists, channels) =
            servers::lists(&config.servers, default_response_bytes(config), metrics, &Channels::default())?;
        let facts = facts::open(config, facts::AT_START).await.map_err(io::Error::other)?;
        let ledger = open_ledger(config, metrics)?;
        let settings = DriverSettings { ledger, ..relay_settings(config, lists, facts.table.clone(), 1) };
        let relay = Relay::new(settings, metrics.clone());
        if let Some(predecessor) = &mut predecessor {
            relay.await_decisions();
            predecessor.pass_lock(&relay).await;
        }
        // Only a directory has files to load. Errors there belong to the host, as with sockets.
        if let Err((uri, status)) = relay.load().await {
            return Err(io::Error::other(status.message)).context(uri);
        }

        let policy = authorization::follow(&relay, config, &metrics.events);
        let policy = policy.map(|follow| AbortOnDropHandle::new(tokio::spawn(follow)));
        let facts = facts::follow(&relay, config, metrics, facts);

        let (mut sockets, mut listeners) = (Vec::new(), Vec::new());
        for (index, listener) in config.listeners.iter().enumerate() {
            let bound = bind(&listener.name, &listener.address, pool, &base.ways)?;
            let (live, socket) = LiveListener::new(bound, config, index, &metrics.downstream.tls)?;
            sockets.push(socket);
            listeners.push(live);
        }
        let admin = bind("admin", &config.admin.address, pool, &base.ways)?;
        if let Some(name) = pool.unwanted().first() {
            bail!("LISTEN_FDNAMES: the socket {name} fits no listener, by name or by address");
        }
        relay.tell_admin_address(admin.address());
        let admin = AdminServer::new(admin, config, &metrics.downstream.tls)?;
        let limits = server_limits(&config.limits.server, base.ending.connections());
        let server = Server::new(Arc::new(relay.clone()), limits, metrics.downstream.clone());
        if let Some(predecessor) = predecessor {
            predecessor.inherit(&relay).await.map_err(io::Error::other)?;
        }
        Ok(Parts { relay, channels, policy, facts, sockets, listeners, admin, server })
    }
}

/// The ledger of the configuration, and this process among its replicas.
fn open_ledger(config: &Config, metrics: &Metrics) -> Result<Option<LedgerParts>> {
    let Some(LedgerSettings { replica, lease, newcomers_wait, store }) = &config.ledger else {
        return Ok(None);
    };
    let (ledger, kind): (Arc<dyn Ledger>, _) = match store {
        LedgerStore::Local => return Ok(None),
        LedgerStore::Etcd(etcd) => {
            let ledger = EtcdLedger::new(etcd, *lease, metrics).context("ledger.etcd.tls")?;
            (Arc::new(ledger), "etcd")
        }
        LedgerStore::Kubernetes(settings) => {
            (Arc::new(KubernetesLedger::new(settings, replica, *lease, metrics)), "kubernetes")
        }
    };
    let join = if *newcomers_wait { JoinPolicy::Wait } else { JoinPolicy::Live };
    let (name, process) = (replica.as_str().into(), fastrand::u64(..));
    let replica = Replica { name, process, lease: *lease, join };
    Ok(Some(LedgerParts { ledger, replica, believed: metrics.ledger.believed(kind) }))
}
