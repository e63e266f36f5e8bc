//! Servers that do not let the relay ask, and orders of operators.

use super::bench::*;
use crate::proof::*;
use sluice_xds::Code;

const OLD: Members<'_> = &[("a", 1)];
const NEW: Members<'_> = &[("a", 2)];

/// A class of this many members beside the representative, each with a label of its own.
fn bench(members: u64) -> Bench {
    let mut bench = Bench::new(ProofSettings::default(), &[("team", "red")]);
    for id in 1..=members {
        bench.member(id, &format!("m{id}"), &[("team", &format!("t{id}"))]);
    }
    bench.publish(wildcard(&clusters(), OLD));
    bench
}

#[test]
fn prf_9_three_refused_members_make_the_proof_impossible_for_an_hour() {
    let mut bench = bench(5);
    for _ in 0..3 {
        let sample = bench.wait_for(ShadowKind::Sample);
        bench.end(sample, Code::PermissionDenied);
    }
    let impossible =
        |happening: &&Happening| matches!(happening, Happening::Impossible { class: Some(_), .. });
    assert_eq!(bench.happenings.iter().filter(impossible).count(), 1);
    assert_eq!(bench.report().state, ClassState::Impossible);
    let before = bench.opened.len();
    bench.pass(3_590_000);
    assert_eq!(bench.opened.len(), before);
    bench.pass(20_000);
    assert_eq!(bench.opened.len(), before + 1);
    let sample = bench.find(ShadowKind::Sample).unwrap();
    bench.end(sample, Code::PermissionDenied);
    assert_eq!(bench.happenings.iter().filter(impossible).count(), 1, "told once");
}

#[test]
fn prf_5_a_server_that_registers_clients_is_never_asked_and_told_once() {
    let mut bench = bench(3);
    bench.wait_for(ShadowKind::Sample);
    let order = ProveOrder { class: class(), all: true, replicas: false, streams: 1 };
    let prove = |bench: &mut Bench| bench.proof.prove(&order, bench.now).unwrap();
    let mut orders = vec![prove(&mut bench)];
    for _ in 0..2 {
        let around = Surroundings { clients: 3, registers_clients: true, ..Surroundings::default() };
        bench.proof.surroundings(around, bench.now);
        bench.pass(60_000);
        assert!(bench.shadows.is_empty());
    }
    orders.push(prove(&mut bench));
    for order in orders {
        let state = bench.proof.prove_state(order).unwrap();
        assert!(state.is_done && state.refused.unwrap().contains("registers clients"));
    }
    let opened = bench.opened.len();
    bench.pass(86_400_000);
    assert_eq!(bench.opened.len(), opened);
    let impossible = |happening: &&Happening| matches!(happening, Happening::Impossible { class: None, .. });
    assert_eq!(bench.happenings.iter().filter(impossible).count(), 1);
    let report = bench.report();
    assert_eq!(report.state, ClassState::Impossible);
    assert!(report.words.contains("registers clients"), "{}", report.words);
}

#[test]
fn prf_9_a_server_with_one_stream_for_each_id_never_sees_a_control() {
    for ends_first in [true, false] {
        let mut bench = bench(1);
        let sample = bench.wait_for(ShadowKind::Sample);
        bench.answer(sample, wildcard(&clusters(), NEW));
        bench.pass(5_100);
        bench.differs();
        let second = bench.wait_for(ShadowKind::Second);
        if ends_first {
            bench.answer(second, wildcard(&clusters(), NEW));
            bench.end(sample, Code::Aborted);
        } else {
            bench.end(second, Code::AlreadyExists);
        }
        bench.pass(60_000);
        assert!(bench.shadows.is_empty() && bench.opened.iter().all(|opened| opened.1.node.id != "rep"));
        assert!(
            bench
                .happenings
                .iter()
                .any(|happening| matches!(happening, Happening::Impossible { class: None, .. }))
        );
        assert_eq!(bench.report().state, ClassState::Impossible);
    }
}

#[test]
fn prf_5_a_member_that_matches_never_is_never_shown() {
    let mut bench = bench(1);
    bench.member_as(9, Member { is_never: true, ..member(&node("dataplane", &[("team", "x")])) });
    let order =
        bench.proof.prove(&ProveOrder { class: class(), all: true, replicas: false, streams: 4 }, bench.now);
    bench.pass(7_200_000);
    assert!(!bench.opened.is_empty() && bench.opened.iter().all(|opened| opened.1.node.id != "dataplane"));
    assert_eq!(bench.proof.prove_state(order.unwrap()).map(|state| state.asked), Some(1));
    assert_eq!(bench.report().not_sampled, 1);
}

#[test]
fn prf_5_a_member_that_turns_never_loses_its_shadow() {
    let mut bench = bench(1);
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.member_as(1, Member { is_never: true, ..member(&node("m1", &[("team", "t1")])) });
    assert_eq!(bench.closed, [sample]);
}

#[test]
fn prf_19_an_order_takes_all_members_at_once_and_tells_its_progress() {
    let mut bench = bench(30);
    let order = bench
        .proof
        .prove(&ProveOrder { class: class(), all: true, replicas: false, streams: 4 }, bench.now)
        .unwrap();
    let begun = bench.now;
    let mut most = 0;
    while bench.proof.prove_state(order).is_some_and(|state| !state.is_done) {
        bench.pass(50);
        most = most.max(bench.shadows.values().filter(|shadow| shadow.kind == ShadowKind::Sample).count());
        let open: Vec<ShadowId> = bench
            .shadows
            .iter()
            .filter(|open| open.1.kind == ShadowKind::Sample)
            .map(|open| *open.0)
            .collect();
        open.into_iter().for_each(|id| bench.answer(id, wildcard(&clusters(), OLD)));
        assert!(bench.now.since(begun).as_secs() < 60);
    }
    let state = bench.proof.prove_state(order).unwrap();
    assert_eq!((state.asked, state.equal, state.differs, state.no_word), (30, 30, 0, 0));
    assert!((4..=6).contains(&most), "{most}");
}

#[test]
fn prf_19_an_order_takes_the_results_of_witnesses() {
    let mut bench = bench(1);
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), NEW));
    bench.pass(5_100);
    bench.differs();
    for (kind, members) in [(ShadowKind::Second, NEW), (ShadowKind::Control, OLD)] {
        let id = bench.wait_for(kind);
        bench.answer(id, wildcard(&clusters(), members));
    }
    bench.pass(1_100);
    assert_eq!(bench.shadows[&sample].kind, ShadowKind::Witness);
    let order = bench
        .proof
        .prove(&ProveOrder { class: class(), all: true, replicas: false, streams: 1 }, bench.now)
        .unwrap();
    bench.pass(100);
    let state = bench.proof.prove_state(order).unwrap();
    assert_eq!((state.is_done, state.differs, state.no_word), (true, 1, 0));
}

#[test]
fn prf_19_an_order_for_an_unknown_class_is_refused() {
    let mut bench = bench(1);
    let order = bench
        .proof
        .prove(&ProveOrder { class: "beef".into(), all: true, replicas: false, streams: 1 }, bench.now)
        .unwrap();
    let state = bench.proof.prove_state(order).unwrap();
    assert!(state.is_done && state.refused.is_some());
}

#[test]
fn prf_19_an_order_beyond_those_under_way_takes_no_place_of_theirs() {
    let mut bench = bench(3);
    let wish = ProveOrder { class: class(), all: true, replicas: false, streams: 1 };
    let orders: Vec<OrderId> = (0..16).map(|_| bench.proof.prove(&wish, bench.now).unwrap()).collect();
    assert_eq!(bench.proof.prove(&wish, bench.now), None);
    assert!(orders.iter().all(|order| bench.proof.prove_state(*order).is_some_and(|state| !state.is_done)));
}

#[test]
fn prf_24_a_class_of_which_nobody_can_be_asked_is_refused_unless_it_has_one_client() {
    let mut bench = bench(0);
    let wish = ProveOrder { class: class(), all: true, replicas: false, streams: 1 };
    let refusal = |bench: &mut Bench| {
        let order = bench.proof.prove(&wish, bench.now).unwrap();
        let state = bench.proof.prove_state(order).unwrap();
        assert_eq!((state.is_done, state.asked), (true, 0));
        state.refused
    };
    bench.member(1, "rep", &[("team", "red")]);
    assert_eq!(refusal(&mut bench), None, "two streams of the client that the server sees");
    bench.member_as(9, Member { is_never: true, ..member(&node("vm", &[("team", "x")])) });
    assert!(refusal(&mut bench).unwrap().contains("`proof.never`"));
    [0, 1, 9].iter().for_each(|id| bench.proof.member_left(&class(), MemberId(*id), bench.now));
    assert!(refusal(&mut bench).unwrap().contains("no client"));
}

/// Passes time until the machine asks another replica. All samples and seconds are equal.
fn replica_within(bench: &mut Bench, seconds: u64) -> ShadowId {
    for _ in 0..seconds {
        bench.pass(1_000);
        if let Some(replica) = bench.find(ShadowKind::Replica) {
            return replica;
        }
        let asked = |kind| matches!(kind, ShadowKind::Sample | ShadowKind::Second);
        let open: Vec<ShadowId> =
            bench.shadows.iter().filter(|open| asked(open.1.kind)).map(|open| *open.0).collect();
        open.into_iter().for_each(|id| bench.answer(id, wildcard(&clusters(), OLD)));
    }
    panic!("no replica in {seconds} s");
}

#[test]
fn prf_18_replicas_are_compared_once_an_hour() {
    let mut bench = bench(40);
    // The hourly comparison needs a server that bears two streams of one id.
    let replica = replica_within(&mut bench, 9_000);
    assert!(bench.shadows[&replica].open.on_another_connection && bench.shown(replica) == "rep");
    bench.answer_on(replica, wildcard(&clusters(), NEW), 2);
    bench.pass(5_100);
    bench.differs();
    let control = bench.wait_for(ShadowKind::Control);
    bench.answer(control, wildcard(&clusters(), OLD));
    bench.pass(1_100);
    assert!(bench.happenings.iter().any(|happening| matches!(happening, Happening::ReplicasDisagree { .. })));
    assert!(bench.divergences().is_empty());
}

#[test]
fn prf_18_another_replica_that_is_late_for_less_than_the_window_disagrees_with_nobody() {
    for is_late in [true, false] {
        let mut bench = bench(40);
        // Equal content is encoded at random.
        let sample = bench.wait_for(ShadowKind::Sample);
        bench.answer(sample, wildcard(&clusters(), NEW));
        bench.pass(5_100);
        bench.mean(&Meaning::Equal { ignored: Vec::new() });
        let replica = replica_within(&mut bench, 9_000);
        bench.answer_on(replica, wildcard(&clusters(), &[("a", 77)]), 2);
        bench.pass(5_100);
        bench.differs();
        bench.pass(14_000);
        assert!(bench.find(ShadowKind::Control).is_none());
        if is_late {
            bench.answer_on(replica, wildcard(&clusters(), OLD), 2);
        }
        bench.pass(41_000);
        if let Some(control) = bench.find(ShadowKind::Control) {
            bench.answer(control, wildcard(&clusters(), OLD));
        }
        bench.pass(1_100);
        let told = |test: fn(&Happening) -> bool| bench.happenings.iter().any(test);
        assert_eq!(told(|one| matches!(one, Happening::ReplicasAgree { .. })), is_late);
        assert_eq!(told(|one| matches!(one, Happening::ReplicasDisagree { .. })), !is_late);
    }
}

/// The order tests first whether the server bears two streams of an id, by a member.
#[test]
fn prf_18_replicas_are_compared_on_demand_and_an_order_waits_for_its_test() {
    let mut bench = bench(3);
    bench.pass(100);
    let wish = ProveOrder { class: class(), all: false, replicas: true, streams: 1 };
    let order = bench.proof.prove(&wish, bench.now).unwrap();
    let replica = replica_within(&mut bench, 40);
    assert_eq!(bench.shown(replica), "rep");
    assert!(!bench.proof.prove_state(order).unwrap().is_done);
    bench.answer_on(replica, wildcard(&clusters(), OLD), 2);
    bench.pass(1_100);
    let state = bench.proof.prove_state(order).unwrap();
    assert_eq!((state.is_done, state.asked, state.equal), (true, 1, 1));
    let agree = |happening: &&Happening| matches!(happening, Happening::ReplicasAgree { .. });
    assert_eq!(bench.happenings.iter().filter(agree).count(), 1);

    let order = bench.proof.prove(&wish, bench.now).unwrap();
    bench.pass(100);
    let replica = bench.wait_for(ShadowKind::Replica);
    bench.answer_on(replica, wildcard(&clusters(), NEW), 2);
    bench.pass(5_100);
    bench.differs();
    let control = bench.wait_for(ShadowKind::Control);
    bench.answer(control, wildcard(&clusters(), OLD));
    bench.pass(1_100);
    let state = bench.proof.prove_state(order).unwrap();
    assert_eq!((state.is_done, state.differs), (true, 1));
    assert!(bench.divergences().is_empty(), "never a reason to split");
}
