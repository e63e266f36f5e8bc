//! The content as JSON, with the names of the proto files.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value as Field};
use serde_json::{Map, Value};

use super::rules::Rules;
use super::{Budget, Closed, DEPTH_MAX, Reader, Refusal, hidden_text, hide_bytes, open, rules};
use sluice_text::secrets;
use sluice_wire::version::digest;

/// The JSON of a message.
pub(super) fn show(message: &DynamicMessage, reader: Reader, budget: Budget) -> Result<Value, Refusal> {
    Show { rules: rules()?, reader, budget, depth: 0 }.message(message)
}

struct Show {
    rules: &'static Rules,
    reader: Reader,
    budget: Budget,
    /// The number of messages around the current one.
    depth: usize,
}

impl Show {
    fn message(&mut self, message: &DynamicMessage) -> Result<Value, Refusal> {
        if self.depth >= DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        self.depth += 1;
        let value = self.value_of(message);
        self.depth -= 1;
        value
    }

    fn value_of(&mut self, message: &DynamicMessage) -> Result<Value, Refusal> {
        let descriptor = message.descriptor();
        match descriptor.full_name() {
            super::SECRET => return Err(Refusal::Secret),
            super::super::ANY => return self.any(message),
            "google.protobuf.Struct" | "google.protobuf.Value" | "google.protobuf.ListValue" => {
                return Ok(structure(message));
            }
            name if is_plain(name) => {
                if let Ok(value) = serde_json::to_value(message) {
                    return Ok(match value {
                        Value::String(text) => shown_text(&text),
                        other => other,
                    });
                }
            }
            _ => {}
        }
        self.fields(message).map(Value::Object)
    }

    fn fields(&mut self, message: &DynamicMessage) -> Result<Map<String, Value>, Refusal> {
        let descriptor = message.descriptor();
        let mut object = Map::new();
        for (field, value) in message.fields() {
            let shown = match self.rules.hides(message, &descriptor, &field) {
                true => self.hidden(value),
                false => Some(self.field(&field, value)?),
            };
            if let Some(shown) = shown {
                object.insert(field.name().to_owned(), shown);
            }
        }
        Ok(object)
    }

    /// `None`: the field is left out.
    fn hidden(&self, value: &Field) -> Option<Value> {
        let text = hidden_text(value);
        match (self.reader, value) {
            (Reader::Person, _) | (Reader::Parser, Field::String(_)) => Some(text.into()),
            (Reader::Parser, Field::Bytes(_)) => Some(BASE64_STANDARD.encode(text).into()),
            (Reader::Parser, _) => None,
        }
    }

    fn field(&mut self, field: &FieldDescriptor, value: &Field) -> Result<Value, Refusal> {
        match value {
            Field::List(values) => {
                let elements = values.iter().map(|value| self.element(&field.kind(), value));
                elements.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            Field::Map(entries) => {
                let kind = field.kind();
                let entry = kind.as_message().map(|entry| entry.map_entry_value_field().kind());
                let mut object = Map::new();
                for (key, value) in entries {
                    let key = key_text(key);
                    let shown = match &entry {
                        _ if secrets::is_name(&key) => self.hidden(value),
                        Some(kind) => Some(self.element(kind, value)?),
                        None => None,
                    };
                    if let Some(shown) = shown {
                        object.insert(key, shown);
                    }
                }
                Ok(object.into())
            }
            value => self.element(&field.kind(), value),
        }
    }

    fn element(&mut self, kind: &Kind, value: &Field) -> Result<Value, Refusal> {
        Ok(match value {
            Field::Bool(value) => (*value).into(),
            Field::I32(value) => (*value).into(),
            Field::U32(value) => (*value).into(),
            Field::I64(value) => value.to_string().into(),
            Field::U64(value) => value.to_string().into(),
            Field::F32(value) => float(f64::from(*value)),
            Field::F64(value) => float(*value),
            Field::String(text) => shown_text(text),
            Field::Bytes(bytes) => BASE64_STANDARD.encode(hide_bytes(bytes).as_ref().unwrap_or(bytes)).into(),
            Field::EnumNumber(number) => {
                let value = kind.as_enum().and_then(|kind| kind.get_value(*number));
                value.map_or_else(|| (*number).into(), |value| value.name().into())
            }
            Field::Message(message) => self.message(message)?,
            Field::List(_) | Field::Map(_) => Value::Null,
        })
    }

    fn any(&mut self, any: &DynamicMessage) -> Result<Value, Refusal> {
        if any.fields().next().is_none() {
            return Ok(Map::new().into());
        }
        let (type_url, message) = match open(any, &mut self.budget) {
            Ok(opened) => opened,
            Err(closed) => return Ok(self.closed(closed, any)),
        };
        let mut object = Map::new();
        let name = message.descriptor().full_name().to_owned();
        let shown = match self.message(&message) {
            Ok(shown) => shown,
            Err(refusal) => {
                let bytes = prost::Message::encoded_len(&message);
                return Ok(self.closed(Closed { type_url, refusal, bytes }, any));
            }
        };
        match shown {
            // A text in place of a structure is an opaque configuration.
            Value::String(text)
                if is_opaque(&name) && (name.contains("Bytes") || secrets::are_mentioned(&text)) =>
            {
                let value = message.get_field_by_number(1);
                object.extend(
                    value.and_then(|value| self.hidden(&value)).map(|text| ("value".to_owned(), text)),
                );
            }
            Value::Object(fields) if !is_well_known(&name) => object = fields,
            value => {
                object.insert("value".to_owned(), value);
            }
        }
        object.insert("@type".to_owned(), type_url.into());
        Ok(object.into())
    }

    fn closed(&self, Closed { type_url, refusal, bytes }: Closed, any: &DynamicMessage) -> Value {
        let mut object = Map::new();
        if self.reader == Reader::Person {
            object.insert("value".to_owned(), refusal.text(bytes).into());
            let value = any.get_field_by_number(2);
            if let (Refusal::UnknownType, Some(Field::Bytes(value))) = (refusal, value.as_deref()) {
                object.insert("version".to_owned(), digest(value).into());
            }
        }
        object.insert("@type".to_owned(), type_url.into());
        object.into()
    }
}

fn shown_text(text: &str) -> Value {
    secrets::hide(text).map_or_else(|| text.into(), Value::from)
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

fn float(value: f64) -> Value {
    match value {
        value if value.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        value => value.into(),
    }
}

/// Messages with a JSON form of their own, and without anything to hide inside.
fn is_plain(name: &str) -> bool {
    let wrapper = name.strip_prefix("google.protobuf.");
    wrapper
        .is_some_and(|name| matches!(name, "Duration" | "Timestamp" | "FieldMask") || name.ends_with("Value"))
}

fn is_well_known(name: &str) -> bool {
    is_plain(name)
        || matches!(name, "google.protobuf.Struct" | "google.protobuf.Any" | "google.protobuf.Empty")
}

fn is_opaque(name: &str) -> bool {
    matches!(name, "google.protobuf.StringValue" | "google.protobuf.BytesValue")
}

/// A `Struct`, a `Value` or a `ListValue`. The value of a key that promises a secret is hidden. Recursion is
/// as deep as that of the decoder, which is bounded.
fn structure(message: &DynamicMessage) -> Value {
    let Some((field, value)) = message.fields().next() else {
        return match message.descriptor().name() {
            "Struct" => Map::new().into(),
            "ListValue" => Value::Array(Vec::new()),
            _ => Value::Null,
        };
    };
    match value {
        Field::Map(entries) => {
            let entry = |(key, value): (&MapKey, &Field)| {
                let key = key_text(key);
                let shown = match value {
                    value if secrets::is_name(&key) => hidden_text(value).into(),
                    Field::Message(inner) => structure(inner),
                    _ => Value::Null,
                };
                (key, shown)
            };
            Value::Object(entries.iter().map(entry).collect())
        }
        Field::List(values) => {
            let inner = |value: &Field| value.as_message().map_or(Value::Null, structure);
            values.iter().map(inner).collect()
        }
        Field::Message(inner) => structure(inner),
        Field::Bool(value) => (*value).into(),
        Field::F64(value) => float(*value),
        Field::String(text) => shown_text(text),
        _ if field.name() == "null_value" => Value::Null,
        _ => Value::Null,
    }
}
