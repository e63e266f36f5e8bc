//! A downstream stream: the machine under its lock, and the stream's sources.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use thin_vec::ThinVec;
use tokio::time::Sleep;
use tracing::debug;

use crate::driver::api::downstream::{Charge, Peer};
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::encoder::Encoded;
use crate::driver::ground::encoder::private_body::PrivateBody;
use crate::driver::ground::fallback_log::FallbackEpisode;
use crate::driver::ground::rate::Limiter;
use crate::driver::ground::registry::{Registry, lock};
use crate::driver::ground::unread::Unread;
use crate::driver::source::class_users::Holder;
use crate::driver::source::table::Sources;
use crate::driver::stream::diversions::Diverts;
use crate::driver::stream::own_sources::OwnSources;
use crate::driver::stream::private_part::session_at;
use crate::driver::stream::refusal::Refusal;
use crate::driver::stream::restating::RejectedPushes;
use crate::driver::stream::waiting::Waiting;
use crate::engine::Time;
use crate::engine::cache::SessionId;
use crate::engine::downstream::{AnswerKey, ListId, Session};
use crate::setting::Epoch;
use crate::telemetry::metrics::{BehindMetrics, GaugePart, TypeMetrics};
use crate::xds::{Node, Status, StreamKind, TypeUrl};

/// The memory that a stream costs its connection before it asks for any name: with its buffers, its subscriptions and
/// HTTP/2's part, rounded up (ADR 66).
pub(crate) const STREAM_BYTES: usize = 8 << 10;

/// The tables of all sources and of all streams.
#[derive(Clone)]
pub struct Tables {
    pub sources: Arc<Sources>,
    pub streams: Arc<Registry<StreamState>>,
}

/// The serving room's handle. Dropping the last clone ends the stream's subscriptions.
#[derive(Clone)]
pub struct Stream(pub(crate) Arc<Guard>);

pub struct Guard(pub(crate) Arc<StreamState>);

/// The shared state of a stream.
pub struct StreamState {
    pub(crate) id: u64,
    /// Weak, because the stream ends with the last handle of the serving room.
    pub(crate) guard: Weak<Guard>,
    pub(crate) kind: StreamKind,
    pub(crate) peer: Arc<Peer>,
    pub(crate) opened_at: Time,
    pub(crate) shared: Arc<DriverContext>,
    pub(crate) tables: Tables,
    pub(crate) waker: AtomicWaker,
    /// Whether something may be due since the last look ([`due`]). Each request and each sent message also cause a poll,
    /// and most of these polls would find nothing.
    pub(crate) due: AtomicU8,
    pub(crate) answered: AtomicBool,
    pub(crate) unread: Unread,
    pub(crate) behind: BehindMetrics,
    pub(crate) inner: Mutex<Inner>,
    /// Held from a change of subscriptions until all sources are told, so that they see the changes in order.
    pub(crate) watch_order: tokio::sync::Mutex<()>,
    /// Boxed: few streams have resources for one client alone.
    pub(crate) diverts: Mutex<Option<Box<Diverts>>>,
}

pub(crate) struct Inner {
    pub(crate) session: Session,
    pub(crate) node: Option<Arc<Node>>,
    /// The session has the grant of a decision (AUT-1).
    pub(crate) is_admitted: bool,
    pub(crate) sources: OwnSources,
    pub(crate) rejected: RejectedPushes,
    /// Some types have no room for their class.
    pub(crate) refusal: Option<Box<Refusal>>,
    pub(crate) types: Vec<(TypeUrl, Arc<TypeMetrics>)>,
    /// The number of the configuration that the session and the limiter have.
    pub(crate) epoch: u64,
    /// The configuration by which the session is routed, until it has moved to the next one.
    pub(crate) routing: Arc<Epoch<DriverSettings>>,
    /// The configuration to which the session moves (REL-6).
    pub(crate) moving_to: Option<Arc<Epoch<DriverSettings>>>,
    pub(crate) limiter: Limiter,
    /// The requests that wait for the limiter. Boxed: few streams have any.
    pub(crate) waiting: Option<Box<Waiting>>,
    /// The charge for this stream and its names.
    pub(crate) names: Charge,
    /// Bodies with messages to be sent, for answers of several messages.
    pub(crate) unsent: ThinVec<(AnswerKey, Arc<Encoded>)>,
    /// A pending body for this stream alone.
    pub(crate) private_body: PrivateBody<Arc<Encoded>>,
    /// The number of waits for a body in a row.
    pub(crate) waits: u8,
    /// A move to other servers is under way.
    pub(crate) is_shifting: bool,
    /// The lists, or types, that a lower server serves.
    pub(crate) fallbacks: Fallbacks,
    /// The time of the first request.
    pub(crate) asked_at: Option<Time>,
    /// The final status, once decided.
    pub(crate) end: Option<Box<Status>>,
    /// The earliest time of the first answer (RLY-56), set when the answer is due.
    pub(crate) turn: Option<Time>,
    /// Runs while the first answer is delayed, or while the routing types wait for an ACK (ORD-10).
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
        let sources = {
            let inner = &mut *lock(&stream.inner);
            inner.give_up_changes();
            let (is_lost, now) = (stream.is_lost(inner), stream.shared.clock.now());
            if is_lost {
                inner.count_loss(now);
            }
            stream.tell_plans(inner, is_lost, now);
            std::mem::take(&mut inner.sources)
        };
        for (id, source) in sources.iter() {
            source.forget(session_at(stream.session(), *id));
            stream.tables.sources.release(source, &stream.holder());
        }
        stream.peer.connection.account().forget(stream.id);
        stream.tables.streams.forget(stream.id);
        if stream.shared.tails.are_open() {
            stream.tell_end();
        }
        debug!(stream = stream.id, "stream ended");
    }
}

impl StreamState {
    /// The stream's id at its sources.
    pub fn session(&self) -> SessionId {
        SessionId(self.id)
    }

    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    pub(crate) fn number(&self) -> u64 {
        self.id
    }

    /// Keeps the stream open like a handle of the serving room. `None` after the last of these handles.
    pub(crate) fn hold_open(&self) -> Option<Stream> {
        self.guard.upgrade().map(Stream)
    }

    /// Held from a change of subscriptions until all sources are told.
    pub(crate) async fn lock_watch_order(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.watch_order.lock().await
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// How long the client has read nothing; `None` if nothing is unread.
    pub(crate) fn unread_for(&self) -> Option<Duration> {
        self.unread.age()
    }

    /// How long the client has taken nothing.
    pub(crate) fn unused_for(&self) -> Duration {
        self.unread.unused()
    }

    /// Passes the node, the subscriptions and their sources to `look`, under the lock.
    pub(crate) fn look<T>(&self, look: impl FnOnce(Option<&Node>, &Session, &OwnSources) -> T) -> T {
        let inner = lock(&self.inner);
        look(inner.node.as_deref(), &inner.session, &inner.sources)
    }

    /// The user of this stream's classes, for the bounds.
    pub(crate) fn holder(&self) -> Holder {
        Holder::new(&self.peer.identity, self.peer.address, self.peer.connection.number())
    }
}

/// The reasons for a look for answers.
pub(crate) mod due {
    /// The sources may have published something, or a timer of the driver is over.
    pub const NEWS: u8 = 1;
    /// The last look found something.
    pub const AGAIN: u8 = 2;
}

/// The lists, or types of lists, with a server other than the preferred server. Each has its part of a gauge,
/// and its episode.
pub(crate) type Fallbacks = ThinVec<((ListId, Option<TypeUrl>), GaugePart, Arc<FallbackEpisode>)>;

#[cfg(test)]
mod tests {
    use super::*;

    /// With the two counters of its allocation, a size class of the allocator.
    #[test]
    fn an_idle_stream_costs_little() {
        let size = size_of::<StreamState>();
        assert!(size + 16 <= 768, "{size}");
    }
}
