//! Connections that do too little: silent, halfway, or without reading.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::arena::Mode;
use crate::attack::{Attack, BOTH, Outcome, PLAIN, Script, Sign, Strand, attack, closes, goaways, limits};
use crate::crowd::{crowd, unopened, until_closed};
use crate::fleet::LARGE;
use crate::frames::{self, DATA, END_HEADERS, HEADERS};
use crate::support::words::Ask;
use crate::support::{CDS, client};

const BEHIND: Sign =
    Sign { metric: "sluice_downstream_streams_behind", label: "", values: &[""], is_gauge: true };

/// The kernel's memory for bytes that a stalled client has not read.
const STALLED_BYTES: u32 = 4096;

const fn slow(name: &'static str, shown_by: Sign, run: crate::attack::Run) -> Attack {
    attack(name, BOTH, shown_by, Script::Own(run))
}

pub const ALL: &[Attack] = &[
    attack(
        "silence",
        PLAIN,
        closes(&["preface_timeout"]),
        Script::Own(|strand| Box::pin(crowd(strand.clone(), strand.count(5_000, 1_000), silent))),
    ),
    slow("half a preface", closes(&["preface_timeout"]), |strand| {
        Box::pin(crowd(strand, 50, |strand| opened(strand, frames::PREFACE[..10].to_vec())))
    }),
    slow("no stream", goaways(&["idle"]), |strand| {
        Box::pin(crowd(strand, 50, |strand| opened(strand, frames::opening())))
    }),
    slow("half of the headers", goaways(&["idle"]), |strand| {
        let half = frames::frame(HEADERS, 0, 1, &frames::fields(&[]));
        let half = [frames::opening(), half].concat();
        Box::pin(crowd(strand, 50, move |strand| opened(strand, half.clone())))
    }),
    slow("a stream without a request", limits(&["first_request_timeout"]), |strand| {
        Box::pin(crowd(strand, 50, |strand| ended(strand, [frames::opening(), frames::headers(1)].concat())))
    }),
    slow("half a message", limits(&["request_timeout"]), |strand| {
        let names = b"\x1a\x06abcdef".repeat(600);
        let half = frames::frame(DATA, 0, 1, &[&[0, 0, 16, 0, 0][..], &names].concat());
        let half = [frames::opening(), frames::headers(1), half].concat();
        Box::pin(crowd(strand, 50, move |strand| ended(strand, half.clone())))
    }),
    // Each is within the limit of its connection. 16 times half a megabyte in memory, in each mode.
    slow("half messages of many names", limits(&["unfinished_bytes"]), |strand| {
        let names = b"\x1a\x06abcdef".repeat(7_500);
        let half = [&[0, 0, 16, 0, 0][..], &names].concat();
        let half = half.chunks(16 << 10).flat_map(|chunk| frames::frame(DATA, 0, 1, chunk)).collect();
        let half = [frames::opening(), frames::headers(1), half].concat();
        Box::pin(crowd(strand.clone(), strand.count(100, 16), move |strand| ended(strand, half.clone())))
    })
    .counts_some(),
    slow("unanswered PINGs", closes(&["keepalive"]), |strand| Box::pin(crowd(strand, 50, deaf))),
    slow("giant headers of HTTP/1.1", closes(&["error"]), |strand| Box::pin(crowd(strand, 20, http1)))
        .counts_some(),
    // A stalled client takes 47 KiB over TLS and 25 in plaintext: the bound has room for 500 and 100.
    slow("readers that stall", BEHIND, |strand| {
        let many = if strand.mode == Mode::Tls { 500 } else { 100 };
        Box::pin(crowd(strand.clone(), strand.count(many, 100), stalled))
    })
    .lasts(2),
];

impl Strand {
    /// The longest time until the close of a slow connection: the default deadlines in a long run, shorter ones otherwise.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(if self.is_long { 60 } else { 8 })
    }
}

async fn silent(strand: Strand) -> Outcome {
    let begin = Instant::now();
    match strand.target.tcp(strand.mode).await {
        Ok(socket) => until_closed(socket, begin, strand.patience()).await,
        Err(error) => unopened(error),
    }
}

/// Sends these bytes and then nothing, until the relay closes.
async fn opened(strand: Strand, bytes: Vec<u8>) -> Outcome {
    let begin = Instant::now();
    match strand.target.connect(strand.mode).await {
        Ok(mut wire) => {
            let _ = wire.write_all(&bytes).await;
            let _ = wire.flush().await;
            until_closed(wire, begin, strand.patience()).await
        }
        Err(error) => unopened(error),
    }
}

/// Sends these bytes and then nothing, until the relay ends the stream or closes.
async fn ended(strand: Strand, bytes: Vec<u8>) -> Outcome {
    let begin = Instant::now();
    let mut wire = match strand.target.connect(strand.mode).await {
        Ok(wire) => wire,
        Err(error) => return unopened(error),
    };
    let _ = wire.write_all(&bytes).await;
    let _ = wire.flush().await;
    let end_of_stream = async {
        let mut head = [0; 9];
        while wire.read_exact(&mut head).await.is_ok() {
            if head[3] == HEADERS && head[4] & frames::END_STREAM != 0 {
                return;
            }
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            let _ = wire.read_exact(&mut payload).await;
        }
    };
    Outcome::of_close(begin, timeout(strand.patience(), end_of_stream).await.is_ok())
}

/// Has a stream, and is never heard again.
async fn deaf(strand: Strand) -> Outcome {
    opened(strand, [frames::opening(), frames::headers(1), subscription("nothing", i32::MAX as u32)].concat())
        .await
}

fn subscription(name: &str, window: u32) -> Vec<u8> {
    [frames::initial_window(window), frames::request(1, ask(name))].concat()
}

fn ask(name: &str) -> Ask {
    Ask { node: Some(client::node("attacker")), ..Ask::of(CDS).subscribe(&[name]) }
}

/// A request for a name without a resource.
pub fn nothing() -> Ask {
    ask("nothing")
}

async fn http1(strand: Strand) -> Outcome {
    let begin = Instant::now();
    let mut wire = match strand.target.connect_http1(strand.mode).await {
        Ok(wire) => wire,
        Err(error) => return unopened(error),
    };
    let _ = wire.write_all(b"POST /v3/discovery:clusters HTTP/1.1\r\nhost: relay\r\nx-giant: ").await;
    for _ in 0..64 {
        if wire.write_all(&[b'x'; 16 << 10]).await.is_err() {
            break;
        }
    }
    let _ = wire.flush().await;
    until_closed(wire, begin, strand.patience()).await
}

/// Asks for a large resource with windows for all of it, and does not read.
async fn stalled(strand: Strand) -> Outcome {
    let begin = Instant::now();
    let mut wire = match strand.target.connect_narrowly(strand.mode, STALLED_BYTES).await {
        Ok(wire) => wire,
        Err(error) => return unopened(error),
    };
    let all = frames::window_update(0, i32::MAX as u32 - 65_535);
    let headers = frames::frame(HEADERS, END_HEADERS, 1, &frames::fields(&[]));
    let opening = [frames::opening(), all, headers, subscription(LARGE, i32::MAX as u32)].concat();
    let _ = wire.write_all(&opening).await;
    let _ = wire.flush().await;
    sleep(strand.until.saturating_duration_since(Instant::now())).await;
    Outcome { opened: 1, closed: 1, slowest: begin.elapsed(), ..Outcome::default() }
}
