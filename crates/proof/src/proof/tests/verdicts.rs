//! Equal, lag, differs, restless, or no word.

use super::bench::*;
use crate::proof::*;
use sluice_xds::Code;

const OLD: Members<'_> = &[("a", 1), ("b", 1)];
const NEW: Members<'_> = &[("a", 2), ("b", 1)];

fn bench() -> Bench {
    let mut bench = Bench::new(ProofSettings::default(), &[("team", "red")]);
    bench.member(1, "m1", &[("team", "blue")]);
    bench.publish(wildcard(&clusters(), OLD));
    bench
}

/// A sample of `m1` with another version of `a`, due.
fn with_difference() -> (Bench, ShadowId) {
    let mut bench = bench();
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), NEW));
    bench.pass(5_100);
    bench.differs();
    (bench, sample)
}

#[test]
fn prf_11_equal_content_is_an_equal_sample_at_once() {
    let mut bench = bench();
    let sample = bench.wait_for(ShadowKind::Sample);
    assert_eq!(bench.shown(sample), "m1");
    bench.answer(sample, wildcard(&clusters(), OLD));
    assert_eq!(bench.results(), [SampleResult::Equal]);
    let report = bench.report();
    assert_eq!((report.state, report.samples, report.sampled_members), (ClassState::Proved, 1, 1));
}

#[test]
fn prf_11_an_unknown_side_is_no_word() {
    let mut bench = bench();
    let sample = bench.wait_for(ShadowKind::Sample);
    let mut content = wildcard(&clusters(), NEW);
    content.types.get_mut(&clusters()).unwrap().standing.is_current = false;
    bench.answer(sample, content);
    bench.pass(29_000);
    assert!(bench.results().is_empty());
    bench.pass(2_000);
    assert_eq!(bench.results(), [SampleResult::NoWord]);
}

#[test]
fn prf_12_a_version_that_the_class_had_lately_is_lag() {
    let mut bench = bench();
    bench.publish(wildcard(&clusters(), NEW));
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), OLD));
    bench.pass(40_000);
    assert!(bench.find(ShadowKind::Second).is_none() && bench.questions.is_empty());
    bench.answer(sample, wildcard(&clusters(), NEW));
    assert_eq!(bench.results(), [SampleResult::Equal]);
}

#[test]
fn prf_13_a_shadow_behind_for_longer_than_the_window_is_told_as_lagging() {
    let mut bench = bench();
    bench.publish(wildcard(&clusters(), NEW));
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), OLD));
    bench.pass(66_000);
    bench.differs();
    let second = bench.wait_for(ShadowKind::Second);
    bench.answer(second, wildcard(&clusters(), NEW));
    bench.pass(2_000);
    assert_eq!(bench.results(), [SampleResult::Lag]);
    assert!(
        bench
            .happenings
            .iter()
            .any(|happening| matches!(happening, Happening::Lagging { who: Lagging::Shadow(_), .. }))
    );
}

#[test]
fn prf_13_a_difference_counts_once_it_has_stood_for_settle() {
    let mut bench = bench();
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), NEW));
    bench.pass(4_000);
    bench.answer(sample, wildcard(&clusters(), &[("a", 3), ("b", 1)]));
    bench.pass(4_000);
    assert!(bench.questions.is_empty(), "the shadow's side changed");
    bench.pass(1_100);
    assert_eq!(bench.questions.len(), 1);
}

#[test]
fn prf_14_equal_meaning_is_no_difference_and_is_told_once() {
    let mut bench = bench();
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), NEW));
    bench.pass(5_100);
    bench.mean(&Meaning::Equal { ignored: Vec::new() });
    assert_eq!(bench.results(), [SampleResult::Equal]);
    assert!(bench.happenings.iter().any(|happening| matches!(happening, Happening::Encoding { .. })));
}

#[test]
fn prf_16_a_difference_is_confirmed_by_the_member_again_and_then_by_the_class() {
    let (mut bench, sample) = with_difference();
    let second = bench.wait_for(ShadowKind::Second);
    assert_eq!(bench.shown(second), "m1");
    bench.answer(second, wildcard(&clusters(), NEW));
    assert!(
        bench.find(ShadowKind::Control).is_none(),
        "whether the server bears two streams of one id is unknown"
    );
    bench.pass(1_100);
    let control = bench.find(ShadowKind::Control).unwrap();
    assert_eq!(bench.shown(control), "rep");
    bench.answer(control, wildcard(&clusters(), OLD));
    bench.pass(1_100);
    let divergences = bench.divergences();
    assert_eq!(divergences.len(), 1);
    let divergence = &divergences[0];
    assert_eq!((divergence.name_count, divergence.clients), (1, 1));
    assert_eq!(divergence.names[0].name, "a".into());
    assert_eq!(divergence.names[0].paths, ["circuit_breakers".into()]);
    assert_eq!(divergence.explained_by, [["metadata.team".into()]]);
    assert_eq!(divergence.suspect_values, [["\"blue\"".into()]]);
    assert_eq!((&*divergence.member_id, &*divergence.representative_id), ("m1", "rep"));
    assert_eq!(bench.results(), [SampleResult::Differs]);
    assert_eq!(bench.report().state, ClassState::Differs);
    assert!(bench.closed.contains(&second) && bench.closed.contains(&control));
    assert_eq!(bench.shadows[&sample].kind, ShadowKind::Witness, "the sample watches the difference");
}

#[test]
fn prf_16_a_divergence_ends_when_its_member_is_equal_again() {
    let (mut bench, sample) = with_difference();
    confirm(&mut bench, NEW, OLD);
    assert_eq!(bench.divergences().len(), 1);
    bench.answer(sample, wildcard(&clusters(), OLD));
    bench.pass(400);
    assert!(bench.happenings.iter().any(|happening| matches!(happening, Happening::DivergenceEnded(_))));
    assert_eq!((bench.report().state, bench.report().differs), (ClassState::Proved, 0));
}

#[test]
fn prf_16_a_control_like_neither_makes_the_name_restless() {
    let (mut bench, _) = with_difference();
    confirm(&mut bench, NEW, &[("a", 4), ("b", 1)]);
    // The control's body is compared with those of both sides.
    bench.differs();
    bench.differs();
    bench.pass(31_000);
    assert_eq!(bench.results(), [SampleResult::Restless]);
    assert!(bench.divergences().is_empty());
    let report = bench.report();
    assert_eq!((report.state, report.restless[0].2), (ClassState::Restless, 1));
}

#[test]
fn prf_16_a_stamp_in_each_answer_is_restless_and_no_divergence() {
    let (mut bench, _) = with_difference();
    let second = bench.wait_for(ShadowKind::Second);
    bench.answer(second, wildcard(&clusters(), &[("a", 3), ("b", 1)]));
    bench.differs();
    bench.differs();
    bench.pass(31_000);
    assert!(bench.divergences().is_empty());
    assert_eq!(bench.results(), [SampleResult::Restless]);
    // The name has left the proof, so the next sample of the class is equal.
    bench.member(2, "m2", &[("team", "green")]);
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), &[("a", 9), ("b", 1)]));
    assert_eq!(bench.results(), [SampleResult::Restless, SampleResult::Equal]);
}

/// Answers the second and the control.
fn confirm(bench: &mut Bench, second: Members<'_>, control: Members<'_>) {
    let id = bench.wait_for(ShadowKind::Second);
    bench.answer(id, wildcard(&clusters(), second));
    let id = bench.wait_for(ShadowKind::Control);
    bench.answer(id, wildcard(&clusters(), control));
    bench.pass(1_100);
}

#[test]
fn prf_12_a_late_stream_of_the_class_is_no_divergence() {
    let (mut bench, _) = with_difference();
    confirm(&mut bench, NEW, NEW);
    bench.pass(10_000);
    assert!(bench.divergences().is_empty() && bench.results().is_empty());
    bench.publish(wildcard(&clusters(), NEW));
    bench.pass(400);
    assert_eq!(bench.results(), [SampleResult::Equal]);
}

#[test]
fn prf_18_shadows_on_several_connections_prove_nothing() {
    let (mut bench, _) = with_difference();
    let second = bench.wait_for(ShadowKind::Second);
    bench.answer_on(second, wildcard(&clusters(), NEW), 2);
    bench.pass(70_000);
    assert!(bench.divergences().is_empty());
    assert_eq!(bench.results(), [SampleResult::NoWord]);
}

#[test]
fn prf_18_a_second_and_a_control_on_one_connection_decide_wherever_the_sample_is() {
    for (control_on, is_told) in [(2, true), (1, false)] {
        let (mut bench, sample) = with_difference();
        let second = bench.wait_for(ShadowKind::Second);
        bench.answer_on(second, wildcard(&clusters(), NEW), 2);
        let control = bench.wait_for(ShadowKind::Control);
        bench.answer_on(control, wildcard(&clusters(), OLD), control_on);
        bench.pass(1_100);
        assert_eq!(!bench.divergences().is_empty(), is_told);
        if !is_told {
            // Another sample of the same member takes the place of a torn one.
            let again = bench.wait_for(ShadowKind::Sample);
            assert!(again != sample && bench.shown(again) == "m1");
        }
    }
}

#[test]
fn prf_8_a_secret_bearing_type_is_compared_by_version_without_paths() {
    let mut bench = bench();
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, wildcard(&clusters(), NEW));
    bench.pass(5_100);
    bench.mean(&Meaning::HasSecret);
    assert!(bench.happenings.iter().any(|happening| matches!(happening, Happening::SecretBearing { .. })));
    confirm(&mut bench, NEW, OLD);
    let divergence = bench.divergences().remove(0);
    assert!(divergence.names[0].paths.is_empty() && bench.questions.is_empty());
}

#[test]
fn prf_7_secrets_are_counted_and_never_named() {
    let mut bench = Bench::new(ProofSettings { compares_secrets: true, ..ProofSettings::default() }, &[]);
    let names: std::sync::Arc<[Wanted]> = [(
        secrets(),
        sluice_engine::collection::Collection::Names(std::sync::Arc::new(name_set(&["s", "t"]))),
    )]
    .into();
    let secret = |version| named(&secrets(), &[("s", Some(version)), ("t", None)]);
    bench.member_as(1, Member { wants: names, ..member(&node("m1", &[])) });
    bench.publish(secret(1));
    let sample = bench.wait_for(ShadowKind::Sample);
    bench.answer(sample, secret(2));
    bench.pass(5_100);
    for (kind, version) in [(ShadowKind::Second, 2), (ShadowKind::Control, 1)] {
        let id = bench.wait_for(kind);
        bench.answer(id, secret(version));
    }
    bench.pass(1_100);
    let divergence = bench.divergences().remove(0);
    assert_eq!((divergence.names.len(), divergence.name_count, divergence.compared), (0, 1, 2));
    assert!(bench.questions.is_empty());
}

#[test]
fn prf_13_names_that_never_rest_are_told_apart_by_their_versions() {
    let mut bench = bench();
    let sample = bench.wait_for(ShadowKind::Sample);
    // Hashes, as versions are.
    let version = |number: u128| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    // The shadow is 3 s late, with 1,000 changes a second.
    for step in 3_000..9_000 {
        bench.publish(wildcard(&clusters(), &[("a", version(step)), ("b", 1)]));
        bench.answer(sample, wildcard(&clusters(), &[("a", version(step - 3_000)), ("b", 1)]));
        bench.pass(1);
    }
    assert!(bench.find(ShadowKind::Second).is_none() && bench.questions.is_empty());
    assert!(bench.divergences().is_empty());
}

#[test]
fn prf_1_a_server_that_is_lost_voids_the_sample() {
    let mut bench = bench();
    let sample = bench.wait_for(ShadowKind::Sample);
    let around = Surroundings { is_unwell: true, clients: 2, ..Surroundings::default() };
    bench.proof.surroundings(around, bench.now);
    bench.end(sample, Code::Unavailable);
    assert!(bench.results().is_empty() && bench.report().sampled_members == 0);
}
