//! Room for new clients while memory is short (FP7, ADR 70).
//!
//! Between the marks of the budget, new connections are refused and existing clients are served on. Clients
//! with much unused memory could keep all others out for ever. So after a while of refusals the relay drops
//! the encodings, and then the idle clients with the most memory for the longest time leave, a few at a time.
//! If idle clients hold less than is missing, nobody leaves, and the log says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::driver::api::downstream::Peer;
use crate::driver::ground::connection::ConnectionCut;
use crate::driver::ground::context::DriverContext;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::state::Tables;
use crate::telemetry::Limit;
use crate::telemetry::events::tell;
use sluice_xds::{Code, Status};

/// Newcomers are refused for so long before others make room: memory may be free again by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// From one step to the next. The memory of a client that left becomes free a little later.
const PACE: Duration = Duration::from_secs(10);

/// Clients come again with a back-off. After this time without a newcomer nobody wants in.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// A client with a message taken within this time is in use.
const IDLE_AFTER: Duration = Duration::from_secs(5);

/// A smaller holder makes no room.
const LARGE_BYTES: u64 = 1 << 20;

/// The maximum number of leaving connections in a step.
const LEAVE_MAX: usize = 8;

/// From the status of the streams to the end of the connection.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// An operator reads one line a minute.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The next action for newcomers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewcomerStep {
    Wait,
    DropEncodings,
    MakeRoom,
}

/// The newcomers refused lately, and the clients leaving for newcomers.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    /// When the first was refused, and the latest.
    refused: Option<(Instant, Instant)>,
    /// The time of the next step, and whether the encodings are dropped.
    next: Option<Instant>,
    has_dropped: bool,
    leaving: Vec<(Instant, ConnectionCut)>,
    warned: Option<Instant>,
}

/// A holder of memory.
#[derive(Clone, Debug)]
struct MemoryHolder {
    connection: ConnectionCut,
    peer: Arc<Peer>,
    bytes: u64,
    /// How long the client has taken nothing.
    unused: Duration,
}

impl Newcomers {
    /// Memory is between the marks, and lacks `missing` bytes for newcomers. `refused`: newcomers since the
    /// last look.
    pub(super) fn look(
        &mut self,
        shared: &DriverContext,
        tables: &Tables,
        refused: u64,
        missing: u64,
        now: Instant,
    ) {
        match self.step(refused, now) {
            NewcomerStep::Wait => {}
            NewcomerStep::DropEncodings => shared.content.encoder.clear(),
            NewcomerStep::MakeRoom => {
                let leavers = leavers(holders(shared, tables), missing);
                if leavers.is_empty() {
                    self.warn_in_vain(missing, now);
                } else {
                    self.make_room(&leavers, shared, tables, now);
                }
            }
        }
    }

    /// Memory suffices, or is so short that others act.
    pub(super) fn forget(&mut self) {
        (self.refused, self.next, self.has_dropped) = Default::default();
    }

    /// Ends the connections after their streams.
    pub(super) fn cut_due(&mut self, now: Instant) {
        self.leaving.retain(|(at, connection)| {
            let is_due = now >= *at;
            if is_due {
                connection.cut();
            }
            !is_due
        });
    }

    fn step(&mut self, refused: u64, now: Instant) -> NewcomerStep {
        if self.refused.is_some_and(|(_, last)| now >= last + FORGOTTEN_AFTER) {
            self.forget();
        }
        if refused > 0 {
            self.refused = Some((self.refused.map_or(now, |(first, _)| first), now));
        }
        let Some((first, _)) = self.refused else { return NewcomerStep::Wait };
        if now < self.next.unwrap_or(first + PATIENCE) {
            return NewcomerStep::Wait;
        }
        if !std::mem::replace(&mut self.has_dropped, true) {
            self.next = Some(now + PATIENCE);
            return NewcomerStep::DropEncodings;
        }
        self.next = Some(now + PACE);
        NewcomerStep::MakeRoom
    }

    fn make_room(&mut self, leavers: &[MemoryHolder], shared: &DriverContext, tables: &Tables, now: Instant) {
        let mut next = None;
        while let Some(stream) = tables.streams.next(next) {
            next = Some(stream.number());
            let number = stream.context.peer.connection.number();
            if let Some(leaver) = leavers.iter().find(|leaver| leaver.connection.number() == number) {
                stream.end(leaver.status());
            }
        }
        for leaver in leavers {
            shared.metrics.limit_hit(Limit::MemoryBytes);
            leaver.connection.leave();
            self.leaving.push((now + TOLD_WITHIN, leaver.connection.clone()));
        }
        let Some(first) = leavers.first() else { return };
        let peer = first.peer.address.map_or_else(|| "unix".to_owned(), |address| address.to_string());
        let limit = Limit::MemoryBytes.name();
        tell!(shared.metrics.events, warn(Limit, "idle clients leave, because new ones are refused for lack of memory")
            .limit(limit).detail(format_args!("{peer} held {} bytes", first.bytes));
            { limit, connections = leavers.len(), listener = %first.peer.listener, peer, bytes = first.bytes, idle = ?first.unused }
            + "; the first holds the most for the longest time");
    }

    fn warn_in_vain(&mut self, missing: u64, now: Instant) {
        if self.warned.is_some_and(|warned| now < warned + WARN_INTERVAL) {
            return;
        }
        self.warned = Some(now);
        warn!(
            limit = Limit::MemoryBytes.name(),
            missing,
            "new connections are refused for lack of memory, and no idle client holds enough of it: add a replica, or raise the limit"
        );
    }
}

impl MemoryHolder {
    fn status(&self) -> Status {
        let text = format!(
            "this connection holds {} bytes of the relay's memory and takes nothing, and new clients are refused for lack of \
                memory; the limit is limits.memory_bytes",
            self.bytes
        );
        // A returning client is served once there is room.
        Status::new(Code::Unavailable, text)
    }

    fn weight(&self) -> u128 {
        u128::from(self.bytes) * self.unused.as_millis()
    }
}

/// The connections with streams, and their memory.
fn holders(shared: &DriverContext, tables: &Tables) -> Vec<MemoryHolder> {
    let mut users: BTreeMap<usize, (Arc<Peer>, Duration)> = BTreeMap::new();
    let mut next = None;
    while let Some(stream) = tables.streams.next(next) {
        next = Some(stream.number());
        let unused = stream.unused_for();
        let entry = users.entry(stream.context.peer.connection.number());
        let (_, least) = entry.or_insert_with(|| (stream.context.peer.clone(), unused));
        *least = unused.min(*least);
    }
    let mut holders = Vec::new();
    for connection in shared.clients.connections.all().into_iter().filter(|connection| !connection.is_left())
    {
        let Some((peer, unused)) = users.get(&connection.number()).cloned() else { continue };
        let bytes = connection.account().private_bytes() + connection.account().unread_bytes();
        holders.push(MemoryHolder { connection, peer, bytes, unused });
    }
    holders
}

/// The idle holders to leave, the heaviest first: as many as hold the missing bytes. None if all idle holders
/// together hold less, since nobody would be let in for their end.
fn leavers(mut holders: Vec<MemoryHolder>, missing: u64) -> Vec<MemoryHolder> {
    holders.retain(|holder| holder.bytes >= LARGE_BYTES && holder.unused >= IDLE_AFTER);
    if holders.iter().map(|holder| holder.bytes).sum::<u64>() < missing {
        return Vec::new();
    }
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.weight()));
    let mut freed = 0;
    let needed = holders.into_iter().take(LEAVE_MAX).take_while(|holder| {
        let is_needed = freed < missing;
        freed += holder.bytes;
        is_needed
    });
    needed.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::driver::api::downstream::{Charge, OpenStreams, RelayStream};
    use crate::driver::stream::state::tests::{peer, relay};
    use sluice_xds::{StreamKind, Variant};

    const MIB: u64 = 1 << 20;

    fn holder(mib: u64, idle: u64) -> MemoryHolder {
        let peer = peer([10, 0, 0, 1]);
        let (connection, unused) = (peer.connection.clone(), Duration::from_secs(idle));
        MemoryHolder { connection, peer: Arc::new(peer), bytes: mib * MIB, unused }
    }

    fn chosen(holders: &[(u64, u64)], missing: u64) -> Vec<u64> {
        let holders = holders.iter().map(|(mib, idle)| holder(*mib, *idle)).collect();
        leavers(holders, missing * MIB).iter().map(|holder| holder.bytes / MIB).collect()
    }

    #[test]
    fn fp7_the_largest_relative_to_their_use_leave_and_no_more_than_needed() {
        // A large client in use, small clients, and idle clients.
        let all = [(60, 1), (0, 600), (8, 100), (30, 10), (4, 150), (2, 100)];
        assert_eq!(chosen(&all, 1), [8]);
        assert_eq!(chosen(&all, 9), [8, 4]);
        assert_eq!(chosen(&all, 13), [8, 4, 30]);
        assert_eq!(chosen(&all, 44), [8, 4, 30, 2]);
        assert!(chosen(&all, 45).is_empty(), "their end would let nobody in");
        let crowd = [(2, 60); 40];
        assert_eq!(chosen(&crowd, 70).len(), LEAVE_MAX);
    }

    #[test]
    fn fp7_room_is_made_only_while_newcomers_are_refused() {
        let (mut newcomers, begin) = (Newcomers::default(), Instant::now());
        let mut step = |refused, seconds| newcomers.step(refused, begin + Duration::from_secs(seconds));
        assert_eq!(step(0, 0), NewcomerStep::Wait);
        assert_eq!(step(0, 1000), NewcomerStep::Wait);
        assert_eq!(step(3, 1001), NewcomerStep::Wait);
        assert_eq!(step(0, 1003), NewcomerStep::DropEncodings);
        assert_eq!(step(1, 1004), NewcomerStep::Wait);
        assert_eq!(step(0, 1005), NewcomerStep::MakeRoom);
        assert_eq!(step(1, 1014), NewcomerStep::Wait);
        assert_eq!(step(0, 1015), NewcomerStep::MakeRoom);
        assert_eq!(step(0, 1134), NewcomerStep::Wait, "nobody came for two minutes");
        assert_eq!(step(1, 1135), NewcomerStep::Wait);
        assert_eq!(step(0, 1137), NewcomerStep::DropEncodings);
    }

    /// The streams end with a status for a retry, and the connection ends once the client could read the
    /// status.
    #[tokio::test(start_paused = true)]
    async fn fp7_idle_holders_are_told_and_cut_for_newcomers() {
        let relay = relay();
        let (idle, busy) = (peer([10, 0, 0, 1]), peer([10, 0, 0, 2]));
        let mut charges = Vec::new();
        let mut streams = Vec::new();
        for peer in [&idle, &busy] {
            relay.connected(&peer.connection);
            let mut charge = Charge::new(&peer.connection);
            charge.set(10 << 20).unwrap();
            charges.push(charge);
            streams.push(relay.open(StreamKind::from(Variant::Delta), peer.clone()).unwrap());
        }
        let mut newcomers = Newcomers::default();
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(1)).await;
            // The busy client takes a message each second.
            drop(streams[1].state().unread.hand_out(10));
            newcomers.cut_due(Instant::now());
            newcomers.look(&relay.shared, &relay.tables, 1, 5 * MIB, Instant::now());
        }
        let ended = std::future::poll_fn(|context| streams[0].poll_message(context)).await;
        assert_eq!(ended.unwrap().unwrap_err().code, Code::Unavailable);
        assert!(idle.connection.is_left() && !busy.connection.is_left());
        let cut = tokio::time::timeout(Duration::from_millis(1), idle.connection.requested()).await;
        assert!(cut.is_ok());
        assert_eq!(relay.shared.metrics.limits().of(Limit::MemoryBytes), 1);
    }
}
