//! The words between the ledger and a push (LDG-3, LDG-4).

use std::collections::{BTreeMap, BTreeSet};

use crate::rollout::plan::BUCKETS;
use crate::rollout::push::{UnitId, UnitPush};
use crate::rollout::shared::contents::{ChangeHash, ContentSet, UnitChanges, UnitKey};
use crate::rollout::shared::record::SharedHalt;
use crate::rollout::tally::{Control, Counts, Tally};

/// More blamed units than that do not fit into a record beside its changes: all units of the push are blamed.
const BLAMED_MAX: usize = 256;

/// The record's word about a push of this replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// Nobody is admitted yet: the record does not have the push, or gathers it.
    Gate,
    /// The step is admitted, and so are the buckets below the threshold.
    Moving {
        step: u8,
        threshold: u16,
    },
    Halted(SharedHalt),
    /// All clients of all replicas have the push.
    Finished,
    /// The push is over without that, or has changes that are no part of the record's.
    Ended,
}

/// The wish of a replica: a step, a threshold, or the end of the push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bid {
    /// The step after the last one of the plan admits all clients.
    pub step: u8,
    pub threshold: u16,
    /// All clients have stood with the push: it is over.
    pub is_finish: bool,
}

impl Bid {
    pub fn finish(step: u8) -> Bid {
        Bid { step, threshold: BUCKETS, is_finish: true }
    }
}

/// The tallies of the other live replicas, added up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Others {
    pub admitted: Counts,
    pub control: Control,
    pub voices: u64,
    pub smallest: Vec<u16>,
    pub labelled: Vec<u64>,
    /// Each of them has counted its clients since the step and the threshold are admitted.
    pub are_all_there: bool,
}

impl Others {
    /// There are no other replicas.
    pub fn none() -> Others {
        Others { are_all_there: true, ..Others::default() }
    }

    /// The counts of all replicas. Rejections by name and load stay with the replica that saw them.
    pub fn with(&self, tally: &Tally, smallest_max: usize) -> Tally {
        let mut smallest: Vec<u16> = tally.smallest.iter().chain(&self.smallest).copied().collect();
        smallest.sort_unstable();
        smallest.truncate(smallest_max);
        Tally {
            admitted: tally.admitted + self.admitted,
            control: Control {
                clients: tally.control.clients + self.control.clients,
                lost: tally.control.lost + self.control.lost,
            },
            voices: tally.voices + self.voices,
            smallest,
            labelled: added(&tally.labelled, &self.labelled),
            condemned: tally.condemned.clone(),
            load: tally.load.clone(),
            ..Tally::default()
        }
    }
}

/// The sums of two lists, place by place.
pub(super) fn added(one: &[u64], other: &[u64]) -> Vec<u64> {
    let at = |list: &[u64], place: usize| list.get(place).copied().unwrap_or(0);
    (0..one.len().max(other.len())).map(|place| at(one, place) + at(other, place)).collect()
}

/// The fate of a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sorted {
    /// The push begins at its gate.
    Begin,
    /// All of it was given to all clients elsewhere.
    Known,
    /// Another push is under way.
    Wait,
    /// These units have content of a halted push.
    Halted(BTreeSet<UnitKey>),
}

/// The part of a push in the ledger, and the ledger's word about it.
#[derive(Clone, Debug, Default)]
pub struct Consent {
    /// The changes of all units.
    pub changes: BTreeSet<ChangeHash>,
    pub units: BTreeMap<UnitId, UnitChanges>,
    pub bid: Option<Bid>,
    /// The step and the threshold that the record admits, as far as it is followed.
    pub recorded: (u8, u16),
    /// An operator wants this step, whatever the tallies say.
    pub promoted: Option<u8>,
}

impl Consent {
    pub fn of(units: &[UnitPush]) -> Consent {
        let units: BTreeMap<UnitId, UnitChanges> =
            units.iter().filter_map(|unit| Some((unit.unit, unit.shared.clone()?))).collect();
        let changes = units.values().flat_map(|unit| unit.changes.iter().copied()).collect();
        Consent { changes, units, ..Consent::default() }
    }

    /// The part of a push from before a restart: the changes are not known any more.
    pub fn restored(units: impl Iterator<Item = (UnitId, UnitKey)>) -> Consent {
        let unit = |(unit, key)| (unit, UnitChanges { unit: key, changes: BTreeSet::new() });
        Consent { units: units.map(unit).collect(), ..Consent::default() }
    }

    /// The units of this replica among those of others.
    pub fn units(&self, keys: &[UnitKey]) -> Vec<UnitId> {
        self.units.iter().filter(|(_, unit)| keys.contains(&unit.unit)).map(|(unit, _)| *unit).collect()
    }

    pub fn keys_of(&self, units: &[UnitId]) -> Vec<UnitKey> {
        units.iter().filter_map(|unit| self.units.get(unit)).map(|unit| unit.unit).collect()
    }

    /// The blamed units of a halt, as they fit into a record. None: all units of the push.
    pub fn blamed(&self, units: &[UnitId]) -> Vec<UnitKey> {
        let blamed = self.keys_of(units);
        if blamed.len() >= self.units.len() || blamed.len() > BLAMED_MAX { Vec::new() } else { blamed }
    }

    /// The changes of the blamed units; of all, if none is blamed.
    pub fn changes_of(&self, blamed: &[UnitId]) -> ContentSet {
        let is_blamed = |unit: &UnitId| blamed.is_empty() || blamed.contains(unit);
        let units = self.units.iter().filter(|(unit, _)| is_blamed(unit));
        units.flat_map(|(_, unit)| unit.changes.iter().copied()).collect()
    }
}

/// The changes of the units of a cut.
pub fn shared(units: &[UnitPush]) -> Vec<UnitChanges> {
    units.iter().filter_map(|unit| unit.shared.clone()).collect()
}
