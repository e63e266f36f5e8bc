//! Attacks by records of TLS after a good handshake: a client with a certificate that misbehaves below HTTP.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion,
    SupportedCipherSuite,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::arena::{HOST, Mode, Target};
use crate::attack::{Attack, Outcome, Script, Sign, Strand, TLS, attack, closes};
use crate::crowd::{crowd, drain, lanes, unopened, until_closed};
use crate::frames::{self, PING};
use crate::hello::Hello;

const PAUSE: Duration = Duration::from_millis(50);
const LANES: usize = 2;

/// Sooner than the close of a client that answers no PING.
const CLOSED_AT_ONCE: Duration = Duration::from_secs(2);

const ERROR: Sign = closes(&["error"]);

/// A record of the flood: its kind and its content.
type Piece = (ContentType, Vec<u8>);

pub const ALL: &[Attack] = &[
    attack("renegotiation", TLS, ERROR, Script::Own(|strand| Box::pin(repeat(strand, V::Tls12, hello)))),
    attack(
        "alerts of TLS 1.2",
        TLS,
        ERROR,
        Script::Own(|strand| Box::pin(repeat(strand, V::Tls12, warning))),
    ),
    attack(
        "alerts of TLS 1.3",
        TLS,
        ERROR,
        Script::Own(|strand| Box::pin(repeat(strand, V::Tls13, warning))),
    ),
    attack("empty records", TLS, ERROR, Script::Own(|strand| Box::pin(repeat(strand, V::Tls13, empty)))),
    attack(
        "records of an unknown kind",
        TLS,
        ERROR,
        Script::Own(|strand| Box::pin(repeat(strand, V::Tls13, odd))),
    ),
    attack(
        "endless messages after the handshake",
        TLS,
        ERROR,
        Script::Own(|strand| Box::pin(repeat(strand, V::Tls13, endless))),
    ),
    attack(
        "plaintext after the handshake",
        TLS,
        ERROR,
        Script::Own(|strand| {
            Box::pin(lanes(strand, LANES, PAUSE, |strand| async move {
                ended(strand, vec![20, 3, 3, 0, 1, 1]).await
            }))
        }),
    ),
    attack(
        "KeyUpdate",
        TLS,
        ERROR,
        Script::Own(|strand| Box::pin(lanes(strand, LANES, PAUSE, |strand| key_updates(strand, false)))),
    ),
    attack(
        "KeyUpdate with data between",
        TLS,
        closes(&["control_flood"]),
        Script::Own(|strand| Box::pin(lanes(strand, LANES, PAUSE, |strand| key_updates(strand, true)))),
    ),
    attack(
        "a byte in each record",
        TLS,
        closes(&["control_flood"]),
        Script::Own(|strand| Box::pin(lanes(strand, LANES, PAUSE, small_records))),
    ),
    attack(
        "a record that does not end",
        TLS,
        closes(&["keepalive"]),
        // They are clients with a stream, of which each takes 38 KiB with its record: the bound has room for 800.
        Script::Own(|strand| Box::pin(crowd(strand.clone(), strand.count(800, 100), dribbled))),
    ),
];

#[derive(Clone, Copy)]
enum V {
    Tls12,
    Tls13,
}

fn hello() -> Piece {
    (ContentType::Handshake, Hello::default().message())
}

/// `user_canceled`, a warning.
fn warning() -> Piece {
    (ContentType::Alert, vec![1, 90])
}

fn empty() -> Piece {
    (ContentType::ApplicationData, Vec::new())
}

fn odd() -> Piece {
    (ContentType::Unknown(99), vec![0; 16])
}

/// A message of 16 MiB, and its beginning again and again.
fn endless() -> Piece {
    (ContentType::Handshake, [&[4, 0xff, 0xff, 0xff][..], &[0; 8_000]].concat())
}

/// A connection after its handshake, apart from the stack that made it.
async fn connect(target: &Target, mut config: ClientConfig) -> io::Result<(TcpStream, ClientConnection)> {
    config.enable_secret_extraction = true;
    let socket = target.tcp(Mode::Tls).await?;
    let name = ServerName::try_from(HOST).unwrap();
    Ok(TlsConnector::from(Arc::new(config)).connect(name, socket).await?.into_inner())
}

/// Encrypts any record.
struct Forger {
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
}

impl Forger {
    fn new(connection: ClientConnection) -> Forger {
        let suite = connection.negotiated_cipher_suite().unwrap();
        let secrets = connection.dangerous_extract_secrets().unwrap();
        let (sequence, keys) = secrets.tx;
        let (key, iv, is_gcm) = match keys {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv }
            | ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (key, iv, true),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv, false),
            _ => panic!("an unknown cipher"),
        };
        let encrypter = match suite {
            SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
            // In TLS 1.2 a part of the nonce is in the record (RFC 5288).
            SupportedCipherSuite::Tls12(suite) => {
                let (fixed, explicit) = iv.as_ref().split_at(if is_gcm { 4 } else { 12 });
                suite.aead_alg.encrypter(key, fixed, explicit)
            }
        };
        let mut forger = Forger { encrypter, sequence: 0 };
        // The cipher takes the first nonce for the beginning of all, and checks the others against the first.
        if sequence > 0 {
            let _ = forger.forge(&empty());
        }
        forger.sequence = sequence;
        forger
    }

    fn forge(&mut self, (typ, payload): &Piece) -> Vec<u8> {
        let payload = OutboundChunks::Single(payload);
        let message = OutboundPlainMessage { typ: *typ, version: ProtocolVersion::TLSv1_2, payload };
        let record = self.encrypter.encrypt(message, self.sequence).unwrap();
        self.sequence += 1;
        record.encode()
    }
}

/// The same record again and again, until the relay closes.
async fn repeat(strand: Strand, version: V, piece: fn() -> Piece) -> Outcome {
    lanes(strand, LANES, PAUSE, move |strand| async move {
        let begin = Instant::now();
        let (socket, connection) = match connect(&strand.target, config(&strand, version)).await {
            Ok(connected) => connected,
            Err(error) => return unopened(error),
        };
        let (mut read, mut write) = socket.into_split();
        let mut forger = Forger::new(connection);
        let piece = piece();
        let _ = write.write_all(&forger.forge(&(ContentType::ApplicationData, frames::opening()))).await;
        until_heard(&mut read).await;
        let flood = async {
            while write.write_all(&forger.forge(&piece)).await.is_ok() {
                tokio::task::yield_now().await;
            }
            // The end of the read is the proof.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = until_closed(read, begin, CLOSED_AT_ONCE) => outcome,
            () = flood => unreachable!(),
        }
    })
    .await
}

/// The relay serves HTTP from here on: it has answered the opening.
async fn until_heard(read: &mut (impl AsyncRead + Unpin)) {
    let _ = timeout(CLOSED_AT_ONCE, read.read(&mut [0; 512])).await;
}

fn config(strand: &Strand, version: V) -> ClientConfig {
    let versions: &[_] = match version {
        V::Tls12 => &[&rustls::version::TLS12],
        V::Tls13 => &[&rustls::version::TLS13],
    };
    strand.target.trust.client_by(versions, &[b"h2"])
}

/// Sends these bytes beside TLS.
async fn ended(strand: Strand, bytes: Vec<u8>) -> Outcome {
    let begin = Instant::now();
    let (mut socket, connection) = match connect(&strand.target, config(&strand, V::Tls13)).await {
        Ok(connected) => connected,
        Err(error) => return unopened(error),
    };
    let mut forger = Forger::new(connection);
    let _ = socket.write_all(&forger.forge(&(ContentType::ApplicationData, frames::opening()))).await;
    until_heard(&mut socket).await;
    let _ = socket.write_all(&bytes.repeat(3)).await;
    until_closed(socket, begin, CLOSED_AT_ONCE).await
}

async fn key_updates(strand: Strand, has_data: bool) -> Outcome {
    let ping = frames::frame(PING, 0, 0, &[0; 8]);
    let mut at = 0;
    own_stack(strand, move |connection| {
        let _ = connection.refresh_traffic_keys();
        if has_data {
            let _ = connection.writer().write(&ping[at % ping.len()..][..1]);
            at += 1;
        }
    })
    .await
}

async fn small_records(strand: Strand) -> Outcome {
    let pings = frames::frame(PING, 0, 0, &[0; 8]);
    own_stack(strand, move |connection| {
        for byte in &pings {
            let _ = connection.writer().write(&[*byte]);
        }
    })
    .await
}

/// Lets rustls write, after its handshake, the records of `next` again and again.
async fn own_stack(strand: Strand, mut next: impl FnMut(&mut ClientConnection)) -> Outcome {
    let begin = Instant::now();
    let (socket, mut connection) = match connect(&strand.target, config(&strand, V::Tls13)).await {
        Ok(connected) => connected,
        Err(error) => return unopened(error),
    };
    let (mut read, mut write) = socket.into_split();
    let _ = connection.writer().write(&frames::opening());
    let mut opening = Vec::new();
    let _ = connection.write_tls(&mut opening);
    let _ = write.write_all(&opening).await;
    until_heard(&mut read).await;
    let flood = async {
        loop {
            let mut bytes = Vec::new();
            for _ in 0..50 {
                next(&mut connection);
                while connection.wants_write() {
                    let _ = connection.write_tls(&mut bytes);
                }
            }
            if write.write_all(&bytes).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let closed = async {
        tokio::select! {
            () = drain(read) => {}
            () = flood => {}
        }
    };
    Outcome::of_close(begin, timeout(CLOSED_AT_ONCE, closed).await.is_ok())
}

/// The head of a record of 16 KiB, and a byte now and then: no sign of life (SEC-8).
async fn dribbled(strand: Strand) -> Outcome {
    let begin = Instant::now();
    let (mut socket, connection) = match connect(&strand.target, config(&strand, V::Tls13)).await {
        Ok(connected) => connected,
        Err(error) => return unopened(error),
    };
    let mut forger = Forger::new(connection);
    let opening =
        [frames::opening(), frames::headers(1), frames::request(1, crate::slow::nothing())].concat();
    let _ = socket.write_all(&forger.forge(&(ContentType::ApplicationData, opening))).await;
    let _ = socket.write_all(&[23, 3, 3, 0x40, 0x11]).await;
    let (read, mut write) = socket.into_split();
    let dribble = async {
        while write.write_all(&[0]).await.is_ok() {
            sleep(Duration::from_millis(200)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        outcome = until_closed(read, begin, strand.patience()) => outcome,
        () = dribble => unreachable!(),
    }
}
