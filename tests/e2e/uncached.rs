//! Members of a wildcard that the server forbids to cache while clients have them (CCH-1, I4). `tests/conformance/private.rs`
//! has the resources that are uncacheable from the beginning.

use std::time::Duration;

use serde_json::Value;

use crate::support::client::{connect, node};
use crate::support::control_plane::Recorded;
use crate::support::poll::{answer, post, request};
use crate::support::{Answer, Ask, CDS, Client, ControlPlane, Item, Relay, Setup, Variant};

const CLUSTERS: &str = "/v3/discovery:clusters";

/// Where a poll ends without an answer from the control plane.
const HOLD: Duration = Duration::from_millis(500);

fn uncached(text: &str) -> Item {
    Item { do_not_cache: true, ..Item::new(CDS, "b", text, text) }
}

async fn poll(relay: &Relay, version: &str) -> (u16, Value) {
    post(&relay.address, CLUSTERS, &request(Some(&node("poller")), version, &[])).await.expect("an answer")
}

/// The next request for all clusters on a stream of its own.
async fn asked_for_all(origin: &ControlPlane) -> Recorded {
    origin.expect_that(CDS, |ask| ask.nonce.is_empty() && ask.node.is_some()).await
}

/// A delta client that comes back with these clusters.
async fn reconnect(relay: &Relay, id: &str, versions: &[(&str, &str)]) -> Client {
    let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(node(id)));
    client.send(Ask::of(CDS).subscribe(&["*"]).initial(versions));
    client
}

#[tokio::test]
async fn cch_1_i_4_nobody_is_told_that_a_member_is_gone_that_must_not_be_cached_any_more() {
    let origin = ControlPlane::scripted().await;
    let mut setup = Setup::of(origin.address).resource_timeout(60);
    setup.listener = format!("rest_hold: {}ms", HOLD.as_millis());
    let relay = Relay::start(setup).await;
    let mut clients = Vec::new();
    for variant in Variant::BOTH {
        let mut client = Client::open(&relay.address, variant, "stays").await;
        client.want(CDS, &["*"]);
        clients.push(client);
    }
    let shared = asked_for_all(&origin).await;
    origin.answer(&shared, "1", vec![Item::new(CDS, "a", "1", "1"), Item::new(CDS, "b", "1", "1")], &[]);
    for client in &mut clients {
        client.settle(CDS, &[("a", "1"), ("b", "1")]).await;
    }
    let is_delta = |client: &&Client| client.variant == Variant::Delta;
    let held = clients.iter().find(is_delta).unwrap().versions(CDS);
    let (status, first) = poll(&relay, "").await;
    assert_eq!((status, answer(CDS, &first).names()), (200, vec!["a", "b"]));
    let version = first["version_info"].as_str().unwrap();

    // The server forbids to cache `b` while a poll waits for news.
    let forbids = async {
        tokio::time::sleep(HOLD / 5).await;
        origin.answer(&shared, "2", vec![uncached("2")], &[]);
    };
    let ((status, body), ()) = tokio::join!(poll(&relay, version), forbids);
    assert!(matches!(status, 304 | 503), "{status} {body}");
    // Nobody has an answer of its own yet: a poll, and a client that comes back with what it has.
    let (status, body) = poll(&relay, version).await;
    assert!(matches!(status, 304 | 503), "{status} {body}");
    let held: Vec<_> = held.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
    clients.push(reconnect(&relay, "back", &held).await);
    for client in &mut clients {
        client.silence(HOLD / 2).await;
    }

    let live = origin.requests(CDS).into_iter().filter(|asked| asked.ask.node.is_some());
    for asked in live.filter(|asked| asked.stream != shared.stream && origin.is_live(asked.stream)) {
        let own = vec![Item::new(CDS, "a", "1", "1"), uncached(&format!("of {}", asked.stream))];
        origin.answer(&asked, "1", own, &[]);
    }
    for client in &mut clients {
        let told: Answer = client.take(CDS).await;
        assert!(told.removed.is_empty() && told.get("b").text().starts_with("of "), "{told:?}");
    }
}
