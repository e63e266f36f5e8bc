//! Attacks before the end of a handshake (SEC-1 to SEC-4, SEC-7): strangers without a certificate.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::attack::{
    Attack, CLOSED_WITHIN, Outcome, PLAIN, Run, Script, Sign, Strand, TLS, attack, closes, handshakes,
};
use crate::crowd::{crowd, drain, lanes, unopened, until_closed};
use crate::frames;
use crate::hello::{APPLICATION_DATA, HANDSHAKE, Hello, record, records};

/// A stranger begins so many handshakes a second on each lane, at most.
const PAUSE: Duration = Duration::from_millis(20);
const LANES: usize = 4;

/// A second between the bytes of a slow client in a long run.
const DRIBBLE: Duration = Duration::from_millis(200);

/// An alert comes sooner.
const WAITS: Duration = Duration::from_millis(200);

const fn stranger(name: &'static str, shown_by: Sign, run: Run) -> Attack {
    attack(name, TLS, shown_by, Script::Own(run))
}

/// On a few lanes, one handshake after the other.
macro_rules! again {
    ($one:expr) => {
        |strand| Box::pin(lanes(strand, LANES, PAUSE, $one))
    };
}

pub const ALL: &[Attack] = &[
    stranger("a flood of handshakes", handshakes(&["eof", "rate"]), |strand| {
        Box::pin(lanes(strand.clone(), strand.count(16, 4), Duration::ZERO, |strand| {
            served(strand, Hello::default().bytes(), Vec::new())
        }))
    })
    .lasts(3)
    .counts_some()
    .connects_within(Duration::from_secs(1)),
    stranger("silence before the handshake", handshakes(&["timeout", "evicted"]), |strand| {
        Box::pin(crowd(strand.clone(), strand.count(5_000, 1_000), |strand| stuck(strand, Vec::new())))
    }),
    stranger("silence after the ClientHello", handshakes(&["timeout", "evicted"]), |strand| {
        let hello = Hello::default().bytes();
        Box::pin(crowd(strand.clone(), strand.count(5_000, 1_500), move |strand| {
            stuck(strand, hello.clone())
        }))
    })
    // The hellos of the crowd come within a moment, and each costs the relay a key exchange.
    .connects_within(Duration::from_secs(1)),
    stranger("more handshakes than places", handshakes(&["evicted"]), |strand| {
        let hello = Hello::default().bytes();
        Box::pin(crowd(strand.clone(), strand.count(5_000, 1_500), move |strand| {
            stuck(strand, hello.clone())
        }))
    })
    .connects_within(Duration::from_secs(1))
    .counts_some(),
    stranger("a ClientHello byte by byte", handshakes(&["timeout"]), |strand| {
        Box::pin(crowd(strand.clone(), strand.count(1_000, 100), dribbled))
    }),
    stranger("a giant ClientHello", handshakes(&["too_large"]), |strand| {
        Box::pin(crowd(strand.clone(), strand.count(5_000, 200), giant))
    }),
    stranger(
        "many records before the handshake",
        handshakes(&["too_large"]),
        again!(|strand| {
            // The message has a permitted length, and comes in records of a byte.
            let message = [&[1, 0, 0x70, 0][..], &[0; 0x7000]].concat();
            refused(strand, records(&message, 1))
        }),
    ),
    stranger("a ClientHello in pieces", handshakes(&["eof"]), again!(pieces)).counts_some(),
    stranger(
        "30 KiB of sessions to resume",
        handshakes(&["eof"]),
        again!(|strand| { served(strand, Hello::resuming(170).bytes(), Vec::new()) }),
    )
    .counts_some(),
    stranger(
        "an early request",
        handshakes(&["eof"]),
        again!(|strand| {
            let early = record(APPLICATION_DATA, &[3; 1_000]);
            skipped(strand, [Hello::resuming(1).bytes(), early].concat())
        }),
    )
    .counts_some(),
    stranger(
        "an unknown protocol by ALPN",
        handshakes(&["alpn"]),
        again!(|strand| { refused(strand, Hello { alpn: b"foo", ..Hello::default() }.bytes()) }),
    ),
    stranger(
        "old versions",
        handshakes(&["version"]),
        again!(|strand| { refused(strand, Hello::old_versions().bytes()) }),
    ),
    stranger(
        "old cipher suites",
        handshakes(&["version"]),
        again!(|strand| { refused(strand, Hello::old_suites().bytes()) }),
    ),
    stranger(
        "HTTP/2 in plaintext",
        handshakes(&["not_tls"]),
        again!(|strand| refused(strand, frames::opening())),
    ),
    stranger(
        "HTTP/1.1 in plaintext",
        handshakes(&["not_tls"]),
        again!(|strand| { refused(strand, b"GET / HTTP/1.1\r\nhost: relay\r\n\r\n".to_vec()) }),
    ),
    stranger("garbage", handshakes(&["not_tls"]), again!(|strand| refused(strand, vec![0xa5; 10_000]))),
    attack(
        "TLS to a plaintext listener",
        PLAIN,
        closes(&["tls_on_plaintext"]),
        Script::Own(again!(|strand| refused(strand, Hello::default().bytes()))),
    ),
    attack(
        "garbage to a plaintext listener",
        PLAIN,
        closes(&["not_http"]),
        Script::Own(again!(|strand| refused(strand, vec![0xa5; 10_000]))),
    ),
    stranger("HTTP/1.1 after ALPN h2", closes(&["alpn"]), again!(wrong_protocol)),
];

async fn open(strand: &Strand, bytes: &[u8]) -> std::io::Result<TcpStream> {
    let mut socket = strand.target.tcp(strand.mode).await?;
    // The relay may close before the last byte.
    let _ = socket.write_all(bytes).await;
    Ok(socket)
}

/// The relay has to answer with a ServerHello; then the client leaves.
async fn served(strand: Strand, hello: Vec<u8>, more: Vec<u8>) -> Outcome {
    let begin = Instant::now();
    let mut socket = match open(&strand, &[hello, more].concat()).await {
        Ok(socket) => socket,
        Err(error) => return unopened(error),
    };
    let mut outcome = Outcome { opened: 1, ..Outcome::default() };
    let mut first = [0; 1];
    match timeout(CLOSED_WITHIN, socket.read_exact(&mut first)).await {
        Ok(Ok(_)) if first[0] == HANDSHAKE => outcome.closed = 1,
        other => outcome.fault(format!("a ServerHello was due: {other:?} {first:?}")),
    }
    outcome.slowest = begin.elapsed();
    outcome
}

/// The relay has to answer, and to wait for the rest of the handshake: an alert would come with a close.
async fn skipped(strand: Strand, bytes: Vec<u8>) -> Outcome {
    let begin = Instant::now();
    let socket = match open(&strand, &bytes).await {
        Ok(socket) => socket,
        Err(error) => return unopened(error),
    };
    let is_closed = timeout(WAITS, drain(socket)).await.is_ok();
    let mut outcome = Outcome { opened: 1, slowest: begin.elapsed(), ..Outcome::default() };
    if is_closed {
        outcome.fault("closed within the handshake");
    } else {
        outcome.closed = 1;
    }
    outcome
}

/// The relay has to close, at once.
async fn refused(strand: Strand, bytes: Vec<u8>) -> Outcome {
    let begin = Instant::now();
    match open(&strand, &bytes).await {
        Ok(socket) => until_closed(socket, begin, CLOSED_WITHIN).await,
        Err(error) => unopened(error),
    }
}

/// The relay has to close in time.
async fn stuck(strand: Strand, bytes: Vec<u8>) -> Outcome {
    let begin = Instant::now();
    match open(&strand, &bytes).await {
        Ok(socket) => until_closed(socket, begin, strand.patience()).await,
        Err(error) => unopened(error),
    }
}

async fn dribbled(strand: Strand) -> Outcome {
    let begin = Instant::now();
    let (read, mut write) = match open(&strand, &[]).await {
        Ok(socket) => socket.into_split(),
        Err(error) => return unopened(error),
    };
    let dribble = async {
        for byte in Hello::default().bytes() {
            let _ = write.write_all(&[byte]).await;
            sleep(DRIBBLE).await;
        }
    };
    tokio::select! {
        outcome = until_closed(read, begin, strand.patience()) => outcome,
        () = dribble => Outcome::of_close(begin, false),
    }
}

/// Announces 64 KiB, and sends all but the last.
async fn giant(strand: Strand) -> Outcome {
    let message = [&[1, 0, 0xff, 0xff][..], &[0; 63 << 10]].concat();
    refused(strand, records(&message, 16_384)).await
}

/// A byte in each segment, or in each record.
async fn pieces(strand: Strand) -> Outcome {
    let hello = Hello::default();
    let begin = Instant::now();
    let (mut socket, mut records) = match (open(&strand, &[]).await, open(&strand, &[]).await) {
        (Ok(socket), Ok(records)) => (socket, records),
        (Err(error), _) | (_, Err(error)) => return unopened(error),
    };
    for byte in hello.bytes() {
        let _ = socket.write_all(&[byte]).await;
        tokio::task::yield_now().await;
    }
    let _ = records.write_all(&crate::hello::records(&hello.message(), 1)).await;
    let mut outcome = Outcome { opened: 2, closed: 2, ..Outcome::default() };
    for socket in [&mut socket, &mut records] {
        let mut first = [0; 1];
        // A ServerHello, or an alert.
        let answered = timeout(CLOSED_WITHIN, socket.read_exact(&mut first)).await;
        if !matches!(answered, Ok(Ok(_))) {
            outcome.fault(format!("neither served nor refused: {answered:?}"));
        }
    }
    outcome.slowest = begin.elapsed();
    outcome
}

async fn wrong_protocol(strand: Strand) -> Outcome {
    let begin = Instant::now();
    match strand.target.connect(strand.mode).await {
        Ok(mut wire) => {
            let _ = wire.write_all(b"GET / HTTP/1.1\r\nhost: relay\r\n\r\n").await;
            let _ = wire.flush().await;
            until_closed(wire, begin, CLOSED_WITHIN).await
        }
        Err(error) => unopened(error),
    }
}
