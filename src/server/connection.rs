//! The life of one connection: preface, service, GOAWAY, end.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;
use super::gate::ConnectionPermit;
use super::http2;
use super::limits::ServerLimits;
use super::listener::ListenerOptions;
use super::service::Service;
use super::streams::{StreamId, Streams};
use super::transport::{Protocol, Socket, Transport};
use crate::driver::api::downstream::{ConnectionCut, Peer, Relay, RelayStream, Signal};
use crate::telemetry::Limit;
use crate::telemetry::metrics::DownstreamMetrics;
use crate::xds::{Code, Status};

/// An old connection that may not go yet is looked at again after its grace, but not more often than this.
const AGE_RECHECK_MIN: Duration = Duration::from_millis(100);

/// hyper takes no less.
const HTTP1_BUFFER_BYTES_MIN: usize = 8192;

type Http1<R> = http1::Connection<TokioIo<Transport>, Service<R>>;

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
#[expect(
    clippy::manual_async_fn,
    reason = "it would keep a second place for each argument as long as it lasts"
)]
pub(super) fn run<R: Relay>(
    mut socket: Socket,
    peer: Peer,
    options: ListenerOptions,
    shared: Arc<Shared<R>>,
    draining: Arc<Signal>,
    permit: ConnectionPermit,
) -> impl Future<Output = ()> + Send {
    async move {
        // Until the end.
        let _permit = &permit;
        let Some((protocol, opening)) = open(&mut socket, &shared, &draining).await else { return };
        let streams = Streams::new(shared.metrics.clone(), shared.limits.streams_per_connection_max);
        let cut = peer.connection.clone();
        let service = Service { shared: shared.clone(), streams: streams.clone(), peer, options };
        match protocol {
            Protocol::Http2 => {
                // Boxed, like what it gives: the task lasts as long as the connection, and would keep the room for both.
                match Box::pin(http2::open(socket, service)).await {
                    Ok(mut http2) => live(http2.as_mut(), &streams, &shared, &draining, &cut).await,
                    Err(fault) => fault.count(&shared.metrics),
                }
            }
            // Boxed: few clients poll, and all connections would have room for it.
            Protocol::Http1 => {
                let transport = Transport::http1(socket, opening, shared.limits.http1_write_timeout);
                let http1 = http1_builder(&shared.limits).serve_connection(TokioIo::new(transport), service);
                live(Box::pin(http1).as_mut(), &streams, &shared, &draining, &cut).await;
            }
            Protocol::Unknown => {
                shared.metrics.closed_not_http.inc();
            }
        }
    }
}

/// What the client speaks, if it says so in time.
async fn open<R>(socket: &mut Socket, shared: &Shared<R>, draining: &Signal) -> Option<(Protocol, Bytes)> {
    let opened = tokio::select! {
        () = draining.raised() => return None,
        opened = timeout(shared.limits.preface_timeout, socket.read_protocol()) => opened,
    };
    match opened {
        Ok(Ok(opened)) => Some(opened),
        Ok(Err(_)) => Some((Protocol::Unknown, Bytes::new())),
        Err(_) => {
            shared.metrics.closed_preface_timeout.inc();
            shared.metrics.limit_hit(Limit::PrefaceTimeout);
            None
        }
    }
}

/// A connection of either protocol.
pub(super) trait Connection {
    /// Serves until it is over.
    fn poll_end(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Fault>>;

    /// No new requests: GOAWAY, or the end of keep-alive.
    fn shut_down(self: Pin<&mut Self>);
}

impl<R: Relay> Connection for Http1<R> {
    fn poll_end(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.poll(context).map_err(|error| {
            tracing::debug!(%error, "connection ended");
            let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            let is_slow = io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut);
            match (is_slow, error.is_timeout()) {
                (true, _) => Fault::SlowReader,
                // hyper has no other: no request came.
                (_, true) => Fault::Idle,
                _ => Fault::Other,
            }
        })
    }

    fn shut_down(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Why a connection ended that its peer did not just close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No request came on it for long.
    Idle,
    /// The peer did not take its answer (HTTP/1.1).
    SlowReader,
    /// The peer gave no sign of life.
    KeepaliveTimeout,
    /// Too many control frames.
    ControlFlood,
    /// HTTP/2 saw a limit of its own passed, and said so in a GOAWAY.
    Abuse,
    Other,
}

impl From<h2::Error> for Fault {
    fn from(error: h2::Error) -> Self {
        tracing::debug!(%error, "connection ended");
        let is_abuse = error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM);
        if is_abuse { Fault::Abuse } else { Fault::Other }
    }
}

impl Fault {
    fn count(self, metrics: &DownstreamMetrics) {
        let (ended, limit) = match self {
            Fault::Idle => (&metrics.closed_idle, None),
            Fault::KeepaliveTimeout => (&metrics.closed_keepalive, Some(Limit::KeepaliveTimeout)),
            Fault::ControlFlood => (&metrics.closed_control_flood, Some(Limit::ControlFrames)),
            Fault::Abuse => (&metrics.goaways_abuse, Some(Limit::Http2Abuse)),
            Fault::SlowReader => (&metrics.closed_error, Some(Limit::Http1Write)),
            Fault::Other => (&metrics.closed_error, None),
        };
        ended.inc();
        if let Some(limit) = limit {
            metrics.limit_hit(limit);
        }
    }
}

/// Serves a connection until it is over, and counts how it ended.
#[expect(
    clippy::manual_async_fn,
    reason = "it would keep a second place for each argument as long as it lasts"
)]
fn live<'a, R: Relay, C: Connection>(
    mut connection: Pin<&'a mut C>,
    streams: &'a Streams<R::Stream>,
    shared: &'a Shared<R>,
    draining: &'a Signal,
    cut: &'a ConnectionCut,
) -> impl Future<Output = ()> + use<'a, R, C> {
    async move {
        let life = async {
            match serve(connection.as_mut(), streams, shared, draining).await {
                Served::Ended(result) => Some(result),
                Served::Goaway(reason) => {
                    wind_down(connection.as_mut(), streams, shared, draining, reason).await
                }
            }
        };
        let result = tokio::select! {
            biased;
            () = cut.requested() => None,
            result = life => result,
        };
        match result {
            Some(Ok(())) => {}
            Some(Err(fault)) => fault.count(&shared.metrics),
            None => {
                shared.metrics.closed_cut.inc();
            }
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

enum Served {
    /// By the peer, or an error.
    Ended(Result<(), Fault>),
    Goaway(Goaway),
}

/// Serves until the connection ends or has a reason to go.
fn serve<'a, R: Relay, C: Connection>(
    mut connection: Pin<&'a mut C>,
    streams: &'a Streams<R::Stream>,
    shared: &'a Shared<R>,
    draining: &'a Signal,
) -> impl Future<Output = Served> + use<'a, R, C> {
    let start = Instant::now();
    let old = shared.limits.draw_connection_age(fastrand::f64()).map(|age| start + age);
    let used_by = start + shared.limits.first_request_timeout;
    // `None`: nothing is left to check.
    let mut check_at = Some(old.map_or(used_by, |old| old.min(used_by)));
    async move {
        let mut check = pin!(sleep_until(start));
        let mut draining = pin!(draining.raised());
        loop {
            if let Some(at) = check_at {
                check.as_mut().reset(at);
            }
            tokio::select! {
                biased;
                () = &mut draining => return Served::Goaway(Goaway::Drain),
                result = poll_fn(|context| connection.as_mut().poll_end(context)) => {
                    return Served::Ended(result);
                }
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
}

/// GOAWAY, then the end of each stream at a moment of its own, then the cut. `None` if it came to the cut.
async fn wind_down<R: Relay, C: Connection>(
    mut connection: Pin<&mut C>,
    streams: &Streams<R::Stream>,
    shared: &Shared<R>,
    draining: &Signal,
    reason: Goaway,
) -> Option<Result<(), Fault>> {
    let mut reason = reason;
    let mut endings = announce(streams, shared, reason, None);
    connection.as_mut().shut_down();
    let mut draining = pin!(draining.raised());
    loop {
        let next = endings.next();
        tokio::select! {
            biased;
            result = poll_fn(|context| connection.as_mut().poll_end(context)) => return Some(result),
            // Nobody stays longer than the server, whatever time there was before (RLY-77).
            () = &mut draining, if reason != Goaway::Drain => {
                reason = Goaway::Drain;
                endings = announce(streams, shared, reason, Some(endings.cut));
            }
            () = sleep_until(next) => {
                if endings.end_due(streams, Instant::now()) == Progress::Over {
                    return None;
                }
            }
        }
    }
}

/// Counts why a connection goes, and plans it. `cut`: when it was to be gone anyhow.
fn announce<R: Relay>(
    streams: &Streams<R::Stream>,
    shared: &Shared<R>,
    reason: Goaway,
    cut: Option<Instant>,
) -> Endings {
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
    streams.go();
    let now = Instant::now();
    let window = cut.map_or(window, |cut| window.min(cut.saturating_duration_since(now)));
    Endings::plan(streams, reason, now, window)
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
