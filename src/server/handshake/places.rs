//! Places for handshakes in progress (SEC-1).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// ClientHellos that wait for their turn, in bytes: those of a fleet of 18,000 that returns at once. None of them is
/// evicted, as their peers have done their part; a peer beyond is refused.
const QUEUED_BYTES_MAX: usize = 32 << 20;

/// The handshakes that wait for their peers, oldest first. When all places are taken, the oldest handshake goes, not the
/// newcomer: silent peers could otherwise shut the door for the time of a handshake.
#[derive(Default)]
pub(super) struct Places(Mutex<Open>);

#[derive(Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, CancellationToken>,
    queued_bytes: usize,
}

/// A place, given back on drop.
pub(super) struct Place {
    /// `None` while the handshake waits for the relay.
    number: Option<u64>,
    queued_bytes: usize,
    evicted: CancellationToken,
    places: Arc<Places>,
}

impl Places {
    /// Takes a place among `max`, if need be that of the oldest handshake.
    pub(super) fn enter(self: &Arc<Self>, max: u64) -> Place {
        let mut place =
            Place { number: None, queued_bytes: 0, evicted: CancellationToken::new(), places: self.clone() };
        place.wait_for_peer(max);
        place
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Every critical section leaves the table consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The handshake waits for its peer: it has a place among `max`, as the newest.
    pub(super) fn wait_for_peer(&mut self, max: u64) {
        self.release();
        let mut open = self.places.open();
        while open.by_age.len() as u64 >= max {
            match open.by_age.pop_first() {
                Some((_, oldest)) => oldest.cancel(),
                None => break,
            }
        }
        let number = open.next;
        open.next += 1;
        open.by_age.insert(number, self.evicted.clone());
        drop(open);
        self.number = Some(number);
    }

    /// The handshake waits for the relay, with the bytes of its ClientHello. False if too many wait already.
    pub(super) fn wait_for_relay(&mut self, bytes: usize) -> bool {
        self.release();
        let mut open = self.places.open();
        if open.queued_bytes + bytes > QUEUED_BYTES_MAX {
            return false;
        }
        open.queued_bytes += bytes;
        drop(open);
        self.queued_bytes = bytes;
        true
    }

    fn release(&mut self) {
        let mut open = self.places.open();
        if let Some(number) = self.number.take() {
            open.by_age.remove(&number);
        }
        open.queued_bytes -= std::mem::take(&mut self.queued_bytes);
    }

    /// Cancelled when a newcomer has taken the place.
    pub(super) fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.release();
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

    #[test]
    fn sec_1_a_peer_that_waits_for_the_relay_is_never_evicted() {
        let places = Arc::new(Places::default());
        let mut first = places.enter(1);
        assert!(first.wait_for_relay(QUEUED_BYTES_MAX));
        let mut second = places.enter(1);
        assert!(!first.evicted.is_cancelled());
        assert!(!second.wait_for_relay(1), "the queue is full");
        first.wait_for_peer(1);
        assert!(places.enter(1).wait_for_relay(1));
        drop((first, second));
        assert_eq!(places.open().queued_bytes, 0);
    }
}
