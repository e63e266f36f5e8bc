//! Reads the requests of one stream.
//!
//! Reading goes on beside the responses: a client with blocked responses must still be read (FLW-3). Small unread
//! frames would cost the client its connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt;
use h2::RecvStream;
use tokio::task::coop;
use tokio::time::{Instant, Sleep, sleep, timeout_at};

use super::body::poll_data;
use super::limits::ServerLimits;
use crate::driver::api::downstream::{Charge, ConnectionCut, RelayStream};
use crate::setting::InForce;
use crate::telemetry::Limit;
use crate::telemetry::metrics::DownstreamMetrics;
use crate::wire::{Bound, ReadError, RequestReader};
use crate::xds::{Code, Request, Status};

/// The reason for the end of the requests.
enum End {
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
    /// The charge for the received part of the current request, and for the request that is being handed over.
    charge: Charge,
    /// From the first byte of a request to its last.
    limits: InForce<ServerLimits>,
    /// Runs while the rest of a request is outstanding.
    late: Option<Pin<Box<Sleep>>>,
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
            End::HalfClosed => stream.half_close(),
            End::Reset => {}
            End::Failed(status) => stream.fail(status),
        }
    }
}

async fn pump<S: RelayStream>(
    requests: &mut Requests,
    stream: &S,
    first_request_deadline: Instant,
) -> Result<Infallible, End> {
    let mut is_first = true;
    loop {
        let request = match std::mem::take(&mut is_first) {
            // Boxed: used once per stream, and otherwise part of every stream's future.
            true => timeout_at(first_request_deadline, requests.next()).boxed().await.unwrap_or_else(|_| {
                requests.metrics.limit_hit(Limit::FirstRequestTimeout);
                // Not UNAVAILABLE: the client is at fault, and dashboards shouldn't blame the server. Clients retry
                // both alike, with back-off.
                Err(End::Failed(Status::new(Code::DeadlineExceeded, "no request arrived in time")))
            }),
            false => requests.next().await,
        }?;
        stream.request(request).await.map_err(End::Failed)?;
    }
}

impl Requests {
    pub(super) fn new(
        body: RecvStream,
        reader: RequestReader,
        connection: &ConnectionCut,
        limits: InForce<ServerLimits>,
        metrics: Arc<DownstreamMetrics>,
    ) -> Requests {
        let charge = Charge::new(connection);
        Requests { body, reader, metrics, charge, limits, late: None }
    }

    async fn next(&mut self) -> Result<Request, End> {
        loop {
            // A busy client could keep body and stream always ready; the budget makes the task yield its thread.
            coop::consume_budget().await;
            self.reader.configure(self.limits.get().requests);
            if let Some(request) = self.reader.next() {
                self.late = None;
                return request.map_err(|error| self.unreadable(error));
            }
            self.charge.set(self.reader.held_bytes()).map_err(|over_budget| {
                self.metrics.limit_hit(Limit::ConnectionBytes);
                End::Failed(over_budget)
            })?;
            match poll_fn(|context| self.poll_data(context)).await? {
                Some(Ok(data)) => {
                    self.metrics.request_bytes.inc_by(data.len() as u64);
                    self.reader.push(data);
                }
                Some(Err(_)) => return Err(End::Reset),
                None => {
                    self.reader.finish().map_err(|error| self.unreadable(error))?;
                    return Err(End::HalfClosed);
                }
            }
        }
    }

    /// The next bytes. An error if the rest of a request is late: the received part occupies memory until then.
    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Result<Bytes, h2::Error>>, End>> {
        let data = poll_data(&mut self.body, context);
        if !self.reader.is_within_message() {
            self.late = None;
        } else if data.is_pending() {
            let timeout = self.limits.get().request_timeout;
            let late = self.late.get_or_insert_with(|| Box::pin(sleep(timeout)));
            ready!(late.as_mut().poll(context));
            self.metrics.limit_hit(Limit::RequestTimeout);
            let text =
                format!("a request was incomplete after {timeout:?}; the limit is limits.request_timeout");
            return Poll::Ready(Err(End::Failed(Status::new(Code::DeadlineExceeded, text))));
        }
        data.map(Ok)
    }

    fn unreadable(&self, error: ReadError) -> End {
        self.metrics.streams_unreadable.inc();
        if let Some(limit) = over_limit(&error) {
            self.metrics.limit_hit(limit);
        }
        End::Failed(error.into())
    }
}

/// The single request of a `Fetch*` call.
pub(super) async fn read_one(mut requests: Requests, deadline: Instant) -> Result<Request, Status> {
    match timeout_at(deadline, requests.next()).await {
        Ok(Ok(request)) => Ok(request),
        Ok(Err(End::Failed(status))) => Err(status),
        Ok(Err(End::HalfClosed | End::Reset)) => {
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
    use crate::driver::api::downstream::{Form, Message, Polled};
    use crate::xds::SotwRequest;

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

        async fn poll_once(&self, _: SotwRequest, _: Form, _: std::time::Duration) -> Result<Polled, Status> {
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

    #[test]
    fn a_stream_costs_little_to_read() {
        let size = future_size(read_requests::<Silent>);
        assert!(size <= 768, "the future has {size} bytes");
    }
}
