//! The requests of a stream, and the resulting commands to sources.

use std::sync::Arc;

use tracing::{debug, trace, warn};

use crate::driver::api::change_name::ChangeName;
use crate::driver::ground::context::DriverContext;
use crate::driver::ground::rate::{Admission, LISTED_PER_NAME, NAMES_PER_TOKEN};
use crate::driver::ground::registry::lock;
use crate::driver::source::handle::{Command, SourceHandle, Subscriber};
use crate::driver::stream::private_part::{session_at, shared_source};
use crate::driver::stream::restating::RejectedPushes;
use crate::driver::stream::routes::Routes;
use crate::driver::stream::state::{Inner, STREAM_BYTES, StreamState};
use crate::driver::stream::subscriber::subscriber_at;
use crate::driver::stream::waiting::LONGEST_PAUSE;
use crate::engine::Time;
use crate::engine::cache::SessionId;
use crate::engine::downstream::Excess;
use crate::engine::downstream::{ChangeId, Portion, RequestOutcome, Verdict, Watch};
use crate::telemetry::Limit;
use crate::telemetry::events::{Kind, Occurrence};
use crate::telemetry::metrics::TypeMetrics;
use crate::xds::{Code, Node, Request, Status, TypeUrl, Version};

/// A request in the session.
pub(crate) struct Taken {
    pub outcome: RequestOutcome,
}

impl StreamState {
    pub(crate) async fn request_in_turn(self: &Arc<Self>, request: Request) -> Result<(), Status> {
        let watch_order = self.watch_order.lock().await;
        match self.take(request)? {
            Some(taken) => self.follow_up(taken, watch_order).await,
            None => Ok(()),
        }
    }

    /// Completes a request.
    pub(crate) async fn follow_up(
        self: &Arc<Self>,
        Taken { outcome }: Taken,
        watch_order: tokio::sync::MutexGuard<'_, ()>,
    ) -> Result<(), Status> {
        let wakes = !outcome.watches.is_empty() || self.has_something_to_say();
        if outcome.rejects_or_reports() {
            self.throttle().await?;
        }
        // Before the sources open streams to their servers.
        self.throttle_opened().await?;
        self.send_watches(outcome.watches).await;
        drop(watch_order);
        if wakes {
            self.wake();
        }
        Ok(())
    }

    /// Takes a request, or the part that need not wait for the rate of changes; `None` if all of it waits.
    pub(crate) fn take(&self, request: Request) -> Result<Option<Taken>, Status> {
        let now = self.shared.clock.now();
        let inner = &mut *lock(&self.inner);
        inner.asked_at.get_or_insert(now);
        inner.follow(&self.shared);
        let (request, portion) = match inner.is_over_rate(now) {
            false => (request, Portion::Whole),
            true => match self.set_aside(inner, request, now)? {
                Some(due) => due,
                None => return Ok(None),
            },
        };
        self.take_portion(inner, &request, portion, now).map(Some)
    }

    pub(crate) fn take_portion(
        &self,
        inner: &mut Inner,
        request: &Request,
        portion: Portion,
        now: Time,
    ) -> Result<Taken, Status> {
        // The words of a NACK for a Secret may quote it (ADM-12), and the type may be implied.
        let shown = Some(request).filter(|request| !request.is_nack());
        trace!(stream = self.id, request = ?shown, ?portion, "request");
        let rerouted = inner.take_node(request, self, now);
        if rerouted || !inner.is_admitted {
            self.admit(inner)?;
        }
        let mut routes = Routes {
            stream: self,
            settings: &inner.routing,
            node: inner.node.as_deref(),
            sources: &mut inner.sources,
            refusal: Some(&mut inner.refusal),
        };
        let outcome = inner.session.request_portion(request, portion, &mut routes, now);
        if self.shared.tails.are_open() {
            self.tell_request(routes.node, request, &outcome, now);
        }
        match inner.session.excess() {
            Some(Excess::Names) => self.shared.metrics.limit_hit(Limit::NamesPerStream),
            Some(Excess::Types) => self.shared.metrics.limit_hit(Limit::TypesPerStream),
            None => {}
        }
        if let Some(denials) = inner.session.take_denials() {
            self.note_denials(&denials, inner.session.grant().rule(), routes.node);
        }
        let mut outcome = outcome?;
        if outcome.changed {
            let charged = inner.names.set(STREAM_BYTES + inner.session.names_bytes());
            charged.inspect_err(|_| self.shared.metrics.limit_hit(Limit::ConnectionBytes))?;
        }
        if rerouted {
            outcome.watches.extend(inner.session.reroute(&mut routes)?);
            // All names may have another source (FD4).
            outcome.changed = true;
            outcome.moved_names = outcome.moved_names.max(inner.session.names_len());
        }
        if inner.moving_to.is_some() && (outcome.changed || rerouted) {
            outcome.watches.extend(self.keep_moving(inner));
        }
        if outcome.counts_as_change() {
            inner.limiter.charge(names_to_pay(request, &outcome), now);
        }
        self.note_request(inner, &outcome, portion, now);
        inner.tell_servers(request, &outcome);
        Ok(Taken { outcome })
    }

    fn note_request(&self, inner: &mut Inner, outcome: &RequestOutcome, portion: Portion, now: Time) {
        // A report subscribes to nothing, and no limit bounds the types of reports. So the stream keeps no
        // metrics for the type.
        let types = match outcome.is_report {
            true => self.shared.metrics.of_type(&outcome.type_url),
            false => inner.metrics_of(&outcome.type_url, &self.shared),
        };
        // Requests in parts were counted when they arrived.
        if portion == Portion::Whole {
            types.request();
        }
        if outcome.is_report || outcome.reports_error {
            types.report();
        }
        self.note_verdict(outcome, &types, inner.node.as_deref());
        inner.count_verdict(outcome, self.id, now);
        if matches!(outcome.verdict, Verdict::Nack { .. }) {
            self.tell_plans_of_rejection(inner, now);
        }
        self.note_refusal(outcome, inner.node.as_deref());
        self.behind.since(inner.waiting_since().map(|since| self.shared.clock.instant(since)));
    }

    fn note_verdict(&self, outcome: &RequestOutcome, types: &TypeMetrics, node: Option<&Node>) {
        match &outcome.verdict {
            Verdict::Ack { latency } => {
                types.ack();
                if let Some(latency) = latency {
                    types.delivered(*latency);
                }
            }
            Verdict::Nack { status, version, repeated } => {
                types.nack();
                if !repeated {
                    let change = outcome.judged.carried.rejected().first();
                    self.tell_nack((&outcome.type_url, *version, change), &status.to_string(), node);
                }
            }
            Verdict::Stale | Verdict::None => {}
        }
    }

    fn tell_nack(
        &self,
        (type_url, version, change): (&TypeUrl, Version, Option<&ChangeId>),
        words: &str,
        node: Option<&Node>,
    ) {
        let node_id = node.map_or("", |node| node.id.as_str());
        let error = type_url.quote(words);
        let event =
            Occurrence::warn(Kind::Nack, "clients rejected an update; they keep their previous resources");
        let event = event.of_type(type_url).of_client(self.id, node_id, self.peer.address);
        let event = event.version(version).detail(&error);
        let name = |id: &ChangeId| ChangeName { source: shared_source(id.source).0, number: id.number };
        let change = change.map(|id| name(id).to_string());
        // A rejected change always has a trace (OBS-5).
        let trace_id = change.as_deref().and_then(|change| self.shared.metrics.traces.trace_id(change));
        let generation = self.shared.settings().generation;
        let event = event.traced(generation, trace_id.as_deref());
        self.shared.metrics.events.add(match &change {
            Some(change) => event.change(change),
            None => event,
        });
        if let Some(suppressed) = self.shared.throttle.allow("nack") {
            let version = (!type_url.is_secret()).then_some(tracing::field::display(version));
            warn!(node = node_id, stream = self.id, %type_url, version, change, generation, trace_id, %error, suppressed,
                "a client rejected an update (NACK); it keeps its previous resources");
        }
    }

    /// Logs a name that no server can serve. Only the client's operators can fix the name, and other names are
    /// served as usual (NAM-5).
    fn note_refusal(&self, outcome: &RequestOutcome, node: Option<&Node>) {
        if let Some((name, reason)) = &outcome.refused
            && let Some(suppressed) = self.shared.throttle.allow("refused name")
        {
            let node_id = node.map_or("", |node| node.id.as_str());
            let name: String = name.as_str().chars().take(200).collect();
            warn!(node = node_id, stream = self.id, type_url = %outcome.type_url, name, %reason, suppressed,
                "a client asked for a name that cannot be served; answering that the name does not exist");
        }
    }

    /// Slows down a stream with too many NACKs or reports (FD4), which has been charged for them. Changes of subscription
    /// wait elsewhere, without their verdicts ([`waiting`](super::waiting)).
    async fn throttle(&self) -> Result<(), Status> {
        let admission = lock(&self.inner).limiter.admit_report(self.shared.clock.now());
        self.slow_down(admission, "NACKs or reports per second on this stream").await
    }

    /// All polls of one connection share a rate, because each poll is a stream of its own.
    pub(crate) async fn throttle_poll(&self, names: usize) -> Result<(), Status> {
        let account = self.peer.connection.account();
        let admission = account.admit_poll(names, self.shared.clock.now(), self.changes_rate());
        self.slow_down(admission, "polls per second on this connection").await
    }

    /// Slows down a connection with many new sources: each costs a stream to a server, and every new stream of the connection has a
    /// separate rate.
    async fn throttle_opened(&self) -> Result<(), Status> {
        let account = self.peer.connection.account();
        match account.admit_opened(self.shared.clock.now(), self.changes_rate()) {
            Some(admission) => self.slow_down(admission, "new sources per second on this connection").await,
            None => Ok(()),
        }
    }

    fn changes_rate(&self) -> (u32, u32) {
        let limits = &self.shared.settings().limits;
        (limits.changes_per_second, limits.changes_burst)
    }

    async fn slow_down(&self, admission: Admission, what: &str) -> Result<(), Status> {
        match admission {
            Admission::Now => Ok(()),
            Admission::After(wait) => {
                self.tell_delay(Limit::ChangesPerSecond, lock(&self.inner).node.as_deref());
                tokio::time::sleep(wait.min(LONGEST_PAUSE)).await;
                Ok(())
            }
            Admission::Refused => {
                let rate = self.shared.settings().limits.changes_per_second;
                let text = format!(
                    "more than {rate} {what}; the limit is limits.changes_per_second, and {NAMES_PER_TOKEN} names \
                        count as one change"
                );
                Err(Status::new(Code::ResourceExhausted, text))
            }
        }
    }

    /// The client waits for a limit.
    pub(crate) fn tell_delay(&self, limit: Limit, node: Option<&Node>) {
        let node_id = node.map_or("", |node| node.id.as_str());
        self.shared.metrics.limit_delays(limit, node_id, self.peer.address);
    }

    fn command(self: &Arc<Self>, watch: Watch) -> (Option<Arc<SourceHandle>>, Command) {
        let (Watch::Watch { source, .. } | Watch::Unwatch { source, .. }) = watch;
        let inner = lock(&self.inner);
        let handle = inner.sources.iter().find(|(id, _)| *id == source).map(|(_, handle)| handle.clone());
        drop(inner);
        let command = match watch {
            Watch::Watch { type_url, collection, former, .. } => {
                let seen = handle.as_ref().map_or(0, |handle| handle.shown_change());
                Command::Watch { stream: subscriber_at(self, source), type_url, collection, former, seen }
            }
            Watch::Unwatch { type_url, key, .. } => {
                Command::Unwatch { session: session_at(self.id(), source), type_url, key }
            }
        };
        (handle, command)
    }

    /// Sends the stream's subscriptions to its sources.
    pub(crate) async fn send_watches(self: &Arc<Self>, watches: Vec<Watch>) {
        if watches.is_empty() {
            return;
        }
        self.send_each(watches).await;
        self.leave_unused_sources(SourceHandle::forget);
    }

    /// Like [`Self::send_watches`], after a move to other servers. Without other streams, the subscriptions at
    /// a lower server end at once (RLY-60).
    pub(crate) async fn send_watches_and_dismiss(self: &Arc<Self>, watches: Vec<Watch>) {
        self.send_each(watches).await;
        self.leave_unused_sources(SourceHandle::dismiss);
    }

    async fn send_each(self: &Arc<Self>, watches: Vec<Watch>) {
        for watch in watches {
            let (source, command) = self.command(watch);
            if let Some(source) = source {
                source.send(command).await;
            }
        }
    }

    /// Leaves the sources that no part uses any more, after the commands were sent.
    pub(super) fn leave_unused_sources(&self, leave: impl Fn(&SourceHandle, SessionId)) {
        let inner = &mut *lock(&self.inner);
        let Inner { session, sources, .. } = inner;
        sources.retain(|(id, source)| {
            let used = session.uses(*id);
            if !used {
                leave(source, session_at(self.id(), *id));
                self.tables.sources.release(source, &self.holder());
            }
            used
        });
    }
}

/// The names for which the rate charges a request: those that came or went, and a part of those that a list repeats.
fn names_to_pay(request: &Request, outcome: &RequestOutcome) -> usize {
    let listed = match request {
        Request::Sotw(request) => request.resource_names.len(),
        Request::Delta(_) => 0,
    };
    outcome.moved_names + listed / LISTED_PER_NAME
}

impl Inner {
    /// Takes the configuration in force over, if there is a new one. Mostly a comparison of two numbers.
    pub(crate) fn follow(&mut self, shared: &DriverContext) {
        if self.epoch == shared.settings_number() {
            return;
        }
        let settings = shared.settings();
        self.epoch = settings.number();
        self.limiter.configure(settings.limits.changes_per_second, settings.limits.changes_burst);
        self.session.configure(settings.stream, &|list| settings.lists.list(list)?.fallback());
    }

    /// Stores the node of the first message, without the keys under which servers read verified identities (ISO-4). Of later nodes, only the dynamic parameters count (STR-2, STR-3).
    /// Returns whether the sharing of sources may have changed (RLY-16).
    fn take_node(&mut self, request: &Request, stream: &StreamState, now: Time) -> bool {
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
                "stream started"
            );
            let mut node = (**node).clone();
            for key in stream.shared.settings().classes.reserved_keys() {
                node.metadata.remove(key);
            }
            if stream.shared.tails.are_open() {
                stream.tell_opened(&node.id, now);
            }
            let node = Arc::new(node);
            self.sources.seat_by(&node);
            self.rejected = RejectedPushes::of(&stream.shared.plans, &node.id);
            self.node = Some(node);
            return false;
        };
        if known.id != node.id && stream.shared.throttle.allow("node changed").is_some() {
            debug!(
                stream = stream.id,
                node = known.id,
                other = node.id,
                "a later request names another node; keeping the first node"
            );
        }
        if known.dynamic_parameters == node.dynamic_parameters {
            return false;
        }
        Arc::make_mut(known).dynamic_parameters.clone_from(&node.dynamic_parameters);
        true
    }

    fn metrics_of(&mut self, type_url: &TypeUrl, shared: &DriverContext) -> Arc<TypeMetrics> {
        if let Some((_, metrics)) = self.types.iter().find(|(known, _)| known == type_url) {
            return metrics.clone();
        }
        let metrics = shared.metrics.of_type(type_url);
        self.types.reserve_exact(1);
        self.types.push((type_url.clone(), metrics.clone()));
        metrics
    }
}
