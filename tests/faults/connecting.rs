//! The server cannot be reached: FU1, FU2, FU6.

use std::time::{Duration, Instant};

use crate::site::{SLACK, Site, assert_backs_off};

/// FU1, CLI-4: noticed at once, logged once, retried at the pace of the backoff.
#[tokio::test]
async fn fu_1_connection_refused() {
    let mut site = Site::new().await;
    let start = Instant::now();
    site.proxy.refuse().await;
    let failures = site.failures_for(Duration::from_secs(4)).await;
    let noticed = failures[0] - start;
    assert!(noticed < Duration::from_millis(1500), "noticed after {noticed:?}");
    // The first two failures differ by the backoff after the first.
    assert_backs_off(&failures, 0, Duration::ZERO);
    site.outage_affects_no_client().await;
    let error = site.relay.sources(&site.server).await[0]["last_error"].to_string();
    assert!(error.contains("refused"), "{error}");
    site.proxy.listen().await;
    let start = Instant::now();
    site.recovers().await;
    assert!(start.elapsed() < Duration::from_secs(1) + SLACK, "back after {:?}", start.elapsed());
}

/// FU2: the SYN gets no answer. The connect timeout bounds each attempt, and the backoff the number of
/// attempts.
#[tokio::test]
async fn fu_2_blackhole_at_connect() {
    let mut site = Site::new().await;
    site.proxy.blackhole();
    let start = Instant::now();
    site.proxy.cut();
    let failures = site.failures_for(Duration::from_secs(5)).await;
    let noticed = failures[0] - start;
    assert!(noticed >= Duration::from_millis(450), "noticed after {noticed:?}");
    assert!(noticed < Duration::from_millis(500) + SLACK, "noticed after {noticed:?}");
    assert_backs_off(&failures, 0, Duration::from_millis(500));
    site.outage_affects_no_client().await;
    let error = site.relay.sources(&site.server).await[0]["last_error"].to_string();
    assert!(error.contains("no answer within 500ms"), "{error}");
    site.proxy.heal();
    site.recovers().await;
}

/// FU6: TCP connects, but HTTP/2's SETTINGS arrive at a byte per second: the connection never counts as
/// ready.
#[tokio::test]
async fn fu_6_slow_handshake() {
    let mut site = Site::new().await;
    site.proxy.throttle(1);
    let before = site.proxy.accepted().len();
    site.proxy.cut();
    site.outage_affects_no_client().await;
    let error = site.relay.sources(&site.server).await[0]["last_error"].to_string();
    assert!(error.contains("no HTTP/2 SETTINGS"), "{error}");
    let attempts = &site.proxy.accepted()[before..];
    assert_backs_off(attempts, 0, Duration::from_millis(500));
    site.proxy.heal();
    site.recovers().await;
}

/// FU6: a slow path is no fault as long as the deadlines hold.
#[tokio::test]
async fn fu_6_a_slow_path_is_no_fault() {
    let mut site = Site::new().await;
    site.proxy.delay(Duration::from_millis(50));
    site.proxy.cut();
    site.quiet().await;
    site.change_arrives("slow").await;
    assert_eq!(site.relay.log_lines("WARN"), [""; 0]);
}
