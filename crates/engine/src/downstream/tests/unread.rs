//! Names, globs and wildcards that a client gives up, and asks for again, before it has read what they brought (NAM-16).

use super::bench::{Bench, EDS, RDS, VHDS};
use crate::source::{Attachment, Files};

const LEDS: &str = "envoy.config.endpoint.v3.LbEndpoint";

/// The client reads its first answers only after it has given the glob up and asked for it again.
#[test]
fn nam_16_a_member_that_went_while_its_glob_was_given_up_and_asked_for_again_is_told() {
    for wants in
        [["+xdstp:f/* +xdstp:g/*", "-xdstp:f/*", "+xdstp:f/*"], ["+xdstp:f/*", "-xdstp:f/*", "+xdstp:f/*"]]
    {
        let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:f/b=1 xdstp:g/a=1")]);
        let client = bench.delta();
        bench.change(client, LEDS, wants[0]);
        assert!(bench.poll(client).starts_with("LbEndpoint xdstp:f/a=1 xdstp:f/b=1"));
        bench.change(client, LEDS, wants[1]);
        assert_eq!(bench.poll(client), "");
        bench.state(0, &[(LEDS, "xdstp:f/b=1 xdstp:g/a=1")]);
        bench.change(client, LEDS, wants[2]);
        assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/b=1 -xdstp:f/a");
    }
}

#[test]
fn nam_16_del_22_a_name_given_up_unread_may_come_with_its_glob_or_with_the_wildcard() {
    for wants in ["+xdstp:f/*", "+*"] {
        let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:f/b=1")]);
        let client = bench.delta();
        bench.change(client, LEDS, "+xdstp:f/a +xdstp:f/c");
        assert_eq!(bench.poll(client), "LbEndpoint xdstp:f/a=1 -xdstp:f/c");
        bench.change(client, LEDS, "-xdstp:f/a -xdstp:f/c");
        bench.state(0, &[(LEDS, "xdstp:f/b=1")]);
        bench.change(client, LEDS, wants);
        assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/b=1 -xdstp:f/a");
    }
}

/// Two responses are unread. The second one brings back what the client had before the first.
#[test]
fn nam_16_a_name_given_up_between_two_unread_responses_with_its_former_content_is_told() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:f/b=1")]);
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/a");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/a=1");
    bench.state(0, &[(LEDS, "xdstp:f/a=2 xdstp:f/b=1")]);
    assert_eq!(bench.poll(client), "LbEndpoint xdstp:f/a=2");
    bench.state(0, &[(LEDS, "xdstp:f/a=1 xdstp:f/b=1")]);
    bench.change(client, LEDS, "+xdstp:f/b");
    assert_eq!(bench.poll(client), "LbEndpoint xdstp:f/a=1 xdstp:f/b=1");
    bench.change(client, LEDS, "-xdstp:f/a");
    bench.state(0, &[(LEDS, "xdstp:f/b=1")]);
    bench.change(client, LEDS, "+xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint -xdstp:f/a");
}

#[test]
fn del_22_a_member_that_went_while_the_wildcard_was_given_up_and_asked_for_again_is_told() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:f/b=1")]);
    let client = bench.delta();
    bench.change(client, LEDS, "+*");
    assert_eq!(bench.poll(client), "LbEndpoint xdstp:f/a=1 xdstp:f/b=1");
    bench.change(client, LEDS, "-*");
    assert_eq!(bench.poll(client), "");
    bench.state(0, &[(LEDS, "xdstp:f/b=1")]);
    bench.change(client, LEDS, "+*");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/b=1 -xdstp:f/a");
}

#[test]
fn nam_16_a_member_that_was_read_before_its_glob_came_again_is_not_told() {
    let mut bench = Bench::files(&[(LEDS, "xdstp:f/a=1 xdstp:f/b=1")]);
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/*");
    assert_eq!(bench.poll(client), "LbEndpoint xdstp:f/a=1 xdstp:f/b=1");
    bench.change(client, LEDS, "-xdstp:f/*");
    bench.ack(client, LEDS);
    bench.state(0, &[(LEDS, "xdstp:f/b=1")]);
    bench.change(client, LEDS, "+xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/b=1");
}

#[test]
fn nam_16_rly_51_an_unread_member_goes_when_its_removal_has_rested() {
    let mut bench = Bench::files(&[(EDS, "xdstp:f/a=1 xdstp:f/b=1"), (RDS, "r=1")]);
    let client = bench.delta();
    bench.change(client, RDS, "+r");
    bench.drain(client);
    bench.change(client, EDS, "+xdstp:f/*");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment xdstp:f/a=1 xdstp:f/b=1");
    bench.change(client, EDS, "-xdstp:f/*");
    bench.state(0, &[(EDS, "xdstp:f/b=1"), (RDS, "r=1")]);
    bench.change(client, EDS, "+xdstp:f/*");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment xdstp:f/b=1; ClusterLoadAssignment -xdstp:f/a");
}

/// The answer's second message, with the error of a name that is gone, was never sent.
#[test]
fn nam_16_a_member_of_an_answer_that_was_cut_short_may_be_unread() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, LEDS, "+xdstp:f/*");
    bench.says_of_globs(LEDS, "xdstp:f/a=1 xdstp:f/b=1", "xdstp:f/*");
    bench.change(client, LEDS, "+x");
    bench.says(LEDS, "-x");
    bench.fails(LEDS, "xdstp:f/b", sluice_xds::Code::Internal);
    assert_eq!(bench.poll(client), "LbEndpoint xdstp:f/a=1 xdstp:f/b=1 -x");
    bench.change(client, LEDS, "-x");
    bench.change(client, LEDS, "-xdstp:f/*");
    bench.says_of_globs(LEDS, "-xdstp:f/a", "");
    bench.change(client, LEDS, "+xdstp:f/*");
    assert_eq!(bench.drain(client), "LbEndpoint xdstp:f/b=1 -xdstp:f/a; LbEndpoint !xdstp:f/b:INTERNAL");
}

/// A client that asks for a glob keeps nothing for an alias that it gave up unread: no resource lists a glob as its alias.
#[test]
fn ali_1_an_alias_given_up_unread_is_not_told_to_who_asks_for_a_glob() {
    for (further, told) in [("+xdstp:f/*", "VirtualHost xdstp:f/a=1"), ("+t", "VirtualHost t=1 -s")] {
        let mut bench = Bench::files(&[(VHDS, "s|y=1 t=1 xdstp:f/a=1")]);
        let client = bench.delta();
        bench.change(client, VHDS, "+y");
        assert_eq!(bench.poll(client), "VirtualHost s=1");
        bench.change(client, VHDS, "-y");
        bench.change(client, VHDS, further);
        assert_eq!(bench.drain(client), told);
    }
}

/// A client that asks for a name of another authority keeps nothing for an alias that it gave up unread.
#[test]
fn ali_1_an_alias_given_up_unread_is_not_told_to_who_asks_for_a_name_of_another_authority() {
    for (wants, told) in
        [(["+xdstp:g/a", "-y"], "VirtualHost xdstp:g/a=1"), (["+t", "-y"], "VirtualHost t=1 -s")]
    {
        for is_first_given_up in [false, true] {
            let mut wants = wants;
            if is_first_given_up {
                wants.reverse();
            }
            let mut bench = Bench::files(&[(VHDS, "s|y=1 t=1")]);
            bench.add(Attachment::Files(Files::default()));
            bench.state(1, &[(VHDS, "xdstp:g/a=1")]);
            let client = bench.delta();
            bench.change(client, VHDS, "+y");
            assert_eq!(bench.poll(client), "VirtualHost s=1");
            wants.iter().for_each(|wants| drop(bench.change(client, VHDS, wants)));
            assert_eq!(bench.drain(client), told, "{wants:?}");
        }
    }
}
