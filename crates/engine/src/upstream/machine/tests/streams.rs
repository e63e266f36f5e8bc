//! Opening, closing, backoff, and the fallback to SotW.

use super::script::{Script, check, delta, legacy, sotw, type_url};
use super::*;

#[test]
fn g_8_nothing_is_open_while_nothing_is_wanted_and_interest_starts_afresh() {
    check(
        sotw(),
        r#"
        > opened
        > + CDS a
        open Sotw
        > + CDS
        > opened
        send+node CDS v= n= ["a"]
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        > - CDS a
        close
        > CDS v2 n2 a=2
        > closed UNAVAILABLE
        > + CDS a
        open Sotw
        > - CDS a
        close
        > + CDS a
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        "#,
    );
}

#[test]
fn g_11_a_new_stream_restates_names_and_version_without_a_nonce() {
    check(
        sotw(),
        r#"
        > + EDS b a
        open Sotw
        > + CDS *
        > + LDS l
        > opened
        send+node CDS v= n= ["*"]
        send EDS v= n= ["a", "b"]
        send LDS v= n= ["l"]
        > EDS v1 n1 a=1
        send EDS v=v1 n=n1 ["a", "b"]
        Names EDS a=1
        > closed INTERNAL
        disconnected INTERNAL answered 50ms
        > after 49ms
        > after 1ms
        open Sotw
        > opened
        send+node CDS v= n= ["*"]
        send EDS v=v1 n= ["a", "b"]
        send LDS v= n= ["l"]
        "#,
    );
}

#[test]
fn rly_64_a_new_delta_stream_restates_the_upstreams_own_versions() {
    check(
        delta(),
        "
        > + CDS a b c d
        open Delta
        > opened
        send+node CDS n= +a +b +c +d
        > CDS - n1 a=1 b=1 c=1
        send CDS n=n1
        Names CDS a=1 b=1 c=1
        > CDS - n2 a=2 x=7
        send CDS n=n2
        Names CDS a=2
        > CDS - n3 -c d=9^
        send CDS n=n3
        Names CDS d=9 -c:Removed
        > CDS - n4 !b
        send CDS n=n4 NACK INVALID_ARGUMENT: b: bad
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +a +b +c +d a=2 b=1
        ",
    );
}

#[test]
fn d_2_what_was_dropped_is_not_restated() {
    check(
        delta(),
        "
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > CDS - n1 a=1 b=1
        send CDS n=n1
        Names CDS a=1 b=1
        > - CDS a
        send CDS n= -a
        > CDS - n2 a=2
        send CDS n=n2
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +b b=1
        ",
    );
}

#[test]
fn cli_4_streams_without_an_answer_are_unreachable_and_back_off() {
    check(
        sotw(),
        r#"
        > + CDS a
        open Sotw
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 1000ms
        unreachable UNAVAILABLE
        > after 1s
        open Sotw
        > unconnected
        unreachable UNAVAILABLE
        > unconnected
        unreachable UNAVAILABLE
        > opened
        send+node CDS v= n= ["a"]
        > closed UNKNOWN
        disconnected UNKNOWN unanswered 1600ms
        unreachable UNKNOWN
        > - CDS a
        > + CDS a
        > after 1599ms
        > after 1ms
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > RDS v1 n1
        ignored RDS
        > closed INTERNAL
        disconnected INTERNAL answered 50ms
        > after 50ms
        open Sotw
        > closed INTERNAL
        disconnected INTERNAL unanswered 1000ms
        unreachable INTERNAL
        "#,
    );
}

#[test]
fn fu_9_answering_and_dying_over_and_over_backs_off() {
    check(
        sotw(),
        r#"
        > + CDS a
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > CDS v n
        send CDS v=v n=n ["a"]
        Names CDS -a:Omitted
        > closed INTERNAL
        disconnected INTERNAL answered 50ms
        > after 50ms
        open Sotw
        > opened
        send+node CDS v=v n= ["a"]
        > CDS v n
        send CDS v=v n=n ["a"]
        > closed INTERNAL
        disconnected INTERNAL answered 1000ms
        "#,
    );
}

#[test]
fn rly_25_a_server_without_delta_is_asked_by_sotw_for_an_hour() {
    check(
        delta(),
        r#"
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 0ms
        switched to SotW
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        > after 3600s
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +a
        "#,
    );
}

#[test]
fn str_8_versions_of_one_variant_mean_nothing_to_the_other() {
    check(
        delta(),
        r#"
        > + EDS a
        open Delta
        > opened
        send+node EDS n= +a
        > EDS - n1 a=1
        send EDS n=n1
        Names EDS a=1
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 0ms
        switched to SotW
        open Sotw
        > opened
        send+node EDS v= n= ["a"]
        > EDS v1 n1
        send EDS v=v1 n=n1 ["a"]
        > after 3600s
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node EDS n= +a
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 0ms
        switched to SotW
        open Sotw
        > opened
        send+node EDS v= n= ["a"]
        "#,
    );
}

#[test]
fn rly_25_only_unimplemented_means_no_delta() {
    for code in ["UNKNOWN", "UNAVAILABLE", "INTERNAL", "NOT_FOUND", "PERMISSION_DENIED"] {
        check(
            delta(),
            &format!(
                "
                > + CDS a
                open Delta
                > opened
                send+node CDS n= +a
                > closed {code}
                disconnected {code} unanswered 1000ms
                unreachable {code}
                > after 1s
                open Delta
                > closed {code}
                disconnected {code} unanswered 1600ms
                unreachable {code}
                > after 1600ms
                open Delta
                > opened
                send+node CDS n= +a
                > CDS - n1 a=1
                send CDS n=n1
                Names CDS a=1
                "
            ),
        );
    }
}

#[test]
fn rly_25_a_configured_variant_is_an_order() {
    let ordered = UpstreamSettings { fall_back_to_sotw: false, ..delta() };
    check(
        ordered,
        "
        > + CDS a
        open Delta
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 1000ms
        unreachable UNIMPLEMENTED
        > after 1s
        open Delta
        ",
    );
}

#[test]
fn rly_25_a_guess_that_ends_unanswered_goes_back_to_delta() {
    check(
        delta(),
        r#"
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 0ms
        switched to SotW
        open Sotw
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 1000ms
        unreachable UNIMPLEMENTED
        > after 1s
        open Delta
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 0ms
        switched to SotW
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 50ms
        open Sotw
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 1000ms
        unreachable UNAVAILABLE
        > after 1s
        open Sotw
        "#,
    );
}

/// Each silence lets the next guess stand twice as long, so that a slow server is heard at last.
#[test]
fn rly_25_a_guess_that_stays_silent_goes_back_to_delta() {
    check(
        delta(),
        r#"
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 0ms
        switched to SotW
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > after 14s
        probe
        > after 1s
        back to delta
        close
        open Delta
        > closed UNIMPLEMENTED
        disconnected UNIMPLEMENTED unanswered 0ms
        switched to SotW
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > after 29s
        probe
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        > after 120s
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 50ms
        open Sotw
        "#,
    );
}

#[test]
fn rly_19_an_interest_of_the_other_kind_needs_a_fresh_stream() {
    for settings in [delta(), legacy(delta())] {
        let star = if settings.wildcard == WildcardStyle::Explicit { " +*" } else { "" };
        check(
            settings,
            &format!(
                "
                > + CDS a
                open Delta
                > opened
                send+node CDS n= +a
                > + CDS *
                close
                open Delta
                > CDS - n1 a=1
                > opened
                send+node CDS n={star}
                > + CDS b
                close
                open Delta
                > opened
                send+node CDS n= +b
                "
            ),
        );
    }
}

#[test]
fn m_1_what_was_not_sent_is_not_sent_on_the_next_stream() {
    let mut script = Script::new(sotw());
    script.raw("+ CDS a");
    script.raw("opened");
    let received = |upstream: &mut Upstream| {
        let response = sluice_xds::SotwResponse {
            version_info: "v1".into(),
            type_url: type_url("CDS"),
            states_type: true,
            nonce: "n1".into(),
            resources: Vec::new(),
            errors: Vec::new(),
            control_plane: "cp".into(),
        };
        upstream.handle(Input::Received(Response::Sotw(response)), Time::ZERO);
    };
    received(&mut script.upstream);
    script.upstream.handle(Input::Closed { status: Status::ok(), jitter: 0.0 }, Time::ZERO);
    let outputs: Vec<_> = std::iter::from_fn(|| script.upstream.poll_output()).collect();
    assert!(outputs.iter().any(|output| matches!(output, Output::Changes(_))));
    assert!(!outputs.iter().any(|output| matches!(output, Output::Send { .. })), "{outputs:?}");
    assert_eq!(script.upstream.control_plane(), "cp");
    assert_eq!(script.upstream.last_error(), Some(&Status::ok()));
}

#[test]
fn non_6_types_that_retired_are_kept_up_to_a_bound() {
    let mut script = Script::new(delta());
    script.raw("+ CDS a");
    script.raw("opened");
    let mut renewed = 0;
    for n in 0..200 {
        script.raw(&format!("+ T{n} x"));
        script.raw("after 1s");
        renewed += script.run(&format!("- T{n} x")).iter().filter(|line| *line == "close").count();
        script.raw("opened");
        assert!(script.upstream.requests.len() <= RETIRED_TYPES_MAX + 2);
    }
    assert_eq!(renewed, 3);
    assert!(!script.upstream.is_idle());
    script.raw("- CDS a");
    assert!(script.upstream.is_idle());
}
