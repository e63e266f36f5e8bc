//! The state of a plan beyond the end of the task and of the process (WAV-8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::future::join_all;

use crate::driver::ground::checkpoint_writer::{CheckpointWriter, StateWrite};
use crate::driver::ground::durable::stored_unit;
use crate::driver::rollout::fleet::{Fleet, unit_of};
use crate::driver::rollout::gatherer::{Gatherer, is_recorded, recorded_units};
use crate::driver::rollout::restater::Restater;
use crate::driver::rollout::state::PlanState;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::lane_order::LaneOrder;
use crate::telemetry::wall_now;
use sluice_checkpoint::StateFile;
use sluice_engine::Time;
use sluice_fleet::evidence::{CondemnedContents, Content, REMEMBERED_FOR};
use sluice_fleet::rollout::record::{StoredContent, StoredUnit};
use sluice_fleet::rollout::shared::UnitKey;
use sluice_fleet::rollout::{Record, ReleaseDigest, Rollout, RolloutState, UnitId};
use sluice_xds::{ResourceName, TypeUrl, Version};

/// Keeps the record of a plan, and the holds of its sources.
#[derive(Default)]
pub(super) struct PlanKeeper {
    /// The units of the record that are still missing.
    missing: BTreeMap<UnitId, StoredUnit>,
    /// The content of the halted push at missing units.
    halted: BTreeMap<UnitId, ReleaseDigest>,
    /// The units that know that their hold outlives their names.
    kept: BTreeSet<UnitId>,
}

impl PlanKeeper {
    /// Goes on from the state of another task or process, if there is one.
    pub(super) fn restore(
        &mut self,
        state: &mut PlanState,
        gatherer: &mut Gatherer,
        restater: &mut Restater,
        fleet: &Fleet,
    ) {
        let plan = state.plan().clone();
        let Some(stored) = fleet.shared.durable.plans.of(&plan.name).filter(|_| plan.enforces()) else {
            return;
        };
        let now = fleet.now();
        let written_at = UNIX_EPOCH + Duration::from_micros(stored.written_at);
        let passed = wall_now().duration_since(written_at).unwrap_or_default();
        let numbers: BTreeMap<UnitId, UnitId> = stored.units.keys().copied().zip(recorded_units()).collect();
        let number = |unit: UnitId| numbers.get(&unit).copied();
        restater.restore(&stored.rejected, number, fleet);
        state.rejecters.condemn_again(condemned_of(&stored.condemned, passed), now);
        self.missing =
            stored.units.iter().filter_map(|(unit, source)| Some((number(*unit)?, source.clone()))).collect();
        let record = stored.renumber(number);
        let pushed = record.push.iter().flat_map(|push| &push.units);
        self.halted = pushed.map(|part| (part.unit, part.candidate)).collect();
        state.rollout = Rollout::restore(plan, record, passed, now);
        self.find(state, gatherer, restater, fleet);
    }

    /// Looks for the missing units of the record among the sources.
    pub(super) fn find(
        &mut self,
        state: &mut PlanState,
        gatherer: &mut Gatherer,
        restater: &mut Restater,
        fleet: &Fleet,
    ) {
        if self.missing.is_empty() {
            return;
        }
        for (unit, stored) in stored_units(fleet) {
            let recorded = self.missing.iter().find(|(_, recorded)| **recorded == stored);
            let Some((recorded, _)) = recorded else { continue };
            let recorded = *recorded;
            self.missing.remove(&recorded);
            if let Some(digest) = self.halted.remove(&recorded) {
                gatherer.contents.halted_before(unit, digest);
            }
            restater.recover(recorded, unit);
            state.rollout.found(recorded, unit);
        }
    }

    /// The units of the plan as replicas name them, also those that are still missing.
    pub(super) fn keys(&self, fleet: &Fleet) -> BTreeMap<UnitId, UnitKey> {
        let missing = self.missing.iter().map(|(unit, stored)| (*unit, stored.clone()));
        let stored = stored_units(fleet).into_iter().chain(missing);
        stored.map(|(unit, stored)| (unit, UnitKey::new(&stored.list, &stored.class))).collect()
    }

    /// Whether a unit that held something back before a restart has a server that has not answered since.
    pub(super) fn awaits_servers(state: &PlanState) -> bool {
        state.rollout.recalled().any(|unit| !is_recorded(unit))
    }

    /// Keeps the state for the next task and for a successor, and for the next [`PlanKeeper::write`]. Ends
    /// holds without a difference before, once no push stands.
    pub(super) async fn put(
        &self,
        state: &mut PlanState,
        gatherer: &mut Gatherer,
        restater: &Restater,
        fleet: &Fleet,
    ) {
        if state.rollout.state() == RolloutState::Open {
            gatherer.rest(state, fleet).await;
        }
        state.is_unsaved = false;
        let (plan, store) = (state.plan(), &fleet.shared.durable.plans);
        if !plan.enforces() {
            store.forget(&plan.name);
            return;
        }
        let now = fleet.now();
        let since_1970 = wall_now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let missing = self.missing.iter().map(|(unit, stored)| (*unit, stored.clone()));
        store.put(Record {
            name: plan.name.to_string(),
            written_at: u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX),
            units: stored_units(fleet).into_iter().chain(missing).collect(),
            condemned: stored_contents(state.rejecters.condemned(), now),
            rejected: restater.record(fleet),
            ..state.rollout.record(now)
        });
    }

    /// Begins to write the latest states of all plans to the disk, if there is one.
    pub(super) fn write(write: &mut StateWrite, state: &PlanState, fleet: &Fleet) {
        if let Some(checkpoint) = fleet.shared.durable.checkpoint.as_ref().filter(|_| state.enforces()) {
            let shared = fleet.shared.clone();
            write.begin(checkpoint, StateFile::Plans, move || shared.durable.plans.encoded());
        }
    }

    /// Tells units that their hold outlives the names that they forget, once for each halt and each pin
    /// (WAV-8). A halt of before a restart has sent nobody back, so they know nothing of it.
    pub(super) async fn keep_holds(&mut self, rollout: &Rollout, fleet: &Fleet) {
        let is_pinned = rollout.state() == RolloutState::Pinned;
        if self.kept.is_empty() && !is_pinned && rollout.under_way().is_none() {
            return;
        }
        let is_kept = |source: &SourceHandle| rollout.keeps_hold(unit_of(source));
        let sources = fleet.sources();
        sources.iter().for_each(|source| source.set_kept(is_kept(source)));
        let kept: Vec<_> = sources.into_iter().filter(|source| is_kept(source)).collect();
        let new = kept.iter().filter(|source| !self.kept.contains(&unit_of(source)));
        join_all(new.map(|source| source.order(LaneOrder::Keep))).await;
        self.kept = kept.iter().map(|source| unit_of(source)).collect();
    }
}

/// The present units, as in records.
fn stored_units(fleet: &Fleet) -> BTreeMap<UnitId, StoredUnit> {
    let settings = fleet.shared.epoch();
    let stored = |source: &Arc<SourceHandle>| {
        let listed = settings.lists.find(source.key().place)?;
        let identity = CheckpointWriter::identity(source.key(), listed)?;
        Some((unit_of(source), stored_unit(&identity)))
    };
    fleet.sources().iter().filter_map(stored).collect()
}

/// The condemned contents, each with the time left. `passed`: the time since the file was written.
fn condemned_of(stored: &[StoredContent], passed: Duration) -> impl Iterator<Item = (Content, Duration)> {
    stored.iter().map(move |stored| {
        let name = ResourceName::new(stored.name.as_str());
        let content = (TypeUrl::new(stored.type_url.as_str()), name, Version(stored.version));
        // A file cannot make a content outlive its time (QUA-5).
        let left = stored.left_ms.map_or(REMEMBERED_FOR, Duration::from_millis).min(REMEMBERED_FOR);
        (content, left.saturating_sub(passed))
    })
}

fn stored_contents(condemned: &CondemnedContents, now: Time) -> Vec<StoredContent> {
    let stored = |(end, (type_url, name, version)): &(Time, Content)| StoredContent {
        type_url: type_url.as_str().to_owned(),
        name: name.as_str().to_owned(),
        version: version.0,
        left_ms: u64::try_from(end.since(now).as_millis()).ok(),
    };
    condemned.latest_first().map(stored).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_fleet::evidence::Rejecters;

    #[test]
    fn qua_5_a_condemned_content_keeps_its_end_over_a_restart() {
        let (day, began) = (Duration::from_secs(24 * 3_600), Time::ZERO + Duration::from_secs(50));
        let content = |name: &str| (TypeUrl::new("t"), ResourceName::new(name), Version(7));
        let mut before = Rejecters::default();
        before.condemn_again(
            [("a", 5), ("b", 2)].map(|(name, days)| (content(name), days * day)).into_iter(),
            began,
        );
        let mut stored = stored_contents(before.condemned(), began + day);
        let left: Vec<_> = stored.iter().map(|stored| (stored.name.as_str(), stored.left_ms)).collect();
        assert_eq!(left, [("a", Some(4 * 86_400_000)), ("b", Some(86_400_000))]);
        // A file of an earlier build, and one by hand.
        let by_hand = |name: &str, left_ms| StoredContent { name: name.into(), left_ms, ..stored[0].clone() };
        let more = [by_hand("earlier", None), by_hand("far", Some(u64::MAX))];
        stored.extend(more);
        let mut after = Rejecters::default();
        after.condemn_again(condemned_of(&stored, day), began);
        let condemned = after.condemned().latest_first();
        let left = condemned.map(|(end, (_, name, _))| (name.as_str(), end.since(began)));
        assert_eq!(left.collect::<Vec<_>>(), [("far", 6 * day), ("earlier", 6 * day), ("a", 3 * day)]);
    }
}
