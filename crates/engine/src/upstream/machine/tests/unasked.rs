//! Resources that a server sends unasked: DEL-17, FU15.

use super::script::{check, delta, sotw};
use super::*;

fn taking(names_max: usize) -> UpstreamSettings {
    UpstreamSettings { unasked: UnaskedRule::Taken { names_max }, ..delta() }
}

/// Changes and removals follow, and the next stream restates the name with its version.
#[test]
fn del_17_what_comes_unasked_counts_as_subscribed() {
    check(
        taking(10),
        r#"
        > + Address vip
        open Delta
        > opened
        send+node Address n= +vip
        > Address - n1 vip=1 a=1 b=1/ip
        send Address n=n1
        Names Address vip=1 a=1 b=1 new:a new:b
        > Address - n2 a=2 -b
        send Address n=n2
        Names Address a=2 -b:Removed
        > closed UNAVAILABLE
        disconnected UNAVAILABLE answered 50ms
        > after 1s
        open Delta
        > opened
        send+node Address n= +a +b +vip a=2 vip=1
        > Address - n3 -a
        send Address n=n3
        Names Address -a:Removed
        "#,
    );
}

/// Several clients may share the stream; other types have no such resources; and the state of the world has none.
#[test]
fn fu_15_others_are_ignored() {
    check(
        delta(),
        r#"
        > + Address vip
        open Delta
        > opened
        send+node Address n= +vip
        > Address - n1 vip=1 a=1 b=1
        send Address n=n1
        unasked Address 2
        Names Address vip=1
        > + EDS x
        send EDS n= +x
        > EDS - n2 x=1 y=1
        send EDS n=n2
        Names EDS x=1
        "#,
    );
    check(
        UpstreamSettings { unasked: UnaskedRule::Taken { names_max: 9 }, ..sotw() },
        r#"
        > + Address vip
        open Sotw
        > opened
        send+node Address v= n= ["vip"]
        > Address 1 n1 vip=1 a=1
        send Address v=1 n=n1 ["vip"]
        Names Address vip=1
        "#,
    );
}

#[test]
fn fu_15_beyond_the_bound_they_are_ignored() {
    check(
        taking(3),
        r#"
        > + Address vip
        open Delta
        > opened
        send+node Address n= +vip
        > Address - n1 a=1 b=1 c=1^ d=1 e=1 vip=1
        send Address n=n1
        unasked Address 2 over 3
        Names Address a=1 b=1 vip=1 new:a new:b
        "#,
    );
}

/// A late update of a name that was given up looks as if it came unasked, and the server does not count the name as subscribed.
#[test]
fn rly_61_a_name_that_was_given_up_is_asked_for_again() {
    check(
        taking(10),
        r#"
        > + Address vip
        open Delta
        > opened
        send+node Address n= +vip
        > Address - n1 vip=1 a=1
        send Address n=n1
        Names Address vip=1 a=1 new:a
        > - Address a
        > + Address svc
        send Address n= +svc -a
        > Address - n2 a=2
        send Address n=n2 +a
        Names Address a=2 new:a
        > Address - n3 a=2 b=1
        send Address n=n3
        Names Address a=2 b=1 new:b
        "#,
    );
}

/// W7: istiod answers a request that names nothing new by removing all that the stream has. So a name leaves with the next that
/// enters, and its updates count for nothing until then. A name that is gone leaves by itself, and one that is wanted again enters
/// at once.
#[test]
fn rly_61_names_leave_in_company() {
    check(
        taking(10),
        r#"
        > + Address vip
        open Delta
        > opened
        send+node Address n= +vip
        > Address - n1 vip=1 a=1 b=1 c=1
        send Address n=n1
        Names Address vip=1 a=1 b=1 c=1 new:a new:b new:c
        > - Address a
        > - Address b
        > Address - n2 a=2 -c
        send Address n=n2
        Names Address -c:Removed
        > - Address c
        > + Address b
        send Address n= +b -a
        > Address - n3 b=1
        send Address n=n3
        Names Address b=1
        > - Address b vip
        close
        "#,
    );
}

/// Names that wait until they may leave are bounded. Beyond the bound the server is not told of any.
#[test]
fn rly_61_few_names_wait_to_leave() {
    for (count, leave) in [(1000, true), (1001, false)] {
        let each = |before: &str, after: &str| {
            let names = (0..count).map(|number| format!(" {before}n{number:04}{after}"));
            names.collect::<String>()
        };
        let (names, entering, content) = (each("", ""), each("+", ""), each("", "=1"));
        let leaving = if leave { each("-", "") } else { String::new() };
        let script = format!(
            r#"
            > + Address keep{names}
            open Delta
            > opened
            send+node Address n= +keep{entering}
            > Address - n1 keep=1{content}
            send Address n=n1
            Names Address keep=1{content}
            > - Address{names}
            > + Address next
            send Address n= +next{leaving}
            "#
        );
        check(taking(9999), &script);
    }
}
