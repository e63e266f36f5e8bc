//! Relays behind relays (ADR 14).

use std::collections::HashMap;
use std::fs;

use crate::support::client::Event;
use crate::support::control_plane::{ControlPlane, Recorded};
use crate::support::relay::QUICK_BACKOFF;
use crate::support::words::Item;
use crate::support::{CDS, Client, DEADLINE, EDS, LDS, Relay, Setup, Variant, net};

/// The control plane sends its clusters in parts, and for a while the root does not know whether the set is
/// complete. The root sends the known part to relays downstream; these never serve a part as the whole,
/// however long the root is silent.
#[tokio::test]
async fn rly_5_a_relay_waits_until_the_one_above_it_knows_the_set_as_a_whole() {
    let origin = ControlPlane::scripted().await;
    let root = Relay::start(Setup::of(origin.address)).await;
    let middle = Relay::start(Setup::of(&root.address)).await;
    let leaf = Relay::start(Setup::of(&middle.address)).await;
    let mut sotw = Client::open(&leaf.address, Variant::Sotw, "sotw").await;
    let mut delta = Client::open(&leaf.address, Variant::Delta, "delta").await;
    sotw.want(CDS, &["*"]);
    delta.want(CDS, &["*"]);
    let asked: Recorded = origin.expect(CDS).await;

    // One element has no name: the root takes the other element, and knows that the set is incomplete.
    let nameless = Item { name: String::new(), ..Item::new(CDS, "", "1", "1") };
    origin.answer(&asked, "1", vec![Item::new(CDS, "a", "1", "1"), nameless], &[]);
    delta.settle(CDS, &[("a", "1")]).await;
    // The set of listeners is complete. Listeners follow the clusters, if any clusters can be sent.
    sotw.want(LDS, &["*"]);
    let listeners = origin.expect(LDS).await;
    origin.answer(&listeners, "1", vec![Item::new(LDS, "l", "1", "1")], &[]);
    assert_eq!(sotw.any().await.texts(), [("l".to_owned(), "1".to_owned())]);
    delta.quiet().await;

    // The root learns of one more cluster, and of an absent name.
    origin.answer(&asked, "2", vec![Item::new(CDS, "b", "1", "1")], &[]);
    assert_eq!(sotw.take(CDS).await.names(), ["a", "b"]);
    delta.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    delta.want(EDS, &["gone"]);
    let endpoints = origin.expect(EDS).await;
    origin.answer(&endpoints, "1", vec![], &["gone"]);
    assert_eq!(delta.take(EDS).await.removed, ["gone"]);
    for relay in [&middle, &leaf] {
        assert!(relay.log_lines("WARN").is_empty(), "{:?}", relay.log_lines("WARN"));
    }
    assert_eq!(origin.headers()[0].get("sluice-set-marks").map(String::as_str), Some("1"));
}

/// A name that is unknown to the root is unknown to the leaf, too, after the leaf's own timer. By then a name
/// that the leaf requests from the control plane directly, later and with the same timer, is absent.
#[tokio::test]
async fn tmr_3_a_name_that_is_unknown_above_is_not_absent_below() {
    let (origin, other) = (ControlPlane::scripted().await, ControlPlane::scripted().await);
    let root = Relay::start(Setup::of(origin.address).resource_timeout(60)).await;
    let direct = format!(
        "authorities: {{ direct: {{ xds_servers: [ {{ server_uri: {:?}, api_type: AGGREGATED_DELTA_GRPC, \
         channel_creds: [ {{ type: insecure }} ], resource_timeout: 1s }} ] }} }}",
        other.address.to_string()
    );
    let leaf = Relay::start(Setup::of(&root.address).line(&direct)).await;
    let mut client = Client::open(&leaf.address, Variant::Delta, "one").await;
    client.want(EDS, &["there", "unknown"]);
    let asked = origin.expect(EDS).await;
    origin.answer(&asked, "1", vec![Item::new(EDS, "there", "1", "1")], &[]);
    client.settle(EDS, &[("there", "1")]).await;

    let name = |end: &str| format!("xdstp://direct/{}/{end}", EDS.rsplit('/').next().unwrap());
    let (there, absent) = (name("there"), name("absent"));
    client.want(EDS, &["there", "unknown", &there, &absent]);
    let asked = other.expect(EDS).await;
    other.answer(&asked, "1", vec![Item::new(EDS, &there, "1", "1")], &[]);
    client.settle(EDS, &[("there", "1"), (&there, "1")]).await;
    assert_eq!(client.take(EDS).await.removed, [absent]);
    let asked = origin.requests(EDS).pop().unwrap();
    origin.answer(&asked, "2", vec![], &["unknown"]);
    assert_eq!(client.take(EDS).await.removed, ["unknown"]);
}

/// The names in the `x-sluice-path` headers of a control plane's calls, without the numbers of instances.
fn paths(calls: &[HashMap<String, String>]) -> Vec<Vec<String>> {
    let ids = |path: &String| path.split(',').map(|id| id.split('~').next().unwrap().to_owned()).collect();
    calls.iter().filter_map(|call| call.get("x-sluice-path")).map(ids).collect()
}

/// Each relay on the way names itself in its calls, and sees which of its clients are relays.
#[tokio::test]
async fn tir_2_calls_name_the_relays_on_their_way() {
    let origin = ControlPlane::scripted().await;
    let root = Relay::start(Setup::of(origin.address)).await;
    let leaf = Relay::start(Setup::of(&root.address)).await;
    let mut below = Client::open(&leaf.address, Variant::Delta, "below").await;
    below.want(CDS, &["a"]);
    let asked = origin.expect(CDS).await;
    origin.answer(&asked, "1", vec![Item::new(CDS, "a", "1", "1")], &[]);
    let answer = below.take(CDS).await;
    let way = format!("sluice-test via sluice-test via {}", origin.address);
    assert_eq!((answer.texts(), answer.control_plane), (vec![("a".to_owned(), "1".to_owned())], way));
    assert_eq!(paths(&origin.headers()), [["sluice-test", "sluice-test"]]);

    let mut beside = Client::open(&root.address, Variant::Delta, "beside").await;
    beside.want(LDS, &["*"]);
    origin.expect(LDS).await;
    let (_, list) = root.get("/clients").await;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let relays: Vec<_> = list["clients"].as_array().unwrap().iter().map(|client| &client["relays"]).collect();
    assert_eq!(relays.iter().filter(|relays| relays.is_null()).count(), 1, "{list}");
    let path: Vec<_> = relays.iter().filter_map(|relays| relays.as_array()).collect();
    assert_eq!((path.len(), path[0].len()), (1, 1), "{list}");
}

/// Two relays are each other's servers. The call that comes back to its origin is refused in words that name the
/// relays. They reach the client, and the log once.
#[tokio::test]
async fn tir_2_a_relay_refuses_its_own_call() {
    let nobody = format!("127.0.0.1:{}", net::free_port());
    let one = Relay::start(Setup::of(&nobody).server_line(QUICK_BACKOFF)).await;
    let other = Relay::start(Setup::of(&one.address).server_line(QUICK_BACKOFF)).await;
    let config = fs::read_to_string(one.path("sluice.yaml")).unwrap();
    fs::write(one.path("sluice.yaml"), config.replace(&nobody, &other.address)).unwrap();
    let (code, answer) = one.post("/reload").await;
    assert_eq!(code, 200, "{answer}");

    let mut client = Client::open(&one.address, Variant::Delta, "client").await;
    client.want(CDS, &["a"]);
    one.logged("loop through sluice-test, sluice-test, sluice-test: a server of this relay leads back").await;
    other.logged("FAILED_PRECONDITION").await;
    // The client hears of the loop late: after ten seconds on an idle machine.
    let Event::Answer(answer) = client.event_within(2 * DEADLINE).await else { panic!("the stream ended") };
    assert!(answer.errors["a"].message.contains("loop through"), "{answer:?}");
    let warnings = one.log_lines("WARN");
    assert_eq!(warnings.iter().filter(|line| line.contains("leads back")).count(), 1, "{warnings:?}");
}
