//! Answers that take several messages, of resources that may exclude each other (DEL-26).

use super::bench::{Bench, CDS, ClientId, LDS, RDS, SDS, SRDS, VHDS, url};

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
    bench.change_with(
        client,
        LDS,
        "",
        &first,
        &[],
        Some(crate::xds::Status::new(crate::xds::Code::Internal, "duplicate address")),
    );
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
    let error = || Some(crate::xds::Status::new(crate::xds::Code::Internal, "duplicate address"));
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
