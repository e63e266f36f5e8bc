//! Load reports judge the pushes of a plan (LRS-24): the clients with a push, against all others, in the same clusters.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::commands::sluice;
use crate::enforced::Fleet;
use crate::rollout_reloads::edit;
use crate::support::client::{connect, node};
use crate::support::control_plane::eventually;
use crate::support::load::{ALL, LRS, Reporter, Wish, stats};
use crate::support::proto::Node;
use crate::support::{CDS, RDS, Setup};

/// `more`: keys of the plan. The first step admits about half of the clients, and does not end by itself.
fn plan(step: &str, more: &str) -> String {
    format!(
        "rollouts: [ {{ name: edge, mode: enforce, gather: {{ quiet: 100ms, max: 1s }}, steps: [ {{ {step} }} ], \
         final_bake: 1s, halt_on: {{ error_points: 5 }}{more} }} ]"
    )
}

/// Twenty clients of a fleet, each with a stream of load reports.
struct Judged {
    fleet: Fleet,
    reporters: Vec<Reporter>,
}

impl Judged {
    async fn start(plan: &str) -> Judged {
        Judged::with(|setup| setup, plan).await
    }

    async fn with(setup: impl FnOnce(Setup) -> Setup, plan: &str) -> Judged {
        let fleet = Fleet::with(|of| setup(of.server_line("lrs: aggregate")), plan, 20).await;
        fleet.origin.load().wish(Wish::all(1));
        let channel = connect(&fleet.relay.address).await;
        let mut reporters = Vec::new();
        for number in 0..20 {
            let client_features = vec![ALL.to_owned()];
            let node = Node { client_features, ..node(&format!("client-{number}")) };
            let mut reporter = Reporter::open(&channel, LRS, node).await;
            assert!(reporter.wish().await.all);
            reporters.push(reporter);
        }
        let judged = Judged { fleet, reporters };
        judged.report(|_| 0).await;
        judged
    }

    /// Each client reports, a second after its report before, so many errors among 100 requests to the cluster `a`, and none to `b`.
    async fn report(&self, errors: impl Fn(usize) -> u64) {
        // The interval of the control plane.
        sleep(Duration::from_secs(1)).await;
        let read = self.fleet.relay.metric("sluice_load_requests_total", &[]).await;
        for (number, reporter) in self.reporters.iter().enumerate() {
            let errors = errors(number);
            reporter.report(vec![stats("a", "z", [100 - errors, errors, 0]), stats("b", "z", [100, 0, 0])]);
        }
        self.fleet.relay.metric_reaches("sluice_load_requests_total", &[], read + 4_000.0).await;
    }

    /// A push of the cluster `a` that the clients of the first step have accepted. Gives these clients.
    async fn push(&mut self, text: &'static str) -> BTreeSet<usize> {
        self.push_of(CDS, "a", text).await
    }

    async fn push_of(&mut self, type_url: &str, name: &str, text: &'static str) -> BTreeSet<usize> {
        self.fleet.origin.set(type_url, name, text);
        let begun = |found: &Value| {
            let is_answered = found["accepted"].as_u64() > Some(0) && found["pending"] == 0;
            found["state"] == "waving" && found["step"] == 1 && is_answered
        };
        self.fleet.until_plan("the first step", begun).await;
        let holds = |number: &usize| self.fleet.clients[*number].holds(type_url)[name] == text;
        (0..20).filter(holds).collect()
    }

    async fn load(&self, cluster: &str) -> Value {
        let found = self.fleet.relay.json(&format!("/load?cluster={cluster}")).await;
        assert_eq!(found["load"].as_array().map(Vec::len), Some(1), "{found}");
        found["load"][0].clone()
    }
}

fn word(found: &Value) -> &Value {
    &found["latest"]["way"][0]["load"]
}

#[tokio::test]
async fn lrs_24_an_accepted_push_whose_requests_fail_is_halted_and_nobody_else_is_given_it() {
    let mut judged = Judged::start(&plan("percent: 50, bake: 10m", "")).await;
    let admitted = judged.push("broken").await;
    assert!((4..=16).contains(&admitted.len()), "{admitted:?}");
    // The first report covers time before the push, so it is no evidence for either group.
    judged.report(|number| if admitted.contains(&number) { 100 } else { 0 }).await;
    let found = judged.fleet.until_plan("a word", |found| word(found)["verdict"] == "cannot_tell").await;
    let words = "load reports cannot tell: no client with the push has reported since the step began; ";
    assert!(word(&found)["why"].as_str().unwrap().starts_with(words), "{found}");
    assert_eq!(found["why"], Value::Null, "a healthy push has no verdict");
    assert_eq!(found["state"], "waving");
    // A few errors everywhere are no difference.
    judged.report(|_| 10).await;
    let found = judged.fleet.until_plan("a word", |found| word(found)["verdict"] == "equal").await;
    assert_eq!(word(&found)["why"], "by load reports, none of 2 clusters fails more often with the push");
    judged.report(|number| if admitted.contains(&number) { 80 } else { 10 }).await;
    let found = judged.fleet.until_plan("a halt", |found| found["state"] == "halted").await;
    let why = found["why"].as_str().unwrap();
    let requests = admitted.len() * 200;
    let words = format!(": 45.0% of {requests} requests to \"a\" fail with the push, and 10.0% of ");
    assert!(why.contains(&words), "{why}");
    assert_eq!(word(&found)["verdict"], "worse");
    assert_eq!(found["blamed"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(judged.load("a").await["admitted"]["error"], admitted.len() * 90);
    judged.fleet.until("way back", |fleet| fleet.all_hold(CDS, &[("a", "1"), ("b", "1")])).await;
    assert_eq!(judged.fleet.had(CDS, "a", "broken"), admitted.len(), "nobody else was given it");
    // The mended push goes to everybody, as the load is equal.
    judged.push("mended").await;
    judged.report(|_| 1).await;
    judged.report(|_| 1).await;
    judged.fleet.until_plan("a word", |found| word(found)["verdict"] == "equal").await;
    let output = sluice(&judged.fleet.relay.admin, &["rollout", "status", "edge"]).await.out;
    assert!(
        output.contains("step 1: by load reports, none of 2 clusters fails more often with the push"),
        "{output}"
    );
}

/// A push goes on by what clients accept where nobody has traffic, and the log says so.
#[tokio::test]
async fn lrs_24_without_traffic_a_step_goes_on_and_says_that_it_cannot_tell() {
    let mut judged = Judged::start(&plan("percent: 50, bake: 2s", "")).await;
    judged.push("2").await;
    judged.fleet.until("the end", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    judged.fleet.until_plan("end", |found| found["state"] == "open").await;
    let push = judged.fleet.relay.json("/rollouts/edge/pushes/1").await;
    assert_eq!(
        (&push["outcome"], &push["way"][0]["load"]["verdict"]),
        (&"finished".into(), &"cannot_tell".into())
    );
    assert_eq!(push["way"][1]["load"], Value::Null, "nobody is left to compare with: {push}");
    let log = judged.fleet.relay.log();
    assert!(log.contains("load reports cannot tell whether it was worse"), "{log}");
    let too_few = "no cluster has 100 requests of both groups of clients";
    assert!(log.contains(too_few), "{log}");
}

/// Clients that a label has chosen differ from the others by nature.
#[tokio::test]
async fn lrs_24_clients_that_a_label_names_are_compared_with_nobody() {
    let labels = "clients: { id: { prefix: client-1 } }, bake: 10m }, { percent: 50";
    let mut judged = Judged::start(&plan(labels, "")).await;
    let admitted = judged.push("2").await;
    assert_eq!(admitted.len(), 11);
    for _ in 0..2 {
        judged.report(|number| if admitted.contains(&number) { 100 } else { 0 }).await;
    }
    let found = judged.fleet.until_plan("a word", |found| word(found)["verdict"] == "cannot_tell").await;
    assert!(
        word(&found)["why"].as_str().unwrap().contains("a label or a place chose the clients"),
        "{found}"
    );
    let row = judged.load("a").await;
    let groups = ["admitted", "unjudged", "others"].map(|group| row[group]["error"].as_u64().unwrap());
    assert_eq!((groups, &found["state"]), ([0, 1_100, 0], &"waving".into()));
}

/// Clients report by their class for clusters. A push of routes, which have classes of their own, is judged all the same.
#[tokio::test]
async fn lrs_24_a_push_of_a_type_with_other_classes_than_clusters_is_judged() {
    const RULES: &str = "node_classes: [ { match: { types: [envoy.config.route.v3.RouteConfiguration] }, \
                         split_by: { cluster: true } }, { split_by: {} } ]";
    let mut judged = Judged::with(|setup| setup.line(RULES), &plan("percent: 50, bake: 10m", "")).await;
    let admitted = judged.push_of(RDS, "r", "broken").await;
    for _ in 0..2 {
        judged.report(|number| if admitted.contains(&number) { 80 } else { 10 }).await;
    }
    let found = judged.fleet.until_plan("a halt", |found| found["state"] == "halted").await;
    assert!(found["why"].as_str().unwrap().contains(" fail with the push, and 10.0% of "), "{found}");
    assert_eq!(found["blamed"].as_array().map(Vec::len), Some(1), "{found}");
    let load = judged.load("a").await;
    let (blamed, class) = (found["blamed"][0].as_str().unwrap(), load["class"].as_str().unwrap());
    assert!(!blamed.contains(class), "the unit of the routes is blamed: {blamed}, {class}");
    judged.fleet.until("way back", |fleet| fleet.all_hold(RDS, &[("r", "1")])).await;
    assert_eq!(judged.fleet.had(RDS, "r", "broken"), admitted.len(), "nobody else was given it");
}

/// A reload cannot silence the judge of a step by accident. After a yes, the step says why it cannot tell.
#[tokio::test]
async fn rel_7_a_listener_drops_the_evidence_of_a_step_by_a_yes_only() {
    const MAIN: &str = "v2: true }, { name: other, address: 'unix:other.sock'";
    let setup = |setup: Setup| Setup { listener: MAIN.to_owned(), ..setup };
    let mut judged = Judged::with(setup, &plan("percent: 50, bake: 10m", "")).await;
    judged.push("2").await;
    edit(&judged.fleet.relay, "v2: true", "v2: true, load_reports: drop");
    let admin = judged.fleet.relay.admin.clone();
    let held = sluice(&admin, &["reload"]).await;
    let words = "plan edge is waving (push 1) and would be judged by fewer load reports than now (listeners[].load_reports)";
    assert_eq!((held.code, held.err.contains(words)), (1, true), "{held:?}");
    assert_eq!(sluice(&admin, &["reload", "--yes"]).await.code, 0);
    let is_told = |found: &Value| {
        let has =
            |why: &str| why.contains("no client of the plan has a stream") && why.contains("the listener");
        word(found)["why"].as_str().is_some_and(has)
    };
    let found = judged.fleet.until_plan("a cause", is_told).await;
    let words = "load reports cannot tell: no client of the plan has a stream of load reports; the listener \"main\" does not \
                 take the load reports of its clients (`load_reports`)";
    assert_eq!((&found["state"], &word(&found)["why"]), (&"waving".into(), &words.into()));
}

/// `sluice check` does not know the interval that the control plane asks for.
#[tokio::test]
async fn lrs_24_a_step_that_is_shorter_than_two_intervals_of_the_reports_is_told() {
    let mut judged = Judged::start(&plan("percent: 50, bake: 21s", "")).await;
    judged.fleet.origin.load().wish(Wish::all(11));
    eventually("the interval", || async {
        let found = judged.fleet.relay.json("/load/classes").await;
        found["classes"][0]["interval_seconds"] == 11.0
    })
    .await;
    judged.push("2").await;
    judged.fleet.relay.logged("a step may be over before load reports can judge it").await;
    let found = judged.fleet.until_plan("a word", |found| word(found)["verdict"] == "cannot_tell").await;
    let words = "the step bakes for 21s, and a verdict takes two intervals of the reports, each 11s";
    assert!(word(&found)["why"].as_str().unwrap().ends_with(words), "{found}");
}
