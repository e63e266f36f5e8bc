//! The response of a call: written when HTTP/2 can take it, never copied.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::task::AbortHandle;

use super::status;
use super::streams::RegisteredStream;
use crate::driver::handle::{Delivery, Message, RelayStream};
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
    /// The one message of a `Fetch*` call until it is taken, then its trailers.
    Unary {
        message: Option<Piece>,
        ended: bool,
    },
}

impl<S: RelayStream> ResponseBody<S> {
    pub(super) fn unary(private: Bytes, shared: Bytes) -> Self {
        ResponseBody::Unary { message: Some(Piece { private, shared, _delivery: None }), ended: false }
    }
}

/// A message on its way out, and who waits for the last of it to leave: HTTP/2 drops both together.
///
/// One DATA frame carries both parts, as each frame costs hyper and h2 a turn of their own.
pub(super) struct Piece {
    private: Bytes,
    shared: Bytes,
    _delivery: Option<Delivery>,
}

impl From<Bytes> for Piece {
    fn from(shared: Bytes) -> Self {
        Piece { private: Bytes::new(), shared, _delivery: None }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.private.len() + self.shared.len()
    }

    fn chunk(&self) -> &[u8] {
        if self.private.is_empty() { &self.shared } else { &self.private }
    }

    /// Both parts, so that they leave in one system call.
    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for part in [&self.private, &self.shared] {
            if let Some(slice) = slices.get_mut(filled)
                && !part.is_empty()
            {
                *slice = IoSlice::new(part);
                filled += 1;
            }
        }
        filled
    }

    fn advance(&mut self, count: usize) {
        let of_private = count.min(self.private.len());
        self.private.advance(of_private);
        self.shared.advance(count - of_private);
    }
}

/// An xDS response stream.
///
/// hyper asks for a frame only when the one before stands in the HTTP/2 queue, so a client that doesn't read costs
/// what is queued and one message more, whatever happens meanwhile (FD1, FLW-2).
pub(super) struct StreamBody<S: RelayStream> {
    registered: RegisteredStream<S>,
    reader: AbortHandle,
    ended: bool,
}

impl<S: RelayStream> StreamBody<S> {
    /// `reader` is the task that reads the requests of the stream; it ends with the body.
    pub(super) fn new(registered: RegisteredStream<S>, reader: AbortHandle) -> Self {
        StreamBody { registered, reader, ended: false }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Piece>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let status = match ready!(self.registered.stream().poll_message(context)) {
            Some(Ok(Message { private, shared, delivery })) => {
                return Poll::Ready(Some(Frame::data(Piece { private, shared, _delivery: delivery })));
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
fn unary_frame(message: &mut Option<Piece>, ended: &mut bool) -> Option<Frame<Piece>> {
    if let Some(message) = message.take() {
        return Some(Frame::data(message));
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
            ResponseBody::Unary { message, ended } => Poll::Ready(unary_frame(message, ended).map(Ok)),
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
