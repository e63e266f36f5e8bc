//! A downstream connection, as seen by its streams and by the memory budget.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapWeak;
use parking_lot::Mutex;

use crate::driver::ground::account::Account;
use crate::driver::ground::signal::{SoleSignal, SolelyRaised};
use sluice_xds::{Node, Status};

/// No sweep happens with fewer entries.
const SWEEP_MIN: usize = 64;

/// Cuts the connection of a stream. Only this frees the bytes of a stream whose client does not read: the
/// bytes stay in the HTTP/2 queue of the connection until the connection ends.
#[derive(Clone, Debug, Default)]
pub struct ConnectionCut(Arc<ConnectionState>);

/// The driver's part of a connection. Each update reads the account, which has a line of memory to itself.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ConnectionState {
    cut: SoleSignal,
    /// The node of the latest stream of discovery.
    node: ArcSwapWeak<Node>,
    is_left: AtomicBool,
    account: Account,
}

impl ConnectionCut {
    /// A connection with a budget of this many bytes.
    pub fn with_budget(bytes: u64) -> ConnectionCut {
        ConnectionCut(Arc::new(ConnectionState {
            account: Account::new(bytes),
            ..ConnectionState::default()
        }))
    }

    pub fn account(&self) -> &Account {
        &self.0.account
    }

    pub(crate) fn downgrade(&self) -> Weak<ConnectionState> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn upgrade(state: &Weak<ConnectionState>) -> Option<ConnectionCut> {
        state.upgrade().map(ConnectionCut)
    }

    pub fn cut(&self) {
        self.0.cut.raise();
    }

    /// Notes that the relay closes the connection: the end of its streams says nothing about their clients.
    pub fn leave(&self) {
        self.0.is_left.store(true, Ordering::Relaxed);
    }

    /// Whether the relay closes or cuts the connection.
    pub(crate) fn is_left(&self) -> bool {
        self.0.is_left.load(Ordering::Relaxed) || self.0.cut.is_raised()
    }

    /// Remembers the node of a stream of discovery, while the stream keeps it.
    pub(crate) fn remember(&self, node: &Arc<Node>) {
        self.0.node.store(Arc::downgrade(node));
    }

    /// The node of a stream of discovery: a stream of load reports has the same one, and a node with its
    /// metadata may have some KB.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.0.node.load().upgrade()
    }

    /// A number that no other open connection has.
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Resolves when the connection is to be cut, also if the request came earlier; see
    /// [`SoleSignal::raised`].
    pub fn requested(&self) -> SolelyRaised<'_> {
        self.0.cut.raised()
    }
}

/// Memory charged to a connection until the charge is dropped.
#[derive(Debug)]
pub struct Charge {
    connection: ConnectionCut,
    bytes: u64,
}

impl Charge {
    pub fn new(connection: &ConnectionCut) -> Charge {
        Charge { connection: connection.clone(), bytes: 0 }
    }

    /// Changes the charge to this many bytes.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the connection's budget does not allow the charge, which then stays as before.
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

/// The charge for a polled document until the client has read the document.
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

/// All connections, held weakly, for the search for the largest.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<ConnectionTable>);

#[derive(Debug, Default)]
struct ConnectionTable {
    open: Vec<Weak<ConnectionState>>,
    /// At this number of entries, the entries of closed connections are swept.
    sweep_at: usize,
}

impl Connections {
    pub fn add(&self, connection: &ConnectionCut) {
        let mut table = self.0.lock();
        if table.open.len() >= table.sweep_at.max(SWEEP_MIN) {
            table.open.retain(|state| state.strong_count() > 0);
            table.sweep_at = 2 * table.open.len();
        }
        table.open.push(connection.downgrade());
    }

    pub fn all(&self) -> Vec<ConnectionCut> {
        self.0.lock().open.iter().filter_map(ConnectionCut::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::task::Waker;

    use super::*;
    use sluice_xds::Code;

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
    fn a_client_with_the_budget_unread_is_sent_no_more_until_it_reads() {
        let connection = ConnectionCut::with_budget(1000);
        let account = connection.account();
        // One message may have any size.
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

    /// With the two counters of its allocation, a size class of the allocator, which begins with a line.
    #[test]
    fn an_idle_connection_costs_little_and_its_account_is_in_one_line() {
        let size = size_of::<ConnectionState>();
        assert!(size + 16 <= 128, "{size}");
        let (begin, size) = (16 + offset_of!(ConnectionState, account), size_of::<Account>());
        assert!(begin % 64 == 0 && size <= 64, "from {begin}, {size} bytes");
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
        assert_eq!(account.waiting_len(), 1);
    }

    /// Two requests are needed for so many names, by `names_per_request`.
    #[test]
    fn as_many_names_as_a_stream_may_ask_for_fit_into_the_default_budget() {
        use sluice_engine::downstream::SUBSCRIBED_NAME_BYTES;
        use sluice_wire::NAME_IN_REQUEST_BYTES;
        use sluice_xds::ResourceName;
        let (names, text) = (200_000, 60);
        let taken = names * (ResourceName::new(&"x".repeat(text)).allocated() + SUBSCRIBED_NAME_BYTES);
        let on_the_way = names / 2 * (text + NAME_IN_REQUEST_BYTES);
        assert!(taken + on_the_way < 128 << 20, "{}", taken + on_the_way);
    }

    #[test]
    fn connections_that_are_gone_are_swept() {
        let connections = Connections::default();
        for _ in 0..1000 {
            connections.add(&ConnectionCut::default());
        }
        assert!(connections.0.lock().open.len() <= SWEEP_MIN);
        let open = ConnectionCut::default();
        connections.add(&open);
        assert_eq!(connections.all().len(), 1);
    }
}
