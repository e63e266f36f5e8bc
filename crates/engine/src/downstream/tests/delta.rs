//! Delta: DEL.

use std::time::Duration;

use super::bench::{Bench, CDS, EDS, LDS, RDS, SDS, url, version_of};
use crate::downstream::Verdict;
use sluice_xds::{Code, Status, Version};

fn error() -> Option<Status> {
    Some(Status::new(Code::Internal, "bad"))
}

const TYPES: [&str; 5] = [CDS, EDS, LDS, RDS, "acme.Thing"];

// === requests ===

#[test]
fn del_1_and_3_ack_and_change_in_one_request() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
    let nonce = bench.held(client, EDS).nonce.clone();
    let taken = bench.change_with(client, EDS, "+b -a", &nonce, &[], None);
    assert!(matches!(taken.verdict, Verdict::Ack { .. }));
    assert!(taken.changed);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
}

#[test]
fn del_2_a_change_counts_whatever_the_nonce() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1 c=1 d=1")]);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
    // N5: stale.
    assert_eq!(bench.change_with(client, EDS, "+b", "xyz", &[], None).verdict, Verdict::Stale);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
    let nonce = bench.held(client, EDS).nonce.clone();
    let verdict = bench.change_with(client, EDS, "+c", &nonce, &[], error()).verdict;
    assert!(matches!(verdict, Verdict::Nack { .. }));
    assert_eq!(bench.poll(client), "ClusterLoadAssignment c=1");
    bench.change_with(client, EDS, "-c +d", "0000ab00-77", &[], error());
    assert_eq!(bench.poll(client), "ClusterLoadAssignment d=1");
    bench.state(0, &[(EDS, "a=1 b=1 c=2 d=1")]);
    bench.ack(client, EDS);
    assert_eq!(bench.drain(client), "");
}

#[test]
fn del_4_a_name_in_both_lists_ends_unsubscribed() {
    for message in TYPES {
        let mut bench = Bench::files(&[(message, "a=1")]);
        let client = bench.delta();
        bench.change(client, message, "+* -*");
        assert_eq!(bench.drain(client), "");
        // The legacy wildcard has ended.
        bench.change(client, message, "");
        assert_eq!(bench.drain(client), "");
        bench.change(client, message, "+a -a");
        assert_eq!(bench.drain(client), "");
        assert!(bench.clients[client].session.subscriptions()[0].parts.is_empty());
    }
}

#[test]
fn del_5_versions_count_in_the_first_request_only() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.delta();
    bench.change_with(client, EDS, "+a", "", &[("a", version_of(EDS, "a=1"))], None);
    assert_eq!(bench.drain(client), "");
    bench.change_with(client, EDS, "+b", "", &[("b", version_of(EDS, "b=1"))], None);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment b=1");
}

#[test]
fn del_6_7_8_and_10_the_wildcard_by_omission() {
    for (lists, expected) in [
        (&[""][..], "a=1 b=1"),
        (&["+*"][..], "a=1 b=1"),
        (&["+a"][..], "a=1"),
        // DEL-8
        (&["", "", ""][..], "a=1 b=1"),
        (&["+a", ""][..], "a=1"),
        // DEL-7
        (&["", "+a"][..], "a=1 b=1"),
        (&["", "+a", "-*"][..], "a=1"),
        (&["", "+a", "-*", "-a"][..], ""),
        (&["", "+a", "-*", "-a", ""][..], ""),
        (&["", "-*"][..], ""),
        // DEL-10
        (&["-a"][..], ""),
        (&["-a", ""][..], ""),
        (&["-*", ""][..], ""),
        // DEL-20
        (&["+a", "-b", "-*"][..], "a=1"),
        (&["", "-zzz"][..], "a=1 b=1"),
    ] {
        for message in TYPES {
            let mut bench = Bench::files(&[(message, "a=1 b=1")]);
            let client = bench.delta();
            for list in lists {
                bench.change(client, message, list);
                bench.drain(client);
            }
            bench.check(client, message, expected);
            bench.state(0, &[(message, "a=2 b=2")]);
            bench.drain(client);
            bench.check(client, message, &expected.replace('1', "2"));
            bench.state(0, &[]);
            bench.drain(client);
            bench.check(client, message, "");
        }
    }
}

#[test]
fn del_6_versions_beside_empty_lists_are_still_a_wildcard() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=2")]);
    let client = bench.delta();
    let presented =
        [("a", version_of(CDS, "a=1")), ("b", version_of(CDS, "b=1")), ("c", version_of(CDS, "c=1"))];
    bench.change_with(client, CDS, "", "", &presented, None);
    assert_eq!(bench.drain(client), "Cluster b=2 -c");
}

#[test]
fn sub_15_the_legacy_wildcard_can_be_switched_off_in_delta() {
    let mut bench = Bench::files(&[(CDS, "a=1")]);
    let client = bench.delta();
    bench.clients[client].routes.legacy = false;
    bench.change(client, CDS, "");
    assert_eq!(bench.drain(client), "");
    bench.change(client, CDS, "+*");
    assert_eq!(bench.drain(client), "Cluster a=1");
}

#[test]
fn del_9_and_21_after_the_wildcard_only_the_names_are_left() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "+* +a");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
    bench.change(client, CDS, "-*");
    assert_eq!(bench.drain(client), "");
    bench.check(client, CDS, "a=1");
    bench.state(0, &[(CDS, "a=2")]);
    assert_eq!(bench.drain(client), "Cluster a=2");
    bench.state(0, &[]);
    assert_eq!(bench.drain(client), "Cluster -a");
}

// === responses ===

#[test]
fn del_11_a_second_subscription_is_a_forced_resend() {
    for message in TYPES {
        let mut bench = Bench::files(&[(message, "a=1 b=1")]);
        let client = bench.delta();
        let short = url(message).short().to_owned();
        bench.change(client, message, "+a +x");
        assert_eq!(bench.drain(client), format!("{short} a=1 -x"));
        bench.change(client, message, "+a");
        assert_eq!(bench.drain(client), format!("{short} a=1"));
        // DEL-23: the absence is told once, and again after a new request.
        bench.change(client, message, "+x");
        assert_eq!(bench.drain(client), format!("{short} -x"));
        // N11, with and without an answer in between.
        bench.change(client, message, "-a");
        bench.change(client, message, "+a");
        assert_eq!(bench.drain(client), format!("{short} a=1"));
        bench.change(client, message, "-a");
        assert_eq!(bench.drain(client), "", "DEL-18");
        bench.change(client, message, "+a");
        assert_eq!(bench.drain(client), format!("{short} a=1"));
        assert_eq!(bench.drain(client), "");
    }
}

#[test]
fn del_12_23_and_24_absence_is_told_once_and_ends() {
    let mut bench = Bench::files(&[]);
    let client = bench.delta();
    bench.change(client, EDS, "+x");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment -x");
    bench.advance(Duration::from_secs(60));
    bench.state(0, &[]);
    assert_eq!(bench.drain(client), "");
    bench.state(0, &[(EDS, "x=1")]);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment x=1");
    bench.state(0, &[]);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment -x");
    bench.state(0, &[]);
    assert_eq!(bench.drain(client), "");
}

#[test]
fn del_14_several_responses_may_be_outstanding() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.poll(client);
    let first = bench.held(client, EDS).nonce.clone();
    bench.change(client, EDS, "+b");
    bench.poll(client);
    let second = bench.held(client, EDS).nonce.clone();
    assert!(matches!(bench.change_with(client, EDS, "", &first, &[], error()).verdict, Verdict::Nack { .. }));
    assert!(matches!(bench.change_with(client, EDS, "", &second, &[], None).verdict, Verdict::Ack { .. }));
    assert_eq!(bench.change_with(client, EDS, "", &first, &[], None).verdict, Verdict::Stale);
}

#[test]
fn del_25_a_first_wildcard_is_answered_even_by_nothing() {
    let mut bench = Bench::files(&[]);
    for message in TYPES {
        let client = bench.delta();
        bench.change(client, message, "");
        assert_eq!(bench.drain(client), url(message).short(), "once");
    }
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "");
    assert_eq!(bench.drain(client), "", "emptiness is known, never guessed");
    bench.says_of_all(CDS, "", true);
    assert_eq!(bench.drain(client), "Cluster");
}

#[test]
fn del_26_a_large_answer_comes_in_parts() {
    let mut bench = Bench::files(&[(CDS, "a=1~2000000 b=1~2000000 c=1~2000000")]);
    let client = bench.delta();
    bench.change(client, CDS, "+* +x");
    assert_eq!(bench.poll(client), "Cluster a=1");
    assert_eq!(bench.poll(client), "Cluster b=1");
    assert_eq!(bench.poll(client), "Cluster c=1 -x");
    assert_eq!(bench.poll(client), "");
}

#[test]
fn del_26_a_request_between_two_parts_starts_the_answer_again() {
    let mut bench = Bench::files(&[(EDS, "a=1~2000000 b=1~2000000 c=1~2000000")]);
    let client = bench.delta();
    bench.change(client, EDS, "+a +b +c");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
    bench.state(0, &[(EDS, "a=2 b=2~2000000 d=1")]);
    // An ACK does not restart the answer: the old answer is completed first, then the changes follow.
    bench.ack(client, EDS);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
    bench.change(client, EDS, "+d");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=2 b=2 d=1 -c");
    bench.check(client, EDS, "a=2 b=2 d=1");
}

#[test]
fn del_27_rejected_content_is_not_sent_again() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "");
    assert_eq!(bench.poll(client), "Cluster a=1 b=1");
    assert!(matches!(bench.nack(client, CDS), Verdict::Nack { repeated: false, .. }));
    bench.state(0, &[(CDS, "a=1 b=1")]);
    assert_eq!(bench.poll(client), "");
    bench.state(0, &[(CDS, "a=1 b=2")]);
    assert_eq!(bench.poll(client), "Cluster b=2");
}

// === reconnect ===

#[test]
fn del_28_nothing_survives_a_stream() {
    let mut bench = Bench::files(&[(CDS, "a=1")]);
    for _ in 0..2 {
        let client = bench.delta();
        bench.change(client, CDS, "");
        assert_eq!(bench.drain(client), "Cluster a=1");
        bench.leave(client);
    }
}

#[test]
fn rly_32_a_version_of_another_server_matches_nothing() {
    let mut bench = Bench::files(&[(EDS, "a=1"), (SDS, "s=1")]);
    let client = bench.delta();
    let request = sluice_xds::DeltaRequest {
        type_url: url(EDS).as_str().to_owned(),
        subscribe: super::bench::names("a b"),
        initial_resource_versions: vec![("a".into(), "1".into()), ("b".into(), "1".into())],
        ..Default::default()
    };
    bench.held(client, EDS).want_delta(&super::bench::names("a b"), &[], false);
    bench.request(client, sluice_xds::Request::Delta(request));
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1 -b");
    // The version without content does not count, either.
    let client = bench.delta();
    bench.change_with(client, SDS, "+s", "", &[("s", Version::default())], None);
    assert_eq!(bench.drain(client), "Secret s=1");
}

#[test]
fn del_29_to_31_presented_versions() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=2 new=1")]);
    let presented = [
        ("a", version_of(EDS, "a=1")),
        ("b", version_of(EDS, "b=1")),
        ("gone", version_of(EDS, "gone=1")),
        ("other", version_of(EDS, "other=1")),
    ];
    for (list, expected) in [
        ("+a +b", "ClusterLoadAssignment b=2"),
        ("+a", ""),
        ("+a +gone", "ClusterLoadAssignment -gone"),
        ("+a +gone +new", "ClusterLoadAssignment new=1 -gone"),
        ("+*", "ClusterLoadAssignment b=2 new=1 -gone -other"),
        ("+* +a", "ClusterLoadAssignment b=2 new=1 -gone -other"),
        ("", "ClusterLoadAssignment b=2 new=1 -gone -other"),
    ] {
        let client = bench.delta();
        bench.change_with(client, EDS, list, "", &presented, None);
        assert_eq!(bench.drain(client), expected, "{list:?}");
    }
}

/// The server removed a listener, and gave the address to another, before the membership was known.
#[test]
fn del_26_a_listener_waits_for_the_removal_that_may_make_room() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, LDS, "+*");
    bench.says_of_all(LDS, "z=1", false);
    assert_eq!(bench.drain(client), "Listener z=1", "nothing is in the way");
    bench.says_of_all(LDS, "y=1", false);
    assert_eq!(bench.drain(client), "Listener y=1", "the client has no other listener");
    bench.says_of_all(LDS, "a=1 -z", false);
    assert_eq!(bench.drain_now(client), "", "a may need the address of z");
    let other = bench.delta();
    bench.change(other, LDS, "+*");
    assert_eq!(bench.drain(other), "Listener a=1 y=1", "a client without z waits for nothing");
    bench.advance(Duration::from_millis(999));
    assert_eq!(bench.drain_now(client), "");
    bench.advance(Duration::from_millis(1));
    assert_eq!(bench.drain_now(client), "Listener a=1", "but not for ever");
    bench.says_of_all(LDS, "b=1", false);
    assert_eq!(bench.drain_now(client), "", "nor does this one");
    bench.says_of_all(LDS, "", true);
    assert_eq!(bench.drain_now(client), "Listener b=1 -z");
}

#[test]
fn del_26_a_listener_of_a_glob_waits_for_the_removal_that_may_make_room() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, LDS, "+xdstp:f/* +xdstp:g/*");
    bench.says_of_globs(LDS, "xdstp:f/z=1 xdstp:g/z=1", "xdstp:g/*");
    assert_eq!(bench.drain(client), "Listener xdstp:f/z=1 xdstp:g/z=1", "nothing is in the way");
    bench.says_of_globs(LDS, "xdstp:g/a=1 -xdstp:g/z", "");
    assert_eq!(bench.drain(client), "Listener xdstp:g/a=1 -xdstp:g/z", "all of the glob is known");
    bench.says_of_globs(LDS, "xdstp:f/a=1 -xdstp:f/z", "");
    assert_eq!(bench.drain_now(client), "", "a may need the address of z");
    bench.says_of_globs(LDS, "", "xdstp:f/*");
    assert_eq!(bench.drain(client), "Listener xdstp:f/a=1 -xdstp:f/z");
}
