//! Dynamic parameters: DYN-1 to DYN-8.

use super::script::{check, delta, rest, sotw};

#[test]
fn dyn_2_each_set_of_parameters_is_given_the_variant_that_matches() {
    check(
        delta(),
        r#"
        > + EDS a{env=prod} a{env=test} a
        open Delta
        > opened
        send+node EDS n= +a +a{env=prod} +a{env=test}
        > EDS - n1 a[env=prod]=p a[env=test]=t a[!env]=n
        send EDS n=n1
        Names EDS a=n a{env=prod}=p a{env=test}=t
        > EDS - n2 a[env=prod]=p2
        send EDS n=n2
        Names EDS a{env=prod}=p2
        "#,
    );
}

#[test]
fn dyn_2_what_is_here_already_answers_who_comes_later() {
    for settings in [delta(), sotw()] {
        let mut script = super::script::Script::new(settings);
        let mut run = |line: &str| script.run(line).join("; ");
        run("+ EDS a{env=prod}");
        run("opened");
        run("EDS v n1 a[env]=1");
        let out = run("+ EDS a{env=test} a{zone=x}");
        assert!(out.contains("Names EDS a{env=test}=1"), "{out}");
        assert!(!out.contains("a{zone=x}="), "{out}");
    }
}

#[test]
fn dyn_3_an_unconstrained_resource_is_for_everybody() {
    check(
        sotw(),
        r#"
        > + EDS a{env=prod} a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "a{env=prod}", "b"]
        > EDS v1 n1 a=1 b=1
        send EDS v=v1 n=n1 ["a", "a{env=prod}", "b"]
        Names EDS b=1 a=1 a{env=prod}=1
        "#,
    );
}

#[test]
fn dyn_4_of_several_the_last_in_order_is_taken_and_told_once() {
    check(
        delta(),
        r#"
        > + EDS a{env=prod}
        open Delta
        > opened
        send+node EDS n= +a{env=prod}
        > EDS - n1 a[zone]=0 a[env]=1 a[env=prod]=2
        send EDS n=n1
        ambiguous EDS a{env=prod}
        Names EDS a{env=prod}=1
        > EDS - n2 a[env=prod]=3
        send EDS n=n2
        > EDS - n3 -a[env]
        send EDS n=n3
        Names EDS a{env=prod}=3
        > EDS - n4 a[!zone]=4
        send EDS n=n4
        ambiguous EDS a{env=prod}
        "#,
    );
}

#[test]
fn dyn_5_a_variant_takes_the_place_of_another_in_one_step() {
    check(
        delta(),
        r#"
        > + EDS a{env=prod}
        open Delta
        > opened
        send+node EDS n= +a{env=prod}
        > EDS - n1 a[env]=1
        send EDS n=n1
        Names EDS a{env=prod}=1
        > EDS - n2 a[env=prod]=2 a[!env=prod]=3 -a[env]
        send EDS n=n2
        Names EDS a{env=prod}=2
        "#,
    );
}

#[test]
fn dyn_6_a_removal_with_constraints_removes_one_variant() {
    check(
        delta(),
        r#"
        > + EDS a{env=prod} a{env=test}
        open Delta
        > opened
        send+node EDS n= +a{env=prod} +a{env=test}
        > EDS - n1 a[env=prod]=p a[env=test]=t
        send EDS n=n1
        Names EDS a{env=prod}=p a{env=test}=t
        > EDS - n2 -a[env=prod] -a[env=stage]
        send EDS n=n2
        Names EDS -a{env=prod}:Removed
        > EDS - n3 -a
        send EDS n=n3
        > EDS - n4 ~a[env=test]=t
        send EDS n=n4
        Names EDS ~a{env=test}
        > EDS - n5 ~a[env=test]=
        send EDS n=n5
        Names EDS -a{env=test}:Removed
        "#,
    );
}

#[test]
fn dyn_2_no_variant_is_unknown_until_the_server_or_the_timer_says_so() {
    check(
        delta(),
        r#"
        > + EDS a{env=prod} a{env=test}
        open Delta
        > opened
        send+node EDS n= +a{env=prod} +a{env=test}
        > EDS - n1 a[env=prod]=p
        send EDS n=n1
        Names EDS a{env=prod}=p
        > EDS - n2 -a
        send EDS n=n2
        Names EDS -a{env=test}:Removed
        > + EDS a{env=stage}
        send EDS n= +a{env=stage}
        > EDS - n3 a[env=prod]=p
        send EDS n=n3
        Names EDS a{env=prod}=p
        > after 10s
        Names EDS -a{env=stage}:Timeout
        "#,
    );
}

#[test]
fn dyn_6_the_next_stream_replaces_what_it_does_not_repeat() {
    check(
        delta(),
        r#"
        > + EDS a{env=prod}
        open Delta
        > opened
        send+node EDS n= +a{env=prod}
        > EDS - n1 a[env]=1
        send EDS n=n1
        Names EDS a{env=prod}=1
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node EDS n= +a{env=prod}
        > EDS - m1 a[env=prod]=2
        send EDS n=m1
        Names EDS a{env=prod}=2
        > EDS - m2 -a[env=prod]
        send EDS n=m2
        Names EDS -a{env=prod}:Removed
        "#,
    );
}

#[test]
fn rly_27_a_full_state_response_without_the_variant_withdraws_it() {
    check(
        sotw(),
        r#"
        > + CDS a{env=prod} a{env=test}
        open Sotw
        > opened
        send+node CDS v= n= ["a{env=prod}", "a{env=test}"]
        > CDS v1 n1 a[env=prod]=p a[env=test]=t
        send CDS v=v1 n=n1 ["a{env=prod}", "a{env=test}"]
        Names CDS a{env=prod}=p a{env=test}=t
        > CDS v2 n2 a[env=prod]=p2
        send CDS v=v2 n=n2 ["a{env=prod}", "a{env=test}"]
        Names CDS a{env=prod}=p2 -a{env=test}:Omitted
        > CDS v3 n3 !a
        send CDS v=v2 n=n3 ["a{env=prod}", "a{env=test}"] NACK INVALID_ARGUMENT: a: bad
        > CDS v4 n4 ~a[env=prod]=x
        send CDS v=v4 n=n4 ["a{env=prod}", "a{env=test}"]
        Names CDS ~a{env=prod}
        "#,
    );
}

#[test]
fn dyn_5_in_sotw_a_newer_variant_replaces_the_one_before() {
    check(
        sotw(),
        r#"
        > + EDS a{env=prod} a{env=test}
        open Sotw
        > opened
        send+node EDS v= n= ["a{env=prod}", "a{env=test}"]
        > EDS v1 n1 a[env]=1
        send EDS v=v1 n=n1 ["a{env=prod}", "a{env=test}"]
        Names EDS a{env=prod}=1 a{env=test}=1
        > EDS v2 n2 a[!env=test]=2 a[env=test]=3
        send EDS v=v2 n=n2 ["a{env=prod}", "a{env=test}"]
        Names EDS a{env=prod}=2 a{env=test}=3
        "#,
    );
}

#[test]
fn dyn_8_names_without_parameters_are_as_they_were() {
    let mut script = super::script::Script::new(rest());
    script.run("+ CDS a");
    script.run("opened");
    assert_eq!(script.run("CDS v n1 a[env]=1 a[!env]=2 b[env]=1"), ["Names CDS a=2"]);
    assert_eq!(script.run("+ CDS a{env=x}"), ["Names CDS a{env=x}=1"]);
}

#[test]
fn dyn_2_a_wildcard_refuses_what_is_for_some_only() {
    check(
        delta(),
        r#"
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a[env]=1 b=1
        send CDS n=n1 NACK INVALID_ARGUMENT: a: dynamic parameter constraints are not supported in wildcards and globs
        Wildcard CDS b=1
        Wildcard CDS complete
        "#,
    );
}

#[test]
fn rly_61_nothing_is_kept_of_names_that_nobody_wants() {
    check(
        delta(),
        r#"
        > + EDS a{env=prod} b
        open Delta
        > opened
        send+node EDS n= +a{env=prod} +b
        > EDS - n1 a[env]=1 c[env]=1
        send EDS n=n1
        Names EDS a{env=prod}=1
        > - EDS a{env=prod}
        send EDS n= -a{env=prod}
        > after 50ms
        > + EDS a{env=test}
        send EDS n= +a{env=test}
        "#,
    );
}

#[test]
fn ttl_4_a_heartbeat_of_a_variant_is_a_sign_of_life_of_who_was_given_it() {
    let mut script = super::script::Script::new(sotw());
    let mut run = |line: &str| script.run(line).join("; ");
    run("+ CDS a{env=prod} b");
    run("opened");
    run("CDS v1 n1 a[env]=1 b=1");
    // Resources of this type that a response lacks do not exist (SST-1).
    let out = run("CDS v2 n2 ~a[env]=1 b=2");
    assert!(out.contains("Names CDS b=2 ~a{env=prod}"), "{out}");
}
