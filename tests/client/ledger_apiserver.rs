//! The ledger in a real API server of Kubernetes, with a real etcd. `tests/interop` has the programs, gives their paths in
//! `SLUICE_KUBE_APISERVER` and `SLUICE_ETCD`, and runs the test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use sluice::kubernetes::ClusterAccess;
use sluice::ledger::{KubernetesLedger, KubernetesSettings, LedgerEvent, Precondition, WriteError};
use sluice::telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::ledger::{Replica, changed};

/// The shortest lease that the configuration takes.
const LEASE: Duration = Duration::from_secs(5);

/// To start, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const CONFIG_MAPS: &str = "/api/v1/namespaces/relays/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/relays/leases";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/relays/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/relays/rolebindings";

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// An API server and its etcd. Directory and ports outlive the processes.
struct RealServer {
    directory: tempfile::TempDir,
    port: u16,
    etcd_port: u16,
    etcd: Child,
    server: Option<Child>,
}

impl RealServer {
    async fn new() -> RealServer {
        let directory = tempfile::tempdir().unwrap();
        let (port, etcd_port, peer_port) = (free_port().await, free_port().await, free_port().await);
        let (client, peer) =
            (format!("http://127.0.0.1:{etcd_port}"), format!("http://127.0.0.1:{peer_port}"));
        let etcd = Command::new(std::env::var("SLUICE_ETCD").expect("the path of etcd in SLUICE_ETCD"))
            .arg("--data-dir")
            .arg(directory.path().join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stderr(File::create(directory.path().join("etcd.log")).unwrap())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        fs::write(directory.path().join("tokens"), "admin,admin,1,system:masters\nrelay,relay,2\n").unwrap();
        let mut key = Command::new("openssl");
        key.args(["genrsa", "-out"]).arg(directory.path().join("key")).arg("2048").stderr(Stdio::null());
        assert!(key.status().unwrap().success());
        let mut server = RealServer { directory, port, etcd_port, etcd, server: None };
        server.start();
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&mut self) {
        let program = std::env::var("SLUICE_KUBE_APISERVER").expect("the path in SLUICE_KUBE_APISERVER");
        let log = fs::OpenOptions::new().append(true).create(true).open(self.path("server.log")).unwrap();
        let path = |name: &str| self.path(name).display().to_string();
        let server = Command::new(program)
            .args([
                format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
                format!("--secure-port={}", self.port),
                format!("--cert-dir={}", path("certificates")),
                format!("--token-auth-file={}", path("tokens")),
                format!("--service-account-key-file={}", path("key")),
                format!("--service-account-signing-key-file={}", path("key")),
                "--bind-address=127.0.0.1".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
                "--disable-admission-plugins=ServiceAccount".to_owned(),
            ])
            .stderr(log)
            .stdin(Stdio::null())
            .spawn();
        self.server = Some(server.unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    fn kubeconfig(&self, token: &str) -> PathBuf {
        let file = self.path(&format!("{token}.kubeconfig"));
        let server = format!("https://127.0.0.1:{}", self.port);
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": server, "insecure-skip-tls-verify": true } }],
            "users": [{ "name": "test", "user": { "token": token } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": "relays" } }],
        });
        fs::write(&file, text.to_string()).unwrap();
        file
    }

    async fn admin(&self) -> Admin {
        let file = Kubeconfig::read_from(self.kubeconfig("admin")).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        let admin = Admin(Client::try_from(config).unwrap());
        let begin = Instant::now();
        // The default namespaces are there once the server works.
        while admin.call("GET", "/api/v1/namespaces/default", None).await.is_err() {
            let log = || fs::read_to_string(self.path("server.log")).unwrap();
            assert!(begin.elapsed() < PATIENCE, "the API server does not start:\n{}", log());
            sleep(Duration::from_millis(200)).await;
        }
        admin
    }

    fn replica(&self, name: &str) -> Replica {
        let access = ClusterAccess { kubeconfig: Some(self.kubeconfig("relay")), context: None };
        let settings = KubernetesSettings { access, namespace: None, name: "sluice".to_owned() };
        let metrics = Metrics::new();
        Replica::of(&KubernetesLedger::new(&settings, name, LEASE, &metrics), metrics)
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        self.kill();
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

/// Somebody who may do everything.
struct Admin(Client);

impl Admin {
    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> kube::Result<Value> {
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        self.0.request(request.body(body).unwrap()).await
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let list =
            self.call("GET", &format!("{path}?labelSelector=sluice/ledger%3Dsluice"), None).await.unwrap();
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        list["items"].as_array().unwrap().iter().map(name).collect()
    }
}

/// The Role and the RoleBinding of docs/replicas.md, for the user `relay`.
fn documented_rights() -> (Value, Value) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/replicas.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("```yaml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let block = blocks.into_iter().find(|block| block.contains("kind: Role\n")).unwrap();
    let (role, binding) = block.split_once("---\n").unwrap();
    let role: Value = serde_saphyr::from_str(role).unwrap();
    let mut binding: Value = serde_saphyr::from_str(binding).unwrap();
    binding["subjects"] =
        json!([{ "kind": "User", "name": "relay", "apiGroup": "rbac.authorization.k8s.io" }]);
    (role, binding)
}

async fn write(replica: &mut Replica, other: &mut Replica) {
    let first = replica.put("plan/a", "1", Precondition::Absent).await.unwrap();
    for replica in [&mut *replica, &mut *other] {
        assert_eq!(replica.event().await, changed("plan/a", "1", first));
    }
    let conflict = |revision| Err(WriteError::Conflict { revision });
    assert_eq!(other.put("plan/a", "2", Precondition::Absent).await, conflict(Some(first)));
    let (one, two) = tokio::join!(
        replica.put("plan/a", "2", Precondition::Revision(first)),
        other.put("plan/a", "3", Precondition::Revision(first))
    );
    let second = *one.as_ref().or(two.as_ref()).unwrap();
    assert!(one.is_ok() != two.is_ok() && [&one, &two].contains(&&conflict(Some(second))), "{one:?} {two:?}");
    assert_eq!(replica.event().await, other.event().await);
    assert_eq!(other.put("plan/b", "2", Precondition::Revision(first)).await, conflict(None));
    let again = replica.put("plan/a", "4", Precondition::Any).await.unwrap();
    let twice = replica.put("plan/a", "4", Precondition::Any).await.unwrap();
    assert!(again < twice, "the same value is a write");
    for revision in [again, twice] {
        assert_eq!(other.event().await, changed("plan/a", "4", revision));
    }
    let delete = |key: &str, only_if| replica.session.delete(key.to_owned(), only_if);
    assert_eq!(delete("plan/a", Precondition::Revision(first)).await, conflict(Some(twice)));
    assert_eq!(delete("plan/a", Precondition::Revision(twice)).await, Ok(0));
    assert!(
        matches!(other.event().await, LedgerEvent::Gone { key, revision } if key == "plan/a" && revision > twice)
    );
    assert_eq!(delete("plan/a", Precondition::Any).await, Ok(0));
    let large = "\"".repeat(64 << 10);
    let kept = replica.put("plan/b", &large, Precondition::Any).await.unwrap();
    assert_eq!(other.event().await, changed("plan/b", &large, kept));
}

/// A second of the name, and a replica that dies.
async fn hold_leases(real: &RealServer, admin: &Admin, replica: &mut Replica, other: Replica) {
    let leased = other.put_leased("tally/b").await.unwrap();
    let mut second = real.replica("b");
    assert!(second.lost().await.starts_with("another process has the name \"b\""));
    drop(other);
    let died_at = Instant::now();
    let mut events = Vec::new();
    while !matches!(events.last(), Some(LedgerEvent::Gone { key, .. }) if key == "tally/b") {
        events.push(tokio::time::timeout(LEASE * 3, replica.events.recv()).await.unwrap().unwrap());
    }
    assert!(events.contains(&changed("tally/b", "here", leased)));
    assert!(died_at.elapsed() > LEASE * 6 / 10, "{:?}", died_at.elapsed());
    assert_eq!(second.is_back().await.1, ["plan/b"]);
    assert_eq!(admin.names(LEASES).await.len(), 2);
    let Replica { session, .. } = second;
    session.close().await;
    assert_eq!(admin.names(LEASES).await.len(), 1);
}

/// A right that is taken away is named.
async fn miss_a_right(admin: &Admin, replica: &Replica, role: Value) {
    let mut less = role.clone();
    less["rules"][0]["verbs"] = json!(["list", "watch", "get", "create", "delete"]);
    admin.call("PUT", &format!("{ROLES}/sluice-ledger"), Some(less)).await.unwrap();
    let begin = Instant::now();
    loop {
        match replica.put("plan/b", "5", Precondition::Any).await {
            Err(WriteError::Refused(reason)) => {
                assert!(reason.ends_with("a Role has to allow \"update\" for \"configmaps\""), "{reason}");
                break;
            }
            // The server learns of the change a moment later.
            done => assert!(begin.elapsed() < PATIENCE, "{done:?}"),
        }
    }
    admin.call("PUT", &format!("{ROLES}/sluice-ledger"), Some(role)).await.unwrap();
}

/// A ConfigMap loses its label, and has it again.
async fn unlabel(admin: &Admin, replica: &mut Replica) {
    let maps = admin.call("GET", CONFIG_MAPS, None).await.unwrap();
    let map = maps["items"].as_array().unwrap().iter().find(|map| map["data"]["key"] == "plan/b").unwrap();
    let name = map["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("{CONFIG_MAPS}/{name}");
    let labelled = async |labels: Value| {
        let mut map = admin.call("GET", &path, None).await.unwrap();
        map["metadata"]["labels"] = labels;
        admin.call("PUT", &path, Some(map)).await.unwrap();
    };
    labelled(json!({})).await;
    let words =
        format!("the ConfigMap {name:?} of the ledger has lost its label; this puts it back: kubectl ");
    loop {
        match replica.event().await {
            LedgerEvent::Lost(reason) => break assert!(reason.starts_with(&words), "{reason}"),
            event => assert!(matches!(event, LedgerEvent::Changed(_)), "{event:?}"),
        }
    }
    labelled(json!({ "sluice/ledger": "sluice" })).await;
    assert_eq!(replica.is_back().await.1, ["plan/b"]);
}

/// The ledger is deleted, and is another one then.
async fn lose(admin: &Admin, replica: &mut Replica, identity: &str) {
    admin.call("DELETE", &format!("{CONFIG_MAPS}/sluice"), None).await.unwrap();
    loop {
        match replica.event().await {
            LedgerEvent::Lost(reason) => {
                assert_eq!(reason, "the ConfigMap \"sluice\" of the ledger was deleted");
                break;
            }
            event => assert!(matches!(event, LedgerEvent::Changed(_)), "{event:?}"),
        }
    }
    assert_ne!(replica.is_back().await.0, identity);

    // A lease of another process in the place of the own one.
    let name = admin.names(LEASES).await.remove(0);
    admin.call("DELETE", &format!("{LEASES}/{name}"), None).await.unwrap();
    let lease = json!({
        "metadata": { "name": name, "labels": { "sluice/ledger": "sluice" } },
        "spec": { "holderIdentity": "somebody", "leaseDurationSeconds": 60 },
    });
    admin.call("POST", LEASES, Some(lease)).await.unwrap();
    let begin = Instant::now();
    while !replica.lost().await.starts_with("another process has the name \"a\": \"somebody\"") {
        assert!(begin.elapsed() < LEASE * 4);
    }
}

#[tokio::test]
#[ignore = "needs kube-apiserver and etcd: tests/interop"]
async fn ldg_1_ldg_6_a_real_api_server_is_loaded_written_watched_restarted_and_wiped() {
    let mut real = RealServer::new().await;
    let admin = real.admin().await;
    let namespace = json!({ "metadata": { "name": "relays" } });
    admin.call("POST", "/api/v1/namespaces", Some(namespace)).await.unwrap();
    // Without rights.
    let mut replica = real.replica("a");
    let reason = replica.lost().await;
    assert!(
        reason.contains("status 403: leases.coordination.k8s.io is forbidden: User \"relay\""),
        "{reason}"
    );
    let (role, binding) = documented_rights();
    admin.call("POST", ROLES, Some(role.clone())).await.unwrap();
    admin.call("POST", BINDINGS, Some(binding)).await.unwrap();
    let (identity, keys) = replica.is_back().await;
    assert!(keys.is_empty());
    let mut other = real.replica("b");
    assert_eq!(other.is_back().await.0, identity);

    write(&mut replica, &mut other).await;
    hold_leases(&real, &admin, &mut replica, other).await;

    // The data survive a restart of the server, and so does the identity.
    real.kill();
    replica.lost().await;
    real.start();
    let back = tokio::time::timeout(PATIENCE, replica.is_back()).await.unwrap();
    assert_eq!(back, (identity.clone(), vec!["plan/b".to_owned()]));

    let admin = real.admin().await;
    miss_a_right(&admin, &replica, role).await;
    unlabel(&admin, &mut replica).await;
    lose(&admin, &mut replica, &identity).await;
}
