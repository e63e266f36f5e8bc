//! Versions that are lower than the versions before: FU21.

use super::script::{Script, delta, rest, sotw};
use super::*;

/// Runs the lines. Returns the backward steps of each response: `NAME 5>4`, `-` for a response of SotW as a
/// whole.
fn backwards(settings: UpstreamSettings, lines: &str) -> Vec<String> {
    let mut script = Script::new(settings);
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let outputs: Vec<_> = lines.flat_map(|line| script.raw(line)).collect();
    let told = outputs.iter().filter_map(|output| match output {
        Output::Event(Event::WentBackwards { lower: Lower { name, version, before }, .. }) => {
            Some(format!("{} {before}>{version}", name.as_ref().map_or("-", ResourceName::as_str)))
        }
        _ => None,
    });
    told.collect()
}

#[test]
fn fu_21_delta_versions_are_of_resources() {
    let wildcard = "
        + CDS *
        opened
        CDS - n1 a=5 b=9
        CDS - n2 b=10
        CDS - n3 a=4 b=3
        CDS - n4 a=4
        CDS - n5 a=x b=v12
        CDS - n6 a=1 b=v9
        ";
    let expected = ["a 5>4", "b v12>v9"];
    assert_eq!(backwards(delta(), wildcard), expected, "once for each response");
    assert_eq!(backwards(delta(), &wildcard.replace('*', "a b")), expected);
    let glob = "
        + CDS xdstp://x/envoy.config.cluster.v3.Cluster/*
        opened
        CDS - n1 xdstp://x/envoy.config.cluster.v3.Cluster/a=5
        CDS - n2 xdstp://x/envoy.config.cluster.v3.Cluster/a=4
        ";
    assert_eq!(backwards(delta(), glob), ["xdstp://x/envoy.config.cluster.v3.Cluster/a 5>4"]);
}

#[test]
fn fu_21_sotw_versions_are_of_responses() {
    let lines = "
        + EDS a b
        opened
        EDS 5 n1 a=9 b=9
        EDS 6 n2 a=8
        EDS 4 n3 b=10
        EDS 4 n4 b=11
        ";
    assert_eq!(backwards(sotw(), lines), ["- 6>4"]);
}

/// An unused response counts for nothing, and a partly rejected response is no base for comparisons.
#[test]
fn fu_21_what_is_not_accepted_is_not_compared_with() {
    let lines = "
        + EDS a b
        opened
        EDS 5 n1 a=5
        EDS 4 n2 a=4 a=4
        EDS 9 n3 a=9 !b
        EDS 8 n4 a=8
        ";
    assert_eq!(backwards(sotw(), lines), [""; 0]);
}

/// Another process may answer on a new stream, and count from the start again. The restart is no fault.
#[test]
fn fu_21_the_first_response_of_a_stream_is_compared_with_none() {
    let lines = "
        + CDS *
        opened
        CDS 5 n1 a=5
        closed UNAVAILABLE
        after 60s
        opened
        CDS 2 n1 a=2
        CDS 1 n2 a=1
        ";
    assert_eq!(backwards(delta(), lines), ["a 2>1"]);
    assert_eq!(backwards(sotw(), lines), ["- 2>1"]);
}

/// A load balancer may lead one stream, or the polls of one connection, to another process.
#[test]
fn fu_21_another_control_plane_is_compared_with_none() {
    let lines = "
        + CDS *
        opened
        CDS 9 n1 a=9 @one
        CDS 2 n2 a=2 @two
        CDS 1 n3 a=1 @two
        CDS 5 n4 a=5
        CDS 4 n5 a=4
        ";
    assert_eq!(backwards(delta(), lines), ["a 2>1", "a 5>4"]);
    assert_eq!(backwards(sotw(), lines), ["- 2>1", "- 5>4"]);
}

/// Polls have no nonces. A step backwards between two answered polls counts, a step after an outage does not.
#[test]
fn fu_21_polls_are_compared_while_they_are_answered() {
    let lines = "
        + CDS *
        opened
        CDS 5 - a=5
        closed OK
        after 20s
        opened
        CDS 3 - a=3
        closed OK
        after 20s
        opened
        closed UNAVAILABLE
        after 60s
        opened
        CDS 1 - a=1
        closed OK
        ";
    assert_eq!(backwards(rest(), lines), ["- 5>3"]);
    let moved = lines.replace("CDS 5 -", "CDS 5 - @one").replace("CDS 3 -", "CDS 3 - @two");
    assert_eq!(backwards(rest(), &moved), [""; 0]);
}

/// ALI-2: an alias that moves to another resource has another line of versions.
#[test]
fn fu_21_an_alias_moves_to_another_resource() {
    let lines = "
        + CDS x
        opened
        CDS - n1 a=5/x
        CDS - n2 b=4/x
        CDS - n3 b=3/x
        ";
    assert_eq!(backwards(delta(), lines), ["b 4>3"]);
}
