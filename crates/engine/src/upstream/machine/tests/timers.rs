//! Resource timers.

use super::script::{check, delta, sotw};
use super::*;

#[test]
fn rly_29_a_timer_counts_if_anything_arrived_since_the_request() {
    check(
        delta(),
        "
        > + CDS a b
        open Delta
        > unconnected
        unreachable UNAVAILABLE
        > after 60s
        > opened
        send+node CDS n= +a +b
        > after 1s
        > CDS - n1 a=1
        send CDS n=n1
        Names CDS a=1
        > after 9999ms
        > after 1ms
        Names CDS -b:Timeout
        > after 60s
        > CDS - n2 b=1
        send CDS n=n2
        Names CDS b=1
        ",
    );
}

#[test]
fn rly_29_a_silent_stream_is_probed_before_a_timer_counts() {
    check(
        delta(),
        "
        > + CDS k
        open Delta
        > opened
        send+node CDS n= +k
        > CDS - n0 k=1
        send CDS n=n0
        Names CDS k=1
        > + CDS a
        send CDS n= +a
        > after 5s
        > + EDS e
        send EDS n= +e
        > after 5s
        probe
        > after 5s
        > alive
        Names CDS -a:Timeout
        > + CDS b
        send CDS n= +b
        > after 10s
        probe
        > RDS - n1
        ignored RDS
        Names CDS -b:Timeout
        > alive
        ",
    );
}

/// 100,000 names take a slow server longer than their timers.
#[test]
fn rly_2_no_timer_ends_while_the_server_still_answers_the_request() {
    check(
        delta(),
        "
        > + CDS a b c
        open Delta
        > opened
        send+node CDS n= +a +b +c
        > after 6s
        > CDS - n1 a=1
        send CDS n=n1
        Names CDS a=1
        > + CDS d e f
        send CDS n= +d +e +f
        > after 6s
        > CDS - n2 b=1
        send CDS n=n2
        Names CDS b=1
        > after 3s
        > CDS - n3 d=1 -e
        send CDS n=n3
        Names CDS d=1 -e:Removed
        > after 1s
        > CDS - n4 a=2 b=2
        send CDS n=n4
        Names CDS a=2 b=2
        > after 5999ms
        > after 1ms
        Names CDS -c:Timeout
        > after 2999ms
        > after 1ms
        Names CDS -f:Timeout
        ",
    );
}

/// The rest of the answers on the next stream counts, too.
#[test]
fn rly_2_what_was_held_before_and_is_told_again_is_an_answer_to_the_request() {
    check(
        delta(),
        "
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > CDS - n1 a=1
        send CDS n=n1
        Names CDS a=1
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +a +b a=1
        > alive
        > after 9s
        > CDS - n1 a=2
        send CDS n=n1
        Names CDS a=2
        > after 9999ms
        > after 1ms
        Names CDS -b:Timeout
        ",
    );
}

#[test]
fn rly_2_no_timer_counts_while_the_server_is_silent_about_the_type() {
    for (variant, transcript) in [
        (
            delta(),
            "
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > + EDS e
        send EDS n= +e
        > EDS - m1 e=1
        send EDS n=m1
        Names EDS e=1
        > after 10s
        > after 60s
        > CDS - n1 a=1
        send CDS n=n1
        Names CDS a=1
        > after 9999ms
        > after 1ms
        probe
        > alive
        Names CDS -b:Timeout
        ",
        ),
        (
            sotw(),
            r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > after 10s
        probe
        > alive
        > after 60s
        > EDS v1 n1 !
        send EDS v= n=n1 ["a", "b"] NACK INVALID_ARGUMENT: (unnamed): bad
        > after 60s
        > EDS v2 n2 a=1 a=1
        send EDS v= n=n2 ["a", "b"] NACK INVALID_ARGUMENT: a: the name occurs twice
        > after 60s
        > EDS v3 n3 a=1
        send EDS v=v3 n=n3 ["a", "b"]
        Names EDS a=1
        > after 5s
        > alive
        > after 5s
        Names EDS -b:Timeout
        "#,
        ),
    ] {
        check(variant, transcript);
    }
}

#[test]
fn rly_2_silence_of_a_server_that_was_told_what_is_held_is_an_answer() {
    check(
        delta(),
        "
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > CDS - n1 a=1
        send CDS n=n1
        Names CDS a=1
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +a a=1
        > after 10s
        probe
        > alive
        > + CDS b
        send CDS n= +b
        > after 10s
        probe
        > alive
        Names CDS -b:Timeout
        ",
    );
}

#[test]
fn rly_2_a_timer_that_ran_out_in_such_a_silence_starts_anew() {
    check(
        delta(),
        "
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > CDS - n1 a=1
        send CDS n=n1
        Names CDS a=1
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +a +b a=1
        > after 10s
        probe
        > alive
        > after 10s
        probe
        > alive
        Names CDS -b:Timeout
        ",
    );
}

#[test]
fn rly_29_the_late_resource_itself_is_used_and_not_timed_out() {
    check(
        delta(),
        "
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > after 10s
        probe
        > CDS - n1 b=1
        send CDS n=n1
        Names CDS b=1
        > after 10s
        probe
        > alive
        Names CDS -a:Timeout
        ",
    );
}

#[test]
fn tmr_4_timers_stop_with_the_stream_and_start_again_for_what_is_not_held() {
    check(
        sotw(),
        r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 n1 a=1
        send EDS v=v1 n=n1 ["a", "b"]
        Names EDS a=1
        > after 9s
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Sotw
        > after 60s
        > opened
        send+node EDS v=v1 n= ["a", "b"]
        > EDS v1 n1
        send EDS v=v1 n=n1 ["a", "b"]
        > after 9999ms
        > after 1ms
        Names EDS -b:Timeout
        "#,
    );
}

#[test]
fn tmr_5_with_the_feature_a_timer_is_a_transient_error() {
    check(
        UpstreamSettings { timeout_is_transient: true, resource_timeout: Duration::from_secs(30), ..delta() },
        r#"
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > after 30s
        probe
        > alive
        timeout CDS ["a", "b"]
        > CDS - n1 -a
        send CDS n=n1
        Names CDS -a:Removed
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +a +b
        > after 30s
        probe
        > alive
        timeout CDS ["b"]
        "#,
    );
}

#[test]
fn tmr_7_a_bad_instance_and_an_error_cancel_the_timer() {
    check(
        delta(),
        "
        > + CDS a b c d
        open Delta
        > opened
        send+node CDS n= +a +b +c +d
        > CDS - n1 !a b:UNAVAILABLE c:NOT_FOUND
        send CDS n=n1 NACK INVALID_ARGUMENT: a: bad
        error CDS b:UNAVAILABLE
        error CDS c:NOT_FOUND
        Names CDS -c:NotFound
        > - CDS d
        send CDS n= -d
        > after 60s
        ",
    );
}

/// The message may bring the outstanding names.
#[test]
fn tmr_5_no_name_runs_out_while_a_message_arrives() {
    check(
        sotw(),
        r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 n1 a=1
        send EDS v=v1 n=n1 ["a", "b"]
        Names EDS a=1
        > receiving
        > after 60s
        > EDS v2 n2 b=1
        send EDS v=v2 n=n2 ["a", "b"]
        Names EDS b=1
        > + EDS c d
        send EDS v=v2 n=n2 ["a", "b", "c", "d"]
        > receiving
        > after 60s
        > EDS v3 n3 c=1
        send EDS v=v3 n=n3 ["a", "b", "c", "d"]
        Names EDS c=1
        > after 10s
        Names EDS -d:Timeout
        "#,
    );
}

#[test]
fn rly_29_a_sign_of_life_amid_a_message_proves_no_absence() {
    check(
        sotw(),
        r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 n1 a=1
        send EDS v=v1 n=n1 ["a", "b"]
        Names EDS a=1
        > + EDS c
        send EDS v=v1 n=n1 ["a", "b", "c"]
        > after 15s
        Names EDS -b:Timeout
        probe
        > receiving
        > alive
        > EDS v2 n2 c=1
        send EDS v=v2 n=n2 ["a", "b", "c"]
        Names EDS c=1
        "#,
    );
}
