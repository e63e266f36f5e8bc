//! Reads the requests of one stream.
//!
//! Reading goes on beside the responses: a client with blocked responses must still be read (FLW-3). Small
//! unread frames would cost the client its connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use h2::RecvStream;
use pin_project_lite::pin_project;
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout_at};

use super::body::poll_data;
use super::limits::ServerLimits;
use super::unfinished::Received;
use crate::driver::api::downstream::RelayStream;
use crate::telemetry::Limit;
use crate::telemetry::metrics::DownstreamMetrics;
use sluice_setting::InForce;
use sluice_wire::{Bound, ReadError, RequestReader};
use sluice_xds::{Code, Request, Status};

/// The time between two looks at the bytes behind a request that waits.
const WEIGHED_EVERY: Duration = Duration::from_millis(500);

/// The reason for the end of the requests.
enum RequestsEnd {
    HalfClosed,
    /// Reset, or the connection is gone: the client can't be told.
    Reset,
    Failed(Status),
}

/// The requests of one stream, with their limits.
pub(super) struct Requests {
    body: RecvStream,
    reader: RequestReader,
    metrics: Arc<DownstreamMetrics>,
    /// The received part of the current request, and the request that is being handed over.
    received: Received,
    /// From the first byte of a request to its last.
    limits: InForce<ServerLimits>,
    /// Boxed, because the requests of most streams arrive whole.
    late: Option<Pin<Box<Late>>>,
}

pin_project! {
    /// Tells when the rest of a request is late.
    ///
    /// A client that repeats its node sends each request in parts. Its requests share a timer, because to set
    /// and to drop a timer costs more than to read the clock.
    struct Late {
        // When the task first waited for the rest of the current request.
        since: Option<Instant>,
        #[pin]
        timer: Sleep,
    }
}

impl Late {
    fn new(timeout: Duration) -> Late {
        let now = Instant::now();
        Late { since: Some(now), timer: sleep_until(now + timeout) }
    }

    /// Ready once the task has waited for the rest of a request for this long.
    fn poll(self: Pin<&mut Self>, timeout: Duration, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let due = *this.since.get_or_insert_with(Instant::now) + timeout;
        loop {
            let is_of_request = this.timer.deadline() == due;
            // The timer of an earlier request ends too early. With a shorter timeout in force it ends too
            // late.
            if this.timer.deadline() > due || (!is_of_request && this.timer.is_elapsed()) {
                this.timer.as_mut().reset(due);
            }
            ready!(this.timer.as_mut().poll(context));
            if is_of_request {
                return Poll::Ready(());
            }
        }
    }

    /// The request is whole. Returns false once the timer has ended, too.
    fn rest(self: Pin<&mut Self>) -> bool {
        let this = self.project();
        *this.since = None;
        !this.timer.is_elapsed()
    }
}

/// Hands the requests of `body` to `stream`, in the order of arrival (STR-14), until one side ends.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would store each argument twice for the life of its future"
)]
pub(super) fn read_requests<S: RelayStream>(
    mut requests: Requests,
    stream: S,
    first_request_deadline: Instant,
) -> impl Future<Output = ()> + Send {
    async move {
        let Err(end) = pump(&mut requests, &stream, first_request_deadline).await;
        match end {
            RequestsEnd::HalfClosed => stream.half_close(),
            RequestsEnd::Reset => {}
            RequestsEnd::Failed(status) => stream.fail(status),
        }
    }
}

#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would store each argument twice for the life of its future"
)]
fn pump<S: RelayStream>(
    requests: &mut Requests,
    stream: &S,
    first_request_deadline: Instant,
) -> impl Future<Output = Result<Infallible, RequestsEnd>> + Send {
    async move {
        let mut is_first = true;
        loop {
            let request = match std::mem::take(&mut is_first) {
                // Boxed: used once per stream, and otherwise part of every stream's future.
                true => requests.first(first_request_deadline).boxed().await,
                false => requests.next().await,
            }?;
            let mut taken = pin!(stream.request(request));
            let mut weighed = None;
            poll_fn(|context| match taken.as_mut().poll(context) {
                Poll::Ready(taken) => Poll::Ready(taken.map_err(RequestsEnd::Failed)),
                Poll::Pending => requests.poll_unread(&mut weighed, context).map(Err),
            })
            .await?;
        }
    }
}

impl Requests {
    pub(super) fn new(
        body: RecvStream,
        reader: RequestReader,
        received: Received,
        limits: InForce<ServerLimits>,
        metrics: Arc<DownstreamMetrics>,
    ) -> Requests {
        Requests { body, reader, metrics, received, limits, late: None }
    }

    async fn first(&mut self, deadline: Instant) -> Result<Request, RequestsEnd> {
        timeout_at(deadline, self.next()).await.unwrap_or_else(|_| {
            self.metrics.limit_hit(Limit::FirstRequestTimeout);
            // Not UNAVAILABLE: the client is at fault, and dashboards shouldn't blame the server. Clients
            // retry both alike, with back-off.
            Err(RequestsEnd::Failed(Status::new(Code::DeadlineExceeded, "no request arrived in time")))
        })
    }

    async fn next(&mut self) -> Result<Request, RequestsEnd> {
        loop {
            // A busy client could keep body and stream always ready; the budget makes the task yield its
            // thread.
            coop::consume_budget().await;
            if self.reader.has_unread()
                && let Some(request) = self.reader.next(&self.limits.get().requests)
            {
                self.rest();
                return request.map_err(|error| self.unreadable(error));
            }
            self.received.set(self.reader.held_bytes()).map_err(RequestsEnd::Failed)?;
            match poll_fn(|context| self.poll_data(context)).await? {
                Some(Ok(data)) => {
                    self.metrics.request_bytes.inc_by(data.len() as u64);
                    self.reader.push(data);
                }
                Some(Err(_)) => return Err(RequestsEnd::Reset),
                None => {
                    self.reader.finish().map_err(|error| self.unreadable(error))?;
                    return Err(RequestsEnd::HalfClosed);
                }
            }
        }
    }

    /// The next bytes. An error if the rest of a request is late: the received part occupies memory until
    /// then.
    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Result<Bytes, h2::Error>>, RequestsEnd>> {
        let data = poll_data(&mut self.body, context);
        if !self.reader.is_within_message() {
            self.rest();
        } else if data.is_pending() {
            if let Poll::Ready(over_budget) = self.received.poll_cut(context) {
                return Poll::Ready(Err(RequestsEnd::Failed(over_budget)));
            }
            let timeout = self.limits.get().request_timeout;
            let late = self.late.get_or_insert_with(|| Box::pin(Late::new(timeout)));
            ready!(late.as_mut().poll(timeout, context));
            self.metrics.limit_hit(Limit::RequestTimeout);
            let text =
                format!("a request was incomplete after {timeout:?}; the limit is limits.request_timeout");
            return Poll::Ready(Err(RequestsEnd::Failed(Status::new(Code::DeadlineExceeded, text))));
        }
        data.map(Ok)
    }

    /// Weighs the bytes that wait behind a request. HTTP/2 lets them in while the relay takes its time with
    /// the request, up to the window. Ready with an end if they are too many.
    fn poll_unread(
        &mut self,
        weighed: &mut Option<Pin<Box<Sleep>>>,
        context: &mut Context<'_>,
    ) -> Poll<RequestsEnd> {
        let timer = weighed.get_or_insert_with(|| Box::pin(sleep(WEIGHED_EVERY)));
        while timer.as_mut().poll(context).is_ready() {
            let unread = self.body.flow_control().used_capacity();
            if let Err(over_budget) = self.received.set(self.reader.held_bytes() + unread) {
                return Poll::Ready(RequestsEnd::Failed(over_budget));
            }
            timer.as_mut().reset(Instant::now() + WEIGHED_EVERY);
        }
        self.received.poll_cut(context).map(RequestsEnd::Failed)
    }

    /// No request is under way.
    fn rest(&mut self) {
        self.late.take_if(|late| !late.as_mut().rest());
    }

    fn unreadable(&self, error: ReadError) -> RequestsEnd {
        self.metrics.streams_unreadable.inc();
        if let Some(limit) = over_limit(&error) {
            self.metrics.limit_hit(limit);
        }
        RequestsEnd::Failed(error.into())
    }
}

/// The single request of a `Fetch*` call.
pub(super) async fn read_one(mut requests: Requests, deadline: Instant) -> Result<Request, Status> {
    match timeout_at(deadline, requests.next()).await {
        Ok(Ok(request)) => Ok(request),
        Ok(Err(RequestsEnd::Failed(status))) => Err(status),
        Ok(Err(RequestsEnd::HalfClosed | RequestsEnd::Reset)) => {
            Err(Status::new(Code::InvalidArgument, "the call ended without a request"))
        }
        Err(_) => {
            requests.metrics.limit_hit(Limit::FirstRequestTimeout);
            Err(Status::new(Code::DeadlineExceeded, "no request arrived in time"))
        }
    }
}

/// The limit that an unreadable request passed, if a limit is the reason.
pub(super) fn over_limit(error: &ReadError) -> Option<Limit> {
    match error {
        ReadError::OverLimit { limit, .. } => configured(*limit),
        _ => None,
    }
}

/// The configured limit behind a bound of the reader.
fn configured(bound: Bound) -> Option<Limit> {
    match bound {
        Bound::RequestBytes => Some(Limit::RequestBytes),
        Bound::NodeBytes => Some(Limit::NodeBytes),
        Bound::NodeRetainedBytes => Some(Limit::NodeRetainedBytes),
        Bound::MetadataDepth => Some(Limit::MetadataDepth),
        Bound::Names | Bound::InitialVersions => Some(Limit::NamesPerRequest),
        // Versions and nonces have the limit of names.
        Bound::NameBytes | Bound::ResourceVersionBytes | Bound::VersionBytes | Bound::NonceBytes => {
            Some(Limit::NameBytes)
        }
        // The length of a type's name is not configurable, and the server reads no responses.
        Bound::TypeUrlBytes | Bound::ResponseBytes => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::api::downstream::{Codec, Message, Polled};
    use sluice_xds::SotwRequest;
    use tokio::time::advance;

    #[derive(Clone)]
    struct Silent;

    impl RelayStream for Silent {
        async fn request(&self, _: Request) -> Result<(), Status> {
            Ok(())
        }

        fn half_close(&self) {}

        fn fail(&self, _: Status) {}

        fn poll_message(&self, _: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
            Poll::Pending
        }

        async fn poll_once(
            &self,
            _: SotwRequest,
            _: Codec,
            _: std::time::Duration,
        ) -> Result<Polled, Status> {
            Ok(Polled::Unchanged)
        }

        fn has_answered(&self) -> bool {
            false
        }
    }

    fn future_size<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn every_bound_that_is_configured_has_a_limit_of_its_name() {
        for (bound, name) in [
            (Bound::RequestBytes, "request_bytes"),
            (Bound::NodeBytes, "node_bytes"),
            (Bound::NodeRetainedBytes, "node_retained_bytes"),
            (Bound::MetadataDepth, "metadata_depth"),
            (Bound::Names, "names_per_request"),
            (Bound::NameBytes, "name_bytes"),
        ] {
            assert_eq!(configured(bound).map(Limit::name), Some(name));
        }
        assert_eq!(configured(Bound::TypeUrlBytes), None);
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_has_its_own_time_although_they_share_a_timer() {
        const TIMEOUT: Duration = Duration::from_secs(10);
        let mut late = Box::pin(Late::new(TIMEOUT));
        // The first request is whole after 9 s, and the next one begins at once.
        let steps =
            [(9, false, true), (0, false, false), (5, false, false), (4, false, false), (2, true, false)];
        for (seconds, is_late, is_whole) in steps {
            advance(Duration::from_secs(seconds)).await;
            let is_ready =
                poll_fn(|context| Poll::Ready(late.as_mut().poll(TIMEOUT, context).is_ready())).await;
            assert_eq!(is_ready, is_late, "after {seconds} s more");
            if is_whole {
                assert!(late.as_mut().rest(), "the timer goes on");
            }
        }
        assert!(!late.as_mut().rest(), "the timer is over");
        // A shorter timeout comes into force.
        let mut late = Box::pin(Late::new(TIMEOUT));
        let mut is_late = async |timeout| {
            poll_fn(|context| Poll::Ready(late.as_mut().poll(timeout, context).is_ready())).await
        };
        assert!(!is_late(TIMEOUT).await);
        advance(TIMEOUT * 3 / 4).await;
        assert!(is_late(TIMEOUT / 2).await);
    }

    #[test]
    fn a_stream_costs_little_to_read() {
        let size = future_size(read_requests::<Silent>);
        assert!(size <= 768, "the future has {size} bytes");
    }
}
