//! `sluice classes learn` by a running relay, which asks its control plane as its clients (LRN-2).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tonic::{Code, Status};

use crate::commands::{Done, sluice};
use crate::support::client::connect;
use crate::support::control_plane::eventually;
use crate::support::proto::Node;
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant, istiod};

/// The team decides, and the rule does not split by it.
const COARSE: &str = "node_classes: [{ split_by: { cluster: true }, upstream_node: member }]";

fn node(id: &str, team: &str, version: &str) -> Node {
    let metadata = istiod::metadata(&[("TEAM", team), ("VERSION", version), ("NAME", id)]);
    Node { metadata: Some(metadata), ..crate::support::client::node(id) }
}

/// A control plane that gives each team another cluster `payments`.
async fn by_team() -> ControlPlane {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "same", "1");
    origin.answer_by_stream(|node, _, world| {
        let team = istiod::metadata_of(node).remove("TEAM").unwrap_or_default();
        world.put(CDS, "payments", &format!("of {team}"));
        Ok(())
    });
    origin
}

async fn relay(origin: &ControlPlane, lines: &[&str]) -> Relay {
    Relay::start(lines.iter().fold(Setup::of(origin.address), |setup, line| setup.line(line))).await
}

/// Clients `pod-0`, `pod-1`, ... of three teams and two versions. The server sees the first for their class.
async fn clients(relay: &Relay, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for number in 0..count {
        let (team, version) = (format!("team-{}", number % 3), format!("v{}", number % 2));
        let node = node(&format!("pod-{number}"), &team, &version);
        let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(node));
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    clients
}

async fn learn(relay: &Relay, more: &[&str]) -> Done {
    let fixed = ["classes", "learn", "--types", "cds", "--streams", "8", "--per-minute", "6000"];
    sluice(&relay.admin, &[&fixed, more].concat()).await
}

fn json(done: &Done) -> Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

/// The streams at the control plane with this node id.
fn streams_of(origin: &ControlPlane, id: &str) -> usize {
    let log = origin.log();
    let shows = log.iter().filter(|request| request.ask.node.as_ref().is_some_and(|node| node.id == id));
    shows.map(|request| request.stream).collect::<BTreeSet<_>>().len()
}

#[tokio::test]
async fn lrn_2_a_running_relay_finds_the_rules_for_its_clients() {
    let origin = by_team().await;
    let relay = relay(&origin, &[COARSE]).await;
    let mut clients = clients(&relay, 12).await;
    let done = learn(&relay, &["-o", "json"]).await;
    assert_eq!(done.code, 0, "{done:?}");
    let found = json(&done);
    assert_eq!(
        (&found["end"], &found["nodes"], &found["asked"]),
        (&"complete".into(), &12.into(), &12.into())
    );
    let shared = &found["shared"];
    assert_eq!((&shared["answers"], &shared["minimum"][0]["field"]), (&3.into(), &"metadata.TEAM".into()));
    assert_eq!(shared["minimum"].as_array().map(Vec::len), Some(1), "{found:#}");
    assert_eq!(found["server"], origin.address.to_string());
    // Nobody is served by it.
    for client in &mut clients {
        client.quiet().await;
    }
    eventually("no question is open", async || {
        relay.json("/sources?shadows=1").await["sources"].as_array().map(Vec::len) == Some(1)
    })
    .await;
    let text = learn(&relay, &[]).await;
    assert!(text.out.contains("Your 12 nodes have 3 different answers (Cluster)."), "{text:?}");
    assert!(text.out.contains("These fields decide: metadata.TEAM."), "{text:?}");
    assert!(text.err.contains(" as its clients, 8 at once; at most 30m"), "{text:?}");
}

#[tokio::test]
async fn lrn_21_the_rules_in_force_and_those_of_a_file_are_compared_with_the_evidence() {
    let origin = by_team().await;
    let relay = relay(&origin, &[COARSE]).await;
    let _clients = clients(&relay, 6).await;
    let coarse = learn(&relay, &["--check"]).await;
    assert_eq!(coarse.code, 65, "{coarse:?}");
    assert!(coarse.out.contains("node_classes[0] is too coarse for Cluster"), "{coarse:?}");
    assert!(coarse.out.contains("explained by metadata.TEAM"), "{coarse:?}");
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.yaml");
    let written = learn(&relay, &["--write", rules.to_str().unwrap()]).await;
    assert_eq!((written.code, written.out.contains("node_classes:")), (0, false), "{written:?}");
    let config = format!(
        "xds_servers: [{{ server_uri: \"{}\", channel_creds: [{{ type: insecure }}] }}]\n{}",
        origin.address,
        fs::read_to_string(&rules).unwrap()
    );
    let fine = directory.path().join("fine.yaml");
    fs::write(&fine, config).unwrap();
    let checked = learn(&relay, &["--check", fine.to_str().unwrap()]).await;
    assert_eq!(checked.code, 0, "{checked:?}");
    fs::write(&fine, "node_classes: [{ split: 7 }]").unwrap();
    let broken = learn(&relay, &["--check", fine.to_str().unwrap()]).await;
    assert_eq!((broken.code, broken.err.contains("split")), (64, true), "{broken:?}");
}

#[tokio::test]
async fn prf_5_a_client_whose_connection_registers_it_is_left_out() {
    let origin = by_team().await;
    let relay = relay(&origin, &[COARSE]).await;
    let _clients = clients(&relay, 3).await;
    let metadata = istiod::metadata(&[("AUTO_REGISTER_GROUP", "g")]);
    let vm = Node { metadata: Some(metadata), ..crate::support::client::node("vm") };
    let mut machine = Client::on(connect(&relay.address).await, Variant::Delta, Some(vm));
    machine.want(CDS, &["*"]);
    machine.take(CDS).await;
    let done = learn(&relay, &["-o", "json"]).await;
    let found = json(&done);
    assert_eq!(
        (&found["nodes"], &found["left_out"][0]["reason"]),
        (&3.into(), &"registers".into()),
        "{found:#}"
    );
    assert_eq!(streams_of(&origin, "vm"), 0);
    assert!(streams_of(&origin, "pod-1") > 0);
}

/// The class shows `pod-0`: a second stream of it could end the first one.
#[tokio::test]
async fn prf_9_a_node_of_a_class_is_asked_as_only_if_the_server_bears_two_streams_of_a_node() {
    let origin = by_team().await;
    let relay = relay(&origin, &[COARSE]).await;
    let _clients = clients(&relay, 3).await;
    let found = json(&learn(&relay, &["-o", "json"]).await);
    assert_eq!((&found["asked"], streams_of(&origin, "pod-0") > 1), (&3.into(), true), "{found:#}");

    let strict = ControlPlane::obedient().await;
    strict.set(CDS, "same", "1");
    let first: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    strict.answer_by_stream(move |node, stream, _| {
        match *first.lock().unwrap().entry(node.id.clone()).or_insert(stream) == stream {
            true => Ok(()),
            false => Err(Status::new(Code::PermissionDenied, "one stream for each node")),
        }
    });
    let relay = self::relay(&strict, &[COARSE]).await;
    let mut clients = self::clients(&relay, 3).await;
    let found = json(&learn(&relay, &["-o", "json"]).await);
    let left_out = &found["left_out"][0];
    assert_eq!(
        (&left_out["reason"], &left_out["places"][0]),
        (&"shown".into(), &"pod-0".into()),
        "{found:#}"
    );
    assert_eq!((streams_of(&strict, "pod-0"), &found["refused"]["count"]), (1, &0.into()), "{found:#}");
    strict.set(CDS, "same", "2");
    for client in &mut clients {
        client.settle(CDS, &[("same", "2")]).await;
    }
}

#[tokio::test]
async fn prf_20_a_study_is_the_only_one_of_its_server_and_ends_when_the_relay_drains() {
    let origin = by_team().await;
    let relay = relay(&origin, &["node_classes: [{ split_by: { cluster: true } }]"]).await;
    let _clients = clients(&relay, 6).await;
    let (status, begun) = relay.post("/classes/learn?types=cds&per_minute=1").await;
    assert_eq!(status, 200, "{begun}");
    eventually("the first answer", async || relay.json("/classes/learn/1").await["asked"] == 1).await;
    let second = learn(&relay, &[]).await;
    assert_eq!(
        (second.code, second.err.contains("order 1 asks this server already")),
        (69, true),
        "{second:?}"
    );
    assert_eq!(relay.post("/drain?over=60s").await.0, 200);
    eventually("the end", async || relay.json("/classes/learn/1").await["done"] == true).await;
    let progress = relay.json("/classes/learn/1").await;
    let report = &progress["report"];
    assert_eq!((&report["end"], &report["asked"]), (&"leaving".into(), &1.into()), "{progress:#}");
}

#[tokio::test]
async fn lrn_2_a_relay_without_clients_and_one_that_is_away_have_exit_code_69() {
    let origin = by_team().await;
    let relay = relay(&origin, &[]).await;
    let nobody = learn(&relay, &[]).await;
    assert_eq!((nobody.code, nobody.err.contains("no client to ask as")), (69, true), "{nobody:?}");
    let unknown = learn(&relay, &["--server", "other:1"]).await;
    assert_eq!((unknown.code, unknown.err.contains("the configuration has")), (64, true), "{unknown:?}");
    let away = sluice("127.0.0.1:1", &["classes", "learn"]).await;
    assert_eq!((away.code, away.err.contains("with --nodes FILE")), (69, true), "{away:?}");
}
