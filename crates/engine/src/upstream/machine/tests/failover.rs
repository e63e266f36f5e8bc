//! Envoy's failover, by the rules E1 to E15 (FBK-20). E10 and E11 are about options that sluice lacks.

use super::script::{Script, check, delta};
use super::*;

fn failover() -> UpstreamSettings {
    UpstreamSettings { failover: true, ..delta() }
}

/// The servers of the opened streams, `-` for abandoned streams.
fn servers(outputs: &[Output]) -> String {
    let each = outputs.iter().filter_map(|output| match output {
        Output::Open { server, .. } => Some(server.to_string()),
        Output::Close => Some("-".to_owned()),
        _ => None,
    });
    each.collect()
}

/// Every attempt at a server that never answers, in order.
fn attempts(script: &mut Script, inputs: &[&str]) -> String {
    let mut asked = String::new();
    for input in inputs {
        asked += &servers(&script.raw(input));
        asked += &servers(&script.raw("after 6s"));
    }
    asked
}

#[test]
fn e_1_e_15_without_a_failover_server_everything_goes_to_the_one_there_is() {
    let mut script = Script::new(delta());
    assert_eq!(servers(&script.raw("+ CDS a")), "0");
    assert_eq!(attempts(&mut script, &["unconnected", "unconnected", "closed UNAVAILABLE"]), "0");
    assert_eq!(attempts(&mut script, &["closed UNAVAILABLE", "closed UNAVAILABLE"]), "00");
    script.raw("opened");
    script.raw("CDS - n a=1");
    assert_eq!(attempts(&mut script, &["closed UNAVAILABLE"]), "0");
}

#[test]
fn e_2_a_healthy_primary_is_the_only_one_that_is_asked() {
    let mut script = Script::new(failover());
    assert_eq!(servers(&script.raw("+ CDS a")), "0");
    script.raw("opened");
    script.raw("CDS - n a=1");
    assert_eq!(servers(&script.raw("after 3600s")), "");
}

#[test]
fn e_3_after_two_connections_that_failed_the_failover_server_is_asked() {
    check(
        failover(),
        "
        > + CDS a
        open Delta
        > unconnected
        unreachable UNAVAILABLE
        > after 60s
        > unconnected
        unreachable UNAVAILABLE
        close
        > after 0s
        open Delta at 1
        > reach
        lost 0ms UNAVAILABLE
        > opened
        send+node CDS n= +a
        > CDS - n a=1
        send CDS n=n
        Names CDS a=1
        > reach
        heard 60000ms
        ",
    );
}

#[test]
fn e_4_e_12_e_13_the_first_failure_retries_the_primary_and_the_second_goes_to_the_failover_server() {
    check(
        failover(),
        "
        > + CDS a
        open Delta
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 500ms
        unreachable UNAVAILABLE
        > after 500ms
        open Delta
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 0ms
        unreachable UNAVAILABLE
        > after 0s
        open Delta at 1
        ",
    );
}

#[test]
fn e_5_headers_alone_are_not_a_response() {
    let mut script = Script::new(failover());
    script.raw("+ CDS a");
    script.raw("opened");
    assert_eq!(attempts(&mut script, &["closed UNAVAILABLE"]), "0");
    script.raw("opened");
    assert_eq!(attempts(&mut script, &["closed UNAVAILABLE"]), "1");
}

#[test]
fn e_6_e_15_once_the_primary_has_answered_it_alone_is_asked() {
    let mut script = Script::new(UpstreamSettings { variant: Variant::Sotw, ..failover() });
    script.raw("+ CDS a");
    script.raw("opened");
    script.raw("CDS 1 n a=1");
    for _ in 0..7 {
        assert_eq!(servers(&script.raw("closed UNAVAILABLE")), "");
        assert_eq!(servers(&script.raw("after 60s")), "0");
    }
    assert_eq!(servers(&script.raw("unconnected")), "");
    assert_eq!(servers(&script.raw("unconnected")), "");
    assert_eq!(script.run("opened"), [r#"send+node CDS v=1 n= ["a"]"#], "with the version, and the node");
}

#[test]
fn e_7_when_the_failover_server_drops_the_stream_the_primary_is_asked_first_and_as_if_nothing_were_held() {
    for settings in [failover(), UpstreamSettings { variant: Variant::Sotw, ..failover() }] {
        let is_delta = settings.variant == Variant::Delta;
        let mut script = Script::new(settings);
        script.raw("+ CDS a");
        script.raw("+ EDS *");
        attempts(&mut script, &["closed UNAVAILABLE", "closed UNAVAILABLE"]);
        script.raw("opened");
        script.raw("CDS 7 n a=7");
        script.raw("EDS 7 n e=7");
        assert_eq!(script.upstream.server(), 1);
        script.raw("after 20s");
        script.raw("closed UNAVAILABLE");
        assert_eq!(servers(&script.raw("after 100ms")), "0");
        let expected = match is_delta {
            true => ["send+node CDS n= +a", "send EDS n= +*"],
            false => [r#"send+node CDS v= n= ["a"]"#, r#"send EDS v= n= ["*"]"#],
        };
        assert_eq!(script.run("opened"), expected);
        assert_eq!(servers(&script.raw("after 5s")), "");
    }
}

#[test]
fn e_8_the_failover_servers_own_versions_are_restored() {
    check(
        failover(),
        "
        > + CDS a b
        open Delta
        > + EDS e
        > + LDS *
        > + RDS r
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 500ms
        unreachable UNAVAILABLE
        > after 500ms
        open Delta
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 0ms
        unreachable UNAVAILABLE
        > after 0s
        open Delta at 1
        > opened
        send+node CDS n= +a +b
        send EDS n= +e
        send LDS n= +*
        send RDS n= +r
        > CDS - n a=1 b=2
        send CDS n=n
        Names CDS a=1 b=2
        > LDS - n l=3
        send LDS n=n
        Wildcard LDS l=3
        Wildcard LDS complete
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 50ms
        open Delta
        > - CDS b
        > opened
        send+node CDS n= +a
        send EDS n= +e
        send LDS n= +*
        send RDS n= +r
        > + CDS b
        send CDS n= +b
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 0ms
        unreachable UNAVAILABLE
        > after 0s
        open Delta at 1
        > opened
        send+node CDS n= +a +b a=1
        send EDS n= +e
        send LDS n= +* l=3
        send RDS n= +r
        ",
    );
}

#[test]
fn e_7_del_34_what_the_primary_answers_ends_the_versions_of_the_failover_server() {
    check(
        failover(),
        "
        > + CDS a b
        open Delta
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 500ms
        unreachable UNAVAILABLE
        > after 500ms
        open Delta
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 0ms
        unreachable UNAVAILABLE
        > after 0s
        open Delta at 1
        > opened
        send+node CDS n= +a +b
        > CDS - n a=1 b=1
        send CDS n=n
        Names CDS a=1 b=1
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +a +b
        > CDS - n a=8
        send CDS n=n
        Names CDS a=8
        > after 20s
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +a +b a=8
        ",
    );
}

#[test]
fn e_9_e_14_both_dead_are_asked_in_strict_turns() {
    for failure in ["closed UNAVAILABLE", "unconnected"] {
        let mut script = Script::new(failover());
        script.raw("+ CDS a");
        let asked = attempts(&mut script, &[failure; 12]);
        assert_eq!(
            asked.replace('-', ""),
            if failure == "unconnected" { "10101010101" } else { "010101010101" }
        );
    }
    // The waits of the rounds: half a second, growing to 5 s.
    let mut script = Script::new(failover());
    script.raw("+ CDS a");
    let mut waits = Vec::new();
    for _ in 0..16 {
        for line in script.run("closed UNAVAILABLE") {
            waits.extend(line.strip_prefix("disconnected UNAVAILABLE unanswered ").map(str::to_owned));
        }
        script.raw("after 6s");
    }
    let rounds: Vec<_> = waits.iter().filter(|wait| *wait != "0ms").map(String::as_str).collect();
    assert_eq!(
        rounds,
        ["500ms", "800ms", "1280ms", "2048ms", "3276ms", "5000ms", "5000ms", "5000ms"].to_vec()
    );
}

#[test]
fn e_9_a_failover_server_that_was_used_is_asked_again_after_one_failure_of_the_primary() {
    let mut script = Script::new(failover());
    script.raw("+ CDS a");
    attempts(&mut script, &["closed UNAVAILABLE", "closed UNAVAILABLE"]);
    for _ in 0..5 {
        script.raw("opened");
        script.raw("CDS - n a=1");
        script.raw("after 20s");
        assert_eq!(attempts(&mut script, &["closed UNAVAILABLE", "closed UNAVAILABLE"]), "01");
    }
}

#[test]
fn rly_25_delta_refused_by_one_server_is_still_asked_of_the_other() {
    check(
        failover(),
        r#"
        > + CDS a
        open Delta
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 0ms
        switched to SotW
        open Sotw
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 500ms
        unreachable UNAVAILABLE
        > after 500ms
        open Delta
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 0ms
        unreachable UNAVAILABLE
        > after 0s
        open Delta at 1
        > opened
        send+node CDS n= +a
        > CDS - n a=1
        send CDS n=n
        Names CDS a=1
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 0ms
        switched to SotW
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > closed OK
        disconnected OK unanswered 0ms
        unreachable OK
        > after 0s
        open Delta at 1
        > opened
        send+node CDS n= +a a=1
        "#,
    );
}

#[test]
fn g_8_whoever_comes_after_all_have_gone_is_asked_about_at_the_primary() {
    let mut script = Script::new(failover());
    script.raw("+ CDS a");
    attempts(&mut script, &["closed UNAVAILABLE", "closed UNAVAILABLE"]);
    script.raw("opened");
    script.raw("CDS - n a=1");
    script.raw("- CDS a");
    assert_eq!(servers(&script.raw("+ CDS a")), "0");
    assert_eq!(
        attempts(&mut script, &["closed UNAVAILABLE"]),
        "0",
        "and its first failure is the first again"
    );
}

#[test]
fn e_6_a_stream_moves_to_the_primary_that_answered_on_another_one() {
    let mut script = Script::new(failover());
    script.raw("+ CDS a");
    attempts(&mut script, &["closed UNAVAILABLE", "closed UNAVAILABLE"]);
    script.raw("opened");
    script.raw("CDS - n a=1");
    script.upstream.stay_with_primary(Time::ZERO);
    assert_eq!(script.run("going away"), ["close", "open Delta"]);
    assert_eq!(script.run("opened"), ["send+node CDS n= +a"]);
}
