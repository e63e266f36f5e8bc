//! The reader of messages. Bounded, because a message of many empty elements is small.

use std::time::Duration;

use crate::counters::MetricSum;
use crate::report::{
    ClusterStats, DroppedRequests, EndpointStats, LoadReport, LocalityStats, MessageKind, NamedMetric, Place,
    UnknownFields,
};
use crate::wish::{Clusters, Wish};
use sluice_wire::fields::{Fields, Malformed, Payload};

/// Clusters, localities, endpoints, metrics and categories in one report: 100,000, more than the largest
/// honest client has, and 20 MB while the report is counted.
const ELEMENTS_MAX: usize = 100_000;

/// The feature of a client that understands `send_all_clusters`.
const SEND_ALL: &[u8] = b"envoy.lrs.supports_send_all_clusters";

/// Answers with more seconds are taken for a day: a server that says more has a fault.
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);

/// The reason why a report cannot be counted. Nothing of the report is counted then (LRS-15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportError {
    Malformed(Malformed),
    /// More elements than a report may have: the limit.
    TooManyElements(usize),
}

impl From<Malformed> for ReportError {
    fn from(malformed: Malformed) -> Self {
        ReportError::Malformed(malformed)
    }
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReportError::Malformed(malformed) => write!(f, "{malformed}"),
            ReportError::TooManyElements(most) => {
                write!(f, "a load report has more than {most} clusters, localities, endpoints and metrics")
            }
        }
    }
}

/// Reads a whole report, before anything of it is counted.
pub fn read_report(message: &[u8]) -> Result<LoadReport<'_>, ReportError> {
    let mut reader = Reader { elements: 0, unknown: UnknownFields::default() };
    let mut report = LoadReport::default();
    for field in Fields::of(message) {
        match field? {
            (1, node) => report.node = Some(node.bytes()?),
            (2, cluster) => {
                let cluster = reader.cluster(cluster.bytes()?)?;
                report.clusters.push(cluster);
            }
            (number, _) => reader.unknown.note(MessageKind::Report, number),
        }
    }
    report.unknown = reader.unknown;
    Ok(report)
}

/// Whether an encoded node has the feature of clients that understand `send_all_clusters`.
pub fn takes_all_clusters(node: &[u8]) -> bool {
    Fields::of(node).any(|field| matches!(field, Ok((10, Payload::Bytes(SEND_ALL)))))
}

/// Whether a client never reports the first cluster of a list. gRPC for Node.js looks for a name behind the
/// first place.
pub fn skips_first_cluster(node: &[u8]) -> bool {
    Fields::of(node).any(|field| matches!(field, Ok((6, Payload::Bytes(b"gRPC Node Pure JS")))))
}

struct Reader {
    elements: usize,
    unknown: UnknownFields,
}

impl Reader {
    fn element(&mut self) -> Result<(), ReportError> {
        self.elements += 1;
        if self.elements > ELEMENTS_MAX { Err(ReportError::TooManyElements(ELEMENTS_MAX)) } else { Ok(()) }
    }

    fn cluster<'a>(&mut self, message: &'a [u8]) -> Result<ClusterStats<'a>, ReportError> {
        self.element()?;
        let mut cluster = ClusterStats::default();
        for field in Fields::of(message) {
            match field? {
                (1, name) => cluster.name = name.text()?,
                (2, locality) => {
                    let locality = self.locality(locality.bytes()?)?;
                    cluster.localities.push(locality);
                }
                (3, count) => cluster.dropped = count.varint()?,
                (4, interval) => cluster.interval = duration(interval.bytes()?)?,
                (5, dropped) => {
                    let dropped = self.dropped(dropped.bytes()?)?;
                    cluster.categories.push(dropped);
                }
                (6, service) => cluster.service = service.text()?,
                (number, _) => self.unknown.note(MessageKind::Cluster, number),
            }
        }
        Ok(cluster)
    }

    fn dropped<'a>(&mut self, message: &'a [u8]) -> Result<DroppedRequests<'a>, ReportError> {
        self.element()?;
        let mut dropped = DroppedRequests::default();
        for field in Fields::of(message) {
            match field? {
                (1, category) => dropped.category = category.text()?,
                (2, count) => dropped.count = count.varint()?,
                (number, _) => self.unknown.note(MessageKind::Drops, number),
            }
        }
        Ok(dropped)
    }

    fn locality<'a>(&mut self, message: &'a [u8]) -> Result<LocalityStats<'a>, ReportError> {
        self.element()?;
        let mut stats = LocalityStats::default();
        let (mut named, mut utilization) = (Vec::new(), [MetricSum::default(); 3]);
        for field in Fields::of(message) {
            match field? {
                (1, place) => self.place(place.bytes()?, &mut stats.place)?,
                (2, count) => stats.counters.success = count.varint()?,
                (3, count) => stats.gauges.in_progress = count.varint()?,
                (4, count) => stats.counters.error = count.varint()?,
                (5, metric) => named.push(self.named(metric.bytes()?)?),
                // A `uint32`: readers of all languages take the lower half of a larger number.
                (6, priority) => stats.priority = priority.varint()? as u32,
                (7, endpoint) => {
                    let endpoint = self.endpoint(endpoint.bytes()?)?;
                    stats.endpoints.push(endpoint);
                }
                (8, count) => stats.counters.issued = count.varint()?,
                (9, count) => stats.gauges.active_connections = count.varint()?,
                (10, count) => stats.counters.new_connections = count.varint()?,
                (11, count) => stats.counters.failed_connections = count.varint()?,
                (number @ 12..=14, metric) => {
                    self.metric(metric.bytes()?, 1, &mut utilization[number as usize - 12])?;
                }
                (number, _) => self.unknown.note(MessageKind::Locality, number),
            }
        }
        if !named.is_empty() || utilization.iter().any(|sum| !sum.is_empty()) {
            let metrics = stats.metrics.get_or_insert_default();
            metrics.named = named;
            let [cpu, mem, application] = utilization;
            (metrics.utilization.cpu, metrics.utilization.mem) = (cpu, mem);
            metrics.utilization.application = application;
        }
        Ok(stats)
    }

    fn place<'a>(&mut self, message: &'a [u8], place: &mut Place<'a>) -> Result<(), ReportError> {
        for field in Fields::of(message) {
            match field? {
                (1, region) => place.region = region.text()?,
                (2, zone) => place.zone = zone.text()?,
                (3, sub_zone) => place.sub_zone = sub_zone.text()?,
                (number, _) => self.unknown.note(MessageKind::Place, number),
            }
        }
        Ok(())
    }

    fn endpoint<'a>(&mut self, message: &'a [u8]) -> Result<EndpointStats<'a>, ReportError> {
        self.element()?;
        let mut stats = EndpointStats::default();
        for field in Fields::of(message) {
            match field? {
                (1, address) => stats.address = address.bytes()?,
                (2, count) => stats.counters.success = count.varint()?,
                (3, count) => stats.in_progress = count.varint()?,
                (4, count) => stats.counters.error = count.varint()?,
                (5, metric) => {
                    let metric = self.named(metric.bytes()?)?;
                    stats.named.push(metric);
                }
                (6, metadata) => stats.metadata = metadata.bytes()?,
                (7, count) => stats.counters.issued = count.varint()?,
                (number, _) => self.unknown.note(MessageKind::Endpoint, number),
            }
        }
        Ok(stats)
    }

    fn named<'a>(&mut self, message: &'a [u8]) -> Result<NamedMetric<'a>, ReportError> {
        self.element()?;
        let mut metric = NamedMetric::default();
        for field in Fields::of(message) {
            if let (1, name) = field? {
                metric.name = name.text()?;
            }
        }
        self.metric(message, 2, &mut metric.sum)?;
        Ok(metric)
    }

    /// The two numbers of a metric, from field `first` on. Fields before `first` are the caller's.
    fn metric(&mut self, message: &[u8], first: u32, sum: &mut MetricSum) -> Result<(), ReportError> {
        for field in Fields::of(message) {
            match field? {
                (number, count) if number == first => sum.finished = count.varint()?,
                (number, Payload::Fixed64(bits)) if number == first + 1 => sum.total = f64::from_bits(bits),
                (number, _) if number == first + 1 => {
                    return Err(Malformed::new("the total of a metric has another wire type").into());
                }
                (number, _) if number < first => {}
                (number, _) => self.unknown.note(MessageKind::Metric, number),
            }
        }
        Ok(())
    }
}

/// A `google.protobuf.Duration`. Negative times are zero.
fn duration(message: &[u8]) -> Result<Duration, Malformed> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in Fields::of(message) {
        match field? {
            (1, number) => seconds = number.varint()?,
            (2, number) => nanos = number.varint()?,
            _ => {}
        }
    }
    // Negative numbers have the highest bit.
    let (seconds, nanos) = (u64::try_from(seconds.cast_signed()).unwrap_or(0), nanos as u32 as i32);
    let nanos = u32::try_from(nanos).unwrap_or(0).min(999_999_999);
    Ok(Duration::new(seconds, nanos).min(INTERVAL_MAX))
}

/// Reads the answer of a server. The interval is at least a second (LRS-8).
pub fn read_answer(message: &[u8]) -> Result<Wish, Malformed> {
    let (mut names, mut interval) = (Vec::new(), Duration::ZERO);
    let (mut has_endpoints, mut is_all) = (false, false);
    for field in Fields::of(message) {
        match field? {
            (1, name) => names.push(name.text()?),
            (2, time) => interval = duration(time.bytes()?)?,
            (3, flag) => has_endpoints = flag.varint()? != 0,
            (4, flag) => is_all = flag.varint()? != 0,
            _ => {}
        }
    }
    let clusters = if is_all { Clusters::All } else { Clusters::listed(names) };
    Ok(Wish::new(clusters, interval, has_endpoints))
}
