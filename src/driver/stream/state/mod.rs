//! A downstream stream: the handle of the serving room, the lock around the machine, and the tasks of the
//! stream.
//!
//! Each change of subscriptions goes the same way: [`StreamInner`] decides under the lock, and then the
//! watches are sent to the sources, while `watch_order` keeps later changes back.

mod in_turn;
#[cfg(test)]
pub(crate) mod tests;

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, ready};
use parking_lot::Mutex;
use tokio::sync::MutexGuard;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::driver::api::downstream::{Charge, Codec, Message, Peer, Polled, RelayStream};
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::plans::PlanHandle;
use crate::driver::ground::rate::{NAMES_PER_TOKEN, RateDecision};
use crate::driver::ground::registry::NumberedRegistry;
use crate::driver::ground::unread::Unread;
use crate::driver::source::handle::{Command, SourceHandle, Subscriber};
use crate::driver::source::table::Sources;
use crate::driver::stream::context::StreamContext;
use crate::driver::stream::delayed::LONGEST_PAUSE;
use crate::driver::stream::destination::PartDestination;
use crate::driver::stream::inner::{STREAM_BYTES, StreamInner, is_final};
use crate::driver::stream::own_sources::{OwnSources, newest};
use crate::driver::stream::poll::{SinglePoll, must_want_something, over_budget, request_bytes};
use crate::driver::stream::private_part::{private_source, session_at};
use crate::driver::stream::refused_types::RETRY;
use crate::driver::stream::schedule::PollSignal;
use crate::driver::stream::state::in_turn::take_in_turn;
use crate::driver::stream::{last_word, tail};
use crate::telemetry::Limit;
use crate::telemetry::metrics::{Behind, BehindMetrics};
use sluice_engine::Time;
use sluice_engine::cache::SessionId;
use sluice_engine::downstream::{Answer, Portion, RequestOutcome, Session, SourceId, Unsettled, Watch};
use sluice_setting::Epoch;
use sluice_xds::{Code, Node, RelayPath, Request, SotwRequest, Status, StreamKind, TypeUrl};

/// The time between two checks for clients that have stopped reading.
const READERS_CHECKED_EVERY: Duration = Duration::from_secs(5);

/// A client that takes no message for this time has stopped reading. A shorter time would make slow clients
/// begin anew at each update of a set of 3 MiB.
const STALLED_AFTER: Duration = Duration::from_secs(15);

/// The tables of all sources and of all streams.
#[derive(Clone)]
pub struct Tables {
    pub sources: Arc<Sources>,
    pub streams: Arc<NumberedRegistry<StreamState>>,
}

/// The serving room's handle. Dropping the last clone ends the stream's subscriptions.
pub struct Stream(Arc<StreamState>);

/// The shared state of a stream. All that each update reads stands together in memory: at the end of `inner`,
/// then up to the beginning of `context`. With thousands of clients, an update finds each line outside the
/// caches.
#[repr(C)]
pub struct StreamState {
    pub(crate) inner: Mutex<StreamInner>,
    pub(crate) signal: PollSignal,
    pub(crate) answered: AtomicBool,
    pub(crate) unread: Unread,
    behind: BehindMetrics,
    /// Held from a change of subscriptions until all sources are told, so that all sources see the changes in
    /// order.
    watch_order: tokio::sync::Mutex<()>,
    pub(crate) context: StreamContext,
    /// The handles of the serving room. The stream ends with the last, and none comes after it.
    handles: AtomicUsize,
}

impl Stream {
    pub(crate) fn new(
        kind: StreamKind,
        peer: Arc<Peer>,
        shared: &Arc<DriverContext>,
        tables: &Tables,
    ) -> Result<Stream, Status> {
        let mut names = Charge::new(&peer.connection);
        names.set(STREAM_BYTES).inspect_err(|_| shared.metrics.limit_hit(Limit::ConnectionBytes))?;
        let context = StreamContext {
            id: tables.streams.next_id(),
            kind,
            peer,
            opened_at: shared.clock.now(),
            shared: shared.clone(),
            sources: tables.sources.clone(),
            streams: tables.streams.clone(),
        };
        let id = context.id;
        let inner = StreamInner::new(&context, shared.epoch(), names);
        let state = Arc::new_cyclic(|state: &Weak<StreamState>| StreamState {
            handles: AtomicUsize::new(1),
            signal: PollSignal::new(),
            answered: AtomicBool::new(false),
            unread: Unread::new(context.peer.connection.clone()),
            behind: shared.metrics.downstream.behind(state.clone()),
            inner: Mutex::new(inner),
            watch_order: tokio::sync::Mutex::default(),
            context,
        });
        tables.streams.add(id, &state);
        Ok(Stream(state))
    }

    pub(crate) fn state(&self) -> &Arc<StreamState> {
        &self.0
    }
}

impl Clone for Stream {
    fn clone(&self) -> Stream {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Stream(self.0.clone())
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
            Ok(Some(outcome)) if outcome.is_settled() => {
                drop(watch_order);
                // Mostly nothing is due. The connection is then not polled again.
                if stream.has_something_to_say_to(&outcome) {
                    stream.wake();
                }
                Either::Left(ready(Ok(())))
            }
            Ok(Some(outcome)) => Either::Right(stream.follow_up(outcome, watch_order).boxed()),
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

    async fn poll_once(&self, request: SotwRequest, form: Codec, hold: Duration) -> Result<Polled, Status> {
        let stream = self.state();
        // A poll ends soon, and must not keep a draining connection open.
        stream.answered.store(true, Ordering::Relaxed);
        let context = &stream.context;
        // The poll's own connection pays for the poll, also during the wait.
        let account = context.peer.connection.account();
        let mut charge = Charge::new(&context.peer.connection);
        charge.set(request_bytes(&request)).map_err(|status| over_budget(context, status))?;
        stream.throttle_poll(request.resource_names.len()).await?;
        let mut poll = SinglePoll::new(form, &request);
        // A poll has no earlier response to reject (RST-8), so an error detail means nothing.
        let request = SotwRequest { error_detail: None, ..request };
        self.request(Request::Sotw(request)).await?;
        drop(charge);
        stream.look(|_, session, _| must_want_something(session))?;
        let answer = poll_fn(|task| stream.poll_set(&mut poll, task));
        match timeout(hold, answer).await {
            Ok(_) if !account.has_room() => Err(over_budget(context, account.over_budget())),
            Ok(answer) => {
                let Some(answer) = answer? else { return Ok(Polled::Unchanged) };
                let written = poll_fn(|task| poll.write(context, &stream.inner, &answer, task.waker()));
                let written = written.await?;
                // Other polls of the connection may have been answered meanwhile.
                match account.has_room() {
                    true => Ok(written),
                    false => Err(over_budget(context, account.over_budget())),
                }
            }
            Err(_) => poll.result_after_hold(),
        }
    }

    fn has_answered(&self) -> bool {
        self.state().answered.load(Ordering::Relaxed)
    }

    fn has_failed(&self) -> bool {
        self.state().inner.lock().end.as_ref().is_some_and(|status| status.code != Code::Ok)
    }

    fn unread(&self) -> impl Fn() -> bool + Send + 'static {
        self.state().unread.probe()
    }

    fn node_id(&self) -> Option<String> {
        Some(self.state().inner.lock().node()?.id.clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let (stream, context) = (&self.0, &self.0.context);
        let sources = stream.inner.lock().close(context);
        for (id, source) in sources.iter() {
            source.forget(session_at(context.session(), *id));
            context.sources.release(source, &context.holder());
        }
        context.peer.connection.account().forget(context.id);
        context.streams.forget(context.id);
        if context.shared.tails.are_open() {
            let inner = stream.inner.lock();
            let (node, end) = (inner.placement.node.clone(), inner.end.clone());
            drop(inner);
            tail::show_end(context, node.as_deref(), end.as_deref());
        }
        debug!(stream = context.id, "stream ended");
    }
}

// === Facts ===

impl StreamState {
    pub(crate) fn number(&self) -> u64 {
        self.context.id
    }

    pub(crate) fn is_relay(&self) -> bool {
        self.context.is_relay()
    }

    /// Keeps the stream open like a handle of the serving room. `None` after the last of these handles.
    fn hold_open(self: &Arc<Self>) -> Option<Stream> {
        let one_more = |handles: usize| handles.checked_sub(1).map(|others| others + 2);
        self.handles.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Stream(self.clone()))
    }

    /// How long the client has read nothing; `None` if nothing is unread.
    pub(crate) fn unread_for(&self) -> Option<Duration> {
        self.unread.age()
    }

    /// How long the client has taken nothing.
    pub(crate) fn unused_for(&self) -> Duration {
        self.unread.unused()
    }

    /// Passes the node, the subscriptions and the sources to `look`, under the lock.
    pub(crate) fn look<T>(&self, look: impl FnOnce(Option<&Node>, &Session, &OwnSources) -> T) -> T {
        let inner = self.inner.lock();
        look(inner.node(), &inner.session, &inner.placement.sources)
    }

    /// Passes each part, with the source by another configuration, to `see`, under the lock.
    pub(crate) fn each_destination(&self, settings: &DriverSettings, see: impl FnMut(PartDestination<'_>)) {
        let inner = self.inner.lock();
        inner.placement.destinations(&inner.session, &self.context, settings).for_each(see);
    }

    /// The changes without an answer, or not sent yet.
    pub(crate) fn unsettled_changes(&self) -> Vec<Unsettled> {
        self.look(|_, session, sources| session.unsettled_changes(&newest(sources)))
    }

    /// The numbers of the unanswered changes of a source.
    fn awaited_of(&self, source: SourceId) -> Vec<u64> {
        let all = self.unsettled_changes().into_iter();
        let awaited = all.filter(|change| change.id.source == source && !change.is_overtaken);
        awaited.map(|change| change.id.number).collect()
    }

    /// The types with delayed requests, each since the oldest request.
    pub(crate) fn delayed_types(&self) -> Vec<(TypeUrl, Time)> {
        let inner = self.inner.lock();
        inner.rate.delayed_types().map(|(type_url, since)| (type_url.clone(), since)).collect()
    }
}

// === Requests ===

impl StreamState {
    async fn request_in_turn(self: &Arc<Self>, request: Request) -> Result<(), Status> {
        let watch_order = self.watch_order.lock().await;
        match self.take(request)? {
            Some(outcome) => self.follow_up(outcome, watch_order).await,
            None => Ok(()),
        }
    }

    /// Takes a request, or the part within the rate of changes; `None` if all of it waits.
    fn take(self: &Arc<Self>, request: Request) -> Result<Option<RequestOutcome>, Status> {
        let now = self.context.shared.clock.now();
        let inner = &mut *self.inner.lock();
        inner.begin_request(&self.context.shared, now);
        let (request, portion) = match inner.rate.is_over(self.context.names(), now) {
            false => (request, Portion::Whole),
            true => {
                let split = inner.split(&self.context, request, now)?;
                if split.is_first {
                    tokio::spawn(take_in_turn(Arc::downgrade(self)));
                }
                let Some(due) = split.due else { return Ok(None) };
                due
            }
        };
        self.take_portion(inner, &request, portion, now).map(Some)
    }

    fn take_portion(
        &self,
        inner: &mut StreamInner,
        request: &Request,
        portion: Portion,
        now: Time,
    ) -> Result<RequestOutcome, Status> {
        let outcome = inner.take_portion(&self.context, request, portion, now)?;
        self.note_behind(inner);
        Ok(outcome)
    }

    fn note_behind(&self, inner: &StreamInner) {
        self.behind.since(inner.waiting_since().map(|since| self.context.shared.clock.instant(since)));
    }

    /// Completes a request.
    async fn follow_up(
        self: &Arc<Self>,
        outcome: RequestOutcome,
        watch_order: MutexGuard<'_, ()>,
    ) -> Result<(), Status> {
        let wakes = !outcome.watches.is_empty() || self.has_something_to_say();
        if outcome.rejects_or_reports() {
            self.throttle().await?;
        }
        // Before the sources open streams to servers.
        self.throttle_opened().await?;
        self.send_watches(outcome.watches).await;
        drop(watch_order);
        if wakes {
            self.wake();
        }
        Ok(())
    }

    /// Slows down a stream with too many NACKs or reports (FD4), which has been charged for them. Changes of
    /// subscription wait elsewhere, without their verdicts ([`delayed`](super::delayed)).
    async fn throttle(&self) -> Result<(), Status> {
        let admission = self.inner.lock().rate.admit_report(self.context.shared.clock.now());
        self.slow_down(admission, "NACKs or reports per second on this stream").await
    }

    /// All polls of one connection share a rate, because each poll is a stream of its own.
    async fn throttle_poll(&self, names: usize) -> Result<(), Status> {
        let account = self.context.peer.connection.account();
        let (per_second, burst) = self.changes_rate();
        let now = self.context.shared.clock.now();
        let admission = account.admit_poll(names, now, per_second, burst);
        self.slow_down(admission, "polls per second on this connection").await
    }

    /// Slows down a connection with many new sources: each costs a stream to a server, and every new stream
    /// of the connection has a separate rate.
    async fn throttle_opened(&self) -> Result<(), Status> {
        let account = self.context.peer.connection.account();
        let (per_second, burst) = self.changes_rate();
        match account.admit_opened(self.context.shared.clock.now(), per_second, burst) {
            Some(admission) => self.slow_down(admission, "new sources per second on this connection").await,
            None => Ok(()),
        }
    }

    fn changes_rate(&self) -> (u32, u32) {
        let limits = &self.context.shared.settings().limits;
        (limits.changes_per_second, limits.changes_burst)
    }

    async fn slow_down(&self, admission: RateDecision, measured: &str) -> Result<(), Status> {
        match admission {
            RateDecision::Now => Ok(()),
            RateDecision::After(wait) => {
                self.context.note_delay(Limit::ChangesPerSecond, self.inner.lock().node());
                sleep(wait.min(LONGEST_PAUSE)).await;
                Ok(())
            }
            RateDecision::Refused => {
                let rate = self.context.shared.settings().limits.changes_per_second;
                let text = format!(
                    "more than {rate} {measured}; the limit is limits.changes_per_second, and {NAMES_PER_TOKEN} names \
                        count as one change"
                );
                Err(Status::new(Code::ResourceExhausted, text))
            }
        }
    }

    /// Sends the stream's subscriptions to the sources.
    async fn send_watches(self: &Arc<Self>, watches: Vec<Watch>) {
        if watches.is_empty() {
            return;
        }
        self.send_each(watches).await;
        self.leave_unused_sources(SourceHandle::forget);
    }

    /// Like [`Self::send_watches`], after a move to other servers. Without other streams, the subscriptions
    /// at a lower server end at once (RLY-60).
    async fn send_watches_and_dismiss(self: &Arc<Self>, watches: Vec<Watch>) {
        self.send_each(watches).await;
        self.leave_unused_sources(SourceHandle::dismiss);
    }

    async fn send_each(self: &Arc<Self>, watches: Vec<Watch>) {
        for watch in watches {
            let (Watch::Watch { source: id, .. } | Watch::Unwatch { source: id, .. }) = watch;
            let source = self.inner.lock().placement.sources.get(id).cloned();
            if let Some(source) = source {
                source.send(self.command(watch, &source)).await;
            }
        }
    }

    fn command(self: &Arc<Self>, watch: Watch, handle: &SourceHandle) -> Command {
        match watch {
            Watch::Watch { source, type_url, collection, previous } => {
                let seen = handle.shown_change();
                Command::Watch { stream: subscriber_at(self, source), type_url, collection, previous, seen }
            }
            Watch::Unwatch { source, type_url, key } => {
                Command::Unwatch { session: session_at(self.id(), source), type_url, key }
            }
        }
    }

    /// Leaves the unused sources, after the commands were sent.
    fn leave_unused_sources(&self, leave: impl Fn(&SourceHandle, SessionId)) {
        let inner = &mut *self.inner.lock();
        inner.placement.leave_unused(&inner.session, &self.context, leave);
    }
}

// === Responses, pulled by the response body ===

impl StreamState {
    fn poll_message(self: &Arc<Self>, context: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        // Registered before the look, so no wake is lost in between.
        self.signal.register(context.waker());
        let reasons = self.signal.take();
        let inner = &mut *self.inner.lock();
        // A timer gives no reason.
        if reasons.is_none() && !inner.schedule.is_timed() {
            return Poll::Pending;
        }
        if reasons.has_news() {
            inner.session.note_news();
        }
        if let Some(status) = &inner.end {
            let end = if status.code == Code::Ok { None } else { Some(Err(Status::clone(status))) };
            return Poll::Ready(end);
        }
        if let Some(turn) = self.turn_of_first_answer(inner) {
            inner.schedule.poll_at(Some(turn), &self.context.shared.clock, context);
            return Poll::Pending;
        }
        if !self.has_room(inner, context) {
            return Poll::Pending;
        }
        let now = self.context.shared.clock.now();
        let look_at = self.follow_servers(inner, now);
        let retry_at = self.follow_refused(inner, now);
        match inner.next_message(&self.context, &self.unread, now, context.waker()) {
            Poll::Pending => {
                // The finished body wakes the stream, and so does an update.
                self.signal.look_again();
                Poll::Pending
            }
            Poll::Ready(Some(Err(status))) => Poll::Ready(Some(Err(status))),
            Poll::Ready(Some(Ok((index, message)))) => {
                self.answered.store(true, Ordering::Relaxed);
                let waits = look_at.is_some() || retry_at.is_some() || inner.schedule.is_timed();
                if waits || !inner.session.is_sated(index) {
                    // Another message may be due.
                    self.signal.look_again();
                }
                self.note_behind(inner);
                Poll::Ready(Some(Ok(message)))
            }
            Poll::Ready(None) => {
                if let Some(word) = last_word::next(inner, &self.context, &self.unread, now) {
                    self.signal.look_again();
                    return Poll::Ready(Some(Ok(word)));
                }
                let fails_at = match self.answered.load(Ordering::Relaxed) {
                    true => None,
                    false => inner.fails_at(&self.context),
                };
                if fails_at.is_some_and(|at| inner.is_stranded(at <= now)) {
                    return Poll::Ready(Some(Err(self.context.unavailable())));
                }
                let fails_at = fails_at.filter(|at| *at > now);
                let report_at = inner.note_name_waits(&self.context, now);
                self.note_behind(inner);
                let word_at = last_word::due_at(inner, &self.context);
                let times = [inner.session.held_until(), look_at, fails_at, report_at, retry_at, word_at];
                let until = times.into_iter().flatten().min();
                inner.schedule.poll_at(until, &self.context.shared.clock, context);
                Poll::Pending
            }
        }
    }

    /// Whether the client may be sent more. False while `limits.connection_bytes` are unread; reading wakes
    /// the stream.
    fn has_room(&self, inner: &StreamInner, context: &Context<'_>) -> bool {
        let account = self.unread.account();
        if account.has_room() {
            return true;
        }
        self.signal.look_again();
        account.wait(self.context.id, context.waker());
        self.context.note_delay(Limit::ConnectionBytes, inner.node());
        // A read before the registration woke nobody.
        if account.has_room() {
            context.waker().wake_by_ref();
        }
        false
    }

    /// Whether the response body must be polled after an ACK.
    fn has_something_to_say_to(&self, outcome: &RequestOutcome) -> bool {
        // News come with a separate wake.
        let rests = outcome.rests && self.signal.is_quiet();
        !rests && self.has_something_to_say()
    }

    /// Whether the response body must be polled: an answer is due, or a wait needs a timer.
    pub(crate) fn has_something_to_say(&self) -> bool {
        let inner = &mut *self.inner.lock();
        self.is_answer_due(inner) || inner.session.held_until().is_some()
    }

    fn is_answer_due(&self, inner: &mut StreamInner) -> bool {
        inner.poll_answer(self.context.shared.clock.now()).is_some()
    }

    /// The time of the first answer, if in the future. First answers are delayed to spread a storm of
    /// reconnects (RLY-56).
    fn turn_of_first_answer(&self, inner: &mut StreamInner) -> Option<Time> {
        let is_decided = inner.schedule.has_first_answer();
        if self.answered.load(Ordering::Relaxed) || (!is_decided && !self.is_answer_due(inner)) {
            return None;
        }
        let (shared, now) = (&self.context.shared, self.context.shared.clock.now());
        let StreamInner { schedule, placement, .. } = inner;
        let turn = schedule.first_answer_at(now, || {
            let wait = shared.first_answer_in(&self.context.peer.listener, now);
            if !wait.is_zero() {
                self.context.note_delay(Limit::FirstAnswersPerSecond, placement.node());
            }
            wait
        });
        (turn > now).then_some(turn)
    }

    /// Begins a move to other servers if a move is due. Returns when to look again if nothing happens before.
    fn follow_servers(self: &Arc<Self>, inner: &mut StreamInner, now: Time) -> Option<Time> {
        let look = inner.follow_servers(&self.context, now);
        if look.is_due
            && let Some(stream) = self.hold_open()
        {
            tokio::spawn(shift(stream));
        }
        look.look_at
    }

    /// Searches for room for refused types when a search is due, and ends a stream without any served type.
    /// Returns when to look again.
    fn follow_refused(self: &Arc<Self>, inner: &mut StreamInner, now: Time) -> Option<Time> {
        let StreamInner { session, placement, .. } = inner;
        let step = placement.refused.follow(session, &placement.sources, now);
        if let Some(source) = step.room_for {
            self.look_for_room(source);
        }
        if let Some(status) = step.end {
            inner.end_with(status);
        }
        step.look_at
    }

    /// Polls for the complete set of a single request.
    fn poll_set(
        self: &Arc<Self>,
        poll: &mut SinglePoll,
        task: &Context<'_>,
    ) -> Poll<Result<Option<Answer>, Status>> {
        // Registered before the look, so no wake is lost in between.
        self.signal.register(task.waker());
        let inner = &mut *self.inner.lock();
        if inner.end.is_none() {
            // The time to look again is ignored: the poll ends soon, and each change wakes it.
            self.follow_servers(inner, self.context.shared.clock.now());
        }
        poll.poll(inner)
    }

    /// Drops the unread messages of an outdated answer if the client has read nothing for `stalled`.
    fn take_back(&self, stalled: Duration) {
        if self.unread_for().is_none_or(|age| age < stalled) {
            return;
        }
        let inner = &mut *self.inner.lock();
        inner.outbox.take_back(&mut inner.session, &self.context.shared.content.encoder);
    }
}

// === Changes without a request ===

impl StreamState {
    /// Judges the stream by a new policy (AUT-12). Returns whether the stream has ended.
    pub(crate) fn judge_again(&self) -> bool {
        let end = self.inner.lock().judge_again(&self.context);
        let ends = end.is_some();
        if let Some(status) = end {
            self.end(status);
        }
        ends
    }

    /// Restates all differences of a rejected push of the plan, after a return or a halt.
    pub(crate) fn restate(&self, plan: &Arc<PlanHandle>, push: u64) {
        self.inner.lock().rejected.add(plan, push);
        self.wake();
    }

    /// See [`StreamInner::adopt`].
    pub(crate) fn adopt(
        &self,
        in_force: &Arc<Epoch<DriverSettings>>,
        is_alike: impl FnMut(&Epoch<DriverSettings>) -> bool,
    ) -> bool {
        self.inner.lock().adopt(&self.context, in_force, is_alike)
    }

    /// Begins the move to the configuration in force (REL-6). A stream whose new class has no room stays, and
    /// looks for room again until there is another configuration.
    pub(crate) async fn reclassify(self: Arc<Self>) {
        while let Some(number) = self.try_move().await {
            sleep(RETRY.mul_f64(0.5 + fastrand::f64())).await;
            if self.context.shared.settings().number() != number {
                // The walk of the other configuration finds the stream.
                return;
            }
        }
    }

    /// Returns the number of a configuration without room.
    async fn try_move(self: &Arc<Self>) -> Option<u64> {
        let _held = self.hold_open()?;
        let _order = self.watch_order.lock().await;
        let in_force = self.context.shared.epoch();
        let number = in_force.number();
        let begun = self.inner.lock().begin_move(&self.context, in_force);
        let mut stays = None;
        match begun {
            Ok(watches) => self.send_watches(watches).await,
            Err(status) if is_final(&status) => self.end(status),
            Err(status) => {
                self.context.note_stay(&status);
                // The sources of the refused configuration alone.
                self.leave_unused_sources(SourceHandle::forget);
                stays = Some(number);
            }
        }
        self.wake();
        stays
    }

    /// Schedules the move of a type's names to a private source (CCH-1).
    fn divert_soon(self: &Arc<Self>, type_url: TypeUrl) {
        let Some(stream) = self.hold_open() else { return };
        let now = Instant::now();
        let wait = self.inner.lock().placement.diversions.get_or_insert_default().note(type_url, now);
        if let Some(wait) = wait {
            tokio::spawn(divert(stream, wait));
        }
    }

    fn look_for_room(self: &Arc<Self>, source: SourceId) {
        if let Some(stream) = self.hold_open() {
            tokio::spawn(look_for_room(stream, source));
        }
    }

    async fn carry_out(self: &Arc<Self>, changed: Result<Vec<Watch>, Status>) {
        match changed {
            Ok(watches) => self.send_watches(watches).await,
            Err(status) => self.end(status),
        }
    }
}

// === Tasks ===

// Each task keeps the stream open until all sources are told. Otherwise nothing would remove a stream that
// enters a source after the end.

/// Moves a stream between the servers of a list (A71).
async fn shift(stream: Stream) {
    let stream = stream.state();
    let _order = stream.watch_order.lock().await;
    let shifted = stream.inner.lock().shift(&stream.context);
    if let Some(status) = shifted.refused {
        // The stream stays with its server, and looks again later. Only the move has failed.
        stream.context.note_refused_move(&status);
    }
    if shifted.is_settled {
        // The former class lingers, for a way back.
        stream.send_watches(shifted.watches).await;
    } else {
        stream.send_watches_and_dismiss(shifted.watches).await;
    }
    stream.wake();
}

/// Moves the unshared names to a private source, after the wait.
async fn divert(stream: Stream, wait: Duration) {
    let stream = stream.state();
    if !wait.is_zero() {
        sleep(wait).await;
    }
    let _order = stream.watch_order.lock().await;
    let types = stream.inner.lock().placement.diversions.get_or_insert_default().take(Instant::now());
    for type_url in types {
        let diverted = stream.inner.lock().divert(&stream.context, &type_url);
        stream.carry_out(diverted).await;
    }
    stream.wake();
}

/// Asks again for a place for the types of a source without room (RLY-14).
async fn look_for_room(stream: Stream, source: SourceId) {
    let stream = stream.state();
    let _order = stream.watch_order.lock().await;
    let left = stream.inner.lock().leave(&stream.context, source);
    stream.carry_out(left).await;
    stream.wake();
}

/// Checks all streams for clients that have stopped reading, the encodings without recent use, and the copies
/// without owners, periodically.
pub(crate) async fn take_back(shared: Arc<DriverContext>, tables: Tables) {
    loop {
        sleep(READERS_CHECKED_EVERY).await;
        let mut next = None;
        while let Some(stream) = tables.streams.next(next) {
            next = Some(stream.number());
            stream.take_back(STALLED_AFTER);
        }
        shared.content.encoder.tidy();
        shared.content.copies.sweep();
    }
}

impl Behind for StreamState {
    fn behind(&self) -> &BehindMetrics {
        &self.behind
    }
}

// === The stream for sources ===

impl Subscriber for StreamState {
    fn id(&self) -> SessionId {
        self.context.session()
    }

    fn wake(&self) {
        self.signal.wake();
    }

    fn end(&self, status: Status) {
        self.inner.lock().end_with(status);
        self.wake();
    }

    fn awaited_changes(&self, source: SourceId) -> Vec<u64> {
        self.awaited_of(source)
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.inner.lock().placement.node.clone()
    }

    fn relays(&self) -> Option<&RelayPath> {
        self.context.peer.relays.as_deref()
    }

    fn divert(self: Arc<Self>, type_url: TypeUrl) {
        self.divert_soon(type_url);
    }

    fn displaced(self: Arc<Self>, source: SourceId) {
        self.look_for_room(source);
    }

    fn is_leaving(&self, source: SourceId) -> bool {
        self.inner.lock().is_leaving(source)
    }
}

/// The stream as a subscriber of a source.
fn subscriber_at(stream: &Arc<StreamState>, source: SourceId) -> Arc<dyn Subscriber> {
    let id = session_at(stream.id(), source);
    if id == stream.id() {
        stream.clone()
    } else {
        Arc::new(PrivateSubscriber { id, stream: stream.clone() })
    }
}

/// The private part of a stream, for the source.
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
        self.stream.divert_soon(type_url);
    }

    fn displaced(self: Arc<Self>, source: SourceId) {
        self.stream.look_for_room(source);
    }
}
