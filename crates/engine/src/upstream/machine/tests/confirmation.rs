//! Provisional sets: whole by the end of the first answers, and not confirmed.

use super::script::{check, delta};

#[test]
fn del_26_a_set_is_provisional_until_nothing_new_came_for_a_resource_timer() {
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
        > returned
        Wildcard CDS complete
        > provisional CDS
        true
        > after 20ms
        > CDS - n2 b=1
        send CDS n=n2
        Wildcard CDS b=1 complete
        > after 9999ms
        > CDS - n3 b=2
        send CDS n=n3
        Wildcard CDS b=2 complete
        > after 1ms
        round trip
        > provisional CDS
        true
        > returned
        > provisional CDS
        false
        > after 100s
        ",
    );
}

#[test]
fn del_26_bytes_on_the_way_are_no_quiet() {
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
        > returned
        Wildcard CDS complete
        > after 9s
        > receiving
        > after 100s
        > provisional CDS
        true
        > CDS - n2 b=1
        send CDS n=n2
        Wildcard CDS b=1 complete
        round trip
        > returned
        > provisional CDS
        false
        ",
    );
}

#[test]
fn del_26_silence_after_a_reconnect_confirms_what_was_restated() {
    check(
        delta(),
        "
        > + CDS *
        open Delta
        > opened
        send+node CDS n= +*
        > CDS - n1 a=1
        send CDS n=n1
        Wildcard CDS a=1
        Wildcard CDS complete
        > closed OK
        disconnected OK answered 50ms
        > after 50ms
        open Delta
        > opened
        send+node CDS n= +* a=1
        > after 9s
        > provisional CDS
        true
        > after 1s
        probe
        > alive
        > provisional CDS
        false
        ",
    );
}
