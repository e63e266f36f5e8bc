//! The kinds of downstream clients: for a story that runs over each kind.

use super::words::Variant;
use super::{CDS, EDS, LDS, RDS};

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downstream {
    Ads(Variant),
    /// A stream for each type, to the service of the type. Types without a service go over ADS.
    PerType(Variant),
    /// ADS by its v2 method; the types are those of the story.
    V2(Variant),
    /// Polls, one type at a time. Types without a service go over ADS.
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

    /// The shape of the requests; a poll is a SotW request.
    pub fn variant(self) -> Variant {
        match self {
            Downstream::Ads(variant) | Downstream::PerType(variant) | Downstream::V2(variant) => variant,
            Downstream::Rest => Variant::Sotw,
        }
    }

    /// Whether clients of this kind learn of every removal. SotW streams carry removals of full-state types
    /// only (SST-6); every answer to a poll is complete (RST-12).
    pub fn reports_removals(self) -> bool {
        self == Downstream::Rest || self.variant() == Variant::Delta
    }

    /// The name for reports.
    pub fn label(self) -> &'static str {
        match self {
            Downstream::Ads(Variant::Sotw) => "SotW ADS",
            Downstream::Ads(Variant::Delta) => "delta ADS",
            Downstream::PerType(Variant::Sotw) => "SotW per type",
            Downstream::PerType(Variant::Delta) => "delta per type",
            Downstream::V2(_) => "v2",
            Downstream::Rest => "REST",
        }
    }

    /// The stream that carries a type: the type's own, or (empty) the aggregated stream.
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

/// For the types of the stories: the service, the noun of its methods, the REST collection (RPC-2).
pub fn service(type_url: &str) -> Option<(&'static str, &'static str, &'static str)> {
    match type_url {
        CDS => Some(("cluster.v3.Cluster", "Clusters", "clusters")),
        EDS => Some(("endpoint.v3.Endpoint", "Endpoints", "endpoints")),
        LDS => Some(("listener.v3.Listener", "Listeners", "listeners")),
        RDS => Some(("route.v3.Route", "Routes", "routes")),
        _ => None,
    }
}
