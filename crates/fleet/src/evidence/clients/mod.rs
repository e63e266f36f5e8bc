//! The count of the clients of a push (TRU-1): from the standing of each stream, and from the ends of
//! streams.

mod departed;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use departed::{DepartedClients, SentPush};

use super::accepted_suspects::{AcceptedSuspects, program};
use super::excuses::{Excuses, Leavers};
use super::push_standing::{PushRejection, PushStanding};
use super::rejecters::Rejecters;
use super::remembered::Content;
use crate::rollout::tally::{REJECTIONS_MAX, Rejection, count_state};
use crate::rollout::{Admission, ClientState, Counts, Plan, Seat, Tally, UnitId};
use sluice_engine::Time;
use sluice_xds::Node;

/// An end this soon after a response may be the response's fault.
pub const LOST_WITHIN: Duration = Duration::from_secs(60);

/// The suspects of one rejection in a tally.
const SUSPECTS_MAX: usize = 16;

/// The maximum number of kept rejections of a push. The counts have all rejections.
const KEPT_MAX: usize = 10_000;

/// The maximum number of nodes with a kept rejection and no stream.
const GONE_MAX: usize = 1_000;

/// The clients of a push, from begin to release.
#[derive(Debug, Default)]
pub struct Clients {
    /// The content of the push at each stream of the last tally.
    sent: BTreeMap<u64, SentPush>,
    /// The rejections by stream. A rejection of the push stands, whatever the client accepts later.
    rejected: BTreeMap<u64, KeptRejection>,
    /// The rejections of ended streams, by node: a client counts once, also with a new stream after a
    /// rejection.
    gone: BTreeMap<Arc<str>, KeptRejection>,
    departed: DepartedClients,
    /// The lost streams of nodes that lost streams before the push, too.
    excuses: Excuses,
    /// The suspects that other clients accepted.
    accepted: AcceptedSuspects,
}

/// The first rejection of a stream, and the units of all its rejections.
#[derive(Debug)]
struct KeptRejection {
    first: Rejection,
    units: BTreeSet<UnitId>,
    /// The client's program.
    program: Box<str>,
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

    /// Counts the rejections since the last tally, before the streams are seen: a client may have gone back
    /// by now, and have accepted the stable content. Rejections of relays are noted only where the plan
    /// holds pushes back from relays.
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
            self.note(&seen, seat, node_id, is_known, count, rejecters);
        }
    }

    /// Counts a stream of the plan.
    pub fn see(&mut self, seen: Seen, count: &mut TallyInMaking<'_>, rejecters: &mut Rejecters) {
        let node = seen.node.as_deref();
        let seat = count.plan.seat(node.unwrap_or(&Node::default()));
        let node_id = node_id(node);
        // The ACK of a relay says nothing about its clients. Its NACK is a rejection, where the plan holds
        // pushes back from relays (TIR-1).
        let speaks = !seen.is_relay || count.plan.relays && self.has_rejected(&seen, &node_id);
        if !speaks {
            return count.unjudged(seat, seen.standing.state);
        }
        self.follow(&seen, seat, &node_id, count);
        self.count(seen, seat, node_id, count, rejecters);
    }

    /// Counts the ends of streams of the plan since the last tally. All streams have been seen.
    pub fn finish(
        &mut self,
        mut count: TallyInMaking<'_>,
        ended: impl Iterator<Item = Ended>,
        rejecters: &mut Rejecters,
        leavers: &dyn Leavers,
    ) -> Tally {
        self.count_ended(ended, &mut count, rejecters, leavers);
        self.count_gone(&mut count, rejecters);
        let present = std::mem::take(&mut count.sent);
        for (_, sent) in std::mem::replace(&mut self.sent, present) {
            self.departed.depart(Some(sent), &count);
        }
        let speaking = std::mem::take(&mut count.speaking);
        self.departed.count(&mut count, |node| speaking.contains(node) || self.gone.contains_key(node));
        let mut tally = count.finish();
        tally.rejections.iter_mut().for_each(|rejection| self.clear_accepted(rejection));
        tally
    }

    /// The suspects of rejecting clients of the same program. `None` for a rejecting client: only other
    /// clients speak for a content (TRU-6).
    pub fn suspects_of(&self, stream: u64, node: Option<&Node>) -> Option<&BTreeSet<Content>> {
        self.accepted.open(node).filter(|_| {
            !self.rejected.contains_key(&stream)
                && (self.gone.is_empty() || !self.gone.contains_key(&node_id(node)))
        })
    }

    /// A client accepted contents of [`Clients::suspects_of`].
    pub fn accept(&mut self, node: Option<&Node>, contents: impl IntoIterator<Item = Content>) {
        contents.into_iter().for_each(|content| self.accepted.accept(node, content));
    }

    fn clear_accepted(&self, rejection: &mut Rejection) {
        let kept = self.rejected.get(&rejection.stream).or_else(|| self.gone.get(&rejection.node));
        if let Some(kept) = kept {
            self.accepted.clear(&kept.program, rejection);
        }
    }

    /// The nodes with a rejection of the push.
    pub fn rejecting_nodes(&self) -> BTreeSet<Arc<str>> {
        self.rejected.values().map(|kept| kept.first.node.clone()).chain(self.gone.keys().cloned()).collect()
    }

    /// Whether the client of a stream rejects the push, or rejected it.
    fn has_rejected(&self, seen: &Seen, node_id: &Arc<str>) -> bool {
        !seen.standing.rejections.is_empty()
            || self.rejected.contains_key(&seen.stream)
            || self.gone.contains_key(node_id)
    }

    /// Follows the content of the push at a stream. A client has departed if the client accepted the push,
    /// and then came to another server or gave up all names.
    fn follow(&mut self, seen: &Seen, seat: Seat, node_id: &Arc<str>, count: &mut TallyInMaking<'_>) {
        let previous = self.sent.remove(&seen.stream);
        let PushStanding { state, sent_at, .. } = seen.standing;
        if state == ClientState::Unaffected {
            return self.departed.depart(previous, count);
        }
        if self.departed.has_accepted(node_id) {
            count.speaking.insert(node_id.clone());
        }
        let previous = previous.unwrap_or_default();
        let is_accepted = state == ClientState::Accepted;
        // The last part of the push may have come long after the first: later responses of the type are about
        // something else.
        let whole = previous.whole.or(sent_at).filter(|_| is_accepted);
        let accepts = is_accepted && !self.rejected.contains_key(&seen.stream);
        let accepted = previous.accepted.or_else(|| accepts.then(|| (node_id.clone(), seat)));
        if accepted.is_some() {
            count.sent.insert(seen.stream, SentPush { whole, accepted });
        }
    }

    fn count(
        &mut self,
        seen: Seen,
        seat: Seat,
        node_id: Arc<str>,
        count: &mut TallyInMaking<'_>,
        rejecters: &mut Rejecters,
    ) {
        let rejection = seen.standing.rejections.first();
        // A rejection stands when its client comes back with another stream.
        let is_back = self.gone.contains_key(&node_id) && !count.spoken.contains(&node_id);
        let is_rejected = rejection.is_some() || self.rejected.contains_key(&seen.stream) || is_back;
        let state = if is_rejected { ClientState::Rejected } else { seen.standing.state };
        let is_known = is_rejected && rejecters.is_known(&node_id);
        self.note(&seen, seat, node_id.clone(), is_known, count, rejecters);
        // A step needs clients with a voice (WAV-14): nodes with an earlier rejection of the push may have
        // none, and clients without the rejected names are not affected any more.
        let is_affected = seen.standing.state != ClientState::Unaffected;
        let has_voice = is_affected && !rejecters.rejected_before(&node_id);
        count.add(seat, state, is_known, has_voice);
        if state != ClientState::Unaffected && seen.standing.sent_at.is_none() {
            count.compare_with(seat);
        }
        let kept = self.rejected.get_mut(&seen.stream);
        if let Some(kept) = kept.or_else(|| self.gone.get_mut(&node_id).filter(|_| is_back)) {
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
        seat: Seat,
        node: Arc<str>,
        is_known: bool,
        count: &mut TallyInMaking<'_>,
        rejecters: &mut Rejecters,
    ) {
        if let Some(first) = seen.standing.rejections.first()
            && !self.rejected.contains_key(&seen.stream)
            && self.rejected.len() < KEPT_MAX
        {
            let rejection = rejection(first, seen.stream, node, seat, is_known);
            count.vote(first, &rejection, rejecters);
            self.accepted.suspect(seen.node.as_deref(), &rejection);
            self.rejected.insert(seen.stream, KeptRejection::of(rejection, seen.node.as_deref()));
        }
        if let Some(kept) = self.rejected.get_mut(&seen.stream) {
            kept.units.extend(seen.standing.rejections.iter().map(|rejection| UnitId(rejection.source.0)));
        }
    }

    /// Sorts the ended streams: lost, or with a rejection that no tally saw.
    fn count_ended(
        &mut self,
        all: impl Iterator<Item = Ended>,
        count: &mut TallyInMaking<'_>,
        rejecters: &mut Rejecters,
        leavers: &dyn Leavers,
    ) {
        for ended in all {
            if self.rejected.contains_key(&ended.stream) {
                continue;
            }
            let node = ended.node.as_deref();
            let seat = count.plan.seat(node.unwrap_or(&Node::default()));
            if let Some(first) = ended.standing.rejections.first() {
                let node_id = node_id(node);
                if self.gone.len() < GONE_MAX && !self.gone.contains_key(&node_id) {
                    let is_known = rejecters.rejected_before(&node_id);
                    let rejection = rejection(first, ended.stream, node_id.clone(), seat, is_known);
                    count.vote(first, &rejection, rejecters);
                    self.accepted.suspect(node, &rejection);
                    self.gone.insert(node_id, KeptRejection::of(rejection, node));
                }
                continue;
            }
            let node_id = node.map_or("", |node| &node.id);
            let had = self.had_push_for(&ended, count);
            if had.is_some_and(|had| had <= LOST_WITHIN) {
                // The client may have died of the accepted content.
                self.sent.remove(&ended.stream);
                count.sent.remove(&ended.stream);
                if !self.excuses.is_excused(node_id, ended.at, leavers) {
                    let unit = ended.standing.source.map(|source| UnitId(source.0));
                    self.departed.lose(node_id, ended.at, seat, unit);
                    continue;
                }
            } else if had.is_none() {
                self.departed.lose_without(ended.at);
            }
            leavers.note(node_id, ended.at);
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
                let counts = count.group(kept.first.seat);
                count_state(counts, ClientState::Rejected, kept.first.is_known_rejecter);
                count.reject(kept);
            }
        }
    }

    /// How long a lost stream had the push, or the latest response with content of it; `None` without such
    /// content.
    fn had_push_for(&self, ended: &Ended, count: &TallyInMaking<'_>) -> Option<Duration> {
        let sent = ended.standing.sent_at?;
        let content = count.sent.get(&ended.stream).or_else(|| self.sent.get(&ended.stream));
        let whole = content.and_then(|content| content.whole);
        let is_accepted = ended.standing.state == ClientState::Accepted;
        Some(ended.at.since(whole.filter(|_| is_accepted).unwrap_or(sent)))
    }
}

impl KeptRejection {
    fn of(first: Rejection, node: Option<&Node>) -> KeptRejection {
        KeptRejection { units: BTreeSet::from([first.unit]), first, program: program(node) }
    }
}

fn node_id(node: Option<&Node>) -> Arc<str> {
    node.map_or("", |node| &node.id).into()
}

fn rejection(
    nack: &PushRejection,
    stream: u64,
    node: Arc<str>,
    seat: Seat,
    is_known_rejecter: bool,
) -> Rejection {
    let suspects =
        nack.suspects.list.iter().filter_map(|suspect| Some((suspect.name.clone(), suspect.version?)));
    Rejection {
        stream,
        node,
        unit: UnitId(nack.source.0),
        seat,
        type_url: nack.type_url.clone(),
        words: nack.words.as_str().into(),
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
    /// The content of the push at each counted stream.
    sent: BTreeMap<u64, SentPush>,
    /// The nodes with an earlier acceptance that are here again.
    speaking: BTreeSet<Arc<str>>,
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
            sent: BTreeMap::new(),
            speaking: BTreeSet::new(),
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
            _ => {
                self.group(seat).unjudged += 1;
                if self.plan.relays {
                    self.offer(seat, true);
                }
            }
        }
    }

    fn add(&mut self, seat: Seat, state: ClientState, is_known_rejecter: bool, has_voice: bool) {
        count_state(self.group(seat), state, is_known_rejecter);
        if state == ClientState::Unaffected {
            self.tally.control.clients += 1;
            return;
        }
        self.offer(seat, has_voice);
    }

    /// A client that the push affects, for the step that may ask for it.
    fn offer(&mut self, seat: Seat, has_voice: bool) {
        if has_voice && self.admission.is_seated(seat) {
            self.tally.voices += 1;
        } else if has_voice {
            self.buckets.push(seat.bucket);
        }
        let step = seat.labelled_step.and_then(|step| usize::from(step).checked_sub(1));
        if let Some(labelled) = step.and_then(|step| self.tally.labelled.get_mut(step)) {
            *labelled += 1;
        }
    }

    /// Under `mode: enforce`, an affected client without the push is part of the control group, unless the
    /// client is admitted and will be sent the push.
    fn compare_with(&mut self, seat: Seat) {
        if self.plan.enforces() && !self.admission.is_seated(seat) {
            self.tally.control.clients += 1;
        }
    }

    /// The client of a new rejection votes against the suspects (QUA-2).
    fn vote(&mut self, nack: &PushRejection, rejection: &Rejection, rejecters: &mut Rejecters) {
        let enough = self.plan.times.condemn_after;
        self.tally.condemned.extend(rejecters.note(rejection, nack.suspects.are_blamed(), enough, self.now));
    }

    fn reject(&mut self, kept: &KeptRejection) {
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

    fn finish(mut self) -> Tally {
        self.buckets.sort_unstable();
        self.buckets.truncate(self.plan.at_least_max().max(1));
        let mut tally = self.tally;
        tally.smallest = self.buckets;
        tally.rejections.append(&mut self.of_others);
        tally.rejections.truncate(REJECTIONS_MAX);
        tally.blamed = self.blamed.into_iter().collect();
        tally
    }
}
