//! Verdicts on one response among others (TRU-1, TRU-3).

use super::bench::{Bench, CDS};
use super::standing::{push, standing, state, suspects};
use crate::xds::{Code, Status};

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

/// The client has nothing any more by its record, and asks for other names than before. That does not make it a new client.
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
