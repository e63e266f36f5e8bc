//! Load reports. No label has a cluster: their number has no bound (LRS-25).

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::catalogue::{Catalogue, Counters, Gauges};
use crate::telemetry::instruments::GaugePart;

/// The fate of finished requests in reports of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFate {
    /// The server has them.
    Delivered,
    /// Counted for operators alone.
    Local,
    /// The server does not want their cluster, or takes no reports.
    Unwanted,
    /// There was no room for their cluster or locality.
    LeftOut,
    /// No server takes reports of their cluster, or the client may not see it.
    Unrouted,
    /// The server could not be reached until the class or the process ended.
    Lost,
}

impl RequestFate {
    pub const ALL: [RequestFate; 6] = [
        RequestFate::Delivered,
        RequestFate::Local,
        RequestFate::Unwanted,
        RequestFate::LeftOut,
        RequestFate::Unrouted,
        RequestFate::Lost,
    ];

    fn name(self) -> &'static str {
        match self {
            RequestFate::Delivered => "delivered",
            RequestFate::Local => "local",
            RequestFate::Unwanted => "unwanted",
            RequestFate::LeftOut => "left_out",
            RequestFate::Unrouted => "unrouted",
            RequestFate::Lost => "lost",
        }
    }
}

/// Wide because each field is a metric.
#[derive(Debug)]
pub struct LoadMetrics {
    streams: Gauges<1>,
    entries: Gauge,
    /// Reports of clients.
    pub reports: Counter,
    /// Finished requests in reports of clients.
    pub requests: Counter,
    fates: Counters<1>,
    /// Finished requests in a report that may or may not have arrived.
    pub in_doubt: Counter,
    /// Names without an entry.
    pub names_left_out: Counter,
}

impl LoadMetrics {
    pub(super) fn new(catalogue: &mut Catalogue) -> LoadMetrics {
        let fates: Counters<1> =
            catalogue.add("sluice_load_fates", "Finished requests of load reports by what became of them");
        // An alert on any increase needs its series from the start.
        for fate in RequestFate::ALL {
            fates.get_or_create_owned(&[("outcome", fate.name().into())]);
        }
        LoadMetrics {
            streams: catalogue.add("sluice_load_streams", "Open streams of load reports to the server"),
            entries: catalogue.add(
                "sluice_load_entries",
                "Clusters, localities, endpoints and metric names that are counted",
            ),
            reports: catalogue.add("sluice_load_reports", "Load reports received from clients"),
            requests: catalogue.add("sluice_load_requests", "Finished requests in load reports of clients"),
            fates,
            in_doubt: catalogue.add(
                "sluice_load_in_doubt",
                "Finished requests in reports of which nobody knows whether the server has them",
            ),
            names_left_out: catalogue
                .add("sluice_load_names_left_out", "Names in load reports for which there was no room"),
        }
    }

    /// Counts a stream to a server until the handle is dropped.
    pub fn stream(&self, server: &Arc<str>) -> GaugePart {
        GaugePart::new(&self.streams.get_or_create_owned(&[("server", server.clone())]), 1)
    }

    /// The entries of one class; starts at 0.
    pub fn entries(&self) -> GaugePart {
        GaugePart::new(&self.entries, 0)
    }

    pub fn fate(&self, fate: RequestFate, requests: u64) {
        if requests > 0 {
            self.fates.get_or_create(&[("outcome", fate.name().into())]).inc_by(requests);
        }
    }
}
