//! One downstream stream: the machine under its lock, and the two sides that use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use std::future::Future;
use std::pin::Pin;
use tokio::time::{Sleep, sleep_until};
use tracing::{debug, trace, warn};

use super::handle::{Message, Peer, RelayStream, Variant};
use super::hub::{Shared, lock};
use super::limiter::{Admission, Limiter};
use super::source::{Command, SourceHandle};
use crate::engine::Time;
use crate::engine::cache::SessionId;
use crate::engine::class::NameStyle;
use crate::engine::downstream::session::{Excess, Router};
use crate::engine::downstream::{Dialect, Session, SourceId, Subscription, Taken, Verdict, Watch};
use crate::telemetry::Limit;
use crate::telemetry::metrics::{BehindMetrics, TypeMetrics};
use crate::wire::response;
use crate::xds::{Code, Node, Request, Status, TypeUrl};

/// The handle that the serving room holds. The last clone that goes ends the stream's subscriptions.
#[derive(Clone)]
pub struct Stream(Arc<Guard>);

struct Guard(Arc<StreamState>);

/// A stream as everyone sees it.
pub struct StreamState {
    id: u64,
    variant: Variant,
    pub(super) peer: Peer,
    pub(super) opened_at: Time,
    shared: Arc<Shared>,
    waker: AtomicWaker,
    answered: AtomicBool,
    behind: BehindMetrics,
    inner: Mutex<Inner>,
}

struct Inner {
    session: Session,
    node: Option<Arc<Node>>,
    sources: Vec<(SourceId, Arc<SourceHandle>)>,
    types: Vec<(TypeUrl, Arc<TypeMetrics>)>,
    limiter: Limiter,
    /// How the stream is to end, once decided.
    end: Option<Status>,
    /// When the first answer may go (RLY-56); drawn when there is one.
    turn: Option<Time>,
    /// Runs while the first answer waits its turn, or the routing types wait for an ACK (ORD-10).
    hold: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(id: u64, variant: Variant, peer: Peer, shared: Arc<Shared>) -> Stream {
        let settings = &shared.settings;
        let inner = Inner {
            session: Session::new(variant, settings.stream, shared.seed, fastrand::u32(..)),
            node: None,
            sources: Vec::new(),
            types: Vec::new(),
            limiter: Limiter::new(settings.changes_per_second, settings.changes_burst),
            end: None,
            turn: None,
            hold: None,
        };
        Stream(Arc::new(Guard(Arc::new(StreamState {
            id,
            variant,
            peer,
            opened_at: shared.clock.now(),
            waker: AtomicWaker::new(),
            answered: AtomicBool::new(false),
            behind: shared.metrics.downstream.behind(),
            inner: Mutex::new(inner),
            shared,
        }))))
    }

    pub(super) fn state(&self) -> &Arc<StreamState> {
        &self.0.0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let stream = &self.0;
        let sources = std::mem::take(&mut lock(&stream.inner).sources);
        for (_, source) in &sources {
            source.forget(stream.id());
        }
        stream.shared.forget_stream(stream.id);
        debug!(stream = stream.id, "stream ends");
    }
}

impl RelayStream for Stream {
    async fn request(&self, request: Request) -> Result<(), Status> {
        let stream = self.state();
        let taken = stream.take(&request)?;
        let wakes = !taken.watches.is_empty() || stream.has_something_to_say();
        if taken.changed || matches!(taken.verdict, Verdict::Nack { .. }) {
            stream.throttle().await?;
        }
        for watch in taken.watches {
            let (source, command) = stream.command(watch);
            if let Some(source) = source {
                source.send(command).await;
            }
        }
        // Most requests are ACKs after which nothing is left to say: they cost the connection no turn.
        if wakes {
            stream.wake();
        }
        Ok(())
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

    fn has_answered(&self) -> bool {
        self.state().answered.load(Ordering::Relaxed)
    }
}

impl StreamState {
    pub fn id(&self) -> SessionId {
        SessionId(self.id)
    }

    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// There may be news.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Ends the stream; the first reason given stands.
    pub fn end(&self, status: Status) {
        lock(&self.inner).end.get_or_insert(status);
        self.wake();
    }

    /// Reads the node and the subscriptions under the lock, for a moment.
    pub(super) fn look<T>(&self, look: impl FnOnce(Option<&Node>, &Session) -> T) -> T {
        let inner = lock(&self.inner);
        look(inner.node.as_deref(), &inner.session)
    }

    // === requests ===

    fn take(&self, request: &Request) -> Result<Taken, Status> {
        let now = self.shared.clock.now();
        let inner = &mut *lock(&self.inner);
        trace!(stream = self.id, ?request, "request");
        let rerouted = inner.take_node(request, self);
        let (shared, node, variant) = (&self.shared, inner.node.as_deref(), self.variant);
        let mut routes = Routes { shared, node, variant, sources: &mut inner.sources };
        let taken = inner.session.request(request, &mut routes, now);
        match inner.session.excess() {
            Some(Excess::Names) => self.shared.metrics.limit_hit(Limit::NamesPerStream),
            Some(Excess::Types) => self.shared.metrics.limit_hit(Limit::TypesPerStream),
            None => {}
        }
        let mut taken = taken?;
        if rerouted {
            taken.watches.extend(inner.session.reroute(&mut routes)?);
        }
        let types = inner.metrics_of(&taken.type_url, &self.shared);
        types.request();
        self.note_verdict(&taken, &types, inner.node.as_deref());
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

    /// Slows a stream down that changes its subscriptions, or rejects, too often (FD4).
    async fn throttle(&self) -> Result<(), Status> {
        let admission = lock(&self.inner).limiter.admit(self.shared.clock.now());
        match admission {
            Admission::Now => Ok(()),
            Admission::After(wait) => {
                self.shared.metrics.limit_hit(Limit::ChangesPerSecond);
                tokio::time::sleep(wait.min(Duration::from_secs(5))).await;
                Ok(())
            }
            Admission::Refused => {
                let rate = self.shared.settings.changes_per_second;
                let text =
                    format!("more than {rate} changes of subscription or NACKs a second on this stream");
                Err(Status::new(Code::ResourceExhausted, text))
            }
        }
    }

    fn command(self: &Arc<Self>, watch: Watch) -> (Option<Arc<SourceHandle>>, Command) {
        let (source, command) = match watch {
            Watch::Watch { source, type_url, interest } => {
                (source, Command::Watch { stream: self.clone(), type_url, interest })
            }
            Watch::Unwatch { source, type_url, collection } => {
                (source, Command::Unwatch { session: self.id(), type_url, collection })
            }
        };
        let inner = lock(&self.inner);
        let handle = inner.sources.iter().find(|(id, _)| *id == source).map(|(_, handle)| handle.clone());
        (handle, command)
    }

    // === responses ===

    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        // Registered before looking, so that no wake is lost in between.
        self.waker.register(context.waker());
        let inner = &mut *lock(&self.inner);
        if let Some(status) = &inner.end {
            let end = if status.code == Code::Ok { None } else { Some(Err(status.clone())) };
            return Poll::Ready(end);
        }
        if let Some(turn) = self.turn_of_first_answer(inner) {
            inner.poll_hold(Some(turn), &self.shared, context);
            return Poll::Pending;
        }
        let message = self.next_message(inner);
        match message {
            Some(message) => {
                self.answered.store(true, Ordering::Relaxed);
                let since = inner.waiting_since().map(|since| self.shared.clock.instant(since));
                self.behind.since(since);
                Poll::Ready(Some(message))
            }
            None => {
                let until = inner.session.held_until();
                inner.poll_hold(until, &self.shared, context);
                Poll::Pending
            }
        }
    }

    /// Whether the body has a reason to be polled: an answer is due, or the wait for one is to be timed.
    fn has_something_to_say(&self) -> bool {
        self.is_answer_due(&mut lock(&self.inner))
    }

    fn is_answer_due(&self, inner: &mut Inner) -> bool {
        let Inner { session, sources, .. } = inner;
        let latest =
            |id: SourceId| sources.iter().find(|(own, _)| *own == id).map(|(_, handle)| handle.snapshot());
        session.poll_answer(&latest, self.shared.clock.now()).is_some() || session.held_until().is_some()
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

    fn next_message(&self, inner: &mut Inner) -> Option<Result<Message, Status>> {
        let now = self.shared.clock.now();
        let sources = &inner.sources;
        let latest =
            |id: SourceId| sources.iter().find(|(own, _)| *own == id).map(|(_, handle)| handle.snapshot());
        loop {
            let (index, answer) = inner.session.poll_answer(&latest, now)?;
            let encoded = self.shared.encoder.encode(&answer);
            let message = encoded.messages.get(answer.chunk);
            let version = message.map(|message| message.version).unwrap_or_default();
            let nonce = inner.session.commit(
                index,
                &answer,
                encoded.messages.len(),
                version,
                &encoded.endpoints,
                now,
            );
            if encoded.left_out > 0 && answer.chunk == 0 {
                self.warn_left_out(&answer.type_url, encoded.left_out);
            }
            let (Some(message), Some(nonce)) = (message, nonce) else { continue };
            let nonce = inner.session.nonce_text(nonce);
            let private = match response::head(&nonce, message.body.len()) {
                Ok(head) => head,
                Err(status) => return Some(Err(status)),
            };
            trace!(stream = self.id, type_url = %answer.type_url, nonce, version = %version, "response");
            let bytes = private.len() + message.body.len();
            if answer.full && message.body.len() > FULL_STATE_WARN_BYTES {
                self.warn_large(&answer.type_url, message.body.len());
            }
            if let Some((_, types)) = inner.types.iter().find(|(type_url, _)| *type_url == answer.type_url) {
                types.response(self.variant, bytes);
                types.beside(message.beats, &message.errors);
            }
            return Some(Ok(Message { private, shared: message.body.clone() }));
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
            debug!(stream = stream.id, node = node.id, cluster = node.cluster, peer = ?stream.peer.address, "stream begins");
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

    fn waiting_since(&self) -> Option<Time> {
        self.session.subscriptions().iter().filter_map(|s: &Subscription| s.flight.waiting_since()).min()
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

/// Finds the source of each part of a subscription.
struct Routes<'a> {
    shared: &'a Arc<Shared>,
    node: Option<&'a Node>,
    variant: Variant,
    sources: &'a mut Vec<(SourceId, Arc<SourceHandle>)>,
}

impl Router for Routes<'_> {
    fn source(&mut self, type_url: &TypeUrl, style: NameStyle) -> Result<SourceId, Status> {
        let class = self.shared.classify(self.node, type_url, style)?;
        let handle = self.shared.source(class)?;
        let id = handle.id();
        if !self.sources.iter().any(|(known, _)| *known == id) {
            self.sources.reserve_exact(1);
            self.sources.push((id, handle));
        }
        Ok(id)
    }

    fn dialect(&self, type_url: &TypeUrl) -> Dialect {
        self.shared.dialect(self.node, self.variant, type_url)
    }

    fn legacy_wildcard(&self, type_url: &TypeUrl) -> Result<bool, Status> {
        Ok(self.shared.classify(self.node, type_url, NameStyle::Old)?.legacy_wildcard)
    }
}
