//! Clients of REST that begin what they do not end, or send a small text with much in it.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::attack::{Attack, BOTH, Outcome, Script, Sign, Strand, attack, limits};
use crate::crowd::{crowd, lanes, unopened};
use crate::fleet::STILL;
use crate::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS};

const UNREADABLE: Sign =
    Sign { metric: "sluice_downstream_streams_unreadable_total", label: "", values: &[""], is_gauge: false };

/// The polls of a connection, each with an answer of 1 MiB.
const POLLS: u32 = 4;

pub const ALL: &[Attack] = &[
    // Each is within the limit of its connection.
    attack(
        "half bodies of REST",
        BOTH,
        limits(&["unfinished_bytes"]),
        Script::Own(|strand| {
            let (count, pieces) = (strand.count(100, 12), strand.count(110, 32));
            Box::pin(crowd(strand, count, move |strand| half_a_body(strand, pieces)))
        }),
    )
    .counts_some(),
    attack(
        "JSON bombs of REST",
        BOTH,
        UNREADABLE,
        Script::Own(|strand| Box::pin(lanes(strand, 1, Duration::from_millis(20), bomb))),
    )
    .counts_some()
    .lasts(2),
    attack(
        "distinct polls that nobody reads",
        BOTH,
        limits(&["unfinished_bytes"]),
        Script::Own(|strand| Box::pin(crowd(strand.clone(), strand.count(100, 7), unread))),
    )
    .counts_some()
    .lasts(3),
];

/// Sends some pieces of a body that has more, and then nothing, until the relay answers or closes.
async fn half_a_body(strand: Strand, pieces: usize) -> Outcome {
    let begin = Instant::now();
    let wire = match strand.target.connect_http1(strand.mode).await {
        Ok(wire) => wire,
        Err(error) => return unopened(error),
    };
    let (mut read, mut write) = tokio::io::split(wire);
    let send = async {
        let _ = write.write_all(&head(8_000_000)).await;
        for _ in 0..pieces {
            let _ = write.write_all(&[b' '; 64 << 10]).await;
        }
        let _ = write.flush().await;
        std::future::pending::<()>().await;
    };
    let answered = async {
        tokio::select! {
            () = send => {}
            _ = read.read_u8() => {}
        }
    };
    Outcome::of_close(begin, timeout(strand.patience(), answered).await.is_ok())
}

/// The head of a poll over HTTP/1.1.
fn head(bytes: usize) -> Vec<u8> {
    format!(
        "POST /v3/discovery:clusters HTTP/1.1\r\nhost: relay\r\ncontent-type: application/json\r\n\
         content-length: {bytes}\r\n\r\n"
    )
    .into_bytes()
}

/// The text of a request with 400,000 entries, none of which the relay has a use for.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut entries = String::new();
    for number in 0..400_000 {
        let _ = write!(entries, "\"{number:x}\":\"\",");
    }
    entries.pop();
    let text = format!("{{\"resource_locators\":[{{\"name\":\"a\",\"dynamic_parameters\":{{{entries}}}}}]}}");
    [head(text.len()), text.into_bytes()].concat()
});

async fn bomb(strand: Strand) -> Outcome {
    let begin = Instant::now();
    let mut wire = match strand.target.connect_http1(strand.mode).await {
        Ok(wire) => wire,
        Err(error) => return unopened(error),
    };
    let answer = async {
        let _ = wire.write_all(&BOMB).await;
        let _ = wire.flush().await;
        wire.read_u8().await
    };
    Outcome::of_close(begin, matches!(timeout(strand.patience(), answer).await, Ok(Ok(b'H'))))
}

/// Asks for a large resource again and again, each time with another name beside it, and takes no answer.
async fn unread(strand: Strand) -> Outcome {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let begin = Instant::now();
    let mut wire = match strand.target.connect(strand.mode).await {
        Ok(wire) => wire,
        Err(error) => return unopened(error),
    };
    let mut bytes = frames::opening();
    for poll in 0..POLLS {
        let (stream, number) = (2 * poll + 1, ASKED.fetch_add(1, Ordering::Relaxed));
        // A name of no type is known to be absent.
        let body = json!({
            "node": { "id": "attacker", "cluster": "kit" },
            "resource_names": [STILL, format!("xdstp://attacker/{number}")],
        });
        bytes.extend(frames::frame(HEADERS, END_HEADERS, stream, &fields()));
        bytes.extend(frames::frame(DATA, END_STREAM, stream, body.to_string().as_bytes()));
    }
    let _ = wire.write_all(&bytes).await;
    let _ = wire.flush().await;
    sleep(strand.until.saturating_duration_since(Instant::now())).await;
    Outcome { opened: 1, closed: 1, slowest: begin.elapsed(), ..Outcome::default() }
}

/// The fields of a poll over HTTP/2: `:method: POST` and `:scheme: http` by their indices (RFC 7541, appendix A).
fn fields() -> Vec<u8> {
    let usual =
        [(":path", "/v3/discovery:clusters"), (":authority", "relay"), ("content-type", "application/json")];
    let literals = usual.iter().flat_map(|(name, value)| frames::literal(0, name, value));
    [0x83, 0x86].into_iter().chain(literals).collect()
}
