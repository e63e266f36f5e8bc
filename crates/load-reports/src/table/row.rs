//! A row, and the entry of a cluster.

use super::keys::Map;
use super::shares::Owner;
use crate::counters::{Counters, Gauges, MetricSum, Oddities, PerGroup, Tally};
use crate::report::{DroppedRequests, MetricStats, NamedMetric, Utilization};
use sluice_engine::Time;

/// An entry without a report for so many intervals is idle.
pub const IDLE: u32 = 2;

/// The sum of a name, with the owner of the entry.
#[derive(Clone, Copy, Debug)]
pub struct Owned<T> {
    pub sum: T,
    pub owner: Owner,
}

/// Sums by name, until the next report.
pub type Named<T> = Map<Box<str>, Owned<T>>;

/// Pending metrics.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub utilization: Utilization,
    pub named: Named<MetricSum>,
}

impl Metrics {
    pub fn add_utilization(&mut self, more: &Utilization, oddities: &mut Oddities) {
        self.utilization.cpu.add(&more.cpu, oddities);
        self.utilization.mem.add(&more.mem, oddities);
        self.utilization.application.add(&more.application, oddities);
    }

    pub fn listed(&self) -> Vec<NamedMetric<'_>> {
        self.named.iter().map(|(name, metric)| NamedMetric { name, sum: metric.sum }).collect()
    }

    pub fn stats(&self) -> Box<MetricStats<'_>> {
        Box::new(MetricStats { utilization: self.utilization, named: self.listed() })
    }
}

/// A locality of a cluster, or an endpoint.
#[derive(Clone, Debug)]
pub struct Row {
    /// Pending counters.
    pub counters: Counters,
    pub metrics: Option<Box<Metrics>>,
    /// The sum over the streams.
    pub gauges: Gauges,
    /// The latest metadata of an endpoint.
    pub metadata: Option<Box<[u8]>>,
    pub tallies: PerGroup<Tally>,
    /// The begin of the tallies, unless the observation began later.
    pub since: Time,
    /// The number of the interval with the latest report.
    pub touched: u32,
    pub owner: Owner,
}

impl Row {
    pub fn new(owner: Owner, touched: u32, since: Time) -> Row {
        Row {
            counters: Counters::default(),
            metrics: None,
            gauges: Gauges::default(),
            metadata: None,
            tallies: PerGroup::default(),
            since,
            touched,
            owner,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.metrics.is_none() && self.gauges.is_empty()
    }

    pub fn has_tallies(&self) -> bool {
        self.tallies != PerGroup::default()
    }

    /// Takes the gauges of a stream out of the sum.
    pub fn take_back(&mut self, gauges: Gauges) {
        let sum = &mut self.gauges;
        sum.in_progress = sum.in_progress.saturating_sub(gauges.in_progress);
        sum.active_connections = sum.active_connections.saturating_sub(gauges.active_connections);
    }

    /// Whether nothing refers to the row, and no recent report names the row.
    pub fn is_idle(&self, interval: u32) -> bool {
        self.is_empty() && self.touched.saturating_add(IDLE) <= interval
    }
}

#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Pending drops.
    pub dropped: u64,
    pub categories: Named<u64>,
    pub touched: u32,
    /// The number of the latest report with this cluster.
    pub report: u64,
    /// The server's latest word on the cluster has gauges that are not zero.
    pub shows_gauges: bool,
    pub owner: Owner,
    /// The word of all clients in the observation.
    pub voices: PerGroup<Tally>,
}

impl Cluster {
    pub fn new(owner: Owner) -> Cluster {
        Cluster { owner, ..Cluster::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.dropped == 0 && self.categories.is_empty()
    }

    pub fn is_idle(&self, interval: u32) -> bool {
        self.is_empty() && self.touched.saturating_add(IDLE) <= interval
    }
}

/// Drop categories in the words of a report.
pub fn listed(categories: &Named<u64>) -> Vec<DroppedRequests<'_>> {
    categories.iter().map(|(category, count)| DroppedRequests { category, count: count.sum }).collect()
}
