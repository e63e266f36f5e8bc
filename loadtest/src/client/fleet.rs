//! All clients of a run, driven by the calling thread.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::connection::Connection;
use super::headers;
use super::request::Requests;
use crate::measure::{ThreadTime, monotonic_ns, nanos};

/// Shared by all clients: a read seldom needs a second call.
const READ_BUFFER: usize = 256 << 10;

/// After so many full buffers it is another client's turn.
const READS: usize = 64;

/// How many sockets one wait may report.
const EVENTS: usize = 1024;

/// Edge-triggered, so that it is registered once.
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// Whether a socket has nothing more to read.
enum Drained {
    Yes,
    No,
}

struct Client {
    /// `None` once the client has failed.
    socket: Option<TcpStream>,
    connection: Connection,
    opened_at: u64,
    served: bool,
}

/// One change and its way to every client.
pub struct Round {
    /// From the change at the control plane to the client's having the whole message, of each client.
    pub latencies_ns: Vec<u64>,
    /// From just before the change to the last client.
    pub wall_ns: u64,
    /// How much of it this thread computed, and how much it waited for a CPU to do so.
    pub thread: ThreadTime,
    since: u64,
    missing: usize,
}

pub struct Fleet {
    poll: Poll,
    events: Events,
    target: SocketAddr,
    requests: Requests,
    block: Vec<u8>,
    /// How many clusters make a complete answer.
    clusters: u64,
    clients: Vec<Client>,
    /// Clients that are opened and neither served nor failed.
    pending: usize,
    failures: BTreeMap<String, usize>,
    round: Option<Round>,
    buffer: Box<[u8]>,
    bytes_received: u64,
    waits_ns: Vec<u64>,
}

impl Fleet {
    pub fn new(target: SocketAddr, requests: Requests, clusters: u64) -> io::Result<Fleet> {
        let block = headers::request_block(&target.to_string(), requests.variant().path());
        Ok(Fleet {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS),
            target,
            requests,
            block,
            clusters,
            clients: Vec::new(),
            pending: 0,
            failures: BTreeMap::new(),
            round: None,
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            bytes_received: 0,
            waits_ns: Vec::new(),
        })
    }

    /// Opens clients until there are `count`, at most `in_flight` of them waiting for their first complete answer, and
    /// waits for the answers. Clients that wait while for `patience` no other one gets further are given up.
    pub fn grow_to(&mut self, count: usize, in_flight: usize, patience: Duration) -> io::Result<()> {
        let mut decided = 0;
        let mut deadline = monotonic_ns() + nanos(patience);
        loop {
            while self.clients.len() < count && self.pending < in_flight {
                self.open();
            }
            if self.pending == 0 && self.clients.len() >= count {
                return Ok(());
            }
            self.turn(deadline)?;
            if self.clients.len() - self.pending != decided {
                decided = self.clients.len() - self.pending;
                deadline = monotonic_ns() + nanos(patience);
            } else if monotonic_ns() >= deadline {
                let reason = format!("no complete first answer within {} s", patience.as_secs());
                self.give_up(&reason, |client| !client.served);
            }
        }
    }

    /// Makes a change and waits until every client has it, `patience` at most.
    pub fn round(&mut self, change: impl FnOnce() -> Result<()>, patience: Duration) -> Result<Round> {
        let since = monotonic_ns();
        let before = ThreadTime::now();
        let missing = self.live();
        let latencies_ns = Vec::with_capacity(missing);
        self.round = Some(Round { latencies_ns, wall_ns: 0, thread: ThreadTime::default(), since, missing });
        change()?;
        let deadline = since + nanos(patience);
        while self.round.as_ref().is_some_and(|round| round.missing > 0) {
            self.turn(deadline)?;
            if monotonic_ns() >= deadline {
                let reason = format!("no update within {} s", patience.as_secs());
                self.give_up(&reason, |client| client.connection.progress().stamp < since);
                break;
            }
        }
        let mut round = self.round.take().ok_or_else(|| anyhow::anyhow!("the round was ended twice"))?;
        round.wall_ns = monotonic_ns() - since;
        round.thread = ThreadTime::now().since(before);
        Ok(round)
    }

    /// Lets time pass; clients answer PINGs and ACK what comes.
    pub fn idle(&mut self, time: Duration) -> io::Result<()> {
        let deadline = monotonic_ns() + nanos(time);
        while monotonic_ns() < deadline {
            self.turn(deadline)?;
        }
        Ok(())
    }

    /// Clients that hold a complete answer and an open stream.
    pub fn live(&self) -> usize {
        self.clients.iter().filter(|client| client.served && client.socket.is_some()).count()
    }

    /// Why clients failed, and how many.
    pub fn failures(&self) -> &BTreeMap<String, usize> {
        &self.failures
    }

    pub fn bytes_received(&self) -> u64 {
        self.bytes_received
    }

    /// From a client's connect to its complete answer, of all that got one.
    pub fn waits_ns(&self) -> &[u64] {
        &self.waits_ns
    }

    fn open(&mut self) {
        let id = self.clients.len();
        let opened_at = monotonic_ns();
        let connection = Connection::open(id, &self.requests, &self.block, self.clusters);
        self.clients.push(Client { socket: None, connection, opened_at, served: false });
        self.pending += 1;
        match self.connect(id) {
            Ok(socket) => self.clients[id].socket = Some(socket),
            Err(error) => self.fail(id, &format!("cannot connect to {}: {error}", self.target)),
        }
    }

    fn connect(&self, id: usize) -> io::Result<TcpStream> {
        let mut socket = TcpStream::connect(self.target)?;
        socket.set_nodelay(true)?;
        self.poll.registry().register(&mut socket, Token(id), BOTH)?;
        Ok(socket)
    }

    /// Waits for events until the deadline and handles them.
    fn turn(&mut self, deadline: u64) -> io::Result<()> {
        let timeout = Duration::from_nanos(deadline.saturating_sub(monotonic_ns()));
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let Token(id) = event.token();
            if let Err(reason) = self.exchange(id, event.is_readable()) {
                self.fail(id, &reason);
            }
        }
        self.events = events;
        Ok(())
    }

    /// Reads what is there and writes what is due.
    fn exchange(&mut self, id: usize, readable: bool) -> Result<(), String> {
        let client = &mut self.clients[id];
        let Some(socket) = &mut client.socket else { return Ok(()) };
        let before = client.connection.progress();
        if let Ok(Some(error)) = socket.take_error() {
            return Err(format!("connection to {}: {error}", self.target));
        }
        if readable {
            let received = read(socket, &mut client.connection, &self.requests, &mut self.buffer);
            let (bytes, drained) =
                received.map_err(|reason| format!("connection to {}: {reason}", self.target))?;
            self.bytes_received += bytes;
            if matches!(drained, Drained::No) {
                // Registering anew reports once more what an edge has reported already.
                let registry = self.poll.registry();
                registry.reregister(socket, Token(id), BOTH).map_err(|error| error.to_string())?;
            }
        }
        write(socket, &mut client.connection)
            .map_err(|error| format!("connection to {}: {error}", self.target))?;
        let after = client.connection.progress();
        if let Some(at) = after.served_at.filter(|_| !client.served) {
            client.served = true;
            self.pending -= 1;
            self.waits_ns.push(at - client.opened_at);
        }
        if let Some(round) = &mut self.round
            && before.stamp < round.since
            && after.stamp >= round.since
        {
            round.missing -= 1;
            round.latencies_ns.push(after.stamped_at.saturating_sub(after.stamp));
        }
        Ok(())
    }

    fn give_up(&mut self, reason: &str, which: impl Fn(&Client) -> bool) {
        for id in 0..self.clients.len() {
            if which(&self.clients[id]) {
                self.fail(id, reason);
            }
        }
    }

    /// Ends a client. A client fails once, whatever comes after.
    fn fail(&mut self, id: usize, reason: &str) {
        let client = &mut self.clients[id];
        let unserved = !client.served;
        if client.socket.take().is_none() && !unserved {
            return;
        }
        if unserved {
            client.served = true;
            self.pending -= 1;
        } else if let Some(round) = &mut self.round
            && client.connection.progress().stamp < round.since
        {
            round.missing -= 1;
        }
        *self.failures.entry(reason.to_owned()).or_default() += 1;
    }
}

/// Reads until the socket is empty: a read that does not fill the buffer says so too (epoll(7), question 9). Gives the
/// number of bytes.
fn read(
    socket: &mut TcpStream,
    connection: &mut Connection,
    requests: &Requests,
    buffer: &mut [u8],
) -> Result<(u64, Drained), String> {
    let mut total = 0;
    for _ in 0..READS {
        match socket.read(buffer) {
            Ok(0) => return Err("closed by the server".to_owned()),
            Ok(length) => {
                total += length as u64;
                connection.receive(&buffer[..length], requests).map_err(|error| error.to_string())?;
                if length < buffer.len() {
                    return Ok((total, Drained::Yes));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((total, Drained::Yes)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok((total, Drained::No))
}

fn write(socket: &mut TcpStream, connection: &mut Connection) -> io::Result<()> {
    while !connection.out().is_empty() {
        match socket.write(connection.out()) {
            Ok(length) => connection.written(length),
            // Before the connection stands a write is refused as one that would block is.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
