//! The end of the first answers of a stream.

use super::script::{check, delta, sotw};
use super::*;

#[test]
fn del_26_a_small_first_response_is_whole_after_a_round_trip() {
    for short in ["CDS", "EDS"] {
        let transcript = "
        > far
        > + TYPE *
        open Delta
        > opened
        send+node TYPE n= +*
        > TYPE - n1 a=1
        send TYPE n=n1
        Wildcard TYPE a=1
        round trip
        > after 60s
        > returned
        Wildcard TYPE complete
        > TYPE - n2 b=1
        send TYPE n=n2
        Wildcard TYPE b=1 complete
        ";
        check(delta(), &transcript.replace("TYPE", short));
    }
}

#[test]
fn del_26_nothing_is_whole_while_bytes_of_a_further_message_have_come() {
    check(
        delta(),
        "
        > far
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1#3000
        send CDS n=n1
        Wildcard CDS a=1
        > receiving
        > after 500ms
        > CDS - n2 b=1#3000
        send CDS n=n2
        Wildcard CDS b=1
        > receiving
        > after 500ms
        > CDS - n3 c=1#3000
        send CDS n=n3
        Wildcard CDS c=1
        > after 199ms
        > after 1ms
        round trip
        > receiving
        > returned
        > after 60s
        > CDS - n4 d=1
        send CDS n=n4
        Wildcard CDS d=1
        > after 199ms
        > after 1ms
        round trip
        > returned
        Wildcard CDS complete
        ",
    );
}

#[test]
fn del_26_a_message_that_comes_during_the_round_trip_needs_another_one() {
    check(
        delta(),
        "
        > far
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        round trip
        > CDS - n2 b=1
        send CDS n=n2
        Wildcard CDS b=1
        > after 100ms
        > returned
        > after 100ms
        round trip
        > returned
        Wildcard CDS complete
        ",
    );
}

#[test]
fn del_26_an_update_of_what_came_needs_another_round_trip() {
    check(
        delta(),
        "
        > far
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1#2000 b=1
        send CDS n=n1
        Wildcard CDS a=1 b=1
        > after 150ms
        > CDS - n2 b=2
        send CDS n=n2
        Wildcard CDS b=2
        > after 50ms
        round trip
        > CDS - n3 b=3 -a
        send CDS n=n3
        Wildcard CDS b=3 -a:Removed
        > returned
        round trip
        > receiving
        > returned
        > CDS - n4 b=4
        send CDS n=n4
        Wildcard CDS b=4
        round trip
        > returned
        Wildcard CDS complete
        ",
    );
}

/// A server with constant updates would otherwise keep its clients waiting for ever.
#[test]
fn del_26_updates_of_what_came_are_not_the_rest() {
    let update = "
        > CDS - n2 a=2
        send CDS n=n2
        Wildcard CDS a=2
        > returned
        round trip";
    let transcript = "
        > far
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        round trip
        TEN UPDATES
        > CDS - n2 a=2
        send CDS n=n2
        Wildcard CDS a=2
        > receiving
        > returned
        > EDS - m1
        ignored EDS
        Wildcard CDS complete
        ";
    check(delta(), &transcript.replace("TEN UPDATES", &update.repeat(10)));
}

#[test]
fn rly_37_what_could_not_be_read_leaves_the_set_open() {
    for bad in ["!", "b=1 b=1"] {
        let transcript = "
        > far
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        round trip
        > CDS - n2 BAD
        send CDS n=n2 NACK INVALID_ARGUMENT: WHY
        > returned
        > after 60s
        > CDS - n3 c=1
        send CDS n=n3
        Wildcard CDS c=1
        round trip
        > returned
        Wildcard CDS complete
        > current CDS
        false
        ";
        let why = if bad == "!" { "(unnamed): bad" } else { "b: the name occurs twice" };
        check(delta(), &transcript.replace("BAD", bad).replace("WHY", why));
    }
}

#[test]
fn rly_37_what_could_not_be_read_leaves_a_glob_open() {
    for bad in ["!", "xdstp://a/EP/f/b=1 xdstp://a/EP/f/b=1"] {
        let transcript = "
        > far
        > + EP xdstp://a/EP/f/* xdstp://a/EP/g/*
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/* +xdstp://a/EP/g/*
        > EP - n1 xdstp://a/EP/f/a=1
        send EP n=n1
        Globs EP xdstp://a/EP/f/a=1
        round trip
        > EP - n2 BAD
        send EP n=n2 NACK INVALID_ARGUMENT: WHY
        > returned
        > after 60s
        > EP - n3 xdstp://a/EP/g/c=1
        send EP n=n3
        Globs EP xdstp://a/EP/g/c=1
        round trip
        > returned
        Globs EP all:xdstp://a/EP/f/* all:xdstp://a/EP/g/*
        ";
        let why = if bad == "!" { "(unnamed): bad" } else { "xdstp://a/EP/f/b: the name occurs twice" };
        check(delta(), &transcript.replace("BAD", bad).replace("WHY", why));
    }
}

#[test]
fn del_26_the_round_trip_ends_with_its_stream() {
    check(
        delta(),
        "
        > far
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        round trip
        > receiving
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        round trip
        > returned
        Wildcard CDS complete
        ",
    );
}

/// A server may be silent for ever if the request claims all of its resources.
#[test]
fn rly_37_what_is_not_all_there_is_not_claimed_on_the_next_stream() {
    check(
        delta(),
        "
        > far
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        round trip
        > succeed
        open next Delta
        > next opened
        take next
        send+node CDS n= +*
        > CDS - n1 a=1 b=1
        send CDS n=n1
        Wildcard CDS a=1 b=1
        round trip
        > returned
        Wildcard CDS complete
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +* a=1 b=1
        ",
    );
    check(
        sotw(),
        r#"
        > far
        > + RDS *
        open Sotw
        > opened
        send+node RDS v= n= ["*"]
        > RDS v1 n1 a=1
        send RDS v=v1 n=n1 ["*"]
        Wildcard RDS a=1
        round trip
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Sotw
        > opened
        send+node RDS v= n= ["*"]
        > RDS v1 n1 a=1
        send RDS v=v1 n=n1 ["*"]
        Wildcard RDS a=1
        round trip
        > returned
        Wildcard RDS complete
        > closed OK
        disconnected OK answered 1000ms
        > after 1s
        open Sotw
        > opened
        send+node RDS v=v1 n= ["*"]
        "#,
    );
}

#[test]
fn rly_44_a_delta_type_is_current_when_its_first_answers_have_settled() {
    check(
        UpstreamSettings { needs_answer: true, ..delta() },
        "
        > far
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > CDS - n1 a=1 b=1
        send CDS n=n1
        Names CDS a=1 b=1
        round trip
        > current CDS
        false
        > returned
        > current CDS
        true
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > unconnected
        unreachable UNAVAILABLE
        > opened
        send+node CDS n= +a +b a= b=1
        > CDS - n1 a=2
        send CDS n=n1
        Names CDS a=2
        round trip
        > receiving
        > returned
        > after 60s
        > current CDS
        false
        > CDS - n2 b=2
        send CDS n=n2
        Names CDS b=2
        > after 200ms
        round trip
        > returned
        > current CDS
        true
        ",
    );
}

#[test]
fn rly_44_a_sotw_type_is_current_when_every_name_that_was_known_is_answered() {
    check(
        UpstreamSettings { needs_answer: true, ..sotw() },
        r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 n1 a=1 b=1
        send EDS v=v1 n=n1 ["a", "b"]
        Names EDS a=1 b=1
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Sotw
        > unconnected
        unreachable UNAVAILABLE
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v2 n1 a=2
        send EDS v=v2 n=n1 ["a", "b"]
        Names EDS a=2
        > current EDS
        false
        > current EDS a
        true
        > current EDS b
        false
        > current EDS a b
        false
        > EDS v3 n2 !b
        send EDS v=v2 n=n2 ["a", "b"] NACK INVALID_ARGUMENT: b: bad
        > current EDS
        false
        > current EDS b
        false
        > EDS v4 n3 b=2
        send EDS v=v4 n=n3 ["a", "b"]
        Names EDS b=2
        > current EDS
        true
        "#,
    );
}

#[test]
fn rly_44_a_rejected_response_makes_nothing_current() {
    for bad in ["!a", "!", "a=1 a=1"] {
        let mut script = super::script::Script::new(sotw());
        script.raw("+ CDS a b");
        script.raw("opened");
        script.raw(&format!("CDS v1 n1 {bad}"));
        assert_eq!(script.run("current CDS"), ["false"], "{bad}");
        script.raw("after 60s");
        script.raw("alive");
        assert_eq!(script.run("current CDS"), ["false"], "{bad}: it is no silence");
        assert_eq!(script.run("current CDS b"), ["false"], "{bad}");
        script.raw("CDS v2 n2 a=1");
        assert_eq!(script.run("current CDS"), ["true"], "{bad}");
    }
}
