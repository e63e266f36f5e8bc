//! The counters and gauges of a class at one server, and the streams behind them.

mod keys;
mod shares;
mod gauges;
mod row;
mod rows;
mod room;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::codec::{ReportMessage, ReportWriter};
use crate::counters::{Counters, Gauges, Group, Oddities, PerGroup, Tally};
use crate::limits::LoadLimits;
use crate::report::{ClusterStats, EndpointStats, LoadReport, LocalityStats, Place};
use crate::wish::Wish;
use gauges::{StreamGauge, StreamGauges};
use keys::{ClusterKey, RowKey};
use row::{Cluster, Metrics, Row, listed};
pub use rows::LeftOut;
use rows::{Adder, Adding, Interval, Rows, cluster_cost, row_cost};
pub use shares::level;
use shares::{NOBODY, Owner, Shares, Stay};
use sluice_engine::Time;
use sluice_xds::Locality;

/// A stream of a client, by its number within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The reports of a stream.
#[derive(Clone, Debug, Default)]
struct Stream {
    group: Group,
    gauges: StreamGauges,
    owner: Owner,
    /// The observation with a begin before the whole time of the next report.
    observed: Option<u32>,
    /// The latest observation with a share of this stream.
    counted: Option<u32>,
    /// The latest report that was a voice.
    spoken_at: Option<Time>,
    /// The next report is no voice.
    is_mute: bool,
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
    /// The begin of the tallies, unless the observation began later.
    pub since: Time,
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

/// The gauges by row, each row once: a report may name a locality many times.
fn summed(gauges: &mut Vec<StreamGauge>) -> &[StreamGauge] {
    gauges.sort_unstable_by_key(|gauge| gauge.row);
    gauges.dedup_by(|more, gauge| more.row == gauge.row && gauge.take_in(more));
    gauges
}

/// The table of a class. Wide because a report is one step over all of it.
#[derive(Clone, Debug)]
pub struct Table {
    limits: LoadLimits,
    /// The bounds by the entries of other classes: of all entries, and of new ones.
    room_max: usize,
    free: usize,
    rows: Rows,
    streams: BTreeMap<StreamId, Stream>,
    shares: Shares,
    /// The most entries of a connection that adds some to a nearly full table, until the interval ends.
    level: Option<usize>,
    /// The interval in which no cut of the largest shares helped.
    pressed: Option<u32>,
    interval: Interval,
    /// The number of the latest report.
    report: u64,
    observation: u32,
    /// The tallies are evidence about a push, until its end.
    is_observing: bool,
    reporters: PerGroup<u64>,
    /// The interval in which a name had no room lately.
    shortage: Option<u32>,
    oddities: Oddities,
    left_out: LeftOut,
    /// The gauges of the report under way. The table keeps the memory.
    scratch: Vec<StreamGauge>,
}

impl Table {
    pub fn new(limits: LoadLimits, now: Time) -> Table {
        Table {
            limits,
            room_max: usize::MAX,
            free: usize::MAX,
            rows: Rows::default(),
            streams: BTreeMap::new(),
            shares: Shares::new(),
            level: None,
            pressed: None,
            interval: Interval { number: 0, since: now },
            report: 0,
            observation: 0,
            is_observing: false,
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

    fn stream(&mut self, id: StreamId) -> &mut Stream {
        let shares = &mut self.shares;
        self.streams.entry(id).or_insert_with(|| Stream { owner: shares.arrive(), ..Stream::default() })
    }

    /// The connection of a stream, by the caller's number (LRS-18).
    pub fn join(&mut self, id: StreamId, connection: u64) {
        let owner = self.stream(id).owner;
        self.shares.join(owner, connection);
    }

    /// A stream has a group, now and for later reports.
    pub fn set_group(&mut self, id: StreamId, group: Group) {
        let stream = self.stream(id);
        if stream.group != group {
            // The next report covers time in both groups.
            (stream.group, stream.observed) = (group, None);
        }
    }

    /// Before a report: whether it counts in the judgement of a push. A stream has a voice once in `gap`, and
    /// none for time before the observation.
    pub fn hear(&mut self, id: StreamId, is_of_observation: bool, gap: Duration, now: Time) {
        let stream = self.stream(id);
        let is_free = stream.spoken_at.is_none_or(|spoken_at| now >= spoken_at + gap);
        stream.is_mute = !(is_of_observation && is_free);
        if !stream.is_mute {
            stream.spoken_at = Some(now);
        }
    }

    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// The memory of a stream's gauges.
    pub fn gauge_bytes(&self, id: StreamId) -> usize {
        self.streams.get(&id).map_or(0, |stream| stream.gauges.bytes())
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
        self.report += 1;
        let (observation, stream) = (self.observation, self.stream(id));
        let is_observed = stream.observed.replace(observation) == Some(observation);
        let is_first = is_observed && stream.counted.replace(observation) != Some(observation);
        let (group, owner, is_voice) = (stream.group, stream.owner, !stream.is_mute);
        if is_first {
            *self.reporters.in_group(group) += 1;
        }
        let allowance = self.allowance(owner);
        let names_before = self.left_out.names;
        self.scratch.clear();
        let most = self.limits.load_rows_per_stream;
        let mut adding = Adding {
            keeps_pending: keeping.pending,
            // Endpoints give way first (LRS-18): they may take half of the room.
            has_endpoints: keeping.endpoints && self.rows.entries() < self.limits.load_rows / 2,
            group: is_observed.then_some(group),
            is_voice,
            by: Adder { owner, shares: &mut self.shares, allowance, most },
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
        if self.left_out.names > names_before {
            self.shortage = Some(self.interval.number);
        }
        self.oddities.saturated += report.cut;
        self.replace_gauges(id);
        self.relieve();
        finished
    }

    /// LRS-15: replaces the gauges of a stream as a whole, for each cluster of the report. A locality without
    /// a name in the report has no gauges any more.
    fn replace_gauges(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let rows = &mut self.rows;
        for gauge in stream.gauges.iter() {
            let Some((key, row)) = rows.rows.get_index_mut(gauge.row as usize) else { continue };
            let cluster = rows.clusters.get_index(key.cluster as usize);
            let is_named = cluster.is_some_and(|entry| entry.1.report == self.report);
            if is_named {
                row.take_back(gauge.gauges());
            } else {
                self.scratch.push(gauge);
            }
        }
        stream.gauges = StreamGauges::pack(summed(&mut self.scratch));
    }

    /// The stream ended: the gauges are taken back, and the counters stay.
    pub fn close(&mut self, id: StreamId) {
        self.leave(id);
    }

    /// The stream moves to another class, with its gauges.
    pub fn leave(&mut self, id: StreamId) -> Departure {
        let mut departing = Vec::new();
        let Some(stream) = self.streams.remove(&id) else { return Departure::default() };
        self.shares.leave(stream.owner);
        for gauge in stream.gauges.iter() {
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
        let (owner, mut gauges) = (self.stream(id).owner, self.stream(id).gauges.iter().collect::<Vec<_>>());
        for DepartingGauge { cluster, locality, priority, mut gauge } in departure.0 {
            let place = Place::from(&locality);
            // Without room, the next report brings the gauge again.
            let Some(row) = self.place(owner, cluster, &place, priority) else { continue };
            gauge.row = row as u32;
            if let Some((_, row)) = self.rows.rows.get_index_mut(row) {
                row.gauges.in_progress += u64::from(gauge.in_progress);
                row.gauges.active_connections += u64::from(gauge.active_connections);
                row.touched = self.interval.number;
                gauges.push(gauge);
            }
        }
        self.stream(id).gauges = StreamGauges::pack(summed(&mut gauges));
    }

    /// Finds or adds the row of a locality.
    fn place(
        &mut self,
        owner: Owner,
        cluster: ClusterKey,
        place: &Place<'_>,
        priority: u32,
    ) -> Option<usize> {
        let number = self.rows.clusters.get_index_of(&cluster).map(|number| number as u32);
        let row = number.and_then(|number| self.rows.row_number(number, place, priority, None));
        if row.is_some() {
            return row;
        }
        let new_cluster = if number.is_some() { 0 } else { cluster_cost(&cluster) };
        let cost = new_cluster + row_cost(place, None);
        if cost > self.allowance(owner) {
            return None;
        }
        self.shares.take(owner, cost, Stay::Lasting);
        let number = number.unwrap_or_else(|| self.rows.insert_cluster(cluster, Cluster::new(owner)));
        let row = Row::new(owner, self.interval.number, self.interval.since);
        Some(self.rows.insert_row(number, place, priority, None, row))
    }

    /// Adds a report of this relay or a predecessor back: counters alone, whatever the bounds.
    pub fn restore(&mut self, report: &LoadReport<'_>) {
        let mut adding = Adding {
            keeps_pending: true,
            has_endpoints: true,
            group: None,
            is_voice: false,
            by: Adder { owner: NOBODY, shares: &mut self.shares, allowance: usize::MAX, most: usize::MAX },
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
    pub fn take(&mut self, wish: &Wish, interval: Duration, now: Time) -> Taken {
        let take_drops = |cluster: &mut Cluster| {
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
        self.next_interval(now);
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
        self.shares.emptied();
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

    /// Begins another observation: tallies go back to zero. The next report of each stream covers time
    /// before, so no tally has a share of the report.
    pub fn observe(&mut self) {
        (self.observation, self.is_observing) = (self.observation + 1, true);
        self.reporters = PerGroup::default();
        self.rows.rows.values_mut().for_each(|row| row.tallies = PerGroup::default());
        self.rows.clusters.values_mut().for_each(|cluster| cluster.voices = PerGroup::default());
    }

    /// The push is over: idle rows go, although they have tallies.
    pub fn end_observation(&mut self) {
        self.is_observing = false;
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
                since: row.since,
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

    /// The word of all clients about each cluster.
    pub fn voices(&self) -> impl Iterator<Item = (&str, PerGroup<Tally>)> {
        let clusters = self.rows.clusters.iter().map(|(key, cluster)| (&*key.name, cluster.voices));
        clusters.filter(|entry| entry.1 != PerGroup::default())
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

#[cfg(test)]
mod tests;
