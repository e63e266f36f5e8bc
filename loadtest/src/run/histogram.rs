//! Percentiles of durations (HdrHistogram): three significant digits from a microsecond to an hour, every value counted.

use serde::Serialize;

const HIGHEST_US: u64 = 3_600_000_000;

/// In milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// A point of the distribution: this share of all values is at most this long.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    pub percentile: f64,
    pub ms: f64,
}

pub struct Histogram {
    counts: hdrhistogram::Histogram<u64>,
    /// The histogram rounds its highest value to three digits; this value is exact.
    max_ns: u64,
}

impl Histogram {
    pub fn new() -> anyhow::Result<Histogram> {
        let counts = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST_US, 3)?;
        Ok(Histogram { counts, max_ns: 0 })
    }

    pub fn record(&mut self, ns: u64) {
        self.counts.saturating_record((ns / 1000).max(1));
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn clear(&mut self) {
        self.counts.reset();
        self.max_ns = 0;
    }

    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The number of values longer than this.
    pub fn longer_than(&self, ns: u64) -> u64 {
        self.count() - self.counts.count_between(0, ns / 1000)
    }

    /// `None` without values.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let max = self.max_ns as f64 / 1e6;
        let at = |percent: f64| (self.counts.value_at_percentile(percent) as f64 / 1000.0).min(max);
        (self.count() > 0).then(|| Percentiles {
            count: self.count(),
            mean: (self.counts.mean() / 1000.0).min(max),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            max,
        })
    }

    /// The distribution, finer towards its upper end.
    pub fn distribution(&self) -> Vec<Point> {
        let max = self.max_ns as f64 / 1e6;
        let point = |value: hdrhistogram::iterators::IterationValue<u64>| Point {
            percentile: value.percentile(),
            ms: (value.value_iterated_to() as f64 / 1000.0).min(max),
        };
        self.counts.iter_quantiles(5).map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn percentiles_are_of_all_values_to_three_digits() {
        let mut histogram = Histogram::new().unwrap();
        assert_eq!(histogram.percentiles(), None);
        (1..=100_000u64).for_each(|us| histogram.record(us * 1000));
        let found = histogram.percentiles().unwrap();
        for (value, exact) in [(found.p50, 50.0), (found.p99, 99.0), (found.p999, 99.9), (found.mean, 50.0)] {
            assert!((value / exact - 1.0).abs() < 0.001, "{value} is not {exact}");
        }
        assert_eq!((found.max, found.count), (100.0, 100_000));
        assert!((900..=1000).contains(&histogram.longer_than(99_000_000)));
        let distribution = histogram.distribution();
        assert!(distribution.is_sorted_by(|a, b| a.ms <= b.ms && a.percentile <= b.percentile));
        assert_eq!(distribution.last().unwrap().ms, 100.0);
        histogram.record(u64::MAX);
        assert_eq!(histogram.percentiles().unwrap().max, u64::MAX as f64 / 1e6);
        histogram.clear();
        assert_eq!(histogram.percentiles(), None);
    }
}
