//! The shape of each answer (ADM-1): a golden file for each endpoint that reads. Keys are added, never
//! renamed or removed, within a major version: `golden/released.txt` has the keys of the last release, and
//! `golden/order.txt` the order of keys in each object. `SLUICE_GOLDEN=write` writes the files anew, and
//! `SLUICE_GOLDEN=release` the released keys, as a step of a release.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use sluice_admin_api::acts::DrainStatus;
use sluice_admin_api::changes::{Change, ChangeList};
use sluice_admin_api::clients::{Client, ClientWithNames};
use sluice_admin_api::config::{ConfigStatus, ReloadReport};
use sluice_admin_api::endpoints::Area;
use sluice_admin_api::events::EventList;
use sluice_admin_api::learning::LearnProgress;
use sluice_admin_api::loads::{ClassLoad, LoadRow};
use sluice_admin_api::names::{
    ClientDifference, ExplainedNode, Explanation, HeldVersions, TypeVerdicts, Who,
};
use sluice_admin_api::overview::{Overview, ReadyReport};
use sluice_admin_api::proofs::{ClassSplit, Divergence, ProveProgress, Sample};
use sluice_admin_api::resources::{CandidateResource, Resource, ResourceCopies};
use sluice_admin_api::rollouts::{LedgerState, PlanState, Push, WholePlan, WholePush};
use sluice_admin_api::sources::{NodeClass, RefusedClient, Source};
use sluice_admin_api::tail::{TailBegin, TailGap, TailLine};

use super::*;

/// An answer with a golden file.
struct Golden {
    /// The name of the file.
    name: &'static str,
    endpoint: Endpoint,
    /// The request with this answer; empty: another test has it.
    target: &'static str,
    read: fn(Value) -> Result<Value, String>,
}

const fn golden(
    name: &'static str,
    endpoint: Endpoint,
    target: &'static str,
    read: fn(Value) -> Result<Value, String>,
) -> Golden {
    Golden { name, endpoint, target, read }
}

const GOLDEN: [Golden; 36] = [
    golden("ready", Endpoint::Ready, "/ready", answer::<ReadyReport>),
    golden("overview", Endpoint::Overview, "", answer::<Overview>),
    golden("clients", Endpoint::Clients, "/clients?node=node-100", items::<Client>),
    golden("client", Endpoint::Client, "/clients/100?names=1", answer::<ClientWithNames>),
    golden("diff", Endpoint::ClientDiff, "/clients/100/diff?type=Cluster", answer::<ClientDifference>),
    golden(
        "explain",
        Endpoint::ClientExplain,
        "/clients/100/explain?type=Cluster&name=c",
        answer::<Explanation>,
    ),
    golden("who", Endpoint::Who, "/who?type=Cluster&name=c&limit=1", answer::<Who>),
    golden("versions", Endpoint::Versions, "/versions?type=Cluster&name=c", answer::<HeldVersions>),
    golden("standings", Endpoint::Versions, "/versions?type=Cluster", answer::<TypeVerdicts>),
    golden("classes", Endpoint::Classes, "/classes", items::<NodeClass>),
    golden("node", Endpoint::ExplainClass, "/classes/explain", answer::<ExplainedNode>),
    golden("divergences", Endpoint::Divergences, "/classes/divergences", items::<Divergence>),
    golden("samples", Endpoint::Samples, "/classes/c0ffee/samples", items::<Sample>),
    golden("splits", Endpoint::Splits, "/classes/splits", items::<ClassSplit>),
    golden("prove", Endpoint::ProveProgress, "/classes/prove/7", answer::<ProveProgress>),
    golden("learn", Endpoint::LearnProgress, "/classes/learn/7", answer::<LearnProgress>),
    golden("load", Endpoint::Load, "/load?limit=1", items::<LoadRow>),
    golden("load-classes", Endpoint::LoadClasses, "/load/classes", items::<ClassLoad>),
    golden("sources", Endpoint::Sources, "/sources", items::<Source>),
    golden("resources", Endpoint::Resources, "/resources?name=r0", items::<Resource>),
    golden("resource", Endpoint::Resource, "/resources/Cluster/r0", answer::<ResourceCopies>),
    golden("events", Endpoint::Events, "", answer::<EventList>),
    golden("tail", Endpoint::Tail, "", messages),
    golden("changes", Endpoint::Changes, "/changes?limit=1", answer::<ChangeList>),
    golden("change", Endpoint::Change, "/changes/c-3-9", answer::<Change>),
    golden("rollouts", Endpoint::Rollouts, "/rollouts", items::<PlanState>),
    golden("rollout", Endpoint::Rollout, "/rollouts/edge", answer::<WholePlan>),
    golden("pushes", Endpoint::Pushes, "/rollouts/edge/pushes", items::<Push>),
    golden("push", Endpoint::Push, "/rollouts/edge/pushes/40", answer::<WholePush>),
    golden(
        "candidate",
        Endpoint::Candidate,
        "/rollouts/edge/pushes/41/candidate?limit=1",
        items::<CandidateResource>,
    ),
    golden("ledger", Endpoint::Ledger, "/ledger", answer::<LedgerState>),
    golden("refused", Endpoint::Refused, "/refused?limit=1", items::<RefusedClient>),
    golden("drain", Endpoint::Drain, "/drain", answer::<DrainStatus>),
    golden("config", Endpoint::Config, "", answer::<ConfigStatus>),
    golden("reload", Endpoint::Reload, "", answer::<ReloadReport>),
    golden("index", Endpoint::Index, "/", answer::<Value>),
];

/// Reads an answer as its type, and writes it again.
fn answer<T: DeserializeOwned + serde::Serialize>(json: Value) -> Result<Value, String> {
    let answer: T = serde_json::from_value(json).map_err(|error| error.to_string())?;
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

/// The same with the items of a list.
fn items<T: DeserializeOwned + serde::Serialize + sluice_admin_api::lists::Listed>(
    mut json: Value,
) -> Result<Value, String> {
    if let Some(items) = json.get_mut(T::KEY) {
        *items = answer::<Vec<T>>(items.take())?;
    }
    Ok(json)
}

/// The same with the messages of a tail.
fn messages(mut json: Value) -> Result<Value, String> {
    for message in json.as_array_mut().into_iter().flatten() {
        let json = message.take();
        *message = match json {
            begin if begin.get("streams").is_some() => answer::<TailBegin>(begin)?,
            gap if gap.get("left_out").is_some() => answer::<TailGap>(gap)?,
            line if line.get("kind").is_some() => answer::<TailLine>(line)?,
            end => end,
        };
    }
    Ok(json)
}

/// Whether the endpoint answers JSON and changes nothing. Client status has the shape of xDS.
fn reads(endpoint: Endpoint) -> bool {
    let is_elsewhere = matches!(
        endpoint,
        Endpoint::Healthz
            | Endpoint::Metrics
            | Endpoint::ClientStatus
            | Endpoint::FetchClientStatus
            | Endpoint::StreamClientStatus
            | Endpoint::Page
            | Endpoint::PageRoot
            | Endpoint::PageBelow
            | Endpoint::PageAsset
    );
    endpoint.line().area != Area::Act && !is_elsewhere
}

#[test]
fn adm_1_each_endpoint_that_reads_has_a_golden_file() {
    for endpoint in Endpoint::ALL.iter().copied().filter(|endpoint| reads(*endpoint)) {
        let mut files = GOLDEN.iter().filter(|golden| golden.endpoint == endpoint).peekable();
        assert!(files.peek().is_some(), "{endpoint} has no golden file");
        for golden in files {
            assert!(
                golden.target.is_empty() || endpoint.matches(endpoint.line().method, path(golden.target))
            );
            assert!(file(golden.name).exists(), "{}", golden.name);
        }
    }
}

fn path(target: &str) -> &str {
    target.split('?').next().unwrap()
}

async fn ask(admin: &Fixture, golden: &Golden) -> Answer {
    match golden.endpoint.line().method {
        "POST" => {
            let body = r#"{"id": "a", "cluster": "web"}"#;
            let head = format!("POST {} HTTP/1.1\r\nHost: localhost", golden.target);
            let length = body.len();
            admin
                .send(&format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"))
                .await
        }
        _ => admin.get(golden.target).await,
    }
}

#[tokio::test]
async fn adm_1_answers_have_the_shape_of_their_golden_files() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    admin.readiness.advance(State::Ready);
    for golden in GOLDEN.iter().filter(|golden| !golden.target.is_empty()) {
        let answer = ask(&admin, golden).await;
        let mut json = match golden.endpoint {
            Endpoint::Index => answer.body.lines().map(Value::from).collect(),
            _ => answer.json(),
        };
        // The age by the wall clock.
        for copy in json.get_mut("copies").and_then(Value::as_array_mut).into_iter().flatten() {
            assert!(copy["received_seconds"].take().as_f64().is_some());
        }
        compare(golden.name, &json);
    }
}

fn file(name: &str) -> PathBuf {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/tests/golden");
    folder.join(if name.contains('.') { name.to_owned() } else { format!("{name}.json") })
}

/// Compares an answer with its golden file.
pub(super) fn compare(name: &str, json: &Value) {
    compare_text(name, &(serde_json::to_string_pretty(json).unwrap() + "\n"));
}

fn compare_text(name: &str, text: &str) {
    if std::env::var("SLUICE_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(file(name), text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(file(name)).unwrap_or_default(), "{name}");
}

/// A JSON value with the order of its keys.
enum Ordered {
    Object(Vec<(String, Ordered)>),
    Array(Vec<Ordered>),
    Leaf,
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ordered, D::Error> {
        struct Order;
        impl<'de> Visitor<'de> for Order {
            type Value = Ordered;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Ordered::Object(members))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Ordered, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Ordered::Array(items))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Ordered, E> {
                Ok(Ordered::Leaf)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Ordered, E> {
                Ok(Ordered::Leaf)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Ordered, E> {
                Ok(Ordered::Leaf)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Ordered, E> {
                Ok(Ordered::Leaf)
            }
            fn visit_str<E>(self, _: &str) -> Result<Ordered, E> {
                Ok(Ordered::Leaf)
            }
            fn visit_unit<E>(self) -> Result<Ordered, E> {
                Ok(Ordered::Leaf)
            }
        }
        deserializer.deserialize_any(Order)
    }
}

/// A line for each object with other keys than those before: the way to it, and its keys.
fn key_order(value: &Ordered, way: &str, lines: &mut Vec<String>) {
    match value {
        Ordered::Object(members) => {
            let keys: Vec<_> = members.iter().map(|(key, _)| key.as_str()).collect();
            let line = format!("{way}: {}", keys.join(" "));
            if !lines.contains(&line) {
                lines.push(line);
            }
            members.iter().for_each(|(key, value)| key_order(value, &format!("{way}.{key}"), lines));
        }
        Ordered::Array(items) => items.iter().for_each(|item| key_order(item, &format!("{way}[]"), lines)),
        Ordered::Leaf => {}
    }
}

/// Tools that compare texts see the order of keys.
#[tokio::test]
async fn adm_1_the_keys_of_answers_keep_their_order() {
    let admin = Fixture::start(vec![source("cp-1", SourceState::Connected, false)], false);
    admin.readiness.advance(State::Ready);
    let mut lines = Vec::new();
    let further = [
        "/overview",
        "/config?against=1",
        "/resources?name=r0&limit=all",
        "/clients?limit=2",
        "/rollouts/idle",
    ];
    for golden in GOLDEN.iter().filter(|golden| golden.target.starts_with('/') && golden.target != "/") {
        let answer = ask(&admin, golden).await;
        key_order(&serde_json::from_str(&answer.body).unwrap(), golden.name, &mut lines);
    }
    for target in further {
        let answer = admin.get(target).await;
        key_order(&serde_json::from_str(&answer.body).unwrap(), target, &mut lines);
    }
    for target in ["POST /log ", "POST /drain ", "POST /clients/7/end "] {
        let answer = admin.send(&get_request("/").replacen("GET / ", target, 1)).await;
        key_order(&serde_json::from_str(&answer.body).unwrap(), target.trim(), &mut lines);
    }
    compare_text("order.txt", &(lines.join("\n") + "\n"));
}

/// The texts and numbers that golden files have as null, because they differ from run to run.
const MASKED: [(&str, &str, &str); 5] = [
    ("overview", "/version", "text"),
    ("overview", "/started", "text"),
    ("overview", "/config/loaded", "text"),
    ("overview", "/uptime_seconds", ""),
    ("events", "/events/*/age_seconds", ""),
];

/// The answer of a golden file.
fn golden_json(golden: &Golden) -> Value {
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(file(golden.name)).unwrap()).unwrap();
    for (_, way, text) in MASKED.into_iter().filter(|(name, ..)| *name == golden.name) {
        for index in 0..10 {
            if let Some(value) = json.pointer_mut(&way.replace('*', &index.to_string())) {
                *value = if text.is_empty() { 1.5.into() } else { text.into() };
            }
        }
    }
    json
}

/// ADR 87: every key of an answer is a field.
#[test]
fn adm_1_the_types_have_all_keys_of_the_answers() {
    for golden in GOLDEN {
        let json = golden_json(&golden);
        assert_eq!((golden.read)(json.clone()).as_ref(), Ok(&json), "{}", golden.name);
    }
}

/// The ways to all objects within a value.
fn objects(value: &Value, way: &str, ways: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            ways.push(way.to_owned());
            members.iter().for_each(|(key, value)| objects(value, &format!("{way}/{key}"), ways));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, &format!("{way}/{index}"), ways);
            }
        }
        _ => {}
    }
}

/// The keys that identify an item: a command asks further questions with them.
const IDENTITIES: [(&str, &str); 5] =
    [("clients", "id"), ("client", "id"), ("changes", "id"), ("change", "id"), ("reload", "result")];

/// The objects with texts of clients as keys. A further key is a further text, and no novelty of another
/// version.
const MAPS: [&str; 1] = ["/user_agents"];

/// ADR 87: an older relay lacks keys, and a newer one has more.
#[test]
fn adm_1_the_answers_of_other_versions_are_read() {
    for golden in GOLDEN {
        let json = golden_json(&golden);
        let mut ways = Vec::new();
        objects(&json, "", &mut ways);
        for way in ways {
            let keys: Vec<String> =
                json.pointer(&way).unwrap().as_object().unwrap().keys().cloned().collect();
            for key in keys {
                let mut older = json.clone();
                older.pointer_mut(&way).unwrap().as_object_mut().unwrap().remove(&key);
                let is_identity = IDENTITIES.contains(&(golden.name, &key)) && !way.contains("rejections");
                let read = (golden.read)(older);
                assert_eq!(read.is_err(), is_identity, "{} without {way}/{key}: {read:?}", golden.name);
            }
            if MAPS.iter().any(|map| way.ends_with(map)) {
                continue;
            }
            let mut newer = json.clone();
            newer.pointer_mut(&way).unwrap()["novel"] = serde_json::json!({ "key": [1] });
            let read = (golden.read)(newer);
            assert!(read.is_ok(), "{} with {way}/novel: {read:?}", golden.name);
        }
    }
}

/// The keys of an answer, each with the way to it. All items of a list count as one.
fn keys(value: &Value, way: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let way = format!("{way}.{key}");
                keys(value, &way, all);
                all.insert(way);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, &format!("{way}[]"), all)),
        _ => {}
    }
}

/// The released keys that the answers of today lack.
fn lost(released: &str, today: &BTreeSet<String>) -> Vec<String> {
    let lines = released.lines().filter(|line| !line.starts_with('#'));
    lines.filter(|key| !today.contains(*key)).map(str::to_owned).collect()
}

#[test]
fn adm_1_no_key_of_the_last_release_is_lost() {
    let folder = file("released.txt").parent().unwrap().to_owned();
    let mut today = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "json") {
            let answer = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            keys(&answer, path.file_stem().unwrap().to_str().unwrap(), &mut today);
        }
    }
    let released = file("released.txt");
    if std::env::var("SLUICE_GOLDEN").is_ok_and(|value| value == "release") {
        let head =
            "# The keys of the answers of the last release. None may be lost within a major version.\n";
        let keys: Vec<_> = today.iter().map(String::as_str).collect();
        std::fs::write(&released, head.to_owned() + &keys.join("\n") + "\n").unwrap();
    }
    let released = std::fs::read_to_string(released).unwrap();
    assert!(released.lines().count() > 100, "{released}");
    assert_eq!(lost(&released, &today), Vec::<String>::new());
    // A key that is gone, or has another name, is seen.
    let renamed = today.iter().filter(|key| *key != "overview.clients.streams").cloned().collect();
    assert_eq!(lost(&released, &renamed), ["overview.clients.streams"]);
}
