//! One replica of a world, as far as the ledger's word has come to it.

use std::collections::{BTreeMap, BTreeSet};

use sluice_engine::Time;
use sluice_fleet::rollout::ledger::Entry;
use sluice_fleet::rollout::shared::record::{
    CondemnedRecord, PastPush, PlanRecord, ReplicaTally, SharedHalt, SharedState, read,
};
use sluice_fleet::rollout::shared::{ChangeHash, CondemnedSet, ContentSet};
use sluice_fleet::rollout::{Admission, Rollout, Tally, UnitId};

use crate::contents::{Content, Unit, hash, hashes, keys};
use crate::judge::push_of;

#[derive(Clone, Debug)]
pub struct Client {
    pub unit: u64,
    pub bucket: u16,
    pub content: Content,
    pub served: Option<u64>,
    /// Since when the client has the content.
    pub since: u64,
    /// How long the client takes to answer.
    pub takes: u64,
    pub stays: bool,
    /// Content of a unit that began without stable content: it may be bad, and no push brought it.
    pub excused: BTreeSet<ChangeHash>,
}

pub struct Replica {
    pub rollout: Rollout,
    pub units: BTreeMap<u64, Unit>,
    /// The names that its clients ask for, by unit.
    pub names: BTreeMap<u64, BTreeSet<u64>>,
    pub cut: Option<(u64, BTreeMap<u64, Content>)>,
    pub admission: Admission,
    pub clients: Vec<Client>,
    /// What the control plane has sent: the time of its arrival, the unit, the number of the change and the
    /// content.
    pub coming: Vec<(u64, u64, u64, Content)>,
    pub next_tally: u64,
    pub tallied: Tally,
    pub is_away: bool,
    /// Since when the ledger is here.
    pub here_since: u64,
    /// The push and the step that clients of here were admitted to, and since when.
    pub reached: (u64, u8, u64),
    pub heard_halted: BTreeSet<u64>,
    /// The contents of halted pushes, by the keys of their entries.
    pub heard_halts: BTreeMap<String, PastPush>,
    /// The record, and the content of finished pushes, as far as they have come.
    pub heard: Option<PlanRecord>,
    pub heard_done: BTreeMap<u64, ContentSet>,
    /// The tallies of the others, as far as they have come.
    pub heard_tallies: BTreeMap<String, ReplicaTally>,
    /// The contents that its clients rejected, or that it learned from the ledger: name and version.
    pub condemned: BTreeSet<(u64, u64)>,
    /// The condemned contents of the ledger, as far as they have come.
    pub heard_condemned: CondemnedSet,
    /// The latest push that brought one of both here.
    pub barred: Option<u64>,
    /// When newcomers are to be looked at, whatever happens.
    pub look_at: Option<Time>,
    /// Something has happened since clients were given what they may have.
    pub is_new: bool,
    /// The push and the step of the record, and since when the replica knows.
    pub seen: (u64, u8, u64),
    /// What operators let this replica do alone.
    pub alone: Alone,
}

/// What operators let a replica do alone.
#[derive(Debug, Default)]
pub struct Alone {
    /// The threshold of each push.
    pub thresholds: BTreeMap<u64, u16>,
    /// The pushes that no other replica has.
    pub pushes: BTreeSet<u64>,
    /// The changes of all of these.
    pub changes: BTreeSet<ChangeHash>,
    /// A halted push is to begin again.
    pub is_next: bool,
    /// The same, for all replicas: the step.
    pub next_of_all: Option<u8>,
    /// An operator speaks at this moment.
    pub is_now: bool,
}

impl Replica {
    pub fn new(
        rollout: Rollout,
        units: BTreeMap<u64, Unit>,
        names: BTreeMap<u64, BTreeSet<u64>>,
        clients: Vec<Client>,
        next_tally: u64,
    ) -> Replica {
        Replica {
            rollout,
            units,
            names,
            cut: None,
            admission: Admission::NOBODY,
            clients,
            coming: Vec::new(),
            next_tally,
            tallied: Tally::default(),
            is_away: true,
            here_since: 0,
            reached: (0, 0, 0),
            heard_halted: BTreeSet::new(),
            heard_halts: BTreeMap::new(),
            heard: None,
            heard_done: BTreeMap::new(),
            heard_tallies: BTreeMap::new(),
            condemned: BTreeSet::new(),
            heard_condemned: CondemnedSet::default(),
            barred: None,
            look_at: None,
            is_new: true,
            seen: (0, 0, 0),
            alone: Alone::default(),
        }
    }

    /// The part of a content that this replica knows.
    pub fn known(&self, unit: u64, content: &Content) -> Content {
        let is_known = |name: &u64| self.names[&unit].contains(name);
        content.iter().filter(|(name, _)| is_known(name)).map(|(name, version)| (*name, *version)).collect()
    }

    /// The replica knows the record.
    pub fn see(&mut self, record: &PlanRecord, now: u64) {
        if (self.seen.0, self.seen.1) != (record.push, record.step) {
            self.seen = (record.push, record.step, now);
        }
    }

    /// The changes of the push under way.
    pub fn changes(&self) -> Vec<ChangeHash> {
        let candidates =
            self.units.iter().filter_map(|(id, unit)| Some((id, unit, unit.candidate.as_ref()?)));
        let news = candidates.flat_map(|(id, unit, (_, content))| {
            let news = content.iter().filter(|(name, version)| unit.stable[name] != **version);
            news.map(|(name, version)| hash(UnitId(*id), *name, *version))
        });
        news.collect()
    }

    /// Whether a push in the ledger has the content, and did not give it to all clients.
    pub fn has_heard_of(&self, change: ChangeHash) -> bool {
        self.heard.as_ref().is_some_and(|record| {
            let is_done = |(push, set): (&u64, &ContentSet)| {
                set.has(change) && (*push < record.push || record.state == SharedState::Over)
            };
            record.state != SharedState::Over
                && record.changed.has(change)
                && !self.heard_done.iter().any(is_done)
        })
    }

    /// Whether the latest push was halted for other units, or for content that the server has changed since, and
    /// no live replica is left who would go on with this unit by steps.
    pub fn is_left(&self, unit: u64, content: &Content) -> bool {
        self.heard.as_ref().is_some_and(|record| {
            let is_there = |tally: &ReplicaTally| tally.takes_part && tally.push == record.push;
            let key = keys()[&UnitId(unit)];
            let is_innocent = |halt: &SharedHalt| !halt.blamed.is_empty() && !halt.blamed.contains(&key);
            let is_other =
                |change: ChangeHash| record.changed.has_place_of(change) && !record.changed.has(change);
            let is_mended = || hashes(UnitId(unit), content).any(is_other);
            (record.halt.as_ref().is_some_and(is_innocent) || is_mended())
                && record.state == SharedState::Halted
                && !self.heard_tallies.values().any(is_there)
        })
    }

    /// A unit that began without stable content gives a client content that no step has admitted. `admitted`:
    /// the largest threshold of each push.
    pub fn fault_of_newcomer(
        &self,
        client: &Client,
        content: &Content,
        admitted: &BTreeMap<u64, u16>,
    ) -> Option<String> {
        let (record, unit) = (self.heard.as_ref()?, &self.units[&client.unit]);
        // The replica may have written a step that it has not heard of yet.
        let is_seated = admitted.get(&record.push).is_some_and(|threshold| client.bucket < *threshold);
        let mut news = hashes(UnitId(client.unit), content)
            .filter(|change| !hashes(UnitId(client.unit), &client.content).any(|had| had == *change))
            .filter(|change| !unit.given.contains(change) && self.has_heard_of(*change))
            .filter(|change| !self.alone.changes.contains(change));
        let is_left = self.is_left(client.unit, content);
        let is_fault = !is_seated && !is_left && news.next().is_some();
        let Client { bucket, .. } = client;
        is_fault.then(|| {
            format!(
                "gives {content:?} of push {} to bucket {bucket}, which no step admitted, instead of {:?}",
                record.push, client.content
            )
        })
    }

    /// Notes entries of the ledger that have come.
    pub fn hear(&mut self, entries: &[Entry], now: u64) {
        for Entry { key, value, .. } in entries {
            match key.split('/').next().unwrap() {
                "tally" => drop(self.heard_tallies.insert(key.clone(), read(value).unwrap())),
                "plan" => {
                    let record: PlanRecord = read(value).unwrap();
                    if record.state == SharedState::Halted {
                        self.heard_halted.insert(record.push);
                    }
                    self.see(&record, now);
                    self.heard = Some(record);
                }
                "condemned" => self.heard_condemned = read::<CondemnedRecord>(value).unwrap().contents,
                "done" => {
                    drop(self.heard_done.insert(push_of(key), read::<PastPush>(value).unwrap().changed));
                }
                "halted" => drop(self.heard_halts.insert(key.clone(), read(value).unwrap())),
                _ => {}
            }
        }
    }
}
