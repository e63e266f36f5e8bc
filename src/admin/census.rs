//! The count of all clients by state, shared by everybody who looks (ADM-6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::driver::api::control::Controls;
use crate::driver::api::status::{SessionStatus, SessionTypeStatus, Why};
use sluice_xds::{TypeUrl, Version};

/// The least time between two counts.
const INTERVAL: Duration = Duration::from_secs(1);

/// A count takes at most a fiftieth of a core: the next count waits for so many times the cost.
const COST_PARTS: u32 = 50;

/// The same for readers who need a count from now.
const COST_PARTS_FRESH: u32 = 10;

/// The number of streams between two turns of other tasks. Streams are locked in turn, each for a moment.
const STREAMS_PER_TURN: usize = 64;

/// The age of an unanswered response that makes a client silent. The connection answers PINGs: others are
/// closed after `keepalive_interval` and `keepalive_timeout`.
const SILENT_AFTER: Duration = Duration::from_secs(60);

/// The latest count.
#[derive(Debug, Default)]
pub(super) struct CensusTaker(Mutex<Option<TakenCensus>>);

#[derive(Debug)]
struct TakenCensus {
    begun: Instant,
    at: Instant,
    cost: Duration,
    census: Arc<Census>,
}

/// The streams of clients. Each stream counts once, with the most urgent state of all its types.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub streams: usize,
    pub synced: usize,
    pub by_why: BTreeMap<Why, usize>,
    /// The part of the unacked streams with a response unanswered for a minute.
    pub silent: usize,
    /// Streams with a type from another server than the preferred.
    pub on_fallback: usize,
    /// Streams with a type from an unreachable server.
    pub stale: usize,
    /// Streams with a type in a node class without room.
    pub refused: usize,
    pub types: BTreeMap<TypeUrl, TypeCensus>,
}

/// The streams with a type.
#[derive(Debug, Default)]
pub(super) struct TypeCensus {
    pub streams: usize,
    pub synced: usize,
    /// The content for all streams; `None` if some differ, or if unknown.
    pub version: Option<Version>,
    differs: bool,
}

impl CensusTaker {
    /// The latest count, or a new count after a while. Without a caller, nobody counts.
    pub async fn census(&self, relay: &dyn Controls) -> Arc<Census> {
        let mut taken = self.0.lock().await;
        match &*taken {
            Some(taken) if taken.is_early(COST_PARTS) => taken.census.clone(),
            _ => count(&mut taken, relay).await,
        }
    }

    /// A count that begins after this call. It waits for its turn, so that many callers cause no more counts
    /// than one.
    pub async fn count_now(&self, relay: &dyn Controls) -> Arc<Census> {
        let called = Instant::now();
        loop {
            let mut taken = self.0.lock().await;
            let due = match &*taken {
                Some(taken) if taken.begun > called => return taken.census.clone(),
                Some(taken) if taken.is_early(COST_PARTS_FRESH) => taken.next(COST_PARTS_FRESH),
                _ => return count(&mut taken, relay).await,
            };
            drop(taken);
            tokio::time::sleep_until(due).await;
        }
    }
}

impl TakenCensus {
    fn next(&self, cost_parts: u32) -> Instant {
        self.at + INTERVAL.max(self.cost * cost_parts)
    }

    fn is_early(&self, cost_parts: u32) -> bool {
        Instant::now() < self.next(cost_parts)
    }
}

async fn count(taken: &mut Option<TakenCensus>, relay: &dyn Controls) -> Arc<Census> {
    let first = Instant::now();
    let (mut census, mut cost, mut begun) = (Census::default(), Duration::ZERO, first);
    for session in relay.sessions() {
        census.add(&session);
        if census.streams % STREAMS_PER_TURN == 0 {
            cost += begun.elapsed();
            tokio::task::yield_now().await;
            begun = Instant::now();
        }
    }
    cost += begun.elapsed();
    let census = Arc::new(census);
    *taken = Some(TakenCensus { begun: first, at: Instant::now(), cost, census: census.clone() });
    census
}

impl Census {
    fn add(&mut self, session: &SessionStatus) {
        let has = |is: fn(&SessionTypeStatus) -> bool| usize::from(session.types.iter().any(is));
        self.streams += 1;
        // Nothing is known of a stream without a request.
        let first = session.types.is_empty().then_some(Why::Unknown);
        match session.types.iter().filter_map(|status| status.why).min().or(first) {
            Some(why) => *self.by_why.entry(why).or_default() += 1,
            None => self.synced += 1,
        }
        self.silent += has(|status| status.unacked.is_some_and(|unacked| unacked >= SILENT_AFTER));
        self.on_fallback += has(|status| status.fallback);
        self.stale += has(|status| status.stale_since.is_some());
        self.refused += has(|status| status.refused);
        for status in &session.types {
            let counted = self.types.entry(status.type_url.clone()).or_default();
            let is_first = counted.streams == 0;
            counted.streams += 1;
            counted.synced += usize::from(status.why.is_none());
            // The version of a Secret is a hash of the content (ADM-12).
            let version = status.should.filter(|_| !status.type_url.is_secret());
            counted.differs |= !is_first && version != counted.version;
            counted.version = version.filter(|_| !counted.differs);
        }
    }

    /// The streams with this reason.
    pub fn count(&self, why: Why) -> usize {
        self.by_why.get(&why).copied().unwrap_or_default()
    }

    /// Streams with news held back.
    pub fn held(&self) -> usize {
        let is_held = |why: &Why| why.name().starts_with("held:");
        self.by_why.iter().filter(|(why, _)| is_held(why)).map(|(_, count)| count).sum()
    }
}
