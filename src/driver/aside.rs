//! Two parts of one stream at one source.
//!
//! What may not be shared is a part of its own. At a control plane it has a source of its own, too. A directory answers everyone
//! alike and has one source; there the two parts of a stream are two sessions, since what a session wants of a type takes the place of
//! what it wanted before.

use std::sync::Arc;

use super::source::Subscriber;
use super::stream::StreamState;
use crate::engine::cache::SessionId;
use crate::engine::downstream::SourceId;
use crate::xds::{Node, Status, TypeUrl};

/// Sources and streams are counted from 0: neither comes this far.
const ASIDE: u64 = 1 << 63;

/// The source as the private part of a stream knows it.
pub(super) fn source_aside(id: SourceId) -> SourceId {
    SourceId(id.0 | ASIDE)
}

/// The session of a stream at a source that it knows by this number.
pub(super) fn session_at(stream: SessionId, source: SourceId) -> SessionId {
    SessionId(stream.0 | (source.0 & ASIDE))
}

/// The stream, as it enters the source.
pub(super) fn subscriber_at(stream: &Arc<StreamState>, source: SourceId) -> Arc<dyn Subscriber> {
    let id = session_at(stream.id(), source);
    if id == stream.id() { stream.clone() } else { Arc::new(Aside { id, stream: stream.clone() }) }
}

struct Aside {
    id: SessionId,
    stream: Arc<StreamState>,
}

impl Subscriber for Aside {
    fn id(&self) -> SessionId {
        self.id
    }

    fn wake(&self) {
        self.stream.wake();
    }

    fn end(&self, status: Status) {
        self.stream.end(status);
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.stream.node()
    }

    fn divert(self: Arc<Self>, type_url: TypeUrl) {
        self.stream.clone().divert(type_url);
    }

    fn displaced(self: Arc<Self>, source: SourceId) {
        self.stream.clone().displaced(source);
    }
}
