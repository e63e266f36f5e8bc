//! The policy of authorization, and its file while the relay runs (AUT-12).

use std::fs::Metadata;
use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::config::{self, Authorization, Config};
use crate::driver::Relay;
use crate::engine::authorization::{Mode, Policy};
use crate::telemetry::events::{Events, Kind, Occurrence};

/// A file is looked at this often, and read when two looks in a row found it the same. Open streams are then judged
/// within 5 s, and a file that is written in place is not read halfway.
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
        path: file.clone(),
        listeners,
        in_force: policy.clone(),
        refused: None,
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
    path: PathBuf,
    listeners: Vec<String>,
    in_force: Policy,
    /// The reason why the last content is not used. Each reason is logged once.
    refused: Option<String>,
    events: Events,
}

/// Tells contents apart without reading them. Links are followed, so a swap of `..data` shows.
#[derive(PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            inode: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl PolicyFile {
    async fn watch(mut self, relay: Relay) {
        // The start has read the file, but maybe another content than there is now.
        let (mut read, mut last): (Option<Stamp>, Option<Stamp>) = (None, None);
        loop {
            sleep(LOOK).await;
            let found = stamp(&self.path).await;
            if let Err(error) = &found {
                self.refuse(error.to_string());
            }
            let found = found.ok();
            if found.is_some() && found == last && found != read {
                read = found;
                self.reload(&relay).await;
            } else {
                last = found;
            }
        }
    }

    /// Reads the file, and puts its policy in force. A bad file changes nothing.
    async fn reload(&mut self, relay: &Relay) {
        let (path, listeners) = (self.path.clone(), self.listeners.clone());
        let load = move || {
            let names: Vec<&str> = listeners.iter().map(String::as_str).collect();
            config::load_policy(&path, &names).map_err(|error| error.to_string())
        };
        let loaded = tokio::task::spawn_blocking(load).await.map_err(|error| error.to_string());
        let policy = match loaded.and_then(|loaded| loaded) {
            Ok(policy) => policy,
            Err(reason) => return self.refuse(reason),
        };
        self.refused = None;
        if policy == self.in_force {
            return;
        }
        self.in_force = policy.clone();
        let rules = policy.rules().len();
        announce(Some(&policy));
        let ended = relay.authorize(policy).await;
        let event = Occurrence::info(Kind::Reload, "reloaded the rules of authorization");
        let event = event.detail(format_args!("{rules} rules; {ended} streams ended"));
        self.events.add(event.place(self.path.display()));
        info!(file = %self.path.display(), rules, ended, "reloaded the rules of authorization; `ended`: streams that \
            lost a right, or may ask again for a name that was denied");
    }

    fn refuse(&mut self, reason: String) {
        if self.refused.as_ref() != Some(&reason) {
            let event = Occurrence::warn(Kind::Reload, "cannot use the rules of authorization");
            self.events.add(event.place(self.path.display()).detail(&reason));
            warn!(file = %self.path.display(), %reason, "cannot use the rules of authorization; the last good rules \
                stay in force");
            self.refused = Some(reason);
        }
    }
}

async fn stamp(path: &Path) -> io::Result<Stamp> {
    Ok(Stamp::of(&tokio::fs::metadata(path).await?))
}
