//! `POST /rollouts/PLAN/COMMAND`, `POST /freeze` and `POST /unfreeze`.

use super::rollouts::some;
use super::*;
use crate::driver::api::rollouts::RolloutStatus;
use sluice_fleet::rollout::{Mode, Plan};

/// HIS-5: a command names its push, and one for another push is 409.
#[tokio::test]
async fn his_5_a_command_is_answered_with_the_state_after_it_or_the_reason() {
    let admin = Fixture::start(vec![], false);
    let said = async |target: &str| {
        let answer = admin.act("POST", target).await;
        (answer.status, answer.body.lines().next().unwrap_or_default().to_owned())
    };
    let done =
        admin.act("POST", "/rollouts/edge/abort?push=41&condemn=Cluster/a,Cluster/b&as=ann&reason=x").await;
    assert_eq!((done.status, &done.json()["push"]), (200, &Value::from(41)));
    assert_eq!(said("/rollouts/edge/bar?push=41&class=c0ff").await.0, 200);
    for (target, status, words) in [
        ("/rollouts/edge/pause?push=7", 409, "plan \"edge\": push 41 is under way; nothing was done"),
        ("/rollouts/edge/pause", 400, "push is missing; GET /rollouts has the number"),
        ("/rollouts/edge/promote?push=41&step=9", 400, "plan \"edge\": step: the push has the steps 1 to 4"),
        (
            "/rollouts/edge/promote?push=41",
            400,
            "plan \"edge\": step: missing; the push has reached step 1 of 4: name 2, or all",
        ),
        ("/rollouts/edge/promote?push=41&step=2&all=1", 400, "step: not together with all"),
        (
            "/rollouts/edge/pin?to=1&until=unpin",
            404,
            "plan \"edge\": the plan does not remember this release",
        ),
        ("/rollouts/edge/pin?to=39", 400, "until is missing; allowed: next-push, unpin, or a time by for"),
        (
            "/rollouts/edge/abort?push=41&condemn=a",
            400,
            "condemn is \"a\"; allowed: TYPE/NAME, as Cluster/payments",
        ),
        (
            "/rollouts/edge/abort?push=41&condemn=A/a",
            404,
            "plan \"edge\": condemn: the push brings no such content",
        ),
        (
            "/freeze",
            409,
            "nothing is frozen, and pushes go on: no plan has `mode: enforce`; edge, idle only observe",
        ),
        ("/unfreeze", 404, "no plan has `mode: enforce`; GET /rollouts lists the plans"),
    ] {
        assert_eq!(said(target).await, (status, words.to_owned()), "{target}");
    }
    assert_eq!(said("/rollouts/none/pause?push=7").await.0, 404);
    assert_eq!(said("/rollouts/edge/explode").await.0, 400);
    assert_eq!(said("/freeze?for=8d").await.0, 400);
}

/// HIS-5: a refusal is told and audited, for the orders to all plans, too.
#[tokio::test]
async fn his_5_a_refused_order_to_all_plans_is_no_success() {
    let edge = RolloutStatus::clone(&some()[0]);
    let plan = Arc::new(Plan { mode: Mode::Enforce, ..Plan::new("edge") });
    let rollouts = vec![Arc::new(RolloutStatus { plan, ..edge })];
    let view = FakeView { rollouts, ..FakeView::default() };
    let admin = Fixture::of(view, AdminSettings::default(), None);
    let refused = admin.act("POST", "/unfreeze?as=ann").await;
    let words = "plan \"edge\": push 41 is under way; nothing was done\n";
    assert_eq!((refused.status, refused.body.as_str()), (409, words));
    let events = admin.get("/events?kind=push").await.json();
    let text = events["events"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("a command to a plan had no effect: unfreeze by ann; "), "{events}");
    assert_eq!(admin.act("POST", "/freeze").await.status, 200);
}
