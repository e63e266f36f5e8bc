//! The changes of the next push.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::rollout::ledger::Consent;
use crate::rollout::plan::Plan;
use crate::rollout::push::{UnitId, UnitPush};
use sluice_engine::Time;

/// The wait before another look at units that were not current.
const RETRY: Duration = Duration::from_secs(1);

/// The next push, until it begins.
#[derive(Debug, Default)]
pub(super) struct NextPush {
    pub gathering: Option<Gathering>,
    /// The changes that the driver was asked to cut.
    pub cutting: Option<Gathering>,
    /// The units of the latest cut, and its number.
    pub cut_units: Vec<UnitId>,
    pub number: u64,
    pub promoted: Option<PromotedStep>,
}

/// The step of an operator with which the next push begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromotedStep {
    pub step: u8,
    /// The halted push that the operator meant.
    pub halted: u64,
    /// The push of the record that another replica began by the operator's word: the word is for no later
    /// push.
    pub joins: Option<u64>,
    /// At this replica alone: the ledger never hears of the push (LDG-5).
    pub is_here: bool,
}

impl NextPush {
    pub(super) fn has(&self, unit: UnitId) -> bool {
        self.gathering.as_ref().is_some_and(|gathering| gathering.units.contains_key(&unit))
    }

    pub(super) fn add(&mut self, unit: UnitId, now: Time) {
        self.gathering.get_or_insert_with(|| Gathering::new(now)).add(unit, now);
    }

    pub(super) fn is_of_here(&self) -> bool {
        self.promoted.is_some_and(|promoted| promoted.is_here)
    }

    pub(super) fn remove(&mut self, unit: UnitId) {
        self.gathering = self.gathering.take().and_then(|gathering| gathering.without(unit));
    }
}

#[derive(Clone, Debug)]
pub(super) struct Gathering {
    pub first: Time,
    last: Time,
    not_before: Time,
    /// Since when a cut is allowed: changes that waited for another push may still be in the middle of
    /// something.
    free_since: Option<Time>,
    /// An operator wants the push now.
    is_urgent: bool,
    /// Each with the time of its first change.
    pub units: BTreeMap<UnitId, Time>,
}

impl Gathering {
    pub(super) fn new(now: Time) -> Gathering {
        Gathering {
            first: now,
            last: now,
            not_before: now,
            free_since: None,
            is_urgent: false,
            units: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, unit: UnitId, now: Time) {
        self.last = now;
        self.units.entry(unit).or_insert(now);
    }

    pub(super) fn without(mut self, unit: UnitId) -> Option<Gathering> {
        self.units.remove(&unit);
        (!self.units.is_empty()).then_some(self)
    }

    pub(super) fn hurry(&mut self) {
        self.is_urgent = true;
    }

    /// A cut is allowed from now on, or is not allowed.
    pub(super) fn allow(&mut self, is_allowed: bool, now: Time) {
        match is_allowed {
            true => drop(self.free_since.get_or_insert(now)),
            false => self.free_since = None,
        }
    }

    /// The time of the cut, if nothing changes until then.
    pub(super) fn due(&self, plan: &Plan) -> Time {
        let quiet = if self.is_urgent { self.first } else { self.last + plan.gather.quiet };
        quiet.max(self.not_before).min(self.latest(plan))
    }

    /// The time of the cut, whatever changes.
    pub(super) fn latest(&self, plan: &Plan) -> Time {
        self.free_since.unwrap_or(self.first) + plan.gather.max
    }

    /// Counts the longest gathering from now on.
    pub(super) fn begin_anew(mut self, now: Time) -> Gathering {
        self.free_since = Some(now);
        self
    }

    /// Goes on gathering, with the changes that came during the cut.
    pub(super) fn retry(self, later: Option<Gathering>, plan: &Plan, now: Time) -> Gathering {
        Gathering { not_before: now + plan.gather.quiet.max(RETRY), ..self.with(later) }
    }

    /// Goes on gathering, with later changes.
    pub(super) fn with(mut self, later: Option<Gathering>) -> Gathering {
        if let Some(later) = later {
            self.last = later.last;
            for (unit, first) in later.units {
                self.units.entry(unit).or_insert(first);
            }
        }
        self
    }
}

/// A gathered push.
pub(super) struct GatheredPush {
    pub number: u64,
    pub from: Time,
    pub units: Vec<UnitPush>,
    pub holders_of: Option<u64>,
    pub start: PushStart,
    pub consent: Option<Consent>,
}

/// The begin of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushStart {
    /// By the guards, and with the first step.
    Judged,
    /// With this step, whatever the guards say, in place of a halted push.
    Promoted { step: u8, halted: u64 },
    /// All clients are admitted, as they had the content before, unless a content is condemned.
    Restored,
}
