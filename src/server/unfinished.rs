//! Requests that are not whole yet, and polled answers that are not taken yet, over all connections (ADR 69).
//!
//! Each connection may hold `limits.connection_bytes` of them, and all connections together
//! `limits.unfinished_bytes`. Beyond it the heaviest end: those with the most bytes for the longest time. So
//! many connections that are within their own limit cannot take the memory of all others.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::limits::ServerLimits;
use crate::driver::api::downstream::{Charge, Peer, Polling};
use crate::telemetry::metrics::DownstreamMetrics;
use crate::telemetry::{Limit, Warnings};
use sluice_setting::InForce;
use sluice_xds::{Code, Status};

/// A smaller part does not count: its stream costs the relay as much. An ACK takes no lock.
const COUNTED_BYTES: usize = 4 << 10;

/// A part below this size ends only if there is none above.
const SMALL_BYTES: u64 = 64 << 10;

/// The least age of a part, so that the bytes decide between parts that have just begun.
const YOUNG: Duration = Duration::from_millis(100);

/// All parts have at most this fraction of the memory budget of the process, because the budget has other
/// uses.
const FRACTION_OF_MEMORY: u64 = 4;

/// An operator reads one line a minute.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The unfinished requests and answers of all connections, the parts.
pub(super) struct Unfinished {
    limits: InForce<ServerLimits>,
    metrics: Arc<DownstreamMetrics>,
    memory_budget: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    table: Mutex<PartTable>,
    warnings: Mutex<Warnings>,
}

#[derive(Default)]
struct PartTable {
    /// The bytes of all parts.
    bytes: u64,
    /// The number of parts made so far.
    made: u64,
    parts: BTreeMap<u64, UnfinishedPart>,
    /// The documents of answers by their address. The answers keep the documents, so no two have the same
    /// address.
    documents: HashMap<usize, Document>,
}

struct UnfinishedPart {
    peer: Arc<Peer>,
    since: Instant,
    content: PartContent,
}

enum PartContent {
    Request {
        bytes: u64,
        cut: Arc<Cut>,
    },
    /// An answer with the document at this address.
    Answer(usize),
}

/// A document that counts once, for any number of answers.
struct Document {
    bytes: u64,
    answers: u64,
}

/// Tells the task of a request that the request ends.
#[derive(Default)]
struct Cut {
    is_cut: AtomicBool,
    waker: AtomicWaker,
}

impl Unfinished {
    /// `memory_budget`: the bytes that the process may use, if there is a bound.
    pub(super) fn new(
        limits: InForce<ServerLimits>,
        metrics: Arc<DownstreamMetrics>,
        memory_budget: impl Fn() -> Option<u64> + Send + Sync + 'static,
    ) -> Arc<Unfinished> {
        let (memory_budget, table) = (Box::new(memory_budget), Mutex::default());
        let warnings = Mutex::new(Warnings::new(WARN_INTERVAL));
        Arc::new(Unfinished { limits, metrics, memory_budget, table, warnings })
    }

    /// The requests of a stream, or one request of a poll.
    pub(super) fn receive(self: &Arc<Self>, peer: &Arc<Peer>) -> Received {
        let charge = Charge::new(&peer.connection);
        Received { charge, peer: peer.clone(), unfinished: self.clone(), receiving: None }
    }

    /// An answer of this document to a poll.
    pub(super) fn answer(self: &Arc<Self>, peer: &Arc<Peer>, document: &Bytes) -> Untaken {
        let polling = Polling::new(&peer.connection, document.len());
        let entry = (document.len() >= COUNTED_BYTES).then(|| {
            let mut table = self.table.lock();
            let number = table.add_answer(peer.clone(), document);
            self.hold_to_budget(table);
            (CountedPart { number, unfinished: self.clone() }, document.clone())
        });
        Untaken { _entry: entry, _polling: polling }
    }

    fn budget(&self) -> u64 {
        let of_memory = (self.memory_budget)().map_or(u64::MAX, |budget| budget / FRACTION_OF_MEMORY);
        self.limits.get().unfinished_bytes.min(of_memory)
    }

    fn begin(self: &Arc<Self>, peer: &Arc<Peer>, bytes: u64) -> Receiving {
        let cut = Arc::<Cut>::default();
        let mut table = self.table.lock();
        table.bytes += bytes;
        let number = table.add(peer.clone(), PartContent::Request { bytes, cut: cut.clone() });
        self.hold_to_budget(table);
        Receiving { entry: CountedPart { number, unfinished: self.clone() }, cut }
    }

    fn weigh(&self, number: u64, bytes: u64) {
        let mut table = self.table.lock();
        table.weigh(number, bytes);
        self.hold_to_budget(table);
    }

    /// Ends the heaviest parts, if all together pass the budget.
    fn hold_to_budget(&self, mut table: MutexGuard<'_, PartTable>) {
        let (budget, now) = (self.budget(), Instant::now());
        if table.bytes <= budget {
            return;
        }
        let ended = table.take_heaviest(budget, now);
        drop(table);
        for (part, _) in &ended {
            self.metrics.limit_hit(Limit::UnfinishedBytes);
            match &part.content {
                PartContent::Request { cut, .. } => {
                    cut.is_cut.store(true, Ordering::Release);
                    cut.waker.wake();
                }
                // HTTP/2 has the bytes in its queue, and keeps them until the connection ends.
                PartContent::Answer(_) => part.peer.connection.cut(),
            }
        }
        if let Some((first, bytes)) = ended.first() {
            self.warn(first, *bytes, ended.len(), budget, now);
        }
    }

    fn warn(&self, part: &UnfinishedPart, bytes: u64, ended: usize, budget: u64, now: Instant) {
        let mut warnings = self.warnings.lock();
        let Some(suppressed) = warnings.due(now) else { return };
        let peer = part.peer.address.map_or_else(|| "unix".to_owned(), |address| address.to_string());
        let held_for = now.saturating_duration_since(part.since);
        tracing::warn!(
            limit = Limit::UnfinishedBytes.name(), budget, ended, listener = %part.peer.listener, peer,
            bytes, ?held_for, suppressed,
            "all connections together hold too many bytes of unfinished requests and unread answers of polls; ended the heaviest"
        );
    }

    fn over_budget(&self) -> Status {
        let text = format!(
            "all connections together hold more than {} bytes of unfinished requests and unread answers, and this one is among \
                the heaviest; the limit is limits.unfinished_bytes",
            self.budget()
        );
        Status::new(Code::ResourceExhausted, text)
    }
}

impl PartTable {
    fn add(&mut self, peer: Arc<Peer>, content: PartContent) -> u64 {
        self.made += 1;
        self.parts.insert(self.made, UnfinishedPart { peer, since: Instant::now(), content });
        self.made
    }

    fn add_answer(&mut self, peer: Arc<Peer>, document: &Bytes) -> u64 {
        let address = document.as_ptr().addr();
        let document = self.documents.entry(address).or_insert_with(|| {
            self.bytes += document.len() as u64;
            Document { bytes: document.len() as u64, answers: 0 }
        });
        document.answers += 1;
        self.add(peer, PartContent::Answer(address))
    }

    fn weigh(&mut self, number: u64, bytes: u64) {
        // An ended part does not count any more.
        let Some(UnfinishedPart { content: PartContent::Request { bytes: before, .. }, .. }) =
            self.parts.get_mut(&number)
        else {
            return;
        };
        self.bytes = self.bytes - *before + bytes;
        *before = bytes;
    }

    fn remove(&mut self, number: u64) -> Option<UnfinishedPart> {
        let part = self.parts.remove(&number)?;
        match &part.content {
            PartContent::Request { bytes, .. } => self.bytes -= bytes,
            PartContent::Answer(address) => {
                let document = self.documents.get_mut(address)?;
                document.answers -= 1;
                if document.answers == 0 {
                    self.bytes -= document.bytes;
                    self.documents.remove(address);
                }
            }
        }
        Some(part)
    }

    /// The bytes of a part. The answers with one document share its bytes.
    fn bytes_of(&self, part: &UnfinishedPart) -> u64 {
        match &part.content {
            PartContent::Request { bytes, .. } => *bytes,
            PartContent::Answer(address) => {
                self.documents.get(address).map_or(0, |document| document.bytes / document.answers.max(1))
            }
        }
    }

    /// Bytes and their time. A large request of an honest client is soon whole, and an answer soon taken.
    fn weight(&self, part: &UnfinishedPart, now: Instant) -> (bool, u128) {
        let (bytes, age) = (self.bytes_of(part), now.saturating_duration_since(part.since).max(YOUNG));
        (bytes >= SMALL_BYTES, u128::from(bytes) * age.as_millis())
    }

    /// Removes the heaviest parts. The rest leaves an eighth of the budget free: the search looks at all
    /// parts, and so many bytes have to arrive before the next.
    fn take_heaviest(&mut self, budget: u64, now: Instant) -> Vec<(UnfinishedPart, u64)> {
        let weights = self.parts.iter().map(|(number, part)| (self.weight(part, now), *number));
        let mut all: Vec<_> = weights.collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let mut taken = Vec::new();
        for (_, number) in all {
            if self.bytes <= budget - budget / 8 {
                break;
            }
            let bytes = self.parts.get(&number).map_or(0, |part| self.bytes_of(part));
            taken.extend(self.remove(number).map(|part| (part, bytes)));
        }
        taken
    }
}

/// A counted part, until it is finished or its peer has left.
struct CountedPart {
    number: u64,
    unfinished: Arc<Unfinished>,
}

impl Drop for CountedPart {
    fn drop(&mut self) {
        self.unfinished.table.lock().remove(self.number);
    }
}

/// Belongs to an answer until HTTP has taken its last byte.
pub(super) struct Untaken {
    /// The document stays as long as the entry, which knows the document by its address. `None` for a small
    /// one.
    _entry: Option<(CountedPart, Bytes)>,
    _polling: Polling,
}

/// A counted request.
struct Receiving {
    entry: CountedPart,
    cut: Arc<Cut>,
}

/// The received bytes of requests, charged to their connection and to all connections together.
pub(super) struct Received {
    charge: Charge,
    peer: Arc<Peer>,
    unfinished: Arc<Unfinished>,
    /// `None` while few bytes are held. Boxed, because the requests of most streams are small.
    receiving: Option<Box<Receiving>>,
}

impl Received {
    /// Changes the charge to this many bytes.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the connection may not hold so much, or all connections together hold too much.
    /// The hit is already counted.
    pub(super) fn set(&mut self, bytes: usize) -> Result<(), Status> {
        let metrics = &self.unfinished.metrics;
        self.charge.set(bytes).inspect_err(|_| metrics.limit_hit(Limit::ConnectionBytes))?;
        if bytes < COUNTED_BYTES {
            self.receiving = None;
            return Ok(());
        }
        let receiving = match &mut self.receiving {
            Some(receiving) => {
                self.unfinished.weigh(receiving.entry.number, bytes as u64);
                receiving
            }
            none => none.insert(Box::new(self.unfinished.begin(&self.peer, bytes as u64))),
        };
        if receiving.cut.is_cut.load(Ordering::Acquire) { Err(self.unfinished.over_budget()) } else { Ok(()) }
    }

    /// Ready once all connections together hold too much, and this part is among the heaviest.
    pub(super) fn poll_cut(&self, context: &Context<'_>) -> Poll<Status> {
        let Some(Receiving { cut, .. }) = self.receiving.as_deref() else { return Poll::Pending };
        cut.waker.register(context.waker());
        if cut.is_cut.load(Ordering::Acquire) {
            return Poll::Ready(self.unfinished.over_budget());
        }
        Poll::Pending
    }

    /// See [`Received::poll_cut`].
    pub(super) async fn cut(&self) -> Status {
        poll_fn(|context| self.poll_cut(context)).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::driver::api::downstream::{ConnectionCut, WhenUnavailable};
    use tokio::time::advance;

    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;

    fn unfinished(bytes: u64, memory: Option<u64>) -> Arc<Unfinished> {
        let limits = InForce::new(ServerLimits { unfinished_bytes: bytes, ..ServerLimits::default() });
        Unfinished::new(limits, Arc::default(), move || memory)
    }

    fn peer() -> Arc<Peer> {
        Arc::new(Peer {
            listener: "main".into(),
            address: None,
            identity: Arc::default(),
            connection: ConnectionCut::with_budget(64 << 20),
            when_unavailable: WhenUnavailable::Hold,
            relays: None,
        })
    }

    fn is_cut(received: &Received) -> bool {
        received.poll_cut(&Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    /// Each connection is within its own limit.
    #[tokio::test(start_paused = true)]
    async fn fp7_of_all_unfinished_requests_the_heaviest_end() {
        let all = unfinished(64 << 20, None);
        let mut halves: Vec<_> = (0..7).map(|_| all.receive(&peer())).collect();
        for half in &mut halves {
            half.set(8 * MIB).unwrap();
        }
        let mut small = all.receive(&peer());
        small.set(32 * KIB).unwrap();
        advance(Duration::from_secs(20)).await;
        // An honest client's large request, which has just begun.
        let mut young = all.receive(&peer());
        young.set(6 * MIB).unwrap();
        assert_eq!(all.metrics.limit_hits(Limit::UnfinishedBytes), 0);
        let mut last = all.receive(&peer());
        last.set(4 * MIB).unwrap();
        let cut = halves.iter().filter(|half| is_cut(half)).count();
        assert_eq!(cut, 2, "as many as leave an eighth of the budget free");
        assert!(!is_cut(&small) && !is_cut(&young) && !is_cut(&last));
        assert_eq!(all.metrics.limit_hits(Limit::UnfinishedBytes), 2);
        let first_cut = halves.iter_mut().find(|half| is_cut(half)).unwrap();
        let refused = first_cut.set(8 * MIB + 1).unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert!(refused.message.contains("limits.unfinished_bytes"), "{refused}");
        drop((halves, small, young, last));
        let table = all.table.lock();
        assert_eq!((table.bytes, table.parts.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn fp7_many_small_ones_end_only_if_there_are_no_others() {
        let all = unfinished(1 << 20, None);
        let mut crowd: Vec<_> = (0..16).map(|_| all.receive(&peer())).collect();
        for part in &mut crowd {
            part.set(60 * KIB).unwrap();
        }
        advance(Duration::from_secs(1)).await;
        let mut large = all.receive(&peer());
        assert!(large.set(100 * KIB).is_err(), "the only large one, although it has just begun");
        drop(large);
        let mut late = all.receive(&peer());
        late.set(50 * KIB).unwrap();
        let mut latest = all.receive(&peer());
        latest.set(50 * KIB).unwrap();
        assert!(crowd.iter().any(is_cut) && !is_cut(&late) && !is_cut(&latest));
    }

    /// An ACK is never counted, nor is a request that is whole.
    #[tokio::test(start_paused = true)]
    async fn small_requests_take_no_lock() {
        let all = unfinished(1 << 20, None);
        let mut ack = all.receive(&peer());
        ack.set(COUNTED_BYTES - 1).unwrap();
        assert!(ack.receiving.is_none());
        ack.set(COUNTED_BYTES).unwrap();
        assert_eq!(all.table.lock().bytes, COUNTED_BYTES as u64);
        ack.set(0).unwrap();
        assert!(ack.receiving.is_none());
        assert_eq!(all.table.lock().bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_memory_budget_bounds_unfinished_requests_too() {
        let all = unfinished(256 << 20, Some(16 << 20));
        let mut halves = [all.receive(&peer()), all.receive(&peer())];
        halves[0].set(3 * MIB).unwrap();
        advance(Duration::from_secs(1)).await;
        halves[1].set(2 * MIB).unwrap();
        assert!(is_cut(&halves[0]) && !is_cut(&halves[1]));
    }

    /// A document counts once, and who leaves distinct documents unread goes before those who share one.
    #[tokio::test(start_paused = true)]
    async fn fd1_unread_answers_of_all_connections_share_the_budget() {
        let all = unfinished(16 << 20, None);
        let document = |mib: usize| Bytes::from(vec![b' '; mib * MIB]);
        let shared = document(4);
        let (readers, alone): (Vec<_>, Vec<_>) =
            ((0..50).map(|_| peer()).collect(), (0..4).map(|_| peer()).collect());
        let common: Vec<_> = readers.iter().map(|reader| all.answer(reader, &shared)).collect();
        drop(shared);
        assert_eq!(all.table.lock().bytes, 4 << 20);
        advance(Duration::from_secs(10)).await;
        let own: Vec<_> = alone.iter().take(3).map(|one| all.answer(one, &document(4))).collect();
        assert_eq!(all.metrics.limit_hits(Limit::UnfinishedBytes), 0);
        advance(Duration::from_secs(5)).await;
        let last = all.answer(&alone[3], &document(1));
        let is_cut = |peer: &&Arc<Peer>| peer.connection.is_left();
        assert_eq!(alone.iter().filter(is_cut).count(), 1, "one of four is enough");
        assert_eq!(readers.iter().filter(is_cut).count(), 0);
        drop((common, own, last));
        let table = all.table.lock();
        assert_eq!((table.bytes, table.parts.len(), table.documents.len()), (0, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_of_an_ended_request_is_woken() {
        let all = unfinished(8 << 20, None);
        let mut half = all.receive(&peer());
        half.set(8 * MIB).unwrap();
        advance(Duration::from_secs(1)).await;
        let ended = tokio::spawn(async move { half.cut().await });
        tokio::task::yield_now().await;
        let mut other = all.receive(&peer());
        other.set(MIB).unwrap();
        assert_eq!(ended.await.unwrap().code, Code::ResourceExhausted);
        assert_eq!(all.table.lock().bytes, MIB as u64);
    }
}
