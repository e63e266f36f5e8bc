//! Resources with a time to live: TTL.

use std::time::Duration;

use super::bench::{Bench, CDS, ClientId, EDS, RDS, VHDS, resource, url, version_of};
use crate::collection::CollectionKind;
use crate::downstream::ClientFeatures;
use crate::upstream::Changes;
use sluice_xds::Code;

const TTL: ClientFeatures = ClientFeatures { ttl: true, wrapper: true, errors_alone: false };

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn able(bench: &mut Bench, delta: bool) -> ClientId {
    let client = if delta { bench.delta() } else { bench.sotw() };
    bench.clients[client].routes.features = TTL;
    client
}

fn want(bench: &mut Bench, client: ClientId, delta: bool, message: &str, name: &str) {
    if delta {
        bench.change(client, message, &format!("+{name}"));
    } else {
        bench.ask(client, message, name);
    }
}

#[test]
fn ttl_1_only_clients_with_the_feature_are_told_of_a_ttl() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let with = able(&mut bench, delta);
        let without = if delta { bench.delta() } else { bench.sotw() };
        for client in [with, without] {
            want(&mut bench, client, delta, EDS, "a");
        }
        bench.says(EDS, "a=1@30");
        assert_eq!(bench.drain(with), "ClusterLoadAssignment a=1@30");
        assert_eq!(bench.drain(without), "ClusterLoadAssignment a=1");
        bench.advance(seconds(12));
        bench.beats(EDS, CollectionKind::Names, "a");
        // In SotW, the heartbeat is the resource itself: Envoy restarts its timer only by a resource.
        let beat = if delta { "~a@30" } else { "a=1@30" };
        assert_eq!(bench.drain(with), format!("ClusterLoadAssignment {beat}"));
        assert_eq!(bench.drain(without), "");
    }
}

#[test]
fn rly_39_heartbeats_go_on_only_while_those_of_the_upstream_do() {
    let mut bench = Bench::cold();
    let client = able(&mut bench, true);
    want(&mut bench, client, true, EDS, "a");
    bench.says(EDS, "a=1@30");
    bench.drain(client);
    // TTL-9: however often the upstream sends heartbeats, clients get a heartbeat once per third of the TTL.
    let mut heard = Vec::new();
    for second in 1..=30 {
        bench.advance(seconds(1));
        bench.beats(EDS, CollectionKind::Names, "a");
        if bench.drain(client).starts_with("ClusterLoadAssignment ~a@") {
            heard.push(second);
        }
    }
    assert_eq!(heard, [10, 20, 30]);
    // The last heartbeat from upstream came too soon, and is passed on now.
    bench.advance(seconds(10));
    assert_eq!(bench.drain(client), "ClusterLoadAssignment ~a@20");
    bench.advance(seconds(19));
    assert_eq!(bench.drain(client), "", "no heartbeat without one of the upstream");
    bench.advance(seconds(1));
    assert_eq!(bench.drain(client), "ClusterLoadAssignment -a", "TTL-8");
}

#[test]
fn rly_39_who_comes_late_is_told_what_is_left() {
    let mut bench = Bench::cold();
    let first = able(&mut bench, true);
    want(&mut bench, first, true, EDS, "a");
    bench.says(EDS, "a=1@80");
    bench.advance(seconds(45));
    let late = able(&mut bench, true);
    want(&mut bench, late, true, EDS, "a");
    // The remaining time is told in steps of an eighth of the TTL, so that clients share the message.
    assert_eq!(bench.drain(late), "ClusterLoadAssignment a=1@40");
}

#[test]
fn ttl_3_content_with_a_ttl_restarts_it_and_content_without_one_ends_it() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = able(&mut bench, delta);
        want(&mut bench, client, delta, EDS, "a");
        bench.says(EDS, "a=1@30");
        bench.drain(client);
        bench.advance(seconds(15));
        bench.says(EDS, "a=1@30");
        let beat = if delta { "~a@30" } else { "a=1@30" };
        assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {beat}"));
        bench.advance(seconds(15));
        bench.says(EDS, "a=1");
        assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
        bench.advance(seconds(100));
        assert_eq!(bench.drain(client), "");
        bench.check(client, EDS, "a=1");
    }
}

#[test]
fn ttl_4_ttl_5_in_sotw_the_resource_is_its_own_heartbeat() {
    let mut bench = Bench::cold();
    let client = able(&mut bench, false);
    bench.ask(client, EDS, "a b");
    bench.says(EDS, "a=1@30 b=1@30");
    bench.drain(client);
    bench.advance(seconds(12));
    bench.beats(EDS, CollectionKind::Names, "b");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1@30");
    assert_eq!(bench.held(client, EDS).version, version_of(EDS, "b=1").to_string(), "RLY-31");
    bench.ack(client, EDS);
    bench.advance(seconds(12));
    bench.beats(EDS, CollectionKind::Names, "b");
    bench.says(EDS, "a=2@30");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=2@30 b=1@30");
}

#[test]
fn ttl_6_a_complete_set_is_refreshed_as_a_whole() {
    let mut bench = Bench::cold();
    let (all, named) = (able(&mut bench, false), able(&mut bench, false));
    bench.ask(all, CDS, "");
    bench.ask(named, CDS, "a b");
    bench.says_of_all(CDS, "a=1@30 b=1", true);
    bench.says(CDS, "a=1@30 b=1");
    assert_eq!(bench.drain(all), "Cluster a=1@30 b=1");
    assert_eq!(bench.drain(named), "Cluster a=1@30 b=1");
    bench.advance(seconds(12));
    bench.beats(CDS, CollectionKind::Wildcard, "a");
    bench.beats(CDS, CollectionKind::Names, "a");
    assert_eq!(bench.drain(all), "Cluster a=1@30 b=1");
    assert_eq!(bench.drain(named), "Cluster a=1@30 b=1");
    bench.advance(seconds(30));
    assert_eq!(bench.drain(all), "Cluster b=1", "TTL-8");
    assert_eq!(bench.drain(named), "Cluster b=1", "TTL-8");
}

#[test]
fn ttl_6_a_refresh_is_no_change_of_a_cluster() {
    let mut bench = Bench::cold();
    let client = able(&mut bench, false);
    bench.ask(client, CDS, "");
    bench.ask(client, EDS, "a");
    bench.says_of_all(CDS, "a=e1@30", true);
    bench.says(EDS, "a=1");
    bench.drain(client);
    bench.advance(seconds(12));
    bench.beats(CDS, CollectionKind::Wildcard, "a");
    assert_eq!(bench.drain(client), "Cluster a=e1@30");
}

#[test]
fn ttl_8_what_runs_out_is_removed_for_clients_without_the_feature_too() {
    let mut bench = Bench::cold();
    let (delta, sotw) = (bench.delta(), bench.sotw());
    bench.change(delta, CDS, "");
    bench.ask(sotw, CDS, "");
    bench.says_of_all(CDS, "a=1@30 b=1", true);
    assert_eq!((bench.drain(delta), bench.drain(sotw)), ("Cluster a=1 b=1".into(), "Cluster a=1 b=1".into()));
    bench.advance(seconds(31));
    assert_eq!((bench.drain(delta), bench.drain(sotw)), ("Cluster -a".into(), "Cluster b=1".into()));
    // The resource may come back.
    bench.says_of_all(CDS, "a=1", true);
    assert_eq!(bench.drain(delta), "Cluster a=1");
    bench.advance(seconds(100));
    assert_eq!(bench.drain(delta), "");
}

#[test]
fn ttl_3_a_client_that_presents_what_it_holds_has_its_timers_started_again() {
    let mut bench = Bench::cold();
    let old = able(&mut bench, true);
    want(&mut bench, old, true, RDS, "a");
    bench.says(RDS, "a=1@30");
    bench.drain(old);
    let client = able(&mut bench, true);
    let presented = [("a", version_of(RDS, "a=1"))];
    bench.change_with(client, RDS, "+a", "", &presented, None);
    assert_eq!(bench.drain(client), "RouteConfiguration ~a@30");
}

#[test]
fn a_heartbeat_is_composed_once_for_all_who_are_alike() {
    let mut bench = Bench::cold();
    let clients: Vec<_> = (0..50).map(|_| able(&mut bench, true)).collect();
    for client in &clients {
        want(&mut bench, *client, true, EDS, "a");
    }
    bench.says(EDS, "a=1@30");
    clients.iter().for_each(|client| drop(bench.drain(*client)));
    let before = bench.composed.len();
    bench.advance(seconds(12));
    bench.beats(EDS, CollectionKind::Names, "a");
    for client in &clients {
        assert_eq!(bench.drain(*client), "ClusterLoadAssignment ~a@30");
    }
    assert_eq!(bench.composed.len(), before + 1);
}

#[test]
fn ttl_8_what_was_freed_does_not_run_out_later() {
    let mut bench = Bench::cold();
    let first = able(&mut bench, true);
    want(&mut bench, first, true, EDS, "a");
    bench.says(EDS, "a=1@60");
    bench.drain(first);
    bench.leave(first);
    bench.advance(seconds(31));
    let second = able(&mut bench, true);
    want(&mut bench, second, true, EDS, "a");
    bench.advance(seconds(35));
    assert_eq!(bench.drain(second), "ClusterLoadAssignment !a:UNAVAILABLE", "it is unknown, not gone");
    bench.says(EDS, "a=1@60");
    assert_eq!(bench.drain(second), "ClusterLoadAssignment a=1@60");
}

#[test]
fn ttl_1_a_member_that_left_and_came_back_has_its_ttl_told_again() {
    let mut bench = Bench::cold();
    let client = able(&mut bench, true);
    bench.change(client, CDS, "");
    bench.says_of_all(CDS, "a=1@60", true);
    assert_eq!(bench.drain(client), "Cluster a=1@60");
    bench.says_of_all(CDS, "-a", true);
    assert_eq!(bench.drain(client), "Cluster -a");
    bench.says_of_all(CDS, "a=1@60", true);
    assert_eq!(bench.drain(client), "Cluster a=1@60");
}

#[test]
fn rly_39_members_of_a_glob_live_as_long_as_they_are_refreshed() {
    let mut bench = Bench::cold();
    let client = able(&mut bench, true);
    bench.change(client, CDS, "+xdstp:f/*");
    bench.says_of_globs(CDS, "xdstp:f/a=1@30 xdstp:f/b=1", "xdstp:f/*");
    assert_eq!(bench.drain(client), "Cluster xdstp:f/a=1@30 xdstp:f/b=1");
    bench.advance(seconds(12));
    bench.beats(CDS, CollectionKind::Globs, "xdstp:f/a");
    assert_eq!(bench.drain(client), "Cluster ~xdstp:f/a@30");
    let late = able(&mut bench, true);
    bench.change(late, CDS, "+xdstp:f/* +xdstp:g/*");
    assert_eq!(bench.drain(late), "Cluster xdstp:f/a=1@30 xdstp:f/b=1");
    bench.advance(seconds(31));
    assert_eq!(bench.drain(client), "Cluster -xdstp:f/a", "TTL-8");
    bench.says_of_globs(CDS, "xdstp:f/a=1@30", "");
    assert_eq!(bench.drain(client), "Cluster xdstp:f/a=1@30");
    // A freed resource does not expire.
    for client in [client, late] {
        bench.leave(client);
    }
    bench.advance(seconds(31));
    assert!(bench.sources[0].is_idle());
}

#[test]
fn ali_1_ttl_8_what_is_asked_for_by_an_alias_runs_out_too() {
    let mut bench = Bench::cold();
    let client = able(&mut bench, true);
    bench.change(client, VHDS, "+rc/a");
    let host = resource(VHDS, "rc/v|rc/a", "1@30");
    let changes = Changes {
        type_url: url(VHDS),
        kind: CollectionKind::Names,
        present: vec![host.clone()],
        by_alias: vec![("rc/a".into(), host)],
        unasked: Vec::new(),
        absent: Vec::new(),
        refreshed: Vec::new(),
        replaces: false,
        complete: false,
        settled: Vec::new(),
    };
    bench.sources[0].handle_changes(changes, bench.now);
    bench.settle();
    assert_eq!(bench.drain(client), "VirtualHost rc/v=1@30");
    bench.advance(seconds(12));
    bench.beats(VHDS, CollectionKind::Names, "rc/a");
    assert_eq!(bench.drain(client), "VirtualHost ~rc/v@30");
    bench.advance(seconds(31));
    assert_eq!(bench.drain(client), "VirtualHost -rc/a -rc/v");
}

#[test]
fn nam_8_ttl_2_what_has_a_ttl_is_wrapped_in_the_clients_spelling() {
    let (key, spelled) = ("xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/x?a=1&b=2", {
        "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/x?b=2&a=1"
    });
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = able(&mut bench, delta);
        want(&mut bench, client, delta, EDS, spelled);
        bench.says(EDS, &format!("{key}=1@30"));
        assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {spelled}=1@30"));
        bench.advance(seconds(12));
        bench.beats(EDS, CollectionKind::Names, key);
        let beat = if delta { format!("~{spelled}@30") } else { format!("{spelled}=1@30") };
        assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {beat}"));
        bench.fails(EDS, key, Code::Internal);
        let error = if delta { format!("ClusterLoadAssignment !{spelled}:INTERNAL") } else { String::new() };
        assert_eq!(bench.drain(client), error, "SST-7");
    }
}

#[test]
fn rly_51_ttl_8_what_ran_out_is_withheld_but_not_sent_again() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = able(&mut bench, delta);
        want(&mut bench, client, delta, CDS, "*");
        want(&mut bench, client, delta, RDS, "r");
        bench.says_of_all(CDS, "a=1@30 b=1", true);
        bench.says(RDS, "r=a");
        assert_eq!(bench.drain(client), "Cluster a=1@30 b=1; RouteConfiguration r=a");
        bench.advance(seconds(29));
        bench.says(RDS, "r=b");
        assert_eq!(bench.poll(client), "RouteConfiguration r=b");
        bench.advance(seconds(2));
        assert_eq!(bench.poll(client), "");
        bench.ack(client, RDS);
        bench.advance(std::time::Duration::from_millis(25));
        assert_eq!(bench.poll(client), if delta { "Cluster -a" } else { "Cluster b=1" });
    }
}
