//! The shares of streams and connections in the entries of a class (LRS-18).
//!
//! Each entry has one owner. Of all streams with the entry in their reports, the owner is one whose
//! connection owns little, so an entry of many clients burdens none of them, and only a stream with names of
//! its own has a large share.

use std::collections::BTreeMap;

/// The owner of entries, by number.
pub type Owner = u32;

/// The owner of entries whose stream is gone.
pub const NOBODY: Owner = 0;

/// Entries: those that stay, and names that leave with the next report.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    lasting: u32,
    passing: u32,
}

impl Held {
    fn all(self) -> usize {
        self.lasting as usize + self.passing as usize
    }

    fn add(&mut self, more: Held) {
        self.lasting += more.lasting;
        self.passing += more.passing;
    }

    fn take(&mut self, less: Held) {
        self.lasting = self.lasting.saturating_sub(less.lasting);
        self.passing = self.passing.saturating_sub(less.passing);
    }
}

/// Whether an entry stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    Lasting,
    Passing,
}

fn held(cost: usize, stay: Stay) -> Held {
    let cost = u32::try_from(cost).unwrap_or(u32::MAX);
    match stay {
        Stay::Lasting => Held { lasting: cost, passing: 0 },
        Stay::Passing => Held { lasting: 0, passing: cost },
    }
}

/// A stream, present or gone.
#[derive(Clone, Copy, Debug, Default)]
struct StreamShare {
    held: Held,
    /// The number of the connection; [`GONE`] after the end of the stream.
    connection: u32,
}

/// The streams of a connection. The first one stands for all streams that are gone.
#[derive(Clone, Copy, Debug, Default)]
struct ConnectionShare {
    held: Held,
    streams: u32,
    /// The caller's number.
    name: Option<u64>,
}

/// The connection of all streams that are gone.
const GONE: u32 = 0;

/// The shares of a class.
#[derive(Clone, Debug)]
pub struct Shares {
    streams: Vec<StreamShare>,
    connections: Vec<ConnectionShare>,
    free_streams: Vec<Owner>,
    free_connections: Vec<u32>,
    by_name: BTreeMap<u64, u32>,
}

impl Shares {
    pub fn new() -> Shares {
        Shares {
            streams: vec![StreamShare::default()],
            connections: vec![ConnectionShare::default()],
            free_streams: Vec::new(),
            free_connections: Vec::new(),
            by_name: BTreeMap::new(),
        }
    }

    /// A stream arrives, on a connection without other streams.
    pub fn arrive(&mut self) -> Owner {
        let connection = ConnectionShare { streams: 1, ..ConnectionShare::default() };
        let connection = put(&mut self.connections, &mut self.free_connections, connection);
        let stream = StreamShare { connection, ..StreamShare::default() };
        put(&mut self.streams, &mut self.free_streams, stream)
    }

    /// The connection of a stream, by the caller's number.
    pub fn join(&mut self, owner: Owner, name: u64) {
        let Some(StreamShare { held, connection: before }) = self.streams.get(owner as usize).copied() else {
            return;
        };
        let connection = *self.by_name.entry(name).or_insert(before);
        self.connections[connection as usize].name = Some(name);
        if connection != before {
            self.connections[connection as usize].streams += 1;
            self.connections[connection as usize].held.add(held);
            self.streams[owner as usize].connection = connection;
            self.part(before, held);
        }
    }

    /// A stream ended. The entries belong to nobody, until another stream has them in a report.
    pub fn leave(&mut self, owner: Owner) {
        let Some(stream) = self.streams.get_mut(owner as usize).filter(|_| owner != NOBODY) else { return };
        let connection = std::mem::replace(&mut stream.connection, GONE);
        let held = stream.held;
        self.connections[GONE as usize].held.add(held);
        self.part(connection, held);
        self.free_if_unused(owner);
    }

    /// A stream with these entries leaves a connection.
    fn part(&mut self, number: u32, held: Held) {
        let connection = &mut self.connections[number as usize];
        connection.held.take(held);
        connection.streams = connection.streams.saturating_sub(1);
        if connection.streams == 0 && number != GONE {
            if let Some(name) = connection.name.take() {
                self.by_name.remove(&name);
            }
            self.free_connections.push(number);
        }
    }

    fn free_if_unused(&mut self, owner: Owner) {
        let stream = &self.streams[owner as usize];
        if owner != NOBODY && stream.connection == GONE && stream.held.all() == 0 {
            self.free_streams.push(owner);
        }
    }

    /// A stream owns an entry from now on.
    pub fn take(&mut self, owner: Owner, cost: usize, stay: Stay) {
        let (stream, more) = (&mut self.streams[owner as usize], held(cost, stay));
        stream.held.add(more);
        self.connections[stream.connection as usize].held.add(more);
    }

    /// An entry is gone.
    pub fn give(&mut self, owner: Owner, cost: usize, stay: Stay) {
        let (stream, less) = (&mut self.streams[owner as usize], held(cost, stay));
        stream.held.take(less);
        self.connections[stream.connection as usize].held.take(less);
        self.free_if_unused(owner);
    }

    /// A stream has an entry in its report. The stream becomes the owner if its connection owns less, or if
    /// the owner is gone. `most`: the bound of a stream.
    pub fn adopt(&mut self, entry: &mut Owner, owner: Owner, cost: usize, most: usize) {
        if *entry == owner || owner == NOBODY {
            return;
        }
        let (predecessor, stream) = (self.streams[*entry as usize].connection, self.streams[owner as usize]);
        let has_less = self.of(stream.connection) + cost < self.of(predecessor);
        if (has_less || predecessor == GONE) && stream.held.all() + cost <= most {
            let before = std::mem::replace(entry, owner);
            self.take(owner, cost, Stay::Lasting);
            self.give(before, cost, Stay::Lasting);
        }
    }

    fn of(&self, connection: u32) -> usize {
        self.connections[connection as usize].held.all()
    }

    /// The entries of a stream.
    pub fn held(&self, owner: Owner) -> usize {
        self.streams[owner as usize].held.all()
    }

    /// The entries of a stream's connection, or of all streams that are gone.
    pub fn of_connection(&self, owner: Owner) -> usize {
        self.of(self.streams[owner as usize].connection)
    }

    pub fn is_gone(&self, owner: Owner) -> bool {
        self.streams[owner as usize].connection == GONE
    }

    /// All names of drop categories and metrics have left.
    pub fn emptied(&mut self) {
        self.connections.iter_mut().for_each(|connection| connection.held.passing = 0);
        for owner in 0..self.streams.len() {
            let had = std::mem::take(&mut self.streams[owner].held.passing);
            if had > 0 {
                self.free_if_unused(owner as Owner);
            }
        }
    }

    /// The greatest share of a connection with which all fit into `room`.
    pub fn level(&self, room: usize) -> usize {
        level(self.connections.iter().map(|connection| connection.held.all()).collect(), room).max(1)
    }
}

/// Puts a value in a free place; gives the place.
fn put<T>(all: &mut Vec<T>, free: &mut Vec<u32>, value: T) -> u32 {
    if let Some(place) = free.pop() {
        all[place as usize] = value;
        return place;
    }
    all.push(value);
    all.len() as u32 - 1
}

/// The greatest number such that all shares, cut at this number, fit into the room.
pub fn level(mut shares: Vec<usize>, room: usize) -> usize {
    shares.sort_unstable();
    let (mut rest, mut left) = (room, shares.len());
    for share in shares {
        if share.saturating_mul(left) > rest {
            return rest / left;
        }
        (rest, left) = (rest - share, left - 1);
    }
    usize::MAX
}
