//! State of the world: STR, NON, SST, ACK.

use std::time::Duration;

use super::bench::{Bench, CDS, EDS, LDS, RDS, SDS, SRDS, version_of};
use crate::downstream::Verdict;
use sluice_xds::{Code, Request, SotwRequest, Status};

fn error() -> Option<Status> {
    Some(Status::new(Code::InvalidArgument, "bad"))
}

// === STR ===

#[test]
fn str_1_types_are_independent() {
    let mut bench = Bench::files(&[(CDS, "a=1"), (EDS, "a=1"), (LDS, "l=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    assert_eq!(bench.poll(client), "Cluster a=1");
    bench.ask(client, EDS, "a");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
    assert!(matches!(bench.nack(client, CDS), Verdict::Nack { .. }));
    bench.ack(client, EDS);
    // The NACK of CDS does not delay EDS, and CDS has a nonce of its own.
    bench.state(0, &[(CDS, "a=1"), (EDS, "a=2"), (LDS, "l=1")]);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=2");
    let foreign = bench.held(client, EDS).nonce.clone();
    assert_eq!(bench.ask_with(client, CDS, "", &foreign, "", None).verdict, Verdict::Stale);
    assert_eq!(bench.ack(client, EDS), Verdict::Ack { latency: Some(Duration::ZERO) });
}

#[test]
fn str_5_a_nonce_of_another_stream_is_none_of_this() {
    let mut bench = Bench::files(&[(CDS, "a=1")]);
    let (one, other) = (bench.sotw(), bench.sotw());
    bench.ask(one, CDS, "");
    assert_eq!(bench.poll(one), "Cluster a=1");
    let nonce = bench.held(one, CDS).nonce.clone();
    assert!(!nonce.is_empty());
    // STR-6: a foreign nonce makes no difference in a first request.
    let taken = bench.ask_with(other, CDS, "", &nonce, "", None);
    assert!(taken.changed);
    assert_eq!(taken.verdict, Verdict::None);
    assert_eq!(bench.poll(other), "Cluster a=1");
    assert_ne!(bench.held(other, CDS).nonce, nonce);
    assert_eq!(bench.ask_with(other, CDS, "", &nonce, "", error()).verdict, Verdict::Stale);
    for foreign in ["", "-", "x", "0000ab01-", "0000ab01-99", "0000ab01-18446744073709551616", "\u{0}"] {
        let verdict = bench.ask_with(other, CDS, "", foreign, "", error()).verdict;
        assert_eq!(verdict, if foreign.is_empty() { Verdict::None } else { Verdict::Stale }, "{foreign:?}");
    }
    assert_eq!(bench.poll(other), "", "NON-2: a stale request is no reason to answer");
}

#[test]
fn str_6_an_old_nonce_on_a_first_request_is_initial() {
    let mut bench = Bench::files(&[(CDS, "a=1"), (EDS, "x=1")]);
    let client = bench.sotw();
    assert_eq!(bench.ask_with(client, CDS, "", "old", "v", error()).verdict, Verdict::None);
    assert_eq!(bench.poll(client), "Cluster a=1");
    bench.ask_with(client, EDS, "x", "0000ab00-1", "v", None);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment x=1");
}

#[test]
fn str_7_and_11_a_version_is_there_and_changes_with_any_resource() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    let mut versions = std::collections::BTreeSet::new();
    for (count, state) in ["a=1 b=1", "a=2 b=1", "a=2 b=2", "b=2", "b=2 c=1", ""].into_iter().enumerate() {
        bench.state(0, &[(CDS, state)]);
        assert_ne!(bench.drain(client), "");
        let version = bench.held(client, CDS).version.clone();
        assert_eq!(version.len(), 32);
        assert!(versions.insert(version), "round {count}");
    }
}

#[test]
fn str_9_and_10_a_wildcard_that_presents_the_current_version_is_current() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=1"), (LDS, "l=1"), (SRDS, "s=1"), (RDS, "r=1")]);
    let current = |message, list| version_of(message, list).to_string();
    for (message, list, wanted, version, expected) in [
        (CDS, "a=1 b=1", "", "", "Cluster a=1 b=1"),
        (CDS, "a=1 b=1", "", "foreign", "Cluster a=1 b=1"),
        (CDS, "a=2 b=1", "", "current", "Cluster a=1 b=1"),
        (CDS, "a=1 b=1", "", "current", ""),
        (CDS, "a=1 b=1", "*", "current", ""),
        (LDS, "l=1", "", "current", ""),
        // Named sets are always sent again.
        (CDS, "a=1 b=1", "a b", "current", "Cluster a=1 b=1"),
        (CDS, "a=1 b=1", "* a", "current", "Cluster a=1 b=1"),
        // Wildcards of other types are always sent again, too.
        (RDS, "r=1", "", "current", "RouteConfiguration r=1"),
    ] {
        let client = bench.sotw();
        let version = if version == "current" { current(message, list) } else { version.to_owned() };
        bench.ask_with(client, message, wanted, "", &version, None);
        assert_eq!(bench.poll(client), expected, "{message} {wanted:?} {version}");
    }
    // A client with the current version still receives later changes.
    let client = bench.sotw();
    bench.ask_with(client, CDS, "", "", &current(CDS, "a=1 b=1"), None);
    assert_eq!(bench.poll(client), "");
    bench.state(0, &[(CDS, "a=1")]);
    assert_eq!(bench.poll(client), "Cluster a=1");
}

#[test]
fn str_14_requests_are_taken_in_order() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1 c=1")]);
    let client = bench.sotw();
    for list in ["a", "a b", "a b c"] {
        bench.ask_with(client, EDS, list, "", "", None);
    }
    // SUB-2: one answer to the last request is enough.
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1 b=1 c=1");
}

#[test]
fn rpc_5_a_request_names_its_type() {
    let mut bench = Bench::files(&[]);
    let client = bench.sotw();
    let status = bench.try_request(client, Request::Sotw(SotwRequest::default())).unwrap_err();
    assert_eq!(status.code, Code::InvalidArgument);
}

// === NON ===

#[test]
fn non_1_to_3_a_stale_nonce_decides_nothing_but_its_names_count() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
    let first = bench.held(client, EDS).nonce.clone();
    bench.ack(client, EDS);
    bench.state(0, &[(EDS, "a=2 b=1")]);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=2");
    // V1: a request without an ACK of the newest response is not answered.
    assert_eq!(bench.ask_with(client, EDS, "a", &first, "", None).verdict, Verdict::Stale);
    assert!(bench.clients[client].session.subscriptions()[0].nonces.is_waiting());
    assert_eq!(bench.poll(client), "");
    // N6: after a NACK, Envoy's unified mux goes on with the last good nonce.
    bench.nack(client, EDS);
    assert_eq!(bench.ask_with(client, EDS, "a b", &first, "", None).verdict, Verdict::Stale);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
}

#[test]
fn non_4_one_update_is_unacked_and_new_names_go_beside_it() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
    for content in 2..9 {
        bench.state(0, &[(EDS, &format!("a={content} b=1"))]);
        assert_eq!(bench.poll(client), "");
    }
    bench.ask_with(client, EDS, "a b", "", "", None);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=8 b=1");
    bench.state(0, &[(EDS, "a=9 b=1")]);
    assert_eq!(bench.poll(client), "");
    bench.ack(client, EDS);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=9", "FLW-2: the latest wins, once");
}

#[test]
fn non_5_an_older_known_nonce_is_about_its_own_response() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
    let first = bench.held(client, EDS).nonce.clone();
    bench.ask_with(client, EDS, "a b", "", "", None);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
    let verdict = bench.ask_with(client, EDS, "a b", &first, "", error()).verdict;
    let version = version_of(EDS, "a=1");
    assert!(matches!(verdict, Verdict::Nack { version: rejected, .. } if rejected == version));
    bench.state(0, &[(EDS, "a=2 b=1")]);
    assert_eq!(bench.poll(client), "", "the second response is still unACKed");
    assert!(matches!(bench.ack(client, EDS), Verdict::Ack { .. }));
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=2");
}

#[test]
fn non_6_the_nonce_lives_on_while_nothing_is_wanted() {
    let mut bench = Bench::files(&[(EDS, "a=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a");
    bench.drain(client);
    let nonce = bench.held(client, EDS).nonce.clone();
    assert_eq!(bench.ask_with(client, EDS, "", &nonce, "", None).verdict, Verdict::None);
    assert_eq!(bench.ask_with(client, EDS, "a", &nonce, "", None).verdict, Verdict::None);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
}

// === SST ===

#[test]
fn sst_1_2_and_5_full_state_holds_everything_and_absence_deletes() {
    for (message, wanted) in
        [(CDS, ""), (CDS, "a b c"), (LDS, "*"), (LDS, "a b c"), (SRDS, ""), (SRDS, "a b c")]
    {
        let mut bench = Bench::files(&[(message, "a=1 b=1 c=1")]);
        let client = bench.sotw();
        bench.ask(client, message, wanted);
        let short = super::bench::url(message).short().to_owned();
        assert_eq!(bench.drain(client), format!("{short} a=1 b=1 c=1"));
        bench.state(0, &[(message, "a=1 b=2 c=1")]);
        assert_eq!(bench.drain(client), format!("{short} a=1 b=2 c=1"));
        // SST-11: a shrinking membership is an update.
        bench.state(0, &[(message, "a=1 c=1")]);
        assert_eq!(bench.drain(client), format!("{short} a=1 c=1"));
        bench.state(0, &[]);
        assert_eq!(bench.drain(client), short, "an empty response deletes all");
        bench.check(client, message, "");
        assert_eq!(bench.drain(client), "");
    }
}

#[test]
fn sst_4_and_6_other_types_send_what_changed_and_delete_nothing() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a b");
    bench.drain(client);
    bench.state(0, &[(EDS, "a=1 b=2")]);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment b=2");
    bench.state(0, &[(EDS, "a=1")]);
    assert_eq!(bench.drain(client), "");
    bench.check(client, EDS, "a=1 b=2");
    bench.state(0, &[(EDS, "a=2")]);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=2");
}

#[test]
fn sst_7_only_a_first_wildcard_is_answered_by_nothing() {
    let mut bench = Bench::files(&[]);
    for message in [EDS, RDS, CDS, "acme.Thing"] {
        let (all, named) = (bench.sotw(), bench.sotw());
        let short = super::bench::url(message).short().to_owned();
        bench.ask(all, message, "");
        assert_eq!(bench.drain(all), short, "once");
        bench.ask(named, message, "x");
        // SST-14: a full-state type sends an empty response if every name is known to be absent.
        let expected = if message == CDS { short } else { String::new() };
        assert_eq!(bench.drain(named), expected);
    }
}

#[test]
fn sst_10_a_missing_name_is_silence_beside_others() {
    let mut bench = Bench::files(&[(EDS, "a=1"), (CDS, "a=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a missing");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
    bench.ask(client, CDS, "a missing");
    assert_eq!(bench.drain(client), "Cluster a=1");
}

#[test]
fn sst_12_and_13_only_chunkable_types_are_cut() {
    let list = "a=1~2000000 b=1~2000000 c=1~1000000 d=1~5000000 e=1";
    for (message, wanted, expected) in [
        (EDS, "a b c d e", &["a=1", "b=1 c=1", "d=1", "e=1"][..]),
        (CDS, "a b c d e", &["a=1 b=1 c=1 d=1 e=1"][..]),
        (CDS, "", &["a=1 b=1 c=1 d=1 e=1"][..]),
        (EDS, "", &["a=1 b=1 c=1 d=1 e=1"][..]),
    ] {
        let mut bench = Bench::files(&[(message, list)]);
        let client = bench.sotw();
        bench.ask(client, message, wanted);
        let short = super::bench::url(message).short().to_owned();
        let mut versions = std::collections::BTreeSet::new();
        for chunk in expected {
            assert_eq!(bench.poll(client), format!("{short} {chunk}"));
            // RLY-31: after a chunk, an interrupted client does not present the version of the complete set.
            assert!(versions.insert(bench.held(client, message).version.clone()));
        }
        assert_eq!(bench.poll(client), "");
    }
}

#[test]
fn sst_14_an_empty_answer_waits_until_every_name_is_known() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "a b");
    bench.says(CDS, "-a");
    assert_eq!(bench.poll(client), "");
    bench.says(CDS, "-b");
    assert_eq!(bench.drain(client), "Cluster");
    bench.says(CDS, "b=1");
    assert_eq!(bench.drain(client), "Cluster b=1");
}

// === ACK ===

#[test]
fn ack_1_to_3_error_detail_and_nothing_else_makes_a_nack() {
    let mut bench = Bench::files(&[(CDS, "a=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.poll(client);
    let (nonce, version) = {
        let held = bench.held(client, CDS);
        (held.nonce.clone(), held.version.clone())
    };
    // An old version without an error is an ACK.
    assert!(matches!(bench.ask_with(client, CDS, "", &nonce, "old", None).verdict, Verdict::Ack { .. }));
    bench.state(0, &[(CDS, "a=2")]);
    bench.poll(client);
    let nonce = bench.held(client, CDS).nonce.clone();
    let sent = bench.held(client, CDS).version.clone();
    assert_ne!(version, sent);
    // The sent version with an error is a NACK, whatever the code and the text (ACK-6).
    let empty = Some(Status::new(Code::Ok, ""));
    assert!(matches!(bench.ask_with(client, CDS, "", &nonce, &sent, empty).verdict, Verdict::Nack { .. }));
}

#[test]
fn adm_12_the_nack_of_a_secret_is_kept_as_its_size() {
    let mut bench = Bench::files(&[(SDS, "a=1"), (EDS, "a=1")]);
    let client = bench.sotw();
    for (message, kept) in [(SDS, "INVALID_ARGUMENT: [withheld 3 B]"), (EDS, "INVALID_ARGUMENT: bad")] {
        bench.ask(client, message, "a");
        bench.poll(client);
        let (nonce, version) =
            (bench.held(client, message).nonce.clone(), bench.held(client, message).version.clone());
        match bench.ask_with(client, message, "a", &nonce, &version, error()).verdict {
            Verdict::Nack { status, .. } => assert_eq!(status.to_string(), kept),
            verdict => panic!("{verdict:?}"),
        }
    }
}

#[test]
fn ack_4_and_5_rejected_content_is_not_sent_again() {
    for message in [CDS, EDS] {
        let mut bench = Bench::files(&[(message, "a=1 b=1")]);
        let client = bench.sotw();
        bench.ask(client, message, "a b");
        bench.drain(client);
        bench.state(0, &[(message, "a=2 b=1")]);
        assert_ne!(bench.poll(client), "");
        assert!(matches!(bench.nack(client, message), Verdict::Nack { repeated: false, .. }));
        assert_eq!(bench.poll(client), "");
        bench.advance(Duration::from_secs(3600));
        bench.state(0, &[(message, "a=2 b=1")]);
        assert_eq!(bench.poll(client), "");
        bench.state(0, &[(message, "a=3 b=1")]);
        assert!(bench.poll(client).contains("a=3"));
    }
}

#[test]
fn ack_7_the_names_of_a_nack_count() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a");
    bench.poll(client);
    let nonce = bench.held(client, EDS).nonce.clone();
    bench.ask_with(client, EDS, "a b", &nonce, "", error());
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
}

#[test]
fn a_client_that_never_acks_is_served_what_it_asks_for() {
    let mut bench = Bench::files(&[]);
    let list: Vec<_> = (0..100).map(|n| format!("n{n}")).collect();
    let state: Vec<_> = list.iter().map(|name| format!("{name}=1")).collect();
    bench.state(0, &[(EDS, &state.join(" "))]);
    let client = bench.sotw();
    let mut nonces = Vec::new();
    for count in 1..=100 {
        bench.ask_with(client, EDS, &list[..count].join(" "), "", "", None);
        assert_eq!(bench.poll(client), format!("ClusterLoadAssignment n{}=1", count - 1));
        nonces.push(bench.held(client, EDS).nonce.clone());
    }
    let all = list.join(" ");
    // The oldest nonces are forgotten. The newest nonce covers all.
    assert_eq!(bench.ask_with(client, EDS, &all, &nonces[0], "", None).verdict, Verdict::Stale);
    assert!(matches!(bench.ask_with(client, EDS, &all, &nonces[50], "", None).verdict, Verdict::Ack { .. }));
    assert!(matches!(bench.ask_with(client, EDS, &all, &nonces[99], "", None).verdict, Verdict::Ack { .. }));
    assert!(!bench.clients[client].session.subscriptions()[0].nonces.is_waiting());
}

#[test]
fn v2_names_dropped_before_the_answer_are_not_answered() {
    let mut bench = Bench::files(&[(SDS, "a=1 b=1")]);
    let client = bench.sotw();
    bench.ask(client, SDS, "a b");
    bench.ask_with(client, SDS, "b", "", "", None);
    assert_eq!(bench.drain(client), "Secret b=1");
    bench.ask(client, SDS, "a");
    bench.ask_with(client, SDS, "", "", "", None);
    assert_eq!(bench.drain(client), "");
}
