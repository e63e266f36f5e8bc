//! The memory that the relay holds for one connection alone.
//!
//! Memory that several connections share does not count. Counted are streams, incomplete requests, the names
//! that the connection's streams ask for, requests that wait for the rate of changes, and polled documents. A
//! charge is one relaxed addition, made before the allocation or as soon as the size is known. An update
//! costs no charge except for the bytes that the client has not read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

use crate::driver::ground::rate::{Limiter, RateDecision, SharedNames};
use sluice_engine::Time;
use sluice_xds::{Code, Status};

/// The memory that one connection holds, and the limit.
#[derive(Debug)]
pub struct Account {
    /// `limits.connection_bytes`.
    pub(crate) max: u64,
    /// Bytes that no other connection shares.
    pub(crate) held: AtomicU64,
    /// Unread messages of the connection's streams, in bytes. Other connections may share the bodies.
    unread: AtomicU64,
    /// Unread documents of the connection's polls, in bytes.
    pub(crate) polled: AtomicU64,
    is_awaited: AtomicBool,
    /// The opened sources before the rate has counted them.
    opened: AtomicU32,
    pub(crate) names: SharedNames,
    /// Boxed: most connections have none of it.
    pacing: Mutex<Option<Box<Pacing>>>,
}

/// The reasons for which the streams of a connection wait.
#[derive(Debug, Default)]
struct Pacing {
    /// The streams that may send nothing before the client reads, by number.
    waiting: BTreeMap<u64, Waker>,
    /// The rate of polls and of new sources; `None` before the first.
    polls: Option<Limiter>,
}

impl Default for Account {
    fn default() -> Self {
        Account::new(u64::MAX)
    }
}

impl Account {
    pub fn new(max: u64) -> Account {
        let (held, unread, polled, is_awaited, opened, names, pacing) = Default::default();
        Account { max, held, unread, polled, is_awaited, opened, names, pacing }
    }

    /// The bytes that only this connection holds.
    pub fn private_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed) + self.polled.load(Ordering::Relaxed)
    }

    /// The bytes sent on the connection's streams that the client has not read. Other connections may share
    /// them.
    pub fn unread_bytes(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    /// Whether another answer may be made for the connection. False while the client leaves a whole budget
    /// unread, because each stream could add a complete set.
    pub fn has_room(&self) -> bool {
        let unread = self.unread.load(Ordering::Relaxed) + self.polled.load(Ordering::Relaxed);
        unread == 0 || unread < self.max
    }

    /// Wakes the stream once the client has read something.
    pub(crate) fn wait(&self, stream: u64, waker: &Waker) {
        let mut pacing = self.pacing.lock();
        let waiting = &mut pacing.get_or_insert_default().waiting;
        waiting.entry(stream).or_insert_with(|| waker.clone()).clone_from(waker);
        drop(pacing);
        // Like the swap of a reader: the one of both that comes later sees what the other did before.
        self.is_awaited.swap(true, Ordering::AcqRel);
    }

    /// Ends the wait of a stream that has ended.
    pub(crate) fn forget(&self, stream: u64) {
        if let Some(pacing) = &mut *self.pacing.lock() {
            pacing.waiting.remove(&stream);
        }
    }

    pub(crate) fn was_read(&self) {
        if self.is_awaited.swap(false, Ordering::AcqRel) {
            let waiting = self.pacing.lock().as_mut().map(|pacing| std::mem::take(&mut pacing.waiting));
            waiting.into_iter().flatten().for_each(|(_, waker)| waker.wake());
        }
    }

    pub(crate) fn leave_unread(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
        self.was_read();
    }

    /// When a poll for this many names may be answered. Each poll is a stream of its own, so the rate belongs
    /// to the connection.
    pub(crate) fn admit_poll(&self, names: usize, now: Time, per_second: u32, burst: u32) -> RateDecision {
        self.pace(per_second, burst, |limiter| limiter.admit_poll(names, now))
    }

    fn pace<T>(&self, per_second: u32, burst: u32, admit: impl FnOnce(&mut Limiter) -> T) -> T {
        let mut pacing = self.pacing.lock();
        let polls = &mut pacing.get_or_insert_default().polls;
        let limiter = polls.get_or_insert_with(|| Limiter::new(per_second, burst));
        limiter.configure(per_second, burst);
        admit(limiter)
    }

    /// The number of streams that may send nothing before the client reads.
    #[cfg(test)]
    pub(crate) fn waiting_len(&self) -> usize {
        self.pacing.lock().as_ref().map_or(0, |pacing| pacing.waiting.len())
    }

    /// A request of the connection opened a source.
    pub(crate) fn note_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// When the sources opened since the last call may ask their servers; `None` if there are none.
    pub(crate) fn admit_opened(&self, now: Time, per_second: u32, burst: u32) -> Option<RateDecision> {
        // Nearly all requests open none, and a load costs less than a write.
        if self.opened.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let opened = self.opened.swap(0, Ordering::Relaxed);
        self.pace(per_second, burst, |limiter| (0..opened).map(|_| limiter.admit_poll(0, now)).last())
    }

    pub fn over_budget(&self) -> Status {
        let text = format!(
            "this connection holds more than {} bytes of the relay's memory; the limit is \
                limits.connection_bytes",
            self.max
        );
        Status::new(Code::ResourceExhausted, text)
    }
}
