//! Verdicts on one response among others (TRU-1, TRU-3).

use super::standing::{push, standing, state, suspects};
use sluice_engine::downstream::tests::bench::lanes::fleet;
use sluice_engine::downstream::tests::bench::{Bench, CDS, ClientId, EDS, LDS, RDS};
use sluice_xds::{Code, Status, Variant};

/// A client that comes to be served a push, which is no update, is told a new name before it has answered.
#[test]
fn tru_3_an_older_response_is_rejected_for_what_it_brought_itself() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+x");
    bench.says(CDS, "x=1 y=1");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "x=2");
    let of_x = push(&bench, &before);
    bench.poll(client);
    let older = bench.held(client, CDS).nonce.clone();
    bench.change(client, CDS, "+y");
    bench.says(CDS, "y=1");
    assert_eq!(bench.poll(client), "Cluster y=1");
    bench.change_with(client, CDS, "", &older, &[], Some(Status::new(Code::Internal, "bad")));
    let rejections = standing(&bench, client, &of_x).rejections;
    assert_eq!(suspects(&rejections[0].suspects), "x", "not what is unanswered");
}

/// A push of many resources takes several messages. The client answers the first after the last was sent.
#[test]
fn tru_3_the_first_of_several_messages_is_rejected_for_what_it_brought() {
    let mut bench = Bench::files(&[(CDS, "x=1 y=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(CDS, "x=2~2000000 y=2~2000000")]);
    let push = push(&bench, &before);
    assert_eq!(bench.poll(client), "Cluster x=2");
    let first = bench.held(client, CDS).nonce.clone();
    assert_eq!(bench.poll(client), "Cluster y=2");
    bench.change_with(client, CDS, "", &first, &[], Some(Status::new(Code::Internal, "bad")));
    let rejections = |bench: &Bench| {
        let rejections = standing(bench, client, &push).rejections;
        rejections.iter().map(|of| suspects(&of.suspects)).collect::<Vec<_>>()
    };
    assert_eq!(rejections(&bench), ["x"]);
    bench.ack(client, CDS);
    assert_eq!(rejections(&bench), ["x"], "the second message is accepted, and nothing else");
}

#[test]
fn tru_3_newer_content_than_the_rejected_one_has_an_answer_of_its_own() {
    let mut bench = Bench::cold();
    let (client, other) = (bench.delta(), bench.delta());
    bench.change(client, CDS, "+x");
    bench.change(other, CDS, "+y");
    bench.says(CDS, "x=1 y=1");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "y=2");
    let of_y = push(&bench, &before);
    bench.says(CDS, "x=2");
    assert_eq!(bench.poll(client), "Cluster x=2");
    let older = bench.held(client, CDS).nonce.clone();
    bench.change(client, CDS, "+y");
    assert_eq!(bench.poll(client), "Cluster y=2");
    bench.change_with(client, CDS, "", &older, &[], Some(Status::new(Code::Internal, "bad")));
    assert_eq!(state(&bench, client, &of_y), "pending");
    bench.ack(client, CDS);
    assert_eq!(state(&bench, client, &of_y), "accepted");
}

/// What a client accepted between two rejections is not rejected with the second.
#[test]
fn tru_3_content_that_was_accepted_since_a_rejection_is_no_part_of_the_next() {
    let mut bench = Bench::files(&[(CDS, "x=1 y=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.poll(client);
    bench.nack(client, CDS);
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(CDS, "x=1 y=1 z=1")]);
    let of_z = push(&bench, &before);
    assert_eq!(bench.drain(client), "Cluster z=1");
    bench.state(0, &[(CDS, "x=1 y=2 z=1")]);
    bench.poll(client);
    bench.nack(client, CDS);
    assert_eq!(state(&bench, client, &of_z), "accepted", "the client rejected y");
}

/// A rejection says nothing about names that its response left as they were.
#[test]
fn tru_3_a_removal_is_not_accepted_before_its_answer_though_other_content_was_rejected() {
    let mut bench = Bench::files(&[(CDS, "x=1 y=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.drain(client);
    bench.state(0, &[(CDS, "x=2 y=1")]);
    bench.poll(client);
    bench.nack(client, CDS);
    bench.state(0, &[(CDS, "x=2 y=1 z=1")]);
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(CDS, "x=2 y=1")]);
    let of_z = push(&bench, &before);
    bench.advance(std::time::Duration::from_millis(25));
    assert_eq!(bench.poll(client), "Cluster -z");
    assert_eq!(state(&bench, client, &of_z), "pending");
    bench.ack(client, CDS);
    assert_eq!(state(&bench, client, &of_z), "accepted");
}

/// The client has nothing any more by its record, and asks for other names than before. That does not make it
/// a new client.
#[test]
fn tru_1_an_unanswered_removal_of_all_names_is_not_accepted_when_one_is_given_up() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+x +y");
    bench.says(CDS, "x=1 y=1");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "-x -y");
    let of_both = push(&bench, &before);
    bench.advance(std::time::Duration::from_millis(25));
    assert_eq!(bench.poll(client), "Cluster -x -y");
    assert_eq!(state(&bench, client, &of_both), "pending");
    bench.change(client, CDS, "-y");
    assert_eq!(state(&bench, client, &of_both), "pending", "of x");
}

/// What the client had before it gave a name up is nothing that it accepted once more.
#[test]
fn tru_1_a_name_that_was_given_up_and_comes_back_is_not_accepted_before_its_answer() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = if delta { bench.delta() } else { bench.sotw() };
        ask(&mut bench, client, CDS, "x y", "+x +y");
        bench.says(CDS, "x=1 y=1");
        bench.drain(client);
        let before = bench.snapshots[0].clone();
        bench.says(CDS, "x=2");
        let of_x = push(&bench, &before);
        bench.drain(client);
        bench.says(CDS, "y=2");
        bench.poll(client);
        assert_eq!(state(&bench, client, &of_x), "accepted");
        ask(&mut bench, client, CDS, "y", "-x");
        ask(&mut bench, client, CDS, "x y", "+x");
        assert!(bench.poll(client).starts_with("Cluster x=2"));
        assert_eq!(state(&bench, client, &of_x), "pending", "delta: {delta}");
        bench.ack(client, CDS);
        assert_eq!(state(&bench, client, &of_x), "accepted");
    }
}

/// As before, with two unanswered responses: the ACK of the older one says nothing of what was sent once
/// more.
#[test]
fn tru_1_a_name_that_comes_back_is_not_accepted_by_the_ack_of_an_older_response() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+x +y");
    bench.says(CDS, "x=1 y=1");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "x=2");
    let of_x = push(&bench, &before);
    assert_eq!(bench.poll(client), "Cluster x=2");
    let older = bench.held(client, CDS).nonce.clone();
    bench.change(client, CDS, "+z");
    bench.says(CDS, "z=1");
    assert_eq!(bench.poll(client), "Cluster z=1");
    bench.change(client, CDS, "-x");
    bench.change(client, CDS, "+x");
    assert_eq!(bench.poll(client), "Cluster x=2");
    bench.change_with(client, CDS, "", &older, &[], None);
    assert_eq!(state(&bench, client, &of_x), "pending");
    bench.ack(client, CDS);
    assert_eq!(state(&bench, client, &of_x), "accepted");
}

/// The relay has no record of what a client had by name when it comes to ask for the wildcard.
#[test]
fn tru_1_what_a_first_answer_leaves_out_is_not_accepted_before_its_answer() {
    let mut bench = Bench::files(&[(CDS, "x=1 y=1")]);
    let [client, other] = [bench.sotw(), bench.sotw()];
    bench.ask(client, CDS, "x");
    bench.ask(other, CDS, "*");
    for client in [client, other] {
        bench.drain(client);
    }
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(CDS, "y=1")]);
    let of_x = push(&bench, &before);
    bench.ask(client, CDS, "*");
    assert_eq!(bench.poll(client), "Cluster y=1");
    assert_eq!(state(&bench, client, &of_x), "pending");
    bench.ack(client, CDS);
    assert_eq!(state(&bench, client, &of_x), "accepted");
}

/// A removal is unanswered, and the client gives the name up for the wildcard or a glob. It has not answered
/// for the removal by that.
#[test]
fn tru_1_an_unanswered_removal_is_not_accepted_when_the_wildcard_is_asked_for_instead_of_the_name() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1")]);
        let [client, other] =
            if delta { [bench.delta(), bench.delta()] } else { [bench.sotw(), bench.sotw()] };
        ask(&mut bench, client, CDS, "x y", "+x +y");
        ask(&mut bench, other, CDS, "*", "+*");
        for client in [client, other] {
            bench.drain(client);
        }
        let before = bench.snapshots[0].clone();
        bench.state(0, &[(CDS, "y=2")]);
        let of_x = push(&bench, &before);
        bench.advance(std::time::Duration::from_millis(25));
        bench.poll(client);
        assert_eq!(state(&bench, client, &of_x), "pending", "delta: {delta}");
        ask(&mut bench, client, CDS, "*", "+* -x -y");
        assert_eq!(state(&bench, client, &of_x), "pending", "delta: {delta}");
        bench.poll(client);
        assert_eq!(state(&bench, client, &of_x), "pending", "delta: {delta}");
        bench.ack(client, CDS);
        assert_eq!(state(&bench, client, &of_x), "accepted", "delta: {delta}");
    }
}

/// A client gives a name up, rejects the response that brought the name, and asks for the name again. The
/// record of the content is gone: neither the later content of the name is condemned, nor the other name for
/// being the only one.
#[test]
fn qua_2_a_name_that_was_given_up_has_no_content_to_condemn() {
    let of_x = &["x"][..];
    for (delta, text, blamed) in [
        (false, "y: bad", &[][..]),
        (true, "y: bad", &[]),
        (false, "bad", &[]),
        (true, "bad", &[]),
        (false, "x and y are bad", of_x),
        (true, "x and y are bad", of_x),
    ] {
        let mut bench = Bench::files(&[(RDS, "x=1 y=1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        ask(&mut bench, client, RDS, "x y", "+x +y");
        bench.drain(client);
        let before = bench.snapshots[0].clone();
        let former = bench.held(client, RDS).nonce.clone();
        bench.state(0, &[(RDS, "x=2 y=2")]);
        let of_both = push(&bench, &before);
        assert_eq!(bench.poll(client), "RouteConfiguration x=2 y=2");
        let (nonce, error) = (bench.held(client, RDS).nonce.clone(), Status::new(Code::Internal, text));
        if delta {
            bench.change(client, RDS, "-y");
            bench.change_with(client, RDS, "", &nonce, &[], Some(error));
        } else {
            bench.ask_with(client, RDS, "x", &former, "", None);
            bench.ask_with(client, RDS, "x", &nonce, "", Some(error));
        }
        let condemned = |bench: &Bench| {
            let of = standing(bench, client, &of_both).rejections.swap_remove(0).suspects;
            let are_blamed = of.are_blamed();
            let with_content = of.list.into_iter().filter(|of| are_blamed && of.version.is_some());
            with_content.map(|of| of.name.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(condemned(&bench), blamed, "delta: {delta}, text: {text}");
        bench.state(0, &[(RDS, "x=1 y=1")]);
        ask(&mut bench, client, RDS, "x y", "+y");
        bench.poll(client);
        assert_eq!(condemned(&bench), blamed, "delta: {delta}, text: {text}, with other content of y");
    }
}

/// A client that had a name rejects the first set of the wildcard, which leaves the name out. The removal of
/// a name that it never had does not affect it.
#[test]
fn tru_3_a_rejected_first_set_removes_what_the_client_had_by_name() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1 z=1")]);
        let [client, other] =
            if delta { [bench.delta(), bench.delta()] } else { [bench.sotw(), bench.sotw()] };
        for (client, list, changes) in [(client, "x", "+x"), (other, "*", "+*")] {
            match delta {
                true => bench.change(client, CDS, changes),
                false => bench.ask(client, CDS, list),
            };
            bench.drain(client);
        }
        let before = bench.snapshots[0].clone();
        bench.state(0, &[(CDS, "y=1 z=1")]);
        let of_x = push(&bench, &before);
        let between = bench.snapshots[0].clone();
        bench.state(0, &[(CDS, "y=1")]);
        let of_z = push(&bench, &between);
        match delta {
            true => bench.change(client, CDS, "+* -x"),
            false => bench.ask(client, CDS, "*"),
        };
        assert_eq!(state(&bench, client, &of_x), "pending", "delta: {delta}");
        assert_eq!(state(&bench, client, &of_z), "unaffected", "delta: {delta}");
        bench.poll(client);
        assert_eq!(state(&bench, client, &of_x), "pending", "delta: {delta}");
        bench.nack(client, CDS);
        assert_eq!(state(&bench, client, &of_x), "rejected", "delta: {delta}");
    }
}

/// A client that comes to ask by name has what the wildcard brought, and has not answered for it by that.
#[test]
fn tru_1_an_unanswered_removal_from_the_wildcard_is_not_accepted_when_the_name_is_asked_for() {
    let mut bench = Bench::files(&[(CDS, "x=1 y=1")]);
    let [client, other] = [bench.sotw(), bench.sotw()];
    bench.ask(client, CDS, "*");
    bench.ask(other, CDS, "x");
    for client in [client, other] {
        bench.drain(client);
    }
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(CDS, "y=2")]);
    let of_x = push(&bench, &before);
    bench.advance(std::time::Duration::from_millis(25));
    assert_eq!(bench.poll(client), "Cluster y=2");
    assert_eq!(state(&bench, client, &of_x), "pending");
    // Without a nonce, so that the list answers nothing.
    bench.ask_with(client, CDS, "x y", "", "", None);
    assert_eq!(state(&bench, client, &of_x), "pending");
    bench.poll(client);
    assert_eq!(state(&bench, client, &of_x), "pending");
    bench.ack(client, CDS);
    assert_eq!(state(&bench, client, &of_x), "accepted");
}

/// A push goes back in several messages. After the first of these, the client has not all of the push any
/// more.
#[test]
fn tru_1_each_message_of_an_unfinished_answer_counts() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(RDS, "r=1~1600000 s=1~1600000")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        ask(&mut bench, client, RDS, "r s", "+r +s");
        bench.drain(client);
        let before = bench.snapshots[0].clone();
        bench.state(0, &[(RDS, "r=2~1600000 s=1~1600000")]);
        let push = push(&bench, &before);
        bench.drain(client);
        assert_eq!(state(&bench, client, &push), "accepted");
        bench.state(0, &[(RDS, "r=1~1600000 s=3~1600000")]);
        assert_eq!(bench.poll(client), "RouteConfiguration r=1");
        assert_eq!(state(&bench, client, &push), "overtaken", "the second message is still to come");
        assert_eq!(bench.drain(client), "RouteConfiguration s=3");
        assert_eq!(state(&bench, client, &push), "overtaken");
    }
}

/// Asks for this list, or by these changes if the client uses delta. The request answers nothing.
fn ask(bench: &mut Bench, client: ClientId, message: &str, list: &str, changes: &str) {
    match bench.clients[client].variant {
        Variant::Delta => drop(bench.change(client, message, changes)),
        Variant::Sotw => drop(bench.ask_with(client, message, list, "", "", None)),
    }
}

/// A client is restated a content before it has answered, and rejects what it was sent before: that content
/// is the suspect.
#[test]
fn qua_2_what_was_rejected_before_a_restatement_is_known() {
    let (mut bench, sotw, delta) = fleet();
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(CDS, "a=e2 b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=a.1")]);
    let push = push(&bench, &before);
    bench.cut(&[sotw, delta]);
    assert_eq!(bench.poll(delta), "Cluster a=e2 b=e1");
    let older = bench.held(delta, CDS).nonce.clone();
    bench.abort();
    bench.restate(delta);
    assert_eq!(bench.poll(delta), "Cluster a=e1");
    let bad = Status::new(Code::Internal, "a is bad");
    bench.change_with(delta, CDS, "", &older, &[], Some(bad));
    let rejections = standing(&bench, delta, &push).rejections;
    let versions: Vec<_> = rejections[0].suspects.list.iter().map(|of| of.version).collect();
    assert_eq!(versions, [Some(sluice_engine::downstream::tests::bench::version_of(CDS, "a=e2"))]);
}
