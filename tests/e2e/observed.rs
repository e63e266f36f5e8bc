//! The operator's view: the admin endpoints, and one WARN for a NACK.

use crate::support::client::{connect, node};
use crate::support::control_plane::eventually;
use crate::support::proto::Node;
use crate::support::{CDS, Client, ControlPlane, Relay, SDS, Setup, Variant};

#[tokio::test]
async fn a_nack_is_one_warning_with_who_what_and_why() {
    for variant in Variant::BOTH {
        let origin = ControlPlane::obedient().await;
        let relay = Relay::start(Setup::of(origin.address)).await;
        origin.set(CDS, "a", "1");
        let mut client = Client::open(&relay.address, variant, "sidecar-42").await;
        client.want(CDS, &["*"]);
        let answer = client.next(CDS).await;
        client.nack(&answer, "no such extension: teapot");
        client.quiet().await;
        let about =
            |lines: Vec<String>| lines.into_iter().filter(|line| line.contains("teapot")).collect::<Vec<_>>();
        eventually("the warning", || async { !about(relay.log_lines("WARN")).is_empty() }).await;
        let warnings = about(relay.log_lines("WARN"));
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        assert!(warnings[0].contains("sidecar-42") && warnings[0].contains("Cluster"), "{}", warnings[0]);
    }
}

/// Text from a client can neither end a log line nor control a terminal.
#[tokio::test]
async fn a_nack_writes_no_line_of_its_own() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    origin.set(CDS, "a", "1");
    let mut client = Client::open(&relay.address, Variant::Sotw, "side\ncar\u{1b}[31m").await;
    client.want(CDS, &["*"]);
    let answer = client.next(CDS).await;
    client.nack(&answer, "teapot\n2026-01-01T00:00:00Z ERROR forged\r\u{1b}[2K\u{9b}1m");
    eventually("the warning", || async { relay.log().contains("teapot") }).await;
    let log = relay.log();
    assert!(!log.lines().any(|line| line.contains("forged") && !line.contains("teapot")), "{log}");
    assert!(!log.chars().any(|c| c.is_control() && c != '\n'), "{log}");
    assert!(log.contains(r"teapot\n2026"), "{log}");
}

/// Nearly as many classes as clients share nothing: one log line names the field that splits the classes
/// (RLY-11).
#[tokio::test]
async fn a_hint_names_the_field_that_splits_classes() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    origin.set(CDS, "a", "1");
    let mut clients = Vec::new();
    for number in 0..70 {
        let unique = Node { cluster: format!("cluster-{number}"), ..node("client") };
        let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(unique));
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    let hints = || {
        relay.log_lines("WARN").into_iter().filter(|line| line.contains("node_classes")).collect::<Vec<_>>()
    };
    eventually("the hint", || async { !hints().is_empty() }).await;
    assert_eq!(hints().len(), 1, "{:#?}", hints());
    assert!(hints()[0].contains("field=\"cluster\""), "{}", hints()[0]);
}

#[tokio::test]
async fn the_admin_endpoints_answer_and_show_no_secret() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    origin.set(CDS, "a-cluster", "visible-payload");
    origin.set(SDS, "a-secret", "hunter2-hunter2");
    let mut client = Client::open(&relay.address, Variant::Delta, "sidecar-42").await;
    client.want(CDS, &["a-cluster"]);
    client.take(CDS).await;
    client.want(SDS, &["a-secret"]);
    let secret = client.take(SDS).await;
    assert_eq!(secret.get("a-secret").text(), "hunter2-hunter2");
    let base64 = "aHVudGVyMi1odW50ZXIy";
    for path in ["/healthz", "/ready", "/metrics", "/clients", "/resources"] {
        let (status, body) = relay.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        assert!(!body.contains("hunter2") && !body.contains(base64), "{path} shows a secret:\n{body}");
    }
    assert!(relay.get("/clients").await.1.contains("sidecar-42"));
    let (_, resources) = relay.get("/resources").await;
    assert!(resources.contains("a-cluster"), "{resources}");
    assert_eq!(relay.get("/no-such-page").await.0, 404);
    assert!(!relay.log().contains("hunter2"), "the log shows a secret");
}

/// Every line of `/metrics` parses, and clients and streams are counted.
#[tokio::test]
async fn metrics_are_well_formed() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    origin.set(CDS, "a", "1");
    let mut client = Client::open(&relay.address, Variant::Delta, "one").await;
    client.want(CDS, &["*"]);
    client.take(CDS).await;
    let (_, text) = relay.get("/metrics").await;
    let mut samples = 0;
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(name.starts_with("sluice_") || name.starts_with("process_"), "{line}");
        assert!(!name.contains("\"one\""), "a client is no label: {line}");
        samples += 1;
    }
    assert!(samples > 10, "{text}");
}
