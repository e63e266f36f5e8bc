//! Partitions of rows by the values of fields.

use std::collections::BTreeMap;

#[cfg(test)]
pub use tests::REFINED;

/// The pairs of classes and values in a table. A larger table would be nearly empty.
const TABLE_MAX: usize = 1 << 22;

fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Rows in classes: a number for each row, in the order in which the classes appear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    classes: Vec<u32>,
    count: usize,
}

impl Partition {
    /// All rows in one class.
    pub fn whole(rows: usize) -> Partition {
        Partition { classes: vec![0; rows], count: rows.min(1) }
    }

    /// Rows with equal keys in one class.
    pub fn by<K: Ord>(keys: impl IntoIterator<Item = K>) -> Partition {
        let mut numbers = BTreeMap::new();
        let mut classes = Vec::new();
        for key in keys {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            classes.push(*numbers.entry(key).or_insert(next));
        }
        Partition { classes, count: numbers.len() }
    }

    /// Splits each class by the values of another field. `cells` has a value for each row.
    #[must_use]
    pub fn refine(&self, cells: &[u32]) -> Partition {
        #[cfg(test)]
        tests::REFINED.set(tests::REFINED.get() + cells.len());
        let pairs = self.classes.iter().zip(cells);
        let width = cells.iter().max().map_or(1, |most| place(*most).saturating_add(1));
        let size = self.count.saturating_mul(width);
        if size > TABLE_MAX {
            return Partition::by(pairs);
        }
        // A number for each pair of a class and a value.
        let (mut numbers, mut count) = (vec![u32::MAX; size], 0);
        let mut number = |(class, cell): (&u32, &u32)| {
            let slot = numbers.get_mut(place(*class) * width + place(*cell))?;
            if *slot == u32::MAX {
                *slot = count;
                count += 1;
            }
            Some(*slot)
        };
        let classes: Vec<u32> = pairs.filter_map(&mut number).collect();
        Partition { classes, count: place(count) }
    }

    /// The number of classes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The class of each row.
    pub fn classes(&self) -> &[u32] {
        &self.classes
    }

    /// Whether all rows of a class have the same value of a field.
    pub fn determines(&self, cells: &[u32]) -> bool {
        let mut values = vec![None; self.count];
        self.classes.iter().zip(cells).all(|(class, cell)| {
            values.get_mut(place(*class)).is_some_and(|value| *value.get_or_insert(*cell) == *cell)
        })
    }

    /// The pairs of rows that share a class, and differ in `numbers`.
    pub fn unequal_pairs(&self, numbers: &[u32]) -> u64 {
        let pairs = |counts: &BTreeMap<(u32, u32), u64>| -> u64 {
            counts.values().map(|count| count * (count - 1) / 2).sum()
        };
        let (mut all, mut equal) = (BTreeMap::new(), BTreeMap::new());
        for (class, number) in self.classes.iter().zip(numbers) {
            *all.entry((*class, 0)).or_insert(0) += 1;
            *equal.entry((*class, *number)).or_insert(0) += 1;
        }
        pairs(&all) - pairs(&equal)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// The rows that this thread has refined: the work of a search.
        pub static REFINED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn a_partition_is_refined_field_by_field() {
        let both = Partition::whole(4).refine(&[1, 1, 2, 2]).refine(&[7, 8, 7, 7]);
        assert_eq!((both.count(), both.classes()), (3, &[0, 1, 2, 2][..]));
        assert!(both.determines(&[5, 6, 5, 5]));
        assert!(!both.determines(&[5, 6, 5, 6]));
        assert_eq!(Partition::whole(4).unequal_pairs(&[1, 1, 2, 3]), 5);
        assert_eq!(both.unequal_pairs(&[1, 1, 2, 3]), 1);
        assert_eq!(Partition::whole(0).count(), 0);
    }
}
