//! Another configuration: node classes are split and merged, and lists change (REL-6, ADR 36).

use super::*;
use crate::downstream::tests::bench::{streams_by_type, version_of};
use crate::upstream::Transport;

/// The time that a session waits for its new sources.
const RESOLVE: Duration = Duration::from_secs(15);

/// The sources of two classes at one server, without a list of several servers.
fn classes() -> Bench {
    Bench::new(vec![streams(), streams()])
}

/// A client of the first class that has clusters, endpoints, a listener and routes.
fn settled(bench: &mut Bench, is_delta: bool) -> ClientId {
    let client = if is_delta { bench.delta() } else { bench.sotw() };
    bench.clients[client].routes.xdstp = 0;
    if is_delta {
        bench.change(client, CDS, "");
        bench.change(client, EDS, "+a +b");
        bench.change(client, LDS, "");
        bench.change(client, RDS, "+r");
    } else {
        for (message, list) in [(CDS, ""), (EDS, "a b"), (LDS, ""), (RDS, "r")] {
            bench.ask(client, message, list);
        }
    }
    answer(bench, 0, "a=e1 b=e1", "a=1 b=1");
    let sent = bench.follow(client);
    let own = "Cluster a=e1 b=e1; ClusterLoadAssignment a=1 b=1; Listener l=1; RouteConfiguration r=1";
    assert_eq!(sent, own);
    client
}

/// A source knows everything of the client of [`settled`].
fn answer(bench: &mut Bench, source: usize, clusters: &str, endpoints: &str) {
    bench.all(source, CDS, clusters);
    bench.names(source, EDS, endpoints);
    bench.all(source, LDS, "l=1");
    bench.names(source, RDS, "r=1");
}

fn other_class(bench: &mut Bench, client: ClientId) {
    bench.reclassify(client, |routes| (routes.old, routes.xdstp) = (1, 1));
}

/// Removals rest, and wait for routes.
fn rest(bench: &mut Bench, client: ClientId) -> String {
    let mut told = Vec::new();
    for _ in 0..40 {
        bench.advance(SECOND);
        told.push(bench.follow(client));
    }
    told.retain(|sent| !sent.is_empty());
    told.join("; ")
}

#[test]
fn rel_6_equal_answers_of_another_class_are_no_message() {
    for is_delta in [true, false] {
        let mut bench = classes();
        let client = settled(&mut bench, is_delta);
        other_class(&mut bench, client);
        assert_eq!(bench.follow(client), "");
        assert!(bench.asks(client, 0) && bench.asks(client, 1), "the former class serves meanwhile");
        bench.names(0, EDS, "a=2");
        assert_eq!(bench.follow(client), "ClusterLoadAssignment a=2");
        answer(&mut bench, 1, "a=e1 b=e1", "a=2 b=1");
        assert_eq!(bench.follow(client), "");
        assert!(!bench.asks(client, 0) && bench.asks(client, 1));
        assert_eq!(rest(&mut bench, client), "");
        bench.names(0, EDS, "a=3");
        assert_eq!(bench.follow(client), "", "the former class is over");
        bench.names(1, EDS, "b=4");
        assert_eq!(bench.follow(client), "ClusterLoadAssignment b=4");
    }
}

#[test]
fn rel_6_a_name_less_is_one_removal_once_the_new_set_is_whole() {
    for is_delta in [true, false] {
        let mut bench = classes();
        let client = settled(&mut bench, is_delta);
        other_class(&mut bench, client);
        bench.names(1, EDS, "a=1 b=1");
        bench.all(1, LDS, "l=1");
        bench.names(1, RDS, "r=1");
        bench.changes(1, CDS, CollectionKind::Wildcard, "b=e1", false);
        assert_eq!(bench.follow(client), "");
        bench.advance(SECOND * 10);
        assert_eq!(bench.follow(client), "", "the new set is not whole");
        bench.all(1, CDS, "b=e1");
        let expected = if is_delta { "Cluster -a" } else { "Cluster b=e1" };
        assert_eq!(rest(&mut bench, client), expected);
        bench.check(client, CDS, "b=e1");
    }
}

#[test]
fn rel_6_after_the_time_limit_the_new_class_serves_whatever_it_knows() {
    for is_delta in [true, false] {
        let mut bench = classes();
        let client = settled(&mut bench, is_delta);
        other_class(&mut bench, client);
        bench.names(1, EDS, "a=2");
        bench.advance(RESOLVE - SECOND * 2);
        assert_eq!((bench.follow(client).as_str(), bench.asks(client, 0)), ("", true));
        bench.advance(SECOND * 3);
        let sent = bench.follow(client);
        assert!(!bench.asks(client, 0));
        assert!(!sent.contains('-') && !sent.contains("Cluster "), "{sent}");
        answer(&mut bench, 1, "a=e1 b=e1", "a=2 b=1");
        bench.follow(client);
        bench.check(client, CDS, "a=e1 b=e1");
        bench.check(client, EDS, "a=2 b=1");
    }
}

#[test]
fn rel_6_subscriptions_that_change_during_the_move_are_asked_of_both_classes() {
    let mut bench = classes();
    let client = settled(&mut bench, true);
    other_class(&mut bench, client);
    bench.change(client, EDS, "+c");
    bench.names(0, EDS, "c=1");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment c=1");
    answer(&mut bench, 1, "a=e1 b=e1", "a=1 b=1");
    bench.follow(client);
    assert!(bench.asks(client, 0), "the new class does not know the new name");
    bench.names(1, EDS, "c=1");
    assert_eq!(bench.follow(client), "");
    assert!(!bench.asks(client, 0));
    bench.change(client, EDS, "-c");
    assert_eq!(
        bench.snapshots[1].of(&url(EDS)).map(|types| types.names.entries.len()),
        Some(3),
        "it lingers"
    );
}

#[test]
fn rel_6_a_type_that_is_new_during_the_move_belongs_to_the_former_class_until_the_move() {
    let mut bench = classes();
    let client = bench.delta();
    bench.clients[client].routes.xdstp = 0;
    bench.change(client, LDS, "+l");
    bench.names(0, LDS, "l=1");
    bench.follow(client);
    other_class(&mut bench, client);
    bench.change(client, RDS, "+r");
    bench.names(0, RDS, "r=1");
    assert_eq!(bench.follow(client), "RouteConfiguration r=1");
    bench.names(1, LDS, "l=1");
    bench.names(1, RDS, "r=2");
    assert_eq!(bench.follow(client), "RouteConfiguration r=2");
}

#[test]
fn rel_6_a_configuration_that_comes_back_ends_the_move() {
    let mut bench = classes();
    let client = settled(&mut bench, true);
    other_class(&mut bench, client);
    bench.reclassify(client, |routes| (routes.old, routes.xdstp) = (0, 0));
    assert!(!bench.clients[client].session.is_moving());
    assert!(bench.asks(client, 0) && !bench.asks(client, 1));
    bench.names(0, EDS, "a=2");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=2");
}

#[test]
fn rel_6_a_refused_class_leaves_the_session_where_it_is() {
    let mut bench = servers(2);
    let client = settled_in_list(&mut bench, 0);
    let this = &mut bench.clients[client];
    let mut to = this.routes;
    (to.list, to.without) = (1, Some(0));
    this.session.reclassify(&mut to, bench.now).unwrap_err();
    assert!(!this.session.is_moving());
    assert!(bench.asks(client, 0) && !bench.asks(client, 1));
    bench.names(0, EDS, "a=2");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=2");
}

/// Two classes at each of three servers: the sources 0 and 1 are of the first server, and so on.
fn lists(count: u16) -> Bench {
    let mut bench = Bench::new((0..6).map(|_| streams()).collect());
    bench.servers = count;
    bench
}

/// A delta client that has endpoints from this source.
fn settled_in_list(bench: &mut Bench, source: usize) -> ClientId {
    let client = bench.delta();
    bench.clients[client].routes.order = [0, 2, 4, 4];
    bench.change(client, EDS, "+a +b");
    bench.names(source, EDS, "a=1 b=1");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1 b=1");
    client
}

#[test]
fn rel_6_a_list_in_another_order_is_no_byte() {
    let mut bench = lists(2);
    let client = settled_in_list(&mut bench, 0);
    bench.reclassify(client, |routes| (routes.list, routes.order) = (1, [2, 0, 4, 4]));
    assert_eq!(
        (bench.follow(client).as_str(), bench.serving(client)),
        ("", 1),
        "its server is the second now"
    );
    assert!(bench.asks(client, 2), "the first one is asked");
    bench.advance(RESOLVE * 2);
    assert_eq!((bench.follow(client).as_str(), bench.serving(client)), ("", 1), "it was never heard");
    bench.hear(2);
    bench.names(2, EDS, "a=1 b=1");
    assert_eq!((bench.follow(client).as_str(), bench.serving(client)), ("", 0));
    assert!(!bench.asks(client, 0));
}

#[test]
fn rel_6_a_server_that_joins_below_or_leaves_unused_is_nothing() {
    let mut bench = lists(1);
    let client = settled_in_list(&mut bench, 0);
    bench.reclassify(client, |routes| (routes.list, routes.servers) = (1, 2));
    assert_eq!((bench.follow(client).as_str(), bench.asks(client, 2)), ("", false));
    bench.lose(0);
    bench.change(client, EDS, "+c");
    bench.follow(client);
    assert!(bench.asks(client, 2), "the list has a second server now");
    bench.hear(2);
    bench.names(2, EDS, "a=1 b=1 c=1");
    assert_eq!((bench.follow(client).as_str(), bench.serving(client)), ("ClusterLoadAssignment c=1", 1));
    bench.reclassify(client, |routes| (routes.list, routes.servers, routes.order) = (2, 1, [2, 2, 4, 4]));
    assert_eq!(bench.follow(client), "");
    assert!(!bench.asks(client, 0) && bench.asks(client, 2), "the first server left the list");
}

#[test]
fn rel_6_a_server_that_leaves_the_list_serves_until_another_knows_everything() {
    let mut bench = lists(1);
    let client = settled_in_list(&mut bench, 0);
    bench.reclassify(client, |routes| (routes.list, routes.servers, routes.order) = (1, 2, [2, 4, 4, 4]));
    bench.lose(2);
    bench.names(0, EDS, "a=2");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=2");
    assert!(bench.asks(client, 4), "FBK-4: the first server of the new list is lost, so the second is asked");
    bench.hear(4);
    bench.names(4, EDS, "a=2 b=2");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment b=2");
    assert!(!bench.asks(client, 0));
    assert_eq!(bench.serving(client), 1);
}

#[test]
fn rly_42_stand_ins_of_the_former_class_stay_until_the_move() {
    let mut bench = lists(2);
    let client = settled_in_list(&mut bench, 0);
    bench.lose(0);
    bench.change(client, EDS, "+c");
    bench.follow(client);
    bench.hear(2);
    bench.names(2, EDS, "a=1 -b c=1");
    assert_eq!((bench.follow(client).as_str(), bench.serving(client)), ("ClusterLoadAssignment c=1", 1));
    bench.reclassify(client, |routes| routes.order = [1, 3, 5, 5]);
    bench.hear(1);
    bench.names(1, EDS, "a=1 c=1");
    bench.names(2, EDS, "c=2");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment c=2");
    bench.names(1, EDS, "b=1");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment c=1");
    assert!(!bench.asks(client, 0) && !bench.asks(client, 2) && bench.asks(client, 1));
    bench.check(client, EDS, "a=1 b=1 c=1");
}

/// The new class is at another server of the list already.
#[test]
fn rly_40_a_type_that_is_new_during_the_move_has_the_server_of_the_others() {
    let mut bench = lists(2);
    let client = settled_in_list(&mut bench, 0);
    bench.reclassify(client, |routes| routes.order = [1, 3, 5, 5]);
    bench.lose(1);
    bench.follow(client);
    assert!(bench.asks(client, 3), "the first server is lost to the new class");
    bench.hear(3);
    bench.names(3, EDS, "a=1");
    bench.change(client, CDS, "+c");
    assert!(bench.asks(client, 0) && !bench.asks(client, 2));
    bench.names(0, CDS, "c=1");
    assert_eq!(bench.follow(client), "Cluster c=1");
    bench.reclassify(client, |routes| routes.order = [0, 2, 4, 4]);
    assert_eq!(bench.follow(client), "");
    assert!(!bench.asks(client, 2) && bench.serving(client) == 0, "the session is as before");
}

/// One type of the list leaves the former class, and the others stay as they are.
#[test]
fn rly_40_a_name_that_is_new_during_the_move_has_the_server_that_the_list_moved_to_meanwhile() {
    let mut bench = Bench::new((0..5).map(|_| streams_by_type(Transport::PerType)).collect());
    (bench.servers, bench.by_type) = (2, true);
    let client = bench.delta();
    let routes = &mut bench.clients[client].routes;
    (routes.order, routes.is_apart, routes.xdstp) = ([0, 2, 2, 2], true, 1);
    bench.change(client, EDS, "");
    bench.all(0, EDS, "a=1 b=1");
    bench.change(client, LDS, "+xdstp:x");
    bench.names(1, LDS, "xdstp:x=1");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1 b=1; Listener xdstp:x=1");
    bench.reclassify(client, |routes| routes.xdstp = 4);
    bench.lose(0);
    bench.change(client, EDS, "+c");
    bench.follow(client);
    bench.hear(2);
    bench.all(2, EDS, "a=2 b=2");
    bench.names(2, EDS, "c=2");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=2 b=2 c=2");
    assert!(bench.clients[client].session.is_moving(), "nothing is known of the authority yet");
    bench.names(0, EDS, "d=1");
    bench.change(client, EDS, "+d");
    assert_eq!(bench.follow(client), "");
    bench.names(2, EDS, "d=2");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment d=2");
}

/// A removal rests, and meanwhile the session moves.
#[test]
fn rly_51_a_cluster_that_left_the_former_class_a_moment_before_the_move_rests_in_the_new_one() {
    let mut bench = classes();
    let client = settled(&mut bench, false);
    bench.all(0, CDS, "-a b=e1");
    assert_eq!(bench.poll(client), "");
    other_class(&mut bench, client);
    answer(&mut bench, 1, "b=e1 c=1", "a=1 b=1");
    bench.shift(client);
    assert_eq!(bench.poll(client), "Cluster a=e1 b=e1 c=1", "with the last bytes of the former class");
    bench.ack(client, CDS);
    assert_eq!(rest(&mut bench, client), "Cluster b=e1 c=1");
}

/// The client presents the name of an authority beside the wildcard of another source.
#[test]
fn del_29_a_presented_name_with_a_source_of_its_own_is_none_of_the_wildcard() {
    let mut bench = Bench::new(vec![streams(), streams(), streams(), streams()]);
    let client = bench.delta();
    (bench.clients[client].routes.old, bench.clients[client].routes.xdstp) = (0, 1);
    bench.change(client, LDS, "+l");
    let presented = [("xdstp:y", version_of(CDS, "xdstp:y=1"))];
    bench.change_with(client, CDS, "+* +xdstp:y", "", &presented, None);
    bench.names(1, CDS, "xdstp:y=2");
    bench.names(0, LDS, "l=1");
    assert_eq!(bench.follow(client), "Cluster xdstp:y=2; Listener l=1");
    bench.reclassify(client, |routes| (routes.old, routes.xdstp) = (2, 3));
    bench.all(2, CDS, "a=1");
    bench.names(2, LDS, "l=1");
    bench.advance(RESOLVE);
    assert_eq!(bench.follow(client), "Cluster a=1 !xdstp:y:UNAVAILABLE");
    bench.names(3, CDS, "xdstp:y=1");
    assert_eq!(bench.follow(client), "Cluster xdstp:y=1");
}

#[test]
fn rel_6_types_with_streams_of_their_own_move_together() {
    let mut bench = Bench::new((0..4).map(|_| streams_by_type(Transport::PerType)).collect());
    (bench.servers, bench.by_type) = (2, true);
    let client = bench.delta();
    bench.clients[client].routes.order = [0, 2, 2, 2];
    bench.change(client, CDS, "+a");
    bench.change(client, EDS, "+a");
    bench.names(0, CDS, "a=e1");
    bench.names(0, EDS, "a=1");
    assert_eq!(bench.follow(client), "Cluster a=e1; ClusterLoadAssignment a=1");
    bench.reclassify(client, |routes| routes.order = [1, 3, 3, 3]);
    bench.names(1, CDS, "a=e2");
    assert_eq!(bench.follow(client), "");
    bench.names(1, EDS, "a=1");
    assert_eq!(bench.follow(client), "Cluster a=e2; ClusterLoadAssignment a=1");
    assert!(!bench.asks(client, 0));
}

/// The wildcard of the new class has the content that the client had before the name brought other content.
#[test]
fn sub_12_the_wildcard_of_the_new_class_replaces_a_name_that_is_unknown_there() {
    for is_delta in [true, false] {
        let mut bench = classes();
        let client = if is_delta { bench.delta() } else { bench.sotw() };
        bench.clients[client].routes.xdstp = 0;
        if is_delta {
            bench.change(client, EDS, "+* +a");
        } else {
            bench.ask(client, EDS, "* a");
        }
        bench.all(0, EDS, "a=1");
        assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1");
        bench.names(0, EDS, "a=2");
        assert_eq!(bench.follow(client), "ClusterLoadAssignment a=2");
        other_class(&mut bench, client);
        bench.all(1, EDS, "a=1");
        bench.advance(RESOLVE);
        bench.follow(client);
        bench.check(client, EDS, "a=1");
        bench.names(1, EDS, "a=1");
        bench.follow(client);
        bench.check(client, EDS, "a=1");
    }
}

/// The new servers of the type take turns, and the former one serves.
#[test]
fn rel_6_a_type_that_is_new_during_the_move_stays_with_its_former_server() {
    let mut bench = Bench::new((0..4).map(|_| streams_by_type(Transport::PerType)).collect());
    (bench.servers, bench.by_type) = (2, true);
    let client = bench.delta();
    bench.clients[client].routes.order = [0, 2, 2, 2];
    bench.change(client, CDS, "+a");
    bench.names(0, CDS, "a=e1");
    assert_eq!(bench.follow(client), "Cluster a=e1");
    bench.reclassify(client, |routes| routes.order = [1, 3, 3, 3]);
    bench.change(client, EDS, "+a");
    bench.lose(1);
    bench.follow(client);
    bench.hear(3);
    bench.names(3, EDS, "a=2");
    bench.follow(client);
    bench.change(client, EDS, "+b");
    assert!(bench.asks(client, 0) && !bench.asks(client, 2));
    bench.names(0, EDS, "a=1 b=1");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1 b=1");
}

/// A client with a name of an authority, and the answer of the source of names that no server is asked for.
fn of_an_authority(is_delta: bool) -> (Bench, ClientId) {
    let mut bench = Bench::new(vec![streams(), streams(), streams()]);
    let client = if is_delta { bench.delta() } else { bench.sotw() };
    (bench.clients[client].routes.old, bench.clients[client].routes.xdstp) = (0, 1);
    if is_delta {
        bench.change(client, LDS, "+a +xdstp:x +xdstp:y");
    } else {
        bench.ask(client, LDS, "a xdstp:x xdstp:y");
    }
    bench.names(0, LDS, "a=1");
    bench.names(1, LDS, "xdstp:x=1 -xdstp:y");
    let told = if is_delta { "Listener a=1 xdstp:x=1 -xdstp:y" } else { "Listener a=1 xdstp:x=1" };
    // The client does not ACK yet.
    assert_eq!((bench.shift(client).is_settled, bench.poll(client).as_str()), (false, told));
    (bench, client)
}

/// The configuration loses the client's authority.
fn lose_authority(bench: &mut Bench, client: ClientId) {
    bench.reclassify(client, |routes| routes.xdstp = 2);
    bench.names(2, LDS, "-xdstp:x -xdstp:y");
    bench.shift(client);
    assert!(bench.clients[client].moving_to.is_none());
    bench.regroup(client);
    bench.names(2, LDS, "-xdstp:x -xdstp:y");
}

#[test]
fn rel_6_fed_3_names_of_an_authority_that_went_are_removed_though_no_answer_came_yet() {
    for is_delta in [true, false] {
        let (mut bench, client) = of_an_authority(is_delta);
        lose_authority(&mut bench, client);
        bench.ack(client, LDS);
        let expected = if is_delta { "Listener -xdstp:x" } else { "Listener a=1" };
        assert_eq!(bench.drain(client), expected);
        bench.check(client, LDS, "a=1");
    }
}
