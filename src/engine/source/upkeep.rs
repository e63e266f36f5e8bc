//! What time does to a source: resources run out (TTL-8), and names that cannot be had are reported (ERR-10).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Attachment, Output, Source, StreamIndex};
use crate::engine::Time;
use crate::engine::cache::Known;
use crate::engine::cache::expiry::{Due, Expiry, Leased};
use crate::engine::remarks::{Lease, Remarks};
use crate::engine::upstream::{self, Cause, Changes, Event, Scope, State};
use crate::xds::{Code, ResourceName, Status, TypeUrl};

/// After this long a name of which nothing is known, from a server that cannot be reached, is reported as UNAVAILABLE
/// (RLY-8, ERR-10).
const UNREACHABLE: Duration = Duration::from_secs(10);

/// The timers of a source, and what it says of its server in errors.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Names the upstream to clients (ERR-9).
    server: Arc<str>,
    expiry: Expiry,
    /// Names that were asked for, by when to look whether they could be had; in the order of time.
    asked: VecDeque<(Time, TypeUrl, Vec<ResourceName>)>,
}

impl Upkeep {
    /// Names were asked for of which nothing is known yet.
    pub(super) fn asked(&mut self, type_url: &TypeUrl, names: &[ResourceName], now: Time) {
        self.asked.push_back((now + UNREACHABLE, type_url.clone(), names.to_vec()));
    }

    /// Names, or without any the members of the wildcard, are freed.
    pub(super) fn freed(&mut self, type_url: &TypeUrl, names: Option<&[ResourceName]>) {
        match names {
            None => self.expiry.keep_only(type_url, Scope::Wildcard, |_| false),
            Some(names) => {
                for name in names {
                    self.expiry.cancel(&Leased::new(type_url, Scope::Names, name));
                }
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let asked = self.asked.front().map(|(due, ..)| *due);
        [asked, self.expiry.poll_timeout()].into_iter().flatten().min()
    }

    /// An error as clients see it (ERR-9).
    fn error(&self, code: Code, message: &str) -> Arc<Status> {
        let colon = if message.is_empty() { "" } else { ": " };
        Arc::new(Status::new(code, format!("{}{colon}{message}", self.server)))
    }
}

impl Source {
    /// `server`: how errors name it. `tells_ttl`: clients of this class understand TTLs (TTL-1).
    #[must_use]
    pub fn of_server(mut self, server: Arc<str>, tells_ttl: bool) -> Source {
        self.upkeep.server = server;
        self.upkeep.expiry = Expiry::new(tells_ttl);
        self
    }

    /// Starts, renews and ends the terms of what a response brought (TTL-3, TTL-4).
    pub(super) fn lease(&mut self, changes: &Changes, now: Time) {
        let has_ttl =
            !changes.refreshed.is_empty() || changes.present.iter().any(|resource| resource.ttl.is_some());
        if !has_ttl && self.upkeep.expiry.is_empty() {
            return;
        }
        let Some(cache) = self.types.get(&changes.type_url) else { return };
        let none = Remarks::default();
        let told = match (changes.scope, &cache.wildcard) {
            (Scope::Wildcard, Some(wildcard)) => wildcard.view().remarks(),
            (Scope::Wildcard, None) => &none,
            (Scope::Names, _) => cache.named.remarks(),
        };
        let of = |name: &ResourceName| Leased::new(&changes.type_url, changes.scope, name);
        let expiry = &mut self.upkeep.expiry;
        let mut leases = Vec::new();
        if changes.replaces {
            let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
            expiry.keep_only(&changes.type_url, changes.scope, |name| present.contains(name));
        }
        for (name, _) in &changes.absent {
            expiry.cancel(&of(name));
        }
        for resource in &changes.present {
            let what = of(&resource.name);
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

    fn set_lease(&mut self, what: &Leased, lease: Option<Lease>) {
        let Some(cache) = self.types.get_mut(&what.type_url) else { return };
        match &mut cache.wildcard {
            Some(wildcard) if what.wildcard => wildcard.set_lease(&what.name, lease),
            _ if what.wildcard => {}
            _ => cache.named.set_lease(&what.name, lease),
        }
    }

    pub(super) fn keep_up(&mut self, now: Time) {
        self.run_out(now);
        self.report_unreachable(now);
    }

    /// Heartbeats that are due, and resources whose time is over: they go as if the server had removed them (TTL-8).
    fn run_out(&mut self, now: Time) {
        let mut touched: Vec<TypeUrl> = Vec::new();
        let mut expired: Vec<(TypeUrl, usize)> = Vec::new();
        while let Some((what, due)) = self.upkeep.expiry.pop(now) {
            match due {
                Due::Beat(lease) => self.set_lease(&what, Some(lease)),
                Due::Expired if self.drop_expired(&what) => match expired.last_mut() {
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

    /// Whether there still was something to expire: it may have been freed meanwhile.
    fn drop_expired(&mut self, what: &Leased) -> bool {
        let Leased { type_url, wildcard, name } = what;
        let Some(cache) = self.types.get_mut(type_url) else { return false };
        let was_present = match &mut cache.wildcard {
            Some(members) if *wildcard => members.take(name),
            _ if *wildcard => false,
            _ => cache.named.known().get(name).is_some_and(|known| known.resource().is_some()),
        };
        if !was_present {
            return false;
        }
        if !*wildcard {
            cache.named.put_absent(name, Cause::Expired);
        }
        if let Attachment::Streams(streams) = &mut self.attachment
            && let Some(machine) =
                streams.placed(type_url, *wildcard).and_then(|index| streams.machine(index))
        {
            machine.expire(type_url, name);
        }
        true
    }

    /// What the upstream, or its silence, says of names that it cannot supply (ERR-1, TMR-5).
    pub(super) fn take_errors(&mut self, index: StreamIndex, event: &Event, now: Time) {
        match event {
            Event::ResourceError { type_url, error } => {
                let status = self.upkeep.error(error.status.code, &error.status.message);
                self.put_errors(index, type_url, std::slice::from_ref(&error.name), &status, now);
            }
            Event::Timeout { type_url, names } => {
                let status = self.upkeep.error(Code::Unavailable, "no answer for this name in time");
                self.put_errors(index, type_url, names, &status, now);
            }
            _ => {}
        }
    }

    fn put_errors(
        &mut self,
        index: StreamIndex,
        type_url: &TypeUrl,
        names: &[ResourceName],
        status: &Arc<Status>,
        now: Time,
    ) {
        let Attachment::Streams(streams) = &self.attachment else { return };
        let scope = if streams.is_wildcard(index, type_url) { Scope::Wildcard } else { Scope::Names };
        let Some(cache) = self.types.get_mut(type_url) else { return };
        for name in names {
            match (scope, &mut cache.wildcard) {
                // That a member does not exist, its leaving says.
                (Scope::Wildcard, Some(members)) if status.code != Code::NotFound => {
                    members.set_error(name, Some(status));
                }
                (Scope::Wildcard, _) => {}
                (Scope::Names, _) => cache.named.set_error(name, Some(status)),
            }
        }
        self.settle(type_url, now);
    }

    /// Names that were asked for long enough ago, of a server that cannot be reached: UNAVAILABLE, never NOT_FOUND
    /// (ERR-10). While it is reached, its answer is waited for (TMR-1).
    fn report_unreachable(&mut self, now: Time) {
        while self.upkeep.asked.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, type_url, mut names)) = self.upkeep.asked.pop_front() else { return };
            let Some(cache) = self.types.get_mut(&type_url) else { continue };
            let named = &mut cache.named;
            names.retain(|name| {
                matches!(named.known().get(name), Some(Known::Unknown))
                    && named.remarks().error(name).is_none()
            });
            if names.is_empty() {
                continue;
            }
            let Attachment::Streams(streams) = &mut self.attachment else { return };
            let Some(index) = streams.placed(&type_url, false) else { continue };
            let Some(machine) = streams.machine(index) else { continue };
            if machine.state() == State::Open {
                self.upkeep.asked.push_back((now + UNREACHABLE, type_url, names));
                continue;
            }
            let reason = machine.last_error().map(ToString::to_string);
            let text = format!("cannot be reached ({})", reason.as_deref().unwrap_or("still connecting"));
            let status = self.upkeep.error(Code::Unavailable, &text);
            self.put_errors(index, &type_url, &names, &status, now);
        }
    }
}
