//! Plans that enforce over night: classes whose clients all leave while something is held, and releases of before a restart.

use serde_json::json;

use crate::commands::sluice;
use crate::enforced::{Fleet, plan};
use crate::rollout_restarts::{BEFORE, Kept};
use crate::support::client::{connect, node};
use crate::support::proto::Node;
use crate::support::{CDS, Client, Variant};

/// A tenth of the clients goes first. Sources forget their names as soon as nobody asks for them.
async fn nightly() -> Kept {
    Kept::start(&format!("linger: 0s\n{}", plan("percent: 10"))).await
}

async fn order(fleet: &Fleet, line: &str) -> (i32, String) {
    let words: Vec<_> = ["rollout"].into_iter().chain(line.split(' ')).collect();
    let done = sluice(&fleet.relay.admin, &words).await;
    (done.code, done.err)
}

/// WAV-8: the push was halted before the restart, and all clients leave after it.
#[tokio::test]
async fn wav_8_a_halt_of_before_a_restart_outlives_the_clients() {
    let mut kept = nightly().await;
    kept.fleet.bad.insert("bad");
    kept.fleet.origin.set(CDS, "a", "bad");
    kept.fleet.until_plan("halt", |found| found["state"] == "halted").await;
    kept.fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    kept.written("2").await;
    kept.kill().await;
    let is_held = |found: &serde_json::Value| found["state"] == "halted" && found["behind_seconds"] != 0.0;
    kept.fleet.until_plan("halt", is_held).await;
    kept.fleet.sleep().await;
    kept.fleet.join(20).await;
    let found = kept.fleet.relay.json("/rollouts/edge").await;
    assert!(kept.fleet.all_hold(CDS, &BEFORE), "{found}");
    assert_eq!((kept.fleet.had(CDS, "a", "bad"), &found["state"]), (0, &"halted".into()), "{found}");
}

/// HIS-3, WAV-8: all clients leave while an operator has them pinned to a release.
#[tokio::test]
async fn his_3_a_pin_outlives_the_clients() {
    let mut fleet = nightly().await.fleet;
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the push", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
    assert_eq!(order(&fleet, "pin edge --to 0 --until unpin").await.0, 0);
    fleet.until("the release before", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    fleet.sleep().await;
    fleet.join(20).await;
    let found = fleet.relay.json("/rollouts/edge").await;
    assert!(fleet.all_hold(CDS, &BEFORE), "{found}");
    assert_eq!((fleet.had(CDS, "a", "2"), &found["state"]), (0, &"pinned".into()), "{found}");
    assert_eq!(found["diverged"], json!([]), "{found}");
}

/// HIS-3: a class whose first client came after a release has none of it. It goes on with its content under a pin, and says so.
#[tokio::test]
async fn his_3_a_class_that_came_after_a_release_is_diverged() {
    let classes = "node_classes: [ { split_by: { cluster: true } } ]";
    let lines = format!("{classes}\n{}", plan("percent: 10"));
    let mut fleet = Kept::start(&lines).await.fleet;
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the push", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
    let newcomer = Node { cluster: "other".to_owned(), ..node("newcomer") };
    let mut newcomer = Client::on(connect(&fleet.relay.address).await, Variant::Delta, Some(newcomer));
    newcomer.want(CDS, &["*"]);
    newcomer.take(CDS).await;
    assert_eq!(order(&fleet, "pin edge --to 0 --until unpin").await.0, 0);
    fleet.until("the release before", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    newcomer.quiet().await;
    let found = fleet.relay.json("/rollouts/edge").await;
    assert_eq!(
        (&found["state"], found["diverged"].as_array().map(Vec::len)),
        (&"pinned".into(), Some(1)),
        "{found}"
    );
}

/// HIS-3: after a restart the relay knows the digests of earlier releases, and not their contents. It says so, and does nothing.
#[tokio::test]
async fn his_3_a_release_of_before_a_restart_is_refused() {
    let mut kept = nightly().await;
    let all = |text: &'static str| move |fleet: &Fleet| fleet.all_hold(CDS, &[("a", text), ("b", "1")]);
    for (text, releases) in [("2", json!([1, 0])), ("3", json!([2, 1, 0]))] {
        kept.fleet.origin.set(CDS, "a", text);
        kept.fleet.until("the push", all(text)).await;
        kept.fleet.until_plan("end", |found| found["releases"] == releases).await;
    }
    kept.written("2").await;
    kept.kill().await;
    let found = kept.fleet.until_plan("plan", |found| found["releases"] == json!([2])).await;
    assert_eq!(found["state"], "open", "{found}");
    for line in ["rollback edge --push 2", "pin edge --to 1 --until unpin"] {
        let (code, words) = order(&kept.fleet, line).await;
        assert!(code == 64 && words.contains("the relay has begun anew since"), "{line}: {code}, {words}");
    }
    assert!(all("3")(&kept.fleet));
    kept.fleet.origin.set(CDS, "a", "4");
    kept.fleet.until("the push", all("4")).await;
    kept.fleet.until_plan("end", |found| found["releases"] == json!([3, 2])).await;
    assert_eq!(order(&kept.fleet, "rollback edge --push 3").await.0, 0);
    kept.fleet.until("the release before", all("3")).await;
}
