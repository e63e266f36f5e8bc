//! The serving room's handle to a stream.

#[cfg(test)]
pub(crate) mod tests;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use futures_util::task::AtomicWaker;
use thin_vec::ThinVec;

use crate::driver::api::downstream::{Charge, Form, Message, Peer, Polled, RelayStream};
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::encoder::private_body::PrivateBody;
use crate::driver::ground::registry::lock;
use crate::driver::ground::unread::Unread;
use crate::driver::source::handle::Subscriber;
use crate::driver::stream::own_sources::OwnSources;
use crate::driver::stream::poll::poll_once;
use crate::driver::stream::restating::RejectedPushes;
use crate::driver::stream::state::{Fallbacks, Guard, Inner, STREAM_BYTES, Stream, StreamState, Tables, due};
use crate::engine::authorization::Grant;
use crate::engine::downstream::Session;
use crate::telemetry::Limit;
use crate::xds::{Code, Request, SotwRequest, Status, StreamKind};

impl Stream {
    pub(crate) fn new(
        kind: StreamKind,
        peer: Arc<Peer>,
        shared: &Arc<DriverContext>,
        tables: &Tables,
    ) -> Result<Stream, Status> {
        let mut names = Charge::new(&peer.connection);
        names.set(STREAM_BYTES).inspect_err(|_| shared.metrics.limit_hit(Limit::ConnectionBytes))?;
        let (shared, id) = (shared.clone(), tables.streams.next_id());
        let settings = shared.epoch();
        let mut session =
            Session::new(kind, settings.stream, shared.seed, fastrand::u32(..), Grant::nothing());
        if peer.relays.is_some() {
            session.serve_all();
        }
        let inner = Inner {
            session,
            node: None,
            is_admitted: false,
            sources: OwnSources::new(peer.relays.is_some()),
            rejected: RejectedPushes::default(),
            refusal: None,
            types: Vec::new(),
            epoch: settings.number(),
            moving_to: None,
            limiter: shared.changes_limiter(),
            waiting: None,
            routing: settings,
            names,
            unsent: ThinVec::new(),
            private_body: PrivateBody::default(),
            waits: 0,
            is_shifting: false,
            fallbacks: Fallbacks::new(),
            asked_at: None,
            end: None,
            turn: None,
            hold: None,
        };
        let guard = Arc::new_cyclic(|guard| {
            Guard(Arc::new(StreamState {
                id,
                guard: guard.clone(),
                kind,
                unread: Unread::new(peer.connection.clone()),
                peer,
                opened_at: shared.clock.now(),
                waker: AtomicWaker::new(),
                due: AtomicU8::new(due::NEWS),
                answered: AtomicBool::new(false),
                behind: shared.metrics.downstream.behind(),
                inner: Mutex::new(inner),
                watch_order: tokio::sync::Mutex::default(),
                diverts: Mutex::default(),
                tables: tables.clone(),
                shared,
            }))
        });
        tables.streams.add(id, &guard.0);
        Ok(Stream(guard))
    }
}

impl RelayStream for Stream {
    /// Most requests are ACKs, which change no subscription. Only the other requests need a boxed future.
    fn request(&self, request: Request) -> impl Future<Output = Result<(), Status>> + Send {
        let stream = self.state();
        let Ok(watch_order) = stream.watch_order.try_lock() else {
            return Either::Right(stream.request_in_turn(request).boxed());
        };
        match stream.take(request) {
            Ok(None) => Either::Left(ready(Ok(()))),
            Ok(Some(taken)) if taken.outcome.is_settled() => {
                drop(watch_order);
                // Mostly nothing is due. The connection is then not polled again.
                if stream.has_something_to_say_to(&taken.outcome) {
                    stream.wake();
                }
                Either::Left(ready(Ok(())))
            }
            Ok(Some(taken)) => Either::Right(stream.follow_up(taken, watch_order).boxed()),
            Err(status) => Either::Left(ready(Err(status))),
        }
    }

    fn half_close(&self) {
        self.state().end(Status::ok());
    }

    fn fail(&self, status: Status) {
        self.state().end(status);
    }

    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        self.state().poll_message(context)
    }

    async fn poll_once(&self, request: SotwRequest, form: Form, hold: Duration) -> Result<Polled, Status> {
        poll_once(self, request, form, hold).await
    }

    fn has_answered(&self) -> bool {
        self.state().answered.load(Ordering::Relaxed)
    }

    fn has_failed(&self) -> bool {
        lock(&self.state().inner).end.as_ref().is_some_and(|status| status.code != Code::Ok)
    }

    fn unread(&self) -> impl Fn() -> bool + Send + 'static {
        self.state().unread.probe()
    }

    fn node_id(&self) -> Option<String> {
        Some(lock(&self.state().inner).node.as_ref()?.id.clone())
    }
}
