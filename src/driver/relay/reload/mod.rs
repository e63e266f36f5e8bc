//! Another configuration of a running relay (REL-2, REL-5, REL-6).

mod loosened;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tracing::info;

use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::servers::{Attach, ListedServer, ServerLists};
use crate::driver::relay::Relay;
use crate::driver::source::handle::{SourceHandle, Subscriber};
use crate::driver::source::table::any_class;
use crate::engine::class::NodeClasses;
use crate::engine::class::facts::FactTable;
use crate::setting::Epoch;
use crate::telemetry::events::{Kind, Occurrence};
use crate::xds::Status;

/// The sources that a configuration needs at its start. Dropped before, the sources end.
pub struct PreparedSources {
    _directories: Vec<Arc<SourceHandle>>,
}

impl Relay {
    /// Opens everything that a configuration needs at once: the directories of its `file:` servers, with their first
    /// state. To be kept until [`Relay::configure`] has returned.
    ///
    /// # Errors
    /// The `server_uri` of a server whose first state cannot be loaded, and the reason.
    pub async fn prepare(&self, settings: &DriverSettings) -> Result<PreparedSources, (Arc<str>, Status)> {
        self.load_directories(&settings.lists).await
    }

    pub(super) async fn load_directories(
        &self,
        lists: &ServerLists,
    ) -> Result<PreparedSources, (Arc<str>, Status)> {
        let mut directories = Vec::new();
        for listed in lists.configured().filter(is_directory) {
            let source = self.tables.sources.own(listed, any_class());
            if let Err(status) = source.loaded().await {
                if self.shared.settings().lists.find(listed.place()).is_none() {
                    self.tables.sources.discard(&source);
                }
                return Err((listed.server().uri.clone(), status));
            }
            directories.push(source);
        }
        Ok(PreparedSources { _directories: directories })
    }

    /// Puts a configuration in force for all sources and streams, without touching connections (REL-5). New streams
    /// use the configuration at once. Open streams with other classes or servers move to their new sources in the
    /// background, one after the other. Must be called within a tokio runtime, by one caller at a time.
    pub fn configure(&self, settings: DriverSettings) {
        self.rollouts.configure(&settings.rollouts, &self.shared, &self.tables);
        self.shared.publish(settings);
        for source in self.tables.sources.all() {
            source.configure();
        }
        // Streams read the configuration in their next request or poll, which brings their timers up to date.
        let mut last = None;
        while let Some(stream) = self.tables.streams.next(last) {
            last = Some(stream.number());
            stream.wake();
        }
        tokio::spawn(self.clone().move_streams());
    }

    /// Puts other facts of clients in force. Clients whose class changes by them move as in [`Relay::configure`], and
    /// no other client notices. Must be called within a tokio runtime, by one caller of both at a time.
    pub fn learn(&self, table: Arc<FactTable>) {
        let mut settings = DriverSettings::clone(&self.shared.settings());
        settings.classes.facts.table = table;
        self.shared.publish(settings);
        tokio::spawn(self.clone().move_streams());
    }

    /// The rules in force, with the facts.
    pub fn classes(&self) -> NodeClasses {
        self.shared.settings().classes.clone()
    }

    /// The facts in force.
    pub fn facts(&self) -> Arc<FactTable> {
        self.shared.settings().classes.facts.table.clone()
    }

    /// Moves all streams to the configuration in force, paced like first answers (REL-9). Ends early when another
    /// configuration comes into force: its own walk finds the rest.
    async fn move_streams(self) {
        let in_force = self.shared.epoch();
        let (mut last, mut moved, mut alike) = (None, 0_usize, None);
        while let Some(stream) = self.tables.streams.next(last) {
            if self.shared.settings().number() != in_force.number() {
                break;
            }
            last = Some(stream.number());
            let is_alike = |former: &Epoch<DriverSettings>| match alike {
                Some((number, is_alike)) if number == former.number() => is_alike,
                _ => {
                    let is_alike = former.classes.has_rules_of(&in_force.classes)
                        && former.lists.routes_as(&in_force.lists);
                    alike = Some((former.number(), is_alike));
                    is_alike
                }
            };
            if !stream.adopt(&in_force, is_alike) {
                let wait =
                    self.shared.first_answer_in(&stream.context.peer.listener, self.shared.clock.now());
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                moved += 1;
                tokio::spawn(stream.reclassify());
            }
            // Other tasks of the thread go on in between: ten thousand streams take tens of milliseconds.
            tokio::task::yield_now().await;
        }
        if moved > 0 {
            let generation = in_force.generation;
            let event = Occurrence::info(Kind::Class, "clients move to other sources");
            let detail = format_args!("{moved} streams, by generation {generation}");
            self.shared.metrics.events.add(event.detail(detail));
            info!(streams = moved, generation, "clients move to the sources of another configuration");
        }
    }
}

fn is_directory(listed: &ListedServer<'_>) -> bool {
    matches!(listed.server().attach, Attach::Files { .. })
}
