//! Names and wildcards without sessions, kept for a while and within a bound of bytes (RLY-59 to RLY-61).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::engine::Time;
use crate::xds::{ResourceName, TypeUrl};

/// A lingering name, or (`None`) the wildcard of a type.
pub type Lingering = (TypeUrl, Option<ResourceName>);

#[derive(Debug)]
struct Entry {
    deadline: Time,
    bytes: usize,
    /// The server supplied content under the name.
    has_content: bool,
}

/// A queue of lingering names and wildcards, oldest first.
#[derive(Debug)]
pub struct Linger {
    linger: Duration,
    bytes_max: usize,
    queue: BTreeSet<(Time, Lingering)>,
    /// Entries whose time is over, kept as long as `is_held`.
    parked: BTreeSet<(Time, Lingering)>,
    is_held: bool,
    /// The types for which the server is lost, where other types are not.
    held_types: BTreeSet<TypeUrl>,
    entries: BTreeMap<Lingering, Entry>,
    bytes: usize,
    evicted: u64,
}

impl Linger {
    pub fn new(linger: Duration, bytes_max: usize) -> Linger {
        let (queue, parked, held_types, entries, bytes, evicted) = Default::default();
        Linger { linger, bytes_max, queue, parked, is_held: false, held_types, entries, bytes, evicted }
    }

    /// Sets another time and bound. Entries keep the time they were given.
    pub fn configure(&mut self, linger: Duration, bytes_max: usize) {
        (self.linger, self.bytes_max) = (linger, bytes_max);
    }

    /// Keeps all entries past their time while the server is lost, within the bound of bytes: returning
    /// clients have no other copy of the resources (RLY-46).
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        if !is_held {
            self.queue.append(&mut self.parked);
        }
    }

    /// As [`Linger::hold`], where the server is lost for a single type.
    pub fn hold_type(&mut self, type_url: &TypeUrl, is_held: bool) {
        if is_held && !self.held_types.contains(type_url) {
            self.held_types.insert(type_url.clone());
        } else if !is_held && self.held_types.remove(type_url) {
            // The next `pop` parks entries again that have another reason to stay.
            self.queue.append(&mut self.parked);
        }
    }

    fn holds(&self, what: &Lingering) -> bool {
        self.is_held || self.held_types.contains(&what.0)
    }

    /// The last session has left. Secrets go at once (RLY-60). `bytes`: the weight, with or without content.
    pub fn add(&mut self, what: Lingering, bytes: usize, has_content: bool, now: Time) {
        let linger = if what.0.is_secret() { Duration::ZERO } else { self.linger };
        self.add_until(what, bytes, has_content, now + linger);
    }

    /// Adds an entry, or replaces its deadline.
    pub fn add_until(&mut self, what: Lingering, bytes: usize, has_content: bool, deadline: Time) {
        self.remove(&what);
        self.bytes += bytes;
        self.queue.insert((deadline, what.clone()));
        self.entries.insert(what, Entry { deadline, bytes, has_content });
    }

    /// A session wants the entry again.
    pub fn remove(&mut self, what: &Lingering) {
        if let Some(Entry { deadline, bytes, .. }) = self.entries.remove(what) {
            self.bytes -= bytes;
            let key = (deadline, what.clone());
            let _ = self.queue.remove(&key) || self.parked.remove(&key);
        }
    }

    /// The next entry to free: its time is over, or the entry is the oldest and the bytes exceed the bound.
    pub fn pop(&mut self, now: Time) -> Option<Lingering> {
        if self.bytes > self.bytes_max {
            let (deadline, what) = self.parked.pop_first().or_else(|| self.queue.pop_first())?;
            self.evicted += u64::from(deadline > now || self.holds(&what));
            return Some(self.let_go(what));
        }
        while self.queue.first().is_some_and(|(deadline, _)| *deadline <= now) {
            let (deadline, what) = self.queue.pop_first()?;
            if self.holds(&what) && self.is_worth_keeping(&what) {
                self.parked.insert((deadline, what));
            } else {
                return Some(self.let_go(what));
            }
        }
        None
    }

    /// The oldest entry, whether or not its time is over.
    pub fn pop_any(&mut self) -> Option<Lingering> {
        let (_, what) = self.parked.pop_first().or_else(|| self.queue.pop_first())?;
        Some(self.let_go(what))
    }

    /// Names without content are not worth memory, and no secret may outlive its last user.
    fn is_worth_keeping(&self, what: &Lingering) -> bool {
        self.entries.get(what).is_some_and(|entry| entry.has_content) && !what.0.is_secret()
    }

    fn let_go(&mut self, what: Lingering) -> Lingering {
        if let Some(entry) = self.entries.remove(&what) {
            self.bytes -= entry.bytes;
        }
        what
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        if self.bytes > self.bytes_max {
            return Some(Time::ZERO);
        }
        self.queue.first().map(|(deadline, _)| *deadline)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of entries that were evicted early because of the bound.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Lingering {
        (TypeUrl::of_message("acme.T"), Some(text.into()))
    }

    #[test]
    fn rel_5_another_time_and_bound_hold_for_what_comes() {
        let mut linger = Linger::new(Duration::from_secs(30), 1000);
        let start = Time::from_micros(5);
        linger.add(name("a"), 10, true, start);
        linger.configure(Duration::from_secs(5), 15);
        assert_eq!(linger.pop(start + Duration::from_secs(29)), None, "the entry keeps its time");
        linger.add(name("b"), 10, true, start);
        assert_eq!(linger.pop(start), Some(name("b")), "the oldest of too many bytes");
        linger.add(name("c"), 1, true, start);
        assert_eq!(linger.poll_timeout(), Some(start + Duration::from_secs(5)));
    }

    #[test]
    fn rly_60_names_linger_and_secrets_do_not() {
        let mut linger = Linger::new(Duration::from_secs(30), 1000);
        let start = Time::from_micros(5);
        linger.add(name("a"), 10, true, start);
        assert_eq!(linger.pop(start + Duration::from_secs(29)), None);
        assert_eq!(linger.poll_timeout(), Some(start + Duration::from_secs(30)));
        assert_eq!(linger.pop(start + Duration::from_secs(30)), Some(name("a")));
        assert_eq!(linger.evicted(), 0);
        let secret =
            (TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret"), Some("s".into()));
        linger.add(secret.clone(), 10, true, start);
        assert_eq!(linger.pop(start), Some(secret));
        assert!(linger.is_empty());
    }

    #[test]
    fn over_the_bound_the_oldest_goes_first() {
        let mut linger = Linger::new(Duration::from_secs(30), 25);
        linger.add(name("a"), 10, true, Time::ZERO);
        linger.add(name("b"), 10, true, Time::from_micros(1));
        linger.add(name("c"), 10, true, Time::from_micros(2));
        assert_eq!(linger.pop(Time::from_micros(3)), Some(name("a")));
        assert_eq!(linger.pop(Time::from_micros(3)), None);
        assert_eq!((linger.bytes(), linger.evicted()), (20, 1));
        linger.remove(&name("b"));
        assert_eq!(linger.bytes(), 10);
    }

    #[test]
    fn rly_46_while_the_server_is_lost_what_it_supplied_is_kept() {
        let mut linger = Linger::new(Duration::from_secs(30), 25);
        let after = |seconds| Time::ZERO + Duration::from_secs(seconds);
        linger.add(name("a"), 10, true, after(0));
        linger.add(name("nothing"), 1, false, after(0));
        linger.hold(true);
        assert_eq!(linger.pop(after(3600)), Some(name("nothing")));
        assert_eq!((linger.pop(after(3600)), linger.poll_timeout()), (None, None));
        linger.add(name("b"), 20, true, after(3600));
        assert_eq!(linger.pop(after(3600)), Some(name("a")), "the bound holds all the same");
        assert_eq!(linger.pop(after(3700)), None);
        linger.hold(false);
        assert_eq!((linger.pop(after(3700)), linger.is_empty()), (Some(name("b")), true));
    }
}
