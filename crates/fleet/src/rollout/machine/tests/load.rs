//! Load reports as evidence (LRS-24).

use super::*;
use crate::rollout::command::{Command, Promotion};
use crate::rollout::load::{ClusterRequests, LoadEvidence, LoadJudgement, Missing, Requests};
use crate::rollout::plan::BucketBy;
use sluice_engine::class::NodeMatch;

const POINTS: HaltOn = HaltOn {
    rejected: 0,
    rejected_percent: 1,
    lost_percent: 10,
    accepted_percent: 95,
    patience: Duration::from_secs(60),
    error_points: 5,
};

fn judging() -> Plan {
    Plan { halt_on: POINTS, ..enforcing() }
}

/// The requests of a cluster: errors among 1,000 at the admitted, and none among 1,000 at the others.
fn cluster(name: &str, errors: u64, failing: &[u64]) -> ClusterRequests {
    let requests = |errors| Requests { finished: 1_000, errors };
    let by_unit = failing.iter().map(|number| (UnitId(*number), requests(errors))).collect();
    ClusterRequests { cluster: name.into(), admitted: requests(errors), others: requests(0), by_unit }
}

fn told(clusters: Vec<ClusterRequests>) -> Tally {
    let load =
        Some(LoadEvidence { clusters, admitted: 1, others: 9, streams: 10, ..LoadEvidence::default() });
    Tally { voices: 10, load, ..admitted(accepted(10)) }
}

fn silent() -> Tally {
    Tally { load: Some(LoadEvidence { streams: 10, ..LoadEvidence::default() }), ..told(Vec::new()) }
}

/// A push of two units, in its first step.
fn begun(plan: Plan) -> World {
    let mut world = World::of(plan);
    world.push_of(&[1, 2]);
    world.tally(2_000, silent());
    world
}

fn word(world: &World) -> Option<LoadJudgement> {
    world.rollout.under_way()?.steps.last()?.load.clone()
}

#[test]
fn lrs_24_a_push_whose_clients_fail_more_often_is_halted_at_once_and_its_failing_units_are_blamed() {
    let mut world = begun(judging());
    world.tally(
        3_000,
        told(vec![cluster("good", 0, &[]), cluster("bad", 400, &[2]), cluster("worst", 900, &[2])]),
    );
    assert_eq!(world.state(), RolloutState::Halted);
    let report = world.rollout.under_way().unwrap();
    let Some(Verdict { reason: Reason::Errors(worse), .. }) = &report.verdict else { panic!("{report:?}") };
    assert_eq!((&*worse.worst.cluster, worse.more, &*report.blamed), ("worst", 1, &[unit(2)][..]));
    assert!(matches!(word(&world), Some(LoadJudgement::Worse(_))));
}

#[test]
fn lrs_24_equal_load_changes_nothing_about_the_bake() {
    let mut world = begun(judging());
    for second in 3..=30 {
        world.tally(second * 1_000, told(vec![cluster("c", 10, &[1])]));
        assert_eq!(
            (world.step().0, word(&world)),
            (1, Some(LoadJudgement::Equal { clusters: 1, uncompared: 0 }))
        );
    }
    world.tally(32_000, told(vec![cluster("c", 10, &[1])]));
    assert_eq!(world.step().0, 2);
    let judgement = LoadJudgement::Equal { clusters: 1, uncompared: 0 };
    assert!(world.events.contains(&What::LoadJudged { step: 1, judgement }));
}

/// The step goes on by what clients accept, and says that the load could not tell.
#[test]
fn lrs_24_a_step_without_load_follows_the_other_evidence_and_is_told_of() {
    let mut world = begun(judging());
    world.tally(3_000, silent());
    let requests = Missing::Requests { most: 0, needed: 100 };
    let missing = vec![Missing::AdmittedReporters, Missing::OtherReporters, requests];
    assert_eq!(word(&world), Some(LoadJudgement::CannotTell(missing.clone())));
    let tally = Tally { admitted: Counts { pending: 10, ..Counts::default() }, ..silent() };
    world.tally(32_000, tally.clone());
    world.tally(93_000, tally);
    assert_eq!(world.state(), RolloutState::Paused, "nobody has accepted the push in time");
    world.tally(94_000, silent());
    assert_eq!(world.step().0, 2);
    let judgement = LoadJudgement::CannotTell(missing);
    assert!(world.events.contains(&What::LoadJudged { step: 1, judgement }));
}

/// The first step by labels, and the next by seats.
#[test]
fn lrs_24_a_label_and_a_place_choose_no_control_group() {
    let labels =
        Step { clients: Some(NodeMatch::default()), threshold: 0, at_least: 0, bake: Duration::from_secs(9) };
    let seats = Step { clients: None, threshold: 5_000, ..labels.clone() };
    let bad = || Tally { labelled: vec![1, 0], ..told(vec![cluster("c", 900, &[1])]) };
    let mut world = World::of(Plan { steps: vec![labels, seats], ..judging() });
    world.push_of(&[1]);
    world.tally(2_000, bad());
    world.tally(3_000, bad());
    assert_eq!(
        (world.state(), word(&world)),
        (RolloutState::Waving, Some(LoadJudgement::CannotTell(vec![Missing::Control])))
    );
    world.tally(12_000, bad());
    assert_eq!((world.state(), world.step().0), (RolloutState::Waving, 2));
    world.tally(13_000, bad());
    world.tally(14_000, bad());
    assert_eq!(world.state(), RolloutState::Halted);
    for bucket_by in [BucketBy::Zone, BucketBy::Cluster] {
        let mut world = begun(Plan { bucket_by, ..judging() });
        world.tally(3_000, bad());
        assert_eq!(world.state(), RolloutState::Waving);
    }
}

/// The operator has seen the errors, and lets the push go on: the same evidence does not halt it again.
#[test]
fn lrs_24_a_promoted_push_is_not_halted_by_load() {
    let mut world = begun(judging());
    let bad = || told(vec![cluster("c", 900, &[1])]);
    world.tally(3_000, bad());
    assert_eq!(world.state(), RolloutState::Halted);
    world.command(4_000, Command::Promote { push: 1, to: Promotion::Anew }).unwrap();
    world.ready(5_000, vec![unit_push(1), unit_push(2)]);
    world.tally(6_000, bad());
    world.tally(7_000, bad());
    assert_eq!((world.push_number(), world.state()), (Some(2), RolloutState::Waving));
    assert!(matches!(word(&world), Some(LoadJudgement::Worse(_))), "the errors are told");
}

/// In the last bake all clients have the push.
#[test]
fn lrs_24_nobody_is_left_to_compare_with_after_the_last_step() {
    let mut world = begun(judging());
    let promote = Command::Promote { push: 1, to: Promotion::All };
    world.command(3_000, promote).unwrap();
    world.tally(4_000, told(vec![cluster("c", 900, &[1])]));
    assert_eq!((world.state(), word(&world)), (RolloutState::Settling, None));
}
