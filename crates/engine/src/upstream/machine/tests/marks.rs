//! Another sluice marks whole sets (ADR 14).

use super::script::{check, delta, sotw};

#[test]
fn del_26_a_wildcard_of_a_server_with_marks_is_whole_when_it_says_so() {
    check(
        delta(),
        "
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > marks
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        > after 60s
        > CDS - n2 b=1#2000
        send CDS n=n2
        Wildcard CDS b=1
        > after 60s
        > current CDS
        false
        > CDS - n3
        send CDS n=n3
        > mark CDS 3 whole
        Wildcard CDS complete
        > current CDS
        true
        > CDS - n4 a=2
        send CDS n=n4
        Wildcard CDS a=2 complete
        ",
    );
}

/// A restarted relay does not know the resources held here, and learns them bit by bit.
#[test]
fn rly_6_members_that_are_not_confirmed_stay_until_the_mark() {
    let transcript = "
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > marks
        > CDS - n1 a=1 b=1^
        send CDS n=n1
        Wildcard CDS a=1 b=1
        > mark CDS 1 whole
        Wildcard CDS complete
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +* a=1
        > marks
        > CDS - m1 a=2
        send CDS n=m1
        Wildcard CDS a=2 complete
        > after 60s
        > current CDS
        false
        > CDS - m2
        send CDS n=m2
        > mark CDS 2 whole
        Wildcard CDS -b:Omitted complete
        > current CDS
        true
        ";
    check(delta(), transcript);
}

#[test]
fn tmr_3_a_name_of_which_a_server_with_marks_says_nothing_stays_unknown() {
    check(
        delta(),
        "
        > + EDS a b
        open Delta
        > opened
        send+node EDS n= +a +b
        > marks
        > EDS - n1 a=1
        send EDS n=n1
        Names EDS a=1
        > alive
        > + EDS c
        send EDS n= +c
        > alive
        > after 60s
        > current EDS
        false
        > EDS - n2 -b
        send EDS n=n2
        Names EDS -b:Removed
        > EDS - n3 -c
        send EDS n=n3
        Names EDS -c:Removed
        > mark EDS 4 whole
        > current EDS
        true
        ",
    );
}

/// Silence with marks means ignorance. Silence of other servers means that nothing changed (DEL-35).
#[test]
fn rly_44_silence_of_a_server_with_marks_makes_nothing_current() {
    for marks in [false, true] {
        let transcript = "
            > + EDS a
            open Delta
            > opened
            send+node EDS n= +a
            > EDS - n1 a=1
            send EDS n=n1
            Names EDS a=1
            > closed UNAVAILABLE
            disconnected UNAVAILABLE answered 50ms
            > + EDS b
            > after 50ms
            open Delta
            > opened
            send+node EDS n= +a +b a=1
            MARKS
            > alive
            > after 10s
            > alive
            > reach
            heard 0ms
            > current EDS
            CURRENT
            ";
        let (said, current) = if marks { ("> marks", "false") } else { ("", "true") };
        check(delta(), &transcript.replace("MARKS", said).replace("CURRENT", current));
    }
}

#[test]
fn rly_44_a_server_that_was_lost_is_heard_though_it_knows_nothing() {
    check(
        delta(),
        "
        > + EDS a
        open Delta
        > unconnected
        unreachable UNAVAILABLE
        > opened
        send+node EDS n= +a
        > marks
        > alive
        > after 9999ms
        > reach
        lost 0ms UNAVAILABLE
        > after 1ms
        > reach
        heard 10000ms
        > current EDS
        false
        > EDS - n1
        send EDS n=n1
        > mark EDS 1 whole
        > current EDS
        true
        ",
    );
}

#[test]
fn nam_16_globs_are_marked_one_by_one_by_who_had_read_of_them() {
    check(
        delta(),
        "
        > + EP xdstp://a/EP/f/* xdstp://a/EP/g/*
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/* +xdstp://a/EP/g/*
        > marks
        > EP - n1 xdstp://a/EP/f/a=1 xdstp://a/EP/g/a=1
        send EP n=n1
        Globs EP xdstp://a/EP/f/a=1 xdstp://a/EP/g/a=1
        > after 60s
        > EP - n2
        send EP n=n2
        > mark EP 1 xdstp://a/EP/f/*
        Globs EP all:xdstp://a/EP/f/*
        > - EP xdstp://a/EP/g/*
        send EP n= -xdstp://a/EP/g/*
        > after 1s
        > + EP xdstp://a/EP/g/*
        send EP n= +xdstp://a/EP/g/*
        > EP - n3
        send EP n=n3
        > mark EP 4 whole xdstp://a/EP/g/*
        > EP - n4 xdstp://a/EP/g/a=1
        send EP n=n4
        Globs EP xdstp://a/EP/g/a=1
        > mark EP 6 xdstp://a/EP/g/*
        Globs EP all:xdstp://a/EP/g/*
        ",
    );
}

#[test]
fn rly_37_no_mark_follows_what_could_not_be_read() {
    for bad in ["!", "b=1 b=1"] {
        let mut script = super::script::Script::new(delta());
        for line in ["+ CDS *", "opened", "marks", "CDS - n1 a=1"] {
            script.run(line);
        }
        script.run(&format!("CDS - n2 {bad}"));
        assert!(script.run("mark CDS 2 whole").is_empty(), "{bad}");
        script.run("CDS - n3 c=1");
        assert_eq!(script.run("mark CDS 3 whole"), ["Wildcard CDS complete"], "{bad}");
    }
}

/// The next stream may be to a server without marks.
#[test]
fn marks_are_of_one_stream() {
    check(
        delta(),
        "
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > marks
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +*
        > mark CDS 1 whole
        > CDS - m1 a=1
        send CDS n=m1
        Wildcard CDS a=1
        Wildcard CDS complete
        ",
    );
}

#[test]
fn marks_are_of_delta() {
    check(
        sotw(),
        r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > marks
        > EDS v1 n1 a=1
        send EDS v=v1 n=n1 ["a", "b"]
        Names EDS a=1
        > after 10s
        Names EDS -b:Timeout
        "#,
    );
}
