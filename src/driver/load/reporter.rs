//! A client's stream of load reports.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::time::{Sleep, sleep_until};
use tracing::{debug, warn};

use super::clusters::{self, CLUSTER, ClusterRights};
use super::forward::ForwardedStream;
use super::groups;
use super::handle::{Arriving, LoadHandle};
use super::table::{FEATURE, FirstReporter, LOOK, Loads, ServerChoice};
use super::uplink::LoadUplink;
use crate::driver::api::downstream::{Charge, LoadStream, LoadWord};
use crate::driver::ground::context::{DriverContext, DriverSettings};
use crate::driver::ground::servers::{Attach, LoadUse, ServerList};
use crate::driver::ground::source_key::SourceKey;
use crate::driver::stream::authorization;
use crate::driver::stream::context::StreamContext;
use crate::driver::stream::inner::STREAM_BYTES;
use crate::telemetry::Limit;
use crate::telemetry::metrics::{GaugePart, RequestFate};
use sluice_engine::Time;
use sluice_engine::authority::Authority;
use sluice_engine::authorization::Grant;
use sluice_engine::class::NodeClass;
use sluice_load_reports::report::LoadReport;
use sluice_load_reports::{Asking, Reporter, StreamId, Wish, read_report};
use sluice_wire::frame::framed;
use sluice_wire::{ReaderLimits, read_node};
use sluice_xds::{Code, Node, RelayPath, Status};

/// A class of the client at a list of servers.
struct LoadSeat {
    choice: Arc<ServerChoice>,
    authorities: Vec<Authority>,
    /// The server in the list that takes the reports.
    position: u16,
    /// `None`: the server takes no sums, or there is no room.
    load: Option<Arc<LoadHandle>>,
}

impl LoadSeat {
    /// The source of the class at the server that takes the reports.
    fn source(&self) -> Option<&SourceKey> {
        self.choice.source(self.position)
    }
}

/// The state in which the seats were chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Basis {
    settings: u64,
    policy: u64,
    is_dropped: bool,
    /// Servers take the reports of clients as they are.
    forwards: bool,
}

/// The client, once its first message was read.
struct ReportingClient {
    /// Shared with a stream of discovery of the same connection, with or without the feature of load reports.
    node: Arc<Node>,
    /// The client has the feature on this stream.
    has_feature: bool,
    grant: Arc<Grant>,
    seats: Vec<LoadSeat>,
    /// The client has reported a cluster with an authority.
    has_xdstp: bool,
    /// `None` before the first look.
    basis: Option<Basis>,
    /// The first answer may leave then (LRS-20).
    admitted_at: Time,
    /// A class without room is looked for again then.
    retry_at: Option<Time>,
}

/// A stream of a client. Its reports are summed, or forwarded, or dropped.
pub struct ReportingStream {
    context: StreamContext,
    loads: Arc<Loads>,
    machine: Reporter,
    client: Option<Box<ReportingClient>>,
    waker: Arc<AtomicWaker>,
    timer: Option<Pin<Box<Sleep>>>,
    is_dropped: bool,
    /// The server takes the client's reports as they are.
    forwarded: Option<Box<ForwardedStream>>,
    end: Option<Status>,
    charge: Charge,
    _counted: GaugePart,
}

impl ReportingStream {
    /// # Errors
    /// The connection has no memory left in its budget.
    pub fn new(context: StreamContext, loads: Arc<Loads>) -> Result<ReportingStream, Status> {
        let shared = &context.shared;
        let mut charge = Charge::new(&context.peer.connection);
        charge.set(STREAM_BYTES).inspect_err(|_| shared.metrics.limit_hit(Limit::ConnectionBytes))?;
        let waker = Arc::<AtomicWaker>::default();
        loads.register(context.id, &waker);
        Ok(ReportingStream {
            machine: Reporter::new(fastrand::u64(..), shared.clock.now()),
            client: None,
            waker,
            timer: None,
            is_dropped: false,
            forwarded: None,
            end: None,
            charge,
            _counted: shared.metrics.downstream.load_reporter(),
            loads,
            context,
        })
    }

    fn id(&self) -> StreamId {
        StreamId(self.context.id)
    }

    /// Opens a stream of the client's own, if the server of its class wants that.
    fn forward(&self, now: Time) -> Option<ForwardedStream> {
        let shared = &self.context.shared;
        let (client, settings) = (self.client.as_ref()?, shared.settings());
        let list = settings.lists.route(&CLUSTER, Authority::None);
        let class = client.class_at(&settings, list, Authority::None, &self.context, &self.loads).ok()?;
        let position = self.loads.position(&self.loads.choice(list, class), list, now);
        let server = list.at(position).server();
        match (&server.attach, server.load) {
            (Attach::Grpc { pool, .. }, Some(LoadUse::Forward)) if !self.is_dropped => {
                let relays = self.context.peer.relays.as_deref();
                let relays = RelayPath::through(relays, &shared.process.relay_id);
                let uplink = LoadUplink::open(pool, &relays, &server.uri, &shared.metrics);
                Some(ForwardedStream::new(uplink))
            }
            _ => None,
        }
    }

    /// Takes the first message's node.
    fn begin(&mut self, report: &LoadReport<'_>, limits: &ReaderLimits, now: Time) -> Result<(), Status> {
        let shared = &self.context.shared;
        let mut node = report.node.map_or_else(|| Ok(Node::default()), |node| read_node(node, limits))?;
        for key in shared.settings().classes.reserved_keys() {
            node.metadata.remove(key);
        }
        debug!(stream = self.context.id, node = node.id, "a stream of load reports started");
        // LRS-20: as first answers of other streams.
        let admitted_at = now + shared.first_answer_in(&self.context.peer.listener, now);
        let has_feature = node.client_features.iter().any(|feature| feature == FEATURE);
        let is_same = |other: &Arc<Node>| **other == node || **other == *featured(&node, false);
        let shared_node = self.context.peer.connection.node().filter(is_same);
        self.client = Some(Box::new(ReportingClient {
            node: shared_node.unwrap_or_else(|| Arc::new(node)),
            has_feature,
            grant: Grant::nothing(),
            seats: Vec::new(),
            has_xdstp: false,
            basis: None,
            admitted_at,
            retry_at: None,
        }));
        self.follow(now)
    }

    /// Takes the configuration and the policy in force over. Mostly a comparison of two numbers.
    ///
    /// # Errors
    /// The client may not have a stream any more.
    fn follow(&mut self, now: Time) -> Result<(), Status> {
        let shared = self.context.shared.clone();
        let basis = Basis {
            settings: shared.settings_number(),
            policy: shared.policy().number(),
            is_dropped: self.is_dropped,
            forwards: !self.is_dropped && shared.settings().lists.forward_load(),
        };
        let Some(client) = &mut self.client else { return Ok(()) };
        let is_retry = client.retry_at.is_some_and(|at| at <= now);
        if client.basis == Some(basis) && !is_retry && !client.wants_another_server(&shared, &self.loads, now)
        {
            return Ok(());
        }
        let before = client.basis.replace(basis);
        let settings = shared.settings();
        // The first message is gone, so no stream of the client's own could begin.
        if before.is_some_and(|before| before.forwards != basis.forwards) {
            let text = "the relay has another use for load reports; report again";
            return Err(Status::new(Code::Unavailable, text));
        }
        if !self.is_dropped && !settings.lists.take_load() && shared.once.load.is_first_drop() {
            warn!(listener = %self.context.peer.listener,
                "clients send load reports, and no server takes them; keeping the streams, dropping the reports; `lrs` of a server \
                says where they go, and `load_reports` of the listener drops or refuses them");
        }
        if self.is_dropped || !settings.lists.take_load() {
            self.leave_all(now);
            return Ok(());
        }
        let Some(client) = &mut self.client else { return Ok(()) };
        if before != Some(basis) {
            client.grant = authorization::decide(&self.context, Some(&client.node))?;
        }
        client.take_seats(&self.context, &self.loads, &self.waker, &settings, now)
    }

    fn leave_all(&mut self, now: Time) {
        let id = self.id();
        self.client.iter_mut().for_each(|client| client.retry_at = None);
        let seats = self.client.as_mut().map(|client| std::mem::take(&mut client.seats));
        seats.into_iter().flatten().filter_map(|seat| seat.load).for_each(|load| {
            load.leave(id, now);
        });
    }

    /// Counts a report at the servers of its clusters (LRS-15, LRS-22).
    ///
    /// # Errors
    /// The client has no class for a name.
    fn count(&mut self, report: &LoadReport<'_>, now: Time) -> Result<(), Status> {
        let (id, shared) = (self.id(), &self.context.shared);
        let (Some(client), metrics) = (&mut self.client, &shared.metrics.load) else { return Ok(()) };
        let settings = shared.settings();
        self.loads.look_for_room(now);
        let has_xdstp = report.clusters.iter().any(|cluster| clusters::is_xdstp(cluster.name));
        if has_xdstp && !client.has_xdstp && !client.seats.is_empty() {
            client.has_xdstp = true;
            client.take_seats(&self.context, &self.loads, &self.waker, &settings, now)?;
        }
        let sees_all = clusters::may_see_all(&client.grant);
        let is_listed = settings.classes.list_names();
        let mut counted = 0u64;
        for (seat, load) in client.seats.iter().filter_map(|seat| Some((seat, seat.load.as_ref()?))) {
            let is_here = |cluster: &str| {
                let authority = clusters::authority_of(&settings, &client.node, cluster);
                seat.authorities.contains(&authority)
            };
            // Mostly no name needs a look.
            let takes_all = !has_xdstp && !is_listed && seat.authorities.contains(&Authority::None);
            let takes = |cluster: &str| {
                (sees_all || clusters::may_see(&client.grant, cluster)) && (takes_all || is_here(cluster))
            };
            let group = groups::group(&self.context, &load.facts, &client.node);
            counted = counted.saturating_add(load.report(id, group, report, takes, shared));
        }
        let rows = report.clusters.iter().flat_map(|cluster| &cluster.localities);
        let finished = rows.map(|row| row.counters.finished()).fold(0, u64::saturating_add);
        let unrouted = finished.saturating_sub(counted);
        metrics.requests.inc_by(unrouted);
        metrics.fate(RequestFate::Unrouted, unrouted);
        Ok(())
    }

    /// The charge for the stream and its gauges. Gives the bytes of the gauges.
    fn charge(&mut self) -> Result<usize, Status> {
        let (id, seats) = (self.id(), self.client.iter().flat_map(|client| &client.seats));
        let gauges: usize =
            seats.filter_map(|seat| seat.load.as_ref()).map(|load| load.gauge_bytes(id)).sum();
        let metrics = &self.context.shared.metrics;
        let charged = self.charge.set(STREAM_BYTES + gauges);
        charged.inspect_err(|_| metrics.limit_hit(Limit::ConnectionBytes)).map(|()| gauges)
    }

    /// The answer to send now, if any.
    fn answer(&mut self, now: Time) -> Option<Bytes> {
        let client = self.client.as_ref().filter(|client| now >= client.admitted_at)?;
        let classes = client.seats.iter().filter_map(LoadSeat::source).collect();
        let rights = ClusterRights {
            grant: &client.grant,
            sources: self.loads.sources(),
            lists: self.loads.lists(),
            classes,
        };
        let (wish, number) = client.wish(&rights, self.machine.takes_all());
        let asking = Asking { wish: wish.as_ref(), number, client: &rights };
        let answer = self.machine.poll_answer(asking, now)?;
        framed(&answer)
    }

    fn next_look(&self, now: Time) -> Option<Time> {
        let client = self.client.as_ref()?;
        let next =
            if now < client.admitted_at { Some(client.admitted_at) } else { self.machine.poll_timeout() };
        [next, client.retry_at].into_iter().flatten().min()
    }
}

/// The node with the feature of load reports, or without.
fn featured(node: &Node, has_feature: bool) -> Cow<'_, Node> {
    let place = node.client_features.binary_search_by(|feature| feature.as_str().cmp(FEATURE));
    if place.is_ok() == has_feature {
        return Cow::Borrowed(node);
    }
    let mut other = node.clone();
    match place {
        Ok(place) => drop(other.client_features.remove(place)),
        Err(place) => other.client_features.insert(place, FEATURE.to_owned()),
    }
    Cow::Owned(other)
}

impl ReportingClient {
    /// The client's class for names at a list. The feature of load reports is no part of a class: gRPC has it
    /// on this stream alone, and Envoy on all of its streams. So whichever class has a source is meant.
    fn class_at(
        &self,
        settings: &DriverSettings,
        list: &ServerList,
        authority: Authority,
        context: &StreamContext,
        loads: &Loads,
    ) -> Result<NodeClass, Status> {
        let classify = |node: &Node| {
            let (names, server) = (authority.names(), list.at(0).server());
            settings.classify(Some(node), &context.peer.identity, &CLUSTER, names, server)
        };
        let class = classify(&featured(&self.node, false))?;
        if !self.has_feature || loads.have_source(list, &class) {
            return Ok(class);
        }
        let other = classify(&featured(&self.node, true))?;
        Ok(if loads.have_source(list, &other) { other } else { class })
    }

    /// Finds the loads of the client's classes. Gauges move with the client (ADR 36).
    fn take_seats(
        &mut self,
        context: &StreamContext,
        loads: &Loads,
        waker: &Arc<AtomicWaker>,
        settings: &DriverSettings,
        now: Time,
    ) -> Result<(), Status> {
        let id = StreamId(context.id);
        let mut seats: Vec<(LoadSeat, &ServerList)> = Vec::new();
        for authority in clusters::authorities(settings, &self.node, self.has_xdstp) {
            let list = settings.lists.route(&CLUSTER, authority);
            let class = self.class_at(settings, list, authority, context, loads)?;
            let choice = loads.choice(list, class);
            match seats.iter_mut().find(|(seat, _)| Arc::ptr_eq(&seat.choice, &choice)) {
                Some((seat, _)) => seat.authorities.push(authority),
                None => {
                    let position = loads.position(&choice, list, now);
                    seats.push((
                        LoadSeat { choice, authorities: vec![authority], position, load: None },
                        list,
                    ));
                }
            }
        }
        let is_again = self.retry_at.take().is_some();
        let first = FirstReporter { peer: &context.peer, node: &self.node, is_again };
        let arriving = Arriving { waker, connection: context.peer.connection.number() };
        let mut earlier = std::mem::replace(&mut self.seats, Vec::with_capacity(seats.len()));
        for (mut seat, list) in seats {
            let listed = list.at(seat.position);
            seat.load = seat.source().and_then(|source| loads.get(listed, &source.class, &first, now));
            if seat.load.is_none() && listed.server().load.is_some_and(|load| load != LoadUse::Forward) {
                self.retry_at = Some(now + LOOK);
            }
            let is_same = |other: &LoadSeat| other.choice.is_same_class(&seat.choice);
            // A client whose class changes has a seat for the same names.
            let before = earlier.iter().position(is_same);
            let before =
                before.or_else(|| earlier.iter().position(|other| other.authorities == seat.authorities));
            let before = before.and_then(|before| earlier.swap_remove(before).load);
            let both = before.as_ref().zip(seat.load.as_ref());
            if !both.is_some_and(|(one, other)| Arc::ptr_eq(one, other)) {
                let departure = before.map(|before| before.leave(id, now)).unwrap_or_default();
                seat.load.iter().for_each(|load| load.arrive(id, &arriving, departure.clone(), now));
            }
            self.seats.push(seat);
        }
        earlier.into_iter().filter_map(|seat| seat.load).for_each(|load| {
            load.leave(id, now);
        });
        Ok(())
    }

    /// Whether another server of some list serves most streams of the class by now.
    fn wants_another_server(&self, shared: &DriverContext, loads: &Loads, now: Time) -> bool {
        let settings = shared.settings();
        self.seats.iter().any(|seat| {
            let list = settings.lists.all_lists().find(|list| list.key() == seat.choice.list);
            list.is_some_and(|list| loads.position(&seat.choice, list, now) != seat.position)
        })
    }

    /// The wish of all servers together (RLY-69), with a number for everything that shapes the answer. `None`
    /// before the first word of a server.
    fn wish(&self, rights: &ClusterRights<'_>, takes_all: bool) -> (Option<Wish>, u64) {
        let mut hasher = DefaultHasher::new();
        self.basis.hash(&mut hasher);
        let mut wishes = Vec::new();
        let loads = || self.seats.iter().filter_map(|seat| seat.load.as_ref());
        for load in loads() {
            let numbered = load.wish();
            (load.facts.number, numbered.number).hash(&mut hasher);
            wishes.push(numbered);
        }
        // LRS-19: a client without a word for "all" is told the clusters of its classes.
        if !takes_all || !clusters::may_see_all(rights.grant) {
            for source in self.seats.iter().filter_map(|seat| rights.sources.find(seat.source()?)) {
                source.shown_change().hash(&mut hasher);
            }
        }
        let wish = match wishes.is_empty() {
            // LRS-21: nobody takes reports.
            true => Some(Wish::nothing()),
            false => Wish::merged(wishes.iter().filter_map(|numbered| numbered.wish.as_ref())),
        };
        (wish, hasher.finish())
    }
}

impl LoadStream for ReportingStream {
    fn set_dropped(&mut self, is_dropped: bool) {
        self.is_dropped = is_dropped;
    }

    fn arrived(&mut self, bytes: usize, limits: &ReaderLimits) -> Result<(), Status> {
        let max = limits.request_bytes;
        if self.machine.arrived(bytes, max, self.context.shared.clock.now()) {
            return Ok(());
        }
        self.context.shared.metrics.limit_hit(Limit::RequestBytes);
        let text = format!(
            "more than {max} bytes of load reports in an interval; the limit is limits.request_bytes"
        );
        Err(Status::new(Code::ResourceExhausted, text))
    }

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<()> {
        // `poll_word` is polled before, and hears of the room.
        match self.forwarded.as_ref().is_some_and(|forwarded| forwarded.is_sending()) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    fn report(&mut self, message: Bytes, limits: &ReaderLimits) -> Result<(), Status> {
        let now = self.context.shared.clock.now();
        self.context.shared.metrics.load.reports.inc();
        if self.forwarded.is_some() {
            self.follow(now)?;
            self.forwarded.iter_mut().for_each(|forwarded| forwarded.report(&message));
            return Ok(());
        }
        let mut report = match read_report(&message) {
            Ok(report) => report,
            // A dropped report need not be readable.
            Err(_) if self.is_dropped => LoadReport::default(),
            Err(error) => {
                return Err(Status::new(Code::InvalidArgument, format!("a load report: {error}")));
            }
        };
        report.cut();
        match self.client {
            None => {
                self.begin(&report, limits, now)?;
                if let Some(mut forwarded) = self.forward(now) {
                    forwarded.report(&message);
                    self.forwarded = Some(Box::new(forwarded));
                    return Ok(());
                }
            }
            Some(_) => self.follow(now)?,
        }
        self.count(&report, now)?;
        self.machine.reported(&report, now);
        // A report walks over all gauges of the stream. A report that is smaller than the gauges counts as if
        // it had their size: else a few bytes could cost a long walk, again and again.
        let walked = self.charge()?;
        self.arrived(walked.saturating_sub(message.len()), limits)
    }

    fn half_close(&mut self) {
        match &self.forwarded {
            // The server has the last word.
            Some(forwarded) => forwarded.half_close(),
            None => {
                self.end.get_or_insert_with(Status::ok);
            }
        }
    }

    fn poll_word(&mut self, context: &mut Context<'_>) -> Poll<LoadWord> {
        loop {
            // Before the looks, so that no change is missed.
            self.waker.register(context.waker());
            let now = self.context.shared.clock.now();
            if let Err(status) = self.follow(now) {
                self.end.get_or_insert(status);
            }
            if let Some(status) = &self.end {
                return Poll::Ready(LoadWord::End(status.clone()));
            }
            if let Some(forwarded) = &mut self.forwarded {
                return forwarded.poll_word(context);
            }
            if let Some(answer) = self.answer(now) {
                return Poll::Ready(LoadWord::Answer(answer));
            }
            let Some(next) = self.next_look(now) else {
                self.timer = None;
                return Poll::Pending;
            };
            let at = self.context.shared.clock.instant(next);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for ReportingStream {
    fn drop(&mut self) {
        self.loads.forget(self.context.id);
        self.leave_all(self.context.shared.clock.now());
    }
}
