//! Plans that hold pushes back from relays, region by region (TIR-1).

use super::*;
use sluice_engine::class::{NodeMatch, TextMatch};

/// A region is a step.
fn regions() -> Plan {
    let step = |region: &str| {
        let region = Some(TextMatch::Exact(region.into()));
        let clients = Some(NodeMatch { region, ..NodeMatch::default() });
        Step { clients, threshold: 0, at_least: 0, bake: Duration::from_secs(60) }
    };
    Plan { relays: true, steps: vec![step("a"), step("b")], ..plan() }
}

/// Relays that have the push, and the affected relays of each region.
fn relays(unjudged: u64, labelled: [u64; 2]) -> Tally {
    Tally { labelled: labelled.into(), ..admitted(Counts { unjudged, ..Counts::default() }) }
}

#[test]
fn tir_1_only_time_lets_a_push_go_on_to_the_next_region() {
    let mut world = World::pushed(regions());
    world.tally(1_500, relays(1, [1, 1]));
    world.tally(60_999, relays(1, [1, 1]));
    assert_eq!(world.step().0, 1);
    world.tally(61_000, relays(1, [1, 1]));
    assert_eq!((world.step().0, world.state()), (2, RolloutState::Waving));
    assert!(world.push().notes.contains(&Note::OnlyRelaysInStep(1)));
    // The first tally of a step opens the step.
    world.tally(62_000, relays(2, [1, 1]));
    world.tally(121_000, relays(2, [1, 1]));
    assert_eq!(world.state(), RolloutState::Settling);
    world.tally(122_000, relays(2, [1, 1]));
    world.tally(151_000, relays(2, [1, 1]));
    assert_eq!(world.past(), [(1, Outcome::Finished)]);
}

#[test]
fn tir_1_without_relays_their_word_finishes_no_push() {
    let mut world = World::pushed(Plan { relays: false, ..regions() });
    (2..=40).for_each(|second| world.tally(second * 1_000, relays(2, [0, 0])));
    assert_eq!(world.past(), [(1, Outcome::Unjudged)]);
}

#[test]
fn tir_1_a_rejection_of_a_relay_halts_the_push() {
    let mut world = World::pushed(regions());
    let rejected = Counts { unjudged: 1, rejected: 1, ..Counts::default() };
    world.tally(2_000, Tally { labelled: vec![2, 2], ..admitted(rejected) });
    assert_eq!(world.state(), RolloutState::Halted);
}

/// Nobody looks at a region that cannot be reached.
#[test]
fn tir_1_a_region_that_is_away_is_waited_for() {
    let mut world = World::pushed(regions());
    world.tally(2_000, relays(1, [1, 1]));
    let baked = 61_000;
    world.tally(baked, relays(0, [0, 1]));
    assert_eq!((world.step().0, world.state()), (1, RolloutState::Waving));
    world.tally(baked + 15 * 60_000, relays(0, [0, 1]));
    assert_eq!(world.state(), RolloutState::Paused);
    world.tally(baked + 16 * 60_000, relays(1, [1, 1]));
    assert_eq!((world.step().0, world.state()), (2, RolloutState::Waving));
}

#[test]
fn tir_1_a_region_without_a_relay_is_passed() {
    let mut world = World::pushed(regions());
    world.tally(2_000, relays(0, [0, 1]));
    assert_eq!(world.step().0, 2);
    assert!(world.push().notes.contains(&Note::NobodyInStep(1)));
}

/// The clients of the root itself speak as ever.
#[test]
fn tir_1_clients_beside_the_relays_are_judged() {
    let mut world = World::pushed(regions());
    let silent = Counts { unjudged: 1, silent: 1, ..Counts::default() };
    let tally = |counts| Tally { labelled: vec![2, 0], ..admitted(counts) };
    world.tally(2_000, tally(silent));
    world.tally(70_000, tally(silent));
    assert_eq!(world.step().0, 1);
    world.tally(71_000, tally(Counts { silent: 0, accepted: 1, ..silent }));
    assert_eq!(world.step().0, 2);
}
