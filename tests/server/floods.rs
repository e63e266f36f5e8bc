//! Frames that cost the server more than their sender (FD19): the server closes such a connection, and no
//! other.

use std::time::Duration;

use sluice::server::ServerLimits;
use sluice::telemetry::Limit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::kit::{Client, Running, SOTW, eventually, start};
use crate::raw;

/// The deadline for the end of a flood that would hold a core.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// Low, so that a test without optimization passes easily.
fn limits() -> ServerLimits {
    ServerLimits { control_frames_per_second_max: 1000, ..ServerLimits::default() }
}

fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    raw::frame(raw::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

async fn open(server: &Running, opening: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(opening).await.unwrap();
    socket
}

/// Sends `flood` again and again until the server closes. Returns the bytes from the server.
async fn flood(socket: TcpStream, flood: &[u8]) -> Vec<u8> {
    let (mut read, mut write) = socket.into_split();
    let flood = flood.to_vec();
    let writer = tokio::spawn(async move { while write.write_all(&flood).await.is_ok() {} });
    let begin = Instant::now();
    let mut answer = Vec::new();
    let closed = async { while let Ok(1..) = read.read_buf(&mut answer).await {} };
    let is_closed = timeout(CLOSED_WITHIN, closed).await.is_ok();
    writer.abort();
    assert!(is_closed, "still open after {:?}", begin.elapsed());
    answer
}

/// One flood, beside a neighbour that is served throughout.
async fn ends(opening: Vec<u8>, frames: Vec<u8>) {
    let server = start(limits());
    let mut neighbour = server.connect().await;
    let mut call = neighbour.open(SOTW).await;
    let stream = server.relay.stream(0).await;
    let socket = open(&server, &[raw::opening(), opening].concat()).await;
    let answer = flood(socket, &frames).await;
    assert_eq!(raw::goaway_code(&answer), Some(raw::ENHANCE_YOUR_CALM));
    eventually("it is counted", || server.metrics.closed_control_flood.get() == 1).await;
    assert_eq!(server.metrics.limit_hits(Limit::ControlFrames), 1);
    stream.publish(b"", b"news");
    assert_eq!(call.message().await.unwrap(), "news");
    eventually("only the neighbour is left", || server.metrics.connections_open.get() == 1).await;
}

#[tokio::test]
async fn fd19_window_updates_of_a_closed_stream_end_the_connection() {
    let closed = [raw::headers(1, None), raw::reset(1)].concat();
    ends(closed, window_update(1, 1).repeat(500)).await;
}

#[tokio::test]
async fn fd19_window_updates_of_the_connection_end_it() {
    ends(Vec::new(), window_update(0, 1).repeat(500)).await;
}

#[tokio::test]
async fn fd19_resets_of_a_closed_stream_end_the_connection() {
    let closed = [raw::headers(1, None), raw::reset(1)].concat();
    ends(closed, raw::reset(1).repeat(500)).await;
}

#[tokio::test]
async fn fd19_a_window_of_one_byte_ends_the_connection() {
    let server = start(limits());
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    let settings = raw::frame(raw::SETTINGS, 0, 0, &[&INITIAL_WINDOW_SIZE[..], &1u32.to_be_bytes()].concat());
    let socket = open(&server, &[raw::PREFACE, &settings, &raw::headers(1, None)].concat()).await;
    server.relay.stream(0).await.publish(b"", &[0; 1 << 20]);
    let answer = flood(socket, &window_update(1, 1).repeat(500)).await;
    assert_eq!(raw::goaway_code(&answer), Some(raw::ENHANCE_YOUR_CALM));
    eventually("it is counted", || server.metrics.closed_control_flood.get() == 1).await;
}

/// HTTP/2 itself limits resets of unaccepted calls. These calls were accepted.
#[tokio::test]
async fn fd19_calls_that_are_accepted_and_reset_end_the_connection() {
    const ROUND: u32 = 50;
    let server = start(limits());
    let mut socket = open(&server, &raw::opening()).await;
    let begin = Instant::now();
    let mut next = 1;
    while server.metrics.closed_control_flood.get() == 0 {
        assert!(begin.elapsed() < CLOSED_WITHIN, "{} calls", next / 2);
        let round: Vec<u32> = (0..ROUND).map(|n| next + 2 * n).collect();
        next += 2 * ROUND;
        let calls: Vec<u8> = round.iter().flat_map(|stream| raw::headers(*stream, None)).collect();
        let resets: Vec<u8> = round.iter().flat_map(|stream| raw::reset(*stream)).collect();
        let _ = socket.write_all(&calls).await;
        let is_seen = || {
            let is_closed = server.metrics.closed_control_flood.get() > 0;
            is_closed || server.relay.opened() as u32 * 2 >= next - 1
        };
        eventually("the calls are accepted", is_seen).await;
        let _ = socket.write_all(&resets).await;
    }
    eventually("nothing is left", || server.metrics.connections_open.get() == 0).await;
}

#[tokio::test]
async fn a_frame_that_is_longer_than_allowed_is_an_error() {
    const FRAME_SIZE_ERROR: u32 = 6;
    for length in [16_385, 1 << 20, (1 << 24) - 1] {
        let server = start(ServerLimits::default());
        let data = raw::frame(raw::DATA, 0, 1, &vec![0; length]);
        let socket = TcpStream::connect(server.address).await.unwrap();
        let answer = raw::talk(socket, [raw::opening(), raw::headers(1, None), data].concat()).await;
        assert_eq!(raw::goaway_code(&answer), Some(FRAME_SIZE_ERROR), "{length} bytes");
        eventually("it is counted", || server.metrics.closed_error.get() == 1).await;
    }
}

/// Two WINDOW_UPDATEs for each 4 KiB and more: a reader may confirm every read.
#[tokio::test]
async fn who_reads_a_lot_through_small_windows_stays() {
    let server = start(ServerLimits { control_frames_per_second_max: 50, ..ServerLimits::default() });
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(8 * 1024).initial_connection_window_size(16 * 1024);
    let mut client = Client::new(TcpStream::connect(server.address).await.unwrap(), builder).await;
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(client.open(SOTW).await);
    }
    for _ in 0..20 {
        for (index, call) in calls.iter_mut().enumerate() {
            server.relay.stream(index).await.publish(b"", &[0; 100_000]);
            assert_eq!(call.message().await.unwrap().len(), 100_000);
        }
    }
    assert_eq!(server.metrics.limit_hits(Limit::ControlFrames), 0);
}
