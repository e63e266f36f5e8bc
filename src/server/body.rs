//! The bodies of calls: requests as received, and responses as HTTP sends them. Responses that are whole at
//! once.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{RecvStream, SendStream};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::status::{self, MESSAGE_BYTES_MAX};
use super::unfinished::Untaken;
use crate::driver::api::downstream::UnreadPart;
use sluice_xds::Status;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) enum RequestBody {
    Http1(Incoming),
    Http2(RecvStream),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            RequestBody::Http1(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            RequestBody::Http2(body) => {
                let data = ready!(poll_data(body, context));
                Poll::Ready(data.map(|data| data.map(Frame::data).map_err(Into::into)))
            }
        }
    }
}

/// The next bytes of a request. Opens the window again, so that the sender may send as many bytes more.
pub(super) fn poll_data(
    body: &mut RecvStream,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, h2::Error>>> {
    let data = ready!(body.poll_data(context));
    if let Some(Ok(data)) = &data {
        // Fails only for more bytes than were received.
        let _ = body.flow_control().release_capacity(data.len());
    }
    Poll::Ready(data)
}

/// Ready when the queue has room for one more message; `None` if the stream is gone.
pub(super) fn poll_capacity(send: &mut SendStream<Piece>, context: &mut Context<'_>) -> Poll<Option<()>> {
    while send.capacity() == 0 {
        match ready!(send.poll_capacity(context)) {
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return Poll::Ready(None),
        }
    }
    Poll::Ready(Some(()))
}

/// The body of a response; streams have none.
#[derive(Default)]
pub(super) enum ResponseBody {
    #[default]
    Empty,
    Health(tonic::body::Body),
    /// A whole document, until HTTP takes the document.
    Full(Piece),
    /// The message of a `Fetch*` call until HTTP takes the message, then the trailers.
    Unary {
        message: Option<Piece>,
        ended: bool,
    },
}

impl ResponseBody {
    pub(super) fn unary(private: Bytes, shared: Bytes, untaken: Untaken) -> Self {
        let message = Piece { private, shared, _waits: Waits::Poll(Box::new(untaken)) };
        ResponseBody::Unary { message: Some(message), ended: false }
    }

    pub(super) fn document(shared: Bytes, untaken: Option<Untaken>) -> Self {
        let waits = untaken.map_or(Waits::Nobody, |untaken| Waits::Poll(Box::new(untaken)));
        ResponseBody::Full(Piece { private: Bytes::new(), shared, _waits: waits })
    }
}

/// A message on its way out, with a guard whose drop reports that the last byte has left. HTTP/2 drops both
/// together.
///
/// One DATA frame carries both parts, because each frame costs h2 a turn.
#[derive(Default)]
pub(super) struct Piece {
    private: Bytes,
    shared: Bytes,
    _waits: Waits,
}

/// A guard whose drop reports that a message has left.
#[derive(Default)]
#[expect(dead_code, reason = "the drop of a guard is the report")]
enum Waits {
    #[default]
    Nobody,
    Stream(UnreadPart),
    /// Boxed: each message of each stream has room for its guard.
    Poll(Box<Untaken>),
}

impl Piece {
    pub(super) fn new(private: Bytes, shared: Bytes, delivery: Option<UnreadPart>) -> Self {
        Piece { private, shared, _waits: delivery.map_or(Waits::Nobody, Waits::Stream) }
    }
}

impl From<Bytes> for Piece {
    fn from(shared: Bytes) -> Self {
        Piece { private: Bytes::new(), shared, _waits: Waits::Nobody }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.private.len() + self.shared.len()
    }

    fn chunk(&self) -> &[u8] {
        if self.private.is_empty() { &self.shared } else { &self.private }
    }

    /// Both parts, so that both leave in one system call.
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

/// The next frame of a single message.
fn unary_frame(message: &mut Option<Piece>, ended: &mut bool) -> Option<Frame<Piece>> {
    if let Some(message) = message.take() {
        return Some(Frame::data(message));
    }
    let trailers = !std::mem::replace(ended, true);
    trailers.then(|| Frame::trailers(status::trailers(&Status::ok())))
}

impl Body for ResponseBody {
    type Data = Piece;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, tonic::Status>>> {
        match self.get_mut() {
            ResponseBody::Empty => Poll::Ready(None),
            ResponseBody::Health(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(Piece::from))))
            }
            ResponseBody::Full(document) => {
                let document = std::mem::take(document);
                Poll::Ready(document.has_remaining().then(|| Ok(Frame::data(document))))
            }
            ResponseBody::Unary { message, ended } => Poll::Ready(unary_frame(message, ended).map(Ok)),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Empty => SizeHint::with_exact(0),
            ResponseBody::Full(document) => SizeHint::with_exact(document.remaining() as u64),
            _ => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Empty => true,
            ResponseBody::Unary { .. } => false,
            ResponseBody::Full(document) => !document.has_remaining(),
            ResponseBody::Health(body) => body.is_end_stream(),
        }
    }
}

/// The response that ends a call before its stream begins: HTTP 200, with the status in the headers.
pub(super) fn trailers_only(status: &Status) -> Response<ResponseBody> {
    let mut response = status::stream_response(ResponseBody::Empty);
    status::add(status, response.headers_mut());
    response
}

/// A response without gRPC, for clients of other protocols.
pub(super) fn plain(code: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Empty);
    *response.status_mut() = code;
    response
}

/// A JSON document.
pub(super) fn json(code: StatusCode, document: Bytes, untaken: Option<Untaken>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::document(document, untaken));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// A `google.rpc.Status` in JSON, as REST APIs commonly return.
pub(super) fn refusal(code: StatusCode, status: &Status) -> Response<ResponseBody> {
    let end = status.message.floor_char_boundary(MESSAGE_BYTES_MAX);
    let document = serde_json::json!({ "code": status.code as i32, "message": &status.message[..end] });
    json(code, document.to_string().into(), None)
}
