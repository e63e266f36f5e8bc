//! Moves streams between the servers of a list (A71), and ends the streams that no server can serve (RLY-4).

use std::time::Duration;

use tracing::{debug, warn};

use crate::driver::api::downstream::WhenUnavailable;
use crate::driver::ground::registry::lock;
use crate::driver::ground::servers::ServerLists;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::routes::Routes;
use crate::driver::stream::state::{Fallbacks, Inner, StreamState};
use crate::engine::Time;
use crate::engine::downstream::Moved;
use crate::xds::{Code, Status};

/// The time from the first request of a client until its stream fails for want of a server (RLY-4). Less than
/// 15 s, because gRPC then concludes that the requested resources do not exist.
const FAIL_AFTER: Duration = Duration::from_secs(10);

impl StreamState {
    /// Begins a move to other servers if a move is due. Returns when to look again if nothing happens before.
    pub(crate) fn follow_servers(&self, inner: &mut Inner, now: Time) -> Option<Time> {
        inner.follow(&self.shared);
        let look = inner.session.look(&newest(&inner.sources), now);
        if look.is_due && !std::mem::replace(&mut inner.is_shifting, true) {
            self.shift();
        }
        look.look_at
    }

    fn shift(&self) {
        // Keeps the stream open until all sources are told. Otherwise nothing would remove a stream entering
        // a source after the end.
        let Some(held) = self.hold_open() else { return };
        tokio::spawn(async move {
            let stream = held.state();
            let _order = stream.lock_watch_order().await;
            let shifted = {
                let inner = &mut *lock(&stream.inner);
                inner.is_shifting = false;
                let sources = inner.sources.clone();
                let node = inner.node.as_deref();
                let settings = inner.moving_to.clone().unwrap_or_else(|| inner.routing.clone());
                let mut routes =
                    Routes { stream, settings: &settings, node, sources: &mut inner.sources, refusal: None };
                let mut shifted =
                    inner.session.shift(&newest(&sources), &mut routes, stream.shared.clock.now());
                stream.note_moves(&settings.lists, &mut inner.fallbacks, &shifted.moves);
                if !shifted.moves.is_empty() {
                    inner.sources.forget_push();
                }
                if shifted.is_settled {
                    shifted.watches.extend(stream.settle(inner));
                }
                shifted.watches.extend(stream.adopt_unasked(inner));
                shifted
            };
            if let Some(status) = shifted.refused {
                // The stream stays with its server, and looks again later. Only the move has failed.
                stream.note_refused_move(&status);
            }
            if shifted.is_settled {
                // The former class lingers, for a way back.
                stream.send_watches(shifted.watches).await;
            } else {
                stream.send_watches_and_dismiss(shifted.watches).await;
            }
            Subscriber::wake(&**stream);
        });
    }

    fn note_refused_move(&self, status: &Status) {
        if let Some(suppressed) = self.shared.throttle.allow("refused moves") {
            warn!(listener = %self.peer.listener, stream = self.number(), error = %status.message, suppressed,
                "a client stays with a server that cannot serve it, because the next server of its list cannot be used");
        }
    }

    fn note_moves(&self, lists: &ServerLists, fallbacks: &mut Fallbacks, moves: &[Moved]) {
        for Moved { list: id, type_url, from, to } in moves {
            let Some(list) = lists.list(*id) else { continue };
            let (from_uri, to_uri) = (&list.at(*from).server().uri, &list.at(*to).server().uri);
            debug!(stream = self.number(), list = %list.label, ?type_url, from = %from_uri, to = %to_uri,
                "a stream moved to another server");
            let counted = self.shared.metrics.fallback.moved(&list.label, to_uri, *to == 0);
            let fell = counted.map(|counted| {
                let episode = self.shared.fallback_log.join(
                    list.at(*to),
                    from_uri,
                    &self.shared.throttle,
                    &self.shared.metrics.events,
                );
                ((*id, type_url.clone()), counted, episode)
            });
            fallbacks.retain(|((known, of), ..)| (known, of) != (id, type_url));
            fallbacks.extend(fell);
        }
    }

    /// Whether the stream must end, because no server is reachable and nothing is cached (RLY-4), and when to
    /// look again. After an answer, the end would tell the client nothing (CLI-2).
    pub(crate) fn must_fail(&self, inner: &Inner, now: Time) -> (bool, Option<Time>) {
        let Some(asked_at) = inner.asked_at.filter(|_| self.peer.when_unavailable == WhenUnavailable::Fail)
        else {
            return (false, None);
        };
        let at = asked_at + FAIL_AFTER;
        let must_fail = inner.session.is_stranded(&newest(&inner.sources), at <= now);
        (must_fail, (at > now).then_some(at))
    }

    /// The status of a stream that no server can serve.
    pub(crate) fn unavailable(&self) -> Status {
        if let Some(suppressed) = self.shared.throttle.allow("unavailable streams") {
            warn!(listener = %self.peer.listener, stream = self.number(), suppressed, "no server is reachable, \
                and nothing is cached for a client; ending its stream, so that it can use its next server");
        }
        Status::new(
            Code::Unavailable,
            "no control plane is reachable, and nothing is cached for this request",
        )
    }
}
