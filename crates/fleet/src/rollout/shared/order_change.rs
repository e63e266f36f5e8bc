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
    /// All units go on, but for those below.
    unbars: bool,
    /// More units that wait.
    barred: Vec<UnitKey>,
}

/// The barred units that a record has room for, beside its changes and the blamed units.
pub const BARRED_MAX: usize = 256;

impl OrderChange {
    pub fn between(before: &Orders, after: &Orders) -> OrderChange {
        OrderChange {
            paused: (before.paused != after.paused).then_some(after.paused),
            frozen_until: (before.frozen_until != after.frozen_until).then_some(after.frozen_until),
            pin: (before.pin != after.pin).then_some(after.pin),
            unbars: after.barred.is_empty() && !before.barred.is_empty(),
            barred: after.barred.iter().filter(|unit| !before.barred.contains(unit)).copied().collect(),
        }
    }

    /// With a later change.
    #[must_use]
    pub fn and(self, later: OrderChange) -> OrderChange {
        OrderChange {
            paused: later.paused.or(self.paused),
            frozen_until: later.frozen_until.or(self.frozen_until),
            pin: later.pin.or(self.pin),
            unbars: self.unbars || later.unbars,
            barred: if later.unbars { later.barred } else { added(self.barred, &later.barred) },
        }
    }

    pub fn apply(&self, orders: &Orders) -> Orders {
        Orders {
            paused: self.paused.unwrap_or(orders.paused),
            frozen_until: self.frozen_until.unwrap_or(orders.frozen_until),
            pin: self.pin.unwrap_or(orders.pin),
            barred: added(if self.unbars { Vec::new() } else { orders.barred.clone() }, &self.barred),
            others: orders.others.clone(),
        }
    }
}

/// With further units, as far as there is room: two replicas may bar many at the same time.
fn added(mut units: Vec<UnitKey>, more: &[UnitKey]) -> Vec<UnitKey> {
    for unit in more {
        if units.len() < BARRED_MAX && !units.contains(unit) {
            units.push(*unit);
        }
    }
    units
}
