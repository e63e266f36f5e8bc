//! The last bytes of resources that recently left a collection, for clients whose removals are still withheld
//! (RLY-51, SST-6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::news::Stamp;
use super::state::Bodies;
use crate::Time;
use crate::view::ViewId;
use sluice_xds::{Resource, ResourceName};

/// The time for which bytes of former members are kept. A stream may withhold a removal for 15 s after the
/// stream sees the removal, and a stream with a blocked connection sees changes late.
const MEMBERS_KEPT: Duration = Duration::from_secs(30);

/// The bound for one collection. Beyond the bound the oldest resources go, and clients lose these resources
/// early.
const BYTES_MAX: usize = 16 << 20;

/// Departed names of a collection, with their last bytes and their order.
#[derive(Debug, Default)]
pub struct Departed {
    /// By name, shared with the snapshots.
    bodies: Bodies,
    /// The names of the bodies, each with the time of its departure.
    names: KeptNames<Time>,
    /// The number of bodies that were freed before the name came back or lost its last session.
    evicted: u64,
    /// Departures since the collection was last settled.
    leaving: BTreeMap<ResourceName, Arc<Resource>>,
    lost: bool,
    last: ViewId,
    /// Names are kept as long as sessions want them; members, which have no sessions of their own, for
    /// [`MEMBERS_KEPT`].
    of_members: bool,
    /// False for types without references from other types: no bytes are kept.
    pub kept: bool,
}

impl Departed {
    pub fn of_members() -> Departed {
        Departed { of_members: true, ..Departed::default() }
    }

    /// Clients lose a name, which may be the alias of a resource (ALI-1). `old`: the last resource, if known.
    pub fn lose(&mut self, name: &ResourceName, old: Option<&Arc<Resource>>) {
        self.lost = true;
        self.leaving.extend(old.map(|old| (name.clone(), old.clone())));
    }

    /// Clients may lose unknown resources.
    pub fn lose_some(&mut self) {
        self.lost = true;
    }

    /// The name is present again, or has lost its last session.
    pub fn back(&mut self, name: &ResourceName) {
        self.leaving.remove(name);
        self.drop_name(name);
    }

    fn drop_name(&mut self, name: &ResourceName) {
        if self.names.remove(name) {
            self.bodies.remove(name);
        }
    }

    /// The mark of the last loss. Two views of the collection have the same mark only if no name left between
    /// them.
    pub fn settle(&mut self, stamp: &mut Stamp) -> ViewId {
        if std::mem::take(&mut self.lost) || self.last == ViewId::default() {
            (self.last, _) = stamp.next();
        }
        let kept = self.kept;
        for (name, resource) in std::mem::take(&mut self.leaving).into_iter().filter(|_| kept) {
            self.names.put(&name, resource.size(), stamp.now);
            self.bodies.insert(name, resource);
        }
        for name in self.names.evict(BYTES_MAX, |_| true) {
            self.free(&name);
        }
        self.last
    }

    /// Frees the bytes of a name before the name came back.
    fn free(&mut self, name: &ResourceName) {
        self.evicted += 1;
        self.bodies.remove(name);
    }

    /// The time when [`Departed::expire`] has work.
    pub fn poll_timeout(&self) -> Option<Time> {
        let left_at = self.names.first_at().filter(|_| self.of_members)?;
        Some(left_at + MEMBERS_KEPT)
    }

    /// Frees expired bytes. Returns whether there were any.
    pub fn expire(&mut self, now: Time) -> bool {
        let before = self.evicted;
        while self.poll_timeout().is_some_and(|due| due <= now)
            && let Some(name) = self.names.take_first()
        {
            self.free(&name);
        }
        self.evicted != before
    }

    pub fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    pub fn evicted(&self) -> u64 {
        self.evicted
    }
}

/// Names in the order in which they were put, each with the bytes that are kept for it and a time or nothing:
/// beyond a bound the oldest go first. For bytes that outlive their place in the source's content.
#[derive(Clone, Debug, Default)]
pub struct KeptNames<T> {
    queue: BTreeMap<u64, (T, ResourceName)>,
    places: BTreeMap<ResourceName, (u64, usize)>,
    count: u64,
    bytes: usize,
}

impl<T: Copy> KeptNames<T> {
    /// Puts a name last, also if it is there already.
    pub fn put(&mut self, name: &ResourceName, bytes: usize, at: T) {
        self.remove(name);
        self.count += 1;
        self.bytes += bytes;
        self.queue.insert(self.count, (at, name.clone()));
        self.places.insert(name.clone(), (self.count, bytes));
    }

    /// Returns whether the name was there.
    pub fn remove(&mut self, name: &ResourceName) -> bool {
        let Some((place, bytes)) = self.places.remove(name) else { return false };
        self.queue.remove(&place);
        self.bytes -= bytes;
        true
    }

    pub fn contains(&self, name: &ResourceName) -> bool {
        self.places.contains_key(name)
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.places.keys()
    }

    fn first_at(&self) -> Option<T> {
        self.queue.first_key_value().map(|(_, (at, _))| *at)
    }

    fn take_first(&mut self) -> Option<ResourceName> {
        let name = self.queue.first_key_value().map(|(_, (_, name))| name.clone())?;
        self.remove(&name);
        Some(name)
    }

    /// Takes the oldest names beyond the bound out, among those that may go.
    pub fn evict(&mut self, bytes_max: usize, may_go: impl Fn(&ResourceName) -> bool) -> Vec<ResourceName> {
        let (mut over, mut gone) = (self.bytes.saturating_sub(bytes_max), Vec::new());
        for (_, name) in self.queue.values().filter(|(_, name)| may_go(name)) {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(self.places.get(name).map_or(0, |(_, bytes)| *bytes));
            gone.push(name.clone());
        }
        for name in &gone {
            self.remove(name);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use sluice_xds::{Any, Version};

    fn resource(name: &str, bytes: usize) -> Arc<Resource> {
        Arc::new(Resource {
            name: name.into(),
            version: Version(1),
            body: Any { type_url: Arc::from("t"), value: Bytes::from(vec![0; bytes]) },
            aliases: Box::default(),
            ttl: None,
            do_not_cache: false,
            body_has_name: true,
            metadata: None,
            endpoints: None,
            constraints: None,
        })
    }

    fn names(departed: &Departed) -> Vec<&str> {
        departed.bodies().keys().map(ResourceName::as_str).collect()
    }

    #[test]
    fn rly_51_members_are_kept_for_a_while_and_names_as_long_as_they_are_asked_for() {
        let mut stamp = Stamp::new(1);
        let mut both = [Departed::of_members(), Departed::default()];
        for departed in &mut both {
            departed.kept = true;
            let first = departed.settle(stamp.at(Time::ZERO));
            departed.lose(&"a".into(), Some(&resource("a", 1)));
            assert_ne!(departed.settle(stamp.at(Time::ZERO)), first, "a loss has a mark of its own");
        }
        let [members, asked] = &mut both;
        assert_eq!((members.poll_timeout(), asked.poll_timeout()), (Some(Time::ZERO + MEMBERS_KEPT), None));
        let late = Time::ZERO + MEMBERS_KEPT;
        assert!(members.expire(late) && !asked.expire(late));
        assert_eq!((names(members), names(asked)), (vec![], vec!["a"]));
        asked.back(&"a".into());
        assert_eq!((names(asked), asked.evicted()), (vec![], 0));
    }

    #[test]
    fn what_comes_back_is_not_departed() {
        let mut stamp = Stamp::new(1);
        let mut departed = Departed { kept: true, ..Departed::of_members() };
        departed.lose(&"a".into(), Some(&resource("a", 1)));
        departed.back(&"a".into());
        let mark = departed.settle(stamp.at(Time::ZERO));
        assert_eq!((names(&departed), departed.poll_timeout()), (vec![], None));
        assert_eq!(departed.settle(stamp.at(Time::ZERO)), mark, "nothing left since");
    }

    #[test]
    fn over_the_bound_the_oldest_goes_first() {
        let mut stamp = Stamp::new(1);
        let mut departed = Departed { kept: true, ..Departed::default() };
        for name in ["b", "a", "c"] {
            departed.lose(&name.into(), Some(&resource(name, 7 << 20)));
            departed.settle(stamp.at(Time::ZERO));
        }
        assert_eq!((names(&departed), departed.evicted()), (vec!["a", "c"], 1));
        let mut other = Departed::default();
        other.lose(&"a".into(), Some(&resource("a", 1)));
        other.settle(&mut stamp);
        assert!(names(&other).is_empty(), "types that nothing refers to");
    }

    #[test]
    fn wav_5_beyond_the_bound_the_oldest_unwatched_names_go() {
        let name = |number: u8| ResourceName::new(&number.to_string());
        let may_go = |kept: &ResourceName| *kept != name(2);
        let add = |few: &mut KeptNames<()>, numbers: &[u8]| {
            numbers.iter().for_each(|number| few.put(&name(*number), 26, ()));
        };
        let mut few = KeptNames::default();
        add(&mut few, &[2, 1, 0]);
        assert!(few.evict(100, may_go).is_empty() && few.len() == 3, "within the bound");
        // A name that comes back is not old.
        few.remove(&name(1));
        add(&mut few, &[3, 1]);
        assert_eq!(few.evict(100, may_go), [name(0)], "the oldest is watched, and one is enough");
        assert!(few.evict(100, may_go).is_empty() && !few.contains(&name(0)));
        add(&mut few, &[4, 5]);
        assert_eq!(few.evict(100, may_go), [name(3), name(1)]);
        assert_eq!(few.names().collect::<Vec<_>>(), [&name(2), &name(4), &name(5)]);
        add(&mut few, &[6]);
        assert!(few.evict(100, |_| false).is_empty() && few.len() == 4, "somebody asks for all of them");
    }
}
