//! Reads xDS responses as a stream: the reader never assembles gRPC messages, and keeps only the few fields
//! that a client needs for its ACK. Clients without payloads let one process simulate thousands.

use thiserror::Error;

use crate::proto::{Malformed, Varint};
use crate::stamp::{self, Sought, Stamp};

/// Versions, nonces and type URLs longer than this are refused.
const MAX_FIELD: u64 = 4096;

/// Fields of DiscoveryResponse and, except for the meaning of 1, of DeltaDiscoveryResponse.
mod field {
    pub const VERSION: u64 = 1;
    pub const RESOURCES: u64 = 2;
    pub const TYPE_URL: u64 = 4;
    pub const NONCE: u64 = 5;
    /// Only in DeltaDiscoveryResponse.
    pub const REMOVED: u64 = 6;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ResponseError {
    #[error("the server sent a compressed gRPC message without a request for compression")]
    Compressed,
    #[error("the server sent a {0}")]
    Malformed(#[from] Malformed),
    #[error("the server sent a version, nonce or type URL longer than 4096 bytes")]
    TooLong,
}

/// The kept fields of the current or last response.
#[derive(Default)]
pub struct Response {
    /// For SotW; in delta only informational.
    pub version: Vec<u8>,
    pub type_url: Vec<u8>,
    pub nonce: Vec<u8>,
    pub resources: u64,
    /// For delta: the number of removed names.
    pub removed: u64,
    stamps: stamp::Search,
}

impl Response {
    /// The stamps in the resources.
    pub fn stamps(&self) -> &[Stamp] {
        self.stamps.found()
    }

    fn reset(&mut self) {
        self.version.clear();
        self.type_url.clear();
        self.nonce.clear();
        self.resources = 0;
        self.removed = 0;
        self.stamps.reset();
    }

    /// For a string that occurs twice the last value counts, as everywhere in protobuf.
    fn begin(&mut self, field: u64) {
        match field {
            field::VERSION => self.version.clear(),
            field::RESOURCES => self.resources += 1,
            field::TYPE_URL => self.type_url.clear(),
            field::NONCE => self.nonce.clear(),
            field::REMOVED => self.removed += 1,
            _ => {}
        }
    }

    fn push(&mut self, field: u64, bytes: &[u8], more: bool, sought: Sought) {
        match field {
            field::VERSION => self.version.extend_from_slice(bytes),
            field::RESOURCES => self.stamps.push(bytes, more, sought),
            field::TYPE_URL => self.type_url.extend_from_slice(bytes),
            field::NONCE => self.nonce.extend_from_slice(bytes),
            _ => {}
        }
    }
}

enum Scan {
    Tag(Varint),
    Varint(Varint),
    Length { field: u64, length: Varint },
    Payload { field: u64, left: u64 },
}

/// Reads one response stream.
pub struct ResponseReader {
    prefix: [u8; 5],
    prefix_have: usize,
    /// Remaining bytes of the gRPC message; valid after the prefix is complete.
    left: u32,
    scan: Scan,
    response: Response,
}

impl ResponseReader {
    pub fn new() -> ResponseReader {
        let scan = Scan::Tag(Varint::default());
        ResponseReader { prefix: [0; 5], prefix_have: 0, left: 0, scan, response: Response::default() }
    }

    /// Consumes `input`; returns a response after its last byte.
    pub fn next(&mut self, input: &mut &[u8], sought: Sought) -> Result<Option<&Response>, ResponseError> {
        while self.prefix_have < self.prefix.len() {
            let Some((&byte, rest)) = input.split_first() else { return Ok(None) };
            *input = rest;
            self.prefix[self.prefix_have] = byte;
            self.prefix_have += 1;
            if self.prefix_have == self.prefix.len() {
                self.begin()?;
            }
        }
        let (mut bytes, rest) = input.split_at(input.len().min(self.left as usize));
        *input = rest;
        self.left -= bytes.len() as u32;
        while !bytes.is_empty() {
            bytes = self.step(bytes, sought)?;
        }
        if self.left > 0 {
            return Ok(None);
        }
        self.prefix_have = 0;
        match std::mem::replace(&mut self.scan, Scan::Tag(Varint::default())) {
            Scan::Tag(tag) if tag.is_empty() => Ok(Some(&self.response)),
            _ => Err(Malformed.into()),
        }
    }

    /// The length prefix of a gRPC message is complete.
    fn begin(&mut self) -> Result<(), ResponseError> {
        let [compressed, length @ ..] = self.prefix;
        if compressed != 0 {
            return Err(ResponseError::Compressed);
        }
        self.left = u32::from_be_bytes(length);
        self.response.reset();
        Ok(())
    }

    /// Consumes at least one byte of the message; returns the rest.
    fn step<'a>(&mut self, bytes: &'a [u8], sought: Sought) -> Result<&'a [u8], ResponseError> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(bytes) };
        match &mut self.scan {
            Scan::Tag(varint) => {
                if let Some(tag) = varint.push(first)? {
                    self.scan = match tag & 7 {
                        0 => Scan::Varint(Varint::default()),
                        1 => Scan::Payload { field: 0, left: 8 },
                        2 => Scan::Length { field: tag >> 3, length: Varint::default() },
                        5 => Scan::Payload { field: 0, left: 4 },
                        _ => return Err(Malformed.into()),
                    };
                }
                Ok(rest)
            }
            Scan::Varint(varint) => {
                if varint.push(first)?.is_some() {
                    self.scan = Scan::Tag(Varint::default());
                }
                Ok(rest)
            }
            Scan::Length { field, length } => {
                if let Some(left) = length.push(first)? {
                    let field = *field;
                    self.begin_payload(field, left)?;
                }
                Ok(rest)
            }
            Scan::Payload { field, left } => {
                let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                let (payload, rest) = bytes.split_at(length);
                *left -= length as u64;
                self.response.push(*field, payload, *left > 0, sought);
                if *left == 0 {
                    self.scan = Scan::Tag(Varint::default());
                }
                Ok(rest)
            }
        }
    }

    fn begin_payload(&mut self, field: u64, left: u64) -> Result<(), ResponseError> {
        self.response.begin(field);
        if left > MAX_FIELD && matches!(field, field::VERSION | field::TYPE_URL | field::NONCE) {
            return Err(ResponseError::TooLong);
        }
        self.scan = if left == 0 { Scan::Tag(Varint::default()) } else { Scan::Payload { field, left } };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::proto::{put_bytes, put_message, put_uint};

    const SOUGHT: Sought = Sought { unchanged: false, most: 1 };

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut wire = vec![0];
        wire.extend_from_slice(&(message.len() as u32).to_be_bytes());
        wire.extend_from_slice(message);
        wire
    }

    fn response(nonce: &str, stamp: u64) -> Vec<u8> {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, "overwritten");
        put_bytes(&mut message, 1, "version");
        put_bytes(&mut message, 2, "one");
        put_message(&mut message, 2, |any| put_bytes(any, 2, stamp::text(stamp, 0, 0)));
        put_bytes(&mut message, 2, "");
        put_uint(&mut message, 3, 1);
        put_bytes(&mut message, 4, "type");
        put_bytes(&mut message, 5, nonce);
        put_bytes(&mut message, 6, vec![1; 9000]);
        framed(&message)
    }

    fn transcript(wire: &[u8], size: usize) -> Result<Vec<String>, ResponseError> {
        let mut reader = ResponseReader::new();
        let mut lines = Vec::new();
        for mut input in wire.chunks(size) {
            while let Some(response) = reader.next(&mut input, SOUGHT)? {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let (version, type_url, nonce) =
                    (text(&response.version), text(&response.type_url), text(&response.nonce));
                lines.push(format!(
                    "{version} {type_url} {nonce} {} {:?}",
                    response.resources,
                    response.stamps().first().map(|stamp| stamp.time)
                ));
            }
        }
        Ok(lines)
    }

    #[test]
    fn responses_are_read_however_they_are_split() {
        let wire = [response("n1", 1), framed(&[]), response("n2", 0xff_ffff_ffff)].concat();
        let expected = ["version type n1 3 Some(1)", "   0 None", "version type n2 3 Some(1099511627775)"]
            .map(str::to_owned);
        for size in (1..200).chain([16_384, wire.len()]) {
            assert_eq!(transcript(&wire, size).unwrap(), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_response_is_refused() {
        let mut long = Vec::new();
        put_bytes(&mut long, 5, vec![b'n'; 4097]);
        let cases = [
            (vec![1, 0, 0, 0, 0], ResponseError::Compressed),
            (framed(&[0x0a]), Malformed.into()),
            (framed(&[0x0a, 5, 1]), Malformed.into()),
            (framed(&[0x80]), Malformed.into()),
            (framed(&[0x0b]), Malformed.into()),
            (framed(&[0xff; 12]), Malformed.into()),
            (framed(&long), ResponseError::TooLong),
        ];
        for (wire, error) in cases {
            assert_eq!(transcript(&wire, 3), Err(error), "{:?}", &wire[..5]);
        }
    }
}
