//! Answers that take several messages: resources that may exclude each other (DEL-26), and what clients share meanwhile.

use std::sync::Arc;

use super::bench::{Bench, CDS, ClientId, LDS, RDS, SDS, SRDS, VHDS, name_of, url};
use crate::view::View;
use sluice_xds::{Code, Status};

/// A client of the wildcard that has `state`, after which `next` is in force.
fn update(message: &str, state: &str, next: &str) -> (Bench, ClientId) {
    let mut bench = Bench::files(&[(message, state)]);
    let client = bench.delta();
    bench.change(client, message, "+*");
    bench.drain(client);
    bench.state(0, &[(message, next)]);
    (bench, client)
}

#[test]
fn del_26_removals_make_room_before_the_additions_of_their_update() {
    for message in [LDS, SRDS, VHDS, RDS, SDS] {
        let next = "aa-new=1~2000000 b=2~2000000";
        let (mut bench, client) = update(message, "b=1 zz-old=1", next);
        let short = url(message).short().to_owned();
        let first = [LDS, SRDS, VHDS].contains(&message);
        let (before, after) = if first { (" -zz-old", "") } else { ("", " -zz-old") };
        assert_eq!(bench.poll(client), format!("{short} aa-new=1{}", before));
        assert_eq!(bench.poll(client), format!("{short} b=2{after}"));
        assert_eq!(bench.drain(client), "");
        bench.check(client, message, "aa-new=1 b=2");
    }
}

/// The client rejects the first message: the listener `b` has the address of `a` until the second message.
fn reject_first(bench: &mut Bench, client: ClientId) {
    assert_eq!(bench.poll(client), "Listener a=2");
    let first = bench.held(client, LDS).nonce.clone();
    bench.change_with(client, LDS, "", &first, &[], Some(Status::new(Code::Internal, "duplicate address")));
}

#[test]
fn del_26_a_rejected_message_that_a_later_one_may_have_cured_is_sent_once_more() {
    let (mut bench, client) = update(LDS, "a=1 b=1", "a=2~2000000 b=2~2000000");
    reject_first(&mut bench, client);
    assert_eq!(bench.poll(client), "Listener b=2", "the rest goes on");
    assert_eq!(bench.poll(client), "");
    bench.ack(client, LDS);
    assert_eq!(bench.poll(client), "Listener a=2");
    bench.nack(client, LDS);
    assert_eq!(bench.drain(client), "", "DEL-27: once");
    bench.state(0, &[(LDS, "a=3 b=2~2000000")]);
    assert_eq!(bench.drain(client), "Listener a=3");
}

#[test]
fn del_26_the_rest_may_be_answered_first_or_with_the_last_message_alone() {
    let (mut bench, client) = update(LDS, "a=1 b=1 c=1", "a=2~2000000 b=2~2000000 c=2~2000000");
    let mut nonces = Vec::new();
    for _ in 0..3 {
        bench.poll(client);
        nonces.push(bench.held(client, LDS).nonce.clone());
    }
    let error = || Some(Status::new(Code::Internal, "duplicate address"));
    bench.change_with(client, LDS, "", &nonces[1], &[], error());
    assert_eq!(bench.poll(client), "");
    bench.change_with(client, LDS, "", &nonces[2], &[], None);
    assert_eq!(bench.poll(client), "Listener b=2");
    bench.ack(client, LDS);
    assert_eq!(bench.drain(client), "");
}

#[test]
fn del_27_nothing_is_sent_again_where_nothing_can_have_cured_it() {
    // The last message, and a type whose resources exclude nothing.
    let (mut bench, client) = update(LDS, "a=1 b=1", "a=2~2000000 b=2~2000000");
    bench.poll(client);
    bench.ack(client, LDS);
    bench.poll(client);
    bench.nack(client, LDS);
    assert_eq!(bench.drain(client), "");
    let (mut bench, client) = update(CDS, "a=1 b=1", "a=2~2000000 b=2~2000000");
    bench.poll(client);
    bench.nack(client, CDS);
    bench.poll(client);
    bench.ack(client, CDS);
    assert_eq!(bench.drain(client), "");
}

/// ADR 73: the last message belongs to the older answer, and newer content waits for the ACK of the message.
#[test]
fn an_ack_of_the_last_message_of_an_older_answer_is_no_rest() {
    let (mut bench, client) = update(CDS, "a=1", "a=2~2000000 b=2~2000000");
    let polled = |bench: &mut Bench, expected: &str| {
        assert_eq!(bench.poll(client), expected);
        bench.held(client, CDS).nonce.clone()
    };
    let first = polled(&mut bench, "Cluster a=2");
    bench.state(0, &[(CDS, "a=3 b=3")]);
    let second = polled(&mut bench, "Cluster b=2");
    assert_eq!(bench.poll(client), "", "one update is unACKed");
    let rests = |bench: &mut Bench, nonce: &str| bench.change_with(client, CDS, "", nonce, &[], None).rests;
    rests(&mut bench, &first);
    assert!(!rests(&mut bench, &second));
    let third = polled(&mut bench, "Cluster a=3 b=3");
    assert!(rests(&mut bench, &third));
}

/// ADR 86: nothing is due behind the last message of the last type, if it brought the newest content.
#[test]
fn a_whole_answer_leaves_nothing_due() {
    let (mut bench, client) = update(CDS, "a=1", "a=2~2000000 b=2~2000000");
    let is_sated = |bench: &Bench, index| bench.clients[client].session.is_sated(index);
    assert_eq!(bench.poll(client), "Cluster a=2");
    assert!(!is_sated(&bench, 0), "the rest of the answer is due");
    bench.state(0, &[(CDS, "a=3 b=3")]);
    assert_eq!(bench.poll(client), "Cluster b=2");
    assert!(!is_sated(&bench, 0), "newer content is due with the ACK");
    bench.ack(client, CDS);
    assert_eq!(bench.poll(client), "Cluster a=3 b=3");
    assert!(is_sated(&bench, 0));
    bench.ack(client, CDS);
    bench.change(client, LDS, "+l");
    bench.state(0, &[(CDS, "a=4 b=3"), (LDS, "l=1")]);
    assert_eq!(bench.poll(client), "Cluster a=4");
    assert!(!is_sated(&bench, 0), "the listener is due");
}

#[test]
fn del_27_errors_behind_a_rejected_message_cure_nothing() {
    let denied = "Listener !a:PERMISSION_DENIED";
    // In the same answer.
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, LDS, "+a +b");
    bench.says(LDS, "a=1 b=1");
    bench.drain(client);
    bench.says(LDS, "a=2");
    bench.fails(LDS, "a", Code::PermissionDenied);
    reject_first(&mut bench, client);
    assert_eq!(bench.poll(client), denied);
    bench.ack(client, LDS);
    assert_eq!(bench.drain(client), "");
    // In an answer of its own.
    bench.says(LDS, "a=3~2000000 b=3~2000000");
    assert_eq!(bench.poll(client), "Listener a=3");
    bench.ack(client, LDS);
    assert_eq!(bench.poll(client), "Listener b=3");
    let second = bench.held(client, LDS).nonce.clone();
    bench.change(client, LDS, "+x");
    bench.fails(LDS, "x", Code::PermissionDenied);
    assert_eq!(bench.poll(client), "Listener !x:PERMISSION_DENIED");
    bench.change_with(client, LDS, "", &second, &[], Some(Status::new(Code::Internal, "duplicate address")));
    bench.ack(client, LDS);
    assert_eq!(bench.drain(client), "");
}

/// What a client has with the messages so far.
fn so_far(bench: &Bench, client: ClientId) -> Arc<View> {
    let subscription = &bench.clients[client].session.subscriptions()[0];
    subscription.part_so_far(&subscription.parts[0]).held.clone()
}

/// ADR 62: a copy for each client would cost as much as all names.
#[test]
fn clients_share_the_content_between_the_messages_of_an_answer() {
    let mut bench = Bench::files(&[(CDS, "a=1~2000000 b=1~2000000 c=1~2000000")]);
    let clients = [bench.delta(), bench.delta()];
    for client in clients {
        bench.change(client, CDS, "+*");
    }
    for (message, held) in [("Cluster a=1", 1), ("Cluster b=1", 2)] {
        for client in clients {
            assert_eq!(bench.poll(client), message);
        }
        let [one, other] = clients.map(|client| so_far(&bench, client));
        assert!(Arc::ptr_eq(&one, &other), "a copy for each client after {message}");
        assert_eq!((one.len(), one.has(&name_of(CDS, "a"))), (held, true));
    }
    for client in clients {
        assert_eq!(bench.poll(client), "Cluster c=1");
        bench.ack(client, CDS);
        bench.check(client, CDS, "a=1 b=1 c=1");
    }
}

/// A client with other content in between has its own.
#[test]
fn a_client_that_is_due_a_name_again_shares_nothing() {
    let mut bench = Bench::files(&[(CDS, "a=1~2000000 b=1~2000000")]);
    let clients = [bench.delta(), bench.delta()];
    for client in clients {
        bench.change(client, CDS, "+* +a");
        bench.drain(client);
    }
    bench.change(clients[1], CDS, "+a");
    bench.state(0, &[(CDS, "a=2~2000000 b=2~2000000")]);
    for client in clients {
        assert_eq!(bench.poll(client), "Cluster a=2");
    }
    let [one, other] = clients.map(|client| so_far(&bench, client));
    assert!(!Arc::ptr_eq(&one, &other));
    for client in clients {
        assert_eq!(bench.drain(client), "Cluster b=2");
        bench.check(client, CDS, "a=2 b=2");
    }
}
