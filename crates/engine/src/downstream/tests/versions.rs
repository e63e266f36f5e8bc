//! Versions, nonces and shared answers: RLY.

use super::bench::{Bench, CDS, EDS, RDS, streams, version_of};
use crate::cache::SessionId;
use crate::collection::CollectionKind;
use crate::downstream::SourceId;
use crate::source::{Attachment, Files};

#[test]
fn rly_30_and_31_versions_are_of_the_content_alone() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=1"), (EDS, "a=1 b=1")]);
    let mut replica = Bench::files(&[]);
    replica.state(0, &[(CDS, "a=0 c=9")]);
    let other = replica.sotw();
    replica.ask(other, CDS, "");
    replica.drain(other);
    replica.state(0, &[(CDS, "b=1 a=1")]);
    replica.drain(other);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.drain(client);
    assert_eq!(bench.held(client, CDS).version, replica.held(other, CDS).version);
    assert_eq!(bench.held(client, CDS).version, version_of(CDS, "a=1 b=1").to_string());
    // RLY-35: for other types, the version belongs to the sent resources.
    bench.ask(client, EDS, "a b");
    bench.drain(client);
    bench.state(0, &[(CDS, "a=1 b=1"), (EDS, "a=1 b=2")]);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment b=2");
    assert_eq!(bench.held(client, EDS).version, version_of(EDS, "b=2").to_string());
}

#[test]
fn rly_33_nonces_count_per_stream() {
    let mut bench = Bench::files(&[(CDS, "a=1"), (EDS, "a=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.ask(client, EDS, "a");
    bench.drain(client);
    assert_eq!(bench.held(client, CDS).nonce, "0000ab00-1");
    assert_eq!(bench.held(client, EDS).nonce, "0000ab00-2");
}

#[test]
fn rly_34_an_upstream_removal_is_silence_for_names_in_sotw() {
    let mut bench = Bench::cold();
    let (old, delta) = (bench.sotw(), bench.delta());
    bench.ask(old, EDS, "a");
    bench.change(delta, EDS, "+a");
    bench.says(EDS, "a=1");
    bench.drain(old);
    bench.drain(delta);
    bench.says(EDS, "-a");
    assert_eq!(bench.drain(old), "");
    assert_eq!(bench.drain(delta), "ClusterLoadAssignment -a");
    let new = bench.sotw();
    bench.ask(new, EDS, "a");
    assert_eq!(bench.drain(new), "", "and it is offered to nobody new");
    bench.says(EDS, "a=2");
    for client in [old, new, delta] {
        assert_eq!(bench.drain(client), "ClusterLoadAssignment a=2");
    }
}

#[test]
fn rly_36_equal_content_is_never_an_update() {
    let mut bench = Bench::files(&[(CDS, "a=1"), (EDS, "a=1"), (RDS, "r=1")]);
    let (sotw, delta) = (bench.sotw(), bench.delta());
    for (message, name) in [(CDS, ""), (EDS, "a"), (RDS, "r")] {
        bench.ask(sotw, message, name);
        let list = if name.is_empty() { String::new() } else { format!("+{name}") };
        bench.change(delta, message, &list);
    }
    bench.drain(sotw);
    bench.drain(delta);
    for _ in 0..3 {
        bench.state(0, &[(CDS, "a=1"), (EDS, "a=1"), (RDS, "r=1")]);
        assert_eq!(bench.drain(sotw) + &bench.drain(delta), "");
    }
    // A change that is undone between two polls is no change.
    bench.state(0, &[(CDS, "a=2 b=1"), (EDS, "a=2"), (RDS, "r=2")]);
    bench.state(0, &[(CDS, "a=1"), (EDS, "a=1"), (RDS, "r=1")]);
    assert_eq!(bench.drain(sotw) + &bench.drain(delta), "");
}

#[test]
fn i12_a_removal_taken_back_between_two_polls_is_nothing() {
    let mut bench = Bench::files(&[(CDS, "a=1"), (EDS, "a=1")]);
    let client = bench.delta();
    bench.change(client, CDS, "");
    bench.change(client, EDS, "+a");
    bench.drain(client);
    bench.state(0, &[]);
    bench.state(0, &[(CDS, "a=1"), (EDS, "a=1")]);
    assert_eq!(bench.drain(client), "");
}

#[test]
fn rly_58_a_second_subscriber_is_answered_from_the_cache_and_shares_the_answer() {
    let mut bench = Bench::cold();
    let clients: Vec<_> = (0..20).map(|n| if n % 2 == 0 { bench.sotw() } else { bench.delta() }).collect();
    for client in &clients {
        if client % 2 == 0 {
            bench.ask(*client, EDS, "a b")
        } else {
            bench.change(*client, EDS, "+b +a")
        };
        if *client == 0 {
            // N2: the other clients subscribe while the answer is on its way, and get the answer once.
            assert_eq!(bench.drain(*client), "");
        }
    }
    bench.says(EDS, "a=1 b=1");
    bench.composed.clear();
    for client in &clients {
        assert_eq!(bench.drain(*client), "ClusterLoadAssignment a=1 b=1");
        assert_eq!(bench.drain(*client), "");
    }
    assert!(bench.composed.len() <= 3, "one place and two variants: {}", bench.composed.len());
    bench.says(EDS, "a=2");
    bench.composed.clear();
    for client in &clients {
        assert_eq!(bench.drain(*client), "ClusterLoadAssignment a=2");
    }
    assert_eq!(bench.composed.len(), 2);
}

#[test]
fn forced_alike_is_answered_alike() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    let clients: Vec<_> = (0..5).map(|_| bench.delta()).collect();
    for client in &clients {
        bench.change(*client, EDS, "+a +b");
        bench.drain(*client);
    }
    bench.composed.clear();
    for client in &clients {
        bench.change(*client, EDS, "+a");
        assert_eq!(bench.drain(*client), "ClusterLoadAssignment a=1");
    }
    assert_eq!(bench.composed.len(), 1);
}

#[test]
fn v13_an_entry_that_changes_while_it_is_told_is_told_anew_once() {
    let mut bench = Bench::files(&[(CDS, "a=1 b=1")]);
    let (one, other) = (bench.delta(), bench.delta());
    bench.change(one, CDS, "+* +a");
    bench.change(other, CDS, "+* +a");
    assert_eq!(bench.drain(one), "Cluster a=1 b=1", "by name and by wildcard, but once");
    bench.drain(other);
    bench.state(0, &[(CDS, "a=2 b=1")]);
    assert_eq!(bench.poll(one), "Cluster a=2");
    bench.state(0, &[(CDS, "a=3 b=1")]);
    assert_eq!(bench.drain(other), "Cluster a=3");
    bench.ack(one, CDS);
    assert_eq!(bench.drain(one), "Cluster a=3");
}

#[test]
fn a_source_that_takes_no_note_yet_is_waited_for() {
    let mut bench = Bench::files(&[(EDS, "a=1 b=1")]);
    bench.slow_watches = true;
    let (client, other) = (bench.sotw(), bench.sotw());
    bench.ask(client, EDS, "a");
    assert_eq!(bench.poll(client), "");
    bench.deliver(client, 1);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1");
    // The set of one session becomes another set while a second session is about to join it.
    bench.ask(other, EDS, "a");
    bench.ask(client, EDS, "a b");
    bench.deliver(client, 1);
    assert_eq!(bench.poll(other), "");
    bench.deliver(other, 1);
    assert_eq!(bench.drain(other), "ClusterLoadAssignment a=1");
    assert_eq!(bench.drain(client), "ClusterLoadAssignment b=1");
    assert!(bench.woken.contains(&SessionId(other as u64)));
}

#[test]
fn two_sources_one_of_which_is_silent() {
    let mut bench = Bench::new(vec![Attachment::Files(Files::default()), streams()]);
    bench.state(0, &[(EDS, "a=1"), (CDS, "a=1")]);
    let client = bench.delta();
    bench.change(client, EDS, "+a +xdstp:b");
    bench.change(client, CDS, "+* +xdstp:b");
    assert_eq!(bench.drain(client), "Cluster a=1; ClusterLoadAssignment a=1");
    bench.changes(1, EDS, CollectionKind::Names, "xdstp:b=1", false);
    assert_eq!(bench.drain(client), "ClusterLoadAssignment xdstp:b=1");
    let parts = &bench.clients[client].session.subscriptions()[0].parts;
    assert_eq!(parts.iter().map(|part| part.source()).collect::<Vec<_>>(), [SourceId(0), SourceId(1)]);
}
