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
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::FutureExt;
use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, Instant, Timeout, timeout, timeout_at};
use tokio_rustls::server::{StartHandshake, TlsStream};
use tokio_rustls::{FallibleAccept, LazyConfigAcceptor};

use self::guard::{First, Guard, Opening};
use self::places::{Place, Places, Seat};
use self::threads::Threads;
use self::turn::{Turn, Turns};
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

/// A peer that has begun its handshake.
struct Begun {
    socket: Plain,
    first: First,
    deadline: Instant,
    place: Place,
}

/// A handshake that may be computed.
struct Due {
    hello: StartHandshake<Guard>,
    turn: Turn,
    deadline: Instant,
    place: Place,
}

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
        // A peer that is silent, or slow with its hello, costs no memory of TLS (SEC-1). A local peer that sends tiny pieces soon has
        // to wait for a reader, as the kernel counts each piece with its overhead.
        let is_local = matches!(socket, Plain::Unix(_));
        let judge = |bytes: &[u8]| {
            First::of(bytes).or_else(|| (is_local && !bytes.is_empty()).then_some(First::Other))
        };
        let Ok(first) = timeout_at(deadline, socket.peek(judge)).await else {
            return Err((timed_out(), None));
        };
        let first = first.unwrap_or(First::Other);
        let mut begun = Begun { socket, first, deadline, place };
        // Thousands may wait here: their hellos stay in the kernel.
        let turn = match first {
            First::Record(_) => {
                match self.computing.turn(&mut begun.place, &mut begun.deadline, &begun.socket).await {
                    Ok(turn) => Some(turn),
                    Err(refusal) => {
                        return Err((refusal, Some(Guard::new(begun.socket, begun.place.seat()))));
                    }
                }
            }
            First::Other => None,
        };
        let exchange = self.computing.clone().exchange(begun, turn, tls.clone());
        self.threads.spawn(exchange).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a TLS handshake was interrupted");
            Err((Refusal::new(Reason::Other, "interrupted"), None))
        })
    }
}

impl Computing {
    /// Each stage has memory of its own, since thousands of handshakes may be in the last one.
    async fn exchange(
        self: Arc<Self>,
        begun: Begun,
        turn: Option<Turn>,
        tls: ListenerTls,
    ) -> Result<Accepted, Failed> {
        let due = Box::pin(self.read(begun, turn)).await?;
        let generation = tls.watched.in_force().epoch();
        let (accept, _place) = due.compute(self.limits.get().tls_handshakes, &generation);
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
    async fn turn(&self, place: &mut Place, deadline: &mut Instant, peer: &Plain) -> Result<Turn, Refusal> {
        let asked = Instant::now();
        if !place.wait_for_relay() {
            return Err(Refusal::new(Reason::Rate, "too many handshakes wait for their turn"));
        }
        let turn = self.turns.take(&self.limits, peer).await;
        // SEC-3: the wait for the turn is ours.
        *deadline += asked.elapsed();
        turn.ok_or_else(|| Refusal::new(Reason::Eof, "the peer left during the handshake"))
    }

    /// Reads the ClientHello. A peer that has to send more of it gives its turn back, and waits for another one.
    async fn read(&self, begun: Begun, turn: Option<Turn>) -> Result<Due, Failed> {
        let Begun { socket, first, mut deadline, mut place } = begun;
        let mut read = pin!(read_hello(socket, place.seat(), deadline));
        let hello = match (read.as_mut().now_or_never(), turn) {
            (Some(hello), Some(turn)) => return Ok(Due { hello: hello?, turn, deadline, place }),
            (Some(hello), None) => hello?,
            (None, turn) => {
                drop(turn);
                if let First::Record(bytes) = first {
                    place.wait_for_peer(self.limits.get().tls_handshakes, bytes);
                }
                read.await?
            }
        };
        match self.turn(&mut place, &mut deadline, hello.io.plain()).await {
            Ok(turn) => Ok(Due { hello, turn, deadline, place }),
            Err(refusal) => Err((refusal, Some(hello.io))),
        }
    }
}

impl Due {
    /// Computes the key exchange and our signature. The result waits for the rest of the handshake, in its place.
    fn compute(
        self,
        places: u64,
        generation: &Generation,
    ) -> (Pin<Box<Timeout<FallibleAccept<Guard>>>>, Place) {
        let Due { hello, turn, deadline, mut place } = self;
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
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::poll_fn;
    use std::io::{IoSlice, Read};
    use std::pin::Pin;
    use std::task::Poll;
    use std::time::SystemTime;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::AsyncWrite;
    use tokio::net::UnixStream;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::trust::contents::Contents;
    use crate::trust::identity::IdentityKind;
    use crate::trust::issue::{Authority, Leaf};
    use crate::trust::pair::PairFiles;
    use crate::trust::provider::provider;
    use crate::trust::rotation::Place;
    use crate::trust::server::{ChainLimits, ClientCertificate, MinVersion, OnClientExpiry, ServerTls};

    const HOST: &str = "relay.example";
    const DAY: Duration = Duration::from_secs(86_400);

    /// Bytes of the largest DATA frame by default, and of its head.
    const FRAME: [usize; 2] = [9, 16_384];

    /// TLS of a listener that asks for no certificates, and a client's configuration.
    fn listener() -> (ListenerTls, ClientConfig) {
        #[allow(clippy::disallowed_methods, reason = "certificates are judged by wall time")]
        let now = SystemTime::now();
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("prod", DAY, now).unwrap();
        let leaf = Leaf { hosts: &[HOST], is_server: true, ..Leaf::default() };
        let own = authority.issue(&leaf, DAY, now).unwrap();
        let [certificate, private_key] = ["tls.crt", "tls.key"].map(|name| directory.path().join(name));
        std::fs::write(&certificate, own.certificate).unwrap();
        std::fs::write(&private_key, own.private_key).unwrap();
        let settings = ServerTls {
            certificates: vec![PairFiles { certificate, private_key }],
            client_certificate: ClientCertificate::None,
            anchors: None,
            identity: IdentityKind::Spiffe,
            clients: Vec::new(),
            crl: None,
            min_version: MinVersion::Tls12,
            refresh_interval: DAY,
            on_client_expiry: OnClientExpiry::End,
        };
        let place = Place {
            name: "listeners[main].tls".into(),
            files: settings.files(),
            refresh: DAY,
            build: Arc::new(move |contents: &Contents, old: Option<&Generation>, now| {
                Generation::read(&settings, ChainLimits::default(), contents, old, now)
            }),
        };
        let watched = place.watch(TlsMetrics::default()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let client = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        (ListenerTls::new(watched, InForce::new(true)), client)
    }

    /// A connection after its handshake, and the client's socket below TLS.
    async fn connected() -> (Box<TlsSocket>, std::os::unix::net::UnixStream) {
        let (tls, client) = listener();
        let handshakes = Handshakes::new(InForce::new(ServerLimits::default()), TlsMetrics::default());
        let (peer, socket) = UnixStream::pair().unwrap();
        let connector = TlsConnector::from(Arc::new(client));
        let connect = connector.connect(ServerName::try_from(HOST).unwrap(), peer);
        let (accepted, stream) =
            tokio::join!(handshakes.accept(Plain::Unix(socket), &tls, "main", None), connect);
        (accepted.unwrap().0, stream.unwrap().into_inner().0.into_std().unwrap())
    }

    /// All bytes that the kernel has for a client.
    fn drain(peer: &mut std::os::unix::net::UnixStream) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 65_536]);
        while let Ok(count @ 1..) = peer.read(&mut buffer) {
            all.extend(&buffer[..count]);
        }
        all
    }

    /// The lengths of records on the wire, with their heads.
    fn records(mut wire: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while let [_, _, _, high, low, ..] = *wire {
            let length = 5 + usize::from(u16::from_be_bytes([high, low]));
            lengths.push(length);
            wire = &wire[length..];
        }
        lengths
    }

    /// The largest size class that jemalloc takes from slabs, on pages of 4 KiB.
    const SLAB_BYTES_MAX: usize = 14_336;

    /// TLS-11. A record is one allocation, so it must not have the size class of HTTP/2's own buffer, nor be a little longer.
    #[tokio::test]
    async fn tls_11_one_data_frame_is_held_back_for_a_stuck_client() {
        let (mut stream, mut peer) = connected().await;
        let frame = FRAME.map(|length| vec![7; length]);
        let mut write = |context: &mut std::task::Context<'_>| {
            let slices = [IoSlice::new(&frame[0]), IoSlice::new(&frame[1])];
            Poll::Ready(Pin::new(&mut stream).poll_write_vectored(context, &slices))
        };
        let mut taken = 0;
        while let Poll::Ready(count) = poll_fn(&mut write).await {
            taken += count.unwrap();
        }
        let mut wire = drain(&mut peer);
        stream.flush().await.unwrap();
        let held = drain(&mut peer);
        wire.extend(&held);
        assert!(taken > 10 * FRAME[1] && wire.len() > taken, "{taken} {}", wire.len());
        assert!((FRAME[1]..=BUFFER_BYTES + 64).contains(&held.len()), "{}", held.len());
        let records = records(&wire);
        assert!(records.iter().all(|length| *length <= SLAB_BYTES_MAX), "{records:?}");
        // A whole frame is two records, as with records of the largest size.
        assert!(records.len() <= 2 * taken.div_ceil(FRAME[0] + FRAME[1]) + 1, "{records:?}");
    }

    #[test]
    fn sec_7_the_plaintext_answer_has_its_length() {
        let text = std::str::from_utf8(PLAINTEXT_ANSWER).unwrap_or_default();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }
}
