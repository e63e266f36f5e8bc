//! Two relays with one plan that decide together through a scripted API server of Kubernetes (LDG-3 to LDG-6).

use std::time::{Duration, Instant};

use crate::support::cluster::Cluster;
use crate::support::control_plane::eventually;
use crate::support::{CDS, Client, ControlPlane, Relay, Setup, Variant};

/// Every client is admitted to the first step.
const PLAN: &str = "rollouts: [ { name: edge, mode: enforce, gather: { quiet: 100ms, max: 1s }, steps: [ { percent: 100, \
                    bake: 5s } ], final_bake: 1s, halt_on: { rejected_percent: 0 } } ]";

/// From the first rejection at any replica to the halt at each.
const HALT: Duration = Duration::from_millis(1500);

async fn replica(origin: &ControlPlane, name: &str, kubeconfig: &std::path::Path) -> Relay {
    let ledger = format!(
        "ledger: {{ replica: {name}, lease: 5s, kubernetes: {{ name: edge, kubeconfig: {kubeconfig:?} }} }}"
    );
    Relay::start(Setup::of(origin.address).line(PLAN).line(&ledger)).await
}

#[tokio::test]
async fn ldg_4_a_halt_at_one_is_a_halt_at_the_other() {
    let (cluster, directory) = (Cluster::start(), tempfile::tempdir().unwrap());
    let kubeconfig = cluster.kubeconfig(directory.path(), "token");
    let origin = ControlPlane::obedient().await;
    origin.set(CDS, "web", "1");
    let relays = [replica(&origin, "one", &kubeconfig).await, replica(&origin, "two", &kubeconfig).await];
    let mut clients = Vec::new();
    for (number, relay) in relays.iter().enumerate() {
        let mut client = Client::open(&relay.address, Variant::Delta, &format!("envoy-{number}")).await;
        client.want(CDS, &["*"]);
        client.settle(CDS, &[("web", "1")]).await;
        clients.push(client);
    }
    for relay in &relays {
        eventually("each relay acts on the ledger", async || {
            let ledger = &relay.json("/rollouts/edge").await["ledger"];
            ledger["fault"].is_null() && ledger["replicas"].as_array().is_some_and(|all| all.len() == 2)
        })
        .await;
        assert_eq!(relay.metric("sluice_ledger_connected", &["kind=\"kubernetes\""]).await, 1.0);
    }

    origin.set(CDS, "web", "2");
    let bad = clients[0].next(CDS).await;
    clients[1].settle(CDS, &[("web", "2")]).await;
    clients[0].nack(&bad, "web: no such filter");
    let rejected_at = Instant::now();
    for relay in &relays {
        eventually("the halt", async || relay.json("/rollouts/edge").await["state"] == "halted").await;
    }
    let took = rejected_at.elapsed();
    assert!(took < HALT, "{took:?}");
    for client in &mut clients {
        client.settle(CDS, &[("web", "1")]).await;
    }

    // Nobody believes a ledger that was deleted and made again, until an operator says so.
    cluster.change(|objects| objects.remove("configmaps", "edge"));
    for relay in &relays {
        eventually("the loss", async || {
            let fault = relay.json("/ledger").await["fault"].as_str().unwrap_or_default().to_owned();
            fault.starts_with("the ledger has lost its data: it is uid-")
        })
        .await;
        let (status, answer) = relay.post("/ledger/init").await;
        assert_eq!(status, 200, "{answer}");
        eventually("the word of the operator", async || relay.json("/ledger").await["fault"].is_null()).await;
    }
}

/// An order acts on all or says that it does not.
#[tokio::test]
async fn ldg_5_orders_that_the_ledger_does_not_take_are_503() {
    let (mut cluster, directory) = (Cluster::start(), tempfile::tempdir().unwrap());
    let kubeconfig = cluster.kubeconfig(directory.path(), "token");
    let full = (403, "exceeded quota".to_owned(), None);
    let origin = ControlPlane::obedient().await;
    let relay = replica(&origin, "one", &kubeconfig).await;
    let fault = async || relay.json("/ledger").await["fault"].as_str().unwrap_or_default().to_owned();
    eventually("the ledger", async || fault().await.is_empty()).await;
    assert_eq!(relay.metric("sluice_ledger_believed", &["kind=\"kubernetes\""]).await, 1.0);

    cluster.refuse("create configmaps", full.clone());
    cluster.refuse("update configmaps", full);
    for told in
        ["done at this replica alone: the ledger has not taken it yet: ", "the ledger takes no writes"]
    {
        let (status, answer) = relay.post("/freeze?for=1h").await;
        assert!(
            status == 503 && answer.contains(told) && answer.contains("exceeded quota"),
            "{status} {answer}"
        );
    }
    assert_eq!(relay.json("/rollouts/edge").await["ledger"]["unwritten"], true);
    cluster.allow();
    eventually("the ledger has the freeze", async || cluster.entry("plan/edge").is_some()).await;
    eventually("orders", async || relay.post("/unfreeze").await.0 == 200).await;

    cluster.down();
    eventually("the loss", async || !fault().await.is_empty()).await;
    assert_eq!(relay.metric("sluice_ledger_believed", &["kind=\"kubernetes\""]).await, 0.0);
    assert_eq!(relay.post("/freeze?for=1h").await.0, 503);
    let (status, answer) = relay.post("/ledger/init").await;
    assert!(status == 409 && answer.contains("there is none to believe"), "{status} {answer}");
}
