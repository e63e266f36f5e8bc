//! Single clients for the admin room: a stream is locked while its views are shared, and read without a lock.

use crate::driver::api::clients::{
    ClientTypes, ClientView, Explanation, Holding, NameStatuses, NodeExplanation, TypeState,
};
use crate::driver::api::status::SessionStatus;
use crate::driver::api::tail::{Followed, Tail, TailView};
use crate::driver::relay::explain::{explanation, holding, is_known, ledger_of, name_status, node_classes};
use crate::driver::relay::handle::Relay;
use crate::driver::relay::inspect::session_status;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::private_part::shared_source;
use crate::driver::stream::state::StreamState;
use sluice_engine::downstream::ClientTypeState;
use sluice_xds::{Node, ResourceName, TypeUrl};

impl ClientView for Relay {
    fn session(&self, id: u64) -> Option<SessionStatus> {
        Some(session_status(&self.stream(id)?, &self.shared))
    }

    fn names(&self, id: u64, type_url: &TypeUrl, after: Option<ResourceName>) -> Option<NameStatuses> {
        let (ledger, unsent) = ledger_of(self, &*self.stream(id)?, type_url)?;
        let mut last = after;
        Some(Box::new(std::iter::from_fn(move || {
            let name = ledger.next_name(last.as_ref())?;
            last = Some(name.clone());
            Some(name_status(&ledger, ledger.entry(name), unsent))
        })))
    }

    fn explain(&self, id: u64, type_url: &TypeUrl, name: Option<&ResourceName>) -> Option<Explanation> {
        explanation(self, id, type_url, name)
    }

    fn holdings<'a>(
        &'a self,
        type_url: &'a TypeUrl,
        name: &'a ResourceName,
    ) -> Box<dyn Iterator<Item = Holding> + Send + 'a> {
        let mut last = None;
        Box::new(std::iter::from_fn(move || {
            let stream = self.tables.streams.next(last)?;
            last = Some(stream.id().0);
            Some(holding(self, &stream, type_url, name))
        }))
    }

    fn type_states(&self) -> Box<dyn Iterator<Item = ClientTypes> + Send + '_> {
        let mut last = None;
        Box::new(std::iter::from_fn(move || {
            let stream = self.tables.streams.next(last)?;
            last = Some(stream.id().0);
            Some(types_of(self, &stream))
        }))
    }

    fn lost_streams(&self, type_url: &TypeUrl) -> Vec<(u64, u64)> {
        let (sources, now) = (self.tables.sources.all(), self.shared.clock.now());
        sources.iter().map(|source| (source.id().0, source.losses.recent(type_url, now))).collect()
    }

    fn knows(&self, type_url: &TypeUrl, name: &ResourceName) -> bool {
        is_known(self, type_url, name)
    }

    fn classify_node(&self, node: &Node) -> Vec<NodeExplanation> {
        node_classes(self, node)
    }
}

fn types_of(relay: &Relay, stream: &StreamState) -> ClientTypes {
    let now = relay.shared.clock.now();
    let standings = stream.look(|_, session, sources| session.type_states(&newest(sources), now));
    let state = |standing: ClientTypeState| TypeState {
        source: shared_source(standing.source).0,
        type_url: standing.type_url,
        state: standing.state,
    };
    ClientTypes { types: standings.into_iter().map(state).collect() }
}

impl TailView for Relay {
    fn tail(&self, followed: Followed, type_name: Option<String>) -> Option<Tail> {
        self.shared.tails.open(followed, type_name)
    }
}
