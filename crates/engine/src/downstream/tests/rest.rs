//! Removals rest for a short time, because a route may follow (ORD-3, RLY-51).

use std::time::Duration;

use super::bench::{Bench, CDS, ClientId, RDS};
use crate::collection::CollectionKind;
use sluice_xds::Variant;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn want(bench: &mut Bench, client: ClientId, message: &str, list: &str) {
    match bench.clients[client].variant {
        Variant::Sotw => bench.ask(client, message, list),
        Variant::Delta => {
            let list: Vec<_> = list.split_whitespace().map(|name| format!("+{name}")).collect();
            bench.change(client, message, &list.join(" "))
        }
    };
}

/// A client that has ACKed all clusters, and the route `r` to the cluster `x`.
fn join(bench: &mut Bench, delta: bool) -> ClientId {
    let client = if delta { bench.delta() } else { bench.sotw() };
    want(bench, client, CDS, "");
    want(bench, client, RDS, "r");
    bench.says_of_all(CDS, "x=1 y=1", true);
    bench.says(RDS, "r=x");
    bench.drain(client);
    client
}

#[test]
fn rly_51_the_route_that_comes_right_behind_goes_before_the_removal() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = join(&mut bench, delta);
        // go-control-plane sends delta removals like this.
        bench.says_of_all(CDS, "-x", true);
        assert_eq!(bench.poll(client), "");
        bench.advance(Duration::from_micros(300));
        bench.says(RDS, "r=y");
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        bench.advance(ms(40));
        assert_eq!(bench.poll(client), "", "it waits for the ACK of the route");
        bench.ack(client, RDS);
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
        assert_eq!(bench.drain(client), "");
        assert_eq!(bench.clients[client].session.held_until(), None);
        assert!(bench.idle.is_empty(), "{:?}", bench.idle);
    }
}

#[test]
fn rly_51_a_removal_behind_which_nothing_comes_rests_25_ms() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = join(&mut bench, delta);
        bench.advance(Duration::from_secs(1));
        bench.says_of_all(CDS, "-x", true);
        assert_eq!(bench.poll(client), "");
        assert_eq!(bench.clients[client].session.held_until(), Some(bench.now + ms(25)));
        bench.advance(ms(24));
        assert_eq!(bench.poll(client), "");
        bench.advance(ms(1));
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
        assert_eq!(bench.drain(client), "");
    }
}

#[test]
fn rly_51_each_change_of_a_route_prolongs_the_rest_to_250_ms_at_the_most() {
    for (changes, rests) in [(1, 45), (3, 85), (20, 250)] {
        for delta in [false, true] {
            let mut bench = Bench::cold();
            let client = join(&mut bench, delta);
            bench.advance(Duration::from_secs(1));
            let began = bench.now;
            bench.says_of_all(CDS, "-x", true);
            assert_eq!(bench.poll(client), "");
            for change in 0..changes {
                bench.advance(ms(20));
                bench.says(RDS, &format!("r=y{change}"));
                let text = bench.drain_now(client);
                if bench.now.since(began) < ms(rests) {
                    assert_eq!(text, format!("RouteConfiguration r=y{change}"));
                }
            }
            if changes < 20 {
                bench.advance(ms(rests) - bench.now.since(began) - ms(1));
                assert_eq!(bench.poll(client), "");
                bench.advance(ms(1));
                assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
            }
            bench.check(client, CDS, "y=1");
        }
    }
}

#[test]
fn rly_51_a_route_that_comes_while_the_removal_rests_is_waited_for_though_another_is_acked() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = join(&mut bench, delta);
        bench.says_of_all(CDS, "-x", true);
        assert_eq!(bench.poll(client), "");
        bench.says(RDS, "r=x2");
        assert_eq!(bench.poll(client), "RouteConfiguration r=x2");
        bench.advance(ms(4));
        bench.says(RDS, "r=y");
        assert_eq!(bench.poll(client), "", "the first route is not ACKed");
        bench.advance(ms(100));
        bench.ack(client, RDS);
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        assert_eq!(bench.poll(client), "", "the second route is not ACKed");
        bench.ack(client, RDS);
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
    }
}

/// The client does not read in between, so that its stream looks at the content only at the end.
#[test]
fn rly_51_a_cluster_that_returns_and_goes_again_rests_again() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = join(&mut bench, delta);
        bench.says_of_all(CDS, "-x", true);
        assert_eq!(bench.poll(client), "");
        bench.advance(ms(10));
        bench.says_of_all(CDS, "x=2", true);
        bench.advance(ms(30_000));
        bench.says_of_all(CDS, "-x", true);
        bench.advance(ms(2));
        // A complete set has the last content.
        assert_eq!(bench.poll(client), if delta { "" } else { "Cluster x=2 y=1" });
        bench.ack(client, CDS);
        bench.advance(ms(24));
        assert_eq!(bench.poll(client), "");
        bench.advance(ms(1));
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
    }
}

#[test]
fn rly_51_what_is_no_removal_does_not_rest() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = join(&mut bench, delta);
        bench.says_of_all(CDS, "-x z=1", true);
        assert_eq!(bench.poll(client), if delta { "Cluster z=1" } else { "Cluster x=1 y=1 z=1" });
        bench.ack(client, CDS);
        bench.says_of_all(CDS, "y=2", true);
        assert_eq!(bench.poll(client), if delta { "Cluster y=2" } else { "Cluster x=1 y=2 z=1" });
        bench.ack(client, CDS);
        assert_eq!(bench.drain(client), if delta { "Cluster -x" } else { "Cluster y=2 z=1" });
    }
}

#[test]
fn rly_51_a_cluster_that_comes_back_while_its_removal_rests_is_no_news() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = join(&mut bench, delta);
        bench.says_of_all(CDS, "-x", true);
        assert_eq!(bench.poll(client), "");
        bench.advance(ms(10));
        bench.says_of_all(CDS, "x=1", true);
        assert_eq!(bench.drain(client), "");
        bench.advance(ms(500));
        assert_eq!(bench.drain(client), "");
        assert_eq!(bench.clients[client].session.held_until(), None);
    }
}

#[test]
fn rly_51_each_removal_rests_for_itself() {
    let mut bench = Bench::cold();
    let client = join(&mut bench, true);
    bench.says_of_all(CDS, "z=1", true);
    bench.drain(client);
    bench.says_of_all(CDS, "-x", true);
    assert_eq!(bench.poll(client), "");
    bench.advance(ms(10));
    // The second removal is seen together with the first, and shares the rest.
    bench.says_of_all(CDS, "-y", true);
    assert_eq!(bench.poll(client), "");
    bench.advance(ms(24));
    assert_eq!(bench.poll(client), "");
    bench.advance(ms(1));
    assert_eq!(bench.poll(client), "Cluster -x -y");
}

#[test]
fn rly_51_who_gives_a_name_up_hears_no_more_of_it() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "x y");
        want(&mut bench, client, RDS, "r");
        bench.changes(0, CDS, CollectionKind::Names, "x=1 y=1", false);
        bench.drain(client);
        bench.says(CDS, "-x");
        assert_eq!(bench.poll(client), "");
        match delta {
            true => bench.change(client, CDS, "-x"),
            false => bench.ask(client, CDS, "y"),
        };
        assert_eq!(bench.drain(client), "");
        assert_eq!(bench.clients[client].session.held_until(), None);
    }
}

#[test]
fn rly_51_where_no_route_is_asked_for_nothing_rests() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "");
        bench.says_of_all(CDS, "x=1 y=1", true);
        bench.drain(client);
        bench.says_of_all(CDS, "-x y=2", true);
        assert_eq!(bench.poll(client), if delta { "Cluster y=2 -x" } else { "Cluster y=2" });
    }
}
