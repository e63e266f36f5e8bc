//! First answers by rank (ORD-12), and endpoints of new clusters before the routes (ORD-13).

use std::time::Duration;

use crate::downstream::SourceId;
use crate::downstream::UnsentNews;
use crate::downstream::WhyUnsent;
use crate::downstream::tests::bench::{Bench, CDS, EDS, LDS, RDS, url};
use crate::downstream::tests::order::*;

fn held_by(bench: &Bench, client: ClientId, message: &str) -> Option<WhyUnsent> {
    let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
    let session = &bench.clients[client].session;
    let index = session.subscriptions().iter().position(|of| of.type_url == url(message)).unwrap();
    let UnsentNews { why, .. } = session.reports(&latest, bench.now).swap_remove(index).unsent?;
    Some(why)
}

#[test]
fn ord_12_the_first_routes_wait_for_the_first_clusters() {
    for delta in [false, true] {
        for (message, list) in [(RDS, "r"), (LDS, "")] {
            let mut bench = Bench::cold();
            let client = if delta { bench.delta() } else { bench.sotw() };
            want(&mut bench, client, CDS, "");
            want(&mut bench, client, message, list);
            bench.says(message, "r=x");
            bench.says_of_all(message, "r=x", true);
            assert_eq!(bench.poll(client), "");
            assert_eq!(held_by(&bench, client, message), Some(WhyUnsent::Order(url(CDS))));
            bench.advance(Duration::from_secs(9));
            assert_eq!(bench.poll(client), "");
            bench.says_of_all(CDS, "x=1", true);
            let short = url(message).short().to_owned();
            assert_eq!(bench.drain(client), format!("Cluster x=1; {short} r=x"));
        }
    }
}

#[test]
fn ord_12_first_routes_wait_for_10_seconds_at_the_most() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "");
        bench.advance(Duration::from_secs(4));
        want(&mut bench, client, RDS, "r");
        bench.says(RDS, "r=x");
        assert_eq!(bench.poll(client), "");
        assert_eq!(bench.clients[client].session.held_until(), Some(bench.now + Duration::from_secs(6)));
        bench.advance(Duration::from_secs(6));
        assert_eq!(bench.poll(client), "RouteConfiguration r=x");
    }
}

/// A set that is empty is an answer, and so is silence about content that the client has.
#[test]
fn ord_12_nothing_waits_for_what_the_client_is_not_owed() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1"), (RDS, "r=x")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, RDS, "r");
        assert_eq!(bench.poll(client), "RouteConfiguration r=x", "a client without clusters");
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            let x = crate::downstream::tests::bench::version_of(CDS, "x=1");
            bench.change_with(client, CDS, "", "", &[("x", x)], None);
        } else {
            let x = crate::downstream::tests::bench::version_of(CDS, "x=1").to_string();
            bench.ask_with(client, CDS, "", "", &x, None);
        }
        want(&mut bench, client, RDS, "r");
        assert_eq!(bench.poll(client), "RouteConfiguration r=x");
    }
}

#[test]
fn ord_12_names_without_a_sign_are_no_reason_to_wait_once_the_server_answers() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1"), (RDS, "r=x")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, EDS, "e");
        want(&mut bench, client, RDS, "r");
        // Files know all: there is no such name.
        assert!(bench.drain_now(client).ends_with("RouteConfiguration r=x"));
    }
}

/// A client of clusters, endpoints and the route `r`, which has the cluster `a` with its endpoints.
fn with_endpoints(delta: bool) -> (Bench, ClientId) {
    let mut bench = Bench::files(&[(CDS, "a=e1"), (EDS, "a=1 b=1 c=1"), (RDS, "r=a")]);
    let client = if delta { bench.delta() } else { bench.sotw() };
    want(&mut bench, client, CDS, "");
    want(&mut bench, client, EDS, "a");
    want(&mut bench, client, RDS, "r");
    bench.drain(client);
    (bench, client)
}

fn ask_endpoints(bench: &mut Bench, client: ClientId, delta: bool) {
    if delta {
        bench.change(client, EDS, "+b");
    } else {
        bench.ask(client, EDS, "a b");
    }
}

fn clusters(delta: bool, new: &str) -> String {
    if delta { format!("Cluster {new}") } else { format!("Cluster a=e1 {new}") }
}

#[test]
fn ord_13_a_route_follows_the_endpoints_of_a_new_cluster() {
    for delta in [false, true] {
        let (mut bench, client) = with_endpoints(delta);
        bench.state(0, &[(CDS, "a=e1 b=e1"), (EDS, "a=1 b=1 c=1"), (RDS, "r=b")]);
        assert_eq!(bench.poll(client), clusters(delta, "b=e1"));
        assert_eq!(bench.poll(client), "");
        assert_eq!(held_by(&bench, client, RDS), Some(WhyUnsent::Order(url(EDS))));
        ask_endpoints(&mut bench, client, delta);
        assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
        assert_eq!(bench.poll(client), "RouteConfiguration r=b", "the ACK of the clusters may come later");
        bench.ack(client, CDS);
        assert_eq!(bench.drain(client), "");
        assert_eq!(bench.clients[client].session.held_until(), None);
    }
}

#[test]
fn ord_13_it_follows_them_soon_if_the_client_asks_for_none() {
    let ask = Duration::from_millis(100);
    for delta in [false, true] {
        for nack in [false, true] {
            let (mut bench, client) = with_endpoints(delta);
            bench.state(0, &[(CDS, "a=e1 b=e1"), (EDS, "a=1 b=1 c=1"), (RDS, "r=b")]);
            assert_eq!(bench.poll(client), clusters(delta, "b=e1"));
            match nack {
                true => drop(bench.nack(client, CDS)),
                false => drop(bench.ack(client, CDS)),
            }
            assert_eq!(bench.poll(client), "");
            assert_eq!(bench.clients[client].session.held_until(), Some(bench.now + ask));
            bench.advance(ask);
            assert_eq!(bench.poll(client), "RouteConfiguration r=b");
        }
    }
}

#[test]
fn ord_13_it_waits_two_seconds_at_the_most() {
    for delta in [false, true] {
        for asks in [false, true] {
            let (mut bench, client) = with_endpoints(delta);
            bench.state(0, &[(CDS, "a=e1 b=e1"), (EDS, "a=1 c=1"), (RDS, "r=b")]);
            assert_eq!(bench.poll(client), clusters(delta, "b=e1"));
            if asks {
                // Files know that there is none.
                ask_endpoints(&mut bench, client, delta);
            } else {
                assert_eq!(bench.poll(client), "");
                bench.advance(Duration::from_secs(2));
            }
            assert!(bench.drain_now(client).ends_with("RouteConfiguration r=b"));
        }
        let mut bench = Bench::cold();
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "");
        want(&mut bench, client, EDS, "a");
        want(&mut bench, client, RDS, "r");
        bench.says_of_all(CDS, "a=e1", true);
        bench.says(EDS, "a=1");
        bench.says(RDS, "r=a");
        bench.drain(client);
        bench.says_of_all(CDS, "a=e1 b=e1", true);
        bench.says(RDS, "r=b");
        assert_eq!(bench.poll(client), clusters(delta, "b=e1"));
        ask_endpoints(&mut bench, client, delta);
        bench.ack(client, CDS);
        bench.advance(Duration::from_millis(1999));
        assert_eq!(bench.poll(client), "", "the server does not answer");
        bench.advance(Duration::from_millis(1));
        assert_eq!(bench.poll(client), "RouteConfiguration r=b");
    }
}

#[test]
fn ord_13_a_client_that_asks_for_no_endpoints_waits_for_none() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "a=e1"), (RDS, "r=a")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "");
        want(&mut bench, client, RDS, "r");
        assert_eq!(bench.poll(client), "Cluster a=e1");
        assert_eq!(bench.poll(client), "RouteConfiguration r=a");
        bench.drain(client);
        bench.ack(client, CDS);
        bench.ack(client, RDS);
        bench.state(0, &[(CDS, "a=e1 b=e1"), (RDS, "r=b")]);
        assert_eq!(bench.poll(client), clusters(delta, "b=e1"));
        assert_eq!(bench.poll(client), "RouteConfiguration r=b");
        // Nor for those of a changed cluster, which it has.
        let (mut bench, client) = with_endpoints(delta);
        bench.state(0, &[(CDS, "a=e2"), (EDS, "a=1"), (RDS, "r=a2")]);
        assert_eq!(bench.poll(client), "Cluster a=e2");
        assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
        assert_eq!(bench.poll(client), "RouteConfiguration r=a2");
    }
}

/// The first cluster with endpoints. The client's answer for the clusters tells whether it uses endpoints.
#[test]
fn ord_13_the_first_endpoints_of_a_stream_go_before_the_route_too() {
    for delta in [false, true] {
        for asks in [false, true] {
            let mut bench = Bench::files(&[(CDS, "a=1"), (EDS, "b=1"), (RDS, "r=a")]);
            let client = join(&mut bench, delta);
            bench.state(0, &[(CDS, "a=1 b=e1"), (EDS, "b=1"), (RDS, "r=b")]);
            assert_eq!(bench.poll(client), if delta { "Cluster b=e1" } else { "Cluster a=1 b=e1" });
            assert_eq!(bench.poll(client), "");
            if asks {
                want(&mut bench, client, EDS, "b");
                assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
            } else {
                bench.ack(client, CDS);
            }
            assert_eq!(bench.poll(client), "RouteConfiguration r=b");
        }
    }
}

/// Clusters that change all the time give the routes a turn (ORD-10).
#[test]
fn ord_13_new_clusters_without_an_end_hold_no_route_for_ever() {
    for delta in [false, true] {
        let (mut bench, client) = with_endpoints(delta);
        let (mut names, mut waited) = ("a=e1".to_owned(), 0);
        let got = loop {
            names += &format!(" n{waited}=e1");
            bench.state(0, &[(CDS, &names), (EDS, "a=1"), (RDS, "r=b")]);
            bench.advance(Duration::from_millis(500));
            let text = bench.poll(client);
            if text.starts_with("Route") {
                break text;
            }
            bench.ack(client, CDS);
            waited += 1;
            assert!(waited < 40, "{text}");
        };
        assert_eq!(got, "RouteConfiguration r=b");
    }
}

/// A client that comes again asks at once for everything that it knows of, and later for the endpoints of new clusters.
#[test]
fn ord_13_a_client_that_comes_again_gets_the_endpoints_of_new_clusters_before_the_route() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "a=e1 b=e1"), (EDS, "a=1 b=1"), (RDS, "r=b")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "");
        assert_eq!(bench.poll(client), "Cluster a=e1 b=e1");
        want(&mut bench, client, EDS, "a");
        want(&mut bench, client, RDS, "r");
        assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
        assert_eq!(bench.poll(client), "");
        bench.ack(client, EDS);
        ask_endpoints(&mut bench, client, delta);
        assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
        assert_eq!(bench.poll(client), "RouteConfiguration r=b");
    }
}
