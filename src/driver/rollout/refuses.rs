//! The contents that a plan refuses to all who can be given something else (WAV-22).

use crate::driver::rollout::task::PlanTask;
use crate::driver::source::lane_order::LaneOrder;
use crate::engine::evidence::{CONTENTS_MAX, CondemnedContents, Content};
use crate::engine::rollout::{Refused, RolloutState, UnitId};

/// The contents as the sources were told last.
#[derive(Default)]
pub(super) struct Refuses {
    condemned: CondemnedContents,
    halted: Halted,
}

/// The contents that a halted push brought.
#[derive(Default)]
struct Halted {
    push: Option<u64>,
    /// After a restart a content is known when the server says it again.
    is_whole: bool,
    contents: Vec<Content>,
}

impl PlanTask {
    /// Tells the sources which contents the plan refuses, if these are others than before: the condemned ones, and those of the push that
    /// stands halted.
    pub(super) async fn refuse(&mut self) {
        let (condemned, halted) = (self.rejecters.condemned().clone(), self.halted());
        let is_same = halted.is_none() && condemned.is_same(&self.refuses.condemned);
        if is_same {
            return;
        }
        let halted = halted.unwrap_or_else(|| std::mem::take(&mut self.refuses.halted));
        self.refuses = Refuses { condemned, halted };
        let Refuses { condemned, halted } = &self.refuses;
        let condemned = condemned.latest_first().map(|(_, content)| content);
        let refused = Refused::of(condemned.chain(&halted.contents).cloned());
        if *self.handle.refused() != refused {
            self.handle.refuse(refused);
            self.order(LaneOrder::Refuse).await;
        }
    }

    /// The contents of the halted push; `None`: as before.
    fn halted(&self) -> Option<Halted> {
        let push = self.rollout.under_way().filter(|push| push.state == RolloutState::Halted);
        let push = push.filter(|_| self.plan.enforces());
        let known = &self.refuses.halted;
        let Some(push) = push else { return known.push.is_some().then(Halted::default) };
        if known.push == Some(push.number) && known.is_whole {
            return None;
        }
        let sources = self.sources();
        let stable = |unit: UnitId| sources.get(&unit).map(|source| source.published().stable().clone());
        let (set, is_whole) = self.known.changes(&self.plan, &push.units, &stable);
        let types = set.units().iter().flat_map(|unit| &unit.types);
        let contents = types.flat_map(|of| {
            of.names().filter_map(|name| Some((of.type_url.clone(), name.name.clone(), name.version()?)))
        });
        let contents = contents.take(CONTENTS_MAX).collect();
        Some(Halted { push: Some(push.number), is_whole, contents })
    }
}
