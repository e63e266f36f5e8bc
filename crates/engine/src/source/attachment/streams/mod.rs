//! The upstream streams of a source, and the stream of each collection.

mod doubts;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use imbl::OrdSet;

use crate::Time;
use crate::collection::CollectionKind;
use crate::commons::{Commons, ContentKey};
use crate::reachability::Reachability;
use crate::snapshot::AnsweredParts;
use crate::source::api::StreamIndex;
use crate::source::attachment::doubt::TypeDoubt;
use crate::source::attachment::suspect::{SuspectType, SuspectTypes};
use crate::upstream::{
    Event, Hold, Input, LinkState, Output, ResourceSelection, Resumed, SOON, Transport, Upstream,
    UpstreamSettings,
};
use sluice_xds::{ResourceName, Response, Service, Status, TypeUrl, Variant};

/// A suspect whose stream stays open this long is cleared, because a faulty type ends the stream within
/// [`SOON`]. The extra second separates the suspect's return from the other types of the shared stream, which
/// were requested at its opening.
const STAYS: Duration = SOON.saturating_add(Duration::from_secs(1));

/// A silent suspect on an open stream lets the next suspect try after this time: a faulty type usually ends
/// the stream sooner.
const TURN: Duration = Duration::from_secs(1);

/// The upstream streams of a source.
///
/// An aggregated source has at most three streams, and nearly always a single stream. If sessions want more
/// than one of wildcard, globs and names of a type, the later ones are on another stream, so that they never
/// mix (RLY-13, RLY-19). Per type, and in REST, each type has a stream for each of the three.
#[derive(Debug)]
pub struct Streams {
    pub(super) settings: UpstreamSettings,
    machines: Vec<Machine>,
    /// The streams that carry the wildcard, the globs or the names of a type.
    placed: BTreeMap<(TypeUrl, CollectionKind), StreamIndex>,
    /// Aggregated: types for which the server ended a stream.
    suspects: SuspectTypes,
    /// Aggregated: types for which the server was silent about names.
    doubts: BTreeMap<TypeUrl, TypeDoubt>,
    /// The state of the connection. Maintained where the streams of types may be lost one by one.
    connection: Reachability,
    /// Outputs for the driver, before those of the machines.
    outputs: VecDeque<(StreamIndex, Output)>,
}

#[derive(Debug)]
struct Machine {
    /// The type of the stream; `None`: all types.
    type_url: Option<TypeUrl>,
    /// The suspect that this stream carries alone.
    alone: Option<TypeUrl>,
    /// The type of which this stream carries some names for a trial.
    tries: Option<TypeUrl>,
    upstream: Upstream,
}

impl Machine {
    fn new(type_url: Option<TypeUrl>, upstream: Upstream) -> Machine {
        Machine { type_url, alone: None, tries: None, upstream }
    }

    /// The stream carries neither a suspect alone nor names for a trial.
    fn is_shared(&self) -> bool {
        self.alone.is_none() && self.tries.is_none()
    }
}

impl Streams {
    pub fn new(settings: UpstreamSettings) -> Streams {
        let (machines, placed, suspects, doubts, connection, outputs) = Default::default();
        Streams { settings, machines, placed, suspects, doubts, connection, outputs }
    }

    /// Takes other settings of the same server over.
    pub fn configure(&mut self, settings: UpstreamSettings) {
        let node_bytes = self.settings.node_bytes;
        self.settings = UpstreamSettings { node_bytes, ..settings };
        self.pass_on();
    }

    /// Notes the length of the node, which takes room in the first request of each stream.
    pub fn set_node_bytes(&mut self, node_bytes: usize) {
        self.settings.node_bytes = node_bytes;
        self.pass_on();
    }

    fn pass_on(&mut self) {
        for index in 0..self.machines.len() {
            let of_type = self.machines.get(index).and_then(|machine| machine.type_url.clone());
            let settings = match &of_type {
                Some(type_url) => self.settings_of(type_url),
                None => Some(self.settings.clone()),
            };
            if let (Some(machine), Some(settings)) = (self.machines.get_mut(index), settings) {
                machine.upstream.configure(settings);
            }
        }
    }

    /// The hold of a response that removes most of a type (FU18).
    pub fn mass_deletion_hold(&self) -> Option<Hold> {
        self.settings.mass_deletion_hold
    }

    /// Returns false if the server can't be asked for this type: there is no service, or none of this kind
    /// (RPC-2, RPC-9). The names stay unknown, because no server declares them absent (RLY-2).
    pub fn subscribe(&mut self, type_url: &TypeUrl, selection: ResourceSelection, now: Time) -> bool {
        let Some(selection) = self.try_first(type_url, selection, now) else { return true };
        let key = (type_url.clone(), selection.kind());
        let index = match self.placed.get(&key) {
            Some(index) => *index,
            None => {
                let Some(index) = self.place_suspect(type_url, now).or_else(|| self.place(type_url)) else {
                    return false;
                };
                self.placed.insert(key, index);
                index
            }
        };
        self.agree_on_server(now);
        if let Some(machine) = self.machine(index) {
            machine.subscribe(type_url, selection, now);
        }
        true
    }

    /// Subscribes again as before the restart of the relay. Returns false as for [`Streams::subscribe`].
    pub fn resume(&mut self, type_url: &TypeUrl, resumed: Resumed, now: Time) -> bool {
        self.trust(type_url, now);
        if !self.subscribe(type_url, resumed.selection(), now) {
            return false;
        }
        let index = self.placed(type_url, resumed.selection().kind());
        if let Some(machine) = index.and_then(|index| self.machine(index)) {
            machine.resume(type_url, resumed, now);
        }
        true
    }

    /// Tells the server of clients that reject resources of a type; see [`Upstream::report_rejections`].
    pub fn report_rejections(&mut self, type_url: &TypeUrl, words: &str, now: Time) -> bool {
        // The names first, which most types are asked by.
        let kinds = CollectionKind::ALL.into_iter().rev();
        let placed: Vec<_> = kinds.filter_map(|kind| self.placed(type_url, kind)).collect();
        placed.into_iter().any(|index| {
            let machine = self.machine(index);
            machine.is_some_and(|machine| machine.report_rejections(type_url, words, now))
        })
    }

    /// The server's versions of the held resources of a collection; see [`Upstream::versions`].
    pub fn versions(&self, type_url: &TypeUrl, kind: CollectionKind) -> Vec<(ResourceName, Box<str>)> {
        let machine = self.placed(type_url, kind).and_then(|index| self.machines.get(index));
        machine.map(|machine| machine.upstream.versions(type_url)).unwrap_or_default()
    }

    /// Takes equal answers of other sources' servers over. `content`: the content of this collection.
    pub(in crate::source) fn share(
        &mut self,
        type_url: &TypeUrl,
        kind: CollectionKind,
        content: ContentKey,
        commons: &dyn Commons,
    ) {
        if let Some(machine) = self.placed(type_url, kind).and_then(|index| self.machine(index)) {
            machine.share(type_url, content, commons);
        }
    }

    /// Finds a stream for a collection that has none, or makes a stream. Streams stay after their last
    /// subscription: closed streams cost nothing, and their number is bounded by the number of types that
    /// have a service.
    fn place(&mut self, type_url: &TypeUrl) -> Option<StreamIndex> {
        let of_type = match self.settings.transport {
            Transport::Aggregated => None,
            _ => Some(type_url.clone()),
        };
        let settings = if of_type.is_some() { self.settings_of(type_url)? } else { self.settings.clone() };
        let is_taken = |index: StreamIndex| self.kind_of(index, type_url).is_some();
        let mut machines = self.machines.iter().enumerate();
        let free = machines
            .find(|(index, machine)| machine.type_url == of_type && machine.is_shared() && !is_taken(*index));
        let free = free.map(|(index, _)| index);
        Some(free.unwrap_or_else(|| {
            // Nearly always the only one.
            self.machines.reserve_exact(1);
            self.machines.push(Machine::new(of_type, Upstream::new(settings)));
            self.machines.len() - 1
        }))
    }

    /// All streams of a source stay with the primary server once the server has answered on any stream
    /// (FBK-20).
    pub fn agree_on_server(&mut self, now: Time) {
        if self.settings.failover && self.machines.iter().any(|machine| machine.upstream.stays_with_primary())
        {
            let others = self.machines.iter_mut().filter(|machine| !machine.upstream.stays_with_primary());
            others.for_each(|machine| machine.upstream.stay_with_primary(now));
        }
    }

    /// The settings of a stream of one type; `None` if its service does not exist.
    fn settings_of(&self, type_url: &TypeUrl) -> Option<UpstreamSettings> {
        let service = Service::of_type(type_url)?;
        let sotw = service.stream_path(Variant::Sotw).is_some();
        let exists = match self.settings.transport {
            Transport::Rest { .. } => service.rest_path().is_some(),
            _ => sotw || self.settings.variant == Variant::Delta,
        };
        let fall_back_to_sotw = self.settings.fall_back_to_sotw && sotw;
        exists.then(|| UpstreamSettings { fall_back_to_sotw, ..self.settings.clone() })
    }

    /// `last`: no session wants any part of this collection now.
    pub fn unsubscribe(&mut self, type_url: &TypeUrl, selection: ResourceSelection, last: bool, now: Time) {
        let key = (type_url.clone(), selection.kind());
        let Some(index) = self.placed.get(&key).copied() else { return };
        let selection = self.leave_apart(type_url, selection, last, now);
        if last {
            self.placed.remove(&key);
        }
        let is_alone = self.is_alone(index);
        if let Some(machine) = self.machine(index) {
            machine.unsubscribe(type_url, selection, now);
            // A type that comes back may have another stream by then.
            if is_alone {
                machine.close_idle(now);
            }
        }
        self.forget_connection();
    }

    /// The type whose service a stream uses; `None` for an aggregated stream.
    pub fn type_of(&self, index: StreamIndex) -> Option<&TypeUrl> {
        self.machines.get(index)?.type_url.as_ref()
    }

    /// The kind of a type's collection on a stream.
    pub fn kind_of(&self, index: StreamIndex, type_url: &TypeUrl) -> Option<CollectionKind> {
        let mut here = self.placed.iter().filter(|(_, at)| **at == index);
        here.find(|((placed, _), _)| placed == type_url).map(|((_, kind), _)| *kind)
    }

    /// Whether what a response leaves out does not exist (SST-1, SST-2, RST-12).
    pub(in crate::source) fn is_full_state(&self, response: &Response) -> bool {
        let is_polled = matches!(self.settings.transport, Transport::Rest { .. });
        is_polled || matches!(response, Response::Sotw(_)) && response.type_url().is_full_state()
    }

    /// The stream that carries the wildcard, the globs or the names of a type.
    pub fn placed(&self, type_url: &TypeUrl, kind: CollectionKind) -> Option<StreamIndex> {
        self.placed.get(&(type_url.clone(), kind)).copied()
    }

    /// Whether all streams that carry parts of a type are current.
    pub fn is_current(&self, type_url: &TypeUrl) -> bool {
        let kinds = [CollectionKind::Wildcard, CollectionKind::Globs, CollectionKind::Names];
        let placed = kinds.into_iter().filter_map(|kind| self.placed(type_url, kind));
        let mut machines = placed.filter_map(|index| self.machines.get(index)).peekable();
        machines.peek().is_some() && machines.all(|machine| machine.upstream.is_current(type_url))
    }

    /// The current part of a type that is not current as a whole; `None` if no part is.
    pub(in crate::source) fn answered(&self, type_url: &TypeUrl) -> Option<AnsweredParts> {
        let upstream = |kind| {
            let machine = self.placed(type_url, kind).and_then(|index| self.machines.get(index));
            machine.map(|machine| &machine.upstream)
        };
        let is_current = |kind| upstream(kind).is_some_and(|upstream| upstream.is_current(type_url));
        let answered = AnsweredParts {
            wildcard: is_current(CollectionKind::Wildcard),
            globs: is_current(CollectionKind::Globs),
            unanswered: match is_current(CollectionKind::Names) {
                true => Some(OrdSet::new()),
                false => upstream(CollectionKind::Names)
                    .and_then(|upstream| upstream.unanswered_names(type_url))
                    .cloned(),
            },
        };
        answered.says_anything().then_some(answered)
    }

    /// Whether the wildcard counts as whole, and may have more members.
    pub(in crate::source) fn is_provisional(&self, type_url: &TypeUrl) -> bool {
        let machine =
            self.placed(type_url, CollectionKind::Wildcard).and_then(|index| self.machines.get(index));
        machine.is_some_and(|machine| machine.upstream.is_provisional(type_url))
    }

    /// The time since when the server has no service for a type, and the server's status.
    pub fn not_served(&self, type_url: &TypeUrl) -> Option<(Time, &Status)> {
        let of_type = self.machines.iter().filter(|machine| machine.type_url.as_ref() == Some(type_url));
        of_type.filter_map(|machine| machine.upstream.unserved()).min_by_key(|(since, _)| *since)
    }

    pub fn machine(&mut self, index: StreamIndex) -> Option<&mut Upstream> {
        self.machines.get_mut(index).map(|machine| &mut machine.upstream)
    }

    pub fn machines(&self) -> impl Iterator<Item = (StreamIndex, &Upstream)> {
        self.machines.iter().enumerate().map(|(index, machine)| (index, &machine.upstream))
    }

    pub fn machines_mut(&mut self) -> impl Iterator<Item = (StreamIndex, &mut Upstream)> {
        self.machines.iter_mut().enumerate().map(|(index, machine)| (index, &mut machine.upstream))
    }

    /// The server sets marks on some stream (ADR 14).
    pub fn has_marks(&self) -> bool {
        self.machines.iter().any(|machine| machine.upstream.has_marks())
    }

    /// The next output of the first stream with output.
    pub fn poll_output(&mut self) -> Option<(StreamIndex, Output)> {
        self.outputs.pop_front().or_else(|| {
            self.machines_mut().find_map(|(index, machine)| Some((index, machine.poll_output()?)))
        })
    }
}

/// Whether a server can be heard, as a whole and for one type (ADR 18).
///
/// The end of an aggregated stream concerns every type. Where each type has streams, or polls, of its own, a
/// single type may fail alone (RLY-25, RLY-40). Two cases differ then (CLI-1): without a connection the
/// server is lost for all types; a stream that ends before its first response loses its own type.
impl Streams {
    fn is_by_type(&self) -> bool {
        self.settings.transport != Transport::Aggregated
    }

    /// Records the state of the connection, which the streams of all types share.
    fn note_connection(&mut self, input: &Input, now: Time) {
        match input {
            Input::ConnectFailed { status } if self.is_by_type() => {
                self.connection.lose(status.clone(), now);
            }
            Input::Received(_) | Input::Unchanged | Input::Ended { .. } => self.connection.hear(now),
            // A poll begins before there is a connection.
            Input::Opened if !matches!(self.settings.transport, Transport::Rest { .. }) => {
                self.connection.hear(now);
            }
            _ => {}
        }
    }

    /// A failed attempt counts as long as some stream is attempted. Without attempts the state of the
    /// connection says nothing about the next one (CLI-1, FBK-21), and the open streams show by themselves
    /// whether the server can be heard.
    fn forget_connection(&mut self) {
        let is_rest = matches!(self.settings.transport, Transport::Rest { .. });
        let attempts = |machine: &Machine| match is_rest {
            // Each poll is an attempt.
            true => !machine.upstream.is_idle(),
            false => machine.upstream.is_attempting(),
        };
        if !self.machines.iter().any(attempts) {
            self.connection = Reachability::Pending;
        }
    }

    /// Whether the server can be heard at all. A lost stream of all types means a lost server (CLI-1). A lost
    /// stream of a single type does not, as long as there are others.
    pub fn reach(&self) -> Reachability {
        let shared = || self.machines.iter().filter(|machine| machine.is_shared()).filter(is_used);
        if !self.is_by_type() {
            return match shared().next() {
                Some(_) => combined(shared()),
                // Streams of suspects count only if there are no others.
                None => combined(self.machines.iter().filter(is_used)),
            };
        }
        if shared().next().is_some() && self.connection.is_lost() {
            return self.connection.clone();
        }
        let reaches = || shared().map(|machine| machine.upstream.reach());
        let heard = reaches().filter(|reach| reach.is_heard()).filter_map(Reachability::since).max();
        match heard {
            Some(since) => Reachability::Heard { since },
            None if reaches().all(Reachability::is_lost) => combined(shared()),
            None => Reachability::Pending,
        }
    }

    /// Whether the server can be heard for this type; `None` if the type shares a stream with others.
    pub(in crate::source) fn reach_of(&self, type_url: &TypeUrl) -> Option<Reachability> {
        let streams = || self.machines.iter().filter(|machine| machine.type_url.as_ref() == Some(type_url));
        let is_cut_off = self.connection.is_lost() && streams().any(|machine| is_used(&machine));
        self.is_by_type()
            .then(|| if is_cut_off { self.connection.clone() } else { combined(streams().filter(is_used)) })
    }
}

/// Isolates types for which a server ends the stream: they are requested on streams of their own (ADR 15).
///
/// ```text
///                 ends soon after T was asked               stays open for 6 s
///   with others ─────────────────────────────▶ alone ──────────────────────────▶ with others
///                                              │   ▲
///                                              └───┘ ends again: backoff, clients are told
/// ```
///
/// The stream of the others opens at once, without the suspect. SuspectTypes are tried in sequence, so that
/// there is one stream of unknown effect at a time. The suspect's resources stay: the subscription moves with
/// its versions.
impl Streams {
    pub fn handle(&mut self, index: StreamIndex, input: Input, now: Time) {
        let may_blame = self.is_settled(index);
        self.note_connection(&input, now);
        let Some(machine) = self.machines.get_mut(index) else { return };
        match input {
            Input::Ended { status, jitter } if may_blame => {
                let blamed = machine.upstream.handle_end(status.clone(), jitter, now);
                for type_url in &blamed {
                    self.isolate(index, type_url, &status, now);
                }
                if let Some(machine) = self.machine(index).filter(|_| !blamed.is_empty()) {
                    machine.handle_timeout(now);
                }
            }
            Input::Ended { status, jitter } => {
                let alone = machine.alone.clone();
                let unanswered = alone.filter(|type_url| !machine.upstream.has_answered(type_url));
                machine.upstream.handle(Input::Closed { status: status.clone(), jitter }, now);
                if let Some(type_url) = unanswered {
                    self.note_end_alone(index, &type_url, &status, now);
                }
            }
            input => machine.upstream.handle(input, now),
        }
        self.open_in_turn(now);
        self.look_into_doubts(now);
        self.forget_connection();
    }

    /// Only a stream with several types can be blamed on a type, and only without failover to another server.
    fn is_settled(&self, index: StreamIndex) -> bool {
        let is_settled = |machine: &Machine| {
            machine.is_shared() && (!self.settings.failover || machine.upstream.stays_with_primary())
        };
        self.settings.transport == Transport::Aggregated && self.machines.get(index).is_some_and(is_settled)
    }

    /// Moves a type from a shared stream, which ended, to a stream of its own.
    fn isolate(&mut self, index: StreamIndex, type_url: &TypeUrl, status: &Status, now: Time) {
        let Some(kind) = self.kind_of(index, type_url) else { return };
        let Some(carried) = self.machine(index).and_then(|machine| machine.release(type_url, now)) else {
            return;
        };
        let machines = &self.machines;
        let is_wanted = |type_url: &TypeUrl| {
            let mut carriers = machines.iter().filter(|machine| machine.alone.as_ref() == Some(type_url));
            carriers.any(|machine| !machine.upstream.is_idle())
        };
        let suspect = self.suspects.blame(type_url, status, is_wanted, now);
        let (ends, not_before) = (suspect.ends, now + suspect.wait());
        let alone = self.place_alone(type_url, index);
        if let Some(machine) = self.machine(alone) {
            // The delay also holds for clients that drop the type meanwhile and ask again.
            machine.hold_off(not_before);
            machine.carry(carried, not_before, now);
        }
        self.placed.insert((type_url.clone(), kind), alone);
        self.report_suspect(alone, type_url, status, ends);
    }

    fn note_end_alone(&mut self, index: StreamIndex, type_url: &TypeUrl, status: &Status, now: Time) {
        let Some(suspect) = self.suspects.get_mut(type_url) else { return };
        suspect.note_end(status, now);
        let ends = suspect.ends;
        self.report_suspect(index, type_url, status, ends);
    }

    fn report_suspect(&mut self, index: StreamIndex, type_url: &TypeUrl, status: &Status, ends: u32) {
        let (type_url, status) = (type_url.clone(), status.clone());
        self.outputs.push_back((index, Output::Event(Event::EndsStream { type_url, status, ends })));
    }

    /// The separate stream for a recent suspect; `None` if the type is no suspect.
    fn place_suspect(&mut self, type_url: &TypeUrl, now: Time) -> Option<StreamIndex> {
        let suspect = self.suspects.get(type_url)?;
        if !suspect.is_alone || suspect.is_old(now) {
            return None;
        }
        let shared = self.machines.iter().position(Machine::is_shared)?;
        let index = self.place_alone(type_url, shared);
        if let Some(machine) = self.machine(index) {
            // The stream opens in its turn.
            machine.hold_off(now + Duration::from_millis(1));
        }
        Some(index)
    }

    /// A machine for a stream of this type alone, with the settings of a shared stream. The machine inherits
    /// the wait of its predecessor: a client that drops the type and asks again causes no attempts beyond the
    /// backoff.
    fn place_alone(&mut self, type_url: &TypeUrl, shared: StreamIndex) -> StreamIndex {
        let upstream = self.machines[shared].upstream.beside();
        let mut machine = Machine { alone: Some(type_url.clone()), ..Machine::new(None, upstream) };
        let is_same = |machine: &Machine| machine.alone.as_ref() == Some(type_url);
        // Machines of other suspects keep their state as long as the suspects are remembered.
        let is_over =
            |machine: &Machine| machine.alone.as_ref().is_some_and(|alone| !self.suspects.contains(alone));
        let find = |is_free: &dyn Fn(&Machine) -> bool| {
            self.machines.iter().position(|machine| is_free(machine) && machine.upstream.is_done())
        };
        match find(&is_same).or_else(|| find(&is_over)) {
            Some(index) => {
                if is_same(&self.machines[index]) {
                    machine.upstream.wait_like(&self.machines[index].upstream);
                }
                self.machines[index] = machine;
                index
            }
            None => {
                self.machines.push(machine);
                self.machines.len() - 1
            }
        }
    }

    /// Whether a stream carries a suspect alone. The stream's state then tells nothing about the server or
    /// other types.
    pub fn is_alone(&self, index: StreamIndex) -> bool {
        self.machines.get(index).is_some_and(|machine| machine.alone.is_some())
    }

    /// The record of a suspect that has a separate stream.
    pub fn suspect_of(&self, type_url: &TypeUrl) -> Option<&SuspectType> {
        self.suspects.get(type_url).filter(|suspect| suspect.is_alone)
    }

    /// The time of the next attempt for a type whose stream waits.
    pub fn next_try(&self, type_url: &TypeUrl) -> Option<Time> {
        let placed = [CollectionKind::Wildcard, CollectionKind::Globs, CollectionKind::Names]
            .map(|kind| self.placed(type_url, kind));
        let waits = |index: &StreamIndex| {
            let machine = self.machines.get(*index);
            machine.is_some_and(|machine| matches!(machine.upstream.state(), LinkState::Waiting { .. }))
        };
        placed.into_iter().flatten().filter(waits).filter_map(|index| self.due(index)).min()
    }

    /// The number of types with separate streams, including types that wait for their turn.
    pub fn suspect_streams(&self) -> usize {
        self.machines.iter().filter(|machine| machine.alone.is_some() && !machine.upstream.is_done()).count()
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        (0..self.machines.len()).filter_map(|index| self.due(index)).chain(self.doubts_due()).min()
    }

    pub fn handle_timeout(&mut self, now: Time) {
        for index in 0..self.machines.len() {
            let is_due = self.due(index).is_some_and(|due| due <= now);
            let Some(machine) = self.machines.get_mut(index).filter(|_| is_due) else { continue };
            if machine.alone.is_some() && stays_until(&machine.upstream).is_some_and(|until| until <= now) {
                self.take_back(index, now);
            } else {
                machine.upstream.handle_timeout(now);
            }
        }
        self.look_into_doubts(now);
        self.forget_connection();
    }

    fn due(&self, index: StreamIndex) -> Option<Time> {
        let Machine { alone, upstream, .. } = self.machines.get(index)?;
        let due = upstream.poll_timeout();
        if alone.is_none() {
            return due;
        }
        match upstream.state() {
            LinkState::Waiting { until } => Some(self.turn_from()?.max(until)),
            LinkState::Open => due.into_iter().chain(stays_until(upstream)).min(),
            LinkState::Closed | LinkState::Opening => due,
        }
    }

    /// The earliest time for the next suspect's turn; `None` while the stream of a suspect opens.
    fn turn_from(&self) -> Option<Time> {
        let mut from = Time::ZERO;
        for Machine { alone, upstream, .. } in &self.machines {
            let Some(type_url) = alone else { continue };
            match upstream.state() {
                LinkState::Opening => return None,
                LinkState::Open if !upstream.has_answered(type_url) => {
                    from = from.max(upstream.since() + TURN)
                }
                LinkState::Open | LinkState::Waiting { .. } | LinkState::Closed => {}
            }
        }
        Some(from)
    }

    /// Opens the stream of the next suspect, if its turn has come.
    fn open_in_turn(&mut self, now: Time) {
        for index in 0..self.machines.len() {
            let is_waiting = |machine: &Machine| {
                machine.alone.is_some() && matches!(machine.upstream.state(), LinkState::Waiting { .. })
            };
            if self.machines.get(index).is_some_and(is_waiting)
                && self.due(index).is_some_and(|due| due <= now)
                && let Some(machine) = self.machine(index)
            {
                machine.handle_timeout(now);
            }
        }
    }

    /// The server tolerates the type: the type moves back to a shared stream.
    fn take_back(&mut self, index: StreamIndex, now: Time) {
        let Some(type_url) = self.machines.get(index).and_then(|machine| machine.alone.clone()) else {
            return;
        };
        let kind = self.kind_of(index, &type_url);
        let Some(machine) = self.machine(index) else { return };
        let carried = kind.and_then(|kind| Some((kind, machine.release(&type_url, now)?)));
        let Some((kind, carried)) = carried else {
            // No session wants the type any more: a trial would be pointless.
            return machine.close_idle(now);
        };
        if let Some(suspect) = self.suspects.get_mut(&type_url) {
            suspect.is_alone = false;
        }
        let home = self.place_shared(&type_url, index);
        self.placed.insert((type_url.clone(), kind), home);
        if let Some(machine) = self.machine(home) {
            machine.carry(carried, now, now);
            if matches!(machine.state(), LinkState::Waiting { until } if until <= now) {
                machine.handle_timeout(now);
            }
        }
        self.outputs.push_back((home, Output::Event(Event::BearsType { type_url })));
    }

    /// A shared stream without subscriptions to this type.
    fn place_shared(&mut self, type_url: &TypeUrl, like: StreamIndex) -> StreamIndex {
        let is_free = |machine: &Machine| machine.is_shared() && !machine.upstream.knows(type_url);
        self.machines.iter().position(is_free).unwrap_or_else(|| {
            let settings = self.settings.clone();
            debug_assert!(self.is_alone(like));
            self.machines.push(Machine::new(None, Upstream::new(settings)));
            self.machines.len() - 1
        })
    }
}

/// RLY-25, RLY-40: a type without a service does not count.
fn is_used(machine: &&Machine) -> bool {
    !machine.upstream.is_idle() && machine.upstream.unserved().is_none()
}

/// The server is lost if any stream is lost, and heard once all streams were answered.
fn combined<'a>(machines: impl Iterator<Item = &'a Machine>) -> Reachability {
    let (mut latest, mut is_heard) = (None, true);
    for machine in machines {
        let reach = machine.upstream.reach();
        if reach.is_lost() {
            return reach.clone();
        }
        is_heard &= reach.is_heard();
        latest = latest.max(reach.since());
    }
    match latest {
        Some(since) if is_heard => Reachability::Heard { since },
        Some(_) | None => Reachability::Pending,
    }
}

/// The end of the trial of an open stream.
fn stays_until(upstream: &Upstream) -> Option<Time> {
    matches!(upstream.state(), LinkState::Open).then(|| upstream.since() + STAYS)
}
