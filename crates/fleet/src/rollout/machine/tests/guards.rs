//! The guards.

use super::super::guards::check;
use super::*;
use crate::rollout::plan::GuardAction;
use crate::rollout::push::{Finding, FindingKind};
use crate::rollout::report::GrownPart;
use sluice_xds::Version;

const MIB: u64 = 1 << 20;

fn grown(resources: (u64, u64), bytes: (u64, u64), largest: (u64, u64)) -> UnitPush {
    let growth = |(before, after)| Growth { before, after };
    let mut push = unit_push(1);
    let part = &mut push.types[0];
    (part.resources, part.bytes) = (growth(resources), growth(bytes));
    part.largest = Some((ResourceName::from("main"), growth(largest)));
    push
}

fn part(push: UnitPush) -> Option<GrownPart> {
    let findings = check(&plan(), &[unit_push(2), push]);
    assert_eq!(findings.blamed, Vec::from_iter(findings.reason.is_some().then(|| unit(1))));
    match findings.reason {
        Some(Reason::Grown(grown)) => Some(grown.part),
        _ => None,
    }
}

#[test]
fn grd_4_growth_beyond_bounds_halts() {
    let none = (10, 10);
    assert_eq!(part(grown(none, none, none)), None);
    let resource = Some(GrownPart::Resource(ResourceName::from("main")));
    assert_eq!(part(grown(none, none, (MIB, 2 * MIB))), None, "twice as large is not more than twice");
    assert_eq!(part(grown(none, none, (MIB, 2 * MIB + 1))), resource);
    assert_eq!(part(grown(none, none, (2 * MIB, 4 * MIB))), None);
    assert_eq!(part(grown((20, 60), none, none)), None);
    assert_eq!(part(grown(none, none, (100, MIB + 100))), None, "1 MiB is not more than 1 MiB");
    assert_eq!(part(grown(none, (2 * MIB, 5 * MIB), none)), Some(GrownPart::Bytes));
    assert_eq!(part(grown((10, 31), none, none)), Some(GrownPart::Count));
    assert_eq!(part(grown((10, 30), none, none)), None);
    assert_eq!(part(grown((5, 25), none, none)), None);
    assert_eq!(part(grown((0, 900), (0, 9 * MIB), (0, 9 * MIB))), None, "a beginning is no growth");
}

#[test]
fn grd_4_the_differences_of_all_units_keep_the_resource_that_doubled() {
    let large = grown((10, 10), (10, 10), (10 * MIB, 13 * MIB));
    let small = grown((10, 10), (10, 10), (MIB / 2, 2 * MIB));
    let (large, small) = (&large.types[0], &small.types[0]);
    for (mut first, second) in [(large.clone(), small), (small.clone(), large)] {
        first.merge(second);
        assert_eq!(first.largest, small.largest);
    }
}

#[test]
fn grd_4_a_push_that_grew_halts_before_its_first_client() {
    let push = |growth| {
        let mut world = World::of(Plan { guards: Guards { growth, ..Guards::default() }, ..plan() });
        world.changed(0, 1);
        world.timer(1_000);
        world.ready(1_000, vec![grown((10, 900), (10, 10), (10, 10))]);
        world
    };
    let mut world = push(GuardAction::Halt);
    assert_eq!((world.state(), world.step()), (RolloutState::Halted, (0, 0)));
    let verdict = world.verdict();
    assert_eq!((verdict.clients, verdict.step, verdict.after), (0, 0, Duration::ZERO));
    world.tally(2_000, Tally { others: accepted(9), ..Tally::default() });
    assert_eq!(world.push().others.accepted, 9);
    let world = push(GuardAction::Warn);
    assert_eq!((world.state(), world.push().notes.len()), (RolloutState::Waving, 1));
    let world = push(GuardAction::Off);
    assert_eq!((world.state(), world.push().notes.len()), (RolloutState::Waving, 0));
}

#[test]
fn qua_2_a_push_with_condemned_content_halts_before_its_first_client() {
    let type_url = TypeUrl::of_message(LISTENER);
    let condemned = (type_url, ResourceName::from("main"), Version(7));
    let mut world =
        World::of(Plan { guards: Guards { growth: GuardAction::Off, ..Guards::default() }, ..plan() });
    world.changed(0, 1);
    world.timer(1_000);
    world.ready(1_000, vec![UnitPush { condemned: Some(condemned.clone()), ..unit_push(1) }]);
    assert_eq!(world.state(), RolloutState::Halted);
    assert_eq!(world.verdict().reason, Reason::Condemned(condemned.clone()));
    world.tally(2_000, Tally { condemned: vec![condemned.clone()], ..Tally::default() });
    assert_eq!(world.push().condemned.as_slice(), std::slice::from_ref(&condemned));
    assert!(world.events.contains(&What::Condemned(condemned)));
}

#[test]
fn grd_6_findings_in_contents_halt_or_warn_as_the_plan_says() {
    let finding = |kind, more| Finding {
        kind,
        type_url: unit_push(1).types[0].type_url.clone(),
        name: ResourceName::from("main"),
        what: "pay".into(),
        more,
    };
    let with = |number, kinds: &[FindingKind]| UnitPush {
        findings: kinds.iter().map(|kind| finding(*kind, 0)).collect(),
        ..unit_push(number)
    };
    let units =
        [with(1, &FindingKind::ALL), with(2, &[FindingKind::Unreadable]), with(3, &[FindingKind::Dangling])];
    let default = check(&plan(), &units);
    assert_eq!(default.reason, Some(Reason::Found(finding(FindingKind::Unreadable, 0))));
    assert_eq!(default.blamed, [unit(1), unit(2)]);
    let notes = [FindingKind::Dangling, FindingKind::GoneWhileUsed].map(|kind| Note::Found(finding(kind, 0)));
    assert_eq!(default.notes, notes);
    let (halt, off) = (GuardAction::Halt, GuardAction::Off);
    let guards = Guards { unreadable: off, dangling: halt, gone_while_used: halt, ..Guards::default() };
    let strict = check(&Plan { guards, ..plan() }, &units);
    assert_eq!(strict.reason, Some(Reason::Found(finding(FindingKind::Dangling, 0))));
    assert_eq!((strict.blamed, strict.notes), (vec![unit(1), unit(3)], vec![]));
}
