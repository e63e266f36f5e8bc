//! The upstream streams of a source, and the stream of each collection.

mod reach;
mod suspects;
mod doubts;
mod trials;

use std::collections::{BTreeMap, VecDeque};

use imbl::OrdSet;

use crate::engine::Time;
use crate::engine::collection::CollectionKind;
use crate::engine::reachability::Reachability;
use crate::engine::snapshot::Answered;
use crate::engine::source::attachment::doubt::Doubt;
use crate::engine::source::attachment::suspect::Suspect;
use crate::engine::upstream::{
    Hold, Output, ResourceSelection, Resumed, Transport, Upstream, UpstreamSettings,
};
use crate::xds::{ResourceName, Response, Service, Status, TypeUrl, Variant};

/// The index of a stream within its source.
pub type StreamIndex = usize;

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
    suspects: BTreeMap<TypeUrl, Suspect>,
    /// Aggregated: types for which the server was silent about names.
    doubts: BTreeMap<TypeUrl, Doubt>,
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
    pub fn subscribe(&mut self, type_url: &TypeUrl, wanted: ResourceSelection, now: Time) -> bool {
        let Some(wanted) = self.try_first(type_url, wanted, now) else { return true };
        let key = (type_url.clone(), wanted.kind());
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
            machine.subscribe(type_url, wanted, now);
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

    /// Finds a stream for a collection that has none, or makes a stream. Streams stay after their last
    /// subscription: closed streams cost nothing, and their number is bounded by the number of types that
    /// have a service.
    fn place(&mut self, type_url: &TypeUrl) -> Option<StreamIndex> {
        let of_type = match self.settings.transport {
            Transport::Aggregated => None,
            _ => Some(type_url.clone()),
        };
        let settings = if of_type.is_some() { self.settings_of(type_url)? } else { self.settings.clone() };
        let taken = |index: StreamIndex| self.kind_of(index, type_url).is_some();
        let is_free = |(index, machine): &(usize, &Machine)| {
            machine.type_url == of_type && machine.is_shared() && !taken(*index)
        };
        let found = self.machines.iter().enumerate().find(is_free).map(|(index, _)| index);
        Some(found.unwrap_or_else(|| {
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
    pub fn unsubscribe(&mut self, type_url: &TypeUrl, wanted: ResourceSelection, last: bool, now: Time) {
        let key = (type_url.clone(), wanted.kind());
        let Some(index) = self.placed.get(&key).copied() else { return };
        let wanted = self.leave_apart(type_url, wanted, last, now);
        if last {
            self.placed.remove(&key);
        }
        let is_alone = self.is_alone(index);
        if let Some(machine) = self.machine(index) {
            machine.unsubscribe(type_url, wanted, now);
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
    pub(in crate::engine::source) fn is_full_state(&self, response: &Response) -> bool {
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
    pub(in crate::engine::source) fn answered(&self, type_url: &TypeUrl) -> Option<Answered> {
        let upstream = |kind| {
            let machine = self.placed(type_url, kind).and_then(|index| self.machines.get(index));
            machine.map(|machine| &machine.upstream)
        };
        let is_current = |kind| upstream(kind).is_some_and(|upstream| upstream.is_current(type_url));
        let answered = Answered {
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
    pub(in crate::engine::source) fn is_provisional(&self, type_url: &TypeUrl) -> bool {
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
