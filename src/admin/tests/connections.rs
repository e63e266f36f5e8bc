//! Slow readers, limits of connections, and the end of the listener.

use http_body_util::BodyExt;

use super::*;
use crate::admin::turn::{ANSWER_TIMEOUT, STALL_TIMEOUT};

/// Counts the dropped iterators.
pub(super) struct OnDrop<'a>(pub &'a AtomicUsize);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_pulls_items_one_by_one_and_then_gets_them_all() {
    let admin = Fixture::start(vec![], false);
    let mut io = admin.connect();
    io.write_all(get_request("/clients?limit=all").as_bytes()).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let pulled = admin.view.pulled.load(SeqCst);
    // Three chunks and the connection's buffer, at more than 500 bytes per client.
    assert!((1..200).contains(&pulled), "{pulled}");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(admin.view.pulled.load(SeqCst), pulled, "nothing moves while nobody reads");

    let mut first = vec![0; 64 << 10];
    io.read_exact(&mut first).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    let more = admin.view.pulled.load(SeqCst);
    assert!((pulled + 1..pulled + 200).contains(&more), "{pulled} -> {more}");

    let mut rest = Vec::new();
    io.read_to_end(&mut rest).await.unwrap();
    assert_eq!(admin.view.pulled.load(SeqCst), SESSIONS);
    assert!(String::from_utf8_lossy(&rest).contains("\"count\":10000,\"truncated\":false,\"next\":null}"));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_is_given_up_and_its_permit_comes_back() {
    let admin = Fixture::start(vec![], false);
    let mut stuck: Vec<_> = (0..REQUESTS_MAX).map(|_| admin.connect()).collect();
    for io in &mut stuck {
        io.write_all(get_request("/clients?limit=all").as_bytes()).await.unwrap();
    }
    sleep(GRACE / 2).await;
    let refused = admin.get("/clients?limit=all").await;
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(admin.get("/metrics").await.status, 503);
    assert_eq!(admin.get("/healthz").await.status, 200, "probes are never starved");
    assert_eq!(admin.limit_hits(Limit::AdminRequests), "2");

    sleep(STALL_TIMEOUT).await;
    assert_eq!(admin.view.finished.load(SeqCst), REQUESTS_MAX, "every iterator was dropped");
    assert_eq!(admin.get("/clients?limit=1").await.status, 200);
    let mut cut = String::new();
    stuck[0].read_to_string(&mut cut).await.unwrap();
    assert!(!cut.ends_with("0\r\n\r\n"), "a part does not look whole");
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_view_fails_does_not_look_whole() {
    let (_, page) = query::resources(&"/resources".parse().unwrap(), &HeaderMap::new()).unwrap();
    let response = list::respond("items", &page, |writer| async move { drop(writer) });
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn connections_are_bounded_in_number_and_in_waiting() {
    let admin = Fixture::start(vec![], false);
    let mut idle: Vec<_> = (0..CONNECTIONS_MAX).map(|_| admin.connect()).collect();
    idle[0].write_all(b"GET /healthz HTTP/1.1\r\nHost:").await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(admin.get("/healthz").await.status, 200, "in the place of the one that waits longest");
    assert_eq!(admin.limit_hits(Limit::AdminConnections), "1");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(admin.get("/healthz").await.status, 200, "idle connections were closed");
}

#[tokio::test]
async fn large_heads_are_refused() {
    let admin = Fixture::start(vec![], false);
    let many: String = (0..HEADERS_SENT).map(|n| format!("h{n}: x\r\n")).collect();
    let mut io = admin.connect();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    // The connection may close before the whole head is written.
    let _ = io.write_all(head.as_bytes()).await;
    assert_eq!(read_answer(&mut io).await.status, 431);
    let mut io = admin.connect();
    let _ = io.write_all(format!("GET /{} HTTP/1.1\r\n", "x".repeat(64 << 10)).as_bytes()).await;
    let status = read_answer(&mut io).await.status;
    assert!([414, 431].contains(&status), "{status}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_answers_under_way_and_waits_for_nothing_else() {
    let admin = Fixture::start(vec![], false);
    let mut reading = admin.connect();
    reading.write_all(get_request("/clients?limit=100").as_bytes()).await.unwrap();
    let mut stuck = admin.connect();
    stuck.write_all(get_request("/clients?limit=all").as_bytes()).await.unwrap();
    let _idle = admin.connect();
    sleep(Duration::from_millis(10)).await;
    admin.shutdown.cancel();
    let list = read_answer(&mut reading).await.json();
    assert_eq!(list["count"], 100);
    let began = tokio::time::Instant::now();
    admin.server.await.unwrap();
    assert!(began.elapsed() <= SHUTDOWN_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn crt_8_a_connection_ends_with_the_proof_of_its_peer() {
    let admin = Fixture::start(vec![], false);
    let (mut client, io) = duplex(1024);
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    let guest = Guest { io, peer: AdminPeer::default(), selected_http2: None, end: end.map(|_| ()).boxed() };
    assert!(admin.connections.send(guest).is_ok());
    client.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut bytes = [0; 12];
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"HTTP/1.1 200");
    let begun = tokio::time::Instant::now();
    drop(ended);
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("ok\n"), "the answer is whole: {rest}");
    assert!(begun.elapsed() < Duration::from_secs(1), "and not by its idle time");
}

/// ADM-14: a reader that takes an answer byte by byte holds its place for a bounded time.
#[tokio::test(start_paused = true)]
async fn adm_14_an_answer_has_a_deadline() {
    let admin = Fixture::start(vec![], false);
    let mut io = admin.connect();
    io.write_all(get_request("/clients?limit=all").as_bytes()).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut bytes = [0; 1];
    while let Ok(1) = io.read(&mut bytes).await {
        // The buffer between both ends is read after the deadline, too.
        if begun.elapsed() < ANSWER_TIMEOUT * 2 {
            sleep(STALL_TIMEOUT / 2).await;
        }
    }
    assert_eq!(admin.view.finished.load(SeqCst), 1, "the walk has ended");
    assert!(admin.view.pulled.load(SeqCst) < SESSIONS, "before all was written");
}
