//! The content of requests, and the time of their write.

use super::script::{Script, check, delta, legacy, sotw, type_url};
use super::*;

#[test]
fn flw_5_the_first_change_leaves_at_once_and_what_follows_is_gathered() {
    check(
        delta(),
        "
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > + CDS b
        send CDS n= +b
        > + EDS e
        > + CDS c d
        > - CDS d
        > after 1ms
        send CDS n= +c
        send EDS n= +e
        > after 1ms
        > - CDS a
        > after 1ms
        send CDS n= -a
        > after 3ms
        > + CDS f
        > after 1ms
        send CDS n= +f
        > after 10ms
        > after 1s
        > + CDS g
        send CDS n= +g
        > + CDS h
        > after 1ms
        send CDS n= +h
        ",
    );
}

#[test]
fn flw_5_a_client_that_asks_for_one_type_after_the_other_waits_for_nobody() {
    // The server takes 2 ms for each answer.
    check(
        delta(),
        "
        > + LDS l
        open Delta
        > opened
        send+node LDS n= +l
        > after 2ms
        > + RDS r
        send RDS n= +r
        > after 2ms
        > + CDS c
        send CDS n= +c
        > after 2ms
        > + EDS e
        send EDS n= +e
        ",
    );
}

#[test]
fn rly_62_flw_5_many_clients_at_once_cost_few_requests() {
    // A thousand clients, each for another name, within 10 ms and within 300 ms.
    for settings in [sotw(), delta()] {
        for (apart, most) in [("10us", 5), ("300us", 12)] {
            let mut script = Script::new(settings.clone());
            script.run("+ EDS first");
            script.run("opened");
            let mut requests = Vec::new();
            for name in 0..1_000 {
                requests.extend(script.run(&format!("+ EDS e{name}")));
                requests.extend(script.run(&format!("after {apart}")));
            }
            requests.extend(script.run("after 50ms"));
            requests.retain(|line| line.starts_with("send"));
            assert!(requests.len() <= most, "{} requests", requests.len());
        }
    }
}

#[test]
fn ack_10_an_ack_never_waits_and_takes_the_changes_of_its_type_along() {
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
        > - CDS b
        > + EDS e
        > CDS - n1 a=1
        send CDS n=n1 +c -b
        Names CDS a=1
        > after 50ms
        send EDS n= +e
        ",
    );
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
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a", "b", "c"]
        Names CDS a=1
        > after 50ms
        > - CDS c
        send CDS v=v1 n=n1 ["a", "b"]
        "#,
    );
}

#[test]
fn d_10_changes_that_cancel_each_other_are_not_written() {
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
        > - CDS c
        > - CDS unknown
        > after 50ms
        > after 1s
        ",
    );
}

#[test]
fn rly_59_a_name_taken_up_again_is_left_and_entered_in_two_requests() {
    check(
        delta(),
        "
        > + CDS a b
        open Delta
        > opened
        send+node CDS n= +a +b
        > + CDS x
        send CDS n= +x
        > - CDS b
        > + CDS b
        send CDS n= -b
        > after 50ms
        send CDS n= +b
        ",
    );
}

#[test]
fn d_13_a_change_around_a_reconnect_is_part_of_the_first_request() {
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
        > closed OK
        disconnected OK answered 50ms
        > - CDS a
        > + CDS c
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +b +c b=1
        > - CDS b
        send CDS n= -b
        ",
    );
}

#[test]
fn d_5_legacy_wildcard_is_an_empty_first_request_on_every_stream() {
    check(
        legacy(delta()),
        "
        > + CDS *
        open Delta
        > opened
        send+node CDS n=
        > - CDS unknown
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        Wildcard CDS complete
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= a=1
        > + EDS e
        send EDS n= +e
        > - CDS *
        > after 50ms
        send CDS n= -*
        ",
    );
}

#[test]
fn sub_10_empty_after_names_is_nothing() {
    check(
        sotw(),
        r#"
        > + EDS e
        open Sotw
        > opened
        send+node EDS v= n= ["e"]
        > + CDS a
        send CDS v= n= ["a"]
        > after 50ms
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        > - CDS a
        send CDS v=v1 n=n1 []
        > CDS v2 n2 a=2
        send CDS v=v2 n=n2 []
        > after 50ms
        > + CDS a
        send CDS v= n=n2 ["a"]
        "#,
    );
}

#[test]
fn sub_10_an_old_server_would_take_empty_after_names_for_the_wildcard() {
    check(
        legacy(sotw()),
        r#"
        > + EDS e
        open Sotw
        > opened
        send+node EDS v= n= ["e"]
        > + CDS a
        send CDS v= n= ["a"]
        > after 50ms
        > - CDS a
        > CDS v2 n2 a=2
        ignored CDS
        > + CDS b
        send CDS v= n=n2 ["b"]
        > after 50ms
        > - CDS b
        > + CDS b
        close
        open Sotw
        > opened
        send+node CDS v= n= ["b"]
        send EDS v= n= ["e"]
        "#,
    );
}

#[test]
fn sub_9_legacy_wildcard_in_sotw_is_always_an_empty_list() {
    check(
        legacy(sotw()),
        r#"
        > + CDS *
        open Sotw
        > + EDS e
        > opened
        send+node CDS v= n= []
        send EDS v= n= ["e"]
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 []
        Wildcard CDS a=1 replaces complete
        > - CDS *
        > CDS v2 n2 a=2
        ignored CDS
        > + CDS *
        close
        open Sotw
        > opened
        send+node CDS v= n= []
        send EDS v= n= ["e"]
        "#,
    );
}

#[test]
fn an_interest_that_went_away_before_its_request_is_not_asked_for() {
    for settings in [sotw(), delta()] {
        let mut script = Script::new(settings);
        script.raw("+ CDS a");
        script.raw("+ EDS e");
        script.raw("- CDS a");
        let sent = script.run("opened");
        assert_eq!(sent.len(), 1, "{sent:?}");
        let names = script.upstream.names(&type_url("EDS")).map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names, ["e"]);
        let types: Vec<_> = script.upstream.types().map(|view| (view.type_url.clone(), view.names)).collect();
        assert_eq!(types, [(type_url("EDS"), 1)]);
        assert_eq!(script.upstream.state(), LinkState::Open);
    }
}
