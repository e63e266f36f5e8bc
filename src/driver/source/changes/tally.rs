//! The counters of a change: one addition for each answer of a client (ADM-10).

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::telemetry::traces::change::{Delivery, SLOWEST_MAX};

/// Up to this many streams, each time is kept: percentiles are exact, and a change of few clients stays
/// small.
const EACH_MAX: usize = 200;

/// Tenths of octaves from 100 us on: 20 octaves reach 104 s. A percentile is at most 10 % too high, in 808
/// bytes.
const PARTS: u64 = 10;
const OCTAVES: u32 = 20;
const FIRST_MICROS: u64 = 100;

/// One below the octaves, and one beyond.
const BUCKETS: usize = OCTAVES as usize * PARTS as usize + 2;

/// The times of all ACKs.
#[derive(Debug)]
enum Latencies {
    /// Microseconds plus one; 0 is no time.
    Each(Box<[AtomicU32]>),
    /// Counts by bucket.
    Buckets(Box<[AtomicU32]>),
}

impl Latencies {
    fn new(sessions: usize) -> Latencies {
        let zeros = |count| (0..count).map(|_| AtomicU32::new(0)).collect();
        if sessions <= EACH_MAX {
            Latencies::Each(zeros(sessions))
        } else {
            Latencies::Buckets(zeros(BUCKETS))
        }
    }

    /// `number`: of the ACK, from 0.
    fn observe(&self, number: usize, micros: u64) {
        match self {
            Latencies::Each(times) => {
                // No more streams than expected settle a change.
                if let Some(time) = times.get(number) {
                    time.store(
                        u32::try_from(micros.saturating_add(1)).unwrap_or(u32::MAX),
                        Ordering::Relaxed,
                    );
                }
            }
            Latencies::Buckets(counts) => {
                if let Some(count) = counts.get(bucket_of(micros)) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// The microseconds that this part of the ACKs took at most.
    fn percentile(&self, percent: usize) -> Option<u64> {
        match self {
            Latencies::Each(times) => {
                let times = times.iter().map(|time| time.load(Ordering::Relaxed));
                let mut times: Vec<u32> = times.filter(|time| *time > 0).collect();
                times.sort_unstable();
                let rank = (times.len() * percent).div_ceil(100);
                times.get(rank.checked_sub(1)?).map(|time| u64::from(*time) - 1)
            }
            Latencies::Buckets(counts) => {
                let counts: Vec<_> =
                    counts.iter().map(|count| count.load(Ordering::Relaxed) as usize).collect();
                let rank = (counts.iter().sum::<usize>() * percent).div_ceil(100).max(1);
                let mut seen = 0;
                let bucket = counts.iter().position(|count| {
                    seen += count;
                    seen >= rank
                })?;
                Some(end_of(bucket))
            }
        }
    }
}

fn bucket_of(micros: u64) -> usize {
    let Some(octave) = (micros / FIRST_MICROS).checked_ilog2() else { return 0 };
    if octave >= OCTAVES {
        return BUCKETS - 1;
    }
    let part = ((micros >> octave) - FIRST_MICROS) / (FIRST_MICROS / PARTS);
    1 + octave as usize * PARTS as usize + part as usize
}

/// The first time behind a bucket. The last bucket has no end.
fn end_of(bucket: usize) -> u64 {
    let Some(number) = bucket.checked_sub(1) else { return FIRST_MICROS };
    let (octave, part) = (number as u64 / PARTS, number as u64 % PARTS);
    if bucket + 1 == BUCKETS {
        return u64::MAX;
    }
    (FIRST_MICROS + (part + 1) * (FIRST_MICROS / PARTS)) << octave
}

/// The answers to a change.
#[derive(Debug)]
pub struct AnswerTally {
    pub(super) acked: AtomicU32,
    pub(super) rejected: AtomicU32,
    pub(super) superseded: AtomicU32,
    /// Streams that ended or needed nothing.
    pub(super) unneeded: AtomicU32,
    slowest_micros: AtomicU64,
    /// The latest ACKs, which are the slowest: the number of the stream, and microseconds plus one.
    latest: [AtomicU64; SLOWEST_MAX],
    latencies: Latencies,
}

impl AnswerTally {
    /// `sessions`: the streams that settle the change, at most.
    pub fn new(sessions: usize) -> AnswerTally {
        AnswerTally {
            acked: AtomicU32::new(0),
            rejected: AtomicU32::new(0),
            superseded: AtomicU32::new(0),
            unneeded: AtomicU32::new(0),
            slowest_micros: AtomicU64::new(0),
            latest: [const { AtomicU64::new(0) }; SLOWEST_MAX],
            latencies: Latencies::new(sessions),
        }
    }

    pub fn ack(&self, stream: u64, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let count = self.acked.fetch_add(1, Ordering::Relaxed) as usize;
        // An hour fits, and the numbers of four billion streams.
        let pair = stream << 32 | micros.saturating_add(1).min(u64::from(u32::MAX));
        self.latest[count % SLOWEST_MAX].store(pair, Ordering::Relaxed);
        self.latencies.observe(count, micros);
        if micros > self.slowest_micros.load(Ordering::Relaxed) {
            self.slowest_micros.fetch_max(micros, Ordering::Relaxed);
        }
    }

    /// The time that this part of the ACKs took at most.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let slowest = self.slowest()?;
        self.latencies.percentile(percent).map(|micros| Duration::from_micros(micros).min(slowest))
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
            Delivery { stream: pair >> 32, after, rejection: None, skipped: Vec::new() }
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
    fn adm_10_each_time_is_in_a_bucket_that_ends_at_most_a_tenth_behind_it() {
        let bounds = (0..BUCKETS - 1).flat_map(|bucket| [end_of(bucket) - 1, end_of(bucket)]);
        for micros in (0..110_000_000_u64).step_by(977).chain(bounds) {
            let bucket = bucket_of(micros);
            let end = end_of(bucket);
            assert!(micros < end, "{micros} us in bucket {bucket}, which ends at {end}");
            assert!(bucket == 0 || micros >= end_of(bucket - 1), "{micros} us in bucket {bucket}");
            let is_precise = end.saturating_mul(10) <= micros.max(FIRST_MICROS) * 11;
            assert!(is_precise || bucket + 1 == BUCKETS, "{micros} us is told as {end}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn adm_10_percentiles_are_exact_for_few_clients_and_near_for_many() {
        let few = AnswerTally::new(100);
        assert_eq!((few.percentile(50), few.slowest()), (None, None));
        (1..=100).rev().for_each(|ms| few.ack(ms, Duration::from_millis(ms)));
        assert_eq!(few.slowest(), Some(Duration::from_millis(100)));
        let percentiles = [1, 50, 99, 100].map(|percent| few.percentile(percent));
        assert_eq!(percentiles, [1, 50, 99, 100].map(|ms| Some(Duration::from_millis(ms))));
        few.ack(101, Duration::from_secs(9));
        assert_eq!(few.percentile(50), Some(Duration::from_millis(50)), "one more than expected");

        let many = AnswerTally::new(10_000);
        assert_eq!(many.percentile(50), None);
        (1..=10_000).for_each(|n| many.ack(n, Duration::from_micros(n * 37)));
        for percent in [1, 10, 50, 90, 99] {
            let exact = percent as f64 * 3_700.0;
            let estimate = many.percentile(percent).unwrap_or_default().as_micros() as f64;
            assert!((exact..=exact * 1.1).contains(&estimate), "p{percent}: {estimate} for {exact}");
        }
        assert_eq!(many.percentile(100), many.slowest(), "never above the slowest client");
        let slow = AnswerTally::new(1_000);
        slow.ack(1, Duration::from_secs(700));
        assert_eq!(slow.percentile(50), Some(Duration::from_secs(700)), "beyond the buckets");
    }

    #[test]
    fn obs_2_the_latest_acks_are_those_of_the_slowest_clients() {
        let tally = AnswerTally::new(100);
        (1..=100).for_each(|ms| tally.ack(ms, Duration::from_millis(ms)));
        assert_eq!(tally.settled(), 100);
        let slowest =
            tally.slowest_clients().into_iter().map(|delivery| (delivery.stream, delivery.after.as_millis()));
        assert_eq!(slowest.collect::<Vec<_>>(), [100, 99, 98, 97, 96].map(|n| (n, u128::from(n))));
    }
}
