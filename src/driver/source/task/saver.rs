//! The state of a source beyond its task: on disk, and for a successor of the process (HND-2).

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::surroundings::Surroundings;
use crate::driver::api::estate::{ClassHead, Estate};
use crate::driver::ground::checkpoint_writer::digest_of_relay;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::durable::stored_unit;
use crate::driver::source::checkpoint::CheckpointSchedule;
use crate::driver::source::report::SourceReport;
use crate::telemetry::wall_now;
use sluice_checkpoint::{Header, Identity};
use sluice_engine::Time;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::source::Source;
use sluice_json::encode_rest_node;

/// Saves the state of a source.
pub(in crate::driver::source) struct Saver {
    /// `None`: neither the disk nor a successor of the process has a use for the state.
    identity: Option<Identity>,
    /// `None`: the source is not kept on disk.
    schedule: Option<CheckpointSchedule>,
}

impl Saver {
    /// Restores the state of a predecessor, else that of the disk, and starts the schedule of writes.
    pub(in crate::driver::source) fn restore(
        source: &mut Source,
        report: &mut SourceReport,
        identity: Option<Identity>,
        shared: &DriverContext,
    ) -> Saver {
        let Some(unit) = identity.clone() else { return Saver { identity, schedule: None } };
        let is_held = || shared.durable.plans.holds(&stored_unit(&unit));
        let inherited = shared.durable.inheritance.take(&unit, is_held);
        let begun = shared.durable.checkpoint.as_ref().map(|writer| CheckpointSchedule::begin(writer, unit));
        let (mut schedule, on_disk) = begun.unzip();
        let is_inherited = inherited.is_some();
        if let Some(restored) = inherited.or(on_disk.flatten()) {
            let age = wall_now().duration_since(restored.header.written_at).unwrap_or_default();
            let mut types = restored.types.clone();
            shared.content.copies.share_restored(&mut types);
            source.restore(&types, age, shared.clock.now());
            source.share(&*shared.content.copies);
            if source.is_restored() {
                report.restored(restored.header.confirmed_at, restored.resources());
            }
            match &mut schedule {
                // The disk may have an older state.
                Some(schedule) if is_inherited => schedule.note(false),
                Some(schedule) => schedule.restored(source),
                None => {}
            }
        }
        Saver { identity, schedule }
    }

    /// When the next write is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.schedule.as_ref().and_then(CheckpointSchedule::due)
    }

    /// The server has answered.
    pub(super) fn note_answer(&mut self) {
        self.schedule.iter_mut().for_each(CheckpointSchedule::heard);
    }

    /// Something may have changed. `lives`: some resources have TTLs, which may have been renewed.
    pub(super) fn note_change(&mut self, lives: bool) {
        self.schedule.iter_mut().for_each(|schedule| schedule.note(lives));
    }

    /// Writes the source if a write is due and needed. `stable`: the release for a restart, while newer
    /// content is held back (WAV-8).
    pub(super) fn run(
        &mut self,
        source: &Source,
        stable: Option<&Snapshot>,
        report: &SourceReport,
        around: &Surroundings,
    ) {
        if let Some(schedule) = &mut self.schedule {
            schedule.run(source, stable, around.now(), || report.confirmed_at(&around.shared.clock));
        }
    }

    /// Writes the source for the last time: the process ends.
    pub(super) fn run_last(
        &mut self,
        source: &Source,
        stable: Option<&Snapshot>,
        report: &SourceReport,
        around: &Surroundings,
        done: oneshot::Sender<()>,
    ) {
        if let Some(schedule) = &mut self.schedule {
            let confirmed = report.confirmed_at(&around.shared.clock);
            schedule.last(source, stable, around.now(), confirmed, done);
        }
    }

    /// The state for a successor; `None` for a private source, for files, and for a node that JSON cannot
    /// express.
    pub(super) fn estate(
        &self,
        source: &Source,
        stable: Option<&Snapshot>,
        report: &SourceReport,
        around: &Surroundings,
        now: Time,
    ) -> Option<Estate> {
        let (identity, class) = (self.identity.clone()?, &around.handle.key().class);
        let node = String::from_utf8(encode_rest_node(&class.node).ok()?).ok()?;
        // The table of sources knows the reason for a split.
        let class = ClassHead {
            node,
            attributes: class.attributes.clone(),
            identity: class.identity.as_deref().map(str::to_owned),
            identity_metadata: class.identity_metadata.as_deref().map(str::to_owned),
            is_for_secrets: false,
        };
        let relay = digest_of_relay(&around.shared.settings().node);
        let confirmed_at = report.confirmed_at(&around.shared.clock).at;
        let header = Header { identity, relay, written_at: wall_now(), confirmed_at };
        let image = source.image_with_secrets(now);
        let image = match stable {
            Some(stable) => image.serving(stable),
            None => image,
        };
        Some(Estate { class, header, image })
    }
}
