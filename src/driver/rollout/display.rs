//! The state of a plan, for readers and metrics.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::driver::api::rollouts::{RolloutStatus, UnitStatus};
use crate::driver::ground::context::DriverContext;
use crate::driver::rollout::fleet::{Fleet, unit_of, unit_status};
use crate::driver::rollout::state::PlanState;
use crate::driver::source::handle::SourceHandle;
use crate::telemetry::metrics::PlanMetrics;
use sluice_engine::Time;
use sluice_fleet::evidence::{CondemnedContents, condemned_in};
use sluice_fleet::rollout::{Plan, Rollout, RolloutReport, UnitId};

/// The state of a plan, for readers.
#[derive(Debug)]
pub(super) struct ShownPlan(ArcSwap<ShownState>);

/// The part of a [`RolloutStatus`] that the task of the plan knows.
#[derive(Debug)]
struct ShownState {
    plan: Arc<Plan>,
    report: RolloutReport,
    /// The units in the report, also those that have ended.
    units: BTreeMap<UnitId, UnitStatus>,
    condemned: CondemnedContents,
    is_unsaved: bool,
}

impl ShownPlan {
    pub(super) fn new(plan: Arc<Plan>) -> ShownPlan {
        let report = Rollout::new(plan.clone()).report();
        let (units, condemned, is_unsaved) = Default::default();
        ShownPlan(ArcSwap::from_pointee(ShownState { plan, report, units, condemned, is_unsaved }))
    }

    /// The state with the present content of the plan's sources.
    pub(super) fn status(&self, sources: &[Arc<SourceHandle>], shared: &DriverContext) -> RolloutStatus {
        let shown = self.0.load();
        let ShownState { plan, report, units, condemned, is_unsaved } = &**shown;
        let is_unproved = |source: &&Arc<SourceHandle>| {
            !report.proved.contains(&unit_of(source)) && source.snapshot().types().next().is_some()
        };
        let is_diverged = |unit: &UnitId| report.pin.is_some() && !report.pinned.contains(unit);
        let contents = sources.iter().flat_map(|source| condemned_in(source.published().stable(), condemned));
        let present = sources.iter().map(|source| (unit_of(source), unit_status(source)));
        RolloutStatus {
            plan: plan.clone(),
            report: report.clone(),
            units: units.clone().into_iter().chain(present).collect(),
            unproved: sources.iter().filter(|source| plan.enforces() && is_unproved(source)).count(),
            diverged: sources.iter().map(|source| unit_of(source)).filter(is_diverged).collect(),
            condemned: condemned.clone(),
            condemned_served: contents.collect(),
            is_unsaved: *is_unsaved,
            origin: shared.clock.wall(Time::ZERO),
        }
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
    shown: Arc<ShownPlan>,
    pub(super) metrics: PlanMetrics,
    /// Something is held back from some client, and its age is shown.
    is_behind: bool,
}

impl Display {
    pub(super) fn new(shown: Arc<ShownPlan>, metrics: PlanMetrics) -> Display {
        Display { shown, metrics, is_behind: false }
    }

    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Shows the state of this moment. `keeps_halted`: clients keep a halted push. `is_saving`: the state of
    /// the last turns is on its way to the disk.
    pub(super) fn show(&mut self, keeps_halted: bool, is_saving: bool, state: &mut PlanState, fleet: &Fleet) {
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
        let (plan, condemned) = (state.plan().clone(), state.rejecters.condemned().clone());
        let is_on_disk = state.enforces() && fleet.shared.durable.checkpoint.is_some();
        let is_unsaved = is_on_disk && (is_saving || state.is_unsaved);
        self.shown.0.store(Arc::new(ShownState { plan, report, units, condemned, is_unsaved }));
    }
}

fn units_in(report: &RolloutReport) -> BTreeSet<UnitId> {
    let pushes = report.push.iter().chain(&report.past);
    let units = pushes.flat_map(|push| push.units.iter().chain(&push.blamed));
    units.chain(&report.waiting).copied().collect()
}
