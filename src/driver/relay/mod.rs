//! All streams and sources together: the entry point for downstream streams, and the work before the first stream.

pub mod memory;
mod newcomers;
mod waiting_types;
pub mod inspect;
pub mod content;
mod clients;
mod explain;
mod changes;
pub mod control;
pub mod handover;
pub mod reload;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::driver::api::downstream::{ConnectionCut, OpenStreams, Peer};
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::stored_plans::StoredPlan;
use crate::driver::rollout::table::Rollouts;
use crate::driver::source::handle::Command;
use crate::driver::source::table::Sources;
use crate::driver::stream::state::{Stream, Tables, take_back};
use crate::engine::authorization::Policy;
use crate::telemetry::Metrics;
use crate::xds::{Code, RelayPath, Status, StreamKind};

/// The relay: many streams on one side, few sources on the other. Cheap to clone.
#[derive(Clone)]
pub struct Relay {
    pub(crate) shared: Arc<DriverContext>,
    pub(crate) tables: Tables,
    pub(crate) rollouts: Arc<Rollouts>,
}

impl Relay {
    /// Must be called within a tokio runtime.
    pub fn new(settings: DriverSettings, metrics: Arc<Metrics>) -> Relay {
        let shared = Arc::new(DriverContext::new(settings, metrics));
        let sources = Arc::new(Sources::new(shared.clone()));
        let tables = Tables { sources, streams: Arc::default() };
        let rollouts = Arc::new(Rollouts::default());
        // Before the first source, which looks for its plan.
        rollouts.configure(&shared.settings().rollouts, &shared, &tables);
        Relay { tables, rollouts, shared }
    }

    /// Tells the address at which hooks can look at pushes: that of the admin listener, unless it is a unix socket.
    pub fn tell_admin_address(&self, address: Option<SocketAddr>) {
        if let Some(address) = address {
            // The address is bound once.
            self.shared.admin_address.get_or_init(|| address);
        }
    }

    /// Puts a policy in force (AUT-12): for new streams at once, for open streams one after the other. A stream that
    /// lost a right is ended, and nothing is removed from its client. Returns the number of ended streams. One caller
    /// at a time.
    pub async fn authorize(&self, policy: Policy) -> usize {
        self.shared.publish_policy(policy);
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
        if let Some(checkpoint) = &self.shared.checkpoint {
            checkpoint.load(&settings.lists).await;
            self.adopt_plans(checkpoint.read_plans().await);
        }
        self.load_directories(&settings.lists).await.map(|_| ())
    }

    /// Plans go on with the state of another process (WAV-8).
    fn adopt_plans(&self, stored: Vec<StoredPlan>) {
        let in_force = self.shared.plans.all();
        let is_enforced = |stored: &StoredPlan| {
            in_force
                .iter()
                .map(|handle| handle.plan())
                .any(|plan| *plan.name == *stored.name && plan.enforces())
        };
        let (kept, gone): (Vec<_>, Vec<_>) = stored.into_iter().partition(is_enforced);
        kept.into_iter().for_each(|plan| self.shared.plan_store.put(plan));
        for StoredPlan { name, push, .. } in gone {
            if let Some(push) = push {
                let (push, text) =
                    (push.number, "the halted push of a plan is let go: no plan of this name enforces");
                tracing::warn!(plan = name, push, "{text}");
            }
        }
        self.shared.plans.all().iter().for_each(|plan| plan.note_stored());
    }

    /// Writes the checkpoint for the last time (FP1). Resolves when the writing has succeeded or failed.
    pub async fn save(&self) {
        let Some(checkpoint) = &self.shared.checkpoint else { return };
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

    /// Keeps the process within `limits.memory_bytes` of resident memory (FP7), or else within `otherwise`, for
    /// as long as the future is polled.
    pub async fn hold_to_memory(&self, otherwise: Option<u64>) {
        memory::watch(self.shared.clone(), self.tables.clone(), otherwise).await;
    }
}

impl Relay {
    /// Refuses a call of this relay itself, by way of other relays (TIR-2).
    fn refuse_loop(&self, path: &RelayPath, peer: &Peer) -> Result<(), Status> {
        if !path.has(&self.shared.relay_id) {
            return Ok(());
        }
        let own = self.shared.settings().node.id.clone();
        let text = format!("loop through {path}, {own}: a server of this relay leads back to this relay");
        if self.shared.loop_log.is_first(path) {
            tracing::warn!(listener = %peer.listener, "refused a relay: {text}");
        }
        Err(Status::new(Code::FailedPrecondition, text))
    }
}

impl OpenStreams for Relay {
    type Stream = Stream;

    fn open(&self, kind: StreamKind, peer: impl Into<Arc<Peer>>) -> Result<Stream, Status> {
        let peer = peer.into();
        peer.relays.as_deref().map_or(Ok(()), |path| self.refuse_loop(path, &peer))?;
        Stream::new(kind, peer, &self.shared, &self.tables)
    }

    fn connected(&self, connection: &ConnectionCut) {
        self.shared.connections.add(connection);
    }

    fn memory_budget(&self) -> Option<u64> {
        self.shared.pressure.budget()
    }

    fn is_out_of_memory(&self) -> bool {
        self.shared.pressure.refuses()
    }
}
