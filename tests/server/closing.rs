//! The last bytes of a connection: nobody is reset (HND-1).

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use sluice::driver::api::downstream::Polled;
use sluice::server::{Listener, ServerLimits};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

use crate::kit::{Running, eventually, soon, start, start_on};
use crate::raw;
use crate::web::{Web, request};

const WINDOW: Duration = Duration::from_secs(1);
const CLUSTERS: &str = "/v3/discovery:clusters";

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A client sends an ACK after the server has sent its last byte. A server that has closed the connection answers with a
/// reset, and a client that meets the reset in its write does not read the status of its stream any more.
pub async fn a_late_ack_is_not_reset<T: AsyncRead + AsyncWrite + Unpin>(server: &Running, mut socket: T) {
    socket.write_all(&[raw::opening(), raw::headers(1, None)].concat()).await.unwrap();
    let stream = server.relay.stream(0).await;
    stream.publish(b"n", b"r");
    eventually("it has answered", || stream.with(|script| script.taken == 1)).await;
    server.emptying.empty(Duration::ZERO, Some(WINDOW)).unwrap();

    let mut answer = Vec::new();
    // The PING after the first GOAWAY. Its answer says that no further stream is on the way.
    let ping = raw::frame_head(raw::PING, 0, 0, 8);
    while !has(&answer, &ping) {
        assert_ne!(soon(socket.read_buf(&mut answer)).await.unwrap(), 0);
    }
    let at = answer.windows(ping.len()).position(|window| window == ping).unwrap() + ping.len();
    let pong = raw::frame(raw::PING, raw::ACK, 0, &answer[at..at + 8]);
    socket.write_all(&pong).await.unwrap();
    while soon(socket.read_buf(&mut answer)).await.unwrap() > 0 {}
    let last_headers = raw::frames(&answer).filter(|(kind, ..)| *kind == raw::HEADERS).last();
    assert_eq!(last_headers, Some((raw::HEADERS, raw::END_HEADERS | raw::END_STREAM, 1)));

    for _ in 0..3 {
        socket.write_all(&raw::frame(raw::DATA, 0, 1, &[0; 5])).await.expect("no reset");
        socket.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(server.metrics.connections_open.get(), 1);
    drop(socket);
    eventually("the connection ends with its client", || server.metrics.connections_open.get() == 0).await;
    assert_eq!(server.metrics.closed_cut.get(), 0);
}

/// The server runs in the thread of the test. So all clients have left, each with a bad last frame, before it reads from any of them.
#[tokio::test]
async fn others_run_between_the_last_bytes_of_a_few_clients_that_leave_together() {
    const CLIENTS: usize = 200;
    let server = start(ServerLimits::default());
    let mut clients: Vec<_> =
        (0..CLIENTS).map(|_| std::net::TcpStream::connect(server.address).unwrap()).collect();
    for client in &mut clients {
        client.write_all(&[raw::opening(), raw::headers(1, None)].concat()).unwrap();
    }
    eventually("all streams are open", || server.relay.opened() == CLIENTS).await;
    for client in &mut clients {
        client.write_all(&raw::frame(raw::DATA, 0, 0, b"no stream")).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let read = || server.metrics.closed_error.get();
    let all = async {
        let mut before = 0;
        while read() < CLIENTS as u64 {
            tokio::task::yield_now().await;
            assert!(read() - before <= 16, "{} at once", read() - before);
            before = read();
        }
    };
    soon(all).await;
    eventually("all connections end", || server.metrics.connections_open.get() == 0).await;
}

#[tokio::test]
async fn hnd_1_an_ack_on_its_way_at_the_end_is_not_reset_on_tcp() {
    let server = start(ServerLimits::default());
    let socket = TcpStream::connect(server.address).await.unwrap();
    a_late_ack_is_not_reset(&server, socket).await;
}

#[tokio::test]
async fn hnd_1_an_ack_on_its_way_at_the_end_is_not_reset_on_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xds.sock");
    let listener = Listener::bind_unix("local", &path, None).unwrap();
    let server = start_on(ServerLimits::default(), vec![listener], "127.0.0.1:1".parse().unwrap());
    a_late_ack_is_not_reset(&server, UnixStream::connect(&path).await.unwrap()).await;
}

/// HND-1: a client without a stream may have its first on the way, and has the whole window to name it.
#[tokio::test]
async fn hnd_1_a_connection_before_its_first_stream_has_the_whole_window() {
    let server = start(ServerLimits::default());
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(&raw::opening()).await.unwrap();
    let settings = raw::frame_head(raw::SETTINGS, raw::ACK, 0, 0);
    let mut answer = Vec::new();
    while !has(&answer, &settings) {
        assert_ne!(soon(socket.read_buf(&mut answer)).await.unwrap(), 0);
    }
    let begin = Instant::now();
    server.emptying.empty(Duration::ZERO, Some(WINDOW)).unwrap();
    while soon(socket.read_buf(&mut answer)).await.is_ok_and(|bytes| bytes > 0) {}
    assert!(begin.elapsed() >= WINDOW, "{:?}", begin.elapsed());
}

fn answers(server: &Running) {
    let shared = Bytes::from_static(b"{}");
    *server.relay.polls.answer.lock().unwrap() = Some(Ok(Polled::Set { private: Bytes::new(), shared }));
}

async fn resting(server: &Running) -> Web {
    answers(server);
    let mut web = Web::connect(server).await;
    let page = web.post(CLUSTERS, "{}").await;
    assert_eq!((page.status, page.header("connection")), (200, None));
    web
}

/// HND-1: only a response can tell a client of HTTP/1.1 not to send another request.
#[tokio::test]
async fn hnd_1_the_last_response_of_a_resting_connection_announces_the_end() {
    let server = start(ServerLimits::default());
    let mut web = resting(&server).await;
    server.emptying.empty(Duration::ZERO, Some(Duration::from_secs(60))).unwrap();
    eventually("the connection leaves", || server.metrics.goaways_drain.get() == 1).await;
    let page = web.post(CLUSTERS, "{}").await;
    let announced: Vec<_> = page.headers.iter().filter(|(name, _)| name == "connection").collect();
    assert_eq!((page.status, announced.len(), page.header("connection")), (200, 1, Some("close")));
    assert!(web.is_closed().await);
    drop(web);
    eventually("it is over", || server.metrics.connections_open.get() == 0).await;
}

/// KAL-4: an old connection of HTTP/1.1, too.
#[tokio::test]
async fn kal_4_the_last_response_of_an_old_resting_connection_announces_the_end() {
    let server = start(ServerLimits {
        connection_age: Some(Duration::from_millis(400)),
        connection_age_jitter_percent: 0,
        ..ServerLimits::default()
    });
    let mut web = resting(&server).await;
    eventually("it is old", || server.metrics.goaways_age.get() == 1).await;
    let page = web.post(CLUSTERS, "{}").await;
    assert_eq!((page.status, page.header("connection")), (200, Some("close")));
    assert!(web.is_closed().await);
}

/// HND-1: the end of the process waits for the next request, too. It is answered as before.
#[tokio::test]
async fn hnd_1_the_end_of_the_process_is_announced_on_a_resting_connection() {
    let mut server = start(ServerLimits { drain_window: Duration::from_secs(60), ..ServerLimits::default() });
    let mut web = resting(&server).await;
    server.shut_down();
    eventually("the connection leaves", || server.metrics.goaways_drain.get() == 1).await;
    let page = web.post(CLUSTERS, "{}").await;
    assert_eq!((page.status, page.header("connection")), (200, Some("close")));
    assert!(web.is_closed().await);
    drop(web);
    soon(&mut server.served).await.unwrap();
    assert_eq!(server.metrics.closed_cut.get(), 0);
}

/// HND-1: a client that polls less often than the window is long. The window of a hand-over ends in the drain of the process.
#[tokio::test]
async fn hnd_1_a_resting_connection_outlasts_the_window_by_the_drain() {
    let mut server = start(ServerLimits { drain_window: Duration::from_secs(60), ..ServerLimits::default() });
    let (mut early, mut late) = (resting(&server).await, resting(&server).await);
    let window = Duration::from_millis(100);
    server.emptying.empty(Duration::ZERO, Some(window)).unwrap();
    eventually("both leave", || server.metrics.goaways_drain.get() == 2).await;
    tokio::time::sleep(window * 3).await;
    let page = early.post(CLUSTERS, "{}").await;
    assert_eq!((page.status, page.header("connection")), (200, Some("close")));
    server.shut_down();
    eventually("it is told again", || server.metrics.goaways_drain.get() >= 3).await;
    let page = late.post(CLUSTERS, "{}").await;
    assert_eq!((page.status, page.header("connection")), (200, Some("close")));
    assert!(early.is_closed().await && late.is_closed().await);
    drop((early, late));
    soon(&mut server.served).await.unwrap();
    assert_eq!(server.metrics.closed_cut.get(), 0);
}

#[tokio::test]
async fn hnd_1_a_resting_connection_without_a_request_ends_at_the_end_of_the_drain() {
    let mut server = start(ServerLimits { drain_window: WINDOW, ..ServerLimits::default() });
    let mut web = resting(&server).await;
    let begin = Instant::now();
    server.shut_down();
    assert!(web.is_closed().await);
    let elapsed = begin.elapsed();
    assert!((WINDOW / 2..WINDOW).contains(&elapsed), "{elapsed:?}");
    drop(web);
    eventually("it is over", || server.metrics.connections_open.get() == 0).await;
    assert_eq!(server.metrics.closed_cut.get(), 0);
}

/// A poll that crosses the end of its connection meets an end, and no reset.
#[tokio::test]
async fn hnd_1_a_poll_on_its_way_at_the_end_is_not_reset() {
    let mut server = start(ServerLimits { drain_window: WINDOW, ..ServerLimits::default() });
    let mut web = resting(&server).await;
    server.shut_down();
    assert!(web.is_closed().await);
    for _ in 0..3 {
        web.send(request("POST", CLUSTERS, "application/json", "{}")).await;
        tokio::task::yield_now().await;
    }
    assert!(web.is_closed().await);
    drop(web);
    soon(&mut server.served).await.unwrap();
    assert_eq!(server.metrics.closed_cut.get(), 0);
}

/// The relay cuts a connection when memory is short. Neither the client nor HTTP/2 wakes the connection then.
#[tokio::test]
async fn a_cut_ends_a_connection_at_rest_and_one_with_a_write_under_way() {
    const SHARED: usize = 64 << 20;
    for shared in [0, SHARED] {
        let server = start(ServerLimits::default());
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(&[raw::opening_with_large_windows(), raw::headers(1, None)].concat()).await.unwrap();
        let stream = server.relay.stream(0).await;
        stream.publish(b"n", &vec![0; shared]);
        eventually("it has answered", || stream.with(|script| script.taken == 1)).await;
        stream.peer.connection.cut();
        eventually("the connection ends", || server.metrics.connections_open.get() == 0).await;
        assert_eq!(server.metrics.closed_cut.get(), 1);
        let (mut read, mut buffer) = (0, vec![0; 1 << 20]);
        while let Ok(bytes @ 1..) = soon(socket.read(&mut buffer)).await {
            read += bytes;
        }
        assert!(shared == 0 || read < shared, "{read} bytes: the write was over");
    }
}
