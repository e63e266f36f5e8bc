//! Resources without a name.

use super::script::{check, delta, sotw};

#[test]
fn a_resource_without_a_name_is_a_member_of_a_wildcard_and_a_fault_among_names() {
    check(
        delta(),
        r#"
        > + EDS a
        open Delta
        > + CDS *
        > opened
        send+node CDS n= +*
        send EDS n= +a
        > EDS - n1 =1 a=1
        send EDS n=n1 NACK INVALID_ARGUMENT: (unnamed): it has no name
        Names EDS a=1
        > CDS - n2 =1
        send CDS n=n2
        Wildcard CDS =1
        Wildcard CDS complete
        > CDS - n3 -
        send CDS n=n3
        Wildcard CDS -:Removed complete
        > EDS - n4 -
        send EDS n=n4 NACK INVALID_ARGUMENT: (unnamed): it has no name
        "#,
    );
    check(
        sotw(),
        r#"
        > + CDS *
        open Sotw
        > opened
        send+node CDS v= n= ["*"]
        > CDS v1 n1 =1
        send CDS v=v1 n=n1 ["*"]
        Wildcard CDS =1 replaces complete
        > CDS v2 n2 =2
        send CDS v=v2 n=n2 ["*"]
        Wildcard CDS =2 replaces complete
        "#,
    );
}
