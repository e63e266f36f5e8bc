//! A control plane that answers a request only if each of its names exists, as java-control-plane does (ADR 54).

use std::time::{Duration, Instant};

use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, EDS, Relay, Setup, Variant};

/// Less than any timer of the relay.
const USUAL: Duration = Duration::from_millis(700);

async fn demanding() -> (ControlPlane, Relay) {
    let origin = ControlPlane::obedient().await;
    origin.change(|world| world.demands_all = true);
    for name in ["x", "b", "c"] {
        origin.set(EDS, name, "1");
    }
    let relay = Relay::start(Setup::of(origin.address).upstream(Variant::Sotw)).await;
    (origin, relay)
}

async fn goes_on(origin: &ControlPlane, client: &mut Client) {
    for round in 3..8 {
        let text = round.to_string();
        let before = Instant::now();
        origin.set(EDS, "x", &text);
        client.settle(EDS, &[("x", &text)]).await;
        assert!(before.elapsed() < USUAL, "round {round}: {:?}", before.elapsed());
    }
}

#[tokio::test]
async fn rly_1_a_name_that_does_not_exist_does_not_silence_the_server_for_others() {
    let (origin, relay) = demanding().await;
    let mut other = Client::open(&relay.address, Variant::Sotw, "other").await;
    other.want(EDS, &["x"]);
    other.settle(EDS, &[("x", "1")]).await;
    let mut asks = Client::open(&relay.address, Variant::Sotw, "asks").await;
    asks.want(EDS, &["b", "gone"]);
    origin.wait_for("the name is asked for", |origin| has(origin, &["b", "gone", "x"])).await;
    origin.set(EDS, "x", "2");
    other.settle(EDS, &[("x", "2")]).await;
    asks.settle(EDS, &[("b", "1")]).await;
    goes_on(&origin, &mut other).await;

    let silenced = "has answered nothing about a type since it was asked for more names";
    relay.logged(silenced).await;
    let warned = relay.warnings(silenced);
    assert!(warned.len() == 1 && warned[0].contains("ClusterLoadAssignment"), "{warned:?}");
    assert!(warned[0].contains("gone") && warned[0].contains("AGGREGATED_DELTA_GRPC"), "{warned:?}");
    relay.logged("answers no request with this name").await;
    let server = origin.address.to_string();
    eventually("/sources shows it", || async {
        let source = relay.sources(&server).await[0].clone();
        let silent = source["types"][0]["silent_names"].clone();
        source["state"] == "connected" && silent["count"] == 1 && silent["first"][0] == "gone"
    })
    .await;
    let labels = ["type=\"ClusterLoadAssignment\""];
    assert_eq!(relay.metric("sluice_upstream_silent_names", &labels).await, 1.0);
    let events = relay.json("/events").await.to_string();
    assert!(events.contains("silent about a type") && events.contains("answers no request"), "{events}");

    // Another name interrupts nobody, and is there at once.
    let mut third = Client::open(&relay.address, Variant::Sotw, "third").await;
    let before = Instant::now();
    third.want(EDS, &["c"]);
    third.settle(EDS, &[("c", "1")]).await;
    assert!(before.elapsed() < USUAL, "{:?}", before.elapsed());
    // The name exists now: it joins the others.
    origin.set(EDS, "gone", "1");
    asks.settle(EDS, &[("b", "1"), ("gone", "1")]).await;
    origin.wait_for("one request for all", |origin| has(origin, &["b", "c", "gone", "x"])).await;
    origin.set(EDS, "gone", "2");
    asks.settle(EDS, &[("b", "1"), ("gone", "2")]).await;
}

/// Whether some request had exactly these names.
fn has(origin: &ControlPlane, names: &[&str]) -> bool {
    origin.requests(EDS).iter().any(|request| {
        let mut asked: Vec<&str> = request.ask.names.iter().map(String::as_str).collect();
        asked.sort_unstable();
        asked == names
    })
}

/// The relay has just begun, and clients ask for a name that does not exist.
#[tokio::test]
async fn rly_1_a_name_that_does_not_exist_from_the_beginning_does_not_silence_the_server() {
    let (origin, relay) = demanding().await;
    origin.set(CDS, "a", "1");
    let mut client = Client::open(&relay.address, Variant::Sotw, "n").await;
    client.want(CDS, &["*"]);
    client.settle(CDS, &[("a", "1")]).await;
    client.want(EDS, &["gone", "x"]);
    client.settle(EDS, &[("x", "1")]).await;
    goes_on(&origin, &mut client).await;
}
