//! Order, pace, and the specific duties of a relay: ORD, FLW, RLY.

use std::time::Duration;

use super::bench::{Bench, CDS, EDS, LDS, RDS, SRDS, VHDS, url};
use crate::source::{Attachment, Files};

// === ORD ===

#[test]
fn ord_1_types_are_drained_by_rank_from_one_snapshot() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        let types = [VHDS, RDS, LDS, EDS, CDS];
        for message in types {
            if delta {
                bench.change(client, message, "+a")
            } else {
                bench.ask(client, message, "a")
            };
        }
        let state: Vec<_> = types.iter().map(|message| (*message, "a=1")).collect();
        bench.state(0, &state);
        let all =
            "Cluster a=1; ClusterLoadAssignment a=1; Listener a=1; RouteConfiguration a=1; VirtualHost a=1";
        assert_eq!(bench.drain(client), all);
    }
}

#[test]
fn ord_5_and_6_endpoints_follow_a_changed_cluster_though_nothing_changed_in_them() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "a=e1 b=e1 c=static"), (EDS, "a=1 b=1 c=1"), (RDS, "r=1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, CDS, "");
            bench.change(client, EDS, "+a +b +c");
        } else {
            bench.ask(client, CDS, "");
            bench.ask(client, EDS, "a b c");
        }
        bench.drain(client);
        bench.state(0, &[(CDS, "a=e2 b=e1 c=static2"), (EDS, "a=1 b=1 c=1"), (RDS, "r=1")]);
        let clusters = if delta { "Cluster a=e2 c=static2" } else { "Cluster a=e2 b=e1 c=static2" };
        // RLY-52: the endpoints of changed clusters are sent from the cache, even before an ACK.
        assert_eq!(bench.poll(client), clusters);
        assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
        assert_eq!(bench.drain(client), "");
    }
}

#[test]
fn ord_5_endpoints_follow_beside_an_unacked_response() {
    let mut bench = Bench::files(&[(CDS, "a=e1"), (EDS, "a=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, EDS, "+a");
    assert_eq!(bench.poll(client), "Cluster a=e1");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
    bench.ack(client, CDS);
    bench.state(0, &[(CDS, "a=e2"), (EDS, "a=1")]);
    assert_eq!(bench.poll(client), "Cluster a=e2");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
}

#[test]
fn ord_5_endpoints_of_a_wildcard_follow_too() {
    let mut bench = Bench::files(&[(CDS, "a=e1 b=e1"), (EDS, "a=1 b=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, EDS, "");
    bench.drain(client);
    bench.state(0, &[(CDS, "a=e2 b=e1"), (EDS, "a=1 b=1")]);
    assert_eq!(bench.drain(client), "Cluster a=e2; ClusterLoadAssignment a=1");
}

#[test]
fn rly_50_routes_never_pass_the_clusters_that_came_before_them() {
    let mut bench = Bench::files(&[(CDS, "x=1"), (RDS, "r=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.ask(client, RDS, "r");
    assert_eq!(bench.poll(client), "Cluster x=1");
    assert_eq!(bench.poll(client), "RouteConfiguration r=1");
    bench.ack(client, RDS);
    // The clusters are still unACKed when the next state arrives: the route waits for the new cluster.
    bench.state(0, &[(CDS, "x=1 y=1"), (RDS, "r=2")]);
    assert_eq!(bench.poll(client), "");
    assert_eq!(bench.clients[client].session.held_until(), Some(bench.now + Duration::from_secs(15)));
    bench.ack(client, CDS);
    assert_eq!(bench.poll(client), "Cluster x=1 y=1");
    assert_eq!(
        bench.poll(client),
        "RouteConfiguration r=2",
        "an unACKed response without news holds nothing"
    );
}

#[test]
fn ord_10_but_not_for_ever() {
    let mut bench = Bench::files(&[(CDS, "x=1"), (EDS, "x=1"), (RDS, "r=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.ask(client, RDS, "r");
    bench.poll(client);
    bench.poll(client);
    bench.ack(client, RDS);
    bench.state(0, &[(CDS, "x=1 y=1"), (EDS, "x=1"), (RDS, "r=2")]);
    assert_eq!(bench.poll(client), "");
    bench.advance(Duration::from_millis(14_999));
    assert_eq!(bench.poll(client), "");
    bench.advance(Duration::from_millis(1));
    // The clusters go beside unACKed responses (NON-4), but still before the route (ORD-4).
    assert_eq!(bench.poll(client), "Cluster x=1 y=1");
    assert_eq!(bench.poll(client), "RouteConfiguration r=2");
    assert_eq!(bench.clients[client].session.held_until(), None);
}

/// Clusters sent before a request for routes begin no wait.
#[test]
fn ord_10_the_wait_begins_with_the_routing_types() {
    let mut bench = Bench::files(&[(CDS, "x=1"), (RDS, "r=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    assert_eq!(bench.poll(client), "Cluster x=1");
    bench.advance(Duration::from_secs(20));
    bench.ask(client, RDS, "r");
    bench.state(0, &[(CDS, "x=1 y=1"), (RDS, "r=2")]);
    assert_eq!(bench.poll(client), "");
    bench.advance(Duration::from_millis(14_999));
    assert_eq!(bench.poll(client), "");
    bench.advance(Duration::from_millis(1));
    assert_eq!(bench.drain(client), "Cluster x=1 y=1; RouteConfiguration r=2");
}

#[test]
fn ord_10_overdue_routes_wait_for_endpoints_that_were_asked_for_meanwhile() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1"), (EDS, "x=1 y=1"), (RDS, "r=1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        let ask = |bench: &mut Bench, message: &str, list: &str| match delta {
            true => bench.change(client, message, list),
            false => bench.ask(client, message, list.replace('+', "").as_str()),
        };
        ask(&mut bench, CDS, "");
        ask(&mut bench, EDS, "+x");
        ask(&mut bench, RDS, "+r");
        bench.drain(client);
        bench.state(0, &[(CDS, "x=1 y=1"), (EDS, "x=1 y=1"), (RDS, "r=1")]);
        assert_eq!(bench.poll(client), if delta { "Cluster y=1" } else { "Cluster x=1 y=1" });
        bench.state(0, &[(CDS, "x=1 y=2"), (EDS, "x=1 y=1"), (RDS, "r=2")]);
        assert_eq!(bench.poll(client), "");
        bench.advance(Duration::from_secs(15));
        assert_eq!(bench.poll(client), if delta { "Cluster y=2" } else { "Cluster x=1 y=2" });
        // The turn of the routing types has begun.
        ask(&mut bench, EDS, if delta { "+y" } else { "+x +y" });
        assert_eq!(bench.poll(client), "ClusterLoadAssignment y=1");
        assert_eq!(bench.poll(client), "RouteConfiguration r=2");
    }
}

// === FLW, pace ===

#[test]
fn flw_1_and_2_a_slow_client_delays_nobody_and_costs_no_queue() {
    let mut bench = Bench::files(&[(EDS, "a=0")]);
    let (slow, fast) = (bench.delta(), bench.sotw());
    bench.change(slow, EDS, "+a");
    bench.ask(fast, EDS, "a");
    assert_eq!(bench.poll(slow), "ClusterLoadAssignment a=0");
    assert_eq!(bench.drain(fast), "ClusterLoadAssignment a=0");
    for content in 1..=1000 {
        bench.state(0, &[(EDS, &format!("a={content}"))]);
        assert_eq!(bench.drain(fast), format!("ClusterLoadAssignment a={content}"));
    }
    // RLY-55: the stream survives minutes without an ACK.
    bench.advance(Duration::from_secs(600));
    assert_eq!(bench.poll(slow), "");
    bench.ack(slow, EDS);
    assert_eq!(bench.drain(slow), "ClusterLoadAssignment a=1000");
}

#[test]
fn rly_54_the_first_update_wakes_at_once_and_the_next_ones_are_gathered() {
    let mut bench = Bench::files(&[(EDS, "a=0 b=0")]);
    let (one, other) = (bench.sotw(), bench.sotw());
    bench.ask(one, EDS, "a");
    bench.ask(other, EDS, "b");
    assert_eq!(bench.woken.len(), 2, "a first answer is never gathered");
    bench.advance(Duration::from_secs(1));
    bench.woken.clear();
    let woken =
        |bench: &mut Bench| std::mem::take(&mut bench.woken).into_iter().map(|s| s.0).collect::<Vec<_>>();
    bench.state(0, &[(EDS, "a=1 b=0")]);
    assert_eq!(woken(&mut bench), [one as u64], "whom it concerns, and nobody else");
    bench.state(0, &[(EDS, "a=2 b=0")]);
    bench.advance(Duration::from_millis(5));
    bench.state(0, &[(EDS, "a=2 b=1")]);
    assert!(woken(&mut bench).is_empty());
    bench.advance(Duration::from_millis(4));
    assert!(woken(&mut bench).is_empty());
    bench.advance(Duration::from_millis(1));
    assert_eq!(woken(&mut bench), [one as u64, other as u64]);
    bench.advance(Duration::from_secs(1));
    assert!(woken(&mut bench).is_empty());
    bench.state(0, &[(EDS, "a=2 b=1")]);
    assert!(woken(&mut bench).is_empty(), "RLY-36: equal content is no news");
}

// === known and unknown names ===

#[test]
fn rly_1_unknown_names_are_held_and_the_others_are_answered() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, EDS, "+a +b")
        } else {
            bench.ask(client, EDS, "a b")
        };
        assert_eq!(bench.drain(client), "");
        bench.says(EDS, "a=1");
        assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
        bench.says(EDS, "b=1");
        assert_eq!(bench.drain(client), "ClusterLoadAssignment b=1");
    }
}

#[test]
fn rly_2_and_3_nothing_known_is_nothing_said() {
    let mut bench = Bench::cold();
    for message in [CDS, EDS, LDS, RDS] {
        for list in ["", "a"] {
            let (delta, sotw) = (bench.delta(), bench.sotw());
            bench.change(delta, message, &list.replace('a', "+a"));
            bench.ask(sotw, message, list);
            bench.advance(Duration::from_secs(9));
            assert_eq!(bench.poll(delta), "");
            bench.advance(Duration::from_secs(60));
            // ERR-10: the error is not a guess, and in SotW not an answer.
            let error = if list.is_empty() {
                String::new()
            } else {
                format!("{} !a:UNAVAILABLE", url(message).short())
            };
            assert_eq!(bench.poll(delta), error);
            assert_eq!(bench.poll(sotw), "");
        }
    }
}

#[test]
fn rly_5_a_full_state_answer_waits_until_no_name_is_unknown() {
    for message in [CDS, LDS, SRDS] {
        let mut bench = Bench::cold();
        let (named, all) = (bench.sotw(), bench.sotw());
        bench.ask(named, message, "a b c");
        bench.ask(all, message, "");
        bench.says(message, "a=1 b=1");
        bench.says_of_all(message, "a=1 b=1", false);
        assert_eq!(bench.poll(named), "");
        assert_eq!(bench.poll(all), "");
        // RLY-9: the released answer has the present state.
        bench.says(message, "a=2");
        bench.says(message, "-c");
        bench.says_of_all(message, "a=2 -b", true);
        let short = url(message).short().to_owned();
        assert_eq!(bench.drain(named), format!("{short} a=2 b=1"));
        assert_eq!(bench.drain(all), format!("{short} a=2"));
    }
}

#[test]
fn rly_12_and_13_wildcard_and_names_never_answer_for_each_other() {
    let mut bench = Bench::cold();
    let (all, named) = (bench.delta(), bench.delta());
    bench.change(all, CDS, "");
    bench.change(named, CDS, "+a");
    bench.says(CDS, "a=1");
    assert_eq!(bench.drain(all), "");
    bench.says_of_all(CDS, "b=1", true);
    assert_eq!(bench.drain(all), "Cluster b=1");
    assert_eq!(bench.drain(named), "Cluster a=1");
    // A name is not absent because the wildcard lacks the name, and not present because the wildcard has the name.
    let other = bench.delta();
    bench.change(other, CDS, "+b +c");
    assert_eq!(bench.drain(other), "");
    bench.says(CDS, "-b");
    assert_eq!(bench.drain(other), "Cluster -b");
    assert_eq!(bench.drain(all), "");
}

#[test]
fn rly_16_a_client_that_changes_class_gets_only_differences() {
    for delta in [false, true] {
        let mut bench =
            Bench::new(vec![Attachment::Files(Files::default()), Attachment::Files(Files::default())]);
        bench.state(0, &[(CDS, "a=1 b=1 c=1"), (EDS, "x=1 y=1")]);
        bench.state(1, &[(CDS, "a=1 b=2"), (EDS, "x=1 y=2")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, CDS, "");
            bench.change(client, EDS, "+x +y");
        } else {
            bench.ask(client, CDS, "");
            bench.ask(client, EDS, "x y");
        }
        bench.drain(client);
        bench.reroute(client, 1);
        let clusters = if delta { "Cluster b=2 -c" } else { "Cluster a=1 b=2" };
        assert_eq!(bench.drain(client), format!("{clusters}; ClusterLoadAssignment y=2"));
        bench.state(0, &[(CDS, "zzz=1")]);
        assert_eq!(bench.drain(client), "", "the old source is left");
        bench.reroute(client, 1);
        assert_eq!(bench.drain(client), "");
    }
}

#[test]
fn nam_3_names_of_an_authority_have_a_source_of_their_own() {
    let mut bench =
        Bench::new(vec![Attachment::Files(Files::default()), Attachment::Files(Files::default())]);
    bench.state(0, &[(EDS, "a=1 xdstp:a=wrong"), (CDS, "a=1")]);
    bench.state(1, &[(EDS, "a=wrong xdstp:a=1"), (CDS, "xdstp:a=1 b=wrong")]);
    let (delta, sotw) = (bench.delta(), bench.sotw());
    bench.change(delta, EDS, "+a +xdstp:a");
    assert_eq!(bench.drain(delta), "ClusterLoadAssignment a=1 xdstp:a=1");
    bench.ask(sotw, CDS, "* xdstp:a");
    assert_eq!(bench.drain(sotw), "Cluster a=1 xdstp:a=1");
    bench.state(1, &[]);
    assert_eq!(bench.drain(delta), "ClusterLoadAssignment -xdstp:a");
    assert_eq!(bench.drain(sotw), "Cluster a=1");
}
