//! All plans: their tasks, from one configuration to the next, and their states.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::sleep;
use tracing::warn;

use crate::driver::api::rollouts::{RolloutStatus, UnitStatus};
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::plans::PlanHandle;
use crate::driver::ground::registry::lock;
use crate::driver::rollout::task::{PlanTask, named, own_sources, unit_status};
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::state::Tables;
use crate::engine::Time;
use crate::engine::evidence::{CondemnedContents, condemned_in};
use crate::engine::rollout::{Plan, Rollout, RolloutReport, UnitId};

/// The pause before a task begins anew.
const ANEW_AFTER: Duration = Duration::from_secs(1);

const NO_CHECKPOINT: &str = "a plan holds pushes back without a checkpoint: after a restart, all clients are given the newest content";

/// The plans in force, with their tasks.
#[derive(Default)]
pub struct Rollouts(Mutex<Vec<Running>>);

#[derive(Clone)]
struct Running {
    handle: Arc<PlanHandle>,
    shown: Arc<Shown>,
}

/// The state of a plan, for readers.
#[derive(Debug)]
pub struct Shown(ArcSwap<RolloutStatus>);

impl Shown {
    fn new(plan: Arc<Plan>, shared: &DriverContext) -> Shown {
        let (report, units) = (Rollout::new(plan.clone()).report(), BTreeMap::new());
        let (origin, condemned) = (shared.clock.wall(Time::ZERO), CondemnedContents::default());
        Shown(ArcSwap::from_pointee(RolloutStatus::of(plan, report, units, (condemned, origin))))
    }

    pub(super) fn show(&self, status: RolloutStatus) {
        self.0.store(Arc::new(status));
    }

    /// The units in a report, as known: an ended unit keeps the name.
    pub(super) fn units_of(&self, report: &RolloutReport) -> BTreeMap<UnitId, UnitStatus> {
        let known = self.0.load();
        named(report).into_iter().filter_map(|unit| Some((unit, known.units.get(&unit)?.clone()))).collect()
    }
}

impl Rollouts {
    /// Puts plans in force: starts tasks for new plans, exchanges plans with a known name, and ends the others. Must be called
    /// within a tokio runtime if there are plans, and before sources are told.
    pub fn configure(&self, plans: &[Arc<Plan>], shared: &Arc<DriverContext>, tables: &Tables) {
        let mut running = lock(&self.0);
        let mut left = std::mem::take(&mut *running);
        for plan in plans.iter().filter(|plan| plan.enforces() && shared.durable.checkpoint.is_none()) {
            let had = |of: &Running| of.handle.plan().name == plan.name && of.handle.plan().enforces();
            if !left.iter().any(had) {
                warn!(plan = &*plan.name, "{NO_CHECKPOINT}");
            }
        }
        for plan in plans {
            match left.iter().position(|of| of.handle.plan().name == plan.name) {
                Some(index) => {
                    let known = left.swap_remove(index);
                    known.handle.configure(plan.clone());
                    running.push(known);
                }
                None => running.push(start(plan, shared, tables)),
            }
        }
        left.iter().for_each(|of| of.handle.end());
        shared.plans.exchange(running.iter().map(|of| of.handle.clone()).collect());
    }

    /// The states of all plans, with all present units.
    pub fn all(&self, shared: &DriverContext, tables: &Tables) -> Vec<Arc<RolloutStatus>> {
        let running = lock(&self.0).clone();
        let status = |of: &Running| {
            let mut status = RolloutStatus::clone(&of.shown.0.load());
            let own = own_sources(&of.handle, shared, tables);
            let is_unproved = |source: &&Arc<SourceHandle>| {
                !status.report.proved.contains(&UnitId(source.id().0))
                    && source.snapshot().types().next().is_some()
            };
            let enforces = status.plan.enforces();
            status.unproved = own.iter().filter(|source| enforces && is_unproved(source)).count();
            let is_diverged =
                |unit: &UnitId| status.report.pin.is_some() && !status.report.pinned.contains(unit);
            let served =
                own.iter().flat_map(|source| condemned_in(source.published().stable(), &status.condemned));
            status.condemned_served = served.collect();
            status.diverged = own.iter().map(|source| UnitId(source.id().0)).filter(is_diverged).collect();
            status.units.extend(own.iter().map(|source| (UnitId(source.id().0), unit_status(source))));
            Arc::new(status)
        };
        running.iter().map(status).collect()
    }
}

fn start(plan: &Arc<Plan>, shared: &Arc<DriverContext>, tables: &Tables) -> Running {
    let handle = Arc::new(PlanHandle::new(plan.clone()));
    let shown = Arc::new(Shown::new(plan.clone(), shared));
    let running = Running { handle, shown };
    tokio::spawn(keep_running(running.clone(), shared.clone(), tables.clone()));
    running
}

async fn keep_running(of: Running, shared: Arc<DriverContext>, tables: Tables) {
    let task = || PlanTask::new(of.handle.clone(), of.shown.clone(), shared.clone(), tables.clone()).run();
    let panicked = || {
        warn!(
            plan = &*of.handle.plan().name,
            "the task of a plan panicked, and begins anew without its pushes"
        );
        of.handle.watch(None);
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
