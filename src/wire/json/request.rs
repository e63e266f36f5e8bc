//! The requests of polls.

use bytes::Bytes;
use prost_reflect::{DynamicMessage, SerializeOptions};

use super::{JsonError, message};
use crate::wire::upstream::encode_message;
use crate::xds::{Request, SotwRequest};

const REQUEST: &str = "envoy.service.discovery.v3.DiscoveryRequest";

/// A `DiscoveryRequest` in proto3 JSON with the field names of the proto, as Envoy writes it (RST-2). `node` is encoded:
/// every poll carries it (RST-6).
pub fn encode_rest_request(request: SotwRequest, node: &[u8]) -> Result<Bytes, JsonError> {
    let bytes = encode_message(&Request::Sotw(request), Some(node));
    let encoding = |error: String| JsonError::Encoding(error);
    let dynamic = DynamicMessage::decode(message(REQUEST)?, bytes).map_err(|e| encoding(e.to_string()))?;
    let mut json = serde_json::Serializer::new(Vec::new());
    let options = SerializeOptions::new().use_proto_field_name(true);
    dynamic.serialize_with_options(&mut json, &options).map_err(|e| encoding(e.to_string()))?;
    Ok(json.into_inner().into())
}
