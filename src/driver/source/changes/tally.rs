//! The counters of a change: one addition for each answer of a client (ADM-10).

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::telemetry::traces::change::{Delivery, SLOWEST_MAX};

/// Half octaves from 100 us on: 40 reach 78 s. A percentile is at most 50 % too high, in 160 bytes.
const BUCKETS: usize = 40;
const FIRST_MICROS: u64 = 100;

/// Durations, by half octaves.
#[derive(Debug)]
struct Histogram([AtomicU32; BUCKETS]);

impl Histogram {
    fn observe(&self, micros: u64) {
        if let Some(bucket) = self.0.get(bucket_of(micros)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The upper end of the bucket with this part of all durations.
    fn percentile(&self, percent: u64) -> Option<Duration> {
        let counts = self.0.each_ref().map(|bucket| u64::from(bucket.load(Ordering::Relaxed)));
        let wanted = (counts.iter().sum::<u64>() * percent).div_ceil(100);
        if wanted == 0 {
            return None;
        }
        let mut seen = 0;
        let index = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_micros(end_of(index)))
    }
}

fn bucket_of(micros: u64) -> usize {
    if micros < FIRST_MICROS {
        return 0;
    }
    // At least 2. An octave has two halves, the second from 1.5 on.
    let halves = micros / (FIRST_MICROS / 2);
    let octave = halves.ilog2() - 1;
    let is_second_half = halves >> octave & 1 == 1;
    (1 + 2 * octave as usize + usize::from(is_second_half)).min(BUCKETS - 1)
}

fn end_of(bucket: usize) -> u64 {
    let (octave, is_second_half) = (bucket.saturating_sub(1) / 2, bucket.is_multiple_of(2));
    match (bucket, is_second_half) {
        (0, _) => FIRST_MICROS,
        (_, false) => (FIRST_MICROS << octave) * 3 / 2,
        (_, true) => FIRST_MICROS << (octave + 1),
    }
}

/// The answers to a change.
#[derive(Debug)]
pub struct Tally {
    pub(super) acked: AtomicU32,
    pub(super) rejected: AtomicU32,
    pub(super) superseded: AtomicU32,
    /// Streams that ended or needed nothing.
    pub(super) unneeded: AtomicU32,
    slowest_micros: AtomicU64,
    /// The latest ACKs, which are the slowest: the number of the stream, and microseconds plus one.
    latest: [AtomicU64; SLOWEST_MAX],
    latencies: Histogram,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            acked: AtomicU32::new(0),
            rejected: AtomicU32::new(0),
            superseded: AtomicU32::new(0),
            unneeded: AtomicU32::new(0),
            slowest_micros: AtomicU64::new(0),
            latest: [const { AtomicU64::new(0) }; SLOWEST_MAX],
            latencies: Histogram([const { AtomicU32::new(0) }; BUCKETS]),
        }
    }
}

impl Tally {
    pub fn ack(&self, stream: u64, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let count = self.acked.fetch_add(1, Ordering::Relaxed) as usize;
        // An hour fits, and the numbers of four billion streams.
        let pair = stream << 32 | micros.saturating_add(1).min(u64::from(u32::MAX));
        self.latest[count % SLOWEST_MAX].store(pair, Ordering::Relaxed);
        self.latencies.observe(micros);
        if micros > self.slowest_micros.load(Ordering::Relaxed) {
            self.slowest_micros.fetch_max(micros, Ordering::Relaxed);
        }
    }

    /// The time that this part of the ACKs took at most.
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        let slowest = self.slowest()?;
        self.latencies.percentile(percent).map(|found| found.min(slowest))
    }

    pub fn slowest(&self) -> Option<Duration> {
        let is_any = self.acked.load(Ordering::Relaxed) > 0;
        is_any.then(|| Duration::from_micros(self.slowest_micros.load(Ordering::Relaxed)))
    }

    /// The slowest clients, the slowest first.
    pub fn slowest_clients(&self) -> Vec<Delivery> {
        let pairs = self.latest.iter().map(|pair| pair.load(Ordering::Relaxed)).filter(|pair| *pair > 0);
        let delivery = |pair: u64| {
            let after = Duration::from_micros((pair & u64::from(u32::MAX)) - 1);
            Delivery { stream: pair >> 32, after, rejection: None }
        };
        let mut all: Vec<_> = pairs.map(delivery).collect();
        all.sort_by_key(|delivery| Reverse(delivery.after));
        all
    }

    /// The streams that have settled the change.
    pub fn settled(&self) -> u32 {
        [&self.acked, &self.rejected, &self.superseded, &self.unneeded]
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .fold(0, u32::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adm_10_each_time_is_in_a_bucket_that_ends_behind_it() {
        for micros in
            (0..70_000_000_u64).step_by(977).chain([99, 100, 149, 150, 199, 200, 299, 300, 399, 400])
        {
            let bucket = bucket_of(micros);
            assert!(
                micros < end_of(bucket),
                "{micros} us in bucket {bucket}, which ends at {}",
                end_of(bucket)
            );
            assert!(bucket == 0 || micros >= end_of(bucket - 1), "{micros} us in bucket {bucket}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn adm_10_percentiles_never_pass_the_slowest_client() {
        let tally = Tally::default();
        assert_eq!((tally.percentile(50), tally.slowest()), (None, None));
        (1..=100).for_each(|ms| tally.ack(ms, Duration::from_millis(ms)));
        assert_eq!(tally.slowest(), Some(Duration::from_millis(100)));
        assert_eq!(tally.percentile(99), Some(Duration::from_millis(100)));
        let median = tally.percentile(50).unwrap_or_default();
        assert!((50..=71).contains(&median.as_millis()), "{median:?}");
        assert_eq!(tally.settled(), 100);
        let slowest =
            tally.slowest_clients().into_iter().map(|delivery| (delivery.stream, delivery.after.as_millis()));
        assert_eq!(slowest.collect::<Vec<_>>(), [100, 99, 98, 97, 96].map(|n| (n, u128::from(n))), "OBS-2");
    }
}
