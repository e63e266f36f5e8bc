//! The sources of a stream, and the releases for the client.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::driver::source::handle::SourceHandle;
use sluice_engine::Time;
use sluice_engine::downstream::{Answer, SourceId};
use sluice_engine::snapshot::Snapshot;
use sluice_fleet::rollout::{Plan, Seat};
use sluice_xds::Node;

/// The maximum number of plans with a known seat. A stream mostly has sources of one plan.
const SEATS_MAX: usize = 8;

/// The sources of a stream, and the seats of the client in the plans.
#[derive(Clone, Default)]
pub struct OwnSources {
    all: OwnSourceList,
    /// Most plans hold nothing back from relays: the ACK of a relay means structure (TIR-1). Boxed: most
    /// clients are no relays.
    pub(super) relay: Option<Box<RelayClient>>,
    node: Option<Arc<Node>>,
    /// Boxed: most streams never have a source that a plan holds.
    planned: RefCell<Option<Box<Planned>>>,
}

/// Nearly all streams have one source, which then stands in the memory of the stream.
type OwnSourceList = SmallVec<[(SourceId, Arc<SourceHandle>); 1]>;

/// A client that is a relay.
#[derive(Clone, Default)]
pub(super) struct RelayClient {
    /// The time of the latest last word (ADR 101).
    pub(super) told_at: Option<Time>,
}

/// The place of the client in the plans of the sources.
#[derive(Clone, Default)]
struct Planned {
    /// Computed once for each plan (WAV-13).
    seats: Vec<(Arc<Plan>, Seat)>,
    /// The push of the latest candidate with content in a sent answer (WAV-15).
    push: Option<u64>,
    /// The push of the candidate in the look under way.
    looked_at: Option<u64>,
}

impl OwnSources {
    pub(super) fn new(is_relay: bool) -> OwnSources {
        OwnSources { relay: is_relay.then(Box::default), ..OwnSources::default() }
    }

    /// Takes the node that decides about the seat.
    pub(super) fn seat_by(&mut self, node: &Arc<Node>) {
        self.node = Some(node.clone());
        if let Some(planned) = self.planned.get_mut() {
            planned.seats.clear();
        }
    }

    /// Begins the look for the next answer.
    pub(super) fn begin_look(&mut self) {
        if let Some(planned) = self.planned.get_mut() {
            planned.looked_at = None;
        }
    }

    /// Notes that the answer of the look was sent, in so many messages. A client of the candidate without any
    /// of the candidate's content in the answer has no content to keep.
    pub(super) fn note_sent(&mut self, answer: &Answer, messages: usize) {
        let brings = |push: u64| {
            self.all.iter().any(|(_, source)| {
                let published = source.published();
                let lanes = published.held().zip(published.candidate_of(push));
                lanes.is_some_and(|(stable, candidate)| {
                    answer.brings(push, messages, source.id(), [stable, candidate])
                })
            })
        };
        let holds = || self.all.iter().any(|(_, source)| source.published().held().is_some());
        let looked_at = self.planned.borrow().as_ref().and_then(|planned| planned.looked_at);
        let push = Answer::push_after(self.served_push(), looked_at, messages, holds, brings);
        self.set_push(push);
    }

    /// Notes that the client moved to another server of a list, and has the content of that server: nothing
    /// of a push that others keep (WAV-16, WAV-18).
    pub(super) fn forget_push(&mut self) {
        self.set_push(None);
    }

    fn set_push(&mut self, push: Option<u64>) {
        if push != self.served_push() {
            self.planned.get_mut().get_or_insert_default().push = push;
        }
    }

    /// The source with the id.
    pub fn get(&self, id: SourceId) -> Option<&Arc<SourceHandle>> {
        self.all.iter().find(|(other, _)| *other == id).map(|(_, source)| source)
    }

    /// The push of the latest candidate with content in a sent answer.
    pub fn served_push(&self) -> Option<u64> {
        self.planned.borrow().as_ref().and_then(|planned| planned.push)
    }

    /// The content of a source for the client.
    pub fn served(&self, source: &SourceHandle) -> Arc<Snapshot> {
        let served = source.served(|plan| Some((self.seat_in(plan)?, self.served_push())));
        if let Some(push) = served.lane().push {
            self.planned.borrow_mut().get_or_insert_default().looked_at = Some(push);
        }
        served
    }

    /// The seat of the client; `None` for a relay that the plan holds nothing back from (TIR-1).
    pub fn seat_in(&self, plan: &Arc<Plan>) -> Option<Seat> {
        if self.relay.is_some() && !plan.relays {
            return None;
        }
        let mut planned = self.planned.borrow_mut();
        let seats = &mut planned.get_or_insert_default().seats;
        if let Some((_, seat)) = seats.iter().find(|(other, _)| Arc::ptr_eq(other, plan)) {
            return Some(*seat);
        }
        if seats.len() >= SEATS_MAX {
            seats.clear();
        }
        let seat = self.node.as_deref().map_or_else(|| plan.seat(&Node::default()), |node| plan.seat(node));
        seats.push((plan.clone(), seat));
        Some(seat)
    }
}

impl Deref for OwnSources {
    type Target = OwnSourceList;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for OwnSources {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.all
    }
}

/// Looks up the newest snapshots for the client.
pub fn newest(sources: &OwnSources) -> impl Fn(SourceId) -> Option<Arc<Snapshot>> + '_ {
    |id| sources.get(id).map(|source| sources.served(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wav_13_a_client_without_a_node_is_seated_last_and_a_relay_has_a_seat_by_the_plan() {
        let plan = Arc::new(Plan::new("edge"));
        let (mut client, relay) = (OwnSources::new(false), OwnSources::new(true));
        assert_eq!(client.seat_in(&plan), Some(plan.seat(&Node::default())));
        assert_eq!(relay.seat_in(&plan), None);
        let of_relays = Arc::new(Plan { relays: true, ..Plan::new("edge") });
        assert_eq!(
            relay.seat_in(&of_relays),
            client.seat_in(&of_relays),
            "the plan holds pushes back from relays"
        );
        let node = Node { id: "envoy-1".into(), ..Node::default() };
        client.seat_by(&Arc::new(node.clone()));
        assert_eq!(
            client.seat_in(&plan),
            Some(plan.seat(&node)),
            "the seat is not that of the client without a node"
        );
        let other = Arc::new(Plan { salt: "b".into(), ..Plan::new("edge") });
        assert_eq!(client.seat_in(&other), Some(other.seat(&node)));
    }
}
