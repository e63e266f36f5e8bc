//! The task that reads the requests of one stream.
//!
//! It is a task of its own because a client whose responses are blocked must still be read (FLW-3), and because
//! small frames left unread cost it the connection (`limits.md` A §6).

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::task::coop;
use tokio::time::{Instant, timeout_at};

use super::metrics::ServerMetrics;
use crate::driver::handle::RelayStream;
use crate::wire::{ReadError, RequestReader};
use crate::xds::{Code, Request, Status};

/// Why no more requests come.
enum End {
    HalfClosed,
    /// Reset, or the connection is gone: there is nobody to tell.
    Reset,
    Failed(Status),
}

/// Hands the requests of `body` to `stream`, in arrival order (STR-14), until one side ends.
pub(super) fn read_requests<S: RelayStream>(
    body: Incoming,
    reader: RequestReader,
    stream: S,
    first_request_deadline: Instant,
    metrics: Arc<ServerMetrics>,
) -> impl Future<Output = ()> + Send {
    // Built outside the future, which would otherwise keep room for the arguments as well.
    let mut requests = Requests { body, reader, metrics };
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
    let Ok(first) = timeout_at(first_request_deadline, requests.next()).await else {
        requests.metrics.streams_without_request.increment();
        // Not UNAVAILABLE: the fault is the client's, and dashboards shouldn't blame the server. Clients retry both
        // alike, with back-off.
        return Err(End::Failed(Status::new(Code::DeadlineExceeded, "no request came in time")));
    };
    stream.request(first?).await.map_err(End::Failed)?;
    loop {
        let request = requests.next().await?;
        stream.request(request).await.map_err(End::Failed)?;
    }
}

struct Requests {
    body: Incoming,
    reader: RequestReader,
    metrics: Arc<ServerMetrics>,
}

impl Requests {
    async fn next(&mut self) -> Result<Request, End> {
        loop {
            // Neither the body nor the stream need ever be pending; a busy client must not keep its thread.
            coop::consume_budget().await;
            if let Some(request) = self.reader.next() {
                let request = request.map_err(|error| self.unreadable(error))?;
                self.metrics.requests.increment();
                return Ok(request);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.metrics.request_bytes.add(data.len() as u64);
                        self.reader.push(data);
                    }
                }
                Some(Err(_)) => return Err(End::Reset),
                None => {
                    self.reader.finish().map_err(|error| self.unreadable(error))?;
                    return Err(End::HalfClosed);
                }
            }
        }
    }

    fn unreadable(&self, error: ReadError) -> End {
        self.metrics.streams_unreadable.increment();
        End::Failed(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::handle::Message;
    use std::task::{Context, Poll};

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

        fn has_answered(&self) -> bool {
            false
        }
    }

    fn future_size<A, B, C, D, E, F>(_: impl Fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_stream_costs_little_to_read() {
        let size = future_size(read_requests::<Silent>);
        assert!(size <= 768, "the future has {size} bytes");
    }
}
