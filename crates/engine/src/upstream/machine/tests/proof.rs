//! The evidence of a stream: the server can be heard, and a type is current.

use super::script::{Script, check, delta, rest, sotw, type_url};
use super::*;

/// A stream that answers `a`, and ends after `lives`.
fn short_stream(script: &mut Script, lives: &str) -> Vec<String> {
    script.raw("opened");
    script.raw("CDS - n a=1");
    script.raw(&format!("after {lives}"));
    let said = script.run("closed INTERNAL");
    script.raw("after 30s");
    said
}

fn is_lost(script: &mut Script) -> bool {
    script.upstream.reach().is_lost()
}

const FIVE_SHORT_STREAMS: &str = "
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > CDS - n a=1
        send CDS n=n
        Names CDS a=1
        > closed INTERNAL
        disconnected INTERNAL answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +a a=1
        > CDS - n
        send CDS n=n
        > closed INTERNAL
        disconnected INTERNAL answered 1000ms
        > after 1s
        open Delta
        > opened
        send+node CDS n= +a a=1
        > CDS - n
        send CDS n=n
        > closed INTERNAL
        disconnected INTERNAL answered 1600ms
        > after 1600ms
        open Delta
        > opened
        send+node CDS n= +a a=1
        > CDS - n
        send CDS n=n
        > closed INTERNAL
        disconnected INTERNAL answered 2560ms
        > after 2560ms
        open Delta
        > opened
        send+node CDS n= +a a=1
        > CDS - n
        send CDS n=n
        > closed INTERNAL
        disconnected INTERNAL answered 4096ms
        unreachable UNAVAILABLE: 5 streams within 60s ended soon after they were answered, the last one with INTERNAL
        > after 4096ms
        open Delta
        > opened
        send+node CDS n= +a a=1
        > CDS - n
        send CDS n=n
        > closed INTERNAL
        disconnected INTERNAL answered 6553ms
        > after 6554ms
        open Delta
        > opened
        send+node CDS n= +a a=1
        > CDS - n
        send CDS n=n
        > after 9999ms
        > reach
        lost 5210ms UNAVAILABLE
        > after 1ms
        > reach
        heard 25860ms
        ";

#[test]
fn fu_9_five_short_streams_within_60_s_make_a_server_unreachable() {
    check(delta(), FIVE_SHORT_STREAMS);
}

#[test]
fn fu_9_a_server_that_was_unsteady_and_then_steady_may_flap_again_as_often() {
    let mut script = Script::new(UpstreamSettings {
        // The test looks at the status of the ends, not at the waits between them.
        backoff: BackoffSettings { max: Duration::from_millis(1), ..BackoffSettings::default() },
        ..delta()
    });
    script.raw("+ CDS a");
    for turn in 0..2 {
        for end in 1..5 {
            script.raw("opened");
            script.raw("CDS - n a=1");
            script.raw("closed INTERNAL");
            script.raw("after 100ms");
            assert!(!is_lost(&mut script), "{turn}: after {end}");
        }
        script.raw("opened");
        script.raw("CDS - n a=1");
        assert_eq!(script.run("closed INTERNAL").len(), 2);
        assert!(is_lost(&mut script));
        script.raw("after 100ms");
        script.raw("opened");
        script.raw("CDS - n a=1");
        script.raw("after 10s");
        assert!(!is_lost(&mut script));
        script.raw("closed INTERNAL");
        script.raw("after 100ms");
    }
}

#[test]
fn fu_9_an_unsteady_server_that_lasts_is_heard_though_it_has_nothing_to_say() {
    let mut script = Script::new(delta());
    script.raw("+ CDS a");
    for _ in 0..5 {
        script.raw("opened");
        script.raw("CDS - n a=1");
        script.raw("closed INTERNAL");
        script.raw("after 10s");
    }
    assert!(is_lost(&mut script));
    script.raw("opened");
    // The stream is silent for the resource timeout, is found alive, and lasts.
    script.raw("after 10s");
    script.raw("alive");
    assert!(is_lost(&mut script));
    script.raw("after 9999ms");
    assert!(is_lost(&mut script));
    script.raw("after 1ms");
    assert!(!is_lost(&mut script));
}

#[test]
fn fu_9_streams_that_end_rarely_do_not_count_together() {
    let mut script = Script::new(delta());
    script.raw("+ CDS a");
    for _ in 0..20 {
        // Each stream is short, and ends 39 s after the stream before.
        let said = short_stream(&mut script, "9s");
        assert_eq!(said.len(), 1, "{said:?}");
    }
}

#[test]
fn rly_48_fu_10_streams_that_lived_or_that_the_server_dismissed_do_not_count() {
    let quick = || UpstreamSettings {
        backoff: BackoffSettings { max: Duration::from_millis(1), ..BackoffSettings::default() },
        ..delta()
    };
    for (lives, farewell, counts) in
        [("10s", None, false), ("1s", Some("going away"), false), ("1s", None, true)]
    {
        let mut script = Script::new(quick());
        script.raw("+ CDS a");
        for _ in 0..6 {
            script.raw("opened");
            script.raw("CDS - n a=1");
            script.raw(&format!("after {lives}"));
            farewell.map(|input| script.raw(input));
            script.raw("closed UNAVAILABLE");
            script.raw("after 100ms");
        }
        assert_eq!(is_lost(&mut script), counts, "{lives} {farewell:?}");
    }
}

#[test]
fn fu_10_a_server_that_limits_the_age_of_connections_is_asked_again_at_once() {
    let mut script = Script::new(delta());
    script.raw("+ CDS a");
    let mut dismissed_after = |lives: &str| {
        script.raw("opened");
        script.raw("CDS - n a=1");
        script.raw(&format!("after {lives}"));
        script.raw("going away");
        let said = script.run("closed UNAVAILABLE");
        script.raw("after 2s");
        said
    };
    for _ in 0..8 {
        assert_eq!(dismissed_after("5s"), ["disconnected UNAVAILABLE answered 50ms"]);
    }
    // A server that dismisses every client causes no hot loop.
    assert_eq!(dismissed_after("100ms"), ["disconnected UNAVAILABLE answered 50ms"]);
    assert_eq!(dismissed_after("100ms"), ["disconnected UNAVAILABLE answered 1000ms"]);
    assert_eq!(dismissed_after("100ms"), ["disconnected UNAVAILABLE answered 1600ms"]);
}

#[test]
fn fu_9_interest_that_starts_afresh_forgets_the_unsteadiness() {
    let mut script = Script::new(delta());
    script.raw("+ CDS a");
    for _ in 0..4 {
        short_stream(&mut script, "1ms");
        script.raw("- CDS a");
        script.raw("+ CDS a");
    }
    short_stream(&mut script, "1ms");
    assert!(!is_lost(&mut script));
}

#[test]
fn cli_1_a_server_with_nothing_to_say_is_heard_when_its_silence_has_lasted_and_the_stream_is_alive() {
    check(
        delta(),
        "
        > + CDS a
        open Delta
        > reach
        pending
        > opened
        send+node CDS n= +a
        > CDS - n a=1
        send CDS n=n
        Names CDS a=1
        > reach
        heard 0ms
        > current CDS
        true
        > closed OK
        disconnected OK answered 50ms
        > current CDS
        false
        > after 50ms
        open Delta
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 1000ms
        unreachable UNAVAILABLE
        > after 1s
        open Delta
        > opened
        send+node CDS n= +a a=1
        > reach
        lost 50ms UNAVAILABLE
        > after 9999ms
        > after 1ms
        probe
        > reach
        lost 50ms UNAVAILABLE
        > current CDS
        false
        > alive
        > reach
        heard 11050ms
        > current CDS
        true
        > after 60s
        ",
    );
}

#[test]
fn rly_44_a_lost_server_that_others_stand_in_for_is_asked_so_that_it_must_answer() {
    let lose = "
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open VARIANT
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 1000ms
        unreachable UNAVAILABLE
        > after 1s
        open VARIANT
        > opened";
    check(
        UpstreamSettings { needs_answer: true, ..delta() },
        &format!(
            "
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > CDS - n a=1 b=2
        send CDS n=n
        Names CDS a=1 b=2
        {}
        send+node CDS n= +a +b a= b=2
        > CDS - n2 a=1
        send CDS n=n2
        Names CDS a=1
        > current CDS
        true
        ",
            lose.replace("VARIANT", "Delta")
        ),
    );
    check(
        UpstreamSettings { needs_answer: true, ..sotw() },
        &format!(
            r#"
        > + CDS a
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        {}
        send+node CDS v= n= ["a"]
        "#,
            lose.replace("VARIANT", "Sotw")
        ),
    );
}

/// The server was silent about one type for long enough. The other type, for which the time still runs, is given up.
#[test]
fn cli_1_a_silent_server_is_heard_when_what_it_has_still_to_answer_is_given_up() {
    check(
        delta(),
        "
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > after 5s
        > + EDS e
        send EDS n= +e
        > after 5s
        probe
        > alive
        > current CDS
        true
        > reach
        pending
        > - EDS e
        send EDS n= -e
        > reach
        heard 10000ms
        ",
    );
}

#[test]
fn cli_1_silence_on_a_dead_transport_proves_nothing() {
    check(
        delta(),
        "
        > + CDS *
        open Delta
        > unconnected
        unreachable UNAVAILABLE
        > opened
        send+node CDS n= +*
        > after 60s
        probe
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 1000ms
        unreachable UNAVAILABLE
        > reach
        lost 0ms UNAVAILABLE
        > current CDS
        false
        ",
    );
}

#[test]
fn each_type_is_current_by_its_own_first_response_or_silence() {
    let quick = [(type_url("EDS"), Duration::from_secs(2))].into_iter().collect();
    check(
        UpstreamSettings { resource_timeouts: quick, ..sotw() },
        r#"
        > + CDS a
        open Sotw
        > + EDS e
        > + LDS *
        > opened
        send+node CDS v= n= ["a"]
        send EDS v= n= ["e"]
        send LDS v= n= ["*"]
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        > current CDS
        true
        > current EDS
        false
        > LDS v1 n1 ~l=1
        send LDS v=v1 n=n1 ["*"]
        > current LDS
        false
        > after 2s
        > current EDS
        true
        > current LDS
        false
        > LDS v1 n1 l=1
        send LDS v=v1 n=n1 ["*"]
        Wildcard LDS l=1 replaces complete
        > current LDS
        true
        > current RDS
        false
        "#,
    );
}

#[test]
fn a_type_that_is_not_wanted_is_not_current_and_neither_is_one_of_a_renewed_stream() {
    check(
        delta(),
        "
        > + CDS a
        open Delta
        > + EDS e
        > opened
        send+node CDS n= +a
        send EDS n= +e
        > CDS - n1 a=1
        send CDS n=n1
        Names CDS a=1
        > EDS - n1 e=1
        send EDS n=n1
        Names EDS e=1
        > - EDS e
        send EDS n= -e
        > current EDS
        false
        > + CDS *
        close
        open Delta
        > current CDS
        false
        ",
    );
}

#[test]
fn rst_4_a_polled_type_is_current_while_polls_are_answered() {
    check(
        rest(),
        r#"
        > + CDS *
        open Sotw
        > current CDS
        false
        > opened
        send+node CDS v= n= []
        > CDS v1 n a=1
        Wildcard CDS a=1 replaces complete
        > closed OK
        > current CDS
        true
        > after 15s
        open Sotw
        > opened
        send+node CDS v=v1 n= []
        > unchanged
        unchanged CDS
        > closed OK
        > current CDS
        true
        > after 15s
        open Sotw
        > opened
        send+node CDS v=v1 n= []
        > closed INTERNAL
        disconnected INTERNAL unanswered 1000ms
        unreachable INTERNAL
        > current CDS
        false
        > after 1s
        open Sotw
        > opened
        send+node CDS v=v1 n= []
        > unchanged
        unchanged CDS
        > current CDS
        true
        "#,
    );
}
