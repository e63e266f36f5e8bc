//! A stream as its sources see it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::driver::ground::registry::lock;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::private_part::{private_source, session_at};
use crate::driver::stream::state::{StreamState, due};
use crate::engine::cache::SessionId;
use crate::engine::downstream::SourceId;
use crate::xds::{Node, RelayPath, Status, TypeUrl};

impl Subscriber for StreamState {
    fn id(&self) -> SessionId {
        SessionId(self.id)
    }

    fn wake(&self) {
        self.due.fetch_or(due::NEWS, Ordering::Release);
        self.waker.wake();
    }

    fn end(&self, status: Status) {
        lock(&self.inner).end.get_or_insert_with(|| Box::new(status));
        self.wake();
    }

    fn awaited_changes(&self, source: SourceId) -> Vec<u64> {
        self.awaited_of(source)
    }

    fn node(&self) -> Option<Arc<Node>> {
        lock(&self.inner).node.clone()
    }

    fn relays(&self) -> Option<&RelayPath> {
        self.peer.relays.as_deref()
    }

    fn divert(self: Arc<Self>, type_url: TypeUrl) {
        self.divert_soon(type_url);
    }

    fn displaced(self: Arc<Self>, source: SourceId) {
        self.look_for_room(source);
    }

    fn is_leaving(&self, source: SourceId) -> bool {
        lock(&self.inner).is_leaving(source)
    }
}

/// The stream as a subscriber of the source with this id.
pub(crate) fn subscriber_at(stream: &Arc<StreamState>, source: SourceId) -> Arc<dyn Subscriber> {
    let id = session_at(stream.id(), source);
    if id == stream.id() {
        stream.clone()
    } else {
        Arc::new(PrivateSubscriber { id, stream: stream.clone() })
    }
}

struct PrivateSubscriber {
    id: SessionId,
    stream: Arc<StreamState>,
}

impl Subscriber for PrivateSubscriber {
    fn id(&self) -> SessionId {
        self.id
    }

    fn wake(&self) {
        self.stream.wake();
    }

    fn end(&self, status: Status) {
        self.stream.end(status);
    }

    fn awaited_changes(&self, source: SourceId) -> Vec<u64> {
        self.stream.awaited_of(private_source(source))
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.stream.node()
    }

    fn relays(&self) -> Option<&RelayPath> {
        self.stream.relays()
    }

    fn divert(self: Arc<Self>, type_url: TypeUrl) {
        self.stream.clone().divert(type_url);
    }

    fn displaced(self: Arc<Self>, source: SourceId) {
        self.stream.clone().displaced(source);
    }
}
