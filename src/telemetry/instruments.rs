//! Instruments that the metrics library lacks: a histogram without a lock, gauges that subtract their part
//! when dropped, and the table of streams that are behind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use tokio::time::Instant;

/// Upper bounds in microseconds, and in seconds as exported.
const BOUNDS: [(u64, f64); 13] = [
    (1_000, 0.001),
    (2_500, 0.0025),
    (5_000, 0.005),
    (10_000, 0.01),
    (25_000, 0.025),
    (50_000, 0.05),
    (100_000, 0.1),
    (250_000, 0.25),
    (500_000, 0.5),
    (1_000_000, 1.0),
    (2_500_000, 2.5),
    (5_000_000, 5.0),
    (10_000_000, 10.0),
];

/// Durations in buckets from 1 ms to 10 s. An observation costs two atomic additions. The library's own
/// histogram has a lock, and every client's ACK would contend for it.
#[derive(Clone, Debug, Default)]
pub struct DurationHistogram(Arc<DurationBuckets>);

#[derive(Debug, Default)]
struct DurationBuckets {
    /// One per bound; the last is for durations beyond.
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_micros: AtomicU64,
}

impl DurationHistogram {
    pub fn observe(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|(bound, _)| *bound < micros);
        self.0.counts[bucket].fetch_add(1, Relaxed);
        self.0.sum_micros.fetch_add(micros, Relaxed);
    }
}

/// The `le` label of the bucket of a duration.
pub(super) fn bucket_text(duration: Duration) -> String {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let bucket = BOUNDS.iter().find(|(bound, _)| *bound >= micros);
    bucket.map_or_else(|| "+Inf".to_owned(), |(_, seconds)| format!("{seconds:?}"))
}

impl TypedMetric for DurationHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for DurationHistogram {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        let bounds = BOUNDS.iter().map(|(_, seconds)| *seconds).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.0.counts.iter().map(|count| count.load(Relaxed))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.0.sum_micros.load(Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// One holder's part of a shared gauge, subtracted when dropped.
#[derive(Debug)]
pub struct GaugePart {
    gauge: Gauge,
    held: i64,
}

impl GaugePart {
    pub(super) fn new(gauge: &Gauge, held: i64) -> GaugePart {
        gauge.inc_by(held);
        GaugePart::held(gauge, held)
    }

    /// Takes ownership of a part that the gauge already includes.
    pub(super) fn held(gauge: &Gauge, held: i64) -> GaugePart {
        GaugePart { gauge: gauge.clone(), held }
    }

    pub fn set(&mut self, value: usize) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        if value != self.held {
            self.gauge.inc_by(value.wrapping_sub(self.held));
            self.held = value;
        }
    }
}

impl Drop for GaugePart {
    fn drop(&mut self) {
        self.gauge.dec_by(self.held);
    }
}

/// For each stream: the start of the lag of its client. A client lags while it has not ACKed an update.
///
/// A stream writes only its own atomic. Opening a stream, closing a stream and a scrape take the lock.
#[derive(Debug)]
pub(super) struct BehindTable {
    origin: Instant,
    entries: Mutex<(u64, BehindStreams)>,
}

type BehindStreams = BTreeMap<u64, Weak<dyn Behind>>;

/// A stream with its entry in the table of lags. The entry stands in the stream's own memory, which each
/// update reads anyway.
pub trait Behind: Send + Sync {
    fn behind(&self) -> &BehindMetrics;
}

impl fmt::Debug for dyn Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.behind().fmt(f)
    }
}

/// The lag of one open stream: microseconds since the table's origin plus one, or 0 if up to date.
#[derive(Debug)]
pub struct BehindMetrics {
    since: AtomicU64,
    table: Arc<BehindTable>,
    key: u64,
}

impl BehindTable {
    pub(super) fn new(origin: Instant) -> BehindTable {
        BehindTable { origin, entries: Mutex::default() }
    }

    /// `stream` will have the entry.
    pub(super) fn entry(self: &Arc<Self>, stream: Weak<dyn Behind>) -> BehindMetrics {
        let mut entries = self.entries.lock();
        let (next, map) = &mut *entries;
        let key = *next;
        *next += 1;
        map.insert(key, stream);
        BehindMetrics { since: AtomicU64::new(0), table: self.clone(), key }
    }

    /// The number of streams that are behind, and the longest time that any of them has been behind.
    pub(super) fn summary(&self, now: Instant) -> (usize, Duration) {
        let (mut behind, mut oldest) = (0, u64::MAX);
        // The lock is free again before a stream may end here.
        let streams: Vec<_> = self.entries.lock().1.values().filter_map(Weak::upgrade).collect();
        for stream in streams {
            let since = stream.behind().since.load(Relaxed);
            if since != 0 {
                behind += 1;
                oldest = oldest.min(since - 1);
            }
        }
        let oldest = self.origin + Duration::from_micros(if behind == 0 { 0 } else { oldest });
        (behind, if behind == 0 { Duration::ZERO } else { now.saturating_duration_since(oldest) })
    }
}

impl BehindMetrics {
    /// Since when the client has not ACKed an update of any type; `None`: up to date. Idempotent and cheap.
    pub fn since(&self, since: Option<Instant>) {
        let micros = since.map_or(0, |since| {
            let elapsed = since.saturating_duration_since(self.table.origin).as_micros();
            u64::try_from(elapsed).unwrap_or(u64::MAX - 1).saturating_add(1)
        });
        self.since.store(micros, Relaxed);
    }
}

impl Drop for BehindMetrics {
    fn drop(&mut self) {
        self.table.entries.lock().1.remove(&self.key);
    }
}
