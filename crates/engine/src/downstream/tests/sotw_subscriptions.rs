//! Subscriptions in the state of the world: SUB.

use std::time::Duration;

use super::bench::{Bench, CDS, EDS, LDS, RDS, SDS, SRDS, VHDS, resource, url};
use crate::downstream::Limits;
use sluice_xds::{Code, Request, SotwRequest, Status, Variant};

#[test]
fn sub_1_a_list_replaces_the_one_before() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a b");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1 b=1");
    bench.ask(client, EDS, "a");
    assert_eq!(bench.poll(client), "", "SUB-6: a request that only removes names is not answered");
    bench.state(0, &[(EDS, "a=1 b=2")]);
    assert_eq!(bench.poll(client), "");
    bench.state(0, &[(EDS, "a=2 b=2")]);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=2");
}

/// FD4: the rate of changes charges what came and went, and no list for its length.
#[test]
fn fd_4_a_request_tells_how_many_names_came_or_went() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.sotw();
    for (list, moved) in [("a b c", 3), ("a b c", 0), ("a b d e", 3), ("a", 3), ("", 1), ("x y", 2)] {
        assert_eq!(bench.ask(client, EDS, list).moved_names, moved, "{list}");
    }
    // Refused names cost no less.
    assert_eq!(bench.ask(client, EDS, "x y xdstp://a/b").moved_names, 1);
}

#[test]
fn sub_3_and_4_names_newly_in_the_list_are_sent_whatever_was_sent_before() {
    for message in [EDS, RDS, SDS, VHDS, "acme.Thing", CDS, LDS] {
        let mut bench = Bench::files(&[(message, "a=1 b=1")]);
        let client = bench.sotw();
        bench.ask(client, message, "a");
        let short = super::bench::url(message).short().to_owned();
        assert_eq!(bench.drain(client), format!("{short} a=1"));
        // N11: without a response in between, and with one.
        for poll in [false, true] {
            bench.ask(client, message, "");
            if poll {
                assert_eq!(bench.drain(client), "");
            }
            bench.ask(client, message, "a");
            assert_eq!(bench.drain(client), format!("{short} a=1"), "{message} {poll}");
            bench.ask(client, message, "a b");
            assert_ne!(bench.drain(client), "");
            bench.ask(client, message, "a");
            assert_eq!(bench.drain(client), "");
        }
    }
}

#[test]
fn sub_5_a_name_that_does_not_exist_is_remembered() {
    let mut bench = Bench::files(&[]);
    let client = bench.sotw();
    bench.ask(client, EDS, "x");
    assert_eq!(bench.poll(client), "", "SST-7: no empty response for names");
    bench.advance(Duration::from_secs(60));
    bench.state(0, &[(EDS, "x=1")]);
    assert!(bench.woken.contains(&crate::cache::SessionId(0)));
    assert_eq!(bench.drain(client), "ClusterLoadAssignment x=1");
    assert_eq!(bench.drain(client), "");
}

#[test]
fn sub_6_and_7_neither_removals_nor_acks_are_answered() {
    for message in [CDS, EDS] {
        let mut bench = Bench::files(&[(message, "a=1 b=1")]);
        let client = bench.sotw();
        bench.ask(client, message, "a b");
        assert_ne!(bench.poll(client), "");
        let taken = bench.ask(client, message, "b a");
        assert!(!taken.changed);
        assert_eq!(bench.poll(client), "");
        let taken = bench.ask(client, message, "a");
        assert!(taken.changed);
        assert_eq!(bench.poll(client), "");
        bench.ask(client, message, "");
        assert_eq!(bench.poll(client), "");
    }
}

#[test]
fn sub_8_to_11_what_a_list_means() {
    for (lists, expected) in [
        (&[""][..], "a=1 b=1"),
        (&["*"][..], "a=1 b=1"),
        (&["", ""][..], "a=1 b=1"),
        (&["", "*"][..], "a=1 b=1"),
        // SUB-11
        (&["", "a"][..], "a=1"),
        // SUB-10
        (&["a", ""][..], ""),
        (&["*", ""][..], ""),
        (&["", "* a", "a", ""][..], ""),
        (&["", "* a", "a"][..], "a=1"),
        (&["a", "", "*"][..], "a=1 b=1"),
    ] {
        for message in [CDS, LDS, EDS, "acme.Thing"] {
            let mut bench = Bench::files(&[(message, "a=1 b=1")]);
            let client = bench.sotw();
            for list in lists {
                bench.ask(client, message, list);
                bench.drain(client);
            }
            bench.check(client, message, expected);
            let wildcard = bench.clients[client].session.subscriptions()[0].is_wildcard();
            assert_eq!(wildcard, expected.contains('b'), "{lists:?}");
            // Resources without a subscription are not updated.
            bench.state(0, &[(message, "a=2 b=2")]);
            bench.drain(client);
            bench.check(client, message, &expected.replace('1', "2"));
        }
    }
}

#[test]
fn sub_14_the_wildcard_exists_for_every_type() {
    for message in [CDS, EDS, LDS, SRDS, RDS, VHDS, SDS, "istio.workload.Address"] {
        let mut bench = Bench::files(&[(message, "a=1 b=1")]);
        let client = bench.sotw();
        bench.ask(client, message, "");
        let short = super::bench::url(message).short().to_owned();
        assert_eq!(bench.drain(client), format!("{short} a=1 b=1"));
        // SST-2, SST-3: a change is sent as the complete set.
        bench.state(0, &[(message, "a=1 b=2")]);
        assert_eq!(bench.drain(client), format!("{short} a=1 b=2"));
        bench.state(0, &[(message, "b=2")]);
        assert_eq!(bench.drain(client), format!("{short} b=2"));
    }
}

#[test]
fn sub_15_the_legacy_wildcard_can_be_switched_off() {
    let mut bench = Bench::files(&[(CDS, "a=1")]);
    let client = bench.sotw();
    bench.clients[client].routes.legacy = false;
    bench.ask(client, CDS, "");
    assert_eq!(bench.drain(client), "");
    bench.ask(client, CDS, "*");
    assert_eq!(bench.drain(client), "Cluster a=1");
}

#[test]
fn sub_16_the_empty_name_is_a_name() {
    let mut bench = Bench::files(&[]);
    bench.sources[0].handle_files(
        vec![(
            super::bench::url("dubbo.Routes"),
            vec![resource("dubbo.Routes", "", "1"), resource("dubbo.Routes", "b", "1")],
        )],
        bench.now,
    );
    bench.settle();
    let client = bench.sotw();
    bench.ask(client, "dubbo.Routes", "''");
    assert_eq!(bench.drain(client), "Routes =1");
}

#[test]
fn sub_17_duplicates_collapse() {
    let mut bench = Bench::files(&[(EDS, "a=1"), (CDS, "a=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a a");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
    assert!(!bench.ask(client, EDS, "a").changed);
    bench.ask(client, CDS, "* *");
    assert_eq!(bench.drain(client), "Cluster a=1");
}

#[test]
fn sub_18_and_19_only_what_was_asked_for() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1 c=1")]);
    let (one, many) = (bench.sotw(), bench.sotw());
    bench.ask(one, EDS, "b");
    bench.ask(many, EDS, "c a zzz");
    assert_eq!(bench.drain(one), "ClusterLoadAssignment b=1");
    assert_eq!(bench.drain(many), "ClusterLoadAssignment a=1 c=1");
}

#[test]
fn sub_20_names_and_types_of_a_stream_are_bounded() {
    let mut bench = Bench::files(&[]);
    let client = bench.join(Variant::Sotw, Limits { names_per_stream: 3, types_per_stream: 2 });
    let request = |message: &str, list: &str| {
        Request::Sotw(SotwRequest {
            type_url: super::bench::url(message).as_str().to_owned(),
            resource_names: super::bench::names(list),
            ..SotwRequest::default()
        })
    };
    bench.try_request(client, request(EDS, "a b")).unwrap();
    bench.try_request(client, request(RDS, "c *")).unwrap();
    let status = bench.try_request(client, request(LDS, "")).unwrap_err();
    assert_eq!(status.code, Code::ResourceExhausted);
    bench.try_request(client, request(EDS, "a")).unwrap();
    bench.try_request(client, request(RDS, "c d")).unwrap();
    let status = bench.try_request(client, request(RDS, "c d e")).unwrap_err();
    assert_eq!(status.code, Code::ResourceExhausted);
}

/// Envoy opens a stream with the NACK that was waiting as the former stream ended, without a nonce.
#[test]
fn str_6_a_first_request_with_an_error_and_no_nonce_subscribes() {
    let error = || Some(Status::new(Code::Internal, "of the former stream"));
    for (message, list) in [(CDS, ""), (CDS, "*"), (CDS, "a"), (LDS, ""), (EDS, "a"), (RDS, "a"), (SDS, "a")]
    {
        let mut bench = Bench::files(&[(message, "a=1 b=1")]);
        let (sotw, delta) = (bench.sotw(), bench.delta());
        let version = if list.is_empty() { "older" } else { "" };
        let first = bench.ask_with(sotw, message, list, "", version, error());
        assert!(first.changed && first.reports_error && !first.is_report);
        let list: Vec<_> = list.split_whitespace().map(|name| format!("+{name}")).collect();
        bench.change_with(delta, message, &list.join(" "), "", &[], error());
        for client in [sotw, delta] {
            let got = bench.drain(client);
            assert!(got.contains(" a=1") && got.contains(" b=1") != list.contains(&"+a".to_owned()), "{got}");
        }
    }
}

#[test]
fn ack_7_del_2_names_count_beside_an_error_without_a_nonce() {
    let error = || Some(Status::new(Code::Internal, "of nothing that was sent"));
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let (sotw, delta) = (bench.sotw(), bench.delta());
    bench.ask(sotw, EDS, "a");
    bench.change(delta, EDS, "+a");
    for client in [sotw, delta] {
        assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
    }
    // Without names, the request only reports.
    let empty = |error| SotwRequest {
        type_url: url(EDS).as_str().to_owned(),
        error_detail: error,
        ..Default::default()
    };
    assert!(bench.request(sotw, Request::Sotw(empty(error()))).is_report);
    assert!(bench.change_with(delta, EDS, "", "", &[], error()).is_report);
    bench.ask_with(sotw, EDS, "a b", "", "", error());
    bench.change_with(delta, EDS, "+b", "", &[], error());
    for client in [sotw, delta] {
        assert_eq!(bench.drain(client), "ClusterLoadAssignment b=1");
    }
    bench.change_with(delta, EDS, "-a", "", &[], error());
    bench.state(0, &[(EDS, "a=2 b=2")]);
    assert_eq!(bench.drain(sotw), "ClusterLoadAssignment a=2 b=2");
    assert_eq!(bench.drain(delta), "ClusterLoadAssignment b=2");
}
