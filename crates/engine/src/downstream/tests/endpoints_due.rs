//! Endpoints that are requested after their clusters were sent (ORD-5, RLY-52).

use std::time::Duration;

use super::bench::{Bench, CDS, EDS, version_of};

#[test]
fn ord_5_rly_52_endpoints_follow_a_changed_cluster_though_they_are_asked_for_later() {
    let old = version_of;
    let mut bench = Bench::files(&[(CDS, "a=e2 b=e1 c=static2"), (EDS, "a=1 b=1 c=1")]);
    let clients = [bench.delta(), bench.delta()];
    bench.composed.clear();
    for client in clients {
        let presented = [("a", old(CDS, "a=e1")), ("b", old(CDS, "b=e1")), ("c", old(CDS, "c=static"))];
        bench.change_with(client, CDS, "", "", &presented, None);
        assert_eq!(bench.drain(client), "Cluster a=e2 c=static2");
        bench.advance(Duration::from_millis(300));
        let presented = [("a", old(EDS, "a=1")), ("b", old(EDS, "b=1")), ("c", old(EDS, "c=1"))];
        bench.change_with(client, EDS, "+a +b +c", "", &presented, None);
        assert_eq!(bench.drain(client), "ClusterLoadAssignment a=1", "of the changed cluster alone");
    }
    assert_eq!(bench.composed.len(), 2, "shared");
    bench.state(0, &[(CDS, "a=e3 b=e1 c=static2"), (EDS, "a=1 b=1 c=1")]);
    assert_eq!(bench.drain(clients[0]), "Cluster a=e3; ClusterLoadAssignment a=1");
}

#[test]
fn ord_5_so_do_those_of_all_clusters_of_the_stream_that_were_sent_before() {
    let old = version_of;
    for rounds in [3, 40] {
        let mut bench = Bench::files(&[(EDS, "a=1 b=1 s=1")]);
        let client = bench.delta();
        bench.change(client, CDS, "");
        for round in 0..rounds {
            let name = if round % 2 == 0 { "a" } else { "b" };
            bench.state(0, &[(CDS, &format!("{name}=e{round} s=1")), (EDS, "a=1 b=1 s=1")]);
            bench.drain(client);
        }
        let presented = [("a", old(EDS, "a=1")), ("b", old(EDS, "b=1")), ("s", old(EDS, "s=1"))];
        bench.change_with(client, EDS, "+a +b +s", "", &presented, None);
        // After too many answers to remember, all endpoints are sent.
        let expected = if rounds < 16 { "a=1 b=1" } else { "a=1 b=1 s=1" };
        assert_eq!(bench.drain(client), format!("ClusterLoadAssignment {expected}"));
    }
}
