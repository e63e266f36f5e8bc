//! Client status (CSDS) of the built binary, in both views (ADM-21, ADM-22).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::client::fetch;
use crate::support::control_plane::eventually;
use crate::support::proto::Status;
use crate::support::{Answer, Ask, CDS, Client, ControlPlane, EDS, Item, Relay, Setup, Variant};

/// A timer that ends is an error here, and no absence.
const FEATURE: &str = "server_features: [ resource_timer_is_transient_error ]";

const PERMISSION_DENIED: i32 = 7;

/// The states of the endpoints, by the client's scope and the name.
async fn states(relay: &Relay, request: &str, key: &str) -> BTreeMap<String, String> {
    let (status, text) = relay.post_body("/v3/discovery:client_status", request).await;
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut states = BTreeMap::new();
    for config in answer["config"].as_array().cloned().unwrap_or_default() {
        let id = text(&config["node"]["id"]);
        // The relay's own id goes with the digest of the class.
        let of = id.split('/').next().unwrap_or_default();
        let rows = config["generic_xds_configs"].as_array().cloned().unwrap_or_default();
        for row in rows.iter().filter(|row| row["type_url"] == EDS) {
            states.insert(format!("{of} {}", text(&row["name"])), text(&row[key]));
        }
    }
    states
}

fn expected(states: &[(&str, &str)]) -> BTreeMap<String, String> {
    states.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect()
}

async fn until(relay: &Relay, request: &str, key: &str, wanted: &[(&str, &str)]) {
    let wanted = expected(wanted);
    eventually(&format!("{wanted:?}"), || async { states(relay, request, key).await == wanted }).await;
}

#[tokio::test]
async fn adm_21_each_state_of_a_resource_is_told_as_its_server_caused_it() {
    let origin = ControlPlane::scripted().await;
    let setup = || Setup::of(origin.address).upstream(Variant::Delta).server_line(FEATURE);
    let relay = Relay::start(setup().resource_timeout(60)).await;
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(EDS, &["good", "gone", "bad", "denied", "silent"]);
    let asked = origin.expect(EDS).await;
    let of_relay = "sluice-test";
    let name = |name: &str| format!("{of_relay} {name}");
    let (good, gone, bad, denied, silent) =
        (name("good"), name("gone"), name("bad"), name("denied"), name("silent"));
    let requested = "REQUESTED";
    let all = [&good, &gone, &bad, &denied, &silent].map(|name| (name.as_str(), requested));
    until(&relay, "{}", "client_status", &all).await;
    // A cluster in place of endpoints is malformed.
    let wrong = Item::new(CDS, "bad", "1", "1");
    let refusal = Status { code: PERMISSION_DENIED, message: "not yours".to_owned() };
    let answer = Answer {
        type_url: EDS.to_owned(),
        version: "1".to_owned(),
        items: vec![Item::new(EDS, "good", "1", "1"), wrong],
        removed: vec!["gone".to_owned()],
        errors: [("denied".to_owned(), refusal)].into(),
        ..Answer::default()
    };
    origin.answer_raw(asked.stream, answer);
    let told = [
        (good.as_str(), "ACKED"),
        (&gone, "DOES_NOT_EXIST"),
        (&bad, "NACKED"),
        (&denied, "RECEIVED_ERROR"),
        (&silent, requested),
    ];
    until(&relay, "{}", "client_status", &told).await;

    let impatient = Relay::start(setup()).await;
    let mut client = Client::open(&impatient.address, Variant::Delta, "two").await;
    client.want(EDS, &["silent"]);
    until(&impatient, "{}", "client_status", &[(&silent, "TIMEOUT")]).await;
}

#[tokio::test]
async fn adm_22_each_state_of_a_client_is_told_as_the_client_caused_it() {
    let origin = ControlPlane::scripted().await;
    let setup = Setup::of(origin.address).upstream(Variant::Delta).resource_timeout(60);
    let relay = Relay::start(setup).await;
    let everybody = r#"{"node_matchers": [{"node_id": {"prefix": ""}}]}"#;
    let mut accepts = Client::open(&relay.address, Variant::Delta, "accepts").await;
    accepts.want(EDS, &["good", "silent"]);
    until(
        &relay,
        everybody,
        "config_status",
        &[("accepts good", "NOT_SENT"), ("accepts silent", "NOT_SENT")],
    )
    .await;
    let asked = origin.expect(EDS).await;
    origin.answer(&asked, "1", vec![Item::new(EDS, "good", "1", "1")], &[]);
    accepts.take(EDS).await;
    let mut owes = Client::open(&relay.address, Variant::Delta, "owes").await;
    owes.want(EDS, &["good"]);
    owes.next(EDS).await;
    let mut rejects = Client::open(&relay.address, Variant::Delta, "rejects").await;
    rejects.want(EDS, &["good"]);
    let answer = rejects.next(EDS).await;
    rejects.nack(&answer, "no such locality");
    let told = [
        ("accepts good", "SYNCED"),
        ("accepts silent", "NOT_SENT"),
        ("owes good", "STALE"),
        ("rejects good", "ERROR"),
    ];
    until(&relay, everybody, "config_status", &told).await;
}

/// ADM-20: one client must not read another.
#[tokio::test]
async fn adm_20_a_listener_for_clients_has_no_client_status() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    for path in [
        "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus",
        "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus",
    ] {
        let status = fetch(&relay.address, path, Ask::of(CDS)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented, "{path}: {status:?}");
    }
}
