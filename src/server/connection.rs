//! The life of one connection: preface, service, GOAWAY, end.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;
use super::emptying::Departure;
use super::gate::ConnectionPermit;
use super::handshake::Security;
use super::handshake::certificate::{ClientLeaf, LeafEnd};
use super::http1;
use super::http2;
use super::listener::ListenerOptions;
use super::service::Service;
use super::socket::Plain;
use super::streams::{StreamId, Streams};
use super::transport::{Protocol, Socket, Transport};
use crate::driver::api::downstream::{ConnectionCut, OpenStreams, Peer, RelayStream, Signal};
use crate::setting::InForce;
use crate::telemetry::Limit;
use crate::telemetry::metrics::DownstreamMetrics;
use crate::xds::{Code, Status};

/// An old connection that may not close yet is checked again after its grace, and at least this much later.
const AGE_RECHECK_MIN: Duration = Duration::from_millis(100);

/// The first byte of a client that speaks TLS.
const TLS_HANDSHAKE: u8 = 0x16;

/// The reason for a GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goaway {
    /// The connection never opened a stream.
    Idle,
    /// The connection reached its age (KAL-4).
    Age,
    /// The server drains (RLY-77).
    Drain,
    /// An operator empties the relay (HND-9).
    Emptied { window: Duration },
    /// The certificate of the client does not carry the connection any more (CRT-8, CRT-9).
    Certificate(LeafEnd),
}

impl Goaway {
    /// Whether the process or the relay leaves, and not this connection alone.
    fn is_departure(self) -> bool {
        matches!(self, Goaway::Drain | Goaway::Emptied { .. })
    }
}

/// Serves one connection until its end. After its departure the connection ends within the window.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would store each argument twice for the life of its future"
)]
pub(super) fn run<R: OpenStreams>(
    socket: Plain,
    security: Security,
    mut peer: Peer,
    options: InForce<ListenerOptions>,
    shared: Arc<Shared<R>>,
    departure: Arc<Departure>,
    mut permit: ConnectionPermit,
) -> impl Future<Output = ()> + Send {
    async move {
        // HND-1: a connection whose client is on its way opens even in a drain, and ends with a GOAWAY: a close before its
        // first bytes are read would be a reset.
        let Some((mut socket, leaf)) =
            secure(socket, &security, &mut peer, &shared, &departure.process_end).await
        else {
            return;
        };
        // Held until the end of the connection.
        if permit.identify(&peer.identity).is_err() {
            return;
        }
        let Some((protocol, opening)) = open(&mut socket, &shared, &departure.process_end).await else {
            return;
        };
        // A client that closed before its first byte disagrees with nothing.
        if !opening.is_empty() && !socket.agrees_with(protocol) {
            shared.metrics.closed_alpn.inc();
            return;
        }
        let streams = Streams::new(shared.metrics.clone(), shared.limits.get().streams_per_connection);
        let cut = peer.connection.clone();
        let until = Until { departure, cut, leaf, listener: peer.listener.clone() };
        let service = Service { shared: shared.clone(), streams: streams.clone(), peer, options };
        match protocol {
            Protocol::Http2 => {
                // Boxed, like its result: the task lives as long as the connection, and would reserve memory for both.
                match Box::pin(http2::open(socket, service)).await {
                    Ok(mut http2) => live(http2.as_mut(), &streams, &shared, &until).await,
                    Err(fault) => fault.count(&shared.metrics),
                }
            }
            // Boxed: few clients poll, and every connection would reserve memory for HTTP/1.1.
            Protocol::Http1 => {
                let transport = Transport::http1(socket, opening, shared.limits.get().http1_write_timeout);
                let http1 = http1::open(transport, service, &shared.limits.get());
                live(Box::pin(http1).as_mut(), &streams, &shared, &until).await;
            }
            Protocol::Unknown => match &security {
                Security::Plaintext(warnings) if opening.first() == Some(&TLS_HANDSHAKE) => {
                    shared.metrics.closed_tls_on_plaintext.inc();
                    warnings.tls_on_plaintext(&until.listener);
                }
                _ => {
                    shared.metrics.closed_not_http.inc();
                }
            },
        }
    }
}

/// The reasons for the end of a connection, besides its peer.
struct Until {
    departure: Arc<Departure>,
    cut: ConnectionCut,
    /// The certificate of the client, if the client showed one. Boxed: most connections have none.
    leaf: Option<Box<ClientLeaf>>,
    listener: Arc<str>,
}

impl Until {
    /// Resolves when the client's certificate does not carry the connection any more; never without one.
    async fn leaf_end(&self) -> LeafEnd {
        match &self.leaf {
            Some(leaf) => Box::pin(leaf.end(&self.listener)).await,
            None => std::future::pending().await,
        }
    }
}

/// Performs the TLS handshake, if the listener speaks TLS, and gives the peer its proved identity. `None` if the
/// handshake failed, or the server drains.
async fn secure<R>(
    socket: Plain,
    security: &Security,
    peer: &mut Peer,
    shared: &Shared<R>,
    draining: &Signal,
) -> Option<(Socket, Option<Box<ClientLeaf>>)> {
    let Security::Tls(tls) = security else { return Some((Socket::Plain(socket), None)) };
    let accepted = tokio::select! {
        () = draining.raised() => return None,
        accepted = shared.handshakes.accept(socket, tls, &peer.listener, peer.address) => accepted,
    };
    let (stream, proved) = accepted?;
    let leaf = proved.map(|proved| {
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let leaf = ClientLeaf::new(chain, &proved, tls.clone(), shared.metrics.tls.clone());
        peer.identity = Arc::new(proved.identity);
        Box::new(leaf)
    });
    Some((Socket::Tls(stream), leaf))
}

/// The protocol of the client; `None` if the client takes longer than the timeout to show its protocol, or the server
/// drains.
async fn open<R>(socket: &mut Socket, shared: &Shared<R>, draining: &Signal) -> Option<(Protocol, Bytes)> {
    let opened = tokio::select! {
        () = draining.raised() => return None,
        opened = timeout(shared.limits.get().preface_timeout, socket.read_protocol()) => opened,
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
    /// Whether a request on its way is answered after [`Connection::shut_down`].
    const ANSWERS_LATE: bool;

    /// Serves until the end of the connection.
    fn poll_end(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Fault>>;

    /// Refuses new requests: by GOAWAY, or by the end of keep-alive.
    fn shut_down(self: Pin<&mut Self>);
}

/// The reason for the end of a connection, other than a normal close by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No request came for a long time.
    Idle,
    /// The peer did not read its response (HTTP/1.1).
    SlowReader,
    /// The peer gave no sign of life.
    KeepaliveTimeout,
    /// The peer sent too many control frames.
    ControlFlood,
    /// The peer passed a limit of HTTP/2 itself, and was told so by a GOAWAY.
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
    /// Whether the relay ends the connection, because the peer passed a limit.
    fn is_limit(&self) -> bool {
        matches!(self, Fault::SlowReader | Fault::ControlFlood | Fault::Abuse)
    }

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

/// Serves a connection until its end, and counts the reason for the end.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would store each argument twice for the life of its future"
)]
fn live<'a, R: OpenStreams, C: Connection>(
    mut connection: Pin<&'a mut C>,
    streams: &'a Streams<R::Stream>,
    shared: &'a Shared<R>,
    until: &'a Until,
) -> impl Future<Output = ()> + use<'a, R, C> {
    async move {
        let life = async {
            match serve(connection.as_mut(), streams, shared, until).await {
                Served::Ended(result) => Some(result),
                Served::Goaway(reason) => {
                    until.cut.leave();
                    wind_down(connection.as_mut(), streams, shared, &until.departure.process_end, reason)
                        .await
                }
            }
        };
        let result = tokio::select! {
            biased;
            () = until.cut.requested() => None,
            result = life => result,
        };
        match result {
            Some(Ok(())) => {}
            Some(Err(fault)) => {
                if fault.is_limit() {
                    until.cut.leave();
                }
                fault.count(&shared.metrics);
            }
            None => {
                shared.metrics.closed_cut.inc();
            }
        }
    }
}

enum Served {
    /// Ended by the peer, or by an error.
    Ended(Result<(), Fault>),
    Goaway(Goaway),
}

/// Serves until the connection ends or has a reason to close.
fn serve<'a, R: OpenStreams, C: Connection>(
    mut connection: Pin<&'a mut C>,
    streams: &'a Streams<R::Stream>,
    shared: &'a Shared<R>,
    until: &'a Until,
) -> impl Future<Output = Served> + use<'a, R, C> {
    let start = Instant::now();
    let old = shared.limits.get().draw_connection_age(fastrand::f64()).map(|age| start + age);
    let used_by = start + shared.limits.get().first_request_timeout;
    // `None` if no check is left.
    let mut check_at = Some(old.map_or(used_by, |old| old.min(used_by)));
    async move {
        let mut check = pin!(sleep_until(start));
        let mut leaving = pin!(until.departure.leave.raised());
        let mut leaf_end = pin!(until.leaf_end());
        loop {
            if let Some(at) = check_at {
                check.as_mut().reset(at);
            }
            tokio::select! {
                biased;
                () = &mut leaving => {
                    let window = until.departure.operators_window();
                    return Served::Goaway(window.map_or(Goaway::Drain, |window| Goaway::Emptied { window }));
                }
                result = poll_fn(|context| connection.as_mut().poll_end(context)) => {
                    return Served::Ended(result);
                }
                end = &mut leaf_end, if until.leaf.is_some() => return Served::Goaway(Goaway::Certificate(end)),
                () = &mut check, if check_at.is_some() => {}
            }
            let now = Instant::now();
            if !streams.was_used() {
                return Served::Goaway(Goaway::Idle);
            }
            check_at = match old {
                Some(old) if now >= old && streams.has_unanswered() => {
                    // A client considers the server unreachable if its stream ends before the first response (KAL-4).
                    shared.metrics.age_exemptions.inc();
                    Some(now + shared.limits.get().connection_age_grace.max(AGE_RECHECK_MIN))
                }
                Some(old) if now >= old => return Served::Goaway(Goaway::Age),
                later => later,
            };
        }
    }
}

/// Sends GOAWAY, ends each stream at its own moment, then cuts the connection. `None` means that the cut was necessary.
async fn wind_down<R: OpenStreams, C: Connection>(
    mut connection: Pin<&mut C>,
    streams: &Streams<R::Stream>,
    shared: &Shared<R>,
    process_end: &Signal,
    reason: Goaway,
) -> Option<Result<(), Fault>> {
    let mut reason = reason;
    // HND-1: a connection that has just opened is not closed before the answer to its first request.
    let mut waits = !C::ANSWERS_LATE && reason.is_departure() && !streams.was_used();
    let mut endings = announce(streams, shared, reason, waits, None);
    if !waits {
        connection.as_mut().shut_down();
    }
    let mut serve = |context: &mut Context<'_>| {
        let end = connection.as_mut().poll_end(context);
        if end.is_ready() || !waits || !streams.was_used() {
            return end;
        }
        waits = false;
        connection.as_mut().shut_down();
        connection.as_mut().poll_end(context)
    };
    let mut process_end = pin!(process_end.raised());
    loop {
        let next = endings.next();
        tokio::select! {
            biased;
            result = poll_fn(&mut serve) => return Some(result),
            // No connection outlives the server, even with time left (RLY-77).
            () = &mut process_end, if reason != Goaway::Drain => {
                reason = Goaway::Drain;
                endings = announce(streams, shared, reason, false, Some(endings.cut));
            }
            () = sleep_until(next) => {
                if endings.end_due(streams, Instant::now()) == Progress::Over {
                    return None;
                }
            }
        }
    }
}

/// Counts the reason for the close, and plans the end of the streams. `waits`: a first request is to come. `cut` is the
/// time of an earlier planned cut.
fn announce<R: OpenStreams>(
    streams: &Streams<R::Stream>,
    shared: &Shared<R>,
    reason: Goaway,
    waits: bool,
    cut: Option<Instant>,
) -> Endings {
    let (window, counter) = match reason {
        Goaway::Idle => (shared.limits.get().preface_timeout, &shared.metrics.goaways_idle),
        Goaway::Age => (shared.limits.get().connection_age_grace, &shared.metrics.goaways_age),
        Goaway::Drain => (shared.limits.get().drain_window, &shared.metrics.goaways_drain),
        Goaway::Emptied { window } => (window, &shared.metrics.goaways_drain),
        Goaway::Certificate(LeafEnd::Expires { window }) => {
            (window.min(shared.limits.get().connection_age_grace), &shared.metrics.goaways_certificate_expiry)
        }
        Goaway::Certificate(LeafEnd::Refused { window }) => {
            (window, &shared.metrics.goaways_certificate_refused)
        }
    };
    counter.inc();
    match reason {
        Goaway::Emptied { .. } if waits => {}
        Goaway::Drain | Goaway::Emptied { .. } => streams.refuse_new(),
        Goaway::Idle => shared.metrics.limit_hit(Limit::FirstRequestTimeout),
        Goaway::Age | Goaway::Certificate(_) => {}
    }
    streams.go();
    let now = Instant::now();
    let window = cut.map_or(window, |cut| window.min(cut.saturating_duration_since(now)));
    Endings::plan(streams, reason, waits, now, window)
}

/// The planned ends of the streams of a closing connection.
struct Endings {
    /// The streams with their moments, the next moment last.
    planned: Vec<(Instant, StreamId)>,
    /// The time that ends all remaining streams, e.g. streams opened before the client saw the GOAWAY.
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
    /// Spreads the ends of answered streams over the window, so that their clients don't all return at once. The last
    /// tenth of the window is left for messages that are being written. In a drain, streams without any response end at
    /// once, because no answer will come (RLY-77).
    fn plan<S: RelayStream>(
        streams: &Streams<S>,
        reason: Goaway,
        waits: bool,
        now: Instant,
        window: Duration,
    ) -> Self {
        let flush = window / 10;
        let end_all = now + (window - flush);
        let mut planned = Vec::new();
        for (id, stream) in streams.all() {
            let at = match (reason, stream.has_answered()) {
                (_, false) if reason.is_departure() => now,
                (_, false) => end_all,
                (_, true) => now + (window - flush).mul_f64(fastrand::f64()),
            };
            planned.push((at, id));
        }
        planned.sort_unstable_by(|a, b| b.cmp(a));
        let text = match reason {
            Goaway::Idle => "the connection was idle",
            Goaway::Age => "the connection reached its maximum age",
            Goaway::Drain | Goaway::Emptied { .. } => "the server is draining",
            Goaway::Certificate(LeafEnd::Expires { .. }) => "the client certificate expires",
            Goaway::Certificate(LeafEnd::Refused { .. }) => "the client certificate is not accepted any more",
        };
        let status = Status::new(Code::Unavailable, text);
        // A connection without streams has only the GOAWAY to write. Only a peer that doesn't answer, or an endless
        // health watch, keeps the connection open.
        let is_brief = reason.is_departure() && planned.is_empty() && !waits;
        let cut = now + if is_brief { flush } else { window };
        Endings { planned, end_all, all_ended: false, cut, status }
    }

    /// The time of the next call of [`Endings::end_due`].
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
