//! A private source whose only client is silent: the relay asks a server what it would tell a client
//! directly, with the client's whole node (PRF-1).
//!
//! A shadow begins with all that it wants and ends when it is dropped. No client, plan, checkpoint, limit,
//! log line or metric of other sources knows of it.

use std::sync::Arc;

use tokio::sync::Notify;

use super::handle::{SourceHandle, Subscriber};
use super::silent::SilentClient;
use super::table::Sources;
use crate::client::ConnectionChoice;
use crate::driver::ground::context::DriverSettings;
use sluice_engine::cache::SessionId;
use sluice_engine::class::{NodeClass, UpstreamNode};
use sluice_engine::collection::Collection;
use sluice_engine::snapshot::Snapshot;
use sluice_xds::{Node, Status, TypeUrl};

/// A question to the server of a class.
pub struct ShadowOrder {
    /// The shadow has the server, the identity and the features of this class (PRF-3, PRF-4).
    pub class: Arc<SourceHandle>,
    /// The whole node that the server sees.
    pub node: Arc<Node>,
    /// Everything that is asked, at once (PRF-2).
    pub parts: Vec<(TypeUrl, Collection)>,
    /// On another connection than that of the class (PRF-18).
    pub is_apart: bool,
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
        let ShadowOrder { class, node, parts, is_apart, changed } = order;
        let listed = settings.lists.find(class.key().place)?;
        let of_member = NodeClass { upstream_node: UpstreamNode::Member, ..class.key().class.clone() };
        let choice =
            ConnectionChoice { preferred: class.connection(), is_apart, ..ConnectionChoice::default() };
        let source = sources.shadow(listed, of_member, choice);
        let client = SilentClient::new(SessionId(source.id().0), Some(node), changed);
        source.watch_all(client.clone(), parts);
        Some(Shadow { source, client })
    }

    /// The newest content and standing.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.source.snapshot()
    }

    /// Why the source could not begin, or failed.
    pub fn ended(&self) -> Option<Status> {
        self.client.ended()
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
