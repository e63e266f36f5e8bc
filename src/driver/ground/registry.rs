//! All live objects of one kind, by number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Numbers objects in the order of their creation, and holds them weakly.
pub struct Registry<T> {
    made: AtomicU64,
    live: Mutex<BTreeMap<u64, Weak<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry { made: AtomicU64::new(0), live: Mutex::default() }
    }
}

impl<T> Registry<T> {
    /// A number that no other object of this registry gets.
    pub fn next_id(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    pub fn add(&self, id: u64, what: &Arc<T>) {
        lock(&self.live).insert(id, Arc::downgrade(what));
    }

    pub fn forget(&self, id: u64) {
        lock(&self.live).remove(&id);
    }

    pub fn len(&self) -> usize {
        lock(&self.live).len()
    }

    /// The live object with the smallest number above `after`.
    pub fn next(&self, after: Option<u64>) -> Option<Arc<T>> {
        let mut from = after.map_or(0, |id| id + 1);
        loop {
            let (id, found) = {
                let live = lock(&self.live);
                let (id, found) = live.range(from..).next()?;
                (*id, found.upgrade())
            };
            match found {
                Some(found) => return Some(found),
                None => from = id + 1,
            }
        }
    }
}

/// Locks a mutex, even after a panic. A panic in one task must not end others: the data behind these locks is
/// consistent between two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
