//! Waits of routing types and removals, and their ends: ORD-10, RLY-51.

use std::time::Duration;

use crate::downstream::tests::bench::{Bench, CDS, EDS, RDS};
use crate::downstream::tests::order::*;

#[test]
fn ord_10_a_removal_waits_15_seconds_at_the_most() {
    for (delta, nack) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1"), (RDS, "r=x")]);
        let client = join(&mut bench, delta);
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=y")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        if nack {
            bench.nack(client, RDS);
        }
        assert_eq!(bench.poll(client), "");
        assert_eq!(bench.clients[client].session.held_until(), Some(bench.now + REST));
        let until = bench.now + ORDER_WAIT_MAX;
        bench.advance(REST);
        assert_eq!(bench.poll(client), "");
        assert_eq!(bench.clients[client].session.held_until(), Some(until));
        bench.advance(ORDER_WAIT_MAX - REST - Duration::from_millis(1));
        assert_eq!(bench.poll(client), "");
        bench.advance(Duration::from_millis(1));
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
        assert_eq!(bench.clients[client].session.held_until(), None);
    }
}

/// A cluster goes while the client's first answer is unACKed, and the client's request for routes is still on its way.
#[test]
fn rly_51_a_removal_rests_for_routes_that_are_asked_for_before_the_client_can_be_told() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1"), (RDS, "r=x")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "");
        assert_eq!(bench.poll(client), "Cluster x=1 y=1");
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=x")]);
        assert_eq!(bench.poll(client), "");
        want(&mut bench, client, RDS, "r");
        assert_eq!(bench.poll(client), "RouteConfiguration r=x");
        bench.ack(client, RDS);
        bench.ack(client, CDS);
        assert_eq!(bench.poll(client), "", "the route to x may change in a moment");
        bench.advance(Duration::from_millis(1));
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=y")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        bench.advance(REST);
        assert_eq!(bench.poll(client), "");
        bench.ack(client, RDS);
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
    }
}

#[test]
fn rly_51_routes_that_never_rest_hold_no_removal_up() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1"), (RDS, "r=x")]);
        let client = join(&mut bench, delta);
        bench.state(0, &[(CDS, "x=1 y=1"), (RDS, "r=x2")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=x2");
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=y")]);
        assert_eq!(bench.poll(client), "");
        // The removal does not wait for the ACK of an earlier route.
        bench.ack(client, RDS);
        bench.advance(Duration::from_millis(240));
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=y2")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=y2");
        bench.advance(Duration::from_millis(10));
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=y3")]);
        assert_eq!(bench.poll(client), "");
        bench.ack(client, RDS);
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
        assert_eq!(bench.poll(client), "RouteConfiguration r=y3");
    }
}

#[test]
fn rly_51_each_removal_has_its_own_wait() {
    for delta in [false, true] {
        for apart in [Duration::from_millis(5), Duration::from_millis(300), Duration::from_secs(3)] {
            let mut bench = Bench::files(&[(CDS, "x=1 y=1 z=1"), (RDS, "r=x")]);
            let client = join(&mut bench, delta);
            bench.state(0, &[(CDS, "y=1 z=1"), (RDS, "r=y")]);
            assert_eq!(bench.poll(client), "RouteConfiguration r=y");
            assert_eq!(bench.poll(client), "");
            bench.advance(apart);
            bench.state(0, &[(CDS, "z=1 w=1"), (RDS, "r=z")]);
            assert_eq!(bench.poll(client), if delta { "Cluster w=1" } else { "Cluster w=1 x=1 y=1 z=1" });
            bench.ack(client, CDS);
            bench.ack(client, RDS);
            // The client has r=y now: x may go, unless x waits together with y.
            let together = apart < REST;
            let expected = if delta { "Cluster -x" } else { "Cluster w=1 y=1 z=1" };
            if !together {
                assert_eq!(bench.poll(client), expected);
                bench.ack(client, CDS);
            }
            assert_eq!(bench.poll(client), "RouteConfiguration r=z");
            assert_eq!(bench.poll(client), "");
            bench.ack(client, RDS);
            bench.advance(REST);
            let expected = match (delta, together) {
                (false, _) => "Cluster w=1 z=1",
                (true, true) => "Cluster -x -y",
                (true, false) => "Cluster -y",
            };
            assert_eq!(bench.poll(client), expected);
            assert_eq!(bench.drain(client), "");
        }
    }
}

#[test]
fn ord_10_endpoints_with_news_at_every_poll_give_the_routes_a_turn() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(EDS, "a=0"), (RDS, "r=0")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, EDS, "a");
        want(&mut bench, client, RDS, "r");
        bench.drain(client);
        let mut routes = Vec::new();
        for round in 1..100 {
            bench.state(0, &[(EDS, &format!("a={round}")), (RDS, &format!("r={round}"))]);
            bench.advance(Duration::from_millis(500));
            let text = bench.poll(client);
            if text.starts_with("Route") {
                routes.push(text);
                bench.ack(client, RDS);
            } else {
                bench.ack(client, EDS);
            }
        }
        assert_eq!(routes, ["RouteConfiguration r=31", "RouteConfiguration r=63", "RouteConfiguration r=95"]);
    }
}

#[test]
fn ord_10_what_waited_goes_in_order_though_more_comes() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=e1"), (EDS, "x=1"), (RDS, "r=x")]);
        let client = join(&mut bench, delta);
        want(&mut bench, client, EDS, "x");
        bench.drain(client);
        bench.state(0, &[(CDS, "x=e2"), (EDS, "x=1"), (RDS, "r=x")]);
        assert_eq!(bench.poll(client), "Cluster x=e2");
        assert_eq!(bench.poll(client), "ClusterLoadAssignment x=1");
        bench.state(0, &[(CDS, "x=e2 y=1"), (EDS, "x=1"), (RDS, "r=y")]);
        assert_eq!(bench.poll(client), "");
        bench.advance(ORDER_WAIT_MAX);
        assert_eq!(bench.poll(client), if delta { "Cluster y=1" } else { "Cluster x=e2 y=1" });
        // A later route names a cluster that the client cannot be sent yet.
        bench.state(0, &[(CDS, "x=e2 y=1 z=1"), (EDS, "x=1"), (RDS, "r=z")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        bench.ack(client, RDS);
        assert_eq!(bench.poll(client), "");
        bench.ack(client, CDS);
        let clusters = if delta { "Cluster z=1" } else { "Cluster x=e2 y=1 z=1" };
        assert_eq!(bench.drain(client), format!("{clusters}; RouteConfiguration r=z"));
    }
}
