//! The hot paths of the relay, each as a set-up and one call, for wall time and for instruction counts.
//!
//! All data is seeded: equal sizes give equal work, instruction by instruction.
#![allow(clippy::expect_used, clippy::panic, reason = "a path that cannot be set up panics with the reason")]
#![allow(clippy::new_without_default, reason = "a set-up is no default")]

pub mod relay;
pub mod authorization;
pub mod decode;
pub mod fan_out;
pub mod first_answer;
pub mod hold;
pub mod subscribe;

use bytes::Bytes;
use sluice_wire::version::of_content;
use sluice_xds::{Any, Received, Resource, ResourceName, TypeUrl};
use std::sync::Arc;

pub const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
pub const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

/// Bytes of each resource.
const RESOURCE_BYTES: usize = 500;

/// Names have equal lengths, as names of services mostly do.
pub fn name(number: usize) -> ResourceName {
    ResourceName::from(format!("outbound|8080||service-{number:06}.default.svc.cluster.local"))
}

/// A resource as on the wire: the name as field 1, then bytes that differ with `revision`.
pub fn resource(type_url: &TypeUrl, number: usize, revision: usize) -> Arc<Resource> {
    let name = name(number);
    let mut value = field(1, name.as_str().as_bytes());
    let mut padding = format!("{revision:08}").into_bytes();
    // The tag and the two bytes of the length precede the padding.
    padding.resize(RESOURCE_BYTES - value.len() - 4, b'.');
    value.extend(field(28, &padding));
    Arc::new(Resource {
        version: of_content(name.as_str(), type_url.as_str(), &value, &[]),
        name,
        body: Any { type_url: type_url.shared(), value: Bytes::from(value) },
        aliases: Box::default(),
        ttl: None,
        do_not_cache: false,
        body_has_name: true,
        metadata: None,
        endpoints: None,
        constraints: None,
    })
}

/// A resource as received from an upstream.
fn received(type_url: &TypeUrl, number: usize, revision: usize) -> Received {
    let resource = resource(type_url, number, revision);
    Received {
        name: resource.name.clone(),
        upstream_version: revision.to_string().into(),
        resource: Some(resource),
        ttl: None,
    }
}

/// A length-delimited field of a protobuf message.
pub fn field(number: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + 8);
    for mut value in [u64::from(number << 3 | 2), payload.len() as u64] {
        while value >= 0x80 {
            bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }
    bytes.extend_from_slice(payload);
    bytes
}
