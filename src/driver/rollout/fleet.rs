//! The sources and streams of a plan.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::future::join_all;

use crate::driver::api::rollouts::UnitStatus;
use crate::driver::ground::checkpoint_writer::CheckpointWriter;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::durable::stored_unit;
use crate::driver::ground::plans::PlanHandle;
use crate::driver::load::table::Loads;
use crate::driver::rollout::hub::PlanLedger;
use crate::driver::source::handle::{SourceHandle, Subscriber as _};
use crate::driver::source::lane_order::LaneOrder;
use crate::driver::stream::state::{StreamState, Tables};
use sluice_engine::Time;
use sluice_fleet::rollout::UnitId;
use sluice_fleet::rollout::shared::UnitKey;

/// The number of streams between two turns of other tasks (ADM-6).
const STREAMS_PER_TURN: usize = 64;

/// The part of the relay that a plan reaches.
#[derive(Clone)]
pub(super) struct Fleet {
    pub(super) handle: Arc<PlanHandle>,
    pub(super) shared: Arc<DriverContext>,
    pub(super) tables: Tables,
    pub(super) loads: Arc<Loads>,
    /// `None`: the plan decides for this replica only.
    pub(super) ledger: Option<PlanLedger>,
}

impl Fleet {
    pub(super) fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// The sources of the plan.
    pub(super) fn sources(&self) -> Vec<Arc<SourceHandle>> {
        sources_of(&self.handle, &self.shared, &self.tables)
    }

    /// The units of the plan.
    pub(super) fn units(&self) -> BTreeSet<UnitId> {
        self.sources().iter().map(|source| unit_of(source)).collect()
    }

    /// All sources of the relay, also those outside of the plan.
    pub(super) fn all_sources(&self) -> HashMap<UnitId, Arc<SourceHandle>> {
        let sources = self.tables.sources.all().into_iter();
        sources.map(|source| (unit_of(&source), source)).collect()
    }

    pub(super) fn owns(&self, source: &SourceHandle) -> bool {
        is_judged_by(source, &self.handle, &self.shared)
    }

    /// A unit as replicas name it. `None` without a ledger.
    pub(super) fn key(&self, source: &SourceHandle) -> Option<UnitKey> {
        self.ledger.as_ref()?;
        let settings = self.shared.epoch();
        let listed = settings.lists.find(source.key().place)?;
        let stored = stored_unit(&CheckpointWriter::identity(source.key(), listed)?);
        Some(UnitKey::new(&stored.list, &stored.class))
    }

    /// Calls `each` for all streams of the relay. Locks no stream by itself, and lets other tasks run
    /// meanwhile.
    pub(super) async fn each_stream(&self, mut each: impl FnMut(&StreamState)) {
        let (mut last, mut visited) = (None, 0);
        while let Some(stream) = self.tables.streams.next(last) {
            last = Some(stream.number());
            each(&stream);
            visited += 1;
            if visited % STREAMS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Restates the differences of a push to the clients of these nodes, on present streams (WAV-10).
    pub(super) async fn restate(&self, push: u64, nodes: &BTreeSet<Arc<str>>) {
        self.each_stream(|stream| {
            if stream.node().is_some_and(|node| nodes.contains(&*node.id)) {
                stream.restate(&self.handle, push);
            }
        })
        .await;
    }
}

/// Sends an order to sources, and waits for all publications.
pub(super) async fn send(sources: &[Arc<SourceHandle>], order: LaneOrder) {
    join_all(sources.iter().map(|source| source.order(order.clone()))).await;
}

/// The shared sources of a plan.
pub(super) fn sources_of(
    plan: &Arc<PlanHandle>,
    shared: &DriverContext,
    tables: &Tables,
) -> Vec<Arc<SourceHandle>> {
    let mut sources = tables.sources.all();
    sources.retain(|source| is_judged_by(source, plan, shared));
    sources
}

fn is_judged_by(source: &SourceHandle, plan: &Arc<PlanHandle>, shared: &DriverContext) -> bool {
    source.plan(&shared.plans).is_some_and(|judge| Arc::ptr_eq(&judge, plan))
}

/// The unit of a source.
pub(super) fn unit_of(source: &SourceHandle) -> UnitId {
    UnitId(source.id().0)
}

/// A unit, for people.
pub(super) fn unit_status(source: &SourceHandle) -> UnitStatus {
    let status = source.status();
    UnitStatus { server: status.server.clone(), list: status.list.clone(), class: status.class.clone() }
}
