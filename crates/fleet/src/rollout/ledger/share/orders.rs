//! The orders of operators, at all replicas and at this one alone (LDG-7).

use std::mem;

use serde::{Deserialize, Serialize};

use super::{Link, Share};
use crate::rollout::ledger::next_record::blank;
use crate::rollout::shared::contents::UnitKey;
use crate::rollout::shared::order_change::{BARRED_MAX, OrderChange};
use crate::rollout::shared::record::{Orders, PlanRecord};
use sluice_engine::Time;

#[derive(Debug, Default)]
pub(super) struct FollowedOrders {
    /// The orders of operators here, until the record has them.
    pub unwritten: Option<OrderChange>,
    /// They are orders for this replica alone: the others are restrained by them, and nothing is loosened.
    is_of_here: bool,
    /// The orders of the record that this replica follows, with the unwritten ones. `None`: no record has
    /// come yet, so this replica has its own.
    followed: Option<Orders>,
    /// In words, how this replica acts otherwise.
    pub apart: Vec<Box<str>>,
}

/// The orders of a plan over a restart: what the record says otherwise then is news.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptOrders {
    followed: Orders,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unwritten: Option<OrderChange>,
    #[serde(default)]
    is_of_here: bool,
}

impl Share {
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

    /// The orders before, and those of the record, if they are news. `own`: those of this replica.
    pub fn take_orders(&mut self, own: Orders) -> Option<(Orders, Orders)> {
        let orders = self.record()?.orders.clone();
        // What an earlier build left on disk was told to all, and may be over.
        let followed = self.orders.followed.get_or_insert(own);
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
