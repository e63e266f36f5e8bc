//! A model of the ledger: entries with revisions and leases, and a way to each replica that may be slow or
//! cut.

use std::collections::{BTreeMap, VecDeque};

use sluice_fleet::rollout::ledger::{Entry, Expected, LedgerEvent, Write, WriteResult};

pub const LEASE_MS: u64 = 5_000;

#[derive(Clone, Debug)]
struct Stored {
    value: Vec<u8>,
    revision: u64,
    /// The session whose lease keeps the entry.
    lease: Option<u64>,
}

/// What is on its way to a replica, with its time.
#[derive(Debug)]
pub enum Delivery {
    Event(LedgerEvent),
    Wrote(u64, WriteResult),
}

#[derive(Debug, Default)]
struct Way {
    session: u64,
    is_cut: bool,
    /// The replica knows that the ledger is away.
    is_lost: bool,
    kept_at: u64,
    flying: VecDeque<(u64, Delivery)>,
}

#[derive(Debug, Default)]
pub struct ModelLedger {
    entries: BTreeMap<String, Stored>,
    revision: u64,
    sessions: u64,
    ways: Vec<Way>,
    is_down: bool,
}

impl ModelLedger {
    pub fn new(replicas: usize) -> ModelLedger {
        ModelLedger {
            ways: (0..replicas).map(|_| Way { is_lost: true, ..Way::default() }).collect(),
            ..ModelLedger::default()
        }
    }

    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.entries.get(key).map(|stored| &*stored.value)
    }

    /// The values with keys that begin with `prefix`.
    pub fn below(&self, prefix: &str) -> impl Iterator<Item = &[u8]> {
        let entries = self.entries.iter().filter(move |(key, _)| key.starts_with(prefix));
        entries.map(|(_, stored)| &*stored.value)
    }

    pub fn cut(&mut self, replica: usize, is_cut: bool) {
        self.ways[replica].is_cut = is_cut;
    }

    pub fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
    }

    pub fn heal(&mut self) {
        self.is_down = false;
        self.ways.iter_mut().for_each(|way| way.is_cut = false);
    }

    /// The replica is a new process: its session is gone, and its lease runs out.
    pub fn restart(&mut self, replica: usize) {
        self.ways[replica] = Way { is_lost: true, is_cut: self.ways[replica].is_cut, ..Way::default() };
    }

    fn is_open(&self, replica: usize) -> bool {
        !self.ways[replica].is_cut && !self.is_down
    }

    /// Leases are kept and run out, and sessions begin and end.
    pub fn tick(&mut self, now: u64, mut delay: impl FnMut() -> u64) {
        for replica in 0..self.ways.len() {
            let is_open = self.is_open(replica);
            let loaded = || LedgerEvent::Loaded(self.all());
            let way = &self.ways[replica];
            match (is_open, way.is_lost) {
                (true, true) => {
                    let event = Delivery::Event(loaded());
                    self.sessions += 1;
                    let at = now + delay();
                    let way = &mut self.ways[replica];
                    (way.session, way.is_lost, way.kept_at) = (self.sessions, false, now);
                    way.flying.clear();
                    way.flying.push_back((at, event));
                }
                (true, false) => self.ways[replica].kept_at = now,
                // A replica knows it before its lease can have run out.
                (false, false) if now >= way.kept_at + LEASE_MS / 2 => {
                    let way = &mut self.ways[replica];
                    way.is_lost = true;
                    way.flying.clear();
                    way.flying.push_back((now, Delivery::Event(LedgerEvent::Lost("cut off".into()))));
                }
                _ => {}
            }
        }
        let ways = &self.ways;
        let is_dead =
            |lease: u64| !ways.iter().any(|way| way.session == lease && now < way.kept_at + LEASE_MS);
        let gone: Vec<String> = self
            .entries
            .iter()
            .filter(|(_, stored)| stored.lease.is_some_and(is_dead))
            .map(|(key, _)| key.clone())
            .collect();
        if self.is_down {
            return;
        }
        for key in gone {
            self.entries.remove(&key);
            self.revision += 1;
            let event = LedgerEvent::Gone { key, revision: self.revision };
            self.tell(&event, now, &mut delay);
        }
    }

    fn all(&self) -> Vec<Entry> {
        let entry = |(key, stored): (&String, &Stored)| Entry {
            key: key.clone(),
            value: stored.value.clone(),
            revision: stored.revision,
        };
        self.entries.iter().map(entry).collect()
    }

    fn tell(&mut self, event: &LedgerEvent, now: u64, delay: &mut impl FnMut() -> u64) {
        for way in self.ways.iter_mut().filter(|way| !way.is_lost) {
            let at = (now + delay()).max(way.flying.back().map_or(0, |(at, _)| *at));
            way.flying.push_back((at, Delivery::Event(event.clone())));
        }
    }

    /// A write of a replica. Returns whether it was done.
    pub fn write(&mut self, replica: usize, write: Write, now: u64, mut delay: impl FnMut() -> u64) -> bool {
        let Write { ticket, key, value, expected, is_leased } = write;
        if self.ways[replica].is_lost {
            return false;
        }
        let (result, is_done) = if !self.is_open(replica) {
            (WriteResult::Failed, false)
        } else {
            let present = self.entries.get(&key).map(|stored| stored.revision);
            let fits = match expected {
                Expected::Absent => present.is_none(),
                Expected::Revision(revision) => present == Some(revision),
                Expected::Any => true,
            };
            if fits {
                self.revision += 1;
                let lease = is_leased.then_some(self.ways[replica].session);
                let revision = self.revision;
                let event = match value {
                    Some(value) => {
                        self.entries.insert(key.clone(), Stored { value: value.clone(), revision, lease });
                        LedgerEvent::Changed(Entry { key, value, revision })
                    }
                    None => {
                        self.entries.remove(&key);
                        LedgerEvent::Gone { key, revision }
                    }
                };
                self.tell(&event, now, &mut delay);
                (WriteResult::Written(revision), true)
            } else {
                (WriteResult::Conflict(present), false)
            }
        };
        let at = now + delay();
        let way = &mut self.ways[replica];
        let place = way.flying.iter().position(|(due, _)| *due > at).unwrap_or(way.flying.len());
        way.flying.insert(place, (at, Delivery::Wrote(ticket, result)));
        is_done
    }

    /// What reaches a replica by now.
    pub fn deliver(&mut self, replica: usize, now: u64) -> Vec<Delivery> {
        let is_open = self.is_open(replica);
        let way = &mut self.ways[replica];
        let mut due = Vec::new();
        while let Some((at, delivery)) = way.flying.front() {
            let is_word_of_here = matches!(delivery, Delivery::Event(LedgerEvent::Lost(_)));
            if *at > now || !is_open && !is_word_of_here {
                break;
            }
            due.extend(way.flying.pop_front().map(|(_, delivery)| delivery));
        }
        due
    }
}
