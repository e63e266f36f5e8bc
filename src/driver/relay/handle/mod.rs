//! The relay: the entry point for downstream streams, the work before the first stream, and another
//! configuration of a running relay.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::warn;

use crate::driver::api::downstream::{ConnectionCut, LoadStream, OpenStreams, Peer};
use crate::driver::api::reload::ReloadPlan;
use crate::driver::ground::checkpoint_writer::StateWrite;
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::durable::DurableState;
use crate::driver::ground::servers::{Attach, ListedServer, ServerLists};
use crate::driver::ground::splits::{Splits, encode_splits};
use crate::driver::load::reporter::ReportingStream;
use crate::driver::load::table::Loads;
use crate::driver::proof::table::Proofs;
use crate::driver::relay::{memory, reload};
use crate::driver::rollout::hub::LedgerHub;
use crate::driver::rollout::table::Rollouts;
use crate::driver::source::handle::{Command, SourceHandle, Subscriber};
use crate::driver::source::table::{Sources, any_class};
use crate::driver::stream::context::StreamContext;
use crate::driver::stream::state::{Stream, StreamState, Tables, take_back};
use crate::driver::study::table::Studies;
use crate::telemetry::Metrics;
use crate::telemetry::events::tell;
use sluice_checkpoint::StateFile;
use sluice_engine::authorization::Policy;
use sluice_engine::class::NodeClasses;
use sluice_engine::class::facts::FactTable;
use sluice_fleet::rollout::Record;
use sluice_setting::Epoch;
use sluice_xds::{Code, RelayPath, Status, StreamKind, Variant};

/// The time between two walks for splits of classes.
const SPLITS_APART: Duration = Duration::from_secs(1);

/// The relay: many streams on one side, few sources on the other. Cheap to clone.
#[derive(Clone)]
pub struct Relay {
    pub(crate) shared: Arc<DriverContext>,
    pub(crate) tables: Tables,
    pub(crate) rollouts: Arc<Rollouts>,
    pub(crate) proofs: Arc<Proofs>,
    pub(crate) studies: Arc<Studies>,
    pub(crate) loads: Arc<Loads>,
}

impl Relay {
    /// Must be called within a tokio runtime.
    pub fn new(settings: DriverSettings, metrics: Arc<Metrics>) -> Relay {
        let shared = Arc::new(DriverContext::new(settings, metrics));
        let sources = Arc::new(Sources::new(shared.clone()));
        let tables = Tables { sources, streams: Arc::default() };
        let ledger = shared.settings().ledger.as_ref().map(LedgerHub::new);
        let rollouts = Arc::new(Rollouts::new(ledger));
        let loads = Arc::new(Loads::new(shared.clone(), tables.sources.clone()));
        // Before the first source, which looks for its plan.
        rollouts.configure(&shared.settings().rollouts, &shared, &tables, &loads);
        let proofs = Arc::new(Proofs::default());
        proofs.configure(&shared.settings(), &shared, &tables);
        Relay { tables, rollouts, proofs, studies: Arc::default(), loads, shared }
    }

    /// Tells the address at which hooks can look at pushes: that of the admin listener, unless it is a unix
    /// socket.
    pub fn tell_admin_address(&self, address: Option<SocketAddr>) {
        if let Some(address) = address {
            // The address is bound once.
            self.shared.process.admin_address.get_or_init(|| address);
        }
    }

    /// Tells how to see that the relay is going out of service: nobody is asked beside the classes then
    /// (PRF-20).
    pub fn tell_leaving(&self, is_leaving: impl Fn() -> bool + Send + Sync + 'static) {
        // The state of the process has one owner.
        self.shared.process.is_leaving.get_or_init(|| Box::new(is_leaving));
    }

    /// Puts a policy in force (AUT-12): for new streams at once, for open streams one after the other. A
    /// stream that lost a right is ended, and nothing is removed from its client. Returns the number of ended
    /// streams. One caller at a time.
    pub async fn authorize(&self, policy: Policy) -> usize {
        self.shared.publish_policy(policy);
        self.loads.configure();
        let (mut last, mut ended) = (None, 0);
        while let Some(stream) = self.tables.streams.next(last) {
            last = Some(stream.number());
            ended += usize::from(stream.judge_again());
            // Other tasks of the thread go on in between: ten thousand streams take tens of milliseconds.
            tokio::task::yield_now().await;
        }
        ended
    }

    /// Loads everything that needs no client: the checkpoint, and the state of every `file:` server.
    ///
    /// # Errors
    /// The `server_uri` of a file server whose first state cannot be loaded, and the reason.
    pub async fn load(&self) -> Result<(), (Arc<str>, Status)> {
        let settings = self.shared.epoch();
        if let Some(checkpoint) = &self.shared.durable.checkpoint {
            checkpoint.load(&settings.lists).await;
            self.adopt_plans(checkpoint.read_plans().await);
            self.adopt_splits(checkpoint.read_splits().await);
            self.shared.durable.ledger.put(checkpoint.read_ledger().await);
        }
        if let Some(ledger) = self.rollouts.ledger() {
            ledger.start(&self.shared);
        }
        self.load_directories(&settings.lists).await.map(|_| ())
    }

    /// Lets the plans go on with the state of another process (WAV-8).
    pub(super) fn adopt_plans(&self, stored: Vec<Record>) {
        let in_force = self.shared.plans.all();
        let is_enforced = |stored: &Record| {
            in_force
                .iter()
                .map(|handle| handle.plan())
                .any(|plan| *plan.name == *stored.name && plan.enforces())
        };
        let (kept, gone): (Vec<_>, Vec<_>) = stored.into_iter().partition(is_enforced);
        kept.into_iter().for_each(|plan| self.shared.durable.plans.put(plan));
        for Record { name, push, .. } in gone {
            if let Some(push) = push {
                let (push, text) =
                    (push.number, "the halted push of a plan is let go: no plan of this name enforces");
                warn!(plan = name, push, "{text}");
            }
        }
        self.shared.plans.all().iter().for_each(|plan| plan.note_stored());
    }

    /// Lets the splits of another process stay in force (PRF-32). Before the first client.
    pub(super) fn adopt_splits(&self, splits: Splits) {
        if !splits.is_empty() {
            self.shared.durable.splits.restore(splits);
            self.shared.amend(|_| {});
        }
    }

    /// Puts changed splits of classes in force and on disk, for as long as the future is polled. Clients
    /// whose class changes move as in [`Relay::configure`].
    pub async fn keep_splits(&self) {
        let DurableState { splits, checkpoint, .. } = &self.shared.durable;
        let (mut is_kept, mut write) = (true, StateWrite::default());
        loop {
            tokio::select! {
                () = splits.changed() => is_kept = false,
                is_over = write.ended() => is_kept &= is_over,
            }
            if self.shared.settings().splits != splits.get() {
                self.shared.amend(|_| {});
                self.loads.configure();
                tokio::spawn(self.clone().move_streams());
            }
            if let Some(checkpoint) = checkpoint.as_ref().filter(|_| !is_kept && !write.is_under_way()) {
                let shared = self.shared.clone();
                write.begin(checkpoint, StateFile::Splits, move || {
                    encode_splits(&shared.durable.splits.get())
                });
                is_kept = true;
            }
            // Splits that follow at once share a walk.
            tokio::time::sleep(SPLITS_APART).await;
        }
    }

    /// Writes the checkpoint for the last time (FP1). Resolves when the writing has succeeded or failed.
    pub async fn save(&self) {
        let Some(checkpoint) = &self.shared.durable.checkpoint else { return };
        checkpoint.close();
        let mut written = Vec::new();
        for source in self.tables.sources.all() {
            let (done, is_done) = oneshot::channel();
            source.send(Command::Save(done)).await;
            written.push(is_done);
        }
        for is_done in written {
            // Resolves when the writer drops its half.
            let _ = is_done.await;
        }
    }

    /// Drops outdated messages of clients that have stopped reading, for as long as the future is polled.
    pub async fn take_back(&self) {
        take_back(self.shared.clone(), self.tables.clone()).await;
    }

    /// Keeps the process within `limits.memory_bytes` of resident memory (FP7), or else within `otherwise`,
    /// for as long as the future is polled.
    pub async fn hold_to_memory(&self, otherwise: Option<u64>) {
        memory::watch(self.shared.clone(), self.tables.clone(), otherwise).await;
    }

    /// Sends each server the last report, after the last client (LRS-16). Resolves when all have said that
    /// they have it, or after `within`, and after a few seconds in any case.
    pub async fn finish_loads(&self, within: Duration) {
        self.loads.finish(within).await;
    }

    /// The stream with this id.
    pub(super) fn stream(&self, id: u64) -> Option<Arc<StreamState>> {
        let before = id.checked_sub(1);
        self.tables.streams.next(before).filter(|stream| stream.number() == id)
    }

    /// Refuses a call of this relay itself, by way of other relays (TIR-2).
    fn refuse_loop(&self, path: &RelayPath, peer: &Peer) -> Result<(), Status> {
        if !path.has(&self.shared.process.relay_id) {
            return Ok(());
        }
        let node = self.shared.settings().node.id.clone();
        let text = format!("loop through {path}, {node}: a server of this relay leads back to this relay");
        if self.shared.once.loops.is_first(path) {
            warn!(listener = %peer.listener, "refused a relay: {text}");
        }
        Err(Status::new(Code::FailedPrecondition, text))
    }
}

// === Another configuration (REL-2, REL-5, REL-6) ===

/// The sources that a configuration needs at its start. Dropped before, the sources end.
pub struct PreparedSources {
    _directories: Vec<Arc<SourceHandle>>,
}

impl Relay {
    /// Opens everything that a configuration needs at once: the directories of its `file:` servers, with
    /// their first state. To be kept until [`Relay::configure`] has returned.
    ///
    /// # Errors
    /// The `server_uri` of a server whose first state cannot be loaded, and the reason.
    pub async fn prepare(&self, settings: &DriverSettings) -> Result<PreparedSources, (Arc<str>, Status)> {
        self.load_directories(&settings.lists).await
    }

    async fn load_directories(&self, lists: &ServerLists) -> Result<PreparedSources, (Arc<str>, Status)> {
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

    /// Puts a configuration in force for all sources and streams, without touching connections (REL-5). New
    /// streams use the configuration at once. Open streams with other classes or servers move to their new
    /// sources in the background, one after the other. Must be called within a tokio runtime, by one caller
    /// at a time.
    pub fn configure(&self, settings: DriverSettings) {
        self.rollouts.configure(&settings.rollouts, &self.shared, &self.tables, &self.loads);
        self.shared.publish(settings);
        self.proofs.configure(&self.shared.settings(), &self.shared, &self.tables);
        for source in self.tables.sources.all() {
            source.configure();
        }
        // Streams read the configuration in their next request or poll, which brings their timers up to date.
        let mut last = None;
        while let Some(stream) = self.tables.streams.next(last) {
            last = Some(stream.number());
            stream.wake();
        }
        self.loads.configure();
        tokio::spawn(self.clone().move_streams());
    }

    /// Puts other facts of clients in force. Clients whose class changes by them move as in
    /// [`Relay::configure`], and no other client notices. Must be called within a tokio runtime, by one
    /// caller of both at a time.
    pub fn learn(&self, table: Arc<FactTable>) {
        self.shared.amend(|settings| settings.classes.facts.table = table);
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

    /// Moves all streams to the configuration in force, paced like first answers (REL-9). Ends early when
    /// another configuration comes into force: its own walk finds the rest.
    async fn move_streams(self) {
        let in_force = self.shared.epoch();
        let (mut last, mut moved, mut alike) = (None, 0_usize, None);
        while let Some(stream) = self.tables.streams.next(last) {
            if self.shared.settings().number() != in_force.number() {
                break;
            }
            last = Some(stream.number());
            let is_alike = |other: &Epoch<DriverSettings>| match alike {
                Some((number, is_alike)) if number == other.number() => is_alike,
                _ => {
                    let is_alike = other.classes.has_rules_of(&in_force.classes)
                        && other.lists.routes_as(&in_force.lists)
                        && other.splits == in_force.splits;
                    alike = Some((other.number(), is_alike));
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
            tell!(self.shared.metrics.events, info(Class, "clients move to other sources")
                .detail(format_args!("{moved} streams, by generation {generation}"));
                { streams = moved, generation } = "clients move to the sources of another configuration");
        }
    }

    /// Finds the effects of a configuration, and changes nothing. Locks one stream at a time.
    pub fn plan(&self, settings: &DriverSettings) -> ReloadPlan {
        let settings = DriverSettings { splits: self.shared.durable.splits.get(), ..settings.clone() };
        reload::plan::plan(&self.shared, &self.tables, &self.rollouts, &settings)
    }
}

impl OpenStreams for Relay {
    type Stream = Stream;

    fn open(&self, kind: StreamKind, peer: impl Into<Arc<Peer>>) -> Result<Stream, Status> {
        let peer = peer.into();
        peer.relays.as_deref().map_or(Ok(()), |path| self.refuse_loop(path, &peer))?;
        Stream::new(kind, peer, &self.shared, &self.tables)
    }

    fn open_load(&self, peer: Arc<Peer>) -> Result<Box<dyn LoadStream>, Status> {
        peer.relays.as_deref().map_or(Ok(()), |path| self.refuse_loop(path, &peer))?;
        let context = StreamContext {
            id: self.tables.streams.next_id(),
            kind: Variant::Sotw.into(),
            peer,
            opened_at: self.shared.clock.now(),
            shared: self.shared.clone(),
            sources: self.tables.sources.clone(),
            streams: self.tables.streams.clone(),
        };
        Ok(Box::new(ReportingStream::new(context, self.loads.clone())?))
    }

    fn connected(&self, connection: &ConnectionCut) {
        self.shared.clients.connections.add(connection);
    }

    fn memory_budget(&self) -> Option<u64> {
        self.shared.clients.pressure.budget()
    }

    fn is_out_of_memory(&self) -> bool {
        self.shared.clients.pressure.refuses()
    }
}

fn is_directory(listed: &ListedServer<'_>) -> bool {
    matches!(listed.server().attach, Attach::Files { .. })
}
