//! The ways in which a client can ask: for a story that is told over each of them.

use super::words::Variant;
use super::{CDS, EDS, LDS, RDS};

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downstream {
    Ads(Variant),
    /// A stream for each type, to the service of the type. What has no service goes over ADS.
    PerType(Variant),
    /// ADS by its v2 method; the types are whatever the story says.
    V2(Variant),
    /// Polls, one type at a time. What has no service goes over ADS.
    Rest,
}

impl From<Variant> for Downstream {
    fn from(variant: Variant) -> Downstream {
        Downstream::Ads(variant)
    }
}

impl Downstream {
    pub const ALL: [Downstream; 6] = [
        Downstream::Ads(Variant::Sotw),
        Downstream::Ads(Variant::Delta),
        Downstream::PerType(Variant::Sotw),
        Downstream::PerType(Variant::Delta),
        Downstream::V2(Variant::Sotw),
        Downstream::Rest,
    ];

    /// What its requests look like; a poll is a SotW request.
    pub fn variant(self) -> Variant {
        match self {
            Downstream::Ads(variant) | Downstream::PerType(variant) | Downstream::V2(variant) => variant,
            Downstream::Rest => Variant::Sotw,
        }
    }

    /// Whether it tells that a name is gone, whatever the type: SotW streams do of full-state types only (SST-6), while
    /// every answer to a poll is whole (RST-12).
    pub fn tells_removals(self) -> bool {
        self == Downstream::Rest || self.variant() == Variant::Delta
    }

    /// The stream that carries a type: its own, or (empty) the aggregated one.
    pub(super) fn stream_of(self, type_url: &str) -> String {
        let own = matches!(self, Downstream::PerType(_) | Downstream::Rest) && service(type_url).is_some();
        if own { type_url.to_owned() } else { String::new() }
    }

    /// The gRPC path of a stream.
    pub(super) fn path(self, stream: &str) -> String {
        let variant = self.variant();
        match service(stream) {
            Some((service, noun, _)) => {
                let prefix = if variant == Variant::Sotw { "Stream" } else { "Delta" };
                format!("/envoy.service.{service}DiscoveryService/{prefix}{noun}")
            }
            None if matches!(self, Downstream::V2(_)) => {
                variant.path().replace("discovery.v3", "discovery.v2")
            }
            None => variant.path().to_owned(),
        }
    }
}

/// Of the types that stories are about: the service, the noun of its methods, the REST collection (RPC-2).
pub fn service(type_url: &str) -> Option<(&'static str, &'static str, &'static str)> {
    match type_url {
        CDS => Some(("cluster.v3.Cluster", "Clusters", "clusters")),
        EDS => Some(("endpoint.v3.Endpoint", "Endpoints", "endpoints")),
        LDS => Some(("listener.v3.Listener", "Listeners", "listeners")),
        RDS => Some(("route.v3.Route", "Routes", "routes")),
        _ => None,
    }
}
