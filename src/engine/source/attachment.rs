//! How a source is attached to its server: by streams or polls, or by files.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Time;
use crate::engine::upstream::{Interest, Output, Settings, Transport, Upstream};
use crate::xds::{Resource, ResourceName, Service, TypeUrl, Variant};

/// Which stream of a source.
pub type StreamIndex = usize;

/// What a source says to its server, and on which streams.
///
/// Aggregated, there are at most two. Nearly always there is one; a type of which both the wildcard and names are wanted
/// has the one that came later on the second stream, so that the two never mix (RLY-13, RLY-19). Per type, and in REST,
/// each type has a stream for its wildcard and one for its names.
#[derive(Debug)]
pub struct Streams {
    settings: Settings,
    machines: Vec<Machine>,
    /// Where the wildcard (`true`) or the names of a type are.
    placed: BTreeMap<(TypeUrl, bool), StreamIndex>,
}

#[derive(Debug)]
struct Machine {
    /// `None`: of all types.
    type_url: Option<TypeUrl>,
    upstream: Upstream,
}

impl Streams {
    pub fn new(settings: Settings) -> Streams {
        Streams { settings, machines: Vec::new(), placed: BTreeMap::new() }
    }

    /// False if the server can't be asked for this type: it has no service, or none of this kind (RPC-2, RPC-9). What is
    /// wanted of it stays unknown, as nobody says that it is absent (RLY-2).
    pub fn subscribe(&mut self, type_url: &TypeUrl, interest: Interest, now: Time) -> bool {
        let key = (type_url.clone(), interest == Interest::Wildcard);
        let index = match self.placed.get(&key) {
            Some(index) => *index,
            None => {
                let Some(index) = self.place(type_url, key.1) else { return false };
                self.placed.insert(key, index);
                index
            }
        };
        if let Some(machine) = self.machine(index) {
            machine.subscribe(type_url, interest, now);
        }
        true
    }

    /// Finds the stream for a collection that has none, or makes one. Streams stay when nothing is wanted of them any
    /// more: closed, they cost nothing, and there are as many as types that have a service.
    fn place(&mut self, type_url: &TypeUrl, wildcard: bool) -> Option<StreamIndex> {
        if self.settings.transport == Transport::Aggregated {
            let index = self.placed.get(&(type_url.clone(), !wildcard)).map_or(0, |taken| 1 - *taken);
            while self.machines.len() <= index {
                let upstream = Upstream::new(self.settings.clone());
                self.machines.push(Machine { type_url: None, upstream });
            }
            return Some(index);
        }
        let settings = self.settings_of(type_url)?;
        let taken = self.placed.get(&(type_url.clone(), !wildcard));
        let is_free = |(index, machine): &(usize, &Machine)| {
            machine.type_url.as_ref() == Some(type_url) && Some(index) != taken
        };
        let found = self.machines.iter().enumerate().find(is_free).map(|(index, _)| index);
        Some(found.unwrap_or_else(|| {
            let upstream = Upstream::new(settings);
            self.machines.push(Machine { type_url: Some(type_url.clone()), upstream });
            self.machines.len() - 1
        }))
    }

    /// The settings of a stream of one type; `None` if its service does not exist.
    fn settings_of(&self, type_url: &TypeUrl) -> Option<Settings> {
        let service = Service::of_type(type_url)?;
        let sotw = service.stream_path(Variant::Sotw).is_some();
        let exists = match self.settings.transport {
            Transport::Rest { .. } => service.rest_path().is_some(),
            _ => sotw || self.settings.variant == Variant::Delta,
        };
        let fall_back_to_sotw = self.settings.fall_back_to_sotw && sotw;
        exists.then(|| Settings { fall_back_to_sotw, ..self.settings.clone() })
    }

    /// `last`: nothing of this collection is wanted any more.
    pub fn unsubscribe(&mut self, type_url: &TypeUrl, interest: Interest, last: bool, now: Time) {
        let key = (type_url.clone(), interest == Interest::Wildcard);
        let Some(index) = self.placed.get(&key).copied() else { return };
        if last {
            self.placed.remove(&key);
        }
        if let Some(machine) = self.machine(index) {
            machine.unsubscribe(type_url, interest, now);
        }
    }

    /// The type to whose service a stream goes; `None` for an aggregated one.
    pub fn type_of(&self, index: StreamIndex) -> Option<&TypeUrl> {
        self.machines.get(index)?.type_url.as_ref()
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

    /// What the first of the streams that have something to say says next.
    pub fn poll_output(&mut self) -> Option<(StreamIndex, Output)> {
        self.machines_mut().find_map(|(index, machine)| Some((index, machine.poll_output()?)))
    }
}

/// The resources of one type by name.
pub type Members = BTreeMap<ResourceName, Arc<Resource>>;

/// The last good state of a directory; `None` until there is one.
#[derive(Debug, Default)]
pub struct Files {
    state: Option<BTreeMap<TypeUrl, Members>>,
}

impl Files {
    /// A server that has nothing, and is known to.
    pub fn nothing() -> Files {
        Files { state: Some(BTreeMap::new()) }
    }

    /// Takes the new state and gives the types that were in the old one or are in the new one.
    pub fn replace(&mut self, state: Vec<(TypeUrl, Vec<Arc<Resource>>)>) {
        let mut types: BTreeMap<TypeUrl, Members> = BTreeMap::new();
        for (type_url, resources) in state {
            let members = types.entry(type_url).or_default();
            members.extend(resources.into_iter().map(|resource| (resource.name.clone(), resource)));
        }
        self.state = Some(types);
    }

    /// The members of a type; `None` while nothing at all is known. A type without a file is known to be empty (FIL-8).
    pub fn members(&self, type_url: &TypeUrl) -> Option<Option<&Members>> {
        self.state.as_ref().map(|types| types.get(type_url))
    }
}

/// The attachment of a source.
#[derive(Debug)]
pub enum Attachment {
    Streams(Box<Streams>),
    Files(Files),
}
