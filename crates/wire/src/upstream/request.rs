//! Requests to upstreams.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::dynamic::put_locator;
use super::super::fields::{Sink, build, put_bytes, put_element, put_fixed64, put_message, put_varint};
use super::super::frame::{self, HEADER_LEN};
use super::super::status;
use sluice_xds::{Locality, Node, Request, ResourceName, Status, UserAgentVersion, Value};

/// Encodes a request and frames it for gRPC. `node` is an encoded node ([`encode_node`]) for the first
/// request of a stream (STR-2), and replaces the request's own node.
pub fn encode_request(request: &Request, node: Option<&[u8]>) -> Bytes {
    let mut message = encode(HEADER_LEN, request, node);
    // Limits on names keep requests far below the 4 GiB that gRPC can frame. With this header, the upstream
    // could not read a larger request, and would end the stream.
    let header = frame::header(message.len() - HEADER_LEN).unwrap_or([u8::MAX; HEADER_LEN]);
    message[..HEADER_LEN].copy_from_slice(&header);
    message.into()
}

/// Like [`encode_request`], without the frame.
pub fn encode_message(request: &Request, node: Option<&[u8]>) -> Bytes {
    encode(0, request, node).into()
}

fn encode(room: usize, request: &Request, node: Option<&[u8]>) -> Vec<u8> {
    build(room, |sink| match request {
        Request::Sotw(request) => {
            put_bytes(sink, 1, request.version_info.as_bytes());
            put_node(sink, 2, node);
            put_names(sink, 3, 7, &request.resource_names);
            put_bytes(sink, 4, request.type_url.as_bytes());
            put_bytes(sink, 5, request.response_nonce.as_bytes());
            put_error(sink, 6, request.error_detail.as_ref());
        }
        Request::Delta(request) => {
            put_node(sink, 1, node);
            put_bytes(sink, 2, request.type_url.as_bytes());
            put_names(sink, 3, 8, &request.subscribe);
            put_names(sink, 4, 9, &request.unsubscribe);
            for (name, version) in &request.initial_resource_versions {
                put_message(sink, 5, |entry| {
                    put_bytes(entry, 1, name.as_str().as_bytes());
                    put_bytes(entry, 2, version.as_bytes());
                });
            }
            put_bytes(sink, 6, request.response_nonce.as_bytes());
            put_error(sink, 7, request.error_detail.as_ref());
        }
    })
}

/// Encodes a node for an upstream.
pub fn encode_node(node: &Node) -> Vec<u8> {
    let metadata = encode_struct(&node.metadata);
    build(0, |sink| {
        put_bytes(sink, 1, node.id.as_bytes());
        put_bytes(sink, 2, node.cluster.as_bytes());
        put_bytes(sink, 3, &metadata);
        if let Some(Locality { region, zone, sub_zone }) = &node.locality {
            put_message(sink, 4, |locality| {
                put_bytes(locality, 1, region.as_bytes());
                put_bytes(locality, 2, zone.as_bytes());
                put_bytes(locality, 3, sub_zone.as_bytes());
            });
        }
        put_bytes(sink, 6, node.user_agent_name.as_bytes());
        match &node.user_agent_version {
            Some(UserAgentVersion::Text(version)) => put_element(sink, 7, version.as_bytes()),
            Some(UserAgentVersion::Build { major, minor, patch }) => put_message(sink, 8, |build| {
                put_message(build, 1, |version| {
                    put_varint(version, 1, u64::from(*major));
                    put_varint(version, 2, u64::from(*minor));
                    put_varint(version, 3, u64::from(*patch));
                });
            }),
            None => {}
        }
        for feature in &node.client_features {
            put_element(sink, 10, feature.as_bytes());
        }
        for entry in &node.dynamic_parameters {
            put_element(sink, 12, entry);
        }
    })
}

fn put_node(sink: &mut dyn Sink, number: u32, node: Option<&[u8]>) {
    if let Some(node) = node {
        put_element(sink, number, node);
    }
}

fn put_error(sink: &mut dyn Sink, number: u32, error: Option<&Status>) {
    if let Some(error) = error {
        status::put(sink, number, error);
    }
}

/// Plain names and names with parameters have different field numbers (DYN-7).
fn put_names(sink: &mut dyn Sink, number: u32, locators: u32, names: &[ResourceName]) {
    for name in names {
        match name.parameters() {
            Some((name, parameters)) => put_locator(sink, locators, name, &parameters),
            None => put_element(sink, number, name.as_str().as_bytes()),
        }
    }
}

/// Encodes a `google.protobuf.Struct`.
fn encode_struct(fields: &BTreeMap<String, Value>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in fields {
        let value = encode_value(value);
        put_message(&mut bytes, 1, |entry| {
            put_bytes(entry, 1, key.as_bytes());
            put_element(entry, 2, &value);
        });
    }
    bytes
}

/// Encodes a `google.protobuf.Value`. Nested values are encoded from the inside out. Measuring first, as for
/// other messages, would double the work with every level.
fn encode_value(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    match value {
        // The null value is the number zero; unwritten, the value would have no kind.
        Value::Null => bytes.put(&[1 << 3, 0]),
        Value::Bool(value) => bytes.put(&[4 << 3, u8::from(*value)]),
        Value::Number(bits) => put_fixed64(&mut bytes, 2, *bits),
        Value::String(text) => put_element(&mut bytes, 3, text.as_bytes()),
        Value::Struct(fields) => put_element(&mut bytes, 5, &encode_struct(fields)),
        Value::List(values) => {
            let mut encoded = Vec::new();
            for value in values {
                put_element(&mut encoded, 1, &encode_value(value));
            }
            put_element(&mut bytes, 6, &encoded);
        }
    }
    bytes
}
