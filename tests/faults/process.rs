//! Faults of the relay's own process: FP1, FP6.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::site::{Site, quick, served};
use crate::support::client::Event;
use crate::support::{Client, ControlPlane, EDS, Item, Relay, Variant, net};

/// FP1, RLY-77: unready at once, no new connections, streams end spread over the window, exit code 0.
#[tokio::test]
async fn fp_1_sigterm() {
    let mut site = Site::with(|server| quick(server).line("drain: 3s")).await;
    let mut clients = Vec::new();
    for number in 0..20 {
        clients.push(served(&site.relay, Variant::Delta, &format!("client-{number}")).await);
    }
    let mut unanswered = Client::open(&site.relay.address, Variant::Sotw, "unanswered").await;
    unanswered.want(EDS, &["missing"]);
    site.origin.expect_that(EDS, |ask| ask.subscribe.iter().any(|name| name == "missing")).await;
    let start = Instant::now();
    site.relay.sigterm();
    // A stream without an answer ends at once, so that its client goes to another server.
    assert_eq!(unanswered.ended().await.code(), Code::Unavailable);
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
    assert_eq!(net::http_get(&site.relay.admin, "/ready").await.unwrap().0, 503);
    assert!(tokio::net::TcpStream::connect(&site.relay.address).await.is_err(), "a connection was taken");
    let mut ends = Vec::new();
    for client in clients.iter_mut().chain([&mut site.delta, &mut site.sotw]) {
        let waits = async move {
            match client.event().await {
                Event::End(status) => (status, start.elapsed()),
                answer => panic!("a removal or another answer while draining: {answer:?}"),
            }
        };
        ends.push(waits);
    }
    let ends = futures_util::future::join_all(ends).await;
    assert!(ends.iter().all(|(status, _)| status.code() == Code::Unavailable), "{ends:?}");
    let times: Vec<_> = ends.iter().map(|(_, at)| *at).collect();
    let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
    assert!(last - first > Duration::from_millis(700), "all at once: {times:?}");
    assert_eq!(site.relay.exit().await.code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

/// FP6: the relay reads messages that arrived during its stall before any timer fires: the answer was in
/// time.
#[tokio::test]
async fn fp_6_a_stall_is_no_timeout() {
    for upstream in Variant::BOTH {
        let origin = ControlPlane::scripted().await;
        let relay = Relay::start(quick(origin.address).upstream(upstream).resource_timeout(3)).await;
        let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
        let names: Vec<String> = (0..50).map(|number| format!("name-{number}")).collect();
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        client.want(EDS, &wanted);
        let asked = origin.expect(EDS).await;
        // A sign of life: without the answer, silence alone would make the others absent.
        origin.answer(&asked, "1", vec![Item::new(EDS, "name-0", "1", "1")], &[]);
        client.take(EDS).await;
        relay.signal("STOP");
        let rest = wanted[1..].iter().map(|name| Item::new(EDS, name, "1", "1")).collect();
        origin.answer(&asked, "2", rest, &[]);
        tokio::time::sleep(Duration::from_secs(5)).await;
        relay.signal("CONT");
        while client.holds(EDS).len() < 50 {
            let answer = client.take(EDS).await;
            assert_eq!(answer.removed, [""; 0], "FP6: taken for absent");
        }
        client.quiet().await;
    }
}

/// FP6: clients and control planes survive a stall of the relay, and the relay survives too; no removal, no
/// repetition.
#[tokio::test]
async fn fp_6_a_stall_is_no_news() {
    let mut site = Site::with(|server| quick(server).resource_timeout(2)).await;
    site.relay.signal("STOP");
    tokio::time::sleep(Duration::from_secs(8)).await;
    site.relay.signal("CONT");
    site.quiet().await;
    site.change_arrives("2").await;
    assert_eq!(site.relay.log_lines("WARN"), [""; 0]);
}
