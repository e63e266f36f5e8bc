//! The content as protobuf. Fields that the descriptors do not know are dropped: nobody can say whether they
//! are secret.

use prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, MapKey, ReflectMessage, Value as Field};

use super::rules::Rules;
use super::{Budget, DEPTH_MAX, Refusal, hidden_text, hide_in, open, rules};
use sluice_text::secrets;
use sluice_wire::fields::{put_bytes, put_element};

/// The bytes of a message: fields sorted by number, entries of maps by key.
pub(super) fn encode(message: &DynamicMessage, budget: Budget) -> Result<Vec<u8>, Refusal> {
    Encode { rules: rules()?, budget, depth: 0 }.message(message)
}

struct Encode {
    rules: &'static Rules,
    budget: Budget,
    depth: usize,
}

impl Encode {
    fn message(&mut self, message: &DynamicMessage) -> Result<Vec<u8>, Refusal> {
        if self.depth >= DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        self.depth += 1;
        let mut bytes = Vec::new();
        let descriptor = message.descriptor();
        match descriptor.full_name() {
            super::SECRET => return Err(Refusal::Secret),
            super::super::ANY => self.any(message, &mut bytes),
            _ => {
                for (field, value) in message.fields() {
                    match self.rules.hides(message, &descriptor, &field) {
                        true => put_hidden(&field, value, &mut bytes),
                        false => self.field(message, &field, value, &mut bytes)?,
                    }
                }
            }
        }
        self.depth -= 1;
        Ok(bytes)
    }

    fn field(
        &mut self,
        message: &DynamicMessage,
        field: &FieldDescriptor,
        value: &Field,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        match value {
            Field::Message(inner) => put_element(bytes, field.number(), &self.message(inner)?),
            Field::List(values) if field.kind().as_message().is_some() => {
                for value in values {
                    if let Field::Message(inner) = value {
                        put_element(bytes, field.number(), &self.message(inner)?);
                    }
                }
            }
            Field::Map(entries) => {
                let mut entries: Vec<_> = entries.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                for (key, value) in entries {
                    let entry = self.entry(field, key, value)?;
                    put_element(bytes, field.number(), &entry);
                }
            }
            scalars => {
                let mut alone = DynamicMessage::new(message.descriptor());
                alone.set_field(field, hide_in(scalars).unwrap_or_else(|| scalars.clone()));
                alone.encode(bytes).map_err(|_| Refusal::Malformed)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, field: &FieldDescriptor, key: &MapKey, value: &Field) -> Result<Vec<u8>, Refusal> {
        let kind = field.kind();
        let descriptor = kind.as_message().ok_or(Refusal::Malformed)?;
        let mut alone = DynamicMessage::new(descriptor.clone());
        alone.set_field(&descriptor.map_entry_key_field(), Field::from(key.clone()));
        let mut bytes = alone.encode_to_vec();
        let value_field = descriptor.map_entry_value_field();
        match key {
            MapKey::String(name) if secrets::is_name(name) => put_hidden(&value_field, value, &mut bytes),
            _ => match value {
                Field::Message(inner) => put_element(&mut bytes, value_field.number(), &self.message(inner)?),
                scalar => {
                    let mut alone = DynamicMessage::new(descriptor.clone());
                    alone.set_field(&value_field, hide_in(scalar).unwrap_or_else(|| scalar.clone()));
                    alone.encode(&mut bytes).map_err(|_| Refusal::Malformed)?;
                }
            },
        }
        Ok(bytes)
    }

    /// A payload that cannot be decoded leaves only its type URL.
    fn any(&mut self, any: &DynamicMessage, bytes: &mut Vec<u8>) {
        let (type_url, payload) = match open(any, &mut self.budget) {
            Ok((type_url, message)) if !is_secret_text(&message) => (type_url, self.message(&message).ok()),
            Ok((type_url, _)) => (type_url, None),
            Err(closed) => (closed.type_url, None),
        };
        put_bytes(bytes, 1, type_url.as_bytes());
        put_bytes(bytes, 2, &payload.unwrap_or_default());
    }
}

/// A text in place of a structure is an opaque configuration.
fn is_secret_text(message: &DynamicMessage) -> bool {
    let value = message.get_field_by_number(1);
    match message.descriptor().full_name() {
        "google.protobuf.BytesValue" => true,
        "google.protobuf.StringValue" => {
            value.as_deref().and_then(Field::as_str).is_some_and(secrets::are_mentioned)
        }
        _ => false,
    }
}

/// A text remains as its size. Other values leave nothing.
fn put_hidden(field: &FieldDescriptor, value: &Field, bytes: &mut Vec<u8>) {
    if let Field::String(_) | Field::Bytes(_) = value {
        put_element(bytes, field.number(), hidden_text(value).as_bytes());
    }
}
