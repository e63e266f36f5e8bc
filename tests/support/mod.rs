//! What the test binaries share: a control plane, a client, and the relay as a process.
//!
//! None of it uses sluice's own code, the protobuf messages included, so that a mistake there can't hide here.

#![allow(dead_code, unused_imports)]

pub mod adapter;
pub mod client;
pub mod control_plane;
pub mod istiod;
pub mod judge;
pub mod kind;
pub mod net;
pub mod obedient;
pub mod operator;
pub mod poll;
pub mod proto;
pub mod proxy;
pub mod relay;
pub mod rest;
pub mod typed;
pub mod words;

use std::time::Duration;

pub use client::Client;
pub use control_plane::ControlPlane;
pub use kind::Downstream;
pub use proxy::Proxy;
pub use relay::{Relay, Setup};
pub use words::{Answer, Ask, Attachment, Item, Variant};

/// For what must happen. Generous, because the machine is slow and shared; no test waits for it when it passes.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// For what must not happen, where no marker can prove that the other side was awake.
pub const SILENCE: Duration = Duration::from_millis(250);

pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
pub const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
pub const SRDS: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
pub const VHDS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
pub const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
pub const LEDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
pub const LEDS_LIST: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection";
/// istiod's name table, which has no name.
pub const NDS: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";
/// In place of a resource it says where to ask for it (NAM-20).
pub const REDIRECT: &str = "type.googleapis.com/xds.core.v3.ResourceLocator";
/// A type that nobody has heard of, and the last in rank.
pub const MARKER: &str = "type.googleapis.com/sluice.test.Marker";

/// The four types of the public conformance suites.
pub const FOUR: [&str; 4] = [CDS, EDS, LDS, RDS];

/// The types whose SotW responses are complete sets (SST-1, SST-2).
pub fn is_full_state(type_url: &str) -> bool {
    [CDS, LDS, SRDS].contains(&type_url)
}
