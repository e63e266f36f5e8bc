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
    /// In the order of departure.
    queue: BTreeMap<u64, (Time, ResourceName)>,
    places: BTreeMap<ResourceName, u64>,
    bytes: usize,
    count: u64,
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
        let Some(place) = self.places.remove(name) else { return };
        self.queue.remove(&place);
        if let Some(resource) = self.bodies.remove(name) {
            self.bytes -= resource.size();
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
            self.drop_name(&name);
            self.count += 1;
            self.queue.insert(self.count, (stamp.now, name.clone()));
            self.places.insert(name.clone(), self.count);
            self.bytes += resource.size();
            self.bodies.insert(name, resource);
        }
        while self.bytes > BYTES_MAX && self.evict() {}
        self.last
    }

    fn evict(&mut self) -> bool {
        let Some((_, (_, name))) = self.queue.first_key_value() else { return false };
        let name = name.clone();
        self.evicted += 1;
        self.drop_name(&name);
        true
    }

    /// The time when [`Departed::expire`] has work.
    pub fn poll_timeout(&self) -> Option<Time> {
        let (_, (left_at, _)) = self.queue.first_key_value().filter(|_| self.of_members)?;
        Some(*left_at + MEMBERS_KEPT)
    }

    /// Frees expired bytes. Returns whether there were any.
    pub fn expire(&mut self, now: Time) -> bool {
        let before = self.evicted;
        while self.poll_timeout().is_some_and(|due| due <= now) && self.evict() {}
        self.evicted != before
    }

    pub fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    pub fn evicted(&self) -> u64 {
        self.evicted
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
}
