//! The requests of polls.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde_json::{Map, Number, Value as Json};

use super::{JsonError, message};
use sluice_wire::upstream::{encode_message, encode_node};
use sluice_xds::{Node, Request, SotwRequest, Value};

const REQUEST: &str = "envoy.service.discovery.v3.DiscoveryRequest";

const NODE: &str = "envoy.config.core.v3.Node";

/// A `DiscoveryRequest` in proto3 JSON with the field names of the proto file, as Envoy writes it (RST-2).
/// `node` is the output of [`encode_rest_node`]; every poll contains the node (RST-6).
pub fn encode_rest_request(request: SotwRequest, node: &[u8]) -> Result<Bytes, JsonError> {
    let mut json = vec![b'{'];
    json.extend_from_slice(b"\"node\":");
    json.extend_from_slice(node);
    let rest = to_json(REQUEST, &encode_message(&Request::Sotw(request), None))?;
    let rest = serde_json::to_vec(&rest).map_err(|error| JsonError::Encoding(error.to_string()))?;
    if rest != b"{}" {
        json.push(b',');
        json.extend_from_slice(&rest[1..]);
    } else {
        json.push(b'}');
    }
    Ok(json.into())
}

/// A node in proto3 JSON.
///
/// The metadata is written directly from its values. They may nest as deep as `limits.metadata_depth`, which
/// is deeper than a message decoder goes.
pub fn encode_rest_node(node: &Node) -> Result<Vec<u8>, JsonError> {
    let shallow = Node { metadata: BTreeMap::new(), ..node.clone() };
    let mut json = to_json(NODE, &encode_node(&shallow))?;
    if let (Json::Object(fields), false) = (&mut json, node.metadata.is_empty()) {
        fields.insert("metadata".to_owned(), struct_to_json(&node.metadata));
    }
    serde_json::to_vec(&json).map_err(|error| JsonError::Encoding(error.to_string()))
}

fn to_json(name: &str, bytes: &[u8]) -> Result<Json, JsonError> {
    let encoding = |error: String| JsonError::Encoding(error);
    let dynamic = DynamicMessage::decode(message(name)?, bytes).map_err(|e| encoding(e.to_string()))?;
    let options = SerializeOptions::new().use_proto_field_name(true);
    dynamic
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|e| encoding(e.to_string()))
}

fn struct_to_json(fields: &BTreeMap<String, Value>) -> Json {
    Json::Object(fields.iter().map(|(key, value)| (key.clone(), value_to_json(value))).collect::<Map<_, _>>())
}

fn value_to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        // Neither JSON nor the JSON form of `google.protobuf.Value` can express NaN or infinity.
        Value::Number(bits) => Number::from_f64(f64::from_bits(*bits)).map_or(Json::Null, Json::Number),
        Value::String(text) => Json::String(text.clone()),
        Value::List(values) => Json::Array(values.iter().map(value_to_json).collect()),
        Value::Struct(fields) => struct_to_json(fields),
    }
}
