//! Incremental reader of client requests.
//!
//! A default Envoy repeats its whole node, some 61 KB, in every request, ACKs included (STR-3). A
//! [`walker`](walk) therefore buffers only fields that matter, and skips the rest. Of the first node of a
//! stream, it keeps all fields but `extensions` and `listening_addresses`; of later nodes, it keeps only
//! fields that may still count.

mod node;
mod request;
mod walk;

pub use request::check_name;

use bytes::Bytes;

use super::fields::{build, put_element};
use super::frame::{self, Bound, HeaderReader, ReadError};
use super::status;
use sluice_setting::{SOME, bytes, count, settings};
use sluice_xds::{Node, Request, SotwRequest, Variant};
use walk::MessageReader;

/// Memory of one name in a request beside its text, in bytes: the allocation, and the slot in a growing list.
pub const NAME_IN_REQUEST_BYTES: usize = 64;

/// The same for any field kept. A version takes somewhat more, but a request has few of them; in
/// `initial_resource_versions`, each version comes with a name.
const FIELD_BYTES: usize = NAME_IN_REQUEST_BYTES;

settings! {
    /// Limits of one request. A request over a limit ends its stream with RESOURCE_EXHAUSTED.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReaderLimits {
        /// Bytes of a request message on the wire. 100,000 names of 80 bytes fit.
        request_bytes: usize = 8 << 20, bytes(1 << 10..=1 << 30);
        /// Bytes of a request's node on the wire. A default Envoy's has some 61 KB.
        node_bytes: usize = 1 << 20, bytes(1 << 10..=1 << 30);
        /// Bytes of a node kept in memory, per session.
        node_retained_bytes: usize = 16 << 10, bytes(256..=1 << 30);
        /// Levels of structs and lists in a node's metadata. The reader is recursive, so 100 is also
        /// the maximum, as in protobuf's own parsers.
        metadata_depth: usize = 100, count(1..=100);
        /// Entries in each of a request's lists of names.
        names_per_request: usize = 100_000, SOME;
        /// Bytes of a name, a version or a nonce.
        name_bytes: usize = 4 << 10, bytes(64..=1 << 20);
        /// Bytes of a NACK's message kept in memory; the rest is cut off.
        error_detail_bytes: usize = status::MESSAGE_BYTES, bytes(64..=1 << 20);
    }
    fixed {
        /// Bytes of a type URL.
        type_url_bytes: usize = 4 << 10;
    }
}

/// Reads the requests of one downstream stream from its gRPC request body.
///
/// Feed chunks with [`push`](Self::push), then call [`next`](Self::next) until there is no request. Yields
/// nothing after an error; the stream must end with the error's status.
#[derive(Debug)]
pub struct RequestReader {
    variant: Variant,
    chunk: Bytes,
    header: HeaderReader,
    /// Boxed, since most streams are between two messages most of the time.
    message: Option<Box<MessageReader>>,
    seen_node: bool,
    failed: bool,
}

impl RequestReader {
    pub fn new(variant: Variant) -> Self {
        RequestReader {
            variant,
            chunk: Bytes::new(),
            header: HeaderReader::default(),
            message: None,
            seen_node: false,
            failed: false,
        }
    }

    pub fn push(&mut self, chunk: Bytes) {
        frame::append(&mut self.chunk, chunk);
    }

    /// Some pushed bytes are not read yet: only then does [`next`](Self::next) find a request.
    pub fn has_unread(&self) -> bool {
        !self.chunk.is_empty()
    }

    /// The approximate memory of a partly received message, in bytes; zero between two messages.
    pub fn held_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, |message| message.held_bytes())
    }

    /// A message has begun and is incomplete.
    pub fn is_within_message(&self) -> bool {
        self.message.is_some() || !self.header.is_empty()
    }

    /// Checks that the body did not end within a message.
    pub fn finish(&self) -> Result<(), ReadError> {
        let between = self.header.is_empty() && self.message.is_none() && self.chunk.is_empty();
        if between || self.failed { Ok(()) } else { Err(ReadError::Truncated) }
    }

    /// The next request within these limits, which may be others than before. The limits stay with the
    /// caller: a reader lives as long as its stream.
    pub fn next(&mut self, limits: &ReaderLimits) -> Option<Result<Request, ReadError>> {
        if self.failed {
            return None;
        }
        let request = self.read(limits);
        self.failed = request.is_err();
        if self.chunk.is_empty() {
            // An empty slice of a chunk would keep the connection's read buffer alive.
            self.chunk = Bytes::new();
        }
        request.transpose()
    }

    fn read(&mut self, limits: &ReaderLimits) -> Result<Option<Request>, ReadError> {
        let message = match &mut self.message {
            Some(message) => message,
            None => {
                let Some((is_compressed, length)) = self.header.read(&mut self.chunk)? else {
                    return Ok(None);
                };
                if is_compressed {
                    return Err(ReadError::Compressed);
                }
                ReadError::check(Bound::RequestBytes, length, limits.request_bytes)?;
                let message = MessageReader::new(self.variant, length, !self.seen_node);
                self.message.insert(Box::new(message))
            }
        };
        if !message.read(&mut self.chunk, limits)? {
            return Ok(None);
        }
        self.header = HeaderReader::default();
        let Some(message) = self.message.take() else { return Ok(None) };
        self.seen_node |= message.has_node();
        Ok(Some(message.into_request()))
    }
}

/// Reads an encoded node of another message than a request, within the limits of requests.
///
/// # Errors
/// The node is malformed, or over a limit.
pub fn read_node(node: &[u8], limits: &ReaderLimits) -> Result<Node, ReadError> {
    let number = request::node_field(&Request::Sotw(SotwRequest::default()));
    let mut request = Bytes::from(build(0, |sink| put_element(sink, number, node)));
    let mut reader = MessageReader::new(Variant::Sotw, request.len(), true);
    if !reader.read(&mut request, limits)? {
        return Err(ReadError::Truncated);
    }
    let node = match reader.into_request() {
        Request::Sotw(request) => request.node,
        Request::Delta(request) => request.node,
    };
    Ok(node.map_or_else(Node::default, |node| *node))
}

#[cfg(test)]
mod tests;
