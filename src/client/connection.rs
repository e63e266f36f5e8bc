//! One HTTP/2 connection and the task that drives it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use h2::{Ping, PingPong, Reason};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info};

use super::dial::{ConnectionWay, Dialed, Http2};
use super::peer::GrpcPeer;
use super::tls::OwnLeaf;
use super::transport::Traffic;
use sluice_xds::{Code, Status};

/// How long the orderly close of an idle connection may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// The status of a connection whose server answers neither PINGs nor probes.
const NO_ANSWER: &str = "PING unanswered";

/// Without a PING, a round trip ends when the server has sent something and then nothing for this long.
const SILENCE: Duration = Duration::from_millis(200);

pub(super) type SendRequest = h2::client::SendRequest<Bytes>;

/// The state of a connection, as reported to its streams.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionPhase {
    /// The connection is to be left: the server asks for it, or our certificate is nearly over.
    pub(super) leaving: bool,
    /// The connection has ended, for this reason.
    pub(super) ended: Option<Status>,
}

/// A connection, as used by its streams and its pool.
#[derive(Debug)]
pub(super) struct UpstreamConnection {
    /// The number of the connection in its pool, from 1.
    pub(super) number: u64,
    pub(super) way: ConnectionWay,
    permits: Mutex<Permits>,
    permits_changed: Notify,
    phase: watch::Sender<ConnectionPhase>,
    /// Streams ask whether the server is alive.
    probed: Notify,
    rounds: Rounds,
    pub(super) traffic: Arc<Traffic>,
    peer: Arc<GrpcPeer>,
}

#[derive(Debug)]
struct Permits {
    used: usize,
    /// `None`: the connection takes no new streams.
    send: Option<SendRequest>,
}

/// The right to one stream on a connection. Dropping the permit frees the slot.
#[derive(Debug)]
pub(super) struct StreamPermit {
    pub(super) connection: Arc<UpstreamConnection>,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connection.permits().used -= 1;
        self.connection.permits_changed.notify_one();
        self.connection.peer.notify();
    }
}

impl UpstreamConnection {
    /// Wraps a ready connection, and starts its task.
    pub(super) fn start(dialed: Dialed, peer: Arc<GrpcPeer>, number: u64) -> Arc<UpstreamConnection> {
        let Dialed { send, mut h2, traffic, leaf, way } = dialed;
        let ping = h2.ping_pong();
        let connection = Arc::new(UpstreamConnection {
            number,
            way,
            permits: Mutex::new(Permits { used: 0, send: Some(send.clone()) }),
            permits_changed: Notify::new(),
            phase: watch::Sender::new(ConnectionPhase::default()),
            probed: Notify::new(),
            rounds: Rounds::default(),
            traffic,
            peer,
        });
        let driver = Driver {
            pinger: ping.map(|ping| Pinger { ping, answer_by: None, round: 0, is_for_round: false }),
            probe: None,
            silence: None,
            leaf,
            connection: connection.clone(),
            send,
            leaving: false,
        };
        tokio::spawn(driver.run(h2));
        connection
    }

    /// A permit for one more stream; `None` if the connection is full or takes no more streams.
    pub(super) fn take(self: &Arc<Self>, streams_max: usize) -> Option<(StreamPermit, SendRequest)> {
        let mut permits = self.permits();
        let send = permits.send.clone()?;
        if permits.used >= streams_max.min(send.current_max_send_streams()) {
            return None;
        }
        permits.used += 1;
        drop(permits);
        self.permits_changed.notify_one();
        Some((StreamPermit { connection: self.clone() }, send))
    }

    pub(super) fn is_closed_to_streams(&self) -> bool {
        self.permits().send.is_none()
    }

    pub(super) fn phase(&self) -> watch::Receiver<ConnectionPhase> {
        self.phase.subscribe()
    }

    /// Makes the server send something, and waits until more than `received` bytes have arrived. Never
    /// returns if the connection dies first.
    pub(super) async fn probe(&self, received: u64) {
        self.probed.notify_one();
        self.traffic.received_more_than(received).await;
    }

    /// Begins a round trip of the transport. Returns its number for [`UpstreamConnection::round_ended`].
    pub(super) fn begin_round(&self) -> u64 {
        let number = self.rounds.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.rounds.news.notify_one();
        number
    }

    /// Waits until the server has answered a PING sent after the round trip began. Everything that the server
    /// had passed to its transport before has then been received. After as many PINGs as the server bears
    /// ([`GrpcPeer::round_pings`]), another answer and a short silence replace the PING. Never returns if
    /// the connection dies first.
    pub(super) async fn round_ended(&self, number: u64) {
        let mut ended = self.rounds.ended.subscribe();
        let _ = ended.wait_for(|ended| *ended >= number).await;
    }

    fn permits(&self) -> MutexGuard<'_, Permits> {
        self.permits.lock()
    }

    /// Closes an unused connection to new streams. Returns false if the connection is in use after all.
    fn retire(&self) -> bool {
        let mut permits = self.permits();
        let unused = permits.used == 0;
        if unused {
            permits.send = None;
        }
        unused
    }
}

/// The round trips requested by streams, by number. One PING serves all round trips begun before it.
#[derive(Debug, Default)]
struct Rounds {
    begun: AtomicU64,
    ended: watch::Sender<u64>,
    news: Notify,
}

impl Rounds {
    fn end(&self, number: u64) {
        self.ended.send_modify(|ended| *ended = number.max(*ended));
    }
}

/// Owns the connection's I/O until the end.
struct Driver {
    connection: Arc<UpstreamConnection>,
    /// Kept to prevent the library from closing an idle connection, and to learn of a GOAWAY.
    send: SendRequest,
    pinger: Option<Pinger>,
    probe: Option<Probe>,
    silence: Option<Silence>,
    leaf: Option<OwnLeaf>,
    leaving: bool,
}

impl Driver {
    async fn run(mut self, mut h2: Http2) {
        let metrics = self.connection.peer.metrics.clone();
        metrics.connections.inc();
        let status = self.drive(&mut h2).await;
        if let Some(Err(error)) = poll_fn(|context| self.send.poll_ready(context)).now_or_never() {
            self.leave(&error);
        }
        debug!(server = %self.connection.peer.address, %status, "an upstream connection ended");
        self.connection.permits().send = None;
        // Set before the connection is dropped, so that failing streams find the reason.
        self.connection.phase.send_modify(|phase| phase.ended = Some(status));
        let Driver { send, connection, .. } = self;
        drop(send);
        if connection.permits().used == 0 {
            // Without streams and handles, the library sends GOAWAY and closes. A dead peer must not block
            // this task.
            let _ = timeout(FAREWELL, &mut h2).await;
        }
        metrics.connections.dec();
        connection.peer.notify();
    }

    /// Returns the reason for the end of the connection.
    async fn drive(&mut self, h2: &mut Http2) -> Status {
        let mut ping_at = Instant::now();
        let mut idle_at = Instant::now() + self.connection.peer.settings().idle_timeout;
        let mut was_used = false;
        let leaf = self.leaf.take();
        let mut outlived = pin!(outlived(leaf.as_ref()));
        loop {
            let used = self.connection.permits().used > 0;
            if used != was_used {
                was_used = used;
                ping_at = Instant::now() + self.connection.peer.ping_interval();
                idle_at = Instant::now() + self.connection.peer.settings().idle_timeout;
            }
            if self.leaving && !used {
                return Status::new(Code::Unavailable, "the connection takes no more streams");
            }
            self.see_to_rounds(h2);
            let Driver { connection, send, pinger, probe, silence, leaving, .. } = self;
            let silent_at = silence.as_ref().and_then(|silence| silence.until);
            let pong_by = pinger.as_ref().and_then(|pinger| pinger.answer_by);
            let probed = probe.as_ref().map(|probe| probe.received);
            let answer_by = pong_by.into_iter().chain(probe.as_ref().map(|probe| probe.answer_by)).min();
            tokio::select! {
                biased;
                result = &mut *h2 => return ended(result),
                error = poll_fn(|context| match send.poll_ready(context) {
                    Poll::Ready(Err(error)) => Poll::Ready(error),
                    _ => Poll::Pending,
                }), if !*leaving => self.leave(&error),
                () = &mut outlived, if !*leaving => self.replace(),
                round = answered(pinger.as_mut()), if pong_by.is_some() => {
                    connection.rounds.end(round);
                    // From the answer on: the server counts the time between two arrivals.
                    ping_at = Instant::now() + connection.peer.ping_interval();
                }
                () = sleep_until(silent_at.unwrap_or(ping_at)), if silent_at.is_some() => {}
                () = connection.rounds.news.notified() => {}
                () = connection.traffic.pings.renewed() => {}
                () = connection.traffic.received_more_than(probed.unwrap_or(0)), if probed.is_some() => {
                    *probe = None;
                }
                () = sleep_until(answer_by.unwrap_or(ping_at)), if answer_by.is_some() => {
                    connection.peer.metrics.unanswered.inc();
                    info!(server = %connection.peer.address,
                        "closing a connection: the server does not answer");
                    return Status::new(Code::Unavailable, NO_ANSWER);
                }
                () = connection.probed.notified(), if probed.is_none() => self.probe(h2),
                () = sleep_until(ping_at), if used => {
                    ping_at = Instant::now() + connection.peer.ping_interval();
                    self.ping(false);
                }
                () = connection.permits_changed.notified() => {}
                () = sleep_until(idle_at), if !used => {
                    if connection.retire() {
                        return Status::new(Code::Unavailable, "the connection was idle");
                    }
                }
            }
        }
    }

    /// Advances the round trips that have begun.
    fn see_to_rounds(&mut self, h2: &mut Http2) {
        let connection = self.connection.clone();
        let rounds = &connection.rounds;
        let begun = rounds.begun.load(Ordering::Relaxed);
        if self.pinger.is_some() && connection.traffic.pings.count() < connection.peer.round_pings() {
            self.silence = None;
            if begun > *rounds.ended.borrow() {
                self.ping(true);
            }
            return;
        }
        let (now, received) = (Instant::now(), connection.traffic.received());
        if let Some(silence) = &mut self.silence {
            if silence.received != received {
                (silence.received, silence.until) = (received, Some(now + SILENCE));
            } else if silence.until.is_some_and(|until| until <= now) {
                rounds.end(silence.round);
                self.silence = None;
            }
        }
        if self.silence.is_none() && begun > *rounds.ended.borrow() {
            self.silence = Some(Silence { round: begun, received, until: None });
            // A dead connection is silent, too.
            if self.probe.is_none() {
                self.probe(h2);
            }
        }
    }

    /// Sends a PING, unless one is outstanding. `is_for_round`: ahead of the interval, for a round trip.
    fn ping(&mut self, is_for_round: bool) {
        let Some(pinger) = &mut self.pinger else { return };
        if pinger.answer_by.is_none() && pinger.ping.send_ping(Ping::opaque()).is_ok() {
            pinger.answer_by = Some(Instant::now() + self.connection.peer.settings().ping_timeout);
            pinger.round = self.connection.rounds.begun.load(Ordering::Relaxed);
            pinger.is_for_round = is_for_round;
            self.connection.traffic.pings.send();
            self.connection.peer.metrics.pings.inc();
        }
    }

    /// Makes the server send something. SETTINGS without changes must be acknowledged at once (RFC 9113
    /// §6.5.3). Unlike PINGs, no server takes SETTINGS for abuse, however often a silent stream is probed.
    fn probe(&mut self, h2: &mut Http2) {
        let peer = &self.connection.peer;
        let received = self.connection.traffic.received();
        // An error means that earlier SETTINGS are still unacknowledged, which serves the same purpose.
        let _ = h2.set_initial_window_size(peer.settings().stream_window);
        self.probe = Some(Probe { received, answer_by: Instant::now() + peer.settings().ping_timeout });
        peer.metrics.probes.inc();
    }

    /// Closes the connection to new streams. Open streams continue until there is another connection for them
    /// (KAL-5, FU10).
    fn leave(&mut self, error: &h2::Error) {
        if !self.close_to_streams() {
            return;
        }
        let peer = &self.connection.peer;
        // Any other error means that stream numbers ran out, or that the connection is about to end with an
        // error of its own.
        if error.is_go_away() && error.is_remote() {
            debug!(server = %peer.address, %error, "received GOAWAY");
            peer.metrics.goaways.inc();
            // gRPC's mark (A8) is in the debug data, which the library shows only in the error's text.
            if error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
                && error.to_string().contains("too_many_pings")
            {
                peer.too_many_pings(self.pinger.as_ref().is_some_and(|pinger| pinger.is_for_round));
            }
            self.connection.phase.send_modify(|phase| phase.leaving = true);
        }
        peer.notify();
    }

    /// Replaces the connection before its certificate ends: streams move to another one, as after a GOAWAY
    /// (CRT-10).
    fn replace(&mut self) {
        if self.close_to_streams() {
            let peer = &self.connection.peer;
            info!(server = %peer.address, "replacing a connection: the relay has a newer certificate");
            self.connection.phase.send_modify(|phase| phase.leaving = true);
            peer.notify();
        }
    }

    /// False if the connection takes no streams already.
    fn close_to_streams(&mut self) -> bool {
        let is_first = !self.leaving;
        self.leaving = true;
        self.connection.permits().send = None;
        is_first
    }
}

/// Waits until the relay's certificate on the connection is over; for ever without one.
async fn outlived(leaf: Option<&OwnLeaf>) {
    match leaf {
        Some(leaf) => leaf.is_over().await,
        None => std::future::pending().await,
    }
}

/// The one PING that may be outstanding.
struct Pinger {
    ping: PingPong,
    answer_by: Option<Instant>,
    /// The last round trip begun when the PING was sent.
    round: u64,
    /// The last PING was for a round trip.
    is_for_round: bool,
}

/// A request to the server to send something; any bytes are an answer (RLY-29).
struct Probe {
    /// Bytes received before.
    received: u64,
    answer_by: Instant,
}

/// Round trips without a PING.
struct Silence {
    /// The last round trip begun.
    round: u64,
    /// Bytes received so far.
    received: u64,
    /// The end of the round trips if nothing arrives until then. `None`: nothing has arrived since they
    /// began.
    until: Option<Instant>,
}

/// Waits for the answer to the outstanding PING. Returns the last round trip that the answer ends.
async fn answered(pinger: Option<&mut Pinger>) -> u64 {
    let mut never = pin!(std::future::pending::<()>());
    let Some(pinger) = pinger else {
        never.as_mut().await;
        return 0;
    };
    match poll_fn(|context| pinger.ping.poll_pong(context)).await {
        Ok(_) => pinger.answer_by = None,
        // The connection is closing; its own future returns the reason.
        Err(_) => never.as_mut().await,
    }
    pinger.round
}

fn ended(result: Result<(), h2::Error>) -> Status {
    match result {
        Ok(()) => Status::new(Code::Unavailable, "the server closed the connection"),
        Err(error) => super::status::of_h2(&error),
    }
}
