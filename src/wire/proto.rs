//! The messages of `proto/`, generated: what a peer of sluice needs to speak to it.
//!
//! The relay itself reads and writes these messages with the codec beside this module, which keeps payloads
//! uncopied and limits what it reads; the generated types serve the peers that tests and the load tool play,
//! and judge the codec.

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
pub use generated::google::protobuf::{Any, Duration, ListValue, Struct, Value, value};
pub use generated::google::rpc::Status;
