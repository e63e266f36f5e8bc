//! The servers that serve a session. In a list with a stream or polls for each type, each type moves between
//! the servers alone (RLY-40, ADR 18).

use sluice::engine::downstream::SourceId;
use sluice::xds::TypeUrl;

use super::hearing::Heard;
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
}

impl Place {
    pub fn types(self) -> impl Iterator<Item = usize> {
        (0..TYPES).filter(move |ty| self.ty.is_none_or(|own| own == *ty))
    }

    /// The number among all places that are possible.
    pub fn number(self) -> usize {
        self.list * TYPES + self.ty.unwrap_or(0)
    }
}

/// The number of places that are possible.
pub const PLACES: usize = 2 * TYPES;

impl World {
    /// The places of a session that can have different servers.
    pub fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let wires = self.plan.wires;
        (0..2).flat_map(move |list| {
            let is_by_type = wires[list] != Wire::Aggregated;
            let count = if is_by_type { TYPES } else { 1 };
            (0..count).map(move |ty| Place { list, ty: is_by_type.then_some(ty) })
        })
    }

    /// The place of a type of a list.
    pub fn place(&self, list: usize, ty: usize) -> Place {
        Place { list, ty: (self.plan.wires[list] != Wire::Aggregated).then_some(ty) }
    }

    /// The server of a place that serves a session.
    pub fn serving(&self, stream: &StreamSlot, place: Place) -> usize {
        let Some(ty) = place.ty else {
            if stream.session.is_moving() {
                let mut parts = stream.session.subscriptions().iter().flat_map(|of| &of.parts);
                let own = parts.find(|part| part.asked.list.0 == place.list as u64);
                return own.map_or(0, |part| usize::from(part.asked.serving()));
            }
            let served = stream.session.served_by().find(|(list, _)| list.0 == place.list as u64);
            return served.map_or(0, |(_, server)| usize::from(server));
        };
        let of_type = |url: &TypeUrl| self.words.type_of(url) == ty;
        let mut parts = stream.session.subscriptions().iter().filter(|of| of_type(&of.type_url));
        let source = parts.find_map(|of| {
            let mut parts = of.parts.iter().filter(|part| part.asked.list.0 == place.list as u64);
            parts.next().map(|part| part.source())
        });
        source.map_or(0, |SourceId(slot)| slot as usize % 2)
    }

    /// The serving servers of all places.
    pub fn all_serving(&self, stream: &StreamSlot) -> [usize; PLACES] {
        let mut serving = [0; PLACES];
        self.places().for_each(|place| serving[place.number()] = self.serving(stream, place));
        serving
    }

    /// Whether a session asks a source for the types of a place.
    pub fn asks(&self, stream: &StreamSlot, place: Place, slot: usize) -> bool {
        let is_here = |url: &TypeUrl| place.ty.is_none_or(|ty| self.words.type_of(url) == ty);
        let subscriptions = stream.session.subscriptions().iter().filter(|of| is_here(&of.type_url));
        let mut parts = subscriptions.flat_map(|of| &of.parts);
        parts.any(|part| part.asked.sources().any(|source| source == SourceId(slot as u64)))
    }

    /// The first source of a list for a session.
    pub fn first_of(&self, stream: &StreamSlot, list: usize) -> usize {
        stream.class * self.servers.len() + list * 2
    }

    /// The source that serves a type of a list.
    pub fn slot_of(&self, stream: &StreamSlot, list: usize, ty: usize) -> usize {
        self.first_of(stream, list) + self.serving(stream, self.place(list, ty))
    }
}

impl Slot {
    /// Whether the server can be heard for the types of a place.
    pub fn reach_at(&self, place: Place, now: u64) -> Heard {
        place.ty.map_or_else(|| self.reach(now), |ty| self.reach_of(ty, now))
    }
}
