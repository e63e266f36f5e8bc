//! All clients of a run, driven by the calling thread.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;

use super::connection::{Connection, Opening};
use super::link::Link;
use super::request::Requests;
use super::{Observer, Tally, headers};
use crate::load::Sums;
use crate::measure::{monotonic_ns, nanos};
use crate::tls::Tls;

/// Shared by all clients: a read seldom needs a second call.
const READ_BUFFER: usize = 256 << 10;

/// The number of full buffers before the next client's turn.
const READS: usize = 64;

/// The maximum number of sockets in one wait.
const EVENTS: usize = 1024;

/// Edge-triggered, so that one registration suffices.
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// The step length of slow readers.
const SLOW_STEP: Duration = Duration::from_millis(10);

/// The receive buffer of sockets of slow or stuck clients: otherwise the kernel would buffer megabytes.
const SMALL_BUFFER: usize = 64 << 10;

/// The delay before a client reconnects, in runs that reconnect.
const RETRY: Duration = Duration::from_secs(1);

/// The reading behaviour of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    #[default]
    Prompt,
    /// Bytes per second.
    Slow(u64),
    Stopped,
}

/// The behaviour of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    pub reading: Reading,
    /// The delay before each ACK.
    pub ack_delay_ns: u64,
    /// Rejects every update, and accepts the first answer.
    pub nack: bool,
    /// Keeps version and nonce of the last responses, for clients that reject or move.
    pub remembers: bool,
}

/// The clients that will misbehave: those of the first connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odd {
    pub connections: usize,
    pub manner: Manner,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    /// Some of the connection's clients wait for their first answer.
    Waiting,
    Served,
    Failed,
}

struct Slot {
    state: State,
    socket: Option<Link>,
    connection: Option<Box<Connection>>,
    /// The scheduled time of the connect.
    since: u64,
    unserved: usize,
    /// The connection was open before.
    again: bool,
    /// The kernel has unread bytes for this client.
    unread: bool,
    /// The peer has closed its side; earlier bytes may still be unread.
    ended: bool,
    /// A timer for reading is set.
    read_timer: bool,
    /// The earliest timer for late requests and load reports; never, if none is set.
    late_timer: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Read,
    Late,
    Retry,
}

pub struct Fleet {
    poll: Poll,
    events: Events,
    target: SocketAddr,
    /// `None`: plaintext.
    tls: Option<Tls>,
    requests: Requests,
    blocks: Vec<Vec<u8>>,
    clients: usize,
    slots: Vec<Slot>,
    timers: BinaryHeap<Reverse<(u64, usize, Timer)>>,
    /// The behaviour of all clients, and of the misbehaving clients after their start.
    manner: Manner,
    odd: Odd,
    misbehaving: bool,
    /// Clients reconnect after the loss of their connection.
    retry: bool,
    waiting: usize,
    connected: usize,
    failures: BTreeMap<String, usize>,
    lost: usize,
    odd_lost: usize,
    drained: usize,
    /// The load reports of closed connections.
    gone: Tally,
    buffer: Box<[u8]>,
    bytes_received: u64,
}

impl Fleet {
    pub fn new(target: SocketAddr, requests: Requests, clients: usize) -> io::Result<Fleet> {
        let variant = requests.profile.variant;
        let streams = requests.profile.streams();
        let block = |path: &str| headers::request_block(&target.to_string(), path);
        let blocks = streams.iter().map(|(service, _)| block(&service.path(variant))).collect();
        let connections = clients.div_ceil(requests.profile.clients_per_connection);
        let closed = || Slot {
            state: State::Closed,
            socket: None,
            connection: None,
            since: 0,
            unserved: 0,
            again: false,
            unread: false,
            ended: false,
            read_timer: false,
            late_timer: u64::MAX,
        };
        Ok(Fleet {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS),
            target,
            tls: None,
            requests,
            blocks,
            clients,
            slots: std::iter::repeat_with(closed).take(connections).collect(),
            timers: BinaryHeap::new(),
            manner: Manner::default(),
            odd: Odd::default(),
            misbehaving: false,
            retry: false,
            waiting: 0,
            connected: 0,
            failures: BTreeMap::new(),
            lost: 0,
            odd_lost: 0,
            drained: 0,
            gone: Tally::default(),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            bytes_received: 0,
        })
    }

    /// Sets the behaviour of all clients, the clients that will misbehave, and whether clients reconnect
    /// after a loss.
    pub fn set_manners(&mut self, manner: Manner, odd: Odd, retry: bool) {
        (self.manner, self.odd, self.retry) = (manner, odd, retry);
    }

    /// Speaks TLS from the next connection on.
    pub fn set_tls(&mut self, tls: Option<Tls>) {
        self.tls = tls;
    }

    /// The number of connections after all are open.
    pub fn connections(&self) -> usize {
        self.slots.len()
    }

    /// The clients of a connection.
    pub fn clients_of(&self, id: usize) -> Range<usize> {
        let each = self.requests.profile.clients_per_connection;
        id * each..((id + 1) * each).min(self.clients)
    }

    /// The number of clients with a complete answer and an open stream.
    pub fn connected(&self) -> usize {
        self.connected
    }

    /// The number of connections that are opened and neither served nor failed.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The reasons of failures, with the number of clients.
    pub fn failures(&self) -> &BTreeMap<String, usize> {
        &self.failures
    }

    /// The number of misbehaving clients that lost their connection; a server may disconnect these.
    pub fn odd_lost(&self) -> usize {
        self.odd_lost
    }

    /// The number of reconnects after an announced close: a GOAWAY without an error.
    pub fn drained(&self) -> usize {
        self.drained
    }

    /// The number of failed clients.
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// Lets no client report any more.
    pub fn stop_reporting(&mut self) {
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.connection.as_mut())
            .for_each(|own| own.stop_reporting());
    }

    /// The load reports of all clients, and the sums and requests in progress that follow from them.
    pub fn reported(&self) -> (Tally, Sums, u64) {
        let mut all = self.gone;
        let open = self.slots.iter().filter_map(|slot| slot.connection.as_ref());
        open.for_each(|connection| all += connection.tally());
        let reports = self.requests.reports();
        (all, all.sums(reports), all.in_progress(reports))
    }

    pub fn bytes_received(&self) -> u64 {
        self.bytes_received
    }

    /// Opens a connection that was due at `since`; the wait for the first answer counts from there.
    pub fn open(&mut self, id: usize, since: u64, observer: &mut impl Observer) {
        let clients = self.clients_of(id);
        clients.clone().for_each(|client| observer.opened(client, since));
        let opening = Opening { clients, blocks: &self.blocks, requests: &self.requests };
        let unserved = opening.clients.len();
        let connection = Connection::open(&opening);
        let slot = &mut self.slots[id];
        slot.connection = Some(Box::new(connection));
        (slot.unread, slot.ended) = (false, false);
        (slot.since, slot.unserved, slot.state) = (since, unserved, State::Waiting);
        self.waiting += 1;
        match self.connect(id) {
            Ok(socket) => self.slots[id].socket = Some(socket),
            Err(error) => self.fail(id, &format!("cannot connect to {}: {error}", self.target), observer),
        }
    }

    /// Closes a connection on request of the scenario.
    pub fn close(&mut self, id: usize) {
        self.end(id, State::Closed);
    }

    /// Makes the chosen clients misbehave from now on.
    pub fn start_misbehaving(&mut self) {
        self.misbehaving = true;
    }

    /// Moves a client's subscription on by this number of names; false without a connection.
    pub fn move_on(
        &mut self,
        client: usize,
        subscription: usize,
        by: usize,
        observer: &mut impl Observer,
    ) -> bool {
        let id = client / self.requests.profile.clients_per_connection;
        let slot = &mut self.slots[id];
        let (State::Served, Some(connection)) = (slot.state, &mut slot.connection) else { return false };
        connection.move_on(client, subscription, by, &self.requests);
        self.serve(id, false, observer);
        true
    }

    /// Fails connections.
    pub fn give_up(
        &mut self,
        reason: &str,
        observer: &mut impl Observer,
        which: impl Fn(Range<usize>) -> bool,
    ) {
        for id in 0..self.slots.len() {
            if matches!(self.slots[id].state, State::Waiting | State::Served) && which(self.clients_of(id)) {
                self.fail(id, reason, observer);
            }
        }
    }

    /// Fails the connections with clients that wait for their first answer.
    pub fn give_up_waiting(&mut self, reason: &str, observer: &mut impl Observer) {
        for id in 0..self.slots.len() {
            if self.slots[id].state == State::Waiting {
                self.fail(id, reason, observer);
            }
        }
    }

    /// Whether a connection is neither closed nor lost.
    pub fn is_open(&self, id: usize) -> bool {
        matches!(self.slots[id].state, State::Waiting | State::Served)
    }

    /// Whether a client and all others on its connection have had their first answer.
    pub fn is_served(&self, client: usize) -> bool {
        self.slots[client / self.requests.profile.clients_per_connection].state == State::Served
    }

    /// Waits for events until the deadline and handles them.
    pub fn turn(&mut self, deadline: u64, observer: &mut impl Observer) -> io::Result<()> {
        let first_timer = self.timers.peek().map_or(u64::MAX, |Reverse((due, ..))| *due);
        let before = monotonic_ns();
        let timeout = Duration::from_nanos(deadline.min(first_timer).saturating_sub(before));
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let now = monotonic_ns();
        self.run_timers(now, observer);
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let Token(id) = event.token();
            // The end of a stream comes with the same edge as the last bytes before, and needs another read.
            self.slots[id].ended |= event.is_read_closed();
            self.serve(id, event.is_readable(), observer);
        }
        self.events = events;
        Ok(())
    }

    fn run_timers(&mut self, now: u64, observer: &mut impl Observer) {
        while let Some(Reverse((due, id, timer))) = self.timers.peek().copied()
            && due <= now
        {
            self.timers.pop();
            match timer {
                Timer::Read => {
                    self.slots[id].read_timer = false;
                    self.serve(id, true, observer);
                }
                Timer::Late => {
                    self.slots[id].late_timer = u64::MAX;
                    if let Some(connection) = &mut self.slots[id].connection {
                        connection.release(now, &self.requests);
                        self.serve(id, false, observer);
                    }
                }
                Timer::Retry if self.slots[id].state == State::Failed => self.open(id, now, observer),
                Timer::Retry => {}
            }
        }
    }

    fn manner_of(&self, id: usize) -> Manner {
        if self.misbehaving && id < self.odd.connections { self.odd.manner } else { self.manner }
    }

    fn connect(&self, id: usize) -> io::Result<Link> {
        let mut socket = TcpStream::connect(self.target)?;
        socket.set_nodelay(true)?;
        if id < self.odd.connections && self.odd.manner.reading != Reading::Prompt {
            SockRef::from(&socket).set_recv_buffer_size(SMALL_BUFFER)?;
        }
        self.poll.registry().register(&mut socket, Token(id), BOTH)?;
        match &self.tls {
            None => Ok(Link::Plain(socket)),
            Some(tls) => Ok(Link::tls(socket, tls.session(id, self.target).map_err(io::Error::other)?)),
        }
    }

    /// Reads the available bytes, with the client's behaviour, and writes queued bytes.
    fn serve(&mut self, id: usize, readable: bool, observer: &mut impl Observer) {
        if let Err(reason) = self.exchange(id, readable, observer) {
            let slot = &self.slots[id];
            let leaving = slot.connection.as_ref().is_some_and(|connection| connection.is_leaving());
            // No immediate reconnect after a close before the first answer: the loop might never end.
            if leaving && slot.state == State::Served {
                self.end(id, State::Closed);
                self.drained += self.clients_of(id).len();
                return self.open(id, monotonic_ns(), observer);
            }
            let reason = format!("connection to {}: {reason}", self.target);
            self.fail(id, &reason, observer);
        }
    }

    fn exchange(&mut self, id: usize, readable: bool, observer: &mut impl Observer) -> Result<(), String> {
        let manner = self.manner_of(id);
        let slot = &mut self.slots[id];
        let (Some(socket), Some(connection)) = (&mut slot.socket, &mut slot.connection) else {
            return Ok(());
        };
        if let Ok(Some(error)) = socket.take_error() {
            return Err(error.to_string());
        }
        slot.unread |= readable;
        // Between two steps a slow client reads nothing.
        let resting = slot.read_timer && matches!(manner.reading, Reading::Slow(_));
        let (limit, reads) = match manner.reading {
            Reading::Prompt => (READ_BUFFER, READS),
            Reading::Slow(rate) => ((rate / 100).clamp(1, READ_BUFFER as u64) as usize, 1),
            Reading::Stopped => (0, 0),
        };
        if slot.unread && limit > 0 && !resting {
            let buffer = &mut self.buffer[..limit];
            let mut take = |bytes: &[u8]| connection.receive(bytes, &self.requests, manner, observer);
            let (bytes, drained) =
                read(socket, buffer, reads, |bytes| take(bytes).map_err(|error| error.to_string()))?;
            self.bytes_received += bytes;
            slot.unread = !drained || slot.ended;
        }
        write(socket, connection).map_err(|error| error.to_string())?;
        if slot.unread && manner.reading != Reading::Stopped && !slot.read_timer {
            slot.read_timer = true;
            let pause = if limit == READ_BUFFER { Duration::ZERO } else { SLOW_STEP };
            self.timers.push(Reverse((monotonic_ns() + nanos(pause), id, Timer::Read)));
        }
        if let Some(due) = connection.due().filter(|due| *due < slot.late_timer) {
            slot.late_timer = due;
            self.timers.push(Reverse((due, id, Timer::Late)));
        }
        self.note_served(id, observer);
        Ok(())
    }

    fn note_served(&mut self, id: usize, observer: &mut impl Observer) {
        let slot = &mut self.slots[id];
        let Some(connection) = &mut slot.connection else { return };
        if slot.state != State::Waiting {
            return;
        }
        for client in connection.take_served() {
            observer.served(client, monotonic_ns().saturating_sub(slot.since), slot.again);
            slot.unserved -= 1;
            self.connected += 1;
        }
        if slot.unserved == 0 {
            slot.state = State::Served;
            slot.again = true;
            self.waiting -= 1;
        }
    }

    /// Drops a connection's socket and state.
    fn end(&mut self, id: usize, state: State) {
        let clients = self.clients_of(id).len();
        let slot = &mut self.slots[id];
        match slot.state {
            State::Waiting => {
                self.waiting -= 1;
                self.connected -= clients - slot.unserved;
            }
            State::Served => self.connected -= clients,
            State::Closed | State::Failed => {}
        }
        self.gone += slot.connection.as_ref().map_or_else(Tally::default, |gone| gone.tally().left());
        (slot.socket, slot.connection, slot.unread, slot.state) = (None, None, false, state);
    }

    fn fail(&mut self, id: usize, reason: &str, observer: &mut impl Observer) {
        if self.slots[id].state == State::Failed {
            return;
        }
        self.end(id, State::Failed);
        if self.retry {
            self.timers.push(Reverse((monotonic_ns() + nanos(RETRY), id, Timer::Retry)));
        }
        let clients = self.clients_of(id);
        if self.misbehaving && id < self.odd.connections {
            self.odd_lost += clients.len();
            return;
        }
        self.lost += clients.len();
        *self.failures.entry(reason.to_owned()).or_default() += clients.len();
        clients.for_each(|client| observer.lost(client));
    }
}

/// Reads until the socket is empty. Returns the number of bytes, and whether the socket is empty.
fn read(
    socket: &mut Link,
    buffer: &mut [u8],
    reads: usize,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(u64, bool), String> {
    let mut total = 0;
    for _ in 0..reads {
        match socket.read(buffer) {
            Ok(0) => return Err("closed by the server".to_owned()),
            Ok(length) => {
                total += length as u64;
                take(&buffer[..length])?;
                if length < buffer.len() && socket.short_read_empties() {
                    return Ok((total, true));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((total, true)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok((total, false))
}

fn write(socket: &mut Link, connection: &mut Connection) -> io::Result<()> {
    while !connection.out().is_empty() {
        match socket.write(connection.out()) {
            Ok(length) => connection.written(length),
            // Until the connection is established a write fails as a blocked write does.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    socket.flush()
}

#[cfg(test)]
mod tests;
