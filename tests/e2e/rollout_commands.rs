//! A plan as operators see it: commands, events, metrics, the log, the overview and the page, of the built binary.

use serde_json::{Value, json};

use crate::commands::{Done, sluice};
use crate::enforced::{Fleet, plan};
use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, RDS, Relay, Setup, Variant};

/// Every client is admitted to the first step.
const PLAN: &str = "rollouts: [ { name: edge, mode: observe, gather: { quiet: 100ms, max: 1s }, steps: [ { percent: 100, \
                    bake: 1s } ], final_bake: 1s } ]";

/// A relay with a plan, whose push one of two clients rejects in words that attack a terminal and a page.
async fn halted() -> (ControlPlane, Relay, Vec<Client>) {
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "web", "1");
    let relay = Relay::start(Setup::of(origin.address).line(PLAN)).await;
    let mut clients = Vec::new();
    for node in ["envoy-1", "envoy-2"] {
        let mut client = Client::open(&relay.address, Variant::Delta, node).await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        clients.push(client);
    }
    origin.set(CDS, "web", "2");
    let answer = clients[0].next(CDS).await;
    clients[0].nack(&answer, "web: <b>no such\u{1b}[2J filter");
    clients[1].take(CDS).await;
    eventually("the verdict", || async {
        let plan = relay.json("/rollouts/edge").await;
        plan["state"] == "halted" && plan["accepted"] == 1
    })
    .await;
    (origin, relay, clients)
}

async fn done(relay: &Relay, line: &str) -> Done {
    let words: Vec<_> = line.split(' ').collect();
    let done = sluice(&relay.admin, &words).await;
    assert_eq!(done.code, 0, "{line}: {done:?}");
    done
}

/// A line of a table, as words.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[tokio::test]
async fn wav_19_commands_tell_the_verdict_and_the_words_of_clients() {
    let (_origin, relay, _clients) = halted().await;
    let status = done(&relay, "rollout status").await;
    let [heads, line] = status.out.lines().collect::<Vec<_>>()[..] else { panic!("{status:?}") };
    assert_eq!(words(heads)[..4], ["PLAN", "PUSH", "STATE", "STEP"]);
    assert_eq!(words(line)[..12], ["edge", "1", "halted", "1/2", "100%", "1", "2", "1", "0", "1", "0", "0"]);
    assert!(
        line.contains("would have halted push 1 after ") && line.ends_with("1 of 2 clients rejected it"),
        "{line}"
    );

    let plan = done(&relay, "rollout status edge").await.out;
    for text in [
        "push 1 of plan edge  halted",
        "Cluster: changed web; added none",
        "envoy-1",
        "<b>no such\\u{1b}[2J filter",
    ] {
        assert!(plan.contains(text), "{text}: {plan}");
    }
    assert!(!plan.contains('\u{1b}'), "{plan}");
    assert_eq!(done(&relay, "rollout history edge 1").await.out, plan);

    let history = done(&relay, "rollout history").await;
    assert_eq!(words(history.out.lines().nth(1).unwrap())[..3], ["edge", "1", "halted"], "{history:?}");
    let json: Value = serde_json::from_str(&done(&relay, "rollout history -o json").await.out).unwrap();
    assert_eq!(
        (&json["pushes"][0]["push"], &json["pushes"][0]["relay"]),
        (&1.into(), &relay.admin.clone().into())
    );
    assert_eq!(done(&relay, "rollout history edge -o name").await.out, "edge/1\n");
    assert_eq!(done(&relay, "rollout status -o name").await.out, "edge\n");
    let wide = done(&relay, "rollout status -o wide").await;
    assert!(wide.out.lines().next().unwrap().ends_with("WAITING  BLAMED            REPLICAS"), "{wide:?}");
    assert!(done(&relay, "rollout status edge -o yaml").await.out.contains("state: halted"));

    let unknown = sluice(&relay.admin, &["rollout", "status", "egde"]).await;
    assert_eq!((unknown.code, unknown.out.as_str()), (64, ""), "{unknown:?}");
    assert!(unknown.err.contains("nearest: edge"), "{unknown:?}");
    let unknown = sluice(&relay.admin, &["rollout", "history", "edge", "7"]).await;
    assert!(unknown.code == 64 && unknown.err.contains("it remembers pushes 1 to 1"), "{unknown:?}");
}

#[tokio::test]
async fn tru_7_events_metrics_the_log_and_the_page_tell_of_a_verdict() {
    let (_origin, relay, _clients) = halted().await;
    let events = relay.json("/events?kind=push").await;
    let told: Vec<_> =
        events["events"].as_array().unwrap().iter().map(|of| of["text"].as_str().unwrap()).collect();
    assert!(told[0].starts_with("a push has begun: 1 resource in 1 unit"), "{told:?}");
    let verdict = events["events"].as_array().unwrap().iter().find(|of| of["severity"] == "warn").unwrap();
    assert_eq!((&verdict["plan"], &verdict["push"]), (&"edge".into(), &1.into()));
    assert!(verdict["text"].as_str().unwrap().contains("would have halted push 1"), "{verdict}");

    relay.metric_reaches("sluice_rollout_state", &["plan=\"edge\"", "state=\"halted\""], 1.0).await;
    relay.metric_reaches("sluice_rollout_clients", &["plan=\"edge\"", "state=\"rejected\""], 1.0).await;
    assert_eq!(relay.metric("sluice_rollout_state", &["state=\"open\""]).await, 0.0);
    relay.logged("clients speak against a push; a plan that enforces would have halted the push").await;
    let attention = relay.json("/overview").await["attention"].to_string();
    assert!(attention.contains("plan edge would have halted push 1"), "{attention}");

    let (status, page) = relay.get("/ui/rollouts/edge").await;
    assert_eq!(status, 200);
    assert!(page.contains("1 of 2 clients rejected it") && page.contains("&#60;b&#62;no such"), "{page}");
    assert!(!page.contains("<b>no such"), "{page}");
}

/// Twenty clients and a push of two routes, one of which only the client with the last seat uses. The first step admits half of the clients.
async fn lonely(plan: &str) -> Fleet {
    let slow = plan.replace("bake: 1s }", "bake: 60s }");
    let mut fleet = Fleet::with(|setup| setup, &slow, 20).await;
    let last = *fleet.by_seat().await.last().unwrap();
    fleet.origin.set(RDS, "lonely", "1");
    fleet.clients[last].want(RDS, &["r", "lonely"]);
    fleet.until("the lonely route", |fleet| fleet.had(RDS, "lonely", "1") == 1).await;
    fleet.origin.set_many(RDS, &[("r", "2"), ("lonely", "2")]);
    let routes =
        json!([{ "type": "envoy.config.route.v3.RouteConfiguration", "names": ["lonely"], "count": 1 }]);
    let listed = |found: &Value| found["latest"]["without_evidence"] == routes && found["accepted"] != 0;
    let found = fleet.until_plan("list", listed).await;
    assert_eq!(found["state"], "waving", "{found}");
    fleet
}

/// WAV-14: the clients of a step may all accept a push, and say nothing about a route that none of them uses.
#[tokio::test]
async fn wav_14_status_lists_the_resources_that_no_admitted_client_was_sent() {
    let mut fleet = lonely(&plan("percent: 50")).await;
    assert_eq!(fleet.had(RDS, "lonely", "2"), 0);
    let line = "no evidence: no admitted client was sent RouteConfiguration lonely";
    let status = done(&fleet.relay, "rollout status edge").await.out;
    assert!(status.lines().any(|of| of == line), "{status}");
    let (_, page) = fleet.relay.get("/ui/rollouts/edge").await;
    assert!(page.contains(line), "{page}");

    done(&fleet.relay, "rollout promote edge --push 1 --all").await;
    fleet.until("the lonely route", |fleet| fleet.had(RDS, "lonely", "2") == 1).await;
    fleet.until_plan("end of the list", |found| found["latest"]["without_evidence"] == json!([])).await;
}

/// WAV-14, WAV-19: a client that a plan which enforces would not have admitted yet is no evidence, although it has the route.
#[tokio::test]
async fn wav_14_a_client_that_would_not_be_admitted_is_no_evidence() {
    let mut fleet = lonely(&plan("percent: 50").replace("mode: enforce", "mode: observe")).await;
    fleet.until("the lonely route", |fleet| fleet.had(RDS, "lonely", "2") == 1).await;
    let has_it = |found: &Value| found["others"]["accepted"].as_u64() > Some(0);
    let found = fleet.until_plan("answers of the others", has_it).await;
    assert_eq!(found["latest"]["without_evidence"][0]["names"], json!(["lonely"]), "{found}");
}
