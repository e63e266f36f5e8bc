//! Names and wildcards without sessions, kept for a while and within a bound of bytes (RLY-59 to RLY-61).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Time;
use crate::cache::Entry;
use sluice_xds::TypeUrl;

/// A lingering entry of a type.
pub type Lingering = (TypeUrl, Entry);

/// Entries without content may have this fraction of the bytes: an entry saves a request to the server at
/// best, and a client can make up any number of names.
const SHARE_WITHOUT_CONTENT: usize = 16;

#[derive(Debug)]
struct LingeringEntry {
    deadline: Time,
    bytes: usize,
    /// The server supplied content under the name.
    has_content: bool,
}

/// Entries in the order of their deadlines.
#[derive(Debug, Default)]
struct LingerQueue {
    entries: BTreeSet<(Time, Lingering)>,
    /// The weight of the entries, parked ones included.
    bytes: usize,
}

impl LingerQueue {
    fn next(&self) -> Option<Time> {
        self.entries.first().map(|(deadline, _)| *deadline)
    }
}

/// Lingering names and wildcards, oldest first.
#[derive(Debug)]
pub struct Linger {
    linger: Duration,
    bytes_max: usize,
    with_content: LingerQueue,
    without_content: LingerQueue,
    /// Entries whose time is over, kept as long as `is_held`.
    parked: BTreeSet<(Time, Lingering)>,
    is_held: bool,
    /// The types for which the server is lost, where other types are not.
    held_types: BTreeSet<TypeUrl>,
    entries: BTreeMap<Lingering, LingeringEntry>,
    /// When an entry last came, or went for the bound.
    at: Time,
    evicted: u64,
}

impl Linger {
    pub fn new(linger: Duration, bytes_max: usize) -> Linger {
        Linger {
            linger,
            bytes_max,
            with_content: LingerQueue::default(),
            without_content: LingerQueue::default(),
            parked: BTreeSet::new(),
            is_held: false,
            held_types: BTreeSet::new(),
            entries: BTreeMap::new(),
            at: Time::ZERO,
            evicted: 0,
        }
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
            self.with_content.entries.append(&mut self.parked);
        }
    }

    /// As [`Linger::hold`], where the server is lost for a single type.
    pub fn hold_type(&mut self, type_url: &TypeUrl, is_held: bool) {
        if is_held && !self.held_types.contains(type_url) {
            self.held_types.insert(type_url.clone());
        } else if !is_held && self.held_types.remove(type_url) {
            // The next `pop` parks entries again that have another reason to stay.
            self.with_content.entries.append(&mut self.parked);
        }
    }

    fn queue(&mut self, has_content: bool) -> &mut LingerQueue {
        if has_content { &mut self.with_content } else { &mut self.without_content }
    }

    fn holds(&self, what: &Lingering) -> bool {
        self.is_held || self.held_types.contains(&what.0)
    }

    /// The last session has left. Secrets go at once (RLY-60). `bytes`: the weight, with or without content.
    pub fn add(&mut self, what: Lingering, bytes: usize, has_content: bool, now: Time) {
        let linger = if what.0.is_secret() { Duration::ZERO } else { self.linger };
        self.at = now;
        self.add_until(what, bytes, has_content, now + linger);
    }

    /// Adds an entry, or replaces its deadline.
    pub fn add_until(&mut self, what: Lingering, bytes: usize, has_content: bool, deadline: Time) {
        self.remove(&what);
        let queue = self.queue(has_content);
        queue.bytes += bytes;
        queue.entries.insert((deadline, what.clone()));
        self.entries.insert(what, LingeringEntry { deadline, bytes, has_content });
    }

    /// A session wants the entry again.
    pub fn remove(&mut self, what: &Lingering) {
        if let Some(LingeringEntry { deadline, bytes, has_content }) = self.entries.remove(what) {
            let (key, queue) = ((deadline, what.clone()), self.queue(has_content));
            queue.bytes -= bytes;
            let _ = queue.entries.remove(&key) || self.parked.remove(&key);
        }
    }

    /// The next entry to free: its time is over, or the entry is the oldest and the bytes exceed the bound.
    pub fn pop(&mut self, now: Time) -> Option<Lingering> {
        if self.is_over_bound() {
            let (deadline, what) = self.pop_excess()?;
            self.at = now;
            self.evicted += u64::from(deadline > now || self.holds(&what));
            return Some(self.let_go(what));
        }
        while let Some((deadline, what)) = self.pop_due(now) {
            if self.holds(&what) && self.is_worth_keeping(&what) {
                self.parked.insert((deadline, what));
            } else {
                return Some(self.let_go(what));
            }
        }
        None
    }

    fn is_over_bound(&self) -> bool {
        self.bytes() > self.bytes_max || self.without_content.bytes > self.bytes_max / SHARE_WITHOUT_CONTENT
    }

    fn pop_excess(&mut self) -> Option<(Time, Lingering)> {
        if self.without_content.bytes > self.bytes_max / SHARE_WITHOUT_CONTENT {
            return self.without_content.entries.pop_first();
        }
        self.pop_oldest()
    }

    fn pop_oldest(&mut self) -> Option<(Time, Lingering)> {
        let older =
            self.without_content.next().filter(|at| self.with_content.next().is_none_or(|other| *at < other));
        self.parked.pop_first().or_else(|| self.queue(older.is_none()).entries.pop_first())
    }

    fn pop_due(&mut self, now: Time) -> Option<(Time, Lingering)> {
        let queues = [&mut self.with_content, &mut self.without_content];
        let due = queues.into_iter().find(|queue| queue.next().is_some_and(|deadline| deadline <= now));
        due?.entries.pop_first()
    }

    /// The oldest entry, whether or not its time is over.
    pub fn pop_any(&mut self) -> Option<Lingering> {
        let (_, what) = self.pop_oldest()?;
        Some(self.let_go(what))
    }

    /// Names without content are not worth memory, and no secret may outlive its last user.
    fn is_worth_keeping(&self, what: &Lingering) -> bool {
        self.entries.get(what).is_some_and(|entry| entry.has_content) && !what.0.is_secret()
    }

    fn let_go(&mut self, what: Lingering) -> Lingering {
        if let Some(LingeringEntry { bytes, has_content, .. }) = self.entries.remove(&what) {
            self.queue(has_content).bytes -= bytes;
        }
        what
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        if self.is_over_bound() {
            return Some(self.at);
        }
        self.with_content.next().into_iter().chain(self.without_content.next()).min()
    }

    pub fn bytes(&self) -> usize {
        self.with_content.bytes + self.without_content.bytes
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
    fn rly_60_few_names_without_content_linger() {
        let mut linger = Linger::new(Duration::from_secs(30), 160);
        let start = Time::from_micros(5);
        linger.add(name("a"), 100, true, Time::ZERO);
        linger.add(name("made up"), 6, false, start);
        linger.add(name("made up, too"), 6, false, start);
        assert_eq!(linger.poll_timeout(), Some(start), "at once");
        assert_eq!(linger.pop(start), Some(name("made up")));
        assert_eq!((linger.pop(start), linger.bytes(), linger.evicted()), (None, 106, 1));
        // Of both kinds, the oldest goes first.
        linger.add(name("b"), 60, true, start);
        assert_eq!(linger.pop(start), Some(name("a")));
        assert_eq!(linger.pop_any(), Some(name("b")));
        assert_eq!(linger.pop_any(), Some(name("made up, too")));
        assert_eq!((linger.pop_any(), linger.bytes(), linger.is_empty()), (None, 0, true));
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
