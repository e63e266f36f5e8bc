//! The machine between a plan and the ledger: what the ledger holds, what it means for the plan, and what is
//! written.
//!
//! All writes follow from the record as it is and from the plan as it is, so a lost race needs no memory: the
//! next look writes what is still missing. In order: the writes, the condemned contents, the orders of
//! operators and the entries that cannot be read, which use the state below; and the state.

mod writes;
mod condemning;
mod orders;
mod unreadable;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::newcomers::{JoinPolicy, JoinWay, JoinWord, LedgerPushes};
use super::next_record::blank;
use super::word::{Others, Sorted, Word, added};
use crate::rollout::admission::Admission;
use crate::rollout::plan::STEPS_MAX;
use crate::rollout::report::{PushReport, ReplicaReport, RolloutState, SharedReport};
use crate::rollout::shared::condemned::{CondemnedSet, ContentHash};
use crate::rollout::shared::contents::{ChangeHash, ContentSet, UnitChanges, UnitKey};
use crate::rollout::shared::record::{PastPush, PlanRecord, ReplicaTally, SharedControl, SharedState, read};
use crate::rollout::tally::{Counts, Tally};
use condemning::Condemning;
use orders::FollowedOrders;
pub use orders::KeptOrders;
use sluice_engine::Time;
use unreadable::UnreadableEntries;
use writes::{Pending, Writes};

/// The pushes of the past that the ledger holds for each plan and outcome.
pub const PAST_MAX: usize = 16;

/// Greater numbers are not from a replica.
const PUSH_MAX: u64 = 1 << 48;
const CLIENTS_MAX: u64 = 1 << 40;

/// The time between two tallies of a replica, so that an idle fleet and a busy one are both polite.
const TALLY_EVERY: Duration = Duration::from_millis(500);

/// The time between a write that failed and the next one.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// For so many leases a replica without a lease is told as silent, and so many replicas at most.
const SILENT_LEASES: u32 = 8;
const SILENT_MAX: usize = 64;

/// The time after which a replica with a part of the push writes an unchanged tally again.
const TALLY_AGAIN: Duration = Duration::from_secs(5);

/// An entry of the ledger. The key is without the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Vec<u8>,
    pub revision: u64,
}

/// An event of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerEvent {
    /// All entries. The ledger is here from now on.
    Loaded(Vec<Entry>),
    Changed(Entry),
    Gone {
        key: String,
        revision: u64,
    },
    /// In words.
    Lost(Box<str>),
}

/// A write to the ledger, and the number that its result must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub ticket: u64,
    pub key: String,
    /// `None`: the entry goes.
    pub value: Option<Vec<u8>>,
    pub expected: Expected,
    /// The entry goes with the lease of the replica.
    pub is_leased: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Absent,
    Revision(u64),
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// With the revision of the entry.
    Written(u64),
    /// Another replica was faster. The revision of the entry now, if there is one.
    Conflict(Option<u64>),
    /// It may have been written or not.
    Failed,
}

/// The name of this replica, and the settings of the ledger.
#[derive(Clone, Debug)]
pub struct Replica {
    pub name: Box<str>,
    /// A number of the process.
    pub process: u64,
    pub lease: Duration,
    pub join: JoinPolicy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// In words.
    Away(Box<str>),
    Here {
        since: Time,
    },
}

#[derive(Debug)]
pub struct Share {
    plan: Box<str>,
    replica: Replica,
    link: Link,
    held: Held,
    writes: Writes,
    /// The latest count of the clients of this replica.
    counted: Option<ReplicaTally>,
    orders: FollowedOrders,
    /// The replicas that had a lease, each with the time of its loss.
    silent: BTreeMap<Box<str>, Time>,
    watched: WatchedPush,
    joining: Joining,
    condemning: Condemning,
    clock: WallClock,
}

/// The wall clock at a time of the plan: microseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct WallClock {
    at: Time,
    wall: u64,
}

impl WallClock {
    fn wall(self, time: Time) -> u64 {
        self.wall.saturating_add(time.as_micros()).saturating_sub(self.at.as_micros())
    }

    /// The seconds since 1970.
    fn seconds(self, time: Time) -> u32 {
        u32::try_from(self.wall(time) / 1_000_000).unwrap_or(u32::MAX)
    }
}

/// The record's push, as this replica has seen it.
#[derive(Debug, Default)]
struct WatchedPush {
    /// The record's push that this replica has no part of.
    skipped: Option<u64>,
    /// The latest push that this process has begun. Those of before a restart may be joined again.
    begun: u64,
    /// Since when the changes of the record's push are as they are.
    gathered: Time,
    /// How long the push gathers after that.
    quiet: Duration,
    /// Since when nobody has the record's push, although it is under way.
    deserted: Option<Time>,
    /// Why the latest cut did not begin.
    waits: Option<&'static str>,
}

/// The ledger's word for newcomers.
#[derive(Debug, Default)]
struct Joining {
    /// Nobody waits longer for the first word of the ledger.
    heard_by: Time,
    /// `None`: no word yet.
    pushes: Option<Arc<LedgerPushes>>,
    /// The ledger has said something since.
    is_outdated: bool,
}

/// The entries of one plan.
#[derive(Debug, Default)]
struct Held {
    record: Option<(PlanRecord, u64)>,
    /// The record cannot be read.
    unreadable: Option<Box<str>>,
    /// Other entries that cannot be read.
    refused: UnreadableEntries,
    done: BTreeMap<u64, Arc<PastPush>>,
    /// By push and replica.
    halted: BTreeMap<(u64, Box<str>), Arc<PastPush>>,
    /// By replica, with this one.
    tallies: BTreeMap<Box<str>, ReplicaTally>,
}

impl Share {
    pub fn new(plan: &str, replica: Replica) -> Share {
        Share {
            plan: plan.into(),
            replica,
            link: Link::Away("no answer yet".into()),
            held: Held::default(),
            writes: Writes::default(),
            counted: None,
            orders: FollowedOrders::default(),
            silent: BTreeMap::new(),
            watched: WatchedPush::default(),
            joining: Joining::default(),
            condemning: Condemning::default(),
            clock: WallClock { at: Time::ZERO, wall: 0 },
        }
    }

    /// The plan begins to share: newcomers wait for the first word of the ledger for a lease (LDG-5).
    pub fn begin(&mut self, now: Time) {
        self.joining.heard_by = now + self.replica.lease;
    }

    pub fn name(&self) -> &str {
        &self.replica.name
    }

    /// The microseconds since 1970 at a time of the plan.
    pub fn wall(&self, time: Time) -> u64 {
        self.clock.wall(time)
    }

    /// The time of the plan at microseconds since 1970.
    pub fn time(&self, wall: u64) -> Time {
        let WallClock { at, wall: then } = self.clock;
        Time::from_micros(at.as_micros().saturating_add(wall).saturating_sub(then))
    }

    // === The events of the ledger ===

    pub fn handle(&mut self, event: LedgerEvent, wall: u64, now: Time) {
        self.clock = WallClock { at: now, wall };
        match event {
            LedgerEvent::Loaded(entries) => {
                if matches!(self.link, Link::Away(_)) {
                    self.link = Link::Here { since: now };
                }
                let before = mem::take(&mut self.held);
                let last_ticket = self.writes.last_ticket;
                self.writes = Writes { last_ticket, ..Writes::default() };
                self.condemning.reload();
                entries.into_iter().for_each(|entry| self.take(entry, now));
                self.joining.is_outdated = true;
                if before.record != self.held.record {
                    self.watched.gathered = now;
                }
                let gone = before.tallies.into_keys();
                let gone: Vec<_> = gone.filter(|name| !self.held.tallies.contains_key(name)).collect();
                gone.into_iter().for_each(|name| self.fell_silent(name, now));
            }
            LedgerEvent::Changed(entry) => self.take(entry, now),
            LedgerEvent::Gone { key, .. } => self.drop_entry(&key, now),
            LedgerEvent::Lost(why) => {
                self.link = Link::Away(why);
                self.watched.deserted = None;
            }
        }
    }

    /// Whether the event is about the clients of another replica.
    pub fn is_of_others(&self, event: &LedgerEvent) -> bool {
        let key = match event {
            LedgerEvent::Changed(entry) => &entry.key,
            LedgerEvent::Gone { key, .. } => key,
            LedgerEvent::Loaded(_) | LedgerEvent::Lost(_) => return true,
        };
        matches!(self.part(key), Some(Part::Tally(replica)) if replica != self.replica.name)
    }

    fn take(&mut self, entry: Entry, now: Time) {
        let part = self.part(&entry.key);
        self.joining.is_outdated |= !matches!(part, Some(Part::Tally(_)) | None);
        match part {
            Some(Part::Record) => self.take_record(read(&entry.value), entry.revision, now),
            Some(Part::Condemned) => self.condemning.take(&entry.value, entry.revision),
            Some(Part::Done(push)) => {
                let past = self.read_entry(&entry);
                past.map(|past| self.held.done.insert(push, Arc::new(past)));
            }
            Some(Part::Halted(push, replica)) => {
                let past = self.read_entry(&entry);
                past.map(|past| self.held.halted.insert((push, replica), Arc::new(past)));
            }
            Some(Part::Tally(replica)) => {
                // A tally that cannot be read is one that has not come: nobody goes on without it.
                let tally = self.read_entry(&entry).filter(ReplicaTally::is_possible);
                self.silent.remove(&replica);
                self.held.tallies.insert(replica, tally.unwrap_or_default());
            }
            None => {}
        }
    }

    /// As long as an entry cannot be read, the ledger counts as away: it may be a halt (LDG-6).
    fn read_entry<T: for<'de> Deserialize<'de>>(&mut self, entry: &Entry) -> Option<T> {
        match read(&entry.value) {
            Ok(value) => {
                self.held.refused.remove(&entry.key);
                Some(value)
            }
            Err(error) => {
                self.held.refused.add(&entry.key, &error);
                None
            }
        }
    }

    fn take_record(&mut self, record: Result<PlanRecord, String>, revision: u64, now: Time) {
        if self.held.record.as_ref().is_some_and(|(_, present)| *present > revision) {
            return;
        }
        match record {
            Ok(record) if record.push > PUSH_MAX => {
                self.held.unreadable = Some(format!("the record has push {}", record.push).into());
            }
            Ok(record) => {
                let before = self.held.record.as_ref().map(|(record, _)| record);
                if before
                    .is_none_or(|before| (before.push, &before.changed) != (record.push, &record.changed))
                {
                    self.watched.gathered = now;
                }
                if before.is_none_or(|before| before.push != record.push) {
                    self.watched.skipped = None;
                }
                // Whoever wrote it.
                if self.has_all(&record) {
                    self.orders.unwritten = None;
                }
                self.held.record = Some((record, revision));
                self.held.unreadable = None;
            }
            Err(error) => self.held.unreadable = Some(error.into()),
        }
    }

    fn fell_silent(&mut self, replica: Box<str>, now: Time) {
        let lease = self.replica.lease;
        self.silent.retain(|_, since| now < *since + lease * SILENT_LEASES);
        if self.silent.len() < SILENT_MAX && replica != self.replica.name {
            self.silent.insert(replica, now);
        }
    }

    fn drop_entry(&mut self, key: &str, now: Time) {
        self.joining.is_outdated = true;
        self.held.refused.remove(key);
        match self.part(key) {
            // Nobody deletes a record: the ledger has lost it.
            Some(Part::Record) => self.held.unreadable = Some("the record of the plan is gone".into()),
            Some(Part::Condemned) => self.condemning.lose(),
            Some(Part::Done(push)) => drop(self.held.done.remove(&push)),
            Some(Part::Halted(push, replica)) => drop(self.held.halted.remove(&(push, replica))),
            Some(Part::Tally(replica)) => {
                if replica == self.replica.name {
                    self.writes.written = None;
                }
                self.held.tallies.remove(&replica);
                self.fell_silent(replica, now);
            }
            None => {}
        }
    }

    fn part(&self, key: &str) -> Option<Part> {
        let (kind, rest) = key.split_once('/')?;
        let rest = rest.strip_prefix(&*self.plan)?;
        let below = || rest.strip_prefix('/');
        match kind {
            "plan" if rest.is_empty() => Some(Part::Record),
            "condemned" if rest.is_empty() => Some(Part::Condemned),
            "done" => Some(Part::Done(push_number(below()?)?)),
            "halted" => {
                let (push, replica) = below()?.split_once('/')?;
                Some(Part::Halted(push_number(push)?, replica.into()))
            }
            "tally" => {
                below().filter(|replica| !replica.contains('/')).map(|replica| Part::Tally(replica.into()))
            }
            _ => None,
        }
    }

    /// The result of a write.
    pub fn wrote(&mut self, ticket: u64, result: WriteResult, now: Time) {
        if result == WriteResult::Failed && self.writes.is_under_way(ticket) {
            self.writes.again_at = Some(now + WRITE_AGAIN);
        }
        if self.writes.tally.take_if(|tally| *tally == ticket).is_some() {
            if !matches!(result, WriteResult::Written(_)) {
                self.writes.written = None;
            }
            return;
        }
        let Some((_, pending)) = self.writes.record.take_if(|(under_way, _)| *under_way == ticket) else {
            return;
        };
        match (result, pending) {
            // Sooner than the watch.
            (WriteResult::Written(revision), Pending::Record(record)) => {
                self.joining.is_outdated = true;
                self.take_record(Ok(*record), revision, now);
            }
            (WriteResult::Conflict(Some(revision)), Pending::Record(_)) => self.writes.not_before = revision,
            (WriteResult::Written(revision), Pending::Condemned(record)) => {
                self.condemning.take_record(*record, revision);
            }
            (WriteResult::Conflict(Some(revision)), Pending::Condemned(_)) => {
                self.condemning.lost_race(revision);
            }
            (_, Pending::Condemned(_)) => self.condemning.look_again(),
            (WriteResult::Written(revision), Pending::Past { key, value }) => match value {
                Some(value) => self.take(Entry { key, value, revision }, now),
                None => self.drop_entry(&key, now),
            },
            _ => {}
        }
    }

    // === The meaning for the plan ===

    fn record(&self) -> Option<&PlanRecord> {
        self.held.record.as_ref().map(|(record, _)| record)
    }

    /// Why nothing begins and nothing goes on; `None` if the ledger is here, and all could write since.
    pub fn stop(&self, now: Time) -> Option<Box<str>> {
        let unreadable = self.unreadable();
        match &self.link {
            Link::Away(why) => Some(why.clone()),
            _ if unreadable.is_some() => unreadable.map(Box::from),
            Link::Here { since } if now < *since + self.replica.lease => {
                Some("it has just come back, and other replicas may have something to write first".into())
            }
            _ if self.is_named_twice() => {
                Some(format!("another replica has the name {}", self.replica.name).into())
            }
            _ => None,
        }
    }

    /// Why an entry of the plan cannot be read.
    fn unreadable(&self) -> Option<&str> {
        let words = self.held.unreadable.as_ref().or(self.condemning.unreadable.as_ref());
        words.map(|words| &**words).or(self.held.refused.first())
    }

    pub fn is_readable(&self) -> bool {
        self.unreadable().is_none()
    }

    /// Whether nothing can be written.
    pub fn is_away(&self) -> bool {
        matches!(self.link, Link::Away(_)) || self.unreadable().is_some() || self.is_named_twice()
    }

    /// When [`Share::stop`] may say something else.
    pub fn poll_timeout(&self) -> Option<Time> {
        let settled = match self.link {
            Link::Here { since } => Some(since + self.replica.lease),
            Link::Away(_) => None,
        };
        let deserted = self.watched.deserted.map(|since| since + self.replica.lease);
        let gathering = self.record().filter(|record| record.state == SharedState::Gathering);
        let gathered = gathering.map(|_| self.watched.gathered + self.watched.quiet);
        let Writes { again_at, looked_at, .. } = self.writes;
        let times = [settled, deserted, gathered, again_at].into_iter().flatten();
        // The latest look has seen to earlier times.
        times.filter(|due| *due > looked_at).min()
    }

    fn is_named_twice(&self) -> bool {
        let named = self.held.tallies.get(&self.replica.name);
        named.is_some_and(|tally| tally.process != self.replica.process)
    }

    /// The number of the next cut: that of the record's push, or a new one. `local`: the push under way here.
    /// `None`: no cut can begin now.
    pub fn number(&self, local: Option<u64>, last_push: u64) -> Option<u64> {
        let Some(record) = self.record() else { return Some(last_push + 1) };
        let new = self.next_number(last_push);
        // A push of here that the ledger never heard of, as it was away, may be later than the record's.
        let has_been_here = local >= Some(record.push) || self.watched.begun >= record.push;
        match record.state {
            SharedState::Over => Some(new),
            SharedState::Halted if has_been_here || self.watched.skipped == Some(record.push) => Some(new),
            SharedState::Gathering | SharedState::Moving if has_been_here => None,
            SharedState::Moving if self.watched.skipped == Some(record.push) => None,
            _ => Some(record.push),
        }
    }

    /// The number of a push that is another one than all before.
    pub fn next_number(&self, last_push: u64) -> u64 {
        self.record().map_or(0, |record| record.push).max(last_push) + 1
    }

    /// This replica has begun a push.
    pub fn begun(&mut self, number: u64) {
        self.watched.begun = number;
    }

    /// The fate of a cut with these changes.
    pub fn sort(&mut self, number: u64, units: &[UnitChanges], rules: u128, is_promoted: bool) -> Sorted {
        let sorted = self.sorted(number, units, rules, is_promoted);
        self.watched.waits = match sorted {
            Sorted::Wait if self.has_other_rules(rules) => {
                Some("a push with other steps or seats is under way")
            }
            Sorted::Wait => Some("another push is under way"),
            Sorted::Halted(_) => Some("an earlier push with them was halted"),
            Sorted::Begin | Sorted::Known => None,
        };
        sorted
    }

    fn sorted(&mut self, number: u64, units: &[UnitChanges], rules: u128, is_promoted: bool) -> Sorted {
        let record = self.record().filter(|record| record.push >= number);
        let is_promoted = is_promoted || record.is_some_and(|record| record.promoted.is_some());
        let Some(record) = record else {
            return if self.record().is_some_and(|record| record.state.is_under_way()) {
                Sorted::Wait
            } else if units.iter().all(|unit| self.news(unit).is_empty()) {
                Sorted::Known
            } else {
                self.sorted_by_halts(units, is_promoted)
            };
        };
        let is_ours = record.rules == rules;
        let is_part = || units.iter().all(|unit| record.changed.covers(&self.news(unit)));
        match record.state {
            _ if record.push > number => Sorted::Wait,
            SharedState::Halted if is_ours && is_part() => Sorted::Begin,
            SharedState::Gathering if is_ours => self.sorted_by_halts(units, is_promoted),
            SharedState::Moving if is_ours && is_part() => self.sorted_by_halts(units, is_promoted),
            _ => {
                self.watched.skipped = Some(number);
                Sorted::Wait
            }
        }
    }

    /// Halted content goes again by the word of an operator alone, in whoever's push.
    fn sorted_by_halts(&self, units: &[UnitChanges], is_promoted: bool) -> Sorted {
        let halted = units.iter().filter(|unit| !is_promoted && self.is_halted(unit));
        let halted: BTreeSet<UnitKey> = halted.map(|unit| unit.unit).collect();
        if halted.is_empty() { Sorted::Begin } else { Sorted::Halted(halted) }
    }

    /// The changes of a unit without those that all clients of some replica have.
    fn news(&self, unit: &UnitChanges) -> Vec<ChangeHash> {
        unit.changes.iter().filter(|change| !self.is_done(**change)).copied().collect()
    }

    /// Whether all clients of some replica were given the change by steps.
    fn is_done(&self, change: ChangeHash) -> bool {
        // A push too large to list tells nothing about a later one.
        self.held
            .done
            .iter()
            .any(|(push, past)| self.is_over(*push) && !past.changed.is_whole() && past.changed.has(change))
    }

    /// Whether a push with an entry in `done` did not halt after that.
    fn is_over(&self, push: u64) -> bool {
        let Some(record) = self.record() else { return false };
        let is_over = record.push > push || record.push == push && record.state == SharedState::Over;
        is_over && !self.has_halted(push)
    }

    fn has_halted(&self, push: u64) -> bool {
        self.held.halted.keys().any(|(halted, _)| *halted == push)
    }

    /// The halted contents. The word of a replica that halted goes before what others assume.
    fn halts(&self) -> impl Iterator<Item = (&(u64, Box<str>), &Arc<PastPush>)> {
        let halted = &self.held.halted;
        let stated: BTreeSet<u64> =
            halted.iter().filter(|(_, past)| !past.is_assumed).map(|((push, _), _)| *push).collect();
        halted.iter().filter(move |((push, _), past)| !past.is_assumed || !stated.contains(push))
    }

    /// Whether the changes of a unit are those with which it was blamed for a halt.
    fn is_halted(&self, unit: &UnitChanges) -> bool {
        let changes = self.news(unit);
        let is_of = |blamed: &[UnitKey], set: &ContentSet| {
            (blamed.is_empty() || blamed.contains(&unit.unit)) && set.covers(&changes)
        };
        // A later push for all clients has put another content into one of the unit's places, so the unit is
        // another one than at the halt: the old content may be tried again, by steps.
        let is_replaced = |push: u64| {
            let later = self.held.done.range(push + 1..).filter(|(push, _)| self.is_over(**push));
            later
                .map(|(_, past)| &past.changed)
                .any(|set| unit.changes.iter().any(|change| set.has_place_of(*change)))
        };
        let is_past = |push: u64, past: &PastPush| {
            !past.changed.is_whole() && is_of(&past.blamed, &past.changed) && !is_replaced(push)
        };
        // Until the replica that halted the push has said which changes it means.
        let latest = self
            .record()
            .filter(|record| record.state == SharedState::Halted && !self.has_halted(record.push));
        let is_latest = |record: &PlanRecord| is_of(record.blamed(), &record.changed);
        let mut past = self.halts();
        !changes.is_empty()
            && (past.any(|((push, _), past)| is_past(*push, past)) || latest.is_some_and(is_latest))
    }

    /// Whether another replica halted the push for changes that no unit of this one has.
    pub fn is_innocent<'a>(&self, number: u64, units: impl IntoIterator<Item = &'a UnitChanges>) -> bool {
        let mut units = units.into_iter().peekable();
        self.has_halted(number) && units.peek().is_some() && !units.any(|unit| self.is_halted(unit))
    }

    /// Whether a push that nobody has yet has content that was halted, and no operator wants it.
    pub fn bars<'a>(&self, number: u64, units: impl IntoIterator<Item = &'a UnitChanges>) -> bool {
        let record = self.record().filter(|record| record.push == number);
        record.is_none_or(|record| record.promoted.is_none())
            && units.into_iter().any(|unit| self.is_halted(unit))
    }

    /// Whether the record's push goes by other steps or seats than this plan's: no client may be admitted by
    /// both (LDG-3).
    pub fn has_other_rules(&self, rules: u128) -> bool {
        self.record().is_some_and(|record| record.state.is_under_way() && record.rules != rules)
    }

    /// The record's word about a push of this replica.
    pub fn word(&self, number: u64, changes: &BTreeSet<ChangeHash>) -> Word {
        let Some(record) = self.record().filter(|record| record.push >= number) else { return Word::Gate };
        let is_done = self.held.done.get(&number).is_some_and(|done| done.changed.covers(changes));
        if is_done && self.is_over(number) {
            return Word::Finished;
        }
        if record.push > number { Word::Ended } else { self.word_of(record, changes) }
    }

    fn word_of(&self, record: &PlanRecord, changes: &BTreeSet<ChangeHash>) -> Word {
        let is_part = changes.iter().all(|change| record.changed.has(*change) || self.is_done(*change));
        match (record.state, &record.halt) {
            (SharedState::Gathering, _) => Word::Gate,
            _ if !is_part => Word::Ended,
            (SharedState::Moving, _) => Word::Moving { step: record.step, threshold: record.threshold },
            (SharedState::Halted, Some(halt)) => Word::Halted(halt.clone()),
            (SharedState::Halted | SharedState::Over, _) => Word::Ended,
        }
    }

    /// The step with which an operator began the record's push in place of this one, and its number.
    pub fn promoted_after(&self, number: u64) -> Option<(u8, u64)> {
        let record = self.record().filter(|record| record.push > number && self.promotes(record.push))?;
        let is_meant = record.promoted_of.is_none_or(|halted| halted == number);
        record.promoted.filter(|_| is_meant).map(|step| (step, record.push))
    }

    /// Whether a push is under way by an operator's word.
    pub fn promotes(&self, push: u64) -> bool {
        let record = self.record().filter(|record| record.push == push && record.state.is_under_way());
        record.is_some_and(|record| record.promoted.is_some())
    }

    /// Takes the count of the clients of this replica, and returns the counts of the others.
    pub fn count(&mut self, push: &PushReport, tally: &Tally) -> Others {
        let reached = push.steps.last().map_or((0, 0), |step| (step.number, step.threshold));
        // Where an operator went ahead, the clients of the record's step are among those that were counted.
        let is_of = |record: &&PlanRecord| record.push == push.number && record.step > 0;
        let recorded = self.record().filter(is_of).map_or(reached, |record| (record.step, record.threshold));
        let (step, threshold) = if recorded.0 < reached.0 { recorded } else { reached };
        self.counted = Some(ReplicaTally {
            push: push.number,
            step,
            threshold,
            admitted: tally.admitted,
            control: SharedControl { clients: tally.control.clients, lost: tally.control.lost },
            voices: tally.voices,
            smallest: tally.smallest.clone(),
            labelled: tally.labelled.clone(),
            ..ReplicaTally::default()
        });
        let record = self.record().filter(|record| record.push == push.number);
        record.map_or_else(Others::none, |record| self.others(record))
    }

    /// The tallies of the other replicas about the record's push.
    fn others(&self, record: &PlanRecord) -> Others {
        let mut sum = Others::none();
        let others = self.held.tallies.iter().filter(|(name, _)| **name != self.replica.name);
        for (_, tally) in others {
            if !tally.is_of(record) {
                sum.are_all_there = false;
                continue;
            }
            sum.admitted = sum.admitted + tally.admitted;
            sum.control.clients += tally.control.clients;
            sum.control.lost += tally.control.lost;
            sum.voices += tally.voices;
            sum.smallest.extend(&tally.smallest);
            sum.labelled = added(&sum.labelled, &tally.labelled);
        }
        sum
    }

    /// All condemned contents of this replica, for the others, each with its end.
    pub fn condemn(&mut self, contents: Vec<(ContentHash, Time)>) {
        self.condemning.condemn(contents);
    }

    /// The condemned contents of all replicas, as the ledger has them.
    pub fn condemned(&self) -> &Arc<CondemnedSet> {
        self.condemning.elsewhere()
    }

    /// `fault`: why the ledger is not acted on. `local`: the push of this replica.
    pub fn report(&self, fault: &Option<Box<str>>, local: Option<&PushReport>) -> SharedReport {
        let blank = blank();
        let record = self.record().unwrap_or(&blank);
        let local = local.filter(|local| local.number == record.push);
        let is_unsaid =
            |local: &&PushReport| local.state == RolloutState::Halted && record.state != SharedState::Halted;
        let unsaid = local.filter(is_unsaid).map(|local| format!("push {} is halted here", local.number));
        let diverged = self.orders.apart.iter().cloned().chain(unsaid.map(Box::from));
        let replica = |name: &str, tally: &ReplicaTally| ReplicaReport {
            name: name.into(),
            push: tally.push,
            step: tally.step,
            takes_part: tally.takes_part,
            is_behind: !tally.is_of(record),
            is_diverged: tally.is_diverged,
            clients: tally.admitted.affected(),
        };
        let is_told = |since: Time| self.writes.looked_at < since + self.replica.lease * SILENT_LEASES;
        let silent = self.silent.iter().filter(|(_, since)| is_told(**since));
        SharedReport {
            replica: self.replica.name.clone(),
            fault: fault.clone(),
            push: record.push,
            state: record.state,
            step: record.step,
            is_unwritten: self.orders.unwritten.is_some(),
            diverged: diverged.collect(),
            waits: self.watched.waits,
            replicas: self.held.tallies.iter().map(|(name, tally)| replica(name, tally)).collect(),
            silent: silent.map(|(name, _)| name.clone()).collect(),
        }
    }

    /// The word for newcomers. `halted`: the push that this replica has halted; its clients are not admitted,
    /// whatever the record says. `gathered_within`: the longest gathering of the plan.
    pub fn join_word(
        &mut self,
        halted: Option<u64>,
        rules: u128,
        gathered_within: Duration,
        now: Time,
    ) -> JoinWord {
        let is_heard = matches!(self.link, Link::Here { .. }) && self.unreadable().is_none();
        let was_deserted = self.joining.pushes.as_ref().map(|pushes| pushes.deserted.is_some());
        let is_deserted = Some(self.is_deserted());
        if is_heard && (mem::take(&mut self.joining.is_outdated) || was_deserted != is_deserted) {
            self.joining.pushes = Some(Arc::new(self.pushes(gathered_within, now)));
        }
        let policy = self.replica.join;
        let Some(pushes) = &self.joining.pushes else {
            return JoinWord::unheard(policy, self.joining.heard_by);
        };
        let record = self.record().filter(|record| {
            record.state == SharedState::Moving && record.rules == rules && halted != Some(record.push)
        });
        let admission = record.map_or(Admission::NOBODY, |record| Admission {
            push: record.push,
            threshold: record.threshold,
            step: record.step,
            state: RolloutState::Waving,
            ..Admission::NOBODY
        });
        JoinWord { policy, admission, way: JoinWay::Heard(pushes.clone()) }
    }

    /// Whether no live replica has a part of the record's push.
    fn is_deserted(&self) -> bool {
        let push = self.record().map_or(0, |record| record.push);
        !self.held.tallies.values().any(|tally| tally.takes_part && tally.push == push)
    }

    fn pushes(&self, gathered_within: Duration, now: Time) -> LedgerPushes {
        let before = self.joining.pushes.as_deref();
        let blank = blank();
        let record = self.record().unwrap_or(&blank);
        let rest = before
            .map(|before| before.next_rest(record.push, record.state, &record.changed, now))
            .unwrap_or_default();
        let before = before.filter(|before| (before.push, before.state) == (record.push, record.state));
        let is_deserted = self.is_deserted();
        let is_done =
            |(push, past): &(&u64, &Arc<PastPush>)| self.is_over(**push) && !past.changed.is_whole();
        let done = self.held.done.iter().filter(is_done).map(|(push, past)| (*push, past.clone()));
        LedgerPushes {
            push: record.push,
            state: record.state,
            since: before.map_or(now, |before| before.since),
            gathered_within,
            changed: record.changed.clone(),
            rest,
            blamed: record.blamed().to_vec(),
            deserted: is_deserted.then(|| before.and_then(|before| before.deserted).unwrap_or(now)),
            done: done.collect(),
            halted: self.halts().map(|(push, past)| (push.clone(), past.clone())).collect(),
        }
    }
}

/// The number of a push in a key. Another text of a number, and a number that is too large, are foreign.
pub(super) fn push_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| *number <= PUSH_MAX && number.to_string() == text)
}

/// A part of a plan in the ledger.
enum Part {
    Record,
    Condemned,
    Done(u64),
    Halted(u64, Box<str>),
    Tally(Box<str>),
}

impl SharedState {
    pub(super) fn is_under_way(self) -> bool {
        matches!(self, SharedState::Gathering | SharedState::Moving)
    }
}

impl ReplicaTally {
    /// Whether the sums of some replicas are numbers that any relay can have: entries may be foreign.
    fn is_possible(&self) -> bool {
        let Counts { accepted, pending, rejected, rejected_again, silent, .. } = self.admitted;
        let Counts { unaffected, overtaken, lost, departed, unjudged, .. } = self.admitted;
        let counts = [accepted, pending, rejected, rejected_again, silent, unaffected, overtaken, lost];
        let others = [departed, unjudged, self.control.clients, self.control.lost, self.voices];
        let is_possible = |count: &u64| *count <= CLIENTS_MAX;
        counts.iter().chain(&others).chain(&self.labelled).all(is_possible)
            && self.labelled.len() <= STEPS_MAX
    }
}
