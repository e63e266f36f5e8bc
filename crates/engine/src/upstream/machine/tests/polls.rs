//! REST: each poll is a stream of one request and one response.

use proptest::prelude::*;

use super::script::{Script, check, rest};
use super::*;

#[test]
fn rst_10_the_next_poll_comes_after_the_delay_and_presents_the_version() {
    check(
        rest(),
        r#"
        > + CDS *
        open Sotw
        > opened
        send+node CDS v= n= []
        > CDS v1 - a=1 b=1
        Wildcard CDS a=1 b=1 replaces complete
        > closed OK
        > after 14999ms
        > after 1ms
        open Sotw
        > opened
        send+node CDS v=v1 n= []
        > unchanged
        unchanged CDS
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node CDS v=v1 n= []
        > CDS v2 - a=2
        Wildcard CDS a=2 replaces complete
        > closed OK
        > - CDS *
        > after 60s
        "#,
    );
}

#[test]
fn rst_12_what_a_response_lacks_is_absent_whatever_the_type() {
    check(
        rest(),
        r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 - a=1
        Names EDS a=1 -b:Omitted
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v=v1 n= ["a", "b"]
        > EDS v2 -
        Names EDS -a:Omitted
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v=v2 n= ["a", "b"]
        > EDS v3 - b=1
        Names EDS b=1
        "#,
    );
}

/// Some servers look at the version only, so a poll presents no version that does not cover its names.
#[test]
fn rst_4_new_names_are_polled_for_at_once_and_without_a_version() {
    check(
        rest(),
        r#"
        > + EDS a
        open Sotw
        > opened
        send+node EDS v= n= ["a"]
        > EDS v1 - a=1
        Names EDS a=1
        > closed OK
        > after 1s
        > + EDS b
        > after 0s
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > + EDS c
        > EDS v1 - a=1 b=1
        Names EDS a=1 b=1
        > closed OK
        > after 49ms
        > after 1ms
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b", "c"]
        > EDS v1 - a=1 b=1
        Names EDS a=1 b=1 -c:Omitted
        > closed OK
        > - EDS c
        > + EDS c
        > after 50ms
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b", "c"]
        "#,
    );
}

#[test]
fn rst_9_a_poll_that_the_server_may_hold_is_given_up_for_new_names() {
    check(
        rest(),
        r#"
        > + EDS a
        open Sotw
        > opened
        send+node EDS v= n= ["a"]
        > + EDS b
        > EDS v1 - a=1
        Names EDS a=1
        > closed OK
        > after 50ms
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 - a=1 b=1
        Names EDS a=1 b=1
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v=v1 n= ["a", "b"]
        > + EDS c
        close
        open Sotw
        > + EDS d
        > opened
        send+node EDS v= n= ["a", "b", "c", "d"]
        > + EDS e
        > after 5s
        > EDS v2 - a=1 b=1 c=1 d=1
        Names EDS a=1 b=1 c=1 d=1
        "#,
    );
}

#[test]
fn cli_1_cli_4_a_poll_without_an_answer_is_an_outage_and_backs_off() {
    check(
        rest(),
        r#"
        > + CDS *
        open Sotw
        > opened
        send+node CDS v= n= []
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 1000ms
        unreachable UNAVAILABLE
        > after 999ms
        > after 1ms
        open Sotw
        > opened
        send+node CDS v= n= []
        > CDS v1 - a=1
        Wildcard CDS a=1 replaces complete
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node CDS v=v1 n= []
        > closed INTERNAL
        disconnected INTERNAL unanswered 1000ms
        unreachable INTERNAL
        > after 1s
        open Sotw
        > opened
        send+node CDS v=v1 n= []
        > closed INTERNAL
        disconnected INTERNAL unanswered 1600ms
        unreachable INTERNAL
        > after 1600ms
        open Sotw
        > opened
        send+node CDS v=v1 n= []
        > unchanged
        unchanged CDS
        > closed OK
        > after 14s
        > after 1s
        open Sotw
        "#,
    );
}

/// New names do not shorten the backoff after a failure.
#[test]
fn cli_4_new_names_wait_for_the_end_of_the_backoff() {
    check(
        rest(),
        r#"
        > + EDS a
        open Sotw
        > opened
        send+node EDS v= n= ["a"]
        > closed UNAVAILABLE
        disconnected UNAVAILABLE unanswered 1000ms
        unreachable UNAVAILABLE
        > + EDS b
        > after 999ms
        > - EDS a b
        > + EDS c
        > after 1ms
        open Sotw
        > opened
        send+node EDS v= n= ["c"]
        "#,
    );
}

/// RST-8: there is no NACK; polls keep presenting the old version.
#[test]
fn rst_8_rly_37_a_bad_element_deletes_nothing_and_its_version_is_not_accepted() {
    check(
        rest(),
        r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 - a=1 b=1
        Names EDS a=1 b=1
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v=v1 n= ["a", "b"]
        > EDS v2 - a=2 !
        Names EDS a=2
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v=v1 n= ["a", "b"]
        > EDS v2 - a=2 a=3
        > closed OK
        > after 15s
        open Sotw
        "#,
    );
}

/// `200 {}`, from something that is no control plane. The answer with a type or a version is meant.
#[test]
fn rst_12_an_answer_that_says_nothing_of_itself_deletes_nothing() {
    check(
        rest(),
        r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS ? -
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS ? - a=1 b=1
        Names EDS a=1 b=1
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS ? - a=2
        Names EDS a=2
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 - a=2
        Names EDS a=2 -b:Omitted
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v=v1 n= ["a", "b"]
        > EDS ? - a=2
        Names EDS a=2
        "#,
    );
}

#[test]
fn rst_12_an_answer_that_says_nothing_of_itself_deletes_no_member() {
    check(
        rest(),
        r#"
        > + CDS *
        open Sotw
        > opened
        send+node CDS v= n= []
        > CDS ? -
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node CDS v= n= []
        > CDS ? - a=1 b=1
        Wildcard CDS a=1 b=1 replaces complete
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node CDS v= n= []
        > CDS ? -
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node CDS v= n= []
        > CDS v1 -
        Wildcard CDS replaces complete
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node CDS v=v1 n= []
        > CDS ? -
        Wildcard CDS replaces complete
        "#,
    );
    let mut script = Script::new(rest());
    for line in ["+ CDS *", "opened"] {
        script.raw(line);
    }
    let outputs = script.raw("CDS ? -");
    let told = outputs.iter().find_map(|output| match output {
        Output::Event(Event::Nacked { text, .. }) => Some(&**text),
        _ => None,
    });
    let reason =
        "the answer omits resources and has neither a type_url nor a version_info; it deletes nothing";
    assert_eq!(told, Some(&*format!("(unnamed): {reason}")));
}

/// After a rollback the server has the accepted version again, and the relay has a part of the rejected one.
#[test]
fn rst_8_a_server_that_goes_back_to_the_accepted_version_is_asked_for_all_of_it() {
    check(
        rest(),
        r#"
        > + EDS a b
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 - a=1 b=1
        Names EDS a=1 b=1
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v=v1 n= ["a", "b"]
        > EDS v2 - a=2 !
        Names EDS a=2
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v=v1 n= ["a", "b"]
        > unchanged
        unchanged EDS
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v= n= ["a", "b"]
        > EDS v1 - a=1 b=1
        Names EDS a=1 b=1
        > closed OK
        > after 15s
        open Sotw
        > opened
        send+node EDS v=v1 n= ["a", "b"]
        "#,
    );
}

#[test]
fn ttl_8_an_expired_resource_is_polled_for_without_a_version() {
    let mut script = Script::new(rest());
    for line in ["+ EDS a", "opened", "EDS v1 - a=1", "closed OK"] {
        script.raw(line);
    }
    script.upstream.expire(&super::script::type_url("EDS"), &"a".into());
    let mut versions = Vec::new();
    for line in ["after 15s", "opened", "unchanged", "closed OK", "after 15s", "opened"] {
        versions.extend(script.raw(line).into_iter().filter_map(|output| match output {
            Output::Send { request: Request::Sotw(request), .. } => Some(request.version_info),
            _ => None,
        }));
    }
    assert_eq!(versions, ["v1", ""]);
}

/// 304 to a request without a version says nothing.
#[test]
fn rst_4_nothing_can_be_unchanged_without_a_version() {
    check(
        rest(),
        r#"
        > + EDS a
        open Sotw
        > opened
        send+node EDS v= n= ["a"]
        > unchanged
        > closed INTERNAL
        disconnected INTERNAL unanswered 1000ms
        unreachable INTERNAL
        "#,
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever happens, one poll is outstanding, each poll has all wanted names, and none claims a version
    /// for names that no response covered.
    #[test]
    fn rst_7_one_poll_is_outstanding_and_lists_all_that_is_wanted(
        inputs in prop::collection::vec(prop::sample::select(vec![
            "+ EDS a", "+ EDS b", "+ EDS c", "- EDS a", "- EDS b", "- EDS c", "opened", "opened", "closed OK",
            "closed OK", "closed UNAVAILABLE", "EDS v1 - a=1", "EDS v1 - a=1 b=1", "EDS v2 - c=1 !", "EDS v3 -",
            "unchanged", "after 1ms", "after 60ms", "after 15s",
        ]), 1..80),
    ) {
        let mut script = Script::new(rest());
        let eds = super::script::type_url("EDS");
        let mut covered: Vec<ResourceName> = Vec::new();
        let mut outstanding: Vec<ResourceName> = Vec::new();
        for input in &inputs {
            let (was_open, is_response) = (script.upstream.state() == LinkState::Open, input.starts_with("EDS"));
            if was_open && is_response {
                covered.clone_from(&outstanding);
            }
            for output in script.raw(input) {
                match output {
                    Output::Send { request: Request::Sotw(request), first } => {
                        prop_assert!(first, "one request per poll");
                        let wanted: Vec<_> = script.upstream.names(&eds).cloned().collect();
                        prop_assert_eq!(&request.resource_names, &wanted);
                        let is_covered = wanted.iter().all(|name| covered.contains(name));
                        prop_assert!(request.version_info.is_empty() || is_covered, "{:?}", request);
                        outstanding = wanted;
                    }
                    Output::Changes(changes) => {
                        prop_assert!(was_open && is_response);
                        let listed = |name: &ResourceName| outstanding.contains(name);
                        prop_assert!(changes.absent.iter().all(|(name, _)| listed(name)));
                    }
                    _ => {}
                }
            }
        }
    }
}
