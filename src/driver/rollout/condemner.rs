//! The condemned contents that replicas share (LDG-2, QUA-2). The ledger has hashes of them, so a replica
//! learns the names from the contents that its own servers send.

use std::sync::Arc;

use crate::driver::rollout::fleet::Fleet;
use crate::driver::rollout::state::PlanState;
use crate::telemetry::rollouts::tell_learned;
use sluice_fleet::evidence::{CondemnedContents, REMEMBERED_FOR};
use sluice_fleet::rollout::ledger::contents_of;
use sluice_fleet::rollout::shared::condemned::{CONDEMNED_MAX, CondemnedSet, ContentHash};
use sluice_xds::{ResourceName, TypeUrl, Version};

/// The condemned contents of here and of the ledger, as they were compared last.
#[derive(Default)]
pub(super) struct Condemner {
    shared: CondemnedContents,
    heard: Arc<CondemnedSet>,
}

impl Condemner {
    /// Tells other replicas the condemned contents of this one, and learns theirs.
    pub(super) async fn follow(&mut self, state: &mut PlanState, fleet: &Fleet) {
        let heard = state.rollout.condemned_by_all().filter(|heard| !Arc::ptr_eq(heard, &self.heard));
        if let Some(heard) = heard {
            self.heard = heard.clone();
            look_through(state, fleet).await;
        }
        let condemned = state.rejecters.condemned();
        if fleet.ledger.is_some() && !condemned.is_same(&self.shared) {
            self.shared = condemned.clone();
            let latest = condemned.latest_first().take(CONDEMNED_MAX);
            let hashed = latest
                .map(|(end, (type_url, name, version))| (ContentHash::new(type_url, name, *version), *end));
            state.rollout.condemn(hashed.collect(), fleet.now());
        }
    }
}

/// Learns the condemned contents that clients of this replica have, or may be given.
async fn look_through(state: &mut PlanState, fleet: &Fleet) {
    let plan = state.plan().clone();
    for source in fleet.sources() {
        let published = source.published();
        for snapshot in published.snapshots() {
            let types = snapshot.gated_types(&plan.gated);
            let contents = types.flat_map(|(type_url, content)| {
                contents_of(content)
                    .filter_map(move |(name, resource)| Some((type_url, name, resource?.version)))
            });
            learn(contents, state, fleet);
        }
        tokio::task::yield_now().await;
    }
}

/// Condemns those of these contents that another replica has condemned, for as long as it has. A plan has
/// their names from here on.
pub(super) fn learn<'a>(
    contents: impl Iterator<Item = (&'a TypeUrl, &'a ResourceName, Version)>,
    state: &mut PlanState,
    fleet: &Fleet,
) {
    let Some(shared) = state.rollout.condemned_by_all().filter(|shared| !shared.is_empty()) else { return };
    let (now, mut learned) = (fleet.now(), Vec::new());
    for (type_url, name, version) in contents {
        let Some(end) = shared.end(type_url, name, version) else { continue };
        let content = (type_url.clone(), name.clone(), version);
        if !state.rejecters.condemned().contains(&content) {
            // An entry cannot make a content outlive its time (QUA-5).
            let left = state.rollout.time_of(end).map_or(REMEMBERED_FOR, |end| end.since(now));
            learned.extend((!left.is_zero()).then(|| (content, left.min(REMEMBERED_FOR))));
        }
    }
    let (plan, push) = (&*state.plan().name, state.rollout.last_push());
    learned.iter().for_each(|(content, _)| tell_learned(&fleet.shared.metrics.events, plan, push, content));
    state.is_unsaved |= !learned.is_empty();
    state.rejecters.condemn_again(learned.into_iter(), now);
}
