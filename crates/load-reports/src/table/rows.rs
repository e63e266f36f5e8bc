//! The rows of a class, with the bounds of one stream.

use super::gauges::StreamGauge;
use super::keys::{ClusterKey, ClusterRef, Map, Names, RowKey};
use super::row::{Cluster, Metrics, Owned, Row};
use super::shares::{Owner, Shares, Stay};
use crate::counters::{Counters, Gauges, Group, MetricSum, Oddities, Tally};
use crate::report::{ClusterStats, EndpointStats, LocalityStats, NamedMetric, Place};
use sluice_engine::Time;

/// Longer names have no entry.
const NAME_MAX: usize = 4_096;
/// Longer metadata of an endpoint is left out.
const METADATA_MAX: usize = 256;
/// A long name counts as several entries.
const BYTES_PER_ENTRY: usize = 128;
/// The drop categories of a cluster, and the metric names of a row: 500, so that neither fills a message.
const NAMES_MAX: usize = 500;

/// The counters without room, as a row of their own (LRS-18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Names without an entry, counted each time.
    pub names: u64,
    pub counters: Counters,
    pub dropped: u64,
}

/// An interval of the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    pub number: u32,
    pub since: Time,
}

/// The stream that adds a report.
pub struct Adder<'a> {
    pub owner: Owner,
    pub shares: &'a mut Shares,
    /// The new entries that the stream may add.
    pub allowance: usize,
    /// The most entries of a stream.
    pub most: usize,
}

/// The circumstances under which a report is added.
pub struct Adding<'a> {
    /// Counters wait for a server.
    pub keeps_pending: bool,
    /// Rows for endpoints are wanted.
    pub has_endpoints: bool,
    /// The group with a tally for the report, if there is one.
    pub group: Option<Group>,
    /// The report counts in the judgement of a push.
    pub is_voice: bool,
    pub by: Adder<'a>,
    /// The number of the report.
    pub report: u64,
    pub interval: Interval,
    /// The gauges of the stream; `None`: gauges do not count.
    pub gauges: Option<&'a mut Vec<StreamGauge>>,
    pub oddities: &'a mut Oddities,
    pub left_out: &'a mut LeftOut,
}

impl Adding<'_> {
    /// Takes an entry for a name out of the allowance. False: the name has no room.
    fn admit(&mut self, bytes: usize, stay: Stay) -> bool {
        let (cost, held) = (cost(bytes), self.by.shares.held(self.by.owner));
        if bytes > NAME_MAX || cost > self.by.allowance.min(self.by.most.saturating_sub(held)) {
            self.left_out.names += 1;
            return false;
        }
        self.by.allowance -= cost;
        self.by.shares.take(self.by.owner, cost, stay);
        true
    }

    /// The same for a name among others of its cluster or row.
    fn admit_among(&mut self, count: usize, bytes: usize) -> bool {
        if count >= NAMES_MAX {
            self.left_out.names += 1;
            return false;
        }
        self.admit(bytes, Stay::Passing)
    }

    /// The stream has an entry in its report.
    fn touch(&mut self, owner: &mut Owner, bytes: usize) {
        self.by.shares.adopt(owner, self.by.owner, cost(bytes), self.by.most);
    }

    fn new_row(&self) -> Row {
        Row::new(self.by.owner, self.interval.number, self.interval.since)
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

/// The entries for a name of so many bytes.
pub fn cost(bytes: usize) -> usize {
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
        (cluster.touched, cluster.report) = (adding.interval.number, adding.report);
        adding.touch(&mut cluster.owner, stats.name.len() + stats.service.len());
        self.has_pending |= adding.keeps_pending;
        if adding.keeps_pending {
            adding.oddities.add(&mut cluster.dropped, stats.dropped);
            for dropped in &stats.categories {
                let name = dropped.category;
                if let Some(kept) = cluster.categories.get_mut(name) {
                    adding.oddities.add(&mut kept.sum, dropped.count);
                } else if adding.admit_among(cluster.categories.len(), name.len()) {
                    self.passing += cost(name.len());
                    let kept = Owned { sum: dropped.count, owner: adding.by.owner };
                    cluster.categories.insert(name.into(), kept);
                }
            }
        }
        if let Some(group) = adding.group.filter(|_| adding.is_voice) {
            let mut tally = Tally::default();
            stats.localities.iter().for_each(|row| tally.add(row.counters.success, row.counters.error));
            let Tally { success, error } = tally.as_voice();
            cluster.voices.in_group(group).add(success, error);
        }
        for locality in &stats.localities {
            self.add_locality(number, locality, adding);
        }
    }

    fn cluster(&mut self, key: ClusterRef<'_>, adding: &mut Adding<'_>) -> Option<u32> {
        let bytes = key.name.len() + key.service.len();
        match self.clusters.get_index_of(&key) {
            Some(number) => Some(number as u32),
            None if adding.admit(bytes, Stay::Lasting) => {
                Some(self.insert_cluster(key.to_key(), Cluster::new(adding.by.owner)))
            }
            None => None,
        }
    }

    /// Adds a new cluster, whatever the bounds and the shares.
    pub fn insert_cluster(&mut self, key: ClusterKey, cluster: Cluster) -> u32 {
        self.lasting += cluster_cost(&key);
        self.clusters.insert_full(key, cluster).0 as u32
    }

    /// Adds a new row, whatever the bounds and the shares.
    pub fn insert_row(
        &mut self,
        cluster: u32,
        place: &Place<'_>,
        priority: u32,
        address: Option<&[u8]>,
        row: Row,
    ) -> usize {
        self.lasting += row_cost(place, address);
        let place = self.names.add_place(place);
        let address = address.map(|address| self.names.add_address(address));
        self.rows.insert_full(RowKey { cluster, place, priority, address }, row).0
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
            None if adding.admit(row_bytes(&stats.place, None), Stay::Lasting) => {
                self.insert_row(cluster, &stats.place, stats.priority, None, adding.new_row())
            }
            None => return adding.leave_out(stats),
        };
        let Some((_, row)) = self.rows.get_index_mut(number) else { return };
        row.touched = adding.interval.number;
        adding.touch(&mut row.owner, row_bytes(&stats.place, None));
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
            None if adding.admit(row_bytes(&locality.place, address), Stay::Lasting) => {
                self.insert_row(cluster, &locality.place, locality.priority, address, adding.new_row())
            }
            None => return,
        };
        let Some((_, row)) = self.rows.get_index_mut(number) else { return };
        row.touched = adding.interval.number;
        adding.touch(&mut row.owner, row_bytes(&locality.place, address));
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

    /// Names of drop categories or metrics are gone.
    pub fn forget_names(&mut self, cost: usize) {
        self.passing = self.passing.saturating_sub(cost);
    }

    /// All pending counters have left.
    pub fn emptied(&mut self) {
        (self.pending, self.passing, self.has_pending) = (0, 0, false);
    }
}

pub fn cluster_cost(key: &ClusterKey) -> usize {
    cost(key.name.len() + key.service.len())
}

pub fn row_cost(place: &Place<'_>, address: Option<&[u8]>) -> usize {
    cost(row_bytes(place, address))
}

fn row_bytes(place: &Place<'_>, address: Option<&[u8]>) -> usize {
    place_bytes(place) + address.map_or(0, |address| address.len() + METADATA_MAX)
}

/// Adds metrics; gives the entries of the new ones.
fn add_named(metrics: &mut Metrics, named: &[NamedMetric<'_>], adding: &mut Adding<'_>) -> usize {
    let mut entries = 0;
    for metric in named {
        if let Some(kept) = metrics.named.get_mut(metric.name) {
            kept.sum.add(&metric.sum, adding.oddities);
        } else if adding.admit_among(metrics.named.len(), metric.name.len()) {
            entries += cost(metric.name.len());
            let mut kept = Owned { sum: MetricSum::default(), owner: adding.by.owner };
            kept.sum.add(&metric.sum, adding.oddities);
            metrics.named.insert(metric.name.into(), kept);
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
