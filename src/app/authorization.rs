//! The policy of authorization, and its file while the relay runs (AUT-12).

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use tracing::warn;

use super::watched_file::{Look, WatchedFile};
use crate::config::{self, Authorization, Config};
use crate::driver::Relay;
use crate::telemetry::events::{Events, tell};
use sluice_engine::authorization::{Mode, Policy};

/// Open streams are judged within 5 s after the file has changed.
const LOOK: Duration = Duration::from_secs(1);

/// Warns of a policy without effect, and returns the task that follows the policy's file, if there is one.
pub(super) fn follow(
    relay: &Relay,
    config: &Config,
    events: &Events,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    announce(config.authorization.policy());
    let Authorization::File(file, policy) = &config.authorization else { return None };
    let listeners = config.listeners.iter().map(|listener| listener.name.to_string()).collect();
    let file = PolicyFile {
        file: WatchedFile::new(file.clone(), LOOK),
        listeners,
        in_force: policy.clone(),
        events: events.clone(),
    };
    Some(file.watch(relay.clone()))
}

fn announce(policy: Option<&Policy>) {
    if policy.and_then(Policy::mode) == Some(Mode::Report) {
        warn!("authorization has `mode: report`: denials are counted and logged, and nothing is denied");
    }
}

struct PolicyFile {
    file: WatchedFile,
    listeners: Vec<String>,
    in_force: Policy,
    events: Events,
}

impl PolicyFile {
    async fn watch(mut self, relay: Relay) {
        loop {
            let listeners = self.listeners.clone();
            let load = move |path: &Path| {
                let names: Vec<&str> = listeners.iter().map(String::as_str).collect();
                config::load_policy(path, &names)
            };
            match self.file.look(load).await {
                Look::Content(policy) => self.take(policy, &relay).await,
                Look::Fault(reason) => self.tell(&reason),
                Look::Confirmed | Look::Nothing => {}
            }
        }
    }

    async fn take(&mut self, policy: Policy, relay: &Relay) {
        if policy == self.in_force {
            return;
        }
        self.in_force = policy.clone();
        let rules = policy.rules().len();
        announce(Some(&policy));
        let ended = relay.authorize(policy).await;
        let file = self.file.path().display();
        tell!(self.events, info(Reload, "reloaded the rules of authorization")
            .detail(format_args!("{rules} rules; {ended} streams ended")).place(&file);
            { %file, rules, ended }
            + "; `ended`: streams that lost a right, or may ask again for a name that was denied");
    }

    fn tell(&self, reason: &str) {
        let file = self.file.path().display();
        tell!(self.events, warn(Reload, "cannot use the rules of authorization").place(&file).detail(reason);
            { %file, reason } + "; the last good rules stay in force");
    }
}
