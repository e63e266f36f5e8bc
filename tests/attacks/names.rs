//! Clients with very many names, with very long names, or with a class for each stream. Each is within the limits of its
//! connection, or is refused there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::attack::{Attack, BOTH, Outcome, PLAIN, Script, Strand, attack, limits};
use crate::crowd::{crowd, unopened};
use crate::frames;
use crate::slow::nothing;
use crate::support::proto::Node;
use crate::support::words::Ask;
use crate::support::{CDS, client};

/// More is left to other tests: this is the memory of an attack that is over, and of an allocator that was busy.
const LEFT_MAX: u64 = 12 << 20;

/// From a set of names to the next.
const PAUSE: Duration = Duration::from_millis(400);

/// The default limit for a name.
const LONG: usize = 4_000;
/// A request of 400 KB, which is whole in time on a busy machine, too.
const LONG_PER_REQUEST: usize = 100;
const SHORT_PER_REQUEST: usize = 1_000;

pub const ALL: &[Attack] = &[
    attack(
        "names that come and go",
        PLAIN,
        limits(&["unwatched_bytes"]),
        Script::Own(|strand| {
            let count = strand.count(100_000, 1_000);
            Box::pin(come_and_go(strand, count, PAUSE, false))
        }),
    )
    .grows(64)
    .leaves(LEFT_MAX)
    .counts_some()
    .lasts(4),
    // The rate of names is the connection's.
    attack(
        "names of ever new streams",
        BOTH,
        limits(&["changes_per_second"]),
        Script::Own(|strand| {
            let count = strand.count(95_000, 1_000);
            Box::pin(come_and_go(strand, count, PAUSE / 16, true))
        }),
    )
    .grows(64)
    .leaves(LEFT_MAX)
    .counts_some()
    .lasts(4),
    // Refused, and gone at once.
    attack(
        "long names, unread",
        PLAIN,
        limits(&["connection_bytes"]),
        Script::Own(|strand| {
            let requests = strand.count(170, 25);
            Box::pin(unread(strand, requests, LONG_PER_REQUEST, LONG))
        }),
    )
    // The answers take more than the connection's budget (ADR 74).
    .grows(96)
    .grows_in_short(24)
    .leaves(LEFT_MAX)
    .counts_some()
    .lasts(4),
    // The account has what the names take (ADR 80).
    attack(
        "short names, unread",
        PLAIN,
        limits(&["connection_bytes"]),
        Script::Own(|strand| {
            let requests = strand.count(200, 30);
            Box::pin(unread(strand, requests, SHORT_PER_REQUEST, 0))
        }),
    )
    .grows(80)
    .grows_in_short(16)
    .leaves(LEFT_MAX)
    .counts_some()
    .lasts(4),
    attack(
        "a class for each stream",
        BOTH,
        limits(&["node_classes", "node_classes_per_connection"]),
        Script::Own(|strand| {
            let (connections, streams) = (strand.count(20, 2), strand.count(100, 70));
            Box::pin(crowd(strand, connections, move |strand| classes(strand, streams)))
        }),
    )
    .grows(96)
    .leaves(LEFT_MAX)
    .counts_some()
    .lasts(4),
];

/// A connection of HTTP/2 until it is dropped.
struct Caller {
    send: SendRequest<Bytes>,
    _connection: JoinSet<()>,
}

struct Stream {
    requests: SendStream<Bytes>,
    response: ResponseFuture,
}

impl Caller {
    /// `window`: the bytes of a response that the relay may send before the client has read some.
    async fn open(strand: &Strand, window: u32) -> std::io::Result<Caller> {
        let wire = strand.target.connect(strand.mode).await?;
        let builder = h2::client::Builder::new().initial_window_size(window).handshake(wire).await;
        let (send, connection) = builder.map_err(std::io::Error::other)?;
        let mut _connection = JoinSet::new();
        _connection.spawn(async {
            let _ = connection.await;
        });
        Ok(Caller { send, _connection })
    }

    async fn stream(&self) -> Result<Stream, h2::Error> {
        let request = Request::post(format!("http://relay{}", frames::PATH))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("a request");
        let mut send = self.send.clone().ready().await?;
        let (response, requests) = send.send_request(request, false)?;
        Ok(Stream { requests, response })
    }
}

/// Reads all of a response, in a task of its own.
async fn read(response: ResponseFuture) {
    let Ok(response) = response.await else { return };
    let mut body = response.into_body();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
    }
}

fn ask() -> Ask {
    Ask { node: Some(client::node("attacker")), ..Ask::of(CDS) }
}

/// Done as long as the attack lasts.
fn lasted(begin: Instant) -> Outcome {
    Outcome { opened: 1, closed: 1, slowest: begin.elapsed(), ..Outcome::default() }
}

/// Subscribes to names that nobody has, and gives them up for others, again and again. `is_new`: each time on a
/// new stream, in the place of the one before.
async fn come_and_go(strand: Strand, count: usize, pause: Duration, is_new: bool) -> Outcome {
    let begin = Instant::now();
    let caller = match Caller::open(&strand, 1 << 20).await {
        Ok(caller) => caller,
        Err(error) => return unopened(error),
    };
    let (mut round, mut readers) = (0, JoinSet::new());
    while !strand.is_over() {
        let Ok(Stream { mut requests, response }) = caller.stream().await else { break };
        readers.spawn(read(response));
        let mut former = Vec::new();
        while !strand.is_over() {
            round += 1;
            let names: Vec<_> = (0..count).map(|number| format!("made-up/{round}/{number}")).collect();
            let unsubscribe = std::mem::replace(&mut former, names.clone());
            // A refused client comes again.
            if say(&mut requests, Ask { subscribe: names, unsubscribe, ..ask() }).await.is_err() {
                break;
            }
            sleep(pause).await;
            if is_new {
                readers.abort_all();
                requests.send_reset(h2::Reason::CANCEL);
                break;
            }
        }
    }
    lasted(begin)
}

async fn say(requests: &mut SendStream<Bytes>, ask: Ask) -> Result<(), h2::Error> {
    let mut bytes = Bytes::from(frames::message(ask));
    while !bytes.is_empty() {
        requests.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|context| requests.poll_capacity(context)).await;
        let room = room.unwrap_or(Err(h2::Reason::CANCEL.into()))?;
        requests.send_data(bytes.split_to(room.min(bytes.len())), false)?;
    }
    Ok(())
}

/// Asks for names that nobody has on one stream, gives the answers no room, and waits for the end of the stream.
async fn unread(strand: Strand, requests_max: usize, names: usize, length: usize) -> Outcome {
    let begin = Instant::now();
    let caller = match Caller::open(&strand, 100).await {
        Ok(caller) => caller,
        Err(error) => return unopened(error),
    };
    let Ok(Stream { mut requests, response }) = caller.stream().await else { return Outcome::default() };
    // The head of the response needs no room.
    let _unread = response.await;
    for request in 0..requests_max {
        let name = |number: usize| format!("{request}/{number}/{}", "x".repeat(length));
        let names = (0..names).map(name).collect();
        if say(&mut requests, Ask { subscribe: names, ..ask() }).await.is_err() {
            break;
        }
        sleep(PAUSE / 8).await;
    }
    let reset = std::future::poll_fn(|context| requests.poll_reset(context));
    Outcome::of_close(begin, timeout(strand.patience(), reset).await.is_ok())
}

/// Opens streams with a node class each, and asks for a name that nobody has.
async fn classes(strand: Strand, count: usize) -> Outcome {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let begin = Instant::now();
    let caller = match Caller::open(&strand, 1 << 20).await {
        Ok(caller) => caller,
        Err(error) => return unopened(error),
    };
    let (mut readers, mut streams) = (JoinSet::new(), Vec::new());
    for _ in 0..count {
        let Ok(Stream { mut requests, response }) = caller.stream().await else { break };
        readers.spawn(read(response));
        let cluster = format!("made-up-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let node = Node { cluster, ..client::node("attacker") };
        let ask = Ask { node: Some(node), ..nothing() };
        if say(&mut requests, ask).await.is_ok() {
            streams.push(requests);
        }
    }
    sleep(strand.until.saturating_duration_since(Instant::now())).await;
    lasted(begin)
}
