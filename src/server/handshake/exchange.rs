//! The way of one handshake: from the first bytes of the peer, over its turn, to its proof.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use rustls::server::Acceptor;
use tokio::time::{Instant, Timeout, timeout_at};
use tokio_rustls::server::StartHandshake;
use tokio_rustls::{FallibleAccept, LazyConfigAcceptor};

use super::guard::{First, Guard};
use super::places::{HandshakePlace, Seat};
use super::turn::{Turn, Turns};
use super::{Accepted, Failed, ListenerTls};
use crate::server::limits::ServerLimits;
use crate::server::socket::Plain;
use crate::telemetry::metrics::{Limit, LimitHits};
use crate::trust::refusal::{Reason, Refusal};
use crate::trust::server::ServerFiles;
use sluice_setting::InForce;

/// Ciphertext that a connection may hold back for a slow client: one DATA frame. More would make the client
/// stale, and is private memory (TLS-11).
pub(super) const BUFFER_BYTES: usize = 17 * 1024;

/// The bounds of handshakes whose peers have begun.
pub(super) struct Computing {
    pub(super) turns: Turns,
    pub(super) limits: InForce<ServerLimits>,
    hits: LimitHits,
}

/// A peer that waits longer for its turn is told of in the log. A burst of a whole fleet takes less by
/// default.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// A handshake whose peer has begun.
pub(super) struct Begun {
    socket: Plain,
    first: First,
    /// `None` if the whole ClientHello has to come first.
    turn: Option<Turn>,
    deadline: Instant,
    place: HandshakePlace,
}

/// A handshake whose ClientHello is read, and whose turn has come.
struct DueHandshake {
    hello: StartHandshake<Guard>,
    turn: Turn,
    deadline: Instant,
    place: HandshakePlace,
}

impl Computing {
    pub(super) fn new(limits: InForce<ServerLimits>, hits: LimitHits) -> Computing {
        Computing { turns: Turns::default(), limits, hits }
    }

    /// The number of handshakes of the largest size that may wait for their peers.
    pub(super) fn places_max(&self) -> u64 {
        self.limits.get().tls_handshakes
    }

    /// Waits for the first record of a peer, and for the turn of its handshake if that is the whole
    /// ClientHello. Thousands may wait here: they cost no memory of TLS (SEC-1), as their hellos stay in the
    /// kernel.
    pub(super) async fn begin(
        &self,
        socket: Plain,
        accepted: Instant,
        mut place: HandshakePlace,
    ) -> Result<Begun, Failed> {
        let mut deadline = accepted + self.limits.get().tls_handshake_timeout;
        // A unix socket has room for some 270 pieces, however small. The peer would wait for a reader then,
        // so its hello is read as it comes.
        let is_unix = matches!(socket, Plain::Unix(_));
        let judge =
            |bytes: &[u8]| First::of(bytes).or((is_unix && !bytes.is_empty()).then_some(First::Other));
        let Ok(first) = timeout_at(deadline, socket.peek(judge)).await else {
            return Err((timed_out(), None));
        };
        let first = first.unwrap_or(First::Other);
        let turn = match first {
            First::Record(_) => self.turn(&mut place, &mut deadline, &socket).await.map(Some),
            First::Other => Ok(None),
        };
        match turn {
            Ok(turn) => Ok(Begun { socket, first, turn, deadline, place }),
            Err(refusal) => Err((refusal, Some(Guard::new(socket, place.seat())))),
        }
    }

    /// Thousands of handshakes may wait for their peers at the end: the stages before have memory of their
    /// own, which is free then.
    pub(super) async fn exchange(
        self: Arc<Self>,
        begun: Begun,
        tls: ListenerTls,
    ) -> Result<Accepted, Failed> {
        let due = Box::pin(self.read(begun)).await?;
        let generation = tls.watched.in_force().epoch();
        let (accept, _place) = due.compute(self.places_max(), &generation);
        let mut stream = match accept.await {
            Ok(Ok(stream)) => stream,
            Ok(Err((error, socket))) => return Err((Refusal::of_io(&error), Some(socket))),
            Err(_) => return Err((timed_out(), None)),
        };
        let proved = generation.prove(stream.get_ref().1.peer_certificates());
        stream.get_mut().0.relax();
        match proved {
            Ok(proved) => Ok((Box::new(stream), proved)),
            Err(refusal) => Err((refusal, None)),
        }
    }

    /// Waits for the turn of a peer that has sent its ClientHello.
    pub(super) async fn turn(
        &self,
        place: &mut HandshakePlace,
        deadline: &mut Instant,
        peer: &Plain,
    ) -> Result<Turn, Refusal> {
        let asked = Instant::now();
        if !place.wait_for_relay() {
            return Err(Refusal::new(Reason::Rate, "too many handshakes wait for their turn"));
        }
        let turn = self.turns.take(&self.limits, peer).await;
        // SEC-3: the wait for the turn is ours.
        let waited = asked.elapsed();
        *deadline += waited;
        if waited > LONG_WAIT {
            self.hits.delay(Limit::TlsHandshakesPerSecond, "", peer.address());
        }
        turn.ok_or_else(|| Refusal::new(Reason::Eof, "the peer left during the handshake"))
    }

    /// Reads the ClientHello. A peer that has to send more of it gives its turn back, and waits for another
    /// one.
    async fn read(&self, begun: Begun) -> Result<DueHandshake, Failed> {
        let Begun { socket, first, turn, mut deadline, mut place } = begun;
        let mut read = pin!(read_hello(socket, place.seat(), deadline));
        let hello = match (read.as_mut().now_or_never(), turn) {
            (Some(hello), Some(turn)) => return Ok(DueHandshake { hello: hello?, turn, deadline, place }),
            (Some(hello), None) => hello?,
            (None, turn) => {
                drop(turn);
                if let First::Record(bytes) = first {
                    place.wait_for_peer(self.places_max(), bytes);
                }
                read.await?
            }
        };
        match self.turn(&mut place, &mut deadline, hello.io.plain()).await {
            Ok(turn) => Ok(DueHandshake { hello, turn, deadline, place }),
            Err(refusal) => Err((refusal, Some(hello.io))),
        }
    }
}

impl DueHandshake {
    /// Computes the key exchange and our signature. The result waits for the rest of the handshake, in its
    /// place.
    fn compute(
        self,
        places: u64,
        generation: &ServerFiles,
    ) -> (Pin<Box<Timeout<FallibleAccept<Guard>>>>, HandshakePlace) {
        let DueHandshake { hello, turn, deadline, mut place } = self;
        place.wait_for_peer(places, hello.io.bytes());
        let accept = hello.into_stream_with(generation.config.clone(), |session| {
            session.set_buffer_limit(Some(BUFFER_BYTES))
        });
        drop(turn);
        (Box::pin(timeout_at(deadline, accept.into_fallible())), place)
    }
}

/// Reads the whole ClientHello.
async fn read_hello(
    socket: Plain,
    seat: Arc<Seat>,
    deadline: Instant,
) -> Result<StartHandshake<Guard>, Failed> {
    let mut acceptor = LazyConfigAcceptor::new(Acceptor::default(), Guard::new(socket, seat));
    match timeout_at(deadline, &mut acceptor).await {
        Ok(Ok(hello)) => Ok(hello),
        Ok(Err(error)) => Err((Refusal::of_io(&error), acceptor.take_io())),
        Err(_) => Err((timed_out(), None)),
    }
}

fn timed_out() -> Refusal {
    Refusal::new(Reason::Timeout, "the handshake took too long")
}
