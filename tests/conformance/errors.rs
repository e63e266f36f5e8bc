//! Resources that cannot be supplied: `resource_errors` of upstreams and for clients (ERR).

use std::collections::BTreeMap;

use crate::bench::Bench;
use crate::support::proto::Status;
use crate::support::{Answer, Ask, CDS, EDS, Item, LDS, Variant};

const NOT_FOUND: i32 = 5;
const INVALID_ARGUMENT: i32 = 3;
const PERMISSION_DENIED: i32 = 7;
const UNAVAILABLE: i32 = 14;

async fn scripted(upstream: Variant, classes: &str) -> Option<Bench> {
    Bench::scripted(|setup| setup.upstream(upstream).resource_timeout(60).line(classes)).await
}

/// An answer with these items and errors.
fn failing(type_url: &str, version: &str, items: &[(&str, &str)], errors: &[(&str, i32)]) -> Answer {
    let status = |code| Status { code, message: "why".to_owned() };
    Answer {
        type_url: type_url.to_owned(),
        version: version.to_owned(),
        items: items.iter().map(|(name, text)| Item::new(type_url, name, version, text)).collect(),
        errors: errors.iter().map(|(name, code)| ((*name).to_owned(), status(*code))).collect(),
        ..Answer::default()
    }
}

fn codes(errors: &BTreeMap<String, Status>) -> Vec<(&str, i32)> {
    errors.iter().map(|(name, status)| (name.as_str(), status.code)).collect()
}

/// ERR-9: an error reaches the subscribers of the name, with the code and the upstream's name; ERR-3: once;
/// ERR-4: the cached resource stays.
#[tokio::test]
async fn err_3_err_4_err_9_an_error_reaches_those_who_asked_for_the_name_once() {
    for upstream in Variant::BOTH {
        let Some(bench) = scripted(upstream, "").await else { return };
        let (mut one, mut other) = (bench.delta("one").await, bench.delta("two").await);
        one.want(EDS, &["a", "b"]);
        let asked = bench.origin.expect(EDS).await;
        let both = failing(EDS, "1", &[("b", "1")], &[("a", PERMISSION_DENIED)]);
        bench.origin.answer_raw(asked.stream, both);
        let answer = one.take(EDS).await;
        assert_eq!(codes(&answer.errors), [("a", PERMISSION_DENIED)]);
        assert_eq!(answer.errors["a"].message, format!("{}: why", bench.origin.address));
        assert_eq!(answer.names(), ["b"]);
        other.want(EDS, &["b"]);
        assert!(other.take(EDS).await.errors.is_empty());
        bench.origin.answer_raw(asked.stream, failing(EDS, "2", &[], &[("a", PERMISSION_DENIED)]));
        one.quiet().await;
        bench.origin.answer_raw(asked.stream, failing(EDS, "3", &[], &[("b", UNAVAILABLE)]));
        assert_eq!(codes(&one.take(EDS).await.errors), [("b", UNAVAILABLE)]);
        assert_eq!(codes(&other.take(EDS).await.errors), [("b", UNAVAILABLE)]);
        let state = bench.process().get("/resources?state=RECEIVED_ERROR").await.1;
        assert!(state.contains("UNAVAILABLE: ") && state.contains("PERMISSION_DENIED: "), "{state}");
        // The resource clears the error, although the resource is unchanged.
        bench.origin.answer_raw(asked.stream, failing(EDS, "1", &[("b", "1")], &[]));
        assert_eq!(one.take(EDS).await.texts(), [("b".to_owned(), "1".to_owned())]);
        assert_eq!(other.take(EDS).await.names(), ["b"]);
    }
}

/// ERR-5: NOT_FOUND.
#[tokio::test]
async fn err_5_not_found_is_a_removal_in_delta() {
    for upstream in Variant::BOTH {
        let Some(bench) = scripted(upstream, "").await else { return };
        let mut client = bench.delta("one").await;
        client.want(EDS, &["a"]);
        let asked = bench.origin.expect(EDS).await;
        bench.origin.answer_raw(asked.stream, failing(EDS, "1", &[], &[("a", NOT_FOUND)]));
        assert_eq!(client.take(EDS).await.removed, ["a"]);
        client.quiet().await;
    }
}

/// ERR-6: an entry without a name or status is rejected, and the rest of the response is used.
#[tokio::test]
async fn err_6_an_invalid_entry_is_nacked() {
    for upstream in Variant::BOTH {
        for errors in [[("a", 0)], [("", UNAVAILABLE)]] {
            let Some(bench) = scripted(upstream, "").await else { return };
            let mut client = bench.delta("one").await;
            client.want(EDS, &["a", "b"]);
            let asked = bench.origin.expect(EDS).await;
            bench.origin.answer_raw(asked.stream, failing(EDS, "1", &[("b", "1")], &errors));
            bench.origin.expect_that(EDS, |ask| ask.error.is_some()).await;
            let answer = client.take(EDS).await;
            assert_eq!((answer.names(), answer.errors.len()), (vec!["b"], 0));
        }
    }
}

/// ERR-8, SST-7: a client without `resource_errors` alone never gets an answer with errors only, nor a set
/// with a gap.
#[tokio::test]
async fn err_8_sst_7_errors_go_beside_data_unless_the_class_takes_them_alone() {
    for upstream in Variant::BOTH {
        let Some(bench) = scripted(upstream, "").await else { return };
        let mut client = bench.sotw("one").await;
        client.want(EDS, &["a", "b"]);
        let asked = bench.origin.expect(EDS).await;
        bench.origin.answer_raw(asked.stream, failing(EDS, "1", &[], &[("a", UNAVAILABLE)]));
        client.quiet().await;
        bench.origin.answer_raw(asked.stream, failing(EDS, "2", &[("b", "1")], &[]));
        let answer = client.take(EDS).await;
        assert_eq!((answer.names(), codes(&answer.errors)), (vec!["b"], vec![("a", UNAVAILABLE)]));
        client.send(Ask::of(LDS).names(&["a", "b"]).version("7"));
        let asked = bench.origin.expect(LDS).await;
        bench.origin.answer_raw(asked.stream, failing(LDS, "1", &[("a", "1")], &[("b", UNAVAILABLE)]));
        client.quiet().await;
        bench.origin.answer_raw(asked.stream, failing(LDS, "2", &[("a", "1"), ("b", "1")], &[]));
        client.settle(LDS, &[("a", "1"), ("b", "1")]).await;
    }
}

/// The same with the setting `resource_errors_alone`.
#[tokio::test]
async fn err_4_sst_7_with_the_setting_errors_are_an_answer() {
    let classes = "node_classes: [ { resource_errors_alone: true } ]";
    for upstream in Variant::BOTH {
        let Some(bench) = scripted(upstream, classes).await else { return };
        let mut client = bench.sotw("one").await;
        client.want(EDS, &["a", "b"]);
        let asked = bench.origin.expect(EDS).await;
        bench.origin.answer_raw(asked.stream, failing(EDS, "1", &[], &[("a", UNAVAILABLE)]));
        let answer = client.take(EDS).await;
        assert_eq!((answer.names().len(), codes(&answer.errors)), (0, vec![("a", UNAVAILABLE)]));
        bench.origin.answer_raw(asked.stream, failing(EDS, "2", &[], &[("b", NOT_FOUND)]));
        assert_eq!(codes(&client.take(EDS).await.errors), [("b", NOT_FOUND)], "RLY-34");
        client.want(LDS, &["a", "b"]);
        let asked = bench.origin.expect(LDS).await;
        bench.origin.answer_raw(asked.stream, failing(LDS, "1", &[("a", "1")], &[("b", UNAVAILABLE)]));
        let answer = client.take(LDS).await;
        assert_eq!((answer.names(), codes(&answer.errors)), (vec!["a"], vec![("b", UNAVAILABLE)]), "ERR-4");
    }
}

/// ERR-10, RLY-8: resources of an unreachable upstream are UNAVAILABLE, after about ten seconds.
#[tokio::test]
async fn err_10_rly_8_an_unreachable_upstream_is_unavailable_and_never_not_found() {
    let Some(mut bench) = scripted(Variant::Delta, "").await else { return };
    bench.origin.down().await;
    let (mut delta, mut sotw) = (bench.delta("one").await, bench.sotw("two").await);
    delta.want(CDS, &["a"]);
    sotw.want(CDS, &["a"]);
    let answer = delta.take(CDS).await;
    assert_eq!((codes(&answer.errors), answer.removed.len()), (vec![("a", UNAVAILABLE)], 0));
    sotw.silence(std::time::Duration::from_millis(100)).await;
}

/// TMR-5: with `resource_timer_is_transient_error` silence does not mean absence.
#[tokio::test]
async fn tmr_5_silence_is_unavailable_where_the_server_reports_absence() {
    let feature = "server_features: [ resource_timer_is_transient_error ]";
    let Some(bench) = Bench::scripted(|setup| setup.server_line(feature)).await else { return };
    let mut client = bench.delta("one").await;
    client.want(EDS, &["a"]);
    let answer = client.take(EDS).await;
    assert_eq!((codes(&answer.errors), answer.removed.len()), (vec![("a", UNAVAILABLE)], 0));
}

/// The state of a name in the admin listener, after the metric counts `count` names under `label`.
async fn state_of(bench: &Bench, name: &str, label: &str, count: f64) -> String {
    let labels = [r#"type="ClusterLoadAssignment""#, &format!(r#"state="{label}""#)];
    bench.process().metric_reaches("sluice_cache_resource_states", &labels, count).await;
    let resources = bench.process().json(&format!("/resources?name={name}")).await;
    resources["resources"][0]["state"].as_str().unwrap_or_default().to_owned()
}

/// DAT-2, DAT-5, DAT-8: PERMISSION_DENIED and an invalid resource keep the cached copy, or remove the copy
/// with the feature.
#[tokio::test]
async fn dat_2_dat_5_a_data_error_takes_the_copy_with_fail_on_data_errors_only() {
    for fails in [false, true] {
        let feature = if fails { "server_features: [ fail_on_data_errors ]" } else { "server_features: []" };
        let Some(bench) = Bench::scripted(|setup| setup.upstream(Variant::Delta).server_line(feature)).await
        else {
            return;
        };
        let mut client = bench.delta("one").await;
        client.want(EDS, &["a", "b"]);
        let asked = bench.origin.expect(EDS).await;
        bench.origin.answer_raw(asked.stream, failing(EDS, "1", &[("a", "1"), ("b", "1")], &[]));
        client.take(EDS).await;
        bench.origin.answer_raw(asked.stream, failing(EDS, "2", &[], &[("a", PERMISSION_DENIED)]));
        let answer = client.take(EDS).await;
        let expected = |code| if fails { Vec::new() } else { vec![code] };
        let gone = |name: &'static str| if fails { vec![name] } else { Vec::new() };
        assert_eq!(codes(&answer.errors), expected(("a", PERMISSION_DENIED)));
        assert_eq!(answer.removed, gone("a"));
        // A cluster instead of an assignment.
        let wrong = Answer { items: vec![Item::new(CDS, "b", "2", "2")], ..failing(EDS, "3", &[], &[]) };
        bench.origin.answer_raw(asked.stream, wrong);
        bench.origin.expect_that(EDS, |ask| ask.error.is_some()).await;
        let answer = client.take(EDS).await;
        assert_eq!(codes(&answer.errors), expected(("b", INVALID_ARGUMENT)));
        assert_eq!(answer.removed, gone("b"));
        let (errored, nacked) = match fails {
            true => ("received_error", "nacked"),
            false => ("received_error_but_cached", "nacked_but_cached"),
        };
        assert_eq!(state_of(&bench, "a", errored, 1.0).await, "RECEIVED_ERROR");
        assert_eq!(state_of(&bench, "b", nacked, 1.0).await, "NACKED");
        let mut late = bench.delta("two").await;
        late.want(EDS, &["a"]);
        let answer = late.take(EDS).await;
        let copy = if fails { Vec::new() } else { vec!["a"] };
        assert_eq!(
            (answer.names(), answer.removed.clone()),
            (copy, gone("a").into_iter().map(String::from).collect()),
            "DAT-6"
        );
        // Both resources come back.
        bench.origin.answer_raw(asked.stream, failing(EDS, "4", &[("a", "4"), ("b", "4")], &[]));
        assert_eq!(client.take(EDS).await.names(), ["a", "b"]);
        assert_eq!(state_of(&bench, "a", "acked", 2.0).await, "ACKED");
    }
}
