//! The servers that serve a session. In a list with a stream or polls for each type, each type moves between
//! the servers alone (RLY-40, ADR 18).

use sluice_engine::downstream::SourceId;
use sluice_xds::TypeUrl;

use super::hearing::Heard;
use super::lists::OF_TYPE;
use super::relay::{Slot, StreamSlot};
use super::schedule::Wire;
use super::words::TYPES;
use super::world::World;

/// One list, or one type of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub list: usize,
    /// `None`: all types.
    pub ty: Option<usize>,
    /// The type that has a list of its own.
    pub own: Option<usize>,
}

impl Place {
    pub fn types(self) -> impl Iterator<Item = usize> {
        let is_here = move |ty: &usize| match self.list {
            0 => self.own != Some(*ty),
            OF_TYPE => self.own == Some(*ty),
            _ => true,
        };
        (0..TYPES).filter(move |ty| self.ty.is_none_or(|of| of == *ty)).filter(is_here)
    }

    /// The number among all places that are possible.
    pub fn number(self) -> usize {
        self.list * TYPES + self.ty.unwrap_or(0)
    }
}

/// The number of places that are possible.
pub const PLACES: usize = 3 * TYPES;

impl World {
    /// The places of a session that can have different servers.
    pub fn places(&self, stream: &StreamSlot) -> impl Iterator<Item = Place> + use<> {
        let (wires, own) = (self.plan.wires, stream.lists.own);
        let places = (0..3).flat_map(move |list| {
            let is_by_type = wires[list % 2] != Wire::Aggregated;
            let count = if is_by_type { TYPES } else { 1 };
            (0..count).map(move |ty| Place { list, ty: is_by_type.then_some(ty), own })
        });
        places.filter(|place| place.types().next().is_some())
    }

    /// The place of a type of the default list, or of the authority's list.
    pub fn place(&self, stream: &StreamSlot, list: usize, ty: usize) -> Place {
        let (list, own) = (stream.lists.of(list, ty), stream.lists.own);
        Place { list, ty: (self.plan.wires[list % 2] != Wire::Aggregated).then_some(ty), own }
    }

    /// The place by the configuration that a session is on its way to.
    pub fn bound_for(&self, stream: &StreamSlot, place: Place) -> Place {
        Place { own: stream.moving.map_or(stream.lists, |moving| moving.lists).own, ..place }
    }

    /// The server of a place that serves a session.
    pub fn serving(&self, stream: &StreamSlot, place: Place) -> usize {
        let lists = stream.lists;
        let id = lists.id(place.list);
        let Some(ty) = place.ty else {
            if stream.session.is_moving() {
                // A type that leaves the list keeps its source, and the others may move meanwhile.
                let stays: Vec<_> = self.bound_for(stream, place).types().collect();
                let leaves = |url: &TypeUrl| !stays.contains(&self.words.type_of(url));
                let parts = stream.session.subscriptions().iter();
                let parts = parts.flat_map(|of| of.parts.iter().map(move |part| (&of.type_url, part)));
                let own = parts.filter(|(_, part)| part.asked.list == id).min_by_key(|(url, _)| leaves(url));
                return own.map_or(0, |(_, part)| usize::from(part.asked.serving()));
            }
            let served = stream.session.served_by().find(|(list, _)| *list == id);
            return served.map_or(0, |(_, server)| usize::from(server));
        };
        let of_type = |url: &TypeUrl| self.words.type_of(url) == ty;
        let mut parts = stream.session.subscriptions().iter().filter(|of| of_type(&of.type_url));
        let source = parts.find_map(|of| {
            let mut parts = of.parts.iter().filter(|part| part.asked.list == id);
            parts.next().map(|part| part.source())
        });
        let position = |SourceId(slot)| {
            let seat = slot as usize % self.seats();
            lists.order(place.list).iter().position(|server| *server == seat % 2)
        };
        source.and_then(position).unwrap_or(0)
    }

    /// The serving servers of all places.
    pub fn all_serving(&self, stream: &StreamSlot) -> [usize; PLACES] {
        let mut serving = [0; PLACES];
        self.places(stream).for_each(|place| serving[place.number()] = self.serving(stream, place));
        serving
    }

    /// Whether a session asks a source for the types of a place.
    pub fn asks(&self, stream: &StreamSlot, place: Place, slot: usize) -> bool {
        let is_here = |url: &TypeUrl| place.ty.is_none_or(|ty| self.words.type_of(url) == ty);
        let subscriptions = stream.session.subscriptions().iter().filter(|of| is_here(&of.type_url));
        let mut parts = subscriptions.flat_map(|of| &of.parts);
        parts.any(|part| part.asked.sources().any(|source| source == SourceId(slot as u64)))
    }

    /// The source that serves a type of a list.
    pub fn slot_of(&self, stream: &StreamSlot, list: usize, ty: usize) -> usize {
        let place = self.place(stream, list, ty);
        // On the way to other lists, a type that leaves a list keeps its source.
        if stream.session.is_moving() {
            let id = stream.lists.id(place.list);
            let mut of =
                stream.session.subscriptions().iter().filter(|of| self.words.type_of(&of.type_url) == ty);
            let part = of.find_map(|of| of.parts.iter().find(|part| part.asked.list == id));
            if let Some(SourceId(slot)) = part.map(|part| part.source()) {
                return slot as usize;
            }
        }
        self.slot_at(stream, place.list, self.serving(stream, place))
    }
}

impl Slot {
    /// Whether the server can be heard for the types of a place.
    pub fn reach_at(&self, place: Place, now: u64) -> Heard {
        place.ty.map_or_else(|| self.reach(now), |ty| self.reach_of(ty, now))
    }
}
