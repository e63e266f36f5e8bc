//! The restatement of rejected pushes to a client (WAV-10).

use std::sync::Arc;

use thin_vec::ThinVec;

use crate::driver::ground::plans::{PlanHandle, Plans};
use crate::driver::ground::registry::lock;
use crate::driver::source::handle::{SourceHandle, Subscriber as _};
use crate::driver::stream::state::{Inner, StreamState};
use crate::engine::downstream::SourceId;

/// A rejected push that went back or was halted, one for each plan at most.
#[derive(Debug)]
struct Restating {
    plan: Arc<PlanHandle>,
    push: u64,
    /// The sources whose part of the push the session restates already.
    sources: Vec<SourceId>,
}

/// The rejected pushes of a client.
#[derive(Debug, Default)]
pub(crate) struct RejectedPushes(ThinVec<Restating>);

impl RejectedPushes {
    /// The rejected pushes of a node, for a new stream.
    pub fn of(plans: &Plans, node: &str) -> RejectedPushes {
        let rejected = plans.rejected_by(node).into_iter();
        RejectedPushes(rejected.map(|(plan, push)| Restating { plan, push, sources: Vec::new() }).collect())
    }

    fn add(&mut self, plan: &Arc<PlanHandle>, push: u64) {
        self.0.retain(|known| !Arc::ptr_eq(&known.plan, plan));
        self.0.push(Restating { plan: plan.clone(), push, sources: Vec::new() });
    }
}

impl StreamState {
    /// The client rejected a push of the plan that went back or was halted: all differences are restated.
    pub(crate) fn restate(&self, plan: &Arc<PlanHandle>, push: u64) {
        lock(&self.inner).rejected.add(plan, push);
        self.wake();
    }
}

impl Inner {
    /// Begins to restate the differences of rejected pushes, at each source of a push. A client that keeps a halted push is restated once
    /// another content is due (WAV-16).
    pub(crate) fn restate(&mut self) {
        for Restating { plan, push, sources: known } in &mut self.rejected.0 {
            let is_judged = |source: &SourceHandle| source.judge().is_some_and(|of| Arc::ptr_eq(&of, plan));
            let of_plan: Vec<_> = self.sources.iter().filter(|(_, source)| is_judged(source)).collect();
            if of_plan.iter().all(|(id, _)| known.contains(id)) {
                continue;
            }
            let mut served = of_plan.iter().map(|(_, source)| self.sources.served(source));
            if served.any(|snapshot| snapshot.lane().push == Some(*push)) {
                continue;
            }
            for (id, source) in of_plan {
                let published = source.published();
                // A source that had no part in the latest push restates the one before.
                let restated = published.restated.as_ref().filter(|of| of.push <= *push);
                if let Some(of) = restated.filter(|_| !known.contains(id)) {
                    self.session.restate(*id, of.clone());
                    known.push(*id);
                }
            }
        }
    }
}
