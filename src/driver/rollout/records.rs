//! The state of a plan beyond the end of the task and of the process (WAV-8).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::driver::ground::checkpoint_writer::CheckpointWriter;
use crate::driver::ground::stored_plans::{
    StoredContent, StoredDigest, StoredPin, StoredPinEnd, StoredPlan, StoredPush, StoredRejected,
    StoredRelease, StoredUnit,
};
use crate::driver::rollout::rejections::restated_of;
use crate::driver::rollout::task::{PlanTask, own_sources};
use crate::driver::source::handle::SourceHandle;
use crate::engine::Time;
use crate::engine::evidence::{CondemnedContents, Content, REMEMBERED_FOR};
use crate::engine::lanes::Restated;
use crate::engine::rollout::{
    PinEnd, PinRecord, PushRecord, Record, ReleaseDigest, ReleaseRecord, Rollout, UnitId, UnitRecord,
};
use crate::telemetry::wall_now;
use crate::xds::{ResourceName, TypeUrl, Version};

/// Units of the record have numbers from here on until the search finds them. Sources have smaller numbers.
const RECORDED_FROM: u64 = 1 << 63;

/// Whether a unit of a record is still missing.
pub(super) fn is_recorded(unit: UnitId) -> bool {
    unit.0 >= RECORDED_FROM
}

/// The missing units of a record.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    units: BTreeMap<UnitId, StoredUnit>,
    /// The content of the halted push, by the number in the record.
    pushed: BTreeMap<UnitId, ReleaseDigest>,
    /// The names that clients may have of rejected pushes, by the number in the record (WAV-10).
    pub(super) restated: BTreeMap<UnitId, Arc<Restated>>,
    /// The same names, of the units that are found. The sources are told next.
    pub(super) found: Vec<(UnitId, Arc<Restated>)>,
}

impl PlanTask {
    /// Goes on from the state of another task or process.
    pub(super) fn restore(&mut self) {
        let Some(stored) = self.shared.durable.plans.of(&self.plan.name).filter(|_| self.plan.enforces())
        else {
            return;
        };
        let now = self.shared.clock.now();
        let written_at = UNIX_EPOCH + Duration::from_micros(stored.written_at);
        let passed = wall_now().duration_since(written_at).unwrap_or_default();
        let (record, recorded) = record_of(&stored);
        self.recorded = recorded;
        self.rejecters.condemn_again(condemned_of(&stored.condemned, passed), now);
        self.rollout = Rollout::restore(self.plan.clone(), record, passed, now);
        self.restore_rejecters(&stored.rejected);
        self.find();
    }

    /// Looks for the units of the record among the sources.
    pub(super) fn find(&mut self) {
        if self.recorded.units.is_empty() {
            return;
        }
        let known: HashMap<UnitId, StoredUnit> = self.stored_units().into_iter().collect();
        for (unit, stored) in known {
            let found = self.recorded.units.iter().find(|(_, recorded)| **recorded == stored);
            let Some(recorded) = found.map(|(recorded, _)| *recorded) else { continue };
            self.recorded.units.remove(&recorded);
            if let Some(digest) = self.recorded.pushed.remove(&recorded) {
                self.known.halted_before(unit, digest);
            }
            let restated = self.recorded.restated.remove(&recorded);
            self.recorded.found.extend(restated.map(|restated| (unit, restated)));
            self.rollout.found(recorded, unit);
        }
    }

    /// Keeps the state for the next task and process. Returns whether the disk has it, if there is one.
    pub(super) async fn keep(&self) -> bool {
        if !self.plan.enforces() {
            self.shared.durable.plans.forget(&self.plan.name);
            return true;
        }
        let now = self.shared.clock.now();
        let mut stored = stored_of(&self.plan.name, self.rollout.record(now), wall_now());
        stored.condemned = stored_contents(self.rejecters.condemned(), now);
        let found = self.stored_units().into_iter();
        let lost = self.recorded.units.iter().map(|(unit, stored)| (*unit, stored.clone()));
        stored.units = found.chain(lost).map(|(unit, stored)| (unit.0, stored)).collect();
        stored.rejected = self.stored_rejections();
        self.shared.durable.plans.put(stored);
        match &self.shared.durable.checkpoint {
            Some(checkpoint) => checkpoint.clone().write_plans(self.shared.durable.plans.encoded()).await,
            None => true,
        }
    }

    fn stored_units(&self) -> Vec<(UnitId, StoredUnit)> {
        let settings = self.shared.epoch();
        let stored = |source: &SourceHandle| {
            let listed = settings.lists.find(source.key().place)?;
            let identity = CheckpointWriter::identity(source.key(), listed)?;
            Some((UnitId(source.id().0), StoredUnit::from(&identity)))
        };
        let own = own_sources(&self.handle, &self.shared, &self.tables);
        own.iter().filter_map(|source| stored(source)).collect()
    }
}

/// The plain record, and the units.
fn record_of(stored: &StoredPlan) -> (Record, Recorded) {
    let numbers: BTreeMap<u64, UnitId> =
        (RECORDED_FROM..).zip(stored.units.keys()).map(|(number, unit)| (*unit, UnitId(number))).collect();
    let unit = |of: &u64| numbers.get(of).copied();
    let units = |of: &[u64]| of.iter().filter_map(unit).collect::<Vec<_>>();
    let digest = |of: &StoredDigest| ReleaseDigest(of.0);
    let push = stored.push.as_ref().map(|of| PushRecord {
        number: of.number,
        step: of.step,
        threshold: of.threshold,
        units: of
            .units
            .iter()
            .filter_map(|(number, stable, candidate)| {
                Some(UnitRecord { unit: unit(number)?, stable: digest(stable), candidate: digest(candidate) })
            })
            .collect(),
        blamed: units(&of.blamed),
    });
    let pushed = push.iter().flat_map(|push| push.units.iter().map(|of| (of.unit, of.candidate))).collect();
    let recorded = stored.units.iter().filter_map(|(number, of)| Some((unit(number)?, of.clone()))).collect();
    let restated = stored.rejected.restated.iter();
    let restated = restated.filter_map(|of| Some((unit(&of.unit)?, Arc::new(restated_of(of))))).collect();
    let release = |of: &StoredRelease| ReleaseRecord {
        push: of.push,
        units: of.units.iter().filter_map(|(number, of)| Some((unit(number)?, digest(of)))).collect(),
    };
    let end = |end: StoredPinEnd| match end {
        StoredPinEnd::NextPush => PinEnd::NextPush,
        StoredPinEnd::Unpin => PinEnd::Unpin,
        StoredPinEnd::LeftMs(left) => PinEnd::Left(Duration::from_millis(left)),
    };
    let record = Record {
        last_push: stored.last_push,
        push,
        releases: stored.releases.iter().map(release).collect(),
        barred: units(&stored.barred),
        proved: units(&stored.proved),
        away: stored
            .away_ms
            .iter()
            .filter_map(|(number, age)| Some((unit(number)?, Duration::from_millis(*age))))
            .collect(),
        frozen: stored.frozen_ms.map(Duration::from_millis),
        pin: stored.pin.as_ref().map(|of| PinRecord { release: of.release, until: end(of.until) }),
        served: stored.served,
    };
    (record, Recorded { units: recorded, pushed, restated, found: Vec::new() })
}

/// The condemned contents, each with the time left. `passed`: the time since the file was written.
fn condemned_of(stored: &[StoredContent], passed: Duration) -> impl Iterator<Item = (Content, Duration)> {
    stored.iter().map(move |of| {
        let name = ResourceName::new(of.name.as_str());
        let content = (TypeUrl::new(of.type_url.as_str()), name, Version(of.version.0));
        // A file cannot make a content outlive its time (QUA-5).
        let left = of.left_ms.map_or(REMEMBERED_FOR, Duration::from_millis).min(REMEMBERED_FOR);
        (content, left.saturating_sub(passed))
    })
}

fn stored_contents(condemned: &CondemnedContents, now: Time) -> Vec<StoredContent> {
    let stored = |(end, (type_url, name, version)): &(Time, Content)| StoredContent {
        type_url: type_url.as_str().to_owned(),
        name: name.as_str().to_owned(),
        version: StoredDigest(version.0),
        left_ms: Some(millis(end.since(now))),
    };
    condemned.latest_first().map(stored).collect()
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

fn stored_of(name: &str, record: Record, written_at: SystemTime) -> StoredPlan {
    let digest = |of: ReleaseDigest| StoredDigest(of.0);
    let push = record.push.map(|of| StoredPush {
        number: of.number,
        step: of.step,
        threshold: of.threshold,
        units: of.units.iter().map(|of| (of.unit.0, digest(of.stable), digest(of.candidate))).collect(),
        blamed: of.blamed.iter().map(|unit| unit.0).collect(),
    });
    let release = |of: ReleaseRecord| StoredRelease {
        push: of.push,
        units: of.units.into_iter().map(|(unit, of)| (unit.0, digest(of))).collect(),
    };
    let pin = |of: PinRecord| StoredPin {
        release: of.release,
        until: match of.until {
            PinEnd::NextPush => StoredPinEnd::NextPush,
            PinEnd::Unpin => StoredPinEnd::Unpin,
            PinEnd::Left(left) => StoredPinEnd::LeftMs(millis(left)),
        },
    };
    let since = written_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    StoredPlan {
        name: name.to_owned(),
        written_at: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
        last_push: record.last_push,
        push,
        releases: record.releases.into_iter().map(release).collect(),
        units: BTreeMap::new(),
        barred: record.barred.iter().map(|unit| unit.0).collect(),
        proved: record.proved.iter().map(|unit| unit.0).collect(),
        away_ms: record.away.iter().map(|(unit, age)| (unit.0, millis(*age))).collect(),
        frozen_ms: record.frozen.map(millis),
        pin: record.pin.map(pin),
        served: record.served,
        condemned: Vec::new(),
        rejected: StoredRejected::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::evidence::Rejecters;

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
        let left: Vec<_> = stored.iter().map(|of| (of.name.as_str(), of.left_ms)).collect();
        assert_eq!(left, [("a", Some(4 * 86_400_000)), ("b", Some(86_400_000))]);
        // A file of an earlier build, and one by hand.
        let by_hand = |name: &str, left_ms| StoredContent { name: name.into(), left_ms, ..stored[0].clone() };
        let more = [by_hand("earlier", None), by_hand("far", Some(u64::MAX))];
        stored.extend(more);
        let mut after = Rejecters::default();
        after.condemn_again(condemned_of(&stored, day), began);
        let found = after.condemned().latest_first().map(|(end, of)| (of.1.as_str(), end.since(began)));
        assert_eq!(found.collect::<Vec<_>>(), [("far", 6 * day), ("earlier", 6 * day), ("a", 3 * day)]);
    }
}
