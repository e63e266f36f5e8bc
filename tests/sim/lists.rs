//! The server lists of a configuration, which a reload may change (REL-6): a server is added, removed or moved, a type
//! gets a list of its own, an authority goes or returns.
//!
//! Each class has a seat for each source: two of the default list, two of the authority's list, two of the type with its
//! own list, which has the servers of the default list, and one for names of an unknown authority.

use sluice_engine::authority::{Authority, NameGroup};
use sluice_engine::downstream::{ListId, SourceId};
use sluice_xds::TypeUrl;

use super::relay::{Routes, StreamSlot};
use super::rng::Rng;
use super::schedule::Wire;
use super::words::TYPES;
use super::world::World;

/// The number of the list that a type has for itself, and of the list without a server.
pub const OF_TYPE: usize = 2;
pub const NOBODY: usize = 3;

/// The seats of a class, without and with other lists.
const SEATS: usize = 4;
const ALL_SEATS: usize = 7;

/// The servers of a list, of two, by priority.
const ORDERS: [&[usize]; 4] = [&[0, 1], &[1, 0], &[0], &[1]];

/// The lists of one configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// By list: the number of an order.
    orders: [usize; 3],
    /// The type with a list of its own.
    pub own: Option<usize>,
    pub lacks_authority: bool,
}

impl Lists {
    pub fn order(&self, list: usize) -> &'static [usize] {
        if self.is_nobody(list) { &[0] } else { ORDERS[self.orders[list]] }
    }

    pub fn is_nobody(&self, list: usize) -> bool {
        list == NOBODY || list == 1 && self.lacks_authority
    }

    /// The list stands for its servers and their order, as in the driver.
    pub fn id(&self, list: usize) -> ListId {
        if self.is_nobody(list) {
            return ListId(NOBODY as u64);
        }
        ListId((list | self.orders[list] << 8) as u64)
    }

    /// The list of old-style names of a type.
    pub fn of_old(&self, ty: usize) -> usize {
        if self.own == Some(ty) { OF_TYPE } else { 0 }
    }

    /// The list of a type for names that are of the default list or of the authority's list.
    pub fn of(&self, list: usize, ty: usize) -> usize {
        if list == 0 { self.of_old(ty) } else { list }
    }

    /// The seat of the server at a position.
    fn seat(&self, list: usize, position: usize) -> usize {
        if self.is_nobody(list) { ALL_SEATS - 1 } else { 2 * list + self.order(list)[position] }
    }
}

/// The number of a list, whatever its servers.
pub fn number_of(id: ListId) -> usize {
    id.0 as usize & 0xff
}

/// The server of a seat; seats without a server have none that is asked.
pub fn server_of(seat: usize) -> usize {
    match seat {
        0..SEATS => seat,
        seat if seat + 1 < ALL_SEATS => seat - SEATS,
        _ => 0,
    }
}

/// The server of a seat is nobody.
pub fn is_nobody(seat: usize) -> bool {
    seat + 1 == ALL_SEATS
}

impl Routes<'_> {
    pub fn number(&self, type_url: &TypeUrl, group: NameGroup) -> usize {
        match group.authority {
            Authority::None | Authority::Listed(_) => self.lists.of_old(self.words.type_of(type_url)),
            Authority::Configured(_) => 1,
            Authority::Any | Authority::Unknown => NOBODY,
        }
    }

    pub fn slot(&self, list: usize, position: usize) -> usize {
        self.class * self.seats + self.lists.seat(list, position)
    }

    /// The position of a source's server in a list.
    pub fn position(&self, id: ListId, source: SourceId) -> Option<u16> {
        let (list, seat) = (number_of(id), source.0 as usize % self.seats);
        let has_choice = self.fallback && self.lists.order(list).len() > 1;
        let is_here = has_choice && !is_nobody(seat) && seat / 2 == list;
        let position = self.lists.order(list).iter().position(|server| *server == seat % 2);
        position.filter(|_| is_here).map(|position| position as u16)
    }

    pub fn is_by_type(&self, list: usize) -> bool {
        self.wires[list % 2] != Wire::Aggregated
    }
}

impl World {
    pub fn seats(&self) -> usize {
        if self.plan.lists { ALL_SEATS } else { SEATS }
    }

    pub fn slot_at(&self, stream: &StreamSlot, list: usize, position: usize) -> usize {
        stream.class * self.seats() + stream.lists.seat(list, position)
    }

    /// The source of the second server of a list, if there is one.
    pub fn second_of(&self, stream: &StreamSlot, list: usize) -> Option<usize> {
        (stream.lists.order(list).len() > 1).then(|| self.slot_at(stream, list, 1))
    }

    /// All sources that may ever have served names of the default list, or of the authority's list, to a client.
    pub fn all_slots_of(&self, list: usize) -> impl Iterator<Item = usize> + use<> {
        let (seats, count) = (self.seats(), self.slots.len());
        (0..count).filter(move |slot| match slot % seats {
            seat if is_nobody(seat) => list == 1,
            seat => seat / 2 == list || list == 0 && seat >= SEATS,
        })
    }

    /// The slots that serve a stream, by list and type.
    pub fn served_slots(&self, stream: &StreamSlot) -> [[usize; TYPES]; 2] {
        std::array::from_fn(|list| std::array::from_fn(|ty| self.slot_of(stream, list, ty)))
    }

    /// Whether a slot is the first of some list in force.
    pub fn is_first(&self, slot: usize) -> bool {
        let (seat, lists) = (slot % self.seats(), self.lists);
        let mut used = [Some(0), Some(1), lists.own.map(|_| OF_TYPE)].into_iter().flatten();
        used.any(|list| lists.seat(list, 0) == seat)
    }

    /// Draws the lists of another configuration.
    pub fn change_lists(&mut self, rng: &mut Rng) {
        for list in 0..3 {
            if rng.percent(40) {
                self.lists.orders[list] = rng.below(ORDERS.len() as u64) as usize;
            }
        }
        if rng.percent(30) {
            self.lists.own = rng.percent(60).then(|| rng.below(TYPES as u64) as usize);
        }
        self.lists.lacks_authority ^= rng.percent(20);
        let lists = self.lists;
        self.tell(|| {
            let of = |list: usize| ORDERS[lists.orders[list]];
            let authority = if lists.lacks_authority { "nobody".to_owned() } else { format!("{:?}", of(1)) };
            let own = lists.own.map(|ty| format!(", {} {:?}", super::words::SHORT[ty], of(OF_TYPE)));
            format!("other lists: {:?}, the authority {authority}{}", of(0), own.unwrap_or_default())
        });
        self.note(52, lists.orders.iter().fold(0, |sum, order| sum << 2 | *order as u64), lists.id(1).0);
    }

    /// Whether some collection of a stream has another list by another configuration.
    pub fn is_relisted(&self, stream: &StreamSlot, routes: &Routes<'_>) -> bool {
        use sluice_engine::downstream::Router;
        let mut subscriptions = stream.session.subscriptions().iter();
        subscriptions
            .any(|of| of.parts.iter().any(|part| routes.list(&of.type_url, part.group) != part.asked.list))
    }
}
