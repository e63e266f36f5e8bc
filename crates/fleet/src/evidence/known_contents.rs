//! The known contents of the units of a plan, to tell news from halted contents (WAV-8, WAV-17).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::content::{compare, is_current, renew};
use super::push_set::{PushSet, PushUnit};
use crate::rollout::push::Differs;
use crate::rollout::{Plan, ReleaseDigest, UnitId};
use sluice_engine::downstream::SourceId;
use sluice_engine::lanes::Published;
use sluice_engine::snapshot::Snapshot;

/// The latest candidate of each unit, and contents of a push that was halted before a restart.
#[derive(Debug, Default)]
pub struct KnownContents {
    candidates: BTreeMap<UnitId, Arc<Snapshot>>,
    /// Halted contents from before a restart. The server has not answered for all types since.
    awaited: BTreeMap<UnitId, ReleaseDigest>,
    /// Units that began anew with their candidate. The server has not answered for all types since.
    anew: BTreeSet<UnitId>,
}

/// The newest content of a unit, compared with the known contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    pub differs: Differs,
    /// The unit serves its stable content, and its latest candidate is known no longer.
    pub has_forgotten: bool,
}

impl KnownContents {
    /// The latest candidate of a unit.
    pub fn candidate(&self, unit: UnitId) -> Option<&Snapshot> {
        self.candidates.get(&unit).map(|candidate| &**candidate)
    }

    /// The latest candidates, for [`KnownContents::restore`].
    pub fn candidates(&self) -> BTreeMap<UnitId, Arc<Snapshot>> {
        self.candidates.clone()
    }

    /// A cut was put off: its contents are part of no push yet, and have to be found again.
    pub fn restore(&mut self, candidates: BTreeMap<UnitId, Arc<Snapshot>>) {
        self.candidates = candidates;
    }

    /// The content is the latest candidate of the unit.
    pub fn know(&mut self, unit: UnitId, content: Arc<Snapshot>) {
        self.candidates.insert(unit, content);
    }

    /// The latest candidate of the unit is stable.
    pub fn settle(&mut self, unit: UnitId) {
        self.candidates.remove(&unit);
        self.anew.remove(&unit);
    }

    /// No unit has a candidate.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.anew.clear();
    }

    /// A push begins with the unit: the halted content from before a restart is not known any more.
    pub fn begin(&mut self, unit: UnitId) {
        self.awaited.remove(&unit);
        self.anew.remove(&unit);
    }

    /// This content of the unit was halted before a restart.
    pub fn halted_before(&mut self, unit: UnitId, content: ReleaseDigest) {
        self.awaited.insert(unit, content);
    }

    /// The source of a unit began anew, and has another number. The latest candidate is compared with the
    /// words of the server, and not with the first content of the source. A digest would not do: returning
    /// clients may ask for other names.
    pub fn begin_anew(&mut self, previous: UnitId, unit: UnitId) {
        self.anew.remove(&previous);
        if let Some(candidate) = self.candidates.remove(&previous) {
            self.candidates.insert(unit, candidate);
            self.anew.insert(unit);
        }
        let awaited = self.awaited.remove(&previous);
        self.awaited.extend(awaited.map(|content| (unit, content)));
    }

    /// Whether the server of the unit has not answered for all types since a restart after a halt, or since
    /// it began anew.
    pub fn awaits(&self, unit: UnitId) -> bool {
        self.awaited.contains_key(&unit) || self.anew.contains(&unit)
    }

    /// The changes of the push under way, also after the count of clients has ended, and after a restart
    /// (QUA-2). `units`: the units of the push; `stable`: the stable content of a unit. Also returns whether
    /// the contents of all units are known: after a restart, a content is known when the server has repeated
    /// the content.
    pub fn changes(
        &self,
        plan: &Plan,
        units: &[UnitId],
        stable: &dyn Fn(UnitId) -> Option<Arc<Snapshot>>,
    ) -> (PushSet, bool) {
        let of_unit = |unit: &UnitId| {
            let (candidate, stable) = (self.candidate(*unit)?, stable(*unit)?);
            Some(PushUnit::between(SourceId(unit.0), &stable, candidate, &plan.gated))
        };
        let parts: Vec<_> = units.iter().filter_map(of_unit).collect();
        let are_all_known = parts.len() == units.len();
        (PushSet::new(parts), are_all_known)
    }

    /// Compares the newest content of a unit. `is_kept`:
    /// [`Rollout::keeps`](crate::rollout::Rollout::keeps); `last`: the number of the latest push.
    pub fn compare(
        &mut self,
        plan: &Plan,
        unit: UnitId,
        published: &Published,
        is_kept: bool,
        last: u64,
    ) -> Comparison {
        if self.anew.contains(&unit) && !is_current(plan, &published.live) {
            // As below.
            let differs = Differs { from_stable: true, from_candidate: false };
            return Comparison { differs, has_forgotten: false };
        }
        if let Some(candidate) = self.candidates.get_mut(&unit) {
            renew(plan, candidate, published, last);
        }
        let differs = compare(plan, published, self.candidates.get(&unit), is_kept);
        let digest = || ReleaseDigest::of(&published.live, &plan.gated);
        if differs.from_stable && self.awaited.get(&unit).is_some_and(|awaited| *awaited == digest()) {
            // The content of a push that was halted before a restart is back.
            self.awaited.remove(&unit);
            self.candidates.insert(unit, published.live.clone());
            let differs = Differs { from_candidate: false, ..differs };
            return Comparison { differs, has_forgotten: false };
        }
        if self.awaited.contains_key(&unit) && !is_current(plan, &published.live) {
            // A part of the server's answer is no other content than the halted one, nor has the server taken
            // anything back.
            let differs = Differs { from_stable: true, from_candidate: false };
            return Comparison { differs, has_forgotten: false };
        }
        let is_over = !differs.from_stable && !is_kept;
        Comparison { differs, has_forgotten: is_over && self.candidates.remove(&unit).is_some() }
    }

    /// After a comparison: once the server has answered for all types, its content is compared like any
    /// other.
    pub fn hear(&mut self, plan: &Plan, unit: UnitId, live: &Snapshot) {
        if is_current(plan, live) {
            self.awaited.remove(&unit);
            self.anew.remove(&unit);
        }
    }
}
