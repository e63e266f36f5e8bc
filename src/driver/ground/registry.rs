//! All live objects of one kind, by number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A registry for users that need none of its objects.
pub trait Membership: Send + Sync {
    /// The number of live objects.
    fn count(&self) -> usize;

    /// Removes the object with this number.
    fn forget(&self, id: u64);
}

/// Numbers objects in the order of their creation, and holds them weakly.
pub struct NumberedRegistry<T> {
    made: AtomicU64,
    live: Mutex<BTreeMap<u64, Weak<T>>>,
}

impl<T> Default for NumberedRegistry<T> {
    fn default() -> Self {
        NumberedRegistry { made: AtomicU64::new(0), live: Mutex::default() }
    }
}

impl<T> NumberedRegistry<T> {
    /// A number that no other object of this registry gets.
    pub fn next_id(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    pub fn add(&self, id: u64, object: &Arc<T>) {
        self.live.lock().insert(id, Arc::downgrade(object));
    }

    pub fn len(&self) -> usize {
        self.live.lock().len()
    }

    /// The live object with the smallest number above `after`.
    pub fn next(&self, after: Option<u64>) -> Option<Arc<T>> {
        let mut from = after.map_or(0, |id| id + 1);
        loop {
            let (id, object) = {
                let live = self.live.lock();
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

impl<T: Send + Sync> Membership for NumberedRegistry<T> {
    fn count(&self) -> usize {
        self.len()
    }

    fn forget(&self, id: u64) {
        self.live.lock().remove(&id);
    }
}
