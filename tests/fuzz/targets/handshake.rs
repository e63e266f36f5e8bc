//! ClientHellos and records into the server's TLS, in any segmentation.

use std::io::{self, Cursor, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::Acceptor;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use sluice::telemetry::metrics::TlsMetrics;
use sluice::trust::anchors::AnchorFiles;
use sluice::trust::contents::Contents;
use sluice::trust::identity::IdentityKind;
use sluice::trust::pair::PairFiles;
use sluice::trust::provider::provider;
use sluice::trust::rotation::WatchedPlace;
use sluice::trust::server::{
    ChainLimits, ClientCertificate, MinVersion, OnClientExpiry, ServerFiles, ServerTls,
};
use sluice_setting::InForce;

use super::draw::Draw;
use super::peer::{Host, check_panics};
use super::{Target, issue};

pub const TLS_RECORDS: Target = Target {
    name: "tls_records",
    run,
    seeds,
    words: &[
        "\u{16}\u{3}\u{1}",
        "\u{16}\u{3}\u{3}",
        "\u{14}\u{3}\u{3}\u{0}\u{1}\u{1}",
        "\u{15}\u{3}\u{3}\u{0}\u{2}\u{1}\u{0}",
        "\u{2}h2",
        "\u{8}http/1.1",
        "\u{13}\u{1}",
        "\u{0}\u{10}\u{0}",
        "\u{0}\u{2b}\u{0}",
        "\u{0}\u{33}\u{0}",
        "GET / HTTP/1.1\r\n",
    ],
    mutations: 700,
    memory: None,
};

const DAY: Duration = Duration::from_secs(86_400);

/// The bytes of a peer that the server takes before the handshake is over (SEC-4).
const BYTES_MAX: usize = 32 << 10;

struct Site {
    host: Host,
    /// The server's configuration, for the comparison.
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    _directory: tempfile::TempDir,
}

static SITE: LazyLock<Site> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let authority = issue::authority(1);
    let leaf = authority.leaf(2, &[], &["relay.example"], |_| {});
    std::fs::write(at("tls.crt"), leaf.pem()).unwrap();
    std::fs::write(at("tls.key"), issue::key(2).serialize_pem()).unwrap();
    std::fs::write(at("ca.crt"), &authority.pem).unwrap();
    let settings = ServerTls {
        certificates: vec![PairFiles { certificate: at("tls.crt"), private_key: at("tls.key") }],
        client_certificate: ClientCertificate::Optional,
        anchors: Some(AnchorFiles::Authorities { file: at("ca.crt"), trust_domain: Some("d".into()) }),
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
    let server = place.read().unwrap().config;
    let host = Host::start(|listener| {
        listener.with_tls(place.watch(TlsMetrics::default()).unwrap(), InForce::new(true))
    });
    Site { host, server, client: client(&authority), _directory: directory }
});

fn client(authority: &issue::Authority) -> Arc<ClientConfig> {
    let leaf = authority.leaf(3, &["spiffe://d/web"], &[], |_| {});
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(issue::key(3).serialize_pem().as_bytes()).unwrap();
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = builder.with_client_auth_cert(vec![leaf.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// ClientHellos of other libraries, recorded by `fuzz/record`: one in each line, after the name of the library.
const RECORDED: &str = include_str!("../recorded/client_hellos.txt");

fn seeds() -> Vec<Vec<u8>> {
    let recorded = RECORDED.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name != "#");
    let mut seeds: Vec<Vec<u8>> = recorded.map(|(_, hex)| [vec![0, 0], unhex(hex)].concat()).collect();
    seeds.push([&[0, 5][..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    seeds.push([&[0, 0][..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].concat());
    seeds.extend([
        vec![1, 0],
        vec![1, 1],
        vec![1, 7, 0, 40, 1],
        vec![1, 0, 1, 200, 9],
        vec![1, 3, 9, 0, 0x80],
    ]);
    seeds
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn run(data: &[u8]) {
    let mut draw = Draw::new(data);
    let (form, chunk) = (draw.byte(), usize::from(draw.byte()));
    let chunk = if chunk == 0 { usize::MAX } else { chunk };
    match form & 1 {
        0 => raw(draw.rest(), chunk),
        _ => handshake(draw, chunk),
    }
}

/// The answer is a handshake exactly if rustls, fed with the whole, goes on; otherwise an alert, words, or nothing.
fn raw(bytes: &[u8], chunk: usize) {
    let expected = expected(bytes);
    // A peer that has left is not worth a key exchange.
    let answer = SITE.host.talk(bytes, chunk, expected == Expected::Handshake && bytes.len() <= BYTES_MAX);
    let announced =
        bytes.get(6..9).map_or(0, |length| u32::from_be_bytes([0, length[0], length[1], length[2]]));
    if bytes.len() > BYTES_MAX || announced as usize > BYTES_MAX {
        return;
    }
    let starts_handshake = answer.first() == Some(&0x16);
    match expected {
        Expected::Handshake => assert!(starts_handshake, "{:?}", answer.first()),
        Expected::Refusal => assert!(!starts_handshake, "{:?}", answer.first()),
        Expected::Either => {}
    }
    if !starts_handshake {
        let is_alert = answer.len() == 7 && answer[0] == 0x15;
        assert!(answer.is_empty() || is_alert || answer.starts_with(b"HTTP/1.1 400 "), "{answer:?}");
    }
}

/// The first record of an answer.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    Handshake,
    Refusal,
    /// TLS 1.3 refuses a protocol only after its ServerHello.
    Either,
}

fn expected(bytes: &[u8]) -> Expected {
    let (mut acceptor, mut rest) = (Acceptor::default(), Cursor::new(bytes));
    loop {
        if acceptor.read_tls(&mut rest).map_or(true, |count| count == 0) {
            return Expected::Refusal;
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let is_taken = accepted.into_connection(SITE.server.clone()).is_ok();
                return if is_taken { Expected::Handshake } else { Expected::Either };
            }
            Err(_) => return Expected::Refusal,
        }
    }
}

/// A client that is right but for one changed byte. Without the change its request is answered.
fn handshake(mut draw: Draw<'_>, chunk: usize) {
    let (at, change) = (usize::from(draw.byte()) << 8 | usize::from(draw.byte()), draw.byte());
    let name = ServerName::try_from("relay.example").unwrap();
    let mut client = ClientConnection::new(SITE.client.clone(), name).unwrap();
    let mut socket = Tampered { socket: SITE.host.connect(), chunk, at, change, written: 0 };
    let mut stream = rustls::Stream::new(&mut client, &mut socket);
    let mut answer = Vec::new();
    let asked = stream.write_all(b"GET /none HTTP/1.1\r\nHost: relay.example\r\nConnection: close\r\n\r\n");
    let read = asked.and_then(|()| stream.read_to_end(&mut answer));
    let is_late =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    // A changed length makes the server wait for bytes that never come: the peer has to leave.
    let was_changed = change != 0 && at < socket.written;
    if !was_changed {
        assert!(read.is_ok(), "{read:?}");
        assert!(answer.starts_with(b"HTTP/1.1 4"), "{:?}", String::from_utf8_lossy(&answer));
    } else {
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{:?}",
            String::from_utf8_lossy(&answer)
        );
        assert!(!read.as_ref().is_err_and(is_late) || answer.is_empty(), "{read:?}");
    }
    check_panics();
}

/// Writes in chunks, with one byte changed. After the change, reads end soon.
struct Tampered {
    socket: UnixStream,
    chunk: usize,
    at: usize,
    change: u8,
    written: usize,
}

impl Read for Tampered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.change != 0 && self.at < self.written {
            let _ = self.socket.shutdown(std::net::Shutdown::Write);
        }
        self.socket.read(buffer)
    }
}

impl Write for Tampered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut chunk = bytes[..bytes.len().min(self.chunk)].to_vec();
        if let Some(byte) = self.at.checked_sub(self.written).and_then(|at| chunk.get_mut(at)) {
            *byte ^= self.change;
        }
        let count = self.socket.write(&chunk)?;
        self.written += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
