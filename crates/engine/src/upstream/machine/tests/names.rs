//! Names from subscriptions one by one.

use super::script::{check, delta, sotw};

#[test]
fn rly_27_omission_proves_absence_by_the_first_request() {
    check(
        sotw(),
        r#"
        > + CDS a b
        open Sotw
        > opened
        send+node CDS v= n= ["a", "b"]
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a", "b"]
        Names CDS a=1 -b:Omitted
        > CDS v2 n2 a=1
        send CDS v=v2 n=n2 ["a", "b"]
        Names CDS a=1
        > CDS v3 n3 b=1
        send CDS v=v3 n=n3 ["a", "b"]
        Names CDS b=1 -a:Omitted
        "#,
    );
}

#[test]
fn rly_27_omission_of_a_name_asked_for_later_proves_nothing() {
    check(
        sotw(),
        r#"
        > + CDS a
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > + CDS b
        send CDS v= n= ["a", "b"]
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a", "b"]
        Names CDS a=1
        > CDS v2 n2 a=1 b=1
        send CDS v=v2 n=n2 ["a", "b"]
        Names CDS a=1 b=1
        > CDS v3 n3 a=1
        send CDS v=v3 n=n3 ["a", "b"]
        Names CDS a=1 -b:Omitted
        "#,
    );
}

#[test]
fn rly_27_presence_counts_only_from_when_the_name_was_asked_for() {
    check(
        sotw(),
        r#"
        > + CDS a
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > + CDS b
        send CDS v= n= ["a", "b"]
        > + CDS c
        > CDS v1 n1 a=1 c=1
        send CDS v=v1 n=n1 ["a", "b", "c"]
        Names CDS a=1 c=1
        > CDS v2 n2 a=1
        send CDS v=v2 n=n2 ["a", "b", "c"]
        Names CDS a=1
        "#,
    );
}

#[test]
fn rly_28_other_types_are_never_removed_by_omission() {
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
        > EDS v2 n2 b=1
        send EDS v=v2 n=n2 ["a", "b"]
        Names EDS b=1
        > EDS v3 n3
        send EDS v=v3 n=n3 ["a", "b"]
        > after 60s
        "#,
    );
}

#[test]
fn sst_14_an_empty_full_state_response_says_that_all_are_absent() {
    check(
        sotw(),
        r#"
        > + LDS a b
        open Sotw
        > opened
        send+node LDS v= n= ["a", "b"]
        > LDS v1 n1
        send LDS v=v1 n=n1 ["a", "b"]
        Names LDS -a:Omitted -b:Omitted
        "#,
    );
}

#[test]
fn ttl_6_a_heartbeat_response_removes_nothing() {
    check(
        sotw(),
        r#"
        > + CDS a b
        open Sotw
        > opened
        send+node CDS v= n= ["a", "b"]
        > CDS v1 n1 a=1 b=1
        send CDS v=v1 n=n1 ["a", "b"]
        Names CDS a=1 b=1
        > CDS v1 n2 ~a=1
        send CDS v=v1 n=n2 ["a", "b"]
        Names CDS ~a
        > CDS v2 n3 ~a=1 b=2
        send CDS v=v2 n=n3 ["a", "b"]
        Names CDS b=2 ~a
        "#,
    );
}

#[test]
fn ttl_10_payloadless_is_a_heartbeat_only_with_the_version_that_is_held() {
    check(
        delta(),
        "
        > + CDS a b c
        open Delta
        > opened
        send+node CDS n= +a +b +c
        > CDS - n1 a=1 b=1
        send CDS n=n1
        Names CDS a=1 b=1
        > CDS - n2 ~a=1 ~b=2 ~c= ~x=1
        send CDS n=n2
        Names CDS -b:Removed -c:Removed ~a
        > CDS - n3 ~b=2 ~c=
        send CDS n=n3
        > CDS - n4 c=
        send CDS n=n4
        Names CDS c=
        > CDS - n5 ~c=
        send CDS n=n5
        Names CDS -c:Removed
        ",
    );
}

#[test]
fn del_12_removed_resources_of_subscribed_names_are_absent_once() {
    check(
        delta(),
        "
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > CDS - n1 a=1 -b -x
        send CDS n=n1
        Names CDS a=1 -b:Removed
        > CDS - n2 -a -b
        send CDS n=n2
        Names CDS -a:Removed
        > CDS - n3 a=1
        send CDS n=n3
        Names CDS a=1
        ",
    );
}

#[test]
fn rly_61_a_name_between_two_requests_is_used_when_it_comes_and_never_lost() {
    check(
        delta(),
        "
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > + CDS b
        send CDS n= +b
        > + CDS c
        > CDS - n1 -c
        send CDS n=n1 +c
        > CDS - n2 -c
        send CDS n=n2
        Names CDS -c:Removed
        ",
    );
}

/// `rc/y` is unknown after the reconnect, and may lead to the same resource: the relay does not say that it has the resource.
#[test]
fn ali_1_a_resource_answers_the_alias_that_was_asked_for() {
    check(
        delta(),
        "
        > + VirtualHost rc/x rc/y
        open Delta
        > opened
        send+node VirtualHost n= +rc/x +rc/y
        > VirtualHost - n1 vh=1/rc/x
        send VirtualHost n=n1
        Names VirtualHost vh=1 rc/x>vh
        > VirtualHost - n2 ~vh=1
        send VirtualHost n=n2
        Names VirtualHost ~rc/x
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node VirtualHost n= +rc/x +rc/y
        > VirtualHost - n1 vh2=1/rc/x
        send VirtualHost n=n1
        Names VirtualHost vh2=1 rc/x>vh2
        > VirtualHost - n2 -vh
        send VirtualHost n=n2
        > VirtualHost - n3 -vh2
        send VirtualHost n=n3
        Names VirtualHost -rc/x:Removed
        > - VirtualHost rc/x
        send VirtualHost n= -rc/x
        ",
    );
}

#[test]
fn fu_20_equal_versions_are_trusted_by_their_bytes() {
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
        > CDS - n1 a=1#1
        send CDS n=n1
        Names CDS a=1
        ",
    );
}
