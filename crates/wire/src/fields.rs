//! Protobuf's wire format, one field at a time.

use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};

/// The bytes are not a valid protobuf message of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed protobuf: {0}")]
pub struct Malformed(pub String);

impl Malformed {
    pub fn new(reason: impl Into<String>) -> Self {
        Malformed(reason.into())
    }
}

impl From<prost::DecodeError> for Malformed {
    fn from(error: prost::DecodeError) -> Self {
        Malformed(error.to_string())
    }
}

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// A wire type that no known field has.
    Other,
}

impl<'a> Payload<'a> {
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Payload::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed::new("a field that holds bytes has another wire type")),
        }
    }

    pub fn text(self) -> Result<&'a str, Malformed> {
        text(self.bytes()?)
    }

    pub fn varint(self) -> Result<u64, Malformed> {
        match self {
            Payload::Varint(value) => Ok(value),
            _ => Err(Malformed::new("a field that holds a number has another wire type")),
        }
    }
}

pub fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|error| Malformed(format!("a string is not UTF-8: {error}")))
}

/// The fields of a message, in wire order. Ends after the first error.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Self {
        Fields { rest: message }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = split.ok_or_else(|| Malformed::new("a field is longer than its message"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn read(&mut self) -> Result<(u32, Payload<'a>), Malformed> {
        let (number, wire_type) = decode_key(&mut self.rest)?;
        let payload = match wire_type {
            WireType::Varint => Payload::Varint(decode_varint(&mut self.rest)?),
            WireType::SixtyFourBit => {
                let bytes = self.take(8)?.first_chunk::<8>().copied().unwrap_or_default();
                Payload::Fixed64(u64::from_le_bytes(bytes))
            }
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.rest)?;
                Payload::Bytes(self.take(length)?)
            }
            other => {
                skip_field(other, number, &mut self.rest, DecodeContext::default())?;
                Payload::Other
            }
        };
        Ok((number, payload))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Payload<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// The output of an encoder: either a counter that measures the message, or a buffer.
pub trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

struct Length(usize);

impl Sink for Length {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

/// Runs `write` twice, first to measure, so that the message needs one allocation of the exact size. The
/// buffer starts with `reserved` zero bytes for a header.
pub fn build(reserved: usize, write: impl Fn(&mut dyn Sink)) -> Vec<u8> {
    let length = measure(&write);
    let mut buffer = Vec::with_capacity(reserved + length);
    buffer.resize(reserved, 0);
    write(&mut buffer);
    debug_assert_eq!(buffer.len(), reserved + length, "a message must be written as it was measured");
    buffer
}

fn measure(write: &impl Fn(&mut dyn Sink)) -> usize {
    let mut length = Length(0);
    write(&mut length);
    length.0
}

fn key(sink: &mut dyn Sink, number: u32, wire_type: WireType) {
    let mut bytes = [0; 5];
    let mut rest = &mut bytes[..];
    encode_key(number, wire_type, &mut rest);
    let unused = rest.len();
    sink.put(&bytes[..bytes.len() - unused]);
}

fn varint(sink: &mut dyn Sink, value: u64) {
    let mut bytes = [0; 10];
    let mut rest = &mut bytes[..];
    encode_varint(value, &mut rest);
    let unused = rest.len();
    sink.put(&bytes[..bytes.len() - unused]);
}

/// A number; omitted if zero, as in proto3.
pub fn put_varint(sink: &mut dyn Sink, number: u32, value: u64) {
    if value != 0 {
        key(sink, number, WireType::Varint);
        varint(sink, value);
    }
}

pub fn put_fixed64(sink: &mut dyn Sink, number: u32, value: u64) {
    key(sink, number, WireType::SixtyFourBit);
    sink.put(&value.to_le_bytes());
}

/// A string or bytes; omitted if empty, as in proto3.
pub fn put_bytes(sink: &mut dyn Sink, number: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_element(sink, number, bytes);
    }
}

/// An element of a repeated field, or an encoded message; written even if empty.
pub fn put_element(sink: &mut dyn Sink, number: u32, bytes: &[u8]) {
    key(sink, number, WireType::LengthDelimited);
    varint(sink, bytes.len() as u64);
    sink.put(bytes);
}

pub fn put_message(sink: &mut dyn Sink, number: u32, write: impl Fn(&mut dyn Sink)) {
    key(sink, number, WireType::LengthDelimited);
    varint(sink, measure(&write) as u64);
    write(sink);
}
