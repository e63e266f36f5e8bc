//! The orders of operators to plans that enforce: `sluice rollout pause` to `unfreeze`, of the built binary.

use serde_json::Value;

use crate::commands::{Done, examples, sluice};
use crate::enforced::Fleet;
use crate::support::client::{connect, node};
use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, EDS, RDS, Variant};

/// Two steps of some seconds, and a final bake without an end.
const SLOW: &str = "rollouts: [ { name: edge, mode: enforce, gather: { quiet: 100ms, max: 1s }, \
                    steps: [ { percent: 25, bake: 2s }, { percent: 50, bake: 2s } ], final_bake: 1h } ]";

/// Over within some seconds.
const FAST: &str = "rollouts: [ { name: edge, mode: enforce, gather: { quiet: 100ms, max: 1s }, \
                    steps: [ { percent: 50, bake: 1s } ], final_bake: 1s } ]";

/// A time in which a plan without an order goes on.
const HELD_SECONDS: f64 = 3.0;

const ORDERS: [&str; 10] =
    ["pause", "resume", "promote", "abort", "bar", "pin", "unpin", "rollback", "freeze", "unfreeze"];

async fn order(fleet: &Fleet, line: &str) -> Done {
    let words: Vec<_> = ["rollout"].into_iter().chain(line.split(' ')).collect();
    sluice(&fleet.relay.admin, &words).await
}

async fn done(fleet: &Fleet, line: &str) -> String {
    let done = order(fleet, line).await;
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{line}: {done:?}");
    done.out.strip_prefix(&format!("{}  ", fleet.relay.admin)).unwrap_or(&done.out).to_owned()
}

/// Waits for a later moment, by the count of the plan.
async fn later(fleet: &mut Fleet) {
    let now = fleet.until_plan("change that waits", |found| found["behind_seconds"] != 0.0).await;
    let then = now["behind_seconds"].as_f64().unwrap() + HELD_SECONDS;
    fleet.until_plan("later moment", |found| found["behind_seconds"].as_f64() > Some(then)).await;
}

/// HIS-5: an order acts on the named push, and on no other push.
#[tokio::test]
async fn his_5_an_operator_stops_a_push_lets_it_go_and_takes_it_back() {
    let mut fleet = Fleet::with(|setup| setup, SLOW, 40).await;
    let before = [("a", "1"), ("b", "1")];
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") > 0).await;
    let paused = done(&fleet, "pause edge --push 1 --as jo --reason outage").await;
    assert!(paused.starts_with("edge: paused, push 1, step "), "{paused}");
    assert!(done(&fleet, "pause edge --push 1").await.starts_with("edge: paused"), "twice");
    fleet.until_plan("answers", |found| found["pending"] == 0).await;
    let had = fleet.had(CDS, "a", "2");
    assert!((1..40).contains(&had), "{had}");
    later(&mut fleet).await;
    assert_eq!(fleet.had(CDS, "a", "2"), had, "nobody new gets the push");
    fleet.relay.logged("an operator commanded a plan").await;
    assert!(
        fleet.relay.log_lines("an operator commanded a plan")[0].contains("outage"),
        "{}",
        fleet.relay.log()
    );

    let vague = order(&fleet, "promote edge --push 1").await;
    assert_eq!(
        (vague.code, vague.err.contains("step: missing; the push has reached step 1 of 3")),
        (64, true),
        "{vague:?}"
    );
    for line in ["pause edge --push 2", "promote edge --push 7 --all", "abort edge --push 2"] {
        let another = order(&fleet, line).await;
        assert_eq!((another.code, another.out.as_str()), (65, ""), "{line}: {another:?}");
        assert!(another.err.contains("push 1 is under way; nothing was done"), "{another:?}");
    }
    let plan = fleet.relay.json("/rollouts/edge").await;
    assert_eq!((&plan["state"], &plan["push"]), (&"paused".into(), &1.into()), "{plan}");

    assert!(!done(&fleet, "resume edge --push 1").await.contains("paused"));
    fleet.until("the second step", |fleet| fleet.had(CDS, "a", "2") > had).await;
    let promoted = done(&fleet, "promote edge --push 1 --all").await;
    assert!(promoted.starts_with("edge: settling, push 1, step 3/3 100%"), "{promoted}");
    fleet.until("everybody", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    let aborted = done(&fleet, "abort edge --push 1 --condemn Cluster/a").await;
    assert!(aborted.starts_with("edge: halted, push 1"), "{aborted}");
    fleet.until("the way back", |fleet| fleet.all_hold(CDS, &before)).await;
    let wrong = order(&fleet, "promote edge --push 1 --step 9").await;
    assert_eq!((wrong.code, wrong.err.contains("the steps 1 to 3")), (64, true), "{wrong:?}");
    let halted = order(&fleet, "pause edge --push 1").await;
    assert_eq!((halted.code, halted.err.contains("is halted")), (65, true), "{halted:?}");
}

/// HIS-3, HIS-4: a freeze holds the next push, and a rollback serves the release before the push.
#[tokio::test]
async fn his_4_a_freeze_holds_the_next_push_and_a_rollback_serves_the_release_before() {
    let mut fleet = Fleet::with(|setup| setup, FAST, 20).await;
    let (before, after) = ([("a", "1"), ("b", "1")], [("a", "2"), ("b", "1")]);
    assert_eq!(done(&fleet, "freeze --for 2d --reason sale").await, "done in edge\n");
    fleet.origin.set(CDS, "a", "2");
    later(&mut fleet).await;
    assert_eq!(fleet.relay.json("/rollouts/edge").await["state"], "frozen");
    fleet.relay.logged("no push begins: an operator froze the plan").await;
    let told = fleet.relay.warnings("an operator froze the plan");
    assert!(told.len() == 1 && told[0].contains("left=\"2d\""), "{told:#?}");
    let frozen =
        async |fleet: &Fleet| fleet.relay.metric("sluice_rollout_frozen_seconds", &["plan=\"edge\""]).await;
    let left = frozen(&fleet).await;
    assert!(left > 0.0 && left <= 172_800.0, "{left}");
    eventually("a shorter freeze", async || frozen(&fleet).await < left).await;
    assert!(fleet.all_hold(CDS, &before));
    fleet.origin.set(EDS, "b", "2");
    fleet.until("endpoints", |fleet| fleet.all_hold(EDS, &[("a", "1"), ("b", "2")])).await;
    assert_eq!(fleet.had(CDS, "a", "2"), 0);
    assert_eq!(done(&fleet, "unfreeze").await, "done in edge\n");
    assert_eq!(frozen(&fleet).await, 0.0);
    fleet.until("the push", |fleet| fleet.all_hold(CDS, &after)).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;

    let back = done(&fleet, "rollback edge --push 1").await;
    assert!(back.starts_with("edge: pinned"), "{back}");
    fleet.until("the release before", |fleet| fleet.all_hold(CDS, &before)).await;
    assert!(done(&fleet, "rollback edge --push 1").await.starts_with("edge: pinned"), "twice");
    done(&fleet, "freeze --for 1h").await;
    let left = frozen(&fleet).await;
    assert!(left > 3_000.0 && left <= 3_600.0, "{left}");
    assert_eq!(fleet.relay.json("/rollouts/edge").await["state"], "pinned", "no state tells of the freeze");
    done(&fleet, "unfreeze").await;
    done(&fleet, "unpin edge").await;
    fleet.until("the push again", |fleet| fleet.all_hold(CDS, &after)).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
    assert!(done(&fleet, "pin edge --to 0 --until unpin").await.starts_with("edge: pinned"));
    fleet.until("the first release", |fleet| fleet.all_hold(CDS, &before)).await;
    done(&fleet, "unpin edge").await;
}

/// HIS-5: a class that two control planes serve is two units. `bar` leaves out both.
#[tokio::test]
async fn his_5_a_class_is_barred_with_all_of_its_units() {
    let routes = ControlPlane::obedient().await;
    routes.set(RDS, "r", "1");
    let mut fleet = Fleet::with(|setup| setup.line(&routes_of(&routes)), SLOW, 20).await;
    routes.set(RDS, "r", "2");
    fleet.origin.set(CDS, "a", "2");
    let found = fleet.until_plan("push of both units", |found| found["latest"]["units"] == 2).await;
    let class = found["covers"][0]["class"].as_str().unwrap();
    assert_eq!(found["covers"][1]["class"], class, "{found}");
    done(&fleet, "abort edge --push 1").await;
    fleet.until("the way back", |fleet| fleet.all_hold(RDS, &[("r", "1")])).await;
    fleet.until("the way back", |fleet| fleet.all_hold(CDS, &[("a", "1"), ("b", "1")])).await;
    fleet.forget();
    for _ in 0..2 {
        done(&fleet, &format!("bar edge --push 1 --class {class}")).await;
    }
    later(&mut fleet).await;
    assert_eq!((fleet.had(CDS, "a", "2"), fleet.had(RDS, "r", "2")), (0, 0));
    let found = fleet.relay.json("/rollouts/edge").await;
    assert_eq!(found["barred"].as_array().unwrap().len(), 2, "{found}");
}

/// A second control plane, for routes.
pub fn routes_of(routes: &ControlPlane) -> String {
    let server = format!(
        "{{ server_uri: {:?}, channel_creds: [ {{ type: insecure }} ] }}",
        routes.address.to_string()
    );
    format!("types: {{ envoy.config.route.v3.RouteConfiguration: {{ xds_servers: [ {server} ] }} }}")
}

/// WAV-4: a push waits for a server that is away. What this server takes back meanwhile is given to nobody under the push's number.
#[tokio::test]
async fn wav_4_what_a_server_takes_back_before_the_push_begins_is_no_part_of_it() {
    let mut routes = ControlPlane::obedient().await;
    routes.set(RDS, "r", "1");
    let patient = FAST.replace("max: 1s", "max: 1h");
    let mut fleet = Fleet::with(|setup| setup.line(&routes_of(&routes)), &patient, 20).await;
    assert_eq!(done(&fleet, "freeze").await, "done in edge\n");
    routes.set(RDS, "r", "2");
    fleet.origin.set(CDS, "a", "2");
    let both = |found: &Value| found["waiting"] == 2;
    fleet.until_plan("changes of both servers", both).await;
    routes.down().await;
    let server = routes.address.to_string();
    eventually("the end of the connection", async || {
        fleet.relay.sources(&server).await[0]["stale_seconds"].is_f64()
    })
    .await;
    fleet.until_plan("end of the quiet time", |found| found["behind_seconds"].as_f64() > Some(0.5)).await;
    // The answer comes after the cut, which is put off.
    assert_eq!(done(&fleet, "unfreeze").await, "done in edge\n");
    assert_eq!(fleet.relay.json("/rollouts/edge").await["state"], "gathering");
    routes.set(RDS, "r", "1");
    routes.up().await;
    fleet.until("the push", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    let found = fleet.until_plan("end", |found| found["state"] == "open").await;
    assert_eq!((fleet.had(RDS, "r", "2"), fleet.all_hold(RDS, &[("r", "1")])), (0, true), "{found}");
}

/// CMD-4, and wrong orders: without a push, beyond seven days, or with one number for two relays.
#[tokio::test]
async fn cmd_2_an_order_that_cannot_be_meant_is_64_and_the_examples_reach_the_plan() {
    let fleet = Fleet::with(|setup| setup, FAST, 2).await;
    for (line, words) in [
        ("freeze --for 8d", "at most 7d"),
        ("pause edge", "--push"),
        ("pause egde --push 1", "edge"),
        ("abort edge --push 1 --condemn a", "TYPE/NAME"),
        ("pin edge --to 9 --until unpin", "does not remember this release"),
    ] {
        let wrong = order(&fleet, line).await;
        assert_eq!((wrong.code, wrong.out.as_str()), (64, ""), "{line}: {wrong:?}");
        assert!(wrong.err.contains(words), "{line}: {wrong:?}");
    }
    let two = format!("{},127.0.0.1:1", fleet.relay.admin);
    let several = sluice(&two, &["rollout", "pause", "edge", "--push", "1"]).await;
    assert_eq!((several.code, several.err.contains("name one relay")), (64, true), "{several:?}");
    let several = sluice(&two, &["rollout", "freeze"]).await;
    assert_eq!((several.code, several.out.contains("done in edge")), (3, true), "{several:?}");
    assert_eq!(sluice("127.0.0.1:1", &["rollout", "unfreeze"]).await.code, 69);
    let json = order(&fleet, "unfreeze -o json").await;
    assert!(json.out.contains("\"relays\"") && json.out.contains("\"edge\""), "{json:?}");
    for word in ORDERS {
        for example in examples(&fleet.relay, &format!("rollout {word}")).await {
            let words: Vec<_> = example.split_whitespace().collect();
            let done = sluice(&fleet.relay.admin, &words).await;
            let is_heard = matches!(done.code, 0 | 65) || done.err.starts_with("sluice: relay ");
            assert!(is_heard, "{example}: {done:?}");
        }
    }
}

/// HIS-3: a rollback returns to what clients had before the push, also after a rollback, and under names that the release does not have.
#[tokio::test]
async fn his_3_a_rollback_returns_to_what_clients_had_before_the_push() {
    let mut fleet = Fleet::with(|setup| setup, FAST, 20).await;
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the push", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
    done(&fleet, "rollback edge --push 1").await;
    let before = [("a", "1"), ("b", "1")];
    fleet.until("the release before", |fleet| fleet.all_hold(CDS, &before)).await;

    let mut newcomer =
        Client::on(connect(&fleet.relay.address).await, Variant::Delta, Some(node("newcomer")));
    fleet.origin.set(RDS, "late", "1");
    newcomer.want(RDS, &["late"]);
    newcomer.settle(RDS, &[("late", "1")]).await;
    fleet.origin.set(CDS, "a", "3");
    fleet.origin.set(RDS, "late", "3");
    let push = fleet.until("the next push", |fleet| fleet.all_hold(CDS, &[("a", "3"), ("b", "1")]));
    tokio::join!(push, newcomer.settle(RDS, &[("late", "3")]));
    done(&fleet, "rollback edge --push 2").await;
    fleet.until("what all had", |fleet| fleet.all_hold(CDS, &before)).await;
    newcomer.settle(RDS, &[("late", "1")]).await;
    newcomer.quiet().await;
}
