//! The proof of the grouping, before a control plane whose answers are a function of the node (PRF).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tonic::{Code, Status};

use crate::commands::sluice;
use crate::support::client::connect;
use crate::support::control_plane::eventually;
use crate::support::proto::{Locality, Node};
use crate::support::proxy::Proxy;
use crate::support::relay::run;
use crate::support::{CDS, Client, ControlPlane, LDS, Relay, SDS, Setup, Variant};

/// A class that the zone of a node does not split.
pub const COARSE: &str = "node_classes: [{ split_by: { cluster: true }, upstream_node: member }]";

/// A class that the zone splits.
pub const RIGHT: &str =
    "node_classes: [{ split_by: { cluster: true, locality: zone }, upstream_node: member }]";

/// A proof without waits.
const PROOF: &str = "proof: { per_minute: 1200, streams: 4, settle: 1s, window: 10s }";

/// The same with streams that stay open.
const WITNESSES: &str = "proof: { per_minute: 1200, streams: 4, standing: 4, settle: 1s, window: 10s }";

pub async fn relay(origin: &ControlPlane, lines: &[&str]) -> Relay {
    let setup = lines.iter().fold(Setup::of(origin.address), |setup, line| setup.line(line));
    Relay::start(setup).await
}

pub fn node(id: &str, zone: &str) -> Node {
    let locality = Some(Locality { zone: zone.to_owned(), ..Locality::default() });
    Node { locality, ..crate::support::client::node(id) }
}

/// Clients `ZONE-0`, `ZONE-1`, ... of each zone, all with their clusters. The server sees the first.
pub async fn clients(relay: &Relay, zones: &[(&str, usize)]) -> Vec<Client> {
    let mut clients = Vec::new();
    for (zone, count) in zones {
        for number in 0..*count {
            let node = node(&format!("{zone}-{number}"), zone);
            let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(node));
            client.want(CDS, &["*"]);
            client.take(CDS).await;
            clients.push(client);
        }
    }
    clients
}

pub fn zone_of(node: &Node) -> &str {
    node.locality.as_ref().map_or("", |locality| &locality.zone)
}

/// A control plane that gives the zone `blue` another cluster `payments`.
pub async fn zoned() -> ControlPlane {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "same", "1");
    origin.answer_by_stream(|node, _, world| {
        let text = if zone_of(node) == "blue" { "secret-of-blue" } else { "plain" };
        world.put(CDS, "payments", text);
        Ok(())
    });
    origin
}

pub async fn divergences(relay: &Relay) -> Vec<Value> {
    relay.json("/classes/divergences").await["divergences"].as_array().cloned().unwrap_or_default()
}

/// The proof of the only class.
async fn proof_of(relay: &Relay) -> Value {
    relay.json("/classes").await["classes"][0]["proof"].clone()
}

/// `sluice classes prove` of each class with several clients in turn: the greatest exit code, and the words.
async fn prove(relay: &Relay) -> (i32, String) {
    let classes = relay.json("/classes").await["classes"].as_array().cloned().unwrap_or_default();
    let admin = relay.admin.clone();
    let digests: Vec<String> = classes
        .iter()
        .filter(|class| class["clients"].as_u64() > Some(1))
        .filter_map(|class| Some(class["class"].as_str()?.to_owned()))
        .collect();
    let proved = tokio::task::spawn_blocking(move || {
        let ends = digests.iter().map(|digest| {
            let arguments = ["classes", "prove", digest, "--all", "--streams", "4", "--relay", &admin];
            let (code, out, err) = run(&arguments, std::path::Path::new("."));
            (code, out + &err)
        });
        ends.fold((0, String::new()), |(worst, words), (code, text)| (worst.max(code), words + &text))
    });
    proved.await.expect("the command")
}

/// The streams at the control plane with this node id.
fn streams_of(origin: &ControlPlane, id: &str) -> usize {
    let log = origin.log();
    let mut streams: Vec<u64> = log
        .iter()
        .filter(|request| request.ask.node.as_ref().is_some_and(|node| node.id == id))
        .map(|request| request.stream)
        .collect();
    streams.sort_unstable();
    streams.dedup();
    streams.len()
}

#[tokio::test]
async fn prf_17_a_rule_that_is_too_coarse_is_told_with_the_field_that_explains_it() {
    let origin = zoned().await;
    let relay = relay(&origin, &[COARSE, PROOF]).await;
    let mut clients = clients(&relay, &[("red", 3), ("blue", 2)]).await;
    eventually("the divergence", || async { !divergences(&relay).await.is_empty() }).await;
    let all = divergences(&relay).await;
    let [divergence] = all.as_slice() else { panic!("{all:#?}") };
    assert_eq!(divergence["type"], "envoy.config.cluster.v3.Cluster");
    assert_eq!((&divergence["name"], &divergence["paths"][0]), (&"payments".into(), &"alt_stat_name".into()));
    assert_eq!(divergence["explained_by"][0], "locality.zone", "{divergence}");
    assert_eq!(divergence["clients"], 2, "{divergence}");
    assert!(divergence["since"].is_string(), "{divergence}");
    let proof = proof_of(&relay).await;
    assert_eq!(proof["state"], "differs", "{proof}");

    relay.logged("a class is too coarse").await;
    let warned = relay.warnings("a class is too coarse");
    assert_eq!(warned.len(), 1, "{warned:?}");
    for words in ["payments", "alt_stat_name", "locality.zone"] {
        assert!(warned[0].contains(words), "{words}: {}", warned[0]);
    }
    let events = relay.get("/events?kind=proof").await.1;
    assert!(events.contains("too coarse") && events.contains("locality.zone"), "{events}");
    for text in [&relay.log(), &events, &divergence.to_string()] {
        assert!(!text.contains("secret-of-blue"), "a value of the resource: {text}");
    }
    relay.metric_reaches("sluice_proof_divergences", &["type=\"Cluster\""], 1.0).await;
    let class = divergence["class"].as_str().unwrap();
    let listed = sluice(&relay.admin, &["classes", "samples", class, "-o", "json"]).await;
    assert_eq!(listed.code, 0, "{listed:?}");
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let samples = listed["samples"].as_array().unwrap();
    assert!(
        samples.iter().any(|one| one["result"] == "differs" && one["node"] == divergence["member"]),
        "{listed}"
    );
    let (code, words) = prove(&relay).await;
    assert_eq!(code, 65, "{words}");
    // PRF-26, PRF-10: nobody has moved, and nobody was sent anything.
    for client in &mut clients {
        client.quiet().await;
    }
}

#[tokio::test]
async fn prf_24_a_right_rule_is_proved_with_its_numbers() {
    let origin = zoned().await;
    let relay = relay(&origin, &[RIGHT, PROOF]).await;
    let _clients = clients(&relay, &[("red", 4)]).await;
    eventually("the class is proved", || async { proof_of(&relay).await["state"] == "proved" }).await;
    let (code, words) = prove(&relay).await;
    assert_eq!(code, 0, "{words}");
    let proof = proof_of(&relay).await;
    assert!(proof["samples"].as_u64() >= Some(3) && proof["differs"] == 0, "{proof}");
    assert!(proof["words"].as_str().is_some_and(|words| words.contains("sampled members differ")), "{proof}");
    assert!(relay.warnings("").iter().all(|line| !line.contains("too coarse")));
    // PRF-1: the sources of the proof are nobody's.
    let sources = relay.json("/sources").await;
    assert!(
        sources["sources"].as_array().is_some_and(|all| all.iter().all(|one| one["shadow"].is_null())),
        "{sources}"
    );
    let ready = relay.json("/ready").await;
    assert_eq!(ready["upstreams"][origin.address.to_string()]["connected"], 1, "{ready}");
}

#[tokio::test]
async fn prf_16_a_control_plane_that_contradicts_itself_is_restless_and_no_divergence() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "same", "1");
    origin.answer_by_stream(|_, stream, world| {
        world.put(CDS, "stamped", &format!("stream {stream}"));
        Ok(())
    });
    let relay = relay(&origin, &[COARSE, PROOF]).await;
    let _clients = clients(&relay, &[("red", 2), ("blue", 2)]).await;
    eventually("the name is restless", || async { proof_of(&relay).await["restless"][0]["count"] == 1 })
        .await;
    assert_eq!(divergences(&relay).await, [] as [Value; 0]);
    assert!(relay.warnings("a class is too coarse").is_empty());
    assert_eq!(relay.warnings("answers the same question in two ways").len(), 1);
}

#[tokio::test]
async fn prf_12_a_stream_that_is_late_is_no_divergence() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "same", "1");
    let late = Arc::new(AtomicBool::new(false));
    let is_late = late.clone();
    origin.answer_by_stream(move |_, stream, world| {
        // The first stream is that of the class.
        let text = if stream == 1 && is_late.load(Ordering::Relaxed) { "new" } else { "old" };
        world.put(CDS, "late", text);
        Ok(())
    });
    let relay = relay(&origin, &[COARSE, WITNESSES]).await;
    let mut clients = clients(&relay, &[("red", 2), ("blue", 2)]).await;
    eventually("a witness", || async { proof_of(&relay).await["witnesses"].as_u64() > Some(0) }).await;
    late.store(true, Ordering::Relaxed);
    origin.change(|_| {});
    clients[0].take(CDS).await;
    let before = relay.metric("sluice_proof_samples_total", &["result=\"differs\""]).await;
    // Beyond `settle`, and within `window`.
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(divergences(&relay).await, [] as [Value; 0]);
    assert_eq!(relay.metric("sluice_proof_samples_total", &["result=\"differs\""]).await, before);
}

/// The answer for the member before the server does not change by the rule.
#[tokio::test]
async fn prf_23_a_rule_by_a_covered_value_is_noticed_at_its_push() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "same", "1");
    let has_rule = Arc::new(AtomicBool::new(false));
    let rule = has_rule.clone();
    origin.answer_by_stream(move |node, _, world| {
        let is_meant = rule.load(Ordering::Relaxed) && zone_of(node) == "blue";
        world.put(CDS, "payments", if is_meant { "another" } else { "plain" });
        Ok(())
    });
    let relay = relay(&origin, &[COARSE, WITNESSES]).await;
    let mut clients = clients(&relay, &[("red", 2), ("blue", 2)]).await;
    eventually("the zone is covered", || async {
        let proof = proof_of(&relay).await;
        proof["state"] == "proved" && proof["witnesses"].as_u64() > Some(0) && proof["uncovered_count"] == 0
    })
    .await;
    has_rule.store(true, Ordering::Relaxed);
    let pushed = Instant::now();
    origin.change(|_| {});
    eventually("the divergence", || async { !divergences(&relay).await.is_empty() }).await;
    assert!(pushed.elapsed() < Duration::from_secs(10), "{:?}", pushed.elapsed());
    let all = divergences(&relay).await;
    assert_eq!((&all[0]["name"], &all[0]["explained_by"][0]), (&"payments".into(), &"locality.zone".into()));
    for client in &mut clients {
        client.quiet().await;
    }
}

#[tokio::test]
async fn prf_5_no_stream_ever_shows_a_node_that_is_never_shown() {
    let origin = zoned().await;
    let proof =
        "proof: { per_minute: 1200, streams: 4, settle: 1s, window: 10s, never: [{ id: { prefix: vm } }] }";
    let relay = relay(&origin, &[COARSE, proof]).await;
    let _clients = clients(&relay, &[("red", 3)]).await;
    let _machines = clients_named(&relay, &["vm-1", "vm-2"]).await;
    let (code, words) = prove(&relay).await;
    assert_eq!(code, 0, "{words}");
    assert!(streams_of(&origin, "red-1") > 0, "the others were asked about");
    assert_eq!((streams_of(&origin, "vm-1"), streams_of(&origin, "vm-2")), (0, 0));
    assert_eq!(proof_of(&relay).await["not_sampled"], 2);
}

/// The proxy leads each connection of the relay to another replica.
#[tokio::test]
async fn prf_18_replicas_that_disagree_are_told_with_both_addresses_and_identifiers() {
    let (one, other) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    for (origin, name) in [(&one, "cp-a"), (&other, "cp-b")] {
        origin.set(CDS, "same", "1");
        origin.change(|world| world.identifier = Some(name.to_owned()));
    }
    let proxy = Proxy::start(one.address).await;
    let relay = Relay::start(Setup::of(proxy.address).line(COARSE).line(PROOF)).await;
    let mut clients = clients(&relay, &[("red", 3)]).await;
    let class = relay.json("/classes").await["classes"][0]["class"].as_str().unwrap().to_owned();
    proxy.aim(other.address);
    let order = ["classes", "prove", class.as_str(), "--replicas"];
    let same = sluice(&relay.admin, &order).await;
    assert_eq!(same.code, 0, "{same:?}");
    let words = format!("{0} (cp-a) and {0} (cp-b) tell one node the same", proxy.address);
    assert!(same.out.contains(&words), "{words}: {same:?}");

    other.set(CDS, "same", "2");
    let differs = sluice(&relay.admin, &order).await;
    assert_eq!((differs.code, differs.out.contains("two things: Cluster same")), (65, true), "{differs:?}");
    let compared = proof_of(&relay).await["replicas"].clone();
    assert_eq!((&compared["agree"], &compared["names"][0]), (&false.into(), &"same".into()), "{compared}");
    assert_eq!(compared["control_planes"], serde_json::json!(["cp-a", "cp-b"]), "{compared}");
    let events = relay.get("/events?kind=proof").await.1;
    assert!(events.contains("replicas of the upstream disagree") && events.contains("(cp-b)"), "{events}");
    // Never a reason to split, and no divergence.
    assert_eq!(divergences(&relay).await, [] as [Value; 0]);
    for client in &mut clients {
        client.quiet().await;
    }
}

async fn clients_named(relay: &Relay, ids: &[&str]) -> Vec<Client> {
    let mut clients = Vec::new();
    for id in ids {
        let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(node(id, "red")));
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    clients
}

#[tokio::test]
async fn prf_9_a_control_plane_that_refuses_the_streams_is_impossible_and_told_once() {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "same", "1");
    origin.answer_by_stream(|node, _, _| match node.id.as_str() {
        "red-0" => Ok(()),
        _ => Err(Status::new(Code::PermissionDenied, "the token is of another pod")),
    });
    let relay = relay(&origin, &[COARSE, PROOF]).await;
    let mut clients = clients(&relay, &[("red", 5)]).await;
    eventually("impossible", || async { proof_of(&relay).await["state"] == "impossible" }).await;
    assert_eq!(relay.warnings("cannot be asked in the place of clients").len(), 1);
    let (code, words) = prove(&relay).await;
    assert_eq!(code, 69, "{words}");
    // PRF-1: the server is well for everybody else.
    let ready = relay.json("/ready").await;
    let upstream = &ready["upstreams"][origin.address.to_string()];
    assert_eq!((&upstream["connected"], &upstream["stale"]), (&1.into(), &0.into()), "{ready}");
    assert!(relay.warnings("the upstream").iter().all(|line| line.contains("in the place of clients")));
    origin.set(CDS, "same", "2");
    for client in &mut clients {
        client.settle(CDS, &[("same", "2")]).await;
    }
}

/// Clusters and listeners come from two servers, and the rule is too coarse for the second one alone.
#[tokio::test]
async fn prf_24_a_class_at_two_servers_is_proved_at_both() {
    let (clusters, listeners) = (ControlPlane::obedient().await, ControlPlane::obedient().await);
    clusters.set(CDS, "same", "1");
    listeners.answer_by_stream(|node, _, world| {
        world.put(LDS, "main", zone_of(node));
        Ok(())
    });
    let server =
        format!("{{ server_uri: \"{}\", channel_creds: [{{ type: insecure }}] }}", listeners.address);
    let types = format!("types: {{ envoy.config.listener.v3.Listener: {{ xds_servers: [{server}] }} }}");
    let relay = relay(&clusters, &[COARSE, PROOF, &types]).await;
    let mut clients = clients(&relay, &[("red", 2), ("blue", 1)]).await;
    for client in &mut clients {
        client.want(LDS, &["*"]);
        client.take(LDS).await;
    }
    let classes = relay.json("/classes").await["classes"].clone();
    assert_eq!(
        (classes.as_array().map(Vec::len), classes[0]["sources"].as_array().map(Vec::len)),
        (Some(1), Some(2))
    );
    let (code, words) = prove(&relay).await;
    assert_eq!((code, words.contains("of 4 sampled clients")), (65, true), "{words}");
}

#[tokio::test]
async fn prf_24_a_class_of_which_nobody_can_be_asked_is_not_proved() {
    let origin = zoned().await;
    let proof =
        "proof: { per_minute: 1200, streams: 4, settle: 1s, window: 10s, never: [{ id: { prefix: vm } }] }";
    let relay = relay(&origin, &[COARSE, proof]).await;
    let _first = clients(&relay, &[("red", 1)]).await;
    let class = relay.json("/classes").await["classes"][0]["class"].as_str().unwrap().to_owned();
    let order = ["classes", "prove", class.as_str(), "--all"];
    let alone = sluice(&relay.admin, &order).await;
    assert_eq!((alone.code, alone.out.contains("nobody to differ")), (0, true), "{alone:?}");
    let _machines = clients_named(&relay, &["vm-1", "vm-2"]).await;
    let nobody = sluice(&relay.admin, &order).await;
    assert_eq!((nobody.code, nobody.out.contains("nobody could be asked about")), (69, true), "{nobody:?}");
    assert!(nobody.err.contains("`proof.never` matches"), "{nobody:?}");
}

#[tokio::test]
async fn prf_7_secrets_are_not_asked_for() {
    let origin = zoned().await;
    origin.set(SDS, "key", "1");
    let relay = relay(&origin, &[COARSE, PROOF]).await;
    let mut clients = clients(&relay, &[("red", 2)]).await;
    for client in &mut clients {
        client.want(SDS, &["key"]);
        client.take(SDS).await;
    }
    let (code, words) = prove(&relay).await;
    assert_eq!(code, 0, "{words}");
    let mut streams: Vec<u64> = origin.requests(SDS).iter().map(|request| request.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), 2, "one for the class of each client");
}

#[tokio::test]
async fn prf_5_without_the_key_nobody_is_asked() {
    let origin = zoned().await;
    let relay = relay(&origin, &[COARSE]).await;
    let _clients = clients(&relay, &[("red", 2), ("blue", 2)]).await;
    let (code, words) = prove(&relay).await;
    assert_eq!((code, words.contains("has no `proof`")), (69, true), "{words}");
    assert_eq!(origin.opened(), 1);
    assert_eq!(proof_of(&relay).await, Value::Null);
}

/// A shadow there would count as a client.
#[tokio::test]
async fn prf_5_a_server_that_registers_clients_is_never_asked_and_its_classes_say_so() {
    let origin = zoned().await;
    origin.change(|world| world.identifier = Some("kuma-cp-1".to_owned()));
    let relay = relay(&origin, &[COARSE, PROOF]).await;
    let _clients = clients(&relay, &[("red", 3)]).await;
    eventually("the state", || async { proof_of(&relay).await["state"] == "impossible" }).await;
    let words = proof_of(&relay).await["words"].to_string();
    assert!(words.contains("registers clients"), "{words}");
    relay.logged("the upstream cannot be asked in the place of clients").await;
    let (code, words) = prove(&relay).await;
    assert!(code == 69 && words.contains("registers clients"), "{code}: {words}");
    assert_eq!(streams_of(&origin, "red-1") + streams_of(&origin, "red-2"), 0);
}
