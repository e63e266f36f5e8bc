//! The consequences of a finding of the proof (PRF-27 to PRF-32), before a control plane whose answers are a function of the
//! node.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::commands::sluice;
use crate::proof::{COARSE, RIGHT, clients, divergences, node, relay as relay_of, zone_of, zoned};
use crate::support::client::connect;
use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, Relay, Variant};

const PLAIN: [(&str, &str); 2] = [("payments", "plain"), ("same", "1")];
const BLUE: [(&str, &str); 2] = [("payments", "secret-of-blue"), ("same", "1")];

fn proof(policy: &str) -> String {
    format!("proof: {{ policy: {policy}, per_minute: 1200, streams: 4, settle: 1s, window: 10s }}")
}

async fn splits(relay: &Relay) -> Vec<Value> {
    relay.json("/classes/splits").await["splits"].as_array().cloned().unwrap_or_default()
}

async fn another(relay: &Relay, zone: &str) -> Client {
    let node = node(&format!("{zone}-late"), zone);
    let mut client = Client::on(connect(&relay.address).await, Variant::Delta, Some(node));
    client.want(CDS, &["*"]);
    client
}

/// The digests of the classes with clients, by their number of clients.
async fn classes(relay: &Relay) -> Vec<(u64, String)> {
    let classes = relay.json("/classes").await["classes"].as_array().cloned().unwrap_or_default();
    let class = |class: &Value| Some((class["clients"].as_u64()?, class["class"].as_str()?.to_owned()));
    let mut classes: Vec<_> = classes.iter().filter_map(class).filter(|class| class.0 > 0).collect();
    classes.sort();
    classes
}

/// A coarse class of which the proof has split the zone `blue` off.
async fn split(lines: &[&str]) -> (ControlPlane, Relay, Vec<Client>, Vec<Client>) {
    let origin = zoned().await;
    let proof = proof("split");
    let lines: Vec<&str> = [COARSE, &proof].into_iter().chain(lines.iter().copied()).collect();
    let relay = relay_of(&origin, &lines).await;
    let mut red = clients(&relay, &[("red", 3), ("blue", 2)]).await;
    let mut blue = red.split_off(3);
    for client in &mut blue {
        client.settle(CDS, &BLUE).await;
    }
    for client in &mut red {
        client.quiet().await;
    }
    (origin, relay, red, blue)
}

#[tokio::test]
async fn prf_27_clients_with_the_value_that_explains_it_get_a_class_of_their_own() {
    let (origin, relay, mut red, mut blue) = split(&[]).await;
    relay.logged("a class was split").await;
    eventually("nothing differs any more", || async { divergences(&relay).await.is_empty() }).await;
    let all = splits(&relay).await;
    let [made] = all.as_slice() else { panic!("{all:#?}") };
    assert_eq!(
        (&made["by"][0], &made["tuples"], &made["cause"]),
        (&"locality.zone".into(), &1.into(), &"proof".into())
    );
    assert!(made["client"].as_str().is_some_and(|client| client.starts_with("blue")), "{made}");
    assert_eq!(made["type"], "envoy.config.cluster.v3.Cluster");
    let found = classes(&relay).await;
    let [(2, _), (3, of_red)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(made["class"], of_red.as_str());
    // Later clients go to the class of the value, and both classes get changes.
    for (zone, content) in [("blue", &BLUE), ("red", &PLAIN)] {
        another(&relay, zone).await.settle(CDS, content).await;
    }
    origin.set(CDS, "same", "2");
    for client in &mut blue {
        client.settle(CDS, &[("payments", "secret-of-blue"), ("same", "2")]).await;
    }
    for client in &mut red {
        client.settle(CDS, &[("payments", "plain"), ("same", "2")]).await;
    }
    let shown = sluice(&relay.admin, &["classes"]).await;
    assert!(shown.out.contains("split by locality.zone (1 value)"), "{shown:?}");
    // PRF-32: the account of a client names the sample that did it.
    let clients = relay.json("/clients?node=blue-1").await;
    let id = clients["clients"][0]["id"].to_string();
    let explained = relay.json(&format!("/clients/{id}/explain?type=Cluster&name=payments")).await;
    let words = "split off by locality.zone since ";
    let client = format!("the proof found other content of Cluster for client {}", made["client"]);
    let text = explained.to_string().replace("\\\"", "\"");
    assert!(text.contains(words) && text.contains(&client), "{text}");
}

#[tokio::test]
async fn prf_28_newcomers_are_refused_and_who_has_content_keeps_it() {
    let origin = zoned().await;
    let relay = relay_of(&origin, &[COARSE, &proof("refuse")]).await;
    let mut clients = clients(&relay, &[("red", 3), ("blue", 2)]).await;
    eventually("the divergence", || async { !divergences(&relay).await.is_empty() }).await;
    eventually("a refusal", || async {
        let status = another(&relay, "red").await.event().await;
        matches!(&status, crate::support::client::Event::End(status) if status.message().contains("`proof.policy: refuse`"))
    })
    .await;
    for client in &mut clients {
        client.quiet().await;
    }
    let ready = relay.json("/ready").await;
    assert_eq!((&ready["ready"], &ready["proofs"][0]["differ"]), (&true.into(), &1.into()), "{ready}");
    origin.set(CDS, "same", "2");
    for client in &mut clients {
        client.take(CDS).await;
    }
}

#[tokio::test]
async fn prf_32_a_split_stays_over_a_reload_and_a_restart_until_a_rule_decides_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint =
        format!("checkpoint: {{ directory: {:?}, interval: 100ms }}", directory.path().join("kept"));
    let (origin, mut relay, mut red, mut blue) = split(&[&checkpoint]).await;
    let text = fs::read_to_string(relay.path("sluice.yaml")).unwrap();
    let reload = async |relay: &Relay, text: &str| {
        fs::write(relay.path("sluice.yaml"), text).unwrap();
        let (status, body) = relay.post("/reload?yes=1").await;
        assert_eq!(status, 200, "{body}");
    };
    reload(&relay, &text.replace("per_minute: 1200", "per_minute: 1100")).await;
    for client in red.iter_mut().chain(&mut blue) {
        client.quiet().await;
    }
    let file = directory.path().join("kept/classes.json");
    eventually("the file", || async {
        fs::read_to_string(&file).is_ok_and(|text| text.contains("locality.zone"))
    })
    .await;
    let kept = fs::read_to_string(&file).unwrap();
    assert!(!kept.contains("\"blue\"") && !kept.contains("[\\\"blue"), "a value of a node: {kept}");

    drop((red, blue));
    relay.sigterm();
    relay.exit().await;
    let proof = proof("split");
    let relay = relay_of(&origin, &[COARSE, &proof, &checkpoint]).await;
    // No client was asked about, and the first answer is right already.
    let mut late = another(&relay, "blue").await;
    late.settle(CDS, &BLUE).await;
    let mut other = another(&relay, "red").await;
    other.settle(CDS, &PLAIN).await;
    assert_eq!(splits(&relay).await.len(), 1);

    let text = fs::read_to_string(relay.path("sluice.yaml")).unwrap();
    reload(&relay, &text.replace(COARSE, RIGHT)).await;
    late.quiet().await;
    other.quiet().await;
    let fields = relay.json("/classes").await.to_string();
    eventually("classes by the rule alone", || async {
        classes(&relay).await.len() == 2 && !relay.json("/clients").await.to_string().contains("split by")
    })
    .await;
    assert!(fields.contains("zone"), "{fields}");
}

#[tokio::test]
async fn prf_32_an_operator_joins_classes_and_splits_them_by_a_field() {
    let (_origin, relay, mut red, mut blue) = split(&[]).await;
    let found = classes(&relay).await;
    let [(2, part), (3, whole)] = found.as_slice() else { panic!("{found:?}") };
    // All or nothing.
    let apart = crate::support::proto::Node { cluster: "apart".to_owned(), ..node("red-apart", "red") };
    let mut apart = Client::on(connect(&relay.address).await, Variant::Delta, Some(apart));
    apart.want(CDS, &["*"]);
    apart.take(CDS).await;
    let found = classes(&relay).await;
    let [(1, not_split), ..] = found.as_slice() else { panic!("{found:?}") };
    for (other, reason) in [
        ("zz", "no class has a digest that begins with \"zz\""),
        ("", "class: missing"),
        (not_split.as_str(), "the class was not split, and is no part of a split; no class was joined"),
    ] {
        let refused = sluice(&relay.admin, &["classes", "join", &format!("{part},{other}")]).await;
        assert_eq!((refused.code, refused.err.contains(reason)), (64, true), "{refused:?}");
    }
    assert_eq!(splits(&relay).await.len(), 1);
    drop(apart);
    // The split of the one is that of the other.
    let joined = sluice(&relay.admin, &["classes", "join", &format!("{whole},{part}")]).await;
    assert_eq!((joined.code, joined.out.matches(whole.as_str()).count()), (0, 1), "{joined:?}");
    for client in &mut blue {
        client.settle(CDS, &PLAIN).await;
    }
    assert_eq!(splits(&relay).await, [] as [Value; 0]);
    // The proof finds the difference again, and leaves the rest to the operator.
    eventually("it waits", || async {
        let classes = relay.json("/classes").await["classes"].as_array().cloned().unwrap_or_default();
        classes
            .iter()
            .any(|class| class["class"] == whole.as_str() && class["proof"]["state"] == "split_waits")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(splits(&relay).await, [] as [Value; 0]);

    for (field, reason) in
        [("metadata.NOTHING", "no client of the class has the field"), ("cluster", "the same values")]
    {
        let refused = sluice(&relay.admin, &["classes", "split", whole, "--by", field]).await;
        assert_eq!((refused.code, refused.err.contains(reason)), (64, true), "{refused:?}");
    }
    let done = sluice(&relay.admin, &["classes", "split", whole, "--by", "locality.zone"]).await;
    assert_eq!((done.code, done.out.contains("(each value)")), (0, true), "{done:?}");
    for client in &mut blue {
        client.settle(CDS, &BLUE).await;
    }
    for client in &mut red {
        client.quiet().await;
    }
    another(&relay, "green").await.settle(CDS, &PLAIN).await;
    eventually("two classes", || async { classes(&relay).await.len() == 2 }).await;
}

/// PRF-30: the first content of a new class is given at once, so that a split would give a held push to the moved clients.
#[tokio::test]
async fn prf_30_a_split_waits_while_a_plan_holds_content_back() {
    let plan = "rollouts: [ { name: edge, mode: enforce, gather: { quiet: 100ms, max: 1s }, \
                steps: [ { percent: 1, bake: 1h } ], final_bake: 1s } ]";
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "same", "1");
    let has_rule = Arc::new(AtomicBool::new(false));
    let rule = has_rule.clone();
    origin.answer_by_stream(move |node, _, world| {
        let is_meant = rule.load(Ordering::Relaxed) && zone_of(node) == "blue";
        world.put(CDS, "payments", if is_meant { "secret-of-blue" } else { "plain" });
        Ok(())
    });
    let relay = relay_of(&origin, &[COARSE, &proof("split"), plan]).await;
    let mut red = clients(&relay, &[("red", 3), ("blue", 2)]).await;
    let mut blue = red.split_off(3);
    has_rule.store(true, Ordering::Relaxed);
    origin.set(CDS, "same", "2");
    relay.logged("a split of a class waits").await;
    assert_eq!(splits(&relay).await, [] as [Value; 0]);
    for client in &mut blue {
        assert_eq!(client.holds(CDS).get("payments").map(String::as_str), Some("plain"));
    }
    let push = relay.json("/rollouts/edge").await["push"].to_string();
    let promoted = sluice(&relay.admin, &["rollout", "promote", "edge", "--push", &push, "--all"]).await;
    assert_eq!(promoted.code, 0, "{promoted:?}");
    // The bake of the plan ends with the ACKs of all clients.
    for client in red.iter_mut().chain(&mut blue) {
        client.settle(CDS, &[("payments", "plain"), ("same", "2")]).await;
    }
    for client in &mut blue {
        client.settle(CDS, &[("payments", "secret-of-blue"), ("same", "2")]).await;
    }
    for client in &mut red {
        client.quiet().await;
    }
}
