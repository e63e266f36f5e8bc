//! Aliases: ALI-1 to ALI-3.

use super::bench::{Bench, CDS, VHDS, version_of};
use sluice_xds::Code;

#[test]
fn ali_1_a_name_asked_for_by_alias_is_answered_with_the_resource() {
    let mut bench = Bench::files(&[(VHDS, "rc/v1|rc/a|rc/b=1 rc/v2=1")]);
    let client = bench.delta();
    bench.change(client, VHDS, "+rc/a");
    assert_eq!(bench.drain(client), "VirtualHost rc/v1=1");
    bench.state(0, &[(VHDS, "rc/v1|rc/a|rc/b=2 rc/v2=2")]);
    assert_eq!(bench.drain(client), "VirtualHost rc/v1=2");
    // DEL-11, and an alias without a resource.
    bench.change(client, VHDS, "+rc/a +rc/x");
    assert_eq!(bench.drain(client), "VirtualHost rc/v1=2 -rc/x");
    bench.change(client, VHDS, "-rc/a");
    bench.state(0, &[(VHDS, "rc/v1|rc/a|rc/b=3 rc/v2=3")]);
    assert_eq!(bench.drain(client), "");
}

#[test]
fn del_16_one_resource_under_several_of_its_names_is_sent_once() {
    let mut bench = Bench::files(&[(VHDS, "v1|a|b=1"), (CDS, "v1|a|b=1")]);
    let client = bench.delta();
    bench.change(client, VHDS, "+a +b +v1");
    assert_eq!(bench.drain(client), "VirtualHost v1=1");
    let client = bench.sotw();
    bench.ask(client, CDS, "a b v1");
    assert_eq!(bench.drain(client), "Cluster v1=1");
}

#[test]
fn ali_1_what_is_gone_is_told_by_the_name_that_the_client_knows() {
    let mut bench = Bench::files(&[(VHDS, "v1|a=1 v2|b=1")]);
    let client = bench.delta();
    bench.change(client, VHDS, "+a +b +v2");
    assert_eq!(bench.drain(client), "VirtualHost v1=1 v2=1");
    bench.state(0, &[(VHDS, "v2=2")]);
    // `b` is no alias any more, but its resource still exists.
    assert_eq!(bench.drain(client), "VirtualHost v2=2 -a -b -v1");
}

#[test]
fn ali_2_an_alias_moves() {
    let mut bench = Bench::files(&[(VHDS, "v1|a=1 v2=1")]);
    let client = bench.delta();
    bench.change(client, VHDS, "+a");
    assert_eq!(bench.drain(client), "VirtualHost v1=1");
    bench.state(0, &[(VHDS, "v1=1 v2|a=1")]);
    assert_eq!(bench.drain(client), "VirtualHost v2=1 -v1", "nothing covers it any more");
    bench.state(0, &[(VHDS, "v1=2 v2|a=1")]);
    assert_eq!(bench.drain(client), "");
    // A resource of that name comes before a resource with that alias.
    bench.state(0, &[(VHDS, "v1=2 v2|a=1 a=1")]);
    assert_eq!(bench.drain(client), "VirtualHost a=1 -v2");
    // `v2` is removed only once, and a resource that is wanted by its own name stays.
    bench.state(0, &[(VHDS, "v1=2 v2=1 a=2")]);
    assert_eq!(bench.drain(client), "VirtualHost a=2");
    bench.change(client, VHDS, "+v1");
    assert_eq!(bench.drain(client), "VirtualHost v1=2");
    bench.state(0, &[(VHDS, "v1|a=2 v2=1")]);
    assert_eq!(bench.drain(client), "VirtualHost v1=2");
    bench.state(0, &[(VHDS, "v1=3 v2|a=1")]);
    assert_eq!(bench.drain(client), "VirtualHost v1=3 v2=1");
}

#[test]
fn ali_1_a_resource_stays_as_long_as_an_alias_leads_to_it() {
    let mut bench = Bench::files(&[(VHDS, "v1|a|b=1 v2=1")]);
    let client = bench.delta();
    bench.change(client, VHDS, "+a +b");
    assert_eq!(bench.drain(client), "VirtualHost v1=1");
    bench.state(0, &[(VHDS, "v1|b=1 v2|a=1")]);
    assert_eq!(bench.drain(client), "VirtualHost v2=1");
    bench.state(0, &[(VHDS, "v1|b=1 v2=1")]);
    assert_eq!(bench.drain(client), "VirtualHost -a -v2");
    bench.state(0, &[(VHDS, "v1=1 v2=1")]);
    assert_eq!(bench.drain(client), "VirtualHost -b -v1");
}

#[test]
fn rly_2_a_name_that_is_unknown_by_itself_is_not_removed_with_its_alias() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+a");
    bench.says(VHDS, "v1|a=1");
    assert_eq!(bench.drain(client), "VirtualHost v1=1");
    bench.change(client, VHDS, "+v1");
    bench.says(VHDS, "-a");
    assert_eq!(bench.drain(client), "VirtualHost -a");
    bench.says(VHDS, "-v1");
    assert_eq!(bench.drain(client), "VirtualHost -v1");
}

/// Another client, or a lingering name, still leads to the former resource, but this client does not ask for it.
#[test]
fn ali_2_an_alias_that_moves_leaves_a_resource_that_another_alias_brought_too() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+x +z");
    bench.says(VHDS, "p|x|z=1");
    assert_eq!(bench.drain(client), "VirtualHost p=1");
    bench.change(client, VHDS, "-z");
    assert_eq!(bench.drain(client), "");
    bench.says(VHDS, "p|z=2 q|x=1");
    assert_eq!(bench.drain(client), "VirtualHost q=1 -p");
}

/// The server is out of reach, or has not answered yet.
#[test]
fn ali_1_a_resource_that_is_held_already_answers_its_alias() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+v1 +w");
    bench.says(VHDS, "v1|a=1 w|b|c=1");
    assert_eq!(bench.drain(client), "VirtualHost v1=1 w=1");
    let other = bench.delta();
    bench.change(other, VHDS, "+a");
    assert_eq!(bench.drain(other), "VirtualHost v1=1");
    bench.change(client, VHDS, "+a");
    bench.drain(client);
    bench.change(client, VHDS, "-v1");
    bench.says(VHDS, "v1=2 v2|a=1");
    assert_eq!(bench.drain(client), "VirtualHost v2=1 -v1", "the alias alone led to it");
    // An alias that the resource no longer lists, and a resource that nobody has.
    bench.says(VHDS, "w|c=2");
    assert_eq!(bench.drain(client), "VirtualHost w=2");
    bench.change(other, VHDS, "+b");
    assert_eq!(bench.drain(other), "VirtualHost v2=1 -v1");
    bench.change(other, VHDS, "+c");
    assert_eq!(bench.drain(other), "VirtualHost w=2");
}

/// Two aliases are unanswered when the resource changes, and its list no longer has them.
#[test]
fn ali_1_one_resource_has_one_content_under_all_its_aliases() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+b");
    bench.says(VHDS, "v1|a|b|c=1");
    assert_eq!(bench.drain(client), "VirtualHost v1=1");
    bench.change(client, VHDS, "+a +c");
    bench.drain(client);
    bench.says(VHDS, "v1|b=2");
    assert_eq!(bench.drain(client), "VirtualHost v1=2");
    let late = bench.delta();
    bench.change(late, VHDS, "+a +b +c");
    assert_eq!(bench.drain(late), "VirtualHost v1=2");
}

#[test]
fn ali_1_a_resource_that_is_gone_answers_no_alias_any_more() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+v1");
    bench.says(VHDS, "v1|a=1");
    assert_eq!(bench.drain(client), "VirtualHost v1=1");
    let other = bench.delta();
    bench.change(other, VHDS, "+a");
    assert_eq!(bench.drain(other), "VirtualHost v1=1");
    bench.says(VHDS, "-v1");
    assert_eq!(bench.drain(client), "VirtualHost -v1");
    assert_eq!(bench.drain(other), "", "the server has not said what the alias leads to");
    let late = bench.delta();
    bench.change(late, VHDS, "+a");
    assert_eq!(bench.drain(late), "");
    bench.says(VHDS, "-a");
    assert_eq!(bench.drain(other), "VirtualHost -a -v1");
    assert_eq!(bench.drain(late), "VirtualHost -a");
}

/// The client reads that the alias moved only after it has given up the former resource's own name.
#[test]
fn ali_2_a_former_resource_that_is_given_up_before_the_alias_moved_is_told_as_gone() {
    let mut bench = Bench::files(&[(VHDS, "v1|a=1 v2=1")]);
    let client = bench.delta();
    bench.change(client, VHDS, "+a +v1");
    assert_eq!(bench.drain(client), "VirtualHost v1=1");
    bench.state(0, &[(VHDS, "v1=1 v2|a=1")]);
    assert_eq!(bench.poll(client), "VirtualHost v2=1");
    bench.change(client, VHDS, "-v1");
    assert_eq!(bench.drain(client), "VirtualHost -v1");
    // Where the alias still leads to the resource, the client keeps it.
    bench.change(client, VHDS, "+v2");
    assert_eq!(bench.poll(client), "VirtualHost v2=1");
    bench.change(client, VHDS, "-v2");
    assert_eq!(bench.drain(client), "");
}

/// The client answers another response, or asks for more, before it is told.
#[test]
fn ali_2_a_former_resource_that_was_given_up_is_told_as_gone_after_further_requests() {
    for further in ["", "+w", "-w"] {
        let mut bench = Bench::files(&[(VHDS, "v1|a=1 v2=1 w=1")]);
        let client = bench.delta();
        bench.change(client, VHDS, "+a +v1 +w");
        assert_eq!(bench.drain(client), "VirtualHost v1=1 w=1");
        bench.state(0, &[(VHDS, "v1=1 v2|a=1 w=1")]);
        assert_eq!(bench.poll(client), "VirtualHost v2=1");
        bench.change(client, VHDS, "-v1");
        match further {
            "" => drop(bench.ack(client, VHDS)),
            _ => drop(bench.change(client, VHDS, further)),
        }
        let told = bench.drain(client);
        assert!(told.contains(" -v1"), "{told:?} after {further:?}");
    }
}

/// Two responses are unread. The alias leads to the resource in the content between them alone.
#[test]
fn ali_2_a_resource_that_an_alias_led_to_between_two_unread_responses_is_told_as_gone() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+v1");
    bench.says(VHDS, "v1=1");
    assert_eq!(bench.drain(client), "VirtualHost v1=1");
    bench.change(client, VHDS, "+a");
    bench.says(VHDS, "v1|a=1");
    assert_eq!(bench.poll(client), "VirtualHost v1=1");
    bench.change(client, VHDS, "+c");
    bench.says(VHDS, "v1=1 v2|a=1 -c");
    assert_eq!(bench.poll(client), "VirtualHost v2=1 -c");
    bench.change(client, VHDS, "-v1");
    assert_eq!(bench.drain(client), "VirtualHost -v1");
}

/// The client asks for an alias before it reads the response that lists it, and gives the resource's own name up.
#[test]
fn ali_2_a_resource_that_is_given_up_unread_may_be_held_for_an_alias() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+v1");
    bench.says(VHDS, "v1|a=1");
    assert_eq!(bench.poll(client), "VirtualHost v1=1");
    bench.change(client, VHDS, "+a");
    bench.change(client, VHDS, "-v1");
    bench.says(VHDS, "v1=2 v2|a=1");
    assert_eq!(bench.drain(client), "VirtualHost v2=1 -v1");
    // Nobody is told of a name that is given up with all others.
    bench.change(client, VHDS, "+v3");
    bench.says(VHDS, "v3=1");
    assert_eq!(bench.poll(client), "VirtualHost v3=1");
    bench.change(client, VHDS, "-v3 -a");
    assert_eq!(bench.drain(client), "");
}

/// The server has not answered in time for the name, and the resource is there under its alias.
#[test]
fn ali_1_a_name_that_counts_as_absent_takes_no_resource_from_its_alias() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+x");
    bench.says(VHDS, "p|x=1");
    assert_eq!(bench.drain(client), "VirtualHost p=1");
    bench.change(client, VHDS, "+p");
    bench.says(VHDS, "-p");
    assert_eq!(bench.drain(client), "");
    bench.says(VHDS, "-x");
    assert_eq!(bench.drain(client), "VirtualHost -p -x");
}

/// The client keeps what it reads for an alias that it has asked for meanwhile.
#[test]
fn ali_2_a_resource_that_was_read_after_its_second_alias_was_asked_for_goes_with_the_first() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+x");
    bench.says(VHDS, "s|x|z=1");
    assert_eq!(bench.poll(client), "VirtualHost s=1");
    bench.change(client, VHDS, "+z");
    bench.says(VHDS, "s|x=2 -z");
    bench.ack(client, VHDS);
    bench.change(client, VHDS, "-x");
    assert_eq!(bench.drain(client), "VirtualHost -s -z");
}

/// The server lists an alias twice, for the time in which it moves.
#[test]
fn ali_2_of_two_resources_with_an_alias_the_one_that_it_leads_to_goes_last() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, VHDS, "+y +r");
    bench.says(VHDS, "r=1 s|y=1");
    assert_eq!(bench.drain(client), "VirtualHost r=1 s=1");
    // The client has `s` already.
    bench.says(VHDS, "r|y=2 s|y=1");
    assert_eq!(bench.drain(client), "VirtualHost r=2 s=1");
    bench.says(VHDS, "s|y=2 r|y=3");
    assert_eq!(bench.drain(client), "VirtualHost r=3 -s");
    let other = bench.delta();
    bench.change(other, VHDS, "+y +s");
    bench.says(VHDS, "s|y=3 r|y=3");
    assert_eq!(bench.drain(other), "VirtualHost s=3 r=3");
}

/// The client asks for an alias before it reads the response that lists it, and wants nothing else any more.
#[test]
fn ali_2_all_that_was_given_up_unread_may_be_held_for_an_alias() {
    for given_up in ["r", "z"] {
        let mut bench = Bench::cold();
        let client = bench.delta();
        bench.change(client, VHDS, &format!("+{given_up}"));
        bench.says(VHDS, "r|x|z=1");
        assert_eq!(bench.poll(client), "VirtualHost r=1");
        bench.change(client, VHDS, &format!("-{given_up}"));
        bench.change(client, VHDS, "+x");
        bench.says(VHDS, "-r -x -z");
        assert_eq!(bench.drain(client), "VirtualHost -r -x");
    }
}

/// The error of the own name goes in a second message.
#[test]
fn ali_1_what_an_alias_brings_in_one_of_several_messages_is_content_of_the_own_name_too() {
    for interrupted in [false, true] {
        let mut bench = Bench::cold();
        let other = bench.delta();
        bench.change(other, VHDS, "+z");
        bench.says(VHDS, "r|z=1");
        bench.drain(other);
        let client = bench.delta();
        let held = [("r", version_of(VHDS, "r=2"))];
        bench.change_with(client, VHDS, "+r +z", "", &held, None);
        bench.fails(VHDS, "r", Code::Internal);
        match interrupted {
            true => {
                assert_eq!(bench.poll(client), "VirtualHost r=1");
                bench.change(client, VHDS, "+s");
            }
            false => assert_eq!(bench.drain(client), "VirtualHost r=1; VirtualHost !r:INTERNAL"),
        }
        bench.says(VHDS, "p|z=1 r=2");
        let sent = bench.drain(client);
        assert!(sent.contains("p=1 r=2"), "{sent}");
    }
}
