//! A scripted API server of Kubernetes with ConfigMaps and Leases of one namespace. What it does is taken from the documentation of
//! the Kubernetes API: versions, conflicts, preconditions, selectors, pages, watches, bookmarks, 410, 429, and the removal of
//! objects whose owner is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, Response};
use axum::routing::any;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub const NAMESPACE: &str = "infra";

/// A running server. Its state outlives a restart.
pub struct Cluster {
    port: u16,
    shared: Arc<Shared>,
    /// `None`: the server is down, and all connections are gone.
    runtime: Option<Runtime>,
}

struct Shared {
    objects: Mutex<Objects>,
    /// Counts all changes, so that watches look again.
    turn: watch::Sender<u64>,
}

type Parameters = BTreeMap<String, String>;

/// A refusal: the status, the message, and the seconds of a `Retry-After`.
pub type Fault = (u16, String, Option<u64>);

#[derive(Default)]
pub struct Objects {
    pub version: u64,
    uids: u64,
    has_namespace: bool,
    /// By plural and name.
    pub all: BTreeMap<(String, String), Value>,
    /// Version, plural and event of each change.
    log: Vec<(u64, String, Value)>,
    /// Older versions are gone.
    oldest: u64,
    /// The answers of requests with this verb and plural, as `create configmaps`.
    pub faults: BTreeMap<String, Fault>,
    /// Watches of these plurals send nothing.
    pub deaf: BTreeSet<String>,
    /// Requests wait.
    is_frozen: bool,
    /// Empty: each is taken.
    pub tokens: BTreeSet<String>,
    /// Watches of a lower number end.
    cut: u64,
    pub bookmarks: Option<Duration>,
    /// The requests: verb, plural and name, and the token.
    pub asked: Vec<(String, String)>,
}

impl Cluster {
    pub fn start() -> Cluster {
        let objects = Objects { version: 100, has_namespace: true, ..Objects::default() };
        let shared = Arc::new(Shared { objects: Mutex::new(objects), turn: watch::Sender::new(0) });
        let mut cluster = Cluster { port: 0, shared, runtime: None };
        cluster.up();
        cluster
    }

    /// Listens, at the port of before if there is one.
    pub fn up(&mut self) {
        let listener = std::net::TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.port = listener.local_addr().unwrap().port();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let router = Router::new().fallback(any(answer)).with_state(self.shared.clone());
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await
        });
        self.runtime = Some(runtime);
    }

    /// Ends the server with all connections.
    pub fn down(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Writes a file of `kubectl` for this server, with the token in a file of its own.
    pub fn kubeconfig(&self, directory: &Path, token: &str) -> PathBuf {
        let (file, token_file) = (directory.join("kubeconfig"), directory.join("token"));
        fs::write(&token_file, token).unwrap();
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{}", self.port) } }],
            "users": [{ "name": "test", "user": { "tokenFile": token_file } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": NAMESPACE } }],
        });
        fs::write(&file, text.to_string()).unwrap();
        file
    }

    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.shared.objects.lock().unwrap()
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut Objects) -> T) -> T {
        let result = change(&mut self.objects());
        self.shared.turn.send_modify(|turn| *turn += 1);
        result
    }

    /// The names of all objects of a kind.
    pub fn names(&self, plural: &str) -> Vec<String> {
        self.objects().all.keys().filter(|(of, _)| of == plural).map(|(_, name)| name.clone()).collect()
    }

    /// The ConfigMap of an entry, if there is one.
    pub fn entry(&self, key: &str) -> Option<Value> {
        self.objects().all.values().find(|object| object["data"]["key"] == *key).cloned()
    }

    /// Deletes the ConfigMap of an entry, as a person does.
    pub fn forget(&self, key: &str) {
        let name = self.entry(key).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
        self.change(|objects| objects.remove("configmaps", &name));
    }

    /// Changes a ConfigMap of the ledger, or makes one.
    pub fn put_map(&self, name: &str, data: Value) {
        let labels = json!({ "sluice/ledger": "sluice" });
        let map = json!({ "metadata": { "name": name, "labels": labels }, "data": data });
        self.change(|objects| objects.store("configmaps", name, map));
    }

    /// Takes the label from an object of the ledger. Watches by the label see a deletion.
    pub fn unlabel(&self, plural: &str, name: &str) {
        self.change(|objects| {
            let place = (plural.to_owned(), name.to_owned());
            let mut bare = objects.all[&place].clone();
            objects.remove(plural, name);
            bare["metadata"]["labels"] = json!({});
            bare["metadata"]["resourceVersion"] = json!(objects.version.to_string());
            objects.all.insert(place, bare);
        });
    }

    /// Puts the label back. Watches by the label see an addition.
    pub fn label(&self, plural: &str, name: &str) {
        let mut object = self.objects().all[&(plural.to_owned(), name.to_owned())].clone();
        object["metadata"]["labels"] = json!({ "sluice/ledger": "sluice" });
        self.change(|objects| objects.store(plural, name, object));
    }

    /// Ends all watches.
    pub fn cut(&self) {
        self.change(|objects| objects.cut += 1);
    }

    /// Forgets all former versions: their watches get 410.
    pub fn compact(&self) {
        self.change(|objects| {
            objects.version += 1;
            objects.oldest = objects.version;
            objects.log.clear();
        });
    }

    pub fn freeze(&self, is_frozen: bool) {
        self.change(|objects| objects.is_frozen = is_frozen);
    }

    pub fn refuse(&self, what: &str, fault: Fault) {
        self.change(|objects| objects.faults.insert(what.to_owned(), fault));
    }

    pub fn allow(&self) {
        self.change(|objects| objects.faults.clear());
    }

    pub fn delete_namespace(&self) {
        self.change(|objects| {
            for (plural, name) in objects.all.keys().cloned().collect::<Vec<_>>() {
                objects.remove(&plural, &name);
            }
            objects.has_namespace = false;
        });
    }

    pub fn create_namespace(&self) {
        self.change(|objects| objects.has_namespace = true);
    }

    /// The number of requests of this verb and kind so far.
    pub fn asked(&self, what: &str) -> usize {
        self.objects().asked.iter().filter(|(asked, _)| asked.starts_with(what)).count()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.down();
    }
}

impl Objects {
    /// Stores an object as given, and tells the watches.
    fn store(&mut self, plural: &str, name: &str, mut object: Value) -> Value {
        let key = (plural.to_owned(), name.to_owned());
        let before = self.all.get(&key);
        self.version += 1;
        let uid = match before {
            Some(before) => before["metadata"]["uid"].clone(),
            None => {
                self.uids += 1;
                json!(format!("uid-{}", self.uids))
            }
        };
        object["metadata"]["uid"] = uid;
        object["metadata"]["namespace"] = json!(NAMESPACE);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.log.push((self.version, plural.to_owned(), json!({ "type": kind, "object": object })));
        self.all.insert(key, object.clone());
        object
    }

    pub fn remove(&mut self, plural: &str, name: &str) {
        let Some(mut object) = self.all.remove(&(plural.to_owned(), name.to_owned())) else { return };
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log.push((self.version, plural.to_owned(), json!({ "type": "DELETED", "object": object })));
        // The garbage collector of a cluster.
        let is_owned = |other: &Value| {
            let owners = other["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == object["metadata"]["uid"]))
        };
        let owned: Vec<_> =
            self.all.iter().filter(|(_, other)| is_owned(other)).map(|(key, _)| key.clone()).collect();
        owned.into_iter().for_each(|(plural, name)| self.remove(&plural, &name));
    }

    fn write(&mut self, method: &Method, plural: &str, name: &str, body: &Value) -> Response<Body> {
        let key = (plural.to_owned(), name.to_owned());
        let before = self.all.get(&key).cloned();
        if *method == Method::POST {
            let name = body["metadata"]["name"].as_str().unwrap();
            if !self.has_namespace {
                return status(404, &format!("namespaces \"{NAMESPACE}\" not found"), None);
            }
            if self.all.contains_key(&(plural.to_owned(), name.to_owned())) {
                return status(409, &format!("{plural} \"{name}\" already exists"), None);
            }
            return done(201, &self.store(plural, name, body.clone()));
        }
        let Some(before) = before else {
            return status(404, &format!("{plural} \"{name}\" not found"), None);
        };
        let is_same = |wanted: &Value, field: &str| {
            wanted[field].is_null() || wanted[field] == before["metadata"][field]
        };
        let conflict = "Operation cannot be fulfilled: the object has been modified";
        if *method == Method::DELETE {
            let wanted = &body["preconditions"];
            if !is_same(wanted, "uid") || !is_same(wanted, "resourceVersion") {
                return status(409, conflict, None);
            }
            self.remove(plural, name);
            return done(200, &json!({ "kind": "Status", "status": "Success", "details": { "name": name } }));
        }
        if !is_same(&body["metadata"], "uid") {
            return status(422, "metadata.uid: Invalid value: field is immutable", None);
        }
        if *method == Method::PUT && !is_same(&body["metadata"], "resourceVersion") {
            return status(409, conflict, None);
        }
        let mut after = if *method == Method::PUT { body.clone() } else { before.clone() };
        if *method == Method::PATCH {
            merge(&mut after, body);
        }
        for field in ["uid", "namespace", "resourceVersion"] {
            after["metadata"][field] = before["metadata"][field].clone();
        }
        // A write without a change is none.
        if after == before { done(200, &before) } else { done(200, &self.store(plural, name, after)) }
    }

    fn list(&self, plural: &str, query: &Parameters) -> Response<Body> {
        let limit: usize = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let start: usize = query.get("continue").map_or(0, |start| start.parse().unwrap());
        let all: Vec<&Value> =
            self.all.iter().filter(|((of, _), _)| of == plural).map(|(_, object)| object).collect();
        let all: Vec<&Value> = all.into_iter().filter(|object| is_selected(object, query)).collect();
        let page: Vec<&Value> = all.iter().skip(start).take(limit).copied().collect();
        let next = start + page.len();
        let next = if next < all.len() { next.to_string() } else { String::new() };
        let metadata = json!({ "resourceVersion": self.version.to_string(), "continue": next });
        done(200, &json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": page }))
    }
}

fn merge(target: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| merge(&mut target[key], value)),
        value => *target = value.clone(),
    }
}

fn is_selected(object: &Value, query: &Parameters) -> bool {
    query.get("labelSelector").is_none_or(|selector| {
        let (key, value) = selector.split_once('=').unwrap();
        object["metadata"]["labels"][key] == *value
    })
}

fn done(code: u16, object: &Value) -> Response<Body> {
    let answer = Response::builder().status(code).header("content-type", "application/json");
    answer.body(object.to_string().into()).unwrap()
}

fn status(code: u16, message: &str, retry_after: Option<u64>) -> Response<Body> {
    let mut answer = Response::builder().status(code).header("content-type", "application/json");
    if let Some(seconds) = retry_after {
        answer = answer.header("retry-after", seconds.to_string());
    }
    let text = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message });
    answer.body(text.to_string().into()).unwrap()
}

/// `/api/v1/namespaces/NAMESPACE/PLURAL[/NAME]`, or the same with another group.
fn parts(path: &str) -> Option<(String, String)> {
    let rest =
        path.strip_prefix("/api/v1/").or_else(|| path.strip_prefix("/apis/coordination.k8s.io/v1/"))?;
    let rest = rest.strip_prefix(&format!("namespaces/{NAMESPACE}/"))?;
    let (plural, name) = rest.split_once('/').unwrap_or((rest, ""));
    Some((plural.to_owned(), name.to_owned()))
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: axum::http::Uri,
    Query(query): Query<Parameters>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let mut turn = shared.turn.subscribe();
    while shared.objects.lock().unwrap().is_frozen {
        let _ = turn.changed().await;
    }
    let Some((plural, name)) = parts(uri.path()) else {
        return status(404, "the server could not find the requested resource", None);
    };
    let verb = match (method.as_str(), name.is_empty()) {
        ("GET", true) if query.contains_key("watch") => "watch",
        ("GET", true) => "list",
        ("GET", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        _ => "delete",
    };
    let token = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let token = token.unwrap_or_default().to_owned();
    let mut objects = shared.objects.lock().unwrap();
    objects.asked.push((format!("{verb} {plural} {name}"), token.clone()));
    if !objects.tokens.is_empty() && !objects.tokens.contains(&token) {
        return status(401, "Unauthorized", None);
    }
    if let Some((code, message, retry_after)) = objects.faults.get(&format!("{verb} {plural}")) {
        return status(*code, message, *retry_after);
    }
    let (answer, events) = match verb {
        "watch" => {
            let from: u64 = query["resourceVersion"].parse().unwrap();
            if from < objects.oldest {
                return status(410, "too old resource version", None);
            }
            let watch =
                Watching { shared: shared.clone(), plural, query, sent: from, cut: objects.cut, turn };
            return Response::new(Body::from_stream(stream::unfold(watch, next_line)));
        }
        "list" => (objects.list(&plural, &query), false),
        "get" => match objects.all.get(&(plural.clone(), name.clone())) {
            Some(object) => (done(200, object), false),
            None => (status(404, &format!("{plural} \"{name}\" not found"), None), false),
        },
        _ => {
            let body = serde_json::from_slice(&body).unwrap_or_default();
            (objects.write(&method, &plural, &name, &body), true)
        }
    };
    drop(objects);
    if events {
        shared.turn.send_modify(|turn| *turn += 1);
    }
    answer
}

struct Watching {
    shared: Arc<Shared>,
    plural: String,
    query: Parameters,
    /// The version of the last line.
    sent: u64,
    cut: u64,
    turn: watch::Receiver<u64>,
}

async fn next_line(mut watch: Watching) -> Option<(Result<String, Infallible>, Watching)> {
    loop {
        watch.turn.mark_unchanged();
        let (interval, version) = {
            let objects = watch.shared.objects.lock().unwrap();
            if watch.cut != objects.cut || watch.sent == u64::MAX {
                return None;
            }
            let is_mute = objects.is_frozen || objects.deaf.contains(&watch.plural);
            if watch.sent < objects.oldest && !is_mute {
                let gone = json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "message": "too old" } });
                drop(objects);
                watch.sent = u64::MAX;
                return Some((Ok(format!("{gone}\n")), watch));
            }
            let next = objects.log.iter().find(|(version, of, event)| {
                *version > watch.sent && *of == watch.plural && is_selected(&event["object"], &watch.query)
            });
            if let (Some((version, _, event)), false) = (next, is_mute) {
                let (version, line) = (*version, format!("{event}\n"));
                drop(objects);
                watch.sent = version;
                return Some((Ok(line), watch));
            }
            (objects.bookmarks.filter(|_| !is_mute).unwrap_or(Duration::from_secs(3600)), objects.version)
        };
        if tokio::time::timeout(interval, watch.turn.changed()).await.is_err() {
            watch.sent = version;
            let mark = json!({ "type": "BOOKMARK", "object": {
                "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "resourceVersion": version.to_string() } } });
            return Some((Ok(format!("{mark}\n")), watch));
        }
    }
}
