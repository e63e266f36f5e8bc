//! A second stream in the place of the open stream, and servers that never answer.

use super::script::{Script, check, delta, rest, sotw};
use super::*;

#[test]
fn rly_48_a_new_stream_is_open_before_the_old_one_is_closed_and_presents_versions() {
    check(
        delta(),
        r#"
        > + CDS *
        open Delta
        > + EDS a
        > opened
        send+node CDS n= +*
        send EDS n= +a
        > CDS - n1 x=1
        send CDS n=n1
        Wildcard CDS x=1
        Wildcard CDS complete
        > EDS - n2 a=1
        send EDS n=n2
        Names EDS a=1
        > succeed
        open next Delta
        > succeed
        > EDS - n3 a=2
        send EDS n=n3
        Names EDS a=2
        > next opened
        take next
        send+node CDS n= +* x=1
        send EDS n= +a a=2
        > current CDS
        true
        > CDS - m1 x=1
        send CDS n=m1
        Wildcard CDS x=1 complete
        > EDS - m2 a=2
        send EDS n=m2
        Names EDS a=2
        "#,
    );
    check(
        sotw(),
        r#"
        > + CDS *
        open Sotw
        > opened
        send+node CDS v= n= ["*"]
        > CDS v1 n1 x=1
        send CDS v=v1 n=n1 ["*"]
        Wildcard CDS x=1 replaces complete
        > succeed
        open next Sotw
        > next opened
        take next
        send+node CDS v=v1 n= ["*"]
        "#,
    );
}

#[test]
fn the_open_stream_goes_on_if_no_other_one_can_be_opened() {
    check(
        delta(),
        r#"
        > + EDS a
        open Delta
        > succeed
        > opened
        send+node EDS n= +a
        > succeed
        open next Delta
        > next failed
        > EDS - n1 a=1
        send EDS n=n1
        Names EDS a=1
        > next opened
        > succeed
        > after 1s
        open next Delta
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > next opened
        > after 50ms
        open Delta
        > opened
        send+node EDS n= +a a=1
        "#,
    );
}

/// Otherwise the server would see a departed member for as long as the stream lasts.
#[test]
fn cli_4_a_stream_that_could_not_take_the_place_is_tried_again_ever_less_often() {
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
        > succeed
        open next Delta
        > next failed
        > after 999ms
        > after 1ms
        open next Delta
        > next failed
        > after 1599ms
        > succeed
        > after 1ms
        open next Delta
        > next opened
        take next
        send+node EDS n= +a a=1
        > after 60s
        > succeed
        open next Delta
        > next failed
        > after 1s
        open next Delta
        "#,
    );
}

#[test]
fn what_was_heard_on_the_stream_before_is_not_told_again() {
    let mut script = Script::new(delta());
    let hears = |outputs: Vec<Output>| outputs.contains(&Output::Event(Event::Heard));
    for input in ["+ EDS a", "opened"] {
        script.raw(input);
    }
    assert!(hears(script.raw("EDS - n1 a=1")));
    for input in ["succeed", "next opened"] {
        script.raw(input);
    }
    assert!(!hears(script.raw("EDS - n1 a=1")));
}

#[test]
fn the_next_poll_shows_the_other_node_by_itself() {
    let mut script = Script::new(rest());
    for input in ["+ CDS *", "opened"] {
        script.raw(input);
    }
    assert!(script.raw("succeed").is_empty());
}

fn tells(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Event(Event::Unanswered)))
}

#[test]
fn a_server_that_never_answers_is_told_after_ten_seconds_once_for_each_stream() {
    for settings in [delta(), sotw()] {
        let mut script = Script::new(settings);
        script.raw("+ CDS *");
        assert!(!tells(&script.raw("after 30s")), "nothing was asked yet");
        script.raw("opened");
        assert!(!tells(&script.raw("after 9999ms")));
        assert!(tells(&script.raw("after 1ms")));
        assert!(!tells(&script.raw("after 3600s")));
        script.raw("closed UNAVAILABLE");
        script.raw("after 30s");
        script.raw("opened");
        assert!(tells(&script.raw("after 10s")));
    }
}

/// A sluice does not key by node id, and has no answer before its own server answers.
#[test]
fn silence_of_a_server_with_marks_says_nothing_against_it() {
    let mut script = Script::new(delta());
    for input in ["+ CDS *", "opened", "marks", "alive"] {
        script.raw(input);
    }
    assert!(!tells(&script.raw("after 60s")));
    for input in ["closed UNAVAILABLE", "after 30s", "opened"] {
        script.raw(input);
    }
    assert!(tells(&script.raw("after 10s")), "the next one is another server");
}

#[test]
fn silence_after_an_answer_or_a_restart_says_nothing_against_the_server() {
    let mut script = Script::new(delta());
    for input in ["+ CDS *", "+ EDS a", "opened", "CDS - n1 x=1"] {
        script.raw(input);
    }
    assert!(!tells(&script.raw("after 60s")));
    for input in ["closed UNAVAILABLE", "after 30s", "opened"] {
        script.raw(input);
    }
    assert!(!tells(&script.raw("after 60s")), "it may find all versions current");
    let mut script = Script::new(delta());
    let former = FormerResource { name: "a".into(), own_name: "a".into(), version: "1".into() };
    script.upstream.resume(&super::script::type_url("EDS"), Resumed::Names(vec![former]), Time::ZERO);
    script.raw("opened");
    assert!(!tells(&script.raw("after 60s")));
}
