//! The life of one connection: preface, service, GOAWAY, end.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;
use super::emptying::Departure;
use super::endings::{Endings, Goaway, Progress};
use super::gate::ConnectionPermit;
use super::handshake::certificate::{ClientLeaf, LeafEnd};
use super::handshake::{ListenerTls, Security};
use super::http::{ConnectionFault, HttpConnection};
use super::http1::{self, Http1};
use super::http2::{self, Http2};
use super::listener::ListenerOptions;
use super::service::Service;
use super::socket::Plain;
use super::streams::Streams;
use super::transport::{ClientProtocol, ClientSocket, HttpTransport};
use super::wakes::{Seldom, Wakes};
use crate::driver::api::downstream::{OpenStreams, Peer, Signal};
use crate::telemetry::Limit;
use sluice_setting::InForce;

/// An old connection that may not close yet is checked again after its grace, and at least this much later.
const AGE_RECHECK_MIN: Duration = Duration::from_millis(100);

/// The first byte of a client that speaks TLS.
const TLS_HANDSHAKE: u8 = 0x16;

/// Serves one connection until its end. After its departure the connection ends within the window.
pub(super) fn run<R: OpenStreams>(
    socket: Plain,
    security: Security,
    peer: Arc<Peer>,
    options: InForce<ListenerOptions>,
    shared: Arc<Shared<R>>,
    departure: Arc<Departure>,
    permit: ConnectionPermit,
) -> impl Future<Output = ()> + Send {
    // Boxed, and begun outside the task's future: the task lives as long as the connection, and would keep
    // room for each argument and each step.
    let opening = Box::pin(open(socket, security, peer, options, shared, departure, permit));
    async move {
        let Some((mut http, open)) = opening.await else { return };
        match &mut http {
            Http::Two(http2) => {
                live(http2.as_mut(), &open).await;
                let turn = http2.as_mut().take_turn();
                let _turn = if turn.is_some() { turn } else { open.shared.exit.turn().await };
                drop(http);
            }
            Http::One(http1) => live(http1.as_mut(), &open).await,
        }
    }
}

/// HTTP of a connection. Boxed, because both are large, and few clients poll.
enum Http<R: OpenStreams> {
    One(Pin<Box<Http1<R>>>),
    Two(Pin<Box<Http2<R>>>),
}

/// Opens a connection up to the first request. `None`: the connection has ended already, and was counted.
async fn open<R: OpenStreams>(
    socket: Plain,
    security: Security,
    mut peer: Arc<Peer>,
    options: InForce<ListenerOptions>,
    shared: Arc<Shared<R>>,
    departure: Arc<Departure>,
    mut permit: ConnectionPermit,
) -> Option<(Http<R>, ServedConnection<R>)> {
    // HND-1: a connection whose client is on its way opens even in a drain, and ends with a GOAWAY: a
    // close before its first bytes are read would be a reset.
    let (mut socket, leaf) = match &security {
        Security::Plaintext(_) => (ClientSocket::Plain(socket), None),
        // Boxed: the state of a handshake is large, and most connections have none.
        Security::Tls(tls) => {
            Box::pin(secure(socket, tls, &mut peer, &shared, &departure.process_end)).await?
        }
    };
    permit.identify(&peer.identity).ok()?;
    let (protocol, opening) = read_protocol(&mut socket, &shared, &departure.process_end).await?;
    // A client that closed before its first byte disagrees with nothing.
    if !opening.is_empty() && !socket.agrees_with(protocol) {
        shared.metrics.closed_alpn.inc();
        return None;
    }
    let max = shared.limits.get().streams_per_connection;
    let streams = Streams::new(shared.metrics.clone(), max, peer.clone());
    let open =
        ServedConnection { wakes: Wakes::new(), departure, leaf, peer, streams, shared, _permit: permit };
    let service = open.service(options);
    let http = match protocol {
        // Boxed: while the client is silent, the connection would have room for it.
        ClientProtocol::Http2 => match Box::pin(http2::open(socket, service, open.wakes.clone())).await {
            Ok(http2) => Http::Two(http2),
            Err(fault) => {
                fault.count(&open.shared.metrics);
                return None;
            }
        },
        ClientProtocol::Http1 => {
            let timeout = open.shared.limits.get().http1_write_timeout;
            let transport = HttpTransport::http1(socket, opening, timeout);
            Http::One(Box::pin(http1::open(transport, service, &open.shared.limits.get())))
        }
        ClientProtocol::Unknown => {
            match &security {
                Security::Plaintext(warnings) if opening.first() == Some(&TLS_HANDSHAKE) => {
                    open.shared.metrics.closed_tls_on_plaintext.inc();
                    warnings.tls_on_plaintext(&open.peer.listener);
                }
                _ => {
                    open.shared.metrics.closed_not_http.inc();
                }
            }
            return None;
        }
    };
    Some((http, open))
}

/// A served connection, beside HTTP. One struct: a function with the parts as arguments would store a
/// reference to each part in the task.
struct ServedConnection<R: OpenStreams> {
    wakes: Arc<Wakes>,
    departure: Arc<Departure>,
    /// The certificate of the client, if the client showed one. Boxed: most connections have none.
    leaf: Option<Box<ClientLeaf>>,
    peer: Arc<Peer>,
    streams: Arc<Streams<R::Stream>>,
    shared: Arc<Shared<R>>,
    /// Held until the end of the connection.
    _permit: ConnectionPermit,
}

impl<R: OpenStreams> ServedConnection<R> {
    fn service(&self, options: InForce<ListenerOptions>) -> Service<R> {
        let ServedConnection { shared, streams, peer, .. } = self;
        Service { shared: shared.clone(), streams: streams.clone(), peer: peer.clone(), options }
    }

    /// Resolves when the client's certificate does not carry the connection any more; never without one.
    async fn leaf_end(&self) -> LeafEnd {
        match &self.leaf {
            Some(leaf) => Box::pin(leaf.end(&self.peer.listener)).await,
            None => std::future::pending().await,
        }
    }
}

/// Performs the TLS handshake, and gives the peer its proved identity. `None` if the handshake failed, or the
/// server drains.
async fn secure<R>(
    socket: Plain,
    tls: &ListenerTls,
    peer: &mut Arc<Peer>,
    shared: &Shared<R>,
    draining: &Signal,
) -> Option<(ClientSocket, Option<Box<ClientLeaf>>)> {
    let accepted = tokio::select! {
        () = draining.raised() => return None,
        accepted = shared.handshakes.accept(socket, tls, &peer.listener, peer.address) => accepted,
    };
    let (stream, proved) = accepted?;
    let leaf = proved.map(|proved| {
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let leaf = ClientLeaf::new(chain, &proved, tls.clone(), shared.metrics.tls.clone());
        Arc::make_mut(peer).identity = Arc::new(proved.identity);
        Box::new(leaf)
    });
    Some((ClientSocket::Tls(stream), leaf))
}

/// The protocol of the client; `None` if the client takes longer than the timeout to show its protocol, or
/// the server drains.
async fn read_protocol<R>(
    socket: &mut ClientSocket,
    shared: &Shared<R>,
    draining: &Signal,
) -> Option<(ClientProtocol, Bytes)> {
    let opened = tokio::select! {
        () = draining.raised() => return None,
        opened = timeout(shared.limits.get().preface_timeout, socket.read_protocol()) => opened,
    };
    match opened {
        Ok(Ok(opened)) => Some(opened),
        Ok(Err(_)) => Some((ClientProtocol::Unknown, Bytes::new())),
        Err(_) => {
            shared.metrics.closed_preface_timeout.inc();
            shared.metrics.limit_hit(Limit::PrefaceTimeout);
            None
        }
    }
}

/// Serves a connection until its end, and counts the reason for the end.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would store each argument twice for the life of its future"
)]
fn live<'a, R: OpenStreams, C: HttpConnection>(
    mut connection: Pin<&'a mut C>,
    open: &'a ServedConnection<R>,
) -> impl Future<Output = ()> + use<'a, R, C> {
    async move {
        let ended = {
            // These reasons are rare, and each update wakes the task twice.
            let reason = pin!(Seldom::new(&open.wakes, reason(open)));
            tokio::select! {
                biased;
                reason = reason => Err(reason),
                result = poll_fn(|context| connection.as_mut().poll_end(context)) => Ok(result),
            }
        };
        let result = match ended {
            Ok(result) => Some(result),
            Err(None) => None,
            Err(Some(reason)) => {
                open.peer.connection.leave();
                // Boxed: most of the connection's life comes before.
                Box::pin(async {
                    tokio::select! {
                        biased;
                        () = open.peer.connection.requested() => None,
                        result = wind_down(connection.as_mut(), open, reason) => result,
                    }
                })
                .await
            }
        };
        match result {
            Some(Ok(())) => {}
            Some(Err(fault)) => {
                if fault.is_limit() {
                    open.peer.connection.leave();
                }
                fault.count(&open.shared.metrics);
            }
            None => {
                open.shared.metrics.closed_cut.inc();
            }
        }
    }
}

/// Resolves to the reason for which the relay closes the connection; `None`: the connection is cut.
async fn reason<R: OpenStreams>(open: &ServedConnection<R>) -> Option<Goaway> {
    tokio::select! {
        biased;
        () = open.peer.connection.requested() => None,
        () = open.departure.leave.raised() => {
            let window = open.departure.operators_window();
            Some(window.map_or(Goaway::Drain, |window| Goaway::Emptied { window }))
        }
        reason = due(open) => Some(reason),
    }
}

/// Resolves when the age of the connection, its lack of requests or its certificate is a reason to close.
fn due<R: OpenStreams>(open: &ServedConnection<R>) -> impl Future<Output = Goaway> + use<'_, R> {
    let ServedConnection { streams, shared, .. } = open;
    let start = Instant::now();
    let old = shared.limits.get().draw_connection_age(fastrand::f64()).map(|age| start + age);
    let used_by = start + shared.limits.get().first_request_timeout;
    let first = old.map_or(used_by, |old| old.min(used_by));
    async move {
        // `None` if no check is left. Boxed: without a maximum age, that is so for nearly all of the
        // connection's life.
        let mut check = Some(Box::pin(sleep_until(first)));
        let mut leaf_end = pin!(open.leaf_end());
        loop {
            let checked = poll_fn(|context| match &mut check {
                Some(check) => check.as_mut().poll(context),
                None => Poll::Pending,
            });
            tokio::select! {
                biased;
                end = &mut leaf_end => return Goaway::Certificate(end),
                () = checked => {}
            }
            let now = Instant::now();
            if !streams.was_used() {
                return Goaway::Idle;
            }
            let next = match old {
                Some(old) if now >= old && streams.has_unanswered() => {
                    // A client considers the server unreachable if its stream ends before the first response
                    // (KAL-4).
                    shared.metrics.age_exemptions.inc();
                    Some(now + shared.limits.get().connection_age_grace.max(AGE_RECHECK_MIN))
                }
                Some(old) if now >= old => return Goaway::Age,
                later => later,
            };
            check = next.map(|at| Box::pin(sleep_until(at)));
        }
    }
}

/// Sends GOAWAY, ends each stream at its own moment, then cuts the connection. `None` means that the cut was
/// necessary.
async fn wind_down<R: OpenStreams, C: HttpConnection>(
    mut connection: Pin<&mut C>,
    open: &ServedConnection<R>,
    reason: Goaway,
) -> Option<Result<(), ConnectionFault>> {
    let ServedConnection { streams, shared, departure, .. } = open;
    let mut reason = reason;
    let waits = |reason: Goaway| !C::ANSWERS_LATE && reason.waits_for_request();
    let mut endings = announce(streams, shared, reason, waits(reason), None);
    if !waits(reason) {
        connection.as_mut().shut_down();
    }
    let mut process_end = pin!(departure.process_end.raised());
    loop {
        let next = endings.next();
        tokio::select! {
            biased;
            result = poll_fn(|context| connection.as_mut().poll_end(context)) => return Some(result),
            // No connection outlives the server, even with time left (RLY-77).
            () = &mut process_end, if reason != Goaway::Drain => {
                reason = Goaway::Drain;
                endings = announce(streams, shared, reason, waits(reason), Some(endings.cut));
                if !waits(reason) {
                    connection.as_mut().shut_down();
                }
            }
            () = sleep_until(next) => match endings.end_due(streams, Instant::now()) {
                Progress::Going => {}
                Progress::Ended => connection.as_mut().shut_down(),
                Progress::Over => return None,
            }
        }
    }
}

/// Counts the reason for the close, and plans the end of the streams. `waits`: a first request is to come.
/// `cut` is the time of an earlier planned cut.
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
        Goaway::Drain | Goaway::Emptied { .. } if waits => {}
        Goaway::Drain | Goaway::Emptied { .. } => streams.refuse_new(),
        Goaway::Idle => shared.metrics.limit_hit(Limit::FirstRequestTimeout),
        Goaway::Age | Goaway::Certificate(_) => {}
    }
    streams.go();
    let now = Instant::now();
    let window = cut.map_or(window, |cut| window.min(cut.saturating_duration_since(now)));
    let mut endings = Endings::plan(streams, reason, waits, now, window);
    if let (Goaway::Emptied { .. }, true) = (reason, waits) {
        // A client may poll less often than the window is long. The window of a hand-over ends in the drain
        // of the process.
        endings.extend(shared.limits.get().drain_window);
    }
    endings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Relay;

    fn future_size<A, B, C, D, E, F, G, H>(_: impl Fn(A, B, C, D, E, F, G) -> H) -> usize {
        size_of::<H>()
    }

    /// The allocator rounds up to its size classes: 512, 640, 768, ..., 1,536, 1,792, 2,048.
    #[test]
    fn an_idle_connection_costs_little() {
        let (task, http2) = (future_size(run::<Relay>), size_of::<Http2<Relay>>());
        // The task has some hundred bytes of the runtime beside its future, and takes 640.
        assert!(task <= 464 && http2 <= 1792, "task {task}, HTTP/2 {http2}");
    }
}
