//! How full the nodes of persistent trees are (ADR 22).
//!
//! A tree cannot be told how to lay out its nodes. The order in which entries go in decides: in sorted order
//! each node would split when full, and stay half empty.

use imbl::OrdMap;

/// The share of a node's places that a new tree uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filling {
    /// All places, for content that came at once and may never change.
    Full,
    /// Five of six places, for content that changes step by step: in a full node the next entry would be a
    /// split.
    Roomy,
}

/// Smaller trees have two nodes, however their entries came.
const REFILLED_MIN: usize = 32;

impl Filling {
    /// Sorted entries in an order that fills nodes. Some entries make half-full nodes, which the others fill:
    /// for full nodes each second entry, for roomy nodes two of five.
    pub(super) fn order<T>(self, sorted: Vec<T>) -> impl Iterator<Item = T> {
        let mut late = Vec::with_capacity(sorted.len() / 2);
        let mut early = Vec::with_capacity(sorted.len() - sorted.len() / 3);
        for (index, entry) in sorted.into_iter().enumerate() {
            let is_late = match self {
                Filling::Full => index % 2 == 1,
                Filling::Roomy => matches!(index % 5, 1 | 3),
            };
            if is_late { late.push(entry) } else { early.push(entry) }
        }
        early.into_iter().chain(late)
    }

    /// The slack of a new tree.
    pub(super) fn slack(self, len: usize) -> Slack {
        // Until then at least two thirds of all places are in use, whatever the changes.
        Slack(match self {
            Filling::Full => len / 32,
            Filling::Roomy => len / 8,
        })
    }
}

/// The number of entries that may come or go before a tree is worth a refill. A refill is thus O(1) for each
/// change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slack(usize);

impl Slack {
    pub(super) fn spend(&mut self, changes: usize) {
        self.0 = self.0.saturating_sub(changes);
    }

    pub(super) fn is_spent(self, len: usize) -> bool {
        self.0 == 0 && len >= REFILLED_MIN
    }
}

/// The number of entries when the nodes of a map were last filled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refilled(usize);

impl Refilled {
    /// The map in full nodes, if it has at least doubled since the last time: O(1) for each entry.
    pub(super) fn refill<K: Clone + Ord, V: Clone>(&mut self, map: &OrdMap<K, V>) -> Option<OrdMap<K, V>> {
        if map.len() < REFILLED_MIN.max(2 * self.0) {
            return None;
        }
        self.0 = map.len();
        let sorted = map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Some(Filling::Full.order(sorted).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_has_every_entry_once() {
        for filling in [Filling::Full, Filling::Roomy] {
            for count in [0, 1, 2, 7, 100] {
                let mut all: Vec<_> = filling.order((0..count).collect()).collect();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..count));
            }
        }
    }

    #[test]
    fn a_map_is_refilled_when_it_has_doubled() {
        let (mut refilled, mut map) = (Refilled::default(), OrdMap::new());
        let mut fills = Vec::new();
        for number in 0..200 {
            map.insert(number, number);
            if let Some(filled) = refilled.refill(&map) {
                assert_eq!(filled, map);
                fills.push(filled.len());
            }
        }
        assert_eq!(fills, [REFILLED_MIN, 2 * REFILLED_MIN, 4 * REFILLED_MIN]);
    }

    #[test]
    fn slack_is_spent_by_changes_in_proportion_to_the_tree() {
        for (filling, changes) in [(Filling::Full, 10), (Filling::Roomy, 40)] {
            let mut slack = filling.slack(320);
            slack.spend(changes - 1);
            assert!(!slack.is_spent(320));
            slack.spend(1);
            assert!(slack.is_spent(320));
            slack.spend(1);
            assert!(!slack.is_spent(REFILLED_MIN - 1), "too small");
        }
    }
}
