//! All live objects of one kind, by number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A registry for users that need none of its objects.
pub trait Membership: Send + Sync {
    /// The number of live objects.
    fn count(&self) -> usize;

    /// Removes the object with this number.
    fn forget(&self, id: u64);
}

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

    pub fn add(&self, id: u64, object: &Arc<T>) {
        lock(&self.live).insert(id, Arc::downgrade(object));
    }

    pub fn len(&self) -> usize {
        lock(&self.live).len()
    }

    /// The live object with the smallest number above `after`.
    pub fn next(&self, after: Option<u64>) -> Option<Arc<T>> {
        let mut from = after.map_or(0, |id| id + 1);
        loop {
            let (id, object) = {
                let live = lock(&self.live);
                let (id, object) = live.range(from..).next()?;
                (*id, object.upgrade())
            };
            match object {
                Some(object) => return Some(object),
                None => from = id + 1,
            }
        }
    }
}

impl<T: Send + Sync> Membership for Registry<T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn forget(&self, id: u64) {
        lock(&self.live).remove(&id);
    }
}

/// Locks a mutex, even after a panic. A panic in one task must not end others: the data behind these locks is
/// consistent between two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
