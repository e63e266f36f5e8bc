//! The orders of operators, at all replicas and at this one alone (LDG-7).

use std::mem;

use serde::{Deserialize, Serialize};

use super::Share;
use crate::rollout::shared::contents::UnitKey;
use crate::rollout::shared::order_change::{BARRED_MAX, OrderChange};
use crate::rollout::shared::record::Orders;
use sluice_engine::Time;

#[derive(Debug, Default)]
pub(super) struct FollowedOrders {
    /// The orders of operators here, until the record has them.
    pub unwritten: Option<OrderChange>,
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
}

impl Share {
    /// The orders from before a restart.
    pub fn remember(&mut self, KeptOrders { followed, unwritten }: KeptOrders) {
        (self.orders.followed, self.orders.unwritten) = (Some(followed), unwritten);
    }

    /// The orders for the next process.
    pub fn kept_orders(&self) -> Option<KeptOrders> {
        let FollowedOrders { followed, unwritten, .. } = &self.orders;
        Some(KeptOrders { followed: followed.clone()?, unwritten: unwritten.clone() })
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

    /// The word of an operator at this replica, for all replicas.
    pub fn order(&mut self, change: OrderChange) {
        let followed = self.orders.followed.get_or_insert_default();
        *followed = change.apply(followed);
        let change = self.orders.unwritten.take().unwrap_or_default().and(change);
        self.set_unwritten(change);
    }

    fn set_unwritten(&mut self, change: OrderChange) {
        let blank = Orders::default();
        let orders = self.record().map_or(&blank, |record| &record.orders);
        self.orders.unwritten = Some(change).filter(|change| change.apply(orders) != *orders);
    }

    /// An operator takes orders back at this replica alone. What nobody else has heard of by then, as the
    /// ledger is away, spreads no more (LDG-5).
    pub fn take_back(&mut self, change: &OrderChange) {
        let Some(unwritten) =
            self.orders.unwritten.take_if(|_| !matches!(self.link, super::Link::Here { .. }))
        else {
            return;
        };
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
