//! The configuration in force (ADR 21): a value that many tasks read, and that one call replaces.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};

/// A configuration with its number, counted from 0 for each owner.
#[derive(Debug)]
pub struct Epoch<T> {
    number: u64,
    value: T,
}

impl<T> Epoch<T> {
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl<T> Deref for Epoch<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A handle to the configuration in force. Clones share the configuration.
#[derive(Debug)]
pub struct InForce<T>(Arc<Place<T>>);

/// The place where all handles find the configuration.
#[derive(Debug)]
struct Place<T> {
    present: ArcSwap<Epoch<T>>,
    /// The number of the present epoch, or of the one before while the present one is published.
    number: AtomicU64,
}

impl<T> Clone for InForce<T> {
    fn clone(&self) -> InForce<T> {
        InForce(self.0.clone())
    }
}

impl<T> InForce<T> {
    pub fn new(value: T) -> InForce<T> {
        let present = ArcSwap::from_pointee(Epoch { number: 0, value });
        InForce(Arc::new(Place { present, number: AtomicU64::new(0) }))
    }

    /// The current epoch. Costs no shared counter, so that thousands of streams may read at once. A guard is
    /// for a moment, not for a struct.
    pub fn get(&self) -> Guard<Arc<Epoch<T>>> {
        self.0.present.load()
    }

    /// The number of the current epoch. Costs no more than a read of memory, for those who have taken that
    /// epoch over.
    pub fn number(&self) -> u64 {
        self.0.number.load(Ordering::Acquire)
    }

    /// The current epoch, to keep.
    pub fn epoch(&self) -> Arc<Epoch<T>> {
        self.0.present.load_full()
    }

    /// Puts a value in force for everybody at once. Returns the number of the new epoch. One caller at a
    /// time.
    pub fn publish(&self, value: T) -> u64 {
        let number = self.get().number + 1;
        self.0.present.store(Arc::new(Epoch { number, value }));
        self.0.number.store(number, Ordering::Release);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rel_5_all_handles_read_the_new_value_and_kept_epochs_stay() {
        let first = InForce::new("old");
        let (second, kept) = (first.clone(), first.epoch());
        assert_eq!(first.publish("new"), 1);
        let now = second.epoch();
        assert_eq!((now.number(), now.value, second.number()), (1, "new", 1));
        assert_eq!((kept.number(), kept.value), (0, "old"));
    }
}
