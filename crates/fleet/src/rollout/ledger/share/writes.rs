//! The writes of a replica: they follow from the record as it is, and from the plan as it is.

use std::collections::BTreeSet;
use std::mem;

use super::orders::{FollowedOrders, KeptOrders};
use super::{Expected, Held, Link, PAST_MAX, Share, TALLY_AGAIN, TALLY_EVERY, Write};
use crate::rollout::ledger::next_record::{LocalPush, Rules, begin, blank, halt};
use crate::rollout::shared::contents::{ChangeHash, ContentSet, UnitKey};
use crate::rollout::shared::order_change::{BARRED_MAX, OrderChange};
use crate::rollout::shared::record::{
    CondemnedRecord, FORMAT, Orders, PastPush, PlanRecord, ReplicaTally, SharedState, write,
};
use sluice_engine::Time;

#[derive(Debug, Default)]
pub(super) struct Writes {
    pub last_ticket: u64,
    /// The write of the record or of the past that is under way.
    pub record: Option<(u64, Pending)>,
    pub tally: Option<u64>,
    /// The tally in the ledger, since the ledger is here.
    pub written: Option<ReplicaTally>,
    pub written_at: Option<Time>,
    /// Entries of before this revision are out of date.
    pub not_before: u64,
    /// A write has failed: none is tried before.
    pub again_at: Option<Time>,
    /// The time of the latest look at what is to be written.
    pub looked_at: Time,
}

#[derive(Debug)]
pub(super) enum Pending {
    Record(Box<PlanRecord>),
    /// An entry of the past; no value: it goes.
    Past {
        key: String,
        value: Option<Vec<u8>>,
    },
    Condemned(Box<CondemnedRecord>),
}

impl Writes {
    pub fn is_under_way(&self, ticket: u64) -> bool {
        self.tally == Some(ticket) || self.record.as_ref().is_some_and(|(under_way, _)| *under_way == ticket)
    }

    fn are_put_off(&self, now: Time) -> bool {
        self.again_at.is_some_and(|at| now < at)
    }

    fn send(&mut self, key: String, value: Vec<u8>, expected: Expected, pending: Pending) -> Write {
        let ticket = self.ticket();
        self.record = Some((ticket, pending));
        Write { ticket, key, value: Some(value), expected, is_leased: false }
    }

    fn ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }
}

impl Share {
    /// The next write of the record or of the past. `local`: the push of this replica.
    pub fn next_write(&mut self, local: Option<&LocalPush<'_>>, rules: Rules, now: Time) -> Option<Write> {
        (self.writes.looked_at, self.watched.quiet) = (now, rules.quiet);
        let is_here = matches!(self.link, Link::Here { .. }) && self.unreadable().is_none();
        let revision = self.held.record.as_ref().map_or(0, |(_, revision)| *revision);
        if !is_here
            || self.is_named_twice()
            || self.writes.record.is_some()
            || self.writes.are_put_off(now)
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
        next.orders = self.next_orders(&next, now);
        if self.stop(now).is_none() {
            // A pinned plan begins nothing and goes on with nothing, wherever the release is.
            let is_pinned = next.orders.pin.is_some();
            if let Some(local) = local.filter(|local| local.halt.is_none() && !is_pinned) {
                past = self.go_on(&mut next, local, rules, now);
            }
            self.end_deserted(&mut next, local, rules, now);
        }
        let is_halt =
            self.record().map(|record| record.state) != Some(next.state) && next.state == SharedState::Halted;
        // A halt comes before everything else.
        if let Some((key, past)) = past.filter(|_| !is_halt) {
            let value = write(&past);
            let pending = Pending::Past { key: key.clone(), value: Some(value.clone()) };
            return Some(self.writes.send(key, value, Expected::Any, pending));
        }
        if self.record() == Some(&next) || self.record().is_none() && next == blank() {
            return self.next_condemned(now).or_else(|| self.outdated().map(|key| self.forget(key)));
        }
        let expected = match &self.held.record {
            Some((_, revision)) => Expected::Revision(*revision),
            None => Expected::Absent,
        };
        let value = write(&next);
        Some(self.writes.send(
            format!("plan/{}", self.plan),
            value,
            expected,
            Pending::Record(Box::new(next)),
        ))
    }

    /// The condemned contents that the ledger lacks (QUA-2).
    fn next_condemned(&mut self, now: Time) -> Option<Write> {
        let clock = self.clock;
        let (next, expected) = self.condemning.next(|time| clock.seconds(time), now)?;
        let key = format!("condemned/{}", self.plan);
        Some(self.writes.send(key, write(&next), expected, Pending::Condemned(Box::new(next))))
    }

    /// An entry of the past beyond the pushes that the ledger keeps. Those of the record's push stay, and
    /// pushes that the record never had go first.
    fn outdated(&self) -> Option<String> {
        let Held { done, halted, .. } = &self.held;
        let latest = self.record().map_or(0, |record| record.push);
        let surplus = |pushes: BTreeSet<u64>| {
            let foreign = pushes.last().copied().filter(|push| *push > latest);
            foreign.or(pushes.first().copied()).filter(|_| pushes.len() > PAST_MAX)
        };
        let of_done = surplus(done.keys().copied().collect());
        let of_halted = surplus(halted.keys().map(|(push, _)| *push).collect());
        let of_halted = of_halted.and_then(|push| halted.keys().find(|(halted, _)| *halted == push));
        let done = of_done.map(|push| format!("done/{}/{push}", self.plan));
        done.or_else(|| of_halted.map(|(push, replica)| format!("halted/{}/{push}/{replica}", self.plan)))
    }

    fn forget(&mut self, key: String) -> Write {
        let pending = Pending::Past { key: key.clone(), value: None };
        Write { value: None, ..self.writes.send(key, Vec::new(), Expected::Any, pending) }
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
                let past = PastPush { version: FORMAT, changed, blamed, is_assumed: true };
                return Some((self.halted_key(next.push), past));
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
            // Known content has joined a push on its way: the other changes need their evidence.
            if next.state == SharedState::Moving && next.step < bid.step {
                return None;
            }
            if !self.held.done.contains_key(&next.push) {
                let changed = self.spoken_for(next, local);
                let key = format!("done/{}/{}", self.plan, next.push);
                return Some((key, PastPush { version: FORMAT, changed, ..PastPush::default() }));
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
        let (changed, blamed) = (changed.clone(), halt.blamed.clone());
        let past = PastPush { version: FORMAT, changed, blamed, is_assumed: false };
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
    fn end_deserted(
        &mut self,
        next: &mut PlanRecord,
        local: Option<&LocalPush<'_>>,
        rules: Rules,
        now: Time,
    ) {
        let has = |tally: &ReplicaTally| tally.takes_part && tally.push == next.push;
        let is_here = local.is_some_and(|local| local.number > next.push || local.takes_part(next, rules));
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
    pub fn next_tally(&mut self, local: Option<&LocalPush<'_>>, rules: Rules, now: Time) -> Option<Write> {
        let is_busy = self.writes.tally.is_some() || self.writes.are_put_off(now);
        if is_busy || matches!(self.link, Link::Away(_)) || self.is_named_twice() {
            return None;
        }
        let blank = blank();
        let record = self.record().unwrap_or(&blank);
        let local = local.filter(|local| local.takes_part(record, rules));
        let mut tally = match (self.counted.as_ref().filter(|counted| counted.is_of(record)), local) {
            (Some(counted), Some(_)) => counted.clone(),
            // The clients have not been counted at this step, so others wait. A halted push needs no count.
            (None, Some(_)) if record.step > 0 && record.state != SharedState::Halted => return None,
            _ => {
                let PlanRecord { push, step, threshold, .. } = *record;
                ReplicaTally { push, step, threshold, ..ReplicaTally::default() }
            }
        };
        (tally.version, tally.process) = (FORMAT, self.replica.process);
        tally.is_diverged = !self.orders.apart.is_empty();
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
        let ticket = self.writes.ticket();
        self.writes.tally = Some(ticket);
        let key = format!("tally/{}/{}", self.plan, self.replica.name);
        Some(Write { ticket, key, value: Some(value), expected: Expected::Any, is_leased: true })
    }

    // === The orders of operators, at all replicas and at this one alone (LDG-7) ===

    /// The orders from before a restart.
    pub fn remember(&mut self, KeptOrders { followed, unwritten, is_of_here }: KeptOrders) {
        let followed = Some(followed);
        self.orders = FollowedOrders { unwritten, is_of_here, followed, ..FollowedOrders::default() };
    }

    /// The orders for the next process.
    pub fn kept_orders(&self) -> Option<KeptOrders> {
        let FollowedOrders { followed, unwritten, is_of_here, .. } = &self.orders;
        let (unwritten, is_of_here) = (unwritten.clone(), *is_of_here);
        Some(KeptOrders { followed: followed.clone()?, unwritten, is_of_here })
    }

    /// Whether an operator has stopped the clocks of a push, as far as this replica follows the record.
    pub fn pauses(&self, number: u64) -> bool {
        self.followed().is_some_and(|orders| orders.paused == Some(number))
    }

    /// Whether no push may begin anywhere.
    pub fn freezes(&self, now: Time) -> bool {
        let until = self.followed().and_then(|orders| orders.frozen_until);
        until.is_some_and(|until| self.time(until) > now)
    }

    /// The release that all replicas are to serve.
    pub fn pins(&self) -> Option<u64> {
        self.followed().and_then(|orders| orders.pin.as_ref()).map(|pin| pin.release)
    }

    /// The orders of the record that this replica follows, with its own that are not written yet.
    pub fn followed(&self) -> Option<&Orders> {
        self.orders.followed.as_ref()
    }

    /// How this replica acts otherwise than the others.
    pub fn note_apart(&mut self, apart: Vec<Box<str>>) {
        self.orders.apart = apart;
    }

    /// The orders before, and those of the record, if they are news. `present`: those of this replica.
    pub fn take_orders(&mut self, present: Orders) -> Option<(Orders, Orders)> {
        let orders = self.record()?.orders.clone();
        // An order that an earlier build left on disk was told to all, and may be over.
        let followed = self.orders.followed.get_or_insert(present);
        // An order of here that is not written yet comes after those of the record.
        let is_news = self.orders.unwritten.is_none() && orders != *followed;
        is_news.then(|| (mem::replace(followed, orders.clone()), orders))
    }

    /// The word of an operator at this replica, for all replicas. `is_here`: it was for this one alone, and
    /// restrains.
    pub fn order(&mut self, change: OrderChange, is_here: bool) {
        self.orders.is_of_here = is_here;
        let followed = self.orders.followed.get_or_insert_default();
        let next = change.apply(followed);
        let frozen_until =
            if is_here { next.frozen_until.max(followed.frozen_until) } else { next.frozen_until };
        *followed = Orders { frozen_until, ..next };
        let change = self.orders.unwritten.take().unwrap_or_default().and(change);
        self.set_unwritten(change);
    }

    fn set_unwritten(&mut self, change: OrderChange) {
        let blank = blank();
        let record = self.record().unwrap_or(&blank);
        let is_news = self.ordered(&change, record) != record.orders;
        self.orders.unwritten = Some(change).filter(|_| is_news);
    }

    /// The orders of a record with an unwritten change.
    fn ordered(&self, change: &OrderChange, record: &PlanRecord) -> Orders {
        let (mut next, before) = (change.apply(&record.orders), &record.orders);
        // The push is over, and another one may be paused since; or it has not begun, and another one has.
        let is_other = |push: &u64| *push < record.push || *push > record.push && record.state.is_under_way();
        if next.paused.as_ref().is_some_and(is_other) {
            next.paused = before.paused;
        }
        if self.orders.is_of_here {
            next.frozen_until = next.frozen_until.max(before.frozen_until);
        }
        next
    }

    /// The orders of the next record.
    pub(super) fn next_orders(&mut self, record: &PlanRecord, now: Time) -> Orders {
        let freeze = self.orders.unwritten.as_ref().and_then(OrderChange::frozen_until);
        if let Some(until) = freeze.filter(|until| self.time(*until) <= now) {
            // It is over, and another one may have begun since.
            let frozen = Orders { frozen_until: Some(until), ..Orders::default() };
            self.unorder(&OrderChange::between(&Orders::default(), &frozen));
        }
        match &self.orders.unwritten {
            Some(change) => self.ordered(change, record),
            None => record.orders.clone(),
        }
    }

    /// Whether a record has what was not written yet, whoever wrote it.
    pub(super) fn has_all(&self, record: &PlanRecord) -> bool {
        let is_there = |change| self.ordered(change, record) == record.orders;
        self.orders.unwritten.as_ref().is_none_or(is_there)
    }

    /// An operator takes orders back at this replica alone. What nobody else has heard of by then, as the
    /// ledger is away, spreads no more (LDG-5).
    pub fn take_back(&mut self, change: &OrderChange) {
        if matches!(self.link, Link::Away(_)) {
            self.unorder(change);
        }
    }

    fn unorder(&mut self, change: &OrderChange) {
        let Some(unwritten) = self.orders.unwritten.take() else { return };
        let orders = self.record().map_or_else(Orders::default, |record| record.orders.clone());
        let followed = self.orders.followed.get_or_insert_default();
        // The record is followed again, as it was before the order.
        *followed = OrderChange::between(followed, &orders).among(&unwritten.among(change)).apply(followed);
        self.set_unwritten(unwritten.without(change));
    }

    /// Whether the record has room for the bars of these units.
    pub fn may_bar(&self, units: &[UnitKey]) -> bool {
        let barred = self.followed().map_or(&[][..], |orders| &orders.barred);
        barred.len() + units.iter().filter(|unit| !barred.contains(unit)).count() <= BARRED_MAX
    }
}
