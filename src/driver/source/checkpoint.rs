//! The schedule by which a source is written to the checkpoint.
//!
//! Changes are gathered for `checkpoint.interval` after the first change. Snapshots are immutable, so the
//! source passes a snapshot to the writer and goes on. An unchanged source is not encoded again.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::driver::ground::checkpoint_writer::CheckpointWriter;
use sluice_checkpoint::{Identity, Restored};
use sluice_engine::Time;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::source::{Image, Source};

pub struct CheckpointSchedule {
    writer: Arc<CheckpointWriter>,
    identity: Identity,
    /// The content of the file; `None` if unknown.
    saved: Option<Snapshot>,
    /// Something has changed since the last write that a snapshot may not show.
    is_dirty: bool,
    due: Option<Instant>,
    /// The write under way, with its snapshot. The receiver gets whether the write succeeded.
    writing: Option<(oneshot::Receiver<bool>, Snapshot)>,
    /// The time when the file was last written or read.
    written_at: Option<Instant>,
    is_heard: bool,
}

/// The last confirmation of a source's content by the server.
#[derive(Clone, Copy, Debug)]
pub struct Confirmed {
    pub at: SystemTime,
    /// The server still confirms the content.
    pub is_fresh: bool,
}

impl CheckpointSchedule {
    /// Also returns the state of the source before the restart.
    pub fn begin(
        writer: &Arc<CheckpointWriter>,
        identity: Identity,
    ) -> (CheckpointSchedule, Option<Arc<Restored>>) {
        let restored = writer.begin(&identity);
        let checkpoint = CheckpointSchedule {
            writer: writer.clone(),
            identity,
            saved: None,
            is_dirty: false,
            due: None,
            writing: None,
            written_at: None,
            is_heard: false,
        };
        (checkpoint, restored)
    }

    /// The source was restored from the file, so the file is up to date.
    pub fn restored(&mut self, source: &Source) {
        self.saved = Some(source.snapshot().clone());
        self.written_at = Some(Instant::now());
    }

    /// The server has answered.
    pub fn heard(&mut self) {
        if !std::mem::replace(&mut self.is_heard, true) {
            self.writer.heard(&self.identity);
        }
    }

    /// Schedules a write, because something may have changed. `lives`: some resources have TTLs, which may
    /// have been renewed.
    pub fn note(&mut self, lives: bool) {
        self.is_dirty |= lives;
        let soon = Instant::now() + self.writer.interval();
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Writes the source if a write is due and needed.
    /// `stable`: the release for a restart, while newer content is held back from clients (WAV-8).
    pub fn run(
        &mut self,
        source: &Source,
        stable: Option<&Snapshot>,
        now: Time,
        confirmed: impl FnOnce() -> Confirmed,
    ) {
        let instant = Instant::now();
        if self.due.is_none_or(|due| due > instant) {
            return;
        }
        let soon = instant + self.writer.interval();
        let retry_at = self.writer.retry_at().filter(|at| *at > instant);
        self.due = None;
        if self.is_writing() || self.writer.is_closing() {
            self.due = Some(soon);
            return;
        }
        let confirmed = confirmed();
        if self.is_written(source, stable) {
            // Content that the server still confirms gets a new date.
            let refresh_at = self.written_at.unwrap_or(instant) + self.writer.refresh();
            if !confirmed.is_fresh || refresh_at > instant {
                self.due = Some(refresh_at).filter(|_| confirmed.is_fresh);
                return;
            }
        }
        if retry_at.is_some() {
            self.due = retry_at;
            return;
        }
        self.is_dirty = false;
        let image = image_of(source, stable, now);
        let (done, result) = oneshot::channel();
        self.writing = Some((result, image.snapshot.clone()));
        let (writer, identity) = (self.writer.clone(), self.identity.clone());
        tokio::spawn(async move {
            let _ = done.send(writer.write(identity, image, confirmed.at, false).await);
        });
        self.due = Some(soon);
    }

    /// Collects the result of the last write. Returns whether the write is still under way.
    fn is_writing(&mut self) -> bool {
        let Some((result, snapshot)) = &mut self.writing else { return false };
        match result.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => return true,
            Ok(true) => {
                self.saved = Some(std::mem::take(snapshot));
                self.written_at = Some(Instant::now());
            }
            Ok(false) | Err(oneshot::error::TryRecvError::Closed) => self.is_dirty = true,
        }
        self.writing = None;
        false
    }

    /// Whether the file has the current state of the source.
    fn is_written(&self, source: &Source, stable: Option<&Snapshot>) -> bool {
        let is_same = |saved: &Snapshot| saved.holds_the_same(stable.unwrap_or(source.snapshot()));
        !self.is_dirty && self.saved.as_ref().is_some_and(is_same)
    }

    /// Writes the source for the last time (FP1). `done` is dropped after the write.
    pub fn last(
        &mut self,
        source: &Source,
        stable: Option<&Snapshot>,
        now: Time,
        confirmed: Confirmed,
        done: oneshot::Sender<()>,
    ) {
        if self.is_writing() {
            self.is_dirty = true;
        }
        if self.is_written(source, stable) && !confirmed.is_fresh {
            return;
        }
        let image = image_of(source, stable, now);
        let (writer, identity) = (self.writer.clone(), self.identity.clone());
        tokio::spawn(async move {
            writer.write(identity, image, confirmed.at, true).await;
            drop(done);
        });
    }
}

fn image_of(source: &Source, stable: Option<&Snapshot>, now: Time) -> Image {
    let image = source.image(now);
    match stable {
        Some(stable) => image.serving(stable),
        None => image,
    }
}

impl Drop for CheckpointSchedule {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The file may be the only copy of the content.
            return;
        }
        // Sources are tasks, so there is a runtime, unless the process ends.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.writer.clone().end(self.identity.clone()));
        }
    }
}
