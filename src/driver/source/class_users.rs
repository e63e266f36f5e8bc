//! The users of node classes, and the choice of a class to displace when there is no room (RLY-14, I19).
//!
//! While there is room, nobody is refused because of others. Without room, classes without clients go first,
//! the newcomer's own before all others. Then a newcomer's first classes displace the latest class of the
//! heaviest user, so that no peer can keep others out. A proved identity is one user, however many
//! connections it has. Whoever proved none is told by the connection, because all clients behind a proxy have
//! one address, and then by the address. A class with a hold stays (WAV-8): anew, the class would give the
//! held content to clients.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sluice_identity::Identity;

/// The number of classes per user that take precedence over further classes of others. A
/// client needs few: one for each style of names, and those of rules that name types.
const FIRST_CLASSES: u32 = 8;

/// The origin of a connection. An IPv6 client mostly has all addresses of its /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionOrigin {
    /// A unix socket.
    Local,
    V4(u32),
    V6(u64),
}

impl ConnectionOrigin {
    fn of(address: Option<SocketAddr>) -> ConnectionOrigin {
        match address.map(|address| address.ip().to_canonical()) {
            None => ConnectionOrigin::Local,
            Some(IpAddr::V4(address)) => ConnectionOrigin::V4(address.to_bits()),
            Some(IpAddr::V6(address)) => {
                ConnectionOrigin::V6(u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX))
            }
        }
    }
}

/// A user of classes, as far as the user can be told from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Principal {
    /// The name in a verified certificate.
    Proved(Arc<Identity>),
    /// The number of the connection, unique among the open connections.
    Connection(usize),
}

/// A downstream connection that uses a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    principal: Principal,
    origin: ConnectionOrigin,
    /// Unique among the open connections.
    pub connection: usize,
}

impl Holder {
    /// `connection`: unique among the open connections.
    pub fn new(identity: &Arc<Identity>, address: Option<SocketAddr>, connection: usize) -> Holder {
        let principal = match **identity {
            Identity::Spiffe(_) | Identity::Dns(_) => Principal::Proved(identity.clone()),
            // An authority has many clients, and a user of this host has many processes.
            Identity::Anonymous | Identity::Unix { .. } | Identity::TrustDomain(_) => {
                Principal::Connection(connection)
            }
        };
        Holder { principal, origin: ConnectionOrigin::of(address), connection }
    }
}

/// The streams that use a class, by user, connection and origin.
#[derive(Debug, Default)]
pub(crate) struct Users {
    principals: HashMap<Principal, u32>,
    connections: HashMap<usize, u32>,
    origins: HashMap<ConnectionOrigin, u32>,
}

impl Users {
    /// Returns true if the connection did not use the class before.
    pub fn add(&mut self, holder: &Holder) -> bool {
        *self.principals.entry(holder.principal.clone()).or_default() += 1;
        *self.origins.entry(holder.origin).or_default() += 1;
        let of_connection = self.connections.entry(holder.connection).or_default();
        *of_connection += 1;
        *of_connection == 1
    }

    /// Returns true if the connection does not use the class any more.
    pub fn remove(&mut self, holder: &Holder) -> bool {
        remove_one(&mut self.principals, &holder.principal);
        remove_one(&mut self.origins, &holder.origin);
        remove_one(&mut self.connections, &holder.connection)
    }

    /// The number of streams.
    pub fn streams(&self) -> usize {
        self.connections.values().map(|streams| *streams as usize).sum()
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

    fn principal(&self) -> Option<&Principal> {
        only(&self.principals)
    }

    fn connection(&self) -> Option<&usize> {
        only(&self.connections)
    }

    fn origin(&self) -> Option<&ConnectionOrigin> {
        only(&self.origins)
    }

    /// Whether no user has a proved identity.
    fn is_unproved(&self) -> bool {
        self.principals.keys().all(|principal| matches!(principal, Principal::Connection(_)))
    }
}

fn only<K>(counts: &HashMap<K, u32>) -> Option<&K> {
    (counts.len() == 1).then(|| counts.keys().next()).flatten()
}

fn remove_one<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(key);
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
    pub opened_by: Option<&'a Holder>,
    /// Content is held back from the clients of the class, or has to be.
    pub is_held: bool,
}

impl Placed<'_> {
    /// The order in which classes without users go: by the newcomer's connection, by the newcomer, by the
    /// newcomer's address, by others.
    fn distance(&self, newcomer: &Holder) -> u8 {
        match self.opened_by {
            Some(by) if by == newcomer => 0,
            Some(by) if by.principal == newcomer.principal => 1,
            Some(by) if by.origin == newcomer.origin => 2,
            _ => 3,
        }
    }
}

/// The class that gives its place to a newcomer. `None` if the newcomer is to be refused.
pub(crate) fn displaced<'a>(
    classes: impl Iterator<Item = Placed<'a>> + Clone,
    newcomer: &Holder,
) -> Option<u64> {
    let unused = classes.clone().filter(|class| class.users.is_empty() && !class.is_held);
    if let Some(unused) = unused.min_by_key(|class| (class.distance(newcomer), class.id)) {
        return Some(unused.id);
    }
    let by_principal =
        taken(classes.clone(), &newcomer.principal, Users::principal, |users| &users.principals);
    // Connections of one identity are told apart: all replicas of a workload may have the same name.
    let by_connection = || {
        let sharing = classes.clone().filter(|class| class.users.principal() == Some(&newcomer.principal));
        taken(sharing, &newcomer.connection, Users::connection, |users| &users.connections)
    };
    let by_origin = || {
        let unproved = classes.clone().filter(|class| class.users.is_unproved());
        taken(unproved, &newcomer.origin, Users::origin, |users| &users.origins)
    };
    by_principal.or_else(by_connection).or_else(by_origin)
}

/// The latest class of the user with the most classes; `None` if the newcomer has its share already. `only`:
/// the user of a class, if the class has no other user. `all`: all users of a class.
fn taken<'a, K: Eq + Hash + 'a>(
    classes: impl Iterator<Item = Placed<'a>> + Clone,
    newcomer: &K,
    only: impl Fn(&'a Users) -> Option<&'a K>,
    all: impl Fn(&'a Users) -> &'a HashMap<K, u32>,
) -> Option<u64> {
    let share = count(classes.clone().filter(|class| all(class.users).contains_key(newcomer)));
    let counts = tally(classes.clone().filter_map(|class| only(class.users)));
    let (heaviest, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let has_share = share >= FIRST_CLASSES || most <= share + 1;
    (!has_share).then(|| last_of(classes.filter(|class| only(class.users) == Some(heaviest)))).flatten()
}

/// The latest class of the connection with the most classes, apart from classes with a hold.
fn last_of<'a>(classes: impl Iterator<Item = Placed<'a>> + Clone) -> Option<u64> {
    let classes = classes.filter(|class| !class.is_held);
    let counts = tally(classes.clone().filter_map(|class| class.users.connection()));
    let weight = |class: &Placed<'_>| class.users.connection().and_then(|one| counts.get(one)).copied();
    classes.max_by_key(|class| (weight(class), class.id)).map(|class| class.id)
}

fn count<'a>(classes: impl Iterator<Item = Placed<'a>>) -> u32 {
    u32::try_from(classes.count()).unwrap_or(u32::MAX)
}

fn tally<'a, K: Eq + Hash + 'a>(keys: impl Iterator<Item = &'a K>) -> HashMap<&'a K, u32> {
    let mut counts = HashMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn holder(address: u8, connection: usize) -> Holder {
        Holder::new(&Arc::default(), Some(([10, 0, 0, address], 1).into()), connection)
    }

    fn proved(name: &str, address: u8, connection: usize) -> Holder {
        Holder::new(&Arc::new(Identity::Dns(name.into())), Some(([10, 0, 0, address], 1).into()), connection)
    }

    /// Classes, each with these connections.
    fn classes(users: &[&[&Holder]]) -> Vec<(u64, Users)> {
        let uses = |users: &&[&Holder]| {
            let mut uses = Users::default();
            users.iter().for_each(|user| assert!(uses.add(user)));
            uses
        };
        (0..).zip(users.iter().map(uses)).collect()
    }

    fn displaced_by(classes: &[(u64, Users)], newcomer: &Holder) -> Option<u64> {
        displaced_of(classes, &[], &[], newcomer)
    }

    /// `opened`: the openers of the first classes. `held`: the classes with a hold.
    fn displaced_of(
        classes: &[(u64, Users)],
        opened: &[&Holder],
        held: &[u64],
        newcomer: &Holder,
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
        let hog = &holder(1, 1);
        assert_eq!(displaced_by(&classes(&[&[hog], &[], &[hog], &[]]), hog), Some(1));
    }

    #[test]
    fn rly_14_what_the_newcomer_left_behind_goes_before_the_classes_of_others() {
        let (stranger, again) = (&proved("stranger", 1, 1), &proved("stranger", 4, 4));
        let (sibling, other) = (&holder(1, 2), &holder(2, 3));
        let unused = classes(&[&[], &[], &[], &[], &[]]);
        let opened = [other, sibling, again, stranger, stranger];
        assert_eq!(displaced_of(&unused, &opened, &[], stranger), Some(3), "its own, the oldest first");
        assert_eq!(displaced_of(&unused[..3], &opened, &[], stranger), Some(2), "then those of its identity");
        assert_eq!(displaced_of(&unused[..2], &opened, &[], stranger), Some(1), "then those of its address");
        assert_eq!(displaced_of(&unused[..1], &opened, &[], stranger), Some(0));
    }

    #[test]
    fn wav_8_a_class_with_a_hold_stays_and_the_newcomer_is_refused() {
        let (hog, stranger) = (&holder(1, 1), &holder(9, 9));
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
        let (hog, hog_too, other) = (&holder(1, 1), &holder(1, 2), &holder(2, 3));
        let used = classes(&[&[hog], &[hog_too], &[hog_too], &[other], &[hog, other]]);
        assert_eq!(displaced_by(&used, &holder(9, 9)), Some(2));
        // The hog has only its share, compared with a client that has nearly as many.
        assert_eq!(displaced_by(&used, other), None);
        assert_eq!(displaced_by(&used, hog), None);
    }

    #[test]
    fn i19_a_proved_identity_is_one_user_with_any_number_of_connections_and_addresses() {
        let hog = [1, 2, 3].map(|at| proved("hog", at, at.into()));
        let [first, second, third] = &hog;
        let used = classes(&[&[first], &[second], &[third]]);
        assert_eq!(displaced_by(&used, &proved("other", 1, 9)), Some(2), "behind one address too");
        assert_eq!(displaced_by(&used, &holder(1, 9)), Some(2));
        assert_eq!(displaced_by(&used, &proved("hog", 9, 9)), None, "it has its share already");
        // Replicas of one workload are told apart by their connections.
        let used = classes(&[&[first], &[second], &[second]]);
        assert_eq!(displaced_by(&used, third), Some(2));
    }

    #[test]
    fn i19_connections_of_one_address_are_one_user_unless_they_proved_more() {
        let crowd: Vec<Holder> = (1..=4).map(|connection| holder(1, connection)).collect();
        let used: Vec<[&Holder; 1]> = crowd.iter().map(|one| [one]).collect();
        let used = classes(&used.iter().map(|one| &one[..]).collect::<Vec<_>>());
        assert_eq!(displaced_by(&used, &holder(2, 9)), Some(3), "from elsewhere");
        assert_eq!(displaced_by(&used, &holder(1, 9)), None, "nothing tells it from the crowd");
        let named = [proved("a", 1, 1), proved("b", 1, 2), proved("c", 1, 3)];
        let [a, b, c] = &named;
        assert_eq!(displaced_by(&classes(&[&[a], &[b], &[c]]), &holder(2, 9)), None);
    }

    #[test]
    fn a_class_that_others_use_too_stays() {
        let (hog, other) = (&holder(1, 1), &holder(2, 2));
        let used = classes(&[&[hog, other], &[hog, other], &[hog, other]]);
        assert_eq!(displaced_by(&used, &holder(9, 9)), None);
    }

    #[test]
    fn precedence_ends_with_the_first_classes() {
        let (hog, newcomer) = (&holder(1, 1), &holder(9, 9));
        let (of_one, of_other) = ([hog], [newcomer]);
        let of_hog: Vec<&[&Holder]> = vec![&of_one; 100];
        let mut of_both = of_hog.clone();
        of_both.extend(vec![&of_other as &[&Holder]; FIRST_CLASSES as usize]);
        assert_eq!(displaced_by(&classes(&of_hog), newcomer), Some(99));
        assert_eq!(displaced_by(&classes(&of_both), newcomer), None);
    }

    #[test]
    fn behind_one_address_the_connections_are_told_apart() {
        let (hog, newcomer) = (&holder(1, 1), &holder(1, 2));
        assert_eq!(displaced_by(&classes(&[&[hog], &[hog], &[hog]]), newcomer), Some(2));
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let origin = |text: &str| ConnectionOrigin::of(Some(text.parse().unwrap()));
        assert_eq!(origin("[2001:db8::1]:1"), origin("[2001:db8::ffff:2]:2"));
        assert_ne!(origin("[2001:db8::1]:1"), origin("[2001:db8:0:1::1]:1"));
        assert_eq!(origin("[::ffff:10.0.0.1]:1"), origin("10.0.0.1:2"));
    }
}
