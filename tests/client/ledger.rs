//! The ledger on a scripted etcd (LDG-1).

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use sluice::client::GrpcAddress;
use sluice::ledger::{
    ENTRIES_MAX, EtcdLedger, EtcdSettings, EtcdUser, Ledger, LedgerEntry, LedgerEvent, LedgerSession,
    Precondition, Put, WriteError,
};
use sluice::telemetry::Metrics;
use sluice_proto::etcd::event::EventType;
use sluice_proto::etcd::{Event, KeyValue, WatchResponse};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::etcd::{Etcd, LEASE};
use crate::peer::soon;

pub fn settings(ports: &[u16]) -> EtcdSettings {
    let address = |port: &u16| GrpcAddress::Tcp { host: "127.0.0.1".to_owned(), port: *port };
    EtcdSettings {
        endpoints: ports.iter().map(address).collect(),
        prefix: EtcdSettings::PREFIX.to_owned(),
        tls: None,
        user: None,
    }
}

/// A replica with an open session.
pub struct Replica {
    pub session: Box<dyn LedgerSession>,
    pub events: mpsc::Receiver<LedgerEvent>,
    metrics: Metrics,
}

impl Replica {
    pub fn open(settings: &EtcdSettings) -> Replica {
        Replica::with_lease(settings, LEASE)
    }

    pub fn with_lease(settings: &EtcdSettings, lease: Duration) -> Replica {
        let metrics = Metrics::new();
        Replica::of(&EtcdLedger::new(settings, lease, &metrics).unwrap(), metrics)
    }

    pub fn of(ledger: &dyn Ledger, metrics: Metrics) -> Replica {
        let (session, events) = ledger.open();
        Replica { session, events, metrics }
    }

    pub async fn event(&mut self) -> LedgerEvent {
        soon(self.events.recv()).await.unwrap()
    }

    /// The keys and the identity of the next event, which is a load.
    pub async fn loaded(&mut self) -> (String, Vec<String>) {
        match self.event().await {
            LedgerEvent::Loaded { identity, entries, .. } => {
                (identity, entries.into_iter().map(|entry| entry.key).collect())
            }
            other => panic!("not loaded but {other:?}"),
        }
    }

    pub async fn lost(&mut self) -> String {
        match self.event().await {
            LedgerEvent::Lost(reason) => reason,
            other => panic!("not lost but {other:?}"),
        }
    }

    pub async fn put(&self, key: &str, value: &str, only_if: Precondition) -> Result<u64, WriteError> {
        let (key, value) = (key.to_owned(), Bytes::from(value.to_owned()));
        self.session.put(Put { key, value, only_if, leased: false }).await
    }

    pub async fn put_leased(&self, key: &str) -> Result<u64, WriteError> {
        let put =
            Put { key: key.to_owned(), value: Bytes::from("here"), only_if: Precondition::Any, leased: true };
        self.session.put(put).await
    }

    pub fn metric(&self, series: &str) -> String {
        let text = self.metrics.encode().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or("none");
        line.trim().to_owned()
    }
}

pub fn changed(key: &str, value: &str, revision: u64) -> LedgerEvent {
    LedgerEvent::Changed(LedgerEntry { key: key.to_owned(), value: Bytes::from(value.to_owned()), revision })
}

#[tokio::test]
async fn ldg_1_entries_are_loaded_written_and_watched() {
    let etcd = Etcd::start().await;
    for (key, value) in [("/sluice/plan/b", "1"), ("/other/plan/b", "2"), ("/sluice0", "3")] {
        etcd.store.lock().put(key, value);
    }
    let mut replica = Replica::open(&settings(&[etcd.port]));
    let entry = LedgerEntry { key: "plan/b".to_owned(), value: Bytes::from("1"), revision: 2 };
    let loaded =
        LedgerEvent::Loaded { identity: "0000000000000abc".to_owned(), revision: 4, entries: vec![entry] };
    assert_eq!(replica.event().await, loaded);
    assert_eq!(replica.metric("sluice_ledger_connected{kind=\"etcd\"}"), "1");

    assert_eq!(replica.put("plan/a", "x", Precondition::Absent).await, Ok(5));
    assert_eq!(replica.event().await, changed("plan/a", "x", 5));
    let conflict = |revision| Err(WriteError::Conflict { revision });
    assert_eq!(replica.put("plan/a", "y", Precondition::Absent).await, conflict(Some(5)));
    assert_eq!(replica.put("plan/b", "y", Precondition::Revision(5)).await, conflict(Some(2)));
    assert_eq!(replica.put("plan/c", "y", Precondition::Revision(5)).await, conflict(None));
    assert_eq!(replica.put("plan/b", "y", Precondition::Revision(2)).await, Ok(6));
    assert_eq!(replica.event().await, changed("plan/b", "y", 6));
    assert_eq!(replica.put("plan/b", "z", Precondition::Any).await, Ok(7));
    assert_eq!(replica.event().await, changed("plan/b", "z", 7));

    let delete = |key: &str, only_if| replica.session.delete(key.to_owned(), only_if);
    assert_eq!(delete("plan/a", Precondition::Revision(4)).await, conflict(Some(5)));
    assert_eq!(delete("plan/a", Precondition::Revision(5)).await, Ok(8));
    assert_eq!(delete("plan/a", Precondition::Any).await, Ok(8), "nothing is there");
    etcd.store.lock().put("/sluice/freeze", "f");
    assert_eq!(replica.event().await, LedgerEvent::Gone { key: "plan/a".to_owned(), revision: 8 });
    assert_eq!(replica.event().await, changed("freeze", "f", 9));

    let long = replica.put("plan/a", &"x".repeat((64 << 10) + 1), Precondition::Any).await.unwrap_err();
    let words = "the value of \"plan/a\" has 65537 bytes; at most 65536 are taken";
    assert_eq!(long, WriteError::Refused(words.to_owned()));
    for (result, count) in [("ok", "5"), ("conflict", "4"), ("refused", "1"), ("failed", "0")] {
        let series = format!("sluice_ledger_writes_total{{kind=\"etcd\",result=\"{result}\"}}");
        assert_eq!(replica.metric(&series), count, "{result}");
    }
    // A member without a leader would keep silent.
    assert!(etcd.store.lock().calls.iter().all(|(_, has_leader)| *has_leader));
}

#[tokio::test]
async fn ldg_1_the_lease_is_kept_alive_and_given_back() {
    let etcd = Etcd::start().await;
    let mut replica = Replica::open(&settings(&[etcd.port]));
    replica.loaded().await;
    replica.put_leased("tally/a").await.unwrap();
    let lease = etcd.store.lock().lease();
    assert_eq!(etcd.store.lock().keys[&b"/sluice/tally/a"[..]].lease, lease);
    // Three times as long as the lease.
    let until = Instant::now() + LEASE * 3;
    while Instant::now() < until {
        assert!(replica.session.lease_left().is_some_and(|left| left <= LEASE));
        tokio::time::sleep(LEASE / 9).await;
    }
    let Replica { session, .. } = replica;
    soon(session.close()).await;
    assert!(etcd.store.lock().leases.is_empty());
}

#[tokio::test]
async fn ldg_1_a_lease_is_lost_before_the_server_can_drop_it() {
    let etcd = Etcd::start().await;
    let mut replica = Replica::open(&settings(&[etcd.port]));
    replica.loaded().await;
    let first = etcd.store.lock().lease();
    etcd.store.lock().mute.insert("LeaseKeepAlive");
    let reason = replica.lost().await;
    let now = Instant::now();
    assert!(now < etcd.store.lock().leases[&first] + LEASE, "the server still has it");
    assert_eq!(replica.session.lease_left(), None);
    let words = format!("127.0.0.1:{}: no answer has kept the lease of 900ms alive", etcd.port);
    assert_eq!(reason, words);
    assert_eq!(replica.put_leased("tally/a").await, Err(WriteError::Failed(words)));

    etcd.store.lock().mute.clear();
    replica.loaded().await;
    let second = etcd.store.lock().lease();
    assert_ne!(first, second, "a new session has a new lease");
    etcd.store.lock().ttl = Some(0);
    let reason = replica.lost().await;
    assert!(reason.ends_with("the server has ended the lease"), "{reason}");
    etcd.store.lock().ttl = None;
    replica.loaded().await;
    // A write finds the lease gone.
    let third = etcd.store.lock().lease();
    etcd.store.lock().leases.remove(&third);
    assert!(matches!(replica.put_leased("tally/a").await, Err(WriteError::Refused(_))));
    let reason = replica.lost().await;
    assert!(reason.ends_with("NOT_FOUND: etcdserver: requested lease not found"), "{reason}");
    assert_eq!(replica.metric("sluice_ledger_lost_total{kind=\"etcd\"}"), "3");
    assert_eq!(replica.metric("sluice_ledger_connected{kind=\"etcd\"}"), "0");
}

#[tokio::test]
async fn ldg_1_a_compaction_is_a_load_without_a_loss() {
    let etcd = Etcd::start().await;
    let mut replica = Replica::open(&settings(&[etcd.port]));
    replica.loaded().await;
    let lease = etcd.store.lock().lease();
    {
        let mut store = etcd.store.lock();
        store.is_silent = true;
        store.put("/sluice/plan/a", "missed");
        store.is_silent = false;
        store.respond(WatchResponse { canceled: true, compact_revision: 2, ..WatchResponse::default() });
    }
    assert_eq!(replica.loaded().await.1, ["plan/a"]);
    replica.put_leased("tally/a").await.unwrap();
    assert_eq!(etcd.store.lock().keys[&b"/sluice/tally/a"[..]].lease, lease);
    assert_eq!(etcd.store.lock().leases.len(), 1);
}

#[tokio::test]
async fn ldg_6_another_cluster_is_told_by_its_identity() {
    let mut etcd = Etcd::start().await;
    etcd.store.lock().put("/sluice/plan/a", "x");
    let mut replica = Replica::open(&settings(&[etcd.port]));
    assert_eq!(replica.loaded().await, ("0000000000000abc".to_owned(), vec!["plan/a".to_owned()]));
    {
        let mut store = etcd.store.lock();
        (store.cluster, store.revision) = (0xdef, 1);
        store.keys.clear();
    }
    // An answer of another cluster ends the session, on a connection that is still open.
    let reason = replica.put("plan/a", "y", Precondition::Any).await.unwrap_err().to_string();
    assert!(reason.ends_with("another cluster of etcd answers"), "{reason}");
    assert_eq!(replica.lost().await, reason);
    etcd.store.lock().keys.clear();
    etcd.cut().await;
    loop {
        match replica.event().await {
            LedgerEvent::Lost(_) => {}
            LedgerEvent::Loaded { identity, .. } => {
                assert_eq!(identity, "0000000000000def");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn ldg_5_slow_answers_fail_in_time() {
    let etcd = Etcd::start().await;
    let mut replica = Replica::with_lease(&settings(&[etcd.port]), Duration::from_secs(20));
    replica.loaded().await;
    etcd.store.lock().mute.insert("Txn");
    let begin = Instant::now();
    let mute = replica.put("plan/a", "x", Precondition::Any).await.unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    assert!(mute.to_string().ends_with("no answer within 5s"), "{mute}");
    assert!(matches!(mute, WriteError::Failed(_)));
    // Written all the same.
    assert_eq!(replica.event().await, changed("plan/a", "x", 2));

    let slow = Etcd::start().await;
    slow.store.lock().mute.insert("Range");
    let mut replica = Replica::open(&settings(&[slow.port]));
    let reason = format!("127.0.0.1:{}: DEADLINE_EXCEEDED: no answer within 5s", slow.port);
    assert_eq!(replica.lost().await, reason);
    slow.store.lock().mute.clear();
    replica.loaded().await;
}

#[tokio::test]
async fn ldg_1_a_watch_that_misses_an_own_write_is_over() {
    let etcd = Etcd::start().await;
    let mut replica = Replica::open(&settings(&[etcd.port]));
    replica.loaded().await;
    etcd.store.lock().is_silent = true;
    replica.put("plan/a", "x", Precondition::Any).await.unwrap();
    let reason = replica.lost().await;
    assert!(reason.ends_with("the watch has not reported an own write for 5s"), "{reason}");
    assert_eq!(replica.loaded().await.1, ["plan/a"]);
}

#[tokio::test]
async fn ldg_1_content_out_of_bounds_is_a_loss() {
    let etcd = Etcd::start().await;
    for at in 0..ENTRIES_MAX {
        etcd.store.lock().put(&format!("/sluice/done/{at}"), "");
    }
    let mut replica = Replica::open(&settings(&[etcd.port]));
    assert_eq!(replica.loaded().await.1.len(), ENTRIES_MAX);
    etcd.store.lock().put("/sluice/more", "");
    assert!(replica.lost().await.contains("more than 4096 entries in the ledger"));
    assert_eq!(replica.metric("sluice_ledger_connected{kind=\"etcd\"}"), "0");
    // The next load finds all entries, too, and costs no lease. The reason is the same, so nothing is told.
    assert_eq!(etcd.store.lock().leases.len(), 1);
    etcd.store.lock().remove(b"/sluice/more");
    assert_eq!(replica.loaded().await.1.len(), ENTRIES_MAX);

    let large = Etcd::start().await;
    for at in 0..400 {
        large.store.lock().put(&format!("/sluice/{at}"), vec![0; 64 << 10]);
    }
    let mut replica = Replica::open(&settings(&[large.port]));
    assert!(replica.lost().await.contains("more than 16 MiB"), "a message that is too long");
    large.store.lock().keys.clear();
    replica.loaded().await;
    large.store.lock().put("/sluice/long", vec![0; (64 << 10) + 1]);
    let reason = replica.lost().await;
    assert!(reason.ends_with("the entry \"long\" has 65537 bytes; at most 65536 are taken"), "{reason}");
}

#[tokio::test]
async fn ldg_1_events_out_of_order_end_the_session() {
    let etcd = Etcd::start().await;
    etcd.store.lock().put("/sluice/a", "x");
    let mut replica = Replica::open(&settings(&[etcd.port]));
    replica.loaded().await;
    let kv = KeyValue { key: Bytes::from("/sluice/a"), mod_revision: 2, ..KeyValue::default() };
    let events = vec![Event { r#type: EventType::Put.into(), kv: Some(kv) }];
    etcd.store.lock().respond(WatchResponse { events, ..WatchResponse::default() });
    let reason = replica.lost().await;
    assert!(reason.ends_with("an event of revision 2 came after revision 2"), "{reason}");
}

#[tokio::test]
async fn ldg_1_whoever_takes_no_events_loses_the_lease() {
    let etcd = Etcd::start().await;
    let mut replica = Replica::open(&settings(&[etcd.port]));
    replica.loaded().await;
    for at in 0..300 {
        etcd.store.lock().put("/sluice/a", format!("{at}"));
    }
    soon(async {
        while replica.session.lease_left().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // Four times as long as the delay: no lease begins of which the caller might take the old one to be
    // alive.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(replica.session.lease_left(), None);
    loop {
        match replica.event().await {
            LedgerEvent::Lost(reason) => {
                assert_eq!(reason, "no event of the ledger was taken for 900ms");
                break;
            }
            event => assert!(matches!(event, LedgerEvent::Changed(_)), "{event:?}"),
        }
    }
    replica.loaded().await;
}

fn with_user(port: u16, password_file: &Path) -> EtcdSettings {
    let user = EtcdUser { name: "relay".to_owned(), password_file: password_file.to_owned() };
    EtcdSettings { user: Some(user), ..settings(&[port]) }
}

#[tokio::test]
async fn ldg_1_a_token_is_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    let etcd = Etcd::start().await;
    etcd.store.lock().token = Some("one".to_owned());
    let mut replica = Replica::open(&with_user(etcd.port, &file));
    let reason = replica.lost().await;
    assert!(reason.contains(&format!("{}: cannot read the file", file.display())), "{reason}");
    std::fs::write(&file, "wrong\n").unwrap();
    let reason = replica.lost().await;
    assert!(reason.ends_with("authentication failed, invalid user ID or password"), "{reason}");
    assert!(!reason.contains("wrong"));
    std::fs::write(&file, "secret\n").unwrap();
    replica.loaded().await;
    assert_eq!(etcd.store.lock().logins.last().unwrap().name, "relay");

    // The token of the session is over. Two writes at once log in once.
    let before = etcd.store.lock().logins.len();
    etcd.store.lock().token = Some("two".to_owned());
    let (one, two) =
        tokio::join!(replica.put("a", "x", Precondition::Any), replica.put("b", "x", Precondition::Any));
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    assert_eq!(etcd.store.lock().logins.len(), before + 1);
    let old = ("Txn", "3", "etcdserver: revision of auth store is old");
    etcd.store.lock().refusals.push(old);
    etcd.store.lock().token = Some("three".to_owned());
    assert!(replica.put("a", "y", Precondition::Any).await.is_ok());
    let denied = ("Txn", "7", "etcdserver: permission denied");
    etcd.store.lock().refusals.push(denied);
    let refused = replica.put("a", "z", Precondition::Any).await.unwrap_err();
    assert!(matches!(&refused, WriteError::Refused(reason) if reason.ends_with("permission denied")));

    let mut nobody = Replica::open(&settings(&[etcd.port]));
    let reason = nobody.lost().await;
    assert!(reason.ends_with("etcdserver: invalid auth token (the server wants a `user`)"), "{reason}");
}

#[tokio::test]
async fn ldg_1_a_server_without_authentication_takes_a_user() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "secret").unwrap();
    let etcd = Etcd::start().await;
    let not_enabled = ("Authenticate", "9", "etcdserver: authentication is not enabled");
    etcd.store.lock().refusals.push(not_enabled);
    Replica::open(&with_user(etcd.port, &file)).loaded().await;
}

#[tokio::test]
async fn ldg_1_endpoints_are_tried_in_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (mut one, two) = (Etcd::start().await, Etcd::start().await);
    let mut replica = Replica::open(&settings(&[port, one.port, two.port]));
    replica.loaded().await;
    assert!(two.store.lock().calls.is_empty());
    one.cut().await;
    let reason = replica.lost().await;
    assert!(reason.starts_with(&format!("127.0.0.1:{}: ", one.port)), "{reason}");
    replica.loaded().await;
    assert!(!two.store.lock().calls.is_empty(), "the next endpoint");

    let mut replica = Replica::open(&settings(&[port]));
    let reason = replica.lost().await;
    assert!(reason.starts_with(&format!("127.0.0.1:{port}: ")) && reason.contains("refused"), "{reason}");
    let late = Etcd::listen(TcpListener::bind(("127.0.0.1", port)).await.unwrap());
    replica.loaded().await;
    assert_eq!(late.store.lock().leases.len(), 1);
}
