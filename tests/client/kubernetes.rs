//! The registry of a cluster, against an API server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice::kubernetes::{ClusterAccess, Interest, PodRegistry, RegistryNews};
use sluice_engine::class::facts::FactTable;
use sluice_xds::Value;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::api_server::Api;

const DEADLINE: Duration = Duration::from_secs(15);

struct Site {
    api: Api,
    registry: PodRegistry,
    directory: TempDir,
}

async fn site() -> Site {
    let (api, directory) = (Api::start().await, tempfile::tempdir().unwrap());
    api.node("n1", "z1");
    api.bookmarks(Duration::from_millis(50));
    let registry = registry(api.kubeconfig(directory.path(), "first"), true);
    Site { api, registry, directory }
}

fn registry(kubeconfig: PathBuf, nodes: bool) -> PodRegistry {
    PodRegistry::new(&Interest {
        access: ClusterAccess { kubeconfig: Some(kubeconfig), context: None },
        nodes,
    })
}

impl Site {
    async fn next(&mut self) -> RegistryNews {
        timeout(DEADLINE, self.registry.next()).await.expect("a report")
    }

    /// The next other facts. No fault comes before.
    async fn facts(&mut self) -> Arc<FactTable> {
        loop {
            match self.next().await {
                RegistryNews::Facts(table) => return table,
                RegistryNews::Confirmed | RegistryNews::Refused(_) => {}
                RegistryNews::Fault(fault) => panic!("{fault}"),
            }
        }
    }

    /// The facts once they are as expected.
    async fn facts_are(&mut self, expected: &[&str]) {
        loop {
            if told(&*self.facts().await) == expected {
                return;
            }
        }
    }

    async fn fault(&mut self) -> String {
        loop {
            if let RegistryNews::Fault(fault) = self.next().await {
                return fault;
            }
        }
    }

    async fn confirmed(&mut self) {
        while !matches!(self.next().await, RegistryNews::Confirmed) {}
    }
}

/// The Pods `a`, `b` and `c` with their label `app` and zone.
fn told(table: &FactTable) -> Vec<String> {
    let of = |fields: &std::collections::BTreeMap<String, Value>, path: &[&str]| {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        Value::at(fields, &path).map(|value| value.to_string().replace('"', "")).unwrap_or_default()
    };
    let known = ["a", "b", "c"].into_iter().filter_map(|name| {
        let fields = table.get(&format!("{name}.prod"))?;
        Some(format!("{name} {} {}", of(fields, &["labels", "app"]), of(fields, &["zone"])))
    });
    known.collect()
}

#[tokio::test]
async fn rly_11_the_first_facts_are_those_of_all_pods_and_each_change_follows() {
    let mut site = site().await;
    site.api.pod("a", "10.0.0.1", "n1", &[("app", "web")]);
    for number in 0..1100 {
        site.api.pod(&format!("p{number}"), &format!("10.1.{}.{}", number / 250, number % 250), "n1", &[]);
    }
    let first = site.facts().await;
    assert_eq!((first.len(), told(&first)), (2202, vec!["a web z1".to_owned()]));
    let asked = site.api.asked();
    let pages = asked.iter().filter(|asked| asked.starts_with("pods") && asked.contains("limit=200"));
    assert_eq!(pages.count(), 6, "{asked:?}");

    site.confirmed().await;
    site.api.pod("b", "10.0.0.2", "n1", &[("app", "db")]);
    site.facts_are(&["a web z1", "b db z1"]).await;
    site.api.pod("a", "10.0.0.1", "n1", &[("app", "web-2")]);
    site.facts_are(&["a web-2 z1", "b db z1"]).await;
    site.api.node("n1", "z2");
    site.facts_are(&["a web-2 z2", "b db z2"]).await;
    site.api.remove("pods", "a");
    site.facts_are(&["b db z2"]).await;
}

/// Changes that come together make one table, so that the relay looks at its streams once.
#[tokio::test]
async fn rly_11_a_wave_of_changes_is_few_tables() {
    let mut site = site().await;
    site.facts().await;
    for number in 0..200 {
        site.api.pod(&format!("p{number}"), &format!("10.1.0.{number}"), "n1", &[]);
    }
    let mut tables = 1;
    while site.facts().await.len() < 400 {
        tables += 1;
    }
    assert!(tables <= 3, "{tables}");
}

/// A server that has forgotten the version of a watch (410) is asked for everything, and nobody is told: it is the protocol.
#[tokio::test]
async fn rly_11_a_version_that_the_server_has_forgotten_begins_a_list() {
    let mut site = site().await;
    site.api.pod("a", "10.0.0.1", "n1", &[("app", "web")]);
    site.api.pod("b", "10.0.0.2", "n1", &[("app", "web")]);
    assert_eq!(told(&*site.facts().await), ["a web z1", "b web z1"]);
    site.confirmed().await;
    site.api.remove("pods", "b");
    site.api.pod("c", "10.0.0.3", "n1", &[("app", "web")]);
    site.api.forget();
    site.facts_are(&["a web z1", "c web z1"]).await;
    site.api.pod("a", "10.0.0.1", "n1", &[("app", "other")]);
    site.facts_are(&["a other z1", "c web z1"]).await;
}

/// A watch that ends goes on from the last version that the server has named, and needs no list.
#[tokio::test]
async fn rly_11_a_watch_goes_on_from_the_last_bookmark() {
    let mut site = site().await;
    site.facts().await;
    site.confirmed().await;
    // Versions that no object of these kinds has.
    site.api.put("secrets", serde_json::json!({ "metadata": { "name": "s" } }));
    site.api.bookmarks(Duration::from_millis(20));
    let version = site.api.version();
    for _ in 0..20 {
        site.confirmed().await;
    }
    site.api.cut();
    site.api.pod("a", "10.0.0.1", "n1", &[("app", "web")]);
    site.facts_are(&["a web z1"]).await;
    let asked = site.api.asked();
    assert_eq!(asked.iter().filter(|asked| asked.contains("limit")).count(), 2, "{asked:?}");
    let last = asked.iter().rfind(|asked| asked.starts_with("pods")).unwrap();
    assert!(last.contains(&format!("resourceVersion={version} ")), "{asked:?}");
}

/// A token that expires: the facts stay, the fault is told once, and the file with the next token is read.
#[tokio::test]
async fn rly_11_credentials_that_expire_are_read_again() {
    let mut site = site().await;
    site.api.pod("a", "10.0.0.1", "n1", &[("app", "web")]);
    site.facts().await;
    site.confirmed().await;
    site.api.accept_only("second");
    let faults = [site.fault().await, site.fault().await];
    let mut sorted = faults.clone();
    sorted.sort();
    assert_eq!(sorted, ["Nodes: status 401: Unauthorized", "Pods: status 401: Unauthorized"]);
    site.api.kubeconfig(site.directory.path(), "second");
    site.api.pod("b", "10.0.0.2", "n1", &[("app", "db")]);
    site.facts_are(&["a web z1", "b db z1"]).await;
    site.api.bookmarks(Duration::from_millis(20));
    site.confirmed().await;
}

/// Without the right to read Nodes, no Pod has a place, and none has facts.
#[tokio::test]
async fn rly_11_a_missing_right_is_told_and_leaves_clients_alone() {
    let mut site = site().await;
    let text = "nodes is forbidden: User \"system:serviceaccount:x:sluice\" cannot list resource \"nodes\"";
    site.api.refuse("nodes", 403, text);
    site.api.pod("a", "10.0.0.1", "n1", &[("app", "web")]);
    assert_eq!(site.fault().await, format!("Nodes: status 403: {text}"));
    site.api.allow("nodes");
    assert_eq!(told(&*site.facts().await), ["a web z1"]);
    // One that does not ask for Nodes needs no such right.
    site.api.refuse("nodes", 403, text);
    site.registry = registry(site.api.kubeconfig(site.directory.path(), "first"), false);
    assert_eq!(told(&*site.facts().await), ["a web "]);
}

/// After a fault there may be another server, or another state: versions mean nothing, and everything is listed.
#[tokio::test]
async fn rly_11_after_a_fault_everything_is_listed() {
    let mut site = site().await;
    site.api.pod("a", "10.0.0.1", "n1", &[("app", "web")]);
    site.api.pod("b", "10.0.0.2", "n1", &[("app", "db")]);
    site.facts().await;
    site.confirmed().await;
    site.api.refuse("pods", 503, "restoring");
    assert_eq!(site.fault().await, "Pods: status 503: restoring");
    site.api.restore_without("a");
    site.api.allow("pods");
    site.facts_are(&["b db z1"]).await;
}

/// A server that goes away for the second time is told for the second time, also if it said nothing but a list in between.
#[tokio::test]
async fn rly_11_a_fault_is_told_again_after_a_list() {
    let (api, directory) = (Api::start().await, tempfile::tempdir().unwrap());
    let registry = registry(api.kubeconfig(directory.path(), "first"), false);
    let mut site = Site { api, registry, directory };
    site.facts().await;
    for _ in 0..2 {
        site.api.refuse("pods", 503, "away");
        assert_eq!(site.fault().await, "Pods: status 503: away");
        site.api.allow("pods");
        site.confirmed().await;
    }
}

/// Something in between that answers watches and says nothing is no word of the server: facts are listed again and again, and it is told.
#[tokio::test]
async fn rly_11_watches_that_end_at_once_confirm_nothing() {
    let mut site = site().await;
    site.facts().await;
    site.confirmed().await;
    site.api.end_watches(true);
    let mut faults = [site.fault().await, site.fault().await];
    faults.sort();
    assert_eq!(faults, ["Nodes: each watch ends at once", "Pods: each watch ends at once"]);
    site.api.pod("a", "10.0.0.1", "n1", &[("app", "web")]);
    site.facts_are(&["a web z1"]).await;
}

/// A watch without a version would begin somewhere, and lose what went before.
#[tokio::test]
async fn rly_11_a_list_without_a_version_is_a_fault() {
    let mut site = site().await;
    site.api.list_version("");
    assert!(site.fault().await.ends_with("the list has no resourceVersion"));
}

/// A program for credentials gets secrets and prints some.
#[tokio::test]
async fn rly_11_the_words_of_a_program_for_credentials_are_not_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let config = |command: &str, argument: &str| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": "http://127.0.0.1:1" } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": { "exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
                "command": command, "args": ["-c", argument],
                "env": [{ "name": "SECRET", "value": "hidden-text" }] } } }],
        })
        .to_string()
    };
    for (argument, expected) in [
        (
            "echo hidden-text; echo hidden-text >&2; exit 3",
            "the program for credentials failed: exit status: 3",
        ),
        ("echo hidden-text", "the program for credentials printed something else"),
    ] {
        std::fs::write(&file, config("sh", argument)).unwrap();
        let fault = match registry(file.clone(), false).next().await {
            RegistryNews::Fault(fault) => fault,
            other => panic!("{other:?}"),
        };
        assert!(fault.contains(expected) && !fault.contains("hidden"), "{fault}");
    }
}

/// Silence is no confirmation.
#[tokio::test]
async fn rly_11_a_server_that_falls_silent_is_told() {
    let mut site = site().await;
    site.facts().await;
    site.confirmed().await;
    site.api.freeze(true);
    tokio::time::pause();
    let fault = loop {
        match site.registry.next().await {
            RegistryNews::Fault(fault) => break fault,
            // On its way before.
            RegistryNews::Confirmed => {}
            other => panic!("{other:?}"),
        }
    };
    tokio::time::resume();
    assert!(fault.ends_with("the watch is silent"), "{fault}");
    site.api.freeze(false);
    site.confirmed().await;
}

#[tokio::test]
async fn rly_11_a_file_that_is_none_is_named_without_its_text() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let access = |context: Option<&str>| ClusterAccess {
        kubeconfig: Some(file.clone()),
        context: context.map(str::to_owned),
    };
    assert!(access(None).check().unwrap_err().contains("No such file"));
    std::fs::write(&file, "root:hidden-text: [").unwrap();
    let fault = access(None).check().unwrap_err();
    assert!(fault.ends_with("kubeconfig: not a kubeconfig"), "{fault}");
    let api = Api::start().await;
    api.kubeconfig(directory.path(), "x");
    assert_eq!(access(None).check(), Ok(()));
    assert!(access(Some("other")).check().unwrap_err().ends_with("no context \"other\""));
}
