//! One downstream stream: the machine under its lock, and its place among sources.

use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Sleep;
use tracing::debug;

use crate::driver::api::downstream::{Charge, Peer};
use crate::driver::ground::context::Shared;
use crate::driver::ground::encoder::Encoded;
use crate::driver::ground::encoder::private_body::PrivateBody;
use crate::driver::ground::fallback_log::FallbackEpisode;
use crate::driver::ground::rate::Limiter;
use crate::driver::ground::registry::{Registry, lock};
use crate::driver::ground::unread::Unread;
use crate::driver::source::handle::SourceHandle;
use crate::driver::source::room::{Holder, Origin};
use crate::driver::source::table::Sources;
use crate::driver::stream::diversions::Diverts;
use crate::driver::stream::private_part::session_at;
use crate::driver::stream::refusal::Refusal;
use crate::engine::Time;
use crate::engine::cache::SessionId;
use crate::engine::downstream::{AnswerKey, Session, SourceId};
use crate::engine::snapshot::Snapshot;
use crate::telemetry::metrics::{BehindMetrics, GaugePart, TypeMetrics};
use crate::xds::{Node, Status, StreamKind, TypeUrl};

/// Where a stream finds its sources, and where it is found itself.
#[derive(Clone)]
pub struct Tables {
    pub sources: Arc<Sources>,
    pub streams: Arc<Registry<StreamState>>,
}

/// The handle that the serving room holds. The last clone that goes ends the stream's subscriptions.
#[derive(Clone)]
pub struct Stream(pub(crate) Arc<Guard>);

pub struct Guard(pub(crate) Arc<StreamState>);

/// A stream as everyone sees it.
pub struct StreamState {
    pub(crate) id: u64,
    /// The handles of the serving room; gone with the last of them.
    pub(crate) guard: Weak<Guard>,
    pub(crate) kind: StreamKind,
    pub(crate) peer: Peer,
    pub(crate) opened_at: Time,
    pub(crate) shared: Arc<Shared>,
    pub(crate) tables: Tables,
    pub(crate) waker: AtomicWaker,
    /// Something may be due that was not looked for yet: a call is polled at each request, too, and once more after each message,
    /// and most of those polls have nothing to find.
    pub(crate) is_stirred: AtomicBool,
    pub(crate) answered: AtomicBool,
    pub(crate) unread: Unread,
    pub(crate) behind: BehindMetrics,
    pub(crate) inner: Mutex<Inner>,
    /// Held from a change of what is wanted until the sources were told of it, so that they hear of changes in order.
    pub(crate) watch_order: tokio::sync::Mutex<()>,
    pub(crate) diverts: Mutex<Diverts>,
}

pub(crate) struct Inner {
    pub(crate) session: Session,
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) sources: Vec<(SourceId, Arc<SourceHandle>)>,
    /// There is no room for the class of some of its types.
    pub(crate) refusal: Option<Box<Refusal>>,
    pub(crate) types: Vec<(TypeUrl, Arc<TypeMetrics>)>,
    pub(crate) limiter: Limiter,
    /// What the connection is charged for the names of this stream.
    pub(crate) names: Charge,
    /// What is left to send of answers that take several messages.
    pub(crate) unsent: Vec<(AnswerKey, Arc<Encoded>)>,
    /// What is made for this stream alone.
    pub(crate) private_body: PrivateBody<Arc<Encoded>>,
    /// How often in a row a body was waited for.
    pub(crate) waits: u8,
    /// A move to other servers is under way.
    pub(crate) is_shifting: bool,
    /// Where it is served by another server than the preferred one.
    pub(crate) fallbacks: Fallbacks,
    /// When the first request came.
    pub(crate) asked_at: Option<Time>,
    /// How the stream is to end, once decided.
    pub(crate) end: Option<Box<Status>>,
    /// When the first answer may go (RLY-56); drawn when there is one.
    pub(crate) turn: Option<Time>,
    /// Runs while the first answer waits its turn, or the routing types wait for an ACK (ORD-10).
    pub(crate) hold: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(crate) fn state(&self) -> &Arc<StreamState> {
        &self.0.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let stream = &self.0;
        let sources = std::mem::take(&mut lock(&stream.inner).sources);
        for (id, source) in &sources {
            source.forget(session_at(stream.session(), *id));
            stream.tables.sources.release(source, stream.holder());
        }
        stream.peer.connection.account().forget(stream.id);
        stream.tables.streams.forget(stream.id);
        debug!(stream = stream.id, "stream ends");
    }
}

impl StreamState {
    /// The identity under which the sources know the stream.
    pub fn session(&self) -> SessionId {
        SessionId(self.id)
    }

    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    pub(crate) fn number(&self) -> u64 {
        self.id
    }

    /// A handle as those of the serving room, if any of these is left.
    pub(crate) fn hold_open(&self) -> Option<Stream> {
        self.guard.upgrade().map(Stream)
    }

    /// Held from a change of what is wanted until the sources were told of it.
    pub(crate) async fn lock_watch_order(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.watch_order.lock().await
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// For how long the client has taken nothing of what it was sent; `None` if it has all of it.
    pub(crate) fn unread_for(&self) -> Option<Duration> {
        self.unread.age()
    }

    /// Reads the node, the subscriptions and their sources under the lock, for a moment.
    pub(crate) fn look<T>(
        &self,
        look: impl FnOnce(Option<&Node>, &Session, &[(SourceId, Arc<SourceHandle>)]) -> T,
    ) -> T {
        let inner = lock(&self.inner);
        look(inner.node.as_deref(), &inner.session, &inner.sources)
    }

    /// Whose the classes are that this stream uses.
    pub(crate) fn holder(&self) -> Holder {
        Holder { origin: Origin::of(self.peer.address), connection: self.peer.connection.number() }
    }
}

/// The lists, or types of lists, in which a stream is not served by the preferred server, counted.
pub(crate) type Fallbacks = Vec<((u16, Option<TypeUrl>), GaugePart, Arc<FallbackEpisode>)>;

/// The newest snapshot of each source that a stream uses.
pub(crate) fn newest(
    sources: &[(SourceId, Arc<SourceHandle>)],
) -> impl Fn(SourceId) -> Option<Arc<Snapshot>> + '_ {
    |id| sources.iter().find(|(own, _)| *own == id).map(|(_, handle)| handle.snapshot())
}
