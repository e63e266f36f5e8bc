//! The rows of a class, with the bounds of one stream.

use super::keys::{ClusterKey, ClusterRef, Map, Names, RowKey};
use super::row::{Cluster, Metrics, Row};
use crate::counters::{Counters, Gauges, Group, Oddities};
use crate::report::{ClusterStats, EndpointStats, LocalityStats, NamedMetric, Place};

/// Longer names have no entry.
const NAME_MAX: usize = 4_096;
/// Longer metadata of an endpoint is left out.
const METADATA_MAX: usize = 256;
/// A long name counts as several entries.
const BYTES_PER_ENTRY: usize = 128;

/// The counters without room, as a row of their own (LRS-18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Names without an entry, counted each time.
    pub names: u64,
    pub counters: Counters,
    pub dropped: u64,
}

/// The gauges of a stream in a row, of 32 bits each, because a class has up to millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamGauge {
    pub row: u32,
    pub in_progress: u32,
    pub active_connections: u32,
}

impl StreamGauge {
    /// Adds gauges of the same row; false, and nothing is added, if the sum has no room.
    pub fn take_in(&mut self, more: &StreamGauge) -> bool {
        let in_progress = self.in_progress.checked_add(more.in_progress);
        let sums = in_progress.zip(self.active_connections.checked_add(more.active_connections));
        let Some((in_progress, active_connections)) = sums else { return false };
        (self.in_progress, self.active_connections) = (in_progress, active_connections);
        true
    }

    pub fn gauges(&self) -> Gauges {
        let (in_progress, active) = (self.in_progress, self.active_connections);
        Gauges { in_progress: u64::from(in_progress), active_connections: u64::from(active) }
    }
}

/// The circumstances under which a report is added.
pub struct Adding<'a> {
    /// Counters wait for a server.
    pub keeps_pending: bool,
    /// Rows for endpoints are wanted.
    pub has_endpoints: bool,
    /// The group with a tally for the report, if there is one.
    pub group: Option<Group>,
    /// The new entries that the stream may add.
    pub allowance: usize,
    /// The number of the report.
    pub report: u64,
    pub interval: u32,
    /// The gauges of the stream; `None`: gauges do not count.
    pub gauges: Option<&'a mut Vec<StreamGauge>>,
    pub oddities: &'a mut Oddities,
    pub left_out: &'a mut LeftOut,
}

impl Adding<'_> {
    /// Takes an entry for a name out of the allowance. False: the name has no room.
    fn admit(&mut self, bytes: usize) -> bool {
        let cost = cost(bytes);
        if bytes > NAME_MAX || cost > self.allowance {
            self.left_out.names += 1;
            return false;
        }
        self.allowance -= cost;
        true
    }

    fn leave_out(&mut self, locality: &LocalityStats<'_>) {
        self.left_out.counters.add(&locality.counters, self.oddities);
    }

    fn narrow(&mut self, gauge: u64) -> u32 {
        u32::try_from(gauge).unwrap_or_else(|_| {
            self.oddities.saturated += 1;
            u32::MAX
        })
    }
}

fn cost(bytes: usize) -> usize {
    1 + bytes / BYTES_PER_ENTRY
}

fn place_bytes(place: &Place<'_>) -> usize {
    place.region.len() + place.zone.len() + place.sub_zone.len()
}

/// Clusters and their rows.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub clusters: Map<ClusterKey, Cluster>,
    pub names: Names,
    pub rows: Map<RowKey, Row>,
    /// Finished requests that wait for a server.
    pub pending: u64,
    /// Anything waits: requests, drops or metrics.
    pub has_pending: bool,
    /// Entries of clusters and rows.
    lasting: usize,
    /// Entries of drop categories and metrics, until the next report.
    passing: usize,
}

impl Rows {
    pub fn entries(&self) -> usize {
        self.lasting + self.passing
    }

    pub fn add(&mut self, stats: &ClusterStats<'_>, adding: &mut Adding<'_>) {
        let Some(number) = self.cluster(ClusterRef { name: stats.name, service: stats.service }, adding)
        else {
            adding.oddities.add(&mut adding.left_out.dropped, stats.dropped);
            stats.localities.iter().for_each(|locality| adding.leave_out(locality));
            return;
        };
        let Some((_, cluster)) = self.clusters.get_index_mut(number as usize) else { return };
        (cluster.touched, cluster.report) = (adding.interval, adding.report);
        self.has_pending |= adding.keeps_pending;
        if adding.keeps_pending {
            adding.oddities.add(&mut cluster.dropped, stats.dropped);
            for dropped in &stats.categories {
                match cluster.categories.get_mut(dropped.category) {
                    Some(sum) => adding.oddities.add(sum, dropped.count),
                    None if adding.admit(dropped.category.len()) => {
                        self.passing += cost(dropped.category.len());
                        cluster.categories.insert(dropped.category.into(), dropped.count);
                    }
                    None => {}
                }
            }
        }
        for locality in &stats.localities {
            self.add_locality(number, locality, adding);
        }
    }

    fn cluster(&mut self, key: ClusterRef<'_>, adding: &mut Adding<'_>) -> Option<u32> {
        let bytes = key.name.len() + key.service.len();
        match self.clusters.get_index_of(&key) {
            Some(number) => Some(number as u32),
            None if adding.admit(bytes) => Some(self.insert_cluster(key.to_key())),
            None => None,
        }
    }

    /// Adds a new cluster, whatever the bounds.
    pub fn insert_cluster(&mut self, key: ClusterKey) -> u32 {
        self.lasting += cost(key.name.len() + key.service.len());
        self.clusters.insert_full(key, Cluster::default()).0 as u32
    }

    /// Adds a new row, whatever the bounds.
    pub fn insert_row(
        &mut self,
        cluster: u32,
        place: &Place<'_>,
        priority: u32,
        address: Option<&[u8]>,
    ) -> usize {
        self.lasting += cost(row_bytes(place, address));
        let place = self.names.add_place(place);
        let address = address.map(|address| self.names.add_address(address));
        self.rows.insert_full(RowKey { cluster, place, priority, address }, Row::default()).0
    }

    /// The number of a row; `None` without a row.
    pub fn row_number(
        &self,
        cluster: u32,
        place: &Place<'_>,
        priority: u32,
        address: Option<&[u8]>,
    ) -> Option<usize> {
        let place = self.names.place_number(place)?;
        let address = match address {
            Some(address) => Some(self.names.address_number(address)?),
            None => None,
        };
        self.rows.get_index_of(&RowKey { cluster, place, priority, address })
    }

    fn add_locality(&mut self, cluster: u32, stats: &LocalityStats<'_>, adding: &mut Adding<'_>) {
        let number = match self.row_number(cluster, &stats.place, stats.priority, None) {
            Some(number) => number,
            None if adding.admit(row_bytes(&stats.place, None)) => {
                self.insert_row(cluster, &stats.place, stats.priority, None)
            }
            None => return adding.leave_out(stats),
        };
        let Some((_, row)) = self.rows.get_index_mut(number) else { return };
        row.touched = adding.interval;
        if adding.keeps_pending {
            row.counters.add(&stats.counters, adding.oddities);
            self.pending = self.pending.saturating_add(stats.counters.finished());
            if let Some(metrics) = &stats.metrics {
                let kept = row.metrics.get_or_insert_default();
                kept.add_utilization(&metrics.utilization, adding.oddities);
                self.passing += add_named(kept, &metrics.named, adding);
            }
        }
        if let Some(group) = adding.group {
            row.tallies.in_group(group).add(stats.counters.success, stats.counters.error);
        }
        set_gauges(number, row, stats.gauges, adding);
        // LRS-18, LRS-9: rows of endpoints only at the server's wish.
        if adding.has_endpoints && adding.keeps_pending {
            for endpoint in &stats.endpoints {
                self.add_endpoint(cluster, stats, endpoint, adding);
            }
        }
    }

    /// An endpoint without a row still counts in the row of the locality.
    fn add_endpoint(
        &mut self,
        cluster: u32,
        locality: &LocalityStats<'_>,
        stats: &EndpointStats<'_>,
        adding: &mut Adding<'_>,
    ) {
        let address = Some(stats.address);
        let number = match self.row_number(cluster, &locality.place, locality.priority, address) {
            Some(number) => number,
            None if adding.admit(row_bytes(&locality.place, address)) => {
                self.insert_row(cluster, &locality.place, locality.priority, address)
            }
            None => return,
        };
        let Some((_, row)) = self.rows.get_index_mut(number) else { return };
        row.touched = adding.interval;
        row.counters.add(&stats.counters, adding.oddities);
        if (1..=METADATA_MAX).contains(&stats.metadata.len()) {
            row.metadata = Some(stats.metadata.into());
        }
        if !stats.named.is_empty() {
            self.passing += add_named(row.metrics.get_or_insert_default(), &stats.named, adding);
        }
        set_gauges(number, row, Gauges { in_progress: stats.in_progress, active_connections: 0 }, adding);
    }

    /// Takes over the pending counts of moved rows.
    pub fn carry_over(&mut self, before: &Rows) {
        (self.pending, self.passing) = (before.pending, before.passing);
        self.has_pending = before.has_pending;
    }

    /// All pending counters have left.
    pub fn emptied(&mut self) {
        (self.pending, self.passing, self.has_pending) = (0, 0, false);
    }
}

fn row_bytes(place: &Place<'_>, address: Option<&[u8]>) -> usize {
    place_bytes(place) + address.map_or(0, |address| address.len() + METADATA_MAX)
}

/// Adds metrics; gives the entries of the new ones.
fn add_named(metrics: &mut Metrics, named: &[NamedMetric<'_>], adding: &mut Adding<'_>) -> usize {
    let mut entries = 0;
    for metric in named {
        match metrics.named.get_mut(metric.name) {
            Some(sum) => sum.add(&metric.sum, adding.oddities),
            None if adding.admit(metric.name.len()) => {
                entries += cost(metric.name.len());
                metrics.named.entry(metric.name.into()).or_default().add(&metric.sum, adding.oddities);
            }
            None => {}
        }
    }
    entries
}

/// Adds the gauges of a stream to a row. Zeros are not kept: most gauges are zero.
fn set_gauges(number: usize, row: &mut Row, stated: Gauges, adding: &mut Adding<'_>) {
    if stated.is_empty() || adding.gauges.is_none() {
        return;
    }
    let gauge = StreamGauge {
        row: number as u32,
        in_progress: adding.narrow(stated.in_progress),
        active_connections: adding.narrow(stated.active_connections),
    };
    if let Some(gauges) = adding.gauges.as_mut() {
        gauges.push(gauge);
        row.gauges.in_progress += u64::from(gauge.in_progress);
        row.gauges.active_connections += u64::from(gauge.active_connections);
    }
}
