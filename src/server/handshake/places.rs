//! Places for handshakes in progress (SEC-1).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The handshakes in progress, oldest first. When all places are taken, the oldest handshake goes, not the newcomer:
/// silent peers could otherwise shut the door for the time of a handshake.
#[derive(Default)]
pub(super) struct Places(Mutex<Open>);

#[derive(Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, CancellationToken>,
}

/// A place, given back on drop.
pub(super) struct Place {
    number: u64,
    evicted: CancellationToken,
    places: Arc<Places>,
}

impl Places {
    /// Takes a place among `max`, if need be that of the oldest handshake.
    pub(super) fn enter(self: &Arc<Self>, max: u64) -> Place {
        let evicted = CancellationToken::new();
        let mut open = self.open();
        while open.by_age.len() as u64 >= max {
            match open.by_age.pop_first() {
                Some((_, oldest)) => oldest.cancel(),
                None => break,
            }
        }
        let number = open.next;
        open.next += 1;
        open.by_age.insert(number, evicted.clone());
        drop(open);
        Place { number, evicted, places: self.clone() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Every critical section leaves the table consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Resolves when a newcomer has taken the place.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.open().by_age.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_1_the_oldest_goes_and_a_finished_one_makes_room() {
        let places = Arc::new(Places::default());
        let first = places.enter(2);
        let second = places.enter(2);
        drop(first);
        let third = places.enter(2);
        assert!(!second.evicted.is_cancelled());
        let _fourth = places.enter(2);
        assert!(second.evicted.is_cancelled() && !third.evicted.is_cancelled());
        drop((second, third));
        assert_eq!(places.open().by_age.len(), 1);
    }
}
