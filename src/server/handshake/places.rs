//! Places for handshakes in progress (SEC-1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Handshakes that wait for their turn: those of a fleet of 18,000 that returns at once. None of them is
/// evicted, as their peers have done their part; a peer beyond is refused. Each has as much memory as a
/// silent peer.
const QUEUED_MAX: usize = 18_000;

/// The memory of the largest handshake. The limit counts handshakes of this size.
const LARGEST_BYTES: u64 = 36 << 10;

/// The memory of a peer that has sent no whole record, in a release build: TLS begins with the record.
const SILENT_BYTES: usize = 2368;

/// The memory of a handshake, beside the bytes of the peer.
const BASE_BYTES: usize = 12 << 10;

/// The steps in which the buffer of a handshake grows.
const STEP_BYTES: usize = 4 << 10;

/// The handshakes that wait for their peers, bounded by their memory. When it is used up, the oldest
/// handshake goes, not the newcomer: silent peers could otherwise shut the door for the time of a handshake.
///
/// Peers that have sent nothing are many and cheap when a fleet returns. They and the others each have half
/// of the memory for certain, and may use what the others leave.
#[derive(Default)]
pub(super) struct Places(Mutex<OpenPlaces>);

#[derive(Default)]
struct OpenPlaces {
    next: u64,
    max: usize,
    silent: PlaceQueue,
    speaking: PlaceQueue,
    queued: usize,
}

/// Handshakes by age.
#[derive(Default)]
struct PlaceQueue {
    by_age: BTreeMap<u64, (CancellationToken, usize)>,
    bytes: usize,
}

impl PlaceQueue {
    fn insert(&mut self, number: u64, evicted: CancellationToken, bytes: usize) {
        self.bytes += bytes;
        self.by_age.insert(number, (evicted, bytes));
    }

    fn remove(&mut self, number: u64) -> Option<CancellationToken> {
        let (evicted, bytes) = self.by_age.remove(&number)?;
        self.bytes -= bytes;
        Some(evicted)
    }

    fn evict_oldest(&mut self) -> bool {
        let Some((_, (evicted, bytes))) = self.by_age.pop_first() else { return false };
        self.bytes -= bytes;
        evicted.cancel();
        true
    }
}

impl OpenPlaces {
    fn insert(&mut self, number: u64, evicted: CancellationToken, bytes: usize) {
        match bytes {
            0 => self.silent.insert(number, evicted, SILENT_BYTES),
            bytes => {
                self.speaking.insert(number, evicted, BASE_BYTES + bytes.next_multiple_of(STEP_BYTES));
            }
        }
        while self.silent.bytes + self.speaking.bytes > self.max {
            let is_over = self.silent.bytes > self.max / 2 || self.speaking.by_age.is_empty();
            let queue = if is_over { &mut self.silent } else { &mut self.speaking };
            if !queue.evict_oldest() {
                break;
            }
        }
    }

    fn remove(&mut self, number: u64) -> Option<CancellationToken> {
        self.silent.remove(number).or_else(|| self.speaking.remove(number))
    }
}

/// A place, given back on drop.
pub(super) struct HandshakePlace {
    seat: Arc<Seat>,
    is_queued: bool,
}

/// The part of a place that follows the bytes of the peer.
pub(super) struct Seat {
    number: AtomicU64,
    evicted: CancellationToken,
    places: Arc<Places>,
}

impl Seat {
    /// The peer has sent so many bytes in all.
    pub(super) fn heard(&self, before: usize, bytes: usize) {
        let steps = |bytes: usize| bytes.div_ceil(STEP_BYTES);
        if steps(before) == steps(bytes) {
            return;
        }
        let number = self.number.load(Ordering::Relaxed);
        let mut open = self.places.0.lock();
        // Nobody is there while the handshake waits for the relay.
        if let Some(evicted) = open.remove(number) {
            open.insert(number, evicted, bytes);
        }
    }
}

impl Places {
    /// Takes a place within `max` handshakes of the largest size, if need be that of the oldest handshake.
    pub(super) fn enter(self: &Arc<Self>, max: u64) -> HandshakePlace {
        // No place has this number yet.
        let (number, evicted) = (AtomicU64::new(u64::MAX), CancellationToken::new());
        let seat = Arc::new(Seat { number, evicted, places: self.clone() });
        let mut place = HandshakePlace { seat, is_queued: false };
        place.wait_for_peer(max, 0);
        place
    }
}

impl HandshakePlace {
    /// The handshake waits for its peer, which has sent so many bytes: it has a place, as the newest.
    pub(super) fn wait_for_peer(&mut self, max: u64, bytes: usize) {
        self.release();
        let mut open = self.seat.places.0.lock();
        let number = open.next;
        open.next += 1;
        open.max = usize::try_from(max * LARGEST_BYTES).unwrap_or(usize::MAX);
        self.seat.number.store(number, Ordering::Relaxed);
        open.insert(number, self.seat.evicted.clone(), bytes);
    }

    /// The handshake waits for the relay. False if too many wait already.
    pub(super) fn wait_for_relay(&mut self) -> bool {
        self.release();
        let mut open = self.seat.places.0.lock();
        if open.queued >= QUEUED_MAX {
            return false;
        }
        open.queued += 1;
        drop(open);
        self.is_queued = true;
        true
    }

    fn release(&mut self) {
        let mut open = self.seat.places.0.lock();
        open.remove(self.seat.number.load(Ordering::Relaxed));
        open.queued -= usize::from(std::mem::take(&mut self.is_queued));
    }

    /// Cancelled when a newcomer has taken the place.
    pub(super) fn evicted(&self) -> CancellationToken {
        self.seat.evicted.clone()
    }

    pub(super) fn seat(&self) -> Arc<Seat> {
        self.seat.clone()
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many silent peers as one handshake of the largest size.
    const SILENT: usize = LARGEST_BYTES as usize / SILENT_BYTES;

    #[test]
    fn sec_1_the_oldest_goes_and_a_finished_one_makes_room() {
        let places = Arc::new(Places::default());
        let mut all: Vec<_> = (0..SILENT).map(|_| places.enter(1)).collect();
        let second = all.remove(1);
        drop(all.remove(0));
        all.push(places.enter(1));
        assert!(!second.evicted().is_cancelled());
        all.push(places.enter(1));
        assert!(second.evicted().is_cancelled() && all.iter().all(|place| !place.evicted().is_cancelled()));
        drop((second, all));
        let open = places.0.lock();
        assert_eq!((open.silent.bytes, open.silent.by_age.len()), (0, 0));
    }

    #[test]
    fn sec_1_who_sends_takes_more_and_neither_kind_drives_out_the_other() {
        let places = Arc::new(Places::default());
        let speaking = (0..100).map(|_| {
            let place = places.enter(10);
            place.seat().heard(0, 2_000);
            place
        });
        let speaking: Vec<_> = speaking.collect();
        let evicted =
            |all: &[HandshakePlace]| all.iter().filter(|place| place.evicted().is_cancelled()).count();
        assert_eq!(evicted(&speaking), 78, "360 KiB of 16 KiB each");
        let silent: Vec<_> = (0..1_000).map(|_| places.enter(10)).collect();
        assert_eq!(1_000 - evicted(&silent), 79, "what 11 of 16 KiB leave of 360 KiB");
        assert_eq!(100 - evicted(&speaking), 11);
        // The last of them sends all that a peer may send.
        speaking[99].seat().heard(2_000, 32 << 10);
        assert!(!speaking[99].evicted().is_cancelled());
        assert_eq!(100 - evicted(&speaking), 9);
        let open = places.0.lock();
        assert!(open.silent.bytes + open.speaking.bytes <= 360 << 10);
    }

    #[test]
    fn sec_1_a_peer_that_waits_for_the_relay_is_never_evicted() {
        let places = Arc::new(Places::default());
        let mut first = places.enter(1);
        assert!(first.wait_for_relay());
        let others = (1..QUEUED_MAX).map(|_| {
            let mut place = places.enter(1);
            assert!(place.wait_for_relay());
            place
        });
        let others: Vec<_> = others.collect();
        first.seat().heard(0, 8_000);
        let mut second = places.enter(1);
        assert!(!first.evicted().is_cancelled());
        assert!(!second.wait_for_relay(), "the queue is full");
        first.wait_for_peer(1, 2_000);
        assert!(places.enter(1).wait_for_relay());
        drop((first, second, others));
        let open = places.0.lock();
        assert_eq!((open.queued, open.speaking.bytes), (0, 0));
    }
}
