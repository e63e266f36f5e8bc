//! The words of xDS that both sides of the tool share: variants, types, names.

use clap::ValueEnum;
use serde::Serialize;

/// The two variants of the aggregated stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    Sotw,
    Delta,
}

impl Variant {
    /// The gRPC method of the aggregated discovery service.
    pub fn path(self) -> &'static str {
        match self {
            Variant::Sotw => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
            }
            Variant::Delta => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
            }
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Variant::Sotw => "SotW",
            Variant::Delta => "delta",
        }
    }
}

/// The types that the tool serves and asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Cluster,
    Endpoints,
}

impl Kind {
    pub fn type_url(self) -> &'static str {
        match self {
            Kind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        }
    }

    pub fn of(type_url: &[u8]) -> Option<Kind> {
        [Kind::Cluster, Kind::Endpoints].into_iter().find(|kind| kind.type_url().as_bytes() == type_url)
    }
}

/// The name of a cluster, which is that of its endpoints too. The control plane changes cluster 0.
pub fn cluster_name(index: usize) -> String {
    format!("load-{index:06}")
}
