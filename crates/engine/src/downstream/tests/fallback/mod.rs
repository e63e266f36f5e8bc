//! Several servers in one list: FBK, and RLY-40 to RLY-49.

mod bounces;
mod reclassify;
mod returns;
mod stand_ins;

use std::time::Duration;

use crate::collection::CollectionKind;
use crate::downstream::tests::bench::fallback::*;
use crate::downstream::tests::bench::{Bench, CDS, ClientId, EDS, LDS, RDS, Routes, streams, url};
use crate::downstream::{Limits, Router, SourceId};
use crate::upstream::{Event, Input};
use sluice_xds::{Code, ResourceError, Status};

#[test]
fn rly_40_one_client_that_lacks_something_moves_nobody_else() {
    let mut bench = servers(2);
    let (content, newcomer) = (bench.delta(), bench.delta());
    bench.change(content, EDS, "+a");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    assert_eq!(bench.follow(content), "ClusterLoadAssignment a=1");
    bench.lose(0);
    assert_eq!((bench.follow(content).as_str(), bench.asks(content, 1)), ("", false), "FBK-1: all is cached");

    bench.change(newcomer, EDS, "+a +b");
    assert_eq!(bench.follow(newcomer), "ClusterLoadAssignment a=1", "RLY-1: what is known comes at once");
    assert!(bench.asks(newcomer, 1) && bench.asks(newcomer, 0), "FBK-4, FBK-5: both are asked for all");
    bench.hear(1);
    bench.names(1, EDS, "a=other b=2");
    assert_eq!(bench.follow(newcomer), "ClusterLoadAssignment a=other b=2");
    assert_eq!((bench.serving(newcomer), bench.serving(content)), (1, 0));
    assert_eq!(bench.follow(content), "");
    bench.check(content, EDS, "a=1");
}

#[test]
fn rly_43_identical_data_is_no_traffic_both_ways() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, EDS, "+a +b");
    bench.hear(0);
    bench.all(0, CDS, "a=e1 b=e1");
    bench.names(0, EDS, "a=1");
    assert_eq!(bench.follow(client), "Cluster a=e1 b=e1; ClusterLoadAssignment a=1");
    bench.lose(0);
    assert_eq!(bench.follow(client), "");
    bench.hear(1);
    bench.all(1, CDS, "a=e1 b=e1");
    bench.names(1, EDS, "a=1 b=1");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment b=1");
    assert_eq!(bench.serving(client), 1);

    bench.hear(0);
    bench.names(0, EDS, "b=1");
    assert_eq!(bench.follow(client), "");
    assert_eq!((bench.serving(client), bench.asks(client, 1)), (0, false));
}

#[test]
fn fbk_11_a_name_added_in_fallback_is_asked_of_every_open_server() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, EDS, "a=1");
    bench.follow(client);
    bench.change(client, EDS, "+b");
    for server in [0, 1] {
        let names = bench.snapshots[server].of(&url(EDS)).map(|types| types.names.entries.len());
        assert_eq!(names, Some(2), "server {server}");
    }
}

#[test]
fn rly_45_a_name_known_not_to_exist_is_no_reason_to_leave() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+typo");
    bench.hear(0);
    bench.names(0, EDS, "-typo");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment -typo");
    bench.lose(0);
    bench.follow(client);
    assert!(!bench.asks(client, 1), "FBK-2");
}

#[test]
fn fbk_3_a_name_that_has_an_error_is_no_reason_to_leave() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.hear(0);
    bench.fails(EDS, "a", Code::Internal);
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    assert!(!bench.asks(client, 1));
}

#[test]
fn fbk_17_with_reachability_only_all_clients_go() {
    let mut bench = servers(2);
    bench.reachability_only = true;
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    assert_eq!(bench.follow(client), "");
    bench.hear(1);
    bench.names(1, EDS, "a=2");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=2");
}

#[test]
fn rel_5_fbk_17_a_session_follows_other_rules_of_its_list() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    assert!(!bench.asks(client, 1), "nothing is missing");
    let routes = Routes { servers: 2, reachability_only: true, ..Routes::default() };
    bench.clients[client].session.configure(Limits::default(), &|list| routes.fallback(list));
    bench.follow(client);
    assert!(bench.asks(client, 1));
}

#[test]
fn rly_46_while_all_are_down_newcomers_get_what_is_known() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, EDS, "+a");
    bench.hear(0);
    bench.all(0, CDS, "a=e1");
    bench.names(0, EDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    bench.leave(client);
    bench.advance(SECOND * 3600);
    let newcomer = bench.delta();
    bench.change(newcomer, CDS, "");
    bench.change(newcomer, EDS, "+a +b");
    let expected = "Cluster a=e1; ClusterLoadAssignment a=1";
    assert_eq!(bench.follow(newcomer), expected, "an hour after the last client left");
    bench.lose(1);
    assert_eq!(bench.follow(newcomer), "");
    bench.check(newcomer, EDS, "a=1");
}

#[test]
fn rly_4_a_session_is_stranded_when_no_server_can_answer_what_it_lacks() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    let stranded = |bench: &Bench, impatient| {
        let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
        bench.clients[client].session.is_stranded(&latest, impatient)
    };
    assert_eq!((stranded(&bench, false), stranded(&bench, true)), (false, true), "on its way");
    bench.lose(0);
    bench.follow(client);
    assert!(!stranded(&bench, false), "the second one is asked first");
    bench.lose(1);
    bench.follow(client);
    assert!(stranded(&bench, false));
    bench.hear(1);
    assert!(!stranded(&bench, true), "whoever is heard may answer yet");
}

#[test]
fn fbk_1_what_a_source_was_not_told_of_yet_does_not_lack() {
    let mut bench = servers(2);
    let (first, second) = (bench.delta(), bench.delta());
    bench.change(first, EDS, "+a +b");
    bench.hear(0);
    bench.names(0, EDS, "a=1 b=1");
    bench.lose(0);
    bench.slow_watches = true;
    bench.change(second, EDS, "+a");
    assert_eq!((bench.follow(second).as_str(), bench.asks(second, 1)), ("", false));
    bench.deliver(second, 1);
    assert_eq!(bench.follow(second), "ClusterLoadAssignment a=1");
    assert!(!bench.asks(second, 1));
}

#[test]
fn rly_43_an_error_of_a_lower_server_beside_a_name_of_the_first_is_nothing() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a +b");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, EDS, "b=1 -a");
    let error = ResourceError { name: "a".into(), status: Status::new(Code::PermissionDenied, "no") };
    let event = Event::ResourceError { type_url: url(EDS), error };
    bench.sources[1].handle_event(&event, bench.now);
    bench.settle();
    assert_eq!(bench.follow(client), "ClusterLoadAssignment b=1");
    assert_eq!(bench.serving(client), 1);
    bench.hear(0);
    bench.names(0, EDS, "b=1");
    assert_eq!(bench.follow(client), "");
    assert_eq!(bench.serving(client), 0);
}

#[test]
fn fbk_3_a_name_of_which_the_only_instance_was_nacked_is_no_reason_to_leave() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.hear(0);
    let faults = vec![("a".into(), "bad".to_owned())];
    let event = Event::Malformed { type_url: url(EDS), faults };
    bench.sources[0].handle_event(&event, bench.now);
    bench.settle();
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    assert!(!bench.asks(client, 1));
}

#[test]
fn fbk_3_that_no_server_is_reachable_is_no_answer() {
    let mut bench = servers(2);
    let (cached, client) = (bench.delta(), bench.delta());
    bench.change(cached, EDS, "+a");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    bench.follow(cached);
    // A hanging server: pending names are told to be unavailable (ERR-10) before the server counts as lost.
    bench.sources[0].handle_upstream(0, Input::Closed { status: down(), jitter: 0.0 }, bench.now);
    bench.settle();
    bench.change(client, EDS, "+a +b");
    bench.advance(SECOND * 11);
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1 !b:UNAVAILABLE");
    bench.sources[0].handle_upstream(0, Input::ConnectFailed { status: down() }, bench.now);
    bench.settle();
    bench.follow(client);
    assert!(bench.asks(client, 1), "FBK-1: b lacks still");
}

#[test]
fn rly_40_a_session_that_cannot_move_stays_as_it_is_and_tries_again() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, CDS, "+a");
    bench.hear(0);
    bench.names(0, CDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    bench.change(client, EDS, "+b");
    bench.clients[client].routes.without = Some(1);
    let shift = bench.shift(client);
    assert_eq!(shift.refused.map(|status| status.code), Some(Code::ResourceExhausted));
    assert!(shift.watches.is_empty() && shift.moves.is_empty());
    assert!(bench.asks(client, 0) && !bench.asks(client, 1));
    // The session does not retry at once, and its resources are still updated.
    assert!(bench.shift(client).refused.is_none(), "it waits");
    bench.clients[client].routes.without = None;
    bench.follow(client);
    assert!(!bench.asks(client, 1));
    bench.advance(SECOND * 5);
    bench.follow(client);
    assert!(bench.asks(client, 1));
    bench.hear(1);
    bench.names(1, CDS, "a=2");
    bench.names(1, EDS, "b=2");
    assert_eq!(bench.follow(client), "Cluster a=2; ClusterLoadAssignment b=2");
}
