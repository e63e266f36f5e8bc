//! `sluice classes learn`: rules from a control plane whose answers are a function of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message;
use serde_json::{Value, json};
use tonic::Status;

use crate::support::control_plane::ControlPlane;
use crate::support::proto::{Any, Node};
use crate::support::relay::{BINARY, run};
use crate::support::{CDS, EDS, LDS, RDS, istiod, words};

/// A client of the API listener: the connection manager takes its routes by RDS.
#[derive(Clone, PartialEq, Message)]
struct Nested {
    #[prost(bytes = "vec", tag = "1")]
    first: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    second: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    third: Vec<u8>,
    #[prost(bytes = "vec", tag = "19")]
    api_listener: Vec<u8>,
    #[prost(string, tag = "28")]
    stat_prefix: String,
}

/// A listener that takes a route configuration from its control plane.
fn listener(name: &str, routes: &str, text: &str) -> Any {
    let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let rds = Nested { second: routes.into(), ..Nested::default() }.encode_to_vec();
    let manager = Nested {
        first: manager.into(),
        second: Nested { third: rds, ..Nested::default() }.encode_to_vec(),
        ..Nested::default()
    };
    let body = Nested {
        first: name.into(),
        api_listener: Nested { first: manager.encode_to_vec(), ..Nested::default() }.encode_to_vec(),
        stat_prefix: text.to_owned(),
        ..Nested::default()
    };
    Any { type_url: LDS.to_owned(), value: body.encode_to_vec() }
}

/// 3 teams, 4 versions, 3 regions and 10 apps, in all combinations. The account follows from the team.
fn fleet(count: usize) -> Value {
    let node = |number: usize| {
        json!({
            "id": format!("pod-{number}"),
            "cluster": format!("app-{}", number / 36 % 10),
            "metadata": {
                "NAME": format!("pod-{number}"),
                "TEAM": format!("team-{}", number % 3),
                "ACCOUNT": format!("account-{}", number % 3),
                "VERSION": format!("v{}", number / 3 % 4),
                "MESH": "east",
            },
            "locality": { "region": format!("r{}", number / 12 % 3) },
            "userAgentName": "envoy",
        })
    };
    (0..count).map(node).collect()
}

fn field(node: &Node, key: &str) -> String {
    istiod::metadata_of(node).remove(key).unwrap_or_default()
}

fn region(node: &Node) -> String {
    node.locality.as_ref().map(|locality| locality.region.clone()).unwrap_or_default()
}

/// Clusters by team, listeners by team and version, endpoints by region, too; a counter in one cluster; one node
/// is refused.
async fn planted() -> ControlPlane {
    let cp = ControlPlane::obedient().await;
    let counter = AtomicU64::new(0);
    cp.answer_by_stream(move |node, _, world| {
        if node.id == "pod-7" {
            return Err(Status::permission_denied("not you"));
        }
        let (team, version, region) = (field(node, "TEAM"), field(node, "VERSION"), region(node));
        let stamp = counter.fetch_add(1, Ordering::Relaxed).to_string();
        world.set(CDS, "stamp", words::body(CDS, "stamp", &stamp), true);
        world.set(CDS, "backend", words::eds_cluster("backend", "backend-eds", &team), true);
        world.set(LDS, "main", listener("main", "routes", &format!("{team} {version}")), true);
        world.set(RDS, "routes", words::body(RDS, "routes", &team), true);
        world.set(EDS, "backend-eds", words::body(EDS, "backend-eds", &format!("{team} {region}")), true);
        Ok(())
    });
    cp
}

/// Runs the command to its end: exit code, standard output, standard error.
async fn learn(directory: &Path, server: &str, more: &[&str]) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(BINARY);
    command.args(["classes", "learn", "--server", server, "--nodes", "nodes.json"]);
    if !more.contains(&"--per-minute") {
        command.args(["--per-minute", "60000"]);
    }
    let output = command.args(more).current_dir(directory).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(600), output).await;
    let output = output.expect("the command ends").expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn server_of(cp: &ControlPlane) -> String {
    cp.server_uri(crate::support::Attachment::Ads(crate::support::Variant::Delta))
}

fn paths(list: &Value) -> Vec<String> {
    let path = |item: &Value| item.as_str().or(item["field"].as_str()).unwrap().to_owned();
    list.as_array().unwrap().iter().map(path).collect()
}

/// A configuration of the relay with these rules.
fn config(server: &str, rules: &str) -> String {
    format!(
        "xds_servers: [ {{ server_uri: \"{server}\", channel_creds: [ {{ type: insecure }} ] }} ]\n{rules}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn lrn_2_planted_groups_of_2000_nodes_are_found_twice_in_a_row() {
    let (cp, directory) = (planted().await, tempfile::tempdir().unwrap());
    let server = server_of(&cp);
    fs::write(directory.path().join("nodes.json"), fleet(2_000).to_string()).unwrap();
    let mut written = BTreeSet::new();
    for _ in 0..2 {
        let (code, out, error) = learn(directory.path(), &server, &["--streams", "16", "-o", "json"]).await;
        assert_eq!(code, 0, "{error}");
        let found: Value = serde_json::from_str(&out).unwrap();
        let shared = &found["shared"];
        assert_eq!(
            (&found["end"], &found["nodes"], &found["asked"]),
            (&json!("complete"), &json!(2_000), &json!(1_999))
        );
        assert_eq!((&shared["answers"], &shared["classes"]), (&json!(12), &json!(12)), "{out}");
        // The account says the same as the team, and comes first by its name.
        assert_eq!(paths(&shared["minimum"]), ["metadata.ACCOUNT", "metadata.VERSION"]);
        assert!(paths(&shared["split"]).contains(&"metadata.TEAM".to_owned()));
        let finer = &found["endpoints"]["finer"];
        assert_eq!(
            (&finer["answers"], paths(&finer["minimum"])),
            (&json!(36), vec!["locality.region".to_owned()])
        );
        assert_eq!(found["restless"][0]["names"], json!(["stamp"]), "{out}");
        assert_eq!((&found["refused"]["count"], &found["personal"]), (&json!(1), &json!([])), "{out}");
        assert!(found["refused"]["nodes"][0]["status"].as_str().unwrap().contains("not you"), "{out}");
        written.insert(found["yaml"].as_str().unwrap().to_owned());
    }
    assert_eq!(written.len(), 1, "{written:#?}");
    let rules = written.pop_first().unwrap();
    // The proposal is a part of a configuration.
    fs::write(directory.path().join("fine.yaml"), config(&server, &rules)).unwrap();
    let (code, out, error) = run(&["check", "--config", "fine.yaml", "--offline"], directory.path());
    assert_eq!(code, 0, "{out}{error}\n{rules}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lrn_21_rules_that_are_too_coarse_are_told_with_exit_code_65() {
    let (cp, directory) = (planted().await, tempfile::tempdir().unwrap());
    let (server, place) = (server_of(&cp), directory.path());
    fs::write(place.join("nodes.json"), fleet(150).to_string()).unwrap();
    let (code, out, error) = learn(place, &server, &["--write", "rules.yaml"]).await;
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("have 12 different answers") && !out.contains("node_classes:"), "{out}");
    let rules = fs::read_to_string(place.join("rules.yaml")).unwrap();
    fs::write(place.join("fine.yaml"), config(&server, &rules)).unwrap();
    let coarse =
        "node_classes: [ { split_by: { metadata: [TEAM], locality: region }, upstream_node: member } ]";
    fs::write(place.join("coarse.yaml"), config(&server, coarse)).unwrap();
    let (code, out, error) = learn(place, &server, &["--check", "fine.yaml"]).await;
    assert_eq!(code, 0, "{out}{error}");
    assert!(out.contains("the rules of fine.yaml lose nothing of this evidence"), "{out}");
    let (code, out, error) = learn(place, &server, &["--check", "coarse.yaml"]).await;
    assert_eq!(code, 65, "{out}{error}");
    assert!(error.contains("coarse.yaml: the rules are coarser than the evidence"), "{error}");
    assert!(out.contains("node_classes[0] is too coarse for Listener"), "{out}");
    assert!(out.contains("explained by metadata.VERSION"), "{out}");
    assert_eq!(out.matches("--check: ").count(), 1, "{out}");
    assert!(out.contains("do not split: cluster (5 values)"), "{out}");
    // A file of mine is replaced, and another is not.
    let (code, ..) = learn(place, &server, &["--write", "rules.yaml"]).await;
    assert_eq!(code, 0);
    let (code, _, error) = learn(place, &server, &["--write", "coarse.yaml"]).await;
    assert_eq!((code, error.contains("coarse.yaml exists")), (64, true), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prf_9_a_control_plane_that_cannot_be_asked_is_named_with_its_status() {
    let (cp, directory) = (ControlPlane::obedient().await, tempfile::tempdir().unwrap());
    let (server, place) = (server_of(&cp), directory.path());
    fs::write(place.join("nodes.json"), fleet(40).to_string()).unwrap();
    cp.answer_by_stream(|_, _, _| Err(Status::unauthenticated("a token of each pod")));
    let (code, _, error) = learn(place, &server, &[]).await;
    assert_eq!(code, 69, "{error}");
    assert!(error.contains("refuses the nodes") && error.contains("a token of each pod"), "{error}");
    assert!(cp.opened() < 12, "left alone: {}", cp.opened());
    // The account comes before the questions.
    fs::write(place.join("nodes.json"), r#"[{"id": "pod"}, 7, {"id": "pod"}]"#).unwrap();
    let (code, _, error) = learn(place, "127.0.0.1:1", &["--for", "3s"]).await;
    assert_eq!(code, 69, "{error}");
    for line in ["no node can be read: [1]", "an entry before has the same id: [2] (pod)"] {
        assert!(error.contains(line), "{line}\n{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lrn_2_rules_of_a_study_without_time_are_neither_checked_nor_written_without_a_word() {
    let (cp, directory) = (planted().await, tempfile::tempdir().unwrap());
    let (server, place) = (server_of(&cp), directory.path());
    fs::write(place.join("nodes.json"), fleet(150).to_string()).unwrap();
    let fine = "node_classes: [ { split_by: { metadata: [TEAM, VERSION], locality: region }, upstream_node: member } ]";
    fs::write(place.join("fine.yaml"), config(&server, fine)).unwrap();
    let short = ["--for", "2s", "--per-minute", "60"];
    let (code, out, error) = learn(place, &server, &[&short[..], &["--check", "fine.yaml"]].concat()).await;
    assert_eq!((code, error.contains("so the rules are not checked")), (69, true), "{out}{error}");
    assert!(error.contains(" of 150 nodes without evidence: the time was up"), "{error}");
    let (code, out, error) = learn(place, &server, &short).await;
    assert_eq!((code, out.contains(" of 150 nodes asked")), (0, true), "{out}{error}");
    let (code, _, error) = learn(place, &server, &[&short[..], &["--write", "rules.yaml"]].concat()).await;
    assert_eq!((code, error.contains("rules.yaml is not written")), (69, true), "{error}");
    assert!(!place.join("rules.yaml").exists());
    let partial = ["--write", "rules.yaml", "--partial"];
    let (code, _, error) = learn(place, &server, &[&short[..], &partial].concat()).await;
    assert_eq!((code, place.join("rules.yaml").exists()), (0, true), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prf_5_nodes_whose_connection_registers_them_are_never_shown() {
    let (cp, directory) = (ControlPlane::obedient().await, tempfile::tempdir().unwrap());
    let (server, place) = (server_of(&cp), directory.path());
    let seen: Arc<std::sync::Mutex<BTreeMap<String, u32>>> = Arc::default();
    let ids = seen.clone();
    cp.answer_by_stream(move |node, _, _| {
        *ids.lock().unwrap().entry(node.id.clone()).or_default() += 1;
        Ok(())
    });
    let nodes = json!([
        { "id": "vm", "metadata": { "AUTO_REGISTER_GROUP": "g" } }, { "id": "pod" }, { "id": "pod" }, { "cluster": "c" }, 7
    ]);
    fs::write(place.join("nodes.json"), nodes.to_string()).unwrap();
    let (code, out, error) = learn(place, &server, &[]).await;
    assert_eq!(code, 0, "{out}{error}");
    for line in [
        "[0] (vm)",
        "an entry before has the same id: [2] (pod)",
        "the node has no id: [3]",
        "no node can be read: [4]",
    ] {
        assert!(error.contains(line), "{line}\n{error}");
    }
    assert!(!out.contains("left out, because"), "told once: {out}");
    assert_eq!(seen.lock().unwrap().keys().collect::<Vec<_>>(), ["pod"]);
    fs::write(place.join("nodes.json"), "[]").unwrap();
    let (code, _, error) = learn(place, &server, &[]).await;
    assert_eq!((code, error.trim_end()), (64, "sluice: nodes.json: no node to ask as, of 0 entries"));
}
