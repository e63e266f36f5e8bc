//! Removals that wait for the routes, for clients that leave a server and come back meanwhile: RLY-51.

use crate::downstream::tests::bench::{Bench, CDS, ClientId, EDS, RDS};
use crate::downstream::tests::fallback::*;

/// A client of complete sets with clusters `a` and `b`, and a route to `a` from the first server. The second server is heard, too.
fn client_with_a_route() -> (Bench, ClientId) {
    let mut bench = servers(2);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.ask(client, RDS, "r");
    bench.hear(0);
    bench.all(0, CDS, "a=1 b=1");
    bench.names(0, RDS, "r=a");
    assert_eq!(bench.follow(client), "Cluster a=1 b=1; RouteConfiguration r=a");
    (bench, client)
}

/// The first server is lost. The client lacks the endpoints `e`, which the second server has, beside other clusters and routes.
fn move_to_the_second(bench: &mut Bench, client: ClientId, (clusters, routes): (&str, &str)) {
    bench.lose(0);
    bench.ask(client, EDS, "e");
    bench.shift(client);
    bench.hear(1);
    bench.all(1, CDS, clusters);
    bench.names(1, RDS, routes);
    bench.names(1, EDS, "e=1");
    bench.shift(client);
    assert_eq!(bench.serving(client), 1);
}

fn move_back(bench: &mut Bench, client: ClientId) {
    bench.hear(0);
    bench.names(0, EDS, "-e");
    bench.shift(client);
    assert_eq!(bench.serving(client), 0);
}

#[test]
fn rly_51_a_removal_waits_though_the_client_was_away_meanwhile() {
    let (mut bench, client) = client_with_a_route();
    bench.all(0, CDS, "-a");
    bench.names(0, RDS, "r=b");
    assert_eq!(bench.poll(client), "RouteConfiguration r=b");
    bench.all(0, CDS, "c=1");
    assert_eq!(bench.poll(client), "Cluster a=1 b=1 c=1", "the cluster a waits for the route");
    move_to_the_second(&mut bench, client, ("a=1 b=1 c=1", "r=b"));
    assert_eq!(bench.poll(client), "ClusterLoadAssignment e=1");
    move_back(&mut bench, client);
    bench.ack(client, CDS);
    bench.ack(client, EDS);
    assert_eq!(bench.poll(client), "", "the client has not answered for the route");
    bench.ack(client, RDS);
    bench.advance(SECOND * 16);
    assert_eq!(bench.drain(client), "Cluster b=1 c=1");
}

#[test]
fn rly_51_a_cluster_of_the_second_server_stays_over_two_more_moves() {
    let (mut bench, client) = client_with_a_route();
    move_to_the_second(&mut bench, client, ("a=1 b=1 c=1", "r=c"));
    assert_eq!(bench.drain(client), "Cluster a=1 b=1 c=1; ClusterLoadAssignment e=1; RouteConfiguration r=c");
    move_back(&mut bench, client);
    assert_eq!(
        bench.poll(client),
        "RouteConfiguration r=a",
        "the cluster c of the second server waits for it"
    );
    bench.lose(0);
    bench.ask(client, EDS, "e f");
    bench.shift(client);
    bench.hear(1);
    bench.all(1, CDS, "a=1 b=1 -c");
    bench.names(1, RDS, "r=b");
    bench.names(1, EDS, "e=1 f=1");
    bench.shift(client);
    assert_eq!(bench.serving(client), 1);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment f=1");
    assert_eq!(bench.poll(client), "", "the cluster c waits here, too");
}
