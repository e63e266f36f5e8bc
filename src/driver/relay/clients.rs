//! Single clients for the admin room: a stream is locked while its views are shared, and read without a lock.

use std::sync::Arc;

use crate::driver::api::clients::{
    ClientTypes, ClientView, Explanation, Holding, NameStatus, NameStatuses, NodeExplanation, TypeState,
};
use crate::driver::api::status::{SessionStatus, Why};
use crate::driver::api::tail::{Followed, Tail, TailView};
use crate::driver::relay::Relay;
use crate::driver::relay::inspect::session_status;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::private_part::shared_source;
use crate::driver::stream::state::StreamState;
use crate::engine::downstream::{Ledger, NameEntry, NameStanding, TypeStanding, WhyUnsent};
use crate::xds::{Node, ResourceName, TypeUrl};

impl ClientView for Relay {
    fn session(&self, id: u64) -> Option<SessionStatus> {
        Some(session_status(&self.stream(id)?, &self.shared))
    }

    fn names(&self, id: u64, type_url: &TypeUrl, after: Option<ResourceName>) -> Option<NameStatuses> {
        let (ledger, unsent) = self.ledger(&*self.stream(id)?, type_url)?;
        let mut last = after;
        Some(Box::new(std::iter::from_fn(move || {
            let name = ledger.next_name(last.as_ref())?;
            last = Some(name.clone());
            Some(name_status(&ledger, ledger.entry(name), unsent))
        })))
    }

    fn explain(&self, id: u64, type_url: &TypeUrl, name: Option<&ResourceName>) -> Option<Explanation> {
        self.explanation(id, type_url, name)
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
            Some(self.holding(&stream, type_url, name))
        }))
    }

    fn type_states(&self) -> Box<dyn Iterator<Item = ClientTypes> + Send + '_> {
        let mut last = None;
        Box::new(std::iter::from_fn(move || {
            let stream = self.tables.streams.next(last)?;
            last = Some(stream.id().0);
            Some(self.types_of(&stream))
        }))
    }

    fn lost_streams(&self, type_url: &TypeUrl) -> Vec<(u64, u64)> {
        let (sources, now) = (self.tables.sources.all(), self.shared.clock.now());
        sources.iter().map(|source| (source.id().0, source.losses.recent(type_url, now))).collect()
    }

    fn knows(&self, type_url: &TypeUrl, name: &ResourceName) -> bool {
        self.is_known(type_url, name)
    }

    fn classify_node(&self, node: &Node) -> Vec<NodeExplanation> {
        self.node_classes(node)
    }
}

impl Relay {
    fn types_of(&self, stream: &StreamState) -> ClientTypes {
        let now = self.shared.clock.now();
        let standings = stream.look(|_, session, sources| session.type_standings(&newest(sources), now));
        let state = |of: TypeStanding| TypeState {
            source: shared_source(of.source).0,
            type_url: of.type_url,
            state: of.state,
        };
        ClientTypes { types: standings.into_iter().map(state).collect() }
    }

    /// The stream with this id.
    pub(super) fn stream(&self, id: u64) -> Option<Arc<StreamState>> {
        let before = id.checked_sub(1);
        self.tables.streams.next(before).filter(|stream| stream.id().0 == id)
    }

    /// The names of one type of a stream, and the reason for which news of the type are not sent.
    pub(super) fn ledger(&self, stream: &StreamState, type_url: &TypeUrl) -> Option<(Ledger, Why)> {
        let now = self.shared.clock.now();
        stream.look(|_, session, sources| {
            let ledger = session.ledger(type_url, &newest(sources), now)?;
            let index = session.subscriptions().iter().position(|of| of.type_url == *type_url)?;
            let unsent = session.reports(&newest(sources), now).into_iter().nth(index)?.unsent;
            Some((ledger, why_unsent(unsent.map(|unsent| unsent.why))))
        })
    }
}

impl TailView for Relay {
    fn tail(&self, followed: Followed, type_name: Option<String>) -> Option<Tail> {
        self.shared.tails.open(followed, type_name)
    }
}

/// The reason for which one name's news are not sent. Withheld removals concern other names.
fn why_unsent(of_type: Option<WhyUnsent>) -> Why {
    match of_type {
        Some(WhyUnsent::Order(_)) => Why::Order,
        Some(WhyUnsent::Name(_)) => Why::Name,
        Some(WhyUnsent::Withheld(_) | WhyUnsent::Unread) | None => Why::Unread,
    }
}

pub(super) fn name_status(ledger: &Ledger, entry: NameEntry, unsent: Why) -> NameStatus {
    let NameEntry { name, has, should, standing } = entry;
    let why = match standing {
        NameStanding::Current => None,
        NameStanding::Rejected => Some(Why::Rejected),
        NameStanding::Unacked => Some(Why::Unacked),
        NameStanding::Unsent => Some(unsent),
        NameStanding::Withheld => Some(Why::Withheld),
        NameStanding::Doubtful => Some(Why::Name),
        NameStanding::Unknown | NameStanding::Refused => Some(Why::Unknown),
    };
    NameStatus { refused: ledger.refusal(&name), name, has, should, why }
}
