//! The ledger on a real etcd. `tests/interop` has the program, gives the path in `SLUICE_ETCD`, and runs the
//! tests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluice::ledger::{EtcdSettings, EtcdUser, LedgerEvent, Precondition, WriteError};
use sluice::trust::client::ClientTls;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::ledger::{Replica, changed, settings};
use crate::tls_peer::{DAY, Site};

/// The shortest lease that the configuration takes.
const LEASE: Duration = Duration::from_secs(5);

/// The port for the process that plays the replica that dies.
const WRITER: &str = "SLUICE_LEDGER_WRITER";

/// An etcd with one member. Directory and ports outlive the process.
struct RealEtcd {
    directory: tempfile::TempDir,
    port: u16,
    peer_port: u16,
    scheme: &'static str,
    options: Vec<String>,
    process: Option<Child>,
}

impl RealEtcd {
    async fn new(scheme: &'static str, options: Vec<String>) -> RealEtcd {
        let directory = tempfile::tempdir().unwrap();
        let (port, peer_port) = (free_port().await, free_port().await);
        let mut etcd = RealEtcd { directory, port, peer_port, scheme, options, process: None };
        etcd.start();
        etcd
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn start(&mut self) {
        let program = std::env::var("SLUICE_ETCD").expect("the path of etcd in SLUICE_ETCD");
        let client = format!("{}://127.0.0.1:{}", self.scheme, self.port);
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        let process = Command::new(program)
            .args(["--name", "one", "--logger", "zap", "--log-outputs", "stderr"])
            .arg("--data-dir")
            .arg(self.data())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .args(&self.options)
            .stderr(log)
            .stdin(Stdio::null())
            .spawn();
        self.process = Some(process.unwrap());
    }

    fn signal(&self, signal: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Asks the gateway for JSON.
    fn post(&self, path: &str, body: &str) {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = "Host: etcd\r\nConnection: close\r\nContent-Type: application/json\r\n";
        let length = body.len();
        write!(socket, "POST {path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}

impl Drop for RealEtcd {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

impl Replica {
    /// The next load; losses before it are told again while etcd is away.
    async fn loaded_again(&mut self) -> (String, u64, Vec<String>) {
        loop {
            match self.event().await {
                LedgerEvent::Loaded { identity, revision, entries } => {
                    return (identity, revision, entries.into_iter().map(|entry| entry.key).collect());
                }
                LedgerEvent::Lost(_) => {}
                other => panic!("neither lost nor loaded but {other:?}"),
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs etcd: tests/interop"]
async fn ldg_1_ldg_6_a_real_etcd_is_loaded_written_watched_restarted_and_wiped() {
    let mut etcd = RealEtcd::new("http", Vec::new()).await;
    let mut replica = Replica::with_lease(&settings(&[etcd.port]), LEASE);
    let mut other = Replica::with_lease(&settings(&[etcd.port]), LEASE);
    let (identity, _, keys) = replica.loaded_again().await;
    assert!(keys.is_empty());
    assert_eq!(other.loaded_again().await.0, identity);

    let first = replica.put("plan/a", "1", Precondition::Absent).await.unwrap();
    for replica in [&mut replica, &mut other] {
        assert_eq!(replica.event().await, changed("plan/a", "1", first));
    }
    let conflict = |revision| Err(WriteError::Conflict { revision });
    assert_eq!(other.put("plan/a", "2", Precondition::Absent).await, conflict(Some(first)));
    let (one, two) = tokio::join!(
        replica.put("plan/a", "2", Precondition::Revision(first)),
        other.put("plan/a", "3", Precondition::Revision(first))
    );
    let second = first + 1;
    assert!((one == Ok(second)) != (two == Ok(second)), "one of two wins: {one:?} {two:?}");
    assert!([&one, &two].contains(&&conflict(Some(second))), "{one:?} {two:?}");
    assert_eq!(replica.event().await, other.event().await);
    let gone = replica.session.delete("plan/a".to_owned(), Precondition::Revision(second)).await.unwrap();
    for replica in [&mut replica, &mut other] {
        assert_eq!(replica.event().await, LedgerEvent::Gone { key: "plan/a".to_owned(), revision: gone });
    }
    assert_eq!(other.put("plan/a", "4", Precondition::Revision(second)).await, conflict(None));
    let kept = replica.put("plan/b", "kept", Precondition::Any).await.unwrap();
    assert_eq!(other.event().await, changed("plan/b", "kept", kept));

    // The data survive, and so does the identity.
    etcd.kill();
    other.lost().await;
    assert_eq!(other.session.lease_left(), None);
    etcd.start();
    let (again, revision, keys) = other.loaded_again().await;
    assert_eq!((again, keys), (identity.clone(), vec!["plan/b".to_owned()]));
    assert!(revision >= kept);

    // Wiped, and started with the same flags: the identity follows from the flags, so the revision tells.
    etcd.kill();
    other.lost().await;
    std::fs::remove_dir_all(etcd.data()).unwrap();
    etcd.start();
    let (again, revision, keys) = other.loaded_again().await;
    assert!(keys.is_empty());
    assert_eq!(again, identity);
    assert!(revision < kept, "{revision} {kept}");
}

#[tokio::test]
#[ignore = "needs etcd: tests/interop"]
async fn ldg_1_the_entries_of_a_replica_that_dies_go_with_its_lease() {
    let etcd = RealEtcd::new("http", Vec::new()).await;
    let mut replica = Replica::with_lease(&settings(&[etcd.port]), LEASE);
    replica.loaded_again().await;
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "ledger_etcd::a_writer", "--nocapture"])
        .env(WRITER, etcd.port.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let LedgerEvent::Changed(entry) = replica.event().await else { panic!("no entry of the writer") };
    assert_eq!(entry.key, "tally/writer");
    // Twice as long as the lease: the writer keeps it alive.
    assert!(tokio::time::timeout(LEASE * 2, replica.events.recv()).await.is_err());
    let killed_at = Instant::now();
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(matches!(replica.event().await, LedgerEvent::Gone { key, .. } if key == "tally/writer"));
    let took = killed_at.elapsed();
    // The last message was at most a third of the lease ago, and etcd looks for dead leases twice a second.
    assert!(took > LEASE / 2 && took < LEASE + Duration::from_secs(3), "{took:?}");

    // An end with a farewell is quicker.
    let mut leaving = Replica::with_lease(&settings(&[etcd.port]), LEASE);
    leaving.loaded_again().await;
    leaving.put_leased("tally/leaving").await.unwrap();
    assert!(matches!(replica.event().await, LedgerEvent::Changed(_)));
    let closed_at = Instant::now();
    leaving.session.close().await;
    assert!(matches!(replica.event().await, LedgerEvent::Gone { .. }));
    assert!(closed_at.elapsed() < Duration::from_secs(2));

    // An etcd that stands still: the lease is lost here before etcd, had it gone on, could have dropped it.
    replica.put_leased("tally/a").await.unwrap();
    replica.event().await;
    let stopped_at = Instant::now();
    etcd.signal("-STOP");
    let reason = replica.lost().await;
    assert!(stopped_at.elapsed() < LEASE, "{:?}", stopped_at.elapsed());
    assert!(reason.contains("has kept the lease of 5s alive"), "{reason}");
    etcd.signal("-CONT");
    replica.loaded_again().await;
}

/// The replica that dies in the test above.
#[tokio::test]
#[ignore = "a part of other tests"]
async fn a_writer() {
    let Ok(port) = std::env::var(WRITER) else { return };
    let mut replica = Replica::with_lease(&settings(&[port.parse().unwrap()]), LEASE);
    replica.loaded_again().await;
    replica.put_leased("tally/writer").await.unwrap();
    // A parent that failed ends no child.
    tokio::time::sleep(LEASE * 6).await;
}

#[tokio::test]
#[ignore = "needs etcd: tests/interop"]
async fn ldg_1_a_real_etcd_with_users_takes_the_relay_in_its_prefix_only() {
    let mut etcd = RealEtcd::new("http", Vec::new()).await;
    let plain = settings(&[etcd.port]);
    Replica::open(&plain).loaded_again().await;
    let encoded = |text: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    etcd.post("/v3/auth/role/add", r#"{"name":"root"}"#);
    etcd.post("/v3/auth/role/add", r#"{"name":"relay"}"#);
    let (from, to) = (encoded("/sluice/"), encoded("/sluice0"));
    let permission = format!(r#"{{"permType":"READWRITE","key":"{from}","range_end":"{to}"}}"#);
    etcd.post("/v3/auth/role/grant", &format!(r#"{{"name":"relay","perm":{permission}}}"#));
    for name in ["root", "relay"] {
        etcd.post("/v3/auth/user/add", &format!(r#"{{"name":"{name}","password":"{name}-secret"}}"#));
        etcd.post("/v3/auth/user/grant", &format!(r#"{{"user":"{name}","role":"{name}"}}"#));
    }
    etcd.post("/v3/auth/enable", "{}");

    let mut nobody = Replica::open(&plain);
    let reason = nobody.lost().await;
    assert!(reason.ends_with("etcdserver: user name is empty (the server wants a `user`)"), "{reason}");
    let password_file = etcd.directory.path().join("password");
    std::fs::write(&password_file, "relay-secret\n").unwrap();
    let user = EtcdUser { name: "relay".to_owned(), password_file: password_file.clone() };
    let with_user = EtcdSettings { user: Some(user), ..plain };
    let mut replica = Replica::with_lease(&with_user, LEASE);
    replica.loaded_again().await;
    replica.put_leased("tally/a").await.unwrap();
    assert!(matches!(replica.event().await, LedgerEvent::Changed(_)));

    let elsewhere = EtcdSettings { prefix: "/other/".to_owned(), ..with_user.clone() };
    let reason = Replica::open(&elsewhere).lost().await;
    assert!(reason.ends_with("etcdserver: permission denied"), "{reason}");

    // A restart forgets the tokens.
    etcd.kill();
    replica.lost().await;
    etcd.start();
    replica.loaded_again().await;
    replica.put("plan/a", "y", Precondition::Any).await.unwrap();
}

#[tokio::test]
#[ignore = "needs etcd: tests/interop"]
async fn ldg_1_a_real_etcd_is_reached_by_mutual_tls() {
    let site = Site::new();
    let server = site.write(&site.server(), "server");
    let path = |name: &str| site.path(name).display().to_string();
    let options = [
        "--cert-file",
        &server.certificate.display().to_string(),
        "--key-file",
        &server.private_key.display().to_string(),
        "--client-cert-auth",
        "--trusted-ca-file",
        &path("ca.crt"),
    ];
    let etcd = RealEtcd::new("https", options.map(str::to_owned).to_vec()).await;
    let pair = Some(site.write_client(&site.authority, DAY));
    let tls = Some(ClientTls { pair, ..site.tls() });
    let mut replica = Replica::open(&EtcdSettings { tls, ..settings(&[etcd.port]) });
    replica.loaded_again().await;
    replica.put("plan/a", "x", Precondition::Absent).await.unwrap();
    let anonymous = EtcdSettings { tls: Some(site.tls()), ..settings(&[etcd.port]) };
    let reason = Replica::open(&anonymous).lost().await;
    assert!(reason.contains("certificate"), "{reason}");
}
