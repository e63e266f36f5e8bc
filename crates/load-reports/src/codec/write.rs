//! The writer of messages.

use std::time::Duration;

use bytes::Bytes;

use crate::counters::MetricSum;
use crate::report::{ClusterStats, EndpointStats, LocalityStats, NamedMetric};
use crate::wish::{Clusters, Wish, names_to_write};
use sluice_wire::fields::{Sink, build, put_bytes, put_element, put_fixed64, put_message, put_varint};

/// The bytes of a report from which on the rest goes into a further message: 3 MiB, below gRPC's default
/// limit of 4 MiB.
const MESSAGE_MAX: usize = 3 << 20;

/// The first request of a stream to a server: the node, and no statistics (LRS-1).
pub fn write_first_request(node: &[u8]) -> Bytes {
    build(0, |sink| put_element(sink, 1, node)).into()
}

/// An answer to a client (LRS-2).
pub fn write_answer(wish: &Wish) -> Bytes {
    write_answer_for(wish, false)
}

/// The same for a client that may never report the first cluster of a list.
pub fn write_answer_for(wish: &Wish, skips_first: bool) -> Bytes {
    let names = match &wish.clusters {
        Clusters::All => Vec::new(),
        Clusters::Listed(names) => names_to_write(names, skips_first),
    };
    build(0, |sink| {
        for name in &names {
            put_element(sink, 1, name.as_bytes());
        }
        put_duration(sink, 2, wish.interval);
        put_varint(sink, 3, u64::from(wish.has_endpoints));
        put_varint(sink, 4, u64::from(wish.clusters == Clusters::All));
    })
    .into()
}

/// A request to a server, with the number of finished requests in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportMessage {
    pub bytes: Bytes,
    pub finished: u64,
}

/// Writes the report of an interval, in as many messages as its size needs.
#[derive(Debug, Default)]
pub struct ReportWriter {
    messages: Vec<ReportMessage>,
    message: Vec<u8>,
    finished: u64,
}

impl ReportWriter {
    /// Adds a cluster. A cluster that is too large for a message has several elements; the first has the
    /// drops. So has a locality with too many endpoints; the first has the locality's own numbers.
    pub fn push(&mut self, cluster: &ClusterStats<'_>) {
        let head = |is_first: bool| {
            build(0, |sink| {
                put_bytes(sink, 1, cluster.name.as_bytes());
                put_bytes(sink, 6, cluster.service.as_bytes());
                put_duration(sink, 4, cluster.interval);
                for dropped in cluster.categories.iter().filter(|_| is_first) {
                    put_message(sink, 5, |element| {
                        put_bytes(element, 1, dropped.category.as_bytes());
                        put_varint(element, 2, dropped.count);
                    });
                }
                put_varint(sink, 3, if is_first { cluster.dropped } else { 0 });
            })
        };
        let (mut element, mut finished) = (head(true), 0u64);
        for locality in &cluster.localities {
            let mut counted = locality.counters.finished();
            for row in rows(locality) {
                if element.len() + row.len() > MESSAGE_MAX {
                    self.add(&element, finished);
                    (element, finished) = (head(false), 0);
                }
                put_element(&mut element, 2, &row);
                finished = finished.saturating_add(std::mem::take(&mut counted));
            }
        }
        self.add(&element, finished);
    }

    fn add(&mut self, element: &[u8], finished: u64) {
        if !self.message.is_empty() && self.message.len() + element.len() > MESSAGE_MAX {
            self.close();
        }
        put_element(&mut self.message, 2, element);
        self.finished = self.finished.saturating_add(finished);
    }

    fn close(&mut self) {
        let (bytes, finished) =
            (std::mem::take(&mut self.message).into(), std::mem::take(&mut self.finished));
        self.messages.push(ReportMessage { bytes, finished });
    }

    /// The messages. A report without clusters is one empty message: the server hears that the relay lives.
    pub fn finish(mut self) -> Vec<ReportMessage> {
        self.close();
        self.messages
    }
}

/// The encoded locality, in as many parts as its endpoints need. A single endpoint fits into a message,
/// because its names have a bound.
fn rows(stats: &LocalityStats<'_>) -> Vec<Vec<u8>> {
    let mut rows = vec![build(0, |sink| put_locality(sink, stats))];
    for endpoint in &stats.endpoints {
        let endpoint = build(0, |sink| put_message(sink, 7, |sink| put_endpoint(sink, endpoint)));
        if rows.last().is_none_or(|row| row.len() + endpoint.len() > MESSAGE_MAX / 2) {
            let rest = LocalityStats { place: stats.place, priority: stats.priority, ..Default::default() };
            rows.push(build(0, |sink| put_locality(sink, &rest)));
        }
        rows.last_mut().into_iter().for_each(|row| row.extend_from_slice(&endpoint));
    }
    rows
}

/// A locality without its endpoints.
fn put_locality(sink: &mut dyn Sink, stats: &LocalityStats<'_>) {
    let (place, counters) = (&stats.place, &stats.counters);
    if *place != Default::default() {
        put_message(sink, 1, |locality| {
            put_bytes(locality, 1, place.region.as_bytes());
            put_bytes(locality, 2, place.zone.as_bytes());
            put_bytes(locality, 3, place.sub_zone.as_bytes());
        });
    }
    put_varint(sink, 2, counters.success);
    put_varint(sink, 3, stats.gauges.in_progress);
    put_varint(sink, 4, counters.error);
    put_varint(sink, 6, u64::from(stats.priority));
    put_varint(sink, 8, counters.issued);
    put_varint(sink, 9, stats.gauges.active_connections);
    put_varint(sink, 10, counters.new_connections);
    put_varint(sink, 11, counters.failed_connections);
    if let Some(metrics) = &stats.metrics {
        let sums = [metrics.utilization.cpu, metrics.utilization.mem, metrics.utilization.application];
        for (number, sum) in (12..).zip(sums).filter(|entry| !entry.1.is_empty()) {
            put_message(sink, number, |metric| put_sum(metric, 1, &sum));
        }
        put_named(sink, 5, &metrics.named);
    }
}

fn put_endpoint(sink: &mut dyn Sink, stats: &EndpointStats<'_>) {
    put_bytes(sink, 1, stats.address);
    put_varint(sink, 2, stats.counters.success);
    put_varint(sink, 3, stats.in_progress);
    put_varint(sink, 4, stats.counters.error);
    put_named(sink, 5, &stats.named);
    put_bytes(sink, 6, stats.metadata);
    put_varint(sink, 7, stats.counters.issued);
}

fn put_named(sink: &mut dyn Sink, number: u32, metrics: &[NamedMetric<'_>]) {
    for metric in metrics {
        put_message(sink, number, |element| {
            put_bytes(element, 1, metric.name.as_bytes());
            put_sum(element, 2, &metric.sum);
        });
    }
}

/// The two numbers of a metric, from field `first` on.
fn put_sum(sink: &mut dyn Sink, first: u32, sum: &MetricSum) {
    put_varint(sink, first, sum.finished);
    if sum.total != 0.0 {
        put_fixed64(sink, first + 1, sum.total.to_bits());
    }
}

fn put_duration(sink: &mut dyn Sink, number: u32, time: Duration) {
    put_message(sink, number, |message| {
        put_varint(message, 1, time.as_secs());
        put_varint(message, 2, u64::from(time.subsec_nanos()));
    });
}
