//! The state of the relay on its way to a successor of the process, and from a predecessor (HND-2, HND-3).

use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::driver::api::estate::{Bequest, ClassHead, Estate};
use crate::driver::api::status::SourceState;
use crate::driver::ground::checkpoint_writer::digest_of_relay;
use crate::driver::ground::class_identity::class_bytes;
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::durable::stored_unit;
use crate::driver::ground::plans::Decider;
use crate::driver::ground::splits::{decode_splits, encode_splits};
use crate::driver::relay::handle::Relay;
use crate::driver::source::handle::Subscriber;
use crate::driver::source::keeper::Keeper;
use crate::telemetry::wall_now;
use sluice_checkpoint::FormatError;
use sluice_checkpoint::format::decode;
use sluice_engine::cache::SessionId;
use sluice_engine::class::{NodeClass, UpstreamNode};
use sluice_fleet::rollout::stored_plans::decode_plans;
use sluice_json::parse_node;
use sluice_xds::{Code, Status};

/// A look at the states of sources while they connect.
const LOOK: Duration = Duration::from_millis(20);

/// The time for the first answers of servers that are connected. A delta server without news has none
/// (DEL-35).
const FIRST_ANSWERS: Duration = Duration::from_secs(1);

/// The inherited sources, which stay until their clients have come.
#[derive(Default)]
pub struct Heritage(Vec<Keeper>);

impl Heritage {
    pub fn sources(&self) -> usize {
        self.0.len()
    }
}

impl Relay {
    // === The predecessor ===

    /// The state of all sources that more than one stream can share. Snapshots are not copied.
    pub async fn estates(&self) -> Vec<Estate> {
        let mut estates = Vec::new();
        for source in self.tables.sources.all() {
            if let Some(mut estate) = source.estate().await {
                estate.class.is_for_secrets = self.tables.sources.is_for_secrets(&source);
                estates.push(estate);
            }
        }
        estates
    }

    /// The state of the plans, and the splits of classes (PRF-32), for the successor, which decides from now
    /// on: here no push begins or goes on.
    pub fn pass_decisions(&self) -> [Vec<u8>; 2] {
        self.shared.plans.give_turn(Decider::Successor);
        let durable = &self.shared.durable;
        [durable.plans.encoded(), encode_splits(&durable.splits.get())]
    }

    /// The hand-over has failed, and this process decides as before.
    pub fn keep_decisions(&self) {
        self.shared.plans.give_turn(Decider::Own);
    }

    /// From now on no stream to a server is opened. Open ones stay.
    pub fn be_succeeded(&self) {
        self.shared.process.is_succeeded.store(true, Ordering::Relaxed);
        self.shared.plans.give_turn(Decider::Successor);
        if let Some(checkpoint) = &self.shared.durable.checkpoint {
            checkpoint.close();
        }
    }

    /// The successor has died: the process decides again, opens streams to servers, and writes the
    /// checkpoint.
    pub fn be_restored(&self) {
        if let Some(checkpoint) = &self.shared.durable.checkpoint {
            checkpoint.reopen();
        }
        self.shared.process.is_succeeded.store(false, Ordering::Relaxed);
        self.tables.sources.all().iter().for_each(|source| source.reconnect());
        self.shared.plans.give_turn(Decider::Own);
    }

    /// Ends every stream with UNAVAILABLE, without a window.
    pub fn end_streams(&self) {
        let mut last = None;
        while let Some(stream) = self.tables.streams.next(last) {
            last = Some(stream.number());
            stream.end(Status::new(Code::Unavailable, "the server is draining"));
        }
    }

    pub fn is_succeeded(&self) -> bool {
        self.shared.process.is_succeeded.load(Ordering::Relaxed)
    }

    /// Holds back writes of the checkpoint until the guard is dropped; `None` without a checkpoint.
    pub async fn pause_checkpoint(&self) -> Option<OwnedMutexGuard<()>> {
        match &self.shared.durable.checkpoint {
            Some(checkpoint) => Some(checkpoint.pause().await),
            None => None,
        }
    }

    /// The lock of the checkpoint directory, and the directory; `None` if this process does not hold the
    /// lock.
    pub fn checkpoint_lock(&self) -> Option<(File, &Path)> {
        let checkpoint = self.shared.durable.checkpoint.as_ref()?;
        Some((checkpoint.lock_file()?.ok()?, checkpoint.directory()))
    }

    // === The successor ===

    /// Takes a predecessor's lock of the checkpoint directory over, before [`Relay::load`]. False if the lock
    /// is of another directory.
    pub fn inherit_lock(&self, lock: File) -> bool {
        self.shared.durable.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.inherit_lock(lock))
    }

    /// The predecessor decides about pushes until [`Relay::begin_decisions`].
    pub fn await_decisions(&self) {
        self.shared.plans.give_turn(Decider::Predecessor);
    }

    /// This process decides about pushes from now on. `passed`: the predecessor's state of the plans and
    /// splits of classes; what is not there is that on disk.
    pub fn begin_decisions(&self, passed: &[Vec<u8>]) {
        match passed.first().map(|plans| decode_plans(plans)).transpose() {
            Ok(plans) => plans.into_iter().for_each(|plans| self.adopt_plans(plans)),
            Err(reason) => warn!(reason, "cannot use the predecessor's state of the plans"),
        }
        match passed.get(1).map(|splits| decode_splits(splits)).transpose() {
            Ok(splits) => splits.into_iter().for_each(|splits| self.adopt_splits(splits)),
            Err(reason) => warn!(reason, "cannot use the predecessor's splits of node classes"),
        }
        self.shared.plans.give_turn(Decider::Own);
    }

    /// Takes the state of a source over, and starts the source if its class is known.
    ///
    /// # Errors
    /// The state is damaged, or of another format: its source starts cold.
    pub async fn inherit(
        &self,
        heritage: &mut Heritage,
        head: &ClassHead,
        state: &[u8],
    ) -> Result<Bequest, FormatError> {
        let restored = decode(state, wall_now())?;
        let (identity, settings) = (restored.header.identity.clone(), self.shared.epoch());
        let listed = settings
            .lists
            .configured()
            .find(|listed| *listed.list.label == *identity.list && *listed.server().uri == *identity.server);
        let Some(listed) = listed.filter(|_| restored.header.relay == digest_of_relay(&settings.node)) else {
            return Ok(Bequest::Unwanted);
        };
        let (types, resources) = (restored.types.clone(), restored.resources());
        self.shared.durable.inheritance.put(restored);
        let class = class_of(head, &identity.class, &settings);
        // A class that shows a member's node has no node before its first client.
        let class = class.filter(|class| class.upstream_node != UpstreamNode::Member);
        let source = class.and_then(|class| self.tables.sources.inherit(listed, class, head.is_for_secrets));
        let Some(source) = source else { return Ok(Bequest::Waits { resources }) };
        let session = SessionId(self.tables.streams.next_id());
        heritage.0.push(Keeper::new(source, session, &types, self.shared.content.seed).await);
        Ok(Bequest::Kept { resources })
    }

    /// Waits until the servers of all inherited sources are connected and have had time to answer, or have
    /// refused. Returns the number of sources that are still connecting at the end of `at_most`.
    pub async fn open_inherited(&self, heritage: &Heritage, at_most: Duration) -> usize {
        let begin = Instant::now();
        loop {
            let shown: Vec<_> = heritage.0.iter().map(|keeper| keeper.source().show()).collect();
            for shown in shown {
                // A source that ends meanwhile has nothing to show.
                let _ = shown.await;
            }
            let count = |state: SourceState| {
                heritage.0.iter().filter(|keeper| keeper.source().status().state == state).count()
            };
            let (connecting, unanswered) = (count(SourceState::Connecting), count(SourceState::Unanswered));
            let waited = begin.elapsed();
            let is_over = connecting == 0 && (unanswered == 0 || waited >= FIRST_ANSWERS.min(at_most));
            if is_over || waited >= at_most {
                return connecting;
            }
            sleep(LOOK).await;
        }
    }

    /// The predecessor has gone: what nobody has asked for until now is of no use any more.
    pub fn end_inheritance(&self, heritage: Heritage) {
        let plans = &self.shared.durable.plans;
        self.shared.durable.inheritance.clear_but_for(|identity| plans.holds(&stored_unit(identity)));
        drop(heritage);
    }
}

/// The class with this digest. A class is rebuilt under the configuration of this process, and is only the
/// same if its digest is.
fn class_of(head: &ClassHead, digest: &[u8], settings: &DriverSettings) -> Option<NodeClass> {
    let node = parse_node(head.node.as_bytes()).ok()?;
    let rules = settings.classes.rules.iter().map(|rule| &rule.upstream_node);
    let boxed = |text: &Option<String>| text.as_deref().map(Box::from);
    let classes = [&UpstreamNode::Projection, &UpstreamNode::Member].into_iter().chain(rules);
    let mut classes = classes.map(|upstream_node| NodeClass {
        node: node.clone(),
        attributes: head.attributes.clone(),
        upstream_node: upstream_node.clone(),
        identity: boxed(&head.identity),
        identity_metadata: boxed(&head.identity_metadata),
        ..NodeClass::of_everybody()
    });
    classes.find(|class| blake3::hash(&class_bytes(class)).as_bytes() == digest)
}
