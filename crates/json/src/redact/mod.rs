//! The content of resources for operators, without secrets (ADM-12).
//!
//! 1. `rules`: the fields to hide.
//! 2. `show`: JSON for people. `encode`: the same content as protobuf, for CSDS.
//! 3. `references`: the clusters that a content names.
//! 4. `meaning`: whether two contents mean the same.

mod rules;
mod show;
mod encode;
mod references;
mod meaning;

use std::time::Duration;

use bytes::Bytes;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, Value as Field};
use serde_json::Value;
use similar::TextDiff;

pub use meaning::{Meaning, bears_secret, compare};
pub use references::named_clusters;

use rules::Rules;
use sluice_text::secrets;
use sluice_wire::fields::{Fields, Payload};
use sluice_xds::TypeUrl;

/// The longest content that is decoded, the size of the longest message that gRPC clients take by default.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The fields and elements of a resource that is decoded. Each takes some 100 bytes of memory. The endpoints
/// of ten thousand hosts have 80,000.
const FIELDS_MAX: usize = 250_000;

/// The nesting of messages, with those in an `Any`. Envoy's deepest filters need some 30.
const DEPTH_MAX: usize = 100;

/// The message of a Secret, which nobody sees.
const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

/// The time for the shortest difference. After that, the difference may be longer than necessary.
const EFFORT: Duration = Duration::from_millis(200);

/// Equal lines around a change.
const CONTEXT_LINES: usize = 3;

/// The reader of a redacted content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Each hidden field is the text `[redacted 1675 B]`.
    Person,
    /// A parser of proto3 JSON. A hidden field that is no text is left out.
    Parser,
}

/// The content of a resource as JSON, in canonical order, with each `Any` opened. Hidden fields, payloads
/// that cannot be decoded, and contents that are too large are texts with their sizes. A Secret is one text.
pub fn redact(type_url: &TypeUrl, body: &Bytes, reader: Reader) -> Value {
    let decoded = match decode(type_url, body) {
        Ok((message, budget)) => show::show(&message, reader, budget),
        Err(refusal) => Err(refusal),
    };
    decoded.unwrap_or_else(|refusal| refusal.text(body.len()).into())
}

/// The content as protobuf, without hidden fields. A hidden text is `[redacted 1675 B]`. `None` for a Secret,
/// and for contents that cannot be decoded.
pub fn redact_bytes(type_url: &TypeUrl, body: &Bytes) -> Option<Vec<u8>> {
    let (message, budget) = decode(type_url, body).ok()?;
    encode::encode(&message, budget).ok()
}

/// The encoded sizes of a message's fields, by name. `None` for a Secret, and for types without descriptor.
pub fn sizes(type_url: &TypeUrl, body: &Bytes) -> Option<Value> {
    let message = descriptor(type_url).ok()?;
    let mut sizes = serde_json::Map::new();
    for field in Fields::of(body) {
        let (number, payload) = field.ok()?;
        let name =
            message.get_field(number).map_or_else(|| number.to_string(), |field| field.name().to_owned());
        let size = match payload {
            Payload::Bytes(bytes) => bytes.len() as u64,
            Payload::Varint(value) => u64::from(value.max(1).ilog2() / 7 + 1),
            Payload::Fixed64(_) => 8,
            Payload::Other => 4,
        };
        let sum = sizes.get(&name).and_then(Value::as_u64).unwrap_or_default() + size;
        sizes.insert(name, sum.into());
    }
    Some(sizes.into())
}

/// The reason why a content is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Secret,
    UnknownType,
    Malformed,
    TooLarge,
    TooDeep,
}

impl Refusal {
    fn text(self, bytes: usize) -> String {
        match self {
            Refusal::Secret => format!("[withheld {bytes} B]"),
            Refusal::UnknownType => format!("[unknown type, {bytes} B]"),
            Refusal::Malformed => format!("[undecodable, {bytes} B]"),
            Refusal::TooLarge => format!("[too large to show, {bytes} B]"),
            Refusal::TooDeep => format!("[nested too deep, {bytes} B]"),
        }
    }
}

/// The rest of the fields that may be decoded for one resource.
#[derive(Clone, Copy, Debug)]
struct Budget(usize);

fn descriptor(type_url: &TypeUrl) -> Result<MessageDescriptor, Refusal> {
    if type_url.is_secret() {
        return Err(Refusal::Secret);
    }
    let pool = super::pool().map_err(|_| Refusal::UnknownType)?;
    super::any_message(pool, type_url.as_str()).ok_or(Refusal::UnknownType)
}

fn decode(type_url: &TypeUrl, body: &Bytes) -> Result<(DynamicMessage, Budget), Refusal> {
    let descriptor = descriptor(type_url)?;
    let mut budget = Budget(FIELDS_MAX);
    let message = decode_message(descriptor, body, &mut budget)?;
    Ok((message, budget))
}

fn decode_message(
    descriptor: MessageDescriptor,
    body: &Bytes,
    budget: &mut Budget,
) -> Result<DynamicMessage, Refusal> {
    if descriptor.full_name() == SECRET {
        return Err(Refusal::Secret);
    }
    if body.len() > BODY_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    budget.charge(&descriptor, body)?;
    DynamicMessage::decode(descriptor, body.clone()).map_err(|_| Refusal::Malformed)
}

/// The payload of an `Any`, with its type URL; `Err` has the type URL and the size of a payload that is not
/// decoded.
fn open(any: &DynamicMessage, budget: &mut Budget) -> Result<(String, DynamicMessage), Closed> {
    let type_url = any.get_field_by_number(1);
    let type_url = type_url.as_deref().and_then(Field::as_str).unwrap_or_default().to_owned();
    let value = any.get_field_by_number(2);
    let value = value.as_deref().and_then(Field::as_bytes).cloned().unwrap_or_default();
    let opened = descriptor(&TypeUrl::new(&type_url));
    match opened.and_then(|descriptor| decode_message(descriptor, &value, budget)) {
        Ok(message) => Ok((type_url, message)),
        Err(refusal) => Err(Closed { type_url, refusal, bytes: value.len() }),
    }
}

/// An `Any` whose payload is not shown.
struct Closed {
    type_url: String,
    refusal: Refusal,
    bytes: usize,
}

/// The size of a hidden value: the bytes of its texts, and the encoded size of messages.
fn size_of(value: &Field) -> usize {
    use prost::Message;
    match value {
        Field::String(text) => text.len(),
        Field::Bytes(bytes) => bytes.len(),
        Field::Message(message) => message.encoded_len(),
        Field::List(values) => values.iter().map(size_of).sum(),
        Field::Map(entries) => entries.values().map(size_of).sum(),
        Field::Bool(_) => 1,
        Field::I32(_) | Field::U32(_) | Field::F32(_) | Field::EnumNumber(_) => 4,
        Field::I64(_) | Field::U64(_) | Field::F64(_) => 8,
    }
}

/// The text in place of a hidden value. A content that is redacted again stays as it is.
fn hidden_text(value: &Field) -> String {
    match value {
        Field::String(text) if secrets::is_hidden(text) => text.clone(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if secrets::is_hidden(text) => text.to_owned(),
            _ => secrets::hidden(bytes.len()),
        },
        value => secrets::hidden(size_of(value)),
    }
}

/// A shown value without the secrets in its texts; `None` if it has none.
fn hide_in(value: &Field) -> Option<Field> {
    match value {
        Field::String(text) => secrets::hide(text).map(Field::String),
        Field::Bytes(bytes) => hide_bytes(bytes).map(Field::Bytes),
        Field::List(values) => {
            let hidden: Vec<_> = values.iter().map(hide_in).collect();
            let has_any = hidden.iter().any(Option::is_some);
            let all =
                hidden.into_iter().zip(values).map(|(hidden, value)| hidden.unwrap_or_else(|| value.clone()));
            has_any.then(|| Field::List(all.collect()))
        }
        _ => None,
    }
}

fn hide_bytes(bytes: &Bytes) -> Option<Bytes> {
    std::str::from_utf8(bytes).ok().and_then(secrets::hide).map(Bytes::from)
}

fn rules() -> Result<&'static Rules, Refusal> {
    let pool = super::pool().map_err(|_| Refusal::UnknownType)?;
    Ok(Rules::of(pool))
}

/// The changes that lead from `old` to `new`, as a JSON patch (RFC 6902).
pub fn patch(old: &Value, new: &Value) -> Value {
    serde_json::to_value(json_patch::diff(old, new)).unwrap_or_default()
}

/// The changes that lead from `old` to `new`, as a unified diff of lines. Empty for equal texts.
pub fn diff_text(old: &str, new: &str) -> String {
    let diff = TextDiff::configure().timeout(EFFORT).diff_lines(old, new);
    diff.unified_diff().context_radius(CONTEXT_LINES).missing_newline_hint(false).to_string()
}

impl Budget {
    /// Takes the fields and elements of a message from the budget, without those of an `Any`.
    fn charge(&mut self, descriptor: &MessageDescriptor, body: &[u8]) -> Result<(), Refusal> {
        self.charge_at(descriptor, body, 0)
    }

    fn take(&mut self, fields: usize) -> Result<(), Refusal> {
        self.0 = self.0.checked_sub(fields).ok_or(Refusal::TooLarge)?;
        Ok(())
    }

    fn charge_at(
        &mut self,
        descriptor: &MessageDescriptor,
        body: &[u8],
        depth: usize,
    ) -> Result<(), Refusal> {
        if depth > DEPTH_MAX {
            return Err(Refusal::TooDeep);
        }
        for field in Fields::of(body) {
            let (number, payload) = field.map_err(|_| Refusal::Malformed)?;
            self.take(1)?;
            let (Payload::Bytes(bytes), Some(field)) = (payload, descriptor.get_field(number)) else {
                continue;
            };
            match field.kind() {
                Kind::Message(inner) => self.charge_at(&inner, bytes, depth + 1)?,
                Kind::String | Kind::Bytes => {}
                // Packed numbers: at least one byte each.
                _ => self.take(bytes.len())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
