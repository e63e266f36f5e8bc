//! The wildcard and its membership.

use super::script::{check, delta, sotw};

#[test]
fn sst_1_a_sotw_wildcard_response_of_a_full_state_type_is_the_whole_membership() {
    for short in ["CDS", "LDS", "SRDS"] {
        let transcript = r#"
        > + TYPE *
        open Sotw
        > opened
        send+node TYPE v= n= ["*"]
        > TYPE v1 n1 a=1 b=1
        send TYPE v=v1 n=n1 ["*"]
        Wildcard TYPE a=1 b=1 replaces complete
        > TYPE v2 n2
        send TYPE v=v2 n=n2 ["*"]
        Wildcard TYPE replaces complete
        "#;
        check(sotw(), &transcript.replace("TYPE", short));
    }
}

#[test]
fn sst_4_in_other_sotw_wildcards_what_is_not_mentioned_stays() {
    for short in ["EDS", "RDS", "Custom"] {
        let transcript = r#"
        > + TYPE *
        open Sotw
        > opened
        send+node TYPE v= n= ["*"]
        > TYPE v1 n1 a=1 b=1 c=1
        send TYPE v=v1 n=n1 ["*"]
        Wildcard TYPE a=1 b=1 c=1
        Wildcard TYPE complete
        > TYPE v2 n2 b=2
        send TYPE v=v2 n=n2 ["*"]
        Wildcard TYPE b=2 complete
        > TYPE v3 n3
        send TYPE v=v3 n=n3 ["*"]
        > TYPE v4 n4 c:NOT_FOUND
        send TYPE v=v4 n=n4 ["*"]
        error TYPE c:NOT_FOUND
        Wildcard TYPE -c:NotFound complete
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Sotw
        > opened
        send+node TYPE v=v4 n= ["*"]
        > TYPE v5 n1 a=5
        send TYPE v=v5 n=n1 ["*"]
        Wildcard TYPE a=5 complete
        "#;
        check(sotw(), &transcript.replace("TYPE", short));
    }
}

#[test]
fn sst_4_an_empty_first_response_to_a_sotw_wildcard_of_another_type_says_that_there_is_none() {
    check(
        sotw(),
        r#"
        > + EDS *
        open Sotw
        > opened
        send+node EDS v= n= ["*"]
        > EDS v1 n1
        send EDS v=v1 n=n1 ["*"]
        Wildcard EDS complete
        "#,
    );
}

#[test]
fn rly_37_a_bad_member_stays_and_an_unidentified_one_keeps_all() {
    check(
        sotw(),
        r#"
        > + CDS *
        open Sotw
        > opened
        send+node CDS v= n= ["*"]
        > CDS v0 n0 a=1 !
        send CDS v= n=n0 ["*"] NACK INVALID_ARGUMENT: (unnamed): bad
        Wildcard CDS a=1
        > CDS v1 n1 a=1 b=1 c=1
        send CDS v=v1 n=n1 ["*"]
        Wildcard CDS a=1 b=1 c=1 replaces complete
        > CDS v2 n2 a=2 !
        send CDS v=v1 n=n2 ["*"] NACK INVALID_ARGUMENT: (unnamed): bad
        Wildcard CDS a=2 complete
        > CDS v3 n3 a=3 !b
        send CDS v=v1 n=n3 ["*"] NACK INVALID_ARGUMENT: b: bad
        Wildcard CDS a=3 -c:Omitted complete
        > CDS v4 n4 a=3 b:UNAVAILABLE
        send CDS v=v4 n=n4 ["*"]
        error CDS b:UNAVAILABLE
        Wildcard CDS a=3 complete
        > CDS v4 n5 ~a=3
        send CDS v=v4 n=n5 ["*"]
        Wildcard CDS ~a complete
        > CDS v5 n6 a=3 b:NOT_FOUND
        send CDS v=v5 n=n6 ["*"]
        error CDS b:NOT_FOUND
        Wildcard CDS a=3 -b:NotFound replaces complete
        "#,
    );
}

#[test]
fn del_25_the_first_small_delta_response_is_the_whole_membership() {
    check(
        delta(),
        "
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1
        send CDS n=n1
        Wildcard CDS complete
        > CDS - n2 a=1 b=1
        send CDS n=n2
        Wildcard CDS a=1 b=1 complete
        > CDS - n3 -a -x ~b=1
        send CDS n=n3
        Wildcard CDS -a:Removed ~b complete
        > CDS - n4 ~b=2
        send CDS n=n4
        Wildcard CDS -b:Removed complete
        > CDS - n5
        send CDS n=n5
        ",
    );
}

#[test]
fn del_26_a_large_membership_is_complete_when_no_more_of_it_comes() {
    check(
        delta(),
        "
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1#1024
        send CDS n=n1
        Wildcard CDS a=1
        > after 199ms
        > CDS - n2 b=1
        send CDS n=n2
        Wildcard CDS b=1
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1 b=1 c=1#1024
        send CDS n=n1
        Wildcard CDS a=1 b=1 c=1
        > after 199ms
        > after 1ms
        Wildcard CDS complete
        > closed OK
        disconnected OK answered 1000ms
        > after 1s
        open Delta
        > opened
        send+node CDS n= +* a=1 b=1 c=1
        > CDS - n1 d=1#1024
        send CDS n=n1
        Wildcard CDS d=1 complete
        > after 10s
        ",
    );
}

#[test]
fn del_26_the_wait_for_more_ends_with_the_stream() {
    check(
        delta(),
        "
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1#1024
        send CDS n=n1
        Wildcard CDS a=1
        > closed OK
        disconnected OK answered 50ms
        > after 10s
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 b=1
        send CDS n=n1
        Wildcard CDS b=1
        Wildcard CDS -a:Omitted complete
        ",
    );
}

#[test]
fn cch_1_members_that_could_not_be_restated_are_gone_unless_they_come_again() {
    check(
        delta(),
        "
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1 b=1^ c=1^ d=1^
        send CDS n=n1
        Wildcard CDS a=1 b=1 c=1 d=1
        Wildcard CDS complete
        > CDS - n2 a=1
        send CDS n=n2
        Wildcard CDS a=1 complete
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +* a=1
        > CDS - n1 c=1^ !d
        send CDS n=n1 NACK INVALID_ARGUMENT: d: bad
        Wildcard CDS c=1 complete
        Wildcard CDS -b:Omitted complete
        ",
    );
}

#[test]
fn tmr_9_no_timer_runs_for_a_wildcard() {
    check(
        delta(),
        "
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > after 60s
        probe
        > alive
        > after 60s
        ",
    );
}
