//! Moves between the releases of a source (WAV).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdSet;

use super::bench::lanes::{FIRST, fleet};
use super::bench::{Bench, CDS, ClientId, EDS, LDS, RDS, name_of, streams, url};
use crate::collection::CollectionKind;
use crate::downstream::{Answer, SourceId};
use crate::gated::Gated;
use crate::lanes::{Lanes, Restated};
use crate::source::{Attachment, Files};

const SECOND: [(&str, &str); 4] = [(CDS, "a=e1 b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=b.1")];

#[test]
fn wav_10_the_abort_of_an_addition_takes_the_route_back_before_the_cluster() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &SECOND);
    assert_eq!([bench.drain(sotw), bench.drain(delta)], ["", ""], "held from everybody");
    bench.cut(&[sotw, delta]);
    let forwards =
        |cluster| format!("Cluster {cluster}; ClusterLoadAssignment b=1; RouteConfiguration r=b.1");
    assert_eq!(bench.drain(sotw), forwards("a=e1 b=e1"));
    assert_eq!(bench.drain(delta), forwards("b=e1"));
    bench.abort();
    assert_eq!(bench.drain(sotw), "RouteConfiguration r=a.1; Cluster a=e1");
    assert_eq!(bench.drain(delta), "RouteConfiguration r=a.1; Cluster -b");
    assert!(bench.is_holding(), "the source still has the push");
}

#[test]
fn wav_4_who_is_not_admitted_is_sent_nothing_until_the_push_has_settled() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &SECOND);
    bench.cut(&[sotw]);
    assert_ne!(bench.drain(sotw), "");
    assert_eq!(bench.drain(delta), "");
    bench.finish();
    assert!(!bench.is_holding());
    assert_eq!(
        bench.drain(delta),
        "Cluster b=e1; ClusterLoadAssignment b=1; RouteConfiguration r=b.1",
        "slow clients follow"
    );
    assert_eq!(bench.drain(sotw), "", "the same release");
}

#[test]
fn wav_4_a_change_after_the_cut_waits_for_the_next_push() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &SECOND);
    bench.cut(&[sotw]);
    bench.state(0, &[(CDS, "a=e2 b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=b.1")]);
    assert_eq!(bench.drain(sotw), "Cluster a=e1 b=e1; ClusterLoadAssignment b=1; RouteConfiguration r=b.1");
    bench.finish();
    assert!(bench.is_holding(), "against the new stable");
    bench.drain(delta);
    bench.check(delta, CDS, "a=e1 b=e1");
    bench.cut(&[delta]);
    assert_eq!(bench.drain(delta), "Cluster a=e2; ClusterLoadAssignment a=1");
    bench.check(sotw, CDS, "a=e1 b=e1");
}

#[test]
fn wav_4_a_source_that_returns_to_stable_ends_the_hold() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &SECOND);
    assert!(bench.is_holding());
    bench.state(0, &FIRST);
    assert!(!bench.is_holding());
    assert_eq!([bench.drain(sotw), bench.drain(delta)], ["", ""]);
}

#[test]
fn wav_7_what_stable_does_not_know_is_served_at_once_and_gated_from_then_on() {
    let (mut bench, ..) = fleet();
    bench.state(0, &SECOND);
    let newcomer = bench.sotw();
    bench.ask(newcomer, RDS, "r new");
    assert_eq!(bench.drain(newcomer), "RouteConfiguration r=a.1", "stable knows r");
    bench.state(0, &[(CDS, "a=e1 b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=b.1 other=1")]);
    bench.ask(newcomer, RDS, "r new other");
    assert_eq!(bench.drain(newcomer), "RouteConfiguration other=1", "UNKNOWN takes the source's answer");
    bench.state(0, &[(CDS, "a=e1 b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=b.1 other=2 new=1")]);
    assert_eq!(bench.drain(newcomer), "", "known, and new was absent");
    bench.cut(&[newcomer]);
    assert_eq!(bench.drain(newcomer), "RouteConfiguration new=1 other=2 r=b.1");
}

#[test]
fn wav_7_a_wildcard_first_watched_during_a_hold_is_the_sources_but_for_what_stable_has_by_name() {
    let (mut bench, ..) = fleet();
    let state = |routes| [(CDS, "a=e1 b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, routes)];
    bench.state(0, &state("r=b.1 new=1"));
    let newcomer = bench.delta();
    bench.change(newcomer, RDS, "+*");
    assert_eq!(bench.drain(newcomer), "RouteConfiguration new=1 r=a.1");
    bench.state(0, &state("r=b.2 new=2"));
    assert_eq!(bench.drain(newcomer), "", "complete: gated from then on");
}

/// Who was sent nothing of a push has nothing of it to keep when the push is halted.
#[test]
fn wav_15_an_answer_by_the_candidate_may_bring_nothing_of_the_push() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &[(CDS, "a=e1"), (EDS, "a=1 b=1"), (LDS, "l=2"), (RDS, "r=a.1")]);
    let newcomer = bench.delta();
    bench.cut(&[sotw, newcomer]);
    let stable = bench.picked(delta)[0].clone();
    bench.change(newcomer, CDS, "+*");
    let mut brings = |client: ClientId| {
        let latest = bench.picked(client);
        let latest = |id: SourceId| latest.get(id.0 as usize).cloned();
        let (_, answer) = bench.clients[client].session.poll_answer(&latest, bench.now).unwrap();
        let lanes = [&*stable, &*bench.candidate()];
        (answer.type_url.short().to_owned(), answer.brings(1, 1, SourceId(0), lanes))
    };
    assert_eq!(brings(sotw), ("Listener".into(), true));
    assert_eq!(brings(newcomer), ("Cluster".into(), false), "the cluster is stable's");
}

/// The whole set is due, and the client has all of it: nothing is sent.
#[test]
fn wav_15_an_answer_without_a_message_brings_nothing_of_the_push() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &SECOND);
    bench.cut(&[sotw, delta]);
    let stable = {
        let nobody = bench.sotw();
        bench.picked(nobody)[0].clone()
    };
    let latest = bench.picked(sotw);
    let latest = |id: SourceId| latest.get(id.0 as usize).cloned();
    let (_, answer) = bench.clients[sotw].session.poll_answer(&latest, bench.now).unwrap();
    let candidate = bench.candidate();
    let brings = |messages| answer.brings(1, messages, SourceId(0), [&*stable, &*candidate]);
    assert_eq!((answer.type_url.short(), brings(1), brings(0)), ("Cluster", true, false));
}

/// The source forgot a route before the cut, and its server has not answered for the route again. Stable still has the route (WAV-5).
#[test]
fn wav_15_what_the_candidate_does_not_know_is_no_removal_by_the_push() {
    let mut bench = Bench::cold();
    let (former, other) = (bench.delta(), bench.delta());
    bench.change(former, RDS, "+r +none");
    bench.change(other, RDS, "+other");
    bench.hear(0);
    bench.says(RDS, "r=1 other=1 -none");
    bench.drain(former);
    bench.drain(other);
    bench.hold();
    bench.says(RDS, "other=2");
    bench.leave(former);
    bench.advance(Duration::from_secs(60));
    let again = bench.delta();
    bench.cut(&[again]);
    let presented = [("r", super::bench::version_of(RDS, "r=1"))];
    bench.change_with(again, RDS, "+r +none", "", &presented, None);
    bench.says(RDS, "-none");
    let brings = |bench: &mut Bench| {
        let (latest, stable) = (bench.picked(again), bench.picked(other)[0].clone());
        let latest = |id: SourceId| latest.get(id.0 as usize).cloned();
        let (_, answer) = bench.clients[again].session.poll_answer(&latest, bench.now).unwrap();
        let chunks = answer.compose().chunks;
        let removed: Vec<_> =
            chunks.iter().flat_map(|chunk| &chunk.removed).map(|name| name.as_str()).collect();
        let lanes = [&*stable, &*bench.candidate()];
        (removed.join(" "), answer.brings(1, 1, SourceId(0), lanes))
    };
    assert_eq!(brings(&mut bench), ("none".into(), false), "both releases know this");
    bench.says(RDS, "-r");
    assert_eq!(brings(&mut bench), ("none r".into(), true));
}

/// A client keeps a halted push, and looks for an answer between the cut of the next one and its first step.
#[test]
fn wav_17_a_client_that_is_told_nothing_keeps_its_place() {
    let sent =
        |found, messages, holds| Answer::push_after(Some(1), found, messages, || holds, |push| push == 2);
    let after = |found, messages| sent(found, messages, true);
    assert_eq!(after(None, 0), Some(1), "the client has what it had");
    assert_eq!(sent(None, 0, false), None, "a push that is over has no content of its own");
    assert_eq!(after(None, 1), None, "the client is sent other content");
    assert_eq!([1, 0].map(|messages| after(Some(2), messages)), [Some(2); 2]);
    assert_eq!([1, 0].map(|messages| after(Some(3), messages)), [Some(1); 2], "nothing of the push");
}

/// Lanes may differ in their endpoints alone, and these are in no push.
#[test]
fn wav_15_endpoints_of_the_candidate_are_nothing_of_the_push() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &[(CDS, "b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=b.1")]);
    bench.cut(&[sotw]);
    bench.state(0, &[(CDS, "b=e1"), (EDS, "b=2"), (LDS, "l=1"), (RDS, "r=b.1")]);
    let stable = bench.picked(delta)[0].clone();
    let (newcomer, holder) = (bench.delta(), bench.delta());
    bench.change(holder, EDS, "+a +b");
    assert_eq!(
        bench.drain(holder),
        "ClusterLoadAssignment a=1 b=2",
        "stable keeps the endpoints of its cluster"
    );
    bench.admit(&[newcomer, holder]);
    bench.change(newcomer, EDS, "+a +b");
    bench.advance(Duration::from_millis(25));
    let mut brings = |client: ClientId| {
        let latest = bench.picked(client);
        let latest = |id: SourceId| latest.get(id.0 as usize).cloned();
        let (_, answer) = bench.clients[client].session.poll_answer(&latest, bench.now).unwrap();
        let part = &answer.parts[0];
        assert_eq!((answer.type_url.short(), part.snapshot.lane().push), ("ClusterLoadAssignment", Some(1)));
        let names: Vec<_> = part.held.differing(&part.view).map(|name| name.as_str().to_owned()).collect();
        let lanes = [&*stable, &*bench.candidate()];
        (names.join(" "), answer.brings(1, 1, SourceId(0), lanes))
    };
    assert_eq!(brings(newcomer), ("b".into(), false));
    assert_eq!(brings(holder), ("a".into(), false), "a removal of endpoints");
}

/// A push has several sources, and a client may be a client of two: another source knows the same names otherwise.
#[test]
fn wav_15_an_answer_is_compared_with_the_stable_content_of_its_own_source() {
    let (mut bench, sotw, delta) = fleet();
    bench.add(Attachment::Files(Files::default()));
    bench.state(1, &[(CDS, "a=other")]);
    let of_other = bench.delta();
    bench.clients[of_other].routes.old = 1;
    bench.change(of_other, CDS, "+*");
    bench.drain(of_other);
    let mut lanes = Lanes::new(1, Gated::Default, 1);
    let before = bench.snapshots[1].clone();
    bench.state(1, &[(CDS, "a=another")]);
    lanes.follow(&before, &bench.snapshots[1], bench.now);
    lanes.cut(1);
    let published = lanes.published(bench.now);
    let of_other = published.held().unwrap().clone();
    let of_other = [&*of_other, &**published.candidate_of(1).unwrap()];
    bench.state(0, &[(CDS, "a=e1"), (EDS, "a=1 b=1"), (LDS, "l=2"), (RDS, "r=a.1")]);
    bench.cut(&[sotw]);
    let own = bench.picked(delta)[0].clone();
    let newcomer = bench.delta();
    bench.admit(&[newcomer]);
    bench.change(newcomer, CDS, "+*");
    let latest = bench.picked(newcomer);
    let latest = |id: SourceId| latest.get(id.0 as usize).cloned();
    let (_, answer) = bench.clients[newcomer].session.poll_answer(&latest, bench.now).unwrap();
    assert_eq!((answer.type_url.short(), answer.parts[0].snapshot.lane().push), ("Cluster", Some(1)));
    let own = [&*own, &*bench.candidate()];
    assert!(!answer.brings(1, 1, SourceId(0), own), "the push has no cluster");
    assert!(!answer.brings(1, 1, SourceId(1), of_other), "no part is from the other source");
}

#[test]
fn wav_3_endpoints_flow_but_none_is_withdrawn_from_a_lane_whose_clusters_name_it() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &[(CDS, "b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=b.1")]);
    bench.state(0, &[(CDS, "b=e1"), (EDS, "b=2"), (LDS, "l=1"), (RDS, "r=b.1")]);
    assert_eq!([bench.drain(sotw), bench.drain(delta)], ["ClusterLoadAssignment b=2"; 2]);
    let newcomer = bench.delta();
    bench.change(newcomer, EDS, "+a");
    assert_eq!(bench.drain(newcomer), "ClusterLoadAssignment a=1", "the last bytes");
    bench.cut(&[delta]);
    let text = bench.drain(delta);
    assert!(text.ends_with("Cluster -a; ClusterLoadAssignment -a"), "{text}");
}

#[test]
fn wav_10_who_rejected_a_push_is_restated_all_that_differs_whatever_it_presents() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &[(CDS, "a=e2 b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=a.1")]);
    bench.cut(&[sotw, delta]);
    assert_eq!(bench.poll(delta), "Cluster a=e2 b=e1");
    bench.nack(delta, CDS);
    bench.abort();
    bench.leave(delta);
    let again = bench.delta();
    let presented = [("a", super::bench::version_of(CDS, "a=e1"))];
    bench.change_with(again, CDS, "+*", "", &presented, None);
    bench.restate(again);
    assert_eq!(bench.drain(again), "Cluster a=e1 -b");
    bench.change(again, CDS, "+c");
    assert_eq!(bench.drain(again), "Cluster -c", "once");
}

/// A push of several control planes is restated at each of them.
#[test]
fn wav_10_who_rejected_a_push_of_two_sources_is_restated_both() {
    let mut bench = Bench::new(vec![streams(), streams()]);
    let client = bench.delta();
    bench.change(client, CDS, "+x +xdstp:y");
    bench.changes(0, CDS, CollectionKind::Names, "x=1", false);
    bench.changes(1, CDS, CollectionKind::Names, "xdstp:y=1", false);
    bench.drain(client);
    for (source, name) in [(0, "x"), (1, "xdstp:y")] {
        let names = OrdSet::unit(name_of(CDS, name));
        let types = BTreeMap::from([(url(CDS), BTreeMap::from([(CollectionKind::Names, names)]))]);
        bench.clients[client].session.restate(SourceId(source), Arc::new(Restated { push: 1, types }));
    }
    assert_eq!(bench.drain(client), "Cluster x=1 xdstp:y=1");
    assert_eq!(bench.drain(client), "", "once");
}

/// Of what a rejecter may have, and the release lacks, the client is told that it is gone. It is not sent before.
#[test]
fn wav_10_what_a_rejecter_may_have_is_not_sent_before_it_goes() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &SECOND);
    bench.cut(&[sotw, delta]);
    bench.drain(delta);
    bench.finish();
    bench.state(0, &[(CDS, "a=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=a.1")]);
    bench.cut(&[delta]);
    bench.drain(delta);
    bench.finish();
    bench.state(0, &[(CDS, "a=e1 b=e2"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=a.1")]);
    bench.cut(&[delta]);
    assert_eq!(bench.poll(delta), "Cluster b=e2");
    bench.nack(delta, CDS);
    bench.abort();
    bench.leave(delta);
    let again = bench.delta();
    let presented = [("a", super::bench::version_of(CDS, "a=e1"))];
    bench.change_with(again, CDS, "+*", "", &presented, None);
    bench.change(again, RDS, "+r");
    bench.restate(again);
    assert_eq!(bench.drain(again), "RouteConfiguration r=a.1; Cluster -b");
}

/// A cluster came and went while a slow stream was sent nothing. Another stream of its node rejected a later push with the cluster. The
/// slow stream is told that the cluster is gone, and is not sent the earlier bytes of the cluster before.
#[test]
fn wav_10_a_slow_stream_of_a_rejecter_is_sent_nothing_that_came_and_went() {
    let (mut bench, sotw, delta) = fleet();
    let content = |clusters: &'static str| [(CDS, clusters), FIRST[1], FIRST[2], FIRST[3]];
    for (clusters, expected) in [("a=e2 c=e1", "Cluster a=e2 c=e1"), ("a=e2 b=e1", ""), ("a=e2", "")] {
        bench.state(0, &content(clusters));
        bench.cut(&[delta]);
        assert_eq!(bench.poll(delta), expected, "{clusters}");
        bench.finish();
        bench.poll(delta);
    }
    bench.state(0, &content("a=e2 b=e2"));
    bench.cut(&[sotw]);
    bench.drain(sotw);
    bench.nack(sotw, CDS);
    bench.abort();
    bench.restate(delta);
    assert_eq!(bench.poll(delta), "", "no bytes that the client never had");
    bench.ack(delta, CDS);
    assert_eq!(bench.drain(delta), "Cluster -b -c");
}

/// A client that comes back with the content of a push was sent nothing of it, and goes back when the push is halted. The bytes
/// of an earlier halted push are nothing for it.
#[test]
fn wav_9_a_client_that_had_the_content_before_goes_back_with_its_own_bytes() {
    let (mut bench, sotw, delta) = fleet();
    let with_b = |b: &'static str| [(CDS, b), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=b.1")];
    bench.state(0, &with_b("a=e1 b=e1"));
    bench.cut(&[delta]);
    assert_ne!(bench.drain(delta), "");
    bench.abort();
    bench.state(0, &with_b("a=e2 b=e2"));
    bench.cut(&[sotw]);
    bench.drain(sotw);
    let version = bench.held(sotw, CDS).version.clone();
    bench.leave(sotw);
    let again = bench.sotw();
    bench.admit(&[again]);
    bench.ask_with(again, CDS, "", "", &version, None);
    bench.ask(again, RDS, "r");
    assert_eq!(bench.drain(again), "RouteConfiguration r=b.1", "the clusters are equal");
    bench.halt();
    assert_eq!(
        bench.drain(again),
        "Cluster a=e1 b=e2; RouteConfiguration r=a.1; Cluster a=e1",
        "the cluster stays until the route has changed"
    );
}

#[test]
fn his_3_a_release_of_the_history_serves_everybody_in_order() {
    let (mut bench, sotw, delta) = fleet();
    bench.state(0, &SECOND);
    bench.cut(&[sotw, delta]);
    bench.finish();
    assert_ne!([bench.drain(sotw), bench.drain(delta)], ["", ""]);
    bench.pin(0);
    assert_eq!(bench.drain(delta), "RouteConfiguration r=a.1; Cluster -b");
    assert_eq!(bench.drain(sotw), "RouteConfiguration r=a.1; Cluster a=e1");
    bench.state(0, &[(CDS, "a=e3 b=e1"), (EDS, "a=1 b=1"), (LDS, "l=1"), (RDS, "r=b.1")]);
    assert_eq!([bench.drain(sotw), bench.drain(delta)], ["", ""]);
    bench.end_lanes();
    assert_ne!(bench.drain(delta), "");
    bench.check(delta, CDS, "a=e3 b=e1");
}
