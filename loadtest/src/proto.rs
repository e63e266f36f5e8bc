//! The few protobuf writers and readers that the tool needs; field numbers are at their use.

use thiserror::Error;

/// Wire types of protobuf.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED_32: u64 = 5;

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_uint(out: &mut Vec<u8>, field: u32, value: u64) {
    put_varint(out, u64::from(field) << 3 | VARINT);
    put_varint(out, value);
}

/// A string, bytes or an already encoded message.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, value: impl AsRef<[u8]>) {
    let value = value.as_ref();
    put_varint(out, u64::from(field) << 3 | LENGTH);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A nested message, written by `fill`.
pub fn put_message(out: &mut Vec<u8>, field: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut nested = Vec::new();
    fill(&mut nested);
    put_bytes(out, field, nested);
}

/// An entry of a google.protobuf.Struct whose value is a string.
pub fn put_string_entry(out: &mut Vec<u8>, key: &str, value: &str) {
    put_message(out, 1, |out| {
        put_bytes(out, 1, key);
        put_message(out, 2, |out| put_bytes(out, 3, value));
    });
}

/// Bytes that are not protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed protobuf message")]
pub struct Malformed;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Uint(u64),
    /// Length-delimited: a string, bytes or a message.
    Bytes(&'a [u8]),
    /// A fixed number of bytes.
    Fixed,
}

/// Iterates over the fields of one message.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next field.
    pub fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            VARINT => Value::Uint(self.varint()?),
            FIXED_64 => self.take(8).map(|_| Value::Fixed)?,
            FIXED_32 => self.take(4).map(|_| Value::Fixed)?,
            LENGTH => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            _ => return Err(Malformed),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// The next length-delimited field.
    pub fn next_bytes(&mut self) -> Result<Option<(u64, &'a [u8])>, Malformed> {
        while let Some((field, value)) = self.next()? {
            if let Value::Bytes(bytes) = value {
                return Ok(Some((field, bytes)));
            }
        }
        Ok(None)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut varint = Varint::default();
        loop {
            let byte = *self.take(1)?.first().ok_or(Malformed)?;
            if let Some(value) = varint.push(byte)? {
                return Ok(value);
            }
        }
    }
}

/// A varint that arrives byte by byte.
#[derive(Default)]
pub struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    /// Whether no byte has arrived.
    pub fn is_empty(&self) -> bool {
        self.shift == 0
    }

    /// The value, after its last byte.
    pub fn push(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        if self.shift > 63 {
            return Err(Malformed);
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        if byte & 0x80 != 0 {
            return Ok(None);
        }
        Ok(Some(std::mem::take(self).value))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        put_uint(&mut out, 2, 300);
        put_bytes(&mut out, 1, "name");
        put_message(&mut out, 25, |out| put_bytes(out, 1, [7; 200]));
        let mut fields = Fields(&out);
        assert_eq!(fields.next_bytes().unwrap(), Some((1, &b"name"[..])));
        let (field, nested) = fields.next_bytes().unwrap().unwrap();
        assert_eq!((field, nested.len()), (25, 203));
        assert_eq!(fields.next_bytes(), Ok(None));
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let cases: &[&[u8]] = &[&[0x0a], &[0x0a, 5, 1], &[0x0b], &[0x80], &[0xff; 11], &[0x09, 1, 2]];
        for case in cases {
            assert_eq!(Fields(case).next_bytes(), Err(Malformed), "{case:?}");
        }
    }
}
