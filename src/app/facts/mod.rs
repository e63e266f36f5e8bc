//! The facts of clients, and their source while the relay runs.

mod cluster;
mod file;
mod keeper;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use self::keeper::FactKeeper;
use crate::config::{self, Config, FactsSource};
use crate::driver::Relay;
use crate::kubernetes::{PodRegistry, RegistryNews};
use crate::telemetry::{Metrics, wall_now};
use sluice_engine::class::facts::FactTable;
use sluice_engine::class::{MetadataParts, NodeClasses};

/// The time for all Pods of a cluster, before a start goes on without. Less than the time of a new process in
/// an upgrade.
pub(super) const AT_START: Duration = Duration::from_secs(20);
/// The time for all Pods of a cluster in a reload, which has 10 s for everything.
pub(super) const AT_RELOAD: Duration = Duration::from_secs(7);
/// The same after a fault: the next attempt may succeed.
const AFTER_FAULT: Duration = Duration::from_secs(2);

/// A source that was opened, and its facts.
pub(super) struct Opened {
    pub table: Arc<FactTable>,
    /// The table is not that of the source: nothing is known yet.
    is_absent: bool,
    /// The last fault of the source.
    fault: Option<String>,
    source: FactsOrigin,
}

enum FactsOrigin {
    Nowhere,
    File,
    Cluster(Box<PodRegistry>),
}

impl Opened {
    /// The reason why nothing is known, with the key.
    pub fn refusal(&self) -> Option<String> {
        let fault = self.fault.as_ref().filter(|_| self.is_absent)?;
        Some(format!("facts.kubernetes: {fault}"))
    }
}

/// Follows the source of the facts, until it is dropped.
pub(super) struct FollowedFacts {
    turn: Arc<Mutex<()>>,
    task: AbortOnDropHandle<()>,
}

impl FollowedFacts {
    /// Nobody else changes the facts while the guard lives.
    pub async fn hold(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    pub async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Reads the facts of a file, and whether a cluster can be asked. A cluster is not asked: nothing is known of
/// its Pods then.
///
/// # Errors
/// The fault of the file, beginning with the key.
pub(super) fn load(config: &Config) -> Result<Arc<FactTable>, String> {
    match &config.facts {
        None => Ok(Arc::default()),
        Some(FactsSource::File(file)) => load_file(file),
        Some(FactsSource::Kubernetes(interest)) => {
            let checked = interest.access.check();
            checked.map(|()| Arc::default()).map_err(|fault| format!("facts.kubernetes.kubeconfig: {fault}"))
        }
    }
}

fn load_file(file: &Path) -> Result<Arc<FactTable>, String> {
    config::load_facts(file).map(Arc::new).map_err(|error| format!("facts.file: {}", error.in_file(file)))
}

/// The facts of a configuration that does not come into force: no cluster is asked.
///
/// # Errors
/// The fault of the file, beginning with the key.
pub(super) fn planned(config: &Config) -> Result<Opened, String> {
    Ok(Opened { table: load(config)?, is_absent: false, fault: None, source: FactsOrigin::Nowhere })
}

/// Reads the facts. Those of a cluster have a time, and then the fault is a part of the result.
///
/// # Errors
/// The fault of a file, beginning with the key.
pub(super) async fn open(config: &Config, limit: Duration) -> Result<Opened, String> {
    let table = load(config)?;
    let interest = match &config.facts {
        None => return Ok(Opened { table, is_absent: false, fault: None, source: FactsOrigin::Nowhere }),
        Some(FactsSource::File(_)) => {
            return Ok(Opened { table, is_absent: false, fault: None, source: FactsOrigin::File });
        }
        Some(FactsSource::Kubernetes(interest)) => interest,
    };
    let mut registry = Box::new(PodRegistry::new(interest));
    let (mut end, mut fault) = (Instant::now() + limit, None);
    let table = loop {
        match timeout_at(end, registry.next()).await {
            Ok(RegistryNews::Facts(table)) => break Some(table),
            Ok(RegistryNews::Confirmed | RegistryNews::Refused(_)) => {}
            Ok(RegistryNews::Fault(reason)) => {
                end = end.min(Instant::now() + AFTER_FAULT);
                fault = Some(reason);
            }
            Err(_) => break None,
        }
    };
    let is_absent = table.is_none();
    if is_absent && fault.is_none() {
        fault = Some(format!("the lists are not complete after {} s", limit.as_secs()));
    }
    Ok(Opened { table: table.unwrap_or_default(), is_absent, fault, source: FactsOrigin::Cluster(registry) })
}

/// Tells what the facts in force lack, and follows their source, if there is one.
pub(super) fn follow(
    relay: &Relay,
    config: &Config,
    metrics: &Arc<Metrics>,
    opened: Opened,
) -> Option<FollowedFacts> {
    metrics.facts.in_force(opened.table.len());
    let turn = Arc::new(Mutex::new(()));
    let mut keeper = FactKeeper::new(relay, metrics, opened.table, turn.clone());
    let task = match (&config.facts, opened.source) {
        (Some(FactsSource::File(path)), _) => {
            metrics.facts.confirmed(wall_now());
            keeper.tell_missing();
            tokio::spawn(file::follow(path.clone(), keeper))
        }
        (Some(FactsSource::Kubernetes(_)), FactsOrigin::Cluster(registry)) => {
            match &opened.fault {
                Some(fault) if opened.is_absent => keeper.tell_absent(fault),
                Some(fault) => keeper.tell("kubernetes", fault),
                None => keeper.confirm(),
            }
            if !opened.is_absent {
                keeper.tell_missing();
            }
            tokio::spawn(cluster::follow(*registry, keeper))
        }
        (Some(FactsSource::Kubernetes(_)) | None, _) => {
            metrics.facts.confirmed(wall_now());
            return None;
        }
    };
    Some(FollowedFacts { turn, task: AbortOnDropHandle::new(task) })
}

/// Warns of fields that rules in force read and no entry has: a field in another spelling splits nothing.
pub(super) fn tell_missing(relay: &Relay, logged: &[String]) -> Vec<String> {
    let missing = missing_fields(&relay.classes());
    if missing != logged && !missing.is_empty() {
        let fields = missing.join(", ");
        warn!(fields, "`split_by.facts` names fields that no entry of `facts` has: they split nothing");
    }
    missing
}

/// The fields that rules read and no entry of the table has.
pub(super) fn missing_fields(classes: &NodeClasses) -> Vec<String> {
    let table = &classes.facts.table;
    let paths = classes.rules.iter().filter_map(|rule| match &rule.projection.facts {
        MetadataParts::Paths(paths) if !table.is_empty() => Some(paths),
        MetadataParts::Paths(_) | MetadataParts::AllBut(_) => None,
    });
    let missing = paths.flatten().filter(|path| !table.has_field(path));
    let mut missing: Vec<String> = missing.map(|path| path.join("/")).collect();
    missing.sort();
    missing.dedup();
    missing
}
