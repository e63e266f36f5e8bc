//! From the bytes of a response body to responses.

use bytes::Bytes;

use crate::wire::{ReadError, ResponseReader, read_mark, upstream};
use crate::xds::{Code, Response, SetMark, Status, Variant};

/// Messages longer than this are decoded on a thread of their own, so that they hold up no other task.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// Cuts a response body into messages and decodes them.
pub(super) struct Decoder {
    variant: Variant,
    reader: ResponseReader,
    reads_marks: bool,
    mark: Option<SetMark>,
}

impl Decoder {
    pub(super) fn new(variant: Variant, message_bytes_max: usize) -> Decoder {
        let reader = ResponseReader::new(message_bytes_max);
        Decoder { variant, reader, reads_marks: false, mark: None }
    }

    /// The server sets marks.
    pub(super) fn read_marks(&mut self) {
        self.reads_marks = true;
    }

    /// The mark of the response that was given last.
    pub(super) fn take_mark(&mut self) -> Option<SetMark> {
        self.mark.take()
    }

    pub(super) fn push(&mut self, chunk: Bytes) {
        self.reader.push(chunk);
    }

    /// The next response; `None` when more bytes are needed.
    pub(super) async fn next(&mut self) -> Option<Result<Response, Status>> {
        let message = match self.reader.next()? {
            Ok(message) => message,
            Err(error) => return Some(Err(unreadable(&error))),
        };
        let variant = self.variant;
        self.mark = if self.reads_marks { read_mark(&message) } else { None };
        if message.len() <= INLINE_BYTES_MAX {
            return Some(decode(variant, message));
        }
        let decoded = tokio::task::spawn_blocking(move || decode(variant, message)).await;
        Some(decoded.unwrap_or_else(|error| Err(Status::new(Code::Internal, error.to_string()))))
    }

    /// Whether the body ended between two messages.
    pub(super) fn finish(&self) -> Result<(), Status> {
        self.reader.finish().map_err(|error| unreadable(&error))
    }
}

fn decode(variant: Variant, message: Bytes) -> Result<Response, Status> {
    match variant {
        Variant::Sotw => upstream::decode_sotw_response(message).map(Response::Sotw),
        Variant::Delta => upstream::decode_delta_response(message).map(Response::Delta),
    }
    .map_err(|error| Status::new(Code::Internal, error.to_string()))
}

/// The fault is the server's, so that the codes differ from those that a client's bad request gets.
fn unreadable(error: &ReadError) -> Status {
    let code = match error {
        ReadError::OverLimit { .. } => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}
