//! Resources with a time to live: expiry, and heartbeats to clients (RLY-39).
//!
//! An upstream that states a TTL has to repeat the resource in time. Otherwise the resource expires as if the
//! server had removed it (TTL-8). Clients that understand TTLs learn of a refresh by a heartbeat, at most
//! three times per TTL, and only after a refresh from upstream: when the upstream falls silent, clients and
//! relay expire the resource alike.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Time;
use crate::annotations::Lease;
use crate::collection::CollectionKind;
use sluice_xds::{ResourceName, TypeUrl};

/// A resource that was requested by name, or a member of the wildcard or of a glob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leased {
    pub type_url: TypeUrl,
    pub kind: CollectionKind,
    pub name: ResourceName,
}

impl Leased {
    pub fn new(type_url: &TypeUrl, kind: CollectionKind, name: &ResourceName) -> Leased {
        Leased { type_url: type_url.clone(), kind, name: name.clone() }
    }
}

#[derive(Debug)]
struct Term {
    ttl: Duration,
    expires: Time,
    /// The time of the clients' last heartbeat.
    beat_at: Time,
    /// Whether the resource was refreshed after `beat_at`.
    fresh: bool,
    due: Time,
}

/// The last stated TTL of a resource, and the rest of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub ttl: Duration,
    pub left: Duration,
}

/// A due action for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Clients must be sent a heartbeat.
    Beat(Lease),
    Expired,
}

/// All resources of a source that have a TTL. Costs nothing without such resources.
#[derive(Debug, Default)]
pub struct Expiry {
    terms: BTreeMap<Leased, Term>,
    queue: BTreeSet<(Time, Leased)>,
    beats: u64,
    /// Some client may understand TTLs.
    tells: bool,
}

impl Expiry {
    /// `tells`: the clients of this class understand TTLs. If not, resources only expire.
    pub fn new(tells: bool) -> Expiry {
        Expiry { tells, ..Expiry::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The upstream sent the resource, with this TTL or none (TTL-3). `client_lease`: the lease that clients
    /// know. Returns the new lease if clients have to be told.
    pub fn state_ttl(
        &mut self,
        what: &Leased,
        ttl: Option<Duration>,
        client_lease: Option<&Lease>,
        now: Time,
    ) -> Option<Option<Lease>> {
        let Some(ttl) = ttl else {
            return self.cancel(what).then_some(None);
        };
        let term = self.take(what).filter(|term| term.ttl == ttl && client_lease.is_some());
        let third = ttl / 3;
        let beat_at = term.map(|term| term.beat_at).filter(|beat_at| now < *beat_at + third);
        let lease = beat_at.is_none().then(|| self.lease(ttl, now + ttl));
        let (beat_at, fresh) = (beat_at.unwrap_or(now), beat_at.is_some());
        self.put(what.clone(), Term { ttl, expires: now + ttl, beat_at, fresh, due: Time::ZERO });
        lease.filter(|_| self.tells).map(Some)
    }

    /// The rest of a lease from before a restart of the relay (I17). Returns the lease if clients have to be
    /// told.
    pub fn resume(&mut self, what: &Leased, ttl: Duration, left: Duration, now: Time) -> Option<Lease> {
        let expires = now + left.min(ttl);
        let lease = self.lease(ttl, expires);
        self.put(what.clone(), Term { ttl, expires, beat_at: now, fresh: false, due: Time::ZERO });
        Some(lease).filter(|_| self.tells)
    }

    /// The TTL and the rest of the time, for each resource.
    pub fn left(&self, now: Time) -> impl Iterator<Item = (&Leased, Left)> {
        self.terms
            .iter()
            .map(move |(what, term)| (what, Left { ttl: term.ttl, left: term.expires.since(now) }))
    }

    /// A heartbeat (TTL-4), with its TTL. Ignored for a resource without a TTL.
    pub fn refresh(
        &mut self,
        what: &Leased,
        ttl: Option<Duration>,
        client_lease: Option<&Lease>,
        now: Time,
    ) -> Option<Option<Lease>> {
        let earlier_ttl = self.terms.get(what)?.ttl;
        self.state_ttl(what, Some(ttl.unwrap_or(earlier_ttl)), client_lease, now)
    }

    /// The resource is gone or has no TTL any more. Returns whether there was a lease.
    pub fn cancel(&mut self, what: &Leased) -> bool {
        !self.terms.is_empty() && self.take(what).is_some()
    }

    /// Cancels the leases of all other resources of this type and kind.
    pub fn keep_only(
        &mut self,
        type_url: &TypeUrl,
        kind: CollectionKind,
        keep: impl Fn(&ResourceName) -> bool,
    ) {
        let first = Leased::new(type_url, kind, &ResourceName::new(""));
        let of_kind = |what: &&Leased| what.type_url == *type_url && what.kind == kind;
        let all = self.terms.range(first.clone()..).map(|(what, _)| what).take_while(of_kind);
        let gone: Vec<_> = all.filter(|what| !keep(&what.name)).cloned().collect();
        for what in gone {
            self.take(&what);
        }
    }

    pub fn pop(&mut self, now: Time) -> Option<(Leased, Due)> {
        let (due, _) = self.queue.first()?;
        if *due > now {
            return None;
        }
        let (_, what) = self.queue.pop_first()?;
        let term = self.terms.remove(&what)?;
        if term.expires <= now {
            return Some((what, Due::Expired));
        }
        let lease = self.lease(term.ttl, term.expires);
        self.put(what.clone(), Term { beat_at: now, fresh: false, ..term });
        Some((what, Due::Beat(lease)))
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        self.queue.first().map(|(due, _)| *due)
    }

    fn lease(&mut self, ttl: Duration, expires: Time) -> Lease {
        self.beats += 1;
        Lease { beat: self.beats, expires, ttl }
    }

    fn take(&mut self, what: &Leased) -> Option<Term> {
        let term = self.terms.remove(what)?;
        self.queue.remove(&(term.due, what.clone()));
        Some(term)
    }

    fn put(&mut self, what: Leased, mut term: Term) {
        let beat = (term.fresh && self.tells).then(|| term.beat_at + term.ttl / 3);
        term.due = beat.map_or(term.expires, |beat| beat.min(term.expires));
        self.queue.insert((term.due, what.clone()));
        self.terms.insert(what, term);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TTL: Option<Duration> = Some(Duration::from_secs(30));

    fn a() -> Leased {
        Leased { type_url: TypeUrl::of_message("acme.T"), kind: CollectionKind::Names, name: "a".into() }
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn ttl_3_stating_it_again_restarts_the_time_and_leaving_it_out_ends_it() {
        let mut expiry = Expiry::new(true);
        let lease = expiry.state_ttl(&a(), TTL, None, at(0)).unwrap();
        assert!(matches!(expiry.state_ttl(&a(), TTL, lease.as_ref(), at(20)), Some(Some(_))));
        assert_eq!(expiry.poll_timeout(), Some(at(50)));
        assert_eq!(expiry.state_ttl(&a(), None, lease.as_ref(), at(21)), Some(None));
        assert_eq!(expiry.state_ttl(&a(), None, None, at(21)), None);
        assert!(expiry.is_empty() && expiry.poll_timeout().is_none());
    }

    #[test]
    fn ttl_9_rly_39_clients_hear_of_refreshes_a_third_of_the_ttl_apart() {
        let mut expiry = Expiry::new(true);
        let first = expiry.state_ttl(&a(), TTL, None, at(0)).unwrap().unwrap();
        assert_eq!(expiry.refresh(&a(), None, Some(&first), at(4)), None);
        assert_eq!(expiry.refresh(&a(), None, Some(&first), at(8)), None);
        // The last refresh counts, not the time of the clients' heartbeat.
        let (_, Due::Beat(second)) = expiry.pop(at(10)).unwrap() else { panic!() };
        assert_eq!((second.expires, second.beat > first.beat), (at(38), true));
        assert_eq!(expiry.pop(at(37)), None, "no heartbeat without one of the upstream");
        assert_eq!(expiry.pop(at(38)), Some((a(), Due::Expired)));
        assert_eq!(expiry.refresh(&a(), None, None, at(39)), None, "what is gone is not refreshed");
    }

    #[test]
    fn a_class_without_the_feature_only_expires() {
        let mut expiry = Expiry::new(false);
        assert_eq!(expiry.state_ttl(&a(), TTL, None, at(0)), None);
        assert_eq!(expiry.refresh(&a(), None, None, at(5)), None);
        assert_eq!(expiry.poll_timeout(), Some(at(35)));
    }

    #[test]
    fn what_is_freed_is_forgotten() {
        let mut expiry = Expiry::new(true);
        let member = Leased { kind: CollectionKind::Wildcard, ..a() };
        let other = Leased { name: "b".into(), ..a() };
        for what in [&a(), &member, &other] {
            expiry.state_ttl(what, TTL, None, at(0));
        }
        expiry.keep_only(&a().type_url, CollectionKind::Names, |name| name.as_str() == "b");
        assert_eq!((expiry.cancel(&a()), expiry.cancel(&member), expiry.cancel(&other)), (false, true, true));
        // Clients know nothing of the resource any more, however recent the last heartbeat was.
        expiry.state_ttl(&a(), TTL, None, at(1));
        assert!(expiry.state_ttl(&a(), TTL, None, at(2)).is_some());
    }
}
