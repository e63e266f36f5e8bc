//! The time series: a point per interval.

use anyhow::Result;
use serde::Serialize;

use super::tracker::Tracker;
use crate::client::Fleet;
use crate::measure::{Process, ThreadTime, monotonic_ns};

/// The maximum number of points, as many as a plot can show; beyond, each second point is dropped.
const MOST: usize = 2400;

/// A point of the time series, for the interval that ends there.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Since the begin of the run.
    pub at_s: f64,
    /// The length of the interval.
    pub for_s: f64,
    pub phase: usize,
    pub connected: usize,
    /// Changes that clients received, per second.
    pub updates_per_s: f64,
    pub responses_per_s: f64,
    pub megabytes_per_s: f64,
    /// For the interval, in milliseconds; `None` if no client received a change.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// The number of pending updates.
    pub due: usize,
    /// The number of clients lost so far.
    pub errors: usize,
    pub server_rss_bytes: Option<u64>,
    /// 100 is one core.
    pub server_cpu_percent: Option<f64>,
    /// The share of the time in which the clients' thread ran.
    pub tool_busy_percent: f64,
}

/// The counters at the last point.
#[derive(Clone, Copy, Default)]
struct Counters {
    at: u64,
    updates: u64,
    responses: u64,
    bytes: u64,
    server_cpu: Option<u64>,
    own_cpu: u64,
}

pub struct Series {
    began: u64,
    interval_ns: u64,
    last: Counters,
    samples: Vec<Sample>,
}

impl Series {
    pub fn new(began: u64, interval_ns: u64) -> Series {
        let last = Counters { at: began, own_cpu: ThreadTime::cpu_only_ns(), ..Counters::default() };
        Series { began, interval_ns: interval_ns.max(1_000_000), last, samples: Vec::new() }
    }

    /// When the next point is due.
    pub fn due(&self) -> u64 {
        self.last.at + self.interval_ns
    }

    /// Takes a point. A server that has ended leaves gaps; the end of the run reports the cause.
    pub fn take(
        &mut self,
        fleet: &Fleet,
        tracker: &mut Tracker,
        server: Option<&Process>,
    ) -> Result<&Sample> {
        let now = monotonic_ns();
        let next = Counters {
            at: now,
            updates: tracker.updates.count(),
            responses: tracker.responses,
            bytes: fleet.bytes_received(),
            server_cpu: server.and_then(|server| server.cpu_ns().ok()),
            own_cpu: ThreadTime::cpu_only_ns(),
        };
        let last = std::mem::replace(&mut self.last, next);
        let seconds = ((now - last.at) as f64 / 1e9).max(1e-9);
        let rate = |after: u64, before: u64| after.saturating_sub(before) as f64 / seconds;
        let latency = tracker.interval.percentiles();
        tracker.interval.clear();
        let sample = Sample {
            at_s: (now - self.began) as f64 / 1e9,
            for_s: seconds,
            phase: tracker.phases.len().saturating_sub(1),
            connected: fleet.connected(),
            updates_per_s: rate(next.updates, last.updates),
            responses_per_s: rate(next.responses, last.responses),
            megabytes_per_s: rate(next.bytes, last.bytes) / 1e6,
            p50_ms: latency.map(|latency| latency.p50),
            p99_ms: latency.map(|latency| latency.p99),
            max_ms: latency.map(|latency| latency.max),
            due: tracker.due(),
            errors: fleet.lost(),
            server_rss_bytes: server.and_then(|server| server.quick_rss_bytes().ok()),
            server_cpu_percent: last.server_cpu.zip(next.server_cpu).map(|(b, a)| rate(a, b) / 1e7),
            tool_busy_percent: rate(next.own_cpu, last.own_cpu) / 1e7,
        };
        self.thin_out();
        self.samples.push(sample);
        self.samples.last().ok_or_else(|| anyhow::anyhow!("a sample was lost"))
    }

    /// Halves the density when the series has too many points.
    fn thin_out(&mut self) {
        if self.samples.len() >= MOST {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            self.interval_ns *= 2;
        }
    }

    pub fn samples(self) -> Vec<Sample> {
        self.samples
    }
}
