//! Witnesses cover the values of a class, and see the pushes.

use super::bench::*;
use crate::proof::*;

const OLD: Members<'_> = &[("a", 1)];
const NEW: Members<'_> = &[("a", 2)];

/// Answers all shadows but witnesses with this content.
fn answer(bench: &mut Bench, content: Members<'_>) {
    let open: Vec<ShadowId> =
        bench.shadows.iter().filter(|open| open.1.kind != ShadowKind::Witness).map(|open| *open.0).collect();
    open.into_iter().for_each(|id| bench.answer(id, wildcard(&clusters(), content)));
}

fn run(bench: &mut Bench, seconds: u64) {
    for _ in 0..seconds * 10 {
        bench.pass(100);
        answer(bench, OLD);
    }
}

/// Three zones and four versions, two clients of each combination.
fn grid() -> Bench {
    let mut bench = Bench::new(ProofSettings::default(), &[("zone", "z0"), ("version", "v0")]);
    bench.publish(wildcard(&clusters(), OLD));
    for id in 0..24u64 {
        let (zone, version) = (format!("z{}", id % 3), format!("v{}", id / 3 % 4));
        bench.member(id + 1, &format!("m{id}"), &[("zone", &zone), ("version", &version)]);
    }
    bench
}

#[test]
fn prf_22_witnesses_cover_each_value_once_and_not_each_combination() {
    let mut bench = grid();
    run(&mut bench, 120);
    let report = bench.report();
    assert_eq!((report.uncovered_count, report.fingerprints), (0, 12));
    assert!((3..=4).contains(&report.witnesses), "{}", report.witnesses);
}

#[test]
fn prf_22_a_value_is_covered_again_after_its_witness_has_left() {
    let mut bench = grid();
    run(&mut bench, 900);
    let gone = bench.find(ShadowKind::Witness).unwrap();
    let member = bench.shadows[&gone].open.member.unwrap();
    bench.proof.member_left(&class(), member, bench.now);
    run(&mut bench, 5);
    assert!(!bench.shadows.contains_key(&gone));
    run(&mut bench, 60);
    assert_eq!(bench.report().uncovered_count, 0);
}

#[test]
fn prf_22_without_room_nothing_stays_open_and_the_values_are_named() {
    let mut bench = grid();
    let settings = ProofSettings { standing: Standing::Count(0), ..ProofSettings::default() };
    bench.proof.configure(settings, bench.now);
    run(&mut bench, 120);
    let report = bench.report();
    assert_eq!((report.witnesses, report.uncovered_count), (0, 5));
    assert!(report.uncovered.contains(&("metadata.zone".into(), "\"z1\"".into())));
}

#[test]
fn prf_23_a_rule_for_a_covered_value_is_told_within_ten_seconds() {
    let mut bench = grid();
    run(&mut bench, 120);
    let label = |id: ShadowId, bench: &Bench| bench.shadows[&id].open.node.metadata["zone"].to_string();
    let witnesses: Vec<ShadowId> = bench.shadows.keys().copied().collect();
    let concerned: Vec<ShadowId> =
        witnesses.into_iter().filter(|id| label(*id, &bench) == "\"z1\"").collect();
    assert!(!concerned.is_empty());
    let pushed = bench.now;
    // Only the witness's own answer changes: the class sees nothing of this push.
    concerned.iter().for_each(|id| bench.answer(*id, wildcard(&clusters(), NEW)));
    let (mut told_after, mut explained_by) = (None, Vec::new());
    while explained_by.len() != 1 {
        bench.pass(100);
        bench.differs();
        let open: Vec<(ShadowId, bool)> = bench
            .shadows
            .iter()
            .filter(|open| open.1.kind != ShadowKind::Witness)
            .map(|open| (*open.0, label(*open.0, &bench) == "\"z1\""))
            .collect();
        for (id, is_concerned) in
            open.into_iter().filter(|open| bench.shadows.contains_key(&open.0)).collect::<Vec<_>>()
        {
            bench.answer(id, wildcard(&clusters(), if is_concerned { NEW } else { OLD }));
        }
        if let Some(divergence) = bench.proof.report(bench.now).divergences.first() {
            told_after = told_after.or(Some(bench.now.since(pushed).as_secs()));
            explained_by.clone_from(&divergence.explained_by);
        }
        assert!(bench.now.since(pushed).as_secs() < 120);
    }
    assert!(told_after.is_some_and(|seconds| seconds < 10), "{told_after:?}");
    assert_eq!(explained_by, [["metadata.zone".into()]]);
    let divergence = bench.proof.report(bench.now).divergences.remove(0);
    assert_eq!(divergence.clients, 8);
}

#[test]
fn prf_25_a_push_over_which_a_witness_stays_equal_is_counted() {
    let mut bench = grid();
    run(&mut bench, 120);
    assert_eq!(bench.report().pushes_seen, 0);
    let witnesses: Vec<ShadowId> = bench.shadows.keys().copied().collect();
    bench.publish(wildcard(&clusters(), NEW));
    witnesses.iter().for_each(|id| bench.answer(*id, wildcard(&clusters(), NEW)));
    bench.pass(400);
    assert_eq!(bench.report().pushes_seen, 1);
}

#[test]
fn lrn_7_further_samples_tell_explanations_apart() {
    let mut bench = Bench::new(ProofSettings::default(), &[("team", "red"), ("zone", "a")]);
    bench.member(1, "m1", &[("team", "blue"), ("zone", "b")]);
    bench.publish(wildcard(&clusters(), OLD));
    let content =
        |node: &sluice_xds::Node| if node.metadata["team"].to_string() == "\"blue\"" { NEW } else { OLD };
    let all = |bench: &mut Bench| {
        bench.pass(100);
        bench.differs();
        let open: Vec<ShadowId> = bench
            .shadows
            .iter()
            .filter(|open| open.1.kind != ShadowKind::Witness)
            .map(|open| *open.0)
            .collect();
        for id in open {
            let Some(members) = bench.shadows.get(&id).map(|shadow| content(&shadow.open.node)) else {
                continue;
            };
            bench.answer(id, wildcard(&clusters(), members));
        }
    };
    (0..200).for_each(|_| all(&mut bench));
    let explained = |bench: &Bench| bench.proof.report(bench.now).divergences[0].explained_by.clone();
    assert_eq!(explained(&bench), [["metadata.team".into()], ["metadata.zone".into()]]);
    bench.member(2, "m2", &[("team", "red"), ("zone", "b")]);
    (0..200).for_each(|_| all(&mut bench));
    assert_eq!(explained(&bench), [["metadata.team".into()]]);
}
