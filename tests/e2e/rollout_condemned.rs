//! Contents that no push may bring again: by an operator's word, after the halt, and after a restart.

use serde_json::Value;

use crate::commands::{Done, sluice};
use crate::enforced::Fleet;
use crate::rollout_restarts::{BEFORE, Kept, WAVING};
use crate::support::client::{connect, node};
use crate::support::control_plane::eventually;
use crate::support::proto::Node;
use crate::support::{CDS, Client, Variant};

async fn condemn(fleet: &Fleet, push: &Value, content: &str) -> Done {
    let push = push.to_string();
    sluice(&fleet.relay.admin, &["rollout", "abort", "edge", "--push", &push, "--condemn", content]).await
}

/// The names in the plan's memory.
async fn condemned(fleet: &Fleet) -> Vec<String> {
    let found = fleet.relay.json("/rollouts/edge").await;
    let contents = found["condemned"]["contents"].as_array().unwrap();
    assert_eq!(found["condemned"]["count"], contents.len(), "{found}");
    contents.iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect()
}

/// Whether the version of cluster `a` that the server has now is condemned (TRU-4).
async fn is_live_condemned(fleet: &Fleet) -> bool {
    let found = fleet.relay.json("/versions?type=Cluster&name=a").await;
    found["versions"]
        .as_array()
        .unwrap()
        .iter()
        .any(|of| of["is"] == serde_json::json!(["live", "condemned"]))
}

/// The control plane takes the push back, and says its cluster `a` again with other changes.
async fn push_again(fleet: &mut Fleet) -> Value {
    fleet.origin.set_many(CDS, &BEFORE);
    fleet.until_plan("rest", |found| found["state"] == "open").await;
    fleet.until("the way back", |fleet| fleet.all_hold(CDS, &BEFORE)).await;
    fleet.forget();
    fleet.origin.set_many(CDS, &[("a", "2"), ("b", "2"), ("c", "2")]);
    let found = fleet.until_plan("halt", |found| found["state"] == "halted").await;
    assert_eq!(found["step"], 0, "before the first client: {found}");
    let why = found["why"].as_str().unwrap();
    assert!(why.contains("it brings Cluster \"a\" ") && why.ends_with(", which is condemned"), "{found}");
    found
}

/// A class without an older content is served what the server states, as without a plan. An operator sees and counts the content.
#[tokio::test]
async fn qua_5_a_first_answer_with_condemned_content_is_served_and_counted() {
    let classes = "node_classes: [ { split_by: { cluster: true } } ]";
    let mut fleet = Fleet::with(|setup| setup.line(classes), WAVING, 40).await;
    let seated = fleet.seated_below(25.0).await;
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    let done = condemn(&fleet, &1.into(), "Cluster/a").await;
    assert_eq!(done.code, 0, "{done:?}");
    let found = fleet.relay.json("/rollouts/edge").await;
    let served = |found: &Value| {
        (found["condemned_served"].clone(), found["condemned"]["contents"][0]["served"].clone())
    };
    assert_eq!(served(&found), (0.into(), false.into()), "{found}");
    let given = async || fleet.relay.series("sluice_rollout_condemned_given_total{plan=\"edge\"}").await;
    assert_eq!(given().await, 0.0);

    let newcomer = Node { cluster: "other".to_owned(), ..node("newcomer") };
    let mut newcomer = Client::on(connect(&fleet.relay.address).await, Variant::Delta, Some(newcomer));
    newcomer.want(CDS, &["*"]);
    let texts = newcomer.take(CDS).await.texts();
    assert!(texts.contains(&("a".to_owned(), "2".to_owned())), "{texts:?}");
    let found = fleet.relay.json("/rollouts/edge").await;
    assert_eq!(served(&found), (1.into(), true.into()), "{found}");
    let status = sluice(&fleet.relay.admin, &["rollout", "status", "edge"]).await;
    assert!(
        status.out.contains("CONDEMNED") && status.out.contains("to all clients of a unit"),
        "{status:?}"
    );
    let (_, page) = fleet.relay.get("/ui/rollouts/edge").await;
    assert!(page.contains("Condemned: Cluster a, version "), "{page}");
    let ready = fleet.relay.json("/ready").await;
    assert_eq!(ready["rollouts"][0]["condemned_served"], 1, "{ready}");
    eventually("the count", async || given().await == 1.0).await;
    let log = fleet.relay.log();
    assert!(log.contains("clients are given a condemned or halted content: nothing older is known"), "{log}");
}

/// GRD-8: a later push with a content that an operator condemned reaches nobody, whatever else it brings. A mended one goes its way.
#[tokio::test]
async fn grd_8_a_content_condemned_by_command_reaches_nobody_again() {
    let mut fleet = Fleet::with(|setup| setup, WAVING, 40).await;
    let seated = fleet.seated_below(25.0).await;
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the first step", |fleet| fleet.had(CDS, "a", "2") == seated).await;
    let done = condemn(&fleet, &1.into(), "Cluster/a").await;
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(condemned(&fleet).await, ["a"]);
    assert!(is_live_condemned(&fleet).await);
    let found = push_again(&mut fleet).await;
    assert_eq!(fleet.had(CDS, "a", "2") + fleet.had(CDS, "c", "2"), 0, "{found}");

    fleet.origin.set(CDS, "a", "3");
    fleet.until("the mended push", |fleet| fleet.had(CDS, "a", "3") == seated).await;
    assert_eq!((fleet.had(CDS, "a", "2"), fleet.had(CDS, "c", "2")), (0, seated));
}

/// QUA-2, WAV-8: after a restart, the content of a halted push can be condemned once the server has said it again. A condemned content
/// stays condemned over another restart, and no push has to name it (TRU-4).
#[tokio::test]
async fn qua_2_a_content_halted_before_a_restart_is_condemned() {
    let mut kept = Kept::start(WAVING).await;
    kept.fleet.origin.set(CDS, "a", "2");
    let push = kept.state("waving").await["push"].clone();
    kept.order(&format!("abort edge --push {push}")).await;
    kept.fleet.origin.ends_on(Some(CDS));
    kept.kill().await;
    kept.state("halted").await;
    let unknown = condemn(&kept.fleet, &push, "Cluster/a").await;
    assert_eq!((unknown.code, unknown.out.as_str()), (65, ""), "{unknown:?}");
    assert!(unknown.err.contains("not known until the server sends it again"), "{unknown:?}");
    kept.fleet.origin.ends_on(None);
    eventually("the content", async || condemn(&kept.fleet, &push, "Cluster/a").await.code == 0).await;
    let other = condemn(&kept.fleet, &push, "Cluster/b").await;
    assert!(other.code == 64 && other.err.contains("brings no such content"), "{other:?}");
    assert_eq!(condemned(&kept.fleet).await, ["a"]);
    kept.kill().await;
    kept.state("halted").await;
    assert_eq!(condemned(&kept.fleet).await, ["a"]);
    let found = push_again(&mut kept.fleet).await;
    assert_eq!(kept.fleet.had(CDS, "a", "2") + kept.fleet.had(CDS, "c", "2"), 0, "{found}");
}
