//! Resources with a time to live: leases start, are renewed and expire (TTL-8).

use std::collections::BTreeSet;
use std::time::Duration;

use super::Source;
use crate::engine::Time;
use crate::engine::annotations::{Annotations, Lease};
use crate::engine::cache::expiry::{Due, Leased};
use crate::engine::collection::CollectionKind;
use crate::engine::source::api::Output;
use crate::engine::source::attachment::Attachment;
use crate::engine::upstream::{self, Cause, Changes, Event};
use crate::xds::{ResourceName, TypeUrl};

impl Source {
    /// Starts, renews and ends the leases of a response's resources (TTL-3, TTL-4).
    pub(super) fn lease(&mut self, changes: &Changes, now: Time) {
        let has_ttl =
            !changes.refreshed.is_empty() || changes.present.iter().any(|resource| resource.ttl.is_some());
        if !has_ttl && self.upkeep.expiry.is_empty() {
            return;
        }
        let Some(cache) = self.types.get(&changes.type_url) else { return };
        let none = Annotations::default();
        let told = match (changes.kind, &cache.wildcard) {
            (CollectionKind::Wildcard, Some(wildcard)) => wildcard.view().annotations(),
            (CollectionKind::Wildcard, None) => &none,
            (CollectionKind::Globs, _) => cache.globs.annotations(),
            (CollectionKind::Names, _) => cache.named.annotations(),
        };
        let kind = changes.kind;
        let of = |name: &ResourceName| Leased::new(&changes.type_url, kind, name);
        // A resource that was requested by its aliases only is stored under the aliases (ALI-1).
        let is_held =
            |name: &ResourceName| kind != CollectionKind::Names || cache.named.known().contains_key(name);
        let expiry = &mut self.upkeep.expiry;
        let mut leases = Vec::new();
        if changes.replaces {
            let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
            expiry.keep_only(&changes.type_url, kind, |name| present.contains(name));
        }
        for (name, _) in &changes.absent {
            expiry.cancel(&of(name));
        }
        let own = changes.present.iter().map(|resource| (&resource.name, resource));
        let by_alias = changes.by_alias.iter().map(|(alias, resource)| (alias, resource));
        for (name, resource) in own.chain(by_alias).filter(|(name, _)| is_held(name)) {
            let what = of(name);
            let lease = expiry.stated(&what, resource.ttl, told.lease(&what.name), now);
            leases.extend(lease.map(|lease| (what, lease)));
        }
        for (name, ttl) in &changes.refreshed {
            let what = of(name);
            let lease = expiry.refreshed(&what, *ttl, told.lease(name), now);
            leases.extend(lease.map(|lease| (what, lease)));
        }
        for (what, lease) in leases {
            self.set_lease(&what, lease);
        }
    }

    /// A resource with a TTL has this time left (I17).
    pub(super) fn lease_resumed(&mut self, what: &Leased, ttl: Duration, left: Duration, now: Time) {
        if let Some(lease) = self.upkeep.expiry.resumed(what, ttl, left, now) {
            self.set_lease(what, Some(lease));
        }
    }

    fn set_lease(&mut self, what: &Leased, lease: Option<Lease>) {
        let Some(cache) = self.types.get_mut(&what.type_url) else { return };
        match (what.kind, &mut cache.wildcard) {
            (CollectionKind::Wildcard, Some(wildcard)) => wildcard.set_lease(&what.name, lease),
            (CollectionKind::Wildcard, None) => {}
            (CollectionKind::Globs, _) => cache.globs.set_lease(&what.name, lease),
            (CollectionKind::Names, _) => cache.named.set_lease(&what.name, lease),
        }
    }

    /// Sends due heartbeats, and removes expired resources as if the server had removed them (TTL-8).
    pub(super) fn run_out(&mut self, now: Time) {
        let mut touched: Vec<TypeUrl> = Vec::new();
        let mut expired: Vec<(TypeUrl, usize)> = Vec::new();
        while let Some((what, due)) = self.upkeep.expiry.pop(now) {
            match due {
                Due::Beat(lease) => self.set_lease(&what, Some(lease)),
                Due::Expired if self.drop_expired(&what, now) => match expired.last_mut() {
                    Some((last, count)) if *last == what.type_url => *count += 1,
                    _ => expired.push((what.type_url.clone(), 1)),
                },
                Due::Expired => {}
            }
            if !touched.contains(&what.type_url) {
                touched.push(what.type_url);
            }
        }
        for type_url in touched {
            self.settle(&type_url, now);
        }
        for (type_url, count) in expired {
            let event = Event::Expired { type_url, count };
            self.outputs.push_back(Output::Upstream(0, upstream::Output::Event(event)));
        }
    }

    /// Removes an expired resource. Returns false if the resource was freed meanwhile.
    fn drop_expired(&mut self, what: &Leased, now: Time) -> bool {
        let Leased { type_url, kind, name } = what;
        let was_kept = *kind == CollectionKind::Names && self.is_kept(type_url, Some(name));
        let Some(cache) = self.types.get_mut(type_url) else { return false };
        let was_present = match (kind, &mut cache.wildcard) {
            (CollectionKind::Wildcard, Some(members)) => members.take(name),
            (CollectionKind::Wildcard, None) => false,
            (CollectionKind::Globs, _) => cache.globs.take(name),
            (CollectionKind::Names, _) => {
                let known = cache.named.known().get(name);
                let was_present = known.is_some_and(|known| known.resource().is_some());
                if was_present {
                    cache.named.put_absent(name, Cause::Expired);
                }
                was_present
            }
        };
        if !was_present {
            return false;
        }
        self.guard.forget(type_url, *kind, std::slice::from_ref(name));
        if let Attachment::Streams(streams) = &mut self.attachment
            && let Some(machine) = streams.placed(type_url, *kind).and_then(|index| streams.machine(index))
        {
            machine.expire(type_url, name);
        }
        if was_kept {
            // Only the content kept the name from lingering.
            self.start_linger(type_url, vec![name.clone()], now);
        }
        true
    }
}
