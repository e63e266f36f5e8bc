//! The change that a command of an operator makes to the orders of all replicas (LDG-7). The rest of the
//! orders may be from other replicas, and mean something that this one does not have.

use serde::{Deserialize, Deserializer, Serialize};

use super::contents::UnitKey;
use super::record::{Orders, SharedPin};

/// The fields that a command sets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderChange {
    #[serde(deserialize_with = "set", skip_serializing_if = "Option::is_none")]
    paused: Option<Option<u64>>,
    #[serde(deserialize_with = "set", skip_serializing_if = "Option::is_none")]
    frozen_until: Option<Option<u64>>,
    #[serde(deserialize_with = "set", skip_serializing_if = "Option::is_none")]
    pin: Option<Option<SharedPin>>,
    /// All units go on, but for those below.
    unbars: bool,
    /// More units that wait.
    barred: Vec<UnitKey>,
}

/// A field that is there is set; null: the order ends.
fn set<'de, T, D>(field: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(field).map(Some)
}

/// The barred units that a record has room for, beside its changes and the blamed units.
pub const BARRED_MAX: usize = 256;

impl OrderChange {
    pub fn between(before: &Orders, after: &Orders) -> OrderChange {
        OrderChange {
            paused: (before.paused != after.paused).then_some(after.paused),
            frozen_until: (before.frozen_until != after.frozen_until).then_some(after.frozen_until),
            pin: (before.pin != after.pin).then(|| after.pin.clone()),
            unbars: after.barred.is_empty() && !before.barred.is_empty(),
            barred: after.barred.iter().filter(|unit| !before.barred.contains(unit)).copied().collect(),
        }
    }

    /// The end of a freeze that it begins.
    pub fn frozen_until(&self) -> Option<u64> {
        self.frozen_until.flatten()
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

    /// The clocks, freezes and pins that another change sets, too.
    #[must_use]
    pub fn among(&self, other: &OrderChange) -> OrderChange {
        OrderChange {
            paused: self.paused.filter(|_| other.paused.is_some()),
            frozen_until: self.frozen_until.filter(|_| other.frozen_until.is_some()),
            pin: self.pin.clone().filter(|_| other.pin.is_some()),
            ..OrderChange::default()
        }
    }

    /// All but the clocks, freezes and pins that another change sets, too.
    #[must_use]
    pub fn without(self, other: &OrderChange) -> OrderChange {
        OrderChange {
            paused: self.paused.filter(|_| other.paused.is_none()),
            frozen_until: self.frozen_until.filter(|_| other.frozen_until.is_none()),
            pin: self.pin.filter(|_| other.pin.is_none()),
            ..self
        }
    }

    pub fn apply(&self, orders: &Orders) -> Orders {
        Orders {
            paused: self.paused.unwrap_or(orders.paused),
            frozen_until: self.frozen_until.unwrap_or(orders.frozen_until),
            pin: self.pin.clone().unwrap_or_else(|| orders.pin.clone()),
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
