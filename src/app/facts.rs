//! The facts of clients, and their file while the relay runs.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use super::watched_file::{Look, WatchedFile};
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

/// Tells what the facts in force lack, and returns the task that follows their file, if there is one. `are_new`: the file was read
/// just now. Otherwise the file may be bad, and confirms nothing.
pub(super) fn follow(
    relay: &Relay,
    config: &Config,
    metrics: &Arc<Metrics>,
    are_new: bool,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let table = relay.facts();
    metrics.facts.in_force(table.len());
    if are_new {
        metrics.facts.confirmed(wall_now());
    }
    let path = config.facts.as_ref()?;
    let mut file = FactsFile {
        file: WatchedFile::new(path.clone(), LOOK),
        classes: config.node_classes.clone(),
        in_force: table,
        missing: Vec::new(),
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
    metrics: Arc<Metrics>,
}

impl FactsFile {
    async fn watch(mut self, relay: Relay) {
        loop {
            match self.file.look(config::load_facts).await {
                Look::Content(table) => self.take(table, &relay),
                Look::Confirmed => self.metrics.facts.confirmed(wall_now()),
                Look::Fault(reason) => self.tell(&reason),
                Look::Nothing => {}
            }
        }
    }

    fn take(&mut self, table: FactTable, relay: &Relay) {
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

    fn tell(&self, reason: &str) {
        let event = Occurrence::warn(Kind::Class, "cannot use the facts of clients");
        self.metrics.events.add(event.place(self.path().display()).detail(reason));
        warn!(file = %self.path().display(), reason, "cannot use the facts of clients; the last good ones stay in force");
        self.metrics.facts.failing();
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
