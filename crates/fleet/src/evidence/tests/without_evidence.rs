//! The resources of a push that no admitted client was sent (WAV-14).

use super::standing::push;
use crate::evidence::{PushSet, WithoutEvidence};
use sluice_engine::downstream::tests::bench::{Bench, CDS, ClientId, RDS};

/// The resources that none of these clients was sent.
fn left(bench: &Bench, clients: &[ClientId], push: &PushSet) -> String {
    let mut without = WithoutEvidence::of(push);
    for client in clients {
        without.take_sent(&bench.clients[*client].session, push);
    }
    assert_eq!(without.is_empty(), without.lists().is_empty());
    let lists = without.lists().into_iter().map(|(type_url, of)| {
        let names: Vec<_> = of.names.iter().map(|name| name.as_str()).collect();
        assert_eq!(of.count, names.len());
        format!("{}: {}", type_url.short(), names.join(" "))
    });
    lists.collect::<Vec<_>>().join(", ")
}

#[test]
fn wav_14_resources_that_no_admitted_client_was_sent_are_listed() {
    let mut bench = Bench::cold();
    let [one, other] = [bench.delta(), bench.sotw()];
    bench.change(one, CDS, "+x +gone");
    bench.ask(one, RDS, "r");
    bench.ask(other, CDS, "y new");
    bench.says(CDS, "x=1 y=1 gone=1 -new");
    bench.says(RDS, "r=1");
    bench.drain(one);
    bench.drain(other);
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "x=2 y=2 new=1 -gone");
    bench.says(RDS, "r=2");
    let push = push(&bench, &before);
    let all = "Cluster: new x y, RouteConfiguration: r";
    assert_eq!(left(&bench, &[], &push), all, "no removal is listed");
    assert_eq!(left(&bench, &[one, other], &push), all, "nothing was sent yet");
    bench.poll(one);
    assert_eq!(
        left(&bench, &[one], &push),
        "Cluster: new y, RouteConfiguration: r",
        "not answered, but sent"
    );
    bench.nack(one, CDS);
    assert_eq!(left(&bench, &[one], &push), "Cluster: new y, RouteConfiguration: r", "rejected, but sent");
    bench.drain(other);
    assert_eq!(left(&bench, &[one, other], &push), "RouteConfiguration: r");
    assert_eq!(left(&bench, &[other], &push), "Cluster: x, RouteConfiguration: r");
}

#[test]
fn wav_14_a_later_content_of_a_name_is_no_evidence_for_the_push() {
    let mut bench = Bench::files(&[(CDS, "x=1 y=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(CDS, "x=2 y=2")]);
    let push = push(&bench, &before);
    bench.state(0, &[(CDS, "x=2 y=3")]);
    bench.drain(client);
    assert_eq!(left(&bench, &[client], &push), "Cluster: y");
}

/// Each message of an unfinished answer counts.
#[test]
fn wav_14_an_unfinished_answer_is_evidence_for_the_resources_that_it_brought() {
    let mut bench = Bench::files(&[(RDS, "r=1~1600000 s=1~1600000")]);
    let client = bench.delta();
    bench.change(client, RDS, "+r +s");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(RDS, "r=2~1600000 s=2~1600000")]);
    let push = push(&bench, &before);
    assert_eq!(bench.poll(client), "RouteConfiguration r=2");
    assert_eq!(left(&bench, &[client], &push), "RouteConfiguration: s");
    bench.drain(client);
    assert_eq!(left(&bench, &[client], &push), "");
}
