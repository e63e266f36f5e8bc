//! Reloads, as the endpoints ask for them.

use serde_json::json;

use super::*;
use crate::admin::reloading::{
    ConfigHistory, GenerationStatus, KeyChange, LastReload, ListenerChanges, Moves, ReloadResult, Reloading,
    Report, Wanted,
};
use sluice_engine::class::NodeClasses;

/// A process with two generations. Answers with one report, and remembers the requests.
pub(super) struct FakeReloads {
    report: Mutex<Report>,
    asked: Mutex<Vec<Wanted>>,
    last: Mutex<Option<LastReload>>,
}

impl Default for FakeReloads {
    fn default() -> FakeReloads {
        let report = Mutex::new(Report::new(ReloadResult::Changed, 2));
        FakeReloads { report, asked: Mutex::default(), last: Mutex::default() }
    }
}

impl FakeReloads {
    /// As after a reload with these faults.
    pub(super) fn fail(&self, faults: &[&str]) {
        *self.last.lock() = Some(LastReload {
            at: SystemTime::UNIX_EPOCH,
            trigger: "watch",
            result: ReloadResult::Invalid,
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
            say: Some("sluice reload --yes".to_owned()),
        });
    }
}

impl Reloading for FakeReloads {
    fn reload(&self, wanted: Wanted) -> BoxFuture<'static, Report> {
        self.asked.lock().push(wanted);
        let report = self.report.lock().clone();
        std::future::ready(report).boxed()
    }

    /// Any text but `broken` has the rules that are built in.
    fn rules_of(&self, text: String) -> BoxFuture<'static, Result<NodeClasses, Vec<String>>> {
        let read = match text.as_str() {
            "broken" => Err(vec!["1:1: no key".to_owned()]),
            _ => Ok(NodeClasses::default()),
        };
        std::future::ready(read).boxed()
    }

    fn status(&self) -> Arc<ConfigHistory> {
        let generation = |number, drain| GenerationStatus {
            number,
            hash: format!("c0ffee0{number}"),
            since: SystemTime::UNIX_EPOCH + Duration::from_secs(number),
            document: Arc::new(
                json!({ "drain": drain, "node_classes": [{ "match": { "cluster": "edge" } }] }),
            ),
            class_places: Arc::new(["12:3".to_owned()]),
        };
        Arc::new(ConfigHistory {
            file: Some("/etc/sluice/sluice.yaml".into()),
            generations: vec![generation(1, "1s"), generation(2, "2s")],
            last_reload: self.last.lock().clone(),
            needs_process: vec!["node", "admin.address"],
        })
    }

    fn difference(&self, from: u64, to: u64) -> Option<Vec<KeyChange>> {
        let value = |number: u64| (1..=2).contains(&number).then(|| format!("{number}s"));
        let (before, after) = (value(from)?, value(to)?);
        let key = "drain".to_owned();
        let change = KeyChange { key, from: Some(before.clone()), to: Some(after.clone()), effect: "live" };
        Some(if before == after { Vec::new() } else { vec![change] })
    }
}

fn post(target: &str, body: &str) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn rel_1_each_request_asks_for_its_configuration() {
    let admin = Fixture::start(vec![], false);
    let text = || Wanted::PlanText("drain: 3s".to_owned());
    for (target, body, wanted) in [
        ("/reload", "", Wanted::File { yes: false }),
        ("/reload?yes=1", "", Wanted::File { yes: true }),
        ("/reload?dry_run=1", "", Wanted::PlanFile),
        ("/reload?dry_run=1", "drain: 3s", text()),
        ("/rollback", "", Wanted::Generation { to: None, yes: false }),
        ("/rollback?to=1&yes=1", "", Wanted::Generation { to: Some(1), yes: true }),
        ("/rollback?to=1&dry_run=1", "", Wanted::PlanGeneration { to: Some(1) }),
    ] {
        let answer = admin.send(&post(target, body)).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.body);
        assert_eq!(admin.reloading.asked.lock().pop(), Some(wanted), "{target}");
    }
    let long = "x".repeat((1 << 20) + 1);
    for (target, body, status) in [
        ("/reload", "drain: 3s", 400),
        ("/reload?now=1", "", 400),
        ("/rollback?to=last", "", 400),
        ("/rollback", "drain: 3s", 413),
        ("/reload?dry_run=1", long.as_str(), 413),
    ] {
        assert_eq!(admin.send(&post(target, body)).await.status, status, "{target}");
    }
    let page = post("/reload", "").replace("\r\n\r\n", "\r\nOrigin: https://evil.example\r\n\r\n");
    assert_eq!(admin.send(&page).await.status, 403);
    assert_eq!(admin.get("/reload").await.status, 405);
    assert!(admin.reloading.asked.lock().is_empty());
}

#[tokio::test]
async fn rel_4_the_status_of_an_answer_is_the_result() {
    let admin = Fixture::start(vec![], false);
    for (result, status) in [
        (ReloadResult::Changed, 200),
        (ReloadResult::Unchanged, 200),
        (ReloadResult::Invalid, 422),
        (ReloadResult::NeedsProcess, 409),
        (ReloadResult::Held, 409),
        (ReloadResult::Failed, 503),
        (ReloadResult::Ending, 503),
    ] {
        let faults = vec!["drain: found nonsense".to_owned()];
        let report = Report { faults, ..Report::new(result, 2) };
        *admin.reloading.report.lock() = report;
        let answer = admin.send(&post("/reload", "")).await;
        assert_eq!((answer.status, &answer.json()["result"]), (status, &json!(result.name())));
    }
}

#[tokio::test]
async fn rel_9_the_configuration_and_the_difference_have_the_shape_of_their_golden_files() {
    let admin = Fixture::start(vec![], false);
    *admin.reloading.last.lock() = Some(LastReload {
        at: SystemTime::UNIX_EPOCH,
        trigger: "watch",
        result: ReloadResult::Held,
        faults: vec!["3 names would go".to_owned()],
        say: Some("sluice reload --yes".to_owned()),
    });
    golden::compare("config", &admin.get("/config?generation=1").await.json());
    assert_eq!(admin.get("/config").await.json()["config"]["drain"], "2s");
    let compared = admin.get("/config?against=1").await.json();
    let change = json!({ "key": "drain", "from": "1s", "to": "2s", "effect": "live" });
    assert_eq!((&compared["against"], &compared["changes"]), (&json!(1), &json!([change])));
    assert_eq!(admin.get("/config?against=3").await.status, 404);
    assert_eq!(admin.get("/config?generation=3").await.status, 404);
    assert_eq!(admin.get("/config?generation=x").await.status, 400);
    let attention = admin.get("/overview").await.json()["attention"][0].clone();
    assert_eq!(attention["what"], "the last reload failed (held): 3 names would go");
    assert_eq!(attention["say"], "sluice reload --yes");

    let list = |name: &str| vec![name.to_owned()];
    *admin.reloading.report.lock() = Report {
        is_plan: true,
        changes: vec![KeyChange {
            key: "drain".to_owned(),
            from: Some("1s".to_owned()),
            to: None,
            effect: "live",
        }],
        listeners: ListenerChanges { added: list("a"), removed: list("b"), moved: list("c") },
        moves: Some(Moves {
            sessions: 10,
            sessions_moved: 1,
            names_gone: 1,
            names: list("Cluster a"),
            ..Moves::default()
        }),
        warnings: list("open to the network"),
        ..Report::new(ReloadResult::Changed, 2)
    };
    golden::compare("reload", &admin.send(&post("/reload?dry_run=1", "")).await.json());
}
