//! The guards of a plan that look into the contents of a push, of the built binary.

use crate::enforced::Fleet;
use crate::support::proto::Any;
use crate::support::{CDS, RDS};

const PLAN: &str = "rollouts: [ { name: edge, mode: enforce, gather: { quiet: 100ms, max: 1s }, \
                    steps: [ { percent: 50, bake: 1s } ], final_bake: 1s } ]";

/// A field of protobuf with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    [&[number << 3 | 2, length], content].concat()
}

fn put(fleet: &Fleet, type_url: &str, name: &str, value: Vec<u8>) {
    let body = Any { type_url: type_url.to_owned(), value };
    fleet.origin.change(|world| world.set(type_url, name, body, true));
}

/// The route configuration `r` with one route to a cluster.
fn route_to(fleet: &Fleet, cluster: &str) {
    let route = [field(1, &field(1, b"/")), field(2, &field(1, cluster.as_bytes()))].concat();
    let host = [field(1, b"h"), field(2, b"*"), field(3, &route)].concat();
    put(fleet, RDS, "r", [field(1, b"r"), field(2, &host)].concat());
}

/// GRD-6: nobody is given a cluster whose bytes are no cluster.
#[tokio::test]
async fn grd_6_a_cluster_that_cannot_be_read_halts_before_its_first_client() {
    let mut fleet = Fleet::with(|setup| setup, PLAN, 10).await;
    // The timeout is a message with half a tag.
    put(&fleet, CDS, "a", [field(1, b"a"), field(4, &[0xff])].concat());
    let found = fleet.until_plan("halt", |found| found["state"] == "halted").await;
    let why = found["why"].as_str().unwrap();
    assert!(why.contains("before its first client: Cluster \"a\" has bytes that are no "), "{why}");
    assert!(fleet.all_hold(CDS, &[("a", "1"), ("b", "1")]));
    fleet.origin.set(CDS, "a", "2");
    fleet.until("the mended cluster", |fleet| fleet.all_hold(CDS, &[("a", "2"), ("b", "1")])).await;
}

/// GRD-5, GRD-7: routes without their clusters are told, and go on.
#[tokio::test]
async fn grd_5_a_route_without_its_cluster_is_told_and_goes_on() {
    let mut fleet = Fleet::with(|setup| setup, PLAN, 10).await;
    route_to(&fleet, "pay");
    let over = |number: u64| {
        move |found: &serde_json::Value| found["state"] == "open" && found["pushes"][0] == number
    };
    fleet.until_plan("end of the push", over(1)).await;
    let notes = fleet.relay.json("/rollouts/edge/pushes/1").await["notes"].to_string();
    assert!(notes.contains("names the cluster \\\"pay\\\", which does not exist"), "{notes}");
    fleet.relay.logged("a guard warns of a push").await;
    assert_eq!(fleet.relay.warnings("a guard warns of a push").len(), 1, "{}", fleet.relay.log());
    route_to(&fleet, "b");
    fleet.until_plan("end of the next push", over(2)).await;
    let pushes = fleet.relay.json("/rollouts/edge/pushes/2").await;
    assert!(!pushes["notes"].to_string().contains("cluster"), "{pushes}");
    fleet.origin.remove(CDS, "b");
    fleet.until_plan("end of the removal", over(3)).await;
    let notes = fleet.relay.json("/rollouts/edge/pushes/3").await["notes"].to_string();
    assert!(
        notes.contains("the cluster \\\"b\\\" goes, and RouteConfiguration \\\"r\\\" names it"),
        "{notes}"
    );
}
