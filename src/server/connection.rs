//! The life of one connection: preface, service, GOAWAY, end.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;
use super::gate::ConnectionPermit;
use super::limits::ServerLimits;
use super::listener::ListenerOptions;
use super::service::Service;
use super::streams::{StreamId, Streams};
use super::transport::{Protocol, Socket, Transport};
use crate::driver::handle::{ConnectionCut, Peer, Relay, RelayStream, Signal};
use crate::telemetry::Limit;
use crate::telemetry::metrics::DownstreamMetrics;
use crate::xds::{Code, Status};

/// An old connection that may not go yet is looked at again after its grace, but not more often than this.
const AGE_RECHECK_MIN: Duration = Duration::from_millis(100);

/// HTTP/2 itself refuses headers that are so many times as long as allowed, and tells nobody; up to there the service
/// looks, so that the refusal is counted and has a text.
const HEADER_LIST_MARGIN: u32 = 4;

/// hyper takes no less.
const HTTP1_BUFFER_BYTES_MIN: usize = 8192;

type Http1<R> = http1::Connection<TokioIo<Transport>, Service<R>>;
type Http2<R> = http2::Connection<TokioIo<Transport>, Service<R>, TokioExecutor>;

/// Why a connection is asked to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goaway {
    /// It never opened a stream.
    Idle,
    /// It reached its age (KAL-4).
    Age,
    /// The server drains (RLY-77).
    Drain,
}

/// Serves one connection until it is over; `draining` makes it go within the drain window.
pub(super) async fn run<R: Relay>(
    mut socket: Socket,
    peer: Peer,
    options: ListenerOptions,
    shared: Arc<Shared<R>>,
    draining: Arc<Signal>,
    _permit: ConnectionPermit,
) {
    let metrics = &*shared.metrics;
    let opened = tokio::select! {
        () = draining.raised() => return,
        opened = timeout(shared.limits.preface_timeout, socket.read_protocol()) => opened,
    };
    let streams = Streams::new(shared.metrics.clone(), shared.limits.streams_per_connection_max);
    let cut = peer.connection.clone();
    let service = Service { shared: shared.clone(), streams: streams.clone(), peer, options };
    match opened {
        Ok(Ok((Protocol::Http2, _))) => {
            let transport = Transport::http2(socket, shared.limits.control_frames_per_second_max);
            let http2 = http2_builder(&shared.limits).serve_connection(TokioIo::new(transport), service);
            live(pin!(http2), &streams, &shared, &draining, &cut).await;
        }
        // Boxed: few clients poll, and all connections would have room for it.
        Ok(Ok((Protocol::Http1, opening))) => {
            let transport = Transport::http1(socket, opening);
            let http1 = http1_builder(&shared.limits).serve_connection(TokioIo::new(transport), service);
            live(Box::pin(http1).as_mut(), &streams, &shared, &draining, &cut).await;
        }
        Ok(Ok((Protocol::Unknown, _)) | Err(_)) => {
            metrics.closed_not_http.inc();
        }
        Err(_) => {
            metrics.closed_preface_timeout.inc();
            metrics.limit_hit(Limit::PrefaceTimeout);
        }
    }
}

/// A connection of either protocol.
trait Connection: Future<Output = hyper::Result<()>> {
    /// No new requests: GOAWAY, or the end of keep-alive.
    fn shut_down(self: Pin<&mut Self>);

    /// A timeout that is not one of keep-alive PINGs means that no request came.
    const TIMEOUT_IS_IDLENESS: bool;
}

impl<R: Relay> Connection for Http2<R> {
    const TIMEOUT_IS_IDLENESS: bool = false;

    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<R: Relay> Connection for Http1<R> {
    const TIMEOUT_IS_IDLENESS: bool = true;

    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Serves a connection until it is over, and counts how it ended.
async fn live<R: Relay, C: Connection>(
    mut connection: Pin<&mut C>,
    streams: &Streams<R::Stream>,
    shared: &Shared<R>,
    draining: &Signal,
    cut: &ConnectionCut,
) {
    let life = async {
        match serve(connection.as_mut(), streams, shared, draining).await {
            Served::Ended(result) => Some(result),
            Served::Goaway(reason) => wind_down(connection.as_mut(), streams, shared, reason).await,
        }
    };
    let result = tokio::select! {
        biased;
        () = cut.requested() => None,
        result = life => result,
    };
    match result {
        Some(Ok(())) => {}
        Some(Err(error)) if C::TIMEOUT_IS_IDLENESS && error.is_timeout() => {
            shared.metrics.closed_idle.inc();
        }
        Some(Err(error)) => count_error(&error, &shared.metrics),
        None => {
            shared.metrics.closed_cut.inc();
        }
    }
}

fn http1_builder(limits: &ServerLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.http1_idle_timeout)
        .max_buf_size(HTTP1_BUFFER_BYTES_MIN.max(limits.header_list_bytes_max as usize));
    builder
}

fn http2_builder(limits: &ServerLimits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(limits.streams_per_connection_max)
        .max_local_error_reset_streams(limits.local_error_resets_max)
        .max_pending_accept_reset_streams(limits.pending_accept_resets_max)
        .max_header_list_size(limits.header_list_bytes_max.saturating_mul(HEADER_LIST_MARGIN))
        .adaptive_window(false)
        .initial_connection_window_size(limits.connection_window_bytes)
        .initial_stream_window_size(limits.stream_window_bytes)
        .max_send_buf_size(limits.send_queue_bytes)
        .keep_alive_interval(limits.keepalive_interval)
        .keep_alive_timeout(limits.keepalive_timeout);
    builder
}

enum Served {
    /// By the peer, or an error.
    Ended(hyper::Result<()>),
    Goaway(Goaway),
}

/// Serves until the connection ends or has a reason to go.
async fn serve<R: Relay, C: Connection>(
    mut connection: Pin<&mut C>,
    streams: &Streams<R::Stream>,
    shared: &Shared<R>,
    draining: &Signal,
) -> Served {
    let start = Instant::now();
    let old = shared.limits.draw_connection_age(fastrand::f64()).map(|age| start + age);
    let used_by = start + shared.limits.first_request_timeout;
    // `None`: nothing is left to check.
    let mut check_at = Some(old.map_or(used_by, |old| old.min(used_by)));
    let mut check = pin!(sleep_until(used_by));
    let mut draining = pin!(draining.raised());
    loop {
        if let Some(at) = check_at {
            check.as_mut().reset(at);
        }
        tokio::select! {
            biased;
            () = &mut draining => return Served::Goaway(Goaway::Drain),
            result = connection.as_mut() => return Served::Ended(result),
            () = &mut check, if check_at.is_some() => {}
        }
        let now = Instant::now();
        if !streams.was_used() {
            return Served::Goaway(Goaway::Idle);
        }
        check_at = match old {
            Some(old) if now >= old && streams.has_unanswered() => {
                // A client whose stream is closed before the first response takes the server for unreachable (KAL-4).
                shared.metrics.age_exemptions.inc();
                Some(now + shared.limits.connection_age_grace.max(AGE_RECHECK_MIN))
            }
            Some(old) if now >= old => return Served::Goaway(Goaway::Age),
            later => later,
        };
    }
}

/// GOAWAY, then the end of each stream at a moment of its own, then the cut. `None` if it came to the cut.
async fn wind_down<R: Relay, C: Connection>(
    mut connection: Pin<&mut C>,
    streams: &Streams<R::Stream>,
    shared: &Shared<R>,
    reason: Goaway,
) -> Option<hyper::Result<()>> {
    let (window, counter) = match reason {
        Goaway::Idle => (shared.limits.preface_timeout, &shared.metrics.goaways_idle),
        Goaway::Age => (shared.limits.connection_age_grace, &shared.metrics.goaways_age),
        Goaway::Drain => (shared.limits.drain_window, &shared.metrics.goaways_drain),
    };
    counter.inc();
    match reason {
        Goaway::Drain => streams.refuse_new(),
        Goaway::Idle => shared.metrics.limit_hit(Limit::FirstRequestTimeout),
        Goaway::Age => {}
    }
    connection.as_mut().shut_down();

    let mut endings = Endings::plan(streams, reason, Instant::now(), window);
    loop {
        let next = endings.next();
        tokio::select! {
            biased;
            result = connection.as_mut() => return Some(result),
            () = sleep_until(next) => {
                if endings.end_due(streams, Instant::now()) == Progress::Over {
                    return None;
                }
            }
        }
    }
}

/// When to end which stream of a connection that goes.
struct Endings {
    /// The streams with their moments, the next one last.
    planned: Vec<(Instant, StreamId)>,
    /// What is left then, e.g. streams opened before the client saw the GOAWAY, is ended.
    end_all: Instant,
    all_ended: bool,
    cut: Instant,
    status: Status,
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Going,
    Over,
}

impl Endings {
    /// Streams that have answered end spread over the window, so that their clients don't all come back at once;
    /// their last tenth is for what is still being written. Streams without any response end at once when the server
    /// drains, as nobody will answer them (RLY-77).
    fn plan<S: RelayStream>(streams: &Streams<S>, reason: Goaway, now: Instant, window: Duration) -> Self {
        let flush = window / 10;
        let end_all = now + (window - flush);
        let mut planned = Vec::new();
        for (id, stream) in streams.all() {
            let at = match (reason, stream.has_answered()) {
                (Goaway::Drain, false) => now,
                (_, false) => end_all,
                (_, true) => now + (window - flush).mul_f64(fastrand::f64()),
            };
            planned.push((at, id));
        }
        planned.sort_unstable_by(|a, b| b.cmp(a));
        let text = match reason {
            Goaway::Idle => "the connection was idle",
            Goaway::Age => "the connection is old",
            Goaway::Drain => "the server is draining",
        };
        let status = Status::new(Code::Unavailable, text);
        // A connection without streams has nothing to write but GOAWAY. What keeps it open is a peer that doesn't answer,
        // or one that watches the health, which never ends.
        let is_brief = reason == Goaway::Drain && planned.is_empty();
        let cut = now + if is_brief { flush } else { window };
        Endings { planned, end_all, all_ended: false, cut, status }
    }

    /// When [`Endings::end_due`] is to be called.
    fn next(&self) -> Instant {
        let ending = match self.planned.last() {
            Some((at, _)) => *at,
            None if self.all_ended => self.cut,
            None => self.end_all,
        };
        ending.min(self.cut)
    }

    fn end_due<S: RelayStream>(&mut self, streams: &Streams<S>, now: Instant) -> Progress {
        if now >= self.cut {
            return Progress::Over;
        }
        while let Some((_, id)) = self.planned.pop_if(|(at, _)| *at <= now) {
            if let Some(stream) = streams.get(id) {
                stream.fail(self.status.clone());
            }
        }
        if now >= self.end_all && !self.all_ended {
            self.all_ended = true;
            for (_, stream) in streams.all() {
                stream.fail(self.status.clone());
            }
        }
        Progress::Going
    }
}

/// hyper gives the transport's errors as they were, and those of HTTP/2 as h2's.
fn count_error(error: &hyper::Error, metrics: &DownstreamMetrics) {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let h2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    let is_flood = io.is_some_and(|io| io.kind() == io::ErrorKind::QuotaExceeded);
    let is_abuse = h2.is_some_and(|h2| h2.is_library() && h2.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM));
    if is_flood {
        metrics.closed_control_flood.inc();
        metrics.limit_hit(Limit::ControlFrames);
    } else if is_abuse {
        metrics.goaways_abuse.inc();
        metrics.limit_hit(Limit::Http2Abuse);
    } else if error.is_timeout() {
        metrics.closed_keepalive.inc();
        metrics.limit_hit(Limit::KeepaliveTimeout);
    } else {
        metrics.closed_error.inc();
    }
    tracing::debug!(%error, "connection ended");
}
