//! The facts of clients, and their file while the relay runs.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::watched_file::WatchedFile;
use crate::config::{self, Config};
use crate::driver::Relay;
use crate::engine::class::facts::FactTable;
use crate::engine::class::{MetadataParts, NodeClasses};
use crate::telemetry::events::{Kind, Occurrence};
use crate::telemetry::{Metrics, wall_now};

/// A client is in its right class some two seconds after the file has changed.
const LOOK: Duration = Duration::from_millis(500);

/// Reads the facts.
///
/// # Errors
/// The fault of the file, beginning with the key.
pub(super) fn load(config: &Config) -> Result<Arc<FactTable>, String> {
    let Some(file) = &config.facts else { return Ok(Arc::default()) };
    config::load_facts(file).map(Arc::new).map_err(|error| format!("facts.file: {}", error.in_file(file)))
}

/// Tells what the facts in force lack, and returns the task that follows their file, if there is one.
pub(super) fn follow(
    relay: &Relay,
    config: &Config,
    metrics: &Arc<Metrics>,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let table = relay.facts();
    metrics.facts.in_force(table.len());
    metrics.facts.confirmed(wall_now());
    let path = config.facts.as_ref()?;
    let mut file = FactsFile {
        file: WatchedFile::new(path.clone(), LOOK),
        classes: config.node_classes.clone(),
        in_force: table,
        missing: Vec::new(),
        refused: None,
        metrics: metrics.clone(),
    };
    file.tell_missing();
    Some(file.watch(relay.clone()))
}

struct FactsFile {
    file: WatchedFile,
    classes: NodeClasses,
    in_force: Arc<FactTable>,
    /// The fields of rules that no entry has, as last told.
    missing: Vec<String>,
    /// The reason why the last content is not used. Each reason is told once.
    refused: Option<String>,
    metrics: Arc<Metrics>,
}

impl FactsFile {
    async fn watch(mut self, relay: Relay) {
        loop {
            match self.file.look().await {
                Ok(true) => self.reload(&relay).await,
                Ok(false) if self.refused.is_none() => self.metrics.facts.confirmed(wall_now()),
                Ok(false) => {}
                Err(error) => self.refuse(error.to_string()),
            }
        }
    }

    /// Reads the file, and puts its facts in force. A bad file changes nothing.
    async fn reload(&mut self, relay: &Relay) {
        let path = self.file.path().to_owned();
        let load = move || config::load_facts(&path).map_err(|error| error.to_string());
        let loaded = tokio::task::spawn_blocking(load).await.map_err(|error| error.to_string());
        let table = match loaded.and_then(|loaded| loaded) {
            Ok(table) => table,
            Err(reason) => return self.refuse(reason),
        };
        if self.refused.take().is_some() {
            info!(file = %self.path().display(), "the file with the facts of clients can be used again");
        }
        self.metrics.facts.confirmed(wall_now());
        if table == *self.in_force {
            return;
        }
        self.in_force = Arc::new(table);
        self.metrics.facts.in_force(self.in_force.len());
        debug!(file = %self.path().display(), entries = self.in_force.len(), "other facts of clients");
        relay.learn(self.in_force.clone());
        self.tell_missing();
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    /// Warns of fields that rules read and no entry has: a field in another spelling splits nothing.
    fn tell_missing(&mut self) {
        let missing = missing_fields(&self.classes, &self.in_force);
        if missing != self.missing && !missing.is_empty() {
            warn!(file = %self.path().display(), fields = missing.join(", "), "`split_by.facts` names fields that no \
                entry has: they split nothing");
        }
        self.missing = missing;
    }

    fn refuse(&mut self, reason: String) {
        if self.refused.as_ref() != Some(&reason) {
            let event = Occurrence::warn(Kind::Class, "cannot use the facts of clients");
            self.metrics.events.add(event.place(self.path().display()).detail(&reason));
            warn!(file = %self.path().display(), %reason, "cannot use the facts of clients; the last good ones stay in \
                force");
            self.refused = Some(reason);
            self.metrics.facts.failing();
        }
    }
}

/// The fields that rules read and no entry of a table has.
pub(super) fn missing_fields(classes: &NodeClasses, table: &FactTable) -> Vec<String> {
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
