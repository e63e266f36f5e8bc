//! Responses to clients: one body, shared by all clients with the same selection, and one small head per
//! stream.
//!
//! A response message is its head followed by its body. Protobuf fields may come in any order. The nonce is
//! the only field that differs between streams, so it goes first, and the rest of the message is encoded
//! once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::coding::CompressedBody;
use super::dynamic::put_name;
use super::fields::{Sink, build, put_bytes, put_element, put_message, put_varint};
use super::frame::{self, HEADER_LEN};
use super::status;
use sluice_xds::{Code, Constraints, Resource, ResourceName, SetMark, Status, TypeUrl, Version};

/// The Any type of a resource wrapped for a SotW response (WIR-7).
pub const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// The field number of the nonce, in the responses of both variants.
const NONCE: u32 = 5;

/// Content of a response other than its resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    /// The remaining time to live, for resources with a TTL (TTL-1), by [`Resource::variant_name`].
    pub ttls: Option<&'a BTreeMap<ResourceName, Duration>>,
    /// Delta only: resources with an extended TTL, sent without payload (TTL-4).
    pub beats: &'a [Arc<Resource>],
    /// `resource_errors` (ERR-1). Disjoint from the names of the resources (ERR-2).
    pub errors: &'a [(ResourceName, Arc<Status>)],
}

impl Beside<'_> {
    fn ttl(&self, resource: &Resource) -> Option<Duration> {
        self.ttls?.get(&*resource.variant_name()).copied()
    }
}

/// The shared part of a SotW response: all fields but the nonce.
///
/// Resources go unwrapped (WIR-8), unless a client needs the wrapper: for types without a name field (WIR-9),
/// redirects (NAM-20) and resources with a TTL (TTL-2). Only clients with the feature
/// `xds.config.resource-in-sotw` accept wrapped resources.
pub fn sotw_body<'a>(
    type_url: &TypeUrl,
    version: Version,
    resources: impl Iterator<Item = &'a Resource> + Clone,
    beside: Beside<'a>,
    identifier: &str,
) -> Bytes {
    let errors = beside.errors.iter().map(|(name, _)| (name, None));
    // SST-8, ERR-2.
    debug_assert!(
        all_differ(resources.clone().map(key).chain(errors)),
        "two resources of a response have the same name"
    );
    let version = version.to_string();
    let body = build(0, |sink| {
        put_bytes(sink, 1, version.as_bytes());
        for resource in resources.clone() {
            let ttl = beside.ttl(resource);
            put_message(sink, 2, |any| {
                if resource.names_itself(type_url) && ttl.is_none() {
                    put_any(any, resource);
                } else {
                    put_bytes(any, 1, WRAPPER.as_bytes());
                    put_message(any, 2, |wrapper| put_resource(wrapper, resource, ttl));
                }
            });
        }
        put_bytes(sink, 4, type_url.as_str().as_bytes());
        put_control_plane(sink, 6, identifier);
        put_errors(sink, 7, beside.errors);
    });
    body.into()
}

/// The shared part of a delta response: all fields but the nonce. `system_version` is for display (DEL-15).
/// `variants` are removed by their constraints (WIR-4, DYN-6).
pub fn delta_body<'a>(
    type_url: &TypeUrl,
    system_version: Version,
    resources: impl Iterator<Item = &'a Resource> + Clone,
    removed: impl Iterator<Item = &'a ResourceName> + Clone,
    variants: &'a [(ResourceName, Arc<Constraints>)],
    beside: Beside<'a>,
    identifier: &str,
) -> Bytes {
    let beats = beside.beats.iter().map(Arc::as_ref);
    let errors = beside.errors.iter().map(|(name, _)| (name, None));
    let named = resources.clone().chain(beats.clone()).map(key);
    // DEL-16, ERR-2.
    debug_assert!(
        all_differ(
            named
                .chain(removed.clone().map(|name| (name, None)))
                .chain(variants.iter().map(|(name, constraints)| (name, Some(&**constraints))))
                .chain(errors)
        ),
        "a delta response names a resource twice"
    );
    let system_version = system_version.to_string();
    let body = build(0, |sink| {
        put_bytes(sink, 1, system_version.as_bytes());
        for resource in resources.clone() {
            put_message(sink, 2, |message| put_resource(message, resource, beside.ttl(resource)));
        }
        for resource in beats.clone() {
            let version = resource.version.to_string();
            put_message(sink, 2, |message| put_beat(message, resource, &version, beside.ttl(resource)));
        }
        put_bytes(sink, 4, type_url.as_str().as_bytes());
        for name in removed.clone() {
            put_element(sink, 6, name.as_str().as_bytes());
        }
        put_control_plane(sink, 7, identifier);
        for (name, constraints) in variants {
            put_name(sink, 8, name, constraints);
        }
        put_errors(sink, 9, beside.errors);
    });
    body.into()
}

/// The per-stream part of a response of either variant: gRPC's header for the whole message, the nonce, and a
/// mark for a client that reads marks.
///
/// # Errors
/// The message has 4 GiB or more, which gRPC can't frame.
pub fn head(nonce: &str, mark: Option<&SetMark>, body_len: usize) -> Result<Bytes, Status> {
    framed(own_fields(HEADER_LEN, nonce, mark), body_len)
}

/// A client's own part and the shared part of a response with a compressed body. `None`: the body goes as it
/// is.
pub fn compressed(nonce: &str, mark: Option<&SetMark>, body: &CompressedBody) -> Option<(Bytes, Bytes)> {
    body.message(&own_fields(0, nonce, mark))
}

/// The fields of one client: the nonce, and the mark for a client that reads marks.
fn own_fields(reserved: usize, nonce: &str, mark: Option<&SetMark>) -> Vec<u8> {
    build(reserved, |sink| {
        put_bytes(sink, NONCE, nonce.as_bytes());
        if let Some(mark) = mark {
            super::mark::put(sink, mark);
        }
    })
}

fn framed(mut head: Vec<u8>, body_len: usize) -> Result<Bytes, Status> {
    let message_len = head.len() - HEADER_LEN + body_len;
    let header = frame::header(message_len).ok_or_else(|| {
        let reason = format!("bytes of a response message: found {message_len}, the limit is {}", u32::MAX);
        Status::new(Code::ResourceExhausted, reason)
    })?;
    head[..HEADER_LEN].copy_from_slice(&header);
    Ok(head.into())
}

fn put_resource(sink: &mut dyn Sink, resource: &Resource, ttl: Option<Duration>) {
    put_bytes(sink, 1, resource.version.to_string().as_bytes());
    if resource.has_payload() {
        put_message(sink, 2, |any| put_any(any, resource));
    }
    put_own_name(sink, resource);
    for alias in &resource.aliases {
        put_element(sink, 4, alias.as_str().as_bytes());
    }
    put_ttl(sink, ttl);
    if resource.do_not_cache {
        put_message(sink, 7, |control| put_varint(control, 1, 1));
    }
    if let Some(metadata) = &resource.metadata {
        put_element(sink, 9, metadata);
    }
}

/// Includes the constraints if the resource has any (WIR-3).
fn put_own_name(sink: &mut dyn Sink, resource: &Resource) {
    match &resource.constraints {
        None => put_bytes(sink, 3, resource.name.as_str().as_bytes()),
        Some(constraints) => put_name(sink, 8, &resource.name, constraints),
    }
}

/// A heartbeat: the version that the client already has, and no payload (TTL-4).
fn put_beat(sink: &mut dyn Sink, resource: &Resource, version: &str, ttl: Option<Duration>) {
    put_bytes(sink, 1, version.as_bytes());
    put_own_name(sink, resource);
    put_ttl(sink, ttl);
}

fn put_ttl(sink: &mut dyn Sink, ttl: Option<Duration>) {
    let Some(ttl) = ttl else { return };
    put_message(sink, 6, |duration| {
        put_varint(duration, 1, ttl.as_secs());
        put_varint(duration, 2, u64::from(ttl.subsec_nanos()));
    });
}

fn put_errors(sink: &mut dyn Sink, number: u32, errors: &[(ResourceName, Arc<Status>)]) {
    for (name, error) in errors {
        put_message(sink, number, |entry| {
            put_message(entry, 1, |resource_name| put_bytes(resource_name, 1, name.as_str().as_bytes()));
            status::put(entry, 2, error);
        });
    }
}

fn put_any(sink: &mut dyn Sink, resource: &Resource) {
    put_bytes(sink, 1, resource.body.type_url.as_bytes());
    put_bytes(sink, 2, &resource.body.value);
}

fn put_control_plane(sink: &mut dyn Sink, number: u32, identifier: &str) {
    if !identifier.is_empty() {
        put_message(sink, number, |control_plane| put_bytes(control_plane, 1, identifier.as_bytes()));
    }
}

/// A response may contain each key only once.
fn key(resource: &Resource) -> (&ResourceName, Option<&Constraints>) {
    (&resource.name, resource.constraints.as_deref())
}

fn all_differ<'a>(mut names: impl Iterator<Item = (&'a ResourceName, Option<&'a Constraints>)>) -> bool {
    let mut seen = std::collections::HashSet::new();
    names.all(|name| seen.insert(name))
}

#[cfg(test)]
mod tests;
