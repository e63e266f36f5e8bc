//! The state of a stream behind its lock: the session, and everything else behind the same lock.
//!
//! The methods decide and return the rest of the work. [`StreamState`](super::state::StreamState) holds the
//! lock, carries watches to sources, and starts tasks.

use std::sync::Arc;
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tracing::{debug, trace};

use crate::driver::api::downstream::{Charge, Message, WhenUnavailable};
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::encoder::{Encoded, EncodedMessage, Maker};
use crate::driver::ground::rate::LISTED_PER_NAME;
use crate::driver::ground::unread::Unread;
use crate::driver::source::handle::SourceHandle;
use crate::driver::stream::context::StreamContext;
use crate::driver::stream::delayed::{ChangeRate, DueRequest, Split};
use crate::driver::stream::outbox::Outbox;
use crate::driver::stream::own_sources::{OwnSources, newest};
use crate::driver::stream::placement::Placement;
use crate::driver::stream::restating::RejectedPushes;
use crate::driver::stream::routes::Routes;
use crate::driver::stream::schedule::{LAST_WORD_EVERY, Schedule};
use crate::driver::stream::tail::SentMessage;
use crate::driver::stream::{authorization, changes, loss, tail};
use crate::telemetry::Limit;
use crate::telemetry::metrics::TypeMetrics;
use sluice_engine::Time;
use sluice_engine::authorization::Grant;
use sluice_engine::downstream::{
    Answer, Excess, Look, Portion, RequestOutcome, Session, Shift, SourceId, Subscription, Verdict, Watch,
};
use sluice_setting::Epoch;
use sluice_wire::response;
use sluice_xds::{Code, Coding, Node, Request, SetMark, Status, TypeUrl};

/// The memory of a stream before any name is requested: with its buffers, its
/// subscriptions and HTTP/2's part, rounded up (ADR 66).
pub(crate) const STREAM_BYTES: usize = 8 << 10;

/// gRPC's default limit for a received message.
pub(crate) const MESSAGE_WARN_BYTES: usize = 4 << 20;

/// The time from the first request of a client until the stream fails for want of a server (RLY-4). Less than
/// 15 s, because gRPC then takes the requested resources for absent.
const FAIL_AFTER: Duration = Duration::from_secs(10);

type TypeCounters = SmallVec<[(TypeUrl, Arc<TypeMetrics>); 1]>;

/// The state of a stream behind its lock. All that each update reads comes last: see
/// [`StreamState`](super::state::StreamState).
#[repr(C)]
pub(crate) struct StreamInner {
    /// The charge for the stream and the names.
    names: Charge,
    pub placement: Placement,
    pub session: Session,
    pub rejected: RejectedPushes,
    pub rate: ChangeRate,
    /// The counters of the subscribed types.
    pub types: TypeCounters,
    pub outbox: Outbox,
    pub schedule: Schedule,
    /// The final status, once decided.
    pub end: Option<Box<Status>>,
    /// The policy has decided, and the session has the grant (AUT-1).
    is_admitted: bool,
    /// A move to other servers is under way.
    is_shifting: bool,
}

// === The life of a stream ===

impl StreamInner {
    /// The state of a new stream, which the charge allows.
    pub fn new(context: &StreamContext, settings: Arc<Epoch<DriverSettings>>, names: Charge) -> StreamInner {
        let (shared, is_relay) = (&context.shared, context.is_relay());
        let mut session = Session::new(
            context.kind,
            settings.stream,
            shared.content.seed,
            fastrand::u32(..),
            Grant::nothing(),
        );
        if is_relay {
            session.serve_relay();
        }
        let mut schedule = Schedule::default();
        if context.kind.last_words {
            schedule.look_within(LAST_WORD_EVERY);
        }
        StreamInner {
            session,
            placement: Placement::new(is_relay, settings),
            rejected: RejectedPushes::default(),
            rate: ChangeRate::new(shared),
            names,
            types: SmallVec::new(),
            outbox: Outbox::default(),
            schedule,
            is_admitted: false,
            is_shifting: false,
            end: None,
        }
    }

    pub fn node(&self) -> Option<&Node> {
        self.placement.node()
    }

    /// Ends the stream. The first reason stands.
    pub fn end_with(&mut self, status: Status) {
        self.end.get_or_insert_with(|| Box::new(status));
    }

    /// Takes the configuration in force over, if there is a new one.
    fn follow(&mut self, shared: &DriverContext) {
        if let Some(settings) = self.placement.routing.follow(shared) {
            self.rate.configure(settings.limits.changes_per_second, settings.limits.changes_burst);
            self.session.configure(settings.stream, &|list| settings.lists.list(list)?.fallback());
        }
    }

    /// Judges the stream at the first request, and after a change of the dynamic parameters (AUT-5). Every
    /// method passes here: before, the session has a grant of nothing (AUT-1).
    ///
    /// # Errors
    /// The final status of the stream.
    fn admit(&mut self, context: &StreamContext) -> Result<(), Status> {
        let grant = authorization::decide(context, self.node())?;
        self.is_admitted = true;
        self.regrant(context, grant).map_or(Ok(()), Err)
    }

    /// Judges the stream by a policy that has come into force (AUT-12). Returns the status with which the
    /// stream must end, if it must. Until the end, the stream may ask for nothing more.
    pub fn judge_again(&mut self, context: &StreamContext) -> Option<Status> {
        // A stream without a request is judged at the first request.
        if !self.is_admitted || self.end.is_some() {
            return None;
        }
        let decided = authorization::decide(context, self.node());
        let end = decided.map_or_else(Some, |grant| self.regrant(context, grant))?;
        self.session.revoke();
        Some(end)
    }

    fn regrant(&mut self, context: &StreamContext, grant: Arc<Grant>) -> Option<Status> {
        authorization::regrant(context, &mut self.session, self.placement.node(), grant)
    }

    /// Ends the use of the sources, and reports the end to all that counted on the client. Returns the
    /// sources.
    pub fn close(&mut self, context: &StreamContext) -> OwnSources {
        let StreamInner { session, placement, end, .. } = self;
        changes::give_up(session, &placement.sources);
        let (is_lost, now) = (loss::is_lost(context, end.as_deref()), context.shared.clock.now());
        if is_lost {
            loss::count_loss(session, &placement.sources, now);
        }
        loss::pass_end(context, placement.node.as_ref(), session, &placement.sources, is_lost, now);
        std::mem::take(&mut placement.sources)
    }
}

// === Requests ===

impl StreamInner {
    /// Prepares for a request.
    pub fn begin_request(&mut self, shared: &DriverContext, now: Time) {
        self.schedule.note_request(now);
        self.follow(shared);
    }

    /// Splits a request over the rate of changes into the part to take now and the part that waits.
    pub fn split(&mut self, context: &StreamContext, request: Request, now: Time) -> Result<Split, Status> {
        self.rate.split(context, &self.session, self.placement.node(), request, now)
    }

    /// When the next delayed request may be taken; `None` if none waits any more.
    pub fn next_turn(&mut self, context: &StreamContext, now: Time) -> Option<Time> {
        if self.end.is_some() {
            self.rate.give_up();
        }
        self.rate.next_turn(context.names(), now)
    }

    /// Takes the next delayed request if its turn has come.
    pub fn next_delayed(&mut self, context: &StreamContext, now: Time) -> Option<DueRequest> {
        self.next_turn(context, now)?;
        self.rate.next(context.names(), now)
    }

    /// Takes a request, or a part of one, into the session.
    ///
    /// # Errors
    /// The final status of the stream.
    pub fn take_portion(
        &mut self,
        context: &StreamContext,
        request: &Request,
        portion: Portion,
        now: Time,
    ) -> Result<RequestOutcome, Status> {
        // A NACK may quote a Secret (ADM-12), and a request need not name its type.
        let shown = Some(request).filter(|request| !request.is_nack());
        trace!(stream = context.id, request = ?shown, ?portion, "request");
        let rerouted = self.take_node(context, request, now);
        if rerouted || !self.is_admitted {
            self.admit(context)?;
        }
        let shared = &context.shared;
        let mut routes = self.placement.routes(context);
        let outcome = self.session.request_portion(request, portion, &mut routes, now);
        if shared.tails.are_open() {
            tail::show_request(context, routes.node, request, &outcome, now);
        }
        match self.session.excess() {
            Some(Excess::Names) => shared.metrics.limit_hit(Limit::NamesPerStream),
            Some(Excess::Types) => shared.metrics.limit_hit(Limit::TypesPerStream),
            None => {}
        }
        if let Some(denials) = self.session.take_denials() {
            authorization::note_denials(context, &denials, self.session.grant().rule(), routes.node);
        }
        let mut outcome = outcome?;
        if outcome.changed {
            let charged = self.names.set(STREAM_BYTES + self.session.names_bytes());
            charged.inspect_err(|_| shared.metrics.limit_hit(Limit::ConnectionBytes))?;
        }
        if rerouted {
            outcome.watches.extend(self.session.reroute(&mut routes)?);
            // All names may have another source (FD4).
            outcome.changed = true;
            outcome.moved_names = outcome.moved_names.max(self.session.names_len());
        }
        if outcome.changed || rerouted {
            outcome.watches.extend(self.keep_moving(context));
        }
        if outcome.counts_as_change() {
            self.rate.charge(names_to_pay(request, &outcome), context.names(), now);
        }
        self.note_request(context, &outcome, portion, now);
        let Placement { sources, .. } = &self.placement;
        changes::pass_rejection(&self.session, sources, self.placement.node(), request, &outcome);
        Ok(outcome)
    }

    /// Stores the node of the first message, without the keys under which servers read verified identities
    /// (ISO-4). Of later nodes, only the dynamic parameters count (STR-2, STR-3). Returns whether the sharing
    /// of sources may have changed (RLY-16).
    fn take_node(&mut self, context: &StreamContext, request: &Request, now: Time) -> bool {
        let node = match request {
            Request::Sotw(request) => &request.node,
            Request::Delta(request) => &request.node,
        };
        let (Some(node), shared) = (node, &context.shared) else { return false };
        let Some(first) = &mut self.placement.node else {
            debug!(
                stream = context.id,
                node = node.id,
                cluster = node.cluster,
                peer = context.peer.address.map(tracing::field::display),
                "stream started"
            );
            let mut node = (**node).clone();
            for key in shared.settings().classes.reserved_keys() {
                node.metadata.remove(key);
            }
            if shared.tails.are_open() {
                tail::show_opened(context, &node.id, now);
            }
            let node = Arc::new(node);
            context.peer.connection.remember(&node);
            self.placement.sources.seat_by(&node);
            self.rejected = RejectedPushes::of(&shared.plans, &node.id);
            self.placement.node = Some(node);
            return false;
        };
        if first.id != node.id && shared.throttle.allow("node changed").is_some() {
            debug!(
                stream = context.id,
                node = first.id,
                other = node.id,
                "a later request names another node; keeping the first node"
            );
        }
        if first.dynamic_parameters == node.dynamic_parameters {
            return false;
        }
        Arc::make_mut(first).dynamic_parameters.clone_from(&node.dynamic_parameters);
        true
    }

    fn note_request(
        &mut self,
        context: &StreamContext,
        outcome: &RequestOutcome,
        portion: Portion,
        now: Time,
    ) {
        let StreamInner { session, placement, types, .. } = self;
        let sources = &placement.sources;
        // A report subscribes to nothing, and no limit bounds the types of reports. So the stream keeps no
        // metrics for the type.
        let of_report = outcome.is_report.then(|| context.shared.metrics.of_type(&outcome.type_url));
        let types = match &of_report {
            Some(of_report) => of_report,
            None => metrics_of(types, &outcome.type_url, &context.shared),
        };
        // Requests in parts were counted when they arrived.
        if portion == Portion::Whole {
            types.request();
        }
        if outcome.is_report || outcome.reports_error {
            types.report();
        }
        context.note_verdict(outcome, types, placement.node());
        changes::count_verdict(sources, outcome, context.id, placement.node(), now);
        if matches!(outcome.verdict, Verdict::Nack { .. }) {
            loss::pass_rejection(context, placement.node.as_ref(), session, sources, now);
        }
        context.note_refused_name(outcome, placement.node());
    }
}

/// The counters of a type, which the stream keeps from the first request on.
fn metrics_of<'a>(
    counters: &'a mut TypeCounters,
    type_url: &TypeUrl,
    shared: &DriverContext,
) -> &'a Arc<TypeMetrics> {
    let index = counters.iter().position(|(subscribed, _)| subscribed == type_url).unwrap_or_else(|| {
        counters.push((type_url.clone(), shared.metrics.of_type(type_url)));
        counters.len() - 1
    });
    &counters[index].1
}

/// The names for which the rate charges a request: those that came or went, and a part of those that a list
/// repeats.
fn names_to_pay(request: &Request, outcome: &RequestOutcome) -> usize {
    let listed = match request {
        Request::Sotw(request) => request.resource_names.len(),
        Request::Delta(_) => 0,
    };
    outcome.moved_names + listed / LISTED_PER_NAME
}

// === Responses ===

impl StreamInner {
    /// The next answer from the releases for the client.
    pub fn poll_answer(&mut self, now: Time) -> Option<(usize, Answer)> {
        let sources = &mut self.placement.sources;
        self.rejected.restate(&mut self.session, sources);
        sources.begin_look();
        self.session.poll_answer(&newest(sources), now)
    }

    /// The next message, with the index of the subscription.
    pub fn next_message(
        &mut self,
        context: &StreamContext,
        unread: &Unread,
        now: Time,
        waker: &Waker,
    ) -> Poll<Option<Result<(usize, Message), Status>>> {
        loop {
            let Some((index, answer)) = self.poll_answer(now) else {
                return Poll::Ready(None);
            };
            let Some(encoded) = ready!(self.poll_body(context, index, &answer, waker)) else { continue };
            let message = encoded.messages.get(answer.chunk);
            let version = message.map(|message| message.version).unwrap_or_default();
            let nonce = self.session.commit(
                index,
                &answer,
                encoded.messages.len(),
                version,
                &encoded.endpoints,
                &encoded.targets,
                &encoded.message_names,
                now,
            );
            self.placement.sources.note_sent(&answer, encoded.messages.len());
            changes::count_passed(&mut self.session, &self.placement.sources, context.id, index);
            self.outbox.keep(&self.session, &answer, &encoded);
            if encoded.left_out > 0 && answer.chunk == 0 {
                context.note_left_out(&answer.type_url, encoded.left_out);
            }
            let (Some(message), Some(nonce)) = (message, nonce) else { continue };
            let nonce = self.session.nonce_text(nonce);
            let mark = self.session.mark(index, &answer, encoded.messages.len());
            let compressed = match context.kind.coding {
                None => None,
                Some(coding) => compressed(coding, context, &answer.type_url, message, &nonce, mark.as_ref()),
            };
            let (private, shared) = match compressed {
                Some(parts) => parts,
                None => match response::head(&nonce, mark.as_ref(), message.body.len()) {
                    Ok(head) => (head, message.body.clone()),
                    Err(status) => return Poll::Ready(Some(Err(status))),
                },
            };
            trace!(stream = context.id, type_url = %answer.type_url, nonce, version = %version, "response");
            let bytes = private.len() + shared.len();
            self.note_message(
                context,
                &SentMessage { index, answer: &answer, encoded: &encoded, nonce: &nonce, bytes },
                now,
            );
            let delivery = Some(unread.hand_out(bytes));
            let message = Message { private, shared, delivery };
            return Poll::Ready(Some(Ok((index, message))));
        }
    }

    /// Whether some part of a subscription may not be shared.
    pub fn is_private(&self, index: usize) -> bool {
        self.placement.is_private(&self.session, index)
    }

    /// The maker of a body for the stream.
    pub fn maker(&self, context: &StreamContext, index: usize, answer: &Answer) -> Maker {
        self.placement.maker(&self.session, context, index, answer)
    }

    /// The messages of an answer. Later messages come from the body that was made for the first message.
    /// `None`: the body is gone, and the answer begins anew.
    fn poll_body(
        &mut self,
        context: &StreamContext,
        index: usize,
        answer: &Answer,
        waker: &Waker,
    ) -> Poll<Option<Arc<Encoded>>> {
        let StreamInner { session, placement, outbox, .. } = self;
        if answer.chunk > 0 {
            let body = outbox.unsent(answer);
            if body.is_none() {
                session.begin_anew(index);
            }
            return Poll::Ready(body);
        }
        let is_private = placement.is_private(session, index);
        let maker = || placement.maker(session, context, index, answer);
        outbox.poll_body(&context.shared.content.encoder, answer, is_private, maker, waker).map(Some)
    }

    /// Counts a message, and shows it to the tails.
    fn note_message(&self, context: &StreamContext, sent: &SentMessage<'_>, now: Time) {
        let SentMessage { answer, encoded, bytes, .. } = *sent;
        let Some(message) = encoded.messages.get(answer.chunk) else { return };
        if message.body.len() > MESSAGE_WARN_BYTES {
            let (names, _) = answer.some_names(&encoded.message_names, 1);
            context.note_large(answer, names.first().copied(), message.body.len());
        }
        if let Some((_, types)) = self.types.iter().find(|(type_url, _)| *type_url == answer.type_url) {
            types.response(context.kind.variant, bytes);
            types.beside(message.beats, &message.errors);
        }
        if context.shared.tails.are_open() {
            tail::show_response(context, self.node(), &self.session, sent, now);
        }
    }

    /// Since when the client owes an ACK, or waits for a name (RLY-5).
    pub fn waiting_since(&self) -> Option<Time> {
        let waits = |subscription: &Subscription| {
            let held = subscription.name_wait().map(|wait| wait.since);
            subscription.nonces.waiting_since().into_iter().chain(held).min()
        };
        self.session.subscriptions().iter().filter_map(waits).min()
    }

    /// Reports each wait for a name once, after the resource timeout of the server that has not answered
    /// (RLY-5, ADR 12). Returns when to look again.
    pub fn note_name_waits(&mut self, context: &StreamContext, now: Time) -> Option<Time> {
        let StreamInner { session, placement, .. } = self;
        let mut next: Option<Time> = None;
        for (type_url, wait) in session.name_waits().filter(|(_, wait)| wait.is_endless() && !wait.is_told) {
            let Some(source) = placement.sources.get(wait.source) else { continue };
            let server = source.serving_server();
            let due = wait.since + server.resource_timeout(type_url);
            if due > now {
                next = next.into_iter().chain([due]).min();
                continue;
            }
            wait.is_told = true;
            context.note_name_wait(type_url, &wait.name, &server.uri, placement.node());
        }
        next
    }

    /// When a stream without an answer fails if its client must not wait (RLY-4). After an answer, the end
    /// would tell the client nothing (CLI-2).
    pub fn fails_at(&self, context: &StreamContext) -> Option<Time> {
        let fails = context.peer.when_unavailable == WhenUnavailable::Fail;
        self.schedule.after_first_request(FAIL_AFTER).filter(|_| fails)
    }

    /// Whether no server is reachable and nothing is cached (RLY-4).
    pub fn is_stranded(&self, impatient: bool) -> bool {
        self.session.is_stranded(&newest(&self.placement.sources), impatient)
    }
}

/// The private and the shared part of a message for a client that reads compressed ones. `None`: the message
/// goes as it is.
fn compressed(
    coding: Coding,
    context: &StreamContext,
    type_url: &TypeUrl,
    message: &EncodedMessage,
    nonce: &str,
    mark: Option<&SetMark>,
) -> Option<(Bytes, Bytes)> {
    if type_url.is_secret() {
        return None;
    }
    response::compressed(nonce, mark, message.compressed(coding, &context.shared.metrics)?)
}

// === Moves to other sources ===

impl StreamInner {
    /// Looks whether a move to other servers is due (A71), once until [`Self::shift`], and when to look again
    /// if nothing happens before.
    pub fn follow_servers(&mut self, context: &StreamContext, now: Time) -> Look {
        self.follow(&context.shared);
        let look = self.session.look(&newest(&self.placement.sources), now);
        let is_due = look.is_due && !std::mem::replace(&mut self.is_shifting, true);
        Look { is_due, ..look }
    }

    /// Moves to other servers of the lists, or ends a move to another configuration.
    pub fn shift(&mut self, context: &StreamContext) -> Shift {
        self.is_shifting = false;
        let StreamInner { session, placement, .. } = self;
        let (sources, settings) = (placement.sources.clone(), placement.routing.newest());
        let mut routes = placement.routes_by(context, &settings);
        let mut shift = session.shift(&newest(&sources), &mut routes, context.shared.clock.now());
        placement.fallbacks.note(context, &settings.lists, &shift.moves);
        if !shift.moves.is_empty() {
            placement.sources.forget_push();
        }
        if shift.is_settled {
            shift.watches.extend(self.settle(context));
        }
        shift.watches.extend(self.adopt_unasked(context));
        shift
    }

    /// Subscribes to the resources that a control plane sends the client unasked (DEL-17). The names count
    /// like those that the client asks for. Beyond a limit they are left out, and the stream goes on.
    fn adopt_unasked(&mut self, context: &StreamContext) -> Vec<Watch> {
        let StreamInner { session, placement, names, .. } = self;
        let sources = placement.sources.clone();
        let mut routes = Routes { refused: None, ..placement.routes(context) };
        let mut charge = |bytes| names.set(STREAM_BYTES + bytes).is_ok();
        let adopted = session.adopt(&newest(&sources), &mut routes, &mut charge);
        if !adopted.watches.is_empty() {
            // Dropped names make room, and a charge for less never fails.
            let _ = names.set(STREAM_BYTES + session.names_bytes());
        }
        for (type_url, names, reason) in adopted.left_out {
            context.note_unasked_left_out(&type_url, names, reason);
        }
        adopted.watches
    }

    /// Moves the unshared names of a type to a private source (CCH-1).
    pub fn divert(&mut self, context: &StreamContext, type_url: &TypeUrl) -> Result<Vec<Watch>, Status> {
        let watches = self.session.divert(type_url, &mut self.placement.routes(context))?;
        Ok([watches, self.keep_moving(context)].concat())
    }

    /// Asks again for a place for the types of a source without room (RLY-14).
    pub fn leave(&mut self, context: &StreamContext, source: SourceId) -> Result<Vec<Watch>, Status> {
        let watches = self.session.leave(source, &mut self.placement.routes(context))?;
        Ok([watches, self.keep_moving(context)].concat())
    }

    /// Takes the configuration in force over, if the stream need not move for it. Returns false if the stream
    /// has to move. `is_alike`: whether the configuration in force routes everything as an earlier one does.
    pub fn adopt(
        &mut self,
        context: &StreamContext,
        in_force: &Arc<Epoch<DriverSettings>>,
        mut is_alike: impl FnMut(&Epoch<DriverSettings>) -> bool,
    ) -> bool {
        let StreamInner { session, placement, .. } = self;
        if placement.routing.in_use.number() >= in_force.number() {
            return true;
        }
        let knows_alike = |other: &DriverSettings, node: Option<&Node>| {
            node.is_none_or(|node| in_force.classes.know_alike(&other.classes, node))
        };
        if let Some(to) = &mut placement.routing.moving_to {
            let goes_on = is_alike(to) && knows_alike(to, placement.node.as_deref());
            if goes_on {
                *to = in_force.clone();
            }
            return goes_on;
        }
        let in_use = &placement.routing.in_use;
        let stays = is_alike(in_use) && knows_alike(in_use, placement.node())
            || !placement.routing.regroups(session, in_force)
                && placement.destinations(session, context, in_force).all(|destination| destination.stays());
        if stays {
            placement.routing.in_use = in_force.clone();
        }
        stays
    }

    /// Begins the move to the configuration in force (REL-6). The former sources serve meanwhile.
    ///
    /// # Errors
    /// The status with which a new source was refused: the stream stays with its sources.
    pub fn begin_move(
        &mut self,
        context: &StreamContext,
        in_force: Arc<Epoch<DriverSettings>>,
    ) -> Result<Vec<Watch>, Status> {
        let mut watches = Vec::new();
        if self.placement.routing.lists_other_names(&in_force) {
            // No source may be asked for names that its class does not have. So names of other rules have
            // their new source at once, and the client keeps their content until that source knows them.
            self.placement.routing.in_use = in_force.clone();
            watches = self.regroup(context);
        }
        let mut routes = self.placement.routes_by(context, &in_force);
        match self.session.reclassify(&mut routes, context.shared.clock.now()) {
            Ok(moved) => watches.extend(moved),
            Err(status) if self.placement.routing.in_use.number() != in_force.number() => return Err(status),
            // Some names have left their former sources already.
            Err(status) => {
                self.end_with(status);
                return Ok(watches);
            }
        }
        self.placement.routing.moving_to = Some(in_force);
        if self.session.is_moving() {
            self.sources_left().for_each(|source| source.note_leaving(context.session()));
        } else {
            watches.extend(self.settle(context));
        }
        Ok(watches)
    }

    /// Follows a change of the subscriptions, if the stream moves to another configuration.
    fn keep_moving(&mut self, context: &StreamContext) -> Vec<Watch> {
        let Some(mut routes) = self.placement.routes_of_move(context) else { return Vec::new() };
        match self.session.keep_moving(&mut routes, context.shared.clock.now()) {
            Ok(mut watches) => {
                if !self.session.is_moving() {
                    watches.extend(self.settle(context));
                }
                return watches;
            }
            Err(status) if is_final(&status) => self.end_with(status),
            Err(status) => context.note_stay(&status),
        }
        Vec::new()
    }

    /// Puts the configuration of the session's new sources in use.
    fn settle(&mut self, context: &StreamContext) -> Vec<Watch> {
        let routing = &mut self.placement.routing;
        let Some(to) = routing.moving_to.take() else { return Vec::new() };
        debug!(stream = context.id, generation = to.generation, "a stream moved to another configuration");
        let regroups = routing.regroups(&self.session, &to);
        routing.in_use = to;
        self.placement.fallbacks.leave_lists(&self.session);
        if regroups { self.regroup(context) } else { Vec::new() }
    }

    /// Finds the groups of all names anew.
    fn regroup(&mut self, context: &StreamContext) -> Vec<Watch> {
        let watches = self.session.regroup(&mut self.placement.routes(context));
        watches.unwrap_or_else(|status| {
            self.end_with(status);
            Vec::new()
        })
    }

    /// Whether the session is on its way to other sources than this one.
    pub fn is_leaving(&self, source: SourceId) -> bool {
        let mut parts = self.session.subscriptions().iter().flat_map(|subscription| &subscription.parts);
        self.session.is_moving() && !parts.any(|part| part.bound_for().sources().any(|to| to == source))
    }

    /// The sources that serve the session until it has moved.
    fn sources_left(&self) -> impl Iterator<Item = &Arc<SourceHandle>> {
        self.placement.sources.iter().filter(|(id, _)| self.is_leaving(*id)).map(|(_, source)| source)
    }
}

/// Whether a refused move must end the stream, rather than leave it with its sources. The other configuration
/// withholds Secrets that the client shares by the former one (IDN-5, RLY-21), or nothing tells the client
/// apart any more: a stream that stays would go on to share. Without room, a stream stays.
pub(crate) fn is_final(status: &Status) -> bool {
    matches!(status.code, Code::PermissionDenied | Code::InvalidArgument)
}
