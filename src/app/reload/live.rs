//! The parts of the running process that another configuration changes.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::next::{Next, Preparation};
use crate::app::admin::LiveAdmin;
use crate::app::authorization;
use crate::app::base::Base;
use crate::app::facts;
use crate::app::servers::Channels;
use crate::app::settings::server_limits;
use crate::app::sockets::{LiveListener, listener_files};
use crate::app::tls::Certificates;
use crate::config::{Authorization, Config};
use crate::driver::Relay;
use crate::server::ServerLimits;
use crate::server::listening::Listening;
use sluice_setting::InForce;

pub(in crate::app) struct Live {
    pub base: Arc<Base>,
    pub relay: Relay,
    pub limits: InForce<ServerLimits>,
    pub listening: Listening<Relay>,
    pub listeners: Vec<LiveListener>,
    pub channels: Channels,
    pub admin: LiveAdmin,
    pub certificates: InForce<Certificates>,
    /// Follows the file of the policy, if there is one.
    pub policy: Option<AbortOnDropHandle<()>>,
    /// Follows the source of the facts, if there is one.
    pub facts: Option<facts::FollowedFacts>,
}

impl Live {
    /// Everything that the preparation of another configuration looks at. `generation`: its number.
    pub(super) fn preparation(&self, before: &Config, generation: u64) -> Preparation {
        Preparation {
            before: before.clone(),
            generation,
            channels: self.channels.clone(),
            listeners: self.listeners.clone(),
            admin: self.admin.clone(),
            facts: self.relay.facts(),
            metrics: self.base.metrics.clone(),
            ways: self.base.ways.clone(),
        }
    }

    /// Puts a configuration in force: nothing here can fail.
    pub(super) async fn commit(&mut self, before: &Config, config: &Config, next: Next) {
        // A key that this function forgets does not compile.
        let Config {
            node: _,
            servers: _,
            node_classes: _,
            facts: _,
            rollouts: _,
            proof: _,
            history: _,
            authorization,
            listeners,
            admin: _,
            log: _,
            limits,
            source: _,
            encoded_bytes: _,
            checkpoint: _,
            ledger: _,
            traces: _,
            drain: _,
            drain_delay: _,
            handover: _,
            reload: _,
            hash: _,
        } = config;
        let Next { mut driver, channels, listeners: next_listeners, admin, traces, facts } = next;
        let tls = &self.base.metrics.downstream.tls;

        self.base.configure(config);
        if let Some(traces) = traces {
            self.base.metrics.traces.configure(traces);
        }
        self.limits.publish(server_limits(&limits.server, self.base.ending.connections()));
        self.admin.commit(admin, config, tls);

        channels.configure();
        match facts {
            Some(opened) => {
                if let Some(previous) = self.facts.take() {
                    previous.end().await;
                }
                self.relay.configure(driver);
                self.facts = facts::follow(&self.relay, config, &self.base.metrics, opened);
            }
            None => {
                let held = match &self.facts {
                    Some(following) => Some(following.hold().await),
                    None => None,
                };
                driver.classes = driver.classes.with_facts(self.relay.facts());
                self.relay.configure(driver);
                drop(held);
                facts::tell_missing(&self.relay, &[]);
            }
        }
        self.channels = channels;
        self.listeners = next_listeners.commit(&self.listeners, &self.listening, config, tls).await;
        let (of_listeners, of_servers) = (listener_files(&self.listeners), self.channels.files());
        self.certificates.publish(Certificates { listeners: of_listeners, servers: of_servers });

        let names = |listeners: &[crate::config::ListenerSettings]| -> Vec<Arc<str>> {
            listeners.iter().map(|listener| listener.name.clone()).collect()
        };
        if before.authorization != *authorization || names(&before.listeners) != names(listeners) {
            self.authorize(authorization, config).await;
        }
    }

    async fn authorize(&mut self, authorization: &Authorization, config: &Config) {
        self.policy = None;
        let ended = self.relay.authorize(authorization.policy().cloned().unwrap_or_default()).await;
        if ended > 0 {
            warn!(ended, "the rules of authorization have changed; ended streams that lost a right");
        }
        let follow = authorization::follow(&self.relay, config, &self.base.metrics.events);
        self.policy = follow.map(|follow| AbortOnDropHandle::new(tokio::spawn(follow)));
    }
}
