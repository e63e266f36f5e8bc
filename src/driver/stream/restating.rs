//! The restatement of rejected pushes to a client (WAV-10).

use std::sync::Arc;

use thin_vec::ThinVec;

use crate::driver::ground::plans::{PlanHandle, Plans};
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::own_sources::OwnSources;
use sluice_engine::downstream::{Session, SourceId};

/// A rejected push that went back or was halted, one for each plan at most.
#[derive(Debug)]
struct RejectedPush {
    plan: Arc<PlanHandle>,
    push: u64,
    /// The sources whose part of the push the session restates already.
    restated: Vec<SourceId>,
}

/// The rejected pushes of a client.
#[derive(Debug, Default)]
pub(crate) struct RejectedPushes(ThinVec<RejectedPush>);

impl RejectedPushes {
    /// The rejected pushes of a node, for a new stream.
    pub fn of(plans: &Plans, node: &str) -> RejectedPushes {
        let rejected = plans.rejected_by(node).into_iter();
        RejectedPushes(
            rejected.map(|(plan, push)| RejectedPush { plan, push, restated: Vec::new() }).collect(),
        )
    }

    /// Adds a push that went back or was halted.
    pub fn add(&mut self, plan: &Arc<PlanHandle>, push: u64) {
        self.0.retain(|rejected| !Arc::ptr_eq(&rejected.plan, plan));
        self.0.push(RejectedPush { plan: plan.clone(), push, restated: Vec::new() });
    }

    /// Begins to restate the differences of the pushes, at each source of a push. A client that keeps a
    /// halted push is restated once another content is due (WAV-16).
    pub fn restate(&mut self, session: &mut Session, sources: &OwnSources) {
        for RejectedPush { plan, push, restated } in &mut self.0 {
            let is_judged =
                |source: &SourceHandle| source.judge().is_some_and(|judge| Arc::ptr_eq(&judge, plan));
            let of_plan: Vec<_> = sources.iter().filter(|(_, source)| is_judged(source)).collect();
            if of_plan.iter().all(|(id, _)| restated.contains(id)) {
                continue;
            }
            let mut served = of_plan.iter().map(|(_, source)| sources.served(source));
            if served.any(|snapshot| snapshot.lane().push == Some(*push)) {
                continue;
            }
            for (id, source) in of_plan {
                let published = source.published();
                // A source that had no part in the latest push restates the one before.
                let latest = published.restated.as_ref().filter(|latest| latest.push <= *push);
                if let Some(latest) = latest.filter(|_| !restated.contains(id)) {
                    session.restate(*id, latest.clone());
                    restated.push(*id);
                }
            }
        }
    }
}
