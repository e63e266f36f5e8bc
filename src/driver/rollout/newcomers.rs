//! Sources without stable content: the ledger's word for them, and what operators are told (LDG-3, LDG-5).

use std::sync::Arc;

use crate::driver::api::rollouts::JoiningUnits;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::plans::PlanHandle;
use crate::driver::rollout::fleet::{Fleet, send, unit_of};
use crate::driver::rollout::state::PlanState;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::lane_order::LaneOrder;
use crate::telemetry::rollouts::{Joins, tell_newcomers};

/// Gives sources the ledger's word, and tells the begin and the end of a wait.
#[derive(Default)]
pub(super) struct Newcoming {
    latest: Option<Joins>,
}

impl Newcoming {
    pub(super) async fn follow(&mut self, state: &mut PlanState, fleet: &Fleet) {
        if fleet.ledger.is_none() {
            return;
        }
        let word = state.rollout.join_word(fleet.now());
        let mut sources = fleet.sources();
        note_joined(&fleet.handle, &sources, &fleet.shared);
        if fleet.handle.join_word().as_deref() != word.as_ref() {
            fleet.handle.set_join_word(word);
            let newcomers: Vec<_> = sources.extract_if(.., |source| source.is_newcomer()).collect();
            send(&newcomers, LaneOrder::Join).await;
            sources = newcomers;
        }
        let joins = newcomers_of(&fleet.handle, &sources, &fleet.shared).joins();
        if joins != self.latest {
            let plan = &*state.plan().name;
            tell_newcomers(&fleet.shared.metrics.events, plan, self.latest.as_ref(), joins.as_ref());
            self.latest = joins;
        }
    }
}

/// The sources whose clients wait, and whether the replica is not ready because of that.
pub(super) fn newcomers_of(
    handle: &PlanHandle,
    sources: &[Arc<SourceHandle>],
    shared: &DriverContext,
) -> JoiningUnits {
    let waits = sources.iter().filter_map(|source| Some((unit_of(source), source.waits()?)));
    let mut newcomers = JoiningUnits::default();
    for (unit, wait) in waits {
        newcomers.units.push(unit);
        newcomers.push = newcomers.push.max(wait.push);
        newcomers.is_served |= wait.is_served;
    }
    newcomers.keeps_unready = !note_joined(handle, sources, shared);
    newcomers
}

/// Whether the replica has joined the others: once it has, a class that is new waits by itself, and takes no
/// replica from the clients of other classes.
fn note_joined(handle: &PlanHandle, sources: &[Arc<SourceHandle>], shared: &DriverContext) -> bool {
    let is_in_the_way = || handle.join_word().is_some_and(|word| word.is_in_the_way(shared.clock.now()));
    let has_content =
        |source: &Arc<SourceHandle>| !source.is_newcomer() && source.snapshot().types().next().is_some();
    let has_older = || {
        let checkpoint = shared.durable.checkpoint.as_ref();
        sources.iter().any(has_content) || checkpoint.is_some_and(|checkpoint| checkpoint.has_restored())
    };
    let has_joined = handle.has_joined() || !is_in_the_way() || has_older();
    if has_joined {
        handle.set_joined();
    }
    has_joined
}
