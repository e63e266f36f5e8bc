//! How a source is attached to its server: by ADS streams, or by files.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::Time;
use crate::engine::interest::Shape;
use crate::engine::upstream::{Interest, Settings, Upstream};
use crate::xds::{Resource, ResourceName, TypeUrl};

/// Which of the ADS streams of a source.
pub type StreamIndex = usize;

/// As many ADS streams as there are kinds of interest in a type: wildcard, globs, names.
pub const STREAMS: usize = 3;

/// Nearly always there is one ADS stream; of a type of which more than one of wildcard, globs and names are wanted, what
/// came later is on another stream, so that they never mix (RLY-13, RLY-19).
#[derive(Debug)]
pub struct Streams {
    settings: Settings,
    machines: [Option<Upstream>; STREAMS],
    /// Where the wildcard, the globs or the names of a type are.
    placed: BTreeMap<(TypeUrl, Shape), StreamIndex>,
}

impl Streams {
    pub fn new(settings: Settings) -> Streams {
        Streams { settings, machines: [const { None }; STREAMS], placed: BTreeMap::new() }
    }

    pub fn subscribe(&mut self, type_url: &TypeUrl, interest: Interest, now: Time) {
        let shape = interest.shape();
        let placed = |shape| self.placed.get(&(type_url.clone(), shape)).copied();
        let is_free = |index: &StreamIndex| {
            [Shape::Wildcard, Shape::Globs, Shape::Names]
                .into_iter()
                .all(|other| placed(other) != Some(*index))
        };
        let index = placed(shape).or_else(|| (0..STREAMS).find(is_free)).unwrap_or_default();
        self.placed.insert((type_url.clone(), shape), index);
        let settings = &self.settings;
        if let Some(slot) = self.machines.get_mut(index) {
            slot.get_or_insert_with(|| Upstream::new(settings.clone())).subscribe(type_url, interest, now);
        }
    }

    /// `last`: nothing of this collection is wanted any more.
    pub fn unsubscribe(&mut self, type_url: &TypeUrl, interest: Interest, last: bool, now: Time) {
        let key = (type_url.clone(), interest.shape());
        let Some(index) = self.placed.get(&key).copied() else { return };
        if last {
            self.placed.remove(&key);
        }
        if let Some(machine) = self.machine(index) {
            machine.unsubscribe(type_url, interest, now);
        }
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
    /// The same by alias (ALI-2).
    by_alias: BTreeMap<TypeUrl, Members>,
}

impl Files {
    /// Takes the new state and gives the types that were in the old one or are in the new one.
    pub fn replace(&mut self, state: Vec<(TypeUrl, Vec<Arc<Resource>>)>) {
        let mut types: BTreeMap<TypeUrl, Members> = BTreeMap::new();
        self.by_alias.clear();
        for (type_url, resources) in state {
            for resource in resources.iter().filter(|resource| !resource.aliases.is_empty()) {
                let aliases = resource.aliases.iter().map(|alias| (alias.clone(), resource.clone()));
                self.by_alias.entry(type_url.clone()).or_default().extend(aliases);
            }
            let members = types.entry(type_url).or_default();
            members.extend(resources.into_iter().map(|resource| (resource.name.clone(), resource)));
        }
        self.state = Some(types);
    }

    /// The resource of this name, else the one that has it as an alias.
    pub fn named(&self, type_url: &TypeUrl, name: &ResourceName) -> Option<&Arc<Resource>> {
        let own = self.members(type_url).flatten().and_then(|members| members.get(name));
        own.or_else(|| self.by_alias.get(type_url)?.get(name))
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
