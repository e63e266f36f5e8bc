//! Streams that end, and unreadable streams: FU8, FU9, FU11, FU17, FU28.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::site::{BACKOFF, SLACK, Site, assert_backs_off, quick};
use crate::support::control_plane::eventually;
use crate::support::operator::{ENDS_STREAM, UNREACHABLE};
use crate::support::{CDS, Client, ControlPlane, EDS, Relay, Variant};

/// Ends each stream after its first request, for this long.
async fn close_each_stream(origin: &ControlPlane, code: Code, window: Duration) {
    let (start, mut seen) = (Instant::now(), origin.log().len());
    while start.elapsed() < window {
        if origin.log().len() > seen {
            seen = origin.log().len();
            origin.close_streams(code);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// FU8, RLY-3: a fresh relay whose server ends every stream: its clients wait, and get no response.
#[tokio::test]
async fn fu_8_reset_after_headers() {
    for code in [Code::Unavailable, Code::Ok] {
        let origin = ControlPlane::scripted().await;
        let relay = Relay::start(quick(origin.address)).await;
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(EDS, &["a"]);
        close_each_stream(&origin, code, Duration::from_secs(3)).await;
        assert_backs_off(&origin.opened_at(), 0, Duration::ZERO);
        relay.is_stale(&origin.address.to_string()).await;
        client.silence(Duration::from_millis(100)).await;
        relay.warned(1).await;
        let is_asked = |origin: &ControlPlane| {
            let asked = origin.requests(EDS).pop().is_some_and(|last| last.stream == origin.opened());
            asked && origin.live_streams() == 1
        };
        origin.wait_for("a stream that stays", is_asked).await;
        let last = origin.requests(EDS).pop().unwrap();
        let item = crate::support::Item::new(EDS, "a", "1", "text");
        origin.answer(&last, "1", vec![item], &[]);
        assert_eq!(client.take(EDS).await.names(), ["a"]);
        relay.is_fresh(&origin.address.to_string()).await;
    }
}

/// FU8: refused instead of headers, after the clients were served: the only effect is staleness.
#[tokio::test]
async fn fu_8_refused_before_headers() {
    let mut site = Site::new().await;
    let before = site.origin.opened_at().len();
    site.origin.refuse_delta(Some(Code::Unavailable));
    site.origin.close_streams(Code::Unavailable);
    site.outage_affects_no_client().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_backs_off(&site.origin.opened_at()[before..], 0, Duration::ZERO);
    assert_eq!(site.metric("sluice_upstream_connect_failures_total").await, 0.0, "the connection is fine");
    site.origin.refuse_delta(None);
    site.recovers().await;
}

/// FU8, RLY-25: UNKNOWN is the status of any error that a server's code returns, and says nothing about the methods of the
/// server. The relay retries with its backoff, in the same variant, and the clients are complete soon after the last error.
#[tokio::test]
async fn fu_8_rly_25_unknown_is_retried_in_the_same_variant() {
    for is_guessed in [false, true] {
        let origin = ControlPlane::obedient().await;
        origin.set_many(CDS, &[("a", "1"), ("b", "1")]);
        origin.refuse_delta(Some(Code::Unknown));
        let setup = quick(origin.address);
        let relay = Relay::start(if is_guessed { setup.guessed() } else { setup }).await;
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        client.want(CDS, &["*"]);
        origin.wait_for("five attempts", |origin| origin.opened() >= 5).await;
        assert_backs_off(&origin.opened_at(), 0, Duration::ZERO);
        relay.is_stale(&origin.address.to_string()).await;
        origin.refuse_delta(None);
        let start = Instant::now();
        client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
        assert!(start.elapsed() < BACKOFF.1 * 2 + SLACK, "after {:?}", start.elapsed());
        assert!(origin.requests(CDS).iter().all(|asked| asked.variant == Variant::Delta));
    }
}

/// FU8, I14: the relay distinguishes a server that accepts connections and ends the streams from an
/// unreachable server, and reports each change between the two.
#[tokio::test]
async fn fu_8_a_server_that_ends_streams_is_not_called_unreachable() {
    let mut site = Site::new().await;
    site.origin.refuse_delta(Some(Code::PermissionDenied));
    site.origin.close_streams(Code::PermissionDenied);
    site.relay.upstream_has(&site.server, "ends_streams", 1).await;
    let source = site.relay.sources(&site.server).await.remove(0);
    let since = source["state_seconds"].as_f64().unwrap();
    let error = source["last_error"].as_str().unwrap();
    assert!(
        error.starts_with("ends the stream after ") && error.contains(" ms with PERMISSION_DENIED"),
        "{error}"
    );
    assert_eq!(site.relay.upstream(&site.server).await["last_error"].as_str(), Some(error));
    let labels = ["state=\"ends_streams\""];
    assert_eq!(site.relay.metric("sluice_upstream_sources", &labels).await, 1.0);
    let line = site.relay.warned(1).await.remove(0);
    assert!(
        line.contains(ENDS_STREAM) && line.contains("PERMISSION_DENIED") && line.contains("after="),
        "{line}"
    );
    // One state, however many attempts.
    let failed = source["failures"].as_u64().unwrap();
    let again = || async { site.relay.sources(&site.server).await.remove(0) };
    eventually("a further failure", || async { again().await["failures"].as_u64().unwrap() > failed }).await;
    let later = again().await;
    assert_eq!(later["state"], "ends_streams");
    assert!(later["state_seconds"].as_f64().unwrap() > since, "{later}");
    site.proxy.refuse().await;
    site.relay.upstream_has(&site.server, "backoff", 1).await;
    assert!(site.relay.warned(2).await[1].contains(UNREACHABLE));
    site.origin.refuse_delta(None);
    site.proxy.listen().await;
    site.renews_versions();
    site.relay.upstream_has(&site.server, "connected", 1).await;
    site.relay.is_fresh(&site.server).await;
}

/// FU8: the connection is reset under each stream before its first response.
#[tokio::test]
async fn fu_8_connection_reset_before_the_first_response() {
    let mut site = Site::new().await;
    let before = site.origin.opened_at().len();
    site.proxy.drop_to_server();
    site.proxy.reset();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        tokio::time::sleep(Duration::from_millis(150)).await;
        site.proxy.reset();
    }
    site.outage_affects_no_client().await;
    assert_eq!(site.origin.opened_at().len(), before, "no stream came through");
    site.proxy.heal();
    site.proxy.reset();
    site.recovers().await;
}

/// FU9, CLI-2, CLI-5: after an answer the first end is no error, and the stream is reopened at once; but
/// short streams, over and over, back off.
#[tokio::test]
async fn fu_9_reset_after_a_response() {
    let mut site = Site::new().await;
    let before = site.origin.opened_at().len();
    let (start, mut ended) = (Instant::now(), site.origin.opened());
    site.origin.close_streams(Code::Unavailable);
    site.origin.change(|world| world.restart());
    let first = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        let answered = site.origin.log().iter().any(|r| r.stream > ended && !r.ask.nonce.is_empty());
        if answered {
            ended = site.origin.opened();
            // A server that starts anew has an answer for each reconnect.
            site.origin.close_streams(Code::Unavailable);
            site.origin.change(|world| world.restart());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let attempts = site.origin.opened_at()[before..].to_vec();
    assert!(attempts[0] - first < Duration::from_millis(600), "the first comes at once");
    assert_backs_off(&attempts, 0, Duration::ZERO);
    site.silence(Duration::from_millis(50)).await;
    site.newcomers_are_served().await;
    site.quiet().await;
    site.change_arrives("after").await;
}

/// FU11: undecodable bytes end the stream, not the relay; another stream delivers the lost response.
/// Whichever position is hit, clients see whole resources or nothing.
#[tokio::test]
async fn fu_11_undecodable() {
    // 0 to 2 and 4 to 8 are in the head of the DATA frame (3, the type, would make HTTP/2 ignore the frame),
    // 9 to 13 in gRPC's prefix; 14 is the first tag of the message.
    for position in [0, 1, 2, 4, 5, 8, 9, 10, 13, 14] {
        let mut site = Site::new().await;
        let streams = site.origin.opened();
        site.proxy.corrupt(position);
        let (mut sent, start) = (0, Instant::now());
        // A wrong length makes the reader wait for more bytes, so the server has to send some.
        while site.origin.opened() == streams {
            sent += 1;
            site.origin.set(EDS, "e", &format!("sent-{sent}"));
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(start.elapsed() < Duration::from_secs(20), "byte {position} went unnoticed");
        }
        for client in [&mut site.delta, &mut site.sotw] {
            let mut last = String::new();
            while last != format!("sent-{sent}") {
                let answer = client.take(EDS).await;
                last = answer.get("e").text();
                assert!(
                    last.starts_with("sent-") && answer.removed.is_empty(),
                    "byte {position}: {answer:?}"
                );
            }
        }
        site.quiet().await;
        site.relay.is_fresh(&site.server).await;
        assert!(site.relay.log_lines("WARN").len() <= 1, "{:#?}", site.relay.log_lines("WARN"));
    }
}

/// FU17: a response over the limit: the state stays, and the error is logged, counted, and not retried in a
/// storm.
#[tokio::test]
async fn fu_17_over_the_limit() {
    let mut site = Site::with(|server| quick(server).server_line("max_response_bytes: 1MiB")).await;
    let before = site.origin.opened_at().len();
    site.origin.set(EDS, "e", &"x".repeat(2 << 20));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_backs_off(&site.origin.opened_at()[before..], 0, Duration::ZERO);
    site.silence(Duration::from_millis(50)).await;
    site.relay.is_stale(&site.server).await;
    site.newcomers_are_served().await;
    let label = "limit=\"max_response_bytes\"";
    assert!(site.relay.metric("sluice_limit_hits_total", &[label]).await >= 3.0);
    let warnings = site.relay.warned(1).await;
    assert!(warnings[0].contains("cannot read"), "{warnings:#?}");
    site.origin.set(EDS, "e", "small");
    for client in [&mut site.delta, &mut site.sotw] {
        assert_eq!(client.take(EDS).await.get("e").text(), "small");
    }
    site.relay.is_fresh(&site.server).await;
}

/// FU28: a thousand changes per second: each client gets few responses, the last of them soon, and no queue
/// grows.
#[tokio::test]
async fn fu_28_a_thousand_updates_a_second() {
    let mut site = Site::new().await;
    let memory = site.relay.resident();
    let start = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    let mut sent = 0;
    while start.elapsed() < Duration::from_secs(3) {
        tick.tick().await;
        sent += 1;
        site.origin.set(EDS, "e", &sent.to_string());
    }
    let (end, last) = (Instant::now(), sent.to_string());
    for client in [&mut site.delta, &mut site.sotw] {
        let mut answers = 0;
        while client.holds(EDS)["e"] != last {
            client.take(EDS).await;
            answers += 1;
        }
        // The test reads only now, so the windows of HTTP/2 and one answer in flight bound the number.
        assert!(answers <= 400, "{answers} answers of {sent} changes");
    }
    assert!(end.elapsed() < Duration::from_millis(100) + SLACK, "the last after {:?}", end.elapsed());
    let grown = site.relay.resident().saturating_sub(memory);
    assert!(grown < 32 << 20, "{grown} bytes more");
    site.quiet().await;
    eventually("no client is behind", || async {
        site.relay.metric("sluice_downstream_streams_behind", &[]).await == 0.0
    })
    .await;
    assert_eq!(site.delta.holds(CDS).len(), 2);
}
