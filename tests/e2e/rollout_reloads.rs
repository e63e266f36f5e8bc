//! Reloads while a plan with `mode: enforce` holds something back, of the built binary.

use std::fs;

use serde_json::Value;

use crate::commands::sluice;
use crate::enforced::Fleet;
use crate::support::control_plane::eventually;
use crate::support::relay::run;
use crate::support::{CDS, Relay, Setup};

const PLAN: &str = "rollouts: [ { name: edge, mode: enforce, gather: { quiet: 100ms, max: 1s }, \
                    steps: [ { percent: 50, bake: 1s } ], final_bake: 1h } ]";

/// Exchanges a text of the configuration file.
pub(super) fn edit(relay: &Relay, from: &str, to: &str) {
    let text = fs::read_to_string(relay.path("sluice.yaml")).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(relay.path("next"), text.replace(from, to)).unwrap();
    fs::rename(relay.path("next"), relay.path("sluice.yaml")).unwrap();
}

/// The result of a reload, and its faults.
async fn reload(relay: &Relay) -> (u16, Value, String) {
    let (status, body) = relay.post("/reload").await;
    let report: Value = serde_json::from_str(&body).unwrap();
    (status, report["result"].clone(), report["faults"].to_string())
}

async fn halted(setup: impl FnOnce(Setup) -> Setup) -> Fleet {
    let mut fleet = Fleet::with(setup, PLAN, 20).await;
    fleet.reject("bad");
    fleet.origin.set(CDS, "a", "bad");
    fleet.until_plan("halt", |found| found["state"] == "halted").await;
    fleet.until("the way back", |fleet| fleet.all_hold(CDS, &[("a", "1"), ("b", "1")])).await;
    fleet
}

/// REL-7: nobody is given a halted push by a reload that nobody has confirmed.
#[tokio::test]
async fn rel_7_a_plan_with_a_halted_push_goes_by_a_yes_only() {
    let mut fleet = halted(|setup| setup).await;
    let had = fleet.had(CDS, "a", "bad");
    assert!(had < 20, "{had}");
    let admin = fleet.relay.admin.clone();

    edit(&fleet.relay, PLAN, "rollouts: []");
    let planned = sluice(&admin, &["reload", "--dry-run"]).await;
    let text = "plan edge is halted (push 1) and would be removed: all clients would get what it holds back";
    assert_eq!((planned.code, planned.err.contains(text)), (1, true), "{planned:?}");
    assert!(planned.err.contains("`sluice rollout promote edge --push 1 --all`"), "{planned:?}");
    let (status, result, faults) = reload(&fleet.relay).await;
    assert_eq!((status, result, faults.contains(text)), (409, "held".into(), true), "{faults}");

    let held = ["result=\"held\""];
    fleet.relay.signal("HUP");
    eventually("a refused signal", || async {
        fleet.relay.metric("sluice_config_reloads_total", &held).await == 2.0
    })
    .await;
    fleet.relay.logged("trigger=\"SIGHUP\"").await;
    let lines = fleet.relay.log_lines("ERROR");
    assert!(
        lines.len() == 2 && lines.iter().all(|line| line.contains("plan edge is halted (push 1)")),
        "{lines:?}"
    );
    let overview = fleet.relay.json("/overview").await;
    assert!(overview["attention"].to_string().contains("sluice reload --yes"), "{overview}");

    edit(&fleet.relay, "rollouts: []", &PLAN.replace("bake: 1s", "bake: 2s"));
    let (_, result, faults) = reload(&fleet.relay).await;
    let text = "would change, and give the push to its first step again";
    assert_eq!((result, faults.contains(text)), ("held".into(), true), "{faults}");
    let found = fleet.relay.json("/rollouts/edge").await;
    assert_eq!((&found["state"], &found["push"]), (&"halted".into(), &1.into()), "{found}");
    assert_eq!(fleet.had(CDS, "a", "bad"), had);

    edit(&fleet.relay, &PLAN.replace("bake: 1s", "bake: 2s"), "rollouts: []");
    let confirmed = sluice(&admin, &["reload", "--yes"]).await;
    assert_eq!(confirmed.code, 0, "{confirmed:?}");
    fleet.until("the push at all clients", |fleet| fleet.had(CDS, "a", "bad") == 20).await;
}

/// REL-7: clients that leave a unit with a halted push would be given the push elsewhere, also if others stay.
#[tokio::test]
async fn rel_7_some_clients_of_a_halted_unit_move_by_a_yes_only() {
    const CLASSES: &str = "node_classes: [ { split_by: { cluster: true } } ]";
    let fleet = halted(|setup| setup.line(CLASSES)).await;
    let had = fleet.had(CDS, "a", "bad");
    let other =
        "{ match: { id: { prefix: client-1 } }, split_by: { cluster: true, user_agent_name: true } }, ";
    edit(&fleet.relay, "node_classes: [ ", &format!("node_classes: [ {other}"));
    let (_, result, faults) = reload(&fleet.relay).await;
    assert_eq!((result, faults.contains("would lose 1 of its units")), ("held".into(), true), "{faults}");
    assert_eq!(fleet.had(CDS, "a", "bad"), had);
}

/// REL-7: clients that prefer another server from now on would be given what that server says.
#[tokio::test]
async fn rel_7_a_server_goes_before_that_of_a_halted_unit_by_a_yes_only() {
    let fleet = halted(|setup| setup).await;
    let other = "  - { server_uri: \"127.0.0.1:1\", channel_creds: [ { type: insecure } ] }\n";
    edit(&fleet.relay, "xds_servers:\n", &format!("xds_servers:\n{other}"));
    let (_, result, faults) = reload(&fleet.relay).await;
    assert_eq!((result, faults.contains("would lose 1 of its units")), ("held".into(), true), "{faults}");
    // Behind that server, another one takes nobody away.
    edit(&fleet.relay, other, "");
    let last = "    resource_timeout: 1s\n";
    edit(&fleet.relay, last, &format!("{last}{other}"));
    let (status, result, faults) = reload(&fleet.relay).await;
    assert_eq!((status, result), (200, "changed".into()), "{faults}");
}

/// REL-7: in a wave, only a looser plan waits for a yes.
#[tokio::test]
async fn rel_7_a_wave_takes_a_stricter_plan_and_no_looser_one() {
    let mut fleet = Fleet::with(|setup| setup, PLAN, 20).await;
    fleet.origin.set(CDS, "a", "2");
    fleet.until_plan("final bake", |found| found["state"] == "settling").await;
    edit(&fleet.relay, "percent: 50", "percent: 60");
    let (_, result, faults) = reload(&fleet.relay).await;
    assert_eq!((result, faults.contains("would be looser: steps")), ("held".into(), true), "{faults}");
    edit(&fleet.relay, "percent: 60", "percent: 50");
    let first = "{ name: first, mode: enforce, match: { lists: [ xds_servers ] } }, ";
    edit(&fleet.relay, "rollouts: [ ", &format!("rollouts: [ {first}"));
    let (_, result, faults) = reload(&fleet.relay).await;
    assert_eq!((result, faults.contains("would lose 1 of its units")), ("held".into(), true), "{faults}");
    edit(&fleet.relay, first, "");
    edit(&fleet.relay, "percent: 50", "percent: 40");
    let (status, result, faults) = reload(&fleet.relay).await;
    assert_eq!((status, result), (200, "changed".into()), "{faults}");
    fleet.until_plan("push by the stricter plan", |found| found["push"] == 2).await;
}

/// WAV-8: a start without the plan of a halted push cannot ask anybody, and names the push.
#[tokio::test]
async fn wav_8_a_start_without_the_plan_of_a_halted_push_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = format!("checkpoint: {{ directory: {}, interval: 1s }}", directory.path().display());
    let mut fleet = halted(|setup| setup.line(&checkpoint)).await;
    let file = directory.path().join("rollouts.json");
    let has_push = || fs::read_to_string(&file).is_ok_and(|text| text.contains("\"number\":1"));
    eventually("the record", || async { has_push() }).await;
    fleet.relay.signal("KILL");
    fleet.relay.exit().await;
    fleet.relay = Relay::start(Setup::of(fleet.origin.address).line(&checkpoint)).await;
    fleet.relay.logged("the halted push of a plan is let go").await;
    let lines = fleet.relay.warnings("the halted push of a plan is let go");
    assert!(lines[0].contains("edge") && lines[0].contains("push=1"), "{lines:?}");
}

/// WAV-8: without a checkpoint, `check` and the start say what a restart forgets.
#[tokio::test]
async fn wav_8_a_plan_without_a_checkpoint_is_warned_of() {
    let fleet = Fleet::with(|setup| setup, PLAN, 2).await;
    fleet.relay.logged("a plan holds pushes back without a checkpoint").await;
    let (code, _, errors) = run(&["check", "--config", "sluice.yaml", "--offline"], &fleet.relay.path(""));
    assert!(code == 0 && errors.contains("rollouts[0].mode: without `checkpoint`"), "{errors}");
}

/// GRD-2: a halt is a line of `/ready` and of `sluice status`, and the relay is ready.
#[tokio::test]
async fn grd_2_a_halt_is_a_line_of_ready() {
    let fleet = halted(|setup| setup).await;
    let (status, body) = fleet.relay.get("/ready").await;
    let found: Value = serde_json::from_str(&body).unwrap();
    let line = &found["rollouts"][0];
    assert_eq!(
        (status, &line["plan"], &line["state"], &line["push"]),
        (200, &"edge".into(), &"halted".into(), &1.into())
    );
    assert!(line["why"].as_str().unwrap().contains("rejected it"), "{found}");
    // Nobody has judged the first content.
    assert_eq!(line["unproved"], 1, "{found}");
    let status = sluice(&fleet.relay.admin, &["status"]).await;
    assert!(status.out.contains("plan edge halted push 1"), "{status:?}");
    let refused = sluice(
        &fleet.relay.admin,
        &["rollout", "pause", "edge", "--push", "1", "--as", "jo", "--reason", "why"],
    )
    .await;
    assert_eq!(refused.code, 65, "{refused:?}");
    let events = sluice(&fleet.relay.admin, &["events", "--kind", "push"]).await;
    assert!(events.out.contains("pause by jo") && events.out.contains("is halted"), "{events:?}");
    let page = fleet.relay.get("/ui/rollouts/edge").await.1;
    assert!(
        page.contains("Affected clients that are not admitted") && page.contains("pause by jo"),
        "{page}"
    );
}

/// WAV-11: beyond the bound no push begins, and a greater bound by a reload lets the next one go. Another `history.pushes` takes nothing back.
#[tokio::test]
async fn wav_11_no_push_begins_while_too_much_is_held() {
    let mut fleet =
        Fleet::with(|setup| setup.line("limits: { held_bytes: 0 }"), &PLAN.replace("1h", "1s"), 20).await;
    fleet.origin.set(CDS, "a", "2");
    fleet.relay.logged("the contents that are held take too many bytes").await;
    let found = fleet.until_plan("line", |found| found["full"] == true).await;
    assert_eq!((&found["state"], &found["push"]), (&"gathering".into(), &Value::Null), "{found}");
    assert!(fleet.relay.metric("sluice_rollout_held_bytes", &["plan=\"edge\""]).await > 0.0);
    assert_eq!(fleet.had(CDS, "a", "2"), 0);
    edit(&fleet.relay, "held_bytes: 0", "held_bytes: 1MiB");
    assert_eq!(reload(&fleet.relay).await.0, 200);
    fleet.until("the push", |fleet| fleet.had(CDS, "a", "2") > 0).await;
    edit(&fleet.relay, "limits: {", "history: { pushes: 1 }\nlimits: {");
    let (status, _, faults) = reload(&fleet.relay).await;
    assert_eq!(status, 200, "{faults}");
    fleet
        .until_plan("end", |found| found["state"] == "open" && found["releases"] == serde_json::json!([1]))
        .await;
    let pushes = fleet.relay.json("/rollouts/edge/pushes").await;
    assert_eq!(pushes["pushes"][0]["outcome"], "finished", "{pushes}");
}
