//! One HTTP/2 connection and the task that drives it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use h2::{Ping, PingPong, Reason};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info};

use super::dial::Dialed;
use super::pool::Shared;
use super::transport::Traffic;
use crate::xds::{Code, Status};

/// How long the farewell of an idle connection may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// How a connection ends whose server answers neither a PING nor a probe.
const NO_ANSWER: &str = "PING unanswered";

/// So many PINGs are sent for round trips while no stream receives anything. grpc-go ends a connection by a third one that it did
/// not expect, and takes them for expected only if it has written something since the one before (gRFC A8).
const PINGS_MAX: u32 = 2;

/// Without a PING, a round trip ends once the server has said something and then nothing for this long.
const SILENCE: Duration = Duration::from_millis(200);

pub(super) type SendRequest = h2::client::SendRequest<Bytes>;

/// What the streams of a connection are told of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase {
    /// The server asked for the connection to be left.
    pub(super) leaving: bool,
    /// The connection is gone, and why.
    pub(super) ended: Option<Status>,
}

/// A connection as its streams and its pool see it.
#[derive(Debug)]
pub(super) struct Connection {
    places: Mutex<Places>,
    places_changed: Notify,
    phase: watch::Sender<Phase>,
    /// Streams want to know whether the server is there.
    probed: Notify,
    rounds: Rounds,
    pub(super) traffic: Arc<Traffic>,
    pool: Arc<Shared>,
}

#[derive(Debug)]
struct Places {
    used: usize,
    /// `None`: no new stream may be opened here.
    send: Option<SendRequest>,
}

/// The right to one stream on a connection. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) connection: Arc<Connection>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connection.places().used -= 1;
        self.connection.places_changed.notify_one();
        self.connection.pool.news();
    }
}

impl Connection {
    /// Takes over a connection that is ready, and starts its task.
    pub(super) fn start(dialed: Dialed, pool: Arc<Shared>) -> Arc<Connection> {
        let Dialed { send, mut h2, traffic } = dialed;
        let ping = h2.ping_pong();
        let connection = Arc::new(Connection {
            places: Mutex::new(Places { used: 0, send: Some(send.clone()) }),
            places_changed: Notify::new(),
            phase: watch::Sender::new(Phase::default()),
            probed: Notify::new(),
            rounds: Rounds::default(),
            traffic,
            pool,
        });
        let driver = Driver {
            pinger: ping.map(|ping| Pinger { ping, answer_by: None, round: 0 }),
            probe: None,
            silence: None,
            connection: connection.clone(),
            send,
            leaving: false,
        };
        tokio::spawn(driver.run(h2));
        connection
    }

    /// A place for one more stream, unless the connection is full or no longer takes streams.
    pub(super) fn take(self: &Arc<Self>, streams_max: usize) -> Option<(Place, SendRequest)> {
        let mut places = self.places();
        let send = places.send.clone()?;
        if places.used >= streams_max.min(send.current_max_send_streams()) {
            return None;
        }
        places.used += 1;
        drop(places);
        self.places_changed.notify_one();
        Some((Place { connection: self.clone() }, send))
    }

    pub(super) fn is_closed_to_streams(&self) -> bool {
        self.places().send.is_none()
    }

    pub(super) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Returns once more bytes than these have been received, which the server is made to send; never, if the connection
    /// dies first.
    pub(super) async fn probe(&self, received: u64) {
        self.probed.notify_one();
        self.traffic.received_more_than(received).await;
    }

    /// Begins a round trip of the transport. Gives its number for [`Connection::round_ended`].
    pub(super) fn begin_round(&self) -> u64 {
        let number = self.rounds.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.rounds.news.notify_one();
        number
    }

    /// Returns once the server has answered a PING that was sent after the round trip began: what it had handed to its transport
    /// before has been received. Where there were too many PINGs, an answer to something else and a short silence stand for it.
    /// Never, if the connection dies first.
    pub(super) async fn round_ended(&self, number: u64) {
        let mut ended = self.rounds.ended.subscribe();
        let _ = ended.wait_for(|ended| *ended >= number).await;
    }

    /// A stream received something, so that the server forgives the PINGs so far.
    pub(super) fn heard(&self) {
        if self.rounds.pings.swap(0, Ordering::Relaxed) >= PINGS_MAX {
            self.rounds.news.notify_one();
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes an unused connection to new streams. False if it is in use after all.
    fn retire(&self) -> bool {
        let mut places = self.places();
        let unused = places.used == 0;
        if unused {
            places.send = None;
        }
        unused
    }
}

/// Round trips that streams want, by number. One PING serves all that were begun before it.
#[derive(Debug, Default)]
struct Rounds {
    begun: AtomicU64,
    ended: watch::Sender<u64>,
    news: Notify,
    /// PINGs, for whatever reason, since a stream received something.
    pings: AtomicU32,
}

impl Rounds {
    fn end(&self, number: u64) {
        self.ended.send_modify(|ended| *ended = number.max(*ended));
    }
}

/// Owns the connection's I/O until it ends.
struct Driver {
    connection: Arc<Connection>,
    /// Kept so that HTTP/2 does not close an idle connection of its own accord, and to hear of a GOAWAY.
    send: SendRequest,
    pinger: Option<Pinger>,
    probe: Option<Probe>,
    silence: Option<Silence>,
    leaving: bool,
}

impl Driver {
    async fn run(mut self, mut h2: h2::client::Connection<super::transport::Transport, Bytes>) {
        let metrics = self.connection.pool.metrics().clone();
        metrics.connections.inc();
        let status = self.drive(&mut h2).await;
        if let Some(Err(error)) = poll_fn(|context| self.send.poll_ready(context)).now_or_never() {
            self.leave(&error);
        }
        debug!(server = %self.connection.pool.address(), %status, "an upstream connection ended");
        self.connection.places().send = None;
        // Said before the connection is dropped, so that its streams find the reason when they fail.
        self.connection.phase.send_modify(|phase| phase.ended = Some(status));
        let Driver { send, connection, .. } = self;
        drop(send);
        if connection.places().used == 0 {
            // Without streams and handles HTTP/2 says GOAWAY and closes. A dead peer must not hold this task.
            let _ = timeout(FAREWELL, &mut h2).await;
        }
        metrics.connections.dec();
        connection.pool.forget(&connection);
    }

    /// Returns why the connection ended.
    async fn drive(&mut self, h2: &mut h2::client::Connection<super::transport::Transport, Bytes>) -> Status {
        let settings = self.connection.pool.settings().clone();
        let mut ping_at = Instant::now();
        let mut idle_at = Instant::now() + settings.idle_timeout;
        let mut was_used = false;
        loop {
            let used = self.connection.places().used > 0;
            if used != was_used {
                was_used = used;
                ping_at = Instant::now() + self.connection.pool.ping_interval();
                idle_at = Instant::now() + settings.idle_timeout;
            }
            if self.leaving && !used {
                return Status::new(Code::Unavailable, "the connection takes no more streams");
            }
            self.see_to_rounds(h2);
            let Driver { connection, send, pinger, probe, silence, leaving } = self;
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
                round = answered(pinger.as_mut()), if pong_by.is_some() => {
                    connection.rounds.end(round);
                }
                () = sleep_until(silent_at.unwrap_or(ping_at)), if silent_at.is_some() => {}
                () = connection.rounds.news.notified() => {}
                () = connection.traffic.received_more_than(probed.unwrap_or(0)), if probed.is_some() => {
                    *probe = None;
                }
                () = sleep_until(answer_by.unwrap_or(ping_at)), if answer_by.is_some() => {
                    connection.pool.metrics().unanswered.inc();
                    info!(server = %connection.pool.address(),
                        "a connection is given up, on which the server answers nothing at all");
                    return Status::new(Code::Unavailable, NO_ANSWER);
                }
                () = connection.probed.notified(), if probed.is_none() => self.probe(h2),
                () = sleep_until(ping_at), if used => {
                    ping_at = Instant::now() + connection.pool.ping_interval();
                    self.ping();
                }
                () = connection.places_changed.notified() => {}
                () = sleep_until(idle_at), if !used => {
                    if connection.retire() {
                        return Status::new(Code::Unavailable, "the connection was idle");
                    }
                }
            }
        }
    }

    /// Brings the round trips that have begun to their end.
    fn see_to_rounds(&mut self, h2: &mut h2::client::Connection<super::transport::Transport, Bytes>) {
        let connection = self.connection.clone();
        let rounds = &connection.rounds;
        let begun = rounds.begun.load(Ordering::Relaxed);
        if self.pinger.is_some() && rounds.pings.load(Ordering::Relaxed) < PINGS_MAX {
            self.silence = None;
            if begun > *rounds.ended.borrow() {
                self.ping();
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
            // A connection that is dead is silent, too.
            if self.probe.is_none() {
                self.probe(h2);
            }
        }
    }

    /// Sends a PING, unless one is on its way.
    fn ping(&mut self) {
        let Some(pinger) = &mut self.pinger else { return };
        if pinger.answer_by.is_none() && pinger.ping.send_ping(Ping::opaque()).is_ok() {
            pinger.answer_by = Some(Instant::now() + self.connection.pool.settings().ping_timeout);
            pinger.round = self.connection.rounds.begun.load(Ordering::Relaxed);
            self.connection.rounds.pings.fetch_add(1, Ordering::Relaxed);
            self.connection.pool.metrics().pings.inc();
        }
    }

    /// Makes the server say something: SETTINGS that change nothing must be acknowledged at once (RFC 9113 §6.5.3), and
    /// unlike PINGs no server takes them for abuse, however often a silent stream has to be probed.
    fn probe(&mut self, h2: &mut h2::client::Connection<super::transport::Transport, Bytes>) {
        let pool = &self.connection.pool;
        let received = self.connection.traffic.received();
        // An error says that earlier SETTINGS wait for their acknowledgement: that will do.
        let _ = h2.set_initial_window_size(pool.settings().stream_window);
        self.probe = Some(Probe { received, answer_by: Instant::now() + pool.settings().ping_timeout });
        pool.metrics().probes.inc();
    }

    /// No further streams here; those that are open go on until there is a connection for them (KAL-5, FU10).
    fn leave(&mut self, error: &h2::Error) {
        if self.leaving {
            return;
        }
        self.leaving = true;
        self.connection.places().send = None;
        let pool = &self.connection.pool;
        // Otherwise the connection is out of stream numbers, or about to end with an error of its own.
        if error.is_go_away() && error.is_remote() {
            debug!(server = %pool.address(), %error, "GOAWAY");
            pool.metrics().goaways.inc();
            // gRPC's mark (A8) is in the debug data, which the library shows in the error's text only.
            if error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
                && error.to_string().contains("too_many_pings")
            {
                pool.too_many_pings();
            }
            self.connection.phase.send_modify(|phase| phase.leaving = true);
        }
        pool.news();
    }
}

/// The one PING that may be on its way.
struct Pinger {
    ping: PingPong,
    answer_by: Option<Instant>,
    /// The last round trip that had begun when it was sent.
    round: u64,
}

/// The server was made to say something; anything will do (RLY-29).
struct Probe {
    /// Bytes received before.
    received: u64,
    answer_by: Instant,
}

/// Round trips that no PING is sent for.
struct Silence {
    /// The last one that had begun.
    round: u64,
    /// Bytes received so far.
    received: u64,
    /// They end then, if nothing comes. `None`: nothing has come yet since they began.
    until: Option<Instant>,
}

/// Returns when the PING on its way was answered, with the last round trip that ends by that.
async fn answered(pinger: Option<&mut Pinger>) -> u64 {
    let mut never = pin!(std::future::pending::<()>());
    let Some(pinger) = pinger else {
        never.as_mut().await;
        return 0;
    };
    match poll_fn(|context| pinger.ping.poll_pong(context)).await {
        Ok(_) => pinger.answer_by = None,
        // The connection is closing; its own future says why.
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
