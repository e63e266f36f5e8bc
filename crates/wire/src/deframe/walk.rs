//! The walker over a request message. It reads every byte once, in chunks cut anywhere, and stores only bytes
//! of fields to keep.

use bytes::{Buf, Bytes};

use super::super::fields::Malformed;
use super::super::frame::{Bound, Gather, ReadError};
use super::{FIELD_BYTES, ReaderLimits, node, request};
use sluice_xds::{DeltaRequest, Node, Request, SotwRequest, Variant};

/// Reads one message of known length.
#[derive(Debug)]
pub(super) struct MessageReader {
    left: Left,
    step: Step,
    request: Request,
    node: Option<Box<Node>>,
    /// Most fields of later nodes are ignored (STR-3).
    first_node: bool,
    node_bytes: usize,
    retained_bytes: usize,
    /// The approximate memory of the fields received so far.
    held_bytes: usize,
}

/// Bytes still to come: of the message and, while inside the node, of the node.
#[derive(Debug)]
struct Left {
    message: usize,
    node: Option<usize>,
}

impl Left {
    /// The maximum length of a field at this position.
    fn scope(&self) -> usize {
        self.node.unwrap_or(self.message)
    }

    fn consume(&mut self, bytes: usize) {
        self.message -= bytes;
        if let Some(node) = &mut self.node {
            *node -= bytes;
        }
    }
}

/// The walker's position within a field. Every field is a key, followed by a varint, by a fixed number of
/// bytes, or by a length and that number of bytes.
#[derive(Debug)]
enum Step {
    Key(Varint),
    Length { number: u32, length: Varint },
    SkipVarint(Varint),
    Skip(usize),
    Keep { number: u32, gather: Gather },
}

impl MessageReader {
    pub fn new(variant: Variant, length: usize, first_node: bool) -> Self {
        MessageReader {
            left: Left { message: length, node: None },
            step: Step::Key(Varint::START),
            request: match variant {
                Variant::Sotw => Request::Sotw(SotwRequest::default()),
                Variant::Delta => Request::Delta(DeltaRequest::default()),
            },
            node: None,
            first_node,
            node_bytes: 0,
            retained_bytes: 0,
            held_bytes: 0,
        }
    }

    /// The approximate memory in use, in bytes.
    pub fn held_bytes(&self) -> usize {
        let field = match &self.step {
            Step::Keep { gather, .. } => gather.held_bytes(),
            _ => 0,
        };
        self.held_bytes + field
    }

    pub fn has_node(&self) -> bool {
        self.node.is_some()
    }

    /// Reads this message's bytes from the chunk. Returns true once the message is complete.
    pub fn read(&mut self, chunk: &mut Bytes, limits: &ReaderLimits) -> Result<bool, ReadError> {
        loop {
            if self.left.node.is_some() && matches!(self.step, Step::Key(Varint::START)) {
                self.skip_extensions(chunk);
            }
            if self.left.scope() == 0 {
                if !matches!(self.step, Step::Key(Varint::START)) {
                    return Err(Malformed::new("a message ends within a field").into());
                }
                if self.left.node.take().is_none() {
                    return Ok(true);
                }
            } else if chunk.is_empty() {
                return Ok(false);
            } else {
                self.advance(chunk, limits)?;
            }
        }
    }

    /// A fast path that skips unused fields of the node if they lie completely within the chunk. Most of an
    /// Envoy's 61 KB node is some 500 extensions, repeated in each request if Envoy is configured so. Any
    /// other field is left to the walker.
    fn skip_extensions(&mut self, chunk: &mut Bytes) {
        let visible = &chunk[..chunk.len().min(self.left.scope())];
        let mut skipped = 0;
        // A key of one byte, then a length of one or two.
        while let [key, low, rest @ ..] = &visible[skipped..] {
            let number = u32::from(key >> 3);
            if key & 0x87 != 2 || number == 0 || node::is_kept(number, self.first_node) {
                break;
            }
            let (header, length) = match (low, rest) {
                (0..0x80, _) => (2, usize::from(*low)),
                (_, [high @ 0..0x80, ..]) => (3, usize::from(low & 0x7f) | usize::from(*high) << 7),
                _ => break,
            };
            if visible.len() - skipped < header + length {
                break;
            }
            skipped += header + length;
        }
        chunk.advance(skipped);
        self.left.consume(skipped);
    }

    /// Consumes at least one byte of the chunk, and none beyond the scope.
    fn advance(&mut self, chunk: &mut Bytes, limits: &ReaderLimits) -> Result<(), ReadError> {
        match &mut self.step {
            Step::Key(key) => {
                self.left.consume(1);
                if let Some(key) = key.push(chunk.get_u8())? {
                    self.step = self.after_key(key)?;
                }
            }
            Step::Length { number, length } => {
                self.left.consume(1);
                if let Some(length) = length.push(chunk.get_u8())? {
                    let number = *number;
                    self.begin(number, length, limits)?;
                }
            }
            Step::SkipVarint(value) => {
                self.left.consume(1);
                if value.push(chunk.get_u8())?.is_some() {
                    self.step = Step::Key(Varint::START);
                }
            }
            Step::Skip(bytes) => {
                let skipped = chunk.len().min(*bytes);
                chunk.advance(skipped);
                self.left.consume(skipped);
                *bytes -= skipped;
                if *bytes == 0 {
                    self.step = Step::Key(Varint::START);
                }
            }
            // Mostly the chunk has all of the field, and nothing is gathered.
            Step::Keep { number, gather } if gather.is_all_in(chunk) => {
                let (number, length) = (*number, gather.length());
                self.left.consume(length);
                self.step = Step::Key(Varint::START);
                self.keep(number, &chunk[..length], limits)?;
                chunk.advance(length);
            }
            Step::Keep { number, gather } => {
                let before = chunk.len();
                let payload = gather.read(chunk);
                self.left.consume(before - chunk.len());
                if let Some(payload) = payload {
                    let number = *number;
                    self.step = Step::Key(Varint::START);
                    self.keep(number, &payload, limits)?;
                }
            }
        }
        Ok(())
    }

    fn after_key(&self, key: u64) -> Result<Step, Malformed> {
        let number = u32::try_from(key >> 3).unwrap_or(0);
        if number == 0 || number > 0x1fff_ffff {
            return Err(Malformed::new("a field has an impossible number"));
        }
        match key & 7 {
            0 => Ok(Step::SkipVarint(Varint::START)),
            1 => self.skip(8),
            2 => Ok(Step::Length { number, length: Varint::START }),
            5 => self.skip(4),
            other => Err(Malformed(format!("field {number} has wire type {other}"))),
        }
    }

    fn skip(&self, bytes: usize) -> Result<Step, Malformed> {
        match bytes {
            0 => Ok(Step::Key(Varint::START)),
            _ if bytes > self.left.scope() => Err(Malformed::new("a field is longer than its message")),
            _ => Ok(Step::Skip(bytes)),
        }
    }

    /// Begins the payload of a field with a length. All fields to keep are of this wire type.
    fn begin(&mut self, number: u32, length: u64, limits: &ReaderLimits) -> Result<(), ReadError> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.step = self.skip(length)?;
        if self.left.node.is_some() {
            if !node::is_kept(number, self.first_node) {
                return Ok(());
            }
            self.retained_bytes += length;
            ReadError::check(Bound::NodeRetainedBytes, self.retained_bytes, limits.node_retained_bytes)?;
        } else if number == request::node_field(&self.request) {
            self.node_bytes += length;
            ReadError::check(Bound::NodeBytes, self.node_bytes, limits.node_bytes)?;
            self.node.get_or_insert_default();
            self.left.node = Some(length);
            self.step = Step::Key(Varint::START);
            return Ok(());
        } else if !request::is_known(&self.request, number) {
            return Ok(());
        }
        if length == 0 {
            return self.keep(number, &[], limits);
        }
        self.step = Step::Keep { number, gather: Gather::new(length) };
        Ok(())
    }

    fn keep(&mut self, number: u32, payload: &[u8], limits: &ReaderLimits) -> Result<(), ReadError> {
        self.held_bytes += payload.len() + FIELD_BYTES;
        match (&mut self.node, self.left.node) {
            (Some(node), Some(_)) => node::put_field(node, number, payload, limits),
            _ => match &mut self.request {
                Request::Sotw(request) => request::put_sotw_field(request, number, payload, limits),
                Request::Delta(request) => request::put_delta_field(request, number, payload, limits),
            },
        }
    }

    pub fn into_request(self) -> Request {
        let (mut request, mut node) = (self.request, self.node);
        if let Some(node) = &mut node {
            node::settle(node);
        }
        match &mut request {
            Request::Sotw(request) => request.node = node,
            Request::Delta(request) => {
                request.node = node;
                request::settle(request);
            }
        }
        request
    }
}

/// A varint that arrives byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    const START: Varint = Varint { value: 0, shift: 0 };

    /// Returns the value after its last byte.
    fn push(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        // Only the lowest bit of the tenth byte fits.
        if self.shift == 63 && byte > 1 {
            return Err(Malformed::new("a varint is longer than 64 bits"));
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        Ok((byte < 0x80).then_some(self.value))
    }
}
