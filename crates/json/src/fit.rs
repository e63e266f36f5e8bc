//! Fits values to the types of their fields, as the JSON reader of Envoy does.
//!
//! Envoy reads numbers, booleans and enum values out of texts, and a single value as a list with one element.
//! A YAML file depends on that: `1e3` is a text in YAML (see `yaml`), and a number in a field of numbers. An
//! empty `Any` has no type.

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Number, Value};

use super::{ANY, any_message};

/// The type of an empty `Any` in this crate: the library reads no `Any` without a type. No text has a
/// noncharacter by accident, and one that has it on purpose makes an empty `Any`.
pub(super) const EMPTY_ANY: &str = "\u{fdd0}/envoy.config.core.v3.AggregatedConfigSource";

/// Messages whose JSON is no object with their fields, and which hold no value that needs a fit.
const PLAIN: [&str; 6] = ["Struct", "Value", "ListValue", "Duration", "Timestamp", "FieldMask"];

const WRAPPERS: [&str; 9] = [
    "DoubleValue",
    "FloatValue",
    "Int64Value",
    "UInt64Value",
    "Int32Value",
    "UInt32Value",
    "BoolValue",
    "StringValue",
    "BytesValue",
];

/// Fits the JSON of a message. What fits no field stays, for the error of the reader.
pub(super) fn fit(pool: &DescriptorPool, message: &MessageDescriptor, value: &mut Value) {
    let well_known = message.full_name().strip_prefix("google.protobuf.").unwrap_or_default();
    if PLAIN.contains(&well_known) {
        return;
    }
    if WRAPPERS.contains(&well_known) {
        return message.fields().for_each(|field| fit_kind(pool, &field.kind(), value));
    }
    let Value::Object(fields) = value else { return };
    if message.full_name() == ANY {
        return fit_any(pool, fields);
    }
    fit_fields(pool, message, fields);
}

fn fit_any(pool: &DescriptorPool, fields: &mut Map<String, Value>) {
    if fields.is_empty() {
        fields.insert("@type".to_owned(), EMPTY_ANY.into());
    }
    let type_url = fields.get("@type").and_then(Value::as_str);
    let Some(message) = type_url.and_then(|type_url| any_message(pool, type_url)) else { return };
    let well_known = message.full_name().strip_prefix("google.protobuf.").unwrap_or_default();
    if PLAIN.contains(&well_known) || WRAPPERS.contains(&well_known) || well_known == "Any" {
        if let Some(value) = fields.get_mut("value") {
            fit(pool, &message, value);
        }
        return;
    }
    fit_fields(pool, &message, fields);
}

fn fit_fields(pool: &DescriptorPool, message: &MessageDescriptor, fields: &mut Map<String, Value>) {
    for (key, value) in fields {
        let field = message.get_field_by_json_name(key).or_else(|| message.get_field_by_name(key));
        if let Some(field) = field.filter(|_| !value.is_null()) {
            fit_field(pool, &field, value);
        }
    }
}

fn fit_field(pool: &DescriptorPool, field: &FieldDescriptor, value: &mut Value) {
    let kind = field.kind();
    if field.is_map() {
        let (Value::Object(entries), Some(entry)) = (value, kind.as_message()) else { return };
        let kind = entry.map_entry_value_field().kind();
        return entries.values_mut().for_each(|value| fit_kind(pool, &kind, value));
    }
    if !field.is_list() {
        return fit_kind(pool, &kind, value);
    }
    if !value.is_array() {
        *value = Value::Array(vec![value.take()]);
    }
    if let Value::Array(values) = value {
        values.iter_mut().for_each(|value| fit_kind(pool, &kind, value));
    }
}

fn fit_kind(pool: &DescriptorPool, kind: &Kind, value: &mut Value) {
    if let Kind::Message(message) = kind {
        return fit(pool, message, value);
    }
    let Value::String(text) = &*value else { return };
    let fitted = match kind {
        Kind::Bool => boolean(text).map(Value::Bool),
        Kind::Enum(values) if values.get_value_by_name(text).is_none() => {
            let by_name = values.values().find(|value| value.name().eq_ignore_ascii_case(text));
            let by_name = by_name.map(|value| Value::from(value.name()));
            by_name.or_else(|| text.parse::<i32>().ok().map(Value::from))
        }
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            text.parse::<i64>().err().and_then(|_| number(text))
        }
        Kind::Uint32 | Kind::Fixed32 | Kind::Uint64 | Kind::Fixed64 => {
            text.parse::<u64>().err().and_then(|_| number(text))
        }
        _ => None,
    };
    if let Some(fitted) = fitted {
        *value = fitted;
    }
}

fn boolean(text: &str) -> Option<bool> {
    match &*text.to_ascii_lowercase() {
        "true" | "t" | "yes" | "y" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// The number of an integer field that is written as no decimal integer: `0x10`, `1e3`, `1.0`.
fn number(text: &str) -> Option<Value> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    if let Some(digits) = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        return u64::from_str_radix(digits, 16).ok().map(Value::from);
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Number::from_f64(number).map(Value::Number)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::super::{message, pool};
    use super::*;

    fn fitted(mut value: Value) -> Value {
        fit(pool().unwrap(), &message("envoy.config.cluster.v3.Cluster").unwrap(), &mut value);
        value
    }

    #[test]
    fn fil_4_a_text_is_the_value_of_its_field() {
        for (before, after) in [
            (
                json!({"per_connection_buffer_limit_bytes": "1e3"}),
                json!({"per_connection_buffer_limit_bytes": 1e3}),
            ),
            (json!({"perConnectionBufferLimitBytes": "0x10"}), json!({"perConnectionBufferLimitBytes": 16})),
            (json!({"ignore_health_on_host_removal": "yes"}), json!({"ignore_health_on_host_removal": true})),
            (json!({"lb_policy": "ring_hash"}), json!({"lb_policy": "RING_HASH"})),
            (json!({"lb_policy": "2"}), json!({"lb_policy": 2})),
            (
                json!({"health_checks": {"unhealthy_threshold": "2.0"}}),
                json!({"health_checks": [{"unhealthy_threshold": 2.0}]}),
            ),
            (
                json!({"typed_extension_protocol_options": {"k": {}}}),
                json!({"typed_extension_protocol_options": {"k": {"@type": EMPTY_ANY}}}),
            ),
        ] {
            assert_eq!(fitted(before), after);
        }
    }

    #[test]
    fn fil_4_other_values_stay() {
        for value in [
            json!({"per_connection_buffer_limit_bytes": "5", "alt_stat_name": "1e3", "cleanup_interval": "1s"}),
            json!({"per_connection_buffer_limit_bytes": "1_000", "ignore_health_on_host_removal": "maybe"}),
            json!({"metadata": {"filter_metadata": {"t": {"a": "yes", "b": "1e3", "c": "0x10", "d": {}}}}}),
            json!({"unknown": {"a": "yes"}, "health_checks": null, "lb_policy": 2, "circuit_breakers": 5}),
        ] {
            assert_eq!(fitted(value.clone()), value);
        }
    }
}
