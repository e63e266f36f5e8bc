//! A canonical encoding: equal messages give equal bytes.
//!
//! prost-reflect stores maps hashed and writes the entries in arbitrary order. This encoder sorts the
//! entries, also within payloads, which the JSON reader encodes while reading.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, ReflectMessage, Value};

use sluice_proto::Any;
use sluice_wire::fields::{put_bytes, put_element};

/// Encodes a message with fields sorted by number and map entries sorted by key.
pub(super) fn encode(pool: &DescriptorPool, message: &DynamicMessage) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if message.descriptor().full_name() == super::ANY {
        encode_any(pool, message, &mut bytes)?;
        return Ok(bytes);
    }
    for (field, value) in message.fields() {
        match value {
            Value::Message(inner) => put_element(&mut bytes, field.number(), &encode(pool, inner)?),
            Value::List(values) if field.kind().as_message().is_some() => {
                for value in values {
                    if let Value::Message(inner) = value {
                        put_element(&mut bytes, field.number(), &encode(pool, inner)?);
                    }
                }
            }
            Value::Map(entries) => {
                let mut entries: Vec<_> = entries.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                for (key, value) in entries {
                    let entry = entry(&field, key.clone().into(), value.clone())?;
                    put_element(&mut bytes, field.number(), &encode(pool, &entry)?);
                }
            }
            scalars => {
                let mut alone = DynamicMessage::new(message.descriptor());
                alone.set_field(&field, scalars.clone());
                alone.encode(&mut bytes).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(bytes)
}

/// A map entry as a message, as on the wire.
fn entry(field: &FieldDescriptor, key: Value, value: Value) -> Result<DynamicMessage, String> {
    let kind = field.kind();
    let descriptor = kind.as_message().ok_or_else(|| format!("{} is not a map", field.full_name()))?;
    let mut entry = DynamicMessage::new(descriptor.clone());
    entry.set_field(&descriptor.map_entry_key_field(), key);
    entry.set_field(&descriptor.map_entry_value_field(), value);
    Ok(entry)
}

fn encode_any(pool: &DescriptorPool, any: &DynamicMessage, bytes: &mut Vec<u8>) -> Result<(), String> {
    let any = any.transcode_to::<Any>().map_err(|error| error.to_string())?;
    let value = match super::any_message(pool, &any.type_url) {
        _ if any.type_url == super::fit::EMPTY_ANY => return Ok(()),
        Some(message) => {
            let payload = DynamicMessage::decode(message, &*any.value).map_err(|error| error.to_string())?;
            encode(pool, &payload)?
        }
        // Text format may state the bytes of a type that is unknown.
        None => any.value.to_vec(),
    };
    put_bytes(bytes, 1, any.type_url.as_bytes());
    put_bytes(bytes, 2, &value);
    Ok(())
}
