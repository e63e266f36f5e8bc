//! The few messages of `envoy.service.discovery.v3` that the tests use, written by hand.

use std::collections::BTreeMap;

use prost::Message;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Locality {
    #[prost(string, tag = "1")]
    pub region: String,
    #[prost(string, tag = "2")]
    pub zone: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Node {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// A `google.protobuf.Struct`, encoded.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub metadata: Option<Vec<u8>>,
    #[prost(message, optional, tag = "4")]
    pub locality: Option<Locality>,
    #[prost(string, tag = "6")]
    pub user_agent_name: String,
    #[prost(string, repeated, tag = "10")]
    pub client_features: Vec<String>,
    #[prost(btree_map = "string, message", tag = "12")]
    pub dynamic_parameters: BTreeMap<String, ContextParams>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContextParams {
    #[prost(btree_map = "string, string", tag = "1")]
    pub params: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Identifier {
    #[prost(string, tag = "1")]
    pub identifier: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DiscoveryRequest {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(message, optional, tag = "2")]
    pub node: Option<Node>,
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<Status>,
    #[prost(message, repeated, tag = "7")]
    pub resource_locators: Vec<ResourceLocator>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Any>,
    #[prost(bool, tag = "3")]
    pub canary: bool,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
    #[prost(message, optional, tag = "6")]
    pub control_plane: Option<Identifier>,
    #[prost(message, repeated, tag = "7")]
    pub resource_errors: Vec<ResourceError>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResourceError {
    #[prost(message, optional, tag = "1")]
    pub resource_name: Option<ResourceName>,
    #[prost(message, optional, tag = "2")]
    pub error_detail: Option<Status>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Duration {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeltaDiscoveryRequest {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    #[prost(string, tag = "2")]
    pub type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub resource_names_subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub resource_names_unsubscribe: Vec<String>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub initial_resource_versions: BTreeMap<String, String>,
    #[prost(string, tag = "6")]
    pub response_nonce: String,
    #[prost(message, optional, tag = "7")]
    pub error_detail: Option<Status>,
    #[prost(message, repeated, tag = "8")]
    pub resource_locators_subscribe: Vec<ResourceLocator>,
    #[prost(message, repeated, tag = "9")]
    pub resource_locators_unsubscribe: Vec<ResourceLocator>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResourceLocator {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub dynamic_parameters: BTreeMap<String, String>,
}

/// A part of `DynamicParameterConstraints`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct Constraints {
    #[prost(message, optional, tag = "1")]
    pub constraint: Option<SingleConstraint>,
    #[prost(message, optional, boxed, tag = "4")]
    pub not: Option<Box<Constraints>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Message)]
pub struct SingleConstraint {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResourceName {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub constraints: Option<Constraints>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CacheControl {
    #[prost(bool, tag = "1")]
    pub do_not_cache: bool,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Resource {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(message, optional, tag = "2")]
    pub resource: Option<Any>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, repeated, tag = "4")]
    pub aliases: Vec<String>,
    #[prost(message, optional, tag = "7")]
    pub cache_control: Option<CacheControl>,
    #[prost(message, optional, tag = "8")]
    pub resource_name: Option<ResourceName>,
    #[prost(message, optional, tag = "6")]
    pub ttl: Option<Duration>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeltaDiscoveryResponse {
    #[prost(string, tag = "1")]
    pub system_version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Resource>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
    #[prost(string, repeated, tag = "6")]
    pub removed_resources: Vec<String>,
    #[prost(message, optional, tag = "7")]
    pub control_plane: Option<Identifier>,
    #[prost(message, repeated, tag = "8")]
    pub removed_resource_names: Vec<ResourceName>,
    #[prost(message, repeated, tag = "9")]
    pub resource_errors: Vec<ResourceError>,
}

/// The fields of a test resource in the four types of the public suites: the name, and a text in a harmless
/// field of each, so that any control plane takes the resource. Unknown types have the text in a field of
/// their own.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Body {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int32, tag = "2")]
    pub discovery_type: i32,
    #[prost(message, optional, tag = "3")]
    pub eds_cluster_config: Option<EdsClusterConfig>,
    #[prost(string, tag = "9999")]
    pub text: String,
    /// `Cluster.alt_stat_name`, `Listener.stat_prefix`.
    #[prost(string, tag = "28")]
    pub stat_name: String,
    /// `RouteConfiguration.request_headers_to_remove`.
    #[prost(string, repeated, tag = "8")]
    pub headers: Vec<String>,
    /// `ClusterLoadAssignment.named_endpoints`.
    #[prost(message, repeated, tag = "5")]
    pub endpoints: Vec<NamedEndpoint>,
}

/// `envoy.config.route.v3.ScopedRouteConfiguration`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ScopedRoute {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub route_configuration_name: String,
}

/// `envoy.config.route.v3.VirtualHost`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct VirtualHost {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub domains: Vec<String>,
}

/// `envoy.extensions.transport_sockets.tls.v3.Secret` with a `generic_secret`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Secret {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "5")]
    pub generic: Option<GenericSecret>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct GenericSecret {
    #[prost(message, optional, tag = "1")]
    pub secret: Option<DataSource>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DataSource {
    #[prost(string, tag = "3")]
    pub inline_string: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct NamedEndpoint {
    #[prost(string, tag = "1")]
    pub key: String,
}

/// The common field of every real resource type.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Named {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct EdsClusterConfig {
    #[prost(string, tag = "2")]
    pub service_name: String,
}

/// `Cluster.DiscoveryType.EDS`.
pub const DISCOVERY_TYPE_EDS: i32 = 3;
