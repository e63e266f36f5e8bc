//! Members leave a class that is too coarse, and return when nothing tells them apart any more.

use std::sync::Arc;

use super::fleet::*;
use crate::proof::*;
use sluice_xds::Node;

fn is_blue(node: &Node) -> bool {
    label(node, "team") == "blue"
}

/// The clients of team `blue` have another cluster.
fn blue(node: &Node) -> u128 {
    if is_blue(node) { 2 } else { 1 }
}

/// Nodes with equal answers for long enough that witnesses hold all values.
fn settled(policy: Policy) -> Fleet {
    let mut fleet = Fleet::grid(policy, |_| 1);
    fleet.pass(240_000);
    fleet
}

fn values(split: &Split) -> Vec<Vec<&str>> {
    split
        .values
        .iter()
        .map(|tuple| tuple.iter().map(|value| value.as_deref().unwrap_or("-")).collect())
        .collect()
}

fn only_split(fleet: &Fleet) -> Split {
    let [(_, split)] = &*fleet.splits else { panic!("{:?}", fleet.splits) };
    split.clone()
}

#[test]
fn prf_27_all_clients_with_the_value_that_explains_it_leave_within_20_s_of_the_push() {
    let mut fleet = settled(Policy::Split);
    fleet.push(blue);
    assert_eq!(fleet.wrong(), 12);
    let took = fleet.pass_until(20, |fleet| fleet.wrong() == 0);
    assert!(took.as_secs() < 20, "{took:?}");
    let split = only_split(&fleet);
    assert_eq!((&*split.fields[0], values(&split)), ("metadata.team", vec![vec!["\"blue\""]]));
    assert_eq!((fleet.classes(), fleet.members_of("all")), (2, 24));
    assert_eq!(fleet.count(|happening| matches!(happening, Happening::Diverged(_))), 1);
    assert_eq!(fleet.count(|happening| matches!(happening, Happening::SplitOff { .. })), 1);
    assert_eq!(fleet.count(|happening| matches!(happening, Happening::DivergenceEnded(_))), 0);
    fleet.pass(3_600_000);
    assert_eq!((fleet.splits.len(), fleet.joins.len(), fleet.wrong()), (1, 0, 0));
    let report = fleet.report("all/\"blue\"");
    let made = report.split.unwrap();
    assert_eq!((report.split_from.as_deref(), &*made.parent), (Some("all"), "all"));
    assert_eq!((made.member_id, made.holds.as_secs()), (split.member_id.clone(), 3_600));
}

#[test]
fn prf_26_under_warn_nobody_moves() {
    let mut fleet = settled(Policy::Warn);
    fleet.push(blue);
    fleet.pass(60_000);
    assert_eq!((fleet.splits.len(), fleet.refusals.len(), fleet.wrong()), (0, 0, 12));
    assert_eq!(fleet.report("all").state, ClassState::Differs);
}

#[test]
fn prf_27_two_values_together_are_told_from_each_alone() {
    let both = |node: &Node| if is_blue(node) && label(node, "zone") == "b" { 2 } else { 1 };
    let mut fleet = settled(Policy::Split);
    fleet.push(both);
    fleet.pass_until(7_200, |fleet| fleet.wrong() == 0);
    let split = only_split(&fleet);
    assert_eq!(split.fields, ["metadata.team".into(), "metadata.zone".into()] as [Arc<str>; 2]);
    assert_eq!(fleet.members_of("all"), 32);
}

#[test]
fn prf_27_a_client_that_no_field_explains_leaves_alone() {
    let mut fleet = settled(Policy::Split);
    fleet.push(|node| if node.id == "n4" { 2 } else { 1 });
    fleet.pass_until(7_200, |fleet| fleet.wrong() == 0);
    let split = only_split(&fleet);
    assert_eq!((&*split.fields[0], values(&split)), ("id", vec![vec!["n4"]]));
    assert_eq!(fleet.members_of("all"), 35);
}

#[test]
fn prf_27_without_an_answer_from_others_the_client_leaves_alone() {
    let mut fleet = settled(Policy::Split);
    // Nobody but the witnesses answers, so nothing supports an explanation.
    let witnesses: Vec<u64> = fleet
        .proof
        .report(fleet.now)
        .shadows
        .iter()
        .filter_map(|shadow| shadow.member)
        .map(|id| id.0)
        .collect();
    let others = fleet.members.iter().filter(|member| !witnesses.contains(member.0));
    fleet.silent = others.map(|member| member.1.1.id.clone()).filter(|id| id != "n0").collect();
    fleet.push(blue);
    fleet.pass_until(70, |fleet| !fleet.splits.is_empty());
    assert_eq!(fleet.splits[0].1.fields, ["id".into()] as [Arc<str>; 1]);
}

#[test]
fn prf_27_members_with_unlike_answers_do_not_leave_together() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    for (number, labels) in [["red", "a", "x"], ["blue", "a", "y"], ["red", "b", "y"]].iter().enumerate() {
        let labels = [("team", labels[0]), ("zone", labels[1]), ("app", labels[2])];
        for one in 0..3 {
            fleet.class("all", &[(&format!("n{number}-{one}"), &labels)]);
        }
    }
    fleet.pass(240_000);
    // The field `app` tells those who differ from the others, and not from each other.
    fleet.push(|node| blue(node) + (u128::from(label(node, "zone") == "b") << 64));
    fleet.pass_until(60, |fleet| fleet.wrong() == 0);
    let origins: Vec<&str> = fleet.splits.iter().map(|split| &*split.1.class).collect();
    assert!(origins.iter().all(|class| *class == "all"), "{:?}", fleet.splits);
}

/// Three clients of each kind: the values of team, zone and version.
fn kinds(kinds: &[[&str; 3]]) -> Fleet {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    for [team, zone, version] in kinds {
        for one in 0..3 {
            let labels = [("team", *team), ("zone", *zone), ("version", *version)];
            fleet.class("all", &[(&format!("{team}{zone}{version}-{one}"), &labels)]);
        }
    }
    fleet
}

/// All clients that differ leave their first class, and nobody is given the content of a neighbour.
fn all_leave_the_first_class(fleet: &mut Fleet, seconds: u64) {
    fleet.pass_until(seconds, |fleet| fleet.wrong() == 0);
    assert!(fleet.split_classes().iter().all(|class| *class == "all"), "{:?}", fleet.splits);
}

#[test]
fn prf_27_nobody_leaves_with_a_client_that_has_another_difference_in_another_type() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    without_witnesses(&mut fleet);
    fleet.type_of_b = super::bench::endpoints();
    fleet.class("all", &[("n0", &[("team", "red"), ("zone", "c")])]);
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "b")] {
        fleet.class("all", &[(name, &[("team", "blue"), ("zone", zone)])]);
    }
    // All blue clients have other endpoints, and the first of them has a cluster of its own.
    fleet.push(|node| {
        let own = if node.id == "n1" { 2 } else { 1 };
        own + if is_blue(node) { 3 << 64 } else { 2 << 64 }
    });
    fleet.silent = ["n2", "n3", "n4"].map(str::to_owned).into();
    fleet.pass_until(7_200, has_diverged);
    fleet.silent.clear();
    all_leave_the_first_class(&mut fleet, 7_200);
    assert!(fleet.splits.iter().any(|split| *split.1.fields[0] == *"id"), "{:?}", fleet.splits);
}

#[test]
fn prf_14_answers_that_are_encoded_at_random_are_compared_with_each_other() {
    let mut fleet = kinds(&[["b", "c", "b"], ["a", "a", "b"], ["b", "a", "b"], ["b", "a", "a"]]);
    fleet.is_random = true;
    fleet.pass(240_000);
    // Two rules that share a zone, and none for the zone.
    fleet.push(|node| match (label(node, "team").as_str(), label(node, "version").as_str()) {
        ("a", _) => 2,
        (_, "a") => 3,
        _ => 1,
    });
    all_leave_the_first_class(&mut fleet, 7_200);
    assert_eq!(fleet.members_of("all"), 6);
}

/// No sample stays open.
fn without_witnesses(fleet: &mut Fleet) {
    let settings =
        ProofSettings { policy: Policy::Split, standing: Standing::Count(0), ..ProofSettings::default() };
    fleet.proof.configure(settings, fleet.now);
}

fn has_diverged(fleet: &Fleet) -> bool {
    fleet.count(|told| matches!(told, Happening::Diverged(_))) > 0
}

/// All members that are known to differ share a zone, which is a part of the reason.
fn of_team_and_zone() -> Fleet {
    let mut fleet = kinds(&[["b", "c", "b"], ["a", "c", "c"], ["a", "c", "a"], ["b", "c", "c"]]);
    fleet.class("all", &[("abc", &[("team", "a"), ("zone", "b"), ("version", "c")])]);
    without_witnesses(&mut fleet);
    fleet.pass(240_000);
    fleet.push(|node| if label(node, "team") == "a" && label(node, "zone") == "c" { 2 } else { 1 });
    fleet
}

#[test]
fn prf_27_a_client_that_lacks_what_all_others_share_is_asked_before_they_leave() {
    let mut fleet = of_team_and_zone();
    all_leave_the_first_class(&mut fleet, 7_200);
    assert_eq!(fleet.members_of("all"), 7);
}

#[test]
fn prf_27_a_client_whose_stream_ends_without_an_answer_is_asked_again_before_others_leave() {
    let mut fleet = of_team_and_zone();
    fleet.pass_until(7_200, has_diverged);
    fleet.failing = [("abc".to_owned(), 2)].into();
    all_leave_the_first_class(&mut fleet, 90);
    assert_eq!((fleet.failing["abc"], fleet.members_of("all")), (0, 7));
}

#[test]
fn prf_27_a_split_waits_for_a_sample_that_was_begun_for_another_reason() {
    let mut fleet = of_team_and_zone();
    fleet.silent = ["abc".to_owned()].into();
    let order = ProveOrder { class: "all".into(), all: true, replicas: false, streams: 20 };
    fleet.proof.prove(&order, fleet.now);
    fleet.pass_until(60, has_diverged);
    fleet.pass(2_000);
    fleet.silent.clear();
    all_leave_the_first_class(&mut fleet, 90);
    assert_eq!(fleet.members_of("all"), 7);
}

#[test]
fn prf_27_a_client_that_is_equal_in_one_type_does_not_leave_by_the_other() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    without_witnesses(&mut fleet);
    fleet.type_of_b = super::bench::endpoints();
    for (name, team, version) in [
        ("n0", "red", "x"),
        ("n1", "blue", "x"),
        ("n2", "blue", "x"),
        ("n3", "blue", "y"),
        ("n4", "blue", "y"),
    ] {
        fleet.class("all", &[(name, &[("team", team), ("version", version)])]);
    }
    // All blue clients have other endpoints, and those of one version another cluster.
    fleet.push(|node| {
        let own = if is_blue(node) && label(node, "version") == "x" { 2 } else { 1 };
        own + if is_blue(node) { 3 << 64 } else { 2 << 64 }
    });
    all_leave_the_first_class(&mut fleet, 7_200);
    assert_eq!(fleet.classes(), 3);
}

/// A class of clients with the values of team, zone and version; the first is the representative.
fn of_labels(fleet: &mut Fleet, clients: &[(&str, [&str; 3])]) {
    for (name, [team, zone, version]) in clients {
        fleet.class("all", &[(name, &[("team", team), ("zone", zone), ("version", version)])]);
    }
    without_witnesses(fleet);
}

#[test]
fn prf_27_a_client_that_does_not_ask_for_what_differs_is_no_evidence() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    fleet.type_of_b = super::bench::endpoints();
    fleet.without_b.insert("n1".to_owned());
    fleet.never.insert("n4".to_owned());
    of_labels(
        &mut fleet,
        &[
            ("n0", ["a", "c", "a"]),
            ("n1", ["c", "b", "a"]),
            ("n2", ["b", "b", "a"]),
            ("n3", ["b", "b", "a"]),
            ("n4", ["b", "c", "a"]),
        ],
    );
    // All zones but one have other endpoints, and `n1` is in such a zone.
    fleet.push(|node| 1 + if label(node, "zone") == "c" { 2 << 64 } else { 3 << 64 });
    fleet.pass_until(7_200, |fleet| !fleet.splits.is_empty());
    assert_eq!(values(&only_split(&fleet)), [["\"b\"", "\"b\""]]);
    assert_eq!((fleet.class_of_node("n4"), fleet.members_of("all")), ("all", 3));
}

#[test]
fn prf_27_others_do_not_leave_with_one_that_is_like_a_client_that_left_alone() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    fleet.never.insert("n2".to_owned());
    of_labels(
        &mut fleet,
        &[
            ("n0", ["a", "b", "a"]),
            ("n1", ["b", "a", "c"]),
            ("n2", ["b", "a", "c"]),
            ("n3", ["c", "a", "b"]),
            ("n4", ["a", "a", "a"]),
            ("n5", ["b", "b", "b"]),
        ],
    );
    let of_version = |node: &Node| if label(node, "version") == "c" { 2 } else { 1 };
    fleet.push(of_version);
    fleet.pass_until(7_200, |fleet| !fleet.splits.is_empty());
    assert_eq!(only_split(&fleet).fields, ["id".into()] as [Arc<str>; 1]);
    // Nobody may be asked whether `n2` has the answer of `n1`.
    fleet.push(move |node| of_version(node) + if label(node, "zone") == "a" { 2 << 64 } else { 0 });
    fleet.pass(1_000);
    let order = ProveOrder { class: "all".into(), all: true, replicas: false, streams: 4 };
    fleet.proof.prove(&order, fleet.now);
    all_leave_the_first_class(&mut fleet, 90);
}

#[test]
fn prf_27_a_client_that_cannot_be_asked_leaves_if_it_has_all_that_others_have_in_common() {
    // Whoever is asked first.
    let versions = [["b", "c"], ["c", "b"], ["b", "d"], ["d", "b"], ["c", "d"], ["d", "c"]];
    for ([one, other], has_common) in versions.into_iter().flat_map(|pair| [(pair, true), (pair, false)]) {
        let mut fleet = Fleet::new(Policy::Split, |_| 1);
        fleet.never.insert("n5".to_owned());
        // Either the team or the version is the reason. Without `n4`, all that differ have a zone in common, too.
        let mut clients = vec![
            ("n0", ["b", "c", "a"]),
            ("n1", ["a", "b", "a"]),
            ("n2", ["c", "b", one]),
            ("n3", ["c", "b", other]),
            ("n5", ["c", "c", other]),
        ];
        clients.extend(has_common.then_some(("n4", ["c", "c", one])));
        of_labels(&mut fleet, &clients);
        fleet.push(|node| if label(node, "team") == "c" { 2 } else { 1 });
        fleet.pass(600_000);
        assert_eq!(fleet.class_of_node("n5") == "all", !has_common);
        assert_eq!(fleet.members_of("all"), if has_common { 2 } else { 3 });
    }
}

#[test]
fn prf_30_after_a_wait_nobody_leaves_by_a_field_until_all_answers_are_known() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    fleet.type_of_b = super::bench::endpoints();
    fleet.without_b.insert("n1".to_owned());
    of_labels(
        &mut fleet,
        &[
            ("n0", ["a", "b", "a"]),
            ("n1", ["a", "c", "c"]),
            ("n2", ["a", "b", "c"]),
            ("n3", ["a", "c", "b"]),
            ("n4", ["b", "c", "b"]),
        ],
    );
    fleet.proof.hold(&"all".into(), true, fleet.now);
    // One version has another cluster, and one zone other endpoints, for which `n1` does not ask.
    fleet.push(|node| {
        let own = if label(node, "version") == "c" { 2 } else { 1 };
        own + if label(node, "zone") == "c" { 3 << 64 } else { 2 << 64 }
    });
    fleet.pass_until(7_200, |fleet| fleet.report("all").differs == 4);
    fleet.pass(60_000);
    fleet.silent = ["n3", "n4"].map(str::to_owned).into();
    fleet.proof.hold(&"all".into(), false, fleet.now);
    fleet.pass(6_000);
    assert_eq!(fleet.splits.len(), 0, "{:?}", fleet.splits);
    fleet.silent.clear();
    all_leave_the_first_class(&mut fleet, 90);
}

#[test]
fn prf_27_nobody_leaves_while_a_difference_in_another_type_has_no_explanation() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    without_witnesses(&mut fleet);
    fleet.type_of_b = super::bench::endpoints();
    for (name, team, zone) in
        [("n0", "red", "b"), ("n1", "blue", "a"), ("n2", "blue", "b"), ("n3", "blue", "a")]
    {
        fleet.class("all", &[(name, &[("team", team), ("zone", zone)])]);
    }
    fleet.push(|node| {
        let own = if node.id == "n1" { 2 } else { 1 };
        own + if is_blue(node) { 3 << 64 } else { 2 << 64 }
    });
    fleet.silent = ["n2", "n3"].map(str::to_owned).into();
    fleet.pass_until(7_200, has_diverged);
    fleet.silent.remove("n2");
    all_leave_the_first_class(&mut fleet, 90);
}

/// Four clients differ while the class waits, and the answer of one of them changes before the end of the wait.
fn after_a_changed_answer(changed: &'static str, is_held: bool, per_minute: u32) -> Fleet {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    for (name, [team, zone, version]) in [
        ("n0", ["b", "c", "c"]),
        ("n1", ["b", "c", "a"]),
        ("n2", ["c", "b", "a"]),
        ("n3", ["c", "b", "b"]),
        ("n4", ["c", "c", "a"]),
        ("n5", ["c", "b", "c"]),
    ] {
        fleet.class("all", &[(name, &[("team", team), ("zone", zone), ("version", version)])]);
    }
    without_witnesses(&mut fleet);
    let pace = ProofPace { per_minute, ..ProofPace::default() };
    let settings = ProofSettings {
        policy: Policy::Split,
        standing: Standing::Count(0),
        pace,
        ..ProofSettings::default()
    };
    fleet.proof.configure(settings, fleet.now);
    fleet.proof.hold(&"all".into(), is_held, fleet.now);
    if !is_held {
        fleet.proof.joined(&"all".into(), fleet.now);
    }
    let of_team = |node: &Node| if label(node, "team") == "c" { 2 } else { 1 };
    fleet.push(of_team);
    fleet.pass(3_590_000);
    assert_eq!((fleet.report("all").differs, fleet.splits.len()), (4, 0));
    fleet.push(move |node| of_team(node) + if node.id == changed { 3 << 64 } else { 0 });
    fleet.pass(11_000);
    fleet.proof.hold(&"all".into(), false, fleet.now);
    fleet
}

#[test]
fn prf_30_after_a_wait_the_answers_of_closed_samples_are_had_again() {
    for changed in ["n2", "n3", "n4", "n5"] {
        for is_held in [true, false] {
            let mut fleet = after_a_changed_answer(changed, is_held, 12);
            all_leave_the_first_class(&mut fleet, 90);
        }
    }
}

#[test]
fn prf_30_after_a_wait_nobody_leaves_for_a_minute_with_a_client_that_is_to_be_asked_again() {
    let mut fleet = after_a_changed_answer("nobody", true, 2);
    fleet.pass(30_000);
    assert_eq!(fleet.splits.len(), 0);
    fleet.pass_until(35, |fleet| fleet.wrong() == 0);
}

#[test]
fn prf_14_answers_of_closed_samples_are_had_again_where_content_is_encoded_at_random() {
    let mut fleet = kinds(&[["b", "c", "b"], ["a", "a", "b"], ["b", "a", "b"], ["b", "a", "a"]]);
    fleet.is_random = true;
    without_witnesses(&mut fleet);
    fleet.pass(240_000);
    fleet.push(|node| match (label(node, "team").as_str(), label(node, "version").as_str()) {
        ("a", _) => 2,
        (_, "a") => 3,
        _ => 1,
    });
    all_leave_the_first_class(&mut fleet, 7_200);
    assert_eq!(fleet.members_of("all"), 6);
}

#[test]
fn prf_27_several_explanations_in_the_end_split_by_all_of_their_fields() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    fleet.class("all", &[("n0", &[("team", "red"), ("zone", "a")])]);
    for name in ["n1", "n2", "n3"] {
        fleet.class("all", &[(name, &[("team", "blue"), ("zone", "b")])]);
    }
    fleet.pass(60_000);
    fleet.push(blue);
    fleet.pass_until(30, |fleet| fleet.wrong() == 0);
    let split = only_split(&fleet);
    assert_eq!(values(&split), [["\"blue\"", "\"b\""]]);
}

#[test]
fn prf_29_a_coarse_class_splits_for_all_of_its_answers_and_opens_no_breaker() {
    let mut fleet = Fleet::new(Policy::Split, |node| label(node, "app").bytes().map(u128::from).sum());
    for number in 0..40 {
        let (name, app) = (format!("n{number}"), format!("{}", b'a' + number % 8));
        fleet.class("all", &[(&name, &[("app", &app), ("zone", ["a", "b"][usize::from(number / 8 % 2)])])]);
    }
    fleet.pass_until(600, |fleet| fleet.wrong() == 0);
    assert_eq!(fleet.classes(), 8);
    assert_eq!(fleet.count(|happening| matches!(happening, Happening::Breaker { .. })), 0);
}

/// Classes of four clients each, two of them blue.
fn classes(count: usize, policy: Policy) -> Fleet {
    let mut fleet = Fleet::new(policy, |_| 1);
    for class in 0..count {
        for (number, team) in ["red", "red", "blue", "blue"].into_iter().enumerate() {
            fleet.class(&format!("c{class}"), &[(&format!("n{class}-{number}"), &[("team", team)])]);
        }
    }
    fleet.pass(300_000);
    fleet
}

#[test]
fn prf_29_four_classes_at_once_open_the_breaker_and_split_after_another_control() {
    let mut fleet = classes(4, Policy::Split);
    fleet.push(blue);
    fleet.pass_until(60, |fleet| fleet.count(|told| matches!(told, Happening::Breaker { .. })) == 1);
    let before = fleet.splits.len();
    let report = fleet.proof.report(fleet.now);
    assert!(report.breaker.is_some_and(|breaker| breaker.ends_in.as_secs() == 600));
    fleet.pass(595_000);
    assert_eq!(fleet.splits.len(), before);
    assert!((0..4).any(|class| fleet.report(&format!("c{class}")).state == ClassState::SplitWaits));
    fleet.pass_until(120, |fleet| fleet.wrong() == 0);
    assert_eq!(fleet.count(|told| matches!(told, Happening::Breaker { .. })), 1);
}

#[test]
fn prf_29_what_ends_within_the_pause_splits_nothing() {
    let mut fleet = classes(4, Policy::Split);
    fleet.obeys = false;
    fleet.push(blue);
    fleet.pass_until(60, |fleet| fleet.count(|told| matches!(told, Happening::Breaker { .. })) == 1);
    let before = fleet.splits.len();
    fleet.push(|_| 2);
    fleet.pass(1_200_000);
    assert_eq!((fleet.splits.len(), fleet.wrong()), (before, 0));
}

#[test]
fn prf_29_ten_classes_are_split_off_in_a_minute() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    for number in 0..60 {
        let app = format!("a{}", number / 4);
        fleet.class("all", &[(&format!("n{number}"), &[("app", &app)])]);
    }
    let settings = ProofSettings {
        policy: Policy::Split,
        standing: Standing::Count(30),
        pace: ProofPace { per_minute: 600, streams: 16, ..ProofPace::default() },
        ..ProofSettings::default()
    };
    fleet.proof.configure(settings, fleet.now);
    fleet.pass(120_000);
    fleet.push(|node| label(node, "app").bytes().map(u128::from).fold(0, |sum, byte| sum * 7 + byte));
    fleet.pass_until(300, |fleet| fleet.wrong() == 0);
    let tuples: Vec<u64> = fleet
        .splits
        .iter()
        .flat_map(|(at, split)| split.values.iter().map(|_| at.as_micros() / 1_000_000))
        .collect();
    assert_eq!(tuples.len(), 14);
    let most =
        tuples.iter().map(|one| tuples.iter().filter(|at| (*one..one + 60).contains(*at)).count()).max();
    assert_eq!(most, Some(10));
}

#[test]
fn prf_30_a_split_waits_for_the_end_of_a_held_push() {
    let mut fleet = settled(Policy::Split);
    fleet.proof.hold(&"all".into(), true, fleet.now);
    fleet.push(blue);
    fleet.pass(60_000);
    assert_eq!((fleet.splits.len(), fleet.report("all").state), (0, ClassState::SplitWaits));
    assert!(fleet.report("all").split_waits.is_some_and(|reason| reason.contains("promote")));
    assert_eq!(fleet.count(|told| matches!(told, Happening::SplitWaits { .. })), 1);
    fleet.proof.hold(&"all".into(), false, fleet.now);
    fleet.pass(200);
    assert_eq!((fleet.splits.len(), fleet.wrong()), (1, 0));
}

#[test]
fn prf_30_after_a_held_push_members_are_asked_again_before_they_leave() {
    let mut fleet = kinds(&[["b", "c", "a"], ["b", "b", "b"], ["c", "b", "a"], ["b", "b", "a"]]);
    without_witnesses(&mut fleet);
    fleet.proof.hold(&"all".into(), true, fleet.now);
    fleet.push(|node| if label(node, "team") == "b" && label(node, "version") == "a" { 2 } else { 1 });
    fleet.pass_until(7_200, |fleet| fleet.report("all").state == ClassState::SplitWaits);
    fleet.pass(60_000);
    let samples = |fleet: &Fleet| fleet.count(|told| matches!(told, Happening::Sampled { .. }));
    let before = samples(&fleet);
    fleet.proof.hold(&"all".into(), false, fleet.now);
    fleet.pass_until(10, |fleet| !fleet.splits.is_empty());
    assert!(samples(&fleet) > before);
    all_leave_the_first_class(&mut fleet, 7_200);
}

#[test]
fn prf_29_a_split_without_room_is_as_under_warn_and_is_tried_again() {
    let mut fleet = settled(Policy::Split);
    fleet.obeys = false;
    fleet.push(blue);
    fleet.pass_until(20, |fleet| !fleet.splits.is_empty());
    fleet.proof.split_refused(&"all".into(), "limits.node_classes has no room".into(), fleet.now);
    fleet.pass(60_000);
    assert_eq!((fleet.splits.len(), fleet.report("all").state), (1, ClassState::SplitWaits));
    assert!(fleet.report("all").split_waits.is_some_and(|reason| reason.contains("no room")));
    fleet.obeys = true;
    fleet.pass(545_000);
    assert_eq!((fleet.splits.len(), fleet.wrong()), (2, 0));
}

#[test]
fn prf_32_a_class_that_an_operator_joined_only_warns_for_an_hour() {
    let mut fleet = settled(Policy::Split);
    fleet.proof.joined(&"all".into(), fleet.now);
    fleet.push(blue);
    fleet.pass(3_590_000);
    assert_eq!((fleet.splits.len(), fleet.report("all").state), (0, ClassState::SplitWaits));
    fleet.pass(30_000);
    assert_eq!((fleet.splits.len(), fleet.wrong()), (1, 0));
}

#[test]
fn prf_27_members_that_were_not_moved_are_told_again_after_ten_minutes() {
    let mut fleet = settled(Policy::Split);
    fleet.obeys = false;
    fleet.push(blue);
    fleet.pass(590_000);
    assert_eq!(fleet.splits.len(), 1);
    fleet.pass(60_000);
    assert_eq!(fleet.splits.len(), 2);
    assert_eq!(values(&fleet.splits[0].1), values(&fleet.splits[1].1));
}

/// All clients have one answer, which changes every ten minutes.
fn flow(fleet: &mut Fleet, minutes: u64) {
    for step in 0..minutes / 10 {
        let version = 100 + u128::from(step) + u128::from(fleet.now.as_micros());
        fleet.push(move |_| version);
        fleet.pass(600_000);
    }
}

#[test]
fn prf_31_classes_with_equal_content_come_together_after_the_hold_and_two_changes() {
    let mut fleet = settled(Policy::Split);
    fleet.push(blue);
    fleet.pass_until(20, |fleet| fleet.wrong() == 0);
    flow(&mut fleet, 50);
    assert!(fleet.joins.is_empty(), "the split holds for an hour");
    flow(&mut fleet, 20);
    assert_eq!((fleet.joins.len(), fleet.classes()), (1, 1));
    assert_eq!(fleet.count(|told| matches!(told, Happening::Joined { .. })), 1);
    // The next split of the class holds for twice the time.
    fleet.push(blue);
    fleet.pass_until(600, |fleet| fleet.wrong() == 0);
    assert_eq!(fleet.splits[1].1.holds.as_secs(), 7_200);
    flow(&mut fleet, 110);
    assert_eq!(fleet.joins.len(), 1);
    flow(&mut fleet, 20);
    assert_eq!(fleet.joins.len(), 2);
}

#[test]
fn prf_31_equality_at_rest_brings_no_classes_together() {
    let mut fleet = settled(Policy::Split);
    fleet.push(blue);
    fleet.pass_until(20, |fleet| fleet.wrong() == 0);
    fleet.push(|_| 3);
    fleet.pass(7_200_000);
    assert!(fleet.joins.is_empty());
    // A difference on the way counts as a new begin.
    fleet.push(|_| 4);
    fleet.pass(60_000);
    assert_eq!(fleet.report("all/\"blue\"").split.unwrap().equal_over, 1);
    fleet.push(blue);
    fleet.pass(60_000);
    assert_eq!(fleet.report("all/\"blue\"").split.unwrap().equal_over, 0);
    for version in [5, 6] {
        fleet.push(move |_| version);
        fleet.pass(60_000);
    }
    assert!(fleet.joins.is_empty());
    fleet.push(|_| 7);
    fleet.pass(60_000);
    assert_eq!(fleet.joins.len(), 1);
}

#[test]
fn prf_30_classes_under_a_held_push_do_not_come_together() {
    let mut fleet = settled(Policy::Split);
    fleet.push(blue);
    fleet.pass_until(20, |fleet| fleet.wrong() == 0);
    for held in ["all", "all/\"blue\""] {
        fleet.proof.hold(&held.into(), true, fleet.now);
        flow(&mut fleet, 90);
        assert!(fleet.joins.is_empty(), "{held} is held");
        if held == "all" {
            fleet.proof.hold(&"all/\"blue\"".into(), true, fleet.now);
        }
        fleet.proof.hold(&held.into(), false, fleet.now);
    }
    fleet.pass(2_000);
    assert_eq!(fleet.joins.len(), 1);
}

#[test]
fn prf_32_a_split_of_before_a_restart_holds_for_the_rest_of_its_time() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    let hour = std::time::Duration::from_secs(3_600);
    fleet.proof.restore_split(
        RestoredSplit {
            class: "child".into(),
            parent: "all".into(),
            type_url: super::bench::clusters(),
            member_id: "n1".into(),
            age: hour,
            holds: 2 * hour,
        },
        fleet.now,
    );
    fleet.class("all", &[("n0", &[("team", "red")])]);
    fleet.class_of("child", "all", "n1", &[("team", "blue")]);
    assert_eq!(fleet.report("child").split.unwrap().age, hour);
    flow(&mut fleet, 50);
    assert!(fleet.joins.is_empty());
    flow(&mut fleet, 20);
    assert_eq!(fleet.joins, ["child".into()] as [ClassKey; 1]);
}

#[test]
fn prf_31_a_class_that_an_operator_split_off_is_the_operators() {
    let mut fleet = Fleet::new(Policy::Split, |_| 1);
    fleet.class("all", &[("n0", &[("team", "red")])]);
    fleet.class_of("child", "all", "n1", &[("team", "blue")]);
    flow(&mut fleet, 120);
    assert!(fleet.joins.is_empty());
    let report = fleet.report("child");
    assert_eq!((report.split_from.as_deref(), report.split), (Some("all"), None));
}

#[test]
fn prf_31_an_operators_class_with_values_of_a_split_is_the_operators() {
    let mut fleet = settled(Policy::Split);
    fleet.push(blue);
    fleet.pass_until(20, |fleet| fleet.wrong() == 0);
    fleet.class_of("zone", "all", "n99", &[("team", "blue"), ("zone", "a"), ("app", "x")]);
    fleet.proof.leave_to_operator(&"zone".into(), true, fleet.now);
    flow(&mut fleet, 120);
    assert_eq!(fleet.joins, ["all/\"blue\"".into()] as [ClassKey; 1]);
    assert_eq!(fleet.report("zone").split, None);
}

#[test]
fn prf_31_the_parts_of_a_class_come_together_before_the_class_goes() {
    let mut fleet = settled(Policy::Split);
    fleet.push(blue);
    fleet.pass_until(20, |fleet| fleet.wrong() == 0);
    fleet.push(|node| if is_blue(node) && label(node, "zone") == "b" { 3 } else { blue(node) });
    fleet.pass_until(7_200, |fleet| fleet.wrong() == 0);
    assert_eq!(fleet.split_classes(), ["all", "all/\"blue\""]);
    flow(&mut fleet, 300);
    let part = fleet.splits[1].1.values[0][0].clone().unwrap();
    assert_eq!(fleet.joins, [format!("all/\"blue\"/{part}").into(), "all/\"blue\"".into()] as [ClassKey; 2]);
}

#[test]
fn prf_31_a_class_that_lasts_after_its_return_holds_anew_when_it_is_split_off_again() {
    let mut fleet = settled(Policy::Split);
    fleet.lingers = true;
    fleet.push(blue);
    fleet.pass_until(20, |fleet| fleet.wrong() == 0);
    flow(&mut fleet, 80);
    assert_eq!((fleet.joins.len(), fleet.classes()), (1, 2));
    fleet.push(blue);
    fleet.pass_until(600, |fleet| fleet.wrong() == 0);
    let made = fleet.report("all/\"blue\"").split.unwrap();
    assert!(made.age.as_secs() <= 600 && made.holds.as_secs() == 7_200, "{made:?}");
    flow(&mut fleet, 110);
    assert_eq!(fleet.joins.len(), 1);
}

#[test]
fn prf_28_a_class_that_differs_is_refused_until_the_divergence_ends() {
    let mut fleet = settled(Policy::Refuse);
    fleet.push(blue);
    fleet.pass(30_000);
    assert_eq!((&*fleet.refusals, fleet.splits.len()), (&[(true, "all".into())][..], 0));
    fleet.push(|_| 2);
    fleet.pass(1_000);
    assert_eq!(fleet.refusals[1..], [(false, "all".into())]);
    fleet.push(blue);
    fleet.pass(70_000);
    assert_eq!(fleet.refusals.len(), 3);
    let settings = ProofSettings::default();
    fleet.proof.configure(settings, fleet.now);
    fleet.pass(1_000);
    assert_eq!(fleet.refusals[3..], [(false, "all".into())]);
}

#[test]
fn prf_29_the_breaker_takes_refusals_back() {
    let mut fleet = classes(4, Policy::Refuse);
    fleet.push(blue);
    fleet.pass_until(60, |fleet| fleet.count(|told| matches!(told, Happening::Breaker { .. })) == 1);
    let open =
        |fleet: &Fleet| fleet.refusals.iter().map(|refusal| if refusal.0 { 1 } else { -1 }).sum::<i32>();
    assert_eq!(open(&fleet), 0);
    fleet.pass(700_000);
    assert_eq!(open(&fleet), 4);
}

#[test]
fn prf_27_a_newcomer_with_a_split_value_changes_nothing() {
    let mut fleet = settled(Policy::Split);
    fleet.push(blue);
    fleet.pass_until(20, |fleet| fleet.wrong() == 0);
    // The driver's classification puts the newcomer into the class of the value.
    fleet.class_of("all/\"blue\"", "all", "n99", &[("team", "blue"), ("zone", "a"), ("app", "x")]);
    fleet.pass(3_600_000);
    assert_eq!((fleet.splits.len(), fleet.wrong()), (1, 0));
}
