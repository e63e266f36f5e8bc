//! A stream of load reports (LRS).
//!
//! A refusal is worse than a stream without use: an Envoy retries every 5 s, for ever, so 10,000 Envoys make
//! 2,000 calls a second (RPC-8). So streams stay open also where nobody takes reports.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use tokio::time::{Instant, Sleep, sleep_until};

use super::body::{Piece, poll_capacity, poll_data};
use super::limits::ServerLimits;
use super::listener::{ListenerOptions, LoadReports};
use super::reader::over_limit;
use super::status;
use super::streams::Streams;
use super::unfinished::Received;
use crate::driver::api::downstream::{LoadStream, LoadWord, RelayStream};
use crate::telemetry::Limit;
use crate::telemetry::metrics::DownstreamMetrics;
use sluice_setting::InForce;
use sluice_wire::{ReadError, ResponseReader};
use sluice_xds::{ApiVersion, Code, Status};

/// The API of the load reporting method with this path.
pub(super) fn api_of_path(path: &str) -> Option<ApiVersion> {
    match path {
        "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats" => Some(ApiVersion::V3),
        "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats" => Some(ApiVersion::V2),
        _ => None,
    }
}

/// The messages to take before other streams of the connection have a turn.
const TURN: usize = 16;

/// The limits and the accounts of a stream's reader.
pub(super) struct Reading {
    pub limits: InForce<ServerLimits>,
    pub metrics: Arc<DownstreamMetrics>,
    pub received: Received,
}

/// Serves a stream until one side ends it.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would store each argument twice for the life of its future"
)]
pub(super) fn serve<S: RelayStream>(
    mut call: LoadCall,
    streams: Arc<Streams<S>>,
) -> impl Future<Output = ()> + Send {
    async move {
        let status = tokio::select! {
            biased;
            status = streams.going() => status,
            end = poll_fn(|context| call.poll(context)) => match end {
                Some(status) => status,
                None => return,
            },
        };
        // An error means that the stream is gone.
        let _ = call.send.send_trailers(status::trailers(&status));
    }
}

/// The reason for the end of the reports.
enum ReportsEnd {
    HalfClosed,
    /// Reset, or the connection is gone: the client can't be told.
    Reset,
    Failed(Status),
}

/// Both directions of a stream.
pub(super) struct LoadCall {
    /// `None` once the client has ended its side.
    body: Option<RecvStream>,
    send: SendStream<Piece>,
    stream: Box<dyn LoadStream>,
    reading: Reading,
    reader: ResponseReader,
    options: InForce<ListenerOptions>,
    /// Ends a client that does not finish a message.
    late: Option<Pin<Box<Sleep>>>,
    /// An answer that waits for room in the queue of HTTP/2. Boxed: most streams have none.
    waiting: Option<Box<Piece>>,
}

impl LoadCall {
    pub(super) fn new(
        body: RecvStream,
        send: SendStream<Piece>,
        stream: Box<dyn LoadStream>,
        reading: Reading,
        options: InForce<ListenerOptions>,
    ) -> LoadCall {
        let reader = ResponseReader::of_requests();
        let (late, waiting) = (None, None);
        LoadCall { body: Some(body), send, stream, reading, reader, options, late, waiting }
    }

    /// Ready with the status of the end, or with `None` if the client is gone.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Status>> {
        for _ in 0..TURN {
            let is_dropped = self.options.get().load_reports == Some(LoadReports::Drop);
            self.stream.set_dropped(is_dropped);
            match self.poll_out(context) {
                Poll::Ready(Some(end)) => return Poll::Ready(end),
                Poll::Ready(None) => continue,
                Poll::Pending => {}
            }
            match self.poll_in(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(ReportsEnd::Failed(status))) => return Poll::Ready(Some(status)),
                Poll::Ready(Err(ReportsEnd::Reset)) => return Poll::Ready(None),
                Poll::Ready(Err(ReportsEnd::HalfClosed)) => {
                    self.body = None;
                    self.stream.half_close();
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready with the end of the call, or after a step.
    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<Option<Option<Status>>> {
        if self.waiting.is_some() {
            match poll_capacity(&mut self.send, context) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) => return Poll::Ready(Some(None)),
                Poll::Pending => return Poll::Pending,
            }
            let sent = self.waiting.take().map(|piece| self.send.send_data(*piece, false));
            return Poll::Ready(sent.is_some_and(|sent| sent.is_err()).then_some(None));
        }
        match self.stream.poll_word(context) {
            Poll::Ready(LoadWord::Answer(answer)) => {
                self.send.reserve_capacity(1);
                self.waiting = Some(Box::new(answer.into()));
                Poll::Ready(None)
            }
            Poll::Ready(LoadWord::End(status)) => {
                self.send.reserve_capacity(0);
                Poll::Ready(Some(Some(status)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Ready when a report was taken.
    fn poll_in(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReportsEnd>> {
        if self.body.is_none() || self.stream.poll_ready(context).is_pending() {
            // Without a look at the body, nothing else tells of a reset.
            return self.send.poll_reset(context).map(|_| Err(ReportsEnd::Reset));
        }
        let message = match self.poll_message(context) {
            Poll::Ready(Ok(message)) => message,
            Poll::Ready(Err(end)) => return Poll::Ready(Err(end)),
            Poll::Pending => return Poll::Pending,
        };
        let limits = self.reading.limits.get();
        let taken = self.stream.report(message, &limits.requests).map_err(ReportsEnd::Failed);
        Poll::Ready(taken.and_then(|()| self.reading.received.set(0).map_err(ReportsEnd::Failed)))
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, ReportsEnd>> {
        loop {
            let limits = self.reading.limits.get();
            self.reader.limit(limits.requests.request_bytes);
            if let Some(message) = self.reader.next() {
                self.late = None;
                return Poll::Ready(message.map_err(|error| self.unreadable(error)));
            }
            let held = self.reader.held_bytes();
            if let Err(status) = self.reading.received.set(held) {
                return Poll::Ready(Err(ReportsEnd::Failed(status)));
            }
            let Some(body) = &mut self.body else { return Poll::Pending };
            match poll_data(body, context) {
                Poll::Ready(Some(Ok(data))) => {
                    self.reading.metrics.request_bytes.inc_by(data.len() as u64);
                    if let Err(status) = self.stream.arrived(data.len(), &limits.requests) {
                        return Poll::Ready(Err(ReportsEnd::Failed(status)));
                    }
                    self.reader.push(data);
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(ReportsEnd::Reset)),
                Poll::Ready(None) => {
                    let finished = self.reader.finish().map_err(|error| self.unreadable(error));
                    return Poll::Ready(Err(finished.err().unwrap_or(ReportsEnd::HalfClosed)));
                }
                Poll::Pending if self.reader.is_within_message() => {
                    return self.poll_late(&limits, context).map(|status| Err(ReportsEnd::Failed(status)));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Ready if the rest of a message is late: the received part occupies memory until then.
    fn poll_late(&mut self, limits: &ServerLimits, context: &mut Context<'_>) -> Poll<Status> {
        if let Poll::Ready(over_budget) = self.reading.received.poll_cut(context) {
            return Poll::Ready(over_budget);
        }
        let timeout = limits.request_timeout;
        let late = self.late.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + timeout)));
        late.as_mut().poll(context).map(|()| {
            self.reading.metrics.limit_hit(Limit::RequestTimeout);
            let text =
                format!("a report was incomplete after {timeout:?}; the limit is limits.request_timeout");
            Status::new(Code::DeadlineExceeded, text)
        })
    }

    fn unreadable(&self, error: ReadError) -> ReportsEnd {
        self.reading.metrics.streams_unreadable.inc();
        if let Some(limit) = over_limit(&error) {
            self.reading.metrics.limit_hit(limit);
        }
        ReportsEnd::Failed(error.into())
    }
}
