//! The xDS vocabulary of both sides of the tool: variants, types, services, names.

use clap::ValueEnum;
use serde::Serialize;

/// The two variants of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    Sotw,
    Delta,
}

impl Variant {
    pub fn name(self) -> &'static str {
        match self {
            Variant::Sotw => "SotW",
            Variant::Delta => "delta",
        }
    }
}

/// The types that the tool serves and requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Clusters
    #[value(name = "cds")]
    #[serde(rename = "cds")]
    Cluster,
    /// Endpoints
    #[value(name = "eds")]
    #[serde(rename = "eds")]
    Endpoints,
    /// Listeners
    #[value(name = "lds")]
    #[serde(rename = "lds")]
    Listener,
    /// Routes
    #[value(name = "rds")]
    #[serde(rename = "rds")]
    Route,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Cluster, Kind::Endpoints, Kind::Listener, Kind::Route];

    pub fn short(self) -> &'static str {
        match self {
            Kind::Cluster => "cds",
            Kind::Endpoints => "eds",
            Kind::Listener => "lds",
            Kind::Route => "rds",
        }
    }

    pub fn from_short(text: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.short() == text)
    }

    pub fn type_url(self) -> &'static str {
        match self {
            Kind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Kind::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    pub fn of(type_url: &[u8]) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.type_url().as_bytes() == type_url)
    }

    /// Whether each SotW response is the whole subscription (SST-1), not a part.
    pub fn is_full_state(self) -> bool {
        matches!(self, Kind::Cluster | Kind::Listener)
    }
}

/// The gRPC service of a stream: aggregated, or for one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Aggregated,
    Of(Kind),
    /// Load reports; there is one variant.
    LoadStats,
}

/// The gRPC method of load reports.
pub const LOAD_STATS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

impl Service {
    /// The gRPC method.
    pub fn path(self, variant: Variant) -> String {
        let verb = if variant == Variant::Sotw { "Stream" } else { "Delta" };
        let (package, service, noun) = match self {
            Service::LoadStats => return LOAD_STATS.to_owned(),
            Service::Aggregated => ("discovery", "Aggregated", "AggregatedResources"),
            Service::Of(Kind::Cluster) => ("cluster", "Cluster", "Clusters"),
            Service::Of(Kind::Endpoints) => ("endpoint", "Endpoint", "Endpoints"),
            Service::Of(Kind::Listener) => ("listener", "Listener", "Listeners"),
            Service::Of(Kind::Route) => ("route", "Route", "Routes"),
        };
        format!("/envoy.service.{package}.v3.{service}DiscoveryService/{verb}{noun}")
    }

    /// The variant of a gRPC path, whatever the service.
    pub fn variant_of(path: &str) -> Option<Variant> {
        let services = || Kind::ALL.into_iter().map(Service::Of).chain([Service::Aggregated]);
        [Variant::Sotw, Variant::Delta]
            .into_iter()
            .find(|variant| services().any(|service| service.path(*variant) == path))
    }
}

/// The name of a resource, whatever its type.
pub fn resource_name(index: usize) -> String {
    format!("load-{index:06}")
}

/// The index of a name from [`resource_name`].
pub fn resource_index(name: &str) -> Option<usize> {
    let index = name.strip_prefix("load-")?.parse().ok()?;
    (resource_name(index) == name).then_some(index)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_are_those_of_the_services() {
        let ads = Service::Aggregated.path(Variant::Delta);
        assert_eq!(ads, "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources");
        let eds = Service::Of(Kind::Endpoints).path(Variant::Sotw);
        assert_eq!(eds, "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints");
        assert_eq!(Service::variant_of(&eds), Some(Variant::Sotw));
        assert_eq!(Service::variant_of(&ads), Some(Variant::Delta));
        assert_eq!(Service::variant_of("/grpc.health.v1.Health/Check"), None);
    }

    #[test]
    fn a_name_has_one_index() {
        assert_eq!(resource_index(&resource_name(1_234_567)), Some(1_234_567));
        for name in ["load-1", "load-", "x", "load-+00001", "*"] {
            assert_eq!(resource_index(name), None, "{name}");
        }
    }
}
