//! The users of node classes, and the choice of a class to displace when there is no room (RLY-14, I19).
//!
//! Connections use classes, and come from addresses. While there is room, nobody is refused because of other
//! clients with the same address. Without room, classes without clients go first, the newcomer's own before all
//! others. Then a newcomer's first classes displace the latest class of the heaviest user, so that
//! no peer can keep others out. A class with a hold stays (WAV-8): anew, the class would give the held content to
//! clients.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

/// The number of classes per address, or connection, that take precedence over further classes of others. A
/// client needs few: one for each style of names, and those of rules that name types.
const FIRST_CLASSES: u32 = 8;

/// The origin of a connection. An IPv6 client mostly has all addresses of its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A unix socket.
    Local,
    V4(u32),
    V6(u64),
}

impl Origin {
    pub fn of(address: Option<SocketAddr>) -> Origin {
        match address.map(|address| address.ip().to_canonical()) {
            None => Origin::Local,
            Some(IpAddr::V4(address)) => Origin::V4(address.to_bits()),
            Some(IpAddr::V6(address)) => {
                Origin::V6(u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX))
            }
        }
    }
}

/// A downstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    pub origin: Origin,
    /// Unique among the open connections.
    pub connection: usize,
}

/// The streams that use a class, by origin and connection.
#[derive(Debug, Default)]
pub(crate) struct Users {
    origins: HashMap<Origin, u32>,
    connections: HashMap<usize, u32>,
}

impl Users {
    /// Returns true if the connection did not use the class before.
    pub fn add(&mut self, holder: Holder) -> bool {
        *self.origins.entry(holder.origin).or_default() += 1;
        let of_connection = self.connections.entry(holder.connection).or_default();
        *of_connection += 1;
        *of_connection == 1
    }

    /// Returns true if the connection does not use the class any more.
    pub fn remove(&mut self, holder: Holder) -> bool {
        remove_one(&mut self.origins, holder.origin);
        remove_one(&mut self.connections, holder.connection)
    }

    /// Whether the class only lingers, without users.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    pub fn is_of(&self, connection: usize) -> bool {
        self.connections.contains_key(&connection)
    }

    pub fn connections(&self) -> impl Iterator<Item = usize> + '_ {
        self.connections.keys().copied()
    }

    fn only_origin(&self) -> Option<Origin> {
        only(&self.origins)
    }

    fn only_connection(&self) -> Option<usize> {
        only(&self.connections)
    }
}

fn only<K: Copy>(counts: &HashMap<K, u32>) -> Option<K> {
    (counts.len() == 1).then(|| counts.keys().next().copied()).flatten()
}

fn remove_one<K: Copy + Eq + Hash>(counts: &mut HashMap<K, u32>, key: K) -> bool {
    let Some(count) = counts.get_mut(&key) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(&key);
    }
    is_last
}

/// A class, for the choice of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    /// The number of the source.
    pub id: u64,
    pub users: &'a Users,
    /// The user behind the opening request.
    pub opened_by: Option<Holder>,
    /// Content is held back from the clients of the class, or has to be.
    pub is_held: bool,
}

impl Placed<'_> {
    /// The order in which classes without users go: by the newcomer's connection, by the newcomer's address, by others.
    fn distance(&self, newcomer: Holder) -> u8 {
        match self.opened_by {
            Some(by) if by == newcomer => 0,
            Some(by) if by.origin == newcomer.origin => 1,
            _ => 2,
        }
    }
}

/// The class that gives its place to a newcomer. `None` if the newcomer is to be refused.
pub(crate) fn displaced<'a>(
    classes: impl Iterator<Item = Placed<'a>> + Clone,
    newcomer: Holder,
) -> Option<u64> {
    let unused = classes.clone().filter(|of| of.users.is_empty() && !of.is_held);
    if let Some(unused) = unused.min_by_key(|of| (of.distance(newcomer), of.id)) {
        return Some(unused.id);
    }
    let used_by = |of: &Placed<'_>| of.users.origins.contains_key(&newcomer.origin);
    let own = count(classes.clone().filter(used_by));
    let (origin, most) = heaviest(classes.clone().filter_map(|of| of.users.only_origin()))?;
    if origin != newcomer.origin && own < FIRST_CLASSES && most > own + 1 {
        return last_of(classes.filter(|of| of.users.only_origin() == Some(origin)));
    }
    // Connections from one address are told apart: behind a proxy, all clients have the same address.
    let used_by = |of: &Placed<'_>| of.users.connections.contains_key(&newcomer.connection);
    let own = count(classes.clone().filter(used_by));
    let neighbours = classes.filter(|of| of.users.only_origin() == Some(newcomer.origin));
    let (_, most) = heaviest(neighbours.clone().filter_map(|of| of.users.only_connection()))?;
    if own < FIRST_CLASSES && most > own + 1 { last_of(neighbours) } else { None }
}

/// The latest class of the connection with the most classes, apart from classes with a hold.
fn last_of<'a>(classes: impl Iterator<Item = Placed<'a>> + Clone) -> Option<u64> {
    let classes = classes.filter(|of| !of.is_held);
    let Some((connection, _)) = heaviest(classes.clone().filter_map(|of| of.users.only_connection())) else {
        return classes.map(|of| of.id).max();
    };
    classes.filter(|of| of.users.only_connection() == Some(connection)).map(|of| of.id).max()
}

fn count<'a>(classes: impl Iterator<Item = Placed<'a>>) -> u32 {
    u32::try_from(classes.count()).unwrap_or(u32::MAX)
}

/// The most frequent key, and its count.
fn heaviest<K: Copy + Eq + Hash>(keys: impl Iterator<Item = K>) -> Option<(K, u32)> {
    let mut counts: HashMap<K, u32> = HashMap::new();
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn holder(address: u32, connection: usize) -> Holder {
        Holder { origin: Origin::V4(address), connection }
    }

    /// Classes, each with these connections.
    fn classes(users: &[&[Holder]]) -> Vec<(u64, Users)> {
        let uses = |users: &&[Holder]| {
            let mut uses = Users::default();
            users.iter().for_each(|user| assert!(uses.add(*user)));
            uses
        };
        (0..).zip(users.iter().map(uses)).collect()
    }

    fn displaced_by(classes: &[(u64, Users)], newcomer: Holder) -> Option<u64> {
        displaced_of(classes, &[], &[], newcomer)
    }

    /// `opened`: the openers of the first classes. `held`: the classes with a hold.
    fn displaced_of(
        classes: &[(u64, Users)],
        opened: &[Holder],
        held: &[u64],
        newcomer: Holder,
    ) -> Option<u64> {
        let placed = classes.iter().map(|(id, users)| Placed {
            id: *id,
            users,
            opened_by: opened.get(usize::try_from(*id).unwrap()).copied(),
            is_held: held.contains(id),
        });
        displaced(placed, newcomer)
    }

    #[test]
    fn the_oldest_lingering_class_goes_first() {
        let hog = holder(1, 1);
        assert_eq!(displaced_by(&classes(&[&[hog], &[], &[hog], &[]]), hog), Some(1));
    }

    #[test]
    fn rly_14_what_the_newcomer_left_behind_goes_before_the_classes_of_others() {
        let (stranger, sibling, other) = (holder(1, 1), holder(1, 2), holder(2, 3));
        let unused = classes(&[&[], &[], &[], &[]]);
        let opened = [other, sibling, stranger, stranger];
        assert_eq!(displaced_of(&unused, &opened, &[], stranger), Some(2), "its own, the oldest first");
        assert_eq!(displaced_of(&unused[..2], &opened, &[], stranger), Some(1), "then those of its address");
        assert_eq!(displaced_of(&unused[..1], &opened, &[], stranger), Some(0));
    }

    #[test]
    fn wav_8_a_class_with_a_hold_stays_and_the_newcomer_is_refused() {
        let (hog, stranger) = (holder(1, 1), holder(9, 9));
        let asleep = classes(&[&[], &[]]);
        assert_eq!(displaced_of(&asleep, &[], &[0], stranger), Some(1));
        assert_eq!(displaced_of(&asleep, &[stranger, stranger], &[0, 1], stranger), None);
        // Nor does the heaviest user lose a class with a hold.
        let used = classes(&[&[hog], &[hog], &[hog]]);
        assert_eq!(displaced_of(&used, &[], &[2], stranger), Some(1));
        assert_eq!(displaced_of(&used, &[], &[0, 1, 2], stranger), None);
    }

    #[test]
    fn i19_the_heaviest_user_loses_its_latest_class() {
        let (hog, hog_too, other) = (holder(1, 1), holder(1, 2), holder(2, 3));
        let used = classes(&[&[hog], &[hog_too], &[hog_too], &[other], &[hog, other]]);
        assert_eq!(displaced_by(&used, holder(9, 9)), Some(2));
        // The hog has only its share, compared with a client that has nearly as many.
        assert_eq!(displaced_by(&used, other), None);
        assert_eq!(displaced_by(&used, hog), None);
    }

    #[test]
    fn a_class_that_others_use_too_stays() {
        let (hog, other) = (holder(1, 1), holder(2, 2));
        let used = classes(&[&[hog, other], &[hog, other], &[hog, other]]);
        assert_eq!(displaced_by(&used, holder(9, 9)), None);
    }

    #[test]
    fn precedence_ends_with_the_first_classes() {
        let (hog, own) = ([holder(1, 1)], [holder(9, 9)]);
        let newcomer = own[0];
        let of_hog: Vec<&[Holder]> = vec![&hog; 100];
        let mut of_both = of_hog.clone();
        of_both.extend(vec![&own as &[Holder]; FIRST_CLASSES as usize]);
        assert_eq!(displaced_by(&classes(&of_hog), newcomer), Some(99));
        assert_eq!(displaced_by(&classes(&of_both), newcomer), None);
    }

    #[test]
    fn behind_one_address_the_connections_are_told_apart() {
        let (hog, newcomer) = (holder(1, 1), holder(1, 2));
        assert_eq!(displaced_by(&classes(&[&[hog], &[hog], &[hog]]), newcomer), Some(2));
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let of = |text: &str| Origin::of(Some(text.parse().unwrap()));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:2"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!(of("[::ffff:10.0.0.1]:1"), of("10.0.0.1:2"));
    }
}
