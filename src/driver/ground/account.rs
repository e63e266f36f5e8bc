//! What one connection makes the relay keep (reliability §4.5).
//!
//! Only memory that nobody else shares is counted: requests that have not come as a whole, the names that its streams ask
//! for, the documents that it polled. A charge is one relaxed addition, made before the memory is taken or as soon as its size is
//! known, and nothing is charged for an update but the bytes that the client has not read.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use crate::driver::ground::rate::{Admission, Limiter};
use crate::driver::ground::registry::lock;
use crate::engine::Time;
use crate::xds::{Code, Status};

/// What one connection holds, and how much it may.
#[derive(Debug)]
pub struct Account {
    /// `limits.connection_bytes`.
    pub(crate) max: u64,
    /// What it alone holds.
    pub(crate) held: AtomicU64,
    /// Of streams: messages that it has not read. Others may share their bodies.
    unread: AtomicU64,
    /// Documents that it polled and has not read.
    pub(crate) polled: AtomicU64,
    is_awaited: AtomicBool,
    /// Streams that may say nothing more until something was read, by number.
    pub(crate) waiting: Mutex<BTreeMap<u64, Waker>>,
    /// The rate of its polls, once there is one.
    polls: Mutex<Option<Limiter>>,
}

impl Default for Account {
    fn default() -> Self {
        Account::new(u64::MAX)
    }
}

impl Account {
    pub fn new(max: u64) -> Account {
        let (held, unread, polled, is_awaited, waiting, polls) = Default::default();
        Account { max, held, unread, polled, is_awaited, waiting, polls }
    }

    /// What only this connection holds.
    pub fn private_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed) + self.polled.load(Ordering::Relaxed)
    }

    /// What its streams were sent and have not read; others may share it.
    pub fn unread_bytes(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    /// Another answer may be made for it. Not if it left so much unread, since each of its streams could add a whole set.
    pub fn has_room(&self) -> bool {
        let unread = self.unread.load(Ordering::Relaxed) + self.polled.load(Ordering::Relaxed);
        unread == 0 || unread < self.max
    }

    /// Wakes this stream once something was read.
    pub(crate) fn wait(&self, stream: u64, waker: &Waker) {
        lock(&self.waiting).entry(stream).or_insert_with(|| waker.clone()).clone_from(waker);
        self.is_awaited.store(true, Ordering::Release);
    }

    /// The stream is gone.
    pub(crate) fn forget(&self, stream: u64) {
        lock(&self.waiting).remove(&stream);
    }

    pub(crate) fn was_read(&self) {
        if self.is_awaited.swap(false, Ordering::AcqRel) {
            let waiting = std::mem::take(&mut *lock(&self.waiting));
            waiting.into_values().for_each(Waker::wake);
        }
    }

    pub(crate) fn leave_unread(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
        self.was_read();
    }

    /// When a poll for so many names may be answered. Each poll is a stream of its own, so that the rate is that of the
    /// connection.
    pub(crate) fn admit_poll(&self, names: usize, now: Time, rate: impl FnOnce() -> Limiter) -> Admission {
        lock(&self.polls).get_or_insert_with(rate).admit_poll(names, now)
    }

    pub fn over_budget(&self) -> Status {
        let text = format!(
            "this connection makes the relay keep more than {} bytes, which is limits.connection_bytes",
            self.max
        );
        Status::new(Code::ResourceExhausted, text)
    }
}
