//! The counters and gauges of a class at one server, and the streams behind them.

mod keys;
mod row;
mod rows;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::codec::{ReportMessage, ReportWriter};
use crate::counters::{Counters, Gauges, Group, Oddities, PerGroup, Tally};
use crate::limits::LoadLimits;
use crate::report::{ClusterStats, DroppedRequests, EndpointStats, LoadReport, LocalityStats, Place};
use crate::wish::Wish;
use keys::{ClusterKey, Map, RowKey};
use row::{IDLE, Metrics};
pub use rows::LeftOut;
use rows::{Adding, Rows, StreamGauge};
use sluice_xds::Locality;

/// A stream of a client, by its number within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The reports of a stream.
#[derive(Clone, Debug, Default)]
struct Stream {
    group: Group,
    /// Gauges that are not zero.
    gauges: Vec<StreamGauge>,
    /// New entries since the latest look at idle entries.
    created: usize,
    /// The observation with a begin before the whole time of the next report.
    observed: Option<u32>,
    /// The latest observation with a share of this stream.
    counted: Option<u32>,
}

/// The gauges of a stream on its way to another class (ADR 36). Counters stay.
#[derive(Clone, Debug, Default)]
pub struct Departure(Vec<DepartingGauge>);

#[derive(Clone, Debug)]
struct DepartingGauge {
    cluster: ClusterKey,
    locality: Locality,
    priority: u32,
    gauge: StreamGauge,
}

/// The purpose of a report's counters.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// Counters wait for a server.
    pub pending: bool,
    /// The server asked for rows of endpoints.
    pub endpoints: bool,
}

/// The report of an interval.
#[derive(Debug)]
pub struct Taken {
    pub messages: Vec<ReportMessage>,
    /// Finished requests of clusters without a wish of the server.
    pub unwanted: u64,
}

/// A row for operators, with both groups (LRS-25).
#[derive(Clone, Debug, PartialEq)]
pub struct RowView<'a> {
    pub cluster: &'a str,
    pub service: &'a str,
    pub place: Place<'a>,
    pub priority: u32,
    pub tallies: PerGroup<Tally>,
    pub gauges: Gauges,
}

/// The content of a row for the next report.
struct Pending {
    key: RowKey,
    counters: Counters,
    metrics: Option<Box<Metrics>>,
    gauges: Gauges,
    metadata: Option<Box<[u8]>>,
}

fn listed(categories: &Map<Box<str>, u64>) -> Vec<DroppedRequests<'_>> {
    categories.iter().map(|(category, count)| DroppedRequests { category, count: *count }).collect()
}

/// The table of a class.
#[derive(Clone, Debug)]
pub struct Table {
    limits: LoadLimits,
    rows: Rows,
    streams: BTreeMap<StreamId, Stream>,
    /// The number of the interval.
    interval: u32,
    /// The number of the latest report.
    report: u64,
    observation: u32,
    reporters: PerGroup<u64>,
    /// The interval in which a name had no room lately.
    shortage: Option<u32>,
    oddities: Oddities,
    left_out: LeftOut,
    /// The gauges of the report under way. The table keeps the memory.
    scratch: Vec<StreamGauge>,
}

impl Table {
    pub fn new(limits: LoadLimits) -> Table {
        Table {
            limits,
            rows: Rows::default(),
            streams: BTreeMap::new(),
            interval: 0,
            report: 0,
            observation: 0,
            reporters: PerGroup::default(),
            shortage: None,
            oddities: Oddities::default(),
            left_out: LeftOut::default(),
            scratch: Vec::new(),
        }
    }

    pub fn configure(&mut self, limits: LoadLimits) {
        self.limits = limits;
    }

    /// A stream has a group, now and for later reports.
    pub fn set_group(&mut self, id: StreamId, group: Group) {
        let stream = self.streams.entry(id).or_default();
        if stream.group != group {
            // The next report covers time in both groups.
            (stream.group, stream.observed) = (group, None);
        }
    }

    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// The memory of a stream's gauges.
    pub fn gauge_bytes(&self, id: StreamId) -> usize {
        self.streams.get(&id).map_or(0, |stream| stream.gauges.capacity() * size_of::<StreamGauge>())
    }

    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Counts the clusters of a report for which `takes` is true, as one step (LRS-15). Gives their finished
    /// requests.
    pub fn count(
        &mut self,
        id: StreamId,
        report: &LoadReport<'_>,
        keeping: Keeping,
        takes: impl Fn(&str) -> bool,
    ) -> u64 {
        let stream = self.streams.entry(id).or_default();
        self.report += 1;
        let is_observed = stream.observed.replace(self.observation) == Some(self.observation);
        if is_observed && stream.counted.replace(self.observation) != Some(self.observation) {
            *self.reporters.in_group(stream.group) += 1;
        }
        let in_class = self.limits.load_rows.saturating_sub(self.rows.entries());
        let in_stream = self.limits.load_rows_per_stream.saturating_sub(stream.created);
        let allowance = in_class.min(in_stream);
        let names_before = self.left_out.names;
        self.scratch.clear();
        let mut adding = Adding {
            keeps_pending: keeping.pending,
            // Endpoints give way first (LRS-18): they may take half of the room.
            has_endpoints: keeping.endpoints && self.rows.entries() < self.limits.load_rows / 2,
            group: is_observed.then_some(stream.group),
            allowance,
            report: self.report,
            interval: self.interval,
            gauges: Some(&mut self.scratch),
            oddities: &mut self.oddities,
            left_out: &mut self.left_out,
        };
        let mut finished = 0u64;
        for cluster in report.clusters.iter().filter(|cluster| takes(cluster.name)) {
            let rows = cluster.localities.iter().map(|locality| locality.counters.finished());
            finished = rows.fold(finished, u64::saturating_add);
            self.rows.add(cluster, &mut adding);
        }
        stream.created += allowance - adding.allowance;
        if self.left_out.names > names_before {
            self.shortage = Some(self.interval);
        }
        self.oddities.saturated += report.cut;
        self.replace_gauges(id);
        finished
    }

    /// LRS-15: replaces the gauges of a stream as a whole, for each cluster of the report. A locality without
    /// a name in the report has no gauges any more.
    fn replace_gauges(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let rows = &mut self.rows;
        // A report may name a locality many times.
        self.scratch.sort_unstable_by_key(|gauge| gauge.row);
        self.scratch.dedup_by(|more, gauge| more.row == gauge.row && gauge.take_in(more));
        stream.gauges.retain(|gauge| {
            let Some((key, row)) = rows.rows.get_index_mut(gauge.row as usize) else { return false };
            let cluster = rows.clusters.get_index(key.cluster as usize);
            let is_named = cluster.is_some_and(|entry| entry.1.report == self.report);
            if is_named {
                row.take_back(gauge.gauges());
            }
            !is_named
        });
        stream.gauges.reserve_exact(self.scratch.len());
        stream.gauges.extend_from_slice(&self.scratch);
        if stream.gauges.capacity() > 2 * stream.gauges.len() {
            stream.gauges.shrink_to_fit();
        }
    }

    /// The stream ended: the gauges are taken back, and the counters stay.
    pub fn close(&mut self, id: StreamId) {
        self.leave(id);
    }

    /// The stream moves to another class, with its gauges.
    pub fn leave(&mut self, id: StreamId) -> Departure {
        let mut departing = Vec::new();
        for gauge in self.streams.remove(&id).into_iter().flat_map(|stream| stream.gauges) {
            let Some((key, row)) = self.rows.rows.get_index_mut(gauge.row as usize) else { continue };
            row.take_back(gauge.gauges());
            let Some((cluster, _)) = self.rows.clusters.get_index(key.cluster as usize) else { continue };
            // The next report brings the endpoints again.
            if key.address.is_none() {
                let locality = self.rows.names.locality(key.place);
                let (cluster, priority) = (cluster.clone(), key.priority);
                departing.push(DepartingGauge { cluster, locality, priority, gauge });
            }
        }
        Departure(departing)
    }

    /// A stream comes from another class, with its gauges.
    pub fn arrive(&mut self, id: StreamId, group: Group, departure: Departure) {
        self.set_group(id, group);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        for DepartingGauge { cluster, locality, priority, mut gauge } in departure.0 {
            let number = self.rows.clusters.get_index_of(&cluster).map(|number| number as u32);
            let number = number.unwrap_or_else(|| self.rows.insert_cluster(cluster));
            let place = Place::from(&locality);
            let row = self.rows.row_number(number, &place, priority, None);
            let row = row.unwrap_or_else(|| self.rows.insert_row(number, &place, priority, None));
            gauge.row = row as u32;
            if let Some((_, row)) = self.rows.rows.get_index_mut(row) {
                row.gauges.in_progress += u64::from(gauge.in_progress);
                row.gauges.active_connections += u64::from(gauge.active_connections);
                row.touched = self.interval;
                stream.gauges.push(gauge);
            }
        }
    }

    /// Adds a report of this relay or a predecessor back: counters alone, whatever the bounds.
    pub fn restore(&mut self, report: &LoadReport<'_>) {
        let mut adding = Adding {
            keeps_pending: true,
            has_endpoints: true,
            group: None,
            allowance: usize::MAX,
            report: 0,
            interval: self.interval,
            gauges: None,
            oddities: &mut self.oddities,
            left_out: &mut self.left_out,
        };
        for cluster in &report.clusters {
            self.rows.add(cluster, &mut adding);
        }
    }

    /// Takes all pending counters, as the report of an interval.
    pub fn take(&mut self, wish: &Wish, interval: Duration) -> Taken {
        let take_drops = |cluster: &mut row::Cluster| {
            (std::mem::take(&mut cluster.dropped), std::mem::take(&mut cluster.categories))
        };
        let drops: Vec<_> = self.rows.clusters.values_mut().map(take_drops).collect();
        let pending = self.take_rows();
        let mut shows_gauges: Vec<bool> =
            self.rows.clusters.values().map(|cluster| cluster.shows_gauges).collect();
        let (mut writer, mut unwanted) = (ReportWriter::default(), 0u64);
        let mut rest = pending.as_slice();
        for (number, (key, (dropped, categories))) in self.rows.clusters.keys().zip(&drops).enumerate() {
            let end = rest.partition_point(|row| row.key.cluster as usize <= number);
            let (rows, later) = rest.split_at(end);
            rest = later;
            if !wish.clusters.has(&key.name) {
                let localities = rows.iter().filter(|row| row.key.address.is_none());
                unwanted = localities.map(|row| row.counters.finished()).fold(unwanted, u64::saturating_add);
                continue;
            }
            let stats = ClusterStats {
                name: &key.name,
                service: &key.service,
                localities: self.localities(rows, wish.has_endpoints),
                dropped: *dropped,
                categories: listed(categories),
                interval,
            };
            // LRS-15: a server replaces the gauges of the clusters in a report. So it is told once of gauges
            // that have ended.
            let showed = std::mem::take(&mut shows_gauges[number]);
            shows_gauges[number] = stats.localities.iter().any(|locality| !locality.gauges.is_empty());
            let has_counters = stats.dropped != 0 || !stats.categories.is_empty();
            if has_counters || !stats.localities.is_empty() || showed {
                writer.push(&stats);
            }
        }
        for (cluster, shows_gauges) in self.rows.clusters.values_mut().zip(shows_gauges) {
            cluster.shows_gauges = shows_gauges;
        }
        let messages = writer.finish();
        self.next_interval();
        Taken { messages, unwanted }
    }

    /// Takes the pending counters of all rows, in the order of the report.
    fn take_rows(&mut self) -> Vec<Pending> {
        let take_row = |(key, row): (&RowKey, &mut row::Row)| Pending {
            key: *key,
            counters: std::mem::take(&mut row.counters),
            metrics: row.metrics.take(),
            gauges: row.gauges,
            metadata: row.metadata.clone(),
        };
        let rows = self.rows.rows.iter_mut().filter(|entry| !entry.1.is_empty());
        let mut pending: Vec<Pending> = rows.map(take_row).collect();
        self.rows.emptied();
        pending.sort_unstable_by_key(|row| row.key);
        pending
    }

    /// The localities of a cluster, each with its endpoints.
    fn localities<'a>(&'a self, rows: &'a [Pending], has_endpoints: bool) -> Vec<LocalityStats<'a>> {
        let mut localities: Vec<LocalityStats<'_>> = Vec::new();
        let is_one = |one: &Pending, other: &Pending| {
            (one.key.place, one.key.priority) == (other.key.place, other.key.priority)
        };
        for rows in rows.chunk_by(is_one) {
            let Some(first) = rows.first() else { continue };
            let place = self.rows.names.place(first.key.place);
            let mut stats = LocalityStats { place, priority: first.key.priority, ..LocalityStats::default() };
            for row in rows {
                match row.key.address {
                    None => {
                        (stats.counters, stats.gauges) = (row.counters, row.gauges);
                        stats.metrics = row.metrics.as_ref().map(|metrics| metrics.stats());
                    }
                    Some(_) if !has_endpoints => {}
                    Some(address) => stats.endpoints.push(EndpointStats {
                        address: self.rows.names.address(address),
                        counters: row.counters,
                        in_progress: row.gauges.in_progress,
                        named: row.metrics.as_ref().map_or(Vec::new(), |metrics| metrics.listed()),
                        metadata: row.metadata.as_deref().unwrap_or_default(),
                    }),
                }
            }
            localities.push(stats);
        }
        localities
    }

    /// Begins the next interval: idle entries make room after a shortage.
    pub fn next_interval(&mut self) {
        self.interval = self.interval.saturating_add(1);
        // The entries behind a shortage are idle two intervals later.
        if self.shortage.is_some_and(|interval| interval.saturating_add(IDLE) >= self.interval) {
            self.make_room();
        }
    }

    /// Drops idle entries.
    fn make_room(&mut self) {
        let before = std::mem::take(&mut self.rows);
        let mut numbers = vec![None; before.rows.len()];
        let mut clusters = vec![None; before.clusters.len()];
        for (place, (key, row)) in before.rows.iter().enumerate() {
            let cluster = before.clusters.get_index(key.cluster as usize);
            let Some((name, cluster)) = cluster.filter(|_| !row.is_idle(self.interval)) else { continue };
            let number = *clusters[key.cluster as usize].get_or_insert_with(|| {
                let number = self.rows.insert_cluster(name.clone());
                self.rows.clusters[number as usize] = cluster.clone();
                number
            });
            let address = key.address.map(|address| before.names.address(address));
            let place_name = before.names.place(key.place);
            let row_number = self.rows.insert_row(number, &place_name, key.priority, address);
            self.rows.rows[row_number] = row.clone();
            numbers[place] = Some(row_number as u32);
        }
        let left = before.clusters.iter().zip(&clusters).filter(|entry| entry.1.is_none());
        for ((key, cluster), _) in left.filter(|entry| !entry.0.1.is_idle(self.interval)) {
            let number = self.rows.insert_cluster(key.clone());
            self.rows.clusters[number as usize] = cluster.clone();
        }
        self.rows.carry_over(&before);
        for stream in self.streams.values_mut() {
            stream.created = 0;
            stream.gauges.retain_mut(|gauge| {
                let number = numbers.get(gauge.row as usize).copied().flatten();
                gauge.row = number.unwrap_or_default();
                number.is_some()
            });
        }
    }

    /// Begins another observation: tallies go back to zero. The next report of each stream covers time
    /// before, so no tally has a share of the report.
    pub fn observe(&mut self) {
        self.observation += 1;
        self.reporters = PerGroup::default();
        for row in self.rows.rows.values_mut() {
            row.tallies = PerGroup::default();
        }
    }

    /// The streams of each group with a share of the tallies.
    pub fn reporters(&self) -> PerGroup<u64> {
        self.reporters
    }

    /// The rows of localities.
    pub fn views(&self) -> impl Iterator<Item = RowView<'_>> {
        let rows = self.rows.rows.iter().filter(|entry| entry.0.address.is_none());
        rows.filter_map(|(key, row)| {
            let (cluster, _) = self.rows.clusters.get_index(key.cluster as usize)?;
            Some(RowView {
                cluster: &cluster.name,
                service: &cluster.service,
                place: self.rows.names.place(key.place),
                priority: key.priority,
                tallies: row.tallies,
                gauges: row.gauges,
            })
        })
    }

    /// Finished requests that wait for a server.
    pub fn pending(&self) -> u64 {
        self.rows.pending
    }

    /// Whether anything waits for a server: requests, drops or metrics.
    pub fn has_pending(&self) -> bool {
        self.rows.has_pending
    }

    /// The tallies of each cluster.
    pub fn tallies(&self) -> BTreeMap<&str, PerGroup<Tally>> {
        let mut clusters = BTreeMap::<&str, PerGroup<Tally>>::new();
        for view in self.views() {
            let sums = clusters.entry(view.cluster).or_default();
            for group in [Group::Admitted, Group::Others] {
                let Tally { success, error } = *view.tallies.clone().in_group(group);
                sums.in_group(group).add(success, error);
            }
        }
        clusters
    }

    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    pub fn oddities(&self) -> Oddities {
        self.oddities
    }

    /// Clusters, rows and names, as the bounds count them.
    pub fn entries(&self) -> usize {
        self.rows.entries()
    }
}
