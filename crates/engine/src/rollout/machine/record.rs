//! The state of a plan that outlives the process (WAV-8).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::commands::Freeze;
use super::held::{ContentOrigin, Given, GivenRelease};
use super::{Push, Rollout};
use crate::Time;
use crate::rollout::command::Until;
use crate::rollout::plan::Plan;
use crate::rollout::push::{Differs, ReleaseDigest, UnitId};
use crate::rollout::report::{Pin, Reason, RolloutState, StepReport, Verdict};
use crate::rollout::tally::Counts;
use crate::time::ReceivedAt;

/// A plan, as plain data: no times, as another process has another clock. `UnitId`s are those of the process
/// that wrote the record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub last_push: u64,
    pub push: Option<PushRecord>,
    /// The latest first, with the trusted contents. A release that was served again stands twice.
    pub releases: Vec<ReleaseRecord>,
    pub barred: Vec<UnitId>,
    /// Units whose stable content clients have accepted as a push.
    pub proved: Vec<UnitId>,
    /// The units that hold something back, each with the age of the oldest change.
    pub away: Vec<(UnitId, Duration)>,
    /// The time left.
    pub frozen: Option<Duration>,
    pub pin: Option<PinRecord>,
    /// The release that is the stable content. `None` in a record of an earlier version.
    pub served: Option<u64>,
}

/// A halted push. A push on its way is not recorded: it begins anew, as nobody knows its admitted clients
/// after a restart. A push that an operator paused is recorded as halted by all of its units, so that a
/// restart does not undo the operator's word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushRecord {
    pub number: u64,
    /// 0 before the first step.
    pub step: u8,
    pub threshold: u16,
    pub units: Vec<UnitRecord>,
    pub blamed: Vec<UnitId>,
}

/// A unit of a push. Written as a list of its three values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(UnitId, ReleaseDigest, ReleaseDigest)", into = "(UnitId, ReleaseDigest, ReleaseDigest)")]
pub struct UnitRecord {
    pub unit: UnitId,
    pub stable: ReleaseDigest,
    pub candidate: ReleaseDigest,
}

impl From<(UnitId, ReleaseDigest, ReleaseDigest)> for UnitRecord {
    fn from(values: (UnitId, ReleaseDigest, ReleaseDigest)) -> UnitRecord {
        let (unit, stable, candidate) = values;
        UnitRecord { unit, stable, candidate }
    }
}

impl From<UnitRecord> for (UnitId, ReleaseDigest, ReleaseDigest) {
    fn from(record: UnitRecord) -> (UnitId, ReleaseDigest, ReleaseDigest) {
        (record.unit, record.stable, record.candidate)
    }
}

/// A content that all clients had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRecord {
    pub push: u64,
    pub units: Vec<(UnitId, ReleaseDigest)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinRecord {
    pub release: u64,
    pub until: PinEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinEnd {
    NextPush,
    Unpin,
    /// The time left.
    #[serde(rename = "left_ms", with = "millis")]
    Left(Duration),
}

/// Durations in milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

impl Record {
    /// The record with other numbers of units. Leaves out the units without a number.
    pub fn renumber(self, number: impl Fn(UnitId) -> Option<UnitId>) -> Record {
        let units = |units: Vec<UnitId>| units.into_iter().filter_map(&number).collect();
        let part = |part: UnitRecord| Some(UnitRecord { unit: number(part.unit)?, ..part });
        let release = |release: ReleaseRecord| {
            let units = release.units.into_iter();
            let units = units.filter_map(|(unit, content)| Some((number(unit)?, content)));
            ReleaseRecord { push: release.push, units: units.collect() }
        };
        let away = self.away.into_iter();
        Record {
            push: self.push.map(|push| PushRecord {
                units: push.units.into_iter().filter_map(part).collect(),
                blamed: units(push.blamed),
                ..push
            }),
            releases: self.releases.into_iter().map(release).collect(),
            barred: units(self.barred),
            proved: units(self.proved),
            away: away.filter_map(|(unit, age)| Some((number(unit)?, age))).collect(),
            ..self
        }
    }
}

impl Rollout {
    pub fn record(&self, now: Time) -> Record {
        let trusted = |release: &GivenRelease| {
            let trusted = release.units.iter().filter(|(_, given)| given.is_trusted);
            trusted.map(|(unit, given)| (*unit, given.content)).collect()
        };
        let release = |release: &GivenRelease| ReleaseRecord { push: release.push, units: trusted(release) };
        let end = |until| match until {
            Until::NextPush => PinEnd::NextPush,
            Until::Unpin => PinEnd::Unpin,
            Until::Time(until) => PinEnd::Left(until.since(now)),
        };
        Record {
            last_push: self.last_push,
            push: self.push.as_ref().and_then(|push| push.record(&self.held.digests)),
            releases: self.held.releases().map(release).collect(),
            barred: self.held.barred.iter().copied().collect(),
            proved: self.held.proved.iter().copied().collect(),
            away: self.held.ages(now).collect(),
            frozen: self.frozen.map(|frozen| frozen.until.since(now)),
            pin: self.pin.map(|pin| PinRecord { release: pin.release, until: end(pin.until) }),
            served: Some(self.held.served),
        }
    }

    /// The plan as recorded. `passed`: the time since the record was written, for what ends by a clock. Tell
    /// of each unit by [`Rollout::found`].
    pub fn restore(plan: Arc<Plan>, record: Record, passed: Duration, now: Time) -> Rollout {
        let mut rollout = Rollout::new(plan);
        rollout.last_push = record.last_push;
        let stable =
            || record.pin.map(|pin| pin.release).or(record.releases.first().map(|release| release.push));
        rollout.held.served = record.served.or_else(stable).unwrap_or_default();
        for entry in record.releases.into_iter().rev() {
            let given = |content| Given::new(content, ContentOrigin::Carried);
            let units = entry.units.into_iter().map(|(unit, content)| (unit, given(content))).collect();
            let release = GivenRelease { push: entry.push, units, is_here: true };
            rollout.held.add(release, rollout.plan.releases);
        }
        rollout.held.lose_the_past();
        rollout.held.barred = record.barred.into_iter().collect();
        rollout.held.proved = record.proved.into_iter().collect();
        let since = |age: Duration| ReceivedAt::before(now, age.saturating_add(passed));
        rollout.held.recall(record.away.into_iter().map(|(unit, age)| (unit, since(age))));
        let left = |left: Duration| now + left.saturating_sub(passed);
        rollout.frozen = record.frozen.map(|length| Freeze::new(left(length), now));
        rollout.pin = record.pin.map(|pin| Pin {
            release: pin.release,
            from: now,
            until: match pin.until {
                PinEnd::NextPush => Until::NextPush,
                PinEnd::Unpin => Until::Unpin,
                PinEnd::Left(length) => Until::Time(left(length)),
            },
        });
        if let Some(push_record) = record.push {
            let digests = push_record.units.iter().map(|unit| (unit.unit, (unit.stable, unit.candidate)));
            rollout.held.digests = digests.collect();
            // Nothing is known to be back at the stable content.
            let differs = Differs { from_stable: true, from_candidate: false };
            for unit in &push_record.units {
                rollout.held.compare(unit.unit, differs, now);
            }
            let push = rollout.push.insert(Push::restored(&rollout.plan, push_record, now));
            push.admit(&mut rollout.outputs);
        }
        rollout.stand_or_go(now);
        rollout
    }

    /// Units that held something back before a restart, and whose server has not answered since.
    pub fn recalled(&self) -> impl Iterator<Item = UnitId> {
        self.held.recalled()
    }

    /// The server of a unit has answered for all gated types since a restart, and its content has been
    /// compared.
    pub fn answered(&mut self, unit: UnitId) {
        self.held.answered(unit);
    }

    /// The source of a unit failed, and began anew from the stable content under another number. Returns
    /// whether the content that it held back stays known. A push on its way goes on without the unit, whose
    /// content is gathered again.
    pub fn began_anew(&mut self, previous: UnitId, unit: UnitId, now: Time) -> bool {
        let is_barred = self.held.barred.contains(&previous);
        let stays = self.keeps_hold(previous) || is_barred;
        match stays {
            true => self.found(previous, unit),
            false => self.gone(previous, now),
        }
        if self.lost.remove(&previous) {
            self.stand_or_go(now);
        }
        stays
    }

    /// A unit of the record is here again, by another number.
    pub fn found(&mut self, recorded: UnitId, unit: UnitId) {
        self.held.rename(recorded, unit);
        if self.pin.is_some() {
            self.held.pinned.insert(unit);
        }
        let Some(push) = &mut self.push else { return };
        let lists = [&mut push.report.units, &mut push.report.blamed];
        for listed in lists.into_iter().flatten().filter(|listed| **listed == recorded) {
            *listed = unit;
        }
    }
}

impl Push {
    fn record(&self, digests: &BTreeMap<UnitId, (ReleaseDigest, ReleaseDigest)>) -> Option<PushRecord> {
        let report = &self.report;
        let unit = |unit: &UnitId| {
            let (stable, candidate) = digests.get(unit).copied().unwrap_or_default();
            UnitRecord { unit: *unit, stable, candidate }
        };
        let blamed = match (self.is_halted(), self.is_paused) {
            (true, _) => &report.blamed,
            (false, true) => &report.units,
            (false, false) => return None,
        };
        Some(PushRecord {
            number: report.number,
            step: self.number_of_step(),
            threshold: report.steps.last().map_or(0, |step| step.threshold),
            units: report.units.iter().map(unit).collect(),
            blamed: blamed.clone(),
        })
    }

    fn restored(plan: &Plan, record: PushRecord, now: Time) -> Push {
        let mut push = Push::new(plan, record.number, &[], now);
        push.report.units = record.units.iter().map(|unit| unit.unit).collect();
        push.report.blamed = record.blamed;
        if record.step > 0 {
            let (ended, admitted) = (Some(now), Counts::default());
            let (number, threshold) = (record.step, record.threshold);
            push.report.steps.push(StepReport { number, threshold, began: now, ended, admitted });
        }
        (push.is_open, push.is_watched) = (true, false);
        let (step, clients, after) = (record.step, 0, Duration::ZERO);
        push.report.state = RolloutState::Halted;
        push.report.verdict = Some(Verdict { at: now, after, step, clients, reason: Reason::Restarted });
        push
    }
}
