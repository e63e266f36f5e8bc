//! The state of a plan that outlives the plan's task.

use std::sync::Arc;

use sluice_engine::Time;
use sluice_fleet::evidence::Rejecters;
use sluice_fleet::rollout::{Plan, Rollout};

/// The machine of a plan, and the memory of rejections.
pub(super) struct PlanState {
    pub(super) rollout: Rollout,
    pub(super) rejecters: Rejecters,
    /// The state has changed since the disk had it.
    pub(super) is_unsaved: bool,
}

impl PlanState {
    pub(super) fn new(plan: Arc<Plan>) -> PlanState {
        PlanState { rollout: Rollout::new(plan), rejecters: Rejecters::default(), is_unsaved: false }
    }

    pub(super) fn plan(&self) -> &Arc<Plan> {
        self.rollout.plan()
    }

    pub(super) fn enforces(&self) -> bool {
        self.plan().enforces()
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.rollout.handle_timeout(now);
        self.rejecters.forget(now);
    }

    /// When [`PlanState::handle_timeout`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.rollout.poll_timeout().into_iter().chain(self.rejecters.next_end()).min()
    }
}
