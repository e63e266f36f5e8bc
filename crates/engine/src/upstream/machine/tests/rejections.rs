//! The server hears of clients' rejections.

use super::script::{Script, check, delta, sotw};
use super::*;

#[test]
fn rly_38_a_rejection_has_the_newest_nonce_and_the_accepted_version() {
    check(
        sotw(),
        r#"
        > + CDS a
        open Sotw
        > reject CDS early
        false
        > opened
        send+node CDS v= n= ["a"]
        > reject CDS too early
        false
        > CDS v1 n1 a=1
        send CDS v=v1 n=n1 ["a"]
        Names CDS a=1
        > reject CDS 3 of 4
        send CDS v=v1 n=n1 ["a"] NACK INVALID_ARGUMENT: 3 of 4
        true
        > reject LDS of nobody
        false
        "#,
    );
    check(
        delta(),
        r#"
        > + CDS a
        open Delta
        > opened
        send+node CDS n= +a
        > CDS - n1 a=1
        send CDS n=n1
        Names CDS a=1
        > reject CDS 3 of 4
        send CDS n=n1 NACK INVALID_ARGUMENT: 3 of 4
        true
        "#,
    );
}

/// A server would answer a request with other names. After a NACK of the relay, a server would send the rejected response again for the
/// sake of the accepted version.
#[test]
fn rly_38_a_rejection_never_asks_for_anything() {
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
        > + CDS b
        send CDS v=v1 n=n1 ["a", "b"]
        > + CDS c
        > reject CDS words
        send CDS v=v1 n=n1 ["a", "b", "c"]
        send CDS v=v1 n=n1 ["a", "b", "c"] NACK INVALID_ARGUMENT: words
        true
        > CDS v2 n2 !a
        send CDS v=v1 n=n2 ["a", "b", "c"] NACK INVALID_ARGUMENT: a: bad
        > reject CDS words
        false
        "#,
    );
}

#[test]
fn rly_38_the_words_of_clients_are_bounded() {
    let mut script = Script::new(UpstreamSettings { nack_text_max: 5, ..delta() });
    ["+ CDS a", "opened", "CDS - n1 a=1"].iter().for_each(|input| drop(script.raw(input)));
    let outputs = script.raw("reject CDS ééééé");
    let Output::Send { request: Request::Delta(request), .. } = &outputs[0] else { panic!("{outputs:?}") };
    assert_eq!(request.error_detail.as_ref().unwrap().message, "éé");
    let view = script.upstream.types().next().unwrap();
    assert_eq!((view.acks, view.nacks), (1, 0), "the relay itself has rejected nothing");
}
