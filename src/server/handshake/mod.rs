//! TLS handshakes of clients, and their bounds (SEC-1 to SEC-4).
//!
//! A handshake is the most expensive thing that a stranger can ask for. `places` bounds the number of
//! handshakes in progress, `turn` and `threads` the CPU for them, and `guard` the bytes before a peer has
//! proved anything. `exchange` is the way of one handshake through all of them. `certificate` ends
//! connections whose client certificate ends.

pub(super) mod certificate;
mod exchange;
pub(super) mod guard;
mod places;
mod threads;
mod turn;

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, Instant, timeout};
use tokio_rustls::server::TlsStream;

use self::exchange::Computing;
use self::guard::{Guard, Opening};
use self::places::{HandshakePlace, Places};
use self::threads::Threads;
use super::limits::ServerLimits;
use super::socket::Plain;
use super::warnings::WarnTable;
use crate::telemetry::metrics::{TLS_OK, TlsMetrics};
use crate::trust::refusal::{Reason, Refusal};
use crate::trust::rotation::Watched;
use crate::trust::server::{Proved, ServerFiles};
use sluice_setting::InForce;

/// After a refusal the peer may still be sending; closing over unread bytes could destroy the alert before
/// the peer has read it (TLS-6).
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

/// TLS of one listener.
#[derive(Clone)]
pub(super) struct ListenerTls {
    pub(super) watched: Watched<ServerFiles>,
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
    pub(super) fn new(watched: Watched<ServerFiles>, ends_at_expiry: InForce<bool>) -> ListenerTls {
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
        let computing = Arc::new(Computing::new(limits, metrics.limits.clone()));
        Handshakes { places: Arc::default(), threads: Threads::default(), computing, metrics }
    }

    /// Performs the handshake of a connection. `None` if the peer was refused, or went: counted and logged
    /// already.
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
        let place = self.places.enter(self.computing.places_max());
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
        place: HandshakePlace,
    ) -> Result<Accepted, Failed> {
        let begun = self.computing.begin(socket, begin, place).await?;
        let exchange = self.computing.clone().exchange(begun, tls.clone());
        self.threads.spawn(exchange).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a TLS handshake was interrupted");
            Err((Refusal::new(Reason::Other, "interrupted"), None))
        })
    }
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
mod tests;
