//! ADM-14: peers that take nothing of their answers, over HTTP/2, where this costs them nothing.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Method, Request as HttpRequest};

use super::*;
use crate::admin::csds::CALLS_MAX;
use crate::admin::live::{LIVE_MAX, SILENCE_MAX};
use crate::admin::turn::{ANSWER_TIMEOUT, LIVE_STALL_TIMEOUT, STALL_TIMEOUT};

const REST: &str = Endpoint::ClientStatus.path();
const FETCH: &str = Endpoint::FetchClientStatus.path();

const ALL: (Method, &str) = (Method::GET, "/clients?limit=all");

/// A connection that has room for no byte of any answer, and answers PINGs.
struct Reader {
    send: SendRequest<Bytes>,
    bodies: Vec<h2::RecvStream>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Reader {
    async fn connect(admin: &Fixture) -> Reader {
        let (send, connection) = h2::client::Builder::new()
            .initial_window_size(0)
            .handshake::<_, Bytes>(admin.connect())
            .await
            .unwrap();
        Reader { send, bodies: Vec::new(), connection: tokio::spawn(connection) }
    }

    /// Asks, and reads the head of the answer.
    async fn ask(&mut self, (method, target): (Method, &str), body: &'static str) -> u16 {
        let request = HttpRequest::builder().method(method).uri(format!("http://localhost{target}"));
        let request = match target {
            FETCH => request.header("content-type", "application/grpc").header("te", "trailers"),
            "/events" => request.header("accept", "text/event-stream"),
            _ => request,
        };
        self.send = self.send.clone().ready().await.unwrap();
        let (answer, mut sent) = self.send.send_request(request.body(()).unwrap(), body.is_empty()).unwrap();
        if !body.is_empty() {
            sent.send_data(body.into(), true).unwrap();
        }
        let answer = answer.await.unwrap();
        let status = answer.status().as_u16();
        self.bodies.push(answer.into_body());
        status
    }

    async fn ends_within(self, within: Duration) -> bool {
        tokio::time::timeout(within, self.connection).await.is_ok()
    }
}

fn order(target: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
}

#[tokio::test(start_paused = true)]
async fn adm_14_slow_readers_hold_up_no_order_and_lose_their_places_to_other_reads() {
    let admin = Fixture::start(vec![], false);
    let mut slow = Reader::connect(&admin).await;
    for _ in 0..REQUESTS_MAX {
        assert_eq!(slow.ask(ALL, "").await, 200);
    }
    assert_eq!(admin.send(&order("/log?level=info&for=1m")).await.status, 200, "at once");
    let early = admin.get("/metrics").await;
    assert_eq!(early.status, 503, "a reader has a second");
    assert!(early.head.contains("retry-after: 1"), "{}", early.head);
    sleep(GRACE).await;
    assert_eq!(admin.get("/metrics").await.status, 200);
    assert!(slow.ends_within(Duration::from_secs(1)).await, "the connection of the slowest");
    for _ in 0..2 * REQUESTS_MAX {
        assert_eq!(admin.get("/clients?limit=1").await.status, 200);
    }
    assert_eq!(admin.view.finished.load(SeqCst), 3 * REQUESTS_MAX + 1, "all walks have ended, and a count");
}

#[tokio::test(start_paused = true)]
async fn adm_14_slow_readers_of_orders_lose_their_places() {
    let admin = Fixture::start(vec![], false);
    let mut slow = Reader::connect(&admin).await;
    for _ in 0..ORDERS_MAX {
        assert_eq!(slow.ask((Method::POST, "/reload?dry_run=1"), "").await, 200);
    }
    assert_eq!(admin.get("/clients?limit=1").await.status, 200, "reads have places of their own");
    sleep(GRACE).await;
    assert_eq!(admin.send(&order("/log?level=info&for=1m")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn adm_14_each_answer_has_a_deadline_without_any_write() {
    let admin = Fixture::start(vec![], false);
    let mut slow = Reader::connect(&admin).await;
    assert_eq!(slow.ask(ALL, "").await, 200);
    sleep(STALL_TIMEOUT / 2).await;
    assert_eq!(admin.view.finished.load(SeqCst), 0);
    assert!(slow.ends_within(STALL_TIMEOUT).await);
    assert_eq!(admin.view.finished.load(SeqCst), 1, "the walk has ended");
}

/// A reader that takes a part now and then is never stalled.
#[tokio::test(start_paused = true)]
async fn adm_14_a_whole_answer_has_a_deadline() {
    let admin = Fixture::start(vec![], false);
    let connected = h2::client::handshake(admin.connect()).await.unwrap();
    let (mut send, connection): (SendRequest<Bytes>, _) = connected;
    let connection = tokio::spawn(connection);
    let request = HttpRequest::get("http://localhost/clients?limit=all").body(()).unwrap();
    let mut body = send.send_request(request, true).unwrap().0.await.unwrap().into_body();
    let begun = tokio::time::Instant::now();
    while !connection.is_finished() {
        let Some(Ok(data)) = body.data().await else { break };
        let _ = body.flow_control().release_capacity(data.len());
        sleep(STALL_TIMEOUT / 10).await;
    }
    let cut = begun.elapsed();
    assert!((ANSWER_TIMEOUT..ANSWER_TIMEOUT + STALL_TIMEOUT / 5).contains(&cut), "{cut:?}");
    assert_eq!(admin.view.finished.load(SeqCst), 1);
}

/// The listener has 128 connections.
#[tokio::test(start_paused = true)]
async fn adm_14_connections_of_slow_readers_make_room_for_others() {
    let admin = Fixture::start(vec![], false);
    let mut slow = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut reader = Reader::connect(&admin).await;
        assert_eq!(reader.ask((Method::GET, "/healthz"), "").await, 200);
        slow.push(reader);
    }
    sleep(GRACE).await;
    assert_eq!(admin.get("/healthz").await.status, 200);
    assert_eq!(admin.limit_hits(Limit::AdminConnections), "1");
    assert!(slow.remove(0).ends_within(Duration::from_secs(1)).await, "the slowest");
}

#[tokio::test(start_paused = true)]
async fn adm_14_slow_readers_of_live_answers_lose_their_places() {
    let admin = Fixture::start(vec![], false);
    let mut slow = Vec::new();
    for _ in 0..LIVE_MAX / 16 {
        let mut reader = Reader::connect(&admin).await;
        for _ in 0..16 {
            assert_eq!(reader.ask((Method::GET, "/events"), "").await, 200);
        }
        slow.push(reader);
    }
    // Silence is the relay's; the first sign of life is not taken.
    sleep(SILENCE_MAX + 2 * GRACE).await;
    let mut another = Reader::connect(&admin).await;
    assert_eq!(another.ask((Method::GET, "/events"), "").await, 200);
    assert!(slow.remove(0).ends_within(Duration::from_secs(1)).await);
    assert!(
        another.ends_within(SILENCE_MAX + LIVE_STALL_TIMEOUT + 2 * GRACE).await,
        "and in the end without another"
    );
}

#[tokio::test(start_paused = true)]
async fn adm_14_slow_callers_for_client_status_lose_their_places() {
    let admin = Fixture::start(vec![], false);
    // An empty request of gRPC.
    const EMPTY: &str = "\0\0\0\0\0";
    for (target, body) in [(FETCH, EMPTY), (REST, "{}")] {
        let mut slow = Reader::connect(&admin).await;
        for _ in 0..CALLS_MAX {
            assert_eq!(slow.ask((Method::POST, target), body).await, 200, "{target}");
        }
        sleep(GRACE).await;
        let mut another = Reader::connect(&admin).await;
        assert_eq!(another.ask((Method::POST, REST), "{}").await, 200, "{target}");
        assert!(slow.ends_within(Duration::from_secs(1)).await, "{target}");
    }
    // Requests whose bodies never come.
    let mut io = Vec::new();
    for _ in 0..CALLS_MAX {
        let mut half = admin.connect();
        let head = format!("POST {REST} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n");
        half.write_all(head.as_bytes()).await.unwrap();
        io.push(half);
    }
    sleep(GRACE + Duration::from_millis(10)).await;
    let mut another = Reader::connect(&admin).await;
    assert_eq!(another.ask((Method::POST, REST), "{}").await, 200, "slow writers");
}
