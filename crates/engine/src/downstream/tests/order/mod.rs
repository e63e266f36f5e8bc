//! Make before break: ORD, RLY-50 to RLY-53, as transcripts.

mod first;
mod waits;

use std::time::Duration;

use crate::collection::CollectionKind;
use crate::downstream::tests::bench::{Bench, CDS, ClientId, EDS, LDS, RDS, streams};
use crate::source::{Attachment, Files};

/// A client that has ACKed all clusters and the route `r`.
fn join(bench: &mut Bench, delta: bool) -> ClientId {
    let client = if delta { bench.delta() } else { bench.sotw() };
    for (message, name) in [(CDS, ""), (RDS, "r")] {
        want(bench, client, message, name);
    }
    bench.drain(client);
    client
}

fn want(bench: &mut Bench, client: ClientId, message: &str, list: &str) {
    match bench.clients[client].variant {
        sluice_xds::Variant::Sotw => bench.ask(client, message, list),
        sluice_xds::Variant::Delta => {
            let list: Vec<_> = list.split_whitespace().map(|name| format!("+{name}")).collect();
            bench.change(client, message, &list.join(" "))
        }
    };
}

const ORDER_WAIT_MAX: Duration = Duration::from_secs(15);

/// The minimum rest of a removal.
const REST: Duration = Duration::from_millis(25);

#[test]
fn rly_51_a_removal_follows_the_ack_of_the_route_that_left() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=e1"), (EDS, "x=1"), (RDS, "r=x")]);
        let client = join(&mut bench, delta);
        // One change has a new cluster, the route to the cluster, and the removal of the old cluster.
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=y")]);
        assert_eq!(bench.poll(client), if delta { "Cluster y=1" } else { "Cluster x=e1 y=1" });
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        bench.ack(client, CDS);
        bench.advance(Duration::from_secs(5));
        assert_eq!(bench.poll(client), "");
        assert!(bench.clients[client].session.held_until().is_some());
        bench.ack(client, RDS);
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
        assert_eq!(bench.drain(client), "");
        assert_eq!(bench.clients[client].session.held_until(), None);
        bench.check(client, CDS, "y=1");
        assert!(bench.idle.is_empty(), "{:?}", bench.idle);
    }
}

#[test]
fn rly_51_without_news_of_routes_a_removal_rests_only() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1"), (RDS, "r=y"), (LDS, "")]);
        let client = join(&mut bench, delta);
        // The type has no known resources, and so no changes.
        want(&mut bench, client, LDS, "l");
        bench.drain(client);
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=y")]);
        assert_eq!(bench.poll(client), "");
        bench.advance(REST);
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
        let only = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, only, CDS, "");
        assert_eq!(bench.poll(only), "Cluster y=1");
        bench.ack(only, CDS);
        bench.state(0, &[(RDS, "r=")]);
        assert_eq!(bench.poll(only), if delta { "Cluster -y" } else { "Cluster" }, "nor without routes");
    }
}

#[test]
fn rly_51_a_removal_waits_after_a_nack_until_a_later_version_is_acked() {
    for delta in [false, true] {
        for told_before in [false, true] {
            let mut bench = Bench::files(&[(CDS, "x=1 y=1"), (RDS, "r=x q=1")]);
            let client = join(&mut bench, delta);
            want(&mut bench, client, RDS, "q r");
            bench.drain(client);
            let clusters = if told_before { "x=1 y=1" } else { "y=1" };
            bench.state(0, &[(CDS, clusters), (RDS, "r=y! q=1")]);
            assert_eq!(bench.poll(client), "RouteConfiguration r=y!");
            bench.nack(client, RDS);
            bench.state(0, &[(CDS, "y=1"), (RDS, "r=y! q=1")]);
            assert_eq!(bench.poll(client), "", "it keeps the route to x");
            bench.advance(REST);
            assert_eq!(bench.poll(client), "", "nor is it a matter of time");
            // An ACK of another route says nothing about the rejected route.
            bench.state(0, &[(CDS, "y=1"), (RDS, "r=y! q=2")]);
            assert_eq!(bench.drain(client), "RouteConfiguration q=2");
            bench.state(0, &[(CDS, "y=1"), (RDS, "r=y q=2")]);
            assert_eq!(bench.poll(client), "RouteConfiguration r=y");
            assert_eq!(bench.poll(client), "");
            bench.ack(client, RDS);
            bench.advance(REST);
            assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
        }
    }
}

#[test]
fn rly_51_a_nack_of_a_complete_set_ends_with_the_next_ack() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1"), (LDS, "l=x m=1")]);
        let client = join(&mut bench, delta);
        want(&mut bench, client, LDS, "");
        bench.drain(client);
        bench.state(0, &[(CDS, "y=1"), (LDS, "l=y! m=1")]);
        assert!(bench.poll(client).starts_with("Listener l=y!"));
        bench.nack(client, LDS);
        assert_eq!(bench.drain(client), "");
        bench.state(0, &[(CDS, "y=1"), (LDS, "m=1")]);
        let listeners = if delta { "Listener -l" } else { "Listener m=1" };
        let clusters = if delta { "Cluster -x" } else { "Cluster y=1" };
        assert_eq!(bench.drain(client), format!("{listeners}; {clusters}"));
    }
}

#[test]
fn rly_51_what_comes_back_is_just_there() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1"), (RDS, "r=x")]);
        let client = join(&mut bench, delta);
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=y")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        bench.state(0, &[(CDS, "x=1 y=1"), (RDS, "r=y")]);
        bench.ack(client, RDS);
        assert_eq!(bench.drain(client), "");
        bench.state(0, &[(CDS, "y=1"), (RDS, "r=y2")]);
        bench.state(0, &[(CDS, "x=2 y=1"), (RDS, "r=y2")]);
        let expected = if delta { "Cluster x=2" } else { "Cluster x=2 y=1" };
        assert_eq!(bench.drain(client), format!("{expected}; RouteConfiguration r=y2"));
    }
}

#[test]
fn rly_51_clients_at_the_same_place_share_their_answers() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1"), (RDS, "r=x")]);
        let clients: Vec<_> = (0..5).map(|_| join(&mut bench, delta)).collect();
        bench.composed.clear();
        bench.state(0, &[(CDS, "w=1 y=1"), (RDS, "r=y")]);
        for client in &clients {
            assert_eq!(bench.poll(*client), if delta { "Cluster w=1" } else { "Cluster w=1 x=1 y=1" });
            bench.ack(*client, CDS);
            bench.advance(Duration::from_millis(1));
        }
        bench.state(0, &[(CDS, "w=1 v=1 y=1"), (RDS, "r=y")]);
        for client in &clients {
            assert_eq!(bench.poll(*client), if delta { "Cluster v=1" } else { "Cluster v=1 w=1 x=1 y=1" });
            bench.ack(*client, CDS);
            assert_eq!(bench.poll(*client), "RouteConfiguration r=y");
            bench.ack(*client, RDS);
        }
        bench.advance(REST);
        for client in &clients {
            assert_eq!(bench.poll(*client), if delta { "Cluster -x" } else { "Cluster v=1 w=1 y=1" });
        }
        assert_eq!(bench.composed.len(), 4);
    }
}

#[test]
fn rly_51_clusters_wanted_by_name() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "x y");
        want(&mut bench, client, RDS, "r");
        bench.says(CDS, "x=1 y=1");
        bench.says(RDS, "r=x");
        bench.drain(client);
        bench.says(RDS, "r=y");
        bench.says(CDS, "-x");
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        assert_eq!(bench.poll(client), "");
        bench.says(CDS, "y=2");
        assert_eq!(bench.poll(client), if delta { "Cluster y=2" } else { "Cluster x=1 y=2" });
        bench.ack(client, CDS);
        // The removal of a name that the client gave up is not withheld.
        if !delta {
            bench.ask(client, CDS, "y z");
            bench.says(CDS, "-z");
            assert_eq!(bench.drain(client), "");
            bench.says(CDS, "z=1");
            assert_eq!(bench.poll(client), "Cluster y=2 z=1");
            continue;
        }
        // The absence of a name that never existed is told at once.
        bench.change(client, CDS, "+z");
        bench.says(CDS, "-z");
        assert_eq!(bench.poll(client), "Cluster -z");
        bench.ack(client, CDS);
        bench.ack(client, RDS);
        bench.advance(REST);
        assert_eq!(bench.poll(client), "Cluster -x");
    }
}

#[test]
fn ord_3_endpoints_go_after_their_cluster() {
    let mut bench = Bench::files(&[(CDS, "x=e1 y=1"), (EDS, "x=1"), (RDS, "r=x")]);
    let client = join(&mut bench, true);
    bench.change(client, EDS, "+x");
    bench.drain(client);
    bench.state(0, &[(CDS, "x=e2 y=1"), (EDS, "x=1"), (RDS, "r=x")]);
    assert_eq!(bench.poll(client), "Cluster x=e2");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment x=1");
    bench.ack(client, EDS);
    bench.state(0, &[(CDS, "y=1"), (RDS, "r=y")]);
    assert_eq!(bench.poll(client), "RouteConfiguration r=y");
    bench.ack(client, RDS);
    assert_eq!(bench.poll(client), "", "the clusters are unACKed, and go first");
    bench.ack(client, CDS);
    assert_eq!(bench.drain(client), "Cluster -x; ClusterLoadAssignment -x");
}

#[test]
fn rly_51_what_is_gone_holds_no_route_up() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1"), (RDS, "r=x")]);
        let client = join(&mut bench, delta);
        bench.state(0, &[(CDS, "x=1 y=2"), (RDS, "r=x")]);
        assert_ne!(bench.poll(client), "");
        // The clusters wait for their ACK, and so does the removal. The route does not wait.
        bench.state(0, &[(CDS, "y=2"), (RDS, "r=y")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=y");
        bench.ack(client, RDS);
        assert_eq!(bench.poll(client), "");
        bench.state(0, &[(CDS, "y=2"), (RDS, "r=y2")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=y2");
        bench.advance(REST);
        bench.ack(client, CDS);
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=2" });
    }
}

#[test]
fn rly_53_types_of_another_source_are_not_waited_for() {
    for delta in [false, true] {
        let mut bench = Bench::new(vec![Attachment::Files(Files::default()), streams()]);
        bench.state(0, &[(CDS, "x=1 y=1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "");
        bench.drain(client);
        want(&mut bench, client, RDS, "xdstp:r");
        bench.changes(1, RDS, CollectionKind::Names, "xdstp:r=x", false);
        assert_eq!(bench.poll(client), "RouteConfiguration xdstp:r=x");
        bench.state(0, &[(CDS, "y=1")]);
        assert_eq!(bench.poll(client), if delta { "Cluster -x" } else { "Cluster y=1" });
    }
}

#[test]
fn rly_34_who_holds_endpoints_that_are_gone_is_sent_them_again_with_their_cluster() {
    let mut bench = Bench::files(&[(CDS, "a=e1 b=e1"), (EDS, "a=1 b=1")]);
    let clients = [bench.sotw(), bench.sotw()];
    for client in clients {
        bench.ask(client, CDS, "");
        bench.ask(client, EDS, "a b");
        bench.drain(client);
    }
    bench.state(0, &[(CDS, "a=e1 b=e1"), (EDS, "b=1")]);
    let new = bench.sotw();
    bench.ask(new, CDS, "");
    bench.ask(new, EDS, "a b");
    assert_eq!(bench.drain(new), "Cluster a=e1 b=e1; ClusterLoadAssignment b=1", "nobody new is");
    bench.advance(Duration::from_secs(3600));
    bench.composed.clear();
    for content in ["e2", "e3"] {
        bench.state(0, &[(CDS, &format!("a={content} b=e1")), (EDS, "b=1")]);
        for client in clients {
            assert_eq!(bench.drain(client), format!("Cluster a={content} b=e1; ClusterLoadAssignment a=1"));
        }
        assert_eq!(bench.drain(new), format!("Cluster a={content} b=e1"));
    }
    assert_eq!(bench.composed.len(), 2 * 2, "shared");
    bench.state(0, &[(CDS, "a=e3 b=e1"), (EDS, "a=1 b=2")]);
    assert_eq!(bench.drain(clients[0]), "ClusterLoadAssignment b=2");
    assert_eq!(bench.drain(new), "ClusterLoadAssignment a=1 b=2");
}

#[test]
fn ord_5_withheld_endpoints_follow_a_changed_cluster() {
    let mut bench = Bench::files(&[(CDS, "x=e1"), (EDS, "x=1"), (RDS, "r=x")]);
    let client = join(&mut bench, true);
    bench.change(client, EDS, "");
    bench.drain(client);
    bench.state(0, &[(CDS, "x=e2"), (RDS, "r=y")]);
    assert_eq!(bench.poll(client), "Cluster x=e2");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment x=1", "with its last bytes");
    assert_eq!(bench.drain(client), "RouteConfiguration r=y; ClusterLoadAssignment -x");
}

#[test]
fn rly_51_a_client_that_presents_what_is_gone_loses_it_after_its_routes() {
    let mut bench = Bench::files(&[(CDS, "y=1"), (RDS, "r=y")]);
    let client = bench.delta();
    let old = super::bench::version_of;
    bench.change_with(client, CDS, "", "", &[("x", old(CDS, "x=1"))], None);
    bench.change_with(client, RDS, "+r", "", &[("r", old(RDS, "r=x"))], None);
    bench.held(client, CDS).resources.insert("x".into(), "1".to_owned());
    assert_eq!(bench.drain(client), "Cluster y=1; RouteConfiguration r=y; Cluster -x");
}

#[test]
fn rly_51_what_the_server_speaks_of_late_rests_beside_what_is_withheld_already() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    let old = super::bench::version_of;
    let presented = [("x", old(CDS, "x=1")), ("z", old(CDS, "z=1"))];
    bench.change_with(client, CDS, "+x +z", "", &presented, None);
    bench.change_with(client, RDS, "+r", "", &[("r", old(RDS, "r=x"))], None);
    for name in ["x", "z"] {
        bench.held(client, CDS).resources.insert(name.into(), "1".to_owned());
    }
    bench.says(RDS, "r=x");
    assert_eq!(bench.poll(client), "");
    bench.says(CDS, "-z");
    assert_eq!(bench.poll(client), "");
    bench.advance(Duration::from_millis(24));
    bench.says(CDS, "-x");
    assert_eq!(bench.poll(client), "");
    bench.advance(Duration::from_millis(24));
    assert_eq!(bench.poll(client), "", "x has not rested");
    bench.says(RDS, "r=y");
    assert_eq!(bench.drain(client), "RouteConfiguration r=y; Cluster -x -z");
}

#[test]
fn rly_51_nam_16_a_member_that_left_a_glob_is_withheld_too() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "xdstp:f/x=1"), (RDS, "r=x")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        want(&mut bench, client, CDS, "xdstp:f/*");
        want(&mut bench, client, RDS, "r");
        assert_eq!(bench.drain(client), "Cluster xdstp:f/x=1; RouteConfiguration r=x");
        bench.state(0, &[(CDS, "xdstp:f/y=1"), (RDS, "r=y")]);
        let came = if delta { "Cluster xdstp:f/y=1" } else { "Cluster xdstp:f/x=1 xdstp:f/y=1" };
        assert_eq!(
            bench.drain(client),
            format!("{came}; RouteConfiguration r=y; {}", {
                if delta { "Cluster -xdstp:f/x" } else { "Cluster xdstp:f/y=1" }
            })
        );
        // The glob is not empty, either, before its last member is removed.
        bench.state(0, &[(RDS, "r=z")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=z");
        assert_eq!(bench.poll(client), "");
        bench.ack(client, RDS);
        bench.advance(REST);
        assert_eq!(bench.poll(client), if delta { "Cluster -xdstp:f/* -xdstp:f/y" } else { "Cluster" });
        bench.check(client, CDS, "");
    }
}

#[test]
fn sub_6_a_name_that_is_given_up_beside_its_glob_stays() {
    let mut bench = Bench::files(&[(CDS, "xdstp:f/x=1 xdstp:g/x=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "xdstp:f/* xdstp:f/x xdstp:g/x");
    assert_eq!(bench.drain(client), "Cluster xdstp:f/x=1 xdstp:g/x=1");
    bench.ask(client, CDS, "xdstp:f/* xdstp:g/x");
    assert_eq!(bench.drain(client), "");
    // A member that goes with its glob is sent again after a new request.
    bench.ask(client, CDS, "xdstp:g/x xdstp:g/*");
    bench.ask(client, CDS, "xdstp:g/x xdstp:g/* xdstp:f/x");
    assert_eq!(bench.drain(client), "Cluster xdstp:f/x=1 xdstp:g/x=1");
}
