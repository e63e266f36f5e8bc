//! A report in the client's words. Texts stay in the message.

use std::time::Duration;

use super::counters::{Counters, Gauges, MetricSum};
use sluice_xds::Locality;

/// A `LoadStatsRequest`. The messages of v2 have the same fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport<'a> {
    /// The encoded node. The first request of a stream has a node, and Envoy's later requests, too (LRS-13).
    pub node: Option<&'a [u8]>,
    pub clusters: Vec<ClusterStats<'a>>,
    pub unknown: UnknownFields,
    /// Counters that [`LoadReport::cut`] has made smaller.
    pub cut: u64,
}

/// The greatest counter of a client in one report: 4 billion requests of one locality in an interval. A
/// greater one is an error or a lie, and would fill the sums of all clients.
const COUNTER_MAX: u64 = u32::MAX as u64;

impl LoadReport<'_> {
    /// Cuts the counters of a client at 4 billion each.
    pub fn cut(&mut self) {
        let mut cut = 0;
        let mut bound = |counter: &mut u64| {
            cut += u64::from(*counter > COUNTER_MAX);
            *counter = (*counter).min(COUNTER_MAX);
        };
        for cluster in &mut self.clusters {
            bound(&mut cluster.dropped);
            cluster.categories.iter_mut().for_each(|dropped| bound(&mut dropped.count));
            for locality in &mut cluster.localities {
                locality.counters.each(&mut bound);
                for endpoint in &mut locality.endpoints {
                    endpoint.counters.each(&mut bound);
                    endpoint.named.iter_mut().for_each(|metric| bound(&mut metric.sum.finished));
                }
                let Some(metrics) = &mut locality.metrics else { continue };
                let Utilization { cpu, mem, application } = &mut metrics.utilization;
                [cpu, mem, application].into_iter().for_each(|sum| bound(&mut sum.finished));
                metrics.named.iter_mut().for_each(|metric| bound(&mut metric.sum.finished));
            }
        }
        self.cut = cut;
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterStats<'a> {
    pub name: &'a str,
    pub service: &'a str,
    /// May be empty (LRS-7).
    pub localities: Vec<LocalityStats<'a>>,
    pub dropped: u64,
    pub categories: Vec<DroppedRequests<'a>>,
    /// The time behind the counters.
    pub interval: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedRequests<'a> {
    pub category: &'a str,
    pub count: u64,
}

/// The place of endpoints. A missing locality is the empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place<'a> {
    pub region: &'a str,
    pub zone: &'a str,
    pub sub_zone: &'a str,
}

impl<'a> From<&'a Locality> for Place<'a> {
    fn from(locality: &'a Locality) -> Place<'a> {
        Place { region: &locality.region, zone: &locality.zone, sub_zone: &locality.sub_zone }
    }
}

impl From<&Place<'_>> for Locality {
    fn from(place: &Place<'_>) -> Locality {
        let (region, zone, sub_zone) = (place.region.into(), place.zone.into(), place.sub_zone.into());
        Locality { region, zone, sub_zone }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityStats<'a> {
    pub place: Place<'a>,
    pub priority: u32,
    pub counters: Counters,
    pub gauges: Gauges,
    /// `None` without metrics, as usual.
    pub metrics: Option<Box<MetricStats<'a>>>,
    pub endpoints: Vec<EndpointStats<'a>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricStats<'a> {
    /// Metrics of the whole locality, from ORCA (LRS-10).
    pub utilization: Utilization,
    pub named: Vec<NamedMetric<'a>>,
}

/// The metrics with fields of their own (LRS-10).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Utilization {
    pub cpu: MetricSum,
    pub mem: MetricSum,
    pub application: MetricSum,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NamedMetric<'a> {
    pub name: &'a str,
    pub sum: MetricSum,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointStats<'a> {
    /// The encoded address.
    pub address: &'a [u8],
    pub counters: Counters,
    pub in_progress: u64,
    pub named: Vec<NamedMetric<'a>>,
    /// The encoded metadata; empty without.
    pub metadata: &'a [u8],
}

/// The kind of the message around a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    Report,
    Cluster,
    Drops,
    Locality,
    Metric,
    Endpoint,
    Place,
}

/// Distinct unknown fields of one report. A bound, so that no report costs memory without end.
const UNKNOWN_MAX: usize = 16;

/// The unknown fields of a report. Nobody can sum an unknown field, so the relay leaves the field out and
/// tells (LRS-18).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownFields {
    pub count: u64,
    pub numbers: Vec<(MessageKind, u32)>,
}

impl UnknownFields {
    pub fn note(&mut self, kind: MessageKind, number: u32) {
        self.count += 1;
        if self.numbers.len() < UNKNOWN_MAX && !self.numbers.contains(&(kind, number)) {
            self.numbers.push((kind, number));
        }
    }
}
