//! The count of the clients of a push (TRU-1): from the standing of each stream, and from the ends of streams.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::excuses::{Excuses, Leavers};
use super::rejecters::Rejecters;
use crate::engine::Time;
use crate::engine::downstream::{PushRejection, PushStanding};
use crate::engine::rollout::tally::{Control, REJECTIONS_MAX, Rejection};
use crate::engine::rollout::{Admission, ClientState, Counts, Plan, Seat, Tally, UnitId};
use crate::xds::Node;

/// An end this soon after a response may be the response's fault.
pub const LOST_WITHIN: Duration = Duration::from_secs(60);

/// The suspects of one rejection in a tally.
const SUSPECTS_MAX: usize = 16;

/// The maximum number of kept rejections of a push. The counts have all rejections.
const KEPT_MAX: usize = 10_000;

/// The maximum number of nodes with a kept rejection and no stream.
const GONE_MAX: usize = 1_000;

/// The clients of one push, from its begin to its release.
#[derive(Debug, Default)]
pub struct Clients {
    /// When each stream was first seen with content of the push.
    first_sent: HashMap<u64, Time>,
    /// The rejections by stream. A rejection of the push stands, whatever the client accepts later.
    rejected: BTreeMap<u64, Kept>,
    /// The rejections of ended streams, by node: a client that rejects and comes back is one client.
    gone: BTreeMap<Arc<str>, Kept>,
    /// The lost streams so far: the seat, and the source of the push for the stream.
    lost: Vec<(Seat, Option<UnitId>)>,
    /// The ends of streams without the push so far.
    lost_without: u64,
    /// The lost streams of nodes that lost streams before the push, too.
    excuses: Excuses,
}

/// The first rejection of a stream, and the units of all its rejections.
#[derive(Debug)]
struct Kept {
    first: Rejection,
    units: BTreeSet<UnitId>,
}

/// A stream at one moment.
#[derive(Debug)]
pub struct Seen {
    pub stream: u64,
    pub node: Option<Arc<Node>>,
    pub standing: PushStanding,
    /// The client is a relay, whose ACK means structure (TIR-1).
    pub is_relay: bool,
}

/// A lost stream, or a stream with a rejection that ended, while a push was under way.
#[derive(Debug)]
pub struct Ended {
    pub stream: u64,
    pub node: Option<Arc<Node>>,
    pub at: Time,
    pub standing: PushStanding,
}

impl Clients {
    /// Another tally begins.
    pub fn begin<'a>(
        &self,
        plan: &'a Plan,
        admission: Admission,
        rejecters: &mut Rejecters,
        now: Time,
    ) -> TallyInMaking<'a> {
        rejecters.next_tally();
        TallyInMaking::new(plan, admission, now)
    }

    /// Counts the rejections since the last tally, before the streams are seen: a client may have gone back by now, and have accepted
    /// the stable content. Rejections of relays are not noted.
    pub fn hear(
        &mut self,
        noted: impl Iterator<Item = Seen>,
        count: &mut TallyInMaking<'_>,
        rejecters: &mut Rejecters,
    ) {
        for seen in noted {
            let node_id = node_id(seen.node.as_deref());
            let seat = count.plan.seat(seen.node.as_deref().unwrap_or(&Node::default()));
            let is_known = rejecters.rejected_before(&node_id);
            self.note(&seen, (seat, node_id, is_known), count, rejecters);
        }
    }

    /// Counts a stream of the plan.
    pub fn see(&mut self, seen: Seen, count: &mut TallyInMaking<'_>, rejecters: &mut Rejecters) {
        if let Some(sent) = seen.standing.sent_at {
            let first = self.first_sent.get(&seen.stream).copied().unwrap_or(sent);
            count.first_sent.insert(seen.stream, first.min(sent));
        }
        self.count(seen, count, rejecters);
    }

    /// Counts the ends of streams of the plan since the last tally. All streams have been seen.
    pub fn finish(
        &mut self,
        mut count: TallyInMaking<'_>,
        ended: impl Iterator<Item = Ended>,
        (rejecters, leavers): (&mut Rejecters, &dyn Leavers),
    ) -> Tally {
        self.count_ended(ended, &mut count, (rejecters, leavers));
        self.count_gone(&mut count, rejecters);
        self.first_sent = std::mem::take(&mut count.first_sent);
        for (seat, unit) in &self.lost {
            count.group(*seat).lost += 1;
            count.blamed.extend(unit);
        }
        count.finish(self.lost_without)
    }

    /// The nodes with a rejection of the push.
    pub fn rejecting_nodes(&self) -> BTreeSet<Arc<str>> {
        self.rejected.values().map(|of| of.first.node.clone()).chain(self.gone.keys().cloned()).collect()
    }

    fn count(&mut self, seen: Seen, count: &mut TallyInMaking<'_>, rejecters: &mut Rejecters) {
        let node = seen.node.as_deref();
        let seat = count.plan.seat(node.unwrap_or(&Node::default()));
        if seen.is_relay {
            return count.unjudged(seat, seen.standing.state);
        }
        let node_id = node_id(node);
        let found = seen.standing.rejections.first();
        // A rejection stands when its client comes back with another stream.
        let is_back = self.gone.contains_key(&node_id) && !count.spoken.contains(&node_id);
        let is_rejected = found.is_some() || self.rejected.contains_key(&seen.stream) || is_back;
        let state = if is_rejected { ClientState::Rejected } else { seen.standing.state };
        let is_known = is_rejected && rejecters.is_known(&node_id);
        self.note(&seen, (seat, node_id.clone(), is_known), count, rejecters);
        // A step needs clients with a voice (WAV-14): nodes that rejected the push before may have none, and clients that gave up what
        // they rejected are not affected any more.
        let is_affected = seen.standing.state != ClientState::Unaffected;
        let has_voice = is_affected && !rejecters.rejected_before(&node_id);
        count.add(seat, state, (is_known, has_voice));
        if state != ClientState::Unaffected && seen.standing.sent_at.is_none() {
            count.compare_with(seat);
        }
        let own = self.rejected.get_mut(&seen.stream);
        if let Some(kept) = own.or_else(|| self.gone.get_mut(&node_id).filter(|_| is_back)) {
            kept.first.is_known_rejecter = is_known;
            count.reject(kept);
            count.rejecting.insert(seen.stream);
            count.spoken.insert(node_id);
        }
    }

    /// Keeps the first rejection of a stream, and the units of all.
    fn note(
        &mut self,
        seen: &Seen,
        (seat, node, is_known): (Seat, Arc<str>, bool),
        count: &mut TallyInMaking<'_>,
        rejecters: &mut Rejecters,
    ) {
        if let Some(of) = seen.standing.rejections.first()
            && !self.rejected.contains_key(&seen.stream)
            && self.rejected.len() < KEPT_MAX
        {
            let rejection = rejection(of, (seen.stream, node), seat, is_known);
            count.vote(of, &rejection, rejecters);
            self.rejected.insert(seen.stream, Kept::of(rejection));
        }
        if let Some(kept) = self.rejected.get_mut(&seen.stream) {
            kept.units.extend(seen.standing.rejections.iter().map(|of| UnitId(of.source.0)));
        }
    }

    /// Sorts the ended streams: lost, or with a rejection that no tally saw.
    fn count_ended(
        &mut self,
        all: impl Iterator<Item = Ended>,
        count: &mut TallyInMaking<'_>,
        (rejecters, leavers): (&mut Rejecters, &dyn Leavers),
    ) {
        for ended in all {
            if self.rejected.contains_key(&ended.stream) {
                continue;
            }
            let node = ended.node.as_deref();
            let seat = count.plan.seat(node.unwrap_or(&Node::default()));
            if let Some(of) = ended.standing.rejections.first() {
                let node_id = node_id(node);
                if self.gone.len() < GONE_MAX && !self.gone.contains_key(&node_id) {
                    let is_known = rejecters.rejected_before(&node_id);
                    let rejection = rejection(of, (ended.stream, node_id.clone()), seat, is_known);
                    count.vote(of, &rejection, rejecters);
                    self.gone.insert(node_id, Kept::of(rejection));
                }
                continue;
            }
            let node_id = node.map_or("", |node| &node.id);
            match self.had_push_for(&ended) {
                None => {
                    self.lost_without += 1;
                    leavers.note(node_id, ended.at);
                }
                Some(had) if had > LOST_WITHIN => leavers.note(node_id, ended.at),
                Some(_) if self.excuses.is_excused(node_id, ended.at, leavers) => {
                    leavers.note(node_id, ended.at)
                }
                Some(_) => {
                    let unit = ended.standing.source.map(|source| UnitId(source.0));
                    self.lost.push((seat, unit));
                }
            }
        }
    }

    /// Counts the rejections of ended streams: of each node one, unless the node has counted already.
    fn count_gone(&mut self, count: &mut TallyInMaking<'_>, rejecters: &mut Rejecters) {
        let rejected = std::mem::take(&mut self.rejected);
        for (stream, kept) in rejected {
            if count.rejecting.contains(&stream) {
                self.rejected.insert(stream, kept);
            } else if self.gone.len() < GONE_MAX {
                self.gone.entry(kept.first.node.clone()).or_insert(kept);
            }
        }
        for (node, kept) in &mut self.gone {
            if count.spoken.insert(node.clone()) {
                kept.first.is_known_rejecter = rejecters.is_known(node);
                count.group(kept.first.seat).count(ClientState::Rejected, kept.first.is_known_rejecter);
                count.reject(kept);
            }
        }
    }

    /// How long a lost stream had content of the push; `None` without such content.
    fn had_push_for(&self, ended: &Ended) -> Option<Duration> {
        let sent = ended.standing.sent_at?;
        let first = self.first_sent.get(&ended.stream).copied().unwrap_or(sent).min(sent);
        Some(ended.at.since(first))
    }
}

impl Kept {
    fn of(first: Rejection) -> Kept {
        Kept { units: BTreeSet::from([first.unit]), first }
    }
}

fn node_id(node: Option<&Node>) -> Arc<str> {
    node.map_or("", |node| &node.id).into()
}

fn rejection(
    of: &PushRejection,
    (stream, node): (u64, Arc<str>),
    seat: Seat,
    is_known_rejecter: bool,
) -> Rejection {
    let suspects = of.suspects.list.iter().filter_map(|of| Some((of.name.clone(), of.version?)));
    Rejection {
        stream,
        node,
        unit: UnitId(of.source.0),
        seat,
        type_url: of.type_url.clone(),
        words: of.words.as_str().into(),
        suspects: suspects.take(SUSPECTS_MAX).collect(),
        is_known_rejecter,
    }
}

/// A tally in the making.
#[derive(Debug)]
pub struct TallyInMaking<'a> {
    plan: &'a Plan,
    admission: Admission,
    now: Time,
    tally: Tally,
    buckets: Vec<u16>,
    /// The rejections of all other streams than the admitted.
    of_others: Vec<Rejection>,
    blamed: BTreeSet<UnitId>,
    /// The connected streams with a rejection.
    rejecting: BTreeSet<u64>,
    /// The nodes with a counted rejection.
    spoken: BTreeSet<Arc<str>>,
    /// When each counted stream was first seen with content of the push.
    first_sent: HashMap<u64, Time>,
}

impl<'a> TallyInMaking<'a> {
    fn new(plan: &'a Plan, admission: Admission, now: Time) -> TallyInMaking<'a> {
        let tally = Tally { labelled: vec![0; plan.steps.len()], ..Tally::default() };
        TallyInMaking {
            plan,
            admission,
            now,
            tally,
            buckets: Vec::new(),
            of_others: Vec::new(),
            blamed: BTreeSet::new(),
            rejecting: BTreeSet::new(),
            spoken: BTreeSet::new(),
            first_sent: HashMap::new(),
        }
    }

    fn group(&mut self, seat: Seat) -> &mut Counts {
        match self.admission.is_seated(seat) {
            true => &mut self.tally.admitted,
            false => &mut self.tally.others,
        }
    }

    fn unjudged(&mut self, seat: Seat, state: ClientState) {
        match state {
            ClientState::Unaffected => self.group(seat).unaffected += 1,
            _ => self.group(seat).unjudged += 1,
        }
    }

    fn add(&mut self, seat: Seat, state: ClientState, (is_known_rejecter, has_voice): (bool, bool)) {
        self.group(seat).count(state, is_known_rejecter);
        if state == ClientState::Unaffected {
            self.tally.control.clients += 1;
            return;
        }
        if has_voice {
            self.buckets.push(seat.bucket);
        }
        let step = seat.labelled_step.and_then(|step| usize::from(step).checked_sub(1));
        if let Some(labelled) = step.and_then(|step| self.tally.labelled.get_mut(step)) {
            *labelled += 1;
        }
    }

    /// Under `mode: enforce`, an affected client that was not sent the push is part of the control group, unless it is admitted and about
    /// to be sent the push.
    fn compare_with(&mut self, seat: Seat) {
        if self.plan.enforces() && !self.admission.is_seated(seat) {
            self.tally.control.clients += 1;
        }
    }

    /// The client of a new rejection votes against the suspects (QUA-2).
    fn vote(&mut self, of: &PushRejection, rejection: &Rejection, rejecters: &mut Rejecters) {
        let votes = of.suspects.are_named || of.suspects.list.len() == 1 && !of.suspects.has_more;
        let enough = self.plan.times.condemn_after;
        self.tally.condemned.extend(rejecters.note(rejection, votes, enough, self.now));
    }

    fn reject(&mut self, kept: &Kept) {
        self.blamed.extend(&kept.units);
        let rejection = &kept.first;
        let list = match self.admission.is_seated(rejection.seat) {
            true => &mut self.tally.rejections,
            false => &mut self.of_others,
        };
        if list.len() < REJECTIONS_MAX {
            list.push(rejection.clone());
        }
    }

    fn finish(mut self, lost_without: u64) -> Tally {
        self.buckets.sort_unstable();
        self.buckets.truncate(self.plan.at_least_max());
        let mut tally = self.tally;
        tally.control = Control { lost: lost_without, ..tally.control };
        tally.smallest = self.buckets;
        tally.rejections.append(&mut self.of_others);
        tally.rejections.truncate(REJECTIONS_MAX);
        tally.blamed = self.blamed.into_iter().collect();
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::downstream::{SourceId, Suspects};
    use crate::engine::rollout::RolloutState;
    use crate::engine::rollout::plan::{BUCKETS, Mode, Step};

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
                clients.see(
                    Seen { stream, node: None, standing, is_relay: false },
                    &mut count,
                    &mut rejecters,
                );
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
        count.reject(&Kept::of(rejection(8, seat(9_000, Some(2)))));
        count.reject(&Kept::of(rejection(7, seat(9_000, Some(1)))));
        let tally = count.finish(3);
        let admitted =
            Counts { accepted: 1, rejected_again: 1, unaffected: 2, unjudged: 1, ..Counts::default() };
        assert_eq!(tally.admitted, admitted);
        assert_eq!(tally.others, Counts { accepted: 1, pending: 1, rejected: 1, ..Counts::default() });
        assert_eq!(tally.control, Control { clients: 1, lost: 3 });
        assert_eq!((tally.smallest, tally.labelled), (vec![99, 100], vec![1, 1]));
        let streams: Vec<_> = tally.rejections.iter().map(|of| of.stream).collect();
        assert_eq!((streams, tally.blamed), (vec![7, 8], vec![UnitId(7), UnitId(8)]), "the admitted first");
    }
}
