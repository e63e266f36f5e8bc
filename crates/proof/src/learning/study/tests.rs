//! Studies step by step.

use super::*;
use sluice_xds::{Node, ResourceName, Version};
use std::sync::Arc;

const MINUTE: Duration = Duration::from_secs(60);

fn study(nodes: usize, teams: usize, pace: StudyPace) -> Study {
    let node = |number: usize| {
        Arc::new(Node {
            id: format!("n{number}"),
            cluster: format!("team-{}", number % teams),
            ..Node::default()
        })
    };
    Study::new(&Fleet::new((0..nodes).map(node).collect()), pace)
}

fn pace(streams: usize) -> StudyPace {
    StudyPace { streams, per_minute: 60_000, until: Time::ZERO + 10 * MINUTE, names_max: 1_000 }
}

fn answer(versions: &[u128]) -> BTreeMap<TypeUrl, TypeAnswer> {
    let name = |(number, version): (usize, &u128)| {
        (ResourceName::from(format!("c{number}")), Some(Version(*version)))
    };
    let names = versions.iter().enumerate().map(name).collect();
    let answer = TypeAnswer { is_whole: true, names };
    [(TypeUrl::of_message("envoy.config.cluster.v3.Cluster"), answer)].into()
}

/// Asks until the end; `says` answers as the server would. Returns the nodes in the order of asking.
fn run(
    study: &mut Study,
    mut says: impl FnMut(usize) -> Result<Vec<u128>, Code>,
) -> (Vec<usize>, StudyEnd, Time) {
    let (mut now, mut asked) = (Time::ZERO, Vec::new());
    loop {
        match study.next_step(now) {
            Step::Ask(node) => {
                asked.push(node);
                match says(node) {
                    Ok(versions) => study.answered(node, answer(&versions)),
                    Err(code) => study.failed(node, Status::new(code, "no"), now),
                }
            }
            Step::Wait(until) => now = until,
            Step::Done(end) => return (asked, end, now),
        }
    }
}

#[test]
fn lrn_2_each_fingerprint_has_its_turn_before_a_second_member() {
    let mut study = study(6, 3, pace(1));
    let (asked, end, _) = run(&mut study, |_| Ok(vec![1]));
    // The first answer is checked at the same node, and the end once more.
    assert_eq!((asked.as_slice(), end), (&[0, 0, 1, 2, 3, 4, 5, 0][..], StudyEnd::Complete));
    assert_eq!(study.evidence().nodes().len(), 6);
}

#[test]
fn prf_16_a_counter_in_an_answer_is_restless_and_a_difference_is_checked() {
    let mut study = study(4, 2, pace(1));
    let mut counter = 0;
    let (asked, ..) = run(&mut study, |node| {
        counter += 1;
        Ok(vec![counter, u128::from(node % 2 == 1)])
    });
    assert!(asked.iter().filter(|node| **node == 0).count() > 2, "the reference is asked again: {asked:?}");
    let restless: Vec<_> = study.evidence().restless().flat_map(|(_, names)| names.clone()).collect();
    assert_eq!(restless, [ResourceName::from("c0".to_owned())]);
}

#[test]
fn prf_16_a_push_meanwhile_is_no_difference_between_nodes() {
    let mut study = study(8, 2, pace(1));
    let mut asked = 0;
    run(&mut study, |_| {
        asked += 1;
        Ok(vec![u128::from(asked > 5), 7])
    });
    let types: Vec<TypeUrl> = study.evidence().types().cloned().collect();
    assert_eq!(study.evidence().joint(&types).groups().count(), 1);
}

#[test]
fn prf_9_a_server_that_refuses_everybody_is_left_alone_and_one_that_refuses_some_is_not() {
    let mut study = study(9, 3, pace(1));
    let (asked, end, _) = run(&mut study, |_| Err(Code::Unauthenticated));
    assert_eq!((asked.len(), end), (3, StudyEnd::Refused));
    assert_eq!(study.last_failure().map(|status| status.code), Some(Code::Unauthenticated));
    let mut study = self::study(9, 3, pace(1));
    let (_, end, _) =
        run(&mut study, |node| if node == 4 { Err(Code::PermissionDenied) } else { Ok(vec![1]) });
    let (named, count) = study.refused();
    assert_eq!((end, count, named[0].node), (StudyEnd::Complete, 1, 4));
}

#[test]
fn prf_9_a_node_that_answers_between_failures_is_not_refused() {
    let (mut study, mut asked) = (study(9, 9, pace(1)), 0);
    let (_, end, _) = run(&mut study, |node| {
        asked += u32::from(node == 0);
        if node == 0 && asked % 2 == 0 { Err(Code::Unavailable) } else { Ok(vec![node as u128]) }
    });
    assert!(asked > 2 * ATTEMPTS_MAX, "the reference failed often enough: {asked}");
    assert_eq!((end, study.refused().1), (StudyEnd::Complete, 0));
}

#[test]
fn prf_9_a_refusal_of_a_node_that_has_answered_is_not_counted() {
    let (mut study, mut asked) = (study(9, 9, pace(1)), 0);
    let (_, end, _) = run(&mut study, |node| {
        asked += u32::from(node == 0);
        if node == 0 && asked > 1 { Err(Code::PermissionDenied) } else { Ok(vec![node as u128]) }
    });
    assert!(asked > 1, "the reference was checked");
    assert_eq!((end, study.refused().1, study.answered_count()), (StudyEnd::Complete, 0, 9));
}

#[test]
fn lrn_2_a_study_that_is_stopped_keeps_its_answers_and_one_with_too_many_names_ends() {
    let mut stopped = study(6, 3, pace(1));
    let Step::Ask(node) = stopped.next_step(Time::ZERO) else { panic!("nothing to ask") };
    stopped.answered(node, answer(&[1]));
    stopped.stop(StudyEnd::Leaving);
    assert_eq!(stopped.next_step(Time::ZERO), Step::Done(StudyEnd::Leaving));
    assert_eq!(stopped.evidence().nodes().len(), 1);
    let mut large = study(6, 3, StudyPace { names_max: 4, ..pace(1) });
    let (asked, end, _) = run(&mut large, |node| Ok(vec![node as u128; 3]));
    // The first answer is checked at its node.
    assert_eq!((asked, end), (vec![0, 0, 1], StudyEnd::TooLarge));
}

#[test]
fn prf_19_a_node_that_is_not_asked_costs_no_stream() {
    let mut slow = study(3, 3, StudyPace { per_minute: 1, ..pace(1) });
    let now = Time::ZERO + MINUTE;
    assert_eq!(slow.next_step(now), Step::Ask(0));
    slow.postpone(0, now);
    assert_eq!(slow.next_step(now), Step::Ask(1));
    slow.leave_out(1, now);
    assert_eq!(slow.next_step(now), Step::Ask(2));
    slow.answered(2, answer(&[1]));
    assert_eq!(slow.next_step(now), Step::Wait(now + MINUTE));
    assert_eq!(slow.next_step(now + MINUTE), Step::Ask(2), "the check of the first answer");
    slow.answered(2, answer(&[1]));
    assert_eq!(slow.next_step(Time::ZERO + 6 * MINUTE), Step::Ask(0));
}

#[test]
fn prf_19_the_pace_holds_and_failures_make_pauses() {
    let mut slow = study(6, 1, StudyPace { per_minute: 12, ..pace(2) });
    let (asked, _, now) = run(&mut slow, |_| Ok(vec![1]));
    assert_eq!(now.since(Time::ZERO), Duration::from_secs(5) * (asked.len() as u32 - 1));
    let mut lost = study(50, 50, pace(1));
    let (asked, end, now) = run(&mut lost, |_| Err(Code::Unavailable));
    assert_eq!((asked.len(), end), (8, StudyEnd::Lost));
    assert!(now.since(Time::ZERO) > MINUTE, "{now:?}");
    let mut short = study(500, 1, StudyPace { per_minute: 12, until: Time::ZERO + MINUTE, ..pace(1) });
    assert_eq!(run(&mut short, |_| Ok(vec![1])).1, StudyEnd::TimeIsUp);
}

#[test]
fn prf_19_no_more_streams_than_allowed_are_open() {
    let mut study = study(6, 6, pace(2));
    let now = Time::ZERO + MINUTE;
    let (one, other) = (study.next_step(now), study.next_step(now + MINUTE));
    assert!(matches!((one, other), (Step::Ask(0), Step::Ask(1))));
    assert_eq!(study.next_step(now + MINUTE), Step::Wait(study.pace.until));
    study.answered(0, answer(&[1]));
    assert_eq!(study.next_step(now + 2 * MINUTE), Step::Ask(0));
}
