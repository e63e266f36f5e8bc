//! Counts of clients.

use super::*;
use crate::rollout::RolloutState;
use crate::rollout::plan::{BUCKETS, Mode, Step};
use crate::rollout::tally::Control;
use sluice_engine::downstream::{SourceId, Suspect, Suspects};
use sluice_xds::Version;

fn seat(bucket: u16, labelled_step: Option<u8>) -> Seat {
    Seat { bucket, labelled_step }
}

fn rejection(stream: u64, seat: Seat) -> Rejection {
    Rejection {
        stream,
        node: "n".into(),
        unit: UnitId(stream),
        seat,
        type_url: sluice_xds::TypeUrl::of_message("a.B"),
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
        count.finish().control.clients
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
        type_url: sluice_xds::TypeUrl::of_message("a.B"),
        at: Time::ZERO,
        words: "no".into(),
        suspects: Suspects::default(),
    };
    let mut count = clients.begin(&plan, admission, &mut rejecters, Time::ZERO);
    let heard = [seen(ClientState::Rejected, vec![rejection(1)])].into_iter();
    clients.hear(heard, &mut count, &mut rejecters);
    clients.see(seen(ClientState::Unaffected, Vec::new()), &mut count, &mut rejecters);
    let tally = count.finish();
    assert_eq!(tally.admitted, Counts { rejected: 1, ..Counts::default() });
    assert_eq!(tally.rejections.len(), 1);
    assert!(
        tally.smallest.is_empty(),
        "no step is raised for a client that is not affected any more (WAV-14)"
    );
    let mut count = clients.begin(&plan, admission, &mut rejecters, Time::ZERO);
    clients.see(seen(ClientState::Rejected, vec![rejection(2)]), &mut count, &mut rejecters);
    assert_eq!(count.finish().blamed, [UnitId(1), UnitId(2)], "WAV-17: each rejected content");
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
    count.add(seat(700, None), ClientState::Accepted, false, true);
    count.add(seat(99, None), ClientState::Accepted, false, true);
    count.add(seat(100, None), ClientState::Pending, false, true);
    count.add(seat(9_000, Some(1)), ClientState::Rejected, true, true);
    count.add(seat(9_000, Some(2)), ClientState::Rejected, false, true);
    count.add(seat(0, None), ClientState::Unaffected, false, true);
    count.unjudged(seat(1, None), ClientState::Rejected);
    count.unjudged(seat(1, None), ClientState::Unaffected);
    count.reject(&KeptRejection::of(rejection(8, seat(9_000, Some(2))), None));
    count.reject(&KeptRejection::of(rejection(7, seat(9_000, Some(1))), None));
    let tally = count.finish();
    let admitted = Counts { accepted: 1, rejected_again: 1, unaffected: 2, unjudged: 1, ..Counts::default() };
    assert_eq!(tally.admitted, admitted);
    assert_eq!(tally.others, Counts { accepted: 1, pending: 1, rejected: 1, ..Counts::default() });
    assert_eq!(tally.control, Control { clients: 1, lost: 0 });
    assert_eq!((tally.voices, tally.smallest, tally.labelled), (2, vec![100, 700], vec![1, 1]));
    let streams: Vec<_> = tally.rejections.iter().map(|rejection| rejection.stream).collect();
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
    let type_url = sluice_xds::TypeUrl::of_message("a.B");
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
        let tally = clients.finish(count, std::iter::empty(), &mut rejecters, &Stays);
        let suspects = tally.rejections[0].suspects.iter().map(|(name, _)| name.as_str().to_owned());
        suspects.collect::<Vec<_>>()
    };
    assert_eq!(tally(&mut clients, false), ["a", "b"]);
    let content = (type_url, "a".into(), Version(2));
    let asked = |clients: &Clients, stream, node: &Option<Arc<Node>>| {
        clients.suspects_of(stream, node.as_deref()).is_some_and(|open| open.contains(&content))
    };
    assert!(!asked(&clients, 1, &node("one", "envoy")), "the client itself");
    assert!(!asked(&clients, 2, &node("two", "grpc")), "another program");
    let other = node("two", "envoy");
    assert!(asked(&clients, 2, &other));
    clients.accept(other.as_deref(), [content.clone()]);
    assert!(!asked(&clients, 3, &other), "known already");
    assert_eq!(tally(&mut clients, true), ["b"], "also for a client that went back");
}

/// TIR-1: a relay is a client for the steps of a plan for relays, and only its rejection says something.
#[test]
fn tir_1_a_relay_is_offered_to_steps_and_heard_only_when_it_rejects() {
    let count = |relays, threshold, rejections: Vec<PushRejection>| {
        let region = Some(sluice_engine::class::TextMatch::Exact("a".into()));
        let clients = Some(sluice_engine::class::NodeMatch { region, ..Default::default() });
        let steps = vec![Step { clients, ..crate::rollout::plan::default_steps()[0].clone() }];
        let plan = Plan { relays, steps, mode: Mode::Enforce, ..Plan::new("edge") };
        let admission = Admission { push: 1, threshold, state: RolloutState::Waving, ..Admission::NOBODY };
        let (mut clients, mut rejecters) = (Clients::default(), Rejecters::default());
        let mut count = clients.begin(&plan, admission, &mut rejecters, Time::ZERO);
        let state = if rejections.is_empty() { ClientState::Accepted } else { ClientState::Rejected };
        let standing = PushStanding { state, rejections, sent_at: Some(Time::ZERO), ..Default::default() };
        let locality = Some(sluice_xds::Locality { region: "a".into(), ..Default::default() });
        let node = Some(Arc::new(Node { id: "leaf".into(), locality, ..Node::default() }));
        clients.see(Seen { stream: 1, node, standing, is_relay: true }, &mut count, &mut rejecters);
        clients.finish(count, std::iter::empty(), &mut rejecters, &Leaving(""))
    };
    let rejection = || PushRejection {
        source: SourceId(1),
        type_url: sluice_xds::TypeUrl::of_message("a.B"),
        at: Time::ZERO,
        words: "no".into(),
        suspects: Suspects::default(),
    };
    let of_admitted =
        |tally: &Tally| (tally.admitted.accepted, tally.admitted.unjudged, tally.admitted.rejected);
    let given = count(true, BUCKETS, vec![]);
    assert_eq!((of_admitted(&given), given.voices, given.labelled), ((0, 1, 0), 1, vec![1]));
    let waits = count(true, 0, vec![]);
    assert_eq!((waits.others.unjudged, waits.smallest.len(), waits.voices), (1, 1, 0));
    assert_eq!(of_admitted(&count(true, BUCKETS, vec![rejection()])), (0, 0, 1));
    for rejections in [vec![], vec![rejection()]] {
        let exempt = count(false, BUCKETS, rejections);
        assert_eq!((of_admitted(&exempt), exempt.voices, exempt.labelled), ((0, 1, 0), 0, vec![0]));
    }
}

/// A push that admits all clients, and its tallies.
struct Push {
    clients: Clients,
    rejecters: Rejecters,
    plan: Plan,
}

/// The clients that were lost as often before.
struct Leaving(&'static str);

impl Leavers for Leaving {
    fn note(&self, _: &str, _: Time) {}
    fn ends_of(&self, node: &str, _: Time) -> u32 {
        if node == self.0 { 9 } else { 0 }
    }
}

impl Push {
    fn new() -> Push {
        let plan = Plan { mode: Mode::Enforce, ..Plan::new("edge") };
        Push { clients: Clients::default(), rejecters: Rejecters::default(), plan }
    }

    /// A tally at a second: streams, each with its node, its state and whether it has the push, and lost
    /// streams.
    fn tally(
        &mut self,
        second: u64,
        seen: &[(u64, &str, ClientState)],
        lost: &[(u64, &str, ClientState)],
    ) -> Tally {
        let now = Time::from_micros(second * 1_000_000);
        let state = RolloutState::Waving;
        let admission = Admission { push: 1, threshold: BUCKETS, step: 1, state, ..Admission::NOBODY };
        let standing = |state| {
            let has_push = state != ClientState::Unaffected;
            let (sent_at, source) = (has_push.then_some(now), has_push.then_some(SourceId(7)));
            PushStanding { state, sent_at, source, ..Default::default() }
        };
        let node = |id: &str| Some(Arc::new(Node { id: id.into(), ..Node::default() }));
        let mut count = self.clients.begin(&self.plan, admission, &mut self.rejecters, now);
        for (stream, id, state) in seen {
            let seen = Seen { stream: *stream, node: node(id), standing: standing(*state), is_relay: false };
            self.clients.see(seen, &mut count, &mut self.rejecters);
        }
        let ended = lost.iter().map(|(stream, id, state)| Ended {
            stream: *stream,
            node: node(id),
            at: now,
            standing: standing(*state),
        });
        self.clients.finish(count, ended, &mut self.rejecters, &Leaving("leaver"))
    }

    fn counts(&mut self, second: u64, seen: &[(u64, &str, ClientState)]) -> Counts {
        self.tally(second, seen, &[]).admitted
    }
}

use ClientState::{Accepted, Pending, Unaffected};

/// WAV-12: what a client accepted stays evidence when its stream has ended, once for each node, and until the
/// node is back.
#[test]
fn wav_12_an_acceptance_outlives_its_stream() {
    let departed = |departed| Counts { departed, ..Counts::default() };
    let mut push = Push::new();
    push.counts(1, &[(1, "a", Accepted), (2, "b", Pending), (3, "c", Accepted), (4, "c", Accepted)]);
    assert_eq!(push.counts(2, &[]), departed(2), "of each node one, and none without an answer");
    assert_eq!(push.counts(3, &[(5, "a", Pending)]), Counts { pending: 1, ..departed(1) });
    assert_eq!(push.counts(4, &[(5, "a", Accepted)]), Counts { accepted: 1, ..departed(1) });
    assert_eq!(push.counts(5, &[]), departed(2));
}

/// WAV-12: a client comes to another server of its list, or a reload moves its class: its stream goes on
/// without the push.
#[test]
fn wav_12_an_acceptance_stands_when_its_client_has_come_to_another_server() {
    let mut push = Push::new();
    push.counts(1, &[(1, "a", Accepted)]);
    for second in 2..4 {
        let counts = Counts { departed: 1, unaffected: 1, ..Counts::default() };
        assert_eq!(push.counts(second, &[(1, "a", Unaffected)]), counts);
    }
    assert_eq!(push.counts(4, &[(1, "a", Accepted)]), Counts { accepted: 1, ..Counts::default() });
}

/// A client may have died of what it accepted.
#[test]
fn wav_12_a_client_that_was_lost_with_the_push_has_not_accepted_it() {
    let mut push = Push::new();
    push.counts(1, &[(1, "a", Accepted), (2, "leaver", Accepted), (3, "old", Accepted)]);
    let lost = push.tally(2, &[(3, "old", Accepted)], &[(1, "a", Accepted), (2, "leaver", Accepted)]);
    assert_eq!(
        lost.admitted,
        Counts { lost: 1, accepted: 1, ..Counts::default() },
        "one leaves all the time"
    );
    assert_eq!(lost.blamed, [UnitId(7)]);
    let tally = push.tally(90, &[], &[(3, "old", Accepted)]);
    assert_eq!(
        tally.admitted,
        Counts { lost: 1, departed: 1, ..Counts::default() },
        "it had the push for 89 s"
    );
    // The client is back, and dies of the push after all.
    push.counts(91, &[(4, "old", Pending)]);
    let tally = push.tally(92, &[], &[(4, "old", Pending)]);
    assert_eq!(tally.admitted, Counts { lost: 2, ..Counts::default() });
}

#[test]
fn wav_12_a_loss_expires_with_and_without_the_push() {
    let mut push = Push::new();
    let lost = |push: &mut Push, second| {
        let tally = push.tally(second, &[], &[]);
        (tally.admitted.lost, tally.control.lost, tally.blamed.len())
    };
    push.tally(1, &[], &[(1, "a", Accepted), (2, "b", Unaffected), (3, "c", Unaffected)]);
    push.tally(300, &[], &[(4, "a", Pending), (5, "b", Unaffected)]);
    assert_eq!(lost(&mut push, 600), (2, 3, 1));
    assert_eq!(lost(&mut push, 601), (1, 1, 1));
    assert_eq!(lost(&mut push, 900), (0, 0, 0));
}

/// A client had a part of the push long before the rest, or asks for another part long after.
#[test]
fn wav_12_a_client_that_dies_of_the_last_part_of_a_push_is_lost() {
    let mut push = Push::new();
    push.counts(1, &[(1, "a", Pending), (2, "b", Accepted)]);
    push.counts(100, &[(1, "a", Accepted), (2, "b", Pending)]);
    let lost = push.tally(105, &[], &[(1, "a", Accepted), (2, "b", Pending)]);
    assert_eq!(lost.admitted, Counts { lost: 2, ..Counts::default() });
}
