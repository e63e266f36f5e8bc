//! The change that a command of an operator makes to the orders of all replicas (LDG-7). The rest of the
//! orders may be from other replicas, and mean something that this one does not have.

use super::contents::UnitKey;
use super::record::{Orders, SharedPin};

/// The fields that a command sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderChange {
    paused: Option<Option<u64>>,
    frozen_until: Option<Option<u64>>,
    pin: Option<Option<SharedPin>>,
    barred: Option<Vec<UnitKey>>,
}

impl OrderChange {
    pub fn between(before: &Orders, after: &Orders) -> OrderChange {
        OrderChange {
            paused: (before.paused != after.paused).then_some(after.paused),
            frozen_until: (before.frozen_until != after.frozen_until).then_some(after.frozen_until),
            pin: (before.pin != after.pin).then_some(after.pin),
            barred: (before.barred != after.barred).then(|| after.barred.clone()),
        }
    }

    /// With a later change.
    #[must_use]
    pub fn and(self, later: OrderChange) -> OrderChange {
        OrderChange {
            paused: later.paused.or(self.paused),
            frozen_until: later.frozen_until.or(self.frozen_until),
            pin: later.pin.or(self.pin),
            barred: later.barred.or(self.barred),
        }
    }

    pub fn apply(&self, orders: &Orders) -> Orders {
        Orders {
            paused: self.paused.unwrap_or(orders.paused),
            frozen_until: self.frozen_until.unwrap_or(orders.frozen_until),
            pin: self.pin.unwrap_or(orders.pin),
            barred: self.barred.clone().unwrap_or_else(|| orders.barred.clone()),
            others: orders.others.clone(),
        }
    }
}
