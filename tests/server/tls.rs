//! TLS of listeners: protocols, refusals, bounds before the end of a handshake, and the end of certificates.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, ClientConfig, HandshakeKind, RootCertStore};
use sluice::driver::api::downstream::Variant;
use sluice::server::{Listener, ServerLimits};
use sluice::telemetry::Limit;
use sluice::telemetry::metrics::TlsMetrics;
use sluice::trust::anchors::AnchorFiles;
use sluice::trust::contents::Contents;
use sluice::trust::identity::IdentityKind;
use sluice::trust::issue::{Authority, Issued, Leaf};
use sluice::trust::pair::PairFiles;
use sluice::trust::provider::provider;
use sluice::trust::rotation::WatchedPlace;
use sluice::trust::server::{
    ChainLimits, ClientCertificate, MinVersion, OnClientExpiry, ServerFiles, ServerTls,
};
use sluice_identity::Identity;
use sluice_setting::InForce;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::closing;
use crate::kit::{Client, Running, SOTW, eventually, soon, start_on};
use crate::raw;

const DAY: Duration = Duration::from_secs(86_400);
const WEB: &str = "spiffe://prod.example/ns/shop/sa/web";
const CLIENT: Leaf<'_> = Leaf { uris: &[WEB], hosts: &[], is_server: false, is_client: true };
const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];

#[allow(clippy::disallowed_methods, reason = "certificates are judged by wall time")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// A server with TLS, the authority of all, and the files.
struct Fixture {
    directory: tempfile::TempDir,
    authority: Authority,
    server: Running,
}

impl Fixture {
    fn new(client_certificate: ClientCertificate, limits: ServerLimits) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("prod", DAY, now()).unwrap();
        let leaf = Leaf { hosts: &["relay.example"], is_server: true, ..Leaf::default() };
        let own = authority.issue(&leaf, DAY, now()).unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("tls.crt"), own.certificate).unwrap();
        std::fs::write(at("tls.key"), own.private_key).unwrap();
        std::fs::write(at("ca.crt"), authority.pem()).unwrap();
        let settings = ServerTls {
            certificates: vec![PairFiles { certificate: at("tls.crt"), private_key: at("tls.key") }],
            client_certificate,
            anchors: (client_certificate != ClientCertificate::None).then(|| AnchorFiles::Authorities {
                file: at("ca.crt"),
                trust_domain: Some("prod.example".into()),
            }),
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
        let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let server = start_on(limits, vec![listener.with_tls(watched, InForce::new(true))], address);
        Fixture { directory, authority, server }
    }

    fn mutual() -> Fixture {
        Fixture::new(ClientCertificate::Required, ServerLimits::default())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn issue(&self, leaf: &Leaf<'_>, life: Duration) -> Issued {
        self.authority.issue(leaf, life, now()).unwrap()
    }

    fn config(&self, issued: Option<&Issued>, alpn: &[&[u8]]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let builder =
            ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match issued {
            None => builder.with_no_client_auth(),
            Some(issued) => {
                let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(issued.private_key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        config
    }

    async fn connect(&self, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = TcpStream::connect(self.server.address).await.unwrap();
        let name = ServerName::try_from("relay.example").unwrap();
        soon(TlsConnector::from(Arc::new(config)).connect(name, socket)).await
    }

    /// A client with a good certificate.
    async fn client(&self, life: Duration) -> Client {
        let issued = self.issue(&CLIENT, life);
        let stream = self.connect(self.config(Some(&issued), &[b"h2"])).await.unwrap();
        Client::new(stream, h2::client::Builder::new()).await
    }

    /// The alert that a client reads, although it believes to be connected and keeps on sending (TLS-6).
    async fn alert(&self, config: ClientConfig) -> AlertDescription {
        let mut stream = match self.connect(config).await {
            Ok(stream) => stream,
            Err(error) => return alert_of(&error),
        };
        let bytes = [raw::PREFACE, &[0; 61 * 1024]].concat();
        let _ = stream.write_all(&bytes).await;
        let mut rest = Vec::new();
        match soon(stream.read_to_end(&mut rest)).await {
            Err(error) => alert_of(&error),
            Ok(_) => panic!("the connection was accepted"),
        }
    }

    fn handshakes(&self, result: &'static str) -> u64 {
        self.server.metrics.tls.handshakes(result)
    }
}

fn alert_of(error: &std::io::Error) -> AlertDescription {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => *alert,
        _ => panic!("no alert: {error:?}"),
    }
}

#[tokio::test]
async fn idn_1_the_identity_of_the_certificate_reaches_the_relay() {
    let fixture = Fixture::mutual();
    let mut client = fixture.client(DAY).await;
    let _call = client.open(SOTW).await;
    let peer = fixture.server.relay.stream(0).await.peer;
    assert!(matches!(&*peer.identity, Identity::Spiffe(id) if id.as_str() == WEB), "{:?}", peer.identity);

    let optional = Fixture::new(ClientCertificate::Optional, ServerLimits::default());
    let stream = optional.connect(optional.config(None, &[b"h2"])).await.unwrap();
    let mut client = Client::new(stream, h2::client::Builder::new()).await;
    let _call = client.open(SOTW).await;
    assert_eq!(*optional.server.relay.stream(0).await.peer.identity, Identity::Anonymous);
    let foreign = Authority::new("prod", DAY, now()).unwrap().issue(&CLIENT, DAY, now()).unwrap();
    let alert = optional.alert(optional.config(Some(&foreign), &[b"h2"])).await;
    assert_eq!(alert, AlertDescription::DecryptError, "a bad certificate is no anonymous one");
}

#[tokio::test]
async fn tls_3_alpn_and_the_first_bytes_agree() {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: relay.example\r\n\r\n";
    let fixture = Fixture::new(ClientCertificate::None, ServerLimits::default());
    for (alpn, bytes, is_served) in [
        (&[&b"h2"[..]][..], raw::PREFACE, true),
        (&[b"h2"], GET, false),
        (&[b"http/1.1"], GET, true),
        (&[b"http/1.1"], raw::PREFACE, false),
        (BOTH, raw::PREFACE, true),
        (&[], GET, true),
        (&[], raw::PREFACE, false),
    ] {
        let mut stream = fixture.connect(fixture.config(None, alpn)).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = [0; 9];
        let got = soon(stream.read(&mut answer)).await.unwrap_or(0);
        assert_eq!(got > 0, is_served, "{alpn:?} {:?}", &bytes[..3]);
    }
    eventually("mismatches are counted", || fixture.server.metrics.closed_alpn.get() == 3).await;
    drop(fixture.connect(fixture.config(None, BOTH)).await.unwrap());
    eventually("who says nothing is no mismatch", || fixture.server.metrics.closed_not_http.get() == 1).await;
    assert_eq!(fixture.server.metrics.closed_alpn.get(), 3);
    let error = fixture.connect(fixture.config(None, &[b"foo"])).await.unwrap_err();
    assert_eq!(alert_of(&error), AlertDescription::NoApplicationProtocol);
    eventually("and counted", || fixture.handshakes("alpn") == 1).await;
}

#[tokio::test]
async fn tls_6_every_refused_client_reads_the_alert() {
    let fixture = Fixture::mutual();
    let expired = fixture.authority.issue(&CLIENT, Duration::ZERO, now() - DAY).unwrap();
    let server_only = fixture.issue(&Leaf { is_server: true, is_client: false, ..CLIENT }, DAY);
    let nameless = fixture.issue(&Leaf { uris: &[], hosts: &["web"], ..CLIENT }, DAY);
    let other_domain = fixture.issue(&Leaf { uris: &["spiffe://other.example/a"], ..CLIENT }, DAY);
    for (issued, alert, result) in [
        (None, AlertDescription::CertificateRequired, "no_certificate"),
        (Some(&expired), AlertDescription::CertificateExpired, "expired"),
        (Some(&server_only), AlertDescription::UnsupportedCertificate, "purpose"),
        (Some(&nameless), AlertDescription::CertificateUnknown, "identity"),
        (Some(&other_domain), AlertDescription::UnknownCA, "unknown_issuer"),
    ] {
        for _ in 0..10 {
            assert_eq!(fixture.alert(fixture.config(issued, BOTH)).await, alert, "{result}");
        }
        eventually(result, || fixture.handshakes(result) == 10).await;
    }
    assert_eq!(fixture.server.relay.opened(), 0);
}

#[tokio::test]
async fn tls_4_nothing_is_resumed() {
    let fixture = Fixture::mutual();
    let issued = fixture.issue(&CLIENT, DAY);
    let config = Arc::new(fixture.config(Some(&issued), &[b"h2"]));
    for _ in 0..3 {
        let socket = TcpStream::connect(fixture.server.address).await.unwrap();
        let name = ServerName::try_from("relay.example").unwrap();
        let stream = soon(TlsConnector::from(config.clone()).connect(name, socket)).await.unwrap();
        assert_ne!(stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));
        let mut client = Client::new(stream, h2::client::Builder::new()).await;
        let _ = client.open(SOTW).await;
    }
}

#[tokio::test]
async fn sec_7_plaintext_is_answered_in_words() {
    let fixture = Fixture::mutual();
    let socket = TcpStream::connect(fixture.server.address).await.unwrap();
    let answer = raw::talk(socket, b"GET /ready HTTP/1.1\r\n\r\n".to_vec()).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("use https://\n"), "{answer}");
    let socket = TcpStream::connect(fixture.server.address).await.unwrap();
    assert!(raw::talk(socket, raw::PREFACE.to_vec()).await.is_empty());
    eventually("both are counted", || fixture.handshakes("not_tls") == 2).await;
}

/// TLS-2, TLS-13: real clients, from OpenSSL to Go's `crypto/tls`, get their ServerHello without a second round.
#[tokio::test]
async fn tls_13_the_hellos_of_other_libraries_are_accepted() {
    const RECORDED: &str = include_str!("../fuzz/recorded/client_hellos.txt");
    /// RFC 8446, section 4.1.3: the first bytes of the random value that asks for another hello.
    const RETRY: [u8; 4] = [0xcf, 0x21, 0xad, 0x74];
    let fixture = Fixture::new(ClientCertificate::Required, ServerLimits::default());
    let hellos =
        RECORDED.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    let mut names = Vec::new();
    for (name, hex) in hellos {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let hello: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let mut socket = TcpStream::connect(fixture.server.address).await.unwrap();
        socket.write_all(&hello).await.unwrap();
        // Record, ServerHello, version, random.
        let mut head = [0; 15];
        let answer = soon(socket.read_exact(&mut head)).await;
        // Go extends the master secret of TLS 1.2 from 1.21 on.
        if ["openssl-tls1.1", "go-1.19-tls1.2"].contains(&name) {
            assert!(answer.is_err() && head[0] == 0x15, "{name}: {head:?}");
            continue;
        }
        assert!(head[0] == 0x16 && head[5] == 2 && head[11..] != RETRY, "{name}: {head:?}");
        names.push(name);
    }
    for name in ["go", "go-tls1.2", "go-1.19", "envoy-tls1.3", "grpc-core", "grpc-js", "curl", "python"] {
        assert!(names.contains(&name), "{name} is not recorded");
    }
}

#[tokio::test]
async fn sec_1_silent_peers_do_not_shut_the_door() {
    let limits = ServerLimits { tls_handshakes: 16, ..ServerLimits::default() };
    let fixture = Fixture::new(ClientCertificate::Required, limits);
    let mut silent = Vec::new();
    // 16 handshakes of 36 KiB are 249 silent peers.
    for _ in 0..310 {
        silent.push(TcpStream::connect(fixture.server.address).await.unwrap());
    }
    let begin = Instant::now();
    let mut client = fixture.client(DAY).await;
    let _call = client.open(SOTW).await;
    fixture.server.relay.stream(0).await;
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    eventually("the oldest went", || fixture.handshakes("evicted") >= 58).await;
}

/// A fleet that returns connects first; each client sends its hello when the client's turn comes.
#[tokio::test]
async fn sec_1_a_fleet_that_returns_is_not_evicted() {
    const CLIENTS: usize = 300;
    let limits = ServerLimits { tls_handshakes: 64, ..ServerLimits::default() };
    let fixture = Fixture::new(ClientCertificate::Required, limits);
    let issued = fixture.issue(&CLIENT, DAY);
    let connector = TlsConnector::from(Arc::new(fixture.config(Some(&issued), &[b"h2"])));
    let mut sockets = Vec::new();
    for _ in 0..CLIENTS {
        sockets.push(TcpStream::connect(fixture.server.address).await.unwrap());
    }
    let all_came = || fixture.server.metrics.connections_open.get() == CLIENTS as i64;
    eventually("all are connected", all_came).await;
    for socket in sockets {
        let name = ServerName::try_from("relay.example").unwrap();
        soon(connector.connect(name, socket)).await.unwrap();
    }
    eventually("all are served", || fixture.handshakes("ok") == CLIENTS as u64).await;
    assert_eq!(fixture.handshakes("evicted"), 0);
}

#[tokio::test]
async fn sec_9_an_identity_at_its_limit_harms_no_other() {
    let limits = ServerLimits { connections_per_identity: Some(2), ..ServerLimits::default() };
    let fixture = Fixture::new(ClientCertificate::Optional, limits);
    let (first, _second) = (fixture.client(DAY).await, fixture.client(DAY).await);
    let issued = fixture.issue(&CLIENT, DAY);
    // The relay closes after the handshake; in TLS 1.3 the client has already finished its own.
    let mut third = fixture.connect(fixture.config(Some(&issued), &[b"h2"])).await.unwrap();
    assert!(!matches!(soon(third.read(&mut [0; 9])).await, Ok(1..)));
    assert_eq!(fixture.server.metrics.limit_hits(Limit::ConnectionsPerIdentity), 1);
    let other = fixture.issue(&Leaf { uris: &["spiffe://prod.example/ns/shop/sa/api"], ..CLIENT }, DAY);
    for issued in [Some(&other), Some(&other), None, None, None] {
        let stream = fixture.connect(fixture.config(issued, &[b"h2"])).await.unwrap();
        let client = Client::new(stream, h2::client::Builder::new()).await;
        drop(client);
    }
    drop(first);
    eventually("the place is free again", || fixture.server.metrics.connections_open.get() == 1).await;
    let _again = fixture.client(DAY).await;
    assert_eq!(fixture.server.metrics.limit_hits(Limit::ConnectionsPerIdentity), 1);
}

#[tokio::test]
async fn sec_2_handshakes_are_computed_at_a_rate() {
    let limits = ServerLimits { tls_handshakes_per_second: 20, ..ServerLimits::default() };
    let fixture = Fixture::new(ClientCertificate::Required, limits);
    let hello = client_hello(&fixture);
    let begin = Instant::now();
    let mut peers = Vec::new();
    for _ in 0..26 {
        let mut peer = TcpStream::connect(fixture.server.address).await.unwrap();
        peer.write_all(&hello).await.unwrap();
        peers.push(peer);
    }
    for peer in &mut peers {
        // The ServerHello.
        soon(peer.read_exact(&mut [0; 1])).await.unwrap();
    }
    // Two have the turns of the 100 ms before.
    assert!(begin.elapsed() >= Duration::from_millis(1_100), "{:?}", begin.elapsed());
    assert!(
        fixture.server.metrics.limit_hits(Limit::TlsHandshakesPerSecond) > 0,
        "some waited for over a second"
    );
}

#[tokio::test]
async fn sec_3_a_slow_handshake_is_closed_in_time() {
    const SHORT: Duration = Duration::from_millis(300);
    let limits = ServerLimits { tls_handshake_timeout: SHORT, ..ServerLimits::default() };
    let fixture = Fixture::new(ClientCertificate::Required, limits);
    let hello = client_hello(&fixture);
    for (sent, pause) in [(0, SHORT), (5, SHORT), (hello.len(), SHORT), (hello.len() / 2, SHORT)] {
        let mut socket = TcpStream::connect(fixture.server.address).await.unwrap();
        socket.write_all(&hello[..sent]).await.unwrap();
        let begin = Instant::now();
        let mut answer = Vec::new();
        let _ = soon(socket.read_to_end(&mut answer)).await;
        assert!(begin.elapsed() + Duration::from_millis(20) >= pause, "{sent}");
    }
    eventually("all are counted", || fixture.handshakes("timeout") == 4).await;
}

/// The first flight of a client, as bytes.
fn client_hello(fixture: &Fixture) -> Vec<u8> {
    let name = ServerName::try_from("relay.example").unwrap();
    let config = Arc::new(fixture.config(None, &[b"h2"]));
    let mut connection = rustls::ClientConnection::new(config, name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// A hybrid ClientHello spans two segments in practice (TLS-13); some stacks cut it into records as well.
#[tokio::test]
async fn tls_13_a_client_hello_may_be_cut_anywhere() {
    let fixture = Fixture::new(ClientCertificate::None, ServerLimits::default());
    let hello = client_hello(&fixture);
    let answers = async |pieces: Vec<Vec<u8>>| {
        let mut socket = TcpStream::connect(fixture.server.address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        for piece in pieces {
            socket.write_all(&piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut first = [0; 1];
        soon(socket.read_exact(&mut first)).await.unwrap();
        first[0]
    };
    for cut in (1..hello.len()).step_by(97).chain([1, 4, 5, 6, 8, 9]) {
        assert_eq!(answers(vec![hello[..cut].to_vec(), hello[cut..].to_vec()]).await, 22, "{cut}");
    }
    assert_eq!(answers(hello.chunks(1).map(<[u8]>::to_vec).collect()).await, 22, "byte by byte");
    let records = |size: usize| {
        let chunks = hello[5..].chunks(size);
        chunks.map(|chunk| [&[22, 3, 1, 0, chunk.len() as u8][..], chunk].concat()).collect::<Vec<_>>()
    };
    // A byte in each record: served, or refused by an alert, and never a panic.
    assert!([21, 22].contains(&answers(records(1)).await));
    assert_eq!(answers(records(200)).await, 22);
    let mut client = fixture.connect(fixture.config(None, &[b"h2"])).await.unwrap();
    client.write_all(raw::PREFACE).await.unwrap();
}

#[tokio::test]
async fn tls_2_old_versions_are_refused_by_an_alert() {
    let fixture = Fixture::new(ClientCertificate::None, ServerLimits::default());
    for minor in [1, 2] {
        // A ClientHello of TLS 1.0 or 1.1 without extensions.
        let body = [&[3, minor][..], &[7; 32], &[0, 0, 2, 0xc0, 0x13, 1, 0]].concat();
        let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
        let record = [&[22, 3, 1, 0, message.len() as u8][..], &message].concat();
        let socket = TcpStream::connect(fixture.server.address).await.unwrap();
        let answer = raw::talk(socket, record).await;
        let alerts = [40, 70].map(|alert| vec![21, 2, alert]);
        assert!(alerts.contains(&vec![answer[0], answer[5], answer[6]]), "{answer:?}");
    }
    eventually("both are counted", || fixture.handshakes("version") == 2).await;
}

#[tokio::test]
async fn sec_4_a_giant_is_refused_at_its_length() {
    let fixture = Fixture::new(ClientCertificate::None, ServerLimits::default());
    let socket = TcpStream::connect(fixture.server.address).await.unwrap();
    raw::talk(socket, vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff, 3, 3]).await;
    eventually("counted", || fixture.handshakes("too_large") == 1).await;
}

#[tokio::test]
async fn crt_9_a_connection_ends_with_its_certificate() {
    let fixture = Fixture::mutual();
    let client = fixture.client(Duration::from_secs(1)).await;
    soon(client.connection).await.unwrap().unwrap();
    assert_eq!(fixture.server.metrics.goaways_certificate_expiry.get(), 1);
}

/// An Envoy that reaches the relay through a cluster of a mesh, with TLS.
#[tokio::test]
async fn any_text_is_taken_as_authority_through_tls() {
    let fixture = Fixture::new(ClientCertificate::None, ServerLimits::default());
    let mut stream = fixture.connect(fixture.config(None, &[b"h2"])).await.unwrap();
    let calls = [raw::opening(), raw::calls_for_huffman(raw::MESH_IN_HUFFMAN)].concat();
    stream.write_all(&calls).await.unwrap();
    stream.write_all(&raw::headers_for("outbound|18000||host", 5, None)).await.unwrap();
    for number in 0..3 {
        assert_eq!(soon(fixture.server.relay.stream(number)).await.variant, Variant::Sotw, "call {number}");
    }
}

#[tokio::test]
async fn crt_8_a_removed_authority_ends_its_connections_and_spares_others() {
    let fixture = Fixture::mutual();
    let other = Authority::new("next", DAY, now()).unwrap();
    std::fs::write(fixture.path("ca.crt"), format!("{}{}", fixture.authority.pem(), other.pem())).unwrap();
    let by_other = other.issue(&CLIENT, DAY, now()).unwrap();
    let old = fixture.client(DAY).await;
    // The relay takes the second authority within a second.
    let spared = timeout(Duration::from_secs(5), async {
        loop {
            if let Ok(stream) = fixture.connect(fixture.config(Some(&by_other), &[b"h2"])).await {
                let mut client = Client::new(stream, h2::client::Builder::new()).await;
                let call = client.open(SOTW).await;
                if timeout(Duration::from_millis(300), fixture.server.relay.stream(0)).await.is_ok() {
                    break (client, call);
                }
            }
        }
    });
    let (spared, _call) = spared.await.unwrap();
    std::fs::write(fixture.path("ca.crt"), other.pem()).unwrap();
    timeout(Duration::from_secs(10), old.connection).await.unwrap().unwrap().unwrap();
    assert_eq!(fixture.server.metrics.goaways_certificate_refused.get(), 1);
    assert!(!spared.connection.is_finished());
}

/// HND-1: below TLS, too, nobody is reset.
#[tokio::test]
async fn hnd_1_an_ack_on_its_way_at_the_end_is_not_reset_with_tls() {
    let fixture = Fixture::new(ClientCertificate::None, ServerLimits::default());
    let socket = fixture.connect(fixture.config(None, &[b"h2"])).await.unwrap();
    closing::a_late_ack_is_not_reset(&fixture.server, socket).await;
}
