//! Streams of load reports: messages in and out, limits, and the end (RPC-8).

use bytes::Bytes;
use sluice::server::{Listener, ListenerOptions, LoadReports, ServerLimits};
use sluice::telemetry::Limit;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::kit::{SOTW, eventually, framed, soon, start, start_on, status_of};

const LRS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
const LRS_V2: &str = "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats";

/// A framed report of this size, with arbitrary content.
fn report(bytes: usize) -> Bytes {
    framed(&vec![7; bytes])
}

#[tokio::test]
async fn reports_are_passed_on_whole_and_in_order_beside_other_streams() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut reports = client.open(LRS).await;
    assert_eq!(reports.head().await.status(), 200);
    let both = [report(40), report(1000)].concat();
    let (first, rest) = both.split_at(700);
    reports.requests.send_data(first.to_vec().into(), false).unwrap();
    assert_eq!(reports.message().await.unwrap(), "wish");
    reports.requests.send_data(rest.to_vec().into(), false).unwrap();
    // Other streams of the connection are served throughout.
    let mut call = client.open(SOTW).await;
    server.relay.stream(0).await.publish(b"", b"news");
    assert_eq!(call.message().await.unwrap(), "news");
    let lengths = || server.relay.load.reports.lock().unwrap().iter().map(Bytes::len).collect::<Vec<_>>();
    eventually("both reports arrive", || lengths() == [40, 1000]).await;
    assert!(reports.is_open().await);
    assert_eq!((server.relay.opened(), server.metrics.calls_unimplemented.get()), (1, 0));
}

/// The relay says what is too much, and the other stream of the connection goes on.
#[tokio::test]
async fn a_refused_report_ends_its_stream_only() {
    let mut limits = ServerLimits::default();
    limits.requests.request_bytes = 10_000;
    let server = start(limits);
    let mut client = server.connect().await;
    let (mut many, mut bad, mut few) =
        (client.open(LRS).await, client.open(LRS).await, client.open(LRS).await);
    for _ in 0..12 {
        many.requests.send_data(report(1000), false).unwrap();
    }
    assert_eq!(many.status().await.0, "8");
    bad.requests.send_data(framed(b"no"), false).unwrap();
    assert_eq!(bad.status().await, ("3".into(), "no".into()));
    few.requests.send_data(report(1000), false).unwrap();
    assert!(few.is_open().await);
    eventually("both have ended", || server.relay.load.ended.load(Ordering::SeqCst) == 2).await;
}

#[tokio::test]
async fn a_report_over_the_limit_or_without_an_end_is_refused() {
    let mut limits = ServerLimits::default();
    limits.requests.request_bytes = 1_000;
    limits.request_timeout = Duration::from_millis(100);
    let server = start(limits);
    let mut client = server.connect().await;
    let mut large = client.open(LRS).await;
    large.requests.send_data(report(1_001).slice(..5), false).unwrap();
    assert_eq!(large.status().await.0, "8");
    assert_eq!(server.metrics.limit_hits(Limit::RequestBytes), 1);
    let mut half = client.open(LRS).await;
    half.requests.send_data(report(900).slice(..500), false).unwrap();
    assert_eq!(half.status().await.0, "4");
    assert_eq!(server.metrics.limit_hits(Limit::RequestTimeout), 1);
}

/// A relay that takes nothing more lets flow control stop the client, and hears when the client leaves.
#[tokio::test]
async fn while_the_relay_is_busy_nothing_is_read_and_a_reset_is_seen() {
    let server = start(ServerLimits::default());
    *server.relay.load.is_busy.lock().unwrap() = true;
    let mut client = server.connect().await;
    let mut reports = client.open(LRS).await;
    reports.head().await;
    reports.requests.send_data(report(40), false).unwrap();
    reports.requests.send_reset(h2::Reason::CANCEL);
    eventually("the stream ends", || server.relay.load.ended.load(Ordering::SeqCst) == 1).await;
    assert!(server.relay.load.reports.lock().unwrap().is_empty());
}

/// LRS-4: a client that closes may send one last report just before.
#[tokio::test]
async fn a_report_stream_ends_with_its_client_and_with_the_drain() {
    let mut server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut done = client.open(LRS).await;
    done.requests.send_data(report(3), true).unwrap();
    assert_eq!(done.message().await.unwrap(), "wish");
    assert_eq!(done.status().await.0, "0");
    assert_eq!(server.relay.load.reports.lock().unwrap().len(), 1);
    let mut open = client.open(LRS).await;
    open.head().await;
    server.shut_down();
    assert_eq!(open.status().await, ("14".into(), "the%20server%20is%20draining".into()));
    soon(&mut server.served).await.unwrap();
    assert_eq!(server.metrics.closed_cut.get(), 0);
}

#[tokio::test]
async fn a_listener_drops_or_refuses_load_reports() {
    for (treatment, code) in [(Some(LoadReports::Refuse), "12"), (Some(LoadReports::Drop), ""), (None, "")] {
        let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let options = ListenerOptions { load_reports: treatment, ..ListenerOptions::default() };
        let server = start_on(ServerLimits::default(), vec![listener.with(options)], address);
        let mut client = server.connect().await;
        let mut call = client.open(LRS).await;
        if code.is_empty() {
            call.requests.send_data(report(3), false).unwrap();
            assert_eq!(call.message().await.unwrap(), "wish");
            assert_eq!(*server.relay.load.is_dropped.lock().unwrap(), treatment.is_some());
        } else {
            assert_eq!(status_of(call.head().await.headers()).0, code);
            eventually("it is counted", || server.metrics.calls_unimplemented.get() == 1).await;
        }
    }
}

#[tokio::test]
async fn load_reports_of_v2_need_v2() {
    let server = start(ServerLimits::default());
    let head = server.connect().await.open(LRS_V2).await.head().await;
    assert_eq!(status_of(head.headers()).0, "12");
}
