//! `DiscoveryResponse` in proto3 JSON, for REST clients (RST-3, RST-11).
//!
//! Every payload is spelled out under its `@type`, at any depth, so the descriptors must contain its type. An
//! unknown type fails the response, with the type in the error: clients would take an omitted resource for a
//! deleted one. Unknown fields have no JSON form, and are omitted as proto3 demands.

use bytes::Bytes;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MapKey, ReflectMessage, SerializeOptions, Value};

use super::fit::EMPTY_ANY;
use sluice_proto::Any;
use sluice_wire::response::WRAPPER;
use sluice_xds::{Code, Resource, ResourceName, Status, TypeUrl, Version};

/// The maximum nesting of messages, including messages inside payloads inside payloads. Equals protobuf's own
/// limit for one payload.
const DEPTH_MAX: usize = 100;

/// The reason why a resource has no JSON form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("unknown type {type_url}: {place} of {resource:?} has no JSON form")]
    UnknownType { resource: String, place: String, type_url: String },
    #[error("{place} of {resource:?} is malformed: {reason}")]
    Malformed { resource: String, place: String, reason: String },
    /// The embedded descriptors are broken: a build error of sluice.
    #[error("{0}")]
    Descriptors(String),
}

impl From<AnswerError> for Status {
    fn from(error: AnswerError) -> Self {
        let code = match error {
            AnswerError::UnknownType { .. } => Code::Unimplemented,
            AnswerError::Malformed { .. } | AnswerError::Descriptors(_) => Code::Internal,
        };
        Status::new(code, error.to_string())
    }
}

/// A complete response, with snake_case keys as Envoy and control planes write them (RST-2).
///
/// # Errors
/// The first payload without a JSON form; nothing is omitted instead.
pub fn write_response<'a>(
    type_url: &TypeUrl,
    version: Version,
    resources: impl Iterator<Item = &'a Resource>,
    identifier: &str,
) -> Result<Bytes, AnswerError> {
    let pool = super::pool().map_err(|error| AnswerError::Descriptors(error.to_string()))?;
    let mut json = Vec::new();
    json.extend_from_slice(b"{\"version_info\":");
    put_text(&mut json, &version.to_string());
    json.extend_from_slice(b",\"type_url\":");
    put_text(&mut json, type_url.as_str());
    json.extend_from_slice(b",\"resources\":[");
    for (index, resource) in resources.enumerate() {
        if index > 0 {
            json.push(b',');
        }
        put_resource(&mut json, pool, type_url, resource)?;
    }
    json.push(b']');
    if !identifier.is_empty() {
        json.extend_from_slice(b",\"control_plane\":{\"identifier\":");
        put_text(&mut json, identifier);
        json.push(b'}');
    }
    json.push(b'}');
    Ok(json.into())
}

fn put_text(json: &mut Vec<u8>, text: &str) {
    // Writing text to a `Vec` can't fail.
    let _ = serde_json::to_writer(json, text);
}

/// Writes the bare message, or a wrapper if only the wrapper has the name (WIR-9, NAM-20).
fn put_resource(
    json: &mut Vec<u8>,
    pool: &DescriptorPool,
    type_url: &TypeUrl,
    resource: &Resource,
) -> Result<(), AnswerError> {
    if resource.names_itself(type_url) {
        return put_payload(json, pool, resource);
    }
    json.extend_from_slice(b"{\"@type\":");
    put_text(json, WRAPPER);
    json.extend_from_slice(b",\"name\":");
    put_text(json, resource.name.as_str());
    json.extend_from_slice(b",\"version\":");
    put_text(json, &resource.version.to_string());
    json.extend_from_slice(b",\"resource\":");
    put_payload(json, pool, resource)?;
    json.push(b'}');
    Ok(())
}

fn put_payload(json: &mut Vec<u8>, pool: &DescriptorPool, resource: &Resource) -> Result<(), AnswerError> {
    let any = Any { type_url: resource.body.type_url.to_string(), value: resource.body.value.clone() };
    let mut check = Check { pool, resource: &resource.name, path: Vec::new(), has_empty: false };
    check.any(&any, DEPTH_MAX)?;
    let malformed = |reason: String| malformed(&resource.name, &[], reason);
    let descriptor =
        pool.get_message_by_name(super::ANY).ok_or_else(|| malformed("Any is missing".to_owned()))?;
    let mut message = DynamicMessage::new(descriptor);
    message.transcode_from(&any).map_err(|error| malformed(error.to_string()))?;
    if check.has_empty {
        mark_empty(pool, &mut message).map_err(malformed)?;
    }
    let options = SerializeOptions::new().use_proto_field_name(true);
    let begin = json.len();
    message
        .serialize_with_options(&mut serde_json::Serializer::new(&mut *json), &options)
        .map_err(|error| malformed(error.to_string()))?;
    if check.has_empty {
        let marked = json.split_off(begin);
        let mark = format!("{{\"@type\":\"{EMPTY_ANY}\"}}");
        json.extend_from_slice(String::from_utf8_lossy(&marked).replace(&mark, "{}").as_bytes());
    }
    Ok(())
}

/// Gives each empty `Any` a type, as the serializer writes none without.
fn mark_empty(pool: &DescriptorPool, message: &mut DynamicMessage) -> Result<(), String> {
    if message.descriptor().full_name() == super::ANY {
        let mut any: Any = message.transcode_to().map_err(|error| error.to_string())?;
        if let Some(payload) = super::any_message(pool, &any.type_url) {
            let mut payload =
                DynamicMessage::decode(payload, any.value.as_ref()).map_err(|error| error.to_string())?;
            mark_empty(pool, &mut payload)?;
            any.value = payload.encode_to_vec().into();
        } else {
            any.type_url = EMPTY_ANY.to_owned();
        }
        return message.transcode_from(&any).map_err(|error| error.to_string());
    }
    for (_, value) in message.fields_mut() {
        match value {
            Value::Message(inner) => mark_empty(pool, inner)?,
            Value::List(values) => {
                values
                    .iter_mut()
                    .filter_map(Value::as_message_mut)
                    .try_for_each(|inner| mark_empty(pool, inner))?;
            }
            Value::Map(entries) => {
                let mut values = entries.values_mut().filter_map(Value::as_message_mut);
                values.try_for_each(|inner| mark_empty(pool, inner))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Finds types unknown to the descriptors, and nesting too deep to write, before any output.
struct Check<'a> {
    pool: &'a DescriptorPool,
    resource: &'a ResourceName,
    path: Vec<String>,
    /// The resource has an `Any` without type and bytes, whose JSON is `{}`.
    has_empty: bool,
}

impl Check<'_> {
    fn any(&mut self, any: &Any, depth: usize) -> Result<(), AnswerError> {
        if any.type_url.is_empty() && any.value.is_empty() && !self.path.is_empty() {
            self.has_empty = true;
            return Ok(());
        }
        let Some(descriptor) = super::any_message(self.pool, &any.type_url) else {
            let (resource, type_url) = (self.resource.as_str().to_owned(), any.type_url.clone());
            return Err(AnswerError::UnknownType { resource, place: place(&self.path), type_url });
        };
        let message = DynamicMessage::decode(descriptor, any.value.as_ref())
            .map_err(|error| self.malformed(error.to_string()))?;
        self.message(&message, depth)
    }

    fn message(&mut self, message: &DynamicMessage, depth: usize) -> Result<(), AnswerError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.malformed(format!("more than {DEPTH_MAX} messages within each other")));
        };
        if message.descriptor().full_name() == super::ANY {
            let any: Any = message.transcode_to().map_err(|error| self.malformed(error.to_string()))?;
            return self.any(&any, depth);
        }
        for (field, value) in message.fields() {
            let mut check = |key: Option<String>, value: &Value| {
                let Value::Message(inner) = value else { return Ok(()) };
                self.path.push(match key {
                    Some(key) => format!("{}[{key}]", field.name()),
                    None => field.name().to_owned(),
                });
                let checked = self.message(inner, depth);
                self.path.pop();
                checked
            };
            match value {
                Value::Message(_) => check(None, value)?,
                Value::List(values) if field.kind().as_message().is_some() => {
                    for (index, value) in values.iter().enumerate() {
                        check(Some(index.to_string()), value)?;
                    }
                }
                Value::Map(entries) => {
                    for (key, value) in entries {
                        check(Some(spelled(key)), value)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn malformed(&self, reason: String) -> AnswerError {
        malformed(self.resource, &self.path, reason)
    }
}

fn spelled(key: &MapKey) -> String {
    match key {
        MapKey::String(key) => key.clone(),
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
    }
}

fn malformed(resource: &ResourceName, path: &[String], reason: String) -> AnswerError {
    AnswerError::Malformed { resource: resource.as_str().to_owned(), place: place(path), reason }
}

fn place(path: &[String]) -> String {
    if path.is_empty() { "the payload".to_owned() } else { path.join(".") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::parse_json;

    const LISTENER: &str = r#"{
      "type_url": "type.googleapis.com/envoy.config.listener.v3.Listener",
      "resources": [{
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "main",
        "per_connection_buffer_limit_bytes": 0,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 80}},
        "filter_chains": [{"filters": [{
          "name": "hcm",
          "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "h",
            "http_filters": [{
              "name": "router",
              "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router", "dynamic_stats": false}
            }],
            "stream_idle_timeout": "1.5s"
          }
        }]}],
        "metadata": {"filter_metadata": {"m": {"k": [1, null, "x"]}}}
      }]
    }"#;

    fn resource(name: &str, type_url: &str, value: Vec<u8>) -> Resource {
        let body = sluice_xds::Any { type_url: type_url.into(), value: value.into() };
        Resource {
            name: ResourceName::new(name),
            version: Version(7),
            body,
            aliases: Box::default(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        }
    }

    fn write(type_url: &str, resources: &[Resource]) -> Result<String, AnswerError> {
        let json = write_response(&TypeUrl::new(type_url), Version(5), resources.iter(), "relay")?;
        Ok(String::from_utf8(json.to_vec()).unwrap())
    }

    #[test]
    fn rst_11_payloads_within_payloads_are_spelled_out_and_read_back() {
        let original = parse_json(LISTENER).unwrap();
        let listener: &Arc<Resource> = original.resources[0].as_ref().unwrap().resource.as_ref().unwrap();
        let json = write(original.type_url.as_str(), &[(**listener).clone()]).unwrap();
        for part in [
            r#""version_info":"00000000000000000000000000000005""#,
            r#""type_url":"type.googleapis.com/envoy.config.listener.v3.Listener""#,
            r#""control_plane":{"identifier":"relay"}"#,
            r#""@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router","dynamic_stats":false"#,
            r#""stream_idle_timeout":"1.500s""#,
            r#""filter_metadata":{"m":{"k":[1.0,null,"x"]}}"#,
        ] {
            assert!(json.contains(part), "{part} in {json}");
        }
        let read = parse_json(&json).unwrap();
        let again = read.resources[0].as_ref().unwrap().resource.as_ref().unwrap();
        assert_eq!(again.body, listener.body, "nothing is lost on the way");
    }

    #[test]
    fn rst_11_an_unknown_type_is_named_with_its_resource_and_place() {
        let error = write(
            "type.googleapis.com/envoy.api.v2.Cluster",
            &[resource("c", "type.googleapis.com/envoy.api.v2.Cluster", vec![])],
        )
        .unwrap_err();
        assert_eq!(Status::from(error.clone()).code, Code::Unimplemented);
        assert!(error.to_string().contains("envoy.api.v2.Cluster") && error.to_string().contains("\"c\""));

        // Listener.metadata.typed_filter_metadata["k"] = Any { type_url: "x/acme.Unknown" }
        let any = b"\x0a\x0ex/acme.Unknown";
        let entry = [b"\x0a\x01k\x12".as_slice(), &[any.len() as u8], any].concat();
        let metadata = [b"\x12".as_slice(), &[entry.len() as u8], &entry].concat();
        let listener = [b"\x0a\x01l\x32".as_slice(), &[metadata.len() as u8], &metadata].concat();
        let url = "type.googleapis.com/envoy.config.listener.v3.Listener";
        let good = resource("good", url, b"\x0a\x04good".to_vec());
        let error = write(url, &[good, resource("l", url, listener)]).unwrap_err();
        assert_eq!(
            error,
            AnswerError::UnknownType {
                resource: "l".into(),
                place: "metadata.typed_filter_metadata[k]".into(),
                type_url: "x/acme.Unknown".into()
            }
        );
    }

    #[test]
    fn rst_11_an_empty_any_is_an_empty_object() {
        let text = r#"{"resources": [{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l {}",
            "filter_chains": [{"filters": [{"name": "f", "typed_config": {}}, {"name": "g", "typed_config":
                {"@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig", "typed_config": {}}}]}]}]}"#;
        let response = parse_json(text).unwrap();
        let listener = response.resources[0].as_ref().unwrap().resource.as_ref().unwrap();
        let url = "type.googleapis.com/envoy.config.listener.v3.Listener";
        let json = write(url, std::slice::from_ref(listener)).unwrap();
        assert!(json.contains(r#"{"name":"f","typed_config":{}}"#), "{json}");
        assert!(json.contains(r#"TypedExtensionConfig","typed_config":{}}"#), "{json}");
        assert_eq!(parse_json(&json).unwrap().resources.len(), 1);
        let again = parse_json(&json).unwrap().resources[0].as_ref().unwrap().resource.clone().unwrap();
        assert_eq!(again.body, listener.body, "nothing is lost on the way");
    }

    #[test]
    fn what_nests_without_end_is_an_error_and_not_the_end_of_the_process() {
        let mut any = Vec::new();
        for _ in 0..10_000 {
            any = Any { type_url: "x/google.protobuf.Any".into(), value: any.into() }.encode_to_vec();
        }
        let url = "type.googleapis.com/google.protobuf.Any";
        let error = write(url, &[resource("deep", url, any)]).unwrap_err();
        assert!(matches!(&error, AnswerError::Malformed { resource, .. } if resource == "deep"), "{error}");
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error() {
        let url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        let error = write(url, &[resource("bad", url, vec![0xff])]).unwrap_err();
        assert_eq!(Status::from(error.clone()).code, Code::Internal);
        assert!(error.to_string().contains("\"bad\""));
    }

    #[test]
    fn sst_7_an_empty_set_is_a_response_too() {
        let json = write("type.googleapis.com/envoy.config.cluster.v3.Cluster", &[]).unwrap();
        assert!(json.contains(r#""resources":[]"#), "{json}");
        assert!(parse_json(&json).unwrap().resources.is_empty());
    }
}
