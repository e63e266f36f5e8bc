//! Glob collections and their membership: NAM-14 to NAM-16, SUB-21.

use super::script::{check, delta, sotw};

#[test]
fn nam_14_a_glob_takes_its_members_and_nothing_else() {
    check(
        delta(),
        r#"
        > + EP xdstp://a/EP/f/* xdstp://a/EP/g/*
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/* +xdstp://a/EP/g/*
        > EP - n1 xdstp://a/EP/f/a=1 xdstp://a/EP/f/a/b=1 xdstp://a/EP/h/a=1 x=1
        send EP n=n1
        Globs EP xdstp://a/EP/f/a=1
        Globs EP all:xdstp://a/EP/f/*
        > EP - n2 -xdstp://a/EP/g/*
        send EP n=n2
        Globs EP all:xdstp://a/EP/g/*
        > EP - n3 xdstp://a/EP/g/a=1 -xdstp://a/EP/f/a
        send EP n=n3
        Globs EP xdstp://a/EP/g/a=1 -xdstp://a/EP/f/a:Removed
        > EP - n4 -xdstp://a/EP/g/*
        send EP n=n4
        Globs EP -xdstp://a/EP/g/a:Removed all:xdstp://a/EP/g/*
        "#,
    );
}

#[test]
fn nam_16_a_large_glob_is_whole_when_nothing_more_comes() {
    check(
        delta(),
        r#"
        > + EP xdstp://a/EP/f/*
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/*
        > EP - n1 xdstp://a/EP/f/a=1#1200
        send EP n=n1
        Globs EP xdstp://a/EP/f/a=1
        > EP - n2 xdstp://a/EP/f/b=1
        send EP n=n2
        Globs EP xdstp://a/EP/f/b=1
        > after 200ms
        Globs EP all:xdstp://a/EP/f/*
        "#,
    );
}

/// The glob was given up and is requested again on the same stream. The server had sent a removal in between.
#[test]
fn nam_16_a_removal_from_before_the_request_answers_no_glob() {
    check(
        delta(),
        r#"
        > + EP xdstp://a/EP/f/* xdstp://a/EP/g/*
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/* +xdstp://a/EP/g/*
        > EP - n1 xdstp://a/EP/f/a=1 xdstp://a/EP/f/b=1
        send EP n=n1
        Globs EP xdstp://a/EP/f/a=1 xdstp://a/EP/f/b=1
        Globs EP all:xdstp://a/EP/f/*
        > after 10s
        > - EP xdstp://a/EP/f/*
        send EP n= -xdstp://a/EP/f/*
        > after 10s
        > + EP xdstp://a/EP/f/*
        send EP n= +xdstp://a/EP/f/*
        > EP - n2 -xdstp://a/EP/f/a
        send EP n=n2
        > EP - n3 xdstp://a/EP/f/b=1
        send EP n=n3
        Globs EP xdstp://a/EP/f/b=1
        Globs EP all:xdstp://a/EP/f/*
        "#,
    );
}

/// As before, with a resource that the server had sent before it read the request.
#[test]
fn nam_16_a_member_from_before_the_request_answers_no_glob() {
    check(
        delta(),
        r#"
        > + EP xdstp://a/EP/f/* xdstp://a/EP/g/*
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/* +xdstp://a/EP/g/*
        > EP - n1 xdstp://a/EP/f/a=1 xdstp://a/EP/f/b=1
        send EP n=n1
        Globs EP xdstp://a/EP/f/a=1 xdstp://a/EP/f/b=1
        Globs EP all:xdstp://a/EP/f/*
        > after 10s
        > - EP xdstp://a/EP/f/*
        send EP n= -xdstp://a/EP/f/*
        > after 10s
        > far
        > + EP xdstp://a/EP/f/*
        send EP n= +xdstp://a/EP/f/*
        round trip
        > EP - n2 xdstp://a/EP/f/a=2
        send EP n=n2
        Globs EP xdstp://a/EP/f/a=2
        > returned
        round trip
        > EP - n3 xdstp://a/EP/f/a=2 xdstp://a/EP/f/b=1
        send EP n=n3
        Globs EP xdstp://a/EP/f/a=2 xdstp://a/EP/f/b=1
        > returned
        > after 200ms
        round trip
        > returned
        Globs EP all:xdstp://a/EP/f/*
        "#,
    );
}

#[test]
fn del_32_members_are_restated_on_the_next_stream() {
    check(
        delta(),
        r#"
        > + EP xdstp://a/EP/f/* xdstp://a/EP/g/*
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/* +xdstp://a/EP/g/*
        > EP - n1 xdstp://a/EP/f/a=1 xdstp://a/EP/f/b=2
        send EP n=n1
        Globs EP xdstp://a/EP/f/a=1 xdstp://a/EP/f/b=2
        Globs EP all:xdstp://a/EP/f/*
        > closed OK
        disconnected OK answered 50ms
        > after 1s
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/* +xdstp://a/EP/g/* xdstp://a/EP/f/a=1 xdstp://a/EP/f/b=2
        > EP - m1 -xdstp://a/EP/f/b
        send EP n=m1
        Globs EP -xdstp://a/EP/f/b:Removed
        "#,
    );
}

#[test]
fn del_32_members_of_a_glob_that_is_not_known_yet_are_fetched_again() {
    check(
        delta(),
        r#"
        > + EP xdstp://a/EP/f/*
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/*
        > EP - n1 xdstp://a/EP/f/a=1#1200 xdstp://a/EP/f/b=1
        send EP n=n1
        Globs EP xdstp://a/EP/f/a=1 xdstp://a/EP/f/b=1
        > closed OK
        disconnected OK answered 50ms
        > after 1s
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/*
        > EP - m1 xdstp://a/EP/f/a=1
        send EP n=m1
        Globs EP xdstp://a/EP/f/a=1
        Globs EP -xdstp://a/EP/f/b:Omitted all:xdstp://a/EP/f/*
        "#,
    );
}

#[test]
fn rly_59_a_glob_taken_up_again_is_left_first() {
    check(
        delta(),
        r#"
        > + EP xdstp://a/EP/f/* xdstp://a/EP/g/* xdstp://a/EP/h/*
        open Delta
        > opened
        send+node EP n= +xdstp://a/EP/f/* +xdstp://a/EP/g/* +xdstp://a/EP/h/*
        > - EP xdstp://a/EP/f/*
        send EP n= -xdstp://a/EP/f/*
        > - EP xdstp://a/EP/g/*
        > + EP xdstp://a/EP/g/*
        send EP n= -xdstp://a/EP/g/*
        > EP - n1 xdstp://a/EP/g/a=1
        send EP n=n1 +xdstp://a/EP/g/*
        Globs EP xdstp://a/EP/g/a=1
        > EP - n2 xdstp://a/EP/g/a=1
        send EP n=n2
        Globs EP xdstp://a/EP/g/a=1
        Globs EP all:xdstp://a/EP/g/*
        "#,
    );
}

#[test]
fn sub_21_a_sotw_server_is_not_asked_for_globs() {
    check(
        sotw(),
        r#"
        > + EP xdstp://a/EP/f/*
        open Sotw
        > + CDS a
        > opened
        send+node CDS v= n= ["a"]
        unserved EP ["xdstp://a/EP/f/*"]
        > + EP xdstp://a/EP/g/*
        > after 60s
        probe
        > closed OK
        disconnected OK unanswered 1000ms
        unreachable OK
        "#,
    );
}
