//! A private source whose only client is silent: the relay asks a server what it would tell a client directly,
//! with the client's whole node (PRF-1).
//!
//! A shadow begins with all that it wants and ends when it is dropped. No client, plan, checkpoint, limit, log
//! line or metric of other sources knows of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::handle::{SourceHandle, Subscriber};
use super::table::Sources;
use crate::driver::api::status::SourceStatus;
use crate::driver::ground::context::DriverSettings;
use sluice_engine::cache::SessionId;
use sluice_engine::class::{NodeClass, UpstreamNode};
use sluice_engine::collection::Collection;
use sluice_engine::downstream::SourceId;
use sluice_engine::snapshot::Snapshot;
use sluice_xds::{Node, RelayPath, Status, TypeUrl};

/// A question to the server of a class.
pub struct ShadowOrder {
    /// The shadow has the server, the identity and the features of this class (PRF-3, PRF-4).
    pub class: Arc<SourceHandle>,
    /// The whole node that the server sees.
    pub node: Arc<Node>,
    /// Everything that is asked, at once (PRF-2).
    pub wanted: Vec<(TypeUrl, Collection)>,
    /// Notified after each change of the content or of the standing.
    pub changed: Arc<Notify>,
}

/// Closes its streams when it is dropped.
pub struct Shadow {
    source: Arc<SourceHandle>,
    stream: Arc<ShadowStream>,
    class: Arc<SourceHandle>,
}

impl Shadow {
    /// Opens the streams to the server. `None`: the configuration has no such server any more.
    pub fn open(order: ShadowOrder, settings: &DriverSettings, sources: &Sources) -> Option<Shadow> {
        let ShadowOrder { class, node, wanted, changed } = order;
        let listed = settings.lists.find(class.key().place)?;
        let of_member = NodeClass { upstream_node: UpstreamNode::Member, ..class.key().class.clone() };
        let source = sources.shadow(listed, of_member, class.connection());
        let stream = Arc::new(ShadowStream {
            id: SessionId(source.id().0),
            node,
            changed,
            is_changed: AtomicBool::new(false),
            ended: Mutex::default(),
        });
        source.watch_all(stream.clone(), wanted);
        Some(Shadow { source, stream, class })
    }

    pub fn id(&self) -> SourceId {
        self.source.id()
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.stream.node
    }

    /// The newest content and standing.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.source.snapshot()
    }

    /// The state of the source, at most 250 ms old.
    pub fn status(&self) -> Arc<SourceStatus> {
        self.source.status()
    }

    /// Whether something changed since the last call.
    pub fn take_changed(&self) -> bool {
        self.stream.is_changed.swap(false, Ordering::Relaxed)
    }

    /// Why the source could not begin, or failed.
    pub fn ended(&self) -> Option<Status> {
        self.stream.ended.lock().clone()
    }

    /// Whether the shadow is on the connection of the class, and so asks the same replica of the server.
    pub fn is_beside_class(&self) -> bool {
        self.source.connection() == self.class.connection()
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.source.forget(self.stream.id);
    }
}

/// The client of a shadow.
struct ShadowStream {
    id: SessionId,
    node: Arc<Node>,
    changed: Arc<Notify>,
    is_changed: AtomicBool,
    ended: Mutex<Option<Status>>,
}

impl ShadowStream {
    fn note_change(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }
}

impl Subscriber for ShadowStream {
    fn id(&self) -> SessionId {
        self.id
    }

    fn wake(&self) {
        self.note_change();
    }

    fn end(&self, status: Status) {
        self.ended.lock().get_or_insert(status);
        self.note_change();
    }

    fn node(&self) -> Option<Arc<Node>> {
        Some(self.node.clone())
    }

    fn relays(&self) -> Option<&RelayPath> {
        None
    }

    fn awaited_changes(&self, _: SourceId) -> Vec<u64> {
        Vec::new()
    }

    fn divert(self: Arc<Self>, _: TypeUrl) {}

    fn displaced(self: Arc<Self>, _: SourceId) {}
}
