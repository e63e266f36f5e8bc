//! Equal sets of names are one allocation for all sessions (ADR 22).

use std::sync::Arc;

use super::bench::{Bench, ClientId, EDS, url};
use crate::collection::NameSet;
use crate::view::View;

const NAMES: usize = 60;

fn list(sign: &str, range: std::ops::Range<usize>) -> String {
    range.map(|number| format!("{sign}{number:03}")).collect::<Vec<_>>().join(" ")
}

fn bench() -> Bench {
    let state: Vec<_> = (0..NAMES).map(|number| format!("{number:03}=1")).collect();
    Bench::files(&[(EDS, &state.join(" "))])
}

fn take_all(bench: &mut Bench, client: ClientId) {
    bench.drain(client);
    bench.ack(client, EDS);
    bench.drain(client);
}

/// The session's set, and the client's content.
fn own(bench: &Bench, client: ClientId) -> (&Arc<NameSet>, &Arc<View>) {
    let part = &bench.clients[client].session.subscriptions()[0].parts[0];
    (part.names().unwrap(), &part.held)
}

fn assert_shared(bench: &Bench, client: ClientId) {
    let (names, held) = own(bench, client);
    let part = &bench.clients[client].session.subscriptions()[0].parts[0];
    let set = bench.snapshots[0].of(&url(EDS)).unwrap().watched(&part.collection).unwrap();
    assert!(Arc::ptr_eq(names, &set.names), "client {client} has a set of its own");
    assert!(Arc::ptr_eq(held, &set.view), "client {client} has a view of its own");
}

#[test]
fn equal_sets_are_one_allocation_however_the_clients_came_to_them() {
    let mut bench = bench();
    let (at_once, by_steps) = (bench.delta(), bench.delta());
    let (sotw, growing) = (bench.sotw(), bench.sotw());
    bench.change(at_once, EDS, &list("+", 0..NAMES));
    bench.ask(sotw, EDS, &list("", 0..NAMES));
    for end in (10..=NAMES).step_by(10) {
        bench.change(by_steps, EDS, &list("+", end - 10..end));
        take_all(&mut bench, by_steps);
        assert_shared(&bench, by_steps);
        bench.ask(growing, EDS, &list("", 0..end));
        take_all(&mut bench, growing);
        assert_shared(&bench, growing);
    }
    for client in [at_once, sotw] {
        take_all(&mut bench, client);
    }
    for client in [at_once, by_steps, sotw, growing] {
        assert_shared(&bench, client);
        assert!(Arc::ptr_eq(own(&bench, client).0, own(&bench, at_once).0));
    }
    bench.change(at_once, EDS, "-000");
    bench.change(by_steps, EDS, "-000");
    bench.ask(growing, EDS, &list("", 1..NAMES));
    for client in [at_once, by_steps, growing] {
        take_all(&mut bench, client);
        assert_shared(&bench, client);
    }
}

#[test]
fn different_sets_share_the_texts_of_their_names() {
    let mut bench = bench();
    let clients = [bench.delta(), bench.delta(), bench.sotw(), bench.sotw()];
    bench.change(clients[0], EDS, &list("+", 0..40));
    bench.change(clients[1], EDS, &list("+", 10..30));
    bench.change(clients[1], EDS, &list("+", 30..50));
    bench.ask(clients[2], EDS, &list("", 20..50));
    take_all(&mut bench, clients[2]);
    bench.ask(clients[2], EDS, &list("", 15..NAMES));
    bench.ask(clients[3], EDS, &list("", 5..25));
    for client in clients {
        take_all(&mut bench, client);
        assert_shared(&bench, client);
    }
    let mut texts = std::collections::BTreeMap::new();
    for client in clients {
        for name in own(&bench, client).0.iter() {
            let first = texts.entry(name.clone()).or_insert_with(|| name.clone());
            assert!(first.is_same_text(name), "{name} has two texts");
        }
    }
    assert_eq!(texts.len(), NAMES);
}

#[test]
fn a_list_that_changes_keeps_the_texts_of_the_names_that_stay() {
    let mut bench = bench();
    let client = bench.sotw();
    bench.ask(client, EDS, &list("", 0..50));
    take_all(&mut bench, client);
    let before = own(&bench, client).0.clone();
    bench.ask(client, EDS, &list("", 1..51));
    take_all(&mut bench, client);
    let texts = |names: &NameSet| names.iter().cloned().collect::<Vec<_>>();
    let (before, after) = (texts(&before), texts(own(&bench, client).0));
    assert!(before[1..].iter().zip(&after).all(|(old, new)| old.is_same_text(new)));
}
