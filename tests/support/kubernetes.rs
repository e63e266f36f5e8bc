//! An API server of Kubernetes with Pods and Nodes, as far as a list and a watch need one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path as Segment, Query, State};
use axum::http::{HeaderMap, Response};
use axum::routing::get;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A running server. It ends with the test.
#[derive(Clone)]
pub struct Api(Arc<Shared>);

struct Shared {
    port: u16,
    inner: Mutex<Inner>,
    /// Counts all changes, so that watches look again.
    turn: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    objects: BTreeMap<(String, String), Value>,
    /// Version, plural and event of each change.
    log: Vec<(u64, String, Value)>,
    /// Older versions are gone.
    oldest: u64,
    /// Plurals whose requests get this status and message.
    refused: BTreeMap<String, (u16, String)>,
    token: Option<String>,
    /// Requests wait, and watches send nothing.
    is_frozen: bool,
    /// Watches of a lower number end.
    cut: u64,
    bookmarks: Option<Duration>,
    ends_watches: bool,
    list_version: Option<String>,
    /// The requests: plural and query.
    asked: Vec<String>,
}

impl Api {
    pub async fn start() -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Mutex::new(Inner { version: 100, ..Inner::default() });
        let api = Api(Arc::new(Shared { port, inner, turn: watch::Sender::new(0) }));
        let router = Router::new().route("/api/v1/{plural}", get(answer)).with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        api
    }

    /// Writes a file of `kubectl` for this server.
    pub fn kubeconfig(&self, directory: &Path, token: &str) -> PathBuf {
        let file = directory.join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{}", self.0.port) } }],
            "users": [{ "name": "test", "user": { "token": token } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        fs::write(&file, text.to_string()).unwrap();
        file
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = change(&mut self.inner());
        self.0.turn.send_modify(|turn| *turn += 1);
        result
    }

    /// A Pod in the namespace `prod`.
    pub fn pod(&self, name: &str, address: &str, node: &str, labels: &[(&str, &str)]) {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        self.put(
            "pods",
            json!({
                "metadata": { "name": name, "namespace": "prod", "labels": labels },
                "spec": { "nodeName": node, "serviceAccountName": "web",
                          "containers": [{ "env": [{ "name": "PASSWORD", "value": "hidden-text" }] }] },
                "status": { "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] },
            }),
        );
    }

    pub fn node(&self, name: &str, zone: &str) {
        let labels = json!({ "topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": zone });
        self.put("nodes", json!({ "metadata": { "name": name, "labels": labels } }));
    }

    pub fn put(&self, plural: &str, mut object: Value) {
        self.change(|inner| {
            inner.version += 1;
            object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let former = inner.objects.insert((plural.to_owned(), name), object.clone());
            let kind = if former.is_some() { "MODIFIED" } else { "ADDED" };
            inner.log.push((inner.version, plural.to_owned(), json!({ "type": kind, "object": object })));
        });
    }

    pub fn remove(&self, plural: &str, name: &str) {
        self.change(|inner| {
            inner.version += 1;
            let mut object = inner.objects.remove(&(plural.to_owned(), name.to_owned())).unwrap();
            object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
            inner.log.push((
                inner.version,
                plural.to_owned(),
                json!({ "type": "DELETED", "object": object }),
            ));
        });
    }

    /// Ends all watches.
    pub fn cut(&self) {
        self.change(|inner| inner.cut += 1);
    }

    /// Forgets all former versions: their watches get 410.
    pub fn forget(&self) {
        self.change(|inner| {
            inner.version += 1;
            inner.oldest = inner.version;
            inner.log.clear();
        });
    }

    /// Another state without a word to watches, as after a restore: a Pod is gone, and versions begin anew.
    pub fn restore_without(&self, pod: &str) {
        self.change(|inner| {
            inner.objects.remove(&("pods".to_owned(), pod.to_owned())).unwrap();
            inner.version = 10;
            inner.log.clear();
        });
    }

    /// Ends each watch at once.
    pub fn end_watches(&self, ends: bool) {
        self.change(|inner| inner.ends_watches = ends);
        self.cut();
    }

    /// Lists have this version.
    pub fn list_version(&self, version: &str) {
        self.change(|inner| inner.list_version = Some(version.to_owned()));
    }

    /// Answers requests for a plural with a status from now on.
    pub fn refuse(&self, plural: &str, status: u16, message: &str) {
        self.change(|inner| inner.refused.insert(plural.to_owned(), (status, message.to_owned())));
        self.cut();
    }

    pub fn allow(&self, plural: &str) {
        self.change(|inner| inner.refused.remove(plural));
    }

    /// Accepts this token alone.
    pub fn accept_only(&self, token: &str) {
        self.change(|inner| inner.token = Some(token.to_owned()));
        self.cut();
    }

    pub fn freeze(&self, is_frozen: bool) {
        self.change(|inner| inner.is_frozen = is_frozen);
    }

    pub fn bookmarks(&self, interval: Duration) {
        self.change(|inner| inner.bookmarks = Some(interval));
        self.cut();
    }

    pub fn version(&self) -> u64 {
        self.inner().version
    }

    /// The requests so far: plural and query.
    pub fn asked(&self) -> Vec<String> {
        self.inner().asked.clone()
    }
}

fn status(code: u16, message: &str) -> Response<Body> {
    let text = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message });
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(text.to_string().into())
        .unwrap()
}

async fn answer(
    State(api): State<Api>,
    Segment(plural): Segment<String>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response<Body> {
    let mut turn = api.0.turn.subscribe();
    while api.inner().is_frozen {
        let _ = turn.changed().await;
    }
    let words: Vec<String> = query.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut inner = api.inner();
    inner.asked.push(format!("{plural} {}", words.join(" ")));
    let token = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if inner.token.is_some() && inner.token.as_deref() != token {
        return status(401, "Unauthorized");
    }
    if let Some((code, message)) = inner.refused.get(&plural) {
        return status(*code, message);
    }
    if query.contains_key("watch") {
        let from: u64 = query["resourceVersion"].parse().unwrap();
        if from < inner.oldest {
            return status(410, "too old resource version");
        }
        let watch = Watch { api: api.clone(), plural, sent: from, cut: inner.cut, turn };
        drop(inner);
        return Response::new(Body::from_stream(stream::unfold(watch, next_line)));
    }
    list(&inner, &plural, &query)
}

fn list(inner: &Inner, plural: &str, query: &BTreeMap<String, String>) -> Response<Body> {
    let limit: usize = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
    let (version, start) = match query.get("continue") {
        Some(token) => {
            let (version, start) = token.split_once('/').unwrap();
            (version.parse().unwrap(), start.parse().unwrap())
        }
        None => (inner.version, 0),
    };
    if version < inner.oldest {
        return status(410, "The provided continue parameter is too old");
    }
    let all: Vec<&Value> =
        inner.objects.iter().filter(|((of, _), _)| of == plural).map(|(_, object)| object).collect();
    let page: Vec<&Value> = all.iter().skip(start).take(limit).copied().collect();
    let more = (all.len() > start + page.len()).then(|| format!("{version}/{}", start + page.len()));
    let shown = inner.list_version.clone().unwrap_or(version.to_string());
    let metadata = json!({ "resourceVersion": shown, "continue": more.unwrap_or_default() });
    let text = json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": page });
    Response::builder().header("content-type", "application/json").body(text.to_string().into()).unwrap()
}

struct Watch {
    api: Api,
    plural: String,
    /// The version of the last line.
    sent: u64,
    cut: u64,
    turn: watch::Receiver<u64>,
}

async fn next_line(mut watch: Watch) -> Option<(Result<String, Infallible>, Watch)> {
    loop {
        watch.turn.mark_unchanged();
        let (interval, version) = {
            let inner = watch.api.inner();
            if watch.sent < inner.oldest {
                let gone = json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "message": "gone" } });
                drop(inner);
                watch.cut = u64::MAX;
                watch.sent = u64::MAX;
                return Some((Ok(format!("{gone}\n")), watch));
            }
            if watch.cut != inner.cut || inner.ends_watches {
                return None;
            }
            let next = inner.log.iter().find(|(version, of, _)| *version > watch.sent && *of == watch.plural);
            if let (Some((version, _, event)), false) = (next, inner.is_frozen) {
                let (version, line) = (*version, format!("{event}\n"));
                drop(inner);
                watch.sent = version;
                return Some((Ok(line), watch));
            }
            (inner.bookmarks.filter(|_| !inner.is_frozen).unwrap_or(Duration::from_secs(3600)), inner.version)
        };
        if tokio::time::timeout(interval, watch.turn.changed()).await.is_err() {
            let version = version.to_string();
            let mark = json!({ "type": "BOOKMARK", "object": {
                "kind": "Pod", "apiVersion": "v1", "metadata": { "resourceVersion": version } } });
            return Some((Ok(format!("{mark}\n")), watch));
        }
    }
}
