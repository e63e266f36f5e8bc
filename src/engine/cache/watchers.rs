//! The slots that contain one name.

use std::collections::BTreeSet;

use super::slots::SlotId;

/// The slots that contain a name: most names have one, and a name that thousands of clients ask for beside names of their own
/// has as many. One slot takes no allocation.
#[derive(Debug, Default)]
pub enum Watchers {
    #[default]
    Nobody,
    One(SlotId),
    Many(Box<BTreeSet<SlotId>>),
}

impl Watchers {
    pub fn is_empty(&self) -> bool {
        match self {
            Watchers::Nobody => true,
            Watchers::One(_) => false,
            Watchers::Many(slots) => slots.is_empty(),
        }
    }

    pub fn insert(&mut self, slot: SlotId) {
        match self {
            Watchers::Nobody => *self = Watchers::One(slot),
            Watchers::One(other) if *other == slot => {}
            Watchers::One(other) => *self = Watchers::Many(Box::new(BTreeSet::from([*other, slot]))),
            Watchers::Many(slots) => {
                slots.insert(slot);
            }
        }
    }

    pub fn remove(&mut self, slot: SlotId) {
        match self {
            Watchers::One(only) if *only == slot => *self = Watchers::Nobody,
            Watchers::Nobody | Watchers::One(_) => {}
            Watchers::Many(slots) => {
                slots.remove(&slot);
                if slots.len() <= 1 {
                    *self = slots.first().map_or(Watchers::Nobody, |slot| Watchers::One(*slot));
                }
            }
        }
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &SlotId> {
        let (one, many) = match self {
            Watchers::Nobody => (None, None),
            Watchers::One(slot) => (Some(slot), None),
            Watchers::Many(slots) => (None, Some(slots.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slot_takes_no_allocation() {
        assert_eq!(size_of::<Watchers>(), 16);
        let mut watchers = Watchers::default();
        let texts = |watchers: &Watchers| watchers.iter().map(|slot| format!("{slot:?}")).collect::<Vec<_>>();
        let slots = [SlotId(0), SlotId(2), SlotId(1)];
        for slot in slots.into_iter().chain(slots) {
            watchers.insert(slot);
        }
        assert_eq!(texts(&watchers), ["SlotId(0)", "SlotId(1)", "SlotId(2)"]);
        watchers.remove(slots[0]);
        watchers.remove(slots[2]);
        assert!(matches!(&watchers, Watchers::One(slot) if *slot == slots[1]), "{watchers:?}");
        watchers.remove(slots[0]);
        assert!(!watchers.is_empty());
        watchers.remove(slots[1]);
        assert!(watchers.is_empty() && texts(&watchers).is_empty());
    }
}
