//! One downstream stream: the machine under its lock, and the two sides that use it.

#[cfg(test)]
pub(super) mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use futures_util::task::AtomicWaker;
use std::future::Future;
use std::pin::Pin;
use tokio::time::{Sleep, sleep_until};
use tracing::{debug, trace, warn};

use super::alone::Aside;
use super::aside::{session_at, subscriber_at};
use super::delivery::Unread;
use super::divert::Diverts;
use super::encode::Encoded;
use super::handle::{Charge, Form, Message, Peer, Polled, RelayStream};
use super::limiter::{Admission, Limiter, NAMES_PER_TOKEN};
use super::refused::Refusal;
use super::registry::{Registry, lock};
use super::routes::Routes;
use super::shared::Shared;
use super::source::{Command, Owner, SourceHandle, Subscriber};
use super::sources::Sources;
use super::views::{Fallen, newest};
use crate::engine::Time;
use crate::engine::cache::SessionId;
use crate::engine::downstream::session::Excess;
use crate::engine::downstream::{AnswerKey, Session, SourceId, Subscription, Taken, Verdict, Watch};
use crate::telemetry::Limit;
use crate::telemetry::metrics::{BehindMetrics, TypeMetrics};
use crate::wire::response;
use crate::xds::{Code, Node, Request, SetMark, SotwRequest, Status, StreamKind, TypeUrl};

/// Where a stream finds its sources, and where it is found itself.
#[derive(Clone)]
pub struct Tables {
    pub sources: Arc<Sources>,
    pub streams: Arc<Registry<StreamState>>,
}

/// The handle that the serving room holds. The last clone that goes ends the stream's subscriptions.
#[derive(Clone)]
pub struct Stream(Arc<Guard>);

struct Guard(Arc<StreamState>);

/// A stream as everyone sees it.
pub struct StreamState {
    id: u64,
    /// The handles of the serving room; gone with the last of them.
    guard: Weak<Guard>,
    kind: StreamKind,
    pub(super) peer: Peer,
    pub(super) opened_at: Time,
    pub(super) shared: Arc<Shared>,
    tables: Tables,
    pub(super) waker: AtomicWaker,
    /// Something may be due that was not looked for yet: a call is polled at each request, too, and once more after each message,
    /// and most of those polls have nothing to find.
    is_stirred: AtomicBool,
    pub(super) answered: AtomicBool,
    unread: Unread,
    behind: BehindMetrics,
    pub(super) inner: Mutex<Inner>,
    /// Held from a change of what is wanted until the sources were told of it, so that they hear of changes in order.
    telling: tokio::sync::Mutex<()>,
    pub(super) diverts: Mutex<Diverts>,
}

pub(super) struct Inner {
    pub(super) session: Session,
    pub(super) node: Option<Arc<Node>>,
    pub(super) sources: Vec<(SourceId, Arc<SourceHandle>)>,
    /// There is no room for the class of some of its types.
    pub(super) refusal: Option<Box<Refusal>>,
    types: Vec<(TypeUrl, Arc<TypeMetrics>)>,
    limiter: Limiter,
    /// What the connection is charged for the names of this stream.
    names: Charge,
    /// What is left to send of answers that take several messages.
    pub(super) unsent: Vec<(AnswerKey, Arc<Encoded>)>,
    /// What is made for this stream alone.
    pub(super) aside: Aside<Arc<Encoded>>,
    /// How often in a row a body was waited for.
    pub(super) waits: u8,
    /// A move to other servers is under way.
    pub(super) is_shifting: bool,
    /// Where it is served by another server than the preferred one.
    pub(super) fallen: Fallen,
    /// When the first request came.
    pub(super) asked_at: Option<Time>,
    /// How the stream is to end, once decided.
    pub(super) end: Option<Box<Status>>,
    /// When the first answer may go (RLY-56); drawn when there is one.
    turn: Option<Time>,
    /// Runs while the first answer waits its turn, or the routing types wait for an ACK (ORD-10).
    hold: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(kind: StreamKind, peer: Peer, shared: &Arc<Shared>, tables: &Tables) -> Stream {
        let (shared, id) = (shared.clone(), tables.streams.next_id());
        let settings = &shared.settings;
        let inner = Inner {
            session: Session::new(kind, settings.stream, shared.seed, fastrand::u32(..)),
            node: None,
            sources: Vec::new(),
            refusal: None,
            types: Vec::new(),
            limiter: shared.changes_limiter(),
            names: Charge::new(&peer.connection),
            unsent: Vec::new(),
            aside: Aside::default(),
            waits: 0,
            is_shifting: false,
            fallen: Fallen::new(),
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
                is_stirred: AtomicBool::new(true),
                answered: AtomicBool::new(false),
                behind: shared.metrics.downstream.behind(),
                inner: Mutex::new(inner),
                telling: tokio::sync::Mutex::default(),
                diverts: Mutex::default(),
                tables: tables.clone(),
                shared,
            }))
        });
        tables.streams.add(id, &guard.0);
        Stream(guard)
    }

    pub(super) fn state(&self) -> &Arc<StreamState> {
        &self.0.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let stream = &self.0;
        let sources = std::mem::take(&mut lock(&stream.inner).sources);
        for (id, source) in &sources {
            source.forget(session_at(stream.id(), *id));
            stream.tables.sources.release(source, stream.holder());
        }
        stream.peer.connection.account().forget(stream.id);
        stream.tables.streams.forget(stream.id);
        debug!(stream = stream.id, "stream ends");
    }
}

impl RelayStream for Stream {
    /// Most requests are ACKs, which nobody has to be told of; so only the others have a future of some size, for as long as
    /// they take.
    fn request(&self, request: Request) -> impl Future<Output = Result<(), Status>> + Send {
        let stream = self.state();
        let Ok(telling) = stream.telling.try_lock() else {
            return Either::Right(stream.request_in_turn(request).boxed());
        };
        match stream.take(&request) {
            Ok(taken) if taken.is_settled() => {
                drop(telling);
                // Mostly nothing is left to say: that costs the connection no turn.
                if stream.has_something_to_say() {
                    stream.wake();
                }
                Either::Left(ready(Ok(())))
            }
            Ok(taken) => {
                let names = request.names_len();
                Either::Right(stream.follow_up(taken, names, telling).boxed())
            }
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
        super::poll::poll_once(self, request, form, hold).await
    }

    fn has_answered(&self) -> bool {
        self.state().answered.load(Ordering::Relaxed)
    }
}

impl Subscriber for StreamState {
    fn id(&self) -> SessionId {
        SessionId(self.id)
    }

    fn wake(&self) {
        self.is_stirred.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn end(&self, status: Status) {
        lock(&self.inner).end.get_or_insert_with(|| Box::new(status));
        self.wake();
    }

    fn node(&self) -> Option<Arc<Node>> {
        lock(&self.inner).node.clone()
    }

    fn divert(self: Arc<Self>, type_url: TypeUrl) {
        self.divert_soon(type_url);
    }

    fn displaced(self: Arc<Self>, source: SourceId) {
        self.look_for_room(source);
    }
}

impl StreamState {
    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    pub(super) fn number(&self) -> u64 {
        self.id
    }

    /// A handle as those of the serving room, if any of these is left.
    pub(super) fn hold_open(&self) -> Option<Stream> {
        self.guard.upgrade().map(Stream)
    }

    /// Held from a change of what is wanted until the sources were told of it.
    pub(super) async fn tell_in_order(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.telling.lock().await
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// For how long the client has taken nothing of what it was sent; `None` if it has all of it.
    pub(super) fn unread_for(&self) -> Option<Duration> {
        self.unread.age()
    }

    /// Reads the node, the subscriptions and their sources under the lock, for a moment.
    pub(super) fn look<T>(
        &self,
        look: impl FnOnce(Option<&Node>, &Session, &[(SourceId, Arc<SourceHandle>)]) -> T,
    ) -> T {
        let inner = lock(&self.inner);
        look(inner.node.as_deref(), &inner.session, &inner.sources)
    }

    // === requests ===

    async fn request_in_turn(self: &Arc<Self>, request: Request) -> Result<(), Status> {
        let telling = self.telling.lock().await;
        let taken = self.take(&request)?;
        let names = request.names_len();
        drop(request);
        self.follow_up(taken, names, telling).await
    }

    /// Does what a request leaves to be done.
    async fn follow_up(
        self: &Arc<Self>,
        taken: Taken,
        names: usize,
        telling: tokio::sync::MutexGuard<'_, ()>,
    ) -> Result<(), Status> {
        let wakes = !taken.watches.is_empty() || self.has_something_to_say();
        if taken.counts_as_change() {
            self.throttle(names).await?;
        }
        self.tell(taken.watches).await;
        drop(telling);
        if wakes {
            self.wake();
        }
        Ok(())
    }

    fn take(&self, request: &Request) -> Result<Taken, Status> {
        let now = self.shared.clock.now();
        let inner = &mut *lock(&self.inner);
        trace!(stream = self.id, ?request, "request");
        inner.asked_at.get_or_insert(now);
        let rerouted = inner.take_node(request, self);
        let mut routes = Routes {
            stream: self,
            node: inner.node.as_deref(),
            sources: &mut inner.sources,
            refusal: Some(&mut inner.refusal),
        };
        let taken = inner.session.request(request, &mut routes, now);
        match inner.session.excess() {
            Some(Excess::Names) => self.shared.metrics.limit_hit(Limit::NamesPerStream),
            Some(Excess::Types) => self.shared.metrics.limit_hit(Limit::TypesPerStream),
            None => {}
        }
        let mut taken = taken?;
        if taken.changed {
            let charged = inner.names.set(inner.session.names_bytes());
            charged.inspect_err(|_| self.shared.metrics.limit_hit(Limit::ConnectionBytes))?;
        }
        if rerouted {
            taken.watches.extend(inner.session.reroute(&mut routes)?);
        }
        // Nothing is kept of a report: no limit says of how many types there are some.
        let types = match taken.is_report {
            true => self.shared.metrics.of_type(&taken.type_url),
            false => inner.metrics_of(&taken.type_url, &self.shared),
        };
        types.request();
        if taken.is_report {
            types.report();
        }
        self.note_verdict(&taken, &types, inner.node.as_deref());
        self.note_refusal(&taken, inner.node.as_deref());
        self.behind.since(inner.waiting_since().map(|since| self.shared.clock.instant(since)));
        Ok(taken)
    }

    fn note_verdict(&self, taken: &Taken, types: &TypeMetrics, node: Option<&Node>) {
        match &taken.verdict {
            Verdict::Ack { latency } => {
                types.ack();
                if let Some(latency) = latency {
                    types.delivered(*latency);
                }
            }
            Verdict::Nack { status, version, repeated } => {
                types.nack();
                if !repeated && let Some(suppressed) = self.shared.throttle.allow("nack") {
                    let node_id = node.map_or("", |node| node.id.as_str());
                    warn!(node = node_id, stream = self.id, type_url = %taken.type_url, %version, error = %status,
                        suppressed, "a client rejected an update; it keeps what it had (NACK)");
                }
            }
            Verdict::Stale | Verdict::None => {}
        }
    }

    /// A name that nobody can serve is the client's fault, and hurts nothing else; its people should hear of it (NAM-5).
    fn note_refusal(&self, taken: &Taken, node: Option<&Node>) {
        if let Some((name, reason)) = &taken.refused
            && let Some(suppressed) = self.shared.throttle.allow("refused name")
        {
            let node_id = node.map_or("", |node| node.id.as_str());
            let name: String = name.as_str().chars().take(200).collect();
            warn!(node = node_id, stream = self.id, type_url = %taken.type_url, name, %reason, suppressed,
                "a client asked for a name that cannot be served; it is told that it does not exist");
        }
    }

    /// Slows a stream down that changes its subscriptions, or rejects, too often (FD4).
    async fn throttle(&self, names: usize) -> Result<(), Status> {
        let admission = lock(&self.inner).limiter.admit(names, self.shared.clock.now());
        self.slow_down(admission, "on this stream").await
    }

    /// Polls of one connection have one rate, since each is a stream of its own.
    pub(super) async fn throttle_poll(&self, names: usize) -> Result<(), Status> {
        let rate = || self.shared.changes_limiter();
        let account = self.peer.connection.account();
        let admission = account.admit_poll(names, self.shared.clock.now(), rate);
        self.slow_down(admission, "or polls on this connection").await
    }

    async fn slow_down(&self, admission: Admission, place: &str) -> Result<(), Status> {
        match admission {
            Admission::Now => Ok(()),
            Admission::After(wait) => {
                self.shared.metrics.limit_hit(Limit::ChangesPerSecond);
                tokio::time::sleep(wait.min(LONGEST_PAUSE)).await;
                Ok(())
            }
            Admission::Refused => {
                let rate = self.shared.settings.changes_per_second;
                let text = format!(
                    "more than {rate} changes of subscription or NACKs a second {place}, which is \
                     limits.changes_per_second; {NAMES_PER_TOKEN} names count as one"
                );
                Err(Status::new(Code::ResourceExhausted, text))
            }
        }
    }

    fn command(self: &Arc<Self>, watch: Watch) -> (Option<Arc<SourceHandle>>, Command) {
        let (source, command) = match watch {
            Watch::Watch { source, type_url, interest } => {
                (source, Command::Watch { stream: subscriber_at(self, source), type_url, interest })
            }
            Watch::Unwatch { source, type_url, collection } => {
                (source, Command::Unwatch { session: session_at(self.id(), source), type_url, collection })
            }
        };
        let inner = lock(&self.inner);
        let handle = inner.sources.iter().find(|(id, _)| *id == source).map(|(_, handle)| handle.clone());
        (handle, command)
    }

    /// Tells the sources what is wanted of them now.
    pub(super) async fn tell(self: &Arc<Self>, watches: Vec<Watch>) {
        if watches.is_empty() {
            return;
        }
        self.pass_on(watches).await;
        self.leave_unused(SourceHandle::forget);
    }

    /// As [`Self::tell`], after a move to other servers: with its last stream, what a lower server was asked for ends at once
    /// (RLY-60).
    pub(super) async fn tell_and_leave(self: &Arc<Self>, watches: Vec<Watch>) {
        self.pass_on(watches).await;
        self.leave_unused(SourceHandle::dismiss);
    }

    async fn pass_on(self: &Arc<Self>, watches: Vec<Watch>) {
        for watch in watches {
            let (source, command) = self.command(watch);
            if let Some(source) = source {
                source.send(command).await;
            }
        }
    }

    /// Says farewell to sources that no part comes from any more, once they were told of it.
    fn leave_unused(&self, farewell: impl Fn(&SourceHandle, SessionId)) {
        let inner = &mut *lock(&self.inner);
        let Inner { session, sources, .. } = inner;
        sources.retain(|(id, source)| {
            let used = session.uses(*id);
            if !used {
                farewell(source, session_at(self.id(), *id));
                self.tables.sources.release(source, self.holder());
            }
            used
        });
    }

    // === responses ===

    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        // Registered before looking, so that no wake is lost in between.
        self.waker.register(context.waker());
        let is_stirred = self.is_stirred.swap(false, Ordering::AcqRel);
        let inner = &mut *lock(&self.inner);
        // A moment that was waited for comes without a wake.
        if !is_stirred && inner.hold.is_none() {
            return Poll::Pending;
        }
        if let Some(status) = &inner.end {
            let end = if status.code == Code::Ok { None } else { Some(Err(Status::clone(status))) };
            return Poll::Ready(end);
        }
        if let Some(turn) = self.turn_of_first_answer(inner) {
            inner.poll_hold(Some(turn), &self.shared, context);
            return Poll::Pending;
        }
        if !self.has_room(context) {
            return Poll::Pending;
        }
        let now = self.shared.clock.now();
        let look_at = self.follow_servers(inner, now);
        let retry_at = self.follow_refusal(inner, now);
        match self.next_message(inner, now, context.waker()) {
            Poll::Pending => {
                // It is woken when the body is made; an update does so too.
                self.is_stirred.store(true, Ordering::Relaxed);
                Poll::Pending
            }
            Poll::Ready(Some(message)) => {
                self.answered.store(true, Ordering::Relaxed);
                // There may be another one.
                self.is_stirred.store(true, Ordering::Relaxed);
                let since = inner.waiting_since().map(|since| self.shared.clock.instant(since));
                self.behind.since(since);
                Poll::Ready(Some(message))
            }
            Poll::Ready(None) => {
                let (forsaken, fail_at) = match self.answered.load(Ordering::Relaxed) {
                    true => (false, None),
                    false => self.is_forsaken(inner, now),
                };
                if forsaken {
                    return Poll::Ready(Some(Err(self.forsaken())));
                }
                let tell_at = self.note_holds(inner, now);
                let since = inner.waiting_since().map(|since| self.shared.clock.instant(since));
                self.behind.since(since);
                let until = [inner.session.held_until(), look_at, fail_at, tell_at, retry_at]
                    .into_iter()
                    .flatten()
                    .min();
                inner.poll_hold(until, &self.shared, context);
                Poll::Pending
            }
        }
    }

    /// Whether the client may be sent more. It has left `limits.connection_bytes` unread otherwise; what it reads wakes it.
    fn has_room(&self, context: &Context<'_>) -> bool {
        let account = self.peer.connection.account();
        if account.has_room() {
            return true;
        }
        self.is_stirred.store(true, Ordering::Relaxed);
        account.wait(self.id, context.waker());
        self.shared.metrics.limit_hit(Limit::ConnectionBytes);
        // What was read meanwhile woke nobody.
        if account.has_room() {
            context.waker().wake_by_ref();
        }
        false
    }

    /// Whether the body has a reason to be polled: an answer is due, or the wait for one is to be timed.
    pub(super) fn has_something_to_say(&self) -> bool {
        let inner = &mut *lock(&self.inner);
        self.is_answer_due(inner) || inner.session.held_until().is_some()
    }

    fn is_answer_due(&self, inner: &mut Inner) -> bool {
        let Inner { session, sources, .. } = inner;
        let latest =
            |id: SourceId| sources.iter().find(|(own, _)| *own == id).map(|(_, handle)| handle.snapshot());
        session.poll_answer(&latest, self.shared.clock.now()).is_some()
    }

    /// Until when the first answer has to wait, so that a storm of reconnects is spread (RLY-56).
    fn turn_of_first_answer(&self, inner: &mut Inner) -> Option<Time> {
        if self.answered.load(Ordering::Relaxed) || (inner.turn.is_none() && !self.is_answer_due(inner)) {
            return None;
        }
        let now = self.shared.clock.now();
        let turn = *inner.turn.get_or_insert_with(|| {
            let wait = self.shared.first_answer_in(&self.peer.listener, now);
            if !wait.is_zero() {
                self.shared.metrics.limit_hit(Limit::FirstAnswersPerSecond);
            }
            now + wait
        });
        (turn > now).then_some(turn)
    }

    fn next_message(
        &self,
        inner: &mut Inner,
        now: Time,
        waker: &Waker,
    ) -> Poll<Option<Result<Message, Status>>> {
        loop {
            let Some((index, answer)) = inner.session.poll_answer(&newest(&inner.sources), now) else {
                return Poll::Ready(None);
            };
            let Some(encoded) = std::task::ready!(self.encoded(inner, index, &answer, waker)) else {
                continue;
            };
            let message = encoded.messages.get(answer.chunk);
            let version = message.map(|message| message.version).unwrap_or_default();
            let nonce = inner.session.commit(
                index,
                &answer,
                encoded.messages.len(),
                version,
                &encoded.endpoints,
                &encoded.targets,
                &encoded.told,
                now,
            );
            inner.keep_unsent(&answer, &encoded);
            if encoded.left_out > 0 && answer.chunk == 0 {
                self.warn_left_out(&answer.type_url, encoded.left_out);
            }
            let (Some(message), Some(nonce)) = (message, nonce) else { continue };
            let nonce = inner.session.nonce_text(nonce);
            let mark = inner.session.mark(index, &answer, encoded.messages.len());
            let private = match head(&nonce, mark, message.body.len()) {
                Ok(head) => head,
                Err(status) => return Poll::Ready(Some(Err(status))),
            };
            trace!(stream = self.id, type_url = %answer.type_url, nonce, version = %version, "response");
            let bytes = private.len() + message.body.len();
            if answer.full && message.body.len() > FULL_STATE_WARN_BYTES {
                self.warn_large(&answer.type_url, message.body.len());
            }
            if let Some((_, types)) = inner.types.iter().find(|(type_url, _)| *type_url == answer.type_url) {
                types.response(self.kind.variant, bytes);
                types.beside(message.beats, &message.errors);
            }
            let delivery = Some(self.unread.hand_out(bytes));
            return Poll::Ready(Some(Ok(Message { private, shared: message.body.clone(), delivery })));
        }
    }

    /// What the client cannot be sent is missing for it (RLY-23).
    fn warn_left_out(&self, type_url: &TypeUrl, count: usize) {
        self.shared.metrics.of_type(type_url).left_out(count);
        if let Some(suppressed) = self.shared.throttle.allow("resources left out") {
            warn!(stream = self.id, %type_url, count, suppressed, "resources were left out of an answer: in the \
                state-of-the-world variant they need a wrapper, for which the client lacks the feature \
                xds.config.resource-in-sotw");
        }
    }

    /// A full-state set cannot be split, and many clients refuse more than gRPC's default limit (SST-12, RLY-75).
    fn warn_large(&self, type_url: &TypeUrl, bytes: usize) {
        self.shared.metrics.limit_hit(Limit::FullStateBytes);
        if let Some(suppressed) = self.shared.throttle.allow("full state over 4 MiB") {
            warn!(%type_url, bytes, suppressed, "a complete set is larger than 4 MiB, gRPC's default limit, and may not \
                be split in the state-of-the-world variant: clients with that limit cannot take it; delta can");
        }
    }
}

/// The private part of a message. Nearly no client reads marks.
fn head(nonce: &str, mark: Option<SetMark>, body_len: usize) -> Result<Bytes, Status> {
    match mark {
        None => response::head(nonce, body_len),
        Some(mark) => response::marked_head(nonce, &mark, body_len),
    }
}

/// A client that is slowed down waits this long at the most, so that it is not taken for one that hangs.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A stream that waited so often for a body, and was overtaken by a newer state each time, makes the next one itself: it would never
/// be served otherwise while updates come faster than they are encoded.
pub(super) const WAITS_MAX: u8 = 3;

/// gRPC's default limit of a received message.
const FULL_STATE_WARN_BYTES: usize = 4 << 20;

impl Inner {
    /// The node of the first message stands; of later ones only the dynamic parameters count (STR-2, STR-3). Gives
    /// whether what the client may share has changed (RLY-16).
    fn take_node(&mut self, request: &Request, stream: &StreamState) -> bool {
        let node = match request {
            Request::Sotw(request) => &request.node,
            Request::Delta(request) => &request.node,
        };
        let Some(node) = node else { return false };
        let Some(known) = &mut self.node else {
            debug!(
                stream = stream.id,
                node = node.id,
                cluster = node.cluster,
                peer = stream.peer.address.map(tracing::field::display),
                "stream begins"
            );
            self.node = Some(Arc::new((**node).clone()));
            return false;
        };
        if known.id != node.id && stream.shared.throttle.allow("node changed").is_some() {
            debug!(
                stream = stream.id,
                node = known.id,
                other = node.id,
                "a later request names another node; the first stands"
            );
        }
        if known.dynamic_parameters == node.dynamic_parameters {
            return false;
        }
        Arc::make_mut(known).dynamic_parameters.clone_from(&node.dynamic_parameters);
        true
    }

    fn metrics_of(&mut self, type_url: &TypeUrl, shared: &Shared) -> Arc<TypeMetrics> {
        if let Some((_, metrics)) = self.types.iter().find(|(known, _)| known == type_url) {
            return metrics.clone();
        }
        let metrics = shared.metrics.of_type(type_url);
        self.types.reserve_exact(1);
        self.types.push((type_url.clone(), metrics.clone()));
        metrics
    }

    /// Some of it may not be shared.
    pub(super) fn is_private(&self, subscription: usize) -> bool {
        let is_private = |id| {
            let source = self.sources.iter().find(|(known, _)| *known == id);
            source.is_some_and(|(_, handle)| handle.key().owner != Owner::Everyone)
        };
        let subscription = self.session.subscriptions().get(subscription);
        subscription
            .is_some_and(|subscription| subscription.parts.iter().any(|part| is_private(part.source())))
    }

    /// Who answers for this subscription: one of its parts decides it mostly, since mostly it has one.
    pub(super) fn identifier(&self, subscription: usize) -> String {
        let parts = self.session.subscriptions().get(subscription).map(|subscription| &subscription.parts);
        let mut names: Vec<&str> = Vec::new();
        for part in parts.into_iter().flatten() {
            let source = self.sources.iter().find(|(id, _)| *id == part.source());
            names.extend(source.map(|(_, handle)| handle.identifier()));
        }
        names.dedup();
        names.join(", ")
    }

    /// Since when the client has not ACKed news, or is kept waiting for a name (RLY-5).
    fn waiting_since(&self) -> Option<Time> {
        let waits = |subscription: &Subscription| {
            let held = subscription.hold.as_ref().map(|hold| hold.since);
            subscription.flight.waiting_since().into_iter().chain(held).min()
        };
        self.session.subscriptions().iter().filter_map(waits).min()
    }

    fn poll_hold(&mut self, until: Option<Time>, shared: &Shared, context: &mut Context<'_>) {
        let Some(until) = until else {
            self.hold = None;
            return;
        };
        let mut hold = Box::pin(sleep_until(shared.clock.instant(until)));
        if hold.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
        self.hold = Some(hold);
    }
}
