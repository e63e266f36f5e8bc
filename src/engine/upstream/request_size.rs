//! Bounds the size of requests (FU33, ADR 53).
//!
//! A control plane refuses longer messages than it is configured for, by ending the stream: gRPC's default is 4 MiB. A
//! delta request that would be longer is split. Each part waits until the transport has taken the part before
//! ([`Output::Flush`]): a waiting name has no text but the shared one. The parts after the first subscribe only: versions are claimed in the first
//! request of a type on a stream, and the server sends resources without a claim again. A request of the other variant has
//! all names of its type and cannot be split, so that names are left out, and an event reports them.
//!
//! [`Output::Flush`]: super::Output::Flush

use std::collections::{BTreeMap, BTreeSet};

use super::said::Said;
use super::type_request::{TypeRequest, Want};
use crate::xds::{ResourceName, Variant};

/// Bytes around the text of a name: tags and lengths, for names with parameters the fields of a locator.
const AROUND_NAME: usize = 16;
/// Bytes around the texts of a claim.
const AROUND_CLAIM: usize = 24;
/// Bytes around all other fields.
const AROUND: usize = 128;

/// The bytes left in a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room(usize);

impl Room {
    /// `fixed`: the texts of fields that every part has.
    pub(super) fn new(most: usize, fixed: usize) -> Room {
        Room(most.saturating_sub(fixed + AROUND))
    }

    /// Takes the bytes if there is room.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// The content of one delta request.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) subscribe: BTreeSet<ResourceName>,
    pub(super) unsubscribe: BTreeSet<ResourceName>,
    pub(super) versions: Vec<(ResourceName, String)>,
    /// Held resources that the first request of the type does not claim.
    pub(super) unclaimed: BTreeSet<ResourceName>,
}

fn of_names<'a>(names: impl IntoIterator<Item = &'a ResourceName>) -> usize {
    names.into_iter().map(of_name).sum()
}

fn of_name(name: &ResourceName) -> usize {
    name.as_str().len() + AROUND_NAME
}

fn of_claim((name, version): (&ResourceName, &String)) -> usize {
    name.as_str().len() + version.len() + AROUND_CLAIM
}

impl TypeRequest {
    /// Takes the next part of the waiting changes.
    fn next_part(&mut self, mut room: Room) -> Part {
        if self.holds_leaving() {
            return Part::default();
        }
        let leaves_in_company = self.leaves_in_company();
        let versions = if self.said.asked { BTreeMap::new() } else { self.versions() };
        let Said { enter, leave, .. } = &mut self.said;
        let bytes = of_names(&*enter) + of_names(&*leave) + versions.iter().map(of_claim).sum::<usize>();
        if room.take(bytes) {
            let (subscribe, unsubscribe) = (std::mem::take(enter), std::mem::take(leave));
            self.said.turn.clear();
            let versions = versions.into_iter().collect();
            return Part { subscribe, unsubscribe, versions, unclaimed: BTreeSet::new() };
        }
        let mut part = Part::default();
        if !leaves_in_company {
            part.unsubscribe = take_some(leave, &mut room, true);
        }
        let of_members = !matches!(self.want, Want::Names(_));
        if of_members {
            part.subscribe = take_some(enter, &mut room, part.unsubscribe.is_empty());
        }
        let is_listed = |part: &Part, name: &ResourceName| {
            matches!(self.want, Want::Wildcard(_))
                || name.glob().is_some_and(|glob| part.subscribe.contains(&glob))
        };
        for claim in versions {
            if !of_members {
                // A claim needs its name in the same request.
                let bytes = of_claim((&claim.0, &claim.1)) + of_name(&claim.0);
                if enter.contains(&claim.0) && room.take(bytes) {
                    enter.remove(&claim.0);
                    part.subscribe.insert(claim.0.clone());
                    part.versions.push(claim);
                }
            } else if is_listed(&part, &claim.0) && room.take(of_claim((&claim.0, &claim.1))) {
                part.versions.push(claim);
            } else {
                part.unclaimed.insert(claim.0);
            }
        }
        if !of_members {
            let is_empty = part.subscribe.is_empty() && part.unsubscribe.is_empty();
            part.subscribe.extend(self.said.take_in_turn(&mut room, is_empty));
        }
        part
    }

    /// The part for the next request. `leaving`: only unsubscribe from these names. While the transport has not taken a part, an answer goes at
    /// once (ACK-8), without changes.
    pub(super) fn part(&mut self, room: Room, leaving: &[ResourceName], is_flushing: bool) -> Part {
        match (leaving, is_flushing) {
            ([], false) => self.next_part(room),
            ([], true) => Part::default(),
            (names, _) => self.leave(names, room),
        }
    }

    /// Notes whether names stay out of a request with all names. Returns true if no name stayed out before.
    pub(super) fn is_newly_full(&mut self, left: &BTreeSet<ResourceName>) -> bool {
        let is_full = !left.is_empty();
        std::mem::replace(&mut self.said.is_full, is_full) != is_full && is_full
    }

    fn leave(&mut self, names: &[ResourceName], mut room: Room) -> Part {
        let mut leaving = names.iter().filter_map(|name| self.said.leave.take(name)).collect();
        let unsubscribe = take_some(&mut leaving, &mut room, true);
        self.said.leave.append(&mut leaving);
        Part { unsubscribe, ..Part::default() }
    }

    /// The names that a request newly lists. `left`: names that stay out of a request with all names.
    pub(super) fn entering(&mut self, variant: Variant, part: Part, left: &BTreeSet<ResourceName>) -> Part {
        if variant == Variant::Delta {
            return part;
        }
        self.said.leave.clear();
        let mut subscribe = std::mem::take(&mut self.said.enter);
        for name in left {
            if let Some(name) = subscribe.take(name) {
                self.said.enter.insert(name);
            }
        }
        Part { subscribe, ..part }
    }

    /// The names that fit into a request with all names, and that stay out. Names that the stream has requested stay.
    pub(super) fn fitting(&self, mut room: Room) -> (Vec<ResourceName>, BTreeSet<ResourceName>) {
        let listed = self.listed();
        if room.take(of_names(&listed)) {
            return (listed, BTreeSet::new());
        }
        let (mut fits, mut left) = (Vec::new(), BTreeSet::new());
        let (new, said): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|name| self.said.enter.contains(name));
        for name in said.into_iter().chain(new) {
            if room.take(of_name(&name)) {
                fits.push(name);
            } else {
                left.insert(name);
            }
        }
        (fits, left)
    }
}

impl Said {
    /// Takes wanted names while there is room, and earlier ones before later ones: a client that asks for more and more does not keep the
    /// names of others waiting. `is_empty` as in [`take_some`].
    fn take_in_turn(&mut self, room: &mut Room, is_empty: bool) -> BTreeSet<ResourceName> {
        let mut taken = BTreeSet::new();
        loop {
            if self.turn.is_empty() {
                self.turn.clone_from(&self.enter);
            }
            let Some(name) = self.turn.pop_first() else { break };
            if !self.enter.contains(&name) {
                continue;
            }
            let is_first = is_empty && taken.is_empty();
            if !room.take(of_name(&name)) && !is_first {
                self.turn.insert(name);
                break;
            }
            taken.extend(self.enter.take(&name));
        }
        taken
    }
}

/// Takes names in order while there is room. `is_empty`: the request has nothing yet, and is to have one name in any case.
fn take_some(names: &mut BTreeSet<ResourceName>, room: &mut Room, is_empty: bool) -> BTreeSet<ResourceName> {
    let mut taken = BTreeSet::new();
    while let Some(name) = names.first() {
        let is_first = is_empty && taken.is_empty();
        if !room.take(of_name(name)) && !is_first {
            break;
        }
        taken.extend(names.pop_first());
    }
    taken
}
