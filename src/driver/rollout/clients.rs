//! The count of the clients of a push: one walk over the streams, one lock at a time (TRU-1, TRU-2).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::driver::ground::plans::{NotedEnd, NotedRejection, PushWatch};
use crate::driver::rollout::fleet::Fleet;
use crate::driver::rollout::state::PlanState;
use crate::driver::source::handle::Subscriber as _;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::private_part::shared_source;
use crate::driver::stream::state::StreamState;
use sluice_engine::Time;
use sluice_engine::downstream::SourceId;
use sluice_fleet::evidence::{self, Compared, Content, Ended, PushStanding, Seen, WithoutEvidence};
use sluice_fleet::rollout::{Admission, Plan, Tally, UnitId};
use sluice_xds::Node;

/// The clients of one push, from its begin to its release.
#[derive(Debug)]
pub(super) struct PushClients {
    pub(super) number: u64,
    pub(super) watched: Arc<PushWatch>,
    evidence: evidence::Clients,
    without_evidence: WithoutEvidence,
}

/// The clients that a tally counts.
struct CountedClients<'a> {
    plan: &'a Plan,
    admission: Admission,
    units: BTreeSet<UnitId>,
}

impl CountedClients<'_> {
    fn has(&self, mut sources: impl Iterator<Item = SourceId>) -> bool {
        sources.any(|source| self.units.contains(&UnitId(source.0)))
    }
}

impl PushClients {
    pub(super) fn new(number: u64, watched: Arc<PushWatch>) -> PushClients {
        let without_evidence = WithoutEvidence::of(&watched.set);
        PushClients { number, watched, evidence: evidence::Clients::default(), without_evidence }
    }

    /// Counts all streams of the plan. `admission`: the latest word of the machine.
    pub(super) async fn tally(
        &mut self,
        admission: Admission,
        state: &mut PlanState,
        fleet: &Fleet,
    ) -> Tally {
        let plan = state.plan().clone();
        let rejecters = &mut state.rejecters;
        let counted = CountedClients { plan: &plan, admission, units: fleet.units() };
        let mut count = self.evidence.begin(&plan, admission, rejecters, fleet.now());
        let rejections = self.watched.take_rejected();
        let rejections = rejections.filter(|noted| counted.has(noted.sources.iter().copied()));
        let rejections = rejections
            .map(|NotedRejection { seen, .. }| Seen { standing: by_shared_sources(seen.standing), ..seen });
        self.evidence.hear(rejections, &mut count, rejecters);
        let mut compared = Compared::default();
        self.without_evidence.next_tally();
        fleet
            .each_stream(|stream| {
                let client = self.look(stream, &counted, &mut compared, fleet.now());
                if let Some((seen, accepted)) = client {
                    self.evidence.accept(seen.node.as_deref(), accepted);
                    self.evidence.see(seen, &mut count, rejecters);
                }
            })
            .await;
        let ends = self.watched.take_ended().into_iter();
        let ends = ends.filter(|noted| counted.has(noted.sources.iter().copied()));
        let ends =
            ends.map(|NotedEnd { ended, .. }| Ended { standing: by_shared_sources(ended.standing), ..ended });
        let tally = self.evidence.finish(count, ends, rejecters, fleet.handle.leavers());
        Tally { without_evidence: self.without_evidence.lists(), ..tally }
    }

    /// The nodes with a rejection of the push.
    pub(super) fn rejecting_nodes(&self) -> BTreeSet<Arc<str>> {
        self.evidence.rejecting_nodes()
    }

    /// A stream of the plan at this moment, and the suspects of others that its client accepted.
    fn look(
        &mut self,
        stream: &StreamState,
        counted: &CountedClients<'_>,
        compared: &mut Compared,
        now: Time,
    ) -> Option<(Seen, Vec<Content>)> {
        let node = stream.node();
        let (is_relay, number) = (stream.is_relay(), stream.number());
        stream.look(|_, session, sources| {
            let standing = self.watched.standing(session, compared, &newest(sources), now);
            let is_of_plan = counted.has(sources.iter().map(|(id, _)| *id));
            let is_sent = is_of_plan && standing.sent_at.is_some();
            let is_asked = is_sent && !is_relay;
            if (is_asked || is_sent && counted.plan.relays) && !self.without_evidence.is_empty() {
                let seat = counted.plan.seat(node.as_deref().unwrap_or(&Node::default()));
                if counted.admission.is_seated(seat) {
                    self.without_evidence.take_sent(session, &self.watched.set);
                }
            }
            let suspects = self.evidence.suspects_of(number, node.as_deref()).filter(|_| is_asked);
            let is_accepted =
                |(type_url, name, version): &&Content| session.has_accepted(type_url, name, *version);
            let accepted = suspects.into_iter().flatten().filter(is_accepted).cloned().collect();
            let seen = Seen { stream: number, node, standing: by_shared_sources(standing), is_relay };
            is_of_plan.then_some((seen, accepted))
        })
    }
}

/// The standing by the shared sources behind the client's sources.
fn by_shared_sources(mut standing: PushStanding) -> PushStanding {
    standing.source = standing.source.map(shared_source);
    let rejections = standing.rejections.iter_mut();
    rejections.for_each(|rejection| rejection.source = shared_source(rejection.source));
    standing
}
