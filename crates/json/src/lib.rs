//! `DiscoveryResponse` in proto3 JSON, YAML and protobuf's text format, for files (FIL-4); in JSON from REST
//! servers (RST-3); and the `DiscoveryRequest` to REST servers (RST-1).
//!
//! Payloads are spelled out under their `@type`, at any depth, with field names in lowerCamelCase or
//! snake_case. Their meaning comes from the descriptors of Envoy's v3 types. The result is the binary message
//! of an ordinary upstream. It is deterministic to the byte, so that replicas with the same file agree on
//! versions (RLY-30).

mod canonical;
mod fit;
mod request;
mod strict;
mod yaml;
mod poll;
mod answer;
mod text;

pub mod redact;

use std::sync::OnceLock;

use bytes::Bytes;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, Kind, MessageDescriptor};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

pub use answer::{AnswerError, write_response};
pub use poll::{parse_node, read_request};
pub use request::{encode_rest_node, encode_rest_request};
pub use text::parse_text;

use sluice_wire::upstream::{DecodeError, decode_file_resource, decode_file_response, decode_rest_response};
use sluice_xds::{SotwResponse, TypeUrl};

/// A `ClientStatusRequest` in JSON, as binary (ADM-25).
pub fn read_status_request(text: &str) -> Result<Bytes, JsonError> {
    encode("envoy.service.status.v3.ClientStatusRequest", read_json(text)?)
}

/// Built by `tools/descriptors`.
const DESCRIPTORS: &[u8] = include_bytes!("../../../proto/envoy-v3.binpb.zst");

const RESPONSE: &str = "envoy.service.discovery.v3.DiscoveryResponse";

const RESOURCE: &str = "envoy.service.discovery.v3.Resource";

const ANY: &str = "google.protobuf.Any";

/// An error in a text, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text includes line and column.
    #[error("{0}")]
    Syntax(String),
    #[error("{path}: {reason} (in a {message})")]
    Content { path: String, message: String, reason: String },
    #[error("{path}: unknown type {type_url:?}")]
    UnknownType { path: String, type_url: String },
    #[error(transparent)]
    Response(#[from] DecodeError),
    #[error("the message can't be encoded: {0}")]
    Encoding(String),
    /// The embedded descriptors are broken: a build error of sluice.
    #[error("the embedded descriptors of Envoy's types are broken: {0}")]
    Descriptors(String),
}

/// Reads a JSON file: a `DiscoveryResponse`, or the `Resource` of a list collection (FIL-5).
pub fn parse_json(text: &str) -> Result<SotwResponse, JsonError> {
    parse_file(read_json(text)?)
}

fn parse_file(value: Value) -> Result<SotwResponse, JsonError> {
    if value.get("resource").is_some() {
        return Ok(decode_file_resource(&encode(RESOURCE, value)?)?);
    }
    Ok(decode_file_response(encode(RESPONSE, value)?)?)
}

/// Reads the `DiscoveryResponse` of a REST server to a request for this type. A resource of an unknown type
/// fails the whole response: without the resource, the response would mean a deletion (RST-11).
pub fn parse_rest_response(text: &str, type_url: &TypeUrl) -> Result<SotwResponse, JsonError> {
    Ok(decode_rest_response(encode(RESPONSE, read_json(text)?)?, type_url)?)
}

/// The maximum number of values in one document. A value takes two bytes of text, but some 70 bytes of
/// memory. The endpoints of ten thousand hosts are half a million values.
const NODES_MAX: usize = 10_000_000;

/// Whether a JSON text has more than `max` values. Each value follows a comma, a colon, or the beginning of a
/// list.
fn has_more_nodes(text: &str, max: usize) -> bool {
    let (mut nodes, mut is_quoted, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            b',' | b'[' | b':' if !is_quoted => nodes += 1,
            _ => {}
        }
    }
    nodes > max
}

fn read_json(text: &str) -> Result<Value, JsonError> {
    if has_more_nodes(text, NODES_MAX) {
        return Err(JsonError::Syntax(format!("the document has more than {NODES_MAX} values")));
    }
    let strict: strict::Strict =
        serde_json::from_str(text).map_err(|error| JsonError::Syntax(error.to_string()))?;
    Ok(strict.0)
}

/// Reads a YAML file; see [`parse_json`].
pub fn parse_yaml(text: &str) -> Result<SotwResponse, JsonError> {
    parse_file(yaml::read_yaml(text).map_err(JsonError::Syntax)?)
}

/// The binary form of a message with this full name.
fn encode(name: &str, mut value: Value) -> Result<Bytes, JsonError> {
    let pool = pool()?;
    let response = message(name)?;
    fit::fit(pool, &response, &mut value);
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(&value, &mut track);
    let options = DeserializeOptions::new();
    let message = DynamicMessage::deserialize_with_options(response.clone(), deserializer, &options)
        .map_err(|error| content_error(pool, response, &value, &track.path(), error.to_string()))?;
    canonical::encode(pool, &message).map(Bytes::from).map_err(JsonError::Encoding)
}

fn message(name: &str) -> Result<MessageDescriptor, JsonError> {
    let missing = || JsonError::Descriptors(format!("{name} is missing"));
    pool()?.get_message_by_name(name).ok_or_else(missing)
}

/// The descriptors, unpacked on first use. Unpacking takes some 20 ms, and relays without files don't need
/// it.
fn pool() -> Result<&'static DescriptorPool, JsonError> {
    static POOL: OnceLock<Result<DescriptorPool, String>> = OnceLock::new();
    let unpack = || {
        let bytes = zstd::decode_all(DESCRIPTORS).map_err(|error| error.to_string())?;
        DescriptorPool::decode(&*bytes).map_err(|error| error.to_string())
    };
    POOL.get_or_init(unpack).as_ref().map_err(|error| JsonError::Descriptors(error.clone()))
}

/// Adds the type of the message at the path to an error.
fn content_error(
    pool: &DescriptorPool,
    response: MessageDescriptor,
    root: &Value,
    path: &Path,
    reason: String,
) -> JsonError {
    let (mut message, mut value) = (response, root);
    for segment in path {
        let (inner, field_kind) = match segment {
            Segment::Seq { index } => (value.get(index), None),
            Segment::Map { key } => (value.get(key), field_kind(pool, &message, value, key)),
            _ => break,
        };
        let Some(inner) = inner else { break };
        match (segment, field_kind) {
            (_, Some(Kind::Message(of_field))) => message = of_field,
            (Segment::Map { .. }, _) => break,
            _ => {}
        }
        value = inner;
    }
    let path = match path.to_string() {
        // The root of the document.
        root if root == "." => "response".to_owned(),
        path => path,
    };
    match any_type(&message, value) {
        Some(type_url) => match any_message(pool, type_url) {
            Some(of_any) => JsonError::Content { path, message: of_any.full_name().to_owned(), reason },
            None => JsonError::UnknownType { path, type_url: type_url.to_owned() },
        },
        None => JsonError::Content { path, message: message.full_name().to_owned(), reason },
    }
}

/// The kind of a message's field with this key; for a map, the kind of its values.
fn field_kind(pool: &DescriptorPool, message: &MessageDescriptor, value: &Value, key: &str) -> Option<Kind> {
    if message.is_map_entry() {
        return Some(message.map_entry_value_field().kind());
    }
    let of_any = any_type(message, value).and_then(|type_url| any_message(pool, type_url));
    let message = of_any.as_ref().unwrap_or(message);
    message.get_field_by_json_name(key).or_else(|| message.get_field_by_name(key)).map(|field| field.kind())
}

fn any_type<'a>(message: &MessageDescriptor, value: &'a Value) -> Option<&'a str> {
    if message.full_name() == ANY { value.get("@type")?.as_str() } else { None }
}

fn any_message(pool: &DescriptorPool, type_url: &str) -> Option<MessageDescriptor> {
    pool.get_message_by_name(type_url.rsplit('/').next()?)
}

#[cfg(test)]
mod tests;
