//! The machine between a plan and the ledger: what the ledger holds, what it means for the plan, and what is
//! written.
//!
//! All writes follow from the record as it is and from the plan as it is, so a lost race needs no memory: the
//! next look writes what is still missing.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use super::next_record::{LocalPush, Rules, begin, blank, halt};
use super::word::{Others, Sorted, Word, added};
use crate::rollout::plan::STEPS_MAX;
use crate::rollout::report::{PushReport, ReplicaReport, RolloutState, SharedReport};
use crate::rollout::shared::contents::{ChangeHash, ContentSet, UnitChanges, UnitKey};
use crate::rollout::shared::record::{
    FORMAT, Orders, PastPush, PlanRecord, ReplicaTally, SharedControl, SharedState, read, write,
};
use crate::rollout::tally::{Counts, Tally};
use sluice_engine::Time;

/// The pushes of the past that the ledger holds for each plan and outcome.
pub const PAST_MAX: usize = 16;

/// Greater numbers are not from a replica.
const PUSH_MAX: u64 = 1 << 48;
const CLIENTS_MAX: u64 = 1 << 40;

/// The time between two tallies of a replica, so that an idle fleet and a busy one are both polite.
const TALLY_EVERY: Duration = Duration::from_millis(500);

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
    /// The orders of operators here, until the record has them.
    orders: Option<Orders>,
    /// The orders of the record that this replica follows.
    followed: Orders,
    watched: WatchedPush,
    /// The wall clock at a time of the plan: microseconds since 1970.
    clock: (Time, u64),
}

/// The record's push, as this replica has seen it.
#[derive(Debug, Default)]
struct WatchedPush {
    /// The record's push that this replica has no part of.
    skipped: Option<u64>,
    /// Since when the changes of the record's push are as they are.
    gathered: Time,
    /// Since when nobody has the record's push, although it is under way.
    deserted: Option<Time>,
    /// Why the latest cut did not begin.
    waits: Option<&'static str>,
}

/// The entries of one plan.
#[derive(Debug, Default)]
struct Held {
    record: Option<(PlanRecord, u64)>,
    /// The record cannot be read.
    unreadable: Option<Box<str>>,
    done: BTreeMap<u64, PastPush>,
    /// By push and replica.
    halted: BTreeMap<(u64, Box<str>), PastPush>,
    /// By replica, with this one.
    tallies: BTreeMap<Box<str>, ReplicaTally>,
}

#[derive(Debug, Default)]
struct Writes {
    last_ticket: u64,
    /// The write of the record or of the past that is under way.
    record: Option<(u64, Pending)>,
    tally: Option<u64>,
    /// The tally in the ledger, since the ledger is here.
    written: Option<ReplicaTally>,
    written_at: Option<Time>,
    /// Entries of before this revision are out of date.
    not_before: u64,
}

#[derive(Debug)]
enum Pending {
    Record(Box<PlanRecord>),
    Past,
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
            orders: None,
            followed: Orders::default(),
            watched: WatchedPush::default(),
            clock: (Time::ZERO, 0),
        }
    }

    pub fn name(&self) -> &str {
        &self.replica.name
    }

    /// The microseconds since 1970 at a time of the plan.
    pub fn wall(&self, time: Time) -> u64 {
        let (at, wall) = self.clock;
        wall.saturating_add(time.as_micros()).saturating_sub(at.as_micros())
    }

    /// The time of the plan at microseconds since 1970.
    pub fn time(&self, wall: u64) -> Time {
        let (at, then) = self.clock;
        Time::from_micros(at.as_micros().saturating_add(wall).saturating_sub(then))
    }

    // === The events of the ledger ===

    pub fn handle(&mut self, event: LedgerEvent, wall: u64, now: Time) {
        self.clock = (now, wall);
        match event {
            LedgerEvent::Loaded(entries) => {
                if matches!(self.link, Link::Away(_)) {
                    self.link = Link::Here { since: now };
                }
                let before = mem::take(&mut self.held);
                let last_ticket = self.writes.last_ticket;
                self.writes = Writes { last_ticket, ..Writes::default() };
                entries.into_iter().for_each(|entry| self.take(entry, now));
                if before.record != self.held.record {
                    self.watched.gathered = now;
                }
            }
            LedgerEvent::Changed(entry) => self.take(entry, now),
            LedgerEvent::Gone { key, .. } => self.drop_entry(&key),
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
        match self.part(&entry.key) {
            Some(Part::Record) => self.take_record(read(&entry.value), entry.revision, now),
            Some(Part::Done(push)) => take_past(&mut self.held.done, push, &entry.value),
            Some(Part::Halted(push, replica)) => {
                take_past(&mut self.held.halted, (push, replica), &entry.value);
            }
            Some(Part::Tally(replica)) => {
                // A tally that cannot be read is one that has not come: nobody goes on without it.
                let tally = read(&entry.value).ok().filter(ReplicaTally::is_possible).unwrap_or_default();
                self.held.tallies.insert(replica, tally);
            }
            None => {}
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
                self.held.record = Some((record, revision));
                self.held.unreadable = None;
            }
            Err(error) => self.held.unreadable = Some(error.into()),
        }
    }

    fn drop_entry(&mut self, key: &str) {
        match self.part(key) {
            // Nobody deletes a record: the ledger has lost it.
            Some(Part::Record) => self.held.unreadable = Some("the record of the plan is gone".into()),
            Some(Part::Done(push)) => drop(self.held.done.remove(&push)),
            Some(Part::Halted(push, replica)) => drop(self.held.halted.remove(&(push, replica))),
            Some(Part::Tally(replica)) => drop(self.held.tallies.remove(&replica)),
            None => {}
        }
    }

    fn part(&self, key: &str) -> Option<Part> {
        let (kind, rest) = key.split_once('/')?;
        let rest = rest.strip_prefix(&*self.plan)?;
        let below = || rest.strip_prefix('/');
        match kind {
            "plan" if rest.is_empty() => Some(Part::Record),
            "done" => Some(Part::Done(below()?.parse().ok()?)),
            "halted" => {
                let (push, replica) = below()?.split_once('/')?;
                Some(Part::Halted(push.parse().ok()?, replica.into()))
            }
            "tally" => {
                below().filter(|replica| !replica.contains('/')).map(|replica| Part::Tally(replica.into()))
            }
            _ => None,
        }
    }

    /// The result of a write.
    pub fn wrote(&mut self, ticket: u64, result: WriteResult, now: Time) {
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
                if self.orders.as_ref() == Some(&record.orders) {
                    self.orders = None;
                }
                self.take_record(Ok(*record), revision, now);
            }
            (WriteResult::Conflict(Some(revision)), Pending::Record(_)) => self.writes.not_before = revision,
            _ => {}
        }
    }

    // === The meaning for the plan ===

    fn record(&self) -> Option<&PlanRecord> {
        self.held.record.as_ref().map(|(record, _)| record)
    }

    /// Why nothing begins and nothing goes on; `None` if the ledger is here, and all could write since.
    pub fn stop(&self, now: Time) -> Option<Box<str>> {
        match &self.link {
            Link::Away(why) => Some(why.clone()),
            _ if self.held.unreadable.is_some() => self.held.unreadable.clone(),
            Link::Here { since } if now < *since + self.replica.lease => {
                Some("it has just come back, and other replicas may have something to write first".into())
            }
            _ if self.is_named_twice() => {
                Some(format!("another replica has the name {}", self.replica.name).into())
            }
            _ => None,
        }
    }

    /// Whether nothing can be written.
    pub fn is_away(&self) -> bool {
        matches!(self.link, Link::Away(_)) || self.held.unreadable.is_some() || self.is_named_twice()
    }

    /// When [`Share::stop`] may say something else.
    pub fn poll_timeout(&self) -> Option<Time> {
        let settled = match self.link {
            Link::Here { since } => Some(since + self.replica.lease),
            Link::Away(_) => None,
        };
        let deserted = self.watched.deserted.map(|since| since + self.replica.lease);
        [settled, deserted].into_iter().flatten().min()
    }

    fn is_named_twice(&self) -> bool {
        let named = self.held.tallies.get(&self.replica.name);
        named.is_some_and(|tally| tally.process != self.replica.process)
    }

    /// The number of the next cut: that of the record's push, or a new one. `local`: the push under way here.
    /// `None`: no cut can begin now.
    pub fn number(&self, local: Option<u64>, last_push: u64) -> Option<u64> {
        let Some(record) = self.record() else { return Some(last_push + 1) };
        let new = record.push.max(last_push) + 1;
        let has_been_here = local == Some(record.push) || last_push >= record.push;
        match record.state {
            SharedState::Over => Some(new),
            SharedState::Halted if has_been_here || self.watched.skipped == Some(record.push) => Some(new),
            SharedState::Gathering | SharedState::Moving if has_been_here => None,
            SharedState::Moving if self.watched.skipped == Some(record.push) => None,
            _ => Some(record.push),
        }
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
        let news = |unit: &UnitChanges| self.news(unit);
        let record = self.record().filter(|record| record.push >= number);
        if let Some(record) = record {
            let is_part = units.iter().all(|unit| record.changed.covers(&news(unit)));
            return match record.state {
                _ if record.push > number || record.rules != rules => Sorted::Wait,
                SharedState::Gathering => Sorted::Begin,
                SharedState::Moving | SharedState::Halted if is_part => Sorted::Begin,
                _ => {
                    self.watched.skipped = Some(number);
                    Sorted::Wait
                }
            };
        }
        if self.record().is_some_and(|record| record.state.is_under_way()) {
            return Sorted::Wait;
        }
        if units.iter().all(|unit| news(unit).is_empty()) {
            return Sorted::Known;
        }
        let halted: BTreeSet<UnitKey> = units
            .iter()
            .filter(|unit| !is_promoted && self.is_halted(unit.unit, &news(unit)))
            .map(|unit| unit.unit)
            .collect();
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

    /// Whether the changes of a unit are those with which it was blamed for a halt.
    fn is_halted(&self, unit: UnitKey, changes: &[ChangeHash]) -> bool {
        let is_of = |blamed: &[UnitKey], set: &ContentSet| {
            (blamed.is_empty() || blamed.contains(&unit)) && set.covers(changes)
        };
        // A later push for all clients has put another content there: the old one may be tried again, by
        // steps.
        let is_replaced = |push: u64| {
            let later = self.held.done.range(push + 1..).filter(|(push, _)| self.is_over(**push));
            later
                .map(|(_, past)| &past.changed)
                .any(|set| changes.iter().any(|change| set.has_place_of(*change)))
        };
        let is_past = |push: u64, past: &PastPush| {
            !past.changed.is_whole() && is_of(&past.blamed, &past.changed) && !is_replaced(push)
        };
        // Until the replica that halted the push has said which changes it means.
        let latest = self
            .record()
            .filter(|record| record.state == SharedState::Halted && !self.has_halted(record.push));
        let is_latest = |record: &PlanRecord| is_of(record.blamed(), &record.changed);
        let mut past = self.held.halted.iter();
        !changes.is_empty()
            && (past.any(|((push, _), past)| is_past(*push, past)) || latest.is_some_and(is_latest))
    }

    /// Whether another replica halted the push for changes that no unit of this one has.
    pub fn is_innocent<'a>(&self, number: u64, units: impl IntoIterator<Item = &'a UnitChanges>) -> bool {
        let mut units = units.into_iter().peekable();
        self.has_halted(number)
            && units.peek().is_some()
            && !units.any(|unit| self.is_halted(unit.unit, &self.news(unit)))
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

    /// The step with which an operator began the record's push, if it is later than this one.
    pub fn promoted_after(&self, number: u64) -> Option<u8> {
        let record = self.record().filter(|record| record.push > number && record.state.is_under_way())?;
        record.promoted
    }

    /// Takes the count of the clients of this replica, and returns the counts of the others.
    pub fn count(&mut self, push: &PushReport, tally: &Tally) -> Others {
        let reached = push.steps.last();
        self.counted = Some(ReplicaTally {
            push: push.number,
            step: reached.map_or(0, |step| step.number),
            threshold: reached.map_or(0, |step| step.threshold),
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

    /// The orders before, and those of the record, if they are news.
    pub fn take_orders(&mut self) -> Option<(Orders, Orders)> {
        // An order of here that is not written yet comes after those of the record.
        let record =
            self.record().filter(|record| self.orders.is_none() && record.orders != self.followed)?;
        let orders = record.orders.clone();
        Some((mem::replace(&mut self.followed, orders.clone()), orders))
    }

    /// Orders of operators at this replica, for all replicas.
    pub fn order(&mut self, orders: Orders) {
        let is_known = self.record().map_or(orders == Orders::default(), |record| record.orders == orders);
        self.followed.clone_from(&orders);
        self.orders = (!is_known).then_some(orders);
    }

    /// `fault`: why the ledger is not acted on. `local`: the push of this replica.
    pub fn report(&self, fault: &Option<Box<str>>, local: Option<&PushReport>) -> SharedReport {
        let blank = blank();
        let record = self.record().unwrap_or(&blank);
        let local = local.filter(|local| local.number == record.push);
        let is_diverged = local.is_some_and(|local| {
            let is_halted = local.state == RolloutState::Halted;
            is_halted && record.state != SharedState::Halted || local.reached() > record.step
        });
        let replica = |name: &str, tally: &ReplicaTally| ReplicaReport {
            name: name.into(),
            push: tally.push,
            step: tally.step,
            takes_part: tally.takes_part,
            is_behind: !tally.is_of(record),
            clients: tally.admitted.affected(),
        };
        SharedReport {
            replica: self.replica.name.clone(),
            fault: fault.clone(),
            push: record.push,
            state: record.state,
            step: record.step,
            is_unwritten: self.orders.is_some(),
            is_diverged,
            waits: self.watched.waits,
            replicas: self.held.tallies.iter().map(|(name, tally)| replica(name, tally)).collect(),
        }
    }

    // === The writes ===

    /// The next write of the record or of the past. `local`: the push of this replica.
    pub fn next_write(&mut self, local: Option<&LocalPush<'_>>, rules: Rules, now: Time) -> Option<Write> {
        let is_here = matches!(self.link, Link::Here { .. }) && self.held.unreadable.is_none();
        let revision = self.held.record.as_ref().map_or(0, |(_, revision)| *revision);
        if !is_here
            || self.is_named_twice()
            || self.writes.record.is_some()
            || revision < self.writes.not_before
        {
            return None;
        }
        let mut next = self.record().cloned().unwrap_or_default();
        next.version = FORMAT;
        let mut past = None;
        if let Some(local) = local {
            halt(&mut next, local, rules);
            past = self.own_halt(local);
        }
        if let Some(orders) = &self.orders {
            next.orders.clone_from(orders);
        }
        if self.stop(now).is_none() {
            if let Some(local) = local.filter(|local| local.halt.is_none()) {
                past = self.go_on(&mut next, local, rules, now);
            }
            self.end_deserted(&mut next, local, now);
        }
        let is_halt =
            self.record().map(|record| record.state) != Some(next.state) && next.state == SharedState::Halted;
        // A halt comes before everything else.
        if let Some((key, past)) = past.filter(|_| !is_halt) {
            return Some(self.send(key, write(&past), Expected::Any, Pending::Past));
        }
        if self.record() == Some(&next) || self.record().is_none() && next == blank() {
            return self.outdated().map(|key| self.forget(key));
        }
        let expected = match &self.held.record {
            Some((_, revision)) => Expected::Revision(*revision),
            None => Expected::Absent,
        };
        let value = write(&next);
        Some(self.send(format!("plan/{}", self.plan), value, expected, Pending::Record(Box::new(next))))
    }

    /// An entry of the past beyond the pushes that the ledger keeps.
    fn outdated(&self) -> Option<String> {
        let Held { done, halted, .. } = &self.held;
        let done = done.keys().next().filter(|_| done.len() > PAST_MAX);
        let halted = halted.keys().next().filter(|_| halted.len() > PAST_MAX);
        let done = done.map(|push| format!("done/{}/{push}", self.plan));
        done.or_else(|| halted.map(|(push, replica)| format!("halted/{}/{push}/{replica}", self.plan)))
    }

    fn forget(&mut self, key: String) -> Write {
        Write { value: None, ..self.send(key, Vec::new(), Expected::Any, Pending::Past) }
    }

    /// Brings the record forward: a new push, more changes of it, or its next step. Returns an entry of the
    /// past that has to stand before.
    fn go_on(
        &self,
        next: &mut PlanRecord,
        local: &LocalPush<'_>,
        rules: Rules,
        now: Time,
    ) -> Option<(String, PastPush)> {
        if local.number > next.push {
            if next.state == SharedState::Halted && !self.has_halted(next.push) {
                // Its replica is gone without a word about the changes.
                let (changed, blamed) = (next.changed.clone(), next.blamed().to_vec());
                return Some((self.halted_key(next.push), PastPush { version: FORMAT, changed, blamed }));
            }
            if !next.state.is_under_way() {
                begin(next, local, rules);
            }
            return None;
        }
        if local.number < next.push || !next.state.is_under_way() || next.rules != rules.hash {
            return None;
        }
        let is_part = |change: &&ChangeHash| next.changed.has(**change) || self.is_done(**change);
        if next.state == SharedState::Gathering && !local.changes.iter().all(|change| is_part(&change)) {
            next.changed.add(local.changes.iter().copied());
            return None;
        }
        let is_gathered = next.state == SharedState::Moving
            || local.is_urgent
            || now >= self.watched.gathered + rules.quiet;
        let is_paused = next.orders.paused == Some(next.push);
        let bid = local.bid.filter(|_| is_gathered && !is_paused)?;
        if bid.is_finish {
            if !self.held.done.contains_key(&next.push) {
                let changed = self.spoken_for(next, local);
                let key = format!("done/{}/{}", self.plan, next.push);
                return Some((key, PastPush { version: FORMAT, changed, blamed: Vec::new() }));
            }
            next.state = SharedState::Over;
            return None;
        }
        if (bid.step, bid.threshold) > (next.step, next.threshold) {
            if bid.step > next.step && next.state == SharedState::Moving {
                next.changed = self.spoken_for(next, local);
            }
            next.state = SharedState::Moving;
            next.step = bid.step;
            next.threshold = bid.threshold.max(next.threshold);
        }
        None
    }

    /// The changes for which this replica halted the record's push, if they are not in the ledger yet.
    fn own_halt(&self, local: &LocalPush<'_>) -> Option<(String, PastPush)> {
        let (halt, changed) = local.halt.as_ref().filter(|(_, changed)| !changed.is_empty())?;
        let is_halted =
            |record: &&PlanRecord| record.push == local.number && record.state == SharedState::Halted;
        let key = (local.number, self.replica.name.clone());
        self.record().filter(is_halted).filter(|_| !self.held.halted.contains_key(&key))?;
        let past = PastPush { version: FORMAT, changed: changed.clone(), blamed: halt.blamed.clone() };
        Some((self.halted_key(local.number), past))
    }

    fn halted_key(&self, push: u64) -> String {
        format!("halted/{}/{push}/{}", self.plan, self.replica.name)
    }

    /// The changes that the clients of live replicas have stood with. What a replica brought that is away now
    /// has no evidence: it goes by steps again, when the replica is back.
    fn spoken_for(&self, record: &PlanRecord, local: &LocalPush<'_>) -> ContentSet {
        if record.changed.is_whole() {
            return record.changed.clone();
        }
        let local_changes = local.changes.iter().copied().filter(|change| record.changed.has(*change));
        if record.state == SharedState::Gathering {
            // A return to known content: nobody's clients have stood with the changes of others.
            return local_changes.collect();
        }
        let tallies =
            self.held.tallies.iter().filter(|(name, tally)| {
                **name != self.replica.name && tally.takes_part && tally.is_of(record)
            });
        local_changes.chain(tallies.flat_map(|(_, tally)| record.changed.at(&tally.part))).collect()
    }

    /// Ends a push that no live replica has any more: their servers took it back, or they are gone.
    fn end_deserted(&mut self, next: &mut PlanRecord, local: Option<&LocalPush<'_>>, now: Time) {
        let has = |tally: &ReplicaTally| tally.takes_part && tally.push == next.push;
        let is_here = local.is_some_and(|local| local.number >= next.push);
        let is_deserted = next.state.is_under_way() && !is_here && !self.held.tallies.values().any(has);
        if !is_deserted {
            self.watched.deserted = None;
            return;
        }
        let since = *self.watched.deserted.get_or_insert(now);
        if now >= since + self.replica.lease {
            next.state = SharedState::Over;
        }
    }

    /// The tally of this replica for the others. `local`: its push.
    pub fn next_tally(&mut self, local: Option<&LocalPush<'_>>, now: Time) -> Option<Write> {
        if self.writes.tally.is_some() || matches!(self.link, Link::Away(_)) || self.is_named_twice() {
            return None;
        }
        let blank = blank();
        let record = self.record().unwrap_or(&blank);
        let local = local.filter(|local| local.number == record.push);
        let mut tally = match (self.counted.as_ref().filter(|counted| counted.is_of(record)), local) {
            (Some(counted), Some(_)) => counted.clone(),
            // The clients have not been counted at this step: the others wait.
            (None, Some(_)) if record.step > 0 => return None,
            _ => {
                let PlanRecord { push, step, threshold, .. } = *record;
                ReplicaTally { push, step, threshold, ..ReplicaTally::default() }
            }
        };
        (tally.version, tally.process) = (FORMAT, self.replica.process);
        if let Some(local) = local {
            (tally.takes_part, tally.part) = (true, record.changed.places(local.changes));
        }
        let written = self.writes.written.as_ref();
        let is_due = self.writes.written_at.is_none_or(|at| now >= at + TALLY_EVERY);
        let is_new =
            written.is_none_or(|written| !written.is_of(record) || written.takes_part != tally.takes_part);
        // A write that the watch does not report shows that the watch is deaf.
        let is_again = tally.takes_part && self.writes.written_at.is_some_and(|at| now >= at + TALLY_AGAIN);
        if written == Some(&tally) && !is_again || !is_due && !is_new {
            return None;
        }
        let value = write(&tally);
        (self.writes.written, self.writes.written_at) = (Some(tally), Some(now));
        let ticket = self.ticket();
        self.writes.tally = Some(ticket);
        let key = format!("tally/{}/{}", self.plan, self.replica.name);
        Some(Write { ticket, key, value: Some(value), expected: Expected::Any, is_leased: true })
    }

    fn send(&mut self, key: String, value: Vec<u8>, expected: Expected, pending: Pending) -> Write {
        let ticket = self.ticket();
        self.writes.record = Some((ticket, pending));
        Write { ticket, key, value: Some(value), expected, is_leased: false }
    }

    fn ticket(&mut self) -> u64 {
        self.writes.last_ticket += 1;
        self.writes.last_ticket
    }
}

/// A part of a plan in the ledger.
enum Part {
    Record,
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

fn take_past<K: Ord>(sets: &mut BTreeMap<K, PastPush>, push: K, value: &[u8]) {
    if let Ok(past) = read(value) {
        sets.insert(push, past);
    }
}
