//! `/rollouts` and below, the page of plans, and what they say to the overview.

use std::collections::BTreeSet;

use super::*;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::driver::api::rollouts::{
    InitRefusal, JoiningUnits, LedgerStatus, ObeyedOrder, OrderRefusal, PlanOrder, RolloutStatus,
    RolloutsView, UnitStatus,
};
use sluice_engine::Time;
use sluice_engine::change::NameList;
use sluice_fleet::rollout::command::{Promotion, Until};
use sluice_fleet::rollout::hook::HookReport;
use sluice_fleet::rollout::load::{LoadJudgement, Missing};
use sluice_fleet::rollout::push::{Growth, TypePush};
use sluice_fleet::rollout::report::{End, Note, Outcome, Pin, Reason, StepReport, Verdict};
use sluice_fleet::rollout::tally::Rejection;
use sluice_fleet::rollout::{
    Command, CommandError, Counts, Mode, Plan, PushReport, RolloutReport, RolloutState, Seat, UnitId,
};

impl RolloutsView for FakeView {
    fn rollouts(&self) -> Vec<Arc<RolloutStatus>> {
        self.rollouts.clone()
    }

    /// Push 41 of the plan `edge` is under way, and release 39 is known.
    fn command_plan(&self, order: PlanOrder) -> BoxFuture<'_, Result<ObeyedOrder, OrderRefusal>> {
        let refused = match order.command {
            _ if self.is_ledger_away => Some(CommandError::NoLedger),
            Command::Pin { release: 39, .. } | Command::Abort { push: 41 } | Command::Freeze { .. } => None,
            Command::Bar { push: 41, units } if units == [UnitId(3)] => None,
            Command::Pin { .. } => Some(CommandError::NoSuchRelease),
            Command::Promote { to: Promotion::Step(_), .. } => Some(CommandError::NoSuchStep { steps: 4 }),
            Command::Promote { push: 41, .. } => Some(CommandError::NoStep { reached: 1, steps: 4 }),
            _ => Some(CommandError::AnotherPush(Some(41))),
        };
        let refused = refused.or((order.condemn.len() == 1).then_some(CommandError::NoSuchContent));
        let status = self.rollouts.iter().find(|of| *of.plan.name == order.plan).cloned();
        let answer = refused.map_or(Ok(()), |error| Err(OrderRefusal::Refused(error)));
        let unwritten = self.is_ledger_full.then(|| "no space".into());
        let done = status.map(|after| ObeyedOrder { after, unwritten });
        async move { answer.and(done.ok_or(OrderRefusal::NoSuchPlan)) }.boxed()
    }

    fn init_ledger(&self) -> BoxFuture<'_, Result<(), InitRefusal>> {
        async { if self.is_ledger_away { Err(InitRefusal::Away("gone".into())) } else { Ok(()) } }.boxed()
    }

    fn ledger(&self) -> Option<LedgerStatus> {
        let (place, replica) = ("etcd at etcd-0:2379, prefix /sluice/".to_owned(), "relay-1".into());
        let unwritten = Some("no space".into());
        Some(LedgerStatus { place, replica, fault: None, unwritten, entries: 7, bytes: 1_234 })
    }
}

const LISTENER: &str = "envoy.config.listener.v3.Listener";

/// A plan with a halted push after a finished one, and a plan that has had none.
pub(super) fn some() -> Vec<Arc<RolloutStatus>> {
    let unit = |class: &str| UnitStatus {
        server: "cp-1".into(),
        list: "xds_servers".into(),
        class: ClassStatus { digest: class.into(), fields: Arc::from([]) },
    };
    let units = [(UnitId(3), unit("c0ffee")), (UnitId(4), unit("c1a55"))];
    let status = |name: &str, report, units: &[(UnitId, UnitStatus)]| {
        let plan = Arc::new(Plan::new(name));
        Arc::new(RolloutStatus {
            plan,
            report,
            units: units.iter().cloned().collect(),
            unproved: 0,
            condemned_served: BTreeSet::new(),
            newcomers: JoiningUnits::default(),
            diverged: Vec::new(),
            condemned: questions::condemned(2),
            is_unsaved: false,
            origin: now(),
        })
    };
    let edge = RolloutReport {
        state: RolloutState::Halted,
        push: Some(Arc::new(halted())),
        waiting: vec![UnitId(4)],
        past: vec![Arc::new(finished())],
        ..RolloutReport::default()
    };
    let idle = RolloutReport::default();
    vec![status("edge", edge, &units), status("idle", idle, &[])]
}

fn at(ms: u64) -> Time {
    Time::from_micros(ms * 1_000)
}

fn names(names: &[&str]) -> NameList {
    let mut list = NameList::default();
    names.iter().for_each(|name| list.add(&ResourceName::from(*name)));
    list
}

fn finished() -> PushReport {
    let step = |number, threshold, began, ended| StepReport {
        number,
        threshold,
        began: at(began),
        ended,
        admitted: Counts { accepted: 10, ..Counts::default() },
        load: (number == 1)
            .then(|| LoadJudgement::CannotTell(vec![Missing::Requests { most: 12, needed: 100 }])),
    };
    PushReport {
        number: 40,
        mode: Mode::Observe,
        step_count: 4,
        gathered_from: at(0),
        began: at(1_000),
        state: RolloutState::Settling,
        end: Some(End { at: at(181_000), outcome: Outcome::Finished }),
        units: vec![UnitId(3), UnitId(9)],
        types: vec![TypePush {
            type_url: TypeUrl::of_message(LISTENER),
            added: names(&["new"]),
            changed: names(&["<main>"]),
            removed: names(&[]),
            resources: Growth { before: 2, after: 3 },
            bytes: Growth { before: 2_048, after: 4_096 },
            largest: Some((ResourceName::from("<main>"), Growth { before: 1_000, after: 1_100 })),
        }],
        steps: vec![step(1, 100, 1_000, Some(at(31_000))), step(2, 10_000, 31_000, None)],
        verdict: None,
        notes: vec![Note::NobodyInStep(1)],
        admitted: Counts { accepted: 998, pending: 2, silent: 6, unaffected: 4, ..Counts::default() },
        others: Counts::default(),
        rejections: Vec::new(),
        blamed: Vec::new(),
        condemned: Vec::new(),
        without_evidence: Vec::new(),
        hook: None,
    }
}

fn halted() -> PushReport {
    let suspects = vec![(ResourceName::from("main"), Version(0xbad))];
    let rejection = |stream, node: &str, is_known_rejecter| Rejection {
        stream,
        node: node.into(),
        unit: UnitId(3),
        seat: Seat { bucket: 17, labelled_step: Some(1) },
        type_url: TypeUrl::of_message(LISTENER),
        words: "no such <filter>".into(),
        suspects: suspects.clone(),
        is_known_rejecter,
    };
    let type_url = TypeUrl::of_message(LISTENER);
    let reason = Reason::Rejected { rejected: 2, clients: 12 };
    PushReport {
        number: 41,
        gathered_from: at(200_000),
        began: at(201_000),
        state: RolloutState::Halted,
        end: None,
        steps: finished().steps[..1].to_vec(),
        verdict: Some(Verdict {
            at: at(201_400),
            after: Duration::from_millis(400),
            step: 1,
            clients: 12,
            reason,
        }),
        notes: Vec::new(),
        admitted: Counts { accepted: 10, rejected: 2, rejected_again: 1, ..Counts::default() },
        others: Counts { accepted: 4_988, lost: 3, unjudged: 1, ..Counts::default() },
        rejections: vec![
            rejection(71, "<b>", false),
            rejection(72, "envoy-7", false),
            rejection(73, "old", true),
        ],
        blamed: vec![UnitId(3)],
        condemned: vec![(type_url, ResourceName::from("main"), Version(0xbad))],
        without_evidence: vec![(TypeUrl::of_message(LISTENER), names(&["<b>new"]))],
        hook: Some(HookReport { step: 1, asked: at(2_000), answer: None }),
        ..finished()
    }
}

#[tokio::test]
async fn wav_19_a_plan_tells_its_state_its_clients_and_its_verdict() {
    let admin = Fixture::start(vec![], false);
    let found = admin.get("/rollouts").await.json();
    let [edge, idle] = &found["rollouts"].as_array().unwrap()[..] else { panic!("{found}") };
    let why =
        "would have halted push 41 after 400ms and 12 clients; 4988 more had it: 2 of 12 clients rejected it";
    for (key, value) in [
        ("name", "\"edge\"".to_owned()),
        ("mode", "\"observe\"".to_owned()),
        ("state", "\"halted\"".to_owned()),
        ("push", "41".to_owned()),
        ("step", "1".to_owned()),
        ("steps", "4".to_owned()),
        ("percent", "1.0".to_owned()),
        ("units", "2".to_owned()),
        ("clients", "13".to_owned()),
        ("accepted", "10".to_owned()),
        ("rejected", "2".to_owned()),
        ("rejected_again", "1".to_owned()),
        ("behind_seconds", "0.0".to_owned()),
        ("waiting", "1".to_owned()),
        ("why", format!("{why:?}")),
        ("blamed", "[\"c0ffee\"]".to_owned()),
    ] {
        assert_eq!(edge[key].to_string(), value, "{key}");
    }
    assert_eq!((&edge["others"]["accepted"], &edge["others"]["lost"]), (&4988.into(), &3.into()));
    assert_eq!((&idle["state"], &idle["push"], &idle["why"]), (&"open".into(), &Value::Null, &Value::Null));
    let one = admin.get("/rollouts/edge").await.json();
    assert_eq!(one["why"], *why);
    assert_eq!(one["latest"]["suspects"][0]["rejections"], 3);
    let without_evidence = serde_json::json!([{"type": LISTENER, "names": ["<b>new"], "count": 1}]);
    assert_eq!(one["latest"]["without_evidence"], without_evidence);
    assert_eq!(one["pushes"], serde_json::json!([41, 40]));
    assert_eq!(one["waits"][0]["class"], "c1a55");
    assert!(one["about"].as_str().unwrap().contains("not that the client uses it"));
}

#[tokio::test]
async fn tru_1_a_push_tells_its_way_its_names_and_the_words_of_clients() {
    let admin = Fixture::start(vec![], false);
    let push = admin.get("/rollouts/edge/pushes/40").await.json();
    assert_eq!((&push["outcome"], &push["seconds"]), (&"finished".into(), &180.0.into()));
    assert_eq!(push["began"], "2026-11-19T14:53:21.000Z");
    assert_eq!(push["way"][1]["percent"], 100.0);
    assert_eq!(push["types"][0]["changed"], serde_json::json!(["<main>"]));
    assert_eq!(push["sources"].as_array().unwrap().len(), 1, "a unit that is gone is left out");
    assert_eq!(push["notes"][0], "step 1 had no client that the push affects");
    let push = admin.get("/rollouts/edge/pushes/41").await.json();
    let rejection = &push["rejections"][2];
    assert_eq!((&rejection["node"], &rejection["known_rejecter"]), (&"old".into(), &true.into()));
    assert_eq!((&rejection["bucket"], &rejection["message"]), (&17.into(), &"no such <filter>".into()));
    assert_eq!(push["condemned"][0]["name"], "main");
}

#[tokio::test]
async fn adm_5_plans_and_pushes_come_in_pages() {
    let admin = Fixture::start(vec![], false);
    for (list, key, all) in
        [("/rollouts", "name", ["edge", "idle"]), ("/rollouts/edge/pushes", "push", ["41", "40"])]
    {
        let name = list.rsplit('/').next().unwrap();
        let (mut found, mut after) = (Vec::new(), String::new());
        for page in 0.. {
            let page_of = admin.get(&format!("{list}?limit=1{after}")).await.json();
            assert_eq!(page_of["count"], 1, "{page_of}");
            found.push(page_of[name][0][key].to_string().trim_matches('"').to_owned());
            let Some(next) = page_of["next"].as_str() else { break };
            assert!(page < 2, "{page_of}");
            after = format!("&after={next}");
        }
        assert_eq!(found, all, "{list}");
    }
    for target in [
        "/rollouts?limit=x",
        "/rollouts?state=halted",
        "/rollouts/edge?limit=1",
        "/rollouts/edge/pushes/41?a=1",
    ] {
        assert_eq!(admin.get(target).await.status, 400, "{target}");
    }
}

#[tokio::test]
async fn an_unknown_plan_or_push_is_answered_with_those_that_exist() {
    let admin = Fixture::start(vec![], false);
    for (target, text) in [
        ("/rollouts/egde", "no plan \"egde\"; nearest: edge; plans: edge, idle\n"),
        ("/rollouts/egde/pushes", "no plan \"egde\"; nearest: edge; plans: edge, idle\n"),
        ("/rollouts/edge/pushes/7", "the plan edge does not know push 7: it remembers pushes 40 to 41\n"),
        ("/rollouts/edge/pushes/x", "\"x\" is not the number of a push (like 41)\n"),
        ("/rollouts/idle/pushes/1", "the plan idle has had no push yet\n"),
    ] {
        let answer = admin.get(target).await;
        assert_eq!((answer.status, answer.body.as_str()), (404, text), "{target}");
    }
    let without = Fixture::of_clients(1);
    assert_eq!(without.get("/rollouts").await.json()["count"], 0);
    let answer = without.get("/rollouts/edge").await;
    let text = "no plan \"edge\": the configuration has no `rollouts`\n";
    assert_eq!((answer.status, answer.body.as_str()), (404, text));
}

#[tokio::test]
async fn a_stopped_push_is_a_thing_to_look_at() {
    let admin = Fixture::start(vec![], false);
    let overview = admin.get("/overview").await.json();
    let attention = overview["attention"].as_array().unwrap();
    let found = attention.iter().find(|of| of["see"] == "/rollouts/edge").unwrap();
    assert!(
        found["what"].as_str().unwrap().starts_with("plan edge would have halted push 41 after"),
        "{found}"
    );
    assert_eq!(found["say"], "sluice rollout status edge");
}

#[tokio::test]
async fn pag_1_the_page_of_a_push_shows_who_stopped_it_and_in_which_words() {
    let admin = Fixture::start(vec![], false);
    let list = admin.get("/ui/rollouts").await.body;
    for text in [
        "/ui/rollouts/edge",
        "would have halted push 41",
        " accepted, 3 lost",
        "aria-current=\"page\">Rollouts",
    ] {
        assert!(list.contains(text), "{text}: {list}");
    }
    let page = admin.get("/ui/rollouts/edge").await.body;
    for text in [
        "<blockquote>no such &#60;filter&#62;</blockquote>",
        "3 of them: <a class=\"id\" href=\"/ui/clients/71\">&#60;b&#62;</a>",
        "/ui/resource?type=Listener&#38;name=main",
        "changed since",
        "/ui/rollouts/edge/40",
        "/ui/classes?q=c0ffee",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("<filter>") && !page.contains("<main>"), "{page}");
    let past = admin.get("/ui/rollouts/edge/40").await.body;
    assert!(past.contains("finished") && past.contains("/ui/rollouts/edge/41"), "{past}");
    assert!(admin.get("/ui/rollouts/idle").await.body.contains("No push yet"));
    assert_eq!(admin.get("/ui/rollouts/nobody").await.status, 404);
    assert_eq!(admin.get("/ui/rollouts/edge/99").await.status, 404);
}

#[tokio::test]
async fn pag_1_a_plan_between_two_pushes_has_had_some() {
    let edge = RolloutStatus::clone(&some()[0]);
    let report = RolloutReport { state: RolloutState::Open, push: None, ..edge.report.clone() };
    let rollouts = vec![Arc::new(RolloutStatus { report, ..edge })];
    let view = FakeView { rollouts, ..FakeView::default() };
    let page = Fixture::of(view, AdminSettings::default(), None).get("/ui/rollouts/edge").await.body;
    assert!(page.contains("No push is under way") && !page.contains("No push yet"), "{page}");
}

/// GRD-2: a halt is a line of `/ready`, and the relay is ready.
#[tokio::test]
async fn grd_2_ready_tells_of_plans_that_hold_something_back() {
    let [edge, idle] = [0, 1].map(|index| RolloutStatus::clone(&some()[index]));
    let enforcing = |name: &str| Arc::new(Plan { mode: Mode::Enforce, ..Plan::new(name) });
    let report = RolloutReport {
        behind_from: Some(at(0).into()),
        frozen_until: Some(at(60_000)),
        pin: Some(Pin { release: 39, from: at(0), until: Until::NextPush }),
        barred: vec![UnitId(4)],
        ..edge.report.clone()
    };
    let held = RolloutStatus { plan: enforcing("edge"), report, ..edge.clone() };
    let first = RolloutStatus { plan: enforcing("first"), unproved: 2, ..idle.clone() };
    let at_rest = RolloutStatus { plan: enforcing("at-rest"), ..idle };
    let observing = RolloutStatus { plan: Arc::new(Plan::new("observing")), ..edge };
    let rollouts = [held, first, at_rest, observing].map(Arc::new).to_vec();
    let view = FakeView { rollouts, ..FakeView::default() };
    let admin = Fixture::of(view, AdminSettings::default(), None);
    admin.readiness.advance(State::Ready);
    let ready = admin.get("/ready").await;
    let found = ready.json();
    assert_eq!((ready.status, &found["ready"]), (200, &Value::from(true)));
    let lines = found["rollouts"].as_array().unwrap();
    let plans: Vec<_> = lines.iter().map(|of| of["plan"].as_str().unwrap()).collect();
    assert_eq!(plans, ["edge", "first", "observing"]);
    let text = |key: &str| lines[0][key].to_string();
    assert_eq!((text("state"), text("push"), text("barred")), ("\"halted\"".into(), "41".into(), "1".into()));
    assert!(
        text("why").contains("halted push 41") && lines[0]["behind_seconds"].as_f64() > Some(0.0),
        "{found}"
    );
    assert_eq!(lines[0]["pinned"], serde_json::json!({"release": 39, "until": "next_push"}));
    assert!(text("frozen_until").ends_with("Z\""), "{found}");
    assert_eq!((&lines[1]["state"], &lines[1]["unproved"]), (&Value::from("open"), &Value::from(2)));
    let free = "observes: the freeze of other plans holds none of its pushes back";
    assert_eq!((&lines[2]["why"], &lines[2]["frozen_until"]), (&Value::from(free), &Value::Null));

    let attention = admin.get("/overview").await.json()["attention"].to_string();
    for told in
        ["plan edge serves release 39 to all clients", "plan edge begins no push: frozen", "1 unit: barred"]
    {
        assert!(attention.contains(told), "{told}: {attention}");
    }
    let one = admin.get("/rollouts/edge").await.json();
    assert_eq!((&one["pinned"]["release"], &one["barred"][0]), (&Value::from(39), &Value::from("c1a55")));
}

/// PAG-1: the page of a plan that enforces has the steps to come, the orders in force and those of operators,
/// and who waits.
#[tokio::test]
async fn pag_1_a_plan_that_enforces_shows_what_stands_and_who_stopped_it() {
    let edge = RolloutStatus::clone(&some()[0]);
    let plan = Arc::new(Plan { mode: Mode::Enforce, ..Plan::new("edge") });
    let push = PushReport { mode: Mode::Enforce, ..halted() };
    let report = RolloutReport {
        push: Some(Arc::new(push)),
        frozen_until: Some(at(60_000)),
        pin: Some(Pin { release: 39, from: at(0), until: Until::NextPush }),
        barred: vec![UnitId(4)],
        ..edge.report.clone()
    };
    let rollouts =
        vec![Arc::new(RolloutStatus { plan, report, unproved: 1, diverged: vec![UnitId(4)], ..edge })];
    let view = FakeView { rollouts, ..FakeView::default() };
    let admin = Fixture::of(view, AdminSettings::default(), None);
    assert_eq!(admin.act("POST", "/rollouts/edge/abort?push=41&as=ann&reason=outage").await.status, 200);
    assert_eq!(admin.act("POST", "/rollouts/edge/pause?push=7&as=%3Cb%3E").await.status, 409);
    let page = admin.get("/ui/rollouts/edge").await.body;
    for text in [
        "A client gets the push when a step admits it",
        "Affected clients that are not admitted",
        "to come",
        "100 %",
        "Pinned: all clients are served release 39 until the control plane changes something.",
        "Frozen until ",
        "Unproved: 1 unit ",
        "Diverged: 1 unit that came after the pin",
        "sluice rollout promote edge --push 41<",
        "sluice rollout unfreeze",
        "barred",
        "an operator aborted a push: abort by ann, &#34;outage&#34;; the plan is halted",
        "a command to a plan had no effect: pause by &#60;b&#62;; plan &#34;edge&#34;: push 41 is under way; nothing was done",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("Nothing is held back"), "{page}");
    let place = |text: &str| page.find(text).unwrap();
    assert!(page.contains("class=\"banner bad\""), "{page}");
    assert!(place("What waits behind it") < place("What changed"), "one look: {page}");
    let list = admin.get("/ui/rollouts").await.body;
    assert!(list.contains("enforce") && list.contains("serves release 39 to all clients: pinned"), "{list}");
}

/// WAV-19: a freeze holds nothing of a plan that observes, and the answer, the events and the page say so.
#[tokio::test]
async fn wav_19_a_freeze_names_the_plans_that_only_observe() {
    let [edge, idle] = [0, 1].map(|index| RolloutStatus::clone(&some()[index]));
    let plan = Arc::new(Plan { mode: Mode::Enforce, ..Plan::new("held") });
    let report = RolloutReport { frozen_until: Some(at(60_000)), ..idle.report.clone() };
    let rollouts = [RolloutStatus { plan, report, ..idle }, edge].map(Arc::new).to_vec();
    let admin = Fixture::of(FakeView { rollouts, ..FakeView::default() }, AdminSettings::default(), None);
    let answer = admin.act("POST", "/freeze?for=4h&as=ann&reason=sale").await;
    assert_eq!(answer.json(), serde_json::json!({"plans": ["held"], "observing": ["edge"]}));
    let page = admin.get("/ui/rollouts/edge").await.body;
    for text in [
        "Other plans are frozen. This plan observes: its pushes go on to all clients.",
        "freeze by ann, &#34;sale&#34;; the plan observes: a freeze holds none of its pushes back",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!admin.get("/ui/rollouts/held").await.body.contains("Other plans are frozen"));
}

/// A plan that enforces, in a relay whose ledger is as told.
fn with_ledger(view: FakeView) -> Fixture {
    let [edge, idle] = [0, 1].map(|index| RolloutStatus::clone(&some()[index]));
    let held = |of: RolloutStatus, name: &str| {
        let plan = Arc::new(Plan { mode: Mode::Enforce, ..Plan::new(name) });
        Arc::new(RolloutStatus { plan, ..of })
    };
    let rollouts = vec![held(edge, "edge"), held(idle, "held")];
    Fixture::of(FakeView { rollouts, ..view }, AdminSettings::default(), None)
}

#[tokio::test]
async fn ldg_5_orders_without_the_ledger_are_503() {
    let admin = with_ledger(FakeView { is_ledger_away: true, ..FakeView::default() });
    let orders = ["/freeze?for=4h", "/unfreeze", "/rollouts/edge/pause?push=41", "/rollouts/edge/unpin"];
    for order in orders {
        let answer = admin.act("POST", order).await;
        assert_eq!(answer.status, 503, "{order}: {}", answer.body);
        assert!(answer.body.contains("here=true"), "{}", answer.body);
    }
    let answer = admin.act("POST", "/ledger/init").await;
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert_eq!(answer.body, "the ledger is away, so there is none to believe: gone; nothing was done\n");
    let admin = with_ledger(FakeView::default());
    assert_eq!(admin.act("POST", "/ledger/init").await.status, 200);
}

#[tokio::test]
async fn ldg_5_an_order_that_the_ledger_does_not_take_says_so() {
    let admin = with_ledger(FakeView { is_ledger_full: true, ..FakeView::default() });
    let told = "done at this replica alone: the ledger has not taken it yet: no space. The others follow once it has";
    let answer = admin.act("POST", "/rollouts/edge/abort?push=41").await;
    assert_eq!((answer.status, answer.body), (503, format!("plan \"edge\": {told}\n")));
    let answer = admin.act("POST", "/freeze?for=4h").await;
    let both = format!("plan \"edge\": {told}; plan \"held\": {told}\n");
    assert_eq!((answer.status, answer.body), (503, both));
    // It was carried out.
    let events = admin.get("/events?kind=push").await.body;
    assert!(events.contains("an operator ordered a freeze") && !events.contains("had no effect"), "{events}");
}

/// HIS-5: each command is an event with its push, who gave it and why, and the result.
#[tokio::test]
async fn his_5_a_command_is_an_event() {
    let admin = Fixture::start(vec![], false);
    admin.act("POST", "/rollouts/edge/pin?to=39&until=unpin&as=ann&reason=x").await;
    admin.act("POST", "/rollouts/edge/rollback?push=7").await;
    let events = admin.get("/events?kind=push").await.json();
    let found: Vec<_> = events["events"].as_array().unwrap().iter().collect();
    assert_eq!(found.len(), 2, "{events}");
    let text = |index: usize, key: &str| found[index][key].as_str().unwrap_or_default().to_owned();
    let told = "an operator pinned a release: pin by ann, \"x\"; the plan is halted";
    assert_eq!(
        (text(0, "text"), text(0, "plan"), &found[0]["push"]),
        (told.into(), "edge".into(), &Value::from(41))
    );
    assert_eq!((text(1, "severity"), &found[1]["push"]), ("warn".into(), &Value::from(7)));
    assert!(text(1, "text").contains("rollback by anonymous; "), "{events}");
    assert!(text(1, "text").contains("nothing was done"), "{events}");
}
