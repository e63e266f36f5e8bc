//! The responses of a stream, pulled by the response body.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::time::sleep_until;
use tracing::{trace, warn};

use crate::driver::api::downstream::Message;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::registry::lock;
use crate::driver::ground::source_key::Owner;
use crate::driver::stream::own_sources::newest;
use crate::driver::stream::state::{Inner, StreamState, due};
use crate::engine::Time;
use crate::engine::downstream::{Answer, RequestOutcome, Subscription};
use crate::telemetry::Limit;
use crate::wire::response;
use crate::xds::{Code, ResourceName, SetMark, Status, TypeUrl};

/// gRPC's default limit for a received message.
pub(crate) const MESSAGE_WARN_BYTES: usize = 4 << 20;

impl StreamState {
    pub(crate) fn poll_message(&self, context: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        // Registered before the look, so no wake is lost in between.
        self.waker.register(context.waker());
        let due = self.due.swap(0, Ordering::AcqRel);
        let inner = &mut *lock(&self.inner);
        // A timer sets no flag.
        if due == 0 && inner.hold.is_none() {
            return Poll::Pending;
        }
        if due & due::NEWS != 0 {
            inner.session.note_news();
        }
        if let Some(status) = &inner.end {
            let end = if status.code == Code::Ok { None } else { Some(Err(Status::clone(status))) };
            return Poll::Ready(end);
        }
        if let Some(turn) = self.turn_of_first_answer(inner) {
            inner.poll_hold(Some(turn), &self.shared, context);
            return Poll::Pending;
        }
        if !self.has_room(inner, context) {
            return Poll::Pending;
        }
        let now = self.shared.clock.now();
        let look_at = self.follow_servers(inner, now);
        let retry_at = self.follow_refusal(inner, now);
        match self.next_message(inner, now, context.waker()) {
            Poll::Pending => {
                // The finished body wakes the stream, and so does an update.
                self.due.fetch_or(due::AGAIN, Ordering::Relaxed);
                Poll::Pending
            }
            Poll::Ready(Some(Err(status))) => Poll::Ready(Some(Err(status))),
            Poll::Ready(Some(Ok((index, message)))) => {
                self.answered.store(true, Ordering::Relaxed);
                let waits = look_at.is_some() || retry_at.is_some() || inner.hold.is_some();
                if waits || !inner.session.is_sated(index) {
                    // Another message may be due.
                    self.due.fetch_or(due::AGAIN, Ordering::Relaxed);
                }
                let since = inner.waiting_since().map(|since| self.shared.clock.instant(since));
                self.behind.since(since);
                Poll::Ready(Some(Ok(message)))
            }
            Poll::Ready(None) => {
                let (must_fail, fail_at) = match self.answered.load(Ordering::Relaxed) {
                    true => (false, None),
                    false => self.must_fail(inner, now),
                };
                if must_fail {
                    return Poll::Ready(Some(Err(self.unavailable())));
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

    /// Whether the client may be sent more. False while `limits.connection_bytes` are unread; reading wakes the
    /// stream.
    fn has_room(&self, inner: &Inner, context: &Context<'_>) -> bool {
        let account = self.peer.connection.account();
        if account.has_room() {
            return true;
        }
        self.due.fetch_or(due::AGAIN, Ordering::Relaxed);
        account.wait(self.id, context.waker());
        self.tell_delay(Limit::ConnectionBytes, inner.node.as_deref());
        // A read before the registration woke nobody.
        if account.has_room() {
            context.waker().wake_by_ref();
        }
        false
    }

    /// Whether the response body must be polled after an ACK.
    pub(crate) fn has_something_to_say_to(&self, outcome: &RequestOutcome) -> bool {
        // News come with a wake of their own.
        let rests = outcome.rests && self.due.load(Ordering::Acquire) == 0;
        !rests && self.has_something_to_say()
    }

    /// Whether the response body must be polled: an answer is due, or a wait needs a timer.
    pub(crate) fn has_something_to_say(&self) -> bool {
        let inner = &mut *lock(&self.inner);
        self.is_answer_due(inner) || inner.session.held_until().is_some()
    }

    fn is_answer_due(&self, inner: &mut Inner) -> bool {
        inner.poll_answer(self.shared.clock.now()).is_some()
    }

    /// The time of the first answer, if in the future. First answers are delayed to spread a storm of
    /// reconnects (RLY-56).
    fn turn_of_first_answer(&self, inner: &mut Inner) -> Option<Time> {
        if self.answered.load(Ordering::Relaxed) || (inner.turn.is_none() && !self.is_answer_due(inner)) {
            return None;
        }
        let now = self.shared.clock.now();
        let turn = *inner.turn.get_or_insert_with(|| {
            let wait = self.shared.first_answer_in(&self.peer.listener, now);
            if !wait.is_zero() {
                self.tell_delay(Limit::FirstAnswersPerSecond, inner.node.as_deref());
            }
            now + wait
        });
        (turn > now).then_some(turn)
    }

    /// The next message, with the index of its subscription.
    fn next_message(
        &self,
        inner: &mut Inner,
        now: Time,
        waker: &Waker,
    ) -> Poll<Option<Result<(usize, Message), Status>>> {
        loop {
            let Some((index, answer)) = inner.poll_answer(now) else {
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
            inner.sources.note_sent(&answer, encoded.messages.len());
            inner.count_passed(self.id, index);
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
            if message.body.len() > MESSAGE_WARN_BYTES {
                let (names, _) = answer.some_names(&encoded.told, 1);
                self.warn_large(&answer, names.first().copied(), message.body.len());
            }
            if let Some((_, types)) = inner.types.iter().find(|(type_url, _)| *type_url == answer.type_url) {
                types.response(self.kind.variant, bytes);
                types.beside(message.beats, &message.errors);
            }
            if self.shared.tails.are_open() {
                self.tell_response(inner, index, &answer, &encoded, (&nonce, bytes), now);
            }
            let delivery = Some(self.unread.hand_out(bytes));
            let message = Message { private, shared: message.body.clone(), delivery };
            return Poll::Ready(Some(Ok((index, message))));
        }
    }

    /// The client lacks these resources (RLY-23).
    fn warn_left_out(&self, type_url: &TypeUrl, count: usize) {
        self.shared.metrics.of_type(type_url).left_out(count);
        if let Some(suppressed) = self.shared.throttle.allow("resources left out") {
            warn!(stream = self.id, %type_url, count, suppressed, "left resources out of an answer: in the \
                state-of-the-world variant they need a wrapper, and the client lacks the feature \
                xds.config.resource-in-sotw");
        }
    }

    /// A full-state set cannot be split, nor can a single resource in any variant, and many clients refuse messages
    /// above gRPC's default limit (SST-12, SST-13, RLY-75). They end the stream, open another, and are sent the same again.
    #[cold]
    pub(crate) fn warn_large(&self, answer: &Answer, name: Option<&ResourceName>, bytes: usize) {
        self.shared.metrics.limit_hit(Limit::FullStateBytes);
        let type_url = &answer.type_url;
        if answer.full {
            if let Some(suppressed) = self.shared.throttle.allow("full state over 4 MiB") {
                warn!(%type_url, bytes, suppressed, "a complete set is larger than 4 MiB, gRPC's default limit, and \
                    cannot be split in the state-of-the-world variant; clients with this limit need delta");
            }
        } else if let Some(suppressed) = self.shared.throttle.allow("resource over 4 MiB") {
            let name: String = name.map_or("", ResourceName::as_str).chars().take(200).collect();
            warn!(%type_url, name, bytes, suppressed, "a resource is larger than 4 MiB, gRPC's default limit for a \
                message; clients with this limit refuse it, end their stream and come again");
        }
    }
}

/// The private part of a message. Hardly any client reads marks.
fn head(nonce: &str, mark: Option<SetMark>, body_len: usize) -> Result<Bytes, Status> {
    match mark {
        None => response::head(nonce, body_len),
        Some(mark) => response::marked_head(nonce, &mark, body_len),
    }
}

impl Inner {
    /// The next answer from the releases that the client may have.
    fn poll_answer(&mut self, now: Time) -> Option<(usize, Answer)> {
        self.restate();
        self.sources.begin_look();
        self.session.poll_answer(&newest(&self.sources), now)
    }

    /// Whether some part of the subscription may not be shared.
    pub(crate) fn is_private(&self, subscription: usize) -> bool {
        let is_private = |id| {
            let source = self.sources.iter().find(|(known, _)| *known == id);
            source.is_some_and(|(_, handle)| handle.key().owner != Owner::Everyone)
        };
        let subscription = self.session.subscriptions().get(subscription);
        subscription
            .is_some_and(|subscription| subscription.parts.iter().any(|part| is_private(part.source())))
    }

    /// The identifiers of the sources of a subscription, mostly a single source.
    pub(crate) fn identifier(&self, subscription: usize) -> String {
        let parts = self.session.subscriptions().get(subscription).map(|subscription| &subscription.parts);
        let mut names: Vec<Arc<str>> = Vec::new();
        for part in parts.into_iter().flatten() {
            let source = self.sources.iter().find(|(id, _)| *id == part.source());
            names.extend(source.map(|(_, handle)| handle.identifier()));
        }
        names.dedup();
        names.join(", ")
    }

    /// Since when the client owes an ACK, or waits for a name (RLY-5).
    pub(crate) fn waiting_since(&self) -> Option<Time> {
        let waits = |subscription: &Subscription| {
            let held = subscription.name_wait.as_ref().map(|wait| wait.since);
            subscription.nonces.waiting_since().into_iter().chain(held).min()
        };
        self.session.subscriptions().iter().filter_map(waits).min()
    }

    fn poll_hold(&mut self, until: Option<Time>, shared: &DriverContext, context: &mut Context<'_>) {
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
