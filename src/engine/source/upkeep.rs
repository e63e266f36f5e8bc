//! The timers of a source: resources expire (TTL-8), and unavailable names are reported (ERR-10).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Attachment, Output, Source, StreamIndex};
use crate::engine::Time;
use crate::engine::cache::Known;
use crate::engine::cache::expiry::{Due, Expiry, Leased, Left};
use crate::engine::interest::Shape;
use crate::engine::remarks::{ErrorKind, Lease, Remarks};
use crate::engine::upstream::{self, Cause, Changes, Event, Scope};
use crate::xds::{Code, ResourceName, Status, TypeUrl};

/// An unknown name of an unreachable server is reported as UNAVAILABLE after this time (RLY-8, ERR-10).
const UNREACHABLE: Duration = Duration::from_secs(10);

/// The timers of a source, and the server's name in errors.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Names the upstream to clients (ERR-9).
    server: Arc<str>,
    expiry: Expiry,
    /// Names, or globs, that were asked for together, and the time to check them; in the order of time.
    asked: VecDeque<(Time, TypeUrl, Vec<ResourceName>)>,
}

impl Upkeep {
    /// The source asked for names of unknown state.
    pub(super) fn asked(&mut self, type_url: &TypeUrl, names: &[ResourceName], now: Time) {
        self.asked.push_back((now + UNREACHABLE, type_url.clone(), names.to_vec()));
    }

    /// Names, or members of globs, are freed.
    pub(super) fn freed(&mut self, type_url: &TypeUrl, shape: Shape, names: &[ResourceName]) {
        for name in names {
            self.expiry.cancel(&Leased::new(type_url, shape, name));
        }
    }

    /// The members of the wildcard are freed.
    pub(super) fn freed_wildcard(&mut self, type_url: &TypeUrl) {
        self.expiry.keep_only(type_url, Shape::Wildcard, |_| false);
    }

    pub(super) fn left(&self, now: Time) -> BTreeMap<Leased, Left> {
        self.expiry.left(now).map(|(what, left)| (what.clone(), left)).collect()
    }

    pub(super) fn has_leases(&self) -> bool {
        !self.expiry.is_empty()
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
    /// `server`: the server's name in errors. `tells_ttl`: clients of this class understand TTLs (TTL-1).
    #[must_use]
    pub fn of_server(mut self, server: Arc<str>, tells_ttl: bool) -> Source {
        self.upkeep.server = server;
        self.upkeep.expiry = Expiry::new(tells_ttl);
        self
    }

    /// Another server serves: errors name the new server from now on (ERR-9).
    pub fn set_server(&mut self, server: Arc<str>) {
        self.upkeep.server = server;
    }

    /// Starts, renews and ends the leases of a response's resources (TTL-3, TTL-4).
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
            (Scope::Globs, _) => cache.globs.remarks(),
            (Scope::Names, _) => cache.named.remarks(),
        };
        let shape = changes.scope.shape();
        let of = |name: &ResourceName| Leased::new(&changes.type_url, shape, name);
        // A resource that was requested by its aliases only is stored under the aliases (ALI-1).
        let is_held = |name: &ResourceName| shape != Shape::Names || cache.named.known().contains_key(name);
        let expiry = &mut self.upkeep.expiry;
        let mut leases = Vec::new();
        if changes.replaces {
            let present: BTreeSet<_> = changes.present.iter().map(|resource| &resource.name).collect();
            expiry.keep_only(&changes.type_url, shape, |name| present.contains(name));
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
        match (what.shape, &mut cache.wildcard) {
            (Shape::Wildcard, Some(wildcard)) => wildcard.set_lease(&what.name, lease),
            (Shape::Wildcard, None) => {}
            (Shape::Globs, _) => cache.globs.set_lease(&what.name, lease),
            (Shape::Names, _) => cache.named.set_lease(&what.name, lease),
        }
    }

    pub(super) fn keep_up(&mut self, now: Time) {
        self.run_out(now);
        self.report_unreachable(now);
    }

    /// Sends due heartbeats, and removes expired resources as if the server had removed them (TTL-8).
    fn run_out(&mut self, now: Time) {
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
        let Leased { type_url, shape, name } = what;
        let was_kept = *shape == Shape::Names && self.is_kept(type_url, Some(name));
        let Some(cache) = self.types.get_mut(type_url) else { return false };
        let was_present = match (shape, &mut cache.wildcard) {
            (Shape::Wildcard, Some(members)) => members.take(name),
            (Shape::Wildcard, None) => false,
            (Shape::Globs, _) => cache.globs.take(name),
            (Shape::Names, _) => {
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
        self.guard.forget(type_url, *shape, std::slice::from_ref(name));
        if let Attachment::Streams(streams) = &mut self.attachment
            && let Some(machine) = streams.placed(type_url, *shape).and_then(|index| streams.machine(index))
        {
            machine.expire(type_url, name);
        }
        if was_kept {
            // Only the content kept the name from lingering.
            self.start_linger(type_url, vec![name.clone()], now);
        }
        true
    }

    /// Records errors of names that the upstream reports or, by silence, implies (ERR-1, TMR-5).
    pub(super) fn take_errors(&mut self, index: StreamIndex, event: &Event, now: Time) {
        match event {
            Event::ResourceError { type_url, error } => {
                let status = self.upkeep.error(error.status.code, &error.status.message);
                let mut names = vec![error.name.clone()];
                // The error covers the name with any parameters. NOT_FOUND has removed each of these
                // resources elsewhere.
                if let Some(cache) = self.types.get(type_url).filter(|_| error.status.code != Code::NotFound)
                {
                    names.extend(cache.named.located(&error.name).cloned());
                }
                let errors = names.into_iter().map(|name| (name, status.clone())).collect();
                self.put_errors(index, type_url, errors, ErrorKind::Reported, now);
            }
            Event::Malformed { type_url, faults } => {
                let status = |reason: &str| self.upkeep.error(Code::InvalidArgument, reason);
                let errors = faults.iter().map(|(name, reason)| (name.clone(), status(reason))).collect();
                self.put_errors(index, type_url, errors, ErrorKind::Malformed, now);
            }
            Event::Timeout { type_url, names } => {
                let status = self.upkeep.error(Code::Unavailable, "no answer for this name in time");
                let errors = names.iter().map(|name| (name.clone(), status.clone())).collect();
                self.put_errors(index, type_url, errors, ErrorKind::Timeout, now);
            }
            Event::Heard => self.end_transient_errors(index, None, now),
            // The type is requested with the others again: its error is over.
            Event::BearsType { type_url } => self.end_transient_errors(index, Some(type_url), now),
            // The first end may have had another reason.
            Event::EndsStream { type_url, status, ends: 2.. } => {
                let text = format!("ends the stream when it is asked for this type ({status})");
                self.report_refused(index, type_url, &text, now);
            }
            Event::NotServed { type_url, status } => {
                self.report_refused(index, type_url, &format!("does not serve this type ({status})"), now);
            }
            _ => {}
        }
    }

    /// The event to pass on. Resources that came under the version of the held resource are reported only if
    /// their bytes differ (FU20). Must be called before the response is applied.
    pub(super) fn told(&self, index: StreamIndex, event: Event) -> Option<Event> {
        let Attachment::Streams(streams) = &self.attachment else { return None };
        let is_of_server = matches!(
            event,
            Event::Connected { .. } | Event::Disconnected { .. } | Event::Unreachable { .. } | Event::Heard
        );
        if is_of_server && streams.is_alone(index) {
            return None;
        }
        let Event::SameVersion { type_url, mut contents } = event else { return Some(event) };
        let (shape, cache) = (streams.shape_of(index, &type_url)?, self.types.get(&type_url)?);
        contents.retain(|(name, content)| {
            let held = match (shape, &cache.wildcard) {
                (Shape::Names, _) => cache.named.known().get(name).and_then(Known::resource),
                (Shape::Globs, _) => cache.globs.members().get(name),
                (Shape::Wildcard, wildcard) => wildcard.as_ref().and_then(|held| held.members().get(name)),
            };
            held.is_some_and(|held| held.version != *content)
        });
        (!contents.is_empty()).then_some(Event::SameVersion { type_url, contents })
    }

    fn put_errors(
        &mut self,
        index: StreamIndex,
        type_url: &TypeUrl,
        errors: Vec<(ResourceName, Arc<Status>)>,
        kind: ErrorKind,
        now: Time,
    ) {
        let Attachment::Streams(streams) = &self.attachment else { return };
        let Some(shape) = streams.shape_of(index, type_url) else { return };
        let Some(cache) = self.types.get_mut(type_url) else { return };
        for (name, status) in &errors {
            let is_absence = status.code == Code::NotFound;
            match (shape, &mut cache.wildcard) {
                (Shape::Names, _) => cache.named.fail(name, status, kind),
                (Shape::Globs, _) if name.is_glob() || !is_absence => cache.globs.fail(name, status, kind),
                (Shape::Wildcard, Some(members)) if !is_absence => members.set_error(name, Some(status)),
                // The member's removal reports its absence.
                (Shape::Wildcard | Shape::Globs, _) => {}
            }
        }
        self.settle(type_url, now);
    }

    /// The server is heard: errors of unavailable names are over until they are reported again (DAT-7).
    /// Unknown names are waited for as at first. `only`: limits the call to this type.
    fn end_transient_errors(&mut self, index: StreamIndex, only: Option<&TypeUrl>, now: Time) {
        let Attachment::Streams(streams) = &self.attachment else { return };
        let mut touched = Vec::new();
        for (type_url, cache) in &mut self.types {
            if only.is_some_and(|only| only != type_url) {
                continue;
            }
            let unknown = match (streams.shape_of(index, type_url), &mut cache.wildcard) {
                (Some(Shape::Names), _) => cache.named.end_transient_errors(),
                (Some(Shape::Globs), _) => cache.globs.end_transient_errors(),
                (Some(Shape::Wildcard), Some(members)) => {
                    members.end_transient_errors();
                    Vec::new()
                }
                (Some(Shape::Wildcard) | None, _) => continue,
            };
            if !unknown.is_empty() {
                self.upkeep.asked(type_url, &unknown, now);
            }
            touched.push(type_url.clone());
        }
        for type_url in touched {
            self.settle(&type_url, now);
        }
    }

    /// The server refuses a type: its unknown names are unavailable for now (ERR-10).
    fn report_refused(&mut self, index: StreamIndex, type_url: &TypeUrl, text: &str, now: Time) {
        let Some(cache) = self.types.get(type_url) else { return };
        let unknown = cache.named.known().iter().filter(|(_, known)| matches!(known, Known::Unknown));
        let globs = cache.globs.unknown();
        let names = unknown.map(|(name, _)| name).chain(globs).cloned();
        let status = self.upkeep.error(Code::Unavailable, text);
        let errors = names.map(|name| (name, status.clone())).collect();
        self.put_errors(index, type_url, errors, ErrorKind::Unreachable, now);
    }

    /// Names that were asked for long enough ago, of an unreachable server: UNAVAILABLE, never NOT_FOUND
    /// (ERR-10). A reachable server answers in time or times out (TMR-1).
    fn report_unreachable(&mut self, now: Time) {
        while self.upkeep.asked.front().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, type_url, mut names)) = self.upkeep.asked.pop_front() else { return };
            let Some(cache) = self.types.get(&type_url) else { continue };
            let (named, globs) = (&cache.named, &cache.globs);
            names.retain(|name| match Shape::of(name) {
                Shape::Globs => globs.is_unknown(name) && globs.remarks().error(name).is_none(),
                _ => {
                    let is_unknown = matches!(named.known().get(name), Some(Known::Unknown));
                    is_unknown && named.remarks().error(name).is_none()
                }
            });
            let Some(shape) = names.first().map(Shape::of) else { continue };
            let Attachment::Streams(streams) = &mut self.attachment else { return };
            let Some(index) = streams.placed(&type_url, shape) else { continue };
            let Some(machine) = streams.machine(index) else { continue };
            if machine.is_reached() {
                self.upkeep.asked.push_back((now + UNREACHABLE, type_url, names));
                continue;
            }
            let reason = machine.last_error().map(ToString::to_string);
            let text = format!("cannot be reached ({})", reason.as_deref().unwrap_or("still connecting"));
            let status = self.upkeep.error(Code::Unavailable, &text);
            let errors = names.into_iter().map(|name| (name, status.clone())).collect();
            self.put_errors(index, &type_url, errors, ErrorKind::Unreachable, now);
        }
    }
}
