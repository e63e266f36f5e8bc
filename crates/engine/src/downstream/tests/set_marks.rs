//! Marks for another sluice: complete collections (ADR 14).

use super::bench::{Bench, CDS, EDS, url, version_of};
use crate::downstream::Portion;
use sluice_xds::{DeltaRequest, Request};

#[test]
fn del_26_a_wildcard_is_marked_when_it_is_known_as_a_whole() {
    let mut bench = Bench::cold();
    let (sluice, other) = (bench.sluice(), bench.delta());
    bench.change(sluice, CDS, "");
    bench.change(other, CDS, "");
    bench.says_of_all(CDS, "a=1 b=1", false);
    assert_eq!(bench.drain(sluice), "Cluster a=1 b=1");
    assert_eq!(bench.drain(other), "Cluster a=1 b=1");
    // There is no content to send, and the other client receives no mark.
    bench.says_of_all(CDS, "", true);
    assert_eq!(bench.drain(sluice), "Cluster (2: whole)");
    assert_eq!(bench.drain(other), "");
    bench.says_of_all(CDS, "c=1", true);
    assert_eq!(bench.drain(sluice), "Cluster c=1");
    assert_eq!(bench.drain(other), "Cluster c=1");
}

#[test]
fn del_26_a_mark_goes_with_the_answer_that_others_share() {
    let mut bench = Bench::cold();
    let (sluice, other) = (bench.sluice(), bench.delta());
    bench.change(sluice, CDS, "");
    bench.change(other, CDS, "");
    bench.says_of_all(CDS, "a=1 b=1", true);
    assert_eq!(bench.drain(sluice), "Cluster a=1 b=1 (1: whole)");
    assert_eq!(bench.drain(other), "Cluster a=1 b=1");
    assert_eq!(bench.composed.len(), 1, "14: encoded once");
}

#[test]
fn del_25_an_empty_wildcard_is_marked_too() {
    let mut bench = Bench::cold();
    let (sluice, other) = (bench.sluice(), bench.delta());
    bench.change(sluice, CDS, "");
    bench.change(other, CDS, "");
    bench.says_of_all(CDS, "", true);
    assert_eq!(bench.drain(sluice), "Cluster (1: whole)");
    assert_eq!(bench.drain(other), "Cluster");
}

#[test]
fn sst_13_the_mark_goes_with_the_last_message() {
    let mut bench = Bench::cold();
    let sluice = bench.sluice();
    bench.change(sluice, CDS, "");
    bench.says_of_all(CDS, "a=1~2500000 b=1~2500000 c=1~2500000", true);
    assert_eq!(bench.drain(sluice), "Cluster a=1; Cluster b=1; Cluster c=1 (3: whole)");
}

#[test]
fn rly_6_a_relay_that_comes_back_is_marked_what_it_holds_already() {
    let mut bench = Bench::cold();
    let sluice = bench.sluice();
    let held = [("a", version_of(CDS, "a=1")), ("b", version_of(CDS, "b=1"))];
    bench.change_with(sluice, CDS, "", "", &held, None);
    bench.says_of_all(CDS, "a=1", false);
    assert_eq!(bench.drain(sluice), "");
    bench.says_of_all(CDS, "", true);
    assert_eq!(bench.drain(sluice), "Cluster -b (1: whole)");
    let sluice = bench.sluice();
    bench.change_with(sluice, CDS, "", "", &held[..1], None);
    assert_eq!(bench.drain(sluice), "Cluster (1: whole)");
}

#[test]
fn tmr_3_names_are_marked_when_none_is_unknown() {
    let mut bench = Bench::cold();
    let sluice = bench.sluice();
    bench.change(sluice, EDS, "+a +b");
    bench.says(EDS, "a=1");
    assert_eq!(bench.drain(sluice), "ClusterLoadAssignment a=1");
    bench.change(sluice, EDS, "+c");
    bench.says(EDS, "-b");
    assert_eq!(bench.drain(sluice), "ClusterLoadAssignment -b");
    bench.says(EDS, "c=1");
    assert_eq!(bench.drain(sluice), "ClusterLoadAssignment c=1 (4: whole)");
    // The answer to a later request implies the mark.
    bench.change(sluice, EDS, "+d");
    bench.says(EDS, "-d");
    assert_eq!(bench.drain(sluice), "ClusterLoadAssignment -d");
    let other = bench.sluice();
    let held = [("a", version_of(EDS, "a=1"))];
    bench.change_with(other, EDS, "+a", "", &held, None);
    assert_eq!(bench.drain(other), "ClusterLoadAssignment (1: whole)");
}

#[test]
fn nam_16_globs_are_marked_one_by_one() {
    const F: &str = "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/f/*";
    const G: &str = "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/g/*";
    let mut bench = Bench::cold();
    let sluice = bench.sluice();
    bench.change(sluice, EDS, &format!("+{F} +{G}"));
    let member = F.replace('*', "x");
    bench.says_of_globs(EDS, &format!("{member}=1"), "");
    assert_eq!(bench.drain(sluice), format!("ClusterLoadAssignment {member}=1"));
    bench.says_of_globs(EDS, "", F);
    assert_eq!(bench.drain(sluice), format!("ClusterLoadAssignment (2: {F})"));
    bench.says_of_globs(EDS, "", G);
    assert_eq!(bench.drain(sluice), format!("ClusterLoadAssignment -{G} (3: whole {G})"));
    // The client gives up the glob and asks for the glob again.
    bench.change(sluice, EDS, &format!("-{F}"));
    bench.change(sluice, EDS, &format!("+{F}"));
    assert_eq!(bench.drain(sluice), format!("ClusterLoadAssignment {member}=1 (6: {F})"));
}

#[test]
fn flw_2_a_mark_waits_for_the_ack_as_any_response() {
    let mut bench = Bench::cold();
    let sluice = bench.sluice();
    bench.change(sluice, CDS, "");
    bench.says_of_all(CDS, "a=1", false);
    bench.drain(sluice);
    bench.says_of_all(CDS, "b=1", false);
    assert_eq!(bench.poll(sluice), "Cluster b=1");
    bench.says_of_all(CDS, "", true);
    assert_eq!(bench.poll(sluice), "");
    bench.ack(sluice, CDS);
    assert_eq!(bench.poll(sluice), "Cluster (3: whole)");
    bench.ack(sluice, CDS);
    assert_eq!(bench.poll(sluice), "");
}

#[test]
fn no_mark_weighs_as_much_as_a_response() {
    let glob = |number| format!("xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/{number}/*");
    let globs: Vec<_> = (0..1500).map(glob).collect();
    let mut bench = Bench::cold();
    let sluice = bench.sluice();
    bench.change(sluice, EDS, &globs.iter().map(|glob| format!("+{glob} ")).collect::<String>());
    bench.says_of_globs(EDS, "", &globs.join(" "));
    let said = bench.drain(sluice);
    let marks: Vec<_> = said.split("; ").filter_map(|message| message.split_once('(')).collect();
    let counts: Vec<_> = marks.iter().map(|(_, mark)| mark.matches("/*").count()).collect();
    assert_eq!(counts, [1000, 500]);
}

/// ADR 66: a mark speaks of the requests whose names were taken.
#[test]
fn del_26_a_mark_counts_no_request_whose_names_wait() {
    let mut bench = Bench::cold();
    let sluice = bench.sluice();
    let request = |subscribe: &[&str]| {
        let subscribe = subscribe.iter().map(|name| (*name).into()).collect();
        let type_url = url(CDS).as_str().to_owned();
        Request::Delta(DeltaRequest { type_url, subscribe, ..DeltaRequest::default() })
    };
    bench.change(sluice, CDS, "");
    bench.try_portion(sluice, request(&[]), Portion::Verdict).unwrap();
    bench.says_of_all(CDS, "a=1", true);
    assert_eq!(bench.drain(sluice), "Cluster a=1 (1: whole)");
    bench.try_portion(sluice, request(&["*"]), Portion::Waited(3)).unwrap();
    // The ACK, and three requests.
    assert_eq!(bench.drain(sluice), "Cluster a=1 (5: whole)");
}
