//! Generated code for the messages of `proto/`, for peers that speak to sluice.
//!
//! The relay itself uses the hand-written codec of `wire`. That codec leaves payloads uncopied and
//! enforces limits. The generated types serve the peers in tests and in the load tool, the tests of the
//! codec, client status, and the ledger on etcd.

#[allow(clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/proto.rs"));
}

pub use generated::envoy::config::cluster::v3::{Cluster, cluster};
pub use generated::envoy::config::core::v3::{
    BuildVersion, ContextParams, ControlPlane, Extension, Locality, Node, SemanticVersion, node,
};
pub use generated::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    DynamicParameterConstraints, Resource, ResourceError, ResourceLocator, ResourceName,
    dynamic_parameter_constraints, resource,
};
pub use generated::google::protobuf::{Any, Duration, ListValue, Struct, Timestamp, Value, value};
pub use generated::google::rpc::Status;

/// Load reports (LRS).
pub mod load {
    use super::generated::envoy;

    pub use envoy::config::endpoint::v3::{
        ClusterStats, EndpointLoadMetricStats, UnnamedEndpointLoadMetricStats, UpstreamEndpointStats,
        UpstreamLocalityStats, cluster_stats,
    };
    pub use envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
}

/// etcd, which may keep the ledger of several replicas.
pub mod etcd {
    pub use super::generated::etcdserverpb::*;
}

/// Client status (CSDS), which the admin listener speaks.
pub mod csds {
    use super::generated::envoy;

    /// The service, as a server has it.
    #[allow(clippy::all)]
    pub mod service {
        include!(concat!(env!("OUT_DIR"), "/services/envoy.service.status.v3.rs"));
    }

    pub use envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
    pub use envoy::service::status::v3::client_config::GenericXdsConfig;
    pub use envoy::service::status::v3::{
        ClientConfig, ClientStatusRequest, ClientStatusResponse, ConfigStatus,
    };

    /// The matchers of nodes.
    pub mod matcher {
        pub use super::envoy::r#type::matcher::v3::*;
    }
}
