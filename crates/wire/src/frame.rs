//! gRPC framing: a flag byte, four bytes of length, and the message.

use bytes::{Buf, Bytes};

use super::fields::Malformed;
use sluice_xds::{Code, Coding, Status};

pub(super) const HEADER_LEN: usize = 5;

/// The reason why bytes from a peer are unreadable. The stream must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A JSON request is invalid.
    #[error("the request is not a valid DiscoveryRequest in JSON: {0}")]
    NotJson(String),
    #[error("the message is compressed, but compression was not offered")]
    Compressed,
    #[error("{0} are not supported")]
    Unsupported(&'static str),
    #[error("{}: found {value}, the limit is {allowed}", limit.name())]
    OverLimit { limit: Bound, value: usize, allowed: usize },
    #[error("the stream ended within a message")]
    Truncated,
}

impl ReadError {
    pub fn check(limit: Bound, value: usize, allowed: usize) -> Result<(), ReadError> {
        if value > allowed { Err(ReadError::OverLimit { limit, value, allowed }) } else { Ok(()) }
    }
}

/// A quantity with a limit in messages from peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    RequestBytes,
    ResponseBytes,
    NodeBytes,
    NodeRetainedBytes,
    MetadataDepth,
    Names,
    InitialVersions,
    NameBytes,
    ResourceVersionBytes,
    VersionBytes,
    NonceBytes,
    TypeUrlBytes,
}

impl Bound {
    fn name(self) -> &'static str {
        match self {
            Bound::RequestBytes => "bytes of a request message",
            Bound::ResponseBytes => "bytes of a response message",
            Bound::NodeBytes => "bytes of the node",
            Bound::NodeRetainedBytes => "kept bytes of the node",
            Bound::MetadataDepth => "levels of metadata",
            Bound::Names => "resource names in a request",
            Bound::InitialVersions => "initial_resource_versions",
            Bound::NameBytes => "bytes of a resource name",
            Bound::ResourceVersionBytes => "bytes of a resource version",
            Bound::VersionBytes => "bytes of version_info",
            Bound::NonceBytes => "bytes of response_nonce",
            Bound::TypeUrlBytes => "bytes of type_url",
        }
    }
}

impl From<ReadError> for Status {
    fn from(error: ReadError) -> Self {
        let code = match error {
            ReadError::Malformed(_) | ReadError::NotJson(_) | ReadError::Truncated => Code::InvalidArgument,
            ReadError::Compressed | ReadError::Unsupported(_) => Code::Unimplemented,
            ReadError::OverLimit { .. } => Code::ResourceExhausted,
        };
        Status::new(code, error.to_string())
    }
}

/// The header for a message of this length; `None` if gRPC can't frame the message (4 GiB or more).
pub(super) fn header(length: usize) -> Option<[u8; HEADER_LEN]> {
    let [a, b, c, d] = u32::try_from(length).ok()?.to_be_bytes();
    Some([0, a, b, c, d])
}

/// The header for a compressed message of this length; `None` if gRPC can't frame the message.
pub(super) fn compressed_header(length: usize) -> Option<[u8; HEADER_LEN]> {
    let mut header = header(length)?;
    header[0] = 1;
    Some(header)
}

/// A message with its header; `None` if gRPC can't frame the message (4 GiB or more).
pub fn framed(message: &[u8]) -> Option<Bytes> {
    Some([&header(message.len())?, message].concat().into())
}

/// Collects a message's header, which may arrive in pieces.
#[derive(Debug, Default)]
pub(super) struct HeaderReader {
    bytes: [u8; HEADER_LEN],
    filled: usize,
}

impl HeaderReader {
    /// Whether the next message is compressed, and its length, once the header is complete.
    pub fn read(&mut self, chunk: &mut Bytes) -> Result<Option<(bool, usize)>, ReadError> {
        while self.filled < HEADER_LEN {
            if chunk.is_empty() {
                return Ok(None);
            }
            self.bytes[self.filled] = chunk.get_u8();
            self.filled += 1;
        }
        let [flag, length @ ..] = self.bytes;
        match flag {
            0 | 1 => Ok(Some((flag == 1, u32::from_be_bytes(length) as usize))),
            _ => Err(Malformed(format!("the flag byte of a gRPC message is {flag}")).into()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
}

/// Collects a known number of bytes from chunks. Memory grows with the bytes received, never with the length
/// announced.
#[derive(Debug)]
pub(super) struct Gather {
    bytes: Vec<u8>,
    length: usize,
}

impl Gather {
    pub fn new(length: usize) -> Self {
        Gather { bytes: Vec::new(), length }
    }

    /// Allocated bytes.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// The chunk begins with all wanted bytes.
    pub fn is_all_in(&self, chunk: &Bytes) -> bool {
        self.bytes.is_empty() && chunk.len() >= self.length
    }

    /// All wanted bytes, once received. Leaves the rest of the chunk in place.
    pub fn read(&mut self, chunk: &mut Bytes) -> Option<Vec<u8>> {
        let have = self.bytes.len();
        let length = chunk.len().min(self.length - have);
        if self.bytes.capacity() < have + length {
            // Doubling keeps the total copying linear. The announced length is the upper bound, so a complete
            // message fills its allocation exactly.
            let capacity = (have + length).max(have * 2).min(self.length);
            self.bytes.reserve_exact(capacity - have);
        }
        self.bytes.extend_from_slice(&chunk[..length]);
        chunk.advance(length);
        (self.bytes.len() == self.length).then(|| std::mem::take(&mut self.bytes))
    }
}

/// Cuts a gRPC body into messages: a response, or a request of another service than discovery.
///
/// Feed chunks with [`push`](Self::push), then iterate over the messages until the iterator is empty. Yields
/// nothing after an error.
#[derive(Debug)]
pub struct ResponseReader {
    /// The name of the limit.
    bound: Bound,
    max_bytes: usize,
    chunk: Bytes,
    header: HeaderReader,
    message: Option<Gather>,
    /// The sender may compress messages so.
    coding: Option<Coding>,
    /// The latest message is compressed.
    is_compressed: bool,
    failed: bool,
}

impl ResponseReader {
    /// `max_bytes`: the limit of one message on the wire.
    pub fn new(max_bytes: usize) -> Self {
        let (chunk, header) = (Bytes::new(), HeaderReader::default());
        ResponseReader {
            bound: Bound::ResponseBytes,
            max_bytes,
            chunk,
            header,
            message: None,
            coding: None,
            is_compressed: false,
            failed: false,
        }
    }

    /// The reader of a client's messages, without a limit before [`ResponseReader::limit`].
    pub fn of_requests() -> Self {
        ResponseReader { bound: Bound::RequestBytes, ..ResponseReader::new(usize::MAX) }
    }

    /// Sets another limit, for messages whose header is not yet read.
    pub fn limit(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// The sender compresses messages so, or not at all.
    pub fn accept(&mut self, coding: Option<Coding>) {
        self.coding = coding;
    }

    /// Whether the latest message has to be [decompressed](super::coding::decompress).
    pub fn is_compressed(&self) -> bool {
        self.is_compressed
    }

    pub fn push(&mut self, chunk: Bytes) {
        append(&mut self.chunk, chunk);
    }

    /// The approximate memory of a partly received message, in bytes; zero between two messages.
    pub fn held_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, Gather::held_bytes)
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

    fn read(&mut self) -> Result<Option<Bytes>, ReadError> {
        let gather = match &mut self.message {
            Some(gather) => gather,
            None => {
                let Some((is_compressed, length)) = self.header.read(&mut self.chunk)? else {
                    return Ok(None);
                };
                if is_compressed && self.coding.is_none() {
                    return Err(ReadError::Compressed);
                }
                self.is_compressed = is_compressed;
                ReadError::check(self.bound, length, self.max_bytes)?;
                self.message.insert(Gather::new(length))
            }
        };
        let Some(message) = gather.read(&mut self.chunk) else { return Ok(None) };
        self.message = None;
        self.header = HeaderReader::default();
        Ok(Some(message.into()))
    }
}

impl Default for ResponseReader {
    fn default() -> Self {
        ResponseReader::new(256 << 20)
    }
}

impl Iterator for ResponseReader {
    type Item = Result<Bytes, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let message = self.read();
        self.failed = message.is_err();
        if self.chunk.is_empty() {
            // An empty slice of a chunk would keep the connection's read buffer alive.
            self.chunk = Bytes::new();
        }
        message.transpose()
    }
}

/// Appends a chunk to the unread bytes. The unread bytes are empty if the caller drained the reader.
pub(super) fn append(unread: &mut Bytes, chunk: Bytes) {
    if unread.is_empty() {
        *unread = chunk;
    } else {
        *unread = [&unread[..], &chunk[..]].concat().into();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        [&header(message.len()).unwrap()[..], message].concat()
    }

    #[test]
    fn an_idle_reader_keeps_no_buffer_of_the_connection() {
        for message in [&b"report"[..], b""] {
            let chunk = Bytes::from(framed(message));
            let mut reader = ResponseReader::default();
            reader.push(chunk.slice(..));
            assert_eq!(reader.next().unwrap().unwrap(), message);
            assert!(chunk.is_unique(), "{message:?}");
        }
    }

    #[test]
    fn messages_come_out_whole_however_they_are_cut() {
        let messages: [&[u8]; 4] = [b"one", b"", &[7; 5000], b"end"];
        let body: Vec<u8> = messages.iter().flat_map(|message| framed(message)).collect();
        for size in [1, 2, 7, 1400, body.len()] {
            let mut reader = ResponseReader::default();
            let mut read = Vec::new();
            for chunk in body.chunks(size) {
                reader.push(Bytes::copy_from_slice(chunk));
                for message in &mut reader {
                    read.push(message.unwrap());
                }
            }
            assert_eq!(read, messages, "in chunks of {size}");
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn memory_grows_with_what_arrives_not_with_what_is_announced() {
        let mut gather = Gather::new(200 << 20);
        assert!(gather.read(&mut Bytes::from_static(&[0; 100])).is_none());
        assert!(gather.bytes.capacity() < 1000);

        let mut gather = Gather::new(1000);
        let mut chunk = Bytes::from_static(&[0; 700]);
        assert!(gather.read(&mut chunk).is_none());
        let mut chunk = Bytes::from_static(&[0; 400]);
        let message = gather.read(&mut chunk).expect("whole");
        assert_eq!((message.len(), message.capacity(), chunk.len()), (1000, 1000, 100), "the rest is left");
        assert_eq!(gather.bytes.capacity(), 0);
    }

    #[test]
    fn a_response_is_refused_for_its_size_its_flag_or_its_end() {
        let refused = |max, body: &[u8]| {
            let mut reader = ResponseReader::new(max);
            reader.push(Bytes::copy_from_slice(body));
            let error = reader.next().map(|message| message.expect_err("refused"));
            assert_eq!(reader.next(), None);
            error.or_else(|| reader.finish().err())
        };
        let limit = Bound::ResponseBytes;
        assert_eq!(refused(4, &framed(b"12345")), Some(ReadError::OverLimit { limit, value: 5, allowed: 4 }));
        assert_eq!(refused(9, &[1, 0, 0, 0, 0]), Some(ReadError::Compressed));
        assert_eq!(refused(9, &framed(b"12345")[..7]), Some(ReadError::Truncated));
    }
}
