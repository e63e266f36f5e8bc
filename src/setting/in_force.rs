//! The configuration in force (ADR 21): a value that many tasks read, and that one call replaces.

use std::ops::Deref;
use std::sync::Arc;

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
pub struct InForce<T>(Arc<ArcSwap<Epoch<T>>>);

impl<T> Clone for InForce<T> {
    fn clone(&self) -> InForce<T> {
        InForce(self.0.clone())
    }
}

impl<T> InForce<T> {
    pub fn new(value: T) -> InForce<T> {
        InForce(Arc::new(ArcSwap::from_pointee(Epoch { number: 0, value })))
    }

    /// The current epoch. Costs no shared counter, so that thousands of streams may read at once. A guard is for
    /// a moment, not for a struct.
    pub fn get(&self) -> Guard<Arc<Epoch<T>>> {
        self.0.load()
    }

    /// The current epoch, to keep.
    pub fn epoch(&self) -> Arc<Epoch<T>> {
        self.0.load_full()
    }

    /// Puts a value in force for everybody at once. Returns the number of the new epoch. One caller at a time.
    pub fn publish(&self, value: T) -> u64 {
        let number = self.get().number + 1;
        self.0.store(Arc::new(Epoch { number, value }));
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
        assert_eq!((now.number(), now.value), (1, "new"));
        assert_eq!((kept.number(), kept.value), (0, "old"));
    }
}
