//! Responses for clients: one body shared by all that get the same selection, one small head for each stream.
//!
//! A response message is its head followed by its body. The order of fields is free in protobuf, so the nonce,
//! the one field that differs between streams, goes first and the rest of the message is encoded once.

use std::sync::Arc;

use bytes::Bytes;

use super::dynamic::put_name;
use super::fields::{Sink, build, put_bytes, put_element, put_message, put_varint};
use super::frame::{self, HEADER_LEN};
use crate::xds::{Code, Constraints, Resource, ResourceName, Status, TypeUrl, Version};

/// The Any type of a resource that is wrapped to travel in a SotW response (WIR-7).
pub(super) const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// The nonce has this number in the responses of both variants.
const NONCE: u32 = 5;

/// The shared part of a SotW response: all but the nonce.
///
/// Resources go unwrapped (WIR-8), except those that can't be told apart without the wrapper: of a type without
/// a name field (WIR-9), or redirects (NAM-20). Only clients with `xds.config.resource-in-sotw` take these.
pub fn sotw_body<'a>(
    type_url: &TypeUrl,
    version: Version,
    resources: impl Iterator<Item = &'a Resource> + Clone,
    identifier: &str,
) -> Bytes {
    debug_assert!(all_differ(resources.clone().map(key)), "SST-8: a name is repeated");
    let version = version.to_string();
    let body = build(0, |sink| {
        put_bytes(sink, 1, version.as_bytes());
        for resource in resources.clone() {
            put_message(sink, 2, |any| {
                if resource.names_itself(type_url) {
                    put_any(any, resource);
                } else {
                    put_bytes(any, 1, WRAPPER.as_bytes());
                    put_message(any, 2, |wrapper| put_resource(wrapper, resource));
                }
            });
        }
        put_bytes(sink, 4, type_url.as_str().as_bytes());
        put_control_plane(sink, 6, identifier);
    });
    body.into()
}

/// The shared part of a delta response: all but the nonce. `system_version` is for display (DEL-15); `variants` are removed
/// by their constraints (WIR-4, DYN-6).
pub fn delta_body<'a>(
    type_url: &TypeUrl,
    system_version: Version,
    resources: impl Iterator<Item = &'a Resource> + Clone,
    removed: impl Iterator<Item = &'a ResourceName> + Clone,
    variants: &'a [(ResourceName, Arc<Constraints>)],
    identifier: &str,
) -> Bytes {
    debug_assert!(
        all_differ(
            resources
                .clone()
                .map(key)
                .chain(removed.clone().map(|name| (name, None)))
                .chain(variants.iter().map(|(name, constraints)| (name, Some(&**constraints))))
        ),
        "DEL-16: a name is repeated"
    );
    let system_version = system_version.to_string();
    let body = build(0, |sink| {
        put_bytes(sink, 1, system_version.as_bytes());
        for resource in resources.clone() {
            put_message(sink, 2, |message| put_resource(message, resource));
        }
        put_bytes(sink, 4, type_url.as_str().as_bytes());
        for name in removed.clone() {
            put_element(sink, 6, name.as_str().as_bytes());
        }
        put_control_plane(sink, 7, identifier);
        for (name, constraints) in variants {
            put_name(sink, 8, name, constraints);
        }
    });
    body.into()
}

/// The private part of a response of either variant: gRPC's header for the whole message, and the nonce.
///
/// Fails for a message that gRPC can't frame, of 4 GiB and more.
pub fn head(nonce: &str, body_len: usize) -> Result<Bytes, Status> {
    let mut head = build(HEADER_LEN, |sink| put_bytes(sink, NONCE, nonce.as_bytes()));
    let message_len = head.len() - HEADER_LEN + body_len;
    let header = frame::header(message_len).ok_or_else(|| {
        let reason = format!("bytes of a response message: found {message_len}, allowed are {}", u32::MAX);
        Status::new(Code::ResourceExhausted, reason)
    })?;
    head[..HEADER_LEN].copy_from_slice(&header);
    Ok(head.into())
}

fn put_resource(sink: &mut dyn Sink, resource: &Resource) {
    put_bytes(sink, 1, resource.version.to_string().as_bytes());
    if resource.has_payload() {
        put_message(sink, 2, |any| put_any(any, resource));
    }
    match &resource.constraints {
        None => put_bytes(sink, 3, resource.name.as_str().as_bytes()),
        Some(constraints) => put_name(sink, 8, &resource.name, constraints),
    }
    for alias in &resource.aliases {
        put_element(sink, 4, alias.as_str().as_bytes());
    }
    if resource.do_not_cache {
        put_message(sink, 7, |control| put_varint(control, 1, 1));
    }
    if let Some(metadata) = &resource.metadata {
        put_element(sink, 9, metadata);
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

/// What a response may tell of once only.
fn key(resource: &Resource) -> (&ResourceName, Option<&Constraints>) {
    (&resource.name, resource.constraints.as_deref())
}

fn all_differ<'a>(mut names: impl Iterator<Item = (&'a ResourceName, Option<&'a Constraints>)>) -> bool {
    let mut seen = std::collections::HashSet::new();
    names.all(|name| seen.insert(name))
}

#[cfg(test)]
mod tests;
