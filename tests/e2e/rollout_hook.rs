//! A web server of the operator has a word before the first step of a push, and at the end of each bake (WAV-20), with the built binary.

use std::cell::RefCell;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::commands::sluice;
use crate::enforced::Fleet;
use crate::rollout_reloads::edit;
use crate::support::net::http_get;
use crate::support::{CDS, EDS};

/// A question that waits for its answer.
pub struct Question {
    pub body: Value,
    answer: oneshot::Sender<(StatusCode, String)>,
}

impl Question {
    pub fn say(self, verdict: &str, reason: &str) {
        let body = json!({ "verdict": verdict, "reason": reason }).to_string();
        self.answer.send((StatusCode::OK, body)).expect("the relay gave the question up");
    }

    fn fail(self) {
        self.answer.send((StatusCode::INTERNAL_SERVER_ERROR, String::new())).unwrap();
    }
}

/// A hook whose answers the test gives.
pub struct Hook {
    url: String,
    questions: RefCell<mpsc::Receiver<Question>>,
}

impl Hook {
    pub async fn start() -> Hook {
        let (sender, questions) = mpsc::channel(10);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/gate", listener.local_addr().unwrap());
        let router = Router::new().route("/gate", post(ask)).with_state(sender);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Hook { url, questions: RefCell::new(questions) }
    }

    pub fn plan(&self, keys: &str) -> String {
        format!(
            "rollouts: [ {{ name: edge, gather: {{ quiet: 100ms, max: 1s }}, steps: [ {{ percent: 50, bake: 1s }} ], \
             final_bake: 1s, hook: {{ url: \"{}\", timeout: 1m }}, {keys} }} ]",
            self.url
        )
    }

    /// The next question, while the clients answer.
    pub async fn asked(&self, fleet: &mut Fleet) -> Question {
        let found = RefCell::new(None);
        let take = || self.questions.borrow_mut().try_recv().ok();
        fleet
            .until("question", |_| {
                *found.borrow_mut() = take();
                found.borrow().is_some()
            })
            .await;
        found.into_inner().unwrap()
    }

    fn is_quiet(&self) -> bool {
        self.questions.borrow_mut().try_recv().is_err()
    }
}

async fn ask(State(sender): State<mpsc::Sender<Question>>, body: String) -> (StatusCode, String) {
    let (answer, answered) = oneshot::channel();
    let body = serde_json::from_str(&body).unwrap();
    sender.send(Question { body, answer }).await.unwrap();
    answered.await.unwrap()
}

/// The URL in a question leads to the content of the push, before any client has it.
async fn candidate_has(question: &Value) {
    let address = question["candidate"].as_str().unwrap().strip_prefix("http://").unwrap();
    let (host, path) = address.split_once('/').unwrap();
    let (status, text) = http_get(host, &format!("/{path}?limit=all")).await.unwrap();
    assert_eq!(status, 200, "{text}");
    let candidate: Value = serde_json::from_str(&text).unwrap();
    let of = |name: &str, kind: &str| {
        let is = |of: &&Value| of["name"] == name && of["type"].as_str().unwrap().ends_with(kind);
        candidate["candidate"]
            .as_array()
            .unwrap()
            .iter()
            .find(is)
            .unwrap_or_else(|| panic!("no {kind} {name}: {text}"))
    };
    assert_eq!(of("a", ".Cluster")["version"], question["changes"][0]["version"]);
    assert!(of("a", ".Cluster")["resource"].is_object() && of("b", ".ClusterLoadAssignment").is_object());
}

#[tokio::test]
async fn wav_20_a_push_goes_on_when_the_hook_says_so_and_back_when_it_says_halt() {
    let hook = Hook::start().await;
    let mut fleet = Fleet::with(|setup| setup, &hook.plan("mode: enforce"), 40).await;
    let before = [("a", "1"), ("b", "1")];
    fleet.origin.set(CDS, "a", "2");
    let first = hook.asked(&mut fleet).await;
    let body = &first.body;
    assert_eq!((&body["plan"], &body["mode"]), (&json!("edge"), &json!("enforce")));
    assert!(body["relay"].as_str().is_some_and(|node| !node.is_empty()), "{body}");
    assert_eq!((&body["push"], &body["step"], &body["steps"]), (&json!(1), &json!(0), &json!(2)));
    assert_eq!((body["changes"].as_array().unwrap().len(), &body["more"]), (1, &json!(0)), "{body}");
    let change = &body["changes"][0];
    assert_eq!((&change["type"], &change["name"]), (&json!("envoy.config.cluster.v3.Cluster"), &json!("a")));
    assert!(
        change["version"].is_string()
            && change["before"].is_string()
            && change["version"] != change["before"]
    );

    candidate_has(body).await;

    // Endpoints flow meanwhile, and nobody has the push.
    fleet.origin.set(EDS, "b", "2");
    fleet.until("endpoints", |fleet| fleet.all_hold(EDS, &[("a", "1"), ("b", "2")])).await;
    assert_eq!(fleet.had(CDS, "a", "2"), 0);
    let status = sluice(&fleet.relay.admin, &["rollout", "status", "edge"]).await;
    assert!(status.out.contains("hook before the first step, asked 20"), "{}", status.out);
    first.say("go", "all green");
    let second = hook.asked(&mut fleet).await;
    assert_eq!((&second.body["step"], &second.body["lost"]), (&json!(1), &json!(0)));
    assert!(second.body["accepted"].as_u64() >= Some(1), "{}", second.body);
    let had = fleet.had(CDS, "a", "2");
    assert_eq!(had, fleet.seated_below(50.0).await);
    second.say("halt", "errors\u{1b}[2J rise");
    fleet.until("the way back", |fleet| fleet.all_hold(CDS, &before)).await;
    let plan = fleet.until_plan("halt", |found| found["state"] == "halted").await;
    assert_eq!(plan["latest"]["hook"]["verdict"], "halt");
    assert!(
        plan["why"].as_str().unwrap().ends_with("the hook halted it: errors [2J rise"),
        "{}",
        plan["why"]
    );
    assert_eq!(fleet.had(CDS, "a", "2"), had, "nobody else was given the push");

    // Another content begins anew, and goes to all with three words.
    fleet.origin.set(CDS, "a", "3");
    for step in 0..3 {
        let next = hook.asked(&mut fleet).await;
        assert_eq!((&next.body["push"], &next.body["step"]), (&json!(2), &json!(step)));
        next.say("go", "");
    }
    fleet.until("everybody", |fleet| fleet.all_hold(CDS, &[("a", "3"), ("b", "1")])).await;
    fleet.until_plan("end", |found| found["state"] == "open").await;
    assert!(hook.is_quiet(), "no further question");
    let (_, metrics) = fleet.relay.get("/metrics").await;
    for line in [r#"plan="edge",result="go"} 4"#, r#"plan="edge",result="halt"} 1"#] {
        let wanted = format!("sluice_rollout_hook_answers_total{{{line}");
        assert!(metrics.contains(&wanted), "{wanted}");
    }
}

#[tokio::test]
async fn wav_20_a_hook_that_fails_moves_nothing_and_an_operator_goes_past_it() {
    let hook = Hook::start().await;
    let mut fleet =
        Fleet::with(|setup| setup, &hook.plan("mode: enforce, halt_on: { patience: 1s }"), 20).await;
    fleet.origin.set(CDS, "a", "2");
    hook.asked(&mut fleet).await.fail();
    let paused = fleet.until_plan("pause", |found| found["state"] == "paused").await;
    let why = "the hook gives no verdict: the answer has the status 500 Internal Server Error; expected 200";
    assert!(paused["why"].as_str().unwrap().ends_with(why), "{}", paused["why"]);
    assert_eq!(fleet.had(CDS, "a", "2"), 0);
    fleet.relay.logged("the hook of a plan gives no verdict").await;
    let promoted = sluice(&fleet.relay.admin, &["rollout", "promote", "edge", "--push", "1", "--all"]).await;
    assert_eq!(promoted.code, 0, "{promoted:?}");
    fleet.until("everybody", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    // The last bake ends with a question, too.
    let last = hook.asked(&mut fleet).await;
    assert_eq!(last.body["step"], 2);
    last.say("go", "");
    fleet.until_plan("end", |found| found["state"] == "open").await;
    let history = sluice(&fleet.relay.admin, &["rollout", "history", "edge"]).await;
    assert!(history.out.contains("finished"), "{}", history.out);
}

#[tokio::test]
async fn wav_20_an_observing_plan_asks_and_holds_nothing_back() {
    let hook = Hook::start().await;
    let mut fleet = Fleet::with(|setup| setup, &hook.plan("mode: observe"), 10).await;
    fleet.origin.set(CDS, "a", "2");
    fleet.until("everybody", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
    let first = hook.asked(&mut fleet).await;
    assert_eq!(first.body["mode"], "observe");
    first.say("halt", "not today");
    let plan = fleet.until_plan("verdict", |found| found["state"] == "halted").await;
    let why = plan["why"].as_str().unwrap();
    assert!(
        why.starts_with("would have halted push 1 before its first client") && why.ends_with("not today"),
        "{why}"
    );
}

/// A question stays open over a reload that changes only the time for its answer.
#[tokio::test]
async fn wav_20_an_answer_counts_although_a_reload_came_after_the_question() {
    let hook = Hook::start().await;
    let mut fleet = Fleet::with(|setup| setup, &hook.plan("mode: enforce"), 10).await;
    fleet.origin.set(CDS, "a", "2");
    let first = hook.asked(&mut fleet).await;
    edit(&fleet.relay, "timeout: 1m", "timeout: 50s");
    let (status, report) = fleet.relay.post("/reload").await;
    assert_eq!(status, 200, "{report}");
    fleet.relay.logged("reloaded the configuration").await;
    first.say("go", "");
    let second = hook.asked(&mut fleet).await;
    assert_eq!((&second.body["push"], &second.body["step"]), (&json!(1), &json!(1)));
}
