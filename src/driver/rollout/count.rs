//! The count of the clients of a push: one walk over the streams, one lock at a time (TRU-1, TRU-2).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::driver::ground::context::DriverContext;
use crate::driver::ground::leavers::Leavers;
use crate::driver::ground::plans::{NotedEnd, Watched};
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::private_part::shared_source;
use crate::driver::stream::state::{StreamState, Tables};
use crate::engine::Time;
use crate::engine::downstream::{Compared, PushStanding, SourceId, WithoutEvidence};
use crate::engine::evidence::{self, Content, Ended, Rejecters, Seen};
use crate::engine::rollout::{Admission, Plan, Tally, UnitId};
use crate::xds::Node;

/// The number of streams between two turns of other tasks (ADM-6).
pub const STREAMS_PER_TURN: usize = 64;

/// The clients of one push, from its begin to its release.
#[derive(Debug)]
pub struct Clients {
    pub number: u64,
    pub watched: Arc<Watched>,
    counted: evidence::Clients,
    without_evidence: WithoutEvidence,
}

impl Clients {
    pub fn new(number: u64, watched: Arc<Watched>) -> Clients {
        let without_evidence = WithoutEvidence::of(&watched.set);
        Clients { number, watched, counted: evidence::Clients::default(), without_evidence }
    }

    /// Counts all streams. `units`: the units of the plan. `admission`: the latest word of the machine.
    pub async fn tally(
        &mut self,
        plan: &Plan,
        units: &BTreeSet<UnitId>,
        admission: Admission,
        (rejecters, leavers): (&mut Rejecters, &Leavers),
        (shared, tables): (&DriverContext, &Tables),
    ) -> Tally {
        let mut count = self.counted.begin(plan, admission, rejecters, shared.clock.now());
        let noted = self.watched.take_rejected();
        let noted = noted.filter(|of| is_of(units, of.sources.iter().copied())).map(|of| of.seen);
        let noted = noted.map(|seen| Seen { standing: of_units(seen.standing), ..seen });
        self.counted.hear(noted, &mut count, rejecters);
        let mut compared = Compared::default();
        self.without_evidence.next_tally();
        let (mut last, mut seen) = (None, 0);
        while let Some(stream) = tables.streams.next(last) {
            last = Some(stream.number());
            let now = shared.clock.now();
            if let Some((found, accepted)) = self.look(&stream, (plan, admission), units, &mut compared, now)
            {
                self.counted.accept(found.node.as_deref(), accepted);
                self.counted.see(found, &mut count, rejecters);
            }
            seen += 1;
            if seen % STREAMS_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        let ended = self.watched.take_ended().into_iter();
        let ended = ended.filter(|end| is_of(units, end.sources.iter().copied()));
        let ended = ended.map(|NotedEnd { ended, .. }| Ended { standing: of_units(ended.standing), ..ended });
        let tally = self.counted.finish(count, ended, (rejecters, leavers));
        Tally { without_evidence: self.without_evidence.lists(), ..tally }
    }

    /// The nodes with a rejection of the push.
    pub fn rejecting_nodes(&self) -> BTreeSet<Arc<str>> {
        self.counted.rejecting_nodes()
    }

    /// A stream of the plan at this moment, and the suspects of others that its client accepted.
    fn look(
        &mut self,
        stream: &StreamState,
        (plan, admission): (&Plan, Admission),
        units: &BTreeSet<UnitId>,
        compared: &mut Compared,
        now: Time,
    ) -> Option<(Seen, Vec<Content>)> {
        let node = stream.node();
        let (is_relay, number) = (stream.is_relay(), stream.number());
        stream.look(|_, session, sources| {
            let standing = self.watched.standing(session, compared, &newest(sources), now);
            let is_of_plan = is_of(units, sources.iter().map(|(id, _)| *id));
            let is_asked = is_of_plan && !is_relay && standing.sent_at.is_some();
            if is_asked && !self.without_evidence.is_empty() {
                let seat = plan.seat(node.as_deref().unwrap_or(&Node::default()));
                if admission.is_seated(seat) {
                    session.note_sent(&self.watched.set, &mut self.without_evidence);
                }
            }
            let suspects = self.counted.suspects_of(number, node.as_deref()).filter(|_| is_asked);
            let is_accepted =
                |(type_url, name, version): &&Content| session.has_accepted(type_url, name, *version);
            let accepted = suspects.into_iter().flatten().filter(is_accepted).cloned().collect();
            let seen = Seen { stream: number, node, standing: of_units(standing), is_relay };
            is_of_plan.then_some((seen, accepted))
        })
    }
}

fn is_of(units: &BTreeSet<UnitId>, mut sources: impl Iterator<Item = SourceId>) -> bool {
    sources.any(|source| units.contains(&UnitId(source.0)))
}

/// The standing by the shared sources behind the client's sources.
fn of_units(mut standing: PushStanding) -> PushStanding {
    standing.source = standing.source.map(shared_source);
    standing.rejections.iter_mut().for_each(|of| of.source = shared_source(of.source));
    standing
}
