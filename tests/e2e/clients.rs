//! The operator's view of single clients, with real streams.

use serde_json::Value;

use crate::commands::sluice;
use crate::support::client::fetch;
use crate::support::control_plane::eventually;
use crate::support::words::eds_cluster;
use crate::support::{Ask, CDS, Client, ControlPlane, EDS, RDS, Relay, Setup, Variant};

/// The type of a client in `/clients`.
async fn of(relay: &Relay, node: &str, message: &str) -> Value {
    let list = relay.json(&format!("/clients?node={node}&type={message}")).await;
    list["clients"][0]["types"][0].clone()
}

/// ADM-7, RLY-71: the routes of a client that ACKs clusters late are held back, which is not in sync.
#[tokio::test]
async fn adm_7_routes_wait_for_a_late_ack_of_clusters() {
    for variant in Variant::BOTH {
        let origin = ControlPlane::obedient().await;
        let relay = Relay::start(Setup::of(origin.address)).await;
        origin.set(CDS, "web", "1");
        origin.set(RDS, "route", "1");
        let mut client = Client::open(&relay.address, variant, "late").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        client.want(RDS, &["route"]);
        client.take(RDS).await;
        eventually("in sync", || async {
            let (cds, rds) =
                (of(&relay, "late", "Cluster").await, of(&relay, "late", "RouteConfiguration").await);
            [cds, rds]
                .iter()
                .all(|of| of["state"] == "SYNCED" && of["why"].is_null() && of["has"] == of["should"])
        })
        .await;

        origin.set(CDS, "web", "2");
        let first = client.next(CDS).await;
        let cds = of(&relay, "late", "Cluster").await;
        assert_eq!((&cds["state"], &cds["why"]), (&"STALE".into(), &"unacked".into()), "{cds}");
        assert_ne!(cds["has"], cds["should"], "{cds}");
        origin.set(CDS, "new", "1");
        origin.set(RDS, "route", "2");
        eventually("the routes wait", || async {
            let rds = of(&relay, "late", "RouteConfiguration").await;
            (rds["state"] == "STALE" && rds["why"] == "held:order" && rds["has"] != rds["should"])
                && rds["state_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0)
                && rds["since"].as_str().is_some_and(|since| since.ends_with('Z'))
        })
        .await;
        let path = "/clients?state=STALE&why=held:order&sort=behind&behind_for=1ms";
        eventually("behind for a millisecond", || async { relay.json(path).await["count"] == 1 }).await;
        // Another change of the type may begin the time anew.
        let listed = relay.json("/clients?state=STALE&why=held:order").await;
        let id = listed["clients"][0]["id"].as_u64().unwrap();
        let names = relay.json(&format!("/clients/{id}?type=RouteConfiguration&names=1")).await;
        let row = &names["types"][0]["names"][0];
        assert_eq!((&row["name"], &row["why"]), (&"route".into(), &"held:order".into()), "{row}");
        assert_ne!(row["has"], row["should"], "{row}");

        client.ack(&first);
        client.settle(CDS, &[("web", "2"), ("new", "1")]).await;
        client.settle(RDS, &[("route", "2")]).await;
        eventually("in sync", || async {
            let rds = of(&relay, "late", "RouteConfiguration").await;
            rds["state"] == "SYNCED" && rds["has"] == rds["should"]
        })
        .await;
    }
}

/// ORD-5: equal endpoints are sent again after their cluster, to a client that answers no more. The client has the accepted content.
#[tokio::test]
async fn adm_7_a_client_has_what_it_accepted_while_it_is_sent_again() {
    for variant in Variant::BOTH {
        let origin = ControlPlane::obedient().await;
        let relay = Relay::start(Setup::of(origin.address)).await;
        let cluster = |text| eds_cluster("web", "web", text);
        origin.change(|world| world.set(CDS, "web", cluster("1"), true));
        origin.set(EDS, "web", "1");
        let mut client = Client::open(&relay.address, variant, "hung").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        client.want(EDS, &["web"]);
        client.take(EDS).await;
        eventually("in sync", || async {
            let of = of(&relay, "hung", "ClusterLoadAssignment").await;
            of["state"] == "SYNCED" && of["has"] == of["should"] && of["version_acked"] == of["version_sent"]
        })
        .await;
        let before = of(&relay, "hung", "ClusterLoadAssignment").await;
        origin.change(|world| world.set(CDS, "web", cluster("2"), true));
        client.take(CDS).await;
        client.next(EDS).await;
        eventually("unanswered", || async {
            of(&relay, "hung", "ClusterLoadAssignment").await["why"] == "unacked"
        })
        .await;
        let now = of(&relay, "hung", "ClusterLoadAssignment").await;
        for key in ["has", "should", "version_sent", "version_acked"] {
            assert_eq!(now[key], before[key], "{key}: {now}");
        }
        let who = relay.json("/who?type=ClusterLoadAssignment&name=web").await;
        assert_eq!(who["has"]["count"], 1, "{who}");
        eventually("no difference", || async {
            sluice(&relay.admin, &["diff", "client", "hung"]).await.code == 0
        })
        .await;
    }
}

/// The NACK stands beside the resource that its text names. The client has the former content.
#[tokio::test]
async fn adm_7_a_rejection_stands_beside_its_resource() {
    for variant in Variant::BOTH {
        let origin = ControlPlane::obedient().await;
        let relay = Relay::start(Setup::of(origin.address)).await;
        origin.set_many(CDS, &[("good", "1"), ("web", "1")]);
        let mut client = Client::open(&relay.address, variant, "picky").await;
        client.want(CDS, &["*"]);
        client.take(CDS).await;
        origin.set(CDS, "web", "2");
        let answer = client.next(CDS).await;
        client.nack(&answer, "Error adding/updating cluster(s) web: no such extension");
        eventually("the rejection", || async { of(&relay, "picky", "Cluster").await["why"] == "rejected" })
            .await;
        let id = relay.json("/clients?node=picky").await["clients"][0]["id"].as_u64().unwrap();
        let client = relay.json(&format!("/clients/{id}?names=1")).await;
        let names = client["types"][0]["names"].as_array().unwrap().clone();
        assert_eq!((&names[0]["name"], &names[0]["state"]), (&"good".into(), &"SYNCED".into()), "{client}");
        assert!(names[0].get("nack").is_none(), "{client}");
        assert_eq!((&names[1]["name"], &names[1]["why"]), (&"web".into(), &"rejected".into()), "{client}");
        assert!(names[1]["nack"].as_str().unwrap().contains("no such extension"), "{client}");
        assert!(names[1]["has"].is_string() && names[1]["has"] != names[1]["should"], "{client}");
    }
}

/// ADM-9: questions about a client that has not answered an update.
#[tokio::test]
async fn adm_9_a_client_is_explained_and_compared() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    origin.set_many(CDS, &[("web", "1"), ("old", "1")]);
    let mut slow = Client::open(&relay.address, Variant::Delta, "slow").await;
    slow.want(CDS, &["*"]);
    slow.take(CDS).await;
    let mut quick = Client::open(&relay.address, Variant::Delta, "quick").await;
    quick.want(CDS, &["*"]);
    quick.take(CDS).await;
    origin.set_many(CDS, &[("web", "2"), ("cart", "1")]);
    slow.next(CDS).await;
    quick.settle(CDS, &[("web", "2"), ("cart", "1"), ("old", "1")]).await;
    let id = async |node: &str| {
        relay.json(&format!("/clients?node={node}")).await["clients"][0]["id"].as_u64().unwrap()
    };
    let (slow_id, quick_id) = (id("slow").await, id("quick").await);
    eventually("quick is in sync, slow is not", || async {
        let who = relay.json("/who?type=Cluster&name=cart").await;
        who["has"]["clients"][0]["node"] == "quick" && who["lacks"]["clients"][0]["node"] == "slow"
    })
    .await;
    for (to, has_state) in [("desired".to_owned(), true), (format!("client:{quick_id}"), false)] {
        let diff = relay.json(&format!("/clients/{slow_id}/diff?to={to}")).await;
        let of = &diff["types"][0];
        assert_eq!(of["added"], serde_json::json!(["cart"]), "{diff}");
        assert_eq!(of["changed"][0]["name"], "web", "{diff}");
        assert_eq!((&of["removed_count"], &of["why"]), (&0.into(), &"unacked".into()), "{has_state} {diff}");
    }
    let why = relay.json(&format!("/clients/{slow_id}/explain?type=Cluster&name=cart")).await;
    assert_eq!(why["class"]["rule"], "node_classes[0] (default)", "{why}");
    assert_eq!(why["list"]["preferred"], true, "{why}");
    assert_eq!(
        (&why["name"]["state"], &why["name"]["collection"]),
        (&"PRESENT".into(), &"wildcard".into()),
        "{why}"
    );
    assert_eq!(why["state"]["why"], "unacked", "{why}");
    assert_eq!(relay.get("/who?type=Cluster&name=card").await.0, 404);
    let class = relay.json("/classes").await["classes"][0].clone();
    assert_eq!((&class["class"], &class["clients"]), (&why["class"]["class"], &2.into()), "{class}");
}

/// RLY-73: an Envoy that asks for health discovery, again and again, is told of once.
#[tokio::test]
async fn rly_73_health_discovery_is_told_once() {
    let origin = ControlPlane::obedient().await;
    let relay = Relay::start(Setup::of(origin.address)).await;
    for _ in 0..3 {
        let path = "/envoy.service.health.v3.HealthDiscoveryService/FetchHealthCheck";
        let status = fetch(&relay.address, path, Ask::default()).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented);
    }
    relay.logged("clients ask for health discovery (HDS), which the relay does not have").await;
    assert_eq!(relay.log_lines("WARN").len(), 1);
    assert_eq!(relay.metric("sluice_downstream_calls_unimplemented_total", &[]).await, 3.0);
}
