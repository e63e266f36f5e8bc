//! The content of the ledger as two watches tell it: ConfigMaps with entries, and Leases with replicas. Pure.
//!
//! An entry under a lease is there while its Lease lives. A Lease lives until it was not renewed for its
//! length, by the own clock: the times in the object are never compared. A watch that lags behind would show
//! living replicas as dead. So a Lease counts as dead only up to the latest own renewal that the same watch
//! has reported: all renewals before have come before.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::objects::{ConfigMap, LeaseObject};
use crate::kubernetes::ObjectVersion;
use crate::ledger::holdings::Holdings;
use crate::ledger::{ENTRIES_MAX, LedgerEntry, LedgerEvent};

pub(super) struct ClusterContent {
    ledger: String,
    /// The uid of the ConfigMap of the ledger itself.
    pub(super) identity: String,
    holdings: Holdings,
    /// By the name of the ConfigMap.
    entries: BTreeMap<String, SharedEntry>,
    /// By uid.
    leases: BTreeMap<String, SeenLease>,
    own_lease: OwnLease,
}

struct SharedEntry {
    entry: LedgerEntry,
    /// The uid of the Lease with which the entry goes.
    owner: Option<String>,
    is_shown: bool,
}

/// The Lease of another replica.
struct SeenLease {
    name: String,
    version: ObjectVersion,
    /// When the latest change was seen.
    at: Instant,
    length: Duration,
    /// Not renewed for the length, as far as the watch has told.
    is_suspect: bool,
    /// Not renewed for the length, for certain.
    is_dead: bool,
}

#[derive(Default)]
struct OwnLease {
    uid: String,
    /// The latest renewal that the watch has reported, by the time at which it was sent.
    proven: Option<Instant>,
}

/// The renewals of the own lease that the watch has not reported.
pub(super) type Renewals = VecDeque<Renewal>;

#[derive(Debug)]
pub(super) struct Renewal {
    /// The time in the object.
    pub(super) time: String,
    pub(super) sent_at: Instant,
    /// When the watch counts as deaf, after an answer.
    pub(super) deaf_at: Option<Instant>,
}

/// A Lease that was not renewed.
pub(super) struct DeadLease {
    pub(super) name: String,
    pub(super) version: ObjectVersion,
}

impl ClusterContent {
    /// `leases`: of the other replicas, as seen at `now`.
    ///
    /// # Errors
    /// Content that is not the ledger's or out of bounds, in words.
    pub(super) fn new(
        ledger: &str,
        maps: Vec<ConfigMap>,
        leases: Vec<LeaseObject>,
        revision: u64,
        now: Instant,
    ) -> Result<ClusterContent, String> {
        let (mut identity, mut entries, mut all) = (String::new(), BTreeMap::new(), Vec::new());
        for map in maps {
            if map.metadata.name == ledger {
                identity = map.metadata.uid;
                continue;
            }
            let (name, owner) = (map.metadata.name.clone(), map.owner().map(str::to_owned));
            let entry = map.into_entry(ledger)?;
            all.push(entry.clone());
            entries.insert(name, SharedEntry { entry, owner, is_shown: false });
        }
        let mut content = ClusterContent {
            ledger: ledger.to_owned(),
            identity,
            holdings: Holdings::new(&all, revision)?,
            entries,
            leases: BTreeMap::new(),
            own_lease: OwnLease::default(),
        };
        for lease in leases {
            content.see(lease, now)?;
        }
        content.refresh(|_| true);
        Ok(content)
    }

    pub(super) fn set_own_lease(&mut self, uid: &str) {
        self.own_lease.uid = uid.to_owned();
        self.leases.remove(uid);
    }

    pub(super) fn revision(&self) -> u64 {
        self.holdings.revision()
    }

    /// All entries, in the order of keys.
    pub(super) fn shown(&self) -> Vec<LedgerEntry> {
        let shown = self.entries.values().filter(|entry| entry.is_shown);
        let mut shown: Vec<_> = shown.map(|entry| entry.entry.clone()).collect();
        shown.sort_by(|one, other| one.key.cmp(&other.key));
        shown
    }

    /// The present state of a ConfigMap.
    ///
    /// # Errors
    /// The ledger is another one, or its content is not to be taken, in words.
    pub(super) fn found_map(&mut self, map: ConfigMap) -> Result<Vec<LedgerEvent>, String> {
        let name = map.metadata.name.clone();
        if name == self.ledger {
            let is_same = map.metadata.uid == self.identity;
            return if is_same { Ok(Vec::new()) } else { Err(self.replaced()) };
        }
        let (owner, entry) = (map.owner().map(str::to_owned), map.into_entry(&self.ledger)?);
        let revision = entry.revision;
        self.holdings.take(&LedgerEvent::Changed(entry.clone()))?;
        let was_shown = self.entries.get(&name).is_some_and(|before| before.is_shown);
        let is_shown = self.is_live(owner.as_deref());
        let key = entry.key.clone();
        let event = match (was_shown, is_shown) {
            (_, true) => Some(LedgerEvent::Changed(entry.clone())),
            (true, false) => Some(LedgerEvent::Gone { key, revision }),
            (false, false) => None,
        };
        self.entries.insert(name, SharedEntry { entry, owner, is_shown });
        Ok(event.into_iter().collect())
    }

    /// # Errors
    /// As [`ClusterContent::found_map`].
    pub(super) fn lost_map(&mut self, map: &ConfigMap) -> Result<Vec<LedgerEvent>, String> {
        if map.metadata.name == self.ledger {
            return Err(self.replaced());
        }
        let Some(before) = self.entries.remove(&map.metadata.name) else { return Ok(Vec::new()) };
        let gone = LedgerEvent::Gone { key: before.entry.key, revision: map.revision()? };
        self.holdings.take(&gone)?;
        Ok(if before.is_shown { vec![gone] } else { Vec::new() })
    }

    fn replaced(&self) -> String {
        format!("the ConfigMap {:?} of the ledger was deleted", self.ledger)
    }

    /// The present state of a Lease.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn found_lease(
        &mut self,
        lease: LeaseObject,
        renewals: &mut Renewals,
        now: Instant,
    ) -> Result<Vec<LedgerEvent>, String> {
        let uid = lease.metadata.uid.clone();
        if uid == self.own_lease.uid {
            if let Some(at) = renewals.iter().position(|renewal| renewal.time == lease.spec.renew_time) {
                self.own_lease.proven = renewals.drain(..=at).next_back().map(|renewal| renewal.sent_at);
            }
            return Ok(Vec::new());
        }
        self.see(lease, now)?;
        Ok(self.refresh(|owner| owner == uid))
    }

    fn see(&mut self, lease: LeaseObject, now: Instant) -> Result<(), String> {
        let length = lease.length();
        let (version, name) = (lease.metadata.as_seen(), lease.metadata.name);
        let seen = SeenLease { name, version, at: now, length, is_suspect: false, is_dead: false };
        self.leases.insert(lease.metadata.uid, seen);
        match self.leases.len() > ENTRIES_MAX {
            true => Err(format!("there are more than {ENTRIES_MAX} Leases with the label of the ledger")),
            false => Ok(()),
        }
    }

    /// # Errors
    /// The own Lease is gone.
    pub(super) fn lost_lease(&mut self, lease: &LeaseObject) -> Result<Vec<LedgerEvent>, String> {
        let uid = &lease.metadata.uid;
        if *uid == self.own_lease.uid {
            return Err(format!("the Lease {:?} of this replica was deleted", lease.metadata.name));
        }
        self.leases.remove(uid);
        Ok(self.refresh(|owner| owner == uid))
    }

    /// When the next Lease may be dead.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.leases.values().filter(|lease| !lease.is_suspect).map(SeenLease::end).min()
    }

    /// A renewal from now on proves the death of the Leases that were not renewed.
    pub(super) fn suspect(&mut self, now: Instant) {
        self.leases.values_mut().filter(|lease| lease.end() <= now).for_each(|lease| lease.is_suspect = true);
    }

    /// The Leases that are dead for certain, and the entries that go.
    pub(super) fn expire(&mut self) -> (Vec<LedgerEvent>, Vec<DeadLease>) {
        let Some(proven) = self.own_lease.proven else { return (Vec::new(), Vec::new()) };
        let mut dead = Vec::new();
        for lease in self.leases.values_mut().filter(|lease| !lease.is_dead && proven >= lease.end()) {
            lease.is_dead = true;
            dead.push(DeadLease { name: lease.name.clone(), version: lease.version.clone() });
        }
        let is_of = |owner: &str| dead.iter().any(|dead| dead.version.uid.as_deref() == Some(owner));
        let events = self.refresh(is_of);
        (events, dead)
    }

    fn is_live(&self, owner: Option<&str>) -> bool {
        let is_live =
            |uid| uid == self.own_lease.uid || self.leases.get(uid).is_some_and(|lease| !lease.is_dead);
        owner.is_none_or(is_live)
    }

    /// Shows and hides entries, by the life of the Leases that are picked. An entry without a Lease is picked
    /// once, at the load.
    fn refresh(&mut self, is_picked: impl Fn(&str) -> bool) -> Vec<LedgerEvent> {
        let revision = self.revision();
        let mut entries = std::mem::take(&mut self.entries);
        let mut events = Vec::new();
        for held in entries.values_mut().filter(|held| is_picked(held.owner.as_deref().unwrap_or_default())) {
            let is_shown = self.is_live(held.owner.as_deref());
            if is_shown != held.is_shown {
                held.is_shown = is_shown;
                events.push(match is_shown {
                    true => LedgerEvent::Changed(held.entry.clone()),
                    false => LedgerEvent::Gone { key: held.entry.key.clone(), revision },
                });
            }
        }
        self.entries = entries;
        events
    }
}

impl SeenLease {
    fn end(&self) -> Instant {
        self.at + self.length
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::super::objects::entry_name;
    use super::*;
    use sluice_setting::{ms, seconds};

    fn lease(uid: &str, version: u64, renewed: &str) -> LeaseObject {
        let metadata = json!({ "name": uid, "uid": uid, "resourceVersion": version.to_string() });
        let spec = json!({ "holderIdentity": uid, "leaseDurationSeconds": 1, "renewTime": renewed });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn map(key: &str, version: u64, owner: &str) -> ConfigMap {
        let owners = json!([{ "uid": owner }]);
        let name = entry_name("sluice", key);
        let metadata =
            json!({ "name": name, "resourceVersion": version.to_string(), "ownerReferences": owners });
        serde_json::from_value(json!({ "metadata": metadata, "data": { "key": key, "value": "x" } })).unwrap()
    }

    fn content(now: Instant) -> ClusterContent {
        let maps = vec![map("tally/b", 5, "b")];
        let mut content = ClusterContent::new("sluice", maps, vec![lease("b", 4, "")], 9, now).unwrap();
        content.set_own_lease("a");
        content
    }

    fn keys(events: &[LedgerEvent]) -> Vec<String> {
        let key = |event: &LedgerEvent| match event {
            LedgerEvent::Changed(entry) => format!("+{}", entry.key),
            LedgerEvent::Gone { key, .. } => format!("-{key}"),
            other => panic!("{other:?}"),
        };
        events.iter().map(key).collect()
    }

    /// The watch reports an own renewal that was sent at this time.
    fn prove(content: &mut ClusterContent, sent_at: Instant) -> Vec<LedgerEvent> {
        let time = format!("{sent_at:?}");
        let mut renewals = Renewals::from([Renewal { time: time.clone(), sent_at, deaf_at: None }]);
        assert_eq!(content.found_lease(lease("a", 20, &time), &mut renewals, sent_at), Ok(Vec::new()));
        assert!(renewals.is_empty());
        content.expire().0
    }

    #[tokio::test]
    async fn ldg_4_a_lease_is_dead_by_a_watch_that_is_up_to_date() {
        let begin = Instant::now();
        let mut content = content(begin);
        assert_eq!(content.shown().len(), 1);
        assert_eq!(content.next_end(), Some(begin + seconds(1)));
        assert_eq!(content.expire().0, [], "no own renewal was reported");
        assert_eq!(prove(&mut content, begin + ms(999)), []);
        content.suspect(begin + seconds(2));
        assert_eq!(content.next_end(), None, "a suspicion is told once");
        // A renewal that the watch has told late.
        content.found_lease(lease("b", 10, ""), &mut Renewals::new(), begin + seconds(5)).unwrap();
        assert_eq!(content.next_end(), Some(begin + seconds(6)));
        assert_eq!(prove(&mut content, begin + ms(5999)), []);
        assert_eq!(keys(&prove(&mut content, begin + seconds(6))), ["-tally/b"]);
        assert_eq!(content.shown(), []);
        // The replica was slow, and nobody has deleted its lease yet.
        let late = content.found_lease(lease("b", 11, ""), &mut Renewals::new(), begin + seconds(7));
        assert_eq!(keys(&late.unwrap()), ["+tally/b"]);
        assert_eq!(keys(&content.lost_lease(&lease("b", 12, "")).unwrap()), ["-tally/b"]);
        assert!(content.lost_lease(&lease("a", 13, "")).is_err(), "the own lease");
    }

    #[tokio::test]
    async fn ldg_4_an_entry_is_there_with_its_lease() {
        let begin = Instant::now();
        let mut content = content(begin);
        // The two watches do not wait for each other.
        assert_eq!(content.found_map(map("tally/c", 10, "c")), Ok(Vec::new()));
        let renewals = &mut Renewals::new();
        assert_eq!(keys(&content.found_lease(lease("c", 9, ""), renewals, begin).unwrap()), ["+tally/c"]);
        assert_eq!(content.found_lease(lease("c", 11, ""), renewals, begin), Ok(Vec::new()));
        // The replica has another session.
        assert_eq!(keys(&content.found_map(map("tally/c", 12, "d")).unwrap()), ["-tally/c"]);
        assert_eq!(content.lost_map(&map("tally/c", 13, "d")), Ok(Vec::new()), "nobody has seen it");
        assert_eq!(keys(&content.found_map(map("tally/a", 14, "a")).unwrap()), ["+tally/a"]);
        assert!(content.found_map(map("tally/a", 14, "a")).is_ok(), "one write may change several entries");
        assert!(content.found_map(map("tally/a", 13, "a")).is_err(), "an event of the past");
    }
}
