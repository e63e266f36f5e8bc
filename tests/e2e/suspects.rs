//! A control plane that ends the stream after a request for a certain type (ADR 15).

use std::time::{Duration, Instant};

use tonic::Code;

use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, EDS, Relay, Setup, Variant};

const NO_CACHE: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";

/// Less than the second retry, which comes after a second and would delay the class.
const USUAL: Duration = Duration::from_millis(700);

/// ERR-10: who asked is told why, and not that the resource does not exist. In SotW the client has not the feature.
async fn is_told(client: &mut Client) {
    if client.variant == Variant::Sotw {
        return;
    }
    let told = client.take(NO_CACHE).await;
    let error = told.errors.get("r").map(|error| (error.code, error.message.contains("ends the stream")));
    assert_eq!((error, told.removed.len()), (Some((Code::Unavailable as i32, true)), 0), "{told:?}");
}

async fn others_go_on(variant: Variant) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "a", "1");
    origin.set(EDS, "e", "1");
    origin.ends_on(Some(NO_CACHE));
    let relay = Relay::start(Setup::of(origin.address).upstream(variant)).await;
    let mut other = Client::open(&relay.address, variant, "other").await;
    other.want(CDS, &["*"]);
    other.settle(CDS, &[("a", "1")]).await;
    other.want(EDS, &["e"]);
    other.settle(EDS, &[("e", "1")]).await;

    let mut asks = Client::open(&relay.address, variant, "asks").await;
    asks.want(NO_CACHE, &["r"]);
    // The suspect's own stream ended: the relay found the suspect, and retries in a second, and later.
    let count = || origin.requests(NO_CACHE).len();
    origin.wait_for("it is asked for alone", |origin| origin.requests(NO_CACHE).len() >= 2).await;
    is_told(&mut asks).await;
    for round in 2..8 {
        let text = round.to_string();
        let before = Instant::now();
        origin.set(CDS, "a", &text);
        other.settle(CDS, &[("a", &text)]).await;
        assert!(before.elapsed() < USUAL, "round {round}: {:?}", before.elapsed());
    }
    origin.wait_for("it is asked for again", |origin| origin.requests(NO_CACHE).len() >= 3).await;
    let before = Instant::now();
    origin.set(EDS, "e", "2");
    other.settle(EDS, &[("e", "2")]).await;
    assert!(before.elapsed() < USUAL, "{:?}", before.elapsed());
    assert!(count() < 10, "it is asked for with a backoff");
    // The streams: the first, its replacement, and those of the suspect.
    assert!(origin.opened() <= 1 + count() as u64, "{} for {}", origin.opened(), count());

    relay.logged("ended the stream soon after a request for a type").await;
    let warned = relay.warnings("ended the stream soon after a request for a type");
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("Runtime") && warned[0].contains("resource watch failed"), "{warned:?}");
    let server = origin.address.to_string();
    let of_type = |source: &serde_json::Value| {
        let types = source["types"].as_array().cloned().unwrap_or_default();
        types.into_iter().find(|of| of["type"] == "envoy.service.runtime.v3.Runtime")
    };
    eventually("/sources shows it", || async {
        let source = relay.sources(&server).await[0].clone();
        let refused = of_type(&source).map(|of| of["refused"].clone()).unwrap_or_default();
        source["state"] == "connected"
            && refused["error"].as_str().is_some_and(|e| e.contains("watch failed"))
    })
    .await;
    let source = relay.sources(&server).await[0].clone();
    assert!(source["stale_seconds"].is_null(), "{source}");
    eventually("/clients shows it, with the next try", || async {
        let client = relay.json("/clients?node=asks").await["clients"][0].clone();
        let refuses = of_type(&client).map(|of| of["server_refuses"].clone()).unwrap_or_default();
        refuses["how"] == "ends_stream"
            && refuses["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0)
            && refuses["next_try_seconds"].is_f64()
            && refuses["error"].as_str().is_some_and(|error| error.contains("watch failed"))
    })
    .await;
    assert_eq!(relay.metric("sluice_upstream_suspect_streams", &[]).await, 1.0);
    let labels = ["type=\"Runtime\"", "reason=\"ends_stream\""];
    assert_eq!(relay.metric("sluice_upstream_types_refused", &labels).await, 1.0);

    // A new client costs the others nothing, and the type returns as soon as the server has resources.
    origin.set(NO_CACHE, "r", "1");
    origin.ends_on(None);
    asks.settle(NO_CACHE, &[("r", "1")]).await;
}

#[tokio::test]
async fn str_1_a_type_that_ends_the_stream_does_not_stall_the_others_in_delta() {
    others_go_on(Variant::Delta).await;
}

#[tokio::test]
async fn str_1_a_type_that_ends_the_stream_does_not_stall_the_others_in_sotw() {
    others_go_on(Variant::Sotw).await;
}

/// The server had the type before. Each stream restates all types, and ends before any answer.
async fn a_restated_type_is_found(variant: Variant) {
    let origin = ControlPlane::obedient().await;
    let all = [(CDS, "a"), (EDS, "e"), (NO_CACHE, "r")];
    all.iter().for_each(|(type_url, name)| origin.set(type_url, name, "1"));
    let relay = Relay::start(Setup::of(origin.address).upstream(variant)).await;
    let mut client = Client::open(&relay.address, variant, "n").await;
    for (type_url, name) in all {
        client.want(type_url, &[name]);
        client.settle(type_url, &[(name, "1")]).await;
    }
    origin.ends_on(Some(NO_CACHE));
    origin.close_streams(Code::Unavailable);
    let text = "ended the stream soon after a request for a type";
    eventually("the type is found", || async { !relay.warnings(text).is_empty() }).await;
    let warned = relay.warnings(text);
    assert!(warned.len() == 1 && warned[0].contains("Runtime"), "{warned:?}");
    origin.wait_for("the others are asked for", |origin| origin.live_streams() >= 1).await;
    let before = Instant::now();
    origin.set(CDS, "a", "2");
    client.settle(CDS, &[("a", "2")]).await;
    assert!(before.elapsed() < USUAL, "{:?}", before.elapsed());
    origin.ends_on(None);
    origin.set(NO_CACHE, "r", "2");
    client.settle(NO_CACHE, &[("r", "2")]).await;
}

#[tokio::test]
async fn str_1_a_restated_type_that_ends_each_stream_is_found_in_delta() {
    a_restated_type_is_found(Variant::Delta).await;
}

#[tokio::test]
async fn str_1_a_restated_type_that_ends_each_stream_is_found_in_sotw() {
    a_restated_type_is_found(Variant::Sotw).await;
}
