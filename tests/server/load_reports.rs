//! Load reports are accepted and dropped, so that clients don't reconnect every 5 s (RPC-8).

use bytes::Bytes;
use sluice::server::{Listener, ListenerOptions, LoadReports, ServerLimits};
use sluice::telemetry::Limit;

use crate::kit::{SOTW, eventually, soon, start, start_on, status_of};

const LRS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";
const LRS_V2: &str = "/envoy.service.load_stats.v2.LoadReportingService/StreamLoadStats";

/// A framed report of this size, with arbitrary content.
fn report(bytes: usize) -> Bytes {
    [&[0][..], &(bytes as u32).to_be_bytes(), &vec![7; bytes]].concat().into()
}

#[tokio::test]
async fn a_load_reporting_stream_is_kept_with_an_empty_wish() {
    let server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut reports = client.open(LRS).await;
    assert_eq!(reports.head().await.status(), 200);
    reports.requests.send_data(report(40), false).unwrap();
    // `load_reporting_interval` (2) of `seconds` (1): 300. No cluster is named, and `send_all_clusters` is
    // off.
    assert_eq!(reports.message().await.unwrap()[..], [0x12, 3, 0x08, 0xac, 0x02]);
    for _ in 0..20 {
        reports.requests.send_data(report(1000), false).unwrap();
    }
    // Other streams of the connection are served throughout.
    let mut call = client.open(SOTW).await;
    server.relay.stream(0).await.publish(b"", b"news");
    assert_eq!(call.message().await.unwrap(), "news");
    assert!(reports.is_open().await);
    assert_eq!((server.relay.opened(), server.metrics.calls_unimplemented.get()), (1, 0));
}

#[tokio::test]
async fn too_many_load_reports_end_their_stream_only() {
    let mut limits = ServerLimits::default();
    limits.requests.request_bytes = 10_000;
    let server = start(limits);
    let mut client = server.connect().await;
    let (mut many, mut few) = (client.open(LRS).await, client.open(LRS).await);
    for _ in 0..12 {
        many.requests.send_data(report(1000), false).unwrap();
    }
    few.requests.send_data(report(1000), false).unwrap();
    assert_eq!(many.status().await.0, "8");
    assert_eq!(server.metrics.limit_hits(Limit::RequestBytes), 1);
    few.message().await.unwrap();
    assert!(few.is_open().await);
}

#[tokio::test]
async fn a_report_stream_ends_with_its_client_and_with_the_drain() {
    let mut server = start(ServerLimits::default());
    let mut client = server.connect().await;
    let mut done = client.open(LRS).await;
    done.message().await.unwrap();
    done.requests.send_data(Bytes::new(), true).unwrap();
    assert_eq!(done.status().await.0, "0");
    let mut open = client.open(LRS).await;
    open.message().await.unwrap();
    server.shut_down();
    assert_eq!(open.status().await, ("14".into(), "the%20server%20is%20draining".into()));
    soon(&mut server.served).await.unwrap();
    assert_eq!(server.metrics.closed_cut.get(), 0);
}

#[tokio::test]
async fn load_reports_can_be_refused() {
    let listener = Listener::bind_tcp("main", "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let options = ListenerOptions { load_reports: LoadReports::Refuse, ..ListenerOptions::default() };
    let server = start_on(ServerLimits::default(), vec![listener.with(options)], address);
    let mut client = server.connect().await;
    let head = client.open(LRS).await.head().await;
    assert_eq!(status_of(head.headers()).0, "12");
    eventually("it is counted", || server.metrics.calls_unimplemented.get() == 1).await;
}

#[tokio::test]
async fn load_reports_of_v2_need_v2() {
    let server = start(ServerLimits::default());
    let head = server.connect().await.open(LRS_V2).await.head().await;
    assert_eq!(status_of(head.headers()).0, "12");
}
