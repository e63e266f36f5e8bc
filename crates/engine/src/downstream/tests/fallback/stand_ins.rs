//! Resources of a higher server for clients of a lower server: RLY-42, RLY-51.

use crate::downstream::tests::bench::{Bench, CDS, EDS, LDS, RDS, VHDS, version_of};
use crate::downstream::tests::fallback::*;
use crate::gated::Gated;
use crate::lanes::Lanes;

#[test]
fn rly_42_absence_on_the_second_server_deletes_no_name_that_the_first_supplied() {
    for delta in [false, true] {
        let mut bench = servers(2);
        let client = if delta { bench.delta() } else { bench.sotw() };
        let ask = |bench: &mut Bench, list: &str| match delta {
            true => bench.change(client, CDS, list),
            false => bench.ask(client, CDS, list.replace('+', "").as_str()),
        };
        ask(&mut bench, "+a +b");
        bench.hear(0);
        bench.names(0, CDS, "a=1 b=1");
        assert_eq!(bench.follow(client), "Cluster a=1 b=1");
        bench.lose(0);
        ask(&mut bench, if delta { "+c" } else { "+a +b +c" });
        assert_eq!(bench.follow(client), "");
        bench.hear(1);
        bench.names(1, CDS, "a=2 -b c=2");
        let news = if delta { "Cluster a=2 c=2" } else { "Cluster a=2 b=1 c=2" };
        assert_eq!(bench.follow(client), news);
        bench.check(client, CDS, "a=2 b=1 c=2");

        // A newcomer to the second server is sent the same resources.
        let newcomer = if delta { bench.delta() } else { bench.sotw() };
        match delta {
            true => bench.change(newcomer, CDS, "+a +b +c"),
            false => bench.ask(newcomer, CDS, "a b c"),
        };
        assert_eq!(bench.follow(newcomer), "Cluster a=2 b=1 c=2");
    }
}

/// A client of the second server has content of a push of that server, or of the first server in its place.
#[test]
fn wav_15_what_stands_in_for_a_name_is_nothing_of_a_push_but_for_one_that_the_push_removes() {
    let mut bench = servers(2);
    let (client, former) = (bench.delta(), bench.delta());
    bench.change(client, CDS, "+a");
    bench.change(former, CDS, "+a +b +c");
    bench.hear(0);
    bench.names(0, CDS, "a=1 b=1 c=1");
    bench.lose(0);
    bench.change(client, CDS, "+new");
    bench.change(former, CDS, "+new");
    assert_eq!([client, former].map(|client| bench.follow(client)), ["Cluster a=1", "Cluster a=1 b=1 c=1"]);
    bench.hear(1);
    bench.names(1, CDS, "a=2 -b c=2 -new");
    assert_eq!(
        [client, former].map(|client| bench.follow(client)),
        ["Cluster a=2 -new", "Cluster a=2 c=2 -new"]
    );
    bench.change(client, CDS, "+b");
    let mut lanes = Lanes::new(1, Gated::Default, 1);
    let before = bench.snapshots[1].clone();
    lanes.follow(&before, &before, bench.now);
    bench.names(1, CDS, "-c");
    lanes.follow(&before, &bench.snapshots[1], bench.now);
    lanes.cut(1);
    let published = lanes.published(bench.now);
    let stable = published.held().unwrap().clone();
    let candidate = published.candidate_of(1).unwrap().clone();
    let mut brings = |client: ClientId| {
        let latest = |id: SourceId| match id {
            SourceId(1) => Some(candidate.clone()),
            SourceId(id) => bench.snapshots.get(id as usize).cloned(),
        };
        let (_, answer) = bench.clients[client].session.poll_answer(&latest, bench.now).unwrap();
        let names = answer.parts[0].held.differing(&answer.parts[0].view);
        let names: Vec<_> = names.map(|name| name.as_str().to_owned()).collect();
        (names.join(" "), answer.brings(1, 1, SourceId(1), [&*stable, &*candidate]))
    };
    assert_eq!(brings(client), ("b".into(), false));
    assert_eq!(brings(former), ("c".into(), true), "the first server's resource");
}

#[test]
fn rly_42_overdue_types_are_told_what_a_higher_server_supplies_by_now() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, RDS, "+r +s");
    bench.hear(0);
    bench.names(0, RDS, "s=1");
    bench.drain(client);
    bench.change(client, EDS, "+a +b");
    bench.lose(0);
    bench.shift(client);
    bench.hear(1);
    bench.names(1, EDS, "a=1 b=1");
    bench.names(1, RDS, "r=1 -s");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1 b=1; RouteConfiguration r=1");
    assert_eq!(bench.serving(client), 1);

    bench.names(1, EDS, "b=2");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=2");
    bench.names(1, EDS, "b=3");
    bench.names(1, RDS, "r=2");
    assert_eq!(bench.poll(client), "");
    bench.advance(SECOND * 15);
    bench.names(1, EDS, "b=4 -a");
    bench.names(1, RDS, "r=2 -s");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment b=4", "what is gone waits for the route (RLY-51)");
    // The turn of the routing types has begun. The client is slow, and the first server comes back meanwhile.
    bench.advance(SECOND * 15);
    bench.hear(0);
    bench.names(0, EDS, "a=5");
    bench.names(0, RDS, "s=5");
    assert_eq!(bench.poll(client), "ClusterLoadAssignment a=5");
    assert_eq!(bench.poll(client), "RouteConfiguration r=2 s=5");
    assert_eq!(bench.serving(client), 1);
}

#[test]
fn rly_51_what_no_server_supplies_any_more_goes_after_the_routes() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+a +b");
    bench.change(client, RDS, "+r");
    bench.hear(0);
    bench.names(0, EDS, "a=1");
    bench.names(0, RDS, "r=a");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment a=1; RouteConfiguration r=a");
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, EDS, "-a b=1");
    bench.names(1, RDS, "r=a");
    assert_eq!(bench.follow(client), "ClusterLoadAssignment b=1", "the first server supplied a");
    assert_eq!(bench.serving(client), 1);

    bench.names(0, EDS, "-a");
    assert_eq!(bench.poll(client), "");
    bench.names(1, RDS, "r=b");
    assert_eq!(bench.drain(client), "RouteConfiguration r=b; ClusterLoadAssignment -a");
}

#[test]
fn rly_51_a_complete_set_keeps_what_a_higher_server_no_longer_supplies_until_the_routes_have_moved() {
    let mut bench = servers(2);
    let client = bench.sotw();
    bench.ask(client, CDS, "a");
    bench.ask(client, RDS, "r");
    bench.hear(0);
    bench.names(0, CDS, "a=1");
    bench.names(0, RDS, "r=a");
    assert_eq!(bench.follow(client), "Cluster a=1; RouteConfiguration r=a");
    bench.lose(0);
    bench.ask(client, CDS, "a b");
    bench.follow(client);
    bench.hear(1);
    bench.names(1, CDS, "-a b=1");
    bench.names(1, RDS, "r=a");
    assert_eq!(bench.follow(client), "Cluster a=1 b=1", "the first server supplied a");
    assert_eq!(bench.serving(client), 1);
    // The client has newer content than the first server had at the move.
    bench.names(0, CDS, "a=2");
    assert_eq!(bench.drain(client), "Cluster a=2 b=1");
    bench.names(0, CDS, "-a");
    assert_eq!(bench.poll(client), "");
    bench.names(1, RDS, "r=b");
    assert_eq!(bench.drain(client), "RouteConfiguration r=b", "the client may drop the name itself");
    bench.ask(client, CDS, "b");
    assert_eq!(bench.drain(client), "");
}

#[test]
fn rly_42_a_server_whose_errors_count_deletes() {
    let mut bench = servers(2);
    bench.deleting = 0b10;
    let client = bench.delta();
    bench.change(client, CDS, "+a +b");
    bench.hear(0);
    bench.names(0, CDS, "a=1");
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, CDS, "-a b=2");
    assert_eq!(bench.follow(client), "Cluster b=2 -a");
}

#[test]
fn rly_42_a_wildcard_is_taken_as_a_whole_and_removals_come_last() {
    for delta in [false, true] {
        let mut bench = servers(2);
        let client = if delta { bench.delta() } else { bench.sotw() };
        for (message, list) in [(CDS, ""), (LDS, "")] {
            match delta {
                true => bench.change(client, message, list),
                false => bench.ask(client, message, list),
            };
        }
        match delta {
            true => bench.change(client, RDS, "+r +s"),
            false => bench.ask(client, RDS, "r s"),
        };
        bench.hear(0);
        bench.all(0, CDS, "a=1 b=1");
        bench.all(0, LDS, "l=1");
        bench.names(0, RDS, "r=b");
        bench.follow(client);
        bench.lose(0);
        assert_eq!(bench.follow(client), "", "RLY-41: nothing before the second server has it all");
        bench.hear(1);
        bench.all(1, CDS, "b=1 c=1");
        assert_eq!(bench.follow(client), "");
        bench.all(1, LDS, "l=1");
        bench.names(1, RDS, "r=c s=1");
        let transcript = bench.follow(client);
        let expected = match delta {
            true => "Cluster c=1; RouteConfiguration r=c s=1; Cluster -a",
            false => "Cluster a=1 b=1 c=1; RouteConfiguration r=c s=1; Cluster b=1 c=1",
        };
        assert_eq!(transcript, expected, "ORD-1, RLY-51: clusters, routes, removals");
        bench.check(client, CDS, "b=1 c=1");
    }
}

#[test]
fn rly_42_what_the_wildcard_of_the_second_server_has_it_does_not_lack_as_a_name() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, CDS, "+* +f");
    bench.hear_all(0, 2);
    bench.all(0, CDS, "f=1");
    bench.names(0, CDS, "f=1");
    assert_eq!(bench.follow(client), "Cluster f=1");
    bench.lose_all(0, 2);
    bench.change(client, EDS, "+z");
    bench.follow(client);
    bench.hear_all(1, 2);
    // The server does not answer for the name until the client takes the server as is (RLY-41).
    bench.all(1, CDS, "f=2");
    bench.advance(SECOND * 16);
    bench.names(1, EDS, "z=2");
    assert_eq!(bench.follow(client), "Cluster f=2; ClusterLoadAssignment z=2");
    bench.check(client, CDS, "f=2");
}

/// SUB-12: the next server has no answer for a name, but its wildcard has the name. The client is sent the
/// wildcard's resource, and nothing again when the answer for the name follows.
#[test]
fn sub_12_the_wildcard_of_the_next_server_supplies_names_that_it_is_silent_about() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, EDS, "+* +f");
    bench.hear_all(0, 2);
    bench.names(0, EDS, "f=1");
    bench.all(0, EDS, "f=1 g=1");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment f=1 g=1");
    bench.lose_all(0, 2);
    bench.change(client, EDS, "+h");
    bench.shift(client);
    bench.hear_of(1, 2, &[CDS]);
    bench.all(1, EDS, "f=2 g=1");
    bench.names(1, EDS, "-h");
    bench.advance(SECOND * 15);
    assert_eq!(bench.follow(client), "ClusterLoadAssignment f=2 -h");
    bench.names(1, EDS, "f=2");
    assert_eq!(bench.drain(client), "");
    bench.names(1, EDS, "f=3");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment f=3");
}

#[test]
fn ali_2_an_alias_that_leads_elsewhere_at_another_server_takes_the_former_resource_along() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, VHDS, "+x +y");
    bench.hear(0);
    bench.names(0, VHDS, "q|x=1");
    assert_eq!(bench.follow(client), "VirtualHost q=1");
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, VHDS, "s|x=1 -y");
    assert_eq!(bench.follow(client), "VirtualHost s=1 -q -y");
    assert_eq!(bench.serving(client), 1);
    // The first server's resource stands in for the alias once more (RLY-42).
    bench.names(1, VHDS, "-x");
    assert_eq!(bench.follow(client), "VirtualHost q=1 -s");
    // Back at the first server, where the alias has moved meanwhile.
    bench.hear(0);
    bench.names(0, VHDS, "t|x=1 -y");
    bench.advance(SECOND * 15);
    assert_eq!(bench.follow(client), "VirtualHost t=1 -q");
    assert_eq!(bench.serving(client), 0);
}

#[test]
fn rly_42_what_stands_in_for_an_alias_takes_no_other_alias_back() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, VHDS, "+x +y +z");
    bench.hear(0);
    bench.names(0, VHDS, "q|x|z=1");
    assert_eq!(bench.follow(client), "VirtualHost q=1");
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, VHDS, "p|x=1 -y -z");
    assert_eq!(bench.follow(client), "VirtualHost p=1 -q -y -z");
}

/// A slow client is sent its virtual hosts long after the session has moved.
#[test]
fn ali_2_a_former_server_is_remembered_until_the_client_is_told_of_its_alias() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, VHDS, "+x");
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, VHDS, "s|x=1");
    assert_eq!(bench.follow(client), "VirtualHost s=1");
    assert_eq!(bench.serving(client), 1);
    bench.hear(0);
    bench.names(0, VHDS, "t|x=1");
    bench.advance(SECOND * 15);
    bench.shift(client);
    assert_eq!(bench.serving(client), 0);
    bench.names(0, VHDS, "-x");
    bench.advance(SECOND * 31);
    assert_eq!(bench.follow(client), "VirtualHost -s -t -x");
    bench.advance(SECOND * 31);
    assert_eq!(bench.follow(client), "", "the former server is forgotten");
    bench.names(0, VHDS, "t|x=2");
    assert_eq!(bench.follow(client), "VirtualHost t=2");
}

#[test]
fn rly_42_an_alias_brings_no_older_content_of_a_resource_that_the_serving_server_has() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, VHDS, "+p +x +y");
    bench.hear(0);
    bench.names(0, VHDS, "p|x|y=1");
    assert_eq!(bench.follow(client), "VirtualHost p=1");
    bench.lose(0);
    bench.change(client, VHDS, "+z");
    bench.follow(client);
    bench.hear(1);
    bench.names(1, VHDS, "p|x=2 -y -z");
    assert_eq!(bench.follow(client), "VirtualHost p=2 -y -z");
    bench.change(client, VHDS, "-p");
    assert_eq!(bench.follow(client), "");
    bench.names(1, VHDS, "p|x=3");
    assert_eq!(bench.follow(client), "VirtualHost p=3");
}

/// A client of the second server asks for a resource that it has by an alias. Older content of the first server would take the
/// alias from the client, and nothing would bring it back.
#[test]
fn rly_42_nothing_stands_in_for_a_resource_that_the_serving_server_has_by_an_alias() {
    let mut bench = servers(2);
    let other = bench.delta();
    bench.change(other, VHDS, "+s");
    bench.hear(0);
    bench.names(0, VHDS, "s=1");
    assert_eq!(bench.follow(other), "VirtualHost s=1");
    bench.lose(0);
    let client = bench.delta();
    bench.change(client, VHDS, "+z");
    bench.follow(client);
    bench.hear(1);
    bench.names(1, VHDS, "s|z=2");
    assert_eq!(bench.follow(client), "VirtualHost s=2");
    bench.change(client, VHDS, "+s");
    assert_eq!(bench.follow(client), "VirtualHost s=2");
    bench.names(1, VHDS, "s|z=2");
    assert_eq!(bench.follow(client), "");
}

/// A client presents a resource, and is sent another content of it under an alias.
#[test]
fn ali_1_what_an_alias_brings_is_content_of_the_own_name_too() {
    let mut bench = servers(2);
    let other = bench.delta();
    bench.change(other, VHDS, "+y");
    bench.hear(0);
    bench.names(0, VHDS, "p|y=1");
    bench.follow(other);
    bench.lose(0);
    let client = bench.delta();
    let held = [("p", version_of(VHDS, "p=2"))];
    bench.change_with(client, VHDS, "+p +y", "", &held, None);
    assert_eq!(bench.follow(client), "VirtualHost p=1");
    bench.hear(1);
    bench.names(1, VHDS, "p=2 r|y=1");
    assert_eq!(bench.follow(client), "VirtualHost p=2 r=1");
}

/// Back at the first server, whose content is old, an alias brings what the client knew to be gone.
#[test]
fn ali_1_what_an_alias_brings_is_taken_back_when_the_name_is_said_to_be_gone() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, VHDS, "+x");
    bench.hear(0);
    bench.names(0, VHDS, "p|x=1");
    assert_eq!(bench.follow(client), "VirtualHost p=1");
    bench.lose(0);
    bench.change(client, VHDS, "+p");
    bench.follow(client);
    bench.hear(1);
    bench.names(1, VHDS, "r|x=2 -p");
    assert_eq!(bench.follow(client), "VirtualHost r=2 -p");
    bench.hear(0);
    bench.advance(SECOND * 15);
    assert_eq!(bench.follow(client), "VirtualHost p=1 -r");
    assert_eq!(bench.serving(client), 0);
    bench.names(0, VHDS, "r|x=2");
    assert_eq!(bench.follow(client), "VirtualHost r=2", "nothing is known of p");
    bench.names(0, VHDS, "-p");
    assert_eq!(bench.follow(client), "VirtualHost -p");
}

/// The first server never knew the alias, and the second has forgotten it when the session comes back.
#[test]
fn ali_2_a_former_server_is_remembered_over_several_moves() {
    let mut bench = servers(2);
    let client = bench.delta();
    bench.change(client, VHDS, "+z");
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, VHDS, "r|z=1");
    assert_eq!(bench.follow(client), "VirtualHost r=1");
    bench.hear(0);
    bench.advance(SECOND * 15);
    assert_eq!(bench.follow(client), "");
    assert_eq!(bench.serving(client), 0);
    bench.advance(SECOND * 40);
    bench.follow(client);
    bench.lose(0);
    bench.follow(client);
    bench.hear(1);
    bench.names(1, VHDS, "-z");
    assert_eq!(bench.follow(client), "VirtualHost -r -z");
    assert_eq!(bench.serving(client), 1);
}
