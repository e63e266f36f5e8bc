//! How a source is attached to its server: by ADS streams, or by files.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Time;
use crate::engine::upstream::{Interest, Settings, Upstream};
use crate::xds::{Resource, ResourceName, TypeUrl};

/// Which of the at most two ADS streams of a source.
pub type StreamIndex = usize;

/// At most two ADS streams. Nearly always there is one; a type of which both the wildcard and names are wanted has the
/// one that came later on the second stream, so that the two never mix (RLY-13, RLY-19).
#[derive(Debug)]
pub struct Streams {
    settings: Settings,
    machines: [Option<Upstream>; 2],
    /// Where the wildcard (`true`) or the names of a type are.
    placed: BTreeMap<(TypeUrl, bool), StreamIndex>,
}

impl Streams {
    pub fn new(settings: Settings) -> Streams {
        Streams { settings, machines: [None, None], placed: BTreeMap::new() }
    }

    pub fn subscribe(&mut self, type_url: &TypeUrl, interest: Interest, now: Time) {
        let wildcard = interest == Interest::Wildcard;
        let index = match self.placed.get(&(type_url.clone(), wildcard)) {
            Some(index) => *index,
            None => match self.placed.get(&(type_url.clone(), !wildcard)) {
                Some(taken) => 1 - *taken,
                None => 0,
            },
        };
        self.placed.insert((type_url.clone(), wildcard), index);
        let settings = &self.settings;
        if let Some(slot) = self.machines.get_mut(index) {
            slot.get_or_insert_with(|| Upstream::new(settings.clone())).subscribe(type_url, interest, now);
        }
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

    /// Whether what this stream says of a type is of its wildcard.
    pub fn is_wildcard(&self, index: StreamIndex, type_url: &TypeUrl) -> bool {
        self.placed.get(&(type_url.clone(), true)) == Some(&index)
    }

    /// The stream that carries the wildcard, or the names, of a type.
    pub fn placed(&self, type_url: &TypeUrl, wildcard: bool) -> Option<StreamIndex> {
        self.placed.get(&(type_url.clone(), wildcard)).copied()
    }

    pub fn machine(&mut self, index: StreamIndex) -> Option<&mut Upstream> {
        self.machines.get_mut(index)?.as_mut()
    }

    pub fn machines(&self) -> impl Iterator<Item = (StreamIndex, &Upstream)> {
        self.machines.iter().enumerate().filter_map(|(index, machine)| Some((index, machine.as_ref()?)))
    }

    pub fn machines_mut(&mut self) -> impl Iterator<Item = (StreamIndex, &mut Upstream)> {
        self.machines.iter_mut().enumerate().filter_map(|(index, machine)| Some((index, machine.as_mut()?)))
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
