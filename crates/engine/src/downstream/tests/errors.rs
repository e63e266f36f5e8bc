//! Resources that cannot be supplied: ERR, DAT.

use std::time::Duration;

use super::bench::{Bench, CDS, ClientId, EDS, LDS, RDS, names, resource, streams, url, version_of};
use crate::collection::CollectionKind;
use crate::downstream::ClientFeatures;
use crate::downstream::upstream_features;
use crate::source::{Attachment, Files};
use crate::upstream::{Cause, Changes, Event};
use sluice_xds::{Code, Node, TypeUrl, Variant};

fn capable(bench: &mut Bench) -> ClientId {
    let client = bench.sotw();
    bench.clients[client].routes.features =
        ClientFeatures { errors_alone: true, ..ClientFeatures::default() };
    client
}

#[test]
fn err_9_an_error_reaches_the_subscribers_of_that_name_only_and_once() {
    let mut bench = Bench::cold();
    let (one, other) = (bench.delta(), bench.delta());
    bench.change(one, EDS, "+a +b");
    bench.change(other, EDS, "+b");
    bench.says(EDS, "b=1");
    bench.fails(EDS, "a", Code::PermissionDenied);
    assert_eq!(bench.drain(one), "ClusterLoadAssignment b=1 !a:PERMISSION_DENIED");
    assert_eq!(bench.drain(other), "ClusterLoadAssignment b=1");
    // ERR-3: the error stands until a change.
    bench.fails(EDS, "a", Code::PermissionDenied);
    assert_eq!(bench.drain(one), "");
    bench.fails(EDS, "a", Code::Internal);
    assert_eq!(bench.drain(one), "ClusterLoadAssignment !a:INTERNAL");
    let error =
        bench.snapshots[0].of(&url(EDS)).unwrap().names.annotations.error(&"a".into()).unwrap().clone();
    assert_eq!(error.message, "cp-1: why");
}

#[test]
fn err_3_a_resource_ends_the_error_though_nothing_changed_in_it() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.says(EDS, "a=1");
    bench.drain(client);
    bench.fails(EDS, "a", Code::Unavailable);
    // ERR-4: cached resources stay.
    assert_eq!(bench.drain(client), "ClusterLoadAssignment !a:UNAVAILABLE");
    let late = bench.delta();
    bench.change(late, EDS, "+a");
    assert_eq!(bench.drain(late), "ClusterLoadAssignment a=1; ClusterLoadAssignment !a:UNAVAILABLE", "ERR-2");
    bench.says(EDS, "a=1");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
    assert_eq!(bench.drain(late), "ClusterLoadAssignment a=1");
    bench.says(EDS, "a=1");
    assert_eq!(bench.drain(client), "");
}

#[test]
fn err_5_not_found_is_a_removal_in_delta() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.says(EDS, "a=1");
    bench.drain(client);
    not_found(&mut bench, EDS, "a");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment -a");
}

/// Reports an absent name like the machine of a stream.
fn not_found(bench: &mut Bench, message: &str, name: &str) {
    bench.fails(message, name, Code::NotFound);
    absent(bench, message, name, Cause::NotFound);
}

fn absent(bench: &mut Bench, message: &str, name: &str, cause: Cause) {
    let changes = Changes {
        type_url: url(message),
        kind: CollectionKind::Names,
        present: Vec::new(),
        by_alias: Vec::new(),
        unasked: Vec::new(),
        settled: Vec::new(),
        absent: vec![(name.into(), cause)],
        refreshed: Vec::new(),
        replaces: false,
        complete: false,
    };
    bench.sources[0].handle_changes(changes, bench.now);
    bench.settle();
}

#[test]
fn err_8_without_the_setting_a_full_state_answer_is_held_and_nothing_is_left_out() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, LDS, "a b");
    bench.says(LDS, "a=1");
    bench.fails(LDS, "b", Code::Unavailable);
    assert_eq!(bench.drain(client), "", "RLY-5");
    bench.says(LDS, "b=1");
    assert_eq!(bench.drain(client), "Listener a=1 b=1");
    bench.fails(LDS, "b", Code::Unavailable);
    bench.says(LDS, "a=2");
    assert_eq!(bench.drain(client), "Listener a=2 b=1");
}

#[test]
fn err_4_with_the_setting_an_error_may_take_the_place_of_what_the_client_holds() {
    let mut bench = Bench::cold();
    let client = capable(&mut bench);
    bench.ask(client, LDS, "a b");
    bench.says(LDS, "a=1");
    bench.fails(LDS, "b", Code::Unavailable);
    assert_eq!(bench.drain(client), "Listener a=1 !b:UNAVAILABLE", "RLY-8");
    // Every time, because the client drops a name that is in neither list.
    bench.says(LDS, "a=2");
    assert_eq!(bench.drain(client), "Listener a=2 !b:UNAVAILABLE");
    bench.says(LDS, "b=1");
    assert_eq!(bench.drain(client), "Listener a=2 b=1");
    bench.fails(LDS, "b", Code::Internal);
    assert_eq!(bench.drain(client), "Listener a=2 !b:INTERNAL");
    let late = capable(&mut bench);
    bench.ask(late, LDS, "a b");
    assert_eq!(bench.drain(late), "Listener a=2 b=1", "who does not hold it is sent it");
}

#[test]
fn sst_7_errors_go_alone_in_sotw_only_where_stated() {
    let mut bench = Bench::cold();
    let (plain, able) = (bench.sotw(), capable(&mut bench));
    for client in [plain, able] {
        bench.ask(client, EDS, "a b");
    }
    bench.fails(EDS, "a", Code::Unavailable);
    assert_eq!(bench.drain(plain), "");
    assert_eq!(bench.drain(able), "ClusterLoadAssignment !a:UNAVAILABLE");
    // ERR-8: beside resources, errors are always written.
    bench.says(EDS, "b=1");
    assert_eq!(bench.drain(plain), "ClusterLoadAssignment b=1 !a:UNAVAILABLE");
    assert_eq!(bench.drain(able), "ClusterLoadAssignment b=1");
    bench.says(EDS, "b=2");
    assert_eq!(bench.drain(plain), "ClusterLoadAssignment b=2", "ERR-3");
}

#[test]
fn rly_34_an_absence_is_not_found_to_those_who_take_errors_alone() {
    let mut bench = Bench::cold();
    let (plain, able) = (bench.sotw(), capable(&mut bench));
    for client in [plain, able] {
        bench.ask(client, EDS, "a");
    }
    bench.says(EDS, "-a");
    assert_eq!(bench.drain(plain), "", "SST-10");
    assert_eq!(bench.drain(able), "ClusterLoadAssignment !a:NOT_FOUND");
    bench.says(EDS, "a=1");
    assert_eq!((bench.drain(plain), bench.drain(able)), {
        let both = "ClusterLoadAssignment a=1".to_owned();
        (both.clone(), both)
    });
}

#[test]
fn err_10_rly_8_what_an_unreachable_server_owes_is_unavailable_after_ten_seconds() {
    let mut bench = Bench::cold();
    let (delta, plain, able) = (bench.delta(), bench.sotw(), capable(&mut bench));
    bench.change(delta, CDS, "+a");
    bench.ask(plain, CDS, "a");
    bench.ask(able, CDS, "a");
    bench.advance(Duration::from_millis(9_900));
    assert_eq!((bench.drain_now(delta), bench.drain_now(able)), (String::new(), String::new()));
    bench.advance(Duration::from_millis(200));
    assert_eq!(bench.drain(delta), "Cluster !a:UNAVAILABLE");
    assert_eq!(bench.drain(able), "Cluster !a:UNAVAILABLE");
    assert_eq!(bench.drain(plain), "", "ERR-8: held");
    bench.says(CDS, "a=1");
    for client in [delta, plain, able] {
        assert_eq!(bench.drain(client), "Cluster a=1");
    }
}

#[test]
fn tmr_5_a_timer_that_is_a_transient_error_is_unavailable() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    let event = Event::Timeout { type_url: url(EDS), names: names("a") };
    bench.sources[0].handle_event(&event, bench.now);
    bench.settle();
    assert_eq!(bench.drain(client), "ClusterLoadAssignment !a:UNAVAILABLE");
}

#[test]
fn err_7_of_a_wildcard_the_names_that_are_told_are_passed_on() {
    let mut bench = Bench::cold();
    let (client, named) = (bench.delta(), bench.delta());
    bench.change(client, CDS, "");
    bench.change(named, EDS, "+b");
    bench.says_of_all(CDS, "a=1 b=1", true);
    bench.drain(client);
    bench.fails(CDS, "b", Code::Internal);
    assert_eq!(bench.drain(client), "Cluster !b:INTERNAL");
    assert_eq!(bench.drain(named), "");
    bench.says_of_all(CDS, "b=1", true);
    assert_eq!(bench.drain(client), "Cluster b=1");
}

#[test]
fn del_25_errors_wait_for_the_wildcard_beside_them() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, CDS, "+x");
    bench.advance(Duration::from_secs(11));
    assert_eq!(bench.drain(client), "", "it would seem to be all that there is");
    bench.says_of_all(CDS, "a=1", true);
    assert_eq!(bench.drain(client), "Cluster a=1 !x:UNAVAILABLE");
}

#[test]
fn del_11_a_name_that_is_asked_for_again_has_its_error_told_again() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.fails(EDS, "a", Code::Unavailable);
    bench.drain(client);
    bench.change(client, EDS, "+a");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment !a:UNAVAILABLE");
}

#[test]
fn wir_9_rly_23_what_needs_the_wrapper_is_left_out_for_who_does_not_take_it() {
    const LEDS: &str = "envoy.config.endpoint.v3.LbEndpointCollection";
    let mut bench = Bench::cold();
    let (plain, able, delta) = (bench.sotw(), bench.sotw(), bench.delta());
    bench.clients[able].routes.features = ClientFeatures { wrapper: true, ..ClientFeatures::default() };
    bench.ask(plain, LEDS, "a");
    bench.ask(able, LEDS, "a");
    bench.change(delta, LEDS, "+a");
    bench.says(LEDS, "a=1");
    assert_eq!(bench.drain(plain), "");
    assert_eq!(bench.drain(able), "LbEndpointCollection a=1");
    assert_eq!(bench.drain(delta), "LbEndpointCollection a=1");
    assert!(!resource(LEDS, "a", "1").names_itself(&url(LEDS)));
}

#[test]
fn ttl_2_fea_1_every_spelling_of_a_feature_counts() {
    let of = |features: &[&str], agent: &str, variant, message: &str| {
        let client_features = features.iter().map(|f| (*f).to_owned()).collect();
        let node = Node { client_features, user_agent_name: agent.to_owned(), ..Node::default() };
        let features = ClientFeatures::of(&node, variant, &TypeUrl::of_message(message), false);
        (features.ttl, features.wrapper)
    };
    let ttls = ["xds.config.supports-resource-ttl", "envoy.config.supports-resource-ttl"];
    let wrappers = [
        "xds.config.resource-in-sotw",
        "xds.config.supports-resource-in-sotw",
        "envoy.config.resource-in-sotw",
    ];
    for ttl in ttls {
        assert_eq!(of(&[ttl], "envoy", Variant::Delta, EDS), (true, false));
        assert_eq!(of(&[ttl], "envoy", Variant::Sotw, EDS), (false, false), "TTL-2: it needs the wrapper");
        for wrapper in wrappers {
            assert_eq!(of(&[ttl, wrapper], "envoy", Variant::Sotw, EDS), (true, true));
            assert_eq!(of(&[ttl, wrapper], "gRPC C-core", Variant::Sotw, EDS), (false, true), "TTL-7");
        }
    }
    // LED-4
    let leds = "envoy.config.endpoint.v3.LbEndpointCollection";
    let both = [wrappers[0], "xds.endpoint.supports_lb_endpoint_collection"];
    assert_eq!(of(&wrappers[..1], "gRPC C-core", Variant::Sotw, leds), (false, false));
    assert_eq!(of(&both, "gRPC C-core", Variant::Sotw, leds), (false, true));
}

#[test]
fn rly_22_fea_3_upstream_sees_the_features_of_the_class_and_the_wrapper() {
    let of = |features: &[&str]| {
        upstream_features(&features.iter().map(|feature| (*feature).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(of(&["x.y"]), ["x.y", "xds.config.resource-in-sotw"]);
    let old = "envoy.config.supports-resource-ttl";
    assert_eq!(of(&[old]), [old, "xds.config.resource-in-sotw", "xds.config.supports-resource-ttl"]);
}

/// FED-3: the reason is stored beside the absence.
#[test]
fn err_1_names_that_nobody_is_asked_for_say_why() {
    let mut bench = Bench::new(vec![streams(), Attachment::Files(Files::nothing())]);
    let (sotw, delta) = (bench.sotw(), bench.delta());
    bench.ask(sotw, CDS, "xdstp:x xdstp:f/*");
    assert_eq!(bench.drain(sotw), "Cluster !xdstp:f/*:NOT_FOUND !xdstp:x:NOT_FOUND");
    bench.change(delta, CDS, "+xdstp:x");
    assert_eq!(bench.drain(delta), "Cluster -xdstp:x", "ERR-5");
    let annotations = &bench.snapshots[1].of(&url(CDS)).unwrap().names.annotations;
    let (_, error) = annotations.errors().next().unwrap();
    assert_eq!(error.message, "no server is configured for the authority \"-\"");
}

#[test]
fn err_7_err_10_a_glob_has_an_error_under_its_own_name() {
    let mut bench = Bench::cold();
    let (client, able) = (bench.delta(), capable(&mut bench));
    bench.change(client, CDS, "+xdstp:f/*");
    bench.ask(able, CDS, "xdstp:f/*");
    bench.advance(Duration::from_secs(11));
    assert_eq!(bench.drain(client), "Cluster !xdstp:f/*:UNAVAILABLE");
    assert_eq!(bench.drain(able), "Cluster !xdstp:f/*:UNAVAILABLE");
    bench.says_of_globs(CDS, "xdstp:f/a=1", "xdstp:f/*");
    assert_eq!(bench.drain(client), "Cluster xdstp:f/a=1");
    assert_eq!(bench.drain(able), "Cluster xdstp:f/a=1");
    bench.fails(CDS, "xdstp:f/b", Code::PermissionDenied);
    assert_eq!(bench.drain(client), "Cluster !xdstp:f/b:PERMISSION_DENIED");
    // The error ends with the glob.
    bench.change(client, CDS, "-xdstp:f/*");
    bench.change(client, CDS, "+xdstp:f/*");
    assert_eq!(bench.drain(client), "Cluster xdstp:f/a=1 !xdstp:f/b:PERMISSION_DENIED");
}

fn malformed(bench: &mut Bench, message: &str, name: &str) {
    let faults = vec![(name.into(), "bad".to_owned())];
    bench.sources[0].handle_event(&Event::Malformed { type_url: url(message), faults }, bench.now);
    bench.settle();
}

#[test]
fn dat_2_dat_6_by_default_the_copy_stays_and_the_error_is_told_beside_it() {
    let mut bench = Bench::cold();
    let (client, able) = (bench.delta(), capable(&mut bench));
    bench.change(client, EDS, "+a +b");
    bench.ask(able, LDS, "a");
    bench.says(EDS, "a=1");
    bench.says(LDS, "a=1");
    bench.drain(client);
    bench.drain(able);
    malformed(&mut bench, EDS, "a");
    malformed(&mut bench, LDS, "a");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment !a:INVALID_ARGUMENT");
    assert_eq!(bench.drain(able), "Listener !a:INVALID_ARGUMENT", "ERR-4");
    let error =
        bench.snapshots[0].of(&url(EDS)).unwrap().names.annotations.error(&"a".into()).unwrap().clone();
    assert_eq!(error.message, "cp-1: bad");
    // Without a copy there is only the error.
    malformed(&mut bench, EDS, "b");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment !b:INVALID_ARGUMENT");
    let late = bench.delta();
    bench.change(late, EDS, "+a");
    assert_eq!(
        bench.drain(late),
        "ClusterLoadAssignment a=1; ClusterLoadAssignment !a:INVALID_ARGUMENT",
        "DAT-6"
    );
    // DAT-7: the next delivery ends the error.
    bench.says(EDS, "a=2");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=2");
}

#[test]
fn dat_2_a_copy_that_is_given_up_is_told_as_each_dialect_can() {
    let mut bench = Bench::cold();
    let (client, plain, able) = (bench.delta(), bench.sotw(), capable(&mut bench));
    bench.change(client, EDS, "+a");
    bench.ask(plain, LDS, "a b");
    bench.ask(able, EDS, "a");
    bench.says(EDS, "a=1");
    bench.says(LDS, "a=1 b=1");
    for id in [client, plain, able] {
        bench.drain(id);
    }
    bench.fails(EDS, "a", Code::PermissionDenied);
    absent(&mut bench, EDS, "a", Cause::DataError);
    malformed(&mut bench, LDS, "b");
    absent(&mut bench, LDS, "b", Cause::DataError);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment -a");
    assert_eq!(bench.drain(plain), "Listener a=1 !b:INVALID_ARGUMENT", "the copy is left out");
    assert_eq!(bench.drain(able), "ClusterLoadAssignment !a:PERMISSION_DENIED");
    bench.says(EDS, "a=1");
    for id in [client, able] {
        assert_eq!(bench.drain(id), "ClusterLoadAssignment a=1");
    }
}

#[test]
fn dat_7_transient_errors_end_when_the_server_is_heard_and_data_errors_do_not() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, EDS, "+a +b +c +d");
    bench.says(EDS, "a=1 b=1 c=1");
    bench.drain(client);
    bench.fails(EDS, "a", Code::Unavailable);
    bench.fails(EDS, "b", Code::PermissionDenied);
    malformed(&mut bench, EDS, "c");
    bench.fails(EDS, "d", Code::Internal);
    bench.drain(client);
    bench.sources[0].handle_event(&Event::Heard, bench.now);
    bench.settle();
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
    let annotations = bench.snapshots[0].of(&url(EDS)).unwrap().names.annotations.clone();
    let standing: Vec<_> = annotations.errors().map(|(name, _)| name.as_str().to_owned()).collect();
    assert_eq!(standing, ["b", "c"]);
    // ERR-10: if the server does not answer, a name that is unknown again is reported again.
    bench.advance(Duration::from_secs(11));
    assert_eq!(bench.drain(client), "ClusterLoadAssignment !d:UNAVAILABLE");
}

/// A SotW client is told errors only beside resources (SST-7), and no error for a name that is sent with its resource
/// (ERR-2).
#[test]
fn err_3_an_error_that_was_not_told_has_no_end() {
    let mut bench = Bench::cold();
    let (first, late) = (bench.sotw(), bench.sotw());
    bench.ask(first, EDS, "a");
    bench.says(EDS, "a=1");
    bench.drain(first);
    bench.fails(EDS, "a", Code::Internal);
    bench.ask(late, EDS, "a");
    assert_eq!(bench.drain(late), "ClusterLoadAssignment a=1");
    bench.says(EDS, "a=1");
    assert_eq!(bench.drain(late), "", "RLY-36");
}

#[test]
fn err_2_err_3_an_error_that_was_still_to_be_told_has_no_end_when_a_newer_answer_came() {
    let mut bench = Bench::cold();
    let (first, client) = (bench.delta(), bench.delta());
    bench.change(first, EDS, "+a");
    bench.says(EDS, "a=1");
    bench.fails(EDS, "a", Code::Unavailable);
    bench.drain(first);
    bench.change(client, EDS, "+a");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1", "its error comes with the next message");
    bench.change(client, EDS, "+b");
    bench.says(EDS, "a=1 b=1");
    // The pending error is over.
    assert_eq!(bench.drain(client), "ClusterLoadAssignment b=1");
}

#[test]
fn ord_5_endpoints_follow_the_clusters_of_an_answer_that_a_newer_one_cut_short() {
    let mut bench = Bench::cold();
    let (first, client) = (bench.delta(), bench.delta());
    bench.change(first, CDS, "+a");
    bench.change(first, EDS, "+a");
    bench.says(CDS, "a=e1");
    bench.says(EDS, "a=1");
    bench.fails(CDS, "a", Code::Unavailable);
    bench.drain(first);
    bench.change_with(client, EDS, "+a", "", &[("a", version_of(EDS, "a=1"))], None);
    bench.held(client, EDS).resources.insert("a".into(), "1".to_owned());
    bench.change(client, CDS, "+a");
    assert_eq!(bench.poll(client), "Cluster a=e1", "its error comes with the next message");
    bench.change(client, CDS, "+b");
    bench.says(CDS, "b=1");
    assert_eq!(bench.drain(client), "Cluster b=1 !a:UNAVAILABLE; ClusterLoadAssignment a=1");
}

#[test]
fn err_3_last_bytes_end_the_error_of_what_is_withheld() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    for (message, name) in [(CDS, "+a"), (EDS, "+a"), (RDS, "+r")] {
        bench.change(client, message, name);
    }
    bench.says(CDS, "a=e1");
    bench.says(EDS, "a=1");
    bench.says(RDS, "r=1");
    bench.drain(client);
    bench.fails(EDS, "a", Code::Unavailable);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment !a:UNAVAILABLE");
    // The endpoints come without the error and go. Their removal waits for the route, and the cluster changes
    // meanwhile (RLY-51, ORD-5).
    bench.says(RDS, "r=2");
    assert_eq!(bench.poll(client), "RouteConfiguration r=2");
    bench.says(EDS, "a=1");
    bench.says(EDS, "-a");
    assert_eq!(bench.poll(client), "");
    bench.says(CDS, "a=e2");
    assert_eq!(bench.poll(client), "Cluster a=e2");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1", "with its last bytes");
    bench.ack(client, EDS);
    bench.says(EDS, "a=1");
    assert_eq!(bench.drain(client), "", "the error was over when they went");
}
