//! The memory budget: refuses connections, and later cuts some, when memory is short (FP7).
//!
//! Every part of the relay has a bound of its own. The budget bounds their sum, and also memory that only the
//! kernel counts for this process. Below the soft mark, nothing happens. Above the soft mark, new connections
//! are refused, so that existing clients are served on. Above the hard mark, the relay drops everything that
//! can be made again, and cuts connections: first those with the most requests, names or unread responses.
//! [`Newcomers`] makes room for those who are refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::driver::ground::connection::ConnectionCut;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::memory_gauge::Pressure;
use crate::driver::relay::newcomers::Newcomers;
use crate::driver::stream::state::Tables;
use crate::telemetry::events::{Events, tell};
use crate::telemetry::{Limit, resident_bytes};

/// The time between two measurements.
const INTERVAL: Duration = Duration::from_millis(250);

/// A response that is unread for less than this may still be on its way.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// A smaller connection that reads is left alone: only many of such connections together would free much.
const LARGE_BYTES: u64 = 1 << 20;

/// The relay cuts this fraction of the connections at a time, and at least a few. Their memory becomes free a
/// little later.
const CUT_PART: usize = 8;
const CUT_MIN: usize = 16;

/// Keeps the process within its budget of resident memory, for as long as the future is polled. Without
/// `limits.memory_bytes` the budget is `otherwise`.
pub(crate) async fn watch(shared: Arc<DriverContext>, tables: Tables, otherwise: Option<u64>) {
    let (mut before, mut newcomers) = (Pressure::None, Newcomers::default());
    loop {
        tokio::time::sleep(INTERVAL).await;
        newcomers.cut_due(Instant::now());
        // Read each time, because another configuration may come into force.
        let budget = shared.settings().limits.memory_bytes.or(otherwise);
        shared.metrics.memory_budget(budget);
        shared.clients.pressure.set_budget(budget);
        // Some systems do not tell the resident memory. There, `app` refuses the key.
        let (Some(budget), Some(resident)) = (budget, resident_bytes()) else {
            shared.clients.pressure.set(Pressure::None);
            before = Pressure::None;
            newcomers.forget();
            continue;
        };
        let now = Pressure::of(resident, budget);
        shared.clients.pressure.set(now);
        if now != before {
            tell_change(&shared.metrics.events, now, before, resident, budget);
            before = now;
        }
        let refused = shared.clients.pressure.take_refused();
        match now {
            Pressure::None => newcomers.forget(),
            Pressure::Soft => {
                let missing = Pressure::missing(resident, budget);
                newcomers.look(&shared, &tables, refused, missing, Instant::now());
            }
            Pressure::Hard => relieve(&shared, &tables),
        }
    }
}

fn tell_change(events: &Events, now: Pressure, before: Pressure, resident: u64, budget: u64) {
    let limit = Limit::MemoryBytes.name();
    let detail = format_args!("{resident} of {budget} bytes");
    match now {
        Pressure::None => {
            tell!(events, info(Limit, "memory is below 80 % of its budget again").limit(limit).detail(detail);
            { resident, budget })
        }
        Pressure::Soft if before == Pressure::Hard => {
            tell!(events, info(Limit, "memory is below 90 % of its budget again").limit(limit).detail(detail);
                { resident, budget } + "; still refusing new connections");
        }
        Pressure::Soft => {
            tell!(events, warn(Limit, "memory is above 80 % of its budget").limit(limit).detail(detail);
            { resident, budget } + "; refusing new connections")
        }
        Pressure::Hard => {
            tell!(events, error as warn(Limit, "memory is above 90 % of its budget").limit(limit).detail(detail);
                { resident, budget } + "; cutting connections, the largest first");
        }
    }
}

/// Drops everything that can be made again, and cuts the largest connections.
fn relieve(shared: &DriverContext, tables: &Tables) {
    shared.content.encoder.clear();
    let holders = largest(holders(shared, tables));
    for holder in &holders {
        shared.metrics.limit_hit(Limit::MemoryBytes);
        holder.connection.cut();
    }
    if let Some(first) = holders.first() {
        warn!(
            connections = holders.len(),
            largest = first.bytes,
            "cut connections with much memory or unread responses, because memory is short"
        );
    }
}

/// A connection that may be cut.
#[derive(Debug)]
struct CutCandidate {
    connection: ConnectionCut,
    /// The memory that a cut would free, approximately.
    bytes: u64,
    /// How long the client has read nothing.
    stalled: Option<Duration>,
}

fn holders(shared: &DriverContext, tables: &Tables) -> Vec<CutCandidate> {
    let mut stalled: BTreeMap<usize, Duration> = BTreeMap::new();
    let mut next = None;
    while let Some(stream) = tables.streams.next(next) {
        next = Some(stream.number());
        if let Some(age) = stream.unread_for().filter(|age| *age >= STALLED_AFTER) {
            let longest = stalled.entry(stream.context.peer.connection.number()).or_default();
            *longest = age.max(*longest);
        }
    }
    let mut holders = Vec::new();
    for connection in shared.clients.connections.all() {
        let stalled = stalled.get(&connection.number()).copied();
        // A client that reads will soon have freed its unread bytes.
        let unread = stalled.map_or(0, |_| connection.account().unread_bytes());
        let bytes = connection.account().private_bytes() + unread;
        if stalled.is_some() || bytes >= LARGE_BYTES {
            holders.push(CutCandidate { connection, bytes, stalled });
        }
    }
    holders
}

/// The connections to cut now: the largest first, and among equals those that have read nothing for longest.
fn largest(mut holders: Vec<CutCandidate>) -> Vec<CutCandidate> {
    holders.sort_by_key(|holder| std::cmp::Reverse((holder.bytes, holder.stalled)));
    holders.truncate((holders.len() / CUT_PART).max(CUT_MIN));
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fp7_the_largest_holder_goes_first() {
        let holder = |bytes, seconds: Option<u64>| {
            let stalled = seconds.map(Duration::from_secs);
            CutCandidate { connection: ConnectionCut::default(), bytes, stalled }
        };
        let mut holders: Vec<_> = (0..200).map(|n| holder(n, Some(60))).collect();
        holders.push(holder(5_000_000, None));
        holders.push(holder(199, Some(90)));
        let cut: Vec<_> = largest(holders).iter().map(|holder| (holder.bytes, holder.stalled)).collect();
        assert_eq!(cut.len(), 202 / CUT_PART);
        assert_eq!(cut[0], (5_000_000, None));
        assert_eq!(cut[1], (199, Some(Duration::from_secs(90))));
    }
}
