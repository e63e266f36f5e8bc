//! Plans that another configuration removes or loosens while they hold something back (REL-7).

use std::sync::Arc;

use crate::driver::api::reload::{LoosenedPlan, Loosening};
use crate::driver::api::rollouts::RolloutStatus;
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::plans::PlanHandle;
use crate::driver::ground::servers::{ListedServer, Place};
use crate::driver::load::groups::takes_load;
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::state::Tables;

/// Another configuration, and its effect on the clients of sources.
pub(super) struct ClientMoves<'a> {
    pub in_force: &'a DriverSettings,
    pub settings: &'a DriverSettings,
    /// Whether clients of the source may come to another source.
    pub may_lose_clients: &'a dyn Fn(&SourceHandle) -> bool,
}

/// The plans with something to lose.
pub(super) fn plans_loosened(
    shared: &DriverContext,
    tables: &Tables,
    statuses: &[Arc<RolloutStatus>],
    clients: &ClientMoves<'_>,
) -> Vec<LoosenedPlan> {
    let loosened = |handle: &Arc<PlanHandle>| {
        let status = statuses.iter().find(|status| status.plan.name == handle.plan().name)?;
        let by = loosening(shared, tables, handle, status, clients)?;
        let push = status.report.push.as_ref().map(|push| push.number);
        Some(LoosenedPlan { plan: status.plan.name.clone(), state: status.report.state, push, by })
    };
    shared.plans.all().iter().filter_map(loosened).collect()
}

fn loosening(
    shared: &DriverContext,
    tables: &Tables,
    handle: &Arc<PlanHandle>,
    status: &RolloutStatus,
    clients: &ClientMoves<'_>,
) -> Option<Loosening> {
    // The plan in force: the task may not have taken it yet.
    let plan = handle.plan();
    if !plan.enforces() || status.report.is_at_rest() {
        return None;
    }
    let Some(next) = clients.settings.rollouts.iter().find(|next| next.name == plan.name) else {
        return Some(Loosening::Removed);
    };
    let keys = plan.loosened_by(next);
    if !keys.is_empty() {
        return Some(Loosening::Keys(keys));
    }
    let sources = tables.sources.all();
    let is_planned =
        |source: &SourceHandle| source.plan(&shared.plans).is_some_and(|plan| Arc::ptr_eq(&plan, handle));
    let leaves = |source: &&Arc<SourceHandle>| is_planned(source) && clients.take(source, &plan.name);
    match sources.iter().filter(leaves).count() {
        0 if status.report.is_stopped() && !next.leads_as(&plan) => Some(Loosening::BeginsAnew),
        0 => {
            let is_judged = plan.halt_on.error_points > 0 && status.report.is_in_step();
            let planned = sources.iter().filter(|source| is_planned(source));
            clients.unheard(planned).filter(|_| is_judged).map(Loosening::LoadUnheard)
        }
        count => Some(Loosening::UnitsLeave(count)),
    }
}

impl ClientMoves<'_> {
    /// Whether a unit holds something back, and its clients would be given the newest content.
    fn take(&self, source: &SourceHandle, plan: &str) -> bool {
        let (list, node) = (source.status().list.clone(), &source.key().class.node);
        let next = self.settings.rollouts.iter().find(|next| next.units.matches(&list, node));
        let stays = next.is_some_and(|next| &*next.name == plan)
            && !self.is_passed_over(source.key().place)
            && !(self.may_lose_clients)(source);
        source.published().held().is_some() && !stays
    }

    /// The key by which the load reports of some of the clients of these sources would reach nobody.
    fn unheard<'a>(&self, mut sources: impl Iterator<Item = &'a Arc<SourceHandle>>) -> Option<&'static str> {
        let (before, after) = (self.in_force, self.settings);
        let is_deaf =
            |(name, takes): (&Arc<str>, &bool)| *takes && after.load_listeners.get(name) == Some(&false);
        if before.load_listeners.iter().any(is_deaf) {
            return Some("listeners[].load_reports");
        }
        let is_lost = |list: &str| takes_load(before, list) && !takes_load(after, list);
        sources.any(|source| is_lost(&source.status().list)).then_some("lrs")
    }

    /// Whether the server leaves its list, or clients prefer another server to it from now on.
    fn is_passed_over(&self, place: Place) -> bool {
        let Some(next) = self.settings.lists.find(place) else { return true };
        let higher = self.in_force.lists.find(place).map(ListedServer::higher).unwrap_or_default();
        next.higher().iter().any(|place| !higher.contains(place))
    }
}
