//! The wildcard beside names.

use super::bench::{Bench, CDS, EDS, LDS, url, version_of};
use crate::collection::CollectionKind;
use sluice_xds::Code;

#[test]
fn sub_12_and_13_both_subscriptions_exist() {
    for message in [CDS, LDS, EDS] {
        let mut bench = Bench::cold();
        let client = bench.sotw();
        let short = url(message).short().to_owned();
        bench.ask(client, message, "* a");
        bench.says_of_all(message, "b=1", true);
        assert_eq!(bench.poll(client), "", "a is unknown");
        bench.says(message, "a=1");
        assert_eq!(bench.drain(client), format!("{short} a=1 b=1"));
        bench.says(message, "a=2");
        assert_eq!(bench.drain(client), format!("{short} a=2 b=1"));
        bench.says_of_all(message, "b=2", false);
        assert_eq!(bench.drain(client), format!("{short} a=2 b=2"));
        bench.ask(client, message, "a");
        assert_eq!(bench.drain(client), "");
        bench.says_of_all(message, "b=3", false);
        assert_eq!(bench.drain(client), "");
        bench.says(message, "a=3");
        assert_eq!(bench.drain(client), format!("{short} a=3"));
    }
}

#[test]
fn sub_12_in_delta() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+* +a");
    bench.says_of_all(CDS, "b=1", true);
    assert_eq!(bench.drain(client), "Cluster b=1");
    bench.says(CDS, "a=1");
    assert_eq!(bench.drain(client), "Cluster a=1");
    bench.says_of_all(CDS, "-b", false);
    assert_eq!(bench.drain(client), "Cluster -b");
    bench.says(CDS, "-a");
    assert_eq!(bench.drain(client), "Cluster -a");
}

/// The wildcard's content replaces the content that a client presented under a name, even if a newer answer replaces the
/// rest of the answer.
#[test]
fn sub_12_what_the_wildcard_sent_replaces_what_was_presented_under_the_name() {
    let mut bench = Bench::cold();
    let (first, client) = (bench.delta(), bench.delta());
    bench.change(first, CDS, "+* +a");
    bench.says_of_all(CDS, "a=1 b=1", true);
    bench.fails(CDS, "a", Code::Unavailable);
    bench.drain(first);
    bench.change_with(client, CDS, "+* +a", "", &[("a", version_of(CDS, "a=2"))], None);
    bench.held(client, CDS).resources.insert("a".into(), "2".to_owned());
    assert_eq!(bench.poll(client), "Cluster a=1 b=1", "the name's error comes with the next message");
    bench.change(client, CDS, "+c");
    bench.says(CDS, "a=2 c=1");
    assert_eq!(bench.drain(client), "Cluster a=2 c=1");
    bench.check(client, CDS, "a=2 b=1 c=1");
}

#[test]
fn del_19_a_name_given_up_beside_the_wildcard_is_answered() {
    // V6
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+* +a +b +c");
    bench.says_of_all(CDS, "a=1", true);
    bench.says(CDS, "a=1 b=1 -c");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1 -c");
    bench.change(client, CDS, "-a");
    assert_eq!(bench.drain(client), "Cluster a=1");
    bench.change(client, CDS, "-b -c");
    assert_eq!(bench.drain(client), "Cluster -b -c");
    // DEL-20
    bench.change(client, CDS, "-b -zzz");
    assert_eq!(bench.drain(client), "");
    bench.change(client, CDS, "+b -b");
    assert_eq!(bench.drain(client), "Cluster -b");
}

#[test]
fn del_22_a_name_that_one_of_the_two_covers_is_not_removed() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+* +a");
    bench.says_of_all(CDS, "a=1 b=1", true);
    bench.says(CDS, "a=1");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
    bench.says_of_all(CDS, "-a", false);
    assert_eq!(bench.drain(client), "");
    bench.says(CDS, "-a");
    assert_eq!(bench.drain(client), "Cluster -a");
    // The same in the other order.
    bench.says_of_all(CDS, "a=2", false);
    assert_eq!(bench.drain(client), "Cluster a=2");
    bench.says(CDS, "a=2");
    bench.drain(client);
    bench.says(CDS, "-a");
    assert_eq!(bench.drain(client), "");
    bench.says_of_all(CDS, "-a", false);
    assert_eq!(bench.drain(client), "Cluster -a");
}

#[test]
fn sub_3_a_name_that_the_wildcard_brought_is_sent_again_when_it_is_asked_for() {
    for sotw in [false, true] {
        let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
        let client = if sotw { bench.sotw() } else { bench.delta() };
        if sotw {
            bench.ask(client, EDS, "*")
        } else {
            bench.change(client, EDS, "+*")
        };
        assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1 b=1");
        if sotw {
            bench.ask(client, EDS, "* a")
        } else {
            bench.change(client, EDS, "+a")
        };
        let expected = if sotw { "a=1 b=1" } else { "a=1" };
        assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {expected}"));
        // The same with a name that already has a subscription.
        if !sotw {
            bench.change(client, EDS, "+a");
            assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
        }
    }
}

#[test]
fn a_wildcard_asked_for_again_is_sent_again() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "+*");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
    bench.change(client, CDS, "+*");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
    // Members that left in the meantime are still removed.
    bench.change(client, CDS, "+*");
    bench.state(0, &[(CDS, "b=1")]);
    assert_eq!(bench.drain(client), "Cluster b=1 -a");
}

#[test]
fn del_19_waits_for_the_membership_and_holds_nothing_else() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+* +a +b");
    bench.says(CDS, "a=1 b=1");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
    bench.change(client, CDS, "-a");
    assert_eq!(bench.drain(client), "");
    bench.says(CDS, "b=2");
    assert_eq!(bench.drain(client), "Cluster b=2");
    bench.says_of_all(CDS, "c=1", true);
    assert_eq!(bench.drain(client), "Cluster c=1 -a");
}

#[test]
fn del_19_is_void_once_the_name_is_wanted_again() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+* +a");
    bench.change(client, CDS, "-a");
    bench.change(client, CDS, "+a");
    bench.says_of_all(CDS, "b=1", true);
    assert_eq!(bench.drain(client), "Cluster b=1", "a is wanted and unknown");
    bench.says(CDS, "a=1");
    assert_eq!(bench.drain(client), "Cluster a=1");
}

#[test]
fn del_21_nothing_of_the_wildcard_follows_its_end() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+* +a +b");
    bench.change(client, CDS, "-a");
    bench.change(client, CDS, "-*");
    bench.says_of_all(CDS, "a=1", true);
    assert_eq!(bench.drain(client), "", "neither a greeting nor an answer for a");
    bench.says(CDS, "b=1");
    assert_eq!(bench.drain(client), "Cluster b=1");
}

#[test]
fn del_25_an_empty_wildcard_is_answered_though_a_name_is_unknown() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+* +a");
    bench.says_of_all(CDS, "", true);
    assert_eq!(bench.drain(client), "Cluster");
    bench.says(CDS, "-a");
    assert_eq!(bench.drain(client), "Cluster -a");
}

#[test]
fn a_change_that_comes_by_both_ways_is_sent_once() {
    for sotw in [false, true] {
        let mut bench = Bench::cold();
        let client = if sotw { bench.sotw() } else { bench.delta() };
        if sotw {
            bench.ask(client, CDS, "* a")
        } else {
            bench.change(client, CDS, "+* +a")
        };
        bench.says_of_all(CDS, "a=1", true);
        bench.says(CDS, "a=1");
        assert_eq!(bench.drain(client), "Cluster a=1");
        // The name's own subscription decides.
        bench.says_of_all(CDS, "a=2", false);
        assert_eq!(bench.drain(client), "");
        bench.says(CDS, "a=2");
        assert_eq!(bench.drain(client), "Cluster a=2");
        bench.says(CDS, "a=3");
        assert_eq!(bench.drain(client), "Cluster a=3");
        bench.says_of_all(CDS, "a=3", false);
        assert_eq!(bench.drain(client), "");
        // If the name's own resource goes, the wildcard's resource takes its place.
        bench.says_of_all(CDS, "a=4", false);
        assert_eq!(bench.drain(client), "");
        bench.says(CDS, "-a");
        assert_eq!(bench.drain(client), "Cluster a=4");
    }
}

#[test]
fn del_22_in_sotw() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "* a");
    bench.says_of_all(CDS, "a=1 b=1", true);
    bench.says(CDS, "a=1");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
    bench.says_of_all(CDS, "-a", false);
    assert_eq!(bench.drain(client), "");
    bench.says(CDS, "-a");
    assert_eq!(bench.drain(client), "Cluster b=1");
}

#[test]
fn del_29_a_presented_name_under_both() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=1")]);
    for (list, version, expected) in [
        ("+* +a", "a=1", "Cluster b=1"),
        ("+* +a", "a=0", "Cluster a=1 b=1"),
        ("+* +zzz", "a=1", "Cluster b=1 -zzz"),
    ] {
        let client = bench.delta();
        bench.change_with(client, CDS, list, "", &[("a", version_of(CDS, version))], None);
        assert_eq!(bench.drain(client), expected, "{list} {version}");
    }
}

#[test]
fn rly_2_a_name_that_left_the_wildcard_is_not_removed_while_its_own_subscription_is_unknown() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.says_of_all(CDS, "a=1 b=1", true);
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
    bench.change(client, CDS, "+a +b");
    bench.drain(client);
    bench.says_of_all(CDS, "-a -b", false);
    assert_eq!(bench.drain(client), "");
    bench.says(CDS, "a=2 -b");
    assert_eq!(bench.drain(client), "Cluster a=2 -b");
    // An equal resource is not sent again.
    bench.says_of_all(CDS, "c=1", false);
    bench.change(client, CDS, "+c");
    assert_eq!(bench.drain(client), "Cluster c=1");
    bench.says_of_all(CDS, "-c", false);
    assert_eq!(bench.drain(client), "");
    bench.says(CDS, "c=1");
    assert_eq!(bench.drain(client), "");
}

#[test]
fn sub_1_a_name_given_up_beside_the_wildcard_falls_back_to_what_that_has() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    bench.ask(client, CDS, "* a b");
    bench.says_of_all(CDS, "a=1 b=1", true);
    bench.says(CDS, "a=2 b=1");
    assert_eq!(bench.drain(client), "Cluster a=2 b=1");
    bench.ask(client, CDS, "* a");
    assert_eq!(bench.drain(client), "", "SUB-6");
    bench.ask(client, CDS, "*");
    assert_eq!(bench.drain(client), "Cluster a=1 b=1");
}

#[test]
fn del_9_and_sub_13_what_the_wildcard_brought_is_judged_by_the_name_once_the_wildcard_goes() {
    for sotw in [false, true] {
        let mut bench = Bench::cold();
        let client = if sotw { bench.sotw() } else { bench.delta() };
        if sotw {
            bench.ask(client, CDS, "* a b")
        } else {
            bench.change(client, CDS, "+* +a +b")
        };
        bench.says(CDS, "-a b=1");
        bench.says_of_all(CDS, "a=1", true);
        assert_eq!(bench.drain(client), "Cluster a=1 b=1");
        if sotw {
            bench.ask(client, CDS, "a b")
        } else {
            bench.change(client, CDS, "-*")
        };
        assert_eq!(bench.drain(client), if sotw { "Cluster b=1" } else { "Cluster -a" });
        // The client keeps a name of unknown state, and an equal resource is not sent again.
        let client = bench.delta();
        bench.change(client, CDS, "+* +c");
        bench.says_of_all(CDS, "c=1", false);
        assert_eq!(bench.drain(client), "Cluster a=1 c=1");
        bench.change(client, CDS, "-*");
        bench.says(CDS, "c=1");
        assert_eq!(bench.drain(client), "");
    }
}

#[test]
fn del_22_a_name_that_goes_while_the_membership_is_in_doubt() {
    for (members, expected) in [("a=0", "Cluster a=0"), ("a=1", ""), ("", "Cluster -a")] {
        let mut bench = Bench::new(vec![super::bench::streams(), super::bench::streams()]);
        let client = bench.delta();
        bench.clients[client].routes.xdstp = 0;
        bench.change(client, CDS, "+* +xdstp:a");
        bench.says_of_all(CDS, "xdstp:a=0", true);
        bench.says(CDS, "xdstp:a=1");
        assert_eq!(bench.drain(client), "Cluster xdstp:a=1");
        // The wildcard moves to a source without answers, and the name goes.
        bench.reroute(client, 1);
        bench.says(CDS, "-xdstp:a");
        assert_eq!(bench.drain(client), "");
        let kind = CollectionKind::Wildcard;
        bench.changes(1, CDS, kind, &members.replace("a=", "xdstp:a="), true);
        assert_eq!(bench.drain(client), expected.replace("a", "xdstp:a"), "{members:?}");
    }
}
