//! The ledger in a scripted API server of Kubernetes (LDG-1).

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sluice::kubernetes::ClusterAccess;
use sluice::ledger::{
    KubernetesLedger, KubernetesSettings, LedgerEntry, LedgerEvent, Precondition, Put, WriteError,
};
use sluice::telemetry::Metrics;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cluster::{Cluster, NAMESPACE};
use crate::ledger::{Replica, changed};
use crate::peer::soon;

/// Shorter than the configuration takes. In the objects: a second.
const LEASE: Duration = Duration::from_millis(900);

struct Site {
    cluster: Cluster,
    directory: TempDir,
}

impl Site {
    fn new() -> Site {
        Site { cluster: Cluster::start(), directory: tempfile::tempdir().unwrap() }
    }

    fn replica(&self, name: &str) -> Replica {
        self.with_lease(name, LEASE)
    }

    fn with_lease(&self, name: &str, lease: Duration) -> Replica {
        let access = ClusterAccess {
            kubeconfig: Some(self.cluster.kubeconfig(self.directory.path(), "one")),
            context: None,
        };
        let settings = KubernetesSettings { access, namespace: None, name: "sluice".to_owned() };
        let metrics = Metrics::new();
        Replica::of(&KubernetesLedger::new(&settings, name, lease, &metrics), metrics)
    }
}

fn forbidden(verb: &str, plural: &str) -> (u16, String, Option<u64>) {
    (403, format!("{plural} is forbidden: User \"relay\" cannot {verb} resource \"{plural}\""), None)
}

fn gone(key: &str, revision: u64) -> LedgerEvent {
    LedgerEvent::Gone { key: key.to_owned(), revision }
}

impl Replica {
    /// The key of the next event, which is a deletion.
    async fn loses(&mut self) -> String {
        match self.event().await {
            LedgerEvent::Gone { key, .. } => key,
            other => panic!("not gone but {other:?}"),
        }
    }

    /// The next load; losses before it are passed over.
    pub async fn is_back(&mut self) -> (String, Vec<String>) {
        loop {
            match self.event().await {
                LedgerEvent::Loaded { identity, entries, .. } => {
                    return (identity, entries.into_iter().map(|entry| entry.key).collect());
                }
                LedgerEvent::Lost(_) => {}
                other => panic!("neither lost nor loaded but {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn ldg_1_entries_are_config_maps_that_are_loaded_written_and_watched() {
    let site = Site::new();
    let mut other = site.replica("b");
    other.loaded().await;
    let first = other.put("plan/b", "1", Precondition::Any).await.unwrap();
    let mut replica = site.replica("a");
    let LedgerEvent::Loaded { identity, revision, entries } = replica.event().await else { panic!() };
    let entry = LedgerEntry { key: "plan/b".to_owned(), value: Bytes::from("1"), revision: first };
    assert_eq!((entries, revision >= first, identity.as_str()), (vec![entry], true, "uid-1"));
    assert_eq!(replica.metric("sluice_ledger_connected{kind=\"kubernetes\"}"), "1");

    let second = replica.put("plan/a", "x", Precondition::Absent).await.unwrap();
    assert_eq!(replica.event().await, changed("plan/a", "x", second));
    let conflict = |revision| Err(WriteError::Conflict { revision });
    assert_eq!(replica.put("plan/a", "y", Precondition::Absent).await, conflict(Some(second)));
    assert_eq!(replica.put("plan/b", "y", Precondition::Revision(second)).await, conflict(Some(first)));
    assert_eq!(replica.put("plan/c", "y", Precondition::Revision(second)).await, conflict(None));
    let third = replica.put("plan/b", "y", Precondition::Revision(first)).await.unwrap();
    assert_eq!(replica.event().await, changed("plan/b", "y", third));
    // The same value is a write all the same: its event proves the watch.
    let fourth = replica.put("plan/b", "y", Precondition::Any).await.unwrap();
    assert!(fourth > third);
    assert_eq!(replica.event().await, changed("plan/b", "y", fourth));
    let (one, two) = tokio::join!(
        replica.put("plan/b", "one", Precondition::Revision(fourth)),
        other.put("plan/b", "two", Precondition::Revision(fourth)),
    );
    let fifth = *one.as_ref().or(two.as_ref()).unwrap();
    assert!(
        (one.is_ok() != two.is_ok()) && [&one, &two].contains(&&conflict(Some(fifth))),
        "{one:?} {two:?}"
    );
    assert!(matches!(replica.event().await, LedgerEvent::Changed(entry) if entry.revision == fifth));

    let delete = |key: &str, only_if| replica.session.delete(key.to_owned(), only_if);
    assert_eq!(delete("plan/a", Precondition::Revision(first)).await, conflict(Some(second)));
    assert_eq!(delete("plan/a", Precondition::Absent).await, conflict(Some(second)));
    assert_eq!(delete("plan/a", Precondition::Revision(second)).await, Ok(0));
    assert_eq!(delete("plan/a", Precondition::Any).await, Ok(0), "nothing is there");
    assert_eq!(delete("plan/a", Precondition::Revision(second)).await, conflict(None));
    assert_eq!(replica.event().await, gone("plan/a", site.cluster.objects().version));

    let long = replica.put("plan/a", &"x".repeat((64 << 10) + 1), Precondition::Any).await.unwrap_err();
    let words = "the value of \"plan/a\" has 65537 bytes; at most 65536 are taken";
    assert_eq!(long, WriteError::Refused(words.to_owned()));
    let (key, only_if) = ("plan/a".to_owned(), Precondition::Any);
    let put = Put { key, value: Bytes::from_static(b"\xff"), only_if, leased: false };
    let words = "the value of \"plan/a\" is not text, as a ConfigMap needs";
    assert_eq!(replica.session.put(put).await, Err(WriteError::Refused(words.to_owned())));
    let map = site.cluster.entry("plan/b").unwrap();
    assert_eq!(map["metadata"]["labels"], json!({ "sluice/ledger": "sluice" }));
}

#[tokio::test]
async fn ldg_1_an_idle_replica_writes_its_lease_alone_and_gives_it_back() {
    let site = Site::new();
    let mut replica = site.replica("a");
    replica.loaded().await;
    let begin = Instant::now();
    replica.put_leased("tally/a").await.unwrap();
    replica.put_leased("tally/a").await.unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(1), "an API server takes few writes");
    let lease = site.cluster.objects().all.iter().find(|((of, _), _)| of == "leases").unwrap().1.clone();
    assert!(lease["spec"]["holderIdentity"].as_str().unwrap().starts_with("a_"), "{lease}");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 1);
    let before = site.cluster.objects().asked.len();
    // Three times as long as the lease.
    let until = Instant::now() + LEASE * 3;
    while Instant::now() < until {
        assert!(replica.session.lease_left().is_some_and(|left| left <= LEASE * 9 / 10));
        sleep(LEASE / 9).await;
    }
    let asked: Vec<_> =
        site.cluster.objects().asked[before..].iter().map(|(asked, _)| asked.clone()).collect();
    assert!(asked.len() >= 6 && asked.iter().all(|asked| asked.starts_with("patch leases")), "{asked:?}");
    let Replica { session, .. } = replica;
    soon(session.close()).await;
    assert_eq!(site.cluster.names("leases"), [""; 0]);
    assert_eq!(site.cluster.names("configmaps"), ["sluice"], "the entry goes with the lease");
}

#[tokio::test]
async fn ldg_1_a_lease_is_lost_before_others_can_take_it_for_lost() {
    let site = Site::new();
    let mut replica = site.replica("a");
    replica.loaded().await;
    let first =
        site.cluster.objects().all.values().find(|object| object["spec"].is_object()).cloned().unwrap();
    for what in ["patch leases", "create leases"] {
        site.cluster.refuse(what, (500, "etcdserver: request timed out".to_owned(), None));
    }
    let refused_at = Instant::now();
    let reason = replica.lost().await;
    let words = "cannot patch leases in the namespace \"infra\": status 500: etcdserver: request timed out";
    assert!(reason == words || reason.contains("no answer has kept the lease of 900ms alive"), "{reason}");
    sleep_until(refused_at + LEASE).await;
    assert_eq!(replica.session.lease_left(), None);
    assert!(matches!(replica.put_leased("tally/a").await, Err(WriteError::Failed(_))));
    site.cluster.allow();
    // Without a wait: the lease is that of this very session's predecessor.
    replica.is_back().await;
    let second =
        site.cluster.objects().all.values().find(|object| object["spec"].is_object()).cloned().unwrap();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"], "a new session has a new lease");
    assert_eq!(replica.metric("sluice_ledger_lost_total{kind=\"kubernetes\"}"), "1");
    // A person deletes the lease.
    let name = second["metadata"]["name"].as_str().unwrap().to_owned();
    site.cluster.change(|objects| objects.remove("leases", &name));
    let reason = replica.lost().await;
    assert!(reason.to_lowercase().contains("lease"), "{reason}");
    replica.loaded().await;
}

#[tokio::test]
async fn ldg_4_the_entries_of_a_dead_replica_go_once_its_lease_was_not_renewed() {
    let site = Site::new();
    let (mut one, mut two) = (site.replica("a"), site.replica("b"));
    one.loaded().await;
    two.loaded().await;
    let revision = two.put_leased("tally/b").await.unwrap();
    assert_eq!(one.event().await, changed("tally/b", "here", revision));
    assert_eq!(site.cluster.names("leases").len(), 2);
    // A living replica is no dead one, for however long.
    sleep(LEASE * 3).await;
    assert!(one.events.is_empty());
    let dies_at = Instant::now();
    drop(two);
    assert_eq!(one.loses().await, "tally/b");
    let took = dies_at.elapsed();
    assert!(took > Duration::from_millis(650) && took < LEASE * 4, "{took:?}");
    soon(async {
        while site.cluster.names("leases").len() > 1 || site.cluster.entry("tally/b").is_some() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// A watch that lags behind shows a living replica without renewals. It must not count as dead.
#[tokio::test]
async fn ldg_4_a_deaf_watch_of_leases_shows_nobody_as_dead() {
    let site = Site::new();
    let (mut one, mut two) = (site.replica("a"), site.replica("b"));
    one.loaded().await;
    two.loaded().await;
    two.put_leased("tally/b").await.unwrap();
    assert!(matches!(one.event().await, LedgerEvent::Changed(_)));
    site.cluster.change(|objects| objects.deaf.insert("leases".to_owned()));
    // Five times the lease.
    let reason = one.lost().await;
    assert!(reason.ends_with("the watch has not reported an own write for 5s"), "{reason}");
    site.cluster.change(|objects| objects.deaf.clear());
    assert_eq!(one.is_back().await.1, ["tally/b"]);
}

#[tokio::test]
async fn ldg_1_a_watch_of_entries_that_misses_an_own_write_is_over() {
    let site = Site::new();
    let mut replica = site.replica("a");
    replica.loaded().await;
    site.cluster.change(|objects| objects.deaf.insert("configmaps".to_owned()));
    replica.put("plan/a", "x", Precondition::Any).await.unwrap();
    let reason = replica.lost().await;
    assert!(reason.ends_with("the watch has not reported an own write for 5s"), "{reason}");
    assert_eq!(replica.is_back().await.1, ["plan/a"]);
}

#[tokio::test]
async fn ldg_1_forgotten_versions_are_a_load_without_a_loss() {
    let site = Site::new();
    let mut replica = site.replica("a");
    replica.loaded().await;
    let lease = site.cluster.names("leases");
    // The watch does not see the write, and cannot see it any more.
    site.cluster.change(|objects| objects.deaf.insert("configmaps".to_owned()));
    replica.put("plan/a", "missed", Precondition::Any).await.unwrap();
    site.cluster.compact();
    site.cluster.change(|objects| objects.deaf.clear());
    assert_eq!(replica.loaded().await.1, ["plan/a"]);
    // A new watch from a forgotten version is answered with 410, too.
    site.cluster.compact();
    site.cluster.cut();
    assert_eq!(replica.loaded().await.1, ["plan/a"]);
    assert_eq!(site.cluster.names("leases"), lease);
}

/// The watch has to report a renewal before the next renewal is due.
#[tokio::test]
async fn ldg_1_a_long_lease_outlives_forgotten_versions() {
    let site = Site::new();
    site.cluster.change(|objects| objects.deaf.insert("leases".to_owned()));
    let mut replica = site.with_lease("a", Duration::from_secs(30));
    replica.loaded().await;
    // No watch tells the begin of the lease any more.
    site.cluster.compact();
    site.cluster.change(|objects| objects.deaf.clear());
    replica.loaded().await;
    sleep(Duration::from_secs(6)).await;
    assert!(replica.events.is_empty() && replica.session.lease_left().is_some());
    // The lease went while the watch was away.
    site.cluster.change(|objects| objects.deaf.insert("leases".to_owned()));
    let lease = site.cluster.names("leases").remove(0);
    site.cluster.change(|objects| objects.remove("leases", &lease));
    site.cluster.compact();
    site.cluster.change(|objects| objects.deaf.clear());
    assert_eq!(replica.lost().await, format!("the Lease {lease:?} of this replica is gone"));
}

#[tokio::test]
async fn ldg_6_a_config_map_without_its_label_is_named_and_the_ledger_is_away_until_it_is_back() {
    let site = Site::new();
    let mut replica = site.replica("a");
    replica.loaded().await;
    replica.put("plan/a", "x", Precondition::Any).await.unwrap();
    assert!(matches!(replica.event().await, LedgerEvent::Changed(_)));
    let name = site.cluster.entry("plan/a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    for name in [&*name, "sluice"] {
        site.cluster.unlabel("configmaps", name);
        let words = format!(
            "the ConfigMap {name:?} of the ledger has lost its label; this puts it back: \
            kubectl label configmap {name} --namespace {NAMESPACE} --overwrite sluice/ledger=sluice"
        );
        assert_eq!(replica.lost().await, words);
        assert!(matches!(replica.put("plan/a", "y", Precondition::Any).await, Err(WriteError::Failed(_))));
        sleep(LEASE).await;
        assert!(replica.events.is_empty(), "the ledger stays away");
        site.cluster.label("configmaps", name);
        assert_eq!(replica.is_back().await.1, ["plan/a"]);
        // Another replica, begun since, hears so at the first write.
        site.cluster.unlabel("configmaps", name);
        assert_eq!(replica.lost().await, words);
        let mut other = site.replica(&format!("b-{name}"));
        if name == "sluice" {
            assert!(other.lost().await.contains("without the label sluice/ledger=sluice"));
        } else {
            assert_eq!(other.loaded().await.1, [""; 0]);
            let written = other.put("plan/a", "z", Precondition::Absent).await;
            assert_eq!(written, Err(WriteError::Failed(words.clone())));
            assert_eq!(other.lost().await, words);
        }
        site.cluster.label("configmaps", name);
        assert_eq!(replica.is_back().await.1, ["plan/a"]);
    }
    // A deletion afterwards is a loss.
    site.cluster.unlabel("configmaps", &name);
    assert!(replica.lost().await.contains("has lost its label"));
    site.cluster.change(|objects| objects.remove("configmaps", &name));
    assert_eq!(replica.is_back().await.1, [""; 0]);
}

#[tokio::test]
async fn ldg_6_a_lease_without_its_label_is_named_and_the_ledger_is_away_until_it_is_back() {
    let site = Site::new();
    let mut replica = site.replica("a");
    replica.loaded().await;
    let lease = site.cluster.names("leases").remove(0);
    site.cluster.unlabel("leases", &lease);
    let command =
        format!("kubectl label lease {lease} --namespace {NAMESPACE} --overwrite sluice/ledger=sluice");
    loop {
        let reason = replica.lost().await;
        if reason.ends_with(&command) {
            break assert!(reason.contains("it has lost its label"), "{reason}");
        }
        assert!(reason.contains(&lease), "{reason}");
    }
    sleep(LEASE).await;
    assert!(replica.events.is_empty(), "the ledger stays away");
    site.cluster.label("leases", &lease);
    replica.is_back().await;
    assert_eq!(site.cluster.names("leases"), [lease]);
}

#[tokio::test]
async fn ldg_1_a_watch_that_is_cut_goes_on_without_a_gap() {
    let site = Site::new();
    let (mut one, mut two) = (site.replica("a"), site.replica("b"));
    one.loaded().await;
    two.loaded().await;
    for round in 0..5 {
        site.cluster.cut();
        let revision = two.put("plan/a", &round.to_string(), Precondition::Any).await.unwrap();
        assert_eq!(one.event().await, changed("plan/a", &round.to_string(), revision));
        sleep(Duration::from_millis(1100)).await;
        // The first watches go on from the last event, and the others from the last bookmark.
        site.cluster.change(|objects| objects.bookmarks = (round > 1).then(|| Duration::from_millis(100)));
    }
    // Something in between ends each watch.
    for _ in 0..100 {
        site.cluster.cut();
        sleep(Duration::from_millis(20)).await;
    }
    assert!(one.lost().await.ends_with("each watch ends at once"));
}

#[tokio::test]
async fn ldg_4_the_second_of_a_name_says_so_and_takes_over_once_the_first_is_gone() {
    let site = Site::new();
    let mut first = site.replica("a");
    first.loaded().await;
    let mut second = site.replica("a");
    let reason = second.lost().await;
    assert!(reason.starts_with("another process has the name \"a\": \"a_"), "{reason}");
    sleep(LEASE * 3).await;
    assert!(second.events.is_empty(), "the reason is told once");
    assert!(matches!(second.put("plan/a", "x", Precondition::Any).await, Err(WriteError::Failed(_))));
    first.put_leased("tally/a").await.unwrap();
    drop(first);
    assert_eq!(second.loaded().await.1, [""; 0], "the entry of the first went with its lease");
    assert_eq!(site.cluster.names("leases").len(), 1);
}

#[tokio::test]
async fn ldg_5_a_missing_right_and_a_missing_namespace_are_named() {
    let site = Site::new();
    for (what, verb, plural) in [
        ("list leases", "list", "leases"),
        ("list configmaps", "list", "configmaps"),
        ("create leases", "create", "leases"),
    ] {
        site.cluster.refuse(what, forbidden(verb, plural));
        let mut replica = site.replica(&what.replace(' ', "-"));
        let reason = replica.lost().await;
        assert!(
            reason
                .starts_with(&format!("cannot {verb} {plural} in the namespace {NAMESPACE:?}: status 403: ")),
            "{reason}"
        );
        assert!(reason.ends_with(&format!("a Role has to allow {verb:?} for {plural:?}")), "{reason}");
        site.cluster.allow();
        replica.is_back().await;
    }
    let mut replica = site.replica("a");
    replica.loaded().await;
    site.cluster.refuse("update configmaps", forbidden("update", "configmaps"));
    let refused = replica.put("plan/a", "x", Precondition::Any).await.unwrap_err();
    assert!(
        matches!(&refused, WriteError::Refused(reason) if reason.ends_with("a Role has to allow \"update\" for \"configmaps\"")),
        "{refused}"
    );
    assert!(replica.session.lease_left().is_some(), "the session goes on");

    let empty = Site::new();
    empty.cluster.delete_namespace();
    let mut replica = empty.replica("a");
    let reason = replica.lost().await;
    assert!(reason.contains("status 404: namespaces \"infra\" not found"), "{reason}");
    empty.cluster.create_namespace();
    replica.is_back().await;
}

#[tokio::test]
async fn ldg_5_a_server_that_is_busy_is_left_alone() {
    let site = Site::new();
    site.cluster.refuse("list configmaps", (429, "too many requests".to_owned(), Some(3)));
    let mut replica = site.replica("a");
    let begin = Instant::now();
    assert!(replica.lost().await.contains("status 429: too many requests"));
    let asked = site.cluster.objects().asked.len();
    site.cluster.allow();
    replica.loaded().await;
    assert!(begin.elapsed() > Duration::from_millis(2900), "{:?}", begin.elapsed());
    assert_eq!(asked, 2, "nothing was asked in between");
    // Later than the lease can bear: the lease is lost, and no request came meanwhile.
    site.cluster.refuse("patch leases", (429, "too many requests".to_owned(), Some(2)));
    replica.lost().await;
    let asked = site.cluster.objects().asked.len();
    site.cluster.allow();
    let put = replica.put("plan/a", "x", Precondition::Any).await;
    assert!(matches!(put, Err(WriteError::Failed(_))));
    assert_eq!(site.cluster.objects().asked.len(), asked);
    replica.is_back().await;
}

#[tokio::test]
async fn ldg_1_a_rotated_token_is_read_anew() {
    let site = Site::new();
    site.cluster.change(|objects| objects.tokens.insert("one".to_owned()));
    // Long enough that a slow machine loses no lease before.
    let mut replica = site.with_lease("a", Duration::from_secs(5));
    replica.loaded().await;
    fs::write(site.directory.path().join("token"), "two").unwrap();
    site.cluster.change(|objects| objects.tokens = ["two".to_owned()].into());
    // The relay knows the old token yet, and the server takes the new one only.
    let reason = replica.lost().await;
    assert!(
        reason.ends_with("status 401: Unauthorized; the credentials are not valid (any more)"),
        "{reason}"
    );
    assert!(!reason.contains("one") && !reason.contains("two"));
    replica.is_back().await;
    assert_eq!(site.cluster.objects().asked.last().unwrap().1, "two");
    assert!(replica.put("plan/a", "x", Precondition::Any).await.is_ok());
}

#[tokio::test]
async fn ldg_6_a_ledger_that_was_deleted_has_another_identity() {
    let site = Site::new();
    let mut replica = site.replica("a");
    let first = replica.loaded().await.0;
    replica.put("plan/a", "x", Precondition::Any).await.unwrap();
    assert!(matches!(replica.event().await, LedgerEvent::Changed(_)));
    // One entry: the caller hears so.
    site.cluster.forget("plan/a");
    assert_eq!(replica.loses().await, "plan/a");
    // The ledger itself.
    site.cluster.change(|objects| objects.remove("configmaps", "sluice"));
    assert_eq!(replica.lost().await, "the ConfigMap \"sluice\" of the ledger was deleted");
    let second = replica.is_back().await.0;
    assert_ne!(first, second);
    // The namespace, made again.
    site.cluster.delete_namespace();
    replica.lost().await;
    site.cluster.create_namespace();
    let third = replica.is_back().await.0;
    assert!(third != first && third != second);
}

#[tokio::test]
async fn ldg_1_foreign_content_is_a_loss() {
    let site = Site::new();
    let mut replica = site.replica("a");
    replica.loaded().await;
    site.cluster.put_map("notes", json!({ "key": "plan/a", "value": "x" }));
    let words = "the ConfigMap \"notes\" has the label sluice/ledger, and is no entry of the ledger";
    assert_eq!(replica.lost().await, words);
    let leases = site.cluster.asked("create leases");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(site.cluster.asked("create leases"), leases, "a load of such content costs no lease");
    site.cluster.change(|objects| objects.remove("configmaps", "notes"));
    replica.is_back().await;
    replica.put("plan/a", "x", Precondition::Any).await.unwrap();
    assert!(matches!(replica.event().await, LedgerEvent::Changed(_)));
    let name = site.cluster.entry("plan/a").unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    site.cluster.put_map(&name, json!({ "key": "plan/a", "value": "x".repeat((64 << 10) + 1) }));
    assert_eq!(replica.lost().await, "the entry \"plan/a\" has 65537 bytes; at most 65536 are taken");
}

#[tokio::test]
async fn ldg_5_a_server_that_restarts_is_loaded_again() {
    let mut site = Site::new();
    let mut replica = site.replica("a");
    let identity = replica.loaded().await.0;
    replica.put("plan/a", "x", Precondition::Any).await.unwrap();
    assert!(matches!(replica.event().await, LedgerEvent::Changed(_)));
    site.cluster.down();
    let reason = replica.lost().await;
    assert!(reason.starts_with("cannot "), "{reason}");
    assert!(matches!(replica.put("plan/a", "y", Precondition::Any).await, Err(WriteError::Failed(_))));
    site.cluster.up();
    assert_eq!(replica.is_back().await, (identity, vec!["plan/a".to_owned()]));
    // A server that says nothing is one that is away.
    site.cluster.freeze(true);
    let begin = Instant::now();
    let put = replica.put("plan/a", "y", Precondition::Any).await.unwrap_err();
    assert!(matches!(put, WriteError::Failed(_)) && begin.elapsed() < Duration::from_secs(6), "{put}");
    assert_eq!(replica.session.lease_left(), None);
    site.cluster.freeze(false);
    replica.is_back().await;
}
