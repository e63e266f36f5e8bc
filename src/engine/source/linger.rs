//! What nobody watches any more, for a while and within a bound of bytes (RLY-59 to RLY-61).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::engine::Time;
use crate::xds::{ResourceName, TypeUrl};

/// Something that lingers: a name, or (`None`) a type's wildcard.
pub type Lingering = (TypeUrl, Option<ResourceName>);

/// A queue of what lingers, oldest first.
#[derive(Debug)]
pub struct Linger {
    linger: Duration,
    bytes_max: usize,
    queue: BTreeSet<(Time, Lingering)>,
    entries: BTreeMap<Lingering, (Time, usize)>,
    bytes: usize,
    evicted: u64,
}

impl Linger {
    pub fn new(linger: Duration, bytes_max: usize) -> Linger {
        Linger { linger, bytes_max, queue: BTreeSet::new(), entries: BTreeMap::new(), bytes: 0, evicted: 0 }
    }

    /// The last one who watched it is gone. Secrets go at once (RLY-60).
    pub fn add(&mut self, what: Lingering, bytes: usize, now: Time) {
        let linger = if what.0.is_secret() { Duration::ZERO } else { self.linger };
        self.add_until(what, bytes, now + linger);
    }

    /// It lingers until then.
    pub fn add_until(&mut self, what: Lingering, bytes: usize, deadline: Time) {
        self.remove(&what);
        self.bytes += bytes;
        self.queue.insert((deadline, what.clone()));
        self.entries.insert(what, (deadline, bytes));
    }

    /// Somebody watches it again.
    pub fn remove(&mut self, what: &Lingering) {
        if let Some((deadline, bytes)) = self.entries.remove(what) {
            self.bytes -= bytes;
            self.queue.remove(&(deadline, what.clone()));
        }
    }

    /// What has lingered long enough, or is the oldest of more than the bound.
    pub fn pop(&mut self, now: Time) -> Option<Lingering> {
        let (deadline, _) = self.queue.first()?;
        if *deadline > now && self.bytes <= self.bytes_max {
            return None;
        }
        self.evicted += u64::from(*deadline > now);
        let (_, what) = self.queue.pop_first()?;
        if let Some((_, bytes)) = self.entries.remove(&what) {
            self.bytes -= bytes;
        }
        Some(what)
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        let (deadline, _) = self.queue.first()?;
        Some(if self.bytes > self.bytes_max { Time::ZERO } else { *deadline })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How much had to go before its time, because of the bound.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Lingering {
        (TypeUrl::of_message("acme.T"), Some(text.into()))
    }

    #[test]
    fn rly_60_names_linger_and_secrets_do_not() {
        let mut linger = Linger::new(Duration::from_secs(30), 1000);
        let start = Time::from_micros(5);
        linger.add(name("a"), 10, start);
        assert_eq!(linger.pop(start + Duration::from_secs(29)), None);
        assert_eq!(linger.poll_timeout(), Some(start + Duration::from_secs(30)));
        assert_eq!(linger.pop(start + Duration::from_secs(30)), Some(name("a")));
        assert_eq!(linger.evicted(), 0);
        let secret =
            (TypeUrl::of_message("envoy.extensions.transport_sockets.tls.v3.Secret"), Some("s".into()));
        linger.add(secret.clone(), 10, start);
        assert_eq!(linger.pop(start), Some(secret));
        assert!(linger.is_empty());
    }

    #[test]
    fn over_the_bound_the_oldest_goes_first() {
        let mut linger = Linger::new(Duration::from_secs(30), 25);
        linger.add(name("a"), 10, Time::ZERO);
        linger.add(name("b"), 10, Time::from_micros(1));
        linger.add(name("c"), 10, Time::from_micros(2));
        assert_eq!(linger.pop(Time::from_micros(3)), Some(name("a")));
        assert_eq!(linger.pop(Time::from_micros(3)), None);
        assert_eq!((linger.bytes(), linger.evicted()), (20, 1));
        linger.remove(&name("b"));
        assert_eq!(linger.bytes(), 10);
    }
}
