//! All plans: their tasks, from one configuration to the next, and their states.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::warn;

use crate::driver::api::rollouts::RolloutStatus;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::plans::PlanHandle;
use crate::driver::load::table::Loads;
use crate::driver::rollout::display::ShownPlan;
use crate::driver::rollout::fleet::{Fleet, sources_of};
use crate::driver::rollout::hub::LedgerHub;
use crate::driver::rollout::newcomers::newcomers_of;
use crate::driver::rollout::task::PlanTask;
use crate::driver::stream::state::Tables;
use sluice_fleet::rollout::Plan;
use sluice_fleet::rollout::ledger::{JoinWord, Replica};

/// The pause before a task begins anew.
const ANEW_AFTER: Duration = Duration::from_secs(1);

const NO_CHECKPOINT: &str = "a plan holds pushes back without a checkpoint: after a restart, all clients are given the newest content";

/// The plans in force, with their tasks.
#[derive(Default)]
pub struct Rollouts {
    running: Mutex<Vec<RunningPlan>>,
    /// `None`: each plan decides for this replica only.
    ledger: Option<Arc<LedgerHub>>,
}

#[derive(Clone)]
struct RunningPlan {
    handle: Arc<PlanHandle>,
    shown: Arc<ShownPlan>,
}

impl Rollouts {
    pub fn new(ledger: Option<Arc<LedgerHub>>) -> Rollouts {
        Rollouts { running: Mutex::default(), ledger }
    }

    pub fn ledger(&self) -> Option<&Arc<LedgerHub>> {
        self.ledger.as_ref()
    }

    /// Puts plans in force: starts tasks for new plans, exchanges plans with a known name, and ends the
    /// others. Must be called within a tokio runtime if there are plans, and before sources are told.
    pub fn configure(
        &self,
        plans: &[Arc<Plan>],
        shared: &Arc<DriverContext>,
        tables: &Tables,
        loads: &Arc<Loads>,
    ) {
        let mut running = self.running.lock();
        let mut left = std::mem::take(&mut *running);
        for plan in plans.iter().filter(|plan| plan.enforces() && shared.durable.checkpoint.is_none()) {
            let enforced = |running: &RunningPlan| {
                let before = running.handle.plan();
                before.name == plan.name && before.enforces()
            };
            if !left.iter().any(enforced) {
                warn!(plan = &*plan.name, "{NO_CHECKPOINT}");
            }
        }
        for plan in plans {
            match left.iter().position(|running| running.handle.plan().name == plan.name) {
                Some(index) => {
                    let present = left.swap_remove(index);
                    present.handle.configure(plan.clone());
                    running.push(present);
                }
                None => running.push(self.start(plan, shared, tables, loads)),
            }
        }
        left.iter().for_each(|ended| ended.handle.end());
        shared.plans.exchange(running.iter().map(|running| running.handle.clone()).collect());
    }

    fn start(
        &self,
        plan: &Arc<Plan>,
        shared: &Arc<DriverContext>,
        tables: &Tables,
        loads: &Arc<Loads>,
    ) -> RunningPlan {
        let handle = Arc::new(PlanHandle::new(plan.clone()));
        if let Some(ledger) = self.ledger.as_ref().filter(|_| plan.enforces()) {
            // Sources may begin sooner than the task of the plan.
            let Replica { join, lease, .. } = *ledger.replica();
            handle.set_join_word(Some(JoinWord::unheard(join, shared.clock.now() + lease)));
        }
        let shown = Arc::new(ShownPlan::new(plan.clone()));
        let running = RunningPlan { handle, shown };
        let (shared, tables, loads) = (shared.clone(), tables.clone(), loads.clone());
        let ledger = self.ledger.as_ref().map(|ledger| ledger.plan(&plan.name));
        let fleet = Fleet { handle: running.handle.clone(), shared, tables, loads, ledger };
        tokio::spawn(keep_running(running.clone(), fleet));
        running
    }

    /// The states of all plans, with all present units.
    pub fn all(&self, shared: &DriverContext, tables: &Tables) -> Vec<Arc<RolloutStatus>> {
        let running = self.running.lock().clone();
        let status = |running: &RunningPlan| {
            let sources = sources_of(&running.handle, shared, tables);
            let newcomers = newcomers_of(&running.handle, &sources, shared);
            Arc::new(RolloutStatus { newcomers, ..running.shown.status(&sources, shared) })
        };
        running.iter().map(status).collect()
    }
}

async fn keep_running(running: RunningPlan, fleet: Fleet) {
    let RunningPlan { handle, shown } = running;
    let task = || PlanTask::new(fleet.clone(), shown.clone()).run();
    let panicked = || {
        let plan = &*handle.plan().name;
        warn!(plan, "the task of a plan panicked, and begins anew without its pushes");
        handle.watch(None);
    };
    keep(task, panicked).await;
}

/// Runs a task until it ends. A panic harms neither sources nor streams, and the task begins anew.
async fn keep<F: Future<Output = ()> + Send + 'static>(task: impl Fn() -> F, panicked: impl Fn()) {
    while let Err(error) = tokio::spawn(task()).await
        && error.is_panic()
    {
        panicked();
        sleep(ANEW_AFTER).await;
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_begins_anew() {
        let (begun, panics) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let task = || {
            let number = begun.fetch_add(1, SeqCst);
            async move { assert!(number == 2, "planted") }
        };
        let panicked = || {
            panics.fetch_add(1, SeqCst);
        };
        keep(task, panicked).await;
        assert_eq!((begun.into_inner(), panics.into_inner()), (3, 2));
    }
}
