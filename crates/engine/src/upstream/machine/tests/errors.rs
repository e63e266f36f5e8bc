//! Responses with faults, in part or as a whole.

use super::script::{Script, check, delta, sotw};
use super::*;

#[test]
fn g_6_a_nack_carries_the_version_accepted_last_and_the_new_nonce() {
    check(
        sotw(),
        r#"
        > + CDS a
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > CDS v0 n0 !a
        send CDS v= n=n0 ["a"] NACK INVALID_ARGUMENT: a: bad
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        > CDS v2 n2 !a
        send CDS v=v1 n=n2 ["a"] NACK INVALID_ARGUMENT: a: bad
        > CDS v3 n3 a=3
        send CDS v=v3 n=n3 ["a"]
        Names CDS a=3
        "#,
    );
}

#[test]
fn g_28_the_good_rest_of_a_bad_response_is_used() {
    check(
        sotw(),
        r#"
        > + CDS a b c
        open Sotw
        > opened
        send+node CDS v= n= ["a", "b", "c"]
        > CDS v1 n1 a=1 !b
        send CDS v= n=n1 ["a", "b", "c"] NACK INVALID_ARGUMENT: b: bad
        Names CDS a=1 -c:Omitted
        > CDS v2 n2 !
        send CDS v= n=n2 ["a", "b", "c"] NACK INVALID_ARGUMENT: (unnamed): bad
        "#,
    );
}

#[test]
fn d_11_a_name_twice_voids_the_whole_response() {
    for twice in ["a=1 a=2 b=1", "-a b=1 -a", "a=1 -a b=1", "!a a=1 b=1"] {
        let mut script = Script::new(delta());
        script.raw("+ CDS a b");
        script.raw("opened");
        let outputs = script.run(&format!("CDS - n1 {twice}"));
        assert_eq!(outputs.len(), 1, "{outputs:?}");
        assert!(outputs[0].starts_with("send CDS n=n1 NACK INVALID_ARGUMENT: a: "), "{outputs:?}");
    }
    check(
        sotw(),
        r#"
        > + CDS *
        open Sotw
        > opened
        send+node CDS v= n= ["*"]
        > CDS v1 n1 a=1 a=1
        send CDS v= n=n1 ["*"] NACK INVALID_ARGUMENT: a: the name occurs twice
        "#,
    );
}

#[test]
fn d_12_the_text_of_a_nack_is_bounded() {
    let mut script = Script::new(UpstreamSettings { nack_text_max: 10, ..delta() });
    script.raw("+ CDS a");
    script.raw("opened");
    let outputs = script.raw("CDS - n1 !ééééé !b");
    let Output::Send { request: Request::Delta(request), .. } = &outputs[1] else { panic!("{outputs:?}") };
    assert_eq!(request.error_detail.as_ref().unwrap().message, "ééééé");
    let Output::Event(Event::Nacked { names, .. }) = &outputs[2] else { panic!("{outputs:?}") };
    assert_eq!(names.len(), 2);
    let view = script.upstream.types().next().unwrap();
    assert_eq!((view.acks, view.nacks, view.nonce), (0, 1, "n1"));
}

#[test]
fn m_2_a_response_that_nobody_asked_for_is_ignored() {
    check(
        delta(),
        "
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > RDS - n1 r=1
        ignored RDS
        > + EDS e
        send EDS n= +e
        > + RDS r
        > RDS - n2 r=1
        ignored RDS
        > after 50ms
        send RDS n= +r
        ",
    );
}

#[test]
fn fu_22_whatever_nonce_comes_is_answered() {
    check(
        sotw(),
        r#"
        > + CDS a
        open Sotw
        > opened
        send+node CDS v= n= ["a"]
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        > CDS v2 n1 a=2
        send CDS v=v2 n=n1 ["a"]
        Names CDS a=2
        "#,
    );
}

#[test]
fn err_4_a_name_with_an_error_counts_as_seen() {
    check(
        sotw(),
        r#"
        > + LDS a b c
        open Sotw
        > opened
        send+node LDS v= n= ["a", "b", "c"]
        > LDS v1 n1 a=1 b=1 c=1
        send LDS v=v1 n=n1 ["a", "b", "c"]
        Names LDS a=1 b=1 c=1
        > LDS v2 n2 a=1 b:INTERNAL c:NOT_FOUND x:INTERNAL
        send LDS v=v2 n=n2 ["a", "b", "c"]
        error LDS b:INTERNAL
        error LDS c:NOT_FOUND
        Names LDS a=1 -c:NotFound
        > LDS v3 n3 a=1 a:NOT_FOUND b:PERMISSION_DENIED
        send LDS v=v3 n=n3 ["a", "b", "c"]
        error LDS b:PERMISSION_DENIED
        Names LDS a=1
        "#,
    );
}

#[test]
fn err_3_an_error_of_a_name_that_is_absent_ends_when_its_absence_is_said_again() {
    check(
        delta(),
        r#"
        > + EDS a
        open Delta
        > opened
        send+node EDS n= +a
        > EDS - n1 -a
        send EDS n=n1
        Names EDS -a:Removed
        > EDS - n2 a:UNAVAILABLE
        send EDS n=n2
        error EDS a:UNAVAILABLE
        > EDS - n3 -a
        send EDS n=n3
        Names EDS -a:Removed
        > EDS - n4 -a
        send EDS n=n4
        "#,
    );
    check(
        sotw(),
        r#"
        > + LDS a b
        open Sotw
        > opened
        send+node LDS v= n= ["a", "b"]
        > LDS v1 n1 b=1
        send LDS v=v1 n=n1 ["a", "b"]
        Names LDS b=1 -a:Omitted
        > LDS v2 n2 b=1 a:UNAVAILABLE
        send LDS v=v2 n=n2 ["a", "b"]
        error LDS a:UNAVAILABLE
        Names LDS b=1
        > LDS v3 n3 b=1
        send LDS v=v3 n=n3 ["a", "b"]
        Names LDS b=1 -a:Omitted
        "#,
    );
}

#[test]
fn err_6_an_error_without_name_or_with_ok_is_invalid() {
    check(
        sotw(),
        r#"
        > + LDS a b
        open Sotw
        > opened
        send+node LDS v= n= ["a", "b"]
        > LDS v1 n1 a=1 b:OK
        send LDS v= n=n1 ["a", "b"] NACK INVALID_ARGUMENT: b: an error without a name or with the status OK
        Names LDS a=1
        > LDS v1 n2 a=1 :NOT_FOUND
        send LDS v= n=n2 ["a", "b"] NACK INVALID_ARGUMENT: (unnamed): an error without a name or with the status OK
        Names LDS a=1
        "#,
    );
}

#[test]
fn fu_13_a_response_of_the_other_variant_is_ignored() {
    let mut script = Script::new(delta());
    script.raw("+ CDS a");
    script.raw("opened");
    let response = sluice_xds::SotwResponse {
        version_info: "v".into(),
        type_url: super::script::type_url("CDS"),
        states_type: true,
        nonce: "n".into(),
        resources: Vec::new(),
        errors: Vec::new(),
        control_plane: String::new(),
    };
    script.upstream.handle(Input::Received(Response::Sotw(response)), Time::ZERO);
    let ignored = Output::Event(Event::Ignored { type_url: super::script::type_url("CDS") });
    assert_eq!(script.upstream.poll_output(), Some(Output::Event(Event::Heard)));
    assert_eq!(script.upstream.poll_output(), Some(ignored));
    assert_eq!(script.upstream.poll_output(), None);
}

/// DAT-2, DAT-3: PERMISSION_DENIED and a bad instance remove the copy of a name if the server is trusted with
/// data errors, and only then; other errors never do. A name without a copy stays unknown.
#[test]
fn dat_2_dat_3_a_data_error_takes_the_copy_away_where_the_server_has_the_feature() {
    let transcript = |denied: &str, bad: &str, versions: &str| {
        format!(
            "
            > + EDS a b c d
            open Delta
            > opened
            send+node EDS n= +a +b +c +d
            > EDS - n1 a=1 b=1 c=1
            send EDS n=n1
            Names EDS a=1 b=1 c=1
            > EDS - n2 a:PERMISSION_DENIED c:UNAVAILABLE
            send EDS n=n2
            error EDS a:PERMISSION_DENIED
            error EDS c:UNAVAILABLE
            {denied}
            > EDS - n3 !b !d
            send EDS n=n3 NACK INVALID_ARGUMENT: b: bad; d: bad
            {bad}
            > closed OK
            disconnected OK answered 50ms
            > after 50ms
            open Delta
            > opened
            send+node EDS n= +a +b +c +d {versions}
            "
        )
    };
    check(delta(), &transcript("", "", "a=1 b=1 c=1"));
    let fails = UpstreamSettings { fails_on_data_errors: true, ..delta() };
    check(fails, &transcript("Names EDS -a:DataError", "Names EDS -b:DataError", "c=1"));
}

#[test]
fn dat_1_a_bad_instance_is_told_of_each_wanted_name_and_no_other() {
    let mut script = Script::new(delta());
    script.raw("+ EDS a b");
    script.raw("opened");
    let faults: Vec<_> = script
        .raw("EDS - n1 !a !x b=1")
        .into_iter()
        .filter_map(|output| match output {
            Output::Event(Event::Malformed { faults, .. }) => Some(faults),
            _ => None,
        })
        .collect();
    assert_eq!(faults, [vec![("a".into(), "bad".to_owned())]]);
}
