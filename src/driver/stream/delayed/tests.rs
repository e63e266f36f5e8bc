//! Requests over the rate: they wait, and their client does not.

#![allow(clippy::unwrap_used)]

use std::future::poll_fn;
use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::driver::api::downstream::{OpenStreams, RelayStream};
use crate::driver::api::status::{ConfigStatus, SessionTypeStatus, StatusView, Why};
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::limits::RelayLimits;
use crate::driver::relay::Relay;
use crate::driver::stream::state::Stream;
use crate::driver::stream::state::tests::{peer, relay_of_clusters, relay_with, write_clusters};
use sluice_xds::{StreamKind, Variant};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// A relay over an unreachable server.
fn relay(changes_per_second: u32, changes_burst: u32) -> Relay {
    let limits = RelayLimits { changes_per_second, changes_burst, ..RelayLimits::default() };
    relay_with(|settings| DriverSettings { limits, ..settings })
}

fn open(relay: &Relay, variant: Variant) -> Stream {
    relay.open(StreamKind::from(variant), peer([127, 0, 0, 1])).unwrap()
}

fn names(count: usize) -> Vec<ResourceName> {
    (0..count).map(|number| format!("c-{number}").as_str().into()).collect()
}

fn sotw(type_url: &str, resource_names: Vec<ResourceName>, nonce: &str) -> Request {
    let node = Some(Box::default());
    let (type_url, response_nonce) = (type_url.into(), nonce.into());
    Request::Sotw(SotwRequest { node, type_url, resource_names, response_nonce, ..SotwRequest::default() })
}

fn delta(subscribe: &[&str], unsubscribe: &[&str]) -> Request {
    let list = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
    let (subscribe, unsubscribe) = (list(subscribe), list(unsubscribe));
    Request::Delta(DeltaRequest { type_url: CDS.into(), subscribe, unsubscribe, ..DeltaRequest::default() })
}

/// A delta request with a node, as the first one of a stream has.
fn first(subscribe: &[&str]) -> Request {
    let Request::Delta(request) = delta(subscribe, &[]) else { unreachable!("it is one") };
    Request::Delta(DeltaRequest { node: Some(Box::default()), ..request })
}

fn names_taken(stream: &Stream) -> usize {
    stream.state().inner.lock().session.names_len()
}

fn types(relay: &Relay) -> Vec<SessionTypeStatus> {
    relay.sessions_after(None).next().unwrap().types
}

async fn until_nothing_waits(stream: &Stream) {
    while stream.state().inner.lock().rate.delayed.is_some() {
        sleep(Duration::from_millis(5)).await;
    }
}

/// A client of gRPC asks for its clusters one by one, each time with all names so far.
#[tokio::test(start_paused = true)]
async fn fd_4_a_list_that_grows_name_by_name_waits_for_the_newest_list_only() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let relay = relay(100, 500);
        let stream = open(&relay, variant);
        let begun = Instant::now();
        for count in 1..=1000 {
            let request = match variant {
                Variant::Sotw => sotw(CDS, names(count), ""),
                Variant::Delta => first(&[&format!("c-{count}")]),
            };
            stream.request(request).await.unwrap();
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "{variant:?}: requests are read while others wait");
        assert!((300..1000).contains(&names_taken(&stream)), "{variant:?}: {}", names_taken(&stream));
        until_nothing_waits(&stream).await;
        assert_eq!(names_taken(&stream), 1000, "{variant:?}");
        assert!(begun.elapsed() < Duration::from_millis(100), "{variant:?}: {:?}", begun.elapsed());
    }
}

/// The rate bounds the changes that are taken, by the names that came and went.
#[tokio::test(start_paused = true)]
async fn fd_4_a_client_that_changes_many_names_again_and_again_is_bounded() {
    let relay = relay(100, 500);
    let stream = open(&relay, Variant::Sotw);
    let (mut taken, mut before) = (0, 0);
    for round in 0..200 {
        // No two lists have as many names.
        let names = names(if round % 2 == 0 { 20_000 + round } else { 1 + round });
        stream.request(sotw(CDS, names, "")).await.unwrap();
        sleep(Duration::from_millis(10)).await;
        let now = names_taken(&stream);
        taken += usize::from(now != before);
        before = now;
    }
    // 500 tokens and 100 a second. 20,000 names that come or go cost 50, and as many that stay cost 25.
    assert!((7..=30).contains(&taken), "{taken} of 200");
}

#[tokio::test(start_paused = true)]
async fn fd_4_a_new_stream_has_no_more_names_than_its_connection() {
    let (relay, peer) = (relay(100, 500), peer([127, 0, 0, 1]));
    let mut taken = 0;
    for round in 0..10 {
        let stream = relay.open(StreamKind::from(Variant::Sotw), peer.clone()).unwrap();
        let names = (0..95_000).map(|number| format!("c-{round}-{number}").as_str().into()).collect();
        stream.request(sotw(CDS, names, "")).await.unwrap();
        taken += usize::from(names_taken(&stream) > 0);
        // Each ends, and the next has its place.
    }
    // A burst of 200,000 names, and a listed one costs one and a half.
    assert_eq!(taken, 2);
}

/// World C2: a changed resource arrives while requests wait, although the ACK before came with a list that
/// waits.
#[tokio::test]
async fn a_client_whose_requests_wait_is_still_served() {
    let (relay, directory) = relay_of_clusters(&["c-0", "c-1"], 10).await;
    let stream = open(&relay, Variant::Sotw);
    let message = || timeout(Duration::from_secs(20), poll_fn(|context| stream.poll_message(context)));
    let nonce = |number| stream.state().inner.lock().session.nonce_text(number);
    stream.request(sotw(CDS, names(1), "")).await.unwrap();
    assert!(message().await.unwrap().unwrap().unwrap().shared.len() < 1000);
    // From here on the stream is in debt, and waits for as long as anybody does.
    let now = relay.shared.clock.now();
    stream.state().inner.lock().rate.charge(10_000_000, &SharedNames::default(), now);
    stream.request(sotw(CDS, names(2), &nonce(1))).await.unwrap();
    let [status] = &types(&relay)[..] else { unreachable!("one type") };
    assert_eq!((status.state, status.why, status.unacked), (ConfigStatus::Stale, Some(Why::Rate), None));

    write_clusters(&directory, &[("c-0", 2_000), ("c-1", 2_000)]);
    let update = message().await.unwrap().unwrap().unwrap();
    assert!((2_000..4_000).contains(&update.shared.len()), "{}", update.shared.len());
    let waiting = stream.state().delayed_types();
    assert_eq!(waiting.len(), 1, "the request still waits: {waiting:?}");
    // Then the name of the list that waited, too.
    stream.request(sotw(CDS, names(2), &nonce(2))).await.unwrap();
    assert!(message().await.unwrap().unwrap().unwrap().shared.len() > 4_000);
    until_nothing_waits(&stream).await;
    assert_eq!(types(&relay)[0].why, Some(Why::Unacked));
}

#[tokio::test(start_paused = true)]
async fn a_type_without_a_request_that_was_taken_is_shown_as_waiting() {
    let relay = relay(1, 1);
    let stream = open(&relay, Variant::Sotw);
    stream.request(sotw(CDS, names(1), "")).await.unwrap();
    stream.request(sotw(EDS, names(5), "")).await.unwrap();
    let [clusters, endpoints] = &types(&relay)[..] else { unreachable!("two types") };
    assert_eq!(clusters.why, Some(Why::Unknown));
    assert_eq!((endpoints.why, endpoints.names), (Some(Why::Rate), 0));
    assert_eq!(endpoints.held.as_ref().unwrap().what.as_deref(), Some("limits.changes_per_second"));
    until_nothing_waits(&stream).await;
    assert_eq!((types(&relay)[1].why, types(&relay)[1].names), (Some(Why::Unknown), 5));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_back_to_its_list_waits_for_nothing() {
    let relay = relay(1, 1);
    let stream = open(&relay, Variant::Sotw);
    for count in [1, 2, 1] {
        stream.request(sotw(CDS, names(count), "")).await.unwrap();
    }
    assert_eq!(stream.state().delayed_types(), []);
    assert_eq!(names_taken(&stream), 1);
}

/// The task for the requests that wait ends with the stream.
#[tokio::test(start_paused = true)]
async fn requests_that_wait_keep_no_stream_open() {
    let relay = relay(1, 1);
    let stream = open(&relay, Variant::Delta);
    stream.request(first(&["a"])).await.unwrap();
    stream.request(delta(&["b"], &[])).await.unwrap();
    let state = Arc::downgrade(stream.state());
    drop(stream);
    assert_eq!(relay.tables.streams.len(), 0);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(state.strong_count(), 0);
}

#[test]
fn del_4_delta_requests_that_wait_become_one_with_the_last_word_on_each_name() {
    let type_url = TypeUrl::new(CDS);
    let mut waiting = DelayedRequests::new(&ConnectionCut::default(), Time::ZERO);
    let mut put = |request| waiting.put(type_url.clone(), request, Time::ZERO).unwrap();
    put(delta(&["a", "b"], &[]));
    put(delta(&["c"], &["a", "d"]));
    put(delta(&["d", "e"], &["e"]));
    waiting.count(&type_url);
    let request = delta(&["b", "c", "d"], &["a", "e"]);
    assert_eq!(waiting.next(Time::ZERO), Some(DueRequest { request, requests: 4 }));
    assert!(waiting.next(Time::ZERO).is_none());
}

/// DEL-6: an empty first request may mean the wildcard, which the names of the next request must not hide.
#[test]
fn del_6_an_empty_first_request_stays_by_itself() {
    let type_url = TypeUrl::new(CDS);
    let mut waiting = DelayedRequests::new(&ConnectionCut::default(), Time::ZERO);
    let due = |names: &[&str], requests| DueRequest { request: delta(names, &[]), requests };
    for request in [delta(&[], &[]), delta(&["a"], &[]), delta(&["b"], &[])] {
        waiting.put(type_url.clone(), request, Time::ZERO).unwrap();
    }
    assert_eq!(waiting.next(Time::ZERO), Some(due(&[], 1)));
    assert_eq!(waiting.next(Time::ZERO), Some(due(&["a", "b"], 2)));
}

#[test]
fn the_names_that_wait_are_charged_to_the_connection() {
    let connection = ConnectionCut::with_budget(10_000);
    let mut waiting = DelayedRequests::new(&connection, Time::ZERO);
    waiting.put(TypeUrl::new(CDS), sotw(CDS, names(50), ""), Time::ZERO).unwrap();
    let held = connection.account().private_bytes();
    assert!((3_000..5_000).contains(&held), "{held}");
    waiting.put(TypeUrl::new(CDS), sotw(CDS, names(10), ""), Time::ZERO).unwrap();
    assert!(connection.account().private_bytes() < 2_000);
    let refused = waiting.put(TypeUrl::new(EDS), sotw(EDS, names(200), ""), Time::ZERO).unwrap_err();
    assert!(refused.message.contains("limits.connection_bytes"), "{refused}");
    assert_eq!(waiting.next(Time::ZERO).unwrap().requests, 2);
}
