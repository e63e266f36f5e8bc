//! Verdicts on responses of a server that no longer serves the client: TRU-3, WAV-18.

use sluice_engine::downstream::tests::bench::fallback::servers;
use sluice_engine::downstream::tests::bench::{Bench, CDS, ClientId};
use sluice_xds::{Code, Status};

use super::standing::{push, standing, state, suspects};

/// A client of the first server, which knows `x` and `y`, and what the client asks for. Another client asks
/// for both.
fn client_of_the_first(list: &str) -> (Bench, ClientId) {
    let mut bench = servers(2);
    let (client, other) = (bench.delta(), bench.delta());
    bench.change(client, CDS, list);
    bench.change(other, CDS, "+x +y");
    bench.hear(0);
    bench.names(0, CDS, "x=1 y=1");
    bench.follow(client);
    (bench, client)
}

/// The first server is lost, and the client moves to the second.
fn move_to_the_second(bench: &mut Bench, client: ClientId) {
    bench.lose(0);
    bench.change(client, CDS, "+z");
    bench.shift(client);
    bench.hear(1);
    bench.names(1, CDS, "x=2 y=2 z=2");
    bench.shift(client);
    assert_eq!(bench.serving(client), 1);
}

#[test]
fn tru_3_a_rejection_after_a_move_counts_against_the_content_of_the_response() {
    let (mut bench, client) = client_of_the_first("+x");
    let before = bench.snapshots[0].clone();
    bench.names(0, CDS, "x=2");
    let push = push(&bench, &before);
    assert_eq!(bench.poll(client), "Cluster x=2");
    move_to_the_second(&mut bench, client);
    bench.nack(client, CDS);
    bench.hear(0);
    bench.names(0, CDS, "x=2 -z");
    bench.shift(client);
    assert_eq!((bench.serving(client), state(&bench, client, &push)), (0, "rejected"));
}

#[test]
fn tru_3_a_rejection_after_a_move_says_nothing_about_later_responses() {
    let (mut bench, client) = client_of_the_first("+x");
    let before = bench.snapshots[0].clone();
    bench.names(0, CDS, "x=2");
    let push_of_x = push(&bench, &before);
    let before = bench.snapshots[0].clone();
    bench.names(0, CDS, "y=2");
    let push_of_y = push(&bench, &before);
    assert_eq!(bench.poll(client), "Cluster x=2");
    let older = bench.held(client, CDS).nonce.clone();
    bench.change(client, CDS, "+y");
    assert_eq!(bench.poll(client), "Cluster y=2", "a new name beside the unanswered response");
    move_to_the_second(&mut bench, client);
    bench.change_with(client, CDS, "", &older, &[], Some(Status::new(Code::Internal, "no")));
    bench.hear(0);
    bench.names(0, CDS, "x=2 y=2 -z");
    bench.shift(client);
    assert_eq!(bench.serving(client), 0);
    let rejections = standing(&bench, client, &push_of_x).rejections;
    assert_eq!(rejections.iter().map(|of| suspects(&of.suspects)).collect::<Vec<_>>(), ["x"]);
    assert_eq!(state(&bench, client, &push_of_y), "pending", "the client has not answered it");
}
