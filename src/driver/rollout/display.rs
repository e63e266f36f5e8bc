//! The state of a plan, for readers and metrics.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::driver::api::rollouts::{RolloutStatus, UnitStatus};
use crate::driver::ground::context::DriverContext;
use crate::driver::rollout::fleet::{Fleet, unit_status};
use crate::driver::rollout::state::PlanState;
use crate::engine::Time;
use crate::engine::evidence::CondemnedContents;
use crate::engine::rollout::{Plan, Rollout, RolloutReport, UnitId};
use crate::telemetry::metrics::PlanMetrics;

/// The state of a plan, for readers.
#[derive(Debug)]
pub(super) struct Shown(ArcSwap<RolloutStatus>);

impl Shown {
    pub(super) fn new(plan: Arc<Plan>, shared: &DriverContext) -> Shown {
        let (report, units) = (Rollout::new(plan.clone()).report(), BTreeMap::new());
        let (origin, condemned) = (shared.clock.wall(Time::ZERO), CondemnedContents::default());
        Shown(ArcSwap::from_pointee(RolloutStatus::of(plan, report, units, (condemned, origin))))
    }

    pub(super) fn status(&self) -> RolloutStatus {
        RolloutStatus::clone(&self.0.load())
    }

    /// The units in a report that have been shown before: an ended unit keeps its name.
    fn units_of(&self, report: &RolloutReport) -> BTreeMap<UnitId, UnitStatus> {
        let shown = self.0.load();
        units_in(report)
            .into_iter()
            .filter_map(|unit| Some((unit, shown.units.get(&unit)?.clone())))
            .collect()
    }
}

/// Shows the state of a plan.
pub(super) struct Display {
    shown: Arc<Shown>,
    pub(super) metrics: PlanMetrics,
    /// Something is held back from some client, and its age is shown.
    is_behind: bool,
}

impl Display {
    pub(super) fn new(shown: Arc<Shown>, metrics: PlanMetrics) -> Display {
        Display { shown, metrics, is_behind: false }
    }

    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Shows the state of this moment. `keeps_halted`: clients keep a halted push.
    pub(super) fn show(&mut self, keeps_halted: bool, state: &mut PlanState, fleet: &Fleet) {
        let report = state.rollout.report();
        let is_behind = report.behind_from.is_some();
        // The next process has to know since when.
        state.is_unsaved |= std::mem::replace(&mut self.is_behind, is_behind) != is_behind;
        fleet.handle.leavers().pause(keeps_halted);
        self.metrics.show(&report, fleet.now());
        let mut units = self.shown.units_of(&report);
        let new: Vec<_> = units_in(&report).into_iter().filter(|unit| !units.contains_key(unit)).collect();
        let sources = if new.is_empty() { HashMap::new() } else { fleet.all_sources() };
        units.extend(new.into_iter().filter_map(|unit| Some((unit, unit_status(sources.get(&unit)?)))));
        let origin = fleet.shared.clock.wall(Time::ZERO);
        let (plan, condemned) = (state.plan().clone(), state.rejecters.condemned().clone());
        let status = RolloutStatus::of(plan, report, units, (condemned, origin));
        self.shown.0.store(Arc::new(status));
    }
}

fn units_in(report: &RolloutReport) -> BTreeSet<UnitId> {
    let pushes = report.push.iter().chain(&report.past);
    let units = pushes.flat_map(|push| push.units.iter().chain(&push.blamed));
    units.chain(&report.waiting).copied().collect()
}
