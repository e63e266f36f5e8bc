//! A client that is sent nothing: the relay itself wants something from a source.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::handle::Subscriber;
use sluice_engine::cache::SessionId;
use sluice_engine::downstream::SourceId;
use sluice_xds::{Node, RelayPath, Status, TypeUrl};

/// The silent client, as its source sees it.
pub struct SilentClient {
    id: SessionId,
    /// The node before the server, if the source shows a client's node.
    node: Option<Arc<Node>>,
    /// Notified after each change of the content or of the standing, and at the end.
    changed: Arc<Notify>,
    ended: Mutex<Option<Status>>,
}

impl SilentClient {
    /// `id` is of no stream.
    pub fn new(id: SessionId, node: Option<Arc<Node>>, changed: Arc<Notify>) -> Arc<SilentClient> {
        Arc::new(SilentClient { id, node, changed, ended: Mutex::default() })
    }

    /// Waits for a change.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Why the source could not begin, or failed.
    pub fn ended(&self) -> Option<Status> {
        self.ended.lock().clone()
    }
}

impl Subscriber for SilentClient {
    fn id(&self) -> SessionId {
        self.id
    }

    fn wake(&self) {
        self.changed.notify_one();
    }

    fn end(&self, status: Status) {
        self.ended.lock().get_or_insert(status);
        self.changed.notify_one();
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.clone()
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
