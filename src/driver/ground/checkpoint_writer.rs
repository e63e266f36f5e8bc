//! The checkpoint: the sources read from disk at the start, and the only writer (RLY-7).
//!
//! All disk access runs on a thread for blocking work, one file at a time. A failing disk does not touch
//! serving: clients keep their answers, the last good files stay, and writing is retried (FP3).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Mutex as TaskMutex, OwnedMutexGuard};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::driver::ground::class_identity::class_bytes;
use crate::driver::ground::servers::{ListedServer, ServerLists};
use crate::driver::ground::source_key::{Owner, SourceKey};
use crate::driver::ground::splits::{Splits, decode_splits};
use crate::telemetry::events::{Occurrence, tell};
use crate::telemetry::metrics::CheckpointMetrics;
use crate::telemetry::traces::act::Act;
use crate::telemetry::wall_now;
use sluice_checkpoint::format::is_empty;
use sluice_checkpoint::store::Unwanted;
use sluice_checkpoint::{Digest, Header, Identity, Loaded, Refused, Restored, StateFile, Store, StoreError};
use sluice_engine::source::Image;
use sluice_fleet::rollout::Record;
use sluice_fleet::rollout::ledger::trust::{LedgerMemory, decode_memory};
use sluice_fleet::rollout::stored_plans::decode_plans;
use sluice_setting::{InForce, Setting, hours, ms, seconds, time};
use sluice_wire::upstream::encode_node;
use sluice_xds::Node;

/// The pause after a failure of the disk. The pause doubles with each further failure, up to the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);

/// The longest time between two writes of an unchanged source. A file's age tells when the server last
/// confirmed the content.
const REFRESH_LONGEST: Duration = Duration::from_secs(600);

/// How long changes are gathered before a source is written: the content that a killed process loses, against
/// writes to the disk.
pub const INTERVAL: Setting<Duration> = Setting::new("interval", seconds(5), time(ms(100)..=hours(1)));

/// The maximum age of content that is served after a restart. The age counts from the last confirmation by
/// the server.
pub const MAX_AGE: Setting<Duration> = Setting::new("max_age", hours(24), time(seconds(1)..=hours(24 * 365)));

/// The directory of the checkpoint, and the times of writing and expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointSettings {
    pub directory: PathBuf,
    /// See [`INTERVAL`].
    pub interval: Duration,
    /// See [`MAX_AGE`].
    pub max_age: Duration,
}

#[derive(Debug, Default)]
struct FailingWrites {
    count: u32,
    retry_at: Option<Instant>,
}

/// The checkpoint of one relay.
pub struct CheckpointWriter {
    settings: InForce<CheckpointSettings>,
    store: Arc<Store>,
    relay: Digest,
    metrics: Arc<CheckpointMetrics>,
    /// The sources read at the start, each until its server has answered.
    restored: Mutex<HashMap<Identity, Arc<Restored>>>,
    /// The time of the read.
    read_at: OnceLock<Instant>,
    /// The number of live sources of each identity.
    live: Mutex<HashMap<Identity, u32>>,
    /// Held while the disk is in use, and while a hand-over decides about the next owner of the directory.
    turn: Arc<TaskMutex<()>>,
    failing: Mutex<FailingWrites>,
    /// The process ends: only last writes are made.
    closing: AtomicBool,
}

/// The write of a state, beside the work of its task: a slow disk holds up no decision (FP3).
#[derive(Debug, Default)]
pub struct StateWrite(Option<JoinHandle<bool>>);

impl StateWrite {
    pub fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// See [`CheckpointWriter::write_state`].
    pub fn begin(
        &mut self,
        checkpoint: &Arc<CheckpointWriter>,
        file: StateFile,
        state: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) {
        self.0 = Some(tokio::spawn(checkpoint.clone().write_state(file, state)));
    }

    /// Waits for the end of the write under way, for ever if there is none. Returns whether the write is
    /// over.
    pub async fn ended(&mut self) -> bool {
        let Some(write) = &mut self.0 else { return std::future::pending().await };
        let is_over = write.await.unwrap_or(false);
        self.0 = None;
        is_over
    }
}

impl CheckpointWriter {
    /// `node`: the relay's own node.
    pub fn new(
        settings: CheckpointSettings,
        node: &Node,
        metrics: Arc<CheckpointMetrics>,
    ) -> CheckpointWriter {
        CheckpointWriter {
            store: Arc::new(Store::new(settings.directory.clone())),
            settings: InForce::new(settings),
            relay: digest_of_relay(node),
            metrics,
            restored: Mutex::default(),
            read_at: OnceLock::new(),
            live: Mutex::default(),
            turn: Arc::default(),
            failing: Mutex::default(),
            closing: AtomicBool::new(false),
        }
    }

    /// Takes other times over. The directory stays.
    pub fn configure(&self, settings: CheckpointSettings) {
        self.settings.publish(settings);
    }

    pub fn interval(&self) -> Duration {
        self.settings.get().interval
    }

    /// The time between two writes of an unchanged source.
    pub fn refresh(&self) -> Duration {
        let settings = self.settings.get();
        (settings.max_age / 4).min(REFRESH_LONGEST).max(settings.interval)
    }

    /// The identity under which a source is written. `None` for private sources, and for files, which are on
    /// disk anyway.
    pub fn identity(key: &SourceKey, listed: ListedServer<'_>) -> Option<Identity> {
        let server = listed.server();
        (key.owner == Owner::Everyone && !server.is_local()).then(|| Identity {
            list: (*listed.list.label).into(),
            server: (*server.uri).into(),
            class: *blake3::hash(&class_bytes(&key.class)).as_bytes(),
        })
    }

    // === Reading ===

    /// Reads the checkpoint. Every problem is logged, and means a cold start.
    pub async fn load(self: &Arc<Self>, lists: &ServerLists) {
        let begun = Instant::now();
        let configured: HashSet<(Box<str>, Box<str>)> = lists
            .configured()
            .map(|listed| ((*listed.list.label).into(), (*listed.server().uri).into()))
            .collect();
        let writer = self.clone();
        let loaded = tokio::task::spawn_blocking(move || {
            writer.store.open()?;
            let now = wall_now();
            Ok(writer.store.load(now, &|header| writer.judge(header, &configured, now))?)
        });
        let directory = self.store.directory().display();
        match loaded.await.map_err(io::Error::other) {
            Ok(Ok(loaded)) => self.take(loaded, begun),
            Ok(Err(error @ StoreError::Locked)) => {
                self.failed();
                tell!(self, warn(Checkpoint, "another process has the checkpoint").detail(&error);
                    { %directory, %error }
                    = "this relay starts cold, and writes no checkpoint until the directory is free");
            }
            Ok(Err(StoreError::Io(error))) | Err(error) => {
                self.failed();
                tell!(self, warn(Checkpoint, "cannot use the checkpoint").detail(&error);
                    { %directory, %error } + "; this relay starts cold; retrying");
            }
        }
    }

    fn judge(
        &self,
        header: &Header,
        configured: &HashSet<(Box<str>, Box<str>)>,
        now: SystemTime,
    ) -> Result<(), Unwanted> {
        let Identity { list, server, .. } = &header.identity;
        // After the clock was set back, no file counts as too old (FP6).
        let age = now.duration_since(header.confirmed_at).unwrap_or_default();
        let max_age = self.settings.get().max_age;
        if age > max_age {
            return Err(Unwanted::TooOld { age: age.as_secs(), max: max_age.as_secs() });
        }
        if !configured.contains(&(list.clone(), server.clone())) {
            return Err(Unwanted::Server { list: list.clone(), server: server.clone() });
        }
        if header.relay != self.relay { Err(Unwanted::Relay) } else { Ok(()) }
    }

    fn take(&self, loaded: Loaded, begun: Instant) {
        for (file, reason) in &loaded.refused {
            let file = file.display();
            tell!(self.metrics.events, warn(Checkpoint, "ignored a file of the checkpoint").place(&file).detail(reason);
                { %file, %reason } + "; its source starts cold");
        }
        let resources: usize = loaded.sources.iter().map(Restored::resources).sum();
        let (sources, bytes, took) = (loaded.sources.len(), loaded.bytes, begun.elapsed());
        self.metrics.loaded(sources, resources, loaded.refused.len());
        let _ = self.read_at.set(begun);
        let mut restored = self.restored.lock();
        restored.extend(loaded.sources.into_iter().map(|s| (s.header.identity.clone(), Arc::new(s))));
        let directory = self.store.directory().display();
        tell!(self, info(Checkpoint, "checkpoint read")
            .detail(format_args!("{sources} sources, {resources} resources"));
            { %directory, sources, resources, bytes, ?took });
    }

    /// The state of the plans before the restart (WAV-8). Every problem is logged, and means that no push is
    /// known.
    pub async fn read_plans(self: &Arc<Self>) -> Vec<Record> {
        let plans = self.read_state(StateFile::Plans, decode_plans).await;
        plans.map(Option::unwrap_or_default).unwrap_or_else(|(file, reason)| {
            let file = file.display();
            tell!(self.metrics.events, warn(Checkpoint, "ignored a file of the checkpoint").place(&file).detail(&reason);
                { %file, %reason }
                = "ignored the state of the plans; a push that was halted before the restart is judged again");
            Vec::new()
        })
    }

    /// The splits of node classes before the restart (PRF-32). Every problem is logged, and means that no
    /// class is split.
    pub async fn read_splits(self: &Arc<Self>) -> Splits {
        let splits = self.read_state(StateFile::Splits, decode_splits).await;
        splits.map(Option::unwrap_or_default).unwrap_or_else(|(file, reason)| {
            let file = file.display();
            tell!(self.metrics.events, warn(Checkpoint, "ignored a file of the checkpoint").place(&file).detail(&reason);
                { %file, %reason } = "ignored the splits of node classes; the proof has to find them again");
            Splits::default()
        })
    }

    /// The memory of the ledger from before the restart (LDG-6). Every problem is logged, and means that
    /// the ledger is new to this replica.
    pub async fn read_ledger(self: &Arc<Self>) -> Option<LedgerMemory> {
        let memory = self.read_state(StateFile::Ledger, decode_memory).await;
        memory.unwrap_or_else(|(file, reason)| {
            let file = file.display();
            tell!(self.metrics.events, warn(Checkpoint, "ignored a file of the checkpoint").place(&file).detail(&reason);
                { %file, %reason } = "ignored the memory of the ledger; its loss would not be noticed");
            None
        })
    }

    async fn read_state<T: Send + 'static>(
        self: &Arc<Self>,
        file: StateFile,
        read: fn(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, (PathBuf, Refused)> {
        let writer = self.clone();
        let read = tokio::task::spawn_blocking(move || writer.store.read_state(file, read));
        read.await.unwrap_or(Ok(None))
    }

    /// Registers a new source. Returns the source's state before the restart, if that is known and not
    /// superseded.
    pub fn begin(&self, identity: &Identity) -> Option<Arc<Restored>> {
        *self.live.lock().entry(identity.clone()).or_default() += 1;
        let (now, max_age) = (wall_now(), self.settings.get().max_age);
        let mut restored = self.restored.lock();
        restored
            .retain(|_, kept| now.duration_since(kept.header.confirmed_at).unwrap_or_default() <= max_age);
        // A TTL runs on while no client is there.
        let elapsed = self.read_at.get().map_or(Duration::ZERO, Instant::elapsed);
        restored.get(identity).map(|kept| kept.later(elapsed))
    }

    /// Drops the state before the restart: the server has answered.
    pub fn heard(&self, identity: &Identity) {
        self.restored.lock().remove(identity);
    }

    // === Passing on ===

    /// Waits for the write under way, and holds back all others until the guard is dropped (HND-3).
    pub async fn pause(&self) -> OwnedMutexGuard<()> {
        self.turn.clone().lock_owned().await
    }

    /// A second handle to the lock of the directory; `None` if this process does not hold the lock.
    pub fn lock_file(&self) -> Option<io::Result<File>> {
        self.store.lock_file()
    }

    /// Takes a predecessor's lock over. False if the lock is of another directory.
    pub fn inherit_lock(&self, file: File) -> bool {
        self.store.inherit_lock(file)
    }

    pub fn directory(&self) -> &Path {
        self.store.directory()
    }

    // === Writing ===

    /// When the disk may be used again; `None` if at once.
    pub fn retry_at(&self) -> Option<Instant> {
        self.failing.lock().retry_at
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// From now on only last writes are made.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// The successor of the process has died: all writes are made again.
    pub fn reopen(&self) {
        self.closing.store(false, Ordering::Relaxed);
    }

    /// Writes a source, or removes the file of an empty source. Returns whether the disk has the source now.
    /// `last`: the process ends, and this write is the source's last.
    pub async fn write(
        self: Arc<Self>,
        identity: Identity,
        image: Image,
        confirmed_at: SystemTime,
        last: bool,
    ) -> bool {
        let _turn = self.turn.lock().await;
        if self.is_closing() && !last {
            return false;
        }
        let (begun, writer) = (Instant::now(), self.clone());
        let mut act = self.metrics.traces.begin(Act::Checkpoint);
        let written = tokio::task::spawn_blocking(move || {
            writer.store.open()?;
            if is_empty(&image) {
                // Unconfirmed content from disk may be needed again.
                let is_needed = writer.restored.lock().contains_key(&identity);
                return if is_needed { Ok(0) } else { Ok(writer.store.remove(&identity).map(|()| 0)?) };
            }
            let header = Header { identity, relay: writer.relay, written_at: wall_now(), confirmed_at };
            Ok(writer.store.write(&header, &image)?)
        });
        let result = match written.await {
            Ok(result) => result,
            Err(error) => Err(StoreError::Io(io::Error::other(error))),
        };
        match result {
            Ok(bytes) => {
                self.metrics.wrote(bytes, begun.elapsed(), wall_now());
                self.works_again();
                act.note("sluice.bytes", bytes);
                act.end(None);
                true
            }
            Err(error) => {
                act.end(Some(error.to_string()));
                self.cannot_write(&error);
                false
            }
        }
    }

    /// Writes a state of the relay. Returns whether the write is over: false if the state has to be written
    /// later. A process that ends writes nothing, as the directory may be a successor's (HND-3).
    /// `state` gives the bytes when the turn to write has come: so no write undoes a later one.
    pub async fn write_state(
        self: Arc<Self>,
        file: StateFile,
        state: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> bool {
        let _turn = self.turn.lock().await;
        if self.is_closing() {
            return true;
        }
        let writer = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            writer.store.open()?;
            Ok::<_, StoreError>(writer.store.write_state(file, &state())?)
        });
        let result = written.await.unwrap_or_else(|error| Err(StoreError::Io(io::Error::other(error))));
        match &result {
            Ok(()) => self.works_again(),
            Err(error) => self.cannot_write(error),
        }
        result.is_ok()
    }

    /// A write failed, and will be tried again. Only the first failure in a row is told.
    fn cannot_write(&self, error: &StoreError) {
        self.metrics.failed();
        if self.failed() {
            tell!(self, warn(Checkpoint, "cannot write the checkpoint").detail(error);
                { directory = %self.store.directory().display(), %error }
                + "; keeping the last good files; retrying");
        }
    }

    /// Unregisters a source, and removes its file. The file stays if it is the only copy of the content, or
    /// if a new source has the same identity.
    pub async fn end(self: Arc<Self>, identity: Identity) {
        if let Entry::Occupied(mut count) = self.live.lock().entry(identity.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        let _turn = self.turn.lock().await;
        let is_needed =
            self.live.lock().contains_key(&identity) || self.restored.lock().contains_key(&identity);
        if is_needed || self.is_closing() {
            return;
        }
        let writer = self.clone();
        let removed = tokio::task::spawn_blocking(move || {
            writer.store.open()?;
            Ok::<_, StoreError>(writer.store.remove(&identity)?)
        });
        // A file that stays behind is refused once it is too old.
        let _ = removed.await;
    }

    /// Adds an event about the directory.
    fn add(&self, event: Occurrence) {
        self.metrics.events.add(event.place(self.store.directory().display()));
    }

    /// Schedules the retry. Returns whether this is the first failure in a row.
    fn failed(&self) -> bool {
        let mut failing = self.failing.lock();
        let wait = RETRY_FIRST.saturating_mul(1 << failing.count.min(16)).min(RETRY_LONGEST);
        failing.retry_at = Some(Instant::now() + wait);
        failing.count += 1;
        self.metrics.failing(true);
        failing.count == 1
    }

    fn works_again(&self) {
        let failing = std::mem::take(&mut *self.failing.lock());
        self.metrics.failing(false);
        if failing.count > 0 {
            tell!(self, info(Checkpoint, "writing the checkpoint succeeded again");
                { directory = %self.store.directory().display(), failures = failing.count });
        }
    }
}

/// A digest of the fields that servers may select by. The user agent does not count, so that an upgrade
/// starts warm.
pub fn digest_of_relay(node: &Node) -> Digest {
    let Node { id, cluster, metadata, locality, .. } = node.clone();
    *blake3::hash(&encode_node(&Node { id, cluster, metadata, locality, ..Node::default() })).as_bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    #[tokio::test]
    async fn hnd_3_a_process_that_ends_leaves_the_state_of_the_plans_to_its_successor() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("checkpoint");
        let settings = CheckpointSettings {
            directory: directory.clone(),
            interval: INTERVAL.default,
            max_age: MAX_AGE.default,
        };
        let writer = Arc::new(CheckpointWriter::new(settings, &Node::default(), Metrics::new().checkpoint));
        let plans = directory.join("rollouts.json");
        assert!(writer.clone().write_state(StateFile::Plans, || b"own".to_vec()).await);
        std::fs::write(&plans, "the successor's").unwrap();
        writer.close();
        assert!(writer.clone().write_state(StateFile::Plans, || b"own".to_vec()).await);
        assert_eq!(std::fs::read_to_string(plans).unwrap(), "the successor's");
    }
}
