//! The response of a call: written when HTTP/2 can take it, never copied.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::task::AbortHandle;

use super::status;
use super::streams::RegisteredStream;
use crate::driver::handle::{Delivery, RelayStream};
use crate::xds::Status;

/// The body of any response.
#[derive(Default)]
pub(super) enum ResponseBody<S: RelayStream> {
    #[default]
    Empty,
    Stream(StreamBody<S>),
    Health(tonic::body::Body),
    /// A whole document.
    Full(Bytes),
    /// The one message of a `Fetch*` call in its pieces, the next one last; then its trailers.
    Unary {
        pieces: Vec<Bytes>,
        ended: bool,
    },
}

impl<S: RelayStream> ResponseBody<S> {
    pub(super) fn unary(private: Bytes, shared: Bytes) -> Self {
        ResponseBody::Unary { pieces: vec![shared, private], ended: false }
    }
}

/// Bytes on their way out, and who waits for the last of them to leave: HTTP/2 drops both together.
pub(super) struct Piece {
    bytes: Bytes,
    _delivery: Option<Delivery>,
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Piece { bytes, _delivery: None }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        self.bytes.copy_to_bytes(len)
    }
}

/// An xDS response stream.
///
/// hyper asks for a frame only when the one before stands in the HTTP/2 queue, so a client that doesn't read costs
/// what is queued and one message more, whatever happens meanwhile (FD1, FLW-2).
pub(super) struct StreamBody<S: RelayStream> {
    registered: RegisteredStream<S>,
    reader: AbortHandle,
    /// What is still to be written of the message that began.
    shared: Option<Piece>,
    ended: bool,
}

impl<S: RelayStream> StreamBody<S> {
    /// `reader` is the task that reads the requests of the stream; it ends with the body.
    pub(super) fn new(registered: RegisteredStream<S>, reader: AbortHandle) -> Self {
        StreamBody { registered, reader, shared: None, ended: false }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Piece>>> {
        if let Some(shared) = self.shared.take() {
            return Poll::Ready(Some(Frame::data(shared)));
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let status = match ready!(self.registered.stream().poll_message(context)) {
            Some(Ok(message)) => {
                let shared = Piece { bytes: message.shared, _delivery: message.delivery };
                if message.private.is_empty() {
                    return Poll::Ready(Some(Frame::data(shared)));
                }
                self.shared = Some(shared);
                return Poll::Ready(Some(Frame::data(message.private.into())));
            }
            Some(Err(status)) => status,
            None => Status::ok(),
        };
        self.ended = true;
        Poll::Ready(Some(Frame::trailers(status::trailers(&status))))
    }
}

impl<S: RelayStream> Drop for StreamBody<S> {
    /// The response is over: what the client may still send finds nobody, and HTTP/2 resets the stream with
    /// NO_ERROR (RFC 9113 §8.1).
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// What comes next of a single message.
fn unary_frame(pieces: &mut Vec<Bytes>, ended: &mut bool) -> Option<Frame<Piece>> {
    if let Some(piece) = pieces.pop() {
        return Some(Frame::data(piece.into()));
    }
    let trailers = !std::mem::replace(ended, true);
    trailers.then(|| Frame::trailers(status::trailers(&Status::ok())))
}

// Nothing in it is pinned.
impl<S: RelayStream> Unpin for ResponseBody<S> {}

impl<S: RelayStream> Body for ResponseBody<S> {
    type Data = Piece;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, tonic::Status>>> {
        match self.get_mut() {
            ResponseBody::Empty => Poll::Ready(None),
            ResponseBody::Stream(body) => body.poll_frame(context).map(|frame| frame.map(Ok)),
            ResponseBody::Health(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(Piece::from))))
            }
            ResponseBody::Full(document) => {
                let document = std::mem::take(document);
                Poll::Ready((!document.is_empty()).then(|| Ok(Frame::data(document.into()))))
            }
            ResponseBody::Unary { pieces, ended } => Poll::Ready(unary_frame(pieces, ended).map(Ok)),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Empty => SizeHint::with_exact(0),
            ResponseBody::Full(document) => SizeHint::with_exact(document.len() as u64),
            _ => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Empty => true,
            ResponseBody::Stream(_) | ResponseBody::Unary { .. } => false,
            ResponseBody::Full(document) => document.is_empty(),
            ResponseBody::Health(body) => body.is_end_stream(),
        }
    }
}
