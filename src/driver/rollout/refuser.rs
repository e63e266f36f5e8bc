//! The contents that a plan refuses to all who can be given something else (WAV-22).

use crate::driver::rollout::fleet::{Fleet, send};
use crate::driver::rollout::state::PlanState;
use crate::driver::source::lane_order::LaneOrder;
use sluice_fleet::evidence::{CONTENTS_MAX, CondemnedContents, Content, KnownContents};
use sluice_fleet::rollout::{Refused, RolloutState, UnitId};

/// The refused contents, as the sources were told last.
#[derive(Default)]
pub(super) struct Refuser {
    condemned: CondemnedContents,
    halted: HaltedContents,
}

/// The contents that a halted push brought.
#[derive(Default)]
struct HaltedContents {
    push: Option<u64>,
    /// All contents of the push are known. After a restart a content is known when the server says it again.
    is_whole: bool,
    contents: Vec<Content>,
}

impl Refuser {
    /// Tells the sources which contents the plan refuses, if these are others than before: the condemned
    /// ones, and those of the push that stands halted.
    pub(super) async fn refuse(&mut self, contents: &KnownContents, state: &PlanState, fleet: &Fleet) {
        let halted = self.newly_halted(contents, state, fleet);
        let condemned = state.rejecters.condemned();
        if halted.is_none() && condemned.is_same(&self.condemned) {
            return;
        }
        self.condemned = condemned.clone();
        self.halted = halted.unwrap_or_else(|| std::mem::take(&mut self.halted));
        let condemned = self.condemned.latest_first().map(|(_, content)| content);
        let refused = Refused::of(condemned.chain(&self.halted.contents).cloned());
        if *fleet.handle.refused() != refused {
            fleet.handle.refuse(refused);
            send(&fleet.sources(), LaneOrder::Refuse).await;
        }
    }

    /// The contents of the halted push; `None` if they are as before.
    fn newly_halted(
        &self,
        contents: &KnownContents,
        state: &PlanState,
        fleet: &Fleet,
    ) -> Option<HaltedContents> {
        let push = state.rollout.under_way().filter(|push| push.state == RolloutState::Halted);
        let Some(push) = push.filter(|_| state.enforces()) else {
            return self.halted.push.is_some().then(HaltedContents::default);
        };
        if self.halted.push == Some(push.number) && self.halted.is_whole {
            return None;
        }
        let sources = fleet.all_sources();
        let stable = |unit: UnitId| sources.get(&unit).map(|source| source.published().stable().clone());
        let (set, is_whole) = contents.changes(state.plan(), &push.units, &stable);
        let contents =
            set.contents().map(|(type_url, name, version)| (type_url.clone(), name.clone(), version));
        let contents = contents.take(CONTENTS_MAX).collect();
        Some(HaltedContents { push: Some(push.number), is_whole, contents })
    }
}
