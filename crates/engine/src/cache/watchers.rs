//! The slots that contain one name.

use std::collections::BTreeSet;

use arrayvec::ArrayVec;

/// A watched set inside one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotId(pub(super) u32);

/// So many slots take no allocation.
const FEW: usize = 4;

/// The slots that contain a name. Most names have one or two; a name that thousands of clients request beside
/// names of their own has as many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watchers {
    /// In ascending order.
    Few(ArrayVec<SlotId, FEW>),
    Many(Box<BTreeSet<SlotId>>),
}

impl Default for Watchers {
    fn default() -> Self {
        Watchers::Few(ArrayVec::new())
    }
}

impl Watchers {
    pub fn only(slot: SlotId) -> Watchers {
        let mut watchers = Watchers::default();
        watchers.insert(slot);
        watchers
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Watchers::Few(slots) => slots.is_empty(),
            Watchers::Many(slots) => slots.is_empty(),
        }
    }

    pub fn insert(&mut self, slot: SlotId) {
        match self {
            Watchers::Few(slots) => {
                let Err(place) = slots.binary_search(&slot) else { return };
                if slots.is_full() {
                    let all = slots.iter().copied().chain([slot]);
                    *self = Watchers::Many(Box::new(all.collect()));
                } else {
                    slots.insert(place, slot);
                }
            }
            Watchers::Many(slots) => {
                slots.insert(slot);
            }
        }
    }

    pub fn remove(&mut self, slot: SlotId) {
        match self {
            Watchers::Few(slots) => slots.retain(|other| *other != slot),
            Watchers::Many(slots) => {
                slots.remove(&slot);
                // Fewer than would fit: a slot that comes and goes allocates no set each time.
                if slots.len() <= FEW / 2 {
                    *self = Watchers::Few(slots.iter().copied().collect());
                }
            }
        }
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &SlotId> {
        let (few, many) = match self {
            Watchers::Few(slots) => (Some(slots.iter()), None),
            Watchers::Many(slots) => (None, Some(slots.iter())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_slots_take_no_allocation() {
        assert_eq!(size_of::<Watchers>(), 24);
        let mut watchers = Watchers::default();
        let numbers = |watchers: &Watchers| watchers.iter().map(|slot| slot.0).collect::<Vec<_>>();
        for slot in [3, 1, 2, 3, 0] {
            watchers.insert(SlotId(slot));
        }
        assert!(matches!(watchers, Watchers::Few(_)));
        for slot in [0, 4, 4] {
            watchers.insert(SlotId(slot));
        }
        assert!(matches!(watchers, Watchers::Many(_)));
        assert_eq!(numbers(&watchers), [0, 1, 2, 3, 4]);
        for slot in [1, 4, 9] {
            watchers.remove(SlotId(slot));
        }
        assert!(matches!(watchers, Watchers::Many(_)), "with room for one more");
        watchers.remove(SlotId(0));
        assert!(matches!(watchers, Watchers::Few(_)));
        assert_eq!(numbers(&watchers), [2, 3]);
        watchers.remove(SlotId(2));
        watchers.remove(SlotId(3));
        assert!(watchers.is_empty() && numbers(&watchers).is_empty());
    }
}
