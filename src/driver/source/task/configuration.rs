//! The configuration of a source, at the start and when another is in force.

use std::sync::Arc;
use std::time::Duration;

use super::SourceTask;
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::servers::{Attach, ListedServer};
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::engine::source;

pub(super) fn settings(
    in_force: &DriverSettings,
    key: &SourceKey,
    listed: ListedServer<'_>,
) -> source::SourceSettings {
    let mut settings = in_force.source.clone();
    settings.tells_reach |= listed.list.servers().len() > 1;
    if key.class.is_of_one() {
        settings.linger = settings.linger.min(settings.linger_of_one);
        settings.unasked_names = Some(in_force.stream.names_per_stream);
    }
    if matches!(key.owner, Owner::Stream(_)) {
        // A private source ends with its stream.
        (settings.private, settings.linger) = (true, Duration::ZERO);
        // It is for the names that may not be shared, and for no others.
        settings.unasked_names = None;
    }
    settings
}

impl SourceTask {
    /// Takes the configuration in force over, if there is a new one.
    pub(super) fn follow_configuration(&mut self) {
        let settings = self.shared.epoch();
        if self.epoch == settings.number() {
            return;
        }
        self.epoch = settings.number();
        self.follow_plan();
        // A place that left the configuration keeps its settings until its streams have left.
        let Some(listed) = settings.lists.find(self.handle.key().place) else { return };
        self.handle.servers.store(Arc::new(listed.serving().to_vec()));
        let own = self::settings(&settings, self.handle.key(), listed);
        self.source.configure(own, listed.server().upstream_settings(), self.shared.clock.now());
        if let Attach::Files { mass_deletion_hold, .. } = &listed.server().attach {
            self.source.hold_files(*mass_deletion_hold);
        }
    }
}
