//! The cut of a push, its begin, and its release.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::driver::ground::plans::Watched;
use crate::driver::rollout::count::Clients;
use crate::driver::rollout::inspect::Contents;
use crate::driver::rollout::task::PlanTask;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::lane_order::{LaneContent, LaneOrder};
use crate::engine::downstream::{PushSet, SourceId};
use crate::engine::evidence::{condemn, returned, unit_of};
use crate::engine::rollout::{UnitId, UnitPush};
use crate::engine::snapshot::Snapshot;

/// The maximum time from a publication to the note.
const LATE_NOTES: Duration = Duration::from_secs(10);

/// A push between its cut and its begin.
pub(super) struct Next {
    number: u64,
    set: PushSet,
    /// The content of the units at the cut.
    after: BTreeMap<UnitId, Arc<Snapshot>>,
}

impl PlanTask {
    /// Sums up the changes of the units since their first.
    pub(super) async fn cut(&mut self, number: u64, units: &[UnitId]) {
        let sources = self.sources();
        let present = units.iter().filter_map(|unit| Some((*unit, sources.get(unit)?)));
        // A server may have been lost since the last tally (WAV-18).
        present.clone().for_each(|(unit, source)| self.note_reach(unit, source));
        if self.is_put_off(units, &sources) {
            return;
        }
        let (mut changes, mut pushed, mut after) = (Vec::new(), Vec::<UnitPush>::new(), BTreeMap::new());
        let releases = together(present.map(|(unit, source)| (unit, self.releases(number, unit, source))));
        for (unit, LaneContent { stable, candidate, released }) in releases.await {
            let former = self.known.candidate(unit);
            let (of_unit, mut push) = unit_of(&self.plan, unit, (&stable, &candidate), former);
            push.returns_to = returned(&self.plan, released.iter(), (&stable, &candidate));
            let (contents, guards) = (Contents::new(&of_unit, &stable, &candidate), self.plan.guards);
            let inspected = tokio::task::spawn_blocking(move || contents.inspect(&guards)).await;
            push.findings = inspected.unwrap_or_default();
            changes.push(of_unit);
            // Without a known change the unit is in no push.
            if !(self.plan.enforces() && push.is_empty()) {
                after.insert(unit, candidate);
            }
            pushed.push(push);
        }
        let blank: Vec<_> = pushed.iter().filter(|push| push.is_empty()).map(|push| push.unit).collect();
        let set = PushSet::new(changes);
        condemn(&mut pushed, self.rejecters.condemned_in(&set, self.shared.clock.now()));
        let former = self.known.candidates();
        if self.plan.enforces() {
            after.iter().for_each(|(unit, candidate)| self.known.know(*unit, candidate.clone()));
            // The push has changes that were none of a push at the order before.
            let now = self.shared.clock.now();
            let cut = after.keys().filter_map(|unit| Some((*unit, sources.get(unit)?)));
            cut.for_each(|(unit, source)| self.compare(unit, source, now));
        }
        self.next = Some(Next { number, set, after });
        self.rollout.ready(pushed, self.shared.clock.now());
        let is_put_off = self.rollout.last_push() < number;
        if is_put_off {
            // The content is part of no push yet, and must be found again.
            self.known.restore(former);
        }
        let outside = if is_put_off { units } else { &blank };
        for (unit, source) in outside.iter().filter_map(|unit| Some((*unit, sources.get(unit)?))) {
            // The number is that of a push without the unit, or becomes one.
            source.order(LaneOrder::PutOff(number)).await;
            // Names that the source forgot were only held for the cut.
            self.compare(unit, source, self.shared.clock.now());
        }
    }

    /// The two releases of a unit at the cut; `None` if the unit has nothing to push.
    async fn releases(&self, number: u64, unit: UnitId, source: &SourceHandle) -> Option<LaneContent> {
        if self.plan.enforces() {
            return source.order(LaneOrder::Cut(number)).await;
        }
        let stable = self.before.get(&unit)?.clone();
        Some(LaneContent { stable, candidate: source.snapshot(), released: Vec::new() })
    }

    /// The latest cut is the push under way.
    pub(super) fn begin(&mut self, number: u64) {
        let Some(next) = self.next.take_if(|next| next.number == number) else { return };
        let mut candidates = BTreeMap::new();
        for (unit, after) in next.after {
            self.before.remove(&unit);
            self.known.begin(unit);
            if self.plan.enforces() {
                candidates.insert(SourceId(unit.0), after.clone());
            }
            self.cut.insert(unit, after);
        }
        let watched = Arc::new(Watched::new(next.set, candidates));
        self.handle.watch(Some(watched.clone()));
        self.rejecters.next_push();
        self.clients = Some(Clients::new(number, watched));
        // The first tally tells the step its affected clients.
        self.tally_due = Instant::now();
        self.cut_until = self.tally_due + LATE_NOTES;
    }

    pub(super) fn release(&mut self, number: u64) {
        if self.clients.as_ref().is_some_and(|clients| clients.number == number) {
            self.clients = None;
            self.handle.watch(None);
            self.cut.clear();
        }
        if let Some(next) = self.next.take_if(|next| next.number == number) {
            // The changes went back before the push began.
            next.after.keys().for_each(|unit| drop(self.before.remove(unit)));
        }
    }
}

/// The contents of all units at one moment (WAV-4). No unit waits until another has answered, and none until guards have read another's
/// content: what comes meanwhile is of the next push.
async fn together<C>(
    cuts: impl Iterator<Item = (UnitId, impl Future<Output = Option<C>>)>,
) -> Vec<(UnitId, C)> {
    let cuts = cuts.map(|(unit, content)| async move { Some((unit, content.await?)) });
    join_all(cuts).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::Barrier;
    use tokio::time::timeout;

    use super::*;

    /// Each source answers when all have been asked.
    #[tokio::test(start_paused = true)]
    async fn wav_4_all_units_are_cut_before_any_is_looked_at() {
        let all_asked = Barrier::new(3);
        let answer = async |has_hold: bool| {
            all_asked.wait().await;
            has_hold.then_some("content")
        };
        let cuts = [(1, true), (2, false), (3, true)].into_iter();
        let cuts = cuts.map(|(unit, has_hold)| (UnitId(unit), answer(has_hold)));
        let cut = timeout(Duration::from_secs(1), together(cuts)).await;
        assert_eq!(cut, Ok(vec![(UnitId(1), "content"), (UnitId(3), "content")]));
    }
}
