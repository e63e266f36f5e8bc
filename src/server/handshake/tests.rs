#![allow(clippy::unwrap_used)]

use std::future::poll_fn;
use std::io::{IoSlice, Read, Write};
use std::pin::Pin;
use std::task::Poll;
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWrite;
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use super::exchange::{BUFFER_BYTES, Computing};
use super::guard::First;
use super::*;
use crate::trust::contents::Contents;
use crate::trust::identity::IdentityKind;
use crate::trust::issue::{Authority, Leaf};
use crate::trust::pair::PairFiles;
use crate::trust::provider::provider;
use crate::trust::rotation::WatchedPlace;
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
    let place = WatchedPlace {
        name: "listeners[main].tls".into(),
        files: settings.files(),
        refresh: DAY,
        build: Arc::new(move |contents: &Contents, old: Option<&ServerFiles>, now| {
            ServerFiles::read(&settings, ChainLimits::default(), contents, old, now)
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

/// TLS-11. A record is one allocation, so it must not have the size class of HTTP/2's own buffer, nor be a
/// little longer.
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

fn hello(client: ClientConfig) -> Vec<u8> {
    let name = ServerName::try_from(HOST).unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// A socket with a whole ClientHello to be read, its other end, and a view of the unread bytes.
fn greeted(client: ClientConfig) -> (Plain, std::os::unix::net::UnixStream, impl Fn() -> u64) {
    let (peer, socket) = UnixStream::pair().unwrap();
    let mut peer = peer.into_std().unwrap();
    peer.write_all(&hello(client)).unwrap();
    let socket = socket.into_std().unwrap();
    let view = socket.try_clone().unwrap();
    let unread = move || rustix::io::ioctl_fionread(&view).unwrap();
    (Plain::Unix(UnixStream::from_std(socket).unwrap()), peer, unread)
}

/// Thousands of hellos may wait for their turn, so that they must cost no memory of TLS.
#[tokio::test]
async fn sec_2_a_hello_stays_in_the_kernel_until_its_turn() {
    let (tls, client) = listener();
    let handshakes = Handshakes::new(InForce::new(ServerLimits::default()), TlsMetrics::default());
    let (other, _other_peer) = UnixStream::pair().unwrap();
    let (other, mut turns) = (Plain::Unix(other), Vec::new());
    for _ in 0..turn::FIXED_MAX {
        let Computing { turns: all, limits, .. } = &*handshakes.computing;
        turns.push(all.take(limits, &other).await.unwrap());
    }
    let (socket, mut peer, unread) = greeted(client);
    let whole = unread();
    let served = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(whole > 100 && unread() == whole, "{} of {whole}", unread());
        drop(turns);
        while drain(&mut peer).is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(peer);
    };
    let (accepted, ()) = tokio::join!(handshakes.accept(socket, &tls, "main", None), served);
    assert!(accepted.is_none() && unread() == 0);
}

/// A unix socket is full after some 270 of the pieces, and the peer waits for a reader.
#[tokio::test]
async fn sec_2_the_hello_of_a_local_peer_may_come_byte_by_byte() {
    let (tls, client) = listener();
    let handshakes = Handshakes::new(InForce::new(ServerLimits::default()), TlsMetrics::default());
    let (peer, socket) = UnixStream::pair().unwrap();
    let hello = hello(client);
    let (mut read, mut write) = peer.into_split();
    let sent = async {
        for byte in &hello {
            write.write_all(std::slice::from_ref(byte)).await.unwrap();
        }
        let mut answer = [0; 6];
        read.read_exact(&mut answer).await.unwrap();
        // A ServerHello.
        assert_eq!((answer[0], answer[5]), (22, 2));
        drop((read, write));
    };
    let (accepted, ()) = tokio::join!(handshakes.accept(Plain::Unix(socket), &tls, "main", None), sent);
    assert!(accepted.is_none());
}

#[tokio::test]
async fn sec_2_the_hello_of_a_peer_that_has_left_is_not_read() {
    let (_, client) = listener();
    let handshakes = Handshakes::new(InForce::new(ServerLimits::default()), TlsMetrics::default());
    let (socket, peer, unread) = greeted(client);
    let whole = unread();
    drop(peer);
    let (mut deadline, mut place) = (Instant::now() + DAY, handshakes.places.enter(16));
    assert!(socket.peek(First::of).await.is_some());
    let refusal = handshakes.computing.turn(&mut place, &mut deadline, &socket).await.err();
    assert_eq!(refusal.map(|refusal| refusal.reason), Some(Reason::Eof));
    assert_eq!(unread(), whole);
}

#[test]
fn sec_7_the_plaintext_answer_has_its_length() {
    let text = std::str::from_utf8(PLAINTEXT_ANSWER).unwrap_or_default();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
}
