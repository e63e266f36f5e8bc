//! Counts of clients.

use super::*;
use crate::engine::downstream::{SourceId, Suspect, Suspects};
use crate::engine::rollout::RolloutState;
use crate::engine::rollout::plan::{BUCKETS, Mode, Step};
use crate::xds::Version;

fn seat(bucket: u16, labelled_step: Option<u8>) -> Seat {
    Seat { bucket, labelled_step }
}

fn rejection(stream: u64, seat: Seat) -> Rejection {
    Rejection {
        stream,
        node: "n".into(),
        unit: UnitId(stream),
        seat,
        type_url: crate::xds::TypeUrl::of_message("a.B"),
        words: "".into(),
        suspects: Vec::new(),
        is_known_rejecter: false,
    }
}

/// WAV-12: the clients that a plan holds the push back from are the control group.
#[test]
fn wav_12_lost_streams_are_compared_with_clients_that_the_push_is_held_back_from() {
    let control = |mode, threshold| {
        let plan = Plan { mode, ..Plan::new("edge") };
        let state = RolloutState::Waving;
        let admission = Admission { push: 1, threshold, step: 1, state, ..Admission::NOBODY };
        let (mut clients, mut rejecters) = (Clients::default(), Rejecters::default());
        let mut count = clients.begin(&plan, admission, &mut rejecters, Time::ZERO);
        for (stream, sent_at) in [(1, None), (2, Some(Time::ZERO))] {
            let standing = PushStanding { state: ClientState::Pending, sent_at, ..Default::default() };
            clients.see(Seen { stream, node: None, standing, is_relay: false }, &mut count, &mut rejecters);
        }
        count.finish(0).control.clients
    };
    assert_eq!(control(Mode::Enforce, 1), 1);
    assert_eq!(control(Mode::Enforce, BUCKETS), 0, "about to be sent the push");
    assert_eq!(control(Mode::Observe, 1), 0, "all are sent the push");
}

/// TRU-1: a client rejects the push and goes back between two tallies.
#[test]
fn tru_1_a_rejection_between_two_tallies_counts() {
    let plan = Plan { mode: Mode::Enforce, ..Plan::new("edge") };
    let state = RolloutState::Waving;
    let admission = Admission { push: 1, threshold: BUCKETS, step: 1, state, ..Admission::NOBODY };
    let (mut clients, mut rejecters) = (Clients::default(), Rejecters::default());
    let seen = |state, rejections| {
        let standing = PushStanding { state, rejections, ..Default::default() };
        Seen { stream: 1, node: None, standing, is_relay: false }
    };
    let rejection = |source| PushRejection {
        source: SourceId(source),
        type_url: crate::xds::TypeUrl::of_message("a.B"),
        at: Time::ZERO,
        words: "no".into(),
        suspects: Suspects::default(),
    };
    let mut count = clients.begin(&plan, admission, &mut rejecters, Time::ZERO);
    let heard = [seen(ClientState::Rejected, vec![rejection(1)])].into_iter();
    clients.hear(heard, &mut count, &mut rejecters);
    clients.see(seen(ClientState::Unaffected, Vec::new()), &mut count, &mut rejecters);
    let tally = count.finish(0);
    assert_eq!(tally.admitted, Counts { rejected: 1, ..Counts::default() });
    assert_eq!(tally.rejections.len(), 1);
    assert!(
        tally.smallest.is_empty(),
        "no step is raised for a client that is not affected any more (WAV-14)"
    );
    let mut count = clients.begin(&plan, admission, &mut rejecters, Time::ZERO);
    clients.see(seen(ClientState::Rejected, vec![rejection(2)]), &mut count, &mut rejecters);
    assert_eq!(count.finish(0).blamed, [UnitId(1), UnitId(2)], "WAV-17: each rejected content");
}

/// TRU-1, WAV-14: clients are sorted by their seats; relays and unaffected clients are no evidence.
#[test]
fn tru_1_clients_are_sorted_by_their_seats() {
    let steps = Plan::new("edge").steps.into_iter().take(2);
    let steps = steps.map(|step| Step { at_least: 2, ..step }).collect();
    let plan = Plan { steps, ..Plan::new("edge") };
    let state = RolloutState::Waving;
    let admission = Admission { push: 1, threshold: 100, step: 1, state, ..Admission::NOBODY };
    let mut count = TallyInMaking::new(&plan, admission, Time::ZERO);
    count.add(seat(700, None), ClientState::Accepted, (false, true));
    count.add(seat(99, None), ClientState::Accepted, (false, true));
    count.add(seat(100, None), ClientState::Pending, (false, true));
    count.add(seat(9_000, Some(1)), ClientState::Rejected, (true, true));
    count.add(seat(9_000, Some(2)), ClientState::Rejected, (false, true));
    count.add(seat(0, None), ClientState::Unaffected, (false, true));
    count.unjudged(seat(1, None), ClientState::Rejected);
    count.unjudged(seat(1, None), ClientState::Unaffected);
    count.reject(&Kept::of(rejection(8, seat(9_000, Some(2))), None));
    count.reject(&Kept::of(rejection(7, seat(9_000, Some(1))), None));
    let tally = count.finish(3);
    let admitted = Counts { accepted: 1, rejected_again: 1, unaffected: 2, unjudged: 1, ..Counts::default() };
    assert_eq!(tally.admitted, admitted);
    assert_eq!(tally.others, Counts { accepted: 1, pending: 1, rejected: 1, ..Counts::default() });
    assert_eq!(tally.control, Control { clients: 1, lost: 3 });
    assert_eq!((tally.smallest, tally.labelled), (vec![99, 100], vec![1, 1]));
    let streams: Vec<_> = tally.rejections.iter().map(|of| of.stream).collect();
    assert_eq!((streams, tally.blamed), (vec![7, 8], vec![UnitId(7), UnitId(8)]), "the admitted first");
}

/// A client of a program rejects two clusters of the push, and another one accepts one of them.
#[test]
fn tru_6_a_suspect_that_another_client_of_the_program_accepted_is_none() {
    struct Stays;
    impl Leavers for Stays {
        fn note(&self, _: &str, _: Time) {}
        fn ends_of(&self, _: &str, _: Time) -> u32 {
            0
        }
    }
    let plan = Plan { mode: Mode::Enforce, ..Plan::new("edge") };
    let state = RolloutState::Waving;
    let admission = Admission { push: 1, threshold: BUCKETS, step: 1, state, ..Admission::NOBODY };
    let (mut clients, mut rejecters) = (Clients::default(), Rejecters::default());
    let node = |id: &str, program: &str| {
        let node = Node { id: id.into(), user_agent_name: program.into(), ..Node::default() };
        Some(Arc::new(node))
    };
    let type_url = crate::xds::TypeUrl::of_message("a.B");
    let suspect = |name: &str| Suspect { name: name.into(), version: Some(Version(2)) };
    let rejection = PushRejection {
        source: SourceId(1),
        type_url: type_url.clone(),
        at: Time::ZERO,
        words: "no".into(),
        suspects: Suspects { list: vec![suspect("a"), suspect("b")], are_named: true, has_more: false },
    };
    let rejected =
        PushStanding { state: ClientState::Rejected, rejections: vec![rejection], ..Default::default() };
    let mut tally = |clients: &mut Clients, is_back: bool| {
        let mut count = clients.begin(&plan, admission, &mut rejecters, Time::ZERO);
        let standing = if is_back { PushStanding::default() } else { rejected.clone() };
        let seen = Seen { stream: 1, node: node("one", "envoy"), standing, is_relay: false };
        clients.see(seen, &mut count, &mut rejecters);
        let tally = clients.finish(count, std::iter::empty(), (&mut rejecters, &Stays));
        let suspects = tally.rejections[0].suspects.iter().map(|(name, _)| name.as_str().to_owned());
        suspects.collect::<Vec<_>>()
    };
    assert_eq!(tally(&mut clients, false), ["a", "b"]);
    let content = (type_url, "a".into(), Version(2));
    let asked = |clients: &Clients, stream, of: &Option<Arc<Node>>| {
        clients.suspects_of(stream, of.as_deref()).is_some_and(|open| open.contains(&content))
    };
    assert!(!asked(&clients, 1, &node("one", "envoy")), "the client itself");
    assert!(!asked(&clients, 2, &node("two", "grpc")), "another program");
    let other = node("two", "envoy");
    assert!(asked(&clients, 2, &other));
    clients.accept(other.as_deref(), [content.clone()]);
    assert!(!asked(&clients, 3, &other), "known already");
    assert_eq!(tally(&mut clients, true), ["b"], "also for a client that went back");
}
