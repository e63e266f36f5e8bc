//! A table of values that others own. An entry ends with the last owner of its value.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// Tasks that look up different keys hardly wait for each other, and a sweep holds one of 64 locks at a time.
const SHARDS: usize = 64;

/// No sweep happens with fewer entries in a shard.
const SWEEP_MIN: usize = 16;

/// Has at most as many dead entries as there were living ones at the last sweep, and a few in each shard.
#[derive(Debug)]
pub struct WeakTable<K, V: ?Sized> {
    shards: [Mutex<Shard<K, V>>; SHARDS],
    hasher: RandomState,
    /// The shard that [`WeakTable::sweep`] looks at next.
    next: AtomicUsize,
}

#[derive(Debug)]
struct Shard<K, V: ?Sized> {
    entries: HashMap<K, Weak<V>, RandomState>,
    /// At this number of entries, the dead entries are swept.
    sweep_at: usize,
}

impl<K, V: ?Sized> Default for Shard<K, V> {
    fn default() -> Self {
        Shard { entries: HashMap::default(), sweep_at: SWEEP_MIN }
    }
}

impl<K, V: ?Sized> Default for WeakTable<K, V> {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        WeakTable { shards, hasher: RandomState::default(), next: AtomicUsize::default() }
    }
}

impl<K: Hash + Eq, V: ?Sized> WeakTable<K, V> {
    /// The value of a key, if it has an owner.
    pub fn find(&self, key: &K) -> Option<Arc<V>> {
        self.shard(key).lock().entries.get(key).and_then(Weak::upgrade)
    }

    /// Adds a value, or replaces the value of this key.
    pub fn add(&self, key: K, value: &Arc<V>) {
        let mut shard = self.shard(&key).lock();
        if shard.entries.len() >= shard.sweep_at {
            shard.sweep();
        }
        shard.entries.insert(key, Arc::downgrade(value));
    }

    /// Sweeps one shard after the other, one with each call, so that the memory of dead entries becomes free
    /// without additions, too.
    pub fn sweep(&self) {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.shards[next % SHARDS].lock().sweep();
    }

    fn shard(&self, key: &K) -> &Mutex<Shard<K, V>> {
        // The tables of the shards use the low bits.
        &self.shards[(self.hasher.hash_one(key) >> 32) as usize % SHARDS]
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }
}

impl<K: Hash + Eq, V: ?Sized> Shard<K, V> {
    fn sweep(&mut self) {
        self.entries.retain(|_, value| value.strong_count() > 0);
        self.sweep_at = SWEEP_MIN.max(2 * self.entries.len());
        self.entries.shrink_to(self.sweep_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bod_3_an_entry_goes_with_the_last_owner() {
        let table = WeakTable::<usize, usize>::default();
        let owned: Vec<_> = (0..10_000).map(Arc::new).collect();
        owned.iter().for_each(|value| table.add(**value, value));
        assert!(owned.iter().all(|value| table.find(value).is_some_and(|held| Arc::ptr_eq(&held, value))));
        drop(owned);
        assert!((0..10_000).all(|key| table.find(&key).is_none()));
        (0..SHARDS).for_each(|_| table.sweep());
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn bod_3_dead_entries_are_bounded() {
        let table = WeakTable::<usize, usize>::default();
        let owned: Vec<_> = (0..1_000).map(Arc::new).collect();
        owned.iter().for_each(|value| table.add(**value, value));
        (1_000..100_000).for_each(|key| table.add(key, &Arc::new(key)));
        assert!(table.len() <= 2 * owned.len() + 2 * SHARDS * SWEEP_MIN, "{} entries", table.len());
        assert!(owned.iter().all(|value| table.find(value).is_some()));
    }
}
