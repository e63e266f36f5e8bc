//! The standing of clients, by the newest content and towards a push (TRU-1, TRU-3, TRU-6).

use std::sync::Arc;
use std::time::Duration;

use crate::evidence::{Compared, PushSet, PushStanding, PushUnit};
use crate::rollout::ReleaseDigest;
use crate::rollout::plan::Gated;
use sluice_engine::collection::CollectionKind;
use sluice_engine::downstream::tests::bench::{Bench, CDS, ClientId, EDS, RDS, names_of, streams, url};
use sluice_engine::downstream::{ClientState, SILENT_AFTER, SourceId, Suspects};
use sluice_engine::snapshot::Snapshot;
use sluice_xds::{Code, Status};

/// The state of a type by the newest content; of several sources, in their order.
fn states(bench: &Bench, client: ClientId, message: &str) -> String {
    let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
    let mut all = bench.clients[client].session.type_states(&latest, bench.now);
    all.retain(|of| of.type_url == url(message));
    all.sort_by_key(|of| of.source);
    all.iter().map(|of| of.state.name()).collect::<Vec<_>>().join(" ")
}

/// The push from a snapshot of the first source to its present one.
pub(super) fn push(bench: &Bench, before: &Arc<Snapshot>) -> PushSet {
    let unit = PushUnit::between(SourceId(0), before, &bench.snapshots[0], &Gated::Default);
    assert_eq!(!unit.types.is_empty(), PushUnit::differs(before, &bench.snapshots[0], &Gated::Default));
    PushSet::new(vec![unit])
}

pub(super) fn standing(bench: &Bench, client: ClientId, push: &PushSet) -> PushStanding {
    let latest = |id: SourceId| bench.snapshots.get(id.0 as usize).cloned();
    let session = &bench.clients[client].session;
    PushStanding::of_client(session, push, &mut Compared::default(), &latest, bench.now)
}

pub(super) fn state(bench: &Bench, client: ClientId, push: &PushSet) -> &'static str {
    standing(bench, client, push).state.name()
}

fn changed(push: &PushSet) -> String {
    let types = push.units().iter().flat_map(|unit| &unit.types);
    let names = types.flat_map(|of| of.names().map(|name| format!("{} {}", of.type_url.short(), name.name)));
    names.collect::<Vec<_>>().join(", ")
}

pub(super) fn suspects(of: &Suspects) -> String {
    of.list.iter().map(|suspect| suspect.name.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn tru_1_a_client_is_in_one_state_for_each_type_of_a_source() {
    for delta in [false, true] {
        let mut bench = Bench::cold();
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, CDS, "+x");
        } else {
            bench.ask(client, CDS, "x");
        }
        assert_eq!(states(&bench, client, CDS), "unaffected");
        bench.says(CDS, "x=1");
        assert_eq!(states(&bench, client, CDS), "pending", "not sent");
        bench.poll(client);
        bench.advance(SILENT_AFTER - Duration::from_micros(1));
        assert_eq!(states(&bench, client, CDS), "pending", "not answered");
        bench.advance(Duration::from_micros(1));
        assert_eq!(states(&bench, client, CDS), "silent");
        bench.ack(client, CDS);
        assert_eq!(states(&bench, client, CDS), "accepted");
        bench.says(CDS, "x=2");
        bench.poll(client);
        bench.nack(client, CDS);
        assert_eq!(states(&bench, client, CDS), "rejected");
        bench.says(CDS, "x=3");
        bench.drain(client);
        assert_eq!(states(&bench, client, CDS), "accepted");
    }
}

#[test]
fn tru_1_a_rejection_counts_at_the_source_of_its_content() {
    let mut bench = Bench::new(vec![streams(), streams()]);
    let client = bench.delta();
    bench.change(client, CDS, "+x +xdstp:y");
    bench.changes(0, CDS, CollectionKind::Names, "x=1", false);
    bench.changes(1, CDS, CollectionKind::Names, "xdstp:y=1", false);
    bench.drain(client);
    assert_eq!(states(&bench, client, CDS), "accepted accepted");
    bench.changes(1, CDS, CollectionKind::Names, "xdstp:y=2", false);
    bench.poll(client);
    bench.nack(client, CDS);
    assert_eq!(states(&bench, client, CDS), "accepted rejected");
}

#[test]
fn tru_1_only_clients_with_changed_names_are_affected_by_a_push() {
    let mut bench = Bench::cold();
    let [one, other, none] = [bench.delta(), bench.sotw(), bench.sotw()];
    bench.change(one, CDS, "+x +y");
    bench.ask(other, CDS, "y");
    bench.ask(none, EDS, "e");
    bench.says(CDS, "x=1 y=1");
    bench.says(EDS, "e=1");
    for client in [one, other, none] {
        bench.drain(client);
    }
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "x=2");
    bench.says(EDS, "e=2");
    let push = push(&bench, &before);
    assert_eq!(changed(&push), "Cluster x", "endpoints flow");
    assert_eq!(
        [one, other, none].map(|client| state(&bench, client, &push)),
        ["pending", "unaffected", "unaffected"]
    );
    let sent_at = bench.now;
    bench.poll(one);
    assert_eq!(standing(&bench, one, &push).sent_at, Some(sent_at));
    bench.advance(SILENT_AFTER);
    assert_eq!(state(&bench, one, &push), "silent");
    bench.ack(one, CDS);
    assert_eq!(state(&bench, one, &push), "accepted");
}

/// The first answer for a name is nobody's second.
#[test]
fn tru_1_content_that_was_not_known_before_is_no_push() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+x +y");
    bench.says(CDS, "x=1");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "y=1");
    assert_eq!(changed(&push(&bench, &before)), "");
    bench.says(CDS, "x=2");
    assert_eq!(changed(&push(&bench, &before)), "Cluster x");
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "-x");
    assert_eq!(changed(&push(&bench, &before)), "Cluster x", "gone");
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "x=2");
    assert_eq!(changed(&push(&bench, &before)), "Cluster x", "known to be absent, and now present");
    bench.says(CDS, "-x");
    assert_eq!(changed(&push(&bench, &before)), "", "as before");
    // A name that nobody asks for any more is not gone.
    bench.change(client, CDS, "-y");
    bench.advance(Duration::from_secs(3600));
    assert_eq!(changed(&push(&bench, &before)), "");

    let other = bench.sotw();
    bench.ask(other, RDS, "");
    let before = bench.snapshots[0].clone();
    bench.says_of_all(RDS, "r=1", true);
    assert_eq!(changed(&push(&bench, &before)), "", "the first members");
    let before = bench.snapshots[0].clone();
    bench.says_of_all(RDS, "s=1 -r", true);
    assert_eq!(changed(&push(&bench, &before)), "RouteConfiguration r, RouteConfiguration s");
}

/// A class that slept in a halt may return to other content than its lanes have.
#[test]
fn wav_7_while_content_is_held_a_first_answer_is_compared() {
    for name in ["", "x"] {
        let says = |bench: &mut Bench, list| match name {
            "" => bench.says_of_all(CDS, list, true),
            _ => bench.says(CDS, list),
        };
        let mut bench = Bench::cold();
        let client = bench.sotw();
        bench.ask(client, CDS, name);
        // Whether the latest content has to be compared: in a hold, and without one.
        let concerns = |bench: &Bench, before: &Snapshot| {
            [true, false]
                .map(|holds| PushUnit::concerns(before, &bench.snapshots[0], holds, holds, &Gated::Default))
        };
        let before = bench.snapshots[0].clone();
        says(&mut bench, "x=1");
        assert_eq!(concerns(&bench, &before), [true, false], "{name}: a first answer");
        let before = bench.snapshots[0].clone();
        bench.ask(client, EDS, "e");
        bench.says(EDS, "e=1");
        assert_eq!(concerns(&bench, &before), [false, false], "{name}: endpoints flow");
        says(&mut bench, "x=2");
        assert_eq!(concerns(&bench, &before), [true, true], "{name}: a change");
    }
}

/// The last client leaves, and the source forgets what it held back: nothing waits for the next push any
/// more.
#[test]
fn wav_4_the_end_of_a_hold_is_compared_though_no_content_changed() {
    let mut bench = Bench::files(&[(CDS, "x=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.drain(client);
    let (known, forgotten) = (bench.snapshots[0].clone(), Snapshot::default());
    let concerns = |(held, holds)| PushUnit::concerns(&known, &forgotten, held, holds, &Gated::Default);
    assert_eq!([(true, false), (false, false)].map(concerns), [true, false]);
}

/// A client that reconnects has the candidate as its first answer, and its verdict is one on the push.
#[test]
fn tru_1_a_new_client_of_changed_names_is_affected() {
    for message in [CDS, RDS] {
        let mut bench = Bench::files(&[(message, "x=1 y=1")]);
        let earlier = bench.sotw();
        bench.ask(earlier, message, "");
        bench.drain(earlier);
        let before = bench.snapshots[0].clone();
        bench.state(0, &[(message, "x=2 y=1")]);
        let push = push(&bench, &before);
        let client = bench.sotw();
        bench.ask(client, message, "");
        assert_eq!(state(&bench, client, &push), "pending");
        bench.poll(client);
        bench.nack_with(client, message, "bad: x");
        let found = standing(&bench, client, &push);
        assert_eq!((found.state, found.rejections.len()), (ClientState::Rejected, 1));
        assert_eq!(suspects(&found.rejections[0].suspects), "x");
    }
}

/// TRU-3: the push of the answered response is rejected, and no later one.
#[test]
fn tru_3_a_nack_counts_against_the_push_of_its_response() {
    for delta in [false, true] {
        for message in [CDS, RDS] {
            let mut bench = Bench::files(&[(message, "x=1 y=1")]);
            let client = if delta { bench.delta() } else { bench.sotw() };
            if delta {
                bench.change(client, message, "");
            } else {
                bench.ask(client, message, "");
            }
            bench.drain(client);
            let before = bench.snapshots[0].clone();
            bench.state(0, &[(message, "x=2 y=1")]);
            let first = push(&bench, &before);
            let before = bench.snapshots[0].clone();
            bench.poll(client);
            bench.state(0, &[(message, "x=2 y=2")]);
            let second = push(&bench, &before);
            bench.nack(client, message);
            let both =
                |bench: &Bench| [&first, &second].map(|push| standing(bench, client, push).state.name());
            assert_eq!(both(&bench), ["rejected", "pending"]);
            bench.poll(client);
            assert_eq!(both(&bench), ["rejected", "pending"], "the second is on its way");
            bench.nack(client, message);
            assert_eq!(both(&bench), ["rejected", "rejected"]);
            bench.state(0, &[(message, "x=3 y=3")]);
            bench.drain(client);
            assert_eq!(both(&bench), ["overtaken", "overtaken"]);
        }
    }
}

/// TRU-3: of two unanswered responses the older is rejected.
#[test]
fn tru_3_a_nack_of_an_older_nonce_counts_against_its_own_push() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+x");
    bench.says(CDS, "x=1 y=1");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "x=2");
    let push_of_x = push(&bench, &before);
    bench.poll(client);
    let older = bench.held(client, CDS).nonce.clone();
    bench.change(client, CDS, "+y");
    bench.says(CDS, "y=1");
    assert_eq!(bench.poll(client), "Cluster y=1", "a new name beside the unanswered response");
    bench.change_with(client, CDS, "", &older, &[], Some(Status::new(Code::Internal, "x")));
    assert_eq!(state(&bench, client, &push_of_x), "rejected");
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "y=2");
    assert_eq!(
        state(&bench, client, &push(&bench, &before)),
        "pending",
        "an older nonce rejects no newer push"
    );
}

#[test]
fn tru_3_a_nack_of_other_content_rejects_no_push() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, CDS, "+x");
    bench.says(CDS, "x=1");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.says(CDS, "x=2");
    let push = push(&bench, &before);
    bench.drain(client);
    bench.change(client, CDS, "+y");
    bench.says(CDS, "y=1");
    bench.poll(client);
    bench.nack(client, CDS);
    assert_eq!(state(&bench, client, &push), "accepted");
}

/// A delta client hears of removals later than of changes, and ACKs them. A tally once a second sees only the
/// ACK.
#[test]
fn tru_3_a_nack_stands_though_other_content_is_acked() {
    for message in [CDS, RDS] {
        let mut bench = Bench::files(&[(message, "x=1 z=1")]);
        let client = bench.delta();
        bench.change(client, message, "");
        bench.drain(client);
        let before = bench.snapshots[0].clone();
        bench.state(0, &[(message, "x=2 z=1")]);
        let push = push(&bench, &before);
        bench.poll(client);
        bench.nack_with(client, message, "bad: x");
        bench.state(0, &[(message, "x=2 z=2")]);
        assert_ne!(bench.drain(client), "");
        let found = standing(&bench, client, &push);
        assert_eq!((found.state, found.rejections.len()), (ClientState::Rejected, 1), "{message}");
        assert_eq!(suspects(&found.rejections[0].suspects), "x");
        bench.state(0, &[(message, "x=3 z=2")]);
        bench.drain(client);
        assert_eq!(standing(&bench, client, &push).rejections, [], "{message}: other content was accepted");
    }
}

#[test]
fn tru_1_a_client_that_skipped_a_push_is_overtaken() {
    let mut bench = Bench::files(&[(CDS, "x=1")]);
    let client = bench.sotw();
    bench.ask(client, CDS, "");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(CDS, "x=2")]);
    let push = push(&bench, &before);
    bench.state(0, &[(CDS, "x=3")]);
    assert_eq!(state(&bench, client, &push), "pending", "a later push is due");
    bench.poll(client);
    assert_eq!(state(&bench, client, &push), "overtaken");
    bench.ack(client, CDS);
    assert_eq!(state(&bench, client, &push), "overtaken");
}

#[test]
fn tru_1_a_push_that_went_back_is_due_to_nobody() {
    let mut bench = Bench::files(&[(CDS, "x=1")]);
    let [client, late] = [bench.sotw(), bench.sotw()];
    for client in [client, late] {
        bench.ask(client, CDS, "");
        bench.drain(client);
    }
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(CDS, "x=2")]);
    let push = push(&bench, &before);
    bench.drain(client);
    assert_eq!([client, late].map(|client| state(&bench, client, &push)), ["accepted", "pending"]);
    bench.state(0, &[(CDS, "x=1")]);
    bench.drain(client);
    assert_eq!([client, late].map(|client| state(&bench, client, &push)), ["overtaken", "overtaken"]);
}

/// A SotW response without a name of a set that is no full state tells nothing (SST-6): the removal is due to
/// nobody.
#[test]
fn tru_1_a_removal_that_cannot_be_told_is_due_to_nobody() {
    let mut bench = Bench::files(&[(RDS, "r=1 s=1")]);
    let [sotw, delta] = [bench.sotw(), bench.delta()];
    bench.ask(sotw, RDS, "r s");
    bench.change(delta, RDS, "+r +s");
    for client in [sotw, delta] {
        bench.drain(client);
    }
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(RDS, "s=1")]);
    let push = push(&bench, &before);
    assert_eq!(changed(&push), "RouteConfiguration r");
    for client in [sotw, delta] {
        bench.drain(client);
    }
    assert_eq!([sotw, delta].map(|client| state(&bench, client, &push)), ["unaffected", "accepted"]);
}

/// The client gave a name up, and rejected the next response: that is no rejection of the name's removal by a
/// later push. In delta, a removal is told: but not that of a name that the client gave up.
#[test]
fn tru_3_a_name_that_a_delta_client_gave_up_was_not_removed_by_the_rejected_response() {
    let mut bench = Bench::cold();
    let client = bench.delta();
    bench.change(client, RDS, "+r");
    bench.says(RDS, "r=1 s=1");
    assert_eq!(bench.drain(client), "RouteConfiguration r=1");
    bench.change(client, RDS, "+s -r");
    bench.says(RDS, "s=1");
    assert_eq!(bench.poll(client), "RouteConfiguration s=1");
    bench.nack(client, RDS);
    bench.change(client, RDS, "+r -s");
    bench.says(RDS, "r=1");
    assert_eq!(bench.poll(client), "RouteConfiguration r=1");
    let before = bench.snapshots[0].clone();
    bench.says(RDS, "-r");
    assert_eq!(state(&bench, client, &push(&bench, &before)), "pending");
}

#[test]
fn tru_3_a_name_that_the_client_gave_up_was_not_removed_by_the_rejected_response() {
    let mut bench = Bench::files(&[(RDS, "r=1 s=1")]);
    let client = bench.sotw();
    bench.ask(client, RDS, "r s");
    bench.drain(client);
    bench.ask(client, RDS, "r");
    bench.state(0, &[(RDS, "r=2 s=1")]);
    assert_eq!(bench.poll(client), "RouteConfiguration r=2");
    bench.nack(client, RDS);
    bench.ask(client, RDS, "r s");
    bench.drain(client);
    let before = bench.snapshots[0].clone();
    bench.state(0, &[(RDS, "r=3")]);
    let push = push(&bench, &before);
    assert_eq!(changed(&push), "RouteConfiguration r, RouteConfiguration s");
    assert_eq!(state(&bench, client, &push), "pending");
}

#[test]
fn tru_6_suspects_are_named_by_the_text_or_else_all_that_changed() {
    for delta in [false, true] {
        let mut bench = Bench::files(&[(CDS, "x=1 y=1 z=1")]);
        let client = if delta { bench.delta() } else { bench.sotw() };
        if delta {
            bench.change(client, CDS, "");
        } else {
            bench.ask(client, CDS, "");
        }
        bench.drain(client);
        bench.state(0, &[(CDS, "x=2 y=2 z=1")]);
        bench.poll(client);
        for (text, expected, are_named) in [
            ("Error adding/updating cluster(s) x: bad, y: worse", "x y", true),
            ("cluster 'z' failed.", "z", true),
            ("xx yy zz", "x y", false),
            ("", "x y", false),
        ] {
            bench.nack_with(client, CDS, text);
            let of = &bench.clients[client].session.subscriptions()[0];
            let nack = of.nack().unwrap();
            let found = of.suspects(nack);
            assert_eq!((suspects(&found).as_str(), found.are_named), (expected, are_named), "{text}");
            let named = of.names_in(nack);
            let is_suspected = |name| nack.suspects(&names_of(CDS, name)[0], &named);
            let all = ["x", "y", "z"].into_iter().filter(|name| is_suspected(name));
            assert_eq!(all.collect::<Vec<_>>().join(" "), expected, "{text}");
            // The response is sent again, as a resource changed.
            bench.state(0, &[(CDS, "x=1 y=1 z=1")]);
            bench.drain(client);
            bench.state(0, &[(CDS, "x=2 y=2 z=1")]);
            bench.poll(client);
        }
    }
}

#[test]
fn wav_17_equal_gated_contents_have_equal_digests() {
    let mut bench = Bench::cold();
    let client = bench.sotw();
    let digest = |bench: &Bench| ReleaseDigest::of(&bench.snapshots[0], &Gated::Default);
    bench.ask(client, CDS, "x y");
    let unknown = digest(&bench);
    bench.says(CDS, "x=1 y=1");
    let first = digest(&bench);
    bench.says(CDS, "x=2 y=1");
    let second = digest(&bench);
    assert!(unknown != first && first != second);
    bench.ask(client, EDS, "e");
    bench.says(EDS, "e=1");
    assert_eq!(digest(&bench), second, "endpoints flow");
    bench.says(CDS, "x=1 y=2");
    assert_ne!(digest(&bench), first, "versions belong to their names");
    bench.says(CDS, "x=1 y=1");
    assert_eq!(digest(&bench), first);
}
