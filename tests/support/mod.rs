//! The shared parts of the test binaries: a control plane, a client, and the relay as a process.
//!
//! No part uses sluice's own code, not even the protobuf messages, so that a mistake there can't hide here.

#![allow(dead_code, unused_imports)]

pub mod adapter;
pub mod client;
pub mod cluster;
pub mod control_plane;
pub mod istiod;
pub mod judge;
pub mod kind;
pub mod kubernetes;
pub mod load;
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

/// The time limit for events that must happen. Generous, because the machine is slow and shared; no passing
/// test waits this long.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// The wait for events that must not happen, if no marker can prove that the other side is alive.
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
/// istiod's name table, a type without resource names.
pub const NDS: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";
/// A locator instead of a resource, for a redirect (NAM-20).
pub const REDIRECT: &str = "type.googleapis.com/xds.core.v3.ResourceLocator";
/// An unknown type, with the last rank.
pub const MARKER: &str = "type.googleapis.com/sluice.test.Marker";

/// The four types of the public conformance suites.
pub const FOUR: [&str; 4] = [CDS, EDS, LDS, RDS];

/// The types whose SotW responses are complete sets (SST-1, SST-2).
pub fn is_full_state(type_url: &str) -> bool {
    [CDS, LDS, SRDS].contains(&type_url)
}
