//! A private source whose only client is silent: the relay asks a server what it would tell a client
//! directly, with the client's whole node (PRF-1). The proof asks so, and studies do.
//!
//! A shadow ends when it is dropped. No client, plan, checkpoint, limit,
//! log line or metric of other sources knows of it.

use std::sync::Arc;

use tokio::sync::Notify;

use super::handle::{SourceHandle, Subscriber};
use super::silent::SilentClient;
use super::table::Sources;
use crate::client::ConnectionChoice;
use crate::driver::api::proof::Replica;
use crate::driver::ground::context::DriverSettings;
use crate::driver::ground::servers::Place;
use sluice_engine::cache::SessionId;
use sluice_engine::class::{NodeClass, UpstreamNode};
use sluice_engine::collection::Collection;
use sluice_engine::reachability::Reachability;
use sluice_engine::snapshot::Snapshot;
use sluice_xds::{Node, Status, TypeUrl};

/// A question to a server.
pub struct ShadowOrder {
    pub place: Place,
    /// The server sees the identity and the features of this class (PRF-4).
    pub class: NodeClass,
    /// The whole node that the server sees.
    pub node: Arc<Node>,
    /// The first questions, all at once (PRF-2).
    pub parts: Vec<(TypeUrl, Collection)>,
    /// The connection of the streams.
    pub connection: ConnectionChoice,
    /// Notified after each change of the content or of the standing.
    pub changed: Arc<Notify>,
}

/// Closes its streams when it is dropped.
pub struct Shadow {
    source: Arc<SourceHandle>,
    client: Arc<SilentClient>,
}

impl Shadow {
    /// Opens the streams to the server. `None`: the configuration has no such server any more.
    pub fn open(order: ShadowOrder, settings: &DriverSettings, sources: &Sources) -> Option<Shadow> {
        let ShadowOrder { place, class, node, parts, connection, changed } = order;
        let listed = settings.lists.find(place)?;
        let of_member = NodeClass { upstream_node: UpstreamNode::Member, ..class };
        let source = sources.shadow(listed, of_member, connection);
        let client = SilentClient::new(SessionId(source.id().0), Some(node), changed);
        let shadow = Shadow { source, client };
        shadow.want(parts);
        Some(shadow)
    }

    /// Asks for more.
    pub fn want(&self, parts: Vec<(TypeUrl, Collection)>) {
        self.source.watch_all(self.client.clone(), parts);
    }

    /// Waits for a change of the content or of the standing.
    pub async fn changed(&self) {
        self.client.changed().await;
    }

    /// The newest content and standing.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.source.snapshot()
    }

    /// Why the source could not begin, failed, or lost the server: the end of the question, as far as no
    /// answer came before.
    pub fn end(&self, snapshot: &Snapshot) -> Option<Status> {
        self.client.ended().or_else(|| match snapshot.standing().reach() {
            Reachability::Lost { status, .. } => Some(status.clone()),
            Reachability::Pending | Reachability::Heard { .. } => None,
        })
    }

    /// The replica of the server that answers.
    pub fn replica(&self) -> Replica {
        self.source.replica()
    }

    /// The connection of the shadow's stream. With that of the class, it asks the same replica of the server.
    pub fn connection(&self) -> u64 {
        self.source.connection()
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // Its subscriptions end at once, also while the server is lost.
        self.source.dismiss(self.client.id());
    }
}
