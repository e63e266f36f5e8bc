//! Decodes the bytes of a response body.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::event::Arrival;
use sluice_wire::coding::decompress;
use sluice_wire::{ReadError, ResponseReader, read_last_word, read_mark, upstream};
use sluice_xds::{Code, Coding, LastWord, ResourceCopies, Response, SetMark, Status, Variant};

/// Longer messages are decoded on a blocking thread, so that they delay no other task.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// The messages of a server on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamContent {
    Responses(Variant),
    /// Messages of another service than discovery, which the caller reads.
    Messages,
}

/// The next message of a stream.
pub(super) enum Decoded {
    Response(Response, Arrival),
    Message(Bytes),
    LastWord(LastWord),
}

/// Cuts a response body into messages and decodes them.
pub(super) struct Decoder {
    content: StreamContent,
    reader: ResponseReader,
    coding: Option<Coding>,
    /// The limit of a message.
    message_bytes_max: usize,
    reads_marks: bool,
    reads_last_words: bool,
    mark: Option<SetMark>,
    copies: Option<Arc<dyn ResourceCopies>>,
}

impl Decoder {
    /// `copies`: the resources of other streams.
    pub(super) fn new(content: StreamContent, copies: Option<Arc<dyn ResourceCopies>>) -> Decoder {
        Decoder {
            content,
            reader: ResponseReader::default(),
            coding: None,
            message_bytes_max: 0,
            reads_marks: false,
            reads_last_words: false,
            mark: None,
            copies,
        }
    }

    /// The server compresses its messages so.
    pub(super) fn decompress(&mut self, coding: Option<Coding>) {
        self.coding = coding;
        self.reader.accept(coding);
    }

    /// From now on, expect marks in responses.
    pub(super) fn read_marks(&mut self) {
        self.reads_marks = true;
    }

    /// From now on, expect last words between responses.
    pub(super) fn read_last_words(&mut self) {
        self.reads_last_words = true;
    }

    /// The mark of the last response returned.
    pub(super) fn take_mark(&mut self) -> Option<SetMark> {
        self.mark.take()
    }

    /// `message_bytes_max`: the limit for messages that begin in this chunk.
    pub(super) fn push(&mut self, chunk: Bytes, message_bytes_max: usize) {
        self.message_bytes_max = message_bytes_max;
        self.reader.limit(message_bytes_max);
        self.reader.push(chunk);
    }

    /// The next message; `None` if more bytes are needed.
    pub(super) async fn next(&mut self) -> Option<Result<Decoded, Status>> {
        let message = match self.reader.next()? {
            Ok(message) => message,
            Err(error) => return Some(Err(unreadable(&error))),
        };
        let coding = self.coding.filter(|_| self.reader.is_compressed());
        let message = match coding {
            None => message,
            Some(coding) => match decompressed(coding, message, self.message_bytes_max).await {
                Ok(message) => message,
                Err(status) => return Some(Err(status)),
            },
        };
        let StreamContent::Responses(variant) = self.content else {
            return Some(Ok(Decoded::Message(message)));
        };
        if self.reads_last_words
            && let Some(word) = read_last_word(&message)
        {
            return Some(Ok(Decoded::LastWord(word)));
        }
        let complete_at = Instant::now();
        self.mark = if self.reads_marks { read_mark(&message) } else { None };
        let decoded = match message.len() <= INLINE_BYTES_MAX {
            true => decode(variant, message, self.copies.as_deref()),
            false => {
                let copies = self.copies.clone();
                tokio::task::spawn_blocking(move || decode(variant, message, copies.as_deref()))
                    .await
                    .unwrap_or_else(|error| Err(Status::new(Code::Internal, error.to_string())))
            }
        };
        Some(decoded.map(|response| Decoded::Response(response, Arrival::decoded(complete_at))))
    }

    /// Checks that the body did not end within a message.
    pub(super) fn finish(&self) -> Result<(), Status> {
        self.reader.finish().map_err(|error| unreadable(&error))
    }
}

/// A short message may be long in plain, so each is read on a blocking thread.
async fn decompressed(coding: Coding, message: Bytes, message_bytes_max: usize) -> Result<Bytes, Status> {
    let read = tokio::task::spawn_blocking(move || decompress(coding, &message, message_bytes_max)).await;
    let read = read.map_err(|error| Status::new(Code::Internal, error.to_string()))?;
    read.map_err(|error| unreadable(&error))
}

fn decode(variant: Variant, message: Bytes, copies: Option<&dyn ResourceCopies>) -> Result<Response, Status> {
    upstream::decode_response(variant, message, copies)
        .map_err(|error| Status::new(Code::Internal, error.to_string()))
}

/// The server is at fault, so the codes differ from those for bad requests of clients.
fn unreadable(error: &ReadError) -> Status {
    let code = match error {
        ReadError::OverLimit { .. } => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}
