//! One call over HTTP/2. The response is written at the pace of HTTP/2, and never copied.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use futures_util::FutureExt;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::Body;
use http_body_util::BodyExt;
use pin_project_lite::pin_project;
use tokio::select;
use tokio::time::{Instant, Sleep, sleep};

use super::Shared;
use super::body::{Piece, RequestBody, ResponseBody, poll_capacity};
use super::load_reports::{self, LoadCall, Reading};
use super::service::{Routed, Service};
use super::status;
use super::streams::RegisteredStream;
use crate::driver::api::downstream::{Message, OpenStreams, RelayStream};
use sluice_xds::{Status, coding, last_word, mark};

/// A call, until its response is written or the client has left. Dropping the call resets an unfinished
/// stream.
pub(super) type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Begins to answer a call. `None` if the answer is already complete.
pub(super) fn answer<R: OpenStreams>(
    service: &Service<R>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Piece>,
) -> Option<Call> {
    match service.answer(request.map(RequestBody::Http2)) {
        Routed::Now(response) => {
            let (response, body) = begin(response);
            if body.is_end_stream() {
                send_head(&mut respond, response, true);
                return None;
            }
            let send = send_head(&mut respond, response, false)?;
            Some(alone(write_body(body, send)))
        }
        Routed::Later(answer) => Some(alone(write_later(answer, respond))),
        Routed::LoadReports(reports, stream) => {
            let send = send_head(&mut respond, status::stream_response(()), false)?;
            let Shared { limits, metrics, unfinished, .. } = &*service.shared;
            let reading = Reading {
                limits: limits.clone(),
                metrics: metrics.clone(),
                received: unfinished.receive(&service.peer),
            };
            let call = LoadCall::new(reports, send, stream, reading, service.options.clone());
            Some(alone(load_reports::serve(call, service.streams.clone())))
        }
        Routed::Stream { requests, registered, kind } => {
            let mut response = status::stream_response(());
            let headers = response.headers_mut();
            if kind.marks {
                headers.insert(mark::HEADER, HeaderValue::from_static(mark::HEADER_VALUE));
            }
            if kind.last_words {
                headers.insert(last_word::HEADER, HeaderValue::from_static(last_word::HEADER_VALUE));
            }
            if let Some(coding) = kind.coding {
                headers.insert(coding::HEADER, HeaderValue::from_static(coding.name()));
            }
            let send = send_head(&mut respond, response, false)?;
            let life = Life::Open(registered);
            Some(alone(StreamCall { requests: Some(requests), send, life, waiting: None }))
        }
    }
}

/// Contains a panic: an error in a call ends only this call.
fn alone(call: impl Future<Output = ()> + Send + 'static) -> Call {
    // Nobody looks at the call again.
    Box::pin(AssertUnwindSafe(call).catch_unwind().map(drop))
}

fn begin(response: Response<ResponseBody>) -> (Response<()>, ResponseBody) {
    let (head, body) = response.into_parts();
    let mut response = Response::from_parts(head, ());
    if !body.is_end_stream()
        && let Some(length) = body.size_hint().exact()
    {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    (response, body)
}

/// `None` if the stream is gone.
fn send_head(
    respond: &mut SendResponse<Piece>,
    response: Response<()>,
    is_all: bool,
) -> Option<SendStream<Piece>> {
    respond
        .send_response(response, is_all)
        .inspect_err(|error| {
            tracing::debug!(%error, "could not begin a response");
            respond.send_reset(Reason::INTERNAL_ERROR);
        })
        .ok()
}

async fn write_later(answer: impl Future<Output = Response<ResponseBody>>, mut respond: SendResponse<Piece>) {
    let response = select! {
        biased;
        response = answer => response,
        _ = poll_fn(|context| respond.poll_reset(context)) => return,
    };
    let (response, body) = begin(response);
    let is_all = body.is_end_stream();
    if let Some(send) = send_head(&mut respond, response, is_all)
        && !is_all
    {
        write_body(body, send).await;
    }
}

async fn write_body(mut body: ResponseBody, mut send: SendStream<Piece>) {
    loop {
        let frame = select! {
            biased;
            frame = body.frame() => frame,
            _ = poll_fn(|context| send.poll_reset(context)) => return,
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                tracing::debug!(%error, "could not finish a response");
                return send.send_reset(Reason::INTERNAL_ERROR);
            }
            None => {
                // Here and below, an error means that the stream is gone.
                let _ = send.send_data(Piece::default(), true);
                return;
            }
        };
        match frame.into_data() {
            Ok(piece) => {
                if piece.has_remaining() {
                    send.reserve_capacity(1);
                    if poll_fn(|context| poll_capacity(&mut send, context)).await.is_none() {
                        return;
                    }
                }
                if send.send_data(piece, false).is_err() {
                    return;
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    end(&mut send, trailers);
                    return;
                }
            }
        }
    }
}

fn end(send: &mut SendStream<Piece>, trailers: HeaderMap) {
    // Other streams of the connection need the reserved window.
    send.reserve_capacity(0);
    let _ = send.send_trailers(trailers);
}

/// The time for a client of a failed stream to read the messages before the end, and the end.
const END_READ_WITHIN: Duration = Duration::from_secs(5);

/// The time between two looks at the messages before the end.
const END_LOOKED_AT: Duration = Duration::from_millis(100);

/// The life of a call of an xDS stream.
enum Life<S: RelayStream> {
    Open(RegisteredStream<S>),
    Failed(Box<Failed>),
}

/// A failed stream that has no subscriptions any more. HTTP/2 still has its last messages, for a client that
/// may not read.
struct Failed {
    is_unread: Box<dyn Fn() -> bool + Send>,
    until: Instant,
    next_look: Pin<Box<Sleep>>,
}

impl Failed {
    fn new(is_unread: impl Fn() -> bool + Send + 'static) -> Box<Failed> {
        let (until, next_look) = (Instant::now() + END_READ_WITHIN, Box::pin(sleep(END_LOOKED_AT)));
        Box::new(Failed { is_unread: Box::new(is_unread), until, next_look })
    }

    /// Ready with true when the client has read everything, with false when its time is over.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            if !(self.is_unread)() {
                return Poll::Ready(true);
            }
            ready!(self.next_look.as_mut().poll(context));
            if Instant::now() >= self.until {
                return Poll::Ready(false);
            }
            self.next_look.as_mut().reset(Instant::now() + END_LOOKED_AT);
        }
    }
}

pin_project! {
    /// An xDS stream, in both directions.
    ///
    /// The next message is built only after the previous message stands in the HTTP/2 queue. So a client that
    /// doesn't read costs the queue and one more message, regardless of the number of updates (FD1, FLW-2).
    /// Its requests are read all the same (FLW-3).
    struct StreamCall<F, S: RelayStream> {
        // Reads the requests, until the client ends its side.
        #[pin]
        requests: Option<F>,
        send: SendStream<Piece>,
        life: Life<S>,
        // A message that waits for room in the queue. Boxed: most messages wait for none.
        waiting: Option<Box<Piece>>,
    }
}

impl<F: Future<Output = ()>, S: RelayStream> Future for StreamCall<F, S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let has_failed = ready!(self.as_mut().poll_open(context));
        let mut this = self.project();
        if let Life::Open(registered) = this.life {
            if !has_failed {
                return Poll::Ready(());
            }
            let failed = Failed::new(registered.stream().unread());
            // The reader of requests holds the stream, too. While either lives, the sources keep its names.
            this.requests.set(None);
            *this.life = Life::Failed(failed);
        }
        let Life::Failed(failed) = this.life else { return Poll::Ready(()) };
        if this.send.poll_reset(context).is_pending() && !ready!(failed.poll_read(context)) {
            // Drops the messages.
            this.send.send_reset(Reason::CANCEL);
        }
        Poll::Ready(())
    }
}

impl<F: Future<Output = ()>, S: RelayStream> StreamCall<F, S> {
    /// Ready when the stream is over. True if the stream has failed.
    fn poll_open(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut this = self.project();
        let Life::Open(registered) = this.life else { return Poll::Ready(true) };
        let stream = registered.stream();
        if let Some(requests) = this.requests.as_mut().as_pin_mut()
            && requests.poll(context).is_ready()
        {
            this.requests.set(None);
        }
        // The reader of requests notices a reset. Without a reader, the call has to ask.
        if this.requests.is_none() && this.send.poll_reset(context).is_ready() {
            return Poll::Ready(false);
        }
        if this.waiting.is_some() {
            match poll_capacity(this.send, context) {
                Poll::Ready(Some(())) => {
                    if let Some(piece) = this.waiting.take()
                        && this.send.send_data(*piece, false).is_err()
                    {
                        return Poll::Ready(false);
                    }
                }
                Poll::Ready(None) => return Poll::Ready(false),
                // The end of a failed stream waits for no reader.
                Poll::Pending if stream.has_failed() => *this.waiting = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        loop {
            let status = match ready!(stream.poll_message(context)) {
                Some(Ok(Message { private, shared, delivery })) => {
                    // Reserves one byte, and only for an existing message. Unused reserved capacity would be
                    // missing for the other streams of a client that opens its window only after using it up.
                    this.send.reserve_capacity(1);
                    let piece = Piece::new(private, shared, delivery);
                    match poll_capacity(this.send, context) {
                        Poll::Ready(Some(())) => {
                            if this.send.send_data(piece, false).is_err() {
                                return Poll::Ready(false);
                            }
                        }
                        Poll::Ready(None) => return Poll::Ready(false),
                        Poll::Pending if stream.has_failed() => {}
                        Poll::Pending => {
                            *this.waiting = Some(Box::new(piece));
                            return Poll::Pending;
                        }
                    }
                    continue;
                }
                Some(Err(status)) => status,
                None => Status::ok(),
            };
            end(this.send, status::trailers(&status));
            return Poll::Ready(stream.has_failed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Relay;
    use crate::server::reader::read_requests;

    fn call_size<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<StreamCall<F, <Relay as OpenStreams>::Stream>>()
    }

    fn load_call_size<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    /// A size class of the allocator: each idle client has a call.
    #[test]
    fn an_idle_call_costs_little() {
        let size = call_size(read_requests::<<Relay as OpenStreams>::Stream>);
        assert!(size <= 384, "{size}");
        let size = load_call_size(load_reports::serve::<<Relay as OpenStreams>::Stream>);
        assert!(size <= 384, "{size} bytes of a stream of load reports");
    }
}
