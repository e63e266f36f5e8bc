//! What one connection makes the relay keep (reliability §4.5).
//!
//! Only memory that nobody else shares is counted: requests that have not come as a whole, the names that its streams ask
//! for, the documents that it polled. A charge is one relaxed addition, made before the memory is taken or as soon as its size is
//! known, and nothing is charged for an update but the bytes that the client has not read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Weak};
use std::task::Waker;

use super::handle::{ConnectionCut, Link};
use super::limiter::{Admission, Limiter};
use super::registry::lock;
use crate::engine::Time;
use crate::xds::{Code, Status};

/// Below this many entries nothing is swept.
const SWEEP_MIN: usize = 64;

/// What one connection holds, and how much it may.
#[derive(Debug)]
pub struct Account {
    /// `limits.connection_bytes`.
    max: u64,
    /// What it alone holds.
    held: AtomicU64,
    /// Of streams: messages that it has not read. Others may share their bodies.
    unread: AtomicU64,
    /// Documents that it polled and has not read.
    polled: AtomicU64,
    is_awaited: AtomicBool,
    /// Streams that may say nothing more until something was read, by number.
    waiting: Mutex<BTreeMap<u64, Waker>>,
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
    pub(super) fn wait(&self, stream: u64, waker: &Waker) {
        lock(&self.waiting).entry(stream).or_insert_with(|| waker.clone()).clone_from(waker);
        self.is_awaited.store(true, Ordering::Release);
    }

    /// The stream is gone.
    pub(super) fn forget(&self, stream: u64) {
        lock(&self.waiting).remove(&stream);
    }

    fn was_read(&self) {
        if self.is_awaited.swap(false, Ordering::AcqRel) {
            let waiting = std::mem::take(&mut *lock(&self.waiting));
            waiting.into_values().for_each(Waker::wake);
        }
    }

    pub(super) fn leave_unread(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn read(&self, bytes: u64) {
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
        self.was_read();
    }

    /// When a poll for so many names may be answered. Each poll is a stream of its own, so that the rate is that of the
    /// connection.
    pub(super) fn admit_poll(&self, names: usize, now: Time, rate: impl FnOnce() -> Limiter) -> Admission {
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

/// Something that a connection holds, until this is dropped.
#[derive(Debug)]
pub struct Charge {
    connection: ConnectionCut,
    bytes: u64,
}

impl Charge {
    pub fn new(connection: &ConnectionCut) -> Charge {
        Charge { connection: connection.clone(), bytes: 0 }
    }

    /// It takes so many bytes from now on.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if that is more than the connection may hold; the charge is as it was.
    pub fn set(&mut self, bytes: usize) -> Result<(), Status> {
        let (bytes, account) = (bytes as u64, self.connection.account());
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let before = account.held.fetch_add(more, Ordering::Relaxed);
            if before.saturating_add(more) > account.max {
                account.held.fetch_sub(more, Ordering::Relaxed);
                return Err(account.over_budget());
            }
        } else if bytes < self.bytes {
            account.held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.connection.account().held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A polled document on its way out.
#[derive(Debug)]
pub struct Polling {
    connection: ConnectionCut,
    bytes: u64,
}

impl Polling {
    pub fn new(connection: &ConnectionCut, bytes: usize) -> Polling {
        connection.account().polled.fetch_add(bytes as u64, Ordering::Relaxed);
        Polling { connection: connection.clone(), bytes: bytes as u64 }
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        let account = self.connection.account();
        account.polled.fetch_sub(self.bytes, Ordering::Relaxed);
        account.was_read();
    }
}

/// All connections, for who looks for the largest. Keeps none alive.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    open: Vec<Weak<Link>>,
    /// With so many entries those are swept whose connection is gone.
    sweep_at: usize,
}

impl Connections {
    pub fn add(&self, connection: &ConnectionCut) {
        let mut table = lock(&self.0);
        if table.open.len() >= table.sweep_at.max(SWEEP_MIN) {
            table.open.retain(|link| link.strong_count() > 0);
            table.sweep_at = 2 * table.open.len();
        }
        table.open.push(connection.downgrade());
    }

    pub fn all(&self) -> Vec<ConnectionCut> {
        lock(&self.0).open.iter().filter_map(ConnectionCut::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_over_the_budget_is_refused_and_taken_back() {
        let connection = ConnectionCut::with_budget(1000);
        let mut first = Charge::new(&connection);
        let mut second = Charge::new(&connection);
        assert!(first.set(600).is_ok());
        let refused = second.set(401).unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert!(refused.message.contains("limits.connection_bytes"), "{refused}");
        assert_eq!(connection.account().private_bytes(), 600);
        assert!(second.set(400).is_ok());
        assert!(first.set(100).is_ok());
        drop(second);
        assert_eq!(connection.account().private_bytes(), 100);
    }

    #[test]
    fn who_leaves_the_budget_unread_is_sent_no_more_until_it_reads() {
        let connection = ConnectionCut::with_budget(1000);
        let account = connection.account();
        // One message may be of any size.
        assert!(account.has_room());
        account.leave_unread(5000);
        assert!(!account.has_room());
        account.read(5000);
        assert!(account.has_room());
        let document = Polling::new(&connection, 1000);
        assert!(!account.has_room());
        assert_eq!(account.private_bytes(), 1000);
        drop(document);
        assert!(account.has_room());
    }

    #[test]
    fn a_stream_that_is_gone_waits_no_more() {
        let connection = ConnectionCut::with_budget(1000);
        let account = connection.account();
        for stream in 0..1000 {
            account.wait(stream, Waker::noop());
            account.wait(stream, Waker::noop());
            account.forget(stream);
        }
        account.wait(1000, Waker::noop());
        assert_eq!(lock(&account.waiting).len(), 1);
    }

    /// Two requests are needed for it, by `names_per_request`.
    #[test]
    fn as_many_names_as_a_stream_may_ask_for_fit_into_the_default_budget() {
        use crate::engine::downstream::memory::NAME_BYTES;
        use crate::wire::NAME_IN_REQUEST_BYTES;
        let (names, text) = (200_000, 60);
        let taken = names * (text + NAME_BYTES);
        let on_the_way = names / 2 * (text + NAME_IN_REQUEST_BYTES);
        assert!(taken + on_the_way < 64 << 20, "{}", taken + on_the_way);
    }

    #[test]
    fn connections_that_are_gone_are_swept() {
        let connections = Connections::default();
        for _ in 0..1000 {
            connections.add(&ConnectionCut::default());
        }
        assert!(lock(&connections.0).open.len() <= SWEEP_MIN);
        let open = ConnectionCut::default();
        connections.add(&open);
        assert_eq!(connections.all().len(), 1);
    }
}
