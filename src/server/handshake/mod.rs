//! TLS handshakes of clients, and their bounds (SEC-1 to SEC-4).
//!
//! A handshake is the most expensive thing that a stranger can ask for. `places` bounds the number of handshakes in
//! progress, `turn` and `threads` the CPU for them, and `guard` the bytes before a peer has proved anything.
//! `certificate` ends connections whose client certificate ends.

pub(super) mod certificate;
pub(super) mod guard;
mod places;
mod threads;
mod turn;

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, Instant, timeout, timeout_at};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::{StartHandshake, TlsStream};

use self::guard::{Guard, Opening};
use self::places::{Place, Places, Seat};
use self::threads::Threads;
use self::turn::Turns;
use super::limits::ServerLimits;
use super::socket::Plain;
use super::warnings::WarnTable;
use crate::setting::InForce;
use crate::telemetry::metrics::{TLS_OK, TlsMetrics};
use crate::trust::refusal::{Reason, Refusal};
use crate::trust::rotation::Watched;
use crate::trust::server::{Generation, Proved};

/// Ciphertext that a connection may hold back for a slow client: one DATA frame. More would make the client stale, and
/// is private memory (TLS-11).
const BUFFER_BYTES: usize = 17 * 1024;

/// After a refusal the peer may still be sending; closing over unread bytes could destroy the alert before the peer has
/// read it (TLS-6).
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 128 * 1024;

/// Answers a client of plaintext HTTP/1.1, in words (SEC-7).
const PLAINTEXT_ANSWER: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 40\r\n\
    Connection: close\r\n\r\nThis port speaks TLS only; use https://\n";

/// A connection after its handshake.
pub(super) type TlsSocket = TlsStream<Guard>;

/// All handshakes of a server.
pub(super) struct Handshakes {
    places: Arc<Places>,
    threads: Threads,
    computing: Arc<Computing>,
    metrics: TlsMetrics,
}

/// The bounds of handshakes whose peers have begun.
struct Computing {
    turns: Turns,
    limits: InForce<ServerLimits>,
}

/// TLS of one listener.
#[derive(Clone)]
pub(super) struct ListenerTls {
    pub(super) watched: Watched<Generation>,
    /// A connection ends with its client's certificate (CRT-9).
    pub(super) ends_at_expiry: InForce<bool>,
    warnings: Arc<WarnTable>,
}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerTls").finish_non_exhaustive()
    }
}

impl ListenerTls {
    pub(super) fn new(watched: Watched<Generation>, ends_at_expiry: InForce<bool>) -> ListenerTls {
        ListenerTls { watched, ends_at_expiry, warnings: Arc::default() }
    }
}

/// The protection of a listener's connections.
#[derive(Clone)]
pub(super) enum Security {
    /// The table is for clients that speak TLS here.
    Plaintext(Arc<WarnTable>),
    Tls(ListenerTls),
}

/// A connection after a good handshake, and the proof of its client.
pub(super) type Accepted = (Box<TlsSocket>, Option<Proved>);

/// A failed handshake. The socket is for the last words.
type Failed = (Refusal, Option<Guard>);

impl Handshakes {
    pub(super) fn new(limits: InForce<ServerLimits>, metrics: TlsMetrics) -> Handshakes {
        let computing = Arc::new(Computing { turns: Turns::default(), limits });
        Handshakes { places: Arc::default(), threads: Threads::default(), computing, metrics }
    }

    /// Performs the handshake of a connection. `None` if the peer was refused, or went: counted and logged already.
    ///
    /// The proof is `None` for a client without a certificate.
    pub(super) async fn accept(
        &self,
        socket: Plain,
        tls: &ListenerTls,
        listener: &str,
        peer: Option<std::net::SocketAddr>,
    ) -> Option<Accepted> {
        let begin = Instant::now();
        let _open = self.metrics.handshake_open();
        let place = self.places.enter(self.computing.limits.get().tls_handshakes);
        let evicted = place.evicted();
        let result = tokio::select! {
            biased;
            () = evicted.cancelled() => Err((Refusal::new(Reason::Evicted, "too many handshakes in progress"), None)),
            result = self.shake(socket, tls, begin, place) => result,
        };
        match result {
            Ok(proved) => {
                self.metrics.handshake(TLS_OK, begin.elapsed());
                Some(proved)
            }
            Err((refusal, socket)) => {
                self.metrics.handshake(refusal.reason.name(), begin.elapsed());
                tls.warnings.refused(listener, peer, &refusal);
                if let Some(socket) = socket {
                    // Boxed: the buffer would be a part of the connection's task.
                    let _ = timeout(LINGER, Box::pin(last_words(socket, refusal.reason))).await;
                }
                None
            }
        }
    }

    async fn shake(
        &self,
        socket: Plain,
        tls: &ListenerTls,
        begin: Instant,
        place: Place,
    ) -> Result<Accepted, Failed> {
        let deadline = begin + self.computing.limits.get().tls_handshake_timeout;
        // A silent peer costs no memory of TLS (SEC-1).
        if timeout_at(deadline, socket.readable()).await.is_err() {
            return Err((timed_out(), None));
        }
        let exchange = self.computing.clone().exchange(socket, tls.clone(), deadline, place);
        self.threads.spawn(exchange).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a TLS handshake was interrupted");
            Err((Refusal::new(Reason::Other, "interrupted"), None))
        })
    }
}

impl Computing {
    async fn exchange(
        self: Arc<Self>,
        socket: Plain,
        tls: ListenerTls,
        mut deadline: Instant,
        mut place: Place,
    ) -> Result<Accepted, Failed> {
        let hello = read_hello(socket, place.seat(), deadline).await?;
        let asked = Instant::now();
        if !place.wait_for_relay(hello.io.bytes()) {
            let refusal = Refusal::new(Reason::Rate, "too many handshakes wait for their turn");
            return Err((refusal, Some(hello.io)));
        }
        let Some(turn) = self.turns.take(&self.limits, &hello.io).await else {
            return Err((Refusal::new(Reason::Eof, "the peer left during the handshake"), None));
        };
        place.wait_for_peer(self.limits.get().tls_handshakes, hello.io.bytes());
        // SEC-3: the wait for the turn is ours.
        deadline += asked.elapsed();
        let generation = tls.watched.in_force().epoch();
        // The key exchange and our signature are computed here.
        let accept = hello
            .into_stream_with(generation.config.clone(), |session| {
                session.set_buffer_limit(Some(BUFFER_BYTES))
            })
            .into_fallible();
        drop(turn);
        let mut stream = match timeout_at(deadline, accept).await {
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

/// Says why, then reads and drops the rest of the peer's bytes.
async fn last_words(mut socket: Guard, reason: Reason) -> io::Result<()> {
    let is_http1 = socket.opening() == Some(Opening::Http1);
    socket.relax();
    if reason == Reason::NotTls && is_http1 {
        socket.write_all(PLAINTEXT_ANSWER).await?;
    }
    socket.shutdown().await?;
    let mut dropped = 0;
    let mut buffer = [0; 4096];
    while dropped < LINGER_BYTES {
        match socket.read(&mut buffer).await? {
            0 => break,
            bytes => dropped += bytes,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec_7_the_plaintext_answer_has_its_length() {
        let text = std::str::from_utf8(PLAINTEXT_ANSWER).unwrap_or_default();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }
}
