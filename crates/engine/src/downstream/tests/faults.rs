//! Errors of earlier versions.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, CDS, EDS, LDS, RDS, SDS, streams, url, version_of};
use crate::collection::CollectionKind;
use crate::source::{Attachment, Files};

/// RLY-6, DEL-29: the relay remembers the versions that a client presents before the first answer from upstream.
#[test]
fn rly_6_presented_names_wait_for_the_upstream() {
    let mut bench = Bench::cold();
    let presented =
        [("a", version_of(EDS, "a=1")), ("b", version_of(EDS, "b=1")), ("c", version_of(EDS, "c=1"))];
    let (named, all) = (bench.delta(), bench.delta());
    bench.change_with(named, EDS, "+a +b +c", "", &presented, None);
    bench.change_with(all, EDS, "", "", &presented, None);
    assert_eq!(bench.drain(named) + &bench.drain(all), "");
    bench.says(EDS, "a=1");
    bench.says_of_all(EDS, "a=1", false);
    assert_eq!(bench.drain(named) + &bench.drain(all), "", "a is unchanged");
    bench.says(EDS, "b=2");
    bench.says_of_all(EDS, "b=2", false);
    assert_eq!(bench.drain(named), "ClusterLoadAssignment b=2");
    assert_eq!(bench.drain(all), "ClusterLoadAssignment b=2");
    bench.says(EDS, "-c");
    bench.says_of_all(EDS, "", true);
    assert_eq!(bench.drain(named), "ClusterLoadAssignment -c");
    assert_eq!(bench.drain(all), "ClusterLoadAssignment -c", "DEL-33: and not before");
}

/// RLY-16: the same for a client that moves to a source without answers.
#[test]
fn rly_16_a_move_to_a_cold_source_sends_only_differences() {
    for delta in [false, true] {
        let mut bench = Bench::new(vec![Attachment::Files(Files::default()), streams()]);
        bench.state(0, &[(EDS, "a=1 b=1"), (LDS, "l=1 m=1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, EDS, "+a +b");
            bench.change(client, LDS, "");
        } else {
            bench.ask(client, EDS, "a b");
            bench.ask(client, LDS, "");
        }
        bench.drain(client);
        bench.reroute(client, 1);
        assert_eq!(bench.drain(client), "");
        bench.changes(1, EDS, CollectionKind::Names, "a=1 b=2", false);
        assert_eq!(bench.drain(client), "ClusterLoadAssignment b=2");
        bench.changes(1, LDS, CollectionKind::Wildcard, "l=1", false);
        assert_eq!(bench.drain(client), "");
        bench.changes(1, LDS, CollectionKind::Wildcard, "", true);
        assert_eq!(bench.drain(client), if delta { "Listener -m" } else { "Listener l=1" });
    }
}

/// The endpoints of a forced resend are removed before the resend.
#[test]
fn ord_5_endpoints_that_go_before_they_are_sent_again_are_removed() {
    let mut bench = Bench::files(&[(CDS, "a=e1"), (EDS, "a=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, EDS, "");
    bench.drain(client);
    bench.state(0, &[(CDS, "a=e2"), (EDS, "a=1")]);
    assert_eq!(bench.poll(client), "Cluster a=e2");
    bench.state(0, &[(CDS, "a=e2"), (EDS, "")]);
    assert_eq!(bench.poll(client), "ClusterLoadAssignment -a");
}

/// SUB-1: a client drops a name with its subscription, and is sent the name again with the wildcard.
#[test]
fn sub_1_a_name_that_was_given_up_is_sent_again_by_the_wildcard() {
    let mut bench = Bench::files(&[(CDS, "a=1 d=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "d *");
    assert_eq!(bench.drain(client), "Cluster a=1 d=1");
    bench.ask(client, CDS, "b");
    bench.ask(client, CDS, "b *");
    assert_eq!(bench.drain(client), "Cluster a=1 d=1");
}

/// SST-3: a resource that stays because absence cannot be told goes with the change to a wildcard.
#[test]
fn sst_3_the_first_complete_set_deletes_what_was_kept() {
    let mut bench = Bench::files(&[(RDS, "c=1 d=1")]);
    let client = bench.sotw();
    bench.ask(client, RDS, "c d");
    assert_eq!(bench.drain(client), "RouteConfiguration c=1 d=1");
    bench.state(0, &[(RDS, "d=1")]);
    assert_eq!(bench.drain(client), "");
    bench.ask(client, RDS, "c *");
    assert_eq!(bench.drain(client), "RouteConfiguration d=1");
}

/// SST-3: a name that is given up in the request for the wildcard goes with the first complete set.
#[test]
fn sst_3_sub_6_a_name_given_up_for_the_wildcard_goes_if_that_lacks_it() {
    let mut bench = Bench::files(&[(RDS, "c=1 d=1")]);
    let client = bench.sotw();
    bench.ask(client, RDS, "c d");
    assert_eq!(bench.drain(client), "RouteConfiguration c=1 d=1");
    bench.state(0, &[(RDS, "d=1")]);
    assert_eq!(bench.drain(client), "");
    bench.ask(client, RDS, "d *");
    assert_eq!(bench.drain(client), "RouteConfiguration d=1");
    bench.ask(client, RDS, "d *");
    assert_eq!(bench.drain(client), "");
}

/// STR-10 applies only to a client that requests nothing new.
#[test]
fn str_10_a_version_presented_before_the_set_was_given_up_means_nothing() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask_with(client, CDS, "*", "", &version_of(CDS, "a=1").to_string(), None);
    bench.ask_with(client, CDS, "", "", "", None);
    bench.ask_with(client, CDS, "*", "", "", None);
    bench.says_of_all(CDS, "a=1", true);
    assert_eq!(bench.drain(client), "Cluster a=1");
}

/// NON-4: giving up a name is no request for resources.
#[test]
fn non_4_a_removal_of_names_lets_no_update_pass() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, EDS, "+a +b")
        } else {
            bench.ask(client, EDS, "a b")
        };
        assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1 b=1");
        bench.state(0, &[(EDS, "a=2 b=1")]);
        if delta {
            bench.change(client, EDS, "-b");
        } else {
            bench.ask_with(client, EDS, "a", "", "", None);
        }
        assert_eq!(bench.poll(client), "");
        bench.ack(client, EDS);
        assert_eq!(bench.poll(client), "ClusterLoadAssignment a=2");
    }
}

/// Forced resends count as changes of the subscription, and clients that force resends are slowed down.
#[test]
fn fd_4_a_forced_resend_counts_as_a_change() {
    let mut bench = Bench::files(&[(EDS, "a=1"), (CDS, "a=1")]);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.change(client, CDS, "+*");
    bench.drain(client);
    assert!(bench.change(client, EDS, "+a").changed);
    assert!(bench.change(client, CDS, "+*").changed);
    bench.drain(client);
    assert!(!bench.change(client, EDS, "").changed);
    let nonce = bench.held(client, EDS).nonce.clone();
    assert!(!bench.change_with(client, EDS, "", &nonce, &[], None).changed);
}

/// A request that changes the class and the names together leaves no subscription at the old source.
#[test]
fn rly_16_a_part_that_moves_with_its_request_leaves_the_old_source() {
    let mut bench =
        Bench::new(vec![Attachment::Files(Files::default()), Attachment::Files(Files::default())]);
    bench.state(0, &[(EDS, "a=1 b=1")]);
    bench.state(1, &[(EDS, "a=1 b=1")]);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    bench.drain(client);
    bench.clients[client].routes.old = 1;
    bench.change(client, EDS, "+b");
    bench.reroute(client, 1);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment b=1");
    bench.advance(Duration::from_secs(31));
    assert!(bench.sources[0].is_idle(), "{:?}", bench.sources[0]);
}

#[test]
fn sources_that_no_part_comes_from_are_let_go() {
    let mut bench =
        Bench::new(vec![Attachment::Files(Files::default()), Attachment::Files(Files::default())]);
    bench.state(0, &[(EDS, "a=1")]);
    bench.state(1, &[(EDS, "a=2")]);
    let client = bench.delta();
    bench.change(client, EDS, "+a");
    for source in [1, 0, 1] {
        bench.reroute(client, source);
        bench.drain(client);
        bench.advance(Duration::from_secs(31));
        assert!(bench.sources[1 - source as usize].is_idle());
    }
    bench.check(client, EDS, "a=2");
    assert_eq!(url(EDS).short(), "ClusterLoadAssignment");
}

/// DEL-26, SST-13: removed names count for the size of a message.
#[test]
fn del_26_many_removals_take_several_messages() {
    let mut bench = Bench::files(&[(SDS, "kept=1")]);
    let client = bench.delta();
    let long = "n".repeat(1000);
    let presented: Vec<_> = (0..5000).map(|n| format!("{long}{n}")).collect();
    let presented: Vec<_> = presented.iter().map(|name| (name.as_str(), version_of(SDS, "x=1"))).collect();
    bench.change_with(client, SDS, "", "", &presented, None);
    let mut removed = 0;
    loop {
        let text = bench.poll(client);
        if text.is_empty() {
            break;
        }
        assert!(text.len() < 4 << 20, "{}", text.len());
        removed += text.matches(" -").count();
    }
    assert_eq!(removed, 5000);
    bench.check(client, SDS, "kept=1");
}

/// ORD-10: a client with slow reads and ACKs receives EDS updates without a pause.
#[test]
fn ord_10_routes_pass_endpoints_that_never_rest() {
    let mut bench = Bench::files(&[(EDS, "a=0"), (RDS, "r=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a");
    bench.ask(client, RDS, "r");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=0");
    for round in 1..200 {
        bench.state(0, &[(EDS, &format!("a={round}")), (RDS, "r=1")]);
        bench.advance(Duration::from_millis(500));
        bench.poll(client);
        bench.ack(client, EDS);
        if bench.poll(client) == "RouteConfiguration r=1" {
            assert!(round <= 40, "{round}");
            return;
        }
        bench.state(0, &[(EDS, &format!("a={round}x")), (RDS, "r=1")]);
    }
    panic!("the routes never came");
}

/// DEL-26: after a request between two messages of an answer, nothing is sent twice.
#[test]
fn del_26_what_was_sent_of_an_interrupted_answer_counts() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(EDS, "a=1~2000000 b=1~2000000 c=1~2000000 d=1"), (CDS, "c=e1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, EDS, "+a +b +c")
        } else {
            bench.ask(client, EDS, "a b c")
        };
        assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
        if delta {
            bench.change(client, EDS, "+d")
        } else {
            bench.ask(client, EDS, "a b c d")
        };
        assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
        // Unless the client requests the endpoints again, or their cluster is sent.
        if delta {
            bench.change(client, EDS, "+a")
        } else {
            bench.ask(client, CDS, "")
        };
        let expected = if delta { "ClusterLoadAssignment a=1" } else { "Cluster c=e1" };
        assert_eq!(bench.poll(client), expected);
        assert_eq!(bench.drain(client), "ClusterLoadAssignment c=1 d=1");
        bench.state(0, &[(EDS, "b=1 d=2")]);
        assert_eq!(
            bench.drain(client),
            if delta { "ClusterLoadAssignment d=2 -a -c" } else { "Cluster; ClusterLoadAssignment d=2" }
        );
    }
}

/// RLY-11: one source may have names of both styles, mostly a file server.
#[test]
fn nam_3_both_styles_of_one_source() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(EDS, "a=1 xdstp:b=1 c=1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, EDS, "+a +xdstp:b")
        } else {
            bench.ask(client, EDS, "a xdstp:b")
        };
        assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1 xdstp:b=1");
        bench.state(0, &[(EDS, "a=2 xdstp:b=2 c=1")]);
        assert_eq!(bench.drain(client), "ClusterLoadAssignment a=2 xdstp:b=2");
        if delta {
            bench.change(client, EDS, "-xdstp:b +c")
        } else {
            bench.ask(client, EDS, "a c")
        };
        assert_eq!(bench.drain(client), "ClusterLoadAssignment c=1");
        bench.leave(client);
        bench.advance(Duration::from_secs(31));
        assert!(bench.sources[0].is_idle());
    }
}

/// SST-6: a SotW client is not told of an absence, so an unchanged resource that comes back is not sent.
#[test]
fn i12_what_went_and_came_back_is_no_news_where_nothing_is_deleted() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let client = bench.sotw();
    bench.ask(client, EDS, "a b");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1 b=1");
    bench.state(0, &[(EDS, "b=1")]);
    assert_eq!(bench.drain(client), "");
    bench.state(0, &[(EDS, "a=1 b=2")]);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment b=2");
    bench.state(0, &[]);
    assert_eq!(bench.drain(client), "");
    bench.state(0, &[(EDS, "a=2 b=2")]);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=2");
    // After a new request the resource is sent again.
    bench.state(0, &[(EDS, "b=2")]);
    assert_eq!(bench.drain(client), "");
    bench.ask(client, EDS, "b");
    bench.ask(client, EDS, "a b");
    assert_eq!(bench.drain(client), "");
    bench.state(0, &[(EDS, "a=2 b=2")]);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=2");
}

/// A client that stops reading between two messages costs the memory of names, not of resources.
#[test]
fn rly_55_the_rest_of_an_answer_keeps_no_snapshot() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(EDS, "a=1~2000000 b=1~2000000 c=1~2000000")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, EDS, "+a +b +c")
        } else {
            bench.ask(client, EDS, "a b c")
        };
        assert_eq!(bench.poll(client), "ClusterLoadAssignment a=1");
        let before = Arc::downgrade(&bench.snapshots[0]);
        bench.state(0, &[(EDS, "a=2 b=2 c=2")]);
        assert!(before.upgrade().is_none(), "delta: {delta}; nobody needs the former state");
        assert_eq!(bench.poll(client), "ClusterLoadAssignment b=1");
    }
}

/// DEL-11: a second request for a wildcard in the middle of its answer restarts the answer.
#[test]
fn del_11_a_wildcard_asked_for_again_between_two_messages() {
    let mut bench = Bench::files(&[(CDS, "a=1~2000000 b=1~2000000")]);
    let client = bench.delta();
    bench.change(client, CDS, "+*");
    assert_eq!(bench.poll(client), "Cluster a=1");
    bench.change(client, CDS, "+*");
    assert_eq!(bench.drain(client), "Cluster a=1; Cluster b=1");
}

/// DEL-19: the ACK of the first of several messages does not restart the answer for names that were given up.
#[test]
fn del_19_names_that_were_given_up_do_not_interrupt_their_own_answer() {
    let mut bench = Bench::files(&[(EDS, "a=1~1600000 b=1~1600000 c=1~1600000")]);
    let client = bench.delta();
    bench.change(client, EDS, "+a +b +c");
    while !bench.poll(client).is_empty() {
        bench.ack(client, EDS);
    }
    bench.change(client, EDS, "+* -a -b");
    let mut messages = Vec::new();
    while messages.len() < 9 {
        let message = bench.poll(client);
        if message.is_empty() {
            break;
        }
        messages.push(message);
        bench.ack(client, EDS);
    }
    let text = messages.join("; ");
    assert_eq!(text, "ClusterLoadAssignment a=1; ClusterLoadAssignment b=1", "once each");
}
